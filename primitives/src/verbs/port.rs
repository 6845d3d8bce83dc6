//! Async verbs, written once over any [`Nic`].
//!
//! A [`Port`] is one worker thread's view of the network: its queue pairs, its buffers, and what is in flight.
//! Requests are built in a [`Batch`] between two awaits, posted with one doorbell per queue pair (or one per
//! request), and awaited as a group. Invariants:
//!
//! - **Send queues retire in order.** Each request's entry stays in its queue's ring until a completion at or
//!   behind it arrives; then its buffer is let go and its group counted down. This is how unsignaled requests
//!   are confirmed by a later signaled one (DrTM+H §3.2, passive ACK for one-sided primitives).
//! - **A queue always drains.** After [`PortConfig::signal_period`] unsignaled requests one is signaled whatever
//!   the caller asked; the period is at most half the queue depth, checked when the port is built.
//! - **Memory outlives the coroutine.** Dropping a pending future detaches its group; buffers return to the
//!   pool when the NIC is done with them.
//! - **Order per queue pair is the order of posting**, also when the queue is full: later requests line up
//!   in the port's backlog.
//!
//! Completions carry the place of the request, never a waker: the port puts the waiting task on the
//! scheduler's ready list.

use super::{
    AddressHandle, Completion, Flags, NodeId, Qp, Remote, Sge, Verb, WcOpcode, WcStatus, WorkRequest,
};
use crate::exec::Sched;
use crate::fabric::{AnyNic, CpuWork, Nic, PostError};
use crate::mem::{Buf, BufPool, Pinned, PoolExhausted};
use crate::units::Nanos;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

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
    /// Payloads up to this many bytes are inlined if the fabric can (DrTM+H §3.1 inlines up to 64 B).
    pub inline_max: u32,
}

impl Default for PortConfig {
    fn default() -> PortConfig {
        PortConfig {
            doorbell_batching: true,
            doorbell_batch_max: 32,
            signal_period: 32,
            signal_all: false,
            inline_max: 64,
        }
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

/// Verbs a port has posted and taken, since it was built.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// READs posted.
    pub reads: u64,
    /// WRITEs posted, with or without immediate data.
    pub writes: u64,
    /// CAS and FETCH_ADD posted.
    pub atomics: u64,
    /// SENDs posted.
    pub sends: u64,
    /// Messages received.
    pub recvs: u64,
    /// Doorbells rung.
    pub doorbells: u64,
    /// Send-queue completions taken.
    pub completions: u64,
    /// Payload bytes of posted WRITEs, SENDs and READs.
    pub bytes: u64,
}

impl Traffic {
    /// Requests posted to send queues.
    pub fn verbs(&self) -> u64 {
        self.reads + self.writes + self.atomics + self.sends
    }

    /// What happened since an earlier reading.
    pub fn since(&self, earlier: &Traffic) -> Traffic {
        Traffic {
            reads: self.reads - earlier.reads,
            writes: self.writes - earlier.writes,
            atomics: self.atomics - earlier.atomics,
            sends: self.sends - earlier.sends,
            recvs: self.recvs - earlier.recvs,
            doorbells: self.doorbells - earlier.doorbells,
            completions: self.completions - earlier.completions,
            bytes: self.bytes - earlier.bytes,
        }
    }

    /// Adds another port's traffic.
    pub fn add(&mut self, other: &Traffic) {
        self.reads += other.reads;
        self.writes += other.writes;
        self.atomics += other.atomics;
        self.sends += other.sends;
        self.recvs += other.recvs;
        self.doorbells += other.doorbells;
        self.completions += other.completions;
        self.bytes += other.bytes;
    }
}

/// What one posted batch cost, for comparison with a declared demand.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// Requests posted.
    pub verbs: u32,
    /// Doorbells rung.
    pub doorbells: u32,
    /// Times somebody waited for the network.
    pub round_trips: u32,
}

impl std::ops::AddAssign for Cost {
    fn add_assign(&mut self, rhs: Cost) {
        self.verbs += rhs.verbs;
        self.doorbells += rhs.doorbells;
        self.round_trips += rhs.round_trips;
    }
}

const NO_GROUP: u32 = u32::MAX;
const SEQ_BITS: u32 = 40;

#[derive(Clone, Copy)]
struct Entry {
    group: u32,
    pinned: Pinned,
}

struct SendQueue {
    qp: Qp,
    peer: NodeId,
    depth: u64,
    ring: Box<[Entry]>,
    posted: u64,
    retired: u64,
    unsignaled: u32,
    backlog: VecDeque<Staged>,
}

