//! The twelve consistency conditions (clause 3.3.2), held against every record.
//!
//! All but one of them speak of one warehouse, whose records lie on one node. So each node collects what its
//! warehouses' records say, in whatever order they come ([`Audit::see`]), and compares at the end ([`Audit::settle`]);
//! what remains, and travels, are the [`Finding`]s. The tenth compares a customer with payments that may lie at
//! other warehouses: each side is summed up with a random weight for each customer, per warehouse, and the sums
//! of all nodes must come to zero. Wrong customers would have to cancel out in 64 bits to go unnoticed.
//!
//! The eleventh, `orders - new orders = 2100` in each district, holds as it stands only until a delivery: here the
//! orders without an entry among the new ones are as many as those that have a carrier, and over all districts those
//! of the beginning and the committed deliveries.

use super::columns::{customer, district, history, order, order_line, stock, warehouse};
use super::key;
use super::size::DISTRICTS;
use super::table;
use super::totals::{Total, Totals};
use crate::workload::RecordId;
use crate::workload::stream::mix;
use std::collections::BTreeMap;
use std::ops::AddAssign;

/// The conditions, by their clauses.
pub const CONDITIONS: [&str; 12] = [
    "tpcc-3.3.2.1",
    "tpcc-3.3.2.2",
    "tpcc-3.3.2.3",
    "tpcc-3.3.2.4",
    "tpcc-3.3.2.5",
    "tpcc-3.3.2.6",
    "tpcc-3.3.2.7",
    "tpcc-3.3.2.8",
    "tpcc-3.3.2.9",
    "tpcc-3.3.2.10",
    "tpcc-3.3.2.11",
    "tpcc-3.3.2.12",
];

/// Numbers of orders and customers beyond this are not collected but found fault with.
const MOST_NUMBERED: u64 = 1 << 24;

/// What one condition came to.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Finding {
    /// Warehouses, districts, orders or customers it held for.
    pub held: u64,
    /// And did not hold for.
    pub broken: u64,
    /// The first of those, in words.
    pub first: Option<String>,
}

impl Finding {
    pub(super) fn note(&mut self, holds: bool, words: impl FnOnce() -> String) {
        if holds {
            self.held += 1;
        } else {
            self.broken += 1;
            self.first.get_or_insert_with(words);
        }
    }
}

/// What is known of the records seen so far.
#[derive(Clone, Debug, Default, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Audit {
    findings: [Finding; 12],
    /// Weighted sums of the tenth condition, by the customers' warehouse; zero if it holds.
    balances: BTreeMap<u64, u64>,
    #[serde(skip)]
    warehouses: BTreeMap<u64, Warehouse>,
}

#[derive(Clone, Debug, Default)]
struct Warehouse {
    ytd: i64,
    districts: [District; DISTRICTS as usize],
}

#[derive(Clone, Debug, Default)]
struct District {
    ytd: i64,
    next: u64,
    /// H_AMOUNT of the payments to it.
    paid: i64,
    orders: Vec<Order>,
    customers: Vec<Customer>,
    /// Numbers out of all bounds.
    strays: u64,
}

#[derive(Clone, Debug, Default)]
struct Order {
    here: bool,
    new: bool,
    carrier: bool,
    customer: u64,
    asked: u64,
    lines: u64,
    undelivered: u64,
    /// Cents of the lines that were delivered.
    delivered: i64,
}

#[derive(Clone, Debug, Default)]
struct Customer {
    here: bool,
    balance: i64,
    paid: i64,
}

/// The place of `number`, from 1, in a list that grows to have it.
fn numbered<T: Default + Clone>(list: &mut Vec<T>, number: u64) -> Option<&mut T> {
    let place = usize::try_from(number.checked_sub(1).filter(|&n| n < MOST_NUMBERED)?).ok()?;
    if list.len() <= place {
        list.resize(place + 1, T::default());
    }
    list.get_mut(place)
}

fn weight(w: u64, d: u64, c: u64) -> u64 {
    mix(key::customer(w, d, c).key)
}

