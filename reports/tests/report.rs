//! Pages from made-up results: everything present, everything attributed.

use reports::ink::Ink;
use reports::{Options, render};
use serde_json::json;
use std::path::{Path, PathBuf};

mod drawn;
mod sample;
use drawn::{Rendered, assert_sound, draw, figure, fresh};
use sample::{CHARACTERIZE, LOOPBACK, PHASES, RUN, SIM};

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

/// A primitive that need not wait for its acknowledgement would win against any other.
#[test]
fn variants_of_a_phase_are_compared_with_their_like() {
    let dir = fresh();
    let rendered = draw(&[sample::study(dir.path(), "s")], dir);
    let part = figure(&rendered.html, "phase-variants");
    for told in [
        "Commit on sim:cx4-edr runs most cycles a second two-sided, 1.3× those of one-sided;",
        "commit with passive acknowledgement on sim:cx4-edr runs most cycles a second one-sided-passive, 1.5× those of \
         two-sided-passive;",
        "rates are of whole cycles",
    ] {
        assert!(part.contains(told), "no {told} in {part}");
    }
}

/// A ladder whose last steps cost what others brought is told with its peak and its end.
#[test]
fn a_ladder_that_falls_is_told_with_peak_and_end() {
    let dir = fresh();
    let mut csv = "point,bench,verb,payload_bytes,optimizations,ops,rate_per_s\n".to_owned();
    let steps = ["base", "+coroutines", "+outstanding", "+doorbell"];
    let rates = [("one-sided", [1e6, 2e6, 3e6, 2.9e6]), ("two-sided", [1e4, 5e4, 2e5, 2e4])];
    let rows = rates.iter().flat_map(|(verb, rates)| steps.iter().zip(rates).map(move |row| (verb, row)));
    for (point, (verb, (step, rate))) in rows.enumerate() {
        csv += &format!("{point},ladder-write,{verb},64,{step},9,{rate}\n");
    }
    let record = sample::record("characterize", LOOPBACK, 8);
    let made = sample::write_dir(dir.path(), "c", &record, &[("points.csv", &csv)]);
    let rendered = draw(&[made], dir);
    let caption = figure(&rendered.html, "ladder-loopback").replace('\u{a0}', " ");
    let told = "Writes climb 3× one-sided to 3 M/s and 20× two-sided to a peak of 200 k/s with outstanding, ending at 20 k/s with \
                doorbell, the largest step being coroutines (5×).";
    assert!(caption.contains(told), "{caption}");
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

/// A phase that is slow and rare is a small part of where time goes, and the caption says what a bar is.
#[test]
fn a_rare_phase_is_not_where_time_goes() {
    let dir = fresh();
    let made = sample::run(dir.path(), "drtm-h", LOOPBACK);
    let rendered = draw(std::slice::from_ref(&made), dir);
    let part = figure(&rendered.html, "phases").replace('\u{a0}', " ");
    assert!(part.contains("drtm-h spends 36 % of its phase time in execute"), "{part}");
    assert!(part.contains("mean time in each phase per committed transaction"), "{part}");
    // The parts sum to what stands at the end of the bar: 1.1 × 628 ns, and a fifth of a percent.
    assert!(part.contains("692 ns") && !part.contains("1.88 µs\n"), "{part}");
    // It does without a column that came later.
    assert!(rendered.html.contains("phases.csv lacks bytes_per_verb"));
    // A file of an earlier version has medians only, which do not add up to anything.
    let old = std::fs::read_to_string(made.join("phases.csv")).expect("phases");
    let old: String =
        old.lines().map(|line| format!("{}\n", line.rsplit_once(',').expect("cells").0)).collect();
    std::fs::write(made.join("phases.csv"), old).expect("writes");
    let rendered = draw(&[made], rendered.dir);
    assert!(!rendered.report.figures.contains(&"phases".to_owned()));
    assert!(rendered.html.contains("phases.csv lacks ns_per_committed"));
}

/// Of repeats a sentence tells the mean once, and what differs in the setting is told apart.
#[test]
fn repeats_of_a_plan_are_one_bar_and_other_settings_have_names() {
    let dir = fresh();
    let mut made = Vec::new();
    for (repeat, factor) in [1.0, 2.0, 3.0].into_iter().enumerate() {
        let root = dir.path().join(repeat.to_string());
        std::fs::create_dir(&root).expect("a directory");
        let run = sample::run(&root, "drtm-h", LOOPBACK);
        let record = std::fs::read_to_string(run.join("run.json")).expect("a record");
        let later = record
            .replace("\"started_unix_s\":179520144", &format!("\"started_unix_s\":{}79520144", repeat + 1));
        std::fs::write(run.join("run.json"), later).expect("writes");
        let phases =
            format!("{PHASES}\n0,fetch,1,1,1,1,1,{}\n0,log,1,1,1,1,1,{}\n", 90.0 * factor, 10.0 * factor);
        std::fs::write(run.join("phases.csv"), phases).expect("writes");
        if repeat == 2 {
            // Nothing aborted.
            std::fs::write(run.join("aborts.csv"), "point,class,reason,count\n").expect("writes");
            let points = std::fs::read_to_string(run.join("points.csv")).expect("points");
            let (_, row) = points.trim().split_once('\n').expect("a row");
            let mut cells: Vec<&str> = row.split(',').collect();
            cells[9] = "0";
            std::fs::write(run.join("points.csv"), format!("{RUN}\n{}\n", cells.join(","))).expect("writes");
        }
        made.push(run);
    }
    let rendered = draw(&made, dir);
    let part = |id: &str| figure(&rendered.html, id).replace('\u{a0}', " ");
    let phases = part("phases");
    assert_eq!(phases.matches("drtm-h spends 90 % of its phase time in fetch").count(), 2, "{phases}");
    assert!(phases.contains("drtm-h (mean of 3)") && phases.contains("200 ns"), "{phases}");
    // 3.7 % of the attempts of two, none of the third.
    assert!(
        part("aborts").contains("n loopback drtm-h aborts 2.4 % of its attempts, 62 % of them"),
        "{}",
        part("aborts")
    );
    // The same plan under another protocol.
    let points = std::fs::read_to_string(made[2].join("points.csv")).expect("points");
    std::fs::write(made[2].join("points.csv"), points.replace(",occ,", ",mvcc,")).expect("writes");
    let rendered = draw(&made, rendered.dir);
    let phases = figure(&rendered.html, "phases").replace('\u{a0}', " ");
    for place in ["n loopback (OCC) drtm-h spends", "n loopback (MVCC) drtm-h spends"] {
        assert!(phases.contains(place), "{phases}");
    }
}

/// Repeats differ in their seed alone: whatever else differs makes a row or a panel of its own, named by what it is.
#[test]
fn runs_of_other_configurations_are_not_repeats() {
    let dir = fresh();
    let mut made = Vec::new();
    let mut add = |name: &str, change: &dyn Fn(&mut serde_json::Value)| {
        let root = dir.path().join(name);
        std::fs::create_dir(&root).expect("a directory");
        let run = sample::run(&root, "drtm-h", SIM);
        let mut record = sample::record("run", SIM, 1);
        record["spec"] = json!({
            "duration": "300us", "files": {}, "plan_name": "drtm-h", "seed": 1, "set": {}, "warm_cache": true,
            "plan": {"coroutines": 8, "fetch": {"via": "hybrid"}, "lock": {"via": "one-sided"}},
        });
        change(&mut record);
        std::fs::write(run.join("run.json"), record.to_string()).expect("writes");
        made.push(run);
    };
    add("base", &|_| {});
    add("seed", &|record| (record["seed"], record["spec"]["seed"]) = (json!(2), json!(2)));
    add("asked", &|record| {
        record["spec"]["coroutines"] = json!(8);
        record["seed"] = json!(3);
    });
    add("acc", &|record| record["spec"]["set"]["accounts_per_thread"] = json!(100));
    add("cold", &|record| record["spec"]["warm_cache"] = json!(false));
    add("profile", &|record| {
        record["profile"]["hash"] = json!("b0b0");
        record["started_unix_s"] = json!(1_795_201_441u64);
    });
    add("co1", &|record| record["spec"]["plan"]["coroutines"] = json!(1));
    add("plan", &|record| record["spec"]["plan"]["lock"] = json!({"via": "two-sided"}));
    add("skew", &|record| record["spec"]["clock_skew"] = json!("50us"));
    add("right", &|record| record["spec"]["clock_skew"] = json!("0s"));
    let rendered = draw(&made[..3], dir);
    assert!(figure(&rendered.html, "plans").contains("drtm-h (median of 3)"));
    for (other, named) in [
        (3, "accounts_per_thread 100"),
        (4, "cold caches"),
        (5, "profile b0b0"),
        (6, "drtm-h (coroutines 1)"),
        (7, "drtm-h (lock two-sided)"),
        (8, "clocks wrong by up to 50us"),
    ] {
        let together = [&made[..3], &made[other..=other]].concat();
        let root = tempfile::tempdir().expect("a temporary directory");
        let rendered = draw(&together, root);
        for id in ["plans", "phases", "aborts"] {
            let part = figure(&rendered.html, id);
            assert!(
                part.contains(named) && part.contains("of 3)") && !part.contains("of 4)"),
                "{id}: {part}"
            );
        }
        let said = rendered.report.answers.concat();
        assert!((6..=7).contains(&other) || said.contains(named), "{said}");
    }
    // Clocks that are wrong are told of a run alone, too; those of builds that knew none were right.
    let alone = draw(&made[8..9], tempfile::tempdir().expect("a temporary directory"));
    assert!(
        alone.report.answers.concat().contains("clocks wrong by up to 50us"),
        "{:?}",
        alone.report.answers
    );
    assert!(figure(&alone.html, "plans").contains("clocks wrong by up to 50us"));
    let right = [&made[..3], &made[9..]].concat();
    let right = draw(&right, tempfile::tempdir().expect("a temporary directory"));
    assert!(figure(&right.html, "plans").contains("drtm-h (median of 4)"));
    // Where all that differs has no short name, their directories tell them apart.
    let many = made[7].join("run.json");
    let record = std::fs::read_to_string(&many).expect("a record");
    std::fs::write(&many, record.replace("hybrid", "one-sided").replace(":8", ":16")).expect("writes");
    let rendered = draw(&[made[0].clone(), made[7].clone()], rendered.dir);
    let plans = figure(&rendered.html, "plans");
    assert!(plans.contains("drtm-h (base/run-") && plans.contains("drtm-h (plan/run-"), "{plans}");
}

/// What one node of a cluster did is not what the cluster did, and not a repeat of what another node did.
#[test]
fn a_nodes_share_of_a_run_is_told_as_such() {
    let dir = fresh();
    let made: Vec<PathBuf> = [None, Some(0), Some(1)]
        .into_iter()
        .map(|node| {
            let root = dir.path().join(format!("of-{node:?}"));
            std::fs::create_dir(&root).expect("a directory");
            let run = sample::run(&root, "drtm-h", LOOPBACK);
            let mut record = sample::record("run", LOOPBACK, 1);
            record["spec"] = json!({ "seed": 1, "node": node });
            std::fs::write(run.join("run.json"), record.to_string()).expect("writes");
            run
        })
        .collect();
    let rendered = draw(&made[2..], dir);
    let answer = &rendered.report.answers[0];
    assert!(answer.contains("node 1's share of SmallBank on loopback"), "{answer}");
    for id in ["plans", "phases", "aborts"] {
        let part = figure(&rendered.html, id).replace("&apos;", "'").replace("&#39;", "'");
        assert!(part.contains("node 1's share of SmallBank"), "{id}: {part}");
        assert!(part.contains("loopback · node 1's share of a run · Sample CPU"), "{id}: {part}");
    }
    let rendered = draw(&made, rendered.dir);
    let plans = figure(&rendered.html, "plans").replace("&apos;", "'").replace("&#39;", "'");
    for of in ["node 0's share of SmallBank", "node 1's share of SmallBank"] {
        assert!(plans.contains(of), "{plans}");
    }
    assert!(!plans.contains("median of"), "{plans}");
    assert_eq!(rendered.report.answers.iter().filter(|answer| answer.contains("share of")).count(), 2);
}

/// Machines differ in what they measure, and builds may; what is simulated is a value of its seed wherever it ran.
#[test]
fn runs_of_other_machines_and_builds_are_not_repeats() {
    let drawn = |fabric, change: &dyn Fn(&mut serde_json::Value)| {
        let dir = fresh();
        let mut made = Vec::new();
        for name in ["one", "two"] {
            let root = dir.path().join(name);
            std::fs::create_dir(&root).expect("a directory");
            let run = sample::run(&root, "drtm-h", fabric);
            let mut record = sample::record("run", fabric, 1);
            if name == "two" {
                record["started_unix_s"] = json!(1_795_201_441u64);
                change(&mut record);
            }
            std::fs::write(run.join("run.json"), record.to_string()).expect("writes");
            made.push(run);
        }
        figure(&draw(&made, dir).html, "plans").replace('\u{a0}', " ")
    };
    let cpu = |record: &mut serde_json::Value| {
        (record["machine"]["cpu"], record["machine"]["kernel"]) = (json!("Other(R) CPU"), json!("6.1"));
    };
    let kernel = |record: &mut serde_json::Value| record["machine"]["kernel"] = json!("6.1");
    let commit = |record: &mut serde_json::Value| record["commit"] = json!("fedcba9876543210");
    let plans = drawn(LOOPBACK, &cpu);
    assert!(
        plans.contains("Other CPU") && plans.contains("Sample CPU") && !plans.contains("of 2)"),
        "{plans}"
    );
    assert!(!plans.contains("kernel 6"), "the CPU says enough: {plans}");
    let plans = drawn(LOOPBACK, &kernel);
    assert!(
        plans.contains("kernel 6.18") && plans.contains("kernel 6.1") && !plans.contains("of 2)"),
        "{plans}"
    );
    for fabric in [LOOPBACK, SIM] {
        let plans = drawn(fabric, &commit);
        assert!(plans.contains("drtm-h (commit fedcba987654)") && !plans.contains("of 2)"), "{plans}");
        assert!(drawn(fabric, &|_| {}).contains("drtm-h (median of 2)"));
    }
    assert!(drawn(SIM, &cpu).contains("drtm-h (median of 2)"));
}

/// A directory that is named twice, or a copy of one, is no repeat, and a complaint about it is made once.
#[test]
fn the_same_run_twice_counts_once() {
    let dir = fresh();
    let made = sample::characterize(dir.path(), "run", LOOPBACK);
    let upto = |file: &Path, points: usize| {
        let csv = std::fs::read_to_string(file).expect("points");
        csv.lines().take(1 + points).map(|line| format!("{line}\n")).collect::<String>()
    };
    let rows = |rendered: &Rendered| {
        let csv = std::fs::read_to_string(rendered.dir.path().join("out/figures/rate-by-payload.csv"));
        csv.expect("a figure").lines().count()
    };
    let record = std::fs::read_to_string(made.join("run.json")).expect("a record");
    let copy = dir.path().join("copy");
    std::fs::create_dir(&copy).expect("a directory");
    // The copy was taken when fewer points were there.
    std::fs::write(copy.join("run.json"), record.replace("\"complete\":true", "\"complete\":false"))
        .expect("writes");
    std::fs::write(copy.join("points.csv"), upto(&made.join("points.csv"), 40)).expect("writes");
    let broken = sample::run(dir.path(), "broken", SIM);
    std::fs::write(broken.join("points.csv"), format!("{RUN}\n0,smallbank\n")).expect("writes");
    let alone = draw(std::slice::from_ref(&made), dir);
    let (once, of_one) = (rows(&alone), alone.report.notes.len());
    let both = draw(&[copy.clone(), made.clone(), broken.clone(), made.join("."), broken], alone.dir);
    assert_eq!(rows(&both), once);
    let notes = &both.report.notes;
    let said: Vec<&String> =
        notes.iter().filter(|note| note.contains("is the same run, and counts once")).collect();
    assert!(said.len() == 1 && said[0].starts_with("run: ") && said[0].contains("copy"), "{notes:?}");
    assert_eq!((both.report.problems.len(), notes.len()), (1, of_one + 1), "{notes:?}");
    // Another run with the same seed and command is one, whenever it was made.
    let other = std::fs::read_to_string(copy.join("points.csv")).expect("points").replace("95,", "96,");
    std::fs::write(copy.join("points.csv"), other).expect("writes");
    let two = draw(&[copy, made], both.dir);
    assert!(rows(&two) > once && two.report.notes.iter().all(|note| !note.contains("same run")));
}

/// Forecasts, plans that ran and candidates are three counts, and each is called by its name wherever it stands.
#[test]
fn what_the_tuner_chose_among_is_told_alike() {
    let dir = fresh();
    let [verified, alone] =
        [true, false].map(|verify| sample::tune(dir.path(), &format!("tune-{verify}"), 64, verify));
    let rendered = draw(std::slice::from_ref(&verified), dir);
    let head = rendered.report.answers.concat().replace('\u{a0}', " ");
    let caption = figure(&rendered.html, "tuner-sim-cx4-edr").replace('\u{a0}', " ");
    for told in [&head, &caption] {
        assert!(
            told.contains("Of 576 forecasts, each of a plan with a count of coroutines, the tuner"),
            "{told}"
        );
        assert!(told.contains("of 7 plans that were run"), "{told}");
    }
    assert!(caption.contains("of 64 candidates: the choice, then by predicted rate"), "{caption}");
    let unverified = draw(&[alone], rendered.dir);
    assert!(
        unverified
            .report
            .answers
            .concat()
            .starts_with("Of 576 forecasts, each of a plan with a count of coroutines, the tuner")
    );
    // What an earlier version left says less.
    let path = verified.join("run.json");
    let record = std::fs::read_to_string(&path).expect("a record").replace("\"evaluated\":576", "");
    // Whose forecasts they are is told where that is not who simulates, and what speaks against them.
    let priced = json!({ "name": "mine", "hash": "00ff", "doubt": "made on a busy machine" }).to_string();
    let doubted = record.replace("\"summary\":{", &format!("\"summary\":{{\"priced_by\":{priced}"));
    assert_ne!(doubted, record);
    std::fs::write(&path, doubted).expect("writes");
    let old = draw(&[verified], unverified.dir);
    let head = old.report.answers.concat();
    assert!(head.starts_with("Of 64 candidates, the tuner"));
    for told in
        [&head, figure(&old.html, "tuner-sim-cx4-edr"), figure(&old.html, "tuner-verified-sim-cx4-edr")]
    {
        assert!(told.contains(". Forecasts are by profile mine (00ff), made on a busy machine."), "{told}");
    }
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
fn both_ends_of_an_axis_of_sizes_are_named() {
    let dir = fresh();
    let made = sample::characterize(dir.path(), "c", SIM);
    let rendered = draw(&[made], dir);
    let part = figure(&rendered.html, "rate-by-payload");
    for end in ["\n8\u{a0}B\n", "\n4\u{a0}KiB\n"] {
        assert!(part.contains(end), "no {end:?}");
    }
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

/// Of rates that are known less well than others the note tells how many and which, and not the worst as if it were all.
#[test]
fn a_note_says_how_well_rates_are_known_and_which_the_least() {
    let rates = |widths: &[f64]| {
        let dir = fresh();
        let mut csv =
            "point,bench,verb,payload_bytes,threads,ops,rate_per_s,rate_ci_relative,converged\n".to_owned();
        for (point, width) in widths.iter().enumerate() {
            let (verb, converged) = (["read", "rpc"][point % 2], if *width > 0.05 { "no" } else { "yes" });
            csv += &format!("{point},payload,{verb},{},1,9,5e6,{width},{converged}\n", 64 << point);
        }
        let record = sample::record("characterize", SIM, widths.len());
        let made = sample::write_dir(dir.path(), "c", &record, &[("points.csv", &csv)]);
        let rendered = draw(&[made], dir);
        assert!(rendered.html.contains("known within"), "the page says it of all");
        rendered.report.notes.into_iter().find(|note| note.contains("known within"))
    };
    assert_eq!(
        rates(&[0.01, 0.02, 0.9374, 0.005, 0.01]).as_deref(),
        Some(
            "c: rates are known within ± 1.00 % in the median and ± 93.74 % at worst, point 2: verb read, payload bytes 256 \
             (95 % confidence, batch means); 1 of 5 did not become as precise as asked for"
        )
    );
    assert_eq!(
        rates(&[0.06]).as_deref(),
        Some(
            "c: the rate is known within ± 6.00 % (95 % confidence, batch means); 1 of 1 did not become as precise as asked for"
        )
    );
    assert_eq!(rates(&[0.01, 0.02]), None, "who did not ask is told of what is known badly");
}

/// A point measured too short is marked as one of a busy machine is: beside the point, under the figure, in the badge of its run
/// and at the terminal.
#[test]
fn doubtful_points_are_marked_wherever_they_are_shown() {
    let dir = fresh();
    let mut csv = "point,bench,verb,payload_bytes,threads,ops,rate_per_s,busy,converged\n".to_owned();
    for (point, doubts) in ["yes,", "no,too short", "no,", "no,too short"].into_iter().enumerate() {
        csv += &format!("{point},payload,read,{},1,9,5e6,{doubts}\n", 64 << point);
    }
    let record = sample::record("characterize", LOOPBACK, 4);
    let requests = sample::write_dir(dir.path(), "c", &record, &[("points.csv", &csv)]);
    let plan = sample::run(dir.path(), "one-sided", SIM);
    let points = std::fs::read_to_string(plan.join("points.csv")).expect("points");
    let (head, row) = points.trim_end().split_once('\n').expect("a row");
    std::fs::write(plan.join("points.csv"), format!("{head},converged\n{row},too short\n")).expect("writes");

    let rendered = draw(&[requests, plan], dir);
    let part = figure(&rendered.html, "rate-by-payload");
    assert_eq!((part.matches("\n‡\n").count(), part.matches("\n†\n").count()), (2, 1), "{part}");
    for told in ["‡ 2 of 4 measured points were measured for too short a time", "† 1 of 4 measured points"]
    {
        assert!(part.contains(told), "{part}");
    }
    let part = figure(&rendered.html, "plans");
    assert!(part.contains("\none-sided ‡\n") && part.contains("‡ 1 of 1 simulated point was"), "{part}");
    for id in ["phases", "aborts"] {
        let part = figure(&rendered.html, id);
        assert!(part.contains("\none-sided ‡\n"), "{part}");
    }
    assert!(rendered.html.contains("2 of 4 measured too short"));
    let notes = &rendered.report.notes;
    for told in ["c: 2 of 4 points were measured for too short a time: few", "c: 1 of 4 points was taken on"]
    {
        assert!(notes.iter().any(|note| note.starts_with(told)), "{notes:?}");
    }
    let answers = &rendered.report.answers;
    assert!(answers.iter().any(|answer| answer.contains("too short a time to know the rate")), "{answers:?}");
}

/// So is one whose tables had no room for all that was to be inserted.
#[test]
fn a_run_without_room_is_marked() {
    let dir = fresh();
    let plan = sample::run(dir.path(), "one-sided", SIM);
    let points = std::fs::read_to_string(plan.join("points.csv")).expect("points");
    let (head, row) = points.trim_end().split_once('\n').expect("a row");
    std::fs::write(plan.join("points.csv"), format!("{head},converged\n{row},full\n")).expect("writes");
    let rendered = draw(&[plan], dir);
    let part = figure(&rendered.html, "plans");
    assert!(
        part.contains("\none-sided §\n") && part.contains("§ 1 of 1 simulated point was run with"),
        "{part}"
    );
    assert!(rendered.html.contains("1 of 1 short of room"));
}

/// Figures of an older page that the new one does not have stay, and are told.
#[test]
fn a_page_made_again_tells_of_figures_of_the_older_one() {
    let dir = fresh();
    let run = sample::run(dir.path(), "one-sided", SIM);
    let requests = sample::characterize(dir.path(), "c", SIM);
    let told = |rendered: &Rendered| {
        let notes = rendered.report.notes.iter();
        notes.filter(|note| note.contains("still has figures of the page")).cloned().collect::<Vec<_>>()
    };
    let rendered = draw(&[run.clone(), requests.clone()], dir);
    assert!(told(&rendered).is_empty());
    let figures = rendered.dir.path().join("out/figures");
    let rendered = draw(std::slice::from_ref(&requests), rendered.dir);
    let notes = told(&rendered);
    assert!(
        notes.len() == 1 && notes[0].contains("plans") && !notes[0].contains("rate-by-payload"),
        "{notes:?}"
    );
    assert!(figures.join("plans.svg").exists());
    assert!(told(&draw(&[run, requests], rendered.dir)).is_empty());
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

/// What the model says and nobody ran is neither measured nor simulated, and its cells are whole.
#[test]
fn forecasts_have_a_badge_of_their_own() {
    for (verify, badge) in [(false, "forecast"), (true, "simulated")] {
        let dir = fresh();
        let made = sample::tune(dir.path(), "tune", 64, verify);
        let rendered = draw(&[made], dir);
        assert_sound(&rendered);
        let part = figure(&rendered.html, "tuner-sim-cx4-edr").replace('\u{a0}', " ");
        for chip in ["measured", "simulated", "forecast"] {
            assert_eq!(part.contains(&format!("chip {chip}")), chip == badge, "{chip}: {part}");
            assert_eq!(part.contains(&format!("\n{chip}\n")), chip == badge, "{chip}: {part}");
        }
        assert!(part.contains("profile cx4-edr (5a5a5a5a5a;"), "{part}");
        let cut: Vec<&str> =
            part.lines().filter(|line| line.starts_with("(−") && line.ends_with('…')).collect();
        assert!(cut.is_empty(), "{cut:?}");
    }
    // The mark of the choice is not what a long name loses.
    let dir = fresh();
    let made = sample::tune(dir.path(), "tune", 2, false);
    let name = "one-sided, fetch all at once, every other phase one request after the other";
    let csv = format!(
        "point,plan,origin,description,steps,predicted_per_s\n0,tuned,candidate,\"{name}\",one-sided,2e6\n1,b,candidate,b,b,1e6\n"
    );
    std::fs::write(made.join("points.csv"), csv).expect("writes");
    let rendered = draw(&[made], dir);
    assert!(figure(&rendered.html, "tuner-sim-cx4-edr").contains("1. chosen: one-sided"));
}
