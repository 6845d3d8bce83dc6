//! A profile's numbers as integer picoseconds, scaled per node.

use crate::fabric::CpuWork;
use crate::profile::{CpuProfile, NicProfile, Primitive, headers};

/// Picoseconds of `ns` nanoseconds, `factor` times slower.
pub(super) fn ps(ns: f64, factor: f64) -> u64 {
    (ns * factor * 1e3).round() as u64
}

/// Time per byte in 1/1024 ps, for rates that are no whole number of picoseconds.
fn per_byte(gb_per_s: f64, factor: f64) -> u64 {
    (1e3 / gb_per_s * factor * 1024.0).round() as u64
}

/// What the NIC model needs, per node.
pub(super) struct NicCosts {
    pub requester: [u64; 4],
    pub responder: [u64; 4],
    /// Engine time a missed queue-pair context costs, by operation; and how long its fetch takes.
    pub context_stall: [u64; 4],
    pub context_fetch: u64,
    pub read_miss: u64,
    pub mtt_miss: u64,
    pub wqe_miss: u64,
    pub wqe_cache: u32,
    segment_bytes: u32,
    segment: u64,
    /// Processing units: so many times as long is one of them at work.
    units: u64,
    pub completion_entry: u64,
    pub acknowledgement: u64,
    pub ack_coalescing: u32,
    pub atomic_unit: u64,
    pub atomic: AtomicTimes,
    pub atomic_on_card: AtomicTimes,
    pub pass: u64,
    pub ack_delay: u64,
    pub pcie_write: u64,
    pub pcie_read: u64,
    pub cqe_transfer: u64,
    pub wire: u64,
    pub rnr_timer: u64,
    pub header: u64,
    pub mtu: u64,
    /// Longest that a message of one packet is on the link, and its data on PCIe: written to memory, and as an answer.
    pub packet: u64,
    pub pcie_packet: u64,
    pub answer_packet: u64,
    pub blueflame_max: u64,
    pub wqe_connected: u64,
    pub wqe_datagram: u64,
    pub doorbell_lock: u64,
    pub recv_wqe: u64,
    pub recv_header: u64,
    pub recv_inline: u64,
    link_byte: u64,
    pcie_byte: u64,
    read_request: u64,
    tlp_payload: u64,
    tlp_overhead: u64,
    answer_payload: u64,
    answer_overhead: u64,
}

/// From an ATOMIC's start to the read of its word, and on to its write; and how long before the write of one the next on the
/// bucket may start, so that they come at the distance of the hold.
#[derive(Clone, Copy)]
pub(super) struct AtomicTimes {
    pub read: u64,
    pub write: u64,
    pub overlap: u64,
}

