//! `history.json`: a history on disk.
//!
//! One JSON object, written one transaction a line; white space means nothing to the reader. Version 3 (1, which knew no stretches of absent keys, and 2, which knew no digests, are read as
//! well):
//!
//! ```json
//! {"format":"doorbell-history","version":3,"initial_version":0,"transactions":[
//! {"id":0,"session":0,"invoke_ns":10,"return_ns":25,"outcome":"committed","ops":[["r",0,7,0,1193046],["w",0,7,1,77]]},
//! {"id":1,"session":1,"invoke_ns":12,"return_ns":30,"outcome":"aborted","reason":"lock","ops":[["r",0,7,0]]},
//! {"id":2,"session":0,"invoke_ns":26,"return_ns":null,"outcome":"unknown","ops":[["w",0,7,2]]}
//! ],"initial":[[0,7,1193046]],"count":3}
//! ```
//!
//! - `format`, `version`, `initial_version` come first, in any order; all other names of an object in any order. The
//!   version counts changes that an older reader could misread.
//! - `initial_version`: the version all records have before the first transaction, or null if a transaction of the
//!   history loads them.
//! - `share`, where it is there, stands ahead of `transactions` too: `[1,3]` says that this is what node 1 of 3 recorded, and not the
//!   whole, in which alone every version that was read has its writer.
//! - `return_ns` is null exactly for `unknown`; `reason` (a string) stands exactly with `aborted`.
//! - `ops`, in program order: `["r" or "w", table, key, version]`, table below 2³², key and version below 2⁶⁴. Behind the version may
//!   stand the digest of the payload that was read or installed, from 1 to 2²⁴ − 1 (`digest.rs`). Behind all of them may stand
//!   what a scan read of a stretch of absent keys: `["n", table, from, to]` says that of each key from `from` to `to` that the
//!   history writes the transaction read the initial version (never there yet; only where there is one), `["g", table, from, to]` that it read the last one
//!   (gone). Keys that the transaction reads or writes by itself are left out of both.
//! - `initial`, where it is there: `[table, key, digest]` says what a record that was read at its initial version began with.
//! - `count` is the number of transactions.
//!
//! All numbers are unsigned integers. Unknown, missing or repeated names, repeated ids and anything behind the object
//! are errors with their place; a file cut short is told from one that is wrong. Reading never gives part of a
//! history: a checker would take the lost writers' versions for invented ones.

use super::digest::Digest;
use super::exchange::Format;
use super::history::{History, Key, Op, OpKind, Outcome, Share};
use super::index::MAX_OPS;
use super::ranges::{Run, Seen};
use primitives::place::{Mistake, Place};
use primitives::units::Nanos;
use serde::de::{self, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fmt;
use std::io::{self, Write};
use std::path::Path;

/// The value of `format`.
pub const FORMAT: &str = "doorbell-history";
/// The version written.
pub const VERSION: u64 = 3;
/// The oldest version read: the first, which knew no stretches of absent keys.
const OLDEST: u64 = 1;

/// A place in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct At {
    /// From 1.
    pub line: usize,
    /// In bytes, from 1; 0 just before the line's first byte.
    pub column: usize,
    /// Bytes before the place.
    pub byte: usize,
}

/// Why bytes are not a history.
#[derive(Debug, thiserror::Error)]
#[error("{}", self.mistake().told("history"))]
pub struct FormatError {
    /// Where reading stopped: at or just behind the trouble.
    pub at: At,
    /// What the trouble is.
    pub problem: Problem,
}

impl FormatError {
    /// The place and the trouble, to be told with the file's name.
    pub fn mistake(&self) -> Mistake {
        Mistake::at(Place::new(self.at.line as u64, self.at.column as u64), self.problem.to_string())
    }
}

