//! What sequenced transactions (CALVIN) do to records and memory: letters to other nodes, and the records of the own node.
//!
//! | stage    | phase of a plan | one-sided | two-sided |
//! |----------|-----------------|-----------|-----------|
//! | inputs of an epoch to all nodes (RCC figure 13) | `lock` | WRITE of the contents, WRITE of the head behind it (b2) | a call, whose handler writes both (a2, a3) |
//! | values read here to active participants (figure 14) | `fetch` | the same (b2, b3) | the same (a2, a3) |
//!
//! A batch of inputs *is* the request for the locks of its transactions, at every node; forwarding *is* how records of
//! other nodes are fetched. Nothing else leaves a node: records are read, locked and written by their own node's
//! CPU (a1, a4, b1, b4), so there is nothing to validate, log, install or unlock at others.
//!
//! A letter that does not fit into one message goes in several, each with the letter's head; whichever comes last makes it whole.

use super::phases::Phases;
use super::wire::{self, Outcome};
use super::{Context, MAX_TRIES, Stop, fault};
use crate::letter::{self, HEAD_WORDS};
use crate::plan::{Phase, Step, Via};
use crate::rule::{Abort, Header, Packing};
use crate::store::record;
use crate::txn::{Access, Change, Txn};
use primitives::exec::yield_now;
use primitives::fabric::{AnyNic, CpuWork};
use primitives::mem::{Buf, Region};
use primitives::rpc::{MAX_CALLS, Pending, RpcError};
use primitives::verbs::NodeId;
use primitives::verbs::port::{Cost, Posted};
use std::pin::Pin;
use std::task::{self, Poll, Waker, ready};

/// Words of a message in front of a piece of a letter's contents: RPC header, place, head of the letter, place of the piece.
const PIECE_WORDS: usize = 3 + 1 + HEAD_WORDS + 1;

/// In front of a record's values, beside its version: there is no such record.
const ABSENT: u64 = 1 << 63;

/// A letter under way.
#[must_use = "only a letter that is waited for is known to have come"]
pub struct Sending<'p> {
    phase: Phase,
    cost: Cost,
    posted: Option<Posted<'p, AnyNic>>,
    calls: Option<Pending<'p, AnyNic>>,
}

impl Sending<'_> {
    /// What sending it cost. Replies, a word each which says that a piece has come, are not in it.
    pub fn cost(&self) -> Cost {
        self.cost
    }

    /// Waits until it is in the memory of all it was sent to.
    ///
    /// # Errors
    /// If one of them cannot be reached.
    pub async fn arrived(mut self) -> Result<(), Stop> {
        std::future::poll_fn(|context| self.poll(context)).await
    }

    /// Whether it is known by now to be there; waits for nothing.
    ///
    /// # Errors
    /// As [`Sending::arrived`].
    pub fn has_arrived(&mut self) -> Result<bool, Stop> {
        match self.poll(&mut task::Context::from_waker(Waker::noop())) {
            Poll::Ready(arrived) => arrived.map(|()| true),
            Poll::Pending => Ok(false),
        }
    }

    fn poll(&mut self, context: &mut task::Context<'_>) -> Poll<Result<(), Stop>> {
        if let Some(posted) = &mut self.posted {
            let done = ready!(Pin::new(posted).poll(context));
            self.posted = None;
            done.map_err(fault(self.phase))?;
        }
        if let Some(calls) = &mut self.calls {
            let done = ready!(Pin::new(calls).poll(context)).map(|_| ());
            self.calls = None;
            done.map_err(fault(self.phase))?;
        }
        Poll::Ready(Ok(()))
    }
}

