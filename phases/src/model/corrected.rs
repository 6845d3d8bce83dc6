//! The model's forecasts, corrected by what runs of some plans said.
//!
//! A model that is wrong about a primitive is wrong about all plans that use it, so that a few runs tell much of plans that have not run:
//! what came is held against what was foretold, and how far they are apart is shared out among what those plans have in common, each
//! primitive of each phase, the location cache and the optimizations. Forecasts of all the other plans take the same correction. The
//! next plans to run are those that are then expected to get most.
//!
//! What all plans that ran have in common is taken to be their common error: a primitive that none of them does without is not found to be
//! what was wrong. The alternative, to go from the fastest plan to those that differ in one thing while that gains, stops where two things
//! have to change together; `experiments/REGRET.md` has both beside a longer shortlist, at equal numbers of runs.

use super::tune::{Candidate, Tuning};
use crate::plan::{Phase, Plan, Via};

/// How much a share of the correction is held back: as much as by this many runs that say it is nothing. A dozen runs say little of a dozen
/// shares; results hardly depend on it (0.1 to 1 were tried).
const HELD_BACK: f64 = 0.3;

/// What the forecasts of a search are to be multiplied by, plan by plan.
#[derive(Clone, Debug, PartialEq)]
pub struct Correction {
    /// Of the logarithm of the factor, a share for each of [`traits`].
    shares: Vec<f64>,
}

impl Correction {
    /// By plans that ran, each with what it got per second; nothing if none has committed anything. `once` is the rate of a plan that commits
    /// once in such a run. One that committed nothing got less than that, though by how much the run does not tell: where the others' runs
    /// leave it more, it is taken to have got that much, and where they leave it less, it says nothing.
    pub fn of(ran: &[(&Candidate, f64)], once: f64) -> Option<Correction> {
        let off = |candidate: &Candidate, per_s: f64| {
            (traits(&candidate.plan), (per_s / candidate.forecast.committed_per_s).ln())
        };
        let (got, nothing): (Vec<_>, Vec<_>) =
            ran.iter().filter(|(c, _)| c.forecast.committed_per_s > 0.0).partition(|(_, per_s)| *per_s > 0.0);
        let mut all: Vec<(Vec<f64>, f64)> = got.into_iter().map(|&(c, per_s)| off(c, per_s)).collect();
        if all.is_empty() {
            return None;
        }
        let others = Correction { shares: least_squares(&all) };
        all.extend(nothing.into_iter().filter(|(c, _)| others.rate(c) > once).map(|&(c, _)| off(c, once)));
        Some(Correction { shares: least_squares(&all) })
    }

    /// What a plan of the search will get per second, as corrected.
    pub fn rate(&self, candidate: &Candidate) -> f64 {
        let sum: f64 = traits(&candidate.plan).iter().zip(&self.shares).map(|(a, b)| a * b).sum();
        candidate.forecast.committed_per_s * sum.exp()
    }
}

/// The next plans to run, at most so many, of those searches together: of the plans that each tells apart, and of which none whose
/// forecast is the same has run, those that are expected to get the most, by a correction for each search. Plans of a search whose
/// runs have committed nothing come last. `ran` has runs for each search, and `once` is as [`Correction::of`] has it.
pub fn next_to_run<'a>(
    searches: &[&'a Tuning],
    ran: &[Vec<(&Candidate, f64)>],
    once: f64,
    most: usize,
) -> Vec<(usize, &'a Candidate)> {
    let mut open: Vec<(usize, &Candidate, bool, f64)> = Vec::new();
    for (place, (tuning, ran)) in searches.iter().zip(ran).enumerate() {
        let correction = Correction::of(ran, once);
        let fresh = not_run(tuning, ran.iter().map(|(candidate, _)| *candidate));
        open.extend(fresh.into_iter().map(|candidate| {
            let foretold = candidate.forecast.committed_per_s;
            let rate = correction.as_ref().map_or(foretold, |correction| correction.rate(candidate));
            (place, candidate, correction.is_none(), rate)
        }));
    }
    // The sort is stable: of equals the search's order.
    open.sort_by(|a, b| a.2.cmp(&b.2).then(b.3.total_cmp(&a.3)));
    open.into_iter().take(most).map(|(place, candidate, ..)| (place, candidate)).collect()
}

/// The plans that a search tells apart, but for those of which an equal has run.
pub fn not_run<'a, 'b>(
    tuning: &'a Tuning,
    ran: impl Iterator<Item = &'b Candidate> + Clone,
) -> Vec<&'a Candidate> {
    let mut fresh = tuning.distinct();
    fresh.retain(|candidate| !ran.clone().any(|other| other.forecast == candidate.forecast));
    fresh
}

/// What a plan has in common with others: one for all plans, how each phase is carried, whether locations are remembered, and how much of
/// the plan has which optimization.
fn traits(plan: &Plan) -> Vec<f64> {
    let is = |yes: bool| f64::from(u8::from(yes));
    let mut traits = vec![1.0];
    for phase in Phase::ALL {
        let via = plan.step(phase).map(|step| step.via);
        traits.push(is(via.is_some_and(Via::is_one_sided)));
    }
    traits.push(is(plan.fetch.is_some_and(|step| step.via == Via::Hybrid)));
    traits.push(is(plan.location_cache));
    let batching = plan.steps().filter(|(_, step)| step.doorbell_batching).count();
    traits.push(batching as f64 / plan.steps().count().max(1) as f64);
    traits.push(is(plan.steps().any(|(_, step)| step.passive_ack)));
    traits
}

/// The shares by which traits explain the values best, in squares, the first as it is and the others held back: ridge regression (Hoerl
/// and Kennard, Technometrics 1970), by elimination.
fn least_squares(off: &[(Vec<f64>, f64)]) -> Vec<f64> {
    let many = off[0].0.len();
    // Normal equations, the right-hand side behind them.
    let mut rows = vec![vec![0.0; many + 1]; many];
    for (traits, value) in off {
        for (row, a) in rows.iter_mut().zip(traits) {
            for (cell, b) in row.iter_mut().zip(traits.iter().chain([value])) {
                *cell += a * b;
            }
        }
    }
    // What all plans share is held back by next to nothing, which keeps it apart from traits that all of those which ran have.
    for (place, row) in rows.iter_mut().enumerate() {
        row[place] += if place == 0 { 1e-6 } else { HELD_BACK };
    }
    // The matrix is symmetric and positive definite: no pivot is zero.
    for place in 0..many {
        let pivot = rows[place].clone();
        for (_, row) in rows.iter_mut().enumerate().filter(|(other, _)| *other != place) {
            let factor = row[place] / pivot[place];
            row.iter_mut().zip(&pivot).for_each(|(cell, other)| *cell -= factor * other);
        }
    }
    rows.iter().enumerate().map(|(place, row)| row[many] / row[place]).collect()
}

#[cfg(test)]
mod tests;
