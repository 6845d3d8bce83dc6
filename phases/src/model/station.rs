//! Where time is spent: the stations of the queueing network, and what a demand loads them with.
//!
//! Each node has one NIC (an engine for both roles, as the profile describes it, an atomic unit and its buckets, one direction of
//! the link and the direction of PCIe towards memory; by symmetry the other directions are loaded alike or less; a ceiling of messages and
//! a thread that receives for the whole machine where the profile has them) and a core per thread. A transaction loads its *own* core
//! and NIC and, spread evenly, those of the *others*.
//!
//! Two things are kept apart. *Work* is everything that occupies a station, and makes queues. The *path* is what the
//! transaction itself waits for: requests sent together are awaited as one, passive ones not at all.

use super::buckets::Buckets;
use super::input::Cluster;
use crate::demand::{Awaited, Demand, Flow, Left, Wave};
use primitives::profile::{CpuProfile, NicProfile, Primitive, Profile};
use serde::{Deserialize, Serialize};
use std::fmt;

/// A resource that requests queue for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Station {
    /// A worker thread's core.
    Core,
    /// The NIC's processing engine, both roles.
    Engine,
    /// The NIC's unit for atomics.
    AtomicUnit,
    /// One direction of the link.
    Link,
    /// PCIe towards memory.
    Pcie,
    /// The NIC's buckets of words and its queue pairs, one of each held by every ATOMIC.
    AtomicBuckets,
    /// The NIC's ceiling of messages, if it has one.
    Ceiling,
    /// The thread that receives for all of its machine's, if there is one.
    Receiver,
}

impl Station {
    /// All stations.
    pub const ALL: [Station; 8] = [
        Station::Core,
        Station::Engine,
        Station::AtomicUnit,
        Station::Link,
        Station::Pcie,
        Station::AtomicBuckets,
        Station::Ceiling,
        Station::Receiver,
    ];

    /// What people call it.
    pub fn name(self) -> &'static str {
        match self {
            Station::Core => "CPU cores",
            Station::Engine => "NIC engine",
            Station::AtomicUnit => "NIC atomic unit",
            Station::Link => "link",
            Station::Pcie => "PCIe",
            Station::AtomicBuckets => "NIC buckets of ATOMICs",
            Station::Ceiling => "NIC ceiling of messages",
            Station::Receiver => "receiving thread",
        }
    }
}

impl fmt::Display for Station {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Visits to a station and their service times.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Visits {
    /// How many.
    pub count: f64,
    /// Their service times added up, in nanoseconds.
    pub ns: f64,
    /// The squares of their service times added up.
    pub ns2: f64,
}

impl Visits {
    /// Adds `count` visits of `service` nanoseconds each.
    pub fn add(&mut self, count: f64, service: f64) {
        self.count += count;
        self.ns += count * service;
        self.ns2 += count * service * service;
    }

    /// Adds `count` visits of `service` nanoseconds each to an engine of several units, see [`Units`].
    fn add_to_units(&mut self, count: f64, service: f64, units: Units) {
        self.count += count;
        self.ns += count * service * units.crowding;
        self.ns2 += count * service * service * units.crowding * units.all;
    }

    /// `count` times, requests come together to an engine, the last of which waits `behind` nanoseconds for those before it. They have
    /// been added as visits; that whoever comes meanwhile waits for all of them, and not for one, is what this adds (queues with
    /// arrivals in batches: waits go with the square of a batch's work).
    fn add_clump(&mut self, count: f64, behind: f64, last: f64, units: Units) {
        self.ns2 += count * behind * (behind + last * units.all) * units.crowding / units.all;
    }

    /// Has `turns` of visits that are counted already last so much longer that it makes `ns` in all; `before` is what each took.
    fn prolong(&mut self, turns: f64, ns: f64, before: f64) {
        if turns > 0.0 {
            self.ns += ns;
            self.ns2 += ns * (ns / turns + 2.0 * before);
        }
    }

    /// The squares of what service times have beyond `most`, added up: twice the wait that somebody is spared who would come to these visits at
    /// random moments, but is away for `most` at the longest between two of his own. All visits are taken to be as long as such a one meets them.
    pub(super) fn beyond(&self, most: f64) -> f64 {
        if self.ns <= 0.0 {
            return 0.0;
        }
        let met = self.ns2 / self.ns;
        self.ns / met * (met - most).max(0.0).powi(2)
    }

