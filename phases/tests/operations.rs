//! What operations do to the store, in every variant, on loopback and on the simulator.

mod common;
use common::*;
use phases::ops::{PhaseOps, Stop};
use phases::plan::{Phase, Plan, Step, Via};
use phases::rule::{Abort, CheckRule, OnConflict};
use phases::store::TableId;
use phases::txn::{Intent, Txn};
use primitives::mesh::WorkerConfig;
use std::future::Future;
use std::rc::Rc;

/// Ten transactions over all nodes, among them blind writes and reads of own writes; returns what was read.
async fn ten(env: Rc<Env>) -> Vec<u64> {
    let mut txn = Txn::new();
    let mut seen = Vec::new();
    for round in 0..10u64 {
        let rule = env.begin(&mut txn);
        let table = if round % 2 == 0 { T } else { WIDE };
        let read = env.touch(&mut txn, table, round, Intent::Read);
        let writes: Vec<usize> =
            (0..4).map(|i| env.touch(&mut txn, table, round + 7 + i, Intent::Write)).collect();
        env.phases.fetch(&mut txn).await.unwrap();
        for (i, &at) in writes.iter().enumerate() {
            let value = txn.word(at, 0) + txn.word(read, 0) + i as u64;
            // One of them keeps its value: locked, not written.
            if i < 3 {
                txn.set_word(at, 0, value);
                assert_eq!(txn.word(at, 0), value, "its own write");
            }
            seen.push(value);
        }
        // A read becomes a write, and stays the same access.
        if round % 3 == 0 {
            assert_eq!(env.touch(&mut txn, table, round, Intent::Write), read);
            txn.set_word(read, 0, 5);
        }
        // A record that is locked without having been read.
        let blind = env.touch(&mut txn, TableId(0), 50 + round % 3, Intent::Write);
        txn.set_word(blind, 0, round);
        env.commit(&mut txn, rule).await.unwrap();
        assert!(!txn.holds_locks());
    }
    env.phases.settle().await.unwrap();
    seen
}

#[test]
fn every_variant_leaves_the_same_store() {
    let mut want = None;
    for fabric in [loopback(), sim(7)] {
        for plan in plans() {
            for location_cache in [true, false] {
                let plan =
                    Plan { location_cache: location_cache || plan.fetch.unwrap().via == Via::Hybrid, ..plan };
                for replicas in [1, 3] {
                    let setup = Setup { fabric: fabric.clone(), replicas, ..setup(plan) };
                    let ran = run(&setup, |env| Box::pin(ten(env)));
                    let primaries: Vec<_> = ran
                        .stores
                        .iter()
                        .flat_map(|s| {
                            let mine = s.node();
                            contents(s).into_iter().filter(move |r| r.1 % 3 == u64::from(mine.0))
                        })
                        .collect();
                    let got = (ran.outputs, primaries);
                    let what =
                        format!("{plan} with {replicas} replicas on {:?}", fabric.caps().unwrap().fabric);
                    match &want {
                        None => want = Some(got),
                        Some(want) => assert_eq!(&got, want, "{what}"),
                    }
                    assert!(ran.stats.iter().all(|s| s.malformed == 0 && s.damaged == 0), "{what}");
                    if replicas == 3 {
                        // On three nodes with three copies every node holds everything.
                        let all: Vec<_> = ran.stores.iter().map(contents).collect();
                        assert!(all.iter().all(|c| c == &all[0]), "{what}: backups differ from primaries");
                    }
                }
            }
        }
    }
}

