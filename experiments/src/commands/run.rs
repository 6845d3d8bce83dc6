//! `doorbell run`: one workload, protocol, plan and fabric.

use super::{Context, tune};

use crate::args::RunArgs;
use crate::cluster::{Cluster, Described, give_up, run_member, share_of_the_driver};
use crate::directory::Place;
use crate::error::{CliError, Exit};
use crate::fabrics::Fabric;
use crate::output::{absent, bars, check_new, emit, human_rate, percent, print, table};
use crate::progress::{Progress, Task};
use crate::settings;
use crate::spec::{PlanChoice, RunSpec};
use crate::transact::{self, Keep, NamedPlan, Run};
use crate::window;
use engine::cluster::{RunResult, SAMPLE_EVERY};
use engine::protocol::{AnyProtocol, Protocol};
use phases::plan::{Phase, Preset};
use phases::rule::Abort;
use primitives::measure::{Kind, ResultDir, Row, RunRecord, Steadiness, TableName, count};
use primitives::mesh::Session;
use primitives::units::Nanos;
use std::path::Path;

/// What is said of phases where a lock brings its record along.
const LOCKS_AT_TOUCH: &str =
    "lock: its time includes reading what it locks; the requests of that are counted under fetch\n";

/// What to do where a workload's inserts used up the room that its layout gave them.
const TABLE_FULL: &str = "a table was full: inserts found no room, and rates are of what could still run; run for less time, or \
                          give more room (--reserve-bytes N; TPC-C: --set order_room_per_district=N)";

/// The command.
///
/// # Errors
/// Exit code 1 if a check failed, 2 for what cannot be run, 3 for what this machine lacks.
pub fn run(args: &RunArgs, context: &Context) -> Result<(), CliError> {
    let mut session = None;
    let ended = run_in(&mut session, args, context);
    if let (Err(error), Some(session)) = (&ended, &mut session) {
        give_up(session, error);
    }
    ended
}

