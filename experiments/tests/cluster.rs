//! Clusters of processes over tcp, with the binary: runs that end well, and each way in which they do not.

mod common;

use common::site::{Site, Started, json};
use experiments::args::{Cli, Command};
use experiments::cluster::Cluster;
use experiments::commands::Context;
use experiments::spec::Span;
use rustix::process::Signal;
use serde_json::Value;
use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

#[test]
fn processes_run_smallbank_and_the_merged_history_is_serializable() {
    for (count, replicas) in [(2u16, "1"), (3, "3")] {
        // On a machine that is busy with something else, some node may commit nothing in a short window: a longer one then.
        let tried = [300, 1200, 4800].map(|window_ms| move || serializable(count, replicas, window_ms));
        let counts: Vec<_> = tried.iter().map_while(|run| run().err()).collect();
        assert!(counts.len() < tried.len(), "(in all, not by node 0): {counts:?}");
    }
}

/// Runs a cluster of so many nodes for so long and checks what it leaves. Whether node 0 and the others both committed; if
/// not, how much was committed in all and by the others.
fn serializable(count: u16, replicas: &str, window_ms: u32) -> Result<(), (u64, u64)> {
    let site = Site::new(count);
    let nodes: Vec<Started> = (1..count).map(|id| site.node(id, &[])).collect();
    let window = format!("{window_ms}ms");
    let asked = ["--replicas", replicas, "--duration", &window, "--threads", "1", "--history", "h.json"];
    let ended = site.drive(&asked).end(60).must(0, &["waiting at", "running smallbank"]);
    let result = json(&ended);
    assert_eq!(result["isolation"]["verdict"], "pass", "{result:#}");
    let checks = result["checks"].as_object().expect("checks");
    assert!(checks.len() >= 2 && checks.values().all(|c| c["passed"] == true), "{checks:?}");
    assert_eq!(checks.contains_key("backups-equal"), replicas != "1");
    assert_eq!(result["spec"]["nodes"], count);
    let mut committed = 0;
    for (id, node) in (1..count).zip(nodes) {
        node.end(20).must(0, &["joined", "told node 0"]);
        let share = site.share(&format!("share-{id}"));
        assert_eq!(share["complete"], true, "{share:#}");
        let command = format!("doorbell node --cluster cluster.yaml --id {id} --out share-{id}");
        assert_eq!(share["command"], command.as_str());
        assert_eq!(share["spec"]["plan_name"], "two-sided");
        // Other nodes' writes are not in it: there is nothing to judge.
        let (history, whose) =
            (format!("share-{id}/history.json"), format!("is the share of node {id}, one of {count}:"));
        site.start(&["check", &history]).end(60).must(2, &[&whose, "check the whole"]);
        committed += share["summary"]["committed"].as_u64().expect("a number");
    }
    let all = result["committed"].as_u64().expect("a number");
    site.start(&["check", "h.json"]).end(60).must(0, &[]);
    if committed > 0 && all > committed { Ok(()) } else { Err((all, committed)) }
}

/// A member runs the plan that node 0 chose, whatever would be usual.
#[test]
fn a_page_of_a_share_names_the_plan_that_ran() {
    let site = Site::new(2);
    let node = site.node(1, &[]);
    site.drive(&["--duration", "100ms"]).end(60).must(0, &[]);
    node.end(20).must(0, &[]);
    site.start(&["report", "share-1"]).end(120).must(0, &[]);
    let page = std::fs::read_to_string(site.path("share-1/report.html")).expect("a page");
    let said = |words: &str| page.lines().find(|line| line.contains(words)).map(str::to_owned);
    assert!(said("two-sided").is_some() && said("usual").is_none(), "{:?}", said("usual"));
    assert_eq!(site.share("share-1")["summary"]["spec"]["plan"], "two-sided");
}

