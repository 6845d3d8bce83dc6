//! Building, posting and awaiting requests.

use super::group::{Awaited, Groups, NO_GROUP, Owner};
use super::queue::{Line, Rings, held};
use super::{Cost, Port, State, VerbError};
use crate::fabric::{Nic, PostError};
use crate::mem::{Buf, Pinned};
use crate::verbs::{AddressHandle, Flags, NodeId, Remote, Sge, Verb, WorkRequest};
use std::cell::RefMut;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

/// In place of the queue of a staged request that was gathered with others of its queue.
const GATHERED: u32 = u32::MAX;

/// Requests that are posted together and awaited as one group.
///
/// Requests to one queue pair keep their order; queue pairs are independent of each other.
///
/// The port is the batch's until it is posted or dropped: nothing else may be asked of it meanwhile but buffers.
pub struct Batch<'p, N: Nic> {
    port: &'p Port<N>,
    state: RefMut<'p, State>,
    /// Bytes that the port had counted when it was begun: what it has counted since are the batch's.
    counted: u64,
    /// The requests of one queue pair share a doorbell.
    together: bool,
    /// It was not posted, so what was staged goes with it.
    open: bool,
}

impl<'p, N: Nic> Batch<'p, N> {
    #[inline]
    pub(super) fn new(port: &'p Port<N>, state: RefMut<'p, State>) -> Batch<'p, N> {
        let counted = state.traffic.bytes;
        Batch { port, state, counted, together: true, open: true }
    }

    /// Whether the requests of one queue pair share a doorbell, where the port's configuration lets them. They do
    /// unless told otherwise.
    pub fn doorbell_batching(&mut self, together: bool) {
        self.together = together;
    }

    /// Takes the `lane`th of several queue pairs to a peer, modulo their number, for what is added from now on, rather than
    /// the next in turn: for whoever must reach all of them.
    pub fn on_lane(&mut self, lane: u32) {
        self.state.lane = lane;
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

    /// WRITE of the first `len` bytes of `buf` that takes a receive of the peer's, whose completion says `imm`.
    #[inline]
    pub fn write_imm(&mut self, to: Remote, buf: &Buf, len: u32, imm: u32) {
        let verb = Verb::WriteImm { rkey: to.rkey, offset: to.offset, imm };
        self.push(to.node, verb, buf.sge_part(0, len), buf);
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
        self.send_imm(queue, to, buf, len, None);
    }

    /// The same with immediate data, if any, which the receive's completion says.
    #[inline]
    pub fn send_imm(&mut self, queue: u32, to: AddressHandle, buf: &Buf, len: u32, imm: Option<u32>) {
        self.stage(queue, Verb::Send { to: Some(to), imm }, buf.sge_part(0, len), buf);
    }

    /// SEND of the first `len` bytes of `buf` over a peer's connection, with immediate data, if any.
    #[inline]
    pub fn send_to(&mut self, peer: NodeId, buf: &Buf, len: u32, imm: Option<u32>) {
        self.push(peer, Verb::Send { to: None, imm }, buf.sge_part(0, len), buf);
    }

    // A part of whoever adds a request: there the verb is a constant, which decides half of what follows.
    #[inline(always)]
    fn push(&mut self, peer: NodeId, verb: Verb, local: Sge, buf: &Buf) {
        match self.state.routes.lane(peer, self.state.lane) {
            Some((queue, qp)) => {
                self.port.nic.ahead(qp);
                self.stage(queue, verb, local, buf);
            }
            None => self.state.no_route(peer),
        }
    }

    #[inline(always)]
    pub(super) fn stage(&mut self, queue: u32, verb: Verb, local: Sge, buf: &Buf) {
        let state = &mut *self.state;
        if state.staged.is_empty() {
            state.first_on = queue;
        } else if queue != state.first_on || !state.staged_on.is_empty() {
            state.spread(queue);
        }
        state.staged.push(self.port.request(verb, local, buf.pin()));
        state.traffic.count(&verb, local.len);
    }

    /// Requests in the batch so far.
    pub fn len(&self) -> usize {
        self.state.staged.len()
    }

    /// Whether the batch has no requests yet.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Payload bytes of its requests so far.
    #[inline]
    fn bytes(&self) -> u32 {
        (self.state.traffic.bytes - self.counted) as u32
    }

    /// Posts the batch; await the result to know that all of it is done.
    #[inline]
    pub fn post(mut self) -> Posted<'p, N> {
        let bytes = self.bytes();
        let (port, state) = (self.port, &mut *self.state);
        let verbs = state.staged.len() as u32;
        let group = state.groups.open(verbs, port.sched.current());
        if state.error.is_some() {
            state.note_for(group);
        }
        // A refusal is the group's result, or nobody's.
        let doorbells = port.submit(state, Owner::group(group), self.together);
        self.open = false;
        Posted { port, group, cost: Cost { verbs, doorbells, round_trips: 1, bytes } }
    }

    /// Posts the batch unsignaled: nobody waits for it, and its completion is learned from a later request
    /// on the same queue pair (passive ACK). Returns what it cost.
    ///
    /// # Errors
    /// If a request was refused when posted. An error that happens later moves the queue pair to the error
    /// state, and the next request on it reports.
    #[inline]
    pub fn post_passive(mut self) -> Result<Cost, VerbError> {
        let bytes = self.bytes();
        let (port, state) = (self.port, &mut *self.state);
        if let Some(error) = state.error {
            // What was staged goes as the batch is dropped.
            return Err(error);
        }
        let verbs = state.staged.len() as u32;
        let doorbells = port.submit(state, Owner::NOBODY, self.together);
        let refused = state.refused.take();
        self.open = false;
        match refused {
            Some(refused) => Err(VerbError::Post(refused)),
            None => Ok(Cost { verbs, doorbells, round_trips: 0, bytes }),
        }
    }
}

