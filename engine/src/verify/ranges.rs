//! Stretches of absent keys that a scan read: as many reads as there are keys, in the space of one.
//!
//! A scan that found nothing in a range read the absence of every key that the history writes there, also much later: reads
//! and anti-dependencies as many as scans times keys. None of them may be left out, for nothing but real time orders the scan
//! before those who write there later, and not every level heeds real time. So they are neither written down nor drawn one by
//! one. Settling ([`super::settle`]) leaves a [`Run`] for each stretch of neighbouring keys of which the scan read the
//! same: that nothing had been there yet, or what was left in the end. And the graph has auxiliary nodes: over the records in the order
//! of their keys stands a binary tree through which a transaction reaches the first writers of any stretch by twice the logarithm of the
//! number of records in edges, and another one, its edges the other way, through which the last writers of a stretch reach the transaction.
//!
//! - A path from a transaction through the first tree to another one is an anti-dependency, and each anti-dependency of
//!   a run is such a path; likewise read dependencies through the second tree. So transactions reach each other as if all edges
//!   were there. All edges of a tree are of one kind, so that holds for each choice of kinds, too.
//! - No cycle is in a tree alone, nor has it one transaction only: who wrote a record that its run would cover has touched it, and
//!   what a transaction touched by itself is not of its runs.
//! - What walks the graph by steps takes a path through a tree for one step ([`super::cycle`]), so that cycles are as
//!   short, and told as plainly, as if all edges were there.

use super::graph::Label;
use super::history::{History, Key, Op, OpKind, Outcome};
use super::index::{Index, MAX_OPS};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::Range;

/// What a scan read of the keys of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Seen {
    /// The initial version.
    Initial,
    /// The last version, which removed the record for good.
    Last,
}

/// A transaction read the same of all keys of a stretch that the history writes, but for those it reads or writes by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Run {
    /// Position of the transaction in the history.
    pub txn: u32,
    pub table: u32,
    pub from: u64,
    pub to: u64,
    pub seen: Seen,
}

impl Run {
    /// Where its keys are among sorted ones.
    fn within(&self, records: usize, key: impl Fn(usize) -> Key) -> Range<usize> {
        let below = |bound: Key, with: bool| {
            let (mut low, mut high) = (0, records);
            while low < high {
                let middle = low.midpoint(high);
                if key(middle) < bound || (with && key(middle) == bound) {
                    low = middle + 1
                } else {
                    high = middle
                }
            }
            low
        };
        let start = below(Key { table: self.table, key: self.from }, false);
        start..below(Key { table: self.table, key: self.to }, true).max(start)
    }
}

/// The parts of a transaction's runs between what it touched by itself, each place once.
fn pieces(
    runs: &[Run],
    ops: &[Op],
    records: usize,
    key: impl Fn(usize) -> Key,
    mut emit: impl FnMut(Seen, Range<usize>),
) {
    let mut spans: Vec<(Seen, Range<usize>)> =
        runs.iter().map(|run| (run.seen, run.within(records, &key))).collect();
    spans.sort_unstable_by_key(|(seen, span)| (*seen, span.start));
    let mut touched: Vec<Key> = ops.iter().map(|op| op.record()).collect();
    touched.sort_unstable();
    touched.dedup();
    let mut before = (Seen::Initial, 0);
    for (seen, span) in spans {
        let mut at = if before.0 == seen { span.start.max(before.1) } else { span.start };
        if at >= span.end {
            continue;
        }
        before = (seen, span.end);
        let own = touched.partition_point(|&own| own < key(at));
        for &own in &touched[own..] {
            let place = Run { txn: 0, table: own.table, from: own.key, to: own.key, seen };
            let place = place.within(records, &key);
            if place.start >= span.end {
                break;
            }
            if at < place.start {
                emit(seen, at..place.start);
            }
            at = at.max(place.end);
        }
        if at < span.end {
            emit(seen, at..span.end);
        }
    }
}

/// Runs as the graph needs them.
#[derive(Default)]
pub(super) struct Ranges {
    /// By record that a transaction in effect wrote, in order: the items of its first write and of its last.
    records: Vec<(u32, u32)>,
    /// Who read what of which records.
    pieces: Vec<(u32, Seen, Range<u32>)>,
}

impl Ranges {
    pub fn of(history: &History, index: &Index) -> Ranges {
        if history.runs().is_empty() {
            return Ranges::default();
        }
        let mut records: Vec<(u32, u32)> = Vec::new();
        let mut at = 0;
        while at < index.items.len() {
            let version = index.version_at(at);
            at = version.end;
            let Some((item, _)) = index.writers(version).next() else { continue };
            match records.last_mut() {
                Some((first, last)) if index.items[*first as usize].same_record(index.items[item]) => {
                    *last = item as u32;
                }
                _ => records.push((item as u32, item as u32)),
            }
        }
        let key = |n: usize| index.items[records[n].0 as usize].record();
        let mut parts = Vec::new();
        for runs in history.runs().chunk_by(|a, b| a.txn == b.txn) {
            let txn = runs[0].txn;
            if index.active(txn) {
                let ops = history.ops(&history.txns()[txn as usize]);
                pieces(runs, ops, records.len(), key, |seen, span| {
                    parts.push((txn, seen, span.start as u32..span.end as u32));
                });
            }
        }
        Ranges { records, pieces: parts }
    }

