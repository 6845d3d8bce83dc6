//! What a table's file holds, checked cell by cell: the one reader of result tables, for those who go on with a directory and
//! for those who draw it.
//!
//! A run writes a row at a time and a crash may cut the last one, so a last line without its end is no row: even when all
//! its cells are there, the last number may have lost digits.

use std::collections::BTreeSet;
use std::path::Path;

use super::{Columns, Holds, ResultError};
use crate::place::{Mistake, Place};

/// The cells of one row.
pub(super) type Cells = Vec<String>;

/// What a table must keep to.
#[derive(Clone, Copy)]
pub struct Rules<'a> {
    /// What its columns hold; those it does not name hold words.
    pub known: Columns,
    /// Where a point has one row: which points may be there.
    pub once: Option<&'a dyn Fn(u64) -> bool>,
}

/// A table's columns and whole rows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sheet {
    /// The header; empty if the file is.
    pub columns: Vec<String>,
    /// Each row, with the point it belongs to.
    pub rows: Vec<(u64, Vec<String>)>,
    /// Whether a row was cut off.
    pub cut: bool,
}

impl Sheet {
    /// Reads the bytes of `path`.
    ///
    /// # Errors
    /// [`ResultError::Damaged`] with line and column: what is no text, a row that is longer or shorter than the header, a
    /// cell that is not what its column holds, and where a point has one row, one that has two or is no point of the run.
    pub fn parse(path: &Path, bytes: &[u8], rules: Rules<'_>) -> Result<Sheet, ResultError> {
        let whole = whole_rows(bytes);
        let text = std::str::from_utf8(whole)
            .map_err(|error| damaged(path, Mistake::no_text(whole, error.valid_up_to())))?;
        let mut sheet = Sheet { cut: whole.len() < bytes.len(), ..Sheet::default() };
        let mut reader =
            csv::ReaderBuilder::new().has_headers(false).flexible(true).from_reader(text.as_bytes());
        let mut seen = BTreeSet::new();
        for record in reader.records() {
            let record = record.map_err(|e| damaged(path, Mistake::somewhere(e.to_string())))?;
            let start = record.position().map_or(0, |at| usize::try_from(at.byte()).unwrap_or(0));
            let refuse =
                |cell: usize, what: String| Err(damaged(path, Mistake::at(place(text, start, cell), what)));
            let cells: Cells = record.iter().map(str::to_owned).collect();
            if sheet.columns.is_empty() {
                sheet.columns = cells.iter().map(|name| name.trim().to_owned()).collect();
                let twice = |at: &usize| sheet.columns[..*at].contains(&sheet.columns[*at]);
                if let Some(at) = (0..sheet.columns.len()).find(twice) {
                    return refuse(at, format!("column `{}` is there twice", sheet.columns[at]));
                }
                continue;
            }
            let (got, want) = (cells.len(), sheet.columns.len());
            if got != want {
                return refuse(want.min(got - 1), format!("{got} cells where the header has {want}"));
            }
            for (at, (column, cell)) in sheet.columns.iter().zip(&cells).enumerate() {
                let holds = rules.known.iter().find(|known| known.0 == column).map_or(Holds::Words, |k| k.1);
                if !holds.fits(cell) {
                    return refuse(at, format!("{column} is `{cell}`, which is no {}", holds.noun()));
                }
            }
            let at = sheet.columns.iter().position(|column| column == "point").unwrap_or(0);
            let Ok(point) = cells[at].trim().parse::<u64>() else {
                return refuse(at, format!("`{}` is no point's number", cells[at]));
            };
            if let Some(holds) = rules.once {
                if !seen.insert(point) {
                    return refuse(at, format!("point {point} is there twice"));
                }
                if !holds(point) {
                    return refuse(at, format!("point {point} is no part of the run"));
                }
            }
            sheet.rows.push((point, cells));
        }
        Ok(sheet)
    }
}

