//! The load of published primitive benchmarks: threads that keep requests in flight on randomly chosen queue pairs,
//! nothing between them and the card but posts and polls.

use primitives::exec::{CoreLoop, Step};
use primitives::fabric::sim::{FaultOptions, SimConfig, SimNic, SimWorld};
use primitives::fabric::{CpuWork, Nic};
use primitives::mem::{Access, Region};
use primitives::profile::Profile;
use primitives::units::Nanos;
use primitives::verbs::{
    AddressHandle, Completion, Flags, Lkey, NodeId, Qp, QpConfig, RecvRequest, Rkey, Sge, Transport, Verb,
    WcOpcode, WcStatus, WorkRequest,
};

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ask {
    Read,
    Write,
    FetchAdd,
    CompareSwap,
    /// An empty call over datagrams: every thread asks and answers.
    Rpc,
}

/// Who asks whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Every node asks all others.
    Symmetric,
    /// All nodes ask node 0; its rate as a server counts.
    Inbound,
    /// Node 0 asks all others; its rate as a client counts.
    Outbound,
}

/// One benchmark.
#[derive(Clone, Debug)]
pub struct Bench {
    pub ask: Ask,
    pub shape: Shape,
    pub nodes: usize,
    pub threads: usize,
    /// Queue pairs of a thread per peer.
    pub lanes: usize,
    pub payload: u32,
    /// Requests a thread keeps in flight.
    pub window: usize,
    /// Requests per doorbell; the last one is signaled.
    pub batch: usize,
    pub transport: Transport,
    /// Everybody uses the same word.
    pub one_address: bool,
    pub on_card: bool,
}

impl Bench {
    pub fn of(ask: Ask, payload: u32) -> Bench {
        Bench {
            ask,
            shape: Shape::Symmetric,
            nodes: 7,
            threads: 14,
            lanes: 1,
            payload,
            window: 24,
            batch: 1,
            transport: Transport::Rc,
            one_address: false,
            on_card: false,
        }
    }

    /// Requests per second that count, in millions, per machine.
    pub fn rate(&self, profile: &Profile) -> f64 {
        self.rate_over(profile, Nanos::from_micros(40), Nanos::from_micros(60))
    }

    pub fn rate_over(&self, profile: &Profile, warm: Nanos, window: Nanos) -> f64 {
        // Requests in one piece: a torn one takes longer, and queues do not care.
        let faults = FaultOptions { torn_read: 0.0, torn_write: 0.0, ..FaultOptions::default() };
        let config = SimConfig { faults, ..SimConfig::new(profile.clone(), self.nodes, self.threads, 1) };
        let world = SimWorld::new(&config).unwrap();
        let mut cores = self.cores(&world);
        let done = |cores: &[Thread]| cores.iter().map(|c| c.done).sum::<u64>();
        world.run(&mut cores, warm);
        let before = done(&cores);
        world.run(&mut cores, warm + window);
        let machines = if self.shape == Shape::Symmetric { self.nodes as f64 } else { 1.0 };
        (done(&cores) - before) as f64 / machines / (window.0 as f64 / 1e3)
    }

    fn asks(&self, node: usize) -> bool {
        match self.shape {
            Shape::Symmetric => true,
            Shape::Inbound => node != 0,
            Shape::Outbound => node == 0,
        }
    }

    fn cores(&self, world: &SimWorld) -> Vec<Thread> {
        let access = Access { on_card: self.on_card, ..Access::ALL };
        let context = |node: usize, core: usize| world.context(NodeId(node as u16), core);
        let targets: Vec<Rkey> = (0..self.nodes)
            .map(|node| context(node, 0).register(&Region::new(REGION), access).unwrap().rkey)
            .collect();
        let datagrams: Vec<Qp> = (0..self.nodes * self.threads)
            .map(|i| {
                let nic = context(i / self.threads, i % self.threads);
                let qp = nic.create_qp(&QpConfig::ud()).unwrap();
                nic.connect(qp, None).unwrap();
                qp
            })
            .collect();
        let mut all = Vec::new();
        for node in 0..self.nodes {
            for core in 0..self.threads {
                let nic = context(node, core);
                let lkey = nic.register(&Region::new(REGION), Access::LOCAL).unwrap().lkey;
                all.push(Thread {
                    nic,
                    bench: self.clone(),
                    peers: Vec::new(),
                    datagrams: datagrams[node * self.threads + core],
                    lkey,
                    asks: self.asks(node),
                    draw: (node * self.threads + core) as u64 * 2 + 1,
                    started: false,
                    seen: Vec::new(),
                    requests: Vec::new(),
                    sent: 0,
                    done: 0,
                });
            }
        }
        let pair = match self.transport {
            Transport::Uc => QpConfig::uc(),
            _ => QpConfig::rc(),
        };
        for i in 0..self.nodes {
            for j in 0..self.nodes {
                let wanted = i != j && (self.shape == Shape::Symmetric || self.asks(i) && !self.asks(j));
                if !wanted || (i > j && self.asks(j)) {
                    continue;
                }
                for core in 0..self.threads {
                    for _ in 0..self.lanes {
                        let (a, b) = (context(i, core), context(j, core));
                        let (qa, qb) = (a.create_qp(&pair).unwrap(), b.create_qp(&pair).unwrap());
                        a.connect(qa, Some(b.address(qb))).unwrap();
                        b.connect(qb, Some(a.address(qa))).unwrap();
                        for (from, to, qp) in [(i, j, qa), (j, i, qb)] {
                            let qp_there = datagrams[to * self.threads + core];
                            let there = AddressHandle { node: NodeId(to as u16), qp: qp_there, qkey: 0 };
                            all[from * self.threads + core].peers.push((qp, targets[to], there));
                        }
                    }
                }
            }
        }
        all
    }
}

