//! No allocation on the data path: after warm-up, verbs and calls do not touch the allocator. On loopback and sockets, on the
//! simulator, whose own events are counted too, and on the device that `DOORBELL_VERBS_DEVICE` names where one is.

// Counting is the one thing that needs it: `GlobalAlloc` is an unsafe trait. The implementation hands everything to
// the system allocator unchanged.
#![allow(unsafe_code)]

mod common;

use common::{Fabric, Net, connect, real_device};
use primitives::exec::{Core, CoreLoop, Sched, yield_now};
use primitives::fabric::sim::{SimConfig, SimWorld, Stopped};
use primitives::fabric::{AnyNic, Nic};
use primitives::mem::{Access, BufPool, Region};
use primitives::mesh::{Worker, WorkerConfig};
use primitives::profile::Profile;
use primitives::rpc::{Incoming, Reply, RpcPoller, Service};
use primitives::units::Nanos;
use primitives::verbs::port::{EnginePort, Port, PortConfig};
use primitives::verbs::{NodeId, QpConfig, Remote};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::rc::Rc;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// Counts the allocations of each thread.
struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

fn count() {
    // A thread that is ending has no counter any more, and nobody who asks for it.
    let _ = ALLOCATIONS.try_with(|n| n.set(n.get() + 1));
}

