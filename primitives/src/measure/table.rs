//! One CSV file that grows by whole rows.
//!
//! Invariant: up to [`Table::len`] the file holds the header and whole rows. A write that fails half way is
//! cut off again; what a crash left torn is cut off when the file is opened.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use super::{ResultError, write_atomic};
use crate::place::{Mistake, Place};

/// A table on disk, open for appending.
#[derive(Debug)]
pub(super) struct Table {
    path: PathBuf,
    file: File,
    len: u64,
    columns: Vec<String>,
}

/// The cells of one row.
pub(super) type Cells = Vec<String>;

impl Table {
    /// Opens the table, making it with its header if it is not there, and returns the whole rows it holds
    /// with the point each belongs to.
    pub(super) fn open(
        path: PathBuf,
        columns: Vec<String>,
    ) -> Result<(Table, Vec<(u64, Cells)>), ResultError> {
        let bytes = match std::fs::read(&path) {
            Ok(bytes) => bytes,
            Err(e) if e.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(e) => return Err(ResultError::io("read", &path)(e)),
        };
        let whole = whole_rows(&path, &bytes)?;
        let rows = parse(&path, &columns, whole)?;
        if whole.is_empty() {
            write_atomic(&path, &encode(&path, std::slice::from_ref(&columns))?)?;
        }
        let mut table = Table::at_end(path, columns)?;
        if !whole.is_empty() && table.len > whole.len() as u64 {
            table.cut(whole.len() as u64)?;
        }
        Ok((table, rows))
    }

    /// The whole rows of a file that is only looked at.
    pub(super) fn read(path: &Path, columns: &[String]) -> Result<Vec<(u64, Cells)>, ResultError> {
        let bytes = std::fs::read(path).map_err(ResultError::io("read", path))?;
        parse(path, columns, whole_rows(path, &bytes)?)
    }

    /// Replaces everything below the header.
    pub(super) fn replace(&mut self, rows: &[Cells]) -> Result<(), ResultError> {
        let mut bytes = encode(&self.path, std::slice::from_ref(&self.columns))?;
        bytes.extend(encode(&self.path, rows)?);
        write_atomic(&self.path, &bytes)?;
        *self = Table::at_end(std::mem::take(&mut self.path), std::mem::take(&mut self.columns))?;
        Ok(())
    }

    /// Appends rows and hands them to the operating system, all or none of them.
    pub(super) fn append(&mut self, rows: &[Cells]) -> Result<(), ResultError> {
        let bytes = encode(&self.path, rows)?;
        let before = self.len;
        match self.file.write_all(&bytes).and_then(|()| self.file.flush()) {
            Ok(()) => {
                self.len += bytes.len() as u64;
                Ok(())
            }
            Err(source) => {
                // If cutting fails too, opening the table again cuts the torn row off.
                let _ = self.cut(before);
                Err(ResultError::Io { action: "write", path: self.path.clone(), source })
            }
        }
    }

    /// Bytes of header and whole rows.
    pub(super) fn len(&self) -> u64 {
        self.len
    }

    /// Cuts the file back to an earlier length.
    pub(super) fn cut(&mut self, len: u64) -> Result<(), ResultError> {
        self.file.set_len(len).map_err(ResultError::io("write", &self.path))?;
        self.len = len;
        Ok(())
    }

    pub(super) fn columns(&self) -> &[String] {
        &self.columns
    }

    fn at_end(path: PathBuf, columns: Vec<String>) -> Result<Table, ResultError> {
        let file = OpenOptions::new().append(true).open(&path).map_err(ResultError::io("write", &path))?;
        let len = file.metadata().map_err(ResultError::io("read", &path))?.len();
        Ok(Table { path, file, len, columns })
    }
}

fn encode(path: &Path, rows: &[Cells]) -> Result<Vec<u8>, ResultError> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    for row in rows {
        let cells = row.iter().map(|cell| cell.replace(['\n', '\r'], " "));
        writer.write_record(cells).map_err(|e| damaged(path, csv_mistake(&e)))?;
    }
    writer.into_inner().map_err(|e| damaged(path, Mistake::somewhere(e.to_string())))
}

/// A table without what a crash left of a row behind its last whole one, whatever bytes these are. Cells never hold line breaks,
/// so the last of them ends the last whole row.
fn whole_rows<'b>(path: &Path, bytes: &'b [u8]) -> Result<&'b str, ResultError> {
    let whole = bytes.iter().rposition(|b| *b == b'\n').map_or(&[][..], |end| &bytes[..=end]);
    std::str::from_utf8(whole).map_err(|error| {
        let lines = whole[..error.valid_up_to()].iter().filter(|b| **b == b'\n').count();
        damaged(path, Mistake::at(Place::line(lines as u64 + 1), "bytes that are not text"))
    })
}

