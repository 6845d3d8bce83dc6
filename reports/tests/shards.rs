//! Shards of one experiment become one set of results, or are refused.

use primitives::measure::{ABORTS, Columns, PHASES};
use reports::{Options, Report, ReportError, render};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

mod sample;
use sample::{RUN, SIM};

/// Shard `index` of `of` of a grid of eight points over coroutines, as `experiment --shard` leaves it.
fn shard(root: &Path, index: usize, of: usize, change: impl Fn(&mut Value)) -> PathBuf {
    let mut record = sample::record("experiment", SIM, 8);
    record["shard"] = json!(format!("{index}/{of}"));
    record["command"] = json!(format!("doorbell experiment scale.yaml --shard {index}/{of}"));
    record["question"] = json!("Does it scale?");
    record["spec"] = json!({"grid": [1, 2, 3, 4, 5, 6, 7, 8]});
    change(&mut record);
    let columns: Vec<&str> = RUN.split(',').collect();
    let mut csv = format!("{RUN},axis_coroutines\n");
    for point in (0..8).filter(|p| p % of == index - 1) {
        let cell = |column: &&str| match *column {
            "point" => point.to_string(),
            "plan" => "drtm-h".to_owned(),
            "committed_per_s" => format!("{}", 1_000_000 * (point + 1)),
            _ => String::new(),
        };
        csv += &format!("{},{}\n", columns.iter().map(cell).collect::<Vec<_>>().join(","), point + 1);
    }
    let header = |columns: Columns| columns.iter().map(|c| c.0).collect::<Vec<_>>().join(",") + "\n";
    let (phases, aborts) = (header(PHASES), header(ABORTS));
    let files = [("points.csv", csv.as_str()), ("phases.csv", &phases), ("aborts.csv", &aborts)];
    sample::write_dir(root, &format!("scale-{index}-of-{of}"), &record, &files)
}

fn draw(dirs: &[PathBuf], root: &Path, mixed: bool) -> Result<Report, ReportError> {
    render(dirs, &root.join("out"), &Options { skip_png: true, mixed, ..Options::default() })
}

/// Point numbers of the joined figure's table, by their rates in millions.
fn rates(root: &Path) -> Vec<u64> {
    let csv = std::fs::read_to_string(root.join("out/figures/experiment-scale.csv")).expect("one figure");
    let head: Vec<&str> = csv.lines().next().unwrap().split(',').collect();
    let column = head.iter().position(|c| *c == "committed_per_s").unwrap();
    let rate = |line: &str| (line.split(',').nth(column).unwrap().parse::<f64>().unwrap() / 1e6) as u64;
    csv.lines().skip(1).map(rate).collect()
}

/// A table that was cut within its first line, or is not there.
#[test]
fn a_shard_that_lacks_columns_is_named() {
    for mixed in [false, true] {
        for cut in [Some("point,plan\n"), None] {
            let temp = tempfile::tempdir().unwrap();
            let dirs: Vec<PathBuf> = [1, 2].iter().map(|&i| shard(temp.path(), i, 2, |_| ())).collect();
            match cut {
                Some(text) => std::fs::write(dirs[0].join("points.csv"), text).unwrap(),
                None => std::fs::remove_file(dirs[0].join("points.csv")).unwrap(),
            }
            let error = draw(&dirs, temp.path(), mixed).unwrap_err();
            let ReportError::Columns { second, .. } = &error else { panic!("{error:?}") };
            assert_eq!(*second, dirs[0]);
            assert!(error.to_string().contains(" lacks "), "{error}");
        }
    }
}

#[test]
fn shards_are_joined_in_point_order() {
    let temp = tempfile::tempdir().unwrap();
    let dirs: Vec<PathBuf> = [2, 3, 1].iter().map(|&i| shard(temp.path(), i, 3, |_| ())).collect();
    let report = draw(&dirs, temp.path(), false).unwrap();
    assert_eq!(rates(temp.path()), [1, 2, 3, 4, 5, 6, 7, 8]);
    let notes = report.notes.join("\n");
    let joined = report.joined.join("\n");
    assert!(joined.contains("joined from shards 2/3 (scale-2-of-3), 3/3"), "{joined}");
    assert!(!notes.contains("missing") && !notes.contains("partial"), "{notes}");
    // It takes all of them to make it again.
    let page = std::fs::read_to_string(&report.page).unwrap();
    let again = page.split("How to make it again</h2>").nth(1).unwrap();
    for index in 1..=3 {
        assert!(again.contains(&format!("scale.yaml --shard {index}/3\n")), "{again}");
    }
}

#[test]
fn missing_points_are_named_with_the_shard_that_measures_them() {
    let temp = tempfile::tempdir().unwrap();
    let dirs = [shard(temp.path(), 1, 3, |_| ()), shard(temp.path(), 3, 3, |_| ())];
    let notes = draw(&dirs, temp.path(), false).unwrap().notes.join("\n");
    assert!(notes.contains("3 points missing: 1, 4, 7; measure --shard 2/3"), "{notes}");
    assert!(notes.contains("partial: 5 of 8 points"), "{notes}");
    let alone = draw(&dirs[..1], temp.path(), false).unwrap().notes.join("\n");
    assert!(alone.contains("5 points missing: 1, 2, 4, 5, 7; measure --shard 2/3, 3/3"), "{alone}");
}

#[test]
fn a_long_list_of_missing_shards_says_how_many_more_there_are() {
    let temp = tempfile::tempdir().unwrap();
    let first = shard(temp.path(), 1, 20, |record| record["points_expected"] = json!(20));
    let notes = draw(&[first], temp.path(), false).unwrap().notes.join("\n");
    assert!(notes.contains("measure --shard 2/20, 3/20") && notes.contains("13/20 and 7 more"), "{notes}");
}

#[test]
fn points_of_several_shards_count_once() {
    let temp = tempfile::tempdir().unwrap();
    let again = shard(temp.path(), 1, 2, |r| r["started_unix_s"] = json!(7));
    std::fs::rename(&again, temp.path().join("again")).unwrap();
    let dirs = [1, 2].map(|index| shard(temp.path(), index, 2, |_| ()));
    let [first, second] = dirs;
    let report = draw(&[first, second, temp.path().join("again")], temp.path(), false).unwrap();
    assert_eq!(rates(temp.path()).len(), 8);
    assert!(report.notes.iter().any(|n| n.contains("in several shards, the first kept: 0, 2, 4, 6")));
}

#[test]
fn unlike_shards_are_refused_unless_told() {
    type Change = fn(&mut Value);
    let changes: [(&str, Change); 4] = [
        ("seeds 42 and 7", |r| r["seed"] = json!(7)),
        ("commits 0123456789abcdef and f00d", |r| r["commit"] = json!("f00d")),
        ("profiles 5a5a5a5a5a5a and 77", |r| r["profile"]["hash"] = json!("77")),
        ("different specs", |r| r["spec"] = json!({"grid": [9]})),
    ];
    for (says, change) in changes {
        let temp = tempfile::tempdir().unwrap();
        let dirs = [shard(temp.path(), 1, 2, |_| ()), shard(temp.path(), 2, 2, change)];
        match draw(&dirs, temp.path(), false).map(|r| r.page) {
            Err(error @ ReportError::Mixed { .. }) => assert!(error.to_string().contains(says), "{error}"),
            other => panic!("{says}: {other:?}"),
        }
        let report = draw(&dirs, temp.path(), true).unwrap();
        assert!(report.notes.iter().any(|n| n.contains("despite") && n.contains(says)), "{:?}", report.notes);
        assert_eq!(rates(temp.path()).len(), 8);
    }
}
