//! How records come and go: slots given out and taken back, by the owner's CPU alone.
//!
//! **Creating.** In its lock phase a transaction has the owner *reserve* a slot: the key is in the index and in the tree, the
//! header is locked, and where the checksum belongs stands a mark that says "no record". Whoever meets it knows that somebody
//! is about to create it, and gives up or looks again. The install is that of any record; an abort is *undone* by the owner.
//!
//! **Removing.** The record is locked like any that is written. Instead of installing, the owner *removes* it: mark and
//! next version into the slot, the floor of the index chain up to that version, entry and tree key gone, slot to the free list.
//!
//! **Nothing is mistaken for what it was.** A slot keeps its header while it is free: locked by nobody, at the version of the
//! removal. The next record in it begins beyond that version and beyond the floor of its own chain. So the versions of a slot only
//! grow, and so do those of a key: a location remembered from before, a CAS under way, a validating READ find a version that
//! is not the one read, whatever has become of slot and key in between, and the key in the record tells whose it is.
//! No lock word of a free slot is one that a CAS could expect, so a CPU may write it even where NIC atomics are atomic only
//! among themselves. How each packing says "no record" is [`Shape::is_absent`](super::Shape) and [`Packing::vacant`]'s affair.
//!
//! That is not so where a CAS that fails may store what it found ([`Caps::failed_cas_stores`](primitives::fabric::Caps), Soft-RoCE): by a location from
//! before, one may be under way while the CPU sets a slot aside, takes it back or removes its record, and undo what the CPU wrote into the first word.
//! A removed record then looks torn until its slot is used again, and a slot that was set aside is not what its install or its undoing expects. Locks that
//! transactions free are safe there (`ops/one_sided.rs`); about these words nothing is done, and no run has shown it.
//!
//! **Where versions are times** (SUNDIAL, MVCC) absence has to be true at one. Who finds that a key is not there tells its owner at
//! which time ([`NodeStore::confirm_absence`]), and the owner keeps the latest such time for each leaf of a tree and for groups of
//! other keys; whoever creates a record comes behind it. Removed records leave no versions: whoever would have to see one from
//! before its removal finds the floor of the chain, or the leaf's last removal, ahead of its own time and gives up.
//!
//! **Room** is what the layout has set aside for the table, and then what is left of the reserve that the copy's tables share
//! ([`reserve`](super::reserve)). Removed records make room at once; where there is none the owner refuses, and the transaction aborts.

use super::index::Gate;
use super::layout::{Layout, SHARDS, TableId, hash};
use super::record::Word;
use super::reserve::{Purpose, Reserves};
use super::tree::{Grown, Tree};
use super::{NodeStore, Shape, StoreError, record};
use crate::rule::{Abort, Ask, Header, LockRule, Mode, Packing, Timestamp, Verdict, versions};
use primitives::verbs::NodeId;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};

/// Groups that a table's keys are in for the times at which they were not there.
const GAPS: usize = 1024;

/// What only the node's CPUs see: free slots, trees, and at a backup the versions at which keys were removed.
pub(super) struct Owned {
    /// By copy and table.
    free: Vec<FreeSlots>,
    /// By table and shard; none for a table that is not ordered.
    trees: Vec<Vec<Mutex<Tree>>>,
    /// By copy and table: key to version.
    graves: Vec<Mutex<Tree>>,
    /// By table: times at which keys of a group were seen not to be there. None where versions are not times.
    gaps: Vec<Box<[AtomicU64]>>,
    pub(super) reserves: Reserves,
}

/// Slots that were taken back. Most tables never have any, which is told without the latch; who does not see one that is being given
/// at this moment takes another.
#[derive(Default)]
struct FreeSlots {
    any: AtomicBool,
    offsets: Mutex<Vec<u64>>,
}

impl FreeSlots {
    #[inline]
    fn take(&self) -> Option<u64> {
        if self.any.load(Ordering::Relaxed) { self.take_latched() } else { None }
    }

