//! Shards of one experiment become one set of results, or are refused.

use reports::{Options, Report, ReportError, render};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

mod sample;
use sample::{RUN, SIM};

/// Shard `index` of `of` of a grid of eight points over coroutines, as `experiment --shard` leaves it.
fn shard(root: &Path, index: usize, of: usize, change: impl Fn(&mut Value)) -> PathBuf {
    let mut record = sample::record("experiment", SIM, 8);
    record["shard"] = json!(format!("{index}/{of}"));
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
    sample::write_dir(root, &format!("scale-{index}-of-{of}"), &record, &[("points.csv", &csv)])
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

#[test]
fn shards_are_joined_in_point_order() {
    let temp = tempfile::tempdir().unwrap();
    let dirs: Vec<PathBuf> = [2, 3, 1].iter().map(|&i| shard(temp.path(), i, 3, |_| ())).collect();
    let report = draw(&dirs, temp.path(), false).unwrap();
    assert_eq!(rates(temp.path()), [1, 2, 3, 4, 5, 6, 7, 8]);
    let notes = report.notes.join("\n");
    assert!(notes.contains("joined from shards 2/3 (scale-2-of-3), 3/3"), "{notes}");
    assert!(!notes.contains("missing") && !notes.contains("partial"), "{notes}");
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
fn a_shard_given_twice_counts_once() {
    let temp = tempfile::tempdir().unwrap();
    let one = shard(temp.path(), 1, 2, |_| ());
    let report = draw(&[one.clone(), shard(temp.path(), 2, 2, |_| ()), one], temp.path(), false).unwrap();
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
