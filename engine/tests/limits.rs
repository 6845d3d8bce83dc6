//! Where protocols end: versions that wrap, timestamps that are used up, leases too long for their field, versions that
//! are no longer kept, clocks that are wrong. Each has a defined answer, and what committed keeps its promise.

mod ages;
mod common;

use common::{Case, OTHERS, judge, sim};
use engine::cluster::{Clocks, Length, RunResult, RunSpec};
use engine::protocol::{AnyProtocol, Mvcc, Protocol, Sundial};
use engine::verify::{History, Key, Op, Outcome};
use phases::plan::{Plan, Via};
use phases::rule::{LAST_WTS, LEASE_MAX, time::LAST_TICK};
use primitives::fabric::sim::FaultOptions;
use primitives::mesh::Shape;
use primitives::units::Nanos;
use std::collections::BTreeMap;

const VIAS: [Via; 2] = [Via::OneSided, Via::TwoSided];

fn case(protocol: AnyProtocol, via: Via, settings: &[(&str, &str)]) -> Case {
    let plan = Plan::uniform(via).restricted_to(protocol.needs());
    let shape = Shape { nodes: 3, workers: 1 };
    let mut case = Case::new("micro", settings, RunSpec::new(sim(5, FaultOptions::default()), shape, plan));
    case.protocol = protocol;
    case.spec.plan.coroutines = 4;
    case.spec.replicas = 2;
    case.spec.length = Length::Transactions(60);
    case
}

const CONTENDED: &[(&str, &str)] =
    &[("records_per_thread", "6"), ("reads", "1"), ("writes", "2"), ("payload_bytes", "16")];

fn named(name: &str) -> AnyProtocol {
    AnyProtocol::named(name).expect("a protocol")
}

fn all_ended(result: &RunResult) -> u64 {
    result.stats.committed + result.stats.given_up
}

/// Counted versions go round: records, backups and logs do not mind. The history would, whose versions only grow.
#[test]
fn counted_versions_wrap_without_harm() {
    for name in ["occ", "nowait", "waitdie"] {
        for via in VIAS {
            let mut case = case(named(name), via, CONTENDED);
            case.spec.first_version = (1 << 39) - 4;
            case.spec.history = false;
            let result = case.run();
            assert!(result.passed(), "{name} {via}: {:?} {:?}", result.faults, result.failed_checks().next());
            assert_eq!(result.stats.committed, 3 * 4 * 60, "{name} {via}");
        }
    }
}

/// Without timestamps nothing begins any more: an abort that says so and is not tried again.
#[test]
fn timestamps_end_with_a_reason() {
    for name in ["waitdie", "mvcc"] {
        for via in VIAS {
            let mut case = case(named(name), via, CONTENDED);
            case.spec.clocks.first_tick = LAST_TICK - 60;
            let result = judge(&case, "sim");
            let ended = result.stats.aborts.of("timestamp-wrap");
            assert!(result.stats.committed > 0 && ended > 0, "{name} {via}: {:?}", result.stats.aborts);
            assert_eq!((all_ended(&result), result.stats.given_up), (3 * 4 * 60, ended), "{name} {via}");
        }
    }
}

#[test]
fn clusters_whose_timestamps_would_not_differ_are_refused() {
    for name in ["waitdie", "mvcc"] {
        let mut case = case(named(name), Via::TwoSided, CONTENDED);
        case.spec.shape = Shape { nodes: 2, workers: 65 };
        let refused = engine::cluster::run(
            &case.spec,
            &case.workload(),
            case.protocol,
            &std::sync::atomic::AtomicBool::new(false),
        );
        let text = refused.expect_err("it was accepted").to_string();
        assert!(text.contains("65 workers") && text.contains("64 workers apart"), "{text}");
    }
}

#[test]
fn write_timestamps_of_leases_end_with_a_reason() {
    for via in VIAS {
        let protocol = AnyProtocol::Sundial(Sundial { earliest: LAST_WTS - 30 });
        // Leases from the first version to there would be too long: every record begins close to it.
        let mut case = case(protocol, via, CONTENDED);
        case.spec.first_version = LAST_WTS - 40;
        let result = judge(&case, "sim");
        let ended = result.stats.aborts.of("timestamp-wrap");
        assert!(result.stats.committed > 0 && ended > 0, "{via}: {:?}", result.stats.aborts);
        assert_eq!(all_ended(&result), 3 * 4 * 60, "{via}");
    }
}

