//! What transactions did: a recorder per session, merged into one history.
//!
//! Recording sits on the data path, so a recorder only appends fixed-size entries to vectors that grow by whole
//! chunks: nothing recorded is ever copied again before the merge, and an operation allocates only when it opens a
//! chunk (each twice as long as the one before, up to a bound; [`Recorder::with_capacity`] moves even that to the
//! start). Six thousand simulated coroutines can each own one without reserving gigabytes.

use super::digest::Digest;
use super::direct::Direct;
use super::ranges::Run;
use super::settle;
use primitives::units::Nanos;
use std::collections::BTreeMap;

/// Which record: a table and a key in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// The table.
    pub table: u32,
    /// The key within the table.
    pub key: u64,
}

/// Whether an operation observed a version or installed one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpKind {
    /// The transaction observed the version.
    Read,
    /// The transaction installed the version, or would have had it committed.
    Write,
}

/// One read or write, in the order the transaction did them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Op {
    /// The version observed or installed. Versions of one record grow in the order they are installed.
    pub version: u64,
    /// The key within the table.
    pub key: u64,
    /// The table.
    pub table: u32,
    /// Read or write.
    pub kind: OpKind,
    /// Of the payload that was read or is installed, if that was looked at.
    pub digest: Digest,
}

/// Histories are long: a digest has no more bits than there was room for.
const _: () = assert!(size_of::<Op>() == 24);

impl Op {
    /// A read of `version` of `key`.
    pub const fn read(key: Key, version: u64) -> Op {
        Op { version, key: key.key, table: key.table, kind: OpKind::Read, digest: Digest::NONE }
    }

    /// A write that installs `version` of `key`.
    pub const fn write(key: Key, version: u64) -> Op {
        Op { version, key: key.key, table: key.table, kind: OpKind::Write, digest: Digest::NONE }
    }

    /// The operation with the digest of its payload.
    #[must_use]
    pub const fn with(self, digest: Digest) -> Op {
        Op { digest, ..self }
    }

    /// The record it touches.
    pub const fn record(self) -> Key {
        Key { table: self.table, key: self.key }
    }
}

/// Why a transaction aborted: a name interned by its [`History`] (see [`History::reason`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Reason(u16);

/// How a transaction ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The session was told that it committed.
    Committed,
    /// The session was told that it did not.
    Aborted(Reason),
    /// Nobody was told: in flight at the end, or its coordinator failed. It may have taken effect.
    Unknown,
}

/// One transaction attempt. A retry is a transaction of its own.
#[derive(Clone, Copy, Debug)]
pub struct Txn {
    /// Its name, unique in the history.
    pub id: u64,
    /// When the session began it.
    pub invoke: Nanos,
    /// When the session learned its outcome; [`Nanos::MAX`] if it never did.
    pub ret: Nanos,
    /// The session that ran it.
    pub session: u32,
    /// How it ended.
    pub outcome: Outcome,
    first_op: u64,
    op_count: u32,
}

/// A recorded run.
#[derive(Clone, Debug, Default)]
pub struct History {
    initial_version: Option<u64>,
    /// Digests of what records began with, of those that were read so, in their order.
    initial: Vec<(Key, Digest)>,
    share: Option<Share>,
    txns: Vec<Txn>,
    ops: Vec<Op>,
    /// What scans read of absent keys, by transaction.
    runs: Vec<Run>,
    reasons: Reasons,
    disorders: Vec<Direct>,
}

#[derive(Clone, Debug, Default)]
struct Reasons {
    names: Vec<String>,
    by_name: BTreeMap<String, u16>,
}

impl Reasons {
    /// The number of `name`, new or known; `None` when 65536 others came first.
    fn intern(&mut self, name: &str) -> Option<Reason> {
        if let Some(&known) = self.by_name.get(name) {
            return Some(Reason(known));
        }
        let fresh = u16::try_from(self.names.len()).ok()?;
        self.names.push(name.to_owned());
        self.by_name.insert(name.to_owned(), fresh);
        Some(Reason(fresh))
    }
}

