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
//! A scan thus reads keys that are written long before it and long after: TPC-C's n-th delivery from a district reads n keys that are gone,
//! and all that will come. These reads are not written down one by one: neighbouring keys that were all read at their initial version, or all
//! as their last removal left them, are one [`Run`]. It says of each key what a read of its own would have said, so no
//! verdict depends on it; [`super::ranges`] tells how runs are judged. A tree over the keys finds where a run ends
//! without a look at each of its keys. What is written one by one is what a scan read of keys between two of their lives: of each a version
//! of its own. So a settled history is as long as what was recorded, and one entry for each scan and each key that was gone from the table
//! then and came back later, or each turn along the keys between those that were gone for good and those yet to come.
//!
//! Until all that is known, recorders mark such operations by the top bits of their versions, which no version reaches;
//! settling takes the marks away.
//!
//! [`Recorder::read_absent`]: super::Recorder::read_absent
//! [`Recorder::read_range`]: super::Recorder::read_range

use super::history::{History, Key, Op, OpKind, Outcome, Txn};
use super::ranges::{Run, Seen};
use primitives::units::Nanos;
use std::borrow::Cow;
use std::collections::BTreeMap;

/// A read that found nothing.
pub(super) const ABSENT: u64 = 1 << 63;
/// A write that removes.
pub(super) const REMOVED: u64 = 1 << 62;
/// One end of a range.
pub(super) const RANGE: u64 = 1 << 61;
const MARKS: u64 = ABSENT | REMOVED | RANGE;

/// A removal that took effect, or may have.
#[derive(Clone, Copy, Debug)]
struct Removal {
    version: u64,
    invoke: Nanos,
    ret: Nanos,
}

/// A transaction that scanned: what it read of ranges, and what otherwise, in order.
struct Scanner {
    ranges: Vec<(Key, Key)>,
    own: Vec<Key>,
}

impl Scanner {
    fn new(ops: &[Op]) -> Option<Scanner> {
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
        Some(Scanner { ranges, own })
    }

    /// Whether it had another way than a scan to know the key.
    fn touched(&self, key: Key) -> bool {
        self.own.binary_search(&key).is_ok()
    }
}

/// When the removals of some keys were.
#[derive(Clone, Copy)]
struct Span {
    /// The earliest beginning of a removal.
    invoke: u64,
    /// The earliest end of one.
    first: u64,
    /// The latest end of one.
    last: u64,
}

impl Span {
    const NONE: Span = Span { invoke: u64::MAX, first: u64::MAX, last: 0 };

    /// Those of one key, of which `newest` is the last version. It is not gone in the end if that is no removal's.
    fn of(newest: u64, removals: &[Removal]) -> Span {
        let gone = removals.last().is_some_and(|r| r.version == newest);
        let rets = || removals.iter().map(|r| r.ret.0);
        Span {
            invoke: removals.iter().map(|r| r.invoke.0).min().unwrap_or(u64::MAX),
            first: rets().min().unwrap_or(u64::MAX),
            last: if gone { rets().max().unwrap_or(u64::MAX) } else { u64::MAX },
        }
    }

    fn and(self, other: Span) -> Span {
        Span {
            invoke: self.invoke.min(other.invoke),
            first: self.first.min(other.first),
            last: self.last.max(other.last),
        }
    }

    /// Whether a scan read all the keys so.
    fn all(self, seen: Seen, scan: &Txn) -> bool {
        match seen {
            Seen::Last => self.last < scan.invoke.0,
            // The scan of a transaction in doubt is open for ever, and still before what never comes.
            Seen::Initial => self.invoke > scan.ret.0.min(u64::MAX - 1) && self.first >= scan.invoke.0,
        }
    }
}

/// What is written in a history.
struct Written {
    /// In order, with their removals by version.
    keys: Vec<(Key, Vec<Removal>)>,
    /// A heap over the keys: below node `n` are `2n` and `2n + 1`, and the keys are its last row.
    spans: Vec<Span>,
    initial: u64,
}

