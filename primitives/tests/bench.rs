//! The primitive benchmarks measure what they say, on a small cluster.

use primitives::bench::{self, BenchVerb, OBJECTS, Point, Rated, Rung, Sample, Scope};
use primitives::fabric::Nic;
use primitives::fabric::loopback::{Loopback, Options};
use primitives::measure::Machine;
use primitives::mesh::FabricSpec;
use primitives::units::Nanos;
use primitives::verbs::NodeId;
use std::sync::atomic::AtomicBool;

fn scope() -> Scope {
    Scope {
        nodes: 2,
        threads: 1,
        coroutines: 4,
        quick: true,
        warm_up: Nanos::from_micros(500),
        // Longer than a few time slices: a busy machine may not run a worker at all in a short one.
        window: Nanos::from_millis(30),
        precision: None,
        most: None,
    }
}

/// Runs a point on loopback until its operations are `enough`. A machine that is busy with something else may not run both ends of
/// a call within one window: a longer one then.
fn run_until(point: &Point, enough: impl Fn(&Sample) -> bool) -> Sample {
    let fabric = FabricSpec::Loopback(Options::default());
    let stop = AtomicBool::new(false);
    (0..6)
        .map(|longer| {
            let scope = Scope { window: Nanos(scope().window.0 << longer), ..scope() };
            bench::run(&fabric, &scope, point, 7, &stop).unwrap_or_else(|e| panic!("{point:?}: {e}"))
        })
        .find(enough)
        .unwrap_or_else(|| panic!("{point:?} ends too few operations in a second"))
}

#[test]
fn every_point_runs_on_loopback_and_a_profile_comes_out() {
    let scope = scope();
    let points = bench::points(&scope, 4096);
    let mut rated = Vec::new();
    for point in points {
        let sample = run_until(&point, |sample| sample.latency.p50().is_some() || sample.ops > 100);
        let traffic = sample.traffic;
        assert!(sample.ops_total > 0, "{point:?} did nothing");
        let per_op = if point.rung.is_some() { u64::from(OBJECTS) } else { 1 };
        let posted = match point.verb {
            BenchVerb::Read => traffic.reads,
            BenchVerb::Write => traffic.writes,
            BenchVerb::Cas | BenchVerb::FetchAdd => traffic.atomics,
            // Each call is a request and, unless nobody waits for it, a reply.
            BenchVerb::Rpc | BenchVerb::RpcWrite => {
                traffic.sends / if point.rung == Some(Rung::PassiveAck) { 1 } else { 2 }
            }
            _ => unreachable!("no characterization asks for it"),
        };
        let expected = sample.ops_total * per_op;
        // Groups still under way at the end are posted but not counted.
        let slack = u64::from(point.coroutines * point.outstanding * 8 + 64) * per_op + expected / 4;
        assert!(
            (expected..=expected + slack).contains(&posted),
            "{point:?}: {posted} posted for {expected} counted"
        );
        let median_ns = sample.latency.p50().map(|ns| ns.0 as f64);
        rated.push(Rated { rate_per_s: sample.rate_per_s(), median_ns, point });
    }
    let caps = Loopback::new(1, Options::default()).context(NodeId(0)).caps().clone();
    let profile = bench::fit(&rated, &caps, scope.nodes, &Machine::here()).expect("all points are there");
    profile.validate().expect("a fitted profile is a possible one");
    assert!(profile.cpu.request.value > 0.0 && profile.sources().measured > 0);
    assert_eq!(profile.doubt, None, "loopback's cores do the work");
}

#[test]
fn the_ladder_saves_doorbells_and_replies() {
    let scope = scope();
    let doorbells = |question: &str, verb, rung| {
        let point = bench::points(&scope, 4096)
            .into_iter()
            .find(|p| p.question == question && p.verb == verb && p.rung == Some(rung))
            .expect("the ladder has this rung");
        // What is still under way at the end is posted but not counted: little, beside some hundred.
        run_until(&point, |sample| sample.ops_total > 300).doorbells_per_op()
    };
    // Two nodes: all ten objects are on the one other node, so one chain carries them.
    let each = doorbells("ladder-read", BenchVerb::Read, Rung::Outstanding);
    let batched = doorbells("ladder-read", BenchVerb::Read, Rung::Doorbell);
    assert!((9.9..=11.0).contains(&each) && (0.9..=1.5).contains(&batched), "{each} then {batched}");
    let replied = doorbells("ladder-write", BenchVerb::RpcWrite, Rung::Doorbell);
    let passive = doorbells("ladder-write", BenchVerb::RpcWrite, Rung::PassiveAck);
    assert!(passive < replied, "passive ACK {passive} against {replied} doorbells");
}

