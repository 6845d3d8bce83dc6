//! Data on stdout, talk on stderr; nothing panics when a pipe closes or a disk is full.

use std::collections::BTreeSet;
use std::io::{ErrorKind, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use comfy_table::{
    Cell, CellAlignment, ColumnConstraint, ContentArrangement, LineStyle, Table, Width, presets,
};
use primitives::measure::{ResultError, write_new};
use serde::Serialize;

use crate::error::CliError;

/// What became of text for stdout. A reader who went away has seen enough: that is no failure, and what is left to be done, judged
/// or kept is done all the same.
///
/// # Errors
/// What the system said, if it was anything else.
pub fn printed(result: std::io::Result<()>) -> Result<(), CliError> {
    match result {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}

/// Prints to stdout and flushes.
///
/// # Errors
/// As [`printed`].
pub fn print(text: &str) -> Result<(), CliError> {
    let mut stdout = std::io::stdout().lock();
    printed(stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()))
}

/// Prints to stderr; if nobody can read it, nobody has to.
pub fn to_stderr(text: &str) {
    let _ = std::io::stderr().lock().write_all(text.as_bytes());
}

/// What is said on stderr, by how much was asked for.
#[derive(Clone, Copy, Debug)]
pub struct Talk {
    /// -1 with `-q`, 0 as usual, 1 and more with `-v`.
    level: i16,
    color: bool,
    /// Somebody else says of the whole that the machine was busy.
    busy_is_told: bool,
}

impl Talk {
    /// From the counts of `-v` and `-q`. Colors only on a terminal, and not if `NO_COLOR` is set or the
    /// terminal is dumb.
    pub fn new(verbose: u8, quiet: bool) -> Talk {
        let wanted = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
            && std::env::var_os("TERM").is_none_or(|term| term != "dumb");
        Talk {
            level: if quiet { -1 } else { i16::from(verbose) },
            color: wanted && std::io::stderr().is_terminal(),
            busy_is_told: false,
        }
    }

    /// An error; always said.
    pub fn error(&self, error: &CliError) {
        to_stderr(&error.render(self.color));
    }

    /// Something the reader of the results should know, unless quiet.
    pub fn warn(&self, text: impl AsRef<str>) {
        if self.level >= 0 {
            to_stderr(&format!("warning: {}\n", text.as_ref()));
        }
    }

    /// Warns of what is met again at every point, once.
    pub fn warn_once(&self, text: String) {
        static TOLD: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
        let first = TOLD.lock().unwrap_or_else(PoisonError::into_inner).insert(text.clone());
        if first {
            self.warn(text);
        }
    }

    /// Warns that points were taken on a busy machine.
    pub fn warn_of_busy(&self, text: impl AsRef<str>) {
        if !self.busy_is_told {
            self.warn(text);
        }
    }

    /// For the parts of a whole of which that is said once.
    #[must_use]
    pub fn busy_is_told(self) -> Talk {
        Talk { busy_is_told: true, ..self }
    }

    /// For a part that says nothing itself.
    #[must_use]
    pub fn silent(self) -> Talk {
        Talk { level: -1, ..self }
    }

    /// What is going on, unless quiet.
    pub fn say(&self, text: impl AsRef<str>) {
        if self.level >= 0 {
            to_stderr(&format!("{}\n", text.as_ref()));
        }
    }

    /// Details, with `-v`.
    pub fn detail(&self, text: impl AsRef<str>) {
        if self.level >= 1 {
            to_stderr(&format!("{}\n", text.as_ref()));
        }
    }

    /// How progress is shown: as a bar on a terminal only, and not at all with `-q`.
    pub fn progress(&self) -> Way {
        match (self.level < 0, std::io::stderr().is_terminal()) {
            (true, _) => Way::Silent,
            (false, true) => Way::Bar,
            (false, false) => Way::Lines,
        }
    }
}

/// How progress is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// A bar that is drawn again and again.
    Bar,
    /// A line now and then.
    Lines,
    /// Not at all.
    Silent,
}

/// Most characters of a line of prose on stdout, whoever reads it: output that is piped is laid out as it is on a terminal.
pub const WIDTH: usize = 120;

