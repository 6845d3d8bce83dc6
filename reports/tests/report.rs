//! Pages from made-up results: everything present, everything attributed, nothing broken by hostile files.

use reports::ink::Ink;
use reports::{LoadError, Options, Report, ReportError, render};
use serde_json::json;
use std::path::{Path, PathBuf};

mod sample;
use sample::{CHARACTERIZE, LOOPBACK, RUN, SIM};

struct Rendered {
    dir: tempfile::TempDir,
    report: Report,
    html: String,
}

fn draw(dirs: &[PathBuf], dir: tempfile::TempDir) -> Rendered {
    let out = dir.path().join("out");
    let options = Options { skip_png: true, ..Options::default() };
    let report = render(dirs, &out, &options).expect("a page");
    let html = std::fs::read_to_string(&report.page).expect("the page");
    Rendered { dir, report, html }
}

fn fresh() -> tempfile::TempDir {
    tempfile::tempdir().expect("a temporary directory")
}

/// The part of the page from a figure's opening to its closing tag.
fn figure<'a>(html: &'a str, id: &str) -> &'a str {
    let start = html.find(&format!("<figure id=\"{id}\">")).unwrap_or_else(|| panic!("no figure {id}"));
    let end = html[start..].find("</figure>").expect("it closes");
    &html[start..start + end]
}

/// What must hold for every page whatever it was made from.
fn assert_sound(rendered: &Rendered) {
    let html = &rendered.html;
    for word in ["NaN", ">inf", " inf ", "infinity"] {
        assert!(!html.contains(word), "the page says {word:?}");
    }
    for word in ["<script", "src=", "@import", "url(", "<link", "onerror=\"", "javascript:"] {
        assert!(!html.contains(word), "the page holds {word:?}");
    }
    for id in &rendered.report.figures {
        let part = figure(html, id);
        assert!(part.contains("<svg "), "{id} has no drawing");
        assert!(
            part.contains("<figcaption>") && !part.contains("<figcaption></figcaption>"),
            "{id} has no caption"
        );
        let provenance = part.split("class=\"provenance\"").nth(1).expect("a provenance block");
        assert!(
            provenance.contains("chip measured") || provenance.contains("chip simulated"),
            "{id} is not attributed"
        );
        assert!(html.contains(&format!("href=\"#{id}\"")), "{id} is not in the contents");
        for extension in ["svg", "csv"] {
            let file = rendered.dir.path().join("out/figures").join(format!("{id}.{extension}"));
            assert!(std::fs::metadata(&file).is_ok_and(|m| m.len() > 0), "{} is missing", file.display());
        }
    }
}

#[test]
fn one_of_everything_gives_every_figure() {
    let dir = fresh();
    let rendered = draw(&sample::everything(dir.path()), dir);
    let expected = [
        "plans",
        "phases",
        "per-transaction",
        "predicted",
        "aborts",
        "tuner-sim-cx4-edr",
        "tuner-verified-sim-cx4-edr",
        "phase-variants",
        "latency-by-payload",
        "rate-by-payload",
        "ladder-loopback",
        "ladder-sim-cx4-edr",
        "knobs-loopback",
        "knobs-sim-cx4-edr",
        "experiment-experiment-skew",
    ];
    assert_eq!(rendered.report.figures, expected);
    assert!(rendered.report.problems.is_empty());
    assert_sound(&rendered);
    let first = &rendered.report.answers[0];
    assert!(first.starts_with("SmallBank on sim:cx4-edr, OCC, tuned: "), "{first}");
    assert!(first.contains("over two-sided"), "{first}");
    assert!(rendered.html.contains("prefers-color-scheme:dark"));
    // What was simulated says by which profile, what was measured on which machine.
    let plans = figure(&rendered.html, "plans");
    assert!(plans.contains("profile cx4-edr (5a5a5a5a5a; 0 measured, 21 published, 4 recalled, 9 assumed)"));
    assert!(plans.contains("Sample CPU, 2 cores"));
}

