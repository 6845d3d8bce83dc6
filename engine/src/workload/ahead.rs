//! Transactions known ahead: inputs that travel, and the records they will touch.
//!
//! CALVIN orders transactions before they run, so every node must learn from the input alone which of its records a
//! transaction reads and writes.

use super::RecordId;
use phases::txn::Intent;

/// The records that a transaction will touch, each once, in the order they were first named.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReadWriteSet {
    records: Vec<(RecordId, Intent)>,
}

impl ReadWriteSet {
    /// An empty set.
    pub fn new() -> ReadWriteSet {
        ReadWriteSet::default()
    }

    /// Forgets all records, keeps memory.
    pub fn clear(&mut self) {
        self.records.clear();
    }

    /// The transaction reads `record`.
    pub fn read(&mut self, record: RecordId) {
        self.add(record, Intent::Read);
    }

    /// The transaction may write `record`, whether it reads it or not.
    pub fn write(&mut self, record: RecordId) {
        self.add(record, Intent::Write);
    }

    fn add(&mut self, record: RecordId, intent: Intent) {
        match self.records.iter_mut().find(|(named, _)| *named == record) {
            Some((_, known)) => *known = (*known).max(intent),
            None => self.records.push((record, intent)),
        }
    }

    /// The records, with what the transaction wants with each.
    pub fn records(&self) -> &[(RecordId, Intent)] {
        &self.records
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
        assert!(set.records().is_empty());
    }
}
