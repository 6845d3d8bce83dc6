//! Plume's text lines: `r(key,value,session,transaction)` or `w(…)`, one operation a line.
//!
//! As dracoooooo/Plume's `TextHistoryLoader` takes them: decimal numbers; transaction -1 is any aborted one, of which
//! only the writes count; a read of 0 that nobody wrote is one of the initial state, and writes of 0 are passed over,
//! so the first transaction that is written here does no harm where the initial version is 0.

use super::super::format::{FormatError, Problem};
use super::super::history::{History, OpKind};
use super::super::index::Fate;
use super::plain::{Draft, DraftOp, DraftTxn, Plain, number};
use std::collections::BTreeSet;
use std::io::{self, Write};

pub(super) fn write(plain: &Plain, out: &mut impl Write) -> io::Result<()> {
    for (record, version) in plain.loads() {
        writeln!(out, "w({record},{version},{},{})", plain.free_session, plain.free_id)?;
    }
    for (position, txn) in plain.history.txns().iter().enumerate() {
        for op in plain.history.ops(txn) {
            let kind = if op.kind == OpKind::Read { 'r' } else { 'w' };
            write!(out, "{kind}({},{},{},", number(op.record()), op.version, txn.session)?;
            if plain.active(position) { writeln!(out, "{})", txn.id)? } else { writeln!(out, "-1)")? }
        }
    }
    out.flush()
}

pub(super) fn read(bytes: &[u8]) -> Result<History, FormatError> {
    let mut draft = Draft::default();
    let mut ids = BTreeSet::new();
    let mut start = 0;
    for line in bytes.split_inclusive(|&b| b == b'\n') {
        let at = start;
        start += line.len();
        let whole = line.ends_with(b"\n");
        let line = line.trim_ascii_end();
        if line.is_empty() && start == bytes.len() {
            break;
        }
        let (op, session, id) = operation(line).map_err(|(column, what)| {
            let cut = !whole && at + column >= start;
            let problem = if cut {
                Problem::Truncated { transactions: draft.txns.len().saturating_sub(1) }
            } else {
                Problem::Invalid(what)
            };
            super::error(bytes, at + column, problem)
        })?;
        let end = draft.ops.len();
        let open = draft.txns.last_mut().filter(|last| {
            let aborted = last.outcome == Fate::Aborted;
            last.session == session && (if aborted { id.is_none() } else { id == Some(last.id) })
        });
        match open {
            Some(open) => open.ops.end = end + 1,
            None => {
                if let Some(id) = id.filter(|&id| !ids.insert(id)) {
                    return Err(super::error(bytes, at, Problem::DuplicateId { id }));
                }
                let outcome = if id.is_some() { Fate::Committed } else { Fate::Aborted };
                let (id, reason) = (id.unwrap_or(0), "aborted".into());
                let ops = end..end + 1;
                draft.txns.push(DraftTxn { id, session, invoke: 0, ret: Some(0), outcome, reason, ops });
            }
        }
        draft.ops.push(op);
    }
    // Aborted transactions have no number in the file.
    let mut fresh = ids.last().map_or(0, |id| id.saturating_add(1));
    for txn in draft.txns.iter_mut().filter(|t| t.outcome == Fate::Aborted) {
        txn.id = fresh;
        fresh = fresh.saturating_add(1);
    }
    draft.finish(true).map_err(|problem| super::error(bytes, bytes.len(), problem))
}

/// One line: the operation, the session and the transaction. An error with the byte of the line it was met at.
fn operation(line: &[u8]) -> Result<(DraftOp, u64, Option<u64>), (usize, String)> {
    let shape =
        |at: usize, found: &str| (at, format!("{found} where r(key,value,session,transaction) goes on"));
    let kind = match line.first() {
        Some(b'r') => OpKind::Read,
        Some(b'w') => OpKind::Write,
        Some(_) => return Err((0, "a line begins with r( or w(".into())),
        None => return Err((0, "an empty line".into())),
    };
    let mut at = 1;
    let mut numbers = [0u64; 4];
    let mut aborted = false;
    for (n, slot) in numbers.iter_mut().enumerate() {
        let mark = if n == 0 { b'(' } else { b',' };
        match line.get(at) {
            Some(&b) if b == mark => at += 1,
            Some(_) => return Err(shape(at, "another character")),
            None => return Err(shape(at, "the end of the line")),
        }
        if n == 3 && line.get(at) == Some(&b'-') {
            aborted = true;
            at += 1;
        }
        let digits = line[at..].iter().take_while(|b| b.is_ascii_digit()).count();
        let text = std::str::from_utf8(&line[at..at + digits]).unwrap_or_default();
        if text.is_empty() {
            let found = if at == line.len() { "the end of the line" } else { "no number" };
            return Err(shape(at, found));
        }
        *slot = text
            .parse()
            .ok()
            .filter(|&v: &u64| v < 1 << 63)
            .ok_or((at, format!("{text} is 2^63 or more")))?;
        at += digits;
    }
    if aborted && numbers[3] != 1 {
        return Err((at, format!("transaction -{}: only -1, for an aborted one, is negative", numbers[3])));
    }
    match line.get(at) {
        Some(b')') if at + 1 == line.len() => {}
        Some(b')') => return Err((at + 1, "more behind the operation".into())),
        Some(_) => return Err(shape(at, "another character")),
        None => return Err(shape(at, "the end of the line")),
    }
    let [record, version, session, txn] = numbers;
    Ok((DraftOp { kind, record, version: Some(version) }, session, (!aborted).then_some(txn)))
}
