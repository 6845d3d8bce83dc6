//! Device contexts and what is registered in them.

use super::device::Device;
use super::{RemoteKey, Shared, entropy, errno, lock, refused};
use crate::fabric::{AtomicScope, SetupError};
use crate::mem::{Access, MemoryKeys, Region};
use crate::verbs::{Lkey, NodeId, Rkey};
use ibverbs_sys as ffi;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};

/// Regions that a node can have registered at a time.
pub(super) const MAX_REGIONS: usize = 1 << 10;
const INDEX: u32 = MAX_REGIONS as u32 - 1;

/// A key that no protection domain has: whatever uses it fails at the NIC that checks it.
pub(super) const BAD_KEY: u32 = 0xffff_ff00;

/// The place of a key's name in tables.
#[inline]
pub(super) fn place(name: u32) -> usize {
    (name & INDEX) as usize
}

/// The remote keys of one context, as requests to its queue pairs need them. Read by peers of the same process
/// while the owner registers and deregisters.
pub(super) struct KeyTable {
    /// Counts changes, so that whoever remembers a key knows that it still holds.
    changes: AtomicU32,
    // As long as an index masked by `place` can be, so that a look-up checks no bounds.
    slots: [KeySlot; MAX_REGIONS],
}

#[derive(Default)]
struct KeySlot {
    /// The name, zero if the slot is free.
    name: AtomicU32,
    rkey: AtomicU32,
    base: AtomicU64,
}

impl KeyTable {
    pub(super) fn new() -> KeyTable {
        KeyTable { changes: AtomicU32::new(0), slots: std::array::from_fn(|_| KeySlot::default()) }
    }

    /// How often the table has changed; wraps. What [`KeyTable::find`] says after one reading of this holds while another
    /// reads the same.
    #[inline]
    pub(super) fn changes(&self) -> u32 {
        self.changes.load(Ordering::Acquire)
    }

    /// The hardware's key and the address of the region's first byte; none for a name nobody knows.
    #[inline]
    pub(super) fn find(&self, name: Rkey) -> Option<(u32, u64)> {
        let slot = &self.slots[place(name.0)];
        // A slot that is free has the name of nobody, which is none.
        if slot.name.load(Ordering::Acquire) != name.0 || name.0 == 0 {
            return None;
        }
        let found = (slot.rkey.load(Ordering::Acquire), slot.base.load(Ordering::Acquire));
        // The slot may have changed hands in between. Whoever sets it takes the name away first, and both loads acquire: if
        // either of them has seen the next owner's value, the old name is not seen any more here. A name comes back only
        // if its 21 drawn bits do.
        (slot.name.load(Ordering::Relaxed) == name.0).then_some(found)
    }

    /// As [`KeyTable::find`], [`BAD_KEY`] for a name nobody knows.
    #[inline]
    pub(super) fn resolve(&self, name: Rkey) -> (u32, u64) {
        self.find(name).unwrap_or((BAD_KEY, 0))
    }

    /// Gives a slot to a name. Its owner does so under the lock of the node's regions, so that nobody else writes.
    pub(super) fn set(&self, key: RemoteKey) {
        let slot = &self.slots[place(key.name.0)];
        slot.name.store(0, Ordering::Release);
        slot.rkey.store(key.rkey, Ordering::Release);
        slot.base.store(key.base, Ordering::Release);
        slot.name.store(key.name.0, Ordering::Release);
        self.changes.fetch_add(1, Ordering::Release);
    }

    fn clear(&self, name: Rkey) {
        let slot = &self.slots[place(name.0)];
        let _ = slot.name.compare_exchange(name.0, 0, Ordering::AcqRel, Ordering::Relaxed);
        self.changes.fetch_add(1, Ordering::Release);
    }

    pub(super) fn list(&self) -> Vec<RemoteKey> {
        self.slots
            .iter()
            .map(|slot| Rkey(slot.name.load(Ordering::Acquire)))
            .filter(|name| name.0 != 0)
            .filter_map(|name| self.find(name).map(|(rkey, base)| RemoteKey { name, rkey, base }))
            .collect()
    }
}

/// One registration. Holds the memory for as long as the device may touch it.
struct Registration {
    raw: *mut ffi::ibv_mr,
    _region: Region,
}

// SAFETY: an ibv_mr is a handle without thread affinity; it is only deregistered, by whoever owns this.
unsafe impl Send for Registration {}

