//! The record: `[header][checksum][key][payload words…]`.
//!
//! A READ is whole only up to a word (InfiniBand gives no more, and DESIGN §3.2 holds every fabric to it), so
//! a record read while somebody writes it back may be half old, half new. Three things together make such a
//! read known:
//!
//! - **Locks.** Only the holder of the lock bit writes payload.
//! - **Order.** Write-back is two requests on one queue pair: checksum, key and payload first, the header word
//!   second. RC executes them in order, so the new version and the released lock appear after all of the payload.
//! - **Checksum.** It covers version, key and payload. While payload is being written the header still carries the
//!   old version, so neither a mix of words nor the whole new payload under the old header matches: the
//!   checksum then stands for the next version. The lock bit and owner are not covered, so locking and unlocking
//!   leave it valid.
//!
//! FaRM puts a version into every cache line instead, which needs coherence between lines of the NIC's DMA
//! and makes records with odd layouts; a checksum needs word atomicity alone, and is what Pilaf used.
//! A mismatch costs a repeated READ and is never an error by itself.
//!
//! The owner's CPU checks the checksum too, rather than reading the header twice: on some NICs the end of a WRITE
//! becomes visible to the CPU after a later WRITE's (rdma_bench, `write-incomplete`), and then two equal headers prove
//! nothing.

use super::layout::fold;
use crate::rule::Header;
use primitives::mem::{Buf, Region};

/// Word of the header.
pub const HEADER_WORD: usize = 0;
/// Word of the checksum.
pub const CHECKSUM_WORD: usize = 1;
/// Word of the key.
pub const KEY_WORD: usize = 2;
/// First word of the payload.
pub const PAYLOAD_WORD: usize = 3;
/// Most payload words: two images of such a record still fit one pool buffer and one datagram.
pub const MAX_PAYLOAD_WORDS: u32 = 512;

/// Bytes from one record to the next: records of up to 32 B do not straddle cache lines, longer ones begin one.
pub fn stride(payload_words: u32) -> u64 {
    let bytes = (PAYLOAD_WORD as u64 + u64::from(payload_words)) * 8;
    if bytes <= 32 { 32 } else { bytes.next_multiple_of(64) }
}

/// Checksum over a record's version, key and payload.
#[inline]
pub fn checksum(version: u64, key: u64, payload: impl Iterator<Item = u64>) -> u64 {
    // Each step is a bijection of the state for a fixed word up to the fold, and odd multipliers differ between
    // the first words and the rest, so that exchanged words do not cancel.
    let mut state = fold(version ^ 0x2545_f491_4f6c_dd1d, key ^ 0x8538_eceb_5bd4_56a3);
    for word in payload {
        state = fold(state.rotate_left(23) ^ word ^ 0x94d0_49bb_1331_11eb, 0xbf58_476d_1ce4_e5b9);
    }
    state
}

/// Whether an image of `payload_words` words, `first` words into `buf`, is of one piece.
#[inline]
pub(crate) fn whole(buf: &Buf, first: usize, payload_words: usize) -> bool {
    let words = &buf.words()[first..first + PAYLOAD_WORD + payload_words];
    let word = |i: usize| words[i].load(std::sync::atomic::Ordering::Relaxed);
    let sum =
        checksum(Header(word(HEADER_WORD)).version(), word(KEY_WORD), (PAYLOAD_WORD..words.len()).map(word));
    sum == word(CHECKSUM_WORD)
}

/// Completes an image `first` words into `buf` whose payload is in place: header, key and checksum.
#[inline]
pub(crate) fn seal(buf: &Buf, first: usize, payload_words: usize, header: Header, key: u64) {
    let payload = (0..payload_words).map(|i| buf.word(first + PAYLOAD_WORD + i));
    let sum = checksum(header.version(), key, payload);
    buf.set_word(first + HEADER_WORD, header.0);
    buf.set_word(first + CHECKSUM_WORD, sum);
    buf.set_word(first + KEY_WORD, key);
}

/// Copies a record out by CPU; whether it is of one piece.
#[inline]
pub(crate) fn read_local(region: &Region, offset: u64, buf: &Buf, payload_words: usize) -> bool {
    let words = &region.words()[(offset / 8) as usize..][..PAYLOAD_WORD + payload_words];
    for (i, word) in words.iter().enumerate() {
        buf.set_word(i, word.load(std::sync::atomic::Ordering::Acquire));
    }
    whole(buf, 0, payload_words)
}

