//! How the clocks of several hosts compare.
//!
//! Histories of several hosts are judged together, so their times must compare. Two steps lie between a core's time and node 0's:
//!
//! 1. **Host to host.** Before a run and after it node 0 reads each member's clock many times and keeps the reading with the shortest
//!    round trip; half of it bounds the error. Clocks part, and so an old reading is worth less than a new one: by [`DRIFT_PPM`] of its age.
//! 2. **Core to host.** A fabric counts time by its own clock, whose pace was taken in a moment, and may be off by more than any oscillator.
//!    Its time is read between two looks at the host's, before the run and after it; the pace in between is that of both readings.
//!
//! Whoever reads clocks may be held up at any point: the time between the two looks is part of the error, and the closest of several is taken.

use crate::units::Nanos;

/// Assumed bound of how fast two hosts' clocks part, and of how far the pace of one strays from its mean over a run, in parts per million:
/// twice what oscillators of servers are specified for. A clock that is being set by up to 500 ppm (`adjtimex(2)`) breaks it.
pub const DRIFT_PPM: u64 = 100;

/// Looks of which the closest is taken.
const LOOKS: u32 = 16;

/// By how much clocks part in so long a time.
pub(super) fn drift(elapsed: u64) -> u64 {
    u64::try_from(u128::from(elapsed) * u128::from(DRIFT_PPM) / 1_000_000)
        .unwrap_or(u64::MAX)
        .saturating_add(1)
}

/// What a host's time is in node 0's, as last read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct HostClock {
    /// To be added to this host's time.
    pub(super) offset_ns: i64,
    /// How far off that may be at `at`.
    pub(super) error_ns: u64,
    /// When it was read, in this host's time.
    pub(super) at: u64,
}

impl HostClock {
    /// As long as nobody has read it: no times of two nodes compare.
    pub(super) const UNKNOWN: HostClock = HostClock { offset_ns: 0, error_ns: u64::MAX, at: 0 };

    /// How far off it may be `now`.
    fn error_at(&self, now: u64) -> u64 {
        self.error_ns.saturating_add(drift(now.abs_diff(self.at)))
    }

    /// Takes a new reading in its place, unless the old one is the better one still.
    pub(super) fn renew(&mut self, new: HostClock) {
        if new.error_ns <= self.error_at(new.at) {
            *self = new;
        }
    }

    /// Reads a core's clock: `here` looks at this host's, `core` at the core's. Of node 0's own cores if `of_driver`, whose host has no
    /// offset, and no error.
    pub(super) fn read(&self, of_driver: bool, here: impl Fn() -> u64, core: impl Fn() -> Nanos) -> Reading {
        let look = |_| {
            let before = here();
            let at = core();
            (here().saturating_sub(before), before, at)
        };
        let (took, before, at) =
            (1..LOOKS).map(look).fold(look(0), |best, next| if next.0 < best.0 { next } else { best });
        let middle = before + took / 2;
        let error_of_host = if of_driver { 0 } else { self.error_at(middle) };
        let shows = i128::from(middle) + i128::from(self.offset_ns);
        Reading {
            at,
            shows: i64::try_from(shows).unwrap_or(i64::MAX),
            error_ns: error_of_host.saturating_add(took / 2 + 1),
        }
    }
}

/// A core's clock and node 0's, read at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reading {
    /// The core's time.
    pub at: Nanos,
    /// Node 0's, in nanoseconds; below zero before node 0 began to count.
    pub shows: i64,
    /// How far off that may be, in nanoseconds.
    pub error_ns: u64,
}

/// How a core's time translates into node 0's: by a reading before the run and one after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockMap {
    first: Reading,
    last: Reading,
}

impl ClockMap {
    /// The translation that two readings give, in the order in which they were made.
    pub fn between(first: Reading, last: Reading) -> ClockMap {
        ClockMap { first, last }
    }

    /// The earliest that node 0's clock can have shown at a core's time.
    pub fn earliest(&self, at: Nanos) -> Nanos {
        Self::time(self.translate(at) - i128::from(self.error(at)))
    }

    /// The latest that node 0's clock can have shown at a core's time.
    pub fn latest(&self, at: Nanos) -> Nanos {
        Self::time(self.translate(at) + i128::from(self.error(at)))
    }

    /// No history has times below zero, or beyond the last one: what is cut off there compares as before.
    fn time(ns: i128) -> Nanos {
        Nanos(u64::try_from(ns.max(0)).unwrap_or(u64::MAX))
    }

    fn translate(&self, at: Nanos) -> i128 {
        let Self { first, last } = self;
        let (since, shown) =
            (i128::from(at.0) - i128::from(first.at.0), i128::from(last.shows) - i128::from(first.shows));
        let between = i128::from(last.at.0) - i128::from(first.at.0);
        // Two readings in one nanosecond tell no pace.
        let passed = if between > 0 { since.saturating_mul(shown) / between } else { since };
        i128::from(first.shows) + passed
    }