const REGION: usize = 128 << 10;
const RECVS: u64 = 512;
const RECV_BYTES: u32 = 128;

/// One thread of the load.
pub struct Thread {
    nic: SimNic,
    bench: Bench,
    peers: Vec<(Qp, Rkey, AddressHandle)>,
    datagrams: Qp,
    lkey: Lkey,
    asks: bool,
    draw: u64,
    started: bool,
    seen: Vec<Completion>,
    requests: Vec<WorkRequest>,
    sent: u64,
    done: u64,
}

impl Thread {
    fn below(&mut self, bound: usize) -> usize {
        self.draw = self.draw.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (((self.draw >> 32) * bound as u64) >> 32) as usize
    }

    fn charge(&self, requests: usize, inline: bool) {
        for _ in 0..requests {
            self.nic.charge(CpuWork::Request);
            if inline {
                self.nic.charge(CpuWork::Inline(self.bench.payload));
            }
        }
        self.nic.charge(CpuWork::Doorbell);
    }

    /// Posts one batch on a drawn queue pair, its last request signaled.
    fn post(&mut self) {
        let peer = self.below(self.peers.len());
        let (qp, rkey, _) = self.peers[peer];
        let bench = self.bench.clone();
        let inline =
            bench.ask == Ask::Write && f64::from(bench.payload) <= f64::from(self.nic.caps().max_inline);
        self.requests.clear();
        let slots = REGION / 2 / 64;
        for i in 0..bench.batch {
            let offset =
                if bench.one_address { 0 } else { self.below(slots) as u64 * 64 + self.below(8) as u64 * 8 };
            let verb = match bench.ask {
                Ask::Read => Verb::Read { rkey, offset },
                Ask::FetchAdd => Verb::FetchAdd { rkey, offset, add: 1 },
                Ask::CompareSwap => Verb::CompareSwap { rkey, offset, expect: 0, swap: 0 },
                _ => Verb::Write { rkey, offset },
            };
            let local = Sge { lkey: self.lkey, offset: 0, len: bench.payload };
            let flags = Flags { signaled: i + 1 == bench.batch, inline };
            self.requests.push(WorkRequest { id: 0, verb, local, flags });
        }
        self.charge(bench.batch, inline);
        self.nic.post(qp, &self.requests).expect("the load fits the queues");
    }

    fn send(&mut self, targets: &[AddressHandle], imm: u32) {
        self.requests.clear();
        for &to in targets {
            self.sent += 1;
            self.requests.push(WorkRequest {
                id: 0,
                verb: Verb::Send { to: Some(to), imm: Some(imm) },
                local: Sge { lkey: self.lkey, offset: 0, len: self.bench.payload },
                flags: Flags { signaled: self.sent.is_multiple_of(64), inline: true },
            });
        }
        self.charge(targets.len(), true);
        self.nic.post(self.datagrams, &self.requests).expect("the load fits the queues");
    }

    fn call(&mut self, calls: usize) {
        let mut targets = Vec::with_capacity(calls);
        for _ in 0..calls {
            let peer = self.below(self.peers.len());
            targets.push(self.peers[peer].2);
        }
        self.send(&targets, 0);
    }

    fn recv(&self, slot: u64) {
        let local = Sge { lkey: self.lkey, offset: slot * u64::from(RECV_BYTES), len: RECV_BYTES };
        self.nic.post_recv(self.datagrams, &[RecvRequest { id: slot, local }]).expect("a slot is free");
    }

    fn take(&mut self, completion: Completion, replies: &mut Vec<AddressHandle>, answered: &mut usize) {
        assert_eq!(completion.status, WcStatus::Success);
        self.nic.charge(CpuWork::Completion);
        match (self.bench.ask, completion.opcode) {
            (Ask::Rpc, WcOpcode::SendQueue) => {}
            (Ask::Rpc, _) => {
                self.recv(completion.id);
                self.nic.charge(CpuWork::RpcDecode);
                self.nic.charge(CpuWork::RpcEncode);
                if completion.imm == Some(0) {
                    self.nic.charge(CpuWork::RpcDispatch);
                    let (node, qp) = completion.from.expect("datagrams name their sender");
                    replies.push(AddressHandle { node, qp, qkey: 0 });
                } else {
                    *answered += 1;
                }
            }
            _ => {
                self.done += self.bench.batch as u64;
                self.post();
            }
        }
    }
}

impl CoreLoop for Thread {
    fn step(&mut self, _budget: usize) -> Step {
        if !self.started {
            self.started = true;
            if self.bench.ask == Ask::Rpc {
                (0..RECVS).for_each(|slot| self.recv(slot));
                self.call(self.bench.window);
            } else if self.asks {
                (0..self.bench.window / self.bench.batch).for_each(|_| self.post());
            }
            return Step { worked: 1, pending: false, finished: false };
        }
        self.nic.charge(CpuWork::Poll);
        let mut seen = std::mem::take(&mut self.seen);
        let worked = self.nic.poll(16, |c| seen.push(c));
        let (mut replies, mut answered) = (Vec::new(), 0);
        for completion in seen.drain(..) {
            self.take(completion, &mut replies, &mut answered);
        }
        self.seen = seen;
        if !replies.is_empty() {
            self.send(&replies, 1);
        }
        if answered > 0 {
            self.done += answered as u64;
            self.call(answered);
        }
        Step { worked, pending: worked == 16, finished: false }
    }
}
