//! Requests and replies over UD SEND/RECV, after FaSST and DrTM+H §3.1–3.2.
//!
//! Each worker thread has one datagram queue pair and one *session* with the worker of the same number on every
//! other node. Datagrams may be lost, so sessions make calls exactly-once:
//!
//! - A request carries a sequence number of its session and is kept until it is answered; one that stays
//!   unanswered for [`RpcConfig::retransmit_after`], or for twice the usual round trip if that is longer, is sent
//!   again. The server remembers the last
//!   [`RpcConfig::window`] requests of each session and their replies: a duplicate is not executed again, its
//!   reply is sent again.
//! - **Credits.** A session has at most `window` unanswered requests, and the server posts that many receives
//!   for it, so receives do not run out. Callers past the window wait for credits, in order.
//! - **One doorbell.** The requests of a batch are one chain on the datagram queue pair, whatever their
//!   destinations; so are the replies of all requests served in one turn.
//! - **Passive ACK.** A one-way request has no reply. Every message to a peer carries the highest sequence
//!   number below which all its requests were executed; that frees the caller's copy and its credit. Only when
//!   half a window is owed and nothing else goes that way is a bare acknowledgement sent.
//!
//! Handlers are plain functions ([`Service`]): they never wait. One that has no answer yet puts it off
//! ([`Incoming::defer`]) and gives it later ([`Rpc::give`]). Received buffers are handed to the caller without
//! a copy; a fresh one is posted in their place.
//!
//! Bytes from peers are not trusted: a message that is too short, of another version, from an unknown sender or
//! with an unknown call is counted ([`RpcStats::malformed`]) and dropped.

mod ahead;
mod client;
mod message;
mod server;
#[cfg(test)]
mod tests;

pub use client::{CallBatch, MAX_CALLS, Pending, Replies};
pub use message::{Kind, Malformed, Reader, Writer};
pub use server::{Incoming, Later, Reply, Service};

use crate::exec::{Look, Poller};
use crate::fabric::{CpuWork, Nic, SetupError};
use crate::mem::{Buf, Pinned, PoolExhausted};
use crate::units::Nanos;
use crate::verbs::port::Port;
use crate::verbs::work::GRH_BYTES;
use crate::verbs::{AddressHandle, NodeId, Qp, QpAddress, QpConfig, QpState, WcStatus};
use message::{HEADER_WORDS, Header};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::num::NonZeroU32;
use std::rc::Rc;

/// Bytes of a message in front of its payload.
pub const HEADER_BYTES: u32 = HEADER_WORDS as u32 * 8;

/// How an RPC endpoint behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RpcConfig {
    /// Unanswered requests per session, a power of two of at most 64.
    pub window: u32,
    /// Largest message in bytes, header included; at most the fabric's datagram size.
    pub max_message: u32,
    /// Age at which an unanswered request is first sent again, at least: twice the peer's usual round trip if that is longer.
    /// Further waits double, up to eight times the first.
    pub retransmit_after: Nanos,
    /// Times a request is sent again before the call fails.
    pub max_retransmits: u32,
    /// Put all messages of a batch under one doorbell.
    pub doorbell_batching: bool,
}

impl RpcConfig {
    /// The usual [`RpcConfig::max_message`]: behind the routing header it fills a receive of 1 KiB; the pool's buffers are powers of two.
    pub const USUAL_MESSAGE: u32 = 1024 - GRH_BYTES;

    /// With messages of so many bytes at least.
    #[must_use]
    pub fn taking(self, message: u32) -> RpcConfig {
        RpcConfig { max_message: self.max_message.max(message), ..self }
    }
}

impl Default for RpcConfig {
    fn default() -> RpcConfig {
        RpcConfig {
            window: 32,
            max_message: RpcConfig::USUAL_MESSAGE,
            // Far above a busy machine's scheduling delays, far below a person's patience.
            retransmit_after: Nanos::from_millis(20),
            max_retransmits: 100,
            doorbell_batching: true,
        }
    }
}

