//! Workers that reach each other: one port and one RPC endpoint per worker thread, as a rule fully connected.
//!
//! A worker opens its queue pairs and shows their addresses on a [`Card`]; when all cards are on the table it
//! connects. Worker `w` of a node talks to worker `w` of every other node (DrTM+H §3.1: each thread manages
//! its own queue pairs to all machines), and has a queue pair to its own node too, for local words that must
//! change through the NIC. Where only some nodes are asked ([`WorkerConfig::servers`]), those that ask know nothing of each other.
//! [`launch`] does this on any fabric and runs a [`Program`] on every worker.
//!
//! The nodes of a cluster are all in this process, or each is a process of its own, as a rule on a host of its own.
//! Then a [`Session`] joins them: [`config`] says who they are, [`handshake`](mod@handshake) lets nobody else in, and
//! cards, memory keys, barriers and results go through it ([`launch_member`]). Everything else is the same text.

// Sessions between processes live in real time, and a simulated cluster is in one process.
#![allow(clippy::disallowed_methods)]

mod blame;
mod body;
mod channel;
pub mod clock;
pub mod config;
mod door;
mod footprint;
pub mod handshake;
mod keeper;
mod launch;
mod porter;
pub mod rendezvous;
pub mod session;
mod threads;
mod wait;
mod watch;

pub use blame::Blame;
pub use clock::ClockMap;
pub use config::{ClusterFile, ConfigError};
pub use launch::{FabricSpec, LaunchError, Program, RunFacts, Shape, Site, launch, launch_member};
pub use session::{Gathered, Limits, MeshError, Session};

use crate::exec::Sched;
use crate::fabric::{AnyNic, Nic, SetupError};
use crate::mem::{Access, BufPool, Region};
use crate::rpc::{Rpc, RpcConfig};
use crate::verbs::port::{EnginePort, Port, PortConfig};
use crate::verbs::{NodeId, Qp, QpAddress, QpConfig};
use std::rc::Rc;

/// How each worker of a mesh is built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkerConfig {
    /// How ports post.
    pub port: PortConfig,
    /// How RPC endpoints behave.
    pub rpc: RpcConfig,
    /// Connected queue pairs.
    pub qp: QpConfig,
    /// Queue pairs to each node; several emulate a larger cluster (DrTM+H §4.2).
    pub lanes: u32,
    /// Workers of a node that share one device context and so its doorbell registers, where the fabric is simulated.
    /// One is right for all that is not about this (DrTM+H §3.1).
    pub workers_per_context: u16,
    /// Buffer pool for requests in flight, beside what RPC needs.
    pub pool_bytes: u64,
    /// And as much more for each node that a worker reaches.
    pub pool_bytes_each: u64,
    /// Nodes from 0 on that all others are connected to, which are not connected to each other nor to themselves: clusters of thousands
    /// of nodes of which few are asked. 0: all to all.
    pub servers: u16,
    /// Devices that offer it stamp completions with their own time ([`Nic::stamped`]).
    pub stamps: bool,
}

impl Default for WorkerConfig {
    fn default() -> WorkerConfig {
        WorkerConfig {
            port: PortConfig::default(),
            rpc: RpcConfig::default(),
            // Receives are there before anybody sends over these, so none is waited for without end; and a request that a
            // driver forgets can be told from one that waits.
            qp: QpConfig { rnr_retry: 6, ..QpConfig::rc() },
            lanes: 1,
            workers_per_context: 1,
            pool_bytes: 1 << 20,
            pool_bytes_each: 0,
            servers: 0,
            stamps: false,
        }
    }
}

impl WorkerConfig {
    /// Bytes of buffers of a worker that reaches so many nodes, RPC's included.
    pub fn arena_bytes(&self, reach: u16) -> u64 {
        let rpc = Rpc::<AnyNic>::pool_bytes(&self.rpc, usize::from(reach));
        self.pool_bytes + u64::from(reach) * self.pool_bytes_each + rpc
    }

    /// How many nodes, from node 0 on, the workers of `node` reach.
    pub(crate) fn reach(&self, node: NodeId, nodes: u16) -> u16 {
        if self.servers == 0 || node.0 < self.servers { nodes } else { self.servers.min(nodes) }
    }
}

