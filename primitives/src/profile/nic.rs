//! The NIC's numbers, and the primitive costs that follow from them.
//!
//! The parameters are those of the queueing model in [`crate::fabric::sim`]; the derived figures are what the
//! same model gives with nothing else going on. The cost model reads the derived figures only.

use super::quantity::section;
use crate::fabric::AtomicScope;
use crate::verbs::Verb;

/// The primitives whose costs differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Primitive {
    /// One-sided READ.
    Read,
    /// One-sided WRITE.
    Write,
    /// CAS and FETCH_ADD.
    Atomic,
    /// SEND taken by a RECV; on UD, half of an RPC.
    Send,
}

impl From<&Verb> for Primitive {
    fn from(verb: &Verb) -> Primitive {
        match verb {
            Verb::Read { .. } => Primitive::Read,
            Verb::Write { .. } => Primitive::Write,
            Verb::CompareSwap { .. } | Verb::FetchAdd { .. } => Primitive::Atomic,
            Verb::Send { .. } | Verb::WriteImm { .. } => Primitive::Send,
        }
    }
}

/// Extended transport headers on the wire, in bytes (InfiniBand specification volume 1, chapter 9).
pub(crate) mod headers {
    /// RDMA extended header of READ and WRITE requests.
    pub const RETH: u64 = 16;
    /// Acknowledge header, also the first of a READ response.
    pub const AETH: u64 = 4;
    /// Atomic request.
    pub const ATOMIC: u64 = 28;
    /// Atomic response: acknowledge header and the old value.
    pub const ATOMIC_ACK: u64 = 12;
    /// Datagram header.
    pub const DETH: u64 = 8;
}

section! {
    /// One NIC, its link and the switch it hangs on.
    pub struct NicProfile {
        words {
            /// The card as its vendor names it.
            card: String,
            /// How far its atomics reach.
            atomic_scope: AtomicScope,
        }
        numbers {
        /// Engine time of the requester for one READ.
        requester_read: Ns NonNegative,
        /// Engine time of the requester for one WRITE.
        requester_write: Ns NonNegative,
        /// Engine time of the requester for one ATOMIC.
        requester_atomic: Ns NonNegative,
        /// Engine time of the requester for one SEND.
        requester_send: Ns NonNegative,
        /// Engine time of the responder for one READ.
        responder_read: Ns NonNegative,
        /// Engine time of the responder for one WRITE.
        responder_write: Ns NonNegative,
        /// Engine time of the responder for one ATOMIC.
        responder_atomic: Ns NonNegative,
        /// Engine time of the responder for one SEND, its RECV included.
        responder_send: Ns NonNegative,
        /// Engine time for one completion-queue entry.
        completion_entry: Ns NonNegative,
        /// Service time of the atomic unit for spread addresses.
        atomic_unit: Ns NonNegative,
        /// How long an ATOMIC holds its address: the inverse of the one-address rate.
        atomic_hold: Ns NonNegative,
        /// Lock buckets of the atomic unit, chosen by low address bits.
        atomic_buckets: Count WholePositive,

        /// Fixed delay of one pass through the NIC, in addition to service times.
        pass_latency: Ns NonNegative,
        /// From execution of a WRITE or SEND at the responder to its acknowledgement leaving.
        ack_delay: Ns NonNegative,
        /// One way over PCIe: a doorbell to the NIC, a posted DMA write to memory.
        pcie_write: Ns NonNegative,
        /// A DMA read of one cache line: WQE fetch, payload fetch, READ and ATOMIC at the responder.
        pcie_read: Ns NonNegative,
        /// PCIe rate in each direction, overheads excluded.
        pcie_rate: GBps Positive,
        /// PCIe overhead of each transaction-layer packet.
        pcie_tlp_overhead: Bytes NonNegative,
        /// Largest PCIe packet payload.
        pcie_tlp_payload: Bytes WholePositive,
        /// Link data rate in each direction.
        link_rate: GBps Positive,
        /// One switch hop.
        switch_latency: Ns NonNegative,
        /// Both cables together.
        cable_latency: Ns NonNegative,
        /// Headers every packet carries: routing, base transport and checksums.
        packet_header: Bytes NonNegative,
        /// Path MTU of connected transports: one packet's payload.
        mtu: Bytes WholePositive,
        /// Largest datagram payload.
        ud_mtu: Bytes WholePositive,

        /// Largest WQE that rides with its doorbell.
        blueflame_max: Bytes Whole,
        /// WQE bytes of a connected request before its inline payload.
        wqe_connected: Bytes WholePositive,
        /// WQE bytes of a datagram before its inline payload.
        wqe_datagram: Bytes WholePositive,
        /// Bytes of a completion-queue entry.
        cqe_size: Bytes WholePositive,
        /// Largest inline payload.
        max_inline: Bytes Whole,
        /// Largest send queue.
        max_send_depth: Count WholePositive,
        /// Largest receive queue.
        max_recv_depth: Count WholePositive,
        /// Most READs and ATOMICs in flight per queue pair.
        max_rd_atomic: Count WholePositive,
        /// Queue-pair contexts the card caches.
        qp_cache_entries: Count WholePositive,
        /// Engine time one missed context costs one role; misses overlap, so it is far below a PCIe read.
        qp_miss: Ns NonNegative,
        /// Wait before a SEND is offered again to a receiver without RECV.
        rnr_timer: Ns Positive,
        }
    }
}

impl NicProfile {
    /// Engine time of the requesting NIC for one request, without its completion.
    pub fn requester_ns(&self, primitive: Primitive) -> f64 {
        match primitive {
            Primitive::Read => self.requester_read.value,
            Primitive::Write => self.requester_write.value,
            Primitive::Atomic => self.requester_atomic.value,
            Primitive::Send => self.requester_send.value,
        }
    }

