//! What a transaction sees of its own reads and writes, and what is left of it when it does not commit.

use engine::cluster::{Length, RunResult, RunSpec, run_as};
use engine::protocol::{AnyProtocol, Occ, PROTOCOLS, Protocol};
use engine::session::{Halt, Session};
use engine::verify::check;
use engine::workload::ahead::{InputWords, ReadWriteSet};
use engine::workload::{Check, RecordId, TableDef, Workload};
use phases::ops::PhaseOps;
use phases::plan::{Phase, Plan, Preset, Via};
use phases::rule::Abort;
use primitives::fabric::loopback::Options;
use primitives::mesh::{FabricSpec, Shape};
use rand::{Rng, RngExt};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

const RECORDS: u64 = 8;
const WORDS: usize = 3;

fn record(key: u64) -> RecordId {
    RecordId { table: 0, key }
}

/// What a body under test does.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Body {
    ReadsItsOwnWrites,
    WritesBlindly,
    RollsBack,
    AbortsTwice,
    NeverCommits,
    ReadsWhatIsNotThere,
    WritesWhatIsNotThere,
}

struct Script {
    body: Body,
    attempts: AtomicU64,
}

impl Workload for Script {
    type Input = u64;
    type Tally = u64;

    fn name(&self) -> &'static str {
        "script"
    }

    fn tables(&self) -> Vec<TableDef> {
        vec![TableDef::new("records", RECORDS, 8 * WORDS as u32)]
    }

    fn records_per_transaction(&self) -> usize {
        4
    }

    fn fill(&self, record: RecordId, words: &mut [u64]) {
        words.fill(100 + record.key);
    }

    fn input_words(&self) -> Option<usize> {
        (self.body == Body::ReadsItsOwnWrites).then_some(1)
    }

    fn declare(&self, &key: &u64, set: &mut ReadWriteSet) {
        set.write(record(key));
        set.read(record((key + 1) % RECORDS));
    }

    fn write_input(&self, &key: &u64, out: &mut Vec<u64>) {
        out.push(key);
    }

    fn read_input(&self, mut words: InputWords<'_>) -> Option<u64> {
        words.below(RECORDS)
    }

    fn draw(&self, rng: &mut impl Rng) -> u64 {
        rng.random_range(0..RECORDS)
    }

    async fn execute<P: Protocol, O: PhaseOps>(
        &self,
        s: &mut Session<P, O>,
        &key: &u64,
    ) -> Result<u64, Halt> {
        let attempt = self.attempts.fetch_add(1, Ordering::Relaxed) + 1;
        match self.body {
            Body::ReadsItsOwnWrites => {
                let row = s.read(record(key)).await?;
                let (old, second) = (s.word(row, 0), s.word(row, 1));
                s.set_word(row, 0, old + 1);
                // Reading again finds the same row, with the new word and the old ones.
                let again = s.read(record(key)).await?;
                assert_eq!(again, row);
                assert_eq!((s.word(again, 0), s.word(again, 1)), (old + 1, second));
                let [a, b] = s.read_all([record(key), record(key)]).await?;
                assert_eq!((a, b), (row, row));
                s.set_word(a, 0, old + 2);
                // Nor does a read of another record, before which some protocols lock what was written.
                let other = s.read(record((key + 1) % RECORDS)).await?;
                let _ = s.word(other, 0);
                assert_eq!((s.word(row, 0), s.word(row, 1)), (old + 2, second));
                Ok(2)
            }
            Body::WritesBlindly => {
                let row = s.write(record(key))?;
                s.set_word(row, 1, attempt);
                // Written, not read: what was not set is zero, and a read now shows the write.
                let again = s.read(record(key)).await?;
                assert_eq!((again, s.word(again, 0), s.word(again, 1)), (row, 0, attempt));
                // Asked to write but nothing written yet: a read fetches it.
                let other = s.write(record((key + 1) % RECORDS))?;
                assert_eq!(s.read(record((key + 1) % RECORDS)).await?, other);
                let _ = s.word(other, 0);
                Ok(0)
            }
            Body::RollsBack => {
                let row = s.read(record(key)).await?;
                s.set_word(row, 0, 0);
                Err(Halt::User("changed-my-mind"))
            }
            Body::AbortsTwice | Body::NeverCommits => {
                let row = s.read(record(key)).await?;
                let old = s.word(row, 0);
                s.set_word(row, 0, old + 1);
                if self.body == Body::NeverCommits || !attempt.is_multiple_of(3) {
                    return Err(Abort::Requested.into());
                }
                Ok(1)
            }
            Body::ReadsWhatIsNotThere => {
                s.read(record(key + 1000 * RECORDS)).await?;
                Ok(0)
            }
            Body::WritesWhatIsNotThere => {
                let missing = record(key + 1000 * RECORDS);
                assert_eq!(s.find(missing).await?, None);
                let row = s.write(missing)?;
                s.set_word(row, 0, 1);
                Ok(0)
            }
        }
    }

    fn tally(&self, _: RecordId, words: &[u64], sum: &mut u64) {
        *sum += words[0];
    }

    fn check(&self, before: &u64, effects: &u64, now: &u64) -> Vec<Check> {
        let passed = self.body == Body::WritesBlindly || before + effects == *now;
        vec![Check { name: "sum", passed, detail: format!("{before} + {effects} and {now}") }]
    }
}