/// A record whose lease would have to be longer than its field is written again, unchanged.
#[test]
fn a_lease_too_long_becomes_a_new_version() {
    for via in VIAS {
        let protocol = AnyProtocol::Sundial(Sundial { earliest: LEASE_MAX + 100 });
        let case = case(protocol, via, &[("records_per_thread", "40"), ("reads", "2"), ("writes", "1")]);
        let result = judge(&case, "sim");
        assert_eq!(result.stats.committed, 3 * 4 * 60, "{via}: {:?}", result.stats.aborts);
        let history = result.history.as_ref().expect("asked for");
        let writes = engine::verify::check(history, protocol.level()).counts.writes;
        assert!(writes > result.stats.committed, "{via}: {writes} writes, some of them of records only read");
    }
}

/// Four versions are not enough for a reader that is four writes late: it aborts with that reason, and its next attempt is
/// not late.
#[test]
fn a_reader_whose_version_is_gone_is_told_so() {
    let settings =
        [("records_per_thread", "4"), ("operations", "4"), ("write_share", "0.5"), ("zipf_theta", "0.9")];
    for via in VIAS {
        let mut case = case(AnyProtocol::Mvcc(Mvcc), via, &settings);
        case.workload = "ycsb";
        // Clocks differ by more than a record's four versions last.
        case.spec.clocks.skew = Nanos(400_000);
        let result = judge(&case, "sim");
        assert_eq!(result.stats.committed, 3 * 4 * 60, "{via}: {:?}", result.stats.aborts);
        let gone = result.stats.aborts.of("no-version");
        assert!(gone > 0, "{via}: nobody was late, the test shows nothing: {:?}", result.stats.aborts);
    }
}

/// Where records come and go, CALVIN's places in the order are their versions. When these are used up the run ends with that reason, and what
/// it did before stands.
#[test]
fn places_in_the_order_end_with_a_reason() {
    let settings = [
        ("warehouses", "3"),
        ("customers_per_district", "10"),
        ("orders_per_district", "5"),
        ("items", "50"),
        ("order_room_per_district", "200"),
    ];
    for via in VIAS {
        let mut case = case(named("calvin"), via, &settings);
        case.workload = "tpcc";
        case.spec.log_ring_bytes = 1 << 16;
        case.spec.first_version = LAST_WTS - 400;
        let result = case.run();
        let ended = result.faults.iter().filter(|fault| fault.why.contains("timestamps are used up")).count();
        assert!(ended > 0, "{via}: {:?}", result.faults);
        assert!(
            (1..3 * 4 * 60).contains(&result.stats.committed),
            "{via}: {} committed",
            result.stats.committed
        );
    }
}

/// Sessions that found a record older than one of their own transactions had found or left it, which committed before.
fn looks_back(history: &History) -> Vec<(u32, Op)> {
    let mut known: BTreeMap<(u32, Key), u64> = BTreeMap::new();
    let mut back = Vec::new();
    for txn in history.txns().iter().filter(|txn| txn.outcome == Outcome::Committed) {
        for op in history.ops(txn) {
            let latest = known.entry((txn.session, op.record())).or_insert(op.version);
            if op.version < *latest {
                back.push((txn.session, *op));
            }
            *latest = op.version.max(*latest);
        }
    }
    back
}

/// Clocks far apart, and some that go back after they were read: promises hold, everybody gets on, and nobody is taken back to a past
/// that is over for them.
#[test]
fn wrong_clocks_cost_aborts_but_no_promise() {
    // Few writes, and many transactions that only read: who reads in the past finds versions that are kept.
    let settings = [("records_per_thread", "10"), ("operations", "2"), ("write_share", "0.05")];
    let far =
        Clocks { skew: Nanos(1_000_000), jump_at: Nanos(1_500_000), jump_ns: -900_000, ..Clocks::default() };
    // A clock that followed others' timestamps until it jumped would not find its own past in the records: this one was right.
    let right = Clocks { jump_at: Nanos(1_000_000), jump_ns: -200_000, ..Clocks::default() };
    for (name, via) in ["waitdie", "mvcc"].into_iter().flat_map(|name| VIAS.map(|via| (name, via))) {
        for clocks in [far, right] {
            let mut case = case(named(name), via, &settings);
            case.workload = "ycsb";
            case.spec.length = Length::Transactions(480);
            case.spec.clocks = clocks;
            let result = judge(&case, "sim");
            let (what, stats) = (format!("{name} {via}, {clocks:?}"), &result.stats);
            assert_eq!(stats.committed, 3 * 4 * 480, "{what}: {:?}", stats.aborts);
            assert!(stats.clock_back_most > 150, "{what}: back by {} ticks", stats.clock_back_most);
            let back = looks_back(result.history.as_ref().expect("asked for"));
            assert!(back.is_empty(), "{what}: {back:?}");
        }
    }
}

