//! Of a session: records that transactions create and remove, those that may not be there, and ranges.

use super::{Failure, Halt, Row, Session};
use crate::protocol::Protocol;
use crate::workload::RecordId;
use phases::ops::PhaseOps;
use phases::store::TableId;
use phases::txn::{Intent, Order, Scan};
use std::ops::RangeInclusive;

/// What a scan has found: rows, to be had by [`Session::row`] until the transaction ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rows {
    first: usize,
    len: usize,
}

impl Rows {
    /// How many.
    pub fn len(self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(self) -> bool {
        self.len == 0
    }
}

impl<P: Protocol, O: PhaseOps> Session<P, O> {
    /// Reads a record that may not be there. That it is not is validated at commit like what was read.
    ///
    /// # Errors
    /// As the protocol's read does.
    pub async fn find(&mut self, record: RecordId) -> Result<Option<Row>, Halt> {
        let row = self.touch(record, Intent::Read)?;
        if !self.known(row) {
            self.may_change_tables("looks for what may not be there")?;
            self.txn.allow_absence(row.0);
            self.protocol.read(&self.ops, &mut self.txn).await?;
        }
        Ok(self.txn.accesses()[row.0].exists().then_some(row))
    }

    /// As [`Session::prefetch`], for records some of which may not be there; [`Session::find`] then tells.
    ///
    /// # Errors
    /// As the protocol's read does.
    pub async fn prefetch_maybe(&mut self, read: &[RecordId], update: &[RecordId]) -> Result<(), Halt> {
        self.may_change_tables("looks for what may not be there")?;
        for (records, intent) in [(read, Intent::Read), (update, Intent::Write)] {
            for &record in records {
                let row = self.touch(record, intent)?;
                self.txn.allow_absence(row.0);
            }
        }
        Ok(self.protocol.read(&self.ops, &mut self.txn).await?)
    }

    /// Creates a record at commit; words not set are zero. Nothing is sent before: that the key is taken
    /// ([`Abort::Exists`](phases::rule::Abort::Exists)), or that there is no room for it
    /// ([`Abort::TableFull`](phases::rule::Abort::TableFull)), is found when the transaction commits. A record that this transaction is to delete is rewritten.
    ///
    /// # Errors
    /// When no buffer is left, or the protocol cannot keep such transactions apart.
    pub fn insert(&mut self, record: RecordId) -> Result<Row, Halt> {
        self.may_change_tables("inserts")?;
        let row = self.touch(record, Intent::Write)?;
        self.txn.insert(row.0);
        Ok(row)
    }

    /// Removes a record at commit; from now on the transaction does not see it. Of one that it has inserted itself nothing is left.
    ///
    /// # Errors
    /// When the protocol cannot keep such transactions apart.
    ///
    /// # Panics
    /// If the transaction has not read the record.
    pub fn delete(&mut self, row: Row) -> Result<(), Halt> {
        self.may_change_tables("deletes")?;
        self.txn.delete(row.0);
        Ok(())
    }

    /// Reads the records of an ordered table whose keys lie in a range, at most `limit`, the first ones in the order asked
    /// for. The range must lie in one block of keys. That no key of the range comes or goes before the commit is
    /// validated. What this transaction has written is seen as it left it and what it is to delete is left out, but what it
    /// inserts is not found.
    ///
    /// # Errors
    /// As the protocol's read does; a fault if the table is not ordered or the range not of one block.
    pub async fn scan(
        &mut self,
        table: u16,
        keys: RangeInclusive<u64>,
        limit: usize,
        order: Order,
    ) -> Result<Rows, Halt> {
        self.may_change_tables("scans")?;
        let (from, to) = (*keys.start(), *keys.end());
        let scan = Scan { table: TableId(table), from, to, limit, order };
        self.protocol.scan(&self.ops, &mut self.txn, &scan).await?;
        let first = self.scanned.len();
        self.scanned.extend(self.txn.scanned().iter().map(|&at| Row(at as usize)));
        Ok(Rows { first, len: self.scanned.len() - first })
    }

    /// One of the rows that a scan of the current transaction has found.
    ///
    /// # Panics
    /// If there is no such row.
    #[inline]
    pub fn row(&self, rows: Rows, index: usize) -> Row {
        assert!(index < rows.len, "row {index} of {}", rows.len);
        self.scanned[rows.first + index]
    }

    /// A record's key.
    #[inline]
    pub fn key(&self, row: Row) -> u64 {
        self.txn.accesses()[row.0].key
    }

    fn may_change_tables(&self, what: &'static str) -> Result<(), Halt> {
        let needs = self.protocol.needs();
        if needs.changes_tables() {
            return Ok(());
        }
        Err(Halt::Fault(Failure::Unsupported { protocol: needs.protocol, what }))
    }
}
