//! What was aimed at for the hold-out claims, and how near it is: a part of `claims/RESULTS.md`.

use std::collections::BTreeMap;

use super::scoreboard::Entry;
use super::verdict::Verdict;
use super::{Claim, Form, Kind, Split};

/// An aim: every relation holds, every number is within `each` percent, and their median within `median`.
struct Aim {
    what: &'static str,
    /// `None`: all papers.
    paper: Option<&'static str>,
    transactions: bool,
    /// Whether headlines are aimed at beside ratios.
    headlines: bool,
    each: f64,
    median: f64,
}

const AIMS: [Aim; 3] = [
    Aim {
        what: "requests alone",
        paper: None,
        transactions: false,
        headlines: true,
        each: 15.0,
        median: 7.0,
    },
    Aim {
        what: "DrTM+H's transactions",
        paper: Some("drtmh-osdi18"),
        transactions: true,
        headlines: true,
        each: 20.0,
        median: 10.0,
    },
    Aim {
        what: "RCC's transactions",
        paper: Some("rcc-vldb"),
        transactions: true,
        headlines: false,
        each: 25.0,
        median: 12.0,
    },
];

/// RCC's findings, by which its claims are numbered.
const FINDINGS: [&str; 7] = ["RCC-F1", "RCC-F2", "RCC-F3", "RCC-F4", "RCC-F5", "RCC-F6", "RCC-F7"];

/// A bound ("over 7.3", "below 0.7 ms") may be met at any distance: its number says nothing of how near a prediction is.
fn is_bound(claim: &Claim) -> bool {
    matches!(claim.value.form, Form::AtLeast | Form::AtMost)
}

fn relation(claim: &Claim) -> bool {
    matches!(claim.kind, Kind::Ordering | Kind::Shape)
}

fn met(entry: &Entry<'_>) -> bool {
    entry.verdict == Verdict::Pass
}

fn share(of: impl Iterator<Item = bool>) -> String {
    let all: Vec<bool> = of.collect();
    format!("{} of {}", all.iter().filter(|held| **held).count(), all.len())
}

fn median(errors: &mut [f64]) -> String {
    errors.sort_by(f64::total_cmp);
    let middle = errors.len() / 2;
    match errors {
        [] => String::new(),
        all if all.len() % 2 == 1 => format!("{:.1} %", all[middle]),
        all => format!("{:.1} %", (all[middle - 1] + all[middle]) / 2.0),
    }
}

/// The aims beside what came of them, and RCC's findings one by one.
pub(super) fn text(entries: &[Entry<'_>], by_transactions: impl Fn(&Claim) -> bool) -> String {
    let held_out: Vec<&Entry<'_>> = entries.iter().filter(|e| e.claim.split == Split::HoldOut).collect();
    let mut text = "\n## What was aimed at\n\n\
         Of the hold-out claims: every relation holds, each number is within so many percent, and half of them within the median. \
         Errors are without their sign, and what is stated as at least or at most is not among them, which may be met at any distance. \
         A number may be within its aim and missed all the same (it must be within 15 %, and show), and the other way about.\n\n\
         | | relations that hold | numbers within | median error, aimed at | ratios' | headlines' |\n|---|--:|--:|--:|--:|--:|\n"
        .to_owned();
    for aim in &AIMS {
        let here = |e: &&&Entry<'_>| {
            aim.paper.is_none_or(|paper| e.claim.paper == paper)
                && by_transactions(e.claim) == aim.transactions
        };
        let all: Vec<&Entry<'_>> = held_out.iter().filter(here).copied().collect();
        let relations = share(all.iter().filter(|e| relation(e.claim)).map(|e| met(e)));
        let errors = |kinds: &[Kind]| -> Vec<f64> {
            let numbers = all.iter().filter(|e| kinds.contains(&e.claim.kind) && !is_bound(e.claim));
            numbers.filter_map(|e| e.error).map(|error| 100.0 * error.abs()).collect()
        };
        let asked: &[Kind] = if aim.headlines { &[Kind::Ratio, Kind::Headline] } else { &[Kind::Ratio] };
        let mut numbers = errors(asked);
        let within = share(numbers.iter().map(|error| *error <= aim.each));
        text.push_str(&format!(
            "| {}{} | {relations} | {within} (within {} %) | {}, {} % | {} | {} |\n",
            aim.what,
            if aim.headlines { "" } else { " (numbers: ratios)" },
            aim.each,
            median(&mut numbers),
            aim.median,
            median(&mut errors(&[Kind::Ratio])),
            median(&mut errors(&[Kind::Headline])),
        ));
    }
    text.push_str("\nRelations of RCC's findings that hold: ");
    text.push_str(&findings(&held_out));
    text.push_str(".\n");
    text
}

fn findings(held_out: &[&Entry<'_>]) -> String {
    let mut by_finding: BTreeMap<&str, Vec<bool>> = BTreeMap::new();
    for entry in held_out.iter().filter(|e| relation(e.claim)) {
        let finding = FINDINGS.iter().find(|name| {
            let rest = entry.claim.id.strip_prefix(*name);
            rest.is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_lowercase()))
        });
        if let Some(finding) = finding {
            by_finding.entry(finding).or_default().push(met(entry));
        }
    }
    let told = by_finding.into_iter().map(|(finding, held)| {
        format!("finding {}, {}", finding.trim_start_matches("RCC-F"), share(held.into_iter()))
    });
    told.collect::<Vec<_>>().join("; ")
}
