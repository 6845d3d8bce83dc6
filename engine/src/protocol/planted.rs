//! Protocols with a bug planted in them.
//!
//! They show that the checker is not vacuous: on a small, contended run it must object to each of them within a few
//! seeds, for what is wrong with it, and to none of the same runs under the protocol as it should be. Not for anything else, and no
//! name on the command line reaches them.

use super::calvin::{self, Calvin};
use super::{Locking, Mvcc, Occ, Protocol, Sundial, mvcc, sundial};
use crate::verify::Level;
use phases::ops::{PhaseOps, Sabotage, Stop};
use phases::plan::Needs;
use phases::rule::{CheckRule, LockRule, OnConflict};
use phases::txn::{Intent, Scan, Txn};

/// Times that [`Bug::NobodyDies`] asks for a lock: far more than whoever is not in a circle has to.
pub const PATIENCE: u16 = 1_000;

/// What is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    /// OCC: what was only read is not validated at commit.
    NoValidation,
    /// OCC: what was only read is validated before the write set is locked: between the two, another transaction may do
    /// the same.
    ValidateFirst,
    /// OCC: locks are freed before the write-back, which then finds nothing of its own to write to.
    LostInstall,
    /// OCC: a lock conflict is ignored.
    IgnoreConflict,
    /// OCC: transactions that only read do not validate, however many records they read.
    NoReadOnlyValidation,
    /// NOWAIT: a record's lock is freed when the record has been read, and taken again to write it: not two phases.
    NoWaitUnlockEarly,
    /// WAITDIE: the same.
    WaitDieUnlockEarly,
    /// WAITDIE: who is younger than the holder of a lock waits as the older ones do, so that waiting may go in a circle, until one has
    /// asked [`PATIENCE`] times.
    NobodyDies,
    /// OCC: ranges that were scanned are not validated: phantoms.
    NoRangeValidation,
    /// OCC: that a record was not there is not validated.
    NoAbsenceValidation,
    /// NOWAIT: ranges that were scanned are not validated: their records are locked, what comes between them is not kept out.
    NoWaitPhantoms,
    /// WAITDIE: that a record was not there is not validated.
    WaitDieAbsence,
    /// SUNDIAL: ranges that were scanned are not validated, and nobody is told up to when they have to stand.
    SundialPhantoms,
    /// SUNDIAL: the same for records that were not there.
    SundialAbsence,
    /// MVCC: owners are not told at which time a range is read, so records are created in it before that.
    MvccPhantoms,
    /// MVCC: the same for records that were not there.
    MvccAbsence,
    /// SUNDIAL: leases are not extended to the transaction's time.
    NoRenewal,
    /// SUNDIAL: leases are extended to one tick before the transaction's time.
    ShortRenewal,
    /// SUNDIAL: a writer puts its write behind the version before it, and not behind its lease. Under plans that lock one-sided: an
    /// owner's CPU refuses such an install.
    IgnoredLease,
    /// MVCC: readers take a version without the second look, and without telling later writers.
    NoSecondLook,
    /// MVCC: a transaction takes a new place in the order between its reads and its writes, and asks only whether what it writes
    /// is still as it was at the first. That is snapshot isolation, and no more.
    SnapshotOnly,
    /// MVCC: a writer does not look at the record's read timestamp, so it may write before a reader who has read already. Under plans
    /// that lock one-sided, with [`Bug::sabotage`].
    IgnoredReaders,
    /// CALVIN: locks are granted out of order, to whoever asks.
    OutOfTurn,
    /// CALVIN: readers do not wait for the writers before them.
    ImpatientReaders,
    /// CALVIN: locks are released when the records are read, before they are written.
    EarlyRelease,
    /// CALVIN: records are read, and their values forwarded, before their locks are granted.
    EarlyValues,
    /// CALVIN: nobody looks which epoch forwarded values are of; what the buffer had before will do.
    StaleValues,
    /// CALVIN: transactions that only need their own node run before the other sequencers' batches have come.
    EarlyEpoch,
    /// CALVIN: locks of records that are not touched, which cover others that are, are not asked for.
    Uncovered,
    /// CALVIN: who changes a record does not ask whether somebody reads all of its group.
    LoneWriters,
}

impl Bug {
    /// Those that show only where records come and go.
    pub const OF_STRUCTURE: [Bug; 8] = [
        Bug::NoRangeValidation,
        Bug::NoAbsenceValidation,
        Bug::NoWaitPhantoms,
        Bug::WaitDieAbsence,
        Bug::SundialPhantoms,
        Bug::SundialAbsence,
        Bug::MvccPhantoms,
        Bug::MvccAbsence,
    ];

    /// Those that show only where one lock covers several records.
    pub const OF_COVERS: [Bug; 2] = [Bug::Uncovered, Bug::LoneWriters];

