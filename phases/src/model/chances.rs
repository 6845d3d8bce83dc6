//! How likely accesses are to end their attempt.
//!
//! Records are drawn: each access may go to any band, by the bands' shares, and a mean chance stands for all of them. Or it is no
//! matter of chance how many go where: a payment has one warehouse and one district, whatever it draws. Then each class has odds of
//! its own, of so many accesses to each kind of band, which are drawn within the kind alone. One of twenty that is fought over is
//! not twenty that are fought over a little: a mean chance to the power of twenty has next to no attempt succeed.
//!
//! How often classes wait for locks differs as they meet others; for how long stays a mean over all of them. And where a mean of chances is asked for and not what all
//! accesses come to together (locks that an attempt has got in vain), that of several kinds is geometric, and a little too low.

use super::fixpoint::or_all;
use super::input::KINDS;

/// Below this chance of success an attempt is taken to succeed this often all the same, so that retries stay finite.
pub(super) const LEAST_SUCCESS: f64 = 1e-6;

/// `powf`, but for what is known without it: most workloads have nothing of a kind, and accesses that nobody is in the way of.
pub(super) fn power(base: f64, exponent: f64) -> f64 {
    match exponent {
        0.0 => 1.0,
        1.0 => base,
        _ if base == 1.0 => 1.0,
        _ => base.powf(exponent),
    }
}

/// Powers of chances that are known exactly.
pub(super) const POWERS: usize = 8;

/// Records are not alike, and whoever tries again goes to the same ones: a few transactions fail many times in a row, for which
/// a mean chance is no measure. So it is known, for one and more attempts, how likely an access is to do well in all of them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Spread {
    pub(super) home: [f64; POWERS],
    pub(super) write: [f64; POWERS],
    pub(super) read: [f64; POWERS],
}

/// Chances that the first attempts all fail, for one and more.
pub(super) struct Chances {
    pub(super) all: [f64; POWERS],
    pub(super) known: usize,
}

impl std::ops::Deref for Chances {
    type Target = [f64];
    fn deref(&self) -> &[f64] {
        &self.all[..self.known]
    }
}

impl Default for Spread {
    /// Nothing ends an attempt.
    fn default() -> Spread {
        Spread { home: [1.0; POWERS], write: [1.0; POWERS], read: [1.0; POWERS] }
    }
}

impl Spread {
    /// The chance that an attempt with so many accesses of each kind does well, in so many and one more in a row or at such a place.
    pub(super) fn well(&self, n: usize, [home, writes, reads]: [f64; 3]) -> f64 {
        power(self.home[n], home) * power(self.write[n], writes) * power(self.read[n], reads)
    }

    /// The chance that the first `k` attempts fail of a transaction with so many accesses of both kinds, for `k` from one to
    /// `most`: with `s` the chance that one succeeds, the mean of `(1 - s)^k`.
    pub(super) fn all_fail(&self, accesses: [f64; 3], most: usize) -> Chances {
        let mut chances = Chances { all: [0.0; POWERS], known: most.min(POWERS) };
        let mut succeed = [0.0; POWERS];
        for k in 0..chances.known {
            succeed[k] = self.well(k, accesses);
            let (mut sum, mut choose) = (1.0, 1.0);
            for (j, mean) in succeed.iter().enumerate().take(k + 1) {
                choose *= -((k + 1 - j) as f64) / (j + 1) as f64;
                sum += choose * mean;
            }
            chances.all[k] = sum.clamp(0.0, 1.0);
        }
        chances
    }
}

/// Chances that an access of a class ends its attempt.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Odds {
    /// Of one that writes, to records that only coroutines of their own part come to, and to others.
    pub(super) home: f64,
    pub(super) write: f64,
    /// Of one that reads, where it is checked or locks.
    pub(super) read: f64,
    /// How these, which are means, are spread.
    pub(super) spread: Spread,
    /// The chance that one of all its accesses to a kind of band, where it comes to them, ends an attempt that has come so far; nothing
    /// where it is a matter of chance how many there are.
    pub(super) by_kind: [f64; KINDS],
    /// The chance that an access meets somebody, whatever becomes of it.
    pub(super) meets: f64,
}

impl Odds {
    /// How far two are apart.
    pub(super) fn distance(&self, other: &Odds) -> f64 {
        let apart = |a: f64, b: f64| or_all((a - b).abs());
        let by_kind = self.by_kind.iter().zip(&other.by_kind).map(|(a, b)| apart(*a, *b)).fold(0.0, f64::max);
        apart(self.home, other.home)
            .max(apart(self.write, other.write))
            .max(apart(self.read, other.read))
            .max(by_kind)
    }

    /// How many numbers they are.
    pub(super) const NUMBERS: usize = 3 * (1 + POWERS) + KINDS + 1;

    /// Adds the chances that an access does not do well: once, and in so many attempts.
    pub(super) fn failing(&self, numbers: &mut Vec<f64>) {
        numbers.extend([self.home, self.write, self.read]);
        let Spread { home, write, read } = &self.spread;
        for powers in [home, write, read] {
            numbers.extend(powers.map(|well| 1.0 - well));
        }
        numbers.extend(self.by_kind);
        numbers.push(self.meets);
    }

