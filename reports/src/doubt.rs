//! What there is to doubt about points, and how the page says so: a sign beside each, a line under the figures that show them, a
//! badge of their run, a warning at the terminal.

use polars::prelude::*;
use primitives::measure::{FULL, TOO_SHORT, were};

use crate::frame::{floats, words};
use crate::human;
use crate::load::WIDE;

/// A reason to doubt a point's rate and latencies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doubt {
    /// The scheduler took CPUs away from worker threads; never where time is virtual.
    Busy,
    /// Few of what was in flight ended in the counted time.
    Short,
    /// There was no room in a table for some of what was to be inserted.
    Full,
}

impl Doubt {
    /// All of them.
    pub const ALL: [Doubt; 3] = [Doubt::Busy, Doubt::Short, Doubt::Full];

    /// What stands beside a point.
    pub const fn sign(self) -> &'static str {
        match self {
            Doubt::Busy => "†",
            Doubt::Short => "‡",
            Doubt::Full => "§",
        }
    }

    /// The column that says so, and what it then says.
    const fn cell(self) -> (&'static str, &'static str) {
        match self {
            Doubt::Busy => ("busy", "yes"),
            Doubt::Short => ("converged", TOO_SHORT),
            Doubt::Full => ("converged", FULL),
        }
    }

    /// In few words, after a count of points.
    pub const fn briefly(self) -> &'static str {
        match self {
            Doubt::Busy => "on a busy machine",
            Doubt::Short => "measured too short",
            Doubt::Full => "short of room",
        }
    }

    /// In a sentence about so many of `all` points.
    pub fn told(self, count: usize, all: &str) -> String {
        let were = were(count as u64);
        let how = match self {
            Doubt::Busy => "taken on a busy machine: the scheduler had a say in rates and latencies",
            Doubt::Short => {
                "measured for too short a time: few of what was in flight ended in it, so rates and latencies may be far off"
            }
            Doubt::Full => {
                "run with too little room in a table: inserts aborted with `table-full`, so rates are those of what had room"
            }
        };
        format!("{count} of {all} {were} {how}")
    }

    /// Of one point, in the middle of a sentence.
    pub const fn clause(self) -> &'static str {
        match self {
            Doubt::Busy => "taken on a busy machine, where the scheduler had a say",
            Doubt::Short => "measured for too short a time to know the rate",
            Doubt::Full => "run with too little room in a table to know the rate",
        }
    }

    /// How many of some points.
    pub fn count(self, points: &DataFrame) -> usize {
        doubts(points).into_iter().filter(|doubts| doubts.has(self)).count()
    }
}

/// All there is to doubt about a point, or about several that are drawn as one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Doubts {
    busy: bool,
    short: bool,
    full: bool,
}

impl Doubts {
    /// Whether this is among them.
    pub fn has(self, doubt: Doubt) -> bool {
        match doubt {
            Doubt::Busy => self.busy,
            Doubt::Short => self.short,
            Doubt::Full => self.full,
        }
    }

    /// These and those.
    #[must_use]
    pub fn or(self, other: Doubts) -> Doubts {
        Doubts {
            busy: self.busy || other.busy,
            short: self.short || other.short,
            full: self.full || other.full,
        }
    }

    /// All of them.
    pub fn each(self) -> impl Iterator<Item = Doubt> {
        Doubt::ALL.into_iter().filter(move |doubt| self.has(*doubt))
    }

    /// What stands beside the point; nothing where there is nothing to doubt.
    pub fn signs(self) -> String {
        self.each().map(Doubt::sign).collect()
    }

    /// A name of the point, with what stands beside it.
    pub fn beside(self, name: String) -> String {
        match self.signs() {
            signs if signs.is_empty() => name,
            signs => format!("{name} {signs}"),
        }
    }
}

/// What there is to doubt about each row. A kind of run that has no such column gives no reason.
pub fn doubts(points: &DataFrame) -> Vec<Doubts> {
    let said = |doubt: Doubt| {
        let (column, says) = doubt.cell();
        words(points, column).unwrap_or_default().into_iter().map(move |cell| cell == says)
    };
    let mut rows = vec![Doubts::default(); points.height()];
    rows.iter_mut().zip(said(Doubt::Busy)).for_each(|(row, busy)| row.busy = busy);
    rows.iter_mut().zip(said(Doubt::Short)).for_each(|(row, short)| row.short = short);
    rows.iter_mut().zip(said(Doubt::Full)).for_each(|(row, full)| row.full = full);
    rows
}

/// Of rows that are drawn as one point: the median of each column, and what [`doubts`] looks at, doubtful if one of them is.
pub fn medians(columns: &[&str]) -> Vec<Expr> {
    let doubtful = ["busy", "converged"].map(|column| {
        let cells = Doubt::ALL.map(Doubt::cell).into_iter().filter(|(of, _)| *of == column);
        let said = cells.fold(col(column).min(), |usual, (_, says)| {
            when(col(column).eq(lit(says)).any(true)).then(lit(says)).otherwise(usual)
        });
        said.alias(column)
    });
    columns.iter().map(|column| col(*column).median()).chain(doubtful).collect()
}

/// Columns that an interval of the rate is told for.
const RATES: [&str; 3] = ["rate_per_s", "rate_per_server_per_s", "committed_per_s"];

/// How wide the interval of each row's `column` is, as a share of it to either side; nothing where it is narrow, or where the column is
/// no rate.
pub fn wide(points: &DataFrame, column: &str) -> Vec<Option<f64>> {
    let known = RATES.contains(&column).then(|| floats(points, "rate_ci_relative").ok()).flatten();
    let wide = |width: Option<f64>| width.filter(|width| width.is_finite() && *width >= WIDE);
    known.map_or_else(|| vec![None; points.height()], |known| known.into_iter().map(wide).collect())
}

/// From where to where a value is known, if its interval is this wide.
pub fn interval(value: f64, width: Option<f64>) -> Option<(f64, f64)> {
    width.map(|width| (value * (1.0 - width).max(0.0), value * (1.0 + width)))
}

/// What is said of so many points' rates, some of which have wide intervals.
pub fn widely(widths: impl IntoIterator<Item = Option<f64>>) -> Option<String> {
    let widths: Vec<Option<f64>> = widths.into_iter().collect();
    let worst = widths.iter().copied().flatten().max_by(f64::total_cmp)?;
    let (some, all) = (widths.iter().flatten().count(), human::count(widths.len() as u64, "rate"));
    let verb = if some == 1 { "is" } else { "are" };
    let told = format!("{some} of {all} {verb} known no better than ±\u{a0}{}", human::percent(WIDE));
    Some(format!("{told} (whiskers: 95\u{a0}% confidence, at worst ±\u{a0}{})", human::percent(worst)))
}
