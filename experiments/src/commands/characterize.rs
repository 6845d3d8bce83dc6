//! `doorbell characterize`: sweeps the primitives of one fabric, and leaves results and a profile.

use super::Context;
use crate::args::{CharacterizeArgs, each_once};
use crate::calibrate::engine::{self, engine_time};
use crate::calibrate::{Targets, nearest};
use crate::cluster::point::{Asked, Numbered};
use crate::cluster::{Cluster, give_up};
use crate::directory::{HOME, Place};
use crate::error::CliError;
use crate::fabrics::Fabric;
use crate::names;
use crate::output::{command_line, emit, human_rate, table};
use crate::primitive::{failed, sampled, verb_of};
use crate::schedule::{self, Watch};
use crate::scope::{self, usual_scope};
use crate::spec::{FabricChoice, limits};
use crate::sweep::usual_jobs;
use crate::window::long_enough;
use primitives::bench::{self, BenchVerb, Point, Rated, Sample, Scope};
use primitives::fabric::Caps;
use primitives::measure::{Kind, Machine, PointResult, ResultDir, Row, RunRecord, TableName, write_atomic};
use primitives::profile::Profile;
use primitives::units::Nanos;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

/// A characterization to make.
pub struct Characterization {
    /// The fabric.
    pub fabric: FabricChoice,
    /// How much of it.
    pub scope: Scope,
    /// Only these questions; all if empty.
    pub only: Vec<String>,
    /// Seed of every draw.
    pub seed: u64,
    /// Points at a time.
    pub jobs: usize,
    /// Where results go.
    pub out: Place,
    /// A point of which too little ended is measured again, for as long as it takes: nobody asked for just that time.
    pub lengthen: bool,
    /// The cluster of processes to measure over, as its node 0.
    pub cluster: Option<Cluster>,
}

/// What a characterization leaves.
pub struct Characterized {
    /// The result directory.
    pub dir: PathBuf,
    /// The profile: fitted where time is real, the simulated one where it is virtual. `None` if only some questions
    /// were asked.
    pub profile: Option<Profile>,
}

/// How well rates are to be known where nobody says: a first look takes a fixed time, and so does what is to take a time that was given; a
/// cluster's processes count by themselves, and none of them could say when all have counted enough.
fn usual_precision(args: &CharacterizeArgs) -> Option<f64> {
    let fixed = args.quick || args.duration.is_some() || args.cluster.is_some();
    (!fixed).then_some(limits::USUAL_PRECISION)
}

/// The command.
///
/// # Errors
/// As [`characterize`].
pub fn run(args: &CharacterizeArgs, context: &Context) -> Result<(), CliError> {
    if let Some(json) = &args.output.json {
        json.check()?;
    }
    each_once("--bench", &args.bench)?;
    let virtual_time = args.fabric.fabric.virtual_time();
    let cluster = args.cluster.as_ref().map(|path| Cluster::read(path, args.join_within)).transpose()?;
    if let Some(cluster) = &cluster {
        Cluster::carries(&args.fabric.fabric)?;
        Cluster::measures_for(args.precision)?;
        cluster.names(args.nodes, "--nodes")?;
    }
    let usual = match args.duration {
        None if virtual_time => {
            scope::for_profile(&Fabric::open(&args.fabric.fabric, args.seed)?, args.quick)?
        }
        _ => usual_scope(virtual_time, args.quick),
    };
    let nodes = cluster.as_ref().map_or(usual.nodes, |cluster| cluster.file.count());
    let scope = Scope {
        nodes: args.nodes.map_or(nodes, |n| n as u16),
        threads: args.threads.map_or(usual.threads, |n| n as u16),
        coroutines: args.coroutines.unwrap_or(usual.coroutines),
        window: args.duration.map_or(usual.window, |d| d.nanos()),
        precision: args.precision.or(usual_precision(args)),
        ..usual
    };
    let name = names::for_file(&args.fabric.fabric);
    let wanted = Characterization {
        fabric: args.fabric.fabric.clone(),
        scope,
        only: args.bench.clone(),
        seed: args.seed,
        lengthen: args.duration.is_none(),
        jobs: args.jobs.unwrap_or_else(|| usual_jobs(virtual_time)),
        out: Place::new(args.output.out.as_ref(), Path::new(HOME), &format!("characterize-{name}")),
        cluster,
    };
    let done = characterize(&wanted, context)?;
    let record = RunRecord::read(&done.dir)?;
    let mut people = summary_table(&record.summary);
    people.push_str(&format!("\nresults: {}\n", done.dir.display()));
    if let Some(profile) = &done.profile {
        people.push_str(&format!("profile: {}\n", profile_path(&done.dir, &profile.name).display()));
        people.push_str(&what_next(profile, &done.dir));
    } else if args.bench.is_empty() {
        people.push_str("no profile: it is fitted to one-sided verbs, which this fabric does not have\n");
    } else {
        people.push_str("no profile: it is fitted to all benchmarks, and only some were asked for\n");
    }
    people.push_str(&format!("a page with charts: doorbell report {}\n", done.dir.display()));
    let mut document = serde_json::to_value(&record).map_err(|e| CliError::check("no JSON").caused_by(&e))?;
    document["fitted"] = json!(done.profile.as_ref().map(|profile| {
        json!({ "profile": profile_path(&done.dir, &profile.name), "doubt": profile.doubt })
    }));
    emit(args.output.json.as_ref(), &document, &people)
}

