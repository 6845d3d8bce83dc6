use super::*;

mod times;

use crate::rule::{OnConflict, Owner, Stamp};
use crate::store::layout::{StoreConfig, TableSpec};
use crate::txn::{Order, Scan};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::Arc;

const T: TableId = TableId(0);
const FIRST: u64 = 7;

fn store_of(rows: u64, first_version: u64, replicas: u16) -> NodeStore {
    store_packed(rows, first_version, replicas, Packing::Counted)
}

fn store_packed(rows: u64, first_version: u64, replicas: u16, packing: Packing) -> NodeStore {
    let table = TableSpec {
        name: "t".into(),
        payload_words: 2,
        rows_per_node: rows,
        keys_per_block: 1 << 20,
        ordered: true,
    };
    let config = StoreConfig {
        tables: vec![table],
        nodes: replicas,
        workers: 1,
        replicas,
        log_ring_bytes: 1024,
        reserve_bytes: 0,
        packing,
        first_version,
    };
    NodeStore::new(NodeId(0), Arc::new(Layout::new(config).unwrap()))
}

fn store(rows: u64) -> NodeStore {
    store_of(rows, FIRST, 1)
}

fn owner() -> Owner {
    Owner::new(NodeId(3), 2, 1)
}

fn me() -> LockRule {
    LockRule::optimistic(Stamp::new(owner(), 1), OnConflict::Fail)
}

/// What an install does by whatever primitive.
fn install(store: &NodeStore, key: u64, slot: Reserved, payload: [u64; 2]) -> u64 {
    let version = slot.header.next().version();
    record::write_local(&store.region, slot.offset, store.layout.shape(T), version, key, &payload);
    version
}

fn create(store: &NodeStore, key: u64, payload: [u64; 2]) -> Result<(u64, u64), Abort> {
    let slot = store.reserve(T, key, None, me()).map_err(abort)?;
    Ok((slot.offset, install(store, key, slot, payload)))
}

fn abort(refused: Refused) -> Abort {
    match refused.verdict {
        Verdict::Deny(abort) => abort,
        other => panic!("{other:?} is not a refusal"),
    }
}

/// Locks and removes; the version left behind.
fn destroy(store: &NodeStore, key: u64) -> u64 {
    let offset = store.locate(T, key).unwrap();
    let header = Header(store.region.load(offset));
    assert!(!header.locked());
    store.region.store(offset, header.lock(owner()).0);
    let version = header.next().version();
    assert!(store.remove(T, key, offset, version));
    version
}

fn keys_in_order(store: &NodeStore) -> Vec<u64> {
    let mut keys = Vec::new();
    let mut scan =
        Some(Scan { table: T, from: 0, to: (1 << 20) - 1, limit: 1 << 20, order: Order::Ascending });
    while let Some(part) = scan {
        let page = store.page(&part, usize::MAX, 0).unwrap();
        keys.extend(page.rows().iter().map(|row| row.0));
        scan = page.rows().last().filter(|_| !page.ended).and_then(|row| part.behind(row.0, 0));
    }
    keys
}

