//! A node: its NIC's servers, its registered memory and the contexts its card has to remember.

use super::costs::NicCosts;
use super::server::Server;
use crate::mem::{Access, MemoryKeys, Region};
use crate::verbs::{Lkey, Rkey, WcStatus};

/// A registered region.
pub(super) struct Registration {
    pub region: Region,
    pub access: Access,
    generation: u8,
    live: bool,
}

/// One machine and its NIC.
pub(super) struct Node {
    /// Processing units of both roles together.
    pub engine: Server,
    pub egress: Server,
    pub ingress: Server,
    pub atomic_unit: Server,
    /// PCIe towards memory: data placed, completion entries.
    pub to_memory: Server,
    /// PCIe towards the NIC: payloads fetched.
    pub to_nic: Server,
    /// When each lock bucket of the atomic unit is free.
    pub buckets: Vec<u64>,
    pub costs: NicCosts,
    /// Queue pairs in use.
    pub contexts: usize,
    /// Engine time lost to missed contexts, per touch.
    pub miss: u64,
    pub dead_at: u64,
    registrations: Vec<Registration>,
}

impl Node {
    pub fn new(costs: NicCosts, buckets: usize, dead_at: u64) -> Node {
        Node {
            engine: Server::default(),
            egress: Server::default(),
            ingress: Server::default(),
            atomic_unit: Server::default(),
            to_memory: Server::default(),
            to_nic: Server::default(),
            buckets: vec![0; buckets],
            costs,
            contexts: 0,
            miss: 0,
            dead_at,
            registrations: Vec::new(),
        }
    }

    /// Registers a region. Keys hold a slot and its generation, so that a withdrawn key stays invalid when
    /// the slot is used again.
    pub fn register(&mut self, region: &Region, access: Access) -> MemoryKeys {
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
    use crate::profile::Profile;

    #[test]
    fn a_withdrawn_key_stays_invalid() {
        let nic = Profile::shipped("cx4-edr").unwrap().nic;
        let mut node = Node::new(NicCosts::new(&nic, 1.0), 1, 0);
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
