//! CALVIN beyond the matrix: what its stages cost, what is refused, how it ends.

mod common;

use common::expected::Objections;
use common::{Case, interrupted, judge, sim};
use engine::cluster::{Fault, Length, RunError, RunResult, RunSpec, run_as};
use engine::protocol::planted::Bug;
use engine::protocol::{AnyProtocol, Calvin, Protocol};
use engine::session::{Halt, Order, Session};
use engine::verify::{Level, Op, OpKind, check};
use engine::workload::ahead::{Cover, InputWords, ReadWriteSet, Told};
use engine::workload::{Check, RecordId, TableDef, Workload};
use phases::demand::{Carriage, Inputs, Participants, Sizes, executing, sequencing};
use phases::ops::PhaseOps;
use phases::plan::{Needs, Phase, Plan, Step, Via};
use phases::store::Layout;
use phases::txn::Intent;
use primitives::fabric::loopback::Options;
use primitives::fabric::sim::FaultOptions;
use primitives::mesh::{FabricSpec, Shape};
use primitives::units::Nanos;
use primitives::verbs::NodeId;
use rand::{Rng, RngExt};
use std::sync::atomic::AtomicBool;

const NODES: u16 = 3;
const RECORDS: u64 = 30;

/// What the transactions of [`Steps`] say of themselves, and what they do.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Honesty {
    /// They declare what they do.
    Declares,
    /// They are not known ahead.
    KnowsNothing,
    /// They read a record that they did not declare.
    ReadsMore,
    /// They write a record that they declared as read.
    WritesMore,
    /// They write a record that they did not declare, unread.
    WritesBlindly,
}

/// Each transaction reads a record of the node after its own, and writes one of the node before it.
struct Steps(Honesty);

#[derive(Clone, Copy)]
struct Keys {
    read: u64,
    write: u64,
}

const fn record(key: u64) -> RecordId {
    RecordId { table: 0, key }
}

impl Workload for Steps {
    type Input = Keys;
    type Tally = u64;

    fn name(&self) -> &'static str {
        "steps"
    }

    fn tables(&self) -> Vec<TableDef> {
        vec![TableDef::new("records", RECORDS, 16)]
    }

    fn records_per_transaction(&self) -> usize {
        3
    }

    fn fill(&self, _: RecordId, words: &mut [u64]) {
        words.fill(0);
    }

    /// Of two nodes that follow each other; which ones is left to chance, so a third of all is asked for at each of the three.
    fn draw(&self, rng: &mut impl Rng) -> Keys {
        let read = rng.random_range(0..RECORDS);
        Keys { read, write: (read + 1) % RECORDS }
    }

    async fn execute<P: Protocol, O: PhaseOps>(
        &self,
        s: &mut Session<P, O>,
        keys: &Keys,
    ) -> Result<u64, Halt> {
        let read = s.read(record(keys.read)).await?;
        let write = s.update(record(keys.write)).await?;
        let (seen, old) = (s.word(read, 0), s.word(write, 0));
        s.set_word(write, 0, old + 1);
        s.set_word(write, 1, seen);
        let stranger = record((keys.read + 7) % RECORDS);
        match self.0 {
            Honesty::ReadsMore => {
                s.read(stranger).await?;
            }
            Honesty::WritesBlindly => {
                let row = s.write(stranger)?;
                s.set_word(row, 0, 1);
            }
            Honesty::WritesMore => s.set_word(read, 0, seen),
            _ => {}
        }
        Ok(1)
    }

    fn input_words(&self) -> Option<usize> {
        (self.0 != Honesty::KnowsNothing).then_some(2)
    }

    fn declare(&self, keys: &Keys, set: &mut ReadWriteSet) {
        set.read(record(keys.read));
        set.write(record(keys.write));
    }

    fn write_input(&self, keys: &Keys, out: &mut Vec<u64>) {
        out.extend([keys.read, keys.write]);
    }

    fn read_input(&self, mut words: InputWords<'_>) -> Option<Keys> {
        Some(Keys { read: words.below(RECORDS)?, write: words.below(RECORDS)? })
    }

    fn tally(&self, _: RecordId, words: &[u64], sum: &mut u64) {
        *sum += words[0];
    }

    fn check(&self, before: &u64, effects: &u64, now: &u64) -> Vec<Check> {
        let (name, passed) = ("updates-counted", before + effects == *now);
        vec![Check { name, passed, detail: format!("{before} + {effects} = {now}") }]
    }
}