    #[cold]
    fn take_latched(&self) -> Option<u64> {
        let mut offsets = latch(&self.offsets);
        let taken = offsets.pop();
        self.any.store(!offsets.is_empty(), Ordering::Relaxed);
        taken
    }

    fn give(&self, offset: u64) {
        let mut offsets = latch(&self.offsets);
        offsets.push(offset);
        self.any.store(true, Ordering::Relaxed);
    }
}

/// A slot set aside for a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reserved {
    /// Its offset.
    pub(crate) offset: u64,
    /// Its header, locked.
    pub(crate) header: Header,
    /// The version that stands for the record's absence.
    pub(crate) version: u64,
    /// What became of the tree's leaves, if the table has a tree.
    pub(crate) grown: Option<Grown>,
}

/// Why no slot was set aside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Refused {
    /// Never [`Verdict::Grant`].
    pub(crate) verdict: Verdict,
    /// The time behind which the record could be created, where that is why.
    pub(crate) seen: u64,
}

impl From<Abort> for Refused {
    fn from(abort: Abort) -> Refused {
        Refused { verdict: Verdict::Deny(abort), seen: 0 }
    }
}

/// What a transaction asks of a slot for a record that it creates.
const ALONE: Ask = Ask { mode: Mode::Exclusive, held: false, read: None };

/// A latch is held for a few hundred instructions that do not panic.
pub(super) fn latch<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

impl Owned {
    pub(super) fn new(layout: &Layout) -> Owned {
        let tables = layout.config().tables.len();
        let copies = usize::from(layout.config().replicas);
        let groups = if layout.config().packing.timed() { GAPS } else { 0 };
        let rows = |table: usize| layout.config().tables[table].rows_per_node;
        let blocks = |table: usize| rows(table) / layout.config().tables[table].keys_per_block.max(1);
        let of_table = |table: usize| -> Vec<Mutex<Tree>> {
            let shards = if layout.is_ordered(TableId(table as u16)) { SHARDS } else { 0 };
            // Blocks of keys may be few, so that some trees have more of them than others.
            let room = 2 * rows(table).div_ceil(blocks(table).clamp(1, SHARDS));
            (0..shards).map(|_| Mutex::new(Tree::with_room(room))).collect()
        };
        Owned {
            free: (0..copies * tables).map(|_| FreeSlots::default()).collect(),
            trees: (0..tables).map(of_table).collect(),
            graves: (0..copies * tables)
                .map(|place| Mutex::new(Tree::with_room(rows(place % tables))))
                .collect(),
            gaps: (0..tables).map(|_| (0..groups).map(|_| AtomicU64::new(0)).collect()).collect(),
            reserves: Reserves::new(layout),
        }
    }
}

/// The later of two versions.
fn later(packing: Packing, a: u64, b: u64) -> u64 {
    if packing.later(a, b) { a } else { b }
}

impl NodeStore {
    fn place(&self, copy: usize, table: TableId) -> usize {
        copy * self.layout.config().tables.len() + usize::from(table.0)
    }

    /// The tree that has the key, if the table is ordered.
    pub(super) fn tree(&self, table: TableId, shard: u16) -> Option<&Mutex<Tree>> {
        self.owned.trees.get(usize::from(table.0))?.get(usize::from(shard))
    }

    /// Puts a key into the tree, if there is one; and, where versions are times, the latest at which somebody has seen that it was not
    /// there.
    fn grow(&self, table: TableId, key: u64, offset: u64) -> (Option<Grown>, u64) {
        let Some(tree) = self.tree(table, self.layout.shard(table, key)) else { return (None, 0) };
        let mut tree = latch(tree);
        let seen = if self.layout.config().packing.timed() { tree.read_at(key) } else { 0 };
        (tree.insert(key, offset).ok(), seen)
    }

    /// Takes a key out of the tree; `removed_at` is the time at which its record was removed, 0 if there was none.
    fn shrink(&self, table: TableId, key: u64, removed_at: u64) {
        if let Some(tree) = self.tree(table, self.layout.shard(table, key)) {
            latch(tree).remove_at(key, removed_at);
        }
    }

