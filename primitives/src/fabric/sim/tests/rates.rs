//! The shipped profile gives the latencies and rates it was calibrated to.

use super::load::{Kind, Load, cluster};
use super::*;
use crate::fabric::CpuWork;

/// From building the request to taking its completion, with nothing else going on, in nanoseconds.
fn unloaded(verb: impl Fn(&Rig) -> Verb, len: u32, flags: Flags) -> f64 {
    // Requests in one piece: a torn one takes up to 200 ns longer.
    let rig = Rig::with(1, FaultOptions { torn_read: 0.0, torn_write: 0.0, ..FaultOptions::default() });
    let (qp, _) = rig.pair(QpConfig::rc());
    let (nic, start) = (&rig.nics[0], rig.nics[0].now());
    nic.charge(CpuWork::Request);
    if flags.inline {
        nic.charge(CpuWork::Inline(len));
    }
    nic.charge(CpuWork::Doorbell);
    rig.post(qp, 1, verb(&rig), rig.local(0, 0, len), flags);
    while rig.taken(0).is_empty() {
        rig.world.advance(rig.world.now() + Nanos(1));
    }
    nic.charge(CpuWork::Completion);
    nic.now().since(start).0 as f64
}

fn near(what: &str, got: f64, want: f64) {
    println!("{what}: {got:.1}, published {want:.1}");
    assert!((got / want - 1.0).abs() < 0.1, "{what}: {got:.1}, published {want:.1}");
}

#[test]
fn unloaded_latencies_meet_the_published_class() {
    near("READ of 8 B, ns", unloaded(|r| r.read(0), 8, SIGNALED), 1700.0);
    near("WRITE of 8 B to completion, ns", unloaded(|r| r.write(0), 8, INLINE), 1600.0);
    near("ATOMIC, ns", unloaded(|r| r.faa(0, 1), 8, SIGNALED), 1800.0);
}

#[test]
fn unloaded_latencies_are_those_the_profile_derives() {
    use crate::profile::Primitive::{Atomic, Read, Write};
    let profile = crate::profile::Profile::shipped("cx4-edr").unwrap();
    for len in [8u32, 64, 512, 4096] {
        let cpu = |inline| {
            profile.cpu.request.value
                + profile.cpu.doorbell.value
                + profile.cpu.completion.value
                + if inline { profile.cpu.inline_line.value } else { 0.0 }
        };
        let check = |what: &str, got: f64, want: f64| {
            // The clock has whole nanoseconds, and so have the steps of this test.
            assert!((got - want).abs() < 3.0, "{what} {len}: simulated {got}, derived {want}");
        };
        let model = |p, inline| profile.nic.unloaded_latency_ns(p, len, inline) + cpu(inline);
        check("READ", unloaded(|r| r.read(0), len, SIGNALED), model(Read, false));
        check("WRITE", unloaded(|r| r.write(0), len, SIGNALED), model(Write, false));
        if len <= 64 {
            check("inline WRITE", unloaded(|r| r.write(0), len, INLINE), model(Write, true));
        }
        if len == 8 {
            check("ATOMIC", unloaded(|r| r.faa(0, 1), len, SIGNALED), model(Atomic, false));
        }
    }
}

/// Completed requests per node in M/s, 16 nodes of 24 cores, warm-up discarded.
fn saturated(load: Load) -> f64 {
    let (world, mut cores) = cluster(&config(16, 24, 1), load);
    let (warm, end) = (Nanos::from_micros(40), Nanos::from_micros(120));
    let done = |cores: &[super::load::Driver]| cores.iter().map(|c| c.completed()).sum::<u64>() as f64;
    world.run(&mut cores, warm);
    let before = done(&cores);
    world.run(&mut cores, end);
    (done(&cores) - before) / 16.0 / (end.since(warm).0 as f64 / 1e3)
}

/// Rates per NIC: half of what DrTM+H prints per machine with two.
#[test]
fn saturated_rates_meet_the_published_ones() {
    near("WRITE of 64 B, M/s", saturated(Load::of(Kind::Write, 64, 64, 16)), 65.0); // §3.1
    near("READ of 64 B, M/s", saturated(Load::of(Kind::Read, 64, 16, 1)), 43.45); // §4.2
    near("ATOMIC, M/s", saturated(Load::of(Kind::FetchAdd, 8, 16, 1)), 24.0); // §4.2
    near("RPC, M/s", saturated(Load::of(Kind::Rpc, 32, 32, 1)), 38.75); // §3.1, §5.2
}

/// One address: the inverse of the atomic unit's hold (Connect-IB, 2.24 M/s).
#[test]
fn atomics_on_one_address_queue_up() {
    let rig = Rig::new(1);
    let (qp, _) = rig.pair(QpConfig::rc());
    let add = |id| WorkRequest { id, verb: rig.faa(0, 1), local: rig.local(0, 0, 8), flags: SIGNALED };
    let chain: Vec<WorkRequest> = (0..100).map(add).collect();
    rig.nics[0].post(qp, &chain).unwrap();
    let mut ends = Vec::new();
    while ends.len() < 100 {
        rig.world.advance(rig.world.now() + Nanos(10));
        ends.extend(rig.taken(0).iter().map(|_| rig.world.now().0));
    }
    assert_eq!(rig.regions[1].load(0), 100);
    near("ATOMIC on one address, ns", (ends[99] - ends[20]) as f64 / 79.0, 446.0);
}
