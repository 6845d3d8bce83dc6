//! Calls through rings: on two workers turned by hand, and as loads on simulated and real threads.

use super::message::{control, payload, whole};
use super::*;
use crate::bench::{self, BenchVerb, Sample, run_for as run};
use crate::exec::{Core, CoreLoop};
use crate::fabric::loopback::{self, Loopback};
use crate::fabric::sim::FaultOptions;
use crate::fabric::{AnyNic, Nic};
use crate::mem::{Access, Region};
use crate::mesh::{FabricSpec, Shape, Site, Worker, WorkerConfig};
use crate::profile::Profile;
use std::cell::Cell;
use std::rc::Rc;

const CARRIERS: [Carrier; 3] = [Carrier::TwoWrites, Carrier::WriteImm, Carrier::WriteSend];
const VERBS: [BenchVerb; 3] = [BenchVerb::RpcTwoWrites, BenchVerb::RpcWriteImm, BenchVerb::RpcWriteSend];
const WORDS: usize = 3;

/// Two nodes of one worker each, in this thread.
fn pair(carrier: Carrier, coroutines: u32) -> (Vec<Rc<Calls>>, Vec<Region>) {
    let fabric = Loopback::new(2, loopback::Options::default());
    let layout = Layout { workers: 1, words: WORDS };
    let config = WorkerConfig::default();
    let (nets, cards): (Vec<_>, Vec<_>) = (0..2)
        .map(|n| Worker::open(AnyNic::Loopback(fabric.context(NodeId(n))), &config, 2, 0).unwrap())
        .unzip();
    nets.iter().for_each(|net| net.connect(&cards).unwrap());
    let regions: Vec<Region> = nets.iter().map(|_| Region::new(layout.region_bytes(2) as usize)).collect();
    let key = |(net, region): (&Worker, &Region)| net.port.nic().register(region, Access::ALL).unwrap().rkey;
    let rkeys: Vec<_> = nets.iter().zip(&regions).map(key).collect();
    let calls = nets.into_iter().zip(&regions).enumerate().map(|(n, (net, here))| {
        let start = net.port.now();
        let shape = Shape { nodes: 2, workers: 1 };
        let site = Site { node: NodeId(n as u16), worker: 0, shape, net, start };
        Calls::new(carrier, &Rings { here, rkeys: &rkeys, layout }, &site, coroutines).unwrap()
    });
    (calls.collect(), regions)
}

/// Has two coroutines of node 0 call node 1, `group` calls at a time and `groups` times each. Returns what came of it.
fn talk(ends: &[Rc<Calls>], groups: u32, group: usize) -> Result<u32, CallError> {
    talk_while(ends, groups, group, true)
}

/// The same; node 1 may keep silent.
fn talk_while(ends: &[Rc<Calls>], groups: u32, group: usize, answered: bool) -> Result<u32, CallError> {
    let done = Cell::new(Ok(0));
    let caller = |number: u32| {
        let (calls, done) = (ends[0].clone(), &done);
        async move {
            let mut seed = u64::from(number) << 32;
            for _ in 0..groups {
                let drawn = || {
                    seed += 1;
                    seed
                };
                let ended = calls.call(number, &vec![NodeId(1); group], drawn).await;
                let before = done.get();
                done.set(before.and_then(|n| ended.map(|()| n + group as u32)));
                if ended.is_err() {
                    return;
                }
            }
        }
    };
    let poller = |n: usize| LoadPoller::<()>::Rings(ends[n].clone());
    let mut asking = Core::new(ends[0].net().sched.clone(), poller(0));
    (0..2).for_each(|number| asking.spawn(caller(number)));
    let mut answering = Core::new(ends[1].net().sched.clone(), poller(1));
    answering.spawn(caller(9));
    answering.cancel(0);
    for _ in 0..1_000_000 {
        if answered {
            answering.step(8);
        }
        if asking.step(8).finished {
            break;
        }
    }
    drop((asking, answering));
    done.get()
}

#[test]
fn more_calls_than_slots_go_round_the_rings() {
    for carrier in CARRIERS {
        let (ends, _) = pair(carrier, 2);
        // Groups longer than a ring, in turn with those of another coroutine.
        assert_eq!(talk(&ends, 7, SLOTS as usize + 5), Ok(2 * 7 * (SLOTS + 5)), "{carrier:?}");
    }
}