/// The command; the session is that of the cluster, if it comes to one.
fn run_in(session: &mut Option<Session>, args: &RunArgs, context: &Context) -> Result<(), CliError> {
    if args.what.workload.asks_for_help() {
        return print(&settings::shown(&args.what.workload.workload)?);
    }
    args.what.workload.check()?;
    let cluster = args.cluster.as_ref().map(|path| Cluster::read(path, args.join_within)).transpose()?;
    let mut spec = args.spec();
    if let Some(cluster) = &cluster {
        Cluster::carries(&spec.fabric)?;
        cluster.names(args.what.shape.nodes, "--nodes")?;
        spec.nodes = u32::from(cluster.file.count());
        Cluster::measures_for(args.precision.precision)?;
        spec.precision = None;
    }
    spec.check().map_err(|mut unfit| {
        // How many nodes there are is the cluster file's to say.
        unfit.instead.retain(|(key, _)| cluster.is_none() || *key != "nodes");
        unfit
    })?;
    if let Some(json) = &args.output.json {
        json.check()?;
    }
    if let Some(path) = &args.history {
        if path.as_os_str() == "-" {
            return Err(CliError::usage("--history writes a file, not to stdout, where the result goes")
                .hint("name a file: `doorbell check FILE` reads it"));
        }
        check_new(path)?;
    }
    let fabric = Cluster::open_first(cluster.as_ref(), &spec.fabric, spec.seed)?;
    // Who tunes warns of the same profile.
    if !matches!(spec.plan, PlanChoice::Tuned) {
        fabric.warn(context.talk);
    }
    let plan = match transact::plan(&spec, &fabric)? {
        Some(named) => named,
        None => tune::best_with_caches(&mut spec, &fabric, context)?,
    };
    match cluster {
        None => transact::check(&spec, &fabric, &plan)?,
        Some(_) => transact::check_share(&spec, &fabric, &plan)?,
    }
    plan.notes.iter().cloned().chain(of_clocks(&spec)).for_each(|note| context.talk.say(note));
    let mut cut_short = false;
    let place = args.output.out.clone().map(Place::Named);
    // What is made for results, and not needed if there are none.
    let made = args.output.out.as_deref().map_or_else(Vec::new, absent);
    let dir = match &place {
        Some(place) => match directory(place, &spec, &plan, &fabric, context)? {
            dir if !dir.missing().is_empty() => Some(dir),
            dir if dir.record().interrupted => {
                context.talk.say(format!(
                    "{} holds this run, cut short: it is measured again, and replaced when that is there",
                    dir.path().display()
                ));
                cut_short = true;
                Some(dir)
            }
            dir => return show_kept(args, &dir, context),
        },
        None => None,
    };
    let keep = Keep { history: !args.no_check, part: true };
    let say = || {
        context.talk.say(format!(
            "running {} under {} with plan {} on {} for {}{}",
            spec.workload,
            spec.protocol,
            plan.name,
            spec.fabric,
            match spec.precision {
                None => spec.duration.to_string(),
                Some(share) => format!("at least {}, until ± {} % is known", spec.duration, 100.0 * share),
            },
            spec.of_clocks()
        ));
    };
    let mut measure = || match &cluster {
        None => {
            context.interrupt.listen()?;
            say();
            context.interrupt.keeps_parts();
            // A single run may take minutes, too.
            let task = Task { title: spec.workload.clone(), what: "run", done: 0, total: Some(1) };
            let _shown = Progress::begin(context.talk, task);
            transact::run(&spec, &fabric, &plan, keep, context.interrupt.flag())
        }
        Some(cluster) => {
            let session = session.insert(cluster.drive(context)?);
            say();
            let described = Described { spec: spec.clone(), plan: plan.clone(), keep, shares: true };
            session.begin(&described.encode())?;
            context.interrupt.measured();
            let share = share_of_the_driver(args.output.out.as_deref());
            let (_, whole) = run_member(cluster, &described, session, &share, false, context)?;
            whole.ok_or_else(|| CliError::check("bug: node 0 has no whole result"))
        }
    };
    let measured = measure();
    let nothing = measured.as_ref().map_or(true, nothing_ended);
    // What an earlier run has left stays, though some of it was lost. In a cluster that has come together a node's share may be there,
    // below a directory that must stay known as this run's.
    let shares = session.is_some();
    if let Some(dir) = dir.as_ref().filter(|dir| nothing && !dir.resumed() && !shares) {
        clear(dir.path())?;
        // One that somebody has put something into stays.
        made.iter().for_each(|made| drop(std::fs::remove_dir(made)));
    }
    let run = measured.map_err(|error| match error.exit() {
        Exit::Interrupted if cluster.is_none() => for_nothing("nothing is kept"),
        _ => error,
    })?;
    let (mut dir, replaced) = match (dir, &place) {
        // What was measured then stays until there is more.
        (Some(_), _) if nothing || cut_short && run.result.interrupted => (None, Ok(())),
        (Some(old), Some(place)) if cut_short => {
            let cleared = clear(old.path());
            drop(old);
            match cleared.and_then(|()| directory(place, &spec, &plan, &fabric, context)) {
                Ok(new) => (Some(new), Ok(())),
                Err(error) => (None, Err(error)),
            }
        }
        (dir, _) => (dir, Ok(())),
    };
    window::tell(run.result.too_short.as_ref(), dir.as_mut(), context.talk);
    if run.result.stats.aborts.of(Abort::TableFull.name()) > 0 {
        let full = match &run.result.full {
            Some(first) => format!("{TABLE_FULL}: {first}"),
            None => TABLE_FULL.to_owned(),
        };
        context.talk.warn(&full);
        dir.iter_mut().for_each(|dir| dir.note(format!("{full}.")));
    }
    let kept = dir.map_or(Ok(()), |mut dir| {
        dir.keep(0, &run.point(Row::new()))?;
        crate::schedule::note(&mut dir, context.talk);
        dir.finish(run.result.interrupted, run.json(&spec))
    });
    // The result before any error: what cannot be kept is at least seen.
    emit(args.output.json.as_ref(), &run.json(&spec), &shown(&run, &spec, args.history.as_deref()))?;
    replaced?;
    kept?;
    // A run that was stopped in its warm-up has a history all the same.
    let history = run.result.history.as_ref().filter(|history| !nothing || !history.txns().is_empty());
    let history = args.history.as_ref().zip(history);
    if let Some((path, history)) = history {
        transact::write_history(path, history, None)?;
        let (txns, bytes) = (history.txns().len(), std::fs::metadata(path).map_or(0, |meta| meta.len()));
        context.talk.say(format!(
            "wrote the history, {txns} transactions in {:.1} MB, to {path}; `doorbell check` judges it",
            bytes as f64 / 1e6,
            path = path.display()
        ));
    }
    if run.result.interrupted {
        let error = CliError::interrupted();
        return Err(match nothing {
            true if history.is_some() => for_nothing("the history of its warm-up is kept, and nothing else"),
            true => for_nothing("nothing is kept"),
            false => error.hint("what was measured until then is shown above"),
        });
    }
    run.passed(&context.command)
}

