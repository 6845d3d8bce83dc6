//! What the `doorbell` binary tells a person who does not know it yet: names, settings, defaults, reasons.

mod common;

use common::{SMALL, refused_without as refused, run, stderr, stdout, told};
use engine::protocol::{AnyProtocol, PROTOCOLS, Protocol};
use std::path::Path;

#[test]
fn a_wrong_name_is_answered_with_the_near_ones_and_with_all() {
    refused(&["run", "--protocol", "mvc"], &["did you mean `mvcc`?", "there are occ, nowait"], &[]);
    refused(&["run", "--workload", "bank"], &["there are smallbank, micro, ycsb"], &["did you mean"]);
    refused(&["run", "--plan", "drtm"], &["did you mean `drtm-r` or `drtm-h`?", "there are one-sided"], &[]);
    refused(&["run", "--fabric", "cx4-edr"], &["did you mean `sim:cx4-edr`?"], &[]);
    refused(&["run", "--fabric", "sim:cx9"], &["there are cx4-edr, "], &["did you mean"]);
    refused(&["run", "--fabric", "sim:cx4"], &["did you mean `cx4-edr`"], &[]);
    let read = ["characterize", "--bench", "read"];
    refused(&read, &["did you mean `ladder-read`?", "there are latency, "], &["`threads`?"]);
    refused(&["characterize", "--bench", "bandwidth"], &["there are latency, "], &["did you mean"]);
    refused(&["characterize", "--bench", "thread"], &["did you mean `threads`?"], &[]);
    for (name, meant) in [
        ("DRH-P2", "`DRH-P02`"),
        ("drtm-osdi18", "`drtmh-osdi18`"),
        ("drtmh-osdi18/fgi5", "`drtmh-osdi18/fig5`"),
        ("four-system-cx4", "`four-systems-cx4`"),
    ] {
        refused(&["reproduce", name], &[&format!("did you mean {meant}?"), "--list"], &[]);
    }
    refused(&["tune", "--protocol", "occ,mvcc,occ"], &["--protocol names occ twice", "name each once"], &[]);
    refused(&["calibrate", "--profile", "cx9"], &["there are cx4-edr, "], &["did you mean"]);
}

#[test]
fn settings_of_a_workload_are_listed_and_their_names_found() {
    for command in ["run", "tune"] {
        let (out, err) = told(&[command, "--workload", "ycsb", "--set", "help"]);
        assert_eq!(err, "");
        for part in
            ["zipf_theta", "0 to 0.9999", "think_us", "µs", "records_per_thread", "15000", "smallbank"]
        {
            assert!(out.contains(part), "no {part}:\n{out}");
        }
    }
    let theta = ["run", "--workload", "ycsb", "--set", "theta=0.9"];
    refused(&theta, &["has no parameter `theta`", "did you mean `zipf_theta`?", "--set help"], &[]);
    let range = ["run", "--workload", "ycsb", "--set", "zipf_theta=2"];
    refused(&range, &["a number from 0 to 0.9999", "--workload ycsb --set help"], &[]);
    refused(&["run", "--set", "balance=1", "--set", "balance=2"], &["--set balance is there twice"], &[]);
}

#[test]
fn without_a_plan_one_is_taken_that_can_run_and_it_is_said() {
    let fixed = ["--duration", "100us", "--no-check"];
    for (protocol, taken) in [("occ", None), ("calvin", Some("was taken")), ("mvcc", Some("was taken"))] {
        let (out, err) = told(&[&["run", "--protocol", protocol], SMALL, &fixed].concat());
        assert!(out.contains("committed"), "{out}");
        match taken {
            None => assert!(out.contains("\ndrtm-h: ") && !err.contains("No plan"), "{err}"),
            Some(words) => {
                assert!(err.contains(words) && err.contains("drtm-h cannot run"), "{protocol}: {err}");
            }
        }
    }
    // A plan that was asked for is not replaced.
    let asked = [&["run", "--protocol", "mvcc", "--plan", "drtm-h"], SMALL, &fixed].concat();
    refused(
        &asked,
        &["plan `drtm-h` cannot run here", "because: ", "hint: the nearest plan"],
        &["this plan cannot"],
    );
}

/// Plans are those that the fabric carries and the profile is of: a profile of TCP has no price for one-sided verbs.
#[test]
fn a_profile_without_one_sided_verbs_has_plans_without_them() {
    let dir = tempfile::tempdir().unwrap();
    for profile in ["tcp-10g-rcc", "ipoib-fdr"] {
        for (number, fabric) in ["loopback", "sim:cx4-edr", "tcp"].into_iter().enumerate() {
            let out = dir.path().join(format!("{profile}-{number}"));
            let asked = ["tune", "--fabric", fabric, "--profile", profile, "--coroutines", "4", "--out"];
            let (printed, talk) = told(&[&asked[..], &[out.to_str().unwrap()], &SMALL[2..]].concat());
            assert!(printed.contains("plan: two-sided"), "{printed}");
            assert!(!printed.contains("one-sided") && !printed.contains("hybrid"), "{fabric}:\n{printed}");
            let says = format!("profile {profile} has no one-sided verbs: only plans without them");
            assert_eq!(talk.contains(&says), fabric != "tcp", "{talk}");
        }
    }
}

