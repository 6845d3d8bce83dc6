//! The responder's half of the NIC: checks, receives, memory steps, acknowledgements.

use super::engine::Miss;
use super::message::{EXPLICIT, IMM, Message, ORPHAN, Op, SECOND};
use super::model::Model;
use super::payload;
use super::queue::Kind;
use super::requester::{class, request_size};
use crate::profile::headers;
use crate::verbs::work::GRH_BYTES;
use crate::verbs::{Completion, NodeId, Qp, QpState, Transport, WcOpcode, WcStatus};

/// Longest gap between the two steps of a torn READ or WRITE: well below the way back of an acknowledgement,
/// so that a completed WRITE is in memory unless it is late by choice.
const STEP_GAP_MAX: u64 = 200_000;
/// Longest gap of a late WRITE: long enough for its completion to come first.
const LATE_GAP_MAX: u64 = 4_000_000;
/// Endless RNR retries, as in `ibv_modify_qp(3)`.
const RNR_FOR_EVER: u8 = 7;

impl Model {
    /// A request is at the responder's port.
    pub fn arrive(&mut self, index: u32) {
        let m = &self.messages[index];
        let qp = m.qp;
        if m.is(ORPHAN) || self.qps[qp as usize].refused {
            self.release(index);
        } else if self.qps[qp as usize].not_ready {
            self.stall(qp, index);
        } else {
            self.execute(index);
        }
    }

    /// The receiver may be ready now.
    pub fn retry(&mut self, index: u32) {
        let m = &self.messages[index];
        let qp = m.qp;
        if m.is(ORPHAN) {
            self.release(index);
            return;
        }
        self.qps[qp as usize].not_ready = false;
        self.execute(index);
        while !self.qps[qp as usize].not_ready {
            let Some(next) = self.next_stalled(qp) else { break };
            self.messages[next].pending -= 1;
            self.arrive(next);
        }
    }

    /// Whether anybody is there to take the message.
    #[inline(always)]
    fn reachable(&self, m: &Message) -> bool {
        let Some(to) = self.qps.get(m.to as usize) else { return false };
        let fits = match m.transport {
            Transport::Ud => to.transport == Transport::Ud && to.far.config.qkey == m.qkey,
            _ => to.peer == m.qp,
        };
        fits && to.state == QpState::ReadyToSend && !self.is_dead(to.node)
    }

    /// The message comes to nothing: reliable requesters notice after their retries, others never.
    fn lose(&mut self, index: u32) {
        if self.messages[index].reliable() {
            self.refuse_at(index, WcStatus::RetryExceeded, self.now + self.dice.retry_timeout);
        } else {
            self.release(index);
        }
    }

    /// Fails a reliable request at the requester at `time`; the responder takes nothing more from it.
    fn refuse_at(&mut self, index: u32, status: WcStatus, time: u64) {
        let m = &mut self.messages[index];
        m.status = status;
        m.flags |= EXPLICIT;
        let qp = m.qp;
        self.qps[qp as usize].refused = true;
        self.schedule(time, Kind::Response, index);
    }

    /// Sends a negative acknowledgement; unreliable transports have none.
    fn refuse(&mut self, index: u32, status: WcStatus, from: u64) {
        let m = &self.messages[index];
        if m.is(ORPHAN) || !m.reliable() {
            self.release(index);
            return;
        }
        // Not before the requests ahead have touched memory: the refusal says that they were executed.
        let from = from.max(self.qps[m.qp as usize].last_memory);
        let card = self.qps[m.to as usize].card;
        let time = self.cards[card as usize].reply_arrival(self.now, from, 0, headers::AETH);
        self.refuse_at(index, status, time);
    }

    /// Carries a request out, if anybody is there to do it.
    #[inline(always)]
    fn execute(&mut self, index: u32) {
        let m = &self.messages[index];
        if m.status != WcStatus::Success {
            let failed = m.status;
            self.refuse(index, failed, self.now);
            return;
        }
        if self.dice.loss > 0 && !m.reliable() && self.dice.roll(self.dice.loss) {
            self.release(index);
            return;
        }
        if !self.reachable(m) {
            self.lose(index);
            return;
        }
        // The frequent ones as code of their own.
        match m.op {
            Op::Read => self.carry_out(index, Op::Read),
            Op::Write => self.carry_out(index, Op::Write),
            Op::Send => self.carry_out(index, Op::Send),
            op => self.carry_out(index, op),
        }
    }