    fn add_scaled(&mut self, other: &Visits, factor: f64) {
        self.count += other.count * factor;
        self.ns += other.ns * factor;
        self.ns2 += other.ns2 * factor;
    }
}

/// A card's processing units, as queue pairs use them. A queue pair stays on one unit, which hands a request on after its service
/// time and takes the next after as many times that as there are units. Of a station that stands for all, that is a service
/// spread out: work is what it is, times `crowding` where there are fewer queue pairs than units, and waits are
/// longer by the number of units.
#[derive(Clone, Copy, Debug)]
struct Units {
    all: f64,
    crowding: f64,
}

impl Units {
    fn of(nic: &NicProfile, queue_pairs: f64) -> Units {
        let all = nic.processing_units.value;
        Units { all, crowding: all / queue_pairs.clamp(1.0, all) }
    }

    /// Of connected queue pairs, `to_others` of which lead to other nodes and `to_own` to the card's own node, which do the share
    /// `looped` of the card's work. Those two are on different units as long as there are enough, and those that have
    /// most to do hold the others up.
    fn of_connected(nic: &NicProfile, to_others: f64, to_own: f64, looped: f64) -> Units {
        let (others, own) = (Units::of(nic, to_others), Units::of(nic, to_own));
        let crowding = ((1.0 - looped) * others.crowding).max(looped * own.crowding).max(1.0);
        Units { all: others.all, crowding }
    }
}

/// What loads one kind of station, and how often the transaction itself waits there.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Use {
    /// Work at the coordinator's own instance.
    pub own: Visits,
    /// Work at the other instances, all together.
    pub other: Visits,
    /// Service on the path that [`Load::delay_ns`] does not hold, in nanoseconds.
    pub path_ns: f64,
    /// Waits for the own instance on the path.
    pub path_own: f64,
    /// Waits for other instances on the path.
    pub path_other: f64,
    /// Requests that these waits are for, added up: those that are awaited together wait at different instances at once.
    pub path_wide: f64,
}

impl Use {
    /// Requests awaited together at other instances, on average.
    pub fn parallel(&self) -> f64 {
        if self.path_other > 0.0 { self.path_wide / self.path_other } else { 1.0 }
    }
}

/// What one phase of one transaction does to the network of queues.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Load {
    /// Time on the path that is not spent queueing or on a core: unloaded latencies.
    pub delay_ns: f64,
    /// Doorbells of replies at other nodes' cores, which replies of one core may share, in nanoseconds.
    pub reply_doorbells_ns: f64,
    /// What replies on the path would wait if each shared a doorbell, in nanoseconds: the NIC then has to fetch them.
    pub reply_fetches_ns: f64,
    /// Of the visits to cores, the long ones: at the own core, and at others.
    pub long: [Visits; 2],
    /// Per station, in the order of [`Station::ALL`].
    pub uses: [Use; Station::ALL.len()],
}

impl std::ops::Index<Station> for Load {
    type Output = Use;
    fn index(&self, station: Station) -> &Use {
        &self.uses[station as usize]
    }
}

impl std::ops::IndexMut<Station> for Load {
    fn index_mut(&mut self, station: Station) -> &mut Use {
        &mut self.uses[station as usize]
    }
}

impl Load {
    /// Adds `factor` times another load.
    pub fn add_scaled(&mut self, other: &Load, factor: f64) {
        self.delay_ns += other.delay_ns * factor;
        self.reply_doorbells_ns += other.reply_doorbells_ns * factor;
        self.reply_fetches_ns += other.reply_fetches_ns * factor;
        for (mine, its) in self.long.iter_mut().zip(&other.long) {
            mine.add_scaled(its, factor);
        }
        for (mine, its) in self.uses.iter_mut().zip(&other.uses) {
            mine.own.add_scaled(&its.own, factor);
            mine.other.add_scaled(&its.other, factor);
            mine.path_ns += its.path_ns * factor;
            mine.path_own += its.path_own * factor;
            mine.path_other += its.path_other * factor;
            mine.path_wide += its.path_wide * factor;
        }
    }

