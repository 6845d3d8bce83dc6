//! What papers print for single points of a grid: drawn as hollow marks beside the points they are about, in the colour of their
//! curve and with the claim's name, and told in the caption. Where a paper prints how many times another point a point gives, the mark is at
//! so many times what that other gave here.

use polars::prelude::*;
use primitives::measure::Printed;
use serde_json::Value;
use std::collections::BTreeMap;

use super::experiments::median;
use super::place;
use crate::chart::Format;
use crate::frame::{Framed, floats, words};
use crate::human;

/// A number that a paper prints.
pub struct Said {
    /// Whose it is.
    pub claim: String,
    /// The column that it is of.
    pub y: String,
    /// The number.
    pub value: f64,
    /// Where the paper prints a multiple: how many times, and of which point.
    times: Option<(f64, String)>,
    /// Rows of the points that it is about.
    rows: Vec<usize>,
}

impl Said {
    /// Whether it is about any of these rows.
    pub fn is_about(&self, rows: &[usize]) -> bool {
        rows.iter().any(|row| self.rows.contains(row))
    }

    /// It beside what came out at `place`.
    pub fn beside(&self, place: &str, got: f64, format: Format) -> String {
        let number = match &self.times {
            None => format(self.value),
            Some((times, of)) => {
                format!("{} times what {of} gives, {},", human::number(*times), format(self.value))
            }
        };
        format!("{} prints {number} where {place} gives {}", self.claim, format(got))
    }
}

/// A value as it stands in the columns of axes.
pub fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// Which rows have these values on these axes.
pub fn kept(rows: &DataFrame, at: &BTreeMap<String, Value>) -> Framed<Vec<bool>> {
    let mut kept = vec![true; rows.height()];
    for (axis, value) in at {
        let values = words(rows, &format!("axis_{axis}"))?;
        kept.iter_mut().zip(values).for_each(|(kept, is)| *kept &= is == plain(value));
    }
    Ok(kept)
}

/// What the papers print, with the rows that it is about; those that name an axis which is not there are left out, and multiples of what was
/// not measured.
pub fn said(printed: &[Printed], rows: &DataFrame) -> Vec<Said> {
    let at_rows = |at: &BTreeMap<String, Value>| {
        let kept = kept(rows, at).ok()?;
        Some((0..rows.height()).filter(|&row| kept[row]).collect::<Vec<_>>())
    };
    let said = |Printed { claim, at, y, value, of }: &Printed| {
        let (mut value, mut times) = (*value, None);
        if let Some(of) = of {
            let numbers = floats(rows, y).ok()?;
            let one = median(at_rows(of)?.into_iter().filter_map(|row| numbers[row]).collect())?;
            let differs = of.iter().filter(|(axis, value)| at.get(*axis) != Some(value));
            let words = differs.map(|(axis, value)| place(axis, &plain(value))).collect::<Vec<_>>();
            times = Some((value, words.join(", ")));
            value *= one;
        }
        Some(Said { claim: claim.clone(), y: y.clone(), value, times, rows: at_rows(at)? })
    };
    printed.iter().filter_map(said).collect()
}
