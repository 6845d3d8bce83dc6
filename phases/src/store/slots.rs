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
//! among themselves.
//!
//! **Room** is what the layout has set aside. Removed records make room at once; a table without any refuses, and the transaction
//! aborts.

use super::index::Gate;
use super::layout::{Layout, SHARDS, TableId};
use super::tree::{Grown, Tree};
use super::{NodeStore, StoreError, record};
use crate::rule::{Abort, Header, Owner, Packing};
use primitives::verbs::NodeId;
use std::sync::{Mutex, MutexGuard};

/// What only the node's CPUs see: free slots, trees, and at a backup the versions at which keys were removed.
pub(super) struct Owned {
    /// By copy and table.
    free: Vec<Mutex<Vec<u64>>>,
    /// By table and shard; none for a table that is not ordered.
    trees: Vec<Vec<Mutex<Tree>>>,
    /// By copy and table: key to version.
    graves: Vec<Mutex<Tree>>,
}

/// A slot set aside for a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reserved {
    /// Its offset.
    pub(crate) offset: u64,
    /// Its header, locked.
    pub(crate) header: Header,
    /// What became of the tree's leaves, if the table has a tree.
    pub(crate) grown: Option<Grown>,
}

/// A latch is held for a few hundred instructions that do not panic.
pub(super) fn latch<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

impl Owned {
    pub(super) fn new(layout: &Layout) -> Owned {
        let tables = layout.config().tables.len();
        let copies = usize::from(layout.config().replicas);
        let of_table = |table: usize| -> Vec<Mutex<Tree>> {
            let shards = if layout.is_ordered(TableId(table as u16)) { SHARDS } else { 0 };
            (0..shards).map(|_| Mutex::new(Tree::default())).collect()
        };
        Owned {
            free: (0..copies * tables).map(|_| Mutex::new(Vec::new())).collect(),
            trees: (0..tables).map(of_table).collect(),
            graves: (0..copies * tables).map(|_| Mutex::new(Tree::default())).collect(),
        }
    }
}

/// The later of two counted versions.
fn later(a: u64, b: u64) -> u64 {
    if Packing::Counted.later(a, b) { a } else { b }
}

impl NodeStore {
    fn place(&self, copy: usize, table: TableId) -> usize {
        copy * self.layout.config().tables.len() + usize::from(table.0)
    }

    /// The tree that has the key, if the table is ordered.
    pub(super) fn tree(&self, table: TableId, shard: u16) -> Option<&Mutex<Tree>> {
        self.owned.trees.get(usize::from(table.0))?.get(usize::from(shard))
    }

    fn grow(&self, table: TableId, key: u64, offset: u64) -> Option<Grown> {
        let tree = self.tree(table, self.layout.shard(table, key))?;
        latch(tree).insert(key, offset).ok()
    }

    fn shrink(&self, table: TableId, key: u64) {
        if let Some(tree) = self.tree(table, self.layout.shard(table, key)) {
            latch(tree).remove(key);
        }
    }

    /// A slot without a record.
    fn take_slot(&self, copy: usize, table: TableId) -> Result<u64, StoreError> {
        if let Some(freed) = latch(&self.owned.free[self.place(copy, table)]).pop() {
            return Ok(freed);
        }
        let part = self.layout.part(copy, table);
        let index = self.region.fetch_add(part.record_cursor, 1);
        if index >= part.record_count {
            self.region.fetch_add(part.record_cursor, u64::MAX);
            return Err(StoreError::Full { table, node: self.node, capacity: part.record_count });
        }
        Ok(part.records + index * self.layout.stride(table))
    }

