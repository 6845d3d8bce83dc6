//! Protocol × plan × fabric, small. Every history is checked for what its protocol promises, and every run's
//! invariants are held: money conserved, updates counted, payloads whole, backups equal to their primaries.

mod common;

use common::{Case, PATIENT, be_patient, fabrics, judge, plans_of, sim};
use engine::cluster::{Length, RunSpec};
use engine::protocol::{AnyProtocol, Protocol};
use phases::plan::{Needs, Phase, Plan, Preset, Via};
use primitives::fabric::AtomicScope;
use primitives::fabric::sim::FaultOptions;
use primitives::fabric::tcp;
use primitives::mesh::{FabricSpec, Shape};
use primitives::units::Nanos;

const SMALLBANK: &[(&str, &str)] =
    &[("accounts_per_thread", "50"), ("hot_accounts_share", "0.1"), ("savings_withdrawal_share", "0.5")];
const MICRO: &[(&str, &str)] = &[
    ("records_per_thread", "10"),
    ("reads", "2"),
    ("writes", "2"),
    ("payload_bytes", "72"),
    ("zipf_theta", "0.8"),
];

/// Transactions per coroutine: few where a device is emulated in software, which takes milliseconds for each.
fn transactions() -> u64 {
    if std::env::var_os("DOORBELL_VERBS_DEVICE").is_some() { 8 } else { 60 }
}

fn case(plan: Plan, workload: &'static str, settings: &[(&str, &str)], replicas: u16) -> Case {
    let shape = Shape { nodes: 3, workers: 1 };
    let mut case = Case::new(workload, settings, RunSpec::new(fabrics(7)[0].1.clone(), shape, plan));
    case.spec.plan.coroutines = 4;
    case.spec.length = Length::Transactions(transactions());
    case.spec.replicas = replicas;
    case
}

/// Runs it wherever its plan can; whether that is on every fabric.
fn on_every_fabric(mut case: Case) -> bool {
    let mut everywhere = true;
    for (name, fabric) in fabrics(7) {
        case.spec.fabric = fabric;
        let caps = case.spec.fabric.caps().expect("a fabric");
        if let Err(refused) = case.spec.plan.check(&caps, case.protocol.needs()) {
            // A device's atomics may not reach the CPU; then a plan that mixes both on lock words is not for it.
            assert_ne!(caps.atomic_scope, AtomicScope::Global, "not on {name}: {refused}");
            println!("not on {name}: {refused}");
            everywhere = false;
            continue;
        }
        let mut case = case.clone();
        be_patient(&mut case.spec);
        // Its requests take long, and whoever waits for a lock asks again and again.
        if ["loopback-nic-thread", "verbs"].contains(&name) && !matches!(case.protocol, AnyProtocol::Occ(_)) {
            case.spec.plan.coroutines = 2;
            case.spec.length = Length::Transactions(20);
        }
        let Length::Transactions(each) = case.spec.length else { panic!("so many transactions") };
        let result = judge(&case, name);
        assert_eq!(
            result.stats.committed + result.stats.rolled_back.of("insufficient-funds"),
            3 * u64::from(case.spec.plan.coroutines) * each,
            "{name}, {}: every transaction ends",
            case.spec.plan
        );
    }
    everywhere
}

/// The pure plans run on every fabric, others where they can.
fn presets(workload: &'static str, settings: &[(&str, &str)], replicas: u16) {
    for &preset in Preset::ALL {
        let everywhere = on_every_fabric(case(preset.plan(), workload, settings, replicas));
        assert!(everywhere || !matches!(preset, Preset::OneSided | Preset::TwoSided), "{}", preset.name());
    }
}

#[test]
fn presets_run_smallbank_replicated() {
    presets("smallbank", SMALLBANK, 3);
}

#[test]
fn presets_run_contended_updates() {
    presets("micro", MICRO, 2);
}

#[test]
fn presets_run_blind_writes_fetched_together() {
    let settings = [MICRO, &[("blind", "true"), ("together", "true")]].concat();
    presets("micro", &settings, 1);
}

/// Sockets carry what is two-sided, and refuse the rest with the reason before anything runs.
#[test]
fn presets_run_over_tcp_or_are_refused() {
    let mut ran = Vec::new();
    for &preset in Preset::ALL {
        for (workload, settings, replicas) in [("smallbank", SMALLBANK, 3), ("micro", MICRO, 2)] {
            let mut case = case(preset.plan(), workload, settings, replicas);
            case.spec.fabric = FabricSpec::Tcp(tcp::Options::default());
            let caps = case.spec.fabric.caps().expect("fixed");
            match preset.plan().check(&caps, &Needs::OCC) {
                Ok(_) => {
                    judge(&case, "tcp");
                    ran.push(preset.name());
                }
                Err(refused) => {
                    let text = refused.to_string();
                    assert!(text.contains("tcp") && text.contains("one-sided"), "{}: {text}", preset.name());
                }
            }
        }
    }
    assert!(ran.contains(&"two-sided") && ran.contains(&"fasst-occ"), "{ran:?}");
    assert!(!ran.contains(&"one-sided"), "{ran:?}");
}

