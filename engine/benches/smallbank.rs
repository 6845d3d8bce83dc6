//! SmallBank on loopback: what a transaction costs when the network costs nothing but memory accesses.
//!
//! DrTM+H plan without replication, one worker thread per node, the default 100 000 accounts per thread.
//! `cargo bench -p doorbell-engine --bench smallbank [-- NODES SECONDS [PLAN]]` prints committed transactions per second and
//! core, latencies and where the verbs went. Not criterion: a closed load over threads has its own clock and warm-up.
//! `COROUTINES=n` overrides the plan's; `TRANSACTIONS=n` runs so many per coroutine instead of a time, for counting
//! instructions: run the binary under `valgrind --tool=callgrind` for two values and divide the difference.

mod common;

use engine::cluster::run;
use engine::protocol::{AnyProtocol, Occ};
use engine::workload::AnyWorkload;
use std::sync::atomic::AtomicBool;

fn main() {
    let (spec, preset) = common::spec(&common::arguments());
    let workload = AnyWorkload::parse("smallbank", spec.scale(), []).expect("the defaults");
    let result =
        run(&spec, &workload, AnyProtocol::Occ(Occ), &AtomicBool::new(false)).expect("loopback runs");
    common::report(&spec, preset, &result);
}
