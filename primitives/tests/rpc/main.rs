//! RPC on every fabric: exactly once under loss, credits in order, passive acknowledgements; hostile peers in `hostile.rs`, a real
//! port that is down in `port_down.rs`.

#[path = "../common/mod.rs"]
mod common;
mod hostile;
#[cfg(feature = "verbs")]
mod port_down;

use common::*;
use primitives::exec::{Core, sleep_until, yield_now};
use primitives::fabric::{AnyNic, Nic};
use primitives::mesh::{Worker, WorkerConfig};
use primitives::rpc::{Incoming, Later, Reply, Rpc, RpcConfig, RpcError, RpcPoller, RpcStats, Service};
use primitives::units::Nanos;
use primitives::verbs::NodeId;
use primitives::verbs::port::Cost;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;

/// Replies with its argument and one.
const ADD_ONE: u8 = 1;
/// Replies with nothing.
const SILENT: u8 = 2;
/// Replies with more than fits.
const TOO_MUCH: u8 = 3;
/// Reads words until there are no more, and replies with their number.
const COUNT: u8 = 4;

/// Puts its answer off until somebody calls [`ADD_ONE`] with [`OPEN`]; then replies with twice its argument.
const LATER: u8 = 5;
const OPEN: u64 = 99;

/// How often each argument was executed, and in which order.
#[derive(Default)]
struct Log {
    times: BTreeMap<u64, u32>,
    order: Vec<u64>,
    waiting: Vec<(Later, u64)>,
    look_at: Nanos,
    open: bool,
}

#[derive(Clone, Default)]
struct Ledger(Rc<RefCell<Log>>);

impl Service for Ledger {
    fn handle(&mut self, request: &mut Incoming<'_>, reply: &mut Reply<'_>) {
        if request.handler == COUNT {
            let mut words = 0;
            while request.payload.word().is_ok() {
                words += 1;
            }
            return reply.word(words);
        }
        let Ok(argument) = request.payload.word() else { return };
        let log = &mut *self.0.borrow_mut();
        *log.times.entry(argument).or_default() += 1;
        log.order.push(argument);
        match request.handler {
            ADD_ONE => {
                log.open |= argument == OPEN;
                reply.word(argument + 1);
            }
            LATER => {
                reply.word(0); // is not sent
                log.waiting.push((request.defer(), argument));
            }
            TOO_MUCH => (0..10_000).for_each(|i| reply.word(i)),
            _ => {}
        }
    }

    fn look_again_at(&self) -> Option<Nanos> {
        let log = self.0.borrow();
        (!log.waiting.is_empty()).then_some(log.look_at)
    }

    fn look_again<N: Nic>(&mut self, rpc: &Rpc<N>) {
        let log = &mut *self.0.borrow_mut();
        log.look_at = rpc.port().now() + Nanos(10_000);
        if log.open {
            for (later, argument) in log.waiting.drain(..) {
                rpc.give(later, |reply| reply.word(argument * 2)).expect("a buffer");
            }
        }
    }
}

type Task<'t> = Pin<Box<dyn Future<Output = ()> + 't>>;

/// A worker on each of the first nodes, in sessions with each other.
struct Rig {
    net: Net,
    workers: Vec<Worker>,
    ledgers: Vec<Ledger>,
}

impl Rig {
    fn new(fabric: Fabric, nodes: u16, rpc: RpcConfig, faults: Faults) -> Rig {
        let net = Net::with(fabric, nodes, faults);
        let config = WorkerConfig { rpc, ..WorkerConfig::default() };
        let (workers, cards): (Vec<_>, Vec<_>) = (0..nodes)
            .map(|node| Worker::open(net.own_context(node), &config, nodes, 0).expect("a worker"))
            .unzip();
        for worker in &workers {
            worker.connect(&cards).expect("connects");
        }
        Rig { net, workers, ledgers: (0..nodes).map(|_| Ledger::default()).collect() }
    }

