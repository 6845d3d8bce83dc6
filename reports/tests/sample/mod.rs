//! Made-up result directories, for tests and for looking at the page. Every title says "sample data"; the shapes of
//! the curves are invented so that a figure has something to show, and no number in here was measured.

#![allow(dead_code, reason = "each test uses a part")]

use serde_json::{Value, json};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// Which fabric a sample pretends to come from.
#[derive(Clone, Copy)]
pub struct Fabric {
    pub name: &'static str,
    pub simulated: bool,
    /// Nanoseconds of one round trip, and requests per second of one thread.
    pub base_ns: f64,
    pub base_rate: f64,
}

pub const SIM: Fabric = Fabric { name: "sim:cx4-edr", simulated: true, base_ns: 1_850.0, base_rate: 540e3 };
pub const LOOPBACK: Fabric = Fabric { name: "loopback", simulated: false, base_ns: 95.0, base_rate: 9.6e6 };

pub fn record(kind: &str, fabric: Fabric, points: usize) -> Value {
    json!({
        "schema": 1, "kind": kind, "title": format!("Sample data: {kind} on {}", fabric.name), "question": null,
        "command": format!("doorbell {kind} --fabric {} --seed 42", fabric.name), "spec": {}, "seed": 42,
        "commit": "0123456789abcdef", "version": "0.1.0", "fabric": fabric.name,
        "provenance": if fabric.simulated { "simulated" } else { "measured" },
        "machine": {"cpu": "Sample CPU", "cores": 2, "memory_gib": 23.0, "kernel": "6.18", "os": "Debian 12"},
        "profile": if fabric.simulated {
            json!({"name": "cx4-edr", "hash": "5a5a5a5a5a5a", "sources": {"measured": 0, "published": 21, "recalled": 4, "assumed": 9}})
        } else { Value::Null },
        "started_unix_s": 1_795_201_440u64, "points_expected": points, "points_done": points, "complete": true,
        "interrupted": false, "notes": [], "summary": {}
    })
}

pub fn write_dir(root: &Path, name: &str, record: &Value, files: &[(&str, &str)]) -> PathBuf {
    let dir = root.join(name);
    std::fs::create_dir_all(&dir).expect("a directory");
    std::fs::write(dir.join("run.json"), record.to_string()).expect("run.json");
    for (file, text) in files {
        std::fs::write(dir.join(file), text).expect("a file");
    }
    dir
}

pub const CHARACTERIZE: &str = "point,bench,verb,payload_bytes,threads,coroutines,outstanding,doorbell_batch,signal_period,queue_pairs,optimizations,ops,rate_per_s,latency_min_ns,latency_p50_ns,latency_p90_ns,latency_p99_ns,latency_p999_ns,doorbells_per_op,instructions_per_op";

