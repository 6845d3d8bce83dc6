//! Queue pairs: transport, configuration, states and addresses.
//!
//! States follow the InfiniBand specification 10.3.1, folded to those a program can tell apart: a queue
//! pair is created `Init`, connected to `ReadyToSend`, and leaves for `Error` at the first failed request,
//! from where every posted request is flushed until [`crate::fabric::Nic::reset_qp`].

use super::work::{NodeId, Qp};

/// Transport service type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Transport {
    /// Reliable connection: all verbs.
    Rc,
    /// Unreliable connection: SEND and WRITE.
    Uc,
    /// Unreliable datagram: SEND only.
    Ud,
}

impl Transport {
    /// Whether the transport carries the verb (DrTM+H, table 1).
    pub fn supports(self, verb: &super::work::Verb) -> bool {
        use super::work::Verb;
        match self {
            Transport::Rc => true,
            Transport::Uc => !verb.returns_data(),
            Transport::Ud => matches!(verb, Verb::Send { .. }),
        }
    }
}

/// What a queue pair is created with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QpConfig {
    /// Service type.
    pub transport: Transport,
    /// Send queue depth, in work requests.
    pub send_depth: u32,
    /// Receive queue depth, in work requests.
    pub recv_depth: u32,
    /// READs and ATOMICs that this end has in flight; more wait in the send queue. It serves as many of the other end's as its
    /// device can.
    pub max_rd_atomic: u32,
    /// How often a SEND is offered again when the receiver has no RECV posted; 7 means for ever, as in
    /// `ibv_modify_qp(3)`.
    pub rnr_retry: u8,
    /// UD: the queue key a datagram must carry to be received. Zero leaves it to the fabric, which draws one where strangers
    /// can send; [`crate::fabric::Nic::address`] tells it.
    pub qkey: u32,
}

impl QpConfig {
    /// A reliable connection with depths that suit one worker thread.
    pub const fn rc() -> QpConfig {
        QpConfig {
            transport: Transport::Rc,
            send_depth: 256,
            recv_depth: 64,
            max_rd_atomic: 16,
            rnr_retry: 7,
            qkey: 0,
        }
    }

    /// An unreliable connection.
    pub const fn uc() -> QpConfig {
        QpConfig { transport: Transport::Uc, ..QpConfig::rc() }
    }

    /// A datagram queue pair.
    pub const fn ud() -> QpConfig {
        QpConfig { transport: Transport::Ud, send_depth: 512, recv_depth: 1024, ..QpConfig::rc() }
    }
}

/// State of a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QpState {
    /// Created; receives may be posted, sends may not.
    Init,
    /// Connected (or, on UD, activated): sends and receives run.
    ReadyToSend,
    /// A request failed. What is posted completes as flushed.
    Error,
}

/// What a peer needs to reach a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub struct QpAddress {
    /// The node.
    pub node: NodeId,
    /// The queue pair number there.
    pub qpn: u32,
    /// UD queue key; zero elsewhere.
    pub qkey: u32,
}

impl QpAddress {
    /// The address as a datagram destination.
    pub fn handle(self) -> super::work::AddressHandle {
        super::work::AddressHandle { node: self.node, qp: Qp(self.qpn), qkey: self.qkey }
    }
}
