//! `doorbell tune` and its directory: what of a search is refused and kept, what it tells, and what its plans get when they run.

mod common;

use common::{SMALL, refused_without as refused, told};
use experiments::output::human_rate;
use phases::plan::PlanFile;
use std::path::Path;

/// A directory of another search is refused before anything is looked at, in the words of flags, and what does not fit before a plan
/// is run. The command that is printed runs the choice.
#[test]
fn what_a_search_cannot_keep_or_run_is_told_once() {
    let dir = tempfile::tempdir().unwrap();
    let (out, other) = (dir.path().join("out"), dir.path().join("other"));
    let (out, other) = (out.to_str().unwrap(), other.to_str().unwrap());
    let asked = ["tune", "--protocol", "occ,fasst", "--workload", "tpcc-no", "--fabric", "sim:cx4-edr"];
    let small = [&asked[..], &["--coroutines", "4", "--duration", "50us", "--out"]].concat();
    let (found, _) = told(&[&small[..], &[out]].concat());
    let says = ["holds the results of another run: --verify was not given, and is given now"];
    refused(&[&small[..], &[out, "--verify"]].concat(), &says, &["left out", "--again", "--rounds"]);
    let says = ["--threads was 1, and is 2 now"];
    refused(&[&small[..], &[out, "--threads", "2"]].concat(), &says, &["left out"]);
    // The same search once more: what somebody has made of its plan is not overwritten.
    let plan = Path::new(out).join("tuned.plan.yaml");
    told(&[&small[..], &[out]].concat());
    let edited = std::fs::read_to_string(&plan).unwrap().replace("name: tuned", "name: mine");
    std::fs::write(&plan, &edited).unwrap();
    refused(&[&small[..], &[out]].concat(), &["tuned.plan.yaml has been edited", "hint: move it"], &[]);
    assert_eq!(std::fs::read_to_string(&plan).unwrap(), edited);
    let large = [other, "--verify", "--nodes", "16", "--threads", "64", "--set", "items=100000"];
    let said = common::refused(&[&small[..], &large].concat(), 3, &["error: the run needs about "]);
    assert!(!said.contains("point") && !said.contains("failed"), "{said}");
    assert!(!Path::new(other).join("points.csv").exists());

    let line = found.lines().find_map(|line| line.strip_prefix("to run it: doorbell ")).expect("a command");
    let (ran, _) = told(&line.split(' ').collect::<Vec<_>>());
    assert!(ran.contains("committed"), "{ran}");
}

