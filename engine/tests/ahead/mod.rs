//! TPC-C under CALVIN: known ahead, but for what the locks of districts and of warehouses' stocks cover.

use super::common::expected::Objections;
use super::common::{Case, be_patient, judge, sim};
use super::oracle::held_against;
use super::{BUSY, POSITION, TPCC, case, fabrics, nothing_wrong, on_every_fabric, queried};
use engine::cluster::{Length, run};
use engine::protocol::planted::Bug;
use engine::protocol::{AnyProtocol, Calvin, Protocol};
use engine::workload::tpcc::Job;
use phases::plan::{Phase, Plan, Via};
use primitives::fabric::loopback::Options;
use primitives::fabric::sim::FaultOptions;
use primitives::mesh::{FabricSpec, Shape};
use primitives::units::Nanos;
use std::sync::atomic::AtomicBool;

/// Whose prices customer-position looks at is known when it has read which securities are held: CALVIN, which has to know where
/// they lie before, says so before anything runs.
#[test]
fn what_is_not_known_ahead_is_refused() {
    let case = case(Plan::uniform(Via::TwoSided), "tpce-cp", POSITION, 1);
    let stop = AtomicBool::new(false);
    let refused = run(&case.spec, &case.workload(), calvin(), &stop).expect_err("it cannot run");
    assert!(refused.to_string().contains("declared ahead: tpce-cp does not"), "{refused}");
}

fn calvin() -> AnyProtocol {
    AnyProtocol::named("calvin").expect("a protocol")
}

/// As [`case`] under CALVIN: inputs and values carried by these.
fn ahead(
    (lock, fetch): (Via, Via),
    workload: &'static str,
    settings: &[(&str, &str)],
    replicas: u16,
) -> Case {
    let needs = calvin().needs();
    let plan = Plan::uniform(Via::TwoSided).with(Phase::Lock, lock).with(Phase::Fetch, fetch);
    Case { protocol: calvin(), ..case(plan.restricted_to(needs), workload, settings, replicas) }
}

const BOTH: [Via; 2] = [Via::OneSided, Via::TwoSided];

/// The whole mix and new-orders alone, known ahead, with and without replication: nobody aborts.
#[test]
fn calvin_runs_orders() {
    let plans = BOTH.into_iter().flat_map(|lock| BOTH.map(|fetch| (lock, fetch)));
    for (n, plan) in plans.enumerate() {
        let together = if n % 2 == 0 { "true" } else { "false" };
        let orders = [&TPCC[..5], &[("together", together), ("rollback_share", "0.2")]].concat();
        let mix = [TPCC, BUSY, &[("together", together)]].concat();
        for (workload, settings) in [("tpcc", mix), ("tpcc-no", orders)] {
            for result in on_every_fabric(ahead(plan, workload, &settings, 1 + n as u16 % 3)) {
                assert_eq!(result.stats.aborts.total() + result.stats.given_up, 0, "nobody aborts");
                assert!(result.stats.rolled_back.of("unused-item") > 0, "some are rolled back");
            }
        }
    }
}

/// Workers that share a node's locks, coroutines and batches of any number, and nodes that have no warehouse.
#[test]
fn calvin_runs_orders_of_any_warehouses_on_any_nodes() {
    for (n, (nodes, workers, warehouses)) in
        [(4, 1, "1"), (4, 1, "3"), (1, 2, "1"), (2, 2, "7"), (3, 2, "2")].into_iter().enumerate()
    {
        let settings = [&TPCC[1..], BUSY, &[("warehouses", warehouses)]].concat();
        let via = BOTH[n % 2];
        let mut case = ahead((via, via), "tpcc", &settings, 1 + n as u16 % 2 * u16::from(nodes > 1));
        case.spec.shape = Shape { nodes, workers };
        case.protocol = AnyProtocol::Calvin(Calvin::new(1 + 2 * n as u16, Nanos(0)));
        for (name, fabric) in fabrics() {
            case.spec.fabric = fabric;
            be_patient(&mut case.spec);
            judge(&case, name);
        }
    }
}

#[test]
fn calvin_runs_orders_the_same_way_from_the_same_seed() {
    let case = ahead((Via::OneSided, Via::TwoSided), "tpcc", &[TPCC, BUSY].concat(), 2);
    let (a, b) = (judge(&case, "sim"), judge(&case, "sim"));
    assert_eq!((a.facts.of_seed(), a.traffic, a.rpc), (b.facts.of_seed(), b.traffic, b.rpc));
    assert_eq!(a.stats.latency.to_data(), b.stats.latency.to_data());
}

