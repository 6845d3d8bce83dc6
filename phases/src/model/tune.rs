//! The tuner: every plan that can run, times the coroutine counts, by forecast.

use super::explain::{Flip, explain};
use super::flips::flips;
use super::forecast::{Forecast, Model};
use super::input::{Cluster, Workload};
use super::valid::InputError;
use crate::plan::{Needs, Phase, Plan, Preset, Space, Step, Via};
use primitives::fabric::Caps;
use primitives::profile::Profile;
use serde::Serialize;
use std::sync::atomic::{AtomicUsize, Ordering};

/// What the best plan is best at.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Objective {
    /// Most committed transactions per second.
    Throughput,
    /// Least mean latency.
    Latency,
    /// Most committed transactions per second among plans whose mean latency is at most this, in nanoseconds; the
    /// least latency if no plan is.
    ThroughputWithin(f64),
}

impl Objective {
    /// The mean latency, in nanoseconds, up to which more throughput is better; beyond it less latency is.
    pub fn limit_ns(self) -> f64 {
        match self {
            Objective::Throughput => f64::INFINITY,
            Objective::Latency => 0.0,
            Objective::ThroughputWithin(ns) => ns,
        }
    }
}

/// What is searched, and for what.
#[derive(Clone, Debug, PartialEq)]
pub struct Search {
    /// The aim.
    pub objective: Objective,
    /// Coroutines per thread to try.
    pub coroutines: Vec<u32>,
    /// Plans whose throughput differs by less than this share count as equal, and the quicker is better: beyond the
    /// knee more coroutines add latency and hardly any throughput.
    pub tolerance: f64,
    /// Look for inputs that would change the choice.
    pub flips: bool,
}

impl Default for Search {
    fn default() -> Search {
        Search {
            objective: Objective::Throughput,
            coroutines: vec![1, 2, 4, 6, 8, 12, 16, 24, 32],
            tolerance: 0.01,
            flips: true,
        }
    }
}

/// A plan with its forecast.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Candidate {
    /// The plan.
    pub plan: Plan,
    /// The preset it is, or is nearest to with its coroutines chosen anew; none for plans of the search.
    pub preset: Option<Preset>,
    /// What the model expects of it.
    pub forecast: Forecast,
}

/// The outcome of a search.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Tuning {
    /// All primitives and optimizations, each with its best coroutine count, best first.
    pub ranked: Vec<Candidate>,
    /// The presets that can run, each with its best coroutine count, best first.
    pub presets: Vec<Candidate>,
    /// Forecasts made.
    pub evaluated: usize,
    /// Why the winner: against the next in rank that differs in a primitive, and against each preset.
    pub reasons: Vec<String>,
    /// What would change the choice.
    pub flips: Vec<Flip>,
}

impl Tuning {
    /// The winner.
    pub fn best(&self) -> &Candidate {
        &self.ranked[0]
    }

    /// The plans that the model tells apart, best first; of those that it does not, the one that the search prefers.
    pub fn distinct(&self) -> Vec<&Candidate> {
        let mut plans: Vec<&Candidate> = Vec::new();
        for candidate in &self.ranked {
            if !plans.iter().any(|known| known.forecast == candidate.forecast) {
                plans.push(candidate);
            }
        }
        plans
    }

    /// At most so many plans to run before one is believed to be the best: half of them those that are foretold most, the others
    /// the best of each further way to carry the phases. A model that is wrong about a primitive is wrong about all plans that use it:
    /// the plan that it should have chosen may be far down, but is likely the first of its kind.
    pub fn shortlist(&self, most: usize) -> Vec<&Candidate> {
        let distinct = self.distinct();
        let (near, further) = distinct.split_at(most.div_ceil(2).min(distinct.len()));
        let mut list = near.to_vec();
        for candidate in further {
            if list.len() == most {
                break;
            }
            if !list.iter().any(|known| same_but_unlock(&known.plan, &candidate.plan)) {
                list.push(candidate);
            }
        }
        list
    }
}

