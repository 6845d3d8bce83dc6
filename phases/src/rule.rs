//! Rules: what a protocol decides about one record, without I/O.
//!
//! A rule is a pure function of a record's header word and small enough to travel in an RPC. One-sided
//! operations evaluate it at the coordinator, two-sided operations in the owner's handler: the same `decide`.
//!
//! # The header word
//!
//! Every protocol packs its state into the one 64-bit word that compare-and-swap reaches. For optimistic
//! concurrency control:
//!
//! | bits   | field   | meaning |
//! |--------|---------|---------|
//! | 63     | lock    | 1 while a transaction holds the record |
//! | 39..63 | owner   | while locked: node:10, worker:6, coroutine:8 of the holder; otherwise 0 |
//! | 0..39  | version | number of installed writes, modulo 2³⁹ |
//!
//! The owner is for people and for recovery, which must know whose locks to break; no rule looks at it, so
//! clusters with more than 1024 nodes, 64 workers or 256 coroutines only lose distinction there. The version
//! wraps after 5.5·10¹¹ writes to one record. Rules compare versions for equality, so a wrap is harmless unless
//! one transaction sees a record written exactly 2³⁹ times between its read and its check: more than six days
//! at a million writes a second to that one record. Backups compare versions for order; there the distance is
//! taken modulo 2³⁹, which is right as long as logged versions of a record lie within 2³⁸ of each other.

use primitives::rpc::Malformed;
use primitives::verbs::NodeId;

const LOCK: u64 = 1 << 63;
const VERSION_BITS: u32 = 39;
const VERSION_MASK: u64 = (1 << VERSION_BITS) - 1;
const OWNER_MASK: u64 = 0xff_ffff;

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

    /// Whether this version is later than `other`, by the shorter way round the 39-bit circle.
    #[inline]
    pub fn later_than(self, other: Header) -> bool {
        let ahead = self.version().wrapping_sub(other.version()) & VERSION_MASK;
        ahead != 0 && ahead < 1 << (VERSION_BITS - 1)
    }
}

/// Why a transaction gave up: expected outcomes, counted by cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
pub enum Abort {
    /// A record to be written is locked by another transaction.
    #[error("a record to be written is locked by another transaction")]
    LockConflict,
    /// A record to be written has changed since it was read.
    #[error("a record to be written has changed since it was read")]
    WriteChanged,
    /// A record that was read is locked by another transaction at validation.
    #[error("a record that was read is locked by another transaction at validation")]
    ReadLocked,
    /// A record that was read has changed at validation.
    #[error("a record that was read has changed at validation")]
    ReadChanged,
    /// No record has that key.
    #[error("no record has that key")]
    NotFound,
    /// A record kept changing while it was read.
    #[error("a record kept changing while it was read")]
    Unstable,
    /// The application rolled back.
    #[error("the application rolled back")]
    Requested,
}

impl Abort {
    /// All reasons, in the order of their counts.
    pub const ALL: [Abort; 7] = [
        Abort::LockConflict,
        Abort::WriteChanged,
        Abort::ReadLocked,
        Abort::ReadChanged,
        Abort::NotFound,
        Abort::Unstable,
        Abort::Requested,
    ];

    /// Place in [`Abort::ALL`].
    pub fn index(self) -> usize {
        self as usize
    }

    /// The name result files use.
    pub fn name(self) -> &'static str {
        match self {
            Abort::LockConflict => "lock-conflict",
            Abort::WriteChanged => "write-changed",
            Abort::ReadLocked => "read-locked",
            Abort::ReadChanged => "read-changed",
            Abort::NotFound => "not-found",
            Abort::Unstable => "unstable",
            Abort::Requested => "requested",
        }
    }

    /// The reason as it travels in a reply.
    pub fn encode(self) -> u64 {
        self as u64 + 1
    }

    /// The reason from a reply; `None` stands for "no reason, granted".
    ///
    /// # Errors
    /// If no reason has that number.
    pub fn decode(word: u64) -> Result<Option<Abort>, Malformed> {
        match word {
            0 => Ok(None),
            n => match Abort::ALL.get(n as usize - 1) {
                Some(&abort) => Ok(Some(abort)),
                None => Err(Malformed::Field { field: "abort reason", value: n }),
            },
        }
    }
}

