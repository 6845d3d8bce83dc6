//! The page: one HTML file that loads nothing. Everything that comes from a file passes through the template's
//! escaping; only our own SVG and style sheet are inserted as they are.

use askama::Template;
use polars::prelude::DataFrame;
use std::fmt::Write as _;

use crate::doubt::Doubt;
use crate::figures::{Drawn, Section};
use crate::frame::{Framed, distinct, floats, to_text, words};
use crate::headline::Answer;
use crate::human;
use crate::ink;
use crate::load::{self, Results};

/// Rows of a figure's data shown on the page; the CSV beside it has all.
const DATA_ROWS: usize = 60;

/// A figure ready for the page.
pub struct Picture {
    /// Anchor and file name.
    pub id: String,
    /// Title.
    pub title: String,
    /// Caption.
    pub caption: String,
    /// Provenance: chip class and line.
    pub provenance: Vec<(&'static str, String)>,
    /// The drawing.
    pub svg: String,
    /// Column names of its data.
    pub header: Vec<String>,
    /// Its data as text.
    pub rows: Vec<Vec<String>>,
    /// Rows that are only in the CSV.
    pub more: usize,
    /// What its data say of why claims are missed: a claim and its reason each.
    pub reasons: Vec<(String, String)>,
    /// What its data say of claims that cannot all hold: a claim with its numbers, and those that it contradicts with theirs.
    pub contradictions: Vec<(String, String)>,
}

impl Picture {
    /// A figure with its drawing and the head of its data.
    pub fn new(drawn: &Drawn, svg: String) -> Framed<Picture> {
        let (header, rows) = to_text(&drawn.frame, DATA_ROWS)?;
        Ok(Picture {
            id: drawn.id.clone(),
            title: drawn.title.clone(),
            caption: drawn.caption.clone(),
            provenance: drawn.provenance.iter().map(|(p, line)| (p.name(), line.clone())).collect(),
            svg,
            header,
            more: drawn.frame.height().saturating_sub(rows.len()),
            rows,
            reasons: reasons(&drawn.frame)?,
            contradictions: contradictions(&drawn.frame)?,
        })
    }
}

/// Claims that are missed, each with its reason or the word that there is none; of other data nothing.
fn reasons(frame: &DataFrame) -> Framed<Vec<(String, String)>> {
    if ["claim", "verdict", "reason"].iter().any(|name| frame.column(name).is_err()) {
        return Ok(Vec::new());
    }
    let (claims, verdicts) = (words(frame, "claim")?, words(frame, "verdict")?);
    let rows = claims.into_iter().zip(verdicts).zip(words(frame, "reason")?);
    let missed = rows.filter(|((_, verdict), _)| verdict == "fail");
    let told = |reason: String| if reason.is_empty() { "no reason is given".to_owned() } else { reason };
    Ok(missed.map(|((claim, _), reason)| (claim, told(reason))).collect())
}

/// Claims that contradict others by what papers state, each pair of the data once; whose other side is not among the data, with its name
/// alone.
fn contradictions(frame: &DataFrame) -> Framed<Vec<(String, String)>> {
    if ["claim", "published", "got", "contradicts"].iter().any(|name| frame.column(name).is_err()) {
        return Ok(Vec::new());
    }
    let (claims, published, got) = (words(frame, "claim")?, words(frame, "published")?, words(frame, "got")?);
    let said = |i: usize| match got[i].as_str() {
        "" => published[i].clone(),
        got => format!("{}, got {got}", published[i]),
    };
    let at = |id: &str| claims.iter().position(|claim| claim == id);
    let told = |other: &str| at(other).map_or(other.to_owned(), |i| format!("{other} ({})", said(i)));
    let mut all = Vec::new();
    for (i, others) in words(frame, "contradicts")?.iter().enumerate() {
        let once = |other: &&str| at(other).is_none() || claims[i].as_str() < *other;
        let others: Vec<String> = others.split_whitespace().filter(once).map(told).collect();
        if !others.is_empty() {
            all.push((format!("{} ({})", claims[i], said(i)), others.join("; ")));
        }
    }
    Ok(all)
}

/// Figures under one heading.
pub struct Chapter {
    /// The part.
    pub section: Section,
    /// Its figures.
    pub pictures: Vec<Picture>,
}

/// A short word with a colour: good, bad, warn or plain.
pub struct Badge {
    /// CSS class.
    pub class: &'static str,
    /// Text.
    pub text: String,
    /// Points that it is about.
    pub points: u64,
}

/// A row of the table of runs.
pub struct RunLine {
    /// Directory.
    pub label: String,
    /// Title.
    pub title: String,
    /// Question, if any.
    pub question: String,
    /// Kind.
    pub kind: String,
    /// Measured or simulated.
    pub provenance: &'static str,
    /// The long line.
    pub source: String,
    /// When it began.
    pub started: String,
    /// Commit and version.
    pub version: String,
    /// Completeness, isolation, checks.
    pub badges: Vec<Badge>,
    /// What the reader and the run had to say.
    pub notes: Vec<String>,
}

impl RunLine {
    /// Sums up one result directory.
    pub fn new(results: &Results) -> Framed<RunLine> {
        let record = &results.record;
        let points = results.points.height() as u64;
        let mut badges = vec![match record.partial(points) {
            Some(text) => Badge { class: "warn", text, points },
            None => Badge { class: "plain", text: human::count(points, "point"), points },
        }];
        for doubt in Doubt::ALL {
            let doubtful = doubt.count(&results.points) as u64;
            if doubtful > 0 {
                let text = format!("{doubtful} of {points} {}", doubt.briefly());
                badges.push(Badge { class: "warn", text, points: doubtful });
            }
        }
        if matches!(record.kind.as_str(), "run" | "experiment") && points > 0 {
            badges.extend(isolation(results)?);
            badges.push(checks(results)?);
        }
        let version = [("version", &record.version), ("commit", &record.commit)];
        let version = version.iter().filter(|(_, v)| !v.is_empty()).map(|(n, v)| format!("{n} {v}"));
        Ok(RunLine {
            label: results.label.clone(),
            title: record.title.clone(),
            question: record.question.clone().filter(|asked| *asked != record.title).unwrap_or_default(),
            kind: record.kind.clone(),
            provenance: record.provenance.name(),
            source: results.provenance_line(record.provenance),
            started: if record.started_unix_s == 0 {
                String::new()
            } else {
                human::date(record.started_unix_s)
            },
            version: version.collect::<Vec<_>>().join(", "),
            badges,
            notes: {
                let precision = load::precision(&results.points).map(|precision| precision.told);
                results
                    .joined
                    .iter()
                    .chain(&results.notes)
                    .cloned()
                    .chain(precision)
                    .chain(record.notes.iter().cloned())
                    .collect()
            },
        })
    }
}

/// Whether a verdict's words mean that the level held, broke, or neither.
fn verdict_class(verdict: &str) -> &'static str {
    let verdict = verdict.to_lowercase();
    let says = |words: &[&str]| words.iter().any(|w| verdict.contains(w));
    if says(&["viol", "fail", "broken", "anomal", "cycle", "not serializable"]) {
        "bad"
    } else if says(&["ok", "hold", "pass", "valid", "serializable", "clean"]) {
        "good"
    } else {
        "plain"
    }
}

