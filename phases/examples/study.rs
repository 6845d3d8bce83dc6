//! Drives each phase alone in each variant and prints what it costs: `cargo run --release -p doorbell-phases --example
//! study -- loopback` (or `sim`, the default, which simulates the cx4-edr cluster).

use phases::study::{Spec, Subject, run};
use primitives::fabric::loopback::Options;
use primitives::mesh::{FabricSpec, Shape, WorkerConfig};
use primitives::profile::Profile;
use primitives::units::Nanos;
use std::error::Error;
use std::sync::atomic::AtomicBool;

fn main() -> Result<(), Box<dyn Error>> {
    let never = AtomicBool::new(false);
    let loopback = std::env::args().nth(1).is_some_and(|fabric| fabric == "loopback");
    let fabric = if loopback {
        FabricSpec::Loopback(Options::default())
    } else {
        let profile = Box::new(Profile::shipped("cx4-edr")?);
        FabricSpec::Sim { profile, seed: 1, faults: Box::default() }
    };
    println!(
        "{:<12}{:<18}{:>12}{:>10}{:>10}{:>8}{:>8}{:>10}",
        "phase", "variant", "ops/s", "p50 ns", "p99 ns", "verbs", "trips", "doorbells"
    );
    for subject in Subject::ALL {
        for variant in subject.variants() {
            let mut spec = Spec::new(subject, variant);
            if loopback {
                spec.duration = Nanos::from_millis(300);
            }
            // Two nodes suffice unless there are three copies of each record.
            let shape = Shape { nodes: spec.replicas.max(2), workers: 1 };
            let counts = run(&fabric, shape, &WorkerConfig::default(), &spec, &never)?;
            let ns = |latency: Option<Nanos>| latency.map_or("-".into(), |l| l.0.to_string());
            let [verbs, trips, doorbells] = counts.per_op().unwrap_or_default();
            println!(
                "{:<12}{:<18}{:>12.0}{:>10}{:>10}{verbs:>8.2}{trips:>8.2}{doorbells:>10.2}",
                subject.name(),
                variant.name,
                counts.rate_per_s(),
                ns(counts.latency.p50()),
                ns(counts.latency.p99()),
            );
        }
    }
    Ok(())
}
