//! Sweeps: any number of jobs, failures, panics, Ctrl-C, crashes, full disks, resumption.
//!
//! Tests that need a process of their own (signals, limits) start this test binary again, at
//! [`child_sweep`], which sweeps as a command would.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

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
        only: None,
        goes_on: false,
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
            "interrupted: {begun} of 12 points kept in {}\n  hint: go on with: doorbell experiment why.yaml --out here\n",
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

/// Where a part of the points is asked for, it is counted when it is interrupted as it is when it goes on.
#[test]
fn a_part_that_was_interrupted_is_counted_as_what_was_asked_for() {
    let temp = tempfile::tempdir().unwrap();
    let mut dir = ResultDir::create(temp.path(), record(), &[]).unwrap();
    let part =
        |points: [u64; 4], interrupt: &Interrupt| Sweep { only: Some(points.into()), ..sweep(1, interrupt) };
    part([0, 1, 2, 3], &Interrupt::new())
        .run(&mut dir, |i| Ok(point(i)), |_| serde_json::Value::Null)
        .unwrap();
    let interrupt = Interrupt::new();
    let measure = |i| {
        interrupt.ask();
        Ok(point(i))
    };
    let error =
        part([3, 4, 5, 6], &interrupt).run(&mut dir, measure, |_| serde_json::Value::Null).unwrap_err();
    assert!(error.message().starts_with("interrupted: 2 of 4 points kept in "), "{}", error.message());
}

