//! The narrow waist: all that a backend implements, and the closed set of backends.
//!
//! A fabric only posts and polls. Everything asynchronous is written once above it, in
//! [`crate::verbs::port`]. A [`Nic`] value is one worker thread's device context on one node: DrTM+H §3.1
//! shows why threads should not share one.

mod checks;
mod clock;
pub mod loopback;
mod regions;
pub mod sim;
pub mod tcp;
mod ticks;
#[cfg(feature = "verbs")]
pub mod verbs;

pub use ticks::{DeviceClock, Span, Stamped};

use crate::mem::{Access, MemoryKeys, Region};
use crate::units::Nanos;
use crate::verbs::{
    Completion, NodeId, Qp, QpAddress, QpConfig, QpState, RecvRequest, Remote, Transport, WorkRequest,
};

/// How far a fabric's atomics reach (`ibv_query_device(3)`, `atomic_cap`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AtomicScope {
    /// No atomics.
    None,
    /// Atomic among requests of the same NIC only; CPU stores and CPU atomics may be lost between its read
    /// and its write.
    Nic,
    /// Atomic with everything, CPU included.
    Global,
}

/// What a fabric can do. Plans are checked against it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caps {
    /// The fabric's name as the command line knows it, `sim:cx4-edr` for example.
    pub fabric: String,
    /// READ, WRITE and ATOMIC exist.
    pub one_sided: bool,
    /// Reach of atomics.
    pub atomic_scope: AtomicScope,
    /// Whether a CAS that finds another value may store the value that it found, and so undo a WRITE of the word that came in between. The
    /// InfiniBand specification promises that ATOMICs are atomic among themselves and says nothing of WRITEs. Cards store nothing where the
    /// comparison fails. Soft-RoCE stored what it had read until Linux 6.3 (`rxe_mr_do_atomic_op`). There, whoever holds a word that others
    /// ask for by CAS has to change it by an ATOMIC, too.
    pub failed_cas_stores: bool,
    /// Largest send queue, in work requests.
    pub max_send_depth: u32,
    /// Largest receive queue, in work requests.
    pub max_recv_depth: u32,
    /// Largest inline payload in bytes, and so the largest that a port inlines: a profile's `max_inline`, and of a device what it granted
    /// of what it was asked for ([`INLINE_USUAL`] unless told otherwise).
    pub max_inline: u32,
    /// Most READs and ATOMICs in flight per queue pair.
    pub max_rd_atomic: u32,
    /// Largest datagram payload in bytes.
    pub ud_mtu: u32,
    /// Whether a card carries requests out, beside the core that posts them, or a simulated one does. Elsewhere cores do it: on shared
    /// memory, in the kernel's sockets, and in drivers that have no hardware.
    pub card: bool,
    /// Whether time is virtual: results are simulated, not measured.
    pub virtual_time: bool,
}

/// Bytes that are inlined where nobody says: the threshold of DrTM+H (OSDI 2018) §3.1.
pub const INLINE_USUAL: u32 = 64;

/// Why a post was refused; nothing of the chain from the refused request on was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PostError {
    /// The queue has no room for the request.
    #[error("queue pair {qp}: queue of depth {depth} is full", qp = .qp.0)]
    QueueFull {
        /// The queue pair.
        qp: Qp,
        /// Its depth in work requests.
        depth: u32,
    },
    /// The queue pair is not connected.
    #[error("queue pair {qp}: cannot post in state {state:?}", qp = .qp.0)]
    NotReady {
        /// The queue pair.
        qp: Qp,
        /// Its state.
        state: QpState,
    },
    /// The transport does not carry the verb.
    #[error("queue pair {qp}: {verb} is not a verb of {transport:?} queue pairs", qp = .qp.0)]
    Unsupported {
        /// The queue pair.
        qp: Qp,
        /// The verb's name.
        verb: &'static str,
        /// The queue pair's transport.
        transport: Transport,
    },
    /// An ATOMIC brings back one word.
    #[error("queue pair {qp}: an ATOMIC leaves 8 B in its buffer, and this one is given {len}", qp = .qp.0)]
    AtomicLength {
        /// The queue pair.
        qp: Qp,
        /// Bytes that it is given.
        len: u32,
    },
    /// The payload is too long to be inlined, or the verb returns data.
    #[error("queue pair {qp}: cannot inline {len} B, the limit is {max} B and only WRITE and SEND inline", qp = .qp.0)]
    Inline {
        /// The queue pair.
        qp: Qp,
        /// Bytes asked for.
        len: u32,
        /// The fabric's limit.
        max: u32,
    },
    /// The fabric carries messages only.
    #[error("queue pair {qp}: {verb} needs RDMA, this fabric carries messages only", qp = .qp.0)]
    Messages {
        /// The queue pair.
        qp: Qp,
        /// The verb's name.
        verb: &'static str,
    },
    /// A datagram without a destination, or a destination on a connected queue pair.
    #[error("queue pair {qp}: a UD SEND needs an address handle, others must not have one", qp = .qp.0)]
    Destination {
        /// The queue pair.
        qp: Qp,
    },
    /// The device or its driver refused, for a reason of its own; or no way is known to where a datagram is to go.
    #[error("queue pair {qp}: the device refused a request with error {errno}", qp = .qp.0)]
    Device {
        /// The queue pair.
        qp: Qp,
        /// The operating system's error number.
        errno: i32,
        /// How many requests of the chain were taken before.
        taken: u32,
    },
    /// No queue pair of that number belongs to this context.
    #[error("no queue pair {qp} in this context", qp = .qp.0)]
    UnknownQp {
        /// The number.
        qp: Qp,
    },
}