/// Why a call failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RpcError {
    /// No answer after all retransmissions.
    #[error("{peer} did not answer handler {handler} after {attempts} attempts")]
    Unanswered {
        /// The node called.
        peer: NodeId,
        /// The handler called.
        handler: u8,
        /// Times the request was sent.
        attempts: u32,
    },
    /// No answer after all retransmissions, and no way to anybody.
    #[error(
        "no answer from {peer}: port {port} of the device here is DOWN, or not active yet, or the device is gone"
    )]
    PortDown {
        /// The node called.
        peer: NodeId,
        /// The port's number.
        port: u8,
    },
    /// The message does not fit.
    #[error("a message of {len} B is longer than this endpoint's {max} B")]
    TooLong {
        /// Bytes asked for.
        len: u32,
        /// Bytes there may be.
        max: u32,
    },
    /// More calls under way than have numbers.
    #[error("{max} calls are under way, and no more can be told apart")]
    TooMany {
        /// Calls there may be.
        max: u32,
    },
    /// More requests than the session's window has room for; [`Rpc::room`] waits for it.
    #[error("the window of {window} requests to {peer} is full")]
    WindowFull {
        /// The node called.
        peer: NodeId,
        /// Requests the window holds.
        window: u32,
    },
    /// The peer is gone: its process ended, or nothing reaches it.
    #[error("{peer} is gone")]
    Gone {
        /// The node called.
        peer: NodeId,
    },
    /// No session with that node.
    #[error("no RPC session with {peer}")]
    NoSession {
        /// The node asked for.
        peer: NodeId,
    },
    /// No buffer was left.
    #[error(transparent)]
    Pool(#[from] PoolExhausted),
    /// A reply that could not be decoded.
    #[error(transparent)]
    Malformed(#[from] Malformed),
}

/// What an endpoint has counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct RpcStats {
    /// Requests executed by handlers here.
    pub served: u64,
    /// Calls made, one-way included.
    pub calls: u64,
    /// Requests sent again.
    pub retransmits: u64,
    /// Duplicates that were answered from memory.
    pub duplicates: u64,
    /// Bare acknowledgements sent.
    pub acks: u64,
    /// Messages dropped as malformed or unknown.
    pub malformed: u64,
}

/// A request not yet answered, at the caller. Sessions keep many of these, and of [`Served`], which a simulated cluster has in
/// no near cache: half a cache line.
struct Sent {
    at: Nanos,
    seq: u32,
    call: u32,
    held: Pinned,
    len: u32,
    attempts: NonZeroU32,
    handler: u8,
}

const _: () = assert!(size_of::<Option<Sent>>() == 32);

/// An executed request, at the server.
struct Served {
    seq: u32,
    /// Bytes of the reply.
    len: u32,
    /// The reply; [`Pinned::NONE`] if there is none (yet).
    held: Pinned,
}

/// A peer's usual round trip in nanoseconds while it exceeds half of [`RpcConfig::retransmit_after`]; otherwise 0, and no clock is read. A mean
/// in which one answer in eight is new, as TCP has it (RFC 6298, section 2).
///
/// The answer to a request that was sent more than once may be to any of them. TCP leaves it out (Karn's rule), but where the wait is shorter
/// than every round trip that would leave out all. So it is noted, from when the request was first sent, and counts if a second answer
/// comes from the peer: then the first sending had not been lost, only slow.
#[derive(Clone, Copy, Debug, Default)]
struct RoundTrip {
    mean: u64,
    noted: u64,
}

impl RoundTrip {
    /// How long to wait after the `attempts`th sending: twice the round trip, then twice as long each time, up to eight times. A peer that
    /// is slow rather than deaf must not drown in repetitions, each of which it answers.
    fn patience(self, least: Nanos, attempts: NonZeroU32) -> Nanos {
        let first = least.0.max(self.mean.saturating_mul(2));
        Nanos(first.saturating_mul(1 << (attempts.get() - 1).min(3)))
    }

