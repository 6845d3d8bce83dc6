//! Closed-loop load from bare core loops: no ports, no coroutines, only posts and polls.

use super::{REGION, SimConfig, SimNic, SimWorld};
use crate::exec::{CoreLoop, Step};
use crate::fabric::{CpuWork, Nic};
use crate::mem::{Access, Region};
use crate::verbs::work::GRH_BYTES;
use crate::verbs::{
    AddressHandle, Completion, Flags, Lkey, NodeId, Qp, QpConfig, RecvRequest, Rkey, Sge, Verb, WcOpcode,
    WcStatus, WorkRequest,
};

/// What the cores post.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Read,
    Write,
    FetchAdd,
    /// All of the above in turn.
    Mixed,
    /// Empty RPC over datagrams: every core asks and answers.
    Rpc,
}

#[derive(Clone, Copy, Debug)]
pub struct Load {
    pub kind: Kind,
    pub payload: u32,
    /// Requests each core keeps in flight.
    pub outstanding: usize,
    /// One completion for so many requests of a queue pair; outstanding requests then move in batches.
    pub batch: usize,
    pub inline: bool,
}

impl Load {
    pub fn mixed() -> Load {
        Load { kind: Kind::Mixed, payload: 8, outstanding: 1, batch: 1, inline: false }
    }

    pub fn of(kind: Kind, payload: u32, outstanding: usize, batch: usize) -> Load {
        Load { kind, payload, outstanding, batch, inline: kind != Kind::Read && kind != Kind::FetchAdd }
    }
}

/// A core that keeps its requests in flight, spread over all other nodes and over the words of their regions.
pub struct Driver {
    nic: SimNic,
    load: Load,
    peers: Vec<(Qp, Rkey, AddressHandle)>,
    datagrams: Qp,
    lkey: Lkey,
    turn: u64,
    started: bool,
    requests: Vec<WorkRequest>,
    seen: Vec<Completion>,
    sent: u64,
    done: u64,
}

const RECVS: u32 = 512;
const RECV_BYTES: u32 = 128;

impl Driver {
    /// Requests whose completion, own or shared, has come.
    pub fn completed(&self) -> u64 {
        self.done
    }

    fn charge_posts(&self, requests: usize) {
        for _ in 0..requests {
            self.nic.charge(CpuWork::Request);
            if self.load.inline {
                self.nic.charge(CpuWork::Inline(self.load.payload));
            }
        }
        self.nic.charge(CpuWork::Doorbell);
    }

    /// Posts one batch to the next peer, its last request signaled.
    fn post(&mut self) {
        let (qp, rkey, _) = self.peers[self.turn as usize % self.peers.len()];
        self.requests.clear();
        for i in 0..self.load.batch {
            self.turn += 1;
            // An odd multiplier walks over all words, so that atomics spread.
            let slots = REGION as u64 / 64 - u64::from(self.load.payload.div_ceil(64));
            let offset = self.turn.wrapping_mul(0x9e37_79b9_7f4a_7c15) % slots * 64 + self.turn % 8 * 8;
            let kinds = [Kind::Read, Kind::Write, Kind::FetchAdd];
            let verb = match self.load.kind {
                Kind::Mixed => kinds[self.turn as usize % 3],
                kind => kind,
            };
            let verb = match verb {
                Kind::Read => Verb::Read { rkey, offset },
                Kind::FetchAdd => Verb::FetchAdd { rkey, offset, add: 1 },
                _ => Verb::Write { rkey, offset },
            };
            self.requests.push(WorkRequest {
                id: 0,
                verb,
                local: Sge { lkey: self.lkey, offset: 0, len: self.load.payload },
                flags: Flags { signaled: i + 1 == self.load.batch, inline: self.load.inline },
            });
        }
        self.charge_posts(self.load.batch);
        self.nic.post(qp, &self.requests).expect("the load fits the queues");
    }

    fn send(&mut self, targets: &[AddressHandle], id: u64) {
        self.requests.clear();
        for &to in targets {
            self.sent += 1;
            self.requests.push(WorkRequest {
                id,
                verb: Verb::Send { to: Some(to), imm: Some(id as u32) },
                local: Sge { lkey: self.lkey, offset: 0, len: self.load.payload },
                flags: Flags { signaled: self.sent.is_multiple_of(64), inline: self.load.inline },
            });
        }
        self.charge_posts(targets.len());
        self.nic.post(self.datagrams, &self.requests).expect("the load fits the queues");
    }

    fn ask(&mut self, requests: usize) {
        let targets: Vec<AddressHandle> = (0..requests)
            .map(|_| {
                self.turn += 1;
                self.peers[self.turn as usize % self.peers.len()].2
            })
            .collect();
        self.send(&targets, 0);
    }

