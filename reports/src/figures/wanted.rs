//! The figures that an experiment file asks for: a column against an axis, a curve for each value of another axis.
//!
//! A horizontal axis of numbers gives curves, one of words gives groups of bars. Points that differ in an axis which the
//! figure does not name are told apart by it: nothing is averaged behind the reader's back. Those that differ in their seed alone
//! are repeats, and count by their median, which is said; a figure may name the seed to see them.
//!
//! What a paper prints for single points is told beside them, and drawn in the colour of its curve with the claim's name.

use polars::prelude::*;

use super::experiments::{CURVES, SEED, median, numeric_kind, repeats};
use crate::chart::bars::{self, Bars};
use crate::chart::lines::{Axis, Lines, Series};
use crate::chart::scale::Kind;
use crate::chart::{Body, Figure, Format, Panel};
use crate::doubt::{Doubts, doubts};
use crate::frame::{Framed, distinct, floats, words};
use crate::human;
use crate::ink::{self, Ink};
use crate::load::record::{Record, Wanted};
use serde_json::Value;
use std::collections::BTreeMap;

/// One point of a grid, as a wanted figure sees it.
struct Point {
    x: String,
    name: String,
    y: f64,
    /// Of any of its rows.
    doubts: Doubts,
    /// Its rows in the table, one for each seed.
    rows: Vec<usize>,
}

/// A number that a paper prints.
struct Said {
    claim: String,
    y: String,
    value: f64,
    /// Rows of the points that it is about.
    rows: Vec<usize>,
}

/// Draws the wanted figures as panels of one, and says what stands out; the columns drawn, for the data beside it.
pub fn draw(
    rows: &DataFrame,
    axes: &[String],
    wanted: &[Wanted],
    record: &Record,
) -> Framed<(Figure, Vec<String>, Vec<String>)> {
    let (mut panels, mut clauses, mut drawn) = (Vec::new(), Vec::new(), Vec::new());
    let said = said(&record.summary, rows)?;
    let mut seeds = 0;
    for figure in wanted {
        let has = |name: &str| rows.get_column_names().iter().any(|column| column.as_str() == name);
        let column =
            |name: &str| if has(&format!("axis_{name}")) { format!("axis_{name}") } else { name.to_owned() };
        let (x, by) = (column(&figure.x), figure.by.as_deref().map(column));
        if !has(&x) || !has(&figure.y) || by.as_ref().is_some_and(|by| !has(by)) {
            clauses
                .push(format!("the figure of {} by {} names a column that is not there", figure.y, figure.x));
            continue;
        }
        let kept = kept(rows, &figure.at)?;
        let points = points(rows, axes, &x, &figure.y, by.as_deref(), &kept)?;
        seeds = points.iter().map(|point| point.rows.len()).fold(seeds, usize::max);
        if points.is_empty() {
            clauses.push(format!("{} has no numbers to draw", figure.y));
            continue;
        }
        let title = figure.title.clone().unwrap_or_else(|| format!("{} by {}", spoken(&figure.y), figure.x));
        clauses.extend(best(&points, figure));
        drawn.push(figure.y.clone());
        let body = body(&points, figure, &said, &mut clauses);
        panels.push(Panel { title, chip: Some(record.provenance), body });
    }
    clauses.extend(repeats(seeds));
    Ok((Figure { columns: panels.len().clamp(1, 2), panels }, clauses, drawn))
}

/// A value as it stands in the columns of axes.
fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// Which rows have these values on these axes.
fn kept(rows: &DataFrame, at: &BTreeMap<String, Value>) -> Framed<Vec<bool>> {
    let mut kept = vec![true; rows.height()];
    for (axis, value) in at {
        let values = words(rows, &format!("axis_{axis}"))?;
        kept.iter_mut().zip(values).for_each(|(kept, is)| *kept &= is == plain(value));
    }
    Ok(kept)
}

/// What the papers print, with the rows that it is about; those that name an axis which is not there are left out.
fn said(summary: &Value, rows: &DataFrame) -> Framed<Vec<Said>> {
    let mut all = Vec::new();
    for entry in summary["published"].as_array().into_iter().flatten() {
        let (Some(claim), Some(y), Some(value)) =
            (entry["claim"].as_str(), entry["y"].as_str(), entry["value"].as_f64())
        else {
            continue;
        };
        let at = entry["at"].as_object().into_iter().flatten().map(|(k, v)| (k.clone(), v.clone())).collect();
        let Ok(kept) = kept(rows, &at) else { continue };
        let rows = (0..rows.height()).filter(|&row| kept[row]).collect();
        all.push(Said { claim: claim.to_owned(), y: y.to_owned(), value, rows });
    }
    Ok(all)
}

