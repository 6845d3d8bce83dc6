//! From a workload to the averages that the cost model is told ([`phases::model::Workload`]).
//!
//! Nothing here is measured: the mix, the records each kind of transaction touches and the key distribution are the
//! workload's own definition. The location cache is taken to be warm, as a run finds it, and to stay so: what misses
//! bring into it later is left out.

use super::keys::KeyDist;
use super::{AnyWorkload, Scale};
use crate::session::RetryPolicy;
use phases::model::{Band, TxnClass, Workload as Demand};

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
}

pub(super) fn classes_of(classes: impl IntoIterator<Item = TxnClass>) -> Vec<TxnClass> {
    classes.into_iter().collect()
}

/// Where accesses go: records of the band over all tables, and its share of the accesses.
fn bands(keys: &KeyDist, tables: u64) -> Vec<Band> {
    let band = |keys: u64, share: f64| Band { records: (keys * tables) as f64, share };
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

/// A location cache of a node as it is filled before a run: keys that other nodes hold are offered one after the other until as
/// many were offered as there are words, and each takes the word that its hash names if that is free. Of `n` keys offered to
/// `m` words of which a share `f` is free, so `m f (1 − e^(−n/m))` find room.
pub(super) struct Filling {
    words: f64,
    /// Keys that may still be offered.
    left: f64,
    /// Share of the words that are free.
    free: f64,
}

impl Filling {
    pub(super) fn new(cache_bytes: usize) -> Filling {
        // An entry is one word, and there is at least one.
        let words = (cache_bytes / 8).max(1) as f64;
        Filling { words, left: words, free: 1.0 }
    }

    /// Offers `records`; the share of them that the cache then knows.
    pub(super) fn offer(&mut self, records: f64) -> f64 {
        let offered = records.min(self.left);
        if offered <= 0.0 {
            return 0.0;
        }
        self.left -= offered;
        let still = self.free * (-offered / self.words).exp();
        let taken = (self.free - still) * self.words;
        self.free = still;
        (taken / records).min(1.0)
    }

    /// Offers several tables' records in turn, one of each, as long as each has any; the shares of each that are known.
    pub(super) fn offer_in_turn(&mut self, tables: &[f64]) -> Vec<f64> {
        let mut known = vec![0.0; tables.len()];
        let mut left = tables.to_vec();
        loop {
            let live: Vec<usize> = (0..tables.len()).filter(|&t| left[t] > 0.0).collect();
            let least = live.iter().map(|&t| left[t]).fold(f64::INFINITY, f64::min);
            if live.is_empty() || self.left <= 0.0 {
                return known;
            }
            // Rounds until the shortest table is through: all of them are alike.
            let round = least * live.len() as f64;
            let share = self.offer(round);
            for table in live {
                known[table] += share * least / tables[table];
                left[table] -= least;
            }
        }
    }
}

/// Share of accesses to other nodes' records whose location a warm cache of `cache_bytes` knows; bands are offered in their order,
/// and `elsewhere` is the share of records that other nodes hold.
pub(super) fn hit_share(bands: &[Band], elsewhere: f64, cache_bytes: usize) -> f64 {
    let mut filling = Filling::new(cache_bytes);
    let hits: f64 = bands.iter().map(|band| band.share * filling.offer(band.records * elsewhere)).sum();
    hits.min(1.0)
}

impl AnyWorkload {
    /// The workload as the cost model sees it, on a cluster of `scale` whose nodes cache `cache_bytes` of locations.
    pub fn demand(&self, scale: Scale, cache_bytes: usize, retry: &RetryPolicy) -> Demand {
        let shape = match self {
            AnyWorkload::SmallBank(w) => w.shape(),
            AnyWorkload::Micro(w) => w.shape(),
            AnyWorkload::Tpcc(w) => return w.demand(scale, cache_bytes, retry),
            AnyWorkload::CustomerPosition(w) => return w.demand(scale, cache_bytes, retry),
            AnyWorkload::Ycsb(w) => w.shape(),
        };
        let bands = bands(&shape.keys, shape.tables);
        let nodes = f64::from(scale.nodes.max(1));
        let cache_hit_share =
            if scale.nodes < 2 { 1.0 } else { hit_share(&bands, 1.0 - 1.0 / nodes, cache_bytes) };
        Demand {
            name: self.name().to_owned(),
            classes: shape.classes,
            payload_bytes: shape.payload_bytes,
            local_share: 1.0 / f64::from(scale.nodes.max(1)),
            cache_hit_share,
            bands,
            reads_ahead: shape.reads_ahead,
            // The first wait is uniform below its limit.
            backoff_ns: retry.first.0 as f64 / 2.0,
            backoff_doublings: retry.doublings(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use phases::model::Elsewhere;

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
    fn a_small_cache_knows_the_hot_records_first() {
        // 8 threads of 100 000 accounts in two tables: 64 000 hot records, three of four elsewhere. As many words as those: all
        // are offered, and 1 − 1/e of them find room.
        let d = demand("smallbank", &[], 48_000 * 8);
        let covered = 1.0 - (-1.0f64).exp();
        assert!((d.cache_hit_share - 0.9 * covered).abs() < 1e-9, "{}", d.cache_hit_share);
        // Half as many again go to the rest.
        let d = demand("smallbank", &[], 72_000 * 8);
        let hot = 1.5 * (1.0 - (-1.0 / 1.5f64).exp());
        let rest = 1.5 * ((-1.0 / 1.5f64).exp() - (-1.0f64).exp()) / 24.0;
        assert!((d.cache_hit_share - 0.9 * hot - 0.1 * rest).abs() < 1e-9, "{}", d.cache_hit_share);
    }

    #[test]
    fn fillings_are_those_of_a_cache() {
        use phases::store::{LocationCache, TableId};
        // Three tables of different length, one key of each in turn, until as many were offered as there are words.
        const TABLES: [u64; 3] = [100, 700, 3_000];
        for words in [200u64, 1_000, 3_000, 20_000] {
            let cache = LocationCache::new(8 * words as usize);
            let (mut left, mut nth) = (words, 0);
            while left > 0 && nth < 3_000 {
                for (table, &records) in TABLES.iter().enumerate() {
                    if nth < records && left > 0 {
                        cache.fill_free(TableId(table as u16), nth, 64 + nth * 64);
                        left -= 1;
                    }
                }
                nth += 1;
            }
            let mut filling = Filling::new(8 * words as usize);
            let known = filling.offer_in_turn(&TABLES.map(|n| n as f64));
            for (table, &records) in TABLES.iter().enumerate() {
                let knows = |&key: &u64| cache.lookup(TableId(table as u16), key) == Some(64 + key * 64);
                let count = (0..records).filter(knows).count() as f64;
                let (got, said) = (count / records as f64, known[table]);
                // Four standard deviations of a count.
                let spread = 4.0 * (said * (1.0 - said) / records as f64).sqrt() + 1e-3;
                assert!((got - said).abs() < spread, "{words} words, table {table}: {got}, not {said}");
            }
            let one = hit_share(&[Band { records: 3_000.0, share: 1.0 }], 1.0, 8 * words as usize);
            let cache = LocationCache::new(8 * words as usize);
            (0..words.min(3_000)).for_each(|key| cache.fill_free(TableId(0), key, 64 + key * 64));
            let count = (0..3_000u64).filter(|&key| cache.lookup(TableId(0), key).is_some()).count();
            assert!((count as f64 / 3_000.0 - one).abs() < 0.04, "{words}: {count} of 3000, not {one}");
        }
    }
}
