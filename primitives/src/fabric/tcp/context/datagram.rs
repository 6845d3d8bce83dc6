//! Datagrams on their way out, and into the receives that were posted for them.

use super::super::MTU;
use super::super::stream::Frame;
use super::{LocalQp, MAX_QPS, NO_SEQ, QP_BITS, State, TcpNic};
use crate::fabric::regions::Regions;
use crate::mem::Region;
use crate::verbs::work::GRH_BYTES;
use crate::verbs::{AddressHandle, Completion, NodeId, Qp, QpState, Verb, WcOpcode, WcStatus, WorkRequest};
use std::collections::VecDeque;

impl TcpNic {
    /// Takes a request: its completion is queued unless it must wait for room.
    pub(super) fn execute(&self, state: &mut State, qp: usize, seq: u64, request: &WorkRequest) -> bool {
        let local = &state.qps[qp];
        let (number, in_error) = (local.number, local.state == QpState::Error);
        let status = if in_error {
            WcStatus::Flushed
        } else {
            match self.send(state, number, request) {
                Some(status) => status,
                None => return false,
            }
        };
        self.complete(state, qp, seq, request, status);
        true
    }

    fn complete(&self, state: &mut State, qp: usize, seq: u64, request: &WorkRequest, status: WcStatus) {
        let local = &mut state.qps[qp];
        match status {
            WcStatus::Success if !request.flags.signaled => return,
            // The queue pair serves the other peers.
            WcStatus::Success | WcStatus::RetryExceeded => {}
            _ => local.state = QpState::Error,
        }
        let completion = Completion {
            id: request.id,
            qp: local.number,
            opcode: WcOpcode::SendQueue,
            status,
            byte_len: 0,
            imm: None,
            from: None,
        };
        state.done.push_back((completion, seq));
        if state.qps[qp].state == QpState::Error {
            flush_receives(state, qp);
        }
    }

    /// Sends a datagram; `None` if its stream has no room.
    fn send(&self, state: &mut State, from: Qp, request: &WorkRequest) -> Option<WcStatus> {
        let Verb::Send { to: Some(to), imm } = request.verb else {
            return Some(WcStatus::LocalProtection);
        };
        let sge = request.local;
        if sge.len > MTU {
            return Some(WcStatus::LocalLength);
        }
        let Some(memory) = self.shared.regions(self.node).local(sge) else {
            return Some(WcStatus::LocalProtection);
        };
        let context = to.qp.0 >> QP_BITS;
        if (to.node, context) == (self.node, self.place.context) {
            self.deliver_here(state, from, to, imm, memory, sge.offset, sge.len);
            return Some(WcStatus::Success);
        }
        let index = match self.outbound(state, (to.node, context)) {
            Ok(Some(index)) => index,
            // Nobody there: datagrams to nowhere are lost without a word.
            Ok(None) => return Some(WcStatus::Success),
            Err(_) => return Some(WcStatus::RetryExceeded),
        };
        let out = &mut state.outbound[index];
        if out.dead() {
            return Some(WcStatus::RetryExceeded);
        }
        let frame = Frame { len: sge.len, to: to.qp, from, qkey: to.qkey, imm };
        // The range was checked with the key.
        let fill = |payload: &mut [u8]| {
            let _ = memory.read_bytes(sge.offset, payload);
        };
        if out.add(&frame, fill) {
            return Some(WcStatus::Success);
        }
        if out.flush().is_err() {
            let node = out.to.0;
            out.kill();
            state.lost.push_back(node);
            return Some(WcStatus::RetryExceeded);
        }
        out.add(&frame, fill).then_some(WcStatus::Success)
    }

    /// A datagram from this context to itself.
    #[allow(clippy::too_many_arguments)]
    fn deliver_here(
        &self,
        state: &mut State,
        from: Qp,
        to: AddressHandle,
        imm: Option<u32>,
        memory: &Region,
        offset: u64,
        len: u32,
    ) {
        let frame = Frame { len, to: to.qp, from, qkey: to.qkey, imm };
        let State { qps, done, .. } = state;
        receive(self.shared.regions(self.node), self.node, qps, done, &frame, |target, at| {
            Region::copy(memory, offset, target, at, u64::from(len));
        });
    }

    #[cold]
    pub(super) fn offer_again(&self, state: &mut State) {
        let mut still = 0;
        for qp in 0..state.qps.len() {
            while let Some(&(seq, request)) = state.qps[qp].stalled.front() {
                if !self.execute(state, qp, seq, &request) {
                    still += 1;
                    break;
                }
                state.qps[qp].stalled.pop_front();
            }
        }
        self.stalled.set(still);
    }
}

/// Puts a datagram into the oldest posted receive, or drops it without a word.
pub(super) fn receive(
    regions: &Regions,
    from: NodeId,
    qps: &mut [LocalQp],
    done: &mut VecDeque<(Completion, u64)>,
    frame: &Frame,
    copy: impl FnOnce(&Region, u64),
) {
    let Some(qp) = qps.get_mut(frame.to.0 as usize & (MAX_QPS - 1)).filter(|q| q.number == frame.to) else {
        return;
    };
    if qp.state != QpState::ReadyToSend || qp.config.qkey != frame.qkey {
        return;
    }
    let Some(recv) = qp.recv.pop_front() else { return };
    qp.recv_unpolled += 1;
    let byte_len = frame.len + GRH_BYTES;
    let status = match regions.local(recv.local) {
        Some(target) if byte_len <= recv.local.len => {
            copy(target, recv.local.offset + u64::from(GRH_BYTES));
            WcStatus::Success
        }
        _ => WcStatus::LocalLength,
    };
    let completion = Completion {
        id: recv.id,
        qp: qp.number,
        opcode: WcOpcode::Recv,
        status,
        byte_len,
        imm: frame.imm,
        from: Some((from, frame.from)),
    };
    done.push_back((completion, NO_SEQ));
}

/// Receives of a queue pair in error come back flushed.
pub(super) fn flush_receives(state: &mut State, qp: usize) {
    let State { qps, done, .. } = state;
    let qp = &mut qps[qp];
    for recv in qp.recv.drain(..) {
        qp.recv_unpolled += 1;
        let completion = Completion {
            id: recv.id,
            qp: qp.number,
            opcode: WcOpcode::Recv,
            status: WcStatus::Flushed,
            byte_len: 0,
            imm: None,
            from: None,
        };
        done.push_back((completion, NO_SEQ));
    }
}
