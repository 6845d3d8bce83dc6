//! One worker thread's context: its sockets, queue pairs, receives and completions.

use super::stream::{Broken, Frame, Hello, Inbound, Outbound, Unproven};
use super::{MTU, Place, Shared};
use crate::fabric::{Caps, Nic, PostError, SetupError};
use crate::mem::{Access, MemoryKeys, Region};
use crate::units::Nanos;
use crate::verbs::work::GRH_BYTES;
use crate::verbs::{
    AddressHandle, Completion, NodeId, Qp, QpAddress, QpConfig, QpState, RecvRequest, Transport, Verb,
    WcOpcode, WcStatus, WorkRequest,
};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Bits of a queue pair number that count within its context; those above are the context's number.
const QP_BITS: u32 = 8;
const MAX_QPS: usize = 1 << QP_BITS;
const MAX_CONTEXTS: u32 = 1 << (24 - QP_BITS);
/// The listener is looked at every so many polls: streams come at set-up, and a look is a system call.
const POLLS_PER_ACCEPT: u32 = 64;
/// Streams that may be unproven at a time, and looks after which one that shows nothing is given up.
const MAX_UNPROVEN: usize = 64;
const PATIENCE: u32 = 100_000;
/// How long a peer's listener may take to answer.
const CONNECT_WITHIN: Duration = Duration::from_secs(5);

/// A TCP device context. Owned by one thread.
pub struct TcpNic {
    shared: Arc<Shared>,
    node: NodeId,
    place: Place,
    listener: TcpListener,
    state: RefCell<State>,
    polls: Cell<u32>,
    /// Requests wait for room in a stream's buffer.
    stalled: Cell<u32>,
}

#[derive(Default)]
struct State {
    qps: Vec<LocalQp>,
    /// Contexts of other processes, by node.
    introduced: Vec<(NodeId, Place)>,
    outbound: Vec<Outbound>,
    inbound: Vec<Inbound>,
    unproven: Vec<Unproven>,
    /// Hellos seen, so that none opens two streams.
    seen: Vec<u64>,
    done: VecDeque<(Completion, u64)>,
    lost: VecDeque<NodeId>,
}

struct LocalQp {
    number: Qp,
    config: QpConfig,
    state: QpState,
    posted: u64,
    retired: u64,
    /// Requests that wait for room, in order.
    stalled: VecDeque<(u64, WorkRequest)>,
    recv: VecDeque<RecvRequest>,
    /// Completions of receives that were taken but not polled: the queue's places are theirs until then.
    recv_unpolled: u32,
}

/// Marks a completion that retires no send.
const NO_SEQ: u64 = u64::MAX;

impl TcpNic {
    pub(super) fn open(shared: Arc<Shared>, node: NodeId) -> Result<TcpNic, SetupError> {
        let Some(home) = shared.nodes.get(node.index()) else {
            return Err(SetupError::Invalid(format!("a tcp fabric of {} has no {node}", shared.nodes.len())));
        };
        let context = home.contexts.fetch_add(1, Ordering::AcqRel);
        if context >= MAX_CONTEXTS {
            return Err(SetupError::Limit {
                what: "device contexts of one node",
                asked: u64::from(context) + 1,
                limit: u64::from(MAX_CONTEXTS),
                fabric: shared.caps.fabric.clone(),
            });
        }
        let options = &shared.options;
        let port = match options.first_port {
            None => Some(0),
            Some(first) => u16::try_from(context).ok().and_then(|n| first.checked_add(n)),
        };
        let Some(port) = port else {
            return Err(SetupError::Invalid(format!("no port is left for context {context}")));
        };
        let listening = |what: &str, e: std::io::Error| {
            SetupError::Invalid(format!("{node} cannot {what} {}:{port}: {e}", options.host))
        };
        let listener = TcpListener::bind((options.host, port)).map_err(|e| listening("listen on", e))?;
        listener.set_nonblocking(true).map_err(|e| listening("listen on", e))?;
        let address = listener.local_addr().map_err(|e| listening("name", e))?;
        let mut nonce = [0; 16];
        nonce.copy_from_slice(&crate::secret::nonce()[..16]);
        let place = Place { context, address, nonce };
        home.here.lock().unwrap_or_else(|p| p.into_inner()).push(place.clone());
        Ok(TcpNic {
            shared,
            node,
            place,
            listener,
            state: RefCell::default(),
            polls: Cell::new(0),
            stalled: Cell::new(0),
        })
    }

