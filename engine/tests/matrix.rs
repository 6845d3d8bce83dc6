//! Protocol × plan × fabric, small. Every history goes through the strict-serializability checker, and every run's
//! invariants are held: money conserved, updates counted, payloads whole, backups equal to their primaries.

mod common;

use common::{Case, fabrics, judge, plan_space};
use engine::cluster::{Length, RunSpec};
use phases::plan::{Needs, Plan, Preset};
use primitives::fabric::tcp;
use primitives::mesh::{FabricSpec, Shape};

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

fn on_every_fabric(mut case: Case) {
    for (name, fabric) in fabrics(7) {
        case.spec.fabric = fabric;
        if let Err(refused) = case.spec.plan.check(&case.spec.fabric.caps().expect("a fabric"), &Needs::OCC) {
            // A device's atomics may not reach the CPU; then a plan that mixes both on lock words is not for it.
            println!("not on {name}: {refused}");
            continue;
        }
        let result = judge(&case, name);
        assert_eq!(
            result.stats.committed + result.stats.rolled_back.of("insufficient-funds"),
            3 * 4 * transactions(),
            "{name}, {}: every transaction ends",
            case.spec.plan
        );
    }
}

#[test]
fn presets_run_smallbank_replicated() {
    for &preset in Preset::ALL {
        on_every_fabric(case(preset.plan(), "smallbank", SMALLBANK, 3));
    }
}

#[test]
fn presets_run_contended_updates() {
    for &preset in Preset::ALL {
        on_every_fabric(case(preset.plan(), "micro", MICRO, 2));
    }
}

#[test]
fn presets_run_blind_writes_fetched_together() {
    let settings = [MICRO, &[("blind", "true"), ("together", "true")]].concat();
    for &preset in Preset::ALL {
        on_every_fabric(case(preset.plan(), "micro", &settings, 1));
    }
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

/// A sample over the whole space of plans, a different one for each seed: every 97th plan from the seed's place on.
#[test]
fn a_sample_of_the_plan_space_runs() {
    let plans = plan_space();
    assert!(plans.len() > 100, "{} plans", plans.len());
    for (n, plan) in plans.iter().step_by(97).enumerate() {
        let (workload, settings) = if n % 2 == 0 { ("smallbank", SMALLBANK) } else { ("micro", MICRO) };
        on_every_fabric(case(*plan, workload, settings, 1 + n as u16 % 3));
    }
}
