use super::*;
use crate::rule::Packing;
use crate::store::index::{Found, probe_bucket};
use crate::store::layout::{BUCKET_ENTRIES, StoreConfig, TableSpec};
use primitives::mem::{BufPool, Region};
use primitives::verbs::Lkey;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

const A: TableId = TableId(0);
const B: TableId = TableId(1);
const HERE: NodeId = NodeId(0);

/// Two tables of `rows` records each, which take 64 and 320 bytes a record.
fn config(rows: u64, reserve_bytes: u64) -> StoreConfig {
    let table = |name: &str, payload_words| TableSpec {
        name: name.into(),
        payload_words,
        rows_per_node: rows,
        keys_per_block: 1 << 30,
        ordered: false,
    };
    StoreConfig {
        tables: vec![table("narrow", 2), table("wide", 34)],
        nodes: 2,
        workers: 1,
        replicas: 2,
        log_ring_bytes: 1024,
        reserve_bytes,
        packing: Packing::Counted,
        first_version: 1,
    }
}

fn store(rows: u64, reserve_bytes: u64) -> NodeStore {
    NodeStore::new(HERE, Arc::new(Layout::new(config(rows, reserve_bytes)).unwrap()))
}

fn insert(store: &NodeStore, table: TableId, key: u64) -> Result<u64, StoreError> {
    let payload = vec![key; store.layout.payload_words(table) as usize];
    store.insert(HERE, table, key, &payload)
}

/// Keys from `from` on, inserted until there is no room; the refusal.
fn fill(store: &NodeStore, table: TableId, from: u64) -> (u64, StoreError) {
    let mut key = from;
    loop {
        match insert(store, table, key) {
            Ok(_) => key += 1,
            Err(refused) => return (key - from, refused),
        }
    }
}

fn is_there(store: &NodeStore, table: TableId, key: u64) -> bool {
    let record = store.get(table, key);
    assert!(record.iter().all(|r| r.payload.iter().all(|&word| word == key) && !r.locked));
    record.is_some()
}

#[test]
fn records_beyond_those_declared_are_found_listed_and_known_for_what_they_are() {
    let store = store(10, 16 << 10);
    let offsets: BTreeMap<u64, u64> = (0..100).map(|key| (key, insert(&store, A, key).unwrap())).collect();
    assert_eq!(offsets.values().collect::<BTreeSet<_>>().len(), 100, "each has a place of its own");
    let (extents, stride) = (store.layout.extents(0), store.layout.stride(A));
    let beyond = offsets.values().filter(|&&at| !store.layout.may_be_record(A, at));
    assert_eq!(beyond.clone().count(), 90);
    for &offset in beyond {
        let (_, behind) = extents.place(offset).expect("in the reserve of the first copy");
        assert!(behind + stride <= extents.each, "none lies across two extents");
        assert!(store.is_record(A, offset) && !store.is_record(B, offset));
        assert!(!store.is_record(A, offset + 8) && !store.is_record(A, extents.start + extents.bytes()));
    }
    assert!((0..100).all(|key| is_there(&store, A, key)) && !is_there(&store, A, 100));
    let mut listed = Vec::new();
    store.for_each(HERE, A, |key, record| listed.push((key, record.is_some())));
    listed.sort_unstable();
    assert_eq!(listed, (0..100).map(|key| (key, true)).collect::<Vec<_>>());
    // The other copy has a reserve of its own, of which nothing is gone.
    assert_eq!(store.owned.reserves.own[1].given.load(Ordering::Relaxed), 0);
    for key in 0..100 {
        store.bring_copy_to(1, A, key, 1, Some(&[key, key])).unwrap();
    }
    let copied: BTreeSet<u64> = (0..100).map(|key| store.locate_copy(1, A, key).unwrap()).collect();
    assert!(copied.len() == 100 && copied.iter().all(|at| !offsets.values().any(|other| other == at)));
    let mut listed = 0;
    store.for_each(NodeId(1), A, |_, _| listed += 1);
    assert_eq!(listed, 100);
}