/// Why there is nothing to choose from.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum TuneError {
    /// Cluster or workload cannot be.
    #[error(transparent)]
    Input(#[from] InputError),
    /// No plan can run.
    #[error("no plan can run here: {why}")]
    NoPlan {
        /// What is wrong with a plan of calls alone, which asks least of a fabric.
        why: String,
    },
    /// Whoever was asked before each plan did not want the search to go on.
    #[error("the search was stopped")]
    Stopped,
    /// No coroutine count to try that a plan may have.
    #[error("coroutines to try: {tried:?}, a thread can run 1 to {}", Plan::MAX_COROUTINES)]
    Coroutines {
        /// What was asked for.
        tried: Vec<u32>,
    },
}

/// Finds the best plan for `workload` on `cluster`, as `profile` prices it.
///
/// # Errors
/// When cluster, workload or search cannot be.
pub fn tune(
    profile: &Profile,
    caps: &Caps,
    needs: &Needs,
    cluster: Cluster,
    workload: &Workload,
    search: &Search,
) -> Result<Tuning, TuneError> {
    tune_while(profile, caps, needs, cluster, workload, search, &|| true)
}

/// Asked before a plan is priced whether the search goes on; once it says no, it has to say so each time. Several threads ask.
pub type GoOn<'a> = dyn Fn() -> bool + Sync + 'a;

/// As [`tune`], for searches that take long: `go_on` is asked before each plan that is priced.
///
/// # Errors
/// As [`tune`], and [`TuneError::Stopped`].
pub fn tune_while(
    profile: &Profile,
    caps: &Caps,
    needs: &Needs,
    cluster: Cluster,
    workload: &Workload,
    search: &Search,
    go_on: &GoOn<'_>,
) -> Result<Tuning, TuneError> {
    let in_range = |c: &u32| (1..=Plan::MAX_COROUTINES).contains(c);
    if search.coroutines.is_empty() || !search.coroutines.iter().all(in_range) {
        return Err(TuneError::Coroutines { tried: search.coroutines.clone() });
    }
    let model = Model::new(profile, cluster, workload, needs)?;
    let plans = plans(caps, needs, cluster, workload);
    if plans.is_empty() {
        let calls = Plan::uniform(Via::TwoSided).restricted_to(needs);
        let refusals: Vec<String> = calls.refusals(caps, needs).iter().map(ToString::to_string).collect();
        return Err(TuneError::NoPlan { why: refusals.join("; ") });
    }
    // Presets are written down for OCC; under a protocol that runs fewer phases some are the same plan.
    let mut named: Vec<(Preset, Plan)> = Vec::new();
    for &preset in Preset::ALL {
        let plan = preset.plan().restricted_to(needs);
        if !named.iter().any(|(_, other)| *other == plan) {
            named.push((preset, plan));
        }
    }
    let mut asked: Vec<(Plan, Option<Preset>)> = plans.iter().map(|&plan| (plan, None)).collect();
    asked.extend(named.into_iter().map(|(preset, plan)| (plan, Some(preset))));
    let (mut presets, mut ranked): (Vec<Candidate>, Vec<Candidate>) =
        best_counts(&model, caps, &asked, search, go_on)?.into_iter().partition(|c| c.preset.is_some());
    let evaluated = asked.len() * search.coroutines.len();
    rank(&mut ranked, needs, search);
    rank(&mut presets, needs, search);
    let reasons = reasons(&ranked, &presets);
    let mut tuning = Tuning { ranked, presets, evaluated, reasons, flips: Vec::new() };
    if search.flips {
        // What is good as it is, is likely good with another price: from there on fewer are worked out to the end.
        let best_first: Vec<Plan> = tuning.ranked.iter().map(|c| c.plan).collect();
        tuning.flips = flips(&model, caps, &best_first, tuning.best(), search, go_on)?;
    }
    Ok(tuning)
}