    /// Takes the request through port and engine, checks it, and schedules what it does to memory.
    #[inline(always)]
    fn carry_out(&mut self, index: u32, op: Op) {
        let now = self.now;
        let m = &mut self.messages[index];
        let to = &mut self.qps[m.to as usize];
        let n = &mut self.nodes[to.node as usize];
        let c = &mut self.cards[to.card as usize];
        let datagram = to.transport == Transport::Ud;
        let (data, extended) = request_size(op, m.len);
        let received = c.ingress.drain(now, c.costs.link(data, extended), c.costs.packet);
        let unit = c.unit(to);
        let mut miss = c.state(m.to, to, class(op));
        let service = c.costs.responder[class(op)] + c.costs.segments(m.len);
        let on_card = op != Op::Send && n.is_on_card(m.rkey);
        if c.costs.mtt_miss > 0 && op != Op::Send && !on_card && !c.translations.touch(m.rkey, m.offset) {
            miss.stall += c.costs.mtt_miss;
            miss.wait = miss.wait.max(c.costs.pcie_read);
        }
        let rest = c.costs.rest(m.len);
        // A request with data has come in over its time on the link at least.
        let lead = if op == Op::Read { 0 } else { rest.link.max(rest.fetch).max(rest.segments) };
        let began = now.saturating_sub(rest.unit.min(lead));
        let there = received.saturating_sub(rest.segments.min(lead));
        let mut done = c.engine.pass(unit, began, there, service, miss) + c.costs.pass;
        m.time = done;

        if op != Op::Send {
            let wanted = match op {
                Op::Read => n.remote(m.rkey, m.offset, m.len, |a| a.remote_read).map(drop),
                Op::Write | Op::WriteImm => n.remote(m.rkey, m.offset, m.len, |a| a.remote_write).map(drop),
                _ if !m.offset.is_multiple_of(8) => Err(WcStatus::RemoteInvalidRequest),
                _ => n.remote(m.rkey, m.offset, 8, |a| a.remote_atomic).map(drop),
            };
            if let Err(status) = wanted {
                self.refuse(index, status, done);
                return;
            }
        }
        if op.consumes_recv() && to.far.recvs.is_empty() {
            self.not_ready(index);
            return;
        }

        // From here on nothing stops it. Memory steps of one queue pair keep their order.
        let order = &mut self.qps[m.qp as usize].last_memory;
        let steps = m.len > 8;
        let (first, last) = match op {
            Op::Read => {
                let len = u64::from(m.len);
                let ready = if on_card {
                    done
                } else {
                    let (asked, spread) = c.pcie.ask(now, done, len, &c.costs);
                    // The first packets were told apart and asked for before the last.
                    let early = rest.fetch.min(rest.segments + spread);
                    c.pcie.answer(now.saturating_sub(early), asked.saturating_sub(early), len, &c.costs)
                };
                let first = ready.max(*order + 1);
                let torn = steps && self.dice.roll(self.dice.torn_read);
                (first, if torn { first + 1 + self.dice.below(STEP_GAP_MAX) } else { first })
            }
            Op::Write | Op::WriteImm | Op::Send => {
                let ready = if on_card {
                    done
                } else {
                    // A datagram is placed with its header; a short payload of a connection may travel in the completion entry.
                    let placed = match op {
                        Op::Send if datagram => data + c.costs.recv_header,
                        Op::Send if data <= c.costs.recv_inline => 0,
                        _ => data,
                    };
                    let early = rest.land.min(lead);
                    let (began, there) = (now.saturating_sub(early), done.saturating_sub(early));
                    c.pcie.write(began, there, placed, &c.costs) + c.costs.pcie_write
                };
                if op.consumes_recv() {
                    c.pcie.prefetch(now, &c.costs);
                }
                let first = ready.max(*order + 1);
                let torn = steps && self.dice.roll(self.dice.torn_write);
                let gap =
                    if torn && self.dice.roll(self.dice.late_write) { LATE_GAP_MAX } else { STEP_GAP_MAX };
                (first, if torn { first + 1 + self.dice.below(gap) } else { first })
            }
            Op::CompareSwap | Op::FetchAdd => {
                let buckets = n.buckets.len() as u64;
                let bucket = &mut n.buckets[((m.offset / 8) % buckets) as usize];
                let times = if on_card { c.costs.atomic_on_card } else { c.costs.atomic };
                if !on_card {
                    c.pcie.atomic(now, &c.costs);
                }
                let served = c.atomic_unit.pass(now, done, c.costs.atomic_unit);
                let start = served.max(bucket.saturating_sub(times.overlap));
                // A word that is held for no time (an emulated card's) still has one change behind the other.
                let read = (start + times.read).max(*order + 1).max(*bucket + 1);
                let write = read + times.write.max(1);
                *bucket = write;
                (read, write)
            }
        };
        *order = last;
        m.second = last;
        m.split = 0;
        if last > first && !op.is_atomic() {
            let words = m.len.div_ceil(8);
            m.split = 1 + self.dice.below(u64::from(words) - 1) as u32;
        }
        if op.consumes_recv() && !self.take_recv(index) {
            return;
        }
        done = first;
        // A datagram's buffer is the NIC's until its completion, and no earlier WRITE can be in its way, so
        // it is placed at once; everything else waits for its turn.
        if op == Op::Send && datagram {
            let m = &mut self.messages[index];
            m.split = 0;
            m.second = done;
            self.memory(index);
        } else {
            self.schedule(done, Kind::Memory, index);
        }
    }

