//! Rules: what a protocol decides about one record, without I/O.
//!
//! A rule is a pure function of a record's header word and small enough to travel in an RPC. One-sided
//! operations evaluate it at the coordinator, two-sided operations in the owner's handler: the same `decide`.
//!
//! # Header packing
//!
//! A record's first word is the one that compare-and-swap reaches. How it is packed, and which words follow, is a value
//! ([`Packing`]) that the protocol names and the store is laid out by; the table of all of them is in this crate's PROTOCOLS.md.
//!
//! *Owner* is `node:10 | worker:6 | coroutine:8` of the holder, 0 while free. It is for people and for recovery, which must
//! know whose locks to break; no rule looks at it, so clusters with more than 1024 nodes, 64 workers or 256 coroutines only
//! lose distinction there. *Timestamps* are `tick:39 | node:10 | worker:6` ([`time`]); there uniqueness matters, and larger
//! clusters are refused.
//!
//! *Counted versions* wrap after 5.5·10¹¹ writes to one record. Rules compare them for equality, so a wrap is harmless unless
//! one transaction sees a record written exactly 2³⁹ times between its read and its check: more than six days at a
//! million writes a second to that one record. Backups compare versions for order; there the distance is taken modulo 2³⁹,
//! which is right as long as logged versions of a record lie within 2³⁸ of each other.
//!
//! *Leases.* A SUNDIAL record is valid from `wts` to `rts = wts + lease`. The paper keeps lock, rts and wts in a word each (fig 3) and
//! extends rts by a WRITE (step b3); an extension that races a lock is then lost or, worse, seen by readers and not by the
//! holder, who commits below it. In one word an extension is a CAS that fails if anybody has locked or written since
//! (the packing of TicToc). The price is that a one-sided lock must know the word: a READ before its CAS. Timestamps are
//! logical, at most one tick a commit, so 2³⁹ are five days at a million writes a second that all depend on each other. A
//! lease longer than 2²⁴ − 1 cannot be written down: the transaction then writes the record again, unchanged, at its own
//! timestamp instead of extending its lease.
//!
//! *Epochs:* none is kept. A store is loaded with every version at [`crate::store::StoreConfig::first_version`].

mod abort;
mod header;
mod lock_word;
pub mod time;
pub mod versions;

pub use abort::Abort;
pub use header::{Header, LAST_WTS, LEASE_MAX, Owner, Packing, Stamp};
pub use lock_word::MAX_READERS;
pub use time::Timestamp;

use header::{LOCK, VERSION_BITS, VERSION_MASK};
use lock_word::LockWord;
use primitives::rpc::Malformed;

/// What a rule says about a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Yes; the header to put in place of the one seen, the same if nothing is to change.
    Grant(Header),
    /// No, and the transaction gives up.
    Deny(Abort),
    /// Not now: look again.
    Wait,
}

/// How a lock is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mode {
    /// With others that read.
    Shared,
    /// Alone.
    Exclusive,
}

/// What to do when another transaction holds the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnConflict {
    /// Give up at once (OCC, no-wait).
    Fail,
    /// Look again, at most this many times, then give up (bounded wait).
    Retry(u16),
    /// Wait if older than every holder, else give up (wait-die): whoever waits, waits for somebody younger.
    WaitIfOlder,
}

/// How records that are only read are locked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReadLocks {
    /// Not at all.
    #[default]
    None,
    /// With others that read.
    Shared,
    /// Alone, as RCC's lock words with their one holder have it.
    Exclusive,
}

/// Times a transaction that may wait for ever looks at a lock before it gives up after all: whoever holds it then has
/// failed, and breaking its locks is recovery's business.
const FOR_EVER: u32 = 1 << 20;

/// May this record be locked?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockRule {
    /// The transaction that asks.
    pub stamp: Stamp,
    /// Its age (wait-die) or its place in the order (MVCC); 0 where neither matters.
    pub time: Timestamp,
    /// How the word is packed.
    pub packing: Packing,
    /// What to do when another holds it.
    pub on_conflict: OnConflict,
    /// What happens to records that are only read.
    pub reads: ReadLocks,
}