/// What a peer does, READ by READ: buckets of the reserve are buckets like others.
#[test]
fn chains_go_on_in_the_reserve_and_their_floor_stays_in_front() {
    let store = store(10, 64 << 10);
    let layout = store.layout.clone();
    // One main bucket of two, and more keys than all overflow buckets of the table take.
    let first = layout.bucket(0, A, 0);
    let keys: Vec<u64> = (0..1 << 20).filter(|&key| layout.bucket(0, A, key) == first).take(200).collect();
    for &key in &keys {
        insert(&store, A, key).unwrap();
    }
    let pool = BufPool::new(Region::new(1 << 16), Lkey(0));
    let walk = |key| {
        let buf = pool.take(BUCKET_BYTES as u32).unwrap();
        let (into, place) = buf.place();
        let (mut at, mut reserved, mut reads) = (first, 0, 0);
        loop {
            Region::copy(&store.region, at, into, place, BUCKET_BYTES);
            reads += 1;
            reserved += u64::from(layout.extents(0).place(at).is_some());
            match probe_bucket(&buf, key) {
                Found::At(offset) => return (Some(offset), reads, reserved),
                Found::Next(next) => at = next,
                Found::Nowhere => return (None, reads, reserved),
            }
        }
    };
    let mut most = 0;
    for &key in &keys {
        let (found, reads, reserved) = walk(key);
        assert_eq!(found, store.locate(A, key));
        assert!(found.is_some() && reserved < reads);
        most = most.max(reserved);
    }
    // Twenty-nine buckets: the main one, as many overflow buckets as the table has, and the rest in the reserve.
    let own = layout.part(0, A).overflow_count;
    assert_eq!((most, own), (200u64.div_ceil(7) - 1 - own, 8));
    let absent = (0..1 << 20).find(|key| layout.bucket(0, A, *key) == first && !keys.contains(key)).unwrap();
    assert_eq!(walk(absent).0, None);

    // Its absence is read at the chain's floor, and is no longer believed once a record came and went in a bucket of the reserve.
    let before = store.absence(A, absent).unwrap();
    let last = *keys.last().unwrap();
    assert!(walk(last).2 > 0);
    let offset = store.locate(A, last).unwrap();
    let header = crate::rule::Header(store.region.load(offset));
    store.region.store(offset, header.lock(crate::rule::Owner::new(HERE, 0, 1)).0);
    assert!(store.remove(A, last, offset, header.version() + 1));
    let after = store.absence(A, absent).unwrap();
    assert_eq!(after, header.version() + 1);
    assert_eq!(store.absence(A, last), Some(after));
    assert!(store.confirm_absence(A, absent, before, 0).is_err());
    assert!(store.confirm_absence(A, absent, after, 0).is_ok());
    // The slot and the entry are taken again, in the reserve.
    assert_eq!(insert(&store, A, last).unwrap(), offset);
    assert_eq!(store.absence(A, last), None);
}

#[test]
fn tables_share_what_there_is_and_the_refusal_says_what_that_was() {
    // Eight extents of 1 KiB: 16 narrow records each, or three wide ones.
    let store = store(4, 8 << 10);
    assert_eq!((store.layout.stride(A), store.layout.stride(B)), (64, 320));
    assert!(store.refused().is_none());
    let taken: Vec<u64> = (0..5)
        .map(|key| insert(&store, B, key).unwrap())
        .filter(|&at| store.layout.extents(0).place(at).is_some())
        .collect();
    assert_eq!(taken.len(), 1, "one wide record beyond, and so one extent");
    let (narrow, refused) = fill(&store, A, 0);
    // A hundred keys fill fifteen buckets, of which the table has nine itself: one extent for the others, and six for records.
    let StoreError::Full { ref name, capacity: 4, beyond: 96, reserve_bytes: 8192, .. } = refused else {
        panic!("{refused}")
    };
    assert_eq!((name.as_str(), narrow), ("narrow", 100));
    let text = refused.to_string();
    for what in ["narrow", "node 0", "4 records", "96 in the reserve of 8192 B", "`reserve_bytes`"] {
        assert!(text.contains(what), "{what}: {text}");
    }
    assert_eq!(store.refused(), Some(&refused));
    // The other table still fills its own extent, and no more.
    assert_eq!(fill(&store, B, 5).0, 2);
    assert!((0..narrow).all(|key| is_there(&store, A, key)) && (0..7).all(|key| is_there(&store, B, key)));
}

