//! The port on every fabric: batches, dropped futures, full queues, errors, passive posts, resets; verbs by themselves in
//! `alone.rs`.

mod alone;
#[path = "../common/mod.rs"]
mod common;

use common::*;
use primitives::exec::{Core, Sched};
use primitives::fabric::{Nic, PostError};
use primitives::mem::{Access, Buf, BufPool, PoolExhausted, Region};
use primitives::verbs::port::{Cost, EnginePort, Port, PortConfig, VerbError};
use primitives::verbs::{NodeId, Qp, QpConfig, Remote, Rkey, Transport, WcStatus};
use std::cell::Cell;
use std::future::Future;
use std::rc::Rc;

const PEERS: u16 = 2;

/// Node 0's port, connected to nodes 1 and 2.
struct Rig {
    net: Net,
    port: Rc<EnginePort>,
    /// This end and the other, by peer.
    ends: Vec<(Qp, Qp)>,
}

impl Rig {
    fn new(fabric: Fabric) -> Rig {
        Rig::with(fabric, PortConfig::default(), QpConfig::rc(), 1 << 20)
    }

    fn with(fabric: Fabric, config: PortConfig, qp: QpConfig, pool_bytes: usize) -> Rig {
        let net = Net::new(fabric, 1 + PEERS);
        let nic = net.own_context(0);
        let arena = Region::new(pool_bytes);
        let lkey = nic.register(&arena, Access::LOCAL).expect("a region").lkey;
        let ends: Vec<(Qp, Qp)> = (1..=PEERS).map(|peer| connect(&nic, net.nic(peer), qp)).collect();
        let port = Port::new(nic, Sched::new(), BufPool::new(arena, lkey), config);
        for (peer, end) in (1..).zip(&ends) {
            port.add_route(NodeId(peer), end.0, qp.send_depth);
        }
        Rig { net, port: Rc::new(port), ends }
    }

    fn at(&self, peer: u16, offset: u64) -> Remote {
        Remote { node: NodeId(peer), rkey: self.net.keys(peer).rkey, offset }
    }

    /// A place that nobody may touch.
    fn nowhere(&self, peer: u16) -> Remote {
        Remote { rkey: Rkey(self.net.keys(peer).rkey.0 ^ 0x4000_0100), ..self.at(peer, 0) }
    }

    /// A buffer of one word.
    fn word(&self, value: u64) -> Buf {
        let buf = self.port.buf(8).expect("a buffer");
        buf.set_word(0, value);
        buf
    }

    /// Runs one coroutine to its end.
    fn run(&self, task: impl Future<Output = ()>) {
        let mut core = Core::new(self.port.sched().clone(), self.port.clone());
        core.spawn(task);
        // A scheduler numbers its tasks once: each run needs a rig of its own.
        self.net.turn(vec![Turning(Box::new(core))]);
    }

    /// Takes completions until nothing is in flight.
    fn drain(&self) {
        for _ in 0..1_000_000 {
            if self.port.in_flight() == 0 {
                return;
            }
            self.port.progress();
            self.net.tick_for(self.port.nic());
        }
        panic!("{} requests stay in flight", self.port.in_flight());
    }

    /// Asserts that nothing is held: no request in flight, no buffer pinned.
    fn assert_clean(&self) {
        self.drain();
        assert_eq!(self.port.pool().in_use(), 0, "buffers that nobody let go of");
    }

    fn reset(&self, peer: u16) {
        self.port.reset(NodeId(peer));
        self.net.nic(peer).reset_qp(self.ends[usize::from(peer) - 1].1);
    }
}

fn failed(peer: u16, status: WcStatus) -> VerbError {
    VerbError::Completion { peer: NodeId(peer), status }
}

fn flushed_behind(peer: u16, cause: WcStatus) -> VerbError {
    VerbError::Flushed { peer: NodeId(peer), cause }
}

