//! The experiment command around a point that is measured here: files in, result directories out.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use experiments::args::{Cli, Command, ExperimentArgs, OutputArgs};
use experiments::commands::{Context, experiment};
use experiments::error::CliError;
use experiments::output::JsonTarget;
use experiments::spec::{Point, Span};
use primitives::measure::{Kind, PointResult, Printed, RunRecord, TableName, known_columns};
use serde_json::Value;

const YAML: &str = "\
question: Does it land in order?
fabric: loopback
replicas: 1
plan: PLAN
grid:
  nodes: [2, 3]
  coroutines: [4, 1, 2]
";

fn context() -> Context {
    Context::new(&Cli { verbose: 0, quiet: true, command: None::<Command> })
}

fn args(dir: &Path, plan: &str) -> ExperimentArgs {
    let file = dir.join("order.yaml");
    std::fs::write(&file, YAML.replace("PLAN", plan)).unwrap();
    let json = dir.join("result.json");
    let _ = std::fs::remove_file(&json);
    let output = OutputArgs { json: Some(JsonTarget::File(json)), out: Some(dir.join("out")) };
    ExperimentArgs {
        cluster: None,
        join_within: Span::from_ns(0),
        files: vec![file],
        shard: None,
        jobs: Some(1),
        output,
    }
}

fn measure(point: &Point) -> Result<PointResult, CliError> {
    let all = point.spec.nodes * point.spec.coroutines.unwrap_or(1);
    Ok(PointResult::of(point.row().with("committed", all).with("nodes", point.spec.nodes)))
}

fn sweep(args: &ExperimentArgs) -> Result<(), CliError> {
    experiment::sweep(args, &context(), &experiment::plan(args, None)?, measure)
}

#[test]
fn rows_carry_their_axes_in_grid_order_and_a_second_run_changes_nothing() {
    let temp = tempfile::tempdir().unwrap();
    let args = args(temp.path(), "one-sided");
    sweep(&args).unwrap();
    let out: PathBuf = temp.path().join("out");
    let points = std::fs::read_to_string(out.join("points.csv")).unwrap();
    let ends: Vec<String> =
        points.lines().map(|l| l.rsplitn(3, ',').take(2).collect::<Vec<_>>().join(" ")).collect();
    assert_eq!(ends[0], "axis_coroutines axis_nodes");
    assert_eq!(ends[1..], ["4 2", "1 2", "2 2", "4 3", "1 3", "2 3"]);
    let record = RunRecord::read(&out).unwrap();
    assert!(record.complete && record.question.as_deref() == Some("Does it land in order?"));
    let json: serde_json::Value =
        serde_json::from_slice(&std::fs::read(temp.path().join("result.json")).unwrap()).unwrap();
    assert_eq!(json["experiments"][0]["points"][5]["committed"], 6);

    std::fs::remove_file(temp.path().join("result.json")).unwrap();
    let again =
        |point: &Point| -> Result<PointResult, CliError> { panic!("{} measured again", point.label()) };
    experiment::sweep(&args, &context(), &experiment::plan(&args, None).unwrap(), again).unwrap();
    assert_eq!(RunRecord::read(&out).unwrap(), record);
    assert_eq!(std::fs::read_to_string(out.join("points.csv")).unwrap(), points);
}

#[test]
fn another_plan_or_another_text_of_the_plan_file_is_another_run() {
    let temp = tempfile::tempdir().unwrap();
    let plan = temp.path().join("mine.plan.yaml");
    std::fs::write(&plan, include_str!("../../phases/plans/one-sided.plan.yaml")).unwrap();
    sweep(&args(temp.path(), plan.to_str().unwrap())).unwrap();
    std::fs::write(&plan, include_str!("../../phases/plans/two-sided.plan.yaml")).unwrap();
    let error = sweep(&args(temp.path(), plan.to_str().unwrap())).unwrap_err();
    assert!(error.message().contains("holds the results of another run: the content of "), "{error}");
    let error = sweep(&args(temp.path(), "two-sided")).unwrap_err();
    assert!(error.message().contains("another run"), "{error}");
    assert_eq!(error.exit().code(), 2);
}