    /// The time of a key's group.
    fn gap(&self, table: TableId, key: u64) -> Option<&AtomicU64> {
        let gaps = self.owned.gaps.get(usize::from(table.0))?;
        if gaps.is_empty() { None } else { Some(&gaps[(hash(key) >> 32) as usize % GAPS]) }
    }

    /// Whether a record that was not there, for which `version` stands, still is not; and from now on it may not be created at
    /// `time` or before.
    ///
    /// # Errors
    /// [`Abort::ReadChanged`] if it has come, or come and gone; for a reader of versions [`Abort::ReadLocked`] if an earlier
    /// transaction is about to create it, [`Abort::NoVersion`] if it was removed later than `time`.
    pub(crate) fn confirm_absence(
        &self,
        table: TableId,
        key: u64,
        version: u64,
        time: u64,
    ) -> Result<(), Refused> {
        let stands = |stands: bool| if stands { Ok(()) } else { Err(Refused::from(Abort::ReadChanged)) };
        let Some(gap) = self.gap(table, key) else {
            return stands(self.absence(table, key) == Some(version));
        };
        let gate = Gate::close(self, self.layout.bucket(0, table, key));
        let there = self.locate(table, key);
        if self.layout.config().packing != Packing::Versions {
            stands(there.is_none() && gate.floor() == version)?;
        } else if gate.floor() > time {
            return Err(Refused { verdict: Verdict::Deny(Abort::NoVersion), seen: gate.floor() });
        } else if let Some(offset) = there {
            self.is_to_come(table, offset, Timestamp(time))?;
        }
        gap.fetch_max(time, Ordering::SeqCst);
        Ok(())
    }

    /// Whether a record was created, or is to be, after `time` and not before.
    fn is_to_come(&self, table: TableId, offset: u64, time: Timestamp) -> Result<(), Abort> {
        let shape = self.layout.shape(table);
        // The lock before the versions: who frees it has put them there.
        let lock = self.region.load(offset);
        let words = record::words_at(&self.region, offset, shape);
        let wts = || (0..shape.slots()).map(|slot| words[shape.version_word(slot)].get());
        match versions::readable(lock, wts(), time) {
            Ok(_) => Err(Abort::ReadChanged),
            // With a slot left its first version is known; otherwise there may have been earlier ones.
            Err(Abort::NoVersion) if wts().any(|wts| wts == 0) => Ok(()),
            Err(abort) => Err(abort),
        }
    }

    /// A slot without a record.
    fn take_slot(&self, copy: usize, table: TableId) -> Result<u64, StoreError> {
        if let Some(freed) = self.owned.free[self.place(copy, table)].take() {
            return Ok(freed);
        }
        let part = self.layout.part(copy, table);
        let index = self.region.fetch_add(part.record_cursor, 1);
        if index >= part.record_count {
            self.region.fetch_add(part.record_cursor, u64::MAX);
            return self.take_reserved(copy, table, Purpose::Records);
        }
        let stride = self.layout.stride(table);
        let slot = part.records + index * stride;
        // Nobody has been at the next one either, so it is in no near cache, and it will be written before long.
        self.region.ahead(slot + stride, stride);
        Ok(slot)
    }

    fn give_slot(&self, copy: usize, table: TableId, offset: u64) {
        self.owned.free[self.place(copy, table)].give(offset);
    }

    /// Inserts a record of `primary`'s partition, at the store's first version: before transactions run.
    ///
    /// # Errors
    /// If this node holds no copy of the partition, the payload has another length, the key is there already, or
    /// there is no room.
    pub fn insert(
        &self,
        primary: NodeId,
        table: TableId,
        key: u64,
        payload: &[u64],
    ) -> Result<u64, StoreError> {
        if !self.layout.has(table) {
            return Err(StoreError::NoTable { table });
        }
        let want = self.layout.payload_words(table);
        if payload.len() != want as usize {
            return Err(StoreError::Payload { table, got: payload.len(), want });
        }
        let copy =
            self.layout.copy(self.node, primary).ok_or(StoreError::NoCopy { node: self.node, primary })?;
        let first = self.layout.bucket(copy, table, key);
        let gate = Gate::close(self, first);
        let version = self.layout.config().first_version;
        let offset = self.insert_behind(&gate, copy, table, key, version, payload)?;
        if copy == 0 {
            let _ = self.grow(table, key, offset);
        }
        Ok(offset)
    }