fn run(body: Body, plan: Plan, coroutines: u32) -> RunResult {
    run_under(AnyProtocol::Occ(Occ), body, plan, coroutines)
}

fn run_under(protocol: AnyProtocol, body: Body, plan: Plan, coroutines: u32) -> RunResult {
    let shape = Shape { nodes: 2, workers: 1 };
    let mut spec = RunSpec::new(FabricSpec::Loopback(Options::default()), shape, plan);
    spec.plan.coroutines = coroutines;
    spec.length = Length::Transactions(30);
    spec.history = true;
    spec.replicas = 2;
    spec.retry.attempts = 5;
    let script = Script { body, attempts: AtomicU64::new(0) };
    let result = run_as(&spec, &script, protocol, &AtomicBool::new(false)).expect("loopback runs");
    assert!(result.passed(), "{protocol:?}, {body:?}: {:?}, {:?}", result.checks, result.faults);
    let verdict = check(result.history.as_ref().expect("asked for"), protocol.level());
    assert!(verdict.passed(), "{body:?}:\n{verdict}");
    result
}

fn presets() -> impl Iterator<Item = Plan> {
    Preset::ALL.iter().map(|p| p.plan())
}

#[test]
fn a_transaction_reads_its_own_writes() {
    for plan in presets() {
        let result = run(Body::ReadsItsOwnWrites, plan, 1);
        assert!(result.stats.committed > 0 && result.stats.committed_read_only == 0);
    }
}

/// Under every protocol, by verbs, by calls, and fetched by verbs and locked by calls; what is installed is what was written.
#[test]
fn a_transaction_reads_its_own_writes_under_every_protocol() {
    let caps = FabricSpec::Loopback(Options::default()).caps().expect("loopback has some");
    let mut ran = 0;
    for protocol in PROTOCOLS.iter().filter_map(|name| AnyProtocol::named(name)) {
        let [verbs, calls] =
            [Via::OneSided, Via::TwoSided].map(|via| Plan::uniform(via).restricted_to(protocol.needs()));
        for plan in [verbs, calls, Plan { lock: calls.lock, install: calls.install, ..verbs }] {
            if plan.check(&caps, protocol.needs()).is_err() {
                continue;
            }
            let result = run_under(protocol, Body::ReadsItsOwnWrites, plan, 1);
            assert!(result.stats.committed > 0, "{protocol:?} {plan:?}");
            ran += 1;
        }
    }
    assert!(ran > 2 * PROTOCOLS.len(), "{ran} plans, by verbs and by calls and some of both");
}

#[test]
fn writing_needs_no_read() {
    for plan in presets() {
        assert!(run(Body::WritesBlindly, plan, 1).stats.committed > 0);
    }
}