    /// From what [`Odds::failing`] gives, or what is near it: more than certain is certain.
    pub(super) fn of_failing(numbers: &[f64]) -> Odds {
        let chance = |n: usize| numbers[n].clamp(0.0, 1.0);
        let powers = |kind: usize| std::array::from_fn(|k| 1.0 - chance(3 + kind * POWERS + k));
        let spread = Spread { home: powers(0), write: powers(1), read: powers(2) };
        let by_kind = std::array::from_fn(|kind| chance(3 * (1 + POWERS) + kind));
        let meets = chance(Odds::NUMBERS - 1);
        Odds { home: chance(0), write: chance(1), read: chance(2), spread, by_kind, meets }
    }
}

/// The chances of accesses to several kinds of bands as one: that each of so many does well is what all do together.
#[derive(Clone, Copy, Debug)]
pub(super) struct Together {
    accesses: f64,
    /// Sums of logarithms: of the chance by which attempts come out right, and of that to do well as often as this, from once on.
    does_well: f64,
    well: [f64; POWERS],
}

impl Together {
    /// No access.
    pub(super) fn none() -> Together {
        Together { accesses: 0.0, does_well: 0.0, well: [0.0; POWERS] }
    }

    /// So many accesses to a kind, each of which ends its attempt with chance `gives_up` and does `well` so often. Together they are in
    /// the way of others as often as `apart` would be each by itself.
    pub(super) fn add(&mut self, accesses: f64, apart: f64, gives_up: f64, well: &[f64; POWERS]) {
        let all = |chance: f64| apart * chance.max(LEAST_SUCCESS).ln();
        self.accesses += accesses;
        self.does_well += all(1.0 - gives_up);
        for (sum, &well) in self.well.iter_mut().zip(well) {
            *sum += all(well);
        }
    }

    /// The same of accesses to a single band, whose records are met alike: what does well once does so each time with the same chance.
    pub(super) fn add_alike(&mut self, accesses: f64, apart: f64, gives_up: f64) {
        let once = apart * (1.0 - gives_up).max(LEAST_SUCCESS).ln();
        self.accesses += accesses;
        self.does_well += once;
        for (sum, times) in self.well.iter_mut().zip(1..) {
            *sum += f64::from(times) * once;
        }
    }

    /// The logarithm of the chance by which attempts come out right.
    pub(super) fn does_well(&self) -> f64 {
        self.does_well
    }

    /// The chance of one access to end its attempt, and to do well so often, if all were alike.
    pub(super) fn each(&self) -> (f64, [f64; POWERS]) {
        if self.accesses <= 0.0 {
            return (0.0, [1.0; POWERS]);
        }
        let one = |sum: f64| (sum / self.accesses).exp();
        (1.0 - one(self.does_well), self.well.map(one))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Half of all records are never met, the others nine times in ten: a transaction that fails will fail again.
    #[test]
    fn rows_of_failures_are_those_of_the_hottest_records() {
        let spread = Spread {
            write: std::array::from_fn(|i| 0.5 + 0.5 * f64::powi(0.1, i as i32 + 1)),
            ..Spread::default()
        };
        let after_one = spread.all_fail([0.0, 1.0, 7.0], POWERS);
        assert_eq!(after_one.len(), POWERS);
        for (k, &chance) in after_one.iter().enumerate() {
            assert!((chance - 0.5 * f64::powi(0.9, k as i32 + 1)).abs() < 1e-12, "{k}: {chance}");
        }
        // Two of them: a quarter fail with 0.99, half with 0.9.
        for (k, &chance) in spread.all_fail([0.0, 2.0, 0.0], POWERS).iter().enumerate() {
            let k = k as i32 + 1;
            let fails = 0.25 * f64::powi(0.99, k) + 0.5 * f64::powi(0.9, k);
            assert!((chance - fails).abs() < 1e-12, "{k}: {chance}");
        }
        // Of a few attempts only those chances are known; they are the same.
        assert_eq!(spread.all_fail([0.0, 1.0, 7.0], 3)[..], after_one[..3]);
        assert_eq!(Spread::default().all_fail([1.0, 2.0, 3.0], POWERS)[..], [0.0; POWERS]);
    }

    /// One record of twenty that is met nine times in ten ends nine attempts in ten, and not all but one in a hundred thousand.
    #[test]
    fn one_of_twenty_is_not_twenty_that_are_met_a_little() {
        let well = |each: f64| std::array::from_fn(|k| f64::powi(each, k as i32 + 1));
        let mut together = Together::none();
        together.add(1.0, 1.0, 0.9, &well(0.1));
        together.add(19.0, 19.0, 0.0, &well(1.0));
        let (each, well) = together.each();
        let mut alike = Together::none();
        alike.add_alike(1.0, 1.0, 0.9);
        alike.add_alike(19.0, 19.0, 0.0);
        assert!((alike.each().0 - each).abs() < 1e-12 && (alike.each().1[2] - well[2]).abs() < 1e-12);
        assert!((power(1.0 - each, 20.0) - 0.1).abs() < 1e-12, "{each}");
        // And it is the same one each time: three attempts do well once in a thousand.
        assert!((power(well[2], 20.0) - 1e-3).abs() < 1e-12, "{}", well[2]);
        assert_eq!(Together::none().each(), (0.0, [1.0; POWERS]));
    }
}
