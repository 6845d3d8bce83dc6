//! A table whose cells are small graphics: one row per thing compared, one column per measure, each column on a
//! scale of its own. Names are read once, values stand beside their marks, and eyes compare down a column.

use super::canvas::{Align, Canvas, Type, width_of};
use super::scale::{Kind, Scale};
use super::{Area, LETTER, fit};
use crate::human::NOT_AVAILABLE;
use crate::ink::Ink;

/// One cell.
#[derive(Clone, Debug)]
pub enum Cell {
    /// A bar from zero, with its value as text.
    Bar(f64, String, Ink),
    /// A filled mark, a line, an open mark: a median and its tail.
    Range(f64, f64, String, Ink),
    /// An open mark for what was said, a filled one for what came, and the difference as text.
    Against(f64, f64, String, Ink),
    /// An open mark alone: what was said, where nothing came to compare it with.
    Said(f64, String, Ink),
    /// Parts laid end to end: size, colour, label if it fits; then the total as text.
    Stack(Vec<(f64, Ink, String)>, String),
    /// Words.
    Text(String, Ink),
    /// A square of one colour.
    Square(Ink),
    /// No value.
    Missing,
}

/// One measure.
#[derive(Clone, Debug)]
pub struct Column {
    /// What it measures, and in which unit.
    pub title: String,
    /// Its share of the width.
    pub weight: f64,
    /// How values map to lengths. Bars and stacks need [`Kind::Linear`].
    pub kind: Kind,
}

/// One thing compared.
#[derive(Clone, Debug)]
pub struct Row {
    /// What it is called.
    pub name: String,
    /// Colour of its name.
    pub ink: Ink,
    /// A cell per column; a row without cells is a heading.
    pub cells: Vec<Cell>,
}

/// The table.
#[derive(Clone, Debug)]
pub struct Rows {
    /// Columns, left to right.
    pub columns: Vec<Column>,
    /// Rows, top to bottom.
    pub rows: Vec<Row>,
    /// Colour names, in a line above the rows.
    pub key: Vec<(Ink, String)>,
}

const ROW: f64 = 24.0;
/// What a further line of a name adds to its row.
const LINE: f64 = 14.0;
const BAR: f64 = 13.0;
const NAME_MAX: f64 = 250.0;
const GAP: f64 = 22.0;
const VALUE: f64 = 11.5;

impl Rows {
    /// What the rows, the column heads and the key need.
    pub fn height(&self) -> f64 {
        self.key_height() + 22.0 + self.rows.iter().map(|row| self.row_height(row)).sum::<f64>() + 4.0
    }

    /// Room for names.
    fn names(&self) -> f64 {
        let names = self.rows.iter().filter(|r| !r.cells.is_empty()).map(|r| width_of(&r.name, LETTER));
        names.fold(60.0, f64::max).min(NAME_MAX)
    }

    /// A row's name, in as many lines as it needs.
    fn name_lines(&self, row: &Row) -> Vec<String> {
        if row.cells.is_empty() { vec![row.name.clone()] } else { broken(&row.name, LETTER, self.names()) }
    }

    fn row_height(&self, row: &Row) -> f64 {
        ROW + LINE * (self.name_lines(row).len() - 1) as f64
    }

    /// Where the middle of each row is, below the first one's top.
    fn middles(&self) -> Vec<f64> {
        let mut top = 0.0;
        let middle = |row: &Row| {
            let height = self.row_height(row);
            top += height;
            top - height / 2.0
        };
        self.rows.iter().map(middle).collect()
    }

    fn key_height(&self) -> f64 {
        if self.key.is_empty() { 0.0 } else { 22.0 }
    }

    /// Draws the table.
    pub fn draw(&self, canvas: &mut dyn Canvas, area: Area) {
        let mut x = area.x0;
        for (ink, name) in &self.key {
            canvas.rect(x, area.y0 + 3.0, x + 11.0, area.y0 + 14.0, *ink);
            canvas.text(x + 16.0, area.y0 + 9.0, name, Type::new(LETTER - 1.0, Ink::Text));
            x += 16.0 + width_of(name, LETTER - 1.0) + 18.0;
        }
        let top = area.y0 + self.key_height();
        let names = self.names();
        let first = top + 22.0;
        for (row, middle) in self.rows.iter().zip(self.middles()) {
            let y = first + middle;
            if row.cells.is_empty() {
                canvas.text(area.x0, y + 2.0, &row.name, Type::new(LETTER, Ink::Muted).bold());
                canvas.line(&[(area.x0, y + 11.5), (area.x1, y + 11.5)], Ink::Grid, 1.0);
            } else {
                let lines = self.name_lines(row);
                let above = LINE * (lines.len() - 1) as f64 / 2.0;
                for (i, line) in lines.iter().enumerate() {
                    let line = fit(line, LETTER, names);
                    canvas.text(area.x0, y - above + LINE * i as f64, &line, Type::new(LETTER, row.ink));
                }
            }
        }
        let room = area.x1 - area.x0 - names - GAP * self.columns.len() as f64;
        let weights: f64 = self.columns.iter().map(|c| c.weight).sum();
        let mut x0 = area.x0 + names + GAP;
        for (c, column) in self.columns.iter().enumerate() {
            let x1 = x0 + room * column.weight / weights.max(1e-9);
            let last = c + 1 == self.columns.len();
            let room = x1 - x0 + if last { 0.0 } else { GAP - 6.0 };
            let title = fit(&column.title, LETTER - 1.0, room);
            canvas.text(x0, top + 9.0, &title, Type::new(LETTER - 1.0, Ink::Muted));
            self.column(canvas, c, column, Area { x0, y0: first, x1, y1: area.y1 });
            x0 = x1 + GAP;
        }
    }

