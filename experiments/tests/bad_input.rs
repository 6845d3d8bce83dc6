//! What a hostile user, a crash or a wrong file gives the binary: one message with its place and what to do, the documented exit
//! code, and nothing that was measured is lost.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

/// Runs the binary in `folder`; it must end with `code` and say all of `says` on stderr, which is returned.
fn must(folder: &Path, args: &[&str], code: i32, says: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_doorbell"))
        .args(args)
        .current_dir(folder)
        .output()
        .expect("it runs");
    let talk = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(code), "{args:?}: {talk}");
    for part in says {
        assert!(talk.contains(part), "{args:?}: nothing of {part:?} in\n{talk}");
    }
    assert!(!talk.contains("panicked"), "{talk}");
    talk
}

const FEW: [&str; 6] = ["--fabric", "sim:cx4-edr", "--duration", "20us", "--set", "accounts_per_thread=100"];

#[test]
fn every_kind_of_file_tells_places_alike() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let write = |name: &str, text: &str| std::fs::write(at.join(name), text).unwrap();
    write("a.yaml", "question: x\nnods: 3\n");
    must(at, &["experiment", "a.yaml"], 2, &["error: a.yaml:2:1: unknown", "did you mean `nodes`?"]);
    write("b.plan.yaml", "name: ''\nchosen_by: me\nwhy: x\nplan: {fetch: one-sided}\n");
    let unnamed = ["run", "--fabric", "sim:cx4-edr", "--plan", "b.plan.yaml"];
    must(at, &unnamed, 2, &["error: b.plan.yaml:1:", "name: it is empty; a plan needs a name"]);
    write("t.yaml", "question: x\nfabric: tcp\nplan: one-sided\n");
    let one_sided = "error: t.yaml:3:7: the only point: plan `one-sided` cannot run here";
    must(at, &["experiment", "t.yaml"], 2, &[one_sided, "because: ", "hint: the nearest plan"]);
    write("t.yaml", "question: x\nfabric: tcp\ngrid:\n  plan: [two-sided, one-sided, farm, drtm-r]\n");
    let one_sided = "error: t.yaml:4:21: point 1 of the grid, plan=one-sided";
    must(at, &["experiment", "t.yaml"], 2, &[one_sided, "2 more of 4 points cannot run either"]);
    write("r.yaml", "question: x\nfabric: sim:cx4-edr\ngrid:\n  replicas: [1, 9]\n");
    must(
        at,
        &["experiment", "r.yaml"],
        2,
        &["error: r.yaml:4:17: point 1 of the grid, replicas=9: 9 copies"],
    );
    write("p.plan.yaml", "name: p\nplan:\n  fetch: oen-sided\n");
    let says = ["error: p.plan.yaml:3:", "oen-sided", "did you mean `one-sided`?", "╭"];
    must(at, &["run", "--fabric", "sim:cx4-edr", "--plan", "p.plan.yaml"], 2, &says);
    write("e.yaml", "question: x\nfabric: sim:cx4-edr\nplan: p.plan.yaml\n");
    let says = ["error: e.yaml:3:7: the only point cannot run", "╭", "because: p.plan.yaml:3:"];
    must(at, &["experiment", "e.yaml"], 2, &says);
    write("n.yaml", "extends: cx4-edr\nname: n\ndescription: d\nnic:\n  link_sped: 3\n");
    must(at, &["run", "--fabric", "sim:n.yaml"], 2, &["error: n.yaml:5:", "link_sped", "╭"]);
    for (number, says) in [
        ("link_rate: {value: 0, unit: GB/s", "n.yaml:5:14: nic.link_rate = 0 GB/s: must be above zero"),
        ("pcie_read: {value: -4, unit: ns", "n.yaml:5:14: nic.pcie_read = -4 ns: must not be negative"),
        ("qp_cache_entries: {value: 0, unit: count", "n.yaml:5:21: nic.qp_cache_entries = 0 count: must be"),
    ] {
        let text = format!(
            "extends: cx4-edr\nname: n\ndescription: d\nnic:\n  {number}, source: assumed, ref: x}}\n"
        );
        write("n.yaml", &text);
        must(at, &["run", "--fabric", "sim:n.yaml"], 2, &[&format!("error: {says}"), "╭"]);
    }
    write("n.yaml", "name: n\nextends: cx99\ndescription: d\n");
    must(
        at,
        &["run", "--fabric", "sim:n.yaml"],
        2,
        &["error: n.yaml:2:10: extends: no profile", "╭", "there are cx4-edr,"],
    );
    let mtu = "extends: cx4-edr\nname: n\ndescription: d\nnic:\n  mtu: {value: \"x\", unit: B, source: assumed, ref: x}\n";
    write("n.yaml", mtu);
    must(at, &["run", "--fabric", "sim:n.yaml"], 2, &["error: n.yaml:5:16: nic.mtu.value: ", "╭"]);
    write("n.yaml", &mtu.replace("\"x\"", "1"));
    must(
        at,
        &["run", "--fabric", "sim:n.yaml"],
        2,
        &["error: n.yaml:5:8: nic.mtu = 1 B", "cx4-edr has 4096 B"],
    );
    write("i.yaml", "question: x\nfabric: sim:cx4-edr\nplan:\n  name: mine\n  lok: one-sided\n");
    must(
        at,
        &["experiment", "i.yaml"],
        2,
        &["error: i.yaml:5:3: plan: unknown field `lok`", "did you mean `lock`"],
    );
    write("h.json", "{}");
    let formats = "begins like none of the formats known: doorbell, elle-append";
    must(at, &["check", "h.json"], 2, &["error: h.json:1:1: ", formats, "doorbell run --history"]);
    for (args, says) in [
        (&["experiment", "j.yaml"][..], "hint: did you mean "),
        (
            &["run", "--plan", "q.plan.yaml"],
            ". has b.plan.yaml, p.plan.yaml; `doorbell tune --out DIR` leaves",
        ),
        (&["run", "--fabric", "sim:q.profile.yaml"], "hint: `doorbell characterize --out DIR` leaves one"),
        (&["check", "g.json"], "h.json; `doorbell run --history FILE` records one"),
        (&["report", "nowhere"], "hint: `doorbell quickstart`, or any command that measures"),
        (&["calibrate", "--from", "nowhere"], "hint: `doorbell quickstart`, or any command that measures"),
        (&["calibrate"], "--from DIR"),
    ] {
        must(at, args, 2, &[says]);
    }
    write("h.json", "{\"format\":\"doorbell-history\",\"version\":7}");
    must(at, &["check", "h.json"], 2, &["error: h.json:1:", "format version 7 is not known here"]);
    let node = ["node", "--cluster", "c.yaml", "--id", "1"];
    write("c.yaml", "key: k\nnodes:\n  - {id: 0, address: 'a:1'}\n  - {id: 0, address: b}\n");
    must(at, &node, 2, &["error: c.yaml:4:5: two nodes have id 0"]);
    write("c.yaml", "key: k\nnodes:\n  - {id: 0, address: 'a:1'}\n  - {id: 1, address: 'b:99999'}\n");
    must(at, &node, 2, &["error: c.yaml:4:5: node 1 has the address `b:99999`"]);
    std::fs::create_dir(at.join("k")).unwrap();
    std::fs::set_permissions(at.join("k"), std::fs::Permissions::from_mode(0o755)).unwrap();
    write("c.yaml", "key: k\nnodes:\n  - {id: 0, address: 'a:1'}\n  - {id: 1, address: b}\n");
    let talk = must(at, &node, 2, &["k cannot be read: is a directory"]);
    assert!(!talk.contains("chmod"), "{talk}");
}