/// The plan that a spec names, tuned if it says so; location caches are as large as the spec says.
///
/// # Errors
/// As [`transact::plan`] and [`tune::best`].
pub fn resolve(spec: &RunSpec, fabric: &Fabric, context: &Context) -> Result<NamedPlan, CliError> {
    match transact::plan(spec, fabric)? {
        Some(named) => Ok(named),
        None => tune::best(spec, fabric, context),
    }
}

/// A result directory for one run, which may be in it already.
///
/// # Errors
/// If the directory cannot be used.
pub fn directory(
    place: &Place,
    spec: &RunSpec,
    plan: &NamedPlan,
    fabric: &Fabric,
    context: &Context,
) -> Result<ResultDir, CliError> {
    let mut asked = serde_json::to_value(spec).map_err(|e| CliError::check("no JSON").caused_by(&e))?;
    asked["files"] = serde_json::json!(spec.files()?);
    // A tuned plan depends on a profile: the plan itself is what ran.
    asked["plan"] = serde_json::json!(plan.plan);
    asked["plan_name"] = serde_json::json!(plan.name);
    let mut record: RunRecord = fabric.record(Kind::Run, asked, spec.seed, 1);
    let RunSpec { workload, protocol, fabric, .. } = spec;
    record.title =
        format!("{workload} under {protocol}, plan {}, on {fabric}{}", plan.name, spec.of_clocks());
    record.command.clone_from(&context.command);
    let mut dir = place.open(record, &[], context.talk)?;
    dir.lost().into_iter().for_each(|lost| context.talk.warn(lost));
    dir.note("Closed load: latencies suffer from coordinated omission.");
    dir.note(match (plan.plan.location_cache, spec.warm_cache) {
        (false, _) => "The plan uses no location cache.",
        (true, true) => {
            "Location caches started warm: they knew the records that a long run would have taught them."
        }
        (true, false) => "Location caches started cold: the run includes filling them.",
    });
    plan.notes.iter().cloned().chain(of_clocks(spec)).for_each(|note| dir.note(note));
    Ok(dir)
}

/// What a reader should know of a run whose clocks are wrong and whose protocol never asks them.
fn of_clocks(spec: &RunSpec) -> Option<String> {
    transact::without_clocks((spec.clock_skew.ns() > 0).then_some(spec.protocol.as_str()))
}

/// Whether a run was stopped before anything ended in it that counts.
fn nothing_ended(run: &Run) -> bool {
    let r = &run.result;
    let ended = r.stats.committed + r.stats.aborts.total() + r.stats.rolled_back.total();
    r.interrupted && (r.elapsed == Nanos(0) || ended == 0)
}

/// The end of a run that was stopped so early, and what is left of it.
fn for_nothing(kept: &str) -> CliError {
    CliError::new(Exit::Interrupted, format!("interrupted before anything was measured; {kept}"))
}

/// Removes what a run has left in its directory, the record last: without it the rest is nobody's.
fn clear(out: &Path) -> Result<(), CliError> {
    let gone = |done: std::io::Result<()>| match done {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(CliError::machine(format!("cannot clear {}", out.display())).caused_by(&error))
        }
        _ => Ok(()),
    };
    gone(std::fs::remove_dir_all(out.join("histograms")))?;
    let tables = TableName::of(Kind::Run).iter().map(|table| table.file());
    tables.chain(["run.json"]).try_for_each(|file| gone(std::fs::remove_file(out.join(file))))
}

