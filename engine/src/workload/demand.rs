//! From a workload to the averages that the cost model is told ([`phases::model::Workload`]).
//!
//! Nothing here is measured: the mix, the records each kind of transaction touches and the key distribution are the
//! workload's own definition. The location cache is taken to have been used for a while: what it was filled with before a run
//! has given way to what misses brought.

use super::keys::KeyDist;
use super::{AnyWorkload, Scale};
use crate::session::RetryPolicy;
use phases::model::{Band, Elsewhere, TxnClass, Workload as Demand};

/// Bands that stand for a zipfian distribution: one for each doubling of the rank. The first record alone is often a tenth of all
/// accesses, and the tenth a hundredth.
const STEP: u64 = 2;

/// What a workload says of itself.
pub(super) struct Shape {
    pub(super) classes: Vec<TxnClass>,
    pub(super) keys: KeyDist,
    /// Tables that each drawn key has a record in.
    pub(super) tables: u64,
    pub(super) payload_bytes: u32,
    pub(super) reads_ahead: bool,
    /// A client draws records of other nodes only.
    pub(super) remote: bool,
}

pub(super) fn classes_of(classes: impl IntoIterator<Item = TxnClass>) -> Vec<TxnClass> {
    classes.into_iter().collect()
}

/// Where accesses go: records of the band over all tables, and its share of the accesses.
fn bands(keys: &KeyDist, tables: u64) -> Vec<Band> {
    let band = |keys: u64, share: f64| Band::new((keys * tables) as f64, share);
    match keys {
        KeyDist::Uniform { keys } => vec![band(*keys, 1.0)],
        KeyDist::HotSet { keys, hot, hot_share } => {
            vec![band(*hot, *hot_share), band(keys - hot, 1.0 - hot_share)]
        }
        KeyDist::Zipfian(zipfian) => {
            let mut bands = Vec::new();
            let (mut from, mut below) = (0, 0.0);
            while from < zipfian.keys() {
                let to = if from == 0 { 1 } else { (from * STEP).min(zipfian.keys()) };
                let share = zipfian.share_of_first(to);
                bands.push(band(to - from, share - below));
                (from, below) = (to, share);
            }
            bands
        }
    }
}

/// Records that other nodes hold and a node looks for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sought {
    /// How many there are.
    pub(super) records: f64,
    /// Share of the node's lookups that go to them, all of them alike.
    pub(super) share: f64,
}

/// What a node's location cache is asked for.
#[derive(Clone, Debug)]
pub struct Lookups(pub(super) Vec<Sought>);

impl Lookups {
    /// Share of lookups that a cache of so many bytes answers, once it has been used for a while; all if there are none.
    pub fn hit_share(&self, cache_bytes: usize) -> f64 {
        hit_share(&self.0, cache_bytes)
    }
}

/// Steps of the integral in [`hit_share`], over how long ago a record was last looked for, on a logarithmic scale; and where
/// it begins and ends, in lookups for the most and for the least popular record.
const STEPS: u32 = 2_000;
const EARLIEST: f64 = 1e-4;
const LATEST: f64 = 40.0;

/// Share of lookups that a location cache of `cache_bytes` answers, once it has been used for a while.
///
/// A word holds the record that was last looked for among those whose hash names it. A record of popularity `p` that was last
/// looked for `s` lookups ago is still there if none of the others that share its word was looked for since. Of a kind of `n`
/// records, each of popularity `q`, a Poisson number with mean `n / words` share a word, and none of them came since with chance
/// `exp(−n / words (1 − e^(−q s)))`. The age `s` is exponential with rate `p`.
fn hit_share(sought: &[Sought], cache_bytes: usize) -> f64 {
    // An entry is one word, and there is at least one.
    let words = (cache_bytes / 8).max(1) as f64;
    // Each with its popularity.
    let asked: Vec<(f64, Sought)> = sought
        .iter()
        .filter(|kind| kind.share > 0.0 && kind.records > 0.0)
        .map(|kind| (kind.share / kind.records, *kind))
        .collect();
    let most = asked.iter().map(|(p, _)| *p).fold(0.0, f64::max);
    let least = asked.iter().map(|(p, _)| *p).fold(f64::INFINITY, f64::min);
    if asked.is_empty() {
        return 1.0;
    }
    let (from, to) = (EARLIEST / most, LATEST / least);
    let step = (to / from).ln() / f64::from(STEPS);
    let (mut hits, mut before) = (0.0, 0.0);
    for i in 0..=STEPS {
        let age = from * (step * f64::from(i)).exp();
        let others: f64 = asked.iter().map(|(q, kind)| kind.records / words * -(-q * age).exp_m1()).sum();
        let asking: f64 = asked.iter().map(|(p, kind)| kind.share * p * (-p * age).exp()).sum();
        // Per unit of the logarithm.
        let here = age * asking * (-others).exp();
        hits += if i == 0 { 0.0 } else { 0.5 * step * (before + here) };
        before = here;
    }
    // What is younger than the first step is there.
    let youngest: f64 = asked.iter().map(|(p, kind)| kind.share * -(-p * from).exp_m1()).sum();
    let all: f64 = asked.iter().map(|(_, kind)| kind.share).sum();
    ((youngest + hits) / all).min(1.0)
}

