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

mod found;
mod places;
mod structure;

pub use found::Finding;
pub(crate) use structure::{Growth, LeafSeen};
pub use structure::{Order, Scan};

use crate::log::Slot;
use crate::plan::Phase;
use crate::rule::{Ask, Header, LockRule, Mode, Packing, Stamp, Timestamp};
use crate::store::layout::{Images, Layout, TableId};
use crate::store::record::{self, Shape, Word};
use places::Places;
use primitives::fabric::{CpuWork, Nic};
use primitives::mem::{Buf, PoolExhausted};
use primitives::verbs::NodeId;
use primitives::verbs::port::{Cost, EnginePort};
use std::sync::atomic::{AtomicU64, Ordering};

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

/// What a transaction wants with a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Intent {
    /// Read it; validated at commit.
    Read,
    /// Read and write it; locked at commit.
    Write,
}

/// What becomes of a record at commit, if its intent is to write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Change {
    /// New values, if there are any.
    #[default]
    Update,
    /// It is created: the owner takes a slot for it in the lock phase, which the install fills.
    Insert,
    /// It is removed, by the owner, when the transaction installs.
    Delete,
}

/// Location of a record that is not known.
pub(crate) const NOWHERE: u64 = u64::MAX;

/// One record of a transaction.
///
/// It is put together for every record that is touched, and of no more than 128 bytes it is moved into its place without a
/// call: numbers of words, which [`record::MAX_PAYLOAD_WORDS`] bounds, are narrow.
#[derive(Debug)]
pub struct Access {
    /// Its table.
    pub table: TableId,
    /// Its key.
    pub key: u64,
    /// The node that holds its primary copy.
    pub primary: NodeId,
    /// What the transaction wants with it.
    pub intent: Intent,
    /// What becomes of it, if it is written.
    pub change: Change,
    /// Its version as read: what new values build on and what validation compares with.
    pub version: u64,
    /// Its lock word as this transaction saw it last, or put it there: the word the next CAS expects.
    pub header: Header,
    pub(crate) location: u64,
    /// The next index bucket to look into, while a lookup is under way; before, 0 or the one that was asked for ahead.
    pub(crate) walk: u64,
    /// That bucket.
    pub(crate) bucket: Option<Buf>,
    /// The location comes from the index, not from a cache.
    pub(crate) fresh: bool,
    /// There may be no such record.
    pub(crate) optional: bool,
    /// There was no such record when it was read; its version stands for that absence.
    absent: bool,
    /// The owner has set a slot aside for it.
    reserved: bool,
    /// Its shape: how its state is packed, and words of payload.
    packing: Packing,
    payload: u16,
    /// Where the payload that was read begins in the first image.
    first: u16,
    /// Where the new payload begins in the buffer, if the record is written; 0 for where it was read, if it was.
    new: u16,
    buf: Buf,
    pub(crate) fetched: bool,
    /// How this transaction holds it.
    pub(crate) held: Option<Mode>,
    /// It was locked by somebody else when it was read.
    busy: bool,
    /// The transaction's place in the order, where versions are kept; with what was seen there:
    pub(crate) time: Timestamp,
    /// the record's read timestamp,
    pub(crate) rts: u64,
    /// the slot that its next version replaces,
    pub(crate) victim: u8,
    /// and whether the version read is known to be the right one: rts is beyond the transaction and nobody earlier writes.
    pub(crate) confirmed: bool,
    dirty: bool,
    /// The current phase has still to serve this record.
    pub(crate) pending: bool,
}

const _: () = assert!(size_of::<Access>() <= Access::MOST_BYTES);

impl Access {
    /// Bytes that compilers move in a few instructions on the processors we know.
    const MOST_BYTES: usize = 128;

    /// Whether its record has been read, or found not to be there.
    pub fn fetched(&self) -> bool {
        self.fetched
    }

    /// Whether there was no such record when it was looked for.
    pub fn absent(&self) -> bool {
        self.absent
    }

    /// The version that stood for its absence, if it was looked for and not there.
    #[inline]
    pub(crate) fn absence(&self) -> Option<u64> {
        self.absent.then_some(self.version)
    }

    /// Whether there is such a record as the transaction sees it, with its own inserts and deletes.
    pub fn exists(&self) -> bool {
        match self.change {
            Change::Update => !self.absent,
            Change::Insert => self.dirty,
            Change::Delete => false,
        }
    }