#[test]
fn verbs_do_to_memory_what_they_say() {
    on_every_fabric(|fabric| {
        let rig = Rig::new(fabric);
        rig.run(async {
            let port = &rig.port;
            let data = port.buf(100).expect("a buffer");
            data.write(0, &[7; 100]);
            let data = port.write(rig.at(1, 64), data).await.expect("writes");
            let back = port.read(rig.at(1, 64), 100).await.expect("reads");
            let mut bytes = [0; 100];
            back.read(0, &mut bytes);
            assert_eq!(bytes, [7; 100]);
            drop((data, back));
            assert_eq!(port.cas(rig.at(2, 0), 0, 5).await, Ok(0));
            assert_eq!(port.cas(rig.at(2, 0), 0, 6).await, Ok(5));
            assert_eq!(port.fetch_add(rig.at(2, 0), 3).await, Ok(5));
        });
        rig.net.settle();
        assert_eq!(rig.net.memory(2).load(0), 8);
        let traffic = rig.port.traffic();
        assert_eq!((traffic.reads, traffic.writes, traffic.atomics), (1, 1, 3));
        assert_eq!((traffic.verbs(), traffic.doorbells, traffic.completions), (5, 5, 5));
        assert_eq!(traffic.bytes, 100 + 100 + 3 * 8);
        rig.assert_clean();
    });
}

#[test]
fn a_batch_rings_one_doorbell_per_queue_pair_or_one_per_request() {
    let cases = [(true, 32, 2), (true, 3, 4), (true, 1, 10), (false, 32, 10)];
    on_every_fabric(|fabric| {
        for (doorbell_batching, doorbell_batch_max, doorbells) in cases {
            let config = PortConfig { doorbell_batching, doorbell_batch_max, ..PortConfig::default() };
            let rig = Rig::with(fabric, config, QpConfig::rc(), 1 << 20);
            rig.run(async {
                let mut batch = rig.port.batch();
                let bufs: Vec<Buf> = (0..10).map(|i| rig.word(i + 1)).collect();
                assert!(batch.is_empty());
                // Four for one peer among six for the other, interleaved.
                for (i, buf) in (0..).zip(&bufs) {
                    let peer = if [1, 3, 4, 8].contains(&i) { 2 } else { 1 };
                    batch.write(rig.at(peer, i * 8), buf, 0, 8);
                }
                assert_eq!(batch.len(), 10);
                let posted = batch.post();
                let cost = Cost { verbs: 10, doorbells, round_trips: 1, bytes: 80 };
                assert_eq!(posted.cost(), cost);
                assert_eq!(posted.await, Ok(cost));
            });
            rig.net.settle();
            for i in 0..10 {
                let peer = if [1, 3, 4, 8].contains(&i) { 2 } else { 1 };
                assert_eq!(rig.net.memory(peer).load(i * 8), i + 1);
            }
            assert_eq!(rig.port.traffic().doorbells, u64::from(doorbells));
            // Only the last request of each queue pair asked for a completion.
            assert_eq!(rig.port.traffic().completions, 2);
            rig.assert_clean();
        }
    });
}

#[test]
fn a_batch_may_ring_for_each_request_where_the_port_does_not() {
    for (together, doorbells) in [(true, 1), (false, 5)] {
        let rig = Rig::new(Fabric::Posting);
        let mut batch = rig.port.batch();
        batch.doorbell_batching(together);
        for i in 0..5 {
            batch.write(rig.at(1, i * 8), &rig.word(i), 0, 8);
        }
        let cost = Cost { verbs: 5, doorbells, round_trips: 0, bytes: 40 };
        assert_eq!(batch.post_passive(), Ok(cost));
    }
}

#[test]
fn a_batch_keeps_the_order_of_each_queue_pair() {
    on_every_fabric(|fabric| {
        let rig = Rig::new(fabric);
        rig.run(async {
            for round in 1..=20 {
                let results: Vec<Buf> = (0..2).map(|_| rig.word(0)).collect();
                let mut batch = rig.port.batch();
                for (result, peer) in results.iter().zip(1..) {
                    // WRITE, CAS of what was written, READ: right only in this order.
                    batch.write(rig.at(peer, 0), &rig.word(round * 10), 0, 8);
                    batch.cas(rig.at(peer, 0), round * 10, round * 10 + 1, result, 0);
                    batch.read(rig.at(peer, 0), result, 0, 8);
                }
                let cost = batch.post().await.expect("completes");
                assert_eq!(cost.bytes, 2 * 3 * 8, "WRITE, CAS and READ of a word each");
                assert!(results.iter().all(|r| r.word(0) == round * 10 + 1));
            }
        });
        rig.assert_clean();
    });
}