/// A shipped experiment whose points papers print, with points that took no time.
#[test]
fn what_papers_print_is_kept_in_the_record_and_drawn_by_report() {
    let temp = tempfile::tempdir().unwrap();
    let text = include_str!("../rates-per-machine.yaml");
    let measure = |point: &Point| {
        let spec = point.spec.primitive.as_ref().expect("requests alone");
        let row = point.row().with("fabric", point.spec.fabric.to_string()).with("verb", spec.verb.as_str());
        let row = row.with("payload_bytes", spec.payload).with("rate_per_server_per_s", 4e7);
        Ok(PointResult::of(row.with("latency_p50_ns", 2000_u32).with("rate_ci_relative", 0.01)))
    };
    let run = |name: &str, text: &str| {
        let mut args = args(temp.path(), "one-sided");
        args.files = vec![temp.path().join(format!("{name}.yaml"))];
        args.output.out = Some(temp.path().join(name));
        std::fs::write(&args.files[0], text).unwrap();
        experiment::sweep(&args, &context(), &experiment::plan(&args, None).unwrap(), measure).unwrap();
        RunRecord::read(&temp.path().join(name)).unwrap()
    };
    // Whatever its file is called, and whatever its question.
    let record = run("mine", &text.replace("question: How", "question: And how"));
    let read = record.published.iter().find(|printed| printed.claim == "DRH-P02").expect("READ of 64 B");
    assert_eq!(read.y, "rate_per_server_per_s");
    assert!((read.value / (86.9e6 / 2.0) - 1.0).abs() < 1e-9, "{}", read.value);
    assert_eq!(read.at["verb"], "read");
    assert_eq!(read.at["payload"].as_f64(), Some(64.0));
    // The page needs no claims.
    let out = temp.path().join("page");
    let options = reports::Options { skip_png: true, ..reports::Options::default() };
    reports::render(&[temp.path().join("mine")], &out, &options).unwrap();
    let page = std::fs::read_to_string(out.join("report.html")).unwrap();
    let told = page.split("DRH-P02 prints ").nth(1).expect("drawn and told");
    assert!(told.starts_with("43.4") || told.starts_with("43.5"), "{}", &told[..40]);
    // What is printed for a point of figure 5 is drawn there, too, though another experiment answers it.
    let fifth = run("fifth", include_str!("../one-sided-against-two-sided.yaml"));
    let writes = run("writes", include_str!("../writes-against-calls.yaml"));
    for (of, claim, verb, payload, per_card) in [
        (&writes, "DRH-P01", "write", 64.0, 65e6),
        (&fifth, "DRH-P02", "read", 64.0, 43.45e6),
        (&fifth, "DRH-P03", "rpc", 8.0, 39.5e6),
    ] {
        let printed = of.published.iter().find(|printed| printed.claim == claim);
        let Printed { at, y, value, .. } =
            printed.unwrap_or_else(|| panic!("{claim} is of figure 5")).clone();
        assert_eq!((at["verb"].as_str(), at["payload"].as_f64()), (Some(verb), Some(payload)), "{claim}");
        assert!(y == "rate_per_server_per_s" && (value / per_card - 1.0).abs() < 1e-9, "{claim}: {value}");
    }
    for (drawn, says) in [("fifth", "DRH-P03 prints 39.5"), ("writes", "DRH-P01 prints 65")] {
        reports::render(&[temp.path().join(drawn)], &out, &options).unwrap();
        let page = std::fs::read_to_string(out.join("report.html")).unwrap();
        assert!(page.contains(says), "{says}: not drawn");
    }
    // Where a paper prints how many times another step a step gives, that is told as such.
    let ladder = run("ladder", include_str!("../ten-objects-cx4.yaml"));
    let mut times: Vec<_> = ladder.published.iter().filter_map(|p| Some((p, p.of.as_ref()?))).collect();
    times.sort_by(|a, b| a.0.claim.cmp(&b.0.claim));
    let told = times.iter().map(|(p, of)| {
        let step = |at: &BTreeMap<String, Value>| at["optimizations"].as_str().unwrap().to_owned();
        assert_eq!((p.at["verb"].clone(), &*p.y), (of["verb"].clone(), "rate_per_server_per_s"));
        (p.claim.as_str(), p.at["verb"].as_str().unwrap(), step(&p.at), p.value, step(of))
    });
    let step = str::to_owned;
    assert_eq!(
        told.collect::<Vec<_>>(),
        [
            ("DRH-M01", "read", step("+coroutines"), 7.0, step("base")),
            ("DRH-M02", "rpc", step("+coroutines"), 6.46, step("base")),
            ("DRH-M06", "write", step("+passive-ack"), 1.13, step("+doorbell")),
            ("DRH-M07", "rpc-write", step("+passive-ack"), 1.96, step("+doorbell")),
        ]
    );
    assert!(ladder.published.iter().any(|p| p.claim == "DRH-M09" && p.value == 8.43e6 / 2.0));
    let sizes = run("sizes", include_str!("../read-size-by-queue-pairs.yaml"));
    let left = |claim: &str| sizes.published.iter().find(|p| p.claim == claim).map(|p| p.value);
    assert_eq!(
        (left("NAM-Q01-8B"), left("NAM-Q01-64B"), left("NAM-Q01-256B")),
        (Some(0.6), Some(0.75), Some(1.0))
    );
    // Of another cluster the paper says nothing.
    assert!(run("other", &text.replace("nodes: 16", "nodes: 8")).published.is_empty());
}

