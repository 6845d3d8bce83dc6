//! The calling side: batches of calls, replies, acknowledgements, retransmission.

use super::{BatchState, Call, Header, Kind, Reader, Rpc, RpcError, Sent, State, Writer};
use crate::fabric::Nic;
use crate::mem::{Buf, Pinned};
use crate::units::Nanos;
use crate::verbs::NodeId;
use crate::verbs::port::Cost;
use std::future::Future;
use std::num::NonZeroU32;
use std::pin::Pin;
use std::task::{Context, Poll};

/// Calls that one batch can hold: they are kept without allocating.
pub const MAX_CALLS: usize = 32;
const NO_CALL: u32 = u32::MAX;

/// Calls that are sent together, under one doorbell, and awaited as a group.
pub struct CallBatch<'r, N: Nic> {
    rpc: &'r Rpc<N>,
    calls: [u32; MAX_CALLS],
    len: usize,
    batch: u32,
    verbs: u32,
    /// Of the requests' payload.
    bytes: u32,
    closed: bool,
    together: bool,
}

impl<N: Nic> Rpc<N> {
    /// Starts a batch of calls.
    ///
    /// # Panics
    /// If another batch of this endpoint is being built: a batch is built between two awaits.
    pub fn batch(&self) -> CallBatch<'_, N> {
        assert!(!self.building.replace(true), "a call batch is already being built on this endpoint");
        let state = &mut *self.state.borrow_mut();
        let batch = state.free_batches.pop().unwrap_or_else(|| {
            state.batches.push(BatchState { open: 0, task: 0 });
            state.free_batches.reserve(state.batches.len());
            state.batches.len() as u32 - 1
        });
        state.batches[batch as usize] = BatchState { open: 0, task: self.port.sched().current() };
        CallBatch {
            rpc: self,
            calls: [NO_CALL; MAX_CALLS],
            len: 0,
            batch,
            verbs: 0,
            bytes: 0,
            closed: false,
            together: true,
        }
    }

    /// Waits until the windows of all these sessions have room for that many requests at once. Await before
    /// building a batch and build it before the next await: then nobody takes the room in between. Whoever came
    /// first goes first.
    ///
    /// # Errors
    /// If there is no session with a peer, or its whole window is too small.
    pub async fn room(&self, needs: &[(NodeId, u32)]) -> Result<(), RpcError> {
        let mut turn = Turn { rpc: self, needs, ticket: None };
        std::future::poll_fn(|_| turn.poll()).await
    }

    /// One call, awaited.
    ///
    /// # Errors
    /// If the request does not fit, the peer is unknown or does not answer.
    pub async fn call(
        &self,
        peer: NodeId,
        handler: u8,
        write: impl FnOnce(&mut Writer<'_>),
    ) -> Result<Replies<'_, N>, RpcError> {
        self.room(&[(peer, 1)]).await?;
        let mut batch = self.batch();
        batch.call(peer, handler, write)?;
        batch.send().await
    }

    /// Frees the requests to `peer` that it says it has executed and that expect no reply.
    pub(super) fn acknowledge(&self, state: &mut State, peer: NodeId, done_below: u32) {
        let Some(session) = state.sessions.get_mut(peer.index()) else { return };
        let news = done_below.wrapping_sub(session.acknowledged);
        // News are at most what was sent since; anything else is an old datagram or not our peer's truth.
        if news == 0 || news > session.next_seq.wrapping_sub(1).wrapping_sub(session.acknowledged) {
            return;
        }
        let mask = session.unanswered.len() - 1;
        let mut freed = false;
        // Requests older than a window are gone for sure.
        for seq in (0..news.min(session.unanswered.len() as u32)).map(|i| done_below.wrapping_sub(i)) {
            let slot = &mut session.unanswered[seq as usize & mask];
            if let Some(sent) = slot.take_if(|sent| sent.call == NO_CALL && sent.seq == seq) {
                self.let_go(sent.held);
                session.in_use -= 1;
                freed = true;
            }
        }
        session.acknowledged = done_below;
        if freed {
            self.wake_waiting(state, peer);
        }
    }

    fn wake_waiting(&self, state: &mut State, peer: NodeId) {
        // Only the first: when it has gone on, it wakes the next.
        if let Some(&(_, task)) = state.sessions[peer.index()].waiting.front() {
            self.port.sched().wake(task);
        }
    }

    /// Hands a reply to the call that waits for it.
    pub(super) fn answer(&self, state: &mut State, header: &Header, message: crate::verbs::port::Received) {
        let session = &mut state.sessions[header.from.index()];
        let index = header.seq as usize & (session.unanswered.len() - 1);
        let slot = &mut session.unanswered[index];
        let Some(sent) = slot.take_if(|sent| sent.seq == header.seq && sent.call == header.call) else {
            // The second answer to a request that was sent twice.
            session.round_trip.answered_twice(self.config.retransmit_after);
            state.stats.duplicates += 1;
            return;
        };
        self.let_go(sent.held);
        session.in_use -= 1;
        if session.round_trip.matters(sent.attempts) {
            let since = self.port.now().since(sent.at);
            session.round_trip.took(self.config.retransmit_after, sent.attempts, since);
        }
        self.finish(state, header.call, Ok((message.buf, header.len)));
        self.wake_waiting(state, header.from);
    }

    /// Ends a call with a reply and its length, or with a failure.
    fn finish(&self, state: &mut State, call: u32, result: Result<(Buf, u32), RpcError>) {
        let (index, generation) = ((call & 0xffff) as usize, (call >> 16) as u16);
        let Some(entry) = state.calls.get_mut(index).filter(|c| c.live && c.generation == generation) else {
            return;
        };
        match result {
            Ok((buf, len)) => (entry.reply, entry.len) = (buf.pin(), len),
            Err(error) => state.failed.push((call, error)),
        }
        let batch = &mut state.batches[entry.batch as usize];
        batch.open -= 1;
        if batch.open == 0 {
            self.port.sched().wake(batch.task);
        }
    }

    /// Ends everything that waits for `peer`, which is gone: calls fail with [`RpcError::Gone`], now and from here on.
    pub fn lose(&self, peer: NodeId) {
        let state = &mut *self.state.borrow_mut();
        let Some(session) = state.sessions.get_mut(peer.index()) else { return };
        if std::mem::replace(&mut session.gone, true) {
            return;
        }
        for index in 0..session_slots(state, peer) {
            let session = &mut state.sessions[peer.index()];
            let Some(sent) = session.unanswered[index].take() else { continue };
            self.let_go(sent.held);
            session.in_use -= 1;
            if sent.call != NO_CALL {
                self.finish(state, sent.call, Err(RpcError::Gone { peer }));
            }
        }
        // Everybody, not the first alone: whoever goes on finds the peer gone and wakes nobody.
        for index in 0..state.sessions[peer.index()].waiting.len() {
            let (_, task) = state.sessions[peer.index()].waiting[index];
            self.port.sched().wake(task);
        }
    }

    /// Sends old unanswered requests again and gives up on the oldest.
    pub(super) fn sweep(&self, now: Nanos) {
        if !self.sweep_armed.get() || now < self.next_sweep.get() {
            return;
        }
        let period = Nanos(self.config.retransmit_after.0 / 2);
        self.next_sweep.set(now + period);
        let state = &mut *self.state.borrow_mut();
        let mut outstanding = false;
        for peer in 0..state.sessions.len() {
            for index in 0..state.sessions[peer].unanswered.len() {
                let session = &mut state.sessions[peer];
                let Some(to) = session.to else { continue };
                let Some(sent) = &mut session.unanswered[index] else { continue };
                outstanding = true;
                let patience = session.round_trip.patience(self.config.retransmit_after, sent.attempts);
                if now.since(sent.at) < patience {
                    continue;
                }
                if sent.attempts.get() > self.config.max_retransmits {
                    let (peer, handler, attempts) = (to.node, sent.handler, sent.attempts.get());
                    let error = match self.port.nic().port_down() {
                        Some(port) => RpcError::PortDown { peer, port },
                        None => RpcError::Unanswered { peer, handler, attempts },
                    };
                    let call = sent.call;
                    self.let_go(sent.held);
                    session.unanswered[index] = None;
                    session.in_use -= 1;
                    if call != NO_CALL {
                        self.finish(state, call, Err(error));
                    }
                    self.wake_waiting(state, to.node);
                    continue;
                }
                sent.at = now;
                sent.attempts = sent.attempts.saturating_add(1);
                state.stats.retransmits += 1;
                self.line_up(&mut state.out, (to, self.port.pool().share(sent.held), sent.len));
            }
        }
        self.send_out(state, true);
        self.sweep_armed.set(outstanding);
        if outstanding {
            self.port.nic().wake_at(now + period);
        }
    }

    /// Makes sure that a sweep comes while requests are unanswered, also where nothing else wakes the core.
    fn arm_sweep(&self) {
        if !self.sweep_armed.replace(true) {
            self.next_sweep.set(self.port.now() + self.config.retransmit_after);
            self.port.nic().wake_at(self.next_sweep.get());
        }
    }
}

