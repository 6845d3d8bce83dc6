//! The winner phase by phase: what carrying a phase otherwise would cost, and which price would change the choice.
//!
//! A phase is held against the plan that carries it by another primitive and is otherwise the same, as far as such a plan
//! can run; where it cannot, against the one with the fewest other changes. Both have the coroutines that serve them best.
//! A fetch that is all at once, since the workload says what it reads, is held against itself one by one too, with as many
//! coroutines: which primitive carries it may then matter less.

use super::forecast::Forecast;
use super::knobs::Input;
use super::tune::{Candidate, Tuning};
use crate::plan::{Phase, Plan, Step};
use serde::Serialize;
use std::fmt;

/// One phase of the winner.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Choice {
    /// The phase.
    pub phase: Phase,
    /// How it is carried.
    pub step: Step,
    /// What it was held against; nothing if no plan that can run carries the phase otherwise, or the phase has nothing to carry.
    pub against: Option<Against>,
    /// The same phase one by one, by the same primitive, where the workload lets it be all at once and table 2 does not.
    pub one_by_one: Option<Against>,
    /// Whether transactions ask for anything in this phase: without backups, nothing is logged.
    pub idle: bool,
    /// Prices at which another plan, with another primitive in this phase, becomes better, nearest first.
    pub flips: Vec<Price>,
}

/// A price at which the choice is another.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Price {
    /// Which price, and what it is now.
    pub input: Input,
    /// What it would be multiplied by.
    pub from: f64,
    /// The value of its number then, in its unit.
    pub then: f64,
}

/// The plan that a phase was held against.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Against {
    /// How it carries the phase.
    pub step: Step,
    /// What it has to do otherwise beside.
    pub along: Vec<(Phase, Step)>,
    /// The coroutines it takes, where it is another count than the winner's: the search finds each plan its own.
    pub coroutines: Option<u32>,
    /// The share by which the winner commits more.
    pub rate_gain: f64,
    /// Mean latency that the winner saves, in nanoseconds.
    pub latency_saved_ns: f64,
    /// The same as a share of the other plan's.
    pub latency_gain: f64,
    /// Neither makes a difference that is worth a word.
    pub tie: bool,
}

/// Why each phase of the winner is carried as it is. Shares below `tolerance` are ties; `foretell` is asked for plans that the search
/// has not tried.
pub fn choices(tuning: &Tuning, tolerance: f64, foretell: impl Fn(&Plan) -> Option<Forecast>) -> Vec<Choice> {
    let winner = tuning.best();
    let choice = |(phase, step): (Phase, Step)| {
        let at_once = step.outstanding && !Step::table2(phase, step.via).outstanding;
        let one_by_one = at_once.then_some(Step { outstanding: false, ..step }).and_then(|step| {
            let mut plan = winner.plan;
            plan.set(phase, Some(step));
            Some(held(&winner.forecast, &foretell(&plan)?, step, tolerance))
        });
        Choice { one_by_one, ..choice(tuning, winner, phase, step, tolerance) }
    };
    winner.plan.steps().map(choice).collect()
}

/// What the winner makes of rate and latency beside another plan.
fn held(ours: &Forecast, theirs: &Forecast, step: Step, tolerance: f64) -> Against {
    let rate_gain = ours.committed_per_s / theirs.committed_per_s - 1.0;
    let latency_saved_ns = theirs.latency_mean_ns - ours.latency_mean_ns;
    let latency_gain = latency_saved_ns / theirs.latency_mean_ns;
    let tie = rate_gain.abs() < tolerance && latency_gain.abs() < tolerance;
    Against { step, along: Vec::new(), coroutines: None, rate_gain, latency_saved_ns, latency_gain, tie }
}