    /// Prices `demand` with `profile`.
    ///
    /// The path has the core's work with all completions of a wave. Those that come before the last are in truth handled while that is
    /// under way; leaving them out made forecasts no better, since it is the NIC's reading of requests (`fetch_ns`) that sets plans
    /// with shared doorbells back.
    ///
    /// The visits of the own core come from the resumes; a phase without any (passive) adds its work to the
    /// resume that posted it.
    ///
    /// `buckets` is what each ATOMIC takes of the card's.
    pub(super) fn of(demand: &Demand, profile: &Profile, cluster: &Cluster, buckets: Buckets) -> Load {
        let nic = &profile.nic;
        let entry = nic.completion_entry.value;
        let entry_pcie = nic.pcie_ns(nic.cqe_size.value as u64);
        let missed = |primitive| match primitive {
            // Datagram queue pairs are few.
            Primitive::Send => 0.0,
            _ => nic.qp_miss_ns(primitive, cluster.queue_pairs()),
        };
        let mut load = Load::default();
        // Each card has the queue pairs of its threads: connected ones to every node, its own too where requests go there, and a
        // datagram one of each.
        let threads = (f64::from(cluster.threads) / nic.cards.value).max(1.0);
        let others = f64::from(cluster.nodes) - 1.0;
        let pairs = threads * f64::from(cluster.lanes);
        // Of one, at both ends.
        let engine_ns = |flow: &Flow| {
            let ends = nic.requester_ns(flow.primitive) + nic.responder_ns(flow.primitive);
            ends + 2.0 * nic.segments_ns(flow.bytes)
        };
        let all_ns = |flow: &Flow| flow.count * engine_ns(flow);
        let looped: f64 = demand.looped.iter().map(all_ns).sum();
        let connected_flows = demand.posted.iter().filter(|flow| flow.primitive != Primitive::Send);
        let away: f64 = connected_flows.map(all_ns).sum();
        let looped = if looped > 0.0 { looped / (looped + away) } else { 0.0 };
        let connected = Units::of_connected(nic, pairs * others, pairs, looped);
        let datagram = Units::of(nic, threads);
        let units = |primitive| if primitive == Primitive::Send { datagram } else { connected };

        for flow in &demand.posted {
            let (missed, units) = (missed(flow.primitive), units(flow.primitive));
            let more = missed + nic.segments_ns(flow.bytes);
            let requested = nic.requester_ns(flow.primitive) + more;
            load[Station::Engine].own.add_to_units(flow.count, requested, units);
            let receives = if flow.primitive == Primitive::Send { entry } else { 0.0 };
            let served = nic.responder_ns(flow.primitive) + more + receives;
            load[Station::Engine].other.add_to_units(flow.count, served, units);
            load[Station::Ceiling].own.add(flow.count, nic.message_gap.value);
            if flow.primitive == Primitive::Send {
                load[Station::Receiver].other.add(flow.count, profile.cpu.receiver.value);
            }
            load[Station::Link]
                .own
                .add(flow.count, nic.link_ns(nic.request_bytes(flow.primitive, flow.bytes)));
            let response = nic.response_bytes(flow.primitive, flow.bytes);
            if response > 0 {
                load[Station::Link].other.add(flow.count, nic.link_ns(response));
            }
            load.memory(flow, nic, entry_pcie, buckets, false);
        }
        for flow in &demand.looped {
            let engine = engine_ns(flow) + 2.0 * missed(flow.primitive);
            load[Station::Engine].own.add_to_units(flow.count, engine, connected);
            load[Station::Ceiling].own.add(flow.count, nic.message_gap.value);
            load.memory(flow, nic, entry_pcie, buckets, true);
        }
        for flow in &demand.replies {
            let segments = nic.segments_ns(flow.bytes);
            let sent = nic.requester_ns(flow.primitive) + segments;
            load[Station::Engine].other.add_to_units(flow.count, sent, datagram);
            let received = nic.responder_ns(flow.primitive) + segments + entry;
            load[Station::Engine].own.add_to_units(flow.count, received, datagram);
            load[Station::Ceiling].other.add(flow.count, nic.message_gap.value);
            load[Station::Receiver].own.add(flow.count, profile.cpu.receiver.value);
            load[Station::Link]
                .other
                .add(flow.count, nic.link_ns(nic.request_bytes(flow.primitive, flow.bytes)));
            load[Station::Pcie].own.add(flow.count, nic.pcie_ns(u64::from(flow.bytes)) + entry_pcie);
            if !flow.inline {
                load[Station::Pcie].other.add(flow.count, nic.pcie_request_ns(u64::from(flow.bytes)));
            }
        }
        // The requests of a chain are fetched together.
        for wave in &demand.waves {
            let (queues, chained) = match wave.until {
                Awaited::Completion { chained, .. } => (wave.nodes, chained),
                Awaited::Reply { chained, .. } => (1.0, chained),
            };
            load[Station::Pcie].own.add(wave.times * queues * chained, nic.pcie_request_ns(WQE));
        }
        for left in &demand.left {
            load[Station::Pcie].own.add(left.queues * left.chained, nic.pcie_request_ns(WQE));
        }
        load[Station::Engine].own.add_to_units(demand.signaled, entry, connected);
        load[Station::Pcie].own.add(demand.signaled, entry_pcie);
        // WRITEs that somebody waits for are acknowledged at once, one on each queue pair, and others many at a time. Other verbs are
        // by what they return.
        let writes: f64 = demand
            .posted
            .iter()
            .filter(|flow| flow.primitive == Primitive::Write)
            .map(|flow| flow.count)
            .sum();
        let awaited: f64 =
            demand.waves.iter().filter(|wave| awaits_write(wave)).map(|wave| wave.times * wave.nodes).sum();
        let acknowledged = awaited.min(writes) + (writes - awaited).max(0.0) / nic.ack_coalescing.value;
        let engine = &mut load[Station::Engine];
        for side in [&mut engine.own, &mut engine.other] {
            side.add_to_units(acknowledged, nic.acknowledgement.value, connected);
        }

        let own_ns = demand.requester.cost_ns(&profile.cpu);
        let core = &mut load[Station::Core];
        // All alike; what is done without a resume is done in one that somebody else has asked for.
        let visits = demand.requester.resumes.max(1.0);
        let [theirs, mine] = demand.at_length.map(|long| (long.turns, long.work.cost_ns(&profile.cpu)));
        let usual = (own_ns - mine.1).max(0.0);
        core.own = Visits { count: demand.requester.resumes, ns: usual, ns2: usual * usual / visits };
        core.own.prolong(mine.0, mine.1, usual / visits);
        core.path_ns += own_ns;
        core.path_own += demand.requester.resumes;
        let serve_ns =
            if demand.served > 0.0 { demand.server.cost_ns(&profile.cpu) / demand.served } else { 0.0 };
        core.other.add(demand.served, serve_ns);
        core.other.prolong(theirs.0, theirs.1, serve_ns);
        for (long, (turns, ns), before) in [(0, mine, usual / visits), (1, theirs, serve_ns)] {
            if turns > 0.0 {
                load.long[long].add(turns, before + ns / turns);
            }
        }
        load.reply_doorbells_ns = demand.server.doorbells * profile.cpu.doorbell.value;

        load.path(demand, nic, &profile.cpu, serve_ns, others.max(1.0), connected);
        // The coordinator's next request may go to an owner that has yet to serve what nobody waits for.
        load[Station::Core].path_ns += demand.passed * serve_ns / (f64::from(cluster.nodes) - 1.0).max(1.0);
        load
    }

