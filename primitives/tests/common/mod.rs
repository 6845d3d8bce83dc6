//! Nodes on any fabric, for tests: device contexts, memory, queue pairs, and a way to let time pass.
//!
//! A test is written once over [`Net`] and run by [`on_every_fabric`]; [`must_show`] looks for an outcome that a
//! fabric has to show within a stated number of seeds. One test thread owns all contexts, so on loopback's
//! posting-thread mode a test is deterministic, and on the simulator it decides how far virtual time moves
//! between two looks at memory.
//!
//! With feature `verbs`, `DOORBELL_VERBS_DEVICE=rxe0` makes the same tests run on that device, and on it alone.

// Each test binary uses a part of this.
#![allow(dead_code)]

use primitives::exec::{CoreLoop, Step};
use primitives::fabric::loopback::{Loopback, Mode, Options};
use primitives::fabric::sim::{FaultOptions, SimConfig, SimWorld, Stopped};
use primitives::fabric::tcp::{self, TcpFabric};
use primitives::fabric::{AnyNic, Nic};
use primitives::mem::{Access, MemoryKeys, Region};
use primitives::profile::Profile;
use primitives::units::Nanos;
use primitives::verbs::{
    Completion, Flags, NodeId, Qp, QpConfig, RecvRequest, Sge, Verb, WcStatus, WorkRequest,
};
use std::sync::LazyLock;
use std::time::{Duration, Instant};

/// Bytes of memory that each node registers for everything.
pub const REGION: u64 = 64 << 10;

pub const SIGNALED: Flags = Flags { signaled: true, inline: false };
pub const QUIET: Flags = Flags { signaled: false, inline: false };
pub const INLINE: Flags = Flags { signaled: true, inline: true };
pub const SEND: Verb = Verb::Send { to: None, imm: None };

/// A fabric and its seed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fabric {
    /// Loopback, executed by the posting thread. Nothing is ever in between.
    Posting,
    /// Loopback with a NIC thread.
    NicThread(u64),
    /// The simulator, with the shipped `cx4-edr` and a little jitter on the wire.
    Sim(u64),
    /// Sockets of this process: SEND and RECV of datagrams only.
    Tcp,
    /// The real device that the environment names.
    #[cfg(feature = "verbs")]
    Verbs,
}

/// The real device to test instead of the fabrics that need none.
pub fn real_device() -> Option<String> {
    let device = std::env::var("DOORBELL_VERBS_DEVICE").ok()?;
    if cfg!(not(feature = "verbs")) {
        panic!("DOORBELL_VERBS_DEVICE is set, but these tests were built without feature verbs");
    }
    Some(device)
}

/// The network interface of the real device, where a test may take it down.
pub struct Link {
    interface: String,
    address: String,
}

impl Link {
    /// As `NETDEV` and `IP` name interface and address; `None` after saying that the test was skipped.
    pub fn named(test: &str) -> Option<Link> {
        let named = real_device().and(std::env::var("NETDEV").ok()).zip(std::env::var("IP").ok());
        if named.is_none() {
            println!(
                "SKIPPED {test}: DOORBELL_VERBS_DEVICE, NETDEV and IP do not name a device, its interface and address"
            );
        }
        named.map(|(interface, ip)| Link { interface, address: ip + "/24" })
    }

    fn ip(&self, words: &[&str]) -> bool {
        std::process::Command::new("/usr/bin/ip").args(words).status().is_ok_and(|done| done.success())
    }

    pub fn down(&self) {
        assert!(self.ip(&["link", "set", &self.interface, "down"]), "{} goes down", self.interface);
    }

    pub fn up(&self) {
        assert!(self.ip(&["link", "set", &self.interface, "up"]), "{} comes up", self.interface);
        // Taking the interface down has taken its address, unless it did not.
        self.ip(&["addr", "add", &self.address, "dev", &self.interface]);
    }
}

impl Fabric {
    /// The fabrics on which requests overlap, one seed of each.
    pub fn overlapping(seed: u64) -> [Fabric; 2] {
        [Fabric::NicThread(seed), Fabric::Sim(seed)]
    }
}

/// What goes wrong.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    /// Probability that a datagram is lost.
    pub loss: f64,
    /// A node that [`Net::kill_doomed`] kills.
    pub doomed: Option<NodeId>,
    /// Simulator: probability that a torn WRITE's second step comes late, even after its completion.
    pub late_write: f64,
    /// Simulator: a CAS that finds another value puts that value back.
    pub failed_cas_stores: bool,
}