#[test]
fn a_killed_node_ends_the_run_and_the_others_keep_their_share() {
    let site = Site::new(3);
    let (mut one, mut two) = (site.node(1, &[]), site.node(2, &[]));
    let driver = site.drive(&["--duration", "600s", "--replicas", "2"]);
    site.running(&mut one);
    site.running(&mut two);
    // Half a second of CPU time, most of it in the run: workers poll.
    two.has_worked(50);
    let killed = Instant::now();
    two.send(Signal::KILL);
    let ended = driver.end(60).must(1, &["node 2 was lost", "node 0: its share of the results is in"]);
    assert_eq!(ended.out, "", "no whole result");
    let says = ["node 2 was lost", "node 1: its share", "what this node measured until then is in share-1"];
    one.end(60).must(1, &says);
    assert!(killed.elapsed() < Duration::from_secs(120), "{:?}", killed.elapsed());
    let share = site.share("share-1");
    assert!(share["notes"].to_string().contains("cut short: node 2 was lost"), "{share:#}");
    assert!(share["summary"]["committed"].as_u64().is_some());
    assert!(site.path("share-1/history.json").exists());
    let kept = std::fs::read_dir(site.path("doorbell-out")).expect("node 0 kept its share").count();
    assert_eq!(kept, 1);
}

/// What a run has left of which node `interrupted` of three was sent `signal`.
fn interrupted_at(interrupted: u16, signal: Signal) {
    let site = Site::new(3);
    let (mut one, mut two) = (site.node(1, &[]), site.node(2, &[]));
    let mut zero = site.drive(&["--duration", "600s", "--replicas", "2", "--out", "whole"]);
    site.running(&mut zero);
    site.running(&mut one);
    site.running(&mut two);
    let nodes = [zero, one, two];
    nodes.iter().for_each(|node| node.has_worked(50));
    nodes[usize::from(interrupted)].send(signal);
    if signal == Signal::TERM {
        // As `timeout` does: to the process, and to its group.
        std::thread::sleep(Duration::from_millis(20));
        nodes[usize::from(interrupted)].send(signal);
    }
    let shares = ["whole/node-0", "share-1", "share-2"];
    let words = format!("node {interrupted} was interrupted, which ended the run on all nodes");
    for ((id, node), share) in (0..).zip(nodes).zip(shares) {
        // Of ten minutes.
        let ended = node.end(60);
        let kept = format!("node {id}: its share of the results is in {share}");
        match id == interrupted {
            true => ended.must(
                130,
                &[&kept, &format!("interrupted\n  hint: what this node measured until then is in {share}")],
            ),
            false => ended.must(1, &[&kept, &words, "Ctrl-C"]),
        };
        let kept = site.share(share);
        assert!(kept["notes"].to_string().contains(&format!("cut short: {words}")), "{kept:#}");
        assert!(kept["summary"]["committed"].as_u64().is_some(), "{kept:#}");
        assert!(site.path(share).join("history.json").exists());
    }
    assert_eq!(site.share("whole")["complete"], false, "there is no whole");
    assert!(!site.path("doorbell-out").exists(), "--out has it all");
}

#[test]
fn an_interrupted_driver_ends_the_run_and_all_keep_their_share() {
    interrupted_at(0, Signal::INT);
}

#[test]
fn a_driver_whose_terminal_is_lost_ends_the_run_as_by_ctrl_c() {
    // Under `nohup` the signal is ignored, here and by whoever is started from here: it is what one asks `nohup` for.
    let status = std::fs::read_to_string("/proc/self/status").expect("the process's status");
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).expect("a mask").trim();
    if u64::from_str_radix(ignored, 16).expect("a mask") & 1 == 1 {
        println!("SKIPPED: run under nohup, a lost terminal is nobody's matter");
        return;
    }
    interrupted_at(0, Signal::HUP);
}

#[test]
fn a_member_that_is_told_to_end_does_as_by_ctrl_c() {
    interrupted_at(1, Signal::TERM);
}

#[test]
fn an_interrupted_member_ends_the_run_and_all_keep_their_share() {
    interrupted_at(2, Signal::INT);
}

#[test]
fn a_silent_node_is_lost_after_the_stated_time() {
    let site = Site::new(2);
    let mut one = site.node(1, &[]);
    let driver = site.drive(&["--duration", "60s"]);
    site.running(&mut one);
    one.send(Signal::STOP);
    let stopped = Instant::now();
    let ended = driver.end(20).must(1, &["node 1 was lost: silent for "]);
    // The limit is 5 s; a machine that stalls may say a little more.
    let said = ended.talk.split("silent for ").nth(1).and_then(|rest| rest.split(' ').next());
    let seconds = said.and_then(|seconds| seconds.parse::<f64>().ok()).expect("a number of seconds");
    assert!((5.0..20.0).contains(&seconds), "{}", ended.talk);
    assert!(stopped.elapsed() > Duration::from_secs(4));
    one.send(Signal::CONT);
    one.end(15).must(1, &["node 0 was lost"]);
}