impl SendQueue {
    fn room(&self) -> u64 {
        self.depth - (self.posted - self.retired)
    }
}

#[derive(Clone, Copy)]
struct Staged {
    queue: u32,
    group: u32,
    pinned: Pinned,
    request: WorkRequest,
}

struct Group {
    pending: u32,
    task: u32,
    error: Option<VerbError>,
    detached: bool,
}

#[derive(Default)]
struct State {
    queues: Vec<SendQueue>,
    routes: Vec<Vec<u32>>,
    groups: Vec<Group>,
    free_groups: Vec<u32>,
    staged: Vec<Staged>,
    chain: Vec<WorkRequest>,
    recvs: Vec<Option<Buf>>,
    free_recvs: Vec<u32>,
    received: VecDeque<Received>,
    lined_up: usize,
    room_waiters: Vec<u32>,
}

/// One worker thread's async verbs.
pub struct Port<N: Nic> {
    nic: N,
    sched: Rc<Sched>,
    pool: BufPool,
    config: PortConfig,
    inline_max: u32,
    state: RefCell<State>,
    traffic: Cell<Traffic>,
    next_lane: Cell<u32>,
    building: Cell<bool>,
}

impl<N: Nic> Port<N> {
    /// A port over `nic`, resuming tasks through `sched` and taking buffers from `pool`.
    pub fn new(nic: N, sched: Rc<Sched>, pool: BufPool, config: PortConfig) -> Port<N> {
        let inline_max = config.inline_max.min(nic.caps().max_inline);
        Port {
            nic,
            sched,
            pool,
            config,
            inline_max,
            state: RefCell::default(),
            traffic: Cell::default(),
            next_lane: Cell::new(0),
            building: Cell::new(false),
        }
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
        self.traffic.get()
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
        let state = &mut *self.state.borrow_mut();
        if state.routes.len() <= peer.index() {
            state.routes.resize_with(peer.index() + 1, Vec::new);
        }
        state.routes[peer.index()].push(queue);
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
        let queue = state.queues.len() as u32;
        state.queues.push(SendQueue {
            qp,
            peer,
            depth: u64::from(depth),
            ring: vec![Entry { group: NO_GROUP, pinned: Pinned::NONE }; (depth as usize).next_power_of_two()]
                .into_boxed_slice(),
            posted: 0,
            retired: 0,
            unsignaled: 0,
            backlog: VecDeque::with_capacity(depth as usize),
        });
        queue
    }

