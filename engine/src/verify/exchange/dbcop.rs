//! dbcop's JSON: sessions of transactions of events.
//!
//! rnbguy/dbcop, `docs/history-format.md`: `{"params": {…}, "info", "start", "end", "data": [sessions]}`, or the sessions
//! alone. A session is an array of `{"events": […], "committed": bool}`, an event `{"Read": {"variable", "version"}}`
//! or `{"Write": …}`, or short `["r", variable, version]`. A read's version is null before any write. Writes of one
//! variable must differ in version. From atomic read on, dbcop 0.2.0 counts the writes of uncommitted transactions like
//! all others and would refuse serial histories for them, so an aborted transaction is written only if one in
//! effect read from it, and without its own reads, which owe nobody an explanation.

use super::super::format::{self, FormatError};
use super::super::history::{History, OpKind};
use super::super::index::Fate;
use super::plain::{Draft, DraftOp, DraftTxn, Plain, number};
use serde::Deserialize;
use serde::de::{self, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use std::collections::BTreeSet;
use std::fmt;
use std::io::{self, Write};

pub(super) fn write(plain: &Plain, out: &mut impl Write) -> io::Result<()> {
    let history = &plain.history;
    let seen = read_from(plain);
    let written = |&n: &usize| plain.active(n) || seen.contains(&(n as u32));
    let mut order: Vec<usize> = (0..history.txns().len()).filter(written).collect();
    order.sort_by_key(|&n| (history.txns()[n].session, history.txns()[n].invoke));
    let sessions: Vec<&[usize]> =
        order.chunk_by(|&a, &b| history.txns()[a].session == history.txns()[b].session).collect();
    let loads: Vec<(u64, u64)> = plain.loads().collect();
    let nodes = sessions.len() + usize::from(!loads.is_empty());
    let txns = sessions.iter().map(|s| s.len()).max().unwrap_or(0);
    let events = history.txns().iter().map(|t| history.ops(t).len()).max().unwrap_or(0).max(loads.len());
    write!(out, "{{\"params\":{{\"id\":0,\"n_node\":{nodes},\"n_variable\":{},", plain.records.len())?;
    write!(out, "\"n_transaction\":{txns},\"n_event\":{events}}},\"info\":\"doorbell\",")?;
    write!(out, "\"start\":\"1970-01-01T00:00:00Z\",\"end\":\"1970-01-01T00:00:00Z\",\"data\":[")?;
    let mut first = true;
    if !loads.is_empty() {
        write!(out, "\n[")?;
        transaction(out, true, loads.iter().map(|&(record, version)| (OpKind::Write, record, version)))?;
        write!(out, "]")?;
        first = false;
    }
    for session in sessions {
        write!(out, "{}[", if std::mem::take(&mut first) { "\n" } else { ",\n" })?;
        for (n, &position) in session.iter().enumerate() {
            write!(out, "{}", if n == 0 { "" } else { ",\n " })?;
            let active = plain.active(position);
            let ops = history.ops(&history.txns()[position]).iter();
            let ops = ops.filter(|op| active || op.kind == OpKind::Write);
            transaction(out, active, ops.map(|op| (op.kind, number(op.record()), op.version)))?;
        }
        write!(out, "]")?;
    }
    writeln!(out, "\n]}}")?;
    out.flush()
}

/// The transactions without effect that one in effect read from.
fn read_from(plain: &Plain) -> BTreeSet<u32> {
    let index = &plain.index;
    let mut seen = BTreeSet::new();
    let mut at = 0;
    while at < index.items.len() {
        let version = index.version_at(at);
        at = version.end;
        if index.readers(version.clone()).next().is_some() {
            seen.extend(index.claims(version).map(|(_, txn)| txn).filter(|&txn| !index.active(txn)));
        }
    }
    seen
}

fn transaction(
    out: &mut impl Write,
    committed: bool,
    ops: impl Iterator<Item = (OpKind, u64, u64)>,
) -> io::Result<()> {
    write!(out, "{{\"events\":[")?;
    for (n, (kind, record, version)) in ops.enumerate() {
        let kind = if kind == OpKind::Read { "Read" } else { "Write" };
        let comma = if n == 0 { "" } else { "," };
        write!(out, "{comma}{{\"{kind}\":{{\"variable\":{record},\"version\":{version}}}}}")?;
    }
    write!(out, "],\"committed\":{committed}}}")
}

pub(super) fn read(bytes: &[u8]) -> Result<History, FormatError> {
    let bare = bytes.trim_ascii_start().starts_with(b"[");
    let mut json = serde_json::Deserializer::from_slice(bytes);
    let parsed = if bare {
        Vec::deserialize(&mut json)
    } else {
        Wrapped::deserialize(&mut json).map(|wrapped| wrapped.data)
    };
    let sessions: Vec<Vec<Transaction>> = parsed
        .and_then(|sessions| json.end().map(|()| sessions))
        .map_err(|e| format::json_error(bytes, &e, 0))?;
    let mut draft = Draft::default();
    for (session, txns) in (0..).zip(sessions) {
        for txn in txns {
            let (id, first) = (draft.txns.len() as u64, draft.ops.len());
            draft.ops.extend(txn.events.into_iter().map(|event| event.0));
            let outcome = if txn.committed { Fate::Committed } else { Fate::Aborted };
            let (reason, ops) = ("uncommitted".into(), first..draft.ops.len());
            draft.txns.push(DraftTxn { id, session, invoke: 0, ret: Some(0), outcome, reason, ops });
        }
    }
    draft.finish(true).map_err(|problem| super::error(bytes, bytes.len(), problem))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Wrapped {
    #[serde(rename = "params")]
    _params: Option<IgnoredAny>,
    #[serde(rename = "info")]
    _info: Option<IgnoredAny>,
    #[serde(rename = "start")]
    _start: Option<IgnoredAny>,
    #[serde(rename = "end")]
    _end: Option<IgnoredAny>,
    data: Vec<Vec<Transaction>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Transaction {
    events: Vec<Event>,
    committed: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Read {
    variable: u64,
    version: Option<u64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    variable: u64,
    version: u64,
}

struct Event(DraftOp);

impl Event {
    fn new(kind: OpKind, record: u64, version: Option<u64>) -> Event {
        Event(DraftOp { kind, record, version })
    }
}

impl<'de> Deserialize<'de> for Event {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Event, D::Error> {
        from.deserialize_any(EventVisitor)
    }
}

struct EventVisitor;

impl<'de> Visitor<'de> for EventVisitor {
    type Value = Event;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an event {\"Read\" or \"Write\": {\"variable\", \"version\"}} or [\"r\" or \"w\", variable, version]")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Event, A::Error> {
        let Some(kind) = map.next_key::<String>()? else { return Err(de::Error::invalid_length(0, &self)) };
        let event = match kind.as_str() {
            "Read" => {
                let Read { variable, version } = map.next_value()?;
                Event::new(OpKind::Read, variable, version)
            }
            "Write" => {
                let Written { variable, version } = map.next_value()?;
                Event::new(OpKind::Write, variable, Some(version))
            }
            other => return Err(de::Error::unknown_variant(other, &["Read", "Write"])),
        };
        match map.next_key::<String>()? {
            None => Ok(event),
            Some(more) => {
                Err(de::Error::custom(format!("an event is one of Read and Write, and not also `{more}`")))
            }
        }
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Event, A::Error> {
        let short = |n| de::Error::invalid_length(n, &EventVisitor);
        let kind: String = seq.next_element()?.ok_or_else(|| short(0))?;
        let variable = seq.next_element()?.ok_or_else(|| short(1))?;
        let version: Option<u64> = seq.next_element()?.ok_or_else(|| short(2))?;
        match (kind.as_str(), version) {
            ("r", version) => Ok(Event::new(OpKind::Read, variable, version)),
            ("w", Some(version)) => Ok(Event::new(OpKind::Write, variable, Some(version))),
            ("w", None) => Err(de::Error::custom("a write has a version")),
            (other, _) => Err(de::Error::unknown_variant(other, &["r", "w"])),
        }
    }
}