#[test]
fn an_unwritable_place_is_told_before_anything_is_measured() {
    let temp = tempfile::tempdir().unwrap();
    let mut args = args(temp.path(), "one-sided");
    args.output.out = Some("/dev/null/out".into());
    let never = |_: &Point| -> Result<PointResult, CliError> { panic!("measured") };
    let error =
        experiment::sweep(&args, &context(), &experiment::plan(&args, None).unwrap(), never).unwrap_err();
    assert_eq!(error.exit().code(), 2);
    let shown = error.render(false);
    assert!(
        shown.contains("cannot create /dev/null/out") && shown.contains("part of the path is a file"),
        "{shown}"
    );
}

#[test]
fn shards_measure_the_grid_between_them() {
    let temp = tempfile::tempdir().unwrap();
    let mut measured = Vec::new();
    for shard in ["1/4", "2/4", "3/4", "4/4"] {
        let shard: primitives::measure::Shard = shard.parse().unwrap();
        let mut args = args(temp.path(), "one-sided");
        args.shard = Some(shard);
        args.output.out = Some(temp.path().join(format!("out-{}", shard.index)));
        sweep(&args).unwrap();
        let points = std::fs::read_to_string(temp.path().join(format!("out-{}/points.csv", shard.index)));
        let points: Vec<u64> =
            points.unwrap().lines().skip(1).map(|l| l.split(',').next().unwrap().parse().unwrap()).collect();
        assert!(points.iter().all(|&p| shard.holds(p)), "{shard}: {points:?}");
        measured.extend(points);
    }
    measured.sort_unstable();
    assert_eq!(measured, [0, 1, 2, 3, 4, 5], "every point once; a shard may have few or none");
}

/// Whoever opens a table finds each of its columns explained.
#[test]
fn every_column_is_on_the_page_about_columns() {
    let page = include_str!("../COLUMNS.md");
    let kinds = [
        Kind::Run,
        Kind::Study,
        Kind::Characterize,
        Kind::Primitive,
        Kind::Tune,
        Kind::Regret,
        Kind::Scoreboard,
    ];
    for kind in kinds {
        for &table in TableName::of(kind) {
            for (name, _) in known_columns(kind, table) {
                assert!(page.contains(&format!("`{name}`")), "{name} of {kind:?}, {table:?}");
            }
        }
    }
}
