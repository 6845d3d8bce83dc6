//! Workloads: tables, population, transactions, and invariants to check afterwards.
//!
//! A workload is a value, made from its name and settings. It draws each transaction's *input* before the
//! transaction starts, so that a retry repeats the same work, and states its transactions once over
//! [`Session`], whatever the protocol, plan and fabric below. After a run the stores are counted and compared with
//! what committed transactions say they did (FoundationDB's workloads: setup, start, check, metrics).

pub mod ahead;
pub mod columns;
mod demand;
pub mod keys;
pub mod micro;
pub mod mix;
pub mod params;
pub mod smallbank;
pub mod stream;
pub mod tpcc;
pub mod tpce;
pub mod ycsb;

use crate::protocol::Protocol;
use crate::session::{Halt, Session};
use ahead::{Cover, InputWords, ReadWriteSet, Told};
use params::{Param, ParamError};
use phases::ops::PhaseOps;
use phases::store::Layout;
use primitives::units::Nanos;
use primitives::verbs::NodeId;
use rand::Rng;
use std::future::Future;
use std::ops::AddAssign;

pub use demand::Lookups;

/// How large the cluster is that a workload is spread over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scale {
    /// Nodes.
    pub nodes: u16,
    /// Worker threads per node.
    pub workers: u16,
}

impl Scale {
    /// Worker threads of the whole cluster.
    pub fn threads(&self) -> u64 {
        u64::from(self.nodes) * u64::from(self.workers)
    }
}

/// For whom, and when, a transaction is drawn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Client {
    /// The node it will run on.
    pub node: u16,
    /// The worker of that node.
    pub worker: u16,
    /// The coroutine, by its number in the whole cluster.
    pub number: u32,
    /// How many transactions that coroutine has drawn before.
    pub serial: u64,
    /// The time.
    pub now: Nanos,
}

/// One record: a table and a key in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RecordId {
    /// The table, by its place in [`Workload::tables`].
    pub table: u16,
    /// The key.
    pub key: u64,
}

/// One table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableDef {
    /// Its name.
    pub name: &'static str,
    /// Records that it is loaded with, in the whole cluster, or as many as on average where that is drawn; see [`Workload::keys`].
    pub records: u64,
    /// Payload of a record in bytes, a multiple of 8.
    pub payload_bytes: u32,
    /// Records that each node has room for, those to be inserted included, the reserve apart; 0 stands for `records` dealt out evenly.
    pub capacity_per_node: u64,
    /// Neighbouring keys that share a node: the primary is `key / keys_per_block mod nodes`. Keys of a block can be scanned
    /// together.
    pub keys_per_block: u64,
    /// Owners keep its keys in order, for scans.
    pub ordered: bool,
    /// Records are inserted for as long as a run lasts, so that no room is enough for every run: it counts for the usual size of the reserve
    /// ([`usual_reserve`](crate::cluster::usual_reserve)).
    pub grows: bool,
}

impl TableDef {
    /// A table with keys `0..records`, dealt out one by one, to which nothing is added: neighbours on different nodes, so hot keys are
    /// spread, and no transaction is local by luck.
    pub const fn new(name: &'static str, records: u64, payload_bytes: u32) -> TableDef {
        let (capacity_per_node, keys_per_block) = (0, 1);
        TableDef {
            name,
            records,
            payload_bytes,
            capacity_per_node,
            keys_per_block,
            ordered: false,
            grows: false,
        }
    }

    /// With room for so many records on each node.
    pub const fn room(self, capacity_per_node: u64) -> TableDef {
        TableDef { capacity_per_node, ..self }
    }

    /// With so many neighbouring keys on one node.
    pub const fn blocks(self, keys_per_block: u64) -> TableDef {
        TableDef { keys_per_block, ..self }
    }

    /// With keys in order.
    pub const fn ordered(self) -> TableDef {
        TableDef { ordered: true, ..self }
    }

    /// With more and more records.
    pub const fn grows(self) -> TableDef {
        TableDef { grows: true, ..self }
    }

    /// Records that each of so many nodes has room for.
    pub fn rows_per_node(&self, nodes: u16) -> u64 {
        if self.capacity_per_node > 0 {
            return self.capacity_per_node;
        }
        let blocks = self.records.div_ceil(self.keys_per_block.max(1)).div_ceil(u64::from(nodes).max(1));
        blocks.saturating_mul(self.keys_per_block).clamp(1, self.records.max(1))
    }
}

