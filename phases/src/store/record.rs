//! The record: what its words are, and why a torn READ is never returned.
//!
//! ```text
//! Counted, Leased   [header][checksum][key][payload…]
//! Locked            [lock][checksum][key][version][payload…]
//! Versions          [lock][rts][key], then 4 × [wts][checksum][payload…]
//! ```
//!
//! Which of these it is, is a value ([`Packing`]) that the protocol chooses when the store is laid out; a [`Shape`] says where
//! things are, and all code that touches records goes by it.
//!
//! A READ is whole only up to a word (InfiniBand gives no more, and DESIGN §3.2 holds every fabric to it), so
//! a record read while somebody writes it back may be half old, half new. Three things together make such a
//! read known:
//!
//! - **Locks.** Only the holder of the lock writes payload.
//! - **Order.** Write-back is two requests on one queue pair: everything behind the first word first, the first word, which
//!   frees the lock, second. RC executes them in order, so the lock is seen free only after all of the payload. The second is an ATOMIC
//!   where a rival's CAS that fails may undo a WRITE (`ops/one_sided.rs`): the lock would then stay held, by nobody.
//! - **Checksum.** It covers version, key and payload. Where the version stands in the first word that still is the old one
//!   while payload is being written, so neither a mix of words nor the whole new payload under the old header matches: the
//!   checksum then stands for the next version. Lock, owner, lease and rts are not covered, so changing them
//!   leaves it valid.
//!
//! FaRM puts a version into every cache line instead, which needs coherence between lines of the NIC's DMA
//! and makes records with odd layouts; a checksum needs word atomicity alone, and is what Pilaf used.
//! A mismatch costs a repeated READ and is never an error by itself.
//!
//! The owner's CPU checks the checksum too, rather than reading the header twice: on some NICs the end of a WRITE
//! becomes visible to the CPU after a later WRITE's (rdma_bench, `write-incomplete`), and then two equal headers prove
//! nothing.

use super::layout::fold;
use crate::rule::{Header, Packing};
use primitives::mem::{Buf, Region};
use std::sync::atomic::{AtomicU64, Ordering};

/// Word of the header or lock, in every packing.
pub const HEADER_WORD: usize = 0;
/// Word of the read timestamp, where versions are kept.
pub const RTS_WORD: usize = 1;
/// Word of the key, in every packing.
pub const KEY_WORD: usize = 2;
/// Versions that MVCC keeps of a record (RCC §4.4: at most 4.2 % of reads abort for want of a fifth).
pub const SLOTS: usize = 4;
/// Most payload words: two images of such a record still fit one pool buffer and one datagram.
pub const MAX_PAYLOAD_WORDS: u32 = 512;

/// Where a record's words are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// How the protocol packs its state.
    pub packing: Packing,
    /// Words of payload.
    pub payload: u32,
}

impl Shape {
    /// Words of a record.
    #[inline]
    pub const fn words(self) -> usize {
        match self.packing {
            Packing::Versions => 3 + SLOTS * self.slot_words(),
            _ => self.payload_word(0) + self.payload as usize,
        }
    }

    const fn slot_words(self) -> usize {
        2 + self.payload as usize
    }

    /// Versions a record keeps.
    #[inline]
    pub const fn slots(self) -> usize {
        if matches!(self.packing, Packing::Versions) { SLOTS } else { 1 }
    }

    /// Word with a slot's version.
    #[inline]
    pub const fn version_word(self, slot: usize) -> usize {
        match self.packing {
            Packing::Counted | Packing::Leased => HEADER_WORD,
            Packing::Locked => 3,
            Packing::Versions => 3 + slot * self.slot_words(),
        }
    }

    /// Word with a slot's checksum.
    #[inline]
    pub const fn checksum_word(self, slot: usize) -> usize {
        match self.packing {
            Packing::Versions => 4 + slot * self.slot_words(),
            _ => 1,
        }
    }