#[test]
fn node_0_gone_ends_its_members() {
    let site = Site::new(2);
    let mut one = site.node(1, &[]);
    let driver = site.drive(&["--duration", "60s"]);
    site.running(&mut one);
    one.has_worked(50);
    driver.send(Signal::KILL);
    one.end(15).must(1, &["node 0 was lost", "node 1: its share of the results is in share-1"]);
}

#[test]
fn another_key_joins_nothing() {
    let site = Site::new(2);
    let driver = site.drive(&["--duration", "100ms", "--join-within", "6s"]);
    drop(site.listening());
    let other = std::fs::read_to_string(site.file()).expect("there").replace("cluster.key", "other.key");
    std::fs::write(site.path("other.yaml"), other).expect("written");
    site.key(&site.path("other.key"), "another key of sixteen bytes and more");
    let wrong = site.start(&["node", "--cluster", "other.yaml", "--id", "1"]);
    wrong.end(20).must(2, &["the keys differ", "compare the key files of both hosts"]);
    driver
        .end(20)
        .must(2, &["node 1 (127.0.0.1)", "turned away", "another key", "compare the key files of all hosts"]);
    std::fs::set_permissions(site.path("other.key"), std::fs::Permissions::from_mode(0o644)).expect("ours");
    let open = site.start(&["node", "--cluster", "other.yaml", "--id", "1"]);
    open.end(10).must(2, &["mode 644", "chmod 600"]);
}

#[test]
fn what_differs_in_another_cluster_file_is_named_with_the_same_hint_at_both_ends() {
    for (line, differs) in [
        ("tcp_port: 7500", "`tcp_port` is 7500 at node 1 and not given at node 0"),
        ("lost_after_s: 30", "`lost_after_s` is 30 at node 1 and not given at node 0"),
    ] {
        let site = Site::new(2);
        let driver = site.drive(&["--duration", "100ms"]);
        let other = std::fs::read_to_string(site.file()).expect("there") + line + "\n";
        std::fs::write(site.path("other.yaml"), other).expect("written");
        let says = format!("the cluster files of node 1 and node 0 differ: {differs}\n");
        let says = [&says, "the same cluster file on all hosts"];
        site.start(&["node", "--cluster", "other.yaml", "--id", "1"]).end(30).must(2, &says);
        driver.end(30).must(2, &says);
    }
}

/// What the machine lacks is no mistake in flags or files.
#[test]
fn ports_that_others_have_are_the_machines_matter_and_say_who_may_have_them() {
    let site = Site::new(2);
    let held = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = held.local_addr().expect("bound").port();
    let fixed = std::fs::read_to_string(site.file()).expect("there") + &format!("tcp_port: {port}\n");
    std::fs::write(site.file(), fixed).expect("written");
    let node = site.node(1, &[]);
    let driver = site.drive(&["--duration", "100ms"]);
    let taken = format!("node 1 cannot listen on 127.0.0.1:{port}: Address already in use");
    let says = ["the run cannot be set up", &taken, "another node on this machine", "an address of its own"];
    let ended = node.end(30).must(3, &says);
    assert!(!ended.talk.contains("the cluster:"), "{}", ended.talk);
    driver.end(30).must(3, &["node 1 gave up"]);
    let site = Site::new(2);
    let held = TcpListener::bind(&site.address).expect("the port is free");
    let says = [
        "node 0 cannot listen on",
        "Address already in use",
        "another program or a stray doorbell",
        "ss -ltnp",
    ];
    site.drive(&[]).end(15).must(3, &says);
    // Who holds it says nothing: that is not waited for longer than was said, and no mistake here either.
    let silent = site.node(1, &["--join-within", "1s"]).end(15);
    silent.must(3, &["something listens at", "has said nothing for", "another program listens there"]);
    drop(held);
}