/// How long a test waits for something of which nothing at all is seen. A machine may be slow and busy with others: what makes
/// progress is given its time.
const NO_PROGRESS: Duration = Duration::from_secs(20);

/// When a doomed node of a simulated net dies: long after any set-up.
const DOOM: Nanos = Nanos::from_millis(10);

/// Runs a test on every fabric, on those with seeds for several; a failure names the fabric and seed.
pub fn on_every_fabric(test: impl Fn(Fabric)) {
    #[cfg(feature = "verbs")]
    if real_device().is_some() {
        return named(Fabric::Verbs, || test(Fabric::Verbs));
    }
    let seeded = (1..=3).flat_map(Fabric::overlapping);
    for fabric in std::iter::once(Fabric::Posting).chain(seeded) {
        named(fabric, || test(fabric));
    }
}

/// As [`on_every_fabric`], for tests that send datagrams and nothing else; so sockets take part.
pub fn on_every_datagram_fabric(test: impl Fn(Fabric)) {
    on_every_fabric(&test);
    named(Fabric::Tcp, || test(Fabric::Tcp));
}

/// Asserts that each overlapping fabric shows the outcome on one of the first `seeds` seeds. A real device may show
/// it, and nothing can make it.
pub fn must_show(what: &str, seeds: u64, shows: impl Fn(Fabric) -> bool) {
    #[cfg(feature = "verbs")]
    if real_device().is_some() {
        let seen = named(Fabric::Verbs, || shows(Fabric::Verbs));
        println!("{what}: {} on this device", if seen { "seen" } else { "not seen" });
        return;
    }
    for index in 0..Fabric::overlapping(0).len() {
        let seen = (1..=seeds).any(|seed| {
            let fabric = Fabric::overlapping(seed)[index];
            named(fabric, || shows(fabric))
        });
        assert!(
            seen,
            "{:?} and its like never showed in {seeds} seeds: {what}",
            Fabric::overlapping(1)[index]
        );
    }
}

/// Says which fabric and seed were running if `body` panics.
pub fn named<T>(fabric: Fabric, body: impl FnOnce() -> T) -> T {
    struct Name(Fabric);
    impl Drop for Name {
        fn drop(&mut self) {
            if std::thread::panicking() {
                eprintln!("failed on fabric {:?}", self.0);
            }
        }
    }
    let _name = Name(fabric);
    body()
}

/// A cluster in the hands of one test thread. Every node has device contexts for several cores, and one region.
pub struct Net {
    pub fabric: Fabric,
    under: Under,
    contexts: Vec<[AnyNic; 2]>,
    regions: Vec<Region>,
    keys: Vec<MemoryKeys>,
    doomed: Option<NodeId>,
}

enum Under {
    Loopback(Loopback),
    Sim(SimWorld),
    Tcp(TcpFabric),
    #[cfg(feature = "verbs")]
    Verbs(primitives::fabric::verbs::Verbs),
}

impl Under {
    fn new(fabric: Fabric, nodes: u16, faults: Faults) -> Under {
        let loopback = |mode, seed| {
            Under::Loopback(Loopback::new(nodes, Options { mode, datagram_loss: faults.loss, seed }))
        };
        match fabric {
            Fabric::Tcp => Under::Tcp(TcpFabric::new(nodes, tcp::Options::default())),
            Fabric::Posting => loopback(Mode::PostingThread, 1),
            Fabric::NicThread(seed) => loopback(Mode::NicThread { seed }, seed),
            Fabric::Sim(seed) => {
                let profile = Profile::shipped("cx4-edr").expect("a shipped profile");
                let mut config = SimConfig::new(profile, usize::from(nodes), 4, seed);
                config.faults = FaultOptions {
                    datagram_loss: faults.loss,
                    transit_jitter: Nanos(300),
                    completion_jitter: Nanos(100),
                    late_write: faults.late_write,
                    failed_cas_stores: faults.failed_cas_stores,
                    dead: faults.doomed.iter().map(|&node| (node, DOOM)).collect(),
                    ..FaultOptions::default()
                };
                Under::Sim(SimWorld::new(&config).expect("a sane world"))
            }
            #[cfg(feature = "verbs")]
            Fabric::Verbs => {
                use primitives::fabric::verbs::{Options, Verbs};
                let options = Options::parse(&real_device().expect("a device")).expect("a device");
                Under::Verbs(Verbs::open(&options, nodes).expect("the device works"))
            }
        }
    }

