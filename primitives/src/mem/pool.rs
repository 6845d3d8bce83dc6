//! Buffers that outlive a dropped future.
//!
//! A [`BufPool`] carves power-of-two buffers from one registered region and counts references. The program
//! holds one reference ([`Buf`]); each request in flight holds another, kept by the port until the NIC is done
//! with the memory. So a coroutine may be dropped at any await: its buffers return to the pool only when no
//! NIC can still write into them. Single-threaded by construction (`Rc`), so counting costs no atomics.

use super::ahead;
use super::region::Region;
use crate::verbs::work::{Lkey, Sge};
use std::cell::{Cell, OnceCell};
use std::rc::Rc;

const SMALLEST: u32 = 64;
/// Every length has one: that of the longest is 27th, and a power of two is cheap to divide by.
const CLASSES: usize = 32;

/// The pool's region has no room for another buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "buffer pool of {pool_bytes} B has no room for {wanted} B more; raise the pool size or lower coroutines"
)]
pub struct PoolExhausted {
    /// Bytes asked for.
    pub wanted: u32,
    /// Size of the pool's region.
    pub pool_bytes: u64,
}

/// A buffer's place. Those that are free form a list for each class.
struct Slot {
    /// Its offset, a multiple of [`SMALLEST`], and below that its class, and [`LENT`] while it is.
    place: Cell<u64>,
    refs: Cell<u32>,
    /// Of a free one: the next free one. Of one in use: its length.
    next: Cell<u32>,
}

/// In a slot's place: a receive queue has it.
const LENT: u64 = 32;
const _: () =
    assert!(LENT.is_multiple_of(CLASSES as u64) && LENT >= CLASSES as u64 && LENT < SMALLEST as u64);

/// Slots are made so many at a time, and then stay where they are: they are looked up without a borrow.
const BLOCK: usize = 64;
type Block = Box<[Slot; BLOCK]>;

impl Slot {
    fn unused() -> Slot {
        Slot { place: Cell::new(0), refs: Cell::new(0), next: Cell::new(NO_SLOT) }
    }

    #[inline]
    fn offset(&self) -> u64 {
        self.place.get() & !u64::from(SMALLEST - 1)
    }

    #[inline]
    fn class(&self) -> usize {
        self.place.get() as usize % CLASSES
    }
}

/// The end of a list.
const NO_SLOT: u32 = u32::MAX;

/// What taking and letting go of a small buffer needs comes first: a cache line with the counts in front of it.
#[repr(C)]
struct Inner {
    blocks: Box<[OnceCell<Block>]>,
    lkey: Lkey,
    /// By class: the buffer that came back last.
    free: [Cell<u32>; CLASSES],
    /// Bytes, and slots, in use so far.
    carved: Cell<u64>,
    made: Cell<u32>,
    region: Region,
}

/// A pool of registered buffers for one worker thread.
#[derive(Clone)]
pub struct BufPool {
    inner: Rc<Inner>,
}

/// A reference-counted stretch of registered memory. Words and bytes are read and written in place.
pub struct Buf {
    inner: Rc<Inner>,
    slot: u32,
    offset: u64,
    len: u32,
}

/// A reference held by a request in flight, or by what RPC keeps of calls, four bytes instead of a whole [`Buf`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pinned(u32);

impl Pinned {
    /// No buffer.
    pub(crate) const NONE: Pinned = Pinned(u32::MAX);

    /// The reference as a request's id keeps it before the request is posted.
    #[inline]
    pub(crate) fn to_bits(self) -> u64 {
        u64::from(self.0)
    }

    /// The reference that [`Pinned::to_bits`] was given.
    #[inline]
    pub(crate) fn from_bits(bits: u64) -> Pinned {
        Pinned(bits as u32)
    }
}

#[inline]
fn class_of(len: u32) -> usize {
    ((len.max(SMALLEST) - 1).ilog2() + 1 - SMALLEST.ilog2()) as usize
}

impl BufPool {
    /// A pool over the whole of `region`, registered under `lkey`.
    pub fn new(region: Region, lkey: Lkey) -> BufPool {
        // No buffer is smaller than the smallest.
        let slots = region.len().div_ceil(u64::from(SMALLEST)) as usize;
        BufPool {
            inner: Rc::new(Inner {
                region,
                lkey,
                blocks: std::iter::repeat_with(OnceCell::new).take(slots.div_ceil(BLOCK)).collect(),
                free: [const { Cell::new(NO_SLOT) }; CLASSES],
                carved: Cell::new(0),
                made: Cell::new(0),
            }),
        }
    }