proptest! {
    /// Records come and go, a full table refuses, slots and index entries are used again; index, tree and map agree, and the
    /// versions of keys and of slots only grow.
    #[test]
    fn agrees_with_a_map(ops in proptest::collection::vec((0u64..60, 0u8..4), 1..500), wraps: bool) {
        let first = if wraps { (1 << 39) - 20 } else { FIRST };
        let store = store_of(40, first, 1);
        let mut model: BTreeMap<u64, [u64; 2]> = BTreeMap::new();
        let mut last_of_key: BTreeMap<u64, u64> = BTreeMap::new();
        let mut last_of_slot: BTreeMap<u64, u64> = BTreeMap::new();
        for (n, (key, what)) in ops.into_iter().enumerate() {
            let payload = [key, n as u64];
            let floor = store.absence(T, key);
            prop_assert_eq!(floor.is_none(), model.contains_key(&key));
            match what {
                0 | 1 => match create(&store, key, payload) {
                    Ok((offset, version)) => {
                        prop_assert!(model.insert(key, payload).is_none());
                        let known = [last_of_key.insert(key, version), last_of_slot.insert(offset, version), floor];
                        for before in known.into_iter().flatten() {
                            prop_assert!(Packing::Counted.later(version, before));
                        }
                    }
                    Err(Abort::Exists) => prop_assert!(model.contains_key(&key)),
                    Err(Abort::TableFull) => prop_assert_eq!(model.len(), 40),
                    Err(other) => prop_assert!(false, "{}", other),
                },
                2 if model.remove(&key).is_some() => {
                    let offset = store.locate(T, key).unwrap();
                    let version = destroy(&store, key);
                    let floor = store.absence(T, key).unwrap();
                    prop_assert!(!Packing::Counted.later(version, floor));
                    last_of_key.insert(key, version);
                    last_of_slot.insert(offset, version);
                }
                3 => if let Ok(slot) = store.reserve(T, key, None, me()) {
                    prop_assert!(!model.contains_key(&key));
                    prop_assert_eq!(store.reserve(T, key, None, me()), Err(Abort::LockConflict.into()));
                    prop_assert!(store.get(T, key).is_none(), "a slot set aside is no record");
                    prop_assert!(store.undo(T, key, slot.offset, slot.header));
                    prop_assert!(!store.undo(T, key, slot.offset, slot.header), "once");
                    prop_assert_eq!(store.absence(T, key), floor, "nothing came, nothing went");
                },
                _ => {}
            }
        }
        for key in 0..60 {
            let got = store.get(T, key).map(|r| r.payload);
            prop_assert_eq!(got, model.get(&key).map(|p| p.to_vec()));
        }
        prop_assert_eq!(keys_in_order(&store), model.keys().copied().collect::<Vec<_>>());
        let mut all = Vec::new();
        store.for_each(NodeId(0), T, |key, record| all.push((key, record.is_some())));
        all.sort_unstable();
        prop_assert_eq!(all, model.keys().map(|&key| (key, true)).collect::<Vec<_>>());
    }

    /// A backup hears of a key's versions in any order, as logs of different workers are applied, and ends where the
    /// primary is.
    #[test]
    fn a_backup_ends_where_the_primary_is(
        lives in proptest::collection::vec((1u64..4, any::<bool>()), 1..6),
        order in proptest::collection::vec(any::<prop::sample::Index>(), 30),
    ) {
        let store = store_of(4, FIRST, 2);
        let mut version = FIRST;
        let mut log = Vec::new();
        let last = lives.len() - 1;
        for (n, (updates, removed)) in lives.into_iter().enumerate() {
            for _ in 0..updates {
                version += 1;
                log.push((version, true));
            }
            if removed || n < last {
                version += 1;
                log.push((version, false));
            }
            version += 3;
        }
        let &(end, there) = log.last().unwrap();
        let mut order = order.into_iter();
        while !log.is_empty() {
            let (version, there) = log.remove(order.next().map_or(0, |i| i.index(log.len())));
            let payload = [version, version * 2];
            store.bring_copy_to(1, T, 9, version, there.then_some(&payload[..])).unwrap();
        }
        let got = store.get(T, 9).map(|r| (r.version, r.payload));
        // Key 9 lies in block 0, whose primary is node 0 itself: look into the copy.
        prop_assert_eq!(got, None);
        let copy = store.locate_copy(1, T, 9).and_then(|at| store.stored(T, at)).map(|r| (r.version, r.payload));
        prop_assert_eq!(copy, there.then(|| (end, vec![end, end * 2])));
    }
}

#[test]
fn a_slot_that_is_used_again_deceives_nobody() {
    let store = store(1);
    let (offset, version) = create(&store, 5, [1, 2]).unwrap();
    let read = Header::new(version);
    assert_eq!(Header(store.region.load(offset)), read);
    destroy(&store, 5);
    // The same slot, the same key, then another key: never again the version that was read, and never an unlocked header
    // while there is no record.
    assert!(Header(store.region.load(offset)).locked());
    for key in [5, 5, 6, 5] {
        let (again, newer) = create(&store, key, [1, 2]).unwrap();
        assert_eq!(again, offset);
        assert_ne!(Header(store.region.load(offset)), read);
        assert!(newer > version);
        assert_eq!(create(&store, 7, [0, 0]), Err(Abort::TableFull));
        destroy(&store, key);
    }
}

