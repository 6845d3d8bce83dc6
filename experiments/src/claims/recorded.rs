//! What became of the claims that were judged last: `claims/verdicts.csv`. It takes minutes to judge all of them, so that tests hold the
//! reasons of misses against what was written down then, and what needs no experiment against what it gives today.
//!
//! `VERDICTS_OF=DIR cargo test --workspace --lib recorded` takes over what `doorbell reproduce --out DIR` has judged; the rest stays.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use primitives::measure::{ResultDir, RunRecord, TableName, write_atomic};

use super::scoreboard::Entry;
use super::{Claim, answers, load};

const HEAD: &str = "claim,verdict,got,error";

fn file() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("claims/verdicts.csv")
}

/// What is written down: the verdict of each claim, and behind it what was got and how far it is off.
fn recorded() -> BTreeMap<String, String> {
    let text = std::fs::read_to_string(file()).unwrap();
    let row = |line: &str| line.split_once(',').map(|(claim, rest)| (claim.to_owned(), rest.to_owned()));
    text.lines().skip(1).map(|line| row(line).unwrap()).collect()
}

fn verdict(rest: &str) -> &str {
    rest.split(',').next().unwrap_or_default()
}

#[test]
fn verdicts_are_taken_over_where_that_is_asked_for() {
    let Ok(dir) = std::env::var("VERDICTS_OF") else { return };
    let scoreboard = Path::new(&dir).join("scoreboard");
    let record = RunRecord::read(&scoreboard).unwrap();
    let mut all = recorded();
    for row in ResultDir::read(&scoreboard, &record, TableName::Points).unwrap() {
        let cell = |name: &str| row.get(name).unwrap_or_default();
        if ["pass", "fail", "restated"].contains(&cell("verdict")) {
            let error = cell("error").parse().map_or(String::new(), |error: f64| format!("{error:.4}"));
            let rest = [cell("verdict"), cell("got"), error.as_str()].join(",");
            assert_eq!(rest.matches(',').count(), 2, "{rest}");
            all.insert(cell("claim").to_owned(), rest);
        }
    }
    let rows = all.iter().map(|(claim, rest)| format!("{claim},{rest}\n"));
    write_atomic(&file(), format!("{HEAD}\n{}", rows.collect::<String>()).as_bytes()).unwrap();
}

/// The one rule of a miss: its file says why, or that it is not traced. What passes says nothing.
#[test]
fn what_was_missed_gives_a_reason_and_what_was_met_none() {
    let claims = load().unwrap();
    for (claim, rest) in recorded() {
        let claim = claims.get(&claim).unwrap_or_else(|| panic!("{claim} is no claim"));
        assert!(claim.answered_by.is_some(), "nothing answers {}", claim.id);
        match (verdict(&rest) == "fail", &claim.reason) {
            (true, None) => panic!("{} was missed and gives no reason", claim.id),
            (false, Some(_)) => panic!("{} was not missed and gives a reason", claim.id),
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
        assert_eq!(recorded.get(&claim.id).map(|rest| verdict(rest)), Some(got), "{}", claim.id);
        judged += 1;
    }
    assert!(judged > 10, "{judged}");
}

/// What the README's tables list by id as missed gives a reason in its file, too.
#[test]
fn what_the_readme_lists_as_missed_gives_a_reason() {
    let claims = load().unwrap();
    let text = include_str!("../../claims/README.md");
    let named = |line: &str| claims.get(line.strip_prefix("| ")?.split(" |").next()?).cloned();
    let listed: Vec<Claim> = text.lines().filter_map(named).collect();
    for claim in &listed {
        assert!(claim.reason.is_some(), "{} gives no reason", claim.id);
    }
    assert!(listed.len() > 15, "{}", listed.len());
}
