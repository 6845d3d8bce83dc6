//! Grids of requests alone: rate and latency over the grid's own axes, with what papers print for single points.
//!
//! The numeric axis with most values becomes the horizontal one; the other axes name the curves. A published point is
//! drawn as a mark of its own beside the curve it belongs to, in the same colour, with the claim's name.

use polars::prelude::*;
use serde_json::Value;

use super::primitives::sentence;
use super::{Drawn, Section, provenance_of, slug, spelled};
use crate::chart::lines::{Axis, Lines, Series};
use crate::chart::rows::{Cell, Column, Row, Rows};
use crate::chart::scale::Kind;
use crate::chart::{Body, Figure, Panel};
use crate::doubt::{Doubts, doubts};
use crate::frame::{Framed, distinct, floats, stack, tagged, words};
use crate::human;
use crate::ink;
use crate::load::Results;

/// Curves drawn in one panel; more than this cannot be told apart.
const CURVES: usize = 8;
const RATE: &str = "rate_per_server_per_s";
const MEASURES: [&str; 3] = [RATE, "latency_p50_ns", "latency_p99_ns"];

/// One figure per grid.
pub fn draw(results: &[&Results]) -> Framed<Vec<Drawn>> {
    let mut drawn = Vec::new();
    for results in results {
        drawn.extend(grid(results)?);
    }
    Ok(drawn)
}

/// One point of a grid: its value on each axis, and what was measured.
struct Point {
    at: Vec<(String, String)>,
    rate: f64,
    p50: Option<f64>,
    doubts: Doubts,
}

impl Point {
    fn number(&self, axis: &str) -> Option<f64> {
        self.at.iter().find(|(name, _)| name == axis).and_then(|(_, value)| value.parse().ok())
    }

    /// What its curve is called: its place on all axes but the horizontal one, the shortest first, since there is little room
    /// beside a curve and what is cut must not be what tells it from its neighbours.
    fn name(&self, horizontal: Option<&str>) -> String {
        let part = |(axis, value): &(String, String)| match axis.as_str() {
            "verb" | "fabric" | "optimizations" => spelled(value.trim_start_matches("sim:")).to_owned(),
            "queue_pairs" => format!("{value} QP"),
            "addresses" => format!("{value} addr."),
            "payload" => format!("{value} B"),
            _ => format!("{} {value}", axis.replace('_', " ")),
        };
        let mut parts: Vec<String> =
            self.at.iter().filter(|(axis, _)| Some(axis.as_str()) != horizontal).map(part).collect();
        parts.sort_by_key(|part| part.len());
        if parts.is_empty() { "all".to_owned() } else { parts.join(", ") }
    }
}

fn grid(results: &Results) -> Framed<Option<Drawn>> {
    let rows = results.points.clone().lazy().filter(col(RATE).is_not_null()).collect()?;
    if rows.height() == 0 {
        return Ok(None);
    }
    let axes: Vec<String> =
        rows.get_column_names().iter().filter_map(|c| c.strip_prefix("axis_").map(str::to_owned)).collect();
    let points = points(&rows, &axes)?;
    let horizontal = horizontal(&points, &axes);
    let published = published(&results.record.summary);
    let record = &results.record;
    let (figure, clauses) = match &horizontal {
        Some(axis) => curves(&points, axis, &published, results),
        None => (table(&points, results), Vec::new()),
    };
    let tags: Vec<String> = axes.iter().map(|axis| format!("axis_{axis}")).collect();
    let mut columns: Vec<&str> = vec!["point"];
    columns.extend(tags.iter().map(String::as_str));
    columns.extend(MEASURES);
    let title = record.question.clone().filter(|q| !q.is_empty()).unwrap_or_else(|| record.title.clone());
    Ok(Some(Drawn {
        id: format!("requests-{}", slug(&results.label)),
        section: Section::Primitives,
        title,
        caption: sentence(&clauses, "All points are in the table."),
        provenance: provenance_of([results]),
        frame: stack(vec![tagged(results, rows.lazy(), &columns)])?,
        figure,
    }))
}

fn points(rows: &DataFrame, axes: &[String]) -> Framed<Vec<Point>> {
    let values: Vec<Vec<String>> =
        axes.iter().map(|axis| words(rows, &format!("axis_{axis}"))).collect::<Framed<_>>()?;
    let [rate, p50] = [floats(rows, RATE)?, floats(rows, MEASURES[1])?];
    let doubts = doubts(rows);
    let point = |i: usize| Point {
        at: axes.iter().zip(&values).map(|(axis, v)| (axis.clone(), v[i].clone())).collect(),
        rate: rate[i].unwrap_or(0.0),
        p50: p50[i],
        doubts: doubts[i],
    };
    Ok((0..rows.height()).map(point).collect())
}