impl History {
    /// The history with all reads of what was not there turned into reads of versions. Those of scans stay together, where a history has
    /// an initial version, and [`History::one_by_one`] tells them apart.
    pub fn settled(mut self) -> History {
        let marked = |op: &Op| op.version & MARKS != 0;
        if !self.txns().iter().any(|txn| self.ops(txn).iter().any(marked)) {
            return self;
        }
        let written = Written::of(&self);
        let mut position = 0;
        let mut runs = self.runs().to_vec();
        self.map_ops(|txn, ops, out| {
            written.settle(position, txn, ops, out, &mut runs);
            position += 1;
        });
        runs.sort_by_key(|run| run.txn);
        self.set_runs(runs);
        // Without an initial version, to have read it is to have read what nobody wrote: for each key by itself.
        match self.initial_version() {
            Some(_) => self,
            // Where they are more than any history holds they go unreported.
            None => self.one_by_one(usize::MAX).map(Cow::into_owned).unwrap_or(self),
        }
    }
}

impl Written {
    fn of(history: &History) -> Written {
        let mut last: BTreeMap<Key, (u64, Vec<Removal>)> = BTreeMap::new();
        for txn in history.txns().iter().filter(|txn| !matches!(txn.outcome, Outcome::Aborted(_))) {
            for op in history.ops(txn).iter().filter(|op| op.kind == OpKind::Write) {
                let version = op.version & !MARKS;
                let (newest, removals) = last.entry(op.record()).or_default();
                *newest = version.max(*newest);
                if op.version & REMOVED != 0 {
                    removals.push(Removal { version, invoke: txn.invoke, ret: txn.ret });
                }
            }
        }
        let row = last.len().next_power_of_two();
        let mut spans = vec![Span::NONE; 2 * row];
        let mut keys = Vec::with_capacity(last.len());
        for (span, (key, (newest, mut removals))) in spans[row..].iter_mut().zip(last) {
            removals.sort_unstable_by_key(|r| r.version);
            *span = Span::of(newest, &removals);
            keys.push((key, removals));
        }
        for node in (1..row).rev() {
            spans[node] = spans[2 * node].and(spans[2 * node + 1]);
        }
        Written { keys, spans, initial: history.initial_version().unwrap_or(0) }
    }

    /// The last removal up to a version, or the initial version.
    fn absent(&self, key: Key, floor: u64) -> u64 {
        let place = self.keys.binary_search_by_key(&key, |&(key, _)| key);
        let removals = place.map_or(&[][..], |at| &self.keys[at].1);
        let last = removals.iter().take_while(|r| r.version <= floor).last();
        last.map_or(self.initial, |r| r.version)
    }

    fn settle(&self, position: u32, txn: &Txn, ops: &[Op], out: &mut Vec<Op>, runs: &mut Vec<Run>) {
        for op in ops.iter().filter(|op| op.version & RANGE == 0) {
            let version = op.version & !MARKS;
            let version = if op.version & ABSENT == 0 { version } else { self.absent(op.record(), version) };
            out.push(Op { version, ..*op });
        }
        let Some(scanner) = Scanner::new(ops) else { return };
        for &range in &scanner.ranges {
            self.scanned(txn, &scanner, range, out, |seen, from, to| {
                runs.push(Run { txn: position, table: from.table, from: from.key, to: to.key, seen });
            });
        }
    }

    /// What was read of the keys of a range that were not touched otherwise, as runs and, of keys between two of their lives, as reads.
    fn scanned(
        &self,
        txn: &Txn,
        scanner: &Scanner,
        (from, to): (Key, Key),
        out: &mut Vec<Op>,
        mut emit: impl FnMut(Seen, Key, Key),
    ) {
        let mut at = self.keys.partition_point(|&(key, _)| key < from);
        let end = at + self.keys[at..].partition_point(|&(key, _)| key <= to);
        // What a run is of, and its first key. It goes on behind keys that are known by themselves, and not behind what nothing is known of.
        let mut run: Option<(Seen, usize)> = None;
        while at < end {
            let key = self.keys[at].0;
            if !scanner.touched(key) {
                let seen = self.seen(at, txn);
                let version = if seen.is_none() { self.between(at, txn) } else { None };
                out.extend(version.map(|version| Op::read(key, version)));
                let over = run.filter(|&(of, _)| version.is_none() && seen != Some(of));
                if let Some((of, start)) = over {
                    emit(of, self.keys[start].0, self.keys[at - 1].0);
                    run = None;
                }
                run = run.or(seen.map(|seen| (seen, at)));
            }
            at = match run {
                Some((of, _)) => self.first_not(of, txn, at + 1),
                None => at + 1,
            };
        }
        if let Some((of, start)) = run {
            emit(of, self.keys[start].0, self.keys[end - 1].0);
        }
    }

