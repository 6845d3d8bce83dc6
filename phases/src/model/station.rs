//! Where time is spent: the stations of the queueing network, and what a demand loads them with.
//!
//! Each node has one NIC (an engine for both roles, as the profile describes it, an atomic unit, one direction of
//! the link and the direction of PCIe towards memory; by symmetry the other directions are loaded alike or less)
//! and a core per thread. A transaction loads its *own* core and NIC and, spread evenly, those of the *others*.
//!
//! Two things are kept apart. *Work* is everything that occupies a station, and makes queues. The *path* is what the
//! transaction itself waits for: requests sent together are awaited as one, passive ones not at all.

use super::input::Cluster;
use crate::demand::{Awaited, Demand, Flow};
use primitives::profile::{NicProfile, Primitive, Profile};
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
}

impl Station {
    /// All stations.
    pub const ALL: [Station; 5] =
        [Station::Core, Station::Engine, Station::AtomicUnit, Station::Link, Station::Pcie];

    /// What people call it.
    pub fn name(self) -> &'static str {
        match self {
            Station::Core => "CPU cores",
            Station::Engine => "NIC engine",
            Station::AtomicUnit => "NIC atomic unit",
            Station::Link => "link",
            Station::Pcie => "PCIe",
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

    fn add_scaled(&mut self, other: &Visits, factor: f64) {
        self.count += other.count * factor;
        self.ns += other.ns * factor;
        self.ns2 += other.ns2 * factor;
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
}

/// What one phase of one transaction does to the network of queues.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Load {
    /// Time on the path that is not spent queueing or on a core: unloaded latencies.
    pub delay_ns: f64,
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
        for (mine, its) in self.uses.iter_mut().zip(&other.uses) {
            mine.own.add_scaled(&its.own, factor);
            mine.other.add_scaled(&its.other, factor);
            mine.path_ns += its.path_ns * factor;
            mine.path_own += its.path_own * factor;
            mine.path_other += its.path_other * factor;
        }
    }

    /// Prices `demand` with `profile`.
    ///
    /// The visits of the own core come from the resumes; a phase without any (passive) adds its work to the
    /// resume that posted it.
    pub fn of(demand: &Demand, profile: &Profile, cluster: &Cluster) -> Load {
        let nic = &profile.nic;
        let entry = nic.completion_entry.value;
        let entry_pcie = nic.pcie_ns(nic.cqe_size.value as u64);
        let missed = |primitive| match primitive {
            // Datagram queue pairs are few.
            Primitive::Send => 0.0,
            _ => nic.qp_miss_ns(primitive, cluster.queue_pairs()),
        };
        let mut load = Load::default();

        for flow in &demand.posted {
            let missed = missed(flow.primitive);
            load[Station::Engine].own.add(flow.count, nic.requester_ns(flow.primitive) + missed);
            let receives = if flow.primitive == Primitive::Send { entry } else { 0.0 };
            load[Station::Engine].other.add(flow.count, nic.responder_ns(flow.primitive) + missed + receives);
            load[Station::Link]
                .own
                .add(flow.count, nic.link_ns(nic.request_bytes(flow.primitive, flow.bytes)));
            let response = nic.response_bytes(flow.primitive, flow.bytes);
            if response > 0 {
                load[Station::Link].other.add(flow.count, nic.link_ns(response));
            }
            load.memory(flow, nic, entry_pcie, false);
        }
        for flow in &demand.looped {
            let engine = nic.requester_ns(flow.primitive) + nic.responder_ns(flow.primitive);
            load[Station::Engine].own.add(flow.count, engine + 2.0 * missed(flow.primitive));
            load.memory(flow, nic, entry_pcie, true);
        }
        for flow in &demand.replies {
            load[Station::Engine].other.add(flow.count, nic.requester_ns(flow.primitive));
            load[Station::Engine].own.add(flow.count, nic.responder_ns(flow.primitive) + entry);
            load[Station::Link]
                .other
                .add(flow.count, nic.link_ns(nic.request_bytes(flow.primitive, flow.bytes)));
            load[Station::Pcie].own.add(flow.count, nic.pcie_ns(u64::from(flow.bytes)) + entry_pcie);
        }
        load[Station::Engine].own.add(demand.signaled, entry);
        load[Station::Pcie].own.add(demand.signaled, entry_pcie);

        let own_ns = demand.requester.cost_ns(&profile.cpu);
        let core = &mut load[Station::Core];
        core.own = Visits { count: demand.requester.resumes, ns: own_ns, ns2: 0.0 };
        core.path_ns += own_ns;
        core.path_own += demand.requester.resumes;
        let serve_ns =
            if demand.served > 0.0 { demand.server.cost_ns(&profile.cpu) / demand.served } else { 0.0 };
        core.other.add(demand.served, serve_ns);

        load.path(demand, nic, serve_ns, profile.cpu.handover.value);
        load
    }

