use super::super::Kind;
use super::*;
use crate::units::Nanos;
use serde_json::json;

fn record(points: u64) -> RunRecord {
    RunRecord::new(Kind::Run, "sim:cx4-edr", json!({"plan": "drtm-h"}), 1, points)
}

fn point(index: u64) -> PointResult {
    let mut histogram = Histogram::new();
    histogram.record(Nanos(1000 + index));
    PointResult {
        row: Row::new().with("committed", index * 10).with("plan", "drtm-h"),
        phases: vec![Row::new().with("phase", "lock"), Row::new().with("phase", "log")],
        aborts: if index.is_multiple_of(2) {
            vec![Row::new().with("reason", "locked").with("count", index)]
        } else {
            vec![]
        },
        histogram: Some(histogram),
    }
}

/// Every file of the directory but `run.json`, which names times and the machine.
fn files(dir: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut all = BTreeMap::new();
    let mut folders = vec![dir.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if !path.ends_with("run.json") {
                all.insert(path.strip_prefix(dir).unwrap().display().to_string(), fs::read(&path).unwrap());
            }
        }
    }
    all
}

fn measured_in(order: &[u64], expected: u64) -> (tempfile::TempDir, BTreeMap<String, Vec<u8>>) {
    let temp = tempfile::tempdir().unwrap();
    let mut dir = ResultDir::create(temp.path(), record(expected), &[]).unwrap();
    for &index in order {
        dir.keep(index, &point(index)).unwrap();
    }
    dir.finish(false, json!({})).unwrap();
    drop(dir);
    let files = files(temp.path());
    (temp, files)
}

#[test]
fn files_do_not_depend_on_the_order_in_which_points_end() {
    let (_a, in_order) = measured_in(&[0, 1, 2, 3], 4);
    let (_b, shuffled) = measured_in(&[2, 0, 3, 1], 4);
    assert_eq!(in_order, shuffled);
    let points = String::from_utf8(in_order["points.csv"].clone()).unwrap();
    let first_cells: Vec<&str> = points.lines().map(|l| l.split(',').next().unwrap()).collect();
    assert_eq!(first_cells, ["point", "0", "1", "2", "3"]);
    assert_eq!(
        in_order.len(),
        3 + 4,
        "three tables, four histograms, nothing pending: {:?}",
        in_order.keys()
    );
}

#[test]
fn a_crash_keeps_finished_points_whatever_their_order() {
    let temp = tempfile::tempdir().unwrap();
    let mut dir = ResultDir::create(temp.path(), record(5), &[]).unwrap();
    for index in [0, 3, 2] {
        dir.keep(index, &point(index)).unwrap();
    }
    drop(dir); // a crash: no finish
    let mut dir = ResultDir::create(temp.path(), record(5), &[]).unwrap();
    assert!(dir.resumed() && !dir.record().complete);
    assert_eq!((dir.missing(), dir.record().points_done), (vec![1, 4], 3));
    dir.keep(4, &point(4)).unwrap();
    dir.keep(1, &point(1)).unwrap();
    dir.finish(false, json!({})).unwrap();
    assert!(RunRecord::read(temp.path()).unwrap().complete);
    assert_eq!(files(temp.path()), measured_in(&[0, 1, 2, 3, 4], 5).1);
}

