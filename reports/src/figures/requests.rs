//! Grids of requests alone: the figures that the experiment file asks for ([`super::wanted`]), else rate and latency over the
//! grid's own axes, with what papers print for single points ([`super::published`]).
//!
//! In that case the numeric axis with most values becomes the horizontal one; the other axes name the curves.

use polars::prelude::*;

use super::experiments::numeric_kind;
use super::primitives::sentence;
use super::published::{Said, said};
use super::{Drawn, Section, axis_title, missing, place, provenance_of, slug, wanted};
use crate::chart::lines::{Axis, Lines, Mark, Series};
use crate::chart::rows::{Cell, Column, Row, Rows};
use crate::chart::scale::Kind;
use crate::chart::{Body, Figure, Panel};
use crate::doubt::{Doubts, doubts, interval, wide, widely};
use crate::frame::{Framed, distinct, floats, stack, tagged, words};
use crate::human;
use crate::ink::{self, Ink};
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
    verb: String,
    rate: f64,
    p50: Option<f64>,
    doubts: Doubts,
    /// How wide the interval of its rate is, if it is wide.
    wide: Option<f64>,
    row: usize,
}

impl Point {
    fn number(&self, axis: &str) -> Option<f64> {
        self.at.iter().find(|(name, _)| name == axis).and_then(|(_, value)| value.parse().ok())
    }

    /// What its curve is called: its place on all axes but the horizontal one, the shortest first, since there is little room
    /// beside a curve and what is cut must not be what tells it from its neighbours.
    fn name(&self, horizontal: Option<&str>) -> String {
        let part = |(axis, value): &(String, String)| place(axis, value);
        let mut parts: Vec<String> =
            self.at.iter().filter(|(axis, _)| Some(axis.as_str()) != horizontal).map(part).collect();
        parts.sort_by_key(|part| part.len());
        if parts.is_empty() { "all".to_owned() } else { parts.join(", ") }
    }

    /// The colour of its verb, which not every grid varies.
    fn ink(&self) -> Ink {
        ink::for_name(&self.verb)
    }
}