#[test]
fn one_node_has_nobody_to_ask() {
    let scope = Scope { nodes: 1, ..scope() };
    let point = bench::points(&scope, 4096).remove(0);
    let fabric = FabricSpec::Loopback(Options::default());
    assert!(bench::run(&fabric, &scope, &point, 1, &AtomicBool::new(false)).is_err());
}

#[test]
fn every_point_runs_on_the_simulator_the_same_each_time() {
    let scope = Scope { window: Nanos::from_micros(150), warm_up: Nanos::from_micros(5), ..scope() };
    let profile = primitives::profile::Profile::shipped("cx4-edr").expect("it is shipped");
    let fabric = FabricSpec::Sim { profile: Box::new(profile), seed: 3, faults: Box::default() };
    let stop = AtomicBool::new(false);
    for point in bench::points(&scope, 4096) {
        let run =
            || bench::run(&fabric, &scope, &point, 7, &stop).unwrap_or_else(|e| panic!("{point:?}: {e}"));
        let (first, second) = (run(), run());
        assert!(first.ops > 0, "{point:?} did nothing");
        assert_eq!(
            (first.facts.of_seed(), first.ops, first.latency.p99()),
            (second.facts.of_seed(), second.ops, second.latency.p99())
        );
    }
}

/// As long as requests may be and as many at a time: buffers are there for all of them, whatever carries them.
#[test]
fn the_longest_requests_have_buffers() {
    use BenchVerb::{Read, Rpc, RpcTwoWrites, RpcWrite, RpcWriteImm, RpcWriteSend, Send, Write};
    let window = Nanos::from_micros(300);
    let scope = Scope { window, warm_up: Nanos::from_micros(5), ..scope() };
    let profile = primitives::profile::Profile::shipped("cx4-edr").expect("it is shipped");
    let fabric = FabricSpec::Sim { profile: Box::new(profile), seed: 3, faults: Box::default() };
    let run = |point: &Point| {
        let sample = bench::run(&fabric, &scope, point, 7, &AtomicBool::new(false));
        assert!(sample.unwrap_or_else(|e| panic!("{point:?}: {e}")).ops_total > 0, "{point:?} did nothing");
    };
    for verb in [Read, Write, Send, Rpc, RpcWrite, RpcTwoWrites, RpcWriteImm, RpcWriteSend] {
        // In longest groups, and in some whose buffer is no power of two.
        for (outstanding, coroutines) in [(16, 1), (3, 2), (11, 2)] {
            let payload = if verb.is_call() { bench::CALL_PAYLOAD_MOST } else { 1 << 20 };
            run(&Point { payload, outstanding, coroutines, ..Point::new("long", verb) });
            let payload = payload.min(4000);
            run(&Point { payload, outstanding, coroutines: 64, ..Point::new("long", verb) });
        }
    }
    for rung in Rung::ALL {
        for verb in [Read, Write] {
            run(&Point { payload: 1 << 20, ..rung.point("long", verb, 1, 1) });
        }
    }
    run(&Point {
        payload: 1 << 20,
        outstanding: 16,
        coroutines: 1,
        passive: true,
        ..Point::new("long", Write)
    });
}

