//! When a payload is read: at the post if inlined, later otherwise.

use crate::common::*;
use primitives::fabric::Nic;
use primitives::verbs::QpConfig;

/// WRITEs `len` bytes of ones, overwrites them with twos right after the post, and returns what arrived.
fn delivered(net: &Net, qp: primitives::verbs::Qp, len: u32, flags: primitives::verbs::Flags) -> Vec<u8> {
    let mut bytes = vec![1; len as usize];
    net.memory(0).write_bytes(0, &bytes).expect("inside");
    net.post(0, qp, 0, net.write(1, 0), net.local(0, 0, len), flags);
    net.memory(0).write_bytes(0, &vec![2; len as usize]).expect("inside");
    net.done(0);
    net.memory(1).read_bytes(0, &mut bytes).expect("inside");
    bytes
}

#[test]
fn inline_payloads_are_those_of_the_post() {
    on_every_fabric(|fabric| {
        let net = Net::new(fabric, 2);
        let (qp, _) = net.pair(0, 1, QpConfig::rc());
        for round in 0..20 {
            for len in [1, 8, 13, 64] {
                let got = delivered(&net, qp, len, INLINE);
                assert!(got.iter().all(|&b| b == 1), "round {round}, {len} B: {got:?}");
            }
        }
    });
}

#[test]
fn inline_sends_deliver_the_bytes_of_the_post() {
    on_every_fabric(|fabric| {
        let net = Net::new(fabric, 2);
        let (qp, peer) = net.pair(0, 1, QpConfig::rc());
        for round in 1..=20 {
            net.recv(1, peer, round, 0, 64);
            net.memory(0).store(0, round);
            net.post(0, qp, round, SEND, net.local(0, 0, 8), INLINE);
            net.memory(0).store(0, u64::MAX);
            net.done(0);
            net.done(1);
            assert_eq!(net.memory(1).load(0), round);
        }
    });
}

/// Whether some WRITE without inlining delivers bytes that were stored after its post.
fn delivers_later_bytes(fabric: Fabric) -> bool {
    let net = Net::new(fabric, 2);
    let (qp, _) = net.pair(0, 1, QpConfig::rc());
    (0..20).any(|_| {
        let got = delivered(&net, qp, 64, SIGNALED);
        assert!(got.iter().all(|&b| b == 1 || b == 2), "{got:?}");
        got.contains(&2)
    })
}

#[test]
fn others_may_be_those_of_later() {
    must_show("a payload overwritten after the post", 10, delivers_later_bytes);
    assert!(!delivers_later_bytes(Fabric::Posting), "executed before the post returns");
}

#[test]
fn payloads_arrive_at_any_length_and_alignment() {
    on_every_fabric(|fabric| {
        let net = Net::new(fabric, 2);
        let (qp, _) = net.pair(0, 1, QpConfig::rc());
        for (from, to) in [(0, 0), (8, 16), (3, 5), (1, 0), (0, 7)] {
            for len in [0, 1, 7, 8, 9, 100, 4097] {
                let bytes: Vec<u8> = (0..len).map(|i| (i * 7 + len + 1) as u8).collect();
                net.memory(0).write_bytes(from, &bytes).expect("inside");
                net.memory(1).write_bytes(0, &[0xee; 5000]).expect("inside");
                net.post(0, qp, 1, net.write(1, to), net.local(0, from, len), QUIET);
                net.post(0, qp, 2, net.read(1, 0), net.local(0, 8192, 5000), SIGNALED);
                net.done(0);
                let mut back = vec![0; 5000];
                net.memory(0).read_bytes(8192, &mut back).expect("inside");
                let (start, end) = (to as usize, to as usize + len as usize);
                assert_eq!(back[start..end], bytes[..], "{from} to {to}, {len} B");
                let around = back[..start].iter().chain(&back[end..]);
                assert!(around.clone().all(|&b| b == 0xee), "neighbours of {from} to {to}, {len} B");
            }
        }
        assert!(net.nic(0).caps().one_sided);
    });
}