/// The addresses of one worker's queue pairs.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Card {
    /// What the fabric wants peers to know of this context ([`Nic::card`]).
    pub fabric: Vec<u8>,
    /// By peer node, as far as this worker reaches, then lane; empty lists where the fabric has no one-sided verbs.
    pub connected: Vec<Vec<QpAddress>>,
    /// The RPC endpoint.
    pub rpc: QpAddress,
}

/// One worker's network: port, RPC endpoint and scheduler.
#[derive(Clone)]
pub struct Worker {
    /// Async verbs.
    pub port: Rc<EnginePort>,
    /// Requests and replies.
    pub rpc: Rc<Rpc<AnyNic>>,
    /// The scheduler its coroutines run on.
    pub sched: Rc<Sched>,
    qps: Rc<[Box<[Qp]>]>,
}

impl Worker {
    /// Opens the queue pairs of worker `worker` of a node, for a cluster of `nodes` nodes.
    ///
    /// # Errors
    /// When the fabric refuses a queue pair or a region.
    pub fn open(
        nic: AnyNic,
        config: &WorkerConfig,
        nodes: u16,
        worker: u16,
    ) -> Result<(Worker, Card), SetupError> {
        let reach = config.reach(nic.node(), nodes);
        let arena = Region::new(config.arena_bytes(reach) as usize);
        let lkey = nic.register(&arena, Access::LOCAL)?.lkey;
        let mut qps: Vec<Box<[Qp]>> = Vec::new();
        // Without one-sided verbs there is nothing to do on a connection: messages go over the RPC endpoint's datagrams.
        let lanes = if nic.caps().one_sided { config.lanes } else { 0 };
        for _ in 0..reach {
            // A card that takes fewer READs at a time is slower, and no reason not to run.
            let max_rd_atomic = config.qp.max_rd_atomic.min(nic.caps().max_rd_atomic);
            let qp = QpConfig { max_rd_atomic, ..config.qp };
            qps.push((0..lanes).map(|_| nic.create_qp(&qp)).collect::<Result<_, _>>()?);
        }
        let sched = Sched::new();
        let port = Rc::new(Port::new(nic, sched.clone(), BufPool::new(arena, lkey), config.port));
        for (node, lanes) in qps.iter().enumerate() {
            for &qp in lanes {
                port.add_route(NodeId(node as u16), qp, config.qp.send_depth);
            }
        }
        let rpc = Rc::new(Rpc::new(port.clone(), config.rpc, worker, usize::from(reach))?);
        let address = |qp: &Qp| port.nic().address(*qp);
        let connected = qps.iter().map(|lanes| lanes.iter().map(address).collect()).collect();
        let card = Card { fabric: port.nic().card(), connected, rpc: rpc.address() };
        Ok((Worker { port, rpc, sched, qps: qps.into() }, card))
    }

    /// Connected queue pairs of this worker, those to its own node included where there are any.
    pub fn queue_pairs(&self) -> usize {
        self.qps.iter().map(|lanes| lanes.len()).sum()
    }

    /// How many nodes it reaches, from node 0 on.
    pub(crate) fn reach(&self) -> usize {
        self.qps.len()
    }

    /// Connected queue pairs to each node.
    pub fn lanes(&self) -> u32 {
        self.qps.first().map_or(0, |lanes| lanes.len() as u32)
    }

    /// The connected queue pairs to a node.
    pub(crate) fn pairs_to(&self, node: NodeId) -> &[Qp] {
        self.qps.get(node.index()).map_or(&[], |lanes| lanes)
    }

    /// Connects to the same-numbered workers of all nodes that it reaches, whose cards are in node order; those after them are of no use
    /// here.
    ///
    /// # Errors
    /// When the fabric refuses a connection.
    pub fn connect(&self, cards: &[Card]) -> Result<(), SetupError> {
        let me = self.port.nic().node();
        let cards = &cards[..cards.len().min(self.qps.len())];
        for (node, card) in cards.iter().enumerate() {
            self.port.nic().introduce(NodeId(node as u16), &card.fabric)?;
        }
        for (card, lanes) in cards.iter().zip(self.qps.iter()) {
            let addresses = card.connected.get(me.index()).map_or(&[][..], Vec::as_slice);
            for (&address, &qp) in addresses.iter().zip(lanes) {
                self.port.nic().connect(qp, Some(address))?;
            }
            self.rpc.open(card.rpc);
        }
        Ok(())
    }
}
