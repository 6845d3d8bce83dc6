//! The shipped profile gives the latencies and rates it was calibrated to, and every stage of the model shows in one: a number
//! of the stage at two values, the rest of the profile as it is.

use super::load::{Kind, Load, cluster};
use super::*;
use crate::fabric::CpuWork;
use crate::profile::{NicProfile, Primitive};
use crate::verbs::{Transport, WcStatus};

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

/// Nanoseconds between ATOMICs on one address, a hundred in a row, and the word that they leave.
fn on_one_address(verb: impl Fn(&Rig) -> Verb) -> (f64, u64) {
    let rig = Rig::new(1);
    let (qp, _) = rig.pair(QpConfig::rc());
    let one = |id| WorkRequest { id, verb: verb(&rig), local: rig.local(0, 0, 8), flags: SIGNALED };
    let chain: Vec<WorkRequest> = (0..100).map(one).collect();
    rig.nics[0].post(qp, &chain).unwrap();
    let mut ends = Vec::new();
    while ends.len() < 100 {
        rig.world.advance(rig.world.now() + Nanos(10));
        ends.extend(rig.taken(0).iter().map(|_| rig.world.now().0));
    }
    ((ends[99] - ends[20]) as f64 / 79.0, rig.regions[1].load(0))
}

/// One address: the inverse of the atomic unit's hold (Connect-IB, 2.24 M/s).
#[test]
fn atomics_on_one_address_queue_up() {
    let (apart, word) = on_one_address(|rig| rig.faa(0, 1));
    assert_eq!(word, 100);
    near("ATOMIC on one address, ns", apart, 446.0);
}

/// Assumed: a CAS that fails keeps others from its address for as long as one that does not.
#[test]
fn a_cas_that_fails_holds_its_address_as_well() {
    let (fails, word) = on_one_address(|rig| rig.cas(0, 7, 8));
    assert_eq!(word, 0, "none found what it expects");
    let (swaps, _) = on_one_address(|rig| rig.cas(0, 0, 0));
    assert_eq!(fails, swaps);
    near("CAS that fails on one address, ns", fails, 446.0);
}

/// ConnectX-4 with other numbers, `cpu.` before those of the CPU, and slow nodes. Requests are in one piece, and a queue pair has
/// the engine for itself.
fn altered(numbers: &[(&str, f64)], slow: &[(u16, f64)]) -> Rig {
    let slow = slow.iter().map(|&(node, factor)| (NodeId(node), factor)).collect();
    let faults = FaultOptions { torn_read: 0.0, torn_write: 0.0, slow, ..FaultOptions::default() };
    let mut config = SimConfig { faults, ..config(2, 1, 1) };
    config.profile.nic.processing_units.value = 1.0;
    for (name, value) in numbers {
        let number = match name.strip_prefix("cpu.") {
            Some(name) => config.profile.cpu.number_mut(name),
            None => config.profile.nic.number_mut(name),
        };
        number.unwrap().value = *value;
    }
    Rig::over(config)
}

/// Nanoseconds from a post by node 0 to each of `count` completions that a node sees.
fn ends(rig: &Rig, qp: Qp, chain: &[WorkRequest], node: usize, count: usize) -> Vec<f64> {
    let start = rig.world.now();
    rig.nics[0].post(qp, chain).unwrap();
    let mut ends = Vec::new();
    while ends.len() < count {
        rig.world.advance(rig.world.now() + Nanos(1));
        let taken = rig.taken(node);
        assert!(taken.iter().all(|c| c.status == WcStatus::Success), "{taken:?}");
        ends.extend(taken.iter().map(|_| rig.world.now().since(start).0 as f64));
        assert!(rig.world.now().since(start) < Nanos::from_millis(1), "{} of {count} came", ends.len());
    }
    ends
}

/// Nanoseconds until the last of a chain of `requests` completes.
fn last(rig: &Rig, requests: &[(Verb, u32, Flags)]) -> f64 {
    let (qp, there) = rig.pair(QpConfig::rc());
    (0..64).for_each(|i| rig.recv(there, i, 0, 8192));
    *ends(rig, qp, &chain(rig, requests), 0, signaled(requests)).last().unwrap()
}

