//! CSV to polars, with the line number of whatever is wrong.
//!
//! The file is checked record by record before polars sees it, because only then can an error name its line;
//! polars then gets a clean table and a fixed schema, so nothing depends on what it would infer. A run writes a
//! line at a time and a crash may cut the last one, so a last line without its newline is dropped with a note:
//! even when all its fields are there, the last number may have lost digits.

use polars::prelude::*;
use std::fmt::Write as _;
use std::io::Cursor;
use std::path::Path;
use std::sync::Arc;

use crate::error::LoadError;

/// What a column holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cell {
    /// A count; empty when not available.
    Count,
    /// Any finite number; empty when not available.
    Number,
    /// Words.
    Words,
}

impl Cell {
    fn dtype(self) -> DataType {
        match self {
            Cell::Count => DataType::UInt64,
            Cell::Number => DataType::Float64,
            Cell::Words => DataType::String,
        }
    }
}

/// A table's columns by name.
pub type Columns = &'static [(&'static str, Cell)];

/// A table and what there is to say about how it was read.
pub struct Table {
    /// The rows: every known column, then any others of the file as words.
    pub frame: DataFrame,
    /// Notes for the page.
    pub notes: Vec<String>,
}

/// Reads the CSV file at `path`; `name` is what notes call it. A missing or empty file is a note, not an error.
pub fn read(path: &Path, name: &str, columns: Columns) -> Result<Table, LoadError> {
    let mut notes = Vec::new();
    let bytes = match std::fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            notes.push(format!("{name} is missing"));
            Vec::new()
        }
        Err(source) => return Err(LoadError::Unreadable { path: path.to_owned(), source }),
    };
    if bytes.is_empty() && notes.is_empty() {
        notes.push(format!("{name} is empty"));
    }
    let whole = match bytes.iter().rposition(|b| *b == b'\n') {
        Some(end) => &bytes[..=end],
        None => &[][..],
    };
    if whole.len() < bytes.len() {
        notes.push(format!("the last line of {name} is cut off and was dropped"));
    }
    let clean = check(path, name, whole, columns, &mut notes)?;
    let frame = to_frame(path, clean, columns)?;
    Ok(Table { frame, notes })
}

/// A table with these columns and no rows.
pub fn empty(columns: Columns) -> DataFrame {
    DataFrame::empty_with_schema(
        &columns.iter().map(|(t, cell)| Field::new((*t).into(), cell.dtype())).collect(),
    )
}

struct Clean {
    csv: String,
    header: Vec<(String, Cell)>,
    rows: usize,
}

fn check(
    path: &Path,
    name: &str,
    bytes: &[u8],
    columns: Columns,
    notes: &mut Vec<String>,
) -> Result<Clean, LoadError> {
    let fail = |line: u64, reason: String| LoadError::Csv { path: path.to_owned(), line, reason };
    let mut reader = csv::ReaderBuilder::new().flexible(true).from_reader(bytes);
    let header = reader.headers().map_err(|error| fail(1, error.to_string()))?.clone();
    let kind_of = |title: &str| columns.iter().find(|(name, _)| *name == title).map_or(Cell::Words, |c| c.1);
    let header: Vec<(String, Cell)> =
        header.iter().map(|h| (h.trim().to_owned(), kind_of(h.trim()))).collect();
    for (i, (title, _)) in header.iter().enumerate() {
        if header[..i].iter().any(|(earlier, _)| earlier == title) {
            return Err(fail(1, format!("column {title:?} appears twice")));
        }
    }
    let absent: Vec<&str> =
        columns.iter().map(|c| c.0).filter(|c| header.iter().all(|(title, _)| title != c)).collect();
    if !absent.is_empty() && !header.is_empty() {
        notes.push(format!("{name} lacks {}", absent.join(", ")));
    }
    let mut csv = String::new();
    let mut rows = 0;
    let mut not_finite = 0;
    for record in reader.records() {
        let record = record.map_err(|error| {
            let line = error.position().map_or(0, csv::Position::line);
            fail(line, error.to_string())
        })?;
        let line = record.position().map_or(0, csv::Position::line);
        if record.len() != header.len() {
            let (got, want) = (record.len(), header.len());
            return Err(fail(line, format!("{got} fields where the header has {want}")));
        }
        for (i, (field, (title, cell))) in record.iter().zip(&header).enumerate() {
            if i > 0 {
                csv.push(',');
            }
            match cell {
                Cell::Words => push_quoted(&mut csv, field),
                Cell::Number | Cell::Count => match number(field, *cell) {
                    Some(Value::Finite(text)) => csv.push_str(&text),
                    Some(Value::Empty) => {}
                    Some(Value::NotFinite) => not_finite += 1,
                    None => return Err(fail(line, format!("{title} is {field:?}, which is not a number"))),
                },
            }
        }
        csv.push('\n');
        rows += 1;
    }
    if not_finite > 0 {
        notes.push(format!("{name}: {not_finite} values that are not finite are shown as not available"));
    }
    Ok(Clean { csv, header, rows })
}