/// Who asks is connected to the servers alone, so that memory grows with the nodes and not with their square. One round trip each: all
/// 4095 arrive at one card at once.
#[test]
fn four_thousand_nodes_ask_one() {
    let window = Nanos::from_micros(120);
    let scope = Scope { nodes: 4096, window, warm_up: Nanos::from_micros(60), ..scope() };
    let profile = primitives::profile::Profile::shipped("cx4-edr").expect("it is shipped");
    let fabric = FabricSpec::Sim { profile: Box::new(profile), seed: 3, faults: Box::default() };
    let point = Point { coroutines: 1, servers: 1, ..Point::new("many", BenchVerb::Read) };
    let estimate = bench::memory_estimate(true, &scope, &point);
    assert!(estimate < 2 << 30, "{estimate} B");
    let sample = bench::run(&fabric, &scope, &point, 7, &AtomicBool::new(false)).expect("it fits");
    assert!(sample.ops > 4096, "{}", sample.ops);
    // One to each client at the server, one to the server at each client, and the server's to itself.
    assert_eq!(sample.queue_pairs, 2 * 4095 + 1);
}

/// Two servers on the fabrics of real time: clients ask them, and each other never.
#[test]
fn clients_know_servers_alone_on_every_fabric_of_threads() {
    let scope = Scope { nodes: 4, ..scope() };
    let stop = AtomicBool::new(false);
    let loopback = FabricSpec::Loopback(Options::default());
    let tcp = FabricSpec::Tcp(primitives::fabric::tcp::Options::default());
    let rings = [BenchVerb::RpcTwoWrites, BenchVerb::RpcWriteImm, BenchVerb::RpcWriteSend];
    let on_loopback = [BenchVerb::Read, BenchVerb::Write, BenchVerb::Rpc].into_iter().chain(rings);
    for (fabric, verb) in on_loopback.map(|verb| (&loopback, verb)).chain([(&tcp, BenchVerb::Rpc)]) {
        let point = Point { servers: 2, ..Point::new("servers", verb) };
        let sample = bench::run(fabric, &scope, &point, 7, &stop).unwrap_or_else(|e| panic!("{verb:?}: {e}"));
        assert!(sample.ops_total > 0, "{verb:?} did nothing");
        let one_sided = fabric.caps().expect("it has some").one_sided;
        // Two servers have one to each of four nodes, two clients one to each of two.
        assert_eq!(sample.queue_pairs, if one_sided { 2 * 4 + 2 * 2 } else { 0 }, "{verb:?}");
    }
}

/// Of a device, READs may take longer than WRITEs: the profile that comes out must say so, and its simulation show it.
#[test]
fn a_device_whose_reads_are_slow_is_simulated_with_slow_reads() {
    let scope = Scope { coroutines: 8, ..scope() };
    let alone = |verb| match verb {
        BenchVerb::Read => 120_000.0,
        BenchVerb::Cas | BenchVerb::FetchAdd => 80_000.0,
        BenchVerb::Rpc | BenchVerb::RpcWrite => 300_000.0,
        _ => 60_000.0,
    };
    let rated: Vec<Rated> = bench::points(&scope, 4096)
        .into_iter()
        .map(|point| {
            // A doorbell is a quarter of a request, and one for sixteen is what batching saves.
            let doorbells = if point.doorbell_batch > 1 && point.outstanding > 1 { 1.0 / 16.0 } else { 1.0 };
            let ns = alone(point.verb) - 15_000.0 * (1.0 - doorbells);
            Rated { rate_per_s: f64::from(scope.nodes) * 1e9 / ns, median_ns: Some(ns), point }
        })
        .collect();
    let mut caps = Loopback::new(1, Options::default()).context(NodeId(0)).caps().clone();
    caps.fabric = "verbs:rxe0".into();
    let machine = Machine { cores: usize::from(scope.nodes), ..Machine::here() };
    let profile = bench::fit(&rated, &caps, scope.nodes, &machine).expect("all points are there");
    assert_eq!(
        profile.sources().measured,
        profile_limits(&profile),
        "what may be waiting is called measured"
    );
    assert!(profile.is_doubted(bench::UNCALIBRATED), "whoever foretells by it must hear");

    let fabric = FabricSpec::Sim { profile: Box::new(profile), seed: 1, faults: Box::default() };
    let stop = AtomicBool::new(false);
    for verb in [BenchVerb::Read, BenchVerb::Write, BenchVerb::Cas] {
        let point = bench::points(&scope, 4096)
            .into_iter()
            .find(|p| p.question == "latency" && p.verb == verb)
            .expect("each verb has its latency");
        let sample = bench::run(&fabric, &scope, &point, 7, &stop).expect("it is simulated");
        let got = sample.latency.p50().expect("operations ended").0 as f64;
        let error = got / alone(verb) - 1.0;
        // Each number of a device is at least a hundredth of a READ alone: some stand above what these made-up points say.
        assert!(error.abs() < 0.07, "{verb:?}: {got} ns of {} ns", alone(verb));
    }
}

