//! Runs that are there twice: a directory named twice, or a copy of one. They count once.

use super::Results;
use crate::frame::{Framed, to_csv};
use std::collections::BTreeSet;

/// Keeps of copies of one run the one with the most points, where the first of them stood, with a note.
///
/// # Errors
/// If polars fails.
pub fn once(results: Vec<Results>) -> Framed<Vec<Results>> {
    let mut kept: Vec<Results> = Vec::new();
    for mut result in results {
        let mut copy = None;
        for known in &mut kept {
            if known.record.same_run(&result.record) && overlap(known, &result)? {
                copy = Some(known);
                break;
            }
        }
        let Some(known) = copy else {
            kept.push(result);
            continue;
        };
        if result.points.height() > known.points.height() {
            std::mem::swap(known, &mut result);
        }
        known.notes.push(format!("{} is the same run, and counts once", result.path.display()));
    }
    Ok(kept)
}

/// Whether the points of one are among those of the other: a run that went on after it was copied has more.
fn overlap(a: &Results, b: &Results) -> Framed<bool> {
    let lines = |results: &Results| -> Framed<BTreeSet<String>> {
        let csv = to_csv(&results.points)?;
        Ok(String::from_utf8_lossy(&csv).lines().map(str::to_owned).collect())
    };
    let (a, b) = (lines(a)?, lines(b)?);
    // A header alone says nothing.
    Ok(a.len().min(b.len()) > 1 && (a.is_subset(&b) || b.is_subset(&a)))
}