/// The plans to try. Without backups nothing is logged, so all ways to log are one.
fn plans(caps: &Caps, needs: &Needs, cluster: Cluster, workload: &Workload) -> Vec<Plan> {
    let mut plans: Vec<Plan> = Space::all(caps, needs, workload.reads_ahead).plans().collect();
    if cluster.backups == 0
        && let Some(log) = plans.iter().rev().find_map(|plan| plan.log)
    {
        plans.retain(|plan| plan.log == Some(log));
    }
    plans
}

/// Each plan that can run, with the coroutine count that serves it best, in the order of `asked`. Plans that carry the first phases
/// alike, and so have costs in common, stand together: they are shared out in pieces, each with a model of its own.
fn best_counts(
    model: &Model<'_>,
    caps: &Caps,
    asked: &[(Plan, Option<Preset>)],
    search: &Search,
    go_on: &GoOn<'_>,
) -> Result<Vec<Candidate>, TuneError> {
    let (profile, cluster, workload) = (model.profile(), *model.cluster(), model.workload());
    let needs = model.needs();
    let pieces: Vec<_> = asked.chunks(asked.len().div_ceil(PIECES).max(1)).collect();
    let of_piece = |piece: &&[(Plan, Option<Preset>)]| {
        let model = Model::new(profile, cluster, workload, needs).expect("it was made of the same before");
        let mut likely = None;
        let best = |&(plan, preset): &(Plan, Option<Preset>)| {
            let best = best_count(&model, caps, plan, preset, likely, search);
            likely = best.as_ref().map(|best| best.plan.coroutines).or(likely);
            best
        };
        let found = piece.iter().take_while(|_| go_on()).map(best).collect::<Vec<_>>();
        if found.len() == piece.len() { Ok(found) } else { Err(TuneError::Stopped) }
    };
    let pieces = side_by_side(&pieces, of_piece).into_iter().collect::<Result<Vec<_>, _>>()?;
    Ok(pieces.into_iter().flatten().flatten().collect())
}

/// Pieces of the search that cores take by turns: so many that they end about together, and so few that little is priced twice.
const PIECES: usize = 6;