impl NicCosts {
    pub fn new(nic: &NicProfile, factor: f64) -> NicCosts {
        let all = [Primitive::Read, Primitive::Write, Primitive::Atomic, Primitive::Send];
        let pcie_read = ps(nic.pcie_read.value, factor);
        let hold = ps(nic.atomic_hold.value, factor);
        let write = ps(nic.atomic_write_ns(), factor);
        let atomic =
            AtomicTimes { read: pcie_read, write, overlap: (pcie_read + write).saturating_sub(hold) };
        // No DMA read; where in the hold the word is read nobody has measured.
        let on_card = ps(nic.atomic_hold_on_card.value, factor);
        let atomic_on_card = AtomicTimes { read: on_card / 2, write: on_card - on_card / 2, overlap: 0 };
        let stall = |primitive| {
            let fetches = match primitive {
                Primitive::Read | Primitive::Atomic => nic.qp_fetches.value,
                Primitive::Write | Primitive::Send => nic.qp_fetches_write.value,
            };
            ps(nic.qp_fetch.value / fetches, factor)
        };
        let whole = |q: &crate::profile::Quantity| q.value.min(f64::from(u32::MAX)) as u32;
        let mut costs = NicCosts {
            requester: all.map(|p| ps(nic.requester_ns(p), factor)),
            responder: all.map(|p| ps(nic.responder_ns(p), factor)),
            context_stall: all.map(stall),
            context_fetch: ps(nic.qp_fetch.value, factor),
            read_miss: ps(nic.read_miss.value, factor),
            mtt_miss: ps(nic.mtt_miss.value, factor),
            wqe_miss: ps(nic.wqe_miss.value, factor),
            wqe_cache: whole(&nic.wqe_cache_entries),
            segment_bytes: nic.segment_bytes.value as u32,
            segment: ps(nic.segment.value, factor),
            units: nic.processing_units.value as u64,
            completion_entry: ps(nic.completion_entry.value, factor),
            acknowledgement: ps(nic.acknowledgement.value, factor),
            ack_coalescing: whole(&nic.ack_coalescing),
            atomic_unit: ps(nic.atomic_unit.value, factor),
            atomic,
            atomic_on_card,
            pass: ps(nic.pass_latency.value, factor),
            ack_delay: ps(nic.ack_delay.value, factor),
            pcie_write: ps(nic.pcie_write.value, factor),
            pcie_read,
            cqe_transfer: 0,
            wire: ps(nic.switch_latency.value + nic.cable_latency.value, 1.0),
            rnr_timer: ps(nic.rnr_timer.value, 1.0),
            header: nic.packet_header.value as u64,
            mtu: nic.mtu.value as u64,
            packet: 0,
            pcie_packet: 0,
            answer_packet: 0,
            blueflame_max: nic.blueflame_max.value as u64,
            wqe_connected: nic.wqe_connected.value as u64,
            wqe_datagram: nic.wqe_datagram.value as u64,
            doorbell_lock: ps(nic.doorbell_lock.value, factor),
            recv_wqe: 0,
            recv_header: nic.recv_header.value as u64,
            recv_inline: nic.recv_inline.value as u64,
            link_byte: per_byte(nic.link_rate.value, factor),
            pcie_byte: per_byte(nic.pcie_rate.value, factor),
            read_request: ps(nic.pcie_read_request.value, factor),
            tlp_payload: nic.pcie_tlp_payload.value as u64,
            tlp_overhead: nic.pcie_tlp_overhead.value as u64,
            answer_payload: nic.pcie_completion_payload.value as u64,
            answer_overhead: nic.pcie_completion_overhead.value as u64,
        };
        costs.recv_wqe = (nic.recv_wqe.value as u64 * costs.pcie_byte) >> 10;
        costs.packet = costs.link(costs.mtu, headers::ATOMIC);
        (costs.pcie_packet, costs.answer_packet) = (costs.pcie(costs.mtu), costs.pcie_answer(costs.mtu));
        costs.cqe_transfer = costs.pcie(nic.cqe_size.value as u64);
        costs
    }

    /// Engine time of each end for what a payload has beyond its first segment.
    #[inline]
    pub fn segments(&self, len: u32) -> u64 {
        if len <= self.segment_bytes {
            return 0;
        }
        u64::from(len.div_ceil(self.segment_bytes) - 1) * self.segment
    }

    /// What each stage takes for all packets of a message of `len` bytes but the first. Stages work on packets of one message side by
    /// side: one begins as much earlier than when the message is there whole as it has come in before, and no more than this.
    /// Nothing for one packet, which goes on as a whole.
    #[inline(always)]
    pub fn rest(&self, len: u32) -> Rest {
        if u64::from(len) <= self.mtu { Rest::default() } else { self.rest_of_packets(len) }
    }

    #[cold]
    fn rest_of_packets(&self, len: u32) -> Rest {
        let (all, first) = (u64::from(len), self.mtu);
        let segments = self.segments(len) - self.segments(first as u32);
        Rest {
            fetch: self.pcie_answer(all) - self.pcie_answer(first),
            segments,
            unit: segments * self.units,
            link: self.link(all, 0) - self.link(first, 0),
            land: self.pcie(all) - self.pcie(first),
        }
    }

    /// Link time of a message of `data` bytes and `extended` bytes of extended headers.
    #[inline]
    pub fn link(&self, data: u64, extended: u64) -> u64 {
        let packets = if data <= self.mtu { 1 } else { data.div_ceil(self.mtu) };
        ((data + extended + packets * self.header) * self.link_byte) >> 10
    }

    /// PCIe time of a DMA write of `bytes`, towards memory.
    #[inline]
    pub fn pcie(&self, bytes: u64) -> u64 {
        self.packets(bytes, self.tlp_payload, self.tlp_overhead)
    }

    /// PCIe time of the answer to a DMA read of `bytes`, towards the card.
    #[inline]
    pub fn pcie_answer(&self, bytes: u64) -> u64 {
        self.packets(bytes, self.answer_payload, self.answer_overhead)
    }

    /// PCIe time of a DMA read's requests, towards memory.
    #[inline]
    pub fn read_requests(&self, requests: u64) -> u64 {
        self.read_request + ((requests * self.tlp_overhead * self.pcie_byte) >> 10)
    }

    #[inline]
    fn packets(&self, bytes: u64, payload: u64, overhead: u64) -> u64 {
        if bytes == 0 {
            return 0;
        }
        let packets = if bytes <= payload { 1 } else { bytes.div_ceil(payload) };
        ((bytes + packets * overhead) * self.pcie_byte) >> 10
    }
}

