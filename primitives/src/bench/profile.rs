//! From a characterization of a real fabric to a profile.
//!
//! The fit is for fabrics where the posting core does the work, as loopback does: every nanosecond of a request
//! is CPU time of the core that posts it, so the NIC's stages cost nothing and the CPU's numbers come from
//! differences between points:
//!
//! | number | from |
//! |---|---|
//! | `doorbell` | READ, 16 in flight: one doorbell each against one for 16 |
//! | `completion` | WRITE: every request signaled against one in the longest period |
//! | `request` | READ, 16 in flight under one doorbell, less its share of doorbell and completion |
//! | `resume` | READ alone, less request, doorbell and completion |
//! | `copy_byte` | READ at the largest payload against the smallest |
//! | `rpc_*` | RPC, 16 in flight: CPU time of caller and server, less verbs; split evenly, which is assumed |
//! | `handover` | RPC alone, between idle threads: its median, less all of the above; half for each way |
//!
//! What cannot be measured this way (`probe`, `poll`) is marked assumed. What transactions compute between requests (`attempt`,
//! `access`) requests do not show: who can run transactions fits it afterwards.
//!
//! A software device does most of a request inside `post_send`, and the rest in interrupts of whatever core: all its numbers of
//! the CPU are marked assumed, since waiting is in them, the profile's `doubt` says so ([`UNCALIBRATED`]), and `doorbell calibrate
//! --from` goes on from there, within the bounds that the numbers are given. What READs, WRITEs or ATOMICs of it take alone beyond
//! the cheapest of them is given to the device's requester, since a core's work for a request knows no verbs. A card is none of
//! this: it has stages of its own and works beside the core. Its profile begins elsewhere, at that of another card
//! ([`Caps::card`]).

use super::{BenchVerb, Point};
use crate::fabric::Caps;
use crate::measure::Machine;
use crate::profile::{CpuProfile, Interface, NicProfile, Profile, Quantity, Source, Unit};

/// Why no profile could be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProfileFitError {
    /// A point that the fit needs was not measured.
    #[error("the profile needs the point `{0}`, which was not measured")]
    Missing(&'static str),
    /// Time is virtual: the fabric was made from a profile.
    #[error("{0} is simulated from a profile; there is nothing to measure")]
    Simulated(String),
    /// A card works beside the core: with stages that cost nothing it would not be described.
    #[error("{0} is a card; its profile begins at that of another one")]
    Card(String),
}

/// CPU nanoseconds of one operation: all CPUs that worked, over the rate.
fn cpu_ns(point: &Point, rate_per_s: f64, nodes: u16, cpus: usize) -> f64 {
    let workers = usize::from(nodes) * usize::from(point.threads);
    workers.min(cpus) as f64 * 1e9 / rate_per_s.max(1.0)
}

/// What a fit knows of a point in which some operations ended.
#[derive(Clone, Debug)]
pub struct Rated {
    /// The point.
    pub point: Point,
    /// Operations per second.
    pub rate_per_s: f64,
    /// Median latency in nanoseconds, where latencies were kept.
    pub median_ns: Option<f64>,
}

struct Measured<'m> {
    points: &'m [Rated],
    nodes: u16,
    cpus: usize,
}

impl Measured<'_> {
    /// Median latency at the first point of a question and verb, in nanoseconds.
    fn median(&self, question: &'static str, verb: BenchVerb) -> Result<f64, ProfileFitError> {
        let found = self.points.iter().find(|r| r.point.question == question && r.point.verb == verb);
        found.and_then(|rated| rated.median_ns).ok_or(ProfileFitError::Missing(question))
    }

    /// CPU time per operation at the first or last point of a question and verb.
    fn at(
        &self,
        question: &'static str,
        verb: BenchVerb,
        last: bool,
    ) -> Result<(f64, &Point), ProfileFitError> {
        let mut found = self.points.iter().filter(|r| r.point.question == question && r.point.verb == verb);
        let rated =
            if last { found.next_back() } else { found.next() }.ok_or(ProfileFitError::Missing(question))?;
        Ok((cpu_ns(&rated.point, rated.rate_per_s, self.nodes, self.cpus), &rated.point))
    }
}