    /// How many pieces were read at the initial version, and at the last.
    pub fn counts(&self) -> [u64; 2] {
        [Seen::Initial, Seen::Last]
            .map(|of| self.pieces.iter().filter(|(_, seen, _)| *seen == of).count() as u64)
    }

    /// How many nodes there are beside the transactions.
    pub fn nodes(&self) -> usize {
        if self.pieces.is_empty() { 0 } else { 2 * self.records.len() }
    }

    /// The trees and who is tied to them; nodes are numbered from `base` on.
    ///
    /// Both are heaps: below node `n` of 1 to `records` are `2n` and `2n + 1`, and what is numbered from `records` on are
    /// the records themselves, for which their writers stand.
    pub fn for_each_edge(&self, index: &Index, base: usize, mut emit: impl FnMut(u32, u32, Label)) {
        if self.pieces.is_empty() {
            return;
        }
        let size = self.records.len();
        let [initial, last] = self.counts().map(|pieces| pieces > 0);
        // Where an edge out of, or into, a node of a tree ends: the node, and the item of the writer that stands for it.
        let first = |node: usize| match node.checked_sub(size) {
            None => ((base + node) as u32, 0),
            Some(record) => {
                let item = self.records[record].0 as usize;
                (index.items[item].txn(), item)
            }
        };
        let final_ = |node: usize| match node.checked_sub(size) {
            None => ((base + size + node) as u32, 0),
            Some(record) => {
                let item = self.records[record].1 as usize;
                (index.items[item].txn(), item)
            }
        };
        for node in 1..size {
            for below in [2 * node, 2 * node + 1] {
                if initial {
                    let (to, item) = first(below);
                    emit((base + node) as u32, to, Label::rw(item));
                }
                if last {
                    let (from, item) = final_(below);
                    emit(from, (base + size + node) as u32, Label::wr(item));
                }
            }
        }
        for (txn, seen, span) in &self.pieces {
            let mut tie = |node: usize| match seen {
                Seen::Initial => {
                    let (to, item) = first(node);
                    emit(*txn, to, Label::rw(item));
                }
                Seen::Last => {
                    let (from, item) = final_(node);
                    emit(from, *txn, Label::wr(item));
                }
            };
            let (mut low, mut high) = (span.start as usize + size, span.end as usize + size);
            while low < high {
                if low % 2 == 1 {
                    tie(low);
                    low += 1;
                }
                if high % 2 == 1 {
                    high -= 1;
                    tie(high);
                }
                (low, high) = (low / 2, high / 2);
            }
        }
    }
}

/// A history would be too long if all were written down.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "its scans read the absence of records {reads} times, and at most {most} are written down one by one"
)]
pub struct TooManyReads {
    /// How many there would be.
    pub reads: u64,
    /// How many there may be.
    pub most: usize,
}

impl History {
    /// The history with each read of a scan an operation of its own, for those who know no others: as many as
    /// scans times keys.
    ///
    /// # Errors
    /// If these were more than `most`. Nothing of the size is built before that is known.
    pub fn one_by_one(&self, most: usize) -> Result<Cow<'_, History>, TooManyReads> {
        if self.runs().is_empty() {
            return Ok(Cow::Borrowed(self));
        }
        let mut last: BTreeMap<Key, u64> = BTreeMap::new();
        for txn in self.txns().iter().filter(|txn| !matches!(txn.outcome, Outcome::Aborted(_))) {
            for op in self.ops(txn).iter().filter(|op| op.kind == OpKind::Write) {
                let newest = last.entry(op.record()).or_default();
                *newest = op.version.max(*newest);
            }
        }
        let records: Vec<(Key, u64)> = last.into_iter().collect();
        let key = |n: usize| records[n].0;
        let mut parts: Vec<(u32, Seen, Range<usize>)> = Vec::new();
        for runs in self.runs().chunk_by(|a, b| a.txn == b.txn) {
            let ops = self.ops(&self.txns()[runs[0].txn as usize]);
            pieces(runs, ops, records.len(), key, |seen, span| parts.push((runs[0].txn, seen, span)));
        }
        let reads = parts.iter().map(|(_, _, span)| span.len() as u64).sum::<u64>();
        let most = most.min(MAX_OPS - self.op_count().min(MAX_OPS));
        if reads > most as u64 {
            return Err(TooManyReads { reads, most });
        }
        let initial = self.initial_version().unwrap_or(0);
        let mut whole = self.clone();
        whole.set_runs(Vec::new());
        let mut parts = parts.into_iter().peekable();
        let mut position = 0;
        whole.map_ops(|_, ops, out| {
            out.extend_from_slice(ops);
            while let Some((_, seen, span)) = parts.next_if(|&(txn, ..)| txn == position) {
                out.extend(records[span].iter().map(|&(key, last)| match seen {
                    Seen::Initial => Op::read(key, initial),
                    Seen::Last => Op::read(key, last),
                }));
            }
            position += 1;
        });
        Ok(Cow::Owned(whole))
    }
}
