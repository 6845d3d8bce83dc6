//! One worker thread's context: queue pairs and completions here, streams in `context/streams.rs`, datagrams in
//! `context/datagram.rs`.

mod datagram;
mod streams;

use self::datagram::flush_receives;
use super::stream::{Inbound, Outbound, Unproven};
use super::{Place, Shared};
use crate::fabric::{Caps, Nic, PostError, SetupError};
use crate::mem::{Access, MemoryKeys, Region};
use crate::units::Nanos;
use crate::verbs::{
    Completion, NodeId, Qp, QpAddress, QpConfig, QpState, RecvRequest, Transport, WorkRequest,
};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Bits of a queue pair number that count within its context; those above are the context's number.
const QP_BITS: u32 = 8;
const MAX_QPS: usize = 1 << QP_BITS;
const MAX_CONTEXTS: u32 = 1 << (24 - QP_BITS);
/// The listener is looked at every so many polls: streams come at set-up, and a look is a system call.
const POLLS_PER_ACCEPT: u32 = 64;
/// What to do where a port that a file fixes is another's.
const TAKEN: &str = ": another program has the port, or another node on this machine: with a fixed `tcp_port` each needs an address \
                     of its own; without one the system chooses ports that are free";

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
            let fixed = options.first_port.is_some() && e.kind() == std::io::ErrorKind::AddrInUse;
            let taken = if fixed { TAKEN } else { "" };
            SetupError::System(format!("{node} cannot {what} {}:{port}: {e}{taken}", options.host))
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

    fn qp(state: &mut State, qp: Qp) -> Option<&mut LocalQp> {
        state.qps.get_mut(qp.0 as usize & (MAX_QPS - 1)).filter(|l| l.number == qp)
    }
}

impl Drop for TcpNic {
    /// What was posted and not yet written still goes out, as far as sockets take it at once.
    fn drop(&mut self) {
        let state = &mut *self.state.borrow_mut();
        self.flush(state);
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
        // The upper bits tell a stale key from a live one. Nobody else ever sees it: there is no one-sided access.
        let shared = &self.shared;
        shared.regions(self.node).register(region, access, (0x7c90_0000, 0), &shared.caps.fabric)
    }

    fn deregister(&self, keys: MemoryKeys) {
        self.shared.regions(self.node).deregister(keys);
    }

    fn create_qp(&self, config: &QpConfig) -> Result<Qp, SetupError> {
        if config.transport != Transport::Ud {
            return Err(SetupError::Invalid(format!(
                "tcp has datagram (UD) queue pairs only, not {:?}: it is the two-sided baseline",
                config.transport
            )));
        }
        let caps = &self.shared.caps;
        caps.admit(config)?;
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
        self.flush(state);
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
            if let Some(refused) = self.shared.caps.refuse(qp, local.config.transport, request) {
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

    fn polls_memory(&self) -> bool {
        false
    }

    fn poll(&self, max: usize, mut sink: impl FnMut(Completion)) -> usize {
        let state = &mut *self.state.borrow_mut();
        let polls = self.polls.get().wrapping_add(1);
        self.polls.set(polls);
        if polls % POLLS_PER_ACCEPT == 1 {
            // Whoever has shown its hello by now makes no room for those who come.
            self.prove(state);
            self.accept(state);
        }
        self.flush(state);
        self.read_streams(state);
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
        self.shared.clock.now()
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods)] // sockets take real time
mod tests {
    use super::*;
    use crate::fabric::tcp::{Options, TcpFabric};
    use crate::verbs::work::GRH_BYTES;
    use crate::verbs::{Flags, Lkey, Sge, Verb, WcOpcode};
    use std::time::Duration;

    const SLOT: u32 = 64;

    /// A context with a datagram queue pair and memory.
    struct End {
        nic: TcpNic,
        qp: Qp,
        lkey: Lkey,
    }

    impl End {
        fn new(fabric: &TcpFabric, node: u16) -> End {
            let nic = fabric.context(NodeId(node)).expect("a port");
            let keys = nic.register(&Region::new(4096), Access::ALL).expect("a region");
            let qp = nic.create_qp(&QpConfig::ud()).expect("a queue pair");
            nic.connect(qp, None).expect("datagrams need no peer");
            End { nic, qp, lkey: keys.lkey }
        }

        fn send(&self, to: &End, id: u64) {
            let verb = Verb::Send { to: Some(to.nic.address(to.qp).handle()), imm: Some(id as u32) };
            let local = Sge { lkey: self.lkey, offset: 0, len: 8 };
            let request = WorkRequest { id, verb, local, flags: Flags { signaled: false, inline: false } };
            self.nic.post(self.qp, &[request]).expect("room");
        }

        fn expect(&self, receives: u32) {
            for n in 0..receives {
                let local = Sge { lkey: self.lkey, offset: u64::from(n * SLOT), len: GRH_BYTES + 8 };
                self.nic.post_recv(self.qp, &[RecvRequest { id: u64::from(n), local }]).expect("room");
            }
        }

        /// Immediates of what has arrived, after `polls` looks.
        fn arrived(&self, polls: u32) -> Vec<Option<u32>> {
            let mut got = Vec::new();
            for _ in 0..polls {
                self.nic.poll(16, |c| {
                    assert_eq!(c.opcode, WcOpcode::Recv);
                    got.push(c.imm);
                });
                std::thread::sleep(Duration::from_millis(1));
            }
            got
        }
    }

    #[test]
    fn chains_wait_for_a_poll_and_then_go_together_in_order() {
        let fabric = TcpFabric::new(2, Options::default());
        let (from, to) = (End::new(&fabric, 0), End::new(&fabric, 1));
        to.expect(8);
        // The stream opens with the first of them.
        for id in 0..4 {
            from.send(&to, id);
        }
        assert_eq!(to.arrived(20), []);
        from.nic.poll(16, |_| panic!("nothing was signaled"));
        let all: Vec<Option<u32>> = (0..4).map(Some).collect();
        assert_eq!(to.arrived(100), all);
    }

    #[test]
    fn a_stream_that_is_refused_is_the_machines_matter() {
        let fabric = TcpFabric::new(2, Options::default());
        let from = End::new(&fabric, 0);
        // A port that was free a moment ago; nobody listens there.
        let gone = TcpListener::bind("127.0.0.1:0").and_then(|l| l.local_addr()).expect("a port");
        let card = serde_json::to_vec(&Place { context: 3, address: gone, nonce: [0; 16] }).expect("numbers");
        let refused = from.nic.introduce(NodeId(1), &card).expect_err("nobody listens");
        assert!(refused.is_machines(), "{refused:?}");
        let told = format!("node 0 cannot open a stream to node 1 at {gone}: Connection refused");
        assert!(refused.to_string().contains(&told), "{refused}");
    }

    #[test]
    fn what_was_posted_goes_out_though_its_context_ends() {
        let fabric = TcpFabric::new(2, Options::default());
        let (from, to) = (End::new(&fabric, 0), End::new(&fabric, 1));
        to.expect(2);
        from.send(&to, 7);
        from.nic.poll(16, |_| panic!("nothing was signaled"));
        assert_eq!(to.arrived(100), [Some(7)]);
        from.send(&to, 8);
        drop(from);
        assert_eq!(to.arrived(100), [Some(8)]);
    }
}
