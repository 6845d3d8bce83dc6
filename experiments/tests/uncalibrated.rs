//! From a device's characterization on: who foretells or simulates by a profile that was not calibrated yet is warned, and the
//! simulation of a slow device takes its time without being told to.

mod common;

use common::{code, run, stderr};
use primitives::bench::{self, BenchVerb, Rated, Scope};
use primitives::fabric::Nic;
use primitives::fabric::loopback::{Loopback, Options};
use primitives::measure::Machine;
use primitives::profile::Profile;
use primitives::units::Nanos;
use primitives::verbs::NodeId;
use std::path::{Path, PathBuf};

/// The profile that a characterization of a made-up device leaves, as slow as Soft-RoCE in a virtual machine.
fn left(dir: &Path) -> PathBuf {
    let scope = Scope {
        nodes: 2,
        threads: 1,
        coroutines: 8,
        quick: true,
        warm_up: Nanos(0),
        window: Nanos::from_millis(60),
        precision: None,
        most: None,
    };
    let alone = |verb| match verb {
        BenchVerb::Read => 140_000.0,
        BenchVerb::Cas | BenchVerb::FetchAdd => 85_000.0,
        BenchVerb::Rpc | BenchVerb::RpcWrite => 290_000.0,
        _ => 65_000.0,
    };
    let rated = |point: bench::Point| {
        let doorbells = if point.doorbell_batch > 1 && point.outstanding > 1 { 1.0 / 16.0 } else { 1.0 };
        let ns = alone(point.verb) - 15_000.0 * (1.0 - doorbells);
        Rated { rate_per_s: f64::from(scope.nodes) * 1e9 / ns, median_ns: Some(ns), point }
    };
    let rated: Vec<Rated> = bench::points(&scope, 4096).into_iter().map(rated).collect();
    let mut caps = Loopback::new(1, Options::default()).context(NodeId(0)).caps().clone();
    caps.fabric = "verbs:rxe0".into();
    let machine = Machine { cores: 2, ..Machine::here() };
    let profile = bench::fit(&rated, &caps, scope.nodes, &machine).expect("all points are there");
    let path = dir.join("verbs-rxe0.profile.yaml");
    std::fs::write(&path, profile.to_yaml().expect("YAML")).expect("written");
    path
}

/// Runs a command in which `FILE` is the profile and `OUT` a new directory; what it said.
fn told(dir: &Path, file: &Path, command: &str) -> String {
    let out = dir.join("out");
    let _ = std::fs::remove_dir_all(&out);
    let (file, out) = (file.to_str().expect("UTF-8"), out.to_str().expect("UTF-8"));
    let args: Vec<String> =
        command.split(' ').map(|word| word.replace("FILE", file).replace("OUT", out)).collect();
    let output = run(&args.iter().map(String::as_str).collect::<Vec<_>>());
    assert_eq!(code(&output), 0, "{command}: {}", stderr(&output));
    stderr(&output)
}

#[test]
fn who_uses_an_uncalibrated_profile_is_warned() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = left(dir.path());
    let small = "--workload ycsb --set records_per_thread=1000 --nodes 2 --threads 1 --replicas 1";
    let commands = [
        (format!("tune --fabric sim:FILE {small} --out OUT"), "forecasts are by a profile (verbs:rxe0)"),
        (
            format!("tune --fabric loopback --profile FILE {small} --out OUT"),
            "forecasts are by a profile (verbs:rxe0)",
        ),
        (
            format!("run --fabric sim:FILE {small} --duration 30ms --out OUT"),
            "results are simulated by a profile (verbs:rxe0)",
        ),
        (
            format!("run --fabric sim:FILE --plan tuned {small} --duration 30ms"),
            "forecasts are by a profile (verbs:rxe0)",
        ),
        (
            "characterize --fabric sim:FILE --quick --bench latency --nodes 2 --out OUT".to_owned(),
            "results are simulated by a profile",
        ),
    ];
    for (command, by) in &commands {
        let talk = told(dir.path(), &file, command);
        for part in
            [by, "not calibrated yet", "waiting for the device included", "`doorbell calibrate --from`"]
        {
            assert!(talk.contains(part), "{command} does not say {part:?}:\n{talk}");
        }
        assert_eq!(talk.matches("not calibrated yet").count(), 1, "{command}: {talk}");
    }
    // Who has calibrated it hears nothing.
    let mut profile = Profile::load(&file).expect("a profile");
    profile.clear_doubt(bench::UNCALIBRATED);
    std::fs::write(&file, profile.to_yaml().expect("YAML")).expect("written");
    for (command, _) in &commands {
        assert!(!told(dir.path(), &file, command).contains("calibrate"), "{command}");
    }
}

/// Times that suit the cards of papers end before the first of its requests does.
#[test]
fn a_slow_device_is_simulated_without_being_told_for_how_long() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = left(dir.path());
    let command = "characterize --fabric sim:FILE --quick --nodes 2 --threads 1 --coroutines 8 --out OUT";
    told(dir.path(), &file, command);
    let rows = std::fs::read_to_string(dir.path().join("out/points.csv")).expect("points");
    let mut rows = rows.lines().map(|row| row.split(',').collect::<Vec<_>>());
    let head = rows.next().expect("a head");
    let column = |name: &str| head.iter().position(|c| *c == name).expect("a column");
    let (ops, converged) = (column("ops"), column("converged"));
    let rows: Vec<_> = rows.collect();
    assert!(rows.len() > 40, "{}", rows.len());
    for row in &rows {
        assert!(row[ops].parse::<u64>().is_ok_and(|ops| ops > 0), "{row:?}");
    }
    let short = rows.iter().filter(|row| row[converged] == "too short").count();
    assert!(short * 10 < rows.len(), "{short} of {} are too short", rows.len());
}