#[test]
fn several_lanes_to_a_peer_are_used_in_turn() {
    let net = Net::new(Fabric::Posting, 2);
    let nic = net.own_context(0);
    let arena = Region::new(1 << 12);
    let lkey = nic.register(&arena, Access::LOCAL).expect("a region").lkey;
    let lanes: Vec<Qp> = (0..3).map(|_| connect(&nic, net.nic(1), QpConfig::rc()).0).collect();
    // Twelve requests: four on each of three lanes stay under a period of five, on fewer lanes they do not.
    let config = PortConfig { signal_period: 5, ..PortConfig::default() };
    let port: EnginePort = Port::new(nic, Sched::new(), BufPool::new(arena, lkey), config);
    for &lane in &lanes {
        port.add_route(NodeId(1), lane, QpConfig::rc().send_depth);
    }
    let to = Remote { node: NodeId(1), rkey: net.keys(1).rkey, offset: 0 };
    for _ in 0..6 {
        let buf = port.buf(8).expect("a buffer");
        let mut batch = port.batch();
        batch.write(to, &buf, 0, 8);
        batch.write(to, &buf, 0, 8);
        let cost = batch.post_passive().expect("posts");
        let both = Cost { verbs: 2, doorbells: 1, round_trips: 0, bytes: 16 };
        assert_eq!(cost, both, "a batch stays on one lane");
    }
    assert_eq!(port.in_flight(), 12);
    assert_eq!(port.progress(), 0, "no lane has reached its signal period");
    // Whoever must reach all lanes names them, whichever is next in turn.
    for turn in 0..3 {
        let buf = port.buf(8).expect("a buffer");
        let mut batch = port.batch();
        for lane in 0..3 {
            batch.on_lane(lane + turn);
            batch.write(to, &buf, 0, 8);
        }
        let cost = batch.post_passive().expect("posts");
        let each = Cost { verbs: 3, doorbells: 3, round_trips: 0, bytes: 24 };
        assert_eq!(cost, each, "one request on each lane");
    }
}

#[test]
fn buffers_of_a_dropped_future_come_back_when_the_nic_is_done() {
    on_every_fabric(|fabric| {
        let rig = Rig::with(fabric, PortConfig::default(), QpConfig::rc(), 64);
        let buf = rig.port.buf(64).expect("the only buffer");
        let mut batch = rig.port.batch();
        batch.read(rig.at(1, 0), &buf, 0, 64);
        drop(batch.post());
        drop(buf);
        assert_eq!(rig.port.buf(1).unwrap_err(), PoolExhausted { wanted: 1, pool_bytes: 64 });
        rig.drain();
        assert_eq!(rig.port.pool().in_use(), 0);
        assert!(rig.port.buf(1).is_ok());
    });
}

#[test]
fn nothing_leaks_over_many_dropped_futures() {
    on_every_fabric(|fabric| {
        let rounds = match fabric {
            Fabric::Posting => 100_000,
            Fabric::NicThread(_) => 1_000,
            Fabric::Sim(_) => 10_000,
            Fabric::Tcp => unreachable!("one-sided verbs"),
            #[cfg(feature = "verbs")]
            Fabric::Verbs => 2_000,
        };
        // Four buffers for each place in flight: a leak of any kind would use them up.
        let config = PortConfig { signal_period: 8, ..PortConfig::default() };
        let rig = Rig::with(fabric, config, QpConfig { send_depth: 16, ..QpConfig::rc() }, 128 * 64);
        let dropped = Cell::new(0);
        rig.run(async {
            for i in 0..rounds {
                let (one, two) = (rig.word(i), rig.word(i));
                let mut batch = rig.port.batch();
                batch.write(rig.at(1, 0), &one, 0, 8);
                if i % 3 == 0 {
                    batch.read(rig.at(2, 0), &two, 0, 8);
                }
                match i % 4 {
                    0 => drop(batch),
                    1 => drop(batch.post()),
                    2 => drop(batch.post_passive().expect("posts")),
                    _ => drop(batch.post().await.expect("completes")),
                }
                dropped.set(dropped.get() + 1);
                rig.port.room().await;
            }
        });
        assert_eq!(dropped.get(), rounds);
        let wake = rig.word(0);
        // Passive posts at the end wait for a signaled one behind them.
        for peer in 1..=PEERS {
            let mut batch = rig.port.batch();
            batch.read(rig.at(peer, 0), &wake, 0, 8);
            drop(batch.post());
        }
        drop(wake);
        rig.assert_clean();
    });
}

