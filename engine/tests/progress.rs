//! Many logical nodes on few CPUs make progress: idle loops give way to those that have work.
//!
//! The published frameworks spin on every thread and fall to tens of transactions a second here.

mod common;

use common::interrupted;
use engine::cluster::{Length, RunError, RunSpec, run};
use engine::protocol::{AnyProtocol, Occ};
use engine::workload::AnyWorkload;
use phases::plan::Preset;
use primitives::fabric::loopback::Options;
use primitives::mesh::{FabricSpec, Shape};
use primitives::profile::Profile;
use primitives::units::Nanos;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

/// Far above what spinning threads reach, far below what giving way reaches even on a machine busy with other work.
const FLOOR_PER_S: f64 = 1_000.0;

#[test]
fn eight_nodes_of_two_threads_make_progress() {
    for preset in [Preset::OneSided, Preset::TwoSided, Preset::DrtmH] {
        let shape = Shape { nodes: 8, workers: 2 };
        let mut spec = RunSpec::new(FabricSpec::Loopback(Options::default()), shape, preset.plan());
        spec.length = Length::Time { warm_up: Nanos::from_millis(200), measured: Nanos::from_millis(800) };
        spec.replicas = 3;
        spec.cache_bytes = 1 << 20;
        let settings = [("accounts_per_thread", "1000")];
        let workload = AnyWorkload::parse("smallbank", spec.scale(), settings).expect("settings");
        let result =
            run(&spec, &workload, AnyProtocol::Occ(Occ), &AtomicBool::new(false)).expect("loopback runs");
        assert!(result.passed(), "{preset}: {:?}", result.failed_checks().collect::<Vec<_>>());
        let rate = result.committed_per_s();
        eprintln!("{preset}: {rate:.0} committed/s on 16 threads");
        assert!(rate > FLOOR_PER_S, "{preset}: only {rate:.0} committed/s");
    }
}

#[test]
fn a_stop_from_outside_ends_the_run_and_keeps_what_was_measured() {
    let shape = Shape { nodes: 2, workers: 1 };
    let mut spec = RunSpec::new(FabricSpec::Loopback(Options::default()), shape, Preset::DrtmH.plan());
    spec.length = Length::Time { warm_up: Nanos(0), measured: Nanos::from_millis(60_000) };
    let settings = [("accounts_per_thread", "1000")];
    let workload = AnyWorkload::parse("smallbank", spec.scale(), settings).expect("settings");
    let started = Instant::now();
    let result = interrupted(&spec, &workload, AnyProtocol::Occ(Occ));
    assert!(started.elapsed() < Duration::from_secs(30), "stopped after {:?}", started.elapsed());
    assert!(result.interrupted && result.stats.committed > 0, "{} committed", result.stats.committed);
    assert!(result.passed(), "{:?}, {:?}", result.checks, result.faults);
    assert!(
        result.elapsed < Nanos::from_millis(30_000),
        "rates are over the time measured, {}",
        result.elapsed
    );
}

/// Of a point of a grid half is nothing: it is not worth the time that a large cluster takes to come to an end, and to be audited.
#[test]
fn a_run_that_is_of_use_only_as_a_whole_brings_nothing_back_when_it_is_stopped() {
    let profile = Box::new(Profile::shipped("cx4-edr").expect("a shipped profile"));
    let sim = FabricSpec::Sim { profile, seed: 1, faults: Box::default() };
    for fabric in [FabricSpec::Loopback(Options::default()), sim] {
        let mut spec = RunSpec::new(fabric, Shape { nodes: 2, workers: 1 }, Preset::DrtmH.plan());
        spec.length = Length::Time { warm_up: Nanos(0), measured: Nanos::from_millis(60_000) };
        (spec.partial, spec.watched) = (false, Some(Arc::default()));
        let settings = [("accounts_per_thread", "1000")];
        let workload = AnyWorkload::parse("smallbank", spec.scale(), settings).expect("settings");
        let stop = AtomicBool::new(false);
        let reached = || spec.watched.as_ref()?.get()?.reached().filter(|(reached, _)| reached.0 > 0);
        let ended = std::thread::scope(|scope| {
            let run = scope.spawn(|| run(&spec, &workload, AnyProtocol::Occ(Occ), &stop));
            // Whoever watches sees it come on.
            while reached().is_none() && !run.is_finished() {
                std::thread::sleep(Duration::from_millis(5));
            }
            stop.store(true, std::sync::atomic::Ordering::Relaxed);
            run.join().expect("no panic")
        });
        assert!(matches!(ended, Err(RunError::Cancelled)), "{ended:?}");
        let (reached, until) = reached().expect("it had begun");
        assert!(reached < until && until == Nanos::from_millis(60_000), "{reached} of {until}");
    }
}
