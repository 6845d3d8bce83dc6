//! Phase operations that do something wrong on purpose: that it comes out shows that tests of the same kind are not vacuous.

mod common;

use common::{Broken, Case, judge, judged, sim};
use engine::cluster::{Length, RunResult, RunSpec, run_as};
use engine::protocol::{AnyProtocol, Occ, Protocol};
use engine::session::{Halt, Session};
use engine::verify::{Kind, check};
use engine::workload::{Check, RecordId, TableDef, Workload};
use phases::ops::{PhaseOps, Sabotage};
use phases::plan::{Phase, Plan, Step, Via};
use primitives::fabric::sim::FaultOptions;
use primitives::mesh::Shape;
use rand::{Rng, RngExt};
use std::collections::BTreeSet;
use std::sync::atomic::AtomicBool;

/// Records whose words are all equal, written by some transactions and read by others, one at a time: those are
/// not validated, so a record that is not of one piece has nothing but its checksum to tell.
struct Equal;

impl Workload for Equal {
    type Input = (u64, bool);
    /// Reads that saw words which differ.
    type Tally = u64;

    fn name(&self) -> &'static str {
        "equal"
    }

    fn tables(&self) -> Vec<TableDef> {
        vec![TableDef::new("records", 6, 400)]
    }

    fn records_per_transaction(&self) -> usize {
        1
    }

    fn fill(&self, _: RecordId, words: &mut [u64]) {
        words.fill(0);
    }

    fn draw(&self, rng: &mut impl Rng) -> (u64, bool) {
        (rng.random_range(0..6), rng.random())
    }

    async fn execute<P: Protocol, O: PhaseOps>(
        &self,
        s: &mut Session<P, O>,
        &(key, write): &(u64, bool),
    ) -> Result<u64, Halt> {
        let row = s.read(RecordId { table: 0, key }).await?;
        let first = s.word(row, 0);
        let torn = (0..s.words(row)).any(|i| s.word(row, i) != first);
        for i in (0..s.words(row)).filter(|_| write) {
            s.set_word(row, i, first + 1);
        }
        Ok(u64::from(torn))
    }

    fn tally(&self, _: RecordId, _: &[u64], _: &mut u64) {}

    fn check(&self, _: &u64, torn: &u64, _: &u64) -> Vec<Check> {
        vec![Check { name: "whole", passed: *torn == 0, detail: format!("{torn} torn records read") }]
    }
}

fn small(seed: u64, faults: FaultOptions) -> RunSpec {
    let mut spec =
        RunSpec::new(sim(seed, faults), Shape { nodes: 3, workers: 1 }, Plan::uniform(Via::OneSided));
    spec.seed = seed;
    spec.replicas = 2;
    spec.length = Length::Transactions(100);
    spec
}

fn run(seed: u64, sabotage: Option<Sabotage>) -> RunResult {
    let mut spec = small(seed, FaultOptions { torn_read: 0.5, torn_write: 0.5, ..FaultOptions::default() });
    spec.sabotage = sabotage;
    run_as(&spec, &Equal, Occ, &AtomicBool::new(false)).expect("it can run")
}

/// The checks that fail on any of ten seeds.
fn failures(sabotage: Option<Sabotage>) -> Vec<&'static str> {
    let mut failed: Vec<&str> = (0..10)
        .flat_map(|seed| run(seed, sabotage).failed_checks().map(|c| c.name).collect::<Vec<_>>())
        .collect();
    failed.sort_unstable();
    failed.dedup();
    failed
}

#[test]
fn torn_reads_that_are_believed_and_logs_that_are_lost_are_noticed() {
    assert_eq!(failures(None), [""; 0], "without sabotage everything holds");
    assert!(failures(Some(Sabotage::TornReads)).contains(&"whole"));
    assert_eq!(failures(Some(Sabotage::LostLogs)), ["backups-equal"]);
}

/// One transaction's write-back comes when another one has the lock already: of two that count one record up one is lost.
#[test]
fn locks_freed_before_the_write_back_are_objected_to() {
    let objected = |sabotage| {
        let objections = |seed| {
            let mut spec = small(seed, FaultOptions::default());
            spec.plan.coroutines = 4;
            // A record that one has written into while another wrote stays torn, and whoever wants it gives up in the end.
            spec.retry.attempts = 30;
            spec.history = true;
            spec.sabotage = sabotage;
            let result = run_as(&spec, &Equal, Occ, &AtomicBool::new(false)).expect("it can run");
            let verdict = check(&result.history.expect("it was asked for"), Occ.level());
            verdict.anomaly.into_iter().chain(verdict.others).map(|anomaly| anomaly.kind).collect::<Vec<_>>()
        };
        (0..10).flat_map(objections).collect::<BTreeSet<Kind>>()
    };
    assert_eq!(objected(None), BTreeSet::new());
    let kinds = objected(Some(Sabotage::UnlockFirst));
    assert!(kinds.contains(&Kind::DuplicateVersion), "none of ten seeds shows it: {kinds:?}");
}

/// Few records that everybody wants, locked and freed by the verbs of a card whose CASes put back what they found if they fail.
fn wanted(protocol: &str, passive_ack: bool, seed: u64) -> Case {
    let protocol = AnyProtocol::named(protocol).expect("a protocol");
    let mut plan = Plan::uniform(Via::OneSided).restricted_to(protocol.needs());
    for phase in [Phase::Install, Phase::Unlock] {
        plan.set(phase, plan.step(phase).map(|step| Step { passive_ack, ..step }));
    }
    let settings = [("records_per_thread", "1"), ("reads", "1"), ("writes", "2"), ("payload_bytes", "16")];
    let mut case = Case::new("micro", &settings, small(seed, FaultOptions::default()));
    let faults = FaultOptions { failed_cas_stores: true, ..FaultOptions::default() };
    (case.protocol, case.spec.fabric, case.spec.plan) = (protocol, sim(seed, faults), plan);
    case.spec.plan.coroutines = 4;
    case.spec.length = Length::Transactions(60);
    case
}

/// A lock that its holder frees by WRITE stays held by nobody where a rival's CAS puts back what it found before. So it is freed by an ATOMIC there.
#[test]
fn locks_are_freed_for_good_where_a_cas_that_fails_may_undo_a_write() {
    const SEEDS: u64 = 5;
    for passive_ack in [true, false] {
        for name in ["occ", "nowait", "waitdie", "sundial", "mvcc"] {
            for seed in 0..SEEDS {
                let result = judge(&wanted(name, passive_ack, seed), "sim");
                assert_eq!(result.stats.committed, 3 * 4 * 60, "{name}: {:?}", result.stats.aborts);
            }
        }
        // Not under WAITDIE, where an older transaction would wait very long for such a lock.
        for name in ["occ", "nowait", "sundial", "mvcc"] {
            let broken = (0..SEEDS).any(|seed| {
                let mut case = wanted(name, passive_ack, seed);
                case.spec.sabotage = Some(Sabotage::FreeByWrite);
                case.spec.retry.attempts = 30;
                judged(&case, "sim").is_err_and(|failure| failure.broken == Broken::Checks)
            });
            assert!(broken, "none of {SEEDS} seeds shows it under {name}, passive_ack {passive_ack}");
        }
    }
}