    /// A buffer of `len` bytes. Its contents are whatever the last user left.
    ///
    /// # Errors
    /// When the region is used up.
    #[inline]
    pub fn take(&self, len: u32) -> Result<Buf, PoolExhausted> {
        let class = class_of(len);
        let inner = &self.inner;
        let mut slot = inner.free[class].get();
        if slot == NO_SLOT {
            slot = self.carve(class, len)?;
        }
        let taken = inner.slot(slot).expect("free buffers were made");
        inner.free[class].set(taken.next.replace(len));
        taken.refs.set(1);
        Ok(Buf { inner: inner.clone(), slot, offset: taken.offset(), len })
    }

    /// Makes a buffer of a class that has none left.
    #[cold]
    fn carve(&self, class: usize, len: u32) -> Result<u32, PoolExhausted> {
        let inner = &self.inner;
        let bytes = u64::from(SMALLEST) << class;
        let offset = inner.carved.get();
        if !inner.region.holds(offset, bytes) {
            return Err(PoolExhausted { wanted: len, pool_bytes: inner.region.len() });
        }
        inner.carved.set(offset + bytes);
        let index = inner.made.replace(inner.made.get() + 1);
        let block = inner.blocks[index as usize / BLOCK]
            .get_or_init(|| Box::new(std::array::from_fn(|_| Slot::unused())));
        let slot = &block[index as usize % BLOCK];
        slot.place.set(offset | class as u64);
        Ok(index)
    }

    /// Buffers now referenced by programs or by requests in flight.
    pub fn in_use(&self) -> usize {
        let slots = self.inner.blocks.iter().filter_map(OnceCell::get).flat_map(|block| block.iter());
        slots.filter(|slot| slot.refs.get() > 0).count()
    }

    /// Asks for what every buffer needs.
    #[inline]
    pub(crate) fn ahead(&self) {
        ahead(&*self.inner);
    }

    /// Asks for what letting go of a buffer will look at.
    #[inline]
    pub(crate) fn ahead_of(&self, pinned: Pinned) {
        self.inner.slot(pinned.0).map(ahead);
    }

    /// Asks for what taking a lent buffer back will look at.
    #[inline]
    pub(crate) fn ahead_of_lent(&self, lent: u64) {
        self.inner.slot(lent as u32).map(ahead);
    }

    /// Asks for what is at `offset` of a lent buffer.
    #[inline]
    pub(crate) fn ahead_into(&self, lent: u64, offset: u32) {
        if let Some(place) = self.word_of(lent, offset) {
            ahead(place);
        }
    }

    /// The word at `offset` of a lent buffer.
    #[inline]
    pub(crate) fn word_of(&self, lent: u64, offset: u32) -> Option<&std::sync::atomic::AtomicU64> {
        let slot = self.inner.slot(u32::try_from(lent).ok()?)?;
        self.inner.region.word(slot.offset() + u64::from(offset))
    }

    #[inline]
    pub(crate) fn unpin(&self, pinned: Pinned) {
        self.inner.drop_ref(pinned.0);
    }

    /// Another program's reference to a buffer that is pinned.
    #[inline]
    pub(crate) fn share(&self, pinned: Pinned) -> Buf {
        let slot = self.inner.slot(pinned.0).expect("pinned buffers were made");
        slot.refs.set(slot.refs.get() + 1);
        Buf { inner: self.inner.clone(), slot: pinned.0, offset: slot.offset(), len: slot.next.get() }
    }

    /// The buffer that [`Buf::lend`] gave this number to, if it is still lent.
    #[inline]
    pub(crate) fn give_back(&self, lent: u64) -> Option<Buf> {
        let index = u32::try_from(lent).ok()?;
        let slot = self.inner.slot(index)?;
        let place = slot.place.get();
        if place & LENT == 0 {
            return None;
        }
        slot.place.set(place & !LENT);
        Some(Buf { inner: self.inner.clone(), slot: index, offset: slot.offset(), len: slot.next.get() })
    }
}

impl Inner {
    /// None if it was not made.
    #[inline(always)]
    fn slot(&self, slot: u32) -> Option<&Slot> {
        let block = self.blocks.get(slot as usize / BLOCK)?.get()?;
        Some(&block[slot as usize % BLOCK])
    }

