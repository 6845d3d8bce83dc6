//! What a history keeps of the values that were read and written.
//!
//! Versions tell who read from whom, and take for granted that who read a version read what its writer wrote. A record that was read half
//! old and half new has the version of one of the two, and is neither. So beside a version a history may keep a digest of the payload, and who
//! read a version at another digest than its writer left has read a state that nobody wrote.
//!
//! A digest is what fits where an operation had room anyway: 24 bits. So it costs a recorder no memory, and one torn read in 16.7 million passes
//! for whole. One that passes is one of many: whoever believes torn reads believes more than one.

use phases::store::record::{self, Word};
use std::fmt;

/// A digest of a record's payload, or none.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest([u8; 3]);

impl Digest {
    /// Nothing is known of the payload: there was none, or nobody looked.
    pub const NONE: Digest = Digest([0; 3]);
    /// The greatest number of a digest.
    pub const MAX: u32 = (1 << 24) - 1;

    /// Of a payload: the upper bits of the sum that records carry, without key and version. Never [`Digest::NONE`].
    #[inline]
    pub fn of(payload: &[impl Word]) -> Digest {
        let number = (record::checksum(0, 0, payload) >> 40) as u32;
        Digest::from_number(number.max(1))
    }

    /// The digest of a number from 1 to [`Digest::MAX`], of which the lower 24 bits count; none of 0.
    pub const fn from_number(number: u32) -> Digest {
        let [a, b, c, _] = number.to_le_bytes();
        Digest([a, b, c])
    }

    /// Its number, 0 for none.
    pub const fn number(self) -> u32 {
        let [a, b, c] = self.0;
        u32::from_le_bytes([a, b, c, 0])
    }

    /// Whether anything is known.
    pub const fn is_some(self) -> bool {
        self.number() != 0
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Digest({:06x})", self.number())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn a_digest_is_its_number_and_never_none() {
        for number in [0, 1, 77, 0xab_cdef, Digest::MAX] {
            assert_eq!(Digest::from_number(number).number(), number);
        }
        assert!(!Digest::NONE.is_some() && Digest::default() == Digest::NONE);
        assert!((0..100u64).all(|n| Digest::of(&vec![0u64; n as usize]).is_some()));
    }

    /// Of mixtures of two payloads no more have the digest of one of them than chance would have it.
    #[test]
    fn halves_of_two_payloads_have_another_digest() {
        let mut clashes = 0;
        let mut seen = BTreeSet::new();
        for n in 0..2_000u64 {
            let payload = |version: u64| [version, n, version, n, version, version, n];
            let (old, new) = (payload(n), payload(n + 1));
            let of = [Digest::of(&old), Digest::of(&new)];
            seen.insert(of[0]);
            for cut in 1..6 {
                let torn = [&new[..cut], &old[cut..]].concat();
                clashes += u32::from(torn != new && torn != old && of.contains(&Digest::of(&torn)));
            }
        }
        assert_eq!(clashes, 0, "of twenty thousand pairs one in 840 runs would clash by chance");
        assert!(seen.len() > 1_995, "{} of two thousand", seen.len());
    }
}
