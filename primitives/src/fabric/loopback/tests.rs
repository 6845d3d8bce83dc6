//! The receive ring, by itself and with many senders.

use super::recv_ring::{Arrival, RecvRing};
use crate::verbs::{Lkey, NodeId, Qp, RecvRequest, Sge, WcOpcode, WcStatus};
use std::sync::atomic::{AtomicBool, Ordering};

fn request(id: u64) -> RecvRequest {
    RecvRequest { id, local: Sge { lkey: Lkey(7), offset: id * 64, len: 64 } }
}

fn arrival(byte_len: u32) -> Arrival {
    Arrival {
        byte_len,
        imm: Some(byte_len),
        from: Some((NodeId(0), Qp(0))),
        opcode: WcOpcode::Recv,
        status: WcStatus::Success,
    }
}

#[test]
fn full_and_empty_are_told_apart() {
    let ring = RecvRing::new(3);
    assert!(ring.claim().is_none());
    assert!((0..3).all(|id| ring.post(&request(id))));
    assert!(!ring.post(&request(3)));
    for id in 0..3 {
        ring.claim().unwrap().publish(arrival(id as u32));
    }
    assert!(ring.claim().is_none());
    for id in 0..3 {
        let (got, arrival) = ring.take().unwrap();
        assert_eq!((got, arrival.byte_len, arrival.from), (id, id as u32, Some((NodeId(0), Qp(0)))));
    }
    assert!(ring.take().is_none() && ring.post(&request(4)));
}

#[test]
fn many_senders_lose_and_double_nothing() {
    const EACH: u32 = 20_000;
    let ring = RecvRing::new(16);
    let stop = AtomicBool::new(false);
    let mut seen = vec![0u32; 3 * EACH as usize];
    std::thread::scope(|scope| {
        for sender in 0..3 {
            let (ring, stop) = (&ring, &stop);
            scope.spawn(move || {
                let mut sent = 0;
                while sent < EACH && !stop.load(Ordering::Relaxed) {
                    match ring.claim() {
                        Some(claim) => {
                            claim.publish(arrival(sender * EACH + sent));
                            sent += 1;
                        }
                        None => std::thread::yield_now(),
                    }
                }
            });
        }
        let (mut id, mut taken) = (0, 0);
        while taken < 3 * EACH {
            while ring.post(&request(id)) {
                id += 1;
            }
            while let Some((got, arrival)) = ring.take() {
                assert_eq!(got, u64::from(taken), "outcomes come in posting order");
                seen[arrival.byte_len as usize] += 1;
                taken += 1;
            }
            std::thread::yield_now();
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert!(seen.iter().all(|&n| n == 1));
}