/// The axis of numbers with most values, if one has several.
fn horizontal(points: &[Point], axes: &[String]) -> Option<String> {
    let size = |axis: &&String| {
        let all: Option<Vec<f64>> = points.iter().map(|point| point.number(axis)).collect();
        all.map_or(0, |all| distinct(all).len())
    };
    axes.iter().max_by_key(size).filter(|axis| size(axis) > 1).cloned()
}

/// A printed number: the claim, where it belongs, and its value.
struct Said {
    claim: String,
    at: Vec<(String, String)>,
    value: f64,
}

fn published(summary: &Value) -> Vec<Said> {
    let said = |entry: &Value| {
        let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let at = entry["at"].as_object()?.iter().map(|(axis, value)| (axis.clone(), text(value)));
        (entry["y"].as_str() == Some(RATE)).then_some(())?;
        Some(Said {
            claim: entry["claim"].as_str()?.to_owned(),
            at: at.collect(),
            value: entry["value"].as_f64()?,
        })
    };
    summary["published"].as_array().into_iter().flatten().filter_map(said).collect()
}

fn curves(points: &[Point], axis: &str, said: &[Said], results: &Results) -> (Figure, Vec<String>) {
    let names = distinct(points.iter().map(|p| p.name(Some(axis))));
    let inks = ink::for_names(names.iter().map(String::as_str));
    let xs = distinct(points.iter().filter_map(|p| p.number(axis)));
    let (low, high) = xs.iter().fold((f64::INFINITY, 0.0_f64), |(l, h), x| (l.min(*x), h.max(*x)));
    let kind = if low > 0.0 && high / low >= 8.0 { Kind::Log2 } else { Kind::Linear };
    let series = |value: fn(&Point) -> Option<f64>| -> Vec<Series> {
        let one = |(name, ink): (&String, &ink::Ink)| {
            let of_curve = points.iter().filter(|p| p.name(Some(axis)) == *name);
            let line = of_curve.filter_map(|p| Some((p.number(axis)?, value(p)?, p.doubts.signs())));
            Series::of(name.clone(), *ink, line.collect())
        };
        names.iter().zip(&inks).map(one).filter(|s| !s.points.is_empty()).take(CURVES).collect()
    };
    let mut rates = series(|p| Some(p.rate));
    let mut clauses = Vec::new();
    for said in said {
        // The claim names some axes; the curve that agrees on them has its colour, the highest where several do.
        let agrees = |p: &&Point| said.at.iter().all(|pair| p.at.contains(pair));
        let Some(point) = points.iter().filter(agrees).max_by(|a, b| a.rate.total_cmp(&b.rate)) else {
            continue;
        };
        let (Some(x), name) = (point.number(axis), point.name(Some(axis))) else { continue };
        let ink = names.iter().zip(&inks).find(|(n, _)| **n == name).map_or(ink::Ink::Muted, |(_, ink)| *ink);
        rates.push(Series::of(said.claim.clone(), ink, vec![(x, said.value, String::new())]));
        clauses.push(format!(
            "{} prints {} where {} gives {}",
            said.claim,
            human::rate(said.value),
            name,
            human::rate(point.rate)
        ));
    }
    if names.len() > CURVES {
        clauses.push(format!("{CURVES} of {} curves are drawn, the others are in the CSV", names.len()));
    }
    let panel = |title: &str, kind_of_y, format, series| Panel {
        title: title.to_owned(),
        chip: Some(results.record.provenance),
        body: Body::Lines(Lines {
            x: Axis { title: axis.replace('_', " "), kind, format: human::short },
            y: Axis { title: String::new(), kind: kind_of_y, format },
            series,
            height: 300.0,
        }),
    };
    let panels = vec![
        panel(
            "Requests per second and machine asked",
            Kind::Linear,
            human::short as fn(f64) -> String,
            rates,
        ),
        panel("Median latency", Kind::Log10, human::nanos, series(|p| p.p50)),
    ];
    (Figure { columns: 2, panels }, clauses)
}

fn table(points: &[Point], results: &Results) -> Figure {
    let row = |p: &Point| {
        let name = p.name(None);
        let ink = ink::for_name(&name);
        let latency = p.p50.map_or(Cell::Missing, |ns| Cell::Bar(ns, human::nanos(ns), ink));
        Row {
            name: p.doubts.beside(name),
            ink,
            cells: vec![Cell::Bar(p.rate, human::rate(p.rate), ink), latency],
        }
    };
    let column = |title: &str| Column { title: title.to_owned(), weight: 1.0, kind: Kind::Linear };
    let body = Body::Rows(Rows {
        columns: vec![column("per second and machine asked"), column("median latency")],
        rows: points.iter().map(row).collect(),
        key: Vec::new(),
    });
    let panel = Panel { title: "All points".to_owned(), chip: Some(results.record.provenance), body };
    Figure { columns: 1, panels: vec![panel] }
}