/// Somebody who waits for room. It lines up with all sessions it needs at once, so everybody's place is the order
/// of arrival wherever they meet: the oldest is first everywhere, and nobody waits in a circle or for ever.
struct Turn<'r, N: Nic> {
    rpc: &'r Rpc<N>,
    needs: &'r [(NodeId, u32)],
    ticket: Option<u64>,
}

impl<N: Nic> Turn<'_, N> {
    fn poll(&mut self) -> Poll<Result<(), RpcError>> {
        let window = self.rpc.config.window;
        let state = &mut *self.rpc.state.borrow_mut();
        let mut free = true;
        for &(peer, calls) in self.needs {
            let Some(session) = state.sessions.get(peer.index()).filter(|s| s.to.is_some()) else {
                return Poll::Ready(Err(RpcError::NoSession { peer }));
            };
            if session.gone {
                return Poll::Ready(Err(RpcError::Gone { peer }));
            }
            if calls > window {
                return Poll::Ready(Err(RpcError::WindowFull { peer, window }));
            }
            let first = session.waiting.front().map(|w| w.0);
            free &= first == self.ticket && session.has_slots(calls);
        }
        if free {
            self.leave(state);
            return Poll::Ready(Ok(()));
        }
        if self.ticket.is_none() {
            let ticket = state.next_ticket;
            state.next_ticket += 1;
            self.ticket = Some(ticket);
            for &(peer, _) in self.needs {
                state.sessions[peer.index()].waiting.push_back((ticket, self.rpc.port.sched().current()));
            }
        }
        Poll::Pending
    }

    /// Steps out of all lines and lets the next in each look.
    fn leave(&mut self, state: &mut State) {
        let Some(ticket) = self.ticket.take() else { return };
        for &(peer, _) in self.needs {
            // Tickets ascend along a line. It may be thousands of coroutines long, and whoever leaves mostly stands first.
            let waiting = &mut state.sessions[peer.index()].waiting;
            if let Ok(place) = waiting.binary_search_by_key(&ticket, |w| w.0) {
                waiting.remove(place);
            }
            self.rpc.wake_waiting(state, peer);
        }
    }
}