/// Makes a profile from the points of a characterization in which operations ended.
///
/// # Errors
/// If time was virtual, or a point that the fit needs is missing.
pub fn fit(points: &[Rated], caps: &Caps, nodes: u16, machine: &Machine) -> Result<Profile, ProfileFitError> {
    if caps.virtual_time {
        return Err(ProfileFitError::Simulated(caps.fabric.clone()));
    }
    if caps.card {
        return Err(ProfileFitError::Card(caps.fabric.clone()));
    }
    let m = Measured { points, nodes, cpus: machine.cores };
    let (each, _) = m.at("doorbell", BenchVerb::Read, false)?;
    let (batched, batch) = m.at("doorbell", BenchVerb::Read, true)?;
    let in_batch = f64::from(batch.doorbell_batch.min(batch.outstanding)).max(2.0);
    let doorbell = ((each - batched) * in_batch / (in_batch - 1.0)).max(0.0);
    let (signaled, _) = m.at("signal", BenchVerb::Write, false)?;
    let (unsignaled, period) = m.at("signal", BenchVerb::Write, true)?;
    let share = 1.0 - 1.0 / f64::from(period.signal_period.max(2));
    let completion = ((signaled - unsignaled) / share).max(0.0);
    // A group of requests has one signaled request, the last.
    let (alone, _) = m.at("latency", BenchVerb::Read, false)?;
    let beyond = Beyond::of(&m, caps)?;
    let alone = alone - beyond.read;
    let request = (batched - beyond.read - (doorbell + completion) / in_batch).max(1.0);
    let resume = (alone - request - doorbell - completion).max(1.0);
    let (small, at_small) = m.at("payload", BenchVerb::Read, false)?;
    let (large, at_large) = m.at("payload", BenchVerb::Read, true)?;
    let bytes = f64::from(at_large.payload.saturating_sub(at_small.payload)).max(1.0);
    let copy_byte = ((large - small) / bytes).max(0.0);
    let (call, _) = m.at("doorbell", BenchVerb::Rpc, true)?;
    // A call is two SENDs and two receive completions; it is decoded twice, encoded twice, dispatched once.
    let rpc = ((call - 2.0 * (request + completion)) / 5.0).max(1.0);
    // Alone, a call waits twice for another thread to notice: the request there, the reply here. Its median counts, because
    // where threads share CPUs a few calls wait for the scheduler, thousands of times as long. The work comes from rates,
    // which hold what was lost to other programs; a READ's median against its rate says how much that is.
    let quiet = (m.median("latency", BenchVerb::Read)? / (alone + beyond.read)).clamp(0.1, 1.0);
    let work = quiet * (2.0 * (request + doorbell + completion) + 5.0 * rpc + resume);
    let handover = ((m.median("latency", BenchVerb::Rpc)? - work) / 2.0).max(0.0);

    let cpu_time = |value: f64, unit, how: &str| match waits_for_device(caps) {
        true => Quantity::fixed(value, unit, Source::Assumed, &format!("{WAITING}: {how}")),
        false => Quantity::measured(value, unit, how),
    };
    let ns = |value: f64, how: &str| cpu_time((value * 10.0).round() / 10.0, Unit::Ns, how);
    let assumed = |value, unit, why: &str| Quantity::fixed(value, unit, Source::Assumed, why);
    let cpu = CpuProfile {
        model: machine.cpu.clone(),
        poll: assumed(completion / 2.0, Unit::Ns, "half of a completion"),
        completion: ns(completion, "WRITE, all signaled against one in the longest period"),
        request: ns(
            request,
            "READ, 16 under one doorbell, less doorbell and completion; the posting core executes it",
        ),
        doorbell: ns(doorbell, "READ, 16 in flight, a doorbell each against one for all"),
        inline_line: assumed(0.0, Unit::Ns, "the payload is copied once, inlined or not"),
        resume: ns(resume, "READ alone, less request, doorbell and completion"),
        rpc_decode: ns(rpc, "RPC, 16 in flight, less verbs; a fifth (even split assumed)"),
        rpc_dispatch: ns(rpc, "as rpc_decode"),
        rpc_encode: ns(rpc, "as rpc_decode"),
        copy_byte: cpu_time(copy_byte, Unit::NsPerByte, "READ by payload"),
        probe: assumed(request / 2.0, Unit::Ns, "half of a request: the same few cache lines"),
        handover: ns(handover, "RPC alone, median, less its CPU work; half of it"),
        receiver: assumed(0.0, Unit::Ns, "each thread receives its own"),
        attempt: assumed(0.0, Unit::Ns, "no transactions were run"),
        access: assumed(0.0, Unit::Ns, "no transactions were run"),
    };
    let mut profile = Profile {
        name: caps.fabric.clone(),
        description: format!("{} as measured on {}", caps.fabric, machine.cpu),
        doubt: waits_for_device(caps).then(|| format!("{UNCALIBRATED}: {TAKEN_FOR_WORK}")),
        nic: no_nic(caps, &beyond),
        cpu,
    };
    if waits_for_device(caps) {
        free_of_device(&mut profile, alone + beyond.read);
    }
    Ok(profile)
}