/// Plans that run in virtual time run once, and the fastest again: the regret says how far off it may be, for people and for programs.
#[test]
fn a_regret_comes_with_its_uncertainty() {
    let dir = tempfile::tempdir().unwrap();
    let (out, json) = (dir.path().join("out"), dir.path().join("tune.json"));
    let asked = ["tune", "--verify", "--coroutines", "2", "--threads", "1", "--duration", "300us"];
    let files = ["--out", out.to_str().unwrap(), "--json", json.to_str().unwrap()];
    let (printed, _) = told(&[&asked[..], SMALL, &files].concat());
    let told: serde_json::Value = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
    let number = |key: &str| told[key].as_f64();
    assert!(number("got_ci_relative").is_some_and(|ci| ci > 0.0 && ci < 0.5), "{told}");
    let is_best = told["best"] == "tuned";
    assert_eq!((number("regret_ci").is_none(), number("regret") == Some(0.0)), (is_best, is_best), "{told}");
    // The best says how far behind the next is.
    let lead = number("lead").zip(number("lead_ci"));
    assert_eq!((lead.is_some(), told["next"].is_string()), (is_best, is_best), "{told}");
    // The plan file is of the fastest, and says by what it was chosen; the model's choice is beside it.
    assert_eq!(told["best_plan_file"], out.join("verified.plan.yaml").to_str().unwrap());
    assert_eq!(told["plan_file"], out.join("tuned.plan.yaml").to_str().unwrap());
    let file = |name: &str| PlanFile::load(&out.join(name)).unwrap();
    let (best, choice) = (file("verified.plan.yaml"), file("tuned.plan.yaml"));
    let json = |plan: &PlanFile| serde_json::to_value(plan.plan).unwrap();
    assert_eq!((json(&best), json(&choice)), (told["best_plan"].clone(), told["plan"].clone()));
    assert_eq!(best.plan == choice.plan, is_best, "{told}");
    assert!(
        best.chosen_by.starts_with("doorbell tune and runs of its rivals, ")
            && best.why.contains("(simulated)"),
        "{best:?}"
    );
    assert!(best.prediction.is_some(), "what the model expected of it");
    let ran = ["run", "--plan", "PLAN", "--threads", "1", "--duration", "300us"];
    let plan = out.join("verified.plan.yaml");
    let ran = ran.map(|word| if word == "PLAN" { plan.to_str().unwrap() } else { word });
    let (ran, _) = self::told(&[&ran, SMALL].concat());
    assert!(
        ran.contains("\nverified: {") && ran.contains(" committed (") && ran.contains("predicted: "),
        "{ran}"
    );
    let edited = std::fs::read_to_string(&plan).unwrap().replace("name: verified", "name: mine");
    std::fs::write(&plan, &edited).unwrap();
    let same = [&asked[..], SMALL, &["--out", out.to_str().unwrap()]].concat();
    refused(&same, &["verified.plan.yaml has been edited", "hint: move it"], &[]);
    assert_eq!(std::fs::read_to_string(&plan).unwrap(), edited);
    let points = std::fs::read_to_string(out.join("points.csv")).unwrap();
    let header: Vec<&str> = points.lines().next().unwrap().split(',').collect();
    assert!(header.contains(&"got_ci_relative"), "{points}");
    let place = |name: &str| header.iter().position(|column| *column == name).unwrap();
    let (plan, round) = (place("plan"), place("round"));
    let again = |turn: &str| -> Vec<String> {
        let cells = points.lines().skip(1).map(|line| line.split(',').collect::<Vec<_>>());
        let of_turn = cells.filter(|cells| cells[cells.len() + round - header.len()] == turn);
        of_turn.map(|cells| cells[plan].to_owned()).collect()
    };
    let (once, twice) = (again("1"), again("2"));
    // As many as the shortlist has ran because of what those before got, none of them twice.
    let record: serde_json::Value =
        serde_json::from_slice(&std::fs::read(out.join("run.json")).unwrap()).unwrap();
    let (rivals, further) =
        (record["spec"]["rivals"].as_array().unwrap().len(), record["spec"]["further"].as_u64());
    assert_eq!((further, once.len()), (Some(12), rivals + 12), "{record}");
    let steps = points.lines().skip(1).take(once.len()).map(|line| line.split("\"{").nth(1).expect("steps"));
    let different: std::collections::BTreeSet<&str> =
        steps.map(|steps| steps.split("}\"").next().unwrap()).collect();
    assert_eq!(different.len(), once.len(), "{points}");
    assert!(once.len() > 4 && twice.len() == 4 && twice[0] == "tuned" && twice == again("3"), "{points}");
    assert!(twice.iter().all(|plan| once.contains(plan)), "{points}");
    // Beside what was foretold of presets stands what they got; of one that ran once, what its row says.
    let mut presets = printed.lines().skip_while(|line| !line.starts_with(" preset "));
    assert!(presets.next().expect("a table").trim_end().ends_with("got"), "{printed}");
    let presets: Vec<&str> = presets.skip(1).take_while(|line| !line.is_empty()).collect();
    assert!(presets.len() > 4 && presets.iter().all(|line| line.ends_with("/s")), "{printed}");
    let got = place("got_per_s");
    for cells in points.lines().skip(1).map(|line| line.split(',').collect::<Vec<_>>()) {
        let name = cells[plan];
        let Some(line) = presets.iter().find(|line| line.split_whitespace().next() == Some(name)) else {
            continue;
        };
        if !twice.iter().any(|other| other == name) {
            let rate: f64 = cells[cells.len() + got - header.len()].parse().unwrap();
            assert!(line.ends_with(&format!(" {}", human_rate(rate))), "{line}: {rate}");
        }
    }
}