#[test]
fn a_full_queue_lines_up_and_keeps_the_order() {
    on_every_fabric(|fabric| {
        let config = PortConfig { signal_period: 4, doorbell_batch_max: 3, ..PortConfig::default() };
        let rig = Rig::with(fabric, config, QpConfig { send_depth: 8, ..QpConfig::rc() }, 1 << 16);
        let seen = Cell::new(0);
        let look = || {
            let value = rig.net.memory(1).load(0);
            assert!(value >= seen.replace(value), "{value} after {}", seen.get());
        };
        // One batch of more than the queue holds, then small ones behind it while it lines up.
        let mut batch = rig.port.batch();
        for value in 1..=50 {
            batch.write(rig.at(1, 0), &rig.word(value), 0, 8);
        }
        let large = batch.post();
        for value in 51..=100 {
            let mut batch = rig.port.batch();
            batch.write(rig.at(1, 0), &rig.word(value), 0, 8);
            batch.post_passive().expect("lines up");
        }
        let last = rig.word(0);
        let mut batch = rig.port.batch();
        batch.read(rig.at(1, 0), &last, 0, 8);
        let reading = batch.post();
        assert_eq!(rig.port.in_flight(), 101);
        for _ in 0..1_000_000 {
            look();
            rig.port.progress();
            rig.net.tick_for(rig.port.nic());
            if rig.port.in_flight() == 0 {
                break;
            }
        }
        assert_eq!(rig.port.in_flight(), 0);
        rig.run(async {
            assert_eq!(large.await.map(|c| c.verbs), Ok(50));
            assert_eq!(reading.await.map(|c| c.verbs), Ok(1));
        });
        assert_eq!(last.word(0), 100);
        drop(last);
        rig.assert_clean();
    });
}

#[test]
fn whoever_waits_for_room_goes_on_when_nothing_is_lined_up() {
    on_every_fabric(|fabric| {
        let config = PortConfig { signal_period: 2, ..PortConfig::default() };
        let rig = Rig::with(fabric, config, QpConfig { send_depth: 4, ..QpConfig::rc() }, 1 << 12);
        rig.run(async {
            for value in 1..=200 {
                let mut batch = rig.port.batch();
                batch.write(rig.at(1, 0), &rig.word(value), 0, 8);
                batch.post_passive().expect("posts or lines up");
                rig.port.room().await;
                assert!(rig.port.in_flight() <= 4);
            }
            assert_eq!(rig.port.read(rig.at(1, 0), 8).await.expect("reads").word(0), 200);
        });
        rig.assert_clean();
    });
}

#[test]
fn a_failure_in_a_batch_is_its_result_and_frees_everything() {
    on_every_fabric(|fabric| {
        let rig = Rig::new(fabric);
        rig.run(async {
            for round in 1..=5 {
                let mut batch = rig.port.batch();
                let fine = rig.word(0);
                batch.write(rig.at(1, 0), &rig.word(round), 0, 8);
                batch.write(rig.nowhere(1), &rig.word(round), 0, 8);
                batch.write(rig.at(1, 64), &rig.word(round), 0, 8);
                batch.fetch_add(rig.at(2, 0), 1, &fine, 0);
                let result = batch.post().await;
                assert_eq!(result, Err(failed(1, WcStatus::RemoteAccess)), "the first, not the flush");
                assert_eq!(fine.word(0), round - 1, "the other queue pair did its part");
                // The queue pair stays in error, and says of what.
                let refused = rig.port.read(rig.at(1, 0), 8).await.map(|_| ());
                assert_eq!(refused, Err(flushed_behind(1, WcStatus::RemoteAccess)));
                assert_eq!(rig.port.in_flight(), 0);
                rig.reset(1);
                let read = rig.port.read(rig.at(1, 0), 8).await.expect("works again");
                assert_eq!(read.word(0), round);
            }
        });
        assert_eq!(rig.net.memory(1).load(64), 0, "what was behind the failure was not executed");
        rig.assert_clean();
    });
}

