//! Where a drawing's numbers come from, in small letters below it: a file that is taken out of the page keeps it.

use super::WIDTH;
use super::canvas::{Canvas, Type};
use super::rows::broken;
use crate::ink::Ink;

const SIZE: f64 = 9.5;
const LINE: f64 = 13.0;
const ABOVE: f64 = 4.0;
/// Lines told; a page of many runs has more, which are in the page.
const MOST: usize = 6;

/// What stands below a drawing.
pub struct Source(Vec<String>);

impl Source {
    /// Origins, each on a line of its own, or on several where it is long.
    pub fn of(origins: impl IntoIterator<Item = String>) -> Source {
        let mut lines: Vec<String> =
            origins.into_iter().flat_map(|origin| broken(&origin, SIZE, WIDTH)).collect();
        if lines.len() > MOST {
            let more = lines.len() + 1 - MOST;
            lines.truncate(MOST - 1);
            lines.push(format!("and {more} more lines, which the page has"));
        }
        Source(lines)
    }

    /// Height in CSS pixels.
    pub fn height(&self) -> f64 {
        ABOVE + LINE * self.0.len() as f64
    }

    /// Draws the lines below `top`.
    pub fn draw(&self, canvas: &mut dyn Canvas, top: f64) {
        for (i, line) in self.0.iter().enumerate() {
            let y = top + ABOVE + LINE * (i as f64 + 0.5);
            canvas.text(0.0, y, line, Type::new(SIZE, Ink::Muted));
        }
    }
}
