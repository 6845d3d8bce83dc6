//! Of a transaction: records that it creates and removes, those that are not there, and the ranges that it scans.

use super::{Access, Change, Intent, NOWHERE, Txn};
use crate::plan::Phase;
use crate::rule::{Abort, Header, Mode, Packing};
use crate::store::Grown;
use crate::store::layout::{Layout, TableId};
use primitives::verbs::NodeId;
use primitives::verbs::port::Cost;

/// In which order of keys a scan goes, which matters where it has a limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// The smallest key first.
    #[default]
    Ascending,
    /// The largest key first.
    Descending,
}

/// A range of an ordered table's keys to be read; all of it lies in one partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scan {
    /// The table.
    pub table: TableId,
    /// The smallest key.
    pub from: u64,
    /// The largest key.
    pub to: u64,
    /// Most rows.
    pub limit: usize,
    /// Which of them, if there are more.
    pub order: Order,
}

/// A leaf of an owner's tree that a scan has looked at. No key that lies in the scan's range comes or goes without it getting
/// another version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LeafSeen {
    pub(crate) node: NodeId,
    pub(crate) table: TableId,
    pub(crate) shard: u16,
    pub(crate) leaf: u32,
    pub(crate) version: u64,
}

/// What a slot that was set aside has done to a leaf of an owner's tree.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Growth {
    /// The leaf, with its version before.
    before: LeafSeen,
    grown: Grown,
}

impl Growth {
    /// Of the slot of `access`.
    pub(crate) fn of(access: &Access, layout: &Layout, grown: Grown) -> Growth {
        let (node, table, shard) = (access.primary, access.table, layout.shard(access.table, access.key));
        Growth { before: LeafSeen { node, table, shard, leaf: grown.leaf, version: grown.before }, grown }
    }
}

impl Access {
    /// Whether it is news, and no trouble, that there is no such record: nobody said that there is one, and the transaction has not read
    /// it.
    #[inline]
    pub(crate) fn may_be_absent(&self) -> bool {
        self.optional && !self.fetched
    }

    /// Why a transaction ends that finds no such record: somebody has removed what it had read, or there was none.
    #[inline]
    pub(crate) fn gone(&self) -> Abort {
        if self.fetched { Abort::WriteChanged } else { Abort::NotFound }
    }

    /// There is no such record; `version` stands for that, or the transaction's own place in the order. Nothing is left to be
    /// locked.
    #[inline]
    pub(crate) fn take_absence(&mut self, version: u64) {
        // Where versions are counted, only who was ordered before it ran has such a place: what stands for absence must not be later,
        // and a removal elsewhere in the chain may be.
        let placed = match self.packing {
            Packing::Versions => true,
            Packing::Counted => self.time.0 != 0,
            Packing::Leased | Packing::Locked => false,
        };
        let version = if placed { self.time.0 } else { version };
        (self.version, self.location, self.intent) = (version, NOWHERE, Intent::Read);
        (self.absent, self.fetched, self.pending, self.busy) = (true, true, false, false);
        self.confirmed = false;
    }

    /// The owner has set a slot aside for it: it is locked there, by the header `locked`; `version` stands for its absence.
    #[inline]
    pub(crate) fn take_slot(&mut self, location: u64, locked: Header, version: u64) {
        (self.version, self.location, self.fresh, self.pending) = (version, location, true, false);
        (self.reserved, self.victim) = (true, 0);
        self.lock_is(locked, Mode::Exclusive);
    }

    /// Whether its owner has to set a slot aside for it.
    #[inline]
    pub(crate) fn wants_slot(&self) -> bool {
        self.change == Change::Insert && !self.reserved
    }

    /// Whether only its owner can end what the transaction has begun with it: there, more than the record changes.
    #[inline]
    pub(crate) fn ends_at_owner(&self, install: bool) -> bool {
        match self.change {
            Change::Update => false,
            Change::Insert => self.reserved && (!install || !self.dirty),
            Change::Delete => install,
        }
    }
}

impl Txn {
    /// The record at place `at` need not be there: then [`Access::absent`](super::Access::absent) says so, and validation that it stayed so.
    ///
    /// # Panics
    /// If there is no such place.
    pub fn allow_absence(&mut self, at: usize) {
        self.accesses[at].optional = true;
    }

    /// The record at place `at` is to be created; its payload is zero until words are set. One that the transaction was to
    /// delete is written anew instead.
    ///
    /// # Panics
    /// If there is no such place.
    pub fn insert(&mut self, at: usize) {
        self.creates = true;
        self.unsettle(at);
        let access = &mut self.accesses[at];
        access.intent = Intent::Write;
        access.change = if access.change == Change::Delete { Change::Update } else { Change::Insert };
        access.begin_empty();
    }

    /// Whether owners have to set slots aside for records that it creates.
    pub(crate) fn wants_slots(&self) -> bool {
        self.creates && self.accesses.iter().any(Access::wants_slot)
    }

