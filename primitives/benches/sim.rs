//! How many events a second the simulator handles on one core, and what a coroutine weighs: 16 nodes of 24 cores.
//!
//! Three loops over READs of 8 B: bare cores with 16 READs in flight each (NIC model and core loop alone), coroutines
//! with one READ in flight each through `Core` and `Port` (16 on every core, and 10², 10⁴ and 10⁵ in all), and beside
//! each a bare binary heap with as many events (the hold model: take the earliest, put one back later). A counting
//! allocator says what a coroutine adds to the heap beside its buffer: when it is spawned (future and scheduler's
//! places), and by the time it has run for a while (the port's places, but also the simulator's own queues).
//!
//! `cargo bench -p doorbell-primitives --bench sim`; with `--quick` criterion's part is short. With `-- --once COROUTINES
//! MICROSECONDS` (0 coroutines: bare cores) it simulates one load once, after 50 µs of warm-up, and prints events, fingerprint
//! and CPU time: for a profiler, for comparing two builds in turns, and for seeing that both simulate the same.

// Counting allocations is the one thing that needs it: `GlobalAlloc` is an unsafe trait. The implementation hands
// everything to the system allocator unchanged.
#![allow(unsafe_code)]

use criterion::{Criterion, Throughput, criterion_group};
use primitives::exec::{Core, CoreLoop, Sched, Step};
use primitives::fabric::sim::{SimConfig, SimNic, SimWorld};
use primitives::fabric::{AnyNic, CpuWork, Nic};
use primitives::mem::{Access, BufPool, Region};
use primitives::profile::Profile;
use primitives::units::Nanos;
use primitives::verbs::port::{EnginePort, Port, PortConfig};
use primitives::verbs::{Flags, NodeId, Qp, QpConfig, Remote, Rkey, Sge, Verb, WorkRequest};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::rc::Rc;
use std::time::Duration;

/// Counts the bytes that this thread holds.
struct Counting;

thread_local! {
    static HELD: Cell<i64> = const { Cell::new(0) };
}

fn count(bytes: i64) {
    let _ = HELD.try_with(|held| held.set(held.get() + bytes));
}

