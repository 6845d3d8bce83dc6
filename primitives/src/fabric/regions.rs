//! Memory registered with the nodes of a fabric that moves bytes by itself, in this process: loopback and tcp. A real
//! device keeps its own tables, and the simulator's nodes live on one thread.

use super::SetupError;
use crate::mem::{Access, MemoryKeys, Region};
use crate::verbs::{Lkey, Rkey, Sge};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

/// Regions a node can register. Places are not used twice, so that a withdrawn key stays invalid.
const MAX_REGIONS: usize = 1 << 12;
const INDEX: u32 = MAX_REGIONS as u32 - 1;

/// One node's regions. Read by every thread that executes requests, without a lock.
pub(super) struct Regions {
    // As long as an index masked by `INDEX` can be, so that a look-up checks no bounds.
    slots: Box<[OnceLock<Arc<Registered>>; MAX_REGIONS]>,
    count: AtomicUsize,
}

/// A region, what it may be used for, and its keys; once they are withdrawn, [`NO_KEY`] in their stead.
pub(super) struct Registered {
    lkey: AtomicU64,
    rkey: AtomicU64,
    pub(super) access: Access,
    pub(super) region: Region,
}

/// More than any key.
const NO_KEY: u64 = u64::MAX;

impl Registered {
    fn new(region: Region, access: Access, lkey: u64, rkey: u64) -> Arc<Registered> {
        Arc::new(Registered { lkey: AtomicU64::new(lkey), rkey: AtomicU64::new(rkey), access, region })
    }

    /// What no key names.
    pub(super) fn nothing() -> Arc<Registered> {
        Registered::new(Region::new(0), Access::LOCAL, NO_KEY, NO_KEY)
    }

    /// Whether the key is this registration's, and not withdrawn.
    #[inline(always)]
    pub(super) fn has_lkey(&self, lkey: Lkey) -> bool {
        self.lkey.load(Ordering::Acquire) == u64::from(lkey.0)
    }

    /// Whether the key is this registration's, and not withdrawn.
    #[inline(always)]
    pub(super) fn has_rkey(&self, rkey: Rkey) -> bool {
        self.rkey.load(Ordering::Acquire) == u64::from(rkey.0)
    }
}

impl Default for Regions {
    fn default() -> Regions {
        Regions { slots: Box::new([const { OnceLock::new() }; MAX_REGIONS]), count: AtomicUsize::new(0) }
    }
}

impl Regions {
    /// Registers a region. The keys' upper twenty bits are those of `drawn` (local, remote), so that a stale or guessed key
    /// is noticed.
    pub(super) fn register(
        &self,
        region: &Region,
        access: Access,
        drawn: (u32, u32),
        fabric: &str,
    ) -> Result<MemoryKeys, SetupError> {
        let index = self.count.fetch_add(1, Ordering::AcqRel);
        let Some(slot) = self.slots.get(index) else {
            return Err(SetupError::Limit {
                what: "registered regions of one node",
                asked: index as u64 + 1,
                limit: MAX_REGIONS as u64,
                fabric: fabric.to_owned(),
            });
        };
        region.pin();
        let key = |drawn: u32| drawn & !INDEX | index as u32;
        let keys = MemoryKeys { lkey: Lkey(key(drawn.0)), rkey: Rkey(key(drawn.1)) };
        let fresh = Registered::new(region.clone(), access, u64::from(keys.lkey.0), u64::from(keys.rkey.0));
        assert!(slot.set(fresh).is_ok(), "places are drawn once");
        Ok(keys)
    }

    /// Withdraws a registration; keys of no registration are ignored.
    pub(super) fn deregister(&self, keys: MemoryKeys) {
        if let Some(entry) = self.slots[(keys.lkey.0 & INDEX) as usize].get()
            && entry.has_lkey(keys.lkey)
            && entry.has_rkey(keys.rkey)
        {
            entry.lkey.store(NO_KEY, Ordering::Release);
            entry.rkey.store(NO_KEY, Ordering::Release);
        }
    }

    /// The registration of a local key.
    pub(super) fn by_lkey(&self, lkey: Lkey) -> Option<Arc<Registered>> {
        self.slots[(lkey.0 & INDEX) as usize].get().filter(|entry| entry.has_lkey(lkey)).cloned()
    }

