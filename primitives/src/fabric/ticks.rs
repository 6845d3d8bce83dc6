//! Time from a device's viewpoint: the stamps that it puts on completions, and the rate that they tell.
//!
//! A stamp is the device's own free-running counter when it completed a request, of which it gives some of the low bits: it
//! wraps. Distances are taken from each stamp to the next, so that it may wrap any number of times in between, as long as
//! two neighbours are less than half a period apart; a shorter way back is a step back, since stamps of different queues
//! may be told out of order. Nothing here reads a clock.

use crate::units::Nanos;

/// The clock that a device stamps completions with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub struct DeviceClock {
    /// The bits that stamps have: ones, from the lowest on.
    pub mask: u64,
    /// Its rate in kilohertz.
    pub khz: u64,
}

impl DeviceClock {
    /// The clock of a device that says this of it (`completion_timestamp_mask` and `hca_core_clock` of
    /// `ibv_query_device_ex(3)`); nothing if it has none, does not know its rate, or has bits that are no counter's.
    pub fn of(mask: u64, khz: u64) -> Option<DeviceClock> {
        (mask != 0 && mask & mask.wrapping_add(1) == 0 && khz != 0).then_some(DeviceClock { mask, khz })
    }

    /// Bits of a stamp.
    pub fn bits(self) -> u32 {
        self.mask.count_ones()
    }

    /// Ticks from one stamp to another, the shorter way round.
    fn step(self, from: u64, to: u64) -> i64 {
        let ahead = to.wrapping_sub(from) & self.mask;
        if ahead <= self.mask >> 1 { ahead as i64 } else { -((self.mask - ahead) as i64) - 1 }
    }

    fn seconds(self, ticks: f64) -> f64 {
        ticks / (self.khz as f64 * 1e3)
    }
}

/// What a device had stamped at some moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamped {
    clock: DeviceClock,
    /// The latest stamp; nothing came before the first.
    last: Option<u64>,
    /// Ticks from the first stamp to the latest.
    ticks: i64,
    /// Requests that completions stood for.
    requests: u64,
}

impl Stamped {
    /// Nothing yet.
    pub fn nothing(clock: DeviceClock) -> Stamped {
        Stamped { clock, last: None, ticks: 0, requests: 0 }
    }

    /// A completion was stamped that stands for so many requests: with selective signaling, for those before it too.
    #[inline]
    pub fn add(&mut self, stamp: u64, requests: u64) {
        if let Some(last) = self.last {
            self.ticks = self.ticks.saturating_add(self.clock.step(last, stamp));
        }
        self.last = Some(stamp);
        self.requests = self.requests.saturating_add(requests);
    }
}

/// What a device stamped between two moments, of which the host's time is known too.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Span {
    first: (Stamped, Nanos),
    last: (Stamped, Nanos),
}

impl Span {
    /// Begins with what was stamped by `now`.
    pub fn from(stamped: Stamped, now: Nanos) -> Span {
        Span { first: (stamped, now), last: (stamped, now) }
    }

    /// Ends with what was stamped by `now`.
    #[must_use]
    pub fn to(self, stamped: Stamped, now: Nanos) -> Span {
        Span { last: (stamped, now), ..self }
    }

