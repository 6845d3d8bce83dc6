//! Async verbs, written once over any [`Nic`].
//!
//! A [`Port`] is one worker thread's view of the network: its queue pairs, its buffers, and what is in flight.
//! Requests are built in a [`Batch`] between two awaits, posted with one doorbell per queue pair (or one per
//! request), and awaited as a group. A verb by itself ([`Port::read`] and the like) is awaited as what it is. Invariants:
//!
//! - **Send queues retire in order.** Each request's entry stays in its queue's ring until a completion at or
//!   behind it arrives; then its buffer is let go and its group counted down, or the task woken that waits for it alone.
//!   This is how unsignaled requests are confirmed by a later signaled one (DrTM+H §3.2, passive ACK for one-sided
//!   primitives).
//! - **A queue always drains.** After [`PortConfig::signal_period`] unsignaled requests one is signaled whatever
//!   the caller asked; the period is at most half the queue depth, checked when the port is built.
//! - **Memory outlives the coroutine.** Dropping a pending future detaches its group, or leaves its buffer to the request;
//!   buffers return to the pool when the NIC is done with them.
//! - **Order per queue pair is the order of posting**, also when the queue is full: later requests line up
//!   in the port's backlog.
//!
//! Completions carry the place of the request, never a waker: the port puts the waiting task on the
//! scheduler's ready list.

mod alone;
mod batch;
mod group;
mod post;
mod queue;
mod traffic;

pub use alone::{Alone, Ask, Cas, FetchAdd, InBuf, Read, Write};
pub use batch::{Batch, Posted};
pub use traffic::{Cost, Traffic};

use super::{Completion, NodeId, Qp, Remote, WcOpcode, WcStatus, WorkRequest};
use crate::exec::{Look, Sched};
use crate::fabric::{AnyNic, CpuWork, Nic, PostError};
use crate::mem::{Buf, BufPool, PoolExhausted, ahead};
use crate::units::Nanos;
use group::{Awaited, Groups, LOOKING, Owner};
use queue::{Backlog, Line, Rings, held};
use std::cell::{RefCell, RefMut};
use std::collections::VecDeque;
use std::rc::Rc;
use std::task::Poll;

/// The port that everything above the fabric uses; what lies above compiles once.
pub type EnginePort = Port<AnyNic>;

/// How a port posts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortConfig {
    /// One doorbell per queue pair and batch, rather than one per request (DrTM+H §3.2).
    pub doorbell_batching: bool,
    /// Most requests per doorbell.
    pub doorbell_batch_max: u32,
    /// Unsignaled requests after which one is signaled regardless.
    pub signal_period: u32,
    /// Signal every request, as a baseline without selective signaling does.
    pub signal_all: bool,
}

impl Default for PortConfig {
    fn default() -> PortConfig {
        PortConfig { doorbell_batching: true, doorbell_batch_max: 32, signal_period: 32, signal_all: false }
    }
}

