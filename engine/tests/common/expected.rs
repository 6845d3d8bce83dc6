//! The matrix of expected verdicts: what each planted bug must be objected to for, and what it leaves in order.

use engine::protocol::Protocol;
use engine::protocol::planted::{Bug, Planted};
use engine::verify::{Anomaly, History, Level, Verdict, check};
use std::collections::BTreeMap;

/// The strongest level that a bug keeps by its nature, where what is written is read before, and the objections of which each must be
/// met within the seeds of a test: kinds as the checker names them, with the pattern where it is a cycle that has a name.
///
/// Of no level are histories with versions that two transactions installed, so that one of the updates is lost, or that nobody did.
pub fn expected(bug: Bug) -> (Option<Level>, &'static [&'static str]) {
    use Level::{ReadCommitted, SnapshotIsolation};
    match bug {
        // What was read is of different moments.
        Bug::NoValidation => (Some(ReadCommitted), &["G-single: read skew"]),
        Bug::NoReadOnlyValidation => (Some(ReadCommitted), &["G-single: read skew"]),
        Bug::ImpatientReaders => (Some(ReadCommitted), &["G-single: read skew"]),
        Bug::NoRenewal => (Some(ReadCommitted), &["G-single"]),
        Bug::LoneWriters => (Some(ReadCommitted), &["G-single"]),
        // What was read is of one moment, but that is not when the transaction writes.
        Bug::ValidateFirst | Bug::SnapshotOnly => (Some(SnapshotIsolation), &["G2: write skew"]),
        // Somebody writes before one who has read already; if they are two, each before the other.
        Bug::ShortRenewal | Bug::IgnoredLease | Bug::NoSecondLook => {
            (Some(ReadCommitted), &["G2: write skew"])
        }
        Bug::IgnoredReaders => (Some(ReadCommitted), &["G2: write skew", "G-nonadjacent: long fork"]),
        // The same of what was not there.
        Bug::NoRangeValidation | Bug::NoAbsenceValidation => (Some(ReadCommitted), &["G2: write skew"]),
        Bug::NoWaitPhantoms | Bug::WaitDieAbsence => (Some(ReadCommitted), &["G2: write skew"]),
        Bug::SundialPhantoms | Bug::SundialAbsence => (Some(ReadCommitted), &["G2: write skew"]),
        Bug::MvccPhantoms | Bug::MvccAbsence => (Some(ReadCommitted), &["G2: write skew"]),
        // Two write what they made of the same version.
        Bug::LostInstall | Bug::IgnoreConflict => (None, &["duplicate-version"]),
        Bug::NoWaitUnlockEarly | Bug::WaitDieUnlockEarly => {
            (None, &["duplicate-version", "G-single: lost update"])
        }
        Bug::OutOfTurn | Bug::EarlyRelease | Bug::EarlyValues | Bug::EarlyEpoch => {
            (None, &["duplicate-version"])
        }
        Bug::StaleValues => (None, &["unwritten-read", "duplicate-version"]),
        // Each reads what the other writes.
        Bug::Uncovered => (None, &["G1c"]),
        // Its histories are right; waiting shows it (`tests/planted/main.rs`).
        Bug::NobodyDies => (Some(Level::StrictSerializable), &[]),
    }
}

/// What an anomaly is called in the matrix.
fn name(anomaly: &Anomaly) -> String {
    // The detail of an anomaly of one version tells the case.
    match &anomaly.detail {
        Some(pattern) if anomaly.version.is_none() => format!("{}: {pattern}", anomaly.kind),
        _ => anomaly.kind.to_string(),
    }
}

/// The objections to a bug's runs, with the seeds that show them.
pub struct Objections {
    bug: Bug,
    must: &'static [&'static str],
    seeds: BTreeMap<String, Vec<u64>>,
}

impl Objections {
    pub fn to(bug: Bug) -> Objections {
        Objections::of(bug, expected(bug).1)
    }

    /// The same of runs in which a bug shows in another way, of which these kinds must be met.
    pub fn of(bug: Bug, must: &'static [&'static str]) -> Objections {
        Objections { bug, must, seeds: BTreeMap::new() }
    }

    /// Judges a run for what its protocol promises, and for what the bug leaves in order.
    pub fn judge(&mut self, seed: u64, history: &History) -> Verdict {
        let (bug, verdict) = (self.bug, check(history, Planted(self.bug).level()));
        if let Some(level) = expected(bug).0 {
            let kept = check(history, level);
            assert!(kept.passed(), "{bug:?}, seed {seed}, is of {level}:\n{kept}");
        }
        for anomaly in verdict.anomaly.iter().chain(&verdict.others) {
            self.seeds.entry(name(anomaly)).or_default().push(seed);
        }
        verdict
    }

    /// Whether each kind that must be met was; of cycles without a pattern, whatever the pattern.
    pub fn met(&self) -> bool {
        let met = |kind: &&str| self.seeds.keys().any(|name| name.starts_with(kind));
        self.must.iter().all(met)
    }

    /// Holds what was met against what must be.
    pub fn complete(&self) {
        let (bug, seeds, must) = (self.bug, &self.seeds, self.must);
        eprintln!("{bug:?}: objected to for {seeds:?}");
        assert!(
            !seeds.is_empty() && self.met(),
            "{bug:?} was objected to for {seeds:?}, not for all of {must:?}"
        );
    }
}
