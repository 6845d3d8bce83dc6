//! Random values that are a function of a record: what population is made of.
//!
//! A [`Stream`] is seeded by the population's seed, a purpose and a key, so that a record's contents do not depend on
//! what was filled before it, nor on which node fills it, and a part of them (an order's number of lines) can be had
//! without the rest.

/// Characters of random texts, in ascending order.
const ALPHABET: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// Mixes all bits of a word into all others (splitmix64's finalizer).
#[inline]
pub const fn mix(word: u64) -> u64 {
    let mut z = word.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}

/// A sequence of random values.
#[derive(Clone, Debug)]
pub struct Stream(u64);

impl Stream {
    /// The sequence of `key` for one purpose.
    pub fn of(seed: u64, purpose: u16, key: u64) -> Stream {
        Stream(mix(mix(seed ^ u64::from(purpose).rotate_right(16)) ^ key))
    }

    /// Any word (splitmix64).
    #[inline]
    pub fn word(&mut self) -> u64 {
        let word = mix(self.0);
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        word
    }

    /// A number from `low` to `high`, both included, each as often as the others to within 2⁻³² for the ranges there are.
    ///
    /// # Panics
    /// If there is no number in between.
    #[inline]
    pub fn within(&mut self, low: u64, high: u64) -> u64 {
        assert!(low <= high, "nothing from {low} to {high}");
        let span = u128::from(high - low) + 1;
        low + ((u128::from(self.word()) * span) >> 64) as u64
    }

    /// Whether something happens that does so one time in `n`.
    pub fn one_in(&mut self, n: u64) -> bool {
        self.within(1, n) == 1
    }

    /// A text of `low` to `high` letters and digits ("random a-string"), at the front of `buffer`.
    pub fn text<'b>(&mut self, buffer: &'b mut [u8], low: usize, high: usize) -> &'b mut [u8] {
        self.symbols(buffer, low, high, ALPHABET)
    }

    /// A text of `low` to `high` digits ("random n-string"), at the front of `buffer`.
    pub fn digits<'b>(&mut self, buffer: &'b mut [u8], low: usize, high: usize) -> &'b mut [u8] {
        self.symbols(buffer, low, high, &ALPHABET[..10])
    }

    /// A text of `low` to `high` capital letters, at the front of `buffer`.
    pub fn letters<'b>(&mut self, buffer: &'b mut [u8], low: usize, high: usize) -> &'b mut [u8] {
        self.symbols(buffer, low, high, &ALPHABET[10..36])
    }

    fn symbols<'b>(&mut self, buffer: &'b mut [u8], low: usize, high: usize, set: &[u8]) -> &'b mut [u8] {
        let len = self.within(low as u64, high as u64) as usize;
        // Each word is a fraction whose digits to the base of the set are the symbols: eight of them leave 16 bits over.
        for eight in buffer[..len].chunks_mut(8) {
            let mut fraction = self.word();
            for symbol in eight {
                let wide = u128::from(fraction) * set.len() as u128;
                *symbol = set[(wide >> 64) as usize];
                fraction = wide as u64;
            }
        }
        &mut buffer[..len]
    }
}

/// The place of `at` in a random order of `0..n` that `seed` chooses: a permutation, computed for one place at a time.
///
/// Four rounds of a Feistel network over the next even number of bits; results beyond `n` go through it again, which
/// ends, because the network's own permutation leads back into the range.
///
/// # Panics
/// If `at` is not below `n`.
pub fn permuted(seed: u64, n: u64, at: u64) -> u64 {
    walk(n, at, |half, mut left, mut right| {
        for round in 0..4 {
            (left, right) = (right, left ^ scramble(seed, round, half, right));
        }
        (left, right)
    })
}