#[test]
fn an_index_takes_what_the_reserve_has_and_the_refusal_says_what_that_was() {
    let store = store(1000, 2 << 10);
    let first = store.layout.bucket(0, A, 0);
    let mut keys = (0..1 << 20).filter(|&key| store.layout.bucket(0, A, key) == first);
    let mut there = Vec::new();
    let refused = loop {
        let key = keys.next().unwrap();
        match insert(&store, A, key) {
            Ok(_) => there.push(key),
            Err(refused) => break refused,
        }
    };
    assert!(
        matches!(refused, StoreError::IndexFull { buckets: 58, beyond: 16, reserve_bytes: 2048, .. }),
        "{refused}"
    );
    assert_eq!(there.len(), 7 * (1 + 58 + 16));
    assert!(there.iter().all(|&key| is_there(&store, A, key)));
    let text = refused.to_string();
    for what in ["narrow", "node 0", "58 overflow buckets", "16 in the reserve of 2048 B", "`reserve_bytes`"]
    {
        assert!(text.contains(what), "{what}: {text}");
    }
}

#[test]
fn a_table_without_a_reserve_takes_what_it_declares() {
    let store = store(10, 0);
    let (there, refused) = fill(&store, A, 0);
    assert_eq!(there, 10);
    assert!(
        matches!(refused, StoreError::Full { capacity: 10, beyond: 0, reserve_bytes: 0, .. }),
        "{refused}"
    );
    assert!(!store.is_record(A, store.layout.region_bytes() - 64));
}

#[test]
fn slots_of_extents_that_were_freed_are_taken_again() {
    let store = store(4, 8 << 10);
    let (there, _) = fill(&store, A, 0);
    let of_reserve = |key: &u64| store.layout.extents(0).place(store.locate(A, *key).unwrap()).is_some();
    let gone: Vec<u64> = (0..there).filter(of_reserve).collect();
    let slots: BTreeSet<u64> = gone.iter().map(|&key| store.locate(A, key).unwrap()).collect();
    assert!(slots.len() as u64 == there - 4);
    for &key in &gone {
        let offset = store.locate(A, key).unwrap();
        let header = crate::rule::Header(store.region.load(offset));
        store.region.store(offset, header.lock(crate::rule::Owner::new(HERE, 0, 1)).0);
        assert!(store.remove(A, key, offset, header.version() + 1));
        assert!(!is_there(&store, A, key));
    }
    let again: BTreeSet<u64> = gone.iter().map(|&key| insert(&store, A, key).unwrap()).collect();
    assert_eq!(again, slots);
    assert!(matches!(insert(&store, A, there), Err(StoreError::Full { .. })));
}

#[test]
fn a_peer_believes_places_in_the_reserve_of_which_it_has_heard() {
    let owner = store(4, 8 << 10);
    let peer = NodeStore::new(NodeId(1), owner.layout.clone());
    let reserved = |table| (0..5).map(|key| insert(&owner, table, key).unwrap()).max().unwrap();
    let (narrow, wide) = (reserved(A), reserved(B));
    assert!(peer.may_be_record(HERE, A, owner.locate(A, 0).unwrap()), "a table's own part is known to all");
    assert!(!peer.may_be_record(HERE, A, narrow) && !peer.may_be_record(HERE, B, wide));
    peer.learn(HERE, A, narrow);
    let stride = owner.layout.stride(A);
    assert!(peer.may_be_record(HERE, A, narrow) && peer.may_be_record(HERE, A, narrow + stride));
    assert!(!peer.may_be_record(HERE, B, narrow), "another table's");
    assert!(!peer.may_be_record(HERE, A, narrow + 8), "between two records");
    assert!(!peer.may_be_record(HERE, B, wide), "an extent of which it has not heard");
    assert!(!peer.may_be_record(NodeId(1), A, narrow), "its own is another");
    // What makes no sense is no place.
    for offset in [0, 8, owner.layout.region_bytes(), u64::MAX] {
        peer.learn(HERE, A, offset);
        assert!(!peer.may_be_record(HERE, A, offset), "{offset}");
    }
}

