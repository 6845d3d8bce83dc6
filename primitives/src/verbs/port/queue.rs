//! A send queue as the port sees it: what is in flight, what is being built, what waits for room.

use super::VerbError;
use super::group::{Awaited, Groups, Owner};
use crate::exec::Sched;
use crate::fabric::PostError;
use crate::mem::{BufPool, Pinned};
use crate::verbs::{NodeId, Qp, WcStatus, WorkRequest};
use std::collections::VecDeque;

/// Bits of a request's id that hold the end of its sequence number; those above hold its queue's index. Fewer than 2^32
/// requests are in flight, and half a word needs no mask.
const SEQ_BITS: u32 = 32;
const SEQ_MASK: u64 = (1 << SEQ_BITS) - 1;

/// What the port keeps of a request: whom it belongs to and what it holds. One that a task waits for alone holds nothing, since
/// its buffer is kept there; it names the buffer all the same.
#[derive(Clone, Copy)]
pub(super) struct Entry {
    pub(super) owner: Owner,
    pub(super) pinned: Pinned,
}

/// Requests that found no room in a send queue, in order, with their groups or nobody.
pub(super) type Backlog = VecDeque<(WorkRequest, Owner)>;

/// The buffer that a request holds. One that is not posted yet keeps it under its [`WorkRequest::id`], which means
/// nothing else before it is numbered.
#[inline]
pub(super) fn held(request: &WorkRequest) -> Pinned {
    Pinned::from_bits(request.id)
}

/// Entries of one queue by the low bits of their sequence numbers, as many as its depth rounded up; none before they are
/// needed.
type Ring = Box<[Entry]>;

const NO_ENTRY: Entry = Entry { owner: Owner::NOBODY, pinned: Pinned::NONE };

/// The rings of all queues. Handed on as a whole, since a request hardly ever needs one.
#[derive(Default)]
pub(super) struct Rings(Vec<Ring>);

impl Rings {
    /// Adds the ring of another queue, with room for `depth` requests.
    pub(super) fn add(&mut self, depth: u32) {
        self.0.push(ring(depth));
    }
}

/// An empty ring for `depth` requests.
fn ring(depth: u32) -> Ring {
    let len = if depth == 0 { 0 } else { (depth as usize).next_power_of_two() };
    vec![NO_ENTRY; len].into_boxed_slice()
}

/// Entries that a line itself has room for.
const NEAR: usize = 4;

/// One send queue: the requests in flight, oldest first. All that a request usually needs of it is in one cache
/// line, because a simulated cluster has thousands of queues on one core. While more than [`NEAR`] requests are in
/// flight, and until there is none any more, their entries are in the queue's ring.
#[repr(align(64))]
pub(super) struct Line {
    pub(super) qp: Qp,
    index: u32,
    depth: u32,
    in_flight: u32,
    pub(super) peer: NodeId,
    unsignaled: u16,
    far: bool,
    /// What failed first since the queue pair was last reset: everything behind it is flushed.
    cause: Option<WcStatus>,
    posted: u64,
    /// Entries by the low bits of their sequence numbers.
    near: [Entry; NEAR],
}

impl Line {
    pub(super) fn new(index: u32, peer: NodeId, qp: Qp, depth: u32) -> Line {
        let near = [NO_ENTRY; NEAR];
        Line { qp, index, depth, in_flight: 0, peer, unsignaled: 0, far: false, cause: None, posted: 0, near }
    }

    /// The index of the queue that posted a request.
    #[inline]
    pub(super) fn index_of(id: u64) -> usize {
        (id >> SEQ_BITS) as usize
    }

    /// Places free.
    #[inline]
    pub(super) fn room(&self) -> u64 {
        u64::from(self.depth - self.in_flight)
    }

    /// Requests posted and not yet confirmed.
    #[inline]
    pub(super) fn in_flight(&self) -> u64 {
        u64::from(self.in_flight)
    }

    /// The sequence number of the oldest request in flight.
    #[inline]
    fn retired(&self) -> u64 {
        self.posted - self.in_flight()
    }

    #[inline]
    fn slot<'a>(&'a mut self, rings: &'a mut Rings, seq: u64) -> &'a mut Entry {
        if self.far {
            let ring = &mut rings.0[self.index as usize];
            let mask = ring.len() - 1;
            &mut ring[seq as usize & mask]
        } else {
            &mut self.near[seq as usize % NEAR]
        }
    }

    /// The entry of the oldest request in flight; anything if there is none.
    #[inline]
    pub(super) fn oldest(&self, rings: &Rings) -> Entry {
        let seq = self.retired() as usize;
        if self.far {
            let ring = &rings.0[self.index as usize];
            ring[seq & (ring.len() - 1)]
        } else {
            self.near[seq % NEAR]
        }
    }

    /// Moves the entries to the queue's ring: there is one request too many for the line.
    #[cold]
    fn move_out(&mut self, rings: &mut Rings) {
        let ring = &mut rings.0[self.index as usize];
        if ring.is_empty() {
            *ring = self::ring(self.depth);
        }
        for seq in self.retired()..self.posted {
            let mask = ring.len() - 1;
            ring[seq as usize & mask] = self.near[seq as usize % NEAR];
        }
        self.far = true;
    }

    /// Whether a request that was posted has ended. If not, `owner` is who will be told.
    #[inline]
    pub(super) fn ended(&mut self, rings: &mut Rings, seq: u64, owner: Owner) -> bool {
        let ended = seq < self.retired();
        if !ended {
            self.slot(rings, seq).owner = owner;
        }
        ended
    }

    /// A request by its place in the order of posting.
    #[inline]
    fn request(&self, seq: u64) -> Awaited {
        Awaited::Request { queue: self.index, seq }
    }

