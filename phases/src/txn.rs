//! A transaction's state: all that one phase may leave for the next.
//!
//! A [`Txn`] belongs to a coroutine and is used for one transaction after another; its vector keeps its
//! capacity and its buffers come from the port's pool, so a steady state allocates nothing. There is one
//! [`Access`] per record, whether the transaction reads it, writes it or both: reading one's own write is
//! looking at the same access, and turning a read into a write is setting its [`Intent`].
//!
//! An access's buffer has room for two images: the record as it was read, then what is to be installed. The second one's
//! first word doubles as the place where a CAS's old value and a validating READ land, because it gets its own
//! value only when the record is installed, after both. A record that was read and is then written is set where it was read, and
//! the first image becomes the one to be installed, unless what was read is needed later (see `Txn::touch`).

mod access;
mod found;
mod places;
mod structure;

pub(crate) use access::NOWHERE;
pub use access::{Access, Change, Intent};
pub use found::Finding;
pub(crate) use structure::{Growth, LeafSeen};
pub use structure::{Order, Scan};

use crate::log::Slot;
use crate::plan::Phase;
use crate::rule::{Header, LockRule, Packing, Stamp, Timestamp};
use crate::store::layout::{Images, Layout, TableId};
use places::Places;
use primitives::fabric::{CpuWork, Nic};
use primitives::mem::PoolExhausted;
use primitives::verbs::port::{Cost, EnginePort};
use std::sync::atomic::Ordering;

/// What each phase has cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Costs([Cost; Phase::ALL.len()]);

impl std::ops::Index<Phase> for Costs {
    type Output = Cost;
    fn index(&self, phase: Phase) -> &Cost {
        &self.0[phase as usize]
    }
}

impl std::ops::IndexMut<Phase> for Costs {
    fn index_mut(&mut self, phase: Phase) -> &mut Cost {
        &mut self.0[phase as usize]
    }
}

impl std::ops::AddAssign for Costs {
    fn add_assign(&mut self, rhs: Costs) {
        for (mine, theirs) in self.0.iter_mut().zip(rhs.0) {
            *mine += theirs;
        }
    }
}

/// A transaction.
#[derive(Debug, Default)]
pub struct Txn {
    /// Its name.
    pub stamp: Stamp,
    /// Its age (wait-die) or its place in the order (MVCC); 0 under protocols that have no use for it. A retry may keep
    /// it.
    pub time: Timestamp,
    /// The version that its installs leave behind; 0 counts each record's up.
    pub install_at: u64,
    /// What its phases have cost so far.
    pub costs: Costs,
    accesses: Vec<Access>,
    /// Where they are, by their names.
    places: Places,
    /// So many of the first records are settled: fetching has brought them in,
    fetched_to: usize,
    /// and locking has locked those that it has to, and read them.
    locked_to: usize,
    log: Vec<Slot>,
    /// It has looked at a range.
    ranged: bool,
    /// It has been told to create a record.
    creates: bool,
    /// Leaves that scans have looked at, where they are to be validated.
    leaves: Vec<LeafSeen>,
    /// What slots that were set aside have done to leaves, where scans have looked at some.
    growths: Vec<Growth>,
    /// Places of the rows that the last scan found.
    scanned: Vec<u32>,
    /// The latest time at which a key went from what scans have looked at, where versions are times.
    removed_at: u64,
    /// Owners are not told of ranges that are read.
    pub(crate) unseen: bool,
    /// What it finds on the way, if it was ordered before it runs.
    found: found::Found,
}

impl Txn {
    /// A transaction that has not begun.
    pub fn new() -> Txn {
        Txn::default()
    }

    /// Begins: forgets the last transaction's records and costs, keeps memory.
    ///
    /// # Panics
    /// If the last transaction still holds locks: its session forgot to unlock.
    pub fn begin(&mut self, stamp: Stamp) {
        self.rest();
        self.log.clear();
        self.leaves.clear();
        self.growths.clear();
        self.scanned.clear();
        self.costs = Costs::default();
        self.stamp = stamp;
        (self.install_at, self.removed_at, self.unseen, self.ranged) = (0, 0, false, false);
        self.creates = false;
    }