#[test]
fn one_late_point_does_not_keep_the_others_from_the_table() {
    let order: Vec<u64> = (0..3).chain(4..40).chain([3]).collect();
    let temp = tempfile::tempdir().unwrap();
    let mut dir = ResultDir::create(temp.path(), record(40), &[]).unwrap();
    let shown = |dir: &ResultDir| -> Vec<u64> {
        let rows = dir.rows(TableName::Points).unwrap();
        rows.iter().map(|row| row.get("point").unwrap().parse().unwrap()).collect()
    };
    for &index in &order[..39] {
        dir.keep(index, &point(index)).unwrap();
        let rows = shown(&dir);
        let kept = index as usize + usize::from(index < 3);
        assert!(rows.is_sorted() && kept - rows.len() < CROWD, "{index}: {rows:?}");
    }
    let before = files(temp.path());
    drop(dir); // a crash: what was let past the gap stays where it is
    let mut dir = ResultDir::create(temp.path(), record(40), &[]).unwrap();
    assert_eq!(files(temp.path()), before, "opening it moves nothing");
    assert_eq!((dir.missing(), dir.record().points_done), (vec![3], 39));
    dir.keep(3, &point(3)).unwrap();
    assert_eq!(shown(&dir), (0..40).collect::<Vec<_>>());
    dir.finish(false, json!({})).unwrap();
    assert_eq!(files(temp.path()), measured_in(&(0..40).collect::<Vec<_>>(), 40).1);
    // Without the crash, and with two gaps.
    let last = [30, 3];
    let order: Vec<u64> = (0..40).filter(|n| !last.contains(n)).chain(last).collect();
    assert_eq!(measured_in(&order, 40).1, files(temp.path()));
}

#[test]
fn an_interrupted_run_shows_every_point_and_fills_its_gaps_later() {
    let temp = tempfile::tempdir().unwrap();
    let mut dir = ResultDir::create(temp.path(), record(4), &[]).unwrap();
    dir.keep(0, &point(0)).unwrap();
    dir.keep(2, &point(2)).unwrap();
    dir.finish(true, json!({})).unwrap();
    assert_eq!(dir.rows(TableName::Points).unwrap().len(), 2);
    drop(dir);
    let kept = RunRecord::read(temp.path()).unwrap();
    assert!(kept.interrupted && !kept.complete && kept.points_done == 2);

    let mut dir = ResultDir::create(temp.path(), record(4), &[]).unwrap();
    assert_eq!(dir.missing(), [1, 3]);
    dir.keep(3, &point(3)).unwrap();
    dir.keep(1, &point(1)).unwrap();
    dir.finish(false, json!({})).unwrap();
    assert_eq!(dir.rows(TableName::Aborts).unwrap()[1].get("count"), Some("2"));
    assert_eq!(files(temp.path()), measured_in(&[0, 1, 2, 3], 4).1);
}

#[test]
fn a_run_that_was_cut_short_stays_so_though_its_row_is_there() {
    let temp = tempfile::tempdir().unwrap();
    let mut dir = ResultDir::create(temp.path(), record(1), &[]).unwrap();
    dir.keep(0, &point(0)).unwrap();
    dir.finish(true, json!({})).unwrap();
    drop(dir);
    for _ in 0..2 {
        let kept = RunRecord::read(temp.path()).unwrap();
        assert!(kept.interrupted && !kept.complete && kept.points_done == 1);
        assert!(ResultDir::create(temp.path(), record(1), &[]).unwrap().missing().is_empty());
    }
    let other = tempfile::tempdir().unwrap();
    let mut dir = ResultDir::create(other.path(), record(2), &[]).unwrap();
    (0..2).for_each(|index| dir.keep(index, &point(index)).unwrap());
    dir.finish(true, json!({})).unwrap();
    assert!(dir.record().complete && !dir.record().interrupted, "the last point came with the interrupt");
}

#[test]
fn rows_of_a_point_that_never_ended_are_dropped() {
    let temp = tempfile::tempdir().unwrap();
    let mut dir = ResultDir::create(temp.path(), record(2), &[]).unwrap();
    dir.keep(0, &point(0)).unwrap();
    drop(dir);
    // A crash between phases.csv and points.csv, and a torn row after it.
    let phases = temp.path().join("phases.csv");
    let text = fs::read_to_string(&phases).unwrap() + "1,lock,,,,,\n1,lo";
    fs::write(&phases, text).unwrap();
    let mut dir = ResultDir::create(temp.path(), record(2), &[]).unwrap();
    assert_eq!(dir.missing(), [1]);
    dir.keep(1, &point(1)).unwrap();
    dir.finish(false, json!({})).unwrap();
    assert_eq!(files(temp.path()), measured_in(&[0, 1], 2).1);
}