/// Most records of a table that one transaction touches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Touches {
    /// The table.
    pub table: u16,
    /// Records read or written.
    pub records: usize,
    /// Of these, written.
    pub written: usize,
}

/// The outcome of one invariant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// The invariant's name in result files.
    pub name: &'static str,
    /// Whether it held.
    pub passed: bool,
    /// What was expected and found.
    pub detail: String,
}

/// What transactions a cluster runs, on which tables.
pub trait Workload: Sync {
    /// All that one transaction is told, drawn before its first attempt.
    type Input: Copy;
    /// What is added up for [`Workload::check`]: effects of transactions, contents of records.
    /// It travels between the nodes of a cluster.
    type Tally: Clone + Default + AddAssign + Send + Sync + serde::Serialize + serde::de::DeserializeOwned;

    /// The workload's name on the command line.
    fn name(&self) -> &'static str;

    /// Its tables.
    fn tables(&self) -> Vec<TableDef>;

    /// Whether its transactions insert, delete, scan, or look for what may not be there. Only protocols that can keep such
    /// transactions apart may run it.
    fn changes_tables(&self) -> bool {
        false
    }

    /// Tables, a bit each by number, whose records only transactions of their own node touch: what NICs lock elsewhere, CPUs may lock
    /// there ([`phases::ops::Phases::keep_at_home`]).
    fn home_tables(&self) -> u64 {
        0
    }

    /// The keys of a table that are loaded and whose primary is `node`, always in the same order: of `0..records`, unless the
    /// workload has other keys.
    fn keys<'a>(&'a self, table: u16, layout: &'a Layout, node: NodeId) -> impl Iterator<Item = u64> + 'a {
        let def = self.tables().get(usize::from(table)).copied();
        let (records, block) = def.map_or((0, 1), |t| (t.records, t.keys_per_block.max(1)));
        let blocks = u64::from(node.0)..records.div_ceil(block);
        blocks
            .step_by(usize::from(layout.config().nodes))
            .flat_map(move |b| b * block..(b * block).saturating_add(block).min(records))
    }

    /// Most records that one transaction touches; buffers are set aside for so many.
    fn records_per_transaction(&self) -> usize;

    /// Those records by table, where tables differ so much that buffers of the largest for all would waste memory.
    /// Unless told otherwise, all may be of any table, and all may be written.
    fn touches(&self) -> Vec<Touches> {
        let largest =
            self.tables().iter().enumerate().max_by_key(|(_, t)| t.payload_bytes).map_or(0, |(n, _)| n);
        let records = self.records_per_transaction();
        vec![Touches { table: largest as u16, records, written: records }]
    }

    /// Writes the payload that `record` starts with into `words`, all of which are zero. A function of the record alone, so that
    /// nodes fill in any order.
    fn fill(&self, record: RecordId, words: &mut [u64]);

    /// Draws the next transaction from the mix.
    fn draw(&self, rng: &mut impl Rng) -> Self::Input;

    /// As [`Workload::draw`], for workloads to which it matters who asks, and when.
    fn draw_at(&self, client: Client, rng: &mut impl Rng) -> Self::Input {
        let _ = client;
        self.draw(rng)
    }