/// What a transaction asks of one record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ask {
    /// The mode it wants.
    pub mode: Mode,
    /// It holds the record shared.
    pub held: bool,
    /// The version it read before, if it did: what is about to be written was computed from it.
    pub read: Option<u64>,
}

impl LockRule {
    /// The rule of optimistic protocols: what is written is locked at commit, what is read is not.
    pub fn optimistic(stamp: Stamp, on_conflict: OnConflict) -> LockRule {
        LockRule { stamp, time: Timestamp(0), packing: Packing::Counted, on_conflict, reads: ReadLocks::None }
    }

    /// The mode in which a record is locked that is to be written, or only read; `None` if it is not.
    #[inline]
    pub fn mode(self, write: bool) -> Option<Mode> {
        match self.reads {
            _ if write => Some(Mode::Exclusive),
            ReadLocks::None => None,
            ReadLocks::Shared => Some(Mode::Shared),
            ReadLocks::Exclusive => Some(Mode::Exclusive),
        }
    }

    /// Decides on the header `seen`.
    #[inline]
    pub fn decide(self, ask: Ask, seen: Header) -> Verdict {
        let conflict = match self.on_conflict {
            OnConflict::Retry(_) => Verdict::Wait,
            OnConflict::Fail | OnConflict::WaitIfOlder => Verdict::Deny(Abort::LockConflict),
        };
        match self.packing {
            Packing::Counted | Packing::Leased if ask.read.is_some_and(|read| read != seen.version()) => {
                Verdict::Deny(Abort::WriteChanged)
            }
            Packing::Counted | Packing::Leased if seen.locked() => conflict,
            Packing::Counted => Verdict::Grant(seen.lock(self.stamp.owner())),
            Packing::Leased => Verdict::Grant(Header(seen.0 | LOCK)),
            Packing::Locked => LockWord(seen.0).ask(ask.mode, ask.held, self.time, self.on_conflict),
            Packing::Versions if seen.0 == 0 => Verdict::Grant(Header(self.time.0)),
            Packing::Versions => conflict,
        }
    }

    /// The word to expect in the next CAS after `seen` was found and the verdict was to wait.
    #[inline]
    pub(crate) fn guess(self, ask: Ask, seen: Header) -> Header {
        match self.packing {
            Packing::Locked => LockWord(seen.0).when_others_left(ask.held),
            Packing::Versions => Header(0),
            Packing::Counted | Packing::Leased => self.packing.free(seen),
        }
    }

    /// The word to put in place of `seen`, which was not granted, so that no more readers join: for wait-die.
    #[inline]
    pub(crate) fn mark(self, ask: Ask, seen: Header) -> Option<Header> {
        let marks = self.packing == Packing::Locked
            && self.on_conflict == OnConflict::WaitIfOlder
            && ask.mode == Mode::Exclusive;
        if marks { LockWord(seen.0).want() } else { None }
    }

    /// Times a waiting verdict is looked at again.
    pub fn retries(self) -> u32 {
        match self.on_conflict {
            OnConflict::Fail => 0,
            OnConflict::Retry(times) => u32::from(times),
            OnConflict::WaitIfOlder => FOR_EVER,
        }
    }

    /// The rule and what is asked as two words of a request: who asks, and
    /// `rule:24 | read:1 | version:39`.
    pub fn encode(self, ask: Ask) -> [u64; 2] {
        let (kind, tries) = match self.on_conflict {
            OnConflict::Fail => (0, 0),
            OnConflict::Retry(times) => (1, times),
            OnConflict::WaitIfOlder => (2, 0),
        };
        let who = match self.packing {
            Packing::Counted | Packing::Leased => self.stamp.0,
            Packing::Locked | Packing::Versions => self.time.0,
        };
        let exclusive = u64::from(ask.mode == Mode::Exclusive);
        let rule = self.packing as u64 | kind << 2 | exclusive << 4 | u64::from(ask.held) << 5;
        let rule = rule | u64::from(tries) << 8;
        [who, rule << RULE_SHIFT | ask.read.map_or(0, |version| READ | version & VERSION_MASK)]
    }

