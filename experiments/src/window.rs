//! Points whose measured time was too short to know a rate, or not steady: the former measured for longer where nobody asked for just that
//! time, all told of on the terminal and in their directories. [`TooShort`] and [`primitives::measure::Steadiness`] judge.

use primitives::measure::{FULL, ResultDir, TOO_SHORT, TableName, TooShort, UNSETTLED, count, were};
use primitives::units::Nanos;

use crate::error::CliError;
use crate::output::Talk;

/// Measures a point for `window`, and once more for as long as it takes if that was too `short` and may be made `longer`.
///
/// # Errors
/// As `measure`.
pub fn long_enough<T>(
    window: Nanos,
    longer: bool,
    measure: impl Fn(Nanos) -> Result<T, CliError>,
    short: impl Fn(&T) -> Option<TooShort>,
) -> Result<T, CliError> {
    let found = measure(window)?;
    match short(&found) {
        Some(short) if longer => measure(Nanos(window.0.saturating_mul(short.longer()))),
        _ => Ok(found),
    }
}

/// What helps.
const HELP: &str = "give a longer duration, or fewer coroutines";

/// Warns of a run whose measured time was too short, and notes it in the record of its directory, if it has one.
pub fn tell(short: Option<&TooShort>, dir: Option<&mut ResultDir>, talk: Talk) {
    if let Some(short) = short {
        let text = format!("{short}; {HELP}");
        talk.warn(&text);
        dir.into_iter().for_each(|dir| dir.note(format!("{text}.")));
    }
}

/// What the record's notes say of such points and of those that did not come to the precision asked for, and what that means.
const NOTED: [[&str; 4]; 4] = [
    [
        FULL,
        "run with too little room in a table",
        "inserts aborted with `table-full`, and rates are those of what had room",
        "give a shorter duration or max_duration, or the workload more room (order_room_per_district of tpcc)",
    ],
    [
        TOO_SHORT,
        "measured for too short a time",
        "few of what was in flight ended in it, so rates and latencies may be far off, and there is no interval",
        HELP,
    ],
    [
        UNSETTLED,
        "not steady in the measured time",
        "the warm-up of a fixed duration did not do, or the rate drifted, so it may be another later, and `rate_ci_relative` is too narrow",
        "give a longer duration, or a precision instead, for which warm-up ends where the load is steady",
    ],
    [
        "no",
        "not as precise as asked for after the longest time",
        "`rate_ci_relative` is wider than that, or neighbouring batches depend on each other, so that it may be too narrow",
        "give a longer duration or max_duration, or a wider precision",
    ],
];

/// Warns of the points of a directory whose measured time was too short, or did not do for the precision that was asked for, and notes it in
/// the record, in place of what was noted when there were others.
pub fn note(dir: &mut ResultDir, talk: Talk) {
    let rows = dir.rows(TableName::Points).unwrap_or_default();
    for [converged, noted, so, help] in NOTED {
        dir.forget_notes(noted);
        let those = rows.iter().filter(|row| row.get("converged") == Some(converged)).count();
        if those > 0 {
            let all = count(rows.len() as u64, "point");
            let text = format!("{those} of {all} {} {noted}: {so}; {help}", were(those as u64));
            talk.warn(&text);
            dir.note(format!("{text}."));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use primitives::measure::{Kind, PointResult, Row, RunRecord};

    #[test]
    fn a_run_that_was_too_short_is_noted_in_its_directory() {
        let folder = tempfile::tempdir().unwrap();
        let record = RunRecord::new(Kind::Run, "loopback", serde_json::json!({}), 1, 1);
        let mut dir = ResultDir::create(folder.path(), record, &[]).unwrap();
        let talk = Talk::new(0, true);
        tell(None, Some(&mut dir), talk);
        assert!(dir.record().notes.is_empty());
        tell(Some(&TooShort { ended: 9, in_flight: 32 }), Some(&mut dir), talk);
        let notes = &dir.record().notes;
        assert!(notes.len() == 1 && notes[0].contains("9 ended in it, of 32 in flight"), "{notes:?}");
    }

    #[test]
    fn points_without_room_are_noted() {
        let folder = tempfile::tempdir().unwrap();
        let record = RunRecord::new(Kind::Experiment, "loopback", serde_json::json!({}), 1, 2);
        let mut dir = ResultDir::create(folder.path(), record, &[]).unwrap();
        for point in [0, 1] {
            dir.keep(point, &PointResult::of(Row::new().with_full(point == 1))).unwrap();
        }
        note(&mut dir, Talk::new(0, true));
        let notes = dir.record().notes.clone();
        assert!(
            notes.len() == 1 && notes[0].contains("1 of 2 points was run with too little room"),
            "{notes:?}"
        );
    }
}