    /// Numbers a request, signals it if it is time to, and keeps what it holds and whom it belongs to.
    #[inline(always)]
    pub(super) fn enter(
        &mut self,
        rings: &mut Rings,
        request: &mut WorkRequest,
        owner: Owner,
        signal_period: u32,
    ) -> Awaited {
        if !request.flags.signaled {
            let unsignaled = self.unsignaled.saturating_add(1);
            self.unsignaled = unsignaled;
            // A period beyond what is counted is shortened to it.
            request.flags.signaled = u32::from(unsignaled) >= signal_period.min(u32::from(u16::MAX));
        }
        if request.flags.signaled {
            self.unsignaled = 0;
        }
        let seq = self.posted;
        if self.in_flight == 0 {
            self.far = false;
        } else if self.in_flight as usize == NEAR && !self.far {
            self.move_out(rings);
        }
        *self.slot(rings, seq) = Entry { owner, pinned: held(request) };
        request.id = u64::from(self.index) << SEQ_BITS | seq & SEQ_MASK;
        self.posted = seq + 1;
        self.in_flight += 1;
        self.request(seq)
    }

    /// Takes back the requests of `chain`, entered last, from the refused one on: they are as before they were
    /// entered. Returns how many the NIC took.
    pub(super) fn take_back(
        &mut self,
        rings: &mut Rings,
        chain: &mut [WorkRequest],
        refused: &PostError,
    ) -> usize {
        let before = self.posted - chain.len() as u64;
        let taken = taken_before(chain, refused, u64::from(self.depth) - (before - self.retired()));
        for (seq, request) in (before..).zip(chain.iter_mut()).skip(taken) {
            request.id = self.slot(rings, seq).pinned.to_bits();
        }
        self.withdraw(chain.len() - taken);
        taken
    }

    /// Takes back so many of the requests entered last.
    #[cold]
    pub(super) fn withdraw(&mut self, back: usize) {
        self.posted -= back as u64;
        self.in_flight -= back as u32;
        // Those before them may have lost the signaled request that would have confirmed them. Counting all that is in
        // flight as unsignaled has one signaled early, never late.
        self.unsignaled = u16::try_from(self.in_flight).unwrap_or(u16::MAX);
    }

    /// Lets a group, which has failed, no longer wait for what it has in flight here: there may be nothing behind
    /// it that confirms it. Its buffers stay pinned until something does.
    pub(super) fn detach(&mut self, rings: &mut Rings, group: Owner, groups: &mut Groups, sched: &Sched) {
        for seq in self.retired()..self.posted {
            let entry = self.slot(rings, seq);
            if group != Owner::NOBODY && entry.owner == group {
                entry.owner = Owner::NOBODY;
                groups.finish(group, sched);
            }
        }
    }

    /// Whether a request is in flight here with none before it.
    #[inline(always)]
    pub(super) fn is_oldest(&self, id: u64) -> bool {
        self.in_flight > 0 && id.wrapping_sub(self.retired()) & SEQ_MASK == 0
    }

    /// Retires everything up to the completed request.
    #[inline(never)]
    pub(super) fn retire(
        &mut self,
        id: u64,
        status: WcStatus,
        rings: &Rings,
        groups: &mut Groups,
        sched: &Sched,
        pool: &BufPool,
    ) {
        let behind = id.wrapping_sub(self.retired()) & SEQ_MASK;
        if behind >= self.in_flight() {
            // Of before a reset, or not ours.
            return;
        }
        for _ in 0..behind {
            // These had no completion of their own.
            self.end_oldest(None, rings, groups, sched, pool);
        }
        let error = (status != WcStatus::Success).then(|| self.failure(status));
        self.end_oldest(error, rings, groups, sched, pool);
    }

    /// Why a request failed that completed with `status`. One that was flushed says what failed before it, as far as that was told.
    #[cold]
    fn failure(&mut self, status: WcStatus) -> VerbError {
        match (status, self.cause) {
            (WcStatus::Flushed, Some(cause)) => VerbError::Flushed { peer: self.peer, cause },
            (WcStatus::Flushed, None) => VerbError::Completion { peer: self.peer, status },
            _ => {
                self.cause.get_or_insert(status);
                VerbError::Completion { peer: self.peer, status }
            }
        }
    }

    /// Ends the oldest request in flight: lets go of what it holds, and tells whom it belongs to.
    #[inline(always)]
    pub(super) fn end_oldest(
        &mut self,
        error: Option<VerbError>,
        rings: &Rings,
        groups: &mut Groups,
        sched: &Sched,
        pool: &BufPool,
    ) {
        let Entry { owner, pinned } = self.oldest(rings);
        let request = self.request(self.retired());
        self.in_flight -= 1;
        if !owner.is_task() {
            pool.unpin(pinned);
        }
        match error {
            None => groups.finish(owner, sched),
            Some(error) => groups.fail(owner, Some(request), error, sched),
        }
    }

    /// Ends everything in flight as flushed: the queue pair was reset. Returns the error of what was to follow.
    pub(super) fn flush(
        &mut self,
        rings: &Rings,
        groups: &mut Groups,
        sched: &Sched,
        pool: &BufPool,
    ) -> VerbError {
        let error = self.failure(WcStatus::Flushed);
        while self.in_flight > 0 {
            self.end_oldest(Some(error), rings, groups, sched, pool);
        }
        (self.unsignaled, self.cause) = (0, None);
        error
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
        PostError::AtomicLength { len, .. } => {
            chain.iter().position(|r| r.verb.is_atomic() && r.local.len == len)
        }
        PostError::Inline { len, .. } => chain.iter().position(|r| r.flags.inline && r.local.len == len),
    };
    first.unwrap_or(0).min(chain.len().saturating_sub(1))
}