/// Nanoseconds between completions of requests as `turn` says, over and over; over whole turns of the middle half, where neither
/// the first requests nor the last ones have the card for themselves.
fn pace(rig: &Rig, turn: &[(Verb, u32, Flags)]) -> f64 {
    let (qp, there) = rig.pair(QpConfig::rc());
    (0..64).for_each(|i| rig.recv(there, i, 0, 8192));
    let turns = 64 / turn.len();
    let ends = ends(rig, qp, &chain(rig, &turn.repeat(turns)), 0, turns * signaled(turn));
    let counted = turns / 2 * signaled(turn);
    let end = ends.len() - 1 - turns / 4 * signaled(turn);
    (ends[end] - ends[end - counted]) / counted as f64
}

fn chain(rig: &Rig, requests: &[(Verb, u32, Flags)]) -> Vec<WorkRequest> {
    let request = |&(verb, len, flags)| WorkRequest { id: 1, verb, local: rig.local(0, 0, len), flags };
    requests.iter().map(request).collect()
}

fn signaled(requests: &[(Verb, u32, Flags)]) -> usize {
    requests.iter().filter(|r| r.2.signaled).count()
}

/// What a stage's number does to a latency or a pace is what the profile's own arithmetic says, to the steps of the clock.
fn shows(what: &str, got: f64, want: f64) {
    println!("{what}: {got:.1}, derived {want:.1}");
    assert!((got - want).abs() < 3.0 + 0.01 * want, "{what}: {got:.1}, derived {want:.1}");
}

fn shipped() -> NicProfile {
    Profile::shipped("cx4-edr").unwrap().nic
}

/// An ATOMIC's word comes by a DMA read and is held for as long as the profile says, whichever of the two takes longer.
#[test]
fn an_atomic_waits_for_a_dma_read_and_its_word_for_the_hold() {
    let rig = |hold, read| altered(&[("atomic_hold", hold), ("pcie_read", read)], &[]);
    let add = |rig: &Rig| [(rig.faa(0, 1), 8, SIGNALED)];
    let alone = |hold, read| {
        let rig = rig(hold, read);
        last(&rig, &add(&rig))
    };
    let usual = alone(445.0, 400.0);
    for hold in [0.001, 130.0, 390.0, 399.0, 400.0, 401.0, 900.0] {
        shows(&format!("alone, held for {hold}"), alone(hold, 400.0), usual);
    }
    shows("alone, a longer DMA read", alone(445.0, 500.0), usual + 100.0);
    for (hold, read) in [(200.0, 400.0), (399.0, 400.0), (401.0, 400.0), (445.0, 400.0), (445.0, 100.0)] {
        let rig = rig(hold, read);
        shows(&format!("one word, held for {hold}"), pace(&rig, &add(&rig)), hold);
    }
}

/// WQEs ride with the doorbell one at a time, while they are short enough.
#[test]
fn chains_and_long_wqes_are_fetched() {
    for pcie_read in [400.0, 900.0] {
        // The first of inlined WRITEs, which read nothing else over PCIe.
        let took = |requests: usize, blueflame_max: f64| {
            let rig = altered(&[("pcie_read", pcie_read), ("blueflame_max", blueflame_max)], &[]);
            let (qp, _) = rig.pair(QpConfig::rc());
            ends(&rig, qp, &chain(&rig, &vec![(rig.write(0), 8, INLINE); requests]), 0, requests)[0]
        };
        let alone = took(1, 256.0);
        for (requests, blueflame_max) in [(2, 256.0), (8, 256.0), (1, 0.0)] {
            let bytes = 64 * requests as u64;
            let fetch = shipped().pcie_request_ns(bytes) + pcie_read + shipped().pcie_answer_ns(bytes);
            let later = took(requests, blueflame_max) - alone;
            shows(&format!("{requests} WQEs, {blueflame_max} B with a doorbell, ns later"), later, fetch);
        }
    }
}