fn isolation(results: &Results) -> Framed<Vec<Badge>> {
    let levels = words(&results.points, "isolation_level")?;
    let verdicts = words(&results.points, "isolation_verdict")?;
    let pairs: Vec<(String, String)> = levels.into_iter().zip(verdicts).collect();
    let badge = |pair: (String, String)| {
        let points = pairs.iter().filter(|other| **other == pair).count() as u64;
        let (class, text) = match (pair.0.as_str(), pair.1.as_str()) {
            (_, "") => ("plain", "isolation not checked".to_owned()),
            ("", verdict) => (verdict_class(verdict), format!("isolation: {verdict}")),
            (level, verdict) => (verdict_class(verdict), format!("{level}: {verdict}")),
        };
        Badge { class, text, points }
    };
    let mut badges: Vec<Badge> = distinct(pairs.iter().cloned()).into_iter().map(badge).collect();
    badges.sort_by_key(|b| b.class != "bad");
    badges.truncate(4);
    Ok(badges)
}

fn checks(results: &Results) -> Framed<Badge> {
    let failed = words(&results.points, "checks_failed")?;
    let bad = distinct(failed.iter().filter(|f| !["", "0", "none"].contains(&f.as_str())).cloned());
    let points = failed.iter().filter(|f| !f.is_empty()).count() as u64;
    let (class, text) = match (points, bad.is_empty()) {
        (0, _) => ("plain", "workload not checked".to_owned()),
        (_, true) => ("good", "workload checks hold".to_owned()),
        (_, false) => ("bad", format!("workload checks failed: {}", bad.join(", "))),
    };
    Ok(Badge { class, text, points })
}

