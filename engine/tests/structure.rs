//! Records that come and go under transactions, ranges and absence: invariants that a phantom breaks, histories through the checker,
//! and protocols that do not validate what they should.

mod club;
mod common;

use club::{Club, drawn_for, spec};
use common::expected::Objections;
use common::{be_patient, fabrics, plans_of, sim};
use engine::cluster::{Length, RunError, RunResult, RunSpec, run_as};
use engine::protocol::planted::{Bug, Planted};
use engine::protocol::{AnyProtocol, Occ, Protocol};
use engine::session::{Halt, Session};
use engine::verify::{Kind, Level, check};
use engine::workload::{Check, RecordId, TableDef, Workload};
use phases::ops::{PhaseOps, Sabotage};
use phases::plan::{Needs, Plan, Preset, Via};
use phases::rule::Abort;
use primitives::fabric::loopback::Options;
use primitives::fabric::sim::FaultOptions;
use primitives::mesh::{FabricSpec, Shape};
use primitives::units::Nanos;
use rand::{Rng, RngExt};
use std::sync::atomic::AtomicBool;

fn judge(spec: &RunSpec, name: &str) -> RunResult {
    judge_under(Occ, spec, name)
}

fn judge_under(protocol: impl Protocol + Copy + Sync, spec: &RunSpec, name: &str) -> RunResult {
    let result = run_as(spec, &Club, protocol, &AtomicBool::new(false)).expect("it can run");
    let what = format!("{} on {name}, seed {}, plan {}", protocol.needs().protocol, spec.seed, spec.plan);
    assert!(result.faults.is_empty(), "{what}: {:?}", result.faults);
    assert!(result.passed(), "{what}: {:#?}", result.failed_checks().collect::<Vec<_>>());
    let verdict = check(result.history.as_ref().expect("asked for"), protocol.level());
    assert!(verdict.passed(), "{what}:\n{verdict}");
    assert_eq!(verdict.counts.committed, result.stats.committed, "{what}: the history is complete");
    result
}

#[test]
fn records_come_and_go_on_every_fabric() {
    for (n, &preset) in Preset::ALL.iter().enumerate() {
        for (name, fabric) in fabrics(7) {
            let mut spec = spec(fabric, preset.plan(), 7);
            spec.replicas = 1 + n as u16 % 3;
            if name == "loopback-nic-thread" {
                spec.plan.coroutines = 2;
                spec.length = Length::Transactions(20);
            }
            be_patient(&mut spec);
            let result = judge(&spec, name);
            assert!(result.stats.committed > 0 && result.stats.given_up == 0, "{name} {preset}");
        }
    }
}

/// The other protocols: both pure plans and a sample of the hybrids, on every fabric, with and without replication.
fn records_come_and_go_under(name: &str) {
    let protocol = AnyProtocol::named(name).expect("a protocol");
    let needs = protocol.needs();
    let mut plans: Vec<Plan> =
        [Via::OneSided, Via::TwoSided].map(|via| Plan::uniform(via).restricted_to(needs)).into();
    let space = plans_of(needs);
    plans.extend(space.iter().step_by((space.len() / 3).max(1) | 1).copied());
    for (n, plan) in plans.into_iter().enumerate() {
        for (fabric_name, fabric) in fabrics(7) {
            let mut spec = spec(fabric, plan, 7 + n as u64);
            spec.replicas = 1 + n as u16 % 3;
            if fabric_name == "loopback-nic-thread" {
                // It takes long: the pure plans will do.
                if n > 1 {
                    continue;
                }
                spec.plan.coroutines = 2;
                spec.length = Length::Transactions(8);
            }
            be_patient(&mut spec);
            let result = judge_under(protocol, &spec, fabric_name);
            let aborts: Vec<_> = result.stats.aborts.iter().collect();
            assert!(
                result.stats.committed > 0 && result.stats.given_up == 0,
                "{fabric_name} {plan}: {aborts:?}"
            );
        }
    }
    let seeds = std::env::var("DOORBELL_SEEDS").ok().and_then(|n| n.parse().ok()).unwrap_or(6);
    for seed in 0..seeds {
        judge_under(protocol, &drawn_for(needs, seed), "sim");
    }
    judge_under(protocol, &crowded(needs, 3), "loopback");
}

/// Workers of one node meet at its trees, chains and locks.
fn crowded(needs: &Needs, seed: u64) -> RunSpec {
    let plan = Plan::uniform(Via::OneSided).restricted_to(needs);
    let mut spec = spec(FabricSpec::Loopback(Options::default()), plan, seed);
    spec.shape = Shape { nodes: 2, workers: 2 };
    spec.length = Length::Transactions(150);
    spec
}

/// Two remove a record that both have read; the second, who found it gone when it came to lock it, once took that for an absence it
/// had been told of, had nothing left to write and committed. One run in fifteen showed it, by a record more than
/// its effects made.
#[test]
fn nobody_commits_the_removal_of_what_another_has_removed() {
    let protocol = AnyProtocol::named("mvcc").expect("a protocol");
    for seed in 0..12 {
        judge_under(protocol, &crowded(protocol.needs(), seed), "loopback");
    }
}

