//! Slots where lock words, versions and times are other than OCC's.

use super::*;
use crate::rule::{ReadLocks, Timestamp};

const PACKINGS: [Packing; 4] = [Packing::Counted, Packing::Leased, Packing::Locked, Packing::Versions];

fn rule(packing: Packing, time: u64) -> LockRule {
    LockRule {
        stamp: Stamp::new(owner(), 1),
        time: Timestamp(time),
        packing,
        on_conflict: OnConflict::Fail,
        reads: ReadLocks::None,
    }
}

fn put(store: &NodeStore, key: u64, offset: u64, version: u64) {
    let payload = [key, version];
    record::write_local(&store.region, offset, store.layout.shape(T), version, key, &payload);
}

/// Locks a record by its packing's rule and removes it, leaving `version` behind.
fn take_out(store: &NodeStore, packing: Packing, key: u64, version: u64) -> bool {
    let offset = store.locate(T, key).unwrap();
    let seen = Header(store.region.load(offset));
    let Verdict::Grant(held) = rule(packing, version).decide(ALONE, seen) else { panic!("{seen:?}") };
    store.region.store(offset, held.0);
    store.remove(T, key, offset, version)
}

#[test]
fn a_slot_without_a_record_can_be_locked_by_nobody() {
    for packing in PACKINGS {
        let store = store_packed(4, FIRST, 1, packing);
        let shape = store.layout.shape(T);
        let slot = store.reserve(T, 5, None, rule(packing, 50)).unwrap();
        let ask = |time| rule(packing, time).decide(ALONE, Header(store.region.load(slot.offset)));
        assert!(matches!(ask(60), Verdict::Deny(_)), "{packing:?}: it is held");
        let other = store.reserve(T, 5, None, rule(packing, 60)).unwrap_err();
        assert_eq!(other.verdict, Verdict::Deny(Abort::LockConflict), "{packing:?}");
        assert!(store.is_coming(T, slot.offset) && store.get(T, 5).is_none());
        let version = if packing == Packing::Versions { 50 } else { slot.version + 1 };
        put(&store, 5, slot.offset, version);
        assert_eq!(store.get(T, 5).unwrap().version, version, "{packing:?}");
        assert!(matches!(ask(60), Verdict::Grant(_)), "{packing:?}: it is free");
        let removed_at = if packing == Packing::Versions { 70 } else { version + 1 };
        assert!(take_out(&store, packing, 5, removed_at), "{packing:?}");
        let vacant = Header(store.region.load(slot.offset));
        assert_eq!(vacant, packing.vacant(removed_at));
        assert!(shape.is_absent(record::words_at(&store.region, slot.offset, shape)));
        for time in [1, 80, 1 << 50] {
            assert!(matches!(rule(packing, time).decide(ALONE, vacant), Verdict::Deny(_)), "{packing:?}");
        }
        // The same key comes later than it went, whichever slot it gets.
        let again = store.reserve(T, 5, None, rule(packing, 90)).unwrap();
        assert!(!packing.later(removed_at, again.version), "{packing:?}: {again:?}");
        assert!(store.undo(T, 5, again.offset, again.header));
        assert!(!store.undo(T, 5, again.offset, again.header));
        assert!(store.locate(T, 5).is_none() && keys_in_order(&store).is_empty());
    }
}

#[test]
fn who_creates_comes_after_who_saw_nothing() {
    // SUNDIAL: the slot's version is at least the time until which nothing was to come; the lease ends there, too.
    let store = store_packed(4, FIRST, 1, Packing::Leased);
    let floor = store.absence(T, 5).unwrap();
    store.confirm_absence(T, 5, floor, 400).unwrap();
    assert_eq!(store.reserve(T, 5, None, rule(Packing::Leased, 0)).unwrap().header.lease_end(), 400);
    assert!(store.confirm_absence(T, 5, floor, 500).is_err(), "somebody is about to create it");
    // A range that was read up to a time, and the leaves that were split off it since.
    let store = store_packed(100, FIRST, 1, Packing::Leased);
    let scan = Scan { table: T, from: 0, to: 1000, limit: 100, order: Order::Ascending };
    let page = store.page(&scan, 48, 0).unwrap();
    let leaves: Vec<_> = page.leaves().to_vec();
    assert!(store.leaves_stand(T, store.layout.shard(T, 0), 700, leaves.iter().copied()));
    for key in 0..60 {
        let slot = store.reserve(T, key, None, rule(Packing::Leased, 0)).unwrap();
        assert!(slot.header.lease_end() >= 700, "key {key}");
    }
    assert!(!store.leaves_stand(T, store.layout.shard(T, 0), 800, leaves.into_iter()));
}

proptest! {
    /// Versions: whatever was confirmed to be missing at a time, by its key or in a range, never comes to have been there then; and what
    /// a page does not name was not there at its time.
    #[test]
    fn nothing_comes_before_a_time_at_which_it_was_missing(
        ops in proptest::collection::vec((0u64..80, 1u64..300, 0u8..6), 1..400)
    ) {
        let store = store_packed(100, FIRST, 1, Packing::Versions);
        // When each key was there: from, to; and the times at which it was seen not to be.
        let mut lives: BTreeMap<u64, Vec<(u64, u64)>> = BTreeMap::new();
        let mut missing: BTreeMap<u64, u64> = BTreeMap::new();
        for (key, draw, what) in ops {
            let time = FIRST + draw;
            let alive = lives.get(&key).and_then(|l| l.last()).filter(|life| life.1 == u64::MAX).map(|life| life.0);
            match what {
                0..=2 => match store.reserve(T, key, None, rule(Packing::Versions, time)) {
                    Ok(slot) => {
                        prop_assert!(alive.is_none());
                        prop_assert!(missing.get(&key).is_none_or(|&seen| seen <= time), "{} at {}", key, time);
                        prop_assert!(lives.get(&key).and_then(|l| l.last()).is_none_or(|life| life.1 < time));
                        put(&store, key, slot.offset, time);
                        lives.entry(key).or_default().push((time, u64::MAX));
                    }
                    Err(refused) => prop_assert!(
                        refused.verdict == Verdict::Deny(Abort::TooLate) && refused.seen >= time
                            || refused.verdict == Verdict::Deny(Abort::Exists) && alive.is_some_and(|from| from <= time)
                    ),
                },
                3 if alive.is_some_and(|born| born < time) => {
                    prop_assert!(take_out(&store, Packing::Versions, key, time));
                    lives.get_mut(&key).unwrap().last_mut().unwrap().1 = time;
                }
                4 if store.confirm_absence(T, key, 0, time).is_ok() => {
                    let there = lives.get(&key).is_some_and(|l| l.iter().any(|&(from, to)| from <= time && time < to));
                    prop_assert!(!there, "{} was there at {}", key, time);
                    let seen = missing.entry(key).or_default();
                    *seen = time.max(*seen);
                }
                5 => {
                    let (from, to) = (key, key + 30);
                    let scan = Scan { table: T, from, to, limit: 100, order: Order::Ascending };
                    let page = store.page(&scan, 48, time).unwrap();
                    if page.removed_at > time || !page.ended {
                        continue;
                    }
                    for key in from..=to {
                        if page.rows().iter().any(|row| row.0 == key) {
                            continue;
                        }
                        let life = lives.get(&key).map_or(&[][..], Vec::as_slice);
                        prop_assert!(!life.iter().any(|&(from, to)| from <= time && time < to));
                        let seen = missing.entry(key).or_default();
                        *seen = time.max(*seen);
                    }
                }
                _ => {}
            }
        }
    }
}
