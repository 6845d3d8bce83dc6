//! Work requests: what a program can ask of a NIC.
//!
//! The vocabulary is that of the InfiniBand architecture specification, chapter 10, and of
//! `ibv_post_send(3)`. It departs from libibverbs in two places. A request has one scatter/gather element,
//! because nothing here needs more. And memory is named by an offset into a registered region (a zero-based
//! region in the specification's words) rather than by a virtual address, so that a location means the same
//! on every fabric.

/// A machine (or logical node) of the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
#[serde(transparent)]
pub struct NodeId(pub u16);

impl NodeId {
    /// The node's number as an index.
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}

impl std::fmt::Display for NodeId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "node {}", self.0)
    }
}

/// A queue pair. The context that made it names it by this; peers name it by the number that its [`QpAddress`](super::QpAddress)
/// tells, which is unique within its node, and so do [`AddressHandle`]s and the senders of datagrams.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Qp(pub u32);

/// Names a region to the node that registered it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Lkey(pub u32);

/// Names a region to other nodes; whoever holds it may use the region as its access flags allow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(transparent)]
pub struct Rkey(pub u32);

/// A stretch of local registered memory: the one scatter/gather element of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sge {
    /// The region.
    pub lkey: Lkey,
    /// Bytes from the start of the region.
    pub offset: u64,
    /// Length in bytes.
    pub len: u32,
}

/// A place in some node's registered memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Remote {
    /// The node that owns the memory.
    pub node: NodeId,
    /// The region there.
    pub rkey: Rkey,
    /// Bytes from the start of the region.
    pub offset: u64,
}

impl Remote {
    /// The place `bytes` further on.
    pub fn at(self, bytes: u64) -> Remote {
        Remote { offset: self.offset + bytes, ..self }
    }
}

/// Where a UD datagram goes: the destination's address handle, queue pair number and queue key in one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddressHandle {
    /// Destination node.
    pub node: NodeId,
    /// Destination queue pair number there.
    pub qp: Qp,
    /// Queue key; a datagram whose key differs from the receiver's is dropped silently.
    pub qkey: u32,
}

/// The operation of a work request.
///
/// Laid out as declared, so that all that name remote memory have its key and offset in the same place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Verb {
    /// RDMA READ of `local.len` bytes into local memory. RC only.
    Read {
        /// Source region at the responder.
        rkey: Rkey,
        /// Source offset in bytes.
        offset: u64,
    },
    /// RDMA WRITE of the local bytes. RC and UC.
    Write {
        /// Target region at the responder.
        rkey: Rkey,
        /// Target offset in bytes.
        offset: u64,
    },
    /// SEND of the local bytes into a RECV buffer. All transports; UD needs a destination.
    Send {
        /// Destination, required on UD and refused elsewhere.
        to: Option<AddressHandle>,
        /// Value delivered in the receiver's completion.
        imm: Option<u32>,
    },
    /// RDMA WRITE that also consumes a RECV at the responder and delivers `imm`. RC and UC.
    WriteImm {
        /// Target region at the responder.
        rkey: Rkey,
        /// Target offset in bytes.
        offset: u64,
        /// Value delivered in the responder's completion.
        imm: u32,
    },
    /// Atomic fetch-and-add on one aligned 8-byte word; the old value lands in local memory. RC only.
    FetchAdd {
        /// Target region at the responder.
        rkey: Rkey,
        /// Target offset in bytes, a multiple of 8.
        offset: u64,
        /// Value added, wrapping.
        add: u64,
    },
    /// Atomic compare-and-swap of one aligned 8-byte word; the old value lands in local memory. RC only.
    CompareSwap {
        /// Target region at the responder.
        rkey: Rkey,
        /// Target offset in bytes, a multiple of 8.
        offset: u64,
        /// Value the word must have.
        expect: u64,
        /// Value it then gets.
        swap: u64,
    },
}

impl Verb {
    /// Whether this is READ or an ATOMIC: the verbs that return data, take responder resources
    /// (`max_rd_atomic`) and cannot be inlined.
    pub fn returns_data(&self) -> bool {
        matches!(self, Verb::Read { .. } | Verb::CompareSwap { .. } | Verb::FetchAdd { .. })
    }

    /// The remote memory that a one-sided verb names.
    #[inline]
    pub fn remote(&self) -> Option<(Rkey, u64)> {
        match *self {
            Verb::Read { rkey, offset }
            | Verb::Write { rkey, offset }
            | Verb::WriteImm { rkey, offset, .. }
            | Verb::CompareSwap { rkey, offset, .. }
            | Verb::FetchAdd { rkey, offset, .. } => Some((rkey, offset)),
            Verb::Send { .. } => None,
        }
    }

    /// Whether this is an ATOMIC.
    pub fn is_atomic(&self) -> bool {
        matches!(self, Verb::CompareSwap { .. } | Verb::FetchAdd { .. })
    }

    /// Whether the verb needs a RECV posted at the other side.
    pub fn consumes_recv(&self) -> bool {
        matches!(self, Verb::Send { .. } | Verb::WriteImm { .. })
    }

    /// The verb's short name, as error messages and tables print it.
    pub fn name(&self) -> &'static str {
        match self {
            Verb::Read { .. } => "READ",
            Verb::Write { .. } => "WRITE",
            Verb::WriteImm { .. } => "WRITE_WITH_IMM",
            Verb::Send { .. } => "SEND",
            Verb::CompareSwap { .. } => "CAS",
            Verb::FetchAdd { .. } => "FETCH_ADD",
        }
    }
}

/// Send flags, as in `ibv_post_send(3)`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags {
    /// Ask for a completion. Errors complete with or without it.
    pub signaled: bool,
    /// The NIC takes a copy of the payload while posting, so the buffer is free at once.
    pub inline: bool,
}

/// One send-queue work request. A slice of them is a chain: one doorbell for all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkRequest {
    /// Returned in the completion; the fabric does not look at it.
    pub id: u64,
    /// What to do.
    pub verb: Verb,
    /// Local memory: source of WRITE and SEND, destination of READ and of an ATOMIC's old value.
    pub local: Sge,
    /// Signaling and inlining.
    pub flags: Flags,
}

/// One receive-queue work request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecvRequest {
    /// Returned in the completion.
    pub id: u64,
    /// Where the message lands. On UD its first [`GRH_BYTES`] bytes hold the global routing header.
    pub local: Sge,
}

/// Bytes that UD reserves at the start of each receive buffer (InfiniBand specification, 11.4.1.2).
pub const GRH_BYTES: u32 = 40;
