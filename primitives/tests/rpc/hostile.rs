//! Peers that do not keep to the protocol: out of the window, strangers, too long, and any bytes at all.

use super::common::*;
use super::{ADD_ONE, COUNT, Rig, add_one, impatient, patient};
use primitives::exec::sleep_until;
use primitives::fabric::Nic;
use primitives::mem::{Access, Region};
use primitives::rpc::RpcConfig;
use primitives::units::Nanos;
use primitives::verbs::{QpAddress, QpConfig, Sge, Verb, WorkRequest};
use proptest::prelude::*;

/// A queue pair of node 2 that node 1 takes for the RPC endpoint of node 2, in the hands of the test.
struct Stranger {
    qp: primitives::verbs::Qp,
    memory: Region,
    local: Sge,
}

impl Stranger {
    fn new(net: &Net, node: u16) -> Stranger {
        let nic = net.nic(node);
        let memory = Region::new(8192);
        let lkey = nic.register(&memory, Access::LOCAL).expect("a region").lkey;
        let qp = nic.create_qp(&QpConfig::ud()).expect("a queue pair");
        nic.connect(qp, None).expect("activates");
        Stranger { qp, memory, local: Sge { lkey, offset: 0, len: 0 } }
    }

    fn send(&self, net: &Net, node: u16, to: QpAddress, bytes: &[u8]) {
        self.memory.write_bytes(0, bytes).expect("inside");
        let verb = Verb::Send { to: Some(to.handle()), imm: None };
        let local = Sge { len: bytes.len() as u32, ..self.local };
        net.nic(node).post(self.qp, &[WorkRequest { id: 0, verb, local, flags: SIGNALED }]).expect("room");
        net.wait_on(net.nic(node), 1);
    }
}

/// Waits until node 1 has looked at so many requests and done with each what it does: served it or dropped it.
async fn looked_at(rig: &Rig, requests: u64) {
    let port = &rig.workers[0].port;
    loop {
        let stats = rig.rpc(1).stats();
        if stats.served + stats.duplicates + stats.malformed >= requests {
            return;
        }
        sleep_until(port, port.now() + Nanos(1_000)).await;
    }
}

/// A header as the wire format says: kind, handler, node, sequence number, done-below, call, payload bytes.
fn header(kind: u8, handler: u8, node: u16, seq: u32, done: u32, call: u32, len: u32) -> Vec<u8> {
    let words = [
        1 | u64::from(kind) << 8 | u64::from(handler) << 16 | u64::from(node) << 32,
        u64::from(seq) | u64::from(done) << 32,
        u64::from(call) | u64::from(len) << 32,
    ];
    words.iter().flat_map(|w| w.to_le_bytes()).collect()
}

/// A one-way request with a single word.
fn one_way(seq: u32, argument: u64) -> Vec<u8> {
    let mut bytes = header(2, ADD_ONE, 2, seq, 0, u32::MAX, 8);
    bytes.extend(argument.to_le_bytes());
    bytes
}

#[test]
fn a_peer_that_does_not_keep_to_the_window_is_not_obeyed() {
    on_every_datagram_fabric(|fabric| {
        let config = RpcConfig { window: 8, ..patient() };
        let rig = Rig::new(fabric, 3, config, Faults::default());
        let stranger = Stranger::new(&rig.net, 2);
        rig.rpc(1).open(rig.net.nic(2).address(stranger.qp));
        let to = rig.rpc(1).address();
        let tell = |seq, argument| {
            stranger.send(&rig.net, 2, to, &one_way(seq, argument));
            rig.net.settle();
        };
        // Inside the window, in any order; twice; far ahead; long ago; zero.
        for (seq, argument) in
            [(2, 2), (1, 1), (2, 20), (11, 11), (3, 3), (11, 12), (12, 30), (u32::MAX, 40), (0, 50)]
        {
            tell(seq, argument);
        }
        rig.run(vec![Box::pin(async {
            for i in 0..50 {
                add_one(rig.rpc(0), 1, 1000 + i).await.expect("the honest peer is served");
            }
            looked_at(&rig, 50 + 9).await;
        })]);
        let log = rig.ledgers[1].0.borrow();
        let executed: Vec<u64> = log.order.iter().copied().filter(|&a| a < 1000).collect();
        // After 1 to 3 were executed, 11 is the last of the window; 12 is not in it.
        assert_eq!(executed, [2, 1, 3, 12]);
        let stats = rig.rpc(1).stats();
        assert_eq!(stats.malformed, 2, "11 before its time, 12");
        assert_eq!(stats.duplicates, 3, "2 again, and two of long ago");
    });
}

