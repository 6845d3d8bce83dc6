//! Records that come and go, ranges, and what is not there: in every variant, on loopback and on the simulator, at the owner's CPU
//! and over the network; and what others' inserts and deletes do to who has read before.

mod common;
use common::*;
use phases::ops::{Fault, PhaseOps, Stop};
use phases::plan::{Plan, Via};
use phases::rule::{Abort, CheckRule, LockRule};
use phases::txn::{Intent, Order, Scan, Txn};
use primitives::verbs::NodeId;
use std::collections::BTreeMap;
use std::rc::Rc;

/// Key `n` of a node's block: of node 0, where the coordinator is, and of another.
fn key(node: u64, n: u64) -> u64 {
    node * BLOCK + n
}

const NODES: [u64; 2] = [0, 1];

/// Commits, and waits for what nobody else would wait for.
async fn commit(env: &Env, txn: &mut Txn, rule: LockRule) -> Option<Abort> {
    let done = env.commit(txn, rule).await;
    env.phases.settle().await.unwrap();
    abort_of(done)
}

async fn insert(env: &Env, txn: &mut Txn, key: u64, word: u64) -> Option<Abort> {
    let rule = env.begin(txn);
    let at = env.touch(txn, ORDERED, key, Intent::Write);
    txn.insert(at);
    txn.set_word(at, 1, word);
    commit(env, txn, rule).await
}

async fn delete(env: &Env, txn: &mut Txn, key: u64) -> Option<Abort> {
    let rule = env.begin(txn);
    let at = env.touch(txn, ORDERED, key, Intent::Read);
    if let Some(abort) = abort_of(env.phases.fetch(txn).await) {
        return Some(abort);
    }
    txn.delete(at);
    commit(env, txn, rule).await
}

/// Looks for a key in the transaction that has begun; its second word.
async fn find(env: &Env, txn: &mut Txn, key: u64) -> Option<u64> {
    let at = env.touch(txn, ORDERED, key, Intent::Read);
    txn.allow_absence(at);
    env.phases.fetch(txn).await.unwrap();
    let there = txn.accesses()[at].exists();
    there.then(|| txn.word(at, 1))
}

async fn validate(env: &Env, txn: &mut Txn) -> Option<Abort> {
    abort_of(env.phases.validate(txn, CheckRule::SameVersion).await)
}

fn range(from: u64, to: u64, limit: usize, order: Order) -> Scan {
    Scan { table: ORDERED, from, to, limit, order }
}

async fn scan(env: &Env, txn: &mut Txn, scan: Scan) -> Vec<u64> {
    env.phases.scan(txn, &scan).await.unwrap();
    txn.scanned().iter().map(|&at| txn.accesses()[at as usize].key).collect()
}

