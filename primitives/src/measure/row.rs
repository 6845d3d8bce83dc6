//! One row of a table: cells by column name.

use super::{Columns, FULL, Histogram, Holds, Steadiness, TOO_SHORT, TooShort, UNSETTLED};
use crate::units::Nanos;
use serde_json::Value;

/// The text of one cell. Empty means "not available".
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cell(pub String);

macro_rules! cell_from {
    ($($t:ty),*) => { $(impl From<$t> for Cell { fn from(v: $t) -> Cell { Cell(v.to_string()) } })* };
}
cell_from!(u16, u32, u64, usize, i64, bool, &str, String);

impl From<f64> for Cell {
    /// The shortest text that reads back as the same number; empty for NaN and infinities, which say that
    /// nothing was measured.
    fn from(value: f64) -> Cell {
        Cell(if value.is_finite() { value.to_string() } else { String::new() })
    }
}

impl From<Nanos> for Cell {
    fn from(value: Nanos) -> Cell {
        Cell(value.0.to_string())
    }
}

impl<T: Into<Cell>> From<Option<T>> for Cell {
    fn from(value: Option<T>) -> Cell {
        value.map_or(Cell(String::new()), Into::into)
    }
}

/// Numbers in one cell, to six digits: no batch is known better.
fn listed(numbers: &[f64]) -> String {
    let one = |number: &f64| format!("{number:.5e}").parse::<f64>().unwrap_or(*number).to_string();
    numbers.iter().map(one).collect::<Vec<_>>().join(" ")
}

/// Cells by column name, in any order; columns not named stay empty. The column `point` is filled in when
/// the row is written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Row {
    cells: Vec<(String, String)>,
}

impl Row {
    /// A row with every cell empty.
    pub fn new() -> Row {
        Row::default()
    }

    /// The row with one more cell; naming a column again replaces its cell.
    #[must_use]
    pub fn with(mut self, column: impl Into<String>, value: impl Into<Cell>) -> Row {
        self.set(column, value);
        self
    }

    /// A cell's number; nothing where it is empty, or not there.
    pub fn number(&self, column: &str) -> Option<f64> {
        self.get(column)?.parse().ok()
    }

    /// Sets a cell.
    pub fn set(&mut self, column: impl Into<String>, value: impl Into<Cell>) {
        let (column, Cell(value)) = (column.into(), value.into());
        match self.cells.iter_mut().find(|(name, _)| *name == column) {
            Some(cell) => cell.1 = value,
            None => self.cells.push((column, value)),
        }
    }

    /// The row with a distribution of latencies, in the columns that all kinds of runs share.
    #[must_use]
    pub fn with_latency(self, latency: &Histogram) -> Row {
        self.with("latency_p50_ns", latency.p50())
            .with("latency_p90_ns", latency.p90())
            .with("latency_p99_ns", latency.p99())
            .with("latency_p999_ns", latency.p999())
    }

    /// The row with what is known of the rate's precision, in the columns that `characterize`, `run` and `experiment`
    /// share.
    #[must_use]
    pub fn with_steadiness(self, found: &Steadiness) -> Row {
        let converged = match (found.converged, found.settled) {
            (Some(true), _) => Some("yes"),
            (Some(false), _) => Some("no"),
            (None, Some(false)) => Some(UNSETTLED),
            (None, _) => None,
        };
        self.with("warm_up_ns", found.warm_up)
            .with("batches", found.means.map(|m| m.batches))
            .with("batch_rates_per_s", listed(&found.batch_rates_per_s()))
            .with("rate_ci_relative", found.relative())
            .with("converged", converged)
    }

    /// The row of a point whose counted time may have been too short; whatever it says of its precision is then of no worth.
    #[must_use]
    pub fn with_too_short(self, too_short: Option<TooShort>) -> Row {
        match too_short {
            Some(_) => self.with("converged", TOO_SHORT),
            None => self,
        }
    }

    /// The row of a point in whose tables there was no room for some inserts: from then on little else commits, and its precision is of
    /// no worth.
    #[must_use]
    pub fn with_full(self, full: bool) -> Row {
        if full { self.with("converged", FULL) } else { self }
    }

    /// A cell's text; `None` if the column was never named.
    pub fn get(&self, column: &str) -> Option<&str> {
        self.cells.iter().find(|(name, _)| name == column).map(|(_, value)| value.as_str())
    }

    /// The cells, column and text, in the order in which they were first set.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.cells.iter().map(|(column, text)| (column.as_str(), text.as_str()))
    }

    /// The cells as an object: numbers where the column holds them, and null for what is not available. Columns that are not
    /// `known`, those of axes, hold whatever their axis does.
    pub fn to_json(&self, known: Columns) -> Value {
        let number = |text: &str| serde_json::from_str(text).ok().filter(Value::is_number);
        let value = |column: &str, text: &str| match known.iter().find(|known| known.0 == column) {
            _ if text.is_empty() => Value::Null,
            Some((_, Holds::Words)) => text.into(),
            _ => number(text).unwrap_or_else(|| text.into()),
        };
        self.iter().map(|(column, text)| (column.to_owned(), value(column, text))).collect()
    }

    /// The cells in the order of `columns`, or the name of a cell that has no column.
    pub(super) fn ordered(&self, point: u64, columns: &[String]) -> Result<Vec<String>, String> {
        if let Some((stray, _)) = self.cells.iter().find(|(name, _)| !columns.contains(name)) {
            return Err(stray.clone());
        }
        Ok(columns
            .iter()
            .map(|column| match column.as_str() {
                "point" => point.to_string(),
                name => self.get(name).unwrap_or_default().to_owned(),
            })
            .collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_measured_stays_empty() {
        let row = Row::new()
            .with("rate_per_s", f64::NAN)
            .with("latency_p50_ns", None::<Nanos>)
            .with("ops", 7u64)
            .with("ops", 8u64);
        let columns: Vec<String> = ["point", "ops", "rate_per_s", "latency_p50_ns"].map(String::from).into();
        assert_eq!(row.ordered(3, &columns).unwrap(), ["3", "8", "", ""]);
        assert_eq!(row.ordered(3, &columns[..3]), Err("latency_p50_ns".to_owned()));
    }

    #[test]
    fn cells_are_numbers_words_or_nothing_in_json() {
        const KNOWN: Columns =
            &[("ops", Holds::Count), ("rate_per_s", Holds::Amount), ("plan", Holds::Words)];
        let row = Row::new()
            .with("ops", 7u64)
            .with("rate_per_s", 0.5)
            .with("plan", "17")
            .with("latency_p50_ns", "");
        let row = row.with("axis_coroutines", 4u64).with("axis_plan", "drtm-h");
        let expected = serde_json::json!({
            "ops": 7, "rate_per_s": 0.5, "plan": "17", "latency_p50_ns": null, "axis_coroutines": 4, "axis_plan": "drtm-h",
        });
        assert_eq!(row.to_json(KNOWN), expected);
    }

    #[test]
    fn numbers_read_back_as_they_were() {
        for value in [0.1 + 0.2, 1e-9, 1.5e12, 0.0] {
            assert_eq!(Cell::from(value).0.parse::<f64>().unwrap(), value);
        }
    }
}