    #[inline(always)]
    fn drop_ref(&self, slot: u32) {
        let Some(s) = self.slot(slot) else { return };
        let refs = s.refs.get() - 1;
        s.refs.set(refs);
        if refs == 0 {
            let free = &self.free[s.class()];
            s.next.set(free.get());
            free.set(slot);
        }
    }
}

impl Buf {
    /// Length in bytes.
    #[inline]
    pub fn len(&self) -> u32 {
        self.len
    }

    /// Whether the buffer has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The buffer as a request's local memory.
    #[inline]
    pub fn sge(&self) -> Sge {
        Sge { lkey: self.inner.lkey, offset: self.offset, len: self.len }
    }

    /// A part of the buffer as a request's local memory.
    ///
    /// # Panics
    /// If the part leaves the buffer.
    #[inline]
    pub fn sge_part(&self, offset: u32, len: u32) -> Sge {
        let end = u64::from(offset) + u64::from(len);
        assert!(end <= u64::from(self.len) || end <= u64::from(self.capacity()), "part leaves its buffer");
        Sge { lkey: self.inner.lkey, offset: self.offset + u64::from(offset), len }
    }

    /// Bytes the buffer could hold: its length rounded up to its size class, or as many as a request names.
    #[inline]
    pub fn capacity(&self) -> u32 {
        u32::try_from(u64::from(SMALLEST) << class_of(self.len)).unwrap_or(u32::MAX)
    }

    /// The buffer's words, length rounded up.
    #[inline]
    pub fn words(&self) -> &[std::sync::atomic::AtomicU64] {
        // As `div_ceil`, which looks at the remainder: this is asked for every word.
        &self.inner.region.words()[(self.offset / 8) as usize..][..(self.len as usize + 7) >> 3]
    }

    /// Word `index` of the buffer.
    #[inline]
    pub fn word(&self, index: usize) -> u64 {
        self.words()[index].load(std::sync::atomic::Ordering::Relaxed)
    }

    /// Sets word `index`.
    #[inline]
    pub fn set_word(&self, index: usize, value: u64) {
        self.words()[index].store(value, std::sync::atomic::Ordering::Relaxed);
    }

    /// Copies `out.len()` bytes from byte `offset` on.
    ///
    /// # Panics
    /// If the range leaves the buffer: lengths from a peer are checked where they are decoded.
    pub fn read(&self, offset: u32, out: &mut [u8]) {
        assert!(u64::from(offset) + out.len() as u64 <= u64::from(self.len), "read leaves its buffer");
        self.inner
            .region
            .read_bytes(self.offset + u64::from(offset), out)
            .expect("buffers lie inside their region");
    }

    /// Copies `from` to byte `offset` on.
    ///
    /// # Panics
    /// If the range leaves the buffer.
    pub fn write(&self, offset: u32, from: &[u8]) {
        assert!(u64::from(offset) + from.len() as u64 <= u64::from(self.len), "write leaves its buffer");
        self.inner
            .region
            .write_bytes(self.offset + u64::from(offset), from)
            .expect("buffers lie inside their region");
    }

    /// The region the buffer lies in and its byte offset there, for copies between regions.
    pub fn place(&self) -> (&Region, u64) {
        (&self.inner.region, self.offset)
    }

    /// Hands the buffer to a receive queue: whoever has the number that this returns gets it back.
    #[inline]
    pub(crate) fn lend(self) -> u64 {
        let slot = self.inner.slot(self.slot).expect("a buffer is in its pool");
        slot.place.set(slot.place.get() | LENT);
        // The reference that this one leaves behind is the receive queue's.
        u64::from(self.pin().0)
    }

    /// The reference that [`Buf::pin`] would add, without adding it.
    #[inline]
    pub(crate) fn named(&self) -> Pinned {
        Pinned(self.slot)
    }

    /// Adds the reference of a request in flight.
    #[inline]
    pub(crate) fn pin(&self) -> Pinned {
        let refs = &self.inner.slot(self.slot).expect("a buffer is in its pool").refs;
        refs.set(refs.get() + 1);
        Pinned(self.slot)
    }
}

impl Clone for Buf {
    fn clone(&self) -> Buf {
        self.pin();
        Buf { inner: self.inner.clone(), ..*self }
    }
}

impl Drop for Buf {
    #[inline]
    fn drop(&mut self) {
        self.inner.drop_ref(self.slot);
    }
}

