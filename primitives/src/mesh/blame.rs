//! Whose matter it is that nodes did not come, or stay, together.
//!
//! One cause is one matter, whichever node tells of it: the one that has the wrong key, node 0 that sends it away, and
//! those that wait in vain with node 0 for another to come.

use super::handshake::{HandshakeError, KEYS_DIFFER};
use super::launch::LaunchError;
use super::session::MeshError;

/// Whose matter it is. The numbers travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Blame {
    /// A flag or a file of a node: another key, another cluster file, a number that two nodes have.
    Input = 0,
    /// A machine: a node that is not there, that nobody reaches, or that has another build.
    Machine = 1,
    /// What happened to a session that had begun.
    Run = 2,
}

impl Blame {
    /// As a node says it.
    pub(super) fn of_byte(byte: u8) -> Blame {
        [Blame::Input, Blame::Run].into_iter().find(|blame| *blame as u8 == byte).unwrap_or(Blame::Machine)
    }
}

impl HandshakeError {
    /// Whose matter it is.
    pub fn blame(&self) -> Blame {
        match self {
            HandshakeError::WrongKey => Blame::Input,
            HandshakeError::Refused(words) if words == KEYS_DIFFER => Blame::Input,
            _ => Blame::Machine,
        }
    }
}

impl LaunchError {
    /// Whose matter it is.
    pub fn blame(&self) -> Blame {
        match self {
            LaunchError::Setup { source, .. } | LaunchError::Shared(source) if source.is_machines() => {
                Blame::Machine
            }
            LaunchError::Mesh(error) => error.blame(),
            LaunchError::Stuck { .. } | LaunchError::Cancelled => Blame::Run,
            LaunchError::Setup { .. }
            | LaunchError::Shared(_)
            | LaunchError::World(_)
            | LaunchError::OneProcess { .. }
            | LaunchError::Shape { .. } => Blame::Input,
        }
    }
}

impl MeshError {
    /// Whose matter it is.
    pub fn blame(&self) -> Blame {
        match self {
            MeshError::Differ { .. } | MeshError::Refused { .. } => Blame::Input,
            MeshError::Handshake { source, .. } => source.blame(),
            MeshError::Missing { blame, .. }
            | MeshError::NeverBegan { blame, .. }
            | MeshError::GaveUp { blame, .. } => *blame,
            MeshError::Rendezvous { .. } | MeshError::Silent { .. } | MeshError::Unfit { .. } => {
                Blame::Machine
            }
            MeshError::Lost { .. }
            | MeshError::Interrupted { .. }
            | MeshError::Cancelled
            | MeshError::Late { .. }
            | MeshError::Ended => Blame::Run,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blame_travels_as_a_number() {
        for blame in [Blame::Input, Blame::Machine, Blame::Run] {
            assert_eq!(Blame::of_byte(blame as u8), blame);
        }
        assert_eq!(Blame::of_byte(77), Blame::Machine);
    }

    #[test]
    fn both_sides_of_a_wrong_key_blame_the_same() {
        let refused = |words: &str| HandshakeError::Refused(words.into()).blame();
        assert_eq!((HandshakeError::WrongKey.blame(), refused(KEYS_DIFFER)), (Blame::Input, Blame::Input));
        assert_eq!(refused("it took too long to prove itself"), Blame::Machine);
        assert_eq!(HandshakeError::Version { mine: 1, theirs: 2 }.blame(), Blame::Machine);
    }
}