/// What part of a run a history is, where it is not the whole: what one node of a cluster recorded. Others' writes are missing in it,
/// and no verdict is worth anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// The node, from 0.
    pub node: u16,
    /// Nodes of the cluster.
    pub nodes: u16,
}

impl History {
    /// A history without transactions.
    ///
    /// `initial_version` is the version every record has before the first transaction, loaded or absent alike: reads
    /// of it need no writer and writes must exceed it. It stands for an explicit first transaction that wrote every
    /// key. `None` says that the history holds that transaction itself.
    pub fn new(initial_version: Option<u64>) -> History {
        History { initial_version, ..History::default() }
    }

    /// Joins what the sessions recorded. A transaction still open is in doubt.
    ///
    /// Transactions are sorted by invocation, then session, and numbered from 0 in that order; so the result depends
    /// on what was recorded and not on the order of `recorders`, as long as their session numbers differ.
    pub fn merge(recorders: impl IntoIterator<Item = Recorder>, initial_version: Option<u64>) -> History {
        let mut recorders: Vec<Recorder> = recorders.into_iter().collect();
        recorders.sort_by_key(|r| r.session);
        let mut history = History::new(initial_version);
        history.ops.reserve_exact(recorders.iter().map(|r| r.ops.len).sum());
        history.txns.reserve_exact(recorders.iter().map(|r| r.txns.len + 1).sum());
        for mut recorder in recorders {
            recorder.close_as_unknown();
            let base = history.ops.len() as u64;
            // The recorder refuses the 65536th reason long before names could collide here; fall back on the first.
            let renumbered: Vec<Reason> = recorder
                .reasons
                .iter()
                .map(|name| history.reasons.intern(name).unwrap_or(Reason(0)))
                .collect();
            for txn in recorder.txns.into_iter() {
                let outcome = match txn.outcome {
                    Outcome::Aborted(Reason(n)) => Outcome::Aborted(renumbered[usize::from(n)]),
                    other => other,
                };
                history.txns.push(Txn { first_op: base + txn.first_op, outcome, ..txn });
            }
            history.ops.extend(recorder.ops.into_iter());
        }
        // Stable: within a session the recorded order stays.
        history.txns.sort_by_key(|t| (t.invoke, t.session));
        for (id, txn) in history.txns.iter_mut().enumerate() {
            txn.id = id as u64;
        }
        history
    }

    /// Asks what those records began with that were read at their initial version, so that such reads can be held against it, too. They
    /// are asked for in their order; of some there may be no answer.
    pub fn learn_initial(&mut self, digests: impl FnOnce(&[Key]) -> Vec<(Key, Digest)>) {
        let fresh = |op: &&Op| {
            op.kind == OpKind::Read && op.digest.is_some() && Some(op.version) == self.initial_version
        };
        let mut keys: Vec<Key> = self.ops.iter().filter(fresh).map(|op| op.record()).collect();
        keys.sort_unstable();
        keys.dedup();
        self.set_initial(digests(&keys));
    }

    /// The digests of what records began with, as far as they are known, in the order of records.
    pub(super) fn initial(&self) -> &[(Key, Digest)] {
        &self.initial
    }

    /// Sets them, in any order.
    pub(super) fn set_initial(&mut self, mut initial: Vec<(Key, Digest)>) {
        initial.sort_unstable();
        initial.dedup();
        self.initial = initial;
    }

    /// Which node's share of a run this is; nothing if it is the whole.
    pub fn share(&self) -> Option<Share> {
        self.share
    }

    /// Says that this is one node's share.
    #[must_use]
    pub(super) fn of(self, share: Option<Share>) -> History {
        History { share, ..self }
    }

    /// Lists of the file it was read from that disagree, which no versions can tell.
    pub(super) fn disorders(&self) -> &[Direct] {
        &self.disorders
    }