    /// The stream to a context, opened if there is none yet.
    fn outbound(&self, state: &mut State, to: (NodeId, u32)) -> Result<Option<usize>, SetupError> {
        if let Some(index) = state.outbound.iter().position(|o| o.to == to) {
            return Ok(Some(index));
        }
        let known = state.introduced.iter().find(|(node, place)| (*node, place.context) == to);
        let place = match known {
            Some((_, place)) => Some(place.clone()),
            None => self.shared.nodes.get(to.0.index()).and_then(|node| {
                let here = node.here.lock().unwrap_or_else(|p| p.into_inner());
                here.iter().find(|place| place.context == to.1).cloned()
            }),
        };
        let Some(place) = place else { return Ok(None) };
        let opened = connect(place.address).map_err(|e| {
            SetupError::Invalid(format!(
                "{} cannot open a stream to {} at {}: {e}; a firewall may block it",
                self.node, to.0, place.address
            ))
        });
        let drawn = crate::secret::nonce();
        let drawn = u64::from_le_bytes([
            drawn[0], drawn[1], drawn[2], drawn[3], drawn[4], drawn[5], drawn[6], drawn[7],
        ]);
        let hello = Hello { from: (self.node, self.place.context), to, drawn };
        let hello = hello.seal(&self.shared.options.secret, &place);
        state.outbound.push(Outbound::new(to, opened?, &hello, self.shared.options.buffer_bytes));
        Ok(Some(state.outbound.len() - 1))
    }

    /// Takes a request: its completion is queued unless it must wait for room.
    fn execute(&self, state: &mut State, qp: usize, seq: u64, request: &WorkRequest) -> bool {
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
        let Some(memory) = self.shared.local(self.node, sge) else {
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
        receive(&self.shared, self.node, self.node, qps, done, &frame, |target, at| {
            Region::copy(memory, offset, target, at, u64::from(len));
        });
    }

    /// Writes what chains have added, one system call for each stream.
    fn flush(&self, state: &mut State, all: bool) {
        let State { outbound, lost, .. } = state;
        for out in outbound.iter_mut().filter(|o| o.dirty || all && o.pending()) {
            if out.flush() == Err(Broken) {
                lost.push_back(out.to.0);
                out.kill();
            }
        }
    }

    #[cold]
    fn offer_again(&self, state: &mut State) {
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
        self.flush(state, false);
    }

    /// Takes streams that peers open, and the proofs of those taken before.
    #[cold]
    fn accept(&self, state: &mut State) {
        while state.unproven.len() < MAX_UNPROVEN
            && let Ok((stream, _)) = self.listener.accept()
        {
            if stream.set_nonblocking(true).is_ok() && stream.set_nodelay(true).is_ok() {
                state.unproven.push(Unproven::new(stream, PATIENCE));
            }
        }
    }

    #[cold]
    fn prove(&self, state: &mut State) {
        let options = &self.shared.options;
        let mut index = 0;
        while index < state.unproven.len() {
            let unproven = &mut state.unproven[index];
            unproven.patience = unproven.patience.saturating_sub(1);
            let patient = unproven.patience > 0;
            let read = match unproven.read() {
                Ok(Some(bytes)) => Ok(Some(Hello::open(bytes, &options.secret, &self.place.nonce))),
                Ok(None) if patient => Ok(None),
                Ok(None) | Err(Broken) => Err(Broken),
            };
            match read {
                Ok(None) => index += 1,
                Err(Broken) => drop(state.unproven.swap_remove(index)),
                Ok(Some(opened)) => {
                    let stream = state.unproven.swap_remove(index).into_stream();
                    let Some(hello) = opened else { continue };
                    if hello.to != (self.node, self.place.context) || state.seen.contains(&hello.drawn) {
                        continue;
                    }
                    state.seen.push(hello.drawn);
                    state.inbound.push(Inbound::new(hello.from, stream, options.buffer_bytes));
                }
            }
        }
    }

    fn read_streams(&self, state: &mut State) {
        let State { qps, done, inbound, outbound, lost, .. } = state;
        let mut index = 0;
        while index < inbound.len() {
            let stream = &mut inbound[index];
            let from = stream.from;
            let read = stream.read(|frame, payload| {
                receive(&self.shared, from.0, self.node, qps, done, frame, |target, at| {
                    // The range was checked with the key.
                    let _ = target.write_bytes(at, payload);
                });
            });
            if read.is_ok() {
                index += 1;
                continue;
            }
            inbound.swap_remove(index);
            lost.push_back(from.0);
            for out in outbound.iter_mut().filter(|o| o.to == from) {
                out.kill();
            }
        }
    }

    fn qp(state: &mut State, qp: Qp) -> Option<&mut LocalQp> {
        state.qps.get_mut(qp.0 as usize & (MAX_QPS - 1)).filter(|l| l.number == qp)
    }

    fn refuse(&self, qp: &LocalQp, request: &WorkRequest) -> Option<PostError> {
        let transport = qp.config.transport;
        if !transport.supports(&request.verb) {
            return Some(PostError::Unsupported { qp: qp.number, verb: request.verb.name(), transport });
        }
        let max = self.shared.caps.max_inline;
        if request.flags.inline && request.local.len > max {
            return Some(PostError::Inline { qp: qp.number, len: request.local.len, max });
        }
        match request.verb {
            Verb::Send { to: Some(_), .. } => None,
            _ => Some(PostError::Destination { qp: qp.number }),
        }
    }
}

fn connect(address: SocketAddr) -> std::io::Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&address, CONNECT_WITHIN)?;
    stream.set_nodelay(true)?;
    stream.set_nonblocking(true)?;
    Ok(stream)
}

