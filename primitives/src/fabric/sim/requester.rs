//! The requester's half of the NIC: send queues, launching, responses, completions in order.

use super::engine::Miss;
use super::message::{DONE, EXPLICIT, INLINE, LISTED, Message, NONE, ORPHAN, Op, SIGNALED};
use super::model::Model;
use super::node::Node;
use super::payload::{self, Arena};
use super::queue::Kind;
use crate::mem::ahead;
use crate::profile::headers;
use crate::verbs::{QpState, Transport, WcStatus};

/// Class of a READ, see [`class`].
pub(super) const READ: usize = 0;
/// Class of an ATOMIC, see [`class`].
pub(super) const ATOMIC: usize = 2;

/// Index of an operation in the tables of [`super::costs::NicCosts`], which follow `Primitive`.
#[inline]
pub(super) fn class(op: Op) -> usize {
    match op {
        Op::Read => READ,
        Op::Write => 1,
        Op::CompareSwap | Op::FetchAdd => ATOMIC,
        Op::WriteImm | Op::Send => 3,
    }
}

/// Payload and extended headers of a request on the wire.
#[inline]
pub(super) fn request_size(op: Op, len: u32) -> (u64, u64) {
    match op {
        Op::Read => (0, headers::RETH),
        Op::CompareSwap | Op::FetchAdd => (0, headers::ATOMIC),
        Op::Write | Op::WriteImm => (u64::from(len), headers::RETH),
        Op::Send => (u64::from(len), headers::DETH),
    }
}

impl Model {
    /// Launches what the send queue holds, up to the first request that is not there yet or must wait for a
    /// READ or ATOMIC to come back.
    pub fn issue(&mut self, qp: u32) {
        let q = qp as usize;
        if self.is_dead(self.qps[q].node) {
            return;
        }
        loop {
            let pair = &mut self.qps[q];
            let head = pair.waiting.head;
            if head == NONE || pair.halted {
                return;
            }
            let m = &self.messages[head];
            let op = m.op;
            if m.time > self.now {
                return;
            }
            if op.returns_data() {
                if pair.rd_free == 0 {
                    return;
                }
                pair.rd_free -= 1;
            }
            pair.waiting.head = m.next;
            // The next of a chain is likely to be in no near cache, and needed when this one is done with.
            if m.next != NONE {
                ahead(&self.messages[m.next]);
            }
            // The frequent ones as code of their own.
            match op {
                Op::Read => self.launch(qp, head, Op::Read),
                Op::Write => self.launch(qp, head, Op::Write),
                op => self.launch(qp, head, op),
            }
        }
    }

