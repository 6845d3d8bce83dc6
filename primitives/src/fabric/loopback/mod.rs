//! Loopback: logical nodes in one process, real threads, shared memory.
//!
//! The posting thread executes each request itself, on the target's atomic words, before `post` returns; the
//! completion waits in the context's queue for the next poll. So there is no NIC thread to wait for, and the
//! fabric doubles as a fast shared-memory engine on one machine. Semantics are those of verbs: queue-pair
//! states, key, bounds and permission checks, receiver-not-ready, datagram loss, flushes. What it cannot show
//! is time: a request takes as long as its memory accesses. It shows fewer reorderings than hardware may, which
//! is why [`Mode::NicThread`] exists: there a separate thread executes requests word by word, with seeded
//! delays and in any order across queue pairs.
//!
//! Atomics are CPU atomics, so their scope is [`AtomicScope::Global`].

mod context;
mod done;
mod execute;
mod nic_thread;
mod recv_ring;
#[cfg(test)]
mod tests;

pub use context::LoopbackNic;

use super::clock::Clock;
use super::regions::Regions;
use super::{AtomicScope, Caps, INLINE_USUAL};
use crate::verbs::{NodeId, Qp, QpConfig};
use nic_thread::NicThread;
use recv_ring::RecvRing;
use std::collections::VecDeque;
use std::sync::atomic::{self, AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

/// Contexts a node can open, and queue pairs a context can hold: together the 24 bits of a queue pair number.
const MAX_CONTEXTS: usize = 1 << 10;
const MAX_QPS: usize = 1 << 12;
const QP_BITS: u32 = 12;

/// Who executes requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// The thread that posts, before `post` returns.
    PostingThread,
    /// One thread for the whole fabric, with delays and an order across queue pairs drawn from `seed`.
    NicThread {
        /// Seed of delays and order.
        seed: u64,
    },
}

/// How the fabric behaves.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Options {
    /// Who executes requests.
    pub mode: Mode,
    /// Probability that a datagram is lost, beyond those for which no RECV is posted.
    pub datagram_loss: f64,
    /// Seed of losses and keys.
    pub seed: u64,
}

impl Default for Options {
    fn default() -> Options {
        Options { mode: Mode::PostingThread, datagram_loss: 0.0, seed: 1 }
    }
}

/// A fabric of logical nodes. Cloning shares it.
#[derive(Clone)]
pub struct Loopback {
    shared: Arc<Shared>,
}

struct Shared {
    nodes: Box<[Arc<Node>]>,
    options: Options,
    caps: Caps,
    clock: Clock,
    nic_thread: OnceLock<NicThread>,
}

struct Node {
    regions: Regions,
    contexts: Box<[OnceLock<Arc<ContextShared>>]>,
    context_count: AtomicUsize,
    alive: AtomicBool,
}

/// The part of a context that other threads reach.
struct ContextShared {
    node: NodeId,
    number: u32,
    qps: Box<[OnceLock<Arc<SharedQp>>]>,
    qp_count: AtomicU32,
    /// Completions from the NIC thread, and how many there are so that an empty queue costs one load.
    from_nic: Mutex<VecDeque<done::Done>>,
    from_nic_len: AtomicUsize,
}

struct SharedQp {
    number: Qp,
    node: NodeId,
    config: QpConfig,
    end: Arc<End>,
    peer: OnceLock<Peer>,
    recv: RecvRing,
    /// How often the queue pair was reset. What was posted before the last time comes to nothing.
    resets: AtomicU32,
    /// Held by the NIC thread while it works on a request, and by whoever resets the queue pair.
    working: Mutex<()>,
}

/// What the other end of a connection looks at before each request: one word, shared without a cycle. It holds the state
/// and, once connected, the connected queue pair as [`End::name`] packs it.
#[derive(Default)]
struct End(AtomicU64);

/// The other end of a connection.
struct Peer {
    node: NodeId,
    qp: Qp,
    end: Arc<End>,
}

impl End {
    /// Where the state is.
    const STATE: u32 = 48;

