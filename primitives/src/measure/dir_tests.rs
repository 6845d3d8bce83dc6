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
    let text = fs::read_to_string(&phases).unwrap() + "1,lock,,,,,,,\n1,lo";
    fs::write(&phases, text).unwrap();
    let mut dir = ResultDir::create(temp.path(), record(2), &[]).unwrap();
    assert_eq!(dir.missing(), [1]);
    dir.keep(1, &point(1)).unwrap();
    dir.finish(false, json!({})).unwrap();
    assert_eq!(files(temp.path()), measured_in(&[0, 1], 2).1);
}

/// What is lost, told when the directory is opened again, and the points that are measured again; they make it whole.
fn found_without(temp: &tempfile::TempDir) -> (String, Vec<u64>) {
    let mut dir = ResultDir::create(temp.path(), record(4), &[]).unwrap();
    let (lost, missing) = (dir.lost().unwrap_or_default().to_owned(), dir.missing());
    assert_eq!(dir.record().complete, missing.is_empty());
    for &index in missing.iter().rev() {
        dir.keep(index, &point(index)).unwrap();
    }
    dir.finish(false, json!({})).unwrap();
    assert!(ResultDir::read(temp.path(), dir.record(), TableName::Phases).is_ok_and(|rows| rows.len() == 8));
    drop(dir);
    let tables = |mut all: BTreeMap<String, Vec<u8>>| {
        all.retain(|name, _| name.ends_with(".csv"));
        all
    };
    assert_eq!(tables(files(temp.path())), tables(measured_in(&[0, 1, 2, 3], 4).1));
    let again = ResultDir::create(temp.path(), record(4), &[]).unwrap();
    assert!(again.lost().is_none() && again.record().complete, "told once, and whole");
    assert_eq!(
        again.record().notes.iter().any(|note| note.starts_with("Opened again, it")),
        !lost.is_empty()
    );
    (lost.replace(&temp.path().display().to_string(), "out"), missing)
}

/// Keeps the lines of a file in front of the first that begins so.
fn cut(file: &Path, from: &str) {
    let text = fs::read_to_string(file).unwrap();
    fs::write(file, &text[..text.find(&format!("\n{from}")).unwrap() + 1]).unwrap();
}

#[test]
fn points_that_lost_rows_are_measured_again() {
    let damaged = |damage: &dyn Fn(&Path)| {
        let (temp, _) = measured_in(&[0, 1, 2, 3], 4);
        damage(temp.path());
        found_without(&temp)
    };
    let halve = |file: &Path| {
        let bytes = fs::read(file).unwrap();
        fs::write(file, &bytes[..bytes.len() / 2]).unwrap();
    };
    let told = |what: &str, count: usize| match count {
        1 => format!("out lost what {what}: 1 point is to be measured again"),
        _ => format!("out lost what {what}: {count} points are to be measured again"),
    };
    let all = vec![0, 1, 2, 3];
    assert_eq!(damaged(&|_| {}), (String::new(), vec![]));
    let found = damaged(&|dir| cut(&dir.join("phases.csv"), "1,log"));
    assert_eq!(found, (told("3 points left in phases.csv", 3), vec![1, 2, 3]));
    let found = damaged(&|dir| fs::remove_file(dir.join("phases.csv")).unwrap());
    assert_eq!(found, (told("4 points left in phases.csv", 4), all.clone()));
    let found = damaged(&|dir| fs::write(dir.join("aborts.csv"), "").unwrap());
    assert_eq!(found, (told("2 points left in aborts.csv", 2), vec![0, 2]));
    let found = damaged(&|dir| cut(&dir.join("points.csv"), "3,"));
    assert_eq!(found, (told("1 point left in points.csv", 1), vec![3]));
    let found = damaged(&|dir| fs::remove_file(dir.join("points.csv")).unwrap());
    assert_eq!(found, (told("4 points left in points.csv", 4), all));
    let (lost, missing) = damaged(&|dir| {
        let text = fs::read_to_string(dir.join("phases.csv")).unwrap();
        let row = text.lines().find(|line| line.starts_with("1,log")).unwrap();
        fs::write(dir.join("phases.csv"), text.replace(row, &format!("{row}\n{row}"))).unwrap();
    });
    assert_eq!(lost, "out holds more than 1 point left in phases.csv: 1 point is to be measured again");
    assert_eq!(missing, [1]);
    // Raw latencies are no reason.
    let found = damaged(&|dir| fs::remove_dir_all(dir.join("histograms")).unwrap());
    let told = |what: &str| format!("out lost what {what} left in histograms: their rows are there");
    assert_eq!(found, (told("4 points"), vec![]));
    let found = damaged(&|dir| halve(&dir.join("histograms/2.json")));
    assert_eq!(found, (told("1 point"), vec![]));
}