    /// Says which lists disagree.
    #[must_use]
    pub(super) fn with_disorders(self, disorders: Vec<Direct>) -> History {
        History { disorders, ..self }
    }

    /// Translates the times of all transactions, given as beginning and end; the end of one in doubt stays open.
    pub fn retime(&mut self, translate: impl Fn(Nanos, Nanos) -> (Nanos, Nanos)) {
        for txn in &mut self.txns {
            let open = txn.ret == Nanos::MAX;
            let (invoke, ret) = translate(txn.invoke, if open { txn.invoke } else { txn.ret });
            txn.invoke = invoke;
            txn.ret = if open { Nanos::MAX } else { ret };
        }
    }

    /// Joins the histories of several nodes, whose sessions and times are of one numbering and one clock. Transactions
    /// are sorted and numbered as by [`History::merge`].
    pub fn join(parts: impl IntoIterator<Item = History>) -> History {
        let mut whole = History::default();
        let mut runs: Vec<Run> = Vec::new();
        let mut initial = Vec::new();
        for part in parts {
            initial.extend_from_slice(&part.initial);
            whole.initial_version = whole.initial_version.or(part.initial_version);
            let base = whole.ops.len() as u64;
            let before = whole.txns.len() as u32;
            runs.extend(part.runs.iter().map(|run| Run { txn: run.txn + before, ..*run }));
            for txn in &part.txns {
                let outcome = match txn.outcome {
                    Outcome::Aborted(reason) => {
                        let name = part.reason(reason);
                        Outcome::Aborted(whole.reasons.intern(name).unwrap_or(Reason(0)))
                    }
                    other => other,
                };
                whole.txns.push(Txn { first_op: base + txn.first_op, outcome, ..*txn });
            }
            whole.ops.extend(part.ops);
        }
        whole.set_initial(initial);
        if !runs.is_empty() {
            // Where the sort below, stable as this one, puts them.
            let mut order: Vec<u32> = (0..whole.txns.len() as u32).collect();
            order.sort_by_key(|&n| (whole.txns[n as usize].invoke, whole.txns[n as usize].session));
            let mut place = vec![0; order.len()];
            for (to, from) in (0..).zip(order) {
                place[from as usize] = to;
            }
            runs.iter_mut().for_each(|run| run.txn = place[run.txn as usize]);
            runs.sort_by_key(|run| run.txn);
            whole.runs = runs;
        }
        whole.txns.sort_by_key(|t| (t.invoke, t.session));
        for (id, txn) in whole.txns.iter_mut().enumerate() {
            txn.id = id as u64;
        }
        whole
    }

    /// Numbers the transactions from 0 in the order they have.
    pub(super) fn renumber(&mut self) {
        for (id, txn) in self.txns.iter_mut().enumerate() {
            txn.id = id as u64;
        }
    }

    /// Appends a transaction. `id` must not be in use; readers of foreign histories check that themselves.
    pub fn push(
        &mut self,
        id: u64,
        session: u32,
        interval: (Nanos, Nanos),
        outcome: Outcome,
        ops: impl IntoIterator<Item = Op>,
    ) {
        let first_op = self.ops.len();
        self.ops.extend(ops);
        self.push_recorded(id, session, interval, outcome, first_op);
    }

    /// Appends a transaction whose operations are those from `first_op` on (see [`History::push_op`]).
    pub(super) fn push_recorded(
        &mut self,
        id: u64,
        session: u32,
        (invoke, ret): (Nanos, Nanos),
        outcome: Outcome,
        first_op: usize,
    ) {
        let ret = if outcome == Outcome::Unknown { Nanos::MAX } else { ret };
        let op_count = u32::try_from(self.ops.len() - first_op).expect("2^32 operations in one transaction");
        self.txns.push(Txn { id, invoke, ret, session, outcome, first_op: first_op as u64, op_count });
    }

