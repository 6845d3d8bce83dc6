//! Letters: runs of words that one node puts into a known place of another node's memory.
//!
//! CALVIN's buffers (RCC §4.6, figure 12) hold letters: the request buffers (CRB) batches of inputs, the forward buffer (CFB)
//! values that were read elsewhere. Sender and receiver compute the place, so nothing is looked up.
//!
//! ```text
//! word 0    epoch:40 | words of contents:24
//! word 1    checksum over word 0, the place, and the contents
//! contents
//! ```
//!
//! The paper's receiver watches the length that a second WRITE puts behind the contents (*Received Sz*, steps b2 and b3). Here, too, the
//! two words of the head are written last; but a head that is seen does not prove that all contents are (rdma_bench,
//! `write-incomplete`), and two-sided a long letter comes in several messages that may overtake each other. So the
//! checksum decides, as it does for records, and a letter that is not whole is one that has not come yet. The epoch tells it
//! from what the place held before; it has 40 bits, which last for months.

use crate::store::{NodeStore, record};
use primitives::mem::{Buf, Region};
use primitives::units::Nanos;

/// Words in front of a letter's contents.
pub const HEAD_WORDS: usize = 2;
/// Most words of contents.
pub const MAX_WORDS: usize = (1 << LEN_BITS) - 1;

/// Looks for a letter, or for a turn at a lock, that follow each other at once …
pub const LOOKS_AT_ONCE: u32 = 3;
/// … before there is a pause between them, which doubles …
pub const PAUSE_FIRST: Nanos = Nanos(125);
/// … up to this: a fraction of what an epoch takes on a fast fabric.
pub const PAUSE_MOST: Nanos = Nanos(1_000);

/// Locks for each record that a node's transactions of an epoch may touch, so that few share one …
const LOCKS_PER_RECORD: u64 = 4;
/// … but no more than fit into a core's cache.
const MOST_LOCKS: u64 = 1 << 14;

/// Locks of a node whose transactions of an epoch touch so many records.
pub fn locks_for(accesses: u64) -> usize {
    (accesses * LOCKS_PER_RECORD).clamp(64, MOST_LOCKS) as usize
}

const LEN_BITS: u32 = 24;
const EPOCH_BITS: u32 = 40;

/// A letter's first word.
fn head(epoch: u64, words: usize) -> u64 {
    (epoch & ((1 << EPOCH_BITS) - 1)) << LEN_BITS | words as u64
}

/// Completes the letter in `buf`, whose `words` words of contents stand behind the head: for `epoch`, and for the place `at` in
/// the receiver's region.
///
/// # Panics
/// If the letter is longer than a head can say.
pub fn seal(buf: &Buf, epoch: u64, words: usize, at: u64) {
    assert!(words <= MAX_WORDS, "bug: a letter of {words} words");
    let head = head(epoch, words);
    let contents = &buf.words()[HEAD_WORDS..][..words];
    buf.set_word(0, head);
    buf.set_word(1, record::checksum(head, at, contents));
}

/// Words of contents of the letter at `at`, if that of `epoch` has come whole.
pub fn arrived(region: &Region, at: u64, epoch: u64, most: usize) -> Option<usize> {
    let seen = region.load(at);
    let words = (seen & ((1 << LEN_BITS) - 1)) as usize;
    if seen != head(epoch, words) || words > most {
        return None;
    }
    let contents = &region.words()[at as usize / 8 + HEAD_WORDS..][..words];
    (record::checksum(seen, at, contents) == region.load(at + 8)).then_some(words)
}

/// Puts a sealed letter of `words` words of contents into place by CPU: contents first, head last.
pub fn put(buf: &Buf, words: usize, region: &Region, at: u64) {
    for i in (0..HEAD_WORDS + words).rev() {
        region.store(at + i as u64 * 8, buf.word(i));
    }
}

impl NodeStore {
    /// Whether `bytes` bytes at `at` lie in the part of the region that is set aside for letters: for what a peer sent.
    pub(crate) fn is_letter(&self, at: u64, bytes: u64) -> bool {
        let place = self.layout().letters();
        at.is_multiple_of(8) && place.contains(&at) && bytes <= place.end - at
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rule::Packing;
    use crate::store::{Layout, StoreConfig, TableSpec};
    use primitives::mem::BufPool;
    use primitives::verbs::{Lkey, NodeId};
    use std::sync::Arc;

    fn letter(epoch: u64, words: &[u64], at: u64) -> Buf {
        let pool = BufPool::new(Region::new(1 << 12), Lkey(1));
        let buf = pool.take(((HEAD_WORDS + words.len()) * 8) as u32).unwrap();
        for (i, &word) in words.iter().enumerate() {
            buf.set_word(HEAD_WORDS + i, word);
        }
        seal(&buf, epoch, words.len(), at);
        buf
    }

    #[test]
    fn a_letter_has_come_when_all_of_its_words_have() {
        let region = Region::new(256);
        put(&letter(6, &[1, 2, 9], 64), 3, &region, 64);
        assert_eq!(arrived(&region, 64, 6, 8), Some(3));
        let next = letter(7, &[1, 5, 9, 4], 64);
        // In every order that one word may come late in.
        for late in 0..6 {
            put(&letter(6, &[1, 2, 9], 64), 3, &region, 64);
            let before = region.load(64 + late * 8);
            put(&next, 4, &region, 64);
            let after = region.load(64 + late * 8);
            region.store(64 + late * 8, before);
            let whole = (before == after).then_some(4);
            assert_eq!(arrived(&region, 64, 7, 8), whole, "word {late} is late");
            region.store(64 + late * 8, after);
            assert_eq!(arrived(&region, 64, 7, 8), Some(4));
        }
        assert_eq!(arrived(&region, 64, 6, 8), None, "another epoch");
        assert_eq!(arrived(&region, 64, 7, 3), None, "longer than there is room");
    }

    #[test]
    fn letters_stay_in_their_part_of_the_region() {
        let table = TableSpec {
            name: "t".into(),
            payload_words: 1,
            rows_per_node: 9,
            keys_per_block: 1,
            ordered: false,
        };
        let mut layout = Layout::new(StoreConfig {
            tables: vec![table],
            nodes: 1,
            workers: 1,
            replicas: 1,
            log_ring_bytes: 0,
            reserve_bytes: 0,
            packing: Packing::Counted,
            first_version: 1,
        })
        .unwrap();
        let records = layout.region_bytes();
        assert!(layout.letters().is_empty());
        let start = layout.reserve_letters(100).unwrap();
        assert_eq!((start, layout.region_bytes()), (records, records + 128));
        assert!(layout.clone().reserve_letters(u64::MAX - 7).is_err());
        let store = NodeStore::new(NodeId(0), Arc::new(layout));
        let inside = |at, bytes| store.is_letter(at, bytes);
        assert!(inside(start, 128) && inside(start + 120, 8));
        assert!(!inside(start - 8, 8) && !inside(start, 136) && !inside(start + 4, 8));
        assert!(!inside(start + 128, 0) && !inside(u64::MAX - 7, 8) && !inside(start, u64::MAX));
    }

    #[test]
    fn an_empty_letter_is_one_and_zeroed_memory_is_none() {
        let region = Region::new(256);
        assert_eq!(arrived(&region, 0, 0, 8), None);
        put(&letter(3, &[], 8), 0, &region, 8);
        assert_eq!(arrived(&region, 8, 3, 8), Some(0));
        // The same bytes elsewhere are not the letter of that place.
        put(&letter(3, &[], 8), 0, &region, 32);
        assert_eq!(arrived(&region, 32, 3, 8), None);
    }
}
