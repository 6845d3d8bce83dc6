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
//! `run.json` keeps how much each point left beside its row. Where a directory that is opened again has not the same rows, some
//! were cut off, or a file was removed: such points are measured again, and [`ResultDir::lost`] says so. What is left of their
//! rows stays until the new ones take its place. Raw latencies that are gone are told, but no reason to measure again.
//!
//! [`ResultDir::finish`] also appends what still waits, so after a failure or Ctrl-C `points.csv` holds every
//! measured point, with gaps. They stay in the tables when the directory is opened again, and the gaps are filled.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::files::remove_temporaries;
use super::left::{Found, HISTOGRAMS, Left, PENDING, gone, pending};
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
    /// The first point that is not in the tables as it should be.
    next: u64,
    /// Below it lie all points that have rows in the tables.
    end: u64,
    /// Points whose rows wait.
    waiting: usize,
    /// Points kept since the record was written.
    unrecorded: usize,
    resumed: bool,
    lost: Option<String>,
    _lock: File,
}

impl ResultDir {
    /// Creates the directory for a run, or opens it to resume the same run.
    ///
    /// `axes` are an experiment's grid axes, empty otherwise.
    ///
    /// # Errors
    /// [`ResultError::OtherRun`], [`ResultError::Holds`] and [`ResultError::NoRecord`] if it holds somebody else's results,
    /// [`ResultError::Busy`] if another process writes there, [`ResultError::Damaged`] if its files are not
    /// readable as results, [`ResultError::Io`] if it cannot be written.
    pub fn create(path: &Path, record: RunRecord, axes: &[String]) -> Result<ResultDir, ResultError> {
        fs::create_dir_all(path).map_err(ResultError::io("create", path))?;
        let lock = lock(path)?;
        let names = TableName::of(record.kind);
        let ours = record.commit.clone();
        let resumed = path.join("run.json").exists();
        let (record, resumptions) = if resumed { resume(path, record)? } else { (record, Vec::new()) };
        if !resumed {
            if let Some(inner) = a_run_in(path)? {
                return Err(ResultError::Holds { path: path.to_owned(), inner });
            }
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
            unrecorded: 0,
            resumed,
            lost: None,
            record,
            _lock: lock,
        };
        let loaded = dir.load(axes).map_err(|error| error.between(&dir.record.commit, &ours));
        if let Some(lost) = loaded? {
            dir.lost = Some(format!("{} {lost}", path.display()));
            dir.note(format!("Opened again, it {lost}."));
        }
        if !dir.missing().is_empty() {
            resumptions.into_iter().for_each(|text| dir.note(text));
        }
        dir.record.points_done = dir.done.len() as u64;
        dir.record.interrupted &= dir.is_one_run();
        dir.record.complete = dir.all_here() && !dir.record.interrupted;
        dir.record.write(path)?;
        Ok(dir)
    }

    /// Whether directories of runs may be made below `path`: a report of it would find its own run alone.
    ///
    /// # Errors
    /// [`ResultError::OneRun`] if it holds a run.
    pub fn may_hold_runs(path: &Path) -> Result<(), ResultError> {
        match path.join("run.json").exists() {
            true => Err(ResultError::OneRun { path: path.to_owned() }),
            false => Ok(()),
        }
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

    /// What the directory had lost when it was opened again, in one line; nothing if it had all that its points left. Points that
    /// lost rows are among the missing.
    pub fn lost(&self) -> Option<&str> {
        self.lost.as_deref()
    }

    /// Points not measured yet, ascending; of the shard, if it is one.
    pub fn missing(&self) -> Vec<u64> {
        let here = |point: &u64| self.record.holds(*point) && !self.done.contains_key(point);
        (0..self.record.points_expected).filter(here).collect()
    }

    /// Removes the lines that contain `part`: what they say is so no longer.
    pub fn forget_notes(&mut self, part: &str) {
        self.record.notes.retain(|note| !note.contains(part));
    }

    /// Adds a line for readers of `run.json`; kept once.
    pub fn note(&mut self, text: impl Into<String>) {
        let text = text.into();
        if !self.record.notes.contains(&text) {
            self.record.notes.push(text);
        }
    }

    /// Leaves a file beside the tables, such as a plan. The same run may leave another one in its place, as another build does; what
    /// somebody has edited since is not overwritten.
    ///
    /// # Errors
    /// [`ResultError::Edited`] if `name` is there and is neither what a run left nor what it is to be; [`ResultError::Io`].
    pub fn leave(&mut self, name: &str, bytes: &[u8]) -> Result<(), ResultError> {
        let path = self.path.join(name);
        match fs::read(&path) {
            Ok(there) if there != bytes && self.record.files.get(name) != Some(&hex(&there)) => {
                return Err(ResultError::Edited { path, known: self.record.files.contains_key(name) });
            }
            Ok(_) => {}
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(ResultError::io("read", &path)(error)),
        }
        // Should the second write fail, the file is as this build leaves it, which is enough to know it by.
        write_atomic(&path, bytes)?;
        self.record.files.insert(name.to_owned(), hex(bytes));
        self.record.write(&self.path)
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
            self.write_json(HISTOGRAMS, point, &histogram.to_data())?;
        }
        let left = Left { histogram: result.histogram.is_some(), ..self.leavings(&cells) };
        self.insert(point, cells, left)?;
        self.unrecorded += 1;
        if self.unrecorded > self.done.len() / CROWD_SHARE {
            // The point is kept already, and a directory that takes no more is told by what is written next.
            let _ = self.record.write(&self.path);
            self.unrecorded = 0;
        }
        Ok(())
    }