impl<N: Nic> Drop for Turn<'_, N> {
    fn drop(&mut self) {
        if self.ticket.is_some() {
            self.leave(&mut self.rpc.state.borrow_mut());
        }
    }
}

fn session_slots(state: &State, peer: NodeId) -> usize {
    state.sessions.get(peer.index()).map_or(0, |s| s.unanswered.len())
}

impl super::Session {
    /// Whether the slots of the next `calls` sequence numbers are free: an old request may hold one while
    /// newer ones are done.
    pub(super) fn has_slots(&self, calls: u32) -> bool {
        let mask = self.unanswered.len() - 1;
        (0..calls).all(|i| self.unanswered[self.next_seq.wrapping_add(i) as usize & mask].is_none())
    }
}

impl<'r, N: Nic> CallBatch<'r, N> {
    /// Whether the batch's messages share a doorbell, where the endpoint's configuration lets them. They do unless
    /// told otherwise.
    pub fn doorbell_batching(&mut self, together: bool) {
        self.together = together;
    }

    /// Adds a call that expects a reply; returns its place among the batch's replies.
    ///
    /// # Errors
    /// If the request does not fit, the peer is unknown, no buffer is left, or the session's window is full
    /// (await [`Rpc::room`] first).
    pub fn call(
        &mut self,
        peer: NodeId,
        handler: u8,
        write: impl FnOnce(&mut Writer<'_>),
    ) -> Result<usize, RpcError> {
        let call = {
            let state = &mut *self.rpc.state.borrow_mut();
            let index = match state.free_calls.pop() {
                Some(index) => index,
                // A call's number has 16 bits for its place.
                None if state.calls.len() > usize::from(u16::MAX) => {
                    return Err(RpcError::TooMany { max: 1 << 16 });
                }
                None => {
                    state.calls.push(Call::NEW);
                    state.free_calls.reserve(state.calls.len());
                    state.calls.len() as u32 - 1
                }
            };
            let entry = &mut state.calls[index as usize];
            let generation = entry.generation.wrapping_add(1);
            *entry = Call { batch: self.batch, generation, live: true, ..Call::NEW };
            index | u32::from(generation) << 16
        };
        if self.len == MAX_CALLS {
            self.release(call);
            return Err(RpcError::TooLong { len: self.len as u32 + 1, max: MAX_CALLS as u32 });
        }
        if let Err(error) = self.line_up(peer, Kind::Request, handler, call, write) {
            self.release(call);
            return Err(error);
        }
        self.calls[self.len] = call;
        self.len += 1;
        self.rpc.state.borrow_mut().batches[self.batch as usize].open += 1;
        Ok(self.len - 1)
    }

    /// Adds a request that nobody waits for (passive ACK). It is executed exactly once all the same.
    ///
    /// # Errors
    /// As [`CallBatch::call`].
    pub fn one_way(
        &mut self,
        peer: NodeId,
        handler: u8,
        write: impl FnOnce(&mut Writer<'_>),
    ) -> Result<(), RpcError> {
        self.line_up(peer, Kind::OneWay, handler, NO_CALL, write)
    }

    fn release(&self, call: u32) {
        let state = &mut *self.rpc.state.borrow_mut();
        state.calls[(call & 0xffff) as usize].live = false;
        state.free_calls.push(call & 0xffff);
    }

    fn line_up(
        &mut self,
        peer: NodeId,
        kind: Kind,
        handler: u8,
        call: u32,
        write: impl FnOnce(&mut Writer<'_>),
    ) -> Result<(), RpcError> {
        let rpc = self.rpc;
        let max = rpc.config.max_message;
        let buf = rpc.port.buf(max)?;
        let start = Rpc::<N>::header_bytes();
        let mut writer = Writer::new(&buf, start, max);
        write(&mut writer);
        let len = writer.len();
        if writer.overflowed() {
            return Err(RpcError::TooLong { len: start + len, max });
        }
        let state = &mut *rpc.state.borrow_mut();
        let session = state.sessions.get_mut(peer.index()).ok_or(RpcError::NoSession { peer })?;
        let to = session.to.ok_or(RpcError::NoSession { peer })?;
        if session.gone {
            return Err(RpcError::Gone { peer });
        }
        if !session.has_slots(1) {
            return Err(RpcError::WindowFull { peer, window: rpc.config.window });
        }
        let seq = session.next_seq;
        session.next_seq = seq.wrapping_add(1);
        rpc.seal(session, &buf, Header::new(kind, handler, seq, call, len));
        let index = seq as usize & (session.unanswered.len() - 1);
        session.unanswered[index] = Some(Sent {
            at: rpc.port.now(),
            seq,
            call,
            held: buf.pin(),
            len: start + len,
            attempts: NonZeroU32::MIN,
            handler,
        });
        session.in_use += 1;
        state.stats.calls += 1;
        self.rpc.line_up(&mut state.out, (to, buf, start + len));
        self.verbs += 1;
        self.bytes += len;
        Ok(())
    }

    /// Sends the batch; await the result for the replies. A batch of one-way requests resolves at once.
    pub fn send(mut self) -> Pending<'r, N> {
        let doorbells = self.submit();
        let waits = u32::from(self.len > 0);
        let cost = Cost { verbs: self.verbs, doorbells, round_trips: waits, bytes: self.bytes };
        let (calls, len) = (self.calls, self.len);
        Pending { replies: Some(Replies { rpc: self.rpc, calls, len, batch: self.batch, cost }) }
    }

    /// Sends a batch of one-way requests.
    pub fn send_one_way(self) -> Cost {
        self.send().cost()
    }

    fn submit(&mut self) -> u32 {
        self.closed = true;
        self.rpc.building.set(false);
        let before = self.rpc.port.traffic().doorbells;
        self.rpc.send_out(&mut self.rpc.state.borrow_mut(), self.together);
        if self.verbs > 0 {
            self.rpc.arm_sweep();
        }
        (self.rpc.port.traffic().doorbells - before) as u32
    }
}

impl<N: Nic> Drop for CallBatch<'_, N> {
    fn drop(&mut self) {
        if !self.closed {
            // What was lined up has sequence numbers already and goes out; its replies find nobody waiting.
            self.submit();
            drop(Replies {
                rpc: self.rpc,
                calls: self.calls,
                len: self.len,
                batch: self.batch,
                cost: Cost::default(),
            });
        }
    }
}

/// A sent batch; resolves when every call has its reply, to the first failure if there was one.
#[must_use = "a sent batch is awaited; use one-way requests where nobody waits"]
pub struct Pending<'r, N: Nic> {
    replies: Option<Replies<'r, N>>,
}

