//! A queue pair's state: both of its roles, and the order each of them keeps.

use super::cache::NOWHERE;
use super::engine::UNASSIGNED;
use super::message::{NONE, Slab};
use crate::verbs::{QpConfig, QpState, RecvRequest, Transport};
use std::collections::VecDeque;

/// A queue of messages linked through their `next`.
#[derive(Clone, Copy)]
pub(super) struct List {
    pub head: u32,
    tail: u32,
}

impl List {
    pub const EMPTY: List = List { head: NONE, tail: NONE };

    #[inline]
    pub fn push(&mut self, slab: &mut Slab, message: u32) {
        slab[message].next = NONE;
        if self.head == NONE {
            self.head = message;
        } else {
            slab[self.tail].next = message;
        }
        self.tail = message;
    }

    #[inline]
    pub fn pop(&mut self, slab: &Slab) -> Option<u32> {
        let head = self.head;
        if head == NONE {
            return None;
        }
        self.head = slab[head].next;
        Some(head)
    }
}

/// One queue pair. Times are picoseconds. Two cache lines side by side: a cluster has thousands of queue pairs,
/// and each is in no near cache when its turn comes. The first line is its requester's own and all that the far end looks
/// at of a requester; the second is what it needs as a responder.
#[repr(C, align(128))]
pub(super) struct QueuePair {
    pub last_ready: u64,
    pub last_arrival: u64,
    pub last_memory: u64,
    pub last_entry: u64,
    /// Posted, not yet launched.
    pub waiting: List,
    /// Launched and not yet completed, in order. Reliable connections only.
    pub unacked: List,
    pub posted: u32,
    pub rd_free: u32,
    /// Messages in `unacked` whose response has come.
    pub done: u32,
    /// A local error waits for earlier requests to complete: nothing more is launched.
    pub halted: bool,
    /// The responder refused a request: it takes no more until this end is reset.
    pub refused: bool,
    /// A message waits for a RECV; those behind it are in `stalled`.
    pub not_ready: bool,
    pub connected: bool,

    pub node: u32,
    /// The card it lives on, over all nodes.
    pub card: u32,
    pub core: u32,
    /// Where the card's caches had its context and its state of READs last.
    pub context_slot: u32,
    pub read_slot: u32,
    /// The connected queue pair, or [`NONE`].
    pub peer: u32,
    /// Requests executed for its peer since the last acknowledgement.
    pub unacknowledged: u32,
    pub retired: u32,
    pub send_depth: u32,
    /// Its doorbell register in a shared device context.
    pub register: u32,
    /// Its processing unit.
    pub unit: u8,
    pub transport: Transport,
    pub state: QpState,
    pub rnr_retry: u8,
    /// Held up at the responder, linked through `next_stalled`.
    pub stalled_head: u32,
    pub stalled_tail: u32,
    /// What only receives and rare events need.
    pub far: Box<Far>,
}

/// The part of a queue pair that READs, WRITEs and ATOMICs do without.
pub(super) struct Far {
    pub recvs: Receives,
    pub config: QpConfig,
}

/// A posted receive, in fewer bytes than a [`RecvRequest`]: thousands wait, and each is in no near cache when its turn comes.
#[derive(Clone, Copy)]
pub(super) struct Recv {
    pub id: u64,
    pub offset: u64,
    pub lkey: u32,
    pub len: u32,
}

/// A receive queue, over memory for as many as were posted at most, or less than twice as many.
pub(super) struct Receives {
    list: VecDeque<Recv>,
}

impl Receives {
    pub fn len(&self) -> usize {
        self.list.len()
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    #[inline]
    pub fn front(&self) -> Option<&Recv> {
        self.list.front()
    }

    #[inline]
    pub fn pop(&mut self) -> Option<Recv> {
        self.list.pop_front()
    }

    /// Puts a receive behind the others; there will be `depth` of them at most.
    #[inline]
    pub fn push(&mut self, request: &RecvRequest, depth: u32) {
        if self.list.len() == self.list.capacity() {
            self.grow(depth as usize);
        }
        let RecvRequest { id, local } = *request;
        self.list.push_back(Recv { id, offset: local.offset, lkey: local.lkey.0, len: local.len });
    }

    /// Makes room: twice as much as there was, but no more than will be used, since a ring goes round all it has.
    #[cold]
    fn grow(&mut self, depth: usize) {
        let len = self.list.len();
        self.list.reserve_exact((2 * len).max(8).min(depth.max(len + 1)) - len);
    }
}

const _: () = assert!(size_of::<QueuePair>() == 128);

impl QueuePair {
    pub fn new(node: u32, card: u32, core: u32, register: u32, config: QpConfig) -> QueuePair {
        QueuePair {
            node,
            card,
            core,
            register,
            context_slot: NOWHERE,
            read_slot: NOWHERE,
            unit: UNASSIGNED,
            unacknowledged: 0,
            peer: NONE,
            transport: config.transport,
            state: QpState::Init,
            rnr_retry: config.rnr_retry,
            halted: false,
            refused: false,
            not_ready: false,
            connected: false,
            posted: 0,
            retired: 0,
            rd_free: config.max_rd_atomic,
            done: 0,
            waiting: List::EMPTY,
            unacked: List::EMPTY,
            last_ready: 0,
            last_arrival: 0,
            last_memory: 0,
            last_entry: 0,
            stalled_head: NONE,
            stalled_tail: NONE,
            send_depth: config.send_depth,
            far: Box::new(Far { config, recvs: Receives { list: VecDeque::new() } }),
        }
    }

    /// Send-queue slots in use.
    pub fn occupied(&self) -> u32 {
        self.posted.wrapping_sub(self.retired)
    }
}