/// Its plan has two phases, its epochs are as they were asked for, and the plan file runs.
#[test]
fn calvin_is_tuned_with_the_epochs_that_were_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let rate = |protocol: &str, name: &str| {
        let out = dir.path().join(name);
        let asked = ["tune", "--protocol", protocol, "--coroutines", "4", "--out", out.to_str().unwrap()];
        let (printed, _) = told(&[&asked, SMALL].concat());
        for phase in ["fetch", "lock"] {
            let line = printed.lines().find(|line| line.split_whitespace().next() == Some(phase));
            let line = line.unwrap_or_else(|| panic!("no line for {phase}:\n{printed}"));
            assert!(
                ["% rate", "µs latency", "tie (<1 %)"].iter().any(|words| line.contains(words)),
                "{line}"
            );
        }
        assert!(!printed.lines().any(|line| line.starts_with("install")), "{printed}");
        let plan = out.join("tuned.plan.yaml");
        let run = ["run", "--protocol", protocol, "--plan", plan.to_str().unwrap(), "--duration", "8ms"];
        let (ran, _) = told(&[&run, SMALL].concat());
        assert!(ran.contains("committed"), "{ran}");
        let text = std::fs::read_to_string(plan).unwrap();
        assert!(text.contains(protocol), "{text}");
        let line =
            text.lines().find_map(|line| line.trim().strip_prefix("committed_per_s: ").map(str::to_owned));
        line.and_then(|rate| rate.parse::<f64>().ok()).unwrap_or_else(|| panic!("no rate in {text}"))
    };
    let [usual, slow] = [("calvin", "usual"), ("calvin:batch=4,epoch_us=500", "slow")]
        .map(|(protocol, name)| rate(protocol, name));
    assert!(slow < 0.2 * usual, "{slow} with epochs of 500 us, and {usual}");
}

#[test]
fn all_protocols_to_choose_from_are_shown_and_what_cannot_run_is_left_out() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("all");
    let all =
        ["tune", "--protocol", "all,calvin:batch=1", "--coroutines", "4", "--out", out.to_str().unwrap()];
    let (printed, _) = told(&[&all, SMALL].concat());
    for name in phases::model::MODELLED.iter().chain(&["calvin:batch=1"]) {
        let lines = printed.lines().filter(|line| line.split_whitespace().next() == Some(name)).count();
        assert_eq!(lines, 1, "{name}:\n{printed}");
    }
}

#[test]
fn the_tuner_gives_a_line_for_each_phase_and_more_with_v() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("brief");
    let brief = [
        &["tune", "--nodes", "4", "--threads", "8", "--coroutines", "8", "--out", out.to_str().unwrap()],
        SMALL,
    ]
    .concat();
    let (printed, talk) = told(&brief);
    for phase in ["fetch", "lock", "validate", "log", "install", "unlock"] {
        let lines: Vec<&str> =
            printed.lines().filter(|line| line.split_whitespace().next() == Some(phase)).collect();
        let [line] = lines[..] else { panic!("{} lines for {phase}:\n{printed}", lines.len()) };
        let saves = ["% rate", "µs latency", "tie (<1 %)"].iter().any(|words| line.contains(words));
        assert!(saves && line.contains("-sided") && line.chars().count() < 160, "{line}");
    }
    assert!(
        !printed.contains("against the next in rank") && !talk.contains("against the next in rank"),
        "{printed}"
    );
    let plan = std::fs::read_to_string(out.join("tuned.plan.yaml")).unwrap();
    assert!(plan.contains("lock ") && !plan.contains("next in rank"), "{plan}");
    let out = dir.path().join("long");
    let long = [
        &[
            "tune",
            "-v",
            "--nodes",
            "4",
            "--threads",
            "8",
            "--coroutines",
            "8",
            "--out",
            out.to_str().unwrap(),
        ],
        SMALL,
    ]
    .concat();
    let (again, talk) = told(&long);
    assert!(talk.contains("- against the next in rank") && talk.contains("messages to serve"), "{talk}");
    assert_eq!(again.replace("long", "brief"), printed);
}

#[test]
fn protocols_that_cannot_run_the_workload_are_told_in_a_line() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    let asked = ["tune", "--protocol", "occ,fasst", "--workload", "tpcc-no", "--fabric", "sim:cx4-edr"];
    let (_, err) = told(&[&asked[..], &["--coroutines", "4", "--out", out.to_str().unwrap()]].concat());
    let said: Vec<&str> = err.lines().filter(|line| line.contains("left out")).collect();
    assert!(said.len() == 1 && said[0].contains("left out: ") && said[0].contains("fasst"), "{err}");
}

