//! The race of all plans for a combination, and the measurement of who won it.

use engine::stats::WorkerStats;
use phases::model::Candidate;
use phases::rule::Abort;
use primitives::units::Nanos;

use crate::commands::Context;
use crate::commands::tune::{self, Ranked};
use crate::error::CliError;
use crate::fabrics::Fabric;
use crate::progress::{Progress, Task};
use crate::spec::{RunSpec, Span};
use crate::transact::{self, Keep, NamedPlan};

/// A round of the race: commits that the best plan known should make, in all and of each coroutine at least; who is left for
/// the next one, as a share of the best rate and as a number.
struct Round {
    commits: f64,
    each: f64,
    within: f64,
    most: usize,
}

const ROUNDS: [Round; 4] = [
    Round { commits: 100.0, each: 3.0, within: 0.8, most: 40 },
    Round { commits: 400.0, each: 5.0, within: 0.9, most: 12 },
    Round { commits: 1_500.0, each: 12.0, within: 0.95, most: 4 },
    Round { commits: 4_000.0, each: EACH, within: 0.0, most: 1 },
];

/// Before the first round the tuner's choice runs alone, to tell how long it is; so many commits, by the tuner's word.
const PILOT: f64 = 200.0;

/// The winner and the choice are measured with so many other seeds, and make so many commits with each.
const SEEDS: u64 = 4;
const MEASURED: f64 = 2_000.0;
const EACH: f64 = 25.0;

/// Commits that a plan of the shortlist, or one that runs after it, makes before one of them is chosen: as many as those of the race's last round.
const VERIFIED: f64 = 4_000.0;

/// Most transactions that a run may commit, its warm-up included, where the best plan comes out as it should. Slack is for rates
/// that turn out higher than they were.
pub(super) const MOST_COMMITS: u64 = 4_000 * 5 / 4;

/// Events that a race may take, some minutes of a core and more than twice what the longest took that was seen (240 M, before a dozen more plans ran after the shortlist, for 4000 commits each). It is looked at between
/// runs: a race that has had as many ends without a winner.
const MOST_EVENTS: u64 = 600_000_000;

/// Longest run, in seconds of virtual time, whatever the rate is said to be.
const LONGEST: f64 = 60.0;

/// Where the pilot commits nothing, the next one is so many times as long.
const LONGER: f64 = 8.0;

/// Seeds of the last measurement lie beyond those that are drawn.
const SEEDS_APART: u64 = 1_000_000;

/// Of these, the one that the shortlist runs with; those that are near the fastest run again with the next.
const VERIFYING: u64 = SEEDS + 1;

/// A measured rate, and the share of attempts that aborted.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Rate {
    pub(super) per_s: f64,
    pub(super) aborted: f64,
}

/// How a race ended.
pub(super) enum End<'a> {
    /// With a winner.
    Won(Outcome<'a>),
    /// Without one.
    Open {
        /// Why.
        why: Open,
        runs: u64,
        events: u64,
    },
}

/// Why a race has no winner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Open {
    /// In one round, no plan has committed anything.
    NothingCommitted,
    /// It took more than [`MOST_EVENTS`].
    TooLong,
}

impl std::fmt::Display for Open {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Open::NothingCommitted => write!(f, "nothing was committed"),
            Open::TooLong => write!(f, "its race took more than {MOST_EVENTS} events"),
        }
    }
}

/// Who won a race, and by how much.
pub(super) struct Outcome<'a> {
    /// Who won, and its rate, from runs that the race did not see.
    pub(super) winner: Runner<'a>,
    pub(super) best: Rate,
    /// The tuner's choice, beside the winner.
    pub(super) chosen: Beside,
    /// Which of the tuner's shortlist and the plans after it did best when run as `tune --verify` runs them, and that beside the winner.
    pub(super) verified_plan: Runner<'a>,
    pub(super) verified: Beside,
    pub(super) runs: u64,
    pub(super) events: u64,
}

/// A plan beside the winner of its race, from runs with the same seeds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Beside {
    pub(super) rate: Rate,
    /// Share of the winner's rate that it misses, with its standard error; zero where it is the winner.
    pub(super) regret: f64,
    pub(super) regret_error: f64,
}

/// A plan under its protocol.
#[derive(Clone, Copy)]
pub(super) struct Runner<'a> {
    pub(super) protocol: &'a str,
    pub(super) candidate: &'a Candidate,
}

impl<'a> Runner<'a> {
    fn of(ranked: &'a Ranked, candidate: &'a Candidate) -> Runner<'a> {
        Runner { protocol: &ranked.protocol, candidate }
    }

    /// Whether it is the same one, not its equal under another protocol.
    fn is(&self, other: &Runner<'_>) -> bool {
        std::ptr::eq(self.candidate, other.candidate)
    }
}

