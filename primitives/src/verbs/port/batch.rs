//! Building, posting and awaiting requests.

use super::group::NO_GROUP;
use super::queue::{Entry, SendQueue};
use super::{Cost, Port, State, VerbError};
use crate::fabric::Nic;
use crate::mem::Buf;
use crate::verbs::{AddressHandle, Flags, NodeId, Remote, Sge, Verb, WorkRequest};
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

/// Requests that are posted together and awaited as one group.
///
/// Requests to one queue pair keep their order; queue pairs are independent of each other.
pub struct Batch<'p, N: Nic> {
    pub(super) port: &'p Port<N>,
    pub(super) lane: u32,
    pub(super) error: Option<VerbError>,
    pub(super) posted: bool,
    pub(super) per_doorbell: usize,
}

impl<'p, N: Nic> Batch<'p, N> {
    /// Whether the requests of one queue pair share a doorbell, where the port's configuration lets them. They do
    /// unless told otherwise.
    pub fn doorbell_batching(&mut self, together: bool) {
        self.per_doorbell = if together { self.port.per_doorbell } else { 1 };
    }

    /// READ of `len` bytes into `buf` at byte `offset`.
    #[inline]
    pub fn read(&mut self, from: Remote, buf: &Buf, offset: u32, len: u32) {
        self.push(
            from.node,
            Verb::Read { rkey: from.rkey, offset: from.offset },
            buf.sge_part(offset, len),
            buf,
        );
    }

    /// WRITE of `len` bytes of `buf` from byte `offset` on.
    #[inline]
    pub fn write(&mut self, to: Remote, buf: &Buf, offset: u32, len: u32) {
        self.push(to.node, Verb::Write { rkey: to.rkey, offset: to.offset }, buf.sge_part(offset, len), buf);
    }

    /// Compare-and-swap; the value seen lands in word `word` of `buf`.
    #[inline]
    pub fn cas(&mut self, at: Remote, expect: u64, swap: u64, buf: &Buf, word: u32) {
        let verb = Verb::CompareSwap { rkey: at.rkey, offset: at.offset, expect, swap };
        self.push(at.node, verb, buf.sge_part(word * 8, 8), buf);
    }

    /// Fetch-and-add; the value before lands in word `word` of `buf`.
    #[inline]
    pub fn fetch_add(&mut self, at: Remote, add: u64, buf: &Buf, word: u32) {
        let verb = Verb::FetchAdd { rkey: at.rkey, offset: at.offset, add };
        self.push(at.node, verb, buf.sge_part(word * 8, 8), buf);
    }

    /// SEND of `len` bytes of `buf` from its start, as a datagram from `queue`.
    #[inline]
    pub fn send(&mut self, queue: u32, to: AddressHandle, buf: &Buf, len: u32) {
        let state = &mut *self.port.state.borrow_mut();
        self.stage(state, queue, Verb::Send { to: Some(to), imm: None }, buf.sge_part(0, len), buf);
    }

    #[inline]
    fn push(&mut self, peer: NodeId, verb: Verb, local: Sge, buf: &Buf) {
        let state = &mut *self.port.state.borrow_mut();
        let queue = match state.routes.get(peer.index()).map(Vec::as_slice) {
            Some(&[queue]) => queue,
            None | Some([]) => {
                self.error = Some(VerbError::NoRoute { peer });
                return;
            }
            Some(lanes) => lanes[self.lane as usize % lanes.len()],
        };
        self.stage(state, queue, verb, local, buf);
    }

    #[inline]
    fn stage(&self, state: &mut State, queue: u32, verb: Verb, local: Sge, buf: &Buf) {
        let inline = !verb.returns_data() && local.len <= self.port.inline_max;
        let flags = Flags { signaled: self.port.config.signal_all, inline };
        let q = &mut state.queues[queue as usize];
        if q.chain.is_empty() {
            state.touched.push(queue);
        }
        q.chain.push(WorkRequest { id: 0, verb, local, flags });
        q.pins.push(buf.pin());
        state.staged += 1;
        state.traffic.count(&verb, local.len);
    }

    /// Requests in the batch so far.
    pub fn len(&self) -> usize {
        self.port.state.borrow().staged as usize
    }

