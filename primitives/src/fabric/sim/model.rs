//! The model's state, and what both roles of the NIC share: scheduling, completion entries, failing.

use super::card::Card;
use super::core::{Core, Entry};
use super::doorbell::Registers;
use super::fault::Dice;
use super::message::{INLINE, LISTED, NONE, ORPHAN, Slab};
use super::node::Node;
use super::payload::{self, Arena};
use super::qp::QueuePair;
use super::queue::{Event, EventQueue, Kind, NEVER};
use crate::mem::ahead;
use crate::verbs::work::GRH_BYTES;
use crate::verbs::{Completion, Qp, QpState, Transport, WcOpcode, WcStatus};
use std::rc::Rc;

/// What the model leaves to who drives the cores.
pub(super) enum Next {
    /// A core's turn.
    Turn(u32),
    /// Events were taken in hand, and what they will look at was looked at.
    Refilled,
    /// A node died.
    Death,
    /// Nothing is due.
    Nothing,
}

/// Datagrams in hand that arrive, and the queue pairs that they go to; the first few.
#[derive(Default)]
struct Datagrams {
    list: [(u32, u32); 32],
    len: usize,
}

impl Datagrams {
    #[inline]
    fn add(&mut self, message: u32, to: u32) {
        if let Some(place) = self.list.get_mut(self.len) {
            *place = (message, to);
            self.len += 1;
        }
    }

    #[inline]
    fn all(&self) -> &[(u32, u32)] {
        &self.list[..self.len]
    }
}

/// From so many requests in flight on, what events look at is in no near cache, and looking ahead pays.
const LOOK_AHEAD_FROM: usize = 2048;

/// Everything but the cores' programs.
pub(super) struct Model {
    /// Time of the event in hand, picoseconds.
    pub now: u64,
    pub queue: EventQueue,
    pub messages: Slab,
    pub arena: Arena,
    pub qps: Vec<QueuePair>,
    pub nodes: Vec<Node>,
    /// All nodes' cards, those of a node side by side.
    pub cards: Vec<Card>,
    /// Device contexts that cores share; none if each has its own.
    pub contexts: Vec<Registers>,
    pub cores: Vec<Rc<Core>>,
    pub dice: Dice,
    /// When the first node dies.
    pub first_death: u64,
    pub events: u64,
    pub fingerprint: u64,
    /// Whether ATOMICs exclude the CPU as well.
    pub atomic_global: bool,
    /// Whether a CAS that finds another value puts that value back.
    pub failed_cas_stores: bool,
    pub ud_mtu: u32,
}

impl Model {
    /// Handles events until there is something to do for who drives the first `driven` cores.
    pub fn advance(&mut self, until: u64, driven: usize) -> Next {
        loop {
            if self.queue.hand_is_empty() {
                self.queue.refill();
                if self.messages.live() >= LOOK_AHEAD_FROM && !self.queue.hand_is_empty() {
                    self.look_ahead();
                    return Next::Refilled;
                }
            }
            let Some(event) = self.queue.pop_by(until) else { return Next::Nothing };
            self.now = event.time;
            if event.kind != Kind::Wake {
                self.dispatch(event);
                if event.kind == Kind::Death {
                    return Next::Death;
                }
                continue;
            }
            let core = &self.cores[event.index as usize];
            // A wake-up that an earlier one replaced.
            if core.next_wake.get() != event.time {
                continue;
            }
            core.next_wake.set(NEVER);
            if event.index as usize >= driven {
                core.missed.set(true);
            } else if !core.dead.get() {
                core.event_at.set(event.time);
                let node = core.node as u32;
                self.note(event, node, event.index);
                return Next::Turn(event.index);
            }
        }
    }

    /// Counts an event and folds it into the fingerprint.
    #[inline]
    fn note(&mut self, event: Event, node: u32, qp: u32) {
        self.events += 1;
        let what = ((event.kind as u64) << 60) ^ (u64::from(node) << 40) ^ u64::from(qp);
        let mixed = (self.fingerprint.rotate_left(23) ^ event.time).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.fingerprint = (mixed ^ what).wrapping_mul(0xd6e8_feb8_6659_fd93) ^ (mixed >> 32);
    }

