//! Why a point could not be measured, and which points nobody could answer.

use super::load::{ON_CARD_BYTES, asked_bytes, most_addresses};
use super::{BenchVerb, Point, Scope, oracle, payload};
use crate::mesh::{Blame, LaunchError};
use crate::verbs::Transport;

/// Why a point could not be measured.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The cluster could not be set up.
    #[error(transparent)]
    Launch(#[from] LaunchError),
    /// A request failed.
    #[error("a request failed during the load: {0}")]
    Request(String),
    /// A cluster of one node has nobody to ask.
    #[error("primitive benchmarks need at least two nodes, not {0}")]
    Nodes(u16),
    /// Nobody is left to ask.
    #[error("of {nodes} nodes, {servers} cannot all be servers: somebody must ask")]
    Servers {
        /// Nodes of the cluster.
        nodes: u16,
        /// Servers asked for.
        servers: u16,
    },
    /// A call is one datagram.
    #[error("a call carries at most {most} B, not {0}", most = payload::CALL_PAYLOAD_MOST)]
    Payload(u32),
    /// Messages, and calls through rings, have no such setting.
    #[error("{verb} knows no {what}: its messages go into receives, or rings of their own")]
    Unfit {
        /// The verb's name.
        verb: &'static str,
        /// What was asked for.
        what: &'static str,
    },
    /// Such queue pairs do not carry the verb.
    #[error("{verb} does not go over {transport:?} queue pairs")]
    Transport {
        /// The verb's name.
        verb: &'static str,
        /// The transport asked for.
        transport: Transport,
    },
    /// A datagram is one packet.
    #[error("a datagram carries at most {most} B, not {0}", most = payload::DATAGRAM_MOST)]
    Datagram(u32),
    /// Only messages are answered by their like.
    #[error("{0} has no echo: SEND does, and WRITE by a loop without coroutines")]
    Echo(&'static str),
    /// A loop without coroutines does one thing.
    #[error("a loop without coroutines has no {0}")]
    Bare(&'static str),
    /// What a timestamp vector does not have.
    #[error("a timestamp vector has no {0}")]
    Oracle(&'static str),
    /// The card's memory is small.
    #[error("{0} B do not fit into the {ON_CARD_BYTES} B of the card's own memory that are asked for")]
    OnCard(u32),
    /// So many different addresses are not there.
    #[error(
        "{asked} addresses of {payload} B do not fit into the {bytes} B of each node that are asked for; {most} do"
    )]
    Addresses {
        /// Addresses asked for.
        asked: u32,
        /// Payload of each, in bytes.
        payload: u32,
        /// Memory that is asked for, in bytes.
        bytes: u64,
        /// So many fit.
        most: u64,
    },
}

impl LoadError {
    /// Whose matter it is.
    pub fn blame(&self) -> Blame {
        match self {
            LoadError::Launch(launch) => launch.blame(),
            LoadError::Request(_) => Blame::Run,
            _ => Blame::Input,
        }
    }
}

/// Refuses points that nobody could answer.
pub(super) fn check(scope: &Scope, point: &Point) -> Result<(), LoadError> {
    if scope.nodes < 2 && !point.own {
        return Err(LoadError::Nodes(scope.nodes));
    }
    if point.servers >= scope.nodes {
        return Err(LoadError::Servers { nodes: scope.nodes, servers: point.servers });
    }
    if point.verb.is_call() && point.payload > payload::CALL_PAYLOAD_MOST {
        return Err(LoadError::Payload(point.payload));
    }
    if point.on_card && u64::from(point.payload) > ON_CARD_BYTES {
        return Err(LoadError::OnCard(point.payload));
    }
    if u64::from(point.addresses) > most_addresses(point) {
        let (asked, bytes, most) = (point.addresses, asked_bytes(point), most_addresses(point));
        return Err(LoadError::Addresses { asked, payload: point.payload, bytes, most });
    }
    let verb = point.verb.name();
    if !point.verb.goes_over(point.transport) {
        return Err(LoadError::Transport { verb, transport: point.transport });
    }
    if point.transport == Transport::Ud && point.payload > payload::DATAGRAM_MOST {
        return Err(LoadError::Datagram(point.payload));
    }
    let echoed = point.verb == BenchVerb::Send || point.bare && point.verb == BenchVerb::Write;
    if point.echo && !echoed {
        return Err(LoadError::Echo(verb));
    }
    if let Some(what) = point.verb.oracle().and_then(|oracle| oracle::beside(scope, point, oracle)) {
        return Err(LoadError::Oracle(what));
    }
    if let Some(what) = beside_bare(scope, point).filter(|_| point.bare) {
        return Err(LoadError::Bare(what));
    }
    let plain = point.verb == BenchVerb::Send || point.verb.carrier().is_some();
    match beside_messages(point).filter(|_| plain) {
        Some(what) => Err(LoadError::Unfit { verb, what }),
        None => Ok(()),
    }
}

/// What a point asks for that a loop without coroutines does not have.
fn beside_bare(scope: &Scope, point: &Point) -> Option<&'static str> {
    let in_memory = point.echo && point.verb == BenchVerb::Write;
    let one_alone = scope.nodes == 2 && point.threads == 1 && point.coroutines == 1 && point.outstanding == 1;
    let one_peer = point.own || point.servers == 1 || point.servers == 0 && scope.nodes == 2;
    let unfit = [
        (
            point.verb.is_call() || point.verb == BenchVerb::CpuCas || point.verb.oracle().is_some(),
            "calls, no CPU's swaps, and no transactions",
        ),
        (point.rung.is_some(), "step of the optimization ladder"),
        (point.passive, "passive acknowledgement"),
        (point.atomics_percent > 0, "share of ATOMICs"),
        (point.queue_pairs > 1, "second queue pair"),
        (point.transport != Transport::Rc, "transport but reliable connections"),
        (point.own && point.verb == BenchVerb::Send, "message to itself"),
        (!one_peer, "second node to ask: two nodes, one server, or each its own"),
        (in_memory && !one_alone, "ping-pong in memory but of two nodes with one thread and one request"),
        (in_memory && point.on_card, "ping-pong in memory of the card's own"),
        (in_memory && !point.payload.is_multiple_of(8), "ping-pong in memory but of whole words"),
        (point.echo && point.servers == 0, "echo where all ask: one server sends it"),
    ];
    unfit.into_iter().find(|(asked, _)| *asked).map(|(_, what)| what)
}

/// What a point asks for that messages and calls through rings do not have.
fn beside_messages(point: &Point) -> Option<&'static str> {
    let unfit = [
        (point.rung.is_some(), "step of the optimization ladder"),
        (point.on_card, "memory of the card's own"),
        (point.passive, "passive acknowledgement"),
        (point.own && point.verb.is_call(), "call to the own node"),
        (point.addresses > 0, "number of addresses"),
        (point.atomics_percent > 0, "share of ATOMICs"),
    ];
    unfit.into_iter().find(|(asked, _)| *asked).map(|(_, what)| what)
}
