//! A transaction's state: all that one phase may leave for the next.
//!
//! A [`Txn`] belongs to a coroutine and is used for one transaction after another; its vector keeps its
//! capacity and its buffers come from the port's pool, so a steady state allocates nothing. There is one
//! [`Access`] per record, whether the transaction reads it, writes it or both: reading one's own write is
//! looking at the same access, and turning a read into a write is setting its [`Intent`].
//!
//! An access's buffer holds two record images: the one read, then the one to be installed. The second one's
//! header word doubles as the place where a CAS's old value and a validating READ land, because it gets its own
//! value only when the record is installed, after both.

use crate::log::Slot;
use crate::plan::Phase;
use crate::rule::{Header, Stamp};
use crate::store::layout::{Layout, TableId};
use crate::store::record;
use primitives::mem::{Buf, PoolExhausted};
use primitives::verbs::NodeId;
use primitives::verbs::port::{Cost, EnginePort};

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

/// Location of a record that is not known.
pub(crate) const NOWHERE: u64 = u64::MAX;

/// One record of a transaction.
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
    /// Its header as read: the version that new values build on and that validation compares with.
    pub header: Header,
    pub(crate) location: u64,
    /// The next index bucket to look into, while a lookup is under way; 0 before.
    pub(crate) walk: u64,
    /// That bucket.
    pub(crate) bucket: Option<Buf>,
    payload_words: u32,
    buf: Buf,
    pub(crate) fetched: bool,
    pub(crate) locked: bool,
    dirty: bool,
    /// The current phase has still to serve this record.
    pub(crate) pending: bool,
}

impl Access {
    /// Whether its record has been read.
    pub fn fetched(&self) -> bool {
        self.fetched
    }

    /// Whether another transaction held its lock when it was read. That one may have committed already, so nothing
    /// may be concluded from what was read before it has been validated.
    pub fn read_locked(&self) -> bool {
        self.fetched && Header(self.image().word(record::HEADER_WORD)).locked()
    }

    /// Whether this transaction holds its lock.
    pub fn locked(&self) -> bool {
        self.locked
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
    pub fn payload_words(&self) -> usize {
        self.payload_words as usize
    }

    /// Word `index` of the payload: the new value if there is one, else the value read.
    ///
    /// # Panics
    /// If the record has neither been read nor written, or has no such word.
    #[inline]
    pub fn word(&self, index: usize) -> u64 {
        assert!(index < self.payload_words as usize, "payload word {index} of {}", self.payload_words);
        assert!(self.fetched || self.dirty, "table {} key {}: not read yet", self.table.0, self.key);
        let image = if self.dirty { self.image_words() } else { 0 };
        self.image().word(image + record::PAYLOAD_WORD + index)
    }

    /// Sets word `index` of the new payload; the words not set keep the value read (or are zero, if the record
    /// was not read).
    ///
    /// # Panics
    /// If the intent is not to write, or there is no such word.
    pub fn set_word(&mut self, index: usize, value: u64) {
        assert!(index < self.payload_words as usize, "payload word {index} of {}", self.payload_words);
        assert!(self.intent == Intent::Write, "table {} key {}: read only", self.table.0, self.key);
        let base = self.image_words() + record::PAYLOAD_WORD;
        let (dirty, fetched) = (self.dirty, self.fetched);
        let buf = &self.buf;
        if !dirty {
            for i in 0..self.payload_words as usize {
                buf.set_word(base + i, if fetched { buf.word(record::PAYLOAD_WORD + i) } else { 0 });
            }
        }
        buf.set_word(base + index, value);
        self.dirty = true;
    }

    /// The record is in the first image: takes its header.
    #[inline]
    pub(crate) fn read_in(&mut self) {
        self.header = Header(self.buf.word(record::HEADER_WORD)).unlock();
        self.fetched = true;
        self.pending = false;
    }

    /// The buffer with both images.
    #[inline]
    pub(crate) fn image(&self) -> &Buf {
        &self.buf
    }

    /// Words of one image.
    #[inline]
    pub(crate) fn image_words(&self) -> usize {
        record::PAYLOAD_WORD + self.payload_words as usize
    }
}

/// A transaction.
#[derive(Debug, Default)]
pub struct Txn {
    /// Its name.
    pub stamp: Stamp,
    /// What its phases have cost so far.
    pub costs: Costs,
    accesses: Vec<Access>,
    log: Vec<Slot>,
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
        assert!(self.accesses.iter().all(|a| !a.locked), "bug: {:?} ended holding locks", self.stamp);
        self.accesses.clear();
        self.log.clear();
        self.costs = Costs::default();
        self.stamp = stamp;
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
        self.accesses.iter().position(|a| a.key == key && a.table == table)
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
            let access = &mut self.accesses[at];
            access.intent = access.intent.max(intent);
            return Ok(at);
        }
        let payload_words = layout.payload_words(table);
        let buf = port.buf(layout.record_bytes(table) * 2)?;
        self.accesses.push(Access {
            table,
            key,
            primary: layout.primary(table, key),
            intent,
            header: Header::default(),
            location: NOWHERE,
            walk: 0,
            bucket: None,
            payload_words,
            buf,
            fetched: false,
            locked: false,
            dirty: false,
            pending: false,
        });
        Ok(self.accesses.len() - 1)
    }

    /// Raises the intent with the record at place `at`.
    ///
    /// # Panics
    /// If there is no such place.
    #[inline]
    pub fn intend(&mut self, at: usize, intent: Intent) {
        let access = &mut self.accesses[at];
        access.intent = access.intent.max(intent);
    }

    /// Word `index` of the payload of the record at place `at`: its new value if the transaction wrote it.
    ///
    /// # Panics
    /// If there is no such place or word, or the record was not fetched.
    #[inline]
    pub fn word(&self, at: usize, index: usize) -> u64 {
        self.accesses[at].word(index)
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

    /// Whether any lock is held.
    pub fn holds_locks(&self) -> bool {
        self.accesses.iter().any(|a| a.locked)
    }
}