/// A table for people: headed columns, numbers to the right, no colors. As wide as its cells, so that a line is a row; where that is more
/// than [`WIDTH`], its widest columns are broken between words until it is not, or nothing is left to break. Programs read `--json`.
pub fn table<H: AsRef<str>, R: IntoIterator<Item = String>>(
    head: &[H],
    rows: impl IntoIterator<Item = R>,
) -> String {
    let head: Vec<String> = head.iter().map(|h| h.as_ref().to_owned()).collect();
    let rows: Vec<Vec<String>> = rows.into_iter().map(|row| row.into_iter().collect()).collect();
    let mut table = laid_out(&head, rows.iter().cloned());
    for (column, width) in narrowed(&head, &rows).into_iter().enumerate() {
        if let (Some(width), Some(column)) = (width, table.column_mut(column)) {
            column.set_constraint(ColumnConstraint::Absolute(Width::Fixed(width + PADDING)));
        }
    }
    if table.column_iter().any(|column| column.constraint().is_some()) {
        table.set_content_arrangement(ContentArrangement::Dynamic);
        table.set_width(u16::MAX);
    }
    format!("{}\n", table.trim_fmt())
}

/// Spaces beside a cell, on both sides together.
const PADDING: u16 = 2;

/// Cells of at most so many characters are not broken: `3 of 12`.
const WHOLE: usize = 12;

/// How wide each column of a table that would be too wide is to be; nothing for those that are as wide as their cells.
fn narrowed(head: &[String], rows: &[Vec<String>]) -> Vec<Option<u16>> {
    let cells = |column: usize| rows.iter().filter_map(move |row| row.get(column)).chain(head.get(column));
    let length = |text: &str| text.chars().count();
    let word = |cell: &String| match length(cell) {
        short if short <= WHOLE && head.iter().all(|head| head != cell) => short,
        _ => cell.split(' ').map(length).max().unwrap_or(0),
    };
    let columns = 0..head.len();
    let widest: Vec<usize> =
        columns.clone().map(|c| cells(c).map(|cell| length(cell)).max().unwrap_or(0)).collect();
    let least: Vec<usize> = columns.map(|c| cells(c).map(word).max().unwrap_or(0)).collect();
    let room = WIDTH.saturating_sub(usize::from(PADDING) * head.len());
    let at = |most: usize| -> Vec<usize> {
        widest.iter().zip(&least).map(|(&widest, &least)| widest.min(most).max(least)).collect()
    };
    let fits = |most: usize| at(most).iter().sum::<usize>() <= room;
    let most = (1..=widest.iter().copied().max().unwrap_or(1)).rev().find(|&most| fits(most)).unwrap_or(1);
    let changed = at(most).into_iter().zip(widest).map(|(now, widest)| (now < widest).then_some(now));
    changed.map(|width| width.and_then(|width| u16::try_from(width).ok())).collect()
}

/// A [`table`] with prose in its cells, which is broken into several lines where the table would be wider than `width`.
pub fn prose_table<H: AsRef<str>, R: IntoIterator<Item = String>>(
    head: &[H],
    rows: impl IntoIterator<Item = R>,
    width: usize,
) -> String {
    let mut table = laid_out(head, rows);
    table.set_content_arrangement(ContentArrangement::Dynamic);
    table.set_width(u16::try_from(width).unwrap_or(u16::MAX));
    format!("{}\n", table.trim_fmt())
}

/// Prose in lines of at most `width` characters, later ones indented by two. What stands between backticks is one word: a command
/// stays in one piece.
pub fn folded(text: &str, width: usize) -> String {
    let mut words: Vec<String> = Vec::new();
    let mut quoted = false;
    for word in text.split(' ') {
        match words.last_mut() {
            Some(last) if quoted => {
                last.push(' ');
                last.push_str(word);
            }
            _ => words.push(word.to_owned()),
        }
        quoted ^= word.matches('`').count() % 2 == 1;
    }
    let (mut lines, mut used) = (String::new(), 0);
    for word in words {
        let long = word.chars().count();
        if used > 0 && used + 1 + long > width {
            lines.push_str("\n  ");
            used = 2;
        } else if used > 0 {
            lines.push(' ');
            used += 1;
        }
        lines.push_str(&word);
        used += long;
    }
    lines
}