    /// Runs an event of the NIC or the wire.
    #[inline(always)]
    fn dispatch(&mut self, event: Event) {
        let index = event.index;
        match event.kind {
            Kind::Issue => {
                let node = self.qps[index as usize].node;
                self.note(event, node, index);
                self.issue(index);
            }
            Kind::Arrive | Kind::Memory | Kind::Response | Kind::Retry => {
                let message = &mut self.messages[index];
                message.pending -= 1;
                let (node, qp) = (message.node, message.qp);
                self.note(event, node, qp);
                match event.kind {
                    Kind::Arrive => self.arrive(index),
                    Kind::Memory => self.memory(index),
                    Kind::Response => self.response(index),
                    _ => self.retry(index),
                }
            }
            Kind::Timer => {
                let core = self.cores[index as usize].clone();
                if core.timer.get() == event.time {
                    core.timer.set(NEVER);
                }
                self.note(event, core.node as u32, index);
                self.wake(index, event.time);
            }
            Kind::Death => {
                self.note(event, index, 0);
                for core in self.cores.iter().filter(|c| c.node == index as usize) {
                    core.dead.set(true);
                }
            }
            Kind::Wake => debug_assert!(false, "cores are driven by the world"),
        }
    }

    /// Asks for all that the events in hand will look at. It is likely to be in no near cache, and waited for alone if it were
    /// not asked for before its event comes. A pass over the hand asks for what is found by what the pass before asked
    /// for, so that all of a pass is on its way at once. (Group prefetching, after Chen et al., ICDE 2004.)
    #[inline]
    pub fn look_ahead(&self) {
        self.queue.look_ahead();
        for (kind, index) in self.queue.in_hand() {
            match kind {
                Kind::Arrive | Kind::Memory | Kind::Response | Kind::Retry => ahead(&self.messages[index]),
                Kind::Issue => ahead(&self.qps[index as usize]),
                Kind::Wake | Kind::Timer => ahead(&*self.cores[index as usize]),
                Kind::Death => {}
            }
        }
        for (kind, index) in self.queue.in_hand() {
            let message = match kind {
                Kind::Arrive | Kind::Memory | Kind::Response => &self.messages[index],
                Kind::Issue => {
                    let pair = &self.qps[index as usize];
                    if pair.waiting.head != NONE {
                        ahead(&self.messages[pair.waiting.head]);
                    }
                    continue;
                }
                Kind::Wake => {
                    self.cores[index as usize].ahead();
                    continue;
                }
                _ => continue,
            };
            let from = &self.qps[message.qp as usize];
            ahead(from);
            if kind == Kind::Response {
                self.nodes[message.node as usize].ahead(message.lkey, message.local_offset, message.len);
            } else if let Some(to) = self.qps.get(message.to as usize) {
                ahead(to);
            }
        }
        let mut datagrams = Datagrams::default();
        for (kind, index) in self.queue.in_hand() {
            match kind {
                Kind::Issue => {
                    let head = self.qps[index as usize].waiting.head;
                    if head != NONE {
                        let message = &self.messages[head];
                        if !message.op.returns_data() && !message.is(INLINE) {
                            let node = &self.nodes[message.node as usize];
                            node.ahead(message.lkey, message.local_offset, message.len);
                        }
                    }
                }
                Kind::Arrive => {
                    let message = &self.messages[index];
                    if message.transport == Transport::Ud
                        && let Some(to) = self.qps.get(message.to as usize)
                    {
                        datagrams.add(index, message.to);
                        ahead(&*to.far);
                        self.arena.ahead(message);
                        ahead(&*self.cores[to.core as usize]);
                    }
                }
                Kind::Memory => {
                    let message = &self.messages[index];
                    if let Some(to) = self.qps.get(message.to as usize) {
                        self.nodes[to.node as usize].ahead(message.rkey, message.offset, message.len);
                    }
                    self.arena.ahead(message);
                }
                Kind::Response => {
                    let message = &self.messages[index];
                    self.arena.ahead(message);
                    ahead(&*self.cores[self.qps[message.qp as usize].core as usize]);
                }
                Kind::Wake => {
                    let expected = self.cores[index as usize].peek();
                    if let Some(pair) = expected.and_then(|completion| self.qps.get(completion.qp.0 as usize))
                    {
                        ahead(pair);
                    }
                }
                _ => {}
            }
        }
        self.look_ahead_at_receives(&datagrams);
    }

