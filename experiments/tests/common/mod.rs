//! The `doorbell` binary, run by tests.

// Each test target uses some of it.
#![allow(dead_code)]

pub mod site;

use std::process::{Command, Output, Stdio};

/// The binary, with nothing on stdin.
pub fn doorbell() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_doorbell"));
    command.env_remove("NO_COLOR").env_remove("COLUMNS").stdin(Stdio::null());
    command
}

/// Runs it to its end.
pub fn run(args: &[&str]) -> Output {
    doorbell().args(args).output().expect("the binary starts")
}

/// Its exit code.
pub fn code(output: &Output) -> i32 {
    output.status.code().unwrap_or_else(|| panic!("ended by a signal: {output:?}"))
}

/// What it wrote to stdout.
pub fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).expect("UTF-8 on stdout")
}

/// What it wrote to stderr.
pub fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).expect("UTF-8 on stderr")
}

/// Asserts exit code and words on stderr, and that nothing panicked or reached stdout; what was said there.
pub fn refused(args: &[&str], exit: i32, says: &[&str]) -> String {
    let output = run(args);
    let talk = stderr(&output);
    assert_eq!(code(&output), exit, "{args:?}: {talk}");
    for part in says {
        assert!(talk.contains(part), "{args:?} does not say {part:?}:\n{talk}");
    }
    assert!(!talk.contains("panicked"), "{args:?}: {talk}");
    assert_eq!(stdout(&output), "", "{args:?} wrote data");
    talk
}

/// Small runs on the simulator.
pub const SMALL: &[&str] = &["--fabric", "sim:cx4-edr", "--set", "accounts_per_thread=200"];

/// Asserts exit code 0 and returns what was printed on stdout and stderr.
pub fn told(args: &[&str]) -> (String, String) {
    let output = run(args);
    assert_eq!(output.status.code(), Some(0), "{args:?}: {}", stderr(&output));
    (stdout(&output), stderr(&output))
}

/// As [`refused`] with exit code 2, and words that stderr has not.
pub fn refused_without(args: &[&str], says: &[&str], not: &[&str]) {
    let talk = refused(args, 2, says);
    for part in not {
        assert!(!talk.contains(part), "{args:?} says {part:?}:\n{talk}");
    }
}

/// Time that a process has had on CPUs, in hundredths of a second (`proc(5)`: fields 14 and 15 of `stat`); none if it is gone.
pub fn cpu_ticks(process: u32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    let fields = stat.rsplit_once(')').map_or("", |(_, rest)| rest).split_whitespace();
    fields.skip(11).take(2).filter_map(|ticks| ticks.parse::<u64>().ok()).sum()
}
