//! A search kept in a result directory, and its plans run: what the tuner's choice costs beside the others.

use super::counts::Counted;
use super::further::Ran;
use super::search::{aim, by_coroutines, counts, further_rival};
use super::{
    AGAIN, FINALISTS, Rival, TUNED, Tuned, caveat, further, plan_path, rival_path, room, verified_path,
};
use crate::commands::Context;
use crate::directory::Place;
use crate::error::CliError;
use crate::fabrics::Fabric;
use crate::memory::fits_together;
use crate::output::{human_rate, percent};
use crate::schedule;
use crate::spec::values::LEAST;
use crate::spec::{RunSpec, Span};
use crate::sweep::{Sweep, usual_jobs};
use crate::transact::{self, Keep};
use phases::model::{Candidate, Objective, Tuning};
use phases::plan::{Plan, PlanFile};
use primitives::measure::{
    Got, Kind, PointResult, ProfileRef, ResultDir, Row, RunRecord, TableName, Verified,
};
use primitives::units::Nanos;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Runs of each plan where time is real, in turns: what else a machine does changes from one second to the next, so that two runs of one
/// plan differ by more than the batches within either. Where time is virtual they would be alike.
const ROUNDS: u32 = 5;

/// Seeds of further runs lie beyond those that people count up from.
const SEEDS_APART: u64 = 1_000_000;

/// Which plans of a search are run beside the choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verify<'a> {
    /// None, nor the choice.
    Nothing,
    /// All that are kept.
    All,
    /// Those of these names.
    Named(&'a [&'a str]),
}

impl Verify<'_> {
    fn runs(self, rival: &Rival) -> bool {
        match self {
            Verify::Nothing => false,
            Verify::All => true,
            Verify::Named(names) => rival.name == TUNED || names.contains(&rival.name.as_str()),
        }
    }

    /// As a record says what was asked for.
    fn asked(self) -> Value {
        match self {
            Verify::Nothing => json!(false),
            Verify::All => json!(true),
            Verify::Named(names) => json!(names),
        }
    }
}

/// Who runs.
#[derive(Clone, Copy)]
enum Who {
    /// One of the search; beyond the rivals, of further ones that runs suggest.
    Rival(usize),
    /// One of those that were fastest, the choice first.
    Finalist(usize),
    /// The plan that got the most, with this one of all counts of coroutines.
    Count(usize),
}

/// What was asked for, as a record has it; what follows from the search is not among it.
fn asked(spec: &RunSpec, objective: Objective, verify: Verify<'_>) -> Result<Value, CliError> {
    let mut asked = serde_json::to_value(spec).map_err(|e| CliError::check("no JSON").caused_by(&e))?;
    asked["plan"] = json!(null);
    match objective {
        Objective::Throughput => {}
        Objective::Latency => asked["latency"] = json!(LEAST),
        Objective::ThroughputWithin(ns) => asked["latency"] = json!(Span::from_ns(ns as u64)),
    }
    asked["verify"] = verify.asked();
    if !counted(spec, verify).is_empty() {
        asked["counts"] = json!(counted(spec, verify));
    }
    Ok(asked)
}

/// The counts of coroutines that the plan which gets the most runs with.
fn counted(spec: &RunSpec, verify: Verify<'_>) -> Vec<u32> {
    if verify == Verify::All { counts(spec) } else { Vec::new() }
}

/// Refuses a directory that holds another run before anything is searched, by as much as is known then: [`keep`] looks at the rest.
///
/// # Errors
/// As [`ResultDir::create`] for such a directory.
pub fn may_keep(
    spec: &RunSpec,
    fabric: &Fabric,
    objective: Objective,
    verify: Verify<'_>,
    place: &Place,
) -> Result<(), CliError> {
    let Place::Named(out) = place else { return Ok(()) };
    if !out.join("run.json").exists() {
        return Ok(());
    }
    let old = RunRecord::read(out)?;
    let mut asked = asked(spec, objective, verify)?;
    for (key, found) in FOUND.iter().filter_map(|key| Some((key, old.spec.get(key)?))) {
        asked[key] = found.clone();
    }
    let mut record = fabric.record(Kind::Tune, asked, spec.seed, old.points_expected);
    record.profile.clone_from(&old.profile);
    Ok(old.goes_on(&record, out)?)
}

