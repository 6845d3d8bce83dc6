//! What curves and bars have in common: dashes, marks of printed numbers, intervals.

use super::LETTER;
use super::canvas::{Align, Canvas, Type, width_of};
use crate::ink::{Dash, Ink};

/// What the key says of marks.
const PUBLISHED: &str = "published";

/// Lengths of a dash in CSS pixels: stroke and gap by turns.
fn pattern(dash: Dash) -> &'static [f64] {
    match dash {
        Dash::Solid => &[],
        Dash::Dashed => &[9.0, 5.0],
        Dash::Dotted => &[2.2, 3.6],
        Dash::Mixed => &[10.0, 4.0, 2.2, 4.0],
    }
}

/// A line through `path`, dashed.
pub fn line(canvas: &mut dyn Canvas, path: &[(f64, f64)], ink: Ink, width: f64, dash: Dash) {
    for stroke in strokes(path, pattern(dash)) {
        canvas.line(&stroke, ink, width);
    }
}

/// The strokes of `path`, whose corners do not begin the pattern again.
fn strokes(path: &[(f64, f64)], pattern: &[f64]) -> Vec<Vec<(f64, f64)>> {
    let (Some(first), Some(length)) = (path.first(), pattern.first()) else { return vec![path.to_vec()] };
    let (mut all, mut stroke) = (Vec::new(), vec![*first]);
    let (mut part, mut left) = (0, *length);
    for pair in path.windows(2) {
        let ((x0, y0), (x1, y1)) = (pair[0], pair[1]);
        let length = (x1 - x0).hypot(y1 - y0);
        let mut gone = 0.0;
        while length - gone > left {
            gone += left;
            stroke.push((x0 + (x1 - x0) * gone / length, y0 + (y1 - y0) * gone / length));
            if part % 2 == 0 {
                all.push(std::mem::take(&mut stroke));
            }
            part = (part + 1) % pattern.len();
            left = pattern[part];
        }
        left -= length - gone;
        if part % 2 == 0 {
            stroke.push((x1, y1));
        }
    }
    all.push(stroke);
    all
}

/// A filled bar, with stripes of paper where it is dashed.
pub fn bar(canvas: &mut dyn Canvas, x: [f64; 2], y: [f64; 2], ink: Ink, dash: Dash) {
    canvas.rect(x[0], y[0], x[1], y[1], ink);
    let mut at = y[0].max(y[1]);
    let top = y[0].min(y[1]);
    for lengths in pattern(dash).chunks_exact(2).cycle().take(MOST) {
        at -= lengths[0];
        if at <= top {
            break;
        }
        canvas.rect(x[0], at, x[1], (at - lengths[1] / 2.0).max(top), Ink::Paper);
        at -= lengths[1] / 2.0;
    }
}

/// Stripes of a bar, more than any has.
const MOST: usize = 500;

/// The mark of a number that is printed somewhere: a hollow diamond, as nothing that ran has.
pub fn published(canvas: &mut dyn Canvas, x: f64, y: f64, ink: Ink) {
    const R: f64 = 5.0;
    let corners = [(x, y - R), (x + R, y), (x, y + R), (x - R, y), (x, y - R)];
    // A rim of paper keeps it apart from a bar or a curve of its colour.
    canvas.line(&corners, Ink::Paper, 4.2);
    canvas.line(&corners, ink, 1.7);
}

/// What the mark means, ending at `right`; where it begins.
pub fn published_key(canvas: &mut dyn Canvas, right: f64, y: f64) -> f64 {
    canvas.text(right, y, PUBLISHED, Type::new(LETTER - 1.0, Ink::Muted).align(Align::End));
    let left = right - width_of(PUBLISHED, LETTER - 1.0) - 11.0;
    published(canvas, left, y, Ink::Muted);
    left - 5.0
}

/// An interval: an upright line with ends.
pub fn interval(canvas: &mut dyn Canvas, x: f64, y: [f64; 2], ink: Ink) {
    canvas.line(&[(x, y[0]), (x, y[1])], ink, 1.0);
    for end in y {
        canvas.line(&[(x - 3.5, end), (x + 3.5, end)], ink, 1.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dashed_line_has_strokes_and_gaps_through_its_corners() {
        let path = [(0.0, 0.0), (10.0, 0.0), (10.0, 10.0)];
        assert_eq!(strokes(&path, &[]), [path.to_vec()]);
        let dashed = strokes(&path, &[6.0, 2.0]);
        assert_eq!(dashed[0], [(0.0, 0.0), (6.0, 0.0)]);
        // Past the corner without beginning again.
        assert_eq!(dashed[1], [(8.0, 0.0), (10.0, 0.0), (10.0, 4.0)]);
        assert_eq!(dashed[2], [(10.0, 6.0), (10.0, 10.0)]);
    }
}
