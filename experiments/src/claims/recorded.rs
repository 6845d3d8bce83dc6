//! What became of the claims that were judged last: `claims/verdicts.csv` for programs, `claims/RESULTS.md` for people. It takes minutes to
//! judge all of them, so that tests hold the reasons of misses against what was written down then, and what needs no experiment against
//! what it gives today.
//!
//! `VERDICTS_OF=DIR cargo test --workspace --lib recorded` takes over what `doorbell reproduce --out DIR` has judged; the rest stays, with
//! the build that judged it. `VERDICTS_OF=` alone writes the page anew, after a claim's reason was mended for example.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use primitives::measure::{ResultDir, RunRecord, TableName, count, short_commit, write_atomic};
use serde::{Deserialize, Serialize};

use super::scoreboard::{self, Counts, Entry, KINDS};
use super::verdict::Verdict;
use super::{Claim, Claims, Kind, Split, aims, answers, by_obstacle, library, load};

/// What became of a claim.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Recorded {
    claim: String,
    verdict: String,
    /// As the scoreboard tells it.
    got: String,
    /// Relative, where there is a number.
    error: Option<f64>,
    /// The numbers behind a relation.
    detail: String,
    /// The build that judged it.
    build: String,
}

impl Recorded {
    fn missed(&self) -> bool {
        self.verdict == "fail"
    }
}

fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("claims").join(name)
}

/// What is written down, by claim.
fn recorded() -> BTreeMap<String, Recorded> {
    let mut rows = csv::Reader::from_path(file("verdicts.csv")).unwrap();
    let rows = rows.deserialize().map(|row: Result<Recorded, _>| row.unwrap());
    rows.map(|row| (row.claim.clone(), row)).collect()
}

/// What `doorbell reproduce --out DIR` has judged.
fn judged_in(dir: &Path) -> impl Iterator<Item = Recorded> {
    let scoreboard = dir.join("scoreboard");
    let record = RunRecord::read(&scoreboard).unwrap();
    let rows = ResultDir::read(&scoreboard, &record, TableName::Points).unwrap();
    let judged = rows.into_iter().map(move |row| {
        let cell = |name: &str| row.get(name).unwrap_or_default().to_owned();
        let build = short_commit(&record.commit, 7);
        let error = cell("error").parse().ok().map(|error: f64| (1e4 * error).round() / 1e4);
        Recorded {
            claim: cell("claim"),
            verdict: cell("verdict"),
            got: cell("got"),
            error,
            detail: cell("detail"),
            build,
        }
    });
    judged.filter(|row| ["pass", "fail", "restated"].contains(&row.verdict.as_str()))
}

/// The page for people: every claim that was judged, and of each that was missed the reason.
fn page(claims: &Claims, recorded: &BTreeMap<String, Recorded>) -> String {
    let builds: BTreeSet<&str> = recorded.values().map(|row| row.build.as_str()).collect();
    let of_build = |build: &&str| {
        let claims = recorded.values().filter(|row| row.build == **build).count();
        format!("{build} ({})", count(claims as u64, "claim"))
    };
    let open = claims.iter().filter(|claim| claim.not_yet.is_some()).count();
    let mut text = format!(
        "# What became of the claims\n\n\
         What `doorbell reproduce` got for each of the {} claims that it answers: predictions of the simulator, seed 1, build {}. \
         [README.md](README.md) tells how they are judged and what the misses have in common. \
         Errors are of what is compared: a gain of 13 % as 1.13, a loss of 5 % as 0.95, of a bound (at least, at most, up to) the number that it \
         names, whichever side is asked; and what is published must also show, by more than half of it and by more than the rates are known \
         (`src/claims/verdict.rs`), so that a small error may be a miss and a large one none. \
         The other {} claims stand [below](#what-nothing-answers-{}-claims), each with why. \
         This page is written from `verdicts.csv` and the claims' files (`src/claims/recorded.rs`), and a test holds it to them.\n",
        recorded.len(),
        builds.iter().map(of_build).collect::<Vec<_>>().join(", "),
        open,
        open
    );
    text.push_str(&by_kind(claims, recorded));
    text.push_str(&aims::text(&entries(claims, recorded), by_transactions()));
    let mut papers: Vec<&str> = claims.iter().map(|claim| claim.paper.as_str()).collect();
    papers.dedup();
    for paper in papers {
        for split in [Split::Calibrate, Split::HoldOut] {
            let rows: Vec<(&Claim, &Recorded)> = claims
                .iter()
                .filter(|claim| claim.paper == paper && claim.split == split)
                .filter_map(|claim| Some((claim, recorded.get(&claim.id)?)))
                .collect();
            if !rows.is_empty() {
                text.push_str(&section(paper, split, &rows));
            }
        }
    }
    text.push_str(&unanswered(claims));
    text.push_str(&contradicting(claims, recorded));
    text
}

