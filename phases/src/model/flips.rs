//! What would change the tuner's choice: each input is scaled, step by step and both ways, and the plans are searched again.

use super::explain::Flip;
use super::forecast::{Forecast, Model};
use super::input::{Cluster, Workload};
use super::knobs::{Input, KNOBS};
use super::tune::{
    Candidate, GoOn, Objective, Search, TuneError, best_count, rank, same_primitives, side_by_side,
};
use crate::plan::{Needs, Phase, Plan};
use primitives::fabric::Caps;
use primitives::profile::Profile;

/// Steps to a half and to twice of what an input is, alike on a logarithmic scale: a choice that holds for less than one may be missed.
const STEPS: u32 = 4;

/// Halvings of a step in search of the place of a change: it is good to 2 %.
const HALVINGS: usize = 3;

/// Changes within a step that are told.
const CHANGES: usize = 3;

/// Beside the plans that are near the best at a half or at twice, so many are looked at in between: those that are foretold most as it is, one of
/// each way to carry the phases.
const FIRST: usize = 30;

/// The inputs of a model in which one is scaled by a factor.
type Scaled<'a> = dyn Fn(f64) -> (Profile, Workload) + Sync + 'a;

/// What is searched again, and with what.
struct Again<'a> {
    cluster: Cluster,
    needs: &'a Needs,
    caps: &'a Caps,
    plans: &'a [Plan],
    winner: &'a Candidate,
    search: Search,
    go_on: &'a GoOn<'a>,
}

/// The choice where an input is scaled: a plan, and by which share it is better than the present one, 0 of that itself.
#[derive(Clone)]
struct Chosen {
    plan: Plan,
    gain: f64,
}

