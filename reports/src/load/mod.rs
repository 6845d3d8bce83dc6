//! Result directories to frames.

pub mod record;
pub mod same;
pub mod shards;
pub mod table;

use polars::prelude::DataFrame;
use primitives::measure::{self, Columns, Found, Kind, Rules, TableName, UNSETTLED, gone, known_columns};
use std::path::{Path, PathBuf};

use crate::error::LoadError;
use crate::frame::{distinct, floats, words};
use record::{Provenance, Record};
use serde::Deserialize;
use serde::de::IntoDeserializer;

/// Seeds that are told one by one.
const SEEDS: usize = 6;

/// One result directory in memory.
pub struct Results {
    /// The directory's own name.
    pub label: String,
    /// Where it was read from.
    pub path: PathBuf,
    /// `run.json`; of shards that were joined, the first one's.
    pub record: Record,
    /// The commands that make it again: one, or each shard's.
    pub commands: Vec<String>,
    /// `points.csv`, with the columns its kind has.
    pub points: DataFrame,
    /// `phases.csv`; empty where the kind has none.
    pub phases: DataFrame,
    /// `aborts.csv`; empty where the kind has none.
    pub aborts: DataFrame,
    /// What could not be read as it should.
    pub notes: Vec<String>,
    /// From which shards it was joined, if it was.
    pub joined: Option<String>,
    /// Files beside the points that are damaged, and were left out.
    pub damaged: Vec<LoadError>,
}

impl Results {
    /// One line that says where the numbers come from.
    pub fn provenance_line(&self, provenance: Provenance) -> String {
        self.record.provenance_line(provenance, &self.seeds())
    }

    /// The seeds of the points: those of a grid over them, else the run's.
    fn seeds(&self) -> String {
        let columns = ["axis_seed", "seed"].iter().filter_map(|column| words(&self.points, column).ok());
        let found = columns.flatten().filter(|seed| !seed.is_empty());
        let mut seeds: Vec<String> = distinct(found);
        seeds.sort_by_key(|seed| seed.parse::<u64>().ok());
        match seeds.as_slice() {
            [] => format!("seed {}", self.record.seed),
            [one] => format!("seed {one}"),
            few if few.len() <= SEEDS => format!("seeds {}", few.join(", ")),
            [first, .., last] => format!("{} seeds, {first} to {last}", seeds.len()),
        }
    }
}

/// A kind by its name; nothing for one that this version does not know.
fn kind(name: &str) -> Option<Kind> {
    Kind::deserialize(name.into_deserializer()).map_err(|_: serde::de::value::Error| ()).ok()
}

/// Columns of a table; none for a kind that this version does not know.
fn known(name: &str, table: TableName) -> Columns {
    kind(name).map_or(&[], |kind| known_columns(kind, table))
}

