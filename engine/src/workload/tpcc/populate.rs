//! The database as the specification loads it (clause 4.3.3.1): which keys there are, and what each record holds.
//!
//! Every record is a function of its key and the population's seed. What one record must know of another (an order's
//! lines of their number, a name's place among a district's customers) it computes again.

use super::columns::{
    customer, customer_name, customer_order, district, history, item, new_order, order, order_line, stock,
    stock_dist, warehouse,
};
use super::key;
use super::random::{Distributions, last_name};
use super::size::{DISTRICTS, Size};
use super::table;
use crate::workload::RecordId;
use crate::workload::columns::Text;
use crate::workload::stream::{Stream, mix, permuted};

/// The date of all that was loaded; 0 is null.
pub(super) const LOADED_AT: u64 = 1;
/// What every district's and warehouse's payments begin with: 10.00 of each customer.
const FIRST_PAYMENT: u64 = 1_000;
/// The text that one in ten items and stocks has in its data.
pub const ORIGINAL: &[u8; 8] = b"ORIGINAL";

/// Purposes of streams beside the tables' own, for what is computed apart from its record.
const FIRST_NAMES: u16 = 0x100;
const LAST_NAMES: u16 = 0x101;
const LINE_COUNTS: u16 = 0x102;
const PERMUTATIONS: u16 = 0x103;

/// What the records of a database hold at first.
#[derive(Clone, Copy, Debug)]
pub struct Population {
    pub(super) seed: u64,
    pub(super) size: Size,
    pub(super) draws: Distributions,
}