    /// Whether the owner keeps a slot for this transaction to insert it into.
    pub fn reserved(&self) -> bool {
        self.reserved
    }

    /// Whether another transaction held its lock when it was read. That one may have committed already, so nothing
    /// may be concluded from what was read before it has been validated.
    pub fn read_locked(&self) -> bool {
        self.fetched && self.busy
    }

    /// Whether this transaction holds its lock.
    #[inline]
    pub fn locked(&self) -> bool {
        self.held.is_some()
    }

    /// Whether it has new values.
    pub fn dirty(&self) -> bool {
        self.dirty
    }

    /// Byte offset of the record in the primary's region, once known.
    pub fn location(&self) -> Option<u64> {
        (self.location != NOWHERE).then_some(self.location)
    }

    /// Words of payload.
    #[inline]
    pub fn payload_words(&self) -> usize {
        usize::from(self.payload)
    }

    /// Word `index` of the payload: the new value if there is one, else the value read.
    ///
    /// # Panics
    /// If the record has neither been read nor written, or has no such word.
    #[inline]
    pub fn word(&self, index: usize) -> u64 {
        assert!(index < self.payload_words(), "payload word {index} of {}", self.payload);
        self.buf.word(self.current() + index)
    }

    /// All words of the payload, as [`Access::word`] gives them.
    ///
    /// # Panics
    /// If the record has neither been read nor written.
    #[inline(always)]
    pub(crate) fn values(&self) -> &[AtomicU64] {
        &self.buf.words()[self.current()..][..self.payload_words()]
    }

    /// Where the payload begins in the buffer: the new one if there is one, else the one read.
    #[inline(always)]
    fn current(&self) -> usize {
        if self.dirty {
            return self.new.into();
        }
        if !self.fetched || self.absent {
            self.bug("not read yet, or not there");
        }
        self.first.into()
    }

    #[cold]
    fn bug(&self, what: &str) -> ! {
        panic!("table {} key {}: {what}", self.table.0, self.key)
    }

    /// Whether its new values are where it was read.
    #[inline]
    fn written_in_place(&self) -> bool {
        self.dirty && self.new == self.first
    }

    /// Sets word `index` of the new payload; the words not set keep the value read (or are zero, if the record
    /// was not read).
    ///
    /// # Panics
    /// If the intent is not to write, or there is no such word.
    #[inline]
    pub fn set_word(&mut self, index: usize, value: u64) {
        assert!(index < self.payload_words(), "payload word {index} of {}", self.payload);
        if !self.dirty {
            self.begin_image();
        }
        self.buf.set_word(usize::from(self.new) + index, value);
    }

    /// All words of the new payload, to be set, for who sets many of them: what is the same for all is looked at once.
    ///
    /// # Panics
    /// If no word of it has been set, nor the record been inserted.
    #[inline]
    fn new_payload(&self) -> &[AtomicU64] {
        if !self.dirty {
            self.bug("nothing of the record is new");
        }
        &self.buf.words()[self.new.into()..][..self.payload_words()]
    }

    /// The new payload begins as what was read, or as zeros.
    fn begin_image(&mut self) {
        if !self.fetched || self.absent {
            return self.begin_empty();
        }
        self.becomes_dirty();
        if self.new != 0 {
            let (words, length) = (self.buf.words(), self.payload_words());
            let read = &words[self.first.into()..][..length];
            record::copy_words(read, &words[self.new.into()..][..length]);
        } else {
            self.new = self.first;
        }
    }

    /// The new payload begins as zeros.
    #[inline]
    fn begin_empty(&mut self) {
        self.becomes_dirty();
        self.new = Images::second(self.shape());
        self.new_payload().iter().for_each(|word| word.store(0, Ordering::Relaxed));
    }

    #[inline]
    fn becomes_dirty(&mut self) {
        if self.intent != Intent::Write {
            self.bug("it is to be read only, and is written");
        }
        if self.absent && self.change == Change::Update {
            self.bug("it is not there, and is written without being inserted");
        }
        self.dirty = true;
    }

    /// Whether backups have to be told of it.
    #[inline]
    pub(crate) fn logged(&self) -> bool {
        self.intent == Intent::Write && (self.dirty || self.change == Change::Delete)
    }

    /// Words of payload in a log entry.
    #[inline]
    pub(crate) fn logged_words(&self) -> usize {
        if self.change == Change::Delete { 0 } else { self.payload_words() }
    }

