//! Interleavings of a few threads around the receive ring of loopback, by loom, with every value that a load may return
//! under the memory model.
//!
//! The ring's file is included here with loom's atomics in the place of the standard library's, so what is gone through is the text that
//! runs. The bytes of a buffer are one word beside it. Threads are preempted at most [`PREEMPTIONS`] times in an execution: without a
//! bound the first test takes minutes (and passes).

use loom::sync::{Arc, atomic};
use primitives::verbs;

#[path = "../src/fabric/loopback/recv_ring.rs"]
mod recv_ring;

use atomic::{AtomicU64, Ordering};
use recv_ring::{Arrival, RecvRing};
use verbs::{Lkey, RecvRequest, Sge, WcOpcode, WcStatus};

/// See the module.
const PREEMPTIONS: usize = 3;

fn model(test: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(PREEMPTIONS);
    builder.check(test);
}

/// A ring and the memory of its buffers.
struct Queue {
    ring: RecvRing,
    buffers: [AtomicU64; 2],
}

impl Queue {
    fn new(depth: u32) -> Arc<Queue> {
        Arc::new(Queue { ring: RecvRing::new(depth), buffers: [AtomicU64::new(0), AtomicU64::new(0)] })
    }

    /// Posts receive `id` into a buffer.
    fn post(&self, id: u64, buffer: u64) -> bool {
        self.ring.post(&RecvRequest { id, local: Sge { lkey: Lkey(id as u32), offset: buffer, len: 8 } })
    }

    /// What a sender does: whether it found a receive. What it says goes into the buffer and beside it.
    fn send(&self, what: u32) -> bool {
        let Some(claim) = self.ring.claim() else { return false };
        self.buffers[claim.local.offset as usize].store(u64::from(what), Ordering::Relaxed);
        let arrival = Arrival {
            byte_len: what,
            imm: Some(claim.local.lkey.0),
            from: None,
            opcode: WcOpcode::Recv,
            status: WcStatus::Success,
        };
        claim.publish(arrival);
        true
    }

    /// The next outcome: which receive, and what was said. The buffer holds it, and the sender filled the receive that was posted.
    fn take(&self, buffer_of: impl Fn(u64) -> u64) -> Option<(u64, u32)> {
        let (id, arrival) = self.ring.take()?;
        let bytes = self.buffers[buffer_of(id) as usize].load(Ordering::Relaxed);
        assert_eq!(bytes, u64::from(arrival.byte_len), "the bytes come with the outcome");
        assert_eq!(arrival.imm, Some(id as u32), "the sender saw the request that it claimed");
        Some((id, arrival.byte_len))
    }
}

#[test]
fn two_senders_fill_two_receives_once_each_and_outcomes_come_in_posting_order() {
    model(|| {
        let queue = Queue::new(2);
        let senders: Vec<_> = [1, 2]
            .map(|what| {
                let queue = queue.clone();
                loom::thread::spawn(move || queue.send(what))
            })
            .into();
        let mut taken = Vec::new();
        for id in 0..2 {
            assert!(queue.post(id, id));
            taken.extend(queue.take(|id| id));
        }
        let sent = senders.into_iter().map(|sender| sender.join().unwrap()).filter(|&sent| sent).count();
        taken.extend(std::iter::from_fn(|| queue.take(|id| id)));
        assert_eq!(taken.len(), sent, "nothing is lost or doubled");
        assert_eq!(queue.ring.is_empty(), sent == 2);
        assert!(taken.iter().zip(0..).all(|(&(id, _), n)| id == n), "{taken:?}");
        assert!(sent < 2 || taken[0].1 != taken[1].1);
    });
}

#[test]
fn a_slot_is_used_again_only_after_its_outcome_was_taken() {
    model(|| {
        let queue = Queue::new(1);
        assert!(queue.post(0, 0));
        let sender = {
            let queue = queue.clone();
            loom::thread::spawn(move || [1, 2].map(|what| queue.send(what)))
        };
        let mut taken = Vec::new();
        // A second receive, in another buffer, fits once the first has come back.
        for _ in 0..2 {
            taken.extend(queue.take(|id| id));
            let posted = queue.post(1, 1);
            assert_eq!(posted, taken.len() == 1, "depth is one");
            if posted {
                break;
            }
        }
        let sent = sender.join().unwrap();
        taken.extend(std::iter::from_fn(|| queue.take(|id| id)));
        assert!(sent[0], "a receive was posted before");
        assert_eq!(taken.len(), sent.iter().filter(|&&sent| sent).count());
        assert!(taken.iter().zip(0..).all(|(&(id, what), n)| id == n && what == id as u32 + 1), "{taken:?}");
    });
}