    /// Those whose histories are right, and whose transactions wait where they must not.
    pub const OF_WAITING: [Bug; 1] = [Bug::NobodyDies];

    /// All others.
    pub const ALL: [Bug; 19] = [
        Bug::NoValidation,
        Bug::ValidateFirst,
        Bug::LostInstall,
        Bug::IgnoreConflict,
        Bug::NoReadOnlyValidation,
        Bug::NoWaitUnlockEarly,
        Bug::WaitDieUnlockEarly,
        Bug::NoRenewal,
        Bug::ShortRenewal,
        Bug::IgnoredLease,
        Bug::NoSecondLook,
        Bug::SnapshotOnly,
        Bug::IgnoredReaders,
        Bug::OutOfTurn,
        Bug::ImpatientReaders,
        Bug::EarlyRelease,
        Bug::EarlyValues,
        Bug::StaleValues,
        Bug::EarlyEpoch,
    ];

    /// What operations have to do wrong for it, for a run's specification.
    pub fn sabotage(self) -> Option<Sabotage> {
        (self == Bug::IgnoredReaders).then_some(Sabotage::IgnoredReaders)
    }

    fn of_calvin(self) -> Option<calvin::Bug> {
        match self {
            Bug::OutOfTurn => Some(calvin::Bug::OutOfTurn),
            Bug::ImpatientReaders => Some(calvin::Bug::ImpatientReaders),
            Bug::EarlyRelease => Some(calvin::Bug::EarlyRelease),
            Bug::EarlyValues => Some(calvin::Bug::EarlyValues),
            Bug::StaleValues => Some(calvin::Bug::StaleValues),
            Bug::EarlyEpoch => Some(calvin::Bug::EarlyEpoch),
            Bug::Uncovered => Some(calvin::Bug::Uncovered),
            Bug::LoneWriters => Some(calvin::Bug::LoneWriters),
            _ => None,
        }
    }
}

/// A protocol with a bug.
#[derive(Clone, Copy, Debug)]
pub struct Planted(pub Bug);

impl Planted {
    fn locking(&self) -> Locking {
        match self.0 {
            Bug::WaitDieUnlockEarly | Bug::WaitDieAbsence => Locking::WAITDIE,
            Bug::NobodyDies => Locking::bounded_wait(PATIENCE),
            _ => Locking::NOWAIT,
        }
    }

    async fn commit_occ<O: PhaseOps>(&self, ops: &O, txn: &mut Txn) -> Result<(), Stop> {
        match self.0 {
            Bug::NoRangeValidation => txn.believe_ranges(),
            Bug::NoAbsenceValidation => txn.believe_absence(),
            _ => {}
        }
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
        if self.0 == Bug::LostInstall {
            ops.unlock(txn).await?;
        }
        ops.install_and_unlock(txn).await
    }

    async fn commit_sundial<O: PhaseOps>(&self, ops: &O, txn: &mut Txn) -> Result<(), Stop> {
        ops.lock_and_read(txn, sundial::lock_rule(txn)).await?;
        let time = match self.0 {
            Bug::IgnoredLease => time_without_leases(txn),
            _ => Sundial::default().time_of(txn),
        };
        if self.0 == Bug::ShortRenewal {
            ops.validate(txn, CheckRule::LeaseCovers(time.saturating_sub(1))).await?;
        }
        if self.0 == Bug::IgnoredLease {
            ops.validate(txn, CheckRule::LeaseCovers(time)).await?;
        }
        if !txn.writes() {
            return Ok(());
        }
        txn.install_at = time;
        ops.replicate(txn).await?;
        ops.install_and_unlock(txn).await
    }
}

/// What [`Sundial`] would have for a transaction's time if nobody had been promised that what it writes stays as it is.
fn time_without_leases(txn: &Txn) -> u64 {
    txn.accesses().iter().fold(txn.removed_at(), |time, access| match access.intent {
        Intent::Read => time.max(access.version),
        Intent::Write => time.max(access.version + 1),
    })
}

