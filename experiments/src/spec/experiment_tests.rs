//! Tests of experiment files.

use super::*;

fn parse(text: &str) -> Result<Experiment, CliError> {
    Experiment::parse(&Document { name: "a.yaml".into(), text: text.into() })
}

fn refused(text: &str) -> String {
    let full = format!("question: why\nfabric: sim:cx4-edr\n{text}");
    parse(&full).unwrap_err().message().to_owned()
}

#[test]
fn the_example_at_the_top_is_an_experiment() {
    let source = include_str!("experiment.rs");
    let yaml = source.split("//! ```").nth(1).unwrap().trim_start_matches("yaml");
    let text: String = yaml.lines().map(|l| format!("{}\n", l.trim_start_matches("//! "))).collect();
    let experiment = parse(&text).unwrap();
    assert_eq!(experiment.points.len(), 9);
    assert_eq!(experiment.points[8].label(), "plan=drtm-h coroutines=16");
    assert_eq!(experiment.base.set["hot_accounts_share"], serde_json::json!(0.04));
    assert_eq!(
        (experiment.fabrics().as_str(), experiment.axes()),
        ("sim:cx4-edr", vec!["plan".into(), "coroutines".into()])
    );
    assert_eq!(experiment.figures[0].by.as_deref(), Some("plan"));
}

#[test]
fn who_writes_what_perftest_knows_is_told_what_it_is_called_here() {
    for (text, says) in [
        ("tx_depth: 128\n", "so many requests are in flight as `coroutines` times `outstanding`"),
        ("iterations: 1000\n", "requests are counted for a time: `duration: 2s`"),
        ("inline: 64\n", "it stands in the fabric"),
        ("nods: 3\n", "did you mean `nodes`?"),
    ] {
        let text = format!("question: why\n{text}");
        let error = Experiment::parse(&Document { name: "a.yaml".to_owned(), text }).unwrap_err();
        assert!(error.render(false).contains(says), "{}", error.render(false));
    }
}

