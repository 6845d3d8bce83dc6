//! `doorbell study`: one transaction phase, alone, in each variant, by coroutines.

use super::Context;
use crate::args::{StudyArgs, each_once};
use crate::directory::{HOME, Place};
use crate::error::CliError;
use crate::fabrics::Fabric;
use crate::names;
use crate::output::{emit, human_rate, table};
use crate::schedule::{Watch, until_something_ended};
use crate::spec::{FabricChoice, Span};
use crate::sweep::usual_jobs;
use crate::window::long_enough;
use phases::study::{Spec, StudyError, Subject};
use primitives::measure::{Kind, PointResult, Precision, Row, TableName, count, known_columns};
use primitives::mesh::{LaunchError, Shape, WorkerConfig};
use primitives::units::Nanos;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// Coroutines of each variant, up to the number asked for.
const COROUTINES: [u32; 6] = [1, 2, 4, 8, 16, 32];

/// A study to make.
pub struct Study {
    /// The phase.
    pub subject: Subject,
    /// The fabric.
    pub fabric: FabricChoice,
    /// Nodes and threads.
    pub shape: Shape,
    /// Most coroutines per thread.
    pub coroutines: u32,
    /// What else is varied.
    pub settings: Settings,
    /// Measured time per point.
    pub duration: Span,
    /// A point of which too little ended is measured again, for as long as it takes: nobody asked for just that time.
    pub lengthen: bool,
    /// Seed of every draw.
    pub seed: u64,
    /// Points at a time.
    pub jobs: Option<usize>,
    /// Where results go.
    pub out: Place,
}

impl Study {
    /// How well rates are to be known where nobody said for how long to measure: within 2 %, or as well as many times the usual time tells.
    fn precision(&self, least: Nanos) -> Option<Precision> {
        let times = if self.fabric.virtual_time() { 400 } else { 4 };
        let most = Nanos(least.0.saturating_mul(times));
        self.lengthen.then_some(Precision { relative: 0.02, least, most })
    }
}

/// Values of a study's axes beside variants and coroutines, each of which is tried with each; the first ones are the usual.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Bytes of payload per record.
    pub payload_bytes: Vec<u32>,
    /// Exponents of the keys' popularity.
    pub skew: Vec<f64>,
    /// Records per operation.
    pub records: Vec<u32>,
    /// Computation per operation.
    pub think: Vec<Nanos>,
}

impl Default for Settings {
    /// One value each: 16 B, uniform keys, 4 records, no computation.
    fn default() -> Settings {
        Settings { payload_bytes: vec![16], skew: vec![0.0], records: vec![4], think: vec![Nanos(0)] }
    }
}

/// The axes of [`Settings`], as columns.
const AXES: [&str; 4] = ["payload_bytes", "skew", "records", "think_us"];

/// What figures by them are called.
const TITLES: [&str; 4] = [
    "Rate by payload, bytes a record",
    "Rate by skew of the keys",
    "Rate by records an operation",
    "Rate by what a core computes for each operation, µs",
];

/// A point's value on each of them, as text.
fn on_axes(point: &Spec) -> [String; 4] {
    let think_us = point.think.0 as f64 / 1e3;
    [point.payload_bytes.to_string(), point.skew.to_string(), point.records.to_string(), think_us.to_string()]
}

impl Settings {
    /// A point for each combination of values.
    fn each(&self, usual: Spec) -> Vec<Spec> {
        let mut points = vec![usual];
        let mut over = |with: &dyn Fn(Spec) -> Vec<Spec>| {
            points = points.drain(..).flat_map(with).collect();
        };
        over(&|p| self.payload_bytes.iter().map(|&payload_bytes| Spec { payload_bytes, ..p }).collect());
        over(&|p| self.skew.iter().map(|&skew| Spec { skew, ..p }).collect());
        over(&|p| self.records.iter().map(|&records| Spec { records, ..p }).collect());
        over(&|p| self.think.iter().map(|&think| Spec { think, ..p }).collect());
        points
    }
}

