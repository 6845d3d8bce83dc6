//! A small database, for the tests of this folder; parameters; tables.

use super::*;
use std::collections::BTreeMap;

/// Two nodes, three warehouses, ten customers and orders in each district.
pub(super) fn small(settings: &[(&'static str, &'static str)]) -> Tpcc {
    let scale = Scale { nodes: 2, workers: 1 };
    let sizes = [
        ("warehouses", "3"),
        ("customers_per_district", "10"),
        ("orders_per_district", "10"),
        ("items", "40"),
        ("order_room_per_district", "5"),
    ];
    let mut all: Vec<(&str, &str)> = sizes.to_vec();
    all.retain(|(key, _)| !settings.iter().any(|(set, _)| set == key));
    all.extend(settings);
    Tpcc::parse("tpcc", scale, all).expect("settings of a test")
}

/// All records at first.
pub(super) fn loaded(db: &Tpcc) -> BTreeMap<RecordId, Vec<u64>> {
    let mut records = BTreeMap::new();
    for (number, def) in db.tables().iter().enumerate() {
        for node in 0..db.size.nodes {
            for key in db.population.keys(number as u16, node) {
                let record = RecordId { table: number as u16, key };
                let mut words = vec![0; def.payload_bytes as usize / 8];
                db.fill(record, &mut words);
                assert!(records.insert(record, words).is_none(), "{record:?} twice");
            }
        }
    }
    records
}

/// What a count of these records comes to, each node counted on its own.
pub(super) fn counted(db: &Tpcc, records: &BTreeMap<RecordId, Vec<u64>>) -> Tally {
    let mut all = Tally::default();
    for node in 0..db.size.nodes {
        let mut sum = Tally::default();
        let here = records.iter().filter(|(r, _)| db.size.node_of(key::warehouse_of(r.key)) == node);
        here.for_each(|(&record, words)| db.tally(record, words, &mut sum));
        db.settle(&mut sum);
        // As it travels.
        let text = serde_json::to_string(&sum).expect("a tally has a text");
        all += serde_json::from_str::<Tally>(&text).expect("and comes back");
    }
    all
}

#[test]
fn tables_have_room_for_what_is_loaded_and_say_how_much_that_is() {
    for (nodes, warehouses) in [(1, "1"), (2, "3"), (3, "2"), (3, "7")] {
        let scale = Scale { nodes, workers: 1 };
        let settings = [
            ("warehouses", warehouses),
            ("customers_per_district", "20"),
            ("orders_per_district", "20"),
            ("items", "30"),
            ("order_room_per_district", "0"),
        ];
        let db = Tpcc::parse("tpcc", scale, settings).unwrap();
        let layout_free = |table: u16, node: u64| db.population.keys(table, node).collect::<Vec<u64>>();
        for (number, def) in db.tables().iter().enumerate() {
            let mut all = 0;
            for node in 0..u64::from(nodes) {
                let keys = layout_free(number as u16, node);
                assert!(keys.is_sorted() && keys.windows(2).all(|pair| pair[0] < pair[1]), "{}", def.name);
                let own = |&&key: &&u64| key / def.keys_per_block % u64::from(nodes) == node;
                assert_eq!(keys.iter().filter(own).count(), keys.len(), "{}: keys of other nodes", def.name);
                assert!(keys.len() as u64 <= def.capacity_per_node, "{}: {}", def.name, keys.len());
                all += keys.len() as u64;
            }
            // Of lines the mean is told: six standard deviations.
            let off = if number as u16 == table::ORDER_LINE { 19 * (def.records / 10).isqrt() } else { 0 };
            assert!(all.abs_diff(def.records) <= off, "{}: {all} of {}", def.name, def.records);
            assert!(def.payload_bytes.is_multiple_of(8));
        }
    }
}

#[test]
fn settings_that_cannot_work_are_refused_with_the_reason() {
    let refusal = |name, nodes, settings: &[(&str, &str)]| {
        let scale = Scale { nodes, workers: 1 };
        Tpcc::parse(name, scale, settings.iter().copied()).unwrap_err().to_string()
    };
    let weights = ["new_order", "payment", "order_status", "delivery", "stock_level"].map(|name| (name, "0"));
    assert!(refusal("tpcc", 1, &weights).contains("all weights"));
    let orders = [("customers_per_district", "10"), ("orders_per_district", "11")];
    assert!(refusal("tpcc", 1, &orders).contains("each order is another customer's"));
    assert!(refusal("tpcc-no", 1, &[("items", "10")]).contains("two nodes"));
    assert!(refusal("tpcc-no", 2, &[("warehouses", "1")]).contains("1 warehouses on 2 nodes"));
    assert!(refusal("tpcc", 1, &[("warehouses", "65537")]).contains("from 0 to 65536"));
}

#[test]
fn the_preset_is_new_order_alone() {
    let scale = Scale { nodes: 2, workers: 2 };
    let settings = [("items", "40"), ("customers_per_district", "10"), ("orders_per_district", "10")];
    let db = Tpcc::parse("tpcc-no", scale, settings).unwrap();
    assert_eq!((db.name(), db.size().warehouses), ("tpcc-no", 4));
    let weights = KINDS.map(|(_, kind)| db.mix.kinds.weight(kind));
    assert_eq!(weights, [45, 0, 0, 0, 0]);
    // Three rows; item, stock and line of each of fifteen; three entries.
    assert_eq!(db.records_per_transaction(), 51);
}

#[test]
fn a_database_as_loaded_is_consistent_and_its_counts_add_up() {
    let db = small(&[]);
    let records = loaded(&db);
    let before = counted(&db, &records);
    let checks = db.check(&before, &Tally::default(), &before);
    assert_eq!(checks.len(), 13);
    let failed: Vec<_> = checks.iter().filter(|c| !c.passed).collect();
    assert!(failed.is_empty(), "{failed:#?}");
    for (total, count) in [
        (Total::Warehouses, 3),
        (Total::Customers, 300),
        (Total::Orders, 300),
        (Total::NewOrders, 90),
        (Total::Items, 80),
        (Total::Stocks, 120),
        (Total::WarehousesPaid, 300_000),
        (Total::Balances, -300_000),
    ] {
        assert_eq!(before.totals.get(total), count, "{total:?}");
    }
    // What was not counted at all does not pass.
    let nothing = db.check(&Tally::default(), &Tally::default(), &Tally::default());
    assert!(nothing.iter().take(12).all(|c| !c.passed), "{nothing:#?}");
}