// SAFETY: every call is the system allocator's, with the caller's own arguments.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller's own promise.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: the caller's own promise.
        unsafe { System.dealloc(ptr, layout) }
    }
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller's own promise.
        unsafe { System.alloc_zeroed(layout) }
    }
    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        // SAFETY: the caller's own promise.
        unsafe { System.realloc(ptr, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn allocations() -> u64 {
    ALLOCATIONS.with(Cell::get)
}

const WARM_UP: u64 = 2_000;

/// Operations that are watched: fewer on a real device, which may be a slow one.
fn operations() -> u64 {
    static OPERATIONS: OnceLock<u64> = OnceLock::new();
    // Asked between operations, and looking into the environment allocates.
    *OPERATIONS.get_or_init(|| if real_device().is_some() { 6_000 } else { 100_000 })
}

/// Where verbs are tried: on the device, if there is one.
fn fabric() -> Fabric {
    #[cfg(feature = "verbs")]
    if real_device().is_some() {
        return Fabric::Verbs;
    }
    Fabric::Posting
}

/// Where warm-up ended; asserts at the end that nothing was allocated since.
struct Watch {
    what: &'static str,
    at: Cell<Option<u64>>,
}

impl Watch {
    fn new(what: &'static str) -> Watch {
        Watch { what, at: Cell::new(None) }
    }

    fn operation(&self, number: u64) {
        if number == WARM_UP {
            self.at.set(Some(allocations()));
        }
    }

    fn end(&self) {
        let since = allocations() - self.at.get().expect("warm-up has ended");
        assert_eq!(since, 0, "{}: allocations in {} operations", self.what, operations());
    }
}

#[test]
fn the_counter_counts() {
    let before = allocations();
    drop(std::hint::black_box(Box::new(1)));
    assert_eq!(allocations(), before + 1);
}

/// Node 0's port with one queue pair to each of two nodes.
fn port(net: &Net) -> (Rc<EnginePort>, [Remote; 2]) {
    let nic = net.own_context(0);
    let arena = Region::new(1 << 16);
    let lkey = nic.register(&arena, Access::LOCAL).expect("a region").lkey;
    let qps = [1, 2].map(|peer| connect(&nic, net.nic(peer), QpConfig::rc()).0);
    let port = Port::new(nic, Sched::new(), BufPool::new(arena, lkey), PortConfig::default());
    for (peer, qp) in (1..).zip(qps) {
        port.add_route(NodeId(peer), qp, QpConfig::rc().send_depth);
    }
    let at = |peer| Remote { node: NodeId(peer), rkey: net.keys(peer).rkey, offset: 0 };
    (Rc::new(port), [at(1), at(2)])
}

/// Runs `coroutines` that share the operations, each `one(number)`.
fn watch<F: Future<Output = ()>>(
    what: &'static str,
    coroutines: u64,
    one: impl Fn(Rc<EnginePort>, [Remote; 2], u64) -> F,
) {
    let net = Net::new(fabric(), 3);
    let (port, at) = port(&net);
    let watch = Watch::new(what);
    let next = Cell::new(0);
    let mut core = Core::new(port.sched().clone(), port.clone());
    for _ in 0..coroutines {
        let (port, one, next, watch) = (port.clone(), &one, &next, &watch);
        core.spawn(async move {
            while next.get() < WARM_UP + operations() {
                let number = next.replace(next.get() + 1);
                watch.operation(number);
                one(port.clone(), at, number).await;
            }
        });
    }
    while !core.step(usize::MAX).finished {}
    watch.end();
}

#[test]
fn reads_and_writes() {
    watch("READ", 8, |port, at, i| async move {
        port.read(at[i as usize % 2], 64).await.expect("reads");
    });
    watch("WRITE", 8, |port, at, i| async move {
        let buf = port.buf(200).expect("a buffer");
        port.write(at[i as usize % 2], buf).await.expect("writes");
    });
}

#[test]
fn atomics() {
    watch("CAS", 8, |port, at, i| async move {
        port.cas(at[i as usize % 2], i, i + 1).await.expect("swaps");
    });
    watch("FETCH_ADD", 8, |port, at, i| async move {
        port.fetch_add(at[i as usize % 2], 1).await.expect("adds");
    });
}

#[test]
fn batches_across_queue_pairs() {
    watch("batch", 8, |port, at, i| async move {
        let buf = port.buf(64).expect("a buffer");
        let mut batch = port.batch();
        for k in 0..6u32 {
            batch.write(at[k as usize % 2].at(u64::from(k) * 8), &buf, k * 8, 8);
        }
        batch.cas(at[0], i, i, &buf, 0);
        batch.post().await.expect("completes");
    });
}

#[test]
fn passive_posts_and_dropped_futures() {
    watch("passive", 4, |port, at, i| async move {
        let buf = port.buf(8).expect("a buffer");
        let mut batch = port.batch();
        batch.write(at[0], &buf, 0, 8);
        batch.write(at[1], &buf, 0, 8);
        match i % 3 {
            0 => drop(batch.post_passive().expect("posts")),
            1 => drop(batch.post()),
            _ => drop(batch),
        }
        port.room().await;
        if i % 16 == 0 {
            yield_now(port.sched()).await;
        }
    });
}

struct Echo;

impl Service for Echo {
    fn handle(&mut self, request: &mut Incoming<'_>, reply: &mut Reply<'_>) {
        while let Ok(word) = request.payload.word() {
            reply.word(word);
        }
    }
}

#[test]
fn calls_served_and_one_way() {
    calls(fabric(), false);
}

#[test]
fn calls_served_and_one_way_over_sockets() {
    calls(Fabric::Tcp, false);
}

#[test]
fn calls_that_are_sent_again() {
    calls(fabric(), true);
}

#[test]
fn calls_that_are_sent_again_over_sockets() {
    calls(Fabric::Tcp, true);
}

/// On a busy machine a server may have no turn for longer than a caller waits: then all that is unanswered is sent again at once, and much of
/// it answered twice, for which queues and the pool grow beyond what calls had needed before. Like what else doubles when more is in
/// flight than ever, that is not steady state. With `stalls` it happens once in warm-up, for long, and four times later, when nothing grows any more;
/// without, calls wait for so long that none is sent again, however busy the machine.
fn calls(fabric: Fabric, stalls: bool) {
    let net = Net::new(fabric, 2);
    let mut config = WorkerConfig::default();
    if !stalls {
        config.rpc.retransmit_after = Nanos::from_millis(10_000);
    }
    let (workers, cards): (Vec<_>, Vec<_>) =
        (0..2).map(|n| Worker::open(net.own_context(n), &config, 2, 0).expect("a worker")).unzip();
    for worker in &workers {
        worker.connect(&cards).expect("connects");
    }
    let watch = Watch::new("RPC");
    let next = Cell::new(0);
    let mut calling = Core::new(workers[0].sched.clone(), RpcPoller::new(workers[0].rpc.clone(), Echo));
    let mut serving = Core::new(workers[1].sched.clone(), RpcPoller::new(workers[1].rpc.clone(), Echo));
    serving.spawn(std::future::ready(()));
    // More callers than the window, so that waiting for room is watched too.
    for _ in 0..40 {
        let (rpc, next, watch) = (&workers[0].rpc, &next, &watch);
        calling.spawn(async move {
            while next.get() < WARM_UP + operations() {
                let number: u64 = next.replace(next.get() + 1);
                watch.operation(number);
                rpc.room(&[(NodeId(1), 3)]).await.expect("room");
                let mut batch = rpc.batch();
                batch.call(NodeId(1), 0, |w| w.word(number)).expect("room");
                batch.one_way(NodeId(1), 0, |w| w.word(number)).expect("room");
                batch.call(NodeId(1), 0, |w| w.bytes(&[7; 100])).expect("room");
                let replies = batch.send().await.expect("answers");
                assert_eq!(replies.read(0, |mut r| r.word()), Ok(number));
            }
        });
    }
    let patience = Duration::from_nanos(config.rpc.retransmit_after.0);
    let mut stalled = 0;
    while !calling.step(usize::MAX).finished {
        let next_stall = match stalled {
            0 => WARM_UP / 2,
            done => WARM_UP + done * operations() / 5,
        };
        if stalls && stalled < 5 && next.get() > next_stall {
            let long = if stalled == 0 { 16 * patience } else { 2 * patience };
            stalled += 1;
            let began = Instant::now();
            while began.elapsed() < long {
                calling.step(usize::MAX);
            }
        }
        serving.step(usize::MAX);
    }
    watch.end();
    assert_eq!(workers[0].rpc.stats().retransmits > 0, stalls, "whether calls were sent again");
}

/// A simulated cluster of 3 nodes with 2 cores each, all connected.
///
/// What the simulator and the ports keep lies in slabs and queues that double when more is in flight at once than ever
/// before. That is not steady state, so in warm-up four times as many coroutines run as later, all in step at first: they
/// fill it further than those that are watched do.
struct Simulated {
    world: SimWorld,
    workers: Vec<Worker>,
    /// By node.
    memory: Rc<[Remote]>,
}

const SIM_NODES: u16 = 3;
const SIM_CORES: u16 = 2;
const SIM_COROUTINES: u64 = 8;
const SIM_WARM_UP: Nanos = Nanos::from_millis(4);
/// Events that are watched, at the least.
const SIM_EVENTS: u64 = 200_000;

impl Simulated {
    fn new() -> Simulated {
        let profile = Profile::shipped("cx4-edr").expect("shipped");
        let (nodes, cores) = (usize::from(SIM_NODES), usize::from(SIM_CORES));
        let world = SimWorld::new(&SimConfig::new(profile, nodes, cores, 1)).expect("a sensible world");
        let nic = |node, core: u16| AnyNic::Sim(world.context(NodeId(node), usize::from(core)));
        let memory = (0..SIM_NODES).map(|node| {
            let keys = nic(node, 0).register(&Region::new(1 << 16), Access::ALL).expect("registers");
            Remote { node: NodeId(node), rkey: keys.rkey, offset: 0 }
        });
        let memory = memory.collect();
        let config = WorkerConfig::default();
        let all = (0..SIM_NODES).flat_map(|node| (0..SIM_CORES).map(move |core| (node, core)));
        let (workers, cards): (Vec<_>, Vec<_>) = all
            .map(|(node, core)| Worker::open(nic(node, core), &config, SIM_NODES, core).expect("a worker"))
            .unzip();
        for (i, worker) in workers.iter().enumerate() {
            let same: Vec<_> = cards.iter().skip(i % cores).step_by(cores).cloned().collect();
            worker.connect(&same).expect("connects");
        }
        Simulated { world, workers, memory }
    }

    /// Runs coroutines that each do `one(worker, memory, number)` on and on; nothing may be allocated after warm-up.
    fn watch<F: Future<Output = ()>>(self, what: &str, one: impl Fn(Worker, Rc<[Remote]>, u64) -> F) {
        let (done, warming) = (Cell::new(0u64), Cell::new(true));
        let mut cores: Vec<_> = Vec::new();
        for worker in &self.workers {
            let mut core = Core::new(worker.sched.clone(), RpcPoller::new(worker.rpc.clone(), Echo));
            for coroutine in 0..4 * SIM_COROUTINES {
                let (one, done, warming, memory) = (&one, &done, &warming, &self.memory);
                let goes_on = coroutine < SIM_COROUTINES;
                core.spawn(async move {
                    // Other places each, but the same kinds and sizes at first.
                    for number in 120 * coroutine.. {
                        if !goes_on && !warming.get() {
                            break;
                        }
                        one(worker.clone(), memory.clone(), number).await;
                        done.set(done.get() + 1);
                    }
                });
            }
            cores.push(core);
        }
        self.world.run(&mut cores, SIM_WARM_UP);
        warming.set(false);
        // Those of warm-up end what they have begun.
        let mut until = SIM_WARM_UP + Nanos::from_micros(200);
        self.world.run(&mut cores, until);
        let (events, before) = (self.world.events(), allocations());
        done.set(0);
        while self.world.events() - events < SIM_EVENTS {
            until += Nanos::from_micros(20);
            assert_eq!(self.world.run(&mut cores, until), Stopped::Time, "{what}");
        }
        let (allocated, events) = (allocations() - before, self.world.events() - events);
        println!("{what}: {allocated} allocations in {events} events, {} rounds", done.get());
        assert!(done.get() > SIM_EVENTS / 100, "{what}: it is done, and not only tried");
        assert_eq!(allocated, 0, "{what}: allocations in {events} events");
    }
}

/// A peer of `worker` and a place there, other ones each time.
fn somewhere(worker: &Worker, memory: &[Remote], number: u64) -> Remote {
    let me = u64::from(worker.port.nic().node().0);
    let peer = memory[((me + 1 + number % 2) % u64::from(SIM_NODES)) as usize];
    peer.at(number.wrapping_mul(0x9e37_79b9_7f4a_7c15) % 512 * 64)
}

async fn one_sided(worker: Worker, memory: Rc<[Remote]>, number: u64) {
    let (port, at) = (&worker.port, somewhere(&worker, &memory, number));
    match number % 4 {
        0 => drop(port.read(at, 8 << (number / 4 % 10)).await.expect("reads")),
        1 => {
            let buf = port.buf(8 << (number / 4 % 10)).expect("a buffer");
            drop(port.write(at, buf).await.expect("writes"));
        }
        2 => drop(port.cas(at, number, number + 1).await.expect("swaps")),
        _ => drop(port.fetch_add(at, 1).await.expect("adds")),
    }
}

async fn chained(worker: Worker, memory: Rc<[Remote]>, number: u64) {
    let buf = worker.port.buf(512).expect("a buffer");
    let mut batch = worker.port.batch();
    for k in 0..6u32 {
        let at = somewhere(&worker, &memory, number + u64::from(k / 2));
        match k % 3 {
            0 => batch.write(at, &buf, k * 64, 64),
            1 => batch.read(at, &buf, k * 64, 64),
            _ => batch.fetch_add(at, 1, &buf, k * 8),
        }
    }
    match number % 8 {
        0 => drop(batch.post_passive().expect("posts")),
        _ => drop(batch.post().await.expect("completes")),
    }
    worker.port.room().await;
}

async fn called(worker: Worker, _: Rc<[Remote]>, number: u64) {
    let me = worker.port.nic().node().0;
    let peers = [1, 2].map(|other| NodeId((me + other) % SIM_NODES));
    worker.rpc.room(&[(peers[0], 2), (peers[1], 1)]).await.expect("room");
    let mut batch = worker.rpc.batch();
    batch.call(peers[0], 0, |w| w.word(number)).expect("room");
    batch.one_way(peers[0], 0, |w| w.word(number)).expect("room");
    batch.call(peers[1], 0, |w| w.bytes(&[7; 200])).expect("room");
    let replies = batch.send().await.expect("answers");
    assert_eq!(replies.read(0, |mut r| r.word()), Ok(number));
}

#[test]
fn simulated_reads_writes_and_atomics() {
    Simulated::new().watch("simulated verbs", one_sided);
}

#[test]
fn simulated_chains() {
    Simulated::new().watch("simulated chains", chained);
}

#[test]
fn simulated_calls() {
    Simulated::new().watch("simulated calls", called);
}

#[test]
fn all_of_it_simulated_at_once() {
    Simulated::new().watch("all simulated", |worker, memory, number| async move {
        match number % 3 {
            0 => one_sided(worker, memory, number).await,
            1 => chained(worker, memory, number).await,
            _ => called(worker, memory, number).await,
        }
    });
}
