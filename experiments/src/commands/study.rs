//! `doorbell study`: one transaction phase, alone, in each variant, by coroutines.

use super::Context;
use crate::args::StudyArgs;
use crate::error::CliError;
use crate::fabrics::Fabric;
use crate::output::{emit, human_rate, table};
use crate::schedule::{Watch, until_something_ended};
use crate::spec::{FabricChoice, Span};
use crate::sweep::usual_jobs;
use phases::plan::Needs;
use phases::study::{Spec, StudyError, Subject};
use primitives::measure::{Kind, PointResult, ResultDir, Row, TableName};
use primitives::mesh::{Shape, WorkerConfig};
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
    /// Measured time per point.
    pub duration: Span,
    /// Seed of every draw.
    pub seed: u64,
    /// Points at a time.
    pub jobs: usize,
    /// Where results go.
    pub out: PathBuf,
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
    let subject = Subject::named(&args.phase)
        .ok_or_else(|| CliError::usage(format!("no phase `{}` to study", args.phase)))?;
    let fabric = &args.fabric.fabric;
    let name = format!("study-{}-{}", subject.name(), fabric.to_string().replace([':', '/'], "-"));
    let wanted = Study {
        subject,
        fabric: fabric.clone(),
        shape: Shape { nodes: args.shape.nodes() as u16, workers: args.shape.threads as u16 },
        coroutines: args.shape.coroutines.unwrap_or(crate::spec::limits::COROUTINES.usual),
        duration: args.time.duration.unwrap_or(usual(fabric)),
        seed: args.time.seed,
        jobs: args.jobs.unwrap_or_else(|| usual_jobs(fabric.virtual_time())),
        out: args.output.out.clone().unwrap_or_else(|| Path::new("doorbell-out").join(name)),
    };
    let summary = study(&wanted, context)?;
    let rows = summary["points"].as_array().into_iter().flatten().map(|p| {
        let number = |key: &str| p[key].as_str().and_then(|t| t.parse::<f64>().ok());
        let span = |key: &str| number(key).map_or("not available".into(), |n| Nanos(n as u64).to_string());
        [
            p["variant"].as_str().unwrap_or_default().to_owned(),
            p["coroutines"].as_str().unwrap_or_default().to_owned(),
            number("rate_per_s").map_or("not available".into(), human_rate),
            span("latency_p50_ns"),
            number("round_trips_per_op").map_or(String::new(), |n| format!("{n:.2}")),
            number("doorbells_per_op").map_or(String::new(), |n| format!("{n:.2}")),
        ]
    });
    let mut people = table(&["variant", "coroutines", "rate", "p50", "round trips", "doorbells"], rows);
    people.push_str(&format!("\nresults: {}\n", wanted.out.display()));
    emit(args.output.json.as_ref(), &summary, &people)
}

/// Measured time per point, unless asked for otherwise.
pub fn usual(fabric: &FabricChoice) -> Span {
    Span::from_ns(if fabric.virtual_time() { 200_000 } else { 200_000_000 })
}

/// Measures what is missing of a study; returns its points.
///
/// # Errors
/// If the fabric does not work here, the directory cannot be used, a point fails, or Ctrl-C ends it.
pub fn study(wanted: &Study, context: &Context) -> Result<Value, CliError> {
    let fabric = Fabric::open(&wanted.fabric, wanted.seed)?;
    let mut counts: Vec<u32> = COROUTINES.into_iter().filter(|&c| c < wanted.coroutines).collect();
    counts.push(wanted.coroutines);
    let mut points = Vec::new();
    let caps = fabric.caps()?;
    for variant in wanted.subject.variants() {
        if let Err(refused) = variant.plan.check(&caps, &Needs::OCC) {
            context.talk.say(format!("variant {} is left out: {refused}", variant.name));
            continue;
        }
        for &coroutines in &counts {
            points.push(Spec {
                coroutines,
                warm_up: Nanos(wanted.duration.ns() / 4),
                duration: wanted.duration.nanos(),
                seed: wanted.seed,
                ..Spec::new(wanted.subject, variant)
            });
        }
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
    let spec = json!({
        "phase": wanted.subject.name(), "fabric": wanted.fabric, "nodes": wanted.shape.nodes,
        "threads": wanted.shape.workers, "coroutines": wanted.coroutines, "duration": wanted.duration,
    });
    let mut record = fabric.record(Kind::Study, spec, wanted.seed, points.len() as u64);
    record.title = format!("Phase {} on {}", wanted.subject.name(), wanted.fabric);
    record.question = Some(format!("Which primitive should carry {}?", wanted.subject.name()));
    record.command.clone_from(&context.command);
    let mut dir = ResultDir::create(&wanted.out, record, &[])?;
    context.interrupt.listen()?;
    let sweep = context.sweep(format!("study {}", wanted.subject.name()), wanted.jobs);
    sweep.run(
        &mut dir,
        |number| {
            let point = &points[number as usize];
            let watch = Watch::begin(wanted.fabric.virtual_time());
            let config = WorkerConfig::default();
            let measured = |duration| {
                let point = Spec { duration, ..point.clone() };
                phases::study::run(&fabric.spec, wanted.shape, &config, &point).map_err(|error| refused(&error))
            };
            let counts = until_something_ended(
                point.duration,
                caps.virtual_time,
                &context.interrupt,
                measured,
                |counts| counts.ops,
            )?;
            let disturbance = watch.end();
            let per_op = counts.per_op();
            let latency = &counts.latency;
            let row = Row::new()
                .with("phase", wanted.subject.name())
                .with("variant", point.variant.name)
                .with("coroutines", point.coroutines)
                .with("payload_bytes", point.payload_bytes)
                .with("skew", point.skew)
                .with("ops", counts.ops)
                .with("rate_per_s", counts.rate_per_s())
                .with_latency(latency)
                .with("verbs_per_op", per_op.map(|[verbs, ..]| verbs))
                .with("round_trips_per_op", per_op.map(|[_, round_trips, _]| round_trips))
                .with("doorbells_per_op", per_op.map(|[.., doorbells]| doorbells));
            let row = disturbance.told(row);
            Ok(PointResult { row, histogram: Some(latency.clone()), ..PointResult::default() })
        },
        |_| Value::Null,
    )?;
    let columns = primitives::measure::columns(Kind::Study, TableName::Points, &[]);
    let rows = dir.rows(TableName::Points)?;
    let cells = |row: &Row| -> serde_json::Map<String, Value> {
        columns.iter().filter_map(|c| Some((c.clone(), Value::from(row.get(c)?)))).collect()
    };
    Ok(json!({ "phase": wanted.subject.name(), "points": rows.iter().map(cells).collect::<Vec<_>>() }))
}

/// What a study says that cannot be made, or that failed.
fn refused(error: &StudyError) -> CliError {
    match error {
        StudyError::Spec(_) | StudyError::Plan(_) => {
            CliError::usage("the study cannot be made").caused_by(error)
        }
        _ => CliError::check("the study failed").caused_by(error),
    }
}