/// Keys of a record that only the search knows.
const FOUND: [&str; 5] = ["rounds", "again", "further", "profile_hash", "rivals"];

/// A search that was kept.
pub struct Kept {
    /// Where.
    pub dir: PathBuf,
    /// What its choice got beside the others when they ran, if they did.
    pub verified: Option<Verified>,
    /// What each plan that ran got, by its name.
    pub got: Vec<(String, Got)>,
    /// The plans that ran because of what the others got.
    pub further: Vec<Rival>,
    /// What the one that got the most got with each count of coroutines, if it was run with them.
    pub counted: Option<Counted>,
}

impl Kept {
    /// The most that a plan of a protocol got, in the mean of its runs, if one of them ran.
    pub fn most_under(&self, tuned: &Tuned, protocol: &str) -> Option<f64> {
        let ran =
            |rival: &Rival| self.got.iter().find(|(name, _)| *name == rival.name).map(|(_, got)| got.per_s);
        let all = tuned.rivals.iter().chain(&self.further).filter(|rival| rival.protocol == protocol);
        all.filter_map(ran).max_by(f64::total_cmp)
    }

    /// Of the plans that ran the one to take: that which got the most, with the count of coroutines that serves it best. Without runs
    /// the model's choice.
    pub fn recommended<'a>(&'a self, tuned: &'a Tuned) -> &'a Rival {
        match (&self.counted, &self.verified) {
            (Some(counted), _) => &counted.best().rival,
            (None, Some(verified)) => tuned.fastest(&self.further, verified),
            (None, None) => &tuned.rivals[0],
        }
    }

    /// Its file.
    pub fn plan_file(&self) -> PathBuf {
        match self.verified {
            Some(_) => verified_path(&self.dir),
            None => plan_path(&self.dir),
        }
    }
}

