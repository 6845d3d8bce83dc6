//! Depths: places of the send queue, the receive queue, and READs in flight.

use crate::common::*;
use primitives::fabric::{Nic, PostError};
use primitives::verbs::{QpConfig, RecvRequest, WcStatus};

#[test]
fn unsignaled_requests_fill_the_send_queue_for_good() {
    on_every_fabric(|fabric| {
        let net = Net::new(fabric, 2);
        let (qp, _) = net.pair(0, 1, QpConfig { send_depth: 8, ..QpConfig::rc() });
        for id in 0..8 {
            net.post(0, qp, id, net.write(1, id * 8), net.local(0, 0, 8), QUIET);
        }
        let one_more = [request(8, net.write(1, 0), net.local(0, 0, 8), SIGNALED)];
        assert!(net.drain(0).is_empty());
        let full = Err(PostError::QueueFull { qp, depth: 8 });
        assert_eq!(net.nic(0).post(qp, &one_more), full, "executed, but nobody was told");
    });
}

#[test]
fn a_signaled_request_frees_the_places_of_those_before_it() {
    on_every_fabric(|fabric| {
        let net = Net::new(fabric, 2);
        let (qp, _) = net.pair(0, 1, QpConfig { send_depth: 8, ..QpConfig::rc() });
        for round in 0..20 {
            for id in 0..8 {
                let flags = if id == 5 { SIGNALED } else { QUIET };
                net.post(0, qp, id, net.write(1, id * 8), net.local(0, 0, 8), flags);
            }
            assert_eq!(statuses(&net.wait(0, 1)), [(5, WcStatus::Success)]);
            // Six places are free, two requests are unconfirmed.
            let chain: Vec<_> =
                (0..7).map(|id| request(id, net.write(1, 0), net.local(0, 0, 8), SIGNALED)).collect();
            let full = PostError::QueueFull { qp, depth: 8 };
            assert_eq!(net.nic(0).post(qp, &chain), Err(full), "round {round}");
            let done = net.wait(0, 6);
            assert!(
                done.iter().zip(0..).all(|(c, id)| c.id == id),
                "those before the refused one were taken"
            );
            assert!(net.drain(0).is_empty());
        }
    });
}

#[test]
fn a_place_is_free_once_its_completion_was_taken_not_before() {
    on_every_fabric(|fabric| {
        let net = Net::new(fabric, 2);
        let (qp, _) = net.pair(0, 1, QpConfig { send_depth: 2, ..QpConfig::rc() });
        let write = |id| [request(id, net.write(1, 0), net.local(0, 0, 8), SIGNALED)];
        net.nic(0).post(qp, &write(1)).expect("room");
        net.nic(0).post(qp, &write(2)).expect("room");
        net.settle();
        let full = Err(PostError::QueueFull { qp, depth: 2 });
        assert_eq!(net.nic(0).post(qp, &write(3)), full, "done, but not polled");
        assert_eq!(net.wait(0, 1)[0].id, 1);
        assert_eq!(net.nic(0).post(qp, &write(3)), Ok(()));
        assert_eq!(net.nic(0).post(qp, &write(4)), full);
    });
}

#[test]
fn the_receive_queue_has_a_depth() {
    on_every_fabric(|fabric| {
        let net = Net::new(fabric, 2);
        let (qp, peer) = net.pair(0, 1, QpConfig { recv_depth: 3, ..QpConfig::rc() });
        let recv = |id| RecvRequest { id, local: net.local(1, id * 64, 64) };
        let full = Err(PostError::QueueFull { qp: peer, depth: 3 });
        assert_eq!(net.nic(1).post_recv(peer, &[recv(0), recv(1), recv(2)]), Ok(()));
        assert_eq!(net.nic(1).post_recv(peer, &[recv(3)]), full);
        net.post(0, qp, 0, SEND, net.local(0, 0, 8), SIGNALED);
        net.done(0);
        assert_eq!(net.done(1).id, 0);
        assert_eq!(net.nic(1).post_recv(peer, &[recv(3)]), Ok(()));
        assert_eq!(net.nic(1).post_recv(peer, &[recv(4)]), full);
    });
}

#[test]
fn more_reads_than_the_depth_wait_and_all_complete() {
    on_every_fabric(|fabric| {
        let mut took = Vec::new();
        for max_rd_atomic in [1, 16] {
            let net = Net::new(fabric, 2);
            let (qp, _) = net.pair(0, 1, QpConfig { max_rd_atomic, ..QpConfig::rc() });
            for word in 0..64 {
                net.memory(1).store(word * 8, word + 1);
            }
            let start = net.nic(0).now();
            for id in 0..64 {
                net.post(0, qp, id, net.read(1, id * 8), net.local(0, id * 8, 8), SIGNALED);
            }
            let done = net.wait(0, 64);
            assert!(done.iter().zip(0..).all(|(c, id)| (c.id, c.status) == (id, WcStatus::Success)));
            assert!((0..64).all(|word| net.memory(0).load(word * 8) == word + 1));
            took.push(net.nic(0).now().since(start).0);
        }
        if Net::new(fabric, 1).is_simulated() {
            assert!(took[0] > 5 * took[1], "one READ at a time costs a round trip each: {took:?} ns");
        }
    });
}