#[test]
fn captions_come_from_the_data() {
    let dir = fresh();
    let csv = format!(
        "{CHARACTERIZE}\n\
         0,payload,read,64,1,1,1,1,1,1,,10,7000000,,,,,,,\n\
         1,payload,rpc,64,1,1,1,1,1,1,,10,5000000,,,,,,,\n"
    );
    let made =
        sample::write_dir(dir.path(), "c", &sample::record("characterize", SIM, 2), &[("points.csv", &csv)]);
    let rendered = draw(&[made], dir);
    let caption = figure(&rendered.html, "rate-by-payload").replace('\u{a0}', " ");
    assert!(caption.contains("one-sided READ is 1.4× RPC at 64 B (7 M/s against 5 M/s)."), "{caption}");
    assert_eq!(rendered.report.figures, ["rate-by-payload"]);
    assert_sound(&rendered);
}

/// `tuned` names any plan: its colour is that of what carries its phases.
#[test]
fn a_tuned_plan_has_the_colour_of_what_it_is() {
    for (via, ink) in [("one-sided", Ink::OneSided), ("two-sided", Ink::TwoSided)] {
        let dir = fresh();
        let tuned = sample::run(dir.path(), "tuned", SIM);
        let path = tuned.join("run.json");
        let mut record: serde_json::Value =
            serde_json::from_slice(&std::fs::read(&path).expect("there")).expect("JSON");
        record["spec"] = json!({"plan": {"coroutines": 8, "fetch": {"via": via}, "lock": {"via": via}}});
        std::fs::write(&path, record.to_string()).expect("writes");
        let rendered = draw(&[tuned], dir);
        let plans = figure(&rendered.html, "plans");
        assert!(plans.contains(&ink.css()) && !plans.contains(&Ink::Hybrid.css()), "{via}");
    }
}

/// What made several runs, and the page, is told once.
#[test]
fn each_command_stands_once() {
    let dir = fresh();
    let made: Vec<PathBuf> = ["one-sided", "two-sided"].map(|plan| sample::run(dir.path(), plan, SIM)).into();
    let rendered = draw(&made, dir);
    let again = rendered.html.split("How to make it again</h2>").nth(1).expect("the end");
    let commands: Vec<&str> = again
        .split("<pre>")
        .nth(1)
        .expect("commands")
        .split("</pre>")
        .next()
        .unwrap()
        .trim()
        .lines()
        .collect();
    assert_eq!(commands.len(), 2, "{commands:?}");
    assert_eq!(commands[0], "doorbell run --fabric sim:cx4-edr --seed 42");
}

#[test]
fn the_csv_of_a_figure_is_what_was_drawn() {
    let dir = fresh();
    let made = [sample::run(dir.path(), "one-sided", SIM), sample::run(dir.path(), "two-sided", SIM)];
    let rendered = draw(&made, dir);
    let mut reader =
        csv::Reader::from_path(rendered.dir.path().join("out/figures/plans.csv")).expect("a CSV file");
    let header = reader.headers().expect("a header").clone();
    let column = |name: &str| header.iter().position(|h| h == name).unwrap_or_else(|| panic!("no {name}"));
    let rows: Vec<csv::StringRecord> = reader.records().map(|r| r.expect("a row")).collect();
    assert_eq!(rows.len(), 2);
    assert_eq!(&rows[0][column("plan")], "one-sided", "fastest first");
    let rate: f64 = rows[0][column("committed_per_s")].parse().expect("a number");
    assert!((rate - 2.05e6).abs() < 1.0, "{rate}");
    assert!(figure(&rendered.html, "plans").replace('\u{a0}', " ").contains("2.05 M/s"));
    assert_eq!(&rows[1][column("provenance")], "simulated");
}