/// Keeps a search in a result directory, with its plan file, and runs the plans that `verify` names; where time is real each
/// five times, in turns, for as long together as once where it is virtual. There, if all run, what they get suggests [`further`] ones, and
/// of all that ran the [`FINALISTS`] run again with other seeds.
/// Then, if all run and no count of coroutines was asked for, the one that got the most runs with each count that the search tries.
///
/// # Errors
/// If the directory cannot be used, a run fails, or Ctrl-C ends it.
pub fn keep(
    tuned: &Tuned,
    spec: &RunSpec,
    fabric: &Fabric,
    verify: Verify<'_>,
    jobs: Option<usize>,
    place: &Place,
    context: &Context,
) -> Result<Kept, CliError> {
    let rivals = &tuned.rivals;
    let mut notes: Vec<String> = tuned.choices.iter().map(ToString::to_string).collect();
    let priced_by = ProfileRef::from(&tuned.profile);
    let ProfileRef { name, hash, doubt, .. } = &priced_by;
    let doubt = doubt.as_ref().map_or(String::new(), |doubt| format!(", {doubt}"));
    notes.push(format!("Forecasts are by profile {name} ({hash}){doubt}."));
    notes.extend(aim(&tuned.tuning, tuned.objective).map(|aim| format!("Aim: {aim}.")));
    notes.extend(caveat(spec, tuned));
    let mut asked = asked(spec, tuned.objective, verify)?;
    let racing: Vec<usize> = (0..rivals.len()).filter(|&rival| verify.runs(&rivals[rival])).collect();
    let usual = usual_jobs(spec.fabric.virtual_time());
    let counts = counted(spec, verify);
    let again = verify == Verify::All && spec.fabric.virtual_time() && racing.len() > 1;
    let known: Vec<(&str, &Candidate)> =
        racing.iter().map(|&place| (rivals[place].protocol.as_str(), &rivals[place].candidate)).collect();
    let slots = if again { room(&tuned.searches(), &known) } else { 0 };
    let jobs = fits_together(
        needed(tuned, &racing, slots, &counts, spec, fabric)?,
        jobs,
        usual,
        &transact::lower(spec),
    )?;
    let rounds = if racing.is_empty() || spec.fabric.virtual_time() { 1 } else { ROUNDS };
    if rounds > 1 {
        asked["rounds"] = json!(rounds);
        notes.push(format!(
            "Each plan that ran did so {rounds} times, in turns, for a share of the duration each."
        ));
    }
    // The first round has a row for each plan, run or not.
    let first = (0..rivals.len()).map(|rival| (1, Who::Rival(rival)));
    let later =
        (2..=rounds).flat_map(|round| in_turn(round, &racing).map(move |rival| (round, Who::Rival(rival))));
    let mut points: Vec<(u32, Who)> = first.chain(later).collect();
    let shortlisted = points.len();
    if slots > 0 {
        points.extend((0..slots).map(|slot| (1, Who::Rival(rivals.len() + slot))));
        asked["further"] = json!(slots);
        notes
            .push(format!("Then {slots} more ran: those foretold most, corrected by what those before got."));
    }
    let before = points.len() as u64;
    if again {
        let finalists = FINALISTS.min(racing.len() + slots);
        points.extend(
            (2..2 + AGAIN).flat_map(|round| (0..finalists).map(move |place| (round, Who::Finalist(place)))),
        );
        asked["again"] = json!(AGAIN);
        notes.push(format!(
            "The choice and the {} that were fastest beside it ran {AGAIN} times more, with other seeds.",
            finalists - 1
        ));
    }
    let plans = points.len() as u64;
    if !counts.is_empty() {
        let places: Vec<usize> = (0..counts.len()).collect();
        let of_round = |round| in_turn(round, &places).map(move |place| (round, Who::Count(place)));
        points.extend((1..=rounds).flat_map(of_round));
        notes.push("The plan that got the most ran with other counts of coroutines, too.".to_owned());
    }
    // What is ranked and run is what this search found, and a profile says what that is.
    asked["profile_hash"] = json!(tuned.file.prediction.as_ref().map(|prediction| &prediction.profile_hash));
    asked["rivals"] = rivals
        .iter()
        .map(|rival| json!(format!("{} under {}: {}", rival.name, rival.protocol, rival.candidate.plan)))
        .collect();
    let mut record = fabric.record(Kind::Tune, asked, spec.seed, points.len() as u64);
    // Where plans are run by a profile, that is what the numbers are by; else they are by the one that priced them.
    if racing.is_empty() || record.profile.is_none() {
        record.profile = Some(priced_by.clone());
    }
    record.title = format!("Plans for {} under {} on {}", spec.workload, spec.protocol, spec.fabric);
    record.question = Some("Which primitive should carry each phase?".to_owned());
    record.command.clone_from(&context.command);
    record.notes = notes;
    let mut dir = place.open(record, &[], context.talk)?;
    let out = &dir.path().to_owned();
    leave(&mut dir, &plan_path(out), &tuned.file)?;
    // A rival that wins must be at hand.
    for rival in rivals.iter().skip(1).filter(|rival| rival.candidate.preset.is_none()) {
        leave(&mut dir, &rival_path(out, rival), &candidate_file(tuned, rival))?;
    }
    let fabrics: Vec<Fabric> = match before < plans {
        true => (1..=AGAIN)
            .map(|again| Fabric::open(&spec.fabric, seed_again(spec.seed, again)))
            .collect::<Result<_, _>>()?,
        false => Vec::new(),
    };
    let one = |number: u64, further: &[Rival], finalists: &[usize], by_count: &[Rival]| {
        let (round, who) = points[number as usize];
        let of = |place: usize| rivals.get(place).unwrap_or_else(|| &further[place - rivals.len()]);
        let (rival, seed, fabric) = match who {
            Who::Rival(place) => (of(place), spec.seed, fabric),
            Who::Finalist(place) => {
                (of(finalists[place]), seed_again(spec.seed, round - 1), &fabrics[round as usize - 2])
            }
            Who::Count(place) => (&by_count[place], spec.seed, fabric),
        };
        let candidate = &rival.candidate;
        let mut row = Row::new()
            .with("protocol", rival.protocol.as_str())
            .with("plan", rival.name.as_str())
            .with("origin", candidate.preset.map_or("candidate", |preset| preset.name()))
            .with("description", rival.description.as_str())
            .with("steps", candidate.plan.to_string())
            .with("predicted_per_s", candidate.forecast.committed_per_s)
            .with("predicted_mean_ns", candidate.forecast.latency_mean_ns)
            .with("bottleneck", candidate.forecast.bottleneck.to_string());
        if let Who::Count(_) = who {
            row.set("coroutines", candidate.plan.coroutines);
        }
        if verify.runs(rival) {
            row.set("round", (points.len() > rivals.len()).then_some(round));
            let run = schedule::until_something_ended(
                Nanos((super::lasts(spec, candidate).ns() / u64::from(rounds)).max(1)),
                spec.fabric.virtual_time(),
                !spec.fabric.virtual_time(),
                &context.interrupt,
                |window| {
                    let duration = Span::from_ns(window.0);
                    let asked = RunSpec { protocol: rival.protocol.clone(), duration, seed, ..spec.clone() };
                    let keep = Keep { history: false, part: false };
                    transact::run(&asked, fabric, &rival.plan(), keep, context.interrupt.flag())
                },
                // In virtual time a plan under which attempts end and nothing commits has lost, which is no failure.
                |run| match spec.fabric.virtual_time() {
                    true => run.result.stats.committed + run.result.stats.aborts.total(),
                    false => run.result.stats.committed,
                },
            )?;
            match spec.fabric.virtual_time() {
                true => run.nothing_wrong(&context.command)?,
                false => run.passed(&context.command)?,
            }
            row.set("got_per_s", run.result.committed_per_s());
            row.set("got_ci_relative", run.result.steadiness.and_then(|found| found.relative()));
            row.set("got_mean_ns", run.result.stats.latency.mean_ns());
            row = run.disturbance.told(row.with_too_short(run.result.too_short));
        }
        Ok(PointResult::of(row))
    };
    let summary = |dir: &ResultDir| {
        let mut summary = judged(regret_of(dir).as_ref());
        summary["evaluated"] = json!(tuned.tuning.evaluated);
        summary["priced_by"] = json!(priced_by);
        summary
    };
    let sweep = context.sweep(if racing.is_empty() { "ranking plans" } else { "running rivals" }, jobs);
    let (all, whole) = (points.len() as u64, dir.missing().is_empty());
    if whole {
        // Said once, and not of each part.
        sweep.run(&mut dir, |number| one(number, &[], &[], &[]), summary)?;
    }
    // Of a directory's points those of one part, unless they are there.
    let part = |title: String, from: u64, to: u64, dir: &ResultDir| -> Option<Sweep> {
        let only: BTreeSet<u64> = (from..to).collect();
        let missing = dir.missing();
        let there = missing.iter().all(|point| !only.contains(point));
        let goes_on = missing.iter().any(|point| *point >= to);
        let title = format!("{title} (runs {} to {to} of {all})", from + 1);
        (!there).then(|| Sweep { only: Some(only), goes_on, ..context.sweep(title, jobs) })
    };
    if let Some(first) = part(sweep.title.clone(), 0, shortlisted as u64, &dir) {
        first.run(&mut dir, |number| one(number, &[], &[], &[]), summary)?;
    }
    let mut later: Vec<Rival> = Vec::new();
    while later.len() < slots {
        let (from, done) = (shortlisted + later.len(), later.len());
        let ran = ran_once(&dir, &known, &later)?;
        let next = further(&tuned.searches(), &ran, spec.duration.ns() as f64 / 1e9, done);
        if next.is_empty() {
            // There were so many when room was made for them.
            return Err(CliError::check(format!("{done} of {slots} further plans were found, and no more")));
        }
        for (protocol, candidate) in next {
            later.push(further_rival(tuned, protocol, candidate, spec, fabric)?);
        }
        let to = shortlisted + later.len();
        let title = format!("running further plans, {} of {slots}", later.len());
        if let Some(sweep) = part(title, from as u64, to as u64, &dir) {
            sweep.run(&mut dir, |number| one(number, &later, &[], &[]), summary)?;
        }
    }
    for rival in &later {
        leave(&mut dir, &rival_path(out, rival), &candidate_file(tuned, rival))?;
    }
    if before < plans {
        let finalists = finalists(&dir, rivals.len() + slots)?;
        if let Some(again) = part("running the fastest again".to_owned(), before, plans, &dir) {
            again.run(&mut dir, |number| one(number, &later, &finalists, &[]), summary)?;
        }
    }
    let got = Got::of_plans(ran(&dir)?);
    let mut kept = Kept { dir: out.clone(), verified: regret_of(&dir), got, further: later, counted: None };
    let Some(verified) = kept.verified.clone() else { return Ok(kept) };
    if verified.best().per_s <= 0.0 {
        return Err(CliError::check(
            "no plan committed anything in the measured time: none is better than another",
        )
        .hint("give a longer --duration, for another --out, or lower the contention"));
    }
    if !counts.is_empty() {
        let fastest = tuned.fastest(&kept.further, &verified);
        let by_count = by_coroutines(fastest, &counts, spec, fabric, &tuned.profile)?;
        if let Some(sweep) = part("running the best by coroutines".to_owned(), plans, all, &dir) {
            sweep.run(&mut dir, |number| one(number, &[], &[], &by_count), summary)?;
        }
        kept.counted = Counted::of(&dir, by_count);
    }
    let file = recommended(tuned, &verified, &kept, racing.len() + slots, spec.fabric.virtual_time());
    leave(&mut dir, &verified_path(out), &file)?;
    Ok(kept)
}

