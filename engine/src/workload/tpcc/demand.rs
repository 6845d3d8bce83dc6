//! TPC-C as the cost model sees it: the mean records of each transaction, where they are, and which are fought over.
//!
//! The model knows one size of payload and no scans: the payload is the mean over what crosses the wire, which is remote
//! records and the log of all that is written; a scanned row counts as a record read whose place is known, and validation looks at
//! it again; a page's leaves, one look for many rows, count for nothing. A record to be deleted counts as
//! one written: it is read, locked and logged like that.

use super::columns::{customer, district, history, item, order, order_line, stock, warehouse};
use super::queries::RECENT;
use super::size::DISTRICTS;
use super::{Kind, Tpcc, input::KINDS};
use crate::session::RetryPolicy;
use crate::workload::demand::{Lookups, Sought};
use crate::workload::{Scale, Workload as _};
use phases::model::{Asked, AtHome, Band, Elsewhere, Leg, TxnClass, Workload as Demand};

/// Lines of an order, on average.
const LINES: f64 = 10.0;

/// Mean records of one kind of transaction.
#[derive(Clone, Copy, Debug)]
struct Means {
    reads: f64,
    writes: f64,
    /// Records created, always on the own node.
    inserts: f64,
    /// Of those read and written, those that a range has told of, always there too.
    scanned: Asked,
    /// Of those written and created, in tables that are kept at home.
    at_home: AtHome,
    /// Of those read and of those written, on other nodes, and the bytes of both.
    remote: Elsewhere,
    remote_bytes: f64,
    /// Stocks among those on other nodes; the rest are customers.
    remote_stocks: f64,
    /// Steps in which it comes to its records.
    steps: f64,
    /// Bytes of the records written and created.
    written_bytes: f64,
    /// Accesses to warehouses, districts, customers, stocks, and to a warehouse's oldest new order, and those among them that write.
    /// And those to what else belongs to orders that are delivered: who has got the oldest of its warehouse has met all others who deliver
    /// there. Nobody is taken to be in the way of what is left: items and the index of names, which are never written, and orders and
    /// lines that are only read, which a delivery may be about to write.
    warehouses: Asked,
    districts: Asked,
    customers: Asked,
    stocks: Asked,
    oldest: Asked,
    delivered: Asked,
}

/// Accesses to one table that only read.
fn only_read(reads: f64) -> Asked {
    Asked { reads, writes: 0.0 }
}

/// Accesses to one table that all write.
fn written(writes: f64) -> Asked {
    Asked { reads: 0.0, writes }
}

/// Kinds of bands: each transaction has so many accesses to each of these tables, and the rest.
const WAREHOUSES: u32 = 0;
const OLDEST: u32 = 1;
const ITS_DISTRICTS: u32 = 2;
const CUSTOMERS: u32 = 3;
const STOCKS: u32 = 4;
const DELIVERED: u32 = 5;
const REST: u32 = 6;

impl Means {
    /// Accesses to each kind of band, in the order of their numbers.
    fn kinds(&self) -> Vec<Asked> {
        let named =
            [self.warehouses, self.oldest, self.districts, self.customers, self.stocks, self.delivered];
        let left = |all: f64, of: fn(&Asked) -> f64| (all - named.iter().map(of).sum::<f64>()).max(0.0);
        let rest = Asked { reads: left(self.reads, |n| n.reads), writes: left(self.writes, |n| n.writes) };
        named.into_iter().chain([rest]).collect()
    }

