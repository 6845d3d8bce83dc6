//! Wait-die: who is older waits, who is younger gives up, and grows older.
//!
//! Two things are not as with accesses that meet each other at random. Who holds a record came to it first, and has most likely begun
//! first as well, so that a first attempt dies of nearly all that it meets. And whoever tries again keeps its age: nobody overtakes it,
//! and the oldest of all never dies. So a transaction is *young* in its first attempt; those that have failed are ordered among each
//! other, and each is as likely at any place of that order, since all behind it move up by one whenever one of them ends.
//!
//! Who is waited for is younger, and waits itself for yet younger ones alone. So waits do not feed on themselves, however many there
//! are: for how long a record is held follows from the youngest to the oldest.
//!
//! And who dies comes back soon, often before the holder has left: under wait-die that one may be waiting itself. (Without waits it was
//! tried as well, and made forecasts of aborts worse.)

use super::chances::POWERS;
use super::input::{KINDS, Workload};
use super::runs::ByAge;

/// Places in the order of those that have failed, the oldest first: as many as there are powers, since they are kept in place of these.
pub(super) const PLACES: usize = POWERS;

/// Attempts that are looked at for whether they meet the same holder again.
const COMES_BACK: u32 = 16;

/// Who holds what others come to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Ages {
    /// Of the time for which records are held, the share of first attempts.
    pub(super) young: f64,
    /// Of the young that a young one meets, the share that began before it.
    pub(super) before: f64,
    /// All others there are: for more than that nobody waits.
    pub(super) others: f64,
}

impl Ages {
    /// Of those that a first attempt meets, the share that is older.
    pub(super) fn first(&self) -> f64 {
        self.young * self.before + (1.0 - self.young)
    }

    /// The same of a later one at such a place.
    pub(super) fn later(&self, place: usize) -> f64 {
        (1.0 - self.young) * (place as f64 + 0.5) / PLACES as f64
    }

    /// How long an access waits in a first attempt, and in later ones at each place, in nanoseconds. A record is held for `hold` by who
    /// does not wait, and longer by `per_delay` times what an access of its holder waits; `waits` says how often one waits, and
    /// `together` how much counts of so many waits at a time.
    fn delays(
        &self,
        hold: f64,
        per_delay: f64,
        (first, later): (f64, [f64; PLACES]),
        together: impl Fn(f64) -> f64,
    ) -> (f64, [f64; PLACES]) {
        // Half of a hold that is met is left of it, and long ones are met more often.
        let young = 0.5 * hold * first * together(first);
        let (mut weight, mut sum) = (self.young, self.young * 0.5 * (hold + per_delay * young));
        let mut all = [0.0; PLACES];
        for place in (0..PLACES).rev() {
            let left = if weight > 0.0 { sum / weight } else { 0.5 * hold };
            all[place] = later[place] * left * together(later[place]);
            let share = (1.0 - self.young) / PLACES as f64;
            weight += share;
            sum += share * 0.5 * (hold + per_delay * all[place]);
        }
        (young, all)
    }
}

/// Of the young that a young one meets, the share that began before it. Locks are asked for one after the other, each at any place
/// of the way to the last one, and held for the rest of it and `beyond` times all of it; or all together, and then whoever holds one
/// began before.
fn began_before(together: bool, beyond: f64) -> f64 {
    if together { 1.0 } else { (1.0 / 3.0 + beyond) / (0.5 + beyond) }
}

/// What the attempts of a class hold, and when they ask. Times in nanoseconds.
pub(super) struct Attempts<'a> {
    pub(super) by_age: &'a ByAge,
    /// For each commit, times that it comes to all its records, and that it leaves the locks of all in vain.
    pub(super) came_to: f64,
    pub(super) unlocks: f64,
    /// Of the mix, and records that it comes to, in all and of each kind of band.
    pub(super) share: f64,
    pub(super) records: f64,
    pub(super) of_kind: [f64; KINDS],
    /// How long one that commits holds a record, waits apart, and one that fails; the share of its records that one holds while it waits.
    pub(super) hold: f64,
    pub(super) in_vain: f64,
    pub(super) waits_with: f64,
    /// The way to the last lock, waits apart, and how long that one is held.
    pub(super) way: f64,
    pub(super) beyond: f64,
    /// From where one fails until the next one is there, its pause apart.
    pub(super) back: f64,
}

