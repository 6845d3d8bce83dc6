//! How many events a second the simulator handles on one core: 16 nodes of 24 cores with 16 READs in flight
//! each, beside a bare event queue of the same length (the hold model: take the earliest, put one back
//! later).
//!
//! `cargo bench -p doorbell-primitives --bench sim`; with `--quick` it prints the rates alone.

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use dary_heap::QuaternaryHeap;
use primitives::exec::{CoreLoop, Step};
use primitives::fabric::sim::{SimConfig, SimNic, SimWorld};
use primitives::fabric::{CpuWork, Nic};
use primitives::mem::{Access, Region};
use primitives::profile::Profile;
use primitives::units::Nanos;
use primitives::verbs::{Flags, NodeId, Qp, QpConfig, Rkey, Sge, Verb, WorkRequest};
use std::cmp::Reverse;
use std::time::Duration;

const NODES: usize = 16;
const CORES: usize = 24;
const OUTSTANDING: u64 = 16;

/// A core that keeps 16 READs of 8 B in flight, each answered by the next.
struct Reader {
    nic: SimNic,
    peers: Vec<(Qp, Rkey)>,
    local: Sge,
    turn: u64,
}

impl Reader {
    fn post(&mut self) {
        self.turn += 1;
        let (qp, rkey) = self.peers[self.turn as usize % self.peers.len()];
        let offset = self.turn.wrapping_mul(0x9e37_79b9_7f4a_7c15) % 8192 * 8;
        let verb = Verb::Read { rkey, offset };
        let flags = Flags { signaled: true, inline: false };
        self.nic.charge(CpuWork::Request);
        self.nic.charge(CpuWork::Doorbell);
        self.nic.post(qp, &[WorkRequest { id: 0, verb, local: self.local, flags }]).expect("fits the queue");
    }
}

impl CoreLoop for Reader {
    fn step(&mut self, _budget: usize) -> Step {
        let mut wanted = if self.turn < OUTSTANDING { OUTSTANDING } else { 0 };
        self.nic.charge(CpuWork::Poll);
        wanted += self.nic.poll(1, |_| {}) as u64;
        for _ in 0..wanted {
            self.nic.charge(CpuWork::Completion);
            self.post();
        }
        Step { worked: wanted as usize, pending: false, finished: false }
    }
}

fn readers() -> (SimWorld, Vec<Reader>) {
    let profile = Profile::shipped("cx4-edr").expect("shipped");
    let world = SimWorld::new(&SimConfig::new(profile, NODES, CORES, 1)).expect("a sensible world");
    let nics: Vec<SimNic> =
        (0..NODES * CORES).map(|i| world.context(NodeId((i / CORES) as u16), i % CORES)).collect();
    let keys: Vec<_> = (0..NODES)
        .map(|n| nics[n * CORES].register(&Region::new(64 << 10), Access::ALL).expect("registers"))
        .collect();
    let connect = |qp: Qp, i: usize, there: usize, back: Qp| {
        nics[i].connect(qp, Some(nics[there].address(back))).expect("connects");
    };
    let qps: Vec<Vec<Qp>> = nics
        .iter()
        .map(|nic| (0..NODES).map(|_| nic.create_qp(&QpConfig::rc()).expect("fits")).collect())
        .collect();
    let reader = |i: usize| {
        let (node, core) = (i / CORES, i % CORES);
        let peers = (0..NODES)
            .filter(|&other| other != node)
            .map(|other| {
                let there = other * CORES + core;
                connect(qps[i][other], i, there, qps[there][node]);
                (qps[i][other], keys[other].rkey)
            })
            .collect();
        let private = nics[i].register(&Region::new(64), Access::LOCAL).expect("registers");
        let local = Sge { lkey: private.lkey, offset: 0, len: 8 };
        Reader { nic: nics[i].clone(), peers, local, turn: 0 }
    };
    let cores = (0..NODES * CORES).map(reader).collect();
    (world, cores)
}

/// A heap of `n` packed keys: take the earliest, put it back up to 2 µs later.
struct Hold {
    heap: QuaternaryHeap<Reverse<u128>>,
    state: u64,
}

impl Hold {
    fn new(n: u64) -> Hold {
        let heap = (0..n).map(|i| Reverse(u128::from(i * 317 % 2_000_000) << 72 | u128::from(i))).collect();
        Hold { heap, state: 1 }
    }

    fn turn(&mut self) {
        let Some(Reverse(key)) = self.heap.pop() else { return };
        self.state = self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        self.heap.push(Reverse(key + (u128::from(self.state >> 43) << 72)));
    }
}

/// CPU time of this thread: the machine may be busy with other things.
fn cpu_time() -> Duration {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(t.tv_sec as u64, t.tv_nsec as u32)
}

fn events(c: &mut Criterion) {
    let (world, mut cores) = readers();
    let mut until = Nanos::from_micros(50);
    world.run(&mut cores, until);
    // Rates first: criterion's table has time per run, not per event.
    let (before, start) = (world.events(), cpu_time());
    let virtual_start = until;
    while (cpu_time() - start) < Duration::from_millis(1500) {
        until += Nanos::from_micros(20);
        world.run(&mut cores, until);
    }
    let count = (world.events() - before) as f64;
    let reads = cores.iter().map(|c| c.turn).sum::<u64>() as f64;
    println!(
        "sim: {:.2} M events per CPU second, {:.2} M READs per node per virtual second, {:.2} events per READ",
        count / (cpu_time() - start).as_secs_f64() / 1e6,
        reads / NODES as f64 / until.0 as f64 * 1e3,
        count / (reads * until.since(virtual_start).0 as f64 / until.0 as f64),
    );
    let mut hold = Hold::new(NODES as u64 * CORES as u64 * OUTSTANDING);
    let start = cpu_time();
    (0..10_000_000).for_each(|_| hold.turn());
    println!("hold model: {:.2} M turns per CPU second", 10.0 / (cpu_time() - start).as_secs_f64());

    let mut group = c.benchmark_group("sim");
    group.sample_size(10);
    group.bench_function("16x24x16 READs, 10 µs of virtual time", |b| {
        b.iter(|| {
            until += Nanos::from_micros(10);
            world.run(&mut cores, until)
        });
    });
    group.throughput(Throughput::Elements(1000));
    group.bench_function("hold model, 1000 turns", |b| b.iter(|| (0..1000).for_each(|_| hold.turn())));
    group.finish();
}

criterion_group!(benches, events);
criterion_main!(benches);