#[test]
fn what_is_wrong_with_results_is_told_at_its_place() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let text = "question: Who comes back?\nfabric: sim:cx4-edr\nset: {accounts_per_thread: 100}\nduration: 20us\n\
                nodes: 3\nthreads: 1\ngrid: {coroutines: [1, 2]}\n";
    std::fs::write(at.join("e.yaml"), text).unwrap();
    let again = ["experiment", "e.yaml", "--out", "res"];
    must(at, &again, 0, &[]);
    let points = at.join("res/points.csv");
    let whole = std::fs::read(&points).unwrap();
    // A crash of the machine may leave any bytes behind the last row that was whole.
    std::fs::write(&points, [&whole[..], b"\xff\xfe\0"].concat()).unwrap();
    must(at, &again, 0, &[]);
    assert_eq!(std::fs::read(&points).unwrap(), whole, "nothing was lost, nothing measured again");
    let broken = [&whole[..], b"x,1\n"].concat();
    std::fs::write(&points, &broken).unwrap();
    must(at, &again, 2, &["error: res/points.csv:4:3: ", "restore res/points.csv from a copy"]);
    assert_eq!(std::fs::read(&points).unwrap(), broken, "left as it was");
    // Who goes on with a directory and who draws it see the same, and say it alike.
    let text = String::from_utf8(whole.clone()).unwrap();
    let rate = text.lines().next().unwrap().split(',').position(|c| c == "committed_per_s").unwrap();
    let mut bent: Vec<Vec<&str>> = text.lines().map(|line| line.split(',').collect()).collect();
    bent[2][rate] = "fast";
    let column = bent[2][..rate].iter().map(|cell| cell.len() + 1).sum::<usize>() + 1;
    let bent: Vec<String> = bent.into_iter().map(|cells| cells.join(",") + "\n").collect();
    let first = text.lines().nth(1).unwrap();
    for (text, says) in [
        (format!("{text}{first}\n"), "res/points.csv:4:1: point 0 is there twice".to_owned()),
        (
            format!("{text}{}\n", first.replacen('0', "7", 1)),
            "res/points.csv:4:1: point 7 is no part".to_owned(),
        ),
        (
            bent.concat(),
            format!(
                "res/points.csv:3:{column}: committed_per_s is `fast`, which is no finite number from 0 on"
            ),
        ),
    ] {
        std::fs::write(&points, &text).unwrap();
        for args in [&again[..], &["report", "res"]] {
            must(at, args, 2, &[&says, "hint: restore res/points.csv from a copy"]);
        }
        assert_eq!(std::fs::read_to_string(&points).unwrap(), text, "left as it was");
    }
    std::fs::write(&points, &whole).unwrap();
    std::fs::write(at.join("res/run.json"), "{\"schema\": 1,\n\"kind\": ").unwrap();
    let talk = must(at, &again, 2, &["error: res/run.json:2:"]);
    assert!(!talk.contains(" line 2"), "said once: {talk}");
    let talk = must(at, &["report", "res"], 2, &["res/run.json:2:"]);
    assert!(!talk.contains(" line 2"), "said once: {talk}");
    must(at, &["report", "res/run.json"], 2, &["hint: results are directories"]);
}