/// ATOMICs that take the engine for as long as they last, as on ConnectX-3: of `units` their queue pair's own loses all that time, so
/// that they come `units` times as late, and a READ on another unit does not notice.
#[test]
fn an_atomic_takes_engine_time_of_its_own_unit() {
    const LASTS: f64 = 4_000.0;
    for units in [1.0, 2.0] {
        let rig = || altered(&[("processing_units", units), ("responder_atomic", LASTS)], &[]);
        let alone = rig();
        shows(
            &format!("ATOMICs, {units} units, ns each"),
            pace(&alone, &[(alone.faa(0, 1), 8, SIGNALED)]),
            units * LASTS,
        );
        // A READ's time with so many ATOMICs before it on another queue pair.
        let took = |atomics: usize| {
            let rig = rig();
            let pairs = [0, 1].map(|_| rig.pair(QpConfig::rc()).0);
            rig.nics[0].post(pairs[0], &chain(&rig, &vec![(rig.faa(0, 1), 8, QUIET); atomics])).unwrap();
            rig.world.advance(rig.world.now() + Nanos(3_000));
            ends(&rig, pairs[1], &chain(&rig, &[(rig.read(0), 8, SIGNALED)]), 0, 1)[0]
        };
        let later = took(8) - took(1);
        match units {
            1.0 => assert!((later - 7.0 * LASTS).abs() < LASTS / 2.0, "{later:.0} ns later"),
            _ => assert!(later.abs() < 10.0, "{later:.0} ns later"),
        }
    }
}

#[test]
fn missed_translations_delay_their_request_and_stall_the_engine() {
    let rig = |mtt_miss| altered(&[("mtt_entries", 1.0), ("mtt_page", 4096.0), ("mtt_miss", mtt_miss)], &[]);
    for (mtt_miss, wait) in [(50.0, 400.0), (700.0, 700.0)] {
        let second = |offset| {
            let rig = rig(mtt_miss);
            last(&rig, &[(rig.read(0), 8, SIGNALED)]);
            last(&rig, &[(rig.read(offset), 8, SIGNALED)])
        };
        let later = second(8192) - second(0);
        shows(&format!("READ with a missed translation of {mtt_miss} ns, ns later"), later, wait);
    }
    for mtt_miss in [300.0, 600.0] {
        let rig = rig(mtt_miss);
        let each = pace(&rig, &[(rig.read(0), 8, SIGNALED), (rig.read(8192), 8, SIGNALED)]);
        shows("READs that all miss, ns each", each, mtt_miss + shipped().responder_read.value);
    }
}

/// Two queue pairs in turn, and room for the state of one: both ends miss it.
#[test]
fn missed_state_of_queue_pairs_delays_its_request_at_both_ends() {
    for (entries, number) in [("qp_cache_entries", "qp_fetch"), ("read_cache_entries", "read_miss")] {
        for wait in [300.0, 800.0] {
            let third = |entries_kept| {
                let rig = altered(&[(entries, entries_kept), (number, wait)], &[]);
                let pairs = [0, 1].map(|_| rig.pair(QpConfig::rc()).0);
                let read = |pair: usize| {
                    ends(&rig, pairs[pair], &chain(&rig, &[(rig.read(0), 8, SIGNALED)]), 0, 1)[0]
                };
                [read(0), read(1), read(0)][2]
            };
            shows(&format!("READ with {number} of {wait} ns, ns later"), third(1.0) - third(2.0), 2.0 * wait);
        }
    }
}

/// Receive requests are fetched ahead, so that no message waits for its own; what else goes to the card does.
#[test]
fn receive_requests_take_their_bytes_towards_the_card() {
    let took = |recv_wqe: f64| {
        let rig = altered(&[("recv_wqe", recv_wqe)], &[]);
        pace(&rig, &[(SEND, 8, QUIET), (rig.read(0), 8, SIGNALED)])
    };
    let (long, longer) = (took(16_000.0), took(32_000.0));
    shows("16 kB more of a receive request, ns each", longer - long, 16_000.0 / shipped().pcie_rate.value);
}

