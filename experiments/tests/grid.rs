//! Experiments over processes on this host, by tcp: grids of transactions and of requests, and what ends them.

mod common;

use common::site::{Ended, Site, json};
use rustix::process::Signal;
use serde_json::Value;

fn experiment(site: &Site, text: &str, more: &[&str]) -> common::site::Started {
    std::fs::write(site.path("grid.yaml"), text).expect("written");
    let usual = ["experiment", "grid.yaml", "--cluster", "cluster.yaml", "--out", "out", "--json", "-"];
    site.start(&[&usual[..], more].concat())
}

fn points(ended: &Ended) -> Vec<Value> {
    json(ended)["experiments"][0]["points"].as_array().expect("points").clone()
}

const PLANS: &str =
    "question: Which?\nfabric: tcp\nworkload: smallbank\nset: {accounts_per_thread: 1000}\nreplicas: 2\n";

#[test]
fn a_grid_of_transactions_runs_in_one_session_and_is_resumed() {
    let site = Site::new(2);
    let asked =
        format!("{PLANS}duration: 300ms\ngrid:\n  plan: [two-sided, fasst-occ]\n  protocol: [occ, nowait]\n");
    let node = site.node(1, &[]);
    let ended = experiment(&site, &asked, &[]).end(120).must(0, &["waiting at"]);
    node.end(20).must(0, &["joined", "running smallbank under nowait with plan two-sided"]);
    let all = points(&ended);
    assert_eq!(all.len(), 4, "{all:#?}");
    for point in &all {
        assert_eq!(point["isolation_verdict"], "pass", "{point:#}");
        assert_eq!(point["nodes"], 2, "the cluster file says how many: {point:#}");
    }
    let record = site.share("out");
    assert_eq!((&record["complete"], &record["spec"]["processes"]), (&Value::Bool(true), &Value::Bool(true)));
    assert!(record["notes"].to_string().contains("a process of its own"), "{record:#}");
    assert!(!site.path("share-1").exists(), "of points that ended well node 0 has the whole");
    // Who has all points waits for nobody.
    let again = experiment(&site, &asked, &[]).end(60).must(0, &["nothing to measure"]);
    assert!(!again.talk.contains("waiting at"), "{}", again.talk);
    // One process is another experiment.
    let alone = ["experiment", "grid.yaml", "--out", "out"];
    site.start(&alone).end(60).must(2, &["out"]);
}

#[test]
fn a_grid_of_requests_asks_what_the_file_says() {
    let site = Site::new(2);
    let asked = "question: How fast?\nkind: primitive\nfabric: tcp\nverb: rpc\nservers: 1\nduration: 100ms\ngrid:\n  payload: [8, 256]\n  outstanding: [1, 4]\n";
    let node = site.node(1, &[]);
    let ended = experiment(&site, asked, &[]).end(120).must(0, &["waiting at"]);
    node.end(20).must(0, &["measuring rpc of 256 B"]);
    let all = points(&ended);
    assert_eq!(all.len(), 4, "{all:#?}");
    for point in &all {
        assert!(point["ops"].as_u64().is_some_and(|ops| ops > 0), "{point:#}");
        assert_eq!((&point["servers"], &point["nodes"]), (&1.into(), &2.into()), "{point:#}");
    }
}

#[test]
fn a_node_that_is_killed_ends_the_grid_and_points_before_are_kept() {
    let site = Site::new(2);
    let asked = format!(
        "{PLANS}duration: 1s\ngrid:\n  plan: [two-sided, fasst-occ]\n  protocol: [occ, nowait, sundial]\n"
    );
    let mut node = site.node(1, &[]);
    let driver = experiment(&site, &asked, &[]);
    site.said(&mut node, "running smallbank");
    site.said(&mut node, "running smallbank");
    node.send(Signal::KILL);
    driver.end(60).must(1, &["node 1 was lost", "and no other can be measured", "go on with: "]);
    assert_eq!(site.share("out")["points_done"], 1);
    node.end(5);
    // The same command goes on.
    let node = site.node(1, &[]);
    let ended = experiment(&site, &asked, &[]).end(120).must(0, &["resuming: 1 of 6 points are there"]);
    node.end(20).must(0, &[]);
    assert_eq!(points(&ended).len(), 6);
}

#[test]
fn what_an_interrupted_grid_left_is_in_nobodys_way() {
    let site = Site::new(2);
    let asked =
        format!("{PLANS}duration: 1s\ngrid:\n  plan: [two-sided, fasst-occ]\n  protocol: [occ, nowait]\n");
    let mut node = site.node(1, &[]);
    let driver = experiment(&site, &asked, &[]);
    site.said(&mut node, "running smallbank");
    site.said(&mut node, "running smallbank");
    node.has_worked(20);
    driver.send(Signal::INT);
    driver.end(60).must(130, &["go on with: "]);
    node.end(20).must(1, &["node 0"]);
    // The member's share of the second point may be in the second place, where the second point of the next session is.
    std::fs::create_dir_all(site.path("share-1-2")).expect("ours");
    std::fs::write(site.path("share-1-2/left"), "by somebody").expect("ours");
    let node = site.node(1, &[]);
    let ended = experiment(&site, &asked, &[]).end(120).must(0, &["resuming: "]);
    node.end(20).must(0, &[]);
    assert_eq!(points(&ended).len(), 4);
    // Another grid in the same directory is refused before anybody is waited for.
    let other = asked.replace("nowait", "waitdie");
    let ended = experiment(&site, &other, &[]).end(20).must(2, &["out"]);
    assert!(!ended.talk.contains("waiting at"), "{}", ended.talk);
}

#[test]
fn what_a_cluster_cannot_measure_is_told_at_its_place_before_anybody_is_waited_for() {
    let site = Site::new(2);
    for (more, says) in [
        ("nodes: 3\n", &["grid.yaml:7:8", "nodes: 3, and the cluster file names 2", "leave nodes out"][..]),
        ("precision: 5%\n", &["grid.yaml:7:12", "a cluster measures a fixed time"]),
        ("grid: {nodes: [2, 4]}\n", &["nodes: 4, and the cluster file names 2"]),
    ] {
        let ended = experiment(&site, &format!("{PLANS}duration: 1s\n{more}"), &[]).end(10).must(2, says);
        assert!(!ended.talk.contains("waiting at"), "{}", ended.talk);
    }
    let sim = PLANS.replace("tcp", "sim:cx4-edr");
    experiment(&site, &sim, &[]).end(10).must(2, &["grid.yaml:2:9", "are all in one process"]);
    let drawn = "question: Which?\nkind: regret\ncombinations: 2\n";
    experiment(&site, drawn, &[]).end(10).must(2, &["leave --cluster out"]);
}