    /// Inserts a record into a chain whose gate is closed.
    fn insert_behind(
        &self,
        _gate: &Gate<'_>,
        copy: usize,
        table: TableId,
        key: u64,
        version: u64,
        payload: &[impl Word],
    ) -> Result<u64, StoreError> {
        let entry = self.free_entry(copy, table, self.layout.bucket(copy, table, key), key)?;
        let offset = self.take_slot(copy, table)?;
        record::write_local(&self.region, offset, self.layout.shape(table), version, key, payload);
        self.link(entry, key, offset);
        Ok(offset)
    }

    /// Sets a slot aside for a record that the rule's transaction is about to create. `absent` is the version that stood for its
    /// absence, if the transaction has looked for it before.
    ///
    /// # Errors
    /// [`Abort::Exists`]; what the rule says of a lock that is held if somebody else is about to create it; [`Abort::TableFull`];
    /// [`Abort::WriteChanged`] if it may not have been absent all the time since it was looked for; [`Abort::TooLate`] if it was
    /// not there at a later time than the transaction's place in the order, or is there since a later one.
    pub(crate) fn reserve(
        &self,
        table: TableId,
        key: u64,
        absent: Option<u64>,
        rule: LockRule,
    ) -> Result<Reserved, Refused> {
        self.reserve_in(self.layout.bucket(0, table, key), table, key, absent, rule)
    }

    /// As [`NodeStore::reserve`], of a key whose chain begins at the bucket `first`.
    pub(crate) fn reserve_in(
        &self,
        first: u64,
        table: TableId,
        key: u64,
        absent: Option<u64>,
        rule: LockRule,
    ) -> Result<Reserved, Refused> {
        let (shape, packing) = (self.layout.shape(table), rule.packing);
        let gate = Gate::close(self, first);
        let ordered = packing == Packing::Versions;
        // Who has a place in the order has told of it when it looked; nobody has created the record before it since.
        if !ordered && absent.is_some_and(|version| version != gate.floor()) {
            return Err(Abort::WriteChanged.into());
        }
        let entry = match self.free_entry(0, table, first, key) {
            Ok(entry) => entry,
            Err(StoreError::Duplicate { .. }) => return Err(self.taken(table, key, absent, rule)),
            Err(_) => return Err(Abort::TableFull.into()),
        };
        let offset = self.take_slot(0, table).map_err(|_| Abort::TableFull)?;
        let mut version = gate.floor();
        if !ordered && self.region.load(offset) != 0 {
            version = later(packing, shape.latest(record::words_at(&self.region, offset, shape)), version);
        }
        // Whoever comes by the tree finds a slot without a record, held by somebody.
        self.vacate(table, offset, key, version);
        let (grown, seen) = self.grow(table, key, offset);
        let seen = seen.max(self.gap(table, key).map_or(0, |gap| gap.load(Ordering::SeqCst)));
        if ordered && (seen > rule.time.0 || version >= rule.time.0) {
            self.shrink(table, key, 0);
            self.give_slot(0, table, offset);
            return Err(Refused { verdict: Verdict::Deny(Abort::TooLate), seen: seen.max(version) });
        }
        if packing == Packing::Leased && seen > version {
            version = seen;
            self.vacate(table, offset, key, version);
        }
        let Verdict::Grant(header) = rule.decide(ALONE, packing.installed(version)) else {
            unreachable!("bug: {rule:?} does not lock what is free")
        };
        self.region.store(offset, header.0);
        self.link(entry, key, offset);
        Ok(Reserved { offset, header, version, grown })
    }