    /// What a request moves towards memory, and its share of the atomic unit and of the buckets.
    fn memory(&mut self, flow: &Flow, nic: &NicProfile, entry_pcie: f64, buckets: Buckets, looped: bool) {
        let data = nic.pcie_ns(u64::from(flow.bytes));
        let at_requester = looped || matches!(flow.primitive, Primitive::Read | Primitive::Atomic);
        let arrives = if flow.primitive == Primitive::Send { entry_pcie } else { 0.0 };
        let pcie = &mut self[Station::Pcie];
        (if at_requester { &mut pcie.own } else { &mut pcie.other }).add(flow.count, data + arrives);
        if matches!(flow.primitive, Primitive::Write | Primitive::Send) && !flow.inline {
            pcie.own.add(flow.count, nic.pcie_request_ns(u64::from(flow.bytes)));
        }
        if matches!(flow.primitive, Primitive::Read | Primitive::Atomic) {
            let asked = nic.pcie_request_ns(u64::from(flow.bytes));
            (if looped { &mut pcie.own } else { &mut pcie.other }).add(flow.count, asked);
        }
        if flow.primitive == Primitive::Atomic {
            let unit = &mut self[Station::AtomicUnit];
            let side = if looped { &mut unit.own } else { &mut unit.other };
            side.add(flow.count, nic.atomic_unit.value);
            let words = &mut self[Station::AtomicBuckets];
            let side = if looped { &mut words.own } else { &mut words.other };
            side.count += flow.count;
            side.ns += flow.count * buckets.ns;
            side.ns2 += flow.count * buckets.ns2;
        }
    }

