//! The specification's non-uniform numbers (clause 2.1.6) and last names (clause 4.3.2.3).

use crate::workload::stream::{Stream, mix};
use rand::{Rng, RngExt};
use rand_distr::{Distribution, Zipf};

/// Last names there are.
pub const LAST_NAMES: u64 = 1000;

const SYLLABLES: [&str; 10] =
    ["BAR", "OUGHT", "ABLE", "PRI", "PRES", "ESE", "ANTI", "CALLY", "ATION", "EING"];

/// The last name of a number from 0 to 999: a syllable for each of its three digits. Returns its length.
///
/// # Panics
/// If the number has more digits, or the buffer less than 15 bytes.
pub fn last_name(number: u64, buffer: &mut [u8]) -> usize {
    assert!(number < LAST_NAMES, "last name {number} of {LAST_NAMES}");
    let mut len = 0;
    for digit in [number / 100, number / 10 % 10, number % 10] {
        let syllable = SYLLABLES[digit as usize].as_bytes();
        buffer[len..len + syllable.len()].copy_from_slice(syllable);
        len += syllable.len();
    }
    len
}

/// `NURand(A, x, y)` with its constant C: numbers from x to y, some of which come far more often than others.
///
/// The specification gives A for its ranges of 1000 last names, 3000 customers and 100 000 items: 255, 1023 and 8191.
/// Smaller ranges take the A of the same proportion, the largest power of two less one, so that skew stays comparable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NuRand {
    a: u64,
    c: u64,
    low: u64,
    high: u64,
}

impl NuRand {
    fn new(a: u64, of: u64, c: u64, low: u64, high: u64) -> NuRand {
        let range = high - low + 1;
        let scaled = ((a + 1) * range / of).max(1);
        let a = (1 << scaled.ilog2()) - 1;
        NuRand { a, c: c % (a + 1), low, high }
    }

    /// A number.
    #[inline]
    pub fn draw(&self, rng: &mut impl Rng) -> u64 {
        self.of(rng.random_range(0..=self.a), rng.random_range(self.low..=self.high))
    }

    /// A number out of a record's stream.
    pub fn from_stream(&self, stream: &mut Stream) -> u64 {
        let narrow = stream.within(0, self.a);
        self.of(narrow, stream.within(self.low, self.high))
    }

    #[inline]
    fn of(&self, narrow: u64, wide: u64) -> u64 {
        ((narrow | wide) + self.c) % (self.high - self.low + 1) + self.low
    }

    /// The chance of each number.
    fn shares(&self) -> Vec<f64> {
        let (a, range) = (self.a as usize, (self.high - self.low + 1) as usize);
        // Ways to come to each number before it is shifted: of a wide one with `k` of the low bits set, 2ᵏ narrow ones make
        // nothing else, and as many make each number that has further low bits set.
        let mut ways = vec![0.0f64; (self.high as usize | a) + 1];
        let possible = ways.iter_mut().enumerate().take(self.high as usize + 1).skip(self.low as usize);
        for (wide, ways) in possible {
            *ways = f64::from((wide & a).count_ones()).exp2();
        }
        let mut bit = 1;
        while bit <= a {
            for number in (0..ways.len()).filter(|number| number & bit != 0) {
                ways[number] += ways[number - bit];
            }
            bit *= 2;
        }
        let mut shares = vec![0.0f64; range];
        for (number, ways) in ways.iter().enumerate() {
            shares[(number + self.c as usize) % range] += ways / ((a + 1) as f64 * range as f64);
        }
        shares
    }

    #[cfg(test)]
    fn constants(&self) -> (u64, u64) {
        (self.a, self.c)
    }
}

/// How items are chosen, from 1 on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Items {
    /// As the specification has it.
    Specified(NuRand),
    /// By Zipf's law, the first one most often: item `k` in proportion to `k` to the power of the negative exponent, as in NAM-DB §7.4. An
    /// exponent of 0 chooses all alike.
    Zipf {
        /// The law, which draws.
        law: Zipf<f64>,
        /// How many there are.
        items: u64,
        /// The exponent.
        exponent: f64,
    },
}

impl Items {
    /// By Zipf's law with an exponent that is not negative.
    fn zipf(items: u64, exponent: f64) -> Items {
        // It refuses none to choose from and a negative exponent, which parameters have neither of.
        let law = Zipf::new(items.max(1) as f64, exponent.max(0.0)).expect("an item, and an exponent from 0");
        Items::Zipf { law, items, exponent }
    }

    /// An item.
    #[inline]
    pub fn draw(&self, rng: &mut impl Rng) -> u64 {
        match self {
            Items::Specified(numbers) => numbers.draw(rng),
            Items::Zipf { law, items, .. } => (law.sample(rng) as u64).clamp(1, *items),
        }
    }

