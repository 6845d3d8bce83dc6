//! What CALVIN has to know before a transaction runs: inputs as words, the records that they name, and the locks that cover the rest.
//!
//! *A district covers what is below it*: its customers, and its orders with their lines and lists. They come and go, and which of them
//! a transaction comes to is told by its district (the number of the next order), by another (a delivery's customers, by its orders)
//! or by a name; whoever touches any of them holds the lock of the district, exclusively to change something. Most do so anyway:
//! a new-order counts the district's orders up, a payment what has been paid there. A payment for another district's customer holds
//! that one as well, a delivery all ten. *A warehouse covers its payments*, which nobody else looks at. *Stocks* are named by new-orders,
//! each its own; stock-level holds the group of a warehouse's, for which of them it looks at is told by the district's
//! orders. Items and customers' names never change.
//!
//! Reconnaissance, the usual way out (Thomson et al. §3.2.1), would have been the other choice: run once without locks, declare what was
//! found, run again, and begin anew if something else is found then. Under this one nobody aborts, and no input grows by what it found; the
//! price is that one payment in seven keeps a second district, and that a stock-level keeps new-orders from the stocks of its warehouse while it looks.

use super::columns::{
    customer, customer_name, customer_order, district, item, new_order, order, order_line, stock, warehouse,
};
use super::customer::NAMESAKES;
use super::input::{Input, Job, Kind, Line, NewOrder, Payment, Who};
use super::key::{self, MOST_CLIENTS, MOST_LINES};
use super::queries::RECENT_LINES;
use super::size::DISTRICTS;
use super::{Tpcc, table};
use crate::workload::RecordId;
use crate::workload::ahead::{Cover, InputWords, ReadWriteSet, Told};
use phases::txn::Intent;

const LINES: usize = MOST_LINES as usize;
/// Node, warehouse, district and date, then the kind; what follows is longest for a new-order: customer, number of lines, quantities, and
/// for each line its item and its supplier in one word.
pub(super) const INPUT_WORDS: usize = 5 + 3 + LINES;
/// Bits of a quantity, which is 1 to 10.
const QUANTITY_BITS: usize = 4;

/// All stocks of a warehouse.
const fn stocks(w: u64) -> RecordId {
    key::stock(w, 0)
}

pub(super) fn cover(record: RecordId) -> Cover {
    let w = key::warehouse_of(record.key);
    let below = |d: u64| Cover::By(key::district(w, d));
    match record.table {
        table::CUSTOMER | table::NEW_ORDER | table::ORDER => below(key::district_and_number(record.key).0),
        table::ORDER_LINE => below(key::order_and_line(record.key).0),
        table::CUSTOMER_ORDER => below(key::district_of_customer_order(record.key)),
        table::HISTORY => Cover::By(key::warehouse(w)),
        table::STOCK => Cover::OneOf(stocks(w)),
        table::ITEM | table::CUSTOMER_NAME => Cover::Fixed,
        _ => Cover::Own,
    }
}

pub(super) fn declare(input: &Input, set: &mut ReadWriteSet) {
    let (w, d) = (input.warehouse, input.district);
    match &input.job {
        Job::NewOrder(asked) => {
            set.read(key::warehouse(w));
            set.write(key::district(w, d));
            set.read(key::customer(w, d, asked.customer));
            for line in &asked.lines[..usize::from(asked.count)] {
                let (item, stock) = records_of(input, line);
                set.read(item);
                set.write(stock);
            }
            // The last one's item may be one that is not there; its stock then is not there either.
            let last = &asked.lines[usize::from(asked.count.max(1)) - 1];
            let (item, stock) = records_of(input, last);
            set.maybe(item);
            set.maybe(stock);
        }
        Job::Payment(asked) => {
            let (c_w, c_d) = (asked.customer_warehouse, asked.customer_district);
            set.write(key::warehouse(w));
            set.write(key::district(w, d));
            match asked.who {
                Who::Id(c) => set.write(key::customer(c_w, c_d, c)),
                Who::Name(_) => {
                    set.hold(key::district(c_w, c_d), Intent::Write);
                    set.find_at(key::district(c_w, c_d));
                }
            }
        }
        Job::OrderStatus(_) => {
            set.hold(key::district(w, d), Intent::Read);
            set.find_at(key::district(w, d));
        }
        Job::Delivery { .. } => {
            for d in 0..DISTRICTS {
                set.hold(key::district(w, d), Intent::Write);
            }
            set.find_at(key::district(w, 0));
        }
        Job::StockLevel { .. } => {
            set.read(key::district(w, d));
            set.hold_group(stocks(w));
            set.find_at(key::district(w, d));
        }
    }
}

fn records_of(input: &Input, line: &Line) -> (RecordId, RecordId) {
    (key::item(input.node, line.item.into()), key::stock(line.supplier.into(), line.item.into()))
}

