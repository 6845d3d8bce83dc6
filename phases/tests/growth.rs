//! A table that grows far beyond the records it declares, in the reserve: what peers read one-sided meanwhile, and what that costs.

mod common;
use common::*;
use phases::ops::PhaseOps;
use phases::plan::{Phase, Plan, Via};
use phases::rule::{Abort, CheckRule};
use phases::txn::{Intent, Txn};
use primitives::exec::sleep_until;
use primitives::units::Nanos;
use primitives::verbs::NodeId;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Records inserted, of a table that declares [`CROWDED_ROWS`].
const MANY: u64 = 2400;
/// One record of five is removed again, so much later.
const LATER: u64 = 50;

fn goes(n: u64) -> bool {
    n % 5 == 4
}

fn setup_growing(via: Via) -> Setup {
    Setup { reserve_bytes: 512 << 10, everywhere: 1, ..patient(Plan::uniform(via)) }
}

/// Creates the record, or removes it, and goes on until that has committed.
async fn change(env: &Env, txn: &mut Txn, n: u64, remove: bool) {
    loop {
        let rule = env.begin(txn);
        let at = env.touch(txn, CROWDED, n, if remove { Intent::Read } else { Intent::Write });
        let ready = if remove { abort_of(env.phases.fetch(txn).await) } else { None };
        if ready.is_none() {
            if remove {
                txn.delete(at);
            } else {
                txn.insert(at);
                txn.set_word(at, 0, n);
                txn.set_word(at, 1, n);
            }
            match abort_of(env.commit(txn, rule).await) {
                None => return env.phases.settle().await.unwrap(),
                Some(Abort::TableFull) => panic!("{:?}", env.cluster[0].refused()),
                Some(_) => {}
            }
        }
        sleep_until(&env.port, env.port.now() + Nanos(1_000)).await;
    }
}

/// Looks for a record; whether it is there, unless an abort says that it may have changed.
async fn look(env: &Env, txn: &mut Txn, n: u64) -> Result<bool, Abort> {
    env.begin(txn);
    let at = env.touch(txn, CROWDED, n, Intent::Read);
    txn.allow_absence(at);
    if let Some(abort) = abort_of(env.phases.fetch(txn).await) {
        return Err(abort);
    }
    let there = txn.accesses()[at].exists();
    if there {
        assert_eq!([txn.word(at, 0), txn.word(at, 1)], [n, n], "another's record, or a torn one");
    }
    abort_of(env.phases.validate(txn, CheckRule::SameVersion).await).map_or(Ok(there), Err)
}

/// What a reader has seen: looks that found the record, that found none, and that an abort ended.
type Seen = [u64; 3];

#[test]
fn readers_see_all_that_is_there_while_its_owner_grows() {
    for fabric in [loopback(), nic_thread(5), sim(5)] {
        for via in [Via::OneSided, Via::Hybrid] {
            let setup = Setup { fabric: fabric.clone(), ..setup_growing(via) };
            // Records below are there, or have gone already.
            let inserted = Arc::new(AtomicU64::new(0));
            let ran = run(&setup, |env| {
                let inserted = inserted.clone();
                Box::pin(async move {
                    let mut txn = Txn::new();
                    if env.site.node == NodeId(0) {
                        for n in 0..MANY {
                            change(&env, &mut txn, n, false).await;
                            inserted.store(n + 1, Ordering::SeqCst);
                            if let Some(old) = n.checked_sub(LATER).filter(|&old| goes(old)) {
                                change(&env, &mut txn, old, true).await;
                            }
                        }
                        return [0; 3];
                    }
                    read_along(&env, &mut txn, &inserted).await
                })
            });
            let store = &ran.stores[0];
            let left = (0..MANY).filter(|&n| !goes(n) || n + LATER >= MANY);
            let mut all: Vec<u64> = Vec::new();
            store.for_each(NodeId(0), CROWDED, |n, record| {
                assert_eq!(record.map(|r| (r.locked, r.payload)), Some((false, vec![n, n])));
                all.push(n);
            });
            all.sort_unstable();
            assert_eq!(all, left.collect::<Vec<_>>());
            assert_eq!(store.refused(), None);
            let seen: Vec<&Seen> = ran.outputs.iter().filter(|seen| **seen != [0; 3]).collect();
            assert!(seen.len() == 2 && seen.iter().all(|seen| seen[0] > 100), "{via}: {:?}", ran.outputs);
        }
    }
}