/// Shows a run that its directory holds already.
fn show_kept(args: &RunArgs, dir: &ResultDir, context: &Context) -> Result<(), CliError> {
    let (record, out) = (dir.record(), dir.path().display());
    if args.history.is_some() {
        return Err(CliError::usage(format!("{out} holds this run: there is no history left to keep"))
            .hint("name another --out"));
    }
    context.talk.say(format!("nothing to measure, {out} holds this run"));
    let summary = &record.summary;
    let span = |name: &str| {
        let ns = summary["latency_ns"][name].as_f64();
        ns.map_or("not available".to_owned(), |ns| Nanos(ns as u64).to_string())
    };
    let people = format!(
        "{}\n{} committed, {} attempts aborted\nlatency mean {}, p50 {}, p99 {}\n{}isolation: {}\n",
        record.title,
        human_rate(summary["committed_per_s"].as_f64().unwrap_or(0.0)),
        human_rate(summary["aborted_per_s"].as_f64().unwrap_or(0.0)),
        span("mean"),
        span("p50"),
        span("p99"),
        measured_under(summary["lock_mode"].as_str(), summary["local_share"].as_f64()),
        summary["isolation"]["verdict"].as_str().unwrap_or("not checked"),
    );
    if let Some(short) = summary["too_short"].as_str() {
        context.talk.warn(short);
    }
    emit(args.output.json.as_ref(), summary, &people)?;
    let failed = |check: &serde_json::Value| check["passed"] == false;
    match summary["isolation"]["verdict"] == "fail"
        || summary["checks"].as_object().is_some_and(|checks| checks.values().any(failed))
    {
        true => Err(CliError::check(format!("the run in {out} failed its checks"))
            .hint("`--json -` shows which; name another --out to run it again")),
        false => Ok(()),
    }
}

/// How well the throughput is known, for people.
pub fn steadiness(found: &Steadiness) -> String {
    let interval = match found.means {
        Some(m) => format!(
            "± {:.2} % (95 % confidence, {} batches of {}{})",
            100.0 * m.relative,
            m.batches,
            found.batch,
            if m.independent { "" } else { ", correlated: the interval is too narrow" }
        ),
        None => "without a confidence interval: too little was counted".to_owned(),
    };
    let reached = match found.converged {
        Some(false) => "; NOT as precise as asked for",
        None if found.settled == Some(false) => {
            "; NOT steady in that time, as where backups have yet to apply their logs: give a longer duration, or a precision instead"
        }
        _ => "",
    };
    format!("{interval}, after {} of warm-up{reached}", found.warm_up)
}

/// How transactions of each kind of a mix ended, for people; nothing where there is one kind, or one alone was asked for.
fn by_kind(r: &RunResult) -> String {
    let ran: Vec<_> =
        r.kinds().filter(|(_, kind, _)| kind.committed + kind.aborted + kind.rolled_back > 0).collect();
    if ran.len() < 2 {
        return String::new();
    }
    let rows = ran.into_iter().map(|(name, kind, committed_per_s)| {
        let all = kind.committed + kind.aborted + kind.rolled_back;
        let span = |span: Option<Nanos>| span.map_or_else(String::new, |span| span.to_string());
        [
            name.replace('_', " "),
            human_rate(committed_per_s),
            percent(kind.aborted as f64 / all as f64),
            kind.rolled_back.to_string(),
            span(kind.latency.p50()),
            span(kind.latency.p99()),
        ]
    });
    format!(
        "\n{}",
        table(&["transaction", "committed", "of attempts aborted", "rolled back", "p50", "p99"], rows)
    )
}

/// The batch means that the interval comes from, for people: a bar for each, from the lowest to the highest.
fn batches(found: &Steadiness) -> String {
    let rates = found.batch_rates_per_s();
    let least = rates.iter().copied().fold(f64::INFINITY, f64::min);
    let most = rates.iter().copied().fold(0.0, f64::max);
    if rates.is_empty() {
        return String::new();
    }
    format!("batch means {} from {} to {}\n", bars(&rates), human_rate(least), human_rate(most))
}

