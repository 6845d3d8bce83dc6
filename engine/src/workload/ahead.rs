//! Transactions known ahead: inputs that travel, and the records they will touch.
//!
//! CALVIN orders transactions before they run, so every node must learn from the input alone which of its records a
//! transaction reads and writes, or at least which locks cover those that it comes to on the way ([`Cover`]): a record stands for
//! all that comes and goes below it, as a district does for its orders (granular locks: Gray et al., 1976).

use super::RecordId;
use phases::ops::{FOUND_HEAD, RECORD_HEAD, SCAN_HEAD};
use phases::txn::Intent;

/// The lock that is held by whoever touches a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cover {
    /// The record's own: it is touched by those who have declared it.
    Own,
    /// That of another record of the same node, which covers this one: whoever holds it may come to this one on the way.
    By(RecordId),
    /// The record's own, and it is one of a group of its node's that has this name: whoever holds the group may read this one on the way.
    OneOf(RecordId),
    /// None, for it never changes: it is read by anybody.
    Fixed,
}

/// What a transaction will touch: records, each once, in the order they were first named; and the locks that cover what it finds
/// on the way.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReadWriteSet {
    records: Vec<(RecordId, Intent)>,
    /// Of these, records that may not be there.
    maybe: Vec<RecordId>,
    held: Vec<(RecordId, Intent)>,
    groups: Vec<RecordId>,
    finder: Option<RecordId>,
}

/// Names a record once, with the stronger intent.
fn add(list: &mut Vec<(RecordId, Intent)>, record: RecordId, intent: Intent) {
    match list.iter_mut().find(|(named, _)| *named == record) {
        Some((_, known)) => *known = (*known).max(intent),
        None => list.push((record, intent)),
    }
}

fn intent_with(list: &[(RecordId, Intent)], record: RecordId) -> Option<Intent> {
    list.iter().find(|(named, _)| *named == record).map(|&(_, intent)| intent)
}

impl ReadWriteSet {
    /// An empty set.
    pub fn new() -> ReadWriteSet {
        ReadWriteSet::default()
    }

    /// Forgets all, keeps memory.
    pub fn clear(&mut self) {
        self.records.clear();
        self.maybe.clear();
        self.held.clear();
        self.groups.clear();
        self.finder = None;
    }

    /// The transaction reads `record`.
    pub fn read(&mut self, record: RecordId) {
        add(&mut self.records, record, Intent::Read);
    }

    /// The transaction may write `record`, whether it reads it or not.
    pub fn write(&mut self, record: RecordId) {
        add(&mut self.records, record, Intent::Write);
    }

    /// `record`, which the set has, may not be there.
    pub fn maybe(&mut self, record: RecordId) {
        self.maybe.push(record);
    }

    /// The transaction holds the lock of `record`, which it need not touch: to read or to change what that covers.
    pub fn hold(&mut self, record: RecordId, intent: Intent) {
        add(&mut self.held, record, intent);
    }

    /// The transaction holds a group, to read those of its records that it comes to.
    pub fn hold_group(&mut self, group: RecordId) {
        if !self.groups.contains(&group) {
            self.groups.push(group);
        }
    }

    /// Which records it touches is found at the node of `record`, by reading records of that node alone. There is one such node at most.
    pub fn find_at(&mut self, record: RecordId) {
        self.finder = Some(record);
    }

    /// The records, with what the transaction wants with each.
    pub fn records(&self) -> &[(RecordId, Intent)] {
        &self.records
    }

    /// Those of them that may not be there.
    pub fn may_be_absent(&self) -> &[RecordId] {
        &self.maybe
    }

    /// Locks of records beside those.
    pub fn held(&self) -> &[(RecordId, Intent)] {
        &self.held
    }

    /// Groups that are held.
    pub fn groups(&self) -> &[RecordId] {
        &self.groups
    }

    /// A record of the node at which the transaction finds what it has not named, if it does.
    pub fn finder(&self) -> Option<RecordId> {
        self.finder
    }

