//! `doorbell tune`: from profile, workload and protocol to a plan file, with prediction and reasons.

mod budget;
mod counts;
mod further;
mod search;
mod verify;

pub use further::{further, room};
pub use search::{Ranked, Rival, Tuned, ranking, rankings, search, search_all, shortlist, tunable, watched};
pub use verify::{Kept, Verify, keep, may_keep};

use super::Context;
use super::characterize::{self, Characterization, profile_path};
use crate::args::{TuneArgs, each_once};
use crate::directory::{self, HOME, Place};
use crate::error::CliError;
use crate::fabrics::{self, Fabric};
use crate::memory::fits;
use crate::names;
use crate::output::{WIDTH, emit, folded, human_rate, percent, print, table};
use crate::schedule;
use crate::scope::usual_scope;
use crate::settings;
use crate::spec::{PlanChoice, ProfileChoice, RunSpec, Span, command, limits};
use crate::transact::{self, NamedPlan};
use budget::Budget;
use counts::Counted;
use engine::protocol::{AnyProtocol, Protocol};
use engine::verify::Level;
use phases::model::{Candidate, Choice, Objective, Turned, told};
use primitives::bench;
use primitives::measure::{ProfileRef, count};
use primitives::profile::Profile;
use primitives::units::Nanos;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Candidates of the search that are kept in the results beside the presets, and that `--verify` runs.
pub const SHORTLIST: usize = 12;

/// Where time is virtual, plans that `--verify` runs again with other seeds, the choice and those that were fastest; and how often. One run
/// tells plans apart that differ by more than a few per cent, and the fastest of a dozen owes something to luck.
pub const FINALISTS: usize = 4;
/// See [`FINALISTS`].
pub const AGAIN: u32 = 2;

/// The winner's name.
const TUNED: &str = "tuned";

/// The tuned plan of a spec, for `--plan tuned`.
///
/// # Errors
/// As [`search`] and [`profile_for`].
pub fn best(spec: &RunSpec, fabric: &Fabric, context: &Context) -> Result<NamedPlan, CliError> {
    Ok(named(spec, &searched(spec, fabric, context)?))
}

/// As [`best`], with location caches as large as the tuner chose for the plan: `spec` is given their size, unless it has one.
///
/// # Errors
/// As [`best`].
pub fn best_with_caches(
    spec: &mut RunSpec,
    fabric: &Fabric,
    context: &Context,
) -> Result<NamedPlan, CliError> {
    let tuned = searched(spec, fabric, context)?;
    let mut plan = named(spec, &tuned);
    if let Some(budget) = &tuned.budget {
        let rung = budget.chosen();
        spec.cache_bytes = Some(rung.bytes);
        if let Some(prediction) = &mut plan.prediction {
            (prediction.committed_per_s, prediction.latency_mean_ns) = (rung.per_s, rung.mean_ns);
        }
        plan.notes.push(format!("The tuner chose the caches, too; {}.", budget.told()));
    }
    Ok(plan)
}

fn searched(spec: &RunSpec, fabric: &Fabric, context: &Context) -> Result<Tuned, CliError> {
    search::tunable(spec, std::slice::from_ref(&spec.protocol))?;
    let profile = profile_for(spec, fabric, None, Path::new(HOME), context)?;
    watched(context, |go_on| search(spec, fabric, &profile, Objective::Throughput, go_on))
}

/// The winner, with what a reader should know of it.
fn named(spec: &RunSpec, tuned: &Tuned) -> NamedPlan {
    let mut plan = tuned.plan();
    plan.notes.extend(caveat(spec, tuned));
    if let Some(asked) = spec.coroutines {
        plan.notes.push(format!(
            "The tuner looked at plans with {asked} coroutines per thread only, as asked for."
        ));
    }
    if !spec.warm_cache {
        plan.notes
            .push("The tuner took location caches to be warm; the run starts with cold ones.".to_owned());
    }
    if spec.clock_skew.ns() > 0 {
        plan.notes.push(format!(
            "The tuner took clocks to be right; those of the run are wrong by up to {}.",
            spec.clock_skew
        ));
    }
    plan
}

