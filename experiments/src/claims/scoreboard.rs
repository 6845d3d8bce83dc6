//! Claims beside answers: the rows of the scoreboard and what they add up to.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use serde_json::{Value, json};

use super::evaluate::Answer;
use super::verdict::{Verdict, judge};
use super::{Binding, Claim, Kind, Split, by_obstacle};

/// One claim, judged or not.
#[derive(Clone, Debug)]
pub struct Entry<'c> {
    /// The claim.
    pub claim: &'c Claim,
    /// What its experiment gave.
    pub answer: Option<Answer>,
    /// What became of it.
    pub verdict: Verdict,
    /// Relative error.
    pub error: Option<f64>,
    /// Why there is no answer, where there is none, or what the error does not say of a miss.
    pub why: Option<String>,
}

impl<'c> Entry<'c> {
    /// Judges what an experiment gave; `Err` says why there is nothing to judge.
    pub fn new(claim: &'c Claim, answer: Result<Answer, String>) -> Entry<'c> {
        let none = |verdict, why| Entry { claim, answer: None, verdict, error: None, why };
        if claim.external {
            return none(Verdict::External, None);
        }
        let restates = claim.answered_by.as_ref().is_some_and(|binding| binding.restates);
        match answer {
            Err(why) if claim.answered_by.is_some() => none(Verdict::Unmeasured, Some(why)),
            Err(why) => none(Verdict::NotYet, Some(why)),
            Ok(answer) => match judge(claim, &answer) {
                Some(judged) => Entry {
                    claim,
                    answer: Some(answer),
                    verdict: match judged.passed {
                        true if restates => Verdict::Restated,
                        true => Verdict::Pass,
                        false => Verdict::Fail,
                    },
                    error: judged.error.filter(|_| !restates),
                    why: judged.unshown.then(|| "the change that was published does not show".to_owned()),
                },
                None => none(Verdict::NotYet, Some("answer and claim are of different kinds".to_owned())),
            },
        }
    }

    /// What was got, for tables.
    pub fn got(&self) -> String {
        let number = |value: f64| {
            let digits = if value.abs() >= 1000.0 {
                0
            } else if value.abs() >= 100.0 {
                1
            } else {
                2
            };
            format!("{value:.digits$}")
        };
        let unit = match self.claim.unit.as_str() {
            "x" => "x",
            "%" => " %",
            _ => "",
        };
        match &self.answer {
            Some(Answer::Number { value, .. }) => format!("{}{unit}", number(*value)),
            Some(Answer::Span { lo, hi, .. }) => format!("{} to {}{unit}", number(*lo), number(*hi)),
            Some(Answer::Holds { held, .. }) => if *held { "holds" } else { "does not hold" }.to_owned(),
            Some(Answer::Never { .. }) => "never in the range".to_owned(),
            None => String::new(),
        }
    }

    /// The numbers behind a relation, or why there is no answer.
    pub fn detail(&self) -> &str {
        match &self.answer {
            Some(Answer::Holds { detail, .. } | Answer::Never { detail }) => detail,
            _ => self.why.as_deref().unwrap_or_default(),
        }
    }

    /// Why it is missed, as far as is believed; nothing of what passes.
    pub fn reason(&self) -> Option<&'c str> {
        self.claim.reason.as_deref().filter(|_| self.verdict == Verdict::Fail)
    }

    /// The entry of `reproduce --json`.
    pub fn json(&self) -> Value {
        let claim = self.claim;
        json!({
            "id": claim.id, "paper": claim.paper, "where": claim.place, "family": claim.family(),
            "split": claim.split, "kind": claim.kind, "metric": claim.metric, "unit": claim.unit,
            "published": claim.value, "got": self.answer, "error": self.error, "verdict": self.verdict,
            "detail": self.detail(), "reason": self.reason(), "caveat": claim.caveat, "contradicts": claim.contradicts,
            "experiment": claim.answered_by.as_ref().and_then(Binding::named),
            "differs": claim.answered_by.as_ref().and_then(|b| b.differs.clone()), "not_yet": claim.not_yet,
        })
    }
}

