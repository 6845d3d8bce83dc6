//! The header word of optimistic concurrency control and of leases, and who may stand in it.

use primitives::verbs::NodeId;

pub(super) const LOCK: u64 = 1 << 63;
pub(super) const VERSION_BITS: u32 = 39;
pub(super) const VERSION_MASK: u64 = (1 << VERSION_BITS) - 1;
const OWNER_MASK: u64 = 0xff_ffff;
/// The longest lease a header can hold.
pub const LEASE_MAX: u64 = OWNER_MASK;
/// The last write timestamp a header can hold.
pub const LAST_WTS: u64 = VERSION_MASK;

/// How a protocol packs its state into a record: chosen at set-up, the same for all records of a store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Packing {
    /// One word, `lock:1 | owner:24 | version:39`; versions are counted (OCC, CALVIN).
    #[default]
    Counted,
    /// One word, `lock:1 | lease:24 | wts:39` (SUNDIAL).
    Leased,
    /// A lock word with modes, and a word with the version, which is counted (NOWAIT, WAITDIE).
    Locked,
    /// A lock word, a read timestamp and four slots with their write timestamps (MVCC).
    Versions,
}

/// Who runs a transaction: 24 bits of node, worker and coroutine, each taken modulo its field's size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Owner(u32);

impl Owner {
    /// The coroutine's identity as lock words carry it.
    pub fn new(node: NodeId, worker: u16, coroutine: u32) -> Owner {
        Owner(u32::from(node.0 & 0x3ff) << 14 | u32::from(worker & 0x3f) << 8 | coroutine & 0xff)
    }

    /// The node, modulo 1024.
    pub fn node(self) -> NodeId {
        NodeId((self.0 >> 14) as u16)
    }

    /// The worker, modulo 64.
    pub fn worker(self) -> u16 {
        (self.0 >> 8 & 0x3f) as u16
    }

    /// The coroutine, modulo 256.
    pub fn coroutine(self) -> u32 {
        self.0 & 0xff
    }
}

/// A transaction's name: its owner in the upper 24 bits, the owner's count of transactions below.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Stamp(pub u64);

impl Stamp {
    /// The `count`-th transaction of `owner`.
    pub fn new(owner: Owner, count: u64) -> Stamp {
        Stamp(u64::from(owner.0) << 40 | count & ((1 << 40) - 1))
    }

    /// Who runs it.
    pub fn owner(self) -> Owner {
        Owner((self.0 >> 40) as u32)
    }
}

/// A record's header word; see the module's table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Header(pub u64);

impl Header {
    /// An unlocked header of this version, modulo 2³⁹.
    #[inline]
    pub fn new(version: u64) -> Header {
        Header(version & VERSION_MASK)
    }

    /// Writes installed so far, modulo 2³⁹.
    #[inline]
    pub fn version(self) -> u64 {
        self.0 & VERSION_MASK
    }

    /// Whether a transaction holds the record.
    #[inline]
    pub fn locked(self) -> bool {
        self.0 & LOCK != 0
    }

    /// Who holds it, if anybody.
    pub fn owner(self) -> Option<Owner> {
        self.locked().then_some(Owner((self.0 >> VERSION_BITS & OWNER_MASK) as u32))
    }

    /// The same version, held by `owner`.
    #[inline]
    pub fn lock(self, owner: Owner) -> Header {
        Header(LOCK | u64::from(owner.0) << VERSION_BITS | self.version())
    }

    /// The same version, free.
    #[inline]
    pub fn unlock(self) -> Header {
        Header(self.version())
    }

    /// The next version, free: what an install leaves behind.
    #[inline]
    pub fn next(self) -> Header {
        Header::new(self.version().wrapping_add(1))
    }

    /// The last timestamp that a SUNDIAL record's lease covers.
    #[inline]
    pub fn lease_end(self) -> u64 {
        self.version() + (self.0 >> VERSION_BITS & OWNER_MASK)
    }

    /// The same version with a lease that ends at `until`; `None` if that cannot be written down.
    #[inline]
    pub fn lease_until(self, until: u64) -> Option<Header> {
        let lease = until.checked_sub(self.version()).filter(|&lease| lease <= LEASE_MAX)?;
        Some(Header(self.0 & (LOCK | VERSION_MASK) | lease << VERSION_BITS))
    }

    /// Whether this version is later than `other`, by the shorter way round the 39-bit circle.
    #[inline]
    pub fn later_than(self, other: Header) -> bool {
        let ahead = self.version().wrapping_sub(other.version()) & VERSION_MASK;
        ahead != 0 && ahead < 1 << (VERSION_BITS - 1)
    }
}
