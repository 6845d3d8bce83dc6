//! `doorbell check`: verdicts, exit codes, and the formats of other checkers.

mod common;

use common::{SMALL, code, doorbell, refused, run, stderr, told};
use engine::verify::{History, Key, Recorder, Share, format};
use primitives::units::Nanos;

/// Reads of what other nodes wrote would look like reads of what nobody wrote.
#[test]
fn a_nodes_share_is_refused_and_not_judged() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("history.json");
    let mut session = Recorder::new(0);
    session.begin(Nanos(10));
    session.read(Key { table: 0, key: 7 }, 3);
    session.commit(Nanos(15));
    let history = History::merge([session], Some(0));
    let mut bytes = Vec::new();
    format::write_share(&history, Share { node: 1, nodes: 3 }, &mut bytes).unwrap();
    std::fs::write(&path, &bytes).unwrap();
    let file = path.to_str().unwrap();
    let says = ["history.json is the share of node 1, one of 3", "hint: check the whole", "--history FILE"];
    let target = dir.path().join("elle.edn");
    refused(&["check", file], 2, &says);
    refused(&["check", file, "--export", "elle-register", target.to_str().unwrap()], 2, &says);
    assert!(!target.exists());
    // As the whole it is judged.
    bytes.clear();
    format::write(&history, &mut bytes).unwrap();
    std::fs::write(&path, &bytes).unwrap();
    assert_eq!(code(&run(&["check", file])), 1);
}

#[test]
fn check_judges_a_history_and_refuses_what_is_none() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("history.json");
    let file = path.to_str().unwrap();
    let record = |second_reads: u64| {
        let account = Key { table: 0, key: 7 };
        let mut session = Recorder::new(0);
        for (at, read, write) in [(10, 0, 1), (30, second_reads, 2)] {
            session.begin(Nanos(at));
            session.read(account, read);
            session.write(account, write);
            session.commit(Nanos(at + 5));
        }
        let mut bytes = Vec::new();
        format::write(&History::merge([session], Some(0)), &mut bytes).unwrap();
        std::fs::write(&path, &bytes).unwrap();
        bytes
    };
    let bytes = record(1);
    let output = run(&["check", file]);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    let output = run(&["check", file, "--level", "serializable", "--json", "-"]);
    let verdict: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&verdict["level"], &verdict["verdict"]), (&"serializable".into(), &"pass".into()));

    record(0); // the second transaction read the value that the first one replaced: a lost update
    let output = run(&["check", file, "--json", "-"]);
    assert_eq!(code(&output), 1);
    assert!(stderr(&output).contains("history.json is not strict-serializable"), "{}", stderr(&output));
    let verdict: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&verdict["verdict"], &verdict["anomaly"]["kind"]), (&"fail".into(), &"G-single".into()));
    // Whoever stops reading does not change the verdict.
    for args in [["check", file].as_slice(), &["check", file, "--json", "-"]] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = doorbell().args(args).stdout(writer).output().unwrap();
        assert_eq!(code(&output), 1, "{args:?}");
        assert!(stderr(&output).contains("history.json is not strict-serializable"), "{args:?}");
    }

    std::fs::write(&path, &bytes[..bytes.len() / 2]).unwrap();
    refused(&["check", file], 2, &["history.json:2:", "doorbell run --history"]);
    refused(&["check", "/dev/zero"], 2, &["/dev/zero is not a file"]);
    refused(&["check", "/nowhere.json"], 2, &["cannot read /nowhere.json"]);
    refused(
        &["check", file, "--level", "snapshot"],
        2,
        &["there are read-committed, read-atomicity, snapshot"],
    );
}

