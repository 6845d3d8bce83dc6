//! What operations post, counted and held against what `demand` declares, for every operation, primitive and
//! combination of optimizations.

mod common;
use common::*;
use phases::demand::{Carriage, Sizes, Touch, demand};
use phases::ops::PhaseOps;
use phases::plan::{Phase, Plan, Step, Via};
use phases::rule::CheckRule;
use phases::txn::{Intent, Txn};
use primitives::profile::Primitive;
use primitives::rpc::HEADER_BYTES;
use primitives::verbs::port::{Cost, Traffic};
use std::rc::Rc;

const READS: [u64; 4] = [1, 4, 2, 3]; // two on node 1, one on node 2, one local
const WRITES: [u64; 4] = [7, 10, 5, 6];

/// What each phase cost by its own account and by the port's.
type Counted = Vec<(Phase, Cost, Traffic)>;

async fn phase_by_phase(env: Rc<Env>, warm: bool) -> Counted {
    let mut txn = Txn::new();
    if warm {
        env.begin(&mut txn);
        for key in READS.into_iter().chain(WRITES) {
            env.touch(&mut txn, T, key, Intent::Read);
        }
        env.phases.fetch(&mut txn).await.unwrap();
    }
    let rule = env.begin(&mut txn);
    for key in READS {
        env.touch(&mut txn, T, key, Intent::Read);
    }
    let writes: Vec<usize> = WRITES.iter().map(|&k| env.touch(&mut txn, T, k, Intent::Write)).collect();
    let mut counted = Vec::new();
    for phase in
        [Phase::Fetch, Phase::Lock, Phase::Validate, Phase::Unlock, Phase::Lock, Phase::Log, Phase::Install]
    {
        if phase == Phase::Log {
            writes.iter().for_each(|&at| txn.set_word(at, 0, 1));
        }
        let (before, spent) = (env.port.traffic(), txn.costs[phase]);
        let ops = &env.phases;
        match phase {
            Phase::Fetch => ops.fetch(&mut txn).await,
            Phase::Lock => ops.lock_and_read(&mut txn, rule).await,
            Phase::Validate => ops.validate(&mut txn, CheckRule::SameVersion).await,
            Phase::Log => ops.replicate(&mut txn).await,
            Phase::Install => ops.install_and_unlock(&mut txn).await,
            Phase::Unlock => ops.unlock(&mut txn).await,
        }
        .unwrap();
        let after = txn.costs[phase];
        let cost = Cost {
            verbs: after.verbs - spent.verbs,
            doorbells: after.doorbells - spent.doorbells,
            round_trips: after.round_trips - spent.round_trips,
            bytes: after.bytes - spent.bytes,
        };
        counted.push((phase, cost, env.port.traffic().since(&before)));
    }
    env.phases.settle().await.unwrap();
    counted
}