impl<N: Nic> Pending<'_, N> {
    /// What sending it cost, without the replies that are to come.
    pub fn cost(&self) -> Cost {
        self.replies.as_ref().map_or(Cost::default(), |r| r.cost)
    }
}

impl<'r, N: Nic> Future for Pending<'r, N> {
    type Output = Result<Replies<'r, N>, RpcError>;

    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(replies) = &self.replies else { return Poll::Pending };
        {
            let state = &mut *replies.rpc.state.borrow_mut();
            let batch = &mut state.batches[replies.batch as usize];
            if batch.open > 0 {
                batch.task = replies.rpc.port.sched().current();
                return Poll::Pending;
            }
            if !state.failed.is_empty() {
                let mut calls = replies.calls[..replies.len].iter();
                let failed = calls.find_map(|call| state.failed.iter().find(|(failed, _)| failed == call));
                if let Some(&(_, error)) = failed {
                    return Poll::Ready(Err(error));
                }
            }
        }
        Poll::Ready(Ok(self.replies.take().expect("checked above")))
    }
}

/// The replies of a batch, in the order of its calls.
pub struct Replies<'r, N: Nic> {
    rpc: &'r Rpc<N>,
    calls: [u32; MAX_CALLS],
    len: usize,
    batch: u32,
    cost: Cost,
}

