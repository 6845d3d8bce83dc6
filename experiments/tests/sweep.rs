//! Sweeps: any number of jobs, failures, panics, Ctrl-C, crashes, full disks, resumption.
//!
//! Tests that need a process of their own (signals, limits) start this test binary again, at
//! [`child_sweep`], which sweeps as a command would.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use experiments::error::{CliError, Exit};
use experiments::interrupt::Interrupt;
use experiments::output::Talk;
use experiments::sweep::Sweep;
use primitives::measure::{Histogram, Kind, PointResult, ResultDir, Row, RunRecord};
use primitives::units::Nanos;

const POINTS: u64 = 12;

fn record() -> RunRecord {
    RunRecord::new(Kind::Run, "sim:cx4-edr", serde_json::json!({"points": POINTS}), 1, POINTS)
}

fn sweep(jobs: usize, interrupt: &Interrupt) -> Sweep {
    Sweep {
        title: "test".into(),
        jobs,
        talk: Talk::new(0, true),
        interrupt: interrupt.clone(),
        repeat: "doorbell experiment why.yaml --out here".into(),
    }
}

/// A point whose result depends on its number alone, while the time it takes makes later points end first.
fn point(index: u64) -> PointResult {
    std::thread::sleep(Duration::from_millis(if index.is_multiple_of(3) { 8 } else { 1 }));
    let mut histogram = Histogram::new();
    (0..=index).for_each(|n| histogram.record(Nanos(n * 1000)));
    let row = Row::new().with("committed", index).with("latency_p50_ns", histogram.p50());
    PointResult { row, histogram: Some(histogram), ..PointResult::default() }
}

fn files(dir: &Path) -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    for folder in [dir.to_owned(), dir.join("histograms"), dir.join("pending")] {
        for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
            if entry.path().is_file() && entry.file_name() != "run.json" {
                all.insert(
                    entry.path().strip_prefix(dir).unwrap().display().to_string(),
                    std::fs::read_to_string(entry.path()).unwrap(),
                );
            }
        }
    }
    all
}

fn undisturbed() -> BTreeMap<String, String> {
    let temp = tempfile::tempdir().unwrap();
    let mut dir = ResultDir::create(temp.path(), record(), &[]).unwrap();
    sweep(1, &Interrupt::new()).run(&mut dir, |i| Ok(point(i)), |_| serde_json::Value::Null).unwrap();
    files(temp.path())
}

#[test]
fn the_same_bytes_for_any_number_of_jobs() {
    let expected = undisturbed();
    assert_eq!(expected.len() as u64, 3 + POINTS, "three tables and a histogram per point");
    for jobs in [2, 7, 1000] {
        let temp = tempfile::tempdir().unwrap();
        let mut dir = ResultDir::create(temp.path(), record(), &[]).unwrap();
        sweep(jobs, &Interrupt::new()).run(&mut dir, |i| Ok(point(i)), |_| serde_json::Value::Null).unwrap();
        assert_eq!(files(temp.path()), expected, "{jobs} jobs");
        assert!(RunRecord::read(temp.path()).unwrap().complete);
    }
}

#[test]
fn failed_points_do_not_take_the_others_with_them() {
    let temp = tempfile::tempdir().unwrap();
    let mut dir = ResultDir::create(temp.path(), record(), &[]).unwrap();
    let measure = |i| match i {
        4 => Err(CliError::check("money was lost")),
        7 => panic!("point seven"),
        i => Ok(point(i)),
    };
    let error = sweep(2, &Interrupt::new()).run(&mut dir, measure, |_| serde_json::Value::Null).unwrap_err();
    assert_eq!(error.exit(), Exit::Check);
    let shown = error.render(false);
    assert!(
        shown.contains("point 4 failed (1 more failed)") && shown.contains("because: money was lost"),
        "{shown}"
    );
    drop(dir);
    let kept = RunRecord::read(temp.path()).unwrap();
    assert_eq!((kept.points_done, kept.complete, kept.interrupted), (POINTS - 2, false, false));

    let mut dir = ResultDir::create(temp.path(), record(), &[]).unwrap();
    assert_eq!(dir.missing(), [4, 7]);
    let error = sweep(1, &Interrupt::new())
        .run(
            &mut dir,
            |i| if i == 7 { panic!("point {i}") } else { Ok(point(i)) },
            |_| serde_json::Value::Null,
        )
        .unwrap_err();
    assert!(error.render(false).contains("it panicked: point 7"), "{}", error.render(false));
    drop(dir);
    let mut dir = ResultDir::create(temp.path(), record(), &[]).unwrap();
    sweep(1, &Interrupt::new()).run(&mut dir, |i| Ok(point(i)), |_| serde_json::Value::Null).unwrap();
    assert_eq!(files(temp.path()), undisturbed());
}

#[test]
fn asked_to_stop_it_keeps_what_runs_and_begins_nothing() {
    let temp = tempfile::tempdir().unwrap();
    let mut dir = ResultDir::create(temp.path(), record(), &[]).unwrap();
    let interrupt = Interrupt::new();
    let begun = AtomicU64::new(0);
    let measure = |i| {
        if begun.fetch_add(1, Ordering::SeqCst) == 4 {
            interrupt.ask();
        }
        Ok(point(i))
    };
    let error = sweep(2, &interrupt).run(&mut dir, measure, |_| serde_json::Value::Null).unwrap_err();
    let begun = begun.load(Ordering::SeqCst);
    assert!((5..=6).contains(&begun), "{begun} points begun");
    assert_eq!(error.exit().code(), 130);
    assert_eq!(
        error.render(false),
        format!(
            "interrupted: {begun} of 12 points are kept in {}\n  hint: go on with: doorbell experiment why.yaml --out here\n",
            temp.path().display()
        )
    );
    drop(dir);
    let kept = RunRecord::read(temp.path()).unwrap();
    assert!(kept.interrupted && !kept.complete && kept.points_done == begun);
    let mut dir = ResultDir::create(temp.path(), record(), &[]).unwrap();
    sweep(2, &Interrupt::new()).run(&mut dir, |i| Ok(point(i)), |_| serde_json::Value::Null).unwrap();
    assert_eq!(files(temp.path()), undisturbed());
    assert!(!RunRecord::read(temp.path()).unwrap().interrupted);
}