/// What a rule says about a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Yes; for a lock the header to put in place of the one seen.
    Grant(Header),
    /// No, and the transaction gives up.
    Deny(Abort),
    /// Not now: look again.
    Wait,
}

/// What to do when another transaction holds the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnConflict {
    /// Give up at once (OCC, no-wait).
    Fail,
    /// Look again, at most this many times, then give up.
    Retry(u16),
}

/// May this record be locked?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockRule {
    /// The transaction that asks.
    pub stamp: Stamp,
    /// What to do when another holds it.
    pub on_conflict: OnConflict,
}

impl LockRule {
    /// Decides on the header `seen`; `read` is the header the transaction read before, if it did: then its
    /// version must be the same, because what is about to be written was computed from it.
    #[inline]
    pub fn decide(self, read: Option<Header>, seen: Header) -> Verdict {
        if read.is_some_and(|read| read.version() != seen.version()) {
            return Verdict::Deny(Abort::WriteChanged);
        }
        if !seen.locked() {
            return Verdict::Grant(seen.lock(self.stamp.owner()));
        }
        match self.on_conflict {
            OnConflict::Fail => Verdict::Deny(Abort::LockConflict),
            OnConflict::Retry(_) => Verdict::Wait,
        }
    }

    /// Times a waiting verdict is looked at again.
    pub fn retries(self) -> u16 {
        match self.on_conflict {
            OnConflict::Fail => 0,
            OnConflict::Retry(times) => times,
        }
    }

    /// The rule as two words of a request.
    pub fn encode(self) -> [u64; 2] {
        let conflict = match self.on_conflict {
            OnConflict::Fail => 0,
            OnConflict::Retry(times) => 1 | u64::from(times) << 8,
        };
        [self.stamp.0, conflict]
    }

    /// The rule from two words of a request.
    ///
    /// # Errors
    /// If the second word is not one that `encode` makes.
    pub fn decode(words: [u64; 2]) -> Result<LockRule, Malformed> {
        let on_conflict = match words[1] {
            0 => OnConflict::Fail,
            w if w & 0xff == 1 && w >> 24 == 0 => OnConflict::Retry((w >> 8) as u16),
            value => return Err(Malformed::Field { field: "lock rule", value }),
        };
        Ok(LockRule { stamp: Stamp(words[0]), on_conflict })
    }
}

/// Is what was read still so?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckRule {
    /// The version is the one read, and nobody holds the record (backward validation of OCC).
    SameVersion,
}

impl CheckRule {
    /// Decides on the header `now` of a record whose header was `read`.
    #[inline]
    pub fn decide(self, read: Header, now: Header) -> Verdict {
        match self {
            CheckRule::SameVersion => {
                if now.version() != read.version() {
                    Verdict::Deny(Abort::ReadChanged)
                } else if now.locked() {
                    Verdict::Deny(Abort::ReadLocked)
                } else {
                    Verdict::Grant(now)
                }
            }
        }
    }

    /// The rule as a word of a request.
    pub fn encode(self) -> u64 {
        match self {
            CheckRule::SameVersion => 0,
        }
    }

