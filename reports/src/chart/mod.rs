//! Figures as plain descriptions, and how they are drawn.
//!
//! A [`Figure`] is a grid of [`Panel`]s; a panel is a title, perhaps a chip that says measured, simulated or forecast, and
//! one of four bodies. Nothing here knows what a verb or a plan is, and only [`canvas`] knows plotters.

pub mod bars;
pub mod canvas;
pub mod lines;
pub mod marks;
pub mod rows;
pub mod scale;
pub mod scatter;
pub mod source;

use crate::ink::Ink;
use crate::load::record::Provenance;
use canvas::{Canvas, Type};

/// Width of every figure in CSS pixels.
pub const WIDTH: f64 = 1000.0;
const GUTTER: f64 = 36.0;
const HEAD: f64 = 30.0;
const LETTER: f64 = 12.0;

/// A formatter of values.
pub type Format = fn(f64) -> String;

/// What a panel shows.
#[derive(Clone, Debug)]
pub enum Body {
    /// Curves over a numeric axis.
    Lines(lines::Lines),
    /// Groups of vertical bars.
    Bars(bars::Bars),
    /// A table whose cells are small graphics.
    Rows(rows::Rows),
    /// Points against a diagonal.
    Scatter(scatter::Scatter),
}

/// One part of a figure with axes of its own.
#[derive(Clone, Debug)]
pub struct Panel {
    /// What it shows.
    pub title: String,
    /// Where its numbers come from; drawn as a chip after the title.
    pub chip: Option<Provenance>,
    /// The drawing.
    pub body: Body,
}

/// Panels in rows of `columns`.
#[derive(Clone, Debug)]
pub struct Figure {
    /// Panels per row.
    pub columns: usize,
    /// The panels, row by row.
    pub panels: Vec<Panel>,
}

/// A rectangle in CSS pixels.
#[derive(Clone, Copy, Debug)]
pub struct Area {
    /// Left edge.
    pub x0: f64,
    /// Top edge.
    pub y0: f64,
    /// Right edge.
    pub x1: f64,
    /// Bottom edge.
    pub y1: f64,
}

impl Figure {
    /// Height in CSS pixels: what its panels need.
    pub fn height(&self) -> f64 {
        self.row_heights().iter().sum::<f64>().max(40.0)
    }

    fn row_heights(&self) -> Vec<f64> {
        let columns = self.columns.max(1);
        let body = |panel: &Panel| match &panel.body {
            Body::Lines(lines) => lines.height,
            Body::Bars(_) => 250.0,
            Body::Rows(rows) => rows.height(),
            Body::Scatter(_) => 400.0,
        };
        self.panels
            .chunks(columns)
            .map(|row| row.iter().map(body).fold(0.0, f64::max) + HEAD + 14.0)
            .collect()
    }

    /// Draws all of it.
    pub fn draw(&self, canvas: &mut dyn Canvas) {
        let columns = self.columns.max(1);
        let width = (WIDTH - GUTTER * (columns - 1) as f64) / columns as f64;
        let mut top = 0.0;
        for (row, height) in self.panels.chunks(columns).zip(self.row_heights()) {
            for (i, panel) in row.iter().enumerate() {
                let x0 = (width + GUTTER) * i as f64;
                panel.head(canvas, x0, top + 14.0, width);
                let area = Area { x0, y0: top + HEAD, x1: x0 + width, y1: top + height - 14.0 };
                match &panel.body {
                    Body::Lines(lines) => lines.draw(canvas, area),
                    Body::Bars(bars) => bars.draw(canvas, area),
                    Body::Rows(rows) => rows.draw(canvas, area),
                    Body::Scatter(scatter) => scatter.draw(canvas, area),
                }
            }
            top += height;
        }
    }
}

impl Panel {
    fn head(&self, canvas: &mut dyn Canvas, x: f64, y: f64, width: f64) {
        const SIZE: f64 = 13.5;
        // The chip comes first: the reader's bold may be wider than any width measured here.
        let mut x = x;
        let end = x + width;
        if let Some(provenance) = self.chip {
            let ink = match provenance {
                Provenance::Measured => Ink::Measured,
                Provenance::Simulated => Ink::Simulated,
                Provenance::Forecast => Ink::Forecast,
            };
            let name = provenance.name();
            let (x0, x1) = (x + 0.5, x + canvas::width_of(name, 10.5) + 12.5);
            let (y0, y1) = (y - 8.5, y + 8.5);
            canvas.line(&[(x0, y0), (x1, y0), (x1, y1), (x0, y1), (x0, y0)], ink, 1.0);
            canvas.text((x0 + x1) / 2.0, y, name, Type::new(10.5, ink).align(canvas::Align::Middle));
            x = x1 + 9.0;
        }
        let title = fit(&self.title, SIZE * 1.1, end - x);
        canvas.text(x, y, &title, Type::new(SIZE, Ink::Text).bold());
    }
}

/// `text`, cut with an ellipsis where it would be wider than `width` at `size`.
pub fn fit(text: &str, size: f64, width: f64) -> String {
    let mut keep = text.chars().count().min(200);
    loop {
        let cut = crate::human::ellipsize(text, keep);
        if keep <= 2 || canvas::width_of(&cut, size) <= width {
            return cut;
        }
        keep -= 1;
    }
}
