//! Filling stores before a run, and counting and comparing them after.

use crate::verify::{Digest, Key};
use crate::workload::{RecordId, TableDef, Workload};
use phases::store::{Cluster, Layout, StoreError, TableId};
use primitives::verbs::NodeId;
use std::sync::atomic::{AtomicBool, Ordering};

/// Fills the copies of partitions that this process holds, partitions in parallel and each in the order of its keys, and
/// counts what was put into those whose primary is here.
///
/// Each partition's records go to the primary's own copy and to its backups' copies of it, which nobody else
/// fills; so nodes do not get in each other's way, and the result does not depend on the order. `stop` ends it early:
/// the stores are then of no use.
pub(super) fn populate<W: Workload>(
    cluster: &Cluster,
    workload: &W,
    tables: &[TableDef],
    stop: &AtomicBool,
) -> Result<W::Tally, StoreError> {
    let nodes = cluster.layout().config().nodes;
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get() as u16).min(nodes);
    let fill = |first: u16| -> Result<W::Tally, StoreError> {
        let mut sum = W::Tally::default();
        for node in (first..nodes).step_by(usize::from(threads)).map(NodeId) {
            let here = cluster.local(node).is_some();
            if !here && cluster.layout().backups(node).all(|backup| cluster.local(backup).is_none()) {
                continue;
            }
            for (record, words) in fillings(cluster, workload, tables, node) {
                if stop.load(Ordering::Relaxed) {
                    return Ok(sum);
                }
                cluster.load(TableId(record.table), record.key, &words)?;
                if here {
                    workload.tally(record, &words, &mut sum);
                }
            }
        }
        workload.settle(&mut sum);
        Ok(sum)
    };
    let sums: Vec<_> = std::thread::scope(|scope| {
        let fill = &fill;
        let threads: Vec<_> = (0..threads).map(|first| scope.spawn(move || fill(first))).collect();
        threads
            .into_iter()
            .map(|t| t.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect()
    });
    let mut total = W::Tally::default();
    for sum in sums {
        total += sum?;
    }
    Ok(total)
}

fn fillings<'a, W: Workload>(
    cluster: &'a Cluster,
    workload: &'a W,
    tables: &'a [TableDef],
    node: NodeId,
) -> impl Iterator<Item = (RecordId, Vec<u64>)> + 'a {
    tables.iter().enumerate().flat_map(move |(table, def)| {
        let table = table as u16;
        workload.keys(table, cluster.layout(), node).map(move |key| {
            let record = RecordId { table, key };
            let mut words = vec![0; def.payload_bytes.div_ceil(8) as usize];
            workload.fill(record, &mut words);
            (record, words)
        })
    })
}

/// Digests of what those of the `wanted` records that are loaded at all begin with; they come in order. Keys are gone through because a
/// workload fills those that it loads and no others: of a table that nobody wants none, else at most as many as were loaded.
pub(super) fn loaded<W: Workload>(
    layout: &Layout,
    workload: &W,
    tables: &[TableDef],
    wanted: &[Key],
) -> Vec<(Key, Digest)> {
    let mut found = Vec::with_capacity(wanted.len());
    for of_table in wanted.chunk_by(|a, b| a.table == b.table) {
        let table = of_table[0].table as u16;
        let Some(def) = tables.get(usize::from(table)) else { continue };
        let nodes = (0..layout.config().nodes).map(NodeId);
        let keys = nodes.flat_map(|node| workload.keys(table, layout, node));
        let mut words = vec![0; def.payload_bytes.div_ceil(8) as usize];
        let asked = |key: &u64| of_table.binary_search_by_key(key, |wanted| wanted.key).is_ok();
        for key in keys.filter(asked).take(of_table.len()) {
            words.fill(0);
            workload.fill(RecordId { table, key }, &mut words);
            found.push((Key { table: table.into(), key }, Digest::of(&words)));
        }
    }
    found
}

/// Parts that a partition's copies are compared by: keys are dealt out to them by their hash.
const PARTS: u64 = 64;

/// What was found in the copies that some nodes hold.
#[derive(Clone, Debug, Default, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Found<T> {
    /// Of primaries.
    pub(super) tally: T,
    /// Records that are missing where nothing removes any, torn or still locked on the primary, and the first of them in words.
    pub(super) damaged: u64,
    pub(super) first_damaged: Option<String>,
    /// The first time that a table had no room, in words.
    pub(super) full: Option<String>,
    /// Of primaries and backups, so that copies compare wherever they are.
    copies: Vec<Copy>,
}

/// One copy of a node's partition of a table, in short.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Copy {
    table: u16,
    primary: u16,
    holder: u16,
    records: u64,
    /// For each part, the sum of digests over a record's key, header and payload.
    digests: Vec<u64>,
}

/// Whether backups equal their primaries.
pub(super) struct Compared {
    /// Backup copies of records compared.
    pub(super) records: u64,
    /// Parts in which a backup differs, and the first of them in words.
    pub(super) differing: u64,
    pub(super) first_differing: Option<String>,
}

