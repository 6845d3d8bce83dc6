//! What the matrix and the swarm share: a case to run, the fabrics, and the judgement of a run.
#![allow(dead_code)] // each test crate uses its part

pub mod around;
pub mod contended;
pub mod expected;
pub mod shrink;

use engine::cluster::{RunError, RunResult, RunSpec, run, run_as};
use engine::protocol::planted::{Bug, Planted};
use engine::protocol::{AnyProtocol, Occ, Protocol};
use engine::verify::{Verdict, check};
use engine::workload::AnyWorkload;
use phases::plan::{Needs, Plan, Space};
use primitives::fabric::loopback::{Mode, Options};
use primitives::fabric::sim::FaultOptions;
use primitives::fabric::{AtomicScope, Caps};
use primitives::mesh::FabricSpec;
use primitives::profile::Profile;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// One run to judge.
#[derive(Clone, Debug)]
pub struct Case {
    pub workload: &'static str,
    pub settings: Vec<(String, String)>,
    pub spec: RunSpec,
    pub protocol: AnyProtocol,
}

impl Case {
    /// A case that records its history.
    pub fn new(workload: &'static str, settings: &[(&str, &str)], mut spec: RunSpec) -> Case {
        spec.history = true;
        spec.cache_bytes = 4096;
        spec.log_ring_bytes = 4096;
        let settings = settings.iter().map(|&(k, v)| (k.to_owned(), v.to_owned())).collect();
        Case { workload, settings, spec, protocol: AnyProtocol::Occ(Occ) }
    }

    pub fn workload(&self) -> AnyWorkload {
        self.parsed().expect("settings of a test")
    }

    /// The workload, unless its settings make no sense on that many nodes.
    pub fn parsed(&self) -> Result<AnyWorkload, String> {
        let settings = self.settings.iter().map(|(k, v)| (k.as_str(), v.as_str()));
        AnyWorkload::parse(self.workload, self.spec.scale(), settings).map_err(|e| e.to_string())
    }

    pub fn run(&self) -> RunResult {
        let stop = AtomicBool::new(false);
        run(&self.spec, &self.workload(), self.protocol, &stop).expect("the case can run")
    }

    /// The case under a planted bug.
    pub fn run_bug(&self, bug: Bug) -> RunResult {
        let (stop, mut spec) = (AtomicBool::new(false), self.spec.clone());
        spec.sabotage = bug.sabotage();
        let result = engine::with_workload!(&self.workload(), w => run_as(&spec, w, Planted(bug), &stop));
        result.expect("the case can run")
    }

    /// The same: its verdict, and whether the workload's invariants held.
    pub fn run_planted(&self, bug: Bug) -> (Verdict, bool) {
        let result = self.run_bug(bug);
        let history = result.history.as_ref().expect("it was asked for");
        (check(history, Planted(bug).level()), result.passed())
    }
}

/// Every plan of a protocol that runs on all fabrics here.
pub fn plans_of(needs: &Needs) -> Vec<Plan> {
    plans_where(AtomicScope::Nic, needs)
}

/// Every plan of a protocol that runs where atomics reach so far.
pub fn plans_where(atomic_scope: AtomicScope, needs: &Needs) -> Vec<Plan> {
    let caps = Caps {
        fabric: "any".into(),
        one_sided: true,
        atomic_scope,
        failed_cas_stores: false,
        max_send_depth: 64,
        max_recv_depth: 64,
        max_inline: 64,
        max_rd_atomic: 16,
        ud_mtu: 4096,
        card: true,
        virtual_time: true,
    };
    Space::all(&caps, needs, true).plans().collect()
}

/// Protocols beside OCC, which has tests of its own.
pub const OTHERS: &[&str] = &[
    "nowait",
    "waitdie",
    "nowait-exclusive",
    "waitdie-exclusive",
    "bounded-wait",
    "fasst",
    "sundial",
    "mvcc",
    "calvin",
];

/// The simulated fabric of the shipped EDR card.
pub fn sim(seed: u64, faults: FaultOptions) -> FabricSpec {
    let profile = Profile::shipped("cx4-edr").expect("a shipped profile");
    FabricSpec::Sim { profile: Box::new(profile), seed, faults: Box::new(faults) }
}

/// A simulated fabric of a profile, without faults.
pub fn sim_of(profile: Profile, seed: u64) -> FabricSpec {
    FabricSpec::Sim { profile: Box::new(profile), seed, faults: Box::default() }
}

