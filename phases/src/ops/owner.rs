//! What the owner's CPU does with a record: for the coordinator's own records and for handlers alike.
//!
//! This is the only place where a CPU changes a header word, always by compare-and-swap or while holding the lock.
//! Decisions are the rules'; nothing here knows why.

use crate::rule::{Abort, CheckRule, Header, LockRule, Verdict};
use crate::store::{NodeStore, TableId, record};
use primitives::mem::Buf;

impl NodeStore {
    /// The record's offset: where the requester believes it to be, if the key there agrees, else by the index.
    #[inline]
    pub(super) fn find(&self, table: TableId, key: u64, believed: u64) -> Option<u64> {
        if believed != 0
            && self.is_record(table, believed)
            && self.region().load(believed + record::KEY_WORD as u64 * 8) == key
        {
            return Some(believed);
        }
        if self.layout().has(table) { self.locate(table, key) } else { None }
    }

    /// Copies the record into `buf` if it is of one piece now.
    #[inline]
    pub(super) fn read(&self, offset: u64, buf: &Buf, payload_words: usize) -> bool {
        record::read_local(self.region(), offset, buf, payload_words)
    }

    /// The header as it is now.
    #[inline]
    pub(super) fn header(&self, offset: u64) -> Header {
        Header(self.region().load(offset))
    }

    /// Locks the record if the rule allows it; grants with the header it now has.
    #[inline]
    pub(super) fn lock(&self, offset: u64, read: Option<Header>, rule: LockRule) -> Verdict {
        let mut seen = self.header(offset);
        loop {
            let Verdict::Grant(locked) = rule.decide(read, seen) else { return rule.decide(read, seen) };
            match Header(self.region().compare_swap(offset, seen.0, locked.0)) {
                before if before == seen => return Verdict::Grant(locked),
                // Somebody was faster: decide on what they left.
                other => seen = other,
            }
        }
    }

    /// Checks the record's header against the one read.
    #[inline]
    pub(super) fn check(&self, offset: u64, read: Header, rule: CheckRule) -> Verdict {
        rule.decide(read, self.header(offset))
    }

    /// Installs a new payload under `header` and so frees the lock; refused unless the record is locked at the
    /// version before.
    #[inline]
    pub(super) fn install(
        &self,
        offset: u64,
        header: Header,
        key: u64,
        payload: impl Iterator<Item = u64> + Clone,
    ) -> bool {
        let now = self.header(offset);
        if !now.locked() || now.next() != header {
            return false;
        }
        record::write_local(self.region(), offset, header, key, payload);
        true
    }

    /// Frees the lock that `locked` stands for; false if the record is not in that state.
    #[inline]
    pub(super) fn release(&self, offset: u64, locked: Header) -> bool {
        locked.locked() && self.region().compare_swap(offset, locked.0, locked.unlock().0) == locked.0
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