#[test]
fn another_run_is_never_overwritten() {
    let (temp, before) = measured_in(&[0], 1);
    let other = RunRecord { spec: json!({"plan": "one-sided"}), ..record(1) };
    let error = ResultDir::create(temp.path(), other, &[]).unwrap_err();
    assert!(error.to_string().contains("its plan is \"drtm-h\", this one's \"one-sided\""), "{error}");
    assert!(error.hint().contains("nothing is ever overwritten"));
    fs::remove_file(temp.path().join("run.json")).unwrap();
    let error = ResultDir::create(temp.path(), record(1), &[]).unwrap_err();
    assert!(matches!(error, ResultError::NoRecord { file: "points.csv", .. }), "{error}");
    assert_eq!(files(temp.path()), before);
}

#[test]
fn one_writer_at_a_time() {
    let temp = tempfile::tempdir().unwrap();
    let first = ResultDir::create(temp.path(), record(1), &[]).unwrap();
    assert!(matches!(ResultDir::create(temp.path(), record(1), &[]), Err(ResultError::Busy { .. })));
    drop(first);
    assert!(ResultDir::create(temp.path(), record(1), &[]).is_ok());
}

#[test]
fn callers_mistakes_and_unwritable_places_are_errors() {
    let temp = tempfile::tempdir().unwrap();
    let mut dir = ResultDir::create(temp.path(), record(1), &[]).unwrap();
    let stray = PointResult::of(Row::new().with("colour", "red"));
    assert!(matches!(dir.keep(0, &stray), Err(ResultError::NoColumn { table: "points.csv", .. })));
    dir.keep(0, &point(0)).unwrap();
    assert!(matches!(dir.keep(0, &point(0)), Err(ResultError::NotMissing { point: 0, .. })));
    assert!(matches!(dir.keep(7, &point(7)), Err(ResultError::NotMissing { point: 7, .. })));
    let error = ResultDir::create(Path::new("/dev/null/out"), record(1), &[]).unwrap_err();
    assert!(error.to_string().contains("/dev/null/out"), "{error}");
}

#[test]
fn a_damaged_table_names_file_and_line() {
    let (temp, _) = measured_in(&[0, 1], 2);
    let points = temp.path().join("points.csv");
    let text = fs::read_to_string(&points).unwrap().replace("\n1,", "\n0,");
    fs::write(&points, text).unwrap();
    let error = ResultDir::create(temp.path(), record(2), &[]).unwrap_err();
    assert!(matches!(error, ResultError::Damaged { .. }) && error.to_string().contains("point 0"), "{error}");
}

#[test]
fn shards_hold_their_share_in_any_order_and_resume() {
    let temp = tempfile::tempdir().unwrap();
    let of = |shard: &str| RunRecord { shard: Some(shard.parse().unwrap()), ..record(8) };
    let mut dir = ResultDir::create(temp.path(), of("2/3"), &[]).unwrap();
    assert_eq!(dir.missing(), [1, 4, 7]);
    assert!(matches!(dir.keep(0, &point(0)), Err(ResultError::NotMissing { point: 0, .. })));
    dir.keep(7, &point(7)).unwrap();
    dir.keep(1, &point(1)).unwrap();
    dir.finish(true, json!({})).unwrap();
    assert!(!dir.record().complete && dir.record().interrupted);
    drop(dir);
    let refused = ResultDir::create(temp.path(), of("1/3"), &[]).unwrap_err();
    assert!(refused.to_string().contains("shard 2/3"), "{refused}");
    assert!(ResultDir::create(temp.path(), record(8), &[]).is_err(), "nor is it the whole grid");
    let mut dir = ResultDir::create(temp.path(), of("2/3"), &[]).unwrap();
    assert_eq!(dir.missing(), [4]);
    dir.keep(4, &point(4)).unwrap();
    dir.finish(false, json!({})).unwrap();
    assert!(dir.record().complete && dir.record().points_done == 3);
    let rows = dir.rows(TableName::Points).unwrap();
    assert_eq!(rows.iter().filter_map(|r| r.get("point")).collect::<Vec<_>>(), ["1", "4", "7"]);
}
