//! Groups of vertical bars with their values on top: few categories, few series.

use super::canvas::{Align, Canvas, Type, width_of};
use super::scale::{Kind, Scale};
use super::{Area, Format, LETTER, marks};
use crate::ink::{Dash, Ink, Look};

/// One bar per category, in one colour.
#[derive(Clone, Debug)]
pub struct Series {
    /// What it is called.
    pub name: String,
    /// Its colour.
    pub ink: Ink,
    /// How its bars are filled.
    pub dash: Dash,
    /// A value per category; nothing where there is none.
    pub values: Vec<Option<f64>>,
    /// What stands after the value of each category; mostly nothing.
    pub signs: Vec<String>,
    /// Intervals that some values are only known within: category, from, to.
    pub intervals: Vec<(usize, f64, f64)>,
    /// What is printed for some of them, by category.
    pub marks: Vec<(usize, f64)>,
}

impl Series {
    /// Bars with what stands after their values, and nothing else.
    pub fn of(name: String, look: impl Into<Look>, values: Vec<Option<f64>>, signs: Vec<String>) -> Series {
        let Look { ink, dash } = look.into();
        Series { name, ink, dash, values, signs, intervals: Vec::new(), marks: Vec::new() }
    }
}

/// The bars of one panel.
#[derive(Clone, Debug)]
pub struct Bars {
    /// What the bars measure.
    pub y_title: String,
    /// How values read.
    pub format: Format,
    /// Category names, left to right.
    pub categories: Vec<String>,
    /// Series, left to right within a category.
    pub series: Vec<Series>,
}

impl Bars {
    /// Draws the bars from a common zero line.
    pub fn draw(&self, canvas: &mut dyn Canvas, area: Area) {
        let plot = Area { y0: area.y0 + 34.0, y1: area.y1 - 24.0, ..area };
        let values = self.series.iter().flat_map(|s| s.values.iter().flatten().copied());
        let ends = self.series.iter().flat_map(|s| s.intervals.iter().map(|(_, _, to)| *to));
        let printed = self.series.iter().flat_map(|s| s.marks.iter().map(|(_, value)| *value));
        let y = Scale::fit(Kind::Linear, values.chain(ends).chain(printed), plot.y1, plot.y0);
        canvas.text(area.x0, area.y0 + 6.0, &self.y_title, Type::new(LETTER - 1.0, Ink::Muted));
        let mut right = area.x1;
        for series in self.series.iter().rev() {
            canvas.text(
                right,
                area.y0 + 6.0,
                &series.name,
                Type::new(LETTER, series.ink).align(Align::End).bold(),
            );
            right -= width_of(&series.name, LETTER) + 5.0;
            // A sample of its filling.
            marks::bar(
                canvas,
                [right - 11.0, right],
                [area.y0 + 11.5, area.y0 + 0.5],
                series.ink,
                series.dash,
            );
            right -= 25.0;
        }
        if self.series.iter().any(|series| !series.marks.is_empty()) {
            marks::published_key(canvas, right, area.y0 + 6.0);
        }
        let slot = (plot.x1 - plot.x0) / self.categories.len().max(1) as f64;
        let bar = slot * 0.84 / self.series.len().max(1) as f64;
        for (c, category) in self.categories.iter().enumerate() {
            let left = plot.x0 + slot * (c as f64 + 0.08);
            for (s, series) in self.series.iter().enumerate() {
                let x0 = left + bar * s as f64;
                let x1 = x0 + bar - 2.0;
                let middle = (x0 + x1) / 2.0;
                match series.values.get(c).copied().flatten() {
                    Some(value) => {
                        marks::bar(canvas, [x0, x1], [plot.y1, y.at(value)], series.ink, series.dash);
                        let mut top = y.at(value);
                        for (_, from, to) in series.intervals.iter().filter(|of| of.0 == c) {
                            marks::interval(canvas, middle, [y.at(*from), y.at(*to)], Ink::Text);
                            top = top.min(y.at(*to));
                        }
                        for (_, printed) in series.marks.iter().filter(|of| of.0 == c) {
                            marks::published(canvas, middle, y.at(*printed), series.ink);
                            // The value stands clear of a mark that is just above the bar.
                            if (top - 18.0..top + 5.0).contains(&y.at(*printed)) {
                                top = y.at(*printed) - 5.0;
                            }
                        }
                        let over = top - 8.0;
                        let style = Type::new(LETTER - 1.5, Ink::Text).align(Align::Middle);
                        let sign = series.signs.get(c).map_or("", String::as_str);
                        canvas.text(middle, over, &format!("{}{sign}", (self.format)(value)), style);
                    }
                    None => {
                        let style = Type::new(LETTER - 2.0, Ink::Muted).align(Align::Middle);
                        canvas.text(middle, plot.y1 - 8.0, "n/a", style);
                    }
                }
            }
            let style = Type::new(LETTER - 1.0, Ink::Muted).align(Align::Middle);
            canvas.text(plot.x0 + slot * (c as f64 + 0.5), plot.y1 + 13.0, category, style);
        }
        canvas.line(&[(plot.x0, plot.y1), (plot.x1, plot.y1)], Ink::Axis, 1.0);
    }
}