/// The profile to price plans with: the one named, the simulated one, or what a quick characterization of the
/// fabric leaves below `home` (made once, read again later). What speaks against it is told.
///
/// # Errors
/// If the file is no profile or the characterization fails.
pub fn profile_for(
    spec: &RunSpec,
    fabric: &Fabric,
    named: Option<&ProfileChoice>,
    home: &Path,
    context: &Context,
) -> Result<Profile, CliError> {
    let (profile, own) = found_for(spec, fabric, named, home, context)?;
    if fabric.caps()?.one_sided && !fabrics::caps_of(&profile)?.one_sided {
        context.talk.say(format!(
            "profile {} has no one-sided verbs: only plans without them are looked at",
            profile.name
        ));
    }
    if let Some(doubt) = &profile.doubt {
        let mend = match (own, profile.is_doubted(bench::UNCALIBRATED)) {
            (Some(dir), true) => format!(
                "; mend it by `{}`, and name that with --profile",
                characterize::calibrating(&profile, &dir)
            ),
            (None, true) => "; `doorbell calibrate --from` its characterization mends it".to_owned(),
            (Some(dir), false) => format!("; remove {} to measure it again", dir.display()),
            (None, false) => String::new(),
        };
        let told = format!("forecasts are by a profile ({}) {doubt}{mend}", profile.name);
        match doubt.starts_with(schedule::DOUBT) {
            true if !profile.is_doubted(bench::UNCALIBRATED) => context.talk.warn_of_busy(told),
            _ => context.talk.warn_once(told),
        }
    }
    Ok(profile)
}

/// The profile, and the directory of the fabric's characterization that it was fitted to, if it was.
fn found_for(
    spec: &RunSpec,
    fabric: &Fabric,
    named: Option<&ProfileChoice>,
    home: &Path,
    context: &Context,
) -> Result<(Profile, Option<PathBuf>), CliError> {
    if let Some(choice) = named {
        return Ok((fabrics::profile(choice)?, None));
    }
    if let Some(profile) = &fabric.profile {
        return Ok((profile.clone(), None));
    }
    let out = home.join(format!("characterize-{}", names::for_file(&fabric.choice)));
    let name = &fabric.caps()?.fabric;
    if let Some(dir) = directory::newest_with(&out, |dir| profile_path(dir, name)) {
        return Ok((fabrics::profile(&ProfileChoice::File(profile_path(&dir, name)))?, Some(dir)));
    }
    if !fabric.caps()?.one_sided {
        return Err(CliError::usage(format!(
            "no profile of {} can be fitted here: that takes one-sided verbs",
            fabric.choice
        ))
        .hint("name one: --profile FILE, or a shipped one such as --profile tcp-10g"));
    }
    context.talk.say(format!(
        "no profile of {} yet: characterizing it first, into {}",
        fabric.choice,
        out.display()
    ));
    let wanted = Characterization {
        fabric: spec.fabric.clone(),
        scope: usual_scope(false, true),
        only: Vec::new(),
        seed: spec.seed,
        lengthen: true,
        jobs: 1,
        out: Place::Usual(out),
        cluster: None,
    };
    let done = characterize::characterize(&wanted, context)?;
    let profile = done.profile.ok_or_else(|| CliError::check("the characterization left no profile"))?;
    Ok((profile, Some(done.dir)))
}

