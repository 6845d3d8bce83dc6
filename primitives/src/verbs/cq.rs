//! Completions and what can go wrong with a request, after `ibv_poll_cq(3)`.

use super::work::{NodeId, Qp};

/// What a completion completes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WcOpcode {
    /// A request of the send queue.
    SendQueue,
    /// A receive that took a SEND.
    Recv,
    /// A receive that took a WRITE_WITH_IMM.
    RecvRdmaWithImm,
}

/// Outcome of a request. Anything but `Success` moves the queue pair to the error state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum WcStatus {
    /// Done.
    #[error("success")]
    Success,
    /// The message is longer than the receive buffer, or a datagram longer than the MTU.
    #[error("local length error: the message does not fit the buffer or the path MTU")]
    LocalLength,
    /// The local key is unknown, revoked, or the range leaves its region.
    #[error("local protection error: the local key or range is not valid")]
    LocalProtection,
    /// The device could not carry the request out, for a reason that is neither the request's memory nor its peer: no way leads
    /// from its port to the peer any more, for example.
    #[error("local operation error: the device could not carry the request out")]
    LocalOperation,
    /// The request failed, or was flushed behind one that did, and the port of this number is down here.
    #[error("port {0} of the device here is DOWN, or not active yet, or the device is gone")]
    PortDown(u8),
    /// The queue pair was in the error state before the request was processed.
    #[error("flushed: the queue pair went into error before this request ran")]
    Flushed,
    /// The responder found the request malformed, an atomic's address unaligned for example.
    #[error("remote invalid request: the responder refused the request as malformed")]
    RemoteInvalidRequest,
    /// The remote key is unknown or revoked, the range leaves its region, or access is not granted.
    #[error("remote access error: the remote key, range or permission is not valid")]
    RemoteAccess,
    /// The responder failed to process the request.
    #[error("remote operation error: the responder could not process the request")]
    RemoteOperation,
    /// No acknowledgement after all transport retries: the peer is gone or the path is down.
    #[error("transport retry counter exceeded: the peer does not answer")]
    RetryExceeded,
    /// The responder had no RECV posted after all receiver-not-ready retries.
    #[error("receiver-not-ready retry counter exceeded: the peer posted no receive")]
    RnrRetryExceeded,
    /// The device or the completion queue failed: whether the request ran is unknown, and nothing else will.
    #[error("local fatal error: the device or its completion queue failed")]
    Fatal,
}

/// One completion-queue entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// The id of the completed request.
    pub id: u64,
    /// The queue pair it was posted on.
    pub qp: Qp,
    /// What completed.
    pub opcode: WcOpcode,
    /// Outcome.
    pub status: WcStatus,
    /// Bytes received, header included on UD; valid for receives that succeeded.
    pub byte_len: u32,
    /// Immediate data, if the message carried any.
    pub imm: Option<u32>,
    /// UD receives: sender's node and queue pair.
    pub from: Option<(NodeId, Qp)>,
}