/// Under which plan nothing commits has lost, and where nothing commits under any there is nothing to choose.
#[test]
fn a_plan_that_commits_nothing_is_no_failure_where_another_commits() {
    let dir = tempfile::tempdir().unwrap();
    let out = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let tuned = |protocol, coroutines, duration, name: &str| {
        let words = format!(
            "tune --verify --fabric sim:cx4-edr --nodes 2 --replicas 1 --workload ycsb --set records_per_thread=2 \
             --set operations=4 --protocol {protocol} --coroutines {coroutines} --duration {duration} --out"
        );
        words.split(' ').map(str::to_owned).chain([out(name)]).collect::<Vec<String>>()
    };
    let asked = tuned("waitdie", 16, "60us", "some");
    let (printed, _) = told(&asked.iter().map(String::as_str).collect::<Vec<_>>());
    assert!(printed.contains("verified: the chosen plan got "), "{printed}");
    let points = std::fs::read_to_string(dir.path().join("some/points.csv")).unwrap();
    let header: Vec<&str> = points.lines().next().unwrap().split(',').collect();
    let got = header.len() - header.iter().position(|column| *column == "got_per_s").unwrap();
    let rows = points.lines().skip(1).map(|line| line.split(',').collect::<Vec<_>>());
    let rates: Vec<f64> = rows.map(|cells| cells[cells.len() - got].parse().unwrap()).collect();
    assert!(rates.contains(&0.0) && rates.iter().any(|rate| *rate > 0.0), "{points}");
    let asked = tuned("nowait", 32, "20us", "none");
    let output = common::run(&asked.iter().map(String::as_str).collect::<Vec<_>>());
    assert_eq!(common::code(&output), 1);
    let said = common::stderr(&output);
    assert!(said.contains("no plan committed anything") && said.contains("hint: give a longer"), "{said}");
}

