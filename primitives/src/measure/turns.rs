//! Whether a counted time was long enough for what was in flight in it, be it requests or transactions.

/// How many must have ended for each that was in flight, for a rate to be one. Load is closed, so by Little's law
/// this many mean times in flight have gone by then, and one more in the usual warm-up: what takes long had its turn.
const TURNS: u64 = 4;

/// How many times as long a point is measured at most: what needs more does not go on as it began.
const LONGER_MOST: u64 = 16;

/// What the `converged` cell of a point says whose counted time was too short.
pub const TOO_SHORT: &str = "too short";

/// What it says where a table had no room for some of what was to be inserted.
pub const FULL: &str = "full";

/// What it says of a fixed length in which the load was not steady ([`Steadiness::settled`](super::Steadiness::settled)).
pub const UNSETTLED: &str = "unsettled";

/// A counted time that was too short: few of those in flight ended in it, and those that did were the short ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooShort {
    /// How many ended in the counted time.
    pub ended: u64,
    /// How many were in flight at any time.
    pub in_flight: u64,
}

impl TooShort {
    /// How many must end for a time not to be too short.
    pub fn least(in_flight: u64) -> u64 {
        TURNS.saturating_mul(in_flight)
    }

    /// How many times as long to measure instead: three times what would do, since a rate that just does is known badly.
    pub fn longer(&self) -> u64 {
        let wanted = TooShort::least(self.in_flight).saturating_mul(3);
        wanted.div_ceil(self.ended.max(1)).min(LONGER_MOST)
    }

    /// Whether the time in which so many ended was too short.
    pub fn of(ended: u64, in_flight: u64) -> Option<TooShort> {
        (ended < TooShort::least(in_flight)).then_some(TooShort { ended, in_flight })
    }
}

impl std::fmt::Display for TooShort {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let TooShort { ended, in_flight } = self;
        write!(
            f,
            "the measured time is too short: {ended} ended in it, of {in_flight} in flight at a time, and the short ones first, so \
             rate and latencies may be far off"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::TooShort;

    #[test]
    fn a_time_in_which_few_of_those_in_flight_ended_is_too_short() {
        assert_eq!(TooShort::of(87, 3072), Some(TooShort { ended: 87, in_flight: 3072 }));
        let longer = |ended| TooShort { ended, in_flight: 10 }.longer();
        assert_eq!([31, 9, 0].map(longer), [4, 14, 16]);
        assert_eq!((TooShort::of(4 * 3072, 3072), TooShort::of(4 * 3072 - 1, 3072).is_some()), (None, true));
    }
}