impl Phases {
    /// Starts to put the letter in `buf`, sealed and with `words` words of contents, into the place `at` of all nodes of `to`, none
    /// of which may be this one. It is as `phase` is carried by the plan.
    ///
    /// # Errors
    /// If it cannot be sent.
    pub async fn send_letter(
        &self,
        phase: Phase,
        buf: &Buf,
        words: usize,
        at: u64,
        to: &[NodeId],
    ) -> Result<Sending<'_>, Stop> {
        let step = self.context.plan.step(phase);
        let mut cost = Cost::default();
        let each = if step.outstanding { to.len().max(1) } else { 1 };
        let mut groups = to.chunks(each).peekable();
        while let Some(group) = groups.next() {
            let mut sending = match step.via {
                Via::OneSided => self.context.write_letter(phase, step, buf, words, at, group),
                Via::TwoSided | Via::Hybrid => {
                    self.context.call_with_letter(phase, step, buf, words, at, group).await?
                }
            };
            cost += sending.cost;
            if groups.peek().is_none() {
                sending.cost = cost;
                return Ok(sending);
            }
            sending.arrived().await?;
        }
        Ok(Sending { phase, cost, posted: None, calls: None })
    }

    /// Asks a node, whose letter is late in `phase`, for a sign of life. It answers whatever its coroutines wait for; false if the run has
    /// failed there and the letter will not come.
    ///
    /// # Errors
    /// If there is no answer.
    pub async fn goes_on(&self, phase: Phase, node: NodeId) -> Result<bool, Stop> {
        let answers = self.context.rpc().call(node, wire::PING, |_| ()).await.map_err(fault(phase))?;
        let answer = answers.read(0, |mut answer| Outcome::read(&mut answer));
        Ok(answer.map_err(|e| fault(phase)(RpcError::from(e)))? == Outcome::Done(0))
    }

    /// Puts a sealed letter into this node's own memory.
    pub fn keep_letter(&self, buf: &Buf, words: usize, at: u64) {
        self.context.charge(CpuWork::Copy((HEAD_WORDS + words) as u32 * 8));
        letter::put(buf, words, self.local.region(), at);
    }

    /// The node's memory, to look for letters in.
    pub fn region(&self) -> &Region {
        self.local.region()
    }

    /// Reads the transaction's records of this node, whose locks it has been granted.
    ///
    /// # Errors
    /// If there is no such record, or it stays torn.
    pub async fn read_here(&self, txn: &mut Txn) -> Result<(), Stop> {
        let me = self.context.me;
        for _ in 0..MAX_TRIES {
            let (set, _) = txn.serve(Phase::Fetch);
            let wanted = |a: &Access| a.primary == me && !a.fetched;
            let split = self.split(set, wanted, |store, a| self.read_local(store, a))?;
            if split.waiting == 0 {
                return Ok(());
            }
            yield_now(self.context.port().sched()).await;
        }
        Err(Abort::Unstable.into())
    }

    /// Writes what was read here into the contents of a letter; returns its words.
    pub fn write_values(&self, txn: &Txn, buf: &Buf) -> usize {
        let mut at = HEAD_WORDS;
        for access in txn.accesses().iter().filter(|a| a.primary == self.context.me) {
            let absent = access.absent();
            buf.set_word(at, access.version | if absent { ABSENT } else { 0 });
            for i in 0..access.payload_words() {
                buf.set_word(at + 1 + i, if absent { 0 } else { access.word(i) });
            }
            at += 1 + access.payload_words();
        }
        self.context.charge(CpuWork::Copy((at - HEAD_WORDS) as u32 * 8));
        at - HEAD_WORDS
    }

    /// Takes the values of `from`'s records out of the letter at `at`, which has come; false if it is not about those records.
    pub fn read_values(&self, txn: &mut Txn, from: NodeId, at: u64, words: usize) -> bool {
        if words != values_of(txn, from) {
            return false;
        }
        self.context.charge(CpuWork::Copy(words as u32 * 8));
        let region = self.local.region();
        let mut at = at + HEAD_WORDS as u64 * 8;
        let (set, _) = txn.serve(Phase::Fetch);
        for access in set.iter_mut().filter(|a| a.primary == from) {
            let (shape, image) = (access.shape(), access.image());
            debug_assert_eq!(shape.packing, Packing::Counted, "sequenced protocols count versions");
            if region.load(at) & ABSENT != 0 {
                access.take_absence(region.load(at) & !ABSENT);
                at += 8 + u64::from(shape.payload) * 8;
                continue;
            }
            image.set_word(record::HEADER_WORD, Header::new(region.load(at)).0);
            image.set_word(record::KEY_WORD, access.key);
            let first = shape.payload_word(0);
            for i in 0..shape.payload as usize {
                image.set_word(first + i, region.load(at + 8 + i as u64 * 8));
            }
            at += 8 + u64::from(shape.payload) * 8;
            access.read_in(0);
        }
        true
    }

    /// Whether this node holds a copy of the access's record.
    pub fn holds(&self, access: &Access) -> bool {
        self.context.layout.copy(self.context.me, access.primary).is_some()
    }

    /// Writes the transaction's new values into this node's copies of their records, with those that come and go: into its own
    /// partition, whose locks the transaction has been granted, and into those it backs up, unless they have a later version already.
    ///
    /// # Errors
    /// If a copy has no such record, or the own partition has one that is to be created, or no room for it.
    pub fn install_here(&self, txn: &mut Txn) -> Result<(), Stop> {
        let (me, layout) = (self.context.me, &self.context.layout);
        let install_at = txn.install_at;
        let (set, _) = txn.serve(Phase::Install);
        for access in set.iter().filter(|a| a.logged()) {
            match layout.copy(me, access.primary) {
                None => {}
                Some(0) => self.install_own(access, access.next_version(install_at))?,
                Some(copy) => self.install_copy(copy, access, install_at)?,
            }
        }
        Ok(())
    }

    /// Changes, creates or removes a record of this node's own partition.
    fn install_own(&self, access: &Access, version: u64) -> Result<(), Stop> {
        let Access { table, key, change, .. } = *access;
        let payload = access.logged_values();
        match change {
            Change::Update => {
                self.context.charge(CpuWork::Copy(access.shape().install_words() as u32 * 8));
                let known = access.location().or_else(|| self.local.locate(table, key));
                let (region, offset) = (self.local.region(), known.ok_or(Abort::NotFound)?);
                record::write_local(region, offset, access.shape(), version, key, payload);
            }
            Change::Insert => {
                self.context.charge(CpuWork::Probe);
                self.context.charge(CpuWork::Probe);
                self.context.charge(CpuWork::Copy(access.shape().install_words() as u32 * 8));
                self.local.create(table, key, version, payload)?;
            }
            Change::Delete => {
                self.context.charge(CpuWork::Probe);
                if !self.local.erase(table, key, access.location, version) {
                    return Err(Abort::NotFound.into());
                }
            }
        }
        Ok(())
    }

    /// Brings a copy of another node's record to where the transaction leaves it. Where records come and go, versions are places in the
    /// order of transactions: a copy may hear of a record's change before it hears of its creation.
    fn install_copy(&self, copy: usize, access: &Access, install_at: u64) -> Result<(), Stop> {
        let (shape, version) = (access.shape(), access.next_version(install_at));
        self.context.charge(CpuWork::Probe);
        self.context.charge(CpuWork::Copy(access.logged_words() as u32 * 8));
        let payload = access.logged_values();
        if install_at == 0 {
            let found = self.local.locate_copy(copy, access.table, access.key);
            self.local.bring_to(found.ok_or(Abort::NotFound)?, shape, version, access.key, payload);
            return Ok(());
        }
        let payload = (access.change != Change::Delete).then_some(payload);
        let brought = self.local.bring_copy_to(copy, access.table, access.key, version, payload);
        brought.map_err(|_| Abort::TableFull.into())
    }
}

