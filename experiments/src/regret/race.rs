//! The race of all plans for a combination, and the measurement of who won it.

use engine::stats::WorkerStats;
use phases::model::Candidate;
use phases::plan::{Phase, Via};
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

/// Before the first round the tuner's choice runs alone, to tell how long it is: so many commits, by the tuner's word, which may be far off.
/// So it begins with no more than so many seconds, and goes on until there is a share of those commits.
const PILOT: f64 = 200.0;
const AT_FIRST: f64 = 0.01;
const ENOUGH: f64 = 0.25;

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

/// Nodes, threads and coroutines of the largest load that is drawn.
const MOST_CUSTOMERS: f64 = 4.0 * 2.0 * 16.0;

/// Longest run, in seconds of virtual time, whatever the rate is said to be.
const LONGEST: f64 = 60.0;

/// Where the pilot commits too little, the next one is so many times as long.
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
    Won(Box<Outcome<'a>>),
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
    /// It took more than [`MOST_EVENTS`], or so many times as many as a given load is larger than those that are drawn.
    TooLong,
}

impl std::fmt::Display for Open {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Open::NothingCommitted => write!(f, "nothing was committed"),
            Open::TooLong => write!(f, "its race took too many events"),
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
    /// The best pure plans, where they were looked for.
    pub(super) pure: Option<Pure<'a>>,
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

/// The best pure plans, with their rates from the seeds of the winner's.
pub(super) struct Pure<'a> {
    pub(super) one_sided: Option<(Runner<'a>, Rate)>,
    pub(super) two_sided: Option<(Runner<'a>, Rate)>,
    /// What the winner gets over the better of the two, as a share of that, with its standard error; zero where the winner is pure.
    pub(super) gain: Option<(f64, f64)>,
}

impl<'a> Pure<'a> {
    /// Of the best plan of each of [`PURE`], and what the winner and each of those that there are got with the same seeds.
    fn of(winner: Runner<'_>, plans: [Option<Runner<'a>>; 2], pairs: &[Vec<(Rate, Rate)>]) -> Pure<'a> {
        let mut pairs = pairs.iter();
        let [one_sided, two_sided] = plans.map(|plan| plan.and_then(|plan| Some((plan, pairs.next()?))));
        let rate = |pairs: &[(Rate, Rate)]| compared(pairs).1.rate;
        let there = [one_sided, two_sided].into_iter().flatten().map(|(_, pairs)| pairs);
        let better = there.max_by(|a, b| rate(a).per_s.total_cmp(&rate(b).per_s));
        let gain = match better.filter(|pairs| rate(pairs).per_s > 0.0) {
            _ if PURE.iter().any(|via| winner.all_by(*via)) => Some((0.0, 0.0)),
            Some(pairs) => {
                let turned: Vec<(Rate, Rate)> = pairs.iter().map(|&(best, got)| (got, best)).collect();
                let (_, best) = compared(&turned);
                Some((-best.regret, best.regret_error))
            }
            None => None,
        };
        let with_rate = |(plan, pairs): (Runner<'a>, &Vec<(Rate, Rate)>)| (plan, rate(pairs));
        Pure { one_sided: one_sided.map(with_rate), two_sided: two_sided.map(with_rate), gain }
    }
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

    /// Whether every phase is carried in this one way.
    fn all_by(&self, via: Via) -> bool {
        let plan = &self.candidate.plan;
        Phase::ALL.into_iter().filter_map(|phase| plan.step(phase)).all(|step| step.via == via)
    }
}

/// Who runs.
pub(super) struct Field<'a> {
    /// All plans that the model tells apart, of each protocol.
    pub(super) plans: Vec<Runner<'a>>,
    /// Where they are looked for, those that are pure in each way of [`PURE`] and that the model tells apart from one another.
    pub(super) pure: Option<[(Via, Vec<Runner<'a>>); 2]>,
    /// What the tuner chose, one of them.
    pub(super) chosen: Runner<'a>,
    /// The tuner's shortlist, some of them.
    pub(super) shortlist: Vec<Runner<'a>>,
    /// Where the plans come from that run after these.
    pub(super) found: &'a [Ranked],
}

impl<'a> Field<'a> {
    /// Of protocols, the chosen one first; `None` of none. With `pure` ones, or without.
    pub(super) fn of(found: &'a [Ranked], pure: bool) -> Option<Field<'a>> {
        let first = found.first()?;
        let all = |ranked: &'a Ranked| {
            ranked.tuning.distinct().into_iter().map(|candidate| Runner::of(ranked, candidate))
        };
        let shortlist = tune::shortlist(found).into_iter().map(|(ranked, one)| Runner::of(ranked, one));
        Some(Field {
            plans: found.iter().flat_map(all).collect(),
            pure: pure.then(|| PURE.map(|via| (via, found.iter().flat_map(|of| all_by(via, of)).collect()))),
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

/// The ways in which a plan may be pure.
const PURE: [Via; 2] = [Via::OneSided, Via::TwoSided];

/// A protocol's pure plans, each told from the others by its forecast, best first: one of them may have an equal that is not pure, which is
/// taken for it where all plans race.
fn all_by(via: Via, ranked: &Ranked) -> Vec<Runner<'_>> {
    let mut plans: Vec<Runner<'_>> = Vec::new();
    for candidate in &ranked.tuning.ranked {
        let one = Runner::of(ranked, candidate);
        if one.all_by(via) && !plans.iter().any(|known| known.candidate.forecast == candidate.forecast) {
            plans.push(one);
        }
    }
    plans
}

/// What all runs of a race share.
struct Track<'a> {
    spec: RunSpec,
    fabric: Fabric,
    context: &'a Context,
    /// What it is called where it is told how far it has come.
    name: String,
    customers: f64,
    most_events: u64,
    /// Whether its point was given, and not drawn.
    given: bool,
    runs: u64,
    events: u64,
}

/// Runs the race of `field`, which is called `name` where it is told how far it has come.
///
/// # Errors
/// If a run fails, or meets a table without room; Ctrl-C. Plans that commit nothing and races that take too long are
/// no failures.
pub(super) fn run<'a>(
    name: String,
    spec: &RunSpec,
    field: &Field<'a>,
    context: &Context,
) -> Result<End<'a>, CliError> {
    run_within(most_events(field, spec), name, spec, field, context)
}

/// Coroutines of a run: so many transactions are in flight.
fn customers(field: &Field<'_>, spec: &RunSpec) -> f64 {
    f64::from(field.chosen.candidate.plan.coroutines) * f64::from(spec.nodes) * f64::from(spec.threads)
}

/// Events that a race may take: of points that are given, which may be larger than those that are drawn, as many more as their load is larger.
fn most_events(field: &Field<'_>, spec: &RunSpec) -> u64 {
    let larger = if field.pure.is_some() { (customers(field, spec) / MOST_CUSTOMERS).max(1.0) } else { 1.0 };
    (MOST_EVENTS as f64 * larger) as u64
}

fn run_within<'a>(
    most_events: u64,
    name: String,
    spec: &RunSpec,
    field: &Field<'a>,
    context: &Context,
) -> Result<End<'a>, CliError> {
    let mut track = Track {
        spec: spec.clone(),
        fabric: Fabric::open(&spec.fabric, spec.seed)?,
        context,
        name,
        customers: customers(field, spec),
        most_events,
        given: field.pure.is_some(),
        runs: 0,
        events: 0,
    };
    match track.race(spec.seed, field) {
        Ok(outcome) => Ok(End::Won(Box::new(outcome))),
        Err(Stop::Open(why)) => Ok(End::Open { why, runs: track.runs, events: track.events }),
        Err(Stop::Failed(error)) => Err(error),
    }
}

