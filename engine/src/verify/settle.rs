//! Reading what is not there, as reading a version.
//!
//! A record that is absent has a version, too: that of its last removal, or the initial one. A removal is a write of the version
//! it leaves behind, so the checker needs to know nothing of inserts and deletes: who finds nothing reads that version. But while a
//! transaction runs, the version is not known to it. It knows less:
//!
//! - *Looking for a key* ([`Recorder::read_absent`]) tells the version at which the last record of the key's index chain was
//!   removed, the floor. All later versions of the key are beyond the floor, and all removals of it before are not. So what was
//!   read is the latest removal up to the floor, or the initial version: exact.
//! - *Scanning a range* ([`Recorder::read_range`]) finds some keys and thereby reads all others of the range as absent. Those are
//!   the keys of the range that are written anywhere in the history. Of a key that nobody removes, the initial version was read.
//!   Of one that was removed it is the last removal that ended before the scan's transaction began, or the initial version if there is
//!   none, as long as no removal of the key and the scanning transaction overlap in time; else nothing can be said, and
//!   nothing is recorded: a phantom among those is missed by the checker, never invented.
//!
//! Until all that is known, recorders mark such operations by the top bits of their versions, which no version reaches;
//! settling takes the marks away.
//!
//! [`Recorder::read_absent`]: super::Recorder::read_absent
//! [`Recorder::read_range`]: super::Recorder::read_range

use super::history::{History, Key, Op, OpKind, Outcome, Txn};
use primitives::units::Nanos;
use std::collections::BTreeMap;

/// A read that found nothing.
pub(super) const ABSENT: u64 = 1 << 63;
/// A write that removes.
pub(super) const REMOVED: u64 = 1 << 62;
/// One end of a range.
pub(super) const RANGE: u64 = 1 << 61;
const MARKS: u64 = ABSENT | REMOVED | RANGE;

/// A removal that took effect, or may have.
struct Removal {
    version: u64,
    invoke: Nanos,
    ret: Nanos,
}

impl History {
    /// The history with all reads of what was not there turned into reads of versions.
    pub fn settled(mut self) -> History {
        let marked = |op: &Op| op.version & MARKS != 0;
        if !self.txns().iter().any(|txn| self.ops(txn).iter().any(marked)) {
            return self;
        }
        // Every key that is written, with its removals.
        let mut written: BTreeMap<Key, Vec<Removal>> = BTreeMap::new();
        for txn in self.txns().iter().filter(|txn| !matches!(txn.outcome, Outcome::Aborted(_))) {
            for op in self.ops(txn).iter().filter(|op| op.kind == OpKind::Write) {
                let removals = written.entry(op.record()).or_default();
                if op.version & REMOVED != 0 {
                    removals.push(Removal { version: op.version & !MARKS, invoke: txn.invoke, ret: txn.ret });
                }
            }
        }
        written.values_mut().for_each(|removals| removals.sort_unstable_by_key(|r| r.version));
        let initial = self.initial_version().unwrap_or(0);
        self.map_ops(|txn, ops, out| settle(txn, ops, &written, initial, out));
        self
    }
}

