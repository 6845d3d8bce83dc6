//! Keys: `warehouse:16 | rest:48`, so that everything of a warehouse lies on one node, and a table's records of one
//! district, order or customer are neighbours in the order of keys.
//!
//! Warehouses and districts count from 0, customers, orders, order lines and items from 1 as in the specification.

use super::DISTRICTS;
use super::table;
use crate::workload::RecordId;
use std::ops::RangeInclusive;

/// Bits of a key below the warehouse: a warehouse's keys are one block of placement.
pub const WAREHOUSE_SHIFT: u32 = 48;
/// Most warehouses.
pub const MOST_WAREHOUSES: u64 = 1 << 16;
/// Most customers of a district.
pub const MOST_CUSTOMERS: u64 = (1 << 12) - 1;
/// Most coroutines of a cluster, whose payments must be told apart.
pub const MOST_CLIENTS: u64 = 1 << CLIENT_BITS;
const CLIENT_BITS: u32 = 20;
const SERIAL_BITS: u32 = 27;
/// Most lines of an order; numbers 0 and above are free for bounds.
pub const MOST_LINES: u64 = 15;

/// The warehouse, or node, of any key.
#[inline]
pub const fn warehouse_of(key: u64) -> u64 {
    key >> WAREHOUSE_SHIFT
}

const fn at(warehouse: u64, rest: u64) -> u64 {
    warehouse << WAREHOUSE_SHIFT | rest
}

const fn in_district(warehouse: u64, district: u64, rest: u64) -> u64 {
    at(warehouse, district << 32 | rest)
}

/// A warehouse.
pub const fn warehouse(w: u64) -> RecordId {
    RecordId { table: table::WAREHOUSE, key: at(w, 0) }
}

/// A district.
pub const fn district(w: u64, d: u64) -> RecordId {
    RecordId { table: table::DISTRICT, key: at(w, d) }
}

/// A customer.
pub const fn customer(w: u64, d: u64, c: u64) -> RecordId {
    RecordId { table: table::CUSTOMER, key: in_district(w, d, c) }
}

/// A customer in the order of last name `last` and then its `rank` by first name among those of that last name.
pub const fn customer_name(w: u64, d: u64, last: u64, rank: u64, c: u64) -> RecordId {
    RecordId { table: table::CUSTOMER_NAME, key: at(w, d << 34 | last << 24 | rank << 12 | c) }
}

/// All customers of that last name.
pub const fn of_name(w: u64, d: u64, last: u64) -> RangeInclusive<u64> {
    customer_name(w, d, last, 0, 0).key..=customer_name(w, d, last, 0xfff, 0xfff).key
}

/// The payment of 10.00 that each customer begins with.
pub const fn first_payment(w: u64, d: u64, c: u64) -> RecordId {
    RecordId { table: table::HISTORY, key: in_district(w, d, c) }
}

/// A payment that a coroutine took for warehouse `w`; its `serial` comes back after 2²⁷ transactions of that coroutine.
pub const fn payment(w: u64, client: u64, serial: u64) -> RecordId {
    let client = client & (MOST_CLIENTS - 1);
    let serial = serial & ((1 << SERIAL_BITS) - 1);
    RecordId { table: table::HISTORY, key: at(w, 1 << 47 | client << SERIAL_BITS | serial) }
}

/// An order that has not been delivered.
pub const fn new_order(w: u64, d: u64, o: u64) -> RecordId {
    RecordId { table: table::NEW_ORDER, key: in_district(w, d, o) }
}

/// A district's orders that have not been delivered.
pub const fn new_orders(w: u64, d: u64) -> RangeInclusive<u64> {
    in_district(w, d, 0)..=in_district(w, d, u32::MAX as u64)
}

/// An order.
pub const fn order(w: u64, d: u64, o: u64) -> RecordId {
    RecordId { table: table::ORDER, key: in_district(w, d, o) }
}

/// An order in the order of its customer.
pub const fn customer_order(w: u64, d: u64, c: u64, o: u64) -> RecordId {
    RecordId { table: table::CUSTOMER_ORDER, key: at(w, d << 44 | c << 32 | o) }
}

/// A customer's orders.
pub const fn orders_of(w: u64, d: u64, c: u64) -> RangeInclusive<u64> {
    customer_order(w, d, c, 0).key..=customer_order(w, d, c, u32::MAX as u64).key
}

/// Line `line` of an order.
pub const fn order_line(w: u64, d: u64, o: u64, line: u64) -> RecordId {
    RecordId { table: table::ORDER_LINE, key: at(w, (d << 32 | o) << 4 | line) }
}

/// The lines of orders `first` to `last`.
pub const fn lines_of(w: u64, d: u64, first: u64, last: u64) -> RangeInclusive<u64> {
    order_line(w, d, first, 0).key..=order_line(w, d, last, MOST_LINES).key
}

