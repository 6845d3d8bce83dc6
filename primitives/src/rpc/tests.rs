//! What only shows from inside: sequence numbers near their wrap.

use super::*;
use crate::exec::{Core, CoreLoop};
use crate::fabric::AnyNic;
use crate::fabric::loopback::{Loopback, Options};
use crate::mesh::{Worker, WorkerConfig};

struct Count(u64);

impl Service for Count {
    fn handle(&mut self, request: &mut Incoming<'_>, reply: &mut Reply<'_>) {
        self.0 += 1;
        reply.word(request.payload.word().unwrap_or(0) + 1);
    }
}

impl Rpc<AnyNic> {
    /// Has the sessions of a fresh endpoint begin with sequence number `first`, in both directions.
    fn begin_at(&self, first: u32) {
        for session in &mut self.state.borrow_mut().sessions {
            session.next_seq = first;
            session.acknowledged = first.wrapping_sub(1);
            session.done_below = first.wrapping_sub(1);
        }
    }
}

fn calls_across(first: u32, loss: f64) {
    const CALLS: u64 = 300;
    let fabric = Loopback::new(2, Options { datagram_loss: loss, ..Options::default() });
    let rpc = RpcConfig { window: 8, retransmit_after: Nanos::from_millis(2), ..RpcConfig::default() };
    let config = WorkerConfig { rpc, ..WorkerConfig::default() };
    let (workers, cards): (Vec<_>, Vec<_>) = (0..2)
        .map(|n| Worker::open(AnyNic::Loopback(fabric.context(NodeId(n))), &config, 2, 0).unwrap())
        .unzip();
    for worker in &workers {
        worker.connect(&cards).unwrap();
        worker.rpc.begin_at(first);
    }
    let [client, server] = [0, 1].map(|n: usize| workers[n].rpc.clone());
    let mut serving = Core::new(workers[1].sched.clone(), RpcPoller::new(server.clone(), Count(0)));
    let mut calling = Core::new(workers[0].sched.clone(), RpcPoller::new(client.clone(), ()));
    let idle = std::future::ready(());
    serving.spawn(idle);
    let task = client.clone();
    calling.spawn(async move {
        for i in 0..CALLS / 3 {
            task.room(&[(NodeId(1), 3)]).await.unwrap();
            let mut batch = task.batch();
            batch.call(NodeId(1), 0, |w| w.word(i)).unwrap();
            batch.one_way(NodeId(1), 0, |w| w.word(i)).unwrap();
            batch.call(NodeId(1), 0, |w| w.word(i + 1)).unwrap();
            let replies = batch.send().await.unwrap();
            assert_eq!(replies.read(0, |mut r| r.word()), Ok(i + 1));
            assert_eq!(replies.read(1, |mut r| r.word()), Ok(i + 2));
        }
    });
    while !calling.step(usize::MAX).finished || client.unanswered() > 0 {
        serving.step(usize::MAX);
    }
    assert_eq!(serving.poller().service().0, CALLS, "each exactly once");
    assert_eq!((server.stats().served, server.stats().malformed), (CALLS, 0));
    let next = client.state.borrow().sessions[1].next_seq;
    assert_eq!(next, first.wrapping_add(CALLS as u32));
}

#[test]
fn sequence_numbers_wrap() {
    for first in [1, u32::MAX - 150, u32::MAX, 0, 0x7fff_ff80] {
        calls_across(first, 0.0);
        calls_across(first, 0.2);
    }
}

/// A peer that takes longer than the wait after which requests are sent again: callers learn it when it answers twice, do not take what was
/// lost for its slowness, and forget it when it is quick again.
#[test]
fn callers_learn_how_long_a_slow_peer_takes() {
    let (least, once) = (Nanos(100), NonZeroU32::MIN);
    let times = |n| NonZeroU32::new(n).expect("some");
    let mut trip = RoundTrip::default();
    assert!(!trip.matters(once) && trip.matters(times(2)));
    assert_eq!(trip.patience(least, once), least);
    // A datagram was lost, and the next one answered at once, again and again: there is no second answer.
    for _ in 0..100 {
        trip.took(least, times(2), Nanos(10));
        trip.took(least, times(20), Nanos(10));
    }
    assert_eq!(trip.patience(least, once), least);
    // It takes 400: the request is sent again after 100, answered 300 later, and answered again.
    trip.took(least, times(2), Nanos(300));
    trip.answered_twice(least);
    assert_eq!([1, 2, 3, 4, 9].map(|n| trip.patience(least, times(n)).0), [800, 1600, 3200, 6400, 6400]);
    // More second answers than there are requests that were sent twice tell no more.
    trip.answered_twice(least);
    assert_eq!(trip.patience(least, once), Nanos(800));
    for _ in 0..100 {
        trip.took(least, once, Nanos(400));
    }
    let learned = trip.patience(least, once).0;
    assert!((760..=800).contains(&learned), "{learned}");
    for _ in 0..100 {
        trip.took(least, once, Nanos(10));
    }
    assert_eq!((trip.patience(least, once), trip.matters(once)), (least, false));
}