#[test]
fn a_locked_record_stops_writers_and_validating_readers_and_nothing_stays_locked() {
    for fabric in [loopback(), sim(3)] {
        for plan in plans() {
            let setup = Setup { fabric: fabric.clone(), ..setup(plan) };
            let ran = run(&setup, |env| {
                Box::pin(async move {
                    let (mut a, mut b) = (Txn::new(), Txn::new());
                    // Remote keys 4 and 5, local key 3; `a` holds 4.
                    let rule = env.begin(&mut a);
                    env.touch(&mut a, T, 4, Intent::Write);
                    env.phases.fetch(&mut a).await.unwrap();
                    env.phases.lock_and_read(&mut a, rule).await.unwrap();
                    assert!(a.holds_locks());

                    let rule = env.begin(&mut b);
                    for key in [3, 5, 4, 8] {
                        env.touch(&mut b, T, key, Intent::Write);
                    }
                    env.phases.fetch(&mut b).await.unwrap();
                    let first = abort_of(env.commit(&mut b, rule).await);
                    let patient = phases::rule::LockRule { on_conflict: OnConflict::Retry(3), ..rule };
                    env.phases.fetch(&mut b).await.unwrap();
                    let second = abort_of(env.commit(&mut b, patient).await);

                    env.begin(&mut b);
                    env.touch(&mut b, T, 4, Intent::Read);
                    env.phases.fetch(&mut b).await.unwrap();
                    let third = abort_of(env.phases.validate(&mut b, CheckRule::SameVersion).await);
                    env.phases.unlock(&mut a).await.unwrap();
                    let fourth = abort_of(env.phases.validate(&mut b, CheckRule::SameVersion).await);
                    (first, second, third, fourth)
                })
            });
            let lock = Some(Abort::LockConflict);
            assert_eq!(ran.outputs, [(lock, lock, Some(Abort::ReadLocked), None)], "{plan}");
            ran.stores.iter().for_each(|s| assert!(contents(s).iter().all(|r| r.2 == 1)));
        }
    }
}

#[test]
fn a_record_that_changed_is_found_at_lock_and_at_validation() {
    for plan in plans() {
        let ran = run(&setup(plan), |env| {
            Box::pin(async move {
                let mut outcomes = Vec::new();
                for key in [3, 4] {
                    let (mut reader, mut writer, mut other) = (Txn::new(), Txn::new(), Txn::new());
                    env.begin(&mut reader);
                    env.touch(&mut reader, T, key, Intent::Read);
                    env.phases.fetch(&mut reader).await.unwrap();
                    let rule = env.begin(&mut writer);
                    let at = env.touch(&mut writer, T, key, Intent::Write);
                    env.phases.fetch(&mut writer).await.unwrap();
                    writer.set_word(at, 0, 1);
                    env.add(&mut other, T, &[key], 5).await;
                    outcomes.push(abort_of(env.phases.validate(&mut reader, CheckRule::SameVersion).await));
                    outcomes.push(abort_of(env.commit(&mut writer, rule).await));
                }
                outcomes
            })
        });
        let want = [Some(Abort::ReadChanged), Some(Abort::WriteChanged)];
        assert_eq!(ran.outputs, [[want, want].concat()], "{plan}");
        for key in [3u64, 4] {
            let got = ran.stores[(key % 3) as usize].get(T, key);
            assert_eq!(got.map(|r| (r.version, r.payload)), Some((2, vec![1005])), "{plan}");
        }
    }
}

#[test]
fn a_key_that_is_not_there_is_an_abort() {
    for plan in plans() {
        let ran = run(&setup(plan), |env| {
            Box::pin(async move {
                let mut txn = Txn::new();
                let mut outcomes = Vec::new();
                for key in [KEYS, KEYS + 1, KEYS + 2] {
                    env.begin(&mut txn);
                    env.touch(&mut txn, T, key, Intent::Read);
                    outcomes.push(abort_of(env.phases.fetch(&mut txn).await));
                }
                outcomes
            })
        });
        assert_eq!(ran.outputs, [[Some(Abort::NotFound); 3]], "{plan}");
    }
}

#[test]
fn stale_and_missing_cache_entries_lead_to_the_record_all_the_same() {
    for via in [Via::OneSided, Via::Hybrid] {
        // A cache of one word: every other key's entry replaces it, and tags are the only protection.
        for cache_bytes in [8, 1 << 16] {
            let setup = Setup { cache_bytes, ..setup(Plan::uniform(via)) };
            let ran = run(&setup, |env| {
                Box::pin(async move {
                    let mut txn = Txn::new();
                    for _ in 0..2 {
                        for key in 0..KEYS {
                            env.begin(&mut txn);
                            let at = env.touch(&mut txn, WIDE, key, Intent::Read);
                            env.phases.fetch(&mut txn).await.unwrap();
                            assert_eq!(txn.word(at, WIDE_WORDS - 1), key);
                        }
                    }
                    env.phases.cache_stats()
                })
            });
            let stats = ran.outputs[0];
            let remote = 2 * KEYS * 2 / 3;
            assert_eq!(stats.hits + stats.misses, remote);
            assert_eq!(stats.hits, if cache_bytes == 8 { 0 } else { remote / 2 }, "{via}");
        }
    }
}