#[test]
fn measured_and_simulated_have_panels_of_their_own() {
    let dir = fresh();
    let made = [sample::characterize(dir.path(), "a", SIM), sample::characterize(dir.path(), "b", LOOPBACK)];
    let rendered = draw(&made, dir);
    let part = figure(&rendered.html, "rate-by-payload");
    let drawing = part.split("</svg>").next().expect("a drawing");
    // Two panels, each with its chip and its own vertical axis title.
    for (word, count) in [("\nsimulated\n", 1), ("\nmeasured\n", 1), ("\noperations per second\n", 2)] {
        assert_eq!(drawing.matches(word).count(), count, "{word}");
    }
}

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
        "0,\"{e}\",\"{e}\",\"{e}\",2,1,1,1,10,1,1,5,100,10,3,55,50,60,70,80,1,1,1,90,40,\"{e}\",\"{e}\",\"{e}\",,,,\"{e}\"",
        e = evil.replace('"', "\"\"")
    );
    let csv = format!("{RUN}\n{row}\n");
    let phases = format!(
        "point,phase,latency_p50_ns,latency_p99_ns,verbs,round_trips,doorbells\n0,\"{}\u{1b}[0m\",5,6,1,1,1\n",
        evil.replace('"', "\"\"")
    );
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
    for (i, value) in
        ["1e308", "-1e308", "1e-300", "0", "NaN", "inf", "-inf", "", "5e-324"].iter().enumerate()
    {
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
        sample::write_dir(dir.path(), "c", &sample::record("characterize", SIM, 36), &[("points.csv", &csv)]);
    let cells = ",".repeat(RUN.matches(',').count());
    let odd = "0,smallbank,occ,a,0,0,0,0,0,0,0,1e308,1e308,1e308,,1e-308,,-1,0,,1e308,-5";
    let run = format!("{RUN}\n{odd}{}\n1{cells}\n", &cells[odd.matches(',').count()..]);
    let run = sample::write_dir(dir.path(), "r", &sample::record("run", SIM, 2), &[("points.csv", &run)]);
    let tune = "point,plan,origin,predicted_per_s,predicted_mean_ns,bottleneck,got_per_s,got_mean_ns\n0,,,0,0,,0,0\n1,a,b,1e308,1e308,c,1e-308,1e308\n2,b,c,-1,,,1e308,\n";
    let tune = sample::write_dir(dir.path(), "t", &sample::record("tune", SIM, 3), &[("points.csv", tune)]);
    let rendered = draw(&[characterized, run, tune], dir);
    assert!(rendered.report.problems.is_empty(), "{:?}", rendered.report.problems);
    assert!(rendered.html.contains("values that are not finite"));
    assert_sound(&rendered);
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
    assert!(rendered.report.notes[0].starts_with("left out: "), "{:?}", rendered.report.notes);
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

#[test]
fn a_directory_of_directories_is_read_one_level_down() {
    let dir = fresh();
    let root = dir.path().join("quickstart");
    std::fs::create_dir(&root).expect("a directory");
    sample::run(&root, "drtm-h", SIM);
    sample::run(&root, "two-sided", SIM);
    let rendered = draw(&[root], dir);
    assert!(rendered.html.contains("run-drtm-h-sim") && rendered.html.contains("run-two-sided-sim"));
}

#[test]
fn a_failed_check_is_seen_first() {
    let dir = fresh();
    let made = sample::run(dir.path(), "drtm-h", SIM);
    let csv = std::fs::read_to_string(made.join("points.csv")).expect("points");
    std::fs::write(made.join("points.csv"), csv.replace("serializable,ok,0", "serializable,FAIL,2"))
        .expect("writes");
    let rendered = draw(&[made], dir);
    let head = rendered.html.split("<nav").next().expect("a head");
    assert!(head.contains("badge bad\">run-drtm-h-sim: serializable: FAIL"));
    assert!(head.contains("workload checks failed: 2"));
}

#[test]
fn a_sweep_of_regret_is_drawn_with_its_signs_and_what_has_no_winner() {
    let dir = fresh();
    let made = sample::regret(dir.path(), "regret");
    let rendered = draw(&[made], dir);
    assert_sound(&rendered);
    let part = figure(&rendered.html, "regret-regret");
    assert!(part.contains("Over 40 combinations"), "{part}");
    assert!(part.contains("7.8\u{a0}% in the worst"), "{part}");
    assert!(part.contains("1 race more ended without a winner"), "{part}");
    let data = rendered.dir.path().join("out/figures/regret-regret.csv");
    let data = std::fs::read_to_string(data).expect("the data behind it");
    assert!(data.contains("sim:drawn-39") && data.contains("-0.01"), "{data}");
}

#[test]
fn pngs_are_drawn_with_the_bundled_font() {
    let dir = fresh();
    let made = sample::run(dir.path(), "drtm-h", SIM);
    let out = dir.path().join("report.html");
    render(&[made], &out, &Options::default()).expect("a page");
    let png = std::fs::read(dir.path().join("figures/plans.png")).expect("a PNG");
    assert_eq!(&png[..8], b"\x89PNG\r\n\x1a\n");
    assert!(png.len() > 5_000, "{} bytes show nothing", png.len());
}

#[test]
fn figures_of_an_experiment_file_are_drawn_and_the_default_where_there_are_none() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let results = sample::experiment(dir.path(), "experiment-skew");
    let draw = |figures: serde_json::Value| {
        let path = results.join("run.json");
        let mut record: serde_json::Value =
            serde_json::from_slice(&std::fs::read(&path).expect("there")).expect("JSON");
        record["spec"] = serde_json::json!({ "figures": figures });
        record["summary"] = serde_json::json!({ "published": [
            {"claim": "PRINTED-1", "at": {"plan": "drtm-h"}, "y": "committed_per_s", "value": 3.0e6},
            {"claim": "PRINTED-2", "at": {"speed": "none"}, "y": "committed_per_s", "value": 4.0e6},
        ] });
        std::fs::write(&path, record.to_string()).expect("writes");
        let out = dir.path().join("page");
        reports::render(
            std::slice::from_ref(&results),
            &out,
            &Options { skip_png: true, ..Options::default() },
        )
        .expect("a page");
        std::fs::read_to_string(out.join("figures/experiment-experiment-skew.svg")).expect("a figure")
    };
    let usual = draw(serde_json::json!([]));
    assert!(usual.contains("Committed transactions per second") && usual.contains("Median latency"));
    let asked = draw(serde_json::json!([
        {"title": "Aborts", "x": "skew", "y": "aborted_per_s", "by": "plan"},
        {"x": "plan", "y": "latency_p99_ns", "by": "skew"},
    ]));
    assert!(asked.contains("\nAborts\n") && asked.contains("latency p99 by plan"), "{asked}");
    assert!(!asked.contains("Median latency"));
    assert!(!asked.contains("PRINTED"), "no figure of that column was asked for");
    // Points of one plan, and beside its highest what is printed for it; what names another axis is left out.
    let one = draw(serde_json::json!([
        {"x": "skew", "y": "committed_per_s", "by": "plan", "at": {"plan": "drtm-h"}},
    ]));
    assert!(one.contains("drtm-h") && !one.contains("two-sided"), "{one}");
    assert!(one.contains("PRINTED-1 prints 3\u{a0}M where drtm-h at skew 0 gives 2.4\u{a0}M"), "{one}");
    assert!(!one.contains("PRINTED-2"));
    // What cannot be drawn leaves the usual figure; nonsense is passed over.
    for nothing in
        [serde_json::json!([{"x": "skew", "y": "speed"}]), serde_json::json!([7]), serde_json::json!(7)]
    {
        assert!(draw(nothing).contains("Median latency"));
    }
}

#[test]
fn protocols_are_compared_plan_by_plan_and_the_best_pure_one_with_the_best_mixed_one() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let results = sample::comparison(dir.path(), "protocols");
    let out = dir.path().join("page");
    let options = Options { skip_png: true, ..Options::default() };
    reports::render(&[results, sample::experiment(dir.path(), "skew")], &out, &options).expect("a page");
    let read = |name: &str| std::fs::read_to_string(out.join("figures").join(name)).expect("a figure");
    let table = read("comparison-protocols.svg");
    for words in ["SmallBank", "YCSB", "OCC", "NO-WAIT", "MVCC", "lock-conflict", "read-changed", "tuned"] {
        assert!(table.contains(words), "{words}");
    }
    // What the application rolls back is no conflict.
    assert!(!table.contains("insufficient-funds"));
    let mixed = read("pure-against-mixed-protocols.svg");
    // 2 M/s one-sided, 2.4 M/s tuned.
    assert!(mixed.contains("2.4\u{a0}M") && mixed.contains("+20"), "{mixed}");
    // A grid with an axis of numbers is not a comparison of protocols.
    assert!(!out.join("figures/comparison-skew.svg").exists());
}