    fn context(&self, node: u16, core: usize) -> AnyNic {
        match self {
            Under::Loopback(fabric) => AnyNic::Loopback(fabric.context(NodeId(node))),
            Under::Sim(world) => AnyNic::Sim(world.context(NodeId(node), core)),
            Under::Tcp(fabric) => AnyNic::Tcp(fabric.context(NodeId(node)).expect("a free port")),
            #[cfg(feature = "verbs")]
            Under::Verbs(fabric) => AnyNic::Verbs(fabric.context(NodeId(node)).expect("a context")),
        }
    }
}

impl Net {
    pub fn new(fabric: Fabric, nodes: u16) -> Net {
        Net::with(fabric, nodes, Faults::default())
    }

    pub fn with(fabric: Fabric, nodes: u16, faults: Faults) -> Net {
        let under = Under::new(fabric, nodes, faults);
        let contexts: Vec<[AnyNic; 2]> =
            (0..nodes).map(|node| [1, 2].map(|core| under.context(node, core))).collect();
        let regions: Vec<Region> = contexts.iter().map(|_| Region::new(REGION as usize)).collect();
        let keys = contexts
            .iter()
            .zip(&regions)
            .map(|(c, r)| c[0].register(r, Access::ALL).expect("a region"))
            .collect();
        Net { fabric, under, contexts, regions, keys, doomed: faults.doomed }
    }

    /// A device context for a port that owns its NIC: a node's core 0.
    pub fn own_context(&self, node: u16) -> AnyNic {
        self.under.context(node, 0)
    }

    /// A node's first device context.
    pub fn nic(&self, node: u16) -> &AnyNic {
        &self.contexts[usize::from(node)][0]
    }

    /// A node's second device context.
    pub fn other_nic(&self, node: u16) -> &AnyNic {
        &self.contexts[usize::from(node)][1]
    }

    pub fn memory(&self, node: u16) -> &Region {
        &self.regions[usize::from(node)]
    }

    pub fn keys(&self, node: u16) -> MemoryKeys {
        self.keys[usize::from(node)]
    }

    /// A part of a node's region as local memory.
    pub fn local(&self, node: u16, offset: u64, len: u32) -> Sge {
        Sge { lkey: self.keys(node).lkey, offset, len }
    }

    pub fn read(&self, node: u16, offset: u64) -> Verb {
        Verb::Read { rkey: self.keys(node).rkey, offset }
    }

    pub fn write(&self, node: u16, offset: u64) -> Verb {
        Verb::Write { rkey: self.keys(node).rkey, offset }
    }

    pub fn write_imm(&self, node: u16, offset: u64, imm: u32) -> Verb {
        Verb::WriteImm { rkey: self.keys(node).rkey, offset, imm }
    }

    pub fn cas(&self, node: u16, offset: u64, expect: u64, swap: u64) -> Verb {
        Verb::CompareSwap { rkey: self.keys(node).rkey, offset, expect, swap }
    }

    pub fn fetch_add(&self, node: u16, offset: u64, add: u64) -> Verb {
        Verb::FetchAdd { rkey: self.keys(node).rkey, offset, add }
    }

    /// A pair of queue pairs between the first contexts of two nodes; on UD merely two active ones.
    pub fn pair(&self, a: u16, b: u16, config: QpConfig) -> (Qp, Qp) {
        connect(self.nic(a), self.nic(b), config)
    }

    /// Posts one request from a node's first context; it must be taken.
    pub fn post(&self, node: u16, qp: Qp, id: u64, verb: Verb, local: Sge, flags: Flags) {
        self.nic(node).post(qp, &[WorkRequest { id, verb, local, flags }]).expect("room");
    }

    /// Posts one receive into the node's own region.
    pub fn recv(&self, node: u16, qp: Qp, id: u64, offset: u64, len: u32) {
        let local = self.local(node, offset, len);
        self.nic(node).post_recv(qp, &[RecvRequest { id, local }]).expect("room");
    }

    /// Lets the least time pass: a nanosecond where time is virtual.
    pub fn tick(&self) {
        match &self.under {
            Under::Sim(world) => {
                world.advance(world.now() + Nanos(1));
            }
            Under::Loopback(_) if self.fabric == Fabric::Posting => {}
            Under::Loopback(_) | Under::Tcp(_) => std::thread::yield_now(),
            #[cfg(feature = "verbs")]
            Under::Verbs(_) => std::thread::yield_now(),
        }
    }

