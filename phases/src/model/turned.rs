//! The winner beside itself with one choice turned round: what passive ACK, doorbell batching, outstanding requests, the location cache
//! and coroutines save, and what would be foretold without them.
//!
//! Primitives are [`super::choices`]' matter. Here everything else stays as it is, the count of coroutines too, so that the difference
//! is that choice's alone. A choice is turned round in all phases that can be otherwise at once, those that have it and those that have
//! it not apart: phases in which nothing is carried, and plans that cannot run, are left out.

use super::explain::{listed, note};
use super::forecast::{Forecast, Model};
use super::tune::{Candidate, Search};
use crate::plan::{Phase, Plan, Step};
use primitives::fabric::Caps;
use serde::Serialize;
use std::fmt;

/// A choice that is no primitive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Feature {
    /// Nobody waits for the answer.
    PassiveAck,
    /// Requests share a doorbell.
    DoorbellBatching,
    /// Requests do not wait for each other.
    OutstandingRequests,
    /// Locations of records are remembered.
    LocationCache,
    /// Transactions that a thread has under way.
    Coroutines,
}

impl Feature {
    /// Those that each phase has or has not.
    const OF_PHASES: [Feature; 3] =
        [Feature::PassiveAck, Feature::DoorbellBatching, Feature::OutstandingRequests];

    fn name(self) -> &'static str {
        match self {
            Feature::PassiveAck => "passive ACK",
            Feature::DoorbellBatching => "doorbell batching",
            Feature::OutstandingRequests => "outstanding requests",
            Feature::LocationCache => "location cache",
            Feature::Coroutines => "coroutines",
        }
    }

    fn switch(self, step: &mut Step) -> Option<&mut bool> {
        match self {
            Feature::PassiveAck => Some(&mut step.passive_ack),
            Feature::DoorbellBatching => Some(&mut step.doorbell_batching),
            Feature::OutstandingRequests => Some(&mut step.outstanding),
            Feature::LocationCache | Feature::Coroutines => None,
        }
    }
}

/// What the plan saves for each committed transaction; what is below nothing, it costs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Saved {
    /// Doorbells that the coordinator rings.
    pub doorbells: f64,
    /// Waits of the coordinator.
    pub round_trips: f64,
    /// Messages that other nodes' cores handle.
    pub served: f64,
    /// Requests that the coordinator posts.
    pub verbs: f64,
    /// Work of cores, both ends, in nanoseconds.
    pub core_ns: f64,
    /// Work of NIC engines, both ends, in nanoseconds.
    pub engine_ns: f64,
}

impl Saved {
    fn between(ours: &Forecast, theirs: &Forecast) -> Saved {
        let all = |forecast: &Forecast| {
            let core_ns = forecast.total(|p| p.core_ns + p.serve_ns);
            let engine_ns = forecast.total(|p| p.engine_ns);
            let doorbells = forecast.total(|p| p.doorbells);
            let round_trips = forecast.total(|p| p.round_trips);
            let (served, verbs) = (forecast.total(|p| p.served), forecast.total(|p| p.verbs));
            Saved { doorbells, round_trips, served, verbs, core_ns, engine_ns }
        };
        let (a, b) = (all(ours), all(theirs));
        Saved {
            doorbells: b.doorbells - a.doorbells,
            round_trips: b.round_trips - a.round_trips,
            served: b.served - a.served,
            verbs: b.verbs - a.verbs,
            core_ns: b.core_ns - a.core_ns,
            engine_ns: b.engine_ns - a.engine_ns,
        }
    }

    /// `saves 0.9 round trips and costs 12 ns of CPU a transaction`; nothing where neither would be printed as anything.
    fn told(&self) -> Option<String> {
        let (mut saves, mut costs) = (Vec::new(), Vec::new());
        for (saved, unit) in [
            (self.doorbells, "doorbells"),
            (self.round_trips, "round trips"),
            (self.served, "messages to serve"),
            (self.verbs, "requests"),
        ] {
            note(&mut saves, &mut costs, -saved, 0.05, |by| format!("{by:.1} {unit}"));
        }
        for (saved, of) in [(self.core_ns, "CPU"), (self.engine_ns, "NIC engine")] {
            note(&mut saves, &mut costs, -saved, 0.5, |by| format!("{by:.0} ns of {of}"));
        }
        let parts = [("saves", saves), ("costs", costs)];
        let parts: Vec<String> = parts
            .iter()
            .filter(|(_, items)| !items.is_empty())
            .map(|(verb, items)| format!("{verb} {}", listed(items)))
            .collect();
        (!parts.is_empty()).then(|| format!("{} a transaction", parts.join(" and ")))
    }
}