/// Why a verb did not happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum VerbError {
    /// The request completed with an error.
    #[error("request to {peer} failed: {status}")]
    Completion {
        /// The node at the other end.
        peer: NodeId,
        /// The completion's status.
        status: WcStatus,
    },
    /// The request did not run, because one before it on the same queue pair had failed.
    #[error("request to {peer} flushed behind one that failed: {cause}")]
    Flushed {
        /// The node at the other end.
        peer: NodeId,
        /// How the first one failed.
        cause: WcStatus,
    },
    /// The request was refused when posted.
    #[error("request refused: {0}")]
    Post(#[from] PostError),
    /// No buffer was left.
    #[error(transparent)]
    Pool(#[from] PoolExhausted),
    /// No queue pair leads there.
    #[error("no queue pair is connected to {peer}")]
    NoRoute {
        /// The node asked for.
        peer: NodeId,
    },
}

/// A message that arrived at a receive queue.
#[derive(Debug)]
pub struct Received {
    /// The receive buffer, now the reader's.
    pub buf: Buf,
    /// Bytes that arrived, on UD with the routing header in front.
    pub byte_len: u32,
    /// Immediate data.
    pub imm: Option<u32>,
    /// UD: the sender.
    pub from: Option<(NodeId, Qp)>,
    /// The queue pair that received it.
    pub qp: Qp,
    /// Outcome; the bytes are valid only on success.
    pub status: WcStatus,
}

/// In place of a peer's queue: it has none, or several.
const LANES: u32 = u32::MAX;

/// Which queues lead to which peer.
#[derive(Default)]
struct Routes {
    /// By peer: its queue if there is just one, or [`LANES`], and the queue pair. Apart from the rest, so that they are few
    /// bytes.
    only: Vec<(u32, Qp)>,
    /// By peer: its queues, one for each lane.
    lanes: Vec<Vec<u32>>,
}

impl Routes {
    fn add(&mut self, peer: NodeId, queue: u32, qp: Qp) {
        if self.lanes.len() <= peer.index() {
            self.lanes.resize_with(peer.index() + 1, Vec::new);
            self.only.resize(peer.index() + 1, (LANES, qp));
        }
        let lanes = &mut self.lanes[peer.index()];
        lanes.push(queue);
        self.only[peer.index()] = (if lanes.len() == 1 { queue } else { LANES }, qp);
    }

    fn to(&self, peer: NodeId) -> &[u32] {
        self.lanes.get(peer.index()).map_or(&[], Vec::as_slice)
    }

    /// The queue to a peer, and a queue pair that leads there.
    #[inline]
    fn lane(&self, peer: NodeId, lane: u32) -> Option<(u32, Qp)> {
        let &(queue, qp) = self.only.get(peer.index())?;
        if queue != LANES {
            return Some((queue, qp));
        }
        let lanes = self.to(peer);
        (!lanes.is_empty()).then(|| (lanes[lane as usize % lanes.len()], qp))
    }
}

/// What requests need every time comes first.
#[derive(Default)]
#[repr(C)]
struct State {
    lines: Vec<Line>,
    groups: Groups,
    routes: Routes,
    /// Requests of the batch being built, and the queue of the first of them.
    staged: Vec<WorkRequest>,
    first_on: u32,
    /// The queue of each, once they are on several.
    staged_on: Vec<u32>,
    /// Requests in backlogs.
    lined_up: usize,
    /// Which of several queues to a peer the batch takes; the next one takes the next.
    lane: u32,
    traffic: Traffic,
    /// Why the batch being built cannot be posted whole.
    error: Option<VerbError>,
    /// Why something was refused that nobody waits for, until its batch has been posted.
    refused: Option<PostError>,
    /// By queue.
    rings: Rings,
    backlogs: Vec<Backlog>,
    /// Room for the requests of one queue.
    gathered: Vec<WorkRequest>,
    /// Room for what moves from a backlog to the NIC.
    moving: (Vec<WorkRequest>, Vec<Owner>),
    received: VecDeque<Received>,
    room_waiters: Vec<u32>,
}

impl State {
    /// Retires everything up to a completed request. A function of its own, that calls no other in the usual case: what is
    /// inlined at each place where a fabric hands a completion over would be called there, and save more registers.
    #[inline(never)]
    fn retire(&mut self, id: u64, status: WcStatus, sched: &Sched, pool: &BufPool) {
        self.traffic.completions += 1;
        let Some(line) = self.lines.get_mut(Line::index_of(id)) else { return };
        if status != WcStatus::Success || !line.is_oldest(id) {
            return line.retire(id, status, &self.rings, &mut self.groups, sched, pool);
        }
        line.end_oldest(None, &self.rings, &mut self.groups, sched, pool);
    }

    /// Whether what is awaited has ended. If not, `task` is who will be woken.
    #[inline]
    fn ended(&mut self, awaited: Awaited, task: u32) -> bool {
        match awaited {
            Awaited::Request { queue, seq } => {
                self.lines[queue as usize].ended(&mut self.rings, seq, Owner::task(task))
            }
            Awaited::Group(group) => self.groups.ended(group, task),
        }
    }
}

/// One worker thread's async verbs.
pub struct Port<N: Nic> {
    nic: N,
    sched: Rc<Sched>,
    pool: BufPool,
    config: PortConfig,
    inline_max: u32,
    per_doorbell: u32,
    /// Requests end as they are posted, see [`Nic::ends_in_post`].
    ends_in_post: bool,
    state: RefCell<State>,
}

impl<N: Nic> Port<N> {
    /// A port over `nic`, resuming tasks through `sched` and taking buffers from `pool`.
    pub fn new(nic: N, sched: Rc<Sched>, pool: BufPool, config: PortConfig) -> Port<N> {
        // How much is worth it, the fabric says: a profile's number, or what the device was asked for.
        let inline_max = nic.caps().max_inline;
        let per_doorbell = if config.doorbell_batching { config.doorbell_batch_max.max(1) } else { 1 };
        // The first batch takes the first lane.
        let state = RefCell::new(State { lane: u32::MAX, ..State::default() });
        let ends_in_post = nic.ends_in_post();
        Port { nic, sched, pool, config, inline_max, per_doorbell, ends_in_post, state }
    }

    /// The NIC below.
    pub fn nic(&self) -> &N {
        &self.nic
    }

    /// The scheduler whose tasks wait here.
    pub fn sched(&self) -> &Rc<Sched> {
        &self.sched
    }

    /// The port's buffers.
    pub fn pool(&self) -> &BufPool {
        &self.pool
    }

    /// How the port posts.
    pub fn config(&self) -> &PortConfig {
        &self.config
    }

    /// What the port has posted and taken so far.
    pub fn traffic(&self) -> Traffic {
        self.state.borrow().traffic
    }

    /// A buffer of `len` bytes.
    ///
    /// # Errors
    /// When the pool is used up.
    pub fn buf(&self, len: u32) -> Result<Buf, PoolExhausted> {
        self.pool.take(len)
    }

    /// Puts a connected queue pair to `peer` in use; several to one peer are used in turn.
    ///
    /// # Panics
    /// If the signal period is zero or more than half of `depth`: such a queue could fill with requests
    /// that never complete.
    pub fn add_route(&self, peer: NodeId, qp: Qp, depth: u32) {
        let queue = self.add_queue(peer, qp, depth);
        self.state.borrow_mut().routes.add(peer, queue, qp);
    }

    /// Puts a datagram queue pair in use and returns the number that [`Batch::send`] takes.
    ///
    /// # Panics
    /// As [`Port::add_route`].
    pub fn add_datagram_queue(&self, qp: Qp, depth: u32) -> u32 {
        self.add_queue(self.nic.node(), qp, depth)
    }

    fn add_queue(&self, peer: NodeId, qp: Qp, depth: u32) -> u32 {
        let period = self.config.signal_period;
        assert!(
            period > 0 && period <= depth / 2,
            "signal period {period} must be 1..={} for a send queue of depth {depth}",
            depth / 2
        );
        let state = &mut *self.state.borrow_mut();
        let queue = state.lines.len() as u32;
        state.lines.push(Line::new(queue, peer, qp, depth));
        // Nothing is allocated on a real data path. A simulated cluster has thousands of queues on one core, few of which
        // ever fill: memory set apart for each would only spread what is used over more pages.
        let room = if self.nic.caps().virtual_time { 0 } else { depth };
        state.rings.add(room);
        state.backlogs.push(Backlog::with_capacity(room as usize));
        queue
    }

    /// Starts a batch.
    ///
    /// # Panics
    /// If another batch of this port is being built: a batch is built between two awaits.
    #[inline]
    pub fn batch(&self) -> Batch<'_, N> {
        Batch::new(self, self.build())
    }

    /// Has the next batch, or the next request alone, take the `lane`th of several queue pairs to a peer, modulo their number, rather than the
    /// next in turn.
    #[inline]
    pub fn on_lane(&self, lane: u32) {
        if let Ok(mut state) = self.state.try_borrow_mut() {
            state.lane = lane.wrapping_sub(1);
        }
    }

    /// The state, for what takes the next lane.
    #[inline(always)]
    fn build(&self) -> RefMut<'_, State> {
        let Ok(mut state) = self.state.try_borrow_mut() else { two_batches() };
        state.lane = state.lane.wrapping_add(1);
        state
    }

    /// READs `len` bytes.
    ///
    /// # Errors
    /// If the request is refused or completes with an error.
    #[inline]
    pub fn read(&self, from: Remote, len: u32) -> Alone<'_, N, Read> {
        Alone::new(self, from, Read(len), None)
    }

    /// WRITEs the whole of `data` and hands it back.
    ///
    /// # Errors
    /// If the request is refused or completes with an error.
    #[inline]
    pub fn write(&self, to: Remote, data: Buf) -> Alone<'_, N, Write> {
        Alone::new(self, to, Write, Some(data))
    }

    /// Compare-and-swap; returns the value seen.
    ///
    /// # Errors
    /// If the request is refused or completes with an error.
    #[inline]
    pub fn cas(&self, at: Remote, expect: u64, swap: u64) -> Alone<'_, N, Cas> {
        Alone::new(self, at, Cas { expect, swap }, None)
    }

    /// Fetch-and-add; returns the value before.
    ///
    /// # Errors
    /// If the request is refused or completes with an error.
    #[inline]
    pub fn fetch_add(&self, at: Remote, add: u64) -> Alone<'_, N, FetchAdd> {
        Alone::new(self, at, FetchAdd(add), None)
    }

    /// Any of these in a buffer that stays the caller's: for whoever asks again and again. READs and WRITEs are as long as `buf`, ATOMICs want
    /// eight bytes, in which they leave what they saw. The buffer outlives a future that is dropped, not one that is forgotten (`std::mem::forget`); requests
    /// that share it while they are under way write over each other.
    ///
    /// # Errors
    /// If the request is refused or completes with an error.
    #[inline]
    pub fn ask_in<'p, A: Ask>(&'p self, at: Remote, ask: A, buf: &'p Buf) -> InBuf<'p, N, A> {
        InBuf::new(self, at, ask, buf)
    }

    /// Posts a receive buffer. Its bytes come back in a [`Received`].
    ///
    /// # Errors
    /// When the receive queue is full.
    pub fn post_recv(&self, qp: Qp, buf: Buf) -> Result<(), PostError> {
        let local = buf.sge_part(0, buf.capacity());
        let id = buf.lend();
        self.nic.post_recv(qp, &[super::RecvRequest { id, local }]).inspect_err(|_| {
            drop(self.pool.give_back(id));
        })
    }

    /// The next message that arrived, if any.
    #[inline]
    pub fn next_received(&self) -> Option<Received> {
        self.state.borrow_mut().received.pop_front()
    }

    /// Messages that arrived and were not yet taken.
    #[inline]
    pub fn received(&self) -> usize {
        self.state.borrow().received.len()
    }

    /// Takes completions from the NIC, wakes the tasks whose groups are done, and posts what waited for
    /// room. Returns the number of completions.
    #[inline]
    pub fn progress(&self) -> usize {
        self.take_completions(&mut self.state.borrow_mut())
    }

    #[inline]
    fn take_completions(&self, state: &mut State) -> usize {
        let taken = self.nic.poll(64, |completion| {
            self.nic.charge(CpuWork::Completion);
            if completion.opcode == WcOpcode::SendQueue {
                state.retire(completion.id, completion.status, &self.sched, &self.pool);
            } else {
                receive(state, &self.pool, &completion);
            }
        });
        if taken == 0 {
            self.nic.charge(CpuWork::Poll);
        } else if state.lined_up > 0 {
            self.drain_backlogs(state);
        }
        taken
    }

    /// Whether what the running task awaits has ended. If not, the task will be woken.
    ///
    /// Where requests end as they are posted and no other task wants the core, completions are looked for here: to go
    /// through the core's loop and come back would take longer than the request.
    #[inline]
    fn has_ended(&self, state: &mut State, awaited: Awaited) -> bool {
        if self.ends_in_post && self.look(state, awaited) {
            return true;
        }
        state.ended(awaited, self.sched.current())
    }

    #[inline(never)]
    fn look(&self, state: &mut State, awaited: Awaited) -> bool {
        if state.ended(awaited, LOOKING) {
            return true;
        }
        if !self.sched.goes_on() {
            return false;
        }
        self.take_completions(state);
        state.ended(awaited, LOOKING)
    }

    /// Asks for what taking the next completion will look at, see [`CoreLoop::look_ahead`](crate::exec::CoreLoop), and
    /// says which task it may wake.
    #[inline]
    pub fn look_ahead(&self, look: usize) -> Look {
        if look == 0 {
            ahead(self);
            return Look::More;
        }
        let state = self.state.borrow();
        if look == 1 {
            self.pool.ahead();
            state.routes.only.first().map(ahead);
        }
        let expected = self.nic.expected().filter(|completion| completion.opcode == WcOpcode::SendQueue);
        let line = expected.and_then(|completion| state.lines.get(Line::index_of(completion.id)));
        if look == 1 {
            line.map(ahead);
            return Look::More;
        }
        Look::Done(line.and_then(|line| {
            let entry = line.oldest(&state.rings);
            self.pool.ahead_of(entry.pinned);
            state.groups.waiter(entry.owner)
        }))
    }

    /// Says that `len` bytes of another node's memory will be asked for before long; see [`Nic::ahead_of`].
    pub fn ahead_of(&self, at: Remote, len: u64) {
        if let Some(&(_, qp)) = self.state.borrow().routes.only.get(at.node.index()) {
            self.nic.ahead_of(qp, at, len);
        }
    }

    /// The number of the buffer that the next completion brings, if it is a receive's.
    #[inline]
    pub(crate) fn expected_receive(&self) -> Option<u64> {
        let next = self.nic.expected().filter(|completion| completion.opcode != WcOpcode::SendQueue)?;
        Some(next.id)
    }

    /// Waits while requests are lined up behind a full send queue. Whoever posts passively in a loop awaits this
    /// in between, so that what is lined up stays bounded.
    pub async fn room(&self) {
        std::future::poll_fn(|_| {
            let state = &mut *self.state.borrow_mut();
            if state.lined_up == 0 {
                return Poll::Ready(());
            }
            let task = self.sched.current();
            if !state.room_waiters.contains(&task) {
                state.room_waiters.push(task);
            }
            Poll::Pending
        })
        .await
    }

    /// Requests posted or lined up whose end is not yet known.
    pub fn in_flight(&self) -> u64 {
        let state = self.state.borrow();
        state.lines.iter().map(Line::in_flight).sum::<u64>() + state.lined_up as u64
    }

    /// Core time.
    #[inline]
    pub fn now(&self) -> Nanos {
        self.nic.now()
    }

    /// Takes the queue pairs to `peer` out of the error state. What is in flight to it or lined up ends as
    /// flushed.
    pub fn reset(&self, peer: NodeId) {
        let state = &mut *self.state.borrow_mut();
        for at in 0..state.routes.to(peer).len() {
            let queue = state.routes.to(peer)[at];
            self.reset_queue(state, queue);
        }
        self.wake_for_room(state);
    }

    /// Takes a datagram queue pair out of the error state, as [`Port::reset`]. Its receives are gone: post them
    /// anew, when all that were posted have come back as flushed.
    pub fn reset_datagram_queue(&self, queue: u32) {
        let state = &mut *self.state.borrow_mut();
        self.reset_queue(state, queue);
        self.wake_for_room(state);
    }

    fn reset_queue(&self, state: &mut State, queue: u32) {
        let (line, groups) = (&mut state.lines[queue as usize], &mut state.groups);
        let backlog = &mut state.backlogs[queue as usize];
        // First the NIC, which then touches no buffer of these requests any more.
        self.nic.reset_qp(line.qp);
        let error = line.flush(&state.rings, groups, &self.sched, &self.pool);
        state.lined_up -= backlog.len();
        for (request, owner) in backlog.drain(..) {
            self.pool.unpin(held(&request));
            groups.fail(owner, None, error, &self.sched);
        }
    }
}

#[cold]
#[inline(never)]
fn two_batches() -> ! {
    panic!("a batch is already being built on this port")
}

#[inline(never)]
fn receive(state: &mut State, pool: &BufPool, completion: &Completion) {
    state.traffic.recvs += 1;
    let Some(buf) = pool.give_back(completion.id) else { return };
    state.received.push_back(Received {
        buf,
        byte_len: completion.byte_len,
        imm: completion.imm,
        from: completion.from,
        qp: completion.qp,
        status: completion.status,
    });
}