/// What a datagram, or a message of a connection, takes to its receiver.
fn one_way(rig: &Rig, config: QpConfig, len: u32) -> f64 {
    let (from, to) = rig.pair(config);
    rig.recv(to, 7, 0, 256);
    let there = (config.transport == Transport::Ud).then(|| rig.nics[1].address(to).handle());
    let send = (Verb::Send { to: there, imm: None }, len, INLINE);
    ends(rig, from, &chain(rig, &[send]), 1, 1)[0]
}

#[test]
fn a_datagram_is_placed_with_its_header_and_a_short_message_with_its_completion() {
    for recv_header in [0.0, 40.0, 4000.0] {
        let got = one_way(&altered(&[("recv_header", recv_header)], &[]), QpConfig::ud(), 32);
        let mut nic = shipped();
        nic.recv_header.value = recv_header;
        shows("datagram of 32 B, ns", got, nic.unloaded_latency_ns(Primitive::Send, 32, true));
    }
    for overhead in [4000.0, 8000.0] {
        let took = |recv_inline| {
            let rig = altered(&[("recv_inline", recv_inline), ("pcie_tlp_overhead", overhead)], &[]);
            one_way(&rig, QpConfig::rc(), 32)
        };
        let written = (32.0 + overhead) / shipped().pcie_rate.value;
        shows("message of 32 B placed by itself, ns later", took(31.0) - took(32.0), written);
    }
}

#[test]
fn a_receiver_is_told_after_its_handover_and_tried_again_after_its_timer() {
    let told = |handover| one_way(&altered(&[("cpu.handover", handover)], &[]), QpConfig::ud(), 8);
    shows("handover of 500 ns, ns later", told(500.0) - told(0.0), 500.0);
    let taken = |rnr_timer| {
        let rig = altered(&[("rnr_timer", rnr_timer)], &[]);
        let (from, to) = rig.pair(QpConfig::rc());
        rig.post(from, 1, SEND, rig.local(0, 0, 8), QUIET);
        rig.world.advance(Nanos(2500));
        rig.recv(to, 7, 0, 64);
        ends(&rig, from, &[], 1, 1)[0]
    };
    shows("timer of 7 us more, ns later", taken(15_000.0) - taken(8_000.0), 7000.0);
}

/// What cores give a card of any kind is a gap apart, and one that comes alone waits for no gap.
#[test]
fn a_ceiling_of_messages_spaces_what_cores_send() {
    let alone = |gap| {
        let rig = altered(&[("message_gap", gap)], &[]);
        last(&rig, &[(rig.read(0), 8, SIGNALED)])
    };
    shows("READ alone, below a ceiling", alone(5000.0), alone(0.0));
    for gap in [300.0, 600.0] {
        let rig = altered(&[("message_gap", gap)], &[]);
        for (kind, verb) in [(rig.read(0), 8), (rig.write(0), 8), (SEND, 8)].into_iter().enumerate() {
            let each = pace(&rig, &[(verb.0, verb.1, SIGNALED)]);
            shows(&format!("kind {kind} with {gap} ns between messages, ns each"), each, gap);
        }
    }
}

/// One thread receives for a machine: datagrams to several of its queue pairs come one behind the other.
#[test]
fn a_receiving_thread_hands_over_one_message_after_the_other() {
    let told = |receiver| one_way(&altered(&[("cpu.receiver", receiver)], &[]), QpConfig::ud(), 8);
    shows("receiver of 500 ns, ns later", told(500.0) - told(0.0), 500.0);
    let apart = |receiver| {
        let rig = altered(&[("cpu.receiver", receiver)], &[]);
        let (from, first) = rig.pair(QpConfig::ud());
        let [second, third] = [0; 2].map(|_| rig.pair(QpConfig::ud()).1);
        let sends = [first, second, third].map(|to| {
            rig.recv(to, 7, 0, 256);
            let there = rig.nics[1].address(to).handle();
            (Verb::Send { to: Some(there), imm: None }, 8, INLINE)
        });
        let ends = ends(&rig, from, &chain(&rig, &sends), 1, 3);
        ends[2] - ends[1]
    };
    shows("between two, with a receiver of 700 ns", apart(700.0), 700.0);
    assert!(apart(0.0) < 100.0, "without one they are as far apart as they were sent");
}

