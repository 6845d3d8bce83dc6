//! Where a state is what follows from it: Anderson's acceleration of the iteration (D. G. Anderson, JACM 12 (1965); H. F. Walker and
//! P. Ni, SIAM J. Numer. Anal. 49 (2011), section 2). The next state is not a part of the way to what followed from the last one, but
//! where the last few together say that nothing would change any more.
//!
//! States here are numbers that are never negative and span decades from one round to the next: twice as many conflicts may leave a
//! tenth of the rate. So it is their logarithms that are taken to go in straight lines, above a size below which the numbers
//! themselves are.

use std::collections::VecDeque;

/// States that are remembered.
const DEPTH: usize = 5;

/// The share of the way to what followed that is gone.
const DAMPING: f64 = 0.5;

/// How far off, in the largest logarithm, the last states say anything: then no more than what followed is believed, and not all of it.
const FAR: f64 = 1.0;
const WITHIN: [f64; 2] = [0.05, 0.8];

/// The share of a difference's square that others have to leave of it, or it says nothing new.
const NEW: f64 = 1e-14;

/// By how much a logarithm changes at most in a round, however much the last states say.
const LEAP: f64 = 1.0;

/// The largest logarithm: numbers a quadrillion times as large as small ones. Where waits feed on themselves there is no state to be
/// found, and what follows grows until it is no number any more.
const MOST: f64 = 35.0;

/// By how much a state and its change differ from those before.
#[derive(Clone, Default)]
struct Difference {
    state: Vec<f64>,
    change: Vec<f64>,
    /// Of `change`.
    square: f64,
}

impl Difference {
    /// Without so much of another one.
    fn take(&mut self, share: f64, other: &Difference) {
        for (own, of) in [(&mut self.state, &other.state), (&mut self.change, &other.change)] {
            own.iter_mut().zip(of).for_each(|(own, of)| *own -= share * of);
        }
    }

    fn copy(&mut self, of: &Difference) {
        self.state.clone_from(&of.state);
        self.change.clone_from(&of.change);
    }
}

/// The last states of an iteration, as logarithms.
///
/// Numbers that have been nothing so far are left out: most of what protocols know nothing of, and accesses that nobody is in the way
/// of. They add nothing to any sum, so that what comes out is the same to the last digit.
#[derive(Default)]
pub(super) struct Fixpoint {
    /// Which numbers are kept, ascending.
    kept: Vec<usize>,
    /// The last state, and by how much what followed from it differed.
    last: Option<(Vec<f64>, Vec<f64>)>,
    past: VecDeque<Difference>,
    /// Room for what is new in each of the past ones.
    new: Vec<Difference>,
}

impl Fixpoint {
    /// The state to go on with, after `to` followed from `at`; `small` are the sizes of their numbers from which on logarithms count.
    pub(super) fn next(&mut self, at: &[f64], to: &[f64], small: impl Fn(usize) -> f64) -> Vec<f64> {
        self.keep(at, to);
        // `min` and `max` take the other side for what is no number.
        let log = |n: usize, number: f64| (number / small(n)).max(0.0).ln_1p().min(MOST);
        let state: Vec<f64> = self.kept.iter().map(|&n| log(n, at[n])).collect();
        let change: Vec<f64> = self.kept.iter().zip(&state).map(|(&n, at)| log(n, to[n]) - at).collect();
        if let Some((before, changed)) = self.last.take() {
            if self.past.len() == DEPTH {
                self.past.pop_front();
            }
            let (state, change) = (less(&state, before), less(&change, changed));
            let square = dot(&change, &change);
            self.past.push_back(Difference { state, change, square });
        }
        let mut next: Vec<f64> =
            state.iter().zip(&change).map(|(at, change)| at + DAMPING * change).collect();
        // What the differences together leave of the change, the last one first: each by what is new in it.
        let mut left = change.clone();
        self.new.resize(DEPTH, Difference::default());
        let mut known = 0;
        for past in self.past.iter().rev() {
            let (others, new) = self.new.split_at_mut(known);
            let new = &mut new[0];
            new.copy(past);
            for other in others {
                new.take(dot(&other.change, &new.change) / other.square, other);
            }
            let also;
            (new.square, also) = dots(&new.change, &left);
            if new.square <= NEW * past.square {
                continue;
            }
            let share = also / new.square;
            for ((next, left), (state, change)) in
                next.iter_mut().zip(&mut left).zip(new.state.iter().zip(&new.change))
            {
                *next -= share * (state + DAMPING * change);
                *left -= share * change;
            }
            known += 1;
        }
        let far = change.iter().any(|change| change.abs() > FAR);
        for ((next, at), change) in next.iter_mut().zip(&state).zip(&change) {
            let ends = if far { WITHIN.map(|share| at + share * change) } else { [at - LEAP, at + LEAP] };
            *next = next.clamp(ends[0].min(ends[1]), ends[0].max(ends[1])).clamp(0.0, MOST);
        }
        self.last = Some((state, change));
        let mut all = vec![0.0; at.len()];
        for (&n, log) in self.kept.iter().zip(&next) {
            all[n] = small(n) * log.exp_m1();
        }
        all
    }

    /// Takes in numbers that are something for the first time: until now they were nothing.
    fn keep(&mut self, at: &[f64], to: &[f64]) {
        let mut place = 0;
        for n in 0..at.len() {
            if self.kept.get(place) == Some(&n) {
                place += 1;
            } else if at[n] > 0.0 || to[n] > 0.0 {
                self.kept.insert(place, n);
                let past = self.past.iter_mut().map(|past| (&mut past.state, &mut past.change));
                let last = self.last.iter_mut().map(|(state, change)| (state, change));
                for (state, change) in past.chain(last) {
                    state.insert(place, 0.0);
                    change.insert(place, 0.0);
                }
                place += 1;
            }
        }
    }
}