    /// A queue pair's name, not zero and clear of the state.
    fn name(node: NodeId, qp: Qp) -> u64 {
        1 << 63 | u64::from(node.0) << 32 | u64::from(qp.0)
    }

    /// What the end of the queue pair's peer holds while it runs.
    fn running(name: u64) -> u64 {
        u64::from(STATE_READY) << Self::STATE | name
    }

    #[inline]
    fn state(&self) -> u8 {
        (self.0.load(Ordering::Acquire) >> Self::STATE) as u8 & 3
    }

    fn set_state(&self, state: u8) {
        let with = |word: u64| word & !(3 << Self::STATE) | u64::from(state) << Self::STATE;
        let _ = self.0.fetch_update(Ordering::AcqRel, Ordering::Relaxed, |word| Some(with(word)));
    }

    /// Connects the end, once, to the queue pair of that name.
    fn connect_to(&self, name: u64) {
        self.0.fetch_or(name, Ordering::AcqRel);
    }

    /// Whether the end is connected to a queue pair and runs, see [`End::running`].
    #[inline(always)]
    fn holds(&self, running: u64) -> bool {
        self.0.load(Ordering::Acquire) == running
    }
}

const STATE_INIT: u8 = 0;
const STATE_READY: u8 = 1;
const STATE_ERROR: u8 = 2;

impl Loopback {
    /// A fabric of `nodes` logical nodes.
    ///
    /// # Panics
    /// If `nodes` is zero.
    pub fn new(nodes: u16, options: Options) -> Loopback {
        assert!(nodes > 0, "a fabric has at least one node");
        let shared = Arc::new(Shared {
            nodes: (0..nodes).map(|_| Arc::new(Node::new())).collect(),
            options,
            caps: Caps {
                fabric: "loopback".into(),
                one_sided: true,
                atomic_scope: AtomicScope::Global,
                failed_cas_stores: false,
                max_send_depth: 1 << 15,
                max_recv_depth: 1 << 15,
                max_inline: INLINE_USUAL,
                max_rd_atomic: 16,
                ud_mtu: 4096,
                card: false,
                virtual_time: false,
            },
            clock: Clock::start(),
            nic_thread: OnceLock::new(),
        });
        if let Mode::NicThread { seed } = options.mode {
            let thread = NicThread::start(Arc::downgrade(&shared), seed);
            assert!(shared.nic_thread.set(thread).is_ok(), "the fabric was just made");
        }
        Loopback { shared }
    }

    /// A device context on `node` for one worker thread.
    ///
    /// # Panics
    /// If the node does not exist or has no room for another context.
    pub fn context(&self, node: NodeId) -> LoopbackNic {
        LoopbackNic::open(self.shared.clone(), node)
    }

    /// Nodes of the fabric.
    pub fn nodes(&self) -> u16 {
        self.shared.nodes.len() as u16
    }

    /// Waits until nothing that was posted is under way any more: executed, and its completion in its queue. What finds no RECV
    /// and may wait for one for ever counts as done. For tests, which can then tell what does not happen from what has not
    /// happened yet. Returns false if all of that is not so `within` that time. In [`Mode::PostingThread`] a post has done all that
    /// it ever will when it returns, and so does this.
    pub fn settle(&self, within: Duration) -> bool {
        self.shared.nic_thread.get().is_none_or(|thread| thread.settle(within))
    }

    /// Kills a node: requests to it fail with "retry counter exceeded" from now on.
    pub fn kill(&self, node: NodeId) {
        self.shared.nodes[node.index()].alive.store(false, Ordering::Release);
    }
}

impl Node {
    fn new() -> Node {
        Node {
            regions: Regions::default(),
            contexts: std::iter::repeat_with(OnceLock::new).take(MAX_CONTEXTS).collect(),
            context_count: AtomicUsize::new(0),
            alive: AtomicBool::new(true),
        }
    }

    fn qp(&self, qp: Qp) -> Option<&Arc<SharedQp>> {
        let context = self.contexts.get((qp.0 >> QP_BITS) as usize)?.get()?;
        context.qps.get(qp.0 as usize & (MAX_QPS - 1))?.get()
    }
}
