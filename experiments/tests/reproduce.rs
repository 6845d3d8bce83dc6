//! `doorbell reproduce` on the smallest experiment: measured once, judged, resumed, drawn.

use std::path::Path;
use std::process::{Command, Output};

fn doorbell(dir: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_doorbell")).current_dir(dir).args(args).output().unwrap()
}

fn json(dir: &Path, name: &str) -> serde_json::Value {
    serde_json::from_slice(&std::fs::read(dir.join(name)).unwrap()).unwrap()
}

#[test]
fn a_claim_is_measured_judged_resumed_and_drawn() {
    let temp = tempfile::tempdir().unwrap();
    let dir = temp.path();
    let first = doorbell(dir, &["reproduce", "BAR-I08", "NAM-M04", "--out", "out", "--json", "a.json"]);
    assert!(first.status.success(), "{}", String::from_utf8_lossy(&first.stderr));
    let document = json(dir, "a.json");
    let [unloaded, external] = [&document["claims"][1], &document["claims"][0]];
    assert_eq!((unloaded["id"].as_str(), external["id"].as_str()), (Some("BAR-I08"), Some("NAM-M04")));
    // One READ without load takes between one and two microseconds on this class of cards; this is what the calibrated
    // profile makes of it.
    let got = unloaded["got"]["number"]["value"].as_f64().unwrap();
    assert!((got / 1.725 - 1.0).abs() < 0.03, "{got} us");
    assert_eq!(
        (unloaded["split"].as_str(), external["verdict"].as_str()),
        (Some("calibrate"), Some("external"))
    );
    assert_eq!(document["summary"]["calibrate"]["checked"].as_u64(), Some(1));
    assert_eq!(document["summary"]["hold-out"]["checked"].as_u64(), Some(0));

    let points = dir.join("out/unloaded-latency/points.csv");
    let before = std::fs::metadata(&points).unwrap().modified().unwrap();
    let again = doorbell(dir, &["reproduce", "BAR-I08", "NAM-M04", "--out", "out", "--json", "b.json"]);
    assert!(again.status.success(), "{}", String::from_utf8_lossy(&again.stderr));
    assert_eq!(std::fs::metadata(&points).unwrap().modified().unwrap(), before, "nothing is measured twice");
    assert_eq!(json(dir, "b.json"), document);

    let report = doorbell(dir, &["report", "out/scoreboard", "out/unloaded-latency", "--out", "page"]);
    assert!(report.status.success(), "{}", String::from_utf8_lossy(&report.stderr));
    let page = std::fs::read_to_string(dir.join("page/report.html")).unwrap();
    assert!(page.contains("Published and reproduced") && page.contains("BAR-I08"));
    assert!(page.contains("How long does one request take when nothing else is in flight?"));
}

/// A claim's points are enough for it, and give what all of its experiment's would; who names the experiment measures the rest.
#[test]
fn a_claim_measures_the_points_that_it_reads() {
    let temp = tempfile::tempdir().unwrap();
    let dir = temp.path();
    let rows =
        || std::fs::read_to_string(dir.join("out/unloaded-latency/points.csv")).unwrap().lines().count() - 1;
    let one = doorbell(dir, &["reproduce", "BAR-I08", "--out", "out", "--json", "a.json"]);
    let told = String::from_utf8_lossy(&one.stderr);
    assert!(one.status.success() && told.contains("unloaded-latency, of whose "), "{told}");
    let few = rows();
    assert!(told.contains(&format!(" points these claims need {few}\n")), "{few} of {told}");
    let all = doorbell(dir, &["reproduce", "unloaded-latency", "--out", "out", "--json", "b.json"]);
    assert!(all.status.success() && rows() > few, "{few} of {}", rows());
    let of = |name: &str| {
        let document = json(dir, name);
        document["claims"].as_array().unwrap().iter().find(|c| c["id"] == "BAR-I08").unwrap()["got"].clone()
    };
    assert_eq!(of("a.json"), of("b.json"));
}

#[test]
fn a_name_nobody_bears_is_refused_with_the_nearest() {
    let temp = tempfile::tempdir().unwrap();
    let output = doorbell(temp.path(), &["reproduce", "DRH-P0"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("did you mean `DRH-P0"));
    assert!(!temp.path().join("doorbell-out").exists());
    let output = doorbell(temp.path(), &["reproduce", "selective-signaling"]);
    let told = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2));
    assert!(told.contains("doorbell experiment experiments/selective-signaling.yaml"), "{told}");
}
