//! Tables that hold far more records than they declare, in the reserve of their copy: under transactions that insert, change, delete
//! and count them, with and without backups, every history through the checker; and what is said where the reserve ends.

mod common;

use common::{OTHERS, PATIENT, be_patient, fabrics, sim};
use engine::cluster::{Length, RunResult, RunSpec, run_as};
use engine::protocol::{AnyProtocol, Protocol};
use engine::session::{Halt, Order, Session};
use engine::verify::check;
use engine::workload::ahead::{Cover, InputWords, ReadWriteSet, Told};
use engine::workload::{Check, RecordId, TableDef, Workload};
use phases::ops::PhaseOps;
use phases::plan::{Plan, Via};
use phases::rule::Abort;
use phases::txn::Intent;
use primitives::fabric::loopback::Options;
use primitives::fabric::sim::FaultOptions;
use primitives::mesh::{FabricSpec, Shape};
use primitives::units::Nanos;
use rand::{Rng, RngExt};
use std::ops::AddAssign;
use std::sync::atomic::AtomicBool;

/// Records that each of the tables declares on each node.
const DECLARED: u64 = 4;
const NODES: u16 = 3;
const BLOCK: u64 = 1 << 20;
/// Keys that may come, in each table and block.
const KEYS: u64 = 120;

/// A plain table and one in order, of records that come, change and, if `goes`, go; and, if `scans`, ranges of the latter.
struct Crowd {
    goes: bool,
    scans: bool,
}

#[derive(Clone, Copy, Debug)]
struct Input {
    block: u64,
    item: u64,
    remove: bool,
    count: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
struct Tally {
    added: u64,
    removed: u64,
    changed: u64,
    /// Records seen without the other of their pair, or with other words than they were given.
    broken: u64,
}

impl AddAssign for Tally {
    fn add_assign(&mut self, rhs: Tally) {
        self.added += rhs.added;
        self.removed += rhs.removed;
        self.changed += rhs.changed;
        self.broken += rhs.broken;
    }
}

impl Input {
    /// The same key of both tables: either both are there or neither.
    fn records(self) -> [RecordId; 2] {
        [0, 1].map(|table| RecordId { table, key: self.block * BLOCK + self.item })
    }
}

impl Workload for Crowd {
    type Input = Input;
    type Tally = Tally;

    fn name(&self) -> &'static str {
        "crowd"
    }

    fn tables(&self) -> Vec<TableDef> {
        vec![
            TableDef::new("plain", 0, 16).blocks(BLOCK).room(DECLARED).grows(),
            TableDef::new("in order", 0, 48).blocks(BLOCK).room(DECLARED).ordered().grows(),
        ]
    }

    fn changes_tables(&self) -> bool {
        true
    }

    fn records_per_transaction(&self) -> usize {
        16
    }

    fn fill(&self, _: RecordId, words: &mut [u64]) {
        words.fill(0);
    }

    fn draw(&self, rng: &mut impl Rng) -> Input {
        Input {
            block: rng.random_range(0..u64::from(NODES)),
            item: rng.random_range(0..KEYS),
            remove: self.goes && rng.random_ratio(1, 3),
            count: self.scans && rng.random_ratio(1, 4),
        }
    }

    async fn execute<P: Protocol, O: PhaseOps>(
        &self,
        s: &mut Session<P, O>,
        input: &Input,
    ) -> Result<Tally, Halt> {
        let mut tally = Tally::default();
        let records = input.records();
        s.prefetch_maybe(&records, &[]).await?;
        let found = [s.find(records[0]).await?, s.find(records[1]).await?];
        match found {
            [Some(plain), Some(ordered)] if input.remove => {
                s.delete(plain)?;
                s.delete(ordered)?;
                tally.removed += 2;
            }
            [Some(plain), Some(ordered)] => {
                let count = s.word(plain, 1);
                tally.broken += u64::from((s.word(ordered, 5), s.word(ordered, 0)) != (count, input.item));
                s.set_word(plain, 1, count + 1);
                s.set_word(ordered, 5, count + 1);
                tally.changed += 2;
            }
            [None, None] => {
                for (record, last) in records.into_iter().zip([1, 5]) {
                    let row = s.insert(record)?;
                    s.set_word(row, 0, input.item);
                    s.set_word(row, last, 0);
                    tally.added += 1;
                }
            }
            _ => tally.broken += 1,
        }
        if input.count {
            let first = records[1].key;
            let rows = s.scan(1, first..=first + 4, 5, Order::Ascending).await?;
            for n in 0..rows.len() {
                let row = s.row(rows, n);
                tally.broken += u64::from(s.word(row, 0) != s.key(row) % BLOCK);
            }
        }
        Ok(tally)
    }