fn laid_out<H: AsRef<str>, R: IntoIterator<Item = String>>(
    head: &[H],
    rows: impl IntoIterator<Item = R>,
) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING.header_separator(LineStyle::none().fill('─')));
    table.set_header(head.iter().map(|h| h.as_ref().to_owned()).collect::<Vec<_>>());
    for row in rows {
        table.add_row(
            row.into_iter()
                .map(|text| {
                    let number = text.starts_with(|c: char| c.is_ascii_digit() || c == '-')
                        && text.chars().all(|c| c.is_ascii_digit() || "-.,+eE %".contains(c));
                    let alignment = if number { CellAlignment::Right } else { CellAlignment::Left };
                    Cell::new_owned(text).set_alignment(alignment)
                })
                .collect::<Vec<_>>(),
        );
    }
    table
}

/// A rate for people: `12.4 M/s`.
pub fn human_rate(per_s: f64) -> String {
    match per_s {
        r if r >= 1e9 => format!("{:.2} G/s", r / 1e9),
        r if r >= 1e6 => format!("{:.2} M/s", r / 1e6),
        r if r >= 1e3 => format!("{:.1} k/s", r / 1e3),
        r => format!("{r:.0} /s"),
    }
}

/// A relative change for people: `+1.7 %`, and never `-0.0 %`.
pub fn change(share: f64) -> String {
    // Adding zero takes the sign from a zero that has one.
    format!("{:+.1} %", (1000.0 * share).round() / 10.0 + 0.0)
}

/// Numbers as a row of bars, the lowest of them as the shortest bar and the highest as the longest; alike ones are alike.
pub fn bars(numbers: &[f64]) -> String {
    const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let least = numbers.iter().copied().fold(f64::INFINITY, f64::min);
    let most = numbers.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let height = |number: &f64| match most > least {
        true => ((number - least) / (most - least) * (BARS.len() - 1) as f64).round() as usize,
        false => BARS.len() / 2,
    };
    numbers.iter().map(|number| BARS[height(number).min(BARS.len() - 1)]).collect()
}

/// A share for people: `1.2 %`; what is something and less than that can tell is `<0.1 %`, as on the page.
pub fn percent(share: f64) -> String {
    match 100.0 * share {
        percent if percent > 0.0 && percent < 0.05 => "<0.1 %".to_owned(),
        percent => format!("{percent:.1} %"),
    }
}

/// Where `--json` goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JsonTarget {
    /// `-`: stdout, and then nothing else is printed there.
    Stdout,
    /// A file that is not there yet.
    File(PathBuf),
}

impl JsonTarget {
    /// Checks before a long run that the result will find a place.
    ///
    /// # Errors
    /// If the file exists, or cannot be made.
    pub fn check(&self) -> Result<(), CliError> {
        match self {
            JsonTarget::Stdout => Ok(()),
            JsonTarget::File(path) => check_new(path),
        }
    }

    /// Writes the document, ended by a line break.
    ///
    /// # Errors
    /// If stdout or the file cannot be written.
    pub fn write(&self, value: &impl Serialize) -> Result<(), CliError> {
        let mut text = serde_json::to_string_pretty(value)
            .map_err(|e| CliError::check("the result does not fit into JSON").caused_by(&e))?;
        text.push('\n');
        match self {
            JsonTarget::Stdout => print(&text),
            JsonTarget::File(path) => write_new(path, text.as_bytes()).map_err(|error| {
                let full = error.is_full();
                let shown = CliError::from(error);
                if full {
                    shown.hint("make room there, or name another file; the result is shown above")
                } else {
                    shown
                }
            }),
        }
    }
}

/// Checks that `path` can be made later, without leaving anything there: nothing in the way, and its
/// directory takes files.
///
/// # Errors
/// The same that writing would give.
pub fn check_new(path: &Path) -> Result<(), CliError> {
    match std::fs::metadata(path) {
        Ok(meta) if meta.is_file() && meta.len() > 0 => {
            Err(ResultError::Exists { path: path.to_owned() }.into())
        }
        Ok(meta) if meta.is_dir() => {
            Err(CliError::usage(format!("{} is a directory", path.display())).hint("name a file"))
        }
        Ok(_) => Ok(()),
        Err(_) => {
            write_new(path, b"")?;
            let _ = std::fs::remove_file(path); // an empty one would do no harm either
            Ok(())
        }
    }
}

