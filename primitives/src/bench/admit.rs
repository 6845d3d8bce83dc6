//! Why a point could not be measured, and which points nobody could answer.

use super::load::ON_CARD_BYTES;
use super::{Point, Scope, payload};
use crate::mesh::LaunchError;

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
    /// Calls through rings have no such setting.
    #[error("{verb} knows no {what}: its messages go through rings of their own")]
    Rings {
        /// The verb's name.
        verb: &'static str,
        /// What was asked for.
        what: &'static str,
    },
    /// The card's memory is small.
    #[error("{0} B do not fit into the {ON_CARD_BYTES} B of the card's own memory that are asked for")]
    OnCard(u32),
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
    if point.verb.carrier().is_some()
        && let Some(what) = beside_rings(point)
    {
        return Err(LoadError::Rings { verb: point.verb.name(), what });
    }
    Ok(())
}

/// What a point asks for that calls through rings do not have.
fn beside_rings(point: &Point) -> Option<&'static str> {
    let unfit = [
        (point.rung.is_some(), "step of the optimization ladder"),
        (point.on_card, "memory of the card's own"),
        (point.passive, "passive acknowledgement"),
        (point.own, "call to the own node"),
        (point.addresses > 0, "number of addresses"),
        (point.atomics_percent > 0, "share of ATOMICs"),
    ];
    unfit.into_iter().find(|(asked, _)| *asked).map(|(_, what)| what)
}
