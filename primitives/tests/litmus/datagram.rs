//! Datagrams: lost without a word, or delivered whole with a routing header in front.

use crate::common::*;
use primitives::fabric::Nic;
use primitives::verbs::work::GRH_BYTES;
use primitives::verbs::{AddressHandle, NodeId, Qp, QpConfig, QpState, Verb, WcOpcode, WcStatus};

const KEY: u32 = 0x1234;

fn datagrams() -> QpConfig {
    QpConfig { qkey: KEY, ..QpConfig::ud() }
}

fn to(handle: AddressHandle) -> Verb {
    Verb::Send { to: Some(handle), imm: None }
}

#[test]
fn a_datagram_arrives_whole_behind_its_header() {
    on_every_datagram_fabric(|fabric| {
        let net = Net::new(fabric, 2);
        let (qp, peer) = net.pair(0, 1, datagrams());
        let there = net.nic(1).address(peer).handle();
        for len in [0, 1, 8, 60, 1000, net.nic(0).caps().ud_mtu] {
            let bytes: Vec<u8> = (0..len).map(|i| (i + len) as u8).collect();
            net.memory(0).write_bytes(0, &bytes).expect("inside");
            net.recv(1, peer, 3, 16 << 10, GRH_BYTES + len);
            let verb = Verb::Send { to: Some(there), imm: Some(len) };
            net.post(0, qp, 1, verb, net.local(0, 0, len), SIGNALED);
            net.done(0);
            let c = net.done(1);
            assert_eq!((c.id, c.opcode, c.imm), (3, WcOpcode::Recv, Some(len)));
            // The sender is told by the number that its address has.
            let sender = net.nic(0).address(qp).handle().qp;
            assert_eq!((c.byte_len, c.from), (len + GRH_BYTES, Some((NodeId(0), sender))));
            let mut got = vec![0; len as usize];
            net.memory(1).read_bytes((16 << 10) + u64::from(GRH_BYTES), &mut got).expect("inside");
            assert_eq!(got, bytes);
        }
    });
}

#[test]
fn datagrams_that_nobody_takes_are_lost_and_the_sender_succeeds() {
    on_every_fabric(|fabric| {
        let net = Net::new(fabric, 2);
        let (qp, peer) = net.pair(0, 1, datagrams());
        let (rc, _) = net.pair(1, 0, QpConfig::rc());
        let idle = net.nic(1).create_qp(&datagrams()).expect("a queue pair");
        net.recv(1, rc, 8, 0, 64);
        net.recv(1, idle, 8, 0, 64);
        let right = net.nic(1).address(peer).handle();
        let lost = [
            ("no RECV", right),
            ("no such node", AddressHandle { node: NodeId(9), ..right }),
            ("no such queue pair", AddressHandle { qp: Qp(0xff_ffff), ..right }),
            ("not a datagram queue pair", AddressHandle { qp: rc, ..right }),
            ("not activated", AddressHandle { qp: idle, ..right }),
        ];
        for (what, handle) in lost {
            if real_device().is_some() && usize::from(handle.node.0) > 1 {
                continue; // refused: there is no address to send it to
            }
            net.post(0, qp, 1, to(handle), net.local(0, 0, 8), SIGNALED);
            assert_eq!(statuses(&net.wait(0, 1)), [(1, WcStatus::Success)], "{what}");
        }
        assert!(net.drain(1).is_empty());
        net.recv(1, peer, 5, 0, 64);
        assert!(net.drain(1).is_empty(), "a RECV posted later does not bring it back");
        net.post(0, qp, 2, to(AddressHandle { qkey: KEY + 1, ..right }), net.local(0, 0, 8), SIGNALED);
        net.done(0);
        assert!(net.drain(1).is_empty(), "wrong queue key");
        net.post(0, qp, 3, to(right), net.local(0, 0, 8), SIGNALED);
        net.done(0);
        assert_eq!(net.done(1).id, 5, "the RECV was not used up by what was dropped");
        assert_eq!(net.nic(0).qp_state(qp), QpState::ReadyToSend);
    });
}

#[test]
fn a_datagram_longer_than_the_mtu_fails_at_the_sender() {
    on_every_datagram_fabric(|fabric| {
        let net = Net::new(fabric, 2);
        let (qp, peer) = net.pair(0, 1, datagrams());
        let there = net.nic(1).address(peer).handle();
        let mtu = net.nic(0).caps().ud_mtu;
        net.recv(1, peer, 5, 0, mtu + 2 * GRH_BYTES);
        net.post(0, qp, 1, to(there), net.local(0, 0, mtu + 1), QUIET);
        if real_device().is_some() {
            // The specification's C10-93.1.1: nothing is sent, and it need not be an error.
            assert!(net.drain(1).is_empty());
            return;
        }
        assert_eq!(statuses(&net.wait(0, 1)), [(1, WcStatus::LocalLength)]);
        assert_eq!(net.nic(0).qp_state(qp), QpState::Error);
        net.post(0, qp, 2, to(there), net.local(0, 0, 8), QUIET);
        assert_eq!(statuses(&net.wait(0, 1)), [(2, WcStatus::Flushed)]);
        assert!(net.drain(1).is_empty());
        net.nic(0).reset_qp(qp);
        net.post(0, qp, 3, to(there), net.local(0, 0, mtu), SIGNALED);
        assert_eq!(statuses(&net.wait(0, 1)), [(3, WcStatus::Success)]);
        assert_eq!(net.done(1).byte_len, mtu + GRH_BYTES);
    });
}

#[test]
fn a_datagram_never_overruns_its_receive() {
    on_every_datagram_fabric(|fabric| {
        let net = Net::new(fabric, 2);
        let (qp, peer) = net.pair(0, 1, datagrams());
        let there = net.nic(1).address(peer).handle();
        net.memory(0).write_bytes(0, &[7; 64]).expect("inside");
        net.memory(1).write_bytes(0, &[0xee; 256]).expect("inside");
        net.recv(1, peer, 5, 0, GRH_BYTES + 31);
        net.post(0, qp, 1, to(there), net.local(0, 0, 32), SIGNALED);
        assert_eq!(statuses(&net.wait(0, 1)), [(1, WcStatus::Success)]);
        let got = net.drain(1);
        assert!(got.iter().all(|c| c.status != WcStatus::Success), "{got:?}");
        let mut bytes = [0; 200];
        net.memory(1).read_bytes(u64::from(GRH_BYTES), &mut bytes).expect("inside");
        assert!(bytes.iter().all(|&b| b == 0xee));
    });
}

#[test]
fn datagrams_are_lost_with_the_probability_asked_for() {
    const SENT: u64 = 400;
    on_every_fabric(|fabric| {
        if real_device().is_some() {
            return; // nobody can ask a real network for that
        }
        for (loss, least, most) in [(0.0, SENT, SENT), (0.5, 140, 260), (1.0, 0, 0)] {
            let net = Net::with(fabric, 2, Faults { loss, ..Faults::default() });
            let (qp, peer) = net.pair(0, 1, datagrams());
            let there = net.nic(1).address(peer).handle();
            let mut got = 0;
            for id in 0..SENT {
                net.recv(1, peer, id, 0, 64);
                net.post(0, qp, id, to(there), net.local(0, 0, 8), SIGNALED);
                net.done(0);
                got += net.nic(1).poll(8, |_| {}) as u64;
            }
            got += net.drain(1).len() as u64;
            assert!((least..=most).contains(&got), "loss {loss}: {got} of {SENT} arrived");
        }
    });
}
