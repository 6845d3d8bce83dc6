//! Requests in flight, in a slab.
//!
//! A message lives from its post until its completion is decided *and* no event refers to it. On a reliable
//! connection it stays listed with its queue pair until acknowledged; on the other transports the requester
//! is done with it when it is on the wire.

use super::payload;
use crate::verbs::{Transport, Verb, WcStatus, WorkRequest};

/// No message.
pub(super) const NONE: u32 = u32::MAX;

/// The operation, without its operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Op {
    Read,
    Write,
    WriteImm,
    Send,
    CompareSwap,
    FetchAdd,
}

impl Op {
    #[inline]
    pub fn returns_data(self) -> bool {
        matches!(self, Op::Read | Op::CompareSwap | Op::FetchAdd)
    }

    #[inline]
    pub fn is_atomic(self) -> bool {
        matches!(self, Op::CompareSwap | Op::FetchAdd)
    }

    #[inline]
    pub fn consumes_recv(self) -> bool {
        matches!(self, Op::WriteImm | Op::Send)
    }
}

/// The completion is asked for.
pub(super) const SIGNALED: u8 = 1;
/// The payload was copied while posting.
pub(super) const INLINE: u8 = 2;
/// A response event will come for this message; others are acknowledged by a later one.
pub(super) const EXPLICIT: u8 = 4;
/// The response has come.
pub(super) const DONE: u8 = 8;
/// The queue pair still lists the message.
pub(super) const LISTED: u8 = 16;
/// The requester has given up on the message; what is under way comes to nothing.
pub(super) const ORPHAN: u8 = 32;
/// Carries immediate data.
pub(super) const IMM: u8 = 64;
/// The second of two memory steps.
pub(super) const SECOND: u8 = 128;

/// One request. Two cache lines.
#[derive(Clone)]
#[repr(C, align(128))]
pub(super) struct Message {
    pub id: u64,
    /// Place in the responder's region. On SEND, place of the receive buffer once it is known.
    pub offset: u64,
    pub local_offset: u64,
    /// CAS: expected value. FETCH_ADD: addend. Old value once read. Otherwise the payload, if it fits a word.
    pub a: u64,
    /// CAS: new value; what an ATOMIC will write. Id of the RECV a SEND has taken.
    pub b: u64,
    /// When the requester may look at it; then when the responder had executed it; then when its completion
    /// is visible.
    pub time: u64,
    /// When the second memory step is due.
    pub second: u64,
    /// Region at the responder; on SEND, that of the receive buffer.
    pub rkey: u32,
    pub lkey: u32,
    pub len: u32,
    /// The queue pair it was posted on.
    pub qp: u32,
    /// The node it was posted on.
    pub node: u32,
    /// The queue pair it goes to.
    pub to: u32,
    /// UD: the queue key it carries.
    pub qkey: u32,
    pub imm: u32,
    /// Block of the payload arena.
    pub payload: u32,
    /// Words done in the first memory step.
    pub split: u32,
    /// Send-queue position: how many requests had been posted with it.
    pub position: u32,
    /// Next in the send queue, then in the list of unacknowledged messages; next free slot.
    pub next: u32,
    /// Next of those held up behind a receiver that is not ready.
    pub next_stalled: u32,
    /// Which of its card's WQEs it was.
    pub wqe: u32,
    pub op: Op,
    /// Of the queue pair it was posted on.
    pub transport: Transport,
    pub status: WcStatus,
    pub flags: u8,
    /// Events that refer to this message.
    pub pending: u8,
    /// Times the receiver was not ready.
    pub tries: u8,
}

