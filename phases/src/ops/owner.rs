//! What the owner's CPU does with a record: for the coordinator's own records and for handlers alike.
//!
//! A CPU changes the header word of a record that transactions can find here, always by compare-and-swap or while holding the lock, and in four
//! other places that hold it otherwise: slots that come and go, behind their chain's gate (`store/slots.rs`, `record::vacate`); copies at backups,
//! which nobody locks (`NodeStore::bring_to`); and CALVIN's installs, whose locks are in a table of the node (`letters.rs`).
//! Decisions are the rules'; nothing here knows why.

use crate::rule::{Abort, Ask, CheckRule, Header, LockRule, Packing, Timestamp, Verdict, versions};
use crate::store::record::{self, Word};
use crate::store::{NodeStore, Shape, TableId};
use std::sync::atomic::AtomicU64;

/// What the owner finds when it looks for a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Look {
    /// The record, copied out: its offset, and the slot with its latest version.
    Whole(u64, usize),
    /// It is being written.
    Torn(u64),
    /// Somebody is about to create it.
    Coming(u64),
    /// There is none, and this version stands for that.
    Absent(u64),
}

/// Looks at a record that goes from place to place meanwhile.
const LOOKS: u32 = 64;

impl NodeStore {
    /// Copies a record out, from the slot where it was `found` or from where it is. For packings with one version.
    #[inline(always)]
    pub(super) fn look(
        &self,
        table: TableId,
        key: u64,
        found: Option<u64>,
        image: &[AtomicU64],
        shape: Shape,
    ) -> Look {
        // Most are where they are believed to be, and of one piece.
        if let Some(offset) = found
            && let Some(slot) = self.read(offset, image, shape)
            && image[record::KEY_WORD].get() == key
        {
            return Look::Whole(offset, slot);
        }
        self.look_for(table, key, found, image, shape)
    }

    /// As [`NodeStore::look`], wherever the record has gone.
    #[cold]
    fn look_for(
        &self,
        table: TableId,
        key: u64,
        found: Option<u64>,
        image: &[AtomicU64],
        shape: Shape,
    ) -> Look {
        let mut offset = match found {
            Some(offset) => offset,
            None => match self.missing(table, key) {
                Ok(floor) => return Look::Absent(floor),
                Err(offset) => offset,
            },
        };
        for _ in 0..LOOKS {
            let slot = self.read(offset, image, shape);
            let gone = image[record::KEY_WORD].get() != key;
            match slot {
                Some(slot) if !gone => return Look::Whole(offset, slot),
                None if !gone && !shape.is_absent(image) => return Look::Torn(offset),
                _ => {}
            }
            // No record, or another's: where is it now?
            let was = offset;
            offset = match self.missing(table, key) {
                Ok(floor) => return Look::Absent(floor),
                Err(offset) if offset == was && !gone => return Look::Coming(offset),
                Err(offset) => offset,
            };
        }
        Look::Torn(offset)
    }

    /// The version that stands for a record's absence, or the offset of the record.
    pub(super) fn missing(&self, table: TableId, key: u64) -> Result<u64, u64> {
        loop {
            if let Some(offset) = self.locate(table, key) {
                return Err(offset);
            }
            if let Some(floor) = self.absence(table, key) {
                return Ok(floor);
            }
        }
    }

    /// The record's offset: where the requester believes it to be, if the key there agrees, else by the index.
    #[inline]
    pub(super) fn find(&self, table: TableId, key: u64, believed: u64) -> Option<u64> {
        if believed != 0
            && self.is_record(table, believed)
            && self.region().load(believed + record::KEY_WORD as u64 * 8) == key
            && !self.is_vacant(table, believed)
        {
            return Some(believed);
        }
        if self.layout().has(table) { self.locate(table, key) } else { None }
    }

    /// Whether a slot has no record and nobody is about to create one.
    #[inline]
    pub(super) fn is_vacant(&self, table: TableId, offset: u64) -> bool {
        let (header, packing) = (self.header(offset), self.layout().config().packing);
        // Somebody who holds a record may look like nobody: the mark decides.
        let held = match packing {
            Packing::Counted | Packing::Leased => header.locked(),
            Packing::Locked | Packing::Versions => header == packing.vacant(0),
        };
        held && self.is_coming(table, offset)
    }

