//! The same of TPC-C's transactions and customer-position: `forecasts.rs` runs these.

use super::{On, attempts, four, ran, shipped, sim_of};
use engine::cluster::{Length, RunSpec, run};
use engine::protocol::{AnyProtocol, Protocol};
use engine::workload::AnyWorkload;
use phases::plan::{Phase, Plan, Preset, Step, Via};
use primitives::measure::Precision;
use primitives::mesh::Shape;
use primitives::profile::Profile;
use primitives::units::Nanos;
use std::sync::atomic::AtomicBool;

/// A backup is told to apply its log after so many entries, which one coroutine to a thread writes to one of many nodes in milliseconds.
/// Runs had ended by then, and got a fifth more than they would have later on.
#[test]
fn counting_begins_once_backups_apply_their_logs() {
    let shape = Shape { nodes: 8, workers: 2 };
    let plan = Plan { coroutines: 1, ..Preset::FasstOcc.plan() };
    let settings = [("items", "500"), ("customers_per_district", "30"), ("orders_per_district", "10")];
    let settings = settings.iter().copied().chain([("order_room_per_district", "256")]);
    let of = |length| {
        let mut spec = RunSpec::new(sim_of(shipped(), 1), shape, plan);
        (spec.length, spec.replicas) = (length, 3);
        let load = AnyWorkload::parse("tpcc-no", spec.scale(), settings.clone()).expect("settings");
        let occ = AnyProtocol::named("occ").expect("a protocol");
        let result = run(&spec, &load, occ, &AtomicBool::new(false)).expect("it runs");
        assert!(result.passed());
        (result.committed_per_s(), result.steadiness.expect("it was metered"))
    };
    let fixed = |warm_up, measured| {
        of(Length::Time { warm_up: Nanos::from_micros(warm_up), measured: Nanos::from_micros(measured) })
    };
    let (early, found) = fixed(100, 1000);
    assert_eq!(found.settled, Some(false), "{found:?}");
    let (later, _) = fixed(5_000, 10_000);
    let precision =
        Precision { relative: 0.02, least: Nanos::from_micros(400), most: Nanos::from_millis(40) };
    let (got, found) = of(Length::Steady(precision));
    println!("{early:.0}/s early, {later:.0}/s later, {got:.0}/s got: {found:?}");
    assert_eq!(found.converged, Some(true), "{found:?}");
    assert!(found.warm_up > Nanos::from_millis(1), "{found:?}");
    assert!(early > 1.1 * later && (got / later - 1.0).abs() < 0.05, "{early}, {later}, {got}");
}

/// A payment writes one warehouse of ten, and nine coroutines beside it do so too, while the stocks of a stock-level are hardly ever
/// written: with one mean chance for all of it a millionth of what comes was foretold. And a stock-level is one long turn of its core,
/// behind which others wait, but not for as long as all of its attempts take. One-sided NOWAIT with ten coroutines is still foretold 0.4
/// times what comes, and one-sided MVCC and SUNDIAL a tenth (`experiments/REGRET.md`): they are not held here.
#[test]
fn tpcc_is_foretold_within_two_where_most_attempts_abort() {
    let fdr = Profile::shipped("cx3pro-fdr").expect("a shipped profile");
    let on = On {
        shape: Shape { nodes: 4, workers: 4 },
        replicas: 3,
        warm_up: Nanos::from_millis(1),
        measured: Nanos::from_millis(4),
        ..four(&fdr)
    };
    let settings = [
        ("items", "3000"),
        ("customers_per_district", "30"),
        ("orders_per_district", "10"),
        ("order_room_per_district", "300"),
    ];
    for (name, via, coroutines) in [
        ("occ", Via::OneSided, 10),
        ("occ", Via::TwoSided, 10),
        ("nowait", Via::TwoSided, 10),
        ("occ", Via::TwoSided, 1),
        ("nowait", Via::OneSided, 1),
    ] {
        let protocol = AnyProtocol::named(name).expect("a protocol");
        let plan = Plan { coroutines, ..Plan::uniform(via).restricted_to(protocol.needs()) };
        let ran = ran(&on, protocol, plan, "tpcc", &settings);
        let [said, got] = attempts(&ran);
        println!("{name} {via} {coroutines}: {:+.0} %, attempts {said:.2}, {got:.2}", 100.0 * ran.error());
        assert!((-0.3..1.2).contains(&ran.error()), "{name} {via} {coroutines}: {:+.2}", ran.error());
        // Deliveries and orders of one warehouse are taken to be strewn over its records.
        assert!(
            (0.7..1.7).contains(&(said / got)),
            "{name} {via} {coroutines}: {said:.2} and {got:.2} attempts"
        );
    }
}

