//! Transactions that were ordered before they run (CALVIN): the protocol's driver reads, locks and writes; the session keeps the
//! transaction's state and books.
//!
//! A transaction runs at every node that writes a record of it, but has one client, and one session keeps its history and counts
//! its outcome. The others are counted by what they cost alone.

use super::{Ended, Halt, Session};
use crate::protocol::Protocol;
use crate::workload::ahead::ReadWriteSet;
use phases::ops::PhaseOps;
use phases::plan::Phase;
use phases::rule::{Stamp, Timestamp};
use phases::txn::Txn;
use primitives::fabric::{CpuWork, Nic};
use primitives::units::Nanos;

impl<P: Protocol, O: PhaseOps> Session<P, O> {
    /// Begins a transaction that touches the records of `set`: one of the session's own, asked for at `invoked`, or one that is
    /// somebody else's. Its `place` is what it leaves behind as versions, and what stands for records that it finds absent; 0 counts
    /// versions, which will do where records do not come and go.
    ///
    /// # Errors
    /// When no buffer is left.
    pub(crate) fn begin_sequenced(
        &mut self,
        invoked: Option<Nanos>,
        set: &ReadWriteSet,
        place: u64,
    ) -> Result<(), Halt> {
        self.begun += 1;
        self.port.nic().charge(CpuWork::Attempt);
        self.scanned.clear();
        self.txn.begin(Stamp::new(self.owner, self.begun));
        (self.txn.install_at, self.txn.time) = (place, Timestamp(place));
        let timed = invoked.is_some() && self.until_sample == 1;
        self.until_sample = if timed { self.sample_every } else { self.until_sample.saturating_sub(1) };
        self.ops.begin_at(timed, invoked.unwrap_or(self.ended_at));
        for &(record, intent) in set.records() {
            let row = self.touch(record, intent)?;
            if set.may_be_absent().contains(&record) {
                self.txn.allow_absence(row.0);
            }
        }
        Ok(())
    }

    /// The next transaction of its own is of this kind.
    pub(crate) fn of_kind(&mut self, kind: usize) {
        self.kind = kind;
    }

    /// The transaction.
    pub(crate) fn sequenced(&mut self) -> &mut Txn {
        &mut self.txn
    }

    /// Until the transaction had its place in the order, this went by.
    pub(crate) fn ordered(&self, span: Nanos) {
        self.ops.spend(Phase::Lock, span);
    }

    /// Locks are granted; records are about to be read.
    pub(crate) fn reading(&self) {
        self.ops.reading();
    }

    /// All declared records have been read.
    pub(crate) fn have_read(&self) {
        self.ops.have_read(Phase::Fetch, &self.txn);
    }

    /// The body has run; what it wrote is about to be seen.
    pub(crate) fn writing(&self) {
        self.ops.writing(&self.txn);
    }

    /// A transaction of the session's own has committed; its client asked for it at `started`.
    pub(crate) fn committed(&mut self, started: Nanos) {
        self.finish(Ended::Committed);
        if self.window.holds(self.ended_at) {
            self.stats.borrow_mut().waited(self.kind, self.ended_at.since(started));
        }
        self.txn.rest();
    }

    /// The application has rolled one of the session's own back.
    pub(crate) fn rolled_back(&mut self, reason: &'static str) {
        self.finish(Ended::RolledBack(reason));
        self.txn.rest();
    }

    /// This node's part of somebody else's transaction is done: it cost something.
    pub(crate) fn helped(&mut self) {
        self.ended_at = self.port.now();
        if self.window.holds(self.ended_at) {
            let stats = &mut *self.stats.borrow_mut();
            for phase in Phase::ALL {
                stats.phases[phase as usize].costs.add(self.txn.costs[phase]);
            }
        }
        self.txn.rest();
    }
}