impl Tpcc {
    /// Most that one kind of transaction has nodes tell each other. Where each node has a warehouse, who asks for a query is who answers it.
    fn told_of(&self, kind: Kind) -> Told {
        let (lines, here) = (Told::NOTHING, self.size.warehouses >= self.size.nodes);
        let named =
            Told::NOTHING.found(NAMESAKES, customer_name::WORDS).rows(1, NAMESAKES).found(1, customer::WORDS);
        match kind {
            Kind::NewOrder => lines
                .declared(1, warehouse::WORDS)
                .declared(1, district::WORDS)
                .declared(1, customer::WORDS)
                .declared(LINES, item::WORDS)
                .declared(LINES, stock::WORDS),
            Kind::Payment => {
                named.declared(1, warehouse::WORDS).declared(1, district::WORDS).declared(1, customer::WORDS)
            }
            Kind::OrderStatus | Kind::StockLevel if here => Told::NOTHING,
            Kind::OrderStatus => named
                .found(1, customer_order::WORDS)
                .found(1, order::WORDS)
                .found(LINES, order_line::WORDS)
                .rows(2, 1 + LINES),
            Kind::Delivery => {
                let each = Told::NOTHING
                    .found(1, new_order::WORDS)
                    .found(1, order::WORDS)
                    .found(LINES, order_line::WORDS)
                    .found(1, customer::WORDS)
                    .rows(2, 1 + LINES);
                Told { found: DISTRICTS as usize * each.found, ..each }
            }
            Kind::StockLevel => Told::NOTHING
                .declared(1, district::WORDS)
                .found(RECENT_LINES, order_line::WORDS)
                .found(RECENT_LINES, stock::WORDS)
                .rows(1, RECENT_LINES),
        }
    }

    pub(super) fn most_told(&self) -> Told {
        let kinds = super::input::KINDS.into_iter().filter(|(_, kind)| self.mix.kinds.weight(*kind) > 0);
        kinds.fold(Told::NOTHING, |most, (_, kind)| most.max(self.told_of(kind)))
    }

    pub(super) fn input_of(&self, mut words: InputWords<'_>) -> Option<Input> {
        let size = &self.size;
        let (node, warehouse) = (words.below(size.nodes)?, words.below(size.warehouses)?);
        let (district, date) = (words.below(DISTRICTS)?, words.word()?);
        let job = match words.word()? {
            0 => {
                let customer = customer_of(&mut words, size.customers)?;
                let count = words.below(MOST_LINES + 1).filter(|&count| count > 0)? as usize;
                let mut quantities = words.word()?;
                let mut lines = [Line::default(); LINES];
                for line in &mut lines[..count] {
                    let word = words.word()?;
                    let (item, supplier) = (word as u32, (word >> 32) as u32);
                    let quantity = quantities as u32 & ((1 << QUANTITY_BITS) - 1);
                    quantities >>= QUANTITY_BITS;
                    // One more than there are is the unused one.
                    let is = (1..=size.items + 1).contains(&item.into())
                        && u64::from(supplier) < size.warehouses
                        && (1..=10).contains(&quantity);
                    *line = is.then_some(Line { item, supplier, quantity })?;
                }
                Job::NewOrder(NewOrder { customer, lines, count: count as u8 })
            }
            1 => Job::Payment(Payment {
                customer_warehouse: words.below(size.warehouses)?,
                customer_district: words.below(DISTRICTS)?,
                who: self.who(&mut words)?,
                amount: words.below(1 << 32)?,
                client: words.below(MOST_CLIENTS)?,
                serial: words.word()?,
            }),
            2 => Job::OrderStatus(self.who(&mut words)?),
            3 => Job::Delivery { carrier: words.below(11).filter(|&carrier| carrier > 0)? },
            4 => Job::StockLevel { threshold: words.below(1 << 32)? },
            _ => return None,
        };
        words.is_empty().then_some(Input { node, warehouse, district, date, job })
    }

    fn who(&self, words: &mut InputWords<'_>) -> Option<Who> {
        match words.word()? {
            0 => customer_of(words, self.size.customers).map(Who::Id),
            1 => words.below(self.size.last_names()).map(Who::Name),
            _ => None,
        }
    }
}

fn customer_of(words: &mut InputWords<'_>, customers: u64) -> Option<u64> {
    words.below(customers + 1).filter(|&customer| customer > 0)
}