    fn path(
        &mut self,
        demand: &Demand,
        nic: &NicProfile,
        cpu: &CpuProfile,
        serve_ns: f64,
        others: f64,
        connected: Units,
    ) {
        let handover = cpu.handover.value;
        for wave in &demand.waves {
            let n = wave.times;
            // Requests to one node are one after the other there; those to several wait at the same time.
            let (wide, deep) = (n * wave.nodes.clamp(1.0, others), wave.deepest.max(1.0));
            let mut elsewhere = |station: Station| {
                self[station].path_other += n;
                self[station].path_wide += wide;
            };
            elsewhere(Station::Link);
            match wave.until {
                Awaited::Completion { primitive, bytes, inline, after_atomic, behind_fetched, chained } => {
                    elsewhere(Station::Engine);
                    if after_atomic || primitive == Primitive::Atomic {
                        elsewhere(Station::AtomicUnit);
                        elsewhere(Station::AtomicBuckets);
                    }
                    let mut latency = nic.unloaded_latency_ns(primitive, bytes, inline);
                    if after_atomic {
                        // Executed in order at the responder: not before the ATOMIC, whose write is among what is ahead of it.
                        latency = latency.max(nic.unloaded_latency_ns(Primitive::Atomic, 8, false));
                    }
                    if behind_fetched > 0 {
                        // Launched in order: not before the NIC has what the WRITE before it writes.
                        let bytes = u64::from(behind_fetched);
                        latency +=
                            nic.pcie_request_ns(bytes) + nic.pcie_read.value + nic.pcie_answer_ns(bytes);
                    }
                    self.delay_ns += n * (latency + fetch_ns(nic, chained));
                    let [own, other] = behind(nic, cpu, wave, primitive, chained);
                    let spaced = spaced_ns(nic, cpu, wave, chained);
                    let gap = nic.message_gap.value;
                    self[Station::Ceiling].own.add_clump(
                        wide,
                        spaced,
                        gap,
                        Units { all: 1.0, crowding: 1.0 },
                    );
                    let engine = &mut self[Station::Engine];
                    engine.path_ns += n * own.max(other).max(spaced);
                    engine.path_own += n;
                    engine.own.add_clump(wide, own, nic.requester_ns(primitive), connected);
                    engine.other.add_clump(wide, other, nic.responder_ns(primitive), connected);
                }
                Awaited::Reply { request, reply, chained } => {
                    for station in [Station::Engine, Station::Pcie, Station::Core, Station::Receiver] {
                        elsewhere(station);
                    }
                    // The answer leaves by the other card.
                    elsewhere(Station::Ceiling);
                    self[Station::Receiver].path_ns += n * (1.0 + deep) * cpu.receiver.value;
                    self[Station::Receiver].path_own += n;
                    let inline = |bytes: u32| f64::from(bytes) <= nic.max_inline.value;
                    let latency = nic.unloaded_latency_ns(Primitive::Send, request, inline(request))
                        + nic.unloaded_latency_ns(Primitive::Send, reply, inline(reply));
                    // The owner's thread has to notice the request, and the own thread the reply.
                    self.delay_ns += n * (latency + 2.0 * handover + fetch_ns(nic, chained));
                    self[Station::Engine].path_own += 2.0 * n;
                    self[Station::Core].path_ns += n * deep * serve_ns;
                    self.reply_fetches_ns += n * fetch_ns(nic, 1.0);
                }
            }
            self[Station::Ceiling].path_own += n;
            self[Station::Link].path_own += n;
            self[Station::Pcie].path_own += n;
        }
    }
}