/// The command.
///
/// # Errors
/// Exit code 2 for what cannot be tuned, 3 for what this machine lacks.
pub fn run(args: &TuneArgs, context: &Context) -> Result<(), CliError> {
    let instead = "tune on node 0 with the profile that `doorbell characterize --cluster FILE` left (--profile), then \
                   `doorbell run --cluster FILE --plan tuned.plan.yaml`";
    args.one_process.check("tune", instead)?;
    if args.what.workload.asks_for_help() {
        return print(&settings::shown(&args.what.workload.workload)?);
    }
    args.what.workload.check()?;
    each_once("--protocol", &args.protocols())?;
    if let Some(json) = &args.output.json {
        json.check()?;
    }
    let objective = args.objective()?;
    let spec = args.spec();
    spec.check()?;
    let fabric = Fabric::open(&spec.fabric, spec.seed)?;
    let name = names::for_file(&spec.fabric);
    let home = Path::new(HOME);
    let out = Place::new(args.output.out.as_ref(), home, &format!("tune-{}-{name}", spec.workload));
    let verify = if args.verify { Verify::All } else { Verify::Nothing };
    may_keep(&spec, &fabric, objective, verify, &out)?;
    context.interrupt.listen()?;
    for left_out in search::tunable(&spec, &args.protocols())? {
        context.talk.say(format!("left out: {left_out}"));
    }
    let profile = profile_for(&spec, &fabric, args.profile.as_ref(), home, context)?;
    let tuned =
        watched(context, |go_on| search_all(&spec, &args.protocols(), &fabric, &profile, objective, go_on))?;
    let kept = keep(&tuned, &spec, &fabric, verify, args.jobs, &out, context)?;
    let caveat = caveat(&spec, &tuned);
    let plan = tuned.tuning.best().plan;
    let chosen = RunSpec { protocol: tuned.protocol.clone(), ..spec.clone() };
    if let Err(error) = fits(transact::memory_of(&chosen, &fabric, plan)?, &transact::lower(&spec)) {
        context.talk.warn(format!("the choice does not fit this machine: {}", error.message()));
    }
    let details = tuned.tuning.reasons.iter().chain(tuned.tuning.flips.iter().map(|flip| &flip.text));
    details.for_each(|line| context.talk.detail(folded(&format!("- {line}"), WIDTH)));
    emit(
        args.output.json.as_ref(),
        &document(&tuned, &kept, caveat.as_deref()),
        &shown(&tuned, &spec, &kept, caveat.as_deref()),
    )
}

/// Settings by which workloads make some records more popular than others.
const SKEWING: [&str; 2] = ["zipf_theta", "hot_"];

/// Workloads that the sweeps of forecasts do not draw.
const UNDRAWN: [&str; 2] = ["tpcc", "tpce-cp"];

/// The share of attempts that abort from which on forecasts were found to be worth less.
const CONTENDED: f64 = 0.2;

/// What is known of choices among protocols, as [`of_forecasts`] has it (the sweep of seed 22).
const AMONG_PROTOCOLS: &str = "the choice is one of a protocol, too: of 60 drawn combinations it was the best plan's in 37, and lost up to 40 % \
                               (simulated, seed 22: experiments/REGRET.md)";

/// What is known of forecasts under protocols that those sweeps do not draw.
fn undrawn(protocol: &str) -> Option<&'static str> {
    match protocol.split(':').next()? {
        "calvin" => Some(
            "calvin is not among the protocols whose forecasts were compared with runs of drawn combinations; of 87 settings nine of ten were \
             within 16 %, and of SmallBank with hot accounts forecasts may be a third and more too high (simulated: engine/CALVIN.md)",
        ),
        "fasst" => Some(
            "fasst is not among the protocols whose forecasts were compared with runs of drawn combinations; where more than half of attempts \
             abort they are a fifth too high on average (simulated: experiments/REGRET.md)",
        ),
        _ => None,
    }
}

/// What is known beside that where transactions wait for each other.
const WHERE_MANY_WAIT: &str = "; of a skewed YCSB that was not drawn wait-die was foretold 1.5 to 3.5 times what came from four coroutines on (the same page)";

/// What is known beside that of CALVIN's forecasts of all of TPC-C.
const CALVIN_ON_TPCC: &str = "; of tpcc one-sided plans were foretold 1.2 to 1.6 times what came, and plans by calls about twice what came (the same page)";

