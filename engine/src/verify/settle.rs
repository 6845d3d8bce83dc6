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
//! Queues are scanned from their first key, and everything that was ever taken from them lies before what is found: TPC-C's n-th
//! delivery from a district reads n keys that are gone. Of keys that are gone for good most are therefore not written down: if who
//! removed the last of them had seen others gone in a scan of its own, then the dependency on those who removed these leads
//! through it, by reads of versions alone, and a cycle through one is a cycle through the other. So nothing changes for levels
//! that are about cycles, snapshot isolation and above; read atomicity, which is about pairs, may miss a fracture here.
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
#[derive(Clone, Copy)]
struct Removal {
    version: u64,
    invoke: Nanos,
    ret: Nanos,
    /// Position of the transaction in the history.
    by: usize,
}

/// A transaction that scanned: what it read of ranges, and what otherwise, in order.
struct Scanner {
    position: usize,
    invoke: Nanos,
    ranges: Vec<(Key, Key)>,
    own: Vec<Key>,
}

impl Scanner {
    fn new(position: usize, txn: &Txn, ops: &[Op]) -> Option<Scanner> {
        let mut ends = ops.iter().filter(|op| op.kind == OpKind::Read && op.version & RANGE != 0);
        let mut ranges = Vec::new();
        while let (Some(from), Some(to)) = (ends.next(), ends.next()) {
            ranges.push((from.record(), to.record()));
        }
        ranges.retain(|(from, to)| from <= to);
        if ranges.is_empty() {
            return None;
        }
        let mut own: Vec<Key> =
            ops.iter().filter(|op| op.version & RANGE == 0).map(|op| op.record()).collect();
        own.sort_unstable();
        Some(Scanner { position, invoke: txn.invoke, ranges, own })
    }

    /// Whether it had another way than a scan to know the key.
    fn touched(&self, key: Key) -> bool {
        self.own.binary_search(&key).is_ok()
    }

    /// Whether one of its scans of the range `within` saw that removal.
    fn saw(&self, within: (Key, Key), key: Key, removal: Removal) -> bool {
        (within.0..=within.1).contains(&key) && removal.ret < self.invoke && !self.touched(key)
    }
}

/// What is written in a history, and who scanned it.
struct Written {
    /// Keys that were removed once, and not written again: in order.
    gone: Vec<(Key, Removal)>,
    /// All others, with their removals by version.
    others: BTreeMap<Key, Vec<Removal>>,
    /// By position.
    scanners: Vec<Scanner>,
    initial: u64,
    /// Whether reads that others stand for are left out.
    lean: bool,
}

impl History {
    /// The history with all reads of what was not there turned into reads of versions.
    pub fn settled(self) -> History {
        self.settle(true)
    }

    fn settle(mut self, lean: bool) -> History {
        let marked = |op: &Op| op.version & MARKS != 0;
        if !self.txns().iter().any(|txn| self.ops(txn).iter().any(marked)) {
            return self;
        }
        let written = Written::of(&self, lean);
        let mut position = 0;
        self.map_ops(|txn, ops, out| {
            written.settle(position, txn, ops, out);
            position += 1;
        });
        self
    }
}

impl Written {
    fn of(history: &History, lean: bool) -> Written {
        let mut last: BTreeMap<Key, (u64, Vec<Removal>)> = BTreeMap::new();
        let mut scanners = Vec::new();
        for (by, txn) in history.txns().iter().enumerate() {
            scanners.extend(Scanner::new(by, txn, history.ops(txn)));
            if matches!(txn.outcome, Outcome::Aborted(_)) {
                continue;
            }
            for op in history.ops(txn).iter().filter(|op| op.kind == OpKind::Write) {
                let version = op.version & !MARKS;
                let (newest, removals) = last.entry(op.record()).or_default();
                *newest = version.max(*newest);
                if op.version & REMOVED != 0 {
                    removals.push(Removal { version, invoke: txn.invoke, ret: txn.ret, by });
                }
            }
        }
        let mut gone = Vec::new();
        let mut others = BTreeMap::new();
        for (key, (newest, mut removals)) in last {
            match removals[..] {
                [removal] if removal.version == newest => gone.push((key, removal)),
                _ => {
                    removals.sort_unstable_by_key(|r| r.version);
                    others.insert(key, removals);
                }
            }
        }
        Written { gone, others, scanners, initial: history.initial_version().unwrap_or(0), lean }
    }

