//! Small steps between polars frames and the values that figures and sentences need.

use polars::prelude::*;

use crate::load::Results;

/// What polars can fail with.
pub type Framed<T> = Result<T, PolarsError>;

/// A numeric column; nothing where a cell is empty.
pub fn floats(frame: &DataFrame, column: &str) -> Framed<Vec<Option<f64>>> {
    let column = frame.column(column)?.cast(&DataType::Float64)?;
    Ok(column.f64()?.iter().collect())
}

/// A column of words; empty where a cell is empty.
pub fn words(frame: &DataFrame, column: &str) -> Framed<Vec<String>> {
    let column = frame.column(column)?.cast(&DataType::String)?;
    Ok(column.str()?.iter().map(|w| w.unwrap_or_default().to_owned()).collect())
}

/// `points` of a run with its name, provenance and fabric in front of every row; rows that have a fabric of their own keep it.
pub fn tagged(results: &Results, points: LazyFrame, columns: &[&str]) -> LazyFrame {
    let record = &results.record;
    let tags = [
        ("run", results.label.clone()),
        ("provenance", record.provenance.name().to_owned()),
        ("fabric", record.fabric.clone()),
    ];
    let tags = tags.into_iter().filter(|(name, _)| !columns.contains(name));
    let tags = tags.map(|(name, value)| lit(value).alias(name));
    points.select(tags.chain(columns.iter().map(|c| col(*c))).collect::<Vec<_>>())
}

/// Rows of several frames with the same columns, one after the other.
pub fn stack(frames: Vec<LazyFrame>) -> Framed<DataFrame> {
    match frames.is_empty() {
        true => Ok(DataFrame::empty()),
        false => concat(frames, UnionArgs::default())?.collect(),
    }
}

/// Distinct values in order of first appearance.
pub fn distinct<T: PartialEq + Clone>(values: impl IntoIterator<Item = T>) -> Vec<T> {
    let mut seen = Vec::new();
    for value in values {
        if !seen.contains(&value) {
            seen.push(value);
        }
    }
    seen
}

/// The frame as CSV text, header first.
pub fn to_csv(frame: &DataFrame) -> Framed<Vec<u8>> {
    let mut bytes = Vec::new();
    CsvWriter::new(&mut bytes).finish(&mut frame.clone())?;
    Ok(bytes)
}

/// The frame as rows of text for a table on the page, at most `limit` of them.
pub fn to_text(frame: &DataFrame, limit: usize) -> Framed<(Vec<String>, Vec<Vec<String>>)> {
    let header: Vec<String> = frame.get_column_names().iter().map(|n| n.to_string()).collect();
    let head = frame.head(Some(limit));
    let columns = header
        .iter()
        .map(|name| match head.column(name)?.dtype() {
            DataType::Float64 => Ok(floats(&head, name)?
                .into_iter()
                .map(|v| v.map(crate::human::number).unwrap_or_default())
                .collect()),
            _ => words(&head, name),
        })
        .collect::<Framed<Vec<Vec<String>>>>()?;
    let rows = (0..head.height()).map(|r| columns.iter().map(|c| c[r].clone()).collect()).collect();
    Ok((header, rows))
}