/// What a directory lost of what its points left, in one line; `frames` are points, phases and aborts.
fn lost(dir: &Path, record: &Record, frames: [&DataFrame; 3]) -> Option<String> {
    let names = [TableName::Points, TableName::Phases, TableName::Aborts];
    let column = |frame| floats(frame, "point").unwrap_or_default().into_iter().flatten().map(|p| p as u64);
    let rows: Vec<_> = names.into_iter().zip(frames.map(|frame| column(frame).collect())).collect();
    let gone = kind(&record.kind).map(|kind| gone(dir, TableName::of(kind))).unwrap_or_default();
    let found = Found::look(dir, &record.left, record.points_done, &rows, &gone);
    found.told().map(|lost| format!("it {lost}"))
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

/// How well rates are known.
pub struct Precision {
    /// In one line: in the median, and of which point the least.
    pub told: String,
    /// Whether that is to be told unasked: one is not known to [`WIDE`], or not as precisely as was asked for.
    pub wide: bool,
}

/// An interval at least this wide to either side, as a share of the rate, is drawn and told.
pub const WIDE: f64 = 0.05;

/// How well the rates are known; nothing if no point says.
pub fn precision(points: &DataFrame) -> Option<Precision> {
    let widths = floats(points, "rate_ci_relative").ok()?;
    let mut known: Vec<(f64, usize)> =
        widths.iter().enumerate().filter_map(|(row, width)| Some(((*width)?, row))).collect();
    known.sort_by(|a, b| a.0.total_cmp(&b.0));
    let within = |width: f64| format!("± {:.2} %", 100.0 * width);
    let (median, worst) = (known.get(known.len() / 2)?.0, known.last()?);
    let rates = match known.len() {
        1 => format!("the rate is known within {}", within(median)),
        _ => format!(
            "rates are known within {} in the median and {} at worst, {}",
            within(median),
            within(worst.0),
            point(points, worst.1)
        ),
    };
    let converged = words(points, "converged").ok()?;
    let those = |cell: &str, are: &str| match converged.iter().filter(|w| *w == cell).count() {
        0 => String::new(),
        some => format!("; {some} of {} {are}", points.height()),
    };
    let doubts = [
        ("no", "did not become as precise as asked for"),
        (UNSETTLED, "were not steady in the measured time"),
    ]
    .map(|(cell, are)| those(cell, are))
    .concat();
    let told = format!("{rates} (95 % confidence, batch means){doubts}");
    Some(Precision { told, wide: worst.0 >= WIDE || !doubts.is_empty() })
}

/// The first columns that are outcomes; those before them, and axes, are what a point was asked to be.
const OUTCOMES: [&str; 2] = ["ops", "committed"];

/// A row's point: its number, and what tells it from the others.
fn point(points: &DataFrame, row: usize) -> String {
    let names: Vec<&str> = points.get_column_names().into_iter().map(|name| name.as_str()).collect();
    let axes: Vec<&str> = names.iter().copied().filter(|name| name.starts_with("axis_")).collect();
    let asked = match axes.is_empty() {
        true => names.into_iter().skip(1).take_while(|name| !OUTCOMES.contains(name)).collect(),
        false => axes,
    };
    // As few as tell it from all others.
    let mut alike: Vec<usize> = (0..points.height()).collect();
    let mut told = Vec::new();
    for name in asked {
        let cells = words(points, name).unwrap_or_default();
        if cells
            .get(row)
            .is_some_and(|cell| !cell.is_empty() && alike.iter().any(|other| cells[*other] != *cell))
        {
            told.push(format!("{} {}", name.trim_start_matches("axis_").replace('_', " "), cells[row]));
            alike.retain(|other| cells[*other] == cells[row]);
        }
    }
    let number = words(points, "point").map(|numbers| numbers[row].clone()).unwrap_or_default();
    match told.is_empty() {
        true => format!("point {number}"),
        false => format!("point {number}: {}", told.join(", ")),
    }
}

/// Reads one result directory.
pub fn read(dir: &Path) -> Result<Results, LoadError> {
    let record = Record::read(&dir.join("run.json"))?;
    let (mut notes, mut damaged) = (Vec::new(), Vec::new());
    let columns = known(&record.kind, TableName::Points);
    if columns.is_empty() {
        notes.push(format!("its kind is {:?}, which this version cannot draw", record.kind));
    }
    let rules = Rules { known: columns, once: Some(&|point| record.holds(point)) };
    let points = table::read(dir, "points.csv", rules)?;
    notes.extend(points.notes);
    // Side tables that a kind does not make are read if there.
    let mut side = |table: TableName, known: Columns| -> Result<DataFrame, LoadError> {
        let name = table.file();
        let promised = kind(&record.kind).is_some_and(|kind| TableName::of(kind).contains(&table));
        match table::read(dir, name, Rules { known, once: None }) {
            Ok(table) => {
                notes.extend(if promised || dir.join(name).exists() { table.notes } else { Vec::new() });
                Ok(table.frame)
            }
            // The points are still good: say what is wrong and go on without the side table.
            Err(error @ LoadError::Damaged(_)) => {
                damaged.push(error);
                Ok(table::empty(known))
            }
            Err(error) => Err(error),
        }
    };
    let phases = side(TableName::Phases, measure::PHASES)?;
    let aborts = side(TableName::Aborts, measure::ABORTS)?;
    notes.extend(lost(dir, &record, [&points.frame, &phases, &aborts]));
    if points.frame.height() == 0 {
        notes.push("there are no points to draw".to_owned());
    }
    let label =
        dir.file_name().map_or_else(|| dir.display().to_string(), |n| n.to_string_lossy().into_owned());
    let commands = Vec::from_iter(Some(record.command.clone()).filter(|command| !command.is_empty()));
    Ok(Results {
        label,
        path: dir.to_owned(),
        record,
        commands,
        points: points.frame,
        phases,
        aborts,
        notes,
        joined: None,
        damaged,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use primitives::measure::{Histogram, PointResult, ResultDir, Row, RunRecord};

    /// A finished experiment of two points, each with a row in each table.
    fn finished(path: &Path) {
        let record = RunRecord::new(Kind::Experiment, "sim:cx4-edr", serde_json::json!({}), 1, 2);
        let mut dir = ResultDir::create(path, record, &[]).expect("creates");
        for point in 0..2 {
            let result = PointResult {
                row: Row::new().with("committed", 7u64),
                phases: vec![Row::new().with("phase", "lock")],
                aborts: vec![Row::new().with("reason", "locked")],
                histogram: Some(Histogram::new()),
            };
            dir.keep(point, &result).expect("keeps");
        }
        dir.finish(false, serde_json::Value::Null).expect("finishes");
    }

    #[test]
    fn what_a_directory_lost_is_told_whatever_its_kind() {
        let told = |damage: &dyn Fn(&Path)| {
            let temp = tempfile::tempdir().expect("a directory");
            finished(temp.path());
            damage(temp.path());
            read(temp.path()).expect("reads").notes.join("; ")
        };
        assert_eq!(told(&|_| {}), "");
        let cut = told(&|dir| {
            let text = std::fs::read_to_string(dir.join("phases.csv")).expect("reads");
            let kept = text.split_inclusive('\n').take(2).collect::<String>();
            std::fs::write(dir.join("phases.csv"), kept).expect("writes");
        });
        assert!(
            cut.starts_with("it lost what 1 point left in phases.csv: 1 point is to be measured"),
            "{cut}"
        );
        let gone = told(&|dir| std::fs::remove_file(dir.join("aborts.csv")).expect("removes"));
        assert!(gone.contains("aborts.csv is missing; it lost what 2 points left in aborts.csv"), "{gone}");
        let gone = told(&|dir| std::fs::remove_dir_all(dir.join("histograms")).expect("removes"));
        assert_eq!(gone, "it lost what 2 points left in histograms: their rows are there");
        let twice = told(&|dir| {
            let text = std::fs::read_to_string(dir.join("phases.csv")).expect("reads");
            let last = text.lines().last().expect("a row");
            std::fs::write(dir.join("phases.csv"), format!("{text}{last}\n")).expect("writes");
        });
        assert!(twice.starts_with("it holds more than 1 point left in phases.csv: 1 point is"), "{twice}");
        let fewer = told(&|dir| {
            let text = std::fs::read_to_string(dir.join("points.csv")).expect("reads");
            let kept = text.split_inclusive('\n').take(2).collect::<String>();
            std::fs::write(dir.join("points.csv"), kept).expect("writes");
        });
        assert_eq!(fewer, "it lost what 1 point left in points.csv: 1 point is to be measured again");
    }
}
