//! Result directories to frames.

pub mod record;
pub mod shards;
pub mod table;

use polars::prelude::DataFrame;
use primitives::measure::{self, Columns, Kind, Rules, TableName, known_columns};
use std::path::{Path, PathBuf};

use crate::error::LoadError;
use crate::frame::{floats, words};
use record::Record;
use serde::Deserialize;
use serde::de::IntoDeserializer;

/// One result directory in memory.
pub struct Results {
    /// The directory's own name.
    pub label: String,
    /// Where it was read from.
    pub path: PathBuf,
    /// `run.json`.
    pub record: Record,
    /// `points.csv`, with the columns its kind has.
    pub points: DataFrame,
    /// `phases.csv`; empty where the kind has none.
    pub phases: DataFrame,
    /// `aborts.csv`; empty where the kind has none.
    pub aborts: DataFrame,
    /// What could not be read as it should.
    pub notes: Vec<String>,
}

impl Results {
    /// Points that were measured while the scheduler took CPUs away from worker threads; none where time is virtual.
    pub fn busy_points(&self) -> usize {
        let busy = crate::frame::words(&self.points, "busy").unwrap_or_default();
        busy.iter().filter(|word| *word == "yes").count()
    }
}

/// Columns of a table; none for a kind that this version does not know.
fn known(kind: &str, table: TableName) -> Columns {
    let kind = Kind::deserialize(kind.into_deserializer()).map_err(|_: serde::de::value::Error| ());
    kind.map_or(&[], |kind| known_columns(kind, table))
}

/// The directories that hold results among `given`: a directory itself, or those directly below it, sorted.
pub fn find(given: &Path) -> Result<Vec<PathBuf>, LoadError> {
    let fail = |source| LoadError::Unreadable { path: given.to_owned(), source };
    let mut below = Vec::new();
    for entry in std::fs::read_dir(given).map_err(fail)? {
        let path = entry.map_err(fail)?.path();
        if path.join("run.json").is_file() {
            below.push(path);
        }
    }
    if given.join("run.json").exists() {
        return Ok(vec![given.to_owned()]);
    }
    if given.join("points.csv").exists() {
        return Err(LoadError::NoRecord { path: given.to_owned() });
    }
    if below.is_empty() {
        return Err(LoadError::NoResults { path: given.to_owned() });
    }
    below.sort();
    Ok(below)
}

/// How well the rates are known, in one line; nothing if no point says.
fn precision(points: &DataFrame) -> Option<String> {
    let widths: Vec<f64> = floats(points, "rate_ci_relative").ok()?.into_iter().flatten().collect();
    let widest = widths.iter().copied().fold(f64::NAN, f64::max);
    if widths.is_empty() {
        return None;
    }
    let rates = if points.height() == 1 { "the rate is" } else { "rates are" };
    let within = format!("{rates} known within ± {:.2} % (95 % confidence, batch means)", 100.0 * widest);
    let wide = words(points, "converged").ok()?.iter().filter(|w| *w == "no").count();
    Some(match wide {
        0 => within,
        _ => format!("{within}; {wide} of {} did not become as precise as asked for", points.height()),
    })
}

/// Reads one result directory.
pub fn read(dir: &Path) -> Result<Results, LoadError> {
    let record = Record::read(&dir.join("run.json"))?;
    let mut notes = Vec::new();
    let columns = known(&record.kind, TableName::Points);
    if columns.is_empty() {
        notes.push(format!("its kind is {:?}, which this version cannot draw", record.kind));
    }
    let rules = Rules { known: columns, once: Some(&|point| record.holds(point)) };
    let points = table::read(dir, "points.csv", rules)?;
    notes.extend(points.notes);
    // Only `run` promises its side tables; elsewhere they are read if there.
    let mut side = |name: &str, known: Columns| -> Result<DataFrame, LoadError> {
        let promised = record.kind == "run";
        match table::read(dir, name, Rules { known, once: None }) {
            Ok(table) => {
                notes.extend(if promised || dir.join(name).exists() { table.notes } else { Vec::new() });
                Ok(table.frame)
            }
            // The points are still good: say what is wrong and go on without the side table.
            Err(error @ LoadError::Damaged(_)) => {
                notes.push(format!("left out: {error}"));
                Ok(table::empty(known))
            }
            Err(error) => Err(error),
        }
    };
    let phases = side("phases.csv", measure::PHASES)?;
    let aborts = side("aborts.csv", measure::ABORTS)?;
    if points.frame.height() == 0 {
        notes.push("there are no points to draw".to_owned());
    } else if record.points_done != 0 && record.points_done != points.frame.height() as u64 {
        notes.push(format!(
            "run.json counts {} finished points, points.csv has {}",
            record.points_done,
            points.frame.height()
        ));
    }
    notes.extend(precision(&points.frame));
    let label =
        dir.file_name().map_or_else(|| dir.display().to_string(), |n| n.to_string_lossy().into_owned());
    Ok(Results { label, path: dir.to_owned(), record, points: points.frame, phases, aborts, notes })
}