fn choice(tuning: &Tuning, winner: &Candidate, phase: Phase, step: Step, tolerance: f64) -> Choice {
    let otherwise = |c: &&Candidate| c.plan.step(phase).is_some_and(|other| other.via != step.via);
    // The first of equally near plans is the best of them.
    let nearest = tuning.ranked.iter().filter(otherwise).min_by_key(|c| apart(&c.plan, &winner.plan, phase));
    let against = nearest.and_then(|rival| {
        let along = Phase::ALL.into_iter().filter(|&other| other != phase).filter_map(|other| {
            let theirs = rival.plan.step(other)?;
            (theirs.via != winner.plan.step(other)?.via).then_some((other, theirs))
        });
        let (along, coroutines) = (along.collect(), rival.plan.coroutines);
        let coroutines = (coroutines != winner.plan.coroutines).then_some(coroutines);
        let held = held(&winner.forecast, &rival.forecast, rival.plan.step(phase)?, tolerance);
        Some(Against { along, coroutines, ..held })
    });
    let costs = winner.forecast.phase(phase);
    let mut flips: Vec<Price> = tuning
        .flips
        .iter()
        .filter(|flip| flip.plan.step(phase).is_some_and(|then| then.via != step.via))
        .map(|flip| Price { input: flip.input.clone(), from: flip.from, then: flip.then })
        .collect();
    flips.sort_by(|a, b| a.from.ln().abs().total_cmp(&b.from.ln().abs()));
    // Of an input that changes it twice on one way the nearer change is the one.
    let mut known: Vec<(String, bool)> = Vec::new();
    flips.retain(|price| {
        let way = (price.input.name.clone(), price.from < 1.0);
        let new = !known.contains(&way);
        known.push(way);
        new
    });
    let idle = costs.verbs == 0.0 && costs.served == 0.0;
    Choice { phase, step, against, one_by_one: None, idle, flips }
}

/// In how much two plans differ, `phase` aside: primitives first, then the cache, then optimizations.
fn apart(a: &Plan, b: &Plan, phase: Phase) -> (usize, bool, usize) {
    let others = || Phase::ALL.into_iter().filter(|&other| other != phase);
    let via = |plan: &Plan, phase| plan.step(phase).map(|step| step.via);
    (
        others().filter(|&other| via(a, other) != via(b, other)).count(),
        a.location_cache != b.location_cache,
        others().filter(|&other| a.step(other) != b.step(other)).count(),
    )
}

impl Choice {
    /// What it makes of rate and latency, in a few words with units.
    pub fn difference(&self) -> String {
        let Some(against) = &self.against else {
            return if self.idle { "nothing to carry" } else { "no other can run" }.to_owned();
        };
        if self.idle {
            return "nothing to carry".to_owned();
        }
        against.difference()
    }

    /// What it makes that all is at once, in a few words with units; nothing where that makes no difference.
    pub fn at_once(&self) -> String {
        let differs = self.one_by_one.as_ref().filter(|one_by_one| !self.idle && !one_by_one.tie);
        differs.map_or_else(String::new, |one_by_one| format!("all at once {}", one_by_one.difference()))
    }

    /// What it was held against, in a few words.
    pub fn alternative(&self) -> String {
        let Some(against) = &self.against else { return String::new() };
        let mut along: Vec<String> =
            against.along.iter().map(|(phase, step)| format!("{phase} {}", step.via)).collect();
        along.extend(against.coroutines.map(|n| format!("{n} coroutine{}", if n == 1 { "" } else { "s" })));
        match along.is_empty() {
            true => against.step.via.to_string(),
            false => format!("{} (with {})", against.step.via, along.join(", ")),
        }
    }

    /// The nearest price that would change the choice, with its unit.
    pub fn flip(&self) -> String {
        self.flips.first().map_or_else(String::new, |price| price.input.cell(price.from))
    }
}