/// How the name begins of a file that is made only to see whether a directory takes any.
const PROBE: &str = ".doorbell-probe-";

/// A directory and those above it, as far as they are not there, the innermost first.
pub fn absent(path: &Path) -> Vec<&Path> {
    path.ancestors().take_while(|at| !at.as_os_str().is_empty() && !at.exists()).collect()
}

/// Checks that results can be kept in the directory `path` later: it is empty or can be made, and takes files. Leaves nothing. Other
/// processes may check the same one meanwhile, and make and remove what they look at.
///
/// # Errors
/// Exit code 2, or what writing would give.
pub fn check_new_directory(path: &Path) -> Result<(), CliError> {
    let made = absent(path);
    let mut tries = 0..100;
    let checked = loop {
        // What another removes while it is made here does not exist, or does: whoever makes it looks twice.
        let gone =
            |error: &std::io::Error| matches!(error.kind(), ErrorKind::NotFound | ErrorKind::AlreadyExists);
        match try_new_directory(path) {
            Err(error) if gone(&error) && tries.next().is_some() => {}
            Err(error) => break Err(ResultError::io("create a file in", path)(error).into()),
            Ok(true) => break Ok(()),
            Ok(false) => {
                break Err(CliError::usage(format!("{} is not empty", path.display()))
                    .hint("results are not written over others: name a directory that is new"));
            }
        }
    };
    for made in made {
        let _ = std::fs::remove_dir(made); // an empty one would do no harm either
    }
    checked
}

/// Whether a directory, made if need be, is empty; an error if it takes no files.
fn try_new_directory(path: &Path) -> std::io::Result<bool> {
    std::fs::create_dir_all(path)?;
    let others = |entry: std::io::Result<std::fs::DirEntry>| {
        entry.map(|entry| !entry.file_name().to_string_lossy().starts_with(PROBE))
    };
    for entry in std::fs::read_dir(path)? {
        if others(entry)? {
            return Ok(false);
        }
    }
    let probe = path.join(format!("{PROBE}{}", std::process::id()));
    std::fs::File::create(&probe)?;
    let _ = std::fs::remove_file(probe);
    Ok(true)
}

/// Prints data: as JSON where that was asked for, and the table for people unless JSON takes stdout.
///
/// # Errors
/// If stdout or the file cannot be written.
pub fn emit(json: Option<&JsonTarget>, value: &impl Serialize, people: &str) -> Result<(), CliError> {
    match json {
        Some(JsonTarget::Stdout) => JsonTarget::Stdout.write(value),
        // The table first: what cannot be kept in a file is at least seen.
        Some(file) => print(people).and_then(|()| file.write(value)),
        None => print(people),
    }
}

/// The command line of this process, quoted so that a shell reads it as it was.
pub fn command_line(args: impl IntoIterator<Item = String>) -> String {
    let mut words = args.into_iter();
    let _program = words.next();
    std::iter::once("doorbell".to_owned()).chain(words.map(|word| quote(&word))).collect::<Vec<_>>().join(" ")
}