/// What is wrong with a history file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// The file ends within the object: an interrupted run or copy.
    #[error(
        "the file ends after {transactions} whole transactions; record the run again or fetch the whole file"
    )]
    Truncated {
        /// Transactions read whole before the end.
        transactions: usize,
    },
    /// There is nothing in the file.
    #[error("the file is empty")]
    Empty,
    /// Another kind of file.
    #[error("`format` is {found:?} where a history says {FORMAT:?}")]
    WrongFormat {
        /// What `format` said.
        found: String,
    },
    /// A version this reader does not know.
    #[error(
        "format version {found} is not known here, only {OLDEST} to {VERSION} are; use the release that wrote the file"
    )]
    UnknownVersion {
        /// What `version` said.
        found: u64,
    },
    /// Two transactions with the same id.
    #[error("transaction id {id} was used before")]
    DuplicateId {
        /// The id.
        id: u64,
    },
    /// `count` and the transactions disagree.
    #[error("`count` is {count} but there are {transactions} transactions")]
    WrongCount {
        /// What `count` said.
        count: u64,
        /// Transactions there were.
        transactions: usize,
    },
    /// Bytes that begin like no history known.
    #[error("this begins like none of the formats known: {all}", all = Format::ALL.map(Format::name).join(", "))]
    NoFormat,
    /// Bytes of another format than asked for.
    #[error("this looks like {found}, not like {asked}")]
    OtherFormat {
        /// The format asked for.
        asked: Format,
        /// The format it looks like.
        found: Format,
    },
    /// More than a check can take.
    #[error("more than {limit} {what}")]
    TooMany {
        /// Of what.
        what: &'static str,
        /// How many there may be.
        limit: usize,
    },
    /// Not JSON, or not of the shape described above.
    #[error("{0}")]
    Invalid(String),
}

/// Why a history file could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The file could not be opened or read.
    #[error("cannot read {path}: {source}")]
    Io {
        /// The file.
        path: String,
        /// What the system said.
        source: io::Error,
    },
    /// It is not a history.
    #[error("{}", .source.mistake().told(path))]
    Format {
        /// The file.
        path: String,
        /// What is wrong and where.
        source: FormatError,
    },
}

/// Writes a history, a transaction at a time; nothing of its size is built in memory. Give it a buffered writer.
pub fn write(history: &History, out: &mut impl Write) -> io::Result<()> {
    write_as(history, history.share(), out)
}

/// Writes a history as [`write()`] does, and says of which node it is a share.
pub fn write_share(history: &History, share: Share, out: &mut impl Write) -> io::Result<()> {
    write_as(history, Some(share), out)
}

fn write_as(history: &History, share: Option<Share>, out: &mut impl Write) -> io::Result<()> {
    write!(out, "{{\"format\":\"{FORMAT}\",\"version\":{VERSION},\"initial_version\":")?;
    match history.initial_version() {
        Some(version) => write!(out, "{version}")?,
        None => write!(out, "null")?,
    }
    if let Some(Share { node, nodes }) = share {
        write!(out, ",\"share\":[{node},{nodes}]")?;
    }
    write!(out, ",\"transactions\":[")?;
    let mut runs = history.runs().iter().peekable();
    for (n, txn) in history.txns().iter().enumerate() {
        let comma = if n == 0 { "" } else { "," };
        write!(
            out,
            "{comma}\n{{\"id\":{},\"session\":{},\"invoke_ns\":{},",
            txn.id, txn.session, txn.invoke.0
        )?;
        match txn.outcome {
            Outcome::Committed => write!(out, "\"return_ns\":{},\"outcome\":\"committed\"", txn.ret.0)?,
            Outcome::Unknown => write!(out, "\"return_ns\":null,\"outcome\":\"unknown\"")?,
            Outcome::Aborted(reason) => {
                write!(out, "\"return_ns\":{},\"outcome\":\"aborted\",\"reason\":", txn.ret.0)?;
                serde_json::to_writer(&mut *out, history.reason(reason))?;
            }
        }
        write!(out, ",\"ops\":[")?;
        let mut empty = true;
        for op in history.ops(txn) {
            let comma = if std::mem::replace(&mut empty, false) { "" } else { "," };
            let kind = if op.kind == OpKind::Read { 'r' } else { 'w' };
            write!(out, "{comma}[\"{kind}\",{},{},{}", op.table, op.key, op.version)?;
            if op.digest.is_some() {
                write!(out, ",{}", op.digest.number())?;
            }
            write!(out, "]")?;
        }
        while let Some(run) = runs.next_if(|run| run.txn as usize == n) {
            let comma = if std::mem::replace(&mut empty, false) { "" } else { "," };
            let seen = if run.seen == Seen::Initial { 'n' } else { 'g' };
            write!(out, "{comma}[\"{seen}\",{},{},{}]", run.table, run.from, run.to)?;
        }
        write!(out, "]}}")?;
    }
    write!(out, "\n]")?;
    for (n, (key, digest)) in history.initial().iter().enumerate() {
        let before = if n == 0 { ",\"initial\":[" } else { "," };
        write!(out, "{before}[{},{},{}]", key.table, key.key, digest.number())?;
    }
    if !history.initial().is_empty() {
        write!(out, "]")?;
    }
    writeln!(out, ",\"count\":{}}}", history.txns().len())?;
    out.flush()
}

