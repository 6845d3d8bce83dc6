//! The card's engine: processing units that both roles share.
//!
//! A queue pair stays on one unit, so several queue pairs give a thread more than one does (Kalia et al., ATC 2016;
//! the sequencer of efficient/rdma_bench: 57 ns a reply with one queue pair, 36.5 with three). The profile's engine
//! times are those of all units together: one unit takes its next request `units` times as late, but hands a request
//! on after its plain service time, since stages overlap.
//!
//! A request that misses state waits for the fetch; the engine loses the fetch time divided by the fetches that can be
//! under way. One fetch at a time blocks the engine, as on ConnectX-3; dozens make a Connect-IB lose a few nanoseconds
//! for each of them (`t0 + k * (1 - entries / pairs)` fits both).
//!
//! Simplified: which unit a queue pair gets is a hash on the card and a turn here, in order of first use, so that
//! units are loaded evenly.

/// No unit chosen yet.
pub(super) const UNASSIGNED: u8 = u8::MAX;

/// What missed state costs a request: engine time lost to all, and time the request itself waits.
#[derive(Clone, Copy, Default)]
pub(super) struct Miss {
    pub stall: u64,
    pub wait: u64,
}

/// Processing units as times at which each takes its next request.
pub(super) struct Engine {
    free_at: Box<[u64]>,
    next: [u8; 2],
}

impl Engine {
    pub fn new(units: usize) -> Engine {
        Engine { free_at: vec![0; units].into(), next: [0; 2] }
    }

    /// The unit of a queue pair whose memory of it is `unit`. Datagram and connected pairs take turns of their own.
    #[inline]
    pub fn unit(&mut self, unit: &mut u8, datagram: bool) -> usize {
        if *unit == UNASSIGNED {
            let next = &mut self.next[usize::from(datagram)];
            *unit = *next;
            *next = (*next + 1) % self.free_at.len() as u8;
        }
        usize::from(*unit)
    }

    /// Work of `service` on a unit, charged at `now`, for a request that is there at `earliest`; see
    /// [`super::server`] for the two times. Returns when the request moves on.
    #[inline]
    pub fn pass(&mut self, unit: usize, now: u64, earliest: u64, service: u64, miss: Miss) -> u64 {
        let units = self.free_at.len() as u64;
        let free_at = &mut self.free_at[unit];
        let start = (*free_at).max(now);
        *free_at = start + (service + miss.stall) * units;
        start.max(earliest) + service + miss.stall.max(miss.wait)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_pair_gets_one_unit_and_all_pairs_the_engine() {
        let mut engine = Engine::new(4);
        let mut pairs = [UNASSIGNED; 8];
        let units: Vec<usize> = pairs.iter_mut().map(|p| engine.unit(p, false)).collect();
        assert_eq!(units, [0, 1, 2, 3, 0, 1, 2, 3]);
        assert_eq!(engine.unit(&mut pairs[5], false), 1, "a pair keeps its unit");
        let none = Miss::default();
        assert_eq!(engine.pass(0, 0, 0, 10, none), 10);
        assert_eq!(engine.pass(0, 0, 0, 10, none), 50, "the unit is at a quarter of the engine's pace");
        assert_eq!(engine.pass(1, 0, 0, 10, none), 10, "another one is free");
    }

    #[test]
    fn a_miss_delays_its_request_more_than_the_engine() {
        let mut engine = Engine::new(1);
        assert_eq!(engine.pass(0, 0, 0, 10, Miss { stall: 5, wait: 400 }), 410);
        assert_eq!(engine.pass(0, 0, 0, 10, Miss::default()), 25);
    }
}