    /// Asks for the receives that datagrams in hand will take, then for the buffers of those.
    fn look_ahead_at_receives(&self, datagrams: &Datagrams) {
        for &(_, to) in datagrams.all() {
            let to = &self.qps[to as usize];
            to.far.recvs.front().map(ahead);
            self.cores[to.core as usize].ahead_of_last();
        }
        for &(message, to) in datagrams.all() {
            let (message, to) = (&self.messages[message], &self.qps[to as usize]);
            if let Some(recv) = to.far.recvs.front() {
                let offset = recv.offset + u64::from(GRH_BYTES);
                self.nodes[to.node as usize].ahead(recv.lkey, offset, message.len);
            }
        }
    }

    /// Schedules an event about a message.
    #[inline(always)]
    pub fn schedule(&mut self, time: u64, kind: Kind, message: u32) {
        self.messages[message].pending += 1;
        self.queue.push(time.max(self.now), kind, message);
    }

    /// Wakes a core at `at`, or when it is free if that is later.
    #[inline(always)]
    pub fn wake(&mut self, core: u32, at: u64) {
        let c = &self.cores[core as usize];
        if c.dead.get() {
            return;
        }
        let at = at.max(c.free_at.get()).max(self.now);
        if at < c.next_wake.get() {
            c.next_wake.set(at);
            self.queue.push(at, Kind::Wake, core);
        }
    }

    #[inline]
    pub fn is_dead(&self, node: u32) -> bool {
        self.first_death <= self.now && self.nodes[node as usize].dead_at <= self.now
    }

    /// Puts a completion entry into the queue of the queue pair's core, no earlier than the pair's last one.
    #[inline(always)]
    pub fn enter(&mut self, qp: u32, ready: u64, retires: Option<u32>, completion: Completion) {
        let jitter = if self.dice.completion_jitter > 0 {
            self.dice.below(self.dice.completion_jitter + 1)
        } else {
            0
        };
        let pair = &mut self.qps[qp as usize];
        let core = pair.core;
        let noticed = match retires {
            None => {
                let handed = self.nodes[pair.node as usize].received(self.now, ready);
                handed + self.cores[core as usize].handover()
            }
            Some(_) => ready,
        };
        let ready = (noticed + jitter).max(pair.last_entry);
        pair.last_entry = ready;
        self.cores[core as usize].enter(Entry { ready, retires, completion });
        self.wake(core, ready);
    }

    /// Completes a request of the send queue.
    #[inline(always)]
    pub fn complete(&mut self, message: u32, status: WcStatus, ready: u64) {
        let m = &self.messages[message];
        let (qp, position) = (m.qp, m.position);
        let completion = Completion {
            id: m.id,
            qp: Qp(qp),
            opcode: WcOpcode::SendQueue,
            status,
            byte_len: 0,
            imm: None,
            from: None,
        };
        self.enter(qp, ready, Some(position), completion);
    }

    /// Completes a receive.
    pub fn complete_recv(&mut self, qp: u32, id: u64, status: WcStatus, ready: u64) {
        let completion =
            Completion { id, qp: Qp(qp), opcode: WcOpcode::Recv, status, byte_len: 0, imm: None, from: None };
        self.enter(qp, ready, None, completion);
    }