fn plan(fetch: Via, lock: Via) -> Plan {
    let mut plan = Plan::uniform(Via::TwoSided).with(Phase::Fetch, fetch).with(Phase::Lock, lock);
    plan = plan.restricted_to(&Needs::CALVIN);
    plan.coroutines = 1;
    plan
}

fn spec(fabric: FabricSpec, plan: Plan) -> RunSpec {
    let mut spec = RunSpec::new(fabric, Shape { nodes: NODES, workers: 1 }, plan);
    spec.length = Length::Transactions(20);
    spec.history = true;
    spec
}

fn run_steps(spec: &RunSpec, calvin: Calvin, honesty: Honesty) -> Result<RunResult, RunError> {
    run_as(spec, &Steps(honesty), calvin, &AtomicBool::new(false))
}

fn loopback() -> FabricSpec {
    FabricSpec::Loopback(Options::default())
}

/// Figures 13 and 14: inputs are one call to every other node (a2), or two WRITEs (b2); so are forwarded values, to every active node
/// that has not read them itself (a2; b2, b3). Nothing else leaves a node.
#[test]
fn stages_cost_what_the_papers_steps_do() {
    let each = 20;
    let others = u64::from(NODES) - 1;
    for fabric in [loopback(), sim(3, FaultOptions::default())] {
        for (fetch, lock) in [Via::OneSided, Via::TwoSided]
            .into_iter()
            .flat_map(|f| [Via::OneSided, Via::TwoSided].map(|l| (f, l)))
        {
            let mut spec = spec(fabric.clone(), plan(fetch, lock));
            spec.worker.rpc.retransmit_after = Nanos::from_millis(2_000);
            spec.sample_every = 1;
            let result = run_steps(&spec, Calvin::new(1, Nanos(0)), Honesty::Declares).expect("it runs");
            assert!(result.passed(), "{:?} {:?}", result.faults, result.checks);
            let transactions = u64::from(NODES) * each;
            assert_eq!(result.stats.committed, transactions);
            // Each has waited for its epoch's order.
            let waited = result.stats.phase(Phase::Lock).latency.count();
            assert_eq!((waited, result.stats.timed), (transactions, transactions));
            // One input an epoch, so as many batches of each node as transactions.
            let letters = transactions * others;
            let verbs = |via, letters| if via == Via::OneSided { 2 * letters } else { letters };
            let [sequencing, forwarding] =
                [Phase::Lock, Phase::Fetch].map(|phase| result.stats.phase(phase).costs);
            assert_eq!(sequencing.verbs, verbs(lock, letters), "{fetch} {lock}");
            assert_eq!(sequencing.round_trips, transactions);
            let doorbells = if lock == Via::OneSided { letters } else { transactions };
            assert_eq!(sequencing.doorbells, doorbells);
            // The reader's node forwards to the writer's and the asked one, the writer's to the asked one, which may be either.
            let history = result.history.as_ref().expect("it was asked for");
            let (mut letters, mut sends) = (0, 0);
            for txn in history.txns() {
                let asked = txn.session as u16;
                let write = history.ops(txn).iter().find(|op| op.kind == OpKind::Write).expect("it writes");
                let writer = node_of(write);
                let reader = (writer + NODES - 1) % NODES;
                let mut to_whom = vec![writer, asked];
                to_whom.sort_unstable();
                to_whom.dedup();
                to_whom.retain(|&node| node != reader);
                letters += to_whom.len() as u64 + u64::from(asked != writer);
                sends += 1 + u64::from(asked != writer);
            }
            assert_eq!(forwarding.verbs, verbs(fetch, letters), "{fetch} {lock}");
            assert_eq!(forwarding.round_trips, sends);
            assert_eq!(forwarding.doorbells, if fetch == Via::OneSided { letters } else { sends });
            let others = Phase::ALL.into_iter().filter(|phase| ![Phase::Lock, Phase::Fetch].contains(phase));
            assert!(others.into_iter().all(|phase| result.stats.phase(phase).costs.verbs == 0));
            assert_eq!(result.traffic.atomics, 0, "no lock is taken by the NIC");
            let written = [(lock, sequencing), (fetch, forwarding)]
                .into_iter()
                .filter(|(via, _)| *via == Via::OneSided)
                .map(|(_, costs)| costs.verbs)
                .sum::<u64>();
            assert_eq!(result.traffic.writes, written, "no WRITE escapes the account");
            let verdict = check(history, Level::StrictSerializable);
            assert!(verdict.passed(), "{verdict}");
        }
    }
}

