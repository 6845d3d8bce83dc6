//! What a growing cluster costs the simulator: time per event and memory per node, from 2 to 128 nodes, and with each
//! optional stage of the card switched on.
//!
//! `cargo bench -p doorbell-primitives --bench cluster`. Every node has 4 cores that keep 16 READs of 8 B in flight
//! each, over a full mesh of queue pairs. CPU time is the thread's own, so that a busy machine does not show.

use primitives::exec::{CoreLoop, Step};
use primitives::fabric::sim::{SimConfig, SimNic, SimWorld};
use primitives::fabric::{CpuWork, Nic};
use primitives::mem::{Access, Region};
use primitives::profile::Profile;
use primitives::units::Nanos;
use primitives::verbs::{Flags, NodeId, Qp, QpConfig, Rkey, Sge, Verb, WorkRequest};
use std::time::Duration;

const CORES: usize = 4;
const OUTSTANDING: u64 = 16;

/// A core that answers each completed READ with the next.
struct Reader {
    nic: SimNic,
    peers: Vec<(Qp, Rkey)>,
    local: Sge,
    turn: u64,
}

impl CoreLoop for Reader {
    fn step(&mut self, _budget: usize) -> Step {
        let mut wanted = if self.turn < OUTSTANDING { OUTSTANDING } else { 0 };
        self.nic.charge(CpuWork::Poll);
        wanted += self.nic.poll(1, |_| {}) as u64;
        for _ in 0..wanted {
            self.turn += 1;
            let (qp, rkey) = self.peers[self.turn as usize % self.peers.len()];
            let offset = self.turn.wrapping_mul(0x9e37_79b9_7f4a_7c15) % 512 * 8;
            let flags = Flags { signaled: true, inline: false };
            self.nic.charge(CpuWork::Completion);
            self.nic.charge(CpuWork::Request);
            self.nic.charge(CpuWork::Doorbell);
            let request = WorkRequest { id: 0, verb: Verb::Read { rkey, offset }, local: self.local, flags };
            self.nic.post(qp, &[request]).expect("fits the queue");
        }
        Step { worked: wanted as usize, pending: false, finished: false }
    }
}

fn cluster(profile: &Profile, nodes: usize) -> (SimWorld, Vec<Reader>) {
    let world = SimWorld::new(&SimConfig::new(profile.clone(), nodes, CORES, 1)).expect("a sensible world");
    let nics: Vec<SimNic> =
        (0..nodes * CORES).map(|i| world.context(NodeId((i / CORES) as u16), i % CORES)).collect();
    let keys: Vec<Rkey> = (0..nodes)
        .map(|n| nics[n * CORES].register(&Region::new(4096), Access::ALL).expect("registers").rkey)
        .collect();
    let mut cores: Vec<Reader> = nics
        .iter()
        .map(|nic| {
            let lkey = nic.register(&Region::new(64), Access::LOCAL).expect("registers").lkey;
            Reader { nic: nic.clone(), peers: Vec::new(), local: Sge { lkey, offset: 0, len: 8 }, turn: 0 }
        })
        .collect();
    for i in 0..nodes {
        for j in i + 1..nodes {
            for core in 0..CORES {
                let (a, b) = (&nics[i * CORES + core], &nics[j * CORES + core]);
                let (qa, qb) = (a.create_qp(&QpConfig::rc()), b.create_qp(&QpConfig::rc()));
                let (qa, qb) = (qa.expect("fits"), qb.expect("fits"));
                a.connect(qa, Some(b.address(qb))).expect("connects");
                b.connect(qb, Some(a.address(qa))).expect("connects");
                cores[i * CORES + core].peers.push((qa, keys[j]));
                cores[j * CORES + core].peers.push((qb, keys[i]));
            }
        }
    }
    (world, cores)
}

/// CPU time of this thread.
fn cpu_time() -> Duration {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(t.tv_sec as u64, t.tv_nsec as u32)
}

/// Bytes this process holds, if the system tells.
fn resident() -> Option<f64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|l| l.starts_with("VmRSS:"))?;
    let kib: f64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kib * 1024.0)
}

fn measure(label: &str, profile: &Profile, nodes: usize) {
    let before = resident();
    let (world, mut cores) = cluster(profile, nodes);
    let mut until = Nanos::from_micros(50);
    world.run(&mut cores, until);
    let held = resident().zip(before).map(|(now, then)| (now - then) / nodes as f64 / 1024.0);
    let (events, start) = (world.events(), cpu_time());
    while cpu_time() - start < Duration::from_millis(600) {
        until += Nanos::from_micros(20);
        world.run(&mut cores, until);
    }
    let (events, spent) = ((world.events() - events) as f64, (cpu_time() - start).as_secs_f64());
    // A world as small as one before it fits into memory that was given back, which tells nothing.
    let held = held.filter(|kib| *kib >= 1.0);
    let memory = held.map_or("memory not available".to_owned(), |kib| format!("{kib:.0} KiB per node"));
    println!(
        "{label:24} {nodes:4} nodes: {:6.2} M events/s, {:5.1} ns per event, {memory}",
        events / spent / 1e6,
        spent / events * 1e9
    );
}

fn main() {
    // `cargo test --benches` runs this file too.
    if !std::env::args().any(|a| a == "--bench") {
        return;
    }
    let shipped = |name| Profile::shipped(name).expect("shipped");
    for nodes in [2, 4, 8, 16, 32, 64, 128] {
        measure("cx4-edr", &shipped("cx4-edr"), nodes);
    }
    for name in ["connectib-fdr", "cx3", "cx6", "cx4-edr-x2"] {
        measure(name, &shipped(name), 16);
    }
    let mut translations = shipped("cx4-edr");
    (translations.nic.mtt_miss.value, translations.nic.mtt_page.value) = (5.0, 4096.0);
    measure("with translations", &translations, 16);
    let mut plain = shipped("cx4-edr");
    (plain.nic.wqe_miss.value, plain.nic.pcie_tags.value, plain.nic.processing_units.value) = (0.0, 1e6, 1.0);
    measure("without optional stages", &plain, 16);
}
