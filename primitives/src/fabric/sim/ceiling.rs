//! A card's ceiling of messages: the least time from one message that it sends for its cores to the next, whatever they ask.
//!
//! RCC gives its EDR cluster a peak of 33 M messages/s (VLDB, s5.7) and divides by it what its protocols send. Of the engine's
//! times no ceiling follows that holds for all verbs alike and leaves unloaded latencies alone: so it is a stage of its own, through which
//! each request passes on its way to the engine, and whose time no message waits for that comes alone. Other cards have none.
//!
//! What counts is what cores give to the card: requests of all verbs, to the own node too, and answers to calls, which are SENDs. What the paper counts
//! it calls packages that implementations send; of responses and acknowledgements, which the cards make, it says nothing.

/// The stage of one card.
pub(super) struct Ceiling {
    gap: u64,
    free_at: u64,
}

impl Ceiling {
    /// With `gap` picoseconds between messages, none if there is no ceiling.
    pub fn new(gap: u64) -> Ceiling {
        Ceiling { gap, free_at: 0 }
    }

    /// A message that is given to the card at `now` and can be built from `earliest` on; returns from when on it may be. As on every server,
    /// it is charged at once: one that is late keeps no other from the stage.
    #[inline(always)]
    pub fn pass(&mut self, now: u64, earliest: u64) -> u64 {
        if self.gap == 0 {
            return earliest;
        }
        let turn = self.free_at;
        self.free_at = turn.max(now) + self.gap;
        turn.max(earliest)
    }
}

#[cfg(test)]
mod tests {
    use super::Ceiling;

    #[test]
    fn messages_are_a_gap_apart_and_a_single_one_waits_for_nothing() {
        let mut ceiling = Ceiling::new(30);
        assert_eq!(ceiling.pass(100, 100), 100);
        assert_eq!(ceiling.pass(100, 100), 130);
        assert_eq!(ceiling.pass(110, 500), 500, "its payload comes late");
        assert_eq!(ceiling.pass(120, 120), 190, "and keeps nobody waiting but for its turn");
        assert_eq!(ceiling.pass(1000, 900), 900, "what is being fetched may be begun with");
    }

    #[test]
    fn without_a_ceiling_nothing_waits() {
        let mut ceiling = Ceiling::new(0);
        for earliest in [7, 7, 3] {
            assert_eq!(ceiling.pass(7, earliest), earliest);
        }
    }
}
