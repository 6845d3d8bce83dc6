//! TPC-C on loopback: what new-orders and the whole mix cost when the network costs nothing but memory accesses.
//!
//! DrTM+H plan without replication, one worker thread per node with a warehouse of its own, of the specification's size.
//! `cargo bench -p doorbell-engine --bench tpcc [-- WORKLOAD NODES SECONDS [PLAN]]` prints committed transactions per second and
//! core; WORKLOAD is `tpcc`, `tpcc-no`, or `new-order` (not distributed: 1 % of lines are another warehouse's), which is the
//! default. `COROUTINES=n` overrides the plan's; `TRANSACTIONS=n` runs so many per coroutine instead of a time, for counting
//! instructions as in `smallbank`; `ITEMS=n`, `CUSTOMERS=n` and `ROOM=n` change sizes.
//!
//! Orders stay, so a second of new-orders takes memory: room for `ROOM` orders in each district is set aside.

mod common;

use common::variable;
use engine::cluster::{memory_estimate, run};
use engine::protocol::{AnyProtocol, Occ};
use engine::workload::AnyWorkload;
use std::sync::atomic::AtomicBool;

const NEW_ORDER: &[(&str, &str)] =
    &[("payment", "0"), ("order_status", "0"), ("delivery", "0"), ("stock_level", "0")];

fn main() {
    let args = common::arguments();
    let asked = args.first().map_or("new-order", String::as_str);
    let (spec, preset) = common::spec(args.get(1..).unwrap_or_default());
    let (name, mix) = if asked == "new-order" { ("tpcc", NEW_ORDER) } else { (asked, &[][..]) };
    let sizes =
        [("items", "ITEMS"), ("customers_per_district", "CUSTOMERS"), ("order_room_per_district", "ROOM")];
    let mut settings: Vec<(&str, String)> = mix.iter().map(|&(key, value)| (key, value.to_owned())).collect();
    // What a measurement of the default length fills on a fast machine, twice over.
    if variable("ROOM").is_none() {
        settings.push(("order_room_per_district", "60000".to_owned()));
    }
    for (key, asked) in sizes {
        settings.extend(variable(asked).map(|n| (key, n.to_string())));
    }
    if let Some(customers) = variable("CUSTOMERS") {
        settings.push(("orders_per_district", customers.to_string()));
    }
    let settings = settings.iter().map(|(key, value)| (*key, value.as_str()));
    let workload = AnyWorkload::parse(name, spec.scale(), settings).expect("a workload of the bench");
    let protocol = AnyProtocol::Occ(Occ);
    println!("{asked}: about {} MiB", memory_estimate(&spec, &workload, &protocol) >> 20);
    let result = run(&spec, &workload, protocol, &AtomicBool::new(false)).expect("loopback runs");
    common::report(&spec, preset, &result);
}