    /// The rule from a word of a request.
    ///
    /// # Errors
    /// If the word is not one that `encode` makes.
    pub fn decode(word: u64) -> Result<CheckRule, Malformed> {
        match word {
            0 => Ok(CheckRule::SameVersion),
            value => Err(Malformed::Field { field: "check rule", value }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Headers of a few versions, among them the last before the wrap, free and held by two owners.
    fn headers() -> Vec<Header> {
        let owners = [Owner::new(NodeId(0), 0, 0), Owner::new(NodeId(1023), 63, 255)];
        let mut all = Vec::new();
        for version in [0, 1, 2, VERSION_MASK - 1, VERSION_MASK] {
            let free = Header::new(version);
            all.push(free);
            all.extend(owners.map(|o| free.lock(o)));
        }
        all
    }

    #[test]
    fn fields_do_not_touch_each_other() {
        for h in headers() {
            assert_eq!(h.unlock(), Header::new(h.version()));
            assert!(!h.unlock().locked() && h.unlock().owner().is_none());
            for (n, w, c) in [(0, 0, 0), (5, 3, 7), (1023, 63, 255)] {
                let owner = Owner::new(NodeId(n), w, c);
                let locked = h.lock(owner);
                assert_eq!((locked.version(), locked.owner()), (h.version(), Some(owner)));
                assert_eq!((owner.node(), owner.worker(), owner.coroutine()), (NodeId(n), w, c));
                assert_eq!(Stamp::new(owner, u64::MAX).owner(), owner);
            }
            assert_eq!(h.next().version(), (h.version() + 1) & VERSION_MASK);
            assert!(!h.next().locked());
        }
    }

    #[test]
    fn order_goes_the_shorter_way_round() {
        assert!(Header::new(0).later_than(Header::new(VERSION_MASK)));
        assert!(!Header::new(VERSION_MASK).later_than(Header::new(0)));
        for a in headers() {
            assert!(!a.later_than(a.unlock()));
            assert!(a.next().later_than(a));
            for b in headers() {
                assert!(!(a.later_than(b) && b.later_than(a)));
                assert_eq!(a.later_than(b) || b.later_than(a), a.version() != b.version());
            }
        }
    }

    #[test]
    fn lock_rule_by_enumeration() {
        let me = Owner::new(NodeId(2), 1, 1);
        for on_conflict in [OnConflict::Fail, OnConflict::Retry(3)] {
            let rule = LockRule { stamp: Stamp::new(me, 9), on_conflict };
            for seen in headers() {
                for read in headers().into_iter().map(Some).chain([None]) {
                    let same = read.is_none_or(|r| r.version() == seen.version());
                    let expected = match (same, seen.locked(), on_conflict) {
                        (false, _, _) => Verdict::Deny(Abort::WriteChanged),
                        (true, false, _) => Verdict::Grant(seen.lock(me)),
                        (true, true, OnConflict::Fail) => Verdict::Deny(Abort::LockConflict),
                        (true, true, OnConflict::Retry(_)) => Verdict::Wait,
                    };
                    assert_eq!(rule.decide(read, seen), expected, "{rule:?} {read:?} {seen:?}");
                }
            }
            assert_eq!(LockRule::decode(rule.encode()), Ok(rule));
        }
    }

    #[test]
    fn check_rule_by_enumeration() {
        for read in headers() {
            for now in headers() {
                let expected = match (read.version() == now.version(), now.locked()) {
                    (true, false) => Verdict::Grant(now),
                    (true, true) => Verdict::Deny(Abort::ReadLocked),
                    (false, _) => Verdict::Deny(Abort::ReadChanged),
                };
                assert_eq!(CheckRule::SameVersion.decide(read, now), expected);
            }
        }
    }

    #[test]
    fn words_nobody_writes_are_refused() {
        for word in [1 << 24 | 1, 2, u64::MAX] {
            assert!(LockRule::decode([0, word]).is_err());
        }
        assert!(CheckRule::decode(1).is_err());
        assert!(Abort::decode(8).is_err() && Abort::decode(u64::MAX).is_err());
        for abort in Abort::ALL {
            assert_eq!(Abort::decode(abort.encode()), Ok(Some(abort)));
            assert_eq!(Abort::ALL[abort.index()], abort);
        }
    }
}