/// What to know of the profile that a characterization left before anything is foretold by it.
fn what_next(profile: &Profile, dir: &Path) -> String {
    match &profile.doubt {
        Some(doubt) if profile.is_doubted(bench::UNCALIBRATED) => {
            format!("  it is {doubt}\n  next: {}\n", calibrating(profile, dir))
        }
        Some(doubt) => format!("  it was {doubt}\n"),
        None => String::new(),
    }
}

/// The command that tells the device's work from the core's, by the characterization that `profile` was fitted to.
pub(super) fn calibrating(profile: &Profile, dir: &Path) -> String {
    let fitted = dir.with_file_name(format!("{}.calibrated.profile.yaml", names::for_file(&profile.name)));
    let args = ["", "calibrate", "--from", &dir.to_string_lossy(), "--out", &fitted.to_string_lossy()];
    command_line(args.map(str::to_owned))
}

/// Measures what is missing in the result directory and fits the profile.
///
/// # Errors
/// If the fabric does not work here, the directory cannot be used, a point fails, or Ctrl-C ends it.
pub fn characterize(wanted: &Characterization, context: &Context) -> Result<Characterized, CliError> {
    if wanted.scope.nodes < 2 {
        return Err(CliError::usage("primitive benchmarks need at least two nodes: one has nobody to ask")
            .hint(match wanted.cluster {
                Some(_) => "name a second host in the cluster file",
                None => "use --nodes 2; in an experiment file `peers: own` has a node ask itself",
            }));
    }
    let fabric = Cluster::open_first(wanted.cluster.as_ref(), &wanted.fabric, wanted.seed)?;
    fabric.warn(context.talk);
    let caps = fabric.caps()?;
    // With their numbers in the whole list, by which processes name them.
    let mut points: Vec<(usize, Point)> =
        bench::points(&wanted.scope, caps.ud_mtu).into_iter().enumerate().collect();
    let every = questions(&points);
    points.retain(|(_, p)| caps.one_sided || matches!(p.verb, BenchVerb::Rpc | BenchVerb::RpcWrite));
    let known = questions(&points);
    for name in &wanted.only {
        if !known.contains(&name.as_str()) {
            let why = match every.contains(&name.as_str()) {
                true => format!("benchmark `{name}` needs one-sided verbs, which {} has not", wanted.fabric),
                false => format!("no benchmark `{name}`"),
            };
            return Err(CliError::usage(why).hint(crate::names::suggest(name, &known)));
        }
    }
    points.retain(|(_, p)| wanted.only.is_empty() || wanted.only.iter().any(|name| name == p.question));
    let (numbers, points): (Vec<usize>, Vec<Point>) = points.into_iter().unzip();
    crate::memory::check_points(caps.virtual_time, &wanted.scope, &points, wanted.jobs)?;

    let scope = &wanted.scope;
    let spec = json!({
        "fabric": wanted.fabric, "nodes": scope.nodes, "threads": scope.threads, "coroutines": scope.coroutines,
        "quick": scope.quick, "window_ns": scope.window, "warm_up_ns": scope.warm_up, "precision": scope.precision, "only": wanted.only,
    });
    let mut record = fabric.record(Kind::Characterize, spec, wanted.seed, points.len() as u64);
    record.title = format!("Primitives of {}", wanted.fabric);
    record.question = Some("What does each primitive cost, and which optimizations pay?".into());
    record.command = context.command.clone();
    record.notes.push(
        "Closed load: while one request is late, those its coroutine would have sent are not counted as late \
         (coordinated omission)."
            .into(),
    );
    if !caps.one_sided {
        record.notes.push(format!("{} has no one-sided verbs: only calls are measured.", caps.fabric));
    }
    if wanted.cluster.is_some() {
        record.notes.push("Each node was a process of its own.".into());
    }
    let mut dir = wanted.out.open(record, &[], context.talk)?;
    let out = dir.path().to_owned();
    let left = profile_path(&out, &caps.fabric);
    if fabric.profile.is_none() && left.exists() && !dir.missing().is_empty() {
        // What was tuned and run by it holds on to it.
        dir.note(format!(
            "{} was fitted before some of these points were measured, and is kept as it was.",
            left.file_name().unwrap_or_default().display()
        ));
    }
    let session = wanted.cluster.as_ref().map(|cluster| cluster.drive(context)).transpose()?;
    // One point at a time over processes, whatever --jobs says: they would share the devices.
    let (jobs, session) = (if session.is_some() { 1 } else { wanted.jobs }, session.map(Mutex::new));
    context.interrupt.listen()?;
    let sweep = context.sweep(format!("characterize {}", wanted.fabric), jobs);
    let measured = sweep.run(
        &mut dir,
        |number| {
            let point = &points[number as usize];
            let watch = Watch::begin(wanted.fabric.virtual_time(), wanted.cluster.is_none());
            let stop = context.interrupt.flag();
            let measured = |scope: Scope| match (&wanted.cluster, &session) {
                (Some(cluster), Some(session)) => {
                    let asked = Asked::Numbered(Numbered {
                        fabric: wanted.fabric.clone(),
                        scope,
                        ud_mtu: caps.ud_mtu,
                        number: numbers[number as usize],
                        seed: wanted.seed,
                    });
                    let mut session = session.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
                    asked.drive(cluster, &mut session, stop)
                }
                _ => bench::run(&fabric.spec, &scope, point, wanted.seed, stop).map_err(|e| {
                    match context.interrupt.asked() {
                        true => CliError::interrupted(),
                        false => failed(&e),
                    }
                }),
            };
            let ended_in = |window: Nanos| {
                schedule::until_something_ended(
                    window,
                    caps.virtual_time,
                    wanted.lengthen || !caps.virtual_time,
                    &context.interrupt,
                    |window| measured(Scope { window, ..*scope }),
                    |sample| sample.ops,
                )
            };
            let sample = long_enough(scope.window, wanted.lengthen, ended_in, |sample| sample.too_short)?;
            let disturbance = watch.end();
            Ok(PointResult {
                row: disturbance.told(row(point, &sample)),
                histogram: Some(sample.latency),
                ..PointResult::default()
            })
        },
        |dir| summarize(dir, &points, wanted.scope.nodes),
    );
    if let (Err(error), Some(session)) = (&measured, &session) {
        give_up(&mut session.lock().unwrap_or_else(|poisoned| poisoned.into_inner()), error);
    }
    measured?;
    let profile = profile_of(&fabric, &caps, &dir, &points, wanted, context)?;
    if let Some(profile) = &profile {
        let path = profile_path(&out, &profile.name);
        let text =
            profile.to_yaml().map_err(|e| CliError::check("the profile cannot be written").caused_by(&e))?;
        if !path.exists() {
            write_atomic(&path, text.as_bytes())?;
        }
    }
    Ok(Characterized { dir: out, profile })
}