/// What can be drawn is drawn, but something that was given could not be used.
#[test]
fn a_page_without_something_that_was_given_is_no_success() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    for name in ["a", "b", "c"] {
        must(at, &[&["run", "--out", name][..], &FEW].concat(), 0, &[]);
    }
    let page = || std::fs::read_to_string(at.join("page/report.html")).unwrap();
    let all = ["report", "a", "b", "c", "--out", "page"];
    must(at, &all, 0, &[]);
    std::fs::write(at.join("b/run.json"), "{\"schema\": 1,\n\"kind\": ").unwrap();
    let error = "error: the page was made without some of what was given";
    let talk = must(at, &all, 2, &[error, "because: b/run.json:2:", "hint: restore b/run.json"]);
    assert_eq!(talk.matches("b/run.json:2:").count(), 1, "said once: {talk}");
    assert!(page().contains("Plans side by side") && page().contains("b/run.json:2:"));
    // So with a table beside the points, and with what is not there.
    std::fs::write(at.join("c/phases.csv"), "point,phase\n0\n").unwrap();
    must(at, &all, 2, &[error, "because: b/run.json:2:", "because: c/phases.csv:2:"]);
    let missing = ["report", "a", "nowhere", "--out", "page"];
    must(at, &missing, 2, &[error, "nowhere", "hint: name directories that hold results"]);
    // All that was measured is there; a run that was cut off has its note.
    std::fs::remove_file(at.join("a/phases.csv")).unwrap();
    must(at, &["report", "a", "--out", "page"], 0, &["phases.csv is missing"]);
}

