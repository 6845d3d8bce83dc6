//! A result directory: opened, resumed, filled point by point.
//!
//! Points may end in any order, their rows land in point order. The rows of the next point in line are
//! appended at once; those of a later point wait in `pending/<point>.json` until their turn, so a crash
//! loses only the points that were running. The row in `points.csv` is written last and makes a point count.
//! The files of a finished run depend on its points alone, not on how many ran at a time.
//!
//! One slow or failed point must not keep the others from whoever looks on: when [`CROWD`] of them wait behind it, they are
//! put into the tables, and it goes before them when it comes. Tables are then written anew, so the crowd grows with
//! them; so they are for each point that fills a gap.
//!
//! [`ResultDir::finish`] also appends what still waits, so after a failure or Ctrl-C `points.csv` holds every
//! measured point, with gaps. They stay in the tables when the directory is opened again, and the gaps are filled.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::files::remove_temporaries;
use super::sheet::Cells;
use super::table::Table;
use super::{Histogram, Kind, ResultError, Row, RunRecord, TableName, columns, write_atomic};
use crate::place::Mistake;

/// What one point leaves.
#[derive(Clone, Debug, Default)]
pub struct PointResult {
    /// Its row in `points.csv`.
    pub row: Row,
    /// Its rows in `phases.csv`.
    pub phases: Vec<Row>,
    /// Its rows in `aborts.csv`.
    pub aborts: Vec<Row>,
    /// Its raw latencies.
    pub histogram: Option<Histogram>,
}

impl PointResult {
    /// A result with a row in `points.csv` alone.
    pub fn of(row: Row) -> PointResult {
        PointResult { row, ..PointResult::default() }
    }

    fn rows(&self, table: TableName) -> &[Row] {
        match table {
            TableName::Points => std::slice::from_ref(&self.row),
            TableName::Phases => &self.phases,
            TableName::Aborts => &self.aborts,
        }
    }
}

/// Cells of one point, per table in the order of [`TableName::of`].
type PointCells = Vec<Vec<Cells>>;

/// Points that may wait behind a gap, and the share of what is in the tables that may, before they are let past it.
const CROWD: usize = 8;
const CROWD_SHARE: usize = 8;

/// A result directory, held by this process until dropped.
#[derive(Debug)]
pub struct ResultDir {
    path: PathBuf,
    record: RunRecord,
    names: &'static [TableName],
    tables: Vec<Table>,
    /// Points measured: `Some` while their rows wait, `None` once they are in the tables.
    done: BTreeMap<u64, Option<PointCells>>,
    /// The first point whose rows are not in the tables.
    next: u64,
    /// Below it lie all points whose rows are in the tables.
    end: u64,
    /// Points whose rows wait.
    waiting: usize,
    resumed: bool,
    _lock: File,
}

impl ResultDir {
    /// Creates the directory for a run, or opens it to resume the same run.
    ///
    /// `axes` are an experiment's grid axes, empty otherwise.
    ///
    /// # Errors
    /// [`ResultError::OtherRun`] and [`ResultError::NoRecord`] if it holds somebody else's results,
    /// [`ResultError::Busy`] if another process writes there, [`ResultError::Damaged`] if its files are not
    /// readable as results, [`ResultError::Io`] if it cannot be written.
    pub fn create(path: &Path, record: RunRecord, axes: &[String]) -> Result<ResultDir, ResultError> {
        fs::create_dir_all(path).map_err(ResultError::io("create", path))?;
        let lock = lock(path)?;
        let names = TableName::of(record.kind);
        let resumed = path.join("run.json").exists();
        let record = if resumed { resume(path, record)? } else { record };
        if !resumed {
            let taken = ["points.csv", "phases.csv", "aborts.csv", "pending", "histograms"];
            if let Some(file) = taken.into_iter().find(|name| path.join(name).exists()) {
                return Err(ResultError::NoRecord { path: path.to_owned(), file });
            }
            record.write(path)?;
        }
        let mut dir = ResultDir {
            path: path.to_owned(),
            names,
            tables: Vec::new(),
            done: BTreeMap::new(),
            next: 0, // the first of the shard is found when the tables are loaded
            end: 0,
            waiting: 0,
            resumed,
            record,
            _lock: lock,
        };
        dir.load(axes)?;
        dir.record.points_done = dir.done.len() as u64;
        dir.record.interrupted &= dir.is_one_run();
        dir.record.complete = dir.all_here() && !dir.record.interrupted;
        dir.record.write(path)?;
        Ok(dir)
    }