/// Every way to send letters costs what is declared: for each epoch's inputs exactly, and for forwarded values by the letters that
/// were sent, which a run of the usual plan counts.
#[test]
fn letters_cost_what_is_declared() {
    let counted = |fetch: Step, lock: Step| {
        let mut asked = plan(fetch.via, lock.via);
        (asked.fetch, asked.lock) = (Some(fetch), Some(lock));
        let spec = spec(sim(3, FaultOptions::default()), asked);
        let result = run_steps(&spec, Calvin::new(1, Nanos(0)), Honesty::Declares).expect("it runs");
        assert!(result.passed(), "{:?}", result.faults);
        let how = asked.check(&spec.fabric.caps().expect("a fabric"), &Needs::CALVIN).expect("it can run");
        let costs = [Phase::Lock, Phase::Fetch].map(|phase| result.stats.phase(phase).costs);
        (
            result.stats.committed as f64,
            [Phase::Lock, Phase::Fetch].map(|p| Carriage::of(&how, &Needs::CALVIN, p)),
            costs,
        )
    };
    let usual = |via| Needs::CALVIN.usual(Phase::Fetch, via);
    let (_, _, [_, forwarding]) = counted(usual(Via::OneSided), usual(Via::OneSided));
    let (letters, senders) = (forwarding.verbs as f64 / 2.0, forwarding.round_trips as f64);
    let others = f64::from(NODES) - 1.0;
    for via in [Via::OneSided, Via::TwoSided] {
        for (outstanding, doorbell_batching) in [(true, true), (true, false), (false, true), (false, false)] {
            let step = Step { outstanding, doorbell_batching, ..usual(via) };
            // An input an epoch: as many batches as transactions.
            let (batches, [lock, fetch], counted) = counted(step, step);
            let inputs = Inputs { others, batch: 1.0, words: 2, records: 2.0, coroutines: 1.0 };
            let all = Participants {
                letters,
                senders,
                heard: letters,
                payload: 16,
                others,
                ..Participants::default()
            };
            let ordered = sequencing(&lock, &inputs, &Sizes::default());
            let executed = executing(&fetch, &all, &Sizes::default());
            for (declared, times, counted) in [(ordered, batches, counted[0]), (executed, 1.0, counted[1])] {
                let said =
                    [declared.verbs(), declared.doorbells(), declared.round_trips()].map(|n| n * times);
                let counts = [counted.verbs, counted.doorbells, counted.round_trips].map(|n| n as f64);
                assert_eq!(said, counts, "{step}");
            }
        }
    }
}

fn node_of(op: &Op) -> u16 {
    (op.key % u64::from(NODES)) as u16
}

#[test]
fn a_workload_that_does_not_declare_is_refused_before_anything_runs() {
    let spec = spec(loopback(), plan(Via::OneSided, Via::OneSided));
    let refused = run_steps(&spec, Calvin::default(), Honesty::KnowsNothing).expect_err("not declared");
    assert!(matches!(refused, RunError::Undeclared { workload: "steps", protocol: "calvin" }), "{refused:?}");
    let text = refused.to_string();
    assert!(text.contains("steps does not declare them") && text.contains("calvin"), "{text}");
}

