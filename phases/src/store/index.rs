//! The hash index: 128-byte buckets that one READ can probe.
//!
//! ```text
//! words 0..14   seven entries: key, location word
//! word 14       offset of the next bucket of the chain, 0 if there is none
//! word 15       taken by the owner's CPU while it inserts
//! ```
//!
//! A location word is `tag:16 | offset:48`, 0 while the entry is free; the tag comes from the key's hash. A READ
//! may see an entry half written: the owner writes the key first and the location word last, so a reader finds
//! no location, or one whose tag and record disagree with the key it looks for. Either way it learns that by
//! looking, never by trusting. Only the owner inserts (DrTM+H §6: inserts go to the owner), under the bucket's
//! own word: inserting is not on the data path of the workloads that measure it.

use super::layout::{BUCKET_ENTRIES, TableId, hash};
use super::{NodeStore, StoreError, record};
use primitives::mem::{Buf, Region};
use primitives::verbs::NodeId;

const LINK_WORD: usize = 14;
const GATE_WORD: u64 = 15;
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

fn probe_local(region: &Region, bucket: u64, key: u64) -> Found {
    let words = &region.words()[(bucket / 8) as usize..][..LINK_WORD + 1];
    probe(|i| words[i].load(std::sync::atomic::Ordering::Acquire), key)
}

/// Holds a bucket chain's gate; opens it when dropped.
struct Gate<'r> {
    region: &'r Region,
    word: u64,
}

impl<'r> Gate<'r> {
    fn close(region: &'r Region, bucket: u64) -> Gate<'r> {
        let word = bucket + GATE_WORD * 8;
        while region.compare_swap(word, 0, 1) != 0 {
            std::hint::spin_loop();
        }
        Gate { region, word }
    }
}

impl Drop for Gate<'_> {
    fn drop(&mut self) {
        self.region.store(self.word, 0);
    }
}

impl NodeStore {
    /// Offset of a record of this node's own partition.
    #[inline]
    pub fn locate(&self, table: TableId, key: u64) -> Option<u64> {
        self.locate_copy(0, table, key)
    }

    /// Offset of a record in one of the copies this node holds.
    #[inline]
    pub(crate) fn locate_copy(&self, copy: usize, table: TableId, key: u64) -> Option<u64> {
        let mut bucket = self.layout.bucket(copy, table, key);
        loop {
            match probe_local(&self.region, bucket, key) {
                Found::At(offset) => return Some(offset),
                Found::Next(next) => bucket = next,
                Found::Nowhere => return None,
            }
        }
    }

    /// Inserts a record of `primary`'s partition, at the store's first version. By the owner's CPU only.
    ///
    /// # Errors
    /// If this node holds no copy of the partition, the payload has another length, the key is there already, or
    /// there is no room.
    pub fn insert(
        &self,
        primary: NodeId,
        table: TableId,
        key: u64,
        payload: &[u64],
    ) -> Result<u64, StoreError> {
        if !self.layout.has(table) {
            return Err(StoreError::NoTable { table });
        }
        let want = self.layout.payload_words(table);
        if payload.len() != want as usize {
            return Err(StoreError::Payload { table, got: payload.len(), want });
        }
        let copy =
            self.layout.copy(self.node, primary).ok_or(StoreError::NoCopy { node: self.node, primary })?;
        let first = self.layout.config().first_version;
        self.insert_version(copy, table, key, first, payload.iter().copied())
    }

    /// Inserts a record into one of the copies this node holds; the payload has the table's length.
    pub(crate) fn insert_version(
        &self,
        copy: usize,
        table: TableId,
        key: u64,
        version: u64,
        payload: impl Iterator<Item = u64> + Clone,
    ) -> Result<u64, StoreError> {
        let first = self.layout.bucket(copy, table, key);
        let _gate = Gate::close(&self.region, first);
        let entry = self.free_entry(copy, table, first, key)?;
        let part = self.layout.part(copy, table);
        let index = self.region.fetch_add(part.record_cursor, 1);
        if index >= part.record_count {
            self.region.fetch_add(part.record_cursor, u64::MAX);
            return Err(StoreError::Full { table, node: self.node, capacity: part.record_count });
        }
        let offset = part.records + index * self.layout.stride(table);
        record::write_local(&self.region, offset, self.layout.shape(table), version, key, payload);
        self.region.store(entry, key);
        self.region.store(entry + 8, location_word(key, offset));
        Ok(offset)
    }

    /// A free entry of the chain that begins at `first`, which is lengthened if it has none.
    fn free_entry(&self, copy: usize, table: TableId, first: u64, key: u64) -> Result<u64, StoreError> {
        let mut bucket = first;
        let mut free = None;
        loop {
            for entry in (0..BUCKET_ENTRIES).map(|i| bucket + i * 16) {
                match self.region.load(entry + 8) {
                    0 => free = free.or(Some(entry)),
                    _ if self.region.load(entry) == key => return Err(StoreError::Duplicate { table, key }),
                    _ => {}
                }
            }
            match self.region.load(bucket + LINK_WORD as u64 * 8) {
                0 => break,
                next => bucket = next,
            }
        }
        if let Some(entry) = free {
            return Ok(entry);
        }
        let part = self.layout.part(copy, table);
        let index = self.region.fetch_add(part.overflow_cursor, 1);
        if index >= part.overflow_count {
            self.region.fetch_add(part.overflow_cursor, u64::MAX);
            let buckets = part.overflow_count;
            return Err(StoreError::IndexFull { table, node: self.node, buckets });
        }
        let next = part.overflow + index * super::layout::BUCKET_BYTES;
        self.region.store(bucket + LINK_WORD as u64 * 8, next);
        Ok(next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rule::Packing;
    use crate::store::layout::{Layout, StoreConfig, TableSpec};
    use proptest::prelude::*;
    use std::collections::BTreeMap;
    use std::sync::Arc;

    fn store(rows: u64) -> NodeStore {
        let table = TableSpec { name: "t".into(), payload_words: 2, rows_per_node: rows, keys_per_block: 1 };
        let config = StoreConfig {
            tables: vec![table],
            nodes: 1,
            workers: 1,
            replicas: 1,
            log_ring_bytes: 0,
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