/// Threads that meet where an extent begins: every record has a place of its own, and none is lost.
#[test]
fn workers_take_from_the_reserve_at_once() {
    let store = store(16, 1 << 20);
    std::thread::scope(|scope| {
        for t in 0..4u64 {
            let store = &store;
            scope.spawn(move || {
                for i in 0..500 {
                    insert(store, if t % 2 == 0 { A } else { B }, i * 4 + t).unwrap();
                }
            });
        }
    });
    let mut places = Vec::new();
    for (table, first) in [(A, 0), (A, 2), (B, 1), (B, 3)] {
        for i in 0..500 {
            let key = i * 4 + first;
            assert!(is_there(&store, table, key));
            let at = store.locate(table, key).unwrap();
            assert!(store.is_record(table, at));
            places.push((at, at + store.layout.stride(table)));
        }
    }
    places.sort_unstable();
    assert!(places.windows(2).all(|pair| pair[0].1 <= pair[1].0));
}

/// Threads that fill a reserve to its end: each place is given out once, and none is left over.
#[test]
fn who_take_from_a_reserve_at_once_share_it_to_the_last_place() {
    let layout = Layout::new(config(1, 256 << 10)).unwrap();
    let extents = layout.extents(0);
    for _ in 0..20 {
        let reserves = Reserves::new(&layout);
        let (reserve, start) = (&reserves.own[0], std::sync::Barrier::new(4));
        let take_all = || {
            start.wait();
            std::iter::from_fn(|| reserve.take(extents, holder(A, Purpose::Records), 64)).collect::<Vec<_>>()
        };
        let mut places: Vec<u64> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(take_all)).collect();
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
        });
        places.sort_unstable();
        let all: Vec<u64> = (0..extents.bytes() / 64).map(|n| extents.start + n * 64).collect();
        assert!(places == all, "{} places of {}", places.len(), all.len());
    }
}

/// Of two who have seen the same extent filled, the second goes on in the one that the first has taken.
#[test]
fn an_extent_that_somebody_else_has_begun_is_shared() {
    let layout = Layout::new(config(1, 2048)).unwrap();
    let reserves = Reserves::new(&layout);
    let (reserve, extents) = (&reserves.own[0], layout.extents(0));
    let records = holder(A, Purpose::Records);
    assert!(matches!(reserve.begin(extents, records, 0), Begun::At(at) if at == extents.start));
    assert!(matches!(reserve.begin(extents, records, 0), Begun::BySomebodyElse));
    assert_eq!(reserve.take(extents, records, 64), Some(extents.start + 64));
    assert!(matches!(reserve.begin(extents, holder(B, Purpose::Records), 0), Begun::At(_)));
    assert!(matches!(reserve.begin(extents, holder(B, Purpose::Buckets), 0), Begun::NoneLeft));
}

/// READs of a lookup through the index, by how many times the declared records a table holds: the table in `layout`'s documentation.
#[test]
fn reads_of_a_lookup_grow_with_what_was_not_declared() {
    let rows = 20_000;
    let store = store(rows, 16 << 20);
    let mut measured = Vec::new();
    let mut key = 0;
    for times in [1, 2, 4] {
        while key < rows * times {
            insert(&store, A, key).unwrap();
            key += 1;
        }
        let reads = |key| {
            let (mut at, mut reads) = (store.layout.bucket(0, A, key), 1u64);
            loop {
                let word = |n: u64| store.region.load(at + n * 8);
                if word(14) == 0 || (0..BUCKET_ENTRIES).any(|n| word(n * 2) == key && word(n * 2 + 1) != 0) {
                    return reads;
                }
                (at, reads) = (word(14), reads + 1);
            }
        };
        let mean = |keys: std::ops::Range<u64>| {
            let count = keys.end - keys.start;
            keys.map(reads).sum::<u64>() as f64 / count as f64
        };
        measured.push((times, mean(0..key), mean(1 << 40..(1 << 40) + rows)));
    }
    let expected = [(1, 1.05, 1.13), (2, 1.34, 1.86), (4, 2.03, 3.28)];
    for ((times, there, absent), (_, want, want_absent)) in measured.into_iter().zip(expected) {
        assert!(
            (there - want).abs() < 0.01 && (absent - want_absent).abs() < 0.01,
            "{times}: {there}, {absent}"
        );
    }
}