/// Which axes have several values among these points.
fn varied(points: &[Spec]) -> Vec<usize> {
    let differs = |&axis: &usize| points.iter().any(|p| on_axes(p)[axis] != on_axes(&points[0])[axis]);
    (0..AXES.len()).filter(differs).collect()
}

/// A figure for each axis that varies: rates of the variants, all else being usual.
fn figures(points: &[Spec], most: u32) -> Value {
    let usual = points.first().map(on_axes).unwrap_or_default();
    let varied = varied(points);
    let figure = |&axis: &usize| {
        let others = varied.iter().filter(|&&other| other != axis);
        let mut at: serde_json::Map<String, Value> =
            others.map(|&other| (AXES[other].to_owned(), usual[other].as_str().into())).collect();
        at.insert("coroutines".to_owned(), most.to_string().into());
        json!({ "title": TITLES[axis], "x": AXES[axis], "y": "rate_per_s", "by": "variant", "at": at })
    };
    varied.iter().map(figure).collect()
}

/// The command.
///
/// # Errors
/// As [`study`].
pub fn run(args: &StudyArgs, context: &Context) -> Result<(), CliError> {
    let instead = "`doorbell run --cluster FILE` shows what each phase costs, in its phases table";
    args.one_process.check("study", instead)?;
    if let Some(json) = &args.output.json {
        json.check()?;
    }
    each_once("--payload", &args.payload)?;
    each_once("--skew", &args.skew)?;
    each_once("--records", &args.records)?;
    each_once("--think", &args.think)?;
    let subject = Subject::named(&args.phase)
        .ok_or_else(|| CliError::usage(format!("no phase `{}` to study", args.phase)))?;
    let fabric = &args.fabric.fabric;
    let name = format!("study-{}-{}", subject.name(), names::for_file(fabric));
    let wanted = Study {
        subject,
        fabric: fabric.clone(),
        shape: Shape { nodes: args.shape.nodes() as u16, workers: args.shape.threads as u16 },
        coroutines: args.shape.coroutines.unwrap_or(crate::spec::limits::COROUTINES.usual),
        settings: Settings {
            payload_bytes: args.payload.clone(),
            skew: args.skew.clone(),
            records: args.records.clone(),
            think: args.think.iter().map(|span| span.nanos()).collect(),
        },
        duration: args.duration.unwrap_or(usual(fabric)),
        lengthen: args.duration.is_none(),
        seed: args.seed,
        jobs: args.jobs,
        out: Place::new(args.output.out.as_ref(), Path::new(HOME), &name),
    };
    let (dir, summary) = study(&wanted, context)?;
    let all = || summary["points"].as_array().into_iter().flatten();
    let doubted = |p: &Value| p["converged"].as_str().is_some_and(|said| said != "yes");
    let short = all().any(doubted);
    let shown: Vec<&str> =
        AXES.into_iter().filter(|axis| all().any(|p| p[*axis] != all().next().unwrap_or(p)[*axis])).collect();
    let rows = all().map(|p| {
        let number = |key: &str| p[key].as_f64();
        let span = |key: &str| number(key).map_or("not available".into(), |n| Nanos(n as u64).to_string());
        let text = |key: &str| match &p[key] {
            Value::Null => String::new(),
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        let mut cells = vec![text("variant"), text("coroutines")];
        cells.extend(shown.iter().map(|axis| text(axis)));
        cells.extend([
            number("rate_per_s").map_or("not available".into(), human_rate),
            number("rate_ci_relative").map_or(String::new(), |known| format!("± {:.1} %", 100.0 * known)),
            span("latency_p50_ns"),
            number("round_trips_per_op").map_or(String::new(), |n| format!("{n:.2}")),
            number("doorbells_per_op").map_or(String::new(), |n| format!("{n:.2}")),
        ]);
        cells.extend(short.then(|| text("converged")));
        cells
    });
    let mut head = vec!["variant", "coroutines"];
    head.extend(&shown);
    head.extend(["rate", "known within", "p50", "round trips", "doorbells"]);
    head.extend(short.then_some("converged"));
    let mut people = table(&head, rows);
    let mut payloads = args.payload.clone();
    payloads.retain(|bytes| all().any(|point| point["payload_bytes"].as_u64() == Some(u64::from(*bytes))));
    people.push_str(&format!("\n{}\n{MEASURED}\n", asked(&wanted, &payloads)));
    people.push_str(&format!("\nresults: {}\n", dir.display()));
    emit(args.output.json.as_ref(), &summary, &people)
}

/// What the columns are of.
const MEASURED: &str = "rates are of whole cycles, with what the phase needs before and after it, untimed; the rest is of the phase alone";

/// What the points have in common, in a line: `3 nodes of 1 thread; 4 records of 16 B an operation`; of these payloads, for there may be
/// some that no variant could carry.
fn asked(study: &Study, payloads: &[u32]) -> String {
    fn list<T: std::fmt::Display>(values: &[T]) -> String {
        values.iter().map(T::to_string).collect::<Vec<_>>().join(" or ")
    }
    let records = &study.settings.records;
    let (nodes, threads) =
        (count(study.shape.nodes.into(), "node"), count(study.shape.workers.into(), "thread"));
    let noun = if records[..] == [1] { "record" } else { "records" };
    format!("{nodes} of {threads}; {} {noun} of {} B an operation", list(records), list(payloads))
}

/// Measured time per point, unless asked for otherwise.
pub fn usual(fabric: &FabricChoice) -> Span {
    Span::from_ns(if fabric.virtual_time() { 200_000 } else { 200_000_000 })
}

/// Measures what is missing of a study; returns the directory and its points.
///
/// # Errors
/// If the fabric does not work here, the directory cannot be used, a point fails, or Ctrl-C ends it.
pub fn study(wanted: &Study, context: &Context) -> Result<(PathBuf, Value), CliError> {
    let fabric = Fabric::open(&wanted.fabric, wanted.seed)?;
    let mut counts: Vec<u32> = COROUTINES.into_iter().filter(|&c| c < wanted.coroutines).collect();
    counts.push(wanted.coroutines);
    let mut points = Vec::new();
    let (caps, config) = (fabric.caps()?, WorkerConfig::default());
    for variant in wanted.subject.variants() {
        for &coroutines in &counts {
            points.extend(wanted.settings.each(Spec {
                coroutines,
                warm_up: Nanos(wanted.duration.ns() / 4),
                duration: wanted.duration.nanos(),
                seed: wanted.seed,
                ..Spec::new(wanted.subject, variant)
            }));
        }
    }
    let mut said: Vec<String> = Vec::new();
    points.retain(|point| {
        let Err(refused) = phases::study::plan(point, &caps) else { return true };
        // Another plan would be another variant.
        let why = match refused {
            StudyError::Plan(error) => {
                error.refusals.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
            }
            other => other.to_string(),
        };
        let bytes = point.payload_bytes;
        let told = format!("variant {} with records of {bytes} B is left out: {why}", point.variant.name);
        if !said.contains(&told) {
            context.talk.say(&told);
            said.push(told);
        }
        false
    });
    if points.is_empty() {
        return Err(CliError::usage(format!("no variant can be studied here; {}", said.join("; "))));
    }
    // Before anything is begun or left on disk: what one point refuses, mostly all do.
    for point in &points {
        phases::study::check(point, wanted.shape).map_err(|error| {
            let told = refused(&error);
            if point.replicas > wanted.shape.nodes {
                return told.hint(format!("use --nodes {}", point.replicas));
            }
            told
        })?;
    }
    let estimate = |point| phases::study::memory_estimate(wanted.shape, &config, &caps, point);
    let jobs = crate::memory::fits_together(
        points.iter().map(estimate).collect(),
        wanted.jobs,
        usual_jobs(wanted.fabric.virtual_time()),
        crate::memory::LOWER_STUDY,
    )?;
    let spec = json!({
        "phase": wanted.subject.name(), "fabric": wanted.fabric, "nodes": wanted.shape.nodes,
        "threads": wanted.shape.workers, "coroutines": wanted.coroutines, "duration": wanted.duration,
        "payload_bytes": wanted.settings.payload_bytes, "skew": wanted.settings.skew, "records": wanted.settings.records,
        "think_ns": wanted.settings.think, "figures": figures(&points, wanted.coroutines),
    });
    let mut record = fabric.record(Kind::Study, spec, wanted.seed, points.len() as u64);
    record.title = format!("Phase {} on {}", wanted.subject.name(), wanted.fabric);
    record.question = Some(format!("Which primitive should carry {}?", wanted.subject.name()));
    record.command.clone_from(&context.command);
    let varied = varied(&points);
    let mut axes: Vec<String> = varied.iter().map(|&axis| AXES[axis].to_owned()).collect();
    if !axes.is_empty() {
        // What figures tell curves and points apart by.
        axes.splice(0..0, ["variant".to_owned(), "coroutines".to_owned()]);
    }
    let mut dir = wanted.out.open(record, &axes, context.talk)?;
    context.interrupt.listen()?;
    let sweep = context.sweep(format!("study {}", wanted.subject.name()), jobs);
    sweep.run(
        &mut dir,
        |number| {
            let point = &points[number as usize];
            let watch = Watch::begin(wanted.fabric.virtual_time(), true);
            let stop = context.interrupt.flag();
            let measured = |duration| {
                let point = Spec { duration, precision: wanted.precision(duration), ..*point };
                phases::study::run(&fabric.spec, wanted.shape, &config, &point, stop)
                    .map_err(|error| refused(&error))
            };
            let ended_in = |window| {
                until_something_ended(
                    window,
                    caps.virtual_time,
                    wanted.lengthen || !caps.virtual_time,
                    &context.interrupt,
                    measured,
                    |counts| counts.ops,
                )
            };
            let counts = long_enough(point.duration, wanted.lengthen, ended_in, |counts| counts.too_short)?;
            let disturbance = watch.end();
            let per_op = counts.per_op();
            let latency = &counts.latency;
            let row = Row::new()
                .with("phase", wanted.subject.name())
                .with("variant", point.variant.name)
                .with("coroutines", point.coroutines)
                .with("ops", counts.ops)
                .with("rate_per_s", counts.rate_per_s())
                .with_latency(latency)
                .with("verbs_per_op", per_op.map(|[verbs, ..]| verbs))
                .with("round_trips_per_op", per_op.map(|[_, round_trips, _]| round_trips))
                .with("doorbells_per_op", per_op.map(|[.., doorbells]| doorbells))
                .with("measured_ns", counts.elapsed);
            let row = match &counts.steadiness {
                Some(steadiness) => row.with_steadiness(steadiness),
                None => row,
            };
            let row = row.with_too_short(counts.too_short);
            let values = on_axes(point);
            let row = AXES
                .iter()
                .zip(&values)
                .fold(disturbance.told(row), |row, (axis, value)| row.with(*axis, value.as_str()));
            // An axis is a column of the point, too.
            let row = axes.iter().fold(row, |row, axis| {
                let value = row.get(axis).unwrap_or_default().to_owned();
                row.with(format!("axis_{axis}"), value)
            });
            Ok(PointResult { row, histogram: Some(latency.clone()), ..PointResult::default() })
        },
        |_| Value::Null,
    )?;
    let known = known_columns(Kind::Study, TableName::Points);
    let rows = dir.rows(TableName::Points)?;
    let points: Vec<Value> = rows.iter().map(|row| row.to_json(known)).collect();
    Ok((dir.path().to_owned(), json!({ "phase": wanted.subject.name(), "points": points })))
}

/// What a study says that cannot be made, or that failed.
fn refused(error: &StudyError) -> CliError {
    match error {
        StudyError::Spec(_) | StudyError::Plan(_) => {
            CliError::usage("the study cannot be made").caused_by(error)
        }
        StudyError::Launch(LaunchError::Cancelled) => CliError::interrupted(),
        StudyError::Launch(launch) if launch.is_machines() => {
            CliError::machine("the study cannot be set up").caused_by(error)
        }
        _ => CliError::check("the study failed").caused_by(error),
    }
}
