//! A card: its engine, bus, link ends, atomic unit and caches.

use super::cache::{Cache, Translations};
use super::ceiling::Ceiling;
use super::costs::{NicCosts, ps};
use super::engine::{Engine, Miss};
use super::pcie::Pcie;
use super::qp::QueuePair;
use super::requester::{ATOMIC, READ};
use super::server::{Line, Server};
use crate::profile::NicProfile;
use crate::verbs::Transport;

/// One NIC.
pub(super) struct Card {
    pub ceiling: Ceiling,
    pub engine: Engine,
    pub egress: Line,
    pub ingress: Line,
    pub atomic_unit: Server,
    pub pcie: Pcie,
    pub translations: Translations,
    /// WQEs taken so far: one whose response comes more than the cache's size later was dropped meanwhile.
    pub wqes: u32,
    pub costs: NicCosts,
    contexts: Cache,
    reads: Cache,
}

impl Card {
    pub fn new(nic: &NicProfile, factor: f64) -> Card {
        let used = |cost: &crate::profile::Quantity| cost.value > 0.0;
        Card {
            ceiling: Ceiling::new(ps(nic.message_gap.value, factor)),
            engine: Engine::new(nic.processing_units.value as usize),
            egress: Line::default(),
            ingress: Line::default(),
            atomic_unit: Server::default(),
            pcie: Pcie::new(nic.pcie_tags.value),
            translations: Translations::new(nic.mtt_entries.value, nic.mtt_page.value, used(&nic.mtt_miss)),
            wqes: 0,
            costs: NicCosts::new(nic, factor),
            contexts: Cache::new(nic.qp_cache_entries.value),
            reads: Cache::new(nic.read_cache_entries.value),
        }
    }

    /// The queue pair's unit.
    #[inline]
    pub fn unit(&mut self, pair: &mut QueuePair) -> usize {
        self.engine.unit(&mut pair.unit, pair.transport == Transport::Ud)
    }

    /// When a completion entry for a queue pair, made at `earliest`, has left for memory.
    #[inline(always)]
    pub fn entry_sent(&mut self, now: u64, pair: &mut QueuePair, earliest: u64) -> u64 {
        let unit = self.unit(pair);
        let made = self.engine.pass(unit, now, earliest, self.costs.completion_entry, Miss::default());
        self.pcie.entry(now, made, &self.costs)
    }

    /// When a reply that is ready at `from` reaches the requester.
    #[inline(always)]
    pub fn reply_arrival(&mut self, now: u64, from: u64, data: u64, extended: u64) -> u64 {
        let sent =
            self.egress.pass(now, from + self.costs.pass, self.costs.link(data, extended), self.costs.packet);
        sent + self.costs.wire
    }

    /// What it costs to have the state of queue pair `number` at hand for an operation of `class`.
    #[inline(always)]
    pub fn state(&mut self, number: u32, pair: &mut QueuePair, class: usize) -> Miss {
        let mut miss = Miss::default();
        if !self.contexts.touch(number, &mut pair.context_slot) {
            miss = Miss { stall: self.costs.context_stall[class], wait: self.costs.context_fetch };
        }
        if self.costs.read_miss > 0
            && (class == READ || class == ATOMIC)
            && !self.reads.touch(number, &mut pair.read_slot)
        {
            miss.stall += self.costs.read_miss;
            miss.wait = miss.wait.max(self.costs.read_miss);
        }
        miss
    }

    /// What it costs that a WQE may have been dropped while its response was on the way. Entries leave in the
    /// order they came, so the edge is sharp: 384 to 448 on Connect-IB (efficient/rdma_bench).
    #[inline]
    pub fn dropped(&self, wqe: u32) -> Option<Miss> {
        let later = self.wqes.wrapping_sub(wqe);
        (self.costs.wqe_miss > 0 && later > self.costs.wqe_cache)
            .then_some(Miss { stall: self.costs.wqe_miss, wait: self.costs.pcie_read })
    }
}