    fn rpc(&self, node: usize) -> &Rpc<AnyNic> {
        &self.workers[node].rpc
    }

    /// Runs tasks on node 0 while all nodes serve, until the tasks have ended.
    fn run<'t>(&'t self, tasks: Vec<Task<'t>>) {
        let mut tasks = Some(tasks);
        let cores = self.workers.iter().zip(&self.ledgers).map(|(worker, ledger)| {
            let poller = RpcPoller::new(worker.rpc.clone(), ledger.clone());
            let mut core: Core<Task<'t>, _> = Core::new(worker.sched.clone(), poller);
            for task in tasks.take().into_iter().flatten() {
                core.spawn(task);
            }
            Turning(Box::new(core))
        });
        self.net.turn(cores.collect());
    }

    /// Waits on node 0 until every request is answered or acknowledged.
    async fn answered(&self) {
        while self.rpc(0).unanswered() > 0 {
            sleep_until(&self.workers[0].port, self.workers[0].port.now() + Nanos(1_000)).await;
        }
    }
}

/// Sends again only what is lost for good, on a machine however busy: for tests that count messages.
fn patient() -> RpcConfig {
    RpcConfig { retransmit_after: Nanos(10_000_000_000), ..RpcConfig::default() }
}

/// Sends again so soon that a test with losses is short.
fn impatient() -> RpcConfig {
    RpcConfig { retransmit_after: Nanos::from_millis(2), max_retransmits: 20_000, ..RpcConfig::default() }
}

/// Calls `ADD_ONE` of a node and checks the reply.
async fn add_one(rpc: &Rpc<AnyNic>, node: u16, argument: u64) -> Result<(), RpcError> {
    let replies = rpc.call(NodeId(node), ADD_ONE, |w| w.word(argument)).await?;
    let sum = replies.read(0, |mut r| r.word()).expect("one word");
    assert_eq!(sum, argument + 1);
    Ok(())
}

#[test]
fn calls_come_back_with_their_replies() {
    on_every_datagram_fabric(|fabric| {
        let rig = Rig::new(fabric, 3, patient(), Faults::default());
        rig.run(vec![Box::pin(async {
            for i in 0..20 {
                let mut batch = rig.rpc(0).batch();
                for k in 0..8 {
                    // Own node included: a worker may call itself.
                    let node = NodeId(k as u16 % 3);
                    assert_eq!(batch.call(node, ADD_ONE, |w| w.word(i * 8 + k)), Ok(k as usize));
                }
                let sent = batch.send();
                assert_eq!((sent.cost().verbs, sent.cost().doorbells), (8, 1), "one doorbell for all peers");
                let replies = sent.await.expect("answers");
                assert_eq!(replies.len(), 8);
                assert_eq!((replies.bytes(), replies.cost().bytes), (64, 128), "a word there and one back");
                for k in 0..8 {
                    assert_eq!(replies.read(k as usize, |mut r| r.word()), Ok(i * 8 + k + 1));
                }
            }
        })]);
        let served: u64 = (0..3).map(|n| rig.rpc(n).stats().served).sum();
        assert_eq!((served, rig.rpc(0).stats().calls, rig.rpc(0).unanswered()), (160, 160, 0));
        assert!(rig.ledgers.iter().all(|l| l.0.borrow().times.values().all(|&n| n == 1)));
    });
}