    /// The kinds of transactions in its mix, whatever their weights.
    fn kinds(&self) -> &'static [&'static str] {
        &["transaction"]
    }

    /// Which of them an input is of.
    fn kind(&self, input: &Self::Input) -> usize {
        let _ = input;
        0
    }

    /// One attempt, without begin and commit; returns what it changes if it commits.
    fn execute<P: Protocol, O: PhaseOps>(
        &self,
        session: &mut Session<P, O>,
        input: &Self::Input,
    ) -> impl Future<Output = Result<Self::Tally, Halt>>;

    /// Most words of an input as [`Workload::write_input`] writes it, if transactions can be declared ahead; `None` where the
    /// records they touch are known only once they have read others. Protocols that order transactions before they run
    /// (CALVIN) refuse such a workload.
    fn input_words(&self) -> Option<usize> {
        None
    }

    /// Names all records that the transaction of this input may touch, or locks that cover them. Touching any other is a fault.
    fn declare(&self, _input: &Self::Input, _set: &mut ReadWriteSet) {}

    /// The lock that is held by whoever touches a record, its own unless told otherwise. All keys between two of one table that another
    /// record covers are covered by it, too.
    fn cover(&self, _record: RecordId) -> Cover {
        Cover::Own
    }

    /// Most that nodes tell each other of one transaction: unless told otherwise, all records that it touches.
    fn told(&self) -> Told {
        let payload = self.tables().iter().map(|t| t.payload_bytes.div_ceil(8)).max().unwrap_or(0);
        Told::NOTHING.declared(self.records_per_transaction(), payload as usize)
    }

    /// Appends the input as words.
    fn write_input(&self, _input: &Self::Input, _out: &mut Vec<u64>) {}

    /// The input from its words, which come from another node: `None` if they are not an input of this workload.
    fn read_input(&self, _words: InputWords<'_>) -> Option<Self::Input> {
        None
    }

    /// Adds one record's contents to `sum`.
    fn tally(&self, record: RecordId, words: &[u64], sum: &mut Self::Tally);

    /// Comes when all records of some nodes have been added to `sum`: what can only be told of a node's records
    /// together is compared here, so that sums of nodes stay small.
    fn settle(&self, sum: &mut Self::Tally) {
        let _ = sum;
    }

    /// Holds what the records contained before and contain now against the effects of committed transactions.
    fn check(&self, before: &Self::Tally, effects: &Self::Tally, now: &Self::Tally) -> Vec<Check>;
}

/// The workloads there are, by name, with their parameters.
pub const WORKLOADS: &[(&str, &[Param])] = &[
    ("smallbank", smallbank::PARAMS),
    ("micro", micro::PARAMS),
    ("ycsb", ycsb::PARAMS),
    ("tpcc", tpcc::PARAMS),
    ("tpcc-no", tpcc::NO_PARAMS),
    ("tpce-cp", tpce::PARAMS),
];

/// A workload chosen by name. Runs match on it once: each workload's transactions are compiled on their own.
#[allow(clippy::large_enum_variant)] // there is one for each run
#[derive(Clone, Debug)]
pub enum AnyWorkload {
    /// SmallBank.
    SmallBank(smallbank::SmallBank),
    /// Reads and updates of a chosen shape.
    Micro(micro::Micro),
    /// TPC-C, or new-order alone.
    Tpcc(tpcc::Tpcc),
    /// TPC-E's customer-position.
    CustomerPosition(tpce::CustomerPosition),
    /// Reads and writes of one table's records.
    Ycsb(ycsb::Ycsb),
}

/// What `$body` says of the workload `$w` that was chosen.
#[macro_export]
macro_rules! with_workload {
    ($any:expr, $w:ident => $body:expr) => {
        match $any {
            $crate::workload::AnyWorkload::SmallBank($w) => $body,
            $crate::workload::AnyWorkload::Micro($w) => $body,
            $crate::workload::AnyWorkload::Tpcc($w) => $body,
            $crate::workload::AnyWorkload::CustomerPosition($w) => $body,
            $crate::workload::AnyWorkload::Ycsb($w) => $body,
        }
    };
}

impl AnyWorkload {
    /// The workload called `name`, for a cluster of `scale`, with `settings` over its defaults.
    ///
    /// # Errors
    /// On an unknown name, unknown keys, and values that cannot be.
    pub fn parse<'a>(
        name: &str,
        scale: Scale,
        settings: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<AnyWorkload, ParamError> {
        match name {
            "smallbank" => smallbank::SmallBank::parse(scale, settings).map(AnyWorkload::SmallBank),
            "micro" => micro::Micro::parse(scale, settings).map(AnyWorkload::Micro),
            "tpcc" => tpcc::Tpcc::parse("tpcc", scale, settings).map(AnyWorkload::Tpcc),
            "tpcc-no" => tpcc::Tpcc::parse("tpcc-no", scale, settings).map(AnyWorkload::Tpcc),
            "tpce-cp" => tpce::CustomerPosition::parse(scale, settings).map(AnyWorkload::CustomerPosition),
            "ycsb" => ycsb::Ycsb::parse(scale, settings).map(AnyWorkload::Ycsb),
            _ => Err(ParamError::UnknownWorkload {
                name: name.to_owned(),
                known: WORKLOADS.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", "),
            }),
        }
    }

    /// The workload's name on the command line.
    pub fn name(&self) -> &'static str {
        with_workload!(self, w => w.name())
    }

    /// The kinds of transactions in its mix, whatever their weights.
    pub fn kinds(&self) -> &'static [&'static str] {
        with_workload!(self, w => w.kinds())
    }
}