/// Why set-up failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SetupError {
    /// A limit of the fabric was passed.
    #[error("{what}: asked for {asked}, {fabric} allows {limit}")]
    Limit {
        /// What was asked for.
        what: &'static str,
        /// How much.
        asked: u64,
        /// How much there may be.
        limit: u64,
        /// The fabric's name.
        fabric: String,
    },
    /// A call to the device's library failed.
    #[error("{call} failed on {device}: {reason}{hint}")]
    Device {
        /// The call.
        call: &'static str,
        /// The device.
        device: String,
        /// The operating system's message.
        reason: String,
        /// What to do about it, with its own separator; may be empty.
        hint: String,
    },
    /// The system did not give what was asked for.
    #[error("{0}")]
    System(String),
    /// A node, queue pair or transport that does not fit the request.
    #[error("{0}")]
    Invalid(String),
}

impl SetupError {
    /// Whether this machine lacks something, as against a request that no machine could grant.
    pub fn is_machines(&self) -> bool {
        matches!(self, SetupError::Device { .. } | SetupError::System(_))
    }
}

/// Work a core does between verbs, charged to its clock where time is virtual.
///
/// Charged where it happens: by the executor, the port, the RPC layer and benchmarks here, by phase operations and the log above them, and by the
/// session and CALVIN's schedule in the engine. Costs come from the CPU profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CpuWork {
    /// One look at an empty completion queue.
    Poll,
    /// One completion taken from the queue and routed.
    Completion,
    /// One work request built.
    Request,
    /// One doorbell rung; the chain's requests are charged on their own.
    Doorbell,
    /// Payload bytes copied into a request.
    Inline(u32),
    /// One coroutine resumed.
    Resume,
    /// One RPC message decoded and routed.
    RpcDecode,
    /// One RPC handler called; what it does is charged on its own.
    RpcDispatch,
    /// One RPC message encoded.
    RpcEncode,
    /// Bytes copied by the store or the workload.
    Copy(u32),
    /// One look at an index bucket, a record or a cache entry.
    Probe,
    /// One attempt of a transaction begun and ended, beside its phases.
    Attempt,
    /// One record entered in the read and write set of an attempt.
    Access,
    /// Application work, declared in nanoseconds.
    Think(Nanos),
}

/// One worker thread's device context.
pub trait Nic {
    /// What the fabric can do.
    fn caps(&self) -> &Caps;

    /// The node this context belongs to.
    fn node(&self) -> NodeId;

    /// Registers memory with the node's device. Keys are valid for every context of the node.
    ///
    /// # Errors
    /// When the fabric's limit of regions is reached.
    fn register(&self, region: &Region, access: Access) -> Result<MemoryKeys, SetupError>;

    /// Withdraws a registration: requests of other nodes that name it fail from now on, and those of this context. Another context
    /// of the node that has used the region keeps its memory until it needs the place for a new one, and may still send from it.
    fn deregister(&self, keys: MemoryKeys);

    /// Creates a queue pair whose completions arrive at this context.
    ///
    /// # Errors
    /// When a depth is zero or over the fabric's limits.
    fn create_qp(&self, config: &QpConfig) -> Result<Qp, SetupError>;

    /// The address peers connect or send to.
    fn address(&self, qp: Qp) -> QpAddress;