#[test]
fn touching_more_than_was_declared_is_a_fault_with_the_record_in_it() {
    for honesty in [Honesty::ReadsMore, Honesty::WritesMore, Honesty::WritesBlindly] {
        for fabric in [loopback(), sim(5, FaultOptions::default())] {
            let spec = spec(fabric, plan(Via::TwoSided, Via::TwoSided));
            let result = run_steps(&spec, Calvin::default(), honesty).expect("it starts");
            let why = result.faults.first().map(|fault| fault.why.as_str()).unwrap_or_default();
            assert!(why.contains("not in the read and write set"), "{honesty:?}: {:?}", result.faults);
            assert!(why.starts_with("table 0 key "), "{why}");
            assert_eq!(result.stats.committed, 0, "{honesty:?}");
        }
    }
}

/// Boxes of a row stand on one node, with their things: who holds a box may look into it, and change what is in it.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Things {
    /// All that is done is covered.
    Honest,
    /// A thing of the next box is read, which is on another node.
    ReadsElsewhere,
    /// One of another box of the node is read, which is not held.
    ReadsUncovered,
    /// A thing is put into that.
    InsertsUncovered,
    /// That is gone through, though it is empty.
    ScansUncovered,
    /// More is gone through than the box.
    ScansBeyond,
    /// A box that is held to be read has something put into it.
    ChangesWhatItReads,
    /// A label is changed, which never changes.
    ChangesFixed,
    /// More is found than its workload says.
    FindsMore,
}

const BOX: u64 = 16;
const BOXES: u64 = 6;

impl Workload for Things {
    type Input = u64;
    type Tally = u64;

    fn name(&self) -> &'static str {
        "things"
    }

    fn tables(&self) -> Vec<TableDef> {
        vec![
            TableDef::new("things", BOXES * BOX, 16).blocks(BOX).ordered().room(BOXES * BOX),
            TableDef::new("labels", BOXES * BOX, 8).blocks(BOX).room(BOXES * BOX),
        ]
    }

    fn changes_tables(&self) -> bool {
        true
    }

    /// One of two things is there at first.
    fn keys<'a>(&'a self, _: u16, layout: &'a Layout, node: NodeId) -> impl Iterator<Item = u64> + 'a {
        let nodes = u64::from(layout.config().nodes);
        (0..BOXES * BOX).filter(move |key| key % 2 == 1 && key / BOX % nodes == u64::from(node.0))
    }

    fn records_per_transaction(&self) -> usize {
        40
    }

    fn fill(&self, _: RecordId, words: &mut [u64]) {
        words.fill(0);
    }

    fn draw(&self, rng: &mut impl Rng) -> u64 {
        rng.random_range(0..BOXES)
    }

    async fn execute<P: Protocol, O: PhaseOps>(&self, s: &mut Session<P, O>, &of: &u64) -> Result<u64, Halt> {
        let key = |of: u64, n: u64| (of % BOXES) * BOX + n;
        // With three nodes, three boxes further is the same node.
        let (next, far) = (of + 1, of + u64::from(NODES));
        let to = if *self == Things::ScansBeyond { 2 * BOX } else { BOX };
        let rows = s.scan(0, key(of, 0)..=key(of, 0) + to - 1, 99, Order::Ascending).await?;
        let row = s.row(rows, 0);
        let label = s.read(RecordId { table: 1, key: key(of, 1) }).await?;
        let seen = s.word(row, 0) + s.word(label, 0);
        match self {
            Things::Honest | Things::FindsMore => {
                s.set_word(row, 0, seen + 1);
                return Ok(1);
            }
            Things::ReadsElsewhere => s.read(record(key(next, 1))).await.map(|_| ())?,
            Things::ReadsUncovered => s.read(record(key(far, 1))).await.map(|_| ())?,
            Things::InsertsUncovered => s.insert(record(key(far, 2))).map(|_| ())?,
            Things::ScansUncovered => {
                s.scan(0, key(far, 2)..=key(far, 2), 9, Order::Ascending).await?;
            }
            Things::ScansBeyond => {}
            Things::ChangesWhatItReads => s.insert(record(key(of, 2))).map(|_| ())?,
            Things::ChangesFixed => s.set_word(label, 0, 1),
        }
        Ok(0)
    }

    fn input_words(&self) -> Option<usize> {
        Some(1)
    }

    fn declare(&self, &of: &u64, set: &mut ReadWriteSet) {
        let intent = if *self == Things::ChangesWhatItReads { Intent::Read } else { Intent::Write };
        set.hold(record(of * BOX), intent);
        set.find_at(record(of * BOX));
    }

    fn cover(&self, thing: RecordId) -> Cover {
        if thing.table == 1 { Cover::Fixed } else { Cover::By(record(thing.key / BOX * BOX)) }
    }

    fn told(&self) -> Told {
        let (boxes, rows) = (BOX as usize, if *self == Things::FindsMore { 2 } else { BOX as usize });
        Told::NOTHING.declared(boxes, 2).found(1 + rows, 2).rows(1, rows)
    }

    fn write_input(&self, of: &u64, out: &mut Vec<u64>) {
        out.push(*of);
    }

    fn read_input(&self, mut words: InputWords<'_>) -> Option<u64> {
        words.below(BOXES)
    }

    fn tally(&self, record: RecordId, words: &[u64], sum: &mut u64) {
        *sum += if record.table == 0 { words[0] } else { 0 };
    }

    fn check(&self, before: &u64, effects: &u64, now: &u64) -> Vec<Check> {
        let (name, passed) = ("changes-counted", before + effects == *now);
        vec![Check { name, passed, detail: format!("{before} + {effects} = {now}") }]
    }
}