/// What is at `place` in that order: [`permuted`] backwards.
///
/// # Panics
/// If `place` is not below `n`.
pub fn permuted_back(seed: u64, n: u64, place: u64) -> u64 {
    walk(n, place, |half, mut left, mut right| {
        for round in (0..4).rev() {
            (left, right) = (right ^ scramble(seed, round, half, left), left);
        }
        (left, right)
    })
}

fn scramble(seed: u64, round: u64, half: u32, value: u64) -> u64 {
    mix(seed ^ round << 56 ^ value) & ((1 << half) - 1)
}

fn walk(n: u64, from: u64, network: impl Fn(u32, u64, u64) -> (u64, u64)) -> u64 {
    assert!(from < n, "{from} of {n}");
    let half = (64 - (n - 1).leading_zeros()).div_ceil(2).max(1);
    let mut value = from;
    loop {
        let (left, right) = network(half, value >> half, value & ((1 << half) - 1));
        value = left << half | right;
        if value < n {
            return value;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_permutation_meets_every_place_once_and_depends_on_its_seed() {
        for n in [1, 2, 3, 7, 10, 64, 1000, 3000] {
            let mut seen: Vec<u64> = (0..n).map(|at| permuted(9, n, at)).collect();
            if n >= 64 {
                assert_ne!(seen, (0..n).map(|at| permuted(10, n, at)).collect::<Vec<_>>());
                let fixed = seen.iter().zip(0..).filter(|(a, b)| **a == *b).count();
                assert!(fixed < 10, "{fixed} of {n} stay where they are");
            }
            assert!(seen.iter().zip(0..).all(|(&place, at)| permuted_back(9, n, place) == at));
            seen.sort_unstable();
            assert!(seen.iter().copied().eq(0..n), "{n}");
        }
    }

    /// Chi-square over the symbols, with 99.99 % quantiles from the normal approximation of Wilson and Hilferty.
    #[test]
    fn symbols_are_even() {
        let mut stream = Stream::of(1, 2, 3);
        let mut buffer = [0; 24];
        for (set, text) in [
            (
                &ALPHABET[..],
                Stream::text as for<'b> fn(&mut Stream, &'b mut [u8], usize, usize) -> &'b mut [u8],
            ),
            (&ALPHABET[..10], Stream::digits),
            (&ALPHABET[10..36], Stream::letters),
        ] {
            let mut counts = [0u64; 256];
            let mut total = 0;
            for _ in 0..5_000 {
                for &symbol in text(&mut stream, &mut buffer, 8, 24).iter() {
                    counts[usize::from(symbol)] += 1;
                    total += 1;
                }
            }
            assert_eq!(
                set.iter().map(|&s| counts[usize::from(s)]).sum::<u64>(),
                total,
                "others than the set"
            );
            let expected = total as f64 / set.len() as f64;
            let chi: f64 =
                set.iter().map(|&s| (counts[usize::from(s)] as f64 - expected).powi(2) / expected).sum();
            let freedom = set.len() as f64 - 1.0;
            let limit =
                freedom * (1.0 - 2.0 / (9.0 * freedom) + 3.72 * (2.0 / (9.0 * freedom)).sqrt()).powi(3);
            assert!(chi < limit, "chi-square {chi} of {freedom}, at most {limit}");
        }
    }

    #[test]
    fn ranges_include_their_ends_and_streams_of_other_keys_differ() {
        let mut stream = Stream::of(1, 1, 1);
        let drawn: std::collections::BTreeSet<u64> = (0..1_000).map(|_| stream.within(3, 7)).collect();
        assert!(drawn.into_iter().eq(3..=7));
        assert_eq!(stream.within(5, 5), 5);
        assert_eq!(Stream::of(1, 1, 1).word(), Stream::of(1, 1, 1).word());
        let first: std::collections::BTreeSet<u64> = (0..100)
            .flat_map(|key| {
                [(1, 1), (1, 2), (2, 1)].map(|(seed, purpose)| Stream::of(seed, purpose, key).word())
            })
            .collect();
        assert_eq!(first.len(), 300);
    }
}
