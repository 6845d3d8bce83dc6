//! What the operations post under two-phase locking, SUNDIAL and MVCC, counted and held against what `demand` declares, for
//! every plan that can run.

mod common;
use common::*;
use phases::demand::{Carriage, Sizes, Touch, demand};
use phases::ops::PhaseOps;
use phases::plan::{CheckedPlan, Needs, Phase, Plan, Space, Step, Via};
use phases::rule::{CheckRule, LockRule, OnConflict, Packing, ReadLocks};
use phases::txn::{Intent, Txn};
use primitives::profile::Primitive;
use primitives::verbs::port::{Cost, Traffic};
use std::rc::Rc;

const READS: [u64; 4] = [1, 4, 2, 3]; // two on node 1, one on node 2, one local
const WRITES: [u64; 4] = [7, 10, 5, 6];

const PROTOCOLS: [Needs; 7] = [
    Needs::NOWAIT,
    Needs::WAITDIE,
    Needs::BOUNDED_WAIT,
    Needs::NOWAIT_EXCLUSIVE,
    Needs::WAITDIE_EXCLUSIVE,
    Needs::SUNDIAL,
    Needs::MVCC,
];

type Counted = Vec<(Phase, Cost, Traffic)>;

/// A transaction up to its locks and checks, then undone; then the same up to its commit.
async fn phase_by_phase(env: Rc<Env>, needs: Needs, warm: bool) -> Counted {
    let ops = &env.phases;
    let mut txn = Txn::new();
    let mut counted = Vec::new();
    // Whoever has seen all records once knows where they are.
    for (round, commits) in [(0, false), (1, false), (2, true)] {
        let stamp = env.begin(&mut txn).stamp;
        txn.time = ops.timestamp().unwrap();
        let reads = match (needs.packing, needs.shared_locks) {
            (Packing::Locked, true) => ReadLocks::Shared,
            (Packing::Locked, false) => ReadLocks::Exclusive,
            _ => ReadLocks::None,
        };
        let time = txn.time;
        let rule = LockRule { stamp, time, packing: needs.packing, on_conflict: needs.on_conflict, reads };
        assert!(rule.on_conflict == OnConflict::Fail || needs.packing == Packing::Locked);
        for key in READS {
            env.touch(&mut txn, T, key, Intent::Read);
        }
        let writes: Vec<usize> = WRITES.iter().map(|&k| env.touch(&mut txn, T, k, Intent::Write)).collect();
        let lock_first = ops.plan().step(Phase::Lock).via == Via::TwoSided;
        let mut order = vec![Phase::Fetch, Phase::Lock];
        if lock_first {
            order.reverse();
        }
        order.push(Phase::Validate);
        order.extend(if commits { &[Phase::Log, Phase::Install][..] } else { &[Phase::Unlock] });
        for phase in order.into_iter().filter(|&phase| needs.runs(phase)) {
            if phase == Phase::Log {
                writes.iter().for_each(|&at| txn.set_word(at, 0, 1));
                let leases = txn.accesses().iter().map(|a| a.header.lease_end()).max().unwrap();
                txn.install_at = match needs.packing {
                    Packing::Counted | Packing::Locked => 0,
                    Packing::Leased => leases + 1_000,
                    Packing::Versions => txn.time.0,
                };
            }
            let (before, spent) = (env.port.traffic(), txn.costs[phase]);
            match phase {
                Phase::Fetch => ops.fetch(&mut txn).await,
                Phase::Lock => ops.lock_and_read(&mut txn, rule).await,
                Phase::Validate => {
                    let beyond = txn.accesses().iter().map(|a| a.header.lease_end()).max().unwrap() + 5;
                    let versions = needs.packing == Packing::Versions;
                    let check = if versions { CheckRule::ReadAt } else { CheckRule::LeaseCovers(beyond) };
                    ops.validate(&mut txn, check).await
                }
                Phase::Log => ops.replicate(&mut txn).await,
                Phase::Install => ops.install_and_unlock(&mut txn).await,
                Phase::Unlock => ops.unlock(&mut txn).await,
            }
            .unwrap_or_else(|stop| panic!("{} {phase}: {stop}", needs.protocol));
            let after = txn.costs[phase];
            let cost = Cost {
                verbs: after.verbs - spent.verbs,
                doorbells: after.doorbells - spent.doorbells,
                round_trips: after.round_trips - spent.round_trips,
                bytes: after.bytes - spent.bytes,
            };
            if warm == (round > 0) {
                counted.push((phase, cost, env.port.traffic().since(&before)));
            }
        }
        // What nobody waited for is done before the next transaction wants the same records.
        ops.settle().await.unwrap();
    }
    counted
}

