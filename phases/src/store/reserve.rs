//! The reserve: room that all tables of a copy share, for what is inserted beyond the records that tables declare.
//!
//! Each copy that a node holds has a reserve of its own in the registered region, cut into *extents* of one size. A table that has used
//! up its own record slots, or its own overflow buckets, takes an extent, and fills it from the front; an extent that is taken stays with
//! its table and its purpose for good. So:
//!
//! - One-sided readers need not know: location words and bucket links are offsets, wherever they lead. Chains are lengthened as ever,
//!   behind the gate of their first bucket, and the floor stays there.
//! - A removed record's slot goes to its table's free list, whether it lies in the table's part or in an extent.
//! - Whether an offset can be a record's place (one that a peer sends, or that a location cache remembers) is known exactly: the owner
//!   knows whose each extent is. A peer learns it of an extent when the index, or a reply, first tells it of a record there
//!   ([`NodeStore::learn`]); since extents never change hands, what it has learnt stays true. A place in an extent of which it has not heard is looked up again.
//!
//! What grows is the room, not the main buckets: chains get longer with every record beyond those declared ([`super::layout`] has figures).

use super::layout::{BUCKET_BYTES, Layout, TableId};
use super::slots::latch;
use super::{NodeStore, StoreError};
use primitives::verbs::NodeId;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock};

/// Extents that a reserve is cut into at most: few enough for a word each at every node, many enough for little to be left over.
const EXTENTS_MOST: u64 = 1024;
/// The smallest extent in bytes.
const EXTENT_BYTES_LEAST: u64 = 1024;

/// Where the extents of a reserve lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extents {
    /// Offset of the first one.
    pub(crate) start: u64,
    /// Bytes of each: a power of two, and no record is longer.
    pub(crate) each: u64,
    /// How many there are.
    pub(crate) count: u64,
}

impl Extents {
    /// Cuts at least `bytes` into extents, each of which has room for a record of `longest` bytes.
    pub(super) fn cut(bytes: u64, longest: u64) -> Extents {
        let each = (bytes / EXTENTS_MOST).max(longest).max(EXTENT_BYTES_LEAST).next_power_of_two();
        Extents { start: 0, each, count: bytes.div_ceil(each) }
    }

    /// Bytes of all of them.
    pub(crate) fn bytes(self) -> u64 {
        self.count * self.each
    }

    /// The extent that an offset lies in, and how far behind its beginning.
    #[inline]
    fn place(self, offset: u64) -> Option<(usize, u64)> {
        let behind = offset.checked_sub(self.start).filter(|&behind| behind < self.bytes())?;
        Some(((behind / self.each) as usize, behind % self.each))
    }
}

/// What an extent is taken for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    Records,
    Buckets,
}

/// The number that stands for a table and a purpose; zero is nobody's.
#[inline]
fn holder(table: TableId, purpose: Purpose) -> u32 {
    1 + 2 * u32::from(table.0) + purpose as u32
}

/// One copy's reserve, as its owner knows it.
struct Reserve {
    /// Extents given out.
    given: AtomicU64,
    /// Whose each extent is.
    holders: Box<[AtomicU32]>,
    /// By holder: the offset given out last, 0 if there is none. It only grows, since extents are given out in order.
    last: Box<[AtomicU64]>,
    /// Held by who takes an extent.
    taking: Mutex<()>,
}

/// What a node knows of the reserves of its copies and of its peers.
pub(super) struct Reserves {
    /// By copy.
    own: Vec<Reserve>,
    /// By node and extent: whose it is in that node's own copy, as far as is known.
    peers: Box<[AtomicU32]>,
    /// The first refusal for want of room.
    refused: OnceLock<StoreError>,
}

fn zeroes(count: usize) -> Box<[AtomicU32]> {
    (0..count).map(|_| AtomicU32::new(0)).collect()
}

impl Reserves {
    pub(super) fn new(layout: &Layout) -> Reserves {
        let (config, count) = (layout.config(), layout.extents(0).count as usize);
        let holders_most = 1 + 2 * config.tables.len();
        let own = || Reserve {
            given: AtomicU64::new(0),
            holders: zeroes(count),
            last: (0..holders_most).map(|_| AtomicU64::new(0)).collect(),
            taking: Mutex::default(),
        };
        Reserves {
            own: (0..config.replicas).map(|_| own()).collect(),
            peers: zeroes(usize::from(config.nodes) * count),
            refused: OnceLock::new(),
        }
    }
}

impl Reserve {
    /// A place of `unit` bytes in an extent of the holder's; `None` if it has none left and there is no other extent.
    fn take(&self, extents: Extents, holder: u32, unit: u64) -> Option<u64> {
        let last = &self.last[holder as usize];
        loop {
            let before = last.load(Ordering::Acquire);
            let next = before + unit;
            let fits = extents.place(before).is_some_and(|(_, behind)| behind + 2 * unit <= extents.each);
            if !fits {
                match self.begin(extents, holder, before) {
                    Begun::At(first) => return Some(first),
                    Begun::BySomebodyElse => continue,
                    Begun::NoneLeft => return None,
                }
            }
            if last.compare_exchange(before, next, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
                return Some(next);
            }
        }
    }