/// Gives bounds to what `doorbell calibrate` should find out of a device: whatever the core or the device does for a
/// request, it is between a hundredth of a READ alone and all of it.
fn free_of_device(profile: &mut Profile, read_alone: f64) {
    let (cpu, nic) = (&mut profile.cpu, &mut profile.nic);
    for number in [
        &mut cpu.request,
        &mut cpu.doorbell,
        &mut cpu.completion,
        &mut cpu.resume,
        &mut cpu.rpc_decode,
        &mut nic.requester_read,
        &mut nic.requester_write,
        &mut nic.requester_atomic,
        &mut nic.requester_send,
    ] {
        let bounds = [read_alone / 100.0, read_alone].map(|ns| (ns * 10.0).round() / 10.0);
        number.value = number.value.clamp(bounds[0], bounds[1]);
        number.free = Some(bounds);
    }
}

/// Whether what looks like work of the posting core may be waiting for a device: then nothing of it is called measured.
pub fn waits_for_device(caps: &Caps) -> bool {
    caps.fabric.starts_with("verbs:")
}

/// Begins the references of numbers that hold an unknown share of waiting.
const WAITING: &str = "time of a request, waiting for the device included and taken for work of the core";

/// Begins what speaks against a profile of a device until `doorbell calibrate` has told the device's work from the core's.
pub const UNCALIBRATED: &str = "not calibrated yet";

/// What the fit supposes of a software device.
const TAKEN_FOR_WORK: &str = "all time of a request, waiting for the device included, is taken for work of the posting core, \
                              roughly as a software device does it";

/// What a verb takes alone beyond the cheapest one, in nanoseconds; nothing where no device is.
#[derive(Default)]
struct Beyond {
    read: f64,
    write: f64,
    atomic: f64,
}

impl Beyond {
    fn of(m: &Measured, caps: &Caps) -> Result<Beyond, ProfileFitError> {
        if !waits_for_device(caps) || !caps.one_sided {
            return Ok(Beyond::default());
        }
        let alone = |verb| m.at("latency", verb, false).map(|(ns, _)| ns);
        let (read, write, atomic) =
            (alone(BenchVerb::Read)?, alone(BenchVerb::Write)?, alone(BenchVerb::Cas)?);
        let least = read.min(write).min(atomic);
        Ok(Beyond { read: read - least, write: write - least, atomic: atomic - least })
    }
}

