//! Where everything lies: which node holds a key, and at which offset of its region each part begins.
//!
//! Every node registers one region of the same shape, so that an offset computed here is right for any node:
//!
//! ```text
//! for each copy held (own partition, then those of the predecessors it backs up), for each table:
//!     buckets of the hash index, 128 B each      first the main ones, then the overflow ones
//!     records, each a multiple of 64 B where it is larger than that, else of 32 B
//! allocation cursors, one word per copy and table and purpose
//! log rings, one per (source node, worker): a head word in a line of its own, then the ring
//! letters, where transactions are sequenced
//! reserves, one per copy, for what tables hold beyond the records they declare
//! ```
//!
//! **What grows.** A table has main buckets for the records that it declares ([`TableSpec::rows_per_node`]), and overflow buckets for a little
//! more than chance makes necessary. What is inserted beyond goes to the reserve of its copy (`store/reserve.rs`): room grows, the main buckets
//! do not, so chains get longer. Mean READs of a lookup that no cache answers, keys drawn into a table of 20 000 declared records (`reserve/tests.rs` measures it):
//!
//! | records held, in times of those declared | 1 | 2 | 4 |
//! |---|--:|--:|--:|
//! | the key is there | 1.05 | 1.34 | 2.03 |
//! | it is not | 1.13 | 1.86 | 3.28 |
//!
//! Main buckets are not split. A reader that knows of an older number of buckets would have to learn so from the very bucket it READs, for a
//! lookup and for the floor that stands for an absence alike; that is not worth what twice the records cost. A table of which it is known that it
//! grows manifold should declare so: empty buckets cost 26 B for each record declared, and 7 B of overflow buckets.
//!
//! A key's primary is `key / keys_per_block mod nodes`; its backups are the next nodes in order (FaRM and DrTM+H
//! use three replicas in all).

use super::StoreError;
use super::record::{self, Shape};
use super::reserve::Extents;
use crate::rule::Packing;
use primitives::verbs::NodeId;

/// Bytes of an index bucket: two cache lines, seven entries and a link.
pub const BUCKET_BYTES: u64 = 128;
/// Entries of a bucket.
pub const BUCKET_ENTRIES: u64 = 7;
/// Bytes that a log ring's head word takes, so that no two rings' heads share a cache line.
pub const RING_HEAD_BYTES: u64 = 64;
/// Most replicas of a record, the primary included.
pub const MAX_REPLICAS: u16 = 3;
/// Trees that an owner deals the blocks of an ordered table out to, so that its workers seldom meet at a latch.
pub(crate) const SHARDS: u64 = 16;
/// Location words and cache entries keep an offset in 48 bits.
const MAX_REGION_BYTES: u64 = 1 << 48;

/// A table's number: its place in [`StoreConfig::tables`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TableId(pub u16);

/// A table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableSpec {
    /// Its name, for messages.
    pub name: String,
    /// Words of payload of each record.
    pub payload_words: u32,
    /// Records each partition has room for, those to be inserted included, the reserve ([`StoreConfig::reserve_bytes`]) apart.
    pub rows_per_node: u64,
    /// Neighbouring keys that share a node: 1 deals keys out one by one, `rows_per_node` gives each node a range.
    pub keys_per_block: u64,
    /// Each owner keeps the keys of its partition in order, too, so that ranges of a block can be scanned.
    pub ordered: bool,
}

/// What a cluster stores.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreConfig {
    /// The tables; a table's number is its place here.
    pub tables: Vec<TableSpec>,
    /// Nodes, each primary of one partition.
    pub nodes: u16,
    /// Worker threads per node; each has a log ring at every backup.
    pub workers: u16,
    /// Copies of each record, the primary included: 1 to 3, and not more than nodes.
    pub replicas: u16,
    /// Bytes of each log ring.
    pub log_ring_bytes: u64,
    /// Bytes of each copy's reserve, rounded up to whole extents: what its tables share once they hold more than `rows_per_node` records. 0 is
    /// none: then a table takes no more than that.
    pub reserve_bytes: u64,
    /// How the protocol packs its state into records.
    pub packing: Packing,
    /// Version of every record that is loaded; 1 unless a test wants to be close to a wrap.
    pub first_version: u64,
}

