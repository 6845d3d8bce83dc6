//! One transaction at one of its participants (RCC figure 14).
//!
//! Locks in order (a1, b1), read what is here, forward it to those who run the transaction (a2, b2); if this node is one of them, wait
//! for what others forward (a3, b3), run, write what is here (a4, b4). A passive participant's locks are free when it
//! has read; an active one's, when it has written. Forwarded values are on their way while the next transactions
//! run; that they have come is known by the end of the epoch.
//!
//! What a transaction finds on its way, it finds at one node, which runs it first and forwards that, too; the others wait for it
//! before they run. Whatever that node waits for, it has been sent before: nobody waits in a circle.

use super::Bug;
use super::buffers::{section, section_words};
use super::epoch::{Coroutine, Env, Halted};
use super::locks::{Ask, Ticket};
use super::participants::{others, owner};
use super::schedule::Planned;
use crate::protocol::Protocol;
use crate::session::{Failure, Halt, Session};
use crate::workload::ahead::{Cover, ReadWriteSet};
use crate::workload::{RecordId, Workload};
use phases::letter::{self, HEAD_WORDS};
use phases::ops::{Fault, Phases, Sending, Stop};
use phases::plan::Phase;
use phases::rule::{Abort, LAST_WTS};
use phases::txn::{Change, Finding, Intent, Txn};
use primitives::mem::Buf;
use primitives::verbs::NodeId;

/// How a transaction ended.
enum Outcome<T> {
    /// This node only forwarded.
    Forwarded,
    /// With this effect.
    Committed(T),
    /// The application rolled it back.
    RolledBack(&'static str),
}

/// A transaction at this node.
struct Part<'c, W: Workload> {
    epoch: u64,
    planned: &'c Planned<W::Input>,
    set: &'c ReadWriteSet,
    tickets: &'c [Ticket],
}

impl<W: Workload, P: Protocol> Coroutine<'_, W, P> {
    /// Runs this node's part of a transaction.
    pub(super) async fn execute<'p>(
        &mut self,
        phases: &'p Phases,
        under_way: &mut Vec<Sending<'p>>,
        epoch: u64,
        planned: Planned<W::Input>,
    ) -> Result<(), Halted> {
        let Coroutine { env, clients, helper, set, tickets, to, effects, ordering, .. } = self;
        let own = planned.source == env.node;
        set.clear();
        env.workload.declare(&planned.input, set);
        let part = Part { epoch, planned: &planned, set, tickets };
        let place = place(env, planned.place)?;
        if !own {
            helper.begin_sequenced(None, set, place).map_err(halted)?;
            part.run(env, phases, under_way, to, helper).await?;
            helper.helped();
            return Ok(());
        }
        let client = &mut clients[usize::from(planned.index)];
        if client.input.is_none() {
            // It ran before its turn; its place in the order is still to be passed.
            part.granted(env).await?;
            part.release(env);
            return Ok(());
        }
        let session = &mut client.session;
        session.begin_sequenced(Some(client.invoked), set, place).map_err(halted)?;
        session.ordered(*ordering);
        match part.run(env, phases, under_way, to, session).await? {
            Outcome::Committed(effect) => {
                session.committed(client.started);
                *effects += effect;
                let worker = usize::from(env.node.0) * usize::from(env.shape.workers);
                env.meter.count(worker + usize::from(env.worker), 1, session.ended_at());
            }
            Outcome::RolledBack(reason) => session.rolled_back(reason),
            Outcome::Forwarded => unreachable!("bug: a node is not active in a transaction of its own"),
        }
        Ok(())
    }

    /// The bug [`Bug::EarlyEpoch`]: runs those of the clients' transactions that need this node alone, in no order with others.
    pub(super) async fn run_early(&mut self, phases: &Phases, epoch: u64) -> Result<(), Halted> {
        let mut under_way = Vec::new();
        for index in 0..self.clients.len() {
            let Some(input) = self.clients[index].input else { continue };
            self.set.clear();
            self.env.workload.declare(&input, &mut self.set);
            let here = |record: &RecordId| owner(self.env.layout, *record) == self.env.node;
            if !self.set.records().iter().all(|(record, _)| here(record)) {
                continue;
            }
            let (source, index) = (self.env.node, index as u16);
            let Env { worker, coroutine, .. } = self.env;
            let place = self.env.buffers().place_in_order(worker, coroutine, source, index, epoch);
            let planned = Planned { source, index, input, place, active: true, tickets: 0..0 };
            self.tickets.clear();
            self.execute(phases, &mut under_way, epoch, planned).await?;
            self.clients[usize::from(index)].input = None;
        }
        Ok(())
    }
}

