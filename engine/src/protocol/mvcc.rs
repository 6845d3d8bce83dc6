//! MVCC: multi-version timestamp ordering with four versions of each record (RCC §4.4).
//!
//! A transaction has its place in the order from the beginning, a timestamp of its node's clock. It reads the latest version
//! before that place, so reads are not in the way of later writes; it writes behind everything that was read or written,
//! or not at all. Serializable in the order of timestamps; not strictly, for clocks differ.
//!
//! What is written is locked when it is first touched. A read is two looks at the record: one for the version, and one, behind the
//! move of its read timestamp, for writers that may have come between ([`phases::rule::versions`] says why that is
//! enough). Two-sided both are one call; one-sided the second is `validate`, at once and not at commit. The paper reads
//! twice first and moves rts then (steps b1, b4, b7), which lets a writer in between; here CAS and second look share a doorbell.
//!
//! **Records that come and go.** A removed record leaves no versions behind, so a reader from before its removal that finds it gone gives
//! up; the chain's floor and the leaf's last removal tell. A record that was created later than the transaction is not there for
//! it. For either, and for all keys of a range that it did not find, the owner is told the transaction's time, and nobody creates a
//! record there at an earlier one any more: for ranges when the owner lists the keys, for a missing key in the second look. So
//! nothing is left to be validated at commit.
//!
//! Whatever timestamps are met, the node's clock follows, so clocks that differ do not make a node's
//! transactions late again and again (paper: §4.4, against skew).

use super::Protocol;
use crate::verify::Level;
use phases::ops::{PhaseOps, Stop};
use phases::plan::Needs;
use phases::rule::{CheckRule, LockRule, OnConflict, Packing, ReadLocks};
use phases::txn::Txn;

/// Multi-version timestamp ordering.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mvcc;

/// The rule under which records are locked.
pub(super) fn lock_rule(txn: &Txn) -> LockRule {
    LockRule {
        stamp: txn.stamp,
        time: txn.time,
        packing: Packing::Versions,
        on_conflict: OnConflict::Fail,
        reads: ReadLocks::None,
    }
}

impl Protocol for Mvcc {
    fn needs(&self) -> &'static Needs {
        &Needs::MVCC
    }

    fn level(&self) -> Level {
        Level::Serializable
    }

    fn begin<O: PhaseOps>(&self, ops: &O, txn: &mut Txn, _: u32) -> Result<(), Stop> {
        txn.time = ops.timestamp()?;
        txn.install_at = txn.time.0;
        Ok(())
    }

    async fn read<O: PhaseOps>(&self, ops: &O, txn: &mut Txn) -> Result<(), Stop> {
        ops.lock_and_read(txn, lock_rule(txn)).await?;
        ops.fetch(txn).await?;
        ops.validate(txn, CheckRule::ReadAt).await
    }

    async fn commit<O: PhaseOps>(&self, ops: &O, txn: &mut Txn) -> Result<(), Stop> {
        // What is written without having been read, and what was read before it was written.
        ops.lock_and_read(txn, lock_rule(txn)).await?;
        if !txn.writes() {
            return Ok(());
        }
        ops.replicate(txn).await?;
        ops.install_and_unlock(txn).await
    }
}