fn grid(results: &Results) -> Framed<Option<Drawn>> {
    let rows = results.points.clone().lazy().filter(col(RATE).is_not_null()).collect()?;
    if rows.height() == 0 {
        return Ok(None);
    }
    let record = &results.record;
    let tags: Vec<String> =
        rows.get_column_names().iter().filter(|c| c.starts_with("axis_")).map(|c| c.to_string()).collect();
    let (asked, told, drawn) = wanted::draw(&rows, &tags, &record.figures(), record)?;
    let (figure, clauses) = match asked.panels.is_empty() {
        false => (asked, told),
        true => {
            let (figure, clauses) = usual(results, &rows, &tags)?;
            (figure, told.into_iter().chain(clauses).collect())
        }
    };
    let mut columns: Vec<&str> = vec!["point"];
    columns.extend(tags.iter().map(String::as_str));
    columns.extend(MEASURES);
    columns.push("rate_ci_relative");
    let more = distinct(drawn.iter().map(String::as_str)).into_iter().filter(|c| !columns.contains(c));
    let more: Vec<&str> = more.collect();
    columns.extend(more);
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

/// What is drawn where the file asks for nothing.
fn usual(results: &Results, rows: &DataFrame, tags: &[String]) -> Framed<(Figure, Vec<String>)> {
    let axes: Vec<String> = tags.iter().map(|tag| tag.trim_start_matches("axis_").to_owned()).collect();
    let points = points(rows, &axes)?;
    let (figure, mut clauses) = match horizontal(&points, &axes) {
        Some(axis) => curves(&points, &axis, &said(&results.record.published, rows), results),
        None => (table(&points, results), Vec::new()),
    };
    clauses.extend(widely(points.iter().map(|point| point.wide)));
    clauses.extend(missing::clause(&results.record, &results.points));
    Ok((figure, clauses))
}

fn points(rows: &DataFrame, axes: &[String]) -> Framed<Vec<Point>> {
    let values: Vec<Vec<String>> =
        axes.iter().map(|axis| words(rows, &format!("axis_{axis}"))).collect::<Framed<_>>()?;
    let [rate, p50] = [floats(rows, RATE)?, floats(rows, MEASURES[1])?];
    let (verbs, doubts, wide) = (words(rows, "verb")?, doubts(rows), wide(rows, RATE));
    let point = |i: usize| Point {
        at: axes.iter().zip(&values).map(|(axis, v)| (axis.clone(), v[i].clone())).collect(),
        rate: rate[i].unwrap_or(0.0),
        p50: p50[i],
        doubts: doubts[i],
        wide: wide[i],
        verb: verbs[i].clone(),
        row: i,
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

fn curves(points: &[Point], axis: &str, said: &[Said], results: &Results) -> (Figure, Vec<String>) {
    let names = distinct(points.iter().map(|p| p.name(Some(axis))));
    let of_curve =
        |name: &String| points.iter().filter(|p| p.name(Some(axis)) == *name).collect::<Vec<&Point>>();
    let ink = |name: &String| match distinct(of_curve(name).into_iter().map(Point::ink)).as_slice() {
        [one] => *one,
        _ => Ink::Other,
    };
    let looks = ink::looks(&names.iter().map(ink).collect::<Vec<_>>());
    let kind = numeric_kind(&distinct(points.iter().filter_map(|p| p.number(axis))));
    let series = |value: fn(&Point) -> Option<f64>, wide: fn(&Point) -> Option<f64>| -> Vec<Series> {
        let one = |(name, look): (&String, &ink::Look)| {
            let of = of_curve(name);
            let line = || of.iter().filter_map(|p| Some((*p, p.number(axis)?, value(p)?)));
            let mut series =
                Series::of(name.clone(), *look, line().map(|(p, x, y)| (x, y, p.doubts.signs())).collect());
            let known = line().filter_map(|(p, x, y)| interval(y, wide(p)).map(|(from, to)| (x, from, to)));
            series.intervals = known.collect();
            series
        };
        names.iter().zip(&looks).map(one).filter(|s| !s.points.is_empty()).take(CURVES).collect()
    };
    let (mut marks, mut clauses) = (Vec::new(), Vec::new());
    for said in said.iter().filter(|said| said.y == RATE) {
        // Where a number is about several points, it is about the highest of them.
        let about = points.iter().filter(|p| said.is_about(&[p.row]));
        let Some(point) = about.max_by(|a, b| a.rate.total_cmp(&b.rate)) else { continue };
        let (Some(x), name) = (point.number(axis), point.name(Some(axis))) else { continue };
        let look = names.iter().zip(&looks).find(|(n, _)| **n == name);
        let ink = look.map_or(Ink::Muted, |(_, look)| look.ink);
        marks.push(Mark { name: said.claim.clone(), ink, x, y: said.value });
        clauses.push(said.beside(&name, point.rate, human::rate));
    }
    if names.len() > CURVES {
        clauses.push(format!("{CURVES} of {} curves are drawn, the others are in the CSV", names.len()));
    }
    let panel = |title: &str, kind_of_y, format, series, marks| {
        let x = Axis { title: axis_title(axis), kind, format: human::short };
        let mut lines = Lines::of(x, Axis { title: String::new(), kind: kind_of_y, format }, series, 300.0);
        lines.marks = marks;
        lines.asked = missing::numbers(&results.record, &results.points, axis);
        Panel { title: title.to_owned(), chip: Some(results.record.provenance), body: Body::Lines(lines) }
    };
    let rates = series(|p| Some(p.rate), |p| p.wide);
    let latencies = series(|p| p.p50, |_| None);
    let panels = vec![
        panel(
            "Requests per second and machine asked",
            Kind::Linear,
            human::short as fn(f64) -> String,
            rates,
            marks,
        ),
        panel("Median latency", Kind::Log10, human::nanos, latencies, Vec::new()),
    ];
    (Figure { columns: 2, panels }, clauses)
}

fn table(points: &[Point], results: &Results) -> Figure {
    let row = |p: &Point| {
        let (name, ink) = (p.name(None), p.ink());
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