    /// First word of a slot's payload.
    #[inline]
    pub const fn payload_word(self, slot: usize) -> usize {
        match self.packing {
            Packing::Counted | Packing::Leased => 3,
            Packing::Locked => 4,
            Packing::Versions => 5 + slot * self.slot_words(),
        }
    }

    /// The version in a word that has one.
    #[inline]
    pub fn version(self, word: u64) -> u64 {
        match self.packing {
            Packing::Versions => word,
            _ => Header(word).version(),
        }
    }

    /// Words of the image to install: the word that frees the lock, then what one WRITE puts into place.
    #[inline]
    pub const fn install_words(self) -> usize {
        self.install_payload() + self.payload as usize
    }

    /// First word of payload in the image to install.
    #[inline]
    pub const fn install_payload(self) -> usize {
        match self.packing {
            Packing::Locked => 4,
            _ => 3,
        }
    }

    /// First word of the record that an install's first WRITE replaces.
    #[inline]
    pub const fn body_word(self, slot: usize) -> usize {
        match self.packing {
            Packing::Versions => self.version_word(slot),
            _ => 1,
        }
    }

    /// Bytes from one record to the next: records of up to 32 B do not straddle cache lines, longer ones begin one.
    pub fn stride(self) -> u64 {
        let bytes = self.words() as u64 * 8;
        if bytes <= 32 { 32 } else { bytes.next_multiple_of(64) }
    }

    /// The slot with the latest version, by a record's words.
    #[inline]
    pub(crate) fn newest(self, words: &[impl Word]) -> usize {
        let version = |slot| words[self.version_word(slot)].get();
        (1..self.slots()).fold(0, |best, slot| if version(slot) > version(best) { slot } else { best })
    }

    /// The slot that the next version replaces: the one with the oldest.
    #[inline]
    pub(crate) fn oldest(self, words: &[impl Word]) -> usize {
        let version = |slot| words[self.version_word(slot)].get();
        (1..self.slots()).fold(0, |best, slot| if version(slot) < version(best) { slot } else { best })
    }

    /// Whether a slot is of one piece.
    #[inline]
    pub(crate) fn whole(self, words: &[impl Word], slot: usize) -> bool {
        let version = self.version(words[self.version_word(slot)].get());
        let payload = &words[self.payload_word(slot)..][..self.payload as usize];
        checksum(version, words[KEY_WORD].get(), payload) == words[self.checksum_word(slot)].get()
    }
}

/// A word of a payload, which others may be changing or which is one's own. What goes through words gets them as a slice: each is
/// looked at whole, and where they end is looked at once.
pub trait Word {
    /// What it is now.
    fn get(&self) -> u64;
}

impl Word for AtomicU64 {
    #[inline(always)]
    fn get(&self) -> u64 {
        self.load(Ordering::Acquire)
    }
}

impl Word for u64 {
    #[inline(always)]
    fn get(&self) -> u64 {
        *self
    }
}

/// The words of a record in a region.
#[inline]
pub(crate) fn words_at(region: &Region, offset: u64, shape: Shape) -> &[AtomicU64] {
    &region.words()[(offset / 8) as usize..][..shape.words()]
}

/// Copies words in order, each whole.
///
/// # Panics
/// If there is no room for as many.
#[inline]
pub(crate) fn copy_words(from: &[impl Word], to: &[AtomicU64]) {
    to[..from.len()].iter().zip(from).for_each(|(to, from)| to.store(from.get(), Ordering::Relaxed));
}

/// Checksum over a record's version, key and payload, made up of words as they come, in two sums: a multiplication that waits for the
/// one before would take longer than all else that is done with its words.
struct Sum(u64, u64);

impl Sum {
    #[inline]
    fn new(version: u64, key: u64) -> Sum {
        let start = fold(version ^ 0x2545_f491_4f6c_dd1d, key ^ 0x8538_eceb_5bd4_56a3);
        Sum(start, start.rotate_left(32))
    }