    /// The rule and what is asked from two words of a request.
    ///
    /// # Errors
    /// If the second word is not one that `encode` makes.
    pub fn decode(words: [u64; 2]) -> Result<(LockRule, Ask), Malformed> {
        let rule = words[1] >> RULE_SHIFT;
        let malformed = Malformed::Field { field: "lock rule", value: rule };
        let packing = match rule & 3 {
            0 => Packing::Counted,
            1 => Packing::Leased,
            2 => Packing::Locked,
            _ => Packing::Versions,
        };
        let on_conflict = match (rule >> 2 & 3, (rule >> 8) as u16) {
            (0, 0) => OnConflict::Fail,
            (1, times) => OnConflict::Retry(times),
            (2, 0) => OnConflict::WaitIfOlder,
            _ => return Err(malformed),
        };
        if rule >> 6 & 3 != 0 {
            return Err(malformed);
        }
        let (stamp, time) = match packing {
            Packing::Counted | Packing::Leased => (Stamp(words[0]), Timestamp(0)),
            Packing::Locked | Packing::Versions => (Stamp(0), Timestamp(words[0])),
        };
        if time.0 >> time::BITS != 0 {
            return Err(Malformed::Field { field: "timestamp", value: time.0 });
        }
        let mode = if rule >> 4 & 1 == 1 { Mode::Exclusive } else { Mode::Shared };
        let read = (words[1] & READ != 0).then_some(words[1] & VERSION_MASK);
        let ask = Ask { mode, held: rule >> 5 & 1 == 1, read };
        Ok((LockRule { stamp, time, packing, on_conflict, reads: ReadLocks::None }, ask))
    }
}

const RULE_SHIFT: u32 = VERSION_BITS + 1;
const READ: u64 = 1 << VERSION_BITS;

impl Packing {
    /// How the word that `held` stands for looks when one holder has gone and nothing was written. For a shared lock that
    /// depends on who else holds it: `held` is then the word as it is now.
    #[inline]
    pub fn free(self, held: Header) -> Header {
        match self {
            Packing::Counted => held.unlock(),
            Packing::Leased => Header(held.0 & !LOCK),
            Packing::Locked => LockWord(held.0).release(),
            Packing::Versions => Header(0),
        }
    }

    /// The first word of a slot that has no record: nobody holds it and nobody ever will, so no CAS finds what it expects there.
    #[inline]
    pub(crate) fn vacant(self, version: u64) -> Header {
        match self {
            Packing::Counted => Header::new(version).lock(Owner::default()),
            Packing::Leased => Header(Header::new(version).0 | LOCK),
            // As of a holder older than any.
            Packing::Locked | Packing::Versions => Header(LOCK),
        }
    }

    /// Whether versions are times, so that absence has to be true at one.
    #[inline]
    pub(crate) fn timed(self) -> bool {
        matches!(self, Packing::Leased | Packing::Versions)
    }

    /// Whether records are only ever read by who has locked them or chosen a version, so that a range names its keys and the
    /// transaction goes for the records itself.
    #[inline]
    pub(crate) fn ranges_name_keys(self) -> bool {
        matches!(self, Packing::Locked | Packing::Versions)
    }

    /// All bits of a version.
    #[inline]
    pub(crate) fn version_mask(self) -> u64 {
        match self {
            Packing::Versions => (1 << time::BITS) - 1,
            _ => VERSION_MASK,
        }
    }

    /// Whether the lock word `held` is one that others may change meanwhile.
    #[inline]
    pub fn shared(self, held: Header) -> bool {
        self == Packing::Locked && held.0 & LOCK == 0
    }

    /// What to add to a word that others may change meanwhile so that one who shares it leaves, as `held` was its own; `None` if that
    /// takes a look at the word.
    #[inline]
    pub(crate) fn leaves(self, held: Header) -> Option<u64> {
        if self.shared(held) { LockWord(held.0).leaves() } else { None }
    }

    /// The word that an install of `version` leaves behind.
    #[inline]
    pub fn installed(self, version: u64) -> Header {
        match self {
            Packing::Counted | Packing::Leased => Header::new(version),
            Packing::Locked | Packing::Versions => Header(0),
        }
    }

