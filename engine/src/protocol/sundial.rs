//! SUNDIAL: logical leases (Yu et al., VLDB 2018; RCC §4.5).
//!
//! Each version is valid from its write timestamp `wts` to the end of its lease. A transaction finds, at the end, one logical time
//! `tts` at which all it read is valid and all it writes may begin: not before any version it read, and after the lease of
//! every record it writes. So a record can be written while others read it; they are merely earlier. Leases that do not
//! reach `tts` are extended, which fails if the record was written, or is about to be.
//!
//! What is written is locked when it is first touched (write conflicts fail at once), what is read is not. Serializable in the
//! order of `tts`; not strictly, for logical time may run against real time.
//!
//! **Records that come and go.** A record that is not there is so from the removal of the last one, or from the beginning, until it is
//! created; and so are all keys of a range that a scan did not find. A transaction is not before what it found missing became so. That
//! it stays so up to `tts` is validated by the owner, who looks once more and then keeps that time: whoever creates a record there
//! comes after it, as who writes a record comes after its lease. Phantoms cannot be in between, since the leaves of a range,
//! and the chain of a key, get another version when a key comes or goes before `tts` is told; the owner looks and keeps in one step.
//!
//! A header has room for leases of up to 2²⁴ − 1. Where a longer one is needed, the version read is written again, unchanged,
//! at `tts`: a new version instead of a lease. Timestamps end at 2³⁹ − 1; who would have to write later aborts for good.

use super::Protocol;
use crate::verify::Level;
use phases::ops::{PhaseOps, Stop};
use phases::plan::Needs;
use phases::rule::{Abort, CheckRule, LAST_WTS, LEASE_MAX, LockRule, OnConflict, Packing, ReadLocks};
use phases::txn::{Intent, Txn};

/// Logical leases.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sundial {
    /// No transaction that writes is earlier than this: 0 unless a test wants long leases or late timestamps.
    pub earliest: u64,
}

/// The rule under which records are locked.
pub(super) fn lock_rule(txn: &Txn) -> LockRule {
    LockRule {
        stamp: txn.stamp,
        time: txn.time,
        packing: Packing::Leased,
        on_conflict: OnConflict::Fail,
        reads: ReadLocks::None,
    }
}

impl Sundial {
    /// The logical time of a transaction that holds its locks: after what it read began, and after the leases of what it
    /// writes have ended.
    pub(super) fn time_of(&self, txn: &Txn) -> u64 {
        let earliest = if txn.writes() { self.earliest } else { 0 };
        // What was missing in ranges is so from here on.
        let earliest = earliest.max(txn.removed_at());
        txn.accesses().iter().fold(earliest, |time, access| match access.intent {
            Intent::Read => time.max(access.version),
            Intent::Write => time.max(access.header.lease_end() + 1),
        })
    }

    /// Locks what is to be written and finds the transaction's time; records whose lease would be too long are written.
    async fn settle<O: PhaseOps>(&self, ops: &O, txn: &mut Txn) -> Result<u64, Stop> {
        loop {
            ops.lock_and_read(txn, lock_rule(txn)).await?;
            let time = self.time_of(txn);
            if !txn.rewrite(|a| a.intent == Intent::Read && !a.absent() && time - a.version > LEASE_MAX) {
                return Ok(time);
            }
        }
    }
}

impl Protocol for Sundial {
    fn needs(&self) -> &'static Needs {
        &Needs::SUNDIAL
    }

    fn level(&self) -> Level {
        Level::Serializable
    }

    async fn read<O: PhaseOps>(&self, ops: &O, txn: &mut Txn) -> Result<(), Stop> {
        ops.lock_and_read(txn, lock_rule(txn)).await?;
        ops.fetch(txn).await
    }

    async fn commit<O: PhaseOps>(&self, ops: &O, txn: &mut Txn) -> Result<(), Stop> {
        let time = self.settle(ops, txn).await?;
        if txn.writes() && time > LAST_WTS {
            return Err(Abort::TimestampWrap.into());
        }
        ops.validate(txn, CheckRule::LeaseCovers(time)).await?;
        if !txn.writes() {
            return Ok(());
        }
        txn.install_at = time;
        ops.replicate(txn).await?;
        ops.install_and_unlock(txn).await
    }
}
