//! Phase operations with a stopwatch and a pen: what the session sees of each phase.
//!
//! Sits between the protocol and the operations, so that protocols stay free of both. Reads are recorded when they
//! come back. Writes are recorded when the log (or, without backups, the install) is about to be written, which is
//! before anybody else can see them; from then on the transaction's fate is open until the last phase returns. With both goes a
//! digest of the payload, as it came back or is about to go, so that a read of what no writer left is known ([`Digest`]).

use crate::verify::{Digest, Key, Recorder};
use phases::ops::{PhaseOps, Stop};
use phases::plan::Phase;
use phases::rule::{Abort, CheckRule, LockRule, Timestamp};
use phases::store::TableId;
use phases::txn::{Access, Change, Intent, Order, Scan, Txn};
use primitives::fabric::Nic;
use primitives::units::Nanos;
use primitives::verbs::port::EnginePort;
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// Phases.
pub(super) const PHASES: usize = Phase::ALL.len();

/// Operations, observed.
pub(super) struct Observed<O> {
    ops: Rc<O>,
    port: Rc<EnginePort>,
    /// Whether this transaction's phases are timed.
    timed: Cell<bool>,
    /// Time spent in each phase by this attempt; `None` where it did not run or was not timed.
    spent: Cell<[Option<Nanos>; PHASES]>,
    /// When a phase began that the operations do not run themselves.
    since: Cell<Nanos>,
    pen: RefCell<Option<Pen>>,
}

/// The recorder, and which accesses of the transaction it has recorded as read.
struct Pen {
    recorder: Recorder,
    read: Vec<bool>,
    /// So many of the first ones, at least.
    all_before: usize,
    wrote: bool,
}

fn key_of(access: &Access) -> Key {
    Key { table: u32::from(access.table.0), key: access.key }
}

impl<O> Observed<O> {
    pub(super) fn new(ops: Rc<O>, port: Rc<EnginePort>, recorder: Option<Recorder>) -> Observed<O> {
        let pen = recorder.map(|recorder| Pen {
            recorder,
            read: Vec::with_capacity(32),
            all_before: 0,
            wrote: false,
        });
        Observed {
            ops,
            port,
            timed: Cell::new(false),
            spent: Cell::new([None; PHASES]),
            since: Cell::new(Nanos(0)),
            pen: RefCell::new(pen),
        }
    }

    pub(super) fn into_recorder(self) -> Option<Recorder> {
        self.pen.into_inner().map(|pen| pen.recorder)
    }

    /// A transaction begins.
    #[inline]
    pub(super) fn begin(&self, timed: bool) {
        // No later than its first effect.
        self.begin_at(timed, self.port.nic().event_time());
    }

    /// A transaction begins that was asked for at `invoked`.
    #[inline]
    pub(super) fn begin_at(&self, timed: bool, invoked: Nanos) {
        self.timed.set(timed);
        if timed {
            self.spent.set([None; PHASES]);
        }
        if let Some(pen) = &mut *self.pen.borrow_mut() {
            pen.recorder.begin(invoked);
            pen.read.clear();
            (pen.all_before, pen.wrote) = (0, false);
        }
    }

    /// Time spent in each phase by the attempt, if it was timed.
    #[inline]
    pub(super) fn spent(&self) -> Option<[Option<Nanos>; PHASES]> {
        self.timed.get().then(|| self.spent.get())
    }

    /// The attempt ended: committed, or aborted for a reason.
    #[inline]
    pub(super) fn end(&self, aborted: Option<&'static str>, now: Nanos) {
        if let Some(pen) = &mut *self.pen.borrow_mut() {
            match aborted {
                None => pen.recorder.commit(now),
                Some(reason) => pen.recorder.abort(reason, now),
            }
        }
    }

    /// A fault ended the attempt; true if nobody can say whether it took effect.
    pub(super) fn fault(&self, now: Nanos) {
        if let Some(pen) = &mut *self.pen.borrow_mut() {
            if pen.wrote {
                pen.recorder.in_doubt();
            } else {
                pen.recorder.abort("fault", now);
            }
        }
    }

    #[inline]
    fn start(&self) -> Nanos {
        if self.timed.get() { self.port.now() } else { Nanos(0) }
    }

    #[inline]
    fn stop(&self, phase: Phase, start: Nanos) {
        if self.timed.get() {
            self.spend(phase, self.port.now().since(start));
        }
    }

    /// So much time went into a phase.
    pub(super) fn spend(&self, phase: Phase, span: Nanos) {
        if self.timed.get() {
            let mut spent = self.spent.get();
            let so_far = &mut spent[phase as usize];
            *so_far = Some(so_far.unwrap_or(Nanos(0)) + span);
            self.spent.set(spent);
        }
    }

    /// A phase begins that is driven from outside, record by record.
    pub(super) fn reading(&self) {
        self.since.set(self.start());
    }

    /// It has ended, with all records read.
    pub(super) fn have_read(&self, phase: Phase, txn: &Txn) {
        self.stop(phase, self.since.get());
        self.record_reads(txn);
    }

    /// What was written is about to be seen.
    pub(super) fn writing(&self, txn: &Txn) {
        self.record_writes(txn);
    }

