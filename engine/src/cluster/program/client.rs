//! A coroutine of a worker: sessions, transactions one after the other or in epochs, and what it leaves behind.

use super::super::Length;
use super::super::result::Fault;
use super::{Collected, Common, Run, seed_of};
use crate::protocol::Protocol;
use crate::protocol::calvin::{self, Coroutine, Halted, Schedule};
use crate::session::{End, Failure, Parts, Session};
use crate::stats::WorkerStats;
use crate::verify::Recorder;
use crate::workload::{Client as Asking, Workload};
use phases::ops::{Phases, Stop};
use phases::rule::Owner;
use primitives::exec::yield_now;
use primitives::mesh::{Worker, WorkerConfig};
use primitives::units::Nanos;
use primitives::verbs::NodeId;
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::atomic::Ordering;

/// How long a node may keep sequenced transactions waiting before it is asked whether it lives: as long as a call may stay unanswered by
/// the configured wait. Calls to a peer that has shown itself slow wait for longer.
fn patience(config: &WorkerConfig) -> Nanos {
    let rpc = &config.rpc;
    // Repetitions come at up to eight times the first interval.
    Nanos(rpc.retransmit_after.0.saturating_mul(8 * (u64::from(rpc.max_retransmits) + 1)))
}

/// One coroutine: what it needs to make its session and to know when to end.
pub(super) struct Client<'a, W: Workload, P> {
    pub(super) run: &'a Run<'a, W, P>,
    pub(super) common: &'a Common<W::Tally>,
    pub(super) net: Worker,
    pub(super) node: NodeId,
    pub(super) worker: u16,
    pub(super) coroutine: u32,
    pub(super) phases: Rc<Phases>,
    pub(super) stats: Rc<RefCell<WorkerStats>>,
    pub(super) collected: Rc<RefCell<Collected<W::Tally>>>,
    /// The worker's, under a sequenced protocol.
    pub(super) schedule: Option<Rc<RefCell<Schedule<W::Input>>>>,
}

