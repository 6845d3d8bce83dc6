//! Every version of every record with its writer and readers: one sort of all operations.
//!
//! The sorted array is the version order of Adya §3.1.2 and a map from version to writer at once, without hashing
//! and with 24 bytes an operation.

use super::history::{History, Key, Op, OpKind, Outcome};
use super::ranges::Ranges;
use std::ops::Range;

/// The most operations one check can take: an edge label keeps two of its 32 bits for the kind of dependency.
pub(super) const MAX_OPS: usize = (1 << 30) - 1;

const READ: u32 = 1 << 31;

/// One operation of one transaction. The derived order is by record, then version, writes before reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Item {
    pub table: u32,
    pub key: u64,
    pub version: u64,
    who: u32,
    /// The number of the payload's digest, 0 for none.
    pub digest: u32,
}

impl Item {
    fn new(txn: usize, op: &Op) -> Item {
        let kind = if op.kind == OpKind::Read { READ } else { 0 };
        let Op { table, key, version, digest, .. } = *op;
        Item { table, key, version, who: txn as u32 | kind, digest: digest.number() }
    }

    /// The transaction, as a position in the history.
    pub fn txn(self) -> u32 {
        self.who & !READ
    }

    pub fn record(self) -> Key {
        Key { table: self.table, key: self.key }
    }

    pub fn is_read(self) -> bool {
        self.who & READ != 0
    }

    pub fn same_record(self, other: Item) -> bool {
        (self.table, self.key) == (other.table, other.key)
    }

    pub fn same_version(self, other: Item) -> bool {
        self.version == other.version && self.same_record(other)
    }
}

/// What the checker takes a transaction to have done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// Took effect.
    Committed,
    /// Did not.
    Aborted,
    /// In doubt, and nobody saw it.
    InDoubt,
}

/// All operations of a history that can matter, sorted.
pub(super) struct Index {
    pub items: Vec<Item>,
    /// By position in the history.
    pub fates: Vec<Fate>,
    pub initial_version: Option<u64>,
    /// Transactions in doubt that someone read from.
    pub in_doubt_committed: u64,
    /// What scans read of stretches of absent keys.
    pub ranges: Ranges,
}

impl Index {
    pub fn build(history: &History) -> Index {
        let txns = history.txns();
        assert!(txns.len() < READ as usize, "{} transactions are more than 2^31", txns.len());
        assert!(history.op_count() <= MAX_OPS, "{} operations are more than {MAX_OPS}", history.op_count());
        let fate = |outcome| match outcome {
            Outcome::Committed => Fate::Committed,
            Outcome::Aborted(_) => Fate::Aborted,
            Outcome::Unknown => Fate::InDoubt,
        };
        let fates: Vec<Fate> = txns.iter().map(|t| fate(t.outcome)).collect();
        let mut items = Vec::with_capacity(history.op_count());
        for (position, txn) in txns.iter().enumerate() {
            let aborted = fates[position] == Fate::Aborted;
            // What an aborted transaction saw is nobody's business; what it wrote must not be seen.
            let ops = history.ops(txn).iter().filter(|op| !aborted || op.kind == OpKind::Write);
            items.extend(ops.map(|op| Item::new(position, op)));
        }
        items.sort_unstable();
        let initial_version = history.initial_version();
        let ranges = Ranges::default();
        let mut index = Index { items, fates, initial_version, in_doubt_committed: 0, ranges };
        index.resolve_doubt(history);
        index.ranges = Ranges::of(history, &index);
        index
    }

    /// Whether the transaction took effect.
    pub fn active(&self, txn: u32) -> bool {
        self.fates[txn as usize] == Fate::Committed
    }

    /// The items of one version of one record, from `start` on.
    pub fn version_at(&self, start: usize) -> Range<usize> {
        let first = self.items[start];
        let len = self.items[start..].iter().take_while(|i| i.same_version(first)).count();
        start..start + len
    }

    /// The transactions in effect that wrote a version, each once. More than one is an anomaly.
    pub fn writers(&self, version: Range<usize>) -> impl Iterator<Item = (usize, u32)> + '_ {
        let mut last = None;
        self.claims(version).filter(move |&(_, txn)| self.active(txn) && last.replace(txn) != Some(txn))
    }

    /// All writes of a version, whatever became of them.
    pub fn claims(&self, version: Range<usize>) -> impl Iterator<Item = (usize, u32)> + '_ {
        version.take_while(|&i| !self.items[i].is_read()).map(|i| (i, self.items[i].txn()))
    }

    /// The transactions in effect that read a version.
    pub fn readers(&self, version: Range<usize>) -> impl Iterator<Item = (usize, u32)> + '_ {
        version
            .map(|i| (i, self.items[i]))
            .filter(|(_, item)| item.is_read() && self.active(item.txn()))
            .map(|(i, item)| (i, item.txn()))
    }

    /// A transaction in doubt took effect iff one that took effect read from it; to leave the others out is safe,
    /// because a serial order with an unread transaction stays one without it.
    fn resolve_doubt(&mut self, history: &History) {
        if !self.fates.contains(&Fate::InDoubt) {
            return;
        }
        let mut fresh = Vec::new();
        let mut at = 0;
        while at < self.items.len() {
            let version = self.version_at(at);
            at = version.end;
            fresh.extend(self.settle(version));
        }
        while let Some(txn) = fresh.pop() {
            for op in history.ops(&history.txns()[txn as usize]).iter().filter(|op| op.kind == OpKind::Read) {
                let wanted = (op.table, op.key, op.version);
                let start = self.items.partition_point(|i| (i.table, i.key, i.version) < wanted);
                if start < self.items.len() {
                    fresh.extend(self.settle(self.version_at(start)));
                }
            }
        }
    }

    /// If a version was read and only one transaction can have written it, that transaction took effect.
    ///
    /// With two candidates in doubt either may be meant: neither is blamed, and the version stays without a writer.
    fn settle(&mut self, version: Range<usize>) -> Option<u32> {
        let only = self.candidate(version.clone())?;
        self.readers(version).next()?;
        self.fates[only as usize] = Fate::Committed;
        self.in_doubt_committed += 1;
        Some(only)
    }

    fn candidate(&self, version: Range<usize>) -> Option<u32> {
        let known = Some(self.items[version.start].version) == self.initial_version;
        if known || self.writers(version.clone()).next().is_some() {
            return None;
        }
        let mut doubtful = self.doubtful(version);
        let first = doubtful.next()?;
        doubtful.all(|txn| txn == first).then_some(first)
    }

    /// Transactions still in doubt that would have written a version.
    pub fn doubtful(&self, version: Range<usize>) -> impl Iterator<Item = u32> + '_ {
        self.claims(version).map(|(_, txn)| txn).filter(|&txn| self.fates[txn as usize] == Fate::InDoubt)
    }
}
