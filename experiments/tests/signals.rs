//! What Ctrl-C, `nohup`, `timeout` and schedulers do to a process that measures.

mod common;

use common::{code, cpu_ticks, doorbell, run, stderr, stdout};
use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Whoever starts a long sweep under `nohup` and goes home wants it to go on.
#[test]
fn a_lost_terminal_ends_nothing_under_nohup_and_sigterm_keeps_what_was_measured() {
    let dir = tempfile::tempdir().expect("a directory");
    let run = "run --workload ycsb --set records_per_thread=1000 --nodes 2 --replicas 1 --duration 600s --no-check --out out";
    let mut child = Command::new("sh")
        .args(["-c", "trap '' HUP; exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_doorbell")])
        .args(run.split(' '))
        .current_dir(dir.path())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut said = BufReader::new(child.stderr.take().expect("piped"));
    let mut talk = String::new();
    while !talk.contains("running ycsb") {
        assert!(said.read_line(&mut talk).expect("text") > 0, "{talk}");
    }
    let pid = Pid::from_child(&child);
    kill_process(pid, Signal::HUP).expect("it is ours");
    std::thread::sleep(Duration::from_millis(700));
    assert!(child.try_wait().expect("it is ours").is_none(), "{talk}");
    // Its warm-up takes a second.
    std::thread::sleep(Duration::from_secs(3));
    let asked = Instant::now();
    kill_process(pid, Signal::TERM).expect("it is ours");
    said.read_to_string(&mut talk).expect("text");
    assert_eq!(child.wait().expect("it ends").code(), Some(130), "{talk}");
    assert!(talk.contains("stopping, and keeping what was measured"), "{talk}");
    assert!(asked.elapsed() < Duration::from_secs(60), "{talk}");
    let record = std::fs::read_to_string(dir.path().join("out/run.json")).expect("what was measured");
    assert!(record.contains("\"interrupted\": true"), "{record}");
}

#[test]
fn the_first_ctrl_c_ends_a_set_up() {
    let args = ["run", "--fabric", "sim:cx4-edr", "--nodes", "4", "--threads", "2", "--duration", "10s"];
    let mut child = doorbell()
        .args(args)
        .args(["--set", "accounts_per_thread=400000"])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary starts");
    let mut talk = BufReader::new(child.stderr.take().unwrap()).lines();
    // It says so before it fills the stores, which takes seconds; the run itself would take hours.
    let begun = talk.by_ref().map_while(Result::ok).any(|line| line.contains("running smallbank"));
    assert!(begun, "the run was refused");
    let pid = Pid::from_child(&child);
    let (before, mut after) = (cpu_ticks(child.id()), 0);
    kill_process(pid, Signal::INT).unwrap();
    let status = loop {
        after = cpu_ticks(child.id()).max(after);
        match child.try_wait().unwrap() {
            Some(status) => break status,
            None => std::thread::sleep(Duration::from_millis(20)),
        }
    };
    let said: Vec<String> = talk.map_while(Result::ok).collect();
    assert_eq!(status.code(), Some(130), "{said:?}");
    assert!(said.iter().any(|line| line.contains("interrupted")), "{said:?}");
    // CPU time, not the clock: a busy machine keeps the program waiting. Room for the stores is made all the same, in two
    // seconds; filling them to the end takes some twelve more.
    let seconds = after.saturating_sub(before) / 100;
    assert!(seconds < 8, "{seconds} s of CPU after the interrupt");
}

/// Runs `args` until they say what they run, and for `ms` more; then Ctrl-C. What was said on stdout.
fn cut_short(args: &[&str], ms: u64) -> String {
    interrupted(args, ms).0
}

/// The same, and what was said on stderr from then on.
fn interrupted(args: &[&str], ms: u64) -> (String, String) {
    let mut child =
        doorbell().args(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    let mut talk = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
    assert!(talk.any(|line| line.contains("running smallbank")), "the run was refused");
    std::thread::sleep(Duration::from_millis(ms));
    let pid = Pid::from_child(&child);
    kill_process(pid, Signal::INT).unwrap();
    let said: Vec<String> = talk.collect();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{said:?}");
    (String::from_utf8(output.stdout).unwrap(), said.join("\n"))
}

#[test]
fn a_run_that_was_cut_short_is_run_again_by_the_same_command() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("r");
    let small = ["--nodes", "2", "--replicas", "1", "--no-check", "--set", "accounts_per_thread=100"];
    let out_arg = ["--out", out.to_str().unwrap()];
    let args = [&["run", "--duration", "6s"][..], &small, &out_arg].concat();
    cut_short(&args, 3_000);
    // What was measured stays until there is more.
    let kept = || std::fs::read_to_string(out.join("points.csv")).unwrap();
    let measured = kept();
    assert!(measured.lines().count() == 2, "{measured}");
    cut_short(&args, 0);
    assert_eq!(kept(), measured);
    for says in ["holds this run, cut short: it is measured again", "nothing to measure, "] {
        let output = run(&args);
        assert_eq!(code(&output), 0, "{}", stderr(&output));
        assert!(stderr(&output).contains(says), "{}", stderr(&output));
        assert!(stdout(&output).contains(" committed"), "{}", stdout(&output));
    }
    let record = std::fs::read_to_string(out.join("run.json")).unwrap();
    assert!(record.contains("\"complete\": true") && record.contains("\"interrupted\": false"), "{record}");
}

#[test]
fn a_run_that_ends_in_its_warm_up_says_so() {
    let small = ["--no-check", "--set", "accounts_per_thread=100"];
    let said =
        cut_short(&[&["run", "--fabric", "sim:cx4-edr", "--duration", "100s"][..], &small].concat(), 1_500);
    assert_eq!(said, "drtm-h: interrupted in the warm-up, nothing was measured\n");
}

