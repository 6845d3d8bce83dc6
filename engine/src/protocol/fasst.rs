//! FaSST's optimistic concurrency control (FaSST §4.1; DrTM+H §6.3): [`Occ`](super::Occ) with the locks taken at execution.
//!
//! A record that is going to be written is locked and read in one step when it is first touched, one round trip fewer than
//! fetching it first; what is only read is fetched without a lock and validated at commit. That takes bodies which say what
//! they are going to write ([`crate::session::Session::update`]); a record that was read before it is written is locked at commit, as under
//! OCC. Serializable for the same reason: at the moment all locks are held and before validation ends, everything read is still
//! as it was read.
//!
//! Two-sided the owner locks and reads in one request, which is where the round trip is saved. One-sided a CAS needs the word
//! it expects, so that the record is fetched before and nothing is saved.
//!
//! Tables that change are not for it: who asks for a lock at first touch has not looked yet whether there is a record.

use super::Protocol;
use super::occ::commit_reads;
use phases::ops::{PhaseOps, Stop};
use phases::plan::Needs;
use phases::rule::{CheckRule, LockRule, OnConflict};
use phases::txn::Txn;

/// Optimistic concurrency control that locks what it writes at execution.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fasst;

impl Protocol for Fasst {
    fn needs(&self) -> &'static Needs {
        &Needs::FASST
    }

    async fn read<O: PhaseOps>(&self, ops: &O, txn: &mut Txn) -> Result<(), Stop> {
        ops.lock_and_read(txn, LockRule::optimistic(txn.stamp, OnConflict::Fail)).await?;
        ops.fetch(txn).await
    }

    async fn commit<O: PhaseOps>(&self, ops: &O, txn: &mut Txn) -> Result<(), Stop> {
        if !txn.writes() {
            return commit_reads(ops, txn).await;
        }
        // What was read before it was written, and what was written without being read.
        ops.lock_and_read(txn, LockRule::optimistic(txn.stamp, OnConflict::Fail)).await?;
        ops.validate(txn, CheckRule::SameVersion).await?;
        ops.replicate(txn).await?;
        ops.install_and_unlock(txn).await
    }
}
