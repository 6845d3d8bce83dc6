//! How often a class runs each phase for each commit, by the odds of its accesses.

use super::ages::PLACES;
use super::chances::{Chances, LEAST_SUCCESS, Odds, POWERS, Spread, power};
use super::input::{KINDS, TxnClass};
use super::met::Met;
use super::way::{Failed, Way};
use crate::plan::{Needs, Phase};
use crate::rule::{OnConflict, Packing};

/// How often one class runs each phase per commit.
#[derive(Clone, Copy, Debug)]
pub(super) struct Runs {
    pub(super) attempts: f64,
    /// Times it computes.
    pub(super) thinks: f64,
    /// Records it asks locks for.
    pub(super) asked: f64,
    /// Times it waits for those that can be waited for.
    pub(super) waits: f64,
    /// Times it comes to all of its records; an attempt that ends early comes to some.
    pub(super) came_to: f64,
    pub(super) phases: [f64; Phase::ALL.len()],
    /// Of the times it unlocks, those in which it only looks again at locks that it shares.
    pub(super) left_again: f64,
    /// How often who has failed fails again of the same holder; nothing where ages decide.
    again: f64,
    /// Accesses that may end an attempt: writes at home, other writes, reads. None where whoever fails becomes older, and does not
    /// fail for ever.
    at_risk: Option<[f64; 3]>,
    /// Where ages decide, how the first attempt differs from later ones.
    pub(super) by_age: Option<ByAge>,
    /// Attempts that fail on the way to their records for each commit, those that fail behind it, and how far the former come where it is known in
    /// which order.
    pub(super) on_the_way: f64,
    pub(super) late: f64,
    pub(super) failed: Option<Failed>,
}

/// First attempts, and later ones, where whoever fails keeps its age ([`super::ages`]).
#[derive(Clone, Copy, Debug)]
pub(super) struct ByAge {
    /// The chance that the first one does well.
    pub(super) done: f64,
    /// The share of its records that it comes to, and of those locks that it leaves again without a commit.
    pub(super) came_to: f64,
    pub(super) unlocks: f64,
    /// Of commits by later attempts, those at each place.
    pub(super) done_at: [f64; PLACES],
}

/// Of `n` accesses in a row, each of which ends the attempt alike, the share that an attempt which fails comes to, the failing
/// one included; `success` is the chance that none fails.
pub(super) fn share_of_failed(n: f64, success: f64) -> f64 {
    if n <= 1.0 {
        return 1.0;
    }
    let each = 1.0 - success.powf(1.0 / n);
    // The mean of a geometric count, given that it ends within n.
    let mean = if each < 1e-9 { (n + 1.0) / 2.0 } else { 1.0 / each - n * success / (1.0 - success) };
    (mean / n).clamp(1.0 / n, 1.0)
}

/// The same where accesses wait and all failures are taken to be circles of waiters: whoever closes one is waited for, so that the first
/// access never does, and later ones do as often as there are locks to be waited for. Who gives up behind a long hold without a circle, as
/// also the first may, is left out.
fn share_of_circles(n: f64, success: f64) -> f64 {
    let n = n.round().max(1.0);
    let (most, risk) = (n as u32, -success.max(LEAST_SUCCESS).ln());
    if most == 1 || risk < 1e-9 {
        // As often as locks: the mean of k, weighted by k - 1.
        return (2.0 / 3.0 * (n + 1.0) / n).min(1.0);
    }
    let survives = |k: f64| (-risk * k * (k - 1.0) / (n * (n - 1.0))).exp();
    // The mean of what is left to come to, access by access.
    let left: f64 = (0..most).map(|k| survives(f64::from(k)) - success).sum();
    (left / (1.0 - success) / n).clamp(1.0 / n, 1.0)
}

/// Whether what is read is looked at again at commit, and not where it is met.
pub(super) fn checks_at_commit(needs: &Needs) -> bool {
    matches!(needs.packing, Packing::Counted | Packing::Leased)
}