    /// What peers in other processes need to reach this context, beside the addresses of its queue pairs: bytes of the
    /// fabric's own, handed to their [`Nic::introduce`].
    fn card(&self) -> Vec<u8> {
        Vec::new()
    }

    /// Learns a peer context's card, before anything is connected or sent to it.
    ///
    /// # Errors
    /// If the card is not this fabric's, or the peer cannot be reached.
    fn introduce(&self, _peer: NodeId, _card: &[u8]) -> Result<(), SetupError> {
        Ok(())
    }

    /// A peer found gone since the last call, where a fabric notices without being asked.
    #[inline]
    fn lost(&self) -> Option<NodeId> {
        None
    }

    /// The number of this context's port if it is down now, where there is one. For whoever has failed: it asks the device.
    fn port_down(&self) -> Option<u8> {
        None
    }

    /// Whether a poll looks at memory alone. Where it enters the kernel it takes from those who would have something to do.
    fn polls_memory(&self) -> bool {
        true
    }

    /// Whether requests have mostly ended when they have been posted, so that whoever waits for one may look before it gives its core
    /// away. Where a card carries them out, such a look finds nothing.
    fn ends_in_post(&self) -> bool {
        false
    }

    /// What the device has stamped with its own time so far, where it was asked to and does.
    #[inline]
    fn stamped(&self) -> Option<Stamped> {
        None
    }

    /// Connects an RC or UC queue pair to `peer`, or activates a UD queue pair (`peer` is ignored).
    ///
    /// # Errors
    /// When either end does not exist or transports differ.
    fn connect(&self, qp: Qp, peer: Option<QpAddress>) -> Result<(), SetupError>;

    /// State of a queue pair.
    fn qp_state(&self, qp: Qp) -> QpState;

    /// Takes a queue pair out of the error state, empty and still connected.
    fn reset_qp(&self, qp: Qp);

    /// Posts a chain of requests with one doorbell. A fabric without a device of its own may carry them out at the
    /// next poll.
    ///
    /// # Errors
    /// Names the first request that was refused; requests before it were taken.
    fn post(&self, qp: Qp, chain: &[WorkRequest]) -> Result<(), PostError>;

    /// Posts a request by itself. Where a fabric's usual way is a part of whoever posts, the request is never written to memory;
    /// for that, other ways take a copy of it.
    ///
    /// # Errors
    /// If it was refused.
    #[inline(always)]
    fn post_one(&self, qp: Qp, request: &WorkRequest) -> Result<(), PostError> {
        self.post(qp, &[*request])
    }

    /// Posts receives.
    ///
    /// # Errors
    /// When the receive queue is full.
    fn post_recv(&self, qp: Qp, chain: &[RecvRequest]) -> Result<(), PostError>;

    /// Takes what has completed, in order per queue pair, at most `max` entries; never blocks. Where many have, some may be left
    /// for the next call.
    fn poll(&self, max: usize, sink: impl FnMut(Completion)) -> usize;

    /// The completion that [`Nic::poll`] will give next, where it is known before its time: whoever shares a real core
    /// with thousands of simulated ones reads ahead what it will need. Says nothing about what has completed.
    #[inline]
    fn expected(&self) -> Option<Completion> {
        None
    }

    /// Says that something will be posted on a queue pair before long. Whoever shares a real core with thousands of
    /// simulated ones has it brought near meanwhile.
    #[inline]
    fn ahead(&self, _qp: Qp) {}

    /// Says that `len` bytes from `at` on will be asked for on a queue pair before long. Whoever posts on a fabric that executes
    /// requests as they are posted has them brought near meanwhile; a NIC is told nothing.
    #[inline]
    fn ahead_of(&self, _qp: Qp, _at: Remote, _len: u64) {}

    /// The core's time.
    fn now(&self) -> Nanos;

    /// A time no later than the memory effects of what the core does from here on. Where the core's clock may run
    /// ahead of the event it handles, this is the event's time: transactions that begin are stamped with it and
    /// those that end with [`Nic::now`], so that effects always lie between.
    #[inline]
    fn event_time(&self) -> Nanos {
        self.now()
    }

    /// Charges work to the core's clock. On real hardware real time pays.
    #[inline]
    fn charge(&self, _work: CpuWork) {}

    /// Asks to be driven again at `at`, where somebody else decides when a core runs.
    #[inline]
    fn wake_at(&self, _at: Nanos) {}
}