#[test]
fn an_answer_put_off_comes_once_and_others_are_served_meanwhile() {
    on_every_fabric(|fabric| {
        let config =
            RpcConfig { retransmit_after: Nanos(200_000), max_retransmits: 20_000, ..RpcConfig::default() };
        let rig = Rig::new(fabric, 2, config, Faults::default());
        let answered = Cell::new(0);
        let waits = |argument: u64| -> Task<'_> {
            let (rig, answered) = (&rig, &answered);
            Box::pin(async move {
                let replies =
                    rig.rpc(0).call(NodeId(1), LATER, |w| w.word(argument)).await.expect("an answer");
                assert_eq!(replies.read(0, |mut r| r.word()), Ok(argument * 2));
                answered.set(answered.get() + 1);
            })
        };
        let opens: Task<'_> = Box::pin(async {
            let port = &rig.workers[0].port;
            // Long enough for the callers to repeat themselves.
            sleep_until(port, port.now() + Nanos::from_millis(3)).await;
            add_one(rig.rpc(0), 1, 5).await.expect("served while others wait");
            assert_eq!(answered.get(), 0);
            add_one(rig.rpc(0), 1, OPEN).await.expect("an answer");
        });
        rig.run(vec![waits(7), waits(8), opens]);
        assert_eq!((answered.get(), rig.rpc(0).unanswered()), (2, 0));
        assert!(rig.rpc(1).stats().duplicates > 0, "repetitions were acknowledged");
        assert!(rig.ledgers[1].0.borrow().times.values().all(|&n| n == 1), "and not executed");
    });
}

#[test]
fn without_doorbell_batching_each_message_rings() {
    let config = RpcConfig { doorbell_batching: false, ..patient() };
    let rig = Rig::new(Fabric::Posting, 2, config, Faults::default());
    rig.run(vec![Box::pin(async {
        let mut batch = rig.rpc(0).batch();
        for k in 0..8 {
            batch.call(NodeId(1), ADD_ONE, |w| w.word(k)).expect("room");
        }
        let sent = batch.send();
        assert_eq!((sent.cost().verbs, sent.cost().doorbells), (8, 8));
        sent.await.expect("answers");
    })]);
    assert_eq!(rig.workers[1].port.traffic().doorbells, 8, "replies too");
}

#[test]
fn messages_that_do_not_fit_are_errors_on_both_sides() {
    let rig = Rig::new(Fabric::Posting, 2, patient(), Faults::default());
    rig.run(vec![Box::pin(async {
        let rpc = rig.rpc(0);
        let long = rpc.call(NodeId(1), ADD_ONE, |w| (0..121).for_each(|i| w.word(i))).await;
        assert_eq!(long.map(|_| ()), Err(RpcError::TooLong { len: 24 + 121 * 8, max: 984 }));
        let full = rpc.call(NodeId(1), COUNT, |w| (0..120).for_each(|i| w.word(i))).await.expect("fits");
        assert_eq!(full.read(0, |mut r| r.word()), Ok(120));
        for handler in [SILENT, TOO_MUCH] {
            let reply = rpc.call(NodeId(1), handler, |w| w.word(1)).await.expect("an answer");
            assert!(reply.read(0, |mut r| r.word()).is_err(), "empty, and the reader says so");
        }
        let nobody = RpcError::NoSession { peer: NodeId(7) };
        assert_eq!(rpc.call(NodeId(7), SILENT, |_| {}).await.map(|_| ()), Err(nobody));
        assert_eq!(
            rpc.room(&[(NodeId(1), 33)]).await,
            Err(RpcError::WindowFull { peer: NodeId(1), window: 32 })
        );
        let mut batch = rpc.batch();
        for _ in 0..32 {
            batch.one_way(NodeId(1), SILENT, |w| w.word(2)).expect("room");
        }
        let full = RpcError::WindowFull { peer: NodeId(1), window: 32 };
        assert_eq!(batch.one_way(NodeId(1), SILENT, |_| {}), Err(full));
        batch.send_one_way();
        rig.answered().await;
    })]);
}