/// Records come, change, go and come back; returns what was seen.
async fn life(env: Rc<Env>) -> Vec<String> {
    let mut txn = Txn::new();
    let mut log = Vec::new();
    for node in NODES {
        let k = key(node, 15);
        let mut versions = Vec::new();
        for round in 0..3 {
            env.begin(&mut txn);
            log.push(format!("{:?}", find(&env, &mut txn, k).await));
            assert_eq!(validate(&env, &mut txn).await, None);
            assert_eq!(insert(&env, &mut txn, k, 100 + round).await, None);
            assert_eq!(insert(&env, &mut txn, k, 5).await, Some(Abort::Exists));
            // Read, changed together with another, read again.
            let rule = env.begin(&mut txn);
            let places = [k, key(node, 20)].map(|k| env.touch(&mut txn, ORDERED, k, Intent::Write));
            env.phases.fetch(&mut txn).await.unwrap();
            versions.push(txn.accesses()[places[0]].version);
            for at in places {
                txn.set_word(at, 1, txn.word(at, 1) + 1);
            }
            assert_eq!(commit(&env, &mut txn, rule).await, None);
            env.begin(&mut txn);
            log.push(format!("{:?}", find(&env, &mut txn, k).await));
            assert_eq!(validate(&env, &mut txn).await, None);
            // A slot that is given back leaves nothing behind.
            let rule = env.begin(&mut txn);
            for n in [16, 17] {
                let at = env.touch(&mut txn, ORDERED, key(node, n), Intent::Write);
                txn.insert(at);
            }
            env.phases.lock_and_read(&mut txn, rule).await.unwrap();
            assert!(txn.holds_locks());
            env.phases.unlock(&mut txn).await.unwrap();
            env.phases.settle().await.unwrap();
            // One that is created and removed by the same transaction, and one that is removed and created anew.
            let rule = env.begin(&mut txn);
            let at = env.touch(&mut txn, ORDERED, key(node, 18), Intent::Write);
            txn.insert(at);
            txn.delete(at);
            let again = env.touch(&mut txn, ORDERED, key(node, 30), Intent::Read);
            env.phases.fetch(&mut txn).await.unwrap();
            txn.delete(again);
            txn.insert(again);
            assert_eq!(txn.word(again, 0), 0);
            txn.set_word(again, 1, round);
            assert_eq!(commit(&env, &mut txn, rule).await, None);
            env.begin(&mut txn);
            let all =
                scan(&env, &mut txn, range(key(node, 0), key(node, BLOCK - 1), 100, Order::Ascending)).await;
            assert_eq!(all.len(), 11);
            assert!(all.windows(2).all(|w| w[0] < w[1]) && all.contains(&k), "{all:?}");
            let last = scan(&env, &mut txn, range(key(node, 5), key(node, 35), 2, Order::Descending)).await;
            assert_eq!(last, [key(node, 30), key(node, 20)]);
            assert!(
                scan(&env, &mut txn, range(key(node, 91), key(node, 99), 9, Order::Ascending))
                    .await
                    .is_empty()
            );
            assert_eq!(validate(&env, &mut txn).await, None);
            if round < 2 {
                assert_eq!(delete(&env, &mut txn, k).await, None);
                assert_eq!(delete(&env, &mut txn, k).await, Some(Abort::NotFound));
            }
        }
        assert!(versions.windows(2).all(|w| w[0] + 2 < w[1]), "versions go on: {versions:?}");
    }
    env.phases.settle().await.unwrap();
    log
}

fn records(store: &phases::store::NodeStore, primary: NodeId) -> BTreeMap<u64, (u64, Vec<u64>)> {
    let mut all = BTreeMap::new();
    store.for_each(primary, ORDERED, |key, stored| {
        let stored = stored.expect("a record of one piece");
        assert!(!stored.locked, "key {key}");
        all.insert(key, (stored.version, stored.payload));
    });
    all
}

#[test]
fn records_come_and_go_in_every_variant() {
    let mut want = None;
    for fabric in [loopback(), sim(7), rough(3)] {
        for (n, plan) in plans().into_iter().enumerate() {
            for location_cache in [true, false] {
                let plan =
                    Plan { location_cache: location_cache || plan.fetch.unwrap().via == Via::Hybrid, ..plan };
                let replicas = if n % 2 == 0 { 3 } else { 1 };
                let setup = Setup { fabric: fabric.clone(), replicas, ..setup(plan) };
                let ran = run(&setup, |env| Box::pin(life(env)));
                let what = format!("{plan} with {replicas} replicas on {:?}", fabric.caps().unwrap().fabric);
                let all: Vec<_> = ran.stores.iter().map(|s| records(s, s.node())).collect();
                for store in ran.stores.iter().filter(|_| replicas == 3) {
                    for primary in 0..3u16 {
                        assert_eq!(records(store, NodeId(primary)), all[usize::from(primary)], "{what}");
                    }
                }
                let got = (ran.outputs, all);
                assert_eq!(want.get_or_insert_with(|| got.clone()), &got, "{what}");
                assert!(ran.stats.iter().all(|s| s.malformed == 0 && s.damaged == 0), "{what}");
            }
        }
    }
}