#[test]
fn who_had_joined_is_told_that_another_did_not_come() {
    let site = Site::new(3);
    let mut one = site.node(1, &[]);
    let driver = site.drive(&["--join-within", "6s"]);
    site.said(&mut one, "node 1: joined");
    driver.end(30).must(3, &["not joined within 6 s: node 2 (127.0.0.1)"]);
    let ended = one.end(10).must(3, &["node 0 has begun nothing: not joined within 6 s: node 2 (127.0.0.1)"]);
    assert!(!ended.talk.contains("share") && !site.path("share-1").exists(), "{}", ended.talk);
}

/// Killed, told to end, and without a sign of life, as a host that lost its power.
#[test]
fn a_node_that_is_gone_before_all_have_come_is_named_and_may_be_started_again() {
    let site = Site::new(3);
    let mut driver = site.drive(&["--duration", "100ms"]);
    for (signal, why) in [
        (Signal::KILL, "the connection "),
        (Signal::TERM, "it gave up: interrupted"),
        (Signal::STOP, "silent for 5 s"),
    ] {
        let mut one = site.node(1, &[]);
        site.said(&mut one, "node 1: joined");
        one.send(signal);
        site.said(&mut driver, &format!("node 1 has left ({why}"));
        site.said(&mut driver, "and is waited for again");
        match signal {
            Signal::TERM => drop(one.end(20).must(130, &["interrupted"])),
            _ => drop(one),
        }
    }
    let nodes = [site.node(1, &[]), site.node(2, &[])];
    let ended = driver.end(60).must(0, &[]);
    assert!(!ended.talk.contains("turned away"), "{}", ended.talk);
    nodes.into_iter().for_each(|node| drop(node.end(20).must(0, &["joined", "told node 0"])));
}

#[test]
fn all_who_are_not_there_are_named_also_who_had_come_and_gone() {
    let site = Site::new(3);
    let driver = site.drive(&["--join-within", "6s"]);
    let mut one = site.node(1, &[]);
    site.said(&mut one, "node 1: joined");
    one.send(Signal::INT);
    one.end(20).must(130, &["interrupted"]);
    let named = "not joined within 6 s: node 1 (127.0.0.1, had joined and left: it gave up: interrupted), node 2 (127.0.0.1)";
    driver.end(30).must(3, &[named]);
}

#[test]
fn node_0_interrupted_while_it_waits_ends_at_once_and_its_members_with_it() {
    let site = Site::new(3);
    let mut driver = site.drive(&[]);
    let mut one = site.node(1, &[]);
    site.said(&mut driver, "waiting at");
    site.said(&mut one, "node 1: joined");
    driver.send(Signal::INT);
    let ended = driver.end(10).must(130, &["stopping; nothing has been measured yet", "interrupted"]);
    assert_eq!(ended.out, "");
    one.end(10).must(1, &["node 0 has begun nothing: interrupted while the cluster was set up"]);
}

#[test]
fn another_program_at_node_0s_address_is_not_taken_for_another_key() {
    let site = Site::new(2);
    let listener = std::net::TcpListener::bind(&site.address).expect("the port is free");
    let node = site.node(1, &[]);
    let (mut stream, _) = listener.accept().expect("it calls");
    stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").expect("it listens");
    let ended = node.end(10).must(3, &["does not speak doorbell's rendezvous", "another program listens"]);
    assert!(!ended.talk.contains("key"), "{}", ended.talk);
}

#[test]
fn garbage_and_slow_callers_keep_nobody_out() {
    let site = Site::new(2);
    let driver = site.drive(&["--duration", "100ms"]);
    let mut held = vec![site.listening()];
    for n in 0..100u8 {
        let mut caller = TcpStream::connect(&site.address).expect("it listens");
        let bytes: Vec<u8> = (0..200).map(|i: u8| i.wrapping_mul(n).wrapping_add(7)).collect();
        // Some say garbage, some stop in the middle of the right words, some say nothing.
        let _ = match n % 3 {
            0 => caller.write_all(&bytes),
            1 => caller.write_all(&b"DBELMESH\x01\x00\x00\x00"[..usize::from(n) % 12]),
            _ => Ok(()),
        };
        held.push(caller);
    }
    // And while it joins: more than may wait at a time, again and again.
    let joined = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut crowd = std::collections::VecDeque::new();
            while !joined.load(Ordering::Relaxed) {
                crowd.extend(TcpStream::connect(&site.address));
                if crowd.len() > 300 {
                    crowd.pop_front();
                }
            }
        });
        let mut node = site.node(1, &[]);
        let said =
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| site.said(&mut node, "node 1: joined")));
        joined.store(true, Ordering::Relaxed);
        said.expect("it joins");
        driver.end(60).must(0, &[]);
        node.end(20).must(0, &[]);
    });
    drop(held);
}