    /// One multiplication takes in two words, as in wyhash: one beside the sum so far, the other beside a constant, so that exchanged words
    /// and pairs are known. A product of nothing, behind a word that is the constant's very equal, hides nothing of the other, nor of the
    /// sum so far: those are added once more.
    #[inline]
    fn pair(sum: u64, one: u64, two: u64) -> u64 {
        let beside = sum ^ one;
        fold(beside, two ^ Sum::PAIRED) ^ beside
    }

    const PAIRED: u64 = 0xe703_7ed1_a0b4_28db;
    const SINGLE: u64 = 0x8ebc_6af0_9c88_c6e3;
    const LAST: u64 = 0xa076_1d64_78bd_642f;

    #[inline]
    fn add(&mut self, [a, b, c, d]: [u64; 4]) {
        (self.0, self.1) = (Sum::pair(self.0, a, b), Sum::pair(self.1, c, d));
    }

    /// With the words that are left of fours. How many there are is known beside: of a record from its table, of a letter from its head,
    /// which stands in place of the version.
    #[inline]
    fn end(mut self, rest: impl Iterator<Item = u64>) -> u64 {
        for word in rest {
            self = Sum(self.1, Sum::pair(self.0, word, Sum::PAIRED ^ Sum::SINGLE));
        }
        Sum::pair(self.0, Sum::LAST, self.1 ^ Sum::PAIRED)
    }
}

/// Checksum over a record's version, key and payload.
#[inline]
pub fn checksum(version: u64, key: u64, payload: &[impl Word]) -> u64 {
    let mut sum = Sum::new(version, key);
    let (fours, rest) = payload.as_chunks::<4>();
    fours.iter().for_each(|four| sum.add(four.each_ref().map(Word::get)));
    sum.end(rest.iter().map(Word::get))
}

/// As [`checksum`], of words that are copied on the way; each is looked at once.
#[inline]
fn checksum_copied(version: u64, key: u64, from: &[impl Word], to: &[AtomicU64], order: Ordering) -> u64 {
    let mut sum = Sum::new(version, key);
    let copy = |from: &_, to: &AtomicU64| {
        let value = Word::get(from);
        to.store(value, order);
        value
    };
    let (fours, rest) = from.as_chunks::<4>();
    let (to_fours, to_rest) = to.as_chunks::<4>();
    for ([a, b, c, d], [to_a, to_b, to_c, to_d]) in fours.iter().zip(to_fours) {
        sum.add([copy(a, to_a), copy(b, to_b), copy(c, to_c), copy(d, to_d)]);
    }
    sum.end(rest.iter().zip(to_rest).map(|(from, to)| copy(from, to)))
}

/// What stands in place of the checksum while a slot has no record: it is being created, or was removed. No checksum of a
/// record, and none over a mixture, equals it but by chance.
#[inline]
pub(crate) fn absence(version: u64, key: u64) -> u64 {
    !checksum(version, key, &[0x6162_7365_6e74_u64])
}

impl Shape {
    /// Whether a slot of the table has no record: it was removed, or somebody is about to create it. Where versions are kept that is
    /// having none.
    #[inline]
    pub(crate) fn is_absent(self, words: &[impl Word]) -> bool {
        let version = self.latest(words);
        match self.packing {
            Packing::Versions => version == 0,
            _ => words[1].get() == absence(version, words[KEY_WORD].get()),
        }
    }

    /// The latest version that a slot has or had.
    #[inline]
    pub(crate) fn latest(self, words: &[impl Word]) -> u64 {
        self.version(words[self.version_word(self.newest(words))].get())
    }
}

