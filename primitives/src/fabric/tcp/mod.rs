//! TCP: datagram queue pairs over sockets. Two-sided only, the papers' baseline without RDMA.
//!
//! What the RPC layer needs of a NIC is SEND and RECV of datagrams, so that is what there is: UD queue pairs, whose
//! datagrams travel as frames on TCP streams. READ, WRITE and atomics do not exist, [`Caps`] says so, and plans that ask
//! for them are refused before anything runs.
//!
//! - **One stream per direction.** The sending context opens a stream to the receiving one and proves with the run's
//!   secret that it belongs to the run; nobody reads from a stream without that proof. No thread, no async runtime: the
//!   worker that polls its NIC also accepts, reads and writes, never waiting for any of them.
//! - **A poll is one system call per destination.** Posting copies a chain's frames into a buffer per stream; the next
//!   poll writes what all chains since the last one have left there, then reads. A worker with many coroutines so pays
//!   once a turn for the messages of all of them. What the socket does not take stays and is written at later polls.
//! - **Back-pressure without deadlock.** The buffer is bounded. When it is full, requests stay in the send queue, in
//!   order, and complete later; reading never depends on writing, and a receiver without a posted RECV drops the
//!   datagram, as UD does. So whoever polls makes progress, and streams drain.
//! - **A dead peer is known.** A broken or closed stream fails SENDs to it with
//!   [`RetryExceeded`](crate::verbs::WcStatus::RetryExceeded), and [`Nic::lost`](super::Nic::lost) names the node once.
//!   Unlike on other fabrics that does not take the datagram queue pair, which serves the other peers, into the error
//!   state.
//!
//! Nothing is allocated per message once queues have reached their length.

mod context;
mod stream;

pub use context::TcpNic;

use super::clock::Clock;
use super::regions::Regions;
use super::{AtomicScope, Caps, INLINE_USUAL, SetupError};
use crate::secret::Secret;
use crate::verbs::NodeId;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::atomic::AtomicU32;
use std::sync::{Arc, Mutex};

/// Longest datagram payload: the largest RDMA path MTU, so that plans fit both.
const MTU: u32 = 4096;

/// How the fabric reaches its nodes.
#[derive(Clone, Debug)]
pub struct Options {
    /// The address that contexts listen on, and that peers are told.
    pub host: IpAddr,
    /// The first context of a node listens on this port, the next on the one after it, for networks with firewalls; the
    /// kernel chooses where this is `None`.
    pub first_port: Option<u16>,
    /// What members of the run know and nobody else does.
    pub secret: Secret,
    /// Bytes buffered per stream and direction.
    pub buffer_bytes: usize,
}

impl Default for Options {
    /// Nodes in this process, over 127.0.0.1, with a secret of their own.
    fn default() -> Options {
        Options {
            host: IpAddr::V4(Ipv4Addr::LOCALHOST),
            first_port: None,
            secret: Secret::random(),
            buffer_bytes: 256 << 10,
        }
    }
}

/// A fabric of nodes that reach each other by TCP. Cloning shares it. All its nodes may be in this process, or one of
/// them: the others are then introduced by their cards ([`super::Nic::introduce`]).
#[derive(Clone)]
pub struct TcpFabric {
    shared: Arc<Shared>,
}

struct Shared {
    nodes: Box<[Node]>,
    options: Options,
    caps: Caps,
    clock: Clock,
}

struct Node {
    regions: Regions,
    contexts: AtomicU32,
    /// Contexts of this process: number and how to reach them.
    here: Mutex<Vec<Place>>,
}

/// Where a context listens, and what a stream to it must prove to know.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Place {
    context: u32,
    address: SocketAddr,
    nonce: [u8; 16],
}

impl TcpFabric {
    /// A fabric of `nodes` nodes.
    ///
    /// # Panics
    /// If `nodes` is zero.
    pub fn new(nodes: u16, options: Options) -> TcpFabric {
        assert!(nodes > 0, "a fabric has at least one node");
        let node =
            || Node { regions: Regions::default(), contexts: AtomicU32::new(0), here: Mutex::default() };
        let nodes = std::iter::repeat_with(node).take(usize::from(nodes)).collect();
        let shared = Shared { nodes, options, caps: TcpFabric::caps(), clock: Clock::start() };
        TcpFabric { shared: Arc::new(shared) }
    }

    /// What the fabric can do.
    pub fn caps() -> Caps {
        Caps {
            fabric: "tcp".into(),
            one_sided: false,
            atomic_scope: AtomicScope::None,
            failed_cas_stores: false,
            max_send_depth: 1 << 15,
            max_recv_depth: 1 << 15,
            max_inline: INLINE_USUAL,
            max_rd_atomic: 0,
            ud_mtu: MTU,
            card: false,
            virtual_time: false,
        }
    }

    /// A device context on `node` for one worker thread.
    ///
    /// # Errors
    /// If there is no such node, or it cannot listen.
    pub fn context(&self, node: NodeId) -> Result<TcpNic, SetupError> {
        TcpNic::open(self.shared.clone(), node)
    }
}

impl Shared {
    fn regions(&self, node: NodeId) -> &Regions {
        &self.nodes[node.index()].regions
    }
}