#[test]
fn members_are_told_that_the_whole_run_failed_at_node_0() {
    let site = Site::new(2);
    let node = site.node(1, &[]);
    // The whole is there, and cannot be kept: this device is always full.
    let driver = site.drive(&["--duration", "300ms", "--history", "/dev/full"]);
    driver.end(60).must(3, &["the history cannot be written to /dev/full"]);
    node.end(20).must(3, &["told node 0", "node 0 gave up: the history cannot be written"]);
}

/// This process is node 0 here, of the same build, and asks for what its member cannot read.
#[test]
fn a_member_that_cannot_read_what_it_is_asked_for_says_so_at_both_ends() {
    let context = Context::new(&Cli { verbose: 0, quiet: true, command: None::<Command> });
    for (bytes, why) in [
        (&b"{\"run\": tr"[..], "asked for something that this doorbell does not know"),
        (&b"{\"point\": {}}"[..], "does not know"),
        (&b"{}"[..], "described a run that this doorbell does not know"),
    ] {
        let site = Site::new(2);
        let node = site.node(1, &[]);
        let cluster = Cluster::read(&site.file(), Span::from_ns(60_000_000_000)).expect("a cluster");
        let mut session = cluster.drive(&context).expect("node 1 joins");
        session.begin(bytes).expect("it is sent");
        let started = Instant::now();
        let told = loop {
            match session.look() {
                Ok(_) => assert!(started.elapsed() < Duration::from_secs(20), "node 0 was not told"),
                Err(error) => break error,
            }
            std::thread::sleep(Duration::from_millis(10));
        };
        assert!(told.to_string().contains("node 1"), "{told}");
        node.end(20).must(3, &[why]);
        assert!(!site.path("share-1").exists(), "nothing ran");
    }
}

#[test]
fn a_node_that_is_started_twice_is_refused_and_the_run_goes_on() {
    let site = Site::new(3);
    let driver = site.drive(&["--duration", "100ms"]);
    drop(site.listening());
    let mut first = site.node(1, &[]);
    site.said(&mut first, "node 1: joined");
    let twin = site.start(&["node", "--cluster", "cluster.yaml", "--id", "1", "--out", "twin"]);
    twin.end(20).must(2, &["node 1 has joined already", "two processes have the same --id"]);
    let third = site.node(2, &[]);
    driver.end(60).must(0, &["turned away"]);
    first.end(20).must(0, &[]);
    third.end(20).must(0, &[]);
}

/// On a file system that the hosts share, each has found it free.
#[test]
fn nodes_that_were_given_the_same_directory_all_keep_their_share() {
    let site = Site::new(3);
    let node = |id| site.start(&["node", "--cluster", "cluster.yaml", "--id", id, "--out", "share"]);
    let nodes = [node("1"), node("2")];
    site.drive(&["--duration", "100ms"]).end(60).must(0, &[]);
    let talk: String =
        nodes.map(|node| node.end(20).must(0, &["attempts aborted here; told node 0"]).talk).concat();
    assert_eq!(
        talk.matches("share was taken meanwhile: give each node an --out of its own").count(),
        1,
        "{talk}"
    );
    let beside = ["share-node-1", "share-node-2"].into_iter().find(|name| site.path(name).exists());
    let shares = ["share", beside.expect("the other's")].map(|name| site.share(name)["spec"]["node"].clone());
    assert!(shares[0] != shares[1] && shares.iter().all(|node| node == 1 || node == 2), "{shares:?}");
}