    fn give_slot(&self, copy: usize, table: TableId, offset: u64) {
        latch(&self.owned.free[self.place(copy, table)]).push(offset);
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
        let offset = self.insert_behind(&gate, copy, table, key, version, payload.iter().copied())?;
        if copy == 0 {
            self.grow(table, key, offset);
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
        payload: impl Iterator<Item = u64> + Clone,
    ) -> Result<u64, StoreError> {
        let entry = self.free_entry(copy, table, self.layout.bucket(copy, table, key), key)?;
        let offset = self.take_slot(copy, table)?;
        record::write_local(&self.region, offset, self.layout.shape(table), version, key, payload);
        self.link(entry, key, offset);
        Ok(offset)
    }

    /// Sets a slot aside for a record that a transaction of `owner` is about to create. `absent` is the version that stood for its
    /// absence, if the transaction has looked for it before.
    ///
    /// # Errors
    /// [`Abort::Exists`], [`Abort::LockConflict`] if somebody else is about to create it, [`Abort::TableFull`];
    /// [`Abort::WriteChanged`] if it may not have been absent all the time since it was looked for.
    pub(crate) fn reserve(
        &self,
        table: TableId,
        key: u64,
        absent: Option<u64>,
        owner: Owner,
    ) -> Result<Reserved, Abort> {
        let first = self.layout.bucket(0, table, key);
        let gate = Gate::close(self, first);
        if absent.is_some_and(|version| version != gate.floor()) {
            return Err(Abort::WriteChanged);
        }
        let entry = self.free_entry(0, table, first, key).map_err(|error| match error {
            StoreError::Duplicate { .. } => {
                let there = self.locate(table, key).is_some_and(|at| !self.is_coming(at));
                match (there, absent) {
                    (true, None) => Abort::Exists,
                    (true, Some(_)) => Abort::WriteChanged,
                    (false, _) => Abort::LockConflict,
                }
            }
            _ => Abort::TableFull,
        })?;
        let offset = self.take_slot(0, table).map_err(|_| Abort::TableFull)?;
        let was = self.region.load(offset);
        let base = if was == 0 { gate.floor() } else { later(Header(was).version(), gate.floor()) };
        let header = Header::new(base).lock(owner);
        self.vacate(offset, key, header);
        let grown = self.grow(table, key, offset);
        self.link(entry, key, offset);
        Ok(Reserved { offset, header, grown })
    }

    /// Whether a slot has been set aside for a record that is not there yet, or is no more.
    fn is_coming(&self, offset: u64) -> bool {
        record::is_absent(record::words_at(&self.region, offset))
    }

    /// Marks a slot as one without a record.
    fn vacate(&self, offset: u64, key: u64, header: Header) {
        self.region.store(offset + 8, record::absence(header.version(), key));
        self.region.store(offset + record::KEY_WORD as u64 * 8, key);
        self.region.store(offset, header.0);
    }

    /// Takes a slot back that `held` was set aside with; false if it is not in that state.
    pub(crate) fn undo(&self, table: TableId, key: u64, offset: u64, held: Header) -> bool {
        let first = self.layout.bucket(0, table, key);
        let _gate = Gate::close(self, first);
        let ours = self.is_record(table, offset)
            && held.locked()
            && self.region.load(offset) == held.0
            && self.is_coming(offset);
        let Some(entry) = self.entry_of(first, key, offset).filter(|_| ours) else { return false };
        self.vacate(offset, key, Header::new(held.version()).lock(Owner::default()));
        self.unlink(entry);
        self.shrink(table, key);
        self.give_slot(0, table, offset);
        true
    }

    /// Removes a record that is locked, leaving `version` behind; false if it is not locked for that.
    pub(crate) fn remove(&self, table: TableId, key: u64, offset: u64, version: u64) -> bool {
        let first = self.layout.bucket(0, table, key);
        let gate = Gate::close(self, first);
        let ours = self.is_record(table, offset)
            && Packing::Counted.awaits(Header(self.region.load(offset)), version)
            && !self.is_coming(offset);
        let Some(entry) = self.entry_of(first, key, offset).filter(|_| ours) else { return false };
        self.vacate(offset, key, Header::new(version).lock(Owner::default()));
        gate.raise(version);
        self.unlink(entry);
        self.shrink(table, key);
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
        payload: Option<impl Iterator<Item = u64> + Clone>,
    ) -> Result<(), StoreError> {
        let first = self.layout.bucket(copy, table, key);
        let gate = Gate::close(self, first);
        let graves = &self.owned.graves[self.place(copy, table)];
        match (self.locate_copy(copy, table, key), payload) {
            (Some(offset), Some(payload)) => {
                self.bring_to(offset, self.layout.shape(table), version, key, payload);
            }
            (None, Some(payload)) => {
                let mut graves = latch(graves);
                match graves.get(key) {
                    Some(removed) if !Packing::Counted.later(version, removed) => return Ok(()),
                    Some(_) => drop(graves.remove(key)),
                    None => {}
                }
                drop(graves);
                self.insert_behind(&gate, copy, table, key, version, payload)?;
            }
            (Some(offset), None) => {
                let now = Header(self.region.load(offset));
                if !Packing::Counted.later(version, now.version()) {
                    return Ok(());
                }
                if let Some(entry) = self.entry_of(first, key, offset) {
                    self.vacate(offset, key, Header::new(version).lock(Owner::default()));
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
        let mut graves = latch(graves);
        let known = graves.remove(key);
        // It was just taken out.
        let _ = graves.insert(key, known.map_or(version, |known| later(version, known)));
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
        for index in 0..self.region.load(part.record_cursor).min(part.record_count) {
            let offset = part.records + index * self.layout.stride(table);
            let key = self.region.load(offset + record::KEY_WORD as u64 * 8);
            if self.entry_of(self.layout.bucket(copy, table, key), key, offset).is_some() {
                show(key, self.stored(table, offset));
            }
        }
    }
}

#[cfg(test)]
mod tests;
