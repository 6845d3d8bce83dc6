//! The records: one registered region per node, with hash indexes, records and log rings.
//!
//! Read in this order: [`layout`] (where everything lies), [`record`] (why a torn READ is never returned), `index`
//! (buckets that one READ each can probe), `slots` (how records come and go), `reserve` (what tables hold beyond what they declare),
//! [`tree`] (keys in order), [`cache`] (locations remembered).

pub mod cache;
mod index;
pub mod layout;
mod ordered;
pub mod record;
mod reserve;
mod slots;
pub mod tree;

pub use cache::{CacheStats, LocationCache};
pub(crate) use index::{Found, floor_of, probe_bucket};
pub use layout::{Layout, StoreConfig, TableId, TableSpec};
pub use ordered::PAGE_ROWS;
pub(crate) use ordered::{PAGE_LEAVES, Page};
pub use record::Shape;
pub(crate) use slots::Refused;
pub(crate) use tree::Grown;

use crate::rule::{Header, Packing};
use primitives::fabric::{AnyNic, Nic, SetupError};
use primitives::mem::{Access, MemoryKeys, Region};
use primitives::verbs::{NodeId, Remote, Rkey};
use record::Word;
use slots::Owned;
use std::sync::Arc;

/// Why the store could not be built or filled.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// A configuration that cannot be laid out.
    #[error("{0}")]
    Config(String),
    /// The table has no room for another record, and the reserve of its copy has none either.
    #[error(
        "table {name} of {node} is full: it has the {capacity} records it declares and {beyond} in the reserve of {reserve_bytes} B that its \
         copy's tables share, of which nothing is left: raise `reserve_bytes`, or declare more rows"
    )]
    Full {
        /// The table.
        table: TableId,
        /// Its name.
        name: String,
        /// The node.
        node: NodeId,
        /// Records it declares.
        capacity: u64,
        /// Records it has room for in the reserve.
        beyond: u64,
        /// Bytes of the reserve.
        reserve_bytes: u64,
    },
    /// The index has no room for another overflow bucket, and the reserve of its copy has none either.
    #[error(
        "the index of table {name} on {node} is full: it has used up its {buckets} overflow buckets and {beyond} in the reserve of \
         {reserve_bytes} B that its copy's tables share, of which nothing is left: raise `reserve_bytes`, or declare more rows"
    )]
    IndexFull {
        /// The table.
        table: TableId,
        /// Its name.
        name: String,
        /// The node.
        node: NodeId,
        /// Overflow buckets of its own.
        buckets: u64,
        /// Overflow buckets it has room for in the reserve.
        beyond: u64,
        /// Bytes of the reserve.
        reserve_bytes: u64,
    },
    /// The key is there already.
    #[error("table {table} has a record of key {key} already", table = .table.0)]
    Duplicate {
        /// The table.
        table: TableId,
        /// The key.
        key: u64,
    },
    /// There is no such table.
    #[error("there is no table {table}", table = .table.0)]
    NoTable {
        /// The table.
        table: TableId,
    },
    /// The payload has another length than the table's.
    #[error("{got} words of payload for table {table}, its records have {want}", table = .table.0)]
    Payload {
        /// The table.
        table: TableId,
        /// Words given.
        got: usize,
        /// Words needed.
        want: u32,
    },
    /// The node holds no copy of that partition.
    #[error("{node} holds no copy of the partition of {primary}")]
    NoCopy {
        /// The node.
        node: NodeId,
        /// The partition.
        primary: NodeId,
    },
}

/// What one node stores.
#[derive(Clone)]
pub struct NodeStore {
    node: NodeId,
    layout: Arc<Layout>,
    region: Region,
    /// What only this node's CPUs see.
    owned: Arc<Owned>,
}

impl NodeStore {
    /// An empty store.
    pub fn new(node: NodeId, layout: Arc<Layout>) -> NodeStore {
        let region = Region::new(layout.region_bytes() as usize);
        let owned = Arc::new(Owned::new(&layout));
        NodeStore { node, layout, region, owned }
    }

    /// The node.
    pub fn node(&self) -> NodeId {
        self.node
    }

    /// Its shape.
    pub fn layout(&self) -> &Arc<Layout> {
        &self.layout
    }

    /// Its memory.
    pub fn region(&self) -> &Region {
        &self.region
    }

    /// Whether a table's record could lie at `offset` of this node's own partition: for offsets that a peer sent.
    pub(crate) fn is_record(&self, table: TableId, offset: u64) -> bool {
        self.layout.has(table) && self.may_be_record(self.node, table, offset)
    }

    /// The record's latest version, if this node holds a copy of it and it is of one piece: for checks and
    /// tests, not for transactions.
    pub fn get(&self, table: TableId, key: u64) -> Option<Stored> {
        let copy = self.layout.copy(self.node, self.layout.primary(table, key))?;
        self.stored(table, self.locate_copy(copy, table, key)?)
    }

    /// The record at an offset, if it is of one piece.
    fn stored(&self, table: TableId, offset: u64) -> Option<Stored> {
        let shape = self.layout.shape(table);
        let words = record::words_at(&self.region, offset, shape);
        let slot = shape.newest(words);
        let locked = match shape.packing {
            Packing::Counted | Packing::Leased => Header(words[record::HEADER_WORD].get()).locked(),
            Packing::Locked | Packing::Versions => words[record::HEADER_WORD].get() != 0,
        };
        shape.whole(words, slot).then(|| Stored {
            version: shape.version(words[shape.version_word(slot)].get()),
            locked,
            payload: words[shape.payload_word(slot)..][..shape.payload as usize]
                .iter()
                .map(Word::get)
                .collect(),
        })
    }

