//! Optimistic concurrency control with primary-backup replication, as FaRM and DrTM+H run it (DrTM+H §2.2).
//!
//! Execution reads without locks. Commit locks the write set and looks at it again in the same step (§5.2: a
//! locked record cannot change any more, so it is validated at once), validates what was only read, writes the
//! log to the backups, and only then installs and unlocks. Serializable because at the moment all locks are held
//! and before validation ends, everything read is still as it was read.
//!
//! Read-only transactions read and validate (§5.5). One with a single record skips validation: a record is never
//! returned torn, so it is consistent with itself. It must have been unlocked, though: with a passively acknowledged
//! commit the holder of the lock may have told its client already. A record that was not there is looked for once more: a
//! walk through an index is several READs.
//!
//! Records are created and removed like others are written: a slot that the owner sets aside is a lock on the key, taken
//! with the other locks, and removing is what the owner does instead of installing. Ranges are validated by the leaves of the
//! owner's tree that were looked at (Silo §4.6).

use super::Protocol;
use phases::ops::{PhaseOps, Stop};
use phases::plan::Needs;
use phases::rule::{Abort, CheckRule, LockRule, OnConflict};
use phases::txn::Txn;

/// Optimistic concurrency control.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Occ;

/// Commits a transaction that wrote nothing.
pub(super) async fn commit_reads<O: PhaseOps>(ops: &O, txn: &mut Txn) -> Result<(), Stop> {
    match txn.accesses() {
        _ if txn.has_scanned() => ops.validate(txn, CheckRule::SameVersion).await,
        [] => Ok(()),
        // Its holder may have committed already and be installing: what was read could be out of date.
        [only] if only.read_locked() => Err(Abort::ReadLocked.into()),
        [only] if !only.absent() => Ok(()),
        _ => ops.validate(txn, CheckRule::SameVersion).await,
    }
}

impl Protocol for Occ {
    fn needs(&self) -> &'static Needs {
        &Needs::OCC
    }

    fn read<O: PhaseOps>(&self, ops: &O, txn: &mut Txn) -> impl Future<Output = Result<(), Stop>> {
        ops.fetch(txn)
    }

    #[inline]
    fn read_now<O: PhaseOps>(&self, ops: &O, txn: &mut Txn) -> Result<bool, Stop> {
        ops.fetch_now(txn)
    }

    async fn commit<O: PhaseOps>(&self, ops: &O, txn: &mut Txn) -> Result<(), Stop> {
        if !txn.writes() {
            return commit_reads(ops, txn).await;
        }
        let lock = LockRule::optimistic(txn.stamp, OnConflict::Fail);
        // Until the log is written, `?` makes the session unlock.
        ops.lock_and_read(txn, lock).await?;
        ops.validate(txn, CheckRule::SameVersion).await?;
        // From here on, recovery would finish it.
        ops.replicate(txn).await?;
        ops.install_and_unlock(txn).await
    }
}
