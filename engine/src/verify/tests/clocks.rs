//! Histories of nodes whose clocks differ, judged together: what is right is never found wrong.

use super::*;
use Level::StrictSerializable;
use primitives::mesh::clock::{ClockMap, DRIFT_PPM, Reading};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

const NODES: usize = 3;
const MS: u64 = 1_000_000;
const S: u64 = 1_000 * MS;

/// A clock that begins at some moment of the true time and runs too fast or too slow.
#[derive(Clone, Copy)]
struct Skewed {
    begins: i128,
    millionths: i128,
}

impl Skewed {
    fn at(&self, truth: u64) -> i128 {
        let elapsed = i128::from(truth) - self.begins;
        elapsed + elapsed * self.millionths / 1_000_000_000_000
    }
}

/// What is known of a node's clock before the run and after it.
type Readings = [Reading; 2];

/// A run as it truly was: each transaction has a moment between its beginning and its end at which it reads a register and
/// overwrites it; then what each node writes down of it by its own clock, and what is known of those clocks.
struct Truth {
    rows: Vec<(usize, u32, Row)>,
    clocks: [Skewed; NODES],
    readings: [Readings; NODES],
}

/// Clocks are read at one moment, up to five minutes before the run, and at one after it, and part by up to what is assumed of them.
fn truth(seed: u64) -> Truth {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    let read = 1000 * S;
    let began = read + rng.random_range(1..=300) * S;
    let step = [50_000, MS, 20 * MS][rng.random_range(0..3usize)];
    let half = DRIFT_PPM * 1_000_000 / 2;
    let clocks: [Skewed; NODES] = std::array::from_fn(|node| Skewed {
        // A member's begins up to a quarter of an hour before or after that of node 0, which is the true one but for its rate.
        begins: if node == 0 { 0 } else { i128::from(rng.random_range(0..900 * S)) - 450 * i128::from(S) },
        millionths: i128::from(rng.random_range(0..=2 * half)) - i128::from(half),
    });
    // As node 0 reads a clock: the answer may have been any part of the round trip on its way.
    let reading = |node: usize, at: u64, rng: &mut Xoshiro256PlusPlus| {
        let round_trip = rng.random_range(5_000..=400_000);
        let out = rng.random_range(0..=round_trip);
        let (sent, back) = (clocks[0].at(at), clocks[0].at(at + round_trip));
        let theirs = Nanos(clocks[node].at(at + out) as u64);
        match node {
            0 => Reading { at: theirs, shows: theirs.0 as i64, error_ns: 0 },
            _ => Reading {
                at: theirs,
                shows: (sent + (back - sent) / 2) as i64,
                error_ns: ((back - sent) / 2 + 1) as u64,
            },
        }
    };
    let (mut now, mut rows, mut versions) = (began, Vec::new(), [0; 4]);
    for n in 0..400u32 {
        now += rng.random_range(1..=step);
        let key = rng.random_range(0..4u64);
        let version = &mut versions[key as usize];
        let ops = [r(key, *version), w(key, *version + 1)];
        *version += 1;
        let (before, after) = (rng.random_range(0..20_000), rng.random_range(0..20_000));
        rows.push((rng.random_range(0..NODES), n, commit(now - before, now + after, ops)));
    }
    let ended = now + rng.random_range(1..=S);
    let readings = std::array::from_fn(|node| [read, ended].map(|at| reading(node, at, &mut rng)));
    Truth { rows, clocks, readings }
}

impl Truth {
    /// What is judged: the nodes' histories in node 0's time, by what `known` makes of the readings of their clocks.
    fn joined(&self, known: impl Fn(usize, Readings) -> Readings) -> History {
        let part = |node: usize| {
            let mut history = History::new(Some(0));
            let reason = history.intern("planned").expect("the first reason");
            for (_, n, row) in self.rows.iter().filter(|(of, ..)| *of == node) {
                let local =
                    |truth| u64::try_from(self.clocks[node].at(truth)).expect("after the clock began");
                let interval = (local(row.interval.0), local(row.interval.1));
                Row { interval, ..row.clone() }.push(&mut history, *n as usize, *n, reason);
            }
            let [first, last] = known(node, self.readings[node]);
            let map = ClockMap::between(first, last);
            history.retime(|begin, end| (map.earliest(begin), map.latest(end)));
            history
        };
        History::join((0..NODES).map(part))
    }
}

const RUNS: u64 = 200;

/// In how many of the runs something is found against the order of real time.
fn accused(known: impl Fn(usize, Readings) -> Readings) -> usize {
    let found = |seed| {
        let found = kind(&truth(seed).joined(&known), StrictSerializable);
        assert!(matches!(found, None | Some(Kind::RealTime)), "seed {seed}: {found:?}");
        found.is_some()
    };
    (0..RUNS).filter(|&seed| found(seed)).count()
}

#[test]
fn clocks_that_differ_never_put_a_right_history_in_the_wrong() {
    assert_eq!(accused(|_, both| both), 0);
    // As of a run that was cut short.
    assert_eq!(accused(|_, [first, _]| [first, first]), 0);
}

/// What a reading may be off by is needed, and so is that readings are right.
#[test]
fn less_widening_would_raise_false_alarms() {
    let exact = |reading: Reading| Reading { error_ns: 0, ..reading };
    let off = |reading: Reading| Reading { shows: reading.shows + 3 * MS as i64, ..reading };
    let without_errors = accused(|_, both| both.map(exact));
    let one_is_off = accused(|node, both| if node == 1 { both.map(off) } else { both });
    // A pace that is not known: the first reading, taken to hold as it is.
    let no_pace = accused(|_, [first, last]| {
        let passed = (last.at.0 - first.at.0) as i64;
        [exact(first), exact(Reading { shows: first.shows + passed, ..last })]
    });
    let counts = [without_errors, one_is_off, no_pace];
    assert!(counts.iter().all(|&found| found > 20), "{counts:?} of {RUNS}");
}

/// It is not that nothing is found any more: who reads what was overwritten long before is.
#[test]
fn what_is_later_by_more_than_clocks_can_be_off_is_found_all_the_same() {
    for seed in 0..RUNS {
        let mut truth = truth(seed);
        let last = truth.rows.last().expect("some").2.interval.1;
        // Two clocks, each off by what the readings left, and by what it may stray from its mean pace since the nearest of them.
        let later = last + 200 * MS;
        truth.rows.push(((seed % 3) as usize, 400, commit(later, later + 10, [r(0, 0)])));
        let history = truth.joined(|_, both| both);
        assert_eq!(kind(&history, StrictSerializable), Some(Kind::RealTime), "seed {seed}");
    }
}