#[test]
fn a_cache_that_lies_is_caught_by_the_key() {
    for via in [Via::OneSided, Via::Hybrid] {
        let ran = run(&setup(Plan::uniform(via)), |env| {
            Box::pin(async move {
                let mut txn = Txn::new();
                env.begin(&mut txn);
                env.touch(&mut txn, T, 4, Intent::Read);
                env.touch(&mut txn, T, 7, Intent::Read);
                env.phases.fetch(&mut txn).await.unwrap();
                let wrong = txn.accesses()[1].location().unwrap();
                env.phases.cache().unwrap().fill(T, 4, wrong);
                env.begin(&mut txn);
                let at = env.touch(&mut txn, T, 4, Intent::Write);
                env.phases.fetch(&mut txn).await.unwrap();
                (txn.accesses()[at].location() != Some(wrong), env.phases.cache_stats().stale)
            })
        });
        assert_eq!(ran.outputs, [(true, 1)], "{via}");
    }
}

#[test]
fn what_is_expected_need_neither_be_there_nor_be_asked_for_and_costs_no_verb() {
    for fabric in [loopback(), sim(7)] {
        for plan in plans() {
            let setup = Setup { fabric: fabric.clone(), ..setup(Plan { location_cache: true, ..plan }) };
            let ran = run(&setup, |env| {
                Box::pin(async move {
                    // Locations where no record can be, one of them beyond every region.
                    for (key, lie) in [(2, 8), (4, 1 << 40)] {
                        env.phases.cache().unwrap().fill(T, key, lie);
                    }
                    let before = (env.port.traffic(), env.phases.cache_stats());
                    env.phases.expect([0, 1, 2, 4, 4, KEYS, u64::MAX].map(|key| (T, key)).into_iter());
                    assert_eq!((env.port.traffic(), env.phases.cache_stats()), before);
                    let mut txn = Txn::new();
                    for key in [4, 3] {
                        env.begin(&mut txn);
                        let at = env.touch(&mut txn, T, key, Intent::Read);
                        env.phases.fetch(&mut txn).await.unwrap();
                        assert_eq!(txn.word(at, 0), 1000, "{plan}");
                    }
                })
            });
            assert_eq!(ran.outputs.len(), 1);
        }
    }
}

#[test]
fn logs_wrap_wait_when_full_and_end_up_in_the_backups() {
    for fabric in [loopback(), sim(5), rough(6)] {
        for via in [Via::OneSided, Via::TwoSided] {
            // Entries of about 200 B in rings of 1 KiB: a ring holds a handful, truncation in passing comes too late.
            let mut plan = Plan::uniform(via);
            plan.coroutines = 4;
            let setup =
                Setup { fabric: fabric.clone(), replicas: 3, ring_bytes: 1024, everywhere: 4, ..setup(plan) };
            let ran = run(&setup, |env| {
                Box::pin(async move {
                    let mut txn = Txn::new();
                    for round in 0..40u64 {
                        let key = (round * 7 + u64::from(env.site.coroutine)) % KEYS;
                        env.add(&mut txn, WIDE, &[key], 1).await;
                    }
                    env.phases.settle().await.unwrap();
                    env.phases.log_waits()
                })
            });
            assert!(ran.outputs.iter().sum::<u64>() > 0, "no ring was ever full: {via}");
            let all: Vec<_> = ran.stores.iter().map(contents).collect();
            assert!(all.iter().all(|c| c == &all[0]), "{via}: backups differ from primaries");
            let versions: u64 = all[0].iter().filter(|r| r.0 == WIDE.0).map(|r| r.2 - 1).sum();
            assert_eq!(versions, 3 * 4 * 40);
            assert!(ran.stats.iter().all(|s| s.damaged == 0 && s.malformed == 0));
        }
    }
}

#[test]
fn an_entry_that_no_ring_could_hold_is_a_fault_and_frees_the_locks() {
    let setup = Setup { replicas: 2, ring_bytes: 1024, ..setup(Plan::uniform(Via::OneSided)) };
    let ran = run(&setup, |env| {
        Box::pin(async move {
            let mut txn = Txn::new();
            let rule = env.begin(&mut txn);
            for key in [1, 4, 7, 10, 13] {
                let at = env.touch(&mut txn, WIDE, key, Intent::Write);
                txn.set_word(at, 0, 1);
            }
            matches!(env.commit(&mut txn, rule).await, Err(Stop::Fault(_)))
        })
    });
    assert_eq!(ran.outputs, [true]);
    ran.stores.iter().for_each(|s| assert!(contents(s).iter().all(|r| r.2 == 1)));
}

