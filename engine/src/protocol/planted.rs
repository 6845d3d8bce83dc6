//! Optimistic protocols with a bug planted in them.
//!
//! They show that the checker is not vacuous: on a small, contended run it must object to each of them within a few
//! seeds, and to none of the same runs under [`Occ`]. Not for anything else, and no name on the command line
//! reaches them.

use super::{Occ, Protocol};
use phases::ops::{PhaseOps, Stop};
use phases::plan::Needs;
use phases::rule::{CheckRule, LockRule, OnConflict};
use phases::txn::Txn;

/// What is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    /// What was only read is not validated at commit.
    NoValidation,
    /// What was only read is validated before the write set is locked: between the two, another transaction may do
    /// the same.
    ValidateFirst,
    /// Locks are freed before the write-back, which then finds nothing of its own to write to.
    UnlockFirst,
    /// A lock conflict is ignored.
    IgnoreConflict,
    /// Transactions that only read do not validate, however many records they read.
    NoReadOnlyValidation,
}

impl Bug {
    /// All of them.
    pub const ALL: [Bug; 5] = [
        Bug::NoValidation,
        Bug::ValidateFirst,
        Bug::UnlockFirst,
        Bug::IgnoreConflict,
        Bug::NoReadOnlyValidation,
    ];
}

/// [`Occ`] with a bug.
#[derive(Clone, Copy, Debug)]
pub struct Planted(pub Bug);

impl Protocol for Planted {
    fn needs(&self) -> &'static Needs {
        &Needs::OCC
    }

    async fn read<O: PhaseOps>(&self, ops: &O, txn: &mut Txn) -> Result<(), Stop> {
        Occ.read(ops, txn).await
    }

    async fn commit<O: PhaseOps>(&self, ops: &O, txn: &mut Txn) -> Result<(), Stop> {
        if !txn.writes() {
            return match self.0 {
                Bug::NoReadOnlyValidation => Ok(()),
                _ => Occ.commit(ops, txn).await,
            };
        }
        if self.0 == Bug::ValidateFirst {
            ops.validate(txn, CheckRule::SameVersion).await?;
        }
        let lock = LockRule::optimistic(txn.stamp, OnConflict::Fail);
        match ops.lock_and_read(txn, lock).await {
            Err(Stop::Abort(_)) if self.0 == Bug::IgnoreConflict => {}
            other => other?,
        }
        if !matches!(self.0, Bug::NoValidation | Bug::ValidateFirst) {
            ops.validate(txn, CheckRule::SameVersion).await?;
        }
        ops.replicate(txn).await?;
        if self.0 == Bug::UnlockFirst {
            ops.unlock(txn).await?;
        }
        ops.install_and_unlock(txn).await
    }
}