/// Reads the history in a file.
pub fn read_file(path: &Path) -> Result<History, ReadError> {
    let name = || path.display().to_string();
    let bytes = std::fs::read(path).map_err(|source| ReadError::Io { path: name(), source })?;
    read(&bytes).map_err(|source| ReadError::Format { path: name(), source })
}

/// Reads a history.
pub fn read(bytes: &[u8]) -> Result<History, FormatError> {
    let draft = RefCell::new(Draft::default());
    let mut json = serde_json::Deserializer::from_slice(bytes);
    let outcome = Document(&draft).deserialize(&mut json).and_then(|()| json.end());
    let draft = draft.into_inner();
    match outcome {
        Ok(()) => Ok(draft.history),
        Err(error) => {
            let transactions = draft.history.txns().len();
            let shown = json_error(bytes, &error, transactions);
            Err(FormatError { problem: draft.problem.unwrap_or(shown.problem), ..shown })
        }
    }
}

/// What serde_json found wrong, after so many whole transactions.
pub(super) fn json_error(bytes: &[u8], error: &serde_json::Error, transactions: usize) -> FormatError {
    let problem = match error.classify() {
        serde_json::error::Category::Eof => Problem::Truncated { transactions },
        _ => Problem::Invalid(Mistake::of_json(error).what),
    };
    FormatError { at: place(bytes, error.line(), error.column()), problem }
}

/// serde_json counts lines from 1 and columns in bytes from the line's start.
fn place(bytes: &[u8], line: usize, column: usize) -> At {
    let starts = bytes.iter().enumerate().filter(|&(_, &b)| b == b'\n').map(|(n, _)| n + 1);
    let start = std::iter::once(0).chain(starts).nth(line.saturating_sub(1)).unwrap_or(0);
    At { line, column, byte: (start + column).min(bytes.len()) }
}

/// What has been read so far. Shared by the seeds below, which serde drives one inside the other.
#[derive(Default)]
struct Draft {
    history: History,
    ids: BTreeSet<u64>,
    /// The typed form of the error that went through serde as text.
    problem: Option<Problem>,
}

type Shared<'d> = &'d RefCell<Draft>;

/// Leaves the typed problem in the draft; serde carries only text, and adds the place.
fn fail<T, E: de::Error>(draft: Shared<'_>, problem: Problem) -> Result<T, E> {
    let text = problem.to_string();
    draft.borrow_mut().problem = Some(problem);
    Err(E::custom(text))
}

/// Fills a field once.
fn once<T, E: de::Error>(slot: &mut Option<T>, name: &'static str, value: T) -> Result<(), E> {
    if slot.replace(value).is_some() { Err(E::duplicate_field(name)) } else { Ok(()) }
}

struct Document<'d>(Shared<'d>);

const HEAD: &str = "`format`, `version` and `initial_version` ahead of `transactions`";

