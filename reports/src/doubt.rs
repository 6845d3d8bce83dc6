//! What there is to doubt about points, and how the page says so: a sign beside each, a line under the figures that show them, a
//! badge of their run, a warning at the terminal.

use polars::prelude::*;
use primitives::measure::{TOO_SHORT, were};

use crate::frame::words;

/// A reason to doubt a point's rate and latencies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doubt {
    /// The scheduler took CPUs away from worker threads; never where time is virtual.
    Busy,
    /// Few of what was in flight ended in the counted time.
    Short,
}

impl Doubt {
    /// All of them.
    pub const ALL: [Doubt; 2] = [Doubt::Busy, Doubt::Short];

    /// What stands beside a point.
    pub const fn sign(self) -> &'static str {
        match self {
            Doubt::Busy => "†",
            Doubt::Short => "‡",
        }
    }

    /// The column that says so, and what it then says.
    const fn cell(self) -> (&'static str, &'static str) {
        match self {
            Doubt::Busy => ("busy", "yes"),
            Doubt::Short => ("converged", TOO_SHORT),
        }
    }

    /// In few words, after a count of points.
    pub const fn briefly(self) -> &'static str {
        match self {
            Doubt::Busy => "on a busy machine",
            Doubt::Short => "measured too short",
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
        };
        format!("{count} of {all} {were} {how}")
    }

    /// Of one point, in the middle of a sentence.
    pub const fn clause(self) -> &'static str {
        match self {
            Doubt::Busy => "taken on a busy machine, where the scheduler had a say",
            Doubt::Short => "measured for too short a time to know the rate",
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
}

impl Doubts {
    /// Whether this is among them.
    pub fn has(self, doubt: Doubt) -> bool {
        match doubt {
            Doubt::Busy => self.busy,
            Doubt::Short => self.short,
        }
    }

    /// These and those.
    #[must_use]
    pub fn or(self, other: Doubts) -> Doubts {
        Doubts { busy: self.busy || other.busy, short: self.short || other.short }
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
    rows
}

/// Of rows that are drawn as one point: the median of each column, and what [`doubts`] looks at, doubtful if one of them is.
pub fn medians(columns: &[&str]) -> Vec<Expr> {
    let doubtful = Doubt::ALL.map(|doubt| {
        let (column, says) = doubt.cell();
        when(col(column).eq(lit(says)).any(true)).then(lit(says)).otherwise(col(column).min()).alias(column)
    });
    columns.iter().map(|column| col(*column).median()).chain(doubtful).collect()
}