impl Drop for Registration {
    fn drop(&mut self) {
        // SAFETY: `raw` came from ibv_reg_mr and is deregistered once, here, before the region goes.
        unsafe { ffi::ibv_dereg_mr(self.raw) };
    }
}

/// A protection domain.
struct Domain(*mut ffi::ibv_pd);

// SAFETY: a protection domain is a handle; libibverbs lets any thread register in it.
unsafe impl Send for Domain {}
// SAFETY: as above.
unsafe impl Sync for Domain {}

impl Drop for Domain {
    fn drop(&mut self) {
        // SAFETY: allocated by ibv_alloc_pd; registrations in it are gone, because `Context` drops them first, and
        // queue pairs and address handles too, because `VerbsNic` drops the state that owns them before its `Context`
        // (the order of its fields), and `probe_inline` destroys its own before it returns.
        unsafe { ffi::ibv_dealloc_pd(self.0) };
    }
}

/// A worker thread's device context and protection domain. Fields drop in this order.
pub(super) struct Context {
    registrations: Mutex<Vec<(u32, Registration)>>,
    domain: Domain,
    device: Device,
    pub(super) keys: Arc<KeyTable>,
    /// An empty table: the keys of queue pairs that are not connected.
    pub(super) nobody: Arc<KeyTable>,
    /// Drawn: packets of a context that was there before do not fit by chance.
    pub(super) psn: u32,
}

impl Context {
    pub(super) fn new(device: Device) -> Result<Context, SetupError> {
        // SAFETY: the device is open.
        let domain = unsafe { ffi::ibv_alloc_pd(device.raw) };
        if domain.is_null() {
            return Err(refused("ibv_alloc_pd", &device.name, errno()));
        }
        let keys = Arc::new(KeyTable::new());
        Ok(Context {
            registrations: Mutex::default(),
            domain: Domain(domain),
            device,
            keys,
            nobody: Arc::new(KeyTable::new()),
            psn: entropy() as u32,
        })
    }

    pub(super) fn raw(&self) -> *mut ffi::ibv_context {
        self.device.raw
    }

    pub(super) fn domain(&self) -> *mut ffi::ibv_pd {
        self.domain.0
    }

    /// The state of a port now.
    pub(super) fn port_state(&self, port: u8) -> Result<&'static str, SetupError> {
        self.device.port_state(port)
    }

    pub(super) fn device_name(&self) -> &str {
        &self.device.name
    }

    /// Registers memory in this context under the name `keys`; returns the hardware's local key.
    fn register(&self, region: &Region, access: Access, keys: MemoryKeys) -> Result<u32, SetupError> {
        use ffi::ibv_access_flags as flag;
        let mut flags = flag::IBV_ACCESS_LOCAL_WRITE.0;
        for (granted, bit) in [
            (access.remote_read, flag::IBV_ACCESS_REMOTE_READ),
            (access.remote_write, flag::IBV_ACCESS_REMOTE_WRITE),
            (access.remote_atomic, flag::IBV_ACCESS_REMOTE_ATOMIC),
        ] {
            flags |= if granted { bit.0 } else { 0 };
        }
        let base = region.words().as_ptr();
        // SAFETY: the words are valid for the whole length, are never moved, and are only ever used as atomics, so
        // the device may change them at any time; the registration holds the region until it is withdrawn, and who posts and polls
        // (`State::hold`) until no completion can come any more with which the library writes to it.
        let raw = unsafe {
            ffi::ibv_reg_mr(self.domain.0, base.cast_mut().cast(), region.len() as usize, flags as i32)
        };
        if raw.is_null() {
            return Err(refused("ibv_reg_mr", &self.device.name, errno()));
        }
        // SAFETY: just returned, and not null.
        let (lkey, rkey) = unsafe { ((*raw).lkey, (*raw).rkey) };
        lock(&self.registrations).push((keys.lkey.0, Registration { raw, _region: region.clone() }));
        if access != Access::LOCAL {
            self.keys.set(RemoteKey { name: keys.rkey, rkey, base: base as u64 });
        }
        Ok(lkey)
    }

    fn deregister(&self, keys: MemoryKeys) {
        self.keys.clear(keys.rkey);
        lock(&self.registrations).retain(|(name, _)| *name != keys.lkey.0);
    }
}

/// What requests say of a registered region: its name, the hardware's key and the address of its first byte.
#[derive(Clone, Copy)]
pub(super) struct Named {
    pub(super) name: u32,
    pub(super) lkey: u32,
    pub(super) base: u64,
}

