//! Which directory commands take whose usual one holds another run, and what `tune` looks at before it searches.

mod common;

use common::{code, doorbell, stderr};
use std::path::Path;
use std::process::Output;

fn tune(dir: &Path, flags: &str) -> Output {
    let all =
        format!("tune --fabric sim:cx4-edr --nodes 2 --replicas 1 --set accounts_per_thread=100 {flags}");
    doorbell().args(all.split_whitespace()).current_dir(dir).output().expect("it starts")
}

#[test]
fn a_named_directory_of_another_search_is_refused_before_anything_is_searched() {
    let dir = tempfile::tempdir().unwrap();
    let first = tune(dir.path(), "--coroutines 4 --out mine");
    assert_eq!(code(&first), 0, "{}", stderr(&first));
    // The same again is no other, and all of another's is left as it is.
    let kept = || std::fs::read(dir.path().join("mine/points.csv")).unwrap();
    let before = kept();
    assert_eq!(code(&tune(dir.path(), "--coroutines 4 --out mine")), 0);
    // The search would take a profile that is not there.
    let other = tune(dir.path(), "--coroutines 8 --out mine --profile nowhere.profile.yaml");
    assert_eq!(code(&other), 2, "{}", stderr(&other));
    assert!(
        stderr(&other).contains("mine holds the results of another run: --coroutines was 4"),
        "{}",
        stderr(&other)
    );
    assert_eq!(kept(), before);
}

/// Where nobody named a directory there is always one to be had: nothing is refused before the search.
#[test]
fn the_usual_directory_of_another_search_is_no_hindrance() {
    let dir = tempfile::tempdir().unwrap();
    let usual = dir.path().join("doorbell-out/tune-smallbank-sim-cx4-edr");
    for (coroutines, name) in [(4, ""), (8, "-2"), (4, "")] {
        let output = tune(dir.path(), &format!("--coroutines {coroutines}"));
        assert_eq!(code(&output), 0, "{}", stderr(&output));
        let into = format!("{}{name}", usual.display());
        assert!(Path::new(&into).join("run.json").exists(), "{into}: {}", stderr(&output));
        assert_eq!(stderr(&output).contains("this one is kept in"), name == "-2", "{}", stderr(&output));
    }
}
