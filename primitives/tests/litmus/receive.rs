//! Messages that take a RECV: SEND and WRITE_WITH_IMM on reliable connections.

use crate::common::*;
use primitives::fabric::Nic;
use primitives::verbs::{QpConfig, QpState, Verb, WcOpcode, WcStatus};

#[test]
fn a_send_waits_for_a_receive_and_what_is_behind_it_waits_too() {
    on_every_fabric(|fabric| {
        let net = Net::new(fabric, 2);
        let (qp, peer) = net.pair(0, 1, QpConfig { rnr_retry: 7, ..QpConfig::rc() });
        let (other, _) = net.pair(0, 1, QpConfig::rc());
        for round in 1..=10 {
            net.memory(0).store(0, round);
            net.post(0, qp, 1, SEND, net.local(0, 0, 8), SIGNALED);
            net.post(0, qp, 2, net.write(1, 0), net.local(0, 0, 8), SIGNALED);
            net.post(0, other, 3, net.write(1, 64), net.local(0, 0, 8), SIGNALED);
            assert_eq!(
                statuses(&net.drain(0)),
                [(3, WcStatus::Success)],
                "another queue pair is not held up"
            );
            assert_eq!(net.memory(1).load(0), round - 1, "the WRITE stays behind the SEND");
            net.recv(1, peer, 9, 1024, 64);
            assert_eq!(statuses(&net.wait(0, 2)), [(1, WcStatus::Success), (2, WcStatus::Success)]);
            assert_eq!(statuses(&net.wait(1, 1)), [(9, WcStatus::Success)]);
            assert_eq!((net.memory(1).load(0), net.memory(1).load(1024)), (round, round));
        }
    });
}

#[test]
fn used_up_retries_fail_the_send_and_flush_what_is_behind_it() {
    on_every_fabric(|fabric| {
        for rnr_retry in [0, 1, 3] {
            let net = Net::new(fabric, 2);
            let (qp, peer) = net.pair(0, 1, QpConfig { rnr_retry, ..QpConfig::rc() });
            net.memory(0).store(0, 1);
            net.post(0, qp, 1, net.write(1, 0), net.local(0, 0, 8), QUIET);
            net.post(0, qp, 2, SEND, net.local(0, 0, 8), QUIET);
            net.post(0, qp, 3, net.write(1, 64), net.local(0, 0, 8), QUIET);
            let expected = [(2, WcStatus::RnrRetryExceeded), (3, WcStatus::Flushed)];
            assert_eq!(statuses(&net.wait(0, 2)), expected, "{rnr_retry} retries");
            assert_eq!(net.nic(0).qp_state(qp), QpState::Error);
            assert_eq!((net.memory(1).load(0), net.memory(1).load(64)), (1, 0));
            // Too late, and nobody is told twice.
            net.recv(1, peer, 9, 1024, 64);
            assert!(net.drain(0).is_empty() && net.drain(1).is_empty());
        }
    });
}

#[test]
fn sends_fill_receives_in_order() {
    on_every_fabric(|fabric| {
        let net = Net::new(fabric, 2);
        let (qp, peer) = net.pair(0, 1, QpConfig::rc());
        for id in 0..20 {
            net.recv(1, peer, 100 + id, id * 64, 64);
        }
        for id in 0..20u64 {
            net.memory(0).store(id * 8, id + 1);
            let imm = id.is_multiple_of(2).then_some(id as u32);
            net.post(0, qp, id, Verb::Send { to: None, imm }, net.local(0, id * 8, 1 + id as u32 % 8), QUIET);
        }
        for (id, c) in (0u64..).zip(net.wait(1, 20)) {
            assert_eq!((c.id, c.status, c.qp, c.opcode), (100 + id, WcStatus::Success, peer, WcOpcode::Recv));
            assert_eq!(c.byte_len, 1 + id as u32 % 8);
            assert_eq!(c.imm, id.is_multiple_of(2).then_some(id as u32));
            assert_eq!(c.from, None, "only datagrams name their sender");
            assert_eq!(net.memory(1).load(id * 64) & 0xff, id + 1);
        }
    });
}

