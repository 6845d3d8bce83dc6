//! The cost model against the simulator: for every protocol and both pure plans, the rate that is foretold beside the rate that
//! comes. The model sees the profile, the workload's own averages and the plan, never the run.

mod common;

use common::{OTHERS, sim};
use engine::cluster::{Length, RunSpec, needs, run};
use engine::protocol::{AnyProtocol, Protocol};
use engine::workload::AnyWorkload;
use phases::model::{Cluster, Forecast, Model, models};
use phases::plan::{Plan, Via};
use primitives::fabric::sim::FaultOptions;
use primitives::mesh::Shape;
use primitives::profile::Profile;
use primitives::units::Nanos;
use std::sync::atomic::AtomicBool;

/// What is foretold, and the rate and the aborted share that come.
struct Compared {
    what: String,
    said: Forecast,
    per_s: f64,
    aborted: f64,
}

impl Compared {
    /// By how much the rate that came is off the one foretold.
    fn error(&self) -> f64 {
        self.per_s / self.said.committed_per_s - 1.0
    }

    fn said_aborted(&self) -> f64 {
        self.said.aborted_per_s / (self.said.aborted_per_s + self.said.committed_per_s)
    }
}

fn compare(protocol: AnyProtocol, via: Via, workload: &str, settings: &[(&str, &str)]) -> Compared {
    let plan = Plan { coroutines: 6, ..Plan::uniform(via).restricted_to(protocol.needs()) };
    let mut spec = RunSpec::new(sim(1, FaultOptions::default()), Shape { nodes: 4, workers: 2 }, plan);
    spec.length = Length::Time { warm_up: Nanos::from_micros(100), measured: Nanos::from_micros(500) };
    spec.cache_bytes = 1 << 20;
    let load = AnyWorkload::parse(workload, spec.scale(), settings.iter().copied()).expect("valid settings");
    let asked = needs(&spec, &load, &protocol);
    let checked = plan.check(&spec.fabric.caps().expect("a fabric"), &asked).expect("a plan that runs");
    let profile = Profile::shipped("cx4-edr").expect("a shipped profile");
    let cluster = Cluster { nodes: 4, threads: 2, backups: 0, lanes: spec.worker.lanes };
    let demand = load.demand(spec.scale(), spec.cache_bytes, &spec.retry);
    let said = Model::new(&profile, cluster, &demand, &asked).expect("valid inputs").forecast(&checked);
    let result = run(&spec, &load, protocol, &AtomicBool::new(false)).expect("it runs");
    assert!(result.passed());
    let what = format!("{workload} {} {via}", asked.protocol);
    Compared { what, said, per_s: result.committed_per_s(), aborted: result.aborted_share().unwrap_or(0.0) }
}

fn protocols() -> impl Iterator<Item = AnyProtocol> {
    let all = ["occ"].iter().chain(OTHERS).map(|name| AnyProtocol::named(name).expect("a protocol"));
    all.filter(|protocol| models(protocol.needs()))
}

/// Every protocol under both pure plans.
fn all(workload: &str, settings: &[(&str, &str)]) -> Vec<Compared> {
    let mut all = Vec::new();
    for protocol in protocols() {
        for via in [Via::OneSided, Via::TwoSided] {
            let one = compare(protocol, via, workload, settings);
            println!(
                "{:<40} said {:>9.0}/s got {:>9.0}/s {:>+6.1} %, aborted: said {:>5.1} % got {:>5.1} %",
                one.what,
                one.said.committed_per_s,
                one.per_s,
                100.0 * one.error(),
                100.0 * one.said_aborted(),
                100.0 * one.aborted,
            );
            all.push(one);
        }
    }
    all
}

fn holds(all: &[Compared], median: f64, worst: f64) {
    let mut errors: Vec<f64> = all.iter().map(|c| c.error().abs()).collect();
    errors.sort_by(f64::total_cmp);
    let (got_median, got_worst) = (errors[errors.len() / 2], errors[errors.len() - 1]);
    assert!(got_median <= median && got_worst <= worst, "median {got_median}, worst {got_worst}");
}

// The bounds say where the model stands, the aim being a median of 10 %. Without conflicts it is there. Under contention it promises
// too much where retries go to the same hot records, most of it (32 %) for two-sided WAITDIE with exclusive reads.

#[test]
fn without_conflicts_rates_are_near_what_is_foretold() {
    holds(&all("ycsb", &[("records_per_thread", "20000"), ("think_us", "1")]), 0.05, 0.06);
    holds(&all("smallbank", &[("accounts_per_thread", "20000"), ("hot_accounts_share", "1")]), 0.05, 0.11);
}

#[test]
fn under_contention_rates_and_aborts_are_near_what_is_foretold() {
    let hot = [("records_per_thread", "4000"), ("hot_accesses_share", "0.3"), ("hot_records_share", "0.01")];
    let all = all("ycsb", &hot);
    holds(&all, 0.15, 0.33);
    for one in &all {
        let apart = (one.aborted - one.said_aborted()).abs();
        assert!(apart < 0.22, "{}: aborted {} and not {}", one.what, one.aborted, one.said_aborted());
    }
}