    /// Whether there is something to learn from the answer to a request that was sent so often.
    #[inline]
    fn matters(self, attempts: NonZeroU32) -> bool {
        self.mean > 0 || attempts.get() > 1
    }

    /// An answer came so long after the `attempts`th sending.
    fn took(&mut self, least: Nanos, attempts: NonZeroU32, since: Nanos) {
        // The waits before may have been longer, if the mean was; counting them by today's mean would let it grow without end.
        let before: u64 = (0..attempts.get() - 1).map(|sent| least.0.saturating_mul(1 << sent.min(3))).sum();
        let all = before.saturating_add(since.0);
        match attempts.get() {
            1 => self.learn(least, all),
            _ => self.noted = all,
        }
    }

    /// A second answer to some request came.
    fn answered_twice(&mut self, least: Nanos) {
        let noted = std::mem::take(&mut self.noted);
        if noted > 0 {
            self.learn(least, noted);
        }
    }

    fn learn(&mut self, least: Nanos, all: u64) {
        let mean = if self.mean == 0 { all } else { self.mean - self.mean / 8 + all / 8 };
        self.mean = if mean.saturating_mul(2) > least.0 { mean } else { 0 };
    }
}

struct Session {
    to: Option<AddressHandle>,
    round_trip: RoundTrip,
    /// The peer is known to be gone.
    gone: bool,
    next_seq: u32,
    unanswered: Box<[Option<Sent>]>,
    in_use: u32,
    /// Requests up to this one were acknowledged as executed.
    acknowledged: u32,
    /// Who waits for room, by ticket and task, in order of arrival.
    waiting: VecDeque<(u64, u32)>,
    served: Box<[Option<Served>]>,
    /// Every request up to this one has been executed.
    done_below: u32,
    /// Of the `window` requests after `done_below`, those executed.
    done_after: u64,
    owed: u32,
}

/// A call somebody waits for: filled by the reply.
struct Call {
    /// The reply; [`Pinned::NONE`] before it is there.
    reply: Pinned,
    /// Bytes of the reply.
    len: u32,
    batch: u32,
    generation: u16,
    live: bool,
}

impl Call {
    const NEW: Call = Call { reply: Pinned::NONE, len: 0, batch: 0, generation: 0, live: false };
}

struct BatchState {
    open: u32,
    task: u32,
}

#[derive(Default)]
struct State {
    sessions: Vec<Session>,
    calls: Vec<Call>,
    /// Why calls failed. Hardly ever any do, so it is not kept with each call.
    failed: Vec<(u32, RpcError)>,
    free_calls: Vec<u32>,
    batches: Vec<BatchState>,
    free_batches: Vec<u32>,
    next_ticket: u64,
    out: Vec<(AddressHandle, Buf, u32)>,
    stats: RpcStats,
}

/// One worker thread's RPC endpoint.
pub struct Rpc<N: Nic> {
    port: Rc<Port<N>>,
    config: RpcConfig,
    qp: Qp,
    queue: u32,
    worker: u16,
    state: RefCell<State>,
    inbox: RefCell<VecDeque<crate::verbs::port::Received>>,
    /// No request waits in `inbox`, and no message in `out` of the state. May be false although it is so.
    idle: Cell<bool>,
    next_sweep: Cell<Nanos>,
    sweep_armed: Cell<bool>,
    building: Cell<bool>,
    /// Receives there should be, and those posted now.
    recv_depth: u32,
    recvs_posted: Cell<u32>,
    /// The queue pair is in error; its receives are coming back.
    broken: Cell<bool>,
}

