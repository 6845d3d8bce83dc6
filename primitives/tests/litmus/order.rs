//! In which order effects become visible.

use crate::common::*;
use primitives::fabric::Nic;
use primitives::verbs::{QpConfig, WcOpcode, WcStatus};

const X: u64 = 0;
const Y: u64 = 4096;
/// X is several words long, so that its last word is at stake as well.
const X_BYTES: u32 = 64;

/// Posts X := round, Y := round on one queue pair of node 0, towards node 1.
fn write_both(net: &Net, qp: primitives::verbs::Qp, round: u64) {
    for word in 0..8 {
        net.memory(0).store(1024 + word * 8, round);
    }
    net.memory(0).store(2048, round);
    let chain = [
        request(round, net.write(1, X), net.local(0, 1024, X_BYTES), QUIET),
        request(round, net.write(1, Y), net.local(0, 2048, 8), SIGNALED),
    ];
    net.nic(0).post(qp, &chain).expect("room");
}

#[test]
fn writes_of_a_queue_pair_are_seen_in_order_by_the_cpu() {
    on_every_fabric(|fabric| {
        let net = Net::new(fabric, 2);
        let (qp, _) = net.pair(0, 1, QpConfig::rc());
        for round in 1..=40 {
            write_both(&net, qp, round);
            let mut done = 0;
            while done == 0 {
                let y = net.memory(1).load(Y);
                let x = [0, 56].map(|word| net.memory(1).load(X + word));
                assert!(y != round || x == [round; 2], "round {round}: Y is new, X is {x:?}");
                done += net.nic(0).poll(1, |c| assert_eq!(c.status, WcStatus::Success));
                net.tick();
            }
            visible(&net, Y, round);
        }
    });
}

#[test]
fn writes_of_a_queue_pair_are_seen_in_order_by_reads() {
    on_every_fabric(|fabric| {
        let net = Net::new(fabric, 3);
        let (writer, _) = net.pair(0, 1, QpConfig::rc());
        let (reader, _) = net.pair(2, 1, QpConfig::rc());
        for round in 1..=20 {
            write_both(&net, writer, round);
            let mut written = 0;
            while written == 0 {
                // READs of one queue pair are executed in order: Y first, then X.
                let chain = [
                    request(1, net.read(1, Y), net.local(2, 0, 8), QUIET),
                    request(2, net.read(1, X), net.local(2, 64, X_BYTES), SIGNALED),
                ];
                net.nic(2).post(reader, &chain).expect("room");
                net.done(2);
                let (y, x) = (net.memory(2).load(0), [64, 120].map(|at| net.memory(2).load(at)));
                assert!(y != round || x == [round; 2], "round {round}: Y is new, X is {x:?}");
                written += net.nic(0).poll(1, |c| assert_eq!(c.status, WcStatus::Success));
            }
        }
    });
}

#[test]
fn a_read_sees_the_earlier_writes_of_its_queue_pair() {
    on_every_fabric(|fabric| {
        let net = Net::new(fabric, 2);
        let (qp, _) = net.pair(0, 1, QpConfig::rc());
        for round in 1..=50u64 {
            net.memory(0).store(0, round);
            let chain = [
                request(0, net.write(1, 0), net.local(0, 0, 8), QUIET),
                request(1, net.read(1, 0), net.local(0, 64, 8), SIGNALED),
            ];
            net.nic(0).post(qp, &chain).expect("room");
            net.done(0);
            assert_eq!(net.memory(0).load(64), round);
        }
    });
}