#[test]
fn phases_that_were_not_timed_say_why() {
    let short = [&["run", "--coroutines", "1", "--duration", "5us", "--no-check"], SMALL].concat();
    let (out, _) = told(&short);
    assert!(out.contains("of the 1 attempt in 16 that is timed"), "{out}");
    assert!(!out.contains("not timed") || out.contains("a longer --duration times more"), "{out}");
    let (out, _) = told(&[&["run", "--duration", "500us", "--no-check"], SMALL].concat());
    assert!(!out.contains("not timed"), "{out}");
}

#[test]
fn a_part_of_a_characterization_claims_no_rates_it_did_not_measure() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("latency");
    let asked = ["characterize", "--fabric", "sim:cx4-edr", "--quick", "--bench", "latency", "--out"];
    let (printed, _) = told(&[&asked[..], &[out.to_str().unwrap()]].concat());
    assert!(printed.contains("best rates need load") && !printed.contains("/s\n"), "{printed}");
    let record = std::fs::read_to_string(out.join("run.json")).unwrap();
    let record: serde_json::Value = serde_json::from_str(&record).unwrap();
    assert!(record["summary"]["verbs"][0]["best_rate_per_s"].is_null(), "{record}");
    let out = dir.path().join("threads");
    let asked = ["characterize", "--fabric", "sim:cx4-edr", "--quick", "--bench", "threads", "--out"];
    let (printed, _) = told(&[&asked[..], &[out.to_str().unwrap()]].concat());
    assert!(printed.contains("best rate, 4 nodes") && printed.contains("a machine"), "{printed}");
    assert!(printed.contains("--bench latency measures it"), "{printed}");
    let record = std::fs::read_to_string(out.join("run.json")).unwrap();
    let record: serde_json::Value = serde_json::from_str(&record).unwrap();
    let verb = &record["summary"]["verbs"][0];
    let (all, one) =
        (verb["best_rate_per_s"].as_f64().unwrap(), verb["best_rate_per_machine_per_s"].as_f64().unwrap());
    assert!((all / one - 4.0).abs() < 1e-9, "{verb}");
}

#[test]
fn tables_of_experiments_are_rounded_for_people() {
    let dir = tempfile::tempdir().unwrap();
    let (file, out) = (dir.path().join("why.yaml"), dir.path().join("out"));
    let text = "question: why\nfabric: sim:cx4-edr\nset: {accounts_per_thread: 200}\nduration: 100us\n\
                grid: {plan: [one-sided, two-sided]}\n";
    std::fs::write(&file, text).unwrap();
    let (printed, _) = told(&["experiment", file.to_str().unwrap(), "--out", out.to_str().unwrap()]);
    let row = printed.lines().find(|line| line.contains("two-sided")).unwrap();
    assert!(row.contains(" k/s") || row.contains(" M/s"), "{row}");
    let longest = row.split_whitespace().map(str::len).max().unwrap();
    assert!(longest < 12, "{row}");
    let points = std::fs::read_to_string(out.join("points.csv")).unwrap();
    assert!(points.lines().count() == 3, "{points}");
}

#[test]
fn a_time_in_which_few_transactions_could_end_gives_no_interval() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("r");
    let run = |coroutines: &str, out: &str| {
        let args = ["run", "--fabric", "sim:cx4-edr", "--coroutines", coroutines, "--duration", "200us"];
        told(&[&args[..], &["--no-check", "--json", "-", "--out", out]].concat())
    };
    let (json, talk) = run("1024", out.to_str().unwrap());
    let result: serde_json::Value = serde_json::from_str(&json).unwrap();
    let says = "warning: the measured time is too short: ";
    assert!(talk.contains(says) && talk.contains("of 3072 in flight"), "{talk}");
    assert!(result["steadiness"]["rate_ci_relative"].is_null(), "{result}");
    assert!(result["too_short"].as_str().is_some_and(|why| why.contains("in flight")), "{result}");
    let record = std::fs::read_to_string(out.join("run.json")).unwrap();
    assert!(record.contains("\"the measured time is too short: "), "{record}");
    assert!(std::fs::read_to_string(out.join("points.csv")).unwrap().contains(",too short"));

    let (json, talk) = run("8", folder.path().join("few").to_str().unwrap());
    let result: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert!(!talk.contains("too short") && result["too_short"].is_null(), "{talk}");
    assert!(result["steadiness"]["rate_ci_relative"].as_f64().is_some_and(|half| half > 0.0), "{result}");

    let file = folder.path().join("e.yaml");
    let text = "question: x\nfabric: sim:cx4-edr\nset: {accounts_per_thread: 100}\nduration: 200us\n\
                grid: {coroutines: [4, 1024]}\n";
    std::fs::write(&file, text).unwrap();
    let out = folder.path().join("e");
    let (_, talk) = told(&["experiment", file.to_str().unwrap(), "--out", out.to_str().unwrap()]);
    assert!(talk.contains("warning: 1 of 2 points was measured for too short a time"), "{talk}");
    assert!(std::fs::read_to_string(out.join("run.json")).unwrap().contains("\"1 of 2 points was measured"));
}