#[test]
fn who_comes_while_the_run_goes_on_is_told_and_disturbs_nobody() {
    let site = Site::new(2);
    let mut first = site.node(1, &[]);
    let driver = site.drive(&["--duration", "600s"]);
    site.running(&mut first);
    // Half a second of CPU time, most of it in the run: workers poll.
    [&driver, &first].iter().for_each(|node| node.has_worked(50));
    let twin = site.start(&["node", "--cluster", "cluster.yaml", "--id", "1", "--out", "twin"]);
    let twin = twin.end(20).must(2, &["node 1 has joined already, from 127.0.0.1", "the run has begun"]);
    assert!(!site.path("twin").exists(), "{}", twin.talk);
    driver.send(Signal::INT);
    driver.end(60).must(130, &["node 0: its share of the results is in"]);
    first.end(20).must(1, &["node 0 was interrupted"]);
}

#[test]
fn what_cannot_be_is_said_at_once() {
    let site = Site::new(2);
    site.start(&["node", "--cluster", "cluster.yaml", "--id", "1", "--join-within", "1s"])
        .end(15)
        .must(3, &["cannot reach node 0 at", "firewall"]);
    site.drive(&["--join-within", "1s"]).end(15).must(3, &["not joined within 1 s: node 1 (127.0.0.1)"]);
    // Before it joins: what is measured could not be kept.
    std::fs::create_dir(site.path("share-1")).expect("new");
    std::fs::write(site.path("share-1/run.json"), "{}").expect("written");
    site.node(1, &[]).end(15).must(2, &["share-1 is not empty", "a directory that is new"]);
    let below_a_file = ["node", "--cluster", "cluster.yaml", "--id", "1", "--out", "cluster.yaml/share"];
    site.start(&below_a_file).end(15).must(2, &["cannot create a file in cluster.yaml/share"]);
    // Where nobody can write, not even root.
    let unwritable = ["node", "--cluster", "cluster.yaml", "--id", "1", "--out", "/proc/share"];
    site.start(&unwritable).end(15).must(2, &["cannot create a file in /proc/share"]);
    let plan =
        ["run", "--fabric", "tcp", "--cluster", "cluster.yaml", "--replicas", "1", "--plan", "one-sided"];
    site.start(&plan).end(15).must(2, &["cannot run here", "one-sided", "tcp"]);
    // Three is what is usual: it contradicts the file all the same.
    for nodes in ["3", "5"] {
        let says = format!("--nodes {nodes}, and the cluster file names 2");
        site.drive(&["--nodes", nodes]).end(15).must(2, &[&says]);
    }
    // Three copies are usual, and how many nodes there are is the file's to say.
    let usual = site.start(&["run", "--fabric", "tcp", "--cluster", "cluster.yaml"]).end(15);
    let usual = usual.must(2, &["need 3 nodes, there are 2", "hint: say --replicas 2\n"]);
    assert!(!usual.talk.contains("--nodes"), "{}", usual.talk);
    site.drive(&["--nodes", "2", "--join-within", "1s"]).end(15).must(3, &["not joined within 1 s"]);
    let devices =
        std::fs::read_to_string(site.file()).expect("there").replace("id: 0,", "id: 0, device: no_such,");
    std::fs::write(site.path("devices.yaml"), devices).expect("written");
    site.start(&["run", "--fabric", "verbs:other", "--cluster", "devices.yaml", "--replicas", "1"])
        .end(15)
        .must(3, &["verbs:no_such does not work here"]);
    site.start(&["node", "--cluster", "cluster.yaml", "--id", "0"])
        .end(15)
        .must(2, &["doorbell run --cluster"]);
    site.start(&["node", "--cluster", "cluster.yaml", "--id", "7"]).end(15).must(2, &["nodes 0 to 1, not 7"]);
    site.start(&["run", "--cluster", "cluster.yaml", "--replicas", "1"])
        .end(15)
        .must(2, &["loopback", "--fabric tcp"]);
    site.start(&["run", "--fabric", "tcp", "--cluster", "nothing.yaml"]).end(15).must(2, &["nothing.yaml"]);
    let bad = |text: &str, says: &str| {
        std::fs::write(site.path("bad.yaml"), text).expect("written");
        site.start(&["node", "--cluster", "bad.yaml", "--id", "1"]).end(15).must(2, &[says]);
    };
    bad("key: k\nnodes:\n  - {id: 0, address: 'a:1'}\n  - {id: 0, address: b}\n", "two nodes have id 0");
    bad("key: k\nnods: []\n", "did you mean `nodes`?");
    bad(
        "key: k\nnodes:\n  - {id: 0, address: 'a:1'}\n  - {id: 2, address: b}\n",
        "none has id 1, and one has id 2",
    );
    bad(
        "key: k\nnodes:\n  - {id: 0, address: 'a:1'}\n  - {id: 1, address: b}\ntcp_port: -4\n",
        "bad.yaml:5:11: tcp_port: a whole number from 0 to 65535 belongs here",
    );
    // As Debian has it of a host's own name.
    let own =
        "key: cluster.key\nnodes:\n  - {id: 0, address: '127.0.1.1:7471'}\n  - {id: 1, address: 10.0.0.2}\n";
    bad(
        own,
        "node 0 has the address `127.0.1.1:7471`, which is 127.0.1.1 here: no other host reaches it there",
    );
    let says = ["no other host reaches it there", "write the host's IP address", "/etc/hosts"];
    site.start(&["run", "--fabric", "tcp", "--cluster", "bad.yaml", "--replicas", "1"])
        .end(15)
        .must(2, &says);
    bad(
        "key: no.key\nnodes:\n  - {id: 0, address: 'a:1'}\n  - {id: 1, address: b}\n",
        "no.key cannot be read",
    );
    let unknown =
        "key: cluster.key\nnodes:\n  - {id: 0, address: 'no.such.host.invalid:1'}\n  - {id: 1, address: b}\n";
    bad(unknown, "cannot be resolved");
}