/// The questions of the points, each once, in their order.
fn questions(points: &[(usize, Point)]) -> Vec<&'static str> {
    points.iter().map(|(_, point)| point.question).fold(Vec::new(), |mut names, name| {
        if !names.contains(&name) {
            names.push(name);
        }
        names
    })
}

/// Where a characterization leaves the profile of the fabric `name`.
pub(super) fn profile_path(dir: &Path, name: &str) -> PathBuf {
    dir.join(format!("{}.profile.yaml", names::for_file(&name)))
}

/// The profile to keep beside the results: the simulated one, what an earlier run left, or one fitted to the rows, of
/// this run and of those it resumed.
fn profile_of(
    fabric: &Fabric,
    caps: &Caps,
    dir: &ResultDir,
    points: &[Point],
    wanted: &Characterization,
    context: &Context,
) -> Result<Option<Profile>, CliError> {
    if let Some(simulated) = &fabric.profile {
        return Ok(Some(simulated.clone()));
    }
    let left = profile_path(dir.path(), &caps.fabric);
    if left.exists() {
        let profile = Profile::load(&left).map_err(|e| {
            CliError::usage("the profile cannot be read")
                .caused_by(&e)
                .hint("remove that file: the same command fits it again, to the points that are there")
        })?;
        return Ok(Some(profile));
    }
    if !wanted.only.is_empty() || !caps.one_sided {
        return Ok(None);
    }
    let rows = dir
        .rows(TableName::Points)
        .map_err(|e| CliError::check("the points cannot be read again").caused_by(&e))?;
    let rated = |row: &Row| {
        let point = points.get(row.get("point")?.parse::<usize>().ok()?)?.clone();
        Some(Rated { point, rate_per_s: row.number("rate_per_s")?, median_ns: row.number("latency_p50_ns") })
    };
    let rated: Vec<Rated> = rows.iter().filter_map(rated).collect();
    let mut machine = Machine::here();
    if let Some(cluster) = &wanted.cluster {
        // All hosts together; they are taken to be alike.
        machine.cores *= cluster.hosts();
    }
    let mut profile = match caps.card {
        true => {
            context.talk.say("comparing with the shipped cards, to begin with the one that comes nearest");
            let (spec, seed) = (&dir.record().spec, wanted.seed);
            let targets =
                Targets::of_rows(&rows, spec, seed, format!("characterization of {}", caps.fabric))?;
            nearest::begin(&nearest::cards()?, &targets, caps, &machine, &context.interrupt)?
        }
        false => bench::fit(&rated, caps, wanted.scope.nodes, &machine)
            .map_err(|e| CliError::check("no profile could be fitted").caused_by(&e))?,
    };
    // Of a device, how much of a request is waiting is not known yet, and so not what remains either.
    let mut busy_engine = false;
    if !bench::waits_for_device(caps) {
        let (stop, repeat) = (context.interrupt.flag(), context.command.as_str());
        let timed = engine_time(&mut profile, fabric, engine::WINDOW, wanted.seed, stop, repeat);
        busy_engine = timed.map_err(|error| match context.interrupt.asked() {
            true => CliError::interrupted().hint(format!("go on with: {repeat}")),
            false => error.context("what the engine computes could not be measured"),
        })?;
    }
    if let Some(busy) = schedule::doubt(&rows, busy_engine) {
        profile.add_doubt(&busy);
    }
    Ok(Some(profile))
}

