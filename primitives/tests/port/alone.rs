//! Verbs awaited by themselves: their buffers and results stay apart, whatever happens to the future or the queue.

use super::*;
use std::cell::RefCell;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

type Asked<'r> = Pin<Box<dyn Future<Output = Result<(), VerbError>> + 'r>>;

fn poll(asked: &mut Asked<'_>) -> Poll<Result<(), VerbError>> {
    asked.as_mut().poll(&mut Context::from_waker(Waker::noop()))
}

/// Each verb once, none of them asked for yet.
fn all<'r>(rig: &'r Rig) -> [Box<dyn Fn(Remote) -> Asked<'r> + 'r>; 4] {
    let port = &rig.port;
    [
        Box::new(move |at| Box::pin(async move { port.read(at, 64).await.map(drop) })),
        Box::new(move |at| {
            Box::pin(async move { port.write(at, port.buf(64).expect("a buffer")).await.map(drop) })
        }),
        Box::new(move |at| Box::pin(async move { port.cas(at, 0, 0).await.map(drop) })),
        Box::new(move |at| Box::pin(async move { port.fetch_add(at, 0).await.map(drop) })),
    ]
}

#[test]
fn a_dropped_verb_leaves_its_buffer_to_the_nic() {
    on_every_fabric(|fabric| {
        let rig = Rig::with(fabric, PortConfig::default(), QpConfig::rc(), 64);
        for ask in all(&rig) {
            let mut asked = ask(rig.at(1, 0));
            assert!(poll(&mut asked).is_pending());
            drop(asked);
            assert_eq!(rig.port.in_flight(), 1);
            assert_eq!(rig.port.buf(1).unwrap_err(), PoolExhausted { wanted: 1, pool_bytes: 64 });
            rig.assert_clean();
            assert!(rig.port.buf(1).is_ok());
        }
    });
}

#[test]
fn a_verb_that_nobody_polls_is_not_posted() {
    let rig = Rig::new(Fabric::Posting);
    for ask in all(&rig) {
        drop(ask(rig.at(1, 0)));
    }
    assert_eq!((rig.port.in_flight(), rig.port.traffic().verbs()), (0, 0));
    rig.assert_clean();
}

#[test]
fn a_failure_that_nobody_took_is_nobody_elses() {
    on_every_fabric(|fabric| {
        let rig = Rig::new(fabric);
        for ask in all(&rig) {
            // One that failed and is dropped unseen, one dropped before it fails.
            for seen in [true, false] {
                let mut asked = ask(rig.nowhere(1));
                assert!(poll(&mut asked).is_pending());
                let asked = seen.then_some(asked);
                rig.drain();
                drop(asked);
                rig.reset(1);
            }
            let mut fine = ask(rig.at(1, 0));
            assert!(poll(&mut fine).is_pending());
            rig.drain();
            assert_eq!(poll(&mut fine), Poll::Ready(Ok(())));
        }
        rig.assert_clean();
    });
}

#[test]
fn each_of_many_verbs_on_a_queue_has_its_own_result() {
    on_every_fabric(|fabric| {
        let rig = Rig::with(fabric, PortConfig::default(), QpConfig::rc(), 64 * 64);
        let bad = 7;
        let at = |i| if i == bad { rig.nowhere(1) } else { rig.at(1, i * 8) };
        (0..12).for_each(|i| rig.net.memory(1).store(i * 8, 100 + i));
        // More than a queue's line has entries for, ended in the order they were posted and looked at in the other.
        let mut asked: Vec<_> = (0..12).map(|i| Box::pin(rig.port.fetch_add(at(i), 1))).collect();
        let mut look = |i: usize| asked[i].as_mut().poll(&mut Context::from_waker(Waker::noop()));
        (0..12).for_each(|i| assert!(look(i).is_pending()));
        rig.drain();
        for i in (0..12u64).rev() {
            let expected = match i.cmp(&bad) {
                std::cmp::Ordering::Less => Ok(100 + i),
                std::cmp::Ordering::Equal => Err(failed(1, WcStatus::RemoteAccess)),
                std::cmp::Ordering::Greater => Err(flushed_behind(1, WcStatus::RemoteAccess)),
            };
            assert_eq!(look(i as usize), Poll::Ready(expected), "number {i}");
            assert!(look(i as usize).is_pending(), "told once");
        }
        drop(asked);
        rig.assert_clean();
    });
}