/// The NIC of a fabric that has none: limits as its capabilities say, stages that cost nothing, but for what a device's verbs
/// take beyond the cheapest of them.
fn no_nic(caps: &Caps, beyond: &Beyond) -> NicProfile {
    let why = "no NIC and no wire: the posting core executes requests";
    let verb = |value: f64| match value > 0.0 {
        true => Quantity::fixed(
            (value * 10.0).round() / 10.0,
            Unit::Ns,
            Source::Assumed,
            "alone, beyond the cheapest verb",
        ),
        false => Quantity::fixed(0.0, Unit::Ns, Source::Assumed, why),
    };
    let assumed = |value, unit| Quantity::fixed(value, unit, Source::Assumed, why);
    let free = || assumed(0.0, Unit::Ns);
    let stated = || assumed(0.0, Unit::Bytes);
    let mut nic = NicProfile {
        card: caps.fabric.clone(),
        interface: if caps.one_sided { Interface::Verbs } else { Interface::Messages },
        atomic_scope: caps.atomic_scope,
        cards: assumed(1.0, Unit::Count),
        processing_units: assumed(1.0, Unit::Count),
        requester_read: verb(beyond.read),
        requester_write: verb(beyond.write),
        requester_atomic: verb(beyond.atomic),
        requester_send: free(),
        responder_read: free(),
        responder_write: free(),
        responder_atomic: free(),
        responder_send: free(),
        segment_bytes: assumed(4096.0, Unit::Bytes),
        segment: free(),
        completion_entry: free(),
        acknowledgement: free(),
        ack_coalescing: assumed(1.0, Unit::Count),
        message_gap: free(),
        atomic_unit: free(),
        atomic_hold: free(),
        atomic_hold_on_card: free(),
        atomic_buckets: assumed(1.0, Unit::Count),
        on_card_memory: assumed(0.0, Unit::Bytes),
        pass_latency: free(),
        ack_delay: free(),
        pcie_write: free(),
        pcie_read: free(),
        pcie_rate: assumed(1000.0, Unit::GBps),
        pcie_tlp_overhead: assumed(0.0, Unit::Bytes),
        pcie_read_request: free(),
        pcie_tags: assumed(1e6, Unit::Count),
        pcie_tlp_payload: assumed(4096.0, Unit::Bytes),
        pcie_completion_overhead: assumed(0.0, Unit::Bytes),
        pcie_completion_payload: assumed(4096.0, Unit::Bytes),
        link_rate: assumed(1000.0, Unit::GBps),
        switch_latency: free(),
        cable_latency: free(),
        packet_header: assumed(0.0, Unit::Bytes),
        mtu: stated(),
        ud_mtu: stated(),
        doorbell_private: assumed(0.0, Unit::Count),
        doorbell_shared: assumed(1.0, Unit::Count),
        doorbell_lock: free(),
        blueflame_max: assumed(0.0, Unit::Bytes),
        wqe_connected: assumed(1.0, Unit::Bytes),
        wqe_datagram: assumed(1.0, Unit::Bytes),
        wqe_cache_entries: assumed(1e6, Unit::Count),
        wqe_miss: free(),
        recv_wqe: assumed(0.0, Unit::Bytes),
        recv_header: assumed(0.0, Unit::Bytes),
        recv_inline: assumed(0.0, Unit::Bytes),
        cqe_size: assumed(1.0, Unit::Bytes),
        max_inline: stated(),
        max_send_depth: stated(),
        max_recv_depth: stated(),
        max_rd_atomic: stated(),
        qp_cache_entries: assumed(1e6, Unit::Count),
        qp_fetch: free(),
        qp_fetches: assumed(1.0, Unit::Count),
        qp_fetches_write: assumed(1.0, Unit::Count),
        read_cache_entries: assumed(1e6, Unit::Count),
        read_miss: free(),
        mtt_entries: assumed(1e6, Unit::Count),
        mtt_page: assumed(4096.0, Unit::Bytes),
        mtt_miss: free(),
        rnr_timer: assumed(10_000.0, Unit::Ns),
    };
    state_limits(&mut nic, caps);
    nic
}

/// Puts what a fabric says of itself in place of a NIC's limits.
pub fn state_limits(nic: &mut NicProfile, caps: &Caps) {
    let limit = |value: u32, unit| Quantity::measured(f64::from(value), unit, "capability of the fabric");
    nic.atomic_scope = caps.atomic_scope;
    nic.mtu = limit(caps.ud_mtu, Unit::Bytes);
    nic.ud_mtu = limit(caps.ud_mtu, Unit::Bytes);
    nic.max_inline = limit(caps.max_inline, Unit::Bytes);
    nic.max_send_depth = limit(caps.max_send_depth, Unit::Count);
    nic.max_recv_depth = limit(caps.max_recv_depth, Unit::Count);
    nic.max_rd_atomic = limit(caps.max_rd_atomic, Unit::Count);
}