/// What nothing answers, by obstacle and paper, and why each is not answered.
fn unanswered(claims: &Claims) -> String {
    let mut papers: Vec<&str> = claims.iter().map(|claim| claim.paper.as_str()).collect();
    papers.dedup();
    let open = by_obstacle(claims.iter());
    let all: usize = open.iter().map(|(_, claims)| claims.len()).sum();
    let head = papers.join(" | ");
    let mut text = format!(
        "\n## What nothing answers: {all} claims\n\n\
         `reproduce --json` lists them under `not_yet`.\n\n\
         | kind | what it means | all | {head} |\n|---|---|--:|{}\n",
        "--:|".repeat(papers.len())
    );
    for (kind, claims) in &open {
        let of_paper = |paper: &&str| match claims.iter().filter(|(claim, _)| claim.paper == **paper).count()
        {
            0 => String::new(),
            number => number.to_string(),
        };
        let cells = papers.iter().map(of_paper).collect::<Vec<_>>().join(" | ");
        text.push_str(&format!("| {} | {} | {} | {cells} |\n", kind.name(), kind.meaning(), claims.len()));
    }
    for (kind, claims) in &open {
        text.push_str(&format!(
            "\n### {}: {}\n\n| claim | where | what | published | why |\n|---|---|---|---|---|\n",
            kind.name(),
            kind.meaning()
        ));
        for (claim, not_yet) in claims {
            let published = claim.value.text(&claim.unit);
            let cells = [&claim.id, &claim.place, &claim.metric, &published, &not_yet.why];
            text.push_str(&format!(
                "| {} |\n",
                cells.map(|text| text.trim().replace('|', "\\|")).join(" | ")
            ));
        }
    }
    text
}

/// Pairs of claims that cannot hold together, each once, whether or not they are judged.
fn contradicting(claims: &Claims, recorded: &BTreeMap<String, Recorded>) -> String {
    let mut text = "\n## Where papers contradict themselves or each other\n\n\
                    These cannot hold together of one configuration; both numbers stand, and each is judged by itself. \
                    Why is told in the claims' files (`caveat`).\n\n\
                    | claim | published | got | against | published | got |\n|---|---|--:|---|---|--:|\n"
        .to_owned();
    let cells = |claim: &Claim| {
        let got = recorded.get(&claim.id).map_or("not yet", |row| match row.got.as_str() {
            "" => row.verdict.as_str(),
            got => got,
        });
        [claim.id.clone(), claim.value.text(&claim.unit), got.to_owned()]
            .map(|t| t.replace('|', "\\|"))
            .join(" | ")
    };
    for claim in claims.iter() {
        let others = claim.contradicts.iter().filter(|other| claim.id < **other);
        for other in others.filter_map(|id| claims.get(id)) {
            text.push_str(&format!("| {} | {} |\n", cells(claim), cells(other)));
        }
    }
    text
}

/// The recorded verdicts as rows of the scoreboard, which counts them.
fn entries<'c>(claims: &'c Claims, recorded: &BTreeMap<String, Recorded>) -> Vec<Entry<'c>> {
    let entry = |claim: &'c Claim| {
        let row = recorded.get(&claim.id)?;
        let verdict =
            [Verdict::Pass, Verdict::Fail, Verdict::Restated].into_iter().find(|v| v.name() == row.verdict);
        Some(Entry { claim, answer: None, verdict: verdict.unwrap(), error: row.error, why: None })
    };
    claims.iter().filter_map(entry).collect()
}

/// Whether transactions answer a claim, and not requests alone or a profile's number; experiments are read once.
fn by_transactions() -> impl Fn(&Claim) -> bool {
    let of_transactions = |name: &&str| !library::is_primitive(&library::experiment(name).unwrap());
    let experiments: BTreeSet<&str> = library::names().filter(of_transactions).collect();
    move |claim| {
        let experiment = claim.answered_by.as_ref().and_then(|by| by.experiment.as_deref());
        experiment.is_some_and(|name| experiments.contains(name))
    }
}

fn of(passed: usize, all: usize) -> String {
    if all > 0 { format!("{passed} of {all}") } else { String::new() }
}

fn percent(share: Option<f64>) -> String {
    share.map_or(String::new(), crate::output::percent)
}