    /// Checks a request locally, takes its payload and puts it on the wire.
    #[inline(always)]
    fn launch(&mut self, qp: u32, index: u32, op: Op) {
        let now = self.now;
        let pair = &mut self.qps[qp as usize];
        let transport = pair.transport;
        let reliable = transport == Transport::Rc;
        if reliable {
            pair.unacked.push(&mut self.messages, index);
        }
        let m = &mut self.messages[index];
        if reliable {
            m.flags |= LISTED;
        }
        let node = &self.nodes[pair.node as usize];
        if let Err(status) = take_payload(node, &mut self.arena, m, op, self.ud_mtu) {
            self.fail_locally(qp, index, status);
            return;
        }
        let c = &mut self.cards[pair.card as usize];
        let (data, extended) = request_size(op, m.len);
        let class = class(op);
        let rest = c.costs.rest(m.len);
        // What has come in while the rest was asked for.
        let asked = now.saturating_sub(rest.fetch.min(m.second));
        let fetched = if m.is(INLINE) { now } else { c.pcie.answer(asked, asked, data, &c.costs).max(now) };
        m.wqe = c.wqes;
        c.wqes = c.wqes.wrapping_add(1);
        let unit = c.unit(pair);
        let miss = c.state(qp, pair, class);
        let service = c.costs.requester[class] + c.costs.segments(m.len);
        // Who asks for data has work with its packets when they come: the request is off before, and has nothing of them with it.
        let (there, later, ahead) = if op.returns_data() {
            (fetched, rest.segments, 0)
        } else {
            (fetched.saturating_sub(rest.segments.min(rest.fetch)), 0, rest.fetch.max(rest.segments))
        };
        let there = c.ceiling.pass(now, there);
        let began = now.saturating_sub(rest.unit.min(rest.fetch));
        let built = c.engine.pass(unit, began, there, service, miss) - later + c.costs.pass;
        let early = rest.link.min(ahead);
        let (began, there) = (now.saturating_sub(early), built - early.min(built));
        let sent = c.egress.pass(began, there, c.costs.link(data, extended), c.costs.packet);
        let jitter =
            if self.dice.transit_jitter > 0 { self.dice.below(self.dice.transit_jitter + 1) } else { 0 };
        let arrival = (sent + c.costs.wire + jitter).max(pair.last_arrival + 1);
        pair.last_arrival = arrival;
        if transport != Transport::Ud {
            m.to = pair.peer;
        }
        let signaled = m.is(SIGNALED);
        m.pending += 1;
        debug_assert!(arrival > now, "nothing arrives before it was asked for");
        self.queue.push(arrival, Kind::Arrive, index);
        if !reliable && signaled {
            let ready = self.entry_ready(qp, sent);
            self.complete(index, WcStatus::Success, ready);
        }
    }

    /// Fails a request locally. On a reliable connection its completion says that all requests before it were
    /// executed, so it travels behind them as an empty message and completes when that comes back.
    fn fail_locally(&mut self, qp: u32, index: u32, status: WcStatus) {
        if self.qps[qp as usize].transport == Transport::Rc {
            let pair = &mut self.qps[qp as usize];
            pair.halted = true;
            pair.last_arrival = pair.last_arrival.max(self.now) + 1;
            let arrival = pair.last_arrival;
            let m = &mut self.messages[index];
            m.status = status;
            m.to = pair.peer;
            self.schedule(arrival, Kind::Arrive, index);
        } else {
            let ready = self.entry_ready(qp, self.now);
            self.complete(index, status, ready);
            self.release(index);
            self.fail_qp(qp, ready);
        }
    }

    /// A response is back: data lands, and whatever is then complete in order completes.
    pub fn response(&mut self, index: u32) {
        let m = &self.messages[index];
        if m.is(ORPHAN) || self.is_dead(m.node) {
            self.release(index);
            return;
        }
        match m.op {
            Op::Read => self.settle_response(index, Op::Read),
            Op::Write => self.settle_response(index, Op::Write),
            op => self.settle_response(index, op),
        }
    }

    #[inline(always)]
    fn settle_response(&mut self, index: u32, op: Op) {
        let now = self.now;
        let m = &mut self.messages[index];
        let qp = m.qp;
        let pair = &mut self.qps[qp as usize];
        let c = &mut self.cards[pair.card as usize];
        let (data, extended) = match op {
            Op::Read if m.status == WcStatus::Success => (u64::from(m.len), headers::AETH),
            Op::CompareSwap | Op::FetchAdd => (8, headers::ATOMIC_ACK - 8),
            _ => (0, headers::AETH),
        };
        let link = c.costs.link(data, extended);
        let received = c.ingress.drain(now, link, c.costs.packet) + c.costs.pass;
        let mut visible = received;
        if m.status != WcStatus::Success {
            // A refusal is rare enough to cost nothing.
        } else if !op.returns_data() {
            let unit = c.unit(pair);
            visible = c.engine.pass(unit, now, received, c.costs.acknowledgement, Miss::default());
        } else {
            let found = match c.dropped(m.wqe) {
                None => received,
                Some(miss) => {
                    let unit = c.unit(pair);
                    c.engine.pass(unit, now, received, 0, miss)
                }
            };
            let rest = c.costs.rest(m.len);
            let early = rest.land.min(rest.link.max(rest.segments));
            visible = c.pcie.write(now.saturating_sub(early), found.saturating_sub(early), data, &c.costs);
            // Landed a little early: nobody may look before the completion says so.
            if let Err(status) = land(&self.nodes[m.node as usize], &self.arena, m) {
                m.status = status;
            }
        }
        let mut ready = visible;
        if m.is(SIGNALED) || m.status != WcStatus::Success {
            ready = c.entry_sent(now, pair, visible) + c.costs.pcie_write;
        }
        m.time = ready;
        m.flags |= DONE;
        pair.done += 1;
        self.settle(qp);
    }

