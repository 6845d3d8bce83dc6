//! Calls that are carried otherwise than by SEND and RECV alone: the other columns of DrTM+H's figure 3(b).
//!
//! | verb | request | reply | a message is found |
//! |---|---|---|---|
//! | `rpc-two-writes` | WRITE | WRITE | by polling memory (FaRM, NSDI 2014 §4.1) |
//! | `rpc-write-imm` | WRITE_WITH_IMM | WRITE_WITH_IMM | in the completion queue; receives are posted |
//! | `rpc-write-send` | WRITE | SEND over UD | requests by polling memory, replies in the completion queue (HERD, SIGCOMM 2014 §4) |
//!
//! WRITEs go over the reliable connections that a mesh has. HERD takes unreliable ones for its requests, which spares
//! acknowledgements; what that gains is not shown here.
//!
//! **Rings.** Each worker has a ring of [`SLOTS`] request slots and one of as many reply slots for every peer, in one region of the
//! node ([`Layout`]). A caller's request takes the next slot and that slot of the reply ring with it, and no later one
//! takes either before the reply is there; this is the credit, and nothing is ever overwritten that has not been read. Callers that find the
//! slot taken wait their turn. Messages say by themselves that they are whole (`message.rs`).
//!
//! **What is asked and answered.** The request carries the payload, drawn anew for each call. The server reads all of it and answers one word
//! that depends on every word of it; the caller compares it with its own. Together they are as long as the two
//! messages of an `rpc`, whose request is a word and whose reply the payload, but for the frame: a control word here, three words there.
//!
//! **What polling costs where time is virtual.** One sweep over the rings is charged as one look at an empty completion
//! queue (`cpu.poll`: a call and a loop's turn) and `cpu.copy_byte` for the eight bytes looked at in each ring, because a
//! control word that no NIC has written since the last look is in the core's own cache. A message that is found costs
//! what a completion entry does (`cpu.completion`): either way a card has just written the line. Then it is decoded, dispatched and answered
//! at the price of every call (`cpu.rpc_decode`, `cpu.rpc_dispatch`, `cpu.rpc_encode`), and its payload read at `cpu.copy_byte`. A core
//! sweeps when no request and no coroutine waits for it, and when it has nothing to do it sweeps without a pause.
//!
//! The simulator's price of a WRITE_WITH_IMM is that of a SEND and a completion entry, and is not fitted to any.
//!
//! WRITEs are reliable, datagrams are not: a reply that is lost ends the measurement with an error after
//! [`PATIENCE`], as HERD leaves it to the application.

mod endpoint;
mod message;
mod poller;
#[cfg(test)]
mod tests;

pub(super) use endpoint::{CallError, Calls, Rings};
pub(super) use poller::LoadPoller;

use super::Point;
use crate::units::Nanos;
use crate::verbs::NodeId;
use message::CONTROL_BYTES;
use std::task::Poll;

/// Requests that a worker may have unanswered at each peer: a power of two, so that sequence numbers may wrap.
pub(super) const SLOTS: u32 = 32;

/// Bytes of a reply: the answer and its control word.
const REPLY_BYTES: u32 = 8 + CONTROL_BYTES;

/// A slot begins at a cache line, so that what is written into one does not take others from the caches of who polls them.
const LINE: u64 = 64;

/// How long no call may be answered where time is real, and where it is virtual. Far above what a busy machine keeps a thread from
/// running, or a simulated card a request.
pub(super) const PATIENCE: (Nanos, Nanos) = (Nanos::from_millis(10_000), Nanos::from_millis(10));

/// Waits until no answer of a group is open any more, or all have failed: `look` says whether they have, and how many are open.
pub(super) async fn answered<E>(look: impl Fn() -> (Option<E>, u32)) -> Result<(), E> {
    std::future::poll_fn(|_| match look() {
        (Some(failed), _) => Poll::Ready(Err(failed)),
        (None, 0) => Poll::Ready(Ok(())),
        (None, _) => Poll::Pending,
    })
    .await
}

/// What carries requests and replies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carrier {
    /// A WRITE each way, found by polling memory.
    TwoWrites,
    /// A WRITE_WITH_IMM each way, found in the completion queue.
    WriteImm,
    /// A WRITE to memory that is polled, answered by a datagram.
    WriteSend,
}

impl Carrier {
    /// Whether requests are found by polling memory.
    fn polls_memory(self) -> bool {
        self != Carrier::WriteImm
    }
}

/// Where the slots of a node are in its region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    workers: u64,
    /// Words of a request's payload.
    words: usize,
}

impl Layout {
    pub(super) fn new(point: &Point) -> Layout {
        let words = point.payload.div_ceil(8).max(1) as usize;
        Layout { workers: point.threads.into(), words }
    }

    /// Bytes of a request.
    fn request_bytes(self) -> u32 {
        self.words as u32 * 8 + CONTROL_BYTES
    }

    fn request_slot(self) -> u64 {
        u64::from(self.request_bytes()).next_multiple_of(LINE)
    }

    /// Bytes of the rings that a worker has for one peer.
    fn peer(self) -> u64 {
        u64::from(SLOTS) * (self.request_slot() + LINE)
    }

    /// Bytes of the region of a node that reaches so many.
    pub(super) fn region_bytes(self, reach: u16) -> u64 {
        u64::from(reach) * self.workers * self.peer()
    }

    /// By peer first: where one's rings are does not depend on how many others there are.
    fn rings(self, worker: u16, peer: NodeId) -> u64 {
        (u64::from(peer.0) * self.workers + u64::from(worker)) * self.peer()
    }

    /// Where request `seq` of `peer` comes.
    fn request(self, worker: u16, peer: NodeId, seq: u32) -> u64 {
        self.rings(worker, peer) + u64::from(seq % SLOTS) * self.request_slot()
    }

    /// Where the reply of `peer` to request `seq` comes.
    fn reply(self, worker: u16, peer: NodeId, seq: u32) -> u64 {
        self.rings(worker, peer) + u64::from(SLOTS) * self.request_slot() + u64::from(seq % SLOTS) * LINE
    }

    /// Bytes of buffers that a worker with `lanes` connections to a peer takes from its pool for it.
    pub(super) fn pool_bytes(self, carrier: Carrier, lanes: u32) -> u64 {
        let request = u64::from(self.request_bytes()).next_power_of_two().max(LINE);
        let receives = if carrier == Carrier::WriteImm { 2 * u64::from(lanes) * LINE } else { 0 };
        u64::from(SLOTS) * (request + LINE + receives)
    }
}