/// The records that a phase serves.
fn touch(needs: &Needs, checked: &CheckedPlan, phase: Phase, warm: bool) -> Touch {
    let of = |kinds: f64| Touch { remote: 3.0 * kinds, nodes: 2.0, local: kinds, ..Touch::default() };
    let none = Touch::default();
    let cached = if warm && checked.get().location_cache { 1.0 } else { 0.0 };
    let via = |phase| checked.step(phase).via;
    let touch = match (phase, needs.packing) {
        (Phase::Fetch, _) => of(if via(Phase::Lock) == Via::OneSided { 2.0 } else { 1.0 }),
        (Phase::Lock, Packing::Locked) => of(2.0),
        (Phase::Validate, Packing::Versions) => {
            let by_read = match via(Phase::Fetch) {
                Via::OneSided => 1.0,
                Via::Hybrid => cached,
                Via::TwoSided => 0.0,
            };
            let own = if checked.nic_owns_leases() { 1.0 } else { 0.0 };
            Touch { remote: 3.0 * by_read, nodes: 2.0 * by_read, local: own, ..none }
        }
        (Phase::Log, _) => Touch { remote: 4.0, ..none },
        (Phase::Install | Phase::Unlock, Packing::Locked) => {
            Touch { read_held: 3.0, read_held_local: 1.0, ..of(1.0) }
        }
        _ => of(1.0),
    };
    Touch { payload: 8, cached, ..touch }
}

fn check(setup: &Setup, warm: bool) {
    let needs = setup.needs;
    let ran = run(setup, move |env| Box::pin(phase_by_phase(env, needs, warm)));
    let checked = setup.checked();
    assert!(!ran.outputs[0].is_empty());
    for &(phase, cost, traffic) in &ran.outputs[0] {
        let how = Carriage::of(&checked, &needs, phase);
        let declared = demand(&how, &touch(&needs, &checked, phase, warm), &Sizes::default());
        let fabric = setup.fabric.caps().unwrap().fabric;
        let what = format!("{} {phase} on {fabric}, warm {warm}, plan {}", needs.protocol, setup.plan);
        assert_eq!(f64::from(cost.verbs), declared.verbs(), "verbs of {what}: {cost:?}");
        assert_eq!(f64::from(cost.doorbells), declared.doorbells(), "doorbells of {what}: {cost:?}");
        assert_eq!(f64::from(cost.round_trips), declared.round_trips(), "round trips of {what}: {cost:?}");
        for (primitive, posted) in [
            (Primitive::Read, traffic.reads),
            (Primitive::Write, traffic.writes),
            (Primitive::Atomic, traffic.atomics),
            (Primitive::Send, traffic.sends),
        ] {
            assert_eq!(posted as f64, declared.verbs_of(primitive), "{primitive:?} of {what}");
        }
        assert_eq!(traffic.doorbells, u64::from(cost.doorbells), "doorbells of {what}");
    }
}

#[test]
fn every_plan_of_every_protocol_posts_what_it_declares() {
    for fabric in [loopback(), sim(1)] {
        for needs in PROTOCOLS {
            let space = Space::primitives(&fabric.caps().unwrap(), &needs);
            let plans: Vec<Plan> = space.plans().collect();
            assert!(plans.len() >= 4, "{} plans of {}", plans.len(), needs.protocol);
            for plan in plans {
                check(&Setup { fabric: fabric.clone(), needs, ..patient(plan) }, true);
            }
        }
    }
}

/// Locations that nobody knows yet, and each combination of optimizations.
#[test]
fn optimizations_and_cold_caches_cost_what_is_declared() {
    for fabric in [loopback(), sim(1)] {
        for needs in PROTOCOLS {
            for via in [Via::OneSided, Via::TwoSided, Via::Hybrid] {
                for mask in 0..8u32 {
                    let mut plan = Plan::uniform(via).restricted_to(&needs);
                    for (phase, step) in plan.steps().collect::<Vec<_>>() {
                        let step = Step {
                            via: step.via,
                            outstanding: mask & 1 != 0,
                            doorbell_batching: mask & 2 != 0,
                            passive_ack: mask & 4 != 0 && phase.may_be_passive(),
                        };
                        plan.set(phase, Some(step));
                    }
                    let setup = Setup { fabric: fabric.clone(), needs, ..patient(plan) };
                    if plan.check(&fabric.caps().unwrap(), &needs).is_ok() {
                        [true, false].iter().for_each(|&warm| check(&setup, warm));
                    }
                }
            }
        }
    }
}