#[test]
fn what_no_lock_covers_is_a_fault_with_the_record_in_it() {
    use Things::*;
    for things in [
        Honest,
        ReadsElsewhere,
        ReadsUncovered,
        InsertsUncovered,
        ScansUncovered,
        ScansBeyond,
        ChangesWhatItReads,
        ChangesFixed,
        FindsMore,
    ] {
        for fabric in [loopback(), sim(5, FaultOptions::default())] {
            let mut spec = spec(fabric, plan(Via::TwoSided, Via::OneSided));
            spec.replicas = 2;
            let result = run_as(&spec, &things, Calvin::default(), &AtomicBool::new(false));
            let result = result.expect("it starts");
            let why = result.faults.first().map(|fault| fault.why.as_str()).unwrap_or_default();
            if things == Honest {
                assert!(result.passed() && result.faults.is_empty(), "{why} {:?}", result.checks);
                let verdict = check(result.history.as_ref().expect("asked for"), Level::StrictSerializable);
                assert!(verdict.passed(), "{verdict}");
                assert_eq!(result.stats.committed, 3 * 20);
                continue;
            }
            assert_eq!(result.stats.committed, 0, "{things:?}: {why}");
            if things == FindsMore {
                assert!(why.contains("its workload said at most"), "{why}");
            } else if things == ScansBeyond {
                // Two boxes are of two nodes.
                assert!(why.contains("not of one block"), "{why}");
            } else {
                assert!(why.contains("nor covered by a lock that it holds"), "{things:?}: {why}");
                let table = if things == ChangesFixed { "table 1 key " } else { "table 0 key " };
                assert!(why.starts_with(table), "{things:?}: {why}");
            }
        }
    }
}

const BANK: &[(&str, &str)] = &[("accounts_per_thread", "30"), ("hot_accounts_share", "0.1")];

fn bank(fabric: FabricSpec, shape: Shape, plan: Plan) -> Case {
    let mut case = Case::new("smallbank", BANK, RunSpec::new(fabric, shape, plan));
    case.protocol = AnyProtocol::Calvin(Calvin::default());
    case.spec.length = Length::Transactions(50);
    case
}

