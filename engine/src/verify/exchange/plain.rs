//! What foreign formats have in common: records and values that are one number each, and an explicit first transaction.

use super::super::direct;
use super::super::format::Problem;
use super::super::history::{History, Key, Op, OpKind, Outcome, Txn};
use super::super::index::{Fate, Index, MAX_OPS};
use super::lists::Disorder;
use primitives::units::Nanos;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// A record's number is `table << TABLE_SHIFT | key`, so table 0 keeps its keys as they are.
const TABLE_SHIFT: u32 = 55;
/// Numbers must fit a signed 64-bit integer: Clojure's and Java's `long`.
const LIMIT: u64 = 1 << 63;

/// The number of a record.
pub(super) fn number(key: Key) -> u64 {
    u64::from(key.table) << TABLE_SHIFT | key.key
}

/// The record of a number.
pub(super) fn record(number: u64) -> Key {
    Key { table: (number >> TABLE_SHIFT) as u32, key: number & ((1 << TABLE_SHIFT) - 1) }
}

/// A history ready to be written: all numbers fit, and each write's version is its own.
pub(super) struct Plain {
    pub history: History,
    pub index: Index,
    /// All records touched, in order.
    pub records: Vec<Key>,
    /// A session that no transaction has.
    pub free_session: u64,
    /// An id that no transaction has.
    pub free_id: u64,
}

impl Plain {
    pub fn of(history: &History) -> Result<Plain, String> {
        let index = Index::build(history);
        if direct::find(history, &index).ambiguous > 0 {
            return Err("a version was read that two transactions in doubt may have written".into());
        }
        let history = with_unique_versions(history, &index)?;
        let index = Index::build(&history);
        let mut records = Vec::new();
        for txn in history.txns() {
            records.extend(history.ops(txn).iter().map(|op| op.record()));
        }
        records.sort_unstable();
        records.dedup();
        let fits = |key: &&Key| key.key >> TABLE_SHIFT != 0 || u64::from(key.table) >= LIMIT >> TABLE_SHIFT;
        if let Some(key) = records.iter().find(fits) {
            return Err(format!(
                "table {} key {}: tables must be below 256 and keys below 2^55",
                key.table, key.key
            ));
        }
        let last = history.txns().iter().map(|t| t.id).max();
        let free_id = last.map_or(Some(0), |id| id.checked_add(1)).filter(|&id| id < LIMIT);
        let free_id = free_id.ok_or("a transaction id is 2^63 - 1 or more")?;
        let late = |t: &&Txn| t.invoke.0 >= LIMIT || (t.ret != Nanos::MAX && t.ret.0 >= LIMIT);
        if let Some(txn) = history.txns().iter().find(late) {
            return Err(format!("transaction {} has a time of 2^63 ns or more", txn.id));
        }
        let free_session = history.txns().iter().map(|t| u64::from(t.session) + 1).max().unwrap_or(0);
        Ok(Plain { history, index, records, free_session, free_id })
    }

    /// Whether the transaction at a position took effect.
    pub fn active(&self, position: usize) -> bool {
        self.index.fates[position] == Fate::Committed
    }

    /// What the first transaction writes, if the history does not hold it itself: each record's number and version.
    pub fn loads(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let initial = self.history.initial_version();
        initial.into_iter().flat_map(|v| self.records.iter().map(move |&key| (number(key), v)))
    }
}

/// Gives writes that took no effect a version above all others if another transaction claims theirs.
pub(super) fn with_unique_versions(history: &History, index: &Index) -> Result<History, String> {
    let mut renamed: BTreeSet<(u32, u32, u64, u64)> = BTreeSet::new();
    let mut at = 0;
    while at < index.items.len() {
        let version = index.version_at(at);
        let item = index.items[at];
        at = version.end;
        let taken =
            Some(item.version) == index.initial_version || index.writers(version.clone()).next().is_some();
        let mut holder = None;
        for (_, txn) in index.claims(version).filter(|&(_, txn)| !index.active(txn)) {
            if taken || *holder.get_or_insert(txn) != txn {
                renamed.insert((txn, item.table, item.key, item.version));
            }
        }
    }
    let mut versions: Vec<u64> = Vec::new();
    versions.extend(history.initial_version());
    versions.extend(history.txns().iter().flat_map(|t| history.ops(t)).map(|op| op.version));
    let highest = versions.into_iter().max().unwrap_or(0);
    if highest >= LIMIT - renamed.len() as u64 {
        return Err(format!("version {highest} does not fit a signed 64-bit number"));
    }
    let fresh: BTreeMap<(u32, u32, u64, u64), u64> = renamed.into_iter().zip(highest + 1..).collect();
    let mut unique = History::new(history.initial_version());
    for (position, txn) in (0..).zip(history.txns()) {
        let outcome = match txn.outcome {
            Outcome::Aborted(reason) => {
                let reason = unique.intern(history.reason(reason)).ok_or("more than 65536 abort reasons")?;
                Outcome::Aborted(reason)
            }
            other => other,
        };
        let mut own: BTreeSet<(u32, u64, u64)> = BTreeSet::new();
        let ops = history.ops(txn).iter().map(|&op| {
            let Some(&version) = fresh.get(&(position, op.table, op.key, op.version)) else { return op };
            let name = (op.table, op.key, op.version);
            let its_own = op.kind == OpKind::Write || own.contains(&name);
            own.insert(name);
            if its_own { Op { version, ..op } } else { op }
        });
        let ops: Vec<Op> = ops.collect();
        unique.push(txn.id, txn.session, (txn.invoke, txn.ret), outcome, ops);
    }
    Ok(unique)
}