impl<'de> DeserializeSeed<'de> for Document<'_> {
    type Value = ();
    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Document<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a history object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        const FIELDS: &[&str] =
            &["format", "version", "initial_version", "share", "transactions", "initial", "count"];
        let (mut format, mut version, mut initial, mut list, mut count) = (None, None, None, None, None);
        let (mut share, mut loads) = (None, None);
        while let Some(name) = map.next_key::<String>()? {
            match name.as_str() {
                "format" => {
                    let found: String = map.next_value()?;
                    if found != FORMAT {
                        return fail(self.0, Problem::WrongFormat { found });
                    }
                    once(&mut format, "format", ())?;
                }
                "version" => {
                    let found: u64 = map.next_value()?;
                    if !(OLDEST..=VERSION).contains(&found) {
                        return fail(self.0, Problem::UnknownVersion { found });
                    }
                    once(&mut version, "version", ())?;
                }
                "initial_version" => once(&mut initial, "initial_version", map.next_value::<Option<u64>>()?)?,
                "share" => {
                    if list.is_some() {
                        return Err(de::Error::custom("expected `share` ahead of `transactions`"));
                    }
                    let (node, nodes) = map.next_value::<(u16, u16)>()?;
                    if node >= nodes {
                        return Err(de::Error::custom(format_args!("there is no node {node} of {nodes}")));
                    }
                    once(&mut share, "share", Share { node, nodes })?;
                }
                "transactions" => {
                    let (Some(()), Some(()), Some(initial)) = (format, version, initial) else {
                        return Err(de::Error::custom(format_args!("expected {HEAD}")));
                    };
                    once(&mut list, "transactions", ())?;
                    self.0.borrow_mut().history = History::new(initial).of(share);
                    map.next_value_seed(Transactions(self.0))?;
                }
                "initial" => {
                    let loaded: Vec<(u32, u64, u32)> = map.next_value()?;
                    once(&mut loads, "initial", loaded)?;
                }
                "count" => once(&mut count, "count", map.next_value::<u64>()?)?,
                other => return Err(de::Error::unknown_field(other, FIELDS)),
            }
        }
        if list.is_none() {
            return Err(de::Error::missing_field("transactions"));
        }
        let loads = loads.unwrap_or_default().into_iter();
        let loads: Result<Vec<_>, A::Error> =
            loads.map(|(table, key, number)| Ok((Key { table, key }, digest_of(number)?))).collect();
        self.0.borrow_mut().history.set_initial(loads?);
        let count = count.ok_or_else(|| de::Error::missing_field("count"))?;
        let transactions = self.0.borrow().history.txns().len();
        if count != transactions as u64 {
            return fail(self.0, Problem::WrongCount { count, transactions });
        }
        Ok(())
    }
}

/// The digest of a number that a file has in place of one.
fn digest_of<E: de::Error>(number: u32) -> Result<Digest, E> {
    match number {
        1..=Digest::MAX => Ok(Digest::from_number(number)),
        _ => Err(E::custom(format_args!("a digest is a number from 1 to {}, not {number}", Digest::MAX))),
    }
}

struct Transactions<'d>(Shared<'d>);

impl<'de> DeserializeSeed<'de> for Transactions<'_> {
    type Value = ();
    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Transactions<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array of transactions")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        while seq.next_element_seed(Transaction(self.0))?.is_some() {}
        Ok(())
    }
}

struct Transaction<'d>(Shared<'d>);

impl<'de> DeserializeSeed<'de> for Transaction<'_> {
    type Value = ();
    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_map(self)
    }
}

/// Names as an enum, so that a million transactions do not allocate ten million strings.
#[derive(serde::Deserialize)]
#[serde(field_identifier, rename_all = "snake_case")]
enum Field {
    Id,
    Session,
    InvokeNs,
    ReturnNs,
    Outcome,
    Reason,
    Ops,
}

#[derive(serde::Deserialize)]
#[serde(rename_all = "snake_case")]
enum OutcomeName {
    Committed,
    Aborted,
    Unknown,
}