#[test]
fn a_write_with_imm_is_visible_with_its_completion_and_takes_a_receive() {
    on_every_fabric(|fabric| {
        let net = Net::new(fabric, 2);
        for config in [QpConfig::rc(), QpConfig::uc()] {
            let (qp, peer) = net.pair(0, 1, config);
            for round in 1..=20 {
                net.recv(1, peer, round, 32 << 10, 64);
                for word in 0..16 {
                    net.memory(0).store(word * 8, round);
                }
                net.post(0, qp, 1, net.write_imm(1, 512, round as u32), net.local(0, 0, 128), SIGNALED);
                let c = net.wait(1, 1)[0];
                assert_eq!((c.id, c.status, c.opcode), (round, WcStatus::Success, WcOpcode::RecvRdmaWithImm));
                assert_eq!((c.byte_len, c.imm), (128, Some(round as u32)));
                for word in 0..16 {
                    assert_eq!(net.memory(1).load(512 + word * 8), round, "word {word}");
                }
                assert_eq!(net.memory(1).load(32 << 10), 0, "the receive's own buffer is not touched");
                net.done(0);
            }
        }
        // Without a RECV it waits like a SEND, and writes nothing.
        let (qp, peer) = net.pair(0, 1, QpConfig::rc());
        net.post(0, qp, 1, net.write_imm(1, 8192, 5), net.local(0, 0, 8), SIGNALED);
        assert!(net.drain(0).is_empty());
        assert_eq!(net.memory(1).load(8192), 0);
        net.recv(1, peer, 1, 32 << 10, 0);
        assert_eq!(net.done(0).id, 1);
        assert_eq!((net.done(1).imm, net.memory(1).load(8192)), (Some(5), 20));
    });
}

#[test]
fn a_receive_that_is_too_small_fails_both_ends() {
    on_every_fabric(|fabric| {
        let net = Net::new(fabric, 2);
        let (qp, peer) = net.pair(0, 1, QpConfig::rc());
        net.memory(0).store(0, u64::MAX);
        net.recv(1, peer, 7, 1024, 4);
        net.recv(1, peer, 8, 2048, 64);
        net.post(0, qp, 1, SEND, net.local(0, 0, 8), QUIET);
        net.post(0, qp, 2, SEND, net.local(0, 0, 8), QUIET);
        let sender = statuses(&net.wait(0, 2));
        // A negative acknowledgement either way; Soft-RoCE's says "operation error".
        let refused = if real_device().is_some() && sender[0].1 == WcStatus::RemoteOperation {
            WcStatus::RemoteOperation
        } else {
            WcStatus::RemoteInvalidRequest
        };
        assert_eq!(sender, [(1, refused), (2, WcStatus::Flushed)]);
        let receiver = statuses(&net.wait(1, 2));
        assert_eq!(receiver, [(7, WcStatus::LocalLength), (8, WcStatus::Flushed)]);
        assert_eq!((net.nic(0).qp_state(qp), net.nic(1).qp_state(peer)), (QpState::Error, QpState::Error));
        assert_eq!((net.memory(1).load(1024), net.memory(1).load(2048)), (0, 0), "nothing was written");
    });
}

/// What the other tests lean on where they say that something does not happen.
#[test]
fn once_settled_all_has_happened_that_can() {
    for seed in 1..=3 {
        let net = Net::new(Fabric::NicThread(seed), 2);
        let pairs = [0; 4].map(|_| net.pair(0, 1, QpConfig::rc()));
        for round in 1..=20 {
            net.memory(0).store(1016, round);
            for (i, &(qp, _)) in (0..).zip(&pairs) {
                net.post(0, qp, i, SEND, net.local(0, 0, 1024), SIGNALED);
                net.post(0, qp, 10 + i, net.write(1, i * 1024), net.local(0, 0, 1024), SIGNALED);
            }
            net.settle();
            assert_eq!(net.nic(0).poll(64, |_| {}), 0, "seed {seed}: there is no RECV");
            for (i, &(_, peer)) in (0..).zip(&pairs) {
                assert_eq!(net.memory(1).load(i * 1024 + 1016), round - 1);
                net.recv(1, peer, 20 + i, 32 << 10, 1024);
            }
            net.settle();
            // One look at each end and nothing is missing.
            assert_eq!(net.nic(0).poll(64, |c| assert_eq!(c.status, WcStatus::Success)), 8, "seed {seed}");
            assert_eq!(net.nic(1).poll(64, |c| assert_eq!(c.status, WcStatus::Success)), 4, "seed {seed}");
            for i in 0..4 {
                assert_eq!(net.memory(1).load(i * 1024 + 1016), round);
            }
        }
    }
}
