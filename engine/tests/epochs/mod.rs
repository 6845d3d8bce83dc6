//! The model of CALVIN's epochs against the simulator.

use super::common::sim_of;
use super::{On, four, ran, shipped};
use engine::protocol::{AnyProtocol, Protocol};
use phases::plan::{Phase, Plan, Via};
use primitives::mesh::Shape;
use primitives::profile::Profile;
use primitives::units::Nanos;

/// A run under CALVIN, and how far it may be off.
struct Epochs {
    protocol: &'static str,
    workload: &'static str,
    settings: &'static [(&'static str, &'static str)],
    coroutines: u32,
    on: On,
}

const ROWS: &[(&str, &str)] = &[("records_per_thread", "20000")];
const SMALL: &[(&str, &str)] =
    &[("payload_bytes", "16"), ("reads", "2"), ("writes", "2"), ("records_per_thread", "8000")];
const EVEN: &[(&str, &str)] = &[("accounts_per_thread", "20000"), ("hot_accounts_share", "1")];
const HOT: &[(&str, &str)] =
    &[("records_per_thread", "4000"), ("hot_accesses_share", "0.3"), ("hot_records_share", "0.01")];

/// Four nodes of two threads, batches of four, six coroutines; the first of each load, then departures from it.
fn epochs() -> Vec<Epochs> {
    let on = On { warm_up: Nanos::from_micros(500), measured: Nanos::from_millis(3), ..four(&shipped()) };
    let usual =
        |workload, settings| Epochs { protocol: "calvin", workload, settings, coroutines: 6, on: on.clone() };
    let nodes =
        |nodes, of: Epochs| Epochs { on: On { shape: Shape { nodes, workers: 2 }, ..on.clone() }, ..of };
    let named = |name| Profile::shipped(name).expect("a shipped profile");
    let slow = || On { profile: named("tcp-10g"), measured: Nanos::from_millis(20), ..on.clone() };
    vec![
        usual("ycsb", ROWS),
        usual("smallbank", EVEN),
        usual("micro", SMALL),
        usual("ycsb", HOT),
        nodes(2, usual("ycsb", ROWS)),
        nodes(8, usual("smallbank", EVEN)),
        nodes(8, usual("micro", SMALL)),
        nodes(2, usual("ycsb", HOT)),
        Epochs { coroutines: 1, ..usual("smallbank", EVEN) },
        Epochs { coroutines: 1, ..usual("micro", SMALL) },
        Epochs { coroutines: 16, ..usual("ycsb", ROWS) },
        Epochs { coroutines: 16, ..usual("ycsb", HOT) },
        Epochs { protocol: "calvin:batch=1", ..usual("micro", SMALL) },
        Epochs { protocol: "calvin:batch=1", ..usual("ycsb", HOT) },
        Epochs { protocol: "calvin:batch=16", ..usual("smallbank", EVEN) },
        Epochs { protocol: "calvin:epoch_us=100", ..usual("micro", SMALL) },
        Epochs { protocol: "calvin:batch=2,epoch_us=30", ..usual("smallbank", EVEN) },
        Epochs { on: On { replicas: 3, ..on.clone() }, ..usual("micro", SMALL) },
        Epochs { on: On { replicas: 2, ..on.clone() }, ..usual("smallbank", EVEN) },
        Epochs { on: On { profile: named("cx3"), ..on.clone() }, ..usual("micro", SMALL) },
        Epochs { on: slow(), ..usual("smallbank", EVEN) },
        Epochs { on: slow(), ..usual("ycsb", ROWS) },
    ]
}

/// Rates, latencies, requests and the work of cores, under both pure plans where there are both. Rates are within 12 % in the
/// median; what is furthest off is said in `CALVIN.md`.
#[test]
fn epochs_last_as_long_as_is_foretold() {
    let mut errors = Vec::new();
    for Epochs { protocol, workload, settings, coroutines, on } in epochs() {
        let name = protocol;
        let protocol = AnyProtocol::parse(name).expect("a protocol");
        let batch = protocol.sequenced().map_or(0.0, |calvin| f64::from(calvin.batch));
        let caps = sim_of(on.profile.clone(), 1).caps().expect("a fabric");
        for via in [Via::OneSided, Via::TwoSided] {
            let plan = Plan { coroutines, ..Plan::uniform(via).restricted_to(protocol.needs()) };
            if plan.check(&caps, protocol.needs()).is_err() {
                continue;
            }
            let ran = ran(&on, protocol, plan, workload, settings);
            let (said, result) = (&ran.said, &ran.result);
            let latency =
                result.stats.latency.mean_ns().expect("something committed") / said.latency_mean_ns - 1.0;
            let cpu = result.cpu_ns_per_committed().expect("something committed");
            let work = cpu / said.total(|phase| phase.core_ns + phase.serve_ns) - 1.0;
            println!(
                "{workload:<9} {:>2} nodes {coroutines:>2} coroutines {name} {} {via}: rate {:+.3} latency {latency:+.3} work {work:+.3}",
                on.shape.nodes,
                on.profile.name,
                ran.error()
            );
            assert_eq!((said.aborted_per_s, result.aborted_share().unwrap_or(0.0)), (0.0, 0.0));
            assert!(ran.error().abs() < 0.22 && latency.abs() < 0.25, "{:+.3} {latency:+.3}", ran.error());
            assert!(work.abs() < 0.12, "work of cores is off by {work:+.3}");
            // Inputs are counted epoch by epoch: one more or less falls into what is measured.
            let clients = f64::from(on.shape.nodes * on.shape.workers) * f64::from(coroutines) * batch;
            let one = clients / said.committed_per_s / (on.measured.0 as f64 / 1e9);
            for (phase, near) in [(Phase::Lock, 0.05 + one), (Phase::Fetch, 0.05)] {
                for (said, got) in ran.counts(phase) {
                    assert!((got / said - 1.0).abs() < near, "{phase}: {said} said, {got} counted");
                }
            }
            errors.push(ran.error().abs());
        }
    }
    errors.sort_by(f64::total_cmp);
    let median = errors[errors.len() / 2];
    println!("median {median:.3}");
    assert!(median < 0.12, "median {median}");
}

/// Of new-orders less is known: which records share a lock, and that letters of some nodes are longer than those of others, is not in
/// their averages.
#[test]
fn epochs_of_new_orders_are_foretold_less_well() {
    let protocol = AnyProtocol::named("calvin").expect("a protocol");
    let settings: &[(&str, &str)] =
        &[("items", "1000"), ("customers_per_district", "30"), ("orders_per_district", "30")];
    for (nodes, coroutines) in [(2, 6), (4, 1), (4, 6)] {
        let shape = Shape { nodes, workers: 2 };
        let on = On { shape, measured: Nanos::from_millis(3), ..four(&shipped()) };
        for via in [Via::OneSided, Via::TwoSided] {
            let plan = Plan { coroutines, ..Plan::uniform(via).restricted_to(protocol.needs()) };
            let ran = ran(&on, protocol, plan, "tpcc-no", settings);
            println!("{nodes} nodes, {coroutines} coroutines, {via}: {:+.3}", ran.error());
            assert!(ran.error().abs() < 0.4, "{:+.3}", ran.error());
        }
    }
}