#[test]
fn a_characterization_over_processes_measures_calls_and_ends_when_a_node_is_lost() {
    let site = Site::new(2);
    let characterize = |more: &[&str]| {
        let usual =
            ["characterize", "--fabric", "tcp", "--cluster", "cluster.yaml", "--quick", "--out", "char"];
        site.start(&[&usual[..], more].concat())
    };
    let node = site.node(1, &[]);
    let few = ["--bench", "latency", "--bench", "payload", "--duration", "60ms", "--json", "-"];
    let ended = characterize(&few).end(60).must(0, &["waiting at"]);
    node.end(20).must(0, &["node 1: measuring point", "(latency)"]);
    let record = json(&ended);
    assert!(record["notes"].to_string().contains("a process of its own"), "{record:#}");
    let rows = std::fs::read_to_string(site.path("char/points.csv")).expect("points");
    let mut rows = rows.lines().map(|row| row.split(',').collect::<Vec<_>>());
    let head = rows.next().expect("a head");
    let column = |name: &str| head.iter().position(|c| *c == name).expect("a column");
    let (verb, rate, ops) = (column("verb"), column("rate_per_s"), column("ops"));
    let rows: Vec<_> = rows.collect();
    assert!(rows.len() >= 3, "{rows:?}");
    // Points of a window in which nothing ended are measured again, longer.
    for row in &rows {
        assert_eq!(row[verb], "rpc", "{row:?}");
        assert!(row[rate].parse::<f64>().is_ok_and(|r| r > 0.0) && row[ops] != "0", "{row:?}");
    }
    // The same again, longer: a node that dies ends it, named, and what was measured before is kept.
    std::fs::remove_dir_all(site.path("char")).expect("there");
    let mut node = site.node(1, &[]);
    let driver = characterize(&["--duration", "1s"]);
    site.said(&mut node, "measuring point");
    site.said(&mut node, "measuring point");
    node.send(Signal::KILL);
    let ended = driver.end(20).must(1, &["node 1 was lost", "and no other can be measured", "go on with: "]);
    assert!(!ended.talk.contains("the others go on"), "{}", ended.talk);
    assert_eq!(ended.talk.matches("and no other can be measured").count(), 1, "{}", ended.talk);
    let rows = std::fs::read_to_string(site.path("char/points.csv")).expect("points");
    assert_eq!((rows.lines().count(), &site.share("char")["complete"]), (2, &Value::Bool(false)), "{rows}");
    node.end(5);
    for command in [&["tune"][..], &["study", "logging"]] {
        let refused = site.start(&[command, &["--cluster", "cluster.yaml"]].concat()).end(10);
        refused.must(2, &["in one process", "--cluster goes with `run`, `characterize` and `experiment`"]);
    }
}