impl std::fmt::Debug for Buf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Buf({}..+{})", self.offset, self.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool(bytes: usize) -> BufPool {
        BufPool::new(Region::new(bytes), Lkey(1))
    }

    #[test]
    fn a_buffer_returns_only_when_the_request_lets_go() {
        let pool = pool(64);
        let buf = pool.take(10).unwrap();
        let pinned = buf.pin();
        drop(buf);
        assert_eq!(pool.in_use(), 1);
        assert!(pool.take(10).is_err(), "the NIC may still write into it");
        pool.unpin(pinned);
        assert_eq!(pool.in_use(), 0);
        assert!(pool.take(10).is_ok());
    }

    #[test]
    fn classes_do_not_overlap() {
        let pool = pool(1 << 12);
        let bufs: Vec<Buf> = [64, 100, 8, 512].iter().map(|&n| pool.take(n).unwrap()).collect();
        for (i, buf) in bufs.iter().enumerate() {
            buf.write(0, &vec![i as u8 + 1; buf.len() as usize]);
        }
        for (i, buf) in bufs.iter().enumerate() {
            let mut out = vec![0; buf.len() as usize];
            buf.read(0, &mut out);
            assert!(out.iter().all(|&b| b == i as u8 + 1));
        }
    }

    #[test]
    fn buffers_of_many_blocks_are_told_apart_and_taken_again() {
        let count = 3 * BLOCK as u32 + 5;
        let pool = pool(count as usize * SMALLEST as usize);
        for _ in 0..2 {
            let bufs: Vec<Buf> = (0..count).map(|_| pool.take(8).unwrap()).collect();
            bufs.iter().enumerate().for_each(|(i, buf)| buf.set_word(0, i as u64));
            assert!(bufs.iter().enumerate().all(|(i, buf)| buf.word(0) == i as u64));
            assert_eq!(pool.in_use(), count as usize);
            assert!(pool.take(8).is_err(), "all of it is in use");
            drop(bufs);
            assert_eq!(pool.in_use(), 0);
        }
    }

    #[test]
    fn what_was_lent_comes_back_once_and_as_it_was() {
        let pool = pool(1 << 12);
        let (buf, other) = (pool.take(100).unwrap(), pool.take(100).unwrap());
        buf.set_word(3, 7);
        let place = buf.sge();
        let lent = buf.lend();
        assert_eq!(pool.in_use(), 2, "the receive queue holds it");
        assert!(pool.give_back(lent + 1).is_none(), "the other one is not lent");
        assert!(pool.give_back(u64::MAX).is_none() && pool.give_back(77).is_none());
        let back = pool.give_back(lent).unwrap();
        assert!(pool.give_back(lent).is_none(), "it is back already");
        assert_eq!((back.len(), back.sge(), back.word(3)), (100, place, 7));
        drop((back, other));
        assert_eq!(pool.in_use(), 0);
        assert_eq!(pool.take(70).unwrap().capacity(), 128);
    }

    #[test]
    fn a_shared_buffer_is_the_pinned_one() {
        let pool = pool(64);
        let buf = pool.take(9).unwrap();
        let pinned = buf.pin();
        buf.set_word(1, 5);
        drop(buf);
        let again = pool.share(pinned);
        assert_eq!((again.len(), again.word(1)), (9, 5));
        pool.unpin(pinned);
        assert_eq!(pool.in_use(), 1);
        drop(again);
        assert_eq!(pool.in_use(), 0);
    }

    #[test]
    fn an_exhausted_pool_says_so() {
        let pool = pool(128);
        let _a = pool.take(128).unwrap();
        assert_eq!(pool.take(1).unwrap_err(), PoolExhausted { wanted: 1, pool_bytes: 128 });
        let most = PoolExhausted { wanted: u32::MAX, pool_bytes: 128 };
        assert_eq!(pool.take(u32::MAX).unwrap_err(), most, "every length has a class");
    }

    /// A group of many long requests has one buffer.
    #[test]
    fn a_buffer_may_be_as_long_as_its_pool() {
        let pool = pool(16 << 20);
        let buf = pool.take(9 << 20).unwrap();
        assert_eq!((buf.len(), buf.capacity()), (9 << 20, 16 << 20));
        buf.set_word((9 << 17) - 1, 7);
        drop(buf);
        assert_eq!(pool.take(16 << 20).unwrap().word((9 << 17) - 1), 7, "it came back");
    }
}