impl Named {
    /// What a place holds that no region has: a name that belongs to another place, so that comparing names is all
    /// that a look-up does.
    pub(super) fn nothing(at: usize) -> Named {
        Named { name: !(at as u32), lkey: BAD_KEY, base: 0 }
    }
}

/// A registered region as the context that posts needs it.
pub(super) struct Local {
    pub(super) named: Named,
    pub(super) region: Option<Region>,
}

impl Local {
    /// What a place holds that no region has.
    pub(super) fn nothing(at: usize) -> Local {
        Local { named: Named::nothing(at), region: None }
    }
}

struct Entry {
    region: Region,
    access: Access,
    keys: MemoryKeys,
}

/// What a node has registered, and the contexts in which.
#[derive(Default)]
pub(super) struct Regions {
    entries: Vec<Option<Entry>>,
    contexts: Vec<Weak<Context>>,
}

impl Regions {
    /// Registrations in all contexts together.
    pub(super) fn registrations(&self) -> usize {
        self.contexts.iter().filter_map(Weak::upgrade).map(|c| lock(&c.registrations).len()).sum()
    }
}

/// What of an access the device can grant: one without atomics may refuse a registration, as it may a queue pair, that asks for them.
fn grantable(access: Access, atomics: AtomicScope) -> Access {
    Access { remote_atomic: access.remote_atomic && atomics != AtomicScope::None, ..access }
}

impl Shared {
    /// Makes a context part of its node: what others may reach is registered in it too.
    pub(super) fn join(&self, node: NodeId, context: &Arc<Context>) -> Result<(), SetupError> {
        let mut regions = lock(&self.nodes[node.index()].regions);
        for entry in regions.entries.iter().flatten().filter(|e| e.access != Access::LOCAL) {
            context.register(&entry.region, entry.access, entry.keys)?;
        }
        regions.contexts.retain(|c| c.strong_count() > 0);
        regions.contexts.push(Arc::downgrade(context));
        Ok(())
    }

    /// Takes a context from its node, whose registrations are not its any more.
    pub(super) fn leave(&self, node: NodeId, context: &Arc<Context>) {
        let mut regions = lock(&self.nodes[node.index()].regions);
        regions.contexts.retain(|c| !std::ptr::eq(c.as_ptr(), Arc::as_ptr(context)));
    }

    /// Registers memory: everywhere on the node if others may reach it, else in `own` alone.
    pub(super) fn register(
        &self,
        node: NodeId,
        own: &Context,
        region: &Region,
        access: Access,
    ) -> Result<MemoryKeys, SetupError> {
        let access = grantable(access, self.caps.atomic_scope);
        let mut regions = lock(&self.nodes[node.index()].regions);
        let limit = MAX_REGIONS.min(self.limits.max_mr as usize);
        let index = match regions.entries.iter().position(Option::is_none) {
            Some(free) => free,
            None if regions.entries.len() < limit => {
                regions.entries.push(None);
                regions.entries.len() - 1
            }
            None => {
                return Err(SetupError::Limit {
                    what: "registered regions of one node",
                    asked: limit as u64 + 1,
                    limit: limit as u64,
                    fabric: self.caps.fabric.clone(),
                });
            }
        };
        // Names carry 21 drawn bits and one that is set, so that none is zero and a stale or guessed name is noticed.
        let drawn = entropy();
        let name = |bits: u64| (bits as u32 | 1 << 31) & !INDEX | index as u32;
        let keys = MemoryKeys { lkey: Lkey(name(drawn)), rkey: Rkey(name(drawn >> 32)) };
        own.register(region, access, keys)?;
        if access != Access::LOCAL {
            for context in regions.contexts.iter().filter_map(Weak::upgrade) {
                if !std::ptr::eq(&*context, own)
                    && let Err(error) = context.register(region, access, keys)
                {
                    for done in regions.contexts.iter().filter_map(Weak::upgrade) {
                        done.deregister(keys);
                    }
                    return Err(error);
                }
            }
        }
        regions.entries[index] = Some(Entry { region: region.clone(), access, keys });
        Ok(keys)
    }

    pub(super) fn deregister(&self, node: NodeId, keys: MemoryKeys) {
        let mut regions = lock(&self.nodes[node.index()].regions);
        let Some(slot) = regions.entries.get_mut(place(keys.lkey.0)) else { return };
        if slot.as_ref().is_none_or(|entry| entry.keys != keys) {
            return;
        }
        *slot = None;
        for context in regions.contexts.iter().filter_map(Weak::upgrade) {
            context.deregister(keys);
        }
    }

