//! Payloads in flight: words packed from byte 0 of the message, in one arena with free lists by size.

use super::message::Message;
use crate::mem::{Region, ahead};
use std::sync::atomic::Ordering;

/// No payload.
pub(super) const NONE: u32 = u32::MAX;

const CLASSES: usize = 30;

/// Words of a cache line.
const LINE: usize = 8;

/// Words of messages in flight. Blocks are powers of two, and whole cache lines, and are used again.
pub(super) struct Arena {
    words: Vec<u64>,
    free: [Vec<u32>; CLASSES],
}

fn class_of(words: usize) -> usize {
    words.max(LINE).next_power_of_two().trailing_zeros() as usize
}

impl Arena {
    pub fn new() -> Arena {
        // An allocation of this size has pages of its own, and so the same place in its first line when it grows.
        let mut words: Vec<u64> = Vec::with_capacity(1 << 16);
        let skew = words.as_ptr().align_offset(LINE * size_of::<u64>());
        words.resize(skew.min(LINE), 0);
        Arena { words, free: Default::default() }
    }

    /// A block for `len` bytes.
    #[inline]
    pub fn take(&mut self, len: u32) -> u32 {
        let class = class_of(len.div_ceil(8).max(1) as usize);
        match self.free[class].pop() {
            Some(block) => block,
            None => {
                let block = self.words.len() as u32;
                self.words.resize(self.words.len() + (1 << class), 0);
                block
            }
        }
    }

    /// Gives back the block taken for `len` bytes.
    #[inline]
    pub fn give(&mut self, block: u32, len: u32) {
        self.free[class_of(len.div_ceil(8).max(1) as usize)].push(block);
    }

    /// Reads the payload of a message about to leave from its sender's memory. The range was checked.
    #[inline(always)]
    pub fn fetch(&mut self, region: &Region, m: &mut Message) {
        if m.in_word() {
            m.a = load_word(region, m.local_offset, m.len);
        } else {
            m.payload = self.take(m.len);
            let words = m.len.div_ceil(8) as usize;
            load(region, m.local_offset, self.block_mut(m.payload, m.len), 0, words);
        }
    }

    /// Asks for a message's block.
    #[inline]
    pub fn ahead(&self, m: &Message) {
        if m.payload != NONE {
            let block = self.block(m.payload, m.len);
            block.first().map(ahead);
            block.last().map(ahead);
        }
    }

    #[inline]
    pub fn block(&self, block: u32, len: u32) -> &[u64] {
        &self.words[block as usize..][..len.div_ceil(8) as usize]
    }

    #[inline]
    pub fn block_mut(&mut self, block: u32, len: u32) -> &mut [u64] {
        &mut self.words[block as usize..][..len.div_ceil(8) as usize]
    }
}

/// Reads the bytes, eight at most, of a message that travels as a word. The range was checked.
#[inline(always)]
pub(super) fn load_word(region: &Region, offset: u64, len: u32) -> u64 {
    if len == 8 && offset.is_multiple_of(8) {
        return region.load(offset);
    }
    let mut word = [0];
    load(region, offset, &mut word, 0, len.div_ceil(8) as usize);
    word[0]
}

/// Stores such a message's bytes. The range was checked.
#[inline(always)]
pub(super) fn store_word(region: &Region, offset: u64, len: u32, word: u64) {
    if len == 8 && offset.is_multiple_of(8) {
        region.store(offset, word);
    } else {
        store(region, offset, len, &[word], 0, len.div_ceil(8) as usize);
    }
}

/// Reads words `from..to` of a message of `len` bytes at byte `offset` of a region. The range was checked.
pub(super) fn load(region: &Region, offset: u64, out: &mut [u64], from: usize, to: usize) {
    let words = region.words();
    let first = (offset / 8) as usize;
    let shift = (offset % 8) * 8;
    if shift == 0 {
        for (out, word) in out[from..to].iter_mut().zip(&words[first + from..]) {
            *out = word.load(Ordering::Acquire);
        }
        return;
    }
    for (i, out) in out.iter_mut().enumerate().take(to).skip(from) {
        let low = words[first + i].load(Ordering::Acquire) >> shift;
        let high = words.get(first + i + 1).map_or(0, |w| w.load(Ordering::Acquire)) << (64 - shift);
        *out = low | high;
    }
}

/// Stores words `from..to` of a message of `len` bytes at byte `offset` of a region, in address order. Bytes
/// beyond `len` stay as they are. The range was checked.
pub(super) fn store(region: &Region, offset: u64, len: u32, words: &[u64], from: usize, to: usize) {
    if (offset | u64::from(len)).is_multiple_of(8) {
        let target = &region.words()[(offset / 8) as usize + from..];
        for (word, value) in target.iter().zip(&words[from..to]) {
            word.store(*value, Ordering::Release);
        }
        return;
    }
    for (i, &value) in words.iter().enumerate().take(to).skip(from) {
        let bytes = (u64::from(len) - i as u64 * 8).min(8);
        let mask = if bytes == 8 { u64::MAX } else { (1 << (bytes * 8)) - 1 };
        let at = offset + i as u64 * 8;
        let shift = (at % 8) * 8;
        region.merge((at / 8) as usize, value << shift, mask << shift);
        if shift + bytes * 8 > 64 {
            region.merge((at / 8) as usize + 1, value >> (64 - shift), mask >> (64 - shift));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_travel_unchanged_at_every_alignment() {
        let source = Region::new(64);
        source.write_bytes(0, &(1..65).collect::<Vec<u8>>()).unwrap();
        for from in 0..9u64 {
            for to in 0..9u64 {
                for len in 1..30u32 {
                    let mut words = vec![0; len.div_ceil(8) as usize];
                    let n = words.len();
                    load(&source, from, &mut words, 0, n);
                    let target = Region::new(64);
                    target.write_bytes(0, &[0xee; 64]).unwrap();
                    store(&target, to, len, &words, 0, n);
                    let mut got = [0u8; 64];
                    target.read_bytes(0, &mut got).unwrap();
                    for (i, &byte) in got.iter().enumerate() {
                        let inside = i as u64 >= to && (i as u64) < to + u64::from(len);
                        let want = if inside { (from + i as u64 - to + 1) as u8 } else { 0xee };
                        assert_eq!(byte, want, "byte {i}: {from} to {to}, {len} B");
                    }
                }
            }
        }
    }

    #[test]
    fn an_unaligned_load_at_the_end_of_a_region_stays_inside() {
        let source = Region::new(16);
        source.write_bytes(0, &(0..16).collect::<Vec<u8>>()).unwrap();
        let mut word = [0];
        load(&source, 11, &mut word, 0, 1);
        assert_eq!(word[0] & 0xff_ffff_ffff, u64::from_le_bytes([11, 12, 13, 14, 15, 0, 0, 0]));
    }

    #[test]
    fn blocks_are_used_again() {
        let mut arena = Arena::new();
        let a = arena.take(100);
        let b = arena.take(100);
        assert_ne!(a, b);
        arena.give(a, 100);
        assert_eq!(arena.take(120), a, "same class");
        let size = arena.words.len();
        arena.give(b, 100);
        arena.take(65);
        assert_eq!(arena.words.len(), size);
    }
}
