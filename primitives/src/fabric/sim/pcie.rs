//! PCIe: one server for each direction, and the tags of DMA reads.
//!
//! Data, completion entries and requests of DMA reads take their packets' bytes towards memory, and a request a fixed time
//! besides; WQEs of chains, receive requests, payloads and what READs fetch take theirs towards the card. Contention among
//! them needs no rule of its own then. Connect-IB's READ rate falls from 72 B on, far below its link's rate
//! (efficient/rdma_bench): by the bytes of the data that lands and of its completion, and 7.4 ns. That this is the request of
//! the responder's DMA read, and not a share of each of the three transactions, follows from its datagrams: each takes two
//! DMA writes, payload and completion, and at 40.9 M calls/s (efficient/fasst) these leave under 1 ns to a write.
//!
//! A DMA read asks for up to 512 B at a time and holds a tag from request to answer; when tags run out, reads wait.
//! ConnectX-6 serves 65 M READ/s from host memory and 121 M/s from its own (public benchmark, 64 B).
//!
//! Simplified: credits and ordering of PCIe are left out; an ATOMIC's read takes bytes but no tag, and a receive request no
//! packet overhead. Doorbells, the WQEs that ride with them, and what was dropped from a cache and is fetched again
//! (contexts, translations, WQEs) cross the bus in their time but without their bytes: no rate that is published tells them
//! from the engine time that they cost.

use super::costs::NicCosts;
use super::server::Line;
use crate::profile::READ_REQUEST_MAX;

/// From so many tags on, no load runs out of them.
const TAGS_MAX: usize = 4096;

/// The bus of one card.
pub(super) struct Pcie {
    to_memory: Line,
    to_card: Line,
    /// When each tag is free again, in the order they are taken; none if there is no limit.
    tags: Box<[u64]>,
    next_tag: usize,
}

impl Pcie {
    pub fn new(tags: f64) -> Pcie {
        let tags = tags as usize;
        Pcie {
            to_memory: Line::default(),
            to_card: Line::default(),
            tags: if tags > TAGS_MAX { Box::default() } else { vec![0; tags].into() },
            next_tag: 0,
        }
    }

    /// A DMA write; returns when its last byte is on its way, to be seen `pcie_write` later.
    #[inline]
    pub fn write(&mut self, now: u64, earliest: u64, bytes: u64, costs: &NicCosts) -> u64 {
        self.to_memory.pass(now, earliest, costs.pcie(bytes), costs.pcie_packet)
    }

    /// A completion entry, to be seen `pcie_write` later.
    #[inline]
    pub fn entry(&mut self, now: u64, earliest: u64, costs: &NicCosts) -> u64 {
        self.to_memory.between(now, earliest, costs.cqe_transfer, costs.pcie_packet)
    }

    /// The requests of a DMA read; returns when the answer to the last of them starts to come, and by how much later that is than
    /// to the first.
    #[inline(always)]
    pub fn ask(&mut self, now: u64, earliest: u64, bytes: u64, costs: &NicCosts) -> (u64, u64) {
        if bytes == 0 {
            return (earliest, 0);
        }
        let requests = if bytes <= READ_REQUEST_MAX { 1 } else { bytes.div_ceil(READ_REQUEST_MAX) };
        let asking = costs.read_requests(requests);
        let mut at = self.to_memory.between(now, earliest, asking, costs.pcie_packet);
        if self.tags.is_empty() {
            return (at + costs.pcie_read, 0);
        }
        let first = at.max(self.tags[self.next_tag]);
        for _ in 0..requests {
            let tag = &mut self.tags[self.next_tag];
            at = at.max(*tag);
            *tag = at + costs.pcie_read;
            self.next_tag += 1;
            if self.next_tag == self.tags.len() {
                self.next_tag = 0;
            }
        }
        (at + costs.pcie_read, at - first)
    }

    /// The answer to a DMA read.
    #[inline(always)]
    pub fn answer(&mut self, now: u64, earliest: u64, bytes: u64, costs: &NicCosts) -> u64 {
        self.to_card.pass(now, earliest, costs.pcie_answer(bytes), costs.answer_packet)
    }

    /// The bytes of an ATOMIC's read and write, whose latency is part of its hold.
    #[inline]
    pub fn atomic(&mut self, now: u64, costs: &NicCosts) {
        self.to_memory.between(now, now, costs.read_requests(1) + costs.pcie(8), costs.pcie_packet);
        self.to_card.between(now, now, costs.pcie_answer(8), costs.answer_packet);
    }

    /// A receive request fetched ahead of its message, together with its neighbours.
    #[inline]
    pub fn prefetch(&mut self, now: u64, costs: &NicCosts) {
        self.to_card.between(now, now, costs.recv_wqe, costs.answer_packet);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::Profile;

    #[test]
    fn reads_wait_for_tags() {
        let mut nic = Profile::shipped("cx4-edr").unwrap().nic;
        nic.pcie_tags.value = 2.0;
        let costs = NicCosts::new(&nic, 1.0);
        let mut pcie = Pcie::new(2.0);
        let (first, _) = pcie.ask(0, 0, 64, &costs);
        let (second, _) = pcie.ask(0, 0, 64, &costs);
        let (third, _) = pcie.ask(0, 0, 64, &costs);
        assert!(second < first + costs.pcie_read, "two at a time");
        assert!(third >= first + costs.pcie_read, "the third waits for the first");
        let (last, spread) = pcie.ask(0, third, 4096, &costs);
        assert!(last >= third + 4 * costs.pcie_read, "8 requests through 2 tags");
        assert_eq!(spread, 3 * costs.pcie_read, "of which the first two are answered at once");
    }
}
