//! Experiments: the figures that the experiment file asks for ([`super::wanted`]), else throughput and latency over the
//! grid's own axes.
//!
//! In that case the numeric axis with most values becomes the horizontal one; what is left of the grid (plan, protocol and the
//! other axes) names the curves. Where they are too many for one panel, or their names too long, the first of these axes names
//! curves and the others panels. Points that differ in their seed alone are repeats, and count by their median. A grid without
//! a numeric axis becomes a table.

use polars::prelude::*;

use super::primitives::sentence;
use super::studies::latency;
use super::{Drawn, Section, held, missing, provenance_of, slug};
use crate::chart::lines::{self, Axis, Lines, Series};
use crate::chart::rows::{Cell, Column, Row, Rows};
use crate::chart::scale::Kind;
use crate::chart::{Body, Figure, Panel};
use crate::doubt::{Doubts, doubts, interval, wide, widely};
use crate::frame::{Framed, distinct, floats, stack, tagged, words};
use crate::human;
use crate::ink;
use crate::load::Results;
use crate::load::record::Provenance;

/// Curves drawn in one panel; more than this cannot be told apart.
pub(super) const CURVES: usize = 8;
/// Places drawn, each with a panel for rates and one for latencies.
pub(super) const PLACES: usize = 8;
const ROWS: usize = 40;
pub(super) const SEED: &str = "axis_seed";
const MEASURES: [&str; 7] = [
    held::COROUTINES,
    "committed_per_s",
    "aborted_per_s",
    "latency_p50_ns",
    "latency_p99_ns",
    "round_trips_per_committed",
    "isolation_verdict",
];

/// One figure per experiment.
pub fn draw(results: &[&Results]) -> Framed<Vec<Drawn>> {
    let mut drawn = Vec::new();
    for results in results {
        drawn.extend(experiment(results)?);
    }
    Ok(drawn)
}

/// One point of a grid.
#[derive(Clone)]
struct Point {
    x: Option<f64>,
    /// What tells it from others but `x`: the first axis, then the rest.
    parts: Vec<String>,
    rate: f64,
    p50: Option<f64>,
    p99: Option<f64>,
    doubts: Doubts,
    /// How wide the interval of its rate is, if it is wide; of several seeds, the widest.
    wide: Option<f64>,
}

impl Point {
    fn name(&self) -> String {
        joined(&self.parts)
    }
}

fn joined(parts: &[String]) -> String {
    parts.iter().filter(|part| !part.is_empty()).cloned().collect::<Vec<_>>().join(", ")
}

/// The middle of some values.
pub(super) fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let n = values.len();
    (n > 0).then(|| (values[(n - 1) / 2] + values[n / 2]) / 2.0)
}

/// What is said of points that are of so many seeds.
pub(super) fn repeats(seeds: usize) -> Option<String> {
    (seeds > 1).then(|| format!("each point is the median of {}", human::count(seeds as u64, "seed")))
}

/// One point for all that differ in their seed alone, and how many seeds it is of.
fn folded(points: Vec<Point>) -> (Vec<Point>, usize) {
    let mut groups: Vec<Vec<Point>> = Vec::new();
    for point in points {
        match groups.iter_mut().find(|of| of[0].x == point.x && of[0].parts == point.parts) {
            Some(of) => of.push(point),
            None => groups.push(vec![point]),
        }
    }
    let seeds = groups.iter().map(Vec::len).max().unwrap_or(0);
    let fold = |of: Vec<Point>| {
        let median = |value: fn(&Point) -> Option<f64>| median(of.iter().filter_map(value).collect());
        let rate = median(|p| Some(p.rate)).unwrap_or(0.0);
        let doubts = of.iter().fold(Doubts::default(), |all, p| all.or(p.doubts));
        let wide = of.iter().filter_map(|p| p.wide).max_by(f64::total_cmp);
        Point { rate, p50: median(|p| p.p50), p99: median(|p| p.p99), doubts, wide, ..of[0].clone() }
    };
    (groups.into_iter().map(fold).collect(), seeds)
}