    /// The chance of each item.
    fn shares(&self) -> Vec<f64> {
        match self {
            Items::Specified(numbers) => numbers.shares(),
            Items::Zipf { items, exponent, .. } => {
                let weights: Vec<f64> = (1..=*items).map(|item| (item as f64).powf(-exponent)).collect();
                let all: f64 = weights.iter().sum();
                weights.into_iter().map(|weight| weight / all).collect()
            }
        }
    }

    /// How many different numbers `draws` draws have on average.
    pub fn different(&self, draws: f64) -> f64 {
        self.shares().iter().map(|share| 1.0 - (1.0 - share).powf(draws)).sum()
    }

    /// How many numbers there are that come about equally often, and their share of all draws: the most frequent one, the next,
    /// the next two, the next four and so on.
    pub fn bands(&self) -> Vec<(f64, f64)> {
        let mut shares = self.shares();
        shares.sort_by(|a, b| b.total_cmp(a));
        let (mut bands, mut from, mut count) = (Vec::new(), 0, 1);
        while from < shares.len() {
            let to = (from + count).min(shares.len());
            bands.push(((to - from) as f64, shares[from..to].iter().sum()));
            (from, count) = (to, to);
        }
        bands
    }
}

/// The distributions of one database: last names as loaded and as looked up, customers, items.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Distributions {
    /// Last names of customers beyond the first thousand, when loaded.
    pub names_loaded: NuRand,
    /// Last names that transactions look for.
    pub names: NuRand,
    /// Customers of a district that transactions are for.
    pub customers: NuRand,
    /// Items ordered.
    pub items: Items,
}

impl Distributions {
    /// For so many last names, customers of a district and items; the constants are a function of `seed`.
    pub fn new(seed: u64, names: u64, customers: u64, items: u64) -> Distributions {
        let mut stream = Stream::of(seed, u16::MAX, 0);
        let load = stream.within(0, 255);
        // Clause 2.1.6.1: how far the constant of the run is from that of the load.
        let run = loop {
            let run = stream.within(0, 255);
            let delta = run.abs_diff(load);
            if (65..=119).contains(&delta) && delta != 96 && delta != 112 {
                break run;
            }
        };
        Distributions {
            names_loaded: NuRand::new(255, 1000, load, 0, names - 1),
            names: NuRand::new(255, 1000, run, 0, names - 1),
            customers: NuRand::new(1023, 3000, mix(stream.word()), 1, customers),
            items: Items::Specified(NuRand::new(8191, 100_000, mix(stream.word()), 1, items)),
        }
    }