#[test]
fn a_stranger_is_not_served() {
    on_every_datagram_fabric(|fabric| {
        let rig = Rig::new(fabric, 3, patient(), Faults::default());
        // It says that it is node 2, whose address the session knows.
        let stranger = Stranger::new(&rig.net, 2);
        stranger.send(&rig.net, 2, rig.rpc(1).address(), &one_way(1, 5));
        rig.run(vec![Box::pin(async {
            for i in 0..5 {
                add_one(rig.rpc(0), 1, 1000 + i).await.expect("answers");
            }
            looked_at(&rig, 5 + 1).await;
        })]);
        assert_eq!(rig.rpc(1).stats().malformed, 1);
        assert!(!rig.ledgers[1].0.borrow().times.contains_key(&5));
    });
}

#[test]
fn a_message_longer_than_the_endpoint_takes_is_dropped_and_the_endpoint_lives() {
    on_every_datagram_fabric(|fabric| {
        // With a message size whose receives have room to spare in their class.
        let config = RpcConfig { max_message: 1024, ..impatient() };
        let rig = Rig::new(fabric, 3, config, Faults::default());
        let peer = Stranger::new(&rig.net, 2);
        rig.rpc(1).open(rig.net.nic(2).address(peer.qp));
        // Longer than a message, shorter than the receive's size class; then longer than any receive.
        for words in [150u32, 400] {
            let mut bytes = header(0, COUNT, 2, 1, 0, 0, words * 8);
            bytes.resize(24 + words as usize * 8, 7);
            peer.send(&rig.net, 2, rig.rpc(1).address(), &bytes);
        }
        rig.run(vec![Box::pin(async {
            for i in 0..100 {
                add_one(rig.rpc(0), 1, i).await.expect("answers");
            }
            looked_at(&rig, 100 + 2).await;
        })]);
        assert_eq!((rig.rpc(1).stats().served, rig.rpc(1).stats().malformed), (100, 2));
    });
}

fn hostile() -> impl Strategy<Value = Vec<u8>> {
    let noise = prop::collection::vec(any::<u8>(), 0..2000);
    let fields = (
        0u8..5,
        0u8..6,
        0u16..4,
        prop_oneof![any::<u32>(), 0u32..70],
        any::<u32>(),
        any::<u32>(),
        0u32..2100,
    );
    let dressed = (fields, prop::collection::vec(any::<u8>(), 0..2000)).prop_map(
        |((kind, handler, node, seq, done, call, len), payload)| {
            let mut bytes = header(kind, handler, node, seq, done, call, len);
            bytes.extend(payload);
            bytes
        },
    );
    prop_oneof![1 => noise, 4 => dressed]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever a peer sends, with a session of its own or as a stranger: nothing panics, others are served, and
    /// what was executed was a request.
    #[test]
    fn no_bytes_break_an_endpoint(messages in prop::collection::vec((any::<bool>(), hostile()), 1..40)) {
        for fabric in [Fabric::Posting, Fabric::Sim(1), Fabric::Tcp] {
            let rig = Rig::new(fabric, 3, RpcConfig { window: 8, ..patient() }, Faults::default());
            let (peer, stranger) = (Stranger::new(&rig.net, 2), Stranger::new(&rig.net, 2));
            for node in [0, 1] {
                rig.rpc(node).open(rig.net.nic(2).address(peer.qp));
            }
            for (known, bytes) in &messages {
                let from = if *known { &peer } else { &stranger };
                // To the server and to the client, which expects replies.
                from.send(&rig.net, 2, rig.rpc(1).address(), bytes);
                from.send(&rig.net, 2, rig.rpc(0).address(), bytes);
            }
            rig.net.settle();
            rig.run(vec![Box::pin(async {
                for i in 0..40 {
                    add_one(rig.rpc(0), 1, 1 << 40 | i).await.expect("answers");
                }
            })]);
            let stats = rig.rpc(1).stats();
            let honest = rig.ledgers[1].0.borrow().times.iter().filter(|t| t.0 >> 40 == 1).count();
            prop_assert_eq!(honest, 40);
            prop_assert!(stats.served <= 40 + messages.iter().filter(|m| m.0).count() as u64);
        }
    }
}
