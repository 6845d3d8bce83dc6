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
const WITHIN: [f64; 2] = [0.05, 0.95];

/// Added to the diagonal of the normal equations, as a share of it: states that say nearly the same twice do not decide.
const RIDGE: f64 = 1e-12;

/// By how much a state and its change differ from those before.
struct Difference {
    state: Vec<f64>,
    change: Vec<f64>,
}

/// The last states of an iteration, as logarithms.
#[derive(Default)]
pub(super) struct Fixpoint {
    /// The last state, and by how much what followed from it differed.
    last: Option<(Vec<f64>, Vec<f64>)>,
    past: VecDeque<Difference>,
}

impl Fixpoint {
    /// The state to go on with, after `to` followed from `at`; `small` are the sizes of their numbers from which on logarithms count.
    pub(super) fn next(&mut self, at: &[f64], to: &[f64], small: impl Fn(usize) -> f64) -> Vec<f64> {
        let log = |n: usize, number: f64| (number / small(n)).ln_1p();
        let at: Vec<f64> = at.iter().enumerate().map(|(n, &at)| log(n, at)).collect();
        let change: Vec<f64> = to.iter().zip(&at).enumerate().map(|(n, (&to, at))| log(n, to) - at).collect();
        if let Some((state, before)) = self.last.take() {
            if self.past.len() == DEPTH {
                self.past.pop_front();
            }
            self.past.push_back(Difference { state: less(&at, state), change: less(&change, before) });
        }
        let rows = self.past.iter().enumerate().map(|(n, one)| {
            let mut row: Vec<f64> = self.past.iter().map(|other| dot(&one.change, &other.change)).collect();
            row[n] *= 1.0 + RIDGE;
            row.push(dot(&one.change, &change));
            row
        });
        let mut next: Vec<f64> = at.iter().zip(&change).map(|(at, change)| at + DAMPING * change).collect();
        for (share, past) in solved(rows.collect()).into_iter().zip(&self.past) {
            for ((next, state), change) in next.iter_mut().zip(&past.state).zip(&past.change) {
                *next -= share * (state + DAMPING * change);
            }
        }
        if change.iter().any(|change| change.abs() > FAR) {
            for ((next, at), change) in next.iter_mut().zip(&at).zip(&change) {
                let ends = WITHIN.map(|share| at + share * change);
                *next = next.clamp(ends[0].min(ends[1]), ends[0].max(ends[1]));
            }
        }
        self.last = Some((at, change));
        next.iter().enumerate().map(|(n, log)| small(n) * log.max(0.0).exp_m1()).collect()
    }
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// `b` taken from `a`, in its place.
fn less(a: &[f64], mut b: Vec<f64>) -> Vec<f64> {
    b.iter_mut().zip(a).for_each(|(b, a)| *b = a - *b);
    b
}

/// The solution of linear equations, each a row with its right side last; zero for what none of them says.
fn solved(mut rows: Vec<Vec<f64>>) -> Vec<f64> {
    let n = rows.len();
    for column in 0..n {
        let largest = (column..n).max_by(|&a, &b| rows[a][column].abs().total_cmp(&rows[b][column].abs()));
        rows.swap(column, largest.unwrap_or(column));
        let pivot = rows[column].clone();
        if pivot[column] == 0.0 {
            continue;
        }
        for row in rows.iter_mut().skip(column + 1) {
            let factor = row[column] / pivot[column];
            row.iter_mut().zip(&pivot).skip(column).for_each(|(a, b)| *a -= factor * b);
        }
    }
    let mut solution = vec![0.0; n];
    for at in (0..n).rev() {
        let known: f64 = (at + 1..n).map(|other| rows[at][other] * solution[other]).sum();
        if rows[at][at] != 0.0 {
            solution[at] = (rows[at][n] - known) / rows[at][at];
        }
    }
    solution
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rounds until what follows from a state is the state, and the state.
    fn rounds(follows: impl Fn(&[f64]) -> Vec<f64>, mut at: Vec<f64>, small: f64) -> (usize, Vec<f64>) {
        let mut fixpoint = Fixpoint::default();
        for round in 1..100 {
            let to = follows(&at);
            let apart =
                at.iter().zip(&to).map(|(a, b)| (a - b).abs() / a.max(*b).max(1.0)).fold(0.0, f64::max);
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
        for (most, steep) in [(1.0, 10.0), (1.0, 1e3), (0.9, 1e5), (0.3, 3.0)] {
            let follows = |at: &[f64]| vec![most * (-steep * at[0]).exp(), 400.0 * at[0], 0.0];
            let (rounds, at) = rounds(follows, vec![0.0; 3], 1e-3);
            assert!(rounds < 35, "{most} {steep}: {rounds} rounds to {at:?}");
            assert!(
                (at[0] - most * (-steep * at[0]).exp()).abs() < 1e-9 && (at[1] - 400.0 * at[0]).abs() < 1e-5
            );
        }
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

    #[test]
    fn equations_are_solved_and_those_that_say_nothing_left_out() {
        let solution = solved(vec![vec![0.0, 2.0, 4.0], vec![3.0, 1.0, 5.0]]);
        assert!((solution[0] - 1.0).abs() < 1e-12 && (solution[1] - 2.0).abs() < 1e-12);
        assert_eq!(solved(vec![vec![2.0, 0.0, 6.0], vec![0.0, 0.0, 0.0]]), [3.0, 0.0]);
        assert_eq!(solved(Vec::new()), [0.0; 0]);
    }
}