impl<N: Nic> Replies<'_, N> {
    /// Number of replies.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the batch had no calls.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// What the batch cost, replies included.
    pub fn cost(&self) -> Cost {
        Cost { bytes: self.cost.bytes + self.bytes(), ..self.cost }
    }

    /// Payload bytes of all replies together.
    pub fn bytes(&self) -> u32 {
        let state = self.rpc.state.borrow();
        self.calls[..self.len].iter().map(|call| state.calls[(call & 0xffff) as usize].len).sum()
    }

    /// Reads the payload of reply `index`.
    ///
    /// # Panics
    /// If the batch has no such call.
    pub fn read<T>(&self, index: usize, read: impl FnOnce(Reader<'_>) -> T) -> T {
        let call = self.calls[..self.len][index];
        let (reply, len) = {
            let state = self.rpc.state.borrow();
            let entry = &state.calls[(call & 0xffff) as usize];
            assert!(entry.reply != Pinned::NONE, "all calls are answered");
            (self.rpc.port.pool().share(entry.reply), entry.len)
        };
        read(Reader::new(&reply, len))
    }
}

impl<N: Nic> Drop for Replies<'_, N> {
    fn drop(&mut self) {
        let state = &mut *self.rpc.state.borrow_mut();
        for &call in &self.calls[..self.len] {
            let index = (call & 0xffff) as usize;
            let entry = &mut state.calls[index];
            // A late reply to a call that is gone is recognized by its generation.
            entry.live = false;
            self.rpc.let_go(std::mem::replace(&mut entry.reply, Pinned::NONE));
            state.free_calls.push(index as u32);
        }
        if !state.failed.is_empty() {
            state.failed.retain(|(call, _)| !self.calls[..self.len].contains(call));
        }
        state.free_batches.push(self.batch);
    }
}
