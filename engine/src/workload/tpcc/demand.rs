//! TPC-C as the cost model sees it: the mean records of each transaction, where they are, and which are fought over.
//!
//! The model knows one size of payload, one share of local accesses for reads and writes alike, and no inserts, scans or
//! deletes. So an insert and a delete count as a record written, a scanned row as a record read; the payload is the
//! mean over what crosses the wire, which is remote records and the log of all that is written. With most reads local
//! and most remote records written, as here, validation is taken to ask other nodes more than it does.

use super::columns::{customer, district, history, item, order, order_line, stock, warehouse};
use super::size::DISTRICTS;
use super::{Kind, Tpcc, input::KINDS};
use crate::session::RetryPolicy;
use crate::workload::Scale;
use crate::workload::demand::hit_share;
use phases::model::{Band, TxnClass, Workload as Demand};

/// Lines of an order, on average.
const LINES: f64 = 10.0;
/// Different items in 20 orders.
const RECENT_ITEMS: f64 = 190.0;

/// Mean records of one kind of transaction.
#[derive(Clone, Copy, Debug, Default)]
struct Means {
    reads: f64,
    writes: f64,
    /// Of either, on other nodes, and their bytes.
    remote: f64,
    remote_bytes: f64,
    /// Bytes of the records written.
    written_bytes: f64,
    /// Accesses to warehouses and to districts.
    warehouses: f64,
    districts: f64,
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
                    reads: 2.0 + LINES,
                    writes: 4.0 + 2.0 * LINES,
                    remote,
                    remote_bytes: remote * bytes(stock::WORDS),
                    written_bytes: bytes(district::WORDS + order::WORDS + 2) + LINES * lines,
                    warehouses: 1.0,
                    districts: 1.0,
                }
            }
            Kind::Payment => {
                let elsewhere = self.mix.remote_payment_share * self.other_node();
                let fixed = warehouse::WORDS + district::WORDS + customer::WORDS + history::WORDS;
                Means {
                    reads: names,
                    writes: 4.0,
                    remote: elsewhere * (1.0 + names),
                    remote_bytes: elsewhere * (bytes(customer::WORDS) + 8.0 * names),
                    written_bytes: bytes(fixed),
                    warehouses: 1.0,
                    districts: 1.0,
                }
            }
            Kind::OrderStatus => Means { reads: names + 3.0 + LINES, ..Means::default() },
            Kind::Delivery => {
                let each = bytes(1 + order::WORDS + customer::WORDS) + LINES * bytes(order_line::WORDS);
                let writes = DISTRICTS as f64 * (3.0 + LINES);
                Means { writes, written_bytes: DISTRICTS as f64 * each, ..Means::default() }
            }
            Kind::StockLevel => {
                Means { reads: 1.0 + 20.0 * LINES + RECENT_ITEMS, districts: 1.0, ..Means::default() }
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
        let kinds = KINDS.iter().filter(|(_, kind)| self.mix.kinds.weight(*kind) > 0);
        let kinds: Vec<(TxnClass, Means)> = kinds
            .map(|&(name, kind)| {
                let (share, means) = (self.mix.kinds.share(kind), self.means(kind));
                let Means { reads, writes, .. } = means;
                (TxnClass { name: name.to_owned(), share, reads, writes, think_ns: 0.0 }, means)
            })
            .collect();
        let mean = |of: fn(&Means) -> f64| kinds.iter().map(|(class, m)| class.share * of(m)).sum::<f64>();
        let all = mean(|m| m.reads + m.writes);
        let (remote, writes) = (mean(|m| m.remote), mean(|m| m.writes));
        let moved = mean(|m| m.remote_bytes + m.written_bytes);
        let payload =
            if remote + writes > 0.0 { moved / (remote + writes) } else { 8.0 * item::WORDS as f64 };
        let warehouses = self.size.warehouses as f64;
        let (to_warehouses, to_districts) = (mean(|m| m.warehouses) / all, mean(|m| m.districts) / all);
        // The rest is spread over stocks, customers and records of its own.
        let rest = warehouses * (self.size.items + DISTRICTS * self.size.customers) as f64;
        let bands = [
            Band { records: warehouses, share: to_warehouses },
            Band { records: warehouses * DISTRICTS as f64, share: to_districts },
            Band { records: rest, share: 1.0 - to_warehouses - to_districts },
        ];
        // Only stocks and customers are looked for elsewhere.
        let nodes = f64::from(scale.nodes.max(1));
        let elsewhere = Band { records: (rest * (nodes - 1.0) / nodes).max(1.0), share: 1.0 };
        Demand {
            name: self.name.to_owned(),
            classes: kinds.into_iter().map(|(class, _)| class).collect(),
            payload_bytes: payload.round() as u32,
            local_share: if scale.nodes == 1 { 1.0 } else { 1.0 - remote / all },
            cache_hit_share: hit_share(&[elsewhere], cache_bytes as f64 / 8.0),
            bands: bands.into(),
            reads_ahead: self.together,
            backoff_ns: retry.first.0 as f64 / 2.0,
        }
    }
}