impl Audit {
    /// Takes one record in, and adds it to the totals.
    pub fn see(&mut self, record: RecordId, words: &[u64], totals: &mut Totals) {
        let w = key::warehouse_of(record.key);
        match record.table {
            table::WAREHOUSE => {
                let ytd = words[warehouse::YTD.word()] as i64;
                self.warehouses.entry(w).or_default().ytd = ytd;
                totals.add(Total::Warehouses, 1);
                totals.add(Total::WarehousesPaid, ytd);
            }
            table::DISTRICT => self.see_district(w, record.key & 0xf, words, totals),
            table::CUSTOMER => self.see_customer(w, record.key, words, totals),
            table::CUSTOMER_NAME => totals.add(Total::Names, 1),
            table::HISTORY => self.see_payment(w, words, totals),
            table::NEW_ORDER | table::ORDER => {
                let (d, o) = key::district_and_number(record.key);
                self.see_order(w, (d, o), (record.table == table::ORDER).then_some(words), totals);
            }
            table::CUSTOMER_ORDER => totals.add(Total::CustomerOrders, 1),
            table::ORDER_LINE => {
                totals.add(Total::Lines, 1);
                let (d, o, _) = key::order_and_line(record.key);
                let Some(order) = self.order(w, d, o) else { return };
                order.lines += 1;
                if words[order_line::DELIVERY_D.word()] == 0 {
                    order.undelivered += 1;
                } else {
                    order.delivered += words[order_line::AMOUNT.word()] as i64;
                }
            }
            table::ITEM => totals.add(Total::Items, 1),
            table::STOCK => {
                totals.add(Total::Stocks, 1);
                totals.add(Total::Quantity, words[stock::YTD.word()] as i64);
                totals.add(Total::StockOrders, words[stock::ORDER_CNT.word()] as i64);
                totals.add(Total::RemoteLines, words[stock::REMOTE_CNT.word()] as i64);
            }
            _ => {}
        }
    }

    fn district(&mut self, w: u64, d: u64) -> &mut District {
        let districts = &mut self.warehouses.entry(w).or_default().districts;
        &mut districts[d.min(DISTRICTS - 1) as usize]
    }

    fn order(&mut self, w: u64, d: u64, o: u64) -> Option<&mut Order> {
        let district = self.district(w, d);
        let order = numbered(&mut district.orders, o);
        district.strays += u64::from(order.is_none());
        order
    }

    fn see_district(&mut self, w: u64, d: u64, words: &[u64], totals: &mut Totals) {
        let (ytd, next) = (words[district::YTD.word()] as i64, words[district::NEXT_O_ID.word()]);
        let district = self.district(w, d);
        (district.ytd, district.next) = (ytd, next);
        totals.add(Total::Districts, 1);
        totals.add(Total::DistrictsPaid, ytd);
        totals.add(Total::NextOrders, next as i64);
    }

    fn see_customer(&mut self, w: u64, key: u64, words: &[u64], totals: &mut Totals) {
        let (d, c) = key::district_and_number(key);
        let (balance, paid) =
            (words[customer::BALANCE.word()] as i64, words[customer::YTD_PAYMENT.word()] as i64);
        totals.add(Total::Customers, 1);
        totals.add(Total::Balances, balance);
        totals.add(Total::CustomersPaid, paid);
        totals.add(Total::CustomerPayments, words[customer::PAYMENT_CNT.word()] as i64);
        totals.add(Total::Deliveries, words[customer::DELIVERY_CNT.word()] as i64);
        self.balance(w, d, c, balance);
        let district = self.district(w, d);
        match numbered(&mut district.customers, c) {
            Some(seen) => *seen = Customer { here: true, balance, paid },
            None => district.strays += 1,
        }
    }

    fn see_payment(&mut self, w: u64, words: &[u64], totals: &mut Totals) {
        let amount = words[history::AMOUNT.word()] as i64;
        totals.add(Total::Payments, 1);
        totals.add(Total::HistoryPaid, amount);
        self.district(w, words[history::D_ID.word()]).paid += amount;
        let [c_w, c_d, c] =
            [history::C_W_ID, history::C_D_ID, history::C_ID].map(|column| words[column.word()]);
        self.balance(c_w, c_d, c, amount);
    }

    /// An order, or the entry of one among the new ones.
    fn see_order(&mut self, w: u64, (d, o): (u64, u64), words: Option<&[u64]>, totals: &mut Totals) {
        let carrier = words.is_some_and(|words| words[order::CARRIER_ID.word()] != 0);
        totals.add(if words.is_some() { Total::Orders } else { Total::NewOrders }, 1);
        totals.add(Total::OrdersDelivered, carrier.into());
        let Some(seen) = self.order(w, d, o) else { return };
        match words {
            None => seen.new = true,
            Some(words) => {
                (seen.here, seen.carrier) = (true, carrier);
                seen.customer = words[order::C_ID.word()];
                seen.asked = words[order::OL_CNT.word()];
            }
        }
    }

    /// Adds cents to one side of the tenth condition.
    fn balance(&mut self, w: u64, d: u64, c: u64, cents: i64) {
        let sum = self.balances.entry(w).or_default();
        *sum = sum.wrapping_add(weight(w, d, c).wrapping_mul(cents as u64));
    }

    /// Compares what the records of whole warehouses say; only findings remain.
    pub fn settle(&mut self) {
        for (w, warehouse) in std::mem::take(&mut self.warehouses) {
            let sum = |of: fn(&District) -> i64| warehouse.districts.iter().map(of).sum::<i64>();
            let (districts, paid) = (sum(|d| d.ytd), sum(|d| d.paid));
            self.findings[0].note(warehouse.ytd == districts, || {
                format!("warehouse {}: W_YTD {}, its districts' D_YTD {districts}", w + 1, warehouse.ytd)
            });
            self.findings[7].note(warehouse.ytd == paid, || {
                format!("warehouse {}: W_YTD {}, payments of {paid}", w + 1, warehouse.ytd)
            });
            for (d, district) in warehouse.districts.iter().enumerate() {
                self.settle_district(w, d as u64, district);
            }
        }
    }