impl<N: Nic> Rpc<N> {
    /// An endpoint for `worker`, with a queue pair of its own; `peers` is how many sessions it will have.
    ///
    /// # Errors
    /// When the fabric refuses the queue pair, or the pool cannot hold the receives.
    ///
    /// # Panics
    /// If the window is not a power of two of at most 64.
    pub fn new(
        port: Rc<Port<N>>,
        config: RpcConfig,
        worker: u16,
        peers: usize,
    ) -> Result<Rpc<N>, SetupError> {
        let RpcConfig { window, max_message, .. } = config;
        assert!(
            window.is_power_of_two() && window <= 64,
            "window {window} is not a power of two of at most 64"
        );
        let caps = port.nic().caps();
        if max_message > caps.ud_mtu {
            return Err(SetupError::Limit {
                what: "RPC message size in bytes",
                asked: u64::from(max_message),
                limit: u64::from(caps.ud_mtu),
                fabric: caps.fabric.clone(),
            });
        }
        // Requests of every peer, replies to our own, and acknowledgements in between; of many peers as many as the queue has
        // places for. A datagram that finds none is lost, and sent again like any other.
        let recv_depth = (2 * window * peers as u32 + 2 * peers as u32).max(64).min(caps.max_recv_depth);
        let qp_config = QpConfig { recv_depth, ..QpConfig::ud() };
        let qp = port.nic().create_qp(&qp_config)?;
        port.nic().connect(qp, None)?;
        let queue = port.add_datagram_queue(qp, qp_config.send_depth);
        let rpc = Rpc {
            port,
            config,
            qp,
            queue,
            worker,
            state: RefCell::default(),
            inbox: RefCell::new(VecDeque::with_capacity(recv_depth as usize)),
            idle: Cell::new(true),
            next_sweep: Cell::new(Nanos(0)),
            sweep_armed: Cell::new(false),
            building: Cell::new(false),
            recv_depth,
            recvs_posted: Cell::new(0),
            broken: Cell::new(false),
        };
        for _ in 0..recv_depth {
            rpc.post_fresh_recv()
                .map_err(|e| SetupError::Invalid(format!("receives of an RPC endpoint: {e}")))?;
        }
        Ok(rpc)
    }

    /// Bytes of buffer pool an endpoint with `peers` sessions needs at most: receives, kept requests and kept
    /// replies.
    pub fn pool_bytes(config: &RpcConfig, peers: usize) -> u64 {
        let buf = u64::from((config.max_message + GRH_BYTES).next_power_of_two().max(64));
        buf * u64::from(config.window) * (peers as u64 + 1) * 6
    }

    /// The address that other nodes' same-numbered workers open a session to.
    pub fn address(&self) -> QpAddress {
        self.port.nic().address(self.qp)
    }

    /// Opens a session with `peer`'s worker of this number.
    pub fn open(&self, peer: QpAddress) {
        let window = self.config.window as usize;
        let state = &mut *self.state.borrow_mut();
        while state.sessions.len() <= peer.node.index() {
            state.sessions.push(Session {
                to: None,
                round_trip: RoundTrip::default(),
                gone: false,
                next_seq: 1,
                unanswered: (0..window).map(|_| None).collect(),
                in_use: 0,
                acknowledged: 0,
                waiting: VecDeque::with_capacity(2 * window),
                served: (0..window).map(|_| None).collect(),
                done_below: 0,
                done_after: 0,
                owed: 0,
            });
        }
        state.sessions[peer.node.index()].to = Some(peer.handle());
    }

    /// The port's queue that sends its datagrams: for a benchmark that sends others that way, and takes all that arrives itself.
    pub(crate) fn datagrams(&self) -> u32 {
        self.queue
    }

    /// Where datagrams to a peer's endpoint go.
    pub(crate) fn way_to(&self, peer: NodeId) -> Option<AddressHandle> {
        self.state.borrow().sessions.get(peer.index())?.to
    }

    /// The port below.
    pub fn port(&self) -> &Rc<Port<N>> {
        &self.port
    }

    /// How the endpoint behaves.
    pub fn config(&self) -> &RpcConfig {
        &self.config
    }

    /// What has been counted so far.
    pub fn stats(&self) -> RpcStats {
        self.state.borrow().stats
    }

