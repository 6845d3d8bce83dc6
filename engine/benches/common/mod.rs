//! What the transaction benchmarks share: a cluster on loopback, one worker thread per node, and what is printed of a run.

use engine::cluster::{Length, RunResult, RunSpec};
use phases::plan::{Phase, Preset};
use primitives::fabric::loopback::Options;
use primitives::mesh::{FabricSpec, Shape};
use primitives::units::Nanos;

/// What the command line says, in order, without cargo's own flags.
pub fn arguments() -> Vec<String> {
    std::env::args().skip(1).filter(|a| !a.starts_with("--")).collect()
}

/// A number from the environment.
pub fn variable(name: &str) -> Option<u64> {
    std::env::var(name)
        .ok()
        .map(|text| text.parse().unwrap_or_else(|_| panic!("{name}={text} is not a number")))
}

/// The run that `[NODES SECONDS [PLAN]]`, `COROUTINES` and `TRANSACTIONS` ask for: 2 nodes, 2 s, DrTM+H plan.
pub fn spec(args: &[String]) -> (RunSpec, Preset) {
    let number = |i: usize, default: f64| args.get(i).and_then(|a| a.parse().ok()).unwrap_or(default);
    let (nodes, seconds) = (number(0, 2.0) as u16, number(1, 2.0));
    let preset = args.get(2).and_then(|name| Preset::named(name)).unwrap_or(Preset::DrtmH);
    let shape = Shape { nodes, workers: 1 };
    let mut spec = RunSpec::new(FabricSpec::Loopback(Options::default()), shape, preset.plan());
    if let Some(coroutines) = variable("COROUTINES") {
        spec.plan.coroutines = coroutines as u32;
    }
    spec.length = match variable("TRANSACTIONS") {
        Some(n) => Length::Transactions(n),
        None => Length::Time { warm_up: Nanos::from_millis(200), measured: Nanos((seconds * 1e9) as u64) },
    };
    (spec, preset)
}

/// Prints the rate, latencies, aborts and where the verbs went.
pub fn report(spec: &RunSpec, preset: Preset, result: &RunResult) {
    assert!(result.passed(), "{:?}", result.failed_checks().collect::<Vec<_>>());
    let nodes = spec.shape.nodes;
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
        "per committed: {:.2} verbs, {:.2} round trips, {:.2} doorbells; {:.4} aborts, {} rolled back",
        result.verbs_per_committed(),
        result.round_trips_per_committed(),
        result.doorbells_per_committed(),
        result.aborted_per_s() / result.committed_per_s(),
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