    /// Starts a batch.
    ///
    /// # Panics
    /// If another batch of this port is being built: a batch is built between two awaits.
    #[inline]
    pub fn batch(&self) -> Batch<'_, N> {
        assert!(!self.building.replace(true), "a batch is already being built on this port");
        let lane = self.next_lane.get();
        self.next_lane.set(lane.wrapping_add(1));
        Batch { port: self, lane, error: None, posted: false, together: true }
    }

    /// READs `len` bytes.
    ///
    /// # Errors
    /// If the request is refused or completes with an error.
    pub async fn read(&self, from: Remote, len: u32) -> Result<Buf, VerbError> {
        let buf = self.buf(len)?;
        let mut batch = self.batch();
        batch.read(from, &buf, 0, len);
        batch.post().await?;
        Ok(buf)
    }

    /// WRITEs the whole of `data` and hands it back.
    ///
    /// # Errors
    /// If the request is refused or completes with an error.
    pub async fn write(&self, to: Remote, data: Buf) -> Result<Buf, VerbError> {
        let mut batch = self.batch();
        batch.write(to, &data, 0, data.len());
        batch.post().await?;
        Ok(data)
    }

    /// Compare-and-swap; returns the value seen.
    ///
    /// # Errors
    /// If the request is refused or completes with an error.
    pub async fn cas(&self, at: Remote, expect: u64, swap: u64) -> Result<u64, VerbError> {
        let buf = self.buf(8)?;
        let mut batch = self.batch();
        batch.cas(at, expect, swap, &buf, 0);
        batch.post().await?;
        Ok(buf.word(0))
    }

    /// Fetch-and-add; returns the value before.
    ///
    /// # Errors
    /// If the request is refused or completes with an error.
    pub async fn fetch_add(&self, at: Remote, add: u64) -> Result<u64, VerbError> {
        let buf = self.buf(8)?;
        let mut batch = self.batch();
        batch.fetch_add(at, add, &buf, 0);
        batch.post().await?;
        Ok(buf.word(0))
    }

    /// Posts a receive buffer. Its bytes come back in a [`Received`].
    ///
    /// # Errors
    /// When the receive queue is full.
    pub fn post_recv(&self, qp: Qp, buf: Buf) -> Result<(), PostError> {
        let state = &mut *self.state.borrow_mut();
        let id = match state.free_recvs.pop() {
            Some(id) => id,
            None => {
                state.recvs.push(None);
                state.free_recvs.reserve(state.recvs.len());
                state.recvs.len() as u32 - 1
            }
        };
        let local = buf.sge_part(0, buf.capacity());
        match self.nic.post_recv(qp, &[super::RecvRequest { id: u64::from(id), local }]) {
            Ok(()) => {
                state.recvs[id as usize] = Some(buf);
                Ok(())
            }
            Err(refused) => {
                state.free_recvs.push(id);
                Err(refused)
            }
        }
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
    pub fn progress(&self) -> usize {
        let state = &mut *self.state.borrow_mut();
        let mut traffic = self.traffic.get();
        let mut retired = false;
        let taken = self.nic.poll(64, |completion| {
            self.nic.charge(CpuWork::Completion);
            if completion.opcode == WcOpcode::SendQueue {
                traffic.completions += 1;
                retired = true;
                retire(state, &self.sched, &self.pool, &completion);
            } else {
                traffic.recvs += 1;
                receive(state, &completion);
            }
        });
        if taken == 0 {
            self.nic.charge(CpuWork::Poll);
            return 0;
        }
        if retired {
            traffic.doorbells += self.drain_backlogs(state);
        }
        self.traffic.set(traffic);
        taken
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
        self.state.borrow().queues.iter().map(|q| q.posted - q.retired + q.backlog.len() as u64).sum()
    }

    /// Core time.
    #[inline]
    pub fn now(&self) -> Nanos {
        self.nic.now()
    }

    /// Takes the queue pairs to `peer` out of the error state. Call when nothing is in flight to it.
    pub fn reset(&self, peer: NodeId) {
        let state = &mut *self.state.borrow_mut();
        for &queue in state.routes.get(peer.index()).into_iter().flatten() {
            let queue = &mut state.queues[queue as usize];
            self.nic.reset_qp(queue.qp);
            queue.retired = queue.posted;
            queue.unsignaled = 0;
        }
    }

    fn drain_backlogs(&self, state: &mut State) -> u64 {
        let mut doorbells = 0;
        if state.lined_up == 0 {
            return 0;
        }
        for index in 0..state.queues.len() {
            while state.queues[index].room() > 0 && !state.queues[index].backlog.is_empty() {
                let queue = &mut state.queues[index];
                let fits = (queue.room() as usize).min(queue.backlog.len());
                let mut staged = std::mem::take(&mut state.staged);
                staged.extend(queue.backlog.drain(..fits));
                state.lined_up -= fits;
                let (error, rung) = self.ring(state, &staged, true);
                doorbells += u64::from(rung);
                if let Some(error) = error {
                    self.refuse(state, &staged, error);
                }
                staged.clear();
                state.staged = staged;
            }
        }
        if state.lined_up == 0 {
            for task in state.room_waiters.drain(..) {
                self.sched.wake(task);
            }
        }
        doorbells
    }

    /// Posts requests of one queue, which has room for them, in as few doorbells as configured.
    fn ring(&self, state: &mut State, staged: &[Staged], together: bool) -> (Option<PostError>, u32) {
        let together = together && self.config.doorbell_batching;
        let per_doorbell = if together { self.config.doorbell_batch_max.max(1) as usize } else { 1 };
        let mut doorbells = 0;
        for part in staged.chunks(per_doorbell) {
            state.chain.clear();
            let index = part[0].queue;
            let queue = &mut state.queues[index as usize];
            let mask = queue.ring.len() as u64 - 1;
            let before = (queue.posted, queue.unsignaled);
            for s in part {
                let mut request = s.request;
                queue.unsignaled += 1;
                if request.flags.signaled || queue.unsignaled >= self.config.signal_period {
                    request.flags.signaled = true;
                    queue.unsignaled = 0;
                }
                request.id = u64::from(index) << SEQ_BITS | queue.posted & ((1 << SEQ_BITS) - 1);
                queue.ring[(queue.posted & mask) as usize] = Entry { group: s.group, pinned: s.pinned };
                queue.posted += 1;
                state.chain.push(request);
                self.nic.charge(CpuWork::Request);
                if request.flags.inline {
                    self.nic.charge(CpuWork::Inline(request.local.len));
                }
            }
            self.nic.charge(CpuWork::Doorbell);
            doorbells += 1;
            if let Err(refused) = self.nic.post(queue.qp, &state.chain) {
                // Nothing of this part is in flight as far as the port is concerned; a fabric that took a
                // prefix of it is in the error state and will say so.
                (queue.posted, queue.unsignaled) = before;
                return (Some(refused), doorbells);
            }
        }
        (None, doorbells)
    }

    fn refuse(&self, state: &mut State, staged: &[Staged], error: PostError) {
        for s in staged {
            self.pool.unpin(s.pinned);
            finish(state, &self.sched, s.group, Some(VerbError::Post(error)));
        }
    }
}