    fn column(&self, canvas: &mut dyn Canvas, c: usize, column: &Column, area: Area) {
        let cells = || {
            self.rows.iter().enumerate().filter_map(move |(i, row)| row.cells.get(c).map(|cell| (i, cell)))
        };
        let text_of = |cell: &Cell| match cell {
            Cell::Bar(_, text, _)
            | Cell::Said(_, text, _)
            | Cell::Range(_, _, text, _)
            | Cell::Against(_, _, text, _)
            | Cell::Stack(_, text) => width_of(text, VALUE),
            Cell::Text(..) | Cell::Square(_) | Cell::Missing => 0.0,
        };
        // Values stand to the right of the longest mark, so that room is kept free for them.
        let text = cells().map(|(_, cell)| text_of(cell)).fold(0.0, f64::max);
        let end = (area.x1 - text - 8.0).max(area.x0 + 20.0);
        let scale = Scale::fit(column.kind, cells().flat_map(|(_, cell)| values(cell)), area.x0, end);
        let middles = self.middles();
        for (i, cell) in cells() {
            let y = area.y0 + middles[i];
            draw_cell(canvas, cell, &scale, y, area, end);
        }
    }
}

/// `text` in lines of at most `width` at `size`, broken between words; a word that is wider has a line to itself.
pub fn broken(text: &str, size: f64, width: f64) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(line) if width_of(&format!("{line} {word}"), size) <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

fn values(cell: &Cell) -> Vec<f64> {
    match cell {
        Cell::Bar(value, ..) | Cell::Said(value, ..) => vec![*value],
        Cell::Range(a, b, ..) | Cell::Against(a, b, ..) => vec![*a, *b],
        Cell::Stack(parts, _) => vec![parts.iter().map(|p| p.0).sum()],
        Cell::Text(..) | Cell::Square(_) | Cell::Missing => Vec::new(),
    }
}

fn draw_cell(canvas: &mut dyn Canvas, cell: &Cell, scale: &Scale, y: f64, area: Area, end: f64) {
    let value = Type::new(VALUE, Ink::Text);
    match cell {
        Cell::Bar(size, text, ink) => {
            canvas.rect(area.x0, y - BAR / 2.0, scale.at(*size).max(area.x0 + 1.0), y + BAR / 2.0, *ink);
            canvas.text(scale.at(*size) + 6.0, y, text, value);
        }
        Cell::Range(low, high, text, ink) => {
            canvas.rect(area.x0, y - 0.5, end, y + 0.5, Ink::Grid);
            canvas.line(&[(scale.at(*low), y), (scale.at(*high), y)], *ink, 2.0);
            canvas.ring(scale.at(*high), y, 3.6, *ink);
            canvas.dot(scale.at(*low), y, 4.4, *ink);
            canvas.text(end + 10.0, y, text, value);
        }
        Cell::Against(said, came, text, ink) => {
            canvas.rect(area.x0, y - 0.5, end, y + 0.5, Ink::Grid);
            canvas.line(&[(scale.at(*said), y), (scale.at(*came), y)], *ink, 2.0);
            canvas.ring(scale.at(*said), y, 4.0, *ink);
            canvas.dot(scale.at(*came), y, 4.4, *ink);
            canvas.text(end + 10.0, y, text, value);
        }
        Cell::Said(said, text, ink) => {
            canvas.rect(area.x0, y - 0.5, end, y + 0.5, Ink::Grid);
            canvas.ring(scale.at(*said), y, 4.0, *ink);
            canvas.text(end + 10.0, y, text, Type::new(VALUE, Ink::Muted));
        }
        Cell::Stack(parts, text) => {
            let mut sum = 0.0;
            for (size, ink, label) in parts {
                let (x0, x1) = (scale.at(sum), scale.at(sum + size));
                canvas.rect(x0, y - 8.5, x1 - 0.8, y + 8.5, *ink);
                if width_of(label, LETTER - 1.5) + 6.0 < x1 - x0 {
                    let style = Type::new(LETTER - 1.5, Ink::OnFill).align(Align::Middle);
                    canvas.text((x0 + x1) / 2.0, y, label, style);
                }
                sum += size;
            }
            canvas.text(scale.at(sum) + 6.0, y, text, value);
        }
        Cell::Text(text, ink) => {
            canvas.text(area.x0, y, &fit(text, VALUE, area.x1 - area.x0), Type::new(VALUE, *ink));
        }
        Cell::Square(ink) => canvas.rect(area.x0, y - 7.0, area.x0 + 14.0, y + 7.0, *ink),
        Cell::Missing => canvas.text(area.x0, y, NOT_AVAILABLE, Type::new(LETTER - 1.0, Ink::Muted)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_is_too_long_has_several_lines_and_a_row_that_holds_them() {
        let row = |name: &str| Row { name: name.to_owned(), ink: Ink::Text, cells: vec![Cell::Missing] };
        let long = "2. one-sided, fetch all at once and batched, log batched, validate two-sided";
        let rows = Rows { columns: Vec::new(), rows: vec![row("1. drtm-h"), row(long)], key: Vec::new() };
        let lines = rows.name_lines(&rows.rows[1]);
        assert!(lines.len() > 1 && lines.join(" ") == long, "{lines:?}");
        assert!(lines.iter().all(|line| width_of(line, LETTER) <= NAME_MAX), "{lines:?}");
        assert_eq!(rows.middles()[0], ROW / 2.0);
        assert!(rows.middles()[1] > ROW * 1.5);
    }
}