    /// No RECV is posted: reliable senders offer again, others lose the message.
    fn not_ready(&mut self, index: u32) {
        let m = &self.messages[index];
        let qp = m.qp as usize;
        if !m.reliable() {
            self.release(index);
            return;
        }
        let retries = self.qps[qp].rnr_retry;
        let card = self.qps[self.messages[index].to as usize].card as usize;
        let timer = self.cards[card].costs.rnr_timer;
        let m = &mut self.messages[index];
        if retries < RNR_FOR_EVER && m.tries >= retries {
            let done = m.time;
            self.refuse(index, WcStatus::RnrRetryExceeded, done);
            return;
        }
        m.tries = m.tries.saturating_add(1);
        self.qps[qp].not_ready = true;
        self.schedule(self.now + timer, Kind::Retry, index);
    }

    /// Takes a RECV for the message. A buffer that does not do fails both ends.
    fn take_recv(&mut self, index: u32) -> bool {
        let m = &mut self.messages[index];
        let to = m.to;
        let pair = &mut self.qps[to as usize];
        let Some(recv) = pair.far.recvs.pop() else { return false };
        m.b = recv.id;
        if m.op != Op::Send {
            return true;
        }
        let skip = if pair.transport == Transport::Ud { GRH_BYTES } else { 0 };
        let local = self.nodes[pair.node as usize].local(recv.lkey, recv.offset, recv.len);
        let failed = match local {
            Err(status) => Some((status, WcStatus::RemoteOperation)),
            Ok(_) if u64::from(recv.len) < u64::from(m.len) + u64::from(skip) => {
                Some((WcStatus::LocalLength, WcStatus::RemoteInvalidRequest))
            }
            Ok(_) => None,
        };
        let Some((receiver, sender)) = failed else {
            m.rkey = recv.lkey;
            m.offset = recv.offset + u64::from(skip);
            return true;
        };
        let done = m.time;
        let ready = self.entry_ready(to, done);
        self.complete_recv(to, recv.id, receiver, ready);
        self.refuse(index, sender, done);
        self.fail_qp(to, ready);
        false
    }

