//! One record of a transaction: what is wanted with it, what was read, what is to be written.

use crate::rule::{Ask, Header, LockRule, Mode, Packing, Timestamp};
use crate::store::layout::{Images, TableId};
use crate::store::record::{self, Shape, Word};
use primitives::mem::Buf;
use primitives::verbs::NodeId;
use std::sync::atomic::{AtomicU64, Ordering};

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
    pub(super) absent: bool,
    /// The owner has set a slot aside for it.
    pub(super) reserved: bool,
    /// Its shape: how its state is packed, and words of payload.
    pub(super) packing: Packing,
    pub(super) payload: u16,
    /// Where the payload that was read begins in the first image.
    pub(super) first: u16,
    /// Where the new payload begins in the buffer, if the record is written; 0 for where it was read, if it was.
    pub(super) new: u16,
    pub(super) buf: Buf,
    pub(crate) fetched: bool,
    /// How this transaction holds it.
    pub(crate) held: Option<Mode>,
    /// It was locked by somebody else when it was read.
    pub(super) busy: bool,
    /// The transaction's place in the order, where versions are kept; with what was seen there:
    pub(crate) time: Timestamp,
    /// the record's read timestamp,
    pub(crate) rts: u64,
    /// the slot that its next version replaces,
    pub(crate) victim: u8,
    /// and whether the version read is known to be the right one: rts is beyond the transaction and nobody earlier writes.
    pub(crate) confirmed: bool,
    pub(super) dirty: bool,
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
    pub fn values(&self) -> &[AtomicU64] {
        &self.buf.words()[self.current()..][..self.payload_words()]
    }

    /// All words of the payload as they were read, if they were and have not been written over.
    #[inline]
    pub fn values_read(&self) -> Option<&[AtomicU64]> {
        let there = self.fetched && !self.absent && !self.written_in_place();
        there.then(|| &self.buf.words()[self.first.into()..][..self.payload_words()])
    }

    /// Where the payload begins in the buffer: the new one if there is one, else the one read.
    #[inline(always)]
    pub(super) fn current(&self) -> usize {
        if self.dirty {
            return self.new.into();
        }
        if !self.fetched || self.absent {
            self.bug("not read yet, or not there");
        }
        self.first.into()
    }

    #[cold]
    pub(super) fn bug(&self, what: &str) -> ! {
        panic!("table {} key {}: {what}", self.table.0, self.key)
    }

    /// Whether its new values are where it was read.
    #[inline]
    pub(super) fn written_in_place(&self) -> bool {
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
    pub(super) fn new_payload(&self) -> &[AtomicU64] {
        if !self.dirty {
            self.bug("nothing of the record is new");
        }
        &self.buf.words()[self.new.into()..][..self.payload_words()]
    }

    /// The new payload begins as what was read, or as zeros.
    pub(super) fn begin_image(&mut self) {
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
    pub(super) fn begin_empty(&mut self) {
        self.becomes_dirty();
        self.new = Images::second(self.shape());
        self.new_payload().iter().for_each(|word| word.store(0, Ordering::Relaxed));
    }

    #[inline]
    pub(super) fn becomes_dirty(&mut self) {
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