    /// Whether the word `seen` may be replaced by an install of `version`: somebody holds it alone, for a version that fits.
    #[inline]
    pub(crate) fn awaits(self, seen: Header, version: u64) -> bool {
        match self {
            Packing::Counted => seen.locked() && seen.next().version() == version,
            Packing::Leased => seen.locked() && version > seen.lease_end(),
            Packing::Locked => seen.locked(),
            Packing::Versions => seen.0 == version,
        }
    }

    /// Whether `a` is a later version than `b`.
    #[inline]
    pub(crate) fn later(self, a: u64, b: u64) -> bool {
        match self {
            Packing::Counted | Packing::Locked => Header::new(a).later_than(Header::new(b)),
            Packing::Leased | Packing::Versions => a > b,
        }
    }
}

/// Is what was read still so?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckRule {
    /// The version is the one read, and nobody holds the record (backward validation of OCC).
    SameVersion,
    /// The version is the one read, and stays valid up to this timestamp: its lease is extended if it has to be
    /// (SUNDIAL).
    LeaseCovers(u64),
    /// The version read is the one for the transaction's place in the order, and stays so (MVCC): decided by
    /// [`versions`], from more than the header.
    ReadAt,
}

impl CheckRule {
    /// Whether records that are packed so have what the rule looks at.
    pub fn fits(self, packing: Packing) -> bool {
        match self {
            CheckRule::SameVersion => packing != Packing::Versions,
            CheckRule::LeaseCovers(_) => packing == Packing::Leased,
            CheckRule::ReadAt => packing == Packing::Versions,
        }
    }

    /// Decides on the header `now` of a record of which `read` was read; a granted header that differs from `now` is to
    /// replace it.
    #[inline]
    pub fn decide(self, read: u64, now: Header) -> Verdict {
        if now.version() != read {
            return Verdict::Deny(Abort::ReadChanged);
        }
        match self {
            CheckRule::SameVersion if now.locked() => Verdict::Deny(Abort::ReadLocked),
            CheckRule::SameVersion | CheckRule::ReadAt => Verdict::Grant(now),
            // A lease that is long enough stands, whoever holds the lock: they commit behind it.
            CheckRule::LeaseCovers(until) if until <= now.lease_end() => Verdict::Grant(now),
            CheckRule::LeaseCovers(_) if now.locked() => Verdict::Deny(Abort::ReadLocked),
            CheckRule::LeaseCovers(until) => match now.lease_until(until) {
                Some(extended) => Verdict::Grant(extended),
                None => Verdict::Deny(Abort::LeaseOverflow),
            },
        }
    }

    /// Whether the header as it was read decides already, whatever has become of it.
    #[inline]
    pub fn stands(self, read: Header) -> bool {
        matches!(self, CheckRule::LeaseCovers(until) if until <= read.lease_end())
    }

    /// The rule as a number below 2²⁴, and the word that goes with it.
    pub fn encode(self) -> (u64, Option<u64>) {
        match self {
            CheckRule::SameVersion => (0, None),
            CheckRule::LeaseCovers(until) => (1, Some(until)),
            CheckRule::ReadAt => (2, None),
        }
    }

    /// The rule of that number; `word` gives the word that goes with it, if it has one.
    ///
    /// # Errors
    /// If no rule has that number, or the word is missing.
    pub fn decode(
        number: u64,
        word: impl FnOnce() -> Result<u64, Malformed>,
    ) -> Result<CheckRule, Malformed> {
        match number {
            0 => Ok(CheckRule::SameVersion),
            1 => Ok(CheckRule::LeaseCovers(word()?)),
            2 => Ok(CheckRule::ReadAt),
            value => Err(Malformed::Field { field: "check rule", value }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use primitives::verbs::NodeId;

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
            let rule = LockRule::optimistic(Stamp::new(me, 9), on_conflict);
            for seen in headers() {
                for read in headers().into_iter().map(Some).chain([None]) {
                    let same = read.is_none_or(|r| r.version() == seen.version());
                    let ask = Ask { mode: Mode::Exclusive, held: false, read: read.map(Header::version) };
                    let expected = match (same, seen.locked(), on_conflict) {
                        (false, _, _) => Verdict::Deny(Abort::WriteChanged),
                        (true, false, _) => Verdict::Grant(seen.lock(me)),
                        (true, true, OnConflict::Fail) => Verdict::Deny(Abort::LockConflict),
                        (true, true, _) => Verdict::Wait,
                    };
                    assert_eq!(rule.decide(ask, seen), expected, "{rule:?} {read:?} {seen:?}");
                    assert_eq!(LockRule::decode(rule.encode(ask)), Ok((rule, ask)));
                }
            }
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
                assert_eq!(CheckRule::SameVersion.decide(read.version(), now), expected);
            }
        }
    }