/// Puts a datagram into the oldest posted receive, or drops it without a word.
fn receive(
    shared: &Shared,
    from: NodeId,
    node: NodeId,
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
    let status = match shared.local(node, recv.local) {
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
fn flush_receives(state: &mut State, qp: usize) {
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

impl Nic for TcpNic {
    #[inline]
    fn caps(&self) -> &Caps {
        &self.shared.caps
    }

    #[inline]
    fn node(&self) -> NodeId {
        self.node
    }

    fn register(&self, region: &Region, access: Access) -> Result<MemoryKeys, SetupError> {
        self.shared.register(self.node, region, access)
    }

    fn deregister(&self, keys: MemoryKeys) {
        self.shared.deregister(self.node, keys);
    }

    fn create_qp(&self, config: &QpConfig) -> Result<Qp, SetupError> {
        if config.transport != Transport::Ud {
            return Err(SetupError::Invalid(format!(
                "tcp has datagram (UD) queue pairs only, not {:?}: it is the two-sided baseline",
                config.transport
            )));
        }
        let caps = &self.shared.caps;
        let limits = [
            ("send queue depth", config.send_depth, caps.max_send_depth),
            ("receive queue depth", config.recv_depth, caps.max_recv_depth),
        ];
        for (what, asked, limit) in limits {
            if asked == 0 || asked > limit {
                let (asked, limit) = (u64::from(asked), u64::from(limit));
                return Err(SetupError::Limit { what, asked, limit, fabric: caps.fabric.clone() });
            }
        }
        let state = &mut *self.state.borrow_mut();
        if state.qps.len() == MAX_QPS {
            return Err(SetupError::Limit {
                what: "queue pairs of one context",
                asked: MAX_QPS as u64 + 1,
                limit: MAX_QPS as u64,
                fabric: caps.fabric.clone(),
            });
        }
        let number = Qp(self.place.context << QP_BITS | state.qps.len() as u32);
        state.done.reserve((config.send_depth + config.recv_depth) as usize);
        state.qps.push(LocalQp {
            number,
            config: *config,
            state: QpState::Init,
            posted: 0,
            retired: 0,
            stalled: VecDeque::with_capacity(config.send_depth as usize),
            recv: VecDeque::with_capacity(config.recv_depth as usize),
            recv_unpolled: 0,
        });
        Ok(number)
    }

    fn address(&self, qp: Qp) -> QpAddress {
        let state = &mut *self.state.borrow_mut();
        let qkey = Self::qp(state, qp).map_or(0, |l| l.config.qkey);
        QpAddress { node: self.node, qpn: qp.0, qkey }
    }

    fn card(&self) -> Vec<u8> {
        // A struct of numbers always has a JSON form.
        serde_json::to_vec(&self.place).unwrap_or_default()
    }

    fn introduce(&self, peer: NodeId, card: &[u8]) -> Result<(), SetupError> {
        let place: Place = serde_json::from_slice(card)
            .map_err(|e| SetupError::Invalid(format!("the tcp card of {peer} cannot be read: {e}")))?;
        let to = (peer, place.context);
        if to == (self.node, self.place.context) {
            return Ok(());
        }
        let state = &mut *self.state.borrow_mut();
        state.introduced.push((peer, place));
        self.outbound(state, to)?;
        self.flush(state, false);
        Ok(())
    }

    fn lost(&self) -> Option<NodeId> {
        self.state.borrow_mut().lost.pop_front()
    }

    fn connect(&self, qp: Qp, _: Option<QpAddress>) -> Result<(), SetupError> {
        let state = &mut *self.state.borrow_mut();
        match Self::qp(state, qp) {
            Some(local) => local.state = QpState::ReadyToSend,
            None => return Err(SetupError::Invalid(format!("no queue pair {} in this context", qp.0))),
        }
        Ok(())
    }

    fn qp_state(&self, qp: Qp) -> QpState {
        Self::qp(&mut self.state.borrow_mut(), qp).map_or(QpState::Error, |l| l.state)
    }

    fn reset_qp(&self, qp: Qp) {
        let state = &mut *self.state.borrow_mut();
        let Some(local) = Self::qp(state, qp).filter(|l| l.state != QpState::Init) else { return };
        local.stalled.clear();
        local.recv.clear();
        local.recv_unpolled = 0;
        local.retired = local.posted;
        local.state = QpState::ReadyToSend;
        state.done.retain(|(c, _)| c.qp != qp);
    }

    fn post(&self, qp: Qp, chain: &[WorkRequest]) -> Result<(), PostError> {
        let state = &mut *self.state.borrow_mut();
        let Some(local) = Self::qp(state, qp) else { return Err(PostError::UnknownQp { qp }) };
        if local.state == QpState::Init {
            return Err(PostError::NotReady { qp, state: QpState::Init });
        }
        let index = qp.0 as usize & (MAX_QPS - 1);
        let mut outcome = Ok(());
        for request in chain {
            let local = &mut state.qps[index];
            if let Some(refused) = self.refuse(local, request) {
                outcome = Err(refused);
                break;
            }
            let depth = local.config.send_depth;
            if local.posted - local.retired >= u64::from(depth) {
                outcome = Err(PostError::QueueFull { qp, depth });
                break;
            }
            let seq = local.posted;
            local.posted += 1;
            if !local.stalled.is_empty() {
                local.stalled.push_back((seq, *request));
            } else if !self.execute(state, index, seq, request) {
                state.qps[index].stalled.push_back((seq, *request));
                self.stalled.set(self.stalled.get() + 1);
            }
        }
        self.flush(state, false);
        outcome
    }

    fn post_recv(&self, qp: Qp, chain: &[RecvRequest]) -> Result<(), PostError> {
        let state = &mut *self.state.borrow_mut();
        let Some(local) = Self::qp(state, qp) else { return Err(PostError::UnknownQp { qp }) };
        for request in chain {
            let depth = local.config.recv_depth;
            if local.recv.len() as u32 + local.recv_unpolled >= depth {
                return Err(PostError::QueueFull { qp, depth });
            }
            local.recv.push_back(*request);
        }
        if local.state == QpState::Error {
            flush_receives(state, qp.0 as usize & (MAX_QPS - 1));
        }
        Ok(())
    }

    fn poll(&self, max: usize, mut sink: impl FnMut(Completion)) -> usize {
        let state = &mut *self.state.borrow_mut();
        let polls = self.polls.get().wrapping_add(1);
        self.polls.set(polls);
        if polls % POLLS_PER_ACCEPT == 1 {
            self.accept(state);
        }
        if !state.unproven.is_empty() {
            self.prove(state);
        }
        self.read_streams(state);
        self.flush(state, true);
        if self.stalled.get() > 0 {
            self.offer_again(state);
        }
        let mut taken = 0;
        while taken < max
            && let Some((completion, seq)) = state.done.pop_front()
        {
            let local = &mut state.qps[completion.qp.0 as usize & (MAX_QPS - 1)];
            if seq == NO_SEQ {
                local.recv_unpolled = local.recv_unpolled.saturating_sub(1);
            } else {
                local.retired = local.retired.max(seq + 1);
            }
            taken += 1;
            sink(completion);
        }
        taken
    }

    #[inline]
    fn now(&self) -> Nanos {
        Nanos(self.shared.clock.now().duration_since(self.shared.started).as_nanos() as u64)
    }
}