/// Who runs.
pub(super) struct Field<'a> {
    /// All plans that the model tells apart, of each protocol.
    pub(super) plans: Vec<Runner<'a>>,
    /// What the tuner chose, one of them.
    pub(super) chosen: Runner<'a>,
    /// The tuner's shortlist, some of them.
    pub(super) shortlist: Vec<Runner<'a>>,
    /// Where the plans come from that run after these.
    pub(super) found: &'a [Ranked],
}

impl<'a> Field<'a> {
    /// Of protocols, the chosen one first; `None` of none.
    pub(super) fn of(found: &'a [Ranked]) -> Option<Field<'a>> {
        let first = found.first()?;
        let all = |ranked: &'a Ranked| {
            ranked.tuning.distinct().into_iter().map(|candidate| Runner::of(ranked, candidate))
        };
        let shortlist = tune::shortlist(found).into_iter().map(|(ranked, one)| Runner::of(ranked, one));
        Some(Field {
            plans: found.iter().flat_map(all).collect(),
            chosen: Runner::of(first, first.tuning.best()),
            shortlist: shortlist.collect(),
            found,
        })
    }
}

impl<'a> Field<'a> {
    /// The plans that run after these, each with what it got in so many seconds.
    fn further(&self, ran: &[(Runner<'a>, f64)], seconds: f64) -> Vec<Runner<'a>> {
        let searches: Vec<_> =
            self.found.iter().map(|ranked| (ranked.protocol.as_str(), &ranked.tuning)).collect();
        let known: Vec<_> = ran.iter().map(|(one, got)| ((one.protocol, one.candidate), *got)).collect();
        let next = tune::further(&searches, &known, seconds, ran.len() - self.shortlist.len());
        next.into_iter().map(|(protocol, candidate)| Runner { protocol, candidate }).collect()
    }
}

/// What all runs of a race share.
struct Track<'a> {
    spec: RunSpec,
    fabric: Fabric,
    context: &'a Context,
    /// What it is called where it is told how far it has come.
    name: String,
    runs: u64,
    events: u64,
}

/// Runs the race of `field`, for the combination of this number.
///
/// # Errors
/// If a run fails, or meets a table without room; Ctrl-C. Plans that commit nothing and races that take too long are
/// no failures.
pub(super) fn run<'a>(
    number: u64,
    spec: &RunSpec,
    field: &Field<'a>,
    context: &Context,
) -> Result<End<'a>, CliError> {
    run_within(MOST_EVENTS, number, spec, field, context)
}