    /// Forgets the records, whose buffers others may need until the next transaction begins.
    ///
    /// # Panics
    /// If locks are held.
    pub fn rest(&mut self) {
        assert!(self.accesses.iter().all(|a| a.held.is_none()), "bug: {:?} ended holding locks", self.stamp);
        self.accesses.clear();
        self.places.clear();
        (self.fetched_to, self.locked_to) = (0, 0);
        self.found.clear();
    }

    /// The records of the transaction, in the order they were touched.
    pub fn accesses(&self) -> &[Access] {
        &self.accesses
    }

    /// The records and the costs, for a phase.
    #[inline]
    pub(crate) fn serve(&mut self, phase: Phase) -> (&mut [Access], &mut Cost) {
        (&mut self.accesses, &mut self.costs[phase])
    }

    /// As [`Txn::serve`] of fetching and of locking, without the first records if they are settled: who asks for one record after the other
    /// would look at all of those each time.
    #[inline]
    pub(crate) fn serve_rest(&mut self, phase: Phase) -> (&mut [Access], &mut Cost) {
        let settled = if phase == Phase::Lock { self.locked_to } else { self.fetched_to };
        (&mut self.accesses[settled..], &mut self.costs[phase])
    }

    /// Fetching or locking has done all that is asked of it so far.
    #[inline]
    pub(crate) fn settle(&mut self, phase: Phase) {
        let settled = if phase == Phase::Lock { &mut self.locked_to } else { &mut self.fetched_to };
        *settled = self.accesses.len();
    }

    /// Of the record at place `at` more is to be locked, or it is locked no longer.
    #[inline]
    pub(crate) fn unsettle(&mut self, at: usize) {
        self.locked_to = self.locked_to.min(at);
    }

    /// The records and the log entries made of them.
    pub(crate) fn logging(&mut self) -> (&[Access], &mut Vec<Slot>) {
        (&self.accesses, &mut self.log)
    }

    /// The log entries and the costs of logging.
    pub(crate) fn log(&mut self) -> (&mut Vec<Slot>, &mut Cost) {
        (&mut self.log, &mut self.costs[Phase::Log])
    }

    /// Where a record is in [`Txn::accesses`], if the transaction has touched it.
    #[inline]
    pub fn find(&self, table: TableId, key: u64) -> Option<usize> {
        self.places.find(table, key)
    }

    /// Adds a record, or raises the intent of one that is there; returns its place. Places stay valid until the
    /// next `begin`.
    ///
    /// # Errors
    /// If the port's pool has no buffer left.
    ///
    /// # Panics
    /// If the layout has no such table.
    pub fn touch(
        &mut self,
        port: &EnginePort,
        layout: &Layout,
        table: TableId,
        key: u64,
        intent: Intent,
    ) -> Result<usize, PoolExhausted> {
        if let Some(at) = self.find(table, key) {
            self.intend(at, intent);
            return Ok(at);
        }
        port.nic().charge(CpuWork::Access);
        let Images { shape, bytes, new } = layout.images(table);
        // What was read is needed after it has been written where a lock may bring the record along although it was read before, and
        // where others may be told what was read.
        let needed = shape.packing != Packing::Counted || self.finding() != Finding::Nothing;
        let new = if needed { new } else { 0 };
        let buf = port.buf(bytes)?;
        self.places.add(table, key);
        self.accesses.push(Access {
            table,
            key,
            primary: layout.primary(table, key),
            intent,
            change: Change::Update,
            version: 0,
            header: Header::default(),
            location: NOWHERE,
            walk: 0,
            bucket: None,
            fresh: false,
            optional: false,
            absent: false,
            reserved: false,
            packing: shape.packing,
            payload: shape.payload as u16,
            first: 0,
            new,
            buf,
            fetched: false,
            held: None,
            busy: false,
            time: self.time,
            rts: 0,
            victim: 0,
            confirmed: false,
            dirty: false,
            pending: false,
        });
        Ok(self.accesses.len() - 1)
    }

