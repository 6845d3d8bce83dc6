//! One CSV file that grows by whole rows.
//!
//! Invariant: up to [`Table::len`] the file holds the header and whole rows. A write that fails half way is
//! cut off again; what a crash left torn is cut off when the file is opened.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use super::sheet::{Cells, Rules, Sheet, damaged, whole_rows};
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

impl Table {
    /// Opens the table, making it with its header if it is not there, and returns the whole rows it holds
    /// with the point each belongs to.
    pub(super) fn open(
        path: PathBuf,
        columns: Vec<String>,
        rules: Rules<'_>,
    ) -> Result<(Table, Vec<(u64, Cells)>), ResultError> {
        let bytes = match std::fs::read(&path) {
            Ok(bytes) => bytes,
            Err(e) if e.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(e) => return Err(ResultError::io("read", &path)(e)),
        };
        let sheet = Sheet::parse(&path, &bytes, rules)?;
        let rows = rows_of(&path, &columns, sheet)?;
        let whole = whole_rows(&bytes).len() as u64;
        if whole == 0 {
            write_atomic(&path, &encode(&path, std::slice::from_ref(&columns))?)?;
        }
        let mut table = Table::at_end(path, columns)?;
        if whole != 0 && table.len > whole {
            table.cut(whole)?;
        }
        Ok((table, rows))
    }

    /// The whole rows of a file that is only looked at.
    pub(super) fn read(
        path: &Path,
        columns: &[String],
        rules: Rules<'_>,
    ) -> Result<Vec<(u64, Cells)>, ResultError> {
        let bytes = std::fs::read(path).map_err(ResultError::io("read", path))?;
        rows_of(path, columns, Sheet::parse(path, &bytes, rules)?)
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
        writer.write_record(cells).map_err(|e| damaged(path, Mistake::somewhere(e.to_string())))?;
    }
    writer.into_inner().map_err(|e| damaged(path, Mistake::somewhere(e.to_string())))
}

/// The rows of a file that must have these columns, and no others.
fn rows_of(path: &Path, columns: &[String], sheet: Sheet) -> Result<Vec<(u64, Cells)>, ResultError> {
    if !sheet.columns.is_empty() && sheet.columns != columns {
        let what = format!("columns `{}`, expected `{}`", sheet.columns.join(","), columns.join(","));
        return Err(damaged(path, Mistake::at(Place::new(1, 1), what)));
    }
    Ok(sheet.rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULES: Rules<'_> = Rules { known: &[], once: None };

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
        let (mut table, rows) = Table::open(path.clone(), columns(), RULES).unwrap();
        assert!(rows.is_empty());
        table.append(&[cells(0, "a, \"b\"\nc")]).unwrap();
        drop(table);
        let whole = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, format!("{whole}1,tor")).unwrap();

        let (mut table, rows) = Table::open(path.clone(), columns(), RULES).unwrap();
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
            let (_, rows) = Table::open(path.clone(), columns(), RULES).unwrap();
            assert_eq!(rows.len(), 1, "{tail:?}");
            assert_eq!(std::fs::read_to_string(&path).unwrap(), whole, "{tail:?}");
        }
        std::fs::write(&path, b"point,text\n0,a\n1,\xff\n2,c\n").unwrap();
        let error = Table::open(path.clone(), columns(), RULES).unwrap_err().to_string();
        assert!(error.ends_with("points.csv:3:3: bytes that are not text"), "{error}");
        let foreign = "point,other\n";
        std::fs::write(&path, foreign).unwrap();
        let error = Table::open(path.clone(), columns(), RULES).unwrap_err().to_string();
        assert!(error.contains("points.csv:1:1: columns `point,other`, expected `point,text`"), "{error}");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), foreign, "left as it was");
    }
}
