//! YCSB on loopback: what ten operations cost when the network costs nothing but memory accesses.
//!
//! The settings of `experiments/peers-ycsb.yaml`: one-sided plan without replication, one worker thread per node, rows of ten
//! fields of 10 B, half of the operations writes, zipfian keys. `cargo bench -p doorbell-engine --bench ycsb [-- PROTOCOL
//! THETA NODES SECONDS [PLAN]]` prints committed transactions per second and core; NOWAIT and 0.9 are the defaults.
//! `COROUTINES=n` (1 unless told otherwise, since loopback's requests are done once they are posted), `TRANSACTIONS=n` for
//! counting instructions as in `smallbank`, `RECORDS=n` rows per thread.

mod common;

use common::variable;
use engine::cluster::run;
use engine::protocol::{AnyProtocol, Protocol};
use engine::workload::AnyWorkload;
use std::sync::atomic::AtomicBool;

fn main() {
    let args = common::arguments();
    let protocol = args.first().map_or("nowait", String::as_str);
    let theta = args.get(1).map_or("0.9", String::as_str);
    let mut run_args: Vec<String> = args.get(2..).unwrap_or_default().to_vec();
    for default in ["2", "2", "one-sided"].iter().skip(run_args.len()) {
        run_args.push((*default).to_owned());
    }
    let (mut spec, preset) = common::spec(&run_args);
    spec.plan.coroutines = variable("COROUTINES").unwrap_or(1) as u32;
    let records = variable("RECORDS").unwrap_or(524_288).to_string();
    let settings = [
        ("records_per_thread", records.as_str()),
        ("fields", "10"),
        ("field_bytes", "10"),
        ("operations", "10"),
        ("write_share", "0.5"),
        ("zipf_theta", theta),
    ];
    let workload = AnyWorkload::parse("ycsb", spec.scale(), settings).expect("settings of the bench");
    let protocol = AnyProtocol::named(protocol).expect("a protocol's name");
    spec.plan = spec.plan.restricted_to(protocol.needs());
    let result = run(&spec, &workload, protocol, &AtomicBool::new(false)).expect("loopback runs");
    common::report(&spec, preset, &result);
}