    #[test]
    fn rules_of_every_packing_travel() {
        let stamp = Stamp::new(Owner::new(NodeId(1), 2, 3), 4);
        for packing in [Packing::Counted, Packing::Leased, Packing::Locked, Packing::Versions] {
            for on_conflict in [OnConflict::Fail, OnConflict::Retry(65_535), OnConflict::WaitIfOlder] {
                for (mode, held, read) in [
                    (Mode::Shared, false, None),
                    (Mode::Exclusive, true, None),
                    (Mode::Exclusive, false, Some(7)),
                ] {
                    let timed = matches!(packing, Packing::Locked | Packing::Versions);
                    let time = Timestamp(if timed { (1 << time::BITS) - 1 } else { 0 });
                    let stamp = if timed { Stamp(0) } else { stamp };
                    let rule = LockRule { stamp, time, packing, on_conflict, reads: ReadLocks::None };
                    let ask = Ask { mode, held, read };
                    assert_eq!(LockRule::decode(rule.encode(ask)), Ok((rule, ask)));
                }
            }
        }
    }

    #[test]
    fn leases_by_enumeration() {
        for wts in [0, 1, 5, VERSION_MASK - 2] {
            for lease in [0, 1, 3, header::LEASE_MAX] {
                let free = Header::new(wts).lease_until(wts + lease).unwrap();
                assert_eq!((free.version(), free.lease_end(), free.locked()), (wts, wts + lease, false));
                for locked in [false, true] {
                    let now = if locked { Header(free.0 | LOCK) } else { free };
                    assert_eq!(Packing::Leased.free(now), free);
                    for until in [wts, wts + 1, wts + 3, wts + header::LEASE_MAX, wts + header::LEASE_MAX + 1]
                    {
                        let verdict = CheckRule::LeaseCovers(until).decide(wts, now);
                        let expected = if until <= wts + lease {
                            Verdict::Grant(now)
                        } else if locked {
                            Verdict::Deny(Abort::ReadLocked)
                        } else if until - wts > header::LEASE_MAX {
                            Verdict::Deny(Abort::LeaseOverflow)
                        } else {
                            Verdict::Grant(Header::new(wts).lease_until(until).unwrap())
                        };
                        assert_eq!(verdict, expected);
                        let other = CheckRule::LeaseCovers(until).decide(wts + 1, now);
                        assert_eq!(other, Verdict::Deny(Abort::ReadChanged));
                    }
                    // An install must come behind the lease.
                    assert_eq!(Packing::Leased.awaits(now, wts + lease + 1), locked);
                    assert!(!Packing::Leased.awaits(now, wts + lease));
                }
            }
        }
    }

    #[test]
    fn words_nobody_writes_are_refused() {
        for rule in [1 << 8, 3 << 2, 1 << 6, 2 << 2 | 1 << 9, (1 << 24) - 1] {
            assert!(LockRule::decode([0, rule << RULE_SHIFT]).is_err(), "{rule:#x}");
        }
        let locked = Packing::Locked as u64;
        assert!(LockRule::decode([1 << time::BITS, locked << RULE_SHIFT]).is_err());
        assert!(CheckRule::decode(3, || Ok(0)).is_err());
        assert!(Abort::decode(Abort::ALL.len() as u64 + 1).is_err() && Abort::decode(u64::MAX).is_err());
        for abort in Abort::ALL {
            assert_eq!(Abort::decode(abort.encode()), Ok(Some(abort)));
            assert_eq!(Abort::ALL[abort.index()], abort);
        }
    }
}