    /// Appends an operation that a later [`History::push_recorded`] will claim.
    pub(super) fn push_op(&mut self, op: Op) {
        self.ops.push(op);
    }

    /// The number for an abort reason; `None` when the history already has 65536 different ones.
    pub fn intern(&mut self, reason: &str) -> Option<Reason> {
        self.reasons.intern(reason)
    }

    /// The name of an abort reason of this history.
    pub fn reason(&self, reason: Reason) -> &str {
        self.reasons.names.get(usize::from(reason.0)).map_or("?", String::as_str)
    }

    /// The version every record starts with, unless a transaction of the history loads them.
    pub fn initial_version(&self) -> Option<u64> {
        self.initial_version
    }

    /// All transactions; merged histories have them in order of invocation.
    pub fn txns(&self) -> &[Txn] {
        &self.txns
    }

    /// What `txn` (of this history) read and wrote, in its own order; what a scan read of stretches of absent keys is there only in
    /// [`History::one_by_one`].
    pub fn ops(&self, txn: &Txn) -> &[Op] {
        let first = txn.first_op as usize;
        self.ops.get(first..first + txn.op_count as usize).unwrap_or(&[])
    }

    /// Replaces every transaction's operations by what `f` makes of them.
    pub(super) fn map_ops(&mut self, mut f: impl FnMut(&Txn, &[Op], &mut Vec<Op>)) {
        let mut ops = Vec::with_capacity(self.ops.len());
        for index in 0..self.txns.len() {
            let txn = self.txns[index];
            let first = ops.len();
            f(&txn, self.ops(&txn), &mut ops);
            let op_count = u32::try_from(ops.len() - first).expect("2^32 operations in one transaction");
            self.txns[index] = Txn { first_op: first as u64, op_count, ..txn };
        }
        self.ops = ops;
    }

    /// What scans read of stretches of absent keys, by transaction.
    pub(super) fn runs(&self) -> &[Run] {
        &self.runs
    }

    /// Sets what scans read, in the order of transactions.
    pub(super) fn set_runs(&mut self, runs: Vec<Run>) {
        debug_assert!(runs.is_sorted_by_key(|run| run.txn));
        self.runs = runs;
    }

    /// Appends what the next transaction to be pushed read.
    pub(super) fn push_run(&mut self, run: Run) {
        self.runs.push(run);
    }

    /// Operations of all transactions together, without what scans read of stretches of absent keys.
    pub fn op_count(&self) -> usize {
        self.ops.len()
    }
}

/// A session's pen: one coroutine owns it and writes down each transaction as it runs.
#[derive(Debug)]
pub struct Recorder {
    session: u32,
    open: Option<Open>,
    txns: Chunks<Txn>,
    ops: Chunks<Op>,
    reasons: Vec<&'static str>,
}

#[derive(Debug)]
struct Open {
    invoke: Nanos,
    first_op: u64,
}

impl Recorder {
    /// A recorder for `session`, a number no other recorder of the run may have.
    pub fn new(session: u32) -> Recorder {
        Recorder::with_capacity(session, 0, 0)
    }

    /// A recorder that will not allocate for its first `txns` transactions and `ops` operations.
    pub fn with_capacity(session: u32, txns: usize, ops: usize) -> Recorder {
        let reasons = Vec::with_capacity(16);
        Recorder { session, open: None, txns: Chunks::new(txns), ops: Chunks::new(ops), reasons }
    }

    /// A transaction begins. One that is still open is left in doubt.
    pub fn begin(&mut self, now: Nanos) {
        self.close_as_unknown();
        self.open = Some(Open { invoke: now, first_op: self.ops.len as u64 });
    }

    /// The transaction observed `version` of `key`.
    ///
    /// # Panics
    /// Without an open transaction, as do all methods below: a bug in the caller.
    pub fn read(&mut self, key: Key, version: u64) {
        self.read_of(key, version, Digest::NONE);
    }