    /// The line between two readings is off by no more than the worse of them, and the pace strays from its mean.
    fn error(&self, at: Nanos) -> u64 {
        let away = at.0.abs_diff(self.first.at.0).min(at.0.abs_diff(self.last.at.0));
        self.first.error_ns.max(self.last.error_ns).saturating_add(drift(away))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{RngExt, SeedableRng};
    use rand_xoshiro::Xoshiro256PlusPlus;
    use std::cell::Cell;

    /// Clocks by true time: a core's, its host's, and node 0's.
    struct Clocks {
        core_pace: f64,
        core_from: f64,
        host_pace: f64,
        host_from: f64,
    }

    impl Clocks {
        fn core(&self, now: f64) -> Nanos {
            Nanos(((now - self.core_from) * self.core_pace) as u64)
        }

        fn host(&self, now: f64) -> u64 {
            ((now - self.host_from) * self.host_pace) as u64
        }
    }

    /// A reading of the host's clock from node 0's over a path that takes its time there and back.
    fn host_clock(clocks: &Clocks, now: f64, there: f64, back: f64) -> HostClock {
        let (sent, returned) = (now, now + there + back);
        let theirs = clocks.host(now + there);
        let middle = ((sent + returned) / 2.0) as i64;
        HostClock {
            offset_ns: middle - theirs as i64,
            error_ns: ((there + back) / 2.0) as u64 + 1,
            at: theirs,
        }
    }

    #[test]
    fn no_pace_offset_or_pause_makes_times_that_exclude_the_true_one() {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(7);
        let mut narrow = 0;
        for _ in 0..2000 {
            let clocks = Clocks {
                // A pace that was taken in a moment of a busy machine.
                core_pace: 1.0 + rng.random_range(-2e-3..2e-3),
                core_from: rng.random_range(0.0..1e9),
                host_pace: 1.0 + rng.random_range(-9e-5..9e-5),
                host_from: rng.random_range(-1e12..1e9),
            };
            let mut delay = || 10f64.powf(rng.random_range(2.0..6.0));
            let mut host = host_clock(&clocks, 2e9, delay(), delay());
            // Held up anywhere between looks.
            let now = Cell::new(2.1e9);
            let pauses: Vec<f64> = (0..64).map(|_| delay()).collect();
            let pass = Cell::new(0);
            let held_up = || {
                now.set(now.get() + pauses[pass.get() % pauses.len()]);
                pass.set(pass.get() + 1);
                now.get()
            };
            let read =
                |host: &HostClock| host.read(false, || clocks.host(held_up()), || clocks.core(held_up()));
            let first = read(&host);
            now.set(1.2e10);
            host.renew(host_clock(&clocks, now.get(), delay(), delay()));
            let last = read(&host);
            let map = ClockMap::between(first, last);
            for _ in 0..20 {
                let then = rng.random_range(2.1e9..1.2e10);
                let (low, high) = (map.earliest(clocks.core(then)), map.latest(clocks.core(then)));
                assert!(
                    low.0 as f64 <= then + 1.0 && then - 1.0 <= high.0 as f64,
                    "{then} is not in {low:?} to {high:?}"
                );
                narrow += usize::from(high.0 - low.0 < 2_000_000);
            }
        }
        assert!(narrow > 10_000, "wide enough is no art: only {narrow} of 40000 are within a millisecond");
    }

    #[test]
    fn whoever_is_held_up_between_two_looks_says_so() {
        let (host, now) = (HostClock::UNKNOWN, Cell::new(1000));
        let passes = |by: u64| {
            now.set(now.get() + by);
            now.get()
        };
        // Nine microseconds at every look: no look is better.
        let held_up = host.read(true, || now.get(), || Nanos(passes(9_000) - 8_900));
        assert!(held_up.error_ns >= 4_500, "{held_up:?}");
        // At all but one.
        let at = Cell::new(0);
        let once = host.read(
            true,
            || now.get(),
            || {
                at.set(at.get() + 1);
                Nanos(passes(if at.get() == 5 { 10 } else { 9_000 }))
            },
        );
        assert_eq!(once.error_ns, 6, "{once:?}");
    }

    #[test]
    fn a_reading_that_is_worse_than_an_old_one_is_left_out() {
        let mut host = HostClock::UNKNOWN;
        let first = HostClock { offset_ns: 5, error_ns: 1000, at: 0 };
        host.renew(first);
        assert_eq!(host, first, "whatever is better than nothing");
        let worse = HostClock { offset_ns: 900_000, error_ns: 1_000_000, at: 1_000_000_000 };
        host.renew(worse);
        assert_eq!(host.offset_ns, 5);
        host.renew(HostClock { error_ns: 90_000, ..worse });
        assert_eq!(host.offset_ns, 900_000, "a second may have put the old one off by 100 µs");
    }

    #[test]
    fn readings_in_one_moment_translate_by_their_offset() {
        let reading = Reading { at: Nanos(70), shows: 20, error_ns: 3 };
        let map = ClockMap::between(reading, reading);
        assert_eq!((map.earliest(Nanos(80)), map.latest(Nanos(80))), (Nanos(26), Nanos(34)));
        assert_eq!(map.earliest(Nanos(0)), Nanos(0), "before node 0 counted");
    }
}
