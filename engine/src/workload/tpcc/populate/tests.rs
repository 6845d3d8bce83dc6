use super::super::columns::*;
use super::super::customer::NAMESAKES;
use super::super::tests::{loaded, small};
use super::*;
use crate::workload::columns::Num;
use std::collections::{BTreeMap, BTreeSet};

/// Five standard deviations of a count of `n` cases of probability `p`.
fn near(n: f64, p: f64) -> f64 {
    5.0 * (n * p * (1.0 - p)).sqrt()
}

fn text_of(words: &[u64], column: Text) -> Vec<u8> {
    column.get(words)
}

/// A district of the specification's size, without the rest.
fn full() -> Population {
    let size = Size {
        nodes: 1,
        workers: 1,
        warehouses: 1,
        customers: 3000,
        orders: 3000,
        items: 100_000,
        order_room: 0,
    };
    Population { seed: 1, size, draws: Distributions::new(1, 1000, 3000, 100_000) }
}

fn filled(p: &Population, record: RecordId, words: usize) -> Vec<u64> {
    let mut payload = vec![0; words];
    p.fill(record, &mut payload);
    payload
}

#[test]
fn orders_are_of_all_customers_in_random_order_and_the_last_are_new() {
    let p = full();
    let customers: Vec<u64> = (1..=3000).map(|o| p.customer_of(0, 3, o)).collect();
    assert_eq!(customers.iter().collect::<BTreeSet<_>>().len(), 3000);
    assert!(customers.iter().all(|c| (1..=3000).contains(c)));
    assert_ne!(customers, (1..=3000).map(|o| p.customer_of(0, 4, o)).collect::<Vec<_>>());
    let new: Vec<u64> = p.keys(table::NEW_ORDER, 0).collect();
    assert_eq!(new.len(), 9000);
    assert!(new.iter().all(|key| key::district_and_number(*key).1 > 2100));
    for o in [1, 2100, 2101, 3000] {
        let row = filled(&p, key::order(0, 3, o), order::WORDS);
        let carrier = row[order::CARRIER_ID.word()];
        assert_eq!(o <= 2100, (1..=10).contains(&carrier), "order {o} has carrier {carrier}");
        assert_eq!(row[order::C_ID.word()], customers[o as usize - 1]);
        let line = filled(&p, key::order_line(0, 3, o, 1), order_line::WORDS);
        assert_eq!(o <= 2100, line[order_line::DELIVERY_D.word()] != 0);
        assert_eq!(o <= 2100, line[order_line::AMOUNT.word()] == 0);
    }
}

#[test]
fn orders_have_5_to_15_lines_all_numbers_alike() {
    let p = full();
    let mut counts = [0f64; 11];
    let mut sum = 0;
    for d in 0..DISTRICTS {
        for o in 1..=3000 {
            let lines = p.line_count(0, d, o);
            counts[lines as usize - 5] += 1.0;
            sum += lines;
        }
    }
    assert_eq!(p.keys(table::ORDER_LINE, 0).count() as u64, sum);
    let chi: f64 = counts.iter().map(|n| (n - 30_000.0 / 11.0).powi(2) / (30_000.0 / 11.0)).sum();
    // The 99.99 % quantile at 10 degrees of freedom.
    assert!(chi < 35.6, "chi-square {chi}");
}

#[test]
fn names_are_in_order_of_first_names_within_last_names() {
    let p = full();
    let mut of_name: BTreeMap<u64, Vec<(Vec<u8>, u64)>> = BTreeMap::new();
    let mut seen = BTreeSet::new();
    for key in p.names(0, 7) {
        let (last, rank, c) = (key >> 24 & 0x3ff, key >> 12 & 0xfff, key & 0xfff);
        let customer = filled(&p, key::customer(0, 7, c), customer::WORDS);
        let mut name = [0; 16];
        let len = last_name(last, &mut name);
        assert_eq!(text_of(&customer, customer::LAST), &name[..len]);
        let namesakes = of_name.entry(last).or_default();
        assert_eq!(rank, namesakes.len() as u64);
        namesakes.push((text_of(&customer, customer::FIRST), c));
        assert!(seen.insert(c));
        assert_eq!(filled(&p, RecordId { table: table::CUSTOMER_NAME, key }, 1), [c]);
    }
    assert_eq!((seen.len(), of_name.len()), (3000, 1000), "every name is somebody's");
    assert!(of_name.values().all(|names| names.is_sorted()));
    let most = of_name.values().map(Vec::len).max().unwrap();
    assert!((10..NAMESAKES * 3 / 4).contains(&most), "{most} of one name");
}