fn experiment(results: &Results) -> Framed<Option<Drawn>> {
    let rows = results.points.clone().lazy().filter(col("committed_per_s").is_not_null()).collect()?;
    if rows.height() == 0 {
        return Ok(None);
    }
    let axes: Vec<String> =
        rows.get_column_names().iter().filter(|c| c.starts_with("axis_")).map(|c| c.to_string()).collect();
    let record = &results.record;
    let title =
        [&record.title, &results.label].into_iter().find(|t| !t.is_empty()).cloned().unwrap_or_default();
    let mut columns: Vec<&str> = vec!["point", "workload", "protocol", "plan"];
    columns.extend(axes.iter().map(String::as_str));
    columns.extend(MEASURES);
    let wanted = record.figures();
    if wanted.is_empty() && super::comparison::compares(results)? {
        return Ok(None);
    }
    let (asked, said, drawn) = super::wanted::draw(&rows, &axes, &wanted, record)?;
    columns.extend(distinct(drawn.iter().map(String::as_str)).into_iter().filter(|c| !MEASURES.contains(c)));
    let (figure, clauses) = match asked.panels.is_empty() {
        false => (asked, said),
        true => {
            let others: Vec<String> = axes.iter().filter(|axis| *axis != SEED).cloned().collect();
            let horizontal = horizontal(&rows, &others)?;
            let (points, seeds) = folded(points(&rows, &others, horizontal.as_deref())?);
            let (figure, mut clauses) = match horizontal {
                Some(axis) => curves(&points, axis.trim_start_matches("axis_"), results),
                None => (table(&points, record.provenance), extremes(&points)),
            };
            clauses.extend(repeats(seeds));
            clauses.extend(widely(points.iter().map(|p| p.wide)));
            clauses.extend(missing::clause(record, &results.points));
            (figure, said.into_iter().chain(clauses).collect())
        }
    };
    Ok(Some(Drawn {
        id: format!("experiment-{}", slug(&results.label)),
        section: Section::Experiments,
        title: record.question.clone().filter(|q| !q.is_empty()).unwrap_or(title),
        caption: sentence(&clauses, "There is one point only.") + &held::told(record, &rows)?,
        provenance: provenance_of([results]),
        frame: stack(vec![tagged(results, rows.lazy(), &columns)])?,
        figure,
    }))
}

fn horizontal(rows: &DataFrame, axes: &[String]) -> Framed<Option<String>> {
    let mut best: Option<(usize, &String)> = None;
    for axis in axes {
        let values = distinct(words(rows, axis)?);
        let numeric = values.iter().all(|v| v.parse::<f64>().is_ok_and(f64::is_finite));
        if numeric && values.len() > best.map_or(1, |b| b.0) {
            best = Some((values.len(), axis));
        }
    }
    Ok(best.map(|(_, axis)| axis.clone()))
}

fn points(rows: &DataFrame, axes: &[String], horizontal: Option<&str>) -> Framed<Vec<Point>> {
    // Only what varies needs a name.
    let mut names: Vec<(String, Vec<String>)> = Vec::new();
    // A plan's own coroutines tell rows apart; along an axis of numbers they would tear curves to pieces.
    let unasked = horizontal.is_none() && held::unasked(rows, held::COROUTINES).is_some();
    let columns = ["plan", "protocol", "workload"].into_iter().chain(unasked.then_some(held::COROUTINES));
    for column in columns.chain(axes.iter().map(String::as_str)) {
        let values = words(rows, column)?;
        // An axis over plans repeats the plan column.
        let known = names.iter().any(|(_, other)| *other == values);
        if Some(column) != horizontal && !known && distinct(values.clone()).len() > 1 {
            names.push((column.to_owned(), values));
        }
    }
    if names.is_empty() {
        names.push(("plan".to_owned(), words(rows, "plan")?));
    }
    let parts = |row: usize| {
        let part = |(column, values): &(String, Vec<String>)| match column.strip_prefix("axis_") {
            Some(axis) => format!("{} {}", axis.trim_start_matches("set."), values[row]),
            None if column == held::COROUTINES => held::coroutines(&values[row]),
            None => super::spelled(&values[row]).to_owned(),
        };
        names.iter().map(part).collect::<Vec<String>>()
    };
    let x = match horizontal {
        Some(axis) => words(rows, axis)?.iter().map(|v| v.parse().ok()).collect(),
        None => vec![None; rows.height()],
    };
    let [rate, p50, p99] =
        [floats(rows, "committed_per_s")?, floats(rows, "latency_p50_ns")?, floats(rows, "latency_p99_ns")?];
    let (doubts, wide) = (doubts(rows), wide(rows, "committed_per_s"));
    let point = |i: usize| Point {
        x: x[i],
        parts: parts(i),
        rate: rate[i].unwrap_or(0.0),
        p50: p50[i],
        p99: p99[i],
        doubts: doubts[i],
        wide: wide[i],
    };
    Ok((0..rows.height()).map(point).collect())
}

