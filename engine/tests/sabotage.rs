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

/// Half of all READs and WRITEs are seen in pieces.
fn torn() -> FaultOptions {
    FaultOptions { torn_read: 0.5, torn_write: 0.5, ..FaultOptions::default() }
}

fn run(seed: u64, sabotage: Option<Sabotage>) -> RunResult {
    let mut spec = small(seed, torn());
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

/// Whether the words of a record are equal is for this workload to know; that no writer left such a record is for the checker, of any. It
/// also objects to whole payloads under another version, which multi-version readers can be led to believe.
#[test]
fn torn_reads_that_are_believed_are_objected_to() {
    // What a run is objected to for, and whether it read records whose words differ.
    let judged = |name, seed, sabotage| {
        let protocol = AnyProtocol::named(name).expect("a protocol");
        let mut spec = small(seed, torn());
        spec.plan = spec.plan.restricted_to(protocol.needs());
        (spec.history, spec.sabotage) = (true, sabotage);
        let result = run_as(&spec, &Equal, protocol, &AtomicBool::new(false)).expect("it can run");
        let verdict = check(result.history.as_ref().expect("it was asked for"), protocol.level());
        let kinds: Vec<Kind> = verdict.anomaly.iter().chain(&verdict.others).map(|a| a.kind).collect();
        (kinds, result.failed_checks().any(|c| c.name == "whole"))
    };
    for name in ["occ", "sundial", "mvcc"] {
        let mut objected = Vec::new();
        for seed in 0..10 {
            assert_eq!(judged(name, seed, None), (vec![], false), "{name}, seed {seed}, without sabotage");
            let (kinds, halves) = judged(name, seed, Some(Sabotage::TornReads));
            assert!(kinds.iter().all(|&kind| kind == Kind::TornRead), "{name}, seed {seed}: {kinds:?}");
            assert!(!halves || !kinds.is_empty(), "{name}, seed {seed}: the workload alone noticed it");
            objected.extend((!kinds.is_empty()).then_some(seed));
        }
        eprintln!("{name}: objected to on seeds {objected:?} of 0..10");
        assert!(!objected.is_empty(), "none of ten seeds shows it under {name}");
    }
    // Who locks before it reads meets no writer, so whatever it believes is whole. FaSST and CALVIN send no READs for records.
    for name in ["nowait", "waitdie", "bounded-wait"] {
        assert!(
            (0..3).all(|seed| judged(name, seed, Some(Sabotage::TornReads)) == (vec![], false)),
            "{name}"
        );
    }
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

/// A real workload, small and crowded, and which sabotages show on it under which protocols: the names of checks that must fail and of kinds
/// of anomalies that must be found, all within ten seeds.
struct Crowded {
    workload: &'static str,
    settings: &'static [(&'static str, &'static str)],
    coroutines: u32,
    transactions: u64,
}

type Shown = (Sabotage, &'static [&'static str], &'static [&'static str]);

impl Crowded {
    fn case(&self, protocol: &str, sabotage: Option<Sabotage>, failed_cas_stores: bool, seed: u64) -> Case {
        // All that can be torn is.
        let faults =
            FaultOptions { torn_read: 1.0, torn_write: 1.0, failed_cas_stores, ..FaultOptions::default() };
        let mut case = Case::new(self.workload, self.settings, small(seed, faults));
        case.protocol = AnyProtocol::named(protocol).expect("a protocol");
        case.spec.plan = case.spec.plan.restricted_to(case.protocol.needs());
        case.spec.plan.coroutines = self.coroutines;
        case.spec.length = Length::Transactions(self.transactions);
        case.spec.log_ring_bytes = 1 << 16;
        // A lock that nobody frees is given up soon.
        case.spec.retry.attempts = 30;
        case.spec.sabotage = sabotage;
        case
    }

    /// What fails and what is objected to within ten seeds, or up to the seed with which all that must be has been.
    fn noticed(&self, protocol: &str, sabotage: Option<Sabotage>, must: &[&str]) -> BTreeSet<String> {
        let mut noticed = BTreeSet::new();
        let failed_cas_stores = sabotage == Some(Sabotage::FreeByWrite);
        for seed in 0..10 {
            let case = self.case(protocol, sabotage, failed_cas_stores, seed);
            let result = case.run();
            assert!(result.faults.is_empty(), "{protocol}, {sabotage:?}: {:?}", result.faults);
            let verdict = check(result.history.as_ref().expect("it was asked for"), case.protocol.level());
            noticed.extend(result.failed_checks().map(|c| c.name.to_owned()));
            noticed.extend(verdict.anomaly.iter().chain(&verdict.others).map(|a| a.kind.to_string()));
            if !must.is_empty() && must.iter().all(|&name| noticed.contains(name)) {
                break;
            }
        }
        noticed
    }

