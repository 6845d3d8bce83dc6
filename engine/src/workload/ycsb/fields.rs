//! The fields of a record: so many of so many bytes each, one behind the other, whatever words they fall into.
//!
//! Each field begins with a counter of eight bytes, little end first; the rest of it repeats the counter's lowest byte, so
//! that a field of more than eight bytes tells when it is not of one piece. A record that was never written is all zero.

use std::ops::RangeInclusive;

/// Bytes of a field's counter.
pub(super) const COUNTER: u32 = 8;

/// How a record divides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fields {
    pub(super) count: u32,
    pub(super) bytes: u32,
}

/// Times a byte: a word of that byte alone.
const REPEATED: u64 = 0x0101_0101_0101_0101;

/// The lowest `n` of a word's eight bytes.
const fn low(n: u32) -> u64 {
    if n >= 8 { u64::MAX } else { (1 << (8 * n)) - 1 }
}

impl Fields {
    /// Bytes of a record.
    pub(super) const fn record_bytes(self) -> u32 {
        self.count * self.bytes
    }

    /// Bytes of its payload: whole words.
    pub(super) const fn payload_bytes(self) -> u32 {
        self.record_bytes().next_multiple_of(8)
    }

    /// A field's counter.
    #[inline]
    pub(super) fn counter(self, field: u32, word: impl Fn(usize) -> u64) -> u64 {
        let start = field * self.bytes;
        let (at, shift) = ((start / 8) as usize, 8 * (start % 8));
        let low = word(at) >> shift;
        if shift == 0 { low } else { low | word(at + 1) << (64 - shift) }
    }

    /// The words that a field lies in, wholly or in part.
    #[inline]
    pub(super) fn words_of(self, field: u32) -> RangeInclusive<usize> {
        let start = field * self.bytes;
        (start / 8) as usize..=((start + self.bytes - 1) / 8) as usize
    }

    /// Word `at`, one of the field's, as it is when the field's counter is `value`; other fields' bytes as in `old`.
    #[inline]
    pub(super) fn put(self, field: u32, value: u64, at: usize, old: u64) -> u64 {
        let (start, end, at) = (field * self.bytes, (field + 1) * self.bytes, at as u32);
        let inside = low(end - at * 8) & !low(start.saturating_sub(at * 8));
        let rest = (value & 0xff) * REPEATED;
        let shift = 8 * (start % 8);
        let content = match at - start / 8 {
            0 => value << shift,
            1 if shift > 0 => value >> (64 - shift) | rest & !low(start % 8),
            _ => rest,
        };
        old & !inside | content & inside
    }

    /// The bits of a field behind its counter that are not as they should be; it begins with byte `start`.
    #[inline]
    fn odd(self, start: u32, word: impl Fn(usize) -> u64) -> u64 {
        // The first byte and all behind the counter lie equally far from the beginning of their words.
        let (at, shift) = ((start / 8) as usize, 8 * (start % 8));
        let rest = (word(at) >> shift & 0xff) * REPEATED;
        let piece = |at: usize, bytes: u32| {
            let first = word(at) >> shift;
            if shift + 8 * bytes > 64 { first | word(at + 1) << (64 - shift) } else { first }
        };
        let behind = self.bytes - COUNTER;
        let (whole, last) = ((behind / 8) as usize, behind % 8);
        let odd = (1..=whole).fold(0, |odd, n| odd | piece(at + n, 8) ^ rest);
        if last == 0 { odd } else { odd | (piece(at + 1 + whole, last) ^ rest) & low(last) }
    }

    /// Whether all fields are of one piece.
    #[inline]
    pub(super) fn all_whole(self, word: impl Fn(usize) -> u64) -> bool {
        if self.bytes <= COUNTER {
            return true;
        }
        // Most records are: no field is worth a question of its own.
        if self.bytes < COUNTER + 8 {
            return self.short_odd(word) == 0;
        }
        let starts = (0..self.count).map(|field| field * self.bytes);
        starts.fold(0, |odd, start| odd | self.odd(start, &word)) == 0
    }

    /// [`Fields::odd`] of all fields, where less than a word is behind each counter.
    #[inline]
    fn short_odd(self, word: impl Fn(usize) -> u64) -> u64 {
        let behind = 8 * (self.bytes - COUNTER);
        let (mut at, mut shift, mut odd) = (0, 0, 0);
        for _ in 0..self.count {
            let mut rest = word(at + 1) >> shift;
            if shift + behind > 64 {
                rest |= word(at + 2) << (64 - shift);
            }
            odd |= rest ^ ((word(at) >> shift & 0xff) * REPEATED);
            shift += 8 * self.bytes;
            at += (shift / 64) as usize;
            shift %= 64;
        }
        odd & low(self.bytes - COUNTER)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A record as bytes, the plain way.
    fn bytes_of(words: &[u64]) -> Vec<u8> {
        words.iter().flat_map(|w| w.to_le_bytes()).collect()
    }

    proptest! {
        #[test]
        fn a_field_is_its_bytes_and_no_others(
            count in 1u32..12, bytes in 8u32..40, field in 0u32..12, value: u64, fill: u64, tampered: prop::sample::Index,
        ) {
            let fields = Fields { count, bytes };
            let field = field % count;
            let mut words: Vec<u64> =
                (0..u64::from(fields.payload_bytes() / 8)).map(|i| fill.rotate_left(i as u32)).collect();
            let mut expected = bytes_of(&words);
            let start = (field * bytes) as usize;
            expected[start..start + bytes as usize].fill(value as u8);
            expected[start..start + 8].copy_from_slice(&value.to_le_bytes());
            for at in fields.words_of(field) {
                words[at] = fields.put(field, value, at, words[at]);
            }
            prop_assert_eq!(bytes_of(&words), expected);
            prop_assert_eq!(fields.counter(field, |i| words[i]), value);
            prop_assert_eq!(fields.odd(field * bytes, |i| words[i]), 0);
            // One byte behind the counter that differs is noticed.
            if bytes > COUNTER {
                let at = start + 8 + tampered.index(bytes as usize - 8);
                words[at / 8] ^= 1 << (8 * (at % 8));
                prop_assert_ne!(fields.odd(field * bytes, |i| words[i]), 0);
                prop_assert!(!fields.all_whole(|i| words[i]));
            }
        }

        #[test]
        fn a_record_is_whole_if_each_field_is(count in 1u32..12, bytes in 9u32..40, fields in prop::collection::vec(any::<u64>(), 12)) {
            let of = Fields { count, bytes };
            let mut words = vec![0; (of.payload_bytes() / 8) as usize];
            for field in 0..count {
                for at in of.words_of(field) {
                    words[at] = of.put(field, fields[field as usize], at, words[at]);
                }
            }
            prop_assert!(of.all_whole(|i| words[i]));
            // Behind each counter there is no byte that may differ.
            for byte in (0..count).flat_map(|field| field * bytes + COUNTER..(field + 1) * bytes) {
                let mut torn = words.clone();
                torn[(byte / 8) as usize] ^= 1 << (8 * (byte % 8) + byte % 7);
                prop_assert!(!of.all_whole(|i| torn[i]));
            }
        }
    }
}