#[test]
fn one_way_requests_get_no_replies_and_an_acknowledgement_per_half_window() {
    on_every_datagram_fabric(|fabric| {
        const SENT: u64 = 256;
        let rig = Rig::new(fabric, 2, RpcConfig { window: 32, ..patient() }, Faults::default());
        rig.run(vec![Box::pin(async {
            for i in 0..SENT / 8 {
                rig.rpc(0).room(&[(NodeId(1), 8)]).await.expect("room");
                let mut batch = rig.rpc(0).batch();
                for k in 0..8 {
                    batch.one_way(NodeId(1), ADD_ONE, |w| w.word(i * 8 + k)).expect("room");
                }
                let cost = batch.send_one_way();
                assert_eq!(cost, Cost { verbs: 8, doorbells: 1, round_trips: 0, bytes: 64 });
            }
            rig.answered().await;
        })]);
        let (client, server) = (rig.rpc(0).stats(), rig.rpc(1).stats());
        assert_eq!((server.served, client.retransmits), (SENT, 0));
        assert_eq!(server.acks, SENT / 16);
        assert_eq!(rig.workers[1].port.traffic().sends, SENT / 16, "nothing else was sent");
    });
}

#[test]
fn replies_carry_acknowledgements_so_that_none_are_sent() {
    on_every_datagram_fabric(|fabric| {
        let rig = Rig::new(fabric, 2, patient(), Faults::default());
        rig.run(vec![Box::pin(async {
            for i in 0..200 {
                rig.rpc(0).room(&[(NodeId(1), 5)]).await.expect("room");
                let mut batch = rig.rpc(0).batch();
                for k in 0..4 {
                    batch.one_way(NodeId(1), SILENT, |w| w.word(i * 5 + k)).expect("room");
                }
                batch.call(NodeId(1), ADD_ONE, |w| w.word(i * 5 + 4)).expect("room");
                batch.send().await.expect("answers");
                assert_eq!(rig.rpc(0).unanswered(), 0, "the reply acknowledged what was before it");
            }
        })]);
        assert_eq!(rig.rpc(1).stats(), RpcStats { served: 1000, ..RpcStats::default() });
    });
}

#[test]
fn the_last_one_way_requests_are_acknowledged_when_they_are_sent_again() {
    on_every_datagram_fabric(|fabric| {
        let rig = Rig::new(fabric, 2, impatient(), Faults::default());
        rig.run(vec![Box::pin(async {
            let mut batch = rig.rpc(0).batch();
            batch.one_way(NodeId(1), SILENT, |w| w.word(1)).expect("room");
            batch.send_one_way();
            rig.answered().await;
        })]);
        let (client, server) = (rig.rpc(0).stats(), rig.rpc(1).stats());
        assert!(client.retransmits >= 1 && server.acks >= 1);
        assert_eq!(server.served, 1);
    });
}

#[test]
fn callers_past_the_window_are_served_in_order_and_nobody_starves() {
    on_every_datagram_fabric(|fabric| {
        const CALLERS: u64 = 40;
        const CALLS: u64 = 20;
        let rig = Rig::new(fabric, 3, RpcConfig { window: 4, ..patient() }, Faults::default());
        let done = RefCell::new(vec![0u64; CALLERS as usize]);
        let spread = Cell::new(0);
        let tasks = (0..CALLERS).map(|caller| -> Task<'_> {
            let (rig, done, spread) = (&rig, &done, &spread);
            Box::pin(async move {
                for call in 0..CALLS {
                    // Some need room at both peers at once.
                    let both = [(NodeId(1), 1), (NodeId(2), 2)];
                    let needs = if caller % 4 == 0 { &both[..] } else { &both[..1] };
                    rig.rpc(0).room(needs).await.expect("room");
                    let mut batch = rig.rpc(0).batch();
                    let argument = caller * CALLS + call;
                    batch.call(NodeId(1), ADD_ONE, |w| w.word(argument)).expect("room");
                    for k in 0..2 * u64::from(caller % 4 == 0) {
                        batch.call(NodeId(2), ADD_ONE, |w| w.word(2 * argument + k)).expect("room");
                    }
                    let replies = batch.send().await.expect("answers");
                    assert_eq!(replies.read(0, |mut r| r.word()), Ok(argument + 1));
                    let done = &mut *done.borrow_mut();
                    done[caller as usize] += 1;
                    let least = done.iter().min().copied().unwrap_or(0);
                    spread.set(spread.get().max(done[caller as usize] - least));
                }
            })
        });
        rig.run(tasks.collect());
        assert!(done.borrow().iter().all(|&n| n == CALLS));
        assert!(spread.get() <= 2, "somebody was {} calls ahead of somebody", spread.get());
        assert_eq!(rig.rpc(1).stats().served, CALLERS * CALLS);
    });
}