/// Hours of measuring are not lost to another title of a figure.
#[test]
fn points_outlive_the_question_and_the_figures_that_show_them() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let text = "question: Who comes back?\nfabric: sim:cx4-edr\nset: {accounts_per_thread: 100}\nduration: 20us\n\
                nodes: 3\nthreads: 1\ngrid: {coroutines: [1, 2]}\n\
                figures: [{title: Rate, x: coroutines, y: committed_per_s}]\n";
    let again = ["experiment", "e.yaml", "--out", "res"];
    std::fs::write(at.join("e.yaml"), text).unwrap();
    must(at, &again, 0, &[]);
    let points = std::fs::read(at.join("res/points.csv")).unwrap();
    let other = text.replace("Who comes", "Who goes").replace("{title: Rate", "{title: Speed");
    std::fs::write(at.join("e.yaml"), &other).unwrap();
    must(at, &again, 0, &[]);
    assert_eq!(std::fs::read(at.join("res/points.csv")).unwrap(), points, "nothing was measured again");
    must(at, &["report", "res"], 0, &[]);
    let page = std::fs::read_to_string(at.join("res/report.html")).unwrap();
    assert!(page.contains("Speed") && page.contains("Who goes back?"));
    assert!(!page.contains("Who comes back?") && !page.contains(">Rate<"));
    std::fs::write(at.join("e.yaml"), other.replace("20us", "21us")).unwrap();
    must(at, &again, 2, &["res holds the results of another run: `duration` was 20us, and is 21us now"]);
    // A page that lies there is not left with the old question.
    std::fs::write(at.join("e.yaml"), other.replace("Who goes", "Who stays")).unwrap();
    must(at, &again, 0, &["nothing to measure, all 2 points are there", "res/report.html is drawn anew"]);
    let page = std::fs::read_to_string(at.join("res/report.html")).unwrap();
    assert!(
        page.contains("Who stays back?")
            && !page.contains("Who goes")
            && page.contains("doorbell report res")
    );
    // One that shows others too is not cut down to this one.
    must(at, &["experiment", "e.yaml", "--out", "more"], 0, &[]);
    let page = |more: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_doorbell"))
            .args([&["report", "res"], more].concat())
            .current_dir(at)
            .output()
            .expect("it runs");
        let text = String::from_utf8(output.stdout).expect("text");
        text.lines().last().unwrap_or_default().to_owned()
    };
    // Who names no directory for it hears which one was taken.
    assert_eq!(page(&["more", "--out", "two"]), "page: two/report.html");
    assert_eq!(page(&[]), "page: res/report.html");
    let first = "page: res/report.html (in the first of these directories; --out names another)";
    assert_eq!(page(&["more"]), first);
    let both = std::fs::read(at.join("res/report.html")).unwrap();
    must(at, &again, 0, &["res/report.html shows other directories too"]);
    assert_eq!(std::fs::read(at.join("res/report.html")).unwrap(), both);
}

#[test]
fn flags_that_could_mean_something_else_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    must(at, &[&["run"], &FEW[..], &["--history", "-"]].concat(), 2, &["--history writes a file"]);
    assert!(!at.join("-").exists());
    let says = ["--protocol names calvin twice"];
    must(at, &["tune", "--fabric", "sim:cx4-edr", "--protocol", "all,calvin"], 2, &says);
    let talk =
        must(at, &["run", "--fabric", "sim:no.yaml"], 2, &["cannot read profile no.yaml: No such file"]);
    assert_eq!(talk.matches("No such file").count(), 1, "{talk}");
}

