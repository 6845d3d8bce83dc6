//! The hash index: 128-byte buckets that one READ can probe.
//!
//! ```text
//! words 0..14   seven entries: key, location word
//! word 14       offset of the next bucket of the chain, 0 if there is none
//! word 15       of a chain's first bucket: `gate:1 | 0 | floor`, as wide as versions are
//! ```
//!
//! The *gate* is closed while the owner's CPU changes the chain. The *floor* is the latest version that a record of the chain
//! was removed at, counted from the store's first version. It stands for the absence of every key of the chain: who
//! finds a key in no bucket has read it "absent at the floor", and a later look that finds it in no bucket and the floor
//! unchanged shows that it was absent all the time. Records are created at versions beyond the floor, so the versions
//! of a key only grow, however often it comes and goes.
//!
//! A location word is `tag:16 | offset:48`, 0 while the entry is free; the tag comes from the key's hash. A READ
//! may see an entry half written: the owner writes the key first and the location word last, so a reader finds
//! no location, or one whose tag and record disagree with the key it looks for. Either way it learns that by
//! looking, never by trusting. Only the owner inserts and deletes (DrTM+H §6: inserts go to the owner), behind the gate;
//! `slots` tells how. Entries stay in their bucket, a freed one is used again, and a chain that has no free one grows by an
//! overflow bucket: one of its table's own, or, when those are used up, one in the reserve that the copy's tables share
//! (`store/reserve.rs`). Buckets are never taken out of a chain, and main buckets are never split.

use super::layout::{BUCKET_BYTES, BUCKET_ENTRIES, Layout, TableId, hash};
use super::record::Word;
use super::reserve::Purpose;
use super::{NodeStore, StoreError};
use crate::rule::Packing;
use primitives::mem::{Buf, Region};
use std::cell::Cell;
use std::sync::atomic::AtomicU64;

const LINK_WORD: usize = 14;
const GATE_WORD: u64 = 15;
const GATE: u64 = 1 << 63;
/// Looks at a closed gate before the thread lets others run: behind it is a hundred instructions' work.
const SPINS: u32 = 100;
const OFFSET_MASK: u64 = (1 << 48) - 1;

/// A location word for `key`.
#[inline]
pub(super) fn location_word(key: u64, offset: u64) -> u64 {
    hash(key) << 48 | offset
}

/// The offset in a location word, if its tag is `key`'s.
#[inline]
pub(super) fn offset_of(key: u64, word: u64) -> Option<u64> {
    (word != 0 && word >> 48 == hash(key) & 0xffff).then_some(word & OFFSET_MASK)
}

/// What a bucket says about a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// The record's offset.
    At(u64),
    /// Not here: the next bucket's offset.
    Next(u64),
    /// Nowhere in this chain.
    Nowhere,
}

#[inline]
fn probe(word: impl Fn(usize) -> u64, key: u64) -> Found {
    for entry in 0..BUCKET_ENTRIES as usize {
        if word(entry * 2) == key
            && let Some(offset) = offset_of(key, word(entry * 2 + 1))
        {
            return Found::At(offset);
        }
    }
    match word(LINK_WORD) {
        0 => Found::Nowhere,
        next => Found::Next(next),
    }
}

/// Looks for `key` in a bucket that was READ into `buf`.
pub(crate) fn probe_bucket(buf: &Buf, key: u64) -> Found {
    probe(|i| buf.word(i), key)
}

/// Entries and link of a bucket.
#[inline]
fn bucket_at(region: &Region, bucket: u64) -> &[AtomicU64] {
    &region.words()[(bucket / 8) as usize..][..LINK_WORD + 1]
}

#[inline]
fn probe_local(region: &Region, bucket: u64, key: u64) -> Found {
    let words = bucket_at(region, bucket);
    probe(|i| words[i].get(), key)
}

/// The floor of a chain whose first bucket was READ into `buf`; `None` while its owner changes the chain.
#[inline]
pub(crate) fn floor_of(buf: &Buf, layout: &Layout) -> Option<u64> {
    floor(buf.word(GATE_WORD as usize), layout)
}

#[inline]
fn floor(word: u64, layout: &Layout) -> Option<u64> {
    let config = layout.config();
    (word & GATE == 0).then_some(config.first_version.wrapping_add(word) & config.packing.version_mask())
}

/// Waits a little, and lets others run if it has waited for long: whoever is waited for may have lost its CPU.
#[inline]
fn spin(tries: &mut u32) {
    *tries += 1;
    if *tries > SPINS { std::thread::yield_now() } else { std::hint::spin_loop() }
}