    /// What a request moves towards memory, and its share of the atomic unit.
    fn memory(&mut self, flow: &Flow, nic: &NicProfile, entry_pcie: f64, looped: bool) {
        let data = nic.pcie_ns(u64::from(flow.bytes));
        let at_requester = looped || matches!(flow.primitive, Primitive::Read | Primitive::Atomic);
        let arrives = if flow.primitive == Primitive::Send { entry_pcie } else { 0.0 };
        let pcie = &mut self[Station::Pcie];
        (if at_requester { &mut pcie.own } else { &mut pcie.other }).add(flow.count, data + arrives);
        if matches!(flow.primitive, Primitive::Read | Primitive::Atomic) {
            let asked = nic.pcie_request_ns(u64::from(flow.bytes));
            (if looped { &mut pcie.own } else { &mut pcie.other }).add(flow.count, asked);
        }
        if flow.primitive == Primitive::Atomic {
            let unit = &mut self[Station::AtomicUnit];
            let side = if looped { &mut unit.own } else { &mut unit.other };
            side.add(flow.count, nic.atomic_unit.value);
        }
    }

    fn path(&mut self, demand: &Demand, nic: &NicProfile, serve_ns: f64, handover: f64) {
        let mut first = 0.0; // requester service that the unloaded latencies hold
        for wave in &demand.waves {
            let n = wave.times;
            self[Station::Link].path_own += n;
            self[Station::Link].path_other += n;
            match wave.until {
                Awaited::Completion { primitive, bytes, inline, after_atomic, chained } => {
                    let mut latency = nic.unloaded_latency_ns(primitive, bytes, inline);
                    if after_atomic {
                        // Executed in order at the responder: not before the ATOMIC.
                        latency = latency.max(nic.unloaded_latency_ns(Primitive::Atomic, 8, false));
                    }
                    self.delay_ns += n * (latency + fetch_ns(nic, chained));
                    first += n * nic.requester_ns(primitive);
                    self[Station::Engine].path_own += n;
                    self[Station::Engine].path_other += n;
                    self[Station::Pcie].path_own += n;
                    if after_atomic || primitive == Primitive::Atomic {
                        self[Station::AtomicUnit].path_other += n;
                    }
                }
                Awaited::Reply { request, reply, chained } => {
                    let inline = |bytes: u32| f64::from(bytes) <= nic.max_inline.value;
                    let latency = nic.unloaded_latency_ns(Primitive::Send, request, inline(request))
                        + nic.unloaded_latency_ns(Primitive::Send, reply, inline(reply));
                    // The owner's thread has to notice the request, and the own thread the reply.
                    self.delay_ns += n * (latency + 2.0 * handover + fetch_ns(nic, chained));
                    first += n * nic.requester_ns(Primitive::Send);
                    for station in [Station::Engine, Station::Pcie] {
                        self[station].path_own += n;
                        self[station].path_other += n;
                    }
                    self[Station::Engine].path_own += n;
                    self[Station::Core].path_other += n;
                    self[Station::Core].path_ns += n * serve_ns;
                }
            }
        }
        if first > 0.0 {
            // Requests of one wave leave one after the other.
            let posted: f64 =
                demand.posted.iter().map(|flow| flow.count * nic.requester_ns(flow.primitive)).sum();
            self[Station::Engine].path_ns += (posted - first).max(0.0);
        }
    }
}

/// The DMA read that fetches a request which did not ride with its doorbell.
fn fetch_ns(nic: &NicProfile, chained: bool) -> f64 {
    // One line stands for the chain's WQEs: what matters is the round trip.
    if chained { nic.pcie_request_ns(64) + nic.pcie_read.value + nic.pcie_answer_ns(64) } else { 0.0 }
}