#[test]
fn a_reset_ends_verbs_as_flushed() {
    on_every_fabric(|fabric| {
        let rig = Rig::new(fabric);
        let mut asked = all(&rig).map(|ask| ask(rig.at(1, 0)));
        asked.iter_mut().for_each(|asked| assert!(poll(asked).is_pending()));
        rig.reset(1);
        assert_eq!(rig.port.in_flight(), 0);
        for asked in &mut asked {
            assert_eq!(poll(asked), Poll::Ready(Err(failed(1, WcStatus::Flushed))));
        }
        drop(asked);
        rig.assert_clean();
    });
}

#[test]
fn verbs_behind_a_full_queue_line_up() {
    on_every_fabric(|fabric| {
        let config = PortConfig { signal_period: 2, ..PortConfig::default() };
        let rig = Rig::with(fabric, config, QpConfig { send_depth: 4, ..QpConfig::rc() }, 1 << 12);
        for value in 1..=10 {
            let mut batch = rig.port.batch();
            batch.write(rig.at(1, 0), &rig.word(value), 0, 8);
            batch.post_passive().expect("posts or lines up");
        }
        let dropped = all(&rig).map(|ask| ask(rig.at(1, 0)));
        for mut asked in dropped {
            assert!(poll(&mut asked).is_pending());
        }
        assert_eq!((rig.port.in_flight(), rig.port.pool().in_use()), (14, 14));
        rig.run(async {
            assert_eq!(rig.port.fetch_add(rig.at(1, 8), 5).await, Ok(0));
            assert_eq!(rig.port.read(rig.at(1, 8), 8).await.expect("reads").word(0), 5);
        });
        rig.assert_clean();
    });
}

#[test]
fn a_refused_verb_is_its_result_and_holds_nothing() {
    on_every_fabric(|fabric| {
        let rig = Rig::with(fabric, PortConfig::default(), QpConfig::uc(), 64 * 64);
        rig.run(async {
            for value in 1..=100 {
                let refused =
                    PostError::Unsupported { qp: rig.ends[0].0, verb: "READ", transport: Transport::Uc };
                let read = rig.port.read(rig.at(1, 0), 8).await.map(drop);
                assert_eq!(read, Err(VerbError::Post(refused)));
                assert_eq!((rig.port.in_flight(), rig.port.pool().in_use()), (0, 0));
                rig.port.write(rig.at(1, 0), rig.word(value)).await.expect("the queue pair is fine");
            }
        });
        rig.net.settle();
        assert_eq!(rig.net.memory(1).load(0), 100);
        rig.assert_clean();
    });
}

#[test]
fn whoever_polled_last_is_woken() {
    on_every_fabric(|fabric| {
        let rig = Rig::new(fabric);
        let handed: RefCell<Option<Asked<'_>>> = RefCell::new(None);
        let taken = Cell::new(false);
        let (rig, handed, taken) = (&rig, &handed, &taken);
        let mut core = Core::new(rig.port.sched().clone(), rig.port.clone());
        core.spawn(Box::pin(async move {
            let mut asked = all(rig)[0](rig.at(1, 0));
            assert!(poll(&mut asked).is_pending());
            *handed.borrow_mut() = Some(asked);
        }) as Pin<Box<dyn Future<Output = ()> + '_>>);
        core.spawn(Box::pin(async move {
            let asked = handed.borrow_mut().take().expect("the first has begun");
            asked.await.expect("reads");
            taken.set(true);
        }));
        rig.net.turn(vec![Turning(Box::new(core))]);
        assert!(taken.get());
        rig.assert_clean();
    });
}