    /// Why a key that is in the index cannot be created.
    fn taken(&self, table: TableId, key: u64, absent: Option<u64>, rule: LockRule) -> Refused {
        let verdict = match self.locate(table, key) {
            Some(offset) if self.is_coming(table, offset) => {
                match rule.decide(ALONE, Header(self.region.load(offset))) {
                    // Whoever was to create it has just done so, or given up.
                    Verdict::Grant(_) => Verdict::Deny(Abort::LockConflict),
                    held => held,
                }
            }
            // Not there yet for who comes before all its versions, or no longer known to be: a later time settles it.
            Some(offset) if rule.packing == Packing::Versions && self.is_later(table, offset, rule.time) => {
                let seen = self.latest(self.layout.shape(table), offset);
                return Refused { verdict: Verdict::Deny(Abort::TooLate), seen };
            }
            Some(_) if absent.is_some() => Verdict::Deny(Abort::WriteChanged),
            Some(_) => Verdict::Deny(Abort::Exists),
            None => Verdict::Deny(Abort::LockConflict),
        };
        Refused { verdict, seen: 0 }
    }

    /// Whether all versions of a record are later than `time`.
    fn is_later(&self, table: TableId, offset: u64, time: Timestamp) -> bool {
        let shape = self.layout.shape(table);
        let words = record::words_at(&self.region, offset, shape);
        let wts = (0..shape.slots()).map(|slot| words[shape.version_word(slot)].get());
        versions::readable(0, wts, time) == Err(Abort::NoVersion)
    }

    /// Whether a slot has been set aside for a record that is not there yet, or is no more.
    pub(crate) fn is_coming(&self, table: TableId, offset: u64) -> bool {
        let shape = self.layout.shape(table);
        shape.is_absent(record::words_at(&self.region, offset, shape))
    }

    /// Marks a slot as one that has no record and may be given out again.
    fn vacate(&self, table: TableId, offset: u64, key: u64, version: u64) {
        let shape = self.layout.shape(table);
        record::vacate(&self.region, offset, shape, key, version, shape.packing.vacant(version));
    }

    fn latest(&self, shape: Shape, offset: u64) -> u64 {
        shape.latest(record::words_at(&self.region, offset, shape))
    }

    /// Takes a slot back that `held` was set aside with; false if it is not in that state.
    pub(crate) fn undo(&self, table: TableId, key: u64, offset: u64, held: Header) -> bool {
        let first = self.layout.bucket(0, table, key);
        let _gate = Gate::close(self, first);
        let ours = self.is_record(table, offset)
            && held.0 != 0
            && self.region.load(offset) == held.0
            && self.is_coming(table, offset);
        let Some(entry) = self.entry_of(first, key, offset).filter(|_| ours) else { return false };
        self.vacate(table, offset, key, self.latest(self.layout.shape(table), offset));
        self.unlink(entry);
        self.shrink(table, key, 0);
        self.give_slot(0, table, offset);
        true
    }

    /// Removes a record that is locked, leaving `version` behind; false if it is not locked for that.
    pub(crate) fn remove(&self, table: TableId, key: u64, offset: u64, version: u64) -> bool {
        let first = self.layout.bucket(0, table, key);
        let gate = Gate::close(self, first);
        let packing = self.layout.config().packing;
        let ours = self.is_record(table, offset)
            && packing.awaits(Header(self.region.load(offset)), version)
            && !self.is_coming(table, offset);
        let Some(entry) = self.entry_of(first, key, offset).filter(|_| ours) else { return false };
        self.vacate(table, offset, key, version);
        gate.raise(version);
        self.unlink(entry);
        self.shrink(table, key, if packing.timed() { version } else { 0 });
        self.give_slot(0, table, offset);
        true
    }