impl AnyWorkload {
    /// The workload as the cost model sees it, on a cluster of `scale` whose nodes cache `cache_bytes` of locations.
    pub fn demand(&self, scale: Scale, cache_bytes: usize, retry: &RetryPolicy) -> Demand {
        let (demand, lookups) = self.demand_and_lookups(scale, retry);
        Demand { cache_hit_share: lookups.hit_share(cache_bytes), ..demand }
    }

    /// The same where all lookups hit, and the lookups, from which follows how many of them do with which cache.
    pub fn demand_and_lookups(&self, scale: Scale, retry: &RetryPolicy) -> (Demand, Lookups) {
        let shape = match self {
            AnyWorkload::SmallBank(w) => w.shape(),
            AnyWorkload::Micro(w) => w.shape(),
            AnyWorkload::Tpcc(w) => return w.demand(scale, retry),
            AnyWorkload::CustomerPosition(w) => return w.demand(scale, retry),
            AnyWorkload::Ycsb(w) => w.shape(),
        };
        let bands = bands(&shape.keys, shape.tables);
        let nodes = f64::from(scale.nodes.max(1));
        // Each node looks for what the others hold.
        let elsewhere = 1.0 - 1.0 / nodes;
        let sought = |band: &Band| Sought { records: band.records * elsewhere, share: band.share };
        let sought = if scale.nodes < 2 { Vec::new() } else { bands.iter().map(sought).collect() };
        // All that a class touches is on other nodes, if it is only these.
        let placed = |class: TxnClass| match shape.remote {
            true => {
                let all = Elsewhere { reads: class.reads, writes: class.writes };
                TxnClass { elsewhere: Some(all), ..class }
            }
            false => class,
        };
        let demand = Demand {
            name: self.name().to_owned(),
            classes: shape.classes.into_iter().map(placed).collect(),
            payload_bytes: shape.payload_bytes,
            tables: shape.tables as u32,
            local_share: if shape.remote { 0.0 } else { 1.0 / nodes },
            cache_hit_share: 1.0,
            bands,
            reads_ahead: shape.reads_ahead,
            // The first wait is uniform below its limit.
            backoff_ns: retry.first.0 as f64 / 2.0,
            backoff_doublings: retry.doublings(),
        };
        (demand, Lookups(sought))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn demand(name: &str, settings: &[(&str, &str)], cache_bytes: usize) -> Demand {
        let scale = Scale { nodes: 4, workers: 2 };
        let workload = AnyWorkload::parse(name, scale, settings.iter().copied()).expect("valid settings");
        workload.demand(scale, cache_bytes, &RetryPolicy::default())
    }

    #[test]
    fn every_workload_is_one_the_model_takes() {
        for (name, settings) in [
            ("smallbank", &[][..]),
            ("smallbank", &[("balance", "0")][..]),
            ("micro", &[("zipf_theta", "0.9")][..]),
            ("micro", &[("hot_records_share", "0.1")][..]),
            ("ycsb", &[][..]),
            ("ycsb", &[("write_share", "1"), ("zipf_theta", "0.9")][..]),
            ("ycsb", &[("hot_accesses_share", "0.5"), ("think_us", "5")][..]),
        ] {
            let d = demand(name, settings, 1 << 24);
            d.validate().unwrap_or_else(|e| panic!("{name} {settings:?}: {e}"));
            assert_eq!(d.local_share, 0.25);
            let remote = demand(name, &[settings, &[("remote", "true")]].concat(), 1 << 24);
            remote.validate().unwrap_or_else(|e| panic!("{name} {settings:?}: {e}"));
            let all = |class: &TxnClass| Some(Elsewhere { reads: class.reads, writes: class.writes });
            assert!(remote.classes.iter().all(|class| class.elsewhere == all(class)), "{:?}", remote.classes);
            assert_eq!(remote.local_share, 0.0);
        }
    }

    #[test]
    fn tpc_workloads_are_ones_the_model_takes_and_know_what_is_remote() {
        const SIZES: &[(&str, &str)] =
            &[("items", "1000"), ("customers_per_district", "30"), ("orders_per_district", "30")];
        let no = demand("tpcc-no", SIZES, 1 << 20);
        let whole = demand("tpcc", SIZES, 1 << 20);
        let position = demand("tpce-cp", &[("customers_per_load_unit", "100")], 1 << 20);
        for d in [&no, &whole, &position] {
            d.validate().unwrap_or_else(|e| panic!("{}: {e}", d.name));
        }
        // Ten stocks of 23 records; of the whole mix's far less, since few lines and payments go elsewhere.
        let new_order = &no.classes[0];
        assert_eq!(
            (no.classes.len(), new_order.reads, new_order.writes, new_order.inserts),
            (1, 12.0, 11.0, 13.0)
        );
        assert!((no.local_share - 13.0 / 23.0).abs() < 1e-9, "{}", no.local_share);
        assert_eq!(new_order.elsewhere, Some(Elsewhere { reads: 0.0, writes: 10.0 }));
        // Fewer items are met again more often.
        let level = |items: &str| {
            let sizes = [("items", items), ("customers_per_district", "30"), ("orders_per_district", "30")];
            demand("tpcc", &sizes, 1 << 20).classes[4].reads
        };
        assert!(level("100") < 301.0 && level("100000") > 380.0, "{} {}", level("100"), level("100000"));
        assert!(whole.classes.len() == 5 && whole.local_share > 0.98, "{}", whole.local_share);
        assert!(no.payload_bytes > 128 && no.payload_bytes < 328, "{}", no.payload_bytes);
        // Nearly half of what customer-position reads are prices, three of four elsewhere.
        assert!((0.6..0.75).contains(&position.local_share), "{}", position.local_share);
        assert_eq!((position.classes.len(), position.writes()), (1, 0.0));
        assert_eq!(demand("tpce-cp", &[("market_feed", "1")], 1 << 20).classes.len(), 2);
    }

    #[test]
    fn smallbank_averages_follow_the_mix() {
        let d = demand("smallbank", &[], 1 << 30);
        // 15 % × 3 + 15 % × 1 + 25 % × 2 + 15 % × 1 + 15 % × 1.
        assert!((d.writes() - 1.4).abs() < 1e-9);
        assert_eq!(d.bands.len(), 2);
        // A hundred words for each record: one in two hundred meets another's word.
        assert!((0.995..1.0).contains(&d.cache_hit_share), "{}", d.cache_hit_share);
        assert!((d.bands[0].records / (d.bands[0].records + d.bands[1].records) - 0.04).abs() < 1e-6);
    }

    #[test]
    fn a_small_cache_knows_what_was_asked_for_last() {
        // 8 threads of 100 000 accounts in two tables, three of four elsewhere: 48 000 hot records, as many words as those, and
        // the rest come in between. Without them it would be 1 − 1/e.
        let d = demand("smallbank", &[], 48_000 * 8);
        let alone = 1.0 - (-1.0f64).exp();
        assert!((0.9 * 0.9 * alone..0.9 * alone).contains(&d.cache_hit_share), "{}", d.cache_hit_share);
        let larger = demand("smallbank", &[], 72_000 * 8);
        assert!(larger.cache_hit_share > d.cache_hit_share + 0.05, "{}", larger.cache_hit_share);
        // All alike: a word has one of the records that share it, each as likely.
        for load in [0.1, 1.0, 8.0] {
            let got = hit_share(&[Sought { records: 1000.0 * load, share: 1.0 }], 8 * 1000);
            let expected = (1.0 - (-load).exp()) / load;
            assert!((got - expected).abs() < 1e-4, "{load}: {got}, not {expected}");
        }
    }

    #[test]
    fn hits_are_those_of_a_cache_in_use() {
        use phases::store::{LocationCache, TableId};
        use rand::{RngExt, SeedableRng};
        // Kinds of records, each a table: a few hot ones, many, and some that nobody looks for.
        const KINDS: [(u64, f64); 4] = [(10, 0.3), (200, 0.3), (3_000, 0.4), (5_000, 0.0)];
        const LOOKUPS: usize = 400_000;
        let rng = &mut rand_xoshiro::Xoshiro256PlusPlus::seed_from_u64(1);
        for words in [50usize, 300, 1_000, 5_000, 50_000] {
            let cache = LocationCache::new(8 * words);
            for key in 0..5_000 {
                cache.fill_free(TableId(3), key, 64 + key * 64);
            }
            let mut hits = 0;
            for n in 0..2 * LOOKUPS {
                let mut dice: f64 = rng.random();
                let mut kind = 0;
                while dice >= KINDS[kind].1 {
                    dice -= KINDS[kind].1;
                    kind = (kind + 1) % KINDS.len();
                }
                let (table, key) = (TableId(kind as u16), rng.random_range(0..KINDS[kind].0));
                let place = 64 + key * 64;
                if cache.lookup(table, key) == Some(place) {
                    hits += usize::from(n >= LOOKUPS);
                } else {
                    cache.fill(table, key, place);
                }
            }
            let sought = KINDS.map(|(records, share)| Sought { records: records as f64, share });
            let (got, said) = (hits as f64 / LOOKUPS as f64, hit_share(&sought, 8 * words));
            // Which of the few hot records share a word is this cache's luck.
            assert!((got - said).abs() < 0.02, "{words} words: {got}, not {said}");
        }
    }
}