    fn recv(&self, slot: u64) {
        let local = Sge { lkey: self.lkey, offset: slot * u64::from(RECV_BYTES), len: RECV_BYTES };
        self.nic.post_recv(self.datagrams, &[RecvRequest { id: slot, local }]).expect("one slot came free");
    }

    fn start(&mut self) {
        if self.load.kind == Kind::Rpc {
            (0..u64::from(RECVS)).for_each(|slot| self.recv(slot));
            self.ask(self.load.outstanding);
        } else {
            (0..self.load.outstanding / self.load.batch).for_each(|_| self.post());
        }
    }
}

impl CoreLoop for Driver {
    fn step(&mut self, _budget: usize) -> Step {
        if !self.started {
            self.started = true;
            self.start();
            return Step { worked: 1, pending: false, finished: false };
        }
        self.nic.charge(CpuWork::Poll);
        self.seen.clear();
        let (nic, seen) = (&self.nic, &mut self.seen);
        let worked = nic.poll(16, |c| seen.push(c));
        let mut replies = Vec::new();
        let mut answered = 0;
        for i in 0..worked {
            let completion = self.seen[i];
            assert_eq!(completion.status, WcStatus::Success);
            self.nic.charge(CpuWork::Completion);
            match (self.load.kind, completion.opcode) {
                (Kind::Rpc, WcOpcode::SendQueue) => {}
                (Kind::Rpc, _) => {
                    assert_eq!(completion.byte_len, self.load.payload + GRH_BYTES);
                    self.recv(completion.id);
                    self.nic.charge(CpuWork::RpcDecode);
                    if completion.imm == Some(0) {
                        self.nic.charge(CpuWork::RpcDispatch);
                        let (node, qp) = completion.from.expect("datagrams name their sender");
                        replies.push(AddressHandle { node, qp, qkey: 0 });
                    } else {
                        answered += 1;
                    }
                    self.nic.charge(CpuWork::RpcEncode);
                }
                _ => {
                    self.done += self.load.batch as u64;
                    self.post();
                }
            }
        }
        if !replies.is_empty() {
            self.send(&replies, 1);
        }
        if answered > 0 {
            self.done += answered as u64;
            self.ask(answered);
        }
        Step { worked, pending: worked == 16, finished: false }
    }
}

/// A cluster whose cores are connected to their namesakes on all other nodes, ready to run.
pub fn cluster(config: &SimConfig, load: Load) -> (SimWorld, Vec<Driver>) {
    let world = SimWorld::new(config).unwrap();
    let (nodes, per_node) = (config.nodes, config.cores_per_node);
    let contexts: Vec<SimNic> =
        (0..nodes * per_node).map(|i| world.context(NodeId((i / per_node) as u16), i % per_node)).collect();
    let shared: Vec<_> = (0..nodes)
        .map(|n| contexts[n * per_node].register(&Region::new(REGION + 4096), Access::ALL).unwrap())
        .collect();
    let depth = (2 * load.outstanding).next_multiple_of(64) as u32;
    let rc = QpConfig { send_depth: depth, ..QpConfig::rc() };
    let qps: Vec<Vec<Qp>> =
        contexts.iter().map(|c| (0..nodes).map(|_| c.create_qp(&rc).unwrap()).collect()).collect();
    let ud = QpConfig { send_depth: depth.max(2048), recv_depth: RECVS, ..QpConfig::ud() };
    let datagrams: Vec<Qp> = contexts.iter().map(|c| c.create_qp(&ud).unwrap()).collect();
    for (i, context) in contexts.iter().enumerate() {
        context.connect(datagrams[i], None).unwrap();
    }
    let mut cores = Vec::new();
    for (i, context) in contexts.iter().enumerate() {
        let (node, core) = (i / per_node, i % per_node);
        let private = Region::new((RECVS * RECV_BYTES) as usize);
        let keys = context.register(&private, Access::LOCAL).unwrap();
        let others = (1..nodes).map(|d| (node + d) % nodes);
        let peers = others
            .map(|other| {
                let there = other * per_node + core;
                let address = contexts[there].address(qps[there][node]);
                context.connect(qps[i][other], Some(address)).unwrap();
                (qps[i][other], shared[other].rkey, contexts[there].address(datagrams[there]).handle())
            })
            .collect();
        cores.push(Driver {
            nic: context.clone(),
            load,
            peers,
            datagrams: datagrams[i],
            lkey: keys.lkey,
            turn: i as u64 * 31,
            started: false,
            requests: Vec::new(),
            seen: Vec::new(),
            sent: 0,
            done: 0,
        });
    }
    (world, cores)
}
