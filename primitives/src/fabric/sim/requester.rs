//! The requester's half of the NIC: send queues, launching, responses, completions in order.

use super::engine::Miss;
use super::message::{self, DONE, EXPLICIT, INLINE, LISTED, NONE, ORPHAN, Op, SIGNALED};
use super::model::Model;
use super::payload;
use super::queue::Kind;
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
            if head == NONE || pair.halted || self.messages[head].time > self.now {
                return;
            }
            if self.messages[head].op.returns_data() {
                if pair.rd_free == 0 {
                    return;
                }
                pair.rd_free -= 1;
            }
            pair.waiting.pop(&self.messages);
            self.launch(qp, head);
        }
    }

    /// Checks a request locally, takes its payload and puts it on the wire.
    fn launch(&mut self, qp: u32, index: u32) {
        let now = self.now;
        let pair = &mut self.qps[qp as usize];
        let (node, transport) = (pair.node, pair.transport);
        let reliable = transport == Transport::Rc;
        if reliable {
            pair.unacked.push(&mut self.messages, index);
            self.messages[index].flags |= LISTED;
        }
        if let Err(status) = self.take_payload(node, index) {
            self.fail_locally(qp, index, status);
            return;
        }
        let pair = &mut self.qps[qp as usize];
        let m = &mut self.messages[index];
        let c = &mut self.cards[pair.card as usize];
        let (data, extended) = request_size(m.op, m.len);
        let class = class(m.op);
        let fetched = if m.is(INLINE) { now } else { c.pcie.answer(now, now, data, &c.costs) };
        m.wqe = c.wqes;
        c.wqes = c.wqes.wrapping_add(1);
        let unit = c.unit(pair);
        let miss = c.state(qp, pair, class);
        let service = c.costs.requester[class] + c.costs.segments(m.len);
        let built = c.engine.pass(unit, now, fetched, service, miss) + c.costs.pass;
        let sent = c.egress.pass(now, built, c.costs.link(data, extended));
        let jitter =
            if self.dice.transit_jitter > 0 { self.dice.below(self.dice.transit_jitter + 1) } else { 0 };
        let arrival = (sent + c.costs.wire + jitter).max(pair.last_arrival + 1);
        pair.last_arrival = arrival;
        if transport != Transport::Ud {
            m.to = pair.peer;
        }
        let signaled = m.is(SIGNALED);
        self.schedule(arrival, Kind::Arrive, index);
        if !reliable && signaled {
            let ready = self.entry_ready(qp, sent);
            self.complete(index, WcStatus::Success, ready);
        }
    }

    /// Reads the payload from memory, unless the post copied it, and checks the local range of what returns
    /// data.
    fn take_payload(&mut self, node: u32, index: u32) -> Result<(), WcStatus> {
        let m = &mut self.messages[index];
        if m.is(INLINE) {
            return if m.status == WcStatus::Success { Ok(()) } else { Err(m.status) };
        }
        let region = self.nodes[node as usize].local(m.lkey, m.local_offset, m.len)?;
        if m.op.returns_data() {
            return Ok(());
        }
        if m.op == Op::Send && self.qps[m.qp as usize].transport == Transport::Ud && m.len > self.ud_mtu {
            return Err(WcStatus::LocalLength);
        }
        let words = m.len.div_ceil(8) as usize;
        if m.in_word() {
            let mut word = [0];
            payload::load(region, m.local_offset, &mut word, 0, words);
            m.a = word[0];
        } else {
            m.payload = self.arena.take(m.len);
            payload::load(region, m.local_offset, self.arena.block_mut(m.payload, m.len), 0, words);
        }
        Ok(())
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
        let qp = m.qp;
        let node = self.qps[qp as usize].node;
        if m.is(ORPHAN) || self.is_dead(node) {
            self.release(index);
            return;
        }
        let now = self.now;
        let (op, len) = (m.op, m.len);
        let pair = &mut self.qps[qp as usize];
        let c = &mut self.cards[pair.card as usize];
        let (data, extended) = match op {
            Op::Read if m.status == WcStatus::Success => (u64::from(len), headers::AETH),
            Op::CompareSwap | Op::FetchAdd => (8, headers::ATOMIC_ACK - 8),
            _ => (0, headers::AETH),
        };
        let link = c.costs.link(data, extended);
        let received = c.ingress.drain(now, link) + c.costs.pass;
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
            visible = c.pcie.write(now, found, data, &c.costs);
            // Landed a little early: nobody may look before the completion says so.
            if let Err(status) = self.land(node, index) {
                self.messages[index].status = status;
            }
        }
        let m = &self.messages[index];
        let ready = if m.is(SIGNALED) || m.status != WcStatus::Success {
            self.entry_ready(qp, visible)
        } else {
            visible
        };
        let m = &mut self.messages[index];
        m.time = ready;
        m.flags |= DONE;
        self.qps[qp as usize].done += 1;
        self.settle(qp);
    }

    /// Places returned data in local memory.
    fn land(&mut self, node: u32, index: u32) -> Result<(), WcStatus> {
        let m = &self.messages[index];
        let region = self.nodes[node as usize].local(m.lkey, m.local_offset, m.len)?;
        let words = m.len.div_ceil(8) as usize;
        if m.in_word() {
            payload::store(region, m.local_offset, m.len, &[m.a], 0, words);
        } else if m.payload != payload::NONE {
            let block = self.arena.block(m.payload, m.len);
            payload::store(region, m.local_offset, m.len, block, 0, words);
        }
        Ok(())
    }

    /// Completes, in order, the messages whose response has come and those before them that need none: their
    /// acknowledgement is implied. The first failure takes the queue pair to the error state.
    fn settle(&mut self, qp: u32) {
        let q = qp as usize;
        let mut freed = false;
        loop {
            let head = self.qps[q].unacked.head;
            if head == NONE {
                break;
            }
            let m = &mut self.messages[head];
            let (done, status, ready) = (m.is(DONE), m.status, m.time);
            if !done && (m.is(EXPLICIT) || self.qps[q].done == 0) {
                break;
            }
            m.flags &= !LISTED;
            let (signaled, returns_data) = (m.is(SIGNALED), m.op.returns_data());
            let pair = &mut self.qps[q];
            pair.unacked.pop(&self.messages);
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

    /// Takes a posted request; the caller has rung the doorbell at `ready`.
    pub fn submit(&mut self, qp: u32, mut message: message::Message, ready: u64, core_now: u64) {
        let q = qp as usize;
        if self.qps[q].state == QpState::Error {
            let index = self.messages.insert(message);
            self.complete(index, WcStatus::Flushed, core_now);
            self.release(index);
            return;
        }
        let pair = &mut self.qps[q];
        // Doorbells of one queue pair are seen in order, whatever each of them takes.
        let ready = ready.max(pair.last_ready);
        let fresh = ready > pair.last_ready || pair.waiting.head == NONE;
        pair.last_ready = ready;
        message.time = ready;
        let index = self.messages.insert(message);
        self.qps[q].waiting.push(&mut self.messages, index);
        if fresh {
            self.queue.push(ready.max(self.now), Kind::Issue, qp);
        }
    }
}