/// Each kind of request is as slow as either end's engine. Times are of all 64, since the asker's acknowledgements and entries wait
/// behind what its engine has been given.
#[test]
fn either_engine_sets_the_pace_of_what_it_does() {
    for (kind, name) in ["read", "write", "atomic", "send"].into_iter().enumerate() {
        for end in ["requester", "responder"] {
            let number = format!("{end}_{name}");
            let each = |ns: f64, units: f64| {
                // One address at a time would be slower yet.
                let numbers = [(number.as_str(), ns), ("processing_units", units), ("atomic_hold", 0.001)];
                let rig = altered(&numbers, &[]);
                let verb = [rig.read(0), rig.write(0), rig.faa(0, 1), SEND][kind];
                last(&rig, &[(verb, 8, SIGNALED); 64]) / 64.0
            };
            shows(&format!("{number}, ns each"), each(1600.0, 1.0) - each(800.0, 1.0), 800.0);
            if end == "requester" {
                // The answering end hands its last request on without the wait.
                shows(&format!("{number}, one unit of three"), each(800.0, 3.0) - each(800.0, 1.0), 1600.0);
            }
        }
    }
}

#[test]
fn segments_and_completion_entries_take_the_engine() {
    // Both ends, and 15 segments beyond the first.
    let took = |segment| {
        let rig = altered(&[("segment_bytes", 64.0), ("segment", segment)], &[]);
        last(&rig, &[(rig.write(0), 1024, SIGNALED)])
    };
    shows("20 ns more to a segment, ns later", took(30.0) - took(10.0), 2.0 * 15.0 * 20.0);
    // A sender makes an entry for what is signaled, a receiver one for each message.
    for (sends, entries) in [(0, 1.0), (2, 2.0)] {
        let each = |entry| {
            let rig = altered(&[("completion_entry", entry)], &[]);
            let mut turn = vec![(SEND, 8, QUIET); sends];
            turn.push((rig.write(0), 8, SIGNALED));
            pace(&rig, &turn)
        };
        shows("400 ns more to an entry, ns each", each(800.0) - each(400.0), 400.0 * entries);
    }
}

/// Where nobody waits, acknowledgements come in groups, and each takes both engines and the link.
#[test]
fn acknowledgements_that_nobody_waits_for_take_engines_and_link() {
    // The first 19 of 20 WRITEs are acknowledged four times, and the last by itself, all twice as slowly at one end. Where that is
    // the responder, the last has its time at the requester still before it.
    for (slow, acknowledgements) in [(0, 10.0), (1, 11.0)] {
        let took = |acknowledgement| {
            let numbers = [("acknowledgement", acknowledgement), ("ack_coalescing", 4.0)];
            let rig = altered(&numbers, &[(slow, 2.0)]);
            let mut requests = [(rig.write(0), 8, QUIET); 20];
            requests[19].2 = SIGNALED;
            last(&rig, &requests)
        };
        shows(
            &format!("acknowledgements, node {slow} being slow, ns later"),
            took(1600.0) - took(800.0),
            800.0 * acknowledgements,
        );
    }
    // The answers of READs share their port.
    let each = |ack_coalescing| {
        let numbers = [("ack_coalescing", ack_coalescing), ("packet_header", 1000.0), ("link_rate", 1.0)];
        let rig = altered(&numbers, &[]);
        let write = (rig.write(0), 8, QUIET);
        pace(&rig, &[write, write, write, (rig.read(0), 4096, SIGNALED)])
    };
    shows("three acknowledgements, ns later", each(1.0) - each(16.0), 3.0 * 1004.0);
}

