//! One coroutine's epochs: it sequences its clients' transactions, collects those of its counterparts, and runs its part of all.

use super::batch::Batch;
use super::locks::{LockTable, Ticket};
use super::schedule::{Schedule, Site};
use super::{Buffers, Bug, Calvin};
use crate::protocol::Protocol;
use crate::session::{Failure, Session};
use crate::stats::WorkerStats;
use crate::workload::ahead::ReadWriteSet;
use crate::workload::{Client as Asking, Workload};
use phases::letter::{self, HEAD_WORDS, LOOKS_AT_ONCE, PAUSE_FIRST, PAUSE_MOST};
use phases::ops::{Fault, Phases, Sending, Stop};
use phases::plan::Phase;
use phases::store::Layout;
use primitives::exec::{sleep_until, yield_now};
use primitives::fabric::Nic;
use primitives::measure::Meter;
use primitives::mesh::Shape;
use primitives::units::Nanos;
use primitives::verbs::NodeId;
use primitives::verbs::port::{Cost, EnginePort};
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Longest pause between looks where time is real and threads may outnumber CPUs: long enough for a loop to find itself idle and give
/// way.
const PAUSE_MOST_REAL: Nanos = Nanos(32_000);

/// How often a node that keeps others waiting is asked for a sign of life, each time after their patience: whoever waits for the dead one
/// asks it after the first, and knows before the third.
const MOST_ASKED: u64 = 3;

/// What the workers of a process share.
pub(crate) struct Shared {
    buffers: Buffers,
    tables: Vec<(NodeId, LockTable)>,
}

impl Shared {
    /// Lock tables for these nodes.
    pub(crate) fn new(
        buffers: Buffers,
        shape: Shape,
        coroutines: u32,
        records: usize,
        nodes: impl Iterator<Item = NodeId>,
    ) -> Shared {
        let accesses = u64::from(shape.workers) * u64::from(coroutines) * buffers.batch * records as u64;
        let table = || LockTable::new(usize::from(shape.workers), letter::locks_for(accesses));
        Shared { buffers, tables: nodes.map(|node| (node, table())).collect() }
    }
}

/// Why a coroutine ended before its time.
pub(crate) enum Halted {
    /// Something failed here.
    Failed(Failure),
    /// Something failed elsewhere, and the run is to end.
    Elsewhere,
}

impl From<Stop> for Halted {
    fn from(stop: Stop) -> Halted {
        Halted::Failed(Failure::Phase(match stop {
            Stop::Fault(fault) => fault,
            Stop::Abort(abort) => Fault::Sequenced(abort),
        }))
    }
}

impl From<Fault> for Halted {
    fn from(fault: Fault) -> Halted {
        Halted::Failed(Failure::Phase(fault))
    }
}

/// What a coroutine runs in.
pub(crate) struct Env<'a, W: Workload> {
    pub(crate) calvin: Calvin,
    pub(crate) workload: &'a W,
    pub(crate) shared: &'a Shared,
    pub(crate) layout: &'a Layout,
    pub(crate) schedule: Rc<RefCell<Schedule<W::Input>>>,
    pub(crate) phases: Rc<Phases>,
    pub(crate) port: Rc<EnginePort>,
    pub(crate) stats: Rc<RefCell<WorkerStats>>,
    pub(crate) meter: Arc<Meter>,
    /// Somebody wants the run to end.
    pub(crate) stop: &'a AtomicBool,
    /// Somebody has failed.
    pub(crate) failed: &'a AtomicBool,
    pub(crate) shape: Shape,
    pub(crate) node: NodeId,
    pub(crate) worker: u16,
    pub(crate) coroutine: u32,
    /// The number of its first client in the cluster.
    pub(crate) first_client: u32,
    /// The version that every record starts with.
    pub(crate) first_version: u64,
    /// Transactions to sequence.
    pub(crate) limit: u64,
    /// How long a node may keep the others waiting before they ask it whether it lives.
    pub(crate) patience: Nanos,
}