/// A point's row of `points.csv`.
pub fn row(point: &Point, sample: &Sample) -> Row {
    sampled(Row::new(), point, sample)
        .with("bench", point.question)
        .with("verb", verb_of(point))
        .with("instructions_per_op", sample.instructions_per_op.as_ref().ok().copied())
        .with("servers", (point.servers > 0).then_some(point.servers))
        .with("measured_ns", sample.steadiness.measured)
}

/// The question that measures requests alone: its rates say nothing of what a card can do.
const UNLOADED: &str = "latency";

/// Per verb: unloaded latency, and the best rate of any loaded point, of all nodes and of one, with its question. What was
/// not asked for is null.
fn summarize(dir: &ResultDir, points: &[Point], nodes: u16) -> Value {
    let Ok(rows) = dir.rows(TableName::Points) else { return Value::Null };
    let mut verbs = Vec::new();
    for verb in BenchVerb::ALL {
        let of_verb = || rows.iter().filter(|row| row.get("verb") == Some(verb.name()));
        let alone = of_verb().find(|row| row.get("bench") == Some(UNLOADED));
        let loaded = of_verb().filter(|row| row.get("bench") != Some(UNLOADED));
        let best = loaded
            .filter_map(|row| Some((row.number("rate_per_s")?, row)))
            .max_by(|a, b| a.0.total_cmp(&b.0));
        let asked = best.map(|(_, row)| row.number("servers").unwrap_or(f64::from(nodes)));
        verbs.push(json!({
            "verb": verb.name(),
            "latency_payload_bytes": alone.and_then(|row| row.number("payload_bytes")),
            "latency_p50_ns": alone.and_then(|row| row.number("latency_p50_ns")),
            "latency_p99_ns": alone.and_then(|row| row.number("latency_p99_ns")),
            "best_rate_per_s": best.map(|(rate, _)| rate),
            "best_rate_per_machine_per_s": best.zip(asked).map(|((rate, _), asked)| rate / asked.max(1.0)),
            "best_rate_bench": best.and_then(|(_, row)| row.get("bench")),
        }));
    }
    let counted = rows.iter().any(|row| row.get("instructions_per_op").is_some_and(|text| !text.is_empty()));
    json!({
        "verbs": verbs,
        "nodes": nodes,
        "points": points.len(),
        "busy_points": schedule::busy_among(&rows),
        "hardware_counters": if counted { "instructions" } else { "not available" },
    })
}