/// Whether transactions ran for any of `results`: a row says how many committed, or what a candidate got.
pub fn transactions(results: &[Results]) -> bool {
    let ran = |results: &Results| {
        let columns = ["committed_per_s", "got_per_s"].iter().filter_map(|c| floats(&results.points, c).ok());
        columns.flatten().any(|rate| rate.is_some())
    };
    results.iter().any(ran)
}

/// The runs in a few badges: what is partial or broken by name, what is well by count.
pub fn status(runs: &[RunLine]) -> Vec<Badge> {
    let mut badges = Vec::new();
    let mut good: Vec<(String, u64)> = Vec::new();
    for run in runs {
        for badge in &run.badges {
            match badge.class {
                "bad" | "warn" => {
                    let text = format!("{}: {}", run.label, badge.text);
                    badges.push(Badge { class: badge.class, text, points: badge.points });
                }
                "good" => match good.iter_mut().find(|(text, _)| *text == badge.text) {
                    Some((_, n)) => *n += badge.points,
                    None => good.push((badge.text.clone(), badge.points)),
                },
                _ => {}
            }
        }
    }
    badges.sort_by_key(|b| b.class != "bad");
    // A run is one point; a grid has many.
    let noun = if runs.iter().any(|run| run.kind == "experiment") { "point" } else { "run" };
    let count = |(text, points)| {
        let text = format!("{text} in {}", human::count(points, noun));
        Badge { class: "good", text, points }
    };
    badges.extend(good.into_iter().map(count));
    badges
}

/// All that the template needs.
#[derive(Template)]
#[template(path = "page.html")]
pub struct Page {
    /// Title of the page.
    pub title: String,
    /// Whether the page holds transactions that ran, whatever kind of results they are in.
    pub transactions: bool,
    /// Answers in large type.
    pub answers: Vec<Answer>,
    /// How complete the runs are and what their checks said.
    pub status: Vec<Badge>,
    /// Further answers, a sentence each.
    pub also: Vec<String>,
    /// Parts with figures.
    pub chapters: Vec<Chapter>,
    /// The runs behind the page.
    pub runs: Vec<RunLine>,
    /// Directories and files that could not be read.
    pub problems: Vec<String>,
    /// Style sheet.
    pub css: String,
    /// Commands that make the runs and the page again, each once.
    pub commands: Vec<String>,
    /// Commit of the binary that drew the page.
    pub commit: String,
}

impl Page {
    /// The style sheet, with the dark values of the figures' inks.
    pub fn style() -> String {
        let mut dark = ink::dark_rules();
        let mut light = String::new();
        for (class, ink) in
            [("one", ink::Ink::OneSided), ("two", ink::Ink::TwoSided), ("both", ink::Ink::Hybrid)]
        {
            let (on_light, on_dark) = ink.values();
            let _ = write!(light, ".key .{class}{{color:#{on_light:06X}}}");
            let _ = write!(dark, ".key .{class}{{color:#{on_dark:06X}}}");
        }
        let base = include_str!("../templates/page.css");
        format!("{base}\n{light}\n@media screen and (prefers-color-scheme:dark){{{dark}}}\n")
    }
}

#[cfg(test)]
mod tests {
    use super::verdict_class;

    #[test]
    fn verdicts_are_not_taken_for_their_opposite() {
        for (verdict, class) in [
            ("ok", "good"),
            ("holds", "good"),
            ("serializable", "good"),
            ("not serializable", "bad"),
            ("violated: G2 cycle", "bad"),
            ("unknown", "plain"),
        ] {
            assert_eq!(verdict_class(verdict), class, "{verdict}");
        }
    }
}