impl<N: Nic> Drop for Batch<'_, N> {
    #[inline]
    fn drop(&mut self) {
        if self.open && (!self.state.staged.is_empty() || self.state.error.is_some()) {
            self.port.abandon(&mut self.state);
        }
    }
}

impl State {
    /// A request of the batch being built goes where no queue leads.
    #[cold]
    fn no_route(&mut self, peer: NodeId) {
        self.error = Some(VerbError::NoRoute { peer });
    }

    /// The batch being built is on several queues, and its next request on this one.
    #[inline(never)]
    fn spread(&mut self, queue: u32) {
        if self.staged_on.is_empty() {
            self.staged_on.resize(self.staged.len(), self.first_on);
        }
        self.staged_on.push(queue);
    }

    /// The batch being built fails for the reason that was found.
    #[cold]
    fn note_for(&mut self, group: u32) {
        if let Some(error) = self.error.take() {
            self.groups.note(Awaited::Group(group), error);
        }
    }

    /// Keeps why something was refused for whoever posted it, if that is who must be told: a group knows already.
    #[cold]
    fn refuse(&mut self, owner: Owner, refused: PostError) {
        if owner == Owner::NOBODY {
            self.refused = Some(refused);
        }
    }
}

impl<N: Nic> Port<N> {
    /// Lets go of the batch being built.
    #[cold]
    fn abandon(&self, state: &mut State) {
        state.error = None;
        state.staged_on.clear();
        for request in state.staged.drain(..) {
            state.traffic.discount(&request.verb, request.local.len);
            self.pool.unpin(held(&request));
        }
    }

    /// A request as it is before it is posted.
    #[inline(always)]
    pub(super) fn request(&self, verb: Verb, local: Sge, pinned: Pinned) -> WorkRequest {
        let inline = !verb.returns_data() && local.len <= self.inline_max;
        let flags = Flags { signaled: self.config.signal_all, inline };
        WorkRequest { id: pinned.to_bits(), verb, local, flags }
    }

    /// Posts what was staged. Returns doorbells; the first refusal of what nobody waits for is left in [`State::refused`].
    #[inline(never)]
    fn submit(&self, state: &mut State, owner: Owner, together: bool) -> u32 {
        let State { staged, first_on, lines, rings, lined_up, traffic, .. } = state;
        // The usual case: one request, and nothing anywhere before it.
        if *lined_up == 0
            && let [request] = &mut staged[..]
            && let Some(line) = lines.get_mut(*first_on as usize)
            && line.room() > 0
        {
            request.flags.signaled |= owner != Owner::NOBODY;
            let pinned = held(request);
            let posted = self.post_one(line, rings, request, owner);
            staged.clear();
            traffic.doorbells += 1;
            if let Err(refused) = posted {
                self.pool.unpin(pinned);
                state.groups.fail(owner, None, VerbError::Post(refused), &self.sched);
                state.refuse(owner, refused);
            }
            return 1;
        }
        self.submit_several(state, owner, if together { self.per_doorbell } else { 1 })
    }