/// The closed set of backends. Above the port everything is written for this one type.
///
/// Its tag is a byte of its own: one hidden among a backend's values takes three instructions to decode each time.
#[repr(u8)]
pub enum AnyNic {
    /// Real threads on shared memory.
    Loopback(loopback::LoopbackNic),
    /// Discrete events in virtual time.
    Sim(sim::SimNic),
    /// Datagrams over sockets.
    Tcp(tcp::TcpNic),
    /// A real device.
    #[cfg(feature = "verbs")]
    Verbs(verbs::VerbsNic),
}

/// Does the same with whichever backend it is.
macro_rules! each {
    ($any:expr, $nic:ident => $call:expr) => {
        match $any {
            AnyNic::Loopback($nic) => $call,
            AnyNic::Sim($nic) => $call,
            AnyNic::Tcp($nic) => $call,
            #[cfg(feature = "verbs")]
            AnyNic::Verbs($nic) => $call,
        }
    };
}
pub(crate) use each;

impl Nic for AnyNic {
    #[inline]
    fn caps(&self) -> &Caps {
        each!(self, nic => nic.caps())
    }
    #[inline]
    fn node(&self) -> NodeId {
        each!(self, nic => nic.node())
    }
    fn register(&self, region: &Region, access: Access) -> Result<MemoryKeys, SetupError> {
        each!(self, nic => nic.register(region, access))
    }
    fn deregister(&self, keys: MemoryKeys) {
        each!(self, nic => nic.deregister(keys))
    }
    fn create_qp(&self, config: &QpConfig) -> Result<Qp, SetupError> {
        each!(self, nic => nic.create_qp(config))
    }
    fn address(&self, qp: Qp) -> QpAddress {
        each!(self, nic => nic.address(qp))
    }
    fn card(&self) -> Vec<u8> {
        each!(self, nic => nic.card())
    }
    fn introduce(&self, peer: NodeId, card: &[u8]) -> Result<(), SetupError> {
        each!(self, nic => nic.introduce(peer, card))
    }
    #[inline]
    fn lost(&self) -> Option<NodeId> {
        each!(self, nic => nic.lost())
    }
    fn port_down(&self) -> Option<u8> {
        each!(self, nic => nic.port_down())
    }
    fn polls_memory(&self) -> bool {
        each!(self, nic => nic.polls_memory())
    }
    fn ends_in_post(&self) -> bool {
        each!(self, nic => nic.ends_in_post())
    }
    #[inline]
    fn stamped(&self) -> Option<Stamped> {
        each!(self, nic => nic.stamped())
    }
    fn connect(&self, qp: Qp, peer: Option<QpAddress>) -> Result<(), SetupError> {
        each!(self, nic => nic.connect(qp, peer))
    }
    fn qp_state(&self, qp: Qp) -> QpState {
        each!(self, nic => nic.qp_state(qp))
    }
    fn reset_qp(&self, qp: Qp) {
        each!(self, nic => nic.reset_qp(qp))
    }
    #[inline]
    fn post(&self, qp: Qp, chain: &[WorkRequest]) -> Result<(), PostError> {
        each!(self, nic => nic.post(qp, chain))
    }
    #[inline(always)]
    fn post_one(&self, qp: Qp, request: &WorkRequest) -> Result<(), PostError> {
        each!(self, nic => nic.post_one(qp, request))
    }
    #[inline]
    fn post_recv(&self, qp: Qp, chain: &[RecvRequest]) -> Result<(), PostError> {
        each!(self, nic => nic.post_recv(qp, chain))
    }
    #[inline]
    fn poll(&self, max: usize, sink: impl FnMut(Completion)) -> usize {
        each!(self, nic => nic.poll(max, sink))
    }
    #[inline]
    fn expected(&self) -> Option<Completion> {
        each!(self, nic => nic.expected())
    }
    #[inline]
    fn ahead(&self, qp: Qp) {
        each!(self, nic => nic.ahead(qp))
    }
    #[inline]
    fn ahead_of(&self, qp: Qp, at: Remote, len: u64) {
        each!(self, nic => nic.ahead_of(qp, at, len))
    }
    #[inline]
    fn now(&self) -> Nanos {
        each!(self, nic => nic.now())
    }
    #[inline]
    fn event_time(&self) -> Nanos {
        each!(self, nic => nic.event_time())
    }
    #[inline]
    fn charge(&self, work: CpuWork) {
        each!(self, nic => nic.charge(work))
    }
    #[inline]
    fn wake_at(&self, at: Nanos) {
        each!(self, nic => nic.wake_at(at))
    }
}
