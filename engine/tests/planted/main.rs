//! That the checker is not vacuous: each planted bug is objected to for what it does, within so many seeds, and what it leaves in order
//! is not objected to; nor is the same run without the bug. What is expected of each is in `common/expected.rs`.
//!
//! Bugs that show only where records come and go are in `tests/structure.rs`, those of locks that cover several records in `tests/tpc.rs`.

#[path = "../common/mod.rs"]
mod common;
mod duty;

use common::contended::{SEEDS_PER_BUG, contended};
use common::expected::Objections;
use common::{Case, judge, sim};
use duty::Duty;
use engine::cluster::{Length, RunResult, RunSpec, run_as};
use engine::protocol::planted::{Bug, Planted};
use engine::protocol::{AnyProtocol, Mvcc, PROTOCOLS, Protocol};
use engine::verify::{Dependency, Kind, Level, check};
use phases::plan::{Needs, Plan, Via};
use primitives::fabric::sim::FaultOptions;
use primitives::mesh::Shape;
use std::sync::atomic::AtomicBool;

#[test]
fn each_bug_is_objected_to_for_what_it_does() {
    for bug in Bug::ALL {
        let mut objections = Objections::to(bug);
        for seed in 0..SEEDS_PER_BUG {
            let result = contended(seed, bug).run_bug(bug);
            objections.judge(seed, result.history.as_ref().expect("it was asked for"));
        }
        objections.complete();
    }
}

/// The protocol that a bug was planted in, as it should be.
fn without(bug: Bug) -> AnyProtocol {
    AnyProtocol::named(Planted(bug).needs().protocol).expect("a protocol")
}

#[test]
fn the_same_runs_without_a_bug_are_not_objected_to() {
    let mut judged: Vec<Case> = Vec::new();
    for bug in Bug::ALL {
        for seed in 0..SEEDS_PER_BUG {
            let case = Case { protocol: without(bug), ..contended(seed, bug) };
            // Bugs of a protocol share most runs.
            let same = |other: &Case| {
                (other.protocol, other.spec.seed, other.spec.plan)
                    == (case.protocol, case.spec.seed, case.spec.plan)
            };
            if !judged.iter().any(same) {
                judge(&case, "sim");
                judged.push(case);
            }
        }
    }
    // Protocols in which no bug is planted, too.
    for name in PROTOCOLS {
        let protocol = AnyProtocol::named(name).expect("a protocol");
        if judged.iter().all(|case| case.protocol != protocol) {
            let bug = if protocol.needs().packing == Needs::NOWAIT.packing {
                Bug::NoWaitUnlockEarly
            } else {
                Bug::NoValidation
            };
            for seed in 0..SEEDS_PER_BUG {
                let mut case = Case { protocol, ..contended(seed, bug) };
                case.spec.plan = case.spec.plan.restricted_to(protocol.needs());
                judge(&case, "sim");
            }
        }
    }
}

/// Doctors under a protocol that keeps versions, all one-sided or all two-sided.
fn on_duty(seed: u64, protocol: impl Protocol + Copy + Sync) -> RunResult {
    let via = if seed.is_multiple_of(2) { Via::OneSided } else { Via::TwoSided };
    let plan = Plan::uniform(via).restricted_to(protocol.needs());
    let mut spec = RunSpec::new(sim(seed, FaultOptions::default()), Shape { nodes: 3, workers: 1 }, plan);
    (spec.seed, spec.history) = (seed, true);
    spec.plan.coroutines = 6;
    spec.length = Length::Transactions(60);
    let result = run_as(&spec, &Duty, protocol, &AtomicBool::new(false)).expect("it can run");
    assert!(result.faults.is_empty(), "{:?}", result.faults);
    assert!(result.stats.committed > 500, "seed {seed}: {:?}", result.stats.aborts);
    result
}

/// The matrix's row of snapshot isolation, by runs: they pass it, on every seed, and fail serializability, one-sided
/// and two-sided, with write skew for a witness and nobody on call.
#[test]
fn snapshot_isolation_passes_as_such_and_fails_serializability_by_write_skew() {
    let (mut skewed, mut nobody) = (Vec::new(), Vec::new());
    for seed in 0..SEEDS_PER_BUG {
        let result = on_duty(seed, Planted(Bug::SnapshotOnly));
        let history = result.history.as_ref().expect("it was asked for");
        for level in [Level::ReadCommitted, Level::ReadAtomicity, Level::SnapshotIsolation] {
            let verdict = check(history, level);
            assert!(verdict.passed(), "seed {seed}:\n{verdict}");
        }
        if let Some(anomaly) = check(history, Level::Serializable).anomaly {
            assert_eq!(anomaly.kind, Kind::G2, "seed {seed}: {anomaly}");
            let edges = &anomaly.cycle.edges;
            let skew = edges.len() == 2 && edges.iter().all(|edge| edge.dependency == Dependency::Rw);
            skewed.extend(skew.then_some(seed));
        }
        nobody.extend(result.failed_checks().any(|check| check.name == "on-call").then_some(seed));
        let right = on_duty(seed, Mvcc);
        assert!(right.passed(), "seed {seed}: {:?}", right.failed_checks().next());
        let verdict = check(right.history.as_ref().expect("it was asked for"), Mvcc.level());
        assert!(verdict.passed(), "seed {seed}:\n{verdict}");
    }
    eprintln!("write skew on seeds {skewed:?}, nobody on call on {nobody:?} of 0..{SEEDS_PER_BUG}");
    for via in [0, 1] {
        let some = |seeds: &[u64]| seeds.iter().any(|seed| seed % 2 == via);
        assert!(some(&skewed) && some(&nobody), "one of the primitives does not show it");
    }
}

/// Who waits for whom in a circle gives up in the end, with a reason that wait-die never has.
#[test]
fn waiting_in_a_circle_is_noticed_and_ends() {
    let end = |case: &Case, result: &RunResult| {
        let stats = &result.stats;
        let ended = stats.committed + stats.given_up + stats.rolled_back.total();
        assert!(result.faults.is_empty(), "{:?}", result.faults);
        assert_eq!(ended, 3 * 6 * 8, "{}, seed {}: {stats:?}", case.workload, case.spec.seed);
        stats.aborts.of("lock-conflict")
    };
    for bug in Bug::OF_WAITING {
        let mut circles = Vec::new();
        for seed in 0..SEEDS_PER_BUG {
            let mut case = Case { protocol: without(bug), ..contended(seed, bug) };
            case.spec.length = Length::Transactions(8);
            // Who waited in a circle may do so again.
            case.spec.retry.attempts = 4;
            let right = judge(&case, "sim");
            assert_eq!(end(&case, &right), 0, "seed {seed}: {:?}", right.stats.aborts);
            let result = case.run_bug(bug);
            Objections::to(bug).judge(seed, result.history.as_ref().expect("it was asked for"));
            circles.push(end(&case, &result));
            // Of those who want one record each nobody is in a circle, and patience is enough.
            let settings = [("records_per_thread", "1"), ("reads", "0"), ("writes", "1")];
            let queue = Case::new("micro", &settings, case.spec.clone());
            assert_eq!(end(&queue, &queue.run_bug(bug)), 0, "seed {seed}: a queue is no circle");
        }
        eprintln!("{bug:?}: waited in vain, by seed: {circles:?}");
        assert!(circles.iter().any(|&times| times > 0), "{bug:?} went unnoticed");
    }
}
