//! `doorbell characterize`: sweeps the primitives of one fabric, and leaves results and a profile.

use super::Context;
use crate::args::CharacterizeArgs;
use crate::cluster::Cluster;
use crate::cluster::point::Asked;
use crate::error::CliError;
use crate::fabrics::Fabric;
use crate::output::{emit, human_rate, table};
use crate::primitive::sampled;
use crate::schedule::Watch;
use crate::spec::FabricChoice;
use crate::sweep::usual_jobs;
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
    pub out: PathBuf,
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

/// The usual scope on a fabric. Real fabrics get two nodes of one thread, which two CPUs can run side by side.
pub fn usual_scope(virtual_time: bool, quick: bool) -> Scope {
    if virtual_time {
        Scope {
            nodes: 4,
            threads: 8,
            coroutines: 16,
            quick,
            warm_up: Nanos::from_micros(60),
            precision: None,
            window: Nanos::from_micros(if quick { 150 } else { 400 }),
        }
    } else {
        Scope {
            nodes: 2,
            threads: 1,
            coroutines: 8,
            quick,
            warm_up: Nanos::from_millis(5),
            precision: None,
            window: Nanos::from_millis(if quick { 60 } else { 200 }),
        }
    }
}

/// The command.
///
/// # Errors
/// As [`characterize`].
pub fn run(args: &CharacterizeArgs, context: &Context) -> Result<(), CliError> {
    if let Some(json) = &args.output.json {
        json.check()?;
    }
    let virtual_time = args.fabric.fabric.virtual_time();
    let usual = usual_scope(virtual_time, args.quick);
    let cluster = args.cluster.as_ref().map(|path| Cluster::read(path, args.join_within)).transpose()?;
    if let Some(cluster) = &cluster {
        Cluster::carries(&args.fabric.fabric)?;
        if args.precision.is_some() {
            return Err(CliError::usage(
                "--precision needs all nodes in one process; a cluster measures a fixed time",
            )
            .hint("give --duration"));
        }
        if let Some(nodes) = args.nodes
            && nodes != u32::from(cluster.file.count())
        {
            let file = cluster.file.count();
            return Err(CliError::usage(format!("--nodes {nodes}, and the cluster file names {file}")));
        }
    }
    let nodes = cluster.as_ref().map_or(usual.nodes, |cluster| cluster.file.count());
    let scope = Scope {
        nodes: args.nodes.map_or(nodes, |n| n as u16),
        threads: args.threads.map_or(usual.threads, |n| n as u16),
        coroutines: args.coroutines.unwrap_or(usual.coroutines),
        window: args.duration.map_or(usual.window, |d| d.nanos()),
        precision: args.precision,
        ..usual
    };
    let name = args.fabric.fabric.to_string().replace([':', '/'], "-");
    let wanted = Characterization {
        fabric: args.fabric.fabric.clone(),
        scope,
        only: args.bench.clone(),
        seed: args.seed,
        jobs: args.jobs.unwrap_or_else(|| usual_jobs(virtual_time)),
        out: args
            .output
            .out
            .clone()
            .unwrap_or_else(|| PathBuf::from(format!("doorbell-out/characterize-{name}"))),
        cluster,
    };
    let done = characterize(&wanted, context)?;
    let record = RunRecord::read(&done.dir)?;
    let rows = summary_rows(&record.summary);
    let mut people = table(&["primitive", "latency p50", "latency p99", "best rate"], rows);
    people.push_str(&format!("\nresults: {}\n", done.dir.display()));
    if let Some(profile) = &done.profile {
        people.push_str(&format!("profile: {}\n", profile_path(&done.dir, profile).display()));
    } else if args.bench.is_empty() {
        people.push_str("no profile: it is fitted to one-sided verbs, which this fabric does not have\n");
    }
    people.push_str(&format!("a page with charts: doorbell report {}\n", done.dir.display()));
    emit(args.output.json.as_ref(), &record, &people)
}

