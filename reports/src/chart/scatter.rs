//! Points against a diagonal: what was said before against what came out.

use super::canvas::{Align, Canvas, Type, width_of};
use super::scale::{Kind, Scale};
use super::{Area, Format, LETTER, fit};
use crate::ink::Ink;

/// One point.
#[derive(Clone, Debug)]
pub struct Mark {
    /// What it is called.
    pub name: String,
    /// Its colour.
    pub ink: Ink,
    /// What was said.
    pub x: f64,
    /// What came out.
    pub y: f64,
}

/// The points of one panel. Both axes share one log scale, so the diagonal means "as said".
#[derive(Clone, Debug)]
pub struct Scatter {
    /// Name of the horizontal axis.
    pub x_title: String,
    /// Name of the vertical axis.
    pub y_title: String,
    /// How values read.
    pub format: Format,
    /// The points.
    pub marks: Vec<Mark>,
}

impl Scatter {
    /// Draws the square, the diagonal with lines a tenth to each side, and the points.
    pub fn draw(&self, canvas: &mut dyn Canvas, area: Area) {
        let side = (area.y1 - area.y0 - 60.0).min(area.x1 - area.x0 - 70.0);
        let plot = Area {
            x0: area.x0 + 58.0,
            y0: area.y0 + 22.0,
            x1: area.x0 + 58.0 + side,
            y1: area.y0 + 22.0 + side,
        };
        let both = || self.marks.iter().flat_map(|m| [m.x, m.y]);
        let x = Scale::fit(Kind::Log10, both(), plot.x0, plot.x1);
        let y = Scale::fit(Kind::Log10, both(), plot.y1, plot.y0);
        let small = Type::new(LETTER - 1.0, Ink::Muted);
        canvas.text(area.x0, area.y0 + 6.0, &self.y_title, small);
        for tick in x.ticks(5) {
            canvas.line(&[(x.at(tick), plot.y0), (x.at(tick), plot.y1)], Ink::Grid, 1.0);
            canvas.line(&[(plot.x0, y.at(tick)), (plot.x1, y.at(tick))], Ink::Grid, 1.0);
            canvas.text(x.at(tick), plot.y1 + 12.0, &(self.format)(tick), small.align(Align::Middle));
            canvas.text(plot.x0 - 6.0, y.at(tick), &(self.format)(tick), small.align(Align::End));
        }
        canvas.text((plot.x0 + plot.x1) / 2.0, plot.y1 + 29.0, &self.x_title, small.align(Align::Middle));
        canvas.line(&[(plot.x0, plot.y1), (plot.x1, plot.y0)], Ink::Axis, 1.6);
        let tenth = (plot.x1 - x.at(0.0)).abs().min(side);
        let shift = match self.marks.first() {
            // On a log scale ±10 % is the same distance everywhere.
            Some(mark) if mark.x > 0.0 => (x.at(mark.x * 1.1) - x.at(mark.x)).clamp(0.0, tenth),
            _ => 0.0,
        };
        if shift > 2.0 {
            canvas.line(&[(plot.x0, plot.y1 - shift), (plot.x1 - shift, plot.y0)], Ink::Axis, 0.7);
            canvas.line(&[(plot.x0 + shift, plot.y1), (plot.x1, plot.y0 + shift)], Ink::Axis, 0.7);
        }
        let mut taken: Vec<Area> = Vec::new();
        for mark in &self.marks {
            let (x, y) = (x.at(mark.x), y.at(mark.y));
            canvas.dot(x, y, 4.0, mark.ink);
            taken.push(Area { x0: x - 4.0, y0: y - 4.0, x1: x + 4.0, y1: y + 4.0 });
        }
        for mark in &self.marks {
            self.name(canvas, mark, (x.at(mark.x), y.at(mark.y)), plot, &mut taken);
        }
    }

    /// Names a point right, left, below or above it: the first place that is free, or nowhere.
    fn name(&self, canvas: &mut dyn Canvas, mark: &Mark, at: (f64, f64), plot: Area, taken: &mut Vec<Area>) {
        const SIZE: f64 = 11.0;
        let text = fit(&mark.name, SIZE, 170.0);
        let width = width_of(&text, SIZE);
        let places = [
            (at.0 + 8.0, at.1, Align::Start),
            (at.0 - 8.0 - width, at.1, Align::Start),
            (at.0 + 4.0, at.1 + 14.0, Align::Start),
            (at.0 - 4.0 - width, at.1 - 14.0, Align::Start),
        ];
        for (left, y, align) in places {
            let place = Area { x0: left, y0: y - 7.0, x1: left + width, y1: y + 7.0 };
            let hits = |other: &Area| {
                place.x0 < other.x1 && other.x0 < place.x1 && place.y0 < other.y1 && other.y0 < place.y1
            };
            if left >= plot.x0 && place.x1 <= plot.x1 + 60.0 && !taken.iter().any(hits) {
                canvas.text(left, y, &text, Type::new(SIZE, mark.ink).align(align));
                taken.push(place);
                return;
            }
        }
    }
}