/// Where no count of coroutines is asked for, the plan that got the most runs with each count that the search tries, and what is left to
/// be run has the one by which it is the quickest of those that are as good as the most.
#[test]
fn the_plan_that_got_the_most_runs_with_each_count_of_coroutines() {
    let dir = tempfile::tempdir().unwrap();
    let (out, json) = (dir.path().join("out"), dir.path().join("tune.json"));
    let asked = ["tune", "--verify", "--threads", "1", "--duration", "200us"];
    let files = ["--out", out.to_str().unwrap(), "--json", json.to_str().unwrap()];
    told(&[&asked[..], SMALL, &files].concat());
    let told: serde_json::Value = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
    let counts = told["by_coroutines"].as_array().unwrap();
    let all = |key: &str| counts.iter().map(|count| count[key].as_f64().unwrap()).collect::<Vec<_>>();
    let (coroutines, rates, means) = (all("coroutines"), all("got_per_s"), all("got_mean_ns"));
    assert_eq!(coroutines, [1.0, 2.0, 4.0, 6.0, 8.0, 12.0, 16.0, 24.0, 32.0]);
    assert!(rates[0] < rates[3] && means[0] < means[8], "{told}");
    let ci = counts.iter().map(|count| count["got_ci_relative"].as_f64()).collect::<Vec<_>>();
    let most = (0..counts.len()).max_by(|&a, &b| rates[a].total_cmp(&rates[b])).unwrap();
    let as_good = (0..counts.len()).filter(|&place| {
        let kept = rates[place] / rates[most];
        let both = ci[place].zip(ci[most]).map(|(a, b)| kept * a.hypot(b));
        let known = both.or(ci[place]).or(ci[most]).unwrap_or(0.0);
        1.0 - kept <= known.max(0.01)
    });
    let best = as_good.min_by(|&a, &b| means[a].total_cmp(&means[b])).unwrap();
    let plan = PlanFile::load(&out.join("verified.plan.yaml")).unwrap();
    assert_eq!(f64::from(plan.plan.coroutines), coroutines[best], "{told}");
    assert_eq!(serde_json::to_value(plan.plan).unwrap(), told["best_plan"]);
    let foretold = plan.prediction.unwrap();
    // JSON is read to the last but one digit.
    let said = counts[best]["predicted_per_s"].as_f64().unwrap();
    assert!((foretold.committed_per_s / said - 1.0).abs() < 1e-12, "{} {said}", foretold.committed_per_s);
    // They are no rivals: what the choice lost is told beside other plans, each with its own count.
    let points = std::fs::read_to_string(out.join("points.csv")).unwrap();
    let header: Vec<&str> = points.lines().next().unwrap().split(',').collect();
    let behind = |name: &str| header.len() - header.iter().position(|column| *column == name).unwrap();
    let (count, got) = (behind("coroutines"), behind("got_per_s"));
    let rows = points.lines().skip(1).map(|line| line.split(',').collect::<Vec<_>>());
    let (plans, counted): (Vec<_>, Vec<_>) = rows.partition(|cells| cells[cells.len() - count].is_empty());
    assert_eq!(counted.len(), counts.len(), "{points}");
    let fastest =
        plans.iter().filter_map(|cells| cells[cells.len() - got].parse::<f64>().ok()).fold(0.0, f64::max);
    assert!(told["best_per_s"].as_f64().is_some_and(|best| best <= fastest), "{told}\n{points}");
    // There is nothing left to run, which is said once.
    let (_, talk) = self::told(&[&asked[..], SMALL, &files[..2]].concat());
    let all = format!("nothing to measure, all {} points are there", points.lines().count() - 1);
    assert_eq!((talk.matches("nothing to measure").count(), talk.matches(&all).count()), (1, 1), "{talk}");
    assert!(talk.matches("measured for too short a time").count() < 2, "{talk}");
    let page = dir.path().join("page");
    self::told(&["report", out.to_str().unwrap(), "--out", page.to_str().unwrap()]);
    let page = std::fs::read_to_string(page.join("report.html")).unwrap();
    assert!(page.contains("The plan that got the most, by coroutines"), "no figure");
}

/// Where time is real plans run in turns, and the regret is known as well as those runs agree.
#[test]
fn plans_that_run_in_real_time_take_turns() {
    let dir = tempfile::tempdir().unwrap();
    let (out, json) = (dir.path().join("out"), dir.path().join("tune.json"));
    let asked = [
        "tune",
        "--verify",
        "--fabric",
        "loopback",
        "--profile",
        "cx4-edr",
        "--coroutines",
        "2",
        "--threads",
        "1",
    ];
    let sizes =
        ["--nodes", "2", "--replicas", "1", "--set", "accounts_per_thread=1000", "--duration", "50ms"];
    let files = ["--out", out.to_str().unwrap(), "--json", json.to_str().unwrap()];
    told(&[&asked[..], &sizes, &files].concat());
    let points = std::fs::read_to_string(out.join("points.csv")).unwrap();
    let mut lines = points.lines().map(|line| line.split(',').collect::<Vec<_>>());
    let header = lines.next().unwrap();
    let place = |name: &str| header.iter().position(|column| *column == name).unwrap();
    let (plan, round) = (place("plan"), place("round"));
    // A description may hold a comma, and is quoted then; it stands behind the plan and before the round.
    let rows: Vec<(String, String)> = lines
        .map(|cells| (cells[plan].to_owned(), cells[cells.len() + round - header.len()].to_owned()))
        .collect();
    let plans = |round: &str| rows.iter().filter(|row| row.1 == round).map(|row| &row.0).collect::<Vec<_>>();
    let there = plans("1");
    assert!(there.len() > 2 && there[0] == "tuned", "{points}");
    let back: Vec<&String> = there.iter().rev().copied().collect();
    for (round, order) in ["2", "3", "4", "5"].into_iter().zip([&back, &there, &back, &there]) {
        assert_eq!(&plans(round), order, "round {round}\n{points}");
    }
    assert!(rows.is_sorted_by_key(|row| &row.1) && rows.len() == 5 * there.len(), "{points}");
    let told: serde_json::Value = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
    let ci = told["regret_ci"].as_f64().or(told["lead_ci"].as_f64());
    assert!(ci.is_some_and(|ci| ci > 0.0), "{told}");
}