    /// Lets the least time pass, and as much as a core's own clock is ahead: polling is work, where work is
    /// charged.
    pub fn tick_for(&self, nic: &AnyNic) {
        self.tick();
        if let Under::Sim(world) = &self.under
            && nic.now() > world.now()
        {
            world.advance(nic.now());
        }
    }

    /// Lets so much time pass that what can happen has happened. Between sockets that is only likely: [`Net::drain`] knows.
    pub fn settle(&self) {
        match &self.under {
            Under::Sim(world) => {
                world.advance(world.now() + Nanos::from_micros(100));
            }
            // On posting threads, receiver-not-ready messages are offered again at each poll.
            Under::Loopback(fabric) => {
                assert!(fabric.settle(NO_PROGRESS), "the NIC thread does not come to an end");
            }
            Under::Tcp(_) => std::thread::sleep(Duration::from_millis(3)),
            #[cfg(feature = "verbs")]
            Under::Verbs(_) => std::thread::sleep(Duration::from_millis(20)),
        }
    }

    /// Whether time is virtual.
    pub fn is_simulated(&self) -> bool {
        self.nic(0).caps().virtual_time
    }

    /// Whether a node can be killed from outside. On a real device `tests/verbs.rs` does it from inside.
    pub fn can_kill(&self) -> bool {
        real_device().is_none()
    }

    /// Kills the node that was doomed when the net was made.
    pub fn kill_doomed(&self) {
        let node = self.doomed.expect("a node was doomed");
        match &self.under {
            Under::Loopback(fabric) => fabric.kill(node),
            Under::Tcp(_) => panic!("no test kills a node of this fabric here"),
            Under::Sim(world) => {
                assert!(world.now() < DOOM, "the test has taken longer than was thought");
                world.advance(DOOM + Nanos(1));
            }
            #[cfg(feature = "verbs")]
            Under::Verbs(_) => unreachable!("asked for only where `can_kill`"),
        }
    }

    /// Waits for exactly `count` completions of a node's first context.
    pub fn wait(&self, node: u16, count: usize) -> Vec<Completion> {
        self.wait_on(self.nic(node), count)
    }

    /// Waits for exactly `count` completions.
    pub fn wait_on(&self, nic: &AnyNic, count: usize) -> Vec<Completion> {
        let mut all = Vec::new();
        let started = nic.now();
        let mut progress = Instant::now();
        while all.len() < count {
            if nic.poll(count - all.len(), |c| all.push(c)) > 0 {
                progress = Instant::now();
            }
            self.tick_for(nic);
            let late = if self.is_simulated() {
                nic.now().since(started) > Nanos::from_millis(50)
            } else {
                progress.elapsed() > NO_PROGRESS
            };
            assert!(!late, "waited for {count} completions, got {all:?}");
        }
        all
    }

    /// Waits for one completion, which must succeed.
    pub fn done(&self, node: u16) -> Completion {
        let completion = self.wait(node, 1)[0];
        assert_eq!(completion.status, WcStatus::Success);
        completion
    }

    /// Whatever completes at a node by the time that everything has settled.
    pub fn drain(&self, node: u16) -> Vec<Completion> {
        if let Under::Tcp(_) = &self.under {
            return self.drain_streams(node);
        }
        let mut all = Vec::new();
        for _ in 0..4 {
            self.settle();
            while self.nic(node).poll(64, |c| all.push(c)) > 0 {}
        }
        all
    }
}

impl Net {
    /// Whatever has been sent to a node's first context from the first contexts of the others: on each stream a last datagram
    /// follows it, on a queue pair of its own, and once that has arrived so has the rest.
    fn drain_streams(&self, node: u16) -> Vec<Completion> {
        let nic = self.nic(node);
        let active = |nic: &AnyNic| {
            let qp = nic.create_qp(&QpConfig::ud()).expect("a queue pair");
            nic.connect(qp, None).expect("activates");
            qp
        };
        let memory = Region::new(256);
        let lkey = nic.register(&memory, Access::LOCAL).expect("a region").lkey;
        let marked = active(nic);
        let to = nic.address(marked).handle();
        let senders: Vec<u16> = (0..self.contexts.len() as u16).filter(|&n| n != node).collect();
        for &sender in &senders {
            let local = Sge { lkey, offset: 0, len: 256 };
            nic.post_recv(marked, &[RecvRequest { id: 0, local }]).expect("room");
            let qp = active(self.nic(sender));
            let mark = Verb::Send { to: Some(to), imm: None };
            self.post(sender, qp, 0, mark, self.local(sender, 0, 8), QUIET);
        }
        let mut all = Vec::new();
        let (mut marks, mut progress) = (0, Instant::now());
        while marks < senders.len() {
            // Takes no completion, and writes what is still to be written.
            senders.iter().for_each(|&sender| assert_eq!(self.nic(sender).poll(0, |_| {}), 0));
            let before = all.len();
            while nic.poll(64, |c| all.push(c)) > 0 {}
            if all.len() > before {
                progress = Instant::now();
            }
            all.retain(|c: &Completion| {
                c.qp != marked || {
                    marks += 1;
                    false
                }
            });
            assert!(progress.elapsed() < NO_PROGRESS, "{marks} of {} streams have ended", senders.len());
            std::thread::yield_now();
        }
        all
    }
}

