//! Fractured reads, which read atomicity forbids.
//!
//! Bailis, Fekete, Hellerstein, Ghodsi and Stoica, "Scalable Atomic Visibility with RAMP Transactions" (SIGMOD 2014),
//! definition 1: *a transaction `r` reads fractured if it reads version `xᵢ` of a transaction `w` that also wrote
//! `yⱼ`, and reads a version of `y` older than `yⱼ`*; `x` and `y` may be the same record. What `r` wrote itself and
//! read again is no read in this sense.
//!
//! For each reader and each writer it read from, the shorter of the reader's reads and the writer's writes is looked up in
//! the other: linear for transactions of bounded size; a loading transaction of a million writes costs its readers no
//! more than they have reads, and who scans a long range no more than those wrote whose records are in it.

use super::index::{Index, Item};

/// `writer` wrote both, `reader` read the one and missed the other. The items are those of the index.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fracture {
    pub writer: u32,
    pub reader: u32,
    /// The reader's read of what the writer wrote.
    pub seen: usize,
    /// The reader's read of an older version of another record, or of the same.
    pub missed: usize,
    /// The writer's write of that record.
    pub newer: usize,
}

const NOBODY: u32 = u32::MAX;

/// The first fractured read in the order of the history, and how many pairs of a reader and a writer have one.
pub(super) fn find(index: &Index) -> Option<(Fracture, u64)> {
    let sources = sources(index);
    let reads = Rows::build(index, Item::is_read);
    let writes = Rows::build(index, |item| !item.is_read());
    let mut first = None;
    let mut count = 0;
    let mut from: Vec<(u32, u32)> = Vec::new();
    for reader in 0..index.fates.len() as u32 {
        if !index.active(reader) {
            continue;
        }
        from.clear();
        let all = reads.of(reader).iter();
        from.extend(all.map(|&i| (sources[i as usize], i)).filter(|&(w, _)| w != NOBODY && w != reader));
        if from.is_empty() {
            continue;
        }
        from.sort_unstable();
        for run in from.chunk_by(|a, b| a.0 == b.0) {
            let (writer, seen) = run[0];
            if let Some((missed, newer)) =
                missed(index, &sources, reads.of(reader), writes.of(writer), reader)
            {
                count += 1;
                first.get_or_insert(Fracture { writer, reader, seen: seen as usize, missed, newer });
            }
        }
    }
    first.map(|fracture| (fracture, count))
}

/// A read of `reader` that is older than a write of the writer: the items of both.
fn missed(
    index: &Index,
    sources: &[u32],
    reads: &[u32],
    writes: &[u32],
    reader: u32,
) -> Option<(usize, usize)> {
    let item = |i: u32| index.items[i as usize];
    let fits = |read: u32, write: u32| {
        let (r, w) = (item(read), item(write));
        let external = sources[read as usize] != reader;
        external && r.same_record(w) && r.version < w.version
    };
    // Rows are sorted as the index is, so a record's items are together.
    let run = |row: &[u32], of: u32| {
        let key = |i: u32| (item(i).table, item(i).key);
        let start = row.partition_point(|&i| key(i) < key(of));
        let len = row[start..].iter().take_while(|&&i| key(i) == key(of)).count();
        start..start + len
    };
    if reads.len() <= writes.len() {
        reads.iter().find_map(|&read| {
            let near = run(writes, read);
            writes[near].iter().find(|&&write| fits(read, write)).map(|&w| (read as usize, w as usize))
        })
    } else {
        writes.iter().find_map(|&write| {
            let near = run(reads, write);
            reads[near].iter().find(|&&read| fits(read, write)).map(|&r| (r as usize, write as usize))
        })
    }
}

/// For each item, who wrote its version.
fn sources(index: &Index) -> Vec<u32> {
    let mut sources = vec![NOBODY; index.items.len()];
    let mut at = 0;
    while at < index.items.len() {
        let version = index.version_at(at);
        at = version.end;
        if let Some((_, writer)) = index.writers(version.clone()).next() {
            sources[version].fill(writer);
        }
    }
    sources
}

/// The reads, or the writes, of each transaction, in the order of the index.
struct Rows {
    first: Vec<u32>,
    items: Vec<u32>,
}

impl Rows {
    fn build(index: &Index, wanted: impl Fn(Item) -> bool) -> Rows {
        let mut first = vec![0u32; index.fates.len() + 1];
        for item in index.items.iter().filter(|&&item| wanted(item)) {
            first[item.txn() as usize] += 1;
        }
        let mut total = 0;
        for row in &mut first {
            total += *row;
            *row = total;
        }
        let mut items = vec![0u32; total as usize];
        for (n, item) in index.items.iter().enumerate().rev().filter(|&(_, &item)| wanted(item)) {
            let slot = &mut first[item.txn() as usize];
            *slot -= 1;
            items[*slot as usize] = n as u32;
        }
        Rows { first, items }
    }

    fn of(&self, txn: u32) -> &[u32] {
        &self.items[self.first[txn as usize] as usize..self.first[txn as usize + 1] as usize]
    }
}