/// How many times the mean latency that is foretold a plan runs where nobody says for how long: what is in flight is to have its turn.
const TURNS: f64 = 20.0;

/// How long a plan of a search runs: as was asked for, and at least so long where nothing was.
fn lasts(spec: &RunSpec, candidate: &Candidate) -> Span {
    let usual = limits::usual_duration(&spec.fabric);
    let turned =
        Span::from_ns((TURNS * candidate.forecast.latency_mean_ns / 1e6).min(1e6).ceil() as u64 * 1_000_000);
    if spec.duration == usual && spec.fabric.virtual_time() && turned.ns() > usual.ns() {
        turned
    } else {
        spec.duration
    }
}

/// What to know of the choice.
fn caveat(spec: &RunSpec, tuned: &Tuned) -> Option<String> {
    match (of_forecasts(spec, tuned), tuned.protocols.is_empty()) {
        (Some(forecasts), false) => Some(format!("{forecasts}; {AMONG_PROTOCOLS}")),
        (None, false) => Some(format!("caveat: {AMONG_PROTOCOLS}")),
        (forecasts, true) => forecasts,
    }
}

/// What to know of forecasts where transactions get in each other's way, with what was measured of it. `experiments/REGRET.md` has the
/// numbers (the sweep of seed 18, with the model of build 846974c8); nothing is computed from them.
fn of_forecasts(spec: &RunSpec, tuned: &Tuned) -> Option<String> {
    let forecast = &tuned.tuning.best().forecast;
    let attempts = forecast.aborted_per_s + forecast.committed_per_s;
    let aborted = if attempts > 0.0 { forecast.aborted_per_s / attempts } else { 0.0 };
    let skews = |(key, value): (&String, &Value)| {
        let key = key.rsplit('.').next().unwrap_or(key);
        SKEWING.iter().any(|name| key.starts_with(name))
            && settings::text(value).parse::<f64>().is_ok_and(|v| v > 0.0)
    };
    let skewed = spec.set.iter().any(skews);
    if let Some(known) = undrawn(&tuned.protocol) {
        let ordered = spec.workload == "tpcc" && tuned.protocol.starts_with("calvin");
        let tpcc = if ordered { CALVIN_ON_TPCC } else { "" };
        return Some(format!("caveat: {known}{tpcc}"));
    }
    // A regret is of throughput: with a latency asked for, rivals are not run.
    let runs = if tuned.objective == Objective::Throughput { ". --verify runs the plans" } else { "" };
    if UNDRAWN.contains(&spec.workload.as_str()) {
        let known = match spec.workload.as_str() {
            "tpcc" => {
                "; of its usual mix plans by calls were foretold 0.7 to 1.2 times what came, and plans that lock by CAS 0.4 to 1.2 times, or \
                 next to nothing where four in five attempts abort under waitdie, mvcc and sundial; forecasts of other mixes and of \
                 always_distributed are worth less (simulated: experiments/REGRET.md)"
            }
            _ if aborted > 0.0 => ", and its transactions get in each other's way",
            // One class that only reads.
            _ => {
                "; of a few plans that ask for several prices at once 10 % less to 10 % more came than was foretold, of those that ask for \
                 one by one up to a quarter more (simulated: experiments/REGRET.md)"
            }
        };
        return Some(format!(
            "caveat: {} is not among the drawn combinations whose forecasts were compared with runs{known}{runs}",
            spec.workload
        ));
    }
    (skewed || aborted > CONTENDED).then(|| {
        let why = if skewed { "some keys are asked for more often, and " } else { "" };
        let waits = match tuned.protocol.as_str() {
            "waitdie" | "waitdie-exclusive" | "bounded-wait" => WHERE_MANY_WAIT,
            _ => "",
        };
        format!(
            "caveat: {why}{} of attempts are foretold to abort. Where more than a fifth did, foretold rates were off by 9.5 % in the median and \
             58 % or more in a tenth of 149 drawn combinations; where fewer did, by 3.4 % and 10 % of 351 (simulated, seed 18: \
             experiments/REGRET.md){waits}{runs}",
            percent(aborted)
        )
    })
}

