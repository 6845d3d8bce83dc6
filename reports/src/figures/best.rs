//! Of points that a file of `kind: regret` gives: the best plan that is all one-sided, the best that is all two-sided and the best of all
//! plans. Three bars for each protocol, a panel for each fabric and workload; then the figures that the file asks for.

use polars::prelude::*;

use super::experiments::{SEED, median};
use super::primitives::sentence;
use super::{Drawn, Section, axis_title, provenance_of, slug, spelled, wanted};
use crate::chart::bars::{Bars, Series};
use crate::chart::{Body, Figure, Panel};
use crate::frame::{Framed, distinct, floats, stack, tagged, words};
use crate::human;
use crate::ink::Ink;
use crate::load::Results;

const COLUMNS: [&str; 13] = [
    "point",
    "fabric",
    "workload",
    "protocol",
    "best_one_sided",
    "best_one_sided_per_s",
    "best_two_sided",
    "best_two_sided_per_s",
    "best",
    "mixing_gain",
    "mixing_gain_error",
    "regret",
    "regret_error",
];
/// What is drawn: its name, its column, its colour.
const BARS: [(&str, &str, Ink); 3] = [
    ("best one-sided", "best_one_sided_per_s", Ink::OneSided),
    ("best two-sided", "best_two_sided_per_s", Ink::TwoSided),
    ("best of all plans", "best_per_s", Ink::Hybrid),
];

/// The rows of points that were given and have a winner: combinations that are drawn have no pure plans.
pub fn given(results: &Results) -> Framed<DataFrame> {
    let pure = col("best_one_sided_per_s").is_not_null().or(col("best_two_sided_per_s").is_not_null());
    results.points.clone().lazy().filter(pure).collect()
}

/// Where each row stands: its panel, and the bars' protocol there. Rows that differ in their seed alone share one.
fn places(rows: &DataFrame, axes: &[String]) -> Framed<(Vec<String>, Vec<String>)> {
    let (workload, fabric) = (words(rows, "workload")?, words(rows, "fabric")?);
    let named = ["axis_fabric", "axis_workload", "axis_protocol", SEED];
    let others = axes.iter().filter(|axis| !named.contains(&axis.as_str()));
    let others: Vec<(String, Vec<String>)> = others
        .map(|axis| Ok((axis_title(axis.trim_start_matches("axis_")), words(rows, axis)?)))
        .collect::<Framed<_>>()?;
    let panel = |row: usize| {
        let more: String = others.iter().map(|(name, values)| format!(", {name} {}", values[row])).collect();
        format!("{} · {}{more}", spelled(&workload[row]), fabric[row])
    };
    let (protocol, several) = (words(rows, "protocol")?, words(rows, "protocols")?);
    // Where the tuner chose the protocol too, all plans of all of them raced.
    let name = |row: usize| match several[row].as_str() {
        "1" => spelled(&protocol[row]).to_owned(),
        n => format!("any of {n}"),
    };
    Ok(((0..rows.height()).map(panel).collect(), (0..rows.height()).map(name).collect()))
}

/// One figure, of a sweep whose points were given.
pub fn draw(results: &Results) -> Framed<Option<Drawn>> {
    let rows = given(results)?;
    if rows.height() == 0 {
        return Ok(None);
    }
    let record = &results.record;
    let axes: Vec<String> =
        rows.get_column_names().iter().filter(|c| c.starts_with("axis_")).map(|c| c.to_string()).collect();
    let (place, protocol) = places(&rows, &axes)?;
    let of = |column: &str| floats(&rows, column);
    let (gain, off) = (of("mixing_gain")?, of("mixing_gain_error")?);
    let rates = BARS.iter().map(|(_, column, _)| of(column)).collect::<Framed<Vec<_>>>()?;
    let (mut panels, mut clauses) = (Vec::new(), Vec::new());
    for here in distinct(place.iter().cloned()) {
        let inside = || (0..rows.height()).filter(|row| place[*row] == here);
        let categories = distinct(inside().map(|row| protocol[row].clone()));
        let mut series = Vec::new();
        for ((name, _, ink), rates) in BARS.iter().zip(&rates) {
            let at = |category: &String| {
                median(
                    inside().filter(|row| protocol[*row] == *category).filter_map(|row| rates[row]).collect(),
                )
            };
            let values: Vec<Option<f64>> = categories.iter().map(at).collect();
            let signs = vec![String::new(); values.len()];
            series.push(Series::of((*name).to_owned(), *ink, values, signs));
        }
        let most = inside().filter_map(|row| Some((gain[row]?, off[row].unwrap_or(0.0), row)));
        let most = most.max_by(|a, b| a.0.total_cmp(&b.0));
        clauses.extend(most.map(|(gain, off, row)| match gain > 2.0 * off {
            true => format!(
                "on {here} the best mixed plan gives {} most, {} (standard error {}) over the better pure one",
                protocol[row],
                human::signed_percent(gain),
                human::percent(off)
            ),
            false => format!("on {here} no mixed plan is known to be better than the better pure one"),
        }));
        let y_title = "transactions per second".to_owned();
        let body = Body::Bars(Bars { y_title, format: human::short, categories, series });
        panels.push(Panel { title: here, chip: Some(record.provenance), body });
    }
    let (asked, told, drawn) = wanted::draw(&rows, &axes, &record.figures(), record)?;
    panels.extend(asked.panels);
    clauses.extend(told);
    let mut columns = COLUMNS.to_vec();
    columns.extend(axes.iter().map(String::as_str));
    columns.extend(["best_per_s"].into_iter().chain(drawn.iter().map(String::as_str)));
    let columns = distinct(columns);
    let question = record.question.clone().filter(|question| !question.is_empty());
    Ok(Some(Drawn {
        id: format!("best-of-all-{}", slug(&results.label)),
        section: Section::Comparison,
        title: question.unwrap_or_else(|| results.label.clone()),
        caption: sentence(&clauses, "All points are in the table."),
        provenance: provenance_of([results]),
        frame: stack(vec![tagged(results, rows.lazy(), &columns)])?,
        figure: Figure { columns: 1, panels },
    }))
}
