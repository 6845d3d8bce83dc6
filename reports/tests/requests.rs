//! Figures of grids of requests: what the experiment file asks for, what papers print, what is missing or loosely known, and
//! where it all comes from.

use reports::ink::Ink;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

mod drawn;
mod sample;
use drawn::{Rendered, assert_sound, draw, figure, fresh};
use sample::SIM;

const STEPS: [&str; 3] = ["base", "+coroutines", "+doorbell"];

/// A grid of verbs by steps by payloads, as far as `there` says; every rate is known within `wide`.
fn grid(root: &Path, wide: f64, spec: Value, there: impl Fn(usize) -> bool) -> PathBuf {
    let mut csv = "point,verb,rate_per_server_per_s,latency_p50_ns,rate_ci_relative,axis_verb,axis_optimizations,axis_payload\n"
        .to_owned();
    let verbs = ["read", "write", "rpc"];
    let places = verbs.iter().flat_map(|verb| STEPS.map(|step| (verb, step)));
    let places = places.flat_map(|(verb, step)| [8, 16, 32, 64].map(|payload| (verb, step, payload)));
    for (point, (verb, step, payload)) in places.enumerate().filter(|(point, _)| there(*point)) {
        let rate = 1_000_000 + 1000 * point;
        csv += &format!("{point},{verb},{rate},{},{wide},{verb},{step},{payload}\n", 2000 + point);
    }
    let mut record = sample::record("primitive", SIM, 36);
    record["question"] = json!("What do verbs cost?");
    record["spec"] = spec;
    record["spec"]["grid"] = json!([
        {"name": "verb", "values": verbs}, {"name": "optimizations", "values": STEPS}, {"name": "payload", "values": [8, 16, 32, 64]},
    ]);
    record["published"] = json!([
        {"claim": "PRINTED-1", "at": {"verb": "rpc", "optimizations": "base", "payload": 16}, "y": "rate_per_server_per_s", "value": 2.0e6},
    ]);
    sample::write_dir(root, "grid", &record, &[("points.csv", &csv)])
}

fn svg(rendered: &Rendered, id: &str) -> String {
    let path = rendered.dir.path().join("out/figures").join(format!("{id}.svg"));
    std::fs::read_to_string(path).expect("a figure")
}

/// Lines of this ink, without the rings and keys that have its colour too.
fn lines(svg: &str, ink: Ink) -> usize {
    svg.matches(&format!("<polyline fill=\"none\" stroke=\"{}\" stroke-width=\"18\"", ink.css())).count()
}

fn curves(at: Value) -> Value {
    json!({"figures": [{"title": "Requests", "x": "payload", "y": "rate_per_server_per_s", "by": "verb", "at": at}]})
}

#[test]
fn a_grid_of_requests_draws_the_figures_that_its_file_asks_for() {
    let dir = fresh();
    let asked = json!({"figures": [
        {"title": "What each step adds", "x": "optimizations", "y": "rate_per_server_per_s", "by": "verb", "at": {"payload": 16}},
    ]});
    let rendered = draw(&[grid(dir.path(), 0.01, asked, |_| true)], dir);
    assert_sound(&rendered);
    let part = figure(&rendered.html, "requests-grid");
    assert!(part.contains("\nWhat each step adds\n") && !part.contains("\nMedian latency\n"), "{part}");
    for name in ["READ", "WRITE", "RPC", "base", "+doorbell"] {
        assert!(part.contains(&format!("\n{name}\n")), "{name}");
    }
    // The printed number stands beside its bar, with a key.
    assert!(part.contains("PRINTED-1 prints 2\u{a0}M where RPC at optimizations base"), "{part}");
    assert!(part.contains("\npublished\n"), "{part}");
    // Without `figures`, or with some that cannot be drawn, the usual ones.
    for nothing in [json!({}), json!({"figures": [{"x": "speed", "y": "rate_per_server_per_s"}]})] {
        let dir = fresh();
        let rendered = draw(&[grid(dir.path(), 0.01, nothing, |_| true)], dir);
        let part = figure(&rendered.html, "requests-grid");
        assert!(part.contains("\nMedian latency\n") && part.contains("PRINTED-1 prints"), "{part}");
    }
}