    /// As [`Recorder::read`], with the digest of the payload that was observed.
    ///
    /// # Panics
    /// As [`Recorder::read`].
    pub fn read_of(&mut self, key: Key, version: u64, digest: Digest) {
        assert!(self.open.is_some(), "session {}: read recorded outside a transaction", self.session);
        self.ops.push(Op::read(key, version).with(digest));
    }

    /// The transaction looked for `key` and found nothing; `floor` is the version that stood for that. [`History::settled`] makes
    /// of it a read of what was removed last.
    ///
    /// # Panics
    /// As [`Recorder::read`].
    pub fn read_absent(&mut self, key: Key, floor: u64) {
        self.read(key, floor | settle::ABSENT);
    }

    /// The transaction read all keys from `from` to `to` of a table that there were; those are recorded as read by themselves.
    /// [`History::settled`] makes of it reads of all others.
    ///
    /// # Panics
    /// As [`Recorder::read`].
    pub fn read_range(&mut self, table: u32, from: u64, to: u64) {
        self.read(Key { table, key: from }, settle::RANGE);
        self.read(Key { table, key: to }, settle::RANGE);
    }

    /// The transaction removes `key`, leaving `version` behind. As [`Recorder::write`] otherwise.
    ///
    /// # Panics
    /// As [`Recorder::read`].
    pub fn delete(&mut self, key: Key, version: u64) {
        self.write(key, version | settle::REMOVED);
    }

    /// The transaction installs `version` of `key`. Record it before the first moment another transaction could see
    /// it: if this one aborts or fails later, the checker needs to know whose version that was.
    pub fn write(&mut self, key: Key, version: u64) {
        self.write_of(key, version, Digest::NONE);
    }

    /// As [`Recorder::write`], with the digest of the payload that is installed.
    ///
    /// # Panics
    /// As [`Recorder::read`].
    pub fn write_of(&mut self, key: Key, version: u64, digest: Digest) {
        assert!(self.open.is_some(), "session {}: write recorded outside a transaction", self.session);
        self.ops.push(Op::write(key, version).with(digest));
    }

    /// The transaction committed, and the session knows.
    pub fn commit(&mut self, now: Nanos) {
        self.close(now, Outcome::Committed);
    }

    /// The transaction aborted for `reason`.
    pub fn abort(&mut self, reason: &'static str, now: Nanos) {
        // A dozen reasons at most, so a scan beats a map.
        let number = self.reasons.iter().position(|&known| known == reason).unwrap_or_else(|| {
            self.reasons.push(reason);
            self.reasons.len() - 1
        });
        let number = u16::try_from(number).expect("65536 different abort reasons");
        self.close(now, Outcome::Aborted(Reason(number)));
    }

    /// Nobody will learn how the transaction ended.
    pub fn in_doubt(&mut self) {
        self.close(Nanos::MAX, Outcome::Unknown);
    }

    fn close(&mut self, now: Nanos, outcome: Outcome) {
        let open = self.open.take();
        let Some(Open { invoke, first_op }) = open else {
            panic!("session {}: {outcome:?} recorded outside a transaction", self.session);
        };
        let op_count =
            u32::try_from(self.ops.len as u64 - first_op).expect("2^32 operations in one transaction");
        self.txns.push(Txn { id: 0, invoke, ret: now, session: self.session, outcome, first_op, op_count });
    }

    fn close_as_unknown(&mut self) {
        if self.open.is_some() {
            self.in_doubt();
        }
    }
}

/// A vector in chunks: growing never moves what is there.
#[derive(Debug)]
struct Chunks<T> {
    full: Vec<Vec<T>>,
    tail: Vec<T>,
    len: usize,
}

/// The first chunk of a recorder without a stated capacity: 1.5 KiB of operations.
const FIRST_CHUNK: usize = 64;
/// No chunk is longer, unless asked for: 768 KiB of operations, one allocation per 32768 of them.
const LAST_CHUNK: usize = 1 << 15;

