//! Readers that share locks one-sided, and are in each other's way although nobody excludes them.
//!
//! A reader comes by CAS, which expects the word of a free lock, and leaves by CAS or, where the word has no ages, by FETCH_ADD. A CAS
//! fails if the word has changed since it was last seen; who fails has seen it anew and asks again, a look later. Changes are taken to
//! come at random: with `c` of them in a look, `exp(c)` looks are needed, and not more than there are coroutines.
//!
//! Who leaves by CAS does not pause between looks, and many who do are foretold too well: 2.4 times with 64 coroutines that read 2664
//! records with a zipf of 0.93 (`readers_of_a_record_race_for_its_word` in `engine/tests/locks`). Pauses are summed over the
//! records of a transaction, where those asked for at once pause together; counting the last of them alone changed a rate by 1 %.

use super::forecast::Model;
use crate::ops::{PAUSE_DOUBLINGS, RACES_AT_ONCE, race_pause};

/// What the mean transaction does with records that it only reads.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Readers {
    /// Locks that it shares, and locks that it has alone, for each commit; and of the former those that it waits for if they are not free.
    pub(super) shared: f64,
    pub(super) alone: f64,
    pub(super) entered: f64,
    /// Time for which records are shared, for each commit.
    pub(super) shared_ns: f64,
    /// Until the word is asked for again: by one who holds it, and by one who has just seen it.
    pub(super) hold_ns: f64,
    pub(super) look_ns: f64,
}

/// Mean looks at a word beyond the first for each record that is read, and pauses between them.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Races {
    pub(super) enter: f64,
    pub(super) leave: f64,
    pub(super) pause_ns: f64,
}

impl Readers {
    /// What races take of a transaction's time, for each commit.
    pub(super) fn lost_ns(&self, races: Races) -> f64 {
        let enter = self.entered * (races.enter * self.look_ns + races.pause_ns);
        enter + self.shared * races.leave * self.look_ns
    }
}

/// Halvings of the range in which a rate is sought.
const HALVINGS: u32 = 40;

impl Model<'_> {
    /// Races at the rate that they leave: a commit takes `others_ns`, and what they take besides. Who looks often commits seldom, and
    /// then words change seldom; followed step by step the two would swing from one extreme to the other.
    pub(super) fn races(&self, readers: Readers, others_ns: f64, customers: f64, by_cas: bool) -> Races {
        let at = |rate: f64| {
            let races = self.races_at(readers, rate, customers);
            Races { leave: if by_cas { races.leave } else { 0.0 }, ..races }
        };
        let (mut low, mut high) = (0.0, 1.0 / others_ns);
        for _ in 0..HALVINGS {
            let rate = 0.5 * (low + high);
            let time = others_ns + readers.lost_ns(at(rate));
            (low, high) = if rate * time < 1.0 { (rate, high) } else { (low, rate) };
        }
        at(low)
    }

    /// `rate` transactions are committed by one of `customers` coroutines in a nanosecond.
    fn races_at(&self, readers: Readers, rate: f64, customers: f64) -> Races {
        let mut sum = Races::default();
        for (band, &reads) in self.workload().bands.iter().zip(&self.reads) {
            let others = (customers / band.parts - 1.0).max(0.0);
            let writes = band.writes.unwrap_or(band.share);
            // Of one record.
            let of = |times: f64| rate * others * times * band.parts / band.records;
            let changes = 2.0 * of(reads * readers.shared + writes * readers.alone);
            let met = 1.0 - (-of(reads * readers.shared_ns)).exp();
            let changed = 1.0 - (-changes * readers.hold_ns).exp();
            let looks = (changes * readers.look_ns).exp().min(others + 1.0);
            let used = 1.0 - 1.0 / looks;
            sum.enter += reads * met * looks;
            sum.leave += reads * changed * looks;
            sum.pause_ns += reads * met * pauses_ns(used);
        }
        sum
    }
}

/// Pauses of one who has found the word shared, which is a race lost, and whose further CAS fail with this chance each.
fn pauses_ns(fails: f64) -> f64 {
    let pause = |races: u32| fails.powi(races as i32 - 1) * race_pause(races).0 as f64;
    // From the longest on all are alike.
    let longest = RACES_AT_ONCE + PAUSE_DOUBLINGS;
    let doubled: f64 = (RACES_AT_ONCE + 1..longest).map(pause).sum();
    doubled + pause(longest) / (1.0 - fails)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_follow_rows_of_lost_races() {
        assert_eq!(pauses_ns(0.0), 0.0);
        // After the first, one in four loses three times, one in eight four times, and so on: 1000 ns, 2000 and up to 32 000.
        let each: f64 = (3..60).map(|n| f64::powi(0.5, n - 1) * 500.0 * f64::powi(2.0, (n - 2).min(6))).sum();
        assert!((pauses_ns(0.5) - each).abs() < 1e-6 * each, "{} and not {each}", pauses_ns(0.5));
    }
}