/// Holds a bucket chain's gate; opens it when dropped.
pub(super) struct Gate<'r> {
    region: &'r Region,
    word: u64,
    first_version: u64,
    packing: Packing,
    floor: Cell<u64>,
}

impl<'r> Gate<'r> {
    pub(super) fn close(store: &'r NodeStore, first_bucket: u64) -> Gate<'r> {
        let (region, word) = (&store.region, first_bucket + GATE_WORD * 8);
        let mut tries = 0;
        loop {
            let seen = region.load(word);
            if seen & GATE == 0 && region.compare_swap(word, seen, seen | GATE) == seen {
                let (first_version, packing) =
                    (store.layout.config().first_version, store.layout.config().packing);
                return Gate { region, word, first_version, packing, floor: Cell::new(seen) };
            }
            spin(&mut tries);
        }
    }

    /// The version that stands for absence.
    pub(super) fn floor(&self) -> u64 {
        self.first_version.wrapping_add(self.floor.get()) & self.packing.version_mask()
    }

    /// Raises the floor to `version`, if that is later; visible at once, before what follows.
    pub(super) fn raise(&self, version: u64) {
        if self.packing.later(version, self.floor()) {
            self.floor.set(version.wrapping_sub(self.first_version) & self.packing.version_mask());
            self.region.store(self.word, self.floor.get() | GATE);
        }
    }
}

impl Drop for Gate<'_> {
    fn drop(&mut self) {
        self.region.store(self.word, self.floor.get());
    }
}

impl NodeStore {
    /// Offset of a record of this node's own partition.
    #[inline]
    pub fn locate(&self, table: TableId, key: u64) -> Option<u64> {
        self.locate_copy(0, table, key)
    }

    /// Asks for what looking a record of this node's own partition up begins with, see [`Region::ahead`];
    /// returns where that is.
    #[inline]
    pub(crate) fn ahead_of_bucket(&self, table: TableId, key: u64) -> u64 {
        let bucket = self.layout.bucket(0, table, key);
        self.region.ahead(bucket, BUCKET_BYTES);
        bucket
    }

    /// Asks for a record.
    #[inline]
    pub(crate) fn ahead_of_record(&self, table: TableId, offset: u64) {
        self.region.ahead(offset, self.layout.stride(table));
    }

    /// Offset of a record in one of the copies this node holds.
    #[inline]
    pub(crate) fn locate_copy(&self, copy: usize, table: TableId, key: u64) -> Option<u64> {
        self.locate_in(self.layout.bucket(copy, table, key), key)
    }

    /// Offset of the record that the chain which begins at `bucket` has for the key.
    #[inline]
    pub(crate) fn locate_in(&self, mut bucket: u64, key: u64) -> Option<u64> {
        loop {
            match probe_local(&self.region, bucket, key) {
                Found::At(offset) => return Some(offset),
                Found::Next(next) => bucket = next,
                Found::Nowhere => return None,
            }
        }
    }

    /// That there is no such record in this node's own partition, as the version that stands for it; `None` if there is one.
    pub(crate) fn absence(&self, table: TableId, key: u64) -> Option<u64> {
        let word = self.layout.bucket(0, table, key) + GATE_WORD * 8;
        let mut tries = 0;
        loop {
            let seen = self.region.load(word);
            if seen & GATE == 0 {
                if self.locate(table, key).is_some() {
                    return None;
                }
                if self.region.load(word) == seen {
                    return floor(seen, &self.layout);
                }
            }
            spin(&mut tries);
        }
    }

    /// The entry that leads to a record, in the chain that begins at `bucket`.
    pub(super) fn entry_of(&self, mut bucket: u64, key: u64, offset: u64) -> Option<u64> {
        while bucket != 0 {
            let mut entries = (0..BUCKET_ENTRIES).map(|i| bucket + i * 16);
            let leads = |&entry: &u64| {
                self.region.load(entry) == key && self.region.load(entry + 8) == location_word(key, offset)
            };
            if let Some(entry) = entries.find(leads) {
                return Some(entry);
            }
            bucket = self.region.load(bucket + LINK_WORD as u64 * 8);
        }
        None
    }

    /// Makes an entry lead to a record: the key first, so that a half-written one leads nowhere.
    pub(super) fn link(&self, entry: u64, key: u64, offset: u64) {
        self.region.store(entry, key);
        self.region.store(entry + 8, location_word(key, offset));
    }

    /// Frees an entry.
    pub(super) fn unlink(&self, entry: u64) {
        self.region.store(entry + 8, 0);
    }