    /// The rows of a table of a directory that is only looked at: nothing is written, nothing locked. Without grid axes.
    ///
    /// # Errors
    /// [`ResultError::Io`] or [`ResultError::Damaged`], the latter also if a build with other columns wrote it.
    pub fn read(path: &Path, record: &RunRecord, table: TableName) -> Result<Vec<Row>, ResultError> {
        let columns = columns(record.kind, table, &[]);
        let rows =
            Table::read(&path.join(table.file()), &columns, record.rules(table, &|p| record.holds(p)))?;
        let named = |cells: Cells| {
            columns.iter().cloned().zip(cells).fold(Row::new(), |row, (column, cell)| row.with(column, cell))
        };
        Ok(rows.into_iter().map(|(_, cells)| named(cells)).collect())
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its `run.json`.
    pub fn record(&self) -> &RunRecord {
        &self.record
    }

    /// Whether the directory held this run before.
    pub fn resumed(&self) -> bool {
        self.resumed
    }

    /// Points not measured yet, ascending; of the shard, if it is one.
    pub fn missing(&self) -> Vec<u64> {
        let here = |point: &u64| self.record.holds(*point) && !self.done.contains_key(point);
        (0..self.record.points_expected).filter(here).collect()
    }

    /// Adds a line for readers of `run.json`; kept once.
    pub fn note(&mut self, text: impl Into<String>) {
        let text = text.into();
        if !self.record.notes.contains(&text) {
            self.record.notes.push(text);
        }
    }

    /// Keeps a measured point. When this returns, the point survives a crash of the process.
    ///
    /// # Errors
    /// [`ResultError::Io`] if it could not be written (earlier points are untouched),
    /// [`ResultError::NoColumn`] and [`ResultError::NotMissing`] for callers' mistakes.
    pub fn keep(&mut self, point: u64, result: &PointResult) -> Result<(), ResultError> {
        let expected = self.record.points_expected;
        if !self.record.holds(point) || self.done.contains_key(&point) {
            return Err(ResultError::NotMissing { point, expected });
        }
        let mut cells = PointCells::new();
        for (table, &name) in self.tables.iter().zip(self.names) {
            let ordered = result.rows(name).iter().map(|row| row.ordered(point, table.columns()));
            let rows: Result<Vec<Cells>, String> = ordered.collect();
            cells.push(rows.map_err(|column| ResultError::NoColumn { table: name.file(), column })?);
        }
        if let Some(histogram) = &result.histogram {
            self.write_json("histograms", point, &histogram.to_data())?;
        }
        if point == self.next && point >= self.end {
            self.append(&cells)?;
            self.done.insert(point, None);
            self.end = point + 1;
            self.step();
            return self.catch_up();
        }
        self.write_json("pending", point, &cells)?;
        self.done.insert(point, Some(cells));
        self.waiting += 1;
        if point == self.next || self.waiting >= CROWD.max(self.done.len() / CROWD_SHARE) {
            self.gather()?;
            self.catch_up()?;
        }
        Ok(())
    }

    /// Puts all that waits into the tables, each point where it belongs.
    fn gather(&mut self) -> Result<(), ResultError> {
        let waiting: Vec<u64> =
            self.done.iter().filter(|(_, cells)| cells.is_some()).map(|(&p, _)| p).collect();
        if waiting.is_empty() {
            return Ok(());
        }
        // Until all tables are written nothing may be appended to any: they may hold what still waits.
        self.end = u64::MAX;
        // `points.csv` is the last: rows of a point that is not in it are dropped when the directory is opened again.
        for index in 0..self.tables.len() {
            let path = self.path.join(self.names[index].file());
            let rules = self.record.rules(self.names[index], &|_| true);
            let mut rows = Table::read(&path, self.tables[index].columns(), rules)?;
            // A gathering that failed half way may have left some that still wait.
            rows.retain(|(point, _)| matches!(self.done.get(point), Some(None)));
            for (&point, cells) in &self.done {
                let cells = cells.as_ref().and_then(|cells| cells.get(index));
                rows.extend(cells.into_iter().flatten().map(|row| (point, row.clone())));
            }
            rows.sort_by_key(|&(point, _)| point);
            let rows: Vec<Cells> = rows.into_iter().map(|(_, row)| row).collect();
            self.tables[index].replace(&rows)?;
        }
        for point in waiting {
            self.done.insert(point, None);
            let _ = fs::remove_file(self.path.join("pending").join(format!("{point}.json")));
        }
        // Nothing waits any more: all that is done is in the tables.
        self.end = self.done.keys().next_back().map_or(0, |last| last + 1);
        self.waiting = 0;
        Ok(())
    }

    /// Puts every measured point into the tables and closes the record. A sweep is complete with its last point, whoever
    /// interrupted it meanwhile; a single run that was interrupted is not.
    ///
    /// # Errors
    /// [`ResultError::Io`]; what was kept before stays readable, and opening the directory again resumes.
    pub fn finish(&mut self, interrupted: bool, summary: Value) -> Result<(), ResultError> {
        self.gather()?;
        // Only this directory's own, and only when empty.
        let _ = fs::remove_dir(self.path.join("pending"));
        self.record.points_done = self.done.len() as u64;
        let whole = self.all_here();
        self.record.interrupted = interrupted && (!whole || self.is_one_run());
        self.record.complete = whole && !self.record.interrupted;
        self.record.summary = summary;
        self.record.write(&self.path)
    }

    /// Whether its only point is a run, whose row is there also if it was cut short.
    fn is_one_run(&self) -> bool {
        self.record.kind == Kind::Run && self.record.points_expected == 1
    }

    fn all_here(&self) -> bool {
        self.record.points_done == self.record.points_here()
    }

    /// The rows of `points.csv` in the tables now, by column name: for the table printed at the end of a run,
    /// resumed points included.
    ///
    /// # Errors
    /// [`ResultError::Io`] or [`ResultError::Damaged`].
    pub fn rows(&self, table: TableName) -> Result<Vec<Row>, ResultError> {
        let Some(index) = self.names.iter().position(|&name| name == table) else { return Ok(Vec::new()) };
        let columns = self.tables[index].columns();
        let rules = self.record.rules(table, &|_| true);
        let rows = Table::read(&self.path.join(table.file()), columns, rules)?;
        let named = |cells: Cells| {
            columns.iter().cloned().zip(cells).fold(Row::new(), |row, (column, cell)| row.with(column, cell))
        };
        Ok(rows.into_iter().map(|(_, cells)| named(cells)).collect())
    }

    /// Moves waiting points into the tables as far as they follow without a gap.
    fn catch_up(&mut self) -> Result<(), ResultError> {
        while let Some(cells) = self.done.get(&self.next) {
            if cells.is_some() {
                if self.next < self.end {
                    return self.gather().and_then(|()| self.catch_up());
                }
                self.settle(self.next)?;
            }
            self.step();
        }
        Ok(())
    }

    /// Goes on to the next point that belongs here.
    fn step(&mut self) {
        self.next += 1;
        self.skip();
    }

    fn skip(&mut self) {
        while self.next < self.record.points_expected && !self.record.holds(self.next) {
            self.next += 1;
        }
    }

    /// Appends a waiting point's rows and drops its side file.
    fn settle(&mut self, point: u64) -> Result<(), ResultError> {
        let Some(waiting) = self.done.get_mut(&point) else { return Ok(()) };
        let Some(cells) = waiting.take() else { return Ok(()) };
        if let Err(error) = self.append(&cells) {
            self.done.insert(point, Some(cells));
            return Err(error);
        }
        (self.waiting, self.end) = (self.waiting - 1, self.end.max(point + 1));
        // Left behind, it would be told from the row in the table when the directory is opened again.
        let _ = fs::remove_file(self.path.join("pending").join(format!("{point}.json")));
        Ok(())
    }

    /// Appends one point's rows to every table, or to none.
    fn append(&mut self, cells: &PointCells) -> Result<(), ResultError> {
        let before: Vec<u64> = self.tables.iter().map(Table::len).collect();
        for index in 0..self.tables.len() {
            let appended = match cells.get(index) {
                Some(rows) if !rows.is_empty() => self.tables[index].append(rows),
                _ => Ok(()),
            };
            if let Err(error) = appended {
                for (table, &len) in self.tables.iter_mut().zip(&before).take(index) {
                    let _ = table.cut(len); // opening the directory again drops rows without a point
                }
                return Err(error);
            }
        }
        Ok(())
    }

    fn write_json(&self, folder: &str, point: u64, value: &impl serde::Serialize) -> Result<(), ResultError> {
        let folder = self.path.join(folder);
        fs::create_dir_all(&folder).map_err(ResultError::io("create", &folder))?;
        let path = folder.join(format!("{point}.json"));
        let text = serde_json::to_string(value).map_err(|e| ResultError::Damaged {
            path: path.clone(),
            mistake: Mistake::somewhere(e.to_string()),
        })?;
        write_atomic(&path, format!("{text}\n").as_bytes())
    }

    /// Reads tables and side files, and brings them into the state described at the top of this file.
    fn load(&mut self, axes: &[String]) -> Result<(), ResultError> {
        for folder in ["", "histograms", "pending"] {
            remove_temporaries(&self.path.join(folder));
        }
        let mut found = Vec::new();
        for &name in self.names {
            let holds = |point| self.record.holds(point);
            let rules = self.record.rules(name, &holds);
            let columns = columns(self.record.kind, name, axes);
            let (table, rows) = Table::open(self.path.join(name.file()), columns, rules)?;
            self.tables.push(table);
            found.push(rows);
        }
        // Only a row in `points.csv`, the last of the tables, makes a point count.
        let mut settled: BTreeMap<u64, PointCells> = BTreeMap::new();
        for &(point, _) in found.last().into_iter().flatten() {
            settled.insert(point, vec![Vec::new(); self.names.len()]);
        }
        let mut strays = false;
        for (index, rows) in found.into_iter().enumerate() {
            for (point, cells) in rows {
                match settled.get_mut(&point) {
                    Some(point) => point[index].push(cells),
                    None => strays = true,
                }
            }
        }
        let mut waiting = self.side_files()?;
        if strays {
            for (index, table) in self.tables.iter_mut().enumerate() {
                let rows: Vec<Cells> =
                    settled.values().flat_map(|point| point[index].iter().cloned()).collect();
                table.replace(&rows)?;
            }
        }
        self.end = settled.keys().next_back().map_or(0, |last| last + 1);
        self.skip();
        while settled.contains_key(&self.next) {
            self.step();
        }
        for point in settled.into_keys() {
            waiting.remove(&point);
            let _ = fs::remove_file(self.path.join("pending").join(format!("{point}.json")));
            self.done.insert(point, None);
        }
        self.waiting = waiting.len();
        self.done.extend(waiting.into_iter().map(|(point, cells)| (point, Some(cells))));
        self.catch_up()
    }

    /// Points that wait in `pending/`. A side file that cannot be read is measured again.
    fn side_files(&self) -> Result<BTreeMap<u64, PointCells>, ResultError> {
        let folder = self.path.join("pending");
        let entries = match fs::read_dir(&folder) {
            Ok(entries) => entries,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(BTreeMap::new()),
            Err(e) => return Err(ResultError::io("read", &folder)(e)),
        };
        let mut waiting = BTreeMap::new();
        for entry in entries {
            let path = entry.map_err(ResultError::io("read", &folder))?.path();
            let point =
                path.file_stem().and_then(|stem| stem.to_str()).and_then(|stem| stem.parse::<u64>().ok());
            let cells =
                fs::read_to_string(&path).ok().and_then(|t| serde_json::from_str::<PointCells>(&t).ok());
            if let (Some(point), Some(cells)) = (point, cells) {
                let fits = cells.len() == self.tables.len()
                    && cells.iter().zip(&self.tables).all(|(rows, table)| {
                        rows.iter()
                            .all(|row| row.len() == table.columns().len() && row[0] == point.to_string())
                    });
                if fits && self.record.holds(point) {
                    waiting.insert(point, cells);
                }
            }
        }
        Ok(waiting)
    }
}

/// The record to go on with, or the reason why this is another run. It stays the record of the build and
/// machine that began it; who went on is noted, unless nothing was left to do. What its points are shown by is as asked for now.
fn resume(path: &Path, record: RunRecord) -> Result<RunRecord, ResultError> {
    let mut old = RunRecord::read(path)?;
    if let Some(differs) = record.differs_from(&old) {
        return Err(ResultError::OtherRun { path: path.to_owned(), differs });
    }
    (old.title, old.question, old.spec) = (record.title, record.question, record.spec);
    let mut note = |text: String| {
        if !old.complete && !old.notes.contains(&text) {
            old.notes.push(text);
        }
    };
    if record.commit != old.commit {
        note(format!("resumed by commit {}", record.commit));
    }
    if record.machine != old.machine {
        note(format!("resumed on {}, kernel {}", record.machine.cpu, record.machine.kernel));
    }
    Ok(old)
}

/// Holds the directory for this process: two writers would mix their rows.
fn lock(path: &Path) -> Result<File, ResultError> {
    use rustix::fs::{FlockOperation, flock};
    let file = File::open(path).map_err(ResultError::io("open", path))?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(file),
        Err(rustix::io::Errno::WOULDBLOCK) => Err(ResultError::Busy { path: path.to_owned() }),
        // Some network file systems cannot lock; that is no reason to refuse.
        Err(_) => Ok(file),
    }
}

#[cfg(test)]
#[path = "dir_tests.rs"]
mod tests;
