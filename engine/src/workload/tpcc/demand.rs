//! TPC-C as the cost model sees it: the mean records of each transaction, where they are, and which are fought over.
//!
//! The model knows one size of payload and no scans: the payload is the mean over what crosses the wire, which is remote
//! records and the log of all that is written; a scanned row counts as a record read, which its owner looks at and
//! validation looks at again, and a page's leaves, one look for many rows, count for nothing. A record to be deleted counts as
//! one written: it is read, locked and logged like that.

use super::columns::{customer, district, history, item, order, order_line, stock, warehouse};
use super::queries::RECENT;
use super::size::DISTRICTS;
use super::{Kind, Tpcc, input::KINDS, table};
use crate::session::RetryPolicy;
use crate::workload::demand::Filling;
use crate::workload::{Scale, Workload as _};
use phases::model::{Band, Elsewhere, TxnClass, Workload as Demand};

/// Lines of an order, on average.
const LINES: f64 = 10.0;

/// Mean records of one kind of transaction.
#[derive(Clone, Copy, Debug)]
struct Means {
    reads: f64,
    writes: f64,
    /// Records created, always on the own node.
    inserts: f64,
    /// Of those read and of those written, on other nodes, and the bytes of both.
    remote: Elsewhere,
    remote_bytes: f64,
    /// Stocks among those on other nodes; the rest are customers.
    remote_stocks: f64,
    /// Bytes of the records written and created.
    written_bytes: f64,
    /// Accesses to warehouses and to districts.
    warehouses: f64,
    districts: f64,
}

impl Means {
    /// Of a transaction that only reads records of its own node.
    fn reading(reads: f64) -> Means {
        Means {
            reads,
            writes: 0.0,
            inserts: 0.0,
            remote: Elsewhere { reads: 0.0, writes: 0.0 },
            remote_bytes: 0.0,
            remote_stocks: 0.0,
            written_bytes: 0.0,
            warehouses: 0.0,
            districts: 0.0,
        }
    }
}

impl Tpcc {
    /// Share of the accesses to other warehouses that are to another node.
    fn other_node(&self) -> f64 {
        let others = self.size.warehouses.saturating_sub(1).max(1);
        if self.mix.always_distributed { 1.0 } else { self.size.elsewhere(0) as f64 / others as f64 }
    }

    fn means(&self, kind: Kind) -> Means {
        let bytes = |words: usize| 8.0 * words as f64;
        let names = self.mix.by_last_name_share * self.size.customers as f64 / self.size.last_names() as f64;
        match kind {
            Kind::NewOrder => {
                let asked = LINES * self.mix.remote_item_share;
                let remote = if self.mix.always_distributed { asked.max(1.0) } else { asked };
                let remote = remote * self.other_node();
                let lines = bytes(stock::WORDS) + bytes(order_line::WORDS);
                Means {
                    // The district and the stocks; the order, its entries in two lists, and its lines are new.
                    writes: 1.0 + LINES,
                    inserts: 3.0 + LINES,
                    remote: Elsewhere { reads: 0.0, writes: remote },
                    remote_bytes: remote * bytes(stock::WORDS),
                    remote_stocks: remote,
                    written_bytes: bytes(district::WORDS + order::WORDS + 2) + LINES * lines,
                    warehouses: 1.0,
                    districts: 1.0,
                    ..Means::reading(2.0 + LINES)
                }
            }
            Kind::Payment => {
                let elsewhere = self.mix.remote_payment_share * self.other_node();
                let fixed = warehouse::WORDS + district::WORDS + customer::WORDS + history::WORDS;
                Means {
                    writes: 3.0,
                    inserts: 1.0,
                    remote: Elsewhere { reads: elsewhere * names, writes: elsewhere },
                    remote_bytes: elsewhere * (bytes(customer::WORDS) + 8.0 * names),
                    written_bytes: bytes(fixed),
                    warehouses: 1.0,
                    districts: 1.0,
                    ..Means::reading(names)
                }
            }
            Kind::OrderStatus => Means::reading(names + 3.0 + LINES),
            Kind::Delivery => {
                let each = bytes(1 + order::WORDS + customer::WORDS) + LINES * bytes(order_line::WORDS);
                let writes = DISTRICTS as f64 * (3.0 + LINES);
                Means { writes, written_bytes: DISTRICTS as f64 * each, ..Means::reading(0.0) }
            }
            Kind::StockLevel => {
                let lines = RECENT as f64 * LINES;
                let items = self.population.draws.items.different(lines);
                Means { districts: 1.0, ..Means::reading(1.0 + lines + items) }
            }
        }
    }

    /// The workload as the cost model sees it.
    pub(in crate::workload) fn demand(
        &self,
        scale: Scale,
        cache_bytes: usize,
        retry: &RetryPolicy,
    ) -> Demand {
        let kinds = KINDS.iter().filter(|(_, kind)| self.weight(*kind) > 0);
        let kinds: Vec<(TxnClass, Means)> = kinds
            .map(|&(name, kind)| {
                let (share, means) = (self.weight(kind) as f64 / self.mix.total as f64, self.means(kind));
                let class = TxnClass {
                    inserts: means.inserts,
                    elsewhere: Some(means.remote),
                    ..TxnClass::new(name, share, means.reads, means.writes)
                };
                (class, means)
            })
            .collect();
        let mean = |of: fn(&Means) -> f64| kinds.iter().map(|(class, m)| class.share * of(m)).sum::<f64>();
        let all = mean(|m| m.reads + m.writes);
        let remote = mean(|m| m.remote.reads + m.remote.writes);
        let logged = mean(|m| m.writes + m.inserts);
        let moved = mean(|m| m.remote_bytes + m.written_bytes);
        let payload =
            if remote + logged > 0.0 { moved / (remote + logged) } else { 8.0 * item::WORDS as f64 };
        let warehouses = self.size.warehouses as f64;
        let (to_warehouses, to_districts) = (mean(|m| m.warehouses) / all, mean(|m| m.districts) / all);
        // The rest is spread over stocks, customers and records of its own.
        let rest = warehouses * (self.size.items + DISTRICTS * self.size.customers) as f64;
        let bands = [
            Band { records: warehouses, share: to_warehouses },
            Band { records: warehouses * DISTRICTS as f64, share: to_districts },
            Band { records: rest, share: 1.0 - to_warehouses - to_districts },
        ];
        // Keys of all tables are offered to the cache in turn; only stocks and customers are looked for elsewhere.
        let nodes = f64::from(scale.nodes.max(1));
        let elsewhere = 1.0 - 1.0 / nodes;
        let tables: Vec<f64> = self.tables().iter().map(|table| table.records as f64 * elsewhere).collect();
        let known = Filling::new(cache_bytes).offer_in_turn(&tables);
        let stocks = if remote > 0.0 { mean(|m| m.remote_stocks) / remote } else { 1.0 };
        let hits =
            stocks * known[usize::from(table::STOCK)] + (1.0 - stocks) * known[usize::from(table::CUSTOMER)];
        Demand {
            name: self.name.to_owned(),
            classes: kinds.into_iter().map(|(class, _)| class).collect(),
            payload_bytes: payload.round() as u32,
            local_share: if scale.nodes == 1 { 1.0 } else { 1.0 - remote / all },
            cache_hit_share: if scale.nodes < 2 { 1.0 } else { hits.min(1.0) },
            bands: bands.into(),
            reads_ahead: self.together,
            backoff_ns: retry.first.0 as f64 / 2.0,
            backoff_doublings: retry.doublings(),
        }
    }
}