#[test]
fn check_writes_and_reads_other_checkers_formats() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    // Write skew: of snapshot isolation, and not serializable.
    let key = |key| Key { table: 0, key };
    let mut sessions = [Recorder::new(0), Recorder::new(1)];
    for (session, writes) in sessions.iter_mut().zip([1, 2]) {
        session.begin(Nanos(10));
        session.read(key(1), 0);
        session.read(key(2), 0);
        session.write(key(writes), 1);
        session.commit(Nanos(20));
    }
    let mut bytes = Vec::new();
    format::write(&History::merge(sessions, Some(0)), &mut bytes).unwrap();
    std::fs::write(at("history.json"), &bytes).unwrap();
    for name in ["elle-append", "elle-register", "dbcop", "plume", "doorbell"] {
        let file = at(name);
        let output =
            run(&["check", &at("history.json"), "--export", name, &file, "--level", "snapshot-isolation"]);
        assert_eq!(code(&output), 0, "{}", stderr(&output));
        assert!(stderr(&output).contains(&format!("({name}, ")), "{}", stderr(&output));
        let output = run(&["check", &file, "--level", "snapshot-isolation"]);
        assert_eq!(code(&output), 0, "{name}: {}", stderr(&output));
        let output = run(&["check", &file, "--format", name]);
        assert_eq!(code(&output), 1, "{name}: {}", stderr(&output));
        assert!(String::from_utf8_lossy(&output.stdout).contains("write skew"), "{name}");
        let untimed = ["dbcop", "plume"].contains(&name);
        assert_eq!(untimed, stderr(&output).contains("checked without real time"), "{}", stderr(&output));
        assert_eq!(name == "plume", stderr(&output).contains("cut between two lines"), "{}", stderr(&output));
        if untimed {
            refused(&["check", &file, "--level", "strict-serializable"], 2, &["has no times"]);
        }
    }
    let plume = at("plume");
    refused(
        &["check", &plume, "--format", "dbcop"],
        2,
        &[&format!("{plume}:1:1: this looks like plume, not like dbcop")],
    );
    refused(&["check", &plume, "--export", "dbcop", &plume], 2, &["is there already"]);
    refused(&["check", &plume, "--export", "elle", &at("x")], 2, &["no history format is called \"elle\""]);
    refused(&["check", &plume, "--format", "json"], 2, &["there are doorbell, elle-append"]);
}

/// Lists of Elle's that cannot be are a verdict; what is no list is no history.
#[test]
fn lists_that_disagree_fail_the_check() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("lists.edn");
    let file = path.to_str().unwrap();
    for (first, second, exit, says) in [
        ("[1 2]", "[1 2]", 0, "serializable: pass"),
        ("[1 2]", "[2 1]", 1, "element 2 was read where another read of the list has element 1"),
        ("[1 9 2]", "[1 2]", 1, "unwritten-read on table 0 key 7 version 9"),
        ("[1 x 2]", "[1 2]", 2, "`x` in a list"),
    ] {
        let appends = "{:process 0 :type :ok :value [[:append 7 1] [:append 8 1]]}\n\
                       {:process 1 :type :ok :value [[:append 7 2]]}\n";
        let reads = format!(
            "{{:process 2 :type :ok :value [[:r 7 {first}]]}}\n\
             {{:process 3 :type :ok :value [[:r 7 {second}]]}}\n"
        );
        std::fs::write(&path, format!("{appends}{reads}")).unwrap();
        let output = run(&["check", file]);
        let said = String::from_utf8_lossy(&output.stdout).into_owned() + &stderr(&output);
        assert_eq!(code(&output), exit, "{said}");
        assert!(said.contains(says), "{said}");
    }
}

#[test]
fn an_empty_history_is_not_passed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("history.json");
    let mut bytes = Vec::new();
    format::write(&History::merge([], Some(0)), &mut bytes).unwrap();
    for (text, more) in [(&bytes[..], &[][..]), (b"[]", &["--format", "dbcop"])] {
        std::fs::write(&path, text).unwrap();
        let args = [&["check", path.to_str().unwrap()], more].concat();
        refused(&args, 1, &["history.json has no transactions: there is nothing to judge"]);
    }
}

/// What `run` says of the history that it wrote, and the command it names.
#[test]
fn a_run_says_where_its_history_is() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("h.json");
    let file = path.to_str().unwrap();
    let asked = ["run", "--duration", "100us", "--seed", "3", "--history", file];
    let (_, talk) = told(&[&asked[..], SMALL].concat());
    let line = talk.lines().find_map(|line| line.strip_prefix("wrote the history, ")).expect("a line of it");
    let (count, rest) = line.split_once(" transactions in ").expect("how many");
    assert!(rest.ends_with(&format!(" MB, to {file}; `doorbell check` judges it")), "{line}");
    let (judged, _) = told(&["check", file]);
    assert!(judged.contains(&format!("{count} transactions: ")), "{line}: {judged}");
    let left: Vec<_> =
        std::fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["h.json"]);
}