fn retire(state: &mut State, sched: &Sched, pool: &BufPool, completion: &Completion) {
    let index = (completion.id >> SEQ_BITS) as usize;
    let Some(queue) = state.queues.get_mut(index) else { return };
    // The low bits of a sequence number are enough: fewer than 2^40 requests are in flight.
    let behind = completion.id.wrapping_sub(queue.retired) & ((1 << SEQ_BITS) - 1);
    let end = (queue.retired + behind + 1).min(queue.posted);
    let mask = queue.ring.len() as u64 - 1;
    let peer = queue.peer;
    let (mut at, last) = (queue.retired, end);
    queue.retired = end;
    while at < last {
        let Entry { group, pinned } = state.queues[index].ring[(at & mask) as usize];
        at += 1;
        pool.unpin(pinned);
        let failed = at == last && completion.status != WcStatus::Success;
        let error = failed.then_some(VerbError::Completion { peer, status: completion.status });
        finish(state, sched, group, error);
    }
}

#[inline]
fn finish(state: &mut State, sched: &Sched, group: u32, error: Option<VerbError>) {
    if group == NO_GROUP {
        return;
    }
    let g = &mut state.groups[group as usize];
    g.error = g.error.or(error);
    g.pending -= 1;
    if g.pending > 0 {
        return;
    }
    if g.detached {
        state.free_groups.push(group);
    } else {
        sched.wake(g.task);
    }
}

fn receive(state: &mut State, completion: &Completion) {
    let id = completion.id as usize;
    let Some(buf) = state.recvs.get_mut(id).and_then(Option::take) else { return };
    state.free_recvs.push(id as u32);
    state.received.push_back(Received {
        buf,
        byte_len: completion.byte_len,
        imm: completion.imm,
        from: completion.from,
        qp: completion.qp,
        status: completion.status,
    });
}

/// Requests that are posted together and awaited as one group.
///
/// Requests to one queue pair keep their order; queue pairs are independent of each other.
pub struct Batch<'p, N: Nic> {
    port: &'p Port<N>,
    lane: u32,
    error: Option<VerbError>,
    posted: bool,
    together: bool,
}

impl<'p, N: Nic> Batch<'p, N> {
    /// Whether the requests of one queue pair share a doorbell, where the port's configuration lets them. They do
    /// unless told otherwise.
    pub fn doorbell_batching(&mut self, together: bool) {
        self.together = together;
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
        self.stage(queue, Verb::Send { to: Some(to), imm: None }, buf.sge_part(0, len), buf);
    }

    #[inline]
    fn push(&mut self, peer: NodeId, verb: Verb, local: Sge, buf: &Buf) {
        let queue = {
            let state = self.port.state.borrow();
            match state.routes.get(peer.index()) {
                Some(lanes) if !lanes.is_empty() => lanes[self.lane as usize % lanes.len()],
                _ => {
                    self.error = Some(VerbError::NoRoute { peer });
                    return;
                }
            }
        };
        self.stage(queue, verb, local, buf);
    }

    #[inline]
    fn stage(&mut self, queue: u32, verb: Verb, local: Sge, buf: &Buf) {
        let inline = !verb.returns_data() && local.len <= self.port.inline_max;
        self.port.state.borrow_mut().staged.push(Staged {
            queue,
            group: NO_GROUP,
            pinned: buf.pin(),
            request: WorkRequest {
                id: 0,
                verb,
                local,
                flags: Flags { signaled: self.port.config.signal_all, inline },
            },
        });
    }