    /// Completes, in order, the messages whose response has come and those before them that need none: their
    /// acknowledgement is implied. The first failure takes the queue pair to the error state.
    #[inline(always)]
    fn settle(&mut self, qp: u32) {
        let q = qp as usize;
        let mut freed = false;
        loop {
            let pair = &mut self.qps[q];
            let head = pair.unacked.head;
            if head == NONE {
                break;
            }
            let m = &mut self.messages[head];
            let (done, status, ready) = (m.is(DONE), m.status, m.time);
            if !done && (m.is(EXPLICIT) || pair.done == 0) {
                break;
            }
            m.flags &= !LISTED;
            pair.unacked.head = m.next;
            let (signaled, returns_data) = (m.is(SIGNALED), m.op.returns_data());
            if done {
                pair.done -= 1;
            }
            if returns_data {
                pair.rd_free += 1;
                freed = true;
            }
            if status != WcStatus::Success {
                self.complete(head, status, ready);
                self.release(head);
                self.fail_qp(qp, ready);
                return;
            }
            if signaled {
                self.complete(head, status, ready);
            }
            self.release(head);
        }
        if freed && self.qps[q].waiting.head != NONE {
            self.issue(qp);
        }
    }

    /// Takes a posted request, which is in the slab; the caller has rung the doorbell at `ready`.
    #[inline(always)]
    pub fn submit(&mut self, qp: u32, index: u32, ready: u64, core_now: u64) {
        let pair = &mut self.qps[qp as usize];
        if pair.state == QpState::Error {
            self.complete(index, WcStatus::Flushed, core_now);
            self.release(index);
            return;
        }
        // Doorbells of one queue pair are seen in order, whatever each of them takes.
        let ready = ready.max(pair.last_ready);
        let fresh = ready > pair.last_ready || pair.waiting.head == NONE;
        pair.last_ready = ready;
        self.messages[index].time = ready;
        pair.waiting.push(&mut self.messages, index);
        if fresh {
            self.queue.push(ready.max(self.now), Kind::Issue, qp);
        }
    }
}

/// Reads the payload from memory, unless the post copied it, and checks the local range of what returns
/// data.
#[inline(always)]
fn take_payload(
    node: &Node,
    arena: &mut Arena,
    m: &mut Message,
    op: Op,
    ud_mtu: u32,
) -> Result<(), WcStatus> {
    if m.is(INLINE) {
        return if m.status == WcStatus::Success { Ok(()) } else { Err(m.status) };
    }
    let region = node.local(m.lkey, m.local_offset, m.len)?;
    if op.returns_data() {
        return Ok(());
    }
    if op == Op::Send && m.transport == Transport::Ud && m.len > ud_mtu {
        return Err(WcStatus::LocalLength);
    }
    arena.fetch(region, m);
    Ok(())
}

/// Places returned data in local memory.
#[inline(always)]
fn land(node: &Node, arena: &Arena, m: &Message) -> Result<(), WcStatus> {
    let region = node.local(m.lkey, m.local_offset, m.len)?;
    if m.in_word() {
        payload::store_word(region, m.local_offset, m.len, m.a);
    } else if m.payload != payload::NONE {
        let (block, words) = (arena.block(m.payload, m.len), m.len.div_ceil(8) as usize);
        payload::store(region, m.local_offset, m.len, block, 0, words);
    }
    Ok(())
}
