//! The papers' claims beside what was got: one figure for the claims that may set parameters, one for those that may
//! not, never mixed. Numbers are drawn as errors around zero; relations as words.

use polars::prelude::*;

use super::experiments::median;
use super::primitives::sentence;
use super::{Drawn, Section, provenance_of, slug};
use crate::chart::rows::{Cell, Column, Row, Rows};
use crate::chart::scale::Kind;
use crate::chart::{Body, Figure, Panel};
use crate::frame::{Framed, distinct, floats, stack, tagged, words};
use crate::human;
use crate::ink::Ink;
use crate::load::Results;
use crate::load::record::Provenance;

/// Claims drawn; all of them are in the CSV.
const SHOWN: usize = 120;
const COLUMNS: [&str; 15] = [
    "claim",
    "paper",
    "where",
    "split",
    "kind",
    "metric",
    "published",
    "got",
    "error",
    "verdict",
    "experiment",
    "detail",
    "reason",
    "caveat",
    "contradicts",
];

/// A claim with its verdict.
struct Line {
    claim: String,
    family: String,
    relation: bool,
    metric: String,
    published: String,
    got: String,
    error: Option<f64>,
    verdict: String,
}

/// Two figures per scoreboard; `all` are the page's runs, some of which it judges.
pub fn draw(results: &[&Results], all: &[Results]) -> Framed<Vec<Drawn>> {
    let mut drawn = Vec::new();
    for results in results {
        for split in ["calibrate", "hold-out"] {
            drawn.extend(one_split(results, all, split)?);
        }
    }
    Ok(drawn)
}

/// Where the answers come from: the runs beside a scoreboard that it names, or what it says itself if there are none.
fn origins(results: &Results, all: &[Results], rows: &DataFrame) -> Framed<Vec<(Provenance, String)>> {
    let named = words(rows, "experiment")?;
    let beside = |run: &&Results| run.path.parent() == results.path.parent() && named.contains(&run.label);
    let judged: Vec<&Results> =
        all.iter().filter(|run| run.record.kind != "scoreboard").filter(beside).collect();
    Ok(if judged.is_empty() { provenance_of([results]) } else { provenance_of(judged) })
}

fn one_split(results: &Results, all: &[Results], split: &str) -> Framed<Option<Drawn>> {
    let rows = results.points.clone().lazy().filter(col("split").eq(lit(split))).collect()?;
    let lines = lines(&rows)?;
    let judged: Vec<&Line> = lines.iter().filter(|l| l.verdict == "pass" || l.verdict == "fail").collect();
    if lines.is_empty() {
        return Ok(None);
    }
    let title = match split {
        "calibrate" => "Claims that may set parameters",
        _ => "Claims that must be predicted",
    };
    let panel = Panel {
        title: format!("{} of {} claims have an answer", judged.len(), lines.len()),
        chip: Some(results.record.provenance),
        body: Body::Rows(table(&judged)),
    };
    Ok(Some(Drawn {
        id: format!("scoreboard-{}-{split}", slug(&results.label)),
        section: Section::Scoreboard,
        title: title.to_owned(),
        caption: sentence(&counted(&lines), "No claim has an answer yet."),
        provenance: origins(results, all, &rows)?,
        frame: stack(vec![tagged(results, rows.lazy(), &COLUMNS)])?,
        figure: Figure { columns: 1, panels: vec![panel] },
    }))
}

fn lines(rows: &DataFrame) -> Framed<Vec<Line>> {
    let column = |name: &str| words(rows, name);
    let (claim, paper, family, kind) =
        (column("claim")?, column("paper")?, column("family")?, column("kind")?);
    let (metric, published, got) = (column("metric")?, column("published")?, column("got")?);
    let (verdict, error) = (column("verdict")?, floats(rows, "error")?);
    let line = |i: usize| Line {
        claim: claim[i].clone(),
        family: format!("{}, {}", paper[i], family[i]),
        relation: kind[i] == "ordering" || kind[i] == "shape",
        metric: metric[i].clone(),
        published: published[i].clone(),
        got: got[i].clone(),
        error: error[i],
        verdict: verdict[i].clone(),
    };
    Ok((0..rows.height()).map(line).collect())
}

/// What the figure adds up to: numbers by their errors, relations by their figures.
fn counted(lines: &[Line]) -> Vec<String> {
    let of = |verdict: &str| lines.iter().filter(|l| l.verdict == verdict).count();
    let mut clauses = vec![format!(
        "{} pass, {} fail, {} have no experiment yet, {} come from other systems",
        of("pass"),
        of("fail"),
        of("not yet"),
        of("external")
    )];
    match of("not measured") {
        0 => {}
        some => clauses.push(format!("{some} have one that was not measured")),
    }
    // As the command tells it.
    if let Some(median) = median(lines.iter().filter_map(|l| l.error.map(f64::abs)).collect()) {
        clauses.push(format!("the median error is {:.1} %", 100.0 * median));
    }
    let relations: Vec<&Line> =
        lines.iter().filter(|l| l.relation && (l.verdict == "pass" || l.verdict == "fail")).collect();
    let families = distinct(relations.iter().map(|l| l.family.clone()));
    if !families.is_empty() {
        let whole =
            |family: &&String| relations.iter().filter(|l| l.family == **family).all(|l| l.verdict == "pass");
        let held = families.iter().filter(whole).count();
        clauses.push(format!("all relations hold in {held} of {} figures", families.len()));
    }
    clauses
}

fn table(lines: &[&Line]) -> Rows {
    let column = |title: &str, weight| Column { title: title.to_owned(), weight, kind: Kind::Linear };
    let mut rows = Vec::new();
    for family in distinct(lines.iter().map(|l| l.family.clone())) {
        rows.push(Row { name: family.clone(), ink: Ink::Muted, cells: Vec::new() });
        for line in lines.iter().filter(|l| l.family == family) {
            let ink = if line.verdict == "pass" { Ink::Text } else { Ink::Stack(1) };
            let error = line.error.map_or(String::new(), human::signed_percent);
            let cells = vec![
                Cell::Text(line.metric.clone(), Ink::Text),
                Cell::Text(line.published.clone(), Ink::Text),
                Cell::Text(line.got.clone(), ink),
                Cell::Text(error, ink),
                Cell::Text(line.verdict.clone(), ink),
            ];
            rows.push(Row { name: line.claim.clone(), ink: Ink::Text, cells });
        }
    }
    rows.truncate(SHOWN);
    Rows {
        columns: vec![
            column("what", 3.0),
            column("published", 2.4),
            column("got", 1.2),
            column("error", 0.8),
            column("verdict", 0.7),
        ],
        rows,
        key: Vec::new(),
    }
}
