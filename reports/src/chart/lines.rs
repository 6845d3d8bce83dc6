//! Curves over a numeric axis, each named where it ends, broken where points are missing; and what is printed for single points.

use super::canvas::{Align, Canvas, Type, width_of};
use super::scale::{Kind, Scale, spread};
use super::{Area, Format, LETTER, fit, marks};
use crate::ink::{Dash, Ink, Look};

/// One curve.
#[derive(Clone, Debug)]
pub struct Series {
    /// What it is called; drawn at its end.
    pub name: String,
    /// Its colour.
    pub ink: Ink,
    /// How its line is drawn.
    pub dash: Dash,
    /// Its points, by rising x.
    pub points: Vec<(f64, f64)>,
    /// What stands over some of them.
    pub signs: Vec<(f64, f64, String)>,
    /// Intervals that some of them are only known within: where, from, to.
    pub intervals: Vec<(f64, f64, f64)>,
}

impl Series {
    /// A curve of points in any order, each with what stands over it; mostly nothing.
    pub fn of(name: String, look: impl Into<Look>, mut points: Vec<(f64, f64, String)>) -> Series {
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        let Look { ink, dash } = look.into();
        Series {
            name,
            ink,
            dash,
            points: points.iter().map(|(x, y, _)| (*x, *y)).collect(),
            signs: points.into_iter().filter(|(.., sign)| !sign.is_empty()).collect(),
            intervals: Vec::new(),
        }
    }

    /// Its points from gap to gap: where one of the places that were asked for lies between two of them, there is no line.
    fn unbroken<'a>(&'a self, asked: &'a [f64]) -> impl Iterator<Item = &'a [(f64, f64)]> {
        self.points.chunk_by(|a, b| !asked.iter().any(|x| a.0 < *x && *x < b.0))
    }
}

/// What is printed for one point.
#[derive(Clone, Debug)]
pub struct Mark {
    /// Who prints it; drawn beside it.
    pub name: String,
    /// The colour of the curve that it is about.
    pub ink: Ink,
    /// Where it is.
    pub x: f64,
    /// What is printed.
    pub y: f64,
}

/// An axis.
#[derive(Clone, Debug)]
pub struct Axis {
    /// What it measures.
    pub title: String,
    /// How it maps.
    pub kind: Kind,
    /// How its ticks read.
    pub format: Format,
}

/// The curves of one panel.
#[derive(Clone, Debug)]
pub struct Lines {
    /// Horizontal axis.
    pub x: Axis,
    /// Vertical axis.
    pub y: Axis,
    /// Curves.
    pub series: Vec<Series>,
    /// What is printed for some of their points.
    pub marks: Vec<Mark>,
    /// Where each curve was asked to have a point, if some are missing; a line never passes over such a place.
    pub asked: Vec<f64>,
    /// Height of the panel in CSS pixels.
    pub height: f64,
}

const LABEL: f64 = 11.5;
/// Half the height of a name, with what hangs below its letters.
const HALF: f64 = 8.0;
/// Room for a curve's name.
const NAME: f64 = 150.0;

/// Whether a curve's name fits beside it whole.
pub fn name_fits(text: &str) -> bool {
    width_of(text, LABEL) <= NAME
}

impl Lines {
    /// Curves of which no point is missing, and nothing that is printed for any.
    pub fn of(x: Axis, y: Axis, series: Vec<Series>, height: f64) -> Lines {
        Lines { x, y, series, marks: Vec::new(), asked: Vec::new(), height }
    }

    /// All points, and how far their intervals reach.
    fn all(&self) -> impl Iterator<Item = (f64, f64)> {
        let points = self.series.iter().flat_map(|s| s.points.iter().copied());
        let ends =
            self.series.iter().flat_map(|s| s.intervals.iter().flat_map(|(x, a, b)| [(*x, *a), (*x, *b)]));
        points.chain(ends).chain(self.marks.iter().map(|mark| (mark.x, mark.y)))
    }

