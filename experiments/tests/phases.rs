//! What a run tells of each phase.

mod common;

use common::{SMALL, code, run, stderr};
use std::collections::BTreeMap;

/// Bytes of a verb by phase, as `phases.csv` has them, where the phase posted any. The JSON says the same.
fn bytes_per_verb(plan: &str) -> BTreeMap<String, f64> {
    let temp = tempfile::tempdir().unwrap();
    let out = temp.path().join("run");
    let asked = ["run", "--plan", plan, "--duration", "200us", "--json", "-", "--out", out.to_str().unwrap()];
    let output = run(&[&asked[..], SMALL].concat());
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let text = std::fs::read_to_string(out.join("phases.csv")).unwrap();
    let mut lines = text.lines().map(|line| line.split(',').collect::<Vec<_>>());
    let header = lines.next().unwrap();
    let column = |name: &str| header.iter().position(|title| *title == name).expect("a column");
    let (phase, verbs, bytes) = (column("phase"), column("verbs"), column("bytes_per_verb"));
    let mut all = BTreeMap::new();
    for row in lines {
        let (name, cell) = (row[phase], row[bytes].parse::<f64>().ok());
        assert_eq!(row[verbs].parse::<f64>().unwrap() > 0.0, cell.is_some(), "{text}");
        assert_eq!(json["phases"][name]["bytes_per_verb"].as_f64(), cell, "{text}");
        all.extend(cell.map(|bytes| (name.to_owned(), bytes)));
    }
    all
}

/// A balance is one word behind header, checksum and key; a call has a name of two words, a reply an outcome.
#[test]
fn phases_say_what_a_verb_carries() {
    let by_calls = [
        ("fetch", 16 + 8 + 16), // name; outcome, header and balance
        ("lock", 16 + 16 + 8),  // name, who asks, version and rule; outcome
        ("validate", 16 + 8 + 8),
        ("install", 16 + 8 + 8), // name, version, balance, and nobody waits
    ];
    // READ of a record, CAS with READ of a word, READ of a header.
    let by_verbs = [("fetch", 32), ("lock", 8), ("validate", 8)];
    for (plan, known) in [("two-sided", &by_calls[..]), ("one-sided", &by_verbs[..])] {
        let told = bytes_per_verb(plan);
        for &(phase, bytes) in known {
            assert_eq!(told[phase], f64::from(bytes), "{plan}: {phase} of {told:?}");
        }
        // WRITE of three words and of one, or of one alone, where the record is this node's or has not changed.
        assert!(plan == "two-sided" || 8.0 < told["install"] && told["install"] < 16.0, "{told:?}");
        // An entry of one record is 56 B long, one of two is 88, and requests of 8 B free the log.
        assert!((48.0..100.0).contains(&told["log"]), "{plan}: {told:?}");
    }
}