impl Population {
    /// The keys of a table that `node` holds, in ascending order.
    pub fn keys(&self, table: u16, node: u64) -> Box<dyn Iterator<Item = u64> + '_> {
        let Size { customers, orders, items, nodes, warehouses, .. } = self.size;
        let each = move |first: u64, last: u64, of: fn(u64, u64, u64) -> RecordId| {
            let homes = (node..warehouses).step_by(nodes as usize);
            homes.flat_map(move |w| {
                (0..DISTRICTS).flat_map(move |d| (first..=last).map(move |n| of(w, d, n).key))
            })
        };
        let homes = (node..warehouses).step_by(nodes as usize);
        match table {
            table::WAREHOUSE => Box::new(homes.map(|w| key::warehouse(w).key)),
            table::DISTRICT => Box::new(each(0, 0, |w, d, _| key::district(w, d))),
            table::CUSTOMER => Box::new(each(1, customers, key::customer)),
            table::CUSTOMER_NAME => {
                Box::new(homes.flat_map(move |w| (0..DISTRICTS).flat_map(move |d| self.names(w, d))))
            }
            table::HISTORY => Box::new(each(1, customers, key::first_payment)),
            table::NEW_ORDER => Box::new(each(self.size.delivered() + 1, orders, key::new_order)),
            table::ORDER => Box::new(each(1, orders, key::order)),
            table::CUSTOMER_ORDER => Box::new(
                homes.flat_map(move |w| (0..DISTRICTS).flat_map(move |d| self.customer_orders(w, d))),
            ),
            table::ORDER_LINE => Box::new(homes.flat_map(move |w| {
                (0..DISTRICTS).flat_map(move |d| {
                    (1..=orders).flat_map(move |o| {
                        (1..=self.line_count(w, d, o)).map(move |line| key::order_line(w, d, o, line).key)
                    })
                })
            })),
            table::ITEM => Box::new((1..=items).map(move |i| key::item(node, i).key)),
            table::STOCK => {
                let stocks = move |w| (1..=items).map(move |i| key::stock(w, i).key);
                Box::new(homes.flat_map(stocks))
            }
            _ => Box::new(std::iter::empty()),
        }
    }

    /// A district's customers in the order of last name, then first name.
    fn names(&self, w: u64, d: u64) -> impl Iterator<Item = u64> + use<> {
        let mut sorted: Vec<(u64, [u8; 16], u64)> = (1..=self.size.customers)
            .map(|c| (self.last_name(w, d, c), self.first_name(w, d, c), c))
            .collect();
        sorted.sort_unstable();
        let mut rank = 0;
        let mut before = u64::MAX;
        sorted.into_iter().map(move |(last, _, c)| {
            rank = if last == before { rank + 1 } else { 0 };
            before = last;
            key::customer_name(w, d, last, rank, c).key
        })
    }

    /// A district's orders in the order of their customers.
    fn customer_orders(&self, w: u64, d: u64) -> impl Iterator<Item = u64> + use<> {
        let mut keys: Vec<u64> = (1..=self.size.orders)
            .map(|o| key::customer_order(w, d, self.customer_of(w, d, o), o).key)
            .collect();
        keys.sort_unstable();
        keys.into_iter()
    }

    /// The last name's number of a customer: the first thousand have each its own, further ones take what NURand gives.
    pub fn last_name(&self, w: u64, d: u64, c: u64) -> u64 {
        if c <= self.size.last_names() {
            return c - 1;
        }
        self.draws.names_loaded.from_stream(&mut Stream::of(
            self.seed,
            LAST_NAMES,
            key::customer(w, d, c).key,
        ))
    }

    /// A customer's first name, padded with zeros, which order before all characters.
    pub fn first_name(&self, w: u64, d: u64, c: u64) -> [u8; 16] {
        let mut name = [0; 16];
        Stream::of(self.seed, FIRST_NAMES, key::customer(w, d, c).key).text(&mut name, 8, 16);
        name
    }

    /// How many lines one of the first orders has.
    pub fn line_count(&self, w: u64, d: u64, o: u64) -> u64 {
        Stream::of(self.seed, LINE_COUNTS, key::order(w, d, o).key).within(5, key::MOST_LINES)
    }

    /// Whose one of the first orders is: the place of its number in a random order of the customers.
    pub fn customer_of(&self, w: u64, d: u64, o: u64) -> u64 {
        let seed = mix(self.seed ^ u64::from(PERMUTATIONS) << 48 ^ key::district_number(w, d));
        permuted(seed, self.size.customers, o - 1) + 1
    }

    /// The payload that a record starts with; `words` are zero.
    pub fn fill(&self, record: RecordId, words: &mut [u64]) {
        let w = key::warehouse_of(record.key);
        let mut stream = Stream::of(self.seed, record.table, record.key);
        match record.table {
            table::WAREHOUSE => self.fill_warehouse(&mut stream, words),
            table::DISTRICT => self.fill_district(&mut stream, words),
            table::CUSTOMER => {
                let (d, c) = key::district_and_number(record.key);
                self.fill_customer(&mut stream, (w, d, c), words);
            }
            table::CUSTOMER_NAME => words[customer_name::C_ID.word()] = record.key & 0xfff,
            table::HISTORY => {
                let (d, c) = key::district_and_number(record.key);
                words[history::C_ID.word()] = c;
                words[history::C_D_ID.word()] = d;
                words[history::C_W_ID.word()] = w;
                words[history::D_ID.word()] = d;
                words[history::DATE.word()] = LOADED_AT;
                words[history::AMOUNT.word()] = FIRST_PAYMENT;
                text(&mut stream, words, history::DATA, 12, 24);
            }
            table::NEW_ORDER => words[new_order::O_ID.word()] = key::district_and_number(record.key).1,
            table::ORDER => {
                let (d, o) = key::district_and_number(record.key);
                words[order::C_ID.word()] = self.customer_of(w, d, o);
                words[order::ENTRY_D.word()] = LOADED_AT;
                words[order::CARRIER_ID.word()] =
                    if o <= self.size.delivered() { stream.within(1, 10) } else { 0 };
                words[order::OL_CNT.word()] = self.line_count(w, d, o);
                words[order::ALL_LOCAL.word()] = 1;
            }
            table::CUSTOMER_ORDER => words[customer_order::O_ID.word()] = record.key & 0xffff_ffff,
            table::ORDER_LINE => {
                let (_, o, _) = key::order_and_line(record.key);
                let delivered = o <= self.size.delivered();
                words[order_line::I_ID.word()] = stream.within(1, self.size.items);
                words[order_line::SUPPLY_W_ID.word()] = w;
                words[order_line::DELIVERY_D.word()] = if delivered { LOADED_AT } else { 0 };
                words[order_line::QUANTITY.word()] = 5;
                words[order_line::AMOUNT.word()] = if delivered { 0 } else { stream.within(1, 999_999) };
                text(&mut stream, words, order_line::DIST_INFO, 24, 24);
            }
            table::ITEM => {
                // The same on every node.
                let i = key::item(0, record.key & ((1 << key::WAREHOUSE_SHIFT) - 1)).key;
                let mut stream = Stream::of(self.seed, record.table, i);
                words[item::IM_ID.word()] = stream.within(1, 10_000);
                words[item::PRICE.word()] = stream.within(100, 10_000);
                text(&mut stream, words, item::NAME, 14, 24);
                data(&mut stream, words, item::DATA);
            }
            table::STOCK => {
                words[stock::QUANTITY.word()] = stream.within(10, 100);
                for d in 0..DISTRICTS {
                    text(&mut stream, words, stock_dist(d), 24, 24);
                }
                data(&mut stream, words, stock::DATA);
            }
            _ => {}
        }
    }

    fn fill_warehouse(&self, stream: &mut Stream, words: &mut [u64]) {
        use warehouse::{CITY, NAME, STATE, STREET_1, STREET_2, TAX, YTD, ZIP};
        text(stream, words, NAME, 6, 10);
        address(stream, words, [STREET_1, STREET_2, CITY, STATE, ZIP]);
        words[TAX.word()] = stream.within(0, 2_000);
        words[YTD.word()] = DISTRICTS * self.size.customers * FIRST_PAYMENT;
    }

    fn fill_district(&self, stream: &mut Stream, words: &mut [u64]) {
        use district::{CITY, NAME, NEXT_O_ID, STATE, STREET_1, STREET_2, TAX, YTD, ZIP};
        text(stream, words, NAME, 6, 10);
        address(stream, words, [STREET_1, STREET_2, CITY, STATE, ZIP]);
        words[TAX.word()] = stream.within(0, 2_000);
        words[YTD.word()] = self.size.customers * FIRST_PAYMENT;
        words[NEXT_O_ID.word()] = self.size.orders + 1;
    }

    fn fill_customer(&self, stream: &mut Stream, (w, d, c): (u64, u64, u64), words: &mut [u64]) {
        use customer::{CITY, STATE, STREET_1, STREET_2, ZIP};
        let mut last = [0; 16];
        let len = last_name(self.last_name(w, d, c), &mut last);
        customer::LAST.put(words, &last[..len]);
        customer::FIRST.put(words, &self.first_name(w, d, c));
        customer::MIDDLE.put(words, b"OE");
        address(stream, words, [STREET_1, STREET_2, CITY, STATE, ZIP]);
        let mut phone = [0; 16];
        customer::PHONE.put(words, stream.digits(&mut phone, 16, 16));
        words[customer::SINCE.word()] = LOADED_AT;
        customer::CREDIT.put(words, if stream.one_in(10) { b"BC" } else { b"GC" });
        words[customer::CREDIT_LIM.word()] = 5_000_000;
        words[customer::DISCOUNT.word()] = stream.within(0, 5_000);
        words[customer::BALANCE.word()] = (-(FIRST_PAYMENT as i64)) as u64;
        words[customer::YTD_PAYMENT.word()] = FIRST_PAYMENT;
        words[customer::PAYMENT_CNT.word()] = 1;
        words[customer::DELIVERY_CNT.word()] = 0;
        text(stream, words, customer::DATA, 300, 500);
    }
}