impl Protocol for Planted {
    fn needs(&self) -> &'static Needs {
        match self.0 {
            Bug::NoWaitUnlockEarly | Bug::WaitDieUnlockEarly => self.locking().needs(),
            Bug::NoWaitPhantoms | Bug::WaitDieAbsence => self.locking().needs(),
            Bug::NobodyDies => &Needs::WAITDIE,
            Bug::NoRenewal | Bug::ShortRenewal | Bug::IgnoredLease => &Needs::SUNDIAL,
            Bug::SundialPhantoms | Bug::SundialAbsence => &Needs::SUNDIAL,
            Bug::NoSecondLook | Bug::SnapshotOnly | Bug::IgnoredReaders => &Needs::MVCC,
            Bug::MvccPhantoms | Bug::MvccAbsence => &Needs::MVCC,
            bug if bug.of_calvin().is_some() => &Needs::CALVIN,
            _ => &Needs::OCC,
        }
    }

    fn level(&self) -> Level {
        match self.needs().protocol {
            "sundial" => Sundial::default().level(),
            "mvcc" => Mvcc.level(),
            _ => Level::StrictSerializable,
        }
    }

    fn sequenced(&self) -> Option<Calvin> {
        self.0.of_calvin().map(Calvin::planted)
    }

    fn begin<O: PhaseOps>(&self, ops: &O, txn: &mut Txn, attempt: u32) -> Result<(), Stop> {
        match self.0 {
            // It has an age, though nobody asks for it.
            Bug::NobodyDies => Locking::WAITDIE.begin(ops, txn, attempt),
            _ => match self.needs().protocol {
                "nowait" | "waitdie" => self.locking().begin(ops, txn, attempt),
                "mvcc" => Mvcc.begin(ops, txn, attempt),
                _ => Ok(()),
            },
        }
    }

    async fn read<O: PhaseOps>(&self, ops: &O, txn: &mut Txn) -> Result<(), Stop> {
        if let Some(calvin) = self.sequenced() {
            return calvin.read(ops, txn).await;
        }
        match self.0 {
            Bug::NoWaitUnlockEarly | Bug::WaitDieUnlockEarly => {
                self.locking().read(ops, txn).await?;
                ops.unlock(txn).await
            }
            Bug::NoWaitPhantoms | Bug::WaitDieAbsence | Bug::NobodyDies => {
                self.locking().read(ops, txn).await
            }
            Bug::NoRenewal | Bug::ShortRenewal | Bug::IgnoredLease => Sundial::default().read(ops, txn).await,
            Bug::SundialPhantoms | Bug::SundialAbsence => Sundial::default().read(ops, txn).await,
            Bug::MvccPhantoms | Bug::IgnoredReaders => Mvcc.read(ops, txn).await,
            Bug::MvccAbsence => {
                ops.lock_and_read(txn, mvcc::lock_rule(txn)).await?;
                ops.fetch(txn).await?;
                txn.believe_absence();
                ops.validate(txn, CheckRule::ReadAt).await
            }
            Bug::NoSecondLook => {
                ops.lock_and_read(txn, mvcc::lock_rule(txn)).await?;
                ops.fetch(txn).await
            }
            // Records are locked at commit only, under the later timestamp.
            Bug::SnapshotOnly => {
                ops.fetch(txn).await?;
                ops.validate(txn, CheckRule::ReadAt).await
            }
            _ => Occ.read(ops, txn).await,
        }
    }

    async fn scan<O: PhaseOps>(&self, ops: &O, txn: &mut Txn, scan: &Scan) -> Result<(), Stop> {
        if let Some(calvin) = self.sequenced() {
            return calvin.scan(ops, txn, scan).await;
        }
        match self.0 {
            Bug::NoWaitUnlockEarly | Bug::WaitDieUnlockEarly => {
                self.locking().scan(ops, txn, scan).await?;
                ops.unlock(txn).await
            }
            Bug::NoWaitPhantoms | Bug::WaitDieAbsence | Bug::NobodyDies => {
                self.locking().scan(ops, txn, scan).await
            }
            Bug::MvccPhantoms => {
                txn.read_ranges_unseen();
                Mvcc.scan(ops, txn, scan).await
            }
            _ => ops.scan(txn, scan).await,
        }
    }

    async fn commit<O: PhaseOps>(&self, ops: &O, txn: &mut Txn) -> Result<(), Stop> {
        match self.0 {
            Bug::NoWaitPhantoms | Bug::SundialPhantoms => txn.believe_ranges(),
            Bug::WaitDieAbsence | Bug::SundialAbsence => txn.believe_absence(),
            _ => {}
        }
        match self.0 {
            Bug::NoWaitPhantoms | Bug::WaitDieAbsence | Bug::NobodyDies => {
                self.locking().commit(ops, txn).await
            }
            Bug::SundialPhantoms | Bug::SundialAbsence => Sundial::default().commit(ops, txn).await,
            Bug::MvccPhantoms | Bug::MvccAbsence => Mvcc.commit(ops, txn).await,
            Bug::NoWaitUnlockEarly | Bug::WaitDieUnlockEarly => self.locking().commit(ops, txn).await,
            Bug::NoRenewal | Bug::ShortRenewal | Bug::IgnoredLease => self.commit_sundial(ops, txn).await,
            Bug::NoSecondLook | Bug::IgnoredReaders => Mvcc.commit(ops, txn).await,
            Bug::SnapshotOnly => {
                // What is written without having been read has to be as it was at the first place, too.
                ops.fetch(txn).await?;
                txn.time = ops.timestamp()?;
                txn.install_at = txn.time.0;
                txn.move_to(txn.time);
                Mvcc.commit(ops, txn).await
            }
            _ => self.commit_occ(ops, txn).await,
        }
    }
}
