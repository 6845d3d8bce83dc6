//! The backup's side of the rings: appending for two-sided writers, applying and freeing.

use super::entry::{self, Frame, RecordHead};
use crate::store::NodeStore;
use primitives::fabric::{CpuWork, Nic};
use primitives::mem::Region;
use primitives::rpc::{Malformed, Reader};
use primitives::verbs::NodeId;

/// Reads the rings that same-numbered workers of other nodes fill in this node's memory.
pub(crate) struct RingReader {
    store: NodeStore,
    worker: u16,
    applied: u64,
    damaged: u64,
}

impl RingReader {
    pub(crate) fn new(store: NodeStore, worker: u16) -> RingReader {
        RingReader { store, worker, applied: 0, damaged: 0 }
    }

    /// Entries applied, and entries found damaged.
    pub(crate) fn counts(&self) -> (u64, u64) {
        (self.applied, self.damaged)
    }

    fn ring_bytes(&self, source: NodeId) -> Result<u64, Malformed> {
        let config = self.store.layout().config();
        if config.replicas < 2 || source.0 >= config.nodes {
            return Err(Malformed::Field { field: "log source", value: u64::from(source.0) });
        }
        Ok(config.log_ring_bytes)
    }

    /// Writes what remains of a request at the ring position that its first word names.
    pub(crate) fn append(&mut self, source: NodeId, request: &mut Reader<'_>) -> Result<(), Malformed> {
        let position = request.word()?;
        let len = request.remaining();
        let bytes = self.ring_bytes(source)?;
        let head = self.store.region().load(self.store.layout().ring_head(source, self.worker));
        let inside = position % bytes + u64::from(len) <= bytes;
        let free = position >= head && position.saturating_add(u64::from(len)) <= head.saturating_add(bytes);
        if !position.is_multiple_of(8) || !len.is_multiple_of(8) || !inside || !free {
            return Err(Malformed::Field { field: "log position", value: position });
        }
        let (from, at) = request.place(len)?;
        self.write(source, position, from, at, len);
        Ok(())
    }

    /// Writes `len` bytes at a ring position; the caller has checked that they fit and are free.
    pub(crate) fn write(&self, source: NodeId, position: u64, from: &Region, at: u64, len: u32) {
        let layout = self.store.layout();
        let to = layout.ring(source, self.worker) + position % layout.config().log_ring_bytes;
        Region::copy(from, at, self.store.region(), to, u64::from(len));
    }

    /// Applies the entries before position `upto` and frees their space; returns how far it got.
    pub(crate) fn truncate(&mut self, source: NodeId, upto: u64, nic: &impl Nic) -> Result<u64, Malformed> {
        let bytes = self.ring_bytes(source)?;
        let head_word = self.store.layout().ring_head(source, self.worker);
        let mut head = self.store.region().load(head_word);
        // Requests that nobody waits for may arrive late: then their work is done.
        if upto > head && upto - head > bytes {
            return Err(Malformed::Field { field: "log position", value: upto });
        }
        while head < upto {
            match self.apply(source, head, upto, bytes, nic) {
                Some(next) => head = next,
                None => {
                    // Not overwritten, not freed: recovery will want to see it.
                    self.damaged += 1;
                    break;
                }
            }
        }
        self.store.region().store(head_word, head);
        Ok(head)
    }

    /// Applies the entry at `head`; returns the position behind it, or `None` if it is not whole.
    fn apply(&mut self, source: NodeId, head: u64, upto: u64, bytes: u64, nic: &impl Nic) -> Option<u64> {
        let layout = self.store.layout().clone();
        let region = self.store.region().clone();
        let at = layout.ring(source, self.worker) + head % bytes;
        let rest = bytes - head % bytes;
        let len = match entry::parse(region.load(at), head)? {
            Frame::Skip(len) => return (u64::from(len) == rest).then_some(head + rest),
            Frame::Entry(len) => len,
        };
        if len < entry::FRAME_BYTES || u64::from(len) > rest || head + u64::from(len) > upto {
            return None;
        }
        let end = at + u64::from(len) - 8;
        if region.load(end) != region.load(at) {
            return None;
        }
        let mut next = at + 16;
        while next < end {
            if end - next < u64::from(entry::RECORD_BYTES) {
                return None;
            }
            let head = RecordHead::new([region.load(next), region.load(next + 8), region.load(next + 16)])?;
            let payload = next + u64::from(entry::RECORD_BYTES);
            next = payload + u64::from(head.payload_words) * 8;
            let words = match layout.has(head.table) {
                true if head.removed => 0,
                true => layout.payload_words(head.table),
                false => return None,
            };
            if head.payload_words != words || next > end {
                return None;
            }
            nic.charge(CpuWork::Probe);
            nic.charge(CpuWork::Copy(head.payload_words * 8 + entry::RECORD_BYTES));
            self.apply_record(&head, &region, payload)?;
        }
        self.applied += 1;
        Some(head + u64::from(len))
    }

    /// Brings this node's copy of a record to the logged version, unless it has a later one already: rings of
    /// different workers are applied in any order.
    fn apply_record(&self, head: &RecordHead, region: &Region, payload: u64) -> Option<()> {
        let layout = self.store.layout();
        let copy = layout.copy(self.store.node(), layout.primary(head.table, head.key)).filter(|&c| c > 0)?;
        let words = &region.words()[payload as usize / 8..][..head.payload_words as usize];
        let words = (!head.removed).then_some(words);
        self.store.bring_copy_to(copy, head.table, head.key, head.version, words).ok()
    }
}