    #[inline(never)]
    fn submit_several(&self, state: &mut State, owner: Owner, per_doorbell: u32) -> u32 {
        let State { staged, staged_on, first_on, lines, rings, groups, lined_up, traffic, .. } = state;
        let (per_doorbell, mut refused) = (per_doorbell as usize, None);
        let doorbells = if *lined_up == 0
            && staged_on.is_empty()
            && let Some(line) = lines.get_mut(*first_on as usize)
            && line.room() >= staged.len() as u64
        {
            let doorbells = self.post_group(line, rings, groups, staged, owner, per_doorbell, &mut refused);
            staged.clear();
            traffic.doorbells += u64::from(doorbells);
            doorbells
        } else {
            self.post_apart(state, owner, per_doorbell, &mut refused)
        };
        if let Some(refused) = refused {
            state.refuse(owner, refused);
        }
        doorbells
    }

    /// Posts what was staged on several queues, or where something is lined up. Returns doorbells.
    fn post_apart(
        &self,
        state: &mut State,
        owner: Owner,
        per_doorbell: usize,
        refused: &mut Option<PostError>,
    ) -> u32 {
        let mut doorbells = 0;
        let mut staged = std::mem::take(&mut state.staged);
        if !staged.is_empty() && state.staged_on.is_empty() {
            let queue = state.first_on;
            doorbells = self.post_on(state, queue, &mut staged, owner, per_doorbell, refused);
        }
        let mut gathered = std::mem::take(&mut state.gathered);
        for at in 0..state.staged_on.len() {
            let queue = state.staged_on[at];
            if queue == GATHERED {
                continue;
            }
            gathered.clear();
            for (&request, on) in staged.iter().zip(&mut state.staged_on).skip(at) {
                if *on == queue {
                    gathered.push(request);
                    *on = GATHERED;
                }
            }
            doorbells += self.post_on(state, queue, &mut gathered, owner, per_doorbell, refused);
        }
        state.gathered = gathered;
        staged.clear();
        state.staged = staged;
        state.staged_on.clear();
        state.traffic.doorbells += u64::from(doorbells);
        doorbells
    }

    /// Posts a group's requests on one queue that has room for them. Returns doorbells.
    #[inline]
    #[allow(clippy::too_many_arguments)]
    fn post_group(
        &self,
        line: &mut Line,
        rings: &mut Rings,
        groups: &mut Groups,
        chain: &mut [WorkRequest],
        owner: Owner,
        per_doorbell: usize,
        refused: &mut Option<PostError>,
    ) -> u32 {
        if owner != Owner::NOBODY
            && let Some(last) = chain.last_mut()
        {
            last.flags.signaled = true;
        }
        self.post_chain(line, rings, groups, chain, |_| owner, per_doorbell, refused)
    }

    /// Posts a group's requests on one queue, or lines them up if they find no room. Returns doorbells.
    fn post_on(
        &self,
        state: &mut State,
        queue: u32,
        chain: &mut [WorkRequest],
        owner: Owner,
        per_doorbell: usize,
        refused: &mut Option<PostError>,
    ) -> u32 {
        let line = &mut state.lines[queue as usize];
        let behind_others = state.lined_up > 0 && !state.backlogs[queue as usize].is_empty();
        if !behind_others && line.room() >= chain.len() as u64 {
            let (rings, groups) = (&mut state.rings, &mut state.groups);
            return self.post_group(line, rings, groups, chain, owner, per_doorbell, refused);
        }
        if owner != Owner::NOBODY
            && let Some(last) = chain.last_mut()
        {
            last.flags.signaled = true;
        }
        state.lined_up += chain.len();
        state.backlogs[queue as usize].extend(chain.iter().map(|&request| (request, owner)));
        // An empty queue has no completion coming that would make it move.
        self.drain_backlog(state, queue)
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

    /// The group, for another to wait for instead.
    pub(super) fn into_group(mut self) -> u32 {
        std::mem::replace(&mut self.group, NO_GROUP)
    }
}

impl<N: Nic> Future for Posted<'_, N> {
    type Output = Result<Cost, VerbError>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Self::Output> {
        let (port, awaited) = (self.port, Awaited::Group(self.group));
        if self.group == NO_GROUP {
            return Poll::Pending;
        }
        let state = &mut *port.state.borrow_mut();
        if !port.has_ended(state, awaited) {
            return Poll::Pending;
        }
        self.group = NO_GROUP;
        Poll::Ready(state.groups.close(awaited).map(|()| self.cost))
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