/// Minutes of measuring end with a directory that takes nothing: the numbers are seen all the same.
#[test]
fn a_run_that_cannot_be_kept_is_shown() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    std::fs::write(at.join("file"), "").unwrap();
    must(
        at,
        &[&["run"], &FEW[..], &["--out", "file"]].concat(),
        2,
        &["cannot create file", "a file is in the way"],
    );
    let binary = env!("CARGO_BIN_EXE_doorbell");
    // What a run begins with fits, and its record with the summary does not.
    must(at, &[&["run"], &FEW[..], &["--out", "whole"]].concat(), 0, &[]);
    let blocks = (std::fs::metadata(at.join("whole/run.json")).unwrap().len() - 1) / 512;
    let script = format!("trap '' XFSZ; ulimit -f {blocks}; exec {binary} run {} --out res", FEW.join(" "));
    let output = Command::new("sh").args(["-c", &script]).current_dir(at).output().unwrap();
    let talk = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{talk}");
    assert!(talk.contains("make room there, or choose another place"), "{talk}");
    assert!(String::from_utf8_lossy(&output.stdout).contains("isolation: "), "shown: {talk}");
}

/// A plan file says what it was made for; who runs it under another protocol is told which one that is.
#[test]
fn a_plan_of_another_protocol_says_of_which() {
    let folder = tempfile::tempdir().unwrap();
    let few = |args: &[&'static str]| [args, &FEW].concat();
    must(folder.path(), &few(&["tune", "--protocol", "nowait", "--out", "tuned"]), 0, &[]);
    let run = few(&["run", "--plan", "tuned/tuned.plan.yaml"]);
    must(folder.path(), &run, 2, &["cannot run here", "it was made for nowait: add `--protocol nowait`"]);
    let run = [run.as_slice(), &["--protocol", "nowait"]].concat();
    must(folder.path(), &run, 0, &[]);
}

#[test]
fn files_without_an_end_and_files_that_are_no_text_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let meant = "hint: name the file that was meant";
    must(
        at,
        &["run", "--fabric", "sim:cx4-edr", "--plan", "/dev/zero"],
        2,
        &["/dev/zero: longer than 1 MiB", meant],
    );
    std::os::unix::fs::symlink("/dev/zero", at.join("zero.yaml")).unwrap();
    must(at, &["run", "--fabric", "sim:zero.yaml"], 2, &["zero.yaml: longer than 1 MiB", meant]);
    must(at, &["experiment", "zero.yaml"], 2, &["zero.yaml: longer than 1 MiB", meant]);
    std::fs::write(at.join("latin.yaml"), b"question: caf\xe9?\n").unwrap();
    must(
        at,
        &["experiment", "latin.yaml"],
        2,
        &["latin.yaml:1:14: bytes that are not text", "hint: write it as UTF-8"],
    );
    let deep = format!("question: x\nset: {{x: {}{}}}\n", "[".repeat(70), "]".repeat(70));
    std::fs::write(at.join("deep.yaml"), deep).unwrap();
    let talk = must(at, &["experiment", "deep.yaml"], 2, &["deep.yaml:2:", "nested too deep", meant]);
    assert!(!talk.contains("Depth"), "{talk}");
}