/// A characterization with every bench.
pub fn characterize(root: &Path, name: &str, fabric: Fabric) -> PathBuf {
    let mut csv = CHARACTERIZE.to_owned() + "\n";
    let mut point = 0;
    let weight = |verb: &str| match verb {
        "read" => 1.0,
        "write" => 0.93,
        "cas" => 1.06,
        "fetch-add" => 1.07,
        _ => 1.68,
    };
    let mut push = |bench: &str,
                    verb: &str,
                    knobs: [u64; 6],
                    optimizations: &str,
                    rate: f64,
                    ns: f64,
                    doorbells: f64| {
        let [payload, coroutines, outstanding, batch, period, pairs] = knobs;
        let _ = writeln!(
            csv,
            "{point},{bench},{verb},{payload},1,{coroutines},{outstanding},{batch},{period},{pairs},{optimizations},100000,{rate:.1},{:.0},{ns:.0},{:.0},{:.0},{:.0},{doorbells:.3},",
            ns * 0.9,
            ns * 1.2,
            ns * 1.9,
            ns * 4.0
        );
        point += 1;
    };
    for (bench, gain) in [("latency", 1.0), ("payload", 6.5)] {
        for verb in ["read", "write", "cas", "fetch-add", "rpc"] {
            for payload in [8u64, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096] {
                if matches!(verb, "cas" | "fetch-add") && payload > 8 {
                    continue;
                }
                let growth =
                    1.0 + payload as f64 / 5200.0 + if verb == "rpc" { payload as f64 / 9000.0 } else { 0.0 };
                let ns = fabric.base_ns * weight(verb) * growth;
                let rate = fabric.base_rate * gain / weight(verb) / growth;
                push(bench, verb, [payload, 1, 1, 1, 1, 1], "", rate, ns, 1.0);
            }
        }
    }
    for (bench, knob, values, ceiling) in [
        ("coroutines", 1, &[1u64, 2, 4, 8, 16, 32][..], 9.0),
        ("outstanding", 2, &[1, 2, 4, 8, 16][..], 7.0),
        ("doorbell", 3, &[1, 2, 4, 8, 16][..], 2.2),
        ("signal", 4, &[1, 4, 16, 64][..], 1.35),
        ("queue-pairs", 5, &[1, 16, 64, 256, 1024][..], 0.62),
        ("threads", 0, &[1, 2, 4, 8][..], 4.6),
    ] {
        for verb in ["read", "write", "rpc"] {
            for value in values {
                let top = *values.last().expect("values") as f64;
                let part = (*value as f64).ln() / top.ln();
                let bend = if verb == "rpc" { part.powf(1.4) } else { part.powf(0.8) };
                let rate = fabric.base_rate / weight(verb) * (1.0 + (ceiling - 1.0) * bend);
                let mut knobs = [64, 8, 4, 1, 1, 1];
                let mut threads = 1;
                if knob == 0 {
                    threads = *value
                } else {
                    knobs[knob] = *value
                }
                let before = csv_len(&rate, fabric);
                push(bench, verb, knobs, "", rate, before * weight(verb), 1.0 / knobs[3] as f64);
                let _ = threads;
            }
        }
    }
    for (bench, one, two) in [
        ("ladder-read", [0.21, 1.3, 2.6, 3.4, 3.4], [0.13, 1.0, 1.7, 2.3, 2.3]),
        ("ladder-write", [0.2, 1.2, 2.2, 2.6, 3.9], [0.14, 1.1, 1.8, 2.5, 3.6]),
    ] {
        for (verb, rates) in [("one-sided", one), ("two-sided", two)] {
            for (step, rate) in
                ["base", "+coroutines", "+outstanding", "+doorbell", "+passive-ack"].iter().zip(rates)
            {
                if bench == "ladder-read" && *step == "+passive-ack" {
                    continue;
                }
                push(
                    bench,
                    verb,
                    [64, 8, 4, 4, 16, 8],
                    step,
                    rate * fabric.base_rate,
                    fabric.base_ns * 2.0,
                    0.5,
                );
            }
        }
    }
    // The threads bench sweeps a column that `push` fixes: rewrite it from the rate's order.
    let csv = sweep_threads(&csv);
    let points = csv.lines().count() - 1;
    write_dir(root, name, &record("characterize", fabric, points), &[("points.csv", &csv)])
}

fn csv_len(rate: &f64, fabric: Fabric) -> f64 {
    fabric.base_ns * (1.0 + rate / fabric.base_rate / 9.0)
}

fn sweep_threads(csv: &str) -> String {
    let mut next = [1u64, 2, 4, 8].into_iter().cycle();
    let line = |line: &str| {
        let mut fields: Vec<String> = line.split(',').map(str::to_owned).collect();
        if fields[1] == "threads" {
            fields[4] = next.next().unwrap_or(1).to_string();
        }
        fields.join(",") + "\n"
    };
    csv.lines().map(line).collect()
}

pub const RUN: &str = "point,workload,protocol,plan,nodes,threads,coroutines,replicas,committed,aborted,rolled_back,elapsed_ns,committed_per_s,aborted_per_s,rolled_back_per_s,latency_mean_ns,latency_p50_ns,latency_p90_ns,latency_p99_ns,latency_p999_ns,verbs_per_committed,round_trips_per_committed,doorbells_per_committed,predicted_per_s,predicted_mean_ns,isolation_level,isolation_verdict,checks_failed,events,virtual_ns,preemptions_per_cpu_s,busy";

pub const PHASES: &str =
    "point,phase,latency_p50_ns,latency_p99_ns,verbs,round_trips,doorbells,ns_per_committed";