/// The fabrics there are, by name: with feature `verbs`, the device that `DOORBELL_VERBS_DEVICE` names and no other, if
/// it names one.
pub fn fabrics(seed: u64) -> Vec<(&'static str, FabricSpec)> {
    if let Ok(device) = std::env::var("DOORBELL_VERBS_DEVICE") {
        return vec![("verbs", real(&device))];
    }
    let options = Options { seed, ..Options::default() };
    vec![
        ("loopback", FabricSpec::Loopback(options)),
        ("loopback-nic-thread", FabricSpec::Loopback(Options { mode: Mode::NicThread { seed }, ..options })),
        ("sim", sim(seed, FaultOptions::default())),
    ]
}

#[cfg(feature = "verbs")]
fn real(device: &str) -> FabricSpec {
    let options = primitives::fabric::verbs::Options::parse(device).expect("a device");
    FabricSpec::Verbs(Box::new(options))
}

#[cfg(not(feature = "verbs"))]
fn real(device: &str) -> FabricSpec {
    panic!("DOORBELL_VERBS_DEVICE is {device}, but these tests were built without feature verbs")
}

/// Attempts of a transaction where time may be real.
pub const PATIENT: u32 = 2_000;

/// Patience for fabrics whose time is real: who holds a lock, or is to answer, may be kept from its core by other programs for
/// longer than others should retry where time is virtual. Pauses grow, so that this is some two minutes, after which it is said that a
/// lock is not let go.
pub fn be_patient(spec: &mut RunSpec) {
    if !matches!(spec.fabric, FabricSpec::Sim { .. }) {
        spec.retry.attempts = spec.retry.attempts.max(PATIENT);
        spec.worker.rpc.max_retransmits = 10_000;
    }
}

/// A run that is asked to end from outside once it has committed something: later and later after its start, until it has.
pub fn interrupted(spec: &RunSpec, workload: &AnyWorkload, protocol: AnyProtocol) -> RunResult {
    for delay in [500, 2_000, 8_000, 32_000].map(Duration::from_millis) {
        let stop = AtomicBool::new(false);
        let result = std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(delay);
                stop.store(true, Ordering::Relaxed);
            });
            run(spec, workload, protocol, &stop)
        });
        match result {
            Err(RunError::Cancelled) => {}
            Ok(result) if result.stats.committed == 0 => {}
            other => return other.expect("it can run"),
        }
    }
    panic!("nothing committed within half a minute");
}

/// What did not hold of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Broken {
    /// It cannot run: no failure, but of whoever asked for it.
    Refused,
    /// The fabric or a peer failed.
    Faults,
    /// The workload's checks.
    Checks,
    /// The history.
    Isolation,
    /// Nothing committed.
    Idle,
    /// The history has another number of transactions than were counted.
    Counts,
    /// A transaction needed more attempts than it may.
    Starved,
    /// The program gave up by itself.
    Panicked,
}

/// What did not hold, and the sentence that tells it.
pub struct Failure {
    pub broken: Broken,
    pub text: String,
}

/// Runs a case and holds everything that must hold.
pub fn judged(case: &Case, name: &str) -> Result<RunResult, Failure> {
    let what = || {
        let protocol = case.protocol.needs().protocol;
        let (seed, plan) = (case.spec.seed, case.spec.plan);
        let card = match &case.spec.fabric {
            FabricSpec::Sim { profile, .. } => format!(" ({})", profile.name),
            _ => String::new(),
        };
        format!("{} under {protocol} on {name}{card}, seed {seed}, plan {plan}", case.workload)
    };
    let failed = |broken, why: String| Err(Failure { broken, text: format!("{}: {why}", what()) });
    let workload = match case.parsed() {
        Ok(workload) => workload,
        Err(why) => return failed(Broken::Refused, why),
    };
    let result = match run(&case.spec, &workload, case.protocol, &AtomicBool::new(false)) {
        Ok(result) => result,
        Err(why) => return failed(Broken::Refused, why.to_string()),
    };
    if !result.faults.is_empty() {
        return failed(Broken::Faults, format!("{:?}", result.faults));
    }
    let wrong: Vec<_> = result.failed_checks().collect();
    if !wrong.is_empty() {
        return failed(Broken::Checks, format!("these do not hold: {wrong:#?}"));
    }
    let history = result.history.as_ref().expect("it was asked for");
    let verdict = check(history, case.protocol.level());
    if !verdict.passed() {
        return failed(Broken::Isolation, format!("\n{verdict}"));
    }
    if result.stats.committed == 0 {
        let aborts: Vec<_> = result.stats.aborts.iter().collect();
        return failed(Broken::Idle, format!("nothing committed: {aborts:?}"));
    }
    let (told, counted) = (verdict.counts.committed, result.stats.committed);
    if told != counted {
        return failed(Broken::Counts, format!("{told} transactions in the history, {counted} committed"));
    }
    Ok(result)
}

/// As [`judged`], and panics with what does not hold.
pub fn judge(case: &Case, name: &str) -> RunResult {
    judged(case, name).unwrap_or_else(|failure| panic!("{}", failure.text))
}