/// See [`NicCosts::rest`].
#[derive(Clone, Copy, Default)]
pub(super) struct Rest {
    /// What a DMA read fetches.
    pub fetch: u64,
    /// The engine, in either role; and its one unit, which is at it for longer.
    pub segments: u64,
    pub unit: u64,
    /// The link.
    pub link: u64,
    /// A DMA write.
    pub land: u64,
}

/// What a core's work costs, per node.
pub(super) struct CpuCosts {
    poll: u64,
    completion: u64,
    request: u64,
    doorbell: u64,
    inline_line: u64,
    resume: u64,
    rpc_decode: u64,
    rpc_dispatch: u64,
    rpc_encode: u64,
    copy_byte_1024: u64,
    probe: u64,
    attempt: u64,
    access: u64,
    /// From a received message to its notice.
    pub handover: u64,
    /// Each message, of the thread that receives for the machine.
    pub receiver: u64,
    factor: f64,
}

impl CpuCosts {
    pub fn new(cpu: &CpuProfile, factor: f64) -> CpuCosts {
        let of = |work| ps(cpu.cost_ns(work), factor);
        CpuCosts {
            poll: of(CpuWork::Poll),
            completion: of(CpuWork::Completion),
            request: of(CpuWork::Request),
            doorbell: of(CpuWork::Doorbell),
            inline_line: of(CpuWork::Inline(1)),
            resume: of(CpuWork::Resume),
            rpc_decode: of(CpuWork::RpcDecode),
            rpc_dispatch: of(CpuWork::RpcDispatch),
            rpc_encode: of(CpuWork::RpcEncode),
            copy_byte_1024: of(CpuWork::Copy(1024)),
            probe: of(CpuWork::Probe),
            attempt: of(CpuWork::Attempt),
            access: of(CpuWork::Access),
            handover: ps(cpu.handover.value, factor),
            receiver: ps(cpu.receiver.value, factor),
            factor,
        }
    }

    /// Picoseconds of `work`.
    #[inline]
    pub fn of(&self, work: CpuWork) -> u64 {
        match work {
            CpuWork::Poll => self.poll,
            CpuWork::Completion => self.completion,
            CpuWork::Request => self.request,
            CpuWork::Doorbell => self.doorbell,
            CpuWork::Inline(bytes) => self.inline_line * u64::from(bytes.div_ceil(64)),
            CpuWork::Resume => self.resume,
            CpuWork::RpcDecode => self.rpc_decode,
            CpuWork::RpcDispatch => self.rpc_dispatch,
            CpuWork::RpcEncode => self.rpc_encode,
            CpuWork::Copy(bytes) => (self.copy_byte_1024 * u64::from(bytes)) >> 10,
            CpuWork::Probe => self.probe,
            CpuWork::Attempt => self.attempt,
            CpuWork::Access => self.access,
            CpuWork::Think(span) => ps(span.0 as f64, self.factor),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::Profile;
    use crate::units::Nanos;

    #[test]
    fn picoseconds_agree_with_the_profile() {
        let profile = Profile::shipped("cx4-edr").unwrap();
        let costs = NicCosts::new(&profile.nic, 1.0);
        let near =
            |ps: u64, ns: f64| assert!((ps as f64 / 1e3 - ns).abs() < 0.02 * ns + 0.01, "{ps} ps, {ns} ns");
        for bytes in [1, 64, 128, 129, 4096, 10_000] {
            near(costs.pcie(bytes), profile.nic.pcie_ns(bytes));
            near(costs.pcie_answer(bytes), profile.nic.pcie_answer_ns(bytes));
            near(costs.read_requests(bytes.div_ceil(512)), profile.nic.pcie_request_ns(bytes));
            near(
                costs.link(bytes, 16),
                profile.nic.link_ns(profile.nic.request_bytes(Primitive::Write, bytes as u32)),
            );
        }
        near(costs.context_stall[0], profile.nic.qp_fetch.value / profile.nic.qp_fetches.value);
        for (hold, pcie_read) in [(445.0, 400.0), (390.0, 400.0), (0.0, 400.0), (445.0, 0.0)] {
            let mut nic = profile.nic.clone();
            (nic.atomic_hold.value, nic.pcie_read.value) = (hold, pcie_read);
            let atomic = NicCosts::new(&nic, 1.0).atomic;
            near(atomic.read + atomic.write - atomic.overlap, hold);
        }
        let cpu = CpuCosts::new(&profile.cpu, 2.0);
        for work in [CpuWork::Poll, CpuWork::Inline(65), CpuWork::Copy(4096), CpuWork::Think(Nanos(9))] {
            near(cpu.of(work), 2.0 * profile.cpu.cost_ns(work));
        }
    }
}