impl Message {
    #[inline]
    pub fn is(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// Whether its requester is told what becomes of it.
    #[inline]
    pub fn reliable(&self) -> bool {
        self.transport == Transport::Rc
    }

    /// Whether the payload travels in `a`.
    #[inline]
    pub fn in_word(&self) -> bool {
        self.len <= 8
    }

    const VACANT: Message = Message {
        id: 0,
        offset: 0,
        local_offset: 0,
        a: 0,
        b: 0,
        time: 0,
        second: 0,
        rkey: 0,
        lkey: 0,
        len: 0,
        qp: NONE,
        node: 0,
        to: NONE,
        qkey: 0,
        imm: 0,
        payload: payload::NONE,
        split: 0,
        position: 0,
        next: NONE,
        next_stalled: NONE,
        wqe: 0,
        op: Op::Read,
        transport: Transport::Rc,
        status: WcStatus::Success,
        flags: 0,
        pending: 0,
        tries: 0,
    };

    #[inline(always)]
    pub fn new(request: &WorkRequest, node: u32, qp: u32, transport: Transport, position: u32) -> Message {
        let (op, rkey, offset, a, b, to, qkey, imm) = match request.verb {
            Verb::Read { rkey, offset } => (Op::Read, rkey.0, offset, 0, 0, NONE, 0, None),
            Verb::Write { rkey, offset } => (Op::Write, rkey.0, offset, 0, 0, NONE, 0, None),
            Verb::WriteImm { rkey, offset, imm } => (Op::WriteImm, rkey.0, offset, 0, 0, NONE, 0, Some(imm)),
            Verb::Send { to: None, imm } => (Op::Send, 0, 0, 0, 0, NONE, 0, imm),
            Verb::Send { to: Some(ah), imm } => (Op::Send, 0, 0, 0, 0, ah.qp.0, ah.qkey, imm),
            Verb::CompareSwap { rkey, offset, expect, swap } => {
                (Op::CompareSwap, rkey.0, offset, expect, swap, NONE, 0, None)
            }
            Verb::FetchAdd { rkey, offset, add } => (Op::FetchAdd, rkey.0, offset, add, 0, NONE, 0, None),
        };
        let mut flags = 0;
        if request.flags.signaled {
            flags |= SIGNALED;
        }
        if request.flags.inline {
            flags |= INLINE;
        }
        if request.flags.signaled || op.returns_data() {
            flags |= EXPLICIT;
        }
        if imm.is_some() {
            flags |= IMM;
        }
        Message {
            id: request.id,
            offset,
            local_offset: request.local.offset,
            a,
            b,
            time: 0,
            second: 0,
            rkey,
            lkey: request.local.lkey.0,
            // An ATOMIC returns one word, whatever its element says.
            len: if op.is_atomic() { 8 } else { request.local.len },
            qp,
            node,
            to,
            qkey,
            imm: imm.unwrap_or(0),
            payload: payload::NONE,
            split: 0,
            position,
            next: NONE,
            next_stalled: NONE,
            wqe: 0,
            op,
            transport,
            status: WcStatus::Success,
            flags,
            pending: 0,
            tries: 0,
        }
    }
}

/// Messages by index; freed slots are used again, last first.
pub(super) struct Slab {
    slots: Vec<Message>,
    free: u32,
    live: usize,
}

impl Slab {
    pub fn new() -> Slab {
        Slab { slots: Vec::new(), free: NONE, live: 0 }
    }

    #[inline(always)]
    pub fn insert(&mut self, message: Message) -> u32 {
        self.live += 1;
        if self.free == NONE {
            self.grow();
        }
        let index = self.free;
        let slot = &mut self.slots[index as usize];
        self.free = slot.next;
        *slot = message;
        index
    }

    /// Makes a free slot.
    #[cold]
    #[inline(never)]
    fn grow(&mut self) {
        self.free = self.slots.len() as u32;
        self.slots.push(Message::VACANT);
    }

    #[inline]
    pub fn remove(&mut self, index: u32) {
        self.live -= 1;
        self.slots[index as usize].next = self.free;
        self.free = index;
    }

    /// Messages that now exist.
    pub fn live(&self) -> usize {
        self.live
    }
}

impl std::ops::Index<u32> for Slab {
    type Output = Message;
    #[inline]
    fn index(&self, index: u32) -> &Message {
        &self.slots[index as usize]
    }
}

impl std::ops::IndexMut<u32> for Slab {
    #[inline]
    fn index_mut(&mut self, index: u32) -> &mut Message {
        &mut self.slots[index as usize]
    }
}
