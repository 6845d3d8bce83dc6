//! Files that are cut off, hostile, extreme or not there: no page is broken by them, and each is named.

use reports::{LoadError, Options, ReportError, render};
use serde_json::json;
use std::path::{Path, PathBuf};

mod drawn;
mod sample;
use drawn::{assert_sound, draw, fresh};
use sample::{CHARACTERIZE, PHASES, RUN, SIM};

#[test]
fn a_run_that_was_cut_off_says_so() {
    let dir = fresh();
    let whole = sample::characterize(dir.path(), "cut", SIM);
    let csv = std::fs::read_to_string(whole.join("points.csv")).expect("points");
    let upto = csv.match_indices('\n').nth(17).expect("enough lines").0 + 20;
    std::fs::write(whole.join("points.csv"), &csv[..upto]).expect("writes");
    let mut record = sample::record("characterize", SIM, 40);
    record["complete"] = json!(false);
    record["interrupted"] = json!(true);
    record["points_done"] = json!(17);
    std::fs::write(whole.join("run.json"), record.to_string()).expect("writes");
    let rendered = draw(&[whole], dir);
    assert!(rendered.html.contains("partial: 17 of 40 points, interrupted"));
    assert!(rendered.html.contains("the last line of points.csv is cut off and was dropped"));
    assert_sound(&rendered);
}

#[test]
fn markup_in_files_stays_text() {
    let dir = fresh();
    let evil = "<img src=x onerror=alert(1)>\"'&</title><b>";
    let row = format!(
        "0,\"{e}\",\"{e}\",\"{e}\",2,1,1,1,10,1,1,5,100,10,3,55,50,60,70,80,1,1,1,90,40,\"{e}\",\"{e}\",0,,,,\"{e}\"",
        e = evil.replace('"', "\"\"")
    );
    let csv = format!("{RUN}\n{row}\n");
    let phases = format!("{PHASES}\n0,\"{}\u{1b}[0m\",5,6,1,1,1,5\n", evil.replace('"', "\"\""));
    let aborts = format!("point,class,reason,count\n0,conflict,\"{}\",1\n", evil.replace('"', "\"\""));
    let mut record = sample::record("run", SIM, 1);
    for field in ["title", "question", "command", "commit", "version", "fabric"] {
        record[field] = json!(evil);
    }
    record["notes"] = json!([evil]);
    record["profile"]["name"] = json!(evil);
    let files = [("points.csv", csv.as_str()), ("phases.csv", &phases), ("aborts.csv", &aborts)];
    let made = sample::write_dir(dir.path(), "evil", &record, &files);
    let rendered = draw(&[made], dir);
    assert!(!rendered.html.contains("<img"), "markup got through");
    assert!(!rendered.html.contains("<b>\""), "markup got through");
    assert_eq!(rendered.html.matches("</title>").count(), 1);
    assert!(!rendered.html.contains('\u{1b}'));
    for id in &rendered.report.figures {
        let svg =
            std::fs::read_to_string(rendered.dir.path().join(format!("out/figures/{id}.svg"))).expect("svg");
        assert!(!svg.contains("<img") && !svg.contains("<b>"), "{id}");
    }
}

#[test]
fn extreme_and_missing_numbers_do_not_break_a_figure() {
    let dir = fresh();
    let mut csv = format!("{CHARACTERIZE}\n");
    for (i, value) in ["1e308", "1e-300", "0", "", "5e-324"].iter().enumerate() {
        let benches =
            [("latency", "read"), ("payload", "rpc"), ("threads", "read"), ("ladder-read", "one-sided")];
        for (j, (bench, verb)) in benches.into_iter().enumerate() {
            csv += &format!(
                "{},{bench},{verb},18446744073709551615,{i},,,,,,base,0,{value},{value},{value},{value},{value},{value},{value},\n",
                4 * i + j
            );
        }
    }
    let characterized =
        sample::write_dir(dir.path(), "c", &sample::record("characterize", SIM, 20), &[("points.csv", &csv)]);
    let cells = ",".repeat(RUN.matches(',').count());
    let odd = "0,smallbank,occ,a,0,0,0,0,0,0,0,1e308,1e308,1e308,,1e-308,,1,0,,1e308,0";
    let run = format!("{RUN}\n{odd}{}\n1{cells}\n", &cells[odd.matches(',').count()..]);
    let run = sample::write_dir(dir.path(), "r", &sample::record("run", SIM, 2), &[("points.csv", &run)]);
    let tune = "point,plan,origin,predicted_per_s,predicted_mean_ns,bottleneck,got_per_s,got_mean_ns\n0,,,0,0,,0,0\n1,a,b,1e308,1e308,c,1e-308,1e308\n2,b,c,0,,,1e308,\n";
    let tune = sample::write_dir(dir.path(), "t", &sample::record("tune", SIM, 3), &[("points.csv", tune)]);
    let rendered = draw(&[characterized, run, tune], dir);
    assert!(rendered.report.problems.is_empty(), "{:?}", rendered.report.problems);
    assert_sound(&rendered);
}

