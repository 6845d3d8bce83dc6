//! The way of a transaction to its records, where it is known in which order it comes to them.
//!
//! A payment asks for its warehouse first, which is what others hold: most attempts that fail have asked for nothing else, and hold
//! nothing. So who fails does so at the records that are fought over, and has by then what comes before them.

use super::chances::LEAST_SUCCESS;
use super::input::{KINDS, Leg, TxnClass};
use super::runs::share_of_failed;

/// The way of a class, and how likely each of its records is to end an attempt, as a hazard, kind by kind.
#[derive(Clone, Copy, Debug)]
pub(super) struct Way<'a> {
    legs: &'a [Leg],
    records: [f64; KINDS],
    each: [f64; KINDS],
}

/// What attempts that fail on the way have come to, in the mean.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Failed {
    /// The share of its records that one comes to, the failing one included.
    pub(super) came_to: f64,
    /// The share of its records of each kind that it has by then, and for what share of the way to all of its records it has had each.
    pub(super) had: [f64; KINDS],
    pub(super) had_for: [f64; KINDS],
}

impl<'a> Way<'a> {
    /// Of a class whose records of each kind together end an attempt with the chance of `by_kind`. `None`: it is not known in which order it
    /// comes to them, or none ends an attempt.
    pub(super) fn of(class: &'a TxnClass, by_kind: &[f64; KINDS]) -> Option<Way<'a>> {
        let records = records_of(&class.legs);
        let mut each = [0.0; KINDS];
        for kind in (0..KINDS).filter(|kind| records[*kind] > 0.0) {
            each[kind] = -(1.0 - by_kind[kind]).max(LEAST_SUCCESS).ln() / records[kind];
        }
        each.iter().any(|hazard| *hazard > 0.0).then_some(Way { legs: &class.legs, records, each })
    }

    /// Of attempts that come to all of their records with chance `well`, those that do not: records end them in the same proportions,
    /// however often.
    pub(super) fn failed(&self, well: f64) -> Failed {
        let all: f64 = self.records.iter().sum();
        let hazard: f64 = self.each.iter().zip(&self.records).map(|(each, records)| each * records).sum();
        let scale = -well.clamp(LEAST_SUCCESS, 1.0 - LEAST_SUCCESS).ln() / hazard;
        let mut failed = Failed::default();
        let (mut alive, mut before) = (1.0, 0.0);
        for (place, leg) in self.legs.iter().enumerate() {
            let success = (-scale * self.each[leg.kind as usize] * leg.records).exp();
            let fails = alive * (1.0 - success);
            if fails > 0.0 {
                // Of this leg it comes to so many, the last of which it does not get.
                let reached = leg.records * share_of_failed(leg.records, success);
                failed.came_to += fails * (before + reached);
                let mut earlier = 0.0;
                for had in &self.legs[..place] {
                    failed.add(had.kind, fails * had.records, before + reached - earlier - 0.5 * had.records);
                    earlier += had.records;
                }
                let got = (reached - 1.0).max(0.0);
                failed.add(leg.kind, fails * got, reached - 0.5 * got);
            }
            alive *= success;
            before += leg.records;
        }
        let each = 1.0 / (1.0 - alive);
        let per = |sum: f64, kind: usize| {
            if self.records[kind] > 0.0 { sum * each / self.records[kind] } else { 0.0 }
        };
        Failed {
            came_to: failed.came_to * each / all,
            had: std::array::from_fn(|kind| per(failed.had[kind], kind)),
            had_for: std::array::from_fn(|kind| per(failed.had_for[kind], kind) / all),
        }
    }
}

impl Failed {
    /// So many records of a kind have been had, for so much of the way.
    fn add(&mut self, kind: u32, records: f64, way: f64) {
        self.had[kind as usize] += records;
        self.had_for[kind as usize] += records * way;
    }

