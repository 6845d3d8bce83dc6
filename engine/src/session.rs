//! Sessions: one coroutine's transactions, one after the other.
//!
//! A session owns the state of one transaction at a time (begin, read, write, commit, abort, retry) and turns what
//! happens into numbers and history. Its invariants:
//!
//! - **Whatever ends a transaction, its locks are released**: by the install, or by the protocol's release.
//! - **One access per record.** Reads see the transaction's own writes; reading a record again shows what the first
//!   read saw; writing without reading is possible, the version comes with the lock.
//! - **A retry repeats the same input**, after a randomized exponential backoff drawn from the session's own
//!   stream, so a run on virtual time stays a value of its seed.
//! - **Nothing is allocated per transaction** once the vectors have their length.
//!
//! What a body reads before commit may be inconsistent under an optimistic protocol, as in every OCC: it must not
//! loop or fail for good on what it sees. A rollback by the application is not validated, because it changes nothing.

mod observed;
mod sequenced;
mod structure;

pub use phases::txn::Order;
pub use structure::Rows;

use crate::protocol::Protocol;
use crate::stats::WorkerStats;
use crate::verify::Recorder;
use crate::workload::{RecordId, Workload};
use observed::Observed;
use phases::ops::{self, Fault, PhaseOps};
use phases::plan::Phase;
use phases::rule::{Abort, Owner, Stamp};
use phases::store::{Layout, TableId};
use phases::txn::{Intent, Txn};
use primitives::exec::{sleep_until, think};
use primitives::fabric::{CpuWork, Nic};
use primitives::measure::Meter;
use primitives::mem::PoolExhausted;
use primitives::units::Nanos;
use primitives::verbs::NodeId;
use primitives::verbs::port::EnginePort;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

