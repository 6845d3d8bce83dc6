//! The logging phase above its two carriers: room in the rings, entries of the own node, truncation, and the end of a run.

use super::phases::Phases;
use super::wire;
use super::{Fault, PhaseOps, Stop, fault};
use crate::log::{ENTRIES_PER_TRUNCATION, build};
use crate::plan::{Phase, Via};
use crate::txn::Txn;
use primitives::exec::{sleep_until, yield_now};
use primitives::fabric::{CpuWork, Nic};
use primitives::rpc::RpcError;
use primitives::units::Nanos;
use primitives::verbs::NodeId;
use primitives::verbs::port::{Cost, VerbError};

/// Longest pause before a backup that stops short of a decided position is given up: a thousand times what a WRITE
/// takes to become visible anywhere.
const LOG_PATIENCE: Nanos = Nanos::from_millis(10);

impl Phases {
    /// Waits until nothing is under way any more: passive requests have been executed, and every backup has applied
    /// all entries that this worker has committed, so that backups equal primaries. For the end of a run.
    ///
    /// # Errors
    /// If a peer does not answer or a backup cannot apply its log.
    pub async fn settle(&self) -> Result<(), Stop> {
        let context = &*self.context;
        let nodes = || (0..context.layout.config().nodes).map(NodeId);
        for node in nodes() {
            while let Some(upto) = self.rings.with(node, |r| r.decided()) {
                self.truncate(node, upto, &mut Cost::default()).await?;
            }
        }
        if context.port().nic().caps().one_sided {
            // A completion on each queue pair retires the unsignaled WRITEs before it. Lanes are named: calls and answers
            // take them in turn too, so a lane could be passed over however often one asks for the next.
            let word = context.port().buf(8).map_err(|e| fault(Phase::Install)(VerbError::from(e)))?;
            let mut batch = context.port().batch();
            for lane in 0..context.net.lanes() {
                batch.on_lane(lane);
                nodes().for_each(|node| batch.read(context.at(node, 0), &word, 0, 8));
            }
            batch.post().await.map_err(fault(Phase::Install))?;
        }
        // Replies acknowledge the one-way requests executed before them. A request that was lost is sent again by
        // the RPC layer in its own time; until then, ask in growing steps.
        let mut pause = Nanos(1_000);
        while context.rpc().unanswered() > 0 {
            for node in nodes().filter(|&n| n != context.me) {
                context.rpc().call(node, wire::PING, |_| ()).await.map_err(fault(Phase::Install))?;
            }
            sleep_until(context.port(), context.port().now() + pause).await;
            pause = Nanos((pause.0 * 2).min(1_000_000));
        }
        Ok(())
    }

    /// Writes the transaction's new values to the logs of all their backups and waits until all have them.
    pub(super) async fn append(&self, txn: &mut Txn) -> Result<(), Stop> {
        let context = &*self.context;
        let step = context.plan.step(Phase::Log);
        build(txn, &context.layout, context.port())
            .map_err(|e| Stop::Fault(Fault::Verb { phase: Phase::Log, source: e.into() }))?;
        let (slots, cost) = txn.log();
        for slot in slots.iter() {
            if !self.rings.with(slot.node, |r| r.could_hold(slot.len)) {
                let ring_bytes = context.layout.config().log_ring_bytes;
                return Err(Fault::LogEntry { entry_bytes: slot.len, ring_bytes }.into());
            }
        }
        // All room is taken at once or none: whoever held some and waited for more could wait for ever.
        while let Some(full) = self.rings.short_of_room(slots) {
            self.log_waits.set(self.log_waits.get() + 1);
            match self.rings.with(full, |r| r.decided()) {
                Some(upto) => self.truncate(full, upto, cost).await?,
                None => {
                    if let Some(head) = self.rings.with(full, |r| r.stuck()) {
                        return Err(Fault::LogStuck { backup: full, head }.into());
                    }
                    // All of it is other coroutines' entries on their way.
                    yield_now(context.port().sched()).await;
                }
            }
        }
        self.rings.reserve(slots);
        for slot in slots.iter_mut() {
            context.charge(CpuWork::Copy(slot.len));
            if slot.node == context.me {
                let (region, at) = slot.buf.place();
                let log = self.own_log.borrow();
                if let Some(skip) = slot.skip {
                    log.write(slot.node, skip, region, at + u64::from(slot.len), 8);
                }
                log.write(slot.node, slot.position, region, at, slot.len);
                slot.pending = false;
            }
        }
        if slots.iter().any(|s| s.pending) {
            let sent = match step.via {
                Via::OneSided => self.one.replicate(txn).await,
                Via::TwoSided | Via::Hybrid => self.two.replicate(txn).await,
            };
            if sent.is_err() {
                txn.log().0.iter().for_each(|slot| self.rings.with(slot.node, |ring| ring.lose()));
                return sent;
            }
        }
        let (slots, _) = txn.log();
        for slot in slots.iter() {
            self.rings.with(slot.node, |ring| ring.decide(slot.ticket));
        }
        self.tell(txn);
        Ok(())
    }