#[test]
fn sequence_numbers_may_wrap() {
    for carrier in CARRIERS {
        let (ends, _) = pair(carrier, 2);
        ends.iter().for_each(|end| end.begin_at(u32::MAX - 40));
        assert_eq!(talk(&ends, 10, 10), Ok(200), "{carrier:?}");
    }
}

#[test]
fn a_wrong_answer_is_noticed() {
    let (ends, regions) = pair(Carrier::TwoWrites, 2);
    // A reply to the first call that is whole, and not what it should be.
    let at = Layout { workers: 1, words: WORDS }.reply(0, NodeId(1), 1);
    regions[0].store(at, 77);
    regions[0].store(at + 8, control(1, [77].into_iter()));
    let found = talk_while(&ends, 1, 1, false);
    assert!(matches!(found, Err(CallError::Answer { seq: 1, got: 77, .. })), "{found:?}");
}

#[test]
fn a_request_is_served_when_all_of_its_words_have_come() {
    for carrier in [Carrier::TwoWrites, Carrier::WriteSend] {
        let (ends, regions) = pair(carrier, 1);
        let (server, memory) = (&ends[1], &regions[1]);
        let layout = Layout { workers: 1, words: WORDS };
        for seq in 1..=SLOTS + 3 {
            let mut message: Vec<u64> = (0..WORDS).map(|i| payload(seq.into(), i)).collect();
            message.push(control(seq, message.iter().copied()));
            let at = layout.request(0, NodeId(0), seq);
            // The last of its words to come may be any, the control word too.
            let last = seq as usize % message.len();
            for (i, word) in message.iter().enumerate().filter(|(i, _)| *i != last) {
                assert_eq!(server.sweep(), 0, "{carrier:?}: accepted before word {i}");
                memory.store(at + i as u64 * 8, *word);
            }
            assert_eq!(server.sweep(), 0, "{carrier:?}: accepted without word {last}");
            assert!(!server.serve_one());
            memory.store(at + last as u64 * 8, message[last]);
            assert_eq!(server.sweep(), 1, "{carrier:?}: request {seq}");
            assert!(server.serve_one() && !server.serve_one());
            server.flush();
            let reply = layout.reply(0, NodeId(1), seq);
            let came = whole(seq, 1, |i| regions[0].load(reply + i as u64 * 8));
            assert_eq!(came, carrier == Carrier::TwoWrites, "a datagram goes elsewhere");
        }
    }
}

fn sim(profile: &str, faults: FaultOptions) -> FabricSpec {
    FabricSpec::Sim {
        profile: Box::new(Profile::shipped(profile).unwrap()),
        seed: 5,
        faults: Box::new(faults),
    }
}

/// Each call is two messages, of the kinds that its verb says.
fn check_traffic(verb: BenchVerb, sample: &Sample, under_way: u64) {
    let (writes, sends) = (sample.traffic.writes, sample.traffic.sends);
    let expected = match verb {
        BenchVerb::RpcWriteSend => [sample.ops_total, sample.ops_total],
        _ => [2 * sample.ops_total, 0],
    };
    for (got, expected) in [writes, sends].into_iter().zip(expected) {
        assert!((expected..=expected + 2 * under_way).contains(&got), "{verb:?}: {got} for {expected}");
    }
    assert!(sample.ops > 0 && sample.traffic.reads + sample.traffic.atomics == 0, "{verb:?}");
}

#[test]
fn simulated_calls_are_answered_whatever_is_torn_and_delayed() {
    let hazards = FaultOptions {
        torn_write: 1.0,
        late_write: 0.5,
        transit_jitter: Nanos(500),
        completion_jitter: Nanos(300),
        ..FaultOptions::default()
    };
    for (verb, faults) in VERBS.into_iter().flat_map(|v| [(v, FaultOptions::default()), (v, hazards.clone())])
    {
        for (payload, queue_pairs, servers) in [(1, 1, 0), (64, 2, 0), (100, 1, 1)] {
            let point = Point {
                payload,
                queue_pairs,
                servers,
                threads: 2,
                coroutines: 8,
                outstanding: 10,
                ..Point::new("calls", verb)
            };
            let fabric = sim("cx4-edr", faults.clone());
            let once = || run(&fabric, 3, Nanos::from_micros(60), &point).unwrap();
            let sample = once();
            check_traffic(verb, &sample, 3 * 2 * 80);
            assert_eq!(once().facts.fingerprint, sample.facts.fingerprint, "{verb:?}: a run of a seed");
        }
    }
}