    fn settle_district(&mut self, w: u64, d: u64, district: &District) {
        let name = || format!("warehouse {}, district {}", w + 1, d + 1);
        let numbers = |of: fn(&Order) -> bool| {
            district.orders.iter().zip(1u64..).filter(move |(order, _)| of(order)).map(|(_, number)| number)
        };
        let last = numbers(|o| o.here).last().unwrap_or(0);
        let (oldest, newest) = (numbers(|o| o.new).next(), numbers(|o| o.new).last());
        let next = district.next.wrapping_sub(1);
        let [_, second, third, fourth, fifth, sixth, seventh, _, ninth, _, eleventh, _] = &mut self.findings;
        second.note(next == last && newest.is_none_or(|n| n == next) && district.strays == 0, || {
            format!(
                "{}: D_NEXT_O_ID {}, last order {last}, last new order {newest:?}, {} numbers out of all bounds",
                name(),
                district.next,
                district.strays
            )
        });
        let entries = numbers(|o| o.new).count() as u64;
        let span = oldest.zip(newest).map_or(0, |(oldest, newest)| newest - oldest + 1);
        third.note(span == entries, || {
            format!("{}: {entries} new orders from {oldest:?} to {newest:?}", name())
        });
        let here = || district.orders.iter().filter(|o| o.here);
        let asked: u64 = here().map(|o| o.asked).sum();
        let lines: u64 = district.orders.iter().map(|o| o.lines).sum();
        fourth.note(asked == lines, || format!("{}: O_OL_CNT of {asked}, {lines} order lines", name()));
        for (order, o) in district.orders.iter().zip(1u64..) {
            if !order.here && !order.new && order.lines == 0 {
                continue; // no such order: the second condition speaks of gaps, and finds those at the end
            }
            fifth.note(order.here && order.carrier != order.new, || {
                let (here, carrier, new) = (order.here, order.carrier, order.new);
                format!("{}, order {o}: there {here}, carrier {carrier}, new {new}", name())
            });
            sixth.note(order.here && order.asked == order.lines, || {
                format!("{}, order {o}: O_OL_CNT {}, {} lines", name(), order.asked, order.lines)
            });
            seventh.note(order.undelivered == if order.carrier { 0 } else { order.lines }, || {
                format!(
                    "{}, order {o}: carrier {}, {} of {} lines not delivered",
                    name(),
                    order.carrier,
                    order.undelivered,
                    order.lines
                )
            });
        }
        ninth.note(district.ytd == district.paid, || {
            format!("{}: D_YTD {}, payments of {}", name(), district.ytd, district.paid)
        });
        let (orders, carried) = (here().count() as u64, here().filter(|o| o.carrier).count() as u64);
        eleventh.note(orders == entries + carried, || {
            format!("{}: {orders} orders, {entries} of them new and {carried} delivered", name())
        });
        self.settle_customers(w, d, district, name);
    }

    fn settle_customers(&mut self, w: u64, d: u64, district: &District, name: impl Fn() -> String) {
        let mut delivered = vec![0i64; district.customers.len()];
        for order in &district.orders {
            if let Some(sum) = numbered(&mut delivered, order.customer) {
                *sum += order.delivered;
            }
            self.balance(w, d, order.customer, -order.delivered);
        }
        for ((customer, delivered), c) in district.customers.iter().zip(delivered).zip(1u64..) {
            if customer.here {
                self.findings[11].note(customer.balance + customer.paid == delivered, || {
                    let Customer { balance, paid, .. } = customer;
                    format!("{}, customer {c}: balance {balance}, paid {paid}, delivered {delivered}", name())
                });
            }
        }
    }

    /// What each condition came to, once all nodes' findings are together.
    pub fn findings(&self) -> [Finding; 12] {
        let mut findings = self.findings.clone();
        for (w, &sum) in &self.balances {
            findings[9].note(sum == 0, || {
                format!("customers of warehouse {}: balances differ from deliveries less payments", w + 1)
            });
        }
        findings
    }
}

impl AddAssign for Audit {
    fn add_assign(&mut self, rhs: Audit) {
        for (mine, theirs) in self.findings.iter_mut().zip(rhs.findings) {
            mine.held += theirs.held;
            mine.broken += theirs.broken;
            mine.first = mine.first.take().or(theirs.first);
        }
        for (w, sum) in rhs.balances {
            let mine = self.balances.entry(w).or_default();
            *mine = mine.wrapping_add(sum);
        }
        // Warehouses lie whole on one node, and are settled before sums of nodes are added.
        self.warehouses.extend(rhs.warehouses);
    }
}

#[cfg(test)]
mod tests;