/// As [`a_long_run_is_serializable_and_consistent`].
#[test]
fn a_long_run_known_ahead_is_serializable_and_consistent() {
    let settings = [&TPCC[1..4], &[("warehouses", "5"), ("order_room_per_district", "400")]].concat();
    let mut case = ahead((Via::OneSided, Via::OneSided), "tpcc", &settings, 2);
    case.spec.plan.coroutines = 6;
    case.spec.length = Length::Transactions(560);
    let result = judge(&case, "sim");
    assert!(result.stats.committed > 9_500, "{}", result.stats.committed);
    assert!(result.stats.rolled_back.of("unused-item") > 10);
    assert!(result.stats.committed_read_only > 600);
}

/// There is nobody who could decide for all nodes that an order is not placed: the run ends, with the reason.
#[test]
fn orders_beyond_the_room_end_a_run_that_is_known_ahead() {
    let mut case = ahead((Via::TwoSided, Via::TwoSided), "tpcc-no", &TPCC[..4], 2);
    case.settings.push(("order_room_per_district".to_owned(), "2".to_owned()));
    case.spec.reserve_bytes = Some(0);
    case.spec.worker.rpc.retransmit_after = Nanos::from_micros(150);
    case.spec.worker.rpc.max_retransmits = 10;
    let result = case.run();
    let why = result.faults.first().map(|fault| fault.why.as_str()).unwrap_or_default();
    assert!(why.contains("no room"), "{:?}", result.faults);
}

/// Under CALVIN transactions run at several nodes, and must come to the same at all of them: that, too, is held against the plain
/// execution, and so are lies.
#[test]
fn queries_known_ahead_tell_what_a_plain_execution_tells() {
    for (name, fabric) in fabrics() {
        for seed in 1..=3 {
            for (n, plan) in
                [(Via::OneSided, Via::TwoSided), (Via::TwoSided, Via::OneSided)].into_iter().enumerate()
            {
                let (mut case, db) = queried(fabric.clone(), seed);
                case.protocol = calvin();
                case.spec.plan = ahead(plan, "tpcc", TPCC, 1).spec.plan;
                case.spec.replicas = 1 + n as u16;
                let found = held_against(&case, db, |_| ());
                nothing_wrong(&found, &format!("{name}, seed {seed}"));
                assert!(found.answers > 200, "{} answers", found.answers);
            }
        }
    }
    let (mut case, db) = queried(fabrics().remove(0).1, 1);
    case.protocol = calvin();
    case.spec.plan = ahead((Via::OneSided, Via::OneSided), "tpcc", TPCC, 1).spec.plan;
    let found = held_against(&case, db, |input| {
        if let Job::StockLevel { threshold } = &mut input.job {
            *threshold += 10;
        }
    });
    assert!(found.wrong.len() > 10, "{:?}", found.wrong);
}

/// New-orders, payments and deliveries, or stock-levels among new-orders, of one warehouse.
fn crowded(bug: Bug, seed: u64) -> Case {
    let mix = match bug {
        Bug::Uncovered => [("delivery", "40"), ("stock_level", "0")],
        _ => [("delivery", "0"), ("stock_level", "60")],
    };
    let hot = [("warehouses", "1"), ("remote_item_share", "0")];
    let settings = [&TPCC[1..4], &[("order_room_per_district", "400")], &hot[..], &mix[..]].concat();
    let mut case = ahead((Via::OneSided, Via::OneSided), "tpcc", &settings, 2);
    (case.spec.seed, case.spec.fabric) = (seed, sim(seed, FaultOptions::default()));
    if bug == Bug::LoneWriters {
        // A simulated core reads all stocks at one moment: only threads see others at work on them.
        case.spec.fabric = FabricSpec::Loopback(Options { seed, ..Options::default() });
        (case.spec.shape, case.spec.replicas) = (Shape { nodes: 1, workers: 2 }, 1);
        case.spec.length = Length::Transactions(150);
        be_patient(&mut case.spec);
    }
    case
}

/// Locks that cover more than a record, not asked for.
#[test]
fn covers_that_are_left_out_are_noticed() {
    for bug in Bug::OF_COVERS {
        // Threads that never ran at once, on a busy machine, have shown nothing: they get more turns.
        let seeds = if bug == Bug::LoneWriters { 1..=80 } else { 1..=10 };
        let mut objections = Objections::to(bug);
        for seed in seeds {
            let mut case = crowded(bug, seed);
            case.spec.audit = false;
            objections.judge(seed, case.run_bug(bug).history.as_ref().expect("it was asked for"));
            if objections.met() {
                break;
            }
        }
        objections.complete();
        for seed in 1..=10 {
            judge(&crowded(bug, seed), "the same without a bug");
        }
    }
}