/// Sums over classes.
#[derive(Default)]
pub(super) struct Aging {
    /// Records asked for, and those of first attempts.
    asked: f64,
    first_asked: f64,
    /// For how long first attempts hold records, and later ones.
    first_held: f64,
    later_held: f64,
    /// Records of a commit, and how those of each kind of band are held.
    records: f64,
    of_kind: [Held; KINDS],
    way: f64,
    beyond: f64,
    back: f64,
    /// Commits of later attempts, by their places.
    done_at: [f64; PLACES],
}

/// How records are held: sums over them.
#[derive(Clone, Copy, Default)]
struct Held {
    records: f64,
    /// For how long, waits and attempts that fail included, and the square of that.
    ns: f64,
    squared: f64,
    /// The same of attempts that commit, waits apart; and by how much that grows for each nanosecond that an access waits.
    hold: f64,
    hold_squared: f64,
    per_delay: f64,
}

impl Held {
    /// How much is left of a hold that somebody meets.
    fn left(&self) -> f64 {
        0.5 * mean(self.squared, self.ns)
    }
}

/// How long accesses wait.
pub(super) struct HeldUp {
    /// How often one waits, and for how long.
    pub(super) waits: f64,
    pub(super) ns: f64,
    /// For how long in first and in later attempts that commit.
    pub(super) done_ns: [f64; 2],
}

fn mean(sum: f64, weight: f64) -> f64 {
    if weight > 0.0 { sum / weight } else { 0.0 }
}

impl Aging {
    /// A class whose accesses wait so long in first and in later attempts that commit. Returns for how long it holds a record for each
    /// commit, attempts that fail included.
    pub(super) fn add(&mut self, of: &Attempts, done_ns: [f64; 2]) -> f64 {
        let &Attempts { by_age, records, in_vain, .. } = of;
        let [first, later] = done_ns.map(|ns| of.hold + records * of.waits_with * ns);
        let done_later = 1.0 - by_age.done;
        let first_held = by_age.done * first + by_age.unlocks * in_vain;
        let later_held = done_later * later + (of.unlocks - by_age.unlocks) * in_vain;
        // Those of attempts that fail are any length up to twice their mean.
        let in_vain_squared = of.unlocks * in_vain * in_vain * 4.0 / 3.0;
        let squared = by_age.done * first * first + done_later * later * later + in_vain_squared;
        let all = of.share * records;
        self.asked += all * of.came_to;
        self.first_asked += all * by_age.came_to;
        self.first_held += all * first_held;
        self.later_held += all * later_held;
        self.records += all;
        for (sum, of_kind) in self.of_kind.iter_mut().zip(of.of_kind) {
            let records = of.share * of_kind;
            sum.records += records;
            sum.ns += records * (first_held + later_held);
            sum.squared += records * squared;
            sum.hold += records * of.hold;
            sum.hold_squared += records * of.hold * of.hold;
            sum.per_delay += records * of.records * of.waits_with;
        }
        self.way += of.share * of.way;
        self.beyond += of.share * of.beyond;
        self.back += all * of.back;
        self.done_at.iter_mut().zip(by_age.done_at).for_each(|(sum, done)| *sum += all * done_later * done);
        first_held + later_held
    }

    /// Who holds what others come to; `together` says that all is asked for at once.
    pub(super) fn ages(&self, together: bool, others: f64) -> Ages {
        let held = self.first_held + self.later_held;
        let young = if held > 0.0 { self.first_held / held } else { 1.0 };
        Ages { young, before: began_before(together, mean(self.beyond, self.way)), others }
    }

    /// How much is left of a hold that somebody meets, of each kind of band.
    pub(super) fn left(&self) -> [f64; KINDS] {
        self.of_kind.map(|held| held.left())
    }

    /// The mean of those whom accesses meet, which are so many of each kind of band.
    fn met(&self, met: [f64; KINDS], of: impl Fn(&Held) -> f64) -> f64 {
        let sum = self.of_kind.iter().zip(met).map(|(held, met)| met * of(held)).sum();
        mean(sum, met.iter().sum())
    }