    fn scanner(&self, position: usize) -> Option<&Scanner> {
        self.scanners.binary_search_by_key(&position, |s| s.position).ok().map(|at| &self.scanners[at])
    }

    /// The last removal up to a version, or the initial version.
    fn absent(&self, key: Key, floor: u64) -> u64 {
        let gone = self.gone.binary_search_by_key(&key, |&(key, _)| key).ok().map(|at| &self.gone[at].1);
        let removals = match gone {
            Some(removal) => std::slice::from_ref(removal),
            None => self.others.get(&key).map_or(&[][..], Vec::as_slice),
        };
        let last = removals.iter().take_while(|r| r.version <= floor).last();
        last.map_or(self.initial, |r| r.version)
    }

    fn settle(&self, position: usize, txn: &Txn, ops: &[Op], out: &mut Vec<Op>) {
        for op in ops.iter().filter(|op| op.version & RANGE == 0) {
            let version = op.version & !MARKS;
            let version = if op.version & ABSENT == 0 { version } else { self.absent(op.record(), version) };
            out.push(Op { version, ..*op });
        }
        let Some(scanner) = self.scanner(position) else { return };
        for &range in &scanner.ranges {
            self.settle_gone(txn, scanner, range, out);
            for (&key, removals) in self.others.range(range.0..=range.1) {
                let overlap = removals.iter().any(|r| r.ret >= txn.invoke && r.invoke <= txn.ret);
                if !overlap && !scanner.touched(key) {
                    let last = removals.iter().rfind(|r| r.ret < txn.invoke);
                    out.push(Op::read(key, last.map_or(self.initial, |r| r.version)));
                }
            }
        }
    }