/// The file of a plan that the search has found beside its choice.
fn candidate_file(tuned: &Tuned, rival: &Rival) -> PlanFile {
    PlanFile {
        name: rival.name.clone(),
        why: "a candidate of the search, kept so that it can be run".to_owned(),
        plan: rival.candidate.plan,
        prediction: Some(rival.prediction.clone()),
        ..tuned.file.clone()
    }
}

/// Leaves a plan file in a directory, unless somebody has edited the one that is there.
fn leave(dir: &mut ResultDir, path: &Path, file: &PlanFile) -> Result<(), CliError> {
    let text = file.to_yaml().map_err(|e| CliError::check("a plan cannot be written").caused_by(&e))?;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    Ok(dir.leave(&name, text.as_bytes())?)
}

/// Of so many plans that ran the one that got the most, with the count of coroutines that serves it best, as a file: chosen by that, with
/// what the model had expected of it. Where it is not told apart from the model's choice either would do, and the file says so;
/// `experiments/REGRET.md` has what such a choice loses after longer runs.
fn recommended(tuned: &Tuned, verified: &Verified, kept: &Kept, ran: usize, simulated: bool) -> PlanFile {
    let (most, rival) = (tuned.fastest(&kept.further, verified), kept.recommended(tuned));
    let who = if most.name == TUNED { "the model's choice" } else { most.description.as_str() };
    let by = if simulated { "simulated" } else { "measured" };
    let count = kept.counted.as_ref().map_or(String::new(), |counted| format!(". {}", counted.told()));
    PlanFile {
        name: "verified".to_owned(),
        chosen_by: format!("doorbell tune and runs of its rivals, {} ({})", crate::VERSION, crate::COMMIT),
        why: format!(
            "{who}: of {ran} plans that were run, the best of them several times, it got the most, {} ({by}). Regret of the model's choice, which got {}: {}{count}",
            human_rate(verified.best().per_s),
            human_rate(verified.chosen.per_s),
            verified.told(percent)
        ),
        plan: rival.candidate.plan,
        prediction: Some(rival.prediction.clone()),
    }
}