    /// One step of what the message does to the responder's memory.
    pub fn memory(&mut self, index: u32) {
        let m = &self.messages[index];
        let node = self.qps[m.to as usize].node;
        // The second step of a WRITE or ATOMIC comes after its response: there is nothing left to refuse.
        let answered = m.is(SECOND) && m.op != Op::Read;
        if self.is_dead(node) {
            if answered {
                self.release(index);
            } else {
                self.lose(index);
            }
            return;
        }
        let fate = match m.op {
            Op::Read => self.read_step(node, index),
            Op::Write | Op::WriteImm | Op::Send => self.write_step(node, index),
            Op::CompareSwap | Op::FetchAdd => self.atomic_step(node, index),
        };
        match fate {
            Ok(()) => {}
            Err(_) if answered => self.release(index),
            Err(status) => self.refuse(index, status, self.now),
        }
    }

    #[inline]
    fn read_step(&mut self, node: u32, index: u32) -> Result<(), WcStatus> {
        let m = &mut self.messages[index];
        let region = self.nodes[node as usize].remote(m.rkey, m.offset, m.len, |a| a.remote_read)?;
        let second = m.is(SECOND);
        let two_steps = m.split > 0;
        if m.in_word() {
            m.a = payload::load_word(region, m.offset, m.len);
        } else {
            let words = m.len.div_ceil(8) as usize;
            if m.payload == payload::NONE {
                m.payload = self.arena.take(m.len);
            }
            let block = self.arena.block_mut(m.payload, m.len);
            // Which part goes first depends on the split's parity: a READ has no address order.
            let split = m.split as usize;
            let (from, to) = match (two_steps, second == split.is_multiple_of(2)) {
                (false, _) => (0, words),
                (true, true) => (split, words),
                (true, false) => (0, split),
            };
            payload::load(region, m.offset, block, from, to);
        }
        if two_steps && !second {
            m.flags |= SECOND;
            let at = m.second;
            self.schedule(at, Kind::Memory, index);
        } else {
            let len = u64::from(m.len);
            self.acknowledge(index, self.now, len, headers::AETH);
        }
        Ok(())
    }

    #[inline]
    fn write_step(&mut self, node: u32, index: u32) -> Result<(), WcStatus> {
        let m = &mut self.messages[index];
        let n = &self.nodes[node as usize];
        let region = if m.op == Op::Send {
            n.local(m.rkey, m.offset, m.len).map_err(|_| WcStatus::RemoteOperation)?
        } else {
            n.remote(m.rkey, m.offset, m.len, |a| a.remote_write)?
        };
        let two_steps = m.split > 0;
        if m.in_word() {
            payload::store_word(region, m.offset, m.len, m.a);
        } else {
            let words = m.len.div_ceil(8) as usize;
            let (from, to) = match (two_steps, m.is(SECOND)) {
                (false, _) => (0, words),
                (true, false) => (0, m.split as usize),
                (true, true) => (m.split as usize, words),
            };
            payload::store(region, m.offset, m.len, self.arena.block(m.payload, m.len), from, to);
        }
        let (first, last) = (!m.is(SECOND), m.is(SECOND) || !two_steps);
        let (second, executed) = (m.second, m.time);
        let ack_delay = self.cards[self.qps[m.to as usize].card as usize].costs.ack_delay;
        if last && m.op.consumes_recv() {
            self.complete_receive(index);
        }
        if first && !last {
            self.messages[index].flags |= SECOND;
            self.schedule(second, Kind::Memory, index);
        }
        if first {
            self.acknowledge(index, executed + ack_delay, 0, headers::AETH);
        } else {
            self.release(index);
        }
        Ok(())
    }