#[test]
fn mistakes_have_line_and_column() {
    for (text, says) in [
        ("nods: 3\n", "a.yaml:3:1: unknown field"),
        ("nodes: 3\nnodes: 4\n", "a.yaml:4:1: duplicate"),
        ("nodes: 0\n", "a.yaml:3:8: nodes: at least 1 node is needed"),
        ("coroutines: 1000000000\n", "a.yaml:3:13: coroutines: 1000000000 is too many"),
        ("duration: 10 parsecs\n", "a.yaml:3:11: duration: `parsecs` is not a unit"),
        ("clock_skew: 2\n", "a.yaml:3:13: clock_skew: 2 of what?"),
        ("clock_skew: 61min\n", "a.yaml:3:13: clock_skew: clocks may be wrong by an hour (60min) at most"),
        (
            "grid:\n  clock_skew: [0us, -1us]\n",
            "a.yaml:4:21: grid.clock_skew: how wrong clocks are, ahead or behind, cannot be less than nothing (0us)",
        ),
        ("kind: primitive\nclock_skew: 1us\n", "a.yaml:4:13: clock_skew: "),
        ("duration: 10\n", "a.yaml:3:11: duration: 10 of what?"),
        ("protocol: ooc\n", "a.yaml:3:11: protocol: no protocol of that name; did you mean `occ`?"),
        ("grid:\n  nods: [1]\n", "a.yaml:4:3: grid: `nods` cannot be set; did you mean `nodes`?"),
        ("grid:\n  nodes: [3, 0]\n", "a.yaml:4:14: grid.nodes: at least 1 node"),
        ("grid:\n  nodes: [3, 4, 3]\n", "a.yaml:4:17: grid.nodes: 3 is there twice"),
        (
            "grid:\n  clock_skew: [50us, 50000ns]\n",
            "a.yaml:4:22: grid.clock_skew: \"50us\" and \"50000ns\" are the same, which would be measured twice",
        ),
        ("workload: ycsb\ngrid:\n  set.zipf_theta: [0.5, '0.50']\n", "0.5 and \"0.50\" are the same"),
        ("kind: primitive\ngrid:\n  payload: [8, 64, 8]\n", "a.yaml:5:20: grid.payload: 8 is there twice"),
        ("clock_skew: ~\n", "a.yaml:3:1: clock_skew: it has no value"),
        ("nodes:\nseed: 3\n", "a.yaml:3:1: nodes: it has no value"),
        ("set: {zipf_theta: null}\n", "a.yaml:3:7: set.zipf_theta: it has no value"),
        ("grid:\n  clock_skew: [0us, ~]\n", "a.yaml:4:21: grid.clock_skew: one of its values is missing"),
        ("plan: {like: farm, log: ~}\n", "a.yaml:3:20: plan.log: it has no value"),
        ("figures: [{x: ~, y: committed_per_s}]\n", "a.yaml:3:15: figures.0.x: null is not allowed here"),
        (
            "grid:\n  plan: [{name: a, like: farm}, {name: a, like: drtm-h}]\n",
            "a.yaml:4:33: grid.plan: two plans are called `a`",
        ),
        ("plan: {name: farm, fetch: one-sided}\n", "a.yaml:3:8: plan: name: `farm` is another plan"),
        ("grid:\n  nodes: []\n", "a.yaml:4:3: grid.nodes: at least one value"),
        ("grid:\n  nodes: [3]\n  nodes: [4]\n", "a.yaml:5:3: duplicate"),
        ("grid:\n  nodes: 3\n", "a.yaml:4:3: grid.nodes: an axis has a list of values, in brackets"),
        ("grid: {clock_skew: 50us}\n", "a.yaml:3:8: grid.clock_skew: an axis has a list of values"),
        ("grid: {plan: {like: farm}}\n", "a.yaml:3:8: grid.plan: an axis has a list of values"),
        ("grid: {nodes:}\n", "a.yaml:3:8: grid.nodes: it has no value"),
        ("grid:\n  fabric: [loopback, sim:cx4-edr]\n", "real and virtual time in one experiment"),
        ("kind: walk\n", "a.yaml:3:7: kind: unknown variant"),
        ("combinations: 3\n", "a.yaml:3:15: combinations: they are drawn for `kind: regret` alone"),
        ("protocols: all\n", "a.yaml:3:12: protocols: they are chosen from in `kind: regret` alone"),
        (
            "kind: regret\ncombinations: 2\n",
            "a.yaml:4:15: combinations: they are drawn, and here points are given (`fabric` at 2:9)",
        ),
        ("set: {hot: [1]}\n", "a.yaml:3:7: set.hot: a workload's setting"),
        (
            "set: {hot_share: 0.1}\n",
            "a.yaml:3:7: hot_share: workload smallbank has no parameter `hot_share`; it has accounts_per_thread",
        ),
        (
            "workload: ycsb\nset: {write_share: 0.5, zipf_theta: 2}\n",
            "a.yaml:4:37: parameter `zipf_theta` of workload ycsb cannot be `2`",
        ),
        (
            "workload: ycsb\ngrid:\n  set.theta: [0.5]\n",
            "a.yaml:5:3: set.theta: workload ycsb has no parameter `theta`",
        ),
        (
            "workload: ycsb\ngrid:\n  set.zipf_theta: [0.5, 2]\n",
            "a.yaml:5:25: parameter `zipf_theta` of workload ycsb cannot be `2`",
        ),
        (
            "set: {ycsb.zipf: 1}\ngrid:\n  workload: [ycsb, smallbank]\n",
            "a.yaml:3:7: ycsb.zipf: workload ycsb has no parameter `zipf`",
        ),
        (
            "set: {zipf_theta: 0.5}\ngrid:\n  workload: [ycsb, smallbank]\n",
            "a.yaml:3:7: zipf_theta: workload smallbank has no parameter",
        ),
        ("figures: [{x: nodes, y: speed}]\n", "a.yaml:3:25: figure: column `speed`"),
        (
            "figures: [{x: nodes, y: committed_per_s, by: plan}]\n",
            "figure: axis `plan` is not there; the grid has no axes",
        ),
        (
            "grid: {nodes: [3, 4]}\nfigures:\n  - {x: nods, y: committed_per_s}\n",
            "a.yaml:5:9: figure: axis or column `nods` is not there; did you mean `nodes`?",
        ),
        (
            "figures: [{x: speed, y: committed_per_s}]\n",
            "a.yaml:3:15: figure: axis or column `speed` is not there; there are point, workload, ",
        ),
        (
            "grid: {nodes: [3, 4]}\nfigures: [{x: speed, y: committed_per_s}]\n",
            "axis or column `speed` is not there; there are nodes, ",
        ),
        ("figures: [{x: nodes, y: committed_per_s, colour: red}]\n", "a.yaml:3:42: unknown field"),
        (
            "grid: {nodes: [3, 4]}\nfigures: [{x: nodes, y: committed_per_s, at: {nodes: 5}}]\n",
            "a.yaml:4:54: figure: no value of nodes is 5",
        ),
        (
            "grid: {nodes: [3, 4]}\nfigures: [{x: nodes, y: committed_per_s, at: {nods: 3}}]\n",
            "a.yaml:4:47: figure: axis `nods` is not there; did you mean `nodes`?",
        ),
        ("nodes: 2\n", "a.yaml:3:8: the only point: 3 copies of each record need 3 nodes"),
        (
            "grid:\n  nodes: [9, 4]\n  replicas: [1, 9]\n",
            "a.yaml:5:17: point 3 of the grid, nodes=4 replicas=9: 9 copies of each record need 9 nodes",
        ),
        (
            "grid:\n  plan:\n    - {name: x, lok: one-sided}\n",
            "a.yaml:5:17: grid.plan: unknown field `lok`, expected one of",
        ),
        ("plan: {name: '', lock: one-sided}\n", "a.yaml:3:8: plan: name: it is empty; a plan needs a name"),
        ("plan: {lock: one-handed}\n", "a.yaml:3:8: plan: unknown variant `one-handed`"),
        ("plan:\n  name: x\n  like: frm\n", "a.yaml:5:3: plan: like: no plan of that name"),
        (
            "grid:\n  plan:\n    - farm\n    - name: x\n      log: {via: one-sided,\n        outstanding: 3}\n",
            "a.yaml:8:9: grid.plan: log.outstanding: ",
        ),
    ] {
        let got = refused(text);
        assert!(got.contains(says), "{text:?}\n  wanted {says}\n  got    {got}");
    }
    assert_eq!(
        parse("fabric: loopback\n").unwrap_err().message(),
        "a.yaml:1:1: an experiment needs a question"
    );
    let same = "question: why\nclock_skew: 50us\ngrid: {clock_skew: [0, 50000ns]}\n";
    assert_eq!(parse(same).unwrap().points.len(), 2, "a value of the axis, written otherwise");
    let listed = parse("question: why\ngrid: {clock_skew: 50us}\n").unwrap_err().render(false);
    assert!(listed.contains("hint: write `clock_skew: [50us]`; what holds for all points"), "{listed}");
    assert!(parse("question: ' '\n").unwrap_err().message().contains("needs a question"));
}