#[test]
fn who_has_looked_before_creates_only_what_was_absent_all_the_time() {
    let store = store(10);
    let seen = store.absence(T, 5).unwrap();
    create(&store, 5, [0, 0]).unwrap();
    assert_eq!(store.reserve(T, 5, Some(seen), me()), Err(Abort::WriteChanged.into()));
    destroy(&store, 5);
    assert_eq!(store.reserve(T, 5, Some(seen), me()), Err(Abort::WriteChanged.into()));
    let seen = store.absence(T, 5).unwrap();
    assert!(store.reserve(T, 5, Some(seen), me()).is_ok());
}

#[test]
fn what_a_peer_makes_up_changes_nothing() {
    let store = store(10);
    let (offset, version) = create(&store, 5, [1, 2]).unwrap();
    let slot = store.reserve(T, 6, None, me()).unwrap();
    let before = (store.get(T, 5), keys_in_order(&store));
    // Not locked; not a record; another's; locked for another version; set aside, not a record.
    assert!(!store.remove(T, 5, offset, version + 1));
    assert!(!store.undo(T, 5, offset, Header::new(version)));
    assert!(!store.remove(T, 5, 8, version + 1));
    assert!(!store.remove(T, 6, slot.offset, slot.header.next().version()));
    assert!(!store.undo(T, 6, offset, slot.header));
    store.region.store(offset, Header::new(version).lock(owner()).0);
    assert!(!store.remove(T, 5, offset, version + 2));
    assert!(
        !store.undo(T, 5, offset, Header::new(version).lock(owner())),
        "a record is not a slot set aside"
    );
    store.region.store(offset, version);
    assert_eq!((store.get(T, 5), keys_in_order(&store)), before);
    assert!(store.undo(T, 6, slot.offset, slot.header));
}

#[test]
fn workers_of_an_owner_come_and_go_at_once() {
    let store = store(400);
    std::thread::scope(|scope| {
        for t in 0..3u64 {
            let store = &store;
            scope.spawn(move || {
                let mut mine = BTreeMap::new();
                let mut random = t + 1;
                for n in 0..4000u64 {
                    random = random
                        .wrapping_mul(6_364_136_223_846_793_005)
                        .wrapping_add(1_442_695_040_888_963_407);
                    let key = (random >> 33) % 100 * 3 + t;
                    if mine.remove(&key).is_some() {
                        destroy(store, key);
                        assert!(store.absence(T, key).is_some());
                    } else if random >> 20 & 1 == 0 {
                        create(store, key, [n, t]).unwrap();
                        mine.insert(key, n);
                    } else {
                        let slot = store.reserve(T, key, None, me()).unwrap();
                        assert!(store.undo(T, key, slot.offset, slot.header));
                    }
                    assert_eq!(store.get(T, key).map(|r| r.payload), mine.get(&key).map(|&n| vec![n, t]));
                }
            });
        }
    });
    let mut hashed = Vec::new();
    store.for_each(NodeId(0), T, |key, record| {
        assert!(record.is_some_and(|r| !r.locked));
        hashed.push(key);
    });
    hashed.sort_unstable();
    assert_eq!(keys_in_order(&store), hashed);
}

#[test]
fn chains_grow_until_the_index_is_full_and_freed_entries_are_used_again() {
    // Keys that all meet in one bucket: the chain takes all overflow buckets before the table has no slot left.
    let store = store(1000);
    let bucket = store.layout.bucket(0, T, 0);
    let mut keys = (0..1 << 20).filter(|&k| store.layout.bucket(0, T, k) == bucket);
    let mut there = Vec::new();
    let refused = loop {
        let key = keys.next().unwrap();
        match create(&store, key, [key, 0]) {
            Ok(_) => there.push(key),
            Err(abort) => break (key, abort),
        }
    };
    assert_eq!(refused.1, Abort::TableFull);
    assert!((400..1000).contains(&there.len()), "{}", there.len());
    assert!(there.iter().all(|&key| store.locate(T, key).is_some()));
    for &key in there.iter().step_by(2) {
        destroy(&store, key);
    }
    for (n, &key) in there.iter().enumerate() {
        assert_eq!(store.locate(T, key).is_some(), n % 2 == 1);
    }
    assert!(create(&store, refused.0, [0, 0]).is_ok());
    assert_eq!(keys_in_order(&store).len(), there.len() / 2 + 1);
}