impl Load {
    /// The path of `demand` alone: what its waves wait for, nobody being in the way.
    pub(super) fn awaited(demand: &Demand, profile: &Profile) -> Load {
        let mut load = Load::default();
        let serve_ns = demand.server.cost_ns(&profile.cpu) / demand.served.max(1.0);
        let units = Units { all: 1.0, crowding: 1.0 };
        load.path(demand, &profile.nic, &profile.cpu, serve_ns, 1.0, units);
        load
    }
}

/// Whether it is the completion of a WRITE that ends a wave.
fn awaits_write(wave: &Wave) -> bool {
    matches!(wave.until, Awaited::Completion { primitive: Primitive::Write, .. })
}

/// What a request waits for those before it on its queue pair, all of which pass the same unit, at the own NIC and at the other: they
/// come as fast as the core posts them, or all at once where they share a doorbell.
fn behind(nic: &NicProfile, cpu: &CpuProfile, wave: &Wave, last: Primitive, chained: f64) -> [f64; 2] {
    let units = nic.processing_units.value;
    let all = [Primitive::Read, Primitive::Write, Primitive::Atomic, Primitive::Send];
    let before = (wave.queued.iter().sum::<f64>() - 1.0).max(0.0);
    let posting = (1.0 - chained) * before * (cpu.request.value + cpu.doorbell.value);
    let of = |ns: &dyn Fn(Primitive) -> f64| {
        let sum: f64 = all.iter().zip(wave.queued).map(|(&p, count)| count * ns(p)).sum();
        (units * (sum - ns(last)) - posting).max(0.0)
    };
    // There, ATOMICs come one behind the other on their queue pair, and so does what comes after them.
    let atomics = wave.queued[Primitive::Atomic as usize] - f64::from(u8::from(last == Primitive::Atomic));
    let written = (atomics.max(0.0) * nic.atomic_write_ns() - posting).max(0.0);
    [of(&|p| nic.requester_ns(p)), of(&|p| nic.responder_ns(p)).max(written)]
}

/// What a request waits for those before it on its queue pair at the ceiling of messages, which those of all units pass one by one.
fn spaced_ns(nic: &NicProfile, cpu: &CpuProfile, wave: &Wave, chained: f64) -> f64 {
    let before = (wave.queued.iter().sum::<f64>() - 1.0).max(0.0);
    let posting = (1.0 - chained) * (cpu.request.value + cpu.doorbell.value);
    before * (nic.message_gap.value - posting).max(0.0)
}

/// What the first requests of the next transaction, whose demand is `next`, wait for those that this one has `left` on their queue
/// pairs, in nanoseconds.
pub(super) fn behind_left(left: &[Left], next: &Demand, profile: &Profile, others: f64) -> f64 {
    let (nic, cpu) = (&profile.nic, &profile.cpu);
    // Between the two, the core looks up what the wait is for, and posts it.
    let posting = cpu.request.value + cpu.doorbell.value;
    let between = posting + next.requester.probes / next.round_trips().max(1.0) * cpu.probe.value;
    let payload = |bytes: u32| match u64::from(bytes) {
        0 => 0.0,
        bytes => nic.pcie_request_ns(bytes) + nic.pcie_read.value + nic.pcie_answer_ns(bytes),
    };
    let (mut first, mut delay) = (1.0, 0.0);
    for wave in &next.waves {
        let times = wave.times.min(first);
        first -= times;
        let (datagram, chained) = match wave.until {
            Awaited::Completion { chained, .. } => (false, chained),
            Awaited::Reply { chained, .. } => (true, chained),
        };
        for it in left.iter().filter(|it| it.datagram == datagram) {
            let share = if datagram { it.queues } else { it.queues / others };
            let met = 1.0 - (1.0 - share.min(1.0)).powf(if datagram { 1.0 } else { wave.nodes });
            // Requests that are fetched as well take as long themselves.
            let of = |ns: f64| {
                let ns = payload(it.fetched) + ns - between;
                chained * (ns - fetch_ns(nic, 1.0)).max(0.0) + (1.0 - chained) * ns.max(0.0)
            };
            let (together, apart) = (of(fetch_ns(nic, 1.0)), of(-it.after * posting));
            delay += times * met * (it.chained * together + (1.0 - it.chained) * apart);
        }
    }
    delay
}