    /// Gives all records another place in the order than the one they were read at, which is a bug unless nothing was
    /// read: for protocols that are wrong on purpose.
    #[doc(hidden)]
    pub fn move_to(&mut self, time: Timestamp) {
        self.accesses.iter_mut().for_each(|a| a.time = time);
    }

    /// Lets the ranges that were scanned go without validation, which is a bug: for protocols that are wrong on purpose.
    #[doc(hidden)]
    pub fn believe_ranges(&mut self) {
        self.leaves.clear();
    }

    /// The same for records that were not there.
    #[doc(hidden)]
    pub fn believe_absence(&mut self) {
        self.accesses.iter_mut().filter(|a| a.absent).for_each(|a| a.confirmed = true);
    }

    /// Tells no owner at which time ranges are read, which is a bug.
    #[doc(hidden)]
    pub fn read_ranges_unseen(&mut self) {
        self.unseen = true;
    }

    /// Makes every record that `wanted` names one to be written, with the payload that was read; whether there was any.
    pub fn rewrite(&mut self, wanted: impl Fn(&Access) -> bool) -> bool {
        let mut any = false;
        for access in self.accesses.iter_mut().filter(|a| a.fetched && !a.absent && wanted(a)) {
            access.intent = Intent::Write;
            access.set_word(0, access.word(0));
            any = true;
        }
        self.unsettle(0);
        any
    }

    /// Raises the intent with the record at place `at`.
    ///
    /// # Panics
    /// If there is no such place.
    #[inline]
    pub fn intend(&mut self, at: usize, intent: Intent) {
        let access = &mut self.accesses[at];
        if access.intent < intent {
            access.intent = intent;
            self.unsettle(at);
        }
    }

    /// Word `index` of the payload of the record at place `at`: its new value if the transaction wrote it.
    ///
    /// # Panics
    /// If there is no such place or word, or the record was not fetched.
    #[inline]
    pub fn word(&self, at: usize, index: usize) -> u64 {
        self.accesses[at].word(index)
    }

    /// As [`Txn::word`], for who looks at many words of one record.
    ///
    /// # Panics
    /// As [`Txn::word`], of the place and the record at once, of the word when it is asked for.
    #[inline]
    pub fn payload(&self, at: usize) -> impl Fn(usize) -> u64 {
        let words = self.accesses[at].values();
        move |index| words[index].load(Ordering::Relaxed)
    }

    /// As [`Txn::set_word`], for who sets many words of one record.
    ///
    /// # Panics
    /// If there is no such place, or no word of the record has been set and it is not inserted either; when a word is set, if there
    /// is no such word.
    #[inline]
    pub fn new_payload(&self, at: usize) -> impl Fn(usize, u64) {
        let words = self.accesses[at].new_payload();
        move |index, value| words[index].store(value, Ordering::Relaxed)
    }

    /// Sets word `index` of the new payload of the record at place `at`.
    ///
    /// # Panics
    /// If there is no such place or word, or the record's intent is not to write.
    #[inline]
    pub fn set_word(&mut self, at: usize, index: usize, value: u64) {
        self.accesses[at].set_word(index, value);
    }

    /// Whether any record is to be written.
    pub fn writes(&self) -> bool {
        self.accesses.iter().any(|a| a.intent == Intent::Write)
    }

    /// Whether every lock that the rule asks for is held.
    #[inline]
    pub fn has_locked(&self, rule: LockRule) -> bool {
        // If one is not, it is most likely the record touched last.
        self.accesses[self.locked_to..].iter().rev().all(|a| a.wants(rule).is_none() && !a.wants_slot())
    }

    /// Whether any lock is held.
    pub fn holds_locks(&self) -> bool {
        self.accesses.iter().any(Access::locked)
    }
}