/// Where a tuned result directory has the model's choice as a plan file.
pub fn plan_path(out: &Path) -> PathBuf {
    out.join("tuned.plan.yaml")
}

/// Where it has the plan that got the most when run, if plans were.
fn verified_path(out: &Path) -> PathBuf {
    out.join("verified.plan.yaml")
}

fn rival_path(out: &Path, rival: &Rival) -> PathBuf {
    out.join(format!("{}.plan.yaml", file_stem(&rival.name)))
}

/// A plan's name as that of a file.
pub fn file_stem(name: &str) -> String {
    let plain: String = name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
    plain.split('-').filter(|part| !part.is_empty()).collect::<Vec<_>>().join("-")
}

/// The document of `tune --json`.
fn document(tuned: &Tuned, kept: &Kept, caveat: Option<&str>) -> Value {
    let best = tuned.tuning.best();
    let mut document = verify::judged(kept.verified.as_ref());
    document["best_plan"] = json!(kept.verified.as_ref().map(|_| kept.recommended(tuned).candidate.plan));
    document["best_plan_file"] = json!(kept.verified.as_ref().map(|_| kept.plan_file()));
    document["best_protocol"] = json!(kept.verified.as_ref().map(|_| &kept.recommended(tuned).protocol));
    document["by_coroutines"] = json!(kept.counted.as_ref().map(Counted::json));
    document["plan_file"] = json!(plan_path(&kept.dir));
    document["protocol"] = json!(tuned.protocol);
    document["protocols"] = tuned
        .protocols
        .iter()
        .map(|(name, best)| {
            json!({
                "protocol": name, "plan": best.plan, "predicted_per_s": best.forecast.committed_per_s,
                "predicted_mean_ns": best.forecast.latency_mean_ns, "bottleneck": best.forecast.bottleneck,
            })
        })
        .collect();
    document["plan"] = json!(best.plan);
    document["description"] = json!(tuned.rivals[0].description);
    document["predicted_per_s"] = json!(best.forecast.committed_per_s);
    document["predicted_mean_ns"] = json!(best.forecast.latency_mean_ns);
    document["objective"] = match tuned.objective {
        Objective::Throughput => json!({ "most": "throughput" }),
        Objective::Latency => json!({ "least": "mean latency" }),
        Objective::ThroughputWithin(ns) => {
            json!({ "most": "throughput", "mean_within_ns": ns, "kept": best.forecast.latency_mean_ns <= ns })
        }
    };
    document["bottleneck"] = json!(best.forecast.bottleneck);
    document["evaluated"] = json!(tuned.tuning.evaluated);
    document["profile"] = json!(ProfileRef::from(&tuned.profile));
    document["choices"] = json!(tuned.choices);
    document["turned_round"] = json!(tuned.turned);
    document["cache_budget"] = json!(tuned.budget.as_ref().map(Budget::json));
    document["reasons"] = json!(tuned.tuning.reasons);
    document["flips"] = json!(tuned.tuning.flips);
    document["caveat"] = json!(caveat);
    document
}

/// The choices, a line for each phase. What they are held against may have another count of coroutines; flips are searched with the chosen one.
fn why(choices: &[Choice], coroutines: u32) -> String {
    let rows = choices.iter().map(|choice| {
        let or = |text: String| if text.is_empty() { "–".to_owned() } else { text };
        let (phase, via) = (choice.phase.to_string(), choice.step.via.to_string());
        let difference: Vec<String> =
            [choice.difference(), choice.at_once()].into_iter().filter(|text| !text.is_empty()).collect();
        [phase, via, difference.join("; "), or(choice.alternative()), or(choice.flip())]
    });
    let text = table(&["phase", "carried by", "difference", "against", "flips with"], rows);
    format!(
        "{text}(– : no price that was tried, from half to twice what it is, has another plan be more than 1 % better that carries the phase \
         otherwise. Flips are with {coroutines} coroutine{} on either side; with counts left free they may be farther away. -v compares \
         whole plans)\n",
        if coroutines == 1 { "" } else { "s" }
    )
}