    /// Puts a point's rows into the tables, or where they wait.
    fn insert(&mut self, point: u64, cells: PointCells, left: Left) -> Result<(), ResultError> {
        if point == self.next && point >= self.end {
            self.append(&cells)?;
            self.record.left.insert(point, left);
            self.done.insert(point, None);
            self.end = point + 1;
            self.step();
            return self.catch_up();
        }
        self.write_json(PENDING, point, &cells)?;
        self.record.left.insert(point, left);
        self.done.insert(point, Some(cells));
        self.waiting += 1;
        if point == self.next || self.waiting >= CROWD.max(self.done.len() / CROWD_SHARE) {
            self.gather()?;
            self.catch_up()?;
        }
        Ok(())
    }

    /// How many rows a point has in side tables.
    fn leavings(&self, cells: &PointCells) -> Left {
        let mut left = Left::default();
        for (&table, rows) in self.names.iter().zip(cells) {
            rows.iter().for_each(|_| left.count(table));
        }
        left
    }

    /// Puts all that waits into the tables, each point where it belongs, in place of what was left of it.
    fn gather(&mut self) -> Result<(), ResultError> {
        let waiting: Vec<u64> =
            self.done.iter().filter(|(_, cells)| cells.is_some()).map(|(&p, _)| p).collect();
        if waiting.is_empty() {
            return Ok(());
        }
        // By it the tables are judged when they are read again.
        self.record.write(&self.path)?;
        // Until all tables are written nothing may be appended to any: they may hold what still waits.
        self.end = u64::MAX;
        let mut end = 0;
        // `points.csv` is the last: a point that is not in it does not count, and its other rows are replaced in their turn.
        for index in 0..self.tables.len() {
            let path = self.path.join(self.names[index].file());
            let rules = self.record.rules(self.names[index], &|_| true);
            let mut rows = Table::read(&path, self.tables[index].columns(), rules)?;
            // A gathering that failed half way may have left some that still wait, as may those who were there before.
            let replaced = |point: &u64| matches!(self.done.get(point), Some(Some(_)));
            rows.retain(|(point, _)| self.record.holds(*point) && !replaced(point));
            for (&point, cells) in &self.done {
                let cells = cells.as_ref().and_then(|cells| cells.get(index));
                rows.extend(cells.into_iter().flatten().map(|row| (point, row.clone())));
            }
            rows.sort_by_key(|&(point, _)| point);
            end = end.max(rows.last().map_or(0, |&(last, _)| last + 1));
            let rows: Vec<Cells> = rows.into_iter().map(|(_, row)| row).collect();
            self.tables[index].replace(&rows)?;
        }
        for point in waiting {
            self.done.insert(point, None);
            let _ = fs::remove_file(self.path.join(PENDING).join(format!("{point}.json")));
        }
        (self.end, self.waiting) = (end, 0);
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
        let _ = fs::remove_dir(self.path.join(PENDING));
        self.record.points_done = self.done.len() as u64;
        let whole = self.all_here();
        self.record.interrupted = interrupted && (!whole || self.is_one_run());
        self.record.complete = whole && !self.record.interrupted;
        self.record.summary = summary;
        if self.record.fabric.contains("verbs:") {
            crate::mem::pages_taken().into_iter().for_each(|told| self.note(told));
        }
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
        // Left behind, it would take the place of the same rows when the directory is opened again.
        let _ = fs::remove_file(self.path.join(PENDING).join(format!("{point}.json")));
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
                    let _ = table.cut(len); // rows without a point are replaced by those of the point
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

    /// Reads tables and side files, and tells what they lost. Nothing in the tables is touched but a row that a crash cut off.
    fn load(&mut self, axes: &[String]) -> Result<Option<String>, ResultError> {
        for folder in ["", HISTOGRAMS, PENDING] {
            remove_temporaries(&self.path.join(folder));
        }
        let gone = gone(&self.path, self.names);
        let mut rows = Vec::new();
        for &name in self.names {
            let holds = |point| self.record.holds(point);
            let rules = self.record.rules(name, &holds);
            let columns = columns(self.record.kind, name, axes);
            let (table, found) = Table::open(self.path.join(name.file()), columns, rules)?;
            self.tables.push(table);
            rows.push((name, found.into_iter().map(|(point, _)| point).collect::<Vec<u64>>()));
        }
        let last = rows.iter().flat_map(|(_, points)| points).max();
        self.end = last.map_or(0, |last| last.saturating_add(1));
        let waiting = self.side_files()?;
        let found = Found::look(&self.path, &self.record.left, self.record.points_done, &rows, &gone);
        let lost = found.told();
        self.done = found.here.keys().map(|&point| (point, None)).collect();
        self.record.left = found.here.into_iter().chain(found.again).collect();
        self.waiting = waiting.len();
        for (point, cells) in waiting {
            let mut left = self.leavings(&cells);
            left.look(&self.path, point);
            self.record.left.insert(point, left);
            self.done.insert(point, Some(cells));
        }
        self.skip();
        self.catch_up()?;
        Ok(lost)
    }

    /// Points that wait in `pending/`. A side file that cannot be read is removed, and its point measured again.
    fn side_files(&self) -> Result<BTreeMap<u64, PointCells>, ResultError> {
        let files = pending(&self.path).map_err(ResultError::io("read", &self.path.join(PENDING)))?;
        let mut waiting = BTreeMap::new();
        for (point, path) in files {
            let cells =
                fs::read_to_string(&path).ok().and_then(|t| serde_json::from_str::<PointCells>(&t).ok());
            let fits = |cells: &PointCells| {
                cells.len() == self.tables.len()
                    && cells.iter().zip(&self.tables).all(|(rows, table)| {
                        rows.iter()
                            .all(|row| row.len() == table.columns().len() && row[0] == point.to_string())
                    })
            };
            match cells.filter(fits) {
                Some(cells) if self.record.holds(point) => drop(waiting.insert(point, cells)),
                _ => drop(fs::remove_file(&path)),
            }
        }
        Ok(waiting)
    }
}

/// The record to go on with, or the reason why this is another run. It stays the record of the build and machine that began it,
/// with what is to be noted of those who go on if anything is missing. What its points are shown by is as asked for now.
fn resume(path: &Path, record: RunRecord) -> Result<(RunRecord, Vec<String>), ResultError> {
    let mut old = RunRecord::read(path)?;
    old.goes_on(&record, path)?;
    (old.title, old.question, old.spec) = (record.title, record.question, record.spec);
    old.published = record.published;
    let mut notes = Vec::new();
    if record.commit != old.commit {
        notes.push(format!("resumed by commit {}", record.commit));
    }
    if record.machine != old.machine {
        notes.push(format!("resumed on {}, kernel {}", record.machine.cpu, record.machine.kernel));
    }
    Ok((old, notes))
}

/// What tells a file's content from another's.
fn hex(bytes: &[u8]) -> String {
    crate::secret::digest(&[bytes]).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A directory below `path` that holds a run.
fn a_run_in(path: &Path) -> Result<Option<PathBuf>, ResultError> {
    for entry in fs::read_dir(path).map_err(ResultError::io("read", path))? {
        let inner = entry.map_err(ResultError::io("read", path))?.path();
        if inner.join("run.json").is_file() {
            return Ok(Some(inner));
        }
    }
    Ok(None)
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