impl<T> Chunks<T> {
    fn new(capacity: usize) -> Chunks<T> {
        Chunks { full: Vec::new(), tail: Vec::with_capacity(capacity), len: 0 }
    }

    fn push(&mut self, item: T) {
        if self.tail.len() == self.tail.capacity() {
            self.grow();
        }
        self.tail.push(item);
        self.len += 1;
    }

    #[cold]
    fn grow(&mut self) {
        let next = (self.tail.capacity() * 2).clamp(FIRST_CHUNK, LAST_CHUNK);
        let full = std::mem::replace(&mut self.tail, Vec::with_capacity(next));
        self.full.push(full);
    }

    /// The items in order; each chunk is freed once it is through.
    fn into_iter(self) -> impl Iterator<Item = T> {
        self.full.into_iter().chain(std::iter::once(self.tail)).flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const X: Key = Key { table: 1, key: 5 };

    #[test]
    fn merge_orders_by_invocation_and_keeps_operations_with_their_transaction() {
        let mut a = Recorder::new(0);
        let mut b = Recorder::new(1);
        for i in 0..500u64 {
            a.begin(Nanos(10 * i));
            a.read(X, i);
            a.write(X, i + 1);
            a.commit(Nanos(10 * i + 3));
            b.begin(Nanos(10 * i + 5));
            b.read(X, 1000 + i);
            b.abort(if i.is_multiple_of(2) { "lock" } else { "validate" }, Nanos(10 * i + 9));
        }
        a.begin(Nanos(9000));
        a.write(X, 777);
        let history = History::merge([b, a], Some(0));
        assert_eq!(history.txns().len(), 1001);
        for (n, txn) in history.txns()[..1000].iter().enumerate() {
            let i = n as u64 / 2;
            assert_eq!(txn.id, n as u64);
            if n % 2 == 0 {
                assert_eq!((txn.session, txn.outcome), (0, Outcome::Committed));
                assert_eq!(history.ops(txn), [Op::read(X, i), Op::write(X, i + 1)]);
            } else {
                let Outcome::Aborted(reason) = txn.outcome else { panic!("{txn:?}") };
                assert_eq!(history.reason(reason), if i.is_multiple_of(2) { "lock" } else { "validate" });
                assert_eq!(history.ops(txn), [Op::read(X, 1000 + i)]);
            }
        }
        let last = history.txns()[1000];
        assert_eq!((last.outcome, last.ret), (Outcome::Unknown, Nanos::MAX));
        assert_eq!(history.ops(&last), [Op::write(X, 777)]);
    }

    #[test]
    fn a_recorder_with_capacity_stays_within_it() {
        let mut r = Recorder::with_capacity(0, 100, 200);
        let (txns_at, ops_at) = (r.txns.tail.as_ptr(), r.ops.tail.as_ptr());
        for i in 0..100 {
            r.begin(Nanos(i));
            r.read(X, i);
            r.write(X, i + 1);
            r.commit(Nanos(i));
        }
        assert!(r.txns.full.is_empty() && r.ops.full.is_empty());
        assert_eq!((r.txns.tail.as_ptr(), r.ops.tail.as_ptr()), (txns_at, ops_at));
    }

    #[test]
    fn a_begin_within_a_transaction_leaves_the_first_in_doubt() {
        let mut r = Recorder::new(3);
        r.begin(Nanos(1));
        r.begin(Nanos(2));
        r.in_doubt();
        let history = History::merge([r], None);
        assert!(history.txns().iter().all(|t| t.outcome == Outcome::Unknown && t.session == 3));
        assert_eq!(history.txns().len(), 2);
    }

    #[test]
    #[should_panic(expected = "outside a transaction")]
    fn a_read_outside_a_transaction_is_a_bug() {
        Recorder::new(0).read(X, 1);
    }
}
