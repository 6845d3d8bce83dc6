//! Wait-die as runs have it, and not only its rule: a transaction dies of an older one that is under way, and stays as old as it was.
//! A protocol of one's own wraps the real one, and keeps who is under way by age.

use crate::common::{self, Case};
use engine::cluster::{Length, RunSpec, run_as};
use engine::protocol::{Locking, Protocol};
use phases::ops::{PhaseOps, Stop};
use phases::plan::{Needs, Preset};
use phases::rule::{Abort, Timestamp};
use phases::txn::{Scan, Txn};
use primitives::fabric::sim::FaultOptions;
use primitives::mesh::Shape;
use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;

/// What was seen of a run's transactions.
#[derive(Debug, Default)]
struct Seen {
    under_way: BTreeSet<u64>,
    begun: u64,
    died: u64,
    /// Died though they were the oldest.
    oldest_died: Vec<u64>,
    /// Tried again with another age.
    aged: Vec<u64>,
}

/// What is wrong with the ages that the lock's rule is told.
#[derive(Clone, Copy, PartialEq)]
enum Planted {
    Nothing,
    /// They are given anew to each attempt.
    Forgets,
    /// Who is younger is told to be older, so that the oldest dies.
    Reversed,
}

/// Ages are 55 bits of a lock's word.
const AGES: u64 = (1 << 55) - 1;

#[derive(Clone, Copy)]
struct Watched<'a> {
    locking: Locking,
    planted: Planted,
    seen: &'a Mutex<Seen>,
}

impl Watched<'_> {
    /// How old a transaction is, whatever the rule is told: the least is the oldest.
    fn age(&self, txn: &Txn) -> u64 {
        if self.planted == Planted::Reversed { AGES - txn.time.0 } else { txn.time.0 }
    }

    /// Notes what has become of a transaction.
    fn note<T>(&self, txn: &Txn, ended: bool, result: Result<T, Stop>) -> Result<T, Stop> {
        let mut seen = self.seen.lock().expect("nobody panics with it");
        match &result {
            Err(Stop::Abort(Abort::Died)) => {
                seen.died += 1;
                if seen.under_way.first() == Some(&self.age(txn)) {
                    seen.oldest_died.push(self.age(txn));
                }
            }
            Ok(_) if ended => {
                seen.under_way.remove(&self.age(txn));
            }
            _ => {}
        }
        result
    }
}

impl Protocol for Watched<'_> {
    fn needs(&self) -> &'static Needs {
        self.locking.needs()
    }

    fn begin<O: PhaseOps>(&self, ops: &O, txn: &mut Txn, attempt: u32) -> Result<(), Stop> {
        self.locking.begin(ops, txn, if self.planted == Planted::Forgets { 1 } else { attempt })?;
        if self.planted == Planted::Reversed && attempt == 1 {
            txn.time = Timestamp(AGES - txn.time.0);
        }
        let mut seen = self.seen.lock().expect("nobody panics with it");
        if seen.under_way.insert(self.age(txn)) {
            seen.begun += 1;
            if attempt > 1 {
                seen.aged.push(self.age(txn));
            }
        }
        Ok(())
    }

    async fn read<O: PhaseOps>(&self, ops: &O, txn: &mut Txn) -> Result<(), Stop> {
        let result = self.locking.read(ops, txn).await;
        self.note(txn, false, result)
    }

    fn read_now<O: PhaseOps>(&self, ops: &O, txn: &mut Txn) -> Result<bool, Stop> {
        let result = self.locking.read_now(ops, txn);
        self.note(txn, false, result)
    }

    async fn scan<O: PhaseOps>(&self, ops: &O, txn: &mut Txn, scan: &Scan) -> Result<(), Stop> {
        let result = self.locking.scan(ops, txn, scan).await;
        self.note(txn, false, result)
    }

    async fn commit<O: PhaseOps>(&self, ops: &O, txn: &mut Txn) -> Result<(), Stop> {
        let result = self.locking.commit(ops, txn).await;
        self.note(txn, true, result)
    }
}

/// Twelve coroutines of each of three nodes, all of which want a few records. Everything is awaited, so that who has committed holds nothing,
/// and locks have one holder: of shared ones the word has the age of who was the oldest until all have left. An answer takes no longer to come
/// than a release is waited for, so that who has died finds the one it died of still under way.
fn watched(locking: Locking, preset: &str, settings: &[(&str, &str)], seed: u64, planted: Planted) -> Seen {
    let plan = Preset::named(preset).expect("a preset").plan().restricted_to(locking.needs());
    let fabric = common::sim(seed, FaultOptions::default());
    let mut case = Case::new("micro", settings, RunSpec::new(fabric, Shape { nodes: 3, workers: 1 }, plan));
    case.spec.plan.coroutines = 12;
    case.spec.replicas = 1;
    case.spec.seed = seed;
    case.spec.length = Length::Transactions(100);
    let seen = Mutex::new(Seen::default());
    let protocol = Watched { locking, planted, seen: &seen };
    let result = engine::with_workload!(&case.workload(), w => run_as(&case.spec, w, protocol, &AtomicBool::new(false)));
    let result = result.expect("the case can run");
    assert!(result.passed() && result.stats.given_up == 0, "{:?}", result.faults);
    assert_eq!(result.stats.committed, 3 * 12 * 100);
    seen.into_inner().expect("nobody panicked with it")
}

#[test]
fn nobody_dies_who_is_the_oldest_and_nobody_grows_younger() {
    const WRITES: [(&str, &str); 4] =
        [("records_per_thread", "2"), ("reads", "0"), ("writes", "2"), ("payload_bytes", "8")];
    const BOTH: [(&str, &str); 4] =
        [("records_per_thread", "2"), ("reads", "2"), ("writes", "1"), ("payload_bytes", "8")];
    for preset in ["rcc-one-sided", "rcc-two-sided"] {
        for (locking, settings) in [(Locking::WAITDIE, WRITES), (Locking::WAITDIE.exclusive_reads(), BOTH)] {
            for seed in 0..3 {
                let what = format!("{} {preset}, seed {seed}", locking.needs().protocol);
                let seen = watched(locking, preset, &settings, seed, Planted::Nothing);
                assert!(seen.died > 500, "{what}: too few die to show anything: {}", seen.died);
                assert!(seen.oldest_died.is_empty(), "{what}: {:?}", seen.oldest_died);
                assert!(seen.aged.is_empty(), "{what}: {:?}", seen.aged);
                assert_eq!((seen.begun, seen.under_way.len()), (3 * 12 * 100, 0), "{what}");
                eprintln!("{what}: {} died, none of them the oldest", seen.died);
            }
        }
        // Who forgets its age is seen to, and an oldest that dies.
        let seen = watched(Locking::WAITDIE, preset, &WRITES, 0, Planted::Forgets);
        assert!(!seen.aged.is_empty(), "{preset}");
        let seen = watched(Locking::WAITDIE, preset, &WRITES, 0, Planted::Reversed);
        assert!(seen.aged.is_empty() && seen.oldest_died.len() > 10, "{preset}: {}", seen.oldest_died.len());
    }
}