#[test]
fn a_directory_that_lost_a_part_is_made_whole_and_told() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let read = |file: &str| std::fs::read_to_string(at.join(file)).unwrap();
    std::fs::write(
        at.join("e.yaml"),
        "question: x\nfabric: sim:cx4-edr\nduration: 300us\nset: {accounts_per_thread: 100}\ngrid:\n  nodes: [3, 4]\n",
    )
    .unwrap();
    let sweep = ["experiment", "e.yaml", "--out", "e"];
    must(at, &sweep, 0, &[]);
    let (points, phases) = (read("e/points.csv"), read("e/phases.csv"));
    std::fs::write(at.join("e/phases.csv"), &phases[..phases.find("\n1,").unwrap() + 1]).unwrap();
    must(at, &["report", "e", "--out", "page"], 0, &["it lost what 1 point left in phases.csv"]);
    let told = "warning: e lost what 1 point left in phases.csv: 1 point is to be measured again";
    must(at, &sweep, 0, &[told, "resuming: 1 of 2 points are there"]);
    assert_eq!((read("e/points.csv"), read("e/phases.csv")), (points, phases));
    std::fs::remove_dir_all(at.join("e/histograms")).unwrap();
    let told = "e lost what 2 points left in histograms: their rows are there";
    must(at, &["report", "e", "--out", "page"], 0, &["it lost what 2 points left in histograms"]);
    must(at, &sweep, 0, &[told, "nothing to measure, all 2 points are there"]);
    let talk = must(at, &sweep, 0, &["nothing to measure"]);
    assert!(!talk.contains("lost"), "told once: {talk}");
    must(at, &["report", "e", "--out", "page"], 0, &[]);
    assert!(read("page/report.html").contains("it lost what 2 points left in histograms"), "as a note");

    let run = [&["run", "--out", "r"], &FEW[..3], &["300us"], &FEW[4..]].concat();
    must(at, &run, 0, &[]);
    must(at, &run, 0, &["nothing to measure, r holds this run"]);
    must(at, &[&run[..], &["--history", "h.json"]].concat(), 2, &["there is no history left to keep"]);
    let phases = read("r/phases.csv");
    std::fs::write(at.join("r/phases.csv"), &phases[..phases.len() / 2]).unwrap();
    must(at, &run, 0, &["r lost what 1 point left in phases.csv"]);
    assert_eq!(read("r/phases.csv"), phases);
    let record: serde_json::Value = serde_json::from_str(&read("r/run.json")).unwrap();
    assert!(record["summary"]["events_per_s"].as_f64().is_some_and(|rate| rate > 0.0), "{record}");
}

/// What was tuned and run by a profile must find it again.
#[test]
fn a_profile_outlives_the_points_that_it_was_fitted_to() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let some = ["characterize", "--bench", "latency", "--duration", "1ms", "--quick", "--out", "c"];
    must(at, &some, 0, &[]);
    let profile = "extends: cx4-edr\nname: loopback\ndescription: d\n";
    std::fs::write(at.join("c/loopback.profile.yaml"), profile).unwrap();
    let points = std::fs::read_to_string(at.join("c/points.csv")).unwrap();
    let first: String = points.split_inclusive('\n').take(2).collect();
    std::fs::write(at.join("c/points.csv"), first).unwrap();
    must(at, &some, 0, &["c lost what ", " left in points.csv"]);
    assert_eq!(std::fs::read_to_string(at.join("c/loopback.profile.yaml")).unwrap(), profile);
    let record = std::fs::read_to_string(at.join("c/run.json")).unwrap();
    assert!(record.contains("loopback.profile.yaml was fitted before some of these points"), "{record}");
}

/// What was foretold is told with the profile that it was foretold by, wherever it would run.
#[test]
fn the_profile_that_plans_were_priced_with_is_recorded() {
    let folder = tempfile::tempdir().unwrap();
    let few = ["--set", "accounts_per_thread=100", "--out", "t"];
    must(
        folder.path(),
        &[&["tune", "--fabric", "loopback", "--profile", "cx4-edr"][..], &few].concat(),
        0,
        &[],
    );
    let record = std::fs::read_to_string(folder.path().join("t/run.json")).unwrap();
    let record: serde_json::Value = serde_json::from_str(&record).unwrap();
    assert_eq!((&record["fabric"], &record["profile"]["name"]), (&"loopback".into(), &"cx4-edr".into()));
    assert_eq!(record["profile"]["hash"], record["spec"]["profile_hash"]);
    must(folder.path(), &["report", "t"], 0, &[]);
    let page = std::fs::read_to_string(folder.path().join("t/report.html")).unwrap();
    assert!(page.contains("profile cx4-edr (") && !page.contains("profile not recorded"));
}