/// Words of the values that `node` forwards for a transaction.
pub fn values_of(txn: &Txn, node: NodeId) -> usize {
    txn.accesses().iter().filter(|a| a.primary == node).map(|a| 1 + a.payload_words()).sum()
}

impl Context {
    /// Posts the WRITEs that put a letter into place: contents, then head.
    fn write_letter(
        &self,
        phase: Phase,
        step: Step,
        buf: &Buf,
        words: usize,
        at: u64,
        to: &[NodeId],
    ) -> Sending<'_> {
        let head = HEAD_WORDS as u32 * 8;
        let mut batch = self.port().batch();
        batch.doorbell_batching(step.doorbell_batching);
        for &node in to {
            let place = self.at(node, at);
            if words > 0 {
                batch.write(place.at(u64::from(head)), buf, head, words as u32 * 8);
            }
            batch.write(place, buf, 0, head);
        }
        let posted = batch.post();
        Sending { phase, cost: posted.cost(), posted: Some(posted), calls: None }
    }

    /// Calls the handlers that put a letter into place, with as many pieces of it as are needed.
    async fn call_with_letter(
        &self,
        phase: Phase,
        step: Step,
        buf: &Buf,
        words: usize,
        at: u64,
        to: &[NodeId],
    ) -> Result<Sending<'_>, Stop> {
        let rpc = self.rpc();
        let piece = (rpc.config().max_message as usize / 8).saturating_sub(PIECE_WORDS).max(1);
        let mut needs = [(NodeId(0), 1); MAX_CALLS];
        let mut cost = Cost::default();
        let mut last: Option<Pending<'_, AnyNic>> = None;
        for from in (0..words.max(1)).step_by(piece) {
            let upto = (from + piece).min(words);
            for peers in to.chunks(MAX_CALLS) {
                if let Some(before) = last.take() {
                    before.await.map_err(fault(phase))?;
                }
                for (need, &peer) in needs.iter_mut().zip(peers) {
                    need.0 = peer;
                }
                rpc.room(&needs[..peers.len()]).await.map_err(fault(phase))?;
                let mut batch = rpc.batch();
                batch.doorbell_batching(step.doorbell_batching);
                for &peer in peers {
                    let called = batch.call(peer, wire::LETTER, |w| {
                        w.word(at);
                        (0..HEAD_WORDS).for_each(|i| w.word(buf.word(i)));
                        w.word(from as u64);
                        (from..upto).for_each(|i| w.word(buf.word(HEAD_WORDS + i)));
                    });
                    called.map_err(fault(phase))?;
                }
                let pending = batch.send();
                cost += pending.cost();
                last = Some(pending);
            }
        }
        Ok(Sending { phase, cost, posted: None, calls: last })
    }
}
