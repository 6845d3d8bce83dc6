//! The location cache: where records were last found, one word each.
//!
//! With it a record costs one READ instead of a walk through the index (DrTM+H §5.1). It is always consulted
//! when the plan has it, and always refilled: by one-sided lookups and by every RPC reply that names a location.
//! It may be shared by a node's workers or be one worker's own; its words are plain atomics either way.
//!
//! A word is `tag:16 | offset:48`, its place chosen by the key's hash, the newest entry wins. It may be wrong (two
//! keys with the same place and tag, a record that moved); the key in the record tells, and then the entry is
//! counted stale and dropped. So the cache needs no invalidation.

use super::index::{location_word, offset_of};
use super::layout::{TableId, hash};
use primitives::mem::ahead;
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// What a cache's user has counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct CacheStats {
    /// Lookups that found a location.
    pub hits: u64,
    /// Lookups that found none.
    pub misses: u64,
    /// Hits whose record turned out to be another key's.
    pub stale: u64,
}

/// A worker's view of a cache; clones of the words may be shared, the counts are its own.
pub struct LocationCache {
    words: Arc<[AtomicU64]>,
    stats: Cell<CacheStats>,
}

impl LocationCache {
    /// A cache of at most `budget_bytes`, at least one word.
    pub fn new(budget_bytes: usize) -> LocationCache {
        LocationCache::over((0..(budget_bytes / 8).max(1)).map(|_| AtomicU64::new(0)).collect())
    }

    /// Another worker's view of the same words.
    pub fn share(&self) -> LocationCache {
        LocationCache::over(self.words.clone())
    }

    /// A view of words that are shared from elsewhere.
    ///
    /// # Panics
    /// If there are none.
    pub fn over(words: Arc<[AtomicU64]>) -> LocationCache {
        assert!(!words.is_empty(), "a cache has at least one word");
        LocationCache { words, stats: Cell::default() }
    }

    /// What has been counted.
    pub fn stats(&self) -> CacheStats {
        self.stats.get()
    }

    #[inline]
    fn place(&self, table: TableId, key: u64) -> &AtomicU64 {
        let spread = hash(key).rotate_left(u32::from(table.0) * 13 + 7).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        &self.words[((u128::from(spread) * self.words.len() as u128) >> 64) as usize]
    }

    /// The key's location in its primary's region, if remembered.
    #[inline]
    pub fn lookup(&self, table: TableId, key: u64) -> Option<u64> {
        let found = self.peek(table, key);
        let mut stats = self.stats.get();
        match found {
            Some(_) => stats.hits += 1,
            None => stats.misses += 1,
        }
        self.stats.set(stats);
        found
    }

    /// Asks for the place where a location would be remembered.
    #[inline]
    pub(crate) fn ahead(&self, table: TableId, key: u64) {
        ahead(self.place(table, key));
    }

    /// As [`LocationCache::lookup`], and not counted.
    #[inline]
    pub(crate) fn peek(&self, table: TableId, key: u64) -> Option<u64> {
        offset_of(key, self.place(table, key).load(Ordering::Relaxed))
    }

    /// Remembers a location.
    #[inline]
    pub fn fill(&self, table: TableId, key: u64, offset: u64) {
        let place = self.place(table, key);
        let word = location_word(key, offset);
        // Most fills say what is known already; a load keeps the line shared among workers.
        if place.load(Ordering::Relaxed) != word {
            place.store(word, Ordering::Relaxed);
        }
    }

    /// Remembers a location if nothing is remembered in its place yet.
    pub fn fill_free(&self, table: TableId, key: u64, offset: u64) {
        let place = self.place(table, key);
        if place.load(Ordering::Relaxed) == 0 {
            place.store(location_word(key, offset), Ordering::Relaxed);
        }
    }

    /// Forgets a location that led to another key's record.
    pub fn stale(&self, table: TableId, key: u64, offset: u64) {
        let _ = self.place(table, key).compare_exchange(
            location_word(key, offset),
            0,
            Ordering::Relaxed,
            Ordering::Relaxed,
        );
        let mut stats = self.stats.get();
        stats.stale += 1;
        self.stats.set(stats);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remembers_within_its_budget() {
        let cache = LocationCache::new(8 << 10);
        for key in 0..10_000u64 {
            cache.fill(TableId(0), key, 64 + key * 32);
        }
        let known = (0..10_000).filter(|&k| cache.lookup(TableId(0), k) == Some(64 + k * 32)).count();
        let wrong =
            (0..10_000).filter(|&k| cache.lookup(TableId(0), k).is_some_and(|at| at != 64 + k * 32)).count();
        assert!((900..=1024).contains(&known), "{known} of 1024 words in use");
        assert!(wrong < 5, "{wrong} tags coincide");
        assert_eq!(cache.stats().hits + cache.stats().misses, 20_000);
    }

    #[test]
    fn tables_do_not_answer_for_each_other_often_and_stale_entries_go() {
        let cache = LocationCache::new(1 << 16);
        cache.fill(TableId(0), 5, 640);
        let other = cache.share();
        assert_eq!(other.lookup(TableId(0), 5), Some(640));
        other.stale(TableId(0), 5, 64);
        assert_eq!(other.lookup(TableId(0), 5), Some(640), "another location's staleness");
        other.stale(TableId(0), 5, 640);
        assert_eq!(cache.lookup(TableId(0), 5), None);
        assert_eq!(other.stats(), CacheStats { hits: 2, misses: 0, stale: 2 });
        assert_eq!(cache.stats(), CacheStats { hits: 0, misses: 1, stale: 0 });
    }

    #[test]
    fn who_comes_first_stays_where_only_free_places_are_filled() {
        let cache = LocationCache::new(1 << 10);
        (0..10_000u64).for_each(|key| cache.fill_free(TableId(0), key, 64 + key * 32));
        let known = |keys: std::ops::Range<u64>| {
            keys.filter(|&k| cache.lookup(TableId(0), k) == Some(64 + k * 32)).count()
        };
        assert!(known(0..10) >= 8, "the first ten of 128 places");
        assert_eq!(known(5000..10_000), 0, "all places were taken");
    }

    #[test]
    fn the_smallest_cache_works() {
        let cache = LocationCache::new(0);
        cache.fill(TableId(3), 1, 64);
        assert_eq!(cache.lookup(TableId(3), 1), Some(64));
    }
}