macro_rules! records_come_and_go {
    ($($test:ident $name:literal,)*) => { $(
        #[test]
        fn $test() {
            records_come_and_go_under($name);
        }
    )* };
}

records_come_and_go! {
    records_come_and_go_under_nowait "nowait",
    records_come_and_go_under_waitdie "waitdie",
    records_come_and_go_under_exclusive_nowait "nowait-exclusive",
    records_come_and_go_under_exclusive_waitdie "waitdie-exclusive",
    records_come_and_go_under_bounded_wait "bounded-wait",
    records_come_and_go_under_sundial "sundial",
    records_come_and_go_under_mvcc "mvcc",
    records_come_and_go_under_calvin "calvin",
}

/// A range without rows is something read, too: under MVCC it leaves nothing behind that is validated, and who creates a record there
/// just after another was told that it exists, and stopped. Nor does a record exist for who comes before it.
#[test]
fn who_found_a_range_empty_tries_again() {
    for seed in 0..60 {
        for via in [Via::OneSided, Via::TwoSided] {
            let mvcc = AnyProtocol::named("mvcc").expect("a protocol");
            let plan = Plan::uniform(via).restricted_to(mvcc.needs());
            let mut spec = spec(sim(seed, FaultOptions::default()), plan, seed);
            spec.plan.coroutines = 16;
            spec.length = Length::Transactions(3);
            // Some seeds with clocks apart by more than eight attempts.
            spec.clocks.skew = Nanos(400_000 * (seed % 2));
            let result = judge_under(mvcc, &spec, "sim");
            let aborts: Vec<_> = result.stats.aborts.iter().collect();
            assert_eq!(result.stats.given_up, 0, "{via}, seed {seed}: {aborts:?}");
        }
    }
}

/// Workers of one node meet at its trees and chains.
#[test]
fn workers_of_a_node_share_what_it_owns() {
    let mut spec = spec(FabricSpec::Loopback(Options::default()), Preset::DrtmH.plan(), 3);
    spec.shape = Shape { nodes: 2, workers: 2 };
    spec.replicas = 2;
    spec.length = Length::Transactions(300);
    judge(&spec, "loopback");
}

fn drawn(seed: u64) -> RunSpec {
    drawn_for(&Needs::OCC, seed)
}

#[test]
fn drawn_runs_are_strictly_serializable() {
    let seeds = std::env::var("DOORBELL_SEEDS").ok().and_then(|n| n.parse().ok()).unwrap_or(12);
    for seed in 0..seeds {
        judge(&drawn(seed), "sim");
    }
}

#[test]
fn a_simulated_run_is_a_value_of_its_seed() {
    let (a, b) = (judge(&drawn(1), "sim"), judge(&drawn(1), "sim"));
    let of_seed = |run: &RunResult| (run.facts.of_seed(), run.traffic, run.cache, run.stats.aborts);
    assert_eq!(of_seed(&a), of_seed(&b));
}

#[test]
fn what_is_not_validated_is_noticed() {
    for bug in Bug::OF_STRUCTURE {
        let (mut by_checker, mut by_invariant) = (Objections::to(bug), Vec::new());
        for seed in 0..10 {
            let mut spec = drawn_for(Planted(bug).needs(), seed);
            spec.retry.attempts = 20;
            let result = run_as(&spec, &Club, Planted(bug), &AtomicBool::new(false)).expect("it can run");
            by_checker.judge(seed, result.history.as_ref().expect("asked for"));
            if result.checks.iter().any(|c| c.name == "limits-kept" && !c.passed) {
                by_invariant.push(seed);
            }
        }
        by_checker.complete();
        eprintln!("{bug:?}: the invariant objects on seeds {by_invariant:?} of 0..10");
        assert!(!by_invariant.is_empty(), "{bug:?} breaks no limit");
    }
}

/// A block's lock that is not asked for does not keep others from its items.
#[test]
fn what_no_lock_covers_is_noticed() {
    let bug = Bug::Uncovered;
    let mut objections = Objections::to(bug);
    for seed in 0..10 {
        let spec = drawn_for(Planted(bug).needs(), seed);
        let result = run_as(&spec, &Club, Planted(bug), &AtomicBool::new(false)).expect("it can run");
        objections.judge(seed, result.history.as_ref().expect("asked for"));
    }
    objections.complete();
}

/// A location from before the record went, believed: what is in the slot now has versions of its own.
#[test]
fn a_stale_location_that_is_believed_is_noticed() {
    let objections = |seed| {
        let mut spec = drawn(seed);
        spec.plan = Plan::uniform(Via::OneSided);
        spec.retry.attempts = 20;
        spec.length = Length::Transactions(30);
        spec.sabotage = Some(Sabotage::StaleHits);
        let result = run_as(&spec, &Club, Occ, &AtomicBool::new(false)).expect("it can run");
        let verdict = check(result.history.as_ref().expect("asked for"), Level::StrictSerializable);
        verdict.anomaly.into_iter().chain(verdict.others).map(|anomaly| anomaly.kind).collect::<Vec<_>>()
    };
    let kinds: Vec<Kind> = (0..3).flat_map(objections).collect();
    eprintln!("objected to on seeds 0..3 for {kinds:?}");
    assert!(kinds.contains(&Kind::UnwrittenRead));
}

