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

/// What programs can ask of a card.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Interface {
    /// RDMA verbs: READ, WRITE, ATOMIC, SEND.
    Verbs,
    /// Messages through the kernel, as TCP or IPoIB: two-sided only. Costs of the system call and the stack are
    /// in the CPU's numbers.
    Messages,
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
    pub struct NicProfile over NicOverlay {
        words {
            /// The card as its vendor names it.
            card: String,
            /// What programs can ask of it.
            interface: Interface,
            /// How far its atomics reach.
            atomic_scope: AtomicScope,
        }
        numbers {
        /// Cards per machine. A thread uses the card of its socket; all numbers are those of one card.
        cards: Count Within(1.0, 64.0),

        /// Processing units: requests of one queue pair stay on one of them.
        processing_units: Count Within(1.0, 64.0),
        /// Engine time of the requester for one READ, its response included. Of an end of the engine either no verb's time is 0, or all are:
        /// then the stage is left out, as where the posting core does the work.
        requester_read: Ns NonNegative,
        /// Engine time of the requester for one WRITE.
        requester_write: Ns NonNegative,
        /// Engine time of the requester for one ATOMIC, its response included.
        requester_atomic: Ns NonNegative,
        /// Engine time of the requester for one SEND.
        requester_send: Ns NonNegative,
        /// Engine time of the responder for one READ.
        responder_read: Ns NonNegative,
        /// Engine time of the responder for one WRITE.
        responder_write: Ns NonNegative,
        /// Engine time of the responder for one ATOMIC. A card whose ATOMICs stall its pipeline has their whole
        /// duration here: that much of all units' time, taken from the queue pair's own unit, while the others go on.
        responder_atomic: Ns NonNegative,
        /// Engine time of the responder for one SEND, its RECV included.
        responder_send: Ns NonNegative,
        /// Payload that passes the engine at once; longer ones come in segments.
        segment_bytes: Bytes WholePositive,
        /// Engine time of each end for every further segment.
        segment: Ns NonNegative,
        /// Engine time for one completion-queue entry.
        completion_entry: Ns NonNegative,
        /// Engine time of each end for one acknowledgement.
        acknowledgement: Ns NonNegative,
        /// Requests that share an acknowledgement if none of them asks for a completion.
        ack_coalescing: Count WholePositive,
        /// Least time from one message that the card sends for its cores to the next: the inverse of a card's ceiling of messages, and 0 if it
        /// has none. Counted are the requests of all verbs and the SENDs that answer calls, as `messages_per_machine_per_s` counts them; what a card
        /// sends by itself, data that a READ or an ATOMIC returns and acknowledgements, is not, nor is what it receives.
        message_gap: Ns NonNegative,

        /// Service time of the atomic unit for spread addresses.
        atomic_unit: Ns NonNegative,
        /// How long an ATOMIC holds its address: the inverse of the one-address rate. 0, together with the atomic unit's time, leaves the
        /// stage out, as where the posting core does the work.
        atomic_hold: Ns NonNegative,
        /// The same in the card's own memory.
        atomic_hold_on_card: Ns NonNegative,
        /// Lock buckets of the atomic unit, chosen by low address bits.
        atomic_buckets: Count WholePositive,
        /// The card's own memory that programs may register; 0 if there is none.
        on_card_memory: Bytes Whole,

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
        /// What a DMA read takes of the direction to memory, in addition to the bytes of its requests. Writes are posted
        /// and take their bytes alone.
        pcie_read_request: Ns NonNegative,
        /// DMA reads in flight, of up to 512 B each.
        pcie_tags: Count WholePositive,
        /// PCIe overhead of a write packet and of a read request.
        pcie_tlp_overhead: Bytes NonNegative,
        /// Largest payload of a write packet.
        pcie_tlp_payload: Bytes WholePositive,
        /// PCIe overhead of a packet that answers a read.
        pcie_completion_overhead: Bytes NonNegative,
        /// Largest payload of a packet that answers a read.
        pcie_completion_payload: Bytes WholePositive,
        /// Link data rate in each direction.
        link_rate: GBps Positive,
        /// One switch hop.
        switch_latency: Ns NonNegative,
        /// Both cables together.
        cable_latency: Ns NonNegative,
        /// Headers every packet carries: routing, base transport and checksums.
        packet_header: Bytes NonNegative,
        /// Path MTU of connected transports: one packet's payload. InfiniBand's begin at 256 B; no IP packet is longer than 64 KiB.
        mtu: Bytes Within(256.0, 65_536.0),
        /// Largest datagram payload, which holds a message of the RPC layer.
        ud_mtu: Bytes Within(1_024.0, 65_536.0),

        /// Doorbell registers of a device context that belong to one queue pair each, first come first served.
        doorbell_private: Count Whole,
        /// Doorbell registers that the other queue pairs of the context share.
        doorbell_shared: Count WholePositive,
        /// What taking a register from another thread costs the posting core, in addition to waiting for it.
        doorbell_lock: Ns NonNegative,
        /// Largest WQE that rides with its doorbell.
        blueflame_max: Bytes Whole,
        /// WQE bytes of a connected request before its inline payload.
        wqe_connected: Bytes WholePositive,
        /// WQE bytes of a datagram before its inline payload.
        wqe_datagram: Bytes WholePositive,
        /// WQEs the card keeps while their responses are on the way.
        wqe_cache_entries: Count WholePositive,
        /// Engine time to fetch a WQE again that was dropped; 0 leaves the stage out.
        wqe_miss: Ns NonNegative,
        /// Bytes of a receive request, fetched ahead of the message.
        recv_wqe: Bytes Whole,
        /// Bytes placed in front of a received datagram (the global routing header).
        recv_header: Bytes Whole,
        /// Largest payload received on a connection that travels in the completion entry instead of a DMA write of its own.
        /// Datagrams never do (`mlx5_ib`: `scat_cqe && is_connected`).
        recv_inline: Bytes Whole,
        /// Bytes of a completion-queue entry.
        cqe_size: Bytes WholePositive,
        /// Largest inline payload: ports inline up to it. A card may take more than is of use; then this is the threshold of the software.
        max_inline: Bytes Within(0.0, 65_536.0),
        /// Largest send queue. Below the bound a worker's queue pairs do not fit (`QpConfig::ud`); cards have tens of thousands.
        max_send_depth: Count Within(512.0, 1e9),
        /// Largest receive queue.
        max_recv_depth: Count Within(256.0, 1e9),
        /// Most READs and ATOMICs in flight per queue pair.
        max_rd_atomic: Count WholePositive,

        /// Queue-pair contexts the card caches; requester and responder touch one for each request.
        qp_cache_entries: Count WholePositive,
        /// Time to fetch a missed context.
        qp_fetch: Ns NonNegative,
        /// Fetches in flight at once for READs and ATOMICs: a miss costs the engine `qp_fetch` over this.
        qp_fetches: Count WholePositive,
        /// The same for WRITEs and SENDs, which need less of the state.
        qp_fetches_write: Count WholePositive,
        /// Queue pairs whose state of READs and ATOMICs in flight the card caches beside their contexts.
        read_cache_entries: Count WholePositive,
        /// Engine time a miss of that state costs each end; 0 leaves the stage out.
        read_miss: Ns NonNegative,
        /// Address translations the card caches.
        mtt_entries: Count WholePositive,
        /// Bytes one translation covers.
        mtt_page: Bytes WholePositive,
        /// Engine time a missed translation costs the responder; 0 leaves the stage out.
        mtt_miss: Ns NonNegative,
        /// Wait before a SEND is offered again to a receiver without RECV.
        rnr_timer: Ns Timer,
        }
    }
}