/// Bytes that each of the plans that run needs, with the most coroutines that it may run with. Further ones are not known yet, so that each of
/// them counts as the largest there may be: the best plan of some protocol with the most coroutines of all.
fn needed(
    tuned: &Tuned,
    racing: &[usize],
    slots: usize,
    counts: &[u32],
    spec: &RunSpec,
    fabric: &Fabric,
) -> Result<Vec<u64>, CliError> {
    let of = |&place: &usize| {
        let rival = &tuned.rivals[place];
        let spec = RunSpec { protocol: rival.protocol.clone(), ..spec.clone() };
        let plan = rival.candidate.plan;
        let coroutines = counts.iter().copied().fold(plan.coroutines, u32::max);
        transact::memory_of(&spec, fabric, Plan { coroutines, ..plan })
    };
    let mut needed = racing.iter().map(of).collect::<Result<Vec<u64>, CliError>>()?;
    if slots > 0 {
        let most = |(protocol, tuning): (&str, &Tuning)| {
            let spec = RunSpec { protocol: protocol.to_owned(), ..spec.clone() };
            let all = tuning.ranked.iter().map(|candidate| candidate.plan.coroutines);
            let coroutines = all.chain(counts.iter().copied()).fold(1, u32::max);
            transact::memory_of(&spec, fabric, Plan { coroutines, ..tuning.best().plan })
        };
        let most = tuned.searches().into_iter().map(most).collect::<Result<Vec<u64>, CliError>>()?;
        needed.extend(vec![most.into_iter().fold(0, u64::max); slots]);
    }
    Ok(needed)
}

