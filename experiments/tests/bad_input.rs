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
        (bent.concat(), format!("res/points.csv:3:{column}: committed_per_s is `fast`, which is no number")),
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
    must(at, &again, 2, &["res holds the results of another run: its base.duration is \"20us\""]);
}

#[test]
fn flags_that_could_mean_something_else_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    must(at, &[&["run"], &FEW[..], &["--history", "-"]].concat(), 2, &["--history writes a file"]);
    assert!(!at.join("-").exists());
    let says = ["there is no cost model of calvin"];
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