/// Whether an attempt that is denied a lock ends before it waits for any: those asked for together are all looked at first.
pub(super) fn at_once_denied(needs: &Needs, reads_ahead: bool) -> bool {
    let denied = matches!(needs.on_conflict, OnConflict::Fail | OnConflict::WaitIfOlder);
    needs.packing == Packing::Locked && reads_ahead && denied
}

/// Of the records that a class writes, those that the own CPU locks before it asks for others, in bands whose parts keep to
/// themselves and in others.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LockedFirst {
    pub(super) apart: f64,
    pub(super) others: f64,
}

impl Runs {
    /// Of the records that the class writes, the own CPU locks `own` first.
    pub(super) fn new(
        needs: &Needs,
        class: &TxnClass,
        own: LockedFirst,
        (met, odds): (&Met, &Odds),
        reads_ahead: bool,
    ) -> Runs {
        let (reads, writes) = (class.reads, class.writes);
        let home = own.apart;
        let away = writes - home;
        let none = |chance: f64, records: f64| power((1.0 - chance).max(0.0), records).max(LEAST_SUCCESS);
        if !needs.locks_at_touch() {
            // The own CPU locks its own, before anything else is asked for.
            let first = none(odds.home, home) * none(odds.write, own.others);
            let asked_for = (away - own.others).max(0.0);
            let all = none(odds.write, asked_for);
            let locks = first * all;
            let checks = if class.validates() { none(odds.read, reads) } else { 1.0 };
            let once = 1.0 / (locks * checks);
            // Who fails comes back to the same records, and fails again where the holder that it met has not left by then.
            let more = 1.0 + met.again;
            let [at_home, at_lock, at_check] =
                [1.0 - first, first - locks, locks - locks * checks].map(|of| more * once * of);
            let attempts = 1.0 + at_home + at_lock + at_check;
            // All are asked for at once, so that those of an attempt that fails are locked as often as any, in vain: each with its own
            // chance, but for the times that all are. One that failed before it asked leaves nothing elsewhere, a failed check all.
            let in_vain = if asked_for > 0.0 { (1.0 - odds.write - all).max(0.0) } else { 0.0 };
            let unlocks = more * once * (first * in_vain + locks * (1.0 - checks));
            let phases = [attempts, attempts - at_home, 1.0 + at_check, 1.0, 1.0, unlocks];
            let checked = if class.validates() { reads } else { 0.0 };
            let at_risk = Some([home, away, checked]);
            let asked = attempts * writes;
            let (thinks, came_to) = (attempts, attempts);
            return Runs {
                attempts,
                thinks,
                asked,
                waits: came_to,
                came_to,
                phases,
                left_again: 0.0,
                again: met.again,
                at_risk,
                by_age: None,
                on_the_way: 0.0,
                late: 0.0,
                failed: None,
            };
        }
        // Fails while it comes to its records, or when its leases are extended or its reads are checked.
        let (met_reads, at_touch) = match needs.packing {
            Packing::Leased => (class.renewals(), false),
            Packing::Counted => (if class.validates() { reads } else { 0.0 }, false),
            Packing::Locked | Packing::Versions => (reads, true),
        };
        let (locked, read) = (none(odds.home, home) * none(odds.write, away), none(odds.read, met_reads));
        let (touches, checks) = if at_touch { (locked * read, 1.0) } else { (locked, read) };
        let finished = 1.0 / checks;
        let records = reads + writes;
        let way = if reads_ahead { None } else { Way::of(class, &odds.by_kind) };
        let locks_of: [f64; KINDS] = std::array::from_fn(|kind| {
            let asked = class.kinds.get(kind).copied().unwrap_or_default();
            asked.writes + if needs.packing == Packing::Locked { asked.reads } else { 0.0 }
        });
        // Of attempts that do well so often: the share of its records that one comes to which fails, and of its locks that it has then.
        let failed = |well: f64| {
            if let Some(failed) = way.map(|way| way.failed(well)) {
                return (failed.came_to, failed.of_locks(&locks_of));
            }
            // Asked for together, all is asked for before anything is known.
            let share = match needs.on_conflict {
                _ if reads_ahead => 1.0,
                OnConflict::Retry(_) => share_of_circles(records, well),
                _ => share_of_failed(records, well),
            };
            (share, if records > 0.0 { (share - 1.0 / records).max(0.0) } else { 0.0 })
        };
        let ages = needs.on_conflict == OnConflict::WaitIfOlder;
        let at_risk = (!ages).then_some([home, away, met_reads]);
        let (share, held) = failed(touches);
        let in_vain = (1.0 + met.again) * finished * (1.0 / touches - 1.0);
        let (attempts, came_to, unlocks, by_age) = if ages {
            let first = ByAge {
                done: touches,
                came_to: touches + (1.0 - touches) * share,
                unlocks: (1.0 - touches) * held,
                done_at: [0.0; PLACES],
            };
            let each = 1.0 + met.again;
            // Who comes to less before it fails tries more often.
            let (mut tries, mut came, mut done, mut left, mut done_at) = (0.0, 0.0, 0.0, 0.0, [0.0; PLACES]);
            for (place, done_at) in done_at.iter_mut().enumerate() {
                let well = odds.spread.well(place, [home, away, met_reads]).max(LEAST_SUCCESS);
                let (share, held) = failed(well);
                let rate = 1.0 / (well + (1.0 - well) * share);
                *done_at = rate * well;
                tries += rate * (well + (1.0 - well) * each);
                came += rate * (well + (1.0 - well) * each * share);
                done += rate * well;
                left += rate * (1.0 - well) * each * held;
            }
            let later = (1.0 - touches) / done;
            let more = (1.0 - touches) * met.again;
            (
                1.0 + more + later * tries,
                first.came_to + more * share + later * came,
                first.unlocks + more * held + later * left,
                Some(ByAge { done_at: done_at.map(|at| at / done), ..first }),
            )
        } else {
            (finished + in_vain, finished + in_vain * share, in_vain * held + (finished - 1.0), None)
        };
        let validates = if checks_at_commit(needs) { finished } else { came_to };
        let locks = if needs.packing == Packing::Locked { records } else { writes };
        // Whoever waits looks again and again. Of locks asked for together all are looked at once before anybody waits for one.
        let stays = if at_once_denied(needs, reads_ahead) { finished } else { came_to };
        let looks = if locks > 0.0 { stays * met.looks_and_wait(odds).0 } else { 0.0 };
        let left_again = if records > 0.0 { came_to * reads / records * met.leaves } else { 0.0 };
        Runs {
            attempts,
            thinks: finished,
            asked: came_to * locks,
            waits: stays,
            came_to,
            phases: [came_to, came_to + looks, validates, 1.0, 1.0, unlocks + left_again],
            left_again,
            again: if ages { 0.0 } else { met.again },
            at_risk,
            by_age,
            on_the_way: in_vain,
            late: finished - 1.0,
            failed: way.filter(|_| !ages).map(|way| way.failed(touches)),
        }
    }