impl<W: Workload, P: Protocol + Copy + Sync> Client<'_, W, P> {
    /// The worker's number in the cluster.
    fn worker_number(&self) -> u32 {
        u32::from(self.node.0) * u32::from(self.run.spec.shape.workers) + u32::from(self.worker)
    }

    /// A session of this coroutine. No two sessions of a run have the same number; the history has those that have one.
    fn session(&self, number: u32, recorded: bool) -> Session<P, Phases> {
        let spec = self.run.spec;
        Session::new(Parts {
            protocol: self.run.protocol,
            ops: self.phases.clone(),
            port: self.net.port.clone(),
            layout: self.common.cluster.layout().clone(),
            node: self.node,
            owner: Owner::new(self.node, self.worker, self.coroutine),
            seed: seed_of(spec.seed, number),
            stats: self.stats.clone(),
            window: self.common.meter.clone(),
            retry: spec.retry,
            sample_every: spec.sample_every,
            recorder: (recorded && spec.history).then(|| Recorder::new(number)),
        })
    }

    /// So many transactions and no more.
    fn limit(&self) -> u64 {
        match self.run.spec.length {
            Length::Transactions(n) => n,
            Length::Time { .. } | Length::Steady(_) => u64::MAX,
        }
    }

    pub(super) async fn work(mut self) {
        match (self.run.protocol.sequenced(), &self.common.sequenced, self.schedule.take()) {
            // One allocation a coroutine: the others need not be as large.
            (Some(calvin), Some(shared), Some(schedule)) => {
                Box::pin(self.work_in_epochs(calvin, shared, schedule)).await;
            }
            _ => self.work_alone().await,
        }
    }

    /// Transactions in the order that all nodes agree on.
    async fn work_in_epochs(
        self,
        calvin: crate::protocol::Calvin,
        shared: &calvin::Shared,
        schedule: Rc<RefCell<Schedule<W::Input>>>,
    ) {
        let spec = self.run.spec;
        let clients = u32::from(calvin.batch);
        let first = (self.worker_number() * spec.plan.coroutines + self.coroutine) * clients;
        let env = calvin::Env {
            calvin,
            workload: self.run.workload,
            shared,
            layout: self.common.cluster.layout(),
            schedule,
            phases: self.phases.clone(),
            port: self.net.port.clone(),
            stats: self.stats.clone(),
            meter: self.common.meter.clone(),
            stop: self.run.stop,
            failed: &self.common.failed,
            shape: spec.shape,
            node: self.node,
            worker: self.worker,
            coroutine: self.coroutine,
            first_client: first,
            first_version: spec.first_version,
            limit: self.limit(),
            patience: patience(&spec.worker),
        };
        let sessions = (first..first + clients).map(|number| self.session(number, true));
        let mut coroutine = Coroutine::new(env, sessions, self.session(u32::MAX, false));
        let fault = match coroutine.run().await {
            Ok(()) => None,
            Err(halted) => {
                // Elsewhere may be another process.
                self.common.failed.store(true, Ordering::Relaxed);
                match halted {
                    Halted::Failed(failure) => Some(failure),
                    Halted::Elsewhere => None,
                }
            }
        };
        let (sessions, effects) = coroutine.finish();
        self.leave(sessions, effects, fault).await;
    }

    /// One transaction after the other.
    async fn work_alone(self) {
        let spec = self.run.spec;
        let meter = &self.common.meter;
        let worker = self.worker_number();
        let number = worker * spec.plan.coroutines + self.coroutine;
        let mut session = self.session(number, true);
        let mut effects = W::Tally::default();
        let mut fault = None;
        for serial in 0..self.limit() {
            if meter.over(session.ended_at())
                || self.run.stop.load(Ordering::Relaxed)
                || self.common.failed.load(Ordering::Relaxed)
            {
                break;
            }
            let asking =
                Asking { node: self.node.0, worker: self.worker, number, serial, now: self.net.port.now() };
            let input = self.run.workload.draw_at(asking, session.rng());
            match session.run(self.run.workload, &input).await {
                Ok(End::Committed(effect)) => {
                    effects += effect;
                    meter.count(worker as usize, 1, session.ended_at());
                }
                Ok(End::RolledBack(_) | End::GivenUp(_)) => {}
                Err(failure) => {
                    fault = Some(failure);
                    self.common.failed.store(true, Ordering::Relaxed);
                    break;
                }
            }
            // A transaction of local records never waits: let the network and the others have their turn.
            yield_now(&self.net.sched).await;
        }
        self.leave([session], effects, fault).await;
    }

    /// Hands in what was collected; the worker's last coroutine sees that nothing stays in flight.
    async fn leave(
        &self,
        sessions: impl IntoIterator<Item = Session<P, Phases>>,
        effects: W::Tally,
        fault: Option<Failure>,
    ) {
        let last = {
            let out = &mut *self.collected.borrow_mut();
            out.effects += effects;
            for session in sessions {
                out.last_end = out.last_end.max(session.ended_at());
                out.recorders.extend(session.into_recorder());
            }
            out.faults.extend(fault.map(|failure| self.fault(failure)));
            out.running -= 1;
            out.running == 0
        };
        if last && fault.is_none() && !self.common.failed.load(Ordering::Relaxed) {
            let drained = self.drain().await;
            let out = &mut *self.collected.borrow_mut();
            out.faults.extend(drained.err().map(|failure| self.fault(failure)));
        }
    }

    fn fault(&self, failure: Failure) -> Fault {
        let why = failure.to_string();
        Fault { node: self.node, worker: self.worker, coroutine: self.coroutine, why }
    }

    /// Waits until everything this worker sent has arrived and been executed, and backups have applied its log.
    async fn drain(&self) -> Result<(), Failure> {
        match self.phases.settle().await {
            Err(Stop::Fault(fault)) => Err(fault.into()),
            Ok(()) | Err(Stop::Abort(_)) => Ok(()),
        }
    }
}