#[test]
fn requests_of_which_few_could_end_give_no_interval() {
    let folder = tempfile::tempdir().unwrap();
    let out = |name: &str| folder.path().join(name).display().to_string();
    let points = |out: &str| std::fs::read_to_string(Path::new(out).join("points.csv")).unwrap();

    let file = folder.path().join("e.yaml");
    let text = "question: x\nkind: primitive\nfabric: sim:cx4-edr\nnodes: 2\nthreads: 2\nverb: write\npayload: 4096\n\
                duration: 20us\ngrid: {coroutines: [1, 64]}\n";
    std::fs::write(&file, text).unwrap();
    let (_, talk) = told(&["experiment", file.to_str().unwrap(), "--out", &out("e")]);
    assert!(talk.contains("warning: 1 of 2 points was measured for too short a time"), "{talk}");
    assert_eq!(points(&out("e")).matches(",too short").count(), 1);

    // What did not become as precise as asked for is told in the same way, and no longer when it is.
    let text = "question: x\nkind: primitive\nfabric: sim:cx4-edr\nnodes: 3\nthreads: 2\nverb: read\nduration: 20us\n\
                precision: 0.01 %\ngrid: {coroutines: [4]}\n";
    std::fs::write(&file, text).unwrap();
    let (_, talk) = told(&["experiment", file.to_str().unwrap(), "--out", &out("w")]);
    let says = "1 of 1 point was not as precise as asked for after the longest time: ";
    assert!(talk.contains(&format!("warning: {says}")) && points(&out("w")).contains(",no"), "{talk}");
    assert!(std::fs::read_to_string(Path::new(&out("w")).join("run.json")).unwrap().contains(says));
    let (_, talk) = told(&["report", &out("w")]);
    let page = std::fs::read_to_string(Path::new(&out("w")).join("report.html")).unwrap_or_default();
    assert!(talk.contains(says) || page.contains(says), "{talk}");

    // Asked for just that time, points are marked; else they get the time that they need.
    let sweep = ["characterize", "--fabric", "sim:cx4-edr", "--quick", "--bench", "payload", "--nodes", "2"];
    let (_, talk) = told(&[&sweep[..], &["--duration", "50us", "--out", &out("short")]].concat());
    assert!(talk.contains(" of 15 points were measured for too short a time"), "{talk}");
    let (_, talk) = told(&[&sweep[..], &["--out", &out("usual")]].concat());
    assert!(!talk.contains("too short") && !points(&out("usual")).contains("too short"), "{talk}");
    let longer = |row: &&str| row.contains(",4096,") && !row.contains(",150000,");
    assert_eq!(points(&out("usual")).lines().filter(longer).count(), 2, "{}", points(&out("usual")));
}

#[test]
fn a_grid_over_protocols_tells_the_plan_of_each_point_and_a_shard_without_points_that_it_has_none() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("e.yaml");
    let text = "question: x\nfabric: sim:cx4-edr\nset: {accounts_per_thread: 100}\nduration: 100us\n\
                grid: {protocol: [occ, fasst]}\n";
    std::fs::write(&file, text).unwrap();
    let measured = |shard: &[&str], out: &str| {
        let out = folder.path().join(out).display().to_string();
        let (table, talk) =
            told(&[&["experiment", file.to_str().unwrap(), "--out", &out][..], shard].concat());
        (table, talk, std::fs::read_to_string(Path::new(&out).join("points.csv")).unwrap())
    };
    let (table, _, points) = measured(&[], "all");
    let row = |protocol: &str| table.lines().find(|line| line.contains(protocol)).unwrap();
    assert!(row(" occ ").contains("drtm-h") && row(" fasst ").contains("drtm-h"), "{table}");
    assert!(table.contains("plan drtm-h under fasst, occ: {fetch: {via: hybrid,"), "{table}");
    assert!(points.contains(",fasst,drtm-h,"), "{points}");

    let (table, talk, _) = measured(&["--shard", "50/100"], "shard");
    assert!(talk.contains("warning: e: of its 2 points, shard 50/100 holds none"), "{talk}");
    assert!(table.contains("no points") && !talk.contains("nothing to measure"), "{table}{talk}");
}

#[test]
fn shares_in_the_text_of_a_run_say_of_what() {
    let hot = ["--set", "hot_accounts_share=0.05", "--duration", "200us", "--no-check"];
    let (text, _) = told(&[&["run"][..], SMALL, &hot].concat());
    for part in [
        "attempts aborted\n",
        "aborts, ",
        " % of all attempts: ",
        " % of what committed or was rolled back: ",
    ] {
        assert!(text.contains(part), "no {part:?}:\n{text}");
    }
}

