//! Clocks that are wrong because somebody asked for it, by the `doorbell` binary.

mod common;

use common::{code, run, stderr};

/// Clocks that are wrong, by flag and by file: who takes timestamps runs otherwise, and nobody else; no skew is as if nothing were said.
#[test]
fn clocks_are_wrong_where_that_is_asked_for() {
    let temp = tempfile::tempdir().unwrap();
    let path = |name: &str| temp.path().join(name).display().to_string();
    let file = path("clocks.yaml");
    let text = "question: What do wrong clocks cost?\nfabric: sim:cx4-edr\nworkload: ycsb\nset: {zipf_theta: 0.8}\nduration: 300us\n\
                grid:\n  protocol: [mvcc, waitdie, occ, sundial]\n  clock_skew: [0us, 10us, 1ms]\n";
    std::fs::write(&file, text).unwrap();
    let output = run(&["experiment", &file, "--out", &path("grid"), "--json", "-"]);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    let grid: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let points = grid["experiments"][0]["points"].as_array().unwrap();
    let ended = |point: &serde_json::Value| {
        ["committed_per_s", "aborted_per_s", "events"].map(|column| point[column].to_string())
    };
    for (of, wrong) in points.chunks(3).zip([true, true, false, false]) {
        let [right, some, much] = [0, 1, 2].map(|n| ended(&of[n]));
        assert_eq!((right != some, right != much), (wrong, wrong), "{of:?}");
        assert_eq!(of[1]["axis_clock_skew"], "10us");
    }
    let record = std::fs::read_to_string(temp.path().join("grid/run.json")).unwrap();
    let ignores =
        "How wrong clocks are makes no difference to occ, sundial, which take no timestamps from them.";
    assert!(record.contains(ignores), "{record}");
    let alone = |name: &str, flags: &[&str]| {
        let (out, all) = (
            path(name),
            "run --fabric sim:cx4-edr --workload ycsb --set zipf_theta=0.8 --protocol mvcc --duration 300us",
        );
        let output =
            run(&[&all.split(' ').collect::<Vec<_>>(), flags, &["--out", &out, "--json", "-"][..]].concat());
        assert_eq!(code(&output), 0, "{}", stderr(&output));
        // Whoever says a run's settings says these: its line, its title and so its page.
        let wrong = ", clocks wrong by up to 10us";
        assert_eq!(stderr(&output).contains(&format!(" for 300us{wrong}\n")), !flags.is_empty());
        let record = std::fs::read_to_string(temp.path().join(name).join("run.json")).unwrap();
        let record: serde_json::Value = serde_json::from_str(&record).unwrap();
        assert_eq!(record["title"].as_str().unwrap().ends_with(wrong), !flags.is_empty(), "{record}");
        (ended(&serde_json::from_slice(&output.stdout).unwrap()), record["spec"]["clock_skew"].clone())
    };
    assert_eq!(alone("right", &[]), (ended(&points[0]), "0s".into()));
    assert_eq!(alone("wrong", &["--clock-skew", "10us"]), (ended(&points[1]), "10us".into()));
    // A protocol that never asks a clock says so, and one that does says nothing.
    let noted = |protocol: &str| {
        let all = "run --fabric sim:cx4-edr --workload ycsb --set records_per_thread=100 --duration 50us --clock-skew 1ms --protocol";
        let output = run(&[&all.split(' ').collect::<Vec<_>>()[..], &[protocol]].concat());
        assert_eq!(code(&output), 0, "{}", stderr(&output));
        stderr(&output).contains(&format!("makes no difference to {protocol}, which takes no timestamps"))
    };
    assert_eq!(["occ", "sundial", "nowait", "waitdie", "mvcc"].map(noted), [true, true, true, false, false]);
    let refused = run(&["run", "--clock-skew", "2h"]);
    assert_eq!(code(&refused), 2);
    assert!(stderr(&refused).contains("--clock-skew"), "{}", stderr(&refused));
    let same = "--fabric sim:cx4-edr --workload ycsb --set zipf_theta=0.8 --protocol mvcc --duration 300us";
    let same: Vec<&str> = same.split(' ').collect();
    let into = |out: &str| run(&[&["run", "--out", &path(out)], &same[..]].concat());
    let other = into("wrong");
    assert!(stderr(&other).contains("--clock-skew was 10us, and is 0s now"), "{}", stderr(&other));
    // A directory of before there was such a flag is gone on with: it had right clocks.
    let old = temp.path().join("right/run.json");
    let record = std::fs::read_to_string(&old).unwrap();
    let mut record: serde_json::Value = serde_json::from_str(&record).unwrap();
    assert!(record["spec"].as_object_mut().unwrap().remove("clock_skew").is_some());
    std::fs::write(&old, record.to_string()).unwrap();
    let again = into("right");
    assert!(stderr(&again).contains("nothing to measure"), "{}", stderr(&again));
}
