//! A receive queue that many senders fill and one owner empties.
//!
//! The owner posts buffers at the tail. A sender claims the oldest unclaimed buffer with one compare-and-swap,
//! fills it, and publishes the outcome by storing the slot's turn. The owner takes outcomes in posting order.
//! Lock-free for senders against each other; a sender that is descheduled between claim and publish delays
//! only the outcomes behind its own.
//!
//! `tests/loom.rs` includes this file with loom's atomics and goes through its interleavings, stale loads among them; so the
//! atomics are those of whoever includes it, and its other tests stand in `tests.rs` beside it.

use super::atomic::{AtomicU32, AtomicU64, Ordering};
use crate::verbs::{NodeId, Qp, RecvRequest, Sge, WcOpcode, WcStatus};

pub(super) struct RecvRing {
    depth: u64,
    slots: Box<[Slot]>,
    posted: AtomicU64,
    claimed: AtomicU64,
    taken: AtomicU64,
}

#[derive(Default)]
struct Slot {
    id: AtomicU64,
    lkey: AtomicU32,
    offset: AtomicU64,
    len: AtomicU32,
    byte_len: AtomicU32,
    imm: AtomicU64,
    from: AtomicU64,
    outcome: AtomicU32,
    turn: AtomicU64,
}

/// A claimed receive: a buffer the sender must fill and publish.
pub(super) struct Claim<'r> {
    slot: &'r Slot,
    turn: u64,
    pub(super) local: Sge,
}

/// What a sender tells about a filled receive.
pub(super) struct Arrival {
    pub(super) byte_len: u32,
    pub(super) imm: Option<u32>,
    pub(super) from: Option<(NodeId, Qp)>,
    pub(super) opcode: WcOpcode,
    pub(super) status: WcStatus,
}

impl RecvRing {
    pub(super) fn new(depth: u32) -> RecvRing {
        RecvRing {
            depth: u64::from(depth),
            slots: (0..depth.next_power_of_two()).map(|_| Slot::default()).collect(),
            posted: AtomicU64::new(0),
            claimed: AtomicU64::new(0),
            taken: AtomicU64::new(0),
        }
    }

    fn slot(&self, index: u64) -> &Slot {
        &self.slots[index as usize & (self.slots.len() - 1)]
    }

    /// Owner only: posts a buffer; false when the queue is full.
    pub(super) fn post(&self, request: &RecvRequest) -> bool {
        let posted = self.posted.load(Ordering::Relaxed);
        if posted - self.taken.load(Ordering::Relaxed) >= self.depth {
            return false;
        }
        let slot = self.slot(posted);
        slot.id.store(request.id, Ordering::Relaxed);
        slot.lkey.store(request.local.lkey.0, Ordering::Relaxed);
        slot.offset.store(request.local.offset, Ordering::Relaxed);
        slot.len.store(request.local.len, Ordering::Relaxed);
        self.posted.store(posted + 1, Ordering::Release);
        true
    }

    /// Owner only: whether every posted buffer has come back.
    pub(super) fn is_empty(&self) -> bool {
        self.taken.load(Ordering::Relaxed) == self.posted.load(Ordering::Relaxed)
    }

    /// Any sender: claims the oldest posted buffer.
    #[inline]
    pub(super) fn claim(&self) -> Option<Claim<'_>> {
        let mut claimed = self.claimed.load(Ordering::Relaxed);
        loop {
            if claimed >= self.posted.load(Ordering::Acquire) {
                return None;
            }
            match self.claimed.compare_exchange_weak(
                claimed,
                claimed + 1,
                Ordering::AcqRel,
                Ordering::Relaxed,
            ) {
                Ok(_) => break,
                Err(now) => claimed = now,
            }
        }
        let slot = self.slot(claimed);
        let local = Sge {
            lkey: crate::verbs::Lkey(slot.lkey.load(Ordering::Relaxed)),
            offset: slot.offset.load(Ordering::Relaxed),
            len: slot.len.load(Ordering::Relaxed),
        };
        Some(Claim { slot, turn: claimed + 1, local })
    }

    /// Owner only: the next outcome in posting order, with the request's id.
    #[inline]
    pub(super) fn take(&self) -> Option<(u64, Arrival)> {
        let taken = self.taken.load(Ordering::Relaxed);
        let slot = self.slot(taken);
        if slot.turn.load(Ordering::Acquire) != taken + 1 {
            return None;
        }
        self.taken.store(taken + 1, Ordering::Relaxed);
        let imm = slot.imm.load(Ordering::Relaxed);
        let from = slot.from.load(Ordering::Relaxed);
        let outcome = slot.outcome.load(Ordering::Relaxed);
        let arrival = Arrival {
            byte_len: slot.byte_len.load(Ordering::Relaxed),
            imm: (imm >> 32 == 1).then_some(imm as u32),
            from: (from != 0).then_some((NodeId((from >> 32) as u16), Qp(from as u32))),
            opcode: if outcome & 1 == 1 { WcOpcode::RecvRdmaWithImm } else { WcOpcode::Recv },
            status: match outcome >> 1 {
                0 => WcStatus::Success,
                1 => WcStatus::Flushed,
                _ => WcStatus::LocalLength,
            },
        };
        Some((slot.id.load(Ordering::Relaxed), arrival))
    }
}

impl Claim<'_> {
    /// Publishes the outcome; the owner sees the buffer's bytes with it.
    #[inline]
    pub(super) fn publish(self, arrival: Arrival) {
        let imm = arrival.imm.map_or(0, |imm| 1 << 32 | u64::from(imm));
        // Bit 63 marks presence: node 0 with queue pair 0 is a sender too.
        let from = arrival.from.map_or(0, |(node, qp)| 1 << 63 | u64::from(node.0) << 32 | u64::from(qp.0));
        let status = match arrival.status {
            WcStatus::Success => 0,
            WcStatus::Flushed => 1,
            _ => 2,
        };
        let opcode = u32::from(arrival.opcode == WcOpcode::RecvRdmaWithImm);
        self.slot.byte_len.store(arrival.byte_len, Ordering::Relaxed);
        self.slot.imm.store(imm, Ordering::Relaxed);
        self.slot.from.store(from, Ordering::Relaxed);
        self.slot.outcome.store(status << 1 | opcode, Ordering::Relaxed);
        self.slot.turn.store(self.turn, Ordering::Release);
    }
}