fn run_within<'a>(
    most_events: u64,
    number: u64,
    spec: &RunSpec,
    field: &Field<'a>,
    context: &Context,
) -> Result<End<'a>, CliError> {
    let chosen = field.chosen;
    let fabric = Fabric::open(&spec.fabric, spec.seed)?;
    let name = format!("combination {number}");
    let mut track = Track { spec: spec.clone(), fabric, context, name, runs: 0, events: 0 };
    let open = |track: &Track, why| Ok(End::Open { why, runs: track.runs, events: track.events });
    let customers =
        f64::from(chosen.candidate.plan.coroutines) * f64::from(spec.nodes) * f64::from(spec.threads);
    let foretold = chosen.candidate.forecast.committed_per_s.max(1.0);
    let mut pilot = PILOT / foretold;
    let mut fastest = loop {
        if let Some(rate) = positive(track.one(chosen, pilot)?) {
            break rate;
        }
        // It may have been foretold far too much, or commit nothing at all.
        if pilot >= LONGEST || track.events > most_events {
            break 1.0 / pilot;
        }
        pilot *= LONGER;
    };
    let mut runners: Vec<(Runner<'_>, Rate)> =
        field.plans.iter().map(|&plan| (plan, Rate::default())).collect();
    for (place, round) in ROUNDS.iter().enumerate() {
        let length = round.commits.max(round.each * customers) / fastest;
        let shown = track.shown(&format!("round {} of {}", place + 1, ROUNDS.len()), runners.len());
        for (runner, rate) in &mut runners {
            if track.events > most_events {
                return open(&track, Open::TooLong);
            }
            *rate = track.one(*runner, length)?;
            shown.inc();
        }
        drop(shown);
        runners.sort_by(|a, b| b.1.per_s.total_cmp(&a.1.per_s));
        let Some(best) = positive(runners[0].1) else { return open(&track, Open::NothingCommitted) };
        fastest = best;
        let mut place = 0;
        runners.retain(|(_, rate)| {
            place += 1;
            place <= round.most && rate.per_s >= round.within * fastest
        });
    }
    let winner = runners[0].0;
    let length = VERIFIED.max(EACH * customers) / fastest;
    // By the sum of their rates; the choice, which the shortlist begins with, is among the finalists as it is in `tune --verify`.
    let mut finalists: Vec<(Runner<'_>, f64)> = field.shortlist.iter().map(|&plan| (plan, 0.0)).collect();
    for turn in 0..=u64::from(tune::AGAIN) {
        track.seed(spec.seed + (VERIFYING + turn) * SEEDS_APART)?;
        let mut done = 0;
        loop {
            let what = if turn == 0 && done > 0 { "further plans" } else { "the shortlist" };
            let shown = track.shown(what, finalists.len() - done);
            for (runner, sum) in &mut finalists[done..] {
                if track.events > most_events {
                    return open(&track, Open::TooLong);
                }
                *sum += track.one(*runner, length)?.per_s;
                shown.inc();
            }
            drop(shown);
            done = finalists.len();
            let next = if turn == 0 { field.further(&finalists, length.min(LONGEST)) } else { Vec::new() };
            if next.is_empty() {
                break;
            }
            finalists.extend(next.into_iter().map(|plan| (plan, 0.0)));
        }
        if let Some((_, others)) = finalists.split_first_mut() {
            others.sort_by(|a, b| b.1.total_cmp(&a.1));
        }
        finalists.truncate(tune::FINALISTS);
    }
    // Of equals the first.
    let faster = |best: (Runner<'a>, f64), one: &(Runner<'a>, f64)| if one.1 > best.1 { *one } else { best };
    let verified_plan = finalists.iter().fold((chosen, 0.0), faster).0;
    let length = MEASURED.max(EACH * customers) / fastest;
    let (mut with_chosen, mut with_verified) = (Vec::new(), Vec::new());
    for seed in (1..=SEEDS).map(|n| spec.seed + n * SEEDS_APART) {
        if track.events > most_events {
            return open(&track, Open::TooLong);
        }
        track.seed(seed)?;
        let best = track.one(winner, length)?;
        let mut beside = |plan: Runner<'_>| if plan.is(&winner) { Ok(best) } else { track.one(plan, length) };
        let got = beside(chosen)?;
        let checked = if verified_plan.is(&chosen) { got } else { beside(verified_plan)? };
        with_chosen.push((best, got));
        with_verified.push((best, checked));
    }
    let (best, chosen) = compared(&with_chosen);
    let (_, verified) = compared(&with_verified);
    if positive(best).is_none() {
        return open(&track, Open::NothingCommitted);
    }
    let (runs, events) = (track.runs, track.events);
    Ok(End::Won(Outcome { winner, best, chosen, verified_plan, verified, runs, events }))
}

impl Track<'_> {
    /// Shows how many of so many plans have run in a stage.
    fn shown(&self, stage: &str, plans: usize) -> Progress {
        let title = format!("{}, {stage}", self.name);
        Progress::begin(self.context.talk, Task { title, what: "plan", done: 0, total: Some(plans as u64) })
    }

    /// From now on, runs have this seed.
    fn seed(&mut self, seed: u64) -> Result<(), CliError> {
        self.spec.seed = seed;
        self.fabric = Fabric::open(&self.spec.fabric, seed)?;
        Ok(())
    }

    /// Runs a plan for so many seconds of virtual time.
    fn one(&mut self, Runner { protocol, candidate }: Runner<'_>, seconds: f64) -> Result<Rate, CliError> {
        let length = Nanos((seconds.min(LONGEST) * 1e9) as u64 + 1);
        let spec = RunSpec {
            protocol: protocol.to_owned(),
            duration: Span::from_ns(length.0),
            precision: None,
            ..self.spec.clone()
        };
        let plan = NamedPlan::new(candidate.plan.to_string(), candidate.plan, None);
        let run = transact::run(
            &spec,
            &self.fabric,
            &plan,
            Keep { history: false, part: false },
            self.context.interrupt.flag(),
        )?;
        if self.context.interrupt.asked() {
            return Err(CliError::interrupted());
        }
        if had_no_room(&run.result.stats) {
            return Err(CliError::check(format!(
                "a table had no room for what {plan} commits",
                plan = plan.name
            ))
            .hint("its rate would count for nothing: give combinations more room (regret/draw.rs)"));
        }
        // A plan under which nothing commits in so short a time has lost; that is no failure.
        run.nothing_wrong(&self.context.command).map_err(|error| {
            let seed = spec.seed;
            error.context(format!("a run of {seconds:.6} s with seed {seed} under {protocol}, {}", plan.name))
        })?;
        (self.runs, self.events) = (self.runs + 1, self.events + run.result.facts.events);
        Ok(Rate { per_s: run.result.committed_per_s(), aborted: run.result.aborted_share().unwrap_or(0.0) })
    }
}

