//! Small, contended runs on the simulator, for planted bugs to show in.

use super::{Case, plans_of, sim};
use engine::cluster::{Length, RunSpec};
use engine::protocol::Protocol;
use engine::protocol::planted::{Bug, Planted};
use phases::plan::{Plan, Via};
use primitives::fabric::sim::FaultOptions;
use primitives::mesh::Shape;
use primitives::units::Nanos;
use rand::SeedableRng;
use rand::seq::IndexedRandom;
use rand_xoshiro::Xoshiro256PlusPlus;

/// Seeds within which each planted bug must be objected to.
pub const SEEDS_PER_BUG: u64 = 10;

/// Whether a bug can show under a plan.
pub fn can_show(bug: Bug, plan: &Plan) -> bool {
    let one_sided = |step: Option<phases::plan::Step>| step.is_some_and(|step| step.via == Via::OneSided);
    match bug {
        Bug::IgnoredLease => one_sided(plan.lock),
        Bug::IgnoredReaders => one_sided(plan.lock) && one_sided(plan.fetch),
        // What readers of versions do in two looks one-sided is one call two-sided, with nothing to leave out.
        _ if Planted(bug).needs().protocol == "mvcc" => one_sided(plan.fetch),
        _ => true,
    }
}

/// A run in which read-only and updating transactions meet on few records, under a plan that the bug can show in.
pub fn contended(seed: u64, bug: Bug) -> Case {
    let needs = Planted(bug).needs();
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    // Workers of a node share its locks under CALVIN, and nothing elsewhere.
    let shape = Shape { nodes: 3, workers: if needs.sequenced { 2 } else { 1 } };
    let mut plans = plans_of(needs);
    plans.retain(|plan| can_show(bug, plan));
    let plan = *plans.choose(&mut rng).expect("there are plans");
    let spec = RunSpec::new(sim(seed, FaultOptions::default()), shape, plan);
    let mut case = if seed.is_multiple_of(2) {
        Case::new("smallbank", &[("accounts_per_thread", "20"), ("hot_accounts_share", "0.1")], spec)
    } else {
        let settings = [("records_per_thread", "4"), ("reads", "2"), ("writes", "1"), ("payload_bytes", "8")];
        Case::new("micro", &settings, spec)
    };
    case.spec.seed = seed;
    case.spec.plan.coroutines = 6;
    case.spec.length = Length::Transactions(60);
    // A bug may leave a lock behind, or values unsent; nobody should wait for them for ever.
    case.spec.retry.attempts = 20;
    if needs.sequenced {
        case.spec.worker.rpc.retransmit_after = Nanos::from_micros(150);
        case.spec.worker.rpc.max_retransmits = 10;
    }
    // Some bugs end in a refused install or a stuck log; the history is what counts here.
    case.spec.audit = false;
    case
}