/// How locks were held and how much was the own node's, without which rates cannot be compared; what is not known is left out.
fn measured_under(lock_mode: Option<&str>, local_share: Option<f64>) -> String {
    let locks = lock_mode.map(|mode| format!("locks: {mode}"));
    let records = local_share.map(|share| format!("records: {} of accesses on the own node", percent(share)));
    let known: Vec<String> = locks.into_iter().chain(records).collect();
    if known.is_empty() { String::new() } else { format!("{}\n", known.join("; ")) }
}

/// Of how many attempts the times of phases are.
fn sampling(result: &RunResult) -> String {
    let count = |phase: &Phase| result.stats.phase(*phase).latency.count();
    let posted = |phase: &&Phase| result.stats.phase(**phase).costs.verbs > 0;
    let most = Phase::ALL.iter().map(count).max().unwrap_or(0);
    let missing: Vec<&str> = Phase::ALL
        .iter()
        .filter(posted)
        .filter(|phase| count(phase) == 0)
        .map(|phase| phase.name())
        .collect();
    let sample =
        format!("p50 and p99 of phases are of the 1 attempt in {SAMPLE_EVERY} that is timed, here {most}");
    match missing.is_empty() {
        true => format!("{sample}\n"),
        false => format!("{sample}; none came to {}: a longer --duration times more\n", missing.join(", ")),
    }
}

/// The steps of a plan that its name does not tell, on a line of their own.
fn steps_of(run: &Run) -> String {
    let told = Preset::named(&run.plan).is_some();
    if told { String::new() } else { format!("\n{}: {}", run.plan, run.result.plan) }
}