#[test]
fn what_was_not_there_must_not_have_come_meanwhile() {
    for plan in plans() {
        let ran = run(&setup(plan), |env| {
            Box::pin(async move {
                let (mut reader, mut other) = (Txn::new(), Txn::new());
                let mut seen = Vec::new();
                for node in NODES {
                    for comes in [true, false] {
                        env.begin(&mut reader);
                        assert_eq!(find(&env, &mut reader, key(node, 15)).await, None);
                        assert_eq!(insert(&env, &mut other, key(node, 15), 1).await, None);
                        if !comes {
                            // There and gone again: it was not absent all the time.
                            assert_eq!(delete(&env, &mut other, key(node, 15)).await, None);
                        }
                        seen.push(validate(&env, &mut reader).await);
                        if comes {
                            assert_eq!(delete(&env, &mut other, key(node, 15)).await, None);
                        }
                    }
                    // Being created is not being there: who meets that does not know yet.
                    let rule = env.begin(&mut other);
                    let at = env.touch(&mut other, ORDERED, key(node, 16), Intent::Write);
                    other.insert(at);
                    env.begin(&mut reader);
                    assert_eq!(find(&env, &mut reader, key(node, 16)).await, None);
                    env.phases.lock_and_read(&mut other, rule).await.unwrap();
                    seen.push(validate(&env, &mut reader).await);
                    env.begin(&mut reader);
                    let at = env.touch(&mut reader, ORDERED, key(node, 16), Intent::Read);
                    reader.allow_absence(at);
                    seen.push(abort_of(env.phases.fetch(&mut reader).await));
                    assert_eq!(insert(&env, &mut reader, key(node, 16), 0).await, Some(Abort::LockConflict));
                    let mut third = Txn::new();
                    env.begin(&mut third);
                    let whole = range(key(node, 10), key(node, 20), 9, Order::Ascending);
                    seen.push(abort_of(env.phases.scan(&mut third, &whole).await));
                    env.phases.unlock(&mut other).await.unwrap();
                    env.phases.settle().await.unwrap();
                    // It never was.
                    env.begin(&mut reader);
                    assert_eq!(find(&env, &mut reader, key(node, 16)).await, None);
                    assert_eq!(validate(&env, &mut reader).await, None);
                }
                env.phases.settle().await.unwrap();
                seen
            })
        });
        let (changed, busy) = (Some(Abort::ReadChanged), Some(Abort::ReadLocked));
        let want = [changed, changed, changed, busy, busy];
        assert_eq!(ran.outputs, [[want, want].concat()], "{plan}");
    }
}

#[test]
fn a_range_must_not_have_got_or_lost_a_key_meanwhile() {
    for plan in plans() {
        let ran = run(&setup(plan), |env| {
            Box::pin(async move {
                let (mut txn, mut other) = (Txn::new(), Txn::new());
                let mut seen = Vec::new();
                for node in NODES {
                    let whole = range(key(node, 0), key(node, 200), 100, Order::Ascending);
                    let top = range(key(node, 0), key(node, 200), 1, Order::Descending);
                    // A phantom; then a key that goes.
                    env.begin(&mut txn);
                    scan(&env, &mut txn, whole).await;
                    assert_eq!(insert(&env, &mut other, key(node, 15), 1).await, None);
                    seen.push(validate(&env, &mut txn).await);
                    env.begin(&mut txn);
                    scan(&env, &mut txn, whole).await;
                    assert_eq!(delete(&env, &mut other, key(node, 15)).await, None);
                    seen.push(validate(&env, &mut txn).await);
                    // An empty range, and a key that comes to it and goes.
                    env.begin(&mut txn);
                    assert!(
                        scan(&env, &mut txn, range(key(node, 101), key(node, 109), 9, Order::Ascending))
                            .await
                            .is_empty()
                    );
                    assert_eq!(insert(&env, &mut other, key(node, 105), 1).await, None);
                    assert_eq!(delete(&env, &mut other, key(node, 105)).await, None);
                    seen.push(validate(&env, &mut txn).await);
                    // Its own inserts are no phantoms, however many leaves they fill; it does not see them.
                    let rule = env.begin(&mut txn);
                    assert_eq!(scan(&env, &mut txn, top).await, [key(node, 90)]);
                    let here = scan(&env, &mut txn, whole).await.len();
                    for n in 100..110 {
                        let at = env.touch(&mut txn, ORDERED, key(node, n), Intent::Write);
                        txn.insert(at);
                    }
                    assert_eq!(scan(&env, &mut txn, whole).await.len(), here);
                    seen.push(commit(&env, &mut txn, rule).await);
                    // What it is to remove it does not find any more; what it has changed it finds changed.
                    let rule = env.begin(&mut txn);
                    scan(&env, &mut txn, whole).await;
                    for n in 100..110 {
                        let at = txn.find(ORDERED, key(node, n)).unwrap();
                        txn.delete(at);
                    }
                    assert_eq!(scan(&env, &mut txn, top).await, [key(node, 90)]);
                    let at = txn.scanned()[0] as usize;
                    txn.intend(at, Intent::Write);
                    txn.set_word(at, 1, 77);
                    assert_eq!(scan(&env, &mut txn, top).await, [key(node, 90)]);
                    assert_eq!(txn.word(txn.scanned()[0] as usize, 1), 77);
                    seen.push(commit(&env, &mut txn, rule).await);
                    // Somebody else's insert between its own.
                    let rule = env.begin(&mut txn);
                    scan(&env, &mut txn, whole).await;
                    assert_eq!(insert(&env, &mut other, key(node, 16), 1).await, None);
                    let at = env.touch(&mut txn, ORDERED, key(node, 17), Intent::Write);
                    txn.insert(at);
                    seen.push(commit(&env, &mut txn, rule).await);
                    assert_eq!(delete(&env, &mut other, key(node, 16)).await, None);
                }
                env.phases.settle().await.unwrap();
                seen
            })
        });
        let changed = Some(Abort::ReadChanged);
        let want = [changed, changed, changed, None, None, changed];
        assert_eq!(ran.outputs, [[want, want].concat()], "{plan}");
    }
}

