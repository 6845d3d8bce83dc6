//! What tables take in memory, beside their payload, and what is set aside for them to grow into.

use crate::workload::{TableDef, Workload};
use phases::rule::Packing;
use phases::store::{Layout, NodeStore, Shape, StoreConfig, StoreError, TableId, TableSpec};
use primitives::verbs::NodeId;
use std::sync::Arc;

/// The usual size of the reserve in bytes, for each copy of a node's partition: an eighth of what the tables that grow declare, records and
/// index; nothing where none grows. Memory that no record has come to yet takes none where pages are given out at first use.
pub fn usual_reserve(tables: &[TableDef], nodes: u16, packing: Packing) -> u64 {
    let declared = tables.iter().filter(|def| def.grows).map(|def| {
        let shape = Shape { packing, payload: def.payload_bytes.div_ceil(8) };
        // An index slot of 16 B in buckets that are half full.
        def.rows_per_node(nodes).saturating_mul(shape.stride() + 32)
    });
    declared.fold(0, u64::saturating_add) / 8
}

/// What a node's partition of one table takes when it is full, the reserve apart.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Footprint {
    /// The table.
    pub table: &'static str,
    /// Records.
    pub records: u64,
    /// Payload of each in bytes.
    pub payload_bytes: u32,
    /// Bytes for each record in the registered region beside its payload: what the protocol keeps in it, padding, and its
    /// share of the hash index with its overflow buckets.
    pub beside_bytes: f64,
    /// Bytes for each record in the owner's trees, if the table is ordered.
    pub tree_bytes: f64,
}

impl Footprint {
    /// Bytes of the whole table.
    pub fn total_bytes(&self) -> f64 {
        self.records as f64 * (f64::from(self.payload_bytes) + self.beside_bytes + self.tree_bytes)
    }
}

/// Loads the keys that `workload` has on the first of its `nodes` into a store of just that size, one table after the
/// other, and measures it.
///
/// # Errors
/// If a table cannot be laid out or loaded.
pub fn footprint<W: Workload>(
    workload: &W,
    nodes: u16,
    packing: Packing,
) -> Result<Vec<Footprint>, StoreError> {
    let config = |tables| StoreConfig {
        tables,
        nodes,
        workers: 1,
        replicas: 1,
        log_ring_bytes: 0,
        reserve_bytes: 0,
        packing,
        first_version: 1,
    };
    let defs = workload.tables();
    let spec = |rows_per_node: u64| {
        move |def: &crate::workload::TableDef| TableSpec {
            name: def.name.to_owned(),
            payload_words: def.payload_bytes.div_ceil(8),
            rows_per_node,
            keys_per_block: def.keys_per_block,
            ordered: def.ordered,
        }
    };
    // Where keys live does not depend on how many there are.
    let all = Layout::new(config(defs.iter().map(spec(1)).collect()))?;
    let node = NodeId(0);
    let mut footprints = Vec::with_capacity(defs.len());
    for (number, def) in defs.iter().enumerate() {
        let records = workload.keys(number as u16, &all, node).count() as u64;
        let layout = Arc::new(Layout::new(config(vec![spec(records.max(1))(def)]))?);
        let store = NodeStore::new(node, layout.clone());
        let payload = vec![0; def.payload_bytes.div_ceil(8) as usize];
        for key in workload.keys(number as u16, &all, node) {
            store.insert(node, TableId(0), key, &payload)?;
        }
        let (keys, tree) = store.tree_size(TableId(0));
        footprints.push(Footprint {
            table: def.name,
            records,
            payload_bytes: def.payload_bytes,
            beside_bytes: layout.region_bytes() as f64 / records.max(1) as f64 - f64::from(def.payload_bytes),
            tree_bytes: tree as f64 / keys.max(1) as f64,
        });
    }
    Ok(footprints)
}
