//! TPC-C as the cost model sees it: the mean records of each transaction, where they are, and which are fought over.
//!
//! The model knows one size of payload and no scans: the payload is the mean over what crosses the wire, which is remote
//! records and the log of all that is written; a scanned row counts as a record read, which its owner looks at and
//! validation looks at again, and a page's leaves, one look for many rows, count for nothing. A record to be deleted counts as
//! one written: it is read, locked and logged like that.

use super::columns::{customer, district, history, item, order, order_line, stock, warehouse};
use super::queries::RECENT;
use super::size::DISTRICTS;
use super::{Kind, Tpcc, input::KINDS};
use crate::session::RetryPolicy;
use crate::workload::demand::{Sought, hit_share};
use crate::workload::{Scale, Workload as _};
use phases::model::{AtHome, Band, Elsewhere, TxnClass, Workload as Demand};

/// Lines of an order, on average.
const LINES: f64 = 10.0;

/// Mean records of one kind of transaction.
#[derive(Clone, Copy, Debug)]
struct Means {
    reads: f64,
    writes: f64,
    /// Records created, always on the own node.
    inserts: f64,
    /// Of those written and created, in tables that are kept at home.
    at_home: AtHome,
    /// Of those read and of those written, on other nodes, and the bytes of both.
    remote: Elsewhere,
    remote_bytes: f64,
    /// Stocks among those on other nodes; the rest are customers.
    remote_stocks: f64,
    /// Bytes of the records written and created.
    written_bytes: f64,
    /// Accesses to warehouses, to districts and to stocks, and those among them that write.
    warehouses: Asked,
    districts: Asked,
    stocks: Asked,
}

/// Accesses to one table.
#[derive(Clone, Copy, Debug, Default)]
struct Asked {
    all: f64,
    writes: f64,
}

impl Asked {
    fn reads(all: f64) -> Asked {
        Asked { all, writes: 0.0 }
    }

    fn writes(all: f64) -> Asked {
        Asked { all, writes: all }
    }
}