#[test]
fn a_rate_or_latency_that_cannot_be_is_refused_at_its_cell() {
    for value in ["-1e308", "-1", "NaN", "inf", "-inf"] {
        let dir = fresh();
        let csv = format!("point,plan,committed_per_s,latency_p50_ns\n0,a,5e5,1\n1,b,5e5,{value}\n");
        let files = [("points.csv", csv.as_str())];
        let made = sample::write_dir(dir.path(), "r", &sample::record("run", SIM, 2), &files);
        let error = reports::load::read(&made).err().expect("refused").to_string();
        let told =
            format!("points.csv:3:9: latency_p50_ns is `{value}`, which is no finite number from 0 on");
        assert!(error.ends_with(&told), "{error}");
    }
}

#[test]
fn missing_files_and_columns_are_notes() {
    let dir = fresh();
    let bare = sample::write_dir(dir.path(), "bare", &sample::record("run", SIM, 1), &[]);
    let narrow = "point,plan,committed_per_s\n0,drtm-h,5e5\n";
    let narrow =
        sample::write_dir(dir.path(), "narrow", &sample::record("run", SIM, 1), &[("points.csv", narrow)]);
    let empty =
        sample::write_dir(dir.path(), "empty", &sample::record("tune", SIM, 0), &[("points.csv", "")]);
    let odd = sample::write_dir(
        dir.path(),
        "odd",
        &sample::record("séance", SIM, 0),
        &[("points.csv", "a,b\n1,2\n")],
    );
    let rendered = draw(&[bare, narrow, empty, odd], dir);
    for note in [
        "points.csv is missing",
        "points.csv lacks workload",
        "points.csv is empty",
        "cannot draw",
        "phases.csv is missing",
    ] {
        assert!(rendered.html.contains(note), "no note says {note:?}");
    }
    assert_eq!(rendered.report.figures, ["plans"]);
    assert_sound(&rendered);
}

#[test]
fn a_bad_side_table_costs_only_its_figure() {
    let dir = fresh();
    let made = sample::run(dir.path(), "drtm-h", SIM);
    std::fs::write(made.join("phases.csv"), "point,phase,latency_p50_ns\n0,lock\n").expect("writes");
    let rendered = draw(&[made], dir);
    assert!(rendered.report.figures.contains(&"aborts".to_owned()));
    assert!(!rendered.report.figures.contains(&"phases".to_owned()));
    assert!(rendered.html.contains("phases.csv:2:3: 2 cells where the header has 3"));
    assert_sound(&rendered);
}

#[test]
fn one_bad_directory_among_good_ones_is_named_on_the_page() {
    let dir = fresh();
    let good = sample::run(dir.path(), "drtm-h", SIM);
    let bad = sample::run(dir.path(), "two-sided", SIM);
    std::fs::write(bad.join("points.csv"), format!("{RUN}\n0,smallbank\n")).expect("writes");
    let rendered = draw(&[good, bad, dir.path().join("nowhere")], dir);
    assert_eq!(rendered.report.problems.len(), 2);
    assert!(rendered.html.contains("points.csv:2:3: 2 cells where the header has 32"));
    assert!(rendered.html.contains("nowhere"));
}

fn only_problem(dirs: &[PathBuf], out: &Path) -> LoadError {
    match render(dirs, out, &Options::default()) {
        Err(ReportError::NothingLoaded(mut problems)) => problems.pop().expect("a problem"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn errors_are_typed_and_name_the_place() {
    let dir = fresh();
    let out = dir.path().join("report.html");
    let at = |name: &str| vec![dir.path().join(name)];
    assert!(matches!(render(&[], &out, &Options::default()), Err(ReportError::NoInput)));
    assert!(matches!(only_problem(&at("nowhere"), &out), LoadError::Unreadable { .. }));
    std::fs::create_dir(dir.path().join("hollow")).expect("a directory");
    assert!(matches!(only_problem(&at("hollow"), &out), LoadError::NoResults { .. }));
    std::fs::write(dir.path().join("hollow/points.csv"), "point\n").expect("writes");
    assert!(matches!(only_problem(&at("hollow"), &out), LoadError::NoRecord { .. }));
    std::fs::write(dir.path().join("hollow/run.json"), "{\n \"kind\": \"run\",\n \"prov").expect("writes");
    let cut = only_problem(&at("hollow"), &out);
    assert!(cut.to_string().contains("run.json:3:"), "{cut}");
    assert!(cut.to_string().contains("run.json:3:6: EOF") && !cut.to_string().contains(" line "), "{cut}");
    let future = json!({"schema": 2, "kind": "run", "provenance": "measured"});
    std::fs::write(dir.path().join("hollow/run.json"), future.to_string()).expect("writes");
    assert!(matches!(only_problem(&at("hollow"), &out), LoadError::Schema { found: 2, .. }));
    assert!(!out.exists(), "a page was begun for nothing");
    let good = sample::run(dir.path(), "drtm-h", SIM);
    std::fs::write(dir.path().join("file"), "").expect("writes");
    let beyond = dir.path().join("file").join("report.html");
    assert!(matches!(render(&[good], &beyond, &Options::default()), Err(ReportError::Unwritable { .. })));
}