/// Connects a new queue pair of each of two contexts.
pub fn connect(a: &AnyNic, b: &AnyNic, config: QpConfig) -> (Qp, Qp) {
    let (qa, qb) = (a.create_qp(&config).expect("a queue pair"), b.create_qp(&config).expect("a queue pair"));
    a.connect(qa, Some(b.address(qb))).expect("connects");
    b.connect(qb, Some(a.address(qa))).expect("connects");
    (qa, qb)
}

/// A request with everything said.
pub fn request(id: u64, verb: Verb, local: Sge, flags: Flags) -> WorkRequest {
    WorkRequest { id, verb, local, flags }
}

/// Ids and statuses, for comparison.
pub fn statuses(completions: &[Completion]) -> Vec<(u64, WcStatus)> {
    completions.iter().map(|c| (c.id, c.status)).collect()
}

/// A core's loop, of whatever type.
pub struct Turning<'c>(pub Box<dyn CoreLoop + 'c>);

impl CoreLoop for Turning<'_> {
    fn step(&mut self, budget: usize) -> Step {
        self.0.step(budget)
    }
}

/// How long cores may have nothing to do, and how much of its own time on a CPU a test may take to turn them: a coroutine that
/// looks again and again for what never comes has work.
const NO_WORK: Duration = Duration::from_secs(60);
const WORK: Duration = Duration::from_secs(60);
/// How long cores may have nothing to do before what is under way is waited for.
const IDLE: Duration = Duration::from_millis(10);

/// This thread's time on a CPU; where the kernel does not tell, the time since the first call.
fn on_cpu() -> Duration {
    static STARTED: LazyLock<Instant> = LazyLock::new(Instant::now);
    let told = || {
        let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
        text.split_whitespace().next()?.parse().ok()
    };
    told().map_or_else(|| STARTED.elapsed(), Duration::from_nanos)
}

/// A core with nothing to do.
struct Empty;

impl CoreLoop for Empty {
    fn step(&mut self, _: usize) -> Step {
        Step { finished: true, ..Step::default() }
    }
}

impl Net {
    /// Turns the cores 0 of the first nodes until all of their coroutines have ended.
    pub fn turn(&self, cores: Vec<Turning<'_>>) {
        match &self.under {
            Under::Loopback(_) | Under::Tcp(_) => self.turn_on_this_thread(cores),
            #[cfg(feature = "verbs")]
            Under::Verbs(_) => self.turn_on_this_thread(cores),
            Under::Sim(world) => {
                let mut all: Vec<Turning> = Vec::new();
                for core in cores {
                    all.push(core);
                    all.extend((1..world.cores_per_node()).map(|_| Turning(Box::new(Empty))));
                }
                world.wake_all();
                let stopped = world.run(&mut all, world.now() + Nanos(60_000_000_000));
                assert_eq!(stopped, Stopped::Finished, "at {}", world.now());
            }
        }
    }

    fn turn_on_this_thread(&self, mut cores: Vec<Turning<'_>>) {
        let (started, mut progress, mut looked) = (on_cpu(), Instant::now(), Instant::now());
        loop {
            let mut finished = true;
            let mut worked = 0;
            for core in &mut cores {
                let step = core.step(usize::MAX);
                finished &= step.finished;
                worked += step.worked;
            }
            if finished {
                return;
            }
            if worked > 0 {
                progress = Instant::now();
                continue;
            }
            std::thread::yield_now();
            assert!(progress.elapsed() < NO_WORK, "nothing happens any more");
            if looked.elapsed() > IDLE {
                // A NIC thread that gets no turn would look like a peer that does not answer.
                if let Under::Loopback(_) = &self.under {
                    self.settle();
                }
                assert!(on_cpu() - started < WORK, "no end in sight");
                looked = Instant::now();
            }
        }
    }
}