/// The one slot that is free is used for one key after the other: whoever has read, located or remembered before notices.
#[test]
fn a_slot_that_has_another_record_is_not_taken_for_the_old_one() {
    for plan in plans() {
        let ran = run(&setup(plan), |env| {
            Box::pin(async move {
                let (mut reader, mut writer, mut other) = (Txn::new(), Txn::new(), Txn::new());
                let mut seen = Vec::new();
                for node in NODES {
                    // Fills the table but for one slot, which the last one freed leaves.
                    for n in 101..=ORDERED_ROWS / 2 + 100 {
                        assert_eq!(insert(&env, &mut other, key(node, n), n).await, None);
                    }
                    seen.push(insert(&env, &mut other, key(node, 200), 0).await);
                    for comes_back in [false, true] {
                        let (old, new) =
                            (key(node, 101), if comes_back { key(node, 101) } else { key(node, 111) });
                        env.begin(&mut reader);
                        assert_eq!(find(&env, &mut reader, old).await, Some(101));
                        let place = reader.accesses()[0].location();
                        let rule = env.begin(&mut writer);
                        let at = env.touch(&mut writer, ORDERED, old, Intent::Write);
                        env.phases.fetch(&mut writer).await.unwrap();
                        writer.set_word(at, 1, 1);
                        assert_eq!(delete(&env, &mut other, old).await, None);
                        assert_eq!(insert(&env, &mut other, new, 101).await, None);
                        env.begin(&mut other);
                        assert_eq!(find(&env, &mut other, new).await, Some(101));
                        assert_eq!(other.accesses()[0].location(), place, "the same slot");
                        seen.push(validate(&env, &mut reader).await);
                        seen.push(commit(&env, &mut writer, rule).await);
                        if let Some(cache) = env.phases.cache() {
                            cache.fill(ORDERED, old, place.unwrap());
                        }
                        env.begin(&mut reader);
                        assert_eq!(find(&env, &mut reader, old).await, comes_back.then_some(101));
                        assert_eq!(validate(&env, &mut reader).await, None);
                        if !comes_back {
                            assert_eq!(delete(&env, &mut other, new).await, None);
                            assert_eq!(insert(&env, &mut other, old, 101).await, None);
                        }
                    }
                }
                env.phases.settle().await.unwrap();
                seen
            })
        });
        let gone = [Some(Abort::ReadChanged), Some(Abort::WriteChanged)];
        let want = [&[Some(Abort::TableFull)][..], &gone, &gone].concat();
        assert_eq!(ran.outputs, [[want.clone(), want].concat()], "{plan}");
    }
}