impl Against {
    /// What the winner makes of rate and latency, in a few words with units.
    fn difference(&self) -> String {
        if self.tie {
            return "tie (<1 %)".to_owned();
        }
        // What is below half a per cent is no difference beside one that is over a whole.
        let told = |share: f64, words: String| (share.abs() >= 0.005).then_some(words);
        let rate = told(self.rate_gain, format!("{} rate", signed(100.0 * self.rate_gain, 1, "%")));
        let later = signed(-self.latency_saved_ns / 1e3, 2, "µs");
        let latency = told(self.latency_gain, format!("{later} latency"));
        rate.into_iter().chain(latency).collect::<Vec<_>>().join(", ")
    }
}

/// `+17.1 %`, `−2.08 µs`.
fn signed(value: f64, digits: usize, unit: &str) -> String {
    format!("{}{:.digits$} {unit}", if value < 0.0 { "−" } else { "+" }, value.abs())
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}: {}", self.phase, self.step.via, self.difference())?;
        if !self.alternative().is_empty() && !self.idle {
            write!(f, " against {}", self.alternative())?;
        }
        if !self.at_once().is_empty() {
            write!(f, "; {}", self.at_once())?;
        }
        match self.flip() {
            flip if flip.is_empty() => Ok(()),
            flip => write!(f, "; flips with {flip}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::fixtures::{calm, caps, cluster, profile};
    use crate::model::{Model, Search, Workload, tune};
    use crate::plan::{Needs, Via};
    use primitives::fabric::AtomicScope;
    use primitives::profile::Profile;

    fn tuned(profile: &Profile, nodes: u32, one_sided: bool) -> (Tuning, Vec<Choice>) {
        let search = Search { coroutines: vec![8], ..Search::default() };
        let caps = caps(one_sided, if one_sided { AtomicScope::Nic } else { AtomicScope::None });
        let tuning = tune(profile, &caps, &Needs::OCC, cluster(nodes, 4), &calm(nodes), &search).unwrap();
        let choices = choices(&tuning, search.tolerance, |_| None);
        (tuning, choices)
    }

    fn of(choices: &[Choice], phase: Phase) -> &Choice {
        choices.iter().find(|choice| choice.phase == phase).unwrap()
    }

    #[test]
    fn every_phase_has_one_line_with_a_number_or_a_tie() {
        let (tuning, choices) = tuned(&profile(), 4, true);
        assert_eq!(choices.len(), Phase::ALL.len());
        for choice in &choices {
            let line = choice.to_string();
            assert!(
                line.starts_with(choice.phase.name()) && !line.contains('\n') && line.len() < 200,
                "{line}"
            );
            let against = choice.against.as_ref().unwrap();
            assert_ne!(against.step.via, choice.step.via, "{line}");
            if choice.idle {
                assert_eq!(
                    (choice.phase, choice.difference()),
                    (Phase::Unlock, "nothing to carry".to_owned())
                );
                continue; // nothing aborts
            }
            assert_eq!(choice.difference() == "tie (<1 %)", against.tie, "{line}");
            let unit = ["% rate", "µs latency"].iter().any(|unit| line.contains(unit));
            assert_eq!(unit, !against.tie, "{line}");
            // The winner is within the search's tolerance of all others.
            assert!(against.rate_gain > -0.01, "{line}");
        }
        assert_eq!(tuning.best().plan.steps().count(), choices.len());
    }

    /// The number told is the ratio of the two forecasts, and what a dear primitive costs grows with its price.
    #[test]
    fn a_dearer_alternative_saves_more() {
        let mut dear = profile();
        for quantity in [&mut dear.cpu.rpc_decode, &mut dear.cpu.rpc_dispatch, &mut dear.cpu.rpc_encode] {
            quantity.value = 2_000.0;
        }
        let gain = |profile: &Profile| {
            let (_, choices) = tuned(profile, 4, true);
            let log = of(&choices, Phase::Log).clone();
            assert_eq!(log.step.via, Via::OneSided);
            log.against.unwrap().rate_gain
        };
        let (usual, dear) = (gain(&profile()), gain(&dear));
        assert!(dear > usual + 0.05, "{usual} {dear}");
    }

    /// Where the workload says what it reads, that all is fetched at once may decide where the primitive does not.
    #[test]
    fn what_is_all_at_once_is_held_against_one_by_one_too() {
        let (profile, cluster, needs) = (profile(), cluster(4, 4), Needs::OCC);
        let caps = caps(true, AtomicScope::Nic);
        let search = Search { coroutines: vec![1], flips: false, ..Search::default() };
        let at_once = |reads_ahead: bool| {
            let demand = Workload { reads_ahead, ..calm(4) };
            let tuning = tune(&profile, &caps, &needs, cluster, &demand, &search).unwrap();
            let model = Model::new(&profile, cluster, &demand, &needs).unwrap();
            let foretell = |plan: &Plan| Some(model.forecast(&plan.check(&caps, &needs).ok()?));
            let all = choices(&tuning, search.tolerance, foretell);
            assert!(all.iter().all(|c| c.phase == Phase::Fetch || c.at_once().is_empty()), "{all:?}");
            of(&all, Phase::Fetch).clone()
        };
        let fetch = at_once(true);
        assert!(fetch.one_by_one.as_ref().is_some_and(|one| one.latency_saved_ns > 0.0), "{fetch:?}");
        assert!(fetch.to_string().contains("; all at once +"), "{fetch}");
        assert_eq!(at_once(false).one_by_one, None);
    }

    #[test]
    fn an_alternative_with_another_count_of_coroutines_says_so() {
        let (tuning, choices) = tuned(&profile(), 4, true);
        let ours = tuning.best().plan.coroutines;
        for choice in choices.iter().filter(|choice| choice.against.is_some()) {
            // All plans of this search have the same.
            assert!(!choice.alternative().contains("coroutine"), "{choice}");
            let rival = |coroutines: u32| {
                let mut tuning = tuning.clone();
                tuning.ranked.iter_mut().skip(1).for_each(|c| c.plan.coroutines = coroutines);
                super::choice(&tuning, tuning.best(), choice.phase, choice.step, 0.01).alternative()
            };
            assert!(rival(2 * ours).contains("16 coroutines)"), "{}", rival(2 * ours));
            assert!(rival(1).contains("1 coroutine)") && rival(ours) == choice.alternative(), "{}", rival(1));
        }
    }

    #[test]
    fn what_has_no_alternative_says_so() {
        let (_, choices) = tuned(&profile(), 4, false);
        for choice in choices.iter().filter(|choice| !choice.idle) {
            assert_eq!(
                (choice.difference().as_str(), choice.alternative()),
                ("no other can run", String::new())
            );
        }
        // One node has no backups: nothing is logged, and all ways to log are one.
        let (_, choices) = tuned(&profile(), 1, true);
        let log = of(&choices, Phase::Log);
        assert!(log.idle && log.to_string().ends_with("nothing to carry"), "{log}");
    }

    /// What a line says flips a choice does: a little before the factor the winner is still the better, a little behind it the
    /// other is.
    #[test]
    fn a_flip_begins_where_it_says() {
        let (tuning, choices) = tuned(&profile(), 4, true);
        for flip in &tuning.flips {
            let (low, high) = if flip.factor < 1.0 { (flip.factor, 1.0) } else { (1.0, flip.factor) };
            assert!((low..=high).contains(&flip.from), "{flip:?}");
            assert!(flip.text.contains(&format!("×{:.2}", flip.from)), "{}", flip.text);
            // The value told is that of the number, of the profile as it is scaled.
            assert!((flip.then / flip.input.now / flip.from - 1.0).abs() < 1e-9, "{flip:?}");
            assert!(flip.text.contains(&format!(" {}", flip.input.unit)), "{}", flip.text);
        }
        for choice in &choices {
            let nearest = choice.flips.iter().map(|flip| flip.from.ln().abs());
            assert!(nearest.is_sorted(), "{:?}", choice.flips);
        }
    }
}