/// The choices that are no primitives, a sentence for each that matters.
fn others(turned: &[Turned]) -> String {
    told(turned).iter().map(|line| format!("{}\n", folded(line, WIDTH))).collect()
}

/// The presets, each with the count of coroutines that serves it best, and what those that ran got.
fn presets(tuned: &Tuned, kept: &Kept) -> String {
    // A preset may be a rival under another's name: that of the winner, or of one that differs in nothing that matters, as in how it
    // would log if there were backups.
    let got = |c: &Candidate| {
        let rivals = || tuned.rivals.iter().filter(|r| r.protocol == tuned.protocol);
        let rival = rivals()
            .find(|r| r.candidate.plan == c.plan)
            .or_else(|| rivals().find(|r| r.candidate.forecast == c.forecast))?;
        kept.got.iter().find(|(name, _)| *name == rival.name).map(|(_, got)| human_rate(got.per_s))
    };
    let mut head = vec!["preset", "coroutines", "predicted", "mean latency", "limited by"];
    if !kept.got.is_empty() {
        head.push("got");
    }
    let rows = tuned.tuning.presets.iter().map(|c| {
        let mut row = vec![
            c.preset.map_or("", |p| p.name()).to_owned(),
            c.plan.coroutines.to_string(),
            human_rate(c.forecast.committed_per_s),
            Nanos(c.forecast.latency_mean_ns as u64).to_string(),
            c.forecast.bottleneck.to_string(),
        ];
        if !kept.got.is_empty() {
            row.push(got(c).unwrap_or_default());
        }
        row
    });
    table(&head, rows)
}

/// The command that runs a plan of a search for `spec` from its file, which says with how many coroutines. What ran is run again as it
/// ran; the model's choice with the location caches that are chosen for it.
fn to_run(tuned: &Tuned, spec: &RunSpec, kept: &Kept) -> String {
    let (rival, plan) = (kept.recommended(tuned), PlanChoice::File(kept.plan_file()));
    let chosen = tuned.budget.as_ref().filter(|_| kept.verified.is_none()).map(|b| b.chosen().bytes);
    let (protocol, cache_bytes) = (rival.protocol.clone(), spec.cache_bytes.or(chosen));
    let duration = lasts(spec, &rival.candidate);
    command(&RunSpec { protocol, plan, cache_bytes, duration, coroutines: None, ..spec.clone() })
}

/// What protocols promise, in a line: `occ and calvin are strictly serializable; mvcc is serializable`.
fn promises<'n>(names: impl Iterator<Item = &'n str>) -> String {
    let mut levels: BTreeMap<Level, Vec<&str>> = BTreeMap::new();
    for name in names {
        let promised = AnyProtocol::parse(name).map_or(Level::Serializable, |protocol| protocol.level());
        levels.entry(promised).or_default().push(name);
    }
    let told = levels.into_iter().rev().map(|(level, names)| {
        let level = level.name().replace("strict-", "strictly ");
        format!("{} {} {level}", joined(&names), if names.len() == 1 { "is" } else { "are" })
    });
    told.collect::<Vec<_>>().join("; ")
}

/// `a, b and c`.
fn joined(names: &[&str]) -> String {
    match names {
        [some @ .., last] if !some.is_empty() => format!("{} and {last}", some.join(", ")),
        _ => names.concat(),
    }
}

