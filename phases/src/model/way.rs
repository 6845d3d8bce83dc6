//! The way of a transaction to its records, where it is known in which order it comes to them.
//!
//! A payment asks for its warehouse first, which is what others hold: most attempts that fail have asked for nothing else, and hold
//! nothing. A delivery comes to orders that one other may hold after nothing at all. So who comes to kinds of records one after the
//! other fails at the kind that is fought over, and has by then what comes before it.

use super::chances::LEAST_SUCCESS;
use super::input::{Asked, KINDS};
use super::runs::share_of_failed;

/// Records of each kind, in the order in which they are come to, and how likely each kind is to end an attempt, as a hazard.
#[derive(Clone, Copy, Debug)]
pub(super) struct Way {
    records: [f64; KINDS],
    hazard: [f64; KINDS],
}

/// What attempts that fail on the way have come to, in the mean.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Failed {
    /// The share of its records that one comes to, the failing one included.
    pub(super) came_to: f64,
    /// The share of its records that it has by then; of those of each kind; and for what share of the way to all of its records it has
    /// had each of them.
    pub(super) had: f64,
    pub(super) had_of: [f64; KINDS],
    pub(super) had_for: [f64; KINDS],
}

impl Way {
    /// Of a class that asks for so many records of each kind, each of which ends an attempt with the chance of `by_kind`. `None`: it is a
    /// matter of chance how many of them it asks for, or none ends an attempt.
    pub(super) fn of(kinds: &[Asked], by_kind: &[f64; KINDS]) -> Option<Way> {
        let mut way =
            Way { records: [0.0; KINDS], hazard: by_kind.map(|ends| -(1.0 - ends).max(LEAST_SUCCESS).ln()) };
        for (records, asked) in way.records.iter_mut().zip(kinds) {
            *records = asked.reads + asked.writes;
        }
        (way.hazard.iter().sum::<f64>() > 0.0).then_some(way)
    }

    /// The share of the way that is gone when half of the records of each kind are there.
    pub(super) fn middle(kinds: &[Asked]) -> [f64; KINDS] {
        let mut middle = [0.5; KINDS];
        let all: f64 = kinds.iter().map(|asked| asked.reads + asked.writes).sum();
        let mut before = 0.0;
        for (middle, asked) in middle.iter_mut().zip(kinds) {
            let records = asked.reads + asked.writes;
            *middle = (before + 0.5 * records) / all.max(1.0);
            before += records;
        }
        middle
    }

    /// Of attempts that come to all of their records with chance `well`, those that do not: kinds end them in the same proportions,
    /// however often.
    pub(super) fn failed(&self, well: f64) -> Failed {
        let all: f64 = self.records.iter().sum();
        let scale = -well.clamp(LEAST_SUCCESS, 1.0 - LEAST_SUCCESS).ln() / self.hazard.iter().sum::<f64>();
        let mut failed = Failed::default();
        let (mut alive, mut before) = (1.0, 0.0);
        for (kind, (&records, &hazard)) in self.records.iter().zip(&self.hazard).enumerate() {
            let success = (-scale * hazard).exp();
            let fails = alive * (1.0 - success);
            if fails > 0.0 {
                // Of this kind it comes to so many, the last of which it does not get.
                let reached = records * share_of_failed(records, success);
                let got = (reached - 1.0).max(0.0);
                failed.came_to += fails * (before + reached);
                failed.had += fails * (before + got);
                failed.had_of[kind] += fails * got / records;
                failed.had_for[kind] += fails * got / records * 0.5 * reached;
                let mut earlier = 0.0;
                for (had, &records) in self.records[..kind].iter().enumerate() {
                    failed.had_of[had] += fails;
                    failed.had_for[had] += fails * (before + reached - earlier - 0.5 * records);
                    earlier += records;
                }
            }
            alive *= success;
            before += records;
        }
        let each = 1.0 / (1.0 - alive);
        Failed {
            came_to: failed.came_to * each / all,
            had: failed.had * each / all,
            had_of: failed.had_of.map(|had| had * each),
            had_for: failed.had_for.map(|had| had * each / all),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(writes: [f64; 3]) -> Vec<Asked> {
        writes.map(|writes| Asked { reads: 0.0, writes }).to_vec()
    }

    /// Two in three fail at the first of five, and the others at the last: those have the four before it, and have had them for half as long
    /// as they lie apart.
    #[test]
    fn who_fails_has_what_comes_before() {
        let mut by_kind = [0.0; KINDS];
        (by_kind[0], by_kind[2]) = (0.6, 0.75);
        let way = Way::of(&asked([1.0, 3.0, 1.0]), &by_kind).expect("something ends attempts");
        let failed = way.failed(0.1);
        // Of ten six fail at the first, and three of the other four at the last.
        assert!((failed.came_to - (6.0 * 0.2 + 3.0) / 9.0).abs() < 1e-9, "{failed:?}");
        assert!((failed.had - 3.0 * 0.8 / 9.0).abs() < 1e-9, "{failed:?}");
        assert!((failed.had_of[0] - 1.0 / 3.0).abs() < 1e-9 && failed.had_of[2] == 0.0, "{failed:?}");
        // The first of them lies half a record from the begin, the middle of the three 2.5.
        assert!((failed.had_for[0] - 4.5 / 15.0).abs() < 1e-9, "{failed:?}");
        assert!((failed.had_for[1] - 2.5 / 15.0).abs() < 1e-9, "{failed:?}");
        assert_eq!(Way::middle(&asked([1.0, 3.0, 1.0]))[..3], [0.1, 0.5, 0.9]);
        // Nobody ends it; or any of them alike, as of those that come in no order.
        assert!(Way::of(&asked([1.0, 3.0, 1.0]), &[0.0; KINDS]).is_none());
        let mut by_kind = [0.0; KINDS];
        by_kind[0] = 0.9;
        let one = Way::of(&asked([5.0, 0.0, 0.0]), &by_kind).expect("it ends attempts");
        let failed = one.failed(0.1);
        assert!((failed.came_to - share_of_failed(5.0, 0.1)).abs() < 1e-9, "{failed:?}");
        assert!((failed.had - (failed.came_to - 0.2)).abs() < 1e-9, "{failed:?}");
    }
}