    /// Requests sent and not yet answered or acknowledged.
    pub fn unanswered(&self) -> u32 {
        self.state.borrow().sessions.iter().map(|s| s.in_use).sum()
    }

    fn post_fresh_recv(&self) -> Result<(), PoolExhausted> {
        let buf = self.port.buf(self.config.max_message + GRH_BYTES)?;
        self.post_recv(buf);
        Ok(())
    }

    fn post_recv(&self, buf: Buf) {
        // The queue was sized for what is posted; a full queue would only mean one receive less.
        if self.port.post_recv(self.qp, buf).is_ok() {
            self.recvs_posted.set(self.recvs_posted.get() + 1);
        }
    }

    /// A receive failed: a peer sent more than fits, which some cards answer with the error state. When all
    /// receives have come back, the queue pair starts afresh; whatever was lost meanwhile is sent again.
    #[cold]
    fn recover(&self) {
        self.broken.set(self.port.nic().qp_state(self.qp) == QpState::Error);
        if self.broken.get() && self.recvs_posted.get() > 0 {
            return;
        }
        if self.broken.replace(false) {
            self.port.reset_datagram_queue(self.queue);
        }
        while self.recvs_posted.get() < self.recv_depth && self.post_fresh_recv().is_ok() {}
    }

    /// Sorts arrived messages: replies and acknowledgements are handled at once, requests wait for
    /// [`Rpc::serve_one`].
    fn sort_arrivals(&self) {
        while let Some(message) = self.port.next_received() {
            self.recvs_posted.set(self.recvs_posted.get() - 1);
            if message.status != WcStatus::Success || self.broken.get() {
                self.state.borrow_mut().stats.malformed += u64::from(message.status == WcStatus::LocalLength);
                drop(message);
                self.recover();
                continue;
            }
            if self.post_fresh_recv().is_err() {
                // Losing a datagram is allowed, running out of receives for good is not: give this one back.
                self.post_recv(message.buf);
                continue;
            }
            self.port.nic().charge(CpuWork::RpcDecode);
            let state = &mut *self.state.borrow_mut();
            let Ok(header) = Header::decode(&message) else {
                state.stats.malformed += 1;
                continue;
            };
            let known = state.sessions.get(header.from.index()).and_then(|s| s.to);
            if known.is_none_or(|to| message.from != Some((to.node, to.qp))) {
                state.stats.malformed += 1;
                continue;
            }
            self.acknowledge(state, header.from, header.done_below);
            match header.kind {
                Kind::Reply => self.answer(state, &header, message),
                Kind::Ack => {}
                Kind::Request | Kind::OneWay => {
                    self.inbox.borrow_mut().push_back(message);
                    self.idle.set(false);
                }
            }
        }
    }

    /// Lines a message up.
    #[inline]
    fn line_up(&self, out: &mut Vec<(AddressHandle, Buf, u32)>, message: (AddressHandle, Buf, u32)) {
        out.push(message);
        self.idle.set(false);
    }

    /// Sends what is lined up, under one doorbell if `together` and the configuration allow it.
    #[inline]
    fn send_out(&self, state: &mut State, together: bool) {
        if !state.out.is_empty() {
            self.send_all(state, together);
        }
    }

    #[inline(never)]
    fn send_all(&self, state: &mut State, together: bool) {
        if together && self.config.doorbell_batching {
            let mut batch = self.port.batch();
            for (to, buf, len) in state.out.drain(..) {
                batch.send(self.queue, to, &buf, len);
            }
            // A queue pair in error (a link that went on some drivers) refuses it, and starts afresh when its receives have come back (`recover`); the
            // retransmission sweep sends again, and reports calls that stay lost.
            let _ = batch.post_passive();
        } else {
            for (to, buf, len) in state.out.drain(..) {
                let mut batch = self.port.batch();
                batch.send(self.queue, to, &buf, len);
                let _ = batch.post_passive();
            }
        }
    }