/// Writes payload and checksum, then the header, by CPU. The caller holds the lock.
#[inline]
pub(crate) fn write_local(
    region: &Region,
    offset: u64,
    header: Header,
    key: u64,
    payload: impl Iterator<Item = u64> + Clone,
) {
    write_body(region, offset, header, key, payload);
    region.store(offset + HEADER_WORD as u64 * 8, header.0);
}

/// Writes payload and checksum by CPU as they go under `header`, which is left to be written.
#[inline]
pub(crate) fn write_body(
    region: &Region,
    offset: u64,
    header: Header,
    key: u64,
    payload: impl Iterator<Item = u64> + Clone,
) {
    region.store(offset + CHECKSUM_WORD as u64 * 8, checksum(header.version(), key, payload.clone()));
    region.store(offset + KEY_WORD as u64 * 8, key);
    for (i, word) in payload.enumerate() {
        region.store(offset + (PAYLOAD_WORD + i) as u64 * 8, word);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use primitives::mem::BufPool;
    use primitives::verbs::Lkey;

    #[test]
    fn every_mixture_of_two_versions_is_known() {
        let pool = BufPool::new(Region::new(4096), Lkey(1));
        let buf = pool.take(8 * 8).unwrap();
        let old = |i: u64| 100 + i;
        let new = |i: u64| 200 + i;
        let sum = |version, f: &dyn Fn(u64) -> u64| checksum(version, 7, (0..4).map(f));
        // Which of header, checksum and four payload words are already new: all 64 mixtures.
        for mask in 0..64u32 {
            let pick = |bit: u32, a: u64, b: u64| if mask >> bit & 1 == 1 { b } else { a };
            buf.set_word(0, pick(0, 5, 6));
            buf.set_word(1, pick(1, sum(5, &old), sum(6, &new)));
            buf.set_word(2, 7);
            for i in 0..4 {
                buf.set_word(3 + i, pick(2 + i as u32, old(i as u64), new(i as u64)));
            }
            assert_eq!(whole(&buf, 0, 4), mask == 0 || mask == 63, "mixture {mask:06b}");
        }
    }

    #[test]
    fn exchanged_words_and_another_key_are_known() {
        let a = checksum(1, 2, [3, 4].into_iter());
        assert_ne!(a, checksum(1, 2, [4, 3].into_iter()));
        assert_ne!(a, checksum(2, 1, [3, 4].into_iter()));
        assert_ne!(a, checksum(1, 2, [3, 4, 0].into_iter()));
        assert_ne!(checksum(0, 0, [0].into_iter()), 0, "zeroed memory is not a record");
    }

    #[test]
    fn locking_leaves_an_image_whole() {
        let pool = BufPool::new(Region::new(4096), Lkey(1));
        let buf = pool.take(2 * 5 * 8).unwrap();
        for first in [0, 5] {
            buf.set_word(first + PAYLOAD_WORD, 1);
            buf.set_word(first + PAYLOAD_WORD + 1, 2);
            let header = Header::new(9);
            seal(&buf, first, 2, header, 77);
            assert!(whole(&buf, first, 2));
            buf.set_word(first, header.lock(crate::rule::Owner::default()).0);
            assert!(whole(&buf, first, 2));
            buf.set_word(first, header.next().0);
            assert!(!whole(&buf, first, 2));
        }
    }

    #[test]
    fn what_the_cpu_wrote_the_cpu_reads() {
        let region = Region::new(1024);
        let pool = BufPool::new(Region::new(4096), Lkey(1));
        let buf = pool.take(5 * 8).unwrap();
        write_local(&region, 64, Header::new(3), 9, [10, 11].into_iter());
        assert!(read_local(&region, 64, &buf, 2));
        assert!(whole(&buf, 0, 2));
        assert_eq!((buf.word(0), buf.word(2), buf.word(3), buf.word(4)), (3, 9, 10, 11));
        // A locked record under write-back: the checksum is new, the header old.
        region.store(64, Header::new(3).lock(crate::rule::Owner::default()).0);
        assert!(read_local(&region, 64, &buf, 2));
        region.store(64 + 8, checksum(4, 9, [10, 12].into_iter()));
        assert!(!read_local(&region, 64, &buf, 2));
    }

    #[test]
    fn short_records_share_lines_evenly() {
        assert_eq!([1, 2, 5, 6].map(stride), [32, 64, 64, 128]);
    }
}