/// Counts of one group of claims.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Counts {
    /// With an answer: passed and failed.
    pub checked: usize,
    /// Within the rules.
    pub passed: usize,
    /// Not within the rules.
    pub failed: usize,
    /// Without an experiment.
    pub not_yet: usize,
    /// With an experiment that was not measured.
    pub unmeasured: usize,
    /// Held by what the claim itself set; not among those checked.
    pub restated: usize,
    /// Not expected of us.
    pub external: usize,
    /// Orderings and shapes by family (a figure, or a section): families checked.
    pub families: usize,
    /// Families in which every checked relation holds.
    pub families_passed: usize,
    /// Median absolute error of what has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub median_error: Option<f64>,
}

/// Counts the entries that `belongs` takes.
pub fn count(entries: &[Entry<'_>], belongs: impl Fn(&Claim) -> bool) -> Counts {
    let mut counts = Counts::default();
    let mut errors = Vec::new();
    let mut families: BTreeMap<(&str, String), bool> = BTreeMap::new();
    for entry in entries.iter().filter(|entry| belongs(entry.claim)) {
        match entry.verdict {
            Verdict::Pass => counts.passed += 1,
            Verdict::Fail => counts.failed += 1,
            Verdict::NotYet => counts.not_yet += 1,
            Verdict::Unmeasured => counts.unmeasured += 1,
            Verdict::Restated => counts.restated += 1,
            Verdict::External => counts.external += 1,
        }
        let judged = matches!(entry.verdict, Verdict::Pass | Verdict::Fail);
        if judged && matches!(entry.claim.kind, Kind::Ordering | Kind::Shape) {
            let holds = families.entry((&entry.claim.paper, entry.claim.family())).or_insert(true);
            *holds &= entry.verdict == Verdict::Pass;
        }
        errors.extend(entry.error.map(f64::abs));
    }
    counts.checked = counts.passed + counts.failed;
    counts.families = families.len();
    counts.families_passed = families.values().filter(|holds| **holds).count();
    errors.sort_by(f64::total_cmp);
    counts.median_error = match errors.len() {
        0 => None,
        n if n % 2 == 1 => Some(errors[n / 2]),
        n => Some((errors[n / 2 - 1] + errors[n / 2]) / 2.0),
    };
    counts
}

/// Kinds of claims, in the order of tables.
pub const KINDS: [Kind; 5] = [Kind::Calibration, Kind::Headline, Kind::Ratio, Kind::Ordering, Kind::Shape];

/// The summary of `reproduce --json`: splits apart, then by kind, by paper, and by kind of each paper.
pub fn summary(entries: &[Entry<'_>]) -> Value {
    let papers: BTreeSet<&str> = entries.iter().map(|entry| entry.claim.paper.as_str()).collect();
    let with_kinds = |belongs: &dyn Fn(&Claim) -> bool| {
        let mut value = json!(count(entries, belongs));
        let by_kind: BTreeMap<&str, Counts> = KINDS
            .iter()
            .map(|kind| (kind.name(), count(entries, |c| belongs(c) && c.kind == *kind)))
            .filter(|(_, counts)| *counts != Counts::default())
            .collect();
        value["by_kind"] = json!(by_kind);
        value
    };
    let of_split = |split: Split| {
        let mut value = with_kinds(&|c| c.split == split);
        let by_paper: BTreeMap<&str, Value> =
            papers.iter().map(|p| (*p, with_kinds(&|c| c.split == split && c.paper == *p))).collect();
        value["by_paper"] = json!(by_paper);
        value
    };
    json!({ "calibrate": of_split(Split::Calibrate), "hold-out": of_split(Split::HoldOut) })
}

/// What nothing answers, by obstacle: how many, what it means, and which claims.
pub fn not_yet(entries: &[Entry<'_>]) -> Value {
    let of = by_obstacle(entries.iter().map(|entry| entry.claim)).into_iter().map(|(kind, claims)| {
        let ids: Vec<&str> = claims.iter().map(|(claim, _)| claim.id.as_str()).collect();
        (kind.name().to_owned(), json!({ "count": ids.len(), "meaning": kind.meaning(), "claims": ids }))
    });
    Value::Object(of.collect())
}

/// What is missed and gives no reason.
pub fn unexplained<'e, 'c: 'e>(entries: impl IntoIterator<Item = &'e Entry<'c>>) -> Vec<&'c str> {
    let open = |entry: &&Entry<'_>| entry.verdict == Verdict::Fail && entry.reason().is_none();
    entries.into_iter().filter(open).map(|entry| entry.claim.id.as_str()).collect()
}

/// Pairs of claims that papers set against each other, each pair once.
pub fn contradictions<'e, 'c>(entries: &'e [Entry<'c>]) -> Vec<(&'e Entry<'c>, &'e Entry<'c>)> {
    let of = |id: &str| entries.iter().find(|entry| entry.claim.id == id);
    entries
        .iter()
        .flat_map(|entry| entry.claim.contradicts.iter().filter_map(move |id| Some((entry, of(id)?))))
        .filter(|(a, b)| a.claim.id < b.claim.id)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::claims::Scale;

    #[test]
    fn families_count_once_and_fail_with_their_worst_member() {
        let claims = crate::claims::load().unwrap();
        let holds = |held| Ok(Answer::Holds { held, detail: String::new() });
        // Three orderings of figure 6, one of them broken, and one of figure 5.
        let entries: Vec<Entry<'_>> =
            [("DRH-M03", true), ("DRH-M04", false), ("DRH-M05", true), ("DRH-C06", true)]
                .into_iter()
                .map(|(id, held)| Entry::new(claims.get(id).unwrap(), holds(held)))
                .collect();
        let counts = count(&entries, |c| c.split == Split::HoldOut);
        assert_eq!((counts.checked, counts.passed, counts.families, counts.families_passed), (4, 3, 2, 1));
        assert_eq!(count(&entries, |c| c.split == Split::Calibrate), Counts::default());
    }

    #[test]
    fn what_has_no_answer_is_counted_and_external_claims_are_not_expected() {
        let claims = crate::claims::load().unwrap();
        let entries: Vec<Entry<'_>> =
            claims.iter().map(|claim| Entry::new(claim, Err("not asked".to_owned()))).collect();
        let all = count(&entries, |_| true);
        let bound = claims.iter().filter(|claim| claim.answered_by.is_some()).count();
        assert_eq!((all.checked, all.not_yet + bound, all.unmeasured, all.external), (0, 372, bound, 32));
        assert_eq!(summary(&entries)["hold-out"]["by_paper"]["ramp-rdma"]["not_yet"].as_u64(), Some(6));
        let ramp = &summary(&entries)["hold-out"]["by_paper"]["ramp-rdma"]["by_kind"];
        let by_kind: u64 =
            ramp.as_object().unwrap().values().filter_map(|kind| kind["not_yet"].as_u64()).sum();
        assert_eq!(by_kind, 6, "{ramp}");
        assert!(!contradictions(&entries).is_empty());
    }

    #[test]
    fn the_median_error_is_of_absolute_errors() {
        let claims = crate::claims::load().unwrap();
        let claim = claims.get("DRH-P02").unwrap();
        let near = |value| Entry::new(claim, Ok(Answer::Number { value, scale: Scale::Plain, within: 0.0 }));
        let entries = [near(86.9), near(86.9 * 0.9), near(86.9 * 1.02)];
        let counts = count(&entries, |_| true);
        assert!((counts.median_error.unwrap() - 0.02).abs() < 1e-9);
        assert_eq!((counts.passed, counts.failed), (2, 1));
    }
}