/// What ends a race before its end.
enum Stop {
    Open(Open),
    Failed(CliError),
}

impl From<Open> for Stop {
    fn from(why: Open) -> Stop {
        Stop::Open(why)
    }
}

impl From<CliError> for Stop {
    fn from(error: CliError) -> Stop {
        Stop::Failed(error)
    }
}

impl Track<'_> {
    fn race<'a>(&mut self, seed: u64, field: &Field<'a>) -> Result<Outcome<'a>, Stop> {
        let first = self.pilot(field.chosen)?;
        let (winner, fastest) = self.eliminate(&field.plans, "round", first)?;
        let mut pure = [None, None];
        for ((via, plans), best) in field.pure.iter().flatten().zip(&mut pure) {
            *best = self.best_pure(*via, plans, winner)?;
        }
        let verified_plan = self.verified(seed, field, fastest)?;
        let length = MEASURED.max(EACH * self.customers) / fastest;
        // The choice, what was verified, and the pure plans, each beside the winner and once for each seed.
        let mut others = vec![field.chosen, verified_plan];
        others.extend(pure.iter().flatten());
        let mut pairs: Vec<Vec<(Rate, Rate)>> = vec![Vec::new(); others.len()];
        for seed in (1..=SEEDS).map(|n| seed + n * SEEDS_APART) {
            self.within()?;
            self.seed(seed)?;
            let best = self.one(winner, length)?;
            let mut known = vec![(winner, best)];
            for (plan, pairs) in others.iter().zip(&mut pairs) {
                let got = match known.iter().find(|(other, _)| plan.is(other)) {
                    Some((_, got)) => *got,
                    None => self.one(*plan, length)?,
                };
                known.push((*plan, got));
                pairs.push((best, got));
            }
        }
        let (best, chosen) = compared(&pairs[0]);
        let (_, verified) = compared(&pairs[1]);
        positive(best).ok_or(Open::NothingCommitted)?;
        let pure = field.pure.is_some().then(|| Pure::of(winner, pure, &pairs[2..]));
        let (runs, events) = (self.runs, self.events);
        Ok(Outcome { winner, best, chosen, verified_plan, verified, pure, runs, events })
    }

    /// Whether the race may go on.
    fn within(&self) -> Result<(), Open> {
        if self.events > self.most_events { Err(Open::TooLong) } else { Ok(()) }
    }

    /// The rate of a plan that runs alone, to tell how long rounds are to be.
    fn pilot(&mut self, plan: Runner<'_>) -> Result<f64, CliError> {
        let mut pilot = (PILOT / plan.candidate.forecast.committed_per_s.max(1.0)).min(AT_FIRST);
        loop {
            let rate = self.one(plan, pilot)?.per_s;
            if rate * pilot >= ENOUGH * PILOT {
                return Ok(rate);
            }
            if pilot >= LONGEST || self.events > self.most_events {
                return Ok(rate.max(1.0 / pilot));
            }
            pilot = (pilot * LONGER).min(LONGEST);
        }
    }

    /// The rounds of a race: the best of these plans, and its rate in the last one. `fastest` is a rate that one of them has.
    fn eliminate<'a>(
        &mut self,
        plans: &[Runner<'a>],
        what: &str,
        mut fastest: f64,
    ) -> Result<(Runner<'a>, f64), Stop> {
        let mut runners: Vec<(Runner<'a>, Rate)> =
            plans.iter().map(|&plan| (plan, Rate::default())).collect();
        for (place, round) in ROUNDS.iter().enumerate() {
            let length = round.commits.max(round.each * self.customers) / fastest;
            let shown = self.shown(&format!("{what} {} of {}", place + 1, ROUNDS.len()), runners.len());
            for (runner, rate) in &mut runners {
                self.within()?;
                *rate = self.one(*runner, length)?;
                shown.inc();
            }
            drop(shown);
            runners.sort_by(|a, b| b.1.per_s.total_cmp(&a.1.per_s));
            fastest = positive(runners[0].1).ok_or(Open::NothingCommitted)?;
            let mut place = 0;
            runners.retain(|(_, rate)| {
                place += 1;
                place <= round.most && rate.per_s >= round.within * fastest
            });
        }
        Ok((runners[0].0, fastest))
    }

    /// The best of the plans that are pure in one way: the winner of all, if it is one of them; else who wins among themselves. `None` if there are
    /// none, or none commits anything.
    fn best_pure<'a>(
        &mut self,
        via: Via,
        plans: &[Runner<'a>],
        winner: Runner<'a>,
    ) -> Result<Option<Runner<'a>>, Stop> {
        if winner.all_by(via) {
            return Ok(Some(winner));
        }
        let Some(first) = plans.first() else { return Ok(None) };
        let first = self.pilot(*first)?;
        match self.eliminate(plans, &format!("{via} plans, round"), first) {
            Ok((best, _)) => Ok(Some(best)),
            Err(Stop::Open(Open::NothingCommitted)) => Ok(None),
            Err(stop) => Err(stop),
        }
    }

    /// Which of the shortlist and the plans after it is the fastest, as `tune --verify` runs them.
    fn verified<'a>(&mut self, seed: u64, field: &Field<'a>, fastest: f64) -> Result<Runner<'a>, Stop> {
        let length = VERIFIED.max(EACH * self.customers) / fastest;
        // By the sum of their rates; the choice, which the shortlist begins with, is among the finalists as it is in `tune --verify`.
        let mut finalists: Vec<(Runner<'_>, f64)> = field.shortlist.iter().map(|&plan| (plan, 0.0)).collect();
        for turn in 0..=u64::from(tune::AGAIN) {
            self.seed(seed + (VERIFYING + turn) * SEEDS_APART)?;
            let mut done = 0;
            loop {
                let what = if turn == 0 && done > 0 { "further plans" } else { "the shortlist" };
                let shown = self.shown(what, finalists.len() - done);
                for (runner, sum) in &mut finalists[done..] {
                    self.within()?;
                    *sum += self.one(*runner, length)?.per_s;
                    shown.inc();
                }
                drop(shown);
                done = finalists.len();
                let next =
                    if turn == 0 { field.further(&finalists, length.min(LONGEST)) } else { Vec::new() };
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
        let faster =
            |best: (Runner<'a>, f64), one: &(Runner<'a>, f64)| if one.1 > best.1 { *one } else { best };
        Ok(finalists.iter().fold((field.chosen, 0.0), faster).0)
    }

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
            .hint(if self.given {
                "its rate would count for nothing: give tables more room with `set`, or fewer threads and coroutines"
            } else {
                "its rate would count for nothing: give combinations more room (regret/draw.rs)"
            }));
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
        let mut field = Field::of(&found, false).unwrap();
        field.plans.truncate(2);
        field.shortlist.truncate(2);
        let ended = |most| match run_within(most, "a".to_owned(), &spec, &field, &context).unwrap() {
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
}
