//! A workload whose records come and go, with limits that a phantom breaks, and small runs of it.
#![allow(dead_code)] // whoever borrows it takes a part

use crate::common::{PATIENT, plans_of, sim};
use engine::cluster::{Length, RunSpec};
use engine::protocol::Protocol;
use engine::session::{Halt, Order, Session};
use engine::workload::ahead::{Cover, InputWords, ReadWriteSet, Told};
use engine::workload::{Check, RecordId, TableDef, Workload};
use phases::ops::PhaseOps;
use phases::plan::{Needs, Plan};
use phases::txn::Intent;
use primitives::fabric::sim::FaultOptions;
use primitives::mesh::{FabricSpec, Shape};
use primitives::units::Nanos;
use rand::seq::IndexedRandom;
use rand::{Rng, RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::ops::AddAssign;

const BLOCK: u64 = 1 << 20;
/// No block has more items than that: who wants to add one counts them first.
pub const MOST: usize = 6;
pub const BLOCKS: u64 = 4;
pub const NAMES: u64 = 12;

/// An ordered table whose blocks have at most [`MOST`] items, and two tables of which at most one has a name.
pub struct Club;

#[derive(Clone, Copy, Debug)]
pub enum Input {
    /// Adds an item if there is room in its block, else removes one.
    Turn { block: u64, item: u64, from_above: bool },
    /// Counts a block's items, and looks for one of them.
    Count { block: u64, item: u64 },
    /// Gives a name to one table if neither has it, else takes it away.
    Name { name: u64, left: bool },
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Tally {
    pub added: u64,
    pub removed: u64,
    /// Blocks seen with too many items, names seen twice.
    pub broken: u64,
}

impl AddAssign for Tally {
    fn add_assign(&mut self, rhs: Tally) {
        self.added += rhs.added;
        self.removed += rhs.removed;
        self.broken += rhs.broken;
    }
}

/// An item of a block.
pub fn item(block: u64, item: u64) -> RecordId {
    RecordId { table: 0, key: block * BLOCK + item }
}

impl Workload for Club {
    type Input = Input;
    type Tally = Tally;

    fn name(&self) -> &'static str {
        "club"
    }

    fn tables(&self) -> Vec<TableDef> {
        vec![
            TableDef::new("items", 0, 16).blocks(BLOCK).ordered().room(64),
            TableDef::new("left", 0, 8).room(NAMES),
            TableDef::new("right", 0, 8).room(NAMES),
        ]
    }

    fn changes_tables(&self) -> bool {
        true
    }

    fn records_per_transaction(&self) -> usize {
        2 * MOST + 8
    }

    fn fill(&self, _: RecordId, words: &mut [u64]) {
        words.fill(0);
    }

    fn draw(&self, rng: &mut impl Rng) -> Input {
        let (block, item) = (rng.random_range(0..BLOCKS), rng.random_range(0..40));
        match rng.random_range(0..5) {
            0 | 1 => Input::Turn { block, item, from_above: rng.random() },
            2 => Input::Count { block, item },
            _ => Input::Name { name: rng.random_range(0..NAMES), left: rng.random() },
        }
    }

    async fn execute<P: Protocol, O: PhaseOps>(
        &self,
        s: &mut Session<P, O>,
        input: &Input,
    ) -> Result<Tally, Halt> {
        let mut tally = Tally::default();
        match *input {
            Input::Turn { block, item: n, from_above } => {
                let order = if from_above { Order::Descending } else { Order::Ascending };
                let rows = s.scan(0, block * BLOCK..=block * BLOCK + BLOCK - 1, 100, order).await?;
                tally.broken += u64::from(rows.len() > MOST);
                let there = (0..rows.len()).any(|i| s.key(s.row(rows, i)) == block * BLOCK + n);
                if rows.len() < MOST && !there {
                    let row = s.insert(item(block, n))?;
                    s.set_word(row, 0, n);
                    s.set_word(row, 1, rows.len() as u64);
                    assert_eq!((s.word(row, 0), s.key(row)), (n, block * BLOCK + n));
                    tally.added += 1;
                } else if !rows.is_empty() {
                    s.delete(s.row(rows, 0))?;
                    tally.removed += 1;
                }
            }
            Input::Count { block, item: n } => {
                let one = s.find(item(block, n)).await?;
                let rows =
                    s.scan(0, block * BLOCK..=block * BLOCK + BLOCK - 1, 100, Order::Ascending).await?;
                tally.broken += u64::from(rows.len() > MOST);
                if let Some(row) = one {
                    let count = s.word(row, 1);
                    s.set_word(row, 1, count + 1);
                }
            }
            Input::Name { name, left } => {
                let tables = [1, 2].map(|table| RecordId { table, key: name });
                s.prefetch_maybe(&tables, &[]).await?;
                let [l, r] = [s.find(tables[0]).await?, s.find(tables[1]).await?];
                tally.broken += u64::from(l.is_some() && r.is_some());
                match l.or(r) {
                    Some(row) => {
                        s.delete(row)?;
                        tally.removed += 1;
                    }
                    None => {
                        s.insert(tables[usize::from(!left)])?;
                        tally.added += 1;
                    }
                }
            }
        }
        Ok(tally)
    }

    fn input_words(&self) -> Option<usize> {
        Some(4)
    }

    /// A block's first key stands for all of its items, whether there is such a one or not.
    fn cover(&self, record: RecordId) -> Cover {
        match record.table {
            0 => Cover::By(item(record.key / BLOCK, 0)),
            _ => Cover::Own,
        }
    }

    fn declare(&self, input: &Input, set: &mut ReadWriteSet) {
        match *input {
            Input::Turn { block, .. } => {
                set.hold(item(block, 0), Intent::Write);
                set.find_at(item(block, 0));
            }
            Input::Count { block, item: n } => {
                set.hold(item(block, 0), Intent::Read);
                set.write(item(block, n));
                set.maybe(item(block, n));
                set.find_at(item(block, 0));
            }
            Input::Name { name, .. } => {
                for record in [1, 2].map(|table| RecordId { table, key: name }) {
                    set.write(record);
                    set.maybe(record);
                }
            }
        }
    }

    fn told(&self) -> Told {
        Told::NOTHING.declared(2, 2).found(2 * MOST, 2).rows(1, 2 * MOST)
    }

    fn write_input(&self, input: &Input, out: &mut Vec<u64>) {
        out.extend(match *input {
            Input::Turn { block, item, from_above } => [0, block, item, from_above.into()],
            Input::Count { block, item } => [1, block, item, 0],
            Input::Name { name, left } => [2, name, 0, left.into()],
        });
    }

    fn read_input(&self, mut words: InputWords<'_>) -> Option<Input> {
        let (kind, key) = (words.word()?, words.word()?);
        let (item, last) = (words.below(40)?, words.below(2)? == 1);
        match kind {
            0 if key < BLOCKS => Some(Input::Turn { block: key, item, from_above: last }),
            1 if key < BLOCKS => Some(Input::Count { block: key, item }),
            2 if key < NAMES => Some(Input::Name { name: key, left: last }),
            _ => None,
        }
    }

    fn tally(&self, _: RecordId, _: &[u64], sum: &mut Tally) {
        sum.added += 1;
    }

    fn check(&self, before: &Tally, effects: &Tally, now: &Tally) -> Vec<Check> {
        let expected = before.added + effects.added - effects.removed;
        vec![
            Check {
                name: "records-counted",
                passed: now.added == expected,
                detail: format!("{} records, {expected} expected", now.added),
            },
            Check {
                name: "limits-kept",
                passed: effects.broken == 0,
                detail: format!("{} times too many", effects.broken),
            },
        ]
    }
}

/// A run of it, small and contended.
pub fn spec(fabric: FabricSpec, plan: Plan, seed: u64) -> RunSpec {
    let mut spec = RunSpec::new(fabric, Shape { nodes: 3, workers: 1 }, plan);
    spec.plan.coroutines = 4;
    spec.seed = seed;
    spec.history = true;
    spec.cache_bytes = 2048;
    spec.log_ring_bytes = 4096;
    spec.length = Length::Transactions(80);
    spec.retry.attempts = PATIENT;
    spec.retry.longest = Nanos::from_millis(4);
    spec
}

/// A simulated run under a plan, with faults and as many replicas as a seed says.
pub fn drawn_for(needs: &Needs, seed: u64) -> RunSpec {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    let faults = FaultOptions {
        datagram_loss: if rng.random() { 0.02 } else { 0.0 },
        transit_jitter: Nanos(rng.random_range(0..10_000)),
        completion_jitter: Nanos(rng.random_range(0..3_000)),
        torn_read: 0.3,
        torn_write: 0.3,
        ..FaultOptions::default()
    };
    let plans = plans_of(needs);
    let mut spec = spec(sim(seed, faults), *plans.choose(&mut rng).expect("there are plans"), seed);
    spec.replicas = rng.random_range(1..=3);
    spec.worker.rpc.retransmit_after = Nanos::from_micros(150);
    spec.plan.coroutines = rng.random_range(2..=6);
    spec
}