/// Offsets of one copy of one table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    /// First main bucket.
    pub(crate) buckets: u64,
    /// Main buckets.
    pub(crate) bucket_count: u64,
    /// First overflow bucket.
    pub(crate) overflow: u64,
    /// Overflow buckets.
    pub(crate) overflow_count: u64,
    /// First record.
    pub(crate) records: u64,
    /// Record slots.
    pub(crate) record_count: u64,
    /// Word that counts record slots given out.
    pub(crate) record_cursor: u64,
    /// Word that counts overflow buckets given out.
    pub(crate) overflow_cursor: u64,
}

/// What is divided by for every record that is touched. Most are powers of two, where a shift will do, which takes a small part of a
/// division's time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Divisor {
    by: u64,
    /// Of a power of two.
    shift: Option<u32>,
}

impl Divisor {
    fn new(by: u64) -> Divisor {
        Divisor { by, shift: by.is_power_of_two().then(|| by.ilog2()) }
    }

    #[inline]
    fn quotient(self, n: u64) -> u64 {
        self.shift.map_or_else(|| n / self.by, |shift| n >> shift)
    }

    #[inline]
    fn rest(self, n: u64) -> u64 {
        self.shift.map_or_else(|| n % self.by, |_| n & (self.by - 1))
    }
}

/// What a transaction keeps of a record: the record as it is read, and behind it what is installed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Images {
    /// The record's shape.
    pub(crate) shape: Shape,
    /// Bytes of both images.
    pub(crate) bytes: u32,
    /// Where the payload of the second one begins, in words.
    pub(crate) new: u16,
}

impl Images {
    /// Those of records of a shape. That the longest record's are not too long is looked at when compiling.
    const fn of(shape: Shape) -> Images {
        const LONGEST: Shape = Shape { packing: Packing::Versions, payload: record::MAX_PAYLOAD_WORDS };
        const { assert!(LONGEST.words() + LONGEST.install_words() <= u16::MAX as usize) };
        let bytes = (shape.words() + shape.install_words()) as u32 * 8;
        Images { shape, bytes, new: Images::second(shape) }
    }

    /// Where the payload of the second image begins, in words.
    pub(crate) const fn second(shape: Shape) -> u16 {
        (shape.words() + shape.install_payload()) as u16
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Table {
    images: Images,
    stride: u64,
    keys_per_block: Divisor,
    ordered: bool,
    /// By copy: own partition first, then the predecessors'.
    parts: Vec<Part>,
}

/// The shape of every node's region.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    config: StoreConfig,
    nodes: Divisor,
    tables: Vec<Table>,
    rings: u64,
    letters: std::ops::Range<u64>,
    /// Of the first copy; those of the others follow.
    reserve: Extents,
    bytes: u64,
}

impl Layout {
    /// Lays out a store.
    ///
    /// # Errors
    /// If a count is zero or larger than can be addressed.
    pub fn new(config: StoreConfig) -> Result<Layout, StoreError> {
        let StoreConfig { nodes, workers, replicas, log_ring_bytes, .. } = config;
        if nodes == 0 || workers == 0 || config.tables.is_empty() {
            return Err(StoreError::Config(format!(
                "a store needs nodes, workers and tables, not {nodes}, {workers} and {}",
                config.tables.len()
            )));
        }
        if replicas == 0 || replicas > MAX_REPLICAS.min(nodes) {
            return Err(StoreError::Config(format!(
                "{replicas} replicas on {nodes} nodes: 1 to {} are possible",
                MAX_REPLICAS.min(nodes)
            )));
        }
        if replicas > 1 && (log_ring_bytes < 1024 || log_ring_bytes % 64 != 0 || log_ring_bytes > 1 << 31) {
            return Err(StoreError::Config(format!(
                "log rings of {log_ring_bytes} B: a multiple of 64 B from 1 KiB to 2 GiB is needed"
            )));
        }
        let mut at = 64; // offset 0 is never a record or a bucket: zero means "none" in links
        let mut take = |count: u64, each: u64| -> Result<u64, StoreError> {
            let start = at;
            at = count
                .checked_mul(each)
                .and_then(|bytes| bytes.checked_next_multiple_of(64))
                .and_then(|bytes| bytes.checked_add(start))
                .filter(|&end| end < MAX_REGION_BYTES)
                .ok_or_else(|| StoreError::Config(format!("{count} × {each} B cannot be addressed")))?;
            Ok(start)
        };
        let mut tables = Vec::with_capacity(config.tables.len());
        for spec in &config.tables {
            let TableSpec { payload_words, rows_per_node, keys_per_block, ordered, .. } = *spec;
            if rows_per_node == 0 || keys_per_block == 0 || payload_words == 0 {
                return Err(StoreError::Config(format!(
                    "table {}: {rows_per_node} rows of {payload_words} words in blocks of {keys_per_block} keys: \
                     none of them may be zero",
                    spec.name
                )));
            }
            if payload_words > record::MAX_PAYLOAD_WORDS {
                return Err(StoreError::Config(format!(
                    "table {}: {payload_words} words of payload, {} are possible",
                    spec.name,
                    record::MAX_PAYLOAD_WORDS
                )));
            }
            let shape = Shape { packing: config.packing, payload: payload_words };
            let stride = shape.stride();
            // Five of seven entries used on average keeps chains short: at a Poisson load of 5 a bucket, one key in twenty lies in an
            // overflow bucket.
            let bucket_count = rows_per_node.div_ceil(5);
            let overflow_count = bucket_count / 4 + 8;
            let mut parts = Vec::with_capacity(usize::from(replicas));
            for _ in 0..replicas {
                parts.push(Part {
                    buckets: take(bucket_count, BUCKET_BYTES)?,
                    bucket_count,
                    overflow: take(overflow_count, BUCKET_BYTES)?,
                    overflow_count,
                    records: take(rows_per_node, stride)?,
                    record_count: rows_per_node,
                    record_cursor: take(1, 8)?,
                    overflow_cursor: take(1, 8)?,
                });
            }
            let keys_per_block = Divisor::new(keys_per_block);
            tables.push(Table { images: Images::of(shape), stride, keys_per_block, ordered, parts });
        }
        let ring = if replicas > 1 { RING_HEAD_BYTES + log_ring_bytes } else { 0 };
        let rings = take(u64::from(nodes) * u64::from(workers), ring)?;
        let longest = tables.iter().map(|table| table.stride).max().unwrap_or(0);
        let reserve = Extents::cut(config.reserve_bytes, longest);
        let start = take(u64::from(replicas) * reserve.count, reserve.each)?;
        let nodes = Divisor::new(u64::from(nodes));
        let reserve = Extents { start, ..reserve };
        Ok(Layout { config, nodes, tables, rings, letters: start..start, reserve, bytes: at })
    }