    /// Brings a copy of a record to a version, unless it has a later one already. By CPUs alone: workers of this node
    /// apply different logs at once, so the copy's lock bit is held for the moment.
    pub(crate) fn bring_to(&self, offset: u64, shape: Shape, version: u64, key: u64, payload: &[impl Word]) {
        let words = record::words_at(&self.region, offset, shape);
        let behind = || shape.packing.later(version, shape.latest(words));
        while behind() {
            let seen = Header(words[record::HEADER_WORD].get());
            let busy = Header(seen.0 | 1 << 63);
            if seen.locked() || self.region.compare_swap(offset, seen.0, busy.0) != seen.0 {
                std::hint::spin_loop();
                continue;
            }
            if behind() {
                return record::write_local(&self.region, offset, shape, version, key, payload);
            }
            self.region.store(offset, seen.0);
        }
    }
}

/// A record as a check or a test sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    /// Its latest version.
    pub version: u64,
    /// Some transaction holds it.
    pub locked: bool,
    /// The payload of that version.
    pub payload: Vec<u64>,
}

/// The stores of the nodes in this process (all, or one of a cluster of processes), with the keys that let nodes reach
/// each other.
pub struct Cluster {
    layout: Arc<Layout>,
    /// In node order.
    stores: Vec<NodeStore>,
    rkeys: Arc<[Rkey]>,
    /// Of `stores`.
    keys: Vec<MemoryKeys>,
}

impl Cluster {
    /// Allocates and registers the stores of the nodes in this process; `nodes` has a context for each, in node order.
    /// Nodes elsewhere are reached once [`Cluster::learn`] has their keys.
    ///
    /// # Errors
    /// If the fabric refuses a registration or a context is of no node of the layout.
    pub fn new(layout: Layout, nodes: &[AnyNic]) -> Result<Cluster, SetupError> {
        let want = layout.config().nodes;
        let ordered = nodes.windows(2).all(|pair| pair[0].node() < pair[1].node());
        if !ordered || nodes.is_empty() || nodes.iter().any(|nic| nic.node().0 >= want) {
            let got: Vec<String> = nodes.iter().map(|nic| nic.node().to_string()).collect();
            return Err(SetupError::Invalid(format!("a store of {want} nodes on [{}]", got.join(", "))));
        }
        let layout = Arc::new(layout);
        let mut stores = Vec::with_capacity(nodes.len());
        let mut keys = Vec::with_capacity(nodes.len());
        let mut rkeys = vec![Rkey(0); usize::from(want)];
        for nic in nodes {
            let store = NodeStore::new(nic.node(), layout.clone());
            let registered = nic.register(store.region(), Access::ALL)?;
            rkeys[nic.node().index()] = registered.rkey;
            keys.push(registered);
            stores.push(store);
        }
        Ok(Cluster { layout, stores, rkeys: rkeys.into(), keys })
    }

    /// Takes the keys of all nodes' regions, in node order: those of nodes elsewhere are news.
    ///
    /// # Errors
    /// If there are not as many as nodes.
    pub fn learn(&mut self, rkeys: &[Rkey]) -> Result<(), SetupError> {
        if rkeys.len() != self.rkeys.len() {
            let (got, want) = (rkeys.len(), self.rkeys.len());
            return Err(SetupError::Invalid(format!("keys of {got} regions for a store of {want} nodes")));
        }
        self.rkeys = rkeys.into();
        Ok(())
    }

    fn here(&self, node: NodeId) -> Option<usize> {
        self.stores.iter().position(|store| store.node() == node)
    }

    /// The shape of all of them.
    pub fn layout(&self) -> &Arc<Layout> {
        &self.layout
    }

    /// One node's store, if the node is in this process.
    pub fn local(&self, node: NodeId) -> Option<&NodeStore> {
        self.here(node).map(|index| &self.stores[index])
    }

    /// The store of a node in this process.
    ///
    /// # Panics
    /// If there is no such node.
    pub fn store(&self, node: NodeId) -> &NodeStore {
        self.local(node).unwrap_or_else(|| panic!("{node} is not in this process"))
    }

    /// The stores in this process, in node order.
    pub fn stores(&self) -> &[NodeStore] {
        &self.stores
    }

    /// The keys under which the stores of this process are registered, in node order.
    pub fn keys(&self) -> &[MemoryKeys] {
        &self.keys
    }

    /// How other nodes name each other's regions.
    pub(crate) fn directory(&self) -> Directory {
        Directory { rkeys: self.rkeys.clone() }
    }

    /// Inserts a record with the first version into its primary and all backups, those of them that are in this process: before
    /// a run starts.
    ///
    /// # Errors
    /// If there is no such table, the payload has another length, the key is there already, or there is no room.
    pub fn load(&self, table: TableId, key: u64, payload: &[u64]) -> Result<(), StoreError> {
        if !self.layout.has(table) {
            return Err(StoreError::NoTable { table });
        }
        let primary = self.layout.primary(table, key);
        for node in std::iter::once(primary).chain(self.layout.backups(primary)) {
            if let Some(store) = self.local(node) {
                store.insert(primary, table, key, payload)?;
            }
        }
        Ok(())
    }
}

/// The keys of every node's region.
#[derive(Clone)]
pub(crate) struct Directory {
    rkeys: Arc<[Rkey]>,
}

impl Directory {
    #[inline]
    pub(crate) fn at(&self, node: NodeId, offset: u64) -> Remote {
        Remote { node, rkey: self.rkeys[node.index()], offset }
    }
}
