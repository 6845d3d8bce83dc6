//! Who takes part in a transaction, and which locks it asks for where: functions of what it has declared, the same at all nodes.

use super::locks::{Ask, LockTable};
use super::{Bug, Calvin};
use crate::workload::ahead::{Cover, ReadWriteSet};
use crate::workload::{RecordId, Workload};
use phases::store::{Layout, TableId};
use phases::txn::Intent;
use primitives::verbs::NodeId;

/// The node that owns a record.
pub(super) fn owner(layout: &Layout, record: RecordId) -> NodeId {
    layout.primary(TableId(record.table), record.key)
}

/// Locks under which a transaction changes something, by records of them.
fn written(set: &ReadWriteSet) -> impl Iterator<Item = RecordId> {
    let all = set.records().iter().chain(set.held());
    all.filter(|(_, intent)| *intent == Intent::Write).map(|&(record, _)| record)
}

/// Whether `node` runs a transaction that `source` was asked for: because it was asked, it has a copy of what may be changed, or
/// it finds what is touched.
pub(super) fn runs(set: &ReadWriteSet, layout: &Layout, source: NodeId, node: NodeId) -> bool {
    source == node
        || set.finder().is_some_and(|record| owner(layout, record) == node)
        || written(set).any(|record| layout.copy(node, owner(layout, record)).is_some())
}

/// All who run it but `me`, once each, into `to`.
pub(super) fn others(set: &ReadWriteSet, layout: &Layout, source: NodeId, me: NodeId, to: &mut Vec<NodeId>) {
    to.clear();
    let mut add = |node: NodeId| {
        if node != me && !to.contains(&node) {
            to.push(node);
        }
    };
    add(source);
    if let Some(record) = set.finder() {
        add(owner(layout, record));
    }
    for record in written(set) {
        let primary = owner(layout, record);
        add(primary);
        layout.backups(primary).for_each(&mut add);
    }
}

/// The locks of `node` that a transaction asks for, once each, into `asked`.
pub(super) fn locks<W: Workload>(
    calvin: Calvin,
    workload: &W,
    set: &ReadWriteSet,
    layout: &Layout,
    (node, locks): (NodeId, &LockTable),
    asked: &mut Vec<(u32, Ask)>,
) {
    asked.clear();
    let mut ask = |lock: u32, ask: Ask| match asked.iter_mut().find(|(known, _)| *known == lock) {
        Some((_, known)) => *known = known.and(ask),
        None => asked.push((lock, ask)),
    };
    for &(record, intent) in set.records().iter().filter(|(record, _)| owner(layout, *record) == node) {
        match workload.cover(record) {
            Cover::Own => ask(locks.lock_of(record), Ask::of(intent)),
            Cover::By(lock) => ask(locks.lock_of(lock), Ask::of(intent)),
            Cover::OneOf(group) => {
                ask(locks.lock_of(record), Ask::of(intent));
                if intent == Intent::Write && !calvin.has(Bug::LoneWriters) {
                    ask(locks.lock_of_group(group), Ask::Among);
                }
            }
            Cover::Fixed => {}
        }
    }
    let held = set.held().iter().filter(|_| !calvin.has(Bug::Uncovered));
    for &(record, intent) in held.filter(|(record, _)| owner(layout, *record) == node) {
        ask(locks.lock_of(record), Ask::of(intent));
    }
    for &group in set.groups().iter().filter(|group| owner(layout, **group) == node) {
        ask(locks.lock_of_group(group), Ask::Shared);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use phases::rule::Packing;
    use phases::store::{StoreConfig, TableSpec};

    #[test]
    fn whoever_is_told_runs_and_nobody_else() {
        let record = |key| RecordId { table: 0, key };
        let mut set = ReadWriteSet::new();
        set.read(record(0));
        set.write(record(1));
        set.hold(record(2), Intent::Read);
        set.find_at(record(4));
        for (replicas, held) in [(1, None), (2, None), (3, Some(3)), (1, Some(0))] {
            let mut set = set.clone();
            held.into_iter().for_each(|key| set.hold(record(key), Intent::Write));
            let layout = Layout::new(StoreConfig {
                tables: vec![TableSpec {
                    name: "t".into(),
                    payload_words: 1,
                    rows_per_node: 9,
                    keys_per_block: 1,
                    ordered: false,
                }],
                nodes: 6,
                workers: 1,
                replicas,
                log_ring_bytes: 1024,
                reserve_bytes: 0,
                packing: Packing::Counted,
                first_version: 1,
            });
            let layout = layout.unwrap();
            for source in (0..6).map(NodeId) {
                for me in (0..6).map(NodeId) {
                    let mut to = Vec::new();
                    others(&set, &layout, source, me, &mut to);
                    to.sort_unstable();
                    let run = (0..6).map(NodeId).filter(|&node| node != me);
                    let run: Vec<NodeId> = run.filter(|&node| runs(&set, &layout, source, node)).collect();
                    assert_eq!(to, run);
                }
            }
        }
    }
}
