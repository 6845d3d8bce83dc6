//! `doorbell calibrate` as a person meets it.

use primitives::bench::UNCALIBRATED;
use primitives::profile::Profile;
use serde_json::Value;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Command, Output, Stdio};

fn doorbell(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_doorbell"));
    command.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn run(args: &[&str]) -> Output {
    doorbell(args).output().expect("the binary starts")
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn path(at: &Path) -> &str {
    at.to_str().expect("UTF-8")
}

#[test]
fn a_profile_is_fitted_to_what_was_characterized() {
    let dir = tempfile::tempdir().expect("a directory");
    let (results, wrong, fitted) = (
        dir.path().join("seen"),
        dir.path().join("wrong.profile.yaml"),
        dir.path().join("fitted.profile.yaml"),
    );
    let seen = run(&[
        "characterize",
        "--fabric",
        "sim:cx4-edr",
        "--quick",
        "--nodes",
        "3",
        "--threads",
        "4",
        "--coroutines",
        "8",
        "--bench",
        "addresses",
        "--out",
        path(&results),
    ]);
    assert!(seen.status.success(), "{}", stderr(&seen));
    let mut start = Profile::shipped("cx4-edr").expect("shipped");
    start.nic.atomic_hold.value = 390.0;
    start.add_doubt(UNCALIBRATED);
    std::fs::write(&wrong, start.to_yaml().expect("YAML")).expect("written");

    let unknown =
        run(&["calibrate", "--profile", path(&wrong), "--from", path(&results), "--only", "nic.atomic_unt"]);
    assert_eq!(unknown.status.code(), Some(2));
    assert!(stderr(&unknown).contains("did you mean `nic.atomic_unit`?"), "{}", stderr(&unknown));

    let done = run(&[
        "calibrate",
        "--profile",
        path(&wrong),
        "--from",
        path(&results),
        "--only",
        "nic.atomic_hold,nic.doorbell_lock",
        "--out",
        path(&fitted),
        "--json",
        "-",
    ]);
    assert!(done.status.success(), "{}", stderr(&done));
    let told: Value = serde_json::from_slice(&done.stdout).expect("JSON on stdout");
    assert!(told["rms_before"].as_f64() > Some(0.05) && told["rms_after"].as_f64() < Some(0.02), "{told}");
    assert_eq!(told["residuals"].as_array().map(Vec::len), Some(2), "{told}");
    let profile = Profile::load(&fitted).expect("a profile");
    let hold = &profile.nic.atomic_hold;
    assert!((hold.value / 445.0 - 1.0).abs() < 0.03 && hold.free.is_some(), "{hold:?}");
    assert!(hold.reference.contains("addresses fetch-add"), "{hold:?}");
    assert_eq!(profile.nic.doorbell_lock, start.nic.doorbell_lock, "nothing shows it: carried over");
    assert!(profile.is_doubted(UNCALIBRATED), "only some of its numbers were fitted");
    let text = std::fs::read_to_string(&fitted).expect("text");
    assert!(text.contains("carried over: nic.doorbell_lock"), "{}", &text[..400]);

    let again = run(&["calibrate", "--profile", "cx4-edr", "--from", path(&results), "--out", path(&fitted)]);
    assert_eq!(again.status.code(), Some(2), "what is there is not written over: {}", stderr(&again));
    // Without a profile, the one that the characterization left.
    let own = dir.path().join("own.profile.yaml");
    let own = run(&[
        "calibrate",
        "--from",
        path(&results),
        "--rounds",
        "1",
        "--only",
        "nic.atomic_hold",
        "--out",
        path(&own),
    ]);
    assert!(own.status.success(), "{}", stderr(&own));

    // Where nothing else is free, that was all there was to find out.
    let (bare, done) = (dir.path().join("bare.profile.yaml"), dir.path().join("done.profile.yaml"));
    start.add_doubt("measured on a busy machine: all");
    let names: Vec<_> = start.quantities().map(|(section, name, _)| (section, name)).collect();
    for (section, name) in names.into_iter().filter(|(_, name)| *name != "atomic_hold") {
        let number = if section == "nic" { start.nic.number_mut(name) } else { start.cpu.number_mut(name) };
        number.expect("it was listed").free = None;
    }
    std::fs::write(&bare, start.to_yaml().expect("YAML")).expect("written");
    let (bare, out) = (path(&bare), path(&done));
    let all = run(&["calibrate", "--profile", bare, "--from", path(&results), "--rounds", "1", "--out", out]);
    assert!(all.status.success(), "{}", stderr(&all));
    let doubt = Profile::load(&done).expect("a profile").doubt;
    assert_eq!(
        doubt.as_deref(),
        Some("measured on a busy machine: all"),
        "the machine was busy all the same"
    );
}

#[test]
#[cfg(unix)]
fn ctrl_c_keeps_the_best_so_far() {
    let dir = tempfile::tempdir().expect("a directory");
    let out = dir.path().join("early.profile.yaml");
    let mut child =
        doorbell(&["calibrate", "--profile", "cx4-edr", "--out", path(&out)]).spawn().expect("it starts");
    // It listens for signals before it says what it does.
    let mut said = BufReader::new(child.stderr.take().expect("piped"));
    let mut talk = String::new();
    while !talk.contains("fitting profile") {
        assert!(said.read_line(&mut talk).expect("text") > 0, "{talk}");
    }
    assert!(talk.contains("claims DRH-P01"), "{talk}");
    let told = Command::new("kill").args(["-INT", &child.id().to_string()]).status().expect("kill");
    assert!(told.success());
    let ended = child.wait().expect("it ends");
    said.read_to_string(&mut talk).expect("text");
    assert_eq!(ended.code(), Some(130), "{talk}");
    let kept = Profile::load(&out).expect("the profile is there");
    let text = std::fs::read_to_string(&out).expect("text");
    assert!(text.lines().any(|line| line.contains("ended early")), "{}", &text[..400]);
    let start = Profile::shipped("cx4-edr").expect("shipped");
    let same = kept.content_hash() == start.content_hash();
    // A round ends a minute of CPU time or more after the start; on a machine that kept the signal waiting for so long, the
    // best so far is that round's, which a fit takes only if it is better.
    let rms = |line: &str| {
        line.split_whitespace()
            .find_map(|word| word.parse::<f64>().ok().filter(|_| line.contains("root mean")))
    };
    let told: Vec<f64> = talk.lines().filter(|line| line.contains("% after")).filter_map(rms).collect();
    match &told[..] {
        [] | [_] => assert!(same, "{talk}"),
        [before, .., after] => assert!(after <= before && same == (after == before), "{talk}"),
    }
}