/// Bytes of a request as the NIC fetches it.
const WQE: u64 = 64;

/// The DMA read that fetches a request which did not ride with its doorbell.
pub(super) fn fetch_ns(nic: &NicProfile, chained: f64) -> f64 {
    // One line stands for the chain's WQEs: what matters is the round trip.
    chained * (nic.pcie_request_ns(WQE) + nic.pcie_read.value + nic.pcie_answer_ns(WQE))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_wait_for_what_was_left_on_their_queue_pair() {
        let profile = Profile::shipped("cx4-edr").unwrap();
        let (nic, cpu) = (&profile.nic, &profile.cpu);
        let wave = |until| {
            let wave = Wave { times: 1.0, until, nodes: 1.0, deepest: 1.0, queued: [0.0; 4] };
            Demand { waves: vec![wave], ..Demand::default() }
        };
        let read = |chained| {
            wave(Awaited::Completion {
                primitive: Primitive::Read,
                bytes: 64,
                inline: false,
                after_atomic: false,
                behind_fetched: 0,
                chained,
            })
        };
        let call = wave(Awaited::Reply { request: 40, reply: 40, chained: 0.0 });
        let chain = Left { datagram: false, queues: 1.0, chained: 1.0, fetched: 0, after: 1.0 };
        let posting = cpu.request.value + cpu.doorbell.value;
        let close = |a: f64, b: f64| assert!((a - b).abs() < 1e-9, "{a} {b}");
        // One other node: it is the same queue pair. With two it is with a chance of one half.
        close(behind_left(&[chain], &read(0.0), &profile, 1.0), fetch_ns(nic, 1.0) - posting);
        close(behind_left(&[chain], &read(0.0), &profile, 2.0), 0.5 * (fetch_ns(nic, 1.0) - posting));
        // What has to be fetched itself is not held up, nor what goes by another queue pair.
        close(behind_left(&[chain], &read(1.0), &profile, 1.0), 0.0);
        close(behind_left(&[chain], &call, &profile, 1.0), 0.0);
        // One by one, requests ride with their doorbells; a long payload is fetched either way.
        let single = Left { chained: 0.0, ..chain };
        close(behind_left(&[single], &read(0.0), &profile, 1.0), 0.0);
        let bytes = 400;
        let payload = nic.pcie_request_ns(bytes) + nic.pcie_read.value + nic.pcie_answer_ns(bytes);
        let long = Left { fetched: bytes as u32, ..single };
        close(behind_left(&[long], &read(0.0), &profile, 1.0), payload - 2.0 * posting);
    }

    #[test]
    fn what_the_nic_fetches_it_asks_memory_for() {
        let profile = Profile::shipped("cx4-edr").unwrap();
        let nic = &profile.nic;
        let cluster = Cluster { nodes: 2, threads: 1, backups: 0, lanes: 1 };
        let own =
            |demand: &Demand| Load::of(demand, &profile, &cluster, Buckets::default())[Station::Pcie].own.ns;
        let write = |bytes, inline| Demand {
            posted: vec![Flow { primitive: Primitive::Write, count: 3.0, bytes, inline }],
            ..Demand::default()
        };
        assert_eq!(own(&write(32, true)), 0.0, "it rides along");
        let long = own(&write(320, false));
        assert!((long / (3.0 * nic.pcie_request_ns(320)) - 1.0).abs() < 1e-12, "{long}");
        // A chain on each of two queue pairs.
        let left = Left { datagram: false, queues: 2.0, chained: 1.0, fetched: 0, after: 1.0 };
        let chains = own(&Demand { left: vec![left], ..write(32, true) });
        assert!((chains / (2.0 * nic.pcie_request_ns(WQE)) - 1.0).abs() < 1e-12, "{chains}");
    }

    /// Two nodes of one thread each and cards of eight units, of which the queue pair to the other node has one and that to the own
    /// node another: an engine that stands for all is as busy as the one that has more to do.
    #[test]
    fn the_engines_work_is_that_of_its_busiest_unit() {
        let mut profile = Profile::shipped("cx5").unwrap();
        profile.nic.processing_units.value = 8.0;
        (profile.nic.segment_bytes.value, profile.nic.segment.value) = (256.0, 20.0);
        let nic = &profile.nic;
        let cluster = Cluster { nodes: 2, threads: 1, backups: 0, lanes: 1 };
        let flow = |count, primitive, bytes| Flow { primitive, count, bytes, inline: false };
        let engine = |posted, looped| {
            let demand = Demand { posted: vec![posted], looped: vec![looped], ..Demand::default() };
            let engine = Load::of(&demand, &profile, &cluster, Buckets::default())[Station::Engine];
            engine.own.ns + engine.other.ns
        };
        let ends = |primitive| nic.requester_ns(primitive) + nic.responder_ns(primitive);
        // Three READs of 600 B there, two segments beyond the first, and one CAS here.
        let read = 3.0 * (ends(Primitive::Read) + 2.0 * 2.0 * 20.0);
        let got = engine(flow(3.0, Primitive::Read, 600), flow(1.0, Primitive::Atomic, 8));
        assert!((got / (8.0 * read) - 1.0).abs() < 1e-9, "{got}");
        let cas = 5.0 * ends(Primitive::Atomic);
        let got = engine(flow(0.5, Primitive::Read, 8), flow(5.0, Primitive::Atomic, 8));
        assert!((got / (8.0 * cas) - 1.0).abs() < 1e-9, "{got}");
    }

    #[test]
    fn some_visits_that_last_longer_are_as_many_short_ones_and_the_long_ones() {
        let mut some = Visits::default();
        some.add(8.0, 100.0);
        some.prolong(0.25, 1000.0, 100.0);
        let mut apart = Visits::default();
        apart.add(7.75, 100.0);
        apart.add(0.25, 4100.0);
        assert_eq!((some.count, some.ns), (apart.count, apart.ns));
        assert!((some.ns2 / apart.ns2 - 1.0).abs() < 1e-12, "{} {}", some.ns2, apart.ns2);
        let before = some;
        some.prolong(0.0, 0.0, 100.0);
        assert_eq!(some, before, "nothing is divided by none");
    }

    /// Who comes every 200 ns comes during each visit of 900 ns, and waits for the rest of it once.
    #[test]
    fn who_comes_often_meets_a_long_visit_once() {
        let (long, away) = (900.0, 200.0);
        let mut visits = Visits::default();
        visits.add(3.0, long);
        // The next coming is as likely at any time of the 200 ns.
        let steps = 1_000_000;
        let waits =
            (0..steps).map(|n| (long - away * (f64::from(n) + 0.5) / f64::from(steps)).max(0.0)).sum::<f64>();
        let (each, at_random) = (waits / f64::from(steps), visits.ns2 / 3.0 / 2.0 / away);
        let got = at_random - visits.beyond(away) / 3.0 / 2.0 / away;
        assert!((got / each - 1.0).abs() < 1e-6 && each < 0.5 * at_random, "{got} {each} {at_random}");
        assert_eq!(visits.beyond(long), 0.0, "who is away for longer comes at random");
        assert_eq!(Visits::default().beyond(0.0), 0.0);
    }

    #[test]
    fn requests_that_come_together_make_others_wait_like_one_long_request() {
        for all in [1.0, 4.0] {
            let units = Units { all, crowding: 1.0 };
            let (k, ns) = (9.0, 370.0 / all);
            let mut clump = Visits::default();
            clump.add_to_units(k, ns, units);
            clump.add_clump(1.0, (k - 1.0) * ns * all, ns, units);
            let mut long = Visits::default();
            long.add_to_units(1.0, k * ns, units);
            assert_eq!((clump.count, clump.ns), (k, long.ns));
            assert!((clump.ns2 / long.ns2 - 1.0).abs() < 1e-12, "{} {}", clump.ns2, long.ns2);
            let before = clump;
            clump.add_clump(1.0, 0.0, ns, units);
            assert_eq!(clump, before, "nothing waits for one that comes alone");
        }
    }
}