#[test]
fn torn_reads_are_repeated_and_never_returned() {
    // Writers keep all words of a record equal; readers must never see two that differ.
    let mut torn = 0;
    for seed in 0..4 {
        let plan = Plan::uniform(Via::OneSided);
        let setup = Setup { fabric: nic_thread(seed), everywhere: 2, ..setup(plan) };
        let ran = run(&setup, |env| {
            Box::pin(async move {
                let mut txn = Txn::new();
                // Readers and writers of a record sit on different nodes: requests of one queue pair keep their order.
                let key = u64::from(env.site.node.0 + 1 + env.site.coroutine as u16) % 3;
                for _ in 0..150 {
                    if env.site.coroutine == 0 {
                        env.add(&mut txn, WIDE, &[key], 1).await;
                        continue;
                    }
                    env.begin(&mut txn);
                    let at = env.touch(&mut txn, WIDE, key, Intent::Read);
                    match env.phases.fetch(&mut txn).await {
                        Ok(()) => (0..WIDE_WORDS).for_each(|i| assert_eq!(txn.word(at, i), txn.word(at, 0))),
                        Err(stop) => assert_eq!(stop, Stop::Abort(Abort::Unstable)),
                    }
                }
                env.phases.settle().await.unwrap();
                env.phases.torn_reads()
            })
        });
        torn += ran.outputs.iter().sum::<u64>();
        for key in [0, 1, 2] {
            let stored = ran.stores[key].get(WIDE, key as u64).unwrap();
            assert_eq!((stored.version, stored.payload), (151, vec![key as u64 + 150; WIDE_WORDS]));
        }
    }
    assert!(torn > 0, "no READ was torn: the test shows nothing");
}

#[test]
fn many_coroutines_lose_no_update() {
    for fabric in [loopback(), sim(11), rough(12), rough(13)] {
        for plan in [Plan::uniform(Via::OneSided), Plan::uniform(Via::TwoSided), Plan::uniform(Via::Hybrid)] {
            let setup = Setup { fabric: fabric.clone(), replicas: 2, everywhere: 4, ..setup(plan) };
            let ran = run(&setup, |env| {
                Box::pin(async move {
                    let mut txn = Txn::new();
                    let mut aborts = 0;
                    for i in 0..30u64 {
                        let keys = [i % 5, (i + 1 + u64::from(env.site.coroutine)) % 6 + 5];
                        aborts += env.add(&mut txn, T, &keys, 1).await;
                    }
                    env.phases.settle().await.unwrap();
                    aborts
                })
            });
            let sum: u64 = ran
                .stores
                .iter()
                .flat_map(|s| {
                    (0..KEYS)
                        .filter(|k| k % 3 == u64::from(s.node().0))
                        .map(|k| s.get(T, k).unwrap().payload[0])
                })
                .sum();
            assert_eq!(sum, KEYS * 1000 + 3 * 4 * 30 * 2, "{plan}");
        }
    }
}

#[test]
fn a_dropped_transaction_gives_its_buffers_back() {
    for plan in plans() {
        let setup = Setup { fabric: sim(2), replicas: 3, ..setup(plan) };
        // The program's own buffers: what is in use after a quiet transaction.
        let quiet = run(&setup, |env| {
            Box::pin(async move {
                env.add(&mut Txn::new(), WIDE, &[1, 2, 3], 1).await;
                env.phases.settle().await.unwrap();
                // Long enough for everything unanswered to be answered.
                primitives::exec::sleep_until(
                    &env.port,
                    env.port.now() + primitives::units::Nanos::from_millis(2),
                )
                .await;
                env.port.pool().in_use()
            })
        });
        for polls in 0..12 {
            let cut = run(&setup, move |env| {
                Box::pin(async move {
                    let mut txn = Txn::new();
                    let mut polled = 0;
                    let mut whole = Box::pin(env.add(&mut txn, WIDE, &[1, 2, 3], 1));
                    // Gives up after so many resumptions, wherever the transaction is.
                    std::future::poll_fn(|cx| {
                        polled += 1;
                        if polled > polls {
                            return std::task::Poll::Ready(());
                        }
                        whole.as_mut().poll(cx).map(|_| ())
                    })
                    .await;
                    drop(whole);
                    drop(txn);
                    env.phases.settle().await.unwrap();
                    primitives::exec::sleep_until(
                        &env.port,
                        env.port.now() + primitives::units::Nanos::from_millis(2),
                    )
                    .await;
                    env.port.pool().in_use()
                })
            });
            let (got, base) = (cut.outputs[0], quiet.outputs[0]);
            assert!(
                got <= base,
                "{plan}: {got} buffers in use after {polls} polls, {base} after a whole transaction"
            );
        }
    }
}