/// The budget of the location caches and the choices beside primitives are told to people and to programs, and the command that is
/// printed asks for the budget; one that was asked for is searched with, and none is chosen.
#[test]
fn the_tuner_chooses_a_cache_budget_and_tells_what_each_choice_saves() {
    let dir = tempfile::tempdir().unwrap();
    let args = ["tune", "--fabric", "sim:cx4-edr", "--set", "accounts_per_thread=10000", "--coroutines", "8"];
    let tuned = |name: &str, more: &[&str]| {
        let (out, json) = (dir.path().join(name), dir.path().join(format!("{name}.json")));
        let files = ["--out", out.to_str().unwrap(), "--json", json.to_str().unwrap()];
        let (text, _) = self::told(&[&args[..], &files, more].concat());
        let told: serde_json::Value = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
        let plan = std::fs::read_to_string(out.join("tuned.plan.yaml")).unwrap();
        (text, told, plan)
    };
    let (text, told, plan) = tuned("usual", &[]);
    let bytes = told["cache_budget"]["cache_bytes"].as_u64().expect("a budget");
    let ladder = told["cache_budget"]["ladder"].as_array().unwrap();
    let rate = |rung: &serde_json::Value| rung["predicted_per_s"].as_f64().unwrap();
    let most = ladder.iter().map(rate).fold(0.0, f64::max);
    let first = ladder.iter().find(|rung| rate(rung) >= 0.99 * most).unwrap();
    assert_eq!(first["cache_bytes"], bytes);
    assert!(bytes < 4 << 20 && rate(&ladder[0]) < 0.9 * most, "{ladder:?}");
    let flag = format!("--cache-bytes {bytes}");
    let command = text.lines().find(|line| line.starts_with("to run it: ")).expect("a command");
    assert!(command.contains(&flag) && plan.contains(&flag), "{command}\n{plan}");
    for says in [&format!("are enough ({flag})"), "the smallest within 1 % of the best"] {
        assert!(text.contains(says), "no {says}:\n{text}");
    }
    let turned = told["turned_round"].as_array().unwrap();
    let passive = turned.iter().find(|one| one["feature"] == "passive-ack" && one["on"] == true).unwrap();
    let falls = passive["otherwise"][0]["rate_falls"].as_f64().unwrap();
    assert!(passive["matters"] == true && falls > 0.01, "{passive}");
    let prose = text.replace("\n  ", " ");
    let line = prose.lines().find(|line| line.starts_with("passive ACK (")).expect("a sentence");
    let says = format!("without it the rate would fall by {:.1} %", 100.0 * falls);
    assert!(line.contains(" round trips") && line.contains(&says), "{line}");
    assert!(plan.contains(&says) && prose.contains("no difference that the model sees: "), "{plan}\n{text}");
    // Of what was asked for nothing is chosen.
    let (text, small, _) = tuned("small", &["--cache-bytes", "4096"]);
    assert_eq!(small["cache_budget"], serde_json::Value::Null);
    let command = text.lines().find(|line| line.starts_with("to run it: ")).expect("a command");
    assert!(command.contains("--cache-bytes 4096") && !text.contains("are enough"), "{text}");
    let predicted = |told: &serde_json::Value| told["predicted_per_s"].as_f64().unwrap();
    assert!(predicted(&small) < 0.95 * predicted(&told), "{} {}", predicted(&small), predicted(&told));
}