/// Terminals keep to their warehouses, and so do nearly all stocks and customers that they ask for: one to a warehouse hardly ever meets
/// another, however few items there are.
#[test]
fn terminals_of_different_warehouses_hardly_meet() {
    let on = On {
        shape: Shape { nodes: 3, workers: 1 },
        replicas: 3,
        warm_up: Nanos::from_millis(1),
        measured: Nanos::from_millis(6),
        ..four(&shipped())
    };
    let occ = AnyProtocol::named("occ").expect("a protocol");
    let plan = Plan { coroutines: 1, ..Plan::uniform(Via::OneSided) };
    let sizes = [("items", "100"), ("customers_per_district", "300"), ("orders_per_district", "100")];
    for (away, at_most) in [
        ([("remote_item_share", "0"), ("remote_payment_share", "0")], 0.001),
        ([("remote_item_share", "0.01"), ("remote_payment_share", "0.15")], 0.05),
    ] {
        let ran = ran(&on, occ, plan, "tpcc", &[&sizes[..], &away].concat());
        let [said, got] = attempts(&ran);
        println!("{away:?}: {:+.2}, attempts {said:.3}, {got:.3}", ran.error());
        assert!(said - 1.0 <= at_most && got - 1.0 <= at_most, "{said:.3} and {got:.3} attempts");
        assert!(ran.error().abs() < 0.5, "{:+.2} off what is foretold", ran.error());
    }
}

/// A customer's rows are told by ranges and not looked up, and prices are asked for sixteen at a time where a plan lets several requests
/// be under way: without either, 584 thousand a second were foretold of a plan that got 916 thousand.
#[test]
fn a_customers_position_is_foretold_where_nobody_writes() {
    let occ = AnyProtocol::named("occ").expect("a protocol");
    let settings: &[(&str, &str)] = &[("customers_per_load_unit", "50")];
    let fetching = |via, plan: Plan| {
        let fetch = Step { outstanding: true, doorbell_batching: true, ..Step::bare(via) };
        Plan { fetch: Some(fetch), ..plan }
    };
    let [one, two] = [Via::OneSided, Via::TwoSided].map(Plan::uniform);
    // Where prices are asked for one by one, a core's turns are many short ones and a long one, the validation. That such a turn holds
    // up each of few coroutines no more than once was not known: 19 and 38 % then. What is left with eight is not traced.
    for (what, plan, off) in [
        ("hybrid", fetching(Via::Hybrid, one), [0.13, 0.07]),
        ("one-sided", fetching(Via::OneSided, one), [0.13, 0.07]),
        ("two-sided", fetching(Via::TwoSided, two), [0.07, 0.07]),
        ("one-sided, one by one", one, [0.1, 0.3]),
        ("two-sided, one by one", two, [0.15, 0.15]),
    ] {
        for (coroutines, off) in [2, 8].into_iter().zip(off) {
            let on = On { measured: Nanos::from_millis(4), ..four(&shipped()) };
            let ran = ran(&on, occ, Plan { coroutines, ..plan }, "tpce-cp", settings);
            println!("{what} {coroutines}: said {:.0}/s, {:+.3}", ran.said.committed_per_s, ran.error());
            assert!(ran.error().abs() < off, "{what} {coroutines}: {:+.3} off", ran.error());
            let [verbs, waits, doorbells] = ran.counts(Phase::Fetch);
            println!("    said and counted {verbs:.2?} {waits:.2?} {doorbells:.2?}");
            for (said, got) in [verbs, waits, doorbells] {
                assert!((got / said - 1.0).abs() < 0.12, "{what} {coroutines}: {said} said, {got} counted");
            }
        }
    }
}