/// Measures what is missing in the result directory and fits the profile.
///
/// # Errors
/// If the fabric does not work here, the directory cannot be used, a point fails, or Ctrl-C ends it.
pub fn characterize(wanted: &Characterization, context: &Context) -> Result<Characterized, CliError> {
    if wanted.scope.nodes < 2 {
        return Err(CliError::usage("primitive benchmarks need at least two nodes: one has nobody to ask")
            .hint("use --nodes 2"));
    }
    let fabric = Fabric::open(&wanted.fabric, wanted.seed)?;
    let caps = fabric.caps()?;
    // With their numbers in the whole list, by which processes name them.
    let mut points: Vec<(usize, Point)> =
        bench::points(&wanted.scope, caps.ud_mtu).into_iter().enumerate().collect();
    points.retain(|(_, p)| caps.one_sided || matches!(p.verb, BenchVerb::Rpc | BenchVerb::RpcWrite));
    let known: Vec<&str> = points.iter().map(|(_, p)| p.question).fold(Vec::new(), |mut names, name| {
        if !names.contains(&name) {
            names.push(name);
        }
        names
    });
    for name in &wanted.only {
        if !known.contains(&name.as_str()) {
            return Err(
                CliError::usage(format!("no benchmark `{name}`")).hint(crate::names::suggest(name, &known))
            );
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
    let mut dir = ResultDir::create(&wanted.out, record, &[])?;
    let session = wanted.cluster.as_ref().map(|cluster| cluster.drive(&context.talk)).transpose()?;
    // One point at a time over processes, whatever --jobs says: they would share the devices.
    let (jobs, session) = (if session.is_some() { 1 } else { wanted.jobs }, session.map(Mutex::new));
    context.interrupt.listen()?;
    let sweep = context.sweep(format!("characterize {}", wanted.fabric), jobs);
    sweep.run(
        &mut dir,
        |number| {
            let point = &points[number as usize];
            let watch = Watch::begin(wanted.fabric.virtual_time());
            let stop = context.interrupt.flag();
            let sample = match (&wanted.cluster, &session) {
                (Some(cluster), Some(session)) => {
                    let asked = Asked {
                        fabric: wanted.fabric.clone(),
                        scope: *scope,
                        ud_mtu: caps.ud_mtu,
                        number: numbers[number as usize],
                        seed: wanted.seed,
                    };
                    let mut session = session.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
                    session.begin(&asked.encode())?;
                    asked
                        .measure(cluster, &mut session, stop)?
                        .ok_or_else(|| CliError::check("bug: node 0 has no whole point"))?
                }
                _ => bench::run(&fabric.spec, scope, point, wanted.seed, stop).map_err(|e| match context
                    .interrupt
                    .asked()
                {
                    true => CliError::interrupted(),
                    false => CliError::check("the benchmark failed").caused_by(&e),
                })?,
            };
            let disturbance = watch.end();
            if context.interrupt.asked() {
                return Err(CliError::interrupted());
            }
            Ok(PointResult {
                row: disturbance.told(row(point, &sample)),
                histogram: Some(sample.latency),
                ..PointResult::default()
            })
        },
        |dir| summarize(dir, &points),
    )?;
    let profile = profile_of(&fabric, &caps, &dir, &points, wanted)?;
    if let Some(profile) = &profile {
        let text =
            profile.to_yaml().map_err(|e| CliError::check("the profile cannot be written").caused_by(&e))?;
        write_atomic(&profile_path(&wanted.out, profile), text.as_bytes())?;
    }
    Ok(Characterized { dir: wanted.out.clone(), profile })
}

fn profile_path(dir: &Path, profile: &Profile) -> PathBuf {
    dir.join(format!("{}.profile.yaml", profile.name))
}

/// The profile to keep beside the results: the simulated one, what an earlier run left, or one fitted to the rows, of
/// this run and of those it resumed.
fn profile_of(
    fabric: &Fabric,
    caps: &Caps,
    dir: &ResultDir,
    points: &[Point],
    wanted: &Characterization,
) -> Result<Option<Profile>, CliError> {
    if let Some(simulated) = &fabric.profile {
        return Ok(Some(simulated.clone()));
    }
    let left = wanted.out.join(format!("{}.profile.yaml", caps.fabric));
    if left.exists() {
        let profile =
            Profile::load(&left).map_err(|e| CliError::usage("the profile cannot be read").caused_by(&e))?;
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
        let number = |column| row.get(column).and_then(|cell| cell.parse().ok());
        Some(Rated { point, rate_per_s: number("rate_per_s")?, median_ns: number("latency_p50_ns") })
    };
    let rated: Vec<Rated> = rows.iter().filter_map(rated).collect();
    let mut machine = Machine::here();
    if let Some(cluster) = &wanted.cluster {
        // All hosts together; they are taken to be alike.
        machine.cores *= cluster.hosts();
    }
    bench::fit(&rated, caps, wanted.scope.nodes, &machine)
        .map(Some)
        .map_err(|e| CliError::check("no profile could be fitted").caused_by(&e))
}

/// A point's row of `points.csv`.
pub fn row(point: &Point, sample: &Sample) -> Row {
    let two_sided = matches!(point.verb, BenchVerb::Rpc | BenchVerb::RpcWrite);
    let verb = match point.rung {
        Some(_) if two_sided => "two-sided",
        Some(_) => "one-sided",
        None => point.verb.name(),
    };
    sampled(Row::new(), point, sample)
        .with("bench", point.question)
        .with("verb", verb)
        .with("instructions_per_op", sample.instructions_per_op.as_ref().ok().copied())
        .with("servers", (point.servers > 0).then_some(point.servers))
        .with("measured_ns", sample.steadiness.measured)
}

/// Per verb: unloaded latency and the best rate of any point, with the point.
fn summarize(dir: &ResultDir, points: &[Point]) -> Value {
    let Ok(rows) = dir.rows(TableName::Points) else { return Value::Null };
    let number = |row: &Row, column: &str| row.get(column).and_then(|text| text.parse::<f64>().ok());
    let mut verbs = Vec::new();
    for verb in BenchVerb::ALL {
        let of_verb = || rows.iter().filter(|row| row.get("verb") == Some(verb.name()));
        let alone = of_verb().find(|row| row.get("bench") == Some("latency"));
        let best = of_verb().filter_map(|row| number(row, "rate_per_s")).fold(0.0, f64::max);
        verbs.push(json!({
            "verb": verb.name(),
            "latency_p50_ns": alone.and_then(|row| number(row, "latency_p50_ns")),
            "latency_p99_ns": alone.and_then(|row| number(row, "latency_p99_ns")),
            "best_rate_per_s": best,
        }));
    }
    let counted = rows.iter().any(|row| row.get("instructions_per_op").is_some_and(|text| !text.is_empty()));
    json!({
        "verbs": verbs,
        "points": points.len(),
        "hardware_counters": if counted { "instructions" } else { "not available" },
    })
}

fn summary_rows(summary: &Value) -> Vec<[String; 4]> {
    let latency = |v: &Value| v.as_f64().map_or("not available".into(), |ns| Nanos(ns as u64).to_string());
    summary["verbs"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|verb| {
            [
                verb["verb"].as_str().unwrap_or_default().to_owned(),
                latency(&verb["latency_p50_ns"]),
                latency(&verb["latency_p99_ns"]),
                verb["best_rate_per_s"].as_f64().map_or("not available".into(), human_rate),
            ]
        })
        .collect()
}
