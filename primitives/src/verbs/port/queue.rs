//! A send queue as the port sees it: what is in flight, what is being built, what waits for room.

use super::VerbError;
use super::group::{Groups, NO_GROUP};
use crate::exec::Sched;
use crate::fabric::PostError;
use crate::mem::{BufPool, Pinned};
use crate::verbs::{Completion, NodeId, Qp, WcStatus, WorkRequest};
use std::collections::VecDeque;

/// Bits of a request's id that hold its sequence number; those above hold its queue's index. Fewer than 2^40
/// requests are in flight.
const SEQ_BITS: u32 = 40;
const SEQ_MASK: u64 = (1 << SEQ_BITS) - 1;

/// What the port keeps of a request: whom it belongs to and what it holds.
#[derive(Clone, Copy)]
pub(super) struct Entry {
    pub(super) group: u32,
    pub(super) pinned: Pinned,
}

/// Requests that found no room in a send queue, in order, with their groups.
pub(super) type Backlog = VecDeque<(WorkRequest, u32)>;

/// The buffer that a request holds. One that is not posted yet keeps it under its [`WorkRequest::id`], which means
/// nothing else before it is numbered.
#[inline]
pub(super) fn held(request: &WorkRequest) -> Pinned {
    Pinned::from_bits(request.id)
}

/// One send queue: the requests in flight, oldest first. All that a request usually needs of it is in one cache
/// line, because a simulated cluster has thousands of queues on one core.
#[repr(align(64))]
pub(super) struct Line {
    pub(super) qp: Qp,
    pub(super) peer: NodeId,
    index: u32,
    depth: u32,
    unsignaled: u32,
    /// The request, by the low bits of its sequence number, that began when the queue was last empty; its entry is
    /// `near`, those after it are in the ring.
    base: u32,
    near: Entry,
    ring: Box<[Entry]>,
    posted: u64,
    retired: u64,
}

impl Line {
    pub(super) fn new(index: u32, peer: NodeId, qp: Qp, depth: u32) -> Line {
        let none = Entry { group: NO_GROUP, pinned: Pinned::NONE };
        let ring = vec![none; (depth as usize).next_power_of_two()].into_boxed_slice();
        Line { qp, peer, index, depth, unsignaled: 0, base: 0, near: none, ring, posted: 0, retired: 0 }
    }

    /// The index of the queue that posted a request.
    #[inline]
    pub(super) fn index_of(id: u64) -> usize {
        (id >> SEQ_BITS) as usize
    }

    /// Places free.
    #[inline]
    pub(super) fn room(&self) -> u64 {
        u64::from(self.depth) - self.in_flight()
    }

    /// Requests posted and not yet confirmed.
    #[inline]
    pub(super) fn in_flight(&self) -> u64 {
        self.posted - self.retired
    }

    #[inline]
    fn slot(&mut self, seq: u64) -> &mut Entry {
        let at = (seq as u32).wrapping_sub(self.base) as usize & (self.ring.len() - 1);
        if at == 0 { &mut self.near } else { &mut self.ring[at] }
    }

    /// Numbers a request, signals it if it is time to, and keeps what it holds and whom it belongs to.
    #[inline]
    pub(super) fn enter(&mut self, request: &mut WorkRequest, group: u32, signal_period: u32) {
        let unsignaled = self.unsignaled + 1;
        let signaled = request.flags.signaled || unsignaled >= signal_period;
        request.flags.signaled = signaled;
        self.unsignaled = if signaled { 0 } else { unsignaled };
        let seq = self.posted;
        if seq == self.retired {
            self.base = seq as u32;
        }
        *self.slot(seq) = Entry { group, pinned: held(request) };
        request.id = u64::from(self.index) << SEQ_BITS | seq & SEQ_MASK;
        self.posted = seq + 1;
    }

    /// Takes back the requests of `chain`, entered last, from the refused one on: they are as before they were
    /// entered. Returns how many the NIC took.
    pub(super) fn take_back(&mut self, chain: &mut [WorkRequest], refused: &PostError) -> usize {
        let before = self.posted - chain.len() as u64;
        let taken = taken_before(chain, refused, u64::from(self.depth) - (before - self.retired));
        for (seq, request) in (before..).zip(chain.iter_mut()).skip(taken) {
            request.id = self.slot(seq).pinned.to_bits();
        }
        self.posted = before + taken as u64;
        // Those taken may have lost the signaled request that would have confirmed them. Counting all that is in
        // flight as unsignaled has one signaled early, never late.
        self.unsignaled = self.in_flight() as u32;
        taken
    }

    /// Lets a group, which has failed, no longer wait for what it has in flight here: there may be nothing behind
    /// it that confirms it. Its buffers stay pinned until something does.
    pub(super) fn detach(&mut self, group: u32, groups: &mut Groups, sched: &Sched) {
        for seq in self.retired..self.posted {
            let entry = self.slot(seq);
            if group != NO_GROUP && entry.group == group {
                entry.group = NO_GROUP;
                groups.finish(group, sched);
            }
        }
    }

    /// Retires everything up to the completed request.
    #[inline]
    pub(super) fn retire(
        &mut self,
        completion: &Completion,
        groups: &mut Groups,
        sched: &Sched,
        pool: &BufPool,
    ) {
        let behind = completion.id.wrapping_sub(self.retired) & SEQ_MASK;
        if behind >= self.in_flight() {
            // Of before a reset, or not ours.
            return;
        }
        let last = self.retired + behind;
        let group = loop {
            let seq = self.retired;
            let Entry { group, pinned } = *self.slot(seq);
            self.retired = seq + 1;
            pool.unpin(pinned);
            if seq == last {
                break group;
            }
            groups.finish(group, sched);
        };
        if completion.status != WcStatus::Success {
            groups.note(group, VerbError::Completion { peer: self.peer, status: completion.status });
        }
        groups.finish(group, sched);
    }

    /// Ends everything in flight as flushed: the queue pair was reset.
    pub(super) fn flush(&mut self, groups: &mut Groups, sched: &Sched, pool: &BufPool) {
        let error = VerbError::Completion { peer: self.peer, status: WcStatus::Flushed };
        while self.retired < self.posted {
            let Entry { group, pinned } = *self.slot(self.retired);
            self.retired += 1;
            pool.unpin(pinned);
            groups.fail(group, error, sched);
        }
        self.unsignaled = 0;
    }
}

/// How many requests of a chain a NIC took before it refused one. The refusal says what was wrong; the first
/// request of which that is true is the one.
fn taken_before(chain: &[WorkRequest], refused: &PostError, places: u64) -> usize {
    let first = match *refused {
        // Refused before the first request was looked at, or for what is true of all of the queue's requests.
        PostError::NotReady { .. } | PostError::UnknownQp { .. } | PostError::Destination { .. } => None,
        PostError::QueueFull { .. } => Some(places as usize),
        PostError::Device { taken, .. } => Some(taken as usize),
        PostError::Unsupported { verb, .. } | PostError::Messages { verb, .. } => {
            chain.iter().position(|r| r.verb.name() == verb)
        }
        PostError::Inline { len, .. } => chain.iter().position(|r| r.flags.inline && r.local.len == len),
    };
    first.unwrap_or(0).min(chain.len().saturating_sub(1))
}