    /// Sets `bytes` bytes more of every region aside for letters ([`crate::letter`]), in front of the reserves; returns where they begin.
    ///
    /// # Errors
    /// If they cannot be addressed.
    pub fn reserve_letters(&mut self, bytes: u64) -> Result<u64, StoreError> {
        let start = self.reserve.start;
        let reserves = self.bytes - start;
        let end = bytes.checked_next_multiple_of(64).and_then(|bytes| start.checked_add(bytes));
        let end = end
            .filter(|&end| end < MAX_REGION_BYTES - reserves)
            .ok_or_else(|| StoreError::Config(format!("{bytes} B of letters cannot be addressed")))?;
        (self.letters, self.reserve.start, self.bytes) = (start..end, end, end + reserves);
        Ok(start)
    }

    /// The part of each region that is set aside for letters.
    pub fn letters(&self) -> std::ops::Range<u64> {
        self.letters.clone()
    }

    /// What was laid out.
    pub fn config(&self) -> &StoreConfig {
        &self.config
    }

    /// Bytes of each node's region.
    pub fn region_bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether there is such a table.
    pub fn has(&self, table: TableId) -> bool {
        usize::from(table.0) < self.tables.len()
    }

    /// Words of payload of a table's records.
    ///
    /// # Panics
    /// If there is no such table.
    #[inline]
    pub fn payload_words(&self, table: TableId) -> u32 {
        self.shape(table).payload
    }

    /// Where the words of a table's records are.
    ///
    /// # Panics
    /// If there is no such table.
    #[inline]
    pub fn shape(&self, table: TableId) -> Shape {
        self.images(table).shape
    }

    /// What transactions keep of a table's records.
    #[inline]
    pub(crate) fn images(&self, table: TableId) -> Images {
        self.tables[usize::from(table.0)].images
    }

    /// Bytes of a table's records: what the protocol keeps in front of and between payloads, and the payloads.
    #[inline]
    pub fn record_bytes(&self, table: TableId) -> u32 {
        self.shape(table).words() as u32 * 8
    }

    /// Bytes between a table's records.
    pub(crate) fn stride(&self, table: TableId) -> u64 {
        self.tables[usize::from(table.0)].stride
    }

    /// Whether owners keep the table's keys in order.
    #[inline]
    pub fn is_ordered(&self, table: TableId) -> bool {
        self.tables.get(usize::from(table.0)).is_some_and(|t| t.ordered)
    }