fn parse(path: &Path, columns: &[String], text: &str) -> Result<Vec<(u64, Cells)>, ResultError> {
    let mut reader = csv::Reader::from_reader(text.as_bytes());
    if text.is_empty() {
        return Ok(Vec::new());
    }
    let header = reader.headers().map_err(|e| damaged(path, csv_mistake(&e)))?;
    if !header.iter().eq(columns.iter()) {
        let what = format!("columns `{}`, expected `{}`", join(header.iter()), columns.join(","));
        return Err(damaged(path, Mistake::at(Place::line(1), what)));
    }
    let mut rows = Vec::new();
    for record in reader.records() {
        let record = record.map_err(|e| damaged(path, csv_mistake(&e)))?;
        let line = record.position().map_or(0, csv::Position::line);
        let cells: Cells = record.iter().map(str::to_owned).collect();
        let point = cells.first().and_then(|cell| cell.parse().ok());
        let none = || Mistake::at(Place::line(line), "the first cell is no point number");
        let point = point.ok_or_else(|| damaged(path, none()))?;
        rows.push((point, cells));
    }
    Ok(rows)
}

fn join<'a>(cells: impl Iterator<Item = &'a str>) -> String {
    cells.collect::<Vec<_>>().join(",")
}

fn damaged(path: &Path, mistake: Mistake) -> ResultError {
    ResultError::Damaged { path: path.to_owned(), mistake }
}

/// What the csv library found wrong, without the place where we say it ourselves.
fn csv_mistake(error: &csv::Error) -> Mistake {
    let place = error.position().map(|at| Place::line(at.line()));
    let what = match error.kind() {
        csv::ErrorKind::UnequalLengths { expected_len, len, .. } => {
            format!("{len} cells where the header has {expected_len}")
        }
        csv::ErrorKind::Utf8 { err, .. } => err.to_string(),
        _ => error.to_string(),
    };
    Mistake { place, what }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn columns() -> Vec<String> {
        vec!["point".into(), "text".into()]
    }

    fn cells(point: u64, text: &str) -> Cells {
        vec![point.to_string(), text.to_owned()]
    }

    #[test]
    fn a_torn_row_is_cut_off_and_written_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("points.csv");
        let (mut table, rows) = Table::open(path.clone(), columns()).unwrap();
        assert!(rows.is_empty());
        table.append(&[cells(0, "a, \"b\"\nc")]).unwrap();
        drop(table);
        let whole = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, format!("{whole}1,tor")).unwrap();

        let (mut table, rows) = Table::open(path.clone(), columns()).unwrap();
        assert_eq!(rows, [(0, cells(0, "a, \"b\" c"))]);
        table.append(&[cells(1, "whole")]).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), format!("{whole}1,whole\n"));
        assert_eq!(table.len(), std::fs::metadata(&path).unwrap().len());
    }

    #[test]
    fn what_a_crash_left_of_a_row_is_cut_off_whatever_it_is() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("points.csv");
        let whole = "point,text\n0,a\n";
        for tail in [&b"1,b"[..], b"\0\0\0\0", b"\xff\xfe", "1,\u{e9}".as_bytes().split_last().unwrap().1] {
            std::fs::write(&path, [whole.as_bytes(), tail].concat()).unwrap();
            let (_, rows) = Table::open(path.clone(), columns()).unwrap();
            assert_eq!(rows.len(), 1, "{tail:?}");
            assert_eq!(std::fs::read_to_string(&path).unwrap(), whole, "{tail:?}");
        }
        std::fs::write(&path, b"point,text\n0,a\n1,\xff\n2,c\n").unwrap();
        let error = Table::open(path.clone(), columns()).unwrap_err().to_string();
        assert!(error.ends_with("points.csv:3: bytes that are not text"), "{error}");
    }

    #[test]
    fn a_foreign_file_is_refused_with_its_line() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("points.csv");
        for (text, says) in [
            ("point,other\n", "points.csv:1: columns `point,other`"),
            ("point,text\nx,1\n", "points.csv:2: the first cell"),
            ("point,text\n1,2,3\n", "points.csv:2: 3 cells where the header has 2"),
        ] {
            std::fs::write(&path, text).unwrap();
            let error = Table::open(path.clone(), columns()).unwrap_err().to_string();
            assert!(error.contains(says), "{error}");
            assert_eq!(std::fs::read_to_string(&path).unwrap(), text, "left as it was");
        }
    }
}