/// The winner with a choice turned round.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Otherwise {
    /// The plan.
    pub plan: Plan,
    /// What the winner saves beside it.
    pub saved: Saved,
    /// The share by which fewer would be committed; below nothing, more.
    pub rate_falls: f64,
    /// By which the mean latency would be longer, in nanoseconds.
    pub latency_rises_ns: f64,
    /// The same as a share of the winner's.
    pub latency_rises: f64,
}

impl Otherwise {
    fn of(winner: &Candidate, plan: Plan, forecast: &Forecast) -> Otherwise {
        let ours = &winner.forecast;
        let latency_rises_ns = forecast.latency_mean_ns - ours.latency_mean_ns;
        Otherwise {
            plan,
            saved: Saved::between(ours, forecast),
            rate_falls: 1.0 - forecast.committed_per_s / ours.committed_per_s,
            latency_rises_ns,
            latency_rises: latency_rises_ns / ours.latency_mean_ns,
        }
    }

    /// `the rate would fall by 5.7 % and the mean latency rise by 1.75 µs`.
    fn told(&self) -> String {
        // What is below half a per cent is no difference beside one that is over a whole.
        let worth = |share: f64| share.abs() >= 0.005;
        let way = |up: bool| if up { "rise" } else { "fall" };
        let rate = worth(self.rate_falls).then(|| {
            format!("the rate would {} by {:.1} %", way(self.rate_falls < 0.0), 100.0 * self.rate_falls.abs())
        });
        let would = if rate.is_some() { "" } else { "would " };
        let latency = worth(self.latency_rises).then(|| {
            format!(
                "the mean latency {would}{} by {:.2} µs",
                way(self.latency_rises_ns > 0.0),
                self.latency_rises_ns.abs() / 1e3
            )
        });
        let parts: Vec<String> = rate.into_iter().chain(latency).collect();
        if parts.is_empty() { "nothing would change".to_owned() } else { parts.join(" and ") }
    }
}

/// A choice of the winner, and the winner with it turned round.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Turned {
    /// The choice.
    pub feature: Feature,
    /// Whether the winner has it.
    pub on: bool,
    /// The phases that would be otherwise; none for what is the whole plan's.
    pub phases: Vec<Phase>,
    /// Coroutines of the winner.
    pub coroutines: u32,
    /// The winner turned round; of coroutines, with one alone and with the counts nearest to its own among those searched.
    pub otherwise: Vec<Otherwise>,
    /// Turning it round changes the forecast by more than the search's tolerance.
    pub matters: bool,
}

/// Each choice of `winner` that can be turned round, turned round.
pub fn turned(model: &Model<'_>, caps: &Caps, winner: &Candidate, search: &Search) -> Vec<Turned> {
    let otherwise = |plan: Plan| {
        let checked = plan.check(caps, model.needs()).ok()?;
        Some(Otherwise::of(winner, plan, &model.forecast(&checked)))
    };
    let made = |feature: Feature, on: bool, phases: Vec<Phase>, otherwise: Vec<Otherwise>| {
        // The first is the choice turned round.
        let matters = otherwise.first().is_some_and(|other| {
            other.rate_falls.abs() > search.tolerance || other.latency_rises.abs() > search.tolerance
        });
        let coroutines = winner.plan.coroutines;
        (!otherwise.is_empty()).then_some(Turned { feature, on, phases, coroutines, otherwise, matters })
    };
    let mut all = Vec::new();
    for feature in Feature::OF_PHASES {
        for on in [true, false] {
            let (plan, phases) = with_switched(model, caps, winner, feature, on);
            let other = if phases.is_empty() { None } else { otherwise(plan) };
            all.extend(made(feature, on, phases, other.into_iter().collect()));
        }
    }
    let on = winner.plan.location_cache;
    let other = otherwise(Plan { location_cache: !on, ..winner.plan });
    all.extend(made(Feature::LocationCache, on, Vec::new(), other.into_iter().collect()));
    let counts = other_counts(winner.plan.coroutines, &search.coroutines);
    let others =
        counts.into_iter().filter_map(|coroutines| otherwise(Plan { coroutines, ..winner.plan })).collect();
    all.extend(made(Feature::Coroutines, winner.plan.coroutines > 1, Vec::new(), others));
    all
}