    /// What a scan read of keys that are gone in the end.
    fn settle_gone(&self, txn: &Txn, scanner: &Scanner, (from, to): (Key, Key), out: &mut Vec<Op>) {
        let start = self.gone.partition_point(|&(key, _)| key < from);
        let len = self.gone[start..].partition_point(|&(key, _)| key <= to);
        let gone = &self.gone[start..start + len];
        // Who removed the last key that was seen to be gone, and its scan of what comes before.
        let last = gone.iter().rfind(|&&(key, removal)| scanner.saw((from, to), key, removal));
        let before = last.filter(|_| self.lean).and_then(|&(_, removal)| {
            let other = self.scanner(removal.by)?;
            let range = other.ranges.iter().find(|(a, b)| (a..=b).contains(&&from))?;
            Some((other, *range))
        });
        for &(key, removal) in gone {
            let told = before.is_some_and(|(other, range)| other.saw(range, key, removal));
            if told || scanner.touched(key) {
                continue;
            }
            if removal.ret < txn.invoke {
                out.push(Op::read(key, removal.version));
            } else if removal.invoke > txn.ret {
                out.push(Op::read(key, self.initial));
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

    /// A queue whose first entries are taken one by one; with `late`, one of those who take has an old view of a record
    /// that each of them writes.
    fn queue(taken: u64, late: Option<u64>) -> History {
        let (tally, at) = (Key { table: 1, key: 0 }, |key| Key { table: 0, key });
        let recorders = (0..taken).map(|n| {
            let mut r = Recorder::new(n as u32 % 3);
            r.begin(Nanos(n * 100));
            r.read_range(0, 0, n);
            r.read(at(n), 1);
            r.delete(at(n), 2);
            let seen = if late == Some(n) { n - 3 } else { n };
            r.read(tally, seen + 1);
            r.write(tally, n + 2);
            r.commit(Nanos(n * 100 + 50));
            r
        });
        History::merge(recorders, Some(1))
    }

    #[test]
    fn who_takes_from_a_queue_reads_its_last_entry_and_not_all_before() {
        let h = queue(200, None);
        let (lean, full) = (h.clone().settle(true), h.settle(false));
        let ops = |h: &History| h.op_count();
        assert!(ops(&lean) < 200 * 6, "{}", ops(&lean));
        assert!(ops(&full) > 200 * 199 / 2, "{}", ops(&full));
        for level in Level::ALL {
            assert!(check(&lean, level).passed() && check(&full, level).passed(), "{level}");
        }
    }

    #[test]
    fn what_is_left_out_changes_no_verdict() {
        let verdict = |h: &History, level| {
            let verdict = check(h, level);
            (verdict.passed(), verdict.anomaly.map(|a| a.kind))
        };
        for late in [5, 17, 199] {
            let h = queue(200, Some(late));
            let (lean, full) = (h.clone().settle(true), h.settle(false));
            for level in Level::ALL {
                assert_eq!(verdict(&lean, level), verdict(&full, level), "{late} {level}");
                let fails = level >= Level::ReadAtomicity;
                assert_eq!(check(&lean, level).passed(), !fails, "{late} {level}");
            }
        }
    }

    /// Four sessions that scan, take and look at once, some of them with views that are too old.
    fn random(seed: u64) -> History {
        use rand::{RngExt, SeedableRng};
        let mut rng = rand_xoshiro::Xoshiro256PlusPlus::seed_from_u64(seed);
        let mut recorders: Vec<Recorder> = (0..4).map(Recorder::new).collect();
        let mut free = [0u64; 4];
        let (mut head, mut tallies) = (0, [1u64; 3]);
        let stale = rng.random_range(0..3) == 0;
        for n in 1..30u64 {
            let session = rng.random_range(0..4);
            let begin = free[session].max(n * 10 - rng.random_range(0..20u64.min(n * 10)));
            let r = &mut recorders[session];
            r.begin(Nanos(begin));
            let from = if rng.random_range(0..3) == 0 { rng.random_range(0..=head) } else { 0 };
            r.read_range(0, from, head + rng.random_range(0..3));
            if rng.random_range(0..3) > 0 {
                r.read(Key { table: 0, key: head }, 1);
                r.delete(Key { table: 0, key: head }, 2);
                head += 1;
            }
            let tally = rng.random_range(0..3);
            let old = if stale && rng.random_range(0..6) == 0 { rng.random_range(0..3) } else { 0 };
            r.read(Key { table: 1, key: tally as u64 }, tallies[tally].saturating_sub(old).max(1));
            if rng.random() {
                tallies[tally] += 1;
                r.write(Key { table: 1, key: tally as u64 }, tallies[tally]);
            }
            free[session] = (n * 10 + rng.random_range(0..20)).max(begin + 1);
            r.commit(Nanos(free[session]));
            free[session] += 1;
        }
        History::merge(recorders, Some(1))
    }

    #[test]
    fn what_is_left_out_changes_no_verdict_on_random_histories_either() {
        let (mut failed, mut fewer) = (0, 0);
        for seed in 0..500 {
            let h = random(seed);
            let (lean, full) = (h.clone().settle(true), h.settle(false));
            fewer += u64::from(lean.op_count() < full.op_count());
            for level in Level::ALL {
                let (lean, full) = (check(&lean, level), check(&full, level));
                // Read atomicity may miss something, and says so nowhere else.
                if level == Level::ReadAtomicity {
                    assert!(lean.passed() || !full.passed(), "{seed}");
                } else {
                    assert_eq!(lean.passed(), full.passed(), "{seed} {level}");
                    failed += u64::from(!full.passed());
                }
                if !lean.passed() && !full.passed() {
                    assert_eq!(lean.anomaly.map(|a| a.kind), full.anomaly.map(|a| a.kind), "{seed} {level}");
                }
            }
        }
        assert!(failed > 100 && fewer > 100, "{failed} failed, {fewer} were shortened");
    }
}