    /// Draws axes, grid, curves and their names.
    pub fn draw(&self, canvas: &mut dyn Canvas, area: Area) {
        let all = self.series.iter().map(|s| &s.name).chain(self.marks.iter().map(|mark| &mark.name));
        let names = all.map(|name| width_of(name, LABEL)).fold(0.0, f64::max).min(NAME);
        let plot =
            Area { x0: area.x0 + 52.0, y0: area.y0 + 22.0, x1: area.x1 - names - 12.0, y1: area.y1 - 38.0 };
        let x = Scale::fit(self.x.kind, self.all().map(|p| p.0), plot.x0 + 6.0, plot.x1 - 4.0);
        let y = Scale::fit(self.y.kind, self.all().map(|p| p.1), plot.y1, plot.y0);
        canvas.text(area.x0, area.y0 + 6.0, &self.y.title, Type::new(LETTER - 1.0, Ink::Muted));
        if !self.marks.is_empty() {
            marks::published_key(canvas, area.x1, area.y0 + 6.0);
        }
        for tick in y.ticks(5) {
            let at = y.at(tick);
            canvas.line(&[(plot.x0, at), (plot.x1, at)], Ink::Grid, 1.0);
            canvas.text(plot.x0 - 6.0, at, &(self.y.format)(tick), small().align(Align::End));
        }
        canvas.line(&[(plot.x0, plot.y1), (plot.x1, plot.y1)], Ink::Axis, 1.0);
        let ticks = self.x_ticks(&x);
        for tick in &ticks {
            canvas.line(&[(x.at(*tick), plot.y1), (x.at(*tick), plot.y1 + 4.0)], Ink::Axis, 1.0);
        }
        for tick in self.labeled(&ticks, &x) {
            canvas.text(x.at(tick), plot.y1 + 13.0, &(self.x.format)(tick), small().align(Align::Middle));
        }
        let middle = (plot.x0 + plot.x1) / 2.0;
        canvas.text(middle, plot.y1 + 30.0, &self.x.title, small().align(Align::Middle));
        let grid: Vec<f64> = y.ticks(5).into_iter().map(|tick| y.at(tick)).collect();
        self.curves(canvas, plot, &x, &y, &grid);
    }

    /// A log axis of sizes and counts is marked where there is data.
    fn x_ticks(&self, x: &Scale) -> Vec<f64> {
        if self.x.kind != Kind::Log2 {
            return x.ticks(6);
        }
        let mut ticks: Vec<f64> = self.all().map(|p| p.0).collect();
        ticks.sort_by(f64::total_cmp);
        ticks.dedup();
        ticks
    }

    /// The ticks that have a label: both ends, which a reader looks for, and between them as many as fit.
    fn labeled(&self, ticks: &[f64], x: &Scale) -> Vec<f64> {
        let half = |tick: f64| width_of(&(self.x.format)(tick), LETTER - 1.0) / 2.0 + 2.0;
        let apart = |a: f64, b: f64| x.at(a) + half(a) <= x.at(b) - half(b);
        let (Some(first), Some(last)) = (ticks.first().copied(), ticks.last().copied()) else {
            return Vec::new();
        };
        let mut labeled = vec![first];
        for tick in ticks.iter().copied() {
            if labeled.last().is_some_and(|before| apart(*before, tick)) && apart(tick, last) {
                labeled.push(tick);
            }
        }
        if apart(labeled[labeled.len() - 1], last) {
            labeled.push(last);
        }
        labeled
    }

    fn curves(&self, canvas: &mut dyn Canvas, plot: Area, x: &Scale, y: &Scale, grid: &[f64]) {
        let at = |p: &(f64, f64)| (x.at(p.0), y.at(p.1));
        let mut ends: Vec<End> = Vec::new();
        let mut drawn: Vec<Vec<(f64, f64)>> = Vec::new();
        for series in &self.series {
            for (px, from, to) in &series.intervals {
                marks::interval(canvas, x.at(*px), [y.at(*from), y.at(*to)], series.ink);
            }
            for part in series.unbroken(&self.asked) {
                let path: Vec<(f64, f64)> = part.iter().map(at).collect();
                marks::line(canvas, &path, series.ink, 1.8, series.dash);
                for (px, py) in &path {
                    canvas.dot(*px, *py, 2.3, series.ink);
                }
                drawn.push(path);
            }
            for (px, py, sign) in &series.signs {
                let style = Type::new(LABEL, series.ink).align(Align::Middle);
                canvas.text(x.at(*px), y.at(*py) - 9.0, sign, style);
            }
            ends.extend(series.points.last().map(|end| (at(end), series.name.as_str(), series.ink)));
        }
        for mark in &self.marks {
            let place = at(&(mark.x, mark.y));
            marks::published(canvas, place.0, place.1, mark.ink);
            drawn.push(vec![place]);
            ends.push((place, &mark.name, mark.ink));
        }
        let (early, late): (Vec<_>, Vec<_>) = ends.into_iter().partition(|(end, ..)| plot.x1 - end.0 > 60.0);
        let wanted: Vec<f64> = late.iter().map(|(end, ..)| end.1).collect();
        let places = spread(&wanted, LABEL + 2.0, plot.y0, plot.y1);
        for ((end, name, ink), place) in late.into_iter().zip(places) {
            // A name that had to move keeps a thin line to its curve.
            if (place - end.1).abs() > 7.0 || plot.x1 - end.0 > 16.0 {
                canvas.line(&[(end.0 + 4.0, end.1), (plot.x1 + 4.0, place)], Ink::Axis, 0.7);
            }
            canvas.text(plot.x1 + 7.0, place, &fit(name, LABEL, NAME), Type::new(LABEL, ink));
        }
        name_early(canvas, plot, &early, &drawn, grid);
    }
}