/// Makes a slot one without a record, with `header` as its first word. Versions go the oldest first: whoever looks meanwhile finds
/// the one that is right for it, or none.
pub(crate) fn vacate(region: &Region, offset: u64, shape: Shape, key: u64, version: u64, header: Header) {
    let words = words_at(region, offset, shape);
    let put = |word: usize, value: u64| words[word].store(value, Ordering::Release);
    if shape.packing == Packing::Versions {
        loop {
            let version = |slot: usize| words[shape.version_word(slot)].get();
            let kept = (0..SLOTS).filter(|&slot| version(slot) != 0);
            let Some(oldest) = kept.min_by_key(|&slot| version(slot)) else { break };
            put(shape.version_word(oldest), 0);
        }
        put(RTS_WORD, 0);
    } else {
        put(1, absence(version, key));
        if shape.packing == Packing::Locked {
            put(shape.version_word(0), version);
        }
    }
    put(KEY_WORD, key);
    put(HEADER_WORD, header.0);
}

/// Completes the image to install, `first` words into `buf`, whose payload is in place.
#[inline]
pub(crate) fn seal(buf: &Buf, first: usize, shape: Shape, version: u64, key: u64) {
    let payload = &buf.words()[first + shape.install_payload()..][..shape.payload as usize];
    let sum = checksum(version, key, payload);
    buf.set_word(first, shape.packing.installed(version).0);
    match shape.packing {
        Packing::Versions => {
            buf.set_word(first + 1, version);
            buf.set_word(first + 2, sum);
        }
        packing => {
            buf.set_word(first + 1, sum);
            buf.set_word(first + 2, key);
            if packing == Packing::Locked {
                buf.set_word(first + 3, version);
            }
        }
    }
}

/// Copies a record out by CPU.
#[inline]
pub(crate) fn copy_local(region: &Region, offset: u64, image: &[AtomicU64], shape: Shape) {
    copy_words(words_at(region, offset, shape), image);
}

/// Copies a record out by CPU; which of its versions is the latest, if that is of one piece now. Always inlined, because half of
/// what a short record takes is finding out where things are, and some who ask know the packing.
#[inline(always)]
pub(crate) fn copy_latest(region: &Region, offset: u64, image: &[AtomicU64], shape: Shape) -> Option<usize> {
    if shape.packing == Packing::Versions {
        copy_local(region, offset, image, shape);
        let slot = shape.newest(image);
        return shape.whole(image, slot).then_some(slot);
    }
    let from = words_at(region, offset, shape);
    let (head, payload) = from.split_at(shape.payload_word(0));
    let (to_head, to_payload) = image[..from.len()].split_at(head.len());
    copy_words(head, to_head);
    let version = shape.version(to_head[shape.version_word(0)].get());
    let sum = checksum_copied(version, to_head[KEY_WORD].get(), payload, to_payload, Ordering::Relaxed);
    (sum == to_head[shape.checksum_word(0)].get()).then_some(0)
}

/// Writes a new version with its payload, then the word that frees the lock, by CPU. The caller holds the lock.
#[inline]
pub(crate) fn write_local(
    region: &Region,
    offset: u64,
    shape: Shape,
    version: u64,
    key: u64,
    payload: &[impl Word],
) {
    write_body(region, offset, shape, version, key, payload);
    region.store(offset, shape.packing.installed(version).0);
}