fn shown(tuned: &Tuned, spec: &RunSpec, kept: &Kept, caveat: Option<&str>) -> String {
    let best = tuned.tuning.best();
    let mut text = String::new();
    if !tuned.protocols.is_empty() {
        text.push_str(&format!("protocol: {}\n", tuned.protocol));
    }
    text.push_str(&format!(
        "plan: {}\n      {}\npredicted: {} at {} mean latency, limited by {}\n",
        tuned.rivals[0].description,
        best.plan,
        human_rate(best.forecast.committed_per_s),
        Nanos(best.forecast.latency_mean_ns as u64),
        best.forecast.bottleneck
    ));
    let aim = search::aim(&tuned.tuning, tuned.objective);
    aim.iter().for_each(|aim| text.push_str(&format!("{}\n", folded(&format!("aim: {aim}"), WIDTH))));
    let doubt = tuned.profile.doubt.as_ref().map_or(String::new(), |doubt| format!(", {doubt}"));
    text.push_str(&format!("forecasts are by profile {}{doubt}\n", tuned.profile.name));
    caveat.into_iter().for_each(|caveat| text.push_str(&format!("{}\n", folded(caveat, WIDTH))));
    text.push_str(&format!(
        "chosen from {} forecasts, each of a plan with a count of coroutines; of nearly equal ones the plainest\n\n",
        tuned.tuning.evaluated
    ));
    if !tuned.protocols.is_empty() {
        let mut head = vec!["protocol", "predicted", "mean latency", "limited by", "best plan"];
        if !kept.got.is_empty() {
            head.insert(2, "most that ran");
        }
        let rows = tuned.protocols.iter().map(|(name, best)| {
            let mut row = vec![
                name.clone(),
                human_rate(best.forecast.committed_per_s),
                Nanos(best.forecast.latency_mean_ns as u64).to_string(),
                best.forecast.bottleneck.to_string(),
                best.plan.to_string(),
            ];
            if !kept.got.is_empty() {
                row.insert(2, kept.most_under(tuned, name).map_or(String::new(), human_rate));
            }
            row
        });
        text.push_str(&table(&head, rows));
        text.push_str(&format!("{}\n\n", promises(tuned.protocols.iter().map(|(name, _)| name.as_str()))));
        text.push_str(&format!("presets under {}:\n", tuned.protocol));
    }
    text.push_str(&presets(tuned, kept));
    if !kept.got.is_empty() && spec.fabric.virtual_time() {
        text.push_str(&format!(
            "\nwhat plans got is of one run each; of the choice and the fastest beside it, {FINALISTS} in all, the mean of {}\n",
            AGAIN + 1
        ));
    }
    text.push('\n');
    text.push_str(&why(&tuned.choices, tuned.tuning.best().plan.coroutines));
    text.push_str(&format!("\n{}", others(&tuned.turned)));
    if let Some(budget) = &tuned.budget {
        text.push_str(&format!("\n{}\n{}", folded(&budget.told(), WIDTH), budget.shown()));
    }
    if let Some(verified) = &kept.verified {
        let (best, faster) = (verified.best(), verified.faster());
        text.push_str(&format!(
            "\nverified: the chosen plan got {}, the best of all that ran ({}) got {}: regret {}\n",
            human_rate(verified.chosen.per_s),
            faster.map_or(TUNED, |(name, _)| name),
            human_rate(best.per_s),
            verified.told(percent)
        ));
    }
    if let Some(counted) = &kept.counted {
        text.push_str(&format!("\nthat plan by coroutines:\n{}", counted.shown()));
    }
    let (plan, runs) = (kept.plan_file(), kept.recommended(tuned));
    text.push_str(&format!("\nplan file: {}\n", plan.display()));
    if kept.verified.is_some() {
        let coroutines = |n: u32| count(u64::from(n), "coroutine");
        let (with, choice) = (runs.candidate.plan.coroutines, tuned.rivals[0].candidate.plan);
        let is = match (runs.name == TUNED, with == choice.coroutines) {
            (true, true) => "the same plan".to_owned(),
            (true, false) => format!("the same plan with {}", coroutines(choice.coroutines)),
            (false, _) => "another plan".to_owned(),
        };
        text.push_str(&format!(
            "  of the plan that got the most when run, with {}; the model's choice, {is}, is {}\n",
            coroutines(with),
            plan_path(&kept.dir).display()
        ));
    }
    text.push_str(&format!("to run it: {}\n", to_run(tuned, spec, kept)));
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use primitives::measure::{Got, Verified};
    use serde_json::json;

    #[test]
    fn forecasts_of_all_protocols_are_counted() {
        let mut spec = RunSpec { coroutines: Some(4), nodes: 3, threads: 1, ..RunSpec::default() };
        spec.apply("fabric", &json!("sim:cx4-edr")).unwrap();
        let fabric = Fabric::open(&spec.fabric, spec.seed).unwrap();
        let profile = Profile::shipped("cx4-edr").unwrap();
        let made = |protocols: &[&str]| {
            let named: Vec<String> = protocols.iter().map(|name| (*name).to_owned()).collect();
            search_all(&spec, &named, &fabric, &profile, Objective::Throughput, &|| true).unwrap()
        };
        let each: usize = ["occ", "sundial"].map(|name| made(&[name]).tuning.evaluated).iter().sum();
        let both = made(&["occ", "sundial"]);
        assert_eq!(both.tuning.evaluated, each);
        let told = format!(
            "chosen from {each} forecasts, each of a plan with a count of coroutines; of nearly equal ones the plainest"
        );
        let kept =
            Kept { dir: "out".into(), verified: None, got: Vec::new(), further: Vec::new(), counted: None };
        let shown = shown(&both, &spec, &kept, None);
        assert!(
            shown.contains(&told) && shown.contains("plan file: out/tuned.plan.yaml\nto run it: "),
            "{shown}"
        );
    }

    /// The command that is printed runs the fastest, and the model's choice is told beside it.
    #[test]
    fn what_runs_found_faster_is_what_is_run() {
        let mut spec = RunSpec { coroutines: Some(4), nodes: 3, threads: 1, ..RunSpec::default() };
        spec.apply("fabric", &json!("sim:cx4-edr")).unwrap();
        let fabric = Fabric::open(&spec.fabric, spec.seed).unwrap();
        let profile = Profile::shipped("cx4-edr").unwrap();
        let both = ["occ", "nowait"].map(str::to_owned);
        let tuned = search_all(&spec, &both, &fabric, &profile, Objective::Throughput, &|| true).unwrap();
        let kept = |next: &str, per_s: f64| {
            let got = |per_s| Got::once(per_s, Some(0.01));
            let verified = Verified::new(got(100.0), [(next.to_owned(), got(per_s))]);
            Kept {
                dir: "out".into(),
                verified: Some(verified),
                got: Vec::new(),
                further: Vec::new(),
                counted: None,
            }
        };
        for rival in tuned.rivals.iter().skip(1) {
            let kept = kept(&rival.name, 102.0);
            let text = shown(&tuned, &spec, &kept, None);
            let protocol = if rival.protocol == "occ" { "" } else { "--protocol nowait " };
            let line = format!(
                "to run it: doorbell run --fabric sim:cx4-edr {protocol}--plan out/verified.plan.yaml"
            );
            assert!(text.contains(&line) && text.contains("regret 2.0 % ± 1.4 %"), "no {line} in\n{text}");
            assert!(text.contains("the model's choice, another plan, is out/tuned.plan.yaml"), "{text}");
            let document = document(&tuned, &kept, None);
            assert_eq!(document["best_plan"], json!(rival.candidate.plan));
            assert_eq!(document["best_protocol"], json!(rival.protocol));
        }
        let kept = kept("farm", 98.0);
        let best = shown(&tuned, &spec, &kept, None);
        assert!(best.contains("the best of all that ran (tuned) got 100"), "{best}");
        assert!(best.contains("regret 0.0 %: the next, farm, got 2.0 % ± 1.4 % less"), "{best}");
        assert!(best.contains("the model's choice, the same plan, is out/tuned.plan.yaml"), "{best}");
        assert_eq!(document(&tuned, &kept, None)["best_plan"], json!(tuned.tuning.best().plan));
    }
}