    fn record_reads(&self, txn: &Txn) {
        if let Some(pen) = &mut *self.pen.borrow_mut() {
            pen.read.resize(txn.accesses().len(), false);
            debug_assert!(
                pen.all_before <= pen.read.len(),
                "a transaction forgets records only before anything was done with them: those that were read stay"
            );
            for (access, read) in txn.accesses().iter().zip(&mut pen.read).skip(pen.all_before) {
                // A slot set aside shows that there was no such record, too.
                if (access.fetched() || access.reserved()) && !std::mem::replace(read, true) {
                    if access.absent() || access.reserved() {
                        pen.recorder.read_absent(key_of(access), access.version);
                    } else {
                        let digest = access.values_read().map_or(Digest::NONE, Digest::of);
                        pen.recorder.read_of(key_of(access), access.version, digest);
                    }
                }
            }
            pen.all_before += pen.read[pen.all_before..].iter().take_while(|&&read| read).count();
        }
    }

    /// The part of the range that the scan has gone through.
    fn record_range(&self, txn: &Txn, scan: &Scan) {
        if let Some(pen) = &mut *self.pen.borrow_mut()
            && scan.from <= scan.to
            && scan.limit > 0
        {
            let full = txn.scanned().len() >= scan.limit;
            let last = txn.scanned().last().filter(|_| full).map(|&at| txn.accesses()[at as usize].key);
            let (from, to) = match (last, scan.order) {
                (None, _) => (scan.from, scan.to),
                (Some(last), Order::Ascending) => (scan.from, last),
                (Some(last), Order::Descending) => (last, scan.to),
            };
            pen.recorder.read_range(u32::from(scan.table.0), from, to);
        }
    }

    fn record_writes(&self, txn: &Txn) {
        if let Some(pen) = &mut *self.pen.borrow_mut()
            && !std::mem::replace(&mut pen.wrote, true)
        {
            for access in txn.accesses() {
                let (key, version) = (key_of(access), access.next_version(txn.install_at));
                match access.change {
                    Change::Delete => pen.recorder.delete(key, version),
                    _ if access.dirty() => {
                        pen.recorder.write_of(key, version, Digest::of(access.values()));
                    }
                    _ => {}
                }
            }
        }
    }
}

impl<O> Observed<O> {
    /// A phase was tried that ends at once or not at all.
    #[inline]
    fn done_now(
        &self,
        phase: Phase,
        start: Nanos,
        txn: &Txn,
        done: Result<bool, Stop>,
    ) -> Result<bool, Stop> {
        // What it has begun with is part of what it is awaited for.
        if !matches!(done, Ok(false)) {
            self.stop(phase, start);
        }
        if matches!(done, Ok(true)) {
            self.record_reads(txn);
        }
        done
    }
}

impl<O: PhaseOps> PhaseOps for Observed<O> {
    fn timestamp(&self) -> Result<Timestamp, Abort> {
        self.ops.timestamp()
    }

    fn expect(&self, records: impl Iterator<Item = (TableId, u64)> + Clone) {
        self.ops.expect(records);
    }

    async fn fetch(&self, txn: &mut Txn) -> Result<(), Stop> {
        let start = self.start();
        let done = self.ops.fetch(txn).await;
        self.stop(Phase::Fetch, start);
        if done.is_ok() {
            self.record_reads(txn);
        }
        done
    }

    #[inline]
    fn fetch_now(&self, txn: &mut Txn) -> Result<bool, Stop> {
        let start = self.start();
        let done = self.ops.fetch_now(txn);
        self.done_now(Phase::Fetch, start, txn, done)
    }

    #[inline]
    fn lock_and_read_now(&self, txn: &mut Txn, rule: LockRule) -> Result<bool, Stop> {
        let start = self.start();
        let done = self.ops.lock_and_read_now(txn, rule);
        self.done_now(Phase::Lock, start, txn, done)
    }

    async fn scan(&self, txn: &mut Txn, scan: &Scan) -> Result<(), Stop> {
        let start = self.start();
        let done = self.ops.scan(txn, scan).await;
        self.stop(Phase::Fetch, start);
        if done.is_ok() {
            self.record_reads(txn);
            self.record_range(txn, scan);
        }
        done
    }

    async fn lock_and_read(&self, txn: &mut Txn, rule: LockRule) -> Result<(), Stop> {
        // Under two-phase locking most transactions have all their locks when they commit.
        if txn.has_locked(rule) {
            return Ok(());
        }
        let start = self.start();
        let done = self.ops.lock_and_read(txn, rule).await;
        self.stop(Phase::Lock, start);
        if done.is_ok() {
            self.record_reads(txn);
        }
        done
    }

    async fn validate(&self, txn: &mut Txn, rule: CheckRule) -> Result<(), Stop> {
        // Many transactions write all that they read.
        if !txn.has_scanned() && !txn.accesses().iter().any(|a| a.intent == Intent::Read) {
            return Ok(());
        }
        let start = self.start();
        let done = self.ops.validate(txn, rule).await;
        self.stop(Phase::Validate, start);
        done
    }

    async fn replicate(&self, txn: &mut Txn) -> Result<(), Stop> {
        self.record_writes(txn);
        let start = self.start();
        let done = self.ops.replicate(txn).await;
        self.stop(Phase::Log, start);
        done
    }

    async fn install_and_unlock(&self, txn: &mut Txn) -> Result<(), Stop> {
        self.record_writes(txn);
        let start = self.start();
        let done = self.ops.install_and_unlock(txn).await;
        self.stop(Phase::Install, start);
        done
    }

    async fn unlock(&self, txn: &mut Txn) -> Result<(), Stop> {
        if !txn.holds_locks() {
            return Ok(());
        }
        let start = self.start();
        let done = self.ops.unlock(txn).await;
        self.stop(Phase::Unlock, start);
        done
    }
}