    /// Requests in the batch so far.
    pub fn len(&self) -> usize {
        self.port.state.borrow().staged.len()
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
        let pending = state.staged.len() as u32;
        let group = match state.free_groups.pop() {
            Some(group) => group,
            None => {
                state.groups.push(Group { pending: 0, task: 0, error: None, detached: false });
                state.free_groups.reserve(state.groups.len());
                state.groups.len() as u32 - 1
            }
        };
        state.groups[group as usize] =
            Group { pending, task: port.sched.current(), error: self.error.take(), detached: false };
        let doorbells = self.submit(state, group);
        Posted { port, group: Some(group), cost: Cost { verbs: pending, doorbells, round_trips: 1 } }
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
        let verbs = state.staged.len() as u32;
        let doorbells = self.submit(state, NO_GROUP);
        match self.error.take() {
            Some(error) => Err(error),
            None => Ok(Cost { verbs, doorbells, round_trips: 0 }),
        }
    }

    fn submit(&mut self, state: &mut State, group: u32) -> u32 {
        self.posted = true;
        self.port.building.set(false);
        let mut staged = std::mem::take(&mut state.staged);
        let mut traffic = self.port.traffic.get();
        for s in &mut staged {
            s.group = group;
            match s.request.verb {
                Verb::Read { .. } => traffic.reads += 1,
                Verb::Write { .. } | Verb::WriteImm { .. } => traffic.writes += 1,
                Verb::Send { .. } => traffic.sends += 1,
                Verb::CompareSwap { .. } | Verb::FetchAdd { .. } => traffic.atomics += 1,
            }
            traffic.bytes += u64::from(s.request.local.len);
        }
        gather_by_queue(&mut staged);
        let mut doorbells = 0;
        let mut start = 0;
        while start < staged.len() {
            let queue = staged[start].queue;
            let len = staged[start..].iter().take_while(|s| s.queue == queue).count();
            let part = &mut staged[start..start + len];
            start += len;
            if group != NO_GROUP {
                part[len - 1].request.flags.signaled = true;
            }
            let q = &mut state.queues[queue as usize];
            if !q.backlog.is_empty() || q.room() < len as u64 {
                q.backlog.extend(part.iter().copied());
                state.lined_up += len;
                continue;
            }
            let (error, rung) = self.port.ring(state, part, self.together);
            doorbells += rung;
            if let Some(error) = error {
                self.port.refuse(state, part, error);
                self.error = Some(error.into());
            }
        }
        staged.clear();
        state.staged = staged;
        traffic.doorbells += u64::from(doorbells);
        self.port.traffic.set(traffic);
        doorbells
    }
}

/// Brings requests of one queue together, keeping their order. Batches are short, so insertion is fine.
fn gather_by_queue(staged: &mut [Staged]) {
    for i in 1..staged.len() {
        let mut j = i;
        while j > 0 && staged[j - 1].queue > staged[j].queue {
            staged.swap(j - 1, j);
            j -= 1;
        }
    }
}

impl<N: Nic> Drop for Batch<'_, N> {
    fn drop(&mut self) {
        if !self.posted {
            self.port.building.set(false);
            // A batch that fails early (`post_passive` with no route) may hold the state borrowed; then the
            // borrow's holder is this very call, which has returned its guard before dropping `self`.
            let mut state = self.port.state.borrow_mut();
            while let Some(s) = state.staged.pop() {
                self.port.pool.unpin(s.pinned);
            }
        }
    }
}

/// A posted batch; resolves when every request of it has completed, to the first error if there was one.
#[must_use = "a posted batch is awaited, or posted passively instead"]
pub struct Posted<'p, N: Nic> {
    port: &'p Port<N>,
    group: Option<u32>,
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
        let Some(group) = self.group else { return Poll::Pending };
        let state = &mut *self.port.state.borrow_mut();
        let g = &mut state.groups[group as usize];
        if g.pending > 0 {
            g.task = self.port.sched.current();
            return Poll::Pending;
        }
        let result = match g.error {
            Some(error) => Err(error),
            None => Ok(self.cost),
        };
        state.free_groups.push(group);
        self.group = None;
        Poll::Ready(result)
    }
}

impl<N: Nic> Drop for Posted<'_, N> {
    fn drop(&mut self) {
        if let Some(group) = self.group {
            let state = &mut *self.port.state.borrow_mut();
            if state.groups[group as usize].pending == 0 {
                state.free_groups.push(group);
            } else {
                state.groups[group as usize].detached = true;
            }
        }
    }
}