/// Without a cost of polling, time must pass all the same.
#[test]
fn cores_that_cost_nothing_do_not_poll_for_ever() {
    let mut profile = Profile::shipped("cx4-edr").unwrap();
    profile.cpu.poll.value = 0.0;
    profile.cpu.copy_byte.value = 0.0;
    let fabric = FabricSpec::Sim { profile: Box::new(profile), seed: 5, faults: Box::default() };
    let point = Point { coroutines: 1, ..Point::new("calls", BenchVerb::RpcTwoWrites) };
    let sample = run(&fabric, 2, Nanos::from_micros(20), &point).unwrap();
    assert!(sample.ops > 4, "{}", sample.ops);
}

#[test]
fn threads_call_each_other() {
    let reordering = loopback::Options { mode: loopback::Mode::NicThread { seed: 4 }, ..Default::default() };
    for options in [loopback::Options::default(), reordering] {
        for verb in VERBS {
            let point = Point { payload: 40, coroutines: 4, outstanding: 12, ..Point::new("calls", verb) };
            // A busy machine may not run both ends within one window: a longer one then.
            let sample = (0..6)
                .map(|longer| {
                    let window = Nanos::from_millis(20 << longer);
                    run(&FabricSpec::Loopback(options), 2, window, &point).unwrap()
                })
                .find(|sample| sample.ops > u64::from(4 * SLOTS))
                .expect("calls end within a second");
            check_traffic(verb, &sample, 2 * 4 * 12 * 9);
        }
    }
}

#[test]
fn a_reply_that_is_lost_ends_the_run() {
    let faults = FaultOptions { datagram_loss: 0.2, ..FaultOptions::default() };
    let point = Point { coroutines: 2, ..Point::new("calls", BenchVerb::RpcWriteSend) };
    let error = run(&sim("cx4-edr", faults), 2, Nanos::from_micros(200), &point).unwrap_err().to_string();
    assert!(error.contains("calls was answered for"), "{error}");
}

#[test]
fn what_rings_do_not_have_is_refused() {
    let fabric = sim("cx4-edr", FaultOptions::default());
    let usual = Point::new("calls", BenchVerb::RpcWriteImm);
    let points = [
        Point { on_card: true, ..usual.clone() },
        Point { passive: true, ..usual.clone() },
        Point { own: true, ..usual.clone() },
        Point { addresses: 4, ..usual.clone() },
        Point { atomics_percent: 5, ..usual.clone() },
        Point { rung: Some(bench::Rung::Doorbell), ..usual.clone() },
        Point { payload: bench::CALL_PAYLOAD_MOST + 1, ..usual.clone() },
    ];
    for point in points {
        let refused = run(&fabric, 2, Nanos::from_micros(10), &point);
        let fits = |e: &bench::LoadError| {
            matches!(e, bench::LoadError::Unfit { verb: "rpc-write-imm", .. } | bench::LoadError::Payload(_))
        };
        assert!(refused.as_ref().is_err_and(fits), "{point:?}: {refused:?}");
    }
    let largest = Point { payload: bench::CALL_PAYLOAD_MOST, coroutines: 2, ..usual };
    assert!(run(&fabric, 2, Nanos::from_micros(40), &largest).unwrap().ops > 0);
}

#[test]
fn a_fabric_of_messages_refuses_them() {
    let point = Point::new("calls", BenchVerb::RpcTwoWrites);
    for fabric in [FabricSpec::Tcp(Default::default()), sim("tcp-10g", FaultOptions::default())] {
        let error = run(&fabric, 2, Nanos::from_millis(1), &point).unwrap_err().to_string();
        assert!(error.contains("no queue pair is connected to"), "{error}");
    }
}