enum Value {
    Empty,
    Finite(String),
    NotFinite,
}

fn number(field: &str, cell: Cell) -> Option<Value> {
    let field = field.trim();
    if field.is_empty() {
        return Some(Value::Empty);
    }
    let value: f64 = field.parse().ok()?;
    if !value.is_finite() {
        return Some(Value::NotFinite);
    }
    match cell {
        Cell::Count => match field.parse::<u64>() {
            Ok(count) => Some(Value::Finite(count.to_string())),
            // A count written as 64.0 is a count; 0.5 or -1 is not.
            Err(_) if value >= 0.0 && value.fract() == 0.0 && value < 9.0e15 => {
                Some(Value::Finite((value as u64).to_string()))
            }
            Err(_) => None,
        },
        _ => Some(Value::Finite(format!("{value:e}"))),
    }
}

fn push_quoted(csv: &mut String, field: &str) {
    // Empty words stay null. Control characters would make an SVG text node ill-formed.
    let field = field.trim();
    if !field.is_empty() {
        let clean: String = field.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        let _ = write!(csv, "\"{}\"", clean.replace('"', "\"\""));
    }
}

fn to_frame(path: &Path, clean: Clean, columns: Columns) -> Result<DataFrame, LoadError> {
    let fail = |source| LoadError::Frame { path: path.to_owned(), source };
    let schema: Schema =
        clean.header.iter().map(|(title, cell)| Field::new(title.as_str().into(), cell.dtype())).collect();
    if clean.rows == 0 {
        // A query over no rows would turn the literals below into a row of their own.
        let others = schema.iter_fields().filter(|f| columns.iter().all(|c| c.0 != f.name().as_str()));
        let known = columns.iter().map(|(title, cell)| Field::new((*title).into(), cell.dtype()));
        return Ok(DataFrame::empty_with_schema(&known.chain(others).collect()));
    }
    let read = CsvReadOptions::default()
        .with_has_header(false)
        .with_schema(Some(Arc::new(schema)))
        .into_reader_with_file_handle(Cursor::new(clean.csv.into_bytes()))
        .finish()
        .map_err(fail)?;
    // Known columns first and always there, so that every query may name them; then the file's own.
    let known = columns.iter().map(|(title, cell)| match read.column(title) {
        Ok(_) => col(*title),
        Err(_) => lit(NULL).cast(cell.dtype()).alias(*title),
    });
    let others =
        clean.header.iter().filter(|(t, _)| columns.iter().all(|c| c.0 != t)).map(|(t, _)| col(t.as_str()));
    let wanted: Vec<Expr> = known.chain(others).collect();
    read.clone().lazy().select(wanted).collect().map_err(fail)
}

#[cfg(test)]
mod tests {
    use super::*;

    const COLUMNS: Columns = &[("point", Cell::Count), ("verb", Cell::Words), ("rate_per_s", Cell::Number)];

    fn read_text(text: &str) -> Result<Table, LoadError> {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let path = dir.path().join("points.csv");
        std::fs::write(&path, text).expect("writes");
        read(&path, "points.csv", COLUMNS)
    }

    #[test]
    fn a_cut_last_line_is_dropped_with_a_note() {
        let table = read_text("point,verb,rate_per_s\n0,read,5e6\n1,read,123").expect("reads");
        assert_eq!(table.frame.height(), 1);
        assert!(table.notes[0].contains("cut off"), "{:?}", table.notes);
    }

    #[test]
    fn a_bad_line_is_named() {
        for (text, line, word) in [
            ("point,verb,rate_per_s\n0,read,1\n1,read\n", 3, "2 fields"),
            ("point,verb,rate_per_s\n0,read,fast\n", 2, "\"fast\""),
            ("point,verb,rate_per_s\n-1,read,2\n", 2, "\"-1\""),
            ("point,point,rate_per_s\n0,0,2\n", 1, "twice"),
        ] {
            match read_text(text).map(|t| t.frame.height()) {
                Err(LoadError::Csv { line: got, reason, .. }) => {
                    assert_eq!(got, line);
                    assert!(reason.contains(word), "{reason}");
                }
                other => panic!("{text:?} gave {other:?}"),
            }
        }
    }

    #[test]
    fn missing_columns_and_values_that_are_not_finite_become_empty() {
        let table = read_text("point,rate_per_s,extra\n0,NaN,a\n1,inf,b\n2,1e308,\n").expect("reads");
        assert_eq!(table.frame.column("rate_per_s").expect("known").null_count(), 2);
        assert_eq!(table.frame.column("verb").expect("added").null_count(), 3);
        assert!(table.frame.column("extra").is_ok());
        assert_eq!(table.notes.len(), 2, "{:?}", table.notes);
    }

    #[test]
    fn nothing_at_all_is_an_empty_table() {
        for text in ["", "point,verb,rate_per_s\n", "point,ver"] {
            assert_eq!(read_text(text).expect("reads").frame.height(), 0);
        }
    }
}
