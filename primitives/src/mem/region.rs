//! Regions: memory as atomic words.

use super::mapped::Words;
use crate::verbs::work::{Lkey, Rkey};
use std::sync::atomic::{AtomicU64, Ordering};

/// Words of a cache line.
const LINE: usize = 64 / size_of::<u64>();

/// A stretch of memory that NICs and threads share. Cloning shares the memory.
///
/// Offsets and lengths are in bytes. Words are little-endian when seen as bytes.
#[derive(Clone)]
pub struct Region {
    words: Words,
}

/// A range that leaves its region.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("bytes {offset}..+{len} leave a region of {region_len} bytes")]
pub struct OutOfRegion {
    /// First byte asked for.
    pub offset: u64,
    /// Bytes asked for.
    pub len: u64,
    /// Bytes there are.
    pub region_len: u64,
}

/// What remote requests may do to a region, as in `ibv_reg_mr(3)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// READ.
    pub remote_read: bool,
    /// WRITE.
    pub remote_write: bool,
    /// CAS and FETCH_ADD.
    pub remote_atomic: bool,
    /// The region lies in the NIC's own memory (`ibv_alloc_dm(3)`), where the fabric has any and tells it apart.
    pub on_card: bool,
}

impl Access {
    /// Local use only: receive buffers and the like.
    pub const LOCAL: Access =
        Access { remote_read: false, remote_write: false, remote_atomic: false, on_card: false };
    /// Everything.
    pub const ALL: Access =
        Access { remote_read: true, remote_write: true, remote_atomic: true, on_card: false };
    /// READ only.
    pub const READ: Access = Access { remote_read: true, ..Access::LOCAL };
}

/// The two names of a registered region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryKeys {
    /// For requests posted by this node.
    pub lkey: Lkey,
    /// For requests posted by others.
    pub rkey: Rkey,
}

impl std::fmt::Debug for Region {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Region({} B)", self.len())
    }
}

impl Region {
    /// A zeroed region of at least `bytes` bytes, rounded up to whole words.
    pub fn new(bytes: usize) -> Region {
        Region { words: Words::zeroed(bytes.div_ceil(8)) }
    }

    /// Has the system find all of the memory now, and not when it is first used: a card that memory is registered with
    /// needs it in its place, and a measurement would count the finding.
    pub(crate) fn pin(&self) {
        const PAGE: usize = 4096 / 8;
        // Changes nothing, whoever else is at these words; but a page that is not there yet has to be, to be changed. The compiler
        // is not told that nothing changes: it would only look.
        self.words.iter().step_by(PAGE).for_each(|word| {
            word.fetch_or(std::hint::black_box(0), Ordering::Relaxed);
        });
    }

    /// Length in bytes.
    pub fn len(&self) -> u64 {
        self.words.len() as u64 * 8
    }

    /// Whether the region holds nothing.
    pub fn is_empty(&self) -> bool {
        self.words.is_empty()
    }

    /// Asks for `len` bytes at `offset`, as far as the region holds them, and waits for nothing: what will be looked at soon comes
    /// from memory meanwhile, instead of one cache line after the other.
    #[inline]
    pub fn ahead(&self, offset: u64, len: u64) {
        let (first, lines) = ((offset / 8) as usize, len.div_ceil(LINE as u64 * 8) as usize);
        (0..lines).map_while(|line| self.words.get(first + line * LINE)).for_each(super::ahead);
    }

    /// Whether `len` bytes at `offset` lie inside.
    #[inline]
    pub fn holds(&self, offset: u64, len: u64) -> bool {
        offset.checked_add(len).is_some_and(|end| end <= self.len())
    }

    /// The words themselves.
    #[inline]
    pub fn words(&self) -> &[AtomicU64] {
        &self.words
    }

    /// The word around byte `offset`, if the region holds it.
    #[inline(always)]
    pub(crate) fn word(&self, offset: u64) -> Option<&AtomicU64> {
        self.words.get((offset / 8) as usize)
    }

    /// Loads the word at byte `offset`, which must be a multiple of 8 inside the region.
    ///
    /// Sequentially consistent, as swaps and additions are: who takes a lock and then looks at another record (OCC), or moves a read timestamp and
    /// then looks for a lock (MVCC), must not both miss the other, and acquire and release alone allow that. On x86 it costs nothing.
    #[inline]
    pub fn load(&self, offset: u64) -> u64 {
        debug_assert_eq!(offset % 8, 0);
        self.words[(offset / 8) as usize].load(Ordering::SeqCst)
    }

