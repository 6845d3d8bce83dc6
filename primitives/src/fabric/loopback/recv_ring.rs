//! A receive queue that many senders fill and one owner empties.
//!
//! The owner posts buffers at the tail. A sender claims the oldest unclaimed buffer with one compare-and-swap,
//! fills it, and publishes the outcome by storing the slot's turn. The owner takes outcomes in posting order.
//! Lock-free for senders against each other; a sender that is descheduled between claim and publish delays
//! only the outcomes behind its own.

use crate::verbs::{NodeId, Qp, RecvRequest, Sge, WcOpcode, WcStatus};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verbs::Lkey;
    use std::sync::atomic::AtomicBool;

    fn request(id: u64) -> RecvRequest {
        RecvRequest { id, local: Sge { lkey: Lkey(7), offset: id * 64, len: 64 } }
    }

    fn arrival(byte_len: u32) -> Arrival {
        Arrival {
            byte_len,
            imm: Some(byte_len),
            from: Some((NodeId(0), Qp(0))),
            opcode: WcOpcode::Recv,
            status: WcStatus::Success,
        }
    }

    #[test]
    fn full_and_empty_are_told_apart() {
        let ring = RecvRing::new(3);
        assert!(ring.claim().is_none());
        assert!((0..3).all(|id| ring.post(&request(id))));
        assert!(!ring.post(&request(3)));
        for id in 0..3 {
            ring.claim().unwrap().publish(arrival(id as u32));
        }
        assert!(ring.claim().is_none());
        for id in 0..3 {
            let (got, arrival) = ring.take().unwrap();
            assert_eq!((got, arrival.byte_len, arrival.from), (id, id as u32, Some((NodeId(0), Qp(0)))));
        }
        assert!(ring.take().is_none() && ring.post(&request(4)));
    }

    #[test]
    fn many_senders_lose_and_double_nothing() {
        const EACH: u32 = 20_000;
        let ring = RecvRing::new(16);
        let stop = AtomicBool::new(false);
        let mut seen = vec![0u32; 3 * EACH as usize];
        std::thread::scope(|scope| {
            for sender in 0..3 {
                let (ring, stop) = (&ring, &stop);
                scope.spawn(move || {
                    let mut sent = 0;
                    while sent < EACH && !stop.load(Ordering::Relaxed) {
                        match ring.claim() {
                            Some(claim) => {
                                claim.publish(arrival(sender * EACH + sent));
                                sent += 1;
                            }
                            None => std::thread::yield_now(),
                        }
                    }
                });
            }
            let (mut id, mut taken) = (0, 0);
            while taken < 3 * EACH {
                while ring.post(&request(id)) {
                    id += 1;
                }
                while let Some((got, arrival)) = ring.take() {
                    assert_eq!(got, u64::from(taken), "outcomes come in posting order");
                    seen[arrival.byte_len as usize] += 1;
                    taken += 1;
                }
                std::thread::yield_now();
            }
            stop.store(true, Ordering::Relaxed);
        });
        assert!(seen.iter().all(|&n| n == 1));
    }
}