    /// A free entry of the chain that begins at `first`, which is lengthened if it has none.
    pub(super) fn free_entry(
        &self,
        copy: usize,
        table: TableId,
        first: u64,
        key: u64,
    ) -> Result<u64, StoreError> {
        let mut bucket = first;
        let mut free = None;
        loop {
            let words = bucket_at(&self.region, bucket);
            for entry in 0..BUCKET_ENTRIES {
                let at = entry as usize * 2;
                match words[at + 1].get() {
                    0 => free = free.or(Some(bucket + entry * 16)),
                    _ if words[at].get() == key => return Err(StoreError::Duplicate { table, key }),
                    _ => {}
                }
            }
            match words[LINK_WORD].get() {
                0 => break,
                next => bucket = next,
            }
        }
        if let Some(entry) = free {
            return Ok(entry);
        }
        let part = self.layout.part(copy, table);
        let index = self.region.fetch_add(part.overflow_cursor, 1);
        let mut next = part.overflow + index * BUCKET_BYTES;
        if index >= part.overflow_count {
            self.region.fetch_add(part.overflow_cursor, u64::MAX);
            next = self.take_reserved(copy, table, Purpose::Buckets)?;
        }
        self.region.store(bucket + LINK_WORD as u64 * 8, next);
        Ok(next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::layout::{Layout, StoreConfig, TableSpec};
    use primitives::verbs::NodeId;
    use proptest::prelude::*;
    use std::collections::BTreeMap;
    use std::sync::Arc;

    fn store(rows: u64) -> NodeStore {
        let table = TableSpec {
            name: "t".into(),
            payload_words: 2,
            rows_per_node: rows,
            keys_per_block: 1,
            ordered: false,
        };
        let config = StoreConfig {
            tables: vec![table],
            nodes: 1,
            workers: 1,
            replicas: 1,
            log_ring_bytes: 0,
            reserve_bytes: 0,
            packing: Packing::Counted,
            first_version: 1,
        };
        NodeStore::new(NodeId(0), Arc::new(Layout::new(config).unwrap()))
    }

    proptest! {
        #[test]
        fn agrees_with_a_map(keys in proptest::collection::vec(0u64..200, 1..300)) {
            let store = store(150);
            let mut model = BTreeMap::new();
            for key in keys {
                let payload = [key * 3, key ^ 5];
                match store.insert(NodeId(0), TableId(0), key, &payload) {
                    Ok(_) => prop_assert!(model.insert(key, payload).is_none()),
                    Err(StoreError::Duplicate { .. }) => prop_assert!(model.contains_key(&key)),
                    Err(StoreError::Full { .. }) => prop_assert_eq!(model.len(), 150),
                    Err(e) => prop_assert!(false, "{}", e),
                }
            }
            for key in 0..200 {
                let got = store.get(TableId(0), key).map(|r| (r.version, r.payload));
                prop_assert_eq!(got, model.get(&key).map(|p| (1, p.to_vec())));
            }
        }
    }

    #[test]
    fn a_full_table_takes_all_its_rows_and_no_more() {
        for rows in [1, 7, 100, 5000] {
            let store = store(rows);
            for key in 0..rows {
                store.insert(NodeId(0), TableId(0), key << 20, &[1, 2]).unwrap();
            }
            assert!(matches!(store.insert(NodeId(0), TableId(0), 1, &[1, 2]), Err(StoreError::Full { .. })));
            assert!((0..rows).all(|key| store.locate(TableId(0), key << 20).is_some()));
        }
    }

    #[test]
    fn a_half_written_entry_is_not_found() {
        let bucket = |key, word| {
            probe(
                |i| {
                    if i == 2 {
                        key
                    } else if i == 3 {
                        word
                    } else {
                        0
                    }
                },
                42,
            )
        };
        assert_eq!(bucket(42, location_word(42, 640)), Found::At(640));
        assert_eq!(bucket(42, 0), Found::Nowhere);
        assert_eq!(bucket(42, location_word(43, 640)), Found::Nowhere, "another key's location");
        assert_eq!(bucket(43, location_word(42, 640)), Found::Nowhere);
    }

    #[test]
    fn concurrent_inserts_lose_nothing() {
        let store = store(2000);
        std::thread::scope(|scope| {
            for t in 0..2u64 {
                let store = &store;
                scope.spawn(move || {
                    for i in 0..1000 {
                        store.insert(NodeId(0), TableId(0), i * 2 + t, &[i, t]).unwrap();
                    }
                });
            }
        });
        for key in 0..2000 {
            assert_eq!(store.get(TableId(0), key).unwrap().payload, [key / 2, key % 2]);
        }
    }
}