/// Why a transaction's body stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Halt {
    /// An expected outcome of concurrency; the transaction may be tried again.
    #[error(transparent)]
    Abort(#[from] Abort),
    /// The application rolls back for this reason; it is counted and not tried again.
    #[error("the application rolled back: {0}")]
    User(&'static str),
    /// The fabric or a peer failed.
    #[error(transparent)]
    Fault(#[from] Failure),
}

/// What ends a session's chances.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// A phase failed.
    #[error(transparent)]
    Phase(#[from] Fault),
    /// No buffer for another record.
    #[error(transparent)]
    Pool(#[from] PoolExhausted),
    /// The transaction asks for what its protocol cannot give.
    #[error("the transaction {what}, which it cannot do under {protocol}: run it under another protocol")]
    Unsupported {
        /// The protocol.
        protocol: &'static str,
        /// What it does.
        what: &'static str,
    },
}

impl From<ops::Stop> for Halt {
    fn from(stop: ops::Stop) -> Halt {
        match stop {
            ops::Stop::Abort(abort) => Halt::Abort(abort),
            ops::Stop::Fault(fault) => Halt::Fault(Failure::Phase(fault)),
        }
    }
}

/// How a transaction ended, with all its attempts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End<T> {
    /// It committed; what it changed.
    Committed(T),
    /// The application rolled it back.
    RolledBack(&'static str),
    /// It aborted as often as the policy allows, or for a reason that stays.
    GivenUp(Abort),
}

/// How one attempt ended.
#[derive(Clone, Copy)]
enum Ended {
    Committed,
    Aborted(&'static str),
    RolledBack(&'static str),
}

impl Ended {
    /// Why it left nothing behind; in a history a rollback is an abort, since it changed nothing.
    fn undone(self) -> Option<&'static str> {
        match self {
            Ended::Committed => None,
            Ended::Aborted(reason) | Ended::RolledBack(reason) => Some(reason),
        }
    }
}

/// When aborted transactions are tried again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryPolicy {
    /// Attempts in all; the last abort gives up.
    pub attempts: u32,
    /// The wait after the first abort is uniform in `[0, first)`; the limit doubles with each further abort, so
    /// that rivals part.
    pub first: Nanos,
    /// Where the limit stops doubling with each abort. From there on it doubles once in 32 aborts, up to 131 ms.
    pub longest: Nanos,
}

/// Aborts in a row that double [`RetryPolicy::longest`]: after so many, pauses are taken to be shorter than rivals hold their locks,
/// so that all meet again after each and keep each other from ending. Longer pauses thin them out until some get
/// through (seed 159 of the swarm, where 64 coroutines lock four of the same few records each and a commit takes longer than
/// `longest`: without this a transaction needs more than 1000 attempts, with it fewer than 500).
const PATIENCE: u32 = 32;
/// Where that ends too, unless `longest` is longer by itself: seed 344 of the swarm's orders and positions needs 352 attempts with it, 609
/// with a quarter of it. Whoever meets a lock that nobody lets go is so told after a minute by default, unless the run ends before.
const MOST_PAUSE: Nanos = Nanos(131_072_000);

impl Default for RetryPolicy {
    /// The first wait is about one commit on a fast fabric, the longest about a hundred.
    fn default() -> RetryPolicy {
        RetryPolicy { attempts: 1000, first: Nanos::from_micros(4), longest: Nanos::from_micros(512) }
    }
}

impl RetryPolicy {
    /// Aborts in a row after the first that double the limit each, up to `longest`.
    pub fn doublings(&self) -> u32 {
        (self.longest.0 / self.first.0.max(1)).max(1).ilog2()
    }

    /// The wait after `aborts` aborts in a row (from 1), from a draw in `[0, 1)`.
    fn wait(&self, aborts: u32, draw: f64) -> Nanos {
        let doubled = self.first.0.saturating_mul(1 << aborts.saturating_sub(1).min(32));
        let grown = self.longest.0.saturating_mul(1 << (aborts / PATIENCE).min(32)).min(MOST_PAUSE.0);
        Nanos((doubled.min(grown.max(self.longest.0)) as f64 * draw) as u64)
    }
}

/// A transaction that has read other records may have been misled by them about which keys there are; when it is told so many times in
/// a row, it believes.
const BELIEVED_AFTER: u32 = 8;

/// A record within the current transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row(usize);

/// What a session is built from.
pub struct Parts<P, O> {
    /// The protocol.
    pub protocol: P,
    /// The phase operations, shared by the worker's sessions.
    pub ops: Rc<O>,
    /// Clock, timers and buffers.
    pub port: Rc<EnginePort>,
    /// Where records live and how long they are.
    pub layout: Arc<Layout>,
    /// Its node.
    pub node: NodeId,
    /// Its name in lock words.
    pub owner: Owner,
    /// Seed of its own random stream.
    pub seed: u64,
    /// The worker's counters.
    pub stats: Rc<RefCell<WorkerStats>>,
    /// When attempts are counted.
    pub window: Arc<Meter>,
    /// When aborted transactions are tried again.
    pub retry: RetryPolicy,
    /// One of so many attempts has its phases timed; zero times none.
    pub sample_every: u32,
    /// Where the history goes, if it is kept.
    pub recorder: Option<Recorder>,
}

/// In how many attempts a session is timed first. Sessions take turns, so that a run too short for all of them to be timed
/// has a fair share that is.
fn first_sample(owner: Owner, every: u32) -> u32 {
    let turn = u32::from(owner.node().0) + u32::from(owner.worker()) + owner.coroutine();
    every - turn.checked_rem(every).unwrap_or(0)
}

/// One coroutine's transactions.
pub struct Session<P, O> {
    protocol: P,
    ops: Observed<O>,
    port: Rc<EnginePort>,
    layout: Arc<Layout>,
    node: NodeId,
    owner: Owner,
    rng: Xoshiro256PlusPlus,
    stats: Rc<RefCell<WorkerStats>>,
    window: Arc<Meter>,
    retry: RetryPolicy,
    sample_every: u32,
    until_sample: u32,
    begun: u64,
    ended_at: Nanos,
    /// Which kind of the workload's transactions this one is.
    kind: usize,
    txn: Txn,
    /// Rows that scans of the transaction have found.
    scanned: Vec<Row>,
}

impl<P: Protocol, O: PhaseOps> Session<P, O> {
    /// A session without a transaction.
    pub fn new(parts: Parts<P, O>) -> Session<P, O> {
        Session {
            protocol: parts.protocol,
            ops: Observed::new(parts.ops, parts.port.clone(), parts.recorder),
            ended_at: parts.port.now(),
            port: parts.port,
            layout: parts.layout,
            node: parts.node,
            owner: parts.owner,
            rng: Xoshiro256PlusPlus::seed_from_u64(parts.seed),
            stats: parts.stats,
            window: parts.window,
            retry: parts.retry,
            sample_every: parts.sample_every,
            until_sample: first_sample(parts.owner, parts.sample_every),
            begun: 0,
            kind: 0,
            txn: Txn::new(),
            scanned: Vec::new(),
        }
    }

    /// The session's own random stream, for its workload's draws too.
    pub fn rng(&mut self) -> &mut Xoshiro256PlusPlus {
        &mut self.rng
    }

    /// When the last attempt ended.
    pub fn ended_at(&self) -> Nanos {
        self.ended_at
    }

    /// The history recorded so far, if it was to be kept.
    pub fn into_recorder(self) -> Option<Recorder> {
        self.ops.into_recorder()
    }

    /// Begins a transaction.
    ///
    /// # Errors
    /// If the protocol has no timestamp left for it.
    pub fn begin(&mut self) -> Result<(), Halt> {
        self.attempt(1)
    }

    /// Begins an attempt of a transaction; from the second on it may keep its age.
    fn attempt(&mut self, number: u32) -> Result<(), Halt> {
        self.begun += 1;
        self.port.nic().charge(CpuWork::Attempt);
        self.scanned.clear();
        self.txn.begin(Stamp::new(self.owner, self.begun));
        // A countdown of zero never comes to one: nothing is sampled.
        let timed = self.until_sample == 1;
        self.until_sample = if timed { self.sample_every } else { self.until_sample.saturating_sub(1) };
        self.ops.begin(timed);
        Ok(self.protocol.begin(&self.ops, &mut self.txn, number)?)
    }

    fn touch(&mut self, record: RecordId, intent: Intent) -> Result<Row, Halt> {
        let at = self.txn.touch(&self.port, &self.layout, TableId(record.table), record.key, intent);
        at.map(Row).map_err(|e| Halt::Fault(e.into()))
    }

    /// Whether a record's words can be looked at: read, or written by the transaction itself.
    #[inline]
    fn known(&self, row: Row) -> bool {
        let access = &self.txn.accesses()[row.0];
        access.fetched() || access.dirty()
    }

    /// Says which records the transaction is going to ask for, one after the other, if its body knows: where time is real their
    /// memory is brought near meanwhile. They may be asked for all the same, or not.
    pub fn expect(&self, records: impl Iterator<Item = RecordId> + Clone) {
        self.ops.expect(records.map(|record| (TableId(record.table), record.key)));
    }

    /// Reads a record; one that the transaction has read or written before is seen as it left it.
    ///
    /// # Errors
    /// As the protocol's read does.
    pub async fn read(&mut self, record: RecordId) -> Result<Row, Halt> {
        let row = self.touch(record, Intent::Read)?;
        if !self.known(row) && !self.protocol.read_now(&self.ops, &mut self.txn)? {
            self.protocol.read(&self.ops, &mut self.txn).await?;
        }
        self.there(row)
    }

    /// The row, if the transaction sees it.
    #[inline]
    fn there(&self, row: Row) -> Result<Row, Halt> {
        if self.txn.accesses()[row.0].exists() { Ok(row) } else { Err(Abort::NotFound.into()) }
    }

    /// Reads several records in one step, with as many requests in flight as the plan allows.
    ///
    /// # Errors
    /// As the protocol's read does.
    pub async fn read_all<const N: usize>(&mut self, records: [RecordId; N]) -> Result<[Row; N], Halt> {
        let rows = self.touch_all(records, Intent::Read)?;
        self.see_all(rows).await
    }

    fn touch_all<const N: usize>(
        &mut self,
        records: [RecordId; N],
        intent: Intent,
    ) -> Result<[Row; N], Halt> {
        let mut rows = [Row(0); N];
        for (row, record) in rows.iter_mut().zip(records) {
            *row = self.touch(record, intent)?;
        }
        Ok(rows)
    }

    /// Brings in those of the rows that are not known, in one step; all must be there.
    async fn see_all<const N: usize>(&mut self, rows: [Row; N]) -> Result<[Row; N], Halt> {
        if !rows.iter().all(|&row| self.known(row)) {
            self.protocol.read(&self.ops, &mut self.txn).await?;
        }
        rows.iter().try_for_each(|&row| self.there(row).map(|_| ()))?;
        Ok(rows)
    }

    /// As [`Session::read_all`] for numbers of records not known when compiling, some of which the transaction is going to
    /// write; [`Session::read`] then finds each of them.
    ///
    /// # Errors
    /// As the protocol's read does.
    pub async fn prefetch(&mut self, read: &[RecordId], update: &[RecordId]) -> Result<(), Halt> {
        for &record in read {
            self.touch(record, Intent::Read)?;
        }
        for &record in update {
            self.touch(record, Intent::Write)?;
        }
        Ok(self.protocol.read(&self.ops, &mut self.txn).await?)
    }

    /// Reads a record that the transaction is going to write: under locking it is locked for writing at once.
    ///
    /// # Errors
    /// As the protocol's read does.
    pub async fn update(&mut self, record: RecordId) -> Result<Row, Halt> {
        let row = self.touch(record, Intent::Write)?;
        if !self.known(row) && !self.protocol.read_now(&self.ops, &mut self.txn)? {
            self.protocol.read(&self.ops, &mut self.txn).await?;
        }
        self.there(row)
    }

    /// As [`Session::read_all`], for records that the transaction is going to write.
    ///
    /// # Errors
    /// As the protocol's read does.
    pub async fn update_all<const N: usize>(&mut self, records: [RecordId; N]) -> Result<[Row; N], Halt> {
        let rows = self.touch_all(records, Intent::Write)?;
        self.see_all(rows).await
    }

    /// Reads two records in one step, the second of which the transaction is going to write.
    ///
    /// # Errors
    /// As the protocol's read does.
    pub async fn read_and_update(&mut self, read: RecordId, update: RecordId) -> Result<[Row; 2], Halt> {
        let rows = [self.touch(read, Intent::Read)?, self.touch(update, Intent::Write)?];
        self.see_all(rows).await
    }

    /// A record to be written whether or not it was read. If it was not, the words not set become zero; under a protocol
    /// that orders transactions ahead, all that was declared has been read.
    ///
    /// # Errors
    /// [`Abort::NotFound`] if the transaction knows that there is none; when no buffer is left.
    pub fn write(&mut self, record: RecordId) -> Result<Row, Halt> {
        let row = self.touch(record, Intent::Write)?;
        // Of one that was looked for and is not there nothing can be written: it can be inserted.
        if self.known(row) { self.there(row) } else { Ok(row) }
    }

    /// Computes for so long, in the middle of the transaction: declared work where time is virtual, a busy core where it is
    /// real.
    pub fn think(&self, span: Nanos) {
        think(&self.port, span);
    }

    /// Words of payload of a record.
    pub fn words(&self, row: Row) -> usize {
        self.txn.accesses()[row.0].payload_words()
    }

    /// Word `index` of a record's payload, as read or as last set by this transaction.
    ///
    /// # Panics
    /// If the record has neither been read nor written, or has no such word.
    #[inline]
    pub fn word(&self, row: Row, index: usize) -> u64 {
        self.txn.word(row.0, index)
    }

    /// As [`Session::word`], for who looks at many words of one record: what is the same for all is looked at once.
    ///
    /// # Panics
    /// If the record has neither been read nor written; what is returned, of a word that the record does not have.
    #[inline]
    pub fn payload(&self, row: Row) -> impl Fn(usize) -> u64 {
        self.txn.payload(row.0)
    }

    /// Sets word `index` of a record's payload; the record is written at commit.
    ///
    /// # Panics
    /// If the record has no such word.
    #[inline]
    pub fn set_word(&mut self, row: Row, index: usize, value: u64) {
        self.txn.intend(row.0, Intent::Write);
        self.txn.set_word(row.0, index, value);
    }

    /// As [`Session::set_word`], for who sets many words of one record that it has inserted, or of which it has set one.
    ///
    /// # Panics
    /// If it has not; when a word is set, if the record has no such word.
    #[inline]
    pub fn fill(&self, row: Row) -> impl Fn(usize, u64) {
        self.txn.new_payload(row.0)
    }

    /// Commits. After an abort or a fault nothing of the transaction is left but what [`Session::abort`] cleans up.
    ///
    /// # Errors
    /// Aborts of the protocol, faults of the fabric.
    pub async fn commit(&mut self) -> Result<(), Halt> {
        self.protocol.commit(&self.ops, &mut self.txn).await?;
        self.finish(Ended::Committed);
        Ok(())
    }

    /// Aborts: releases what the transaction holds and counts it under `reason`.
    ///
    /// # Errors
    /// When a lock cannot be released.
    pub async fn abort(&mut self, reason: &'static str) -> Result<(), Failure> {
        self.release(Ended::Aborted(reason)).await
    }

    /// Rolls back, as the application wants: releases what the transaction holds and counts it under `reason`, apart
    /// from aborts.
    ///
    /// # Errors
    /// When a lock cannot be released.
    pub async fn roll_back(&mut self, reason: &'static str) -> Result<(), Failure> {
        self.release(Ended::RolledBack(reason)).await
    }

    async fn release(&mut self, ended: Ended) -> Result<(), Failure> {
        let released = self.protocol.release(&self.ops, &mut self.txn).await;
        self.finish(ended);
        match released {
            Err(ops::Stop::Fault(fault)) => Err(fault.into()),
            Ok(()) | Err(ops::Stop::Abort(_)) => Ok(()),
        }
    }

    /// Counts an attempt that ended now.
    fn finish(&mut self, ended: Ended) {
        let now = self.port.now();
        self.ended_at = now;
        self.ops.end(ended.undone(), now);
        if !self.window.holds(now) {
            return;
        }
        let stats = &mut *self.stats.borrow_mut();
        if let Some(kind) = stats.kinds.get_mut(self.kind) {
            match ended {
                Ended::Aborted(_) => kind.aborted += 1,
                Ended::RolledBack(_) => kind.rolled_back += 1,
                Ended::Committed => kind.committed += 1,
            }
        }
        match ended {
            Ended::Aborted(reason) => stats.aborts.count(reason),
            Ended::RolledBack(reason) => stats.rolled_back.count(reason),
            Ended::Committed => {
                stats.committed += 1;
                stats.committed_read_only += u64::from(!self.txn.writes());
                let touched = self.txn.accesses();
                stats.accesses += touched.len() as u64;
                stats.accesses_own += touched.iter().filter(|a| a.primary == self.node).count() as u64;
            }
        }
        let spent = self.ops.spent();
        stats.timed += u64::from(spent.is_some());
        for phase in Phase::ALL {
            let sum = &mut stats.phases[phase as usize];
            let cost = self.txn.costs[phase];
            sum.costs.add(cost);
            if let Some(Some(spent)) = spent.map(|s| s[phase as usize]) {
                sum.latency.record(spent);
            }
        }
    }

    /// Runs one transaction to its end: attempts, backoff, retries.
    ///
    /// # Errors
    /// When the fabric or a peer fails; the session is of no further use then.
    pub async fn run<W: Workload>(
        &mut self,
        workload: &W,
        input: &W::Input,
    ) -> Result<End<W::Tally>, Failure> {
        // A coroutine stands for a client who asks for the next transaction when the last one has ended: the wait for the
        // worker's turn is part of what that client sees.
        let started = self.ended_at;
        self.kind = workload.kind(input);
        let mut aborts = 0;
        // Aborts in a row that say the same of what there is.
        let mut alike = (None, 0);
        loop {
            let ended = match self.attempt(aborts + 1) {
                Ok(()) => match workload.execute(self, input).await {
                    Ok(effect) => self.commit().await.map(|()| effect),
                    Err(halt) => Err(halt),
                },
                Err(halt) => Err(halt),
            };
            if !matches!(ended, Err(Halt::Abort(_))) {
                self.tried(aborts + 1);
            }
            match ended {
                Ok(effect) => {
                    if self.window.holds(self.ended_at) {
                        self.stats.borrow_mut().waited(self.kind, self.ended_at.since(started));
                    }
                    return Ok(End::Committed(effect));
                }
                Err(Halt::User(reason)) => {
                    self.roll_back(reason).await?;
                    return Ok(End::RolledBack(reason));
                }
                Err(Halt::Fault(failure)) => {
                    self.ops.fault(self.port.now());
                    return Err(failure);
                }
                Err(Halt::Abort(abort)) => {
                    // With nothing read, nothing has misled it.
                    let alone = !self.txn.has_read();
                    self.abort(abort.name()).await?;
                    aborts += 1;
                    alike = (Some(abort), if alike.0 == Some(abort) { alike.1 + 1 } else { 1 });
                    let stays = abort.is_about_existence() && (alone || alike.1 >= BELIEVED_AFTER);
                    let given_up = abort.is_final() || stays || aborts >= self.retry.attempts;
                    if given_up || self.window.over(self.ended_at) {
                        self.left_undone(given_up);
                        self.tried(aborts);
                        return Ok(End::GivenUp(abort));
                    }
                    self.back_off(aborts).await;
                }
            }
        }
    }

    /// A transaction is not tried again: it is given up, or the window has closed.
    fn left_undone(&self, given_up: bool) {
        let stats = &mut *self.stats.borrow_mut();
        *(if given_up { &mut stats.given_up } else { &mut stats.cut_off }) += 1;
    }

    /// A transaction has ended with its `attempts`th attempt.
    fn tried(&self, attempts: u32) {
        let most = &mut self.stats.borrow_mut().attempts_most;
        *most = (*most).max(u64::from(attempts));
    }

    async fn back_off(&mut self, aborts: u32) {
        let draw = self.rng.random::<f64>();
        let until = self.ended_at + self.retry.wait(aborts, draw);
        sleep_until(&self.port, until).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wait_doubles_up_to_its_limit() {
        let policy = RetryPolicy { attempts: 9, first: Nanos(1_000), longest: Nanos(10_000) };
        let limits: Vec<u64> = (1..=6).map(|n| policy.wait(n, 1.0).0).collect();
        assert_eq!(limits, [1_000, 2_000, 4_000, 8_000, 10_000, 10_000]);
        assert_eq!(policy.wait(3, 0.25), Nanos(1_000));
        let limits = [PATIENCE - 1, PATIENCE, 2 * PATIENCE, 3 * PATIENCE].map(|n| policy.wait(n, 1.0).0);
        assert_eq!(
            limits,
            [10_000, 20_000, 40_000, 80_000],
            "and goes on slowly where even that is not enough"
        );
        assert_eq!(policy.wait(u32::MAX, 0.5), Nanos(MOST_PAUSE.0 / 2));
    }
}