/// What somebody changed is told as it is given, with what to do.
#[test]
fn a_directory_of_another_run_says_which_flags_differ() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let what = ["--set", "accounts_per_thread=100", "--coroutines", "1"];
    let study = ["study", "logging", "--fabric", "sim:cx4-edr", "--duration", "20us", "--coroutines", "1"];
    let bench = ["characterize", "--quick", "--fabric", "sim:cx4-edr", "--bench", "latency"];
    let run = ["run", "--fabric", "sim:cx4-edr", "--duration", "20us"];
    let tune = ["tune", "--fabric", "sim:cx4-edr", "--duration", "20us"];
    for (first, change, says) in [
        ([&run[..], &what].concat(), &["--plan", "two-sided"][..], "--plan was drtm-h, and is two-sided now"),
        ([&tune[..], &what].concat(), &["--verify"], "--verify was not given, and is given now"),
        (study.to_vec(), &["--payload", "32,64"], "--payload was 16, and is 32,64 now"),
        (bench.to_vec(), &["--duration", "30us"], "--duration was 150us, and is 30us now"),
    ] {
        let first = [&first[..], &["--out", first[0]]].concat();
        must(at, &first, 0, &[]);
        let says = [
            &format!(" holds the results of another run: {says}"),
            "another directory with --out, or remove",
        ];
        must(at, &[&first[..], change].concat(), 2, &says);
    }
}

/// Rates of other plans are not those of this search.
#[test]
fn a_search_by_another_profile_is_another_run() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let by = |profile: &'static str| [&["tune", "--profile", profile, "--out", "t"][..], &FEW].concat();
    must(at, &by("cx4-edr"), 0, &[]);
    let plan = || std::fs::read(at.join("t/tuned.plan.yaml")).unwrap();
    let before = plan();
    must(at, &by("cx4-edr"), 0, &["nothing to measure"]);
    must(at, &by("tcp-10g"), 2, &["t holds the results of another run: the NIC profile was cx4-edr ("]);
    // So if another build ranks other plans by the same profile.
    let record = std::fs::read_to_string(at.join("t/run.json")).unwrap();
    std::fs::write(at.join("t/run.json"), record.replace("tuned under occ: ", "tuned under occ: other "))
        .unwrap();
    must(at, &by("cx4-edr"), 2, &["t holds the results of another run: the search finds other plans"]);
    assert_eq!(plan(), before);
}

#[test]
fn what_contradicts_itself_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    must(
        at,
        &["run", "--no-check", "--history", "h.json"],
        2,
        &["'--no-check' cannot be used with '--history"],
    );
    let shorter = ["run", "--precision", "1%", "--duration", "2ms", "--max-duration", "1ms"];
    must(at, &shorter, 2, &["the longest run, 1ms, is shorter than its shortest, a duration of 2ms"]);
    let write = |text: &str| std::fs::write(at.join("e.yaml"), format!("question: x\n{text}")).unwrap();
    write("precision: 1%\nduration: 2ms\nmax_duration: 1ms\n");
    must(at, &["experiment", "e.yaml"], 2, &["error: e.yaml:4:15: ", "the longest run, 1ms"]);
    let none =
        "the longest run, 3ms, is for a precision, and none is asked for: exactly the duration, 2ms, is";
    must(at, &["run", "--duration", "2ms", "--max-duration", "3ms"], 2, &[none]);
    write("duration: 2ms\nmax_duration: 3ms\n");
    must(at, &["experiment", "e.yaml"], 2, &["error: e.yaml:3:15: ", none]);
    write("fabric: sim:cx4-edr\ncoroutines: 2\ngrid:\n  coroutines: [1, 4]\n");
    let says = ["error: e.yaml:3:13: coroutines: no point has this value, the grid gives others at 5:3"];
    must(at, &["experiment", "e.yaml"], 2, &says);
    write("fabric: sim:cx4-edr\nset: {accounts_per_thread: 7}\ngrid:\n  set.accounts_per_thread: [100]\n");
    must(at, &["experiment", "e.yaml"], 2, &["set.accounts_per_thread: no point has this value"]);
    write("fabric: sim:cx4-edr\ngrid:\n  coroutines: 4\n");
    must(
        at,
        &["experiment", "e.yaml"],
        2,
        &["error: e.yaml:4:3: grid.coroutines: an axis has a list", "hint: write `coroutines: [4]`"],
    );
}

