//! Anomalies that one version or one transaction shows by itself, before any cycle is looked for.
//!
//! Each of them also makes the version order or the reads-from relation meaningless, so the graph is built only for
//! histories without them.

use super::digest::Digest;
use super::history::{History, Op, OpKind};
use super::index::{Fate, Index};
use super::verdict::{Conflict, Dependency, Kind};
use std::ops::Range;

/// An anomaly by positions in the history.
#[derive(Clone, Debug)]
pub(super) struct Direct {
    pub kind: Kind,
    pub table: u32,
    pub key: u64,
    /// The version it is about.
    pub version: u64,
    /// Everyone involved.
    pub txns: Vec<u32>,
    pub edges: Vec<(u32, u32, Dependency, Conflict)>,
    pub detail: String,
}

/// The first anomaly of each kind, and how many there are of each.
#[derive(Default)]
pub(super) struct Findings {
    pub first: Vec<Direct>,
    pub counts: Vec<(Kind, u64)>,
    /// Versions read that two transactions in doubt may have written.
    pub ambiguous: u64,
    /// Distinct records.
    pub records: u64,
}

impl Findings {
    fn add(&mut self, kind: Kind, describe: impl FnOnce() -> Direct) {
        match self.counts.iter_mut().find(|(known, _)| *known == kind) {
            Some((_, count)) => *count += 1,
            None => {
                self.counts.push((kind, 1));
                self.first.push(describe());
            }
        }
    }
}

/// Looks at every version and at every transaction once.
pub(super) fn find(history: &History, index: &Index) -> Findings {
    let mut found = Findings::default();
    history.disorders().iter().for_each(|d| found.add(d.kind, || d.clone()));
    let rewrites = within_transactions(history, index, &mut found);
    let mut at = 0;
    // Items and what records began with are in the same order.
    let mut initial = history.initial().iter().peekable();
    while at < index.items.len() {
        if at == 0 || !index.items[at].same_record(index.items[at - 1]) {
            found.records += 1;
        }
        let record = index.items[at].record();
        let version = index.version_at(at);
        at = version.end;
        one_version(index, version.clone(), &rewrites, &mut found);
        while initial.next_if(|(key, _)| *key < record).is_some() {}
        let loaded = initial.peek().filter(|(key, _)| *key == record).map(|&&(_, digest)| digest);
        torn_reads(index, version, loaded, &mut found);
    }
    found.first.sort_by_key(|d| d.kind);
    found.counts.sort();
    found
}

fn one_version(index: &Index, version: Range<usize>, rewrites: &[bool], found: &mut Findings) {
    let item = index.items[version.start];
    let direct = |kind, txns: Vec<u32>, detail: String| Direct {
        kind,
        table: item.table,
        key: item.key,
        version: item.version,
        txns,
        edges: Vec::new(),
        detail,
    };
    let read_from = |from: u32, to: u32| {
        let on = Conflict {
            table: item.table,
            key: item.key,
            from_version: item.version,
            to_version: item.version,
        };
        vec![(from, to, Dependency::Wr, on)]
    };
    let mut writers = index.writers(version.clone()).map(|(_, txn)| txn);
    let writer = writers.next();
    if let Some(first) = writer {
        if let Some(floor) = index.initial_version.filter(|&floor| item.version <= floor) {
            found.add(Kind::NonMonotonicVersion, || {
                direct(
                    Kind::NonMonotonicVersion,
                    vec![first],
                    format!("installed a version that does not exceed the initial version {floor}"),
                )
            });
        }
        for second in writers {
            found.add(Kind::DuplicateVersion, || {
                direct(
                    Kind::DuplicateVersion,
                    vec![first, second],
                    "both committed this version; one update is lost".into(),
                )
            });
        }
        // Only a transaction that wrote some record twice can have an intermediate version.
        if rewrites[first as usize] {
            let last = index.items[version.end..]
                .iter()
                .take_while(|i| i.same_record(item))
                .filter(|i| !i.is_read() && i.txn() == first)
                .last()
                .map(|i| i.version);
            for (_, reader) in index.readers(version.clone()).filter(|&(_, r)| r != first) {
                let Some(last) = last else { break };
                found.add(Kind::G1b, || Direct {
                    edges: read_from(first, reader),
                    ..direct(
                        Kind::G1b,
                        vec![first, reader],
                        format!("read a version that its writer itself replaced with version {last}"),
                    )
                });
            }
        }
        return;
    }
    if Some(item.version) == index.initial_version || index.readers(version.clone()).next().is_none() {
        return;
    }
    if index.doubtful(version.clone()).next().is_some() {
        found.ambiguous += 1;
        return;
    }
    let aborted =
        index.claims(version.clone()).map(|(_, t)| t).find(|&t| index.fates[t as usize] == Fate::Aborted);
    for (_, reader) in index.readers(version) {
        match aborted {
            Some(writer) => found.add(Kind::G1a, || Direct {
                edges: read_from(writer, reader),
                ..direct(Kind::G1a, vec![writer, reader], "read what an aborted transaction wrote".into())
            }),
            None => found.add(Kind::UnwrittenRead, || {
                direct(Kind::UnwrittenRead, vec![reader], "read a version that nobody wrote".into())
            }),
        }
    }
}