/// A table without what a crash left of a row behind its last whole one, whatever bytes these are. Cells never hold line breaks,
/// so the last of them ends the last whole row.
pub(super) fn whole_rows(bytes: &[u8]) -> &[u8] {
    bytes.iter().rposition(|b| *b == b'\n').map_or(&[][..], |end| &bytes[..=end])
}

pub(super) fn damaged(path: &Path, mistake: Mistake) -> ResultError {
    ResultError::Damaged { path: path.to_owned(), mistake }
}

/// Where a cell of the row that starts at a byte begins. Lines that are empty belong to the row below them.
fn place(text: &str, start: usize, cell: usize) -> Place {
    let row = text.get(start..).unwrap_or_default();
    let blank = row.len() - row.trim_start_matches(['\r', '\n']).len();
    let (mut quoted, mut commas) = (false, 0);
    let ends = |c: char| {
        quoted ^= c == '"';
        commas += usize::from(c == ',' && !quoted);
        commas == cell
    };
    let before = match cell {
        0 => 0,
        _ => row[blank..].find(ends).map_or(0, |comma| comma + 1),
    };
    Place::behind(&text[..start + blank + before])
}

#[cfg(test)]
mod tests {
    use super::*;
    use Holds::{Amount, Count, Number, Words};

    const KNOWN: Columns = &[("point", Count), ("verb", Words), ("rate_per_s", Amount), ("error", Number)];

    fn parse(text: &str) -> Result<Sheet, String> {
        let rules = Rules { known: KNOWN, once: Some(&|point| point < 3) };
        Sheet::parse(Path::new("points.csv"), text.as_bytes(), rules).map_err(|e| e.to_string())
    }

    #[test]
    fn what_is_wrong_is_told_at_its_cell() {
        for (rows, says) in [
            ("0,read,1\n1,read\n", "points.csv:3:3: 2 cells where the header has 3"),
            ("0,read,1,2\n", "points.csv:2:10: 4 cells where the header has 3"),
            (
                "0,\"é, b\",fast\n",
                "points.csv:2:10: rate_per_s is `fast`, which is no finite number from 0 on",
            ),
            ("0,read,-1\n", "points.csv:2:8: rate_per_s is `-1`, which is no finite number from 0 on"),
            ("0,read,NaN\n", "points.csv:2:8: rate_per_s is `NaN`, which is no finite number from 0 on"),
            ("0,read,inf\n", "points.csv:2:8: rate_per_s is `inf`, which is no finite number from 0 on"),
            ("inf,read,1\n", "points.csv:2:1: point is `inf`, which is no count"),
            ("\n-1,read,2\n", "points.csv:3:1: point is `-1`, which is no count"),
            (",read,2\n", "points.csv:2:1: `` is no point's number"),
            ("0,read,2\n0,write,2\n", "points.csv:3:1: point 0 is there twice"),
            ("3,read,2\n", "points.csv:2:1: point 3 is no part of the run"),
        ] {
            assert_eq!(parse(&format!("point,verb,rate_per_s\n{rows}")).unwrap_err(), says);
        }
        assert!(parse("point,error\n0,-0.5\n").is_ok());
        let endless = "points.csv:2:3: error is `-inf`, which is no finite number";
        assert_eq!(parse("point,error\n0,-inf\n").unwrap_err(), endless);
        assert_eq!(parse("point,a,a\n").unwrap_err(), "points.csv:1:9: column `a` is there twice");
    }

    #[test]
    fn what_could_not_be_measured_and_what_was_cut_off_is_no_mistake() {
        let sheet = parse("verb,point,more,rate_per_s\nread,0,x,\nread,1,,\nread,2,,5").unwrap();
        assert_eq!(sheet.rows.iter().map(|row| row.0).collect::<Vec<_>>(), [0, 1]);
        assert!(sheet.cut);
        assert_eq!(parse("").unwrap(), Sheet::default());
    }
}
