//! Each condition notices what breaks it.

use super::super::columns::*;
use super::super::tests::{counted, loaded, small};
use super::super::{Tally, Tpcc};
use super::*;
use crate::workload::Workload;

type Records = BTreeMap<RecordId, Vec<u64>>;

fn failing(db: &Tpcc, before: &Tally, records: &Records) -> Vec<&'static str> {
    let now = counted(db, records);
    let checks = db.check(before, &Tally::default(), &now);
    checks.iter().filter(|c| !c.passed).map(|c| c.name.trim_start_matches("tpcc-3.3.2.")).collect()
}

/// What a change of the records makes fail, beside the sums.
fn breaks(what: &str, change: impl Fn(&mut Records), expected: &[&str]) {
    let db = small(&[]);
    let mut records = loaded(&db);
    let before = counted(&db, &records);
    assert!(failing(&db, &before, &records).is_empty());
    change(&mut records);
    let mut failed = failing(&db, &before, &records);
    failed.retain(|name| *name != "totals-add-up");
    assert_eq!(failed, expected, "{what}");
}

fn word(records: &mut Records, record: RecordId, column: Num) -> &mut u64 {
    &mut records.get_mut(&record).expect("it is loaded")[column.word()]
}

use crate::workload::columns::Num;

#[test]
fn money_that_is_not_where_it_should_be() {
    breaks("W_YTD", |r| *word(r, key::warehouse(1), warehouse::YTD) += 1, &["1", "8"]);
    breaks("D_YTD", |r| *word(r, key::district(2, 9), district::YTD) -= 1, &["1", "9"]);
    breaks("H_AMOUNT", |r| *word(r, key::first_payment(0, 0, 1), history::AMOUNT) += 5, &["8", "9", "10"]);
    breaks(
        "a payment booked to another district",
        |r| *word(r, key::first_payment(0, 0, 1), history::D_ID) = 1,
        &["9"],
    );
    breaks(
        "a payment of another customer",
        |r| *word(r, key::first_payment(0, 0, 1), history::C_ID) = 2,
        &["10"],
    );
    breaks("C_BALANCE", |r| *word(r, key::customer(1, 1, 3), customer::BALANCE) += 1, &["10", "12"]);
    breaks("C_YTD_PAYMENT", |r| *word(r, key::customer(1, 1, 3), customer::YTD_PAYMENT) += 1, &["12"]);
    breaks("OL_AMOUNT", |r| *word(r, key::order_line(1, 1, 3, 1), order_line::AMOUNT) += 1, &["10", "12"]);
    breaks(
        "two customers' money changed places",
        |r| {
            *word(r, key::customer(1, 1, 3), customer::BALANCE) += 1;
            *word(r, key::customer(1, 1, 4), customer::BALANCE) -= 1;
        },
        &["10", "12"],
    );
}

#[test]
fn orders_that_are_not_as_they_should_be() {
    breaks("D_NEXT_O_ID", |r| *word(r, key::district(0, 4), district::NEXT_O_ID) += 1, &["2"]);
    breaks("a hole among new orders", |r| drop(r.remove(&key::new_order(0, 4, 9))), &["3", "5", "11"]);
    breaks("the newest entry gone", |r| drop(r.remove(&key::new_order(0, 4, 10))), &["2", "5", "11"]);
    breaks("O_OL_CNT", |r| *word(r, key::order(0, 4, 3), order::OL_CNT) += 1, &["4", "6"]);
    breaks("a line gone", |r| drop(r.remove(&key::order_line(0, 4, 3, 2))), &["4", "6"]);
    breaks(
        "as many lines, of other orders",
        |r| {
            *word(r, key::order(0, 4, 3), order::OL_CNT) += 1;
            *word(r, key::order(0, 4, 4), order::OL_CNT) -= 1;
        },
        &["6"],
    );
    breaks("no carrier", |r| *word(r, key::order(0, 4, 3), order::CARRIER_ID) = 0, &["5", "7", "11"]);
    breaks(
        "a carrier too early",
        |r| *word(r, key::order(0, 4, 9), order::CARRIER_ID) = 1,
        &["5", "7", "11"],
    );
    breaks("OL_DELIVERY_D", |r| *word(r, key::order_line(0, 4, 3, 1), order_line::DELIVERY_D) = 0, &["7"]);
    breaks("an order gone", |r| drop(r.remove(&key::order(0, 4, 3))), &["4", "5", "6", "7", "11"]);
    breaks(
        "an order of an absurd number",
        |r| {
            let order = r[&key::order(0, 4, 3)].clone();
            r.insert(key::order(0, 4, 1 << 31), order);
        },
        &["2", "11"],
    );
}

#[test]
fn sums_that_no_condition_speaks_of() {
    let db = small(&[]);
    let mut records = loaded(&db);
    let before = counted(&db, &records);
    *word(&mut records, key::stock(1, 7), stock::YTD) += 1;
    assert_eq!(failing(&db, &before, &records), ["totals-add-up"]);
    *word(&mut records, key::stock(1, 7), stock::YTD) -= 1;
    records.remove(&key::item(1, 7));
    assert_eq!(failing(&db, &before, &records), ["totals-add-up"]);
}

#[test]
fn a_payment_at_another_nodes_warehouse_is_held_against_its_customer() {
    let db = small(&[]);
    let mut records = loaded(&db);
    let before = counted(&db, &records);
    // Customer 5 of a warehouse on node 1 pays 7 cents at a warehouse on node 0.
    let mut row = records[&key::first_payment(0, 0, 1)].clone();
    for (column, value) in [
        (history::C_ID, 5),
        (history::C_D_ID, 2),
        (history::C_W_ID, 1),
        (history::D_ID, 4),
        (history::AMOUNT, 7),
    ] {
        row[column.word()] = value;
    }
    records.insert(key::payment(0, 3, 1), row);
    *word(&mut records, key::warehouse(0), warehouse::YTD) += 7;
    *word(&mut records, key::district(0, 4), district::YTD) += 7;
    let customer = key::customer(1, 2, 5);
    *word(&mut records, customer, customer::YTD_PAYMENT) += 7;
    let balance = word(&mut records, customer, customer::BALANCE);
    *balance = balance.wrapping_sub(7);
    assert_eq!(failing(&db, &before, &records), ["totals-add-up"]);
    let mut effects = Totals::default();
    for total in [Total::WarehousesPaid, Total::DistrictsPaid, Total::CustomersPaid, Total::HistoryPaid] {
        effects.add(total, 7);
    }
    effects.add(Total::Balances, -7);
    effects.add(Total::Payments, 1);
    let now = counted(&db, &records);
    let checks = db.check(&before, &effects.into(), &now);
    assert!(checks.iter().all(|c| c.passed), "{checks:#?}");
}