#[test]
fn a_plan_as_it_is_printed_is_no_plan_file_and_the_error_says_what_is() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("my.plan.yaml");
    for text in ["{coroutines: 8, fetch: one-sided, lock: one-sided, validate: one-sided}\n", "name: mine\n"]
    {
        std::fs::write(&file, text).unwrap();
        let says =
            ["my.plan.yaml:1:", "hint: a plan file says `name: NAME` and `plan: {…}`", "DIR/tuned.plan.yaml"];
        refused(&[&["run", "--plan", file.to_str().unwrap()][..], SMALL].concat(), &says, &[]);
    }
    std::fs::write(&file, "name: mine\nplan: {fetch: sideways}\n").unwrap();
    refused(&["run", "--plan", file.to_str().unwrap()], &["fetch"], &["hint: a plan file says"]);
}

/// Three operations are no rate, of a study as of any other.
#[test]
fn a_study_says_which_of_its_points_were_too_short_and_how_well_the_others_are_known() {
    let folder = tempfile::tempdir().unwrap();
    let asked = ["study", "validation", "--fabric", "sim:cx4-edr", "--coroutines", "16"];
    let out = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (printed, talk) = told(&[&asked[..], &["--duration", "30us", "--out", &out("short")]].concat());
    assert!(talk.contains("measured for too short a time"), "{talk}");
    assert!(printed.contains("converged") && printed.contains("too short"), "{printed}");
    let points = std::fs::read_to_string(folder.path().join("short/points.csv")).unwrap();
    assert!(
        points.contains(",too short,") && points.lines().next().unwrap().contains("measured_ns"),
        "{points}"
    );
    let page = out("page");
    let (_, talk) = told(&["report", &out("short"), "--out", &page]);
    assert!(talk.contains("too short"), "{talk}");

    let (printed, talk) = told(&[&asked[..], &["--json", "-", "--out", &out("long")]].concat());
    let study: serde_json::Value = serde_json::from_str(&printed).unwrap();
    assert!(!talk.contains("too short"), "{talk}");
    for point in study["points"].as_array().unwrap() {
        // Three nodes of one thread.
        let in_flight = 3 * point["coroutines"].as_u64().unwrap();
        assert!(point["ops"].as_u64().unwrap() >= 4 * in_flight, "{point}");
        assert!(["yes", "no"].map(Some).contains(&point["converged"].as_str()), "{point}");
        // The interval is that of the rate: both count what ends in the counted time.
        let batches = point["batch_rates_per_s"].as_str().expect("batches").split(' ');
        let rates: Vec<f64> = batches.map(|rate| rate.parse().unwrap()).collect();
        let off =
            point["rate_per_s"].as_f64().unwrap() * rates.len() as f64 / rates.iter().sum::<f64>() - 1.0;
        assert!(off.abs() <= point["rate_ci_relative"].as_f64().unwrap(), "{off}: {point}");
    }
}

#[test]
fn a_run_in_which_nothing_committed_claims_no_success() {
    for more in [&[][..], &["--no-check"]] {
        let output = run(&[&["run", "--duration", "1ns", "--json", "-"], SMALL, more].concat());
        assert_eq!(output.status.code(), Some(1));
        let told: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert!(told["isolation"].is_null(), "{told}");
        let checks = told["checks"].as_object().unwrap();
        assert!(!checks.is_empty() && checks.values().all(|check| check["passed"].is_null()), "{told}");
        let output = run(&[&["run", "--duration", "1ns"], SMALL, more].concat());
        let (shown, talk) = (stdout(&output), stderr(&output));
        assert!(!shown.contains("held") && !shown.contains("pass"), "{shown}");
        assert!(shown.contains("check money-conserved: nothing to check"), "{shown}");
        assert!(talk.contains("there is nothing to judge"), "{talk}");
    }
}

#[test]
fn a_time_below_nothing_is_answered_as_a_time() {
    refused(&["run", "--duration", "-5ms"], &["a time is more than nothing"], &["unexpected argument"]);
    // None at all is a time, too, of those that may be nothing.
    for args in [&["run", "--clock-skew", "-5us"][..], &["study", "commit", "--think", "-1us"]] {
        refused(args, &["cannot be less than nothing (0us)"], &["unexpected argument", "more than nothing"]);
    }
    let long = ["study", "commit", "--fabric", "sim:cx4-edr", "--think", "1s"];
    refused(&long, &["is too long: up to 10.0 ms can be studied"], &[]);
}

