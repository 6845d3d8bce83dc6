//! A node: its registered memory, which all its cards reach.

use super::server::Server;
use crate::mem::{Access, MemoryKeys, Region, ahead};
use crate::verbs::{Lkey, Rkey, WcStatus};

/// A registered region.
pub(super) struct Registration {
    pub region: Region,
    pub access: Access,
    generation: u8,
    live: bool,
}

/// One machine.
pub(super) struct Node {
    /// When each lock bucket of the atomic units is free. A machine's cards share them, as if all ATOMICs on a word
    /// went through one card: programs have to see to that, since cards do not exclude each other.
    pub buckets: Vec<u64>,
    /// Registered bytes that lie in the cards' own memory.
    pub on_card: u64,
    pub dead_at: u64,
    /// The thread that receives for all of the machine's, and what it takes for a message; 0 if there is none.
    receiver: (Server, u64),
    registrations: Vec<Registration>,
}

impl Node {
    pub fn new(buckets: usize, dead_at: u64, receiver: u64) -> Node {
        let receiver = (Server::default(), receiver);
        Node { buckets: vec![0; buckets], on_card: 0, dead_at, receiver, registrations: Vec::new() }
    }

    /// When a message that is in memory at `ready` is handed to the thread that it is for.
    #[inline(always)]
    pub fn received(&mut self, now: u64, ready: u64) -> u64 {
        let (thread, each) = &mut self.receiver;
        if *each == 0 { ready } else { thread.pass(now, ready, *each) }
    }

    /// Registers a region. Keys hold a slot and its generation, so that a withdrawn key stays invalid when
    /// the slot is used again.
    pub fn register(&mut self, region: &Region, access: Access) -> MemoryKeys {
        if access.on_card {
            self.on_card += region.len();
        }
        let slot = match self.registrations.iter().position(|r| !r.live && r.generation < u8::MAX) {
            Some(slot) => {
                let generation = self.registrations[slot].generation + 1;
                self.registrations[slot] =
                    Registration { region: region.clone(), access, generation, live: true };
                slot
            }
            None => {
                self.registrations.push(Registration {
                    region: region.clone(),
                    access,
                    generation: 0,
                    live: true,
                });
                self.registrations.len() - 1
            }
        };
        let key = (slot as u32 + 1) << 8 | u32::from(self.registrations[slot].generation);
        MemoryKeys { lkey: Lkey(key), rkey: Rkey(key) }
    }

    pub fn deregister(&mut self, key: u32) {
        let Some(slot) = (key >> 8).checked_sub(1) else { return };
        if let Some(r) = self.registrations.get_mut(slot as usize)
            && u32::from(r.generation) == key & 0xff
        {
            if r.access.on_card {
                self.on_card -= r.region.len();
            }
            r.live = false;
            r.region = Region::new(0);
        }
    }

    #[inline]
    fn registration(&self, key: u32) -> Option<&Registration> {
        let slot = (key >> 8).wrapping_sub(1) as usize;
        let r = self.registrations.get(slot)?;
        (r.live && u32::from(r.generation) == key & 0xff).then_some(r)
    }

    /// The region a local key names, if it holds the range.
    #[inline]
    pub fn local(&self, key: u32, offset: u64, len: u32) -> Result<&Region, WcStatus> {
        match self.registration(key) {
            Some(r) if r.region.holds(offset, u64::from(len)) => Ok(&r.region),
            _ => Err(WcStatus::LocalProtection),
        }
    }

    /// Asks for the first and the last word of a place that a key names.
    #[inline]
    pub fn ahead(&self, key: u32, offset: u64, len: u32) {
        let Some(r) = self.registration(key) else { return };
        for at in [offset, offset + u64::from(len).saturating_sub(1)] {
            r.region.words().get((at / 8) as usize).map(ahead);
        }
    }

    /// Whether a remote key names memory of the card.
    #[inline]
    pub fn is_on_card(&self, key: u32) -> bool {
        self.on_card > 0 && self.registration(key).is_some_and(|r| r.access.on_card)
    }

    /// The region a remote key names, if it holds the range and `allowed` its access.
    #[inline]
    pub fn remote(
        &self,
        key: u32,
        offset: u64,
        len: u32,
        allowed: impl FnOnce(Access) -> bool,
    ) -> Result<&Region, WcStatus> {
        match self.registration(key) {
            Some(r) if allowed(r.access) && r.region.holds(offset, u64::from(len)) => Ok(&r.region),
            _ => Err(WcStatus::RemoteAccess),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_withdrawn_key_stays_invalid() {
        let mut node = Node::new(1, 0, 0);
        let old = node.register(&Region::new(64), Access::ALL);
        assert!(node.local(old.lkey.0, 0, 64).is_ok());
        assert!(node.local(old.lkey.0, 0, 65).is_err());
        node.deregister(old.rkey.0);
        assert!(node.local(old.lkey.0, 0, 64).is_err());
        let new = node.register(&Region::new(64), Access::READ);
        assert!(node.local(old.lkey.0, 0, 64).is_err(), "the slot has another generation");
        assert!(node.remote(new.rkey.0, 0, 8, |a| a.remote_read).is_ok());
        assert!(node.remote(new.rkey.0, 0, 8, |a| a.remote_write).is_err());
        assert!(node.local(0, 0, 0).is_err());
    }
}