fn text(stream: &mut Stream, words: &mut [u64], column: Text, low: usize, high: usize) {
    let mut buffer = [0; 512];
    column.put(words, stream.text(&mut buffer, low, high));
}

/// Two streets, city, state and zip code (clauses 4.3.2.7 and 4.3.3.1).
fn address(stream: &mut Stream, words: &mut [u64], [street_1, street_2, city, state, zip]: [Text; 5]) {
    for column in [street_1, street_2, city] {
        text(stream, words, column, 10, 20);
    }
    let mut buffer = [0; 9];
    state.put(words, stream.letters(&mut buffer, 2, 2));
    stream.digits(&mut buffer, 4, 4);
    buffer[4..].copy_from_slice(b"11111");
    zip.put(words, &buffer);
}

/// 26 to 50 characters, in one of ten cases with "ORIGINAL" somewhere among them.
fn data(stream: &mut Stream, words: &mut [u64], column: Text) {
    let mut buffer = [0; 50];
    let original = stream.one_in(10);
    let text = stream.text(&mut buffer, 26, 50);
    if original {
        let at = stream.within(0, (text.len() - ORIGINAL.len()) as u64) as usize;
        text[at..at + ORIGINAL.len()].copy_from_slice(ORIGINAL);
    }
    column.put(words, text);
}

#[cfg(test)]
mod tests;