    /// When a completion entry that the NIC makes for a queue pair at `earliest` is visible to the core.
    #[inline]
    pub fn entry_ready(&mut self, qp: u32, earliest: u64) -> u64 {
        self.entry_sent(qp, earliest) + self.cards[self.qps[qp as usize].card as usize].costs.pcie_write
    }

    /// When a completion entry that the NIC makes at `earliest` has left for memory.
    #[inline]
    pub fn entry_sent(&mut self, qp: u32, earliest: u64) -> u64 {
        let pair = &mut self.qps[qp as usize];
        self.cards[pair.card as usize].entry_sent(self.now, pair, earliest)
    }

    /// Gives a message's slot back once nothing refers to it.
    #[inline(always)]
    pub fn release(&mut self, message: u32) {
        let m = &mut self.messages[message];
        if m.pending > 0 || m.is(LISTED) {
            return;
        }
        if m.payload != payload::NONE {
            self.arena.give(m.payload, m.len);
            m.payload = payload::NONE;
        }
        self.messages.remove(message);
    }

    /// Moves a queue pair to the error state: all that is posted completes as flushed, signaled or not.
    pub fn fail_qp(&mut self, qp: u32, ready: u64) {
        let q = qp as usize;
        if self.qps[q].state == QpState::Error {
            return;
        }
        self.qps[q].state = QpState::Error;
        self.forget_stalled(qp);
        self.qps[q].done = 0;
        loop {
            let pair = &mut self.qps[q];
            let Some(m) = pair.unacked.pop(&self.messages).or_else(|| pair.waiting.pop(&self.messages))
            else {
                break;
            };
            self.complete(m, WcStatus::Flushed, ready);
            let message = &mut self.messages[m];
            message.flags = (message.flags & !LISTED) | ORPHAN;
            self.release(m);
        }
        self.flush_recvs(qp, ready);
    }

    /// Completes the posted receives of a queue pair in error as flushed.
    pub fn flush_recvs(&mut self, qp: u32, ready: u64) {
        while let Some(recv) = self.qps[qp as usize].far.recvs.pop() {
            self.complete_recv(qp, recv.id, WcStatus::Flushed, ready);
        }
    }

    /// Lets go of the messages held up behind a receiver that was not ready.
    pub fn forget_stalled(&mut self, qp: u32) {
        self.qps[qp as usize].not_ready = false;
        while let Some(m) = self.next_stalled(qp) {
            self.messages[m].pending -= 1;
            self.release(m);
        }
    }

    /// Takes the first message held up; its reference is the caller's to drop.
    pub fn next_stalled(&mut self, qp: u32) -> Option<u32> {
        let pair = &mut self.qps[qp as usize];
        let head = pair.stalled_head;
        if head == NONE {
            return None;
        }
        pair.stalled_head = self.messages[head].next_stalled;
        Some(head)
    }

    /// Holds a message up behind the one that found the receiver not ready.
    pub fn stall(&mut self, qp: u32, message: u32) {
        let m = &mut self.messages[message];
        m.next_stalled = NONE;
        m.pending += 1;
        let pair = &mut self.qps[qp as usize];
        if pair.stalled_head == NONE {
            pair.stalled_head = message;
        } else {
            self.messages[pair.stalled_tail].next_stalled = message;
        }
        pair.stalled_tail = message;
    }

    /// Takes a queue pair out of the error state, empty and still connected. What was under way for it comes
    /// to nothing.
    pub fn reset(&mut self, qp: u32) {
        let now = self.now;
        self.fail_qp(qp, now);
        let core = self.qps[qp as usize].core;
        // A reset drops the completions nobody has taken yet, as re-initializing a queue pair does.
        self.cores[core as usize].forget(Qp(qp));
        let pair = &mut self.qps[qp as usize];
        pair.unacknowledged = 0;
        pair.state = if pair.connected { QpState::ReadyToSend } else { QpState::Init };
        pair.halted = false;
        pair.refused = false;
        pair.retired = pair.posted;
        pair.rd_free = pair.far.config.max_rd_atomic;
    }
}