#[test]
fn verbs_have_the_colours_that_the_page_promises() {
    let dir = fresh();
    let rendered = draw(&[grid(dir.path(), 0.01, curves(json!({"optimizations": "base"})), |_| true)], dir);
    let svg = svg(&rendered, "requests-grid");
    for ink in [Ink::OneSided, Ink::Write, Ink::TwoSided] {
        assert_eq!(lines(&svg, ink), 1, "{ink:?}");
    }
    assert!([Ink::Hybrid, Ink::Hybrid2, Ink::Other].iter().all(|ink| lines(&svg, *ink) == 0));
    // What a curve does not name is told by the verb that all of its points have: shades of one-sided.
    let dir = fresh();
    let mut asked = curves(json!({"verb": "read"}));
    asked["figures"][0]["by"] = json!("optimizations");
    let rendered = draw(&[grid(dir.path(), 0.01, asked, |_| true)], dir);
    let svg = self::svg(&rendered, "requests-grid");
    for ink in [Ink::OneSided, Ink::Write, Ink::Cas] {
        assert_eq!(lines(&svg, ink), 1, "{ink:?}");
    }
}

#[test]
fn a_printed_number_is_no_point_of_a_curve() {
    let dir = fresh();
    let rendered = draw(&[grid(dir.path(), 0.01, curves(json!({"optimizations": "base"})), |_| true)], dir);
    let svg = svg(&rendered, "requests-grid");
    assert!(svg.contains("\nPRINTED-1\n") && svg.contains("\npublished\n"), "{svg}");
    let dots = |ink: Ink| {
        let of = svg
            .split("<circle ")
            .skip(1)
            .filter(|circle| circle.split('>').next().unwrap().contains(&ink.css()));
        of.count()
    };
    assert_eq!(dots(Ink::TwoSided), 4, "a dot for each payload and none for what is printed");
}

#[test]
fn a_line_is_broken_where_a_point_is_missing_and_the_caption_says_so() {
    let draw_with = |there: fn(usize) -> bool| {
        let dir = fresh();
        draw(&[grid(dir.path(), 0.01, curves(json!({"optimizations": "base"})), there)], dir)
    };
    let rendered = draw_with(|_| true);
    assert!(!figure(&rendered.html, "requests-grid").contains("missing"));
    // Payload 32 of READ; two neighbours on one side, one alone on the other.
    let rendered = draw_with(|point| point != 2);
    let caption = figure(&rendered.html, "requests-grid");
    assert!(caption.contains("1 of 36 points is missing, and lines are broken"), "{caption}");
    let svg = svg(&rendered, "requests-grid");
    let path = svg.split("<polyline ").find(|line| {
        line.contains(&format!("stroke=\"{}\"", Ink::OneSided.css())) && line.contains("stroke-width=\"18\"")
    });
    let points = path.expect("a line").split("points=\"").nth(1).expect("points").split('"').next().unwrap();
    assert_eq!(points.split_whitespace().count(), 2, "{points}");
    // The place is missing in every curve: what the file asks for tells.
    let rendered = draw_with(|point| point % 4 != 1);
    let svg = self::svg(&rendered, "requests-grid");
    assert_eq!(lines(&svg, Ink::TwoSided), 1);
    assert!(figure(&rendered.html, "requests-grid").contains("9 of 36 points are missing"));
}

#[test]
fn a_drawing_that_is_taken_out_of_the_page_says_where_it_comes_from() {
    let dir = fresh();
    let rendered = draw(&[grid(dir.path(), 0.01, curves(json!({})), |_| true)], dir);
    let alone = svg(&rendered, "requests-grid");
    let line =
        alone.lines().find(|line| line.starts_with("simulated · sim:cx4-edr")).expect("a line of origin");
    for told in ["profile cx4-edr (5a5a5a5a5a", "seed 42", "commit 0123456789ab"] {
        assert!(line.contains(told), "{line}");
    }
    // The page says so once, below the drawing.
    assert_eq!(figure(&rendered.html, "requests-grid").matches("commit 0123456789ab").count(), 1);
}

#[test]
fn rates_that_are_loosely_known_have_whiskers_and_a_word_in_the_caption() {
    let told = |wide: f64| {
        let dir = fresh();
        let rendered =
            draw(&[grid(dir.path(), wide, curves(json!({"optimizations": "base"})), |_| true)], dir);
        let whiskers = format!("stroke=\"{}\" stroke-width=\"10\"", Ink::OneSided.css());
        let count = svg(&rendered, "requests-grid").matches(&whiskers).count();
        (figure(&rendered.html, "requests-grid").replace('\u{a0}', " "), count)
    };
    let (caption, whiskers) = told(0.12);
    assert!(caption.contains(
        "12 of 12 rates are known no better than ± 5 % (whiskers: 95 % confidence, at worst ± 12 %)"
    ));
    assert_eq!(whiskers, 3 * 4, "an upright and two ends for each READ");
    let (caption, whiskers) = told(0.04);
    assert!(!caption.contains("known no better") && whiskers == 0, "{caption}");
}

