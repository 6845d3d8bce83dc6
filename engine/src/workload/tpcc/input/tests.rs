use super::super::tests::small;
use super::super::{NO_PARAMS, PARAMS, Tpcc};
use super::*;
use crate::workload::{Scale, Workload};
use primitives::units::Nanos;
use rand::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;

const DRAWS: u64 = 40_000;

fn client(node: u16) -> Client {
    Client { node, worker: 0, number: u32::from(node), serial: 3, now: Nanos(50) }
}

fn drawn(db: &Tpcc, node: u16) -> Vec<Input> {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(11);
    (0..DRAWS).map(|_| db.draw_at(client(node), &mut rng)).collect()
}

/// A share within five standard deviations of `p`.
fn is_share(count: usize, of: usize, p: f64) {
    let share = count as f64 / of as f64;
    let near = 5.0 * (p * (1.0 - p) / of as f64).sqrt();
    assert!((share - p).abs() <= near, "{share} for {p}, of {of}");
}

#[test]
fn the_mix_and_its_choices_have_the_shares_of_the_specification() {
    let db = small(&[("customers_per_district", "3000"), ("items", "100000")]);
    let inputs = drawn(&db, 1);
    let kinds = |of: fn(&Job) -> bool| inputs.iter().filter(|i| of(&i.job)).count();
    let all = inputs.len();
    is_share(kinds(|j| matches!(j, Job::NewOrder(_))), all, 0.45);
    is_share(kinds(|j| matches!(j, Job::Payment(_))), all, 0.43);
    is_share(kinds(|j| matches!(j, Job::OrderStatus(_))), all, 0.04);
    is_share(kinds(|j| matches!(j, Job::Delivery { .. })), all, 0.04);
    is_share(kinds(|j| matches!(j, Job::StockLevel { .. })), all, 0.04);

    let (mut orders, mut lines, mut remote, mut unused) = (0, 0, 0, 0);
    let (mut payments, mut elsewhere, mut whos, mut names) = (0, 0, 0, 0);
    for input in &inputs {
        // Node 1 has the second of three warehouses.
        assert_eq!((input.warehouse, input.node, input.date), (1, 1, 52));
        assert!(input.district < DISTRICTS);
        match input.job {
            Job::NewOrder(order) => {
                orders += 1;
                assert!((5..=15).contains(&order.count) && (1..=3000).contains(&order.customer));
                let used = &order.lines[..usize::from(order.count)];
                for line in used {
                    lines += 1;
                    remote += usize::from(line.supplier != 1);
                    assert!((1..=10).contains(&line.quantity) && line.supplier < 3);
                }
                let (last, others) = used.split_last().unwrap();
                assert!(others.iter().all(|line| (1..=100_000).contains(&line.item)));
                unused += usize::from(last.item == 100_001);
                assert!((1..=100_001).contains(&last.item));
            }
            Job::Payment(payment) => {
                payments += 1;
                elsewhere += usize::from(payment.customer_warehouse != 1);
                assert!(payment.customer_warehouse < 3 && payment.customer_district < DISTRICTS);
                if payment.customer_warehouse == 1 {
                    assert_eq!(payment.customer_district, input.district);
                }
                assert!((100..=500_000).contains(&payment.amount));
                assert_eq!((payment.client, payment.serial), (1, 3));
                whos += 1;
                names += usize::from(matches!(payment.who, Who::Name(0..1000)));
            }
            Job::OrderStatus(who) => {
                whos += 1;
                names += usize::from(matches!(who, Who::Name(_)));
                assert!(matches!(who, Who::Name(0..1000) | Who::Id(1..=3000)));
            }
            Job::Delivery { carrier } => assert!((1..=10).contains(&carrier)),
            Job::StockLevel { threshold } => assert!((10..=20).contains(&threshold)),
        }
    }
    is_share(remote, lines, 0.01);
    is_share(unused, orders, 0.01);
    is_share(elsewhere, payments, 0.15);
    is_share(names, whos, 0.6);
}

#[test]
fn one_warehouse_has_no_others_to_ask() {
    let db = small(&[("warehouses", "1"), ("remote_item_share", "1"), ("remote_payment_share", "1")]);
    for node in [0, 1] {
        for input in drawn(&db, node).iter().take(500) {
            match input.job {
                Job::NewOrder(order) => assert!(order.lines.iter().all(|line| line.supplier == 0)),
                Job::Payment(payment) => assert_eq!(payment.customer_warehouse, 0),
                _ => {}
            }
        }
    }
}

#[test]
fn the_preset_is_always_distributed() {
    assert_eq!(PARAMS.len(), NO_PARAMS.len());
    for (warehouses, share) in [("0", "1"), ("5", "0"), ("2", "0.1")] {
        let scale = Scale { nodes: 2, workers: 2 };
        let settings = [
            ("items", "40"),
            ("customers_per_district", "10"),
            ("orders_per_district", "10"),
            ("warehouses", warehouses),
            ("remote_item_share", share),
        ];
        let db = Tpcc::parse("tpcc-no", scale, settings).unwrap();
        for input in drawn(&db, 0).iter().take(5_000) {
            let Job::NewOrder(order) = input.job else { panic!("{input:?}") };
            let used = &order.lines[..usize::from(order.count)];
            let node = |line: &&Line| db.size().node_of(line.supplier.into());
            let home = db.size().node_of(input.warehouse);
            let distributed = used.iter().filter(|line| node(line) != home).count();
            assert!(distributed > 0, "{input:?}");
            if share == "1" {
                assert_eq!(distributed, used.len());
            }
            if share == "0" {
                assert_eq!(distributed, 1);
            }
            // Lines that are not remote are the home warehouse's.
            assert!(
                used.iter().all(|line| node(&line) != home || u64::from(line.supplier) == input.warehouse)
            );
        }
    }
}