#[test]
fn rows_stay_until_others_take_their_place() {
    let (temp, whole) = measured_in(&[0, 1, 2, 3], 4);
    cut(&temp.path().join("phases.csv"), "1,log");
    let damaged = files(temp.path());
    let open = || ResultDir::create(temp.path(), record(4), &[]).unwrap();
    let mut dir = open();
    assert_eq!((dir.missing(), dir.record().points_done), (vec![1, 2, 3], 1));
    dir.finish(true, json!({})).unwrap();
    drop(dir);
    assert_eq!(files(temp.path()), damaged, "interrupted before anything was measured");
    // One is measured anew, with more aborts than before, and then the process dies.
    let mut dir = open();
    assert!(dir.lost().unwrap().contains("3 points are to be measured again"), "still so");
    let mut other = point(1);
    other.row = other.row.with("committed", 77u64);
    other.aborts = vec![Row::new().with("reason", "locked"); 3];
    dir.keep(1, &other).unwrap();
    drop(dir);
    let mut dir = open();
    assert_eq!(dir.missing(), [2, 3]);
    let points = dir.rows(TableName::Points).unwrap();
    let committed: Vec<_> = points.iter().filter_map(|row| row.get("committed")).collect();
    assert_eq!(committed, ["0", "77", "20", "30"]);
    let aborts = dir.rows(TableName::Aborts).unwrap();
    assert_eq!(aborts.iter().filter(|row| row.get("point") == Some("1")).count(), 3);
    // One that waits takes its place, too.
    dir.keep(3, &point(3)).unwrap();
    drop(dir);
    let mut dir = open();
    assert_eq!(dir.missing(), [2]);
    dir.keep(2, &point(2)).unwrap();
    dir.finish(false, json!({})).unwrap();
    assert!(dir.record().complete && dir.rows(TableName::Phases).unwrap().len() == 8);
    let [now, before] = [files(temp.path()), whole].map(|all| all["phases.csv"].clone());
    assert_eq!(now, before);
}

#[test]
fn who_measures_again_is_noted_and_who_only_looks_is_not() {
    let (temp, _) = measured_in(&[0, 1, 2, 3], 4);
    let other = || RunRecord { commit: "other".into(), ..record(4) };
    let noted = |dir: &ResultDir| dir.record().notes.iter().any(|note| note == "resumed by commit other");
    assert!(!noted(&ResultDir::create(temp.path(), other(), &[]).unwrap()));
    cut(&temp.path().join("phases.csv"), "3,");
    assert!(noted(&ResultDir::create(temp.path(), other(), &[]).unwrap()), "it was complete, and is not");
}

#[test]
fn what_a_crash_kept_is_known_before_the_run_ends() {
    let temp = tempfile::tempdir().unwrap();
    let mut dir = ResultDir::create(temp.path(), record(4), &[]).unwrap();
    [0, 1, 3].iter().for_each(|&index| dir.keep(index, &point(index)).unwrap());
    drop(dir); // a crash: no finish, and point 3 waits
    fs::remove_file(temp.path().join("phases.csv")).unwrap();
    assert_eq!(found_without(&temp).1, [0, 1, 2]);
}

#[test]
fn directories_of_older_builds_open_as_they_are_and_are_watched_from_then_on() {
    let forget = |temp: &tempfile::TempDir| {
        let mut old = RunRecord::read(temp.path()).unwrap();
        assert_eq!(old.left[&2].to_string(), "2 phases, 1 aborts, 1 histogram");
        old.left.clear();
        old.write(temp.path()).unwrap();
    };
    let (temp, _) = measured_in(&[0, 1, 2, 3], 4);
    forget(&temp);
    cut(&temp.path().join("phases.csv"), "3,");
    let dir = ResultDir::create(temp.path(), record(4), &[]).unwrap();
    assert!(dir.missing().is_empty() && dir.lost().is_none(), "it may have been so from the first");
    drop(dir);
    cut(&temp.path().join("phases.csv"), "2,");
    assert_eq!(ResultDir::create(temp.path(), record(4), &[]).unwrap().missing(), [2]);
    // But it counted its points, and no build leaves out a table.
    let (temp, _) = measured_in(&[0, 1, 2, 3], 4);
    forget(&temp);
    cut(&temp.path().join("points.csv"), "2,");
    assert_eq!(
        found_without(&temp).0,
        "out lost what 2 points left in points.csv: 2 points are to be measured again"
    );
    let (temp, _) = measured_in(&[0, 1, 2, 3], 4);
    forget(&temp);
    fs::remove_file(temp.path().join("aborts.csv")).unwrap();
    // Also when the first to open it measures nothing.
    drop(ResultDir::create(temp.path(), record(4), &[]).unwrap());
    assert_eq!(found_without(&temp).1, [0, 1, 2, 3]);
}