    /// Copies the record into `image`; which of its versions is the latest, if that is of one piece now.
    #[inline(always)]
    pub(super) fn read(&self, offset: u64, image: &[AtomicU64], shape: Shape) -> Option<usize> {
        record::copy_latest(self.region(), offset, image, shape)
    }

    /// The header as it is now.
    #[inline]
    pub(super) fn header(&self, offset: u64) -> Header {
        Header(self.region().load(offset))
    }

    /// Swaps the first word, if it still is `seen`.
    #[inline]
    fn swap(&self, offset: u64, seen: Header, put: Header) -> Result<(), Header> {
        match Header(self.region().compare_swap(offset, seen.0, put.0)) {
            before if before == seen => Ok(()),
            other => Err(other),
        }
    }

    /// Locks the record if the rule allows it and it still is this key's; grants with the header it now has.
    #[inline]
    pub(super) fn lock(&self, offset: u64, key: u64, ask: Ask, rule: LockRule) -> Verdict {
        let verdict = self.lock_slot(offset, ask, rule);
        // While it is locked it stays what it is; a slot without a record cannot be locked.
        if let Verdict::Grant(locked) = verdict
            && self.region().load(offset + record::KEY_WORD as u64 * 8) != key
        {
            self.release(offset, rule.packing, locked);
            return Verdict::Deny(Abort::WriteChanged);
        }
        verdict
    }

    #[inline]
    fn lock_slot(&self, offset: u64, ask: Ask, rule: LockRule) -> Verdict {
        let mut seen = self.header(offset);
        loop {
            let verdict = rule.decide(ask, seen);
            let put = match verdict {
                Verdict::Grant(locked) => locked,
                _ => match rule.mark(ask, seen) {
                    Some(marked) => marked,
                    None => return verdict,
                },
            };
            match self.swap(offset, seen, put) {
                Ok(()) => return verdict,
                // Somebody was faster: decide on what they left.
                Err(other) => seen = other,
            }
        }
    }

    /// Checks the record against the version read, and puts in place what the rule grants.
    #[inline]
    pub(super) fn check(&self, offset: u64, read: u64, rule: CheckRule) -> Verdict {
        let mut seen = self.header(offset);
        loop {
            let verdict = rule.decide(read, seen);
            match verdict {
                Verdict::Grant(next) if next != seen => match self.swap(offset, seen, next) {
                    Ok(()) => return verdict,
                    Err(other) => seen = other,
                },
                _ => return verdict,
            }
        }
    }

    /// Copies a multi-version record into `image` for a reader at `time`; the slot with its version, or `None` if that is not of
    /// one piece yet. With `confirm`, the read timestamp is moved first, so that no earlier writer can come any more. Denied if it is not
    /// this key's any more: between the look that found it and the copy another worker may have removed it, and put another one there.
    pub(super) fn read_at(
        &self,
        offset: u64,
        key: u64,
        image: &[AtomicU64],
        shape: Shape,
        time: Timestamp,
        confirm: bool,
    ) -> Result<Option<usize>, Abort> {
        let rts = offset + record::RTS_WORD as u64 * 8;
        let mut seen = self.region().load(rts);
        while confirm && seen < time.0 {
            match self.region().compare_swap(rts, seen, time.0) {
                before if before == seen => break,
                other => seen = other,
            }
        }
        // The lock before the versions: who frees it has put them there.
        let lock = self.region().load(offset);
        record::copy_local(self.region(), offset, image, shape);
        if image[record::KEY_WORD].get() != key {
            return Err(Abort::ReadChanged);
        }
        let wts = (0..shape.slots()).map(|slot| image[shape.version_word(slot)].get());
        let slot = versions::readable(lock, wts, time)?;
        Ok(shape.whole(image, slot).then_some(slot))
    }

    /// Locks a multi-version record for a writer at the rule's time, if it still is this key's, and neither reader nor writer is later.
    pub(super) fn lock_at(&self, offset: u64, key: u64, shape: Shape, ask: Ask, rule: LockRule) -> Verdict {
        let verdict = self.lock(offset, key, ask, rule);
        let Verdict::Grant(locked) = verdict else { return verdict };
        let words = record::words_at(self.region(), offset, shape);
        let newest = shape.latest(words);
        let may = match ask.read {
            Some(read) if read != newest => Err(Abort::WriteChanged),
            _ => versions::writable(words[record::RTS_WORD].get(), newest, rule.time),
        };
        match may {
            Ok(()) => verdict,
            Err(abort) => {
                self.release(offset, shape.packing, locked);
                Verdict::Deny(abort)
            }
        }
    }

