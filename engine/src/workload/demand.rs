//! From a workload to the averages that the cost model is told ([`phases::model::Workload`]).
//!
//! Nothing here is measured: the mix, the records each kind of transaction touches and the key distribution are the
//! workload's own definition. The location cache is taken to be warm, so its hit share is how much of the accesses
//! its entries can cover.

use super::keys::KeyDist;
use super::{AnyWorkload, Scale};
use crate::session::RetryPolicy;
use phases::model::{Band, TxnClass, Workload as Demand};

/// Bands that stand for a zipfian distribution: one per factor of ten in rank.
const DECADE: u64 = 10;

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
                let to = (from.max(1) * DECADE).min(zipfian.keys());
                let share = zipfian.share_of_first(to);
                bands.push(band(to - from, share - below));
                (from, below) = (to, share);
            }
            bands
        }
    }
}

/// Share of accesses whose location a warm cache of `entries` knows: the hottest records first.
pub(super) fn hit_share(bands: &[Band], entries: f64) -> f64 {
    let mut left = entries;
    let mut hits = 0.0;
    for band in bands {
        let covered = (left / band.records).min(1.0);
        hits += band.share * covered;
        left = (left - band.records).max(0.0);
    }
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
        // An entry is one word; each node caches locations of all nodes' records.
        let cache_hit_share = hit_share(&bands, cache_bytes as f64 / 8.0);
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
        }
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
        // Ten stocks of 36 records; of the whole mix's far less, since few lines and payments go elsewhere.
        assert_eq!((no.classes.len(), no.classes[0].reads, no.classes[0].writes), (1, 12.0, 24.0));
        assert!((no.local_share - 26.0 / 36.0).abs() < 1e-9, "{}", no.local_share);
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
        assert_eq!((d.bands.len(), d.cache_hit_share), (2, 1.0));
        assert!((d.bands[0].records / (d.bands[0].records + d.bands[1].records) - 0.04).abs() < 1e-6);
    }

    #[test]
    fn a_small_cache_covers_the_hot_records_first() {
        // 8 threads of 100 000 accounts in two tables: 64 000 hot records.
        let d = demand("smallbank", &[], 64_000 * 8);
        assert!((d.cache_hit_share - 0.9).abs() < 1e-9, "{}", d.cache_hit_share);
    }
}