/// Runs whose warm-up and whose set-up Ctrl-C ends: there is nothing to keep, and nothing is left.
#[test]
fn a_run_that_measured_nothing_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let usual = "run --fabric sim:cx4-edr --duration 100s --no-check --set";
    for (number, (set, ms)) in
        [("accounts_per_thread=100", 500), ("accounts_per_thread=2000000", 0)].into_iter().enumerate()
    {
        let out = dir.path().join(format!("new-{number}/out"));
        let (said, talk) = interrupted(
            &[&usual.split(' ').collect::<Vec<_>>()[..], &[set, "--out", out.to_str().unwrap()]].concat(),
            ms,
        );
        assert!(talk.contains("stopping; nothing has been measured yet"), "{talk}");
        assert!(talk.contains("interrupted before anything was measured; nothing is kept"), "{talk}");
        assert!(said.is_empty() || said.contains("nothing was measured"), "{said}");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "{talk}");
    }
}

/// A directory that lost its row: who stops the run that is to replace it finds what else was there.
#[test]
fn a_run_that_measured_nothing_takes_nothing_of_what_was_there() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("r");
    let usual = "run --nodes 2 --replicas 1 --no-check --duration 3s --set accounts_per_thread=100 --out";
    let args = [&usual.split(' ').collect::<Vec<_>>()[..], &[out.to_str().unwrap()]].concat();
    assert_eq!(code(&run(&args)), 0);
    let points = std::fs::read_to_string(out.join("points.csv")).unwrap();
    std::fs::write(out.join("points.csv"), format!("{}\n", points.lines().next().unwrap())).unwrap();
    let there = || {
        let files = std::fs::read_dir(&out).unwrap().map(|file| file.unwrap().file_name());
        files.collect::<std::collections::BTreeSet<_>>()
    };
    let phases = || std::fs::read_to_string(out.join("phases.csv")).unwrap();
    let (files, before) = (there(), phases());
    assert!(before.lines().count() > 1, "{before}");
    let (_, talk) = interrupted(&args, 0);
    assert!(talk.contains("interrupted before anything was measured"), "{talk}");
    assert_eq!((there(), phases()), (files, before), "{talk}");
}

/// A cluster of simulated nodes whose queue pairs take a while to be connected: the signal comes before anything is measured.
#[test]
fn a_benchmark_that_is_interrupted_while_it_is_set_up_has_not_failed() {
    let dir = tempfile::tempdir().unwrap();
    let spec =
        "question: Who waits?\nkind: primitive\nfabric: sim:cx4-edr\nnodes: 200\nthreads: 8\nduration: 1s\n";
    std::fs::write(dir.path().join("x.yaml"), spec).unwrap();
    let mut child = doorbell()
        .args(["experiment", "x.yaml", "--out", "out"])
        .current_dir(dir.path())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary starts");
    // It listens for signals before it makes the directory of its results.
    while !dir.path().join("out/run.json").exists() {
        assert!(child.try_wait().unwrap().is_none(), "it ended");
        std::thread::sleep(Duration::from_millis(5));
    }
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    let mut talk = String::new();
    child.stderr.take().expect("piped").read_to_string(&mut talk).expect("text");
    assert_eq!(child.wait().unwrap().code(), Some(130), "{talk}");
    assert!(talk.contains("interrupted: 0 of 1 point kept") && !talk.contains("failed"), "{talk}");
}

/// The history of a run that was stopped is that of its warm-up, too, and is whole: `check` judges it.
#[test]
fn a_run_that_is_stopped_in_its_warm_up_keeps_its_history() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("h.json");
    let file = path.to_str().unwrap();
    let usual = "run --fabric sim:cx4-edr --duration 100s --set accounts_per_thread=100 --history";
    let (said, talk) = interrupted(&[&usual.split(' ').collect::<Vec<_>>()[..], &[file]].concat(), 1_000);
    assert_eq!(said, "drtm-h: interrupted in the warm-up, nothing was measured\n");
    for says in ["wrote the history, ", "; the history of its warm-up is kept, and nothing else"] {
        assert!(talk.contains(says), "{talk}");
    }
    assert!(!talk.contains("nothing is kept"), "{talk}");
    assert_eq!(code(&run(&["check", file])), 0);
}

/// Who does not wait for a long history to be written has none, and no part of one under its name.
#[test]
fn a_history_that_was_not_written_to_its_end_is_not_there() {
    let dir = tempfile::tempdir().unwrap();
    let asked = "run --nodes 2 --replicas 1 --duration 100s --set accounts_per_thread=100 --history h.json";
    let mut child = doorbell()
        .args(asked.split(' '))
        .current_dir(dir.path())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("it starts");
    std::thread::sleep(Duration::from_secs(4));
    let pid = Pid::from_child(&child);
    kill_process(pid, Signal::INT).unwrap();
    // Two so soon one after the other would be one wish.
    std::thread::sleep(Duration::from_millis(600));
    let (whole, part) = (dir.path().join("h.json"), dir.path().join("h.json.part"));
    while !whole.exists() && !part.exists() && child.try_wait().unwrap().is_none() {
        std::thread::sleep(Duration::from_millis(1));
    }
    let _ = kill_process(pid, Signal::INT);
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert!(whole.exists() || part.exists(), "it had begun to write");
    // Unless it was quicker than the signal.
    if whole.exists() {
        assert_eq!(code(&run(&["check", whole.to_str().unwrap()])), 0);
    }
}