/// The winner's plan with a switch turned round in all phases that have it `on` and can be otherwise, and these.
fn with_switched(
    model: &Model<'_>,
    caps: &Caps,
    winner: &Candidate,
    feature: Feature,
    on: bool,
) -> (Plan, Vec<Phase>) {
    let (mut plan, mut phases) = (winner.plan, Vec::new());
    for (phase, mut step) in winner.plan.steps() {
        let carried = winner.forecast.phase(phase);
        let idle = carried.verbs == 0.0 && carried.served == 0.0;
        // Whether requests may be sent ahead is the workload's to say.
        let is_offered = feature != Feature::OutstandingRequests
            || model.workload().reads_ahead
            || !model.needs().at_first_touch(phase);
        let Some(switch) = feature.switch(&mut step) else { continue };
        if idle || !is_offered || *switch != on {
            continue;
        }
        *switch = !on;
        let mut other = plan;
        other.set(phase, Some(step));
        if other.refusals(caps, model.needs()).is_empty() {
            (plan, phases) = (other, [phases, vec![phase]].concat());
        }
    }
    (plan, phases)
}

/// Counts of coroutines to hold `own` against: one, and then the nearest below and above among those `searched`.
fn other_counts(own: u32, searched: &[u32]) -> Vec<u32> {
    let below = searched.iter().copied().filter(|&count| count < own && count > 1).max();
    let above = searched.iter().copied().filter(|&count| count > own).min();
    let one = (own > 1).then_some(1);
    one.into_iter().chain(below).chain(above).collect()
}

impl Turned {
    /// The choice in a few words: `passive ACK (install, unlock)`, `no doorbell batching (log)`, `24 coroutines a thread`.
    fn what(&self) -> String {
        if self.feature == Feature::Coroutines {
            let s = if self.coroutines == 1 { "" } else { "s" };
            return format!("{} coroutine{s} a thread", self.coroutines);
        }
        let no = if self.on { "" } else { "no " };
        let phases: Vec<&str> = self.phases.iter().map(|phase| phase.name()).collect();
        match phases.is_empty() {
            true => format!("{no}{}", self.feature.name()),
            false => format!("{no}{} ({})", self.feature.name(), phases.join(", ")),
        }
    }
}

impl fmt::Display for Turned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let others = self.otherwise.iter().map(|other| {
            let with = match (self.feature, self.on) {
                (Feature::Coroutines, _) => format!("with {}", other.plan.coroutines),
                (_, true) => "without it".to_owned(),
                (_, false) => "with it".to_owned(),
            };
            let saved = other.saved.told().filter(|_| self.feature != Feature::Coroutines);
            let saved = saved.map_or_else(String::new, |saved| format!("{saved}; "));
            format!("{saved}{with} {}", other.told())
        });
        write!(f, "{}: {}", self.what(), others.collect::<Vec<_>>().join("; "))
    }
}

/// A sentence for each choice that matters, and one for all others together.
pub fn told(turned: &[Turned]) -> Vec<String> {
    let mut lines: Vec<String> = turned.iter().filter(|one| one.matters).map(Turned::to_string).collect();
    let others: Vec<String> = turned.iter().filter(|one| !one.matters).map(Turned::what).collect();
    if !others.is_empty() {
        lines.push(format!("no difference that the model sees: {}", others.join(", ")));
    }
    lines
}

#[cfg(test)]
mod tests;