impl<W: Workload> Env<'_, W> {
    pub(super) fn locks(&self) -> &LockTable {
        let here = self.shared.tables.iter().find(|(node, _)| *node == self.node);
        &here.unwrap_or_else(|| panic!("bug: no lock table of {}", self.node)).1
    }

    pub(super) fn buffers(&self) -> &Buffers {
        &self.shared.buffers
    }

    fn site(&self) -> Site<'_, W> {
        let (workload, layout, buffers) = (self.workload, self.layout, self.buffers());
        let (calvin, locks) = (self.calvin, self.locks());
        Site { calvin, workload, layout, buffers, locks, node: self.node, worker: self.worker }
    }

    /// Looks at the node's memory until `ready`; `owes` says which node is waited for. A node that keeps this one waiting for too long is
    /// asked for a sign of life, and named if there is none. If it answers, or is this one, somebody there waits for another node and
    /// will name that: only if nobody does, the wait ends here.
    pub(super) async fn until(
        &self,
        phase: Phase,
        epoch: u64,
        owes: impl Fn() -> NodeId,
        mut ready: impl FnMut() -> Result<bool, Stop>,
    ) -> Result<(), Halted> {
        let most = if self.port.nic().caps().virtual_time { PAUSE_MOST } else { PAUSE_MOST_REAL };
        let (mut looks, mut pause, mut since, mut asked) = (0, PAUSE_FIRST, None, 0);
        while !ready()? {
            looks += 1;
            if looks <= LOOKS_AT_ONCE {
                yield_now(self.port.sched()).await;
                continue;
            }
            if self.failed.load(Ordering::Relaxed) {
                return Err(Halted::Elsewhere);
            }
            let now = self.port.now();
            let waited = now.since(*since.get_or_insert(now));
            if waited.0 > self.patience.0.saturating_mul(asked + 1) {
                let node = owes();
                if asked == MOST_ASKED {
                    return Err(Fault::Overdue { phase, node, epoch }.into());
                }
                asked += 1;
                if node != self.node && !self.phases.goes_on(phase, node).await? {
                    return Err(Halted::Elsewhere);
                }
                continue;
            }
            sleep_until(&self.port, now + pause).await;
            pause = Nanos((pause.0 * 2).min(most.0));
        }
        Ok(())
    }

    /// Waits until the epoch's schedule is ready: all inputs are here, and all transactions of the last epoch have ended.
    async fn scheduled(&self, epoch: u64) -> Result<(), Halted> {
        let owes = || self.schedule.borrow().waits_for(epoch, self.node);
        self.until(Phase::Lock, epoch, owes, || {
            self.schedule.borrow_mut().advance(epoch, self.site(), self.phases.region(), &self.port)
        })
        .await
    }
}

/// Somebody whose transactions a coroutine runs, one after the other.
pub(super) struct Client<P, I> {
    pub(super) session: Session<P, Phases>,
    /// The transaction of this epoch: when it was asked for, by the time of events and by the core's, and what it is.
    pub(super) invoked: Nanos,
    pub(super) started: Nanos,
    pub(super) input: Option<I>,
    /// Transactions that it has asked for.
    asked: u64,
}

/// One coroutine.
pub(crate) struct Coroutine<'a, W: Workload, P> {
    pub(super) env: Env<'a, W>,
    pub(super) clients: Vec<Client<P, W::Input>>,
    /// For the transactions of counterparts.
    pub(super) helper: Session<P, Phases>,
    pub(super) set: ReadWriteSet,
    pub(super) tickets: Vec<Ticket>,
    pub(super) to: Vec<NodeId>,
    batch: Batch,
    drawn: u64,
    /// How long it took until this epoch was in order.
    pub(super) ordering: Nanos,
    /// What committed transactions changed.
    pub(super) effects: W::Tally,
}