/// Batches that do not divide the work, of workers and coroutines that share locks, and backups that are as active as primaries.
#[test]
fn all_workers_and_coroutines_of_all_nodes_are_in_one_order() {
    for (seed, via) in [(1, Via::OneSided), (2, Via::TwoSided)] {
        for batch in [1, 3, 16] {
            let fabric =
                sim(seed, FaultOptions { datagram_loss: 0.01, late_write: 0.2, ..FaultOptions::default() });
            let mut case = bank(fabric, Shape { nodes: 4, workers: 3 }, plan(via, via));
            case.spec.plan.coroutines = 3;
            case.spec.worker.rpc.retransmit_after = Nanos::from_micros(150);
            (case.spec.seed, case.spec.replicas) = (seed, 1 + batch % 3);
            case.protocol = AnyProtocol::Calvin(Calvin::new(batch, Nanos(0)));
            let result = judge(&case, "sim");
            let ended = result.stats.committed + result.stats.rolled_back.total();
            assert_eq!(ended, 4 * 3 * 3 * 50, "every transaction ends");
            assert_eq!(result.stats.aborts.total() + result.stats.given_up, 0, "nobody aborts");
        }
    }
}

#[test]
fn epochs_last_at_least_as_long_as_asked() {
    let mut case = bank(
        sim(4, FaultOptions::default()),
        Shape { nodes: 2, workers: 1 },
        plan(Via::OneSided, Via::OneSided),
    );
    case.spec.plan.coroutines = 2;
    case.spec.length = Length::measured(Nanos::from_micros(2_000));
    let rate = |epoch| {
        let calvin = Calvin::new(4, epoch);
        let result = Case { protocol: AnyProtocol::Calvin(calvin), ..case.clone() }.run();
        assert!(result.passed(), "{:?} {:?}", result.faults, result.checks);
        result.committed_per_s()
    };
    let (fast, slow) = (rate(Nanos(0)), rate(Nanos::from_micros(50)));
    // 2 nodes × 2 coroutines × 4 transactions each 50 µs.
    assert!(slow <= 16.0 / 50e-6 && slow > 0.5 * 16.0 / 50e-6, "{slow}");
    assert!(fast > slow, "{fast} {slow}");
}

#[test]
fn the_same_seed_is_the_same_run() {
    let faults = FaultOptions { datagram_loss: 0.02, ..FaultOptions::default() };
    for via in [Via::OneSided, Via::TwoSided] {
        let mut case = bank(sim(9, faults.clone()), Shape { nodes: 3, workers: 2 }, plan(via, via));
        case.spec.plan.coroutines = 3;
        case.spec.worker.rpc.retransmit_after = Nanos::from_micros(150);
        let (a, b) = (judge(&case, "sim"), judge(&case, "sim"));
        assert_eq!(a.facts.of_seed(), b.facts.of_seed());
        assert_eq!(a.stats.latency.to_data(), b.stats.latency.to_data());
    }
}

/// What the checker objects to are orders that cannot be, not runs that broke off.
#[test]
fn planted_bugs_end_in_cycles_and_not_in_faults() {
    let bugs = [
        Bug::OutOfTurn,
        Bug::ImpatientReaders,
        Bug::EarlyRelease,
        Bug::EarlyValues,
        Bug::StaleValues,
        Bug::EarlyEpoch,
    ];
    for bug in bugs {
        let mut objections = Objections::to(bug);
        for seed in 0..10 {
            let fabric = sim(seed, FaultOptions::default());
            let settings =
                [("records_per_thread", "4"), ("reads", "2"), ("writes", "1"), ("payload_bytes", "8")];
            let spec =
                RunSpec::new(fabric, Shape { nodes: 3, workers: 2 }, plan(Via::OneSided, Via::TwoSided));
            let mut case = Case::new("micro", &settings, spec);
            (case.spec.seed, case.spec.plan.coroutines, case.spec.audit) = (seed, 3, false);
            case.spec.length = Length::Transactions(40);
            let result = case.run_bug(bug);
            assert!(result.passed(), "{bug:?}, seed {seed}");
            objections.judge(seed, result.history.as_ref().expect("it was asked for"));
        }
        objections.complete();
    }
}