/// Writes a new version with its payload by CPU, but for the first word, which is left to be written.
///
/// # Panics
/// If the payload is shorter than the table's.
#[inline]
pub(crate) fn write_body(
    region: &Region,
    offset: u64,
    shape: Shape,
    version: u64,
    key: u64,
    payload: &[impl Word],
) {
    let words = words_at(region, offset, shape);
    let slot = shape.oldest(words);
    let put = |word: usize, value: u64| words[word].store(value, Ordering::Release);
    let to = &words[shape.payload_word(slot)..][..shape.payload as usize];
    let sum = checksum_copied(version, key, &payload[..to.len()], to, Ordering::Release);
    put(shape.checksum_word(slot), sum);
    put(KEY_WORD, key);
    if matches!(shape.packing, Packing::Locked | Packing::Versions) {
        put(shape.version_word(slot), version);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rule::Owner;
    use primitives::mem::BufPool;
    use primitives::verbs::Lkey;

    const PACKINGS: [Packing; 4] = [Packing::Counted, Packing::Leased, Packing::Locked, Packing::Versions];

    #[test]
    fn every_mixture_of_two_versions_is_known() {
        // Words for one of the checksum's two sums, for both, and some that are left.
        for (packing, payload) in PACKINGS.into_iter().flat_map(|packing| [(packing, 4), (packing, 11)]) {
            let shape = Shape { packing, payload };
            let image = |version: u64, first: u64| {
                let region = Region::new(1024);
                let payload: Vec<u64> = (0..u64::from(payload)).map(|n| first + n).collect();
                write_local(&region, 64, shape, version, 7, &payload);
                (0..shape.words()).map(|i| region.load(64 + i as u64 * 8)).collect::<Vec<u64>>()
            };
            let (old, new) = (image(5, 100), image(6, 200));
            // Which words are already new: all mixtures of those that one slot has.
            let words: Vec<usize> = (0..shape.words()).filter(|&i| old[i] != new[i]).collect();
            assert_eq!(words.len(), 2 + payload as usize, "version, checksum and words of payload");
            for mask in 0..1u32 << words.len() {
                let mut mixed = old.clone();
                let of_new = |(bit, _): &(usize, &usize)| mask >> bit & 1 == 1;
                words.iter().enumerate().filter(of_new).for_each(|(_, &word)| mixed[word] = new[word]);
                let pure = mask == 0 || mask == (1 << words.len()) - 1;
                assert_eq!(shape.whole(&mixed, 0), pure, "{packing:?}, mixture {mask:013b}");
            }
        }
    }

    #[test]
    fn exchanged_words_and_another_key_are_known() {
        let checksum = |version, key, payload: &[u64]| checksum(version, key, payload);
        let a = checksum(1, 2, &[3, 4]);
        assert_ne!(a, checksum(1, 2, &[4, 3]));
        assert_ne!(a, checksum(2, 1, &[3, 4]));
        assert_ne!(a, checksum(1, 2, &[3, 4, 0]));
        assert_ne!(checksum(0, 0, &[0]), 0, "zeroed memory is not a record");
        // Any two of many words, and the pairs and fours that they are in.
        let words: Vec<u64> = (10..37).collect();
        let whole = checksum(1, 2, &words);
        for length in [1, 2, 4] {
            for (one, two) in (0..6).flat_map(|two| (0..two).map(move |one| (one, two))) {
                let mut other = words.clone();
                (0..length).for_each(|n| other.swap(one * length + n, two * length + n));
                assert_ne!(whole, checksum(1, 2, &other), "{length} words at {one} and {two}");
            }
        }
    }

    /// Whatever constants a sum has: a word that equals one of them makes a product nothing, and hides no other word.
    #[test]
    fn a_word_that_is_a_constant_of_the_sum_hides_no_other() {
        for constant in [Sum::PAIRED, Sum::SINGLE, Sum::LAST, Sum::PAIRED ^ Sum::SINGLE, 0] {
            for (length, place) in (1..13).flat_map(|length| (0..length).map(move |place| (length, place))) {
                let mut words: Vec<u64> = (0..length).map(|n| 1000 + n as u64).collect();
                words[place] = constant;
                let whole = checksum(1, 2, &words);
                assert!(whole != checksum(3, 2, &words) && whole != checksum(1, 4, &words), "version, key");
                for other in 0..length {
                    let mut mixed = words.clone();
                    mixed[other] ^= 1;
                    assert_ne!(
                        whole,
                        checksum(1, 2, &mixed),
                        "{constant:x} at {place} hides {other} of {length}"
                    );
                }
            }
        }
    }

    #[test]
    fn the_sum_of_words_that_are_copied_is_that_of_the_words() {
        for length in 0..14u64 {
            let words: Vec<u64> = (0..length).map(|n| n * 77).collect();
            let to: Vec<AtomicU64> = words.iter().map(|_| AtomicU64::new(0)).collect();
            let sum = checksum_copied(3, 4, &words, &to, Ordering::Relaxed);
            assert_eq!(sum, checksum(3, 4, &words));
            assert!(to.iter().map(Word::get).eq(words));
        }
    }

    #[test]
    fn an_installed_image_is_what_the_cpu_would_have_written() {
        let pool = BufPool::new(Region::new(1 << 16), Lkey(1));
        for packing in PACKINGS {
            let shape = Shape { packing, payload: 3 };
            let (by_cpu, by_nic) = (Region::new(1024), Region::new(1024));
            for version in [3, 9, 12, 14, 20, 21] {
                let payload = [0, 1, 2].map(|n| version * 10 + n);
                let buf = pool.take((5 + shape.install_words() as u32) * 8).unwrap();
                for (i, word) in payload.iter().enumerate() {
                    buf.set_word(5 + shape.install_payload() + i, *word);
                }
                seal(&buf, 5, shape, version, 77);
                let body = shape.body_word(shape.oldest(words_at(&by_nic, 64, shape)));
                by_nic.store(64 + 16, 77);
                for i in 1..shape.install_words() {
                    by_nic.store(64 + (body + i - 1) as u64 * 8, buf.word(5 + i));
                }
                by_nic.store(64, buf.word(5));
                write_local(&by_cpu, 64, shape, version, 77, &payload);
                for i in 0..shape.words() {
                    assert_eq!(
                        by_nic.load(64 + i as u64 * 8),
                        by_cpu.load(64 + i as u64 * 8),
                        "{packing:?} word {i}"
                    );
                }
                let words = words_at(&by_cpu, 64, shape);
                assert!(shape.whole(words, shape.newest(words)));
            }
        }
    }

    #[test]
    fn locking_leaves_an_image_whole_and_a_half_written_one_is_not() {
        for packing in PACKINGS {
            let region = Region::new(1024);
            let shape = Shape { packing, payload: 2 };
            write_local(&region, 64, shape, 3, 9, &[10, 11]);
            let words = words_at(&region, 64, shape);
            let free = Header(region.load(64));
            let held = match packing {
                Packing::Counted => free.lock(Owner::default()),
                _ => Header(free.0 | 1 << 63),
            };
            region.store(64, held.0);
            let newest = shape.newest(words);
            assert!(shape.whole(words, newest), "{packing:?}");
            write_body(&region, 64, shape, 4, 9, &[10, 12]);
            // Versions keep the old one beside the new one; elsewhere the new one waits for its header, or is there.
            let whole = matches!(packing, Packing::Locked | Packing::Versions);
            assert_eq!(shape.whole(words, newest), whole, "{packing:?}");
        }
    }

    #[test]
    fn short_records_share_lines_evenly() {
        let stride = |payload| Shape { packing: Packing::Counted, payload }.stride();
        assert_eq!([1, 2, 5, 6].map(stride), [32, 64, 64, 128]);
    }

    #[test]
    fn four_versions_are_kept_the_oldest_goes() {
        let shape = Shape { packing: Packing::Versions, payload: 1 };
        let region = Region::new(1024);
        for version in 1..=7 {
            write_local(&region, 64, shape, version, 9, &[version * 100]);
        }
        let words = words_at(&region, 64, shape);
        let mut kept: Vec<u64> = (0..SLOTS).map(|slot| words[shape.version_word(slot)].get()).collect();
        kept.sort_unstable();
        assert_eq!(kept, [4, 5, 6, 7]);
        assert!((0..SLOTS).all(|slot| shape.whole(words, slot)));
        assert_eq!(words[shape.payload_word(shape.newest(words))].get(), 700);
    }
}