impl<'a, W: Workload, P: Protocol> Coroutine<'a, W, P> {
    /// A coroutine with a session for each client, as many as a batch has transactions, and one for the transactions of others.
    pub(crate) fn new(
        env: Env<'a, W>,
        clients: impl Iterator<Item = Session<P, Phases>>,
        helper: Session<P, Phases>,
    ) -> Coroutine<'a, W, P> {
        let client =
            |session| Client { session, invoked: Nanos(0), started: Nanos(0), input: None, asked: 0 };
        Coroutine {
            env,
            clients: clients.map(client).collect(),
            helper,
            set: ReadWriteSet::new(),
            tickets: Vec::new(),
            to: Vec::new(),
            batch: Batch::default(),
            drawn: 0,
            ordering: Nanos(0),
            effects: W::Tally::default(),
        }
    }

    /// The clients' sessions, and what their committed transactions changed.
    pub(crate) fn finish(self) -> (Vec<Session<P, Phases>>, W::Tally) {
        (self.clients.into_iter().map(|client| client.session).collect(), self.effects)
    }

    /// Runs epochs until no counterpart has more transactions.
    pub(crate) async fn run(&mut self) -> Result<(), Halted> {
        let phases = self.env.phases.clone();
        let mut under_way: Vec<Sending<'_>> = Vec::new();
        for epoch in 1.. {
            let sent = self.sequence(&phases, epoch).await?;
            if self.env.calvin.has(Bug::EarlyEpoch) {
                self.run_early(&phases, epoch).await?;
            }
            let (start, cost) = (self.env.port.now(), sent.cost());
            // Before anything is waited for that a node that cannot be reached will not send.
            sent.arrived().await?;
            self.env.scheduled(epoch).await?;
            self.ordered(start, cost);
            let mut arrived = 0;
            for n in 0.. {
                // A letter that a dead node has not taken is an error by now; all others of the epoch would have to wait for its window.
                while let Some(sending) = under_way.get_mut(arrived)
                    && sending.has_arrived()?
                {
                    arrived += 1;
                }
                let (coroutine, schedule) = (self.env.coroutine, self.env.schedule.clone());
                let next = schedule.borrow().nth(coroutine, n, &mut self.tickets);
                let Some(planned) = next else { break };
                self.execute(&phases, &mut under_way, epoch, planned).await?;
                // Transactions of local records never wait: let the network and the others have their turn.
                yield_now(self.env.port.sched()).await;
            }
            for sending in under_way.drain(..) {
                sending.arrived().await?;
            }
            let mut schedule = self.env.schedule.borrow_mut();
            if schedule.ended() {
                if schedule.leave() {
                    self.env.locks().leave(usize::from(self.env.worker));
                }
                break;
            }
        }
        Ok(())
    }

    /// Takes the clients' next transactions and starts to send them to all counterparts.
    async fn sequence<'p>(&mut self, phases: &'p Phases, epoch: u64) -> Result<Sending<'p>, Halted> {
        let env = &self.env;
        let began = env.port.now();
        let over =
            env.meter.over(began) || env.stop.load(Ordering::Relaxed) || env.failed.load(Ordering::Relaxed);
        let room = if over { 0 } else { (env.limit - self.drawn).min(self.clients.len() as u64) };
        self.batch.clear();
        for (n, client) in self.clients.iter_mut().enumerate() {
            client.input = None;
            if (n as u64) < room {
                let number = env.first_client + n as u32;
                let (node, worker, serial) = (env.node.0, env.worker, client.asked);
                let asking = Asking { node, worker, number, serial, now: env.port.now() };
                let input = env.workload.draw_at(asking, client.session.rng());
                client.session.of_kind(env.workload.kind(&input));
                client.asked += 1;
                self.batch.push(env.workload, &input);
                client.input = Some(input);
                (client.invoked, client.started) = (env.port.nic().event_time(), env.port.now());
            }
        }
        self.drawn += room;
        if over || self.drawn >= env.limit {
            self.batch.last();
        }
        if env.calvin.epoch > Nanos(0) && room > 0 {
            sleep_until(&env.port, began + env.calvin.epoch).await;
        }
        let words = self.batch.len();
        let at = env.buffers().requests(env.worker, env.coroutine, env.node, epoch);
        let buf =
            env.port.buf((HEAD_WORDS + words) as u32 * 8).map_err(Failure::from).map_err(Halted::Failed)?;
        self.batch.write(&buf);
        letter::seal(&buf, epoch, words, at);
        phases.keep_letter(&buf, words, at);
        let others = (0..env.shape.nodes).map(NodeId).filter(|&node| node != env.node);
        self.to.clear();
        self.to.extend(others);
        Ok(phases.send_letter(Phase::Lock, &buf, words, at, &self.to).await?)
    }

    /// The epoch is in order since now: what that has cost is counted once, how long it took belongs to each transaction of it.
    fn ordered(&mut self, start: Nanos, cost: Cost) {
        let now = self.env.port.now();
        self.ordering = now.since(start);
        if self.env.meter.holds(now) {
            self.env.stats.borrow_mut().phases[Phase::Lock as usize].costs.add(cost);
        }
    }
}