/// Largest DMA read request, the usual `MaxReadReq`.
pub(crate) const READ_REQUEST_MAX: u64 = 512;

/// Least share of an ATOMIC's hold between its read of the word and its write. Assumed: ConnectX-4's hold of 445 ns is 45 longer than
/// its DMA read; of cards whose published hold is below the DMA read that they are assumed to have it must be something, since
/// processors see words between the two there as well.
const WRITE_SHARE: f64 = 0.1;

impl NicProfile {
    /// The engine time of an end that is zero beside others that are not: its verb would pass for nothing.
    pub(super) fn passes_for_nothing(&self) -> Option<&'static str> {
        let requester = [
            ("requester_send", &self.requester_send),
            ("requester_read", &self.requester_read),
            ("requester_write", &self.requester_write),
            ("requester_atomic", &self.requester_atomic),
        ];
        let responder = [
            ("responder_send", &self.responder_send),
            ("responder_read", &self.responder_read),
            ("responder_write", &self.responder_write),
            ("responder_atomic", &self.responder_atomic),
        ];
        let offered = match self.interface {
            Interface::Verbs => 4,
            Interface::Messages => 1,
        };
        [requester, responder].into_iter().find_map(|end| {
            let end = &end[..offered];
            let none = end.iter().find(|(_, time)| time.value == 0.0)?;
            end.iter().any(|(_, time)| time.value > 0.0).then_some(none.0)
        })
    }

    /// The hold of an address that is zero though the card has a unit for ATOMICs, or holds addresses elsewhere: one word would be as fast as many.
    pub(super) fn holds_for_nothing(&self) -> Option<&'static str> {
        let has_unit = self.atomic_unit.value > 0.0 || self.atomic_hold.value > 0.0;
        let on_card = self.on_card_memory.value > 0.0;
        match (self.atomic_hold.value, self.atomic_hold_on_card.value) {
            _ if !has_unit => None,
            (0.0, _) => Some("atomic_hold"),
            (_, 0.0) if on_card => Some("atomic_hold_on_card"),
            _ => None,
        }
    }

    /// Engine time of the requesting NIC for one request, without its completion.
    pub fn requester_ns(&self, primitive: Primitive) -> f64 {
        match primitive {
            Primitive::Read => self.requester_read.value,
            Primitive::Write => self.requester_write.value,
            Primitive::Atomic => self.requester_atomic.value,
            Primitive::Send => self.requester_send.value,
        }
    }

    /// Engine time of each end for what a payload has beyond its first segment.
    pub fn segments_ns(&self, payload: u32) -> f64 {
        let further = (f64::from(payload) / self.segment_bytes.value).ceil() - 1.0;
        further.max(0.0) * self.segment.value
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

    /// From the read of a word in host memory by an ATOMIC to when it has written it, which holds up what follows on its queue
    /// pair: what the hold has beyond a DMA read, but not less than a tenth of it. The word has come by a DMA read all the same,
    /// so that a card whose hold is no longer than one begins with the next before the last has written.
    pub fn atomic_write_ns(&self) -> f64 {
        let hold = self.atomic_hold.value;
        (hold - self.pcie_read.value).max(hold * WRITE_SHARE)
    }

    /// Share of queue-pair contexts not found in the cache when `queue_pairs` are used evenly.
    pub fn qp_miss_share(&self, queue_pairs: usize) -> f64 {
        miss_share(self.qp_cache_entries.value, queue_pairs)
    }

    /// Engine time a request costs each end, on average, for state the card has to fetch first when `queue_pairs`
    /// of a card are used evenly: contexts, and for READs and ATOMICs the state of those in flight.
    pub fn qp_miss_ns(&self, primitive: Primitive, queue_pairs: usize) -> f64 {
        let share = self.qp_miss_share(queue_pairs);
        match primitive {
            Primitive::Read | Primitive::Atomic => {
                let reads = miss_share(self.read_cache_entries.value, queue_pairs);
                share * self.qp_fetch.value / self.qp_fetches.value + reads * self.read_miss.value
            }
            Primitive::Write | Primitive::Send => share * self.qp_fetch.value / self.qp_fetches_write.value,
        }
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

    /// Time a DMA write of `bytes` takes on the direction to memory, packet overheads included.
    pub fn pcie_ns(&self, bytes: u64) -> f64 {
        self.pcie_packets_ns(bytes, self.pcie_tlp_payload.value, self.pcie_tlp_overhead.value)
    }

    /// Time the answer to a DMA read of `bytes` takes on the direction to the NIC, packet overheads included.
    pub fn pcie_answer_ns(&self, bytes: u64) -> f64 {
        self.pcie_packets_ns(bytes, self.pcie_completion_payload.value, self.pcie_completion_overhead.value)
    }

    /// Time the requests of a DMA read of `bytes` take on the direction to memory.
    pub fn pcie_request_ns(&self, bytes: u64) -> f64 {
        if bytes == 0 {
            return 0.0;
        }
        let requests = bytes.div_ceil(READ_REQUEST_MAX) as f64;
        self.pcie_read_request.value + requests * self.pcie_tlp_overhead.value / self.pcie_rate.value
    }

    fn pcie_packets_ns(&self, bytes: u64, payload: f64, overhead: f64) -> f64 {
        if bytes == 0 {
            return 0.0;
        }
        let packets = (bytes as f64 / payload).ceil();
        (bytes as f64 + packets * overhead) / self.pcie_rate.value
    }

    /// Time a received datagram and its completion entry take on the direction to memory.
    pub fn pcie_receive_ns(&self, bytes: u64) -> f64 {
        let placed = bytes + self.recv_header.value as u64;
        self.pcie_ns(self.cqe_size.value as u64) + self.pcie_ns(placed)
    }

    /// Time from doorbell to completion entry with nothing else going on, in nanoseconds. CPU work at either
    /// end is not part of it. A SEND is counted one way, to the receive completion at the other side. Of a message of several packets it is
    /// more than that, the sum of all stages: simulated ones go on packet by packet, and what the cost model asks for is one.
    pub fn unloaded_latency_ns(&self, primitive: Primitive, payload: u32, inline: bool) -> f64 {
        let bytes = u64::from(payload);
        let wire = self.switch_latency.value + self.cable_latency.value;
        let read = |bytes| self.pcie_request_ns(bytes) + self.pcie_read.value + self.pcie_answer_ns(bytes);
        let carries = matches!(primitive, Primitive::Write | Primitive::Send);
        let fetch = if carries && !inline { read(bytes) } else { 0.0 };
        let out = self.pcie_write.value
            + fetch
            + 2.0 * self.segments_ns(payload)
            + self.requester_ns(primitive)
            + self.pass_latency.value
            + self.link_ns(self.request_bytes(primitive, payload))
            + wire
            + self.responder_ns(primitive)
            + self.pass_latency.value;
        let entry =
            self.completion_entry.value + self.pcie_write.value + self.pcie_ns(self.cqe_size.value as u64);
        if primitive == Primitive::Send {
            let placed = self.pcie_receive_ns(bytes) - self.pcie_ns(self.cqe_size.value as u64);
            return out + entry + placed;
        }
        let memory = match primitive {
            Primitive::Read => read(bytes),
            Primitive::Atomic => self.atomic_unit.value + self.pcie_read.value,
            // The acknowledgement goes out when the bytes are placed, if that is later.
            Primitive::Write | Primitive::Send => {
                let placed = self.pcie_write.value + self.pcie_ns(bytes);
                self.ack_delay.value.max(placed) + 2.0 * self.acknowledgement.value
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

/// Share of `used` that a cache of `entries` misses when all are used evenly.
fn miss_share(entries: f64, used: usize) -> f64 {
    if used == 0 { 0.0 } else { (1.0 - entries / used as f64).max(0.0) }
}