    /// Requests per second by the device's clock: those that completed after the first stamp, over its distance from the last.
    /// Nothing where stamps say nothing: fewer than two, no time between them, or a counter so narrow that somewhere it went
    /// round unseen, which shows in a distance that is half a period away from the host's (and more than a hundredth, so that
    /// clocks may differ in rate).
    pub fn rate_per_s(&self) -> Option<f64> {
        let ((first, began), (last, ended)) = (self.first, self.last);
        let clock = last.clock;
        first.last?;
        let ticks = last.ticks.checked_sub(first.ticks).filter(|&ticks| ticks > 0)?;
        let requests = last.requests.checked_sub(first.requests).filter(|&n| n > 0)?;
        let (device, host) = (clock.seconds(ticks as f64), ended.since(began).as_secs_f64());
        let lost = (device - host).abs() > clock.seconds(clock.mask as f64 / 2.0).max(host / 100.0);
        let rate = requests as f64 / device;
        (!lost && rate.is_finite()).then_some(rate)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    /// The rate of stamps that come `apart` ticks after each other, of a clock of 1 MHz, each of four requests.
    fn rate(mask: u64, start: u64, apart: impl Fn(u64) -> i64, host: u64) -> Option<f64> {
        let mut stamped = Stamped::nothing(DeviceClock::of(mask, 1000)?);
        let mut at = start;
        stamped.add(at & mask, 4);
        let span = Span::from(stamped, Nanos(5));
        for n in 1..=1000 {
            at = at.wrapping_add_signed(apart(n));
            stamped.add(at & mask, 4);
        }
        span.to(stamped, Nanos(5 + host)).rate_per_s()
    }

    #[test]
    fn requests_after_the_first_stamp_count_over_its_distance_from_the_last() {
        for mask in [u64::MAX, (1 << 48) - 1, (1 << 32) - 1] {
            assert_eq!(rate(mask, 7, |_| 1000, SECOND), Some(4000.0));
        }
    }

    #[test]
    fn a_counter_may_wrap_once_or_often() {
        assert_eq!(rate(u64::MAX, u64::MAX - 10, |_| 1000, SECOND), Some(4000.0));
        assert_eq!(rate((1 << 48) - 1, (1 << 48) - 10, |_| 1000, SECOND), Some(4000.0));
        assert_eq!(rate((1 << 11) - 1, 3, |_| 1000, SECOND), Some(4000.0), "488 times");
    }

    #[test]
    fn steps_back_are_taken_back() {
        // 2000 ahead and 1000 back, by turns: 500 of each.
        let apart = |n: u64| if n % 2 == 1 { 2000 } else { -1000 };
        assert_eq!(rate((1 << 20) - 1, (1 << 20) - 500, apart, SECOND / 2), Some(8000.0));
        assert_eq!(rate(u64::MAX, 3, |_| -1000, SECOND), None, "a clock that runs backwards tells no rate");
        assert_eq!(rate(u64::MAX, 3, |_| 0, SECOND), None, "nor one that stands");
    }

    #[test]
    fn a_counter_that_went_round_unseen_tells_nothing() {
        // 3000 ticks are told as 952 by a counter of 2048.
        assert_eq!(rate((1 << 11) - 1, 3, |_| 3000, 3 * SECOND), None);
        // A tenth of a second was lost with one round of 17 bits.
        let once = |n: u64| if n == 500 { 131_072 } else { 1000 };
        assert_eq!(rate((1 << 17) - 1, 3, once, SECOND + SECOND / 8), None);
        // A clock may be a little off its rate.
        assert_eq!(rate((1 << 11) - 1, 3, |_| 1000, SECOND + SECOND / 200), Some(4000.0));
        assert_eq!(rate(1, 0, |_| 1, SECOND), None, "one bit says no direction");
    }

    #[test]
    fn devices_without_a_clock_have_none() {
        for (mask, khz) in [(0, 1000), (u64::MAX, 0), (0, 0), (0b1011, 1000), (u64::MAX - 1, 1000)] {
            assert_eq!(DeviceClock::of(mask, khz), None, "{mask:#x} {khz}");
        }
        assert_eq!(DeviceClock::of(u64::MAX, u64::MAX).map(DeviceClock::bits), Some(64));
    }

    #[test]
    fn too_few_stamps_tell_nothing_and_extremes_do_not_panic() {
        let clock = DeviceClock::of(u64::MAX, 1).expect("a clock");
        let mut stamped = Stamped::nothing(clock);
        let empty = Span::from(stamped, Nanos(0));
        assert_eq!(empty.rate_per_s(), None);
        stamped.add(0, 1);
        assert_eq!(empty.to(stamped, Nanos(9)).rate_per_s(), None, "the first stamp came within");
        let one = Span::from(stamped, Nanos(9));
        assert_eq!(one.rate_per_s(), None);
        for stamp in [1 << 63, 0, u64::MAX >> 1, u64::MAX - 1, i64::MAX as u64, 1 << 63] {
            stamped.add(stamp, u64::MAX);
            let _ = (one.to(stamped, Nanos(0)).rate_per_s(), Span::from(stamped, Nanos(1)).rate_per_s());
            assert_eq!(Span::from(stamped, Nanos(1)).to(one.first.0, Nanos(0)).rate_per_s(), None);
        }
    }
}