    /// The chance that its first attempts all fail, for one to `most`.
    pub(super) fn all_fail(&self, spread: &Spread, most: usize) -> Chances {
        match self.at_risk {
            Some(at_risk) => {
                let mut chances = spread.all_fail(at_risk, most);
                for k in (1..POWERS).rev() {
                    chances.all[k] += self.again * chances.all[k - 1];
                }
                chances
            }
            // Under wait-die by a mean chance: who has died goes to other places of the order, so that a row is not that of one place.
            None => Chances {
                all: std::array::from_fn(|k| (1.0 - 1.0 / self.attempts).powi(k as i32 + 1)),
                known: most.min(POWERS),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_attempt_comes_to_the_mean_of_a_geometric_count() {
        for (n, each) in [(10u32, 0.3), (10, 0.01), (4, 0.9), (2, 0.5)] {
            let q = 1.0 - each;
            let fails = |k: u32| f64::powi(q, k as i32 - 1) * each;
            let all: f64 = (1..=n).map(fails).sum();
            let mean: f64 = (1..=n).map(|k| f64::from(k) * fails(k)).sum::<f64>() / all;
            let got = share_of_failed(f64::from(n), f64::powi(q, n as i32)) * f64::from(n);
            assert!((got - mean).abs() < 1e-9, "{n} {each}: {got}, not {mean}");
        }
        assert_eq!(share_of_failed(1.0, 0.2), 1.0);
        assert!((share_of_failed(9.0, 1.0) - 5.0 / 9.0).abs() < 1e-6);
    }

    #[test]
    fn who_holds_nothing_closes_no_circle() {
        for (n, success) in [(2u32, 0.5), (11, 0.35), (20, 0.9), (5, 0.01)] {
            // The k-th of n fails with a hazard of k - 1 parts.
            let part = -f64::ln(success) / f64::from(n * (n - 1) / 2);
            let mut sum = (0.0, 1.0);
            for k in 1..=n {
                let goes_on = sum.1 * (-part * f64::from(k - 1)).exp();
                sum = (sum.0 + f64::from(k) * (sum.1 - goes_on), goes_on);
            }
            let mean = sum.0 / (1.0 - sum.1);
            let got = share_of_circles(f64::from(n), success) * f64::from(n);
            assert!((got - mean).abs() < 1e-6 && got >= 2.0, "{n} {success}: {got}, not {mean}");
            assert!(got > share_of_failed(f64::from(n), success) * f64::from(n));
        }
        assert!((share_of_circles(9.0, 1.0) - share_of_circles(9.0, 1.0 - 1e-7)).abs() < 1e-3);
    }

    fn runs(needs: &Needs, class: &TxnClass, own: LockedFirst, odds: Odds) -> Runs {
        Runs::new(needs, class, own, (&Met::default(), &odds), false)
    }

    #[test]
    fn phases_run_as_often_as_attempts_come_to_them() {
        let class = TxnClass::new("x", 1.0, 3.0, 1.0);
        let odds = Odds { write: 0.5, ..Odds::default() };
        // One write of four accesses fails every other time.
        let made = runs(&Needs::NOWAIT, &class, LockedFirst::default(), odds);
        assert_eq!((made.attempts, made.thinks), (2.0, 1.0));
        let came_to = made.phases[Phase::Lock as usize];
        assert!(came_to > 1.25 && came_to < 1.75, "{came_to}");
        assert!((made.phases[Phase::Unlock as usize] - (came_to - 1.0 - 0.25)).abs() < 1e-12);
        // Under OCC all of it is done first, and done again.
        let made = runs(&Needs::OCC, &class, LockedFirst::default(), odds);
        assert_eq!((made.attempts, made.thinks, made.phases[Phase::Fetch as usize]), (2.0, 2.0, 2.0));
        // Of four writes the own CPU locks two first: a quarter of attempts come to the others, of which each is locked every other time,
        // and all together in one of four.
        let writes = TxnClass::new("x", 1.0, 0.0, 4.0);
        let own = LockedFirst { apart: 1.0, others: 1.0 };
        let made = runs(&Needs::OCC, &writes, own, Odds { home: 0.5, ..odds });
        let times = |phase: Phase| made.phases[phase as usize];
        assert_eq!((made.attempts, times(Phase::Lock), times(Phase::Validate)), (16.0, 4.0, 1.0));
        assert_eq!(times(Phase::Unlock), 4.0 * (0.5 - 0.25));
        // A lease that cannot be extended costs the whole attempt, a lock only what came before it.
        let late = Odds { read: 0.5, ..Odds::default() };
        let made = runs(&Needs::SUNDIAL, &class, LockedFirst::default(), late);
        assert!((made.attempts - 8.0).abs() < 1e-9 && (made.thinks - 8.0).abs() < 1e-9);
        let early = runs(&Needs::SUNDIAL, &class, LockedFirst::default(), odds);
        assert_eq!((early.attempts, early.thinks), (2.0, 1.0));
        // FaSST locks like SUNDIAL and checks like OCC.
        let both = runs(&Needs::FASST, &class, LockedFirst::default(), Odds { write: 0.5, ..late });
        assert_eq!((both.attempts, both.thinks), (16.0, 8.0));
        assert_eq!(both.phases[Phase::Validate as usize], 8.0);
    }

    /// Of two attempts one fails at home, of two others at another lock; each failure may bring another one of the same kind.
    #[test]
    fn who_fails_may_fail_again_of_the_same_holder() {
        let class = TxnClass::new("x", 1.0, 0.0, 2.0);
        let own = LockedFirst { apart: 1.0, others: 0.0 };
        let spread = Spread { home: [0.5; POWERS], write: [0.5; POWERS], ..Spread::default() };
        let odds = Odds { home: 0.5, write: 0.5, spread, ..Odds::default() };
        let made =
            |again| Runs::new(&Needs::OCC, &class, own, (&Met { again, ..Met::default() }, &odds), false);
        let times = |runs: &Runs, phase: Phase| runs.phases[phase as usize];
        let (once, more) = (made(0.0), made(0.5));
        assert_eq!(
            (once.attempts, times(&once, Phase::Lock), times(&once, Phase::Validate)),
            (4.0, 2.0, 1.0)
        );
        // Two of the three failures were at home, and one at the other lock.
        assert_eq!(
            (more.attempts, times(&more, Phase::Lock), times(&more, Phase::Validate)),
            (5.5, 2.5, 1.0)
        );
        assert_eq!(times(&more, Phase::Unlock), 1.5 * times(&once, Phase::Unlock));
        // Failures in a row add up to all failures.
        let all = |runs: &Runs| runs.all_fail(&odds.spread, 2).all;
        assert_eq!(all(&once)[0], all(&more)[0]);
        assert_eq!(all(&more)[1], all(&once)[1] + 0.5 * all(&once)[0]);
    }

    /// A first attempt that dies goes among those that have, where each place is as likely, and the oldest never dies.
    #[test]
    fn who_has_died_is_as_likely_at_any_place_of_the_order() {
        let class = TxnClass::new("x", 1.0, 0.0, 1.0);
        let well: [f64; PLACES] = std::array::from_fn(|place| 1.0 - place as f64 / PLACES as f64);
        let odds =
            Odds { write: 0.75, spread: Spread { write: well, ..Spread::default() }, ..Odds::default() };
        let met = |again| Met { again, ..Met::default() };
        let made =
            |met: &Met| Runs::new(&Needs::WAITDIE, &class, LockedFirst::default(), (met, &odds), false);
        let runs = made(&met(0.0));
        // Three in four die; of eight later attempts, one at each place, as many commit as the places' chances come to.
        let later = PLACES as f64 / well.iter().sum::<f64>();
        assert!((runs.attempts - (1.0 + 0.75 * later)).abs() < 1e-12, "{}", runs.attempts);
        let by_age = runs.by_age.expect("ages decide");
        assert_eq!((by_age.done, by_age.came_to, by_age.unlocks), (0.25, 1.0, 0.0));
        assert!((by_age.done_at.iter().sum::<f64>() - 1.0).abs() < 1e-12);
        assert!(by_age.done_at.windows(2).all(|pair| pair[0] > pair[1]), "{:?}", by_age.done_at);
        // Who dies again of the same one adds so many to each attempt that fails.
        let again = made(&met(0.5));
        assert!((again.attempts - 1.0 - 1.5 * (runs.attempts - 1.0)).abs() < 1e-12, "{}", again.attempts);
    }

    /// Of locks that are asked for together, those that are denied end an attempt before it waits for any.
    #[test]
    fn who_is_denied_a_lock_waits_for_none_of_those_asked_for_with_it() {
        let class = TxnClass::new("x", 1.0, 3.0, 1.0);
        let spread = Spread { write: [0.5; PLACES], ..Spread::default() };
        let odds = Odds { write: 0.5, spread, ..Odds::default() };
        for (needs, waits) in [(&Needs::NOWAIT, 1.0), (&Needs::BOUNDED_WAIT, 2.0), (&Needs::WAITDIE, 1.0)] {
            let made = Runs::new(needs, &class, LockedFirst::default(), (&Met::default(), &odds), true);
            assert_eq!((made.waits, made.came_to), (waits, 2.0), "{}", needs.protocol);
        }
    }
}
