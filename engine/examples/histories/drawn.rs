//! A few transactions drawn by chance: most histories are wrong in some way, and each way is met.

use engine::verify::{History, Key, Op, Outcome};
use primitives::units::Nanos;
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

/// Two to six transactions over two or three records, each in a session of its own, at times that may overlap. If `rmw`, who writes a
/// record has read the version before its own.
pub fn history(seed: u64, rmw: bool) -> History {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    let (txns, records) = (rng.random_range(2..=6), rng.random_range(2..=3));
    // Who writes which version of each record: the first of the list version 1, the next version 2, ….
    let writers: Vec<Vec<usize>> = (0..records)
        .map(|_| {
            let mut writers: Vec<usize> = (0..txns).filter(|_| rng.random_ratio(2, 5)).collect();
            // In the order of the transactions, mostly, so that not all goes wrong.
            if rng.random_ratio(1, 3) {
                writers.shuffle(&mut rng);
            }
            writers
        })
        .collect();
    let mut history = History::new(Some(0));
    for txn in 0..txns {
        let mut ops = Vec::new();
        for (key, writers) in (0..).zip(&writers) {
            let key = Key { table: 0, key };
            match writers.iter().position(|&writer| writer == txn) {
                Some(before) => {
                    let before = before as u64;
                    if rmw || rng.random() {
                        ops.push(Op::read(key, before));
                    }
                    ops.push(Op::write(key, before + 1));
                }
                None if rng.random_ratio(1, 2) => {
                    ops.push(Op::read(key, rng.random_range(0..=writers.len() as u64)));
                }
                None => {}
            }
        }
        let invoke = 100 * txn as u64 + rng.random_range(0..200);
        let ret = invoke + rng.random_range(1..200);
        history.push(txn as u64, txn as u32, (Nanos(invoke), Nanos(ret)), Outcome::Committed, ops);
    }
    history
}