/// Not a test of its own: what the tests below run in a process of its own, as a command would.
#[test]
#[ignore = "started by other tests"]
fn child_sweep() {
    let Ok(out) = std::env::var("SWEEP_OUT") else { return };
    let held: u64 = std::env::var("SWEEP_HELD_FROM").unwrap().parse().unwrap();
    let let_go = std::env::var_os("SWEEP_LET_GO").is_some();
    let interrupt = Interrupt::new();
    interrupt.listen().unwrap();
    let run = || -> Result<(), CliError> {
        let mut dir = ResultDir::create(Path::new(&out), record(), &[])?;
        let measure = |i| {
            println!("begin {i}");
            while i >= held && !(let_go && interrupt.asked()) {
                std::thread::sleep(Duration::from_millis(1));
            }
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

/// Points of the child that do not end by themselves, so that what a test does to it comes in time on any machine.
#[derive(Clone, Copy)]
enum Hold {
    /// None.
    Nothing,
    /// From this one on, until the child is asked to stop.
    UntilAsked(u64),
    /// From this one on, as long as the process lives.
    Forever(u64),
}

fn child(out: &Path, hold: Hold, shell: Option<&str>) -> Command {
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
    let (held, let_go) = match hold {
        Hold::Nothing => (POINTS, false),
        Hold::UntilAsked(held) => (held, true),
        Hold::Forever(held) => (held, false),
    };
    command.args(args).env("SWEEP_OUT", out).env("SWEEP_HELD_FROM", held.to_string());
    if let_go {
        command.env("SWEEP_LET_GO", "1");
    }
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// A child at work; killed when the test is over, whatever happened. Its stdout is read as long as it lives: a child
/// that cannot say that a point begins would fail that point.
struct Running {
    child: Child,
    said: BufReader<ChildStdout>,
    /// Lines that say that a point begins.
    begun: usize,
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Running {
    fn start(out: &Path, hold: Hold) -> Running {
        let mut child = child(out, hold, None).spawn().unwrap();
        let said = BufReader::new(child.stdout.take().unwrap());
        Running { child, said, begun: 0 }
    }

    /// The next line, if there is one.
    fn line(&mut self) -> Option<String> {
        let mut line = String::new();
        let some = self.said.read_line(&mut line).unwrap() > 0;
        self.begun += usize::from(line.contains("begin "));
        some.then(|| line.trim_end().to_owned())
    }

    /// Waits until it says that it begins these points, in any order.
    fn wait_for_points(&mut self, points: &[u64]) {
        let mut wanted: Vec<String> = points.iter().map(|point| format!("begin {point}")).collect();
        while !wanted.is_empty() {
            let line = self.line().unwrap_or_else(|| panic!("the child never said {wanted:?}"));
            wanted.retain(|words| !line.ends_with(words));
        }
    }

    fn interrupt(&self) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    }

    /// Waits for the end: exit code, how many points it began in all, and what is left of its talk.
    fn end(mut self) -> (Option<i32>, u64, String) {
        while self.line().is_some() {}
        let mut talk = String::new();
        self.child.stderr.take().map(|mut stderr| stderr.read_to_string(&mut talk));
        (self.child.wait().unwrap().code(), self.begun as u64, talk)
    }
}

fn finish(out: &Path) {
    let status = child(out, Hold::Nothing, None).stdout(Stdio::null()).status().unwrap();
    assert_eq!(status.code(), Some(0));
    assert_eq!(files(out), undisturbed());
    assert!(RunRecord::read(out).unwrap().complete);
}

#[test]
fn ctrl_c_keeps_points_says_how_to_go_on_and_exits_with_130() {
    let temp = tempfile::tempdir().unwrap();
    let mut running = Running::start(temp.path(), Hold::UntilAsked(4));
    running.wait_for_points(&[4]);
    running.interrupt();
    let (code, begun, talk) = running.end();
    assert_eq!(code, Some(130), "{talk}");
    assert!(
        talk.contains("Ctrl-C again ends at once") && talk.contains("go on with: doorbell experiment"),
        "{talk}"
    );
    // Two jobs: each may hold one of the points that end only after the signal, and begins none after it.
    assert!((5..=6).contains(&begun), "{begun} points begun\n{talk}");
    let kept = RunRecord::read(temp.path()).unwrap();
    assert!(kept.interrupted && kept.points_done == begun, "{begun} begun, {kept:?}");
    let points = std::fs::read_to_string(temp.path().join("points.csv")).unwrap();
    assert_eq!(points.lines().count() as u64, 1 + kept.points_done);
    finish(temp.path());
}

#[test]
fn a_second_ctrl_c_ends_at_once() {
    let temp = tempfile::tempdir().unwrap();
    let mut running = Running::start(temp.path(), Hold::Forever(0));
    running.wait_for_points(&[0, 1]);
    running.interrupt();
    let mut talk = BufReader::new(running.child.stderr.take().unwrap()).lines().map_while(Result::ok);
    assert!(talk.any(|line| line.contains("Ctrl-C again")));
    // Sooner it would be taken for the first one's echo.
    std::thread::sleep(Duration::from_millis(700));
    running.interrupt();
    // Points that never end: only ending at once comes back.
    let (code, begun, _) = running.end();
    assert_eq!((code, begun), (Some(130), 2));
    finish(temp.path());
}

#[test]
fn a_killed_process_loses_only_the_points_that_ran() {
    let temp = tempfile::tempdir().unwrap();
    let mut running = Running::start(temp.path(), Hold::Forever(6));
    // Both jobs hold a point: all before those have ended, and are in the table as soon as the child comes to it.
    running.wait_for_points(&[6, 7]);
    let begun = Instant::now();
    let table = || std::fs::read_to_string(temp.path().join("points.csv")).unwrap_or_default();
    while table().matches('\n').count() < 1 + 6 {
        assert!(begun.elapsed() < Duration::from_secs(60), "not kept: {}", table());
        std::thread::sleep(Duration::from_millis(5));
    }
    running.child.kill().unwrap();
    running.end();
    let dir = ResultDir::create(temp.path(), record(), &[]).unwrap();
    assert_eq!(dir.missing(), Vec::from_iter(6..POINTS));
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
    let output = child(temp.path(), Hold::Nothing, Some(&full)).output().unwrap();
    let talk = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(3), "{talk}");
    assert!(talk.contains("cannot write") && talk.contains(temp.path().to_str().unwrap()), "{talk}");
    assert!(talk.contains("make room there, then run the same command again"), "{talk}");
    finish(temp.path());
}
