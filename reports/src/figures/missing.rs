//! What an incomplete sweep does not have: no line is drawn over it, and the caption says so.

use polars::prelude::*;

use super::published::plain;
use crate::frame::{distinct, floats, words};
use crate::human;
use crate::load::record::Record;

/// How many points of its grid are not among `rows`.
pub fn count(record: &Record, rows: &DataFrame) -> u64 {
    let there = distinct(floats(rows, "point").unwrap_or_default().into_iter().flatten());
    record.points_expected.saturating_sub(there.len() as u64)
}

/// The values that an axis has in the experiment file and among `rows`, in the file's order; none if no point is missing.
pub fn values(record: &Record, rows: &DataFrame, axis: &str) -> Vec<String> {
    if count(record, rows) == 0 {
        return Vec::new();
    }
    let grid = record.spec["grid"].as_array().into_iter().flatten();
    let asked = grid.filter(|of| of["name"].as_str() == Some(axis)).filter_map(|of| of["values"].as_array());
    let there = words(rows, &format!("axis_{axis}")).unwrap_or_default();
    distinct(asked.flatten().map(plain).chain(there))
}

/// The same as numbers.
pub fn numbers(record: &Record, rows: &DataFrame, axis: &str) -> Vec<f64> {
    let numbers = values(record, rows, axis).into_iter().filter_map(|value| value.parse().ok());
    numbers.filter(|number: &f64| number.is_finite()).collect()
}

/// What is to be said of it.
pub fn clause(record: &Record, rows: &DataFrame) -> Option<String> {
    let missing = count(record, rows);
    let verb = if missing == 1 { "is" } else { "are" };
    (missing > 0).then(|| {
        let all = human::count(record.points_expected, "point");
        format!("{missing} of {all} {verb} missing, and lines are broken where they would pass over one")
    })
}