/// The model is known to be worse where transactions get in each other's way; who tunes for that hears by how much.
#[test]
fn forecasts_under_skew_come_with_what_they_were_off_by() {
    let folder = tempfile::tempdir().unwrap();
    let tune = |name: &str, more: &[&str]| {
        let out = folder.path().join(name).to_str().unwrap().to_owned();
        let usual =
            ["tune", "--fabric", "sim:cx4-edr", "--workload", "ycsb", "--set", "records_per_thread=1000"];
        told(&[&usual[..], &["--coroutines", "4", "--out", &out], more].concat()).0
    };
    let skewed = ["--set", "zipf_theta=0.99"];
    let said = tune("skewed", &skewed).split_whitespace().collect::<Vec<_>>().join(" ");
    for part in
        ["caveat: some keys are asked for more often", "off by 9.5 % in the median", "experiments/REGRET.md"]
    {
        assert!(said.contains(part), "no {part}: {said}");
    }
    assert!(!tune("even", &["--set", "zipf_theta=0"]).contains("caveat"));
    let json: serde_json::Value =
        serde_json::from_str(&tune("json", &[&skewed[..], &["--json", "-"]].concat())).unwrap();
    assert!(json["caveat"].as_str().is_some_and(|why| why.contains("REGRET.md")), "{json}");
    let record = std::fs::read_to_string(folder.path().join("skewed/run.json")).unwrap();
    assert!(record.contains("caveat: some keys"), "the page tells it too: {record}");
    // The numbers are those of the table there, of the seed that is named.
    let (_, measured) = include_str!("../REGRET.md").split_once("**Seed 18**").unwrap();
    let row = |start: &str| measured.lines().find(|line| line.starts_with(start)).unwrap();
    for (start, combinations, errors) in [
        ("| more than a fifth |", "| 149 |", "| 9.5, 58, "),
        ("| up to a fifth of attempts aborted |", "| 351 |", "| 3.4, 10, "),
    ] {
        assert!(row(start).contains(combinations) && row(start).contains(errors), "{}", row(start));
    }
}

/// Of protocols that no sweep draws, errors of others say nothing.
#[test]
fn what_is_known_of_forecasts_is_told_of_their_protocol() {
    let folder = tempfile::tempdir().unwrap();
    for (protocol, known) in [("calvin", "engine/CALVIN.md"), ("fasst", "experiments/REGRET.md")] {
        let out = folder.path().join(protocol).to_str().unwrap().to_owned();
        let asked =
            ["tune", "--fabric", "sim:cx4-edr", "--protocol", protocol, "--coroutines", "4", "--out", &out];
        let said = told(&asked).0.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(said.contains(&format!("caveat: {protocol} is not among the protocols")), "{said}");
        assert!(said.contains(known) && !said.contains("of attempts are foretold to abort"), "{said}");
    }
    // The numbers are those of these pages.
    let among = include_str!("../REGRET.md").split_once("**Seed 22**").unwrap().1;
    let all = among.lines().find(|line| line.starts_with("| all |")).unwrap();
    assert!(all.starts_with("| all | 60 | 0.0, 8.8, 14.6, 40 % | 4 | 37 |"), "{all}");
    let choice = told(&[
        "tune",
        "--fabric",
        "sim:cx4-edr",
        "--protocol",
        "occ,nowait",
        "--coroutines",
        "4",
        "--out",
        folder.path().join("two").to_str().unwrap(),
    ]);
    let choice = choice.0.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        choice.contains("of 60 drawn combinations it was the best plan's in 37, and lost up to 40 %"),
        "{choice}"
    );
    let (calvin, fasst) = (include_str!("../../engine/CALVIN.md"), include_str!("../REGRET.md"));
    assert!(calvin.contains("nine of ten are within 16 % (87 settings"));
    assert!(
        fasst.contains("where more than half abort its rates are foretold 1.21 times what comes (19 plans")
    );
}

/// A plan whose transactions take longer than what is usually measured is run for longer, by the command that is printed as well.
#[test]
fn what_takes_long_is_run_for_long() {
    let folder = tempfile::tempdir().unwrap();
    let tune = |fabric: &str, more: &[&str]| {
        let out = folder.path().join(fabric.replace(':', "-")).to_str().unwrap().to_owned();
        let usual = ["tune", "--fabric", fabric, "--workload", "ycsb", "--coroutines", "8", "--out", &out];
        told(&[&usual[..], more].concat()).0
    };
    assert!(tune("sim:cx4-edr", &[]).contains("--duration 2ms"));
    let slow = tune("sim:tcp-1g", &["--set", "records_per_thread=1000"]);
    let ms = slow.split("--duration ").nth(1).and_then(|rest| rest.split("ms").next());
    assert!(ms.is_some_and(|ms| ms.parse::<u64>().unwrap() > 20), "{slow}");
}