    fn input_words(&self) -> Option<usize> {
        Some(4)
    }

    fn cover(&self, _: RecordId) -> Cover {
        Cover::Own
    }

    fn declare(&self, input: &Input, set: &mut ReadWriteSet) {
        for record in input.records() {
            set.write(record);
            set.maybe(record);
            set.hold(record, Intent::Write);
        }
    }

    fn told(&self) -> Told {
        Told::NOTHING.declared(2, 6)
    }

    fn write_input(&self, input: &Input, out: &mut Vec<u64>) {
        out.extend([input.block, input.item, input.remove.into(), input.count.into()]);
    }

    fn read_input(&self, mut words: InputWords<'_>) -> Option<Input> {
        let (block, item) = (words.below(u64::from(NODES))?, words.below(KEYS)?);
        let (remove, count) = (words.below(2)? == 1, words.below(2)? == 1);
        Some(Input { block, item, remove, count })
    }

    fn tally(&self, _: RecordId, words: &[u64], sum: &mut Tally) {
        sum.added += 1;
        sum.changed += words[words.len() - 1];
    }

    fn check(&self, before: &Tally, effects: &Tally, now: &Tally) -> Vec<Check> {
        let expected = before.added + effects.added - effects.removed;
        let changed = self.goes || now.changed == effects.changed;
        vec![
            Check {
                name: "records-counted",
                passed: now.added == expected && changed,
                detail: format!("{now:?}, {expected} records expected after {effects:?}"),
            },
            Check {
                name: "pairs-kept",
                passed: effects.broken == 0,
                detail: format!("{} broken", effects.broken),
            },
            Check {
                name: "grown",
                passed: now.added > 8 * DECLARED * u64::from(NODES),
                detail: format!("{} records", now.added),
            },
        ]
    }
}

fn spec(fabric: FabricSpec, plan: Plan, seed: u64) -> RunSpec {
    let mut spec = RunSpec::new(fabric, Shape { nodes: NODES, workers: 1 }, plan);
    spec.plan.coroutines = 4;
    spec.seed = seed;
    spec.history = true;
    spec.cache_bytes = 2048;
    spec.log_ring_bytes = 4096;
    spec.reserve_bytes = Some(64 << 10);
    spec.length = Length::Transactions(80);
    spec.retry.attempts = PATIENT;
    spec.retry.longest = Nanos::from_millis(4);
    be_patient(&mut spec);
    spec
}

fn run(spec: &RunSpec, protocol: AnyProtocol, goes: bool) -> RunResult {
    let crowd = Crowd { goes, scans: protocol.sequenced().is_none() };
    run_as(spec, &crowd, protocol, &AtomicBool::new(false)).expect("it can run")
}

/// Runs it, and holds it against its own effects, its backups and the history.
fn judge(spec: &RunSpec, protocol: AnyProtocol, name: &str) {
    let result = run(spec, protocol, true);
    let what = format!("{} on {name}, seed {}, plan {}", protocol.needs().protocol, spec.seed, spec.plan);
    assert!(result.faults.is_empty(), "{what}: {:?}", result.faults);
    assert!(result.passed(), "{what}: {:#?}", result.failed_checks().collect::<Vec<_>>());
    let compared = result.checks.iter().any(|check| check.name.contains("backup"));
    assert_eq!(compared, spec.replicas > 1, "{what}: {:?}", result.checks);
    let verdict = check(result.history.as_ref().expect("asked for"), protocol.level());
    assert!(verdict.passed(), "{what}:\n{verdict}");
    assert_eq!((verdict.counts.committed, &result.full), (result.stats.committed, &None), "{what}");
}

