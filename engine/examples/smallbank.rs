//! SmallBank on two logical nodes of this machine, under the DrTM+H plan:
//! `cargo run --release -p doorbell-engine --example smallbank`.
//!
//! The history of the whole run is recorded and checked; with `--release` that is a few hundred thousand transactions.

use engine::cluster::{Length, RunSpec, run};
use engine::protocol::{AnyProtocol, Occ};
use engine::verify::{Level, check};
use engine::workload::AnyWorkload;
use phases::plan::{Phase, Preset};
use primitives::fabric::loopback::Options;
use primitives::mesh::{FabricSpec, Shape};
use primitives::units::Nanos;
use std::sync::atomic::AtomicBool;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let shape = Shape { nodes: 2, workers: 1 };
    let mut spec = RunSpec::new(FabricSpec::Loopback(Options::default()), shape, Preset::DrtmH.plan());
    spec.replicas = 2;
    spec.length = Length::measured(Nanos::from_millis(400));
    spec.history = true;
    let workload = AnyWorkload::parse("smallbank", spec.scale(), [("accounts_per_thread", "10000")])?;
    let result = run(&spec, &workload, AnyProtocol::Occ(Occ), &AtomicBool::new(false))?;

    let stats = &result.stats;
    println!("{} committed in {} ({:.0}/s)", stats.committed, result.elapsed, result.committed_per_s());
    for (reason, count) in stats.aborts.iter() {
        println!("{count} aborted: {reason}");
    }
    for (reason, count) in stats.rolled_back.iter() {
        println!("{count} rolled back by the application: {reason}");
    }
    for phase in Phase::ALL {
        let [verbs, round_trips, doorbells] = result.phase_per_committed(phase);
        let p50 = stats.phase(phase).latency.p50().unwrap_or_default();
        println!(
            "{phase:>8}: {p50} median; {verbs:.2} verbs, {round_trips:.2} round trips, {doorbells:.2} doorbells each"
        );
    }
    for check in &result.checks {
        println!("{} {}: {}", if check.passed { "ok  " } else { "FAIL" }, check.name, check.detail);
    }
    if let Some(history) = &result.history {
        print!("{}", check(history, Level::StrictSerializable));
    }
    Ok(())
}
