//! Customer-position as the cost model sees it: reads, of which the prices are elsewhere, and come in steps.

use super::input::{KINDS, Kind};
use super::position::STEP;
use super::{CustomerPosition, FEED, columns};
use crate::session::RetryPolicy;
use crate::workload::Scale;
use crate::workload::demand::{Lookups, Sought};
use phases::model::{Asked, Band, Elsewhere, Ranges, TxnClass, Workload as Demand};
use phases::store::PAGE_ROWS;

/// Accounts of a customer, by the driver's choice of customers, and securities of an account, on average.
const ACCOUNTS: f64 = 5.5;
const HOLDINGS: f64 = 10.0;
/// Rows of an account's history: ten trades and their changes of status.
const HISTORY: f64 = 35.0;
/// What statuses are called, of those that come up.
const STATUSES: f64 = 3.0;
/// Ranges of a history: the trades, and each one's changes.
const HISTORY_RANGES: f64 = 11.0;

impl CustomerPosition {
    /// The workload as the cost model sees it where all lookups hit, and the lookups. Scanned rows count as records read.
    pub(in crate::workload) fn demand(&self, scale: Scale, retry: &RetryPolicy) -> (Demand, Lookups) {
        let elsewhere = 1.0 - 1.0 / f64::from(scale.nodes.max(1));
        let securities = self.population.securities() as f64;
        let holdings = ACCOUNTS * HOLDINGS;
        // Those of an account are different, those of several may be the same.
        let prices = securities * (1.0 - (1.0 - HOLDINGS / securities).max(0.0).powf(ACCOUNTS));
        let rows = ACCOUNTS + holdings + self.history_share * HISTORY;
        let own = 1.0 + self.by_tax_share + rows + self.history_share * STATUSES;
        // Rows of a customer elsewhere count as records like any other, though its owner sends them by the page.
        let here = if self.local { 1.0 } else { 1.0 - elsewhere };
        // A list ends anywhere in its last page or step.
        let parts = |rows: f64, most: usize| (rows / most as f64 + 0.5).max(1.0);
        let pages = 1.0 + parts(holdings, PAGE_ROWS) + self.history_share * HISTORY_RANGES;
        // Ranges of a table are looked at together.
        let checks = 2.0 + 2.0 * self.history_share;
        let class = |(name, kind): (&str, Kind), reads, writes| {
            TxnClass::new(name, self.mix.share(kind), reads, writes)
        };
        let away = elsewhere * prices + (1.0 - here) * own;
        let position = TxnClass {
            scanned: Asked { reads: here * rows, writes: 0.0 },
            ranges: Ranges { pages: here * pages, checks: here * checks },
            elsewhere: Some(Elsewhere { reads: away, writes: 0.0 }),
            steps: parts(holdings, STEP),
            ..class(KINDS[0], own + prices, 0.0)
        };
        let fed = elsewhere * FEED as f64;
        let feed = TxnClass {
            elsewhere: Some(Elsewhere { reads: 0.0, writes: fed }),
            ..class(KINDS[1], 0.0, FEED as f64)
        };
        let classes = [position, feed];
        let all: f64 = classes.iter().map(|c| c.share * (c.reads + c.writes)).sum();
        let [position, feed] = &classes;
        let remote = position.share * away + feed.share * fed;
        let of_prices = (position.share * prices + feed.share * FEED as f64) / all;
        let others = self.population.customers as f64 * holdings;
        let bands = [Band::new(securities, of_prices), Band::new(others, 1.0 - of_prices)];
        let remote_bands = [
            Band::new(securities, elsewhere * of_prices),
            Band::new(others, (1.0 - here) * (1.0 - of_prices)),
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