// SAFETY: every call is the system allocator's, with the caller's own arguments.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as i64);
        // SAFETY: the caller's own promise.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        count(-(layout.size() as i64));
        // SAFETY: the caller's own promise.
        unsafe { System.dealloc(ptr, layout) }
    }
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as i64);
        // SAFETY: the caller's own promise.
        unsafe { System.alloc_zeroed(layout) }
    }
    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size as i64 - layout.size() as i64);
        // SAFETY: the caller's own promise.
        unsafe { System.realloc(ptr, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn held() -> i64 {
    HELD.with(Cell::get)
}

const NODES: usize = 16;
const CORES: usize = 24;
const OUTSTANDING: u64 = 16;

/// A core that keeps 16 READs of 8 B in flight, each answered by the next.
struct Reader {
    nic: SimNic,
    peers: Vec<(NodeId, Qp, Rkey)>,
    local: Sge,
    turn: u64,
}

impl Reader {
    fn post(&mut self) {
        self.turn += 1;
        let (_, qp, rkey) = self.peers[self.turn as usize % self.peers.len()];
        let verb = Verb::Read { rkey, offset: offset(self.turn) };
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

/// One core's context and its queue pairs to all other nodes, with a region of 64 KiB at each.
struct Site {
    nic: SimNic,
    peers: Vec<(NodeId, Qp, Rkey)>,
}

/// A cluster whose same-numbered cores are connected.
fn sites() -> (SimWorld, Vec<Site>) {
    let profile = Profile::shipped("cx4-edr").expect("shipped");
    let world = SimWorld::new(&SimConfig::new(profile, NODES, CORES, 1)).expect("a sensible world");
    let nics: Vec<SimNic> =
        (0..NODES * CORES).map(|i| world.context(NodeId((i / CORES) as u16), i % CORES)).collect();
    let keys: Vec<_> = (0..NODES)
        .map(|n| nics[n * CORES].register(&Region::new(64 << 10), Access::ALL).expect("registers"))
        .collect();
    let qps: Vec<Vec<Qp>> = nics
        .iter()
        .map(|nic| (0..NODES).map(|_| nic.create_qp(&QpConfig::rc()).expect("fits")).collect())
        .collect();
    let site = |i: usize| {
        let (node, core) = (i / CORES, i % CORES);
        let others = (0..NODES).filter(|&other| other != node);
        let peers = others.map(|other| {
            let there = other * CORES + core;
            let back = nics[there].address(qps[there][node]);
            nics[i].connect(qps[i][other], Some(back)).expect("connects");
            (NodeId(other as u16), qps[i][other], keys[other].rkey)
        });
        Site { nic: nics[i].clone(), peers: peers.collect() }
    };
    let sites = (0..NODES * CORES).map(site).collect();
    (world, sites)
}

/// Where READ number `turn` goes: to the peers in turn, all over their regions.
fn offset(turn: u64) -> u64 {
    turn.wrapping_mul(0x9e37_79b9_7f4a_7c15) % 8192 * 8
}

fn readers(sites: Vec<Site>) -> Vec<Reader> {
    let reader = |Site { nic, peers }: Site| {
        let private = nic.register(&Region::new(64), Access::LOCAL).expect("registers");
        let local = Sge { lkey: private.lkey, offset: 0, len: 8 };
        Reader { nic, peers, local, turn: 0 }
    };
    sites.into_iter().map(reader).collect()
}

/// READs for ever, one after the other.
async fn read_on(port: Rc<EnginePort>, peers: Rc<[Remote]>, mut turn: u64, reads: Rc<Cell<u64>>) {
    loop {
        turn += 1;
        let peer = peers[turn as usize % peers.len()];
        port.read(peer.at(offset(turn)), 8).await.expect("a READ that is allowed");
        reads.set(reads.get() + 1);
    }
}

/// What one kind of load showed.
struct Rate {
    events_per_s: f64,
    reads_per_s: f64,
    events_per_read: f64,
}

/// Runs `world` for a while, after a warm-up, and rates it by CPU time.
fn rate<C: CoreLoop>(
    world: &SimWorld,
    cores: &mut [C],
    until: &mut Nanos,
    reads: impl Fn(&[C]) -> u64,
) -> Rate {
    *until += Nanos::from_micros(50);
    world.run(cores, *until);
    let (events, done, start) = (world.events(), reads(cores), cpu_time());
    while cpu_time() - start < Duration::from_millis(1500) {
        *until += Nanos::from_micros(20);
        world.run(cores, *until);
    }
    let seconds = (cpu_time() - start).as_secs_f64();
    let (events, done) = ((world.events() - events) as f64, (reads(cores) - done) as f64);
    Rate { events_per_s: events / seconds, reads_per_s: done / seconds, events_per_read: events / done }
}

/// Turns a second of a heap that holds `n` events.
fn hold_rate(n: u64) -> f64 {
    let mut hold = Hold::new(n);
    let (mut turns, start) = (0u64, cpu_time());
    while cpu_time() - start < Duration::from_millis(300) {
        (0..10_000).for_each(|_| hold.turn());
        turns += 10_000;
    }
    turns as f64 / (cpu_time() - start).as_secs_f64()
}

fn report(what: &str, rate: &Rate, pending: u64) {
    println!(
        "{what}: {:.2} M events per CPU second ({:.2} M READs, {:.2} events each); binary heap of {pending}: {:.2} M turns",
        rate.events_per_s / 1e6,
        rate.reads_per_s / 1e6,
        rate.events_per_read,
        hold_rate(pending) / 1e6,
    );
}

/// `total` coroutines spread over the cores, each with one READ in flight. Returns also the bytes that spawning took.
fn clients(total: usize, reads: &Rc<Cell<u64>>) -> (SimWorld, Vec<impl CoreLoop>, i64) {
    let (world, sites) = sites();
    let per_core = total.div_ceil(sites.len()) as u64;
    let build = |Site { nic, peers }: Site| {
        let arena = Region::new((64 * per_core) as usize);
        let lkey = nic.register(&arena, Access::LOCAL).expect("registers").lkey;
        let port =
            Port::new(AnyNic::Sim(nic), Sched::new(), BufPool::new(arena, lkey), PortConfig::default());
        for &(peer, qp, _) in &peers {
            port.add_route(peer, qp, QpConfig::rc().send_depth);
        }
        let at = |&(node, _, rkey): &(NodeId, Qp, Rkey)| Remote { node, rkey, offset: 0 };
        let places: Rc<[Remote]> = peers.iter().map(at).collect();
        let port = Rc::new(port);
        (Core::new(port.sched().clone(), port), places)
    };
    let (mut cores, places): (Vec<_>, Vec<_>) = sites.into_iter().map(build).unzip();
    let before = held();
    for i in 0..total {
        let at = i % cores.len();
        let port = cores[at].poller().clone();
        cores[at].spawn(read_on(port, places[at].clone(), i as u64 * 7, reads.clone()));
    }
    (world, cores, held() - before)
}

fn coroutines(total: usize) {
    let reads = Rc::new(Cell::new(0));
    let (world, mut cores, spawned) = clients(total, &reads);
    let before = held();
    let mut until = Nanos(0);
    let rate = rate(&world, &mut cores, &mut until, |_| reads.get());
    let grown = held() - before;
    report(&format!("{total} coroutines"), &rate, total as u64);
    println!(
        "  per coroutine beside its buffer: {} B when spawned, {} B more once running, of which the simulator's own \
         queues are part",
        spawned / total as i64,
        grown / total as i64,
    );
}

/// One load, simulated once for so long after its warm-up.
fn once(total: usize, span: Nanos) {
    let reads = Rc::new(Cell::new(0));
    if total == 0 {
        let (world, sites) = sites();
        timed(&world, &mut readers(sites), span);
    } else {
        let (world, mut cores, _) = clients(total, &reads);
        timed(&world, &mut cores, span);
    }
}

fn timed<C: CoreLoop>(world: &SimWorld, cores: &mut [C], span: Nanos) {
    let warm = Nanos::from_micros(50);
    world.run(cores, warm);
    let (events, start) = (world.events(), on_cpu());
    world.run(cores, warm + span);
    let (events, spent) = (world.events() - events, on_cpu() - start);
    println!(
        "{events} events, fingerprint {:016x}, {:.1} ns per event, {:.2} M events per CPU second",
        world.fingerprint(),
        spent.as_secs_f64() * 1e9 / events as f64,
        events as f64 / spent.as_secs_f64() / 1e6
    );
}

/// A heap of `n` packed keys: take the earliest, put it back up to 2 µs later.
struct Hold {
    heap: BinaryHeap<Reverse<u128>>,
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

/// The same in the kernel's words, which can be had under valgrind too.
fn on_cpu() -> Duration {
    let all = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    Duration::from_nanos(all.split(' ').next().and_then(|ns| ns.parse().ok()).unwrap_or_default())
}

fn events(c: &mut Criterion) {
    // Rates first: criterion's table has time per run, not per event.
    let all = (NODES * CORES) as u64 * OUTSTANDING;
    let (world, sites) = sites();
    let mut cores = readers(sites);
    let mut until = Nanos(0);
    let bare = rate(&world, &mut cores, &mut until, |cores| cores.iter().map(|c| c.turn).sum());
    report("bare cores, 16 READs in flight each", &bare, all);
    for total in [all as usize, 100, 10_000, 100_000] {
        coroutines(total);
    }
    let mut hold = Hold::new(all);

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

fn main() {
    let args: Vec<String> = std::env::args().collect();
    if let Some(at) = args.iter().position(|a| a == "--once") {
        let number = |i: usize| args.get(at + i).and_then(|a| a.parse::<u64>().ok()).expect("a number");
        return once(number(1) as usize, Nanos::from_micros(number(2)));
    }
    benches();
    Criterion::default().configure_from_args().final_summary();
}