/// A difference, or all the difference there is where one side is no number.
pub(super) fn or_all(difference: f64) -> f64 {
    if difference.is_nan() { 1.0 } else { difference }
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// The square of `a`, and its product with `b`.
fn dots(a: &[f64], b: &[f64]) -> (f64, f64) {
    // As sums of no numbers begin.
    a.iter().zip(b).fold((-0.0, -0.0), |(square, product), (a, b)| (square + a * a, product + a * b))
}

/// `b` taken from `a`, in its place.
fn less(a: &[f64], mut b: Vec<f64>) -> Vec<f64> {
    b.iter_mut().zip(a).for_each(|(b, a)| *b = a - *b);
    b
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rounds until what follows from a state is the state, and the state.
    fn rounds(follows: impl Fn(&[f64]) -> Vec<f64>, mut at: Vec<f64>, small: f64) -> (usize, Vec<f64>) {
        let mut fixpoint = Fixpoint::default();
        for round in 1..100 {
            let to = follows(&at);
            let differs = |(a, b): (&f64, &f64)| (a - b).abs() / a.max(*b).max(1.0);
            let apart = at.iter().zip(&to).map(differs).map(or_all).fold(0.0, f64::max);
            if apart < 1e-10 {
                return (round, at);
            }
            at = fixpoint.next(&at, &to, |_| small);
        }
        (100, at)
    }

    /// Chances that rise with a rate which they bring down steeply: halving steps wherever the rate turns takes a hundred rounds for
    /// three digits.
    #[test]
    fn a_steep_fall_is_found_in_a_few_rounds() {
        for (most, steep) in [(1.0, 10.0), (1.0, 1e3), (0.9, 1e4), (0.3, 3.0)] {
            let follows = |at: &[f64]| vec![most * (-steep * at[0]).exp(), 400.0 * at[0], 0.0];
            let (rounds, at) = rounds(follows, vec![0.0; 3], 1e-3);
            assert!(rounds < 40, "{most} {steep}: {rounds} rounds to {at:?}");
            assert!(
                (at[0] - most * (-steep * at[0]).exp()).abs() < 1e-9 && (at[1] - 400.0 * at[0]).abs() < 1e-5
            );
        }
    }

    /// Numbers that are nothing at first, or always, are left out, and nobody sees it: to the last digit what all numbers together come to.
    #[test]
    fn what_is_nothing_is_left_out_and_makes_no_difference() {
        let states: [[f64; 5]; 7] = [
            [0.0, 0.0, 0.0, 0.0, 0.0],
            [0.0, 3.0, 0.0, 0.0, 1.0],
            [0.0, 5.0, 0.0, 2.0, 1.5],
            [0.0, 4.0, 0.0, 0.0, 1.25],
            [7.0, 4.5, 0.0, 1.0, 1.3],
            [6.0, 4.4, 0.0, 1.2, 1.31],
            [6.5, 4.41, 0.0, 1.1, 1.32],
        ];
        let (mut some, mut all) =
            (Fixpoint::default(), Fixpoint { kept: (0..5).collect(), ..Fixpoint::default() });
        let mut kept = Vec::new();
        for pair in states.windows(2) {
            let next = some.next(&pair[0], &pair[1], |_| 0.5);
            assert_eq!(next, all.next(&pair[0], &pair[1], |_| 0.5));
            assert_eq!((next[2], next.len()), (0.0, 5));
            kept.push(some.kept.clone());
        }
        assert_eq!(kept[..2], [vec![1, 4], vec![1, 3, 4]]);
        assert_eq!(kept[5], [0, 1, 3, 4]);
    }

    /// What comes nearer by a twentieth a round, beside what turns each time.
    #[test]
    fn slow_and_turning_parts_are_found_together() {
        let follows =
            |at: &[f64]| vec![1.0 + 0.95 * at[0], 3.0 - 0.9 * at[1], 2.0 + 0.5 * at[0] - 0.3 * at[1]];
        let (rounds, at) = rounds(follows, vec![0.0; 3], 1e3);
        assert!(rounds < 20, "{rounds} rounds");
        assert!((at[0] - 20.0).abs() < 1e-6 && (at[1] - 3.0 / 1.9).abs() < 1e-6, "{at:?}");
    }

    /// What grows without end, or becomes no number, leaves numbers all the same: round after round, whatever the last ones were.
    #[test]
    fn without_a_state_to_be_found_numbers_stay_numbers() {
        type Map = fn(&[f64]) -> Vec<f64>;
        let maps: [Map; 4] = [
            |at| vec![1.3 * at[0] + 1.0, 2.0 * at[1] + at[0], 0.5],
            |at| vec![(at[0] * at[0]).exp(), 1.0 / (1.0 - at[1]), at[2] + 1.0],
            |at| vec![f64::NAN, f64::INFINITY, -at[2] - 1.0],
            |at| vec![1e300 * (1.0 + at[0]), at[1] / at[0], 0.0],
        ];
        for (n, follows) in maps.into_iter().enumerate() {
            let (rounds, at) = rounds(follows, vec![0.0; 3], 1e-3);
            assert!(
                rounds == 100 && at.iter().all(|at| at.is_finite() && *at >= 0.0),
                "{n}: {rounds} {at:?}"
            );
        }
    }
}
