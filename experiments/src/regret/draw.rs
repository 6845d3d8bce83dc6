//! Combinations of profile, cluster, load, workload, skew and payload, drawn from a seed.
//!
//! A combination is a value of the seed and its number, so that shards of a sweep agree on it and every one of them can be
//! run again on its own. Sizes are small on purpose: each is to be compared with every plan there is.

use serde_json::{Value, json};

use super::race::MOST_COMMITS;
use crate::spec::RunSpec;

/// Half of all combinations are of OCC, which has the most plans; the others share the rest. CALVIN is not drawn: one more to draw from
/// would make other combinations of all numbers there are, and of its eight plans there is little to regret.
const OTHERS: &[&str] = &["nowait", "waitdie", "bounded-wait", "mvcc", "sundial"];

/// Profiles that are drawn, in this order: another one would make other combinations of all numbers there are, so that those which ship
/// later stay out, as do RCC's own, which are for its experiments.
const PROFILES: &[&str] = &[
    "cx4-edr",
    "cx4-edr-x2",
    "cx4-roce",
    "cx4-roce-x2",
    "connectib-fdr",
    "cx3",
    "cx3-x2",
    "cx3pro-fdr",
    "cx5",
    "cx6",
    "qdr",
    "aries",
    "ipoib-fdr",
    "ipoib-qdr",
    "tcp-1g",
    "tcp-10g",
    "softroce-vm",
];

/// Three of ten are of each small workload, one is of TPC-C's new-order.
const WORKLOADS: &[&str] =
    &["smallbank", "smallbank", "smallbank", "micro", "micro", "micro", "ycsb", "ycsb", "ycsb", "tpcc-no"];

/// How coroutines per thread are chosen: from a lone client to more than a core can serve.
const LOADS: &[u64] = &[1, 2, 4, 8, 12, 16];

/// The settings of combination `index`, as an experiment file would write them.
pub fn combination(seed: u64, index: u64) -> Vec<(String, Value)> {
    let rng = &mut Dice::new(seed, index);
    let fabric = if rng.coin() {
        format!("sim:drawn-{}", rng.whole(0, 999_999))
    } else {
        format!("sim:{}", rng.of(PROFILES))
    };
    let nodes = rng.whole(2, 4);
    let threads = rng.whole(1, 2);
    let workload = *rng.of(WORKLOADS);
    // New-orders are drawn under OCC alone. Once no other protocol could insert; now the others that are drawn can, but to draw one here
    // would make other combinations of all numbers there are.
    let occ = workload == "tpcc-no" || rng.coin();
    let protocol = if occ { "occ" } else { *rng.of(OTHERS) };
    let mut given = vec![
        ("fabric".to_owned(), json!(fabric)),
        ("workload".to_owned(), json!(workload)),
        ("protocol".to_owned(), json!(protocol)),
        ("nodes".to_owned(), json!(nodes)),
        ("threads".to_owned(), json!(threads)),
        ("coroutines".to_owned(), json!(rng.of(LOADS))),
        ("replicas".to_owned(), json!(rng.whole(1, nodes.min(3)))),
    ];
    let (settings, records) = settings(rng, workload, nodes * threads);
    // Half of the caches know everything; the others a part of what is elsewhere.
    let all = 8 * records * nodes * threads;
    let bytes = if rng.coin() { 8 * all } else { rng.log(all as f64 / 8.0, all as f64) as u64 };
    given.push(("cache_bytes".to_owned(), json!(bytes.clamp(64, 1 << 24))));
    given.extend(settings.into_iter().map(|(key, value)| (format!("set.{key}"), value)));
    given.push(("seed".to_owned(), json!(rng.whole(1, 1_000_000))));
    given
}