    /// The block of neighbouring keys that a key belongs to.
    ///
    /// # Panics
    /// If there is no such table.
    #[inline]
    pub fn block(&self, table: TableId, key: u64) -> u64 {
        self.tables[usize::from(table.0)].keys_per_block.quotient(key)
    }

    /// Which of its owner's trees has the key: those of a block are in one.
    #[inline]
    pub(crate) fn shard(&self, table: TableId, key: u64) -> u16 {
        (self.nodes.quotient(self.block(table, key)) % SHARDS) as u16
    }

    /// The node that holds the key's primary copy.
    #[inline]
    pub fn primary(&self, table: TableId, key: u64) -> NodeId {
        NodeId(self.nodes.rest(self.block(table, key)) as u16)
    }

    /// Offset, in its primary's own copy, of the record that was inserted `n`th into an empty table: where a peer's
    /// records lie that were loaded in a known order. `None` beyond the records that the table declares.
    pub fn nth_record(&self, table: TableId, n: u64) -> Option<u64> {
        let part = self.part(0, table);
        (n < part.record_count).then(|| part.records + n * self.stride(table))
    }

    /// The extents that the tables of a copy share.
    #[inline]
    pub(crate) fn extents(&self, copy: usize) -> Extents {
        Extents { start: self.reserve.start + copy as u64 * self.reserve.bytes(), ..self.reserve }
    }

    /// Bytes of each copy's reserve.
    pub fn reserve_bytes(&self) -> u64 {
        self.reserve.bytes()
    }

    /// Whether a primary's own copy of the table has a slot of its own at `offset`, extents apart.
    #[inline]
    pub(crate) fn may_be_record(&self, table: TableId, offset: u64) -> bool {
        let Table { stride, ref parts, .. } = self.tables[usize::from(table.0)];
        let Part { records, record_count, .. } = parts[0];
        offset >= records
            && offset - records < record_count * stride
            && (offset - records).is_multiple_of(stride)
    }

    /// The nodes that hold copies of `primary`'s partition, without itself.
    #[inline]
    pub fn backups(&self, primary: NodeId) -> impl Iterator<Item = NodeId> {
        let nodes = u32::from(self.config.nodes);
        (1..u32::from(self.config.replicas)).map(move |i| NodeId(((u32::from(primary.0) + i) % nodes) as u16))
    }

    /// Which of `node`'s copies is that of `primary`'s partition, if it holds one: 0 is its own.
    #[inline]
    pub fn copy(&self, node: NodeId, primary: NodeId) -> Option<usize> {
        let nodes = self.config.nodes;
        let behind = if node.0 >= primary.0 { node.0 - primary.0 } else { node.0 + nodes - primary.0 };
        (behind < self.config.replicas).then_some(usize::from(behind))
    }

    pub(crate) fn part(&self, copy: usize, table: TableId) -> &Part {
        &self.tables[usize::from(table.0)].parts[copy]
    }

    /// Offset of the main bucket of a key in its primary's own copy.
    #[inline]
    pub fn bucket(&self, copy: usize, table: TableId, key: u64) -> u64 {
        let part = self.part(copy, table);
        let place = (u128::from(hash(key)) * u128::from(part.bucket_count)) >> 64;
        part.buckets + place as u64 * BUCKET_BYTES
    }

    /// Offset of the head word of the ring that `worker` of `source` fills.
    #[inline]
    pub(crate) fn ring_head(&self, source: NodeId, worker: u16) -> u64 {
        let index = u64::from(source.0) * u64::from(self.config.workers) + u64::from(worker);
        self.rings + index * (RING_HEAD_BYTES + self.config.log_ring_bytes)
    }