/// How many of each kind passed, by split, paper and what answers them.
fn by_kind(claims: &Claims, recorded: &BTreeMap<String, Recorded>) -> String {
    let (entries, by_transactions) = (entries(claims, recorded), by_transactions());
    let groups: BTreeSet<(Split, &str, bool)> =
        entries.iter().map(|e| (e.claim.split, e.claim.paper.as_str(), by_transactions(e.claim))).collect();
    let head = KINDS.map(|kind| format!("{}s", kind.name())).join(" | ");
    let mut text = format!(
        "\n| passed of those checked | all | {head} | figures whose relations all hold | median error |\n|---|--:|{}--:|\n",
        "--:|".repeat(KINDS.len() + 1)
    );
    for (split, paper, transactions) in groups {
        let here =
            |c: &Claim| (c.split, c.paper.as_str(), by_transactions(c)) == (split, paper, transactions);
        let all = scoreboard::count(&entries, here);
        let kinds = KINDS.map(|kind| {
            let counts = scoreboard::count(&entries, |claim| here(claim) && claim.kind == kind);
            of(counts.passed, counts.checked)
        });
        let what = if transactions { "transactions" } else { "requests alone" };
        text.push_str(&format!(
            "| {}, {paper}, {what} | {} | {} | {} | {} |\n",
            split.name(),
            of(all.passed, all.checked),
            kinds.join(" | "),
            of(all.families_passed, all.families),
            percent(all.median_error)
        ));
    }
    text
}

fn section(paper: &str, split: Split, rows: &[(&Claim, &Recorded)]) -> String {
    // A bar would end a cell.
    let cell = |text: &str| text.replace('|', "\\|");
    let passed = rows.iter().filter(|(_, row)| row.verdict == "pass").count();
    let restated = rows.iter().filter(|(_, row)| row.verdict == "restated").count();
    let mut text = format!("\n## {paper}, {}: {passed} of {} pass", split.name(), rows.len() - restated);
    if restated > 0 {
        text.push_str(&format!(", {restated} restate what they set"));
    }
    text.push_str(
        "\n\n| claim | where | what | published | got | error | verdict |\n|---|---|---|---|--:|--:|---|\n",
    );
    for (claim, row) in rows {
        let error = row.error.map_or(String::new(), crate::output::change);
        let published = claim.value.text(&claim.unit);
        let cells = [&claim.id, &claim.place, &claim.metric, &published, &row.got, &error, &row.verdict];
        text.push_str(&format!("| {} |\n", cells.map(|text| cell(text)).join(" | ")));
    }
    let missed: Vec<_> = rows.iter().filter(|(_, row)| row.missed()).collect();
    if !missed.is_empty() {
        text.push_str("\nMissed:\n\n");
    }
    for (claim, row) in missed {
        let detail = match row.detail.as_str() {
            "" => String::new(),
            detail => format!(" ({detail})"),
        };
        let reason = claim.reason.as_deref().unwrap_or_default().trim_end();
        text.push_str(&format!("- **{}**{detail}: {reason}\n", claim.id));
    }
    text
}

#[test]
fn verdicts_are_taken_over_where_that_is_asked_for() {
    let Ok(dir) = std::env::var("VERDICTS_OF") else { return };
    let mut all = recorded();
    if !dir.is_empty() {
        all.extend(judged_in(Path::new(&dir)).map(|row| (row.claim.clone(), row)));
    }
    let mut rows = csv::Writer::from_writer(Vec::new());
    all.values().for_each(|row| rows.serialize(row).unwrap());
    write_atomic(&file("verdicts.csv"), &rows.into_inner().unwrap()).unwrap();
    write_atomic(&file("RESULTS.md"), page(&load().unwrap(), &all).as_bytes()).unwrap();
}

#[test]
fn the_page_is_that_of_what_is_recorded() {
    if std::env::var("VERDICTS_OF").is_ok() {
        return;
    }
    let told = std::fs::read_to_string(file("RESULTS.md")).unwrap();
    assert!(
        told == page(&load().unwrap(), &recorded()),
        "claims/RESULTS.md is another's: VERDICTS_OF= cargo test --workspace --lib recorded"
    );
}

