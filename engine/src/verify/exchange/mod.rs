//! Histories for and from other checkers, so that others can judge this engine and this checker others' histories.
//!
//! | format | what it is, and where it is described | lost on the way |
//! |---|---|---|
//! | `doorbell` | [`super::format`] | nothing |
//! | `elle-append` | Elle's EDN operations over lists (jepsen-io/elle `README.markdown`, `src/elle/list_append.clj`; the file as ligurio/elle-cli `src/elle_cli/cli.clj` reads it) | transaction ids, the end of an attempt that was undone if its session had gone on by then: of an undone attempt that really overlaps the next one nothing is said |
//! | `elle-register` | the same over registers (`src/elle/rw_register.clj`) | the same |
//! | `dbcop` | sessions of transactions as JSON (rnbguy/dbcop `docs/history-format.md`) | times, ids, aborted transactions that nobody read from, gaps in session numbers |
//! | `plume` | one operation a line, `r(key,value,session,transaction)` (dracoooooo/Plume `TextHistoryLoader.java`) | times, abort reasons, ids and borders of aborted transactions, transactions without operations |
//!
//! **What is written.** A value is a version: unique per record, and the greater is the later. Where an aborted write
//! or an unread one in doubt had claimed a number that another transaction holds too, it gets a fresh one above all.
//! A first transaction, in a session of its own, writes every record's initial version. A record is one number,
//! `table · 2⁵⁵ + key`. A transaction in doubt is `:info` for Elle; the others know no doubt and are told what the
//! checker found: committed if someone read from it, else aborted.
//!
//! **What is read back.** The first transaction becomes [`History::initial_version`] again if it wrote all records
//! at one version before anyone else began (and, in Elle's formats, is marked to be that); a read of nothing (`nil`, `null`, and 0 where nobody wrote 0) is one of the
//! initial version. Foreign registers must follow the same rule: *the order of the values is the version order*, for
//! registers that are not so numbered have no known version order and this checker would judge another history.
//! Lists carry their order with them, and all elements of a list that a transaction in effect read are held to it: one
//! that nobody appended is an unwritten read, one that an aborted transaction appended is a G1a, and lists that no one
//! order explains are an [incompatible order](super::Kind::IncompatibleOrder), which no other format can hold. Versions of
//! lists are their elements if these grow in all lists, else places, from 1. Formats without times say so, and cannot be judged for real time.
//!
//! A file cut at the end of a line shows it in `doorbell`, `dbcop` and in Elle's operations as they are written here,
//! inside one vector; bare lines of Elle or Plume cannot show it.

mod dbcop;
mod edn;
mod elle;
mod lists;
mod plain;
mod plume;

use super::format::{self, At, FormatError, Problem, ReadError};
use super::history::History;
use std::borrow::Cow;
use std::fmt;
use std::io::{self, Write};
use std::path::Path;
use std::str::FromStr;

/// The names that can open a history of this project's own.
const OWN: [&str; 6] =
    ["\"format\"", "\"version\"", "\"initial_version\"", "\"share\"", "\"transactions\"", "\"count\""];

/// The format of a history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// This project's own.
    Doorbell,
    /// Elle's list-append.
    ElleAppend,
    /// Elle's rw-register.
    ElleRegister,
    /// dbcop's sessions.
    Dbcop,
    /// Plume's lines.
    Plume,
}

impl Format {
    /// All formats.
    pub const ALL: [Format; 5] =
        [Format::Doorbell, Format::ElleAppend, Format::ElleRegister, Format::Dbcop, Format::Plume];

    /// The name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Format::Doorbell => "doorbell",
            Format::ElleAppend => "elle-append",
            Format::ElleRegister => "elle-register",
            Format::Dbcop => "dbcop",
            Format::Plume => "plume",
        }
    }

    /// The format that bytes look like, by how they begin.
    pub fn detect(bytes: &[u8]) -> Option<Format> {
        let start = edn::skip_blank(bytes, 0);
        let rest = &bytes[start..];
        match rest.first()? {
            b'r' | b'w' if rest.get(1) == Some(&b'(') => Some(Format::Plume),
            b'{' => match bytes.get(edn::skip_blank(bytes, start + 1))? {
                b'"' => {
                    let key = &bytes[edn::skip_blank(bytes, start + 1)..];
                    if key.len() < 2 {
                        return None;
                    }
                    let same =
                        |name: &&str| key.starts_with(name.as_bytes()) || name.as_bytes().starts_with(key);
                    Some(if OWN.iter().any(same) { Format::Doorbell } else { Format::Dbcop })
                }
                b':' | b'#' => Some(Format::elle(rest)),
                _ => None,
            },
            b'[' => match bytes.get(edn::skip_blank(bytes, start + 1))? {
                b'[' | b']' => Some(Format::Dbcop),
                b'{' | b'#' => Some(Format::elle(rest)),
                _ => None,
            },
            // A tag or a set; a page of text begins with `# ` as well.
            b'#' if rest.get(1).is_some_and(|b| b.is_ascii_alphabetic() || b"_{".contains(b)) => {
                Some(Format::elle(rest))
            }
            _ => None,
        }
    }

    fn elle(bytes: &[u8]) -> Format {
        let appends = bytes.windows(b":append".len()).any(|at| at == b":append");
        if appends { Format::ElleAppend } else { Format::ElleRegister }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Not the name of a format.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no history format is called {0:?}; there are {all}", all = Format::ALL.map(Format::name).join(", "))]
pub struct UnknownFormat(pub String);

impl FromStr for Format {
    type Err = UnknownFormat;

    fn from_str(name: &str) -> Result<Format, UnknownFormat> {
        Format::ALL
            .into_iter()
            .find(|format| format.name() == name)
            .ok_or_else(|| UnknownFormat(name.to_owned()))
    }
}

/// A history that was read.
#[derive(Debug)]
pub struct Imported {
    /// The history. Without times all its transactions are at 0, and so overlap.
    pub history: History,
    /// The format it was in.
    pub format: Format,
    /// Whether the file said when transactions began and ended.
    pub timed: bool,
}

/// Why a history could not be written.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// The system refused.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The format cannot hold it.
    #[error("{format} cannot hold this history: {why}")]
    Unfit {
        /// The format.
        format: Format,
        /// What does not fit.
        why: String,
    },
}