    /// With items by Zipf's law, where the exponent is not negative.
    #[must_use]
    pub fn with_items(self, items: u64, exponent: f64) -> Distributions {
        if exponent < 0.0 { self } else { Distributions { items: Items::zipf(items, exponent), ..self } }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;
    use rand_xoshiro::Xoshiro256PlusPlus;

    fn numbers(items: Items) -> NuRand {
        match items {
            Items::Specified(numbers) => numbers,
            Items::Zipf { .. } => panic!("{items:?}"),
        }
    }

    /// Draws against the law, of the ten that come most often and of all the others.
    #[test]
    fn items_follow_zipfs_law_also_with_exponents_of_one_and_more() {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(8);
        for exponent in [0.0, 0.8, 1.0, 2.0] {
            let items = Items::zipf(300, exponent);
            let (shares, draws) = (items.shares(), 200_000);
            let mut counts = vec![0u32; 301];
            (0..draws).for_each(|_| counts[items.draw(&mut rng) as usize] += 1);
            assert_eq!(counts[0], 0);
            let all: f64 = (1..=300).map(|k| 1.0 / f64::from(k).powf(exponent)).sum();
            for item in 1..=10 {
                let due = 1.0 / (item as f64).powf(exponent) / all;
                assert!((shares[item - 1] - due).abs() < 1e-12);
                let (got, sigma) = (f64::from(counts[item]), (f64::from(draws) * due).sqrt());
                assert!((got - f64::from(draws) * due).abs() < 5.0 * sigma, "{exponent}: item {item}, {got}");
            }
            let rest = f64::from(counts[11..].iter().sum::<u32>()) / f64::from(draws);
            assert!((rest - shares[10..].iter().sum::<f64>()).abs() < 0.01, "{exponent}: {rest}");
            let bands = items.bands();
            let (records, share) = bands.iter().fold((0.0, 0.0), |(n, s), band| (n + band.0, s + band.1));
            assert!(records == 300.0 && (share - 1.0f64).abs() < 1e-9, "{bands:?}");
        }
    }

    #[test]
    fn different_numbers_are_as_many_as_are_drawn() {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(5);
        for items in [50, 1_000, 8_192, 100_000] {
            let draws = Distributions::new(1, 1000, 3000, items).items;
            let mean = (0..300).map(|_| {
                let drawn: std::collections::BTreeSet<u64> = (0..200).map(|_| draws.draw(&mut rng)).collect();
                drawn.len() as f64 / 300.0
            });
            let (got, said) = (mean.sum::<f64>(), draws.different(200.0));
            assert!((got - said).abs() < 1.0, "of {items}: {got}, not {said}");
        }
    }

    #[test]
    fn bands_hold_all_numbers_and_the_frequent_ones_first() {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(6);
        for items in [1, 50, 1_000] {
            let draws = Distributions::new(1, 1000, 3000, items).items;
            let bands = draws.bands();
            let (records, share) = bands.iter().fold((0.0, 0.0), |(n, s), band| (n + band.0, s + band.1));
            assert!(records == items as f64 && (share - 1.0f64).abs() < 1e-9, "{records} {share}");
            assert!(bands.windows(2).all(|b| b[0].1 / b[0].0 >= (1.0 - 1e-9) * b[1].1 / b[1].0), "{bands:?}");
            // Two draws that are alike: as often as the bands say, a little more for what differs within one.
            let alike: f64 = bands.iter().map(|(n, share)| share * share / n).sum();
            let draws = (0..100_000).filter(|_| draws.draw(&mut rng) == draws.draw(&mut rng)).count();
            let got = draws as f64 / 1e5;
            assert!((0.85 * alike..1.15 * alike + 2e-3).contains(&got), "of {items}: {got}, not {alike}");
        }
    }

    #[test]
    fn last_names_are_those_of_the_specification() {
        let mut buffer = [0; 16];
        for (number, name) in
            [(371, "PRICALLYOUGHT"), (40, "BARPRESBAR"), (0, "BARBARBAR"), (777, "CALLYCALLYCALLY")]
        {
            let len = last_name(number, &mut buffer);
            assert_eq!(&buffer[..len], name.as_bytes());
        }
        let all: std::collections::BTreeSet<Vec<u8>> = (0..LAST_NAMES)
            .map(|n| {
                let len = last_name(n, &mut buffer);
                buffer[..len].to_vec()
            })
            .collect();
        assert_eq!((all.len(), all.iter().map(Vec::len).max()), (1000, Some(15)));
    }

    #[test]
    fn constants_are_those_of_the_specification_at_its_size_and_in_proportion_below() {
        for seed in 0..50 {
            let d = Distributions::new(seed, 1000, 3000, 100_000);
            let (load, run) = (d.names_loaded.constants(), d.names.constants());
            assert_eq!((load.0, run.0, d.customers.a, numbers(d.items).a), (255, 255, 1023, 8191));
            let delta = load.1.abs_diff(run.1);
            assert!((65..=119).contains(&delta) && delta != 96 && delta != 112, "{delta}");
        }
        let small = Distributions::new(1, 30, 30, 100);
        assert_eq!((small.names.a, small.customers.a, numbers(small.items).a), (3, 7, 7));
        let least = Distributions::new(1, 1, 1, 1);
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
        assert_eq!([least.names, least.customers, numbers(least.items)].map(|d| d.draw(&mut rng)), [0, 1, 1]);
    }

    /// Draws against the exact distribution, by chi-square.
    #[test]
    fn numbers_follow_the_formula() {
        for (a, of, low, high) in [(255, 1000, 0, 999), (1023, 3000, 1, 3000), (1023, 3000, 1, 40)] {
            let dist = NuRand::new(a, of, 123_456, low, high);
            let mut exact = vec![0u64; (high - low + 1) as usize];
            for narrow in 0..=dist.a {
                for wide in low..=high {
                    exact[(dist.of(narrow, wide) - low) as usize] += 1;
                }
            }
            let all = ((dist.a + 1) * (high - low + 1)) as f64;
            let mut rng = Xoshiro256PlusPlus::seed_from_u64(7);
            let draws = 200_000;
            let mut counts = vec![0u64; exact.len()];
            for _ in 0..draws {
                counts[(dist.draw(&mut rng) - low) as usize] += 1;
            }
            // Numbers that come less than five times are taken together.
            let (mut chi, mut cells, mut rest) = (0.0, 0.0, (0.0, 0.0));
            for (&got, &exact) in counts.iter().zip(&exact) {
                let expected = exact as f64 / all * draws as f64;
                if expected < 5.0 {
                    rest = (rest.0 + got as f64, rest.1 + expected);
                } else {
                    chi += (got as f64 - expected).powi(2) / expected;
                    cells += 1.0;
                }
            }
            if rest.1 >= 5.0 {
                chi += (rest.0 - rest.1).powi(2) / rest.1;
                cells += 1.0;
            }
            let freedom: f64 = cells - 1.0;
            // The 99.99 % quantile, after Wilson and Hilferty.
            let limit =
                freedom * (1.0 - 2.0 / (9.0 * freedom) + 3.72 * (2.0 / (9.0 * freedom)).sqrt()).powi(3);
            assert!(chi < limit, "NURand({a}, {low}, {high}): chi-square {chi}, at most {limit}");
            // Skewed: some number comes several times as often as on average.
            let most = counts.iter().max().copied().unwrap_or(0) as f64;
            assert!(most > 2.0 * draws as f64 / exact.len() as f64, "{most}");
        }
    }
}
