//! Filling stores before a run, and counting and comparing them after.

use crate::workload::{RecordId, TableDef, Workload};
use phases::store::{Cluster, StoreError, TableId};
use primitives::verbs::NodeId;
use std::sync::atomic::{AtomicBool, Ordering};

/// Fills every node's partition, nodes in parallel, and counts what was put there.
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
        for node in (first..nodes).step_by(usize::from(threads)) {
            for (record, words) in fillings(cluster, workload, tables, NodeId(node)) {
                if stop.load(Ordering::Relaxed) {
                    return Ok(sum);
                }
                cluster.load(TableId(record.table), record.key, &words)?;
                workload.tally(record, &words, &mut sum);
            }
        }
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
        keys_of(cluster, TableId(table), def.records, node).map(move |key| {
            let record = RecordId { table, key };
            let mut words = vec![0; def.payload_bytes.div_ceil(8) as usize];
            workload.fill(record, &mut words);
            (record, words)
        })
    })
}

/// The keys of `0..records` whose primary is `node`.
fn keys_of(cluster: &Cluster, table: TableId, records: u64, node: NodeId) -> impl Iterator<Item = u64> + '_ {
    (0..records).filter(move |&key| cluster.layout().primary(table, key) == node)
}

/// What was found in one node's partition.
#[derive(Clone, Debug, Default)]
pub(super) struct Found<T> {
    pub(super) tally: T,
    /// Records that are missing, torn or still locked on the primary, and the first of them in words.
    pub(super) damaged: u64,
    pub(super) first_damaged: Option<String>,
    /// Backup copies compared.
    pub(super) compared: u64,
    /// Of these, those that differ from their primary, and the first of them in words.
    pub(super) differing: u64,
    pub(super) first_differing: Option<String>,
}

impl<T: std::ops::AddAssign> Found<T> {
    /// Adds what was found in another partition.
    pub(super) fn merge(&mut self, other: Found<T>) {
        self.tally += other.tally;
        self.damaged += other.damaged;
        self.first_damaged = self.first_damaged.take().or(other.first_damaged);
        self.compared += other.compared;
        self.differing += other.differing;
        self.first_differing = self.first_differing.take().or(other.first_differing);
    }
}

/// Counts one node's partition and compares its backups with it. Nothing may be in flight.
pub(super) fn count<W: Workload>(
    cluster: &Cluster,
    workload: &W,
    tables: &[TableDef],
    node: NodeId,
) -> Found<W::Tally> {
    let mut found = Found::default();
    for (table, def) in tables.iter().enumerate() {
        let table = TableId(table as u16);
        for key in keys_of(cluster, table, def.records, node) {
            let record = RecordId { table: table.0, key };
            let primary = cluster.store(node).get(table, key);
            match &primary {
                Some((header, words)) if !header.locked() => {
                    workload.tally(record, words, &mut found.tally);
                }
                other => {
                    found.damaged += 1;
                    found.first_damaged.get_or_insert_with(|| {
                        format!(
                            "{} key {key} on {node} is {}",
                            def.name,
                            match other {
                                Some((header, _)) => format!("still locked: {header:?}"),
                                None => "missing or torn".to_owned(),
                            }
                        )
                    });
                }
            }
            for backup in cluster.layout().backups(node) {
                found.compared += 1;
                let copy = cluster.store(backup).get(table, key);
                if copy != primary {
                    found.differing += 1;
                    found.first_differing.get_or_insert_with(|| {
                        format!(
                            "{} key {key}: {node} has {primary:?}, its backup {backup} {copy:?}",
                            def.name
                        )
                    });
                }
            }
        }
    }
    found
}