/// The run for people; `history` is the file that it is kept in.
pub fn shown(run: &Run, spec: &RunSpec, history: Option<&Path>) -> String {
    let r = &run.result;
    if nothing_ended(run) {
        let when = if r.elapsed == Nanos(0) { "in the warm-up" } else { "before anything ended" };
        return format!("{}: interrupted {when}, nothing was measured\n", run.plan);
    }
    let span = |n: Option<Nanos>| n.map_or("not available".into(), |n| n.to_string());
    let latency = &r.stats.latency;
    let mut text = format!(
        "{} under {} on {}, seed {}: {} of {}, {} each{}\n\
         {}: {} committed ({} transactions in {}), {} attempts aborted\n\
         latency mean {}, p50 {}, p90 {}, p99 {}, p99.9 {}\n\
         per committed transaction: {:.2} verbs, {:.2} round trips, {:.2} doorbells\n",
        r.workload,
        r.protocol,
        spec.fabric,
        spec.seed,
        count(u64::from(r.shape.nodes), "node"),
        count(u64::from(r.shape.workers), "thread"),
        count(u64::from(r.plan.coroutines), "coroutine"),
        steps_of(run),
        run.plan,
        human_rate(r.committed_per_s()),
        r.stats.committed,
        r.elapsed,
        human_rate(r.aborted_per_s()),
        span(latency.mean_ns().map(|ns| Nanos(ns as u64))),
        span(latency.p50()),
        span(latency.p90()),
        span(latency.p99()),
        span(latency.p999()),
        r.verbs_per_committed(),
        r.round_trips_per_committed(),
        r.doorbells_per_committed(),
    );
    text.push_str(&measured_under(run.lock_mode(), r.local_share()));
    let lookups = r.cache.hits + r.cache.misses;
    if lookups > 0 {
        let share = 100.0 * r.cache.hits as f64 / lookups as f64;
        text.push_str(&format!(
            "location cache: {share:.1} % of {lookups} lookups hit, {} of them stale\n",
            r.cache.stale
        ));
    }
    // Messages that were lost, late or not ours are no matter of a quiet fabric.
    let rpc = &r.rpc;
    if rpc.retransmits + rpc.duplicates + rpc.malformed > 0 {
        text.push_str(&format!(
            "calls: {} sent, {} of them again; {} came twice, {} messages were malformed (warm-up included)\n",
            rpc.calls, rpc.retransmits, rpc.duplicates, rpc.malformed
        ));
    }
    let timed = |n: Option<Nanos>| n.map_or("not timed".into(), |n| n.to_string());
    let rows = Phase::ALL
        .into_iter()
        .filter(|&p| r.stats.phase(p).costs.verbs > 0 || r.stats.phase(p).latency.count() > 0);
    let rows = rows.map(|phase| {
        let stats = r.stats.phase(phase);
        let [verbs, round_trips, doorbells] = r.phase_per_committed(phase);
        [
            phase.name().to_owned(),
            timed(stats.latency.p50()),
            timed(stats.latency.p99()),
            format!("{verbs:.2}"),
            format!("{round_trips:.2}"),
            format!("{doorbells:.2}"),
        ]
    });
    if let Some(found) = &r.steadiness {
        text.push_str(&format!("throughput {}\n", steadiness(found)));
        text.push_str(&batches(found));
    }
    text.push('\n');
    text.push_str(&table(&["phase", "p50", "p99", "verbs", "round trips", "doorbells"], rows));
    if AnyProtocol::named(r.protocol).is_some_and(|protocol| protocol.needs().locks_at_touch()) {
        text.push_str(LOCKS_AT_TOUCH);
    }
    text.push_str(&sampling(r));
    text.push_str(&by_kind(r));
    for (what, share, of, counts) in [
        ("aborts", r.aborted_share(), "all attempts", &r.stats.aborts),
        (
            "rolled back by the application",
            r.rolled_back_share(),
            "what committed or was rolled back",
            &r.stats.rolled_back,
        ),
    ] {
        let told: Vec<String> =
            counts.iter().filter(|(_, n)| *n > 0).map(|(reason, n)| format!("{reason} {n}")).collect();
        if !told.is_empty() {
            let share = percent(share.unwrap_or(0.0));
            text.push_str(&format!("{what}, {share} of {of}: {}\n", told.join(", ")));
        }
    }
    if r.stats.given_up > 0 {
        text.push_str(&format!("given up after the last retry: {}\n", r.stats.given_up));
    }
    if let Some(p) = &run.prediction {
        let mean = Nanos(p.latency_mean_ns as u64);
        let doubt = p.doubt.as_ref().map_or(String::new(), |doubt| format!(", by a profile {doubt}"));
        text.push_str(&format!(
            "predicted: {} at {mean} mean latency{doubt}\n",
            human_rate(p.committed_per_s)
        ));
    }
    if !r.faults.is_empty() && !r.checks.is_empty() {
        text.push_str("the run broke off: what was under way stays unfinished, and checks find it so\n");
    }
    for check in &r.checks {
        let found = match check.passed {
            true if !run.says_something() => "nothing to check",
            true => "held",
            false => &check.detail,
        };
        text.push_str(&format!("check {}: {found}\n", check.name));
    }
    match run.judged() {
        Some(verdict) => text.push_str(&format!("isolation: {verdict}\n")),
        None if run.verdict.is_some() => text.push_str("isolation: nothing to check\n"),
        None if r.interrupted && r.history.is_some() => {
            let can = match history {
                Some(path) => format!("`doorbell check {}` can", path.display()),
                None => "with --history FILE `doorbell check` can".to_owned(),
            };
            text.push_str(&format!(
                "isolation: not checked (the run was interrupted, and its history is long; {can})\n"
            ));
        }
        None => text.push_str("isolation: not checked (no history was recorded)\n"),
    }
    if !run.says_something() {
        text.push_str(
            "no transaction committed in the measured time: checks and isolation say nothing of it\n",
        );
    }
    if run.disturbance.busy() == Some(true) {
        text.push_str(crate::schedule::WARNING);
    }
    if r.facts.events > 0 {
        text.push_str(&format!(
            "simulated: {} events ({}), {} of virtual time, fingerprint {:016x}\n",
            r.facts.events,
            r.facts.events_per_s().map_or("rate not available".into(), human_rate),
            r.facts.virtual_time,
            r.facts.fingerprint
        ));
    }
    text
}
