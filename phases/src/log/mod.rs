//! Replicated logs: a ring per (worker, backup node) in the backup's registered memory.
//!
//! Before a transaction installs anything, its new values are in the rings of every backup of every record it wrote
//! (FaRM §4, DrTM+H §5.4): one entry per backup node, with all records that node backs. Appending is a WRITE, or a
//! request whose handler writes the same bytes; the transaction is committed once all backups have acknowledged. Later
//! a one-way request lets the backup apply entries to its copy in place and free their space; a writer that runs
//! out of room asks and waits for the answer. Nothing is ever overwritten before the backup has applied it.
//!
//! Only the backup's worker of the same number reads a ring, so reading needs no synchronization.

pub mod entry;
mod reader;
mod ring;

pub(crate) use reader::RingReader;
pub(crate) use ring::Ring;

use crate::store::Layout;
use crate::txn::{Access, Txn};
use primitives::measure::Meter;
use primitives::mem::{Buf, PoolExhausted};
use primitives::units::Nanos;
use primitives::verbs::NodeId;
use primitives::verbs::port::EnginePort;
use std::cell::RefCell;
use std::sync::Arc;

/// Entries after which a backup is told to apply them: often enough that applying comes in small lumps, rarely enough
/// that the request is a small part of what logging costs.
pub const ENTRIES_PER_TRUNCATION: u32 = 32;

/// One entry of a transaction, on its way to one backup.
#[derive(Debug)]
pub(crate) struct Slot {
    /// The backup.
    pub(crate) node: NodeId,
    /// The entry; behind it a word for the frame that skips the ring's rest.
    pub(crate) buf: Buf,
    /// Bytes of the entry.
    pub(crate) len: u32,
    /// Its absolute position in the ring.
    pub(crate) position: u64,
    /// Where the ring's rest is skipped before it.
    pub(crate) skip: Option<u64>,
    /// The ring's name for it.
    pub(crate) ticket: u64,
    /// Not handed to the backup yet.
    pub(crate) pending: bool,
}

/// The writing side of a worker's rings.
pub(crate) struct Rings {
    rings: RefCell<Vec<Ring>>,
    /// Who wants to know which rings fill, and when they are first applied.
    meter: RefCell<Option<Arc<Meter>>>,
}

impl Rings {
    /// Those of a worker, the `writer`th of the cluster. When backups are first told differs from ring to ring as it does later on: else all of
    /// a cluster's would be told at the same time, some of them more than once before that is lost.
    pub(crate) fn new(layout: &Layout, writer: u32) -> Rings {
        let (nodes, bytes) = (layout.config().nodes, layout.config().log_ring_bytes);
        let early = |node: u16| mixed(writer * u32::from(nodes) + u32::from(node)) % ENTRIES_PER_TRUNCATION;
        Rings {
            rings: RefCell::new((0..nodes).map(|node| Ring::new(bytes, early(node))).collect()),
            meter: RefCell::default(),
        }
    }

    /// From now on, tells `meter` which rings fill and when they are first applied.
    pub(crate) fn tell(&self, meter: Arc<Meter>) {
        *self.meter.borrow_mut() = Some(meter);
    }

    /// A backup has been told, at `now`, of all that is decided.
    pub(crate) fn told(&self, node: NodeId, now: Nanos) {
        if self.with(node, Ring::told)
            && let Some(meter) = &*self.meter.borrow()
        {
            meter.turnover().turned(now);
        }
    }

    pub(crate) fn with<T>(&self, node: NodeId, f: impl FnOnce(&mut Ring) -> T) -> T {
        f(&mut self.rings.borrow_mut()[node.index()])
    }

    /// The first ring that has no room for its entry of the transaction, if any.
    pub(crate) fn short_of_room(&self, slots: &[Slot]) -> Option<NodeId> {
        let rings = self.rings.borrow();
        slots.iter().find(|s| !rings[s.node.index()].has_room(s.len)).map(|s| s.node)
    }

    /// Takes room for all entries of the transaction, which must be there, and completes their frames.
    pub(crate) fn reserve(&self, slots: &mut [Slot]) {
        let rings = &mut *self.rings.borrow_mut();
        for slot in slots {
            let ring = &mut rings[slot.node.index()];
            if ring.unused()
                && let Some(meter) = &*self.meter.borrow()
            {
                meter.turnover().begun();
            }
            let place = ring.reserve(slot.len);
            (slot.position, slot.skip, slot.ticket) = (place.position, place.skip, place.ticket);
            slot.pending = true;
            entry::frame(&slot.buf, slot.len, slot.position, slot.skip);
        }
    }
}

/// Neighbouring numbers, far apart: the upper half of a product (Knuth, The Art of Computer Programming 3, 6.4, multiplicative hashing).
fn mixed(number: u32) -> u32 {
    number.wrapping_mul(0x9e37_79b9) >> 16
}

/// Builds the transaction's entries: one for each node that backs a record it wrote.
pub(crate) fn build(txn: &mut Txn, layout: &Layout, port: &EnginePort) -> Result<(), PoolExhausted> {
    let (stamp, install_at) = (txn.stamp, txn.install_at);
    let (accesses, slots) = txn.logging();
    slots.clear();
    for access in accesses.iter().filter(|a| a.logged()) {
        for node in layout.backups(access.primary) {
            if slots.iter().any(|s: &Slot| s.node == node) {
                continue;
            }
            let backed =
                |a: &&Access| a.logged() && layout.copy(node, a.primary).is_some_and(|copy| copy > 0);
            let len = entry::bytes(accesses.iter().filter(backed).map(|a| a.logged_words()));
            let buf = port.buf(len + 8)?;
            let mut out = entry::Builder::new(&buf, stamp);
            for access in accesses.iter().filter(backed) {
                out.record(access, access.next_version(install_at));
            }
            slots.push(Slot { node, buf, len, position: 0, skip: None, ticket: 0, pending: false });
        }
    }
    Ok(())
}