/// Whoever only reads gets in nobody's way, and is not told so.
#[test]
fn what_is_known_of_customer_positions_forecasts_is_true_of_them() {
    let folder = tempfile::tempdir().unwrap();
    let tune = |name: &str, more: &[&str]| {
        let out = folder.path().join(name).to_str().unwrap().to_owned();
        let usual = ["tune", "--fabric", "sim:cx4-edr", "--workload", "tpce-cp", "--coroutines", "4"];
        let small = ["--set", "customers_per_load_unit=50", "--out", &out];
        let said = told(&[&usual[..], &small, more].concat()).0;
        said.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let calm = tune("calm", &[]);
    assert!(calm.contains("caveat: tpce-cp is not among") && calm.contains("one by one"), "{calm}");
    assert!(!calm.contains("each other's way"), "{calm}");
    let fed = tune("fed", &["--set", "market_feed=1"]);
    assert!(fed.contains("its transactions get in each other's way"), "{fed}");
}

#[test]
fn tables_are_no_wider_than_a_page_whoever_reads_them() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out").to_str().unwrap().to_owned();
    let tuned = ["tune", "--protocol", "all", "--coroutines", "4", "--out", &out];
    for args in [&["run", "--workload", "tpcc", "--set", "help"][..], &[&tuned, SMALL].concat()] {
        let (printed, _) = told(args);
        // A plan on a line of its own is there to be copied.
        let rows =
            printed.lines().filter(|line| line.starts_with(' ') && !line.trim_start().starts_with('{'));
        let widest = rows.max_by_key(|line| line.chars().count()).unwrap();
        assert!(widest.chars().count() <= 120, "{args:?}: {widest}");
    }
}

/// A device that is fitted on a busy machine is told as that; a simulated one never is.
#[test]
fn a_characterization_as_json_says_what_there_is_to_doubt() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    let asked = ["characterize", "--fabric", "sim:cx4-edr", "--quick", "--bench", "latency", "--json", "-"];
    let (printed, talk) = told(&[&asked[..], &["--out", out.to_str().unwrap()]].concat());
    let json: serde_json::Value = serde_json::from_str(&printed).unwrap();
    assert!(json["summary"]["busy_points"] == 0 && json["fitted"]["doubt"].is_null(), "{json}");
    assert!(json["fitted"]["profile"].is_string() && !talk.contains("busy machine"), "{json}{talk}");
}

/// Whoever names a mean latency gets another plan than whoever wants throughput alone, and is told where none keeps it.
#[test]
fn a_mean_latency_that_is_asked_for_changes_the_choice() {
    let dir = tempfile::tempdir().unwrap();
    let tuned = |name: &str, more: &[&str]| -> serde_json::Value {
        let out = dir.path().join(name);
        let asked = ["tune", "--fabric", "sim:cx4-edr", "--json", "-", "--out", out.to_str().unwrap()];
        let (printed, _) = told(&[&asked[..], &["--nodes", "4", "--threads", "4"], more].concat());
        serde_json::from_str(&printed).unwrap()
    };
    let number = |of: &serde_json::Value, key: &str| of[key].as_f64().unwrap();
    let (free, within) = (tuned("free", &[]), tuned("within", &["--latency", "10us"]));
    let (least, never) = (tuned("least", &["--latency", "least"]), tuned("never", &["--latency", "1us"]));
    assert!(number(&free, "predicted_mean_ns") > 10e3 && free["objective"]["most"] == "throughput", "{free}");
    assert!(number(&within, "predicted_mean_ns") <= 10e3, "{within}");
    assert_eq!(
        (&within["objective"]["mean_within_ns"], &within["objective"]["kept"]),
        (&10e3.into(), &true.into())
    );
    let rates = [&free, &within, &least].map(|of| number(of, "predicted_per_s"));
    assert!(rates.is_sorted_by(|more, fewer| more > fewer), "{rates:?}");
    assert_eq!(least["objective"]["least"], "mean latency");
    assert_eq!((&never["plan"], &never["objective"]["kept"]), (&least["plan"], &false.into()));
    let file = |name: &str, file: &str| std::fs::read_to_string(dir.path().join(name).join(file)).unwrap();
    let plan = file("never", "tuned.plan.yaml");
    assert!(plan.contains("Aim: a mean latency of 1us at most, which no plan is foretold to keep"), "{plan}");
    assert!(file("within", "run.json").contains("\"latency\": \"10us\""));
    assert!(!file("free", "run.json").contains("\"latency\""));
    for (latency, says) in [
        ("20", "20 of what?"),
        ("low", "`least` asks for the least mean latency"),
        ("-5us", "a time is more than nothing"),
    ] {
        refused(&["tune", "--latency", latency], &[says], &[]);
    }
    let judged = ["tune", "--fabric", "sim:cx4-edr", "--latency", "20us", "--verify"];
    refused(&judged, &["--verify judges a choice by its throughput", "leave --verify out"], &[]);
    // A protocol's name near a plan's is not that plan.
    refused(&["run", "--plan", "fasst"], &["--protocol fasst"], &["did you mean"]);
}

