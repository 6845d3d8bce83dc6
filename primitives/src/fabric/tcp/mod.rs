//! TCP: datagram queue pairs over sockets. Two-sided only, the papers' baseline without RDMA.
//!
//! What the RPC layer needs of a NIC is SEND and RECV of datagrams, so that is what there is: UD queue pairs, whose
//! datagrams travel as frames on TCP streams. READ, WRITE and atomics do not exist, [`Caps`] says so, and plans that ask
//! for them are refused before anything runs.
//!
//! - **One stream per direction.** The sending context opens a stream to the receiving one and proves with the run's
//!   secret that it belongs to the run; nobody reads from a stream without that proof. No thread, no async runtime: the
//!   worker that polls its NIC also accepts, reads and writes, never waiting for any of them.
//! - **A doorbell is one system call per destination.** A chain's frames are copied into a buffer per stream, then
//!   written at once. What the socket does not take stays there and is written at later polls.
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

use super::{AtomicScope, Caps, SetupError};
use crate::mem::{Access, MemoryKeys, Region};
use crate::secret::Secret;
use crate::verbs::{Lkey, NodeId, Rkey, Sge};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

/// Longest datagram payload: the largest RDMA path MTU, so that plans fit both.
const MTU: u32 = 4096;
const MAX_REGIONS: usize = 1 << 12;

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
    clock: quanta::Clock,
    started: quanta::Instant,
}

struct Node {
    regions: Box<[OnceLock<Registered>]>,
    region_count: AtomicUsize,
    contexts: AtomicU32,
    /// Contexts of this process: number and how to reach them.
    here: Mutex<Vec<Place>>,
}

struct Registered {
    region: Region,
    lkey: u32,
    live: AtomicBool,
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
        let clock = quanta::Clock::new();
        let node = || Node {
            regions: std::iter::repeat_with(OnceLock::new).take(MAX_REGIONS).collect(),
            region_count: AtomicUsize::new(0),
            contexts: AtomicU32::new(0),
            here: Mutex::default(),
        };
        let nodes = std::iter::repeat_with(node).take(usize::from(nodes)).collect();
        let started = clock.now();
        TcpFabric { shared: Arc::new(Shared { nodes, options, caps: TcpFabric::caps(), started, clock }) }
    }

    /// What the fabric can do.
    pub fn caps() -> Caps {
        Caps {
            fabric: "tcp".into(),
            one_sided: false,
            atomic_scope: AtomicScope::None,
            max_send_depth: 1 << 15,
            max_recv_depth: 1 << 15,
            max_inline: 256,
            max_rd_atomic: 0,
            ud_mtu: MTU,
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
    fn register(&self, node: NodeId, region: &Region, _: Access) -> Result<MemoryKeys, SetupError> {
        let home = &self.nodes[node.index()];
        let index = home.region_count.fetch_add(1, Ordering::AcqRel);
        let Some(slot) = home.regions.get(index) else {
            return Err(SetupError::Limit {
                what: "registered regions of one node",
                asked: index as u64 + 1,
                limit: MAX_REGIONS as u64,
                fabric: self.caps.fabric.clone(),
            });
        };
        // The upper bits tell a stale key from a live one. Nobody else ever sees it: there is no one-sided access.
        let lkey = 0x7c90_0000 | index as u32;
        let fresh =
            slot.set(Registered { region: region.clone(), lkey, live: AtomicBool::new(true) }).is_ok();
        debug_assert!(fresh, "region numbers are drawn once");
        Ok(MemoryKeys { lkey: Lkey(lkey), rkey: Rkey(0) })
    }

    fn deregister(&self, node: NodeId, keys: MemoryKeys) {
        if let Some(entry) = self.registered(node, keys.lkey) {
            entry.live.store(false, Ordering::Release);
        }
    }

    fn registered(&self, node: NodeId, key: Lkey) -> Option<&Registered> {
        let entry = self.nodes[node.index()].regions.get((key.0 & 0xfff) as usize)?.get()?;
        (entry.lkey == key.0 && entry.live.load(Ordering::Acquire)).then_some(entry)
    }

    #[inline]
    fn local(&self, node: NodeId, sge: Sge) -> Option<&Region> {
        let entry = self.registered(node, sge.lkey)?;
        entry.region.holds(sge.offset, u64::from(sge.len)).then_some(&entry.region)
    }
}