/// Where nobody names a directory, another run is no mistake: it gets one of its own, and each goes on in its own.
#[test]
fn a_second_try_with_other_flags_gets_a_directory_of_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let tune = |coroutines| ["tune", "--fabric", "sim:cx4-edr", "--coroutines", coroutines];
    assert!(!must(at, &tune("2"), 0, &[]).contains("kept in"));
    let moved = "doorbell-out/tune-smallbank-sim-cx4-edr holds the results of another run: --coroutines was 2, and is 4 now; \
                 this one is kept in doorbell-out/tune-smallbank-sim-cx4-edr-2";
    must(at, &tune("4"), 0, &[moved]);
    must(at, &tune("4"), 0, &[moved, "nothing to measure"]);
    assert!(!must(at, &tune("2"), 0, &["nothing to measure"]).contains("kept in"));
    assert_eq!(std::fs::read_dir(at.join("doorbell-out")).unwrap().count(), 2);
    let write = |duration: &str| {
        let text = format!(
            "question: x\nfabric: sim:cx4-edr\nset: {{accounts_per_thread: 100}}\nduration: {duration}\n"
        );
        std::fs::write(at.join("e.yaml"), text).unwrap();
    };
    write("20us");
    must(at, &["experiment", "e.yaml"], 0, &[]);
    write("21us");
    must(at, &["experiment", "e.yaml"], 0, &["this one is kept in doorbell-out/e-2"]);
    must(
        at,
        &["experiment", "e.yaml", "--out", "doorbell-out/e"],
        2,
        &["`duration` was 20us, and is 21us now"],
    );
    // A study, with records that one of its variants cannot carry and others that none can: what was measured is told.
    let study = ["study", "validation", "--fabric", "sim:cx4-edr", "--coroutines", "1", "--duration", "50us"];
    must(at, &[&study[..], &["--payload", "16,8192"]].concat(), 0, &["records of 8192 B is left out"]);
    must(
        at,
        &study,
        0,
        &["study-validation-sim-cx4-edr holds the results of another run: --payload was 16,8192"],
    );
}

#[test]
fn a_plan_written_by_hand_needs_a_name_and_a_plan() {
    let folder = tempfile::tempdir().unwrap();
    let steps = "{fetch: one-sided, lock: one-sided, validate: one-sided, log: one-sided, install: one-sided, unlock: one-sided}";
    std::fs::write(folder.path().join("p.plan.yaml"), format!("name: mine\nplan: {steps}\n")).unwrap();
    must(folder.path(), &[&["run", "--plan", "p.plan.yaml"], &FEW[..]].concat(), 0, &["with plan mine"]);
}

/// Of plans that a protocol makes one of that is said, before they run twice.
#[test]
fn plans_that_are_one_under_a_protocol_are_told() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let grid = "question: x\nfabric: sim:cx4-edr\nset: {accounts_per_thread: 100}\nduration: 20us\ngrid:\n  protocol: [occ, nowait]\n  \
                plan: [one-sided, drtm-h, two-sided]\n";
    std::fs::write(at.join("g.yaml"), grid).unwrap();
    let told = must(at, &["experiment", "g.yaml"], 0, &["Under nowait the plans"]);
    assert!(!told.contains("Under occ"), "{told}");
}