#[test]
fn a_passive_failure_shows_in_the_next_awaited_request() {
    on_every_fabric(|fabric| {
        let rig = Rig::new(fabric);
        rig.run(async {
            let mut batch = rig.port.batch();
            batch.write(rig.nowhere(1), &rig.word(1), 0, 8);
            batch.post_passive().expect("posts");
            let read = rig.port.read(rig.at(1, 0), 8).await.map(|_| ());
            // Nobody waited for what failed; who is flushed behind it is told.
            assert_eq!(read, Err(flushed_behind(1, WcStatus::RemoteAccess)));
            // After a reset it is of before, and no cause of anything.
            rig.reset(1);
            let mut batch = rig.port.batch();
            batch.write(rig.at(1, 0), &rig.word(1), 0, 8);
            let in_flight = batch.post();
            rig.reset(1);
            assert_eq!(in_flight.await, Err(failed(1, WcStatus::Flushed)));
        });
        rig.assert_clean();
    });
}

#[test]
fn a_refused_request_is_the_result_and_what_was_taken_before_it_counts_once() {
    for doorbell_batching in [true, false] {
        on_every_fabric(|fabric| {
            let config = PortConfig { doorbell_batching, doorbell_batch_max: 2, ..PortConfig::default() };
            let rig = Rig::with(fabric, config, QpConfig::uc(), 64 * 64);
            rig.run(async {
                for round in 1..=100 {
                    // Unreliable connections do not READ.
                    let mut batch = rig.port.batch();
                    batch.write(rig.at(1, 0), &rig.word(round), 0, 8);
                    batch.write(rig.at(1, 8), &rig.word(round), 0, 8);
                    batch.write(rig.at(1, 16), &rig.word(round), 0, 8);
                    batch.read(rig.at(1, 0), &rig.word(0), 0, 8);
                    batch.write(rig.at(1, 24), &rig.word(round), 0, 8);
                    let refused =
                        PostError::Unsupported { qp: rig.ends[0].0, verb: "READ", transport: Transport::Uc };
                    assert_eq!(batch.post().await, Err(VerbError::Post(refused)));
                    // The queue pair is fine.
                    rig.port.write(rig.at(1, 32), rig.word(round)).await.expect("writes");
                }
            });
            rig.net.settle();
            let words = [0, 8, 16, 24, 32].map(|at| rig.net.memory(1).load(at));
            assert_eq!(words, [100, 100, 100, 0, 100]);
            rig.assert_clean();
        });
    }
}

#[test]
fn passive_posts_retire_behind_a_later_signaled_request() {
    on_every_fabric(|fabric| {
        let rig = Rig::new(fabric);
        rig.run(async {
            for value in 1..=20 {
                let mut batch = rig.port.batch();
                batch.write(rig.at(1, 0), &rig.word(value), 0, 8);
                let cost = batch.post_passive().expect("posts");
                assert_eq!(cost, Cost { verbs: 1, doorbells: 1, round_trips: 0, bytes: 8 });
            }
            assert_eq!(rig.port.in_flight(), 20, "nobody has confirmed them");
            assert_eq!(rig.port.pool().in_use(), 20);
            rig.port.read(rig.at(2, 0), 8).await.expect("reads");
            assert_eq!(rig.port.in_flight(), 20, "another queue pair says nothing about this one");
            rig.port.read(rig.at(1, 0), 8).await.expect("reads");
            assert_eq!((rig.port.in_flight(), rig.port.pool().in_use()), (0, 0));
        });
        assert_eq!(rig.port.traffic().completions, 2);
    });
}