#[test]
fn one_in_ten_is_original_or_of_bad_credit() {
    let p = full();
    let has = |record, words, column| {
        let data = text_of(&filled(&p, record, words), column);
        assert!((26..=50).contains(&data.len()));
        data.windows(8).any(|w| w == ORIGINAL)
    };
    let n = 20_000u64;
    let items = (1..=n).filter(|&i| has(key::item(0, i), item::WORDS, item::DATA)).count() as f64;
    let stocks = (1..=n).filter(|&i| has(key::stock(0, i), stock::WORDS, stock::DATA)).count() as f64;
    let bad = (1..=3000)
        .filter(|&c| {
            let row = filled(&p, key::customer(0, 1, c), customer::WORDS);
            let credit = text_of(&row, customer::CREDIT);
            assert!(credit == b"BC" || credit == b"GC");
            credit == b"BC"
        })
        .count() as f64;
    for (count, n) in [(items, n as f64), (stocks, n as f64), (bad, 3000.0)] {
        assert!((count - n / 10.0).abs() < near(n, 0.1), "{count} of {n}");
    }
}

#[test]
fn columns_hold_what_the_specification_says() {
    let db = small(&[]);
    for (record, words) in loaded(&db) {
        let within = |column: Num, low: u64, high: u64| {
            let value = words[column.word()];
            assert!((low..=high).contains(&value), "{record:?}: {column:?} is {value}");
        };
        let long = |column: Text, low: usize, high: usize| {
            let value = text_of(&words, column);
            assert!((low..=high).contains(&value.len()), "{record:?}: {column:?} is {value:?}");
            assert!(value.iter().all(u8::is_ascii_alphanumeric));
        };
        match record.table {
            table::WAREHOUSE => {
                within(warehouse::TAX, 0, 2000);
                within(warehouse::YTD, 100_000, 100_000);
                long(warehouse::NAME, 6, 10);
                long(warehouse::STREET_1, 10, 20);
                long(warehouse::STATE, 2, 2);
                assert!(text_of(&words, warehouse::ZIP).ends_with(b"11111"));
            }
            table::DISTRICT => {
                within(district::TAX, 0, 2000);
                within(district::YTD, 10_000, 10_000);
                within(district::NEXT_O_ID, 11, 11);
                long(district::CITY, 10, 20);
                long(district::ZIP, 9, 9);
            }
            table::CUSTOMER => {
                assert_eq!(words[customer::BALANCE.word()] as i64, -1000);
                within(customer::YTD_PAYMENT, 1000, 1000);
                within(customer::PAYMENT_CNT, 1, 1);
                within(customer::DELIVERY_CNT, 0, 0);
                within(customer::CREDIT_LIM, 5_000_000, 5_000_000);
                within(customer::DISCOUNT, 0, 5000);
                within(customer::SINCE, 1, 1);
                long(customer::FIRST, 8, 16);
                long(customer::PHONE, 16, 16);
                long(customer::DATA, 300, 500);
                assert_eq!(text_of(&words, customer::MIDDLE), b"OE");
            }
            table::HISTORY => {
                within(history::AMOUNT, 1000, 1000);
                long(history::DATA, 12, 24);
            }
            table::ORDER => {
                within(order::OL_CNT, 5, 15);
                within(order::ALL_LOCAL, 1, 1);
                within(order::ENTRY_D, 1, 1);
            }
            table::ORDER_LINE => {
                within(order_line::I_ID, 1, 40);
                within(order_line::QUANTITY, 5, 5);
                within(order_line::AMOUNT, 0, 999_999);
                within(order_line::SUPPLY_W_ID, key::warehouse_of(record.key), key::warehouse_of(record.key));
                long(order_line::DIST_INFO, 24, 24);
            }
            table::ITEM => {
                within(item::IM_ID, 1, 10_000);
                within(item::PRICE, 100, 10_000);
                long(item::NAME, 14, 24);
            }
            table::STOCK => {
                within(stock::QUANTITY, 10, 100);
                for column in [stock::YTD, stock::ORDER_CNT, stock::REMOTE_CNT] {
                    within(column, 0, 0);
                }
                (0..DISTRICTS).for_each(|d| long(stock_dist(d), 24, 24));
            }
            _ => assert_eq!(words.len(), 1),
        }
    }
}

#[test]
fn contents_depend_on_the_seed_and_on_nothing_else() {
    let (one, again, two) = (small(&[]), small(&[]), small(&[("population_seed", "2")]));
    assert_eq!(loaded(&one), loaded(&again));
    let differ = loaded(&one).into_iter().zip(loaded(&two)).filter(|(a, b)| a != b).count();
    assert!(differ > loaded(&one).len() / 2, "{differ}");
    // Every node has the same items.
    let p = one.population();
    for i in 1..=40 {
        assert_eq!(filled(p, key::item(0, i), item::WORDS), filled(p, key::item(1, i), item::WORDS));
    }
}