    /// These words.
    ///
    /// # Panics
    /// As [`Access::values`], unless the record is removed.
    #[inline]
    pub(crate) fn logged_values(&self) -> &[AtomicU64] {
        if self.change == Change::Delete { &[] } else { self.values() }
    }

    /// The record is in the first image: takes a version of it.
    #[inline(always)]
    pub(crate) fn read_in(&mut self, slot: usize) {
        let (shape, words) = (self.shape(), self.buf.words());
        let (state, version) = (words[record::HEADER_WORD].get(), words[shape.version_word(slot)].get());
        self.take(Header(state), version, shape.payload_word(slot));
    }

    /// Takes a version whose payload is in the first image from word `first` on; `state` is the record's first word.
    #[inline(always)]
    pub(crate) fn take(&mut self, state: Header, version: u64, first: usize) {
        if self.written_in_place() {
            self.bug("read again over what was written");
        }
        self.version = self.shape().version(version);
        self.first = first as u16;
        if self.held.is_none() {
            self.busy = match self.packing {
                Packing::Counted | Packing::Leased => state.locked(),
                Packing::Locked | Packing::Versions => state.0 != 0,
            };
            self.header = match self.packing {
                packing @ (Packing::Counted | Packing::Leased) => packing.free(state),
                Packing::Locked | Packing::Versions => Header(0),
            };
        }
        (self.fetched, self.absent, self.pending) = (true, false, false);
    }

    /// Word `index` of the payload as it was read, whatever the transaction has made of it, of a record it came by after it was ordered.
    #[inline]
    pub(crate) fn word_read(&self, index: usize) -> u64 {
        if self.written_in_place() {
            self.bug("written over what was read");
        }
        self.buf.word(usize::from(self.first) + index)
    }

    /// Whether there is something to be read that was not; what is to be created is not there.
    #[inline]
    pub fn unread(&self) -> bool {
        !self.fetched && self.change != Change::Insert
    }

    /// Where the words of its record are.
    #[inline]
    pub(crate) fn shape(&self) -> Shape {
        Shape { packing: self.packing, payload: self.payload.into() }
    }

    /// The mode in which it is still to be locked, if it is.
    #[inline]
    pub(crate) fn wants(&self, rule: LockRule) -> Option<Mode> {
        // Most that are asked are held.
        let mode = rule.mode(self.intent == Intent::Write);
        if self.held >= mode || self.absent || self.change == Change::Insert { None } else { mode }
    }

    /// What the transaction asks of its lock.
    #[inline]
    pub(crate) fn ask(&self, mode: Mode) -> Ask {
        Ask { mode, held: self.held.is_some(), read: self.fetched.then_some(self.version) }
    }

    /// It is locked now, and its lock word is `header`.
    #[inline]
    pub(crate) fn lock_is(&mut self, header: Header, mode: Mode) {
        (self.header, self.held) = (header, Some(mode));
    }

    /// Its lock is free again, or somebody else's to free: this transaction has no part in it any more.
    #[inline]
    pub(crate) fn let_go(&mut self) {
        (self.held, self.reserved) = (None, false);
        self.header = match self.packing {
            packing @ (Packing::Counted | Packing::Leased) => packing.free(self.header),
            Packing::Locked | Packing::Versions => Header(0),
        };
    }

    /// The version that its install leaves behind: `install_at`, or one more than was read where that is 0.
    #[inline]
    pub fn next_version(&self, install_at: u64) -> u64 {
        if install_at == 0 { Header::new(self.version).next().version() } else { install_at }
    }

    /// The buffer with both images.
    #[inline]
    pub(crate) fn image(&self) -> &Buf {
        &self.buf
    }

    /// Words of the record, and so of the first image.
    #[inline]
    pub(crate) fn image_words(&self) -> usize {
        self.shape().words()
    }

    /// Where the image to install begins, if there is a new payload.
    #[inline]
    pub(crate) fn install_word(&self) -> usize {
        usize::from(self.new) - self.shape().install_payload()
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
    /// Their names once more, close together: what is touched is looked for among them.
    names: Vec<(u64, TableId)>,
    /// Where they are.
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
        self.names.clear();
        self.places = Places::default();
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
        self.places.find((key, table), &self.names)
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
        self.names.push((key, table));
        self.places.add((key, table), self.names.len());
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