/// Reads of a version with another payload than it was given, by its writer or, of the initial one, by the load. Where two wrote it, which
/// is an anomaly by itself, either may have been read. Where nobody tells what records began with, all that read it must have read the same.
fn torn_reads(index: &Index, version: Range<usize>, loaded: Option<Digest>, found: &mut Findings) {
    let item = index.items[version.start];
    let digest = |(place, _): (usize, u32)| index.items[place].digest;
    let mut readers = index.readers(version.clone()).filter(|&reader| digest(reader) != 0).peekable();
    let Some(&first) = readers.peek() else { return };
    let fresh = Some(item.version) == index.initial_version;
    let loaded = fresh.then(|| loaded.map_or(digest(first), Digest::number));
    let given = || index.writers(version.clone()).map(digest).chain(loaded);
    if given().any(|given| given == 0) {
        return;
    }
    let Some(left) = given().next() else { return };
    for (place, reader) in readers {
        let seen = index.items[place].digest;
        if given().any(|given| given == seen) {
            continue;
        }
        found.add(Kind::TornRead, || {
            let writer = index.writers(version.clone()).next().map(|(_, txn)| txn);
            let who = if writer.is_some() { "its writer" } else { "the load" };
            let on = Conflict {
                table: item.table,
                key: item.key,
                from_version: item.version,
                to_version: item.version,
            };
            Direct {
                kind: Kind::TornRead,
                table: item.table,
                key: item.key,
                version: item.version,
                txns: writer.into_iter().chain([reader]).collect(),
                edges: writer.map(|writer| (writer, reader, Dependency::Wr, on)).into_iter().collect(),
                detail: format!("read a payload of digest {seen:06x} where {who} left one of {left:06x}"),
            }
        });
    }
}

/// Transactions against their own program order. Returns which of them wrote some record at two versions.
fn within_transactions(history: &History, index: &Index, found: &mut Findings) -> Vec<bool> {
    let mut rewrites = vec![false; history.txns().len()];
    let mut sorted: Vec<(u32, u64, u32)> = Vec::new();
    for (position, txn) in history.txns().iter().enumerate() {
        let ops = history.ops(txn);
        if ops.len() < 2 || !index.active(position as u32) {
            continue;
        }
        sorted.clear();
        sorted.extend(ops.iter().zip(0..).map(|(op, n)| (op.table, op.key, n)));
        sorted.sort_unstable();
        for record in sorted.chunk_by(|a, b| (a.0, a.1) == (b.0, b.1)) {
            if record.len() > 1 {
                rewrites[position] |= one_record(ops, record, position as u32, found);
            }
        }
    }
    rewrites
}

/// What one transaction did to one record, in program order. Returns whether it wrote two versions.
fn one_record(ops: &[Op], record: &[(u32, u64, u32)], txn: u32, found: &mut Findings) -> bool {
    let mut own: Option<u64> = None;
    let mut rewrote = false;
    let steps = || record.iter().map(|&(_, _, n)| ops[n as usize]);
    let direct = |kind, op: Op, detail| Direct {
        kind,
        table: op.table,
        key: op.key,
        version: op.version,
        txns: vec![txn],
        edges: Vec::new(),
        detail,
    };
    for op in steps() {
        match (op.kind, own) {
            (OpKind::Write, Some(last)) => {
                rewrote |= op.version != last;
                if op.version < last {
                    let detail = format!("installed this version after its own version {last}");
                    found.add(Kind::NonMonotonicVersion, || direct(Kind::NonMonotonicVersion, op, detail));
                }
                own = Some(op.version);
            }
            (OpKind::Write, None) => own = Some(op.version),
            (OpKind::Read, Some(last)) if op.version != last => {
                let detail = format!("read this version although it had itself written version {last}");
                found.add(Kind::Internal, || direct(Kind::Internal, op, detail));
            }
            (OpKind::Read, _) => {}
        }
    }
    // A read from the transaction's own future: the version is there, but was not yet.
    if own.is_some() {
        let before = steps().take_while(|op| op.kind == OpKind::Read);
        let future = before.filter(|r| steps().any(|w| w.kind == OpKind::Write && w.version == r.version));
        for op in future {
            let detail = "read its own write before writing it".to_string();
            found.add(Kind::Internal, || direct(Kind::Internal, op, detail));
        }
    }
    rewrote
}
