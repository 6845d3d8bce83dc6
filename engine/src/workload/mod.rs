//! Workloads: tables, population, transactions, and invariants to check afterwards.
//!
//! A workload is a value, made from its name and settings. It draws each transaction's *input* before the
//! transaction starts, so that a retry repeats the same work, and states its transactions once over
//! [`Session`], whatever the protocol, plan and fabric below. After a run the stores are counted and compared with
//! what committed transactions say they did (FoundationDB's workloads: setup, start, check, metrics).

pub mod ahead;
mod demand;
pub mod keys;
pub mod micro;
pub mod params;
pub mod smallbank;

use crate::protocol::Protocol;
use crate::session::{Halt, Session};
use ahead::{InputWords, ReadWriteSet};
use params::{Param, ParamError};
use phases::ops::PhaseOps;
use rand::Rng;
use std::future::Future;
use std::ops::AddAssign;

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

/// One record: a table and a key in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RecordId {
    /// The table, by its place in [`Workload::tables`].
    pub table: u16,
    /// The key, below the table's number of records.
    pub key: u64,
}

/// One table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableDef {
    /// Its name.
    pub name: &'static str,
    /// Records; keys are `0..records`.
    pub records: u64,
    /// Payload of a record in bytes, a multiple of 8.
    pub payload_bytes: u32,
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
    type Tally: Copy + Default + AddAssign + Send + Sync + serde::Serialize + serde::de::DeserializeOwned;

    /// The workload's name on the command line.
    fn name(&self) -> &'static str;

    /// Its tables.
    fn tables(&self) -> Vec<TableDef>;

    /// Most records that one transaction touches; buffers are set aside for so many.
    fn records_per_transaction(&self) -> usize;

    /// The payload that `record` starts with. A function of the record alone, so that nodes fill in any order.
    fn fill(&self, record: RecordId, words: &mut [u64]);

    /// Draws the next transaction from the mix.
    fn draw(&self, rng: &mut impl Rng) -> Self::Input;

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

    /// Names all records that the transaction of this input may touch. Touching any other is a fault.
    fn declare(&self, _input: &Self::Input, _set: &mut ReadWriteSet) {}

    /// Appends the input as words.
    fn write_input(&self, _input: &Self::Input, _out: &mut Vec<u64>) {}

    /// The input from its words, which come from another node: `None` if they are not an input of this workload.
    fn read_input(&self, _words: InputWords<'_>) -> Option<Self::Input> {
        None
    }

    /// Adds one record's contents to `sum`.
    fn tally(&self, record: RecordId, words: &[u64], sum: &mut Self::Tally);

    /// Holds what the records contained before and contain now against the effects of committed transactions.
    fn check(&self, before: &Self::Tally, effects: &Self::Tally, now: &Self::Tally) -> Vec<Check>;
}

/// The workloads there are, by name, with their parameters.
pub const WORKLOADS: &[(&str, &[Param])] = &[("smallbank", smallbank::PARAMS), ("micro", micro::PARAMS)];

/// A workload chosen by name. Runs match on it once: each workload's transactions are compiled on their own.
#[derive(Clone, Debug)]
pub enum AnyWorkload {
    /// SmallBank.
    SmallBank(smallbank::SmallBank),
    /// Reads and updates of a chosen shape.
    Micro(micro::Micro),
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
            _ => Err(ParamError::UnknownWorkload {
                name: name.to_owned(),
                known: WORKLOADS.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", "),
            }),
        }
    }

    /// The workload's name on the command line.
    pub fn name(&self) -> &'static str {
        match self {
            AnyWorkload::SmallBank(w) => w.name(),
            AnyWorkload::Micro(w) => w.name(),
        }
    }
}