    /// Takes an extent, and the first place in it.
    #[cold]
    fn begin(&self, extents: Extents, holder: u32, before: u64) -> Begun {
        let _taking = latch(&self.taking);
        let last = &self.last[holder as usize];
        if last.load(Ordering::Acquire) != before {
            return Begun::BySomebodyElse;
        }
        let index = self.given.load(Ordering::Acquire);
        if index == extents.count {
            return Begun::NoneLeft;
        }
        let first = extents.start + index * extents.each;
        self.holders[index as usize].store(holder, Ordering::Release);
        self.given.store(index + 1, Ordering::Release);
        last.store(first, Ordering::Release);
        Begun::At(first)
    }

    /// The extents of a holder.
    fn of(&self, holder: u32) -> impl Iterator<Item = u64> {
        let given = self.given.load(Ordering::Acquire);
        (0..given).filter(move |&i| self.holders[i as usize].load(Ordering::Acquire) == holder)
    }
}

enum Begun {
    At(u64),
    BySomebodyElse,
    NoneLeft,
}

impl NodeStore {
    fn unit(&self, table: TableId, purpose: Purpose) -> u64 {
        match purpose {
            Purpose::Records => self.layout.stride(table),
            Purpose::Buckets => BUCKET_BYTES,
        }
    }

    /// A place in the copy's reserve for a record or an overflow bucket of a table whose own are used up.
    ///
    /// # Errors
    /// [`StoreError::Full`] or [`StoreError::IndexFull`], with what there was.
    pub(super) fn take_reserved(
        &self,
        copy: usize,
        table: TableId,
        purpose: Purpose,
    ) -> Result<u64, StoreError> {
        let reserve = &self.owned.reserves.own[copy];
        let unit = self.unit(table, purpose);
        reserve
            .take(self.layout.extents(copy), holder(table, purpose), unit)
            .ok_or_else(|| self.refuse(copy, table, purpose))
    }

    /// That there is no room, with what there was; the first time it is remembered.
    fn refuse(&self, copy: usize, table: TableId, purpose: Purpose) -> StoreError {
        let (part, extents) = (self.layout.part(copy, table), self.layout.extents(copy));
        let spec = &self.layout.config().tables[usize::from(table.0)];
        let (name, node, reserve_bytes) = (spec.name.clone(), self.node, extents.bytes());
        let beyond = self.places_reserved(copy, table, purpose);
        let error = match purpose {
            Purpose::Records => {
                StoreError::Full { table, name, node, capacity: part.record_count, beyond, reserve_bytes }
            }
            Purpose::Buckets => StoreError::IndexFull {
                table,
                name,
                node,
                buckets: part.overflow_count,
                beyond,
                reserve_bytes,
            },
        };
        // Only the first one is kept.
        let _ = self.owned.reserves.refused.set(error.clone());
        error
    }

    /// The first time that a table of this node had no room for a record, if any.
    pub fn refused(&self) -> Option<&StoreError> {
        self.owned.reserves.refused.get()
    }

    /// Records, or overflow buckets, that the extents have room for which a table has taken.
    fn places_reserved(&self, copy: usize, table: TableId, purpose: Purpose) -> u64 {
        let each = self.layout.extents(copy).each / self.unit(table, purpose);
        self.owned.reserves.own[copy].of(holder(table, purpose)).count() as u64 * each
    }

    /// Every place for a record in the extents that a table has taken, whether there is one or not.
    pub(super) fn reserved_places(&self, copy: usize, table: TableId) -> impl Iterator<Item = u64> {
        let (extents, stride) = (self.layout.extents(copy), self.layout.stride(table));
        let start = move |index: u64| extents.start + index * extents.each;
        self.owned.reserves.own[copy]
            .of(holder(table, Purpose::Records))
            .flat_map(move |index| (0..extents.each / stride).map(move |n| start(index) + n * stride))
    }

    /// Whether a table's record could lie at `offset` of `node`'s own copy: what a peer, or a location cache, believes.
    #[inline]
    pub(crate) fn may_be_record(&self, node: NodeId, table: TableId, offset: u64) -> bool {
        self.layout.may_be_record(table, offset) || self.may_be_reserved(node, table, offset)
    }

    fn may_be_reserved(&self, node: NodeId, table: TableId, offset: u64) -> bool {
        let (extents, stride) = (self.layout.extents(0), self.layout.stride(table));
        let Some((index, behind)) = extents.place(offset) else { return false };
        let known = match node == self.node {
            true => self.owned.reserves.own[0].holders.get(index),
            false => self.owned.reserves.peers.get(node.index() * extents.count as usize + index),
        };
        let ours = |known: &AtomicU32| known.load(Ordering::Acquire) == holder(table, Purpose::Records);
        known.is_some_and(ours) && behind.is_multiple_of(stride) && behind + stride <= extents.each
    }

    /// Hears that a table's record was found at `offset` of `node`'s own copy, by its index or from the node itself.
    #[inline]
    pub(crate) fn learn(&self, node: NodeId, table: TableId, offset: u64) {
        let extents = self.layout.extents(0);
        if node != self.node
            && let Some((index, _)) = extents.place(offset)
            && let Some(known) = self.owned.reserves.peers.get(node.index() * extents.count as usize + index)
        {
            let holder = holder(table, Purpose::Records);
            // Mostly it is known already; a load keeps the line shared among workers.
            if known.load(Ordering::Relaxed) != holder {
                known.store(holder, Ordering::Release);
            }
        }
    }
}

#[cfg(test)]
mod tests;