/// Whoever dies is named by those who wait for it, whatever carries their letters, and nobody hangs. At some of these times its last
/// letters have reached one of the others and not the other, which then waits for it, and the one for that; who is named must not
/// depend on whose wait began first.
#[test]
fn a_dead_node_ends_the_run_and_is_named_whenever_it_dies() {
    let vias = [Via::OneSided, Via::TwoSided];
    for (fetch, lock) in vias.into_iter().flat_map(|fetch| vias.map(|lock| (fetch, lock))) {
        for at in (400_000..440_000).step_by(1_500).map(Nanos) {
            let fabric = sim(6, FaultOptions { dead: vec![(NodeId(2), at)], ..FaultOptions::default() });
            let mut case = bank(fabric, Shape { nodes: 3, workers: 2 }, plan(fetch, lock));
            case.spec.plan.coroutines = 2;
            case.spec.audit = false;
            case.spec.length = Length::measured(Nanos::from_millis(50));
            case.spec.worker.rpc.retransmit_after = Nanos::from_micros(100);
            case.spec.worker.rpc.max_retransmits = 5;
            let result = case.run();
            assert!(!result.faults.is_empty(), "{fetch} {lock} {at}: a dead node is no good run");
            for fault in &result.faults {
                let names = fault.why.contains("node 2");
                assert!(fault.node != NodeId(2) && names, "{fetch} {lock} {at}: {fault:?}");
            }
            let counted = result.elapsed;
            assert!(counted < Nanos::from_millis(50), "{counted} counted, but the run broke off");
            // A call may stay unanswered for 8 × 100 µs × 6.
            let took = result.facts.virtual_time.since(at);
            assert!(took < Nanos::from_micros(3 * 4_800), "{fetch} {lock} {at}: it took {took}");
        }
    }
}

/// Nodes that only forward have many more letters for the dead one than its window takes. They do not wait until each window of them is
/// given up: the first letter that was not taken ends the run.
#[test]
fn a_full_window_to_a_dead_node_does_not_put_the_end_off() {
    let reads = [("records_per_thread", "400"), ("reads", "4"), ("writes", "0"), ("payload_bytes", "8")];
    for at in (600_000..700_000).step_by(10_000).map(Nanos) {
        let fabric = sim(344, FaultOptions { dead: vec![(NodeId(0), at)], ..FaultOptions::default() });
        let two_sided = plan(Via::TwoSided, Via::TwoSided);
        let spec = RunSpec::new(fabric, Shape { nodes: 4, workers: 1 }, two_sided);
        let mut case = Case::new("micro", &reads, spec);
        case.protocol = AnyProtocol::Calvin(Calvin::new(1000, Nanos(0)));
        case.spec.seed = 344;
        case.spec.audit = false;
        case.spec.length = Length::measured(Nanos::from_millis(50));
        case.spec.worker.rpc.retransmit_after = Nanos::from_micros(100);
        case.spec.worker.rpc.max_retransmits = 5;
        let result = case.run();
        let named = |fault: &Fault| fault.why.contains("node 0");
        assert!(!result.faults.is_empty() && result.faults.iter().all(named), "{at}: {:?}", result.faults);
        let took = result.facts.virtual_time.since(at);
        assert!(took < Nanos::from_micros(3 * 4_800), "{at}: it took {took}");
    }
}

#[test]
fn a_stop_from_outside_ends_all_epochs() {
    let shape = Shape { nodes: 3, workers: 2 };
    let mut case = bank(loopback(), shape, plan(Via::OneSided, Via::TwoSided));
    case.spec.plan.coroutines = 2;
    case.spec.length = Length::Time { warm_up: Nanos(0), measured: Nanos::from_millis(60_000) };
    let workload = case.workload();
    let result = interrupted(&case.spec, &workload, case.protocol);
    assert!(result.interrupted && result.stats.committed > 0, "{} committed", result.stats.committed);
    assert!(result.passed(), "{:?}, {:?}", result.checks, result.faults);
    let verdict = check(result.history.as_ref().expect("it was asked for"), Level::StrictSerializable);
    assert!(verdict.passed(), "{verdict}");
}

#[test]
fn what_does_not_fit_is_refused() {
    let mut spec = spec(loopback(), plan(Via::OneSided, Via::OneSided));
    spec.plan.coroutines = 1000;
    let refused = run_steps(&spec, Calvin::new(1000, Nanos(0)), Honesty::Declares).expect_err("too many");
    assert!(refused.to_string().contains("transactions an epoch"), "{refused}");
}
