//! The figures that an experiment file asks for: a column against an axis, a curve for each value of another axis.
//!
//! A horizontal axis of numbers gives curves, one of words gives groups of bars. Points that differ in an axis which the
//! figure does not name are told apart by it: nothing is averaged behind the reader's back. Those that differ in their seed alone
//! are repeats, and count by their median, which is said; a figure may name the seed to see them.
//!
//! What papers print is drawn beside it ([`super::published`]), what is missing is not drawn over ([`super::missing`]), and a curve
//! has the colour of its primitive: of its name, or of the verb or plan that all of its points have.

use polars::prelude::*;

use super::experiments::{CURVES, PLACES, SEED, median, numeric_kind, repeats};
use super::published::{Said, kept, said};
use super::{axis_title, missing, spelled};
use crate::chart::bars::{self, Bars};
use crate::chart::lines::{Axis, Lines, Mark, Series};
use crate::chart::scale::Kind;
use crate::chart::{Body, Figure, Format, Panel};
use crate::doubt::{Doubts, doubts, interval, wide, widely};
use crate::frame::{Framed, distinct, floats, words};
use crate::human;
use crate::ink::{self, Ink, Look};
use crate::load::record::{Record, Wanted};

/// One point of a grid, as a wanted figure sees it.
#[derive(Clone)]
struct Point {
    x: String,
    /// Its curve, joined of `parts`.
    name: String,
    /// Its place on the axis asked for, then on the others that tell curves apart.
    parts: Vec<String>,
    y: f64,
    /// Of any of its rows.
    doubts: Doubts,
    /// How wide its interval is, if it is wide: of its rows, the widest.
    wide: Option<f64>,
    /// Its rows in the table, one for each seed.
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
    let said = said(&record.published, rows);
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
        clauses.extend(widely(points.iter().map(|point| point.wide)));
        drawn.push(figure.y.clone());
        let groups = apart(points, by.is_some());
        if groups.len() > PLACES {
            clauses.push(format!("{PLACES} of {} panels are drawn, the others are in the CSV", groups.len()));
        }
        for (place, points) in groups.iter().take(PLACES) {
            let looks = looks(rows, points)?;
            let mut body = body(points, figure, &said, &looks, &mut clauses);
            match &mut body {
                // A figure of one place on an axis asks for no other.
                _ if figure.at.contains_key(&figure.x) => {}
                Body::Lines(lines) => lines.asked = missing::numbers(record, rows, &figure.x),
                Body::Bars(bars) => widen(bars, &missing::values(record, rows, &figure.x)),
                Body::Rows(_) | Body::Scatter(_) => {}
            }
            let title = if place.is_empty() { title.clone() } else { format!("{title}, {place}") };
            panels.push(Panel { title, chip: Some(record.provenance), body });
        }
    }
    clauses.extend(repeats(seeds));
    if !panels.is_empty() {
        clauses.extend(missing::clause(record, rows));
    }
    Ok((Figure { columns: panels.len().clamp(1, 2), panels }, clauses, drawn))
}

/// Place and curve, the values there and the rows that they are from.
type Found = (String, Vec<String>, Vec<f64>, Vec<usize>);

/// The points of each panel, with what tells it from others: more curves than one holds, of which the figure names an axis, have a panel for
/// each place on the other axes.
fn apart(points: Vec<Point>, named: bool) -> Vec<(String, Vec<Point>)> {
    let curves = distinct(points.iter().map(|point| point.name.clone()));
    if !named || curves.len() <= CURVES || points.iter().all(|point| point.parts.len() < 2) {
        return vec![(String::new(), points)];
    }
    let place = |point: &Point| point.parts[1..].join(", ");
    let of = |at: &String| {
        let here = points.iter().filter(|point| place(point) == *at);
        here.map(|point| Point { name: point.parts[0].clone(), ..point.clone() }).collect()
    };
    distinct(points.iter().map(place)).into_iter().map(|at| (at.clone(), of(&at))).collect()
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
    let parts = |row: usize| {
        let part = |(axis, values): &(&str, Vec<String>)| {
            super::place(axis.trim_start_matches("axis_"), &values[row])
        };
        names.iter().map(part).collect::<Vec<String>>()
    };
    let mut found: Vec<Found> = Vec::new();
    for row in (0..rows.height()).filter(|row| kept[*row]) {
        let Some(y) = ys[row].filter(|y| y.is_finite()) else { continue };
        let (x, parts) = (xs[row].clone(), parts(row));
        match found.iter_mut().find(|of| of.0 == x && of.1 == parts) {
            Some(of) => {
                of.2.push(y);
                of.3.push(row);
            }
            None => found.push((x, parts, vec![y], vec![row])),
        }
    }
    let (doubts, wide) = (doubts(rows), wide(rows, y));
    let point = |(x, parts, values, rows): Found| {
        let doubts = rows.iter().fold(Doubts::default(), |all, row| all.or(doubts[*row]));
        let wide = rows.iter().filter_map(|row| wide[*row]).max_by(f64::total_cmp);
        Some(Point { x, name: parts.join(", "), parts, y: median(values)?, doubts, wide, rows })
    };
    Ok(found.into_iter().filter_map(point).collect())
}