    /// The region of a local key for use in `own`, registering it there if another context of the node did.
    pub(super) fn localize(&self, node: NodeId, own: &Context, name: Lkey) -> Option<Local> {
        let regions = lock(&self.nodes[node.index()].regions);
        let entry = regions.entries.get(place(name.0))?.as_ref().filter(|e| e.keys.lkey == name)?;
        let known = {
            let registrations = lock(&own.registrations);
            let found = registrations.iter().find(|(n, _)| *n == name.0);
            // SAFETY: the registration is alive while the lock is held.
            found.map(|(_, r)| unsafe { (*r.raw).lkey })
        };
        let lkey = match known {
            Some(lkey) => lkey,
            None => own.register(&entry.region, entry.access, entry.keys).ok()?,
        };
        let region = entry.region.clone();
        let named = Named { name: name.0, lkey, base: region.words().as_ptr() as u64 };
        Some(Local { named, region: Some(region) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_table_knows_names_until_they_are_withdrawn() {
        let table = KeyTable::new();
        let name = Rkey(1 << 31 | 0x12_3400 | 7);
        table.set(RemoteKey { name, rkey: 5, base: 4096 });
        assert_eq!(table.resolve(name), (5, 4096));
        assert_eq!(table.resolve(Rkey(name.0 ^ 0x1_0000)), (BAD_KEY, 0), "another region in the same place");
        assert_eq!(table.list(), [RemoteKey { name, rkey: 5, base: 4096 }]);
        table.clear(Rkey(name.0 ^ 0x1_0000));
        assert_eq!(table.resolve(name).0, 5, "a stale name withdraws nothing");
        let changes = table.changes();
        table.clear(name);
        assert_eq!(table.resolve(name), (BAD_KEY, 0));
        assert_ne!(table.changes(), changes, "who remembers the key is told");
        assert!(table.list().is_empty());
        let first = Rkey(1 << 31);
        table.set(RemoteKey { name: first, rkey: 5, base: 4096 });
        table.clear(first);
        assert_eq!(table.find(Rkey(0)), None, "a place that is free is nobody's");
    }

    #[test]
    fn a_device_without_atomics_is_not_asked_for_them() {
        let without = grantable(Access::ALL, AtomicScope::None);
        assert_eq!(without, Access { remote_atomic: false, ..Access::ALL });
        for scope in [AtomicScope::Nic, AtomicScope::Global] {
            assert_eq!(grantable(Access::ALL, scope), Access::ALL);
            assert_eq!(grantable(Access::LOCAL, scope), Access::LOCAL);
        }
    }

    #[test]
    fn a_name_never_gets_the_key_of_another_that_takes_its_place() {
        use std::sync::atomic::AtomicBool;
        // Key and address tell which name they belong to. Names of one place that never come back, as drawn ones.
        let name = |turn: u32| Rkey(1 << 31 | (turn << 10) | 7);
        let key = |name: Rkey| RemoteKey { name, rkey: !name.0, base: u64::from(name.0) << 12 };
        let (table, now, done) = (KeyTable::new(), AtomicU32::new(name(0).0), AtomicBool::new(false));
        let looked = AtomicU64::new(0);
        let found = std::thread::scope(|threads| {
            threads.spawn(|| {
                for turn in 1..1_000_000 {
                    let next = key(name(turn));
                    now.store(next.name.0, Ordering::Release);
                    table.set(next);
                    if turn % 3 == 0 {
                        table.clear(next.name);
                    }
                    // On a busy machine all turns may be over before the other thread has had one: now and then it is
                    // waited for, until it has looked from first to last at what is there now.
                    let (seen, mut patience) = (looked.load(Ordering::Acquire), 100_000);
                    while turn % 65_536 == 0 && patience > 0 && looked.load(Ordering::Acquire) < seen + 2 {
                        patience -= 1;
                        std::thread::yield_now();
                    }
                }
                done.store(true, Ordering::Release);
            });
            let mut found = 0u64;
            while !done.load(Ordering::Acquire) {
                let asked = Rkey(now.load(Ordering::Acquire));
                let expected = key(asked);
                for _ in 0..4 {
                    match table.resolve(asked) {
                        (BAD_KEY, 0) => {}
                        other => {
                            assert_eq!(other, (expected.rkey, expected.base), "of {asked:?}");
                            found += 1;
                        }
                    }
                }
                looked.fetch_add(1, Ordering::Release);
            }
            found
        });
        println!("resolved {found} times");
        assert!(found > 0, "names were looked for, and never found");
    }
}