/// The summary for people: what was measured, and what would measure the rest.
fn summary_table(summary: &Value) -> String {
    let latency = |v: &Value| v.as_f64().map_or("not measured".into(), |ns| Nanos(ns as u64).to_string());
    let rate = |v: &Value| v.as_f64().map_or("not measured".into(), human_rate);
    let of = |verb: &Value| {
        [
            verb["verb"].as_str().unwrap_or_default().to_owned(),
            latency(&verb["latency_p50_ns"]),
            latency(&verb["latency_p99_ns"]),
            rate(&verb["best_rate_per_s"]),
            rate(&verb["best_rate_per_machine_per_s"]),
            verb["best_rate_bench"].as_str().unwrap_or("–").to_owned(),
        ]
    };
    let rows: Vec<[String; 6]> = summary["verbs"].as_array().into_iter().flatten().map(of).collect();
    let measured = |from: usize| rows.iter().any(|row| row[from] != "not measured");
    let total = match summary["nodes"].as_u64() {
        Some(nodes) => format!("best rate, {nodes} nodes"),
        None => "best rate, all nodes".to_owned(),
    };
    let head = ["primitive", "latency p50", "latency p99", &total, "a machine", "at"];
    let mut text = table(&head, rows.iter().cloned());
    let mut payloads: Vec<u64> = summary["verbs"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|verb| verb["latency_payload_bytes"].as_f64())
        .map(|bytes| bytes as u64)
        .collect();
    payloads.dedup();
    if let [bytes] = payloads.as_slice() {
        text.push_str(&format!("latency: of one request alone, of {bytes} B\n"));
    }
    match summary["hardware_counters"].as_str() {
        Some("instructions") => {
            text.push_str("hardware counters: column instructions_per_op of points.csv\n")
        }
        Some(none) => text.push_str(&format!("hardware counters: {none}\n")),
        None => {}
    }
    if !measured(1) {
        text.push_str("latency of a request alone: --bench latency measures it\n");
    }
    if !measured(3) {
        text.push_str("best rates need load: --bench threads or outstanding, or all benchmarks\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_profile_of_a_device_is_told_with_its_caveat_and_the_next_command() {
        let mut profile = Profile::shipped("cx4-edr").unwrap();
        profile.name = "verbs:mlx5_0".into();
        let dir = Path::new("results/char");
        assert_eq!(what_next(&profile, dir), "");
        profile.add_doubt("measured on a busy machine: all");
        assert_eq!(what_next(&profile, dir), "  it was measured on a busy machine: all\n");
        profile.add_doubt(&format!("{}: waiting is taken for work", bench::UNCALIBRATED));
        let told = what_next(&profile, dir);
        for part in [
            "busy machine: all; and not calibrated yet: waiting is taken for work\n",
            "\n  next: doorbell calibrate --from results/char --out results/verbs-mlx5_0.calibrated.profile.yaml\n",
        ] {
            assert!(told.contains(part), "no {part}:\n{told}");
        }
    }

    #[test]
    fn what_was_not_measured_says_what_would_measure_it() {
        let verb = |p50: Option<u64>, rate: Option<f64>| {
            json!({ "nodes": 4, "verbs": [{
                "verb": "read", "latency_payload_bytes": p50.map(|_| 8), "latency_p50_ns": p50, "latency_p99_ns": p50, "best_rate_per_s": rate,
                "best_rate_per_machine_per_s": rate.map(|rate| rate / 4.0), "best_rate_bench": rate.map(|_| "threads"),
            }] })
        };
        let latency_alone = summary_table(&verb(Some(1800), None));
        assert!(latency_alone.contains("not measured") && latency_alone.contains("best rates need load"));
        assert!(!latency_alone.contains("/s\n"), "{latency_alone}");
        assert!(latency_alone.contains("latency: of one request alone, of 8 B\n"), "{latency_alone}");
        let mut both = verb(Some(1800), Some(8e7));
        both["hardware_counters"] = "not available".into();
        let both = summary_table(&both);
        assert!(both.contains("hardware counters: not available\n"), "{both}");
        for part in ["best rate, 4 nodes", "a machine", "80.00 M/s", "20.00 M/s", "threads", "1800 ns"] {
            assert!(both.contains(part), "no {part}:\n{both}");
        }
        assert!(summary_table(&verb(None, Some(8e7))).contains("--bench latency measures it"));
    }
}