#[test]
fn protocols_that_cannot_are_refused_before_anything_runs() {
    // The one cannot at all, the other cannot what has not been declared.
    for (name, hint) in [("calvin", "declared ahead"), ("fasst", "locks")] {
        let protocol = AnyProtocol::named(name).expect("a protocol");
        let plan = Preset::TwoSided.plan().restricted_to(protocol.needs());
        let spec = spec(FabricSpec::Loopback(Options::default()), plan, 1);
        let script = Script(|key| vec![Step::Insert(key)]);
        match run_as(&spec, &script, protocol, &AtomicBool::new(false)) {
            Err(refused @ (RunError::Spec(_) | RunError::Undeclared { .. })) => {
                let why = refused.to_string();
                assert!(why.contains(name) && why.contains(hint), "{why}");
            }
            other => panic!("{name}: {:?}", other.map(|r| r.stats.committed)),
        }
    }
}

/// What a transaction is told about keys that are there, or not.
struct Script(fn(u64) -> Vec<Step>);

#[derive(Clone, Copy, Debug)]
enum Step {
    Read(u64),
    Insert(u64),
    Find(u64, bool),
    Delete(u64),
}

impl Workload for Script {
    type Input = u64;
    type Tally = u64;

    fn name(&self) -> &'static str {
        "script"
    }

    fn tables(&self) -> Vec<TableDef> {
        vec![TableDef::new("records", 8, 8).room(10)]
    }

    fn changes_tables(&self) -> bool {
        true
    }

    fn records_per_transaction(&self) -> usize {
        30
    }

    fn fill(&self, record: RecordId, words: &mut [u64]) {
        words.fill(record.key);
    }

    fn draw(&self, rng: &mut impl Rng) -> u64 {
        rng.random_range(0..8)
    }

    async fn execute<P: Protocol, O: PhaseOps>(
        &self,
        s: &mut Session<P, O>,
        &key: &u64,
    ) -> Result<u64, Halt> {
        for step in (self.0)(key) {
            let record = |key| RecordId { table: 0, key };
            match step {
                Step::Read(key) => s.read(record(key)).await.map(|_| ())?,
                Step::Insert(key) => s.insert(record(key)).map(|_| ())?,
                Step::Find(key, there) => {
                    assert_eq!(s.find(record(key)).await?.is_some(), there, "key {key}")
                }
                Step::Delete(key) => {
                    let row = s.read(record(key)).await?;
                    s.delete(row)?;
                }
            }
        }
        Ok(0)
    }

    fn tally(&self, _: RecordId, _: &[u64], sum: &mut u64) {
        *sum += 1;
    }

    fn check(&self, before: &u64, _: &u64, now: &u64) -> Vec<Check> {
        vec![Check { name: "same", passed: before == now, detail: format!("{before} and {now}") }]
    }
}

#[test]
fn what_there_is_and_what_not_is_told_with_a_reason() {
    use Step::{Delete, Find, Insert, Read};
    // Attempts of each transaction that ended with this abort, and all others; nothing commits.
    let ended = |script: fn(u64) -> Vec<Step>, abort: Abort| {
        let mut ended = [0, 0];
        for preset in [Preset::OneSided, Preset::TwoSided, Preset::DrtmH] {
            let mut spec = spec(FabricSpec::Loopback(Options::default()), preset.plan(), 1);
            spec.plan.coroutines = 1;
            spec.length = Length::Transactions(5);
            let result = run_as(&spec, &Script(script), Occ, &AtomicBool::new(false)).expect("it can run");
            assert!(result.passed(), "{:?} {:?}", result.faults, result.failed_checks().collect::<Vec<_>>());
            let (count, all) = (result.stats.aborts.of(abort.name()), result.stats.aborts.total());
            assert_eq!((result.stats.committed, result.stats.given_up), (0, 15), "{abort}");
            ended[0] += count;
            ended[1] += all - count;
        }
        ended
    };
    let aborts = |script, abort| {
        let [count, others] = ended(script, abort);
        assert_eq!(others, 0, "{abort}");
        count / 45
    };
    // A key that is there, or is not, stays so; who has read others before could have been misled, and tries a few times.
    assert_eq!(aborts(|k| vec![Insert(k)], Abort::Exists), 1);
    assert_eq!(aborts(|k| vec![Read(k), Insert((k + 1) % 8)], Abort::Exists), 8);
    assert_eq!(aborts(|k| vec![Read(k + 100)], Abort::NotFound), 1);
    assert_eq!(aborts(|k| vec![Find(k, true), Delete(k), Find(k, false), Read(k)], Abort::NotFound), 8);
    assert_eq!(aborts(|k| vec![Find(k + 100, false), Read(k + 100)], Abort::NotFound), 8);
    // Eleven keys of one node, which has room for ten; others want the same.
    let [full, _] = ended(|k| (10..21).map(|i| Insert(k % 3 + 3 * i)).collect(), Abort::TableFull);
    assert_eq!(full, 45);
}