fn check(setup: &Setup, warm: bool) {
    let ran = run(setup, move |env| Box::pin(phase_by_phase(env, warm)));
    let checked = setup.checked();
    for &(phase, cost, traffic) in &ran.outputs[0] {
        let step = checked.step(phase);
        let backups = f64::from(setup.replicas - 1);
        let touch = match phase {
            Phase::Fetch => Touch { remote: 6.0, nodes: 2.0, local: 2.0, ..Touch::default() },
            // Of three nodes with three copies, two back something over the network; the coordinator itself backs three
            // of the four records and writes its own ring by CPU.
            Phase::Log if backups > 0.0 => {
                Touch { remote: 4.0, nodes: 2.0, local: 3.0, backups, ..Touch::default() }
            }
            Phase::Log => Touch { remote: 4.0, ..Touch::default() },
            Phase::Validate | Phase::Lock | Phase::Install | Phase::Unlock => {
                Touch { remote: 3.0, nodes: 2.0, local: 1.0, ..Touch::default() }
            }
        };
        let cached = if warm && setup.plan.location_cache { 1.0 } else { 0.0 };
        let touch = Touch { payload: 8, cached, ..touch };
        let how = Carriage::of(&checked, &setup.needs, phase);
        let declared = demand(&how, &touch, &Sizes::default());
        let what = format!("{phase} {step}, cache {cached} on {}", setup.fabric.caps().unwrap().fabric);
        // Truncation requests are declared as a share of one, and none is due here.
        let whole = |x: f64| x.floor();
        assert_eq!(f64::from(cost.verbs), whole(declared.verbs()), "verbs of {what}: {cost:?}");
        assert_eq!(f64::from(cost.doorbells), whole(declared.doorbells()), "doorbells of {what}: {cost:?}");
        assert_eq!(
            f64::from(cost.round_trips),
            whole(declared.round_trips()),
            "round trips of {what}: {cost:?}"
        );
        // The port's own counters: no verb escapes the account. (While the core waited it served nobody.)
        for (primitive, posted) in [
            (Primitive::Read, traffic.reads),
            (Primitive::Write, traffic.writes),
            (Primitive::Atomic, traffic.atomics),
            (Primitive::Send, traffic.sends),
        ] {
            assert_eq!(posted as f64, whole(declared.verbs_of(primitive)), "{primitive:?} of {what}");
        }
        assert_eq!(traffic.doorbells, u64::from(cost.doorbells), "doorbells of {what}");
        // Nor does a byte: of calls those behind their headers, and what replies bring, which others post.
        let requests = traffic.bytes - traffic.sends * u64::from(HEADER_BYTES);
        let replies = u64::from(cost.bytes) - requests;
        let words = if cost.round_trips > 0 { traffic.sends * 8 } else { 0 };
        assert!(replies >= words && (words > 0 || replies == 0), "{} B of {what}: {traffic:?}", cost.bytes);
    }
}

fn variants(via: Via) -> Vec<Plan> {
    let mut all = Vec::new();
    for mask in 0..8u32 {
        let mut plan = Plan::uniform(via);
        for phase in Phase::ALL {
            let step = Step {
                via: plan.step(phase).unwrap().via,
                outstanding: mask & 1 != 0,
                doorbell_batching: mask & 2 != 0,
                passive_ack: mask & 4 != 0 && phase.may_be_passive(),
            };
            plan.set(phase, Some(step));
        }
        all.push(plan);
    }
    all
}

#[test]
fn every_operation_posts_what_it_declares() {
    for fabric in [loopback(), sim(1)] {
        for via in [Via::OneSided, Via::TwoSided, Via::Hybrid] {
            for plan in variants(via) {
                for warm in [true, false] {
                    check(&Setup { fabric: fabric.clone(), ..patient(plan) }, warm);
                }
            }
        }
    }
}

#[test]
fn without_a_cache_every_fetch_looks_up() {
    for plan in variants(Via::OneSided) {
        check(&Setup { ..setup(Plan { location_cache: false, ..plan }) }, true);
    }
}

#[test]
fn logging_goes_once_to_each_backup_node() {
    for fabric in [loopback(), sim(1)] {
        for via in [Via::OneSided, Via::TwoSided] {
            for plan in variants(via) {
                check(&Setup { fabric: fabric.clone(), replicas: 3, ..patient(plan) }, true);
            }
        }
    }
}

#[test]
fn lock_and_commit_are_one_doorbell_and_one_round_trip_to_a_node() {
    for via in [Via::OneSided, Via::TwoSided] {
        let mut plan = Plan::uniform(via);
        plan.install = plan.install.map(|step| Step { passive_ack: false, ..step });
        let ran = run(&patient(plan), |env| {
            Box::pin(async move {
                let mut txn = Txn::new();
                let rule = env.begin(&mut txn);
                let at = env.touch(&mut txn, T, 1, Intent::Write);
                env.phases.fetch(&mut txn).await.unwrap();
                txn.set_word(at, 0, 9);
                env.commit(&mut txn, rule).await.unwrap();
                [txn.costs[Phase::Lock], txn.costs[Phase::Install]]
            })
        });
        // CAS and READ of a word, WRITE of the record's last three words and of the first; or name, key, two words of lock or version
        // and value, and an outcome.
        let (verbs, bytes) = if via == Via::OneSided { (2, [8 + 8, 24 + 8]) } else { (1, [32 + 8, 32 + 8]) };
        let one = |bytes| Cost { verbs, doorbells: 1, round_trips: 1, bytes };
        assert_eq!(ran.outputs, [bytes.map(one)], "{via}");
    }
}
