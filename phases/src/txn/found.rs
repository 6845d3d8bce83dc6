//! Of a transaction that was ordered before it runs: what it finds on the way, beside the records that it declared.
//!
//! One node finds it, by reading its own records as the transaction comes to them. The others are told, and run the same text
//! on the same values.

use super::{Scan, Txn};
use primitives::verbs::NodeId;

/// How a transaction that was ordered before it runs comes by what it did not declare.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Finding {
    /// Not at all.
    #[default]
    Nothing,
    /// It reads records of this node, the one it runs at.
    At(NodeId),
    /// Another node has read them, and has told.
    Told,
}

/// What was found.
#[derive(Debug, Default)]
pub(super) struct Found {
    finding: Finding,
    /// Records that were declared come before all others.
    declared: usize,
    /// Ranges in the order they were gone through, each with the number of its rows.
    scans: Vec<(Scan, usize)>,
    /// Keys of all these rows.
    keys: Vec<u64>,
    /// How many scans, and rows of them, the transaction has come by that was told of them.
    passed: (usize, usize),
}

impl Found {
    pub(super) fn clear(&mut self) {
        (self.finding, self.declared, self.passed) = (Finding::Nothing, 0, (0, 0));
        self.scans.clear();
        self.keys.clear();
    }
}

impl Txn {
    /// The records touched so far are those that were declared; what else there is, is come by like this.
    pub fn declared(&mut self, finding: Finding) {
        (self.found.finding, self.found.declared) = (finding, self.accesses.len());
    }

    /// How it comes by what it did not declare.
    pub fn finding(&self) -> Finding {
        self.found.finding
    }

    /// How many of its records were declared: the first ones.
    pub fn declared_len(&self) -> usize {
        self.found.declared
    }

    /// The ranges that it has gone through.
    pub fn scans(&self) -> impl Iterator<Item = &Scan> {
        self.found.scans.iter().map(|(scan, _)| scan)
    }

    /// The ranges with the keys of their rows.
    pub(crate) fn scans_found(&self) -> impl Iterator<Item = (&Scan, &[u64])> {
        let mut rest = &self.found.keys[..];
        self.found.scans.iter().map(move |(scan, rows)| {
            let (keys, others) = rest.split_at(*rows);
            rest = others;
            (scan, keys)
        })
    }

    /// Keeps the rows of a scan that has just been gone through, if others are to be told.
    pub(crate) fn keep_scan(&mut self, scan: &Scan) {
        if matches!(self.found.finding, Finding::At(_)) {
            self.found.scans.push((*scan, self.scanned.len()));
            let rows = self.scanned.iter().map(|&at| self.accesses[at as usize].key);
            self.found.keys.extend(rows);
        }
    }

    /// Is told of a scan by who has gone through it; its rows follow.
    pub(crate) fn learn_scan(&mut self, scan: Scan, rows: impl Iterator<Item = u64>) {
        let before = self.found.keys.len();
        self.found.keys.extend(rows);
        self.found.scans.push((scan, self.found.keys.len() - before));
    }

    /// Comes by the next scan that it was told of: its rows are now those scanned. False if that was another one, or has
    /// rows that the transaction was not told of.
    pub(crate) fn pass_scan(&mut self, scan: &Scan) -> bool {
        let (next, first) = self.found.passed;
        let Some(&(_, rows)) = self.found.scans.get(next).filter(|(told, _)| told == scan) else {
            return false;
        };
        self.begin_scan();
        for row in first..first + rows {
            let Some(at) = self.find(scan.table, self.found.keys[row]) else { return false };
            self.add_row(at);
        }
        self.found.passed = (next + 1, first + rows);
        true
    }
}