    /// Writes the header of a message to `peer`, acknowledgement included.
    fn seal(&self, session: &mut Session, buf: &Buf, header: Header) {
        session.owed = 0;
        header.encode(buf, self.port.nic().node(), self.worker, session.done_below);
        self.port.nic().charge(CpuWork::RpcEncode);
    }

    fn header_bytes() -> u32 {
        HEADER_WORDS as u32 * 8
    }

    /// Takes the request that arrived first.
    fn next_request(&self) -> Option<crate::verbs::port::Received> {
        let mut inbox = self.inbox.borrow_mut();
        let message = inbox.pop_front();
        if inbox.is_empty() {
            // It begins again at the front, where its memory is near.
            inbox.clear();
        }
        message
    }

    /// Lets go of a buffer that was kept.
    #[inline]
    fn let_go(&self, kept: Pinned) {
        if kept != Pinned::NONE {
            self.port.pool().unpin(kept);
        }
    }
}

impl<N: Nic> Drop for Rpc<N> {
    fn drop(&mut self) {
        let state = self.state.get_mut();
        let pool = self.port.pool();
        let kept = |pinned: Pinned| (pinned != Pinned::NONE).then_some(pinned);
        for session in &mut state.sessions {
            session.unanswered.iter_mut().filter_map(Option::take).for_each(|sent| pool.unpin(sent.held));
            let served = session.served.iter_mut().filter_map(Option::take);
            served.filter_map(|served| kept(served.held)).for_each(|held| pool.unpin(held));
        }
        state.calls.drain(..).filter_map(|call| kept(call.reply)).for_each(|reply| pool.unpin(reply));
    }
}

/// Polls an endpoint's port and serves its requests.
pub struct RpcPoller<N: Nic, S> {
    rpc: Rc<Rpc<N>>,
    service: S,
    /// When the core was last asked to be driven for the sake of answers put off.
    woken_for: Nanos,
}

impl<N: Nic, S: Service> RpcPoller<N, S> {
    /// Serves `rpc`'s requests with `service`.
    pub fn new(rpc: Rc<Rpc<N>>, service: S) -> RpcPoller<N, S> {
        RpcPoller { rpc, service, woken_for: Nanos(0) }
    }

    /// The service.
    pub fn service(&self) -> &S {
        &self.service
    }

    /// Lets the service look at answers it has put off, when it wants to.
    #[cold]
    fn look_again(&mut self, at: Nanos) {
        let now = self.rpc.port.now();
        if at <= now {
            self.service.look_again(&*self.rpc);
        }
        if let Some(next) = self.service.look_again_at()
            && next > self.woken_for
        {
            self.woken_for = next;
            self.rpc.port.nic().wake_at(next);
        }
    }
}

impl<N: Nic, S: Service> Poller for RpcPoller<N, S> {
    fn poll(&mut self) -> usize {
        let taken = self.rpc.port.progress();
        if self.rpc.port.received() > 0 {
            self.rpc.sort_arrivals();
        }
        if let Some(at) = self.service.look_again_at() {
            self.look_again(at);
        }
        taken
    }

    fn polls_memory(&self) -> bool {
        self.rpc.port.nic().polls_memory()
    }

    fn idle(&self) -> bool {
        self.rpc.idle.get()
    }

    fn serve_one(&mut self) -> bool {
        let Some(message) = self.rpc.next_request() else { return false };
        self.rpc.serve(&mut self.service, message);
        true
    }

    fn backlog(&self) -> bool {
        !self.rpc.inbox.borrow().is_empty()
    }

    fn flush(&mut self) {
        self.rpc.flush_replies();
    }

    fn look_ahead(&self, look: usize) -> Look {
        self.rpc.look_ahead(look)
    }

    fn tick(&mut self, now: Nanos) {
        while let Some(peer) = self.rpc.port.nic().lost() {
            self.rpc.lose(peer);
        }
        self.rpc.sweep(now);
    }

    fn now(&self) -> Nanos {
        self.rpc.port.now()
    }

    fn charge(&self, work: CpuWork) {
        self.rpc.port.nic().charge(work);
    }
}