/// A run of SmallBank under one plan.
pub fn run(root: &Path, plan: &str, fabric: Fabric) -> PathBuf {
    let (speed, trips, verbs) = match plan {
        "one-sided" => (1.0, 4.1, 7.9),
        "two-sided" => (0.86, 3.6, 7.1),
        "drtm-h" => (1.21, 3.2, 6.8),
        _ => (1.27, 3.1, 6.6),
    };
    let rate = speed * if fabric.simulated { 2.05e6 } else { 0.83e6 };
    let ns = 8.0 * fabric.base_ns / speed;
    let csv = format!(
        "{RUN}\n0,smallbank,occ,{plan},4,2,16,3,{:.0},{:.0},{:.0},100000000,{rate:.1},{:.1},{:.1},{:.0},{ns:.0},{:.0},{:.0},{:.0},{verbs},{trips},{:.2},{:.1},{:.0},serializable,ok,0,1000000,100000000,{}\n",
        rate / 10.0,
        rate / 260.0,
        rate / 900.0,
        rate / 26.0,
        rate / 90.0,
        ns * 1.1,
        ns * 1.6,
        ns * 3.1,
        ns * 7.0,
        verbs * 0.6,
        rate * 1.06,
        ns * 1.04,
        if fabric.simulated { "," } else { "340,yes" },
    );
    let mut phases = format!("{PHASES}\n");
    for (phase, part) in
        [("execute", 0.36), ("lock", 0.2), ("validate", 0.13), ("log", 0.17), ("install", 0.14)]
    {
        let _ = writeln!(
            phases,
            "0,{phase},{:.0},{:.0},{:.2},{:.2},{:.2},{:.1}",
            ns * part,
            ns * part * 2.0,
            verbs * part,
            trips * part,
            verbs * part * 0.6,
            ns * part * 1.1
        );
    }
    // Timed once, for longer than all else together.
    let _ = writeln!(phases, "0,unlock,{:.0},{:.0},0.01,0.01,0.01,{:.1}", ns * 3.0, ns * 3.0, ns * 0.002);
    let aborts = format!(
        "point,class,reason,count\n0,conflict,lock held,{:.0}\n0,conflict,version changed,{:.0}\n0,conflict,record missing,{:.0}\n0,application,insufficient-funds,{:.0}\n",
        rate / 260.0 * 0.62,
        rate / 260.0 * 0.33,
        rate / 260.0 * 0.05,
        rate / 900.0
    );
    let name = format!("run-{plan}-{}", if fabric.simulated { "sim" } else { "loopback" });
    let files = [("points.csv", csv.as_str()), ("phases.csv", &phases), ("aborts.csv", &aborts)];
    write_dir(root, &name, &record("run", fabric, 1), &files)
}

/// A tuning of `plans` candidates, the first five of them run when `verify`.
pub fn tune(root: &Path, name: &str, plans: usize, verify: bool) -> PathBuf {
    let mut csv =
        "point,plan,origin,predicted_per_s,predicted_mean_ns,bottleneck,got_per_s,got_mean_ns\n".to_owned();
    for i in 0..plans {
        let said = 2.7e6 * 0.985f64.powi(i as i32);
        let origin = match i {
            2 => "drtm-h",
            17 => "one-sided",
            31 => "two-sided",
            _ => "candidate",
        };
        let side = |bit: usize| if (i >> bit) & 1 == 0 { "one-sided" } else { "two-sided" };
        let plan = format!(
            "{{fetch: {}, lock: {}, validate: {}, log: {}, install: {}, coroutines: {}}}",
            side(0),
            side(1),
            side(2),
            side(3),
            side(4),
            if i < 32 { 16 } else { 8 }
        );
        let limit = if i % 3 == 0 { "NIC requests" } else { "CPU of the coordinator" };
        let got = match verify && (i < 5 || origin != "candidate") {
            true => format!("{:.1},{:.0}", said * (0.93 + 0.02 * ((i * 7) % 5) as f64), 14_000.0),
            false => ",".to_owned(),
        };
        let _ = writeln!(
            csv,
            "{i},\"{plan}\",{origin},{said:.1},{:.0},{limit},{got}",
            12_000.0 + 90.0 * i as f64
        );
    }
    let mut record = record("tune", SIM, plans);
    record["summary"] = json!({"evaluated": 9 * plans});
    write_dir(root, name, &record, &[("points.csv", &csv)])
}

pub const REGRET: &str = "point,fabric,workload,settings,protocol,nodes,threads,coroutines,replicas,cache_bytes,seed,protocols,plans,runs,tuned,best,best_protocol,bottleneck,predicted_per_s,got_per_s,prediction_error,predicted_aborted_share,aborted_share,best_predicted_per_s,best_per_s,regret,regret_error,verified,verified_protocol,verified_per_s,verified_regret,verified_regret_error,events";