    /// What may be done under the lock of a record.
    fn lock_of(&self, record: RecordId) -> Option<Intent> {
        intent_with(&self.held, record).max(intent_with(&self.records, record))
    }

    /// Whether a record that was not named, with such a cover, may be touched so.
    pub fn covers(&self, cover: Cover, intent: Intent) -> bool {
        match cover {
            Cover::Own => false,
            Cover::By(lock) => self.lock_of(lock) >= Some(intent),
            Cover::OneOf(group) => intent == Intent::Read && self.groups.contains(&group),
            Cover::Fixed => intent == Intent::Read,
        }
    }
}

/// Most that nodes tell each other of one transaction, in words of a letter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Told {
    /// Of records that it has declared.
    pub declared: usize,
    /// Of what one node has found on the way.
    pub found: usize,
}

impl Told {
    /// Nothing.
    pub const NOTHING: Told = Told { declared: 0, found: 0 };

    /// And so many declared records with so many words of payload.
    pub const fn declared(self, records: usize, payload: usize) -> Told {
        // A node's part begins with a letter's head, and each might be of a node of its own; a record's with its version.
        Told { declared: self.declared + records * (phases::letter::HEAD_WORDS + 1 + payload), ..self }
    }

    /// And so many records that were found.
    pub const fn found(self, records: usize, payload: usize) -> Told {
        let head = if self.found == 0 { FOUND_HEAD } else { 0 };
        Told { found: self.found + head + records * (RECORD_HEAD + payload), ..self }
    }

    /// And so many rows, which are counted as records too, in so many ranges.
    pub const fn rows(self, scans: usize, rows: usize) -> Told {
        Told { found: self.found + scans * SCAN_HEAD + rows, ..self }
    }

    /// The longer of both, each.
    pub fn max(self, other: Told) -> Told {
        Told { declared: self.declared.max(other.declared), found: self.found.max(other.found) }
    }
}

/// An input as words: for sequencers, which send it to all nodes.
#[derive(Debug, Default)]
pub struct InputWords<'w> {
    words: &'w [u64],
}

impl<'w> InputWords<'w> {
    /// The words of an input.
    pub fn new(words: &'w [u64]) -> InputWords<'w> {
        InputWords { words }
    }

    /// The next word, if there is one.
    pub fn word(&mut self) -> Option<u64> {
        let (&first, rest) = self.words.split_first()?;
        self.words = rest;
        Some(first)
    }

    /// The next word, if there is one and it is below `limit`: a key, a kind.
    pub fn below(&mut self, limit: u64) -> Option<u64> {
        self.word().filter(|&word| word < limit)
    }

    /// Whether all words have been read.
    pub fn is_empty(&self) -> bool {
        self.words.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_named_once_with_the_stronger_intent() {
        let record = |key| RecordId { table: 0, key };
        let mut set = ReadWriteSet::new();
        set.read(record(1));
        set.write(record(2));
        set.write(record(1));
        set.read(record(2));
        assert_eq!(set.records(), [(record(1), Intent::Write), (record(2), Intent::Write)]);
        set.clear();
        assert_eq!(set, ReadWriteSet::new());
    }

    #[test]
    fn covers_are_held_as_strongly_as_what_is_done_under_them() {
        let record = |key| RecordId { table: 0, key };
        let mut set = ReadWriteSet::new();
        set.read(record(1));
        set.hold(record(2), Intent::Read);
        set.hold(record(3), Intent::Read);
        set.write(record(3));
        set.hold_group(record(4));
        let may = |cover| [Intent::Read, Intent::Write].map(|intent| set.covers(cover, intent));
        assert_eq!(may(Cover::Own), [false, false], "it was not named");
        assert_eq!(
            [1, 2, 3, 5].map(|key| may(Cover::By(record(key)))),
            [[true, false], [true, false], [true, true], [false, false]]
        );
        assert_eq!(may(Cover::OneOf(record(4))), [true, false]);
        assert_eq!(may(Cover::OneOf(record(1))), [false, false]);
        assert_eq!(may(Cover::Fixed), [true, false]);
    }
}
