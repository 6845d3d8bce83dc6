//! Curves over a numeric axis, each named where it ends.

use super::canvas::{Align, Canvas, Type, width_of};
use super::scale::{Kind, Scale, spread};
use super::{Area, Format, LETTER, fit};
use crate::ink::Ink;

/// One curve.
#[derive(Clone, Debug)]
pub struct Series {
    /// What it is called; drawn at its end.
    pub name: String,
    /// Its colour.
    pub ink: Ink,
    /// Its points, by rising x.
    pub points: Vec<(f64, f64)>,
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
    /// Height of the panel in CSS pixels.
    pub height: f64,
}

const LABEL: f64 = 11.5;

impl Lines {
    /// Draws axes, grid, curves and their names.
    pub fn draw(&self, canvas: &mut dyn Canvas, area: Area) {
        let names = self.series.iter().map(|s| width_of(&s.name, LABEL)).fold(0.0, f64::max).min(110.0);
        let plot =
            Area { x0: area.x0 + 52.0, y0: area.y0 + 22.0, x1: area.x1 - names - 12.0, y1: area.y1 - 38.0 };
        let all = || self.series.iter().flat_map(|s| s.points.iter().copied());
        let x = Scale::fit(self.x.kind, all().map(|p| p.0), plot.x0 + 6.0, plot.x1 - 4.0);
        let y = Scale::fit(self.y.kind, all().map(|p| p.1), plot.y1, plot.y0);
        canvas.text(area.x0, area.y0 + 6.0, &self.y.title, Type::new(LETTER - 1.0, Ink::Muted));
        for tick in y.ticks(5) {
            let at = y.at(tick);
            canvas.line(&[(plot.x0, at), (plot.x1, at)], Ink::Grid, 1.0);
            canvas.text(plot.x0 - 6.0, at, &(self.y.format)(tick), small().align(Align::End));
        }
        canvas.line(&[(plot.x0, plot.y1), (plot.x1, plot.y1)], Ink::Axis, 1.0);
        let mut free_from = f64::NEG_INFINITY;
        for tick in self.x_ticks(&x) {
            let at = x.at(tick);
            canvas.line(&[(at, plot.y1), (at, plot.y1 + 4.0)], Ink::Axis, 1.0);
            let text = (self.x.format)(tick);
            let half = width_of(&text, LETTER - 1.0) / 2.0;
            if at - half > free_from {
                canvas.text(at, plot.y1 + 13.0, &text, small().align(Align::Middle));
                free_from = at + half + 5.0;
            }
        }
        let middle = (plot.x0 + plot.x1) / 2.0;
        canvas.text(middle, plot.y1 + 30.0, &self.x.title, small().align(Align::Middle));
        self.curves(canvas, plot, &x, &y);
    }

    /// A log axis of sizes and counts is marked where there is data.
    fn x_ticks(&self, x: &Scale) -> Vec<f64> {
        if self.x.kind != Kind::Log2 {
            return x.ticks(6);
        }
        let mut ticks: Vec<f64> = self.series.iter().flat_map(|s| s.points.iter().map(|p| p.0)).collect();
        ticks.sort_by(f64::total_cmp);
        ticks.dedup();
        ticks
    }

    fn curves(&self, canvas: &mut dyn Canvas, plot: Area, x: &Scale, y: &Scale) {
        let mut ends = Vec::new();
        for series in &self.series {
            let path: Vec<(f64, f64)> = series.points.iter().map(|p| (x.at(p.0), y.at(p.1))).collect();
            canvas.line(&path, series.ink, 1.8);
            for (px, py) in &path {
                canvas.dot(*px, *py, 2.3, series.ink);
            }
            if let Some(end) = path.last() {
                ends.push((*end, series));
            }
        }
        let wanted: Vec<f64> = ends.iter().map(|(end, _)| end.1).collect();
        let places = spread(&wanted, LABEL + 2.0, plot.y0, plot.y1);
        for ((end, series), place) in ends.into_iter().zip(places) {
            // A name that had to move far keeps a thin line to its curve.
            if (place - end.1).abs() > 7.0 || plot.x1 - end.0 > 16.0 {
                canvas.line(&[(end.0 + 4.0, end.1), (plot.x1 + 4.0, place)], Ink::Axis, 0.7);
            }
            let name = fit(&series.name, LABEL, 110.0);
            canvas.text(plot.x1 + 7.0, place, &name, Type::new(LABEL, series.ink));
        }
    }
}

fn small() -> Type {
    Type::new(LETTER - 1.0, Ink::Muted)
}
