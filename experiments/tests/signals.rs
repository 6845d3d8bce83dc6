//! What `nohup`, `timeout` and schedulers do to a process that measures.

mod common;

use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Whoever starts a long sweep under `nohup` and goes home wants it to go on.
#[test]
fn a_lost_terminal_ends_nothing_under_nohup_and_sigterm_keeps_what_was_measured() {
    let dir = tempfile::tempdir().expect("a directory");
    let run = "run --fabric sim:cx4-edr --workload ycsb --set records_per_thread=1000 --nodes 2 --replicas 1 --duration 600s --no-check --out out";
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
    let asked = Instant::now();
    kill_process(pid, Signal::TERM).expect("it is ours");
    said.read_to_string(&mut talk).expect("text");
    assert_eq!(child.wait().expect("it ends").code(), Some(130), "{talk}");
    assert!(talk.contains("stopping, and keeping what was measured"), "{talk}");
    assert!(asked.elapsed() < Duration::from_secs(60), "{talk}");
    let record = std::fs::read_to_string(dir.path().join("out/run.json")).expect("what was measured");
    assert!(record.contains("\"interrupted\": true"), "{record}");
}