/// A sample over the whole space of plans: every 97th.
#[test]
fn a_sample_of_the_plan_space_runs() {
    let plans = plans_of(&Needs::OCC);
    assert!(plans.len() > 100, "{} plans", plans.len());
    // `DOORBELL_PLANS_EVERY=1` has them all, as a device in a virtual machine has (`.ci/softroce/test`).
    let every = std::env::var("DOORBELL_PLANS_EVERY").map_or(97, |every| every.parse().expect("a number"));
    let mut everywhere = 0;
    for (n, plan) in plans.iter().step_by(every).enumerate() {
        let (workload, settings) = if n % 2 == 0 { ("smallbank", SMALLBANK) } else { ("micro", MICRO) };
        everywhere += usize::from(on_every_fabric(case(*plan, workload, settings, 1 + n as u16 % 3)));
    }
    println!("{everywhere} of {} plans ran on every fabric", plans.len().div_ceil(every));
}

/// As [`case`] for another protocol. Contended locks that nobody waits for need patience: real threads hold them for long.
fn case_of(
    protocol: AnyProtocol,
    plan: Plan,
    workload: &'static str,
    settings: &[(&str, &str)],
    replicas: u16,
) -> Case {
    let mut case = Case { protocol, ..case(plan, workload, settings, replicas) };
    case.spec.retry.attempts = PATIENT;
    case.spec.retry.longest = Nanos::from_millis(4);
    case
}

/// The other protocols: the two pure plans and a sample of the hybrids, on every fabric, with and without replication.
fn protocol_on_every_fabric(name: &str) {
    let protocol = AnyProtocol::named(name).expect("a protocol");
    let needs = protocol.needs();
    let mut plans: Vec<Plan> =
        [Via::OneSided, Via::TwoSided].map(|via| Plan::uniform(via).restricted_to(needs)).into();
    let space = plans_of(needs);
    plans.extend(space.iter().step_by((space.len() / 5).max(1) | 1).copied());
    for (n, plan) in plans.into_iter().enumerate() {
        let (workload, settings) = if n % 2 == 0 { ("smallbank", SMALLBANK) } else { ("micro", MICRO) };
        on_every_fabric(case_of(protocol, plan, workload, settings, 1 + n as u16 % 3));
        let (workload, settings) = if n % 2 == 1 { ("smallbank", SMALLBANK) } else { ("micro", MICRO) };
        on_every_fabric(case_of(protocol, plan, workload, settings, 1 + n as u16 % 2));
    }
    let blind = [MICRO, &[("blind", "true"), ("together", "true")]].concat();
    for via in [Via::OneSided, Via::TwoSided] {
        let plan = Plan::uniform(via).restricted_to(needs);
        assert!(on_every_fabric(case_of(protocol, plan, "micro", &blind, 2)), "{name}: {plan}");
    }
}

/// What DrTM+H §6.3 says of FaSST's protocol: one round trip fewer than OCC with the same primitives, where records are written.
#[test]
fn locking_at_execution_saves_a_round_trip() {
    let settings = [("records_per_thread", "1000"), ("reads", "0"), ("writes", "1")];
    let round_trips = |name| {
        let protocol = AnyProtocol::named(name).expect("a protocol");
        let mut case = case_of(protocol, Preset::FasstOcc.plan(), "micro", &settings, 1);
        case.spec.plan.coroutines = 1;
        // In real time two threads may want the same record once in a while.
        case.spec.fabric = sim(7, FaultOptions::default());
        let result = judge(&case, "sim");
        assert_eq!(result.stats.aborts.total(), 0, "{name}: nobody is in the way of another");
        result.round_trips_per_committed()
    };
    let (occ, fasst) = (round_trips("occ"), round_trips("fasst"));
    // Two records of three are on other nodes: fetch, lock and install become lock and install.
    assert!((occ / fasst - 1.5).abs() < 0.01, "{occ} and {fasst} round trips");
}

macro_rules! on_every_fabric {
    ($($test:ident $name:literal,)*) => { $(
        #[test]
        fn $test() {
            protocol_on_every_fabric($name);
        }
    )* };
}

on_every_fabric! {
    fasst_runs "fasst",
    nowait_runs "nowait",
    waitdie_runs "waitdie",
    nowait_with_exclusive_reads_runs "nowait-exclusive",
    waitdie_with_exclusive_reads_runs "waitdie-exclusive",
    bounded_wait_runs "bounded-wait",
    sundial_runs "sundial",
    mvcc_runs "mvcc",
    calvin_runs "calvin",
}

/// Its inputs and values over sockets, two-sided, in several coroutines of several workers.
#[test]
fn calvin_runs_over_tcp() {
    let protocol = AnyProtocol::named("calvin").expect("a protocol");
    let plan = Plan::uniform(Via::TwoSided).restricted_to(protocol.needs());
    for (workload, settings, replicas) in [("smallbank", SMALLBANK, 3), ("micro", MICRO, 1)] {
        let mut case = case_of(protocol, plan, workload, settings, replicas);
        case.spec.fabric = FabricSpec::Tcp(tcp::Options::default());
        case.spec.shape.workers = 2;
        judge(&case, "tcp");
    }
    let mut one_sided = case_of(protocol, plan.with(Phase::Fetch, Via::OneSided), "micro", MICRO, 1);
    one_sided.spec.fabric = FabricSpec::Tcp(tcp::Options::default());
    let caps = one_sided.spec.fabric.caps().expect("fixed");
    let refused = one_sided.spec.plan.check(&caps, protocol.needs()).expect_err("no one-sided verbs");
    let nearest = refused.nearest.expect("a plan that tcp can carry");
    assert_eq!(nearest.fetch.map(|step| step.via), Some(Via::TwoSided));
}