/// The seed of a finalist's further run.
fn seed_again(seed: u64, again: u32) -> u64 {
    seed.wrapping_add(u64::from(again) * SEEDS_APART)
}

/// What the rivals and further plans got that ran so far, each once.
fn ran_once<'a>(
    dir: &ResultDir,
    known: &[(&'a str, &'a Candidate)],
    later: &'a [Rival],
) -> Result<Vec<Ran<'a>>, CliError> {
    let rows = dir.rows(TableName::Points)?;
    let later = later.iter().map(|rival| (rival.protocol.as_str(), &rival.candidate));
    let all = known.iter().copied().chain(later);
    Ok(all.zip(&rows).map(|(plan, row)| (plan, row.number("got_per_s").unwrap_or_default())).collect())
}

/// The choice, and who was fastest beside it of so many plans in the first round.
fn finalists(dir: &ResultDir, plans: usize) -> Result<Vec<usize>, CliError> {
    let rows = dir.rows(TableName::Points)?;
    let is_choice = |row: &Row| row.get("plan") == Some(TUNED);
    let mut others: Vec<(usize, f64)> = (rows.iter().enumerate().take(plans))
        .filter(|(_, row)| !is_choice(row))
        .filter_map(|(place, row)| Some((place, row.number("got_per_s")?)))
        .collect();
    others.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    let choice = rows.iter().take(plans).position(is_choice);
    Ok(choice.into_iter().chain(others.into_iter().map(|(place, _)| place)).take(FINALISTS).collect())
}

/// In which order they run in a round: there and back again, so that a machine which slows down meanwhile slows all of them alike.
fn in_turn(round: u32, racing: &[usize]) -> impl Iterator<Item = usize> {
    let last = racing.len().wrapping_sub(1);
    let back = round.is_multiple_of(2);
    (0..racing.len()).map(move |place| racing[if back { last - place } else { place }])
}

fn regret_of(dir: &ResultDir) -> Option<Verified> {
    Verified::of(TUNED, ran(dir).ok()?)
}

/// The runs of the search's plans, each with its plan's name.
fn ran(dir: &ResultDir) -> Result<Vec<(String, Got)>, CliError> {
    let rows = dir.rows(TableName::Points)?;
    // Those of the same plan by coroutines are no rivals.
    let plans = rows.iter().filter(|row| row.get("coroutines").is_none_or(str::is_empty));
    let got = |row: &Row| {
        let got = Got::once(row.number("got_per_s")?, row.number("got_ci_relative"));
        Some((row.get("plan").unwrap_or_default().to_owned(), got))
    };
    Ok(plans.filter_map(got).collect())
}

/// What `--verify` found, as programs read it; nulls if no rivals were run.
pub(super) fn judged(verified: Option<&Verified>) -> Value {
    let (regret, lead) = (verified.and_then(Verified::regret), verified.and_then(Verified::lead));
    let next = verified.and_then(|v| v.rival.as_ref()).filter(|_| lead.is_some());
    json!({
        "got_per_s": verified.map(|v| v.chosen.per_s),
        "got_ci_relative": verified.map(|v| v.chosen.ci_relative),
        "best": verified.map(|v| v.faster().map_or(TUNED, |(name, _)| name)),
        "best_per_s": verified.map(|v| v.best().per_s),
        "best_ci_relative": verified.map(|v| v.best().ci_relative),
        "regret": verified.map(|_| regret.map_or(0.0, |short| short.share)),
        "regret_ci": regret.and_then(|short| short.ci),
        "next": next.map(|(name, _)| name),
        "next_per_s": next.map(|(_, got)| got.per_s),
        "lead": lead.map(|short| short.share),
        "lead_ci": lead.and_then(|short| short.ci),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_other_round_goes_back() {
        let order = |round| in_turn(round, &[0, 2, 3]).collect::<Vec<_>>();
        assert_eq!((order(2), order(3)), (vec![3, 2, 0], vec![0, 2, 3]));
        assert_eq!(in_turn(2, &[]).count(), 0);
    }
}