    /// The record at place `at` is to be removed. Of one that the transaction was to create nothing is left.
    ///
    /// # Panics
    /// If there is no such place, or the transaction has not read the record or found that it is not there.
    pub fn delete(&mut self, at: usize) {
        let access = &mut self.accesses[at];
        let known = access.fetched && !access.absent || access.change == Change::Insert;
        assert!(known, "table {} key {}: to be deleted, but not read", access.table.0, access.key);
        if access.change != Change::Insert {
            (access.change, access.intent) = (Change::Delete, Intent::Write);
        }
        access.dirty = false;
        self.unsettle(at);
    }

    /// Places of the rows that the last scan found, in its order.
    pub fn scanned(&self) -> &[u32] {
        &self.scanned
    }

    /// A scan begins: what the last one found is no longer told.
    pub(crate) fn begin_scan(&mut self) {
        self.ranged = true;
        self.scanned.clear();
    }

    /// A scan has found the record at place `at`; one that the transaction is to remove is not shown, nor one that it creates.
    pub(crate) fn add_row(&mut self, at: usize) {
        if self.accesses[at].change == Change::Update {
            self.scanned.push(at as u32);
        }
    }

    /// Of the rows after the first `rows`, forgets those that turned out not to be there for this transaction.
    pub(crate) fn keep_rows_that_are_there(&mut self, rows: usize) {
        let Txn { scanned, accesses, .. } = self;
        let mut kept = rows;
        for n in rows..scanned.len() {
            if accesses[scanned[n] as usize].exists() {
                scanned[kept] = scanned[n];
                kept += 1;
            }
        }
        scanned.truncate(kept);
    }

    /// A scan has looked at leaves from which a key went at `time`.
    pub(crate) fn comes_after(&mut self, time: u64) {
        self.removed_at = self.removed_at.max(time);
    }

    /// The latest time at which a key went from the ranges that were scanned, where versions are times: what was read there is
    /// not so before.
    pub fn removed_at(&self) -> u64 {
        self.removed_at
    }

    /// Forgets the rows that a scan has found after the first `rows`.
    pub(crate) fn forget_rows(&mut self, rows: usize) {
        self.scanned.truncate(rows);
    }

    /// A scan has looked at a leaf.
    pub(crate) fn add_leaf(&mut self, leaf: LeafSeen) {
        if self.leaves.last() != Some(&leaf) {
            self.leaves.push(leaf);
        }
    }

    pub(crate) fn leaf_count(&self) -> usize {
        self.leaves.len()
    }

    /// Forgets the leaves that were added after the first `count`.
    pub(crate) fn forget_leaves(&mut self, count: usize) {
        self.leaves.truncate(count);
    }

    /// Forgets the records beyond the first `len`, which nothing has been done with.
    pub(crate) fn forget_from(&mut self, len: usize) {
        self.accesses.truncate(len);
        self.places.truncate(len);
        (self.fetched_to, self.locked_to) = (self.fetched_to.min(len), self.locked_to.min(len));
    }

    /// Leaves that scans have looked at, and what validating costs.
    pub(crate) fn leaves(&mut self) -> (&[LeafSeen], &mut Cost) {
        (&self.leaves, &mut self.costs[Phase::Validate])
    }

    /// Whether there is anything but records to validate.
    pub fn has_scanned(&self) -> bool {
        !self.leaves.is_empty()
    }

    /// Whether it knows anything of what there is: a record, that one is missing, or a range.
    pub fn has_read(&self) -> bool {
        self.ranged || self.accesses.iter().any(|a| a.fetched)
    }

    /// Whether it has looked for records that were not there, and does not create them itself.
    pub fn has_missed(&self) -> bool {
        self.accesses.iter().any(|a| a.absent && a.intent == Intent::Read)
    }

    /// The records, what their slots do to leaves if that is of interest, and the costs of a phase: for setting slots aside. What scans
    /// that are still to come will see is what leaves have become.
    pub(crate) fn reserving(&mut self) -> (&mut [Access], Option<&mut Vec<Growth>>, &mut Cost) {
        let growths = (!self.leaves.is_empty()).then_some(&mut self.growths);
        (&mut self.accesses, growths, &mut self.costs[Phase::Lock])
    }

    /// Slots that were set aside have put keys into leaves: what scans saw there before stands, if nobody else was faster.
    pub(crate) fn settle_growth(&mut self) {
        let Txn { growths, leaves, .. } = self;
        // Owners may have served the requests in another order than they were made in.
        let mut matched = true;
        while std::mem::take(&mut matched) {
            growths.retain(|Growth { before, grown }| {
                let mut expected = false;
                for leaf in leaves.iter_mut().filter(|leaf| *leaf == before) {
                    leaf.version = grown.after;
                    expected = true;
                }
                if expected && let Some((leaf, version)) = grown.split {
                    leaves.push(LeafSeen { leaf, version, ..*before });
                }
                matched |= expected;
                !expected
            });
        }
    }
}