    /// Whether a scan that read the key as absent is before all its removals, or behind them for good.
    fn seen(&self, at: usize, scan: &Txn) -> Option<Seen> {
        let span = self.spans[self.spans.len() / 2 + at];
        [Seen::Last, Seen::Initial].into_iter().find(|&seen| span.all(seen, scan))
    }

    /// The version that a scan read between two removals of a key, or behind the last where it was written again.
    fn between(&self, at: usize, scan: &Txn) -> Option<u64> {
        let removals = &self.keys[at].1;
        let overlap = removals.iter().any(|r| r.ret >= scan.invoke && r.invoke <= scan.ret);
        let last = removals.iter().rfind(|r| r.ret < scan.invoke);
        if overlap { None } else { Some(last.map_or(self.initial, |r| r.version)) }
    }

    /// The first key from `at` on that the transaction did not read so; what is behind all keys if there is none.
    fn first_not(&self, seen: Seen, txn: &Txn, at: usize) -> usize {
        let row = self.spans.len() / 2;
        if at >= self.keys.len() {
            return at;
        }
        let mut node = row + at;
        while node > 0 {
            if !self.spans[node].all(seen, txn) {
                while node < row {
                    node *= 2;
                    node += usize::from(self.spans[node].all(seen, txn));
                }
                return (node - row).min(self.keys.len());
            }
            // Up from where all is looked at, and to the right.
            while node % 2 == 1 {
                node /= 2;
            }
            node += usize::from(node > 0);
        }
        self.keys.len()
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

    impl History {
        fn settle(self, lean: bool) -> History {
            if lean { self.settled() } else { exactly(self) }
        }
    }

    /// Settling as it is defined: each key that a scan read is looked at, and written down.
    fn exactly(mut history: History) -> History {
        let written = Written::of(&history);
        history.map_ops(|txn, ops, out| {
            for op in ops.iter().filter(|op| op.version & RANGE == 0) {
                let version = op.version & !MARKS;
                let absent = op.version & ABSENT != 0;
                out.push(Op {
                    version: if absent { written.absent(op.record(), version) } else { version },
                    ..*op
                });
            }
            let Some(scanner) = Scanner::new(ops) else { return };
            for &(from, to) in &scanner.ranges {
                let within = written.keys.iter().filter(|(key, _)| (from..=to).contains(key));
                for (key, removals) in within.filter(|(key, _)| !scanner.touched(*key)) {
                    if !removals.iter().any(|r| r.ret >= txn.invoke && r.invoke <= txn.ret) {
                        let last = removals.iter().rfind(|r| r.ret < txn.invoke);
                        out.push(Op::read(*key, last.map_or(written.initial, |r| r.version)));
                    }
                }
            }
        });
        history
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

    /// Four sessions that insert, remove, update and scan anywhere in a small table, keys coming back now and then, each at one moment within
    /// its interval; some scans miss a key, or come too late, and some reads are too old.
    fn wild(seed: u64) -> History {
        use rand::{RngExt, SeedableRng};
        let mut rng = rand_xoshiro::Xoshiro256PlusPlus::seed_from_u64(seed);
        let mut recorders: Vec<Recorder> = (0..4).map(Recorder::new).collect();
        let mut free = [0u64; 4];
        let keys = rng.random_range(3..14u64);
        // Version, and whether there is a record; and what was so some transactions ago.
        let mut now: Vec<(u64, bool)> = vec![(1, false); keys as usize];
        let mut tallies = [1u64; 2];
        let mut past = vec![now.clone()];
        let (wrong, returns) = (rng.random_range(0..3) == 0, rng.random_range(0..3) == 0);
        for n in 1..rng.random_range(8..30u64) {
            let session = rng.random_range(0..4);
            let begin = free[session].max(n * 10 - rng.random_range(0..25u64.min(n * 10)));
            let r = &mut recorders[session];
            r.begin(Nanos(begin));
            let old = wrong && rng.random_range(0..8) == 0;
            let view = if old {
                past[past.len().saturating_sub(rng.random_range(1..5))].clone()
            } else {
                now.clone()
            };
            let at = |key| Key { table: 0, key };
            for _ in 0..rng.random_range(0..3) {
                let from = rng.random_range(0..keys);
                let to = rng.random_range(from..keys + 1);
                let missed =
                    if wrong && rng.random_range(0..8) == 0 { rng.random_range(0..keys) } else { keys };
                r.read_range(0, from, to);
                for key in (from..=to.min(keys - 1)).filter(|&key| key != missed) {
                    if view[key as usize].1 {
                        r.read(at(key), view[key as usize].0);
                    }
                }
            }
            let before = (now.clone(), tallies);
            for _ in 0..rng.random_range(0..3) {
                let key = rng.random_range(0..keys);
                let (version, there) = view[key as usize];
                if now[key as usize].0 != version || (version > 1 && !there && !returns) {
                    continue;
                }
                let cell = &mut now[key as usize];
                match there {
                    false => {
                        r.read_absent(at(key), version);
                        r.write(at(key), version + 1);
                        *cell = (version + 1, true);
                    }
                    true => {
                        r.read(at(key), version);
                        if rng.random_range(0..3) > 0 {
                            r.delete(at(key), version + 1);
                            *cell = (version + 1, false);
                        } else {
                            r.write(at(key), version + 1);
                            *cell = (version + 1, true);
                        }
                    }
                }
                break;
            }
            if rng.random() {
                let tally = rng.random_range(0..2usize);
                let back = u64::from(wrong && rng.random_range(0..6) == 0);
                r.read(Key { table: 1, key: tally as u64 }, (tallies[tally] - back).max(1));
                if rng.random() {
                    tallies[tally] += 1;
                    r.write(Key { table: 1, key: tally as u64 }, tallies[tally]);
                }
            }
            free[session] = (n * 10 + rng.random_range(0..25)).max(begin + 1);
            match rng.random_range(0..20) {
                0 => {
                    (now, tallies) = before;
                    r.abort("lock", Nanos(free[session]));
                }
                1 => r.in_doubt(),
                _ => r.commit(Nanos(free[session])),
            }
            free[session] += 1;
            past.push(now.clone());
        }
        History::merge(recorders, Some(1))
    }

    /// What stands for a verdict, with the shape of its witness: who depends on whom by what may differ where there are several.
    fn told(h: &History, level: Level) -> Option<(crate::verify::Kind, u64, usize)> {
        let anomaly = check(h, level).anomaly?;
        Some((anomaly.kind, anomaly.occurrences, anomaly.cycle.edges.len()))
    }

    /// All dependencies that a history has, as far as a witness may name them.
    fn holds(edge: &crate::verify::Edge, h: &History) -> bool {
        use crate::verify::Dependency;
        let of = |id| h.txns().iter().find(|t| t.id == id).expect("it is of the history");
        let (from, to) = (of(edge.from), of(edge.to));
        let Some(on) = edge.on else { return from.ret < to.invoke };
        let key = Key { table: on.table, key: on.key };
        let (read, wrote) = (
            |t, version| h.ops(t).contains(&Op::read(key, version)),
            |t, version| h.ops(t).contains(&Op::write(key, version)),
        );
        match edge.dependency {
            Dependency::Ww => wrote(from, on.from_version) && wrote(to, on.to_version),
            Dependency::Wr => wrote(from, on.from_version) && read(to, on.to_version),
            _ => read(from, on.from_version) && wrote(to, on.to_version),
        }
    }

    #[test]
    fn runs_say_what_reads_of_each_key_would() {
        let (mut seen, mut shorter, mut cycles) = (std::collections::BTreeMap::new(), 0, 0);
        for seed in 0..3000 {
            let h = wild(seed);
            let (lean, full) = (h.clone().settled(), exactly(h));
            shorter += u64::from(lean.op_count() + lean.runs().len() < full.op_count());
            // Written down one by one they are the same reads.
            let whole = lean.one_by_one(usize::MAX).expect("few");
            for (a, b) in whole.txns().iter().zip(full.txns()) {
                let reads = |h: &History, txn| {
                    let mut ops: Vec<_> =
                        h.ops(txn).iter().map(|op| (op.record(), op.version, op.kind as u8)).collect();
                    ops.sort_unstable();
                    ops.dedup();
                    ops
                };
                assert_eq!(reads(&whole, a), reads(&full, b), "{seed}");
            }
            let mut disk = Vec::new();
            crate::verify::format::write(&lean, &mut disk).expect("memory takes all");
            let again = crate::verify::format::read(&disk).expect("just written");
            assert_eq!(again.runs(), lean.runs(), "{seed}");
            for level in Level::ALL {
                assert_eq!(told(&lean, level), told(&full, level), "{seed} {level}");
                assert_eq!(told(&again, level), told(&full, level), "{seed} {level}");
                if let Some(anomaly) = check(&lean, level).anomaly {
                    *seen.entry(anomaly.kind).or_insert(0) += 1;
                    let edges = &anomaly.cycle.edges;
                    assert!(edges.iter().all(|e| holds(e, &full)), "{seed} {level}: {anomaly}");
                    let scanned = |e: &crate::verify::Edge| !holds(e, &lean);
                    cycles += u64::from(edges.iter().any(scanned));
                }
            }
        }
        assert!(shorter > 1000, "{shorter} were shortened");
        assert!(cycles > 300, "{cycles} witnesses go through a run");
        assert!(seen.len() >= 4 && seen.values().all(|&n| n > 10), "{seen:?}");
    }

    /// Transactions each of which scans a whole table that grows by it, and takes the oldest record there is.
    fn growing(txns: u64, kept: u64) -> History {
        let at = |key| Key { table: 0, key };
        let recorders = (0..txns).map(|n| {
            let mut r = Recorder::new(n as u32);
            r.begin(Nanos(n * 100));
            r.read_range(0, 0, u64::MAX);
            let oldest = n.saturating_sub(kept);
            (oldest..n).for_each(|key| r.read(at(key), 2));
            if n >= kept {
                r.delete(at(oldest), 3);
            }
            r.write(at(n), 2);
            // Reads of its neighbours overlap it.
            r.commit(Nanos(n * 100 + 250));
            r
        });
        History::merge(recorders, Some(1))
    }

    #[test]
    fn scans_of_what_comes_and_goes_cost_a_logarithm_each() {
        let sizes = |n: u64| {
            let h = growing(n, 3).settled();
            let index = super::super::index::Index::build(&h);
            let graph = super::super::graph::Graph::build(&index);
            assert!(check(&h, Level::StrictSerializable).passed());
            let (ops, runs) = (h.op_count() as u64, h.runs().len() as u64);
            assert!(ops < 8 * n && runs < 3 * n, "{n} transactions: {ops} operations, {runs} runs");
            assert!(graph.nodes() as u64 <= 3 * n, "{n} transactions: {} nodes", graph.nodes());
            graph.edge_count() as u64
        };
        let (small, large) = (sizes(1000), sizes(16_000));
        // One by one they would be 128 million.
        assert!(large < 16_000 * 50, "{large} edges");
        assert!(large < small * 16 * 3 / 2, "{small} edges grew to {large}");
        let most = 1_000_000;
        let error = growing(16_000, 3).settled().one_by_one(most).expect_err("too many");
        assert!(error.reads > 16_000 * 15_000, "{error}");
    }
}