/// A run whose plan is tuned has the location caches that are chosen for it, and says so; or those that it is asked to have.
#[test]
fn a_tuned_run_has_the_caches_that_are_chosen_for_it() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let fixed =
        ["--fabric", "sim:cx4-edr", "--coroutines", "4", "--duration", "200us", "--json", "-", "--out"];
    let asked = |command: &str, out: &str, more: &[&str]| -> serde_json::Value {
        let (printed, _) = told(&[&[command], &fixed[..], &[&at(out)], more].concat());
        serde_json::from_str(&printed).unwrap()
    };
    let record = |out: &str| -> serde_json::Value {
        let text = std::fs::read_to_string(dir.path().join(out).join("run.json")).unwrap();
        serde_json::from_str(&text).unwrap()
    };
    let chosen = &asked("tune", "choice", &[])["cache_budget"];
    let bytes = chosen["cache_bytes"].as_u64().unwrap();
    assert!(bytes < 16 << 20, "{chosen}");
    let tuned = asked("run", "tuned", &["--plan", "tuned"]);
    assert_eq!(
        (&tuned["spec"]["cache_bytes"], &record("tuned")["spec"]["cache_bytes"]),
        (&bytes.into(), &bytes.into())
    );
    assert!(record("tuned")["notes"].to_string().contains(&format!("--cache-bytes {bytes}")));
    let ladder = chosen["ladder"].as_array().unwrap();
    let rung = ladder.iter().find(|rung| rung["cache_bytes"] == bytes).unwrap();
    assert_eq!(tuned["predicted_per_s"], rung["predicted_per_s"]);
    // It is not only said: the same plan from its file does the same with caches of that size, and finds more in the usual ones.
    let (file, size) = (at("choice/tuned.plan.yaml"), bytes.to_string());
    let same = asked("run", "same", &["--plan", &file, "--cache-bytes", &size]);
    assert_eq!(
        (&same["committed"], &same["location_cache"]),
        (&tuned["committed"], &tuned["location_cache"])
    );
    let misses = |run: &serde_json::Value| run["location_cache"]["misses"].as_u64().unwrap();
    assert!(misses(&asked("run", "usual", &["--plan", &file])) < misses(&tuned), "{tuned}");
    let asked = asked("run", "asked", &["--plan", "tuned", "--cache-bytes", "65536"]);
    let record = record("asked");
    assert_eq!(
        (&asked["spec"]["cache_bytes"], &record["spec"]["cache_bytes"]),
        (&65536.into(), &65536.into())
    );
    assert!(!record["notes"].to_string().contains("chose the caches"), "{record}");
}

/// A rate of one lock mode or locality says nothing of another: both are stated with the result, as they were and not as they were asked for, and
/// once more by a directory that holds it. The page has the same words.
#[test]
fn lock_mode_and_locality_are_told_with_every_run() {
    let folder = tempfile::tempdir().unwrap();
    let small = ["--nodes", "4", "--replicas", "1", "--coroutines", "2", "--duration", "200us"];
    let plan = ["--plan", "two-sided"];
    let run = |protocol: &str, remote: bool| {
        let (at, json) = (folder.path().join("out"), folder.path().join("json"));
        let out = ["--protocol", protocol, "--out", at.to_str().unwrap()];
        let set: &[&str] = if remote { &["--set", "remote=true"] } else { &[] };
        let file = ["--json", json.to_str().unwrap()];
        let (people, _) = told(&[&["run"], SMALL, &small, &plan, &out, set, &file].concat());
        let (again, talk) = told(&[&["run"], SMALL, &small, &plan, &out, set].concat());
        assert!(talk.contains("holds this run"), "{talk}");
        let line = |text: &str| text.lines().find(|line| line.starts_with("locks: ")).map(str::to_owned);
        let told = line(&people).unwrap_or_else(|| panic!("{people}"));
        assert_eq!(line(&again).as_ref(), Some(&told), "{again}");
        let result: serde_json::Value = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
        std::fs::remove_file(json).unwrap();
        std::fs::remove_dir_all(at).unwrap();
        let locks = format!("locks: {}; ", result["lock_mode"].as_str().expect("a mode"));
        let share = result["local_share"].as_f64().expect("a share");
        let records = told.strip_prefix(&locks).unwrap_or_else(|| panic!("{told}, not {locks}"));
        let percent = experiments::output::percent(share);
        assert_eq!(records, format!("records: {percent} of accesses on the own node"));
        (locks, share)
    };
    for (protocol, locks) in [
        ("nowait", "locks: shared among readers; "),
        ("waitdie-exclusive", "locks: one holder, RCC's mode; "),
        ("occ", "locks: of what is written, one holder; "),
        ("calvin", "locks: granted in order, shared among readers; "),
    ] {
        let (told, share) = run(protocol, false);
        assert_eq!(told, locks, "{protocol}");
        assert!((0.2..0.3).contains(&share), "{protocol}: {share} of four nodes");
    }
    assert_eq!(run("nowait-exclusive", true), ("locks: one holder, RCC's mode; ".to_owned(), 0.0));

    let page = reports::figures::Section::Comparison.intro();
    for name in PROTOCOLS {
        let mode = AnyProtocol::named(name).expect("known").needs().lock_mode();
        assert!(page.contains(mode), "{name}: {mode}");
    }
}