fn settle(txn: &Txn, ops: &[Op], written: &BTreeMap<Key, Vec<Removal>>, initial: u64, out: &mut Vec<Op>) {
    let mut ends = ops.iter().filter(|op| op.kind == OpKind::Read && op.version & RANGE != 0);
    let mut ranges = Vec::new();
    while let (Some(from), Some(to)) = (ends.next(), ends.next()) {
        ranges.push((from.record(), to.record()));
    }
    for op in ops.iter().filter(|op| op.version & RANGE == 0) {
        let version = op.version & !MARKS;
        let version = if op.version & ABSENT == 0 {
            version
        } else {
            let removals = written.get(&op.record()).map_or(&[][..], Vec::as_slice);
            let last = removals.iter().take_while(|r| r.version <= version).last();
            last.map_or(initial, |r| r.version)
        };
        out.push(Op { version, ..*op });
    }
    for (from, to) in ranges {
        if from > to {
            continue;
        }
        for (&key, removals) in written.range(from..=to) {
            if ops.iter().any(|op| op.version & RANGE == 0 && op.record() == key) {
                continue;
            }
            let overlap = removals.iter().any(|r| r.ret >= txn.invoke && r.invoke <= txn.ret);
            if !overlap {
                let last = removals.iter().rfind(|r| r.ret < txn.invoke);
                out.push(Op::read(key, last.map_or(initial, |r| r.version)));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verify::{Level, Recorder, check};

    const X: Key = Key { table: 0, key: 5 };

    /// Sessions one after the other in time, each with one transaction.
    fn history(scripts: &[&dyn Fn(&mut Recorder)]) -> History {
        let recorders = scripts.iter().enumerate().map(|(n, script)| {
            let mut recorder = Recorder::new(n as u32);
            recorder.begin(Nanos(n as u64 * 100));
            script(&mut recorder);
            recorder.commit(Nanos(n as u64 * 100 + 50));
            recorder
        });
        History::merge(recorders, Some(1)).settled()
    }

    fn passes(history: &History) -> bool {
        check(history, Level::StrictSerializable).passed()
    }

    #[test]
    fn absence_is_the_last_removal_up_to_the_floor() {
        let insert = |r: &mut Recorder| {
            r.read_absent(X, 4);
            r.write(X, 5);
        };
        let remove = |r: &mut Recorder| {
            r.read(X, 5);
            r.delete(X, 6);
        };
        let again = |r: &mut Recorder| {
            r.read_absent(X, 9);
            r.write(X, 10);
        };
        let h = history(&[&insert, &remove, &|r| r.read_absent(X, 8), &again, &|r| r.read(X, 10)]);
        assert!(passes(&h));
        let versions: Vec<u64> = h.txns().iter().flat_map(|t| h.ops(t)).map(|op| op.version).collect();
        assert_eq!(versions, [1, 5, 5, 6, 6, 6, 10, 10]);
        // Nothing was found though it had been inserted, or still though it had been removed.
        assert!(!passes(&history(&[&insert, &|r| r.read_absent(X, 4)])));
        assert!(!passes(&history(&[&insert, &|r| r.read_absent(X, 8)])));
        assert!(!passes(&history(&[&insert, &remove, &|r| r.read(X, 5)])));
    }

    #[test]
    fn a_range_reads_all_its_keys_those_that_are_not_there_too() {
        let at = |key| Key { table: 0, key };
        let insert = |r: &mut Recorder| r.write(at(7), 3);
        let remove = |r: &mut Recorder| r.delete(at(7), 4);
        let nothing = |r: &mut Recorder| r.read_range(0, 0, 9);
        let seen = |r: &mut Recorder| {
            r.read_range(0, 0, 9);
            r.read(at(7), 3);
        };
        assert!(passes(&history(&[&nothing, &insert, &seen, &remove, &nothing])));
        assert!(!passes(&history(&[&insert, &nothing])), "a phantom");
        assert!(!passes(&history(&[&insert, &remove, &seen])));
        assert!(passes(&history(&[&insert, &|r| r.read_range(0, 8, 9), &|r| r.read_range(1, 0, 9)])));
    }

    #[test]
    fn what_overlaps_a_removal_is_left_out() {
        let mut a = Recorder::new(0);
        a.begin(Nanos(10));
        a.read_range(0, 0, 9);
        let mut b = Recorder::new(1);
        b.begin(Nanos(20));
        b.delete(X, 7);
        b.commit(Nanos(30));
        a.commit(Nanos(40));
        let h = History::merge([a, b], Some(1)).settled();
        assert!(h.ops(&h.txns()[0]).is_empty());
        assert!(passes(&h));
    }
}