/// Scales each input towards its half and its double, and tells of each change of the choice on the way: to a plan with other primitives that
/// is then better than the present one, with its count of coroutines, by more than the tolerance. Inputs are shared out among the cores.
pub(super) fn flips(
    model: &Model<'_>,
    caps: &Caps,
    plans: &[Plan],
    winner: &Candidate,
    search: &Search,
    go_on: &GoOn<'_>,
) -> Result<Vec<Flip>, TuneError> {
    let search = Search { coroutines: vec![winner.plan.coroutines], ..search.clone() };
    let (profile, workload, needs) = (model.profile(), model.workload(), model.needs());
    let again = Again { cluster: *model.cluster(), needs, caps, plans, winner, search, go_on };
    let mut asked: Vec<(Input, f64, Box<Scaled<'_>>)> = Vec::new();
    for knob in KNOBS {
        for factor in [0.5, 2.0] {
            let scaled = move |factor: f64| {
                let mut profile = profile.clone();
                knob.scale(&mut profile, factor);
                (profile, workload.clone())
            };
            asked.push((knob.input(profile), factor, Box::new(scaled)));
        }
    }
    // A sequencer looks nothing up elsewhere.
    if !needs.sequenced {
        let hits = workload.cache_hit_share;
        let with_hits =
            move |cache_hit_share: f64| (profile.clone(), Workload { cache_hit_share, ..workload.clone() });
        for factor in [0.5, 2.0] {
            let misses = move |factor: f64| with_hits(1.0 - (factor * (1.0 - hits)).min(1.0));
            let input = Input::lookups("location cache misses", 1.0 - hits);
            asked.push((input, factor, Box::new(misses)));
        }
        let input = Input::lookups("location cache hits", hits);
        asked.push((input, 0.5, Box::new(move |factor: f64| with_hits(factor * hits))));
    }
    let along = |(input, factor, scaled): &(Input, f64, Box<Scaled<'_>>)| again.along(input, *factor, scaled);
    let flips = side_by_side(&asked, along).into_iter().collect::<Result<Vec<_>, _>>()?;
    Ok(flips.into_iter().flatten().collect())
}

impl Again<'_> {
    /// The changes of the choice on the way to a factor, the nearest first. All plans are searched at its end; in between those that are near
    /// the best there, and one of each of the ways to carry the phases that are best as it is.
    fn along(&self, input: &Input, factor: f64, scaled: &Scaled<'_>) -> Result<Vec<Flip>, TuneError> {
        let (end, near) = self.chosen(scaled, factor, self.plans)?;
        let mut few: Vec<Plan> = Vec::new();
        for plan in self.plans {
            if few.len() < FIRST && !few.iter().any(|other| same_primitives(other, plan)) {
                few.push(*plan);
            }
        }
        few.extend(near);
        let mut flips: Vec<Flip> = Vec::new();
        let mut before = Chosen { plan: self.winner.plan, gain: 0.0 };
        let mut from = 1.0;
        for step in 1..=STEPS {
            let here = factor.powf(f64::from(step) / f64::from(STEPS));
            let chosen = if step == STEPS { end.clone() } else { self.chosen(scaled, here, &few)?.0 };
            // Several changes may lie in a step.
            for _ in 0..CHANGES {
                if same_primitives(&chosen.plan, &before.plan) {
                    break;
                }
                let (place, next) = self.first_other(scaled, &before.plan, (from, here), &chosen, &few)?;
                if !same_primitives(&next.plan, &self.winner.plan) {
                    let (input, then, text) = (input.clone(), input.at(place), String::new());
                    let (factor, plan, gain) = (place, next.plan, next.gain);
                    flips.push(Flip { input, factor, from: place, then, plan, gain, text });
                }
                (from, before) = (place, next);
            }
            // What it comes to is told of the farthest place where it is the choice.
            if let Some(flip) = flips.last_mut().filter(|flip| same_primitives(&flip.plan, &chosen.plan)) {
                (flip.factor, flip.gain) = (here, chosen.gain);
            }
            (before, from) = (chosen, here);
        }
        for flip in &mut flips {
            flip.text = self.told(flip);
        }
        Ok(flips)
    }

    /// The least factor between two at which the choice is another than `before`, and that choice; at the second it is `other`.
    fn first_other(
        &self,
        scaled: &Scaled<'_>,
        before: &Plan,
        (mut same, mut changed): (f64, f64),
        other: &Chosen,
        plans: &[Plan],
    ) -> Result<(f64, Chosen), TuneError> {
        let mut other = other.clone();
        for _ in 0..HALVINGS {
            let between = f64::sqrt(same * changed);
            let (chosen, _) = self.chosen(scaled, between, plans)?;
            if same_primitives(&chosen.plan, before) {
                same = between;
            } else {
                (changed, other) = (between, chosen);
            }
        }
        Ok((changed, other))
    }

    /// The choice among plans at a factor, and the plans that are near it; where there is no model of it, the present one.
    fn chosen(
        &self,
        scaled: &Scaled<'_>,
        factor: f64,
        plans: &[Plan],
    ) -> Result<(Chosen, Vec<Plan>), TuneError> {
        let present = (Chosen { plan: self.winner.plan, gain: 0.0 }, Vec::new());
        let (profile, workload) = scaled(factor);
        let Ok(changed) = Model::new(&profile, self.cluster, &workload, self.needs) else {
            return Ok(present);
        };
        let Some(kept) = best_count(&changed, self.caps, self.winner.plan, None, None, &self.search) else {
            return Ok(present);
        };
        let candidates = contenders(&changed, self.caps, plans, &kept, &self.search, self.go_on)?;
        let near: Vec<Plan> = candidates.iter().map(|candidate| candidate.plan).collect();
        let Some(best) = candidates.first() else { return Ok(present) };
        let gain = gain(&best.forecast, &kept.forecast, &self.search);
        if same_primitives(&best.plan, &self.winner.plan) || gain <= self.search.tolerance {
            return Ok((present.0, near));
        }
        Ok((Chosen { plan: best.plan, gain }, near))
    }

    /// In one sentence.
    fn told(&self, flip: &Flip) -> String {
        let other = |phase: Phase| {
            let (now, then) = (self.winner.plan.step(phase)?, flip.plan.step(phase)?);
            (now.via != then.via).then(|| format!("{phase} {}", then.via))
        };
        let changes: Vec<String> = Phase::ALL.into_iter().filter_map(other).collect();
        let changes = match changes.is_empty() {
            true => format!("{} location cache", if flip.plan.location_cache { "a" } else { "no" }),
            false => changes.join(", "),
        };
        format!(
            "with {} coroutines would flip to {changes} if {}; at ×{:.2} that would be {:.1} % better",
            self.winner.plan.coroutines,
            flip.input.condition(flip.from),
            flip.factor,
            100.0 * flip.gain
        )
    }
}

/// The plans among which the best one is, with the coroutines of `kept`, best first; none if no plan is better than `kept` by more
/// than the tolerance. With as many coroutines less throughput is more latency, whatever the objective, and the best plan is
/// within the tolerance of the most of either.
pub(super) fn contenders(
    model: &Model<'_>,
    caps: &Caps,
    plans: &[Plan],
    kept: &Candidate,
    search: &Search,
    go_on: &GoOn<'_>,
) -> Result<Vec<Candidate>, TuneError> {
    let above = |plan: &Plan, floor: f64| {
        let plan = Plan { coroutines: kept.plan.coroutines, ..*plan };
        let forecast = model.forecast_above(&plan.check(caps, model.needs()).ok()?, floor)?;
        Some(Candidate { plan, preset: None, forecast })
    };
    let enough = kept.forecast.committed_per_s * (1.0 + search.tolerance);
    let near = |most: f64| most * (1.0 - search.tolerance);
    let mut most = 0.0_f64;
    for plan in plans {
        if !go_on() {
            return Err(TuneError::Stopped);
        }
        if let Some(candidate) = above(plan, near(most).max(enough)) {
            most = most.max(candidate.forecast.committed_per_s);
        }
    }
    if most <= enough {
        return Ok(Vec::new());
    }
    let mut candidates = Vec::new();
    for plan in plans {
        if !go_on() {
            return Err(TuneError::Stopped);
        }
        candidates.extend(above(plan, near(most)));
    }
    rank(&mut candidates, model.needs(), search);
    Ok(candidates)
}

/// By which share the first is better.
pub(super) fn gain(a: &Forecast, b: &Forecast, search: &Search) -> f64 {
    match search.objective {
        Objective::Latency => 1.0 - a.latency_mean_ns / b.latency_mean_ns,
        _ => a.committed_per_s / b.committed_per_s - 1.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::fixtures::{calm, caps, cluster, contended};
    use crate::model::tune::tune;
    use primitives::fabric::AtomicScope;

    /// Up to the nearest change of an input's the choice is what it is, and there it is another: not only beside the plan that is best at twice
    /// or half of it, before which others may have been better than the choice.
    #[test]
    fn nothing_changes_before_the_nearest_flip() {
        let (nic, needs) = (caps(true, AtomicScope::Nic), Needs::OCC);
        let mut seen = 0;
        for (name, workload) in [("cx3", contended(4, 2e4)), ("cx3", calm(4)), ("cx4-edr", calm(4))] {
            let profile = Profile::shipped(name).unwrap();
            let search = Search { coroutines: vec![12], ..Search::default() };
            let tuning = tune(&profile, &nic, &needs, cluster(4, 4), &workload, &search).unwrap();
            let plans: Vec<Plan> = tuning.ranked.iter().map(|c| c.plan).collect();
            let (cluster, winner) = (cluster(4, 4), tuning.best());
            let again =
                Again { cluster, needs: &needs, caps: &nic, plans: &plans, winner, search, go_on: &|| true };
            for knob in KNOBS {
                let scaled = |factor: f64| {
                    let mut profile = profile.clone();
                    knob.scale(&mut profile, factor);
                    (profile, workload.clone())
                };
                let input = knob.input(&profile);
                for down in [true, false] {
                    let ways = tuning.flips.iter().filter(|f| f.input == input && (f.from < 1.0) == down);
                    let Some(flip) = ways.min_by(|a, b| a.from.ln().abs().total_cmp(&b.from.ln().abs()))
                    else {
                        continue;
                    };
                    let there = again.chosen(&scaled, flip.from, &plans).unwrap().0;
                    assert!(same_primitives(&there.plan, &flip.plan), "{name}: {flip:?}");
                    for part in [0.25, 0.5, 0.75, 0.8] {
                        let before = again.chosen(&scaled, flip.from.powf(part), &plans).unwrap().0;
                        // By little more than the tolerance others may be better between two steps.
                        let gain = before.gain;
                        assert!(gain < 0.02, "{name}: {gain} at {part} of the way to {flip:?}");
                    }
                    seen += 1;
                    // Whoever goes along the flips comes by the choices.
                    for half in [0.5, 1.0] {
                        let factor = if down { 0.5f64.powf(half) } else { 2f64.powf(half) };
                        let here = again.chosen(&scaled, factor, &plans).unwrap().0.plan;
                        let ways = tuning.flips.iter().filter(|f| f.input == input && (f.from < 1.0) == down);
                        let passed = ways.filter(|f| f.from.ln().abs() <= factor.ln().abs() + 1e-9);
                        let told = passed.max_by(|a, b| a.from.ln().abs().total_cmp(&b.from.ln().abs()));
                        let is_told = told.is_some_and(|f| same_primitives(&f.plan, &here));
                        assert!(
                            is_told || same_primitives(&here, &winner.plan),
                            "{name}: {here} at {factor}, {told:?}"
                        );
                    }
                }
            }
        }
        assert!(seen >= 5, "{seen}");
    }
}
