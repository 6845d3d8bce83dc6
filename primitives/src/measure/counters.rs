//! What was posted: verbs, doorbells and round trips.
//!
//! Operations declare how many of each they need (STYLE §4.5); tests compare that with these counters, and
//! result files divide them by committed transactions.

use std::ops::{Add, AddAssign, Sub};

macro_rules! counters {
    ($($(#[$doc:meta])* $field:ident,)*) => {
        /// Counts since the counter was made. Plain numbers: one per thread, added up when threads end.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
        pub struct VerbCounters { $($(#[$doc])* pub $field: u64,)* }

        impl Add for VerbCounters {
            type Output = VerbCounters;
            fn add(self, rhs: VerbCounters) -> VerbCounters {
                VerbCounters { $($field: self.$field + rhs.$field,)* }
            }
        }

        /// What was counted between an earlier reading (the right side) and this one.
        impl Sub for VerbCounters {
            type Output = VerbCounters;
            fn sub(self, rhs: VerbCounters) -> VerbCounters {
                VerbCounters { $($field: self.$field.saturating_sub(rhs.$field),)* }
            }
        }

        impl VerbCounters {
            /// Names and values, in the order declared.
            pub fn fields(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($field), self.$field),)*].into_iter()
            }
        }
    };
}

counters! {
    /// READs posted.
    reads,
    /// WRITEs posted.
    writes,
    /// COMPARE_SWAPs and FETCH_ADDs posted.
    atomics,
    /// SENDs posted.
    sends,
    /// Receives posted; not verbs that travel, so not part of [`VerbCounters::verbs`].
    recvs,
    /// Chains handed to the NIC: one MMIO write each.
    doorbells,
    /// Completions taken from completion queues.
    completions,
    /// Times a coroutine waited for an answer from another node, however many requests it awaited at once.
    round_trips,
    /// Payload bytes of READs.
    bytes_read,
    /// Payload bytes of WRITEs and SENDs.
    bytes_written,
}

impl VerbCounters {
    /// Work requests posted: READ, WRITE, ATOMIC and SEND.
    pub fn verbs(&self) -> u64 {
        self.reads + self.writes + self.atomics + self.sends
    }
}

impl AddAssign for VerbCounters {
    fn add_assign(&mut self, rhs: VerbCounters) {
        *self = *self + rhs;
    }
}

impl std::iter::Sum for VerbCounters {
    fn sum<I: Iterator<Item = VerbCounters>>(iter: I) -> VerbCounters {
        iter.fold(VerbCounters::default(), Add::add)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_of_readings_and_a_sum_of_threads() {
        let warm = VerbCounters { reads: 5, doorbells: 2, recvs: 9, ..Default::default() };
        let done = VerbCounters { reads: 8, writes: 1, atomics: 1, sends: 2, doorbells: 6, recvs: 9, ..warm };
        let window = done - warm;
        assert_eq!((window.verbs(), window.doorbells, window.recvs), (7, 4, 0));
        let total: VerbCounters = [window, window].into_iter().sum();
        assert_eq!(total.fields().find(|f| f.0 == "doorbells"), Some(("doorbells", 8)));
    }
}