/// What is missed is told with its reason, or that there is none; what passes gives none.
#[test]
fn a_scoreboard_tells_why_claims_are_missed() {
    let dir = fresh();
    let header = "point,claim,paper,where,family,split,kind,metric,published,got,error,verdict,reason";
    let row = |n: u32, claim: &str, verdict: &str, reason: &str| {
        format!("{n},{claim},drtmh,fig 5,fig5,hold-out,number,READ,1,2,1.0,{verdict},{reason}\n")
    };
    let rows = [
        row(0, "DRH-C03", "fail", "\"calls are <dear>\""),
        row(1, "DRH-C04", "fail", ""),
        row(2, "DRH-C05", "pass", "a stale one"),
    ];
    let csv = format!("{header}\n{}", rows.concat());
    let mut record = sample::record("scoreboard", SIM, 3);
    record["fabric"] = json!("sim");
    record["profile"] = Value::Null;
    let board = sample::write_dir(dir.path(), "scoreboard", &record, &[("points.csv", &csv)]);
    let rendered = draw(&[board], dir);
    let shown = figure(&rendered.html, "scoreboard-scoreboard-hold-out");
    assert!(shown.contains("Why 2 of these are missed"), "{shown}");
    assert!(shown.contains("<b>DRH-C03</b>: calls are &#60;dear&#62;"), "{shown}");
    assert!(shown.contains("<b>DRH-C04</b>: no reason is given"), "{shown}");
    assert!(!shown.contains("<b>DRH-C05</b>"), "{shown}");
}

/// Each pair once, with both numbers, whatever became of them; a claim of the other split by its name.
#[test]
fn a_scoreboard_tells_which_claims_contradict_each_other() {
    let dir = fresh();
    let header = "point,claim,paper,where,family,split,kind,metric,published,got,error,verdict,contradicts";
    let row = |n: u32, claim: &str, split: &str, published: u32, got: &str, others: &str| {
        format!("{n},{claim},rcc,t1,t1,{split},headline,rate,{published},{got},,not yet,{others}\n")
    };
    let rows = [
        row(0, "RCC-A", "hold-out", 40, "41", "RCC-B"),
        row(1, "RCC-B", "hold-out", 308, "", "RCC-A RCC-P"),
        row(2, "RCC-P", "calibrate", 33, "65", "RCC-B"),
        row(3, "RCC-C", "hold-out", 5, "6", ""),
    ];
    let mut record = sample::record("scoreboard", SIM, 4);
    record["fabric"] = json!("sim");
    record["profile"] = Value::Null;
    let csv = format!("{header}\n{}", rows.concat());
    let board = sample::write_dir(dir.path(), "scoreboard", &record, &[("points.csv", &csv)]);
    let rendered = draw(&[board], dir);
    let notes = |split: &str| {
        let shown = figure(&rendered.html, &format!("scoreboard-scoreboard-{split}"));
        assert!(shown.contains("contradict themselves or each other"), "{shown}");
        shown.lines().filter(|line| line.contains("</b> against ")).map(str::to_owned).collect::<Vec<_>>()
    };
    let note = |a: &str, b: &str| format!("<p class=\"note\"><b>{a}</b> against {b}</p>");
    assert_eq!(notes("hold-out"), [note("RCC-A (40, got 41)", "RCC-B (308)"), note("RCC-B (308)", "RCC-P")]);
    assert_eq!(notes("calibrate"), [note("RCC-P (33, got 65)", "RCC-B")]);
}

/// A scoreboard has no profile: its answers are those of the runs that it names.
#[test]
fn a_scoreboard_comes_from_the_runs_beside_it() {
    let dir = fresh();
    let header = "point,claim,paper,where,family,split,kind,metric,published,got,error,verdict,experiment";
    let csv = format!("{header}\n0,DRH-P01,drtmh,fig 5,fig5,hold-out,number,READ,1,1,0.0,pass,grid\n");
    let mut record = sample::record("scoreboard", SIM, 1);
    record["fabric"] = json!("sim");
    record["profile"] = Value::Null;
    let board = sample::write_dir(dir.path(), "scoreboard", &record, &[("points.csv", &csv)]);
    let rendered = draw(std::slice::from_ref(&board), dir);
    let alone = figure(&rendered.html, "scoreboard-scoreboard-hold-out").to_owned();
    assert!(alone.contains("profiles of the runs that it judges"), "{alone}");
    grid(rendered.dir.path(), 0.01, json!({}), |_| true);
    let both = [rendered.dir.path().join("grid"), board];
    let rendered = draw(&both, rendered.dir);
    let beside = figure(&rendered.html, "scoreboard-scoreboard-hold-out");
    assert!(beside.contains("sim:cx4-edr · profile cx4-edr (5a5a5a5a5a"), "{beside}");
    assert!(!rendered.html.contains("profile not recorded"));
}