fn curves(points: &[Point], axis: &str, results: &Results) -> (Figure, Vec<String>) {
    let whole = distinct(points.iter().map(Point::name));
    let split = points.iter().any(|p| p.parts.len() > 1)
        && (whole.len() > CURVES || whole.iter().any(|name| !lines::name_fits(name)));
    let name = |p: &Point| if split { p.parts[0].clone() } else { p.name() };
    let place = |p: &Point| if split { joined(&p.parts[1..]) } else { String::new() };
    let names = distinct(points.iter().map(name));
    let looks = ink::for_names(names.iter().map(String::as_str));
    let asked = missing::numbers(&results.record, &results.points, axis);
    let kind = numeric_kind(&distinct(points.iter().filter_map(|p| p.x)));
    let places = distinct(points.iter().map(place));
    let series = |at: &str, value: fn(&Point) -> Option<f64>, wide: fn(&Point) -> Option<f64>| {
        let one = |(curve, look): (&String, &ink::Look)| {
            let of_curve = || points.iter().filter(|p| name(p) == *curve && place(p) == at);
            let line = || of_curve().filter_map(|p| Some((p, p.x?, value(p)?)));
            let drawn = line().map(|(p, x, y)| (x, y, p.doubts.signs()));
            let mut series = Series::of(curve.clone(), *look, drawn.collect());
            let known = line().filter_map(|(p, x, y)| interval(y, wide(p)).map(|(from, to)| (x, from, to)));
            series.intervals = known.collect();
            series
        };
        names
            .iter()
            .zip(&looks)
            .map(one)
            .filter(|s| !s.points.is_empty())
            .take(CURVES)
            .collect::<Vec<Series>>()
    };
    let panel = |title: String, kind_of_y, format, series| {
        let x = Axis { title: axis.to_owned(), kind, format: human::short };
        let y = Axis { title: String::new(), kind: kind_of_y, format };
        let lines = Lines { asked: asked.clone(), ..Lines::of(x, y, series, 300.0) };
        Panel { title, chip: Some(results.record.provenance), body: Body::Lines(lines) }
    };
    let (mut panels, mut changes) = (Vec::new(), Vec::new());
    for at in places.iter().take(PLACES) {
        let told = |what: &str| if at.is_empty() { what.to_owned() } else { format!("{what}, {at}") };
        let rates = series(at, |p| Some(p.rate), |p| p.wide);
        changes.extend(rates.iter().filter_map(|s| change(s, &told(&s.name), axis)));
        let per_s = if at.is_empty() { "Committed transactions per second" } else { "Committed per second" };
        panels.push(panel(told(per_s), Kind::Linear, human::short as fn(f64) -> String, rates));
        let latencies = series(at, |p| p.p50, |_| None);
        panels.push(panel(told("Median latency"), Kind::Log10, human::nanos, latencies));
    }
    changes.truncate(3);
    for (all, most, noun) in [(names.len(), CURVES, "curves"), (places.len(), PLACES, "pairs of panels")] {
        if all > most {
            changes.push(format!("{most} of {all} {noun} are drawn, the others are in the CSV"));
        }
    }
    (Figure { columns: 2, panels }, changes)
}

/// Values that span some doublings stand on a logarithmic axis.
pub(super) fn numeric_kind(xs: &[f64]) -> Kind {
    let (low, high) = xs.iter().fold((f64::INFINITY, 0.0_f64), |(l, h), x| (l.min(*x), h.max(*x)));
    if low > 0.0 && high / low >= 8.0 { Kind::Log2 } else { Kind::Linear }
}

fn change(series: &Series, name: &str, axis: &str) -> Option<String> {
    let (first, last) = (series.points.first()?, series.points.last()?);
    let ratio = last.1 / first.1;
    (series.points.len() > 1 && ratio.is_finite()).then(|| {
        format!(
            "as {axis} goes from {} to {}, {} goes from {} to {} ({})",
            human::whole(first.0),
            human::whole(last.0),
            name,
            human::rate(first.1),
            human::rate(last.1),
            human::signed_percent(ratio - 1.0),
        )
    })
}

fn extremes(points: &[Point]) -> Vec<String> {
    let best = points.iter().max_by(|a, b| a.rate.total_cmp(&b.rate));
    let worst = points.iter().min_by(|a, b| a.rate.total_cmp(&b.rate));
    match (best, worst) {
        (Some(best), Some(worst)) if points.len() > 1 => vec![format!(
            "fastest is {} with {}, slowest {} with {}",
            best.name(),
            human::rate(best.rate),
            worst.name(),
            human::rate(worst.rate)
        )],
        _ => Vec::new(),
    }
}

fn table(points: &[Point], provenance: Provenance) -> Figure {
    let mut order: Vec<&Point> = points.iter().collect();
    order.sort_by(|a, b| b.rate.total_cmp(&a.rate));
    let row = |p: &&Point| {
        let ink = ink::for_name(&p.name());
        let cells = vec![Cell::Bar(p.rate, human::rate(p.rate), ink), latency(p.p50, p.p99, ink)];
        Row { name: p.doubts.beside(p.name()), ink, cells }
    };
    let column = |title: &str, kind| Column { title: title.to_owned(), weight: 1.0, kind };
    let title = match order.len() > ROWS {
        true => format!("The fastest {ROWS} of {} points", order.len()),
        false => "All points, fastest first".to_owned(),
    };
    Figure {
        columns: 1,
        panels: vec![Panel {
            title,
            chip: Some(provenance),
            body: Body::Rows(Rows {
                columns: vec![
                    column("committed transactions per second", Kind::Linear),
                    column("latency: ● median ○ 99th percentile", Kind::Log10),
                ],
                rows: order.iter().take(ROWS).map(row).collect(),
                key: Vec::new(),
            }),
        }],
    }
}