/// A node's copy of an item.
pub const fn item(node: u64, i: u64) -> RecordId {
    RecordId { table: table::ITEM, key: at(node, i) }
}

/// A warehouse's stock of an item.
pub const fn stock(w: u64, i: u64) -> RecordId {
    RecordId { table: table::STOCK, key: at(w, i) }
}

/// District and number, of the key of a customer, an order, a new order or a first payment.
#[inline]
pub(super) const fn district_and_number(key: u64) -> (u64, u64) {
    (key >> 32 & 0xf, key & 0xffff_ffff)
}

/// The district of the key of an order in the order of its customer.
#[inline]
pub(super) const fn district_of_customer_order(key: u64) -> u64 {
    key >> 44 & 0xf
}

/// District, order and line, of the key of an order line.
#[inline]
pub(super) const fn order_and_line(key: u64) -> (u64, u64, u64) {
    let (d, o) = district_and_number(key >> 4);
    (d, o, key & 0xf)
}

/// The number of a district in the whole cluster.
#[inline]
pub(super) const fn district_number(w: u64, d: u64) -> u64 {
    w * DISTRICTS + d
}

#[cfg(test)]
mod tests {
    use super::*;

    const W: u64 = MOST_WAREHOUSES - 1;

    #[test]
    fn keys_keep_their_warehouse_and_come_apart_again() {
        let (d, o) = (DISTRICTS - 1, u64::from(u32::MAX));
        let all = [
            warehouse(W),
            district(W, d),
            customer(W, d, MOST_CUSTOMERS),
            customer_name(W, d, 999, 0xfff, MOST_CUSTOMERS),
            first_payment(W, d, MOST_CUSTOMERS),
            payment(W, MOST_CLIENTS - 1, u64::MAX),
            new_order(W, d, o),
            order(W, d, o),
            customer_order(W, d, MOST_CUSTOMERS, o),
            order_line(W, d, o, MOST_LINES),
            item(W, 1 << 40),
            stock(W, 1 << 40),
        ];
        assert!(all.iter().all(|record| warehouse_of(record.key) == W), "{all:x?}");
        assert_eq!(district_and_number(order(W, d, o).key), (d, o));
        assert_eq!(order_and_line(order_line(W, d, o, 7).key), (d, o, 7));
        assert_eq!(order_and_line(order_line(3, 4, 5, 6).key), (4, 5, 6));
        assert_eq!(district_of_customer_order(customer_order(W, d, MOST_CUSTOMERS, o).key), d);
    }

    #[test]
    fn ranges_hold_their_own_and_nothing_of_the_neighbours() {
        let inside = |range: RangeInclusive<u64>, own: &[RecordId], others: &[RecordId]| {
            assert!(own.iter().all(|r| range.contains(&r.key)), "{own:x?} in {range:x?}");
            assert!(!others.iter().any(|r| range.contains(&r.key)), "{others:x?} in {range:x?}");
        };
        inside(
            of_name(2, 3, 371),
            &[customer_name(2, 3, 371, 0, 1), customer_name(2, 3, 371, 0xfff, MOST_CUSTOMERS)],
            &[
                customer_name(2, 3, 370, 0xfff, MOST_CUSTOMERS),
                customer_name(2, 3, 372, 0, 1),
                customer_name(2, 4, 371, 0, 1),
                customer_name(1, 3, 371, 0, 1),
            ],
        );
        inside(
            new_orders(2, 3),
            &[new_order(2, 3, 1), new_order(2, 3, u32::MAX.into())],
            &[new_order(2, 2, 7), new_order(2, 4, 1), new_order(3, 3, 1)],
        );
        inside(
            orders_of(2, 3, 4),
            &[customer_order(2, 3, 4, 1), customer_order(2, 3, 4, u32::MAX.into())],
            &[customer_order(2, 3, 3, 9), customer_order(2, 3, 5, 1), customer_order(2, 4, 4, 1)],
        );
        inside(
            lines_of(2, 3, 10, 29),
            &[order_line(2, 3, 10, 1), order_line(2, 3, 29, MOST_LINES)],
            &[order_line(2, 3, 9, MOST_LINES), order_line(2, 3, 30, 1), order_line(2, 4, 10, 1)],
        );
    }

    #[test]
    fn payments_taken_differ_from_those_of_the_population() {
        assert_ne!(payment(0, 0, 1).key, first_payment(0, 0, 1).key);
        assert!(payment(0, 0, 0).key > first_payment(0, DISTRICTS - 1, MOST_CUSTOMERS).key);
        assert_ne!(payment(0, 1, 0).key, payment(0, 0, 1).key);
    }
}