/// A history as it is read, before its records and values are this project's.
#[derive(Default)]
pub(super) struct Draft {
    pub txns: Vec<DraftTxn>,
    pub ops: Vec<DraftOp>,
    pub disorders: Vec<Disorder>,
}

/// A transaction of a draft.
pub(super) struct DraftTxn {
    pub id: u64,
    pub session: u64,
    pub invoke: u64,
    /// `None`: nobody learned how it ended.
    pub ret: Option<u64>,
    pub outcome: Fate,
    pub reason: String,
    /// Its operations in the draft.
    pub ops: Range<usize>,
}

/// An operation of a draft.
#[derive(Clone, Copy)]
pub(super) struct DraftOp {
    pub kind: OpKind,
    /// The record's number.
    pub record: u64,
    /// `None`: the state before all writes.
    pub version: Option<u64>,
}

impl Draft {
    /// The history, once all is read. `load` says whether the first transaction may stand for the initial version.
    pub fn finish(mut self, load: bool) -> Result<History, Problem> {
        let too_many = |what, limit| Problem::TooMany { what, limit };
        if self.ops.len() > MAX_OPS {
            return Err(too_many("operations", MAX_OPS));
        }
        let mut initial = self.loaded().filter(|_| load);
        let folded = usize::from(initial.is_some());
        if initial.is_some() {
            self.txns.remove(0);
        } else {
            initial = self.unwritten()?;
        }
        let mut history = History::new(initial);
        for txn in self.txns {
            let outcome = match txn.outcome {
                Fate::Committed => Outcome::Committed,
                Fate::InDoubt => Outcome::Unknown,
                Fate::Aborted => {
                    let reason = history.intern(&txn.reason);
                    Outcome::Aborted(reason.ok_or(too_many("different abort reasons", 1 << 16))?)
                }
            };
            let session = u32::try_from(txn.session)
                .map_err(|_| Problem::Invalid(format!("session {} is above 2^32", txn.session)))?;
            let ops = self.ops[txn.ops].iter().map(|op| {
                let key = record(op.record);
                // Without a version of its own the initial state is known, see `unwritten`.
                let version = op.version.or(initial).unwrap_or(0);
                match op.kind {
                    OpKind::Read => Op::read(key, version),
                    OpKind::Write => Op::write(key, version),
                }
            });
            let interval = (Nanos(txn.invoke), txn.ret.map_or(Nanos::MAX, Nanos));
            history.push(txn.id, session, interval, outcome, ops);
        }
        let disorders = self.disorders.iter().map(|disorder| disorder.told(&self.ops, folded));
        Ok(history.with_disorders(disorders.collect()))
    }

    /// The version that the first transaction wrote everything at, if that is what it did.
    fn loaded(&self) -> Option<u64> {
        let (first, others) = self.txns.split_first()?;
        let ops = &self.ops[first.ops.clone()];
        let version = ops.first()?.version?;
        let same = |op: &DraftOp| op.kind == OpKind::Write && op.version == Some(version);
        let ahead = |t: &DraftTxn| t.session != first.session && Some(t.invoke) >= first.ret;
        if first.outcome != Fate::Committed || !ops.iter().all(same) || !others.iter().all(ahead) {
            return None;
        }
        let loaded: BTreeSet<u64> = ops.iter().map(|op| op.record).collect();
        let rest = self.ops.iter().enumerate().filter(|(n, _)| !first.ops.contains(n));
        let covered = loaded.len() == ops.len() && rest.clone().all(|(_, op)| loaded.contains(&op.record));
        // A version of another's write cannot be every record's first.
        let below = rest
            .filter(|(_, op)| op.kind == OpKind::Write)
            .all(|(_, op)| op.version.is_some_and(|later| later > version));
        let from_nothing = self.ops.iter().any(|op| op.version.is_none());
        (covered && below && !from_nothing).then_some(version)
    }

    /// Version 0 for reads of nothing, and for reads of 0 that nobody wrote. If 0 is written too, all versions
    /// move up by one.
    fn unwritten(&mut self) -> Result<Option<u64>, Problem> {
        let writes = |op: &DraftOp| op.kind == OpKind::Write && op.version == Some(0);
        let zero_written = self.ops.iter().any(writes);
        let nothing_read = self.ops.iter().any(|op| op.version.is_none());
        let zero_read = self.ops.iter().any(|op| op.version == Some(0));
        if zero_written && nothing_read {
            for op in &mut self.ops {
                op.version = match op.version {
                    Some(u64::MAX) => {
                        return Err(Problem::Invalid(format!("value {} is too large", u64::MAX)));
                    }
                    version => version.map(|v| v + 1),
                };
            }
        }
        Ok((nothing_read || (zero_read && !zero_written)).then_some(0))
    }
}
