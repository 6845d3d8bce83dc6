//! Two-phase locking: NOWAIT and WAITDIE (RCC §4.2, §4.3), and room for a bounded wait.
//!
//! A record is locked, and read in the same step, when it is first touched; all locks are held until the end. So what was
//! read stays as it was, nothing is validated, and commit is log, install, unlock. Strictly serializable: the
//! moment at which a transaction holds all its locks lies within it.
//!
//! What sets the protocols apart is one value, what to do about a lock that somebody holds:
//!
//! - **NOWAIT** gives up. No waiting, no deadlock.
//! - **WAITDIE** waits for younger transactions and gives up before older ones, so waiting never goes in a circle. A
//!   transaction keeps its age when it is tried again, and so becomes the oldest in the end: nobody starves. One-sided, waiting
//!   is CAS and READ again and again (step b2); two-sided, the owner parks the request (steps a2, a3).
//! - **Bounded wait** looks again so many times; not in the paper.
//!
//! Locks have a shared mode for records that are only read, which RCC's lock words do not ([`Locking::exclusive_reads`] is
//! its mode). A record that was read and is then written is locked again, exclusively: an upgrade, which two readers at
//! once cannot both have. Bodies that know better say so in advance ([`crate::session::Session::update`]).
//!
//! **Records that come and go.** A record to be created is locked like others: its owner sets a slot aside, held alone, with the next
//! locks that are taken, and whoever meets it there waits or gives up by the same rule. A record that is removed is locked until its owner
//! has taken it out. What there is *not* cannot be locked. So ranges and missing keys are validated at commit, when all locks
//! are held: a range is read as its keys from the owner's tree, each of which is then locked like any record, and the
//! leaves that were looked at must not have changed since; of a missing key, the floor of its chain must not. (The
//! alternative, locking the next key, makes readers of a range wait for whoever inserts beside it, and needs a lock that
//! outlives its record.) Still strictly serializable: before validation begins all locks are held and all that was
//! not there still is not, and that moment lies within the transaction. Validation never waits, so it adds nothing to a circle of waiting.

use super::Protocol;
use phases::ops::{PhaseOps, Stop};
use phases::plan::Needs;
use phases::rule::{Abort, CheckRule, LockRule, OnConflict, Packing, ReadLocks, Timestamp};
use phases::txn::{Scan, Txn};

/// Two-phase locking.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Locking {
    /// What to do about a lock that somebody holds.
    pub on_conflict: OnConflict,
    /// How records that are only read are locked: shared, unless one wants the paper's mode.
    pub reads: ReadLocks,
}

impl Locking {
    /// Give up at once.
    pub const NOWAIT: Locking = Locking { on_conflict: OnConflict::Fail, reads: ReadLocks::Shared };

    /// Wait for younger transactions, give up before older ones.
    pub const WAITDIE: Locking = Locking { on_conflict: OnConflict::WaitIfOlder, reads: ReadLocks::Shared };

    /// Look at a taken lock so many times more.
    pub const fn bounded_wait(times: u16) -> Locking {
        Locking { on_conflict: OnConflict::Retry(times), reads: ReadLocks::Shared }
    }

    /// The paper's lock words: one holder, whether it reads or writes.
    pub const fn exclusive_reads(self) -> Locking {
        Locking { reads: ReadLocks::Exclusive, ..self }
    }

    fn rule(&self, txn: &Txn) -> LockRule {
        LockRule {
            stamp: txn.stamp,
            time: txn.time,
            packing: Packing::Locked,
            on_conflict: self.on_conflict,
            reads: self.reads,
        }
    }
}

impl Protocol for Locking {
    fn needs(&self) -> &'static Needs {
        match (self.on_conflict, self.reads) {
            (OnConflict::WaitIfOlder, ReadLocks::Exclusive) => &Needs::WAITDIE_EXCLUSIVE,
            (OnConflict::WaitIfOlder, _) => &Needs::WAITDIE,
            (OnConflict::Fail, ReadLocks::Exclusive) => &Needs::NOWAIT_EXCLUSIVE,
            (OnConflict::Fail, _) => &Needs::NOWAIT,
            (OnConflict::Retry(_), _) => &Needs::BOUNDED_WAIT,
        }
    }

    fn begin<O: PhaseOps>(&self, ops: &O, txn: &mut Txn, attempt: u32) -> Result<(), Stop> {
        // A transaction that is tried again is as old as it was.
        if attempt == 1 {
            let ages = self.on_conflict == OnConflict::WaitIfOlder;
            txn.time = if ages { ops.timestamp()? } else { Timestamp(0) };
        }
        Ok(())
    }

    fn read<O: PhaseOps>(&self, ops: &O, txn: &mut Txn) -> impl Future<Output = Result<(), Stop>> {
        let rule = self.rule(txn);
        ops.lock_and_read(txn, rule)
    }

    #[inline]
    fn read_now<O: PhaseOps>(&self, ops: &O, txn: &mut Txn) -> Result<bool, Stop> {
        let rule = self.rule(txn);
        ops.lock_and_read_now(txn, rule)
    }

    async fn scan<O: PhaseOps>(&self, ops: &O, txn: &mut Txn, scan: &Scan) -> Result<(), Stop> {
        ops.scan(txn, scan).await?;
        match ops.lock_and_read(txn, self.rule(txn)).await {
            // It was there when the range was looked at.
            Err(Stop::Abort(Abort::NotFound)) => Err(Abort::ReadChanged.into()),
            done => done,
        }
    }

    async fn commit<O: PhaseOps>(&self, ops: &O, txn: &mut Txn) -> Result<(), Stop> {
        // What is written without having been read, what is created, and upgrades.
        ops.lock_and_read(txn, self.rule(txn)).await?;
        if txn.has_scanned() || txn.has_missed() {
            ops.validate(txn, CheckRule::SameVersion).await?;
        }
        if txn.writes() {
            ops.replicate(txn).await?;
        }
        ops.install_and_unlock(txn).await
    }
}