    /// The share that it has of all its locks, of which there are so many of each kind.
    pub(super) fn of_locks(&self, locks: &[f64; KINDS]) -> f64 {
        let all: f64 = locks.iter().sum();
        let had: f64 = self.had.iter().zip(locks).map(|(had, locks)| had * locks).sum();
        if all > 0.0 { had / all } else { 0.0 }
    }
}

/// Records of each kind on a way.
fn records_of(legs: &[Leg]) -> [f64; KINDS] {
    let mut records = [0.0; KINDS];
    for leg in legs {
        records[leg.kind as usize] += leg.records;
    }
    records
}

/// The share of a way that is gone when half of the records of each kind are there; half of it for a kind that has none.
pub(super) fn middle(legs: &[Leg]) -> [f64; KINDS] {
    let records = records_of(legs);
    let all: f64 = records.iter().sum();
    let (mut sum, mut before) = ([0.0; KINDS], 0.0);
    for leg in legs {
        sum[leg.kind as usize] += leg.records * (before + 0.5 * leg.records) / all;
        before += leg.records;
    }
    std::array::from_fn(|kind| if records[kind] > 0.0 { sum[kind] / records[kind] } else { 0.5 })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn class(legs: &[(u32, f64)]) -> TxnClass {
        let legs = legs.iter().map(|&(kind, records)| Leg { kind, records }).collect();
        TxnClass { legs, ..TxnClass::new("x", 1.0, 0.0, 5.0) }
    }

    fn by_kind(ends: &[(usize, f64)]) -> [f64; KINDS] {
        let mut by_kind = [0.0; KINDS];
        ends.iter().for_each(|&(kind, chance)| by_kind[kind] = chance);
        by_kind
    }

    /// Two in three fail at the first of five, and the others at the last: those have the four before it.
    #[test]
    fn who_fails_has_what_comes_before() {
        let class = class(&[(0, 1.0), (1, 3.0), (2, 1.0)]);
        let failed =
            Way::of(&class, &by_kind(&[(0, 0.6), (2, 0.75)])).expect("something ends attempts").failed(0.1);
        // Of ten six fail at the first, and three of the other four at the last.
        assert!((failed.came_to - (6.0 * 0.2 + 3.0) / 9.0).abs() < 1e-9, "{failed:?}");
        assert!((failed.had[0] - 1.0 / 3.0).abs() < 1e-9 && failed.had[2] == 0.0, "{failed:?}");
        // The first of them was asked for half a record from the begin, the middle of the three is 2.5 before the end.
        assert!((failed.had_for[0] - 4.5 / 15.0).abs() < 1e-9, "{failed:?}");
        assert!((failed.had_for[1] - 2.5 / 15.0).abs() < 1e-9, "{failed:?}");
        // Of four locks, one of the first kind and three of the last.
        let locks = std::array::from_fn(|kind| [1.0, 0.0, 3.0].get(kind).copied().unwrap_or(0.0));
        assert!((failed.of_locks(&locks) - 1.0 / 12.0).abs() < 1e-9, "{failed:?}");
        assert_eq!(middle(&class.legs)[..3], [0.1, 0.5, 0.9]);
        assert!(Way::of(&class, &[0.0; KINDS]).is_none(), "nothing ends attempts");
        assert!(Way::of(&TxnClass::new("x", 1.0, 0.0, 5.0), &by_kind(&[(0, 0.5)])).is_none(), "no order");
    }

    /// Record by record: of one kind, of one that is come to in two goes, and against all of its records one after the other.
    #[test]
    fn legs_are_what_their_records_come_to() {
        let each: f64 = 0.2;
        let well = |n: i32| (1.0 - each).powi(n);
        let one = class(&[(0, 6.0)]);
        let two = class(&[(0, 2.0), (1, 3.0), (0, 4.0)]);
        // Who fails at the k-th of so many has had those of the kind before it.
        let by_hand = |places: &[f64], all: f64| {
            let (mut came_to, mut had, mut had_for, mut alive) = (0.0, 0.0, 0.0, 1.0);
            for (k, place) in places.iter().enumerate() {
                let fails = alive * each;
                came_to += fails * place;
                had += fails * k as f64;
                had_for += fails * places[..k].iter().map(|p| place - (p - 0.5)).sum::<f64>();
                alive *= 1.0 - each;
            }
            let n = places.len() as f64;
            let fails = 1.0 - alive;
            [came_to / fails / all, had / fails / n, had_for / fails / n / all]
        };
        for (class, places, all) in
            [(&one, vec![1.0, 2.0, 3.0, 4.0, 5.0, 6.0], 6.0), (&two, vec![1.0, 2.0, 6.0, 7.0, 8.0, 9.0], 9.0)]
        {
            let failed =
                Way::of(class, &by_kind(&[(0, 1.0 - well(6))])).expect("it ends attempts").failed(well(6));
            let [came_to, had, had_for] = by_hand(&places, all);
            assert!((failed.came_to - came_to).abs() < 1e-9, "{failed:?}, not {came_to}");
            assert!((failed.had[0] - had).abs() < 1e-9, "{failed:?}, not {had}");
            // A mean place and a mean count stand for those of each attempt.
            assert!((failed.had_for[0] / had_for - 1.0).abs() < 0.35, "{failed:?}, not {had_for}");
        }
        let middle = middle(&two.legs);
        assert!((middle[0] - (2.0 * 1.0 + 4.0 * 7.0) / 6.0 / 9.0).abs() < 1e-12, "{middle:?}");
    }
}