    /// Engine time of the responding NIC for one request, without a receive completion.
    pub fn responder_ns(&self, primitive: Primitive) -> f64 {
        match primitive {
            Primitive::Read => self.responder_read.value,
            Primitive::Write => self.responder_write.value,
            Primitive::Atomic => self.responder_atomic.value,
            Primitive::Send => self.responder_send.value,
        }
    }

    /// Share of queue-pair contexts not found in the cache when `queue_pairs` are used evenly.
    pub fn qp_miss_share(&self, queue_pairs: usize) -> f64 {
        if queue_pairs == 0 {
            return 0.0;
        }
        (1.0 - self.qp_cache_entries.value / queue_pairs as f64).max(0.0)
    }

    /// Bytes a request of `payload` bytes puts on the wire.
    pub fn request_bytes(&self, primitive: Primitive, payload: u32) -> u64 {
        let (extended, data) = match primitive {
            Primitive::Read => (headers::RETH, 0),
            Primitive::Write => (headers::RETH, u64::from(payload)),
            Primitive::Atomic => (headers::ATOMIC, 0),
            Primitive::Send => (headers::DETH, u64::from(payload)),
        };
        data + extended + self.packets(data) * self.packet_header.value as u64
    }

    /// Bytes a response puts on the wire; a datagram has none.
    pub fn response_bytes(&self, primitive: Primitive, payload: u32) -> u64 {
        let header = self.packet_header.value as u64;
        match primitive {
            Primitive::Read => {
                let data = u64::from(payload);
                data + headers::AETH + self.packets(data) * header
            }
            Primitive::Write => headers::AETH + header,
            Primitive::Atomic => headers::ATOMIC_ACK + header,
            Primitive::Send => 0,
        }
    }

    fn packets(&self, data: u64) -> u64 {
        data.div_ceil(self.mtu.value as u64).max(1)
    }

    /// Time `bytes` take on the link.
    pub fn link_ns(&self, bytes: u64) -> f64 {
        bytes as f64 / self.link_rate.value
    }

    /// Time `bytes` of payload take on one direction of PCIe, packet overheads included.
    pub fn pcie_ns(&self, bytes: u64) -> f64 {
        if bytes == 0 {
            return 0.0;
        }
        let packets = (bytes as f64 / self.pcie_tlp_payload.value).ceil();
        (bytes as f64 + packets * self.pcie_tlp_overhead.value) / self.pcie_rate.value
    }

    /// Time a symmetric NIC spends per operation when it requests as many as it serves: the inverse of its
    /// rate, taken over engine, atomic unit, link and PCIe. `signaled` is the share of requests that ask for
    /// a completion, `queue_pairs` the contexts in use. A SEND is counted one way, with its receive
    /// completion.
    pub fn bottleneck_ns(
        &self,
        primitive: Primitive,
        payload: u32,
        signaled: f64,
        queue_pairs: usize,
    ) -> f64 {
        let miss = self.qp_miss_share(queue_pairs) * self.qp_miss.value;
        let receives = if primitive == Primitive::Send { 1.0 } else { 0.0 };
        let entries = signaled + receives;
        let engine = self.requester_ns(primitive)
            + self.responder_ns(primitive)
            + 2.0 * miss
            + entries * self.completion_entry.value;
        let link =
            self.link_ns(self.request_bytes(primitive, payload) + self.response_bytes(primitive, payload));
        let entry = self.pcie_ns(self.cqe_size.value as u64);
        // Data and completions share the direction to memory, which is never the lighter one.
        let pcie = self.pcie_ns(u64::from(payload)) + entries * entry;
        let unit = if primitive == Primitive::Atomic { self.atomic_unit.value } else { 0.0 };
        engine.max(link).max(pcie).max(unit)
    }

    /// Time from doorbell to completion entry with nothing else going on, in nanoseconds. CPU work at either
    /// end is not part of it. A SEND is counted one way, to the receive completion at the other side.
    pub fn unloaded_latency_ns(&self, primitive: Primitive, payload: u32, inline: bool) -> f64 {
        let bytes = u64::from(payload);
        let wire = self.switch_latency.value + self.cable_latency.value;
        let carries = matches!(primitive, Primitive::Write | Primitive::Send);
        let fetch = if carries && !inline { self.pcie_read.value + self.pcie_ns(bytes) } else { 0.0 };
        let out = self.pcie_write.value
            + fetch
            + self.requester_ns(primitive)
            + self.pass_latency.value
            + self.link_ns(self.request_bytes(primitive, payload))
            + wire
            + self.responder_ns(primitive)
            + self.pass_latency.value;
        let entry =
            self.completion_entry.value + self.pcie_write.value + self.pcie_ns(self.cqe_size.value as u64);
        if primitive == Primitive::Send {
            return out + entry + self.pcie_ns(bytes);
        }
        let memory = match primitive {
            Primitive::Read => self.pcie_read.value + self.pcie_ns(bytes),
            Primitive::Atomic => self.atomic_unit.value + self.pcie_read.value,
            // The acknowledgement goes out when the bytes are placed, if that is later.
            Primitive::Write | Primitive::Send => {
                let placed = self.pcie_write.value + self.pcie_ns(bytes);
                self.ack_delay.value.max(placed - self.pass_latency.value)
            }
        };
        let landed = match primitive {
            Primitive::Read | Primitive::Atomic => self.pcie_ns(bytes),
            Primitive::Write | Primitive::Send => 0.0,
        };
        let back = 2.0 * self.pass_latency.value
            + landed
            + self.link_ns(self.response_bytes(primitive, payload))
            + wire
            + entry;
        out + memory + back
    }
}
