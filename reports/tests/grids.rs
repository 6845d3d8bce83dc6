//! Pages of experiments: grids drawn as curves, comparisons and regret, by default and as a file asks for them.

use reports::Options;
use serde_json::json;
use std::path::{Path, PathBuf};

mod drawn;
mod sample;
use drawn::{Rendered, assert_sound, draw, figure, fresh};
use sample::{RUN, SIM};

#[test]
fn a_sweep_of_regret_is_drawn_with_its_signs_and_what_has_no_winner() {
    let dir = fresh();
    let made = sample::regret(dir.path(), "regret");
    let rendered = draw(&[made], dir);
    assert_sound(&rendered);
    let part = figure(&rendered.html, "regret-regret");
    assert!(part.contains("Over 40 combinations"), "{part}");
    assert!(part.contains("7.8\u{a0}% in the worst (standard error 0.1\u{a0}%)"), "{part}");
    assert!(part.contains("1 race more ended without a winner"), "{part}");
    let data = rendered.dir.path().join("out/figures/regret-regret.csv");
    let data = std::fs::read_to_string(data).expect("the data behind it");
    assert!(data.contains("sim:drawn-39") && data.contains("-0.01"), "{data}");
}

#[test]
fn given_points_have_three_bars_a_protocol_and_the_figures_that_the_file_asks_for() {
    let dir = fresh();
    let made = [sample::best_of_all(dir.path(), "best"), sample::regret(dir.path(), "regret")];
    let rendered = draw(&made, dir);
    assert_sound(&rendered);
    assert!(!rendered.html.contains("best-of-all-regret"), "combinations that are drawn have no pure plans");
    assert!(figure(&rendered.html, "regret-best").contains("Over 4 points, each compared"));
    let part = figure(&rendered.html, "best-of-all-best");
    let said = "On SmallBank · sim:cx4-edr the best mixed plan gives OCC most, +25\u{a0}% (standard error 1\u{a0}%) over the better pure one";
    assert!(part.contains(said), "{part}");
    assert!(part.contains("on SmallBank · sim:tcp-10g no mixed plan is known to be better"), "{part}");
    let folder = rendered.dir.path().join("out/figures");
    let read = |ending: &str| {
        std::fs::read_to_string(folder.join(format!("best-of-all-best.{ending}"))).expect("there")
    };
    let drawing = read("svg");
    for (says, times) in
        [("best one-sided", 2), ("best two-sided", 2), ("best of all plans", 2), ("n/a", 2), ("Tuned", 1)]
    {
        assert_eq!(drawing.matches(says).count(), times, "{says}: {drawing}");
    }
    let data = read("csv");
    assert!(
        data.contains("mixing_gain") && data.contains("got_per_s") && data.contains("0.25,0.01"),
        "{data}"
    );
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
        record["published"] = serde_json::json!([
            {"claim": "PRINTED-1", "at": {"plan": "drtm-h"}, "y": "committed_per_s", "value": 3.0e6},
            {"claim": "PRINTED-2", "at": {"speed": "none"}, "y": "committed_per_s", "value": 4.0e6},
            {"claim": "PRINTED-3", "at": {"plan": "drtm-h", "skew": 0}, "of": {"plan": "two-sided", "skew": 0},
             "y": "committed_per_s", "value": 1.5},
            {"claim": "PRINTED-4", "at": {"plan": "drtm-h"}, "of": {"plan": "farm"}, "y": "committed_per_s", "value": 2},
        ]);
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
    assert!(one.contains("\ndrtm-h\n") && !one.contains("\ntwo-sided\n"), "{one}");
    assert!(one.contains("PRINTED-1 prints 3\u{a0}M where drtm-h at skew 0 gives 2.4\u{a0}M"), "{one}");
    assert!(!one.contains("PRINTED-2"));
    // A multiple is of what the other point gave, whether that one is drawn or not; of one that is not there it is nothing.
    let times = "PRINTED-3 prints 1.5 times what two-sided gives, 2.7\u{a0}M, where drtm-h at skew 0 gives 2.4\u{a0}M";
    assert!(one.contains(times), "{one}");
    assert!(!one.contains("PRINTED-4"));
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

/// A figure of a comparison of protocols whose rows were edited.
fn compared(name: &str, edit: &dyn Fn(String) -> String) -> String {
    let dir = fresh();
    let made = sample::comparison(dir.path(), "protocols");
    let points = made.join("points.csv");
    let csv = std::fs::read_to_string(&points).expect("rows");
    std::fs::write(&points, edit(csv)).expect("writes");
    figure(&draw(&[made], dir).html, name).replace('\u{a0}', " ")
}

/// The best of one is its choice, not the best there is: a column of tuned plans alone says so, and so does the sentence above it.
#[test]
fn mixed_plans_are_the_best_of_those_run_or_what_the_tuner_chose() {
    let part = |edit: &dyn Fn(String) -> String| compared("pure-against-mixed-protocols", edit);
    let (chosen, run) = ("mixed, chosen by the tuner", "best mixed of those run");
    let tuned = part(&|csv| csv);
    assert!(tuned.contains(chosen) && !tuned.contains("best mixed"), "{tuned}");
    assert!(tuned.contains("YCSB · sim:cx4-edr the tuner's mixed plan gives"), "{tuned}");
    // Another plan was run under one protocol on YCSB: the best of those there need not be the tuner's.
    let other = part(&|csv| csv.replace(",ycsb,mvcc,tuned,", ",ycsb,mvcc,drtm-h,"));
    assert!(other.contains(chosen) && other.contains(run), "{other}");
    assert!(other.contains("YCSB · sim:cx4-edr the best mixed plan of those run gives"), "{other}");
    assert!(other.contains("SmallBank · sim:cx4-edr the tuner's mixed plan gives"), "{other}");
    // Where the tuner chose a pure plan there is none to show.
    let pure = part(&|csv| csv.replace(",ycsb,mvcc,tuned,", ",ycsb,mvcc,tuned (one-sided),"));
    assert!(pure.contains("the tuner chose a pure one") && !pure.contains("none was run"), "{pure}");
    let less = part(&|csv| csv.replace(",ycsb,mvcc,tuned,", ",ycsb,mvcc,two-sided,"));
    assert!(less.contains("none was run"), "{less}");
}

/// The tuner chooses a number of coroutines with its plan; who compares that with other plans is told, and what all points share.
#[test]
fn what_differs_beside_the_axes_is_told_with_what_does_not() {
    let part = |edit: &dyn Fn(String) -> String| compared("comparison-protocols", edit);
    let alike = part(&|csv| csv);
    assert!(alike.contains("All points: 4 nodes, 8 threads, 10 coroutines, 3 replicas."), "{alike}");
    assert!(!alike.contains("tuned, 32 coroutines"), "{alike}");
    let own = part(&|csv| csv.replace(",tuned,4,8,10,3,", ",tuned,4,8,32,3,"));
    assert!(own.contains("All points: 4 nodes, 8 threads, 3 replicas."), "{own}");
    assert!(own.contains("numbers of coroutines a thread: one-sided 10, two-sided 10, tuned 32."), "{own}");
    assert!(own.contains("tuned, 32 coroutines") && own.contains("one-sided, 10 coroutines"), "{own}");
}

/// Transactions of an experiment ran as well as those of a run, and their verdicts are counted by points.
#[test]
fn an_experiment_ran_transactions_and_its_verdicts_are_of_points() {
    let dir = fresh();
    let made = sample::experiment(dir.path(), "experiment-skew");
    let rendered = draw(std::slice::from_ref(&made), dir);
    let head = rendered.html.split("<nav").next().expect("a head");
    assert!(!head.contains("No transactions were run"), "{head}");
    assert!(head.contains("serializable: ok in 15 points") && head.contains("hold in 15 points"), "{head}");
    // Requests are no transactions.
    let made = sample::characterize(rendered.dir.path(), "characterize", SIM);
    assert!(draw(&[made], fresh()).html.contains("No transactions were run"));
}

/// A grid of four plans by three skews by coroutines by two seeds.
fn seeded(root: &Path) -> PathBuf {
    let mut csv = format!("{RUN},axis_plan,axis_set.zipf_theta,axis_coroutines,axis_seed\n");
    let mut point = 0;
    for (i, plan) in ["drtm-r", "drtm-h", "two-sided", "farm"].iter().enumerate() {
        for skew in ["0.5", "0.9", "0.99"] {
            for coroutines in [1, 2, 4, 8] {
                for seed in [1, 2] {
                    let rate = 1e6 * (i + coroutines) as f64 + 2e5 * f64::from(seed);
                    csv += &format!(
                        "{point},ycsb,occ,{plan},3,1,{coroutines},3,20,1,0,100,{rate},1,0,,9000,,9900,,7,4,5,,,serializable,pass,0,,,,,{plan},{skew},{coroutines},{seed}\n"
                    );
                    point += 1;
                }
            }
        }
    }
    sample::write_dir(root, "grid", &sample::record("experiment", SIM, point), &[("points.csv", &csv)])
}

#[test]
fn seeds_of_a_grid_are_told_and_are_repeats_and_no_curve_is_dropped() {
    let dir = fresh();
    let made = seeded(dir.path());
    let rendered = draw(&[made], dir);
    assert_sound(&rendered);
    assert_eq!(rendered.html.matches("seeds 1, 2").count(), 2, "under the figure and in the list of runs");
    assert!(!rendered.html.contains("seed 42 ·"));
    let part = figure(&rendered.html, "experiment-grid").replace('\u{a0}', " ");
    let (drawing, caption) = (part.split("</svg>").next().expect("a drawing"), &part);
    assert!(
        caption.contains("each point is the median of 2 seeds") && !caption.contains("are drawn"),
        "{caption}"
    );
    // The median of 1.2 and 1.4 M/s.
    assert!(caption.contains("drtm-r, zipf_theta 0.5 goes from 1.3 M/s"), "{caption}");
    for skew in ["0.5", "0.9", "0.99"] {
        assert!(drawing.contains(&format!("\nCommitted per second, zipf_theta {skew}\n")), "{skew}");
    }
    for plan in ["drtm-r", "drtm-h", "two-sided", "farm"] {
        assert_eq!(drawing.matches(&format!("\n{plan}\n")).count(), 6, "{plan}");
    }
}

#[test]
fn figures_that_are_asked_for_draw_seeds_as_repeats_unless_they_name_them() {
    let dir = fresh();
    let made = seeded(dir.path());
    let mut record = sample::record("experiment", SIM, 96);
    let mut asked = |figure: serde_json::Value| {
        record["spec"] = json!({ "figures": [figure] });
        std::fs::write(made.join("run.json"), record.to_string()).expect("writes");
        let rendered = draw(std::slice::from_ref(&made), fresh());
        figure_of(&rendered)
    };
    let at = json!({"set.zipf_theta": 0.5});
    let part = asked(json!({"x": "coroutines", "y": "committed_per_s", "by": "plan", "at": at}));
    assert!(part.contains("each point is the median of 2 seeds") && !part.contains("seed 1\n"), "{part}");
    // The median of 1.2 and 1.4 M/s.
    assert!(part.contains("per second goes from 1.3 M (drtm-r at coroutines 1)"), "{part}");
    // Twelve curves do not go into one panel: each skew, which the figure does not name, has its own.
    let part = asked(json!({"x": "coroutines", "y": "committed_per_s", "by": "plan", "title": "Rate"}));
    assert!(!part.contains("curves are drawn"), "{part}");
    for skew in ["0.5", "0.9", "0.99"] {
        assert!(part.contains(&format!("\nRate, zipf theta {skew}\n")), "{skew}: {part}");
    }
    for plan in ["drtm-r", "drtm-h", "two-sided", "farm"] {
        assert_eq!(part.matches(&format!("\n{plan}\n")).count(), 3, "{plan}");
    }
    let part = asked(
        json!({"x": "coroutines", "y": "committed_per_s", "by": "seed", "at": {"set.zipf_theta": 0.5, "plan": "farm"}}),
    );
    assert!(
        !part.contains("median of") && part.contains("\nseed 1\n") && part.contains("\nseed 2\n"),
        "{part}"
    );
}

fn figure_of(rendered: &Rendered) -> String {
    figure(&rendered.html, "experiment-grid").replace('\u{a0}', " ")
}