/// Reads records, old ones and those that are about to come, until all have been inserted.
async fn read_along(env: &Env, txn: &mut Txn, inserted: &AtomicU64) -> Seen {
    let mut seen = [0; 3];
    let mut random = 1 + u64::from(env.site.node.0);
    loop {
        let known = inserted.load(Ordering::SeqCst);
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        // One of those there are, and of the next few.
        let n = (random >> 33) % (known + 8);
        match look(env, txn, n).await {
            Ok(there) => {
                assert!(there || n >= known || goes(n), "record {n} of {known} was not seen");
                assert!(!there || n <= inserted.load(Ordering::SeqCst), "record {n} is to come");
                seen[usize::from(!there)] += 1;
            }
            Err(Abort::NotFound) => panic!("absence is allowed"),
            Err(_) => seen[2] += 1,
        }
        if known == MANY && seen[0] > 200 {
            return seen;
        }
        sleep_until(&env.port, env.port.now() + Nanos(2_000)).await;
    }
}

/// Whoever has found a record in the reserve once remembers where it is, and believes it: one READ, as for any other.
#[test]
fn a_remembered_place_in_the_reserve_costs_one_read() {
    // So large that no two of the keys want the same place in it.
    let setup = Setup { cache_bytes: 4 << 20, ..setup_growing(Via::OneSided) };
    let done = Arc::new(AtomicU64::new(0));
    let ran = run(&setup, |env| {
        let done = done.clone();
        Box::pin(async move {
            let mut txn = Txn::new();
            if env.site.node == NodeId(0) {
                for n in 0..400 {
                    change(&env, &mut txn, n, false).await;
                }
                done.store(1, Ordering::SeqCst);
                return (Vec::new(), env.phases.cache_stats());
            }
            while done.load(Ordering::SeqCst) == 0 {
                sleep_until(&env.port, env.port.now() + Nanos(10_000)).await;
            }
            let mut verbs = Vec::new();
            for _ in 0..2 {
                let mut sum = 0;
                for n in 0..400 {
                    env.begin(&mut txn);
                    env.touch(&mut txn, CROWDED, n, Intent::Read);
                    let before = txn.costs[Phase::Fetch].verbs;
                    env.phases.fetch(&mut txn).await.unwrap();
                    sum += txn.costs[Phase::Fetch].verbs - before;
                }
                verbs.push(sum);
            }
            (verbs, env.phases.cache_stats())
        })
    });
    for (verbs, cache) in &ran.outputs[1..] {
        assert!(verbs[0] > 1000, "through chains of several buckets: {verbs:?}");
        assert_eq!((verbs[1], cache.stale), (400, 0), "{verbs:?} {cache:?}");
    }
}

/// Logs are applied into the reserve of the backup's own copy.
#[test]
fn a_backup_grows_with_its_primary() {
    let setup = Setup { replicas: 2, everywhere: 0, ..setup_growing(Via::OneSided) };
    let ran = run(&setup, |env: Rc<Env>| {
        Box::pin(async move {
            let mut txn = Txn::new();
            for n in 0..600 {
                change(&env, &mut txn, BLOCK + n, false).await;
                if let Some(old) = n.checked_sub(LATER).filter(|&old| goes(old)) {
                    change(&env, &mut txn, BLOCK + old, true).await;
                }
            }
            env.phases.settle().await.unwrap();
        })
    });
    let records = |node: usize| {
        let mut all = Vec::new();
        ran.stores[node].for_each(NodeId(1), CROWDED, |key, record| {
            let record = record.expect("whole");
            all.push((key, record.version, record.payload));
        });
        all.sort();
        all
    };
    assert_eq!(records(1).len(), 600 - 110);
    assert_eq!(records(2), records(1));
}
