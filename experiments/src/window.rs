//! Runs whose measured time was too short to know a rate: what is told on the terminal, in tables and in their directories.
//! [`engine::cluster::TooShort`] judges.

use engine::cluster::TooShort;
use primitives::measure::{ResultDir, TableName};

use crate::output::Talk;

/// What the `converged` cell of a point says whose measured time was too short.
pub const TOO_SHORT: &str = "too short";

/// What helps.
const HELP: &str = "give a longer duration, or fewer coroutines";

/// What people are told of one run.
pub fn told(short: &TooShort) -> String {
    format!("{short}; {HELP}")
}

/// Warns of the points of a directory whose measured time was too short, and notes it in the record.
pub fn note(dir: &mut ResultDir, talk: Talk) {
    let rows = dir.rows(TableName::Points).unwrap_or_default();
    let short = rows.iter().filter(|row| row.get("converged") == Some(TOO_SHORT)).count();
    if short > 0 {
        let text = format!(
            "{short} of {} points were measured for too short a time: few of the transactions in flight ended in it, so rates and \
             latencies may be far off, and there is no interval; {HELP}",
            rows.len()
        );
        talk.warn(&text);
        dir.note(format!("{text}."));
    }
}