    /// The latest timestamp that a multi-version record knows, and the slot that is written next.
    pub(super) fn seen_at(&self, offset: u64, shape: Shape) -> (u64, usize) {
        let words = record::words_at(self.region(), offset, shape);
        (shape.latest(words).max(words[record::RTS_WORD].get()), shape.oldest(words))
    }

    /// Installs a new version and so frees the lock; refused unless the record is locked for it.
    #[inline]
    pub(super) fn install(
        &self,
        offset: u64,
        shape: Shape,
        version: u64,
        key: u64,
        payload: &[impl Word],
    ) -> bool {
        let held = shape.packing.awaits(self.header(offset), version);
        if held {
            record::write_local(self.region(), offset, shape, version, key, payload);
        }
        held
    }

    /// Frees the lock that `held` stands for; false if the record is not in that state.
    #[inline]
    pub(super) fn release(&self, offset: u64, packing: Packing, held: Header) -> bool {
        if !packing.shared(held) {
            return held != packing.free(held) && self.swap(offset, held, packing.free(held)).is_ok();
        }
        // One of those who share it; others come and go.
        let mut seen = self.header(offset);
        loop {
            if seen.0 == 0 || !packing.shared(seen) {
                return false;
            }
            match self.swap(offset, seen, packing.free(seen)) {
                Ok(()) => return true,
                Err(other) => seen = other,
            }
        }
    }
}

/// The verdict as a reply's status: 0 for granted, an abort's number, or [`WAIT`].
pub(super) fn status(verdict: Verdict) -> u64 {
    match verdict {
        Verdict::Grant(_) => 0,
        Verdict::Deny(abort) => abort.encode(),
        Verdict::Wait => WAIT,
    }
}

/// Status: not now, ask again.
pub(super) const WAIT: u64 = 0xff;
/// Status: the request makes no sense for the record's state; a caller that sees it has a bug or a liar as peer.
pub(super) const REFUSED: u64 = 0xfe;
/// Status: no such record.
pub(super) const NOT_FOUND: u64 = Abort::NotFound as u64 + 1;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rule::{Mode, OnConflict, Owner, ReadLocks, Stamp};
    use crate::store::Layout;
    use crate::store::layout::{StoreConfig, TableSpec};
    use primitives::verbs::NodeId;
    use std::sync::Arc;

    /// Whoever found a record may come to its place when another worker has put another one there: that one is neither read for it nor
    /// locked. OCC's looks and locks do so as well (`NodeStore::look`, `NodeStore::lock`).
    #[test]
    fn a_version_is_read_and_locked_for_its_own_key_alone() {
        let table = TableSpec {
            name: "t".into(),
            payload_words: 2,
            rows_per_node: 8,
            keys_per_block: 1 << 20,
            ordered: false,
        };
        let config = StoreConfig {
            tables: vec![table],
            nodes: 1,
            workers: 2,
            replicas: 1,
            log_ring_bytes: 1024,
            reserve_bytes: 0,
            packing: Packing::Versions,
            first_version: 7,
        };
        let store = NodeStore::new(NodeId(0), Arc::new(Layout::new(config).unwrap()));
        let offset = store.insert(NodeId(0), TableId(0), 5, &[50, 51]).unwrap();
        let shape = store.layout().shape(TableId(0));
        let image: Vec<AtomicU64> =
            std::iter::repeat_with(AtomicU64::default).take(shape.words() as usize).collect();
        let read = |key| store.read_at(offset, key, &image, shape, Timestamp(20), true);
        assert!(matches!(read(5), Ok(Some(_))));
        assert_eq!(read(6), Err(Abort::ReadChanged));
        let rule = LockRule {
            stamp: Stamp::new(Owner::new(NodeId(0), 0, 0), 1),
            time: Timestamp(30),
            packing: Packing::Versions,
            on_conflict: OnConflict::Fail,
            reads: ReadLocks::None,
        };
        let ask = Ask { mode: Mode::Exclusive, held: false, read: None };
        let free = store.header(offset);
        assert_eq!(store.lock_at(offset, 6, shape, ask, rule), Verdict::Deny(Abort::WriteChanged));
        assert_eq!(store.header(offset), free, "it is given back");
        assert!(matches!(store.lock_at(offset, 5, shape, ask, rule), Verdict::Grant(_)));
    }
}