/// Posts X := 1 on one queue pair, Y := 1 on another; whether Y is ever seen before X.
fn flips(fabric: Fabric) -> bool {
    let net = Net::new(fabric, 2);
    let pairs = [net.pair(0, 1, QpConfig::rc()).0, net.pair(0, 1, QpConfig::rc()).0];
    let mut flipped = false;
    for round in 1..=30 {
        net.memory(0).store(0, round);
        // The first WRITE is longer, as logs are longer than lock words.
        net.post(0, pairs[0], 0, net.write(1, X), net.local(0, 0, 512), SIGNALED);
        net.post(0, pairs[1], 0, net.write(1, Y), net.local(0, 0, 8), SIGNALED);
        let mut done = 0;
        while done < 2 {
            let y = net.memory(1).load(Y);
            flipped |= y == round && net.memory(1).load(X) != round;
            done += net.nic(0).poll(2, |c| assert_eq!(c.status, WcStatus::Success));
            net.tick();
        }
    }
    flipped
}

#[test]
fn across_queue_pairs_order_may_flip() {
    // Where threads share CPUs with other work, whole seeds may pass with nobody looking in time.
    must_show("a WRITE that overtakes one of another queue pair", 100, flips);
    assert!(!flips(Fabric::Posting), "the posting thread executes in posting order");
}

#[test]
fn completions_of_a_queue_pair_come_in_order() {
    on_every_fabric(|fabric| {
        let net = Net::new(fabric, 2);
        let (qp, _) = net.pair(0, 1, QpConfig::rc());
        for round in 0..10 {
            // Long READs, short WRITEs and ATOMICs take different times; their completions may not show it.
            for i in 0..30u64 {
                let (verb, len) = match (i + round) % 3 {
                    0 => (net.read(1, 0), 2048),
                    1 => (net.write(1, 4096), 8),
                    _ => (net.fetch_add(1, 8192, 1), 8),
                };
                net.post(0, qp, i, verb, net.local(0, 4096 * (i % 8), len), SIGNALED);
            }
            let all = net.wait(0, 30);
            assert!(all.iter().zip(0..).all(|(c, id)| c.id == id), "{all:?}");
            assert!(all.iter().all(|c| c.opcode == WcOpcode::SendQueue && c.qp == qp));
        }
    });
}

#[test]
fn a_completed_write_is_visible_to_the_remote_cpu() {
    on_every_fabric(|fabric| {
        let net = Net::new(fabric, 2);
        let (qp, _) = net.pair(0, 1, QpConfig::rc());
        for round in 1..=30 {
            for word in 0..32 {
                net.memory(0).store(word * 8, round);
            }
            net.post(0, qp, round, net.write(1, 0), net.local(0, 0, 256), SIGNALED);
            net.done(0);
            (0..32).for_each(|word| visible(&net, word * 8, round));
        }
    });
}

/// What a completed WRITE brought is there. A device promises that to no CPU: its acknowledgement says that the data has arrived at the card, and
/// only a completion at this end, or a READ behind it, that it has passed PCIe (InfiniBand Architecture Specification, volume 1, chapter 9).
/// There it may come a little later, which is told.
fn visible(net: &Net, at: u64, value: u64) {
    let (mut late, mut seen) = (0u32, net.memory(1).load(at));
    while real_device().is_some() && seen != value && late < 1 << 20 {
        (late, seen) = (late + 1, net.memory(1).load(at));
    }
    assert_eq!(seen, value, "completed, so visible: offset {at}");
    if late > 0 {
        println!("a completed WRITE was visible to the remote CPU {late} looks later");
    }
}

#[test]
fn a_completed_write_may_be_late_on_a_card_that_does_so() {
    let late = |seed| {
        let net = Net::with(Fabric::Sim(seed), 2, Faults { late_write: 1.0, ..Faults::default() });
        let (qp, _) = net.pair(0, 1, QpConfig::rc());
        (1..=30).any(|round| {
            for word in 0..32 {
                net.memory(0).store(word * 8, round);
            }
            net.post(0, qp, round, net.write(1, 0), net.local(0, 0, 256), SIGNALED);
            net.done(0);
            net.memory(1).load(248) != round
        })
    };
    assert!((1..=10).any(late), "never late in 10 seeds");
}
