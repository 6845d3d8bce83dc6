//! Tuner candidates ranked, and how well the model foretold those that were run.
//!
//! *Regret* is the throughput lost by following the model: the best rate any verified plan reached, less the rate
//! of the plan predicted best, over the former (DESIGN §3.7).

use polars::prelude::*;

use super::{Drawn, Section, names, provenance_of, slug};
use crate::chart::rows::{Cell, Column, Row, Rows};
use crate::chart::scale::Kind;
use crate::chart::scatter::{Mark, Scatter};
use crate::chart::{Body, Figure, Panel};
use crate::frame::{Framed, floats, stack, tagged, words};
use crate::human;
use crate::ink::{self, Ink};
use crate::load::Results;

/// Candidates drawn; all of them are in the CSV.
const SHOWN: usize = 16;
const COLUMNS: [&str; 8] = [
    "point",
    "plan",
    "origin",
    "predicted_per_s",
    "predicted_p50_ns",
    "bottleneck",
    "got_per_s",
    "got_p50_ns",
];

/// One candidate.
pub struct Candidate {
    /// The plan.
    pub plan: String,
    /// `candidate`, or the preset's name.
    pub origin: String,
    /// What the model says limits it.
    pub bottleneck: String,
    /// Predicted rate.
    pub predicted: f64,
    /// Predicted median latency.
    pub predicted_p50: Option<f64>,
    /// Rate when run.
    pub got: Option<f64>,
}

impl Candidate {
    /// The preset's name where there is one, else the plan.
    pub fn name(&self) -> &str {
        match self.origin.as_str() {
            "" | "candidate" => &self.plan,
            preset => preset,
        }
    }
}

/// The candidates of one tuning, best prediction first.
pub fn candidates(results: &Results) -> Framed<Vec<Candidate>> {
    let rows = ranked(results)?;
    let columns = (words(&rows, "plan")?, words(&rows, "origin")?, words(&rows, "bottleneck")?);
    let numbers =
        (floats(&rows, "predicted_per_s")?, floats(&rows, "predicted_p50_ns")?, floats(&rows, "got_per_s")?);
    let candidate = |i: usize| Candidate {
        plan: columns.0[i].clone(),
        origin: columns.1[i].clone(),
        bottleneck: columns.2[i].clone(),
        predicted: numbers.0[i].unwrap_or(0.0),
        predicted_p50: numbers.1[i],
        got: numbers.2[i].filter(|g| *g > 0.0),
    };
    Ok((0..rows.height()).map(candidate).collect())
}

fn ranked(results: &Results) -> Framed<DataFrame> {
    let order = SortMultipleOptions::default().with_order_descending(true).with_maintain_order(true);
    results
        .points
        .clone()
        .lazy()
        .filter(col("predicted_per_s").is_not_null())
        .sort(["predicted_per_s"], order)
        .collect()
}

/// What following the model costs: the best plan when run, and the share lost by the one predicted best.
pub fn regret(candidates: &[Candidate]) -> Option<(&Candidate, f64)> {
    let best = candidates
        .iter()
        .filter(|c| c.got.is_some())
        .max_by(|a, b| a.got.unwrap_or(0.0).total_cmp(&b.got.unwrap_or(0.0)))?;
    let chosen = candidates.first()?.got?;
    Some((best, 1.0 - chosen / best.got?))
}

/// Two figures per tuning: the ranking and, where rivals were run, prediction against outcome.
pub fn draw(results: &[&Results]) -> Framed<Vec<Drawn>> {
    let mut drawn = Vec::new();
    for (results, name) in results.iter().zip(names(results)) {
        let candidates = candidates(results)?;
        if candidates.is_empty() {
            continue;
        }
        let frame = stack(vec![tagged(results, ranked(results)?.lazy(), &COLUMNS)])?;
        drawn.push(ranking(results, &name, &candidates, frame.clone()));
        drawn.extend(verified(results, &name, &candidates, frame)?);
    }
    Ok(drawn)
}