/// Not a test of its own: what the tests below run in a process of its own, as a command would.
#[test]
#[ignore = "started by other tests"]
fn child_sweep() {
    let Ok(out) = std::env::var("SWEEP_OUT") else { return };
    let pause = Duration::from_millis(std::env::var("SWEEP_PAUSE_MS").map_or(0, |ms| ms.parse().unwrap()));
    let interrupt = Interrupt::new();
    interrupt.listen().unwrap();
    let run = || -> Result<(), CliError> {
        let mut dir = ResultDir::create(Path::new(&out), record(), &[])?;
        let measure = |i| {
            println!("begin {i}");
            std::thread::sleep(pause);
            Ok(point(i))
        };
        sweep(2, &interrupt).run(&mut dir, measure, |_| serde_json::Value::Null)
    };
    std::process::exit(match run() {
        Ok(()) => 0,
        Err(error) => {
            Talk::new(0, false).error(&error);
            error.exit().code().into()
        }
    })
}

fn child(out: &Path, pause_ms: u64, shell: Option<&str>) -> Command {
    let test = std::env::current_exe().unwrap();
    let args = ["child_sweep", "--exact", "--ignored", "--nocapture"];
    let mut command = match shell {
        None => Command::new(test),
        Some(prefix) => {
            let mut command = Command::new("sh");
            command.arg("-c").arg(format!("{prefix}; exec \"$0\" \"$@\"")).arg(test);
            command
        }
    };
    command.args(args).env("SWEEP_OUT", out).env("SWEEP_PAUSE_MS", pause_ms.to_string());
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Waits until the child says that it begins a point.
fn wait_for_point(child: &mut Child, index: u64) {
    let wanted = format!("begin {index}");
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.map_while(Result::ok).any(|line| line.ends_with(&wanted)), "the child never began {index}");
}

fn interrupt(child: &Child) {
    let pid = rustix::process::Pid::from_child(child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
}

fn finish(out: &Path) {
    let status = child(out, 0, None).stdout(Stdio::null()).status().unwrap();
    assert_eq!(status.code(), Some(0));
    assert_eq!(files(out), undisturbed());
    assert!(RunRecord::read(out).unwrap().complete);
}

#[test]
fn ctrl_c_keeps_points_says_how_to_go_on_and_exits_with_130() {
    let temp = tempfile::tempdir().unwrap();
    let mut running = child(temp.path(), 100, None).spawn().unwrap();
    wait_for_point(&mut running, 4);
    interrupt(&running);
    let output = running.wait_with_output().unwrap();
    let talk = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(130), "{talk}");
    assert!(
        talk.contains("Ctrl-C again ends at once") && talk.contains("go on with: doorbell experiment"),
        "{talk}"
    );
    let kept = RunRecord::read(temp.path()).unwrap();
    assert!(kept.interrupted && (5..POINTS).contains(&kept.points_done), "{kept:?}");
    let points = std::fs::read_to_string(temp.path().join("points.csv")).unwrap();
    assert_eq!(points.lines().count() as u64, 1 + kept.points_done);
    finish(temp.path());
}

#[test]
fn a_second_ctrl_c_ends_at_once() {
    let temp = tempfile::tempdir().unwrap();
    let mut running = child(temp.path(), 60_000, None).spawn().unwrap();
    wait_for_point(&mut running, 1);
    interrupt(&running);
    let mut talk = BufReader::new(running.stderr.take().unwrap()).lines().map_while(Result::ok);
    assert!(talk.any(|line| line.contains("Ctrl-C again")));
    interrupt(&running);
    // Points of a minute each: only ending at once comes back in time.
    assert_eq!(running.wait().unwrap().code(), Some(130));
    finish(temp.path());
}

#[test]
fn a_killed_process_loses_only_the_points_that_ran() {
    let temp = tempfile::tempdir().unwrap();
    let mut running = child(temp.path(), 100, None).spawn().unwrap();
    wait_for_point(&mut running, 6);
    running.kill().unwrap();
    running.wait().unwrap();
    let dir = ResultDir::create(temp.path(), record(), &[]).unwrap();
    // Two jobs: when point 6 begins, at least 0 to 4 have ended, and all but the last of those are written.
    assert!(dir.missing().len() as u64 <= POINTS - 4, "{:?}", dir.missing());
    drop(dir);
    finish(temp.path());
}

#[test]
fn a_full_disk_is_told_and_what_was_measured_is_kept() {
    let temp = tempfile::tempdir().unwrap();
    // Files of fewer blocks than the whole table takes stand for the full disk: writes past them fail as they would there.
    let blocks = undisturbed()["points.csv"].len() / 512;
    assert!(blocks > 0, "the table must be longer than a block");
    ResultDir::create(temp.path(), record(), &[]).unwrap();
    let full = format!("trap '' XFSZ; ulimit -f {blocks}");
    let output = child(temp.path(), 0, Some(&full)).output().unwrap();
    let talk = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(3), "{talk}");
    assert!(talk.contains("cannot write") && talk.contains(temp.path().to_str().unwrap()), "{talk}");
    assert!(talk.contains("make room there, then run the same command again"), "{talk}");
    finish(temp.path());
}