    /// Creates a record at once, for a transaction that was ordered before it runs: nobody else looks for the key meanwhile, at this node or any.
    ///
    /// # Errors
    /// If the key is there already, or there is no room.
    pub(crate) fn create(
        &self,
        table: TableId,
        key: u64,
        version: u64,
        payload: &[impl Word],
    ) -> Result<(), Abort> {
        let gate = Gate::close(self, self.layout.bucket(0, table, key));
        let offset = self.insert_behind(&gate, 0, table, key, version, payload).map_err(|e| match e {
            StoreError::Duplicate { .. } => Abort::Exists,
            _ => Abort::TableFull,
        })?;
        let _ = self.grow(table, key, offset);
        Ok(())
    }

    /// Removes a record at once, for such a transaction, leaving `version` behind; false if it is not where it was read.
    pub(crate) fn erase(&self, table: TableId, key: u64, offset: u64, version: u64) -> bool {
        let first = self.layout.bucket(0, table, key);
        let gate = Gate::close(self, first);
        let Some(entry) = self.entry_of(first, key, offset) else { return false };
        self.vacate(table, offset, key, version);
        gate.raise(version);
        self.unlink(entry);
        self.shrink(table, key, 0);
        self.give_slot(0, table, offset);
        true
    }

    /// Brings a backup copy of a record to a version with that payload, or without one to its removal, unless the copy has come
    /// further: logs of different workers are applied in any order. So the backup remembers at which version keys were
    /// removed: what is older must not bring them back.
    ///
    /// # Errors
    /// If there is no room.
    pub(crate) fn bring_copy_to(
        &self,
        copy: usize,
        table: TableId,
        key: u64,
        version: u64,
        payload: Option<&[impl Word]>,
    ) -> Result<(), StoreError> {
        let first = self.layout.bucket(copy, table, key);
        let gate = Gate::close(self, first);
        let graves = &self.owned.graves[self.place(copy, table)];
        let shape = self.layout.shape(table);
        match (self.locate_copy(copy, table, key), payload) {
            (Some(offset), Some(payload)) => {
                self.bring_to(offset, shape, version, key, payload);
            }
            (None, Some(payload)) => {
                let mut graves = latch(graves);
                match graves.get(key) {
                    Some(removed) if !shape.packing.later(version, removed) => return Ok(()),
                    Some(_) => drop(graves.remove(key)),
                    None => {}
                }
                drop(graves);
                self.insert_behind(&gate, copy, table, key, version, payload)?;
            }
            (Some(offset), None) => {
                if !shape.packing.later(version, self.latest(shape, offset)) {
                    return Ok(());
                }
                if let Some(entry) = self.entry_of(first, key, offset) {
                    self.vacate(table, offset, key, version);
                    self.unlink(entry);
                    self.give_slot(copy, table, offset);
                }
                self.bury(graves, key, version);
            }
            (None, None) => self.bury(graves, key, version),
        }
        Ok(())
    }

    fn bury(&self, graves: &Mutex<Tree>, key: u64, version: u64) {
        let (mut graves, packing) = (latch(graves), self.layout.config().packing);
        let known = graves.remove(key);
        // It was just taken out.
        let _ = graves.insert(key, known.map_or(version, |known| later(packing, version, known)));
    }

    /// Shows every record of a copy that this node holds of `primary`'s partition, in no particular order: for checks, while
    /// nothing is in flight.
    pub fn for_each(
        &self,
        primary: NodeId,
        table: TableId,
        mut show: impl FnMut(u64, Option<super::Stored>),
    ) {
        let Some(copy) = self.layout.copy(self.node, primary).filter(|_| self.layout.has(table)) else {
            return;
        };
        let part = self.layout.part(copy, table);
        let declared = self.region.load(part.record_cursor).min(part.record_count);
        let declared = (0..declared).map(|index| part.records + index * self.layout.stride(table));
        for offset in declared.chain(self.reserved_places(copy, table)) {
            let key = self.region.load(offset + record::KEY_WORD as u64 * 8);
            if self.entry_of(self.layout.bucket(copy, table, key), key, offset).is_some() {
                show(key, self.stored(table, offset));
            }
        }
    }
}

#[cfg(test)]
mod tests;