    /// Nothing is noticed without sabotage, and with it what must be.
    fn shows(&self, table: &[Shown]) {
        for protocol in ["occ", "nowait", "sundial", "mvcc"] {
            assert_eq!(self.noticed(protocol, None, &[]), BTreeSet::new(), "{protocol} as it should be");
            judge(&self.case(protocol, None, true, 0), "a card whose CASes store what they found");
        }
        for &(sabotage, protocols, must) in table {
            for protocol in protocols {
                let noticed = self.noticed(protocol, Some(sabotage), must);
                eprintln!("{} under {protocol}, {sabotage:?}: {noticed:?}", self.workload);
                let missing: Vec<_> = must.iter().filter(|&&name| !noticed.contains(name)).collect();
                assert!(missing.is_empty(), "{protocol}, {sabotage:?}: {missing:?} not among {noticed:?}");
                // Of these no transaction sees anything.
                if [Sabotage::LostLogs, Sabotage::StaleHits].contains(&sabotage) {
                    assert_eq!(noticed.len(), must.len(), "{protocol}, {sabotage:?}: {noticed:?}");
                }
            }
        }
    }
}

/// Money is lost by whoever believes or loses balances. That a record is torn shows where who reads it is validated by its version alone, and
/// more seldom under MVCC, which looks twice.
#[test]
fn sabotage_shows_on_smallbank() {
    let bank = Crowded {
        workload: "smallbank",
        settings: &[
            ("accounts_per_thread", "2"),
            ("hot_accounts_share", "0.5"),
            ("hot_transactions_share", "0.5"),
            ("payload_bytes", "64"),
            ("write_check", "60"),
            ("balance", "30"),
        ],
        coroutines: 8,
        transactions: 100,
    };
    bank.shows(&[
        (Sabotage::TornReads, &["occ", "sundial"], &["torn-read", "money-conserved"]),
        (Sabotage::UnlockFirst, &["occ", "nowait", "sundial"], &["duplicate-version", "money-conserved"]),
        // Its versions are timestamps and cannot be installed twice.
        (Sabotage::UnlockFirst, &["mvcc"], &["G-single", "money-conserved"]),
        (Sabotage::LostLogs, &["occ", "nowait", "sundial", "mvcc"], &["backups-equal"]),
        (Sabotage::FreeByWrite, &["occ", "nowait", "sundial", "mvcc"], &["records-intact"]),
        // Accounts stay where they are, so that what is remembered of them is never stale. (Nor are readers that are ignored listed: of what
        // reads without writing, Balance, both records are read in one step, and next to nobody comes between.)
        (Sabotage::StaleHits, &["occ", "nowait"], &[]),
    ]);
}

/// Districts of few customers, who pay and order at other warehouses, where what is read is read by READs.
#[test]
fn sabotage_shows_on_tpcc() {
    let shop = Crowded {
        workload: "tpcc",
        settings: &[
            ("warehouses", "3"),
            ("customers_per_district", "1"),
            ("orders_per_district", "1"),
            ("items", "2"),
            ("order_room_per_district", "300"),
            ("remote_item_share", "1"),
            ("remote_payment_share", "1"),
            ("new_order", "40"),
            ("payment", "40"),
            ("order_status", "0"),
            ("delivery", "5"),
            ("stock_level", "15"),
        ],
        coroutines: 12,
        transactions: 60,
    };
    shop.shows(&[
        (Sabotage::TornReads, &["occ", "sundial"], &["torn-read", "totals-add-up"]),
        (Sabotage::UnlockFirst, &["occ", "nowait", "sundial"], &["duplicate-version", "totals-add-up"]),
        (Sabotage::UnlockFirst, &["mvcc"], &["G-single", "totals-add-up"]),
        (Sabotage::LostLogs, &["occ", "nowait", "sundial", "mvcc"], &["backups-equal"]),
        (Sabotage::FreeByWrite, &["occ", "nowait", "sundial", "mvcc"], &["records-intact"]),
        (Sabotage::IgnoredReaders, &["mvcc"], &["G2"]),
        // What is deleted, new-orders, is asked for by its own node alone, which remembers no locations: stale ones are met in
        // `structure.rs`, whose records come and go everywhere.
        (Sabotage::StaleHits, &["occ"], &[]),
    ]);
}