/// What the workload is asked for on so many threads, and how many records a thread of it has.
fn settings(rng: &mut Dice, workload: &str, threads: u64) -> (Vec<(&'static str, Value)>, u64) {
    let records = rng.log(500.0, 4_000.0) as u64;
    let words = rng.log(1.0, 64.0).round() as u64;
    let mut all = Vec::new();
    match workload {
        "smallbank" => {
            all.push(("accounts_per_thread", json!(records)));
            all.push(("payload_bytes", json!(8 * words)));
            all.push(("hot_accounts_share", json!(percent(rng.log(0.01, 0.5)))));
            all.push(("hot_transactions_share", json!(percent(rng.between(0.0, 0.95)))));
            return (all, 2 * records);
        }
        "micro" => {
            let reads = rng.whole(0, 8);
            all.push(("records_per_thread", json!(records)));
            all.push(("reads", json!(reads)));
            all.push(("writes", json!(rng.whole(u64::from(reads == 0), 6))));
            all.push(("payload_bytes", json!(8 * words)));
            all.push(("together", json!(rng.coin())));
        }
        "ycsb" => {
            all.push(("records_per_thread", json!(records)));
            all.push(("fields", json!(words)));
            all.push(("operations", json!(rng.whole(2, 12))));
            all.push(("write_share", json!(percent(rng.between(0.0, 1.0)))));
            all.push(("think_us", json!(rng.of(&[0, 0, 0, 1, 4]))));
            all.push(("together", json!(rng.coin())));
        }
        _ => {
            let items = rng.log(200.0, 1_000.0) as u64;
            all.push(("items", json!(items)));
            all.push(("customers_per_district", json!(30)));
            all.push(("orders_per_district", json!(30)));
            // A thread has a warehouse, which has ten districts. Every run sets up the tables anew: room that no race needs
            // would take longer to clear than the race takes.
            all.push(("order_room_per_district", json!(MOST_COMMITS * 3 / 2 / (10 * threads) + 20)));
            return (all, items + 300);
        }
    }
    // No skew, a zipfian one, or a hot set.
    match rng.whole(0, 2) {
        0 => {}
        1 => all.push(("zipf_theta", json!(percent(rng.between(0.3, 0.95))))),
        _ => {
            all.push(("hot_records_share", json!(percent(rng.log(0.01, 0.2)))));
            all.push(("hot_accesses_share", json!(percent(rng.between(0.1, 0.6)))));
        }
    }
    (all, records)
}

/// In whole percent: what is drawn is to be read, and typed in again.
fn percent(share: f64) -> f64 {
    (share * 100.0).round() / 100.0
}

/// A stream of draws: SplitMix64 (Steele, Lea, Flood, OOPSLA 2014), which is fixed for good, so that a combination's number
/// means the same in every build.
struct Dice(u64);

impl Dice {
    fn new(seed: u64, index: u64) -> Dice {
        // Neighbouring numbers must not have neighbouring streams.
        let mut dice = Dice(seed);
        dice.0 = dice.next() ^ index;
        dice.0 = dice.next();
        dice
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Evenly in `[0, 1)`.
    fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    fn coin(&mut self) -> bool {
        self.unit() < 0.5
    }

    fn between(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.unit()
    }

    /// Evenly on a logarithmic scale.
    fn log(&mut self, low: f64, high: f64) -> f64 {
        low * (high / low).powf(self.unit())
    }

    /// A whole number, both ends included.
    fn whole(&mut self, low: u64, high: u64) -> u64 {
        low + (self.unit() * (high - low + 1) as f64) as u64
    }

    fn of<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[self.whole(0, all.len() as u64 - 1) as usize]
    }
}

/// Sets a combination's values in a spec.
///
/// # Errors
/// In words, if one does not fit.
pub fn apply(spec: &mut RunSpec, given: &[(String, Value)]) -> Result<(), String> {
    given
        .iter()
        .try_for_each(|(key, value)| spec.apply(key, value).map_err(|why| format!("{key} {value}: {why}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transact;

    #[test]
    fn combinations_are_values_of_seed_and_number_and_can_be_run() {
        let mut workloads = std::collections::BTreeSet::new();
        let mut fabrics = std::collections::BTreeSet::new();
        for index in 0..300 {
            let given = combination(1, index);
            assert_eq!(given, combination(1, index));
            let mut spec = RunSpec::default();
            apply(&mut spec, &given).unwrap_or_else(|e| panic!("{index}: {e}"));
            spec.check().unwrap_or_else(|e| panic!("{index}: {}", e.why));
            transact::workload(&spec).unwrap_or_else(|e| panic!("{index} {given:?}: {}", e.message()));
            workloads.insert(spec.workload.clone());
            fabrics.insert(spec.fabric.to_string());
        }
        assert_eq!(workloads.len(), 4);
        let drawn = fabrics.iter().filter(|f| f.starts_with("sim:drawn-")).count();
        assert!(drawn > 100 && fabrics.len() - drawn == PROFILES.len(), "{drawn} of {}", fabrics.len());
        assert_ne!(combination(1, 7), combination(2, 7));
    }

    /// What `REGRET.md` tells of combinations by their numbers is to be true of them in any build.
    #[test]
    fn a_number_is_the_same_combination_in_every_build() {
        for (seed, index, fabric, workload, protocol) in [
            (13, 283, "sim:ipoib-fdr", "ycsb", "nowait"),
            (13, 115, "sim:tcp-1g", "micro", "nowait"),
            (14, 393, "sim:cx4-roce", "smallbank", "bounded-wait"),
            (14, 495, "sim:cx6", "ycsb", "bounded-wait"),
            (15, 8, "sim:softroce-vm", "tpcc-no", "occ"),
            (15, 0, "sim:drawn-868378", "smallbank", "occ"),
        ] {
            let given = combination(seed, index);
            let of = |name: &str| given.iter().find(|(key, _)| key == name).map(|(_, value)| value.clone());
            let found = ["fabric", "workload", "protocol"].map(of);
            assert_eq!(
                found,
                [fabric, workload, protocol].map(|is| Some(json!(is))),
                "{index} of seed {seed}"
            );
        }
    }
}
