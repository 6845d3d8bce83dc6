//! How the clocks of several hosts compare.
//!
//! Histories of several hosts are judged together, so their times must compare. Node 0 reads each member's
//! clock many times and keeps the reading with the shortest round trip; half of it bounds the error. Clocks drift too:
//! [`DRIFT_PPM`] is assumed as a bound, twice what oscillators of servers are specified for.

use crate::units::Nanos;

/// Assumed bound of how fast two clocks part, in parts per million.
pub const DRIFT_PPM: u64 = 100;

/// How a core's time translates into node 0's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct ClockMap {
    /// To be added, in nanoseconds.
    pub offset_ns: i64,
    /// How far off the sum may be at the start of the run, in nanoseconds.
    pub error_ns: u64,
    /// How much farther it may be each second, in nanoseconds.
    pub drift_ns_per_s: u64,
}

impl ClockMap {
    /// A core's time as node 0 would have read it.
    pub fn translate(&self, at: Nanos) -> Nanos {
        Nanos(at.0.saturating_add_signed(self.offset_ns))
    }

    /// How far off translated times may be, `elapsed` after the start of the run.
    pub fn error_after(&self, elapsed: Nanos) -> Nanos {
        let drift = u128::from(self.drift_ns_per_s) * u128::from(elapsed.0) / 1_000_000_000;
        Nanos(self.error_ns.saturating_add(u64::try_from(drift).unwrap_or(u64::MAX)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_translate_and_drift() {
        let map = ClockMap { offset_ns: -50, error_ns: 10, drift_ns_per_s: 100_000 };
        assert_eq!((map.translate(Nanos(70)), map.translate(Nanos(20))), (Nanos(20), Nanos(0)));
        assert_eq!(map.error_after(Nanos(2_000_000_000)), Nanos(200_010));
        assert_eq!(ClockMap::default().translate(Nanos(5)), Nanos(5));
    }
}