/// Requests leave through the asker's port and enter through the other's, answers the other way round.
#[test]
fn every_port_sets_the_pace_of_what_passes() {
    for (name, of) in [("WRITE", false), ("READ", true)] {
        for slow in [0, 1] {
            let each = |link_rate: f64| {
                let rig = altered(&[("link_rate", link_rate)], &[(slow, 2.0)]);
                pace(&rig, &[(if of { rig.read(0) } else { rig.write(0) }, 4096, SIGNALED)])
            };
            let nic = shipped();
            let bytes = if of {
                nic.response_bytes(Primitive::Read, 4096)
            } else {
                nic.request_bytes(Primitive::Write, 4096)
            } as f64;
            let want = 2.0 * bytes / 1.0 - 2.0 * bytes / 2.0;
            shows(
                &format!("{name} of 4 KiB, port of node {slow} is slow, ns each"),
                each(1.0) - each(2.0),
                want,
            );
        }
    }
}

/// What one turn asks for: verbs, their lengths and flags.
type Turn = dyn Fn(&Rig) -> Vec<(Verb, u32, Flags)>;

#[test]
fn pcie_sets_the_pace_of_what_crosses_it() {
    let rate = shipped().pcie_rate.value;
    let each = |number: &str, value: f64, turn: &Turn| {
        let rig = altered(&[(number, value), ("atomic_hold", 0.001)], &[]);
        pace(&rig, &turn(&rig))
    };
    let reads = |rig: &Rig| vec![(rig.read(0), 8, SIGNALED)];
    let writes = |rig: &Rig| vec![(rig.write(0), 8, SIGNALED)];
    let mixed = |rig: &Rig| vec![(rig.faa(64, 1), 8, SIGNALED), (rig.read(0), 8, SIGNALED)];
    let more = |number, low, turn: &Turn| each(number, 2.0 * low, turn) - each(number, low, turn);
    shows("requests of READs, ns each", more("pcie_read_request", 800.0, &reads), 800.0);
    shows("requests of READs and ATOMICs, ns each", more("pcie_read_request", 800.0, &mixed), 800.0);
    shows("answers, ns each", more("pcie_completion_overhead", 8000.0, &reads), 8000.0 / rate);
    shows(
        "answers to READs and ATOMICs, ns each",
        more("pcie_completion_overhead", 8000.0, &mixed),
        8000.0 / rate,
    );
    // An entry is as many packets as it takes.
    let entries = shipped().pcie_ns(16_384) - shipped().pcie_ns(8_192);
    shows("completion entries, ns each", more("cqe_size", 8_192.0, &writes), entries);
    for tags in [1.0, 2.0] {
        let rig = altered(&[("pcie_tags", tags), ("pcie_read", 1000.0)], &[]);
        shows(&format!("{tags} tags, ns each"), pace(&rig, &reads(&rig)), 1000.0 / tags);
    }
}

#[test]
fn reads_in_flight_are_as_many_as_the_queue_pair_has_room_for() {
    let each = |max_rd_atomic: u32| {
        let rig = altered(&[], &[]);
        let (qp, _) = rig.pair(QpConfig { max_rd_atomic, ..QpConfig::rc() });
        let ends = ends(&rig, qp, &chain(&rig, &[(rig.read(0), 8, SIGNALED); 48]), 0, 48);
        (ends[47] - ends[23]) / 24.0
    };
    shows("two at a time, ns each", 2.0 * each(2), each(1));
}

/// An unreliable WRITE is complete once it is on the wire: doorbell and entry cross PCIe once each.
#[test]
fn an_unreliable_write_completes_when_it_has_left() {
    let took = |pcie_write, switch_latency| {
        let rig = altered(&[("pcie_write", pcie_write), ("switch_latency", switch_latency)], &[]);
        let (qp, _) = rig.pair(QpConfig::uc());
        ends(&rig, qp, &chain(&rig, &[(rig.write(0), 8, INLINE)]), 0, 1)[0]
    };
    shows("300 ns more to PCIe, ns later", took(500.0, 90.0) - took(200.0, 90.0), 600.0);
    shows("a longer way, ns later", took(200.0, 900.0) - took(200.0, 90.0), 0.0);
}