pub(super) fn write(input: &Input, out: &mut Vec<u64>) {
    out.extend([input.node, input.warehouse, input.district, input.date]);
    let who = |who: Who| match who {
        Who::Id(c) => [0, c],
        Who::Name(last) => [1, last],
    };
    match &input.job {
        Job::NewOrder(asked) => {
            let lines = &asked.lines[..usize::from(asked.count)];
            let quantities = lines.iter().rev().fold(0, |word, line| {
                debug_assert!(line.quantity < 1 << QUANTITY_BITS, "{line:?}");
                word << QUANTITY_BITS | u64::from(line.quantity)
            });
            out.extend([0, asked.customer, asked.count.into(), quantities]);
            out.extend(lines.iter().map(|line| u64::from(line.supplier) << 32 | u64::from(line.item)));
        }
        Job::Payment(asked) => {
            out.extend([1, asked.customer_warehouse, asked.customer_district]);
            out.extend(who(asked.who));
            out.extend([asked.amount, asked.client, asked.serial]);
        }
        Job::OrderStatus(asked) => {
            out.push(2);
            out.extend(who(*asked));
        }
        Job::Delivery { carrier } => out.extend([3, *carrier]),
        Job::StockLevel { threshold } => out.extend([4, *threshold]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::{Client, Scale, Workload};
    use primitives::units::Nanos;
    use rand::SeedableRng;
    use rand_xoshiro::Xoshiro256PlusPlus;

    const SETTINGS: [(&str, &str); 6] = [
        ("warehouses", "3"),
        ("customers_per_district", "12"),
        ("orders_per_district", "12"),
        ("items", "60"),
        ("rollback_share", "0.3"),
        ("remote_item_share", "0.3"),
    ];

    fn inputs(count: usize) -> (Tpcc, Vec<Input>) {
        let db = Tpcc::parse("tpcc", Scale { nodes: 2, workers: 1 }, SETTINGS).unwrap();
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(5);
        let client = |n: usize| Client {
            node: n as u16 % 2,
            worker: 0,
            number: n as u32 % 7,
            serial: n as u64,
            now: Nanos(n as u64 * 1000),
        };
        let inputs = (0..count).map(|n| db.draw_at(client(n), &mut rng)).collect();
        (db, inputs)
    }

    #[test]
    fn inputs_come_out_as_they_went_in() {
        let (db, inputs) = inputs(2_000);
        let mut longest = 0;
        for input in inputs {
            let mut words = Vec::new();
            db.write_input(&input, &mut words);
            longest = longest.max(words.len());
            assert_eq!(db.read_input(InputWords::new(&words)), Some(input));
            assert_eq!(db.read_input(InputWords::new(&words[..words.len() - 1])), None);
            words.push(0);
            assert_eq!(db.read_input(InputWords::new(&words)), None);
        }
        assert_eq!(Some(longest), db.input_words());
    }

    #[test]
    fn what_cannot_be_asked_is_not_read() {
        let (db, inputs) = inputs(300);
        for input in inputs {
            let mut words = Vec::new();
            db.write_input(&input, &mut words);
            // The date, an amount, a threshold and the number of a payment may be any.
            for at in [0, 1, 2, 4] {
                let mut words = words.clone();
                words[at] = u64::MAX;
                assert_eq!(db.read_input(InputWords::new(&words)), None, "{input:?}, word {at}");
            }
            if let Job::NewOrder(_) = input.job {
                for (at, word) in [(5, 0), (5, 13), (6, 0), (6, 16), (7, 0), (8, 62), (8, 3 << 32 | 1)] {
                    let mut words = words.clone();
                    words[at] = word;
                    assert_eq!(db.read_input(InputWords::new(&words)), None, "{input:?}, word {at}: {word}");
                }
            }
        }
    }

    #[test]
    fn all_of_a_district_is_below_it_and_on_its_node() {
        let (w, d, o, c) = (2, 7, 1234, 9);
        let below = [
            key::customer(w, d, c),
            key::new_order(w, d, o),
            key::order(w, d, o),
            key::customer_order(w, d, c, o),
            key::order_line(w, d, o, 3),
        ];
        for record in below {
            assert_eq!(cover(record), Cover::By(key::district(w, d)), "{record:?}");
        }
        for range in [key::new_orders(w, d), key::orders_of(w, d, c), key::lines_of(w, d, 1, o)] {
            assert!(below.iter().any(|record| range.contains(&record.key)));
        }
        for (table, range) in [
            (table::NEW_ORDER, key::new_orders(w, d)),
            (table::CUSTOMER_ORDER, key::orders_of(w, d, c)),
            (table::ORDER_LINE, key::lines_of(w, d, 0, o)),
        ] {
            for key in [*range.start(), *range.end()] {
                assert_eq!(cover(RecordId { table, key }), Cover::By(key::district(w, d)), "{table} {key:x}");
            }
        }
        for payment in [key::payment(w, 5, 6), key::first_payment(w, d, c)] {
            assert_eq!(cover(payment), Cover::By(key::warehouse(w)));
        }
        assert_eq!(cover(key::stock(w, 8)), Cover::OneOf(stocks(w)));
        assert_eq!(key::warehouse_of(stocks(w).key), w);
        assert_eq!(cover(key::district(w, d)), Cover::Own);
    }

    #[test]
    fn every_transaction_of_a_district_holds_it() {
        let (_, inputs) = inputs(500);
        let mut set = ReadWriteSet::new();
        for input in inputs {
            set.clear();
            declare(&input, &mut set);
            let (w, d) = (input.warehouse, input.district);
            let intent = match input.job {
                Job::OrderStatus(_) | Job::StockLevel { .. } => Intent::Read,
                _ => Intent::Write,
            };
            assert!(set.covers(cover(key::order(w, d, 1)), intent), "{input:?}");
            let writes = set.covers(cover(key::order(w, d, 1)), Intent::Write);
            assert_eq!(writes, intent == Intent::Write);
        }
    }
}
