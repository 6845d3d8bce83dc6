//! CSV to polars.
//!
//! [`Sheet`] checks the file cell by cell before polars sees it, because only then can an error name its place; polars then gets
//! a clean table and a fixed schema, so nothing depends on what it would infer.

use polars::prelude::*;
use primitives::measure::{Columns, Holds, Rules, Sheet};
use std::fmt::Write as _;
use std::io::Cursor;
use std::path::Path;
use std::sync::Arc;

use crate::error::LoadError;

fn dtype(holds: Holds) -> DataType {
    match holds {
        Holds::Count => DataType::UInt64,
        Holds::Amount | Holds::Number => DataType::Float64,
        Holds::Words => DataType::String,
    }
}

/// A table and what there is to say about how it was read.
pub struct Table {
    /// The rows: every known column, then any others of the file as words.
    pub frame: DataFrame,
    /// Notes for the page.
    pub notes: Vec<String>,
}

/// Reads the CSV file `name` in `dir`. A missing or empty file is a note, not an error.
pub fn read(dir: &Path, name: &str, rules: Rules<'_>) -> Result<Table, LoadError> {
    let path = &dir.join(name);
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
    let sheet = Sheet::parse(path, &bytes, rules)?;
    if sheet.cut {
        notes.push(format!("the last line of {name} is cut off and was dropped"));
    }
    let clean = clean(name, &sheet, rules.known, &mut notes);
    let frame = to_frame(path, clean, rules.known)?;
    Ok(Table { frame, notes })
}

/// A table with these columns and no rows.
pub fn empty(columns: Columns) -> DataFrame {
    DataFrame::empty_with_schema(
        &columns.iter().map(|(t, holds)| Field::new((*t).into(), dtype(*holds))).collect(),
    )
}

struct Clean {
    csv: String,
    header: Vec<(String, Holds)>,
    rows: usize,
}

fn clean(name: &str, sheet: &Sheet, columns: Columns, notes: &mut Vec<String>) -> Clean {
    let kind_of = |title: &str| columns.iter().find(|(name, _)| *name == title).map_or(Holds::Words, |c| c.1);
    let header: Vec<(String, Holds)> =
        sheet.columns.iter().map(|title| (title.clone(), kind_of(title))).collect();
    let absent: Vec<&str> =
        columns.iter().map(|c| c.0).filter(|c| header.iter().all(|(title, _)| title != c)).collect();
    if !absent.is_empty() && !header.is_empty() {
        notes.push(format!("{name} lacks {}", absent.join(", ")));
    }
    let mut csv = String::new();
    for (_, cells) in &sheet.rows {
        for (i, (cell, (_, holds))) in cells.iter().zip(&header).enumerate() {
            if i > 0 {
                csv.push(',');
            }
            match holds {
                Holds::Words => push_quoted(&mut csv, cell),
                Holds::Amount | Holds::Number | Holds::Count => csv.extend(number(cell, *holds)),
            }
        }
        csv.push('\n');
    }
    Clean { csv, header, rows: sheet.rows.len() }
}

/// A number's text for polars; nothing for an empty cell.
fn number(cell: &str, holds: Holds) -> Option<String> {
    let cell = cell.trim();
    let value = cell.parse::<f64>().ok()?;
    match holds {
        // A count written as 64.0 is a count.
        Holds::Count => Some(cell.parse::<u64>().unwrap_or(value as u64).to_string()),
        _ => Some(format!("{value:e}")),
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
        clean.header.iter().map(|(title, cell)| Field::new(title.as_str().into(), dtype(*cell))).collect();
    if clean.rows == 0 {
        // A query over no rows would turn the literals below into a row of their own.
        let others = schema.iter_fields().filter(|f| columns.iter().all(|c| c.0 != f.name().as_str()));
        let known = columns.iter().map(|(title, cell)| Field::new((*title).into(), dtype(*cell)));
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
        Err(_) => lit(NULL).cast(dtype(*cell)).alias(*title),
    });
    let others =
        clean.header.iter().filter(|(t, _)| columns.iter().all(|c| c.0 != t)).map(|(t, _)| col(t.as_str()));
    let wanted: Vec<Expr> = known.chain(others).collect();
    read.clone().lazy().select(wanted).collect().map_err(fail)
}

#[cfg(test)]
mod tests {
    use super::*;

    const COLUMNS: Columns =
        &[("point", Holds::Count), ("verb", Holds::Words), ("rate_per_s", Holds::Amount)];

    fn read_text(text: &str) -> Result<Table, LoadError> {
        let dir = tempfile::tempdir().expect("a temporary directory");
        std::fs::write(dir.path().join("points.csv"), text).expect("writes");
        read(dir.path(), "points.csv", Rules { known: COLUMNS, once: None })
    }

    #[test]
    fn a_cut_last_line_is_dropped_with_a_note() {
        let table = read_text("point,verb,rate_per_s\n0,read,5e6\n1,read,123").expect("reads");
        assert_eq!(table.frame.height(), 1);
        assert!(table.notes[0].contains("cut off"), "{:?}", table.notes);
    }

    #[test]
    fn missing_columns_and_values_become_empty() {
        let table = read_text("point,rate_per_s,extra\n0,,a\n1, ,b\n2,1e308,\n").expect("reads");
        assert_eq!(table.frame.column("rate_per_s").expect("known").null_count(), 2);
        assert_eq!(table.frame.column("verb").expect("added").null_count(), 3);
        assert!(table.frame.column("extra").is_ok());
        assert_eq!(table.notes.len(), 1, "{:?}", table.notes);
    }

    #[test]
    fn nothing_at_all_is_an_empty_table() {
        for text in ["", "point,verb,rate_per_s\n", "point,ver"] {
            assert_eq!(read_text(text).expect("reads").frame.height(), 0);
        }
    }
}