fn quote(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_=./:,+@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_go_from_the_lowest_to_the_highest() {
        assert_eq!(bars(&[1.0, 8.0, 4.0, 4.4]), "▁█▄▄");
        assert_eq!(bars(&[3.0, 3.0]), "▅▅", "alike, and neither low nor high");
        assert_eq!(bars(&[]), "");
    }

    #[test]
    fn a_share_that_is_something_is_not_told_as_nothing() {
        let told = [0.0, 1e-9, 0.000_499, 0.000_6, 0.012, 1.2, -0.004].map(percent);
        assert_eq!(told, ["0.0 %", "<0.1 %", "<0.1 %", "0.1 %", "1.2 %", "120.0 %", "-0.4 %"]);
    }

    #[test]
    fn a_change_of_nothing_has_no_minus() {
        let told = [-0.0001, 0.0, 0.017, -0.026, f64::NAN].map(change);
        assert_eq!(told, ["+0.0 %", "+0.0 %", "+1.7 %", "-2.6 %", "NaN %"]);
    }

    #[test]
    fn numbers_stand_right_and_text_left() {
        let text = table(
            &["name", "rate"],
            [["a".to_owned(), "7".to_owned()], ["bcd".to_owned(), "1200".to_owned()]],
        );
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!((lines[2], lines[3]), (" a        7", " bcd   1200"), "{text}");
        assert!(text.lines().all(|line| line == line.trim_end()), "{text:?}");
    }

    #[test]
    fn what_would_be_too_wide_is_broken_between_words_and_numbers_are_not() {
        let words = |n: usize| "wording ".repeat(n).trim_end().to_owned();
        let row = |n| {
            ["NAME-01".to_owned(), words(n), "40.4, 37.2, 36.6".to_owned(), words(n), "3 of 12".to_owned()]
        };
        let head = ["claim", "what it says", "published", "got", "relations by figure"];
        let narrow = table(&head, [row(3)]);
        assert!(
            narrow.lines().count() == 3 && narrow.lines().all(|line| line.chars().count() <= WIDTH),
            "{narrow}"
        );
        let wide = table(&head, [row(9), row(2)]);
        assert!(wide.lines().all(|line| line.chars().count() <= WIDTH), "{wide}");
        assert_eq!((wide.matches("wording").count(), wide.matches("3 of 12").count()), (22, 2), "{wide}");
        assert!(wide.contains("NAME-01") && wide.contains("40.4, 37.2, 36.6"), "{wide}");
        // Nothing to break: as narrow as its words.
        let stiff = table(&head, [[""; 5].map(|_| "x".repeat(40))]);
        assert_eq!(stiff.matches(&"x".repeat(40)).count(), 5, "{stiff}");
    }

    #[test]
    fn prose_is_broken_where_a_line_ends_and_commands_are_not() {
        let text = "to mend it say `apt-get install all of this` and then come back here";
        assert_eq!(
            folded(text, 30),
            "to mend it say\n  `apt-get install all of this`\n  and then come back here"
        );
        assert_eq!(folded("short", 30), "short");
        let prose = "word ".repeat(60);
        let text = prose_table(&["name", "what", "n"], [["a".to_owned(), prose, "7".to_owned()]], 60);
        assert!(text.lines().all(|line| line.chars().count() <= 60), "{text}");
        assert_eq!(text.matches("word").count(), 60, "{text}");
    }

    #[test]
    fn a_repeated_command_reads_as_it_was_typed() {
        let args = ["/x/doorbell", "run", "--set", "why=it's", "--out", "a b", ""].map(String::from);
        assert_eq!(command_line(args), r"doorbell run --set 'why=it'\''s' --out 'a b' ''");
    }

    #[test]
    fn to_check_a_directory_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        check_new_directory(&dir.path().join("a/b/c")).unwrap();
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
        std::fs::create_dir(dir.path().join("a")).unwrap();
        check_new_directory(&dir.path().join("a/b")).unwrap();
        check_new_directory(&dir.path().join("a")).unwrap();
        assert_eq!(std::fs::read_dir(dir.path().join("a")).unwrap().count(), 0);
        assert!(check_new_directory(dir.path()).unwrap_err().message().contains("is not empty"));
        // Several at once, as nodes that share a file system do.
        let shared = dir.path().join("shared");
        std::thread::scope(|scope| {
            let check = || (0..200).try_for_each(|_| check_new_directory(&shared));
            let checks: Vec<_> = (0..2).map(|_| scope.spawn(check)).collect();
            checks.into_iter().for_each(|check| check.join().unwrap().unwrap());
        });
    }

    #[test]
    fn json_never_overwrites() {
        let dir = tempfile::tempdir().unwrap();
        let target = JsonTarget::File(dir.path().join("a.json"));
        target.check().unwrap();
        target.write(&[1]).unwrap();
        assert!(target.check().unwrap_err().message().ends_with("a.json exists"));
        assert!(target.write(&[2]).is_err());
        assert!(
            JsonTarget::File(dir.path().to_owned()).check().unwrap_err().message().contains("is a directory")
        );
        assert!(JsonTarget::File("/dev/null/x".into()).check().is_err());
    }
}
