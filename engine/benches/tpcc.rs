//! TPC-C on loopback: what new-orders and the whole mix cost when the network costs nothing but memory accesses.
//!
//! DrTM+H plan without replication, one worker thread per node with a warehouse of its own, of the specification's size.
//! `cargo bench -p doorbell-engine --bench tpcc [-- WORKLOAD NODES SECONDS [PLAN]]` prints committed transactions per second and
//! core; WORKLOAD is `tpcc`, `tpcc-no`, or `new-order` (not distributed: 1 % of lines are another warehouse's), which is the
//! default. `COROUTINES=n` overrides the plan's; `TRANSACTIONS=n` runs so many per coroutine instead of a time, for counting
//! instructions as in `smallbank`; `ITEMS=n`, `CUSTOMERS=n` and `ROOM=n` change sizes.
//!
//! Orders stay, so a second of new-orders takes memory: room for `ROOM` orders in each district is set aside.

use engine::cluster::{Length, RunSpec, memory_estimate, run};
use engine::protocol::{AnyProtocol, Occ};
use engine::workload::AnyWorkload;
use phases::plan::{Phase, Preset};
use primitives::fabric::loopback::Options;
use primitives::mesh::{FabricSpec, Shape};
use primitives::units::Nanos;
use std::sync::atomic::AtomicBool;

const NEW_ORDER: &[(&str, &str)] =
    &[("payment", "0"), ("order_status", "0"), ("delivery", "0"), ("stock_level", "0")];

fn variable(name: &str) -> Option<u64> {
    std::env::var(name)
        .ok()
        .map(|text| text.parse().unwrap_or_else(|_| panic!("{name}={text} is not a number")))
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with("--")).collect();
    let number = |i: usize, default: f64| args.get(i).and_then(|a| a.parse().ok()).unwrap_or(default);
    let asked = args.first().map_or("new-order", String::as_str);
    let (nodes, seconds) = (number(1, 2.0) as u16, number(2, 2.0));
    let preset = args.get(3).and_then(|name| Preset::named(name)).unwrap_or(Preset::DrtmH);
    let shape = Shape { nodes, workers: 1 };
    let mut spec = RunSpec::new(FabricSpec::Loopback(Options::default()), shape, preset.plan());
    if let Some(coroutines) = variable("COROUTINES") {
        spec.plan.coroutines = coroutines as u32;
    }
    spec.length = match variable("TRANSACTIONS") {
        Some(n) => Length::Transactions(n),
        None => Length::Time { warm_up: Nanos::from_millis(200), measured: Nanos((seconds * 1e9) as u64) },
    };
    let (name, mix) = if asked == "new-order" { ("tpcc", NEW_ORDER) } else { (asked, &[][..]) };
    let sizes =
        [("items", "ITEMS"), ("customers_per_district", "CUSTOMERS"), ("order_room_per_district", "ROOM")];
    let mut settings: Vec<(&str, String)> = mix.iter().map(|&(key, value)| (key, value.to_owned())).collect();
    for (key, asked) in sizes {
        settings.extend(variable(asked).map(|n| (key, n.to_string())));
    }
    if let Some(customers) = variable("CUSTOMERS") {
        settings.push(("orders_per_district", customers.to_string()));
    }
    let settings = settings.iter().map(|(key, value)| (*key, value.as_str()));
    let workload = AnyWorkload::parse(name, spec.scale(), settings).expect("a workload of the bench");
    let protocol = AnyProtocol::Occ(Occ);
    println!("{asked}: about {} MiB", memory_estimate(&spec, &workload, &protocol) >> 20);
    let result = run(&spec, &workload, protocol, &AtomicBool::new(false)).expect("loopback runs");
    assert!(result.passed(), "{:?}", result.failed_checks().collect::<Vec<_>>());
    let cores = f64::from(nodes).min(std::thread::available_parallelism().map_or(1.0, |n| n.get() as f64));
    let quantile = |q| result.stats.latency.quantile(q).unwrap_or_default();
    println!(
        "{preset}, {nodes} nodes, {} coroutines: {:.0} committed/s, {:.0} per core; p50 {}, p99 {}, p99.9 {}",
        spec.plan.coroutines,
        result.committed_per_s(),
        result.committed_per_s() / cores,
        quantile(0.5),
        quantile(0.99),
        quantile(0.999)
    );
    println!(
        "per committed: {:.2} verbs, {:.2} round trips, {:.2} doorbells; {} rolled back",
        result.verbs_per_committed(),
        result.round_trips_per_committed(),
        result.doorbells_per_committed(),
        result.stats.rolled_back.total()
    );
    for (reason, count) in result.stats.aborts.iter() {
        println!("  aborted {reason}: {count}");
    }
    for phase in Phase::ALL {
        let stats = result.stats.phase(phase);
        let [verbs, round_trips, doorbells] = result.phase_per_committed(phase);
        let p50 = stats.latency.p50().map_or("-".to_owned(), |n| n.to_string());
        println!(
            "  {phase:>8}: p50 {p50:>8}  {verbs:.2} verbs  {round_trips:.2} round trips  {doorbells:.2} doorbells"
        );
    }
}