/// What a transaction leaves behind as versions: its place behind the version that all records begin with, where records come and go.
fn place<W: Workload>(env: &Env<'_, W>, place: u64) -> Result<u64, Halted> {
    if !env.workload.changes_tables() {
        return Ok(0);
    }
    let version = env.first_version.checked_add(place).filter(|&version| version <= LAST_WTS);
    version.ok_or_else(|| Stop::Abort(Abort::TimestampWrap).into())
}

impl<W: Workload> Part<'_, W> {
    async fn run<'p, P: Protocol>(
        &self,
        env: &Env<'_, W>,
        phases: &'p Phases,
        under_way: &mut Vec<Sending<'p>>,
        to: &mut Vec<NodeId>,
        session: &mut Session<P, Phases>,
    ) -> Result<Outcome<W::Tally>, Halted> {
        if !env.calvin.has(Bug::EarlyValues) {
            self.granted(env).await?;
        }
        session.reading();
        phases.read_here(session.sequenced()).await?;
        under_way.extend(self.forward(env, phases, to, session.sequenced()).await?);
        if !self.planned.active {
            if env.calvin.has(Bug::EarlyValues) {
                self.granted(env).await?;
            }
            self.release(env);
            return Ok(Outcome::Forwarded);
        }
        if env.calvin.has(Bug::EarlyValues) {
            self.granted(env).await?;
        }
        if env.calvin.has(Bug::EarlyRelease) {
            self.release(env);
        }
        self.collect(env, phases, session.sequenced()).await?;
        let finding = match self.set.finder().map(|record| owner(env.layout, record)) {
            None => Finding::Nothing,
            Some(node) if node == env.node => Finding::At(node),
            Some(_) => Finding::Told,
        };
        session.sequenced().declared(finding);
        if finding == Finding::Told {
            self.hear(env, phases, session.sequenced()).await?;
        }
        session.have_read();
        let ended = env.workload.execute(session, &self.planned.input).await;
        // What it may not touch it may have met in any state: that it has, comes first.
        self.check(env, session.sequenced())?;
        if let Finding::At(_) = finding {
            under_way.extend(self.tell(env, phases, to, session.sequenced()).await?);
        }
        let outcome = match ended {
            Ok(effect) => {
                session.writing();
                phases.install_here(session.sequenced())?;
                Outcome::Committed(effect)
            }
            Err(Halt::User(reason)) => Outcome::RolledBack(reason),
            Err(other) => return Err(halted(other)),
        };
        if !env.calvin.has(Bug::EarlyRelease) {
            self.release(env);
        }
        Ok(outcome)
    }

    /// Waits for the transaction's turn at all of its locks here.
    async fn granted(&self, env: &Env<'_, W>) -> Result<(), Halted> {
        let bug = env.calvin;
        for &ticket in self.tickets {
            if bug.has(Bug::OutOfTurn) || bug.has(Bug::ImpatientReaders) && ticket.ask() == Ask::Shared {
                continue;
            }
            let turn = || Ok(env.locks().granted(self.epoch, ticket));
            env.until(Phase::Lock, self.epoch, || env.node, turn).await?;
        }
        Ok(())
    }

    fn release(&self, env: &Env<'_, W>) {
        self.tickets.iter().for_each(|&ticket| env.locks().release(self.epoch, ticket));
    }

    /// The transaction's place in the forward buffers of all who run it.
    fn place(&self, env: &Env<'_, W>) -> u64 {
        let Planned { source, index, .. } = *self.planned;
        env.buffers().values(env.worker, env.coroutine, source, index, self.epoch)
    }

    /// Starts to send what was read here to all others that run the transaction.
    async fn forward<'p>(
        &self,
        env: &Env<'_, W>,
        phases: &'p Phases,
        to: &mut Vec<NodeId>,
        txn: &mut Txn,
    ) -> Result<Option<Sending<'p>>, Halted> {
        let words = section_words(txn, env.node);
        if words == 0 {
            return Ok(None);
        }
        others(self.set, env.layout, self.planned.source, env.node, to);
        if to.is_empty() {
            return Ok(None);
        }
        let buf = self.letter(env, words)?;
        let words = phases.write_values(txn, &buf);
        let at = self.place(env) + section(txn, env.node);
        self.send(phases, (&buf, words), at, to, txn).await.map(Some)
    }

    fn letter(&self, env: &Env<'_, W>, words: usize) -> Result<Buf, Halted> {
        env.port.buf((HEAD_WORDS + words) as u32 * 8).map_err(Failure::from).map_err(Halted::Failed)
    }

    async fn send<'p>(
        &self,
        phases: &'p Phases,
        (buf, words): (&Buf, usize),
        at: u64,
        to: &[NodeId],
        txn: &mut Txn,
    ) -> Result<Sending<'p>, Halted> {
        letter::seal(buf, self.epoch, words, at);
        let sending = phases.send_letter(Phase::Fetch, buf, words, at, to).await?;
        txn.costs[Phase::Fetch] += sending.cost();
        Ok(sending)
    }

    /// Starts to send what was found here to all others that run the transaction.
    async fn tell<'p>(
        &self,
        env: &Env<'_, W>,
        phases: &'p Phases,
        to: &mut Vec<NodeId>,
        txn: &mut Txn,
    ) -> Result<Option<Sending<'p>>, Halted> {
        others(self.set, env.layout, self.planned.source, env.node, to);
        if to.is_empty() {
            return Ok(None);
        }
        let (words, room) = (phases.found_words(txn), env.buffers().found_words);
        if words > room {
            return Err(Fault::Overfull { words, room }.into());
        }
        let buf = self.letter(env, words)?;
        phases.write_found(txn, &buf);
        let at = self.place(env) + env.buffers().found_section();
        self.send(phases, (&buf, words), at, to, txn).await.map(Some)
    }

    /// Waits for what was found elsewhere, and takes it.
    async fn hear(&self, env: &Env<'_, W>, phases: &Phases, txn: &mut Txn) -> Result<(), Halted> {
        let Some(from) = self.set.finder().map(|record| owner(env.layout, record)) else { return Ok(()) };
        let at = self.place(env) + env.buffers().found_section();
        let come = || letter::arrived(phases.region(), at, self.epoch, env.buffers().found_words);
        env.until(Phase::Fetch, self.epoch, || from, || Ok(come().is_some())).await?;
        Ok(phases.read_found(txn, from, at, come().unwrap_or(0))?)
    }

    /// Waits for the values of other nodes' records, and takes them.
    async fn collect(&self, env: &Env<'_, W>, phases: &Phases, txn: &mut Txn) -> Result<(), Halted> {
        let place = self.place(env);
        for at in 0..txn.accesses().len() {
            let Some(access) = txn.accesses().get(at).filter(|a| !a.fetched()) else { continue };
            let (from, most) = (access.primary, section_words(txn, access.primary));
            let from_place = place + section(txn, from);
            let of = |epoch| letter::arrived(phases.region(), from_place, epoch, most) == Some(most);
            let stale = env.calvin.has(Bug::StaleValues) && self.epoch > 2;
            let come = || Ok(of(self.epoch) || stale && of(self.epoch - 2));
            env.until(Phase::Fetch, self.epoch, || from, come).await?;
            phases.read_values(txn, from, from_place, most);
        }
        Ok(())
    }

    /// Holds what the transaction did against what it declared: the records that it named, and those that its locks cover.
    fn check(&self, env: &Env<'_, W>, txn: &Txn) -> Result<(), Halted> {
        let named = self.set.records().iter().map(|&(_, intent)| Some(intent));
        for (access, named) in txn.accesses().iter().zip(named.chain(std::iter::repeat(None))) {
            let record = RecordId { table: access.table.0, key: access.key };
            let may = match named {
                Some(intent) => access.intent <= intent,
                None => self.covers(env, record, record, access.intent),
            };
            // What never changes is not locked by those who name it, either.
            let changes = access.dirty() || access.change != Change::Update;
            if !may || changes && env.workload.cover(record) == Cover::Fixed {
                return Err(Fault::Undeclared { table: access.table, key: access.key }.into());
            }
        }
        for scan in txn.scans().filter(|scan| scan.from <= scan.to) {
            let [from, to] = [scan.from, scan.to].map(|key| RecordId { table: scan.table.0, key });
            if !self.covers(env, from, to, Intent::Read) {
                return Err(Fault::Undeclared { table: scan.table, key: scan.from }.into());
            }
        }
        Ok(())
    }

    /// Whether a lock that the transaction holds at their node covers all records from the one to the other.
    fn covers(&self, env: &Env<'_, W>, from: RecordId, to: RecordId, intent: Intent) -> bool {
        let cover = env.workload.cover(from);
        let there = match cover {
            Cover::By(lock) | Cover::OneOf(lock) => owner(env.layout, lock) == owner(env.layout, from),
            Cover::Own | Cover::Fixed => true,
        };
        there && self.set.covers(cover, intent) && (from == to || env.workload.cover(to) == cover)
    }
}

fn halted(halt: Halt) -> Halted {
    match halt {
        Halt::Abort(abort) => Stop::Abort(abort).into(),
        Halt::Fault(failure) => Halted::Failed(failure),
        Halt::User(reason) => unreachable!("bug: rolled back for {reason} outside of its body"),
    }
}