/// The columns of points that are given, and of the grid that gives them.
pub const GIVEN: &str = "best_one_sided,best_one_sided_per_s,best_two_sided,best_two_sided_per_s,mixing_gain,mixing_gain_error,axis_fabric,axis_protocol";

/// A search of given points: on one card a mix of primitives gains, on the other, which has no one-sided verbs, there is nothing to mix.
pub fn best_of_all(root: &Path, name: &str) -> PathBuf {
    let mut csv = format!("{REGRET},{GIVEN}\n");
    for (i, (fabric, protocol)) in
        [("cx4-edr", "occ"), ("cx4-edr", "mvcc"), ("tcp-10g", "occ"), ("tcp-10g", "mvcc")]
            .into_iter()
            .enumerate()
    {
        let (best, one, gain) = match i {
            0 => ("mixed", "one-sided,2e6", "0.25,0.01"),
            1 => ("one-sided", "one-sided,2.5e6", "0,0"),
            _ => ("two-sided", ",", "0,0"),
        };
        let _ = writeln!(
            csv,
            "{i},sim:{fabric},smallbank,,{protocol},4,4,10,3,,1,1,160,225,{best},{best},{protocol},latency,2.4e6,2.5e6,-0.04,0.1,0.1,2.4e6,2.5e6,0,0,{best},{protocol},2.5e6,0,0,1000,{one},two-sided,1.5e6,{gain},sim:{fabric},{protocol}",
        );
    }
    let mut record = record("regret", SIM, 4);
    record["fabric"] = json!("sim:cx4-edr,sim:tcp-10g");
    record["profile"] = Value::Null;
    record["question"] = json!("What does mixing gain?");
    record["spec"] =
        json!({ "figures": [{"title": "Tuned", "x": "protocol", "y": "got_per_s", "by": "fabric"}] });
    write_dir(root, name, &record, &[("points.csv", &csv)])
}

/// A sweep of regret: one choice is better than the winner of its race, and the last race has no winner.
pub fn regret(root: &Path, name: &str) -> PathBuf {
    let mut csv = REGRET.to_owned() + "\n";
    let kinds = ["smallbank", "micro", "ycsb", "tpcc-no"];
    for i in 0..40usize {
        let lost = if i == 5 { -0.01 } else { 0.002 * i as f64 };
        let off = if i % 3 == 0 { -0.004 } else { 0.005 } * i as f64;
        let got = 1e6 * (1.0 - lost);
        let _ = writeln!(
            csv,
            "{i},sim:drawn-{i},{},payload_bytes=8,occ,3,1,8,2,4096,{i},1,160,225,one-sided,two-sided,occ,latency,{:.1},{got:.1},{off},0.1,0.1,1e6,1e6,{lost},0.001,two-sided,occ,1e6,0.0,0.0,1000",
            kinds[i % 4],
            got * (1.0 + off)
        );
    }
    csv += "40,sim:cx5,micro,payload_bytes=8,occ,3,1,8,2,4096,40,1,160,1,one-sided,,,latency,10.0,,,0.9,,,,,,,,,,,1000\n";
    let mut record = record("regret", SIM, 41);
    record["fabric"] = json!("sim:shipped,sim:drawn");
    record["profile"] = Value::Null;
    write_dir(root, name, &record, &[("points.csv", &csv)])
}

pub const STUDY: &str = "point,phase,variant,coroutines,payload_bytes,skew,ops,rate_per_s,latency_p50_ns,latency_p90_ns,latency_p99_ns,latency_p999_ns,verbs_per_op,round_trips_per_op,doorbells_per_op";

/// A study of four phases.
pub fn study(root: &Path, name: &str) -> PathBuf {
    let mut csv = STUDY.to_owned() + "\n";
    let mut point = 0;
    for (phase, variants) in [
        (
            "execution",
            &[("one-sided", 1.0, 2.0), ("one-sided, cached", 1.7, 1.0), ("two-sided", 1.1, 1.0)][..],
        ),
        ("validation", &[("one-sided", 1.5, 1.0), ("two-sided", 1.05, 1.0)][..]),
        ("logging", &[("one-sided", 1.6, 1.0), ("two-sided", 0.9, 1.0)][..]),
        (
            "commit",
            &[
                ("one-sided", 1.0, 1.0),
                ("one-sided-passive", 1.5, 0.0),
                ("two-sided", 1.3, 1.0),
                ("two-sided-passive", 1.0, 0.0),
            ][..],
        ),
    ] {
        for (variant, speed, trips) in variants {
            for coroutines in [1u64, 4, 16] {
                let rate = 0.5e6 * speed * (coroutines as f64).sqrt();
                let ns = 2_000.0 / speed * (coroutines as f64).powf(0.3);
                let _ = writeln!(
                    csv,
                    "{point},{phase},\"{variant}\",{coroutines},64,0.0,50000,{rate:.1},{ns:.0},{:.0},{:.0},{:.0},{},{trips},{}",
                    ns * 1.3,
                    ns * 2.1,
                    ns * 5.0,
                    trips + 1.0,
                    f64::max(*trips, 0.5)
                );
                point += 1;
            }
        }
    }
    write_dir(root, name, &record("study", SIM, point), &[("points.csv", &csv)])
}