/// Keys that all meet in one bucket fill the index while the table still has slots: the transaction aborts and leaves no lock behind,
/// others go on, and who comes after a record has gone finds room.
#[test]
fn who_finds_the_index_full_aborts_and_others_go_on() {
    for via in [Via::OneSided, Via::TwoSided, Via::Hybrid] {
        let ran = run(&setup(Plan::uniform(via)), |env| {
            Box::pin(async move {
                let mut txn = Txn::new();
                let mut seen = Vec::new();
                for node in NODES {
                    let layout = env.cluster[node as usize].layout();
                    let bucket = layout.bucket(0, CROWDED, key(node, 0));
                    let (crowd, mut elsewhere): (Vec<u64>, Vec<u64>) = (0..1 << 14)
                        .map(|n| key(node, n))
                        .partition(|&key| layout.bucket(0, CROWDED, key) == bucket);
                    let (mut crowd, mut there) = (crowd.into_iter(), Vec::new());
                    let refused = loop {
                        let key = crowd.next().unwrap();
                        // With records of all nodes that are there, which it locks, too.
                        let rule = env.begin(&mut txn);
                        let others = [0, 1, 2].map(|key| env.touch(&mut txn, T, key, Intent::Write));
                        env.phases.fetch(&mut txn).await.unwrap();
                        others.into_iter().for_each(|at| txn.set_word(at, 0, key));
                        let at = env.touch(&mut txn, CROWDED, key, Intent::Write);
                        txn.insert(at);
                        txn.set_word(at, 0, key);
                        match commit(&env, &mut txn, rule).await {
                            None => there.push(key),
                            Some(abort) => break (key, abort),
                        }
                    };
                    assert_eq!(env.add(&mut txn, T, &[0, 1, 2], 0).await, 0, "no lock is left");
                    let last = *there.last().unwrap();
                    for record in [0, 1, 2] {
                        env.begin(&mut txn);
                        let at = env.touch(&mut txn, T, record, Intent::Read);
                        env.phases.fetch(&mut txn).await.unwrap();
                        assert_eq!(txn.word(at, 0), last, "what was refused wrote nothing");
                    }
                    let mut insert = async |key| {
                        let rule = env.begin(&mut txn);
                        let at = env.touch(&mut txn, CROWDED, key, Intent::Write);
                        txn.insert(at);
                        commit(&env, &mut txn, rule).await
                    };
                    let another = insert(elsewhere.remove(0)).await;
                    let again = insert(refused.0).await;
                    let rule = env.begin(&mut txn);
                    let at = env.touch(&mut txn, CROWDED, there[0], Intent::Read);
                    env.phases.fetch(&mut txn).await.unwrap();
                    txn.delete(at);
                    assert_eq!(commit(&env, &mut txn, rule).await, None);
                    let mut insert = async |key| {
                        let rule = env.begin(&mut txn);
                        let at = env.touch(&mut txn, CROWDED, key, Intent::Write);
                        txn.insert(at);
                        commit(&env, &mut txn, rule).await
                    };
                    seen.push((there.len() as u64, refused.1, another, again, insert(refused.0).await));
                }
                seen
            })
        });
        let full = Abort::TableFull;
        for (there, refused, another, again, after) in &ran.outputs[0] {
            assert!((50..CROWDED_ROWS - 1).contains(there), "{via}: {there} of {CROWDED_ROWS} are there");
            assert_eq!((*refused, *another, *again, *after), (full, None, Some(full), None), "{via}");
        }
        ran.stores.iter().for_each(|store| assert!(!contents(store).is_empty(), "and nothing is locked"));
    }
}