impl Means {
    /// Of a transaction that only reads records of its own node.
    fn reading(reads: f64) -> Means {
        Means {
            reads,
            writes: 0.0,
            inserts: 0.0,
            at_home: AtHome::default(),
            remote: Elsewhere { reads: 0.0, writes: 0.0 },
            remote_bytes: 0.0,
            remote_stocks: 0.0,
            written_bytes: 0.0,
            warehouses: Asked::default(),
            districts: Asked::default(),
            stocks: Asked::default(),
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
        let customers_home = f64::from(u8::from(self.customers_at_home));
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
                    at_home: AtHome { writes: 1.0, inserts: 3.0 + LINES },
                    remote: Elsewhere { reads: 0.0, writes: remote },
                    remote_bytes: remote * bytes(stock::WORDS),
                    remote_stocks: remote,
                    written_bytes: bytes(district::WORDS + order::WORDS + 2) + LINES * lines,
                    warehouses: Asked::reads(1.0),
                    districts: Asked::writes(1.0),
                    stocks: Asked::writes(LINES),
                    ..Means::reading(2.0 + LINES)
                }
            }
            Kind::Payment => {
                let elsewhere = self.mix.remote_payment_share * self.other_node();
                let fixed = warehouse::WORDS + district::WORDS + customer::WORDS + history::WORDS;
                Means {
                    writes: 3.0,
                    inserts: 1.0,
                    at_home: AtHome { writes: 2.0 + customers_home * (1.0 - elsewhere), inserts: 0.0 },
                    remote: Elsewhere { reads: elsewhere * names, writes: elsewhere },
                    remote_bytes: elsewhere * (bytes(customer::WORDS) + 8.0 * names),
                    written_bytes: bytes(fixed),
                    warehouses: Asked::writes(1.0),
                    districts: Asked::writes(1.0),
                    ..Means::reading(names)
                }
            }
            Kind::OrderStatus => Means::reading(names + 3.0 + LINES),
            Kind::Delivery => {
                let each = bytes(1 + order::WORDS + customer::WORDS) + LINES * bytes(order_line::WORDS);
                let writes = DISTRICTS as f64 * (3.0 + LINES);
                let here = writes - DISTRICTS as f64 * (1.0 - customers_home);
                let at_home = AtHome { writes: here, inserts: 0.0 };
                Means { writes, at_home, written_bytes: DISTRICTS as f64 * each, ..Means::reading(0.0) }
            }
            Kind::StockLevel => {
                let lines = RECENT as f64 * LINES;
                let items = self.population.draws.items.different(lines);
                Means {
                    districts: Asked::reads(1.0),
                    stocks: Asked::reads(items),
                    ..Means::reading(1.0 + lines + items)
                }
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
                let class = TxnClass {
                    inserts: means.inserts,
                    at_home: if self.home_tables() == 0 { AtHome::default() } else { means.at_home },
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
        let customers = warehouses * (DISTRICTS * self.size.customers) as f64;
        let written = mean(|m| m.writes);
        let band = |records: f64, all: f64, writes: f64, parts: f64| Band {
            records,
            share: all,
            writes: Some(if written > 0.0 { writes / written } else { 0.0 }),
            parts,
        };
        let shares = |asked: &dyn Fn(&Means) -> Asked| {
            let sum = |of: &dyn Fn(Asked) -> f64| {
                kinds.iter().map(|(class, m)| class.share * of(asked(m))).sum::<f64>()
            };
            (sum(&|a| a.all) / all, sum(&|a| a.writes))
        };
        let (to_warehouses, to_districts) = (shares(&|m| m.warehouses), shares(&|m| m.districts));
        let to_stocks = shares(&|m| m.stocks);
        // Terminals keep to warehouses of their node, if it has any: as many groups of them as there are warehouses or workers.
        let homes = if self.size.warehouses < self.size.nodes {
            1.0
        } else {
            self.size.warehouses.min(self.size.nodes * self.size.workers) as f64
        };
        let mut bands = vec![
            band(warehouses, to_warehouses.0, to_warehouses.1, homes),
            band(warehouses * DISTRICTS as f64, to_districts.0, to_districts.1, homes),
        ];
        // Some items are ordered far more often than others.
        let popular = self.population.draws.items.bands();
        bands.extend(
            popular.iter().map(|(items, share)| {
                band(warehouses * items, to_stocks.0 * share, to_stocks.1 * share, 1.0)
            }),
        );
        // The rest is spread over customers and records of their orders.
        let lines = LINES * warehouses * (DISTRICTS * self.size.orders) as f64;
        let named = [to_warehouses, to_districts, to_stocks];
        let (rest, rest_written) = named.iter().fold((1.0, written), |rest, n| (rest.0 - n.0, rest.1 - n.1));
        bands.push(band(customers + lines, rest.max(0.0), rest_written.max(0.0), 1.0));
        // Only stocks and customers are looked for elsewhere.
        let nodes = f64::from(scale.nodes.max(1));
        let elsewhere = 1.0 - 1.0 / nodes;
        let stocks = if remote > 0.0 { mean(|m| m.remote_stocks) / remote } else { 1.0 };
        let mut sought: Vec<Sought> = popular
            .iter()
            .map(|(items, share)| Sought { records: warehouses * items * elsewhere, share: stocks * share })
            .collect();
        sought.push(Sought { records: customers * elsewhere, share: 1.0 - stocks });
        Demand {
            name: self.name.to_owned(),
            classes: kinds.into_iter().map(|(class, _)| class).collect(),
            payload_bytes: payload.round() as u32,
            tables: self.tables().len() as u32,
            local_share: if scale.nodes == 1 { 1.0 } else { 1.0 - remote / all },
            cache_hit_share: if scale.nodes < 2 { 1.0 } else { hit_share(&sought, cache_bytes) },
            bands,
            reads_ahead: self.together,
            backoff_ns: retry.first.0 as f64 / 2.0,
            backoff_doublings: retry.doublings(),
        }
    }
}