/// `of` each item, in their order, on as many threads as there are cores.
pub(super) fn side_by_side<T: Sync, R: Send>(items: &[T], of: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let next = AtomicUsize::new(0);
    let work = || {
        let mut done = Vec::new();
        loop {
            let place = next.fetch_add(1, Ordering::Relaxed);
            let Some(item) = items.get(place) else { return done };
            done.push((place, of(item)));
        }
    };
    let mut all = std::thread::scope(|scope| {
        let others: Vec<_> = (1..cores.min(items.len())).map(|_| scope.spawn(work)).collect();
        let mut all = work();
        for other in others {
            all.extend(other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        }
        all
    });
    all.sort_by_key(|(place, _)| *place);
    all.into_iter().map(|(_, result)| result).collect()
}

/// `plan` with the coroutine count that serves it best; nothing if it cannot run. A count that is likely the best is tried first:
/// where throughput alone is asked for, those that stay behind it by more than the tolerance are not worked out.
pub(super) fn best_count(
    model: &Model<'_>,
    caps: &Caps,
    plan: Plan,
    preset: Option<Preset>,
    likely: Option<u32>,
    search: &Search,
) -> Option<Candidate> {
    let others = search.coroutines.iter().copied().filter(|&count| Some(count) != likely);
    let first = likely.filter(|count| search.coroutines.contains(count));
    let (mut candidates, mut most) = (Vec::new(), 0.0_f64);
    for coroutines in first.into_iter().chain(others) {
        let plan = Plan { coroutines, ..plan };
        let Ok(checked) = plan.check(caps, model.needs()) else { continue };
        let floor = match search.objective {
            Objective::Throughput => most * (1.0 - search.tolerance),
            Objective::Latency | Objective::ThroughputWithin(_) => f64::NEG_INFINITY,
        };
        if let Some(forecast) = model.forecast_above(&checked, floor) {
            most = most.max(forecast.committed_per_s);
            candidates.push(Candidate { plan, preset, forecast });
        }
    }
    rank(&mut candidates, model.needs(), search);
    candidates.into_iter().next()
}

/// Best first. Throughputs within the tolerance of the best are ordered by latency, and where that too is within
/// it, by how plain the plan is.
pub(super) fn rank(candidates: &mut [Candidate], needs: &Needs, search: &Search) {
    let rate = |c: &Candidate| c.forecast.committed_per_s;
    let latency = |c: &Candidate| c.forecast.latency_mean_ns;
    let limit = search.objective.limit_ns();
    let best = candidates.iter().filter(|c| latency(c) <= limit).map(rate).fold(0.0, f64::max);
    let fast = |c: &Candidate| latency(c) <= limit && rate(c) >= best * (1.0 - search.tolerance);
    let any_fast = candidates.iter().any(fast);
    let quickest =
        candidates.iter().filter(|c| fast(c) || !any_fast).map(latency).fold(f64::INFINITY, f64::min);
    let quick = |c: &Candidate| latency(c) <= quickest * (1.0 + search.tolerance);
    let class = |c: &Candidate| match (fast(c) || !any_fast, latency(c) <= limit) {
        (true, _) if quick(c) => 0,
        (true, _) => 1,
        (false, true) => 2,
        (false, false) => 3,
    };
    candidates.sort_by(|a, b| {
        let by_rate = rate(b).total_cmp(&rate(a));
        let by_latency = latency(a).total_cmp(&latency(b));
        let within = match class(a) {
            0 => oddities(&a.plan, needs).cmp(&oddities(&b.plan, needs)).then(by_rate).then(by_latency),
            2 => by_rate.then(by_latency),
            _ => by_latency.then(by_rate),
        };
        class(a).cmp(&class(b)).then(within).then(a.plan.cmp(&b.plan))
    });
}

/// In how many phases a plan departs from what is usual with the same primitives, or releases locks after an
/// abort otherwise than after a commit.
fn oddities(plan: &Plan, needs: &Needs) -> usize {
    let unusual = |&(phase, step): &(Phase, Step)| {
        let usual = needs.usual(phase, step.via);
        (step.doorbell_batching, step.passive_ack) != (usual.doorbell_batching, usual.passive_ack)
    };
    let release = plan.unlock.map(|s| s.via) != plan.install.map(|s| s.via);
    plan.steps().filter(unusual).count() + usize::from(release)
}

pub(super) fn same_primitives(a: &Plan, b: &Plan) -> bool {
    a.location_cache == b.location_cache
        && Phase::ALL.into_iter().all(|phase| a.step(phase).map(|s| s.via) == b.step(phase).map(|s| s.via))
}

/// Unlocking after an abort is rare: plans that differ in nothing else are no rivals.
fn same_but_unlock(a: &Plan, b: &Plan) -> bool {
    let but_unlock = |plan: &Plan| Plan { unlock: None, ..*plan };
    same_primitives(&but_unlock(a), &but_unlock(b))
}

fn reasons(ranked: &[Candidate], presets: &[Candidate]) -> Vec<String> {
    let Some(winner) = ranked.first() else { return Vec::new() };
    let against = |name: &str, rival: &Candidate| {
        let lines = explain((&winner.plan, &winner.forecast), (&rival.plan, &rival.forecast));
        format!("against {name}: {}", lines.join("; "))
    };
    let rival = |c: &&Candidate| !same_but_unlock(&c.plan, &winner.plan);
    let next = ranked.iter().find(rival);
    let phases: Vec<Phase> = winner.plan.steps().map(|(phase, _)| phase).collect();
    let next = next.map(|c| against(&format!("the next in rank ({})", c.plan.describe(&phases)), c));
    // Nothing is to be said against itself.
    let presets = presets
        .iter()
        .filter(|c| c.plan != winner.plan)
        .filter_map(|c| c.preset.map(|preset| against(preset.name(), c)));
    next.into_iter().chain(presets).collect()
}

#[cfg(test)]
mod tests;