    /// The registration of a remote key.
    pub(super) fn by_rkey(&self, rkey: Rkey) -> Option<Arc<Registered>> {
        self.slots[(rkey.0 & INDEX) as usize].get().filter(|entry| entry.has_rkey(rkey)).cloned()
    }

    /// The region of a local key, if it holds the range.
    #[inline(always)]
    pub(super) fn local(&self, sge: Sge) -> Option<&Region> {
        let entry = self.slots[(sge.lkey.0 & INDEX) as usize].get()?;
        let good = entry.has_lkey(sge.lkey) && entry.region.holds(sge.offset, u64::from(sge.len));
        good.then_some(&entry.region)
    }

    /// The region of a remote key, if it holds the range and may be used so.
    #[inline(always)]
    pub(super) fn remote(
        &self,
        rkey: Rkey,
        offset: u64,
        len: u64,
        allowed: impl Fn(&Access) -> bool,
    ) -> Option<&Region> {
        let entry = self.slots[(rkey.0 & INDEX) as usize].get()?;
        let good = entry.has_rkey(rkey) && allowed(&entry.access) && entry.region.holds(offset, len);
        good.then_some(&entry.region)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_name_their_region_until_they_are_withdrawn() {
        let regions = Regions::default();
        let memory = Region::new(64);
        let keys = regions.register(&memory, Access::READ, (0xabcd_e000, 0x1234_5000), "test").unwrap();
        let sge = |lkey, len| Sge { lkey, offset: 0, len };
        let readable = |access: &Access| access.remote_read;
        assert!(regions.local(sge(keys.lkey, 64)).is_some());
        assert!(regions.local(sge(keys.lkey, 65)).is_none(), "beyond its end");
        assert!(regions.local(sge(Lkey(keys.lkey.0 ^ 1 << 20), 8)).is_none(), "a guessed key");
        assert!(regions.remote(keys.rkey, 8, 56, readable).is_some());
        assert!(regions.remote(keys.rkey, 8, 8, |access| access.remote_write).is_none());
        assert!(
            regions.remote(Rkey(keys.lkey.0), 8, 8, readable).is_none(),
            "the local key is no remote key"
        );
        regions.deregister(MemoryKeys { rkey: Rkey(0), ..keys });
        assert!(regions.local(sge(keys.lkey, 64)).is_some(), "keys of nobody withdraw nothing");
        regions.deregister(keys);
        assert!(regions.local(sge(keys.lkey, 8)).is_none());
        assert!(regions.remote(keys.rkey, 0, 8, readable).is_none());
    }

    #[test]
    fn a_registration_that_is_kept_knows_its_keys_until_they_are_withdrawn() {
        let regions = Regions::default();
        let keys = regions.register(&Region::new(64), Access::READ, (0, 0x1234_5000), "test").unwrap();
        let kept = regions.by_lkey(keys.lkey).unwrap();
        assert!(kept.has_lkey(keys.lkey) && kept.has_rkey(keys.rkey) && !kept.has_rkey(Rkey(0)));
        assert!(regions.by_rkey(Rkey(keys.rkey.0 ^ 1 << 20)).is_none(), "a guessed key");
        regions.deregister(keys);
        assert!(!kept.has_lkey(keys.lkey) && !kept.has_rkey(keys.rkey));
        assert!(regions.by_lkey(keys.lkey).is_none() && regions.by_rkey(keys.rkey).is_none());
        for key in [0, keys.lkey.0, u32::MAX] {
            assert!(!Registered::nothing().has_lkey(Lkey(key)) && !kept.has_lkey(Lkey(key)));
            assert!(!Registered::nothing().has_rkey(Rkey(key)) && !kept.has_rkey(Rkey(key)));
        }
    }

    #[test]
    fn the_limit_is_an_error() {
        let regions = Regions::default();
        let memory = Region::new(8);
        for _ in 0..MAX_REGIONS {
            regions.register(&memory, Access::LOCAL, (0, 0), "test").unwrap();
        }
        let refused = regions.register(&memory, Access::LOCAL, (0, 0), "test").unwrap_err().to_string();
        assert_eq!(refused, "registered regions of one node: asked for 4097, test allows 4096");
    }
}