/// Wait-die on records that everybody wants: nobody starves. The oldest transaction is not turned away, so
/// attempts are bounded by those older than it, not by luck.
#[test]
fn under_wait_die_nobody_starves() {
    for name in ["waitdie", "waitdie-exclusive"] {
        for via in VIAS {
            let settings =
                [("records_per_thread", "1"), ("reads", "2"), ("writes", "1"), ("payload_bytes", "8")];
            let mut case = case(named(name), via, &settings);
            case.spec.plan.coroutines = 12;
            case.spec.replicas = 1;
            case.spec.length = Length::Transactions(100);
            case.spec.retry.attempts = 400;
            let result = judge(&case, "sim");
            let stats = &result.stats;
            assert_eq!(
                (stats.committed, stats.given_up),
                (3 * 12 * 100, 0),
                "{name} {via}: {:?}",
                stats.aborts
            );
            eprintln!("{name} {via}: {:?}", stats.aborts.iter().collect::<Vec<_>>());
        }
    }
}

/// Every protocol where everybody wants the same three records: all transactions end, and none needs more than this many attempts.
/// `DOORBELL_ATTEMPTS` says how many attempts all protocols and styles make together, at least.
#[test]
fn nobody_starves_on_hot_keys() {
    const MOST: u32 = 1_000;
    let wanted = std::env::var("DOORBELL_ATTEMPTS").ok().and_then(|n| n.parse().ok()).unwrap_or(20_000);
    let settings = [("records_per_thread", "1"), ("reads", "1"), ("writes", "1"), ("payload_bytes", "8")];
    let protocols: Vec<_> = std::iter::once("occ").chain(OTHERS.iter().copied()).collect();
    let share = wanted / (protocols.len() * VIAS.len()) as u64;
    let mut all = 0;
    for name in protocols {
        for via in VIAS {
            let (mut attempts, mut committed, mut most) = (0, 0, 0);
            for seed in 0.. {
                let mut case = case(named(name), via, &settings);
                case.spec.seed = seed;
                case.spec.plan.coroutines = 8;
                case.spec.replicas = 1;
                case.spec.retry.attempts = MOST;
                case.spec.length = Length::Transactions(100);
                let result = judge(&case, "sim");
                let stats = &result.stats;
                let aborts: Vec<_> = stats.aborts.iter().collect();
                let ended = (stats.committed, stats.given_up);
                assert_eq!(ended, (3 * 8 * 100, 0), "{name} {via}, seed {seed}: {aborts:?}");
                attempts += stats.committed + stats.aborts.total();
                committed += stats.committed;
                most = most.max(stats.attempts_most);
                if attempts >= share {
                    break;
                }
            }
            eprintln!(
                "{name} {via}: {attempts} attempts, {committed} committed, at most {most} attempts each"
            );
            all += attempts;
        }
    }
    assert!(all >= wanted, "{all} attempts");
}

/// Two-sided wait-die where many wait at few owners: waiting holds nobody else up, and takes about as long as one-sided. (Once an owner
/// that parked a request as the last thing it had to do slept until something else came, which with everybody waiting was the
/// sweep for lost requests after 20 ms.)
#[test]
fn waiting_at_the_owner_does_not_hold_up_the_rest() {
    let run = |via| {
        let settings = [("records_per_thread", "4000"), ("hot_accesses_share", "0.1"), ("think_us", "1")];
        let mut case = case(named("waitdie"), via, &settings);
        case.workload = "ycsb";
        case.spec.shape = Shape { nodes: 4, workers: 2 };
        case.spec.replicas = 1;
        case.spec.plan.coroutines = 12;
        case.spec.length = Length::Transactions(12);
        let result = judge(&case, "sim");
        assert_eq!(result.stats.committed, 4 * 2 * 12 * 12, "{via}: {:?}", result.stats.aborts);
        eprintln!(
            "{via}: {} with at most {} attempts, {:?}",
            result.elapsed, result.stats.attempts_most, result.rpc
        );
        result.elapsed
    };
    let (one, two) = (run(Via::OneSided), run(Via::TwoSided));
    assert!(two.0 < 3 * one.0, "two-sided {two}, one-sided {one}");
}