#[test]
fn whoever_gives_up_waiting_for_room_holds_nobody_up() {
    on_every_datagram_fabric(|fabric| {
        let rig = Rig::new(fabric, 2, RpcConfig { window: 2, ..patient() }, Faults::default());
        let tasks = (0..20u64).map(|caller| -> Task<'_> {
            let rig = &rig;
            Box::pin(async move {
                for call in 0..10 {
                    if caller % 2 == 0 {
                        // Look once, then drop the future.
                        let needs = [(NodeId(1), 2)];
                        let mut room = Box::pin(rig.rpc(0).room(&needs));
                        std::future::poll_fn(|cx| {
                            let _ = room.as_mut().poll(cx);
                            std::task::Poll::Ready(())
                        })
                        .await;
                        drop(room);
                        yield_now(&rig.workers[0].sched).await;
                    } else {
                        add_one(rig.rpc(0), 1, caller * 10 + call).await.expect("answers");
                    }
                }
            })
        });
        rig.run(tasks.collect());
        assert_eq!(rig.rpc(1).stats().served, 100);
    });
}

#[test]
fn under_loss_every_request_is_executed_exactly_once() {
    on_every_fabric(|fabric| {
        const CALLERS: u64 = 8;
        const CALLS: u64 = 60;
        let config = RpcConfig { window: 8, ..impatient() };
        let rig = Rig::new(fabric, 2, config, Faults { loss: 0.3, ..Faults::default() });
        let tasks = (0..CALLERS).map(|caller| -> Task<'_> {
            let rig = &rig;
            Box::pin(async move {
                for call in 0..CALLS {
                    let argument = caller * CALLS + call;
                    if call % 3 == 0 {
                        rig.rpc(0).room(&[(NodeId(1), 1)]).await.expect("room");
                        let mut batch = rig.rpc(0).batch();
                        batch.one_way(NodeId(1), ADD_ONE, |w| w.word(argument)).expect("room");
                        batch.send_one_way();
                    } else {
                        add_one(rig.rpc(0), 1, argument).await.expect("answers");
                    }
                }
                rig.answered().await;
            })
        });
        rig.run(tasks.collect());
        let log = rig.ledgers[1].0.borrow();
        assert_eq!(log.times.len() as u64, CALLERS * CALLS);
        assert!(log.times.values().all(|&n| n == 1), "{:?}", log.times.iter().find(|t| *t.1 != 1));
        let (client, server) = (rig.rpc(0).stats(), rig.rpc(1).stats());
        assert_eq!((server.served, client.calls), (CALLERS * CALLS, CALLERS * CALLS));
        // Nothing here makes a real device lose a datagram; between machines a lossy link does.
        if real_device().is_none() {
            assert!(client.retransmits > 0 && server.duplicates > 0, "{client:?} {server:?}");
        }
        assert_eq!((client.malformed, server.malformed), (0, 0));
    });
}