/// Means of rates that were measured in pairs, the winner's first, and what the other loses, with the standard error of that, to first
/// order: both of a pair had the same seed, and what they share is not in it.
fn compared(pairs: &[(Rate, Rate)]) -> (Rate, Beside) {
    let mean = |of: &dyn Fn(&(Rate, Rate)) -> f64| pairs.iter().map(of).sum::<f64>() / pairs.len() as f64;
    let best = Rate { per_s: mean(&|r| r.0.per_s), aborted: mean(&|r| r.0.aborted) };
    let rate = Rate { per_s: mean(&|r| r.1.per_s), aborted: mean(&|r| r.1.aborted) };
    if best.per_s <= 0.0 {
        return (best, Beside { rate, regret: 0.0, regret_error: 0.0 });
    }
    let share = rate.per_s / best.per_s;
    let off = mean(&|r| (r.1.per_s - share * r.0.per_s).powi(2)) / (pairs.len() as f64 - 1.0);
    (best, Beside { rate, regret: 1.0 - share, regret_error: off.sqrt() / best.per_s })
}

fn positive(rate: Rate) -> Option<f64> {
    (rate.per_s > 0.0).then_some(rate.per_s)
}

fn had_no_room(stats: &WorkerStats) -> bool {
    stats.aborts.of(Abort::TableFull.name()) > 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::Cli;
    use crate::regret::draw;

    fn pairs(rates: &[(f64, f64)]) -> Vec<(Rate, Rate)> {
        let rate = |per_s| Rate { per_s, aborted: 0.0 };
        rates.iter().map(|&(best, got)| (rate(best), rate(got))).collect()
    }

    #[test]
    fn what_both_of_a_pair_share_is_no_uncertainty() {
        let (best, beside) = compared(&pairs(&[(100.0, 90.0), (200.0, 180.0), (60.0, 54.0)]));
        assert!((best.per_s - 120.0).abs() < 1e-9 && (beside.rate.per_s - 108.0).abs() < 1e-9, "{beside:?}");
        assert!((beside.regret - 0.1).abs() < 1e-12 && beside.regret_error < 1e-12, "{beside:?}");
        // Two pairs whose ratios are 0.8 and 1: their mean is off by the half of the difference.
        let (_, beside) = compared(&pairs(&[(100.0, 80.0), (100.0, 100.0)]));
        assert!((beside.regret_error - 0.1).abs() < 1e-12, "{beside:?}");
        assert_eq!(compared(&pairs(&[(0.0, 0.0), (0.0, 0.0)])).1.regret_error, 0.0);
    }

    #[test]
    fn a_race_commits_no_more_than_tables_have_room_for() {
        let most =
            ROUNDS.iter().map(|round| round.commits.max(round.each * MOST_CUSTOMERS)).fold(0.0, f64::max);
        let most = most.max(MEASURED.max(EACH * MOST_CUSTOMERS));
        assert!(most * 1.25 <= MOST_COMMITS as f64, "{most}");
    }

    #[test]
    fn a_race_that_takes_too_long_ends_without_a_winner() {
        // Two-phase locking has the fewest plans.
        let mut drawn = (0..).map(|index| {
            let mut spec = RunSpec::default();
            draw::apply(&mut spec, &draw::combination(7, index)).unwrap();
            spec
        });
        let spec =
            drawn.find(|spec| spec.protocol == "nowait" && spec.nodes == 2 && spec.threads == 1).unwrap();
        let context = Context::new(&Cli { verbose: 0, quiet: true, command: None });
        let fabric = Fabric::open(&spec.fabric, spec.seed).unwrap();
        let profile =
            tune::profile_for(&spec, &fabric, None, std::path::Path::new("unused"), &context).unwrap();
        let found =
            tune::rankings(&spec, std::slice::from_ref(&spec.protocol), &fabric, &profile, &|| true).unwrap();
        let mut field = Field::of(&found).unwrap();
        field.plans.truncate(2);
        field.shortlist.truncate(2);
        let ended = |most| match run_within(most, 0, &spec, &field, &context).unwrap() {
            End::Won(outcome) => (None, outcome.runs, outcome.events),
            End::Open { why, runs, events } => (Some(why), runs, events),
        };
        let (why, runs, events) = ended(MOST_EVENTS);
        assert!(why.is_none() && runs > 2, "{why:?} after {runs} runs");
        assert_eq!(ended(events), (None, runs, events), "as many as it takes");
        // The pilot alone.
        let (why, runs, first) = ended(0);
        assert!((why, runs) == (Some(Open::TooLong), 1) && first < events, "{why:?} after {runs} runs");
    }

    /// Nodes, threads and coroutines of the largest load that is drawn.
    const MOST_CUSTOMERS: f64 = 4.0 * 2.0 * 16.0;
}