    /// Stores the word at byte `offset`, which must be a multiple of 8 inside the region.
    #[inline]
    pub fn store(&self, offset: u64, value: u64) {
        debug_assert_eq!(offset % 8, 0);
        self.words[(offset / 8) as usize].store(value, Ordering::Release);
    }

    /// Compare-and-swap by the CPU; returns the value seen.
    #[inline]
    pub fn compare_swap(&self, offset: u64, expect: u64, swap: u64) -> u64 {
        let word = &self.words[(offset / 8) as usize];
        match word.compare_exchange(expect, swap, Ordering::SeqCst, Ordering::SeqCst) {
            Ok(seen) | Err(seen) => seen,
        }
    }

    /// Fetch-and-add by the CPU, wrapping; returns the value before.
    #[inline]
    pub fn fetch_add(&self, offset: u64, add: u64) -> u64 {
        self.words[(offset / 8) as usize].fetch_add(add, Ordering::SeqCst)
    }

    /// Copies bytes out. Each word is loaded once, in address order.
    ///
    /// # Errors
    /// If the range leaves the region; nothing is copied then.
    pub fn read_bytes(&self, offset: u64, out: &mut [u8]) -> Result<(), OutOfRegion> {
        self.check(offset, out.len() as u64)?;
        let mut at = offset;
        let mut done = 0;
        while done < out.len() {
            let skip = (at % 8) as usize;
            let n = (8 - skip).min(out.len() - done);
            let word = self.words[(at / 8) as usize].load(Ordering::Acquire).to_le_bytes();
            out[done..done + n].copy_from_slice(&word[skip..skip + n]);
            at += n as u64;
            done += n;
        }
        Ok(())
    }

    /// Copies bytes in. Whole words are stored once, in address order; a part of a word is merged into it.
    ///
    /// # Errors
    /// If the range leaves the region; nothing is copied then.
    pub fn write_bytes(&self, offset: u64, from: &[u8]) -> Result<(), OutOfRegion> {
        self.check(offset, from.len() as u64)?;
        let mut at = offset;
        let mut done = 0;
        while done < from.len() {
            let skip = (at % 8) as usize;
            let n = (8 - skip).min(from.len() - done);
            let mut bytes = [0u8; 8];
            bytes[skip..skip + n].copy_from_slice(&from[done..done + n]);
            self.merge((at / 8) as usize, u64::from_le_bytes(bytes), byte_mask(skip, n));
            at += n as u64;
            done += n;
        }
        Ok(())
    }

    /// Copies `len` bytes from one region to another, in address order; both ranges must be inside.
    ///
    /// Where both ends are word-aligned, words move whole; elsewhere bytes are merged.
    #[inline(always)]
    pub fn copy(from: &Region, from_offset: u64, to: &Region, to_offset: u64, len: u64) {
        if len == 8 && (from_offset | to_offset).is_multiple_of(8) {
            // Lock words and headers: by far the most frequent length.
            let value = from.words[(from_offset / 8) as usize].load(Ordering::Acquire);
            to.words[(to_offset / 8) as usize].store(value, Ordering::Release);
        } else {
            Region::copy_any(from, from_offset, to, to_offset, len);
        }
    }

    #[inline(never)]
    fn copy_any(from: &Region, from_offset: u64, to: &Region, to_offset: u64, len: u64) {
        if (from_offset | to_offset).is_multiple_of(8) {
            let src = &from.words[(from_offset / 8) as usize..][..len.div_ceil(8) as usize];
            let dst = &to.words[(to_offset / 8) as usize..][..len.div_ceil(8) as usize];
            let whole = (len / 8) as usize;
            for (d, s) in dst[..whole].iter().zip(&src[..whole]) {
                d.store(s.load(Ordering::Acquire), Ordering::Release);
            }
            if !len.is_multiple_of(8) {
                let value = src[whole].load(Ordering::Acquire);
                to.merge((to_offset / 8) as usize + whole, value, byte_mask(0, (len % 8) as usize));
            }
            return;
        }
        for i in 0..len {
            let s = from_offset + i;
            let byte = from.words[(s / 8) as usize].load(Ordering::Acquire).to_le_bytes()[(s % 8) as usize];
            let d = to_offset + i;
            let shift = d % 8 * 8;
            to.merge((d / 8) as usize, u64::from(byte) << shift, 0xff << shift);
        }
    }