#[test]
fn a_dead_peer_is_an_error_after_all_retransmissions_and_others_go_on() {
    on_every_fabric(|fabric| {
        let config = RpcConfig {
            retransmit_after: Nanos::from_millis(50),
            max_retransmits: 3,
            ..RpcConfig::default()
        };
        let doomed = Some(NodeId(1));
        let rig = Rig::new(fabric, 3, config, Faults { doomed, ..Faults::default() });
        if !rig.net.can_kill() {
            return;
        }
        rig.net.kill_doomed();
        let tasks = (0..40u64).map(|caller| -> Task<'_> {
            let rig = &rig;
            Box::pin(async move {
                if caller == 0 {
                    return add_one(rig.rpc(0), 2, 5).await.expect("node 2 lives");
                }
                // More callers than the window holds: those that wait are told too.
                let error = add_one(rig.rpc(0), 1, caller).await;
                let expected = RpcError::Unanswered { peer: NodeId(1), handler: ADD_ONE, attempts: 4 };
                assert_eq!(error, Err(expected));
            })
        });
        rig.run(tasks.collect());
        assert_eq!(rig.rpc(0).unanswered(), 0);
        // A busy machine may have kept the living peer's answer waiting too.
        let again = rig.rpc(0).stats().retransmits;
        assert!((39 * 3..=40 * 3).contains(&again), "{again}");
        assert!(rig.ledgers[1].0.borrow().times.is_empty());
    });
}

#[test]
fn late_replies_to_dropped_futures_find_nobody() {
    on_every_datagram_fabric(|fabric| {
        let rig = Rig::new(fabric, 2, patient(), Faults::default());
        rig.run(vec![Box::pin(async {
            for i in 0..300 {
                let mut batch = rig.rpc(0).batch();
                batch.call(NodeId(1), ADD_ONE, |w| w.word(i * 3)).expect("room");
                batch.call(NodeId(1), ADD_ONE, |w| w.word(i * 3 + 1)).expect("room");
                match i % 2 {
                    0 => drop(batch.send()),
                    // Not even sent explicitly: what has a sequence number goes out all the same.
                    _ => drop(batch),
                }
                // Takes the places of the dropped calls; must not get their replies.
                add_one(rig.rpc(0), 1, i * 3 + 2).await.expect("answers");
                rig.rpc(0).room(&[(NodeId(1), 3)]).await.expect("room");
            }
            rig.answered().await;
        })]);
        assert_eq!(rig.ledgers[1].0.borrow().times.len(), 900);
        assert_eq!((rig.rpc(1).stats().served, rig.rpc(0).stats().malformed), (900, 0));
    });
}

#[test]
fn nothing_of_many_calls_stays_in_use() {
    let rig = Rig::new(Fabric::Posting, 2, patient(), Faults::default());
    let held = Cell::new(0);
    rig.run(vec![Box::pin(async {
        for i in 0..20_000 {
            add_one(rig.rpc(0), 1, i).await.expect("answers");
            let used = rig.workers[0].port.pool().in_use();
            if i == 1_000 {
                held.set(used);
            }
            // What waits for a passive acknowledgement comes and goes; nothing may pile up.
            assert!(i < 1_000 || used <= held.get() + 64, "{used} buffers in use, {} before", held.get());
        }
    })]);
}

#[test]
fn a_worker_that_calls_while_it_serves_makes_progress() {
    on_every_datagram_fabric(|fabric| {
        let rig = Rig::new(fabric, 2, RpcConfig { window: 4, ..patient() }, Faults::default());
        let cores = (0..2usize).map(|me| {
            let worker = &rig.workers[me];
            let poller = RpcPoller::new(worker.rpc.clone(), rig.ledgers[me].clone());
            let mut core: Core<Task<'_>, _> = Core::new(worker.sched.clone(), poller);
            for caller in 0..8u64 {
                let rig = &rig;
                core.spawn(Box::pin(async move {
                    for call in 0..40 {
                        add_one(rig.rpc(me), 1 - me as u16, caller * 40 + call).await.expect("answers");
                    }
                }));
            }
            Turning(Box::new(core))
        });
        rig.net.turn(cores.collect());
        for node in 0..2 {
            assert_eq!(rig.rpc(node).stats().served, 320);
        }
    });
}