/// What READMEs say of how many passed is what is recorded.
#[test]
fn readmes_count_what_passed_as_recorded() {
    let claims = load().unwrap();
    let (entries, by_transactions) = (entries(&claims, &recorded()), by_transactions());
    let hold_out = |belongs: &dyn Fn(&Claim) -> bool| {
        scoreboard::count(&entries, |claim| claim.split == Split::HoldOut && belongs(claim))
    };
    let passed = |counts: &Counts| of(counts.passed, counts.checked);
    let requests = hold_out(&|c| !by_transactions(c));
    let transactions = hold_out(&by_transactions);
    let of_paper = |paper: &str| passed(&hold_out(&|c| c.paper == paper));
    let by_paper = |paper: &str| passed(&hold_out(&|c| c.paper == paper && by_transactions(c)));
    let of_kind = |kind: Kind| passed(&hold_out(&|c| c.kind == kind && !by_transactions(c)));
    let (met, off) = (passed(&requests), percent(requests.median_error));
    let here = [
        format!("requests alone answer {met} pass, with a median error of {off};"),
        format!("{} of DrTM+H's and {} of RCC's", by_paper("drtmh-osdi18"), by_paper("rcc-vldb")),
    ];
    let others = |c: &Claim| !["drtmh-osdi18", "rcc-vldb"].contains(&&*c.paper);
    let root = [
        format!(
            "| NAM-DB, 2PL and RAMP: {} by requests alone, {} by transactions | {} |",
            hold_out(&|c| others(c) && !by_transactions(c)).checked,
            hold_out(&|c| others(c) && by_transactions(c)).checked,
            passed(&hold_out(&others))
        ),
        format!("| {} |", of_paper("drtmh-osdi18")),
        format!("| {} |", of_paper("rcc-vldb")),
        format!("requests alone answer {met} pass, {} orderings", of_kind(Kind::Ordering)),
        format!("(all those of {} in {} figures)", requests.families_passed, requests.families),
        format!("and {} ratios, with a median error of {off};", of_kind(Kind::Ratio)),
        format!(
            "transactions answer {} ({} in {} figures)",
            passed(&transactions),
            transactions.families_passed,
            transactions.families
        ),
    ];
    for (text, told) in
        [(include_str!("../../claims/README.md"), &here[..]), (include_str!("../../../README.md"), &root[..])]
    {
        let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
        told.iter().for_each(|told| assert!(words.contains(told.as_str()), "{told}"));
    }
}

/// The one rule of a miss: its file says why, or that it is not traced. What passes says nothing.
#[test]
fn what_was_missed_gives_a_reason_and_what_was_met_none() {
    let claims = load().unwrap();
    for (id, row) in recorded() {
        let claim = claims.get(&id).unwrap_or_else(|| panic!("{id} is no claim"));
        assert!(claim.answered_by.is_some(), "nothing answers {id}");
        match (row.missed(), &claim.reason) {
            (true, None) => panic!("{id} was missed and gives no reason"),
            (false, Some(_)) => panic!("{id} was not missed and gives a reason"),
            _ => {}
        }
    }
}

/// Those that read a profile, or what a handler takes by it, are judged here and now.
#[test]
fn what_needs_no_experiment_is_judged_as_recorded() {
    let claims = load().unwrap();
    let recorded = recorded();
    let at_once = |claim: &&Claim| claim.answered_by.as_ref().is_some_and(|by| by.experiment.is_none());
    let mut judged = 0;
    for claim in claims.iter().filter(at_once) {
        let binding = claim.answered_by.as_ref().unwrap();
        let answer = answers::parameter(binding, claim, &answers::Profiles::shipped()).unwrap();
        let got = Entry::new(claim, answer).verdict.name();
        assert_eq!(recorded.get(&claim.id).map(|row| row.verdict.as_str()), Some(got), "{}", claim.id);
        judged += 1;
    }
    assert!(judged > 10, "{judged}");
}

/// What a calibrate claim misses is a residual of a profile, and stands in the file of one.
#[test]
fn a_calibrate_claim_that_was_missed_stands_in_a_profile() {
    let claims = load().unwrap();
    let profiles = Path::new(env!("CARGO_MANIFEST_DIR")).join("../primitives/profiles");
    let read = |name: &&str| std::fs::read_to_string(profiles.join(format!("{name}.profile.yaml"))).unwrap();
    let texts: String = primitives::profile::Profile::NAMES.iter().map(read).collect();
    // By its id, or with others: DRH-T3-*-time.
    let words: BTreeSet<&str> =
        texts.split(|c: char| !(c.is_ascii_alphanumeric() || c == '-' || c == '*')).collect();
    let meant = |word: &&str, id: &str| match word.split_once('*') {
        Some((first, last)) => {
            first.len() + last.len() < id.len()
                && id.starts_with(first)
                && id.ends_with(last)
                && !first.is_empty()
        }
        None => *word == id,
    };
    let named = |id: &str| words.iter().any(|word| meant(word, id));
    let missed: Vec<String> = (recorded().into_values().filter(Recorded::missed))
        .map(|row| row.claim)
        .filter(|id| claims.get(id).is_some_and(|claim| claim.split == Split::Calibrate))
        .collect();
    let untold: Vec<&String> = missed.iter().filter(|id| !named(id)).collect();
    assert!(missed.len() > 2 && untold.is_empty(), "of {missed:?} no profile names {untold:?}");
}