    /// Stores the bytes of `value` that `mask` selects into word `index`.
    pub(crate) fn merge(&self, index: usize, value: u64, mask: u64) {
        let word = &self.words[index];
        if mask == u64::MAX {
            word.store(value, Ordering::Release);
        } else {
            // A neighbour may be writing the other bytes of this word: merge without losing them.
            let _ = word
                .fetch_update(Ordering::AcqRel, Ordering::Acquire, |old| Some(old & !mask | value & mask));
        }
    }

    fn check(&self, offset: u64, len: u64) -> Result<(), OutOfRegion> {
        if self.holds(offset, len) {
            Ok(())
        } else {
            Err(OutOfRegion { offset, len, region_len: self.len() })
        }
    }
}

/// Mask that selects `n` bytes of a little-endian word, from byte `skip` on.
pub(crate) fn byte_mask(skip: usize, n: usize) -> u64 {
    if n >= 8 { u64::MAX } else { ((1u64 << (n * 8)) - 1) << (skip * 8) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unaligned_bytes_come_back_and_neighbours_stay() {
        for offset in 0..12u64 {
            for len in 0..20usize {
                let region = Region::new(40);
                region.write_bytes(0, &[0xee; 40]).unwrap();
                let data: Vec<u8> = (0..len as u8).collect();
                region.write_bytes(offset, &data).unwrap();
                let mut all = [0u8; 40];
                region.read_bytes(0, &mut all).unwrap();
                let (start, end) = (offset as usize, offset as usize + len);
                assert_eq!(&all[start..end], &data[..]);
                assert!(
                    all[..start].iter().chain(&all[end..]).all(|&b| b == 0xee),
                    "offset {offset} len {len}"
                );
            }
        }
    }

    #[test]
    fn copy_agrees_with_bytes_at_every_alignment() {
        let from = Region::new(32);
        from.write_bytes(0, &(0..32).collect::<Vec<u8>>()).unwrap();
        for (s, d) in [(0, 0), (8, 16), (3, 0), (0, 5), (3, 3)] {
            for len in 0..=13 {
                let to = Region::new(32);
                Region::copy(&from, s, &to, d, len);
                let mut got = vec![0; len as usize];
                to.read_bytes(d, &mut got).unwrap();
                assert_eq!(got, (s as u8..s as u8 + len as u8).collect::<Vec<_>>(), "{s} to {d}, {len} B");
            }
        }
    }

    #[test]
    fn ranges_outside_are_refused() {
        let region = Region::new(16);
        assert_eq!(region.write_bytes(10, &[0; 7]), Err(OutOfRegion { offset: 10, len: 7, region_len: 16 }));
        assert!(!region.holds(u64::MAX, 2));
    }

    #[test]
    fn pinned_memory_is_there_and_as_it_was() {
        let pages = |region: &Region| {
            // What of the process is in memory now, in pages.
            std::hint::black_box(region.words());
            let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
            statm.split(' ').nth(1).unwrap().parse::<u64>().unwrap()
        };
        let region = Region::new(64 << 20);
        region.store(8192, 7);
        let before = pages(&region);
        region.pin();
        let page = rustix::param::page_size() as u64;
        // Other tests come and go meanwhile; of 64 MiB half is more than they take.
        assert!(
            pages(&region) >= before + (32 << 20) / page,
            "{before} pages before, {} now",
            pages(&region)
        );
        assert_eq!((region.load(8192), region.load(0), region.load((64 << 20) - 8)), (7, 0, 0));
    }

    #[test]
    fn what_is_asked_for_ahead_may_lie_anywhere() {
        let region = Region::new(100);
        for (offset, len) in [(0, 104), (96, 1 << 20), (1 << 40, 64), (u64::MAX - 3, u64::MAX), (3, 0)] {
            region.ahead(offset, len.min(1 << 20));
        }
        assert_eq!(region.load(96), 0);
    }
}
