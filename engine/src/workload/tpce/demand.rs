//! Customer-position as the cost model sees it: reads, of which the prices are elsewhere.

use super::input::{KINDS, Kind};
use super::{CustomerPosition, FEED, columns};
use crate::session::RetryPolicy;
use crate::workload::Scale;
use crate::workload::demand::{Lookups, Sought};
use phases::model::{Band, TxnClass, Workload as Demand};

/// Accounts of a customer, by the driver's choice of customers, and securities of an account, on average.
const ACCOUNTS: f64 = 5.5;
const HOLDINGS: f64 = 10.0;
/// Records of an account's history: ten trades, their changes of status, and what those are called.
const HISTORY: f64 = 38.0;

impl CustomerPosition {
    /// The workload as the cost model sees it where all lookups hit, and the lookups. Scanned rows count as records read.
    pub(in crate::workload) fn demand(&self, scale: Scale, retry: &RetryPolicy) -> (Demand, Lookups) {
        let elsewhere = 1.0 - 1.0 / f64::from(scale.nodes.max(1));
        let prices = ACCOUNTS * HOLDINGS;
        let own = 1.0 + self.by_tax_share + ACCOUNTS + prices + self.history_share * HISTORY;
        let class = |(name, kind): (&str, Kind), reads, writes| {
            TxnClass::new(name, self.mix.share(kind), reads, writes)
        };
        let classes = [class(KINDS[0], own + prices, 0.0), class(KINDS[1], 0.0, FEED as f64)];
        let all: f64 = classes.iter().map(|c| c.share * (c.reads + c.writes)).sum();
        let [position, feed] = &classes;
        let own_elsewhere = if self.local { 0.0 } else { elsewhere * own };
        let remote =
            position.share * (elsewhere * prices + own_elsewhere) + feed.share * elsewhere * FEED as f64;
        let of_prices = (position.share * prices + feed.share * FEED as f64) / all;
        let securities = self.population.securities() as f64;
        let others = self.population.customers as f64 * prices;
        let bands = [Band::new(securities, of_prices), Band::new(others, 1.0 - of_prices)];
        let remote_bands = [
            Band::new(securities, elsewhere * of_prices),
            Band::new(others, if self.local { 0.0 } else { elsewhere * (1.0 - of_prices) }),
        ];
        let sought = remote_bands.map(|b| Sought { records: b.records * elsewhere, share: b.share });
        let demand = Demand {
            name: "tpce-cp".to_owned(),
            classes: classes.into_iter().filter(|c| c.share > 0.0).collect(),
            payload_bytes: 8 * columns::last_trade::WORDS as u32,
            tables: 1,
            local_share: (1.0 - remote / all).clamp(0.0, 1.0),
            cache_hit_share: 1.0,
            bands: bands.into(),
            reads_ahead: true,
            backoff_ns: retry.first.0 as f64 / 2.0,
            backoff_doublings: retry.doublings(),
        };
        (demand, Lookups(sought.to_vec()))
    }
}