/// A look for each curve: by its name, else by the verb or the plan that all of its points have.
fn looks(rows: &DataFrame, points: &[Point]) -> Framed<Vec<(String, Look)>> {
    let there = |column: &&str| rows.get_column_names().iter().any(|name| name.as_str() == *column);
    let columns = ["verb", "plan"].into_iter().filter(there);
    let columns = columns.map(|column| words(rows, column)).collect::<Framed<Vec<_>>>()?;
    let ink = |curve: &String| {
        let of = || points.iter().filter(|p| p.name == *curve).flat_map(|p| &p.rows);
        let one = |values: &Vec<String>| match distinct(of().map(|row| values[*row].clone())).as_slice() {
            [one] => ink::for_name(one),
            _ => Ink::Other,
        };
        let inks = [ink::for_name(curve)].into_iter().chain(columns.iter().map(one));
        inks.into_iter().find(|ink| *ink != Ink::Other).unwrap_or(Ink::Other)
    };
    let names = distinct(points.iter().map(|p| p.name.clone()));
    let looks = ink::looks(&names.iter().map(ink).collect::<Vec<_>>());
    Ok(names.into_iter().zip(looks).collect())
}

/// Places that were asked for and have no bar, where the rest of them stand.
fn widen(bars: &mut Bars, asked: &[String]) {
    let asked: Vec<String> = asked.iter().map(|place| category(place)).collect();
    if !bars.categories.iter().all(|there| asked.contains(there)) {
        return;
    }
    let at: Vec<Option<usize>> =
        asked.iter().map(|place| bars.categories.iter().position(|there| there == place)).collect();
    let place = |was: usize| at.iter().position(|at| *at == Some(was)).unwrap_or(was);
    for series in &mut bars.series {
        series.values = at.iter().map(|at| at.and_then(|at| series.values[at])).collect();
        series.signs = at.iter().map(|at| at.map_or(String::new(), |at| series.signs[at].clone())).collect();
        series.intervals.iter_mut().for_each(|of| of.0 = place(of.0));
        series.marks.iter_mut().for_each(|of| of.0 = place(of.0));
    }
    bars.categories = asked;
}

/// What stands under a group of bars.
fn category(x: &str) -> String {
    spelled(x.trim_start_matches("sim:")).to_owned()
}

fn body(
    points: &[Point],
    figure: &Wanted,
    said: &[Said],
    looks: &[(String, Look)],
    clauses: &mut Vec<String>,
) -> Body {
    if looks.len() > CURVES {
        clauses.push(format!("{CURVES} of {} curves are drawn, the others are in the CSV", looks.len()));
    }
    let shown = &looks[..looks.len().min(CURVES)];
    let format = format_of(&figure.y);
    // Where a number is about several points, it is about the largest of them: a peak.
    let printed: Vec<(&Said, &Point)> = said
        .iter()
        .filter(|said| said.y == figure.y)
        .filter_map(|said| {
            let of = points.iter().filter(|p| said.is_about(&p.rows));
            Some((said, of.max_by(|a, b| a.y.total_cmp(&b.y))?))
        })
        .collect();
    clauses.extend(printed.iter().map(|(said, p)| said.beside(&place(p, figure), p.y, format)));
    let numbers: Option<Vec<f64>> =
        points.iter().map(|p| p.x.parse().ok().filter(|x: &f64| x.is_finite())).collect();
    let Some(numbers) = numbers else {
        let places = distinct(points.iter().map(|p| p.x.clone()));
        let series = shown.iter().map(|(name, look)| {
            let of: Vec<Option<&Point>> =
                places.iter().map(|x| points.iter().find(|p| p.name == *name && p.x == *x)).collect();
            let values = of.iter().map(|p| p.map(|p| p.y)).collect();
            let signs = of.iter().map(|p| p.map_or(String::new(), |p| p.doubts.signs())).collect();
            let mut series = bars::Series::of(name.clone(), *look, values, signs);
            for (at, p) in of.iter().enumerate().filter_map(|(at, p)| Some((at, (*p)?))) {
                series.intervals.extend(interval(p.y, p.wide).map(|(from, to)| (at, from, to)));
                let marks = printed.iter().filter(|(_, about)| about.name == p.name && about.x == p.x);
                series.marks.extend(marks.map(|(said, _)| (at, said.value)));
            }
            series
        });
        let series = series.collect();
        let categories = places.iter().map(|x| category(x)).collect();
        return Body::Bars(Bars { y_title: spoken(&figure.y), format, categories, series });
    };
    let series = shown.iter().map(|(name, look)| {
        let line = || points.iter().filter(|p| p.name == *name).filter_map(|p| Some((p, p.x.parse().ok()?)));
        let mut series =
            Series::of(name.clone(), *look, line().map(|(p, x)| (x, p.y, p.doubts.signs())).collect());
        let intervals = line().filter_map(|(p, x)| interval(p.y, p.wide).map(|(from, to)| (x, from, to)));
        series.intervals = intervals.collect();
        series
    });
    let kind = if figure.y.ends_with("_ns") { Kind::Log10 } else { Kind::Linear };
    let x_format: Format = if figure.x.starts_with("payload") { human::bytes } else { human::short };
    let mut lines = Lines::of(
        Axis { title: axis_title(&figure.x), kind: numeric_kind(&numbers), format: x_format },
        Axis { title: spoken(&figure.y), kind, format },
        series.collect(),
        300.0,
    );
    let mark = |(said, point): &(&Said, &Point)| {
        let look = looks.iter().find(|(name, _)| *name == point.name);
        let ink = look.map_or(Ink::Muted, |(_, look)| look.ink);
        Mark { name: said.claim.clone(), ink, x: point.x.parse().unwrap_or(0.0), y: said.value }
    };
    lines.marks = printed.iter().map(mark).collect();
    Body::Lines(lines)
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
    let axis = axis_title(&figure.x);
    match p.name.as_str() {
        "" => format!("{axis} {}", p.x),
        name => format!("{name} at {axis} {}", p.x),
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