#[test]
fn tables_grow_beyond_what_they_declare_under_every_protocol() {
    for name in OTHERS.iter().copied().chain(["occ"]) {
        let protocol = AnyProtocol::named(name).expect("a protocol");
        if protocol.needs().keeps_tables().is_some() {
            continue;
        }
        for (n, via) in [Via::OneSided, Via::TwoSided].into_iter().enumerate() {
            let plan = Plan::uniform(via).restricted_to(protocol.needs());
            let seed = 5 + n as u64;
            for (fabric_name, fabric) in fabrics(seed) {
                let mut spec = spec(fabric, plan, seed);
                spec.replicas = 3 - n as u16;
                if fabric_name != "loopback-nic-thread" {
                    judge(&spec, protocol, fabric_name);
                }
            }
        }
    }
}

/// Two workers of each node take places in the same extents at once, while peers read what is there one-sided.
#[test]
fn workers_grow_the_same_tables_at_once() {
    let protocol = AnyProtocol::named("occ").expect("a protocol");
    for seed in 0..4 {
        let mut spec = spec(FabricSpec::Loopback(Options::default()), Plan::uniform(Via::OneSided), seed);
        spec.shape.workers = 2;
        spec.replicas = 2;
        judge(&spec, protocol, "loopback");
    }
}

/// A reserve of four extents for two tables: inserts that find no room abort, what is there stays consistent and equal at backups, and the
/// result tells which table was full, what it had, and what to raise.
#[test]
fn where_the_reserve_ends_the_result_says_what_there_was() {
    let protocol = AnyProtocol::named("occ").expect("a protocol");
    let fabrics = [sim(3, FaultOptions::default()), FabricSpec::Loopback(Options::default())];
    for (fabric, reserve_bytes) in
        fabrics.into_iter().flat_map(|fabric| [(fabric.clone(), 0), (fabric, 4096)])
    {
        let mut spec = spec(fabric, Plan::uniform(Via::OneSided), 3);
        (spec.replicas, spec.reserve_bytes) = (3, Some(reserve_bytes));
        spec.retry.attempts = 20;
        let result = run(&spec, protocol, false);
        assert!(result.faults.is_empty(), "{:?}", result.faults);
        let failed = result.failed_checks().map(|check| check.name).filter(|&name| name != "grown");
        assert_eq!(failed.count(), 0, "{:#?}", result.checks);
        assert!(result.stats.aborts.of(Abort::TableFull.name()) > 0, "{:?}", result.stats.aborts);
        let why = result.full.expect("some table was");
        let reserve = format!("in the reserve of {reserve_bytes} B");
        assert!(why.contains("4 records it declares") && why.contains(&reserve), "{why}");
        assert!(why.contains("plain") || why.contains("in order"), "{why}");
        let verdict = check(result.history.as_ref().expect("asked for"), protocol.level());
        assert!(verdict.passed(), "{verdict}");
    }
}

/// What is usual goes by the tables that grow, and is part of the estimate.
#[test]
fn the_usual_reserve_is_an_eighth_of_what_grows() {
    use engine::cluster::{memory_estimate, usual_reserve};
    use phases::rule::Packing;
    let tables = Crowd { goes: true, scans: true }.tables();
    // Two and six words of payload behind header, checksum and key: 64 B and, with more than 64, 128; 32 B of index.
    assert_eq!(usual_reserve(&tables, NODES, Packing::Counted), DECLARED * (64 + 128 + 2 * 32) / 8);
    assert_eq!(usual_reserve(&tables[..0], NODES, Packing::Counted), 0);
    let fixed = [TableDef { grows: false, ..tables[0] }];
    assert_eq!(usual_reserve(&fixed, NODES, Packing::Counted), 0);

    let protocol = AnyProtocol::named("occ").expect("a protocol");
    let mut spec = spec(sim(3, FaultOptions::default()), Plan::uniform(Via::OneSided), 3);
    spec.replicas = 2;
    let workload =
        engine::workload::AnyWorkload::parse("tpcc", spec.scale(), [("warehouses", "3")]).expect("it");
    let mut estimate = |reserve| {
        spec.reserve_bytes = reserve;
        memory_estimate(&spec, &workload, &protocol)
    };
    let none = estimate(Some(0));
    assert_eq!(estimate(Some(1 << 20)) - none, (2 * u64::from(NODES)) << 20);
    let usual = estimate(None) - none;
    assert!(usual > none / 50 && usual < none / 8, "{usual} of {none}");
}