/// An experiment over skew and plan.
pub fn experiment(root: &Path, name: &str) -> PathBuf {
    let mut csv = format!("{RUN},axis_skew,axis_plan\n");
    let mut point = 0;
    for (plan, speed) in [("one-sided", 1.0), ("two-sided", 0.9), ("drtm-h", 1.2)] {
        for skew in [0.0, 0.4, 0.8, 0.9, 0.99] {
            let rate = 2.0e6 * speed * (1.0 - 0.7 * f64::powi(skew, 4));
            let _ = writeln!(
                csv,
                "{point},smallbank,occ,{plan},4,2,16,3,200000,9000,0,100000000,{rate:.1},{:.1},0,,{:.0},,{:.0},,7,4,5,,,serializable,ok,0,,,,,{skew},{plan}",
                rate * skew * 0.2,
                9e9 / rate * 2.0,
                9e9 / rate * 6.0
            );
            point += 1;
        }
    }
    let mut record = record("experiment", SIM, point);
    record["question"] = json!("Does skew change which primitive should lock? (sample data)");
    write_dir(root, name, &record, &[("points.csv", &csv)])
}

/// Protocols by plans on two workloads, with causes of aborts.
pub fn comparison(root: &Path, name: &str) -> PathBuf {
    let mut csv = format!("{RUN},cpu_ns_per_committed,axis_workload,axis_protocol,axis_plan\n");
    let mut aborts = "point,class,reason,count\n".to_owned();
    let mut point = 0;
    for (workload, factor) in [("smallbank", 1.0), ("ycsb", 0.3)] {
        for (protocol, better) in [("occ", 1.0), ("nowait", 1.1), ("mvcc", 0.8)] {
            for (plan, speed) in [("one-sided", 1.0), ("two-sided", 0.9), ("tuned", 1.2)] {
                let rate = 2.0e6 * speed * factor * better;
                let _ = writeln!(
                    csv,
                    "{point},{workload},{protocol},{plan},4,8,10,3,{rate:.0},{:.0},0,1000000000,{rate:.1},{:.1},0,,{:.0},,{:.0},,7,4,5,,,serializable,pass,0,,,,,{:.0},{workload},{protocol},{plan}",
                    rate * 0.1,
                    rate * 0.1,
                    9e9 / rate * 2.0,
                    9e9 / rate * 6.0,
                    32e9 / rate
                );
                let _ = writeln!(aborts, "{point},conflict,lock-conflict,{:.0}", rate * 0.07);
                let _ = writeln!(aborts, "{point},conflict,read-changed,{:.0}", rate * 0.03);
                let _ = writeln!(aborts, "{point},application,insufficient-funds,{:.0}", rate * 0.5);
                point += 1;
            }
        }
    }
    let mut record = record("experiment", SIM, point);
    record["question"] = json!("Which protocol, and which plan for it? (sample data)");
    write_dir(root, name, &record, &[("points.csv", &csv), ("aborts.csv", &aborts)])
}

/// One of everything, as `doorbell quickstart` leaves it and a little more.
pub fn everything(root: &Path) -> Vec<PathBuf> {
    let mut dirs = vec![
        characterize(root, "characterize-loopback", LOOPBACK),
        characterize(root, "characterize-sim", SIM),
        tune(root, "tune-sim", 64, true),
        study(root, "study-sim"),
        experiment(root, "experiment-skew"),
    ];
    for fabric in [SIM, LOOPBACK] {
        dirs.extend(["one-sided", "two-sided", "drtm-h", "tuned"].map(|plan| run(root, plan, fabric)));
    }
    dirs
}
