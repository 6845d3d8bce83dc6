//! Customer-position as the cost model sees it: reads, of which the prices are elsewhere.

use super::{CustomerPosition, FEED, columns, table};
use crate::session::RetryPolicy;
use crate::workload::demand::Filling;
use crate::workload::{Scale, Workload as _};
use phases::model::{Band, TxnClass, Workload as Demand};

/// Accounts of a customer, by the driver's choice of customers, and securities of an account, on average.
const ACCOUNTS: f64 = 5.5;
const HOLDINGS: f64 = 10.0;
/// Records of an account's history: ten trades, their changes of status, and what those are called.
const HISTORY: f64 = 38.0;

impl CustomerPosition {
    /// The workload as the cost model sees it. Scanned rows count as records read.
    pub(in crate::workload) fn demand(
        &self,
        scale: Scale,
        cache_bytes: usize,
        retry: &RetryPolicy,
    ) -> Demand {
        let (positions, feeds) = (self.weights.0 as f64, self.weights.1 as f64);
        let elsewhere = 1.0 - 1.0 / f64::from(scale.nodes.max(1));
        let prices = ACCOUNTS * HOLDINGS;
        let own = 1.0 + self.by_tax_share + ACCOUNTS + prices + self.history_share * HISTORY;
        let class = |name: &str, weight: f64, reads, writes| {
            TxnClass::new(name, weight / (positions + feeds), reads, writes)
        };
        let classes = [
            class("customer_position", positions, own + prices, 0.0),
            class("market_feed", feeds, 0.0, FEED as f64),
        ];
        let all: f64 = classes.iter().map(|c| c.share * (c.reads + c.writes)).sum();
        let [position, feed] = &classes;
        let own_elsewhere = if self.local { 0.0 } else { elsewhere * own };
        let remote =
            position.share * (elsewhere * prices + own_elsewhere) + feed.share * elsewhere * FEED as f64;
        let of_prices = (position.share * prices + feed.share * FEED as f64) / all;
        let securities = self.population.securities() as f64;
        let others = self.population.customers as f64 * prices;
        let bands = [
            Band { records: securities, share: of_prices },
            Band { records: others, share: 1.0 - of_prices },
        ];
        let remote_bands = [
            Band { records: securities, share: elsewhere * of_prices },
            Band { records: others, share: if self.local { 0.0 } else { elsewhere * (1.0 - of_prices) } },
        ];
        let shares: f64 = remote_bands.iter().map(|b| b.share).sum();
        // Keys of all tables are offered in turn; which of the others a key is of does not matter here.
        let tables: Vec<f64> = self.tables().iter().map(|table| table.records as f64 * elsewhere).collect();
        let known = Filling::new(cache_bytes).offer_in_turn(&tables);
        let of_prices = usize::from(table::LAST_TRADE);
        let rest = tables.iter().zip(&known).enumerate().filter(|(at, _)| *at != of_prices);
        let (records, covered) =
            rest.fold((0.0, 0.0), |(n, c), (_, (records, known))| (n + records, c + records * known));
        let hits = remote_bands[0].share * known[of_prices]
            + remote_bands[1].share * if records > 0.0 { covered / records } else { 1.0 };
        Demand {
            name: "tpce-cp".to_owned(),
            classes: classes.into_iter().filter(|c| c.share > 0.0).collect(),
            payload_bytes: 8 * columns::last_trade::WORDS as u32,
            local_share: (1.0 - remote / all).clamp(0.0, 1.0),
            cache_hit_share: if shares > 0.0 { (hits / shares).min(1.0) } else { 1.0 },
            bands: bands.into(),
            reads_ahead: true,
            backoff_ns: retry.first.0 as f64 / 2.0,
            backoff_doublings: retry.doublings(),
        }
    }
}