/// The points of the rows that are kept.
fn points(
    rows: &DataFrame,
    axes: &[String],
    x: &str,
    y: &str,
    by: Option<&str>,
    kept: &[bool],
) -> Framed<Vec<Point>> {
    let (xs, ys) = (words(rows, x)?, floats(rows, y)?);
    // The axis asked for names the curve; others join it where they vary within a curve.
    let mut names: Vec<(&str, Vec<String>)> = Vec::new();
    let others = axes.iter().map(String::as_str).filter(|axis| *axis != SEED);
    for axis in by.into_iter().chain(others) {
        let values = words(rows, axis)?;
        let told = axis == x
            || names.iter().any(|(other, known)| *other == axis || *known == values)
            || values == xs;
        let drawn = || values.iter().zip(kept).filter(|(_, kept)| **kept).map(|(value, _)| value.clone());
        if !told && (Some(axis) == by || distinct(drawn()).len() > 1) {
            names.push((axis, values));
        }
    }
    let label = |row: usize| {
        let part = |(axis, values): &(&str, Vec<String>)| match axis.trim_start_matches("axis_") {
            "plan" | "protocol" | "workload" | "variant" => super::spelled(&values[row]).to_owned(),
            axis => format!("{axis} {}", values[row]),
        };
        names.iter().map(part).collect::<Vec<_>>().join(", ")
    };
    // By curve and place: the values, and the rows that they are from.
    let mut found: Vec<(String, String, Vec<f64>, Vec<usize>)> = Vec::new();
    for row in (0..rows.height()).filter(|row| kept[*row]) {
        let Some(y) = ys[row].filter(|y| y.is_finite()) else { continue };
        let (x, name) = (xs[row].clone(), label(row));
        match found.iter_mut().find(|of| of.0 == x && of.1 == name) {
            Some(of) => {
                of.2.push(y);
                of.3.push(row);
            }
            None => found.push((x, name, vec![y], vec![row])),
        }
    }
    let doubts = doubts(rows);
    let point = |(x, name, values, rows): (String, String, Vec<f64>, Vec<usize>)| {
        let doubts = rows.iter().fold(Doubts::default(), |all, row| all.or(doubts[*row]));
        Some(Point { x, name, y: median(values)?, doubts, rows })
    };
    Ok(found.into_iter().filter_map(point).collect())
}

fn body(points: &[Point], figure: &Wanted, said: &[Said], clauses: &mut Vec<String>) -> Body {
    let names = distinct(points.iter().map(|p| p.name.clone()));
    if names.len() > CURVES {
        clauses.push(format!("{CURVES} of {} curves are drawn, the others are in the CSV", names.len()));
    }
    let inks: Vec<Ink> = ink::for_names(names.iter().map(String::as_str));
    let shown = || names.iter().zip(&inks).take(CURVES);
    let format = format_of(&figure.y);
    // Where a number is about several points, it is about the largest of them: a peak.
    let printed: Vec<(&Said, &Point)> = said
        .iter()
        .filter(|said| said.y == figure.y)
        .filter_map(|said| {
            let of = points.iter().filter(|p| p.rows.iter().any(|row| said.rows.contains(row)));
            Some((said, of.max_by(|a, b| a.y.total_cmp(&b.y))?))
        })
        .collect();
    clauses.extend(printed.iter().map(|(said, point)| {
        let (published, got) = (format(said.value), format(point.y));
        format!("{} prints {published} where {} gives {got}", said.claim, place(point, figure))
    }));
    let numbers: Option<Vec<f64>> =
        points.iter().map(|p| p.x.parse().ok().filter(|x: &f64| x.is_finite())).collect();
    let Some(numbers) = numbers else {
        let categories = distinct(points.iter().map(|p| p.x.clone()));
        let point = |name: &str, x: &String| points.iter().find(|p| p.name == name && p.x == *x);
        let series = shown().map(|(name, ink)| bars::Series {
            name: name.clone(),
            ink: *ink,
            values: categories.iter().map(|x| point(name, x).map(|p| p.y)).collect(),
            signs: categories
                .iter()
                .map(|x| point(name, x).map_or(String::new(), |p| p.doubts.signs()))
                .collect(),
        });
        let series = series.collect();
        return Body::Bars(Bars { y_title: spoken(&figure.y), format, categories, series });
    };
    let series = shown().map(|(name, ink)| {
        let line = points.iter().filter(|p| p.name == *name);
        let line = line.filter_map(|p| Some((p.x.parse().ok()?, p.y, p.doubts.signs())));
        Series::of(name.clone(), *ink, line.collect())
    });
    let mut series: Vec<Series> = series.collect();
    for (said, point) in printed {
        let ink = names
            .iter()
            .zip(&inks)
            .find(|(name, _)| **name == point.name)
            .map_or(Ink::Muted, |(_, ink)| *ink);
        let x = point.x.parse().unwrap_or(0.0);
        series.push(Series::of(said.claim.clone(), ink, vec![(x, said.value, String::new())]));
    }
    Body::Lines(Lines {
        x: Axis { title: figure.x.clone(), kind: numeric_kind(&numbers), format: human::short },
        y: Axis {
            title: spoken(&figure.y),
            kind: if figure.y.ends_with("_ns") { Kind::Log10 } else { Kind::Linear },
            format,
        },
        series,
        height: 300.0,
    })
}

/// How a column's values read, by the unit its name ends in.
fn format_of(column: &str) -> Format {
    match column {
        c if c.ends_with("_ns") => human::nanos,
        c if c.ends_with("_per_s") => human::short,
        _ => human::number,
    }
}

/// A column's name in words: `committed_per_s` is `committed per second`.
fn spoken(column: &str) -> String {
    let plain = column.strip_suffix("_per_s").map(|c| format!("{c} per second"));
    let plain = plain.or_else(|| column.strip_suffix("_ns").map(str::to_owned));
    plain.unwrap_or_else(|| column.to_owned()).replace('_', " ")
}

/// Where a point is, in words.
fn place(p: &Point, figure: &Wanted) -> String {
    match p.name.as_str() {
        "" => format!("{} {}", figure.x, p.x),
        name => format!("{name} at {} {}", figure.x, p.x),
    }
}

/// Where the column is largest and smallest.
fn best(points: &[Point], figure: &Wanted) -> Option<String> {
    let most = points.iter().max_by(|a, b| a.y.total_cmp(&b.y))?;
    let least = points.iter().min_by(|a, b| a.y.total_cmp(&b.y))?;
    let format = format_of(&figure.y);
    (most.y > least.y).then(|| {
        let what = spoken(&figure.y);
        format!(
            "{what} goes from {} ({}) to {} ({})",
            format(least.y),
            place(least, figure),
            format(most.y),
            place(most, figure)
        )
    })
}