    /// How long accesses wait that wait so often in first attempts and at each place, and meet so many of each kind of band; the rest is
    /// as in [`Ages::delays`].
    pub(super) fn held_up(
        &self,
        ages: Ages,
        met: [f64; KINDS],
        waits: (f64, [f64; PLACES]),
        together: impl Fn(f64) -> f64,
    ) -> HeldUp {
        let hold = self.met(met, |held| mean(held.hold_squared, held.hold));
        let per_delay = self.met(met, |held| mean(held.per_delay, held.records));
        let (first, later) = ages.delays(hold, per_delay, waits, together);
        let young = mean(self.first_asked, self.asked);
        // Who comes to less before it fails tries more often: at all places as many records are asked for.
        let of_all = |first: f64, later: [f64; PLACES]| {
            young * first + (1.0 - young) * later.iter().sum::<f64>() / PLACES as f64
        };
        let done = self.done_at.iter().zip(later).map(|(done, ns)| done * ns).sum();
        let done_ns = [first, mean(done, self.done_at.iter().sum())];
        HeldUp { waits: of_all(waits.0, waits.1), ns: of_all(first, later), done_ns }
    }

    /// How often who has died dies again of the same holder: the next attempts come after pauses that are doubled, and any part of
    /// the hold may have been left.
    pub(super) fn again(&self, workload: &Workload, met: [f64; KINDS]) -> f64 {
        let (hold, back) = (2.0 * self.met(met, Held::left), mean(self.back, self.records));
        let (mut times, mut passed, mut pause) = (0.0, 0.0, workload.backoff_ns);
        for attempt in 0..COMES_BACK {
            passed += back + pause;
            if passed >= hold {
                break;
            }
            times += 1.0 - passed / hold;
            if attempt < workload.backoff_doublings {
                pause *= 2.0;
            }
        }
        times
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixtures::calm;
    use super::*;

    #[test]
    fn who_holds_a_record_began_before_who_comes_to_it() {
        // Two that hold for the rest of the way alone: of three places, two of which are ordered, one in three is younger.
        assert!((began_before(false, 0.0) - 2.0 / 3.0).abs() < 1e-12);
        // The same of very many, each at any place of its way.
        let n = 400;
        let mut met = [0.0; 2];
        for (held, at) in (0..n).flat_map(|held| (0..n).map(move |at| (held, at))) {
            let (held, at) = ((f64::from(held) + 0.5) / f64::from(n), (f64::from(at) + 0.5) / f64::from(n));
            // Met at any moment of the hold, whose owner is then between `held` and the end, and 0.7 beyond it.
            let longest = 1.7 - held;
            met[0] += longest;
            met[1] += longest.min(1.7 - at);
        }
        assert!((met[1] / met[0] - began_before(false, 0.7)).abs() < 1e-3, "{met:?}");
        assert_eq!(began_before(true, 0.0), 1.0);
    }

    #[test]
    fn waits_do_not_feed_on_themselves() {
        let ages = Ages { young: 0.2, before: 1.0, others: 90.0 };
        // Each of thirty accesses waits nine times in ten, where a mean hold would grow without end.
        let (young, later) = ages.delays(1_000.0, 15.0, (0.0, [0.9; PLACES]), |_| 1.0);
        assert_eq!(young, 0.0);
        assert!(later.windows(2).all(|pair| pair[0] > pair[1]), "{later:?}");
        assert!(later[PLACES - 1] == 450.0 && later[0].is_finite(), "{later:?}");
        // All are young: half of what they hold.
        let (young, _) = Ages { young: 1.0, before: 0.5, others: 90.0 }.delays(
            1_000.0,
            15.0,
            (0.4, [0.0; PLACES]),
            |_| 1.0,
        );
        assert_eq!(young, 200.0);
    }

    #[test]
    fn who_comes_back_before_the_holder_has_left_dies_again() {
        let mut of_kind = [Held::default(); KINDS];
        (of_kind[1].ns, of_kind[1].squared) = (1.0, 10_000.0);
        let aging = |back| Aging { of_kind, records: 1.0, back, ..Aging::default() };
        let mut met = [0.0; KINDS];
        met[1] = 0.3;
        let pauses = |backoff_ns| Workload { backoff_ns, backoff_doublings: 7, ..calm(2) };
        // After 4 and 8 of 10 µs: six and two in ten are still there.
        assert!((aging(4_000.0).again(&pauses(0.0), met) - 0.8).abs() < 1e-12);
        // After 3 and, with a pause that is twice as long, 8.
        assert!((aging(1_000.0).again(&pauses(2_000.0), met) - 0.9).abs() < 1e-12);
        assert_eq!(aging(11_000.0).again(&pauses(0.0), met), 0.0);
    }
}
