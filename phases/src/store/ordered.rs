//! Ranges of an ordered table, read by its owner's CPU: a page of keys at a time, and the leaves they came from.
//!
//! A page is collected behind the tree's latch and its records are read after that; one that is not there any more, or not
//! yet, makes the reader ask again. Keys that the asking transaction has set slots aside for cannot be in it: that
//! happens when it commits, and it scans before.

use super::NodeStore;
use super::layout::TableId;
use super::slots::latch;
use crate::txn::{Order, Scan};

/// Most rows of a page.
pub const PAGE_ROWS: usize = 48;
/// Most leaves of a page; each has a key of it, but for the first and the last.
pub(crate) const PAGE_LEAVES: usize = 12;

/// A row that a scan has found: its key, and its record's offset.
pub(crate) type Found = (u64, u64);

/// Keys of a range, and the leaves that were looked at for them.
pub(crate) struct Page {
    rows: [Found; PAGE_ROWS],
    row_count: usize,
    leaves: [(u32, u64); PAGE_LEAVES],
    leaf_count: usize,
    /// The range has no more keys.
    pub(crate) ended: bool,
    /// The latest time at which a key of these leaves was removed, where versions are times.
    pub(crate) removed_at: u64,
}

impl Page {
    pub(crate) fn rows(&self) -> &[Found] {
        &self.rows[..self.row_count]
    }

    pub(crate) fn leaves(&self) -> &[(u32, u64)] {
        &self.leaves[..self.leaf_count]
    }
}

impl Scan {
    /// The scan that goes on behind `last`, after `rows` rows; `None` if there is nothing behind it.
    pub(crate) fn behind(self, last: u64, rows: usize) -> Option<Scan> {
        let limit = self.limit.saturating_sub(rows);
        let rest = match self.order {
            Order::Ascending => Scan { from: last.checked_add(1)?, limit, ..self },
            Order::Descending => Scan { to: last.checked_sub(1)?, limit, ..self },
        };
        (limit > 0 && rest.from <= rest.to).then_some(rest)
    }
}

impl NodeStore {
    /// The first rows of a scan, at most `most`, for a transaction at `time`: from now on no key may come there at that time or
    /// before. None if the table has no tree.
    pub(crate) fn page(&self, scan: &Scan, most: usize, time: u64) -> Option<Page> {
        let tree = self.tree(scan.table, self.layout.shard(scan.table, scan.from))?;
        let limit = scan.limit.min(most).min(PAGE_ROWS);
        let mut page = Page {
            rows: [(0, 0); PAGE_ROWS],
            row_count: 0,
            leaves: [(0, 0); PAGE_LEAVES],
            leaf_count: 0,
            ended: false,
            removed_at: 0,
        };
        if limit == 0 {
            return Some(page);
        }
        let Page { rows, row_count, leaves, leaf_count, .. } = &mut page;
        let leaf = |leaf: u32, version: u64| {
            if *leaf_count == PAGE_LEAVES {
                return false;
            }
            leaves[*leaf_count] = (leaf, version);
            *leaf_count += 1;
            true
        };
        let row = |key: u64, offset: u64| {
            rows[*row_count] = (key, offset);
            *row_count += 1;
            *row_count < limit
        };
        let mut tree = latch(tree);
        page.ended = tree.scan(scan.from..=scan.to, scan.order == Order::Descending, leaf, row);
        page.removed_at =
            page.leaves[..page.leaf_count].iter().fold(0, |at, leaf| at.max(tree.see(leaf.0, time)));
        Some(page)
    }

    /// Whether all these leaves have the versions that a scan saw; if so, no key may come there at `time` or before. False if
    /// the table has no such tree.
    pub(crate) fn leaves_stand(
        &self,
        table: TableId,
        shard: u16,
        time: u64,
        mut leaves: impl Iterator<Item = (u32, u64)>,
    ) -> bool {
        let Some(tree) = self.tree(table, shard) else { return false };
        let mut tree = latch(tree);
        leaves.all(|(leaf, version)| {
            let stands = tree.version(leaf) == version;
            if stands {
                tree.see(leaf, time);
            }
            stands
        })
    }

    /// Keys in a table's trees, and bytes of their nodes.
    pub fn tree_size(&self, table: TableId) -> (usize, usize) {
        let trees = (0..).map_while(|shard| self.tree(table, shard));
        trees.fold((0, 0), |sum, tree| {
            let tree = latch(tree);
            (sum.0 + tree.len(), sum.1 + tree.bytes())
        })
    }
}
