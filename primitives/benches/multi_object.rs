//! How long does a cluster of 16 nodes, 24 threads and 16 coroutines take to simulate a millisecond of the multi-object
//! benchmark (DrTM+H §4.2): ten objects of 64 B, read or written, one-sided or two-sided?
//!
//! `cargo bench -p doorbell-primitives --bench multi_object` prints CPU time per virtual millisecond, all optimizations
//! on, set-up apart. With `-- --once VERB MICROSECONDS` (read, write, rpc, rpc-write) it simulates one of them once, for a
//! profiler: under `valgrind --tool=callgrind` instructions can be compared where clocks cannot.

use primitives::bench::{self, BenchVerb, Rung, Scope};
use primitives::mesh::FabricSpec;
use primitives::profile::Profile;
use primitives::units::Nanos;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

const NODES: u16 = 16;
const THREADS: u16 = 24;
const COROUTINES: u32 = 16;

/// The multi-object questions count eight windows, and load runs before them.
const WINDOWS: u64 = 8;

/// CPU time of this thread, in the kernel's words, which can be had under valgrind too.
fn cpu_time() -> Duration {
    let all = std::fs::read_to_string("/proc/thread-self/schedstat").expect("a kernel with schedstat");
    Duration::from_nanos(all.split(' ').next().and_then(|ns| ns.parse().ok()).expect("nanoseconds first"))
}

/// CPU time of a run whose load lasts so long, its virtual time and events.
fn simulate(profile: &str, verb: BenchVerb, load: Nanos) -> (Duration, Nanos, u64) {
    let scope = Scope {
        nodes: NODES,
        threads: THREADS,
        coroutines: COROUTINES,
        quick: false,
        warm_up: Nanos(1_000),
        window: Nanos(load.0 / WINDOWS),
        precision: None,
        most: None,
    };
    let point = Rung::Doorbell.point("multi-object", verb, THREADS, COROUTINES);
    let profile = Profile::shipped(profile).expect("shipped");
    let fabric = FabricSpec::Sim { profile: Box::new(profile), seed: 1, faults: Box::default() };
    let start = cpu_time();
    let sample = bench::run(&fabric, &scope, &point, 1, &AtomicBool::new(false)).expect("it runs");
    (cpu_time() - start, sample.facts.virtual_time, sample.facts.events)
}

fn main() {
    let args: Vec<String> = std::env::args().collect();
    if let Some(at) = args.iter().position(|a| a == "--once") {
        let verb = args.get(at + 1).and_then(|name| BenchVerb::named(name)).expect("a verb");
        let load =
            args.get(at + 2).and_then(|us| us.parse().ok()).map(Nanos::from_micros).expect("microseconds");
        let (_, virtual_time, events) = simulate("cx4-edr-x2", verb, load);
        println!("{verb:?}: {events} events in {virtual_time}");
        return;
    }
    // `cargo test --benches` runs this file too.
    if !args.iter().any(|a| a == "--bench") {
        return;
    }
    println!(
        "{NODES} nodes x {THREADS} threads x {COROUTINES} coroutines, ten objects of 64 B, per virtual millisecond:"
    );
    for profile in ["cx4-edr", "cx4-edr-x2"] {
        for verb in [BenchVerb::Read, BenchVerb::Write, BenchVerb::Rpc, BenchVerb::RpcWrite] {
            // Two loads, one longer by a millisecond: set-up and the end of the run are in both.
            let (short, began, few) = simulate(profile, verb, Nanos::from_micros(200));
            let (long, ended, many) = simulate(profile, verb, Nanos::from_micros(1_200));
            let ms = (ended.0 - began.0) as f64 / 1e6;
            let spent = long.saturating_sub(short).as_secs_f64();
            println!(
                "{profile:12} {:10} {:5.2} s, {:6.2} M events, {:5.2} M events/s",
                format!("{verb:?}"),
                spent / ms,
                (many - few) as f64 / ms / 1e6,
                (many - few) as f64 / spent / 1e6
            );
        }
    }
}