    /// Frees a ring up to a position at which everything is decided.
    ///
    /// A backup may not see the end of an entry yet though its WRITE has completed (rdma_bench,
    /// `write-incomplete`), so one that stops short is asked again before that is called a fault.
    async fn truncate(&self, node: NodeId, upto: u64, cost: &mut Cost) -> Result<(), Stop> {
        let mut pause = Nanos(1_000);
        loop {
            let head = self.ask_to_truncate(node, upto, cost).await?;
            self.rings.with(node, |ring| ring.freed(head));
            if head >= upto {
                self.rings.told(node, self.context.port().now());
                return Ok(());
            }
            if pause > LOG_PATIENCE {
                return Err(Fault::LogStuck { backup: node, head }.into());
            }
            sleep_until(self.context.port(), self.context.port().now() + pause).await;
            pause = Nanos(pause.0 * 2);
        }
    }

    /// Asks a backup to apply entries up to a position; says how far it got.
    async fn ask_to_truncate(&self, node: NodeId, upto: u64, cost: &mut Cost) -> Result<u64, Stop> {
        let head = if node == self.context.me {
            let nic = self.context.port().nic();
            let head = self.own_log.borrow_mut().truncate(node, upto, nic);
            head.map_err(|e| fault(Phase::Log)(RpcError::from(e)))?
        } else {
            let rpc = self.context.rpc();
            let replies =
                rpc.call(node, wire::TRUNCATE, |w| w.word(upto)).await.map_err(fault(Phase::Log))?;
            *cost += replies.cost();
            let head = replies.read(0, |mut reply| {
                reply.word()?;
                reply.word()
            });
            head.map_err(|e| fault(Phase::Log)(RpcError::from(e)))?
        };
        Ok(head)
    }

    /// Tells backups, in passing, how far they may apply.
    fn tell(&self, txn: &mut Txn) {
        let (slots, cost) = txn.log();
        for slot in slots.iter() {
            let node = slot.node;
            let Some(upto) = self.rings.with(node, |r| r.worth_telling(ENTRIES_PER_TRUNCATION)) else {
                continue;
            };
            if node == self.context.me {
                let nic = self.context.port().nic();
                if let Ok(head) = self.own_log.borrow_mut().truncate(node, upto, nic) {
                    self.rings.with(node, |ring| ring.freed(head));
                }
            } else {
                let mut batch = self.context.rpc().batch();
                // With the window full, the next transaction tells.
                if batch.one_way(node, wire::TRUNCATE, |w| w.word(upto)).is_err() {
                    continue;
                }
                *cost += batch.send_one_way();
            }
            self.rings.told(node, self.context.port().now());
        }
    }
}