    /// Offset of the first byte of that ring.
    #[inline]
    pub(crate) fn ring(&self, source: NodeId, worker: u16) -> u64 {
        self.ring_head(source, worker) + RING_HEAD_BYTES
    }
}

/// Spreads keys over 64 bits: multiply and fold twice, so that neighbouring keys part in the upper bits, which
/// choose the bucket, and in the lower ones, which make tags.
#[inline]
pub(crate) fn hash(key: u64) -> u64 {
    let once = fold(key ^ 0x9e37_79b9_7f4a_7c15, 0xd6e8_feb8_6659_fd93);
    fold(once ^ 0xa076_1d64_78bd_642f, 0xe703_7ed1_a0b4_28db)
}

/// Both halves of a 128-bit product, combined.
#[inline]
pub(crate) fn fold(a: u64, b: u64) -> u64 {
    let wide = u128::from(a) * u128::from(b);
    wide as u64 ^ (wide >> 64) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(nodes: u16, replicas: u16) -> StoreConfig {
        let table = |payload_words| TableSpec {
            name: format!("t{payload_words}"),
            payload_words,
            rows_per_node: 100,
            keys_per_block: 10,
            ordered: false,
        };
        StoreConfig {
            tables: vec![table(1), table(9)],
            nodes,
            workers: 2,
            replicas,
            log_ring_bytes: 1024,
            reserve_bytes: 3000,
            packing: Packing::Counted,
            first_version: 1,
        }
    }

    #[test]
    fn parts_do_not_overlap_and_stay_inside() {
        let layout = Layout::new(config(4, 3)).unwrap();
        let mut spans = Vec::new();
        for table in [TableId(0), TableId(1)] {
            for copy in 0..3 {
                let p = layout.part(copy, table);
                spans.push((p.buckets, p.bucket_count * BUCKET_BYTES));
                spans.push((p.overflow, p.overflow_count * BUCKET_BYTES));
                spans.push((p.records, p.record_count * layout.stride(table)));
                spans.push((p.record_cursor, 8));
                spans.push((p.overflow_cursor, 8));
            }
        }
        for node in 0..4 {
            for worker in 0..2 {
                spans.push((layout.ring_head(NodeId(node), worker), RING_HEAD_BYTES + 1024));
            }
        }
        for copy in 0..3 {
            let extents = layout.extents(copy);
            assert_eq!((extents.each, extents.count), (1024, 3), "3000 B in whole extents");
            spans.push((extents.start, extents.bytes()));
        }
        spans.sort_unstable();
        assert!(spans[0].0 > 0, "offset 0 means none");
        assert!(spans.windows(2).all(|w| w[0].0 + w[0].1 <= w[1].0));
        let &(start, len) = spans.last().unwrap();
        assert!(start + len <= layout.region_bytes());
    }

    #[test]
    fn copies_are_where_backups_say() {
        for (nodes, replicas) in [(1, 1), (2, 2), (3, 3), (5, 1), (5, 2), (5, 3)] {
            let layout = Layout::new(config(nodes, replicas)).unwrap();
            for primary in (0..nodes).map(NodeId) {
                assert_eq!(layout.copy(primary, primary), Some(0));
                let backups: Vec<NodeId> = layout.backups(primary).collect();
                assert_eq!(backups.len(), usize::from(replicas) - 1);
                for node in (0..nodes).map(NodeId) {
                    let copy = layout.copy(node, primary);
                    assert_eq!(copy.is_some(), node == primary || backups.contains(&node));
                }
            }
            for key in 0..100 {
                assert_eq!(layout.primary(TableId(0), key).0, (key / 10 % u64::from(nodes)) as u16);
            }
        }
    }

    #[test]
    fn powers_of_two_divide_like_other_numbers() {
        for by in [1, 2, 3, 10, 16, 1 << 48, 1 << 63, u64::MAX] {
            let divisor = Divisor::new(by);
            for n in [0, 1, 9, 10, 16, 4711, (1 << 48) - 1, 1 << 48, 5 << 48 | 77, u64::MAX] {
                assert_eq!((divisor.quotient(n), divisor.rest(n)), (n / by, n % by), "{n} by {by}");
            }
        }
    }

    #[test]
    fn impossible_stores_are_refused_with_their_numbers() {
        let bad = [
            config(0, 1),
            config(2, 3),
            config(2, 0),
            StoreConfig { log_ring_bytes: 100, ..config(2, 2) },
            StoreConfig { reserve_bytes: 1 << 48, ..config(2, 2) },
            StoreConfig { reserve_bytes: u64::MAX, ..config(2, 2) },
            StoreConfig { tables: vec![], ..config(2, 2) },
            StoreConfig {
                tables: vec![TableSpec { rows_per_node: 1 << 62, ..config(1, 1).tables[0].clone() }],
                ..config(1, 1)
            },
            StoreConfig {
                tables: vec![TableSpec { payload_words: 1 << 20, ..config(1, 1).tables[0].clone() }],
                ..config(1, 1)
            },
        ];
        for config in bad {
            assert!(matches!(Layout::new(config.clone()), Err(StoreError::Config(_))), "{config:?}");
        }
    }
}