impl<'de> Visitor<'de> for Transaction<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a transaction object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let (mut id, mut session, mut invoke, mut ret) = (None, None, None, None);
        let (mut outcome, mut reason, mut ops) = (None, None, None);
        let first_op = self.0.borrow().history.op_count();
        while let Some(name) = map.next_key()? {
            match name {
                Field::Id => {
                    let number: u64 = map.next_value()?;
                    once(&mut id, "id", number)?;
                    if !self.0.borrow_mut().ids.insert(number) {
                        return fail(self.0, Problem::DuplicateId { id: number });
                    }
                }
                Field::Session => once(&mut session, "session", map.next_value::<u32>()?)?,
                Field::InvokeNs => once(&mut invoke, "invoke_ns", map.next_value::<u64>()?)?,
                Field::ReturnNs => once(&mut ret, "return_ns", map.next_value::<Option<u64>>()?)?,
                Field::Outcome => once(&mut outcome, "outcome", map.next_value::<OutcomeName>()?)?,
                Field::Reason => once(&mut reason, "reason", map.next_value::<String>()?)?,
                Field::Ops => {
                    once(&mut ops, "ops", ())?;
                    map.next_value_seed(Ops(self.0))?;
                }
            }
        }
        let missing = de::Error::missing_field;
        let id = id.ok_or_else(|| missing("id"))?;
        let session = session.ok_or_else(|| missing("session"))?;
        let invoke = invoke.ok_or_else(|| missing("invoke_ns"))?;
        let ret = ret.ok_or_else(|| missing("return_ns"))?;
        ops.ok_or_else(|| missing("ops"))?;
        let mut draft = self.0.borrow_mut();
        let outcome = match (outcome.ok_or_else(|| missing("outcome"))?, reason, ret) {
            (OutcomeName::Committed, None, Some(_)) => Outcome::Committed,
            (OutcomeName::Unknown, None, None) => Outcome::Unknown,
            (OutcomeName::Aborted, Some(reason), Some(_)) => match draft.history.intern(&reason) {
                Some(reason) => Outcome::Aborted(reason),
                None => {
                    drop(draft);
                    return fail(
                        self.0,
                        Problem::TooMany { what: "different abort reasons", limit: 1 << 16 },
                    );
                }
            },
            (OutcomeName::Aborted, None, _) => return Err(missing("reason")),
            (_, Some(_), _) => return Err(de::Error::custom("only an aborted transaction has a `reason`")),
            (OutcomeName::Unknown, _, Some(_)) => {
                return Err(de::Error::custom("`return_ns` of an unknown outcome must be null"));
            }
            (_, _, None) => return Err(de::Error::custom("only an unknown outcome has no `return_ns`")),
        };
        let interval = (Nanos(invoke), ret.map_or(Nanos::MAX, Nanos));
        draft.history.push_recorded(id, session, interval, outcome, first_op);
        Ok(())
    }
}

struct Ops<'d>(Shared<'d>);

impl<'de> DeserializeSeed<'de> for Ops<'_> {
    type Value = ();
    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_seq(self)
    }
}

#[derive(serde::Deserialize)]
enum OpName {
    #[serde(rename = "r")]
    Read,
    #[serde(rename = "w")]
    Write,
    #[serde(rename = "n")]
    Never,
    #[serde(rename = "g")]
    Gone,
}

/// One line of operations: its name, three numbers, and a digest if there is one.
struct Line(OpName, u32, u64, u64, Digest);

impl<'de> de::Deserialize<'de> for Line {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Line, D::Error> {
        struct Words;
        impl<'de> Visitor<'de> for Words {
            type Value = Line;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an operation of four words, or five with a digest")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Line, A::Error> {
                let short = |len| de::Error::invalid_length(len, &self);
                let name = seq.next_element()?.ok_or_else(|| short(0))?;
                let table = seq.next_element()?.ok_or_else(|| short(1))?;
                let key = seq.next_element()?.ok_or_else(|| short(2))?;
                let version = seq.next_element()?.ok_or_else(|| short(3))?;
                let digest = seq.next_element()?.map_or(Ok(Digest::NONE), digest_of)?;
                if digest.is_some() && !matches!(name, OpName::Read | OpName::Write) {
                    return Err(de::Error::custom("keys that are absent have no digest"));
                }
                Ok(Line(name, table, key, version, digest))
            }
        }
        from.deserialize_seq(Words)
    }
}

impl<'de> Visitor<'de> for Ops<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array of operations [\"r\" or \"w\", table, key, version] or [\"n\" or \"g\", table, from, to]")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        while let Some(Line(kind, table, key, version, digest)) = seq.next_element()? {
            let mut draft = self.0.borrow_mut();
            let history = &mut draft.history;
            if history.op_count() + history.runs().len() == MAX_OPS {
                drop(draft);
                return fail(self.0, Problem::TooMany { what: "operations", limit: MAX_OPS });
            }
            let seen = match kind {
                OpName::Read | OpName::Write => {
                    let kind = if matches!(kind, OpName::Read) { OpKind::Read } else { OpKind::Write };
                    history.push_op(Op { version, key, table, kind, digest });
                    continue;
                }
                OpName::Never if history.initial_version().is_none() => {
                    return Err(de::Error::custom("\"n\" needs an `initial_version`"));
                }
                OpName::Never => Seen::Initial,
                OpName::Gone => Seen::Last,
            };
            // The transaction is pushed when all of it is read.
            let txn = history.txns().len() as u32;
            history.push_run(Run { txn, table, from: key, to: version, seen });
        }
        Ok(())
    }
}