impl<T: std::ops::AddAssign> Found<T> {
    /// Adds what was found elsewhere.
    pub(super) fn merge(&mut self, other: Found<T>) {
        self.tally += other.tally;
        self.damaged += other.damaged;
        self.first_damaged = self.first_damaged.take().or(other.first_damaged);
        self.full = self.full.take().or(other.full);
        self.copies.extend(other.copies);
    }

    /// Compares backups with their primaries.
    pub(super) fn compare(&self, tables: &[TableDef]) -> Compared {
        let mut compared = Compared { records: 0, differing: 0, first_differing: None };
        for backup in self.copies.iter().filter(|c| c.holder != c.primary) {
            let of = |c: &&Copy| {
                c.holder == backup.primary && (c.table, c.primary) == (backup.table, backup.primary)
            };
            let primary = self.copies.iter().find(of);
            compared.records += backup.records;
            for part in 0..PARTS as usize {
                if primary.is_some_and(|p| p.digests.get(part) == backup.digests.get(part)) {
                    continue;
                }
                compared.differing += 1;
                compared.first_differing.get_or_insert_with(|| {
                    let name = tables.get(usize::from(backup.table)).map_or("?", |t| t.name);
                    let records = primary.map_or(0, |p| p.records);
                    format!(
                        "{name} of node {}: of its {records} records, {} on its backup node {}, those with hash {part} of \
                         {PARTS} differ",
                        backup.primary, backup.records, backup.holder
                    )
                });
            }
        }
        compared
    }
}

/// Folds a word into a digest (splitmix64's finalizer, which lets no bit without effect on any other).
fn fold(digest: u64, word: u64) -> u64 {
    let mut z = (digest ^ word).wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}

/// Counts one node's partition, and digests all copies that the node holds. Nothing may be in flight.
pub(super) fn count<W: Workload>(
    cluster: &Cluster,
    workload: &W,
    tables: &[TableDef],
    node: NodeId,
) -> Found<W::Tally> {
    let mut found = Found::default();
    let store = cluster.store(node);
    let nodes = cluster.layout().config().nodes;
    let held = (0..nodes).map(NodeId).filter(|&primary| cluster.layout().copy(node, primary).is_some());
    for primary in held {
        for (table, def) in tables.iter().enumerate() {
            let id = TableId(table as u16);
            let mut copy = Copy {
                table: id.0,
                primary: primary.0,
                holder: node.0,
                records: 0,
                digests: vec![0; PARTS as usize],
            };
            let damaged = |found: &mut Found<W::Tally>, key: u64, what: String| {
                found.damaged += 1;
                found
                    .first_damaged
                    .get_or_insert_with(|| format!("{} key {key} on {node} is {what}", def.name));
            };
            store.for_each(primary, id, |key, record| {
                copy.records += 1;
                let mut digest = fold(0, key);
                if let Some(stored) = &record {
                    digest = fold(fold(digest, stored.version), u64::from(stored.locked));
                    digest = stored.payload.iter().fold(digest, |digest, &word| fold(digest, word));
                }
                let part = &mut copy.digests[(fold(1, key) % PARTS) as usize];
                *part = part.wrapping_add(digest);
                if primary != node {
                    return;
                }
                match &record {
                    Some(stored) if !stored.locked => {
                        workload.tally(RecordId { table: id.0, key }, &stored.payload, &mut found.tally);
                    }
                    Some(stored) => damaged(&mut found, key, format!("still locked: {stored:?}")),
                    None => damaged(&mut found, key, "torn".to_owned()),
                }
            });
            if primary == node && !workload.changes_tables() {
                for key in workload.keys(id.0, cluster.layout(), node) {
                    if store.locate(id, key).is_none() {
                        damaged(&mut found, key, "missing".to_owned());
                    }
                }
            }
            found.copies.push(copy);
        }
    }
    workload.settle(&mut found.tally);
    found.full = store.refused().map(ToString::to_string);
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn copy(holder: u16, digests: u64) -> Copy {
        Copy { table: 0, primary: 1, holder, records: 10, digests: vec![digests; PARTS as usize] }
    }

    #[test]
    fn a_backup_that_differs_or_has_no_primary_is_named() {
        let tables = [TableDef::new("accounts", 640, 8)];
        let mut found = Found::<u64> { copies: vec![copy(1, 5), copy(2, 5), copy(0, 5)], ..Found::default() };
        let compared = found.compare(&tables);
        assert_eq!((compared.records, compared.differing), (20, 0));
        found.copies[2].digests[3] = 6;
        let compared = found.compare(&tables);
        assert_eq!(compared.differing, 1);
        let words = compared.first_differing.unwrap();
        assert_eq!(
            words,
            "accounts of node 1: of its 10 records, 10 on its backup node 0, those with hash 3 of 64 differ"
        );
        found.copies.remove(0);
        assert_eq!(found.compare(&tables).differing, 2 * PARTS);
    }
}