fn ranking(results: &Results, name: &str, candidates: &[Candidate], frame: DataFrame) -> Drawn {
    let best_got = candidates.iter().filter_map(|c| c.got).fold(0.0, f64::max);
    let best_said = candidates.iter().map(|c| c.predicted).fold(0.0, f64::max);
    let row = |(rank, c): (usize, &Candidate)| {
        let ink = ink::for_name(c.name());
        let rate = match c.got {
            Some(got) => Cell::Against(
                c.predicted,
                got,
                format!("{} → {}", human::short(c.predicted), human::short(got)),
                ink,
            ),
            None => Cell::Against(
                c.predicted,
                c.predicted,
                format!("{}, not run", human::short(c.predicted)),
                Ink::Other,
            ),
        };
        let behind = match c.got {
            Some(got) => Cell::Text(human::signed_percent(got / best_got - 1.0), Ink::Text),
            None => {
                Cell::Text(format!("({})", human::signed_percent(c.predicted / best_said - 1.0)), Ink::Muted)
            }
        };
        Row {
            name: format!("{}. {}", rank + 1, c.name()),
            ink,
            cells: vec![
                rate,
                behind,
                c.predicted_p50.map_or(Cell::Missing, |p| Cell::Text(human::nanos(p), Ink::Text)),
                if c.bottleneck.is_empty() {
                    Cell::Missing
                } else {
                    Cell::Text(c.bottleneck.clone(), Ink::Text)
                },
            ],
        }
    };
    // The best predictions, and any plan further down that was run or has a name.
    let shown = candidates.iter().enumerate();
    let shown = shown.filter(|(i, c)| *i < SHOWN || ((c.got.is_some() || c.name() != c.plan) && *i < 400));
    let rows: Vec<Row> = shown.map(row).take(2 * SHOWN).collect();
    let column = |title: &str, weight: f64, kind| Column { title: title.to_owned(), weight, kind };
    let caption = match regret(candidates) {
        Some((best, lost)) => format!(
            "Of {} the model puts {} first; run, the fastest was {} with {}, so following the model costs {} (regret).",
            human::count(candidates.len() as u64, "plan"),
            candidates[0].name(),
            best.name(),
            human::rate(best.got.unwrap_or(f64::NAN)),
            human::percent(lost)
        ),
        None => format!(
            "Of {} the model puts {} first at {}, limited by {}; the rivals were not run (tune --verify does).",
            human::count(candidates.len() as u64, "plan"),
            candidates[0].name(),
            human::rate(candidates[0].predicted),
            if candidates[0].bottleneck.is_empty() { "nothing it names" } else { &candidates[0].bottleneck }
        ),
    };
    Drawn {
        id: format!("tuner-{}", slug(name)),
        section: Section::Tuning,
        title: format!("Candidate plans, {name}"),
        caption,
        provenance: provenance_of([results]),
        frame,
        figure: Figure {
            columns: 1,
            panels: vec![Panel {
                title: format!("{} of {} candidates by predicted rate", rows.len(), candidates.len()),
                chip: Some(results.record.provenance),
                body: Body::Rows(Rows {
                    columns: vec![
                        column("transactions per second: ○ predicted ● got", 3.2, Kind::Log10),
                        column("behind best", 0.7, Kind::Linear),
                        column("predicted p50", 0.8, Kind::Linear),
                        column("predicted bottleneck", 1.3, Kind::Linear),
                    ],
                    rows,
                    key: Vec::new(),
                }),
            }],
        },
    }
}

fn verified(
    results: &Results,
    name: &str,
    candidates: &[Candidate],
    frame: DataFrame,
) -> Framed<Option<Drawn>> {
    let marks: Vec<Mark> = candidates
        .iter()
        .filter_map(|c| {
            let name = c.name().to_owned();
            Some(Mark { ink: ink::for_name(&name), name, x: c.predicted, y: c.got? })
        })
        .filter(|m| m.x > 0.0)
        .collect();
    if marks.len() < 3 {
        return Ok(None);
    }
    let mut errors: Vec<f64> = marks.iter().map(|m| m.y / m.x - 1.0).collect();
    errors.sort_by(|a, b| a.abs().total_cmp(&b.abs()));
    let worst = marks.iter().max_by(|a, b| (a.y / a.x).ln().abs().total_cmp(&(b.y / b.x).ln().abs()));
    let caption = format!(
        "Got against predicted: median error {} over {}, the worst {} for {}.",
        human::percent(errors[errors.len() / 2].abs()),
        human::count(marks.len() as u64, "plan"),
        worst.map_or(String::new(), |m| human::signed_percent(m.y / m.x - 1.0)),
        worst.map_or("none", |m| m.name.as_str()),
    );
    let frame = frame.lazy().filter(col("got_per_s").is_not_null()).collect()?;
    Ok(Some(Drawn {
        id: format!("tuner-verified-{}", slug(name)),
        section: Section::Tuning,
        title: format!("Predicted against got, {name}"),
        caption,
        provenance: provenance_of([results]),
        frame,
        figure: Figure {
            columns: 1,
            panels: vec![Panel {
                title: "Transactions per second".to_owned(),
                chip: Some(results.record.provenance),
                body: Body::Scatter(Scatter {
                    x_title: "predicted".to_owned(),
                    y_title: "got".to_owned(),
                    format: human::short,
                    marks,
                }),
            }],
        },
    }))
}