#[test]
fn another_run_is_never_overwritten() {
    let (temp, before) = measured_in(&[0], 1);
    let other = RunRecord { spec: json!({"plan": "one-sided"}), ..record(1) };
    let error = ResultDir::create(temp.path(), other, &[]).unwrap_err();
    assert!(error.to_string().contains("its plan is \"drtm-h\", this one's \"one-sided\""), "{error}");
    assert!(error.hint().contains("nothing is ever overwritten"));
    let of = |commit: &str, plan: &str| {
        let record = RunRecord { spec: json!({ "plan": plan }), commit: commit.to_owned(), ..record(1) };
        ResultDir::create(temp.path(), record, &[]).unwrap_err()
    };
    let same = RunRecord::read(temp.path()).unwrap().commit;
    assert!(!of(&same, "one-sided").to_string().contains("build"), "one build: {}", of(&same, "one-sided"));
    let error = of("other", "one-sided");
    assert!(
        error.to_string().ends_with(&format!("; build {same} wrote it, and this is build other")),
        "{error}"
    );
    assert!(error.hint().contains("nothing is ever overwritten"));
    // What another build's tables had no column for.
    let points = temp.path().join("points.csv");
    let text = fs::read_to_string(&points).unwrap();
    fs::write(&points, text.replacen("point,", "point,older,", 1).replacen("\n0,", "\n0,1,", 1)).unwrap();
    let error = of("other", "drtm-h");
    assert!(
        error.to_string().contains("expected `point,") && error.to_string().ends_with("this is build other"),
        "{error}"
    );
    fs::write(&points, text).unwrap();
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
    assert!(refused.to_string().contains("its shard is \"2/3\", this one's \"1/3\""), "{refused}");
    assert!(ResultDir::create(temp.path(), record(8), &[]).is_err(), "nor is it the whole grid");
    let mut dir = ResultDir::create(temp.path(), of("2/3"), &[]).unwrap();
    assert_eq!(dir.missing(), [4]);
    dir.keep(4, &point(4)).unwrap();
    dir.finish(false, json!({})).unwrap();
    assert!(dir.record().complete && dir.record().points_done == 3);
    let rows = dir.rows(TableName::Points).unwrap();
    assert_eq!(rows.iter().filter_map(|r| r.get("point")).collect::<Vec<_>>(), ["1", "4", "7"]);
}

/// A report finds either a directory's own run or those in it.
#[test]
fn a_directory_is_one_run_or_holds_some() {
    let temp = tempfile::tempdir().unwrap();
    let inner = temp.path().join("a");
    ResultDir::may_hold_runs(temp.path()).unwrap();
    drop(ResultDir::create(&inner, record(1), &[]).unwrap());
    let refused = ResultDir::create(temp.path(), record(1), &[]).unwrap_err();
    assert!(matches!(&refused, ResultError::Holds { inner: found, .. } if *found == inner), "{refused}");
    assert!(!temp.path().join("run.json").exists(), "nothing was begun");
    let refused = ResultDir::may_hold_runs(&inner).unwrap_err();
    assert!(refused.to_string().contains("run of its own") && refused.hint().contains("--out"), "{refused}");
}

#[test]
fn a_file_that_is_left_gives_way_to_a_newer_one_but_not_if_it_was_edited() {
    let temp = tempfile::tempdir().unwrap();
    let open = || ResultDir::create(temp.path(), record(1), &[]).unwrap();
    let plan = temp.path().join("plan.yaml");
    let there = || fs::read_to_string(&plan).unwrap();
    open().leave("plan.yaml", b"by one build").unwrap();
    // Another build says it otherwise, in the same run or when the directory is opened again.
    open().leave("plan.yaml", b"by another").unwrap();
    assert_eq!(there(), "by another");
    fs::write(&plan, "edited").unwrap();
    let error = open().leave("plan.yaml", b"by a third").unwrap_err();
    assert!(matches!(&error, ResultError::Edited { path, known: true } if *path == plan), "{error}");
    assert_eq!(there(), "edited");
    // An older build has left no note of it.
    let mut dir = open();
    dir.record.files.clear();
    dir.record.write(temp.path()).unwrap();
    let error = dir.leave("plan.yaml", b"by a third").unwrap_err();
    assert!(error.to_string().ends_with("may have been edited since it was left there"), "{error}");
    dir.record.files.insert("plan.yaml".to_owned(), hex(b"by another"));
    dir.record.write(temp.path()).unwrap();
    drop(dir);
    // Who takes back what was edited, or removes it, may go on; so may who left just that.
    fs::write(&plan, "by another").unwrap();
    open().leave("plan.yaml", b"by a third").unwrap();
    fs::remove_file(&plan).unwrap();
    open().leave("plan.yaml", b"by a third").unwrap();
    fs::write(&plan, "by a fourth").unwrap();
    open().leave("plan.yaml", b"by a fourth").unwrap();
    assert_eq!(there(), "by a fourth");
}