/// Where a curve or a mark ends, what it is called, its colour.
type End<'a> = ((f64, f64), &'a str, Ink);

/// Curves that end early (CAS has one payload) are named near their last point, where no curve runs, and no line of the grid if there
/// is such a place.
fn name_early(canvas: &mut dyn Canvas, plot: Area, ends: &[End], curves: &[Vec<(f64, f64)>], grid: &[f64]) {
    let mut taken: Vec<Area> = Vec::new();
    for (end, name, ink) in ends {
        let name = fit(name, LABEL, NAME);
        let width = width_of(&name, LABEL);
        let place = |offset: &f64| {
            let (x, y) = (end.0 + 4.0, end.1 + offset);
            Area { x0: x, y0: y - HALF, x1: x + width, y1: y + HALF }
        };
        let free = |area: &Area| {
            let inside = area.y0 >= plot.y0 - 8.0 && area.y1 <= plot.y1;
            let apart = |t: &Area| t.x1 < area.x0 || area.x1 < t.x0 || t.y1 < area.y0 || area.y1 < t.y0;
            inside && taken.iter().all(apart) && !curves.iter().any(|curve| crosses(curve, area))
        };
        // Nearest first, above before below.
        let offsets = [-12.0, 12.0, -24.0, 24.0, -36.0, 36.0, -50.0, 50.0, -64.0, 64.0, 80.0, 100.0];
        let bare = |area: &Area| free(area) && !grid.iter().any(|y| (area.y0..=area.y1).contains(y));
        let places = || offsets.iter().map(place);
        let found = places().find(bare).or_else(|| places().find(free)).unwrap_or_else(|| place(&-12.0));
        let middle = (found.y0 + found.y1) / 2.0;
        if (middle - end.1).abs() > 14.0 {
            canvas.line(&[*end, (found.x0 - 1.0, middle)], Ink::Axis, 0.7);
        }
        canvas.text(found.x0, middle, &name, Type::new(LABEL, *ink));
        taken.push(found);
    }
}

/// Whether a curve passes through `area`, looked at every other pixel along it.
fn crosses(curve: &[(f64, f64)], area: &Area) -> bool {
    let inside = |x: f64, y: f64| x >= area.x0 - 2.0 && x <= area.x1 && y >= area.y0 && y <= area.y1;
    curve.windows(2).any(|pair| {
        let (dx, dy) = (pair[1].0 - pair[0].0, pair[1].1 - pair[0].1);
        let steps = (dx.hypot(dy) / 2.0).ceil().clamp(1.0, 2_000.0) as u32;
        (0..=steps).any(|i| {
            let part = f64::from(i) / f64::from(steps);
            inside(pair[0].0 + part * dx, pair[0].1 + part * dy)
        })
    }) || curve.iter().any(|(x, y)| inside(*x, *y))
}

fn small() -> Type {
    Type::new(LETTER - 1.0, Ink::Muted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_does_not_pass_over_a_place_that_was_asked_for() {
        let points = [1.0, 2.0, 4.0, 5.0].map(|x| (x, 10.0 * x, String::new()));
        let series = Series::of("a".to_owned(), Ink::OneSided, points.to_vec());
        let parts = |asked: &[f64]| series.unbroken(asked).map(<[_]>::len).collect::<Vec<_>>();
        assert_eq!(parts(&[1.0, 2.0, 3.0, 4.0, 5.0]), [2, 2]);
        assert_eq!(parts(&[1.0, 2.0, 4.0, 5.0]), [4]);
        // What is missing before the first or after the last breaks nothing.
        assert_eq!(parts(&[0.0, 6.0]), [4]);
    }
}
