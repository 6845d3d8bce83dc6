//! Groups of vertical bars with their values on top: few categories, few series.

use super::canvas::{Align, Canvas, Type, width_of};
use super::scale::{Kind, Scale};
use super::{Area, Format, LETTER};
use crate::ink::Ink;

/// One bar per category, in one colour.
#[derive(Clone, Debug)]
pub struct Series {
    /// What it is called.
    pub name: String,
    /// Its colour.
    pub ink: Ink,
    /// A value per category; nothing where there is none.
    pub values: Vec<Option<f64>>,
    /// What stands after the value of each category; mostly nothing.
    pub signs: Vec<String>,
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
        let y = Scale::fit(Kind::Linear, values, plot.y1, plot.y0);
        canvas.text(area.x0, area.y0 + 6.0, &self.y_title, Type::new(LETTER - 1.0, Ink::Muted));
        let mut right = area.x1;
        for series in self.series.iter().rev() {
            canvas.text(
                right,
                area.y0 + 6.0,
                &series.name,
                Type::new(LETTER, series.ink).align(Align::End).bold(),
            );
            right -= width_of(&series.name, LETTER) + 16.0;
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
                        canvas.rect(x0, y.at(value), x1, plot.y1, series.ink);
                        let over = y.at(value) - 8.0;
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
