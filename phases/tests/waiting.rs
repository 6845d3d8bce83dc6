//! Waiting for locks: under wait-die the older transaction waits and the younger one gives up at once, one-sided and two-sided;
//! and what waits at the owner keeps nobody else from being served.

mod common;
use common::*;
use phases::ops::PhaseOps;
use phases::plan::{Needs, Plan, Via};
use phases::rule::{Abort, LockRule, OnConflict, Packing, ReadLocks};
use phases::txn::{Intent, Txn};
use primitives::exec::sleep_until;
use primitives::units::Nanos;
use std::rc::Rc;

const KEY: u64 = 1; // of node 1
const FREED_AT: u64 = 60_000;

async fn at(env: &Env, ns: u64) {
    sleep_until(&env.port, Nanos(ns)).await;
}

fn rule(env: &Env, txn: &mut Txn) -> LockRule {
    let stamp = env.begin(txn).stamp;
    let on_conflict = OnConflict::WaitIfOlder;
    LockRule { stamp, time: txn.time, packing: Packing::Locked, on_conflict, reads: ReadLocks::Shared }
}

/// What a node saw: the value under its lock, when it had the lock, and how its last attempt ended.
type Saw = (u64, u64, Option<Abort>);

async fn script(env: Rc<Env>) -> Saw {
    let mut txn = Txn::new();
    let ops = &env.phases;
    match env.site.node.0 {
        // The older one comes later, and waits.
        0 => {
            txn.time = ops.timestamp().unwrap();
            at(&env, 20_000).await;
            let rule = rule(&env, &mut txn);
            let row = env.touch(&mut txn, T, KEY, Intent::Write);
            ops.lock_and_read(&mut txn, rule).await.unwrap();
            let (value, locked_at) = (txn.word(row, 0), env.port.now().0);
            at(&env, 120_000).await;
            ops.unlock(&mut txn).await.unwrap();
            ops.settle().await.unwrap();
            (value, locked_at, None)
        }
        // The owner: its requests are served while one waits there.
        1 => (0, 0, None),
        // The younger one comes first.
        _ => {
            at(&env, 5_000).await;
            txn.time = ops.timestamp().unwrap();
            let first = rule(&env, &mut txn);
            let row = env.touch(&mut txn, T, KEY, Intent::Write);
            ops.lock_and_read(&mut txn, first).await.unwrap();
            txn.set_word(row, 0, txn.word(row, 0) + 1);
            at(&env, 40_000).await;
            // Another record of the same owner, while somebody waits there for the first.
            env.touch(&mut txn, T, KEY + 3, Intent::Read);
            ops.lock_and_read(&mut txn, first).await.unwrap();
            at(&env, FREED_AT).await;
            ops.install_and_unlock(&mut txn).await.unwrap();
            // The older one has it now: no waiting for the younger.
            at(&env, 90_000).await;
            let again = rule(&env, &mut txn);
            env.touch(&mut txn, T, KEY, Intent::Read);
            let died = abort_of(ops.lock_and_read(&mut txn, again).await);
            let gave_up_at = env.port.now().0;
            ops.unlock(&mut txn).await.unwrap();
            ops.settle().await.unwrap();
            (0, gave_up_at, died)
        }
    }
}

#[test]
fn the_older_waits_the_younger_dies() {
    for via in [Via::OneSided, Via::TwoSided] {
        let needs = Needs::WAITDIE;
        let plan = Plan::uniform(via).restricted_to(&needs);
        let setup = Setup { fabric: sim(3), everywhere: 1, needs, ..setup(plan) };
        let ran = run(&setup, |env| Box::pin(script(env)));
        let [(value, locked_at, _), _, (_, gave_up_at, died)] = ran.outputs[..] else {
            panic!("three nodes")
        };
        assert_eq!(value, 1001, "{via}: the younger one's write");
        assert!((FREED_AT..80_000).contains(&locked_at), "{via}: locked at {locked_at} ns");
        assert_eq!(died, Some(Abort::Died), "{via}");
        assert!(gave_up_at < 105_000, "{via}: gave up at {gave_up_at} ns only");
        let parked: Vec<u64> = ran.stats.iter().map(|s| s.parked).collect();
        assert_eq!(parked, if via == Via::TwoSided { [0, 1, 0] } else { [0; 3] }, "{via}");
        assert!(ran.stats.iter().all(|s| s.malformed == 0));
        for store in &ran.stores {
            contents(store);
        }
    }
}

/// When who waits at node 1 has the lock, and when its neighbour on the same worker is done with two windows of requests to that node.
async fn crowd(env: Rc<Env>) -> u64 {
    let mut txn = Txn::new();
    let ops = &env.phases;
    match (env.site.node.0, env.site.coroutine) {
        // The older one waits for a lock …
        (0, 0) => {
            txn.time = ops.timestamp().unwrap();
            at(&env, 20_000).await;
            let rule = rule(&env, &mut txn);
            env.touch(&mut txn, T, KEY, Intent::Write);
            ops.lock_and_read(&mut txn, rule).await.unwrap();
        }
        // … while its neighbour goes about its business.
        (0, _) => {
            at(&env, 25_000).await;
            for _ in 0..64 {
                txn.time = ops.timestamp().unwrap();
                let rule = rule(&env, &mut txn);
                env.touch(&mut txn, T, KEY + 3, Intent::Write);
                ops.lock_and_read(&mut txn, rule).await.unwrap();
                ops.unlock(&mut txn).await.unwrap();
            }
        }
        (2, 0) => {
            at(&env, 5_000).await;
            txn.time = ops.timestamp().unwrap();
            let rule = rule(&env, &mut txn);
            env.touch(&mut txn, T, KEY, Intent::Write);
            ops.lock_and_read(&mut txn, rule).await.unwrap();
            at(&env, 2_000_000).await;
        }
        _ => return 0,
    }
    let done_at = env.port.now().0;
    ops.unlock(&mut txn).await.unwrap();
    ops.settle().await.unwrap();
    done_at
}

/// A parked request holds a place in its session's window. Half a window later it is told to ask again, so those behind it get through:
/// among them are the requests that free locks.
#[test]
fn who_waits_does_not_keep_others_of_its_session_waiting() {
    for via in [Via::OneSided, Via::TwoSided] {
        let needs = Needs::WAITDIE;
        let plan = Plan::uniform(via).restricted_to(&needs);
        let setup = Setup { fabric: sim(3), everywhere: 2, needs, ..setup(plan) };
        let ran = run(&setup, |env| Box::pin(crowd(env)));
        let (waited, done) = (ran.outputs[0], ran.outputs[1]);
        assert!((2_000_000..2_100_000).contains(&waited), "{via}: locked at {waited} ns");
        assert!(done < 1_000_000, "{via}: 128 requests were done at {done} ns only");
    }
}