#[test]
fn a_rollback_is_counted_leaves_nothing_behind_and_is_not_tried_again() {
    let result = run(Body::RollsBack, Preset::DrtmH.plan(), 2);
    assert_eq!(result.stats.committed, 0);
    assert_eq!(result.stats.rolled_back.iter().collect::<Vec<_>>(), [("changed-my-mind", 2 * 2 * 30)]);
    assert_eq!(result.stats.aborts.total(), 0, "a rollback is no abort");
    assert_eq!(result.verbs_per_committed(), 0.0, "per committed is zero where none did");
}

#[test]
fn an_abort_is_tried_again_until_it_commits() {
    // One coroutine on one node, so that attempts count up by one.
    let shape = Shape { nodes: 1, workers: 1 };
    let mut spec = RunSpec::new(FabricSpec::Loopback(Options::default()), shape, Preset::DrtmH.plan());
    spec.plan.coroutines = 1;
    spec.length = Length::Transactions(30);
    let script = Script { body: Body::AbortsTwice, attempts: AtomicU64::new(0) };
    let result = run_as(&spec, &script, Occ, &AtomicBool::new(false)).expect("loopback runs");
    assert!(result.passed());
    assert_eq!((result.stats.committed, result.stats.aborts.of("requested")), (30, 60));
    assert_eq!(result.stats.latency.count(), 30, "latency is per transaction, not per attempt");
}

/// One attempt in sixteen is timed: sessions take turns, so that a run in which none comes to its sixteenth has its share.
#[test]
fn a_short_run_has_its_share_of_timed_attempts() {
    let shape = Shape { nodes: 2, workers: 1 };
    let mut spec = RunSpec::new(FabricSpec::Loopback(Options::default()), shape, Preset::TwoSided.plan());
    spec.plan.coroutines = 16;
    let timed = |each: u64, every: u32| {
        let mut spec = spec.clone();
        spec.length = Length::Transactions(each);
        spec.sample_every = every;
        let script = Script { body: Body::ReadsItsOwnWrites, attempts: AtomicU64::new(0) };
        let result = run_as(&spec, &script, Occ, &AtomicBool::new(false)).expect("loopback runs");
        assert!(result.passed());
        let attempts = result.stats.committed + result.stats.aborts.total();
        let fetched = result.stats.phase(Phase::Fetch).latency.count();
        assert_eq!(result.stats.timed, fetched, "each attempt reads");
        (attempts, fetched)
    };
    let (attempts, fetched) = timed(4, 16);
    assert!(
        attempts >= 128 && fetched >= attempts / 32 && fetched <= attempts / 8,
        "{fetched} of {attempts}"
    );
    let (attempts, fetched) = timed(4, 1);
    assert_eq!(attempts, fetched, "all of them");
    assert_eq!(timed(4, 0).1, 0, "none");
}

#[test]
fn retries_are_bounded() {
    let result = run(Body::NeverCommits, Preset::TwoSided.plan(), 2);
    let transactions = 2 * 2 * 30;
    assert_eq!((result.stats.committed, result.stats.given_up), (0, transactions));
    assert_eq!(result.stats.aborts.of("requested"), 5 * transactions);
}

#[test]
fn a_missing_record_is_an_abort_with_its_name_and_no_retries() {
    for plan in [Preset::OneSided.plan(), Preset::TwoSided.plan()] {
        let result = run(Body::ReadsWhatIsNotThere, plan, 1);
        assert_eq!((result.stats.committed, result.stats.aborts.of("not-found")), (0, 60));
    }
}

/// A record that was looked for and is not there is no one's to write: backups would have it and the primary not.
#[test]
fn what_is_not_there_is_not_written() {
    for plan in [Preset::OneSided.plan(), Preset::TwoSided.plan()] {
        let result = run(Body::WritesWhatIsNotThere, plan, 1);
        assert_eq!((result.stats.committed, result.stats.given_up), (0, 60));
        assert!(result.stats.aborts.of("not-found") >= 60);
    }
}