    /// Of a transaction that only reads records of its own node.
    fn reading(reads: f64) -> Means {
        Means {
            reads,
            writes: 0.0,
            inserts: 0.0,
            scanned: Asked::default(),
            at_home: AtHome::default(),
            remote: Elsewhere { reads: 0.0, writes: 0.0 },
            remote_bytes: 0.0,
            remote_stocks: 0.0,
            steps: 1.0,
            written_bytes: 0.0,
            warehouses: Asked::default(),
            districts: Asked::default(),
            customers: Asked::default(),
            stocks: Asked::default(),
            oldest: Asked::default(),
            delivered: Asked::default(),
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
        let told = |reads: f64, writes: f64| Asked { reads, writes };
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
                    at_home: AtHome { reads: 1.0 + customers_home, writes: 1.0, inserts: 3.0 + LINES },
                    remote: Elsewhere { reads: 0.0, writes: remote },
                    remote_bytes: remote * bytes(stock::WORDS),
                    remote_stocks: remote,
                    written_bytes: bytes(district::WORDS + order::WORDS + 2) + LINES * lines,
                    warehouses: only_read(1.0),
                    districts: written(1.0),
                    stocks: written(LINES),
                    customers: only_read(1.0),
                    ..Means::reading(2.0 + LINES)
                }
            }
            Kind::Payment => {
                let elsewhere = self.mix.remote_payment_share * self.other_node();
                let fixed = warehouse::WORDS + district::WORDS + customer::WORDS + history::WORDS;
                Means {
                    writes: 3.0,
                    inserts: 1.0,
                    at_home: AtHome { writes: 2.0 + customers_home * (1.0 - elsewhere), ..AtHome::default() },
                    remote: Elsewhere { reads: elsewhere * names, writes: elsewhere },
                    remote_bytes: elsewhere * (bytes(customer::WORDS) + 8.0 * names),
                    // Warehouse and district, then the customer.
                    steps: 2.0,
                    written_bytes: bytes(fixed),
                    warehouses: written(1.0),
                    districts: written(1.0),
                    customers: written(1.0),
                    scanned: told((1.0 - elsewhere) * names, 0.0),
                    ..Means::reading(names)
                }
            }
            // The customer, the entry in its list of orders, the order and its lines.
            Kind::OrderStatus => Means {
                // Customer, entry, order, lines.
                steps: 4.0,
                scanned: told(names + 1.0 + LINES, 0.0),
                at_home: AtHome { reads: 2.0 + LINES + customers_home, ..AtHome::default() },
                customers: only_read(1.0),
                ..Means::reading(names + 3.0 + LINES)
            },
            Kind::Delivery => {
                let each = bytes(1 + order::WORDS + customer::WORDS) + LINES * bytes(order_line::WORDS);
                let writes = DISTRICTS as f64 * (3.0 + LINES);
                let here = writes - DISTRICTS as f64 * (1.0 - customers_home);
                let at_home = AtHome { writes: here, ..AtHome::default() };
                // The entry in the list of new orders, and the lines.
                let scanned = told(0.0, DISTRICTS as f64 * (1.0 + LINES));
                Means {
                    writes,
                    scanned,
                    // The same of each district.
                    steps: 4.0 * DISTRICTS as f64,
                    at_home,
                    written_bytes: DISTRICTS as f64 * each,
                    customers: written(DISTRICTS as f64),
                    oldest: written(1.0),
                    delivered: written(DISTRICTS as f64 * (2.0 + LINES) - 1.0),
                    ..Means::reading(0.0)
                }
            }
            Kind::StockLevel => {
                // A small population has fewer orders than are asked for.
                let lines = RECENT.min(self.size.orders) as f64 * LINES;
                let items = self.population.draws.items.different(lines);
                // Where few orders wait to be delivered, the oldest is one of those it looks at.
                let waiting = self.size.orders - self.size.delivered();
                Means {
                    // The district, its lines, stocks.
                    steps: 3.0,
                    districts: only_read(1.0),
                    stocks: only_read(items),
                    scanned: told(lines, 0.0),
                    at_home: AtHome { reads: 1.0 + lines, ..AtHome::default() },
                    oldest: only_read(if waiting < RECENT { 1.0 } else { 0.0 }),
                    ..Means::reading(1.0 + lines + items)
                }
            }
        }
    }

    /// In which order a kind of transaction comes to its records, of which there are so many of each kind of band.
    fn legs(&self, kind: Kind, kinds: &[Asked]) -> Vec<Leg> {
        let all = |kind: u32| kinds[kind as usize].reads + kinds[kind as usize].writes;
        let part = |share: f64| move |kind: u32| Leg { kind, records: share * all(kind) };
        let (whole, half) = (part(1.0), part(0.5));
        let legs = match kind {
            // Items are asked for with all that is only read, but are the own node's, so that hardly any of the way is gone with them; or a line's
            // item and stock after the other's.
            Kind::NewOrder if self.together => {
                vec![whole(WAREHOUSES), whole(ITS_DISTRICTS), whole(CUSTOMERS), whole(STOCKS), whole(REST)]
            }
            Kind::NewOrder => {
                vec![
                    whole(WAREHOUSES),
                    whole(ITS_DISTRICTS),
                    whole(CUSTOMERS),
                    half(REST),
                    whole(STOCKS),
                    half(REST),
                ]
            }
            Kind::Payment => vec![whole(WAREHOUSES), whole(ITS_DISTRICTS), whole(REST), whole(CUSTOMERS)],
            Kind::OrderStatus => vec![whole(CUSTOMERS), whole(REST)],
            // District by district, customers among the orders.
            Kind::Delivery => vec![whole(OLDEST), half(DELIVERED), whole(CUSTOMERS), half(DELIVERED)],
            Kind::StockLevel => vec![whole(ITS_DISTRICTS), whole(OLDEST), whole(REST), whole(STOCKS)],
        };
        legs.into_iter().filter(|leg| leg.records > 0.0).collect()
    }

    /// The workload as the cost model sees it where all lookups hit, and the lookups.
    pub(in crate::workload) fn demand(&self, scale: Scale, retry: &RetryPolicy) -> (Demand, Lookups) {
        let kinds = KINDS.iter().filter(|(_, kind)| self.mix.kinds.weight(*kind) > 0);
        let kinds: Vec<(TxnClass, Means)> = kinds
            .map(|&(name, kind)| {
                let (share, means) = (self.mix.kinds.share(kind), self.means(kind));
                let class = TxnClass {
                    inserts: means.inserts,
                    scanned: means.scanned,
                    at_home: if self.home_tables() == 0 { AtHome::default() } else { means.at_home },
                    elsewhere: Some(means.remote),
                    steps: means.steps,
                    kinds: means.kinds(),
                    legs: self.legs(kind, &means.kinds()),
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
        let band = |kind: u32, records: f64, (all, writes): (f64, f64), parts: f64| Band {
            records,
            share: all,
            writes: Some(if written > 0.0 { writes / written } else { 0.0 }),
            parts,
            away: 0.0,
            kind,
        };
        let shares = |asked: &dyn Fn(&Means) -> Asked| {
            let sum = |of: &dyn Fn(Asked) -> f64| {
                kinds.iter().map(|(class, m)| class.share * of(asked(m))).sum::<f64>()
            };
            (sum(&|a| a.reads + a.writes) / all, sum(&|a| a.writes))
        };
        let (to_warehouses, to_districts) = (shares(&|m| m.warehouses), shares(&|m| m.districts));
        let (to_stocks, to_customers) = (shares(&|m| m.stocks), shares(&|m| m.customers));
        let (to_oldest, to_delivered) = (shares(&|m| m.oldest), shares(&|m| m.delivered));
        // Terminals keep to warehouses of their node, if it has any: as many groups of them as there are warehouses or workers.
        let homes = if self.size.warehouses < self.size.nodes {
            1.0
        } else {
            self.size.warehouses.min(self.size.nodes * self.size.workers) as f64
        };
        let mut bands = vec![
            band(WAREHOUSES, warehouses, to_warehouses, homes),
            band(OLDEST, warehouses, to_oldest, homes),
            band(ITS_DISTRICTS, warehouses * DISTRICTS as f64, to_districts, homes),
        ];
        // Of stocks and customers few are another warehouse's, but where each order has one of another node.
        let mostly_home = if self.mix.always_distributed { 1.0 } else { homes };
        // Not none: no table is kept at home that others may ask for.
        let of_all = |of: fn(&Means) -> f64, share: f64| {
            if share > 0.0 { (mean(of) / (share * all)).clamp(1e-9, 1.0) } else { 0.0 }
        };
        let stocks_away = if mostly_home > 1.0 { of_all(|m| m.remote_stocks, to_stocks.0) } else { 0.0 };
        // Some items are ordered far more often than others.
        let popular = self.population.draws.items.bands();
        bands.extend(popular.iter().map(|(items, share)| {
            let asked = (to_stocks.0 * share, to_stocks.1 * share);
            Band { away: stocks_away, ..band(STOCKS, warehouses * items, asked, mostly_home) }
        }));
        let away = if mostly_home > 1.0 && !self.customers_at_home {
            of_all(|m| m.remote.writes - m.remote_stocks, to_customers.0)
        } else {
            0.0
        };
        bands.push(Band { away, ..band(CUSTOMERS, customers, to_customers, mostly_home) });
        // Each is one delivery's alone.
        let orders = LINES * warehouses * (DISTRICTS * self.size.orders) as f64;
        bands.push(band(DELIVERED, orders, to_delivered, orders));
        // The rest is spread over items and names, and taken to be written by nobody.
        let named = [to_warehouses, to_oldest, to_districts, to_customers, to_stocks, to_delivered];
        let rest = named.iter().fold(1.0, |rest, n| rest - n.0);
        bands.push(band(REST, customers + self.size.items as f64, (rest.max(0.0), 0.0), 1.0));
        // Only stocks and customers are looked for elsewhere.
        let nodes = f64::from(scale.nodes.max(1));
        let elsewhere = 1.0 - 1.0 / nodes;
        let stocks = if remote > 0.0 { mean(|m| m.remote_stocks) / remote } else { 1.0 };
        let mut sought: Vec<Sought> = popular
            .iter()
            .map(|(items, share)| Sought { records: warehouses * items * elsewhere, share: stocks * share })
            .collect();
        sought.push(Sought { records: customers * elsewhere, share: 1.0 - stocks });
        if scale.nodes < 2 {
            sought.clear();
        }
        let demand = Demand {
            name: self.name.to_owned(),
            classes: kinds.into_iter().map(|(class, _)| class).collect(),
            payload_bytes: payload.round() as u32,
            tables: self.tables().len() as u32,
            local_share: if scale.nodes == 1 { 1.0 } else { 1.0 - remote / all },
            cache_hit_share: 1.0,
            bands,
            reads_ahead: self.together,
            backoff_ns: retry.first.0 as f64 / 2.0,
            backoff_doublings: retry.doublings(),
        };
        (demand, Lookups(sought))
    }
}
