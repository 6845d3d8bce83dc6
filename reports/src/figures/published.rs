//! What papers print for single points of a grid: drawn as hollow marks beside the points they are about, in the colour of their
//! curve and with the claim's name, and told in the caption.

use polars::prelude::*;
use primitives::measure::Printed;
use serde_json::Value;
use std::collections::BTreeMap;

use crate::chart::Format;
use crate::frame::{Framed, words};

/// A number that a paper prints.
pub struct Said {
    /// Whose it is.
    pub claim: String,
    /// The column that it is of.
    pub y: String,
    /// The number.
    pub value: f64,
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
        format!("{} prints {} where {place} gives {}", self.claim, format(self.value), format(got))
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

/// What the papers print, with the rows that it is about; those that name an axis which is not there are left out.
pub fn said(printed: &[Printed], rows: &DataFrame) -> Vec<Said> {
    let said = |Printed { claim, at, y, value }: &Printed| {
        let kept = kept(rows, at).ok()?;
        let rows = (0..rows.height()).filter(|&row| kept[row]).collect();
        Some(Said { claim: claim.clone(), y: y.clone(), value: *value, rows })
    };
    printed.iter().filter_map(said).collect()
}