    /// The NIC reads the word at one time and writes it at another. Its bucket keeps its own ATOMICs out in
    /// between; a CPU store or a WRITE in between is lost. A CAS that finds another value stores nothing, unless it is asked to put back
    /// what it found, as Soft-RoCE did until Linux 6.3.
    fn atomic_step(&mut self, node: u32, index: u32) -> Result<(), WcStatus> {
        let (global, puts_back) = (self.atomic_global, self.failed_cas_stores);
        let m = &mut self.messages[index];
        let region = self.nodes[node as usize].remote(m.rkey, m.offset, 8, |a| a.remote_atomic)?;
        if m.is(SECOND) {
            region.store(m.offset, m.b);
            self.release(index);
            return Ok(());
        }
        let (operand, old) = (m.a, region.load(m.offset));
        let put = match m.op {
            Op::FetchAdd => Some(old.wrapping_add(operand)),
            _ if old == operand => Some(m.b),
            _ => puts_back.then_some(old),
        };
        m.a = old;
        if let Some(put) = put {
            m.b = put;
            if global {
                region.store(m.offset, put);
            } else {
                m.flags |= SECOND;
                let at = m.second;
                self.schedule(at, Kind::Memory, index);
            }
        }
        self.acknowledge(index, self.now, 8, headers::ATOMIC_ACK - 8);
        Ok(())
    }

    /// Sends the response, if the requester waits for one.
    #[inline(always)]
    fn acknowledge(&mut self, index: u32, from: u64, data: u64, extended: u64) {
        let m = &mut self.messages[index];
        if m.is(ORPHAN) || !m.reliable() {
            self.release(index);
        } else if m.is(EXPLICIT) {
            let mut from = from;
            let pair = &mut self.qps[m.to as usize];
            pair.unacknowledged = 0;
            let n = &self.nodes[pair.node as usize];
            let c = &mut self.cards[pair.card as usize];
            // Of the card's own memory nothing was fetched; one packet has nothing to tell apart.
            let on_card = data > c.costs.mtu && n.is_on_card(m.rkey);
            if data == 0 {
                let unit = c.unit(pair);
                from = c.engine.pass(unit, self.now, from, c.costs.acknowledgement, Miss::default());
            }
            let rest = c.costs.rest(data as u32);
            let early = rest.link.min(if on_card { rest.segments } else { rest.fetch.max(rest.segments) });
            let time =
                c.reply_arrival(self.now.saturating_sub(early), from.saturating_sub(early), data, extended);
            m.pending += 1;
            debug_assert!(time >= self.now, "nothing comes back before it was answered");
            self.queue.push(time, Kind::Response, index);
        } else {
            self.acknowledge_together(index);
            self.release(index);
        }
    }

    /// Nobody waits for this acknowledgement: every so many requests one goes out, which costs both engines and
    /// the link and needs no event.
    #[inline]
    fn acknowledge_together(&mut self, index: u32) {
        let (now, m) = (self.now, &self.messages[index]);
        let pair = &mut self.qps[m.to as usize];
        let c = &mut self.cards[pair.card as usize];
        pair.unacknowledged += 1;
        if pair.unacknowledged < c.costs.ack_coalescing {
            return;
        }
        pair.unacknowledged = 0;
        let unit = c.unit(pair);
        let sent = c.engine.pass(unit, now, now, c.costs.acknowledgement, Miss::default());
        c.egress.pass(now, sent, c.costs.link(0, headers::AETH), c.costs.packet);
        let pair = &mut self.qps[m.qp as usize];
        let c = &mut self.cards[pair.card as usize];
        let unit = c.unit(pair);
        c.engine.pass(unit, now, now, c.costs.acknowledgement, Miss::default());
    }

    /// Completes the RECV that the message took.
    fn complete_receive(&mut self, index: u32) {
        let m = &self.messages[index];
        let datagram = m.transport == Transport::Ud;
        let completion = Completion {
            id: m.b,
            qp: Qp(m.to),
            opcode: if m.op == Op::Send { WcOpcode::Recv } else { WcOpcode::RecvRdmaWithImm },
            status: WcStatus::Success,
            byte_len: if datagram { m.len + GRH_BYTES } else { m.len },
            imm: m.is(IMM).then_some(m.imm),
            from: datagram.then_some((NodeId(m.node as u16), Qp(m.qp))),
        };
        let (to, second) = (m.to, m.second);
        // The entry follows the data over PCIe, whose latency is in the data's time already.
        let ready = self.entry_sent(to, second);
        self.enter(to, ready, None, completion);
    }
}