/// Ports inline as much as the profile says: a WRITE that rides with its doorbell is there earlier, and its core copies more.
#[test]
fn a_profile_that_inlines_more_makes_writes_of_that_size_faster() {
    let scope = Scope { window: Nanos::from_micros(100), warm_up: Nanos::from_micros(5), ..scope() };
    let stop = AtomicBool::new(false);
    let median = |max_inline: f64, payload| {
        let mut profile = primitives::profile::Profile::shipped("cx4-edr").expect("it is shipped");
        profile.nic.max_inline.value = max_inline;
        let fabric = FabricSpec::Sim { profile: Box::new(profile), seed: 3, faults: Box::default() };
        let point =
            Point { payload, coroutines: 1, signal_period: 1, ..Point::new("latency", BenchVerb::Write) };
        bench::run(&fabric, &scope, &point, 7, &stop).expect("it runs").latency.p50().expect("WRITEs end").0
    };
    let (read_again, inlined) = (median(64.0, 128), median(128.0, 128));
    // The card does not read the payload: most of a DMA read of 400 ns is saved, for a second line to copy.
    assert!(inlined + 300 < read_again, "{inlined} and {read_again} ns");
    assert_eq!(median(64.0, 64), median(128.0, 64), "what both inline takes the same");
    assert_eq!(median(64.0, 256), median(128.0, 256), "and so does what neither does");
}

/// Stages work on packets of one message side by side: 1 MiB takes the slowest stage's time, not the sum of all, alone and with others.
#[test]
fn long_messages_go_on_packet_by_packet() {
    let stop = AtomicBool::new(false);
    let mut out_of_line = Vec::new();
    for (card, verb) in ["cx4-edr", "cx3", "cx6"]
        .into_iter()
        .flat_map(|card| [(card, BenchVerb::Read), (card, BenchVerb::Write)])
    {
        let profile = primitives::profile::Profile::shipped(card).expect("it is shipped");
        let nic = profile.nic.clone();
        let fabric = FabricSpec::Sim { profile: Box::new(profile), seed: 3, faults: Box::default() };
        let scope = Scope { warm_up: Nanos::from_millis(2), window: Nanos::from_millis(8), ..scope() };
        let run = |payload: u32, coroutines| {
            let point = Point { payload, coroutines, servers: 1, ..Point::new("long", verb) };
            bench::run(&fabric, &scope, &point, 7, &stop).expect("it runs")
        };
        let alone = |payload| run(payload, 1).latency.p50().expect("it ends").0 as f64;
        let (long, packet) = (1 << 20, nic.mtu.value as u32);
        // What the slowest stage takes for the packets behind the first.
        let behind = |ns: &dyn Fn(u64) -> f64| ns(u64::from(long)) - ns(u64::from(packet));
        let engine = if nic.segment_bytes.value > 0.0 {
            f64::from(long - packet) / nic.segment_bytes.value
                * nic.segment.value
                * nic.processing_units.value
        } else {
            0.0
        };
        let tags = f64::from(long - packet) / 512.0 * nic.pcie_read.value / nic.pcie_tags.value;
        let slowest = behind(&|bytes| bytes as f64 / nic.link_rate.value)
            .max(behind(&|bytes| nic.pcie_ns(bytes)))
            .max(behind(&|bytes| nic.pcie_answer_ns(bytes)))
            .max(engine)
            .max(tags);
        let added = alone(long) - alone(packet);
        let rate = run(long, 8).ops as f64 / (scope.window.0 as f64);
        if !(0.95..1.05).contains(&(added / slowest)) || !(0.9..1.03).contains(&(rate * slowest)) {
            out_of_line.push((card, verb, added / slowest, rate * slowest));
        }
    }
    assert!(out_of_line.is_empty(), "latency and rate over what the slowest stage says: {out_of_line:?}");
}