#[test]
fn a_record_that_goes_between_lookup_and_lock_is_an_abort() {
    for plan in plans() {
        let ran = run(&setup(plan), |env| {
            Box::pin(async move {
                let (mut writer, mut remover, mut other) = (Txn::new(), Txn::new(), Txn::new());
                let mut seen = Vec::new();
                for node in NODES {
                    let k = key(node, 40);
                    let rule = env.begin(&mut writer);
                    let at = env.touch(&mut writer, ORDERED, k, Intent::Write);
                    env.phases.fetch(&mut writer).await.unwrap();
                    writer.set_word(at, 0, 1);
                    let also = env.begin(&mut remover);
                    let at = env.touch(&mut remover, ORDERED, k, Intent::Read);
                    env.phases.fetch(&mut remover).await.unwrap();
                    remover.delete(at);
                    assert_eq!(delete(&env, &mut other, k).await, None);
                    seen.push(commit(&env, &mut writer, rule).await);
                    seen.push(commit(&env, &mut remover, also).await);
                    // Not to be found, and not to be written blindly.
                    let rule = env.begin(&mut writer);
                    let at = env.touch(&mut writer, ORDERED, k, Intent::Write);
                    writer.set_word(at, 0, 1);
                    seen.push(commit(&env, &mut writer, rule).await);
                }
                env.phases.settle().await.unwrap();
                seen
            })
        });
        let changed = Some(Abort::WriteChanged);
        let want = [changed, changed, Some(Abort::NotFound)];
        assert_eq!(ran.outputs, [[want, want].concat()], "{plan}");
    }
}

#[test]
fn a_poisoned_cache_leads_nobody_astray() {
    for via in [Via::OneSided, Via::Hybrid] {
        let ran = run(&setup(Plan::uniform(via)), |env| {
            Box::pin(async move {
                let mut txn = Txn::new();
                env.begin(&mut txn);
                for n in 0..10 {
                    find(&env, &mut txn, key(1, n * 10)).await;
                }
                let places: Vec<u64> = txn.accesses().iter().map(|a| a.location().unwrap()).collect();
                delete(&env, &mut txn, key(1, 0)).await;
                let end = env.cluster[1].region().len();
                // Another record, a slot without one, the middle of a record, the index, places that are none.
                let wrong =
                    [places[4], places[0], places[5] + 8, 64, 128, 3, end - 8, end, end + 800, (1 << 48) - 8];
                for at in wrong {
                    env.phases.cache().unwrap().fill(ORDERED, key(1, 50), at);
                    let rule = env.begin(&mut txn);
                    let row = env.touch(&mut txn, ORDERED, key(1, 50), Intent::Write);
                    env.phases.fetch(&mut txn).await.unwrap();
                    assert_eq!(txn.accesses()[row].location(), Some(places[5]), "instead of {at}");
                    txn.set_word(row, 1, txn.word(row, 1) + 1);
                    assert_eq!(commit(&env, &mut txn, rule).await, None);
                }
                (wrong.len() as u64, env.phases.cache_stats().stale)
            })
        });
        let (poisoned, stale) = ran.outputs[0];
        assert_eq!(poisoned, stale, "{via}");
        assert_eq!(records(&ran.stores[1], NodeId(1))[&key(1, 50)].1[1], poisoned);
    }
}

#[test]
fn ranges_that_cannot_be_are_refused_with_the_reason() {
    let ran = run(&setup(Plan::uniform(Via::TwoSided)), |env| {
        Box::pin(async move {
            let mut txn = Txn::new();
            env.begin(&mut txn);
            let across = range(key(0, 5), key(1, 5), 9, Order::Ascending);
            let mut refused = Vec::new();
            for scan in [across, Scan { table: T, from: 1, to: 1, ..across }] {
                match env.phases.scan(&mut txn, &scan).await {
                    Err(Stop::Fault(fault @ (Fault::Scattered { .. } | Fault::Unordered { .. }))) => {
                        refused.push(fault.to_string());
                    }
                    other => panic!("{other:?}"),
                }
            }
            // Nothing to read, nothing to validate.
            for scan in [range(9, 5, 9, Order::Ascending), range(0, 90, 0, Order::Ascending)] {
                env.phases.scan(&mut txn, &scan).await.unwrap();
                assert!(txn.scanned().is_empty() && !txn.has_scanned());
            }
            refused
        })
    });
    let text = ran.outputs[0].join("; ");
    assert!(text.contains("not of one block") && text.contains("not ordered"), "{text}");
}