#[test]
fn nonsense_from_a_peer_changes_nothing_and_is_counted() {
    let ran = run(&setup(Plan::uniform(Via::TwoSided)), |env| {
        Box::pin(async move {
            let peer = primitives::verbs::NodeId(1);
            let mut empty = 0;
            for handler in (0..=7).chain([9, 255]) {
                for words in
                    [vec![], vec![u64::MAX], vec![u64::MAX; 2], vec![u64::MAX; 4], vec![u64::MAX; 40]]
                {
                    let replies = env
                        .rpc
                        .call(peer, handler, |w| words.iter().for_each(|&word| w.word(word)))
                        .await
                        .unwrap();
                    empty += u64::from(replies.read(0, |r| r.remaining() == 0));
                }
            }
            // A range of a table that is not there, and of one that is not ordered; a lease where records have none.
            for table in [0xffff, u64::from(T.0)] {
                let scan = [table << 48 | 10, 0, 9, 0, 0];
                for handler in 10..=15u8 {
                    let replies = env.rpc.call(peer, handler, |w| scan.iter().for_each(|&word| w.word(word)));
                    let found = replies.await.unwrap().read(0, |mut r| r.word().is_ok_and(|w| w >> 48 == 0));
                    assert!(handler != 13 || !found, "a range of table {table}");
                }
            }
            let (same, leased, placed) = (0u64, 1u64, 2u64);
            for rule in [same, leased, placed] {
                let check = [u64::from(T.0) << 48, 4, rule << 40 | 1, 77, 77];
                let replies = env.rpc.call(peer, 3, |w| check.iter().for_each(|&word| w.word(word)));
                let refused = replies.await.unwrap().read(0, |r| r.remaining() == 0);
                assert_eq!(refused, rule != same, "check rule {rule}");
                empty += u64::from(refused);
            }
            // Well-formed, but of records that are not locked, and of offsets that are no record's.
            for handler in [4u8, 5] {
                for offset in [0u64, 8, 64, 1 << 40] {
                    let replies = env
                        .rpc
                        .call(peer, handler, |w| {
                            w.word(offset);
                            w.word(4); // a key of node 1
                            w.word(2); // version 2, or "locked": neither is so
                            w.word(77);
                        })
                        .await
                        .unwrap();
                    replies.read(0, |mut r| assert!(r.word().map_or(true, |w| w >> 48 != 0)));
                }
            }
            empty
        })
    });
    assert!(ran.outputs[0] > 20, "{} empty replies", ran.outputs[0]);
    assert!(ran.stats[1].malformed >= ran.outputs[0]);
    ran.stores.iter().for_each(|s| assert!(contents(s).iter().all(|r| r.2 == 1)));
}

/// Calls and answers take queue pairs in turn with everything else, so asking for the next lane as often as there are lanes may
/// leave one out.
#[test]
fn settling_confirms_what_is_under_way_on_every_lane() {
    let passive = Step { passive_ack: true, ..Step::table2(Phase::Install, Via::OneSided) };
    for lanes in [1, 2, 3] {
        let plan = Plan { install: Some(passive), ..Plan::uniform(Via::OneSided) };
        let setup = setup(plan);
        let config = WorkerConfig { lanes, ..setup.config };
        run(&Setup { config, ..setup }, move |env| {
            Box::pin(async move {
                let mut txn = Txn::new();
                for key in [1, 2, 4, 5] {
                    env.add(&mut txn, T, &[key], 1).await;
                }
                assert!(env.port.in_flight() > 0, "an install that nobody waits for is under way");
                env.phases.settle().await.unwrap();
                assert_eq!(env.port.in_flight(), 0, "with {lanes} lanes");
            })
        });
    }
}