/// Nothing is there before it was asked for and has crossed the wire: latency never falls as messages grow, is never under that of a
/// word and the wire's time for the rest, and a longer cable adds its two ways.
#[test]
fn long_messages_are_no_quicker_than_the_wire() {
    let stop = AtomicBool::new(false);
    let mut wrong = Vec::new();
    for (card, on_card, mtu, tags) in [
        ("cx4-edr", false, 4096.0, 128.0),
        ("cx4-edr", false, 1024.0, 128.0),
        ("cx4-edr", false, 4096.0, 8.0),
        ("cx4-edr", false, 4096.0, 8192.0),
        ("cx3", false, 4096.0, 128.0),
        ("cx6", false, 4096.0, 34.0),
        ("cx6", true, 4096.0, 34.0),
    ] {
        for verb in [BenchVerb::Read, BenchVerb::Write] {
            let mut profile = primitives::profile::Profile::shipped(card).expect("it is shipped");
            (profile.nic.mtu.value, profile.nic.pcie_tags.value) = (mtu, tags);
            let median = |cable_ns: f64, payload: u32| {
                let mut profile = profile.clone();
                profile.nic.cable_latency.value += cable_ns;
                let fabric = FabricSpec::Sim { profile: Box::new(profile), seed: 3, faults: Box::default() };
                let window = Nanos::from_micros(400);
                let scope = Scope { warm_up: Nanos::from_micros(100), window, ..scope() };
                let point = Point { payload, on_card, coroutines: 1, servers: 1, ..Point::new("long", verb) };
                let sample = bench::run(&fabric, &scope, &point, 7, &stop).expect("it runs");
                sample.latency.p50().expect("it ends").0 as f64
            };
            let word = median(0.0, 8);
            let mut before = word;
            for payload in [512, 1024, 2048, 4096, 4104, 5120, 8192, 12_288, 16_384, 32_768, 65_536] {
                let got = median(0.0, payload);
                let wire = f64::from(payload - 8) / profile.nic.link_rate.value;
                // Histograms keep three digits.
                if got < before * 0.998 || got < (word + wire) * 0.99 {
                    wrong.push((card, on_card, mtu, tags, verb, payload, before, got, word + wire));
                }
                before = got;
            }
            let longer = median(2_000.0, 65_536) - before;
            if !(3_950.0..4_050.0).contains(&longer) {
                wrong.push((card, on_card, mtu, tags, verb, 65_536, 4_000.0, longer, 0.0));
            }
        }
    }
    assert!(wrong.is_empty(), "size, latency of the size before, latency, bound: {wrong:#?}");
}

/// A short message passes between the packets of a long one: two nodes that READ megabytes from each other, one at a time, both get what one gets
/// alone, whose response no request waits for.
#[test]
fn long_reads_both_ways_do_not_wait_for_each_other() {
    let stop = AtomicBool::new(false);
    let median = |servers| {
        let profile = primitives::profile::Profile::shipped("cx4-edr").expect("it is shipped");
        let fabric = FabricSpec::Sim { profile: Box::new(profile), seed: 3, faults: Box::default() };
        let scope = Scope { warm_up: Nanos::from_millis(1), window: Nanos::from_millis(8), ..scope() };
        let point =
            Point { payload: 1 << 20, coroutines: 1, servers, ..Point::new("both ways", BenchVerb::Read) };
        bench::run(&fabric, &scope, &point, 7, &stop).expect("it runs").latency.p50().expect("it ends").0
    };
    let (one_way, both_ways) = (median(1), median(0));
    assert!(both_ways < one_way + one_way / 10, "{both_ways} ns, and {one_way} where one node alone asks");
}

/// How many numbers of a fitted profile are limits that the fabric states.
fn profile_limits(profile: &primitives::profile::Profile) -> usize {
    profile.quantities().filter(|(_, _, q)| q.reference == "capability of the fabric").count()
}