    /// Whether the batch has no requests yet.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Posts the batch; await the result to know that all of it is done.
    #[inline]
    pub fn post(mut self) -> Posted<'p, N> {
        let port = self.port;
        let state = &mut *port.state.borrow_mut();
        let verbs = state.staged;
        let group = state.groups.open(verbs, port.sched.current(), self.error.take());
        let doorbells = self.submit(state, group);
        Posted { port, group, cost: Cost { verbs, doorbells, round_trips: 1 } }
    }

    /// Posts the batch unsignaled: nobody waits for it, and its completion is learned from a later request
    /// on the same queue pair (passive ACK). Returns what it cost.
    ///
    /// # Errors
    /// If a request was refused when posted. An error that happens later moves the queue pair to the error
    /// state, and the next request on it reports.
    #[inline]
    pub fn post_passive(mut self) -> Result<Cost, VerbError> {
        let state = &mut *self.port.state.borrow_mut();
        if let Some(error) = self.error.take() {
            return Err(error);
        }
        let verbs = state.staged;
        let doorbells = self.submit(state, NO_GROUP);
        match self.error.take() {
            Some(error) => Err(error),
            None => Ok(Cost { verbs, doorbells, round_trips: 0 }),
        }
    }

    #[inline]
    fn submit(&mut self, state: &mut State, group: u32) -> u32 {
        self.posted = true;
        self.port.building.set(false);
        let mut doorbells = 0;
        for at in 0..state.touched.len() {
            let index = state.touched[at];
            let SendQueue { line, chain, pins, backlog } = &mut state.queues[index as usize];
            if group != NO_GROUP
                && let Some(last) = chain.last_mut()
            {
                last.flags.signaled = true;
            }
            if !backlog.is_empty() || line.room() < chain.len() as u64 {
                state.lined_up += chain.len();
                let entries = pins.drain(..).map(|pinned| Entry { group, pinned });
                backlog.extend(chain.drain(..).zip(entries));
                // An empty queue has no completion coming that would make it move.
                doorbells += self.port.drain_backlog(state, index);
                continue;
            }
            if chain.len() <= self.per_doorbell {
                doorbells += 1;
                let entries = pins.iter().map(|&pinned| Entry { group, pinned });
                if let Err(refused) = self.port.ring(line, chain, entries) {
                    self.error = Some(refused.into());
                    self.port.all_refused(line, &mut state.groups, chain, pins, group, refused);
                }
            } else {
                state.moving.1.clear();
                state.moving.1.extend(pins.iter().map(|&pinned| Entry { group, pinned }));
                let groups = &mut state.groups;
                let (rung, refused) =
                    self.port.post_in_parts(line, groups, chain, &state.moving.1, self.per_doorbell);
                doorbells += rung;
                if let Some(refused) = refused {
                    self.error = Some(refused.into());
                }
            }
            chain.clear();
            pins.clear();
        }
        state.touched.clear();
        state.staged = 0;
        state.traffic.doorbells += u64::from(doorbells);
        doorbells
    }
}

impl<N: Nic> Drop for Batch<'_, N> {
    #[inline]
    fn drop(&mut self) {
        if !self.posted {
            self.abandon();
        }
    }
}

impl<N: Nic> Batch<'_, N> {
    /// Lets go of what was staged.
    #[cold]
    fn abandon(&mut self) {
        self.port.building.set(false);
        let state = &mut *self.port.state.borrow_mut();
        state.staged = 0;
        for queue in state.touched.drain(..) {
            let queue = &mut state.queues[queue as usize];
            for request in queue.chain.drain(..) {
                state.traffic.discount(&request.verb, request.local.len);
            }
            for pinned in queue.pins.drain(..) {
                self.port.pool.unpin(pinned);
            }
        }
    }
}

/// A posted batch; resolves when every request of it has completed, to the first error if there was one.
#[must_use = "a posted batch is awaited, or posted passively instead"]
pub struct Posted<'p, N: Nic> {
    port: &'p Port<N>,
    group: u32,
    cost: Cost,
}

impl<N: Nic> Posted<'_, N> {
    /// What posting it cost.
    pub fn cost(&self) -> Cost {
        self.cost
    }
}

impl<N: Nic> Future for Posted<'_, N> {
    type Output = Result<Cost, VerbError>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Self::Output> {
        if self.group == NO_GROUP {
            return Poll::Pending;
        }
        let state = &mut *self.port.state.borrow_mut();
        match state.groups.ended(self.group, self.port.sched.current()) {
            None => Poll::Pending,
            Some(error) => {
                self.group = NO_GROUP;
                Poll::Ready(error.map_or(Ok(self.cost), Err))
            }
        }
    }
}

impl<N: Nic> Drop for Posted<'_, N> {
    #[inline]
    fn drop(&mut self) {
        if self.group != NO_GROUP {
            self.port.state.borrow_mut().groups.leave(self.group);
        }
    }
}