/// Reads of absent keys, one by one, that may be written for others: two gigabytes of text or less.
const MAX_ABSENT: usize = 50_000_000;

/// Writes a history for another checker. Give it a buffered writer.
///
/// # Errors
/// What the system said, or what the format cannot hold: numbers above 2⁶³, a session with two transactions at once
/// (Elle), lists that would be too long to write, more than fifty million reads of absent keys by scans, a version read
/// that two transactions in doubt may have written, lists that were read in several orders.
pub fn write(history: &History, format: Format, out: &mut impl Write) -> Result<(), ExportError> {
    let unfit = |why| ExportError::Unfit { format, why };
    if !history.disorders().is_empty() {
        return Err(unfit("its lists were read in several orders, and versions have one".into()));
    }
    // Others know no stretches of absent keys.
    let whole = match format {
        Format::Doorbell => Cow::Borrowed(history),
        _ => history.one_by_one(MAX_ABSENT).map_err(|e| unfit(e.to_string()))?,
    };
    let history = &*whole;
    match format {
        Format::Doorbell => Ok(format::write(history, out)?),
        Format::ElleAppend => elle::write(&plain::Plain::of(history).map_err(unfit)?, true, out),
        Format::ElleRegister => elle::write(&plain::Plain::of(history).map_err(unfit)?, false, out),
        Format::Dbcop => Ok(dbcop::write(&plain::Plain::of(history).map_err(unfit)?, out)?),
        Format::Plume => Ok(plume::write(&plain::Plain::of(history).map_err(unfit)?, out)?),
    }
}

/// Reads a history in `format`, or in the one it looks like.
///
/// # Errors
/// What is wrong with the bytes, and where.
pub fn read(bytes: &[u8], format: Option<Format>) -> Result<Imported, FormatError> {
    let looks = Format::detect(bytes);
    let format = match (format, looks) {
        (Some(asked), Some(found)) if asked != found && !both_elle(asked, found) => {
            return Err(error(bytes, 0, Problem::OtherFormat { asked, found }));
        }
        (Some(asked), _) => asked,
        (None, Some(found)) => found,
        (None, None) if bytes.iter().all(u8::is_ascii_whitespace) => {
            return Err(error(bytes, bytes.len(), Problem::Empty));
        }
        (None, None) => return Err(error(bytes, 0, Problem::NoFormat)),
    };
    let (history, timed) = match format {
        Format::Doorbell => (format::read(bytes)?, true),
        Format::ElleAppend => elle::read(bytes, true)?,
        Format::ElleRegister => elle::read(bytes, false)?,
        Format::Dbcop => (dbcop::read(bytes)?, false),
        Format::Plume => (plume::read(bytes)?, false),
    };
    Ok(Imported { history, format, timed })
}

/// Reads the history in a file.
///
/// # Errors
/// As [`read`], or what the system said.
pub fn read_file(path: &Path, format: Option<Format>) -> Result<Imported, ReadError> {
    let name = || path.display().to_string();
    let bytes = std::fs::read(path).map_err(|source| ReadError::Io { path: name(), source })?;
    read(&bytes, format).map_err(|source| ReadError::Format { path: name(), source })
}

/// A file of reads alone is told apart by nothing.
fn both_elle(a: Format, b: Format) -> bool {
    [a, b].iter().all(|f| matches!(f, Format::ElleAppend | Format::ElleRegister))
}

/// The history that is in truth written: where a write that took no effect claimed the version of another, it has a
/// fresh one. `None` if no other format can hold the history.
#[cfg(test)]
pub(super) fn as_written(history: &History) -> Option<(History, Vec<bool>)> {
    let plain = plain::Plain::of(history).ok()?;
    let active = (0..history.txns().len()).map(|n| plain.active(n)).collect();
    Some((plain.history, active))
}

/// A problem at a byte.
fn error(bytes: &[u8], byte: usize, problem: Problem) -> FormatError {
    let before = &bytes[..byte.min(bytes.len())];
    let line = 1 + before.iter().filter(|&&b| b == b'\n').count();
    let start = before.iter().rposition(|&b| b == b'\n').map_or(0, |n| n + 1);
    FormatError { at: At { line, column: before.len() - start + 1, byte: before.len() }, problem }
}