#[test]
fn a_signal_period_keeps_passive_posts_draining() {
    on_every_fabric(|fabric| {
        for (signal_all, completions) in [(false, 12), (true, 96)] {
            let config = PortConfig { signal_period: 8, signal_all, ..PortConfig::default() };
            let rig = Rig::with(fabric, config, QpConfig { send_depth: 16, ..QpConfig::rc() }, 1 << 14);
            for value in 1..=96 {
                let mut batch = rig.port.batch();
                batch.write(rig.at(1, 0), &rig.word(value), 0, 8);
                batch.post_passive().expect("posts or lines up");
            }
            rig.assert_clean();
            assert_eq!(rig.port.traffic().completions, completions);
            assert_eq!(rig.net.memory(1).load(0), 96);
        }
    });
}

fn with_period(signal_period: u32, send_depth: u32) {
    let config = PortConfig { signal_period, ..PortConfig::default() };
    Rig::with(Fabric::Posting, config, QpConfig { send_depth, ..QpConfig::rc() }, 64);
}

#[test]
#[should_panic(expected = "signal period 9 must be 1..=8 for a send queue of depth 16")]
fn a_signal_period_over_half_the_depth_is_refused() {
    with_period(9, 16);
}

#[test]
#[should_panic(expected = "signal period 0 must be")]
fn a_signal_period_of_zero_is_refused() {
    with_period(0, 16);
}

#[test]
fn a_signal_period_of_half_the_depth_is_fine() {
    with_period(8, 16);
    with_period(1, 2);
}

#[test]
fn an_unknown_peer_and_an_empty_pool_are_errors() {
    let rig = Rig::with(Fabric::Posting, PortConfig::default(), QpConfig::rc(), 128);
    rig.run(async {
        let no_route = VerbError::NoRoute { peer: NodeId(9) };
        let far = Remote { node: NodeId(9), ..rig.at(1, 0) };
        assert_eq!(rig.port.read(far, 8).await.map(|_| ()), Err(no_route));
        let mut batch = rig.port.batch();
        batch.write(rig.at(1, 0), &rig.word(1), 0, 8);
        batch.write(far, &rig.word(1), 0, 8);
        assert_eq!(batch.post_passive(), Err(no_route));
        assert_eq!(rig.port.in_flight(), 0, "nothing of it was posted");
        let _held = (rig.word(0), rig.word(0));
        let empty = VerbError::Pool(PoolExhausted { wanted: 8, pool_bytes: 128 });
        assert_eq!(rig.port.cas(rig.at(1, 0), 0, 1).await, Err(empty));
    });
    rig.assert_clean();
}

#[test]
fn an_empty_batch_is_done_at_once() {
    let rig = Rig::new(Fabric::Posting);
    rig.run(async {
        assert_eq!(rig.port.batch().post().await.map(|c| (c.verbs, c.doorbells)), Ok((0, 0)));
    });
}

#[test]
fn a_reset_ends_what_is_in_flight_as_flushed() {
    on_every_fabric(|fabric| {
        let config = PortConfig { signal_period: 4, ..PortConfig::default() };
        let rig = Rig::with(fabric, config, QpConfig { send_depth: 8, ..QpConfig::rc() }, 64 * 64);
        // Some posted, some lined up.
        let mut batch = rig.port.batch();
        for i in 0..8 {
            batch.fetch_add(rig.at(1, 0), 1, &rig.word(i), 0);
        }
        let posted = batch.post();
        let mut batch = rig.port.batch();
        for i in 1..7 {
            batch.write(rig.at(1, 8), &rig.word(i), 0, 8);
        }
        let lined_up = batch.post();
        rig.reset(1);
        assert_eq!((rig.port.in_flight(), rig.port.pool().in_use()), (0, 0));
        rig.run(async {
            assert_eq!(posted.await, Err(failed(1, WcStatus::Flushed)));
            assert_eq!(lined_up.await, Err(failed(1, WcStatus::Flushed)));
            for value in 0..50 {
                rig.port.write(rig.at(1, 16), rig.word(value)).await.expect("works again");
            }
        });
        assert_eq!(rig.net.memory(1).load(8), 0, "what was lined up came to nothing");
        rig.assert_clean();
    });
}
