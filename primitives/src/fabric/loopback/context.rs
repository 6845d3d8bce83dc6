//! One worker thread's context: posting, executing, polling.

use super::done::{Done, DoneQueue};
use super::execute::{Outcome, Way};
use super::nic_thread::Job;
use super::recv_ring::RecvRing;
use super::{
    ContextShared, End, MAX_CONTEXTS, MAX_QPS, Peer, QP_BITS, STATE_ERROR, STATE_INIT, STATE_READY, Shared,
    SharedQp,
};
use crate::fabric::{Caps, Nic, PostError, SetupError};
use crate::mem::{Access, MemoryKeys, Region};
use crate::units::Nanos;
use crate::verbs::{
    Completion, NodeId, Qp, QpAddress, QpConfig, QpState, RecvRequest, Remote, Transport, WcOpcode, WcStatus,
    WorkRequest,
};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

/// How often a not-ready receiver is offered the message again before the retry count matters: one offer a
/// poll, and polls come much faster than a card's RNR timer (InfiniBand 9.7.5.2.8) would tick.
const OFFERS_PER_RNR_RETRY: u32 = 256;

/// A loopback device context. Owned by one thread.
pub struct LoopbackNic {
    shared: Arc<Shared>,
    context: Arc<ContextShared>,
    local: RefCell<Local>,
    rng: RefCell<Xoshiro256PlusPlus>,
}

/// What a post or a poll looks at, under one borrow.
struct Local {
    qps: Vec<LocalQp>,
    done: DoneQueue,
    /// Queue pairs whose requests wait for a receiver.
    waiting: usize,
    /// Requests are executed by the NIC thread.
    threaded: bool,
    /// Queue pairs that ever had a receive posted: the only ones to look at for arrivals.
    receiving: Vec<Arc<SharedQp>>,
}

/// Aligned so that its place is a shift of its index.
#[repr(align(128))]
struct LocalQp {
    number: Qp,
    posted: u64,
    retired: u64,
    depth: u64,
    /// Of a reliable connection whose requests the posting thread executes.
    way: Option<Way>,
    shared: Arc<SharedQp>,
    /// Requests behind one whose receiver was not ready, itself included.
    stalled: VecDeque<(u64, WorkRequest)>,
    offers: u32,
    /// Listed among those to look at for arrivals.
    receives: bool,
}

impl LocalQp {
    /// Does a READ, WRITE or ATOMIC, if the queue has room and nothing is wrong with it. Returns false and has done nothing
    /// if it is another case.
    #[inline(always)]
    fn move_words(&mut self, request: &WorkRequest) -> bool {
        match &mut self.way {
            Some(way) => {
                self.posted - self.retired < self.depth && self.stalled.is_empty() && way.move_words(request)
            }
            None => false,
        }
    }
}

impl LoopbackNic {
    pub(super) fn open(shared: Arc<Shared>, node: NodeId) -> LoopbackNic {
        let home = shared.nodes.get(node.index()).expect("the node exists");
        let number = home.context_count.fetch_add(1, Ordering::AcqRel);
        assert!(number < MAX_CONTEXTS, "node has at most {MAX_CONTEXTS} contexts");
        let context = Arc::new(ContextShared {
            node,
            number: number as u32,
            qps: std::iter::repeat_with(OnceLock::new).take(MAX_QPS).collect(),
            qp_count: AtomicU32::new(0),
            from_nic: Mutex::default(),
            from_nic_len: AtomicUsize::new(0),
        });
        assert!(home.contexts[number].set(context.clone()).is_ok(), "context numbers are drawn once");
        let seed = shared.options.seed ^ (u64::from(node.0) << 32 | number as u64);
        let local = Local {
            qps: Vec::new(),
            done: DoneQueue::new(),
            waiting: 0,
            threaded: shared.nic_thread.get().is_some(),
            receiving: Vec::new(),
        };
        LoopbackNic {
            shared,
            context,
            local: RefCell::new(local),
            rng: RefCell::new(Xoshiro256PlusPlus::seed_from_u64(seed)),
        }
    }

    fn index(qp: Qp) -> usize {
        qp.0 as usize & (MAX_QPS - 1)
    }

    /// A queue pair of this context. Other numbers share its place.
    fn find(qps: &mut [LocalQp], qp: Qp) -> Option<&mut LocalQp> {
        qps.get_mut(Self::index(qp)).filter(|l| l.number == qp)
    }

    #[inline]
    fn lose(&self) -> bool {
        let loss = self.shared.options.datagram_loss;
        loss > 0.0 && self.rng.borrow_mut().random_bool(loss.min(1.0))
    }

    /// Executes a request and queues its completion. False if its receiver was not ready.
    fn execute(&self, done: &mut DoneQueue, qp: &SharedQp, seq: u64, request: &WorkRequest) -> bool {
        let status = if qp.end.state() == STATE_ERROR {
            WcStatus::Flushed
        } else {
            match self.shared.execute(qp, request, None, Region::copy, || self.lose()) {
                Outcome::Done(status) => status,
                Outcome::ReceiverNotReady => return false,
            }
        };
        complete(done, qp, seq, request, status);
        true
    }

    /// Whether a request that asks for it can be inlined.
    #[inline]
    fn inlines(&self, request: &WorkRequest) -> bool {
        !request.verb.returns_data() && request.local.len <= self.shared.caps.max_inline
    }

    /// The usual case on a way of its own: READs, WRITEs and ATOMICs that nothing is wrong with, on a reliable connection. Says
    /// whether it is that.
    #[inline(always)]
    fn post_usual(&self, queue: &mut LocalQp, done: &mut DoneQueue, request: &WorkRequest) -> bool {
        let usual = (!request.flags.inline || self.inlines(request)) && queue.move_words(request);
        if usual {
            let seq = queue.posted;
            queue.posted = seq + 1;
            if request.flags.signaled {
                done.push(Done { qp: queue.number, id: request.id, status: WcStatus::Success, seq });
            }
        }
        usual
    }

    /// Posts any chain.
    #[inline(never)]
    fn post_any(&self, local: &mut Local, qp: Qp, chain: &[WorkRequest]) -> Result<(), PostError> {
        let Local { qps, done, waiting, .. } = local;
        let Some(local) = Self::find(qps, qp) else {
            return Err(PostError::UnknownQp { qp });
        };
        if local.shared.end.state() == STATE_INIT {
            return Err(PostError::NotReady { qp, state: QpState::Init });
        }
        let depth = local.shared.config.send_depth;
        for request in chain {
            if let Some(refused) = self.shared.caps.refuse(qp, local.shared.config.transport, request) {
                return Err(refused);
            }
            if local.posted - local.retired >= u64::from(depth) {
                return Err(PostError::QueueFull { qp, depth });
            }
            let seq = local.posted;
            local.posted += 1;
            if let Some(thread) = self.shared.nic_thread.get() {
                thread.submit(Job::new(&self.shared, &self.context, &local.shared, seq, request));
            } else if !local.stalled.is_empty() {
                local.stalled.push_back((seq, *request));
            } else if !self.execute(done, &local.shared, seq, request) {
                local.stalled.push_back((seq, *request));
                *waiting += 1;
            }
        }
        Ok(())
    }

    /// Offers stalled messages to their receivers once more.
    #[cold]
    fn offer_again(&self, local: &mut Local) {
        let mut still = 0;
        for qp in &mut local.qps {
            while let Some(&(seq, request)) = qp.stalled.front() {
                if !self.execute(&mut local.done, &qp.shared, seq, &request) {
                    qp.offers += 1;
                    let retries = u32::from(qp.shared.config.rnr_retry);
                    if retries >= 7 || qp.offers <= retries * OFFERS_PER_RNR_RETRY {
                        still += 1;
                        break;
                    }
                    complete(&mut local.done, &qp.shared, seq, &request, WcStatus::RnrRetryExceeded);
                }
                qp.offers = 0;
                qp.stalled.pop_front();
            }
        }
        local.waiting = still;
    }

    #[cold]
    fn poll_nic_thread(&self, done: &mut DoneQueue) {
        if self.context.from_nic_len.load(Ordering::Acquire) == 0 {
            return;
        }
        let mut queue = self.context.from_nic.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        self.context.from_nic_len.store(0, Ordering::Release);
        done.extend(queue.drain(..));
    }
}

fn complete(done: &mut DoneQueue, qp: &SharedQp, seq: u64, request: &WorkRequest, status: WcStatus) {
    if status != WcStatus::Success {
        qp.end.set_state(STATE_ERROR);
    } else if !request.flags.signaled {
        return;
    }
    done.push(Done { qp: qp.number, id: request.id, status, seq });
}

impl Nic for LoopbackNic {
    fn ends_in_post(&self) -> bool {
        self.shared.nic_thread.get().is_none()
    }

    #[inline]
    fn caps(&self) -> &Caps {
        &self.shared.caps
    }

    #[inline]
    fn node(&self) -> NodeId {
        self.context.node
    }

    fn register(&self, region: &Region, access: Access) -> Result<MemoryKeys, SetupError> {
        let drawn = {
            let mut rng = self.rng.borrow_mut();
            (rng.random(), rng.random())
        };
        let shared = &self.shared;
        shared.nodes[self.context.node.index()].regions.register(region, access, drawn, &shared.caps.fabric)
    }

    fn deregister(&self, keys: MemoryKeys) {
        self.shared.nodes[self.context.node.index()].regions.deregister(keys);
    }

    fn create_qp(&self, config: &QpConfig) -> Result<Qp, SetupError> {
        let caps = &self.shared.caps;
        caps.admit(config)?;
        let index = self.context.qp_count.fetch_add(1, Ordering::AcqRel) as usize;
        if index >= MAX_QPS {
            return Err(SetupError::Limit {
                what: "queue pairs of one context",
                asked: index as u64 + 1,
                limit: MAX_QPS as u64,
                fabric: caps.fabric.clone(),
            });
        }
        let number = Qp(self.context.number << QP_BITS | index as u32);
        let shared = Arc::new(SharedQp {
            number,
            node: self.context.node,
            config: *config,
            end: Arc::default(),
            peer: OnceLock::new(),
            recv: RecvRing::new(config.recv_depth),
            resets: AtomicU32::new(0),
            working: Mutex::default(),
        });
        assert!(self.context.qps[index].set(shared.clone()).is_ok(), "queue pair numbers are drawn once");
        self.local.borrow_mut().qps.push(LocalQp {
            number,
            posted: 0,
            retired: 0,
            depth: u64::from(config.send_depth),
            way: None,
            shared,
            stalled: VecDeque::new(),
            offers: 0,
            receives: false,
        });
        Ok(number)
    }

    fn address(&self, qp: Qp) -> QpAddress {
        let qkey = self.local.borrow().qps[Self::index(qp)].shared.config.qkey;
        QpAddress { node: self.context.node, qpn: qp.0, qkey }
    }

    fn connect(&self, qp: Qp, peer: Option<QpAddress>) -> Result<(), SetupError> {
        let state = &mut *self.local.borrow_mut();
        let Some(LocalQp { shared: local, way, .. }) = Self::find(&mut state.qps, qp) else {
            return Err(SetupError::Invalid(format!("no queue pair {} in this context", qp.0)));
        };
        let transport = local.config.transport;
        if transport != Transport::Ud {
            let Some(address) = peer else {
                return Err(SetupError::Invalid(format!(
                    "a {transport:?} queue pair needs a peer to connect to"
                )));
            };
            let other = self.shared.nodes.get(address.node.index()).and_then(|n| n.qp(Qp(address.qpn)));
            let (node, qpn) = (address.node, address.qpn);
            let Some(other) = other else {
                return Err(SetupError::Invalid(format!("{node} has no queue pair {qpn}")));
            };
            if other.config.transport != transport {
                let theirs = other.config.transport;
                return Err(SetupError::Invalid(format!("cannot connect {transport:?} to {theirs:?}")));
            }
            if local.peer.set(Peer { node, qp: Qp(qpn), end: other.end.clone() }).is_err() {
                return Err(SetupError::Invalid(format!("queue pair {} is already connected", qp.0)));
            }
            local.end.connect_to(End::name(node, Qp(qpn)));
            if transport == Transport::Rc && self.shared.nic_thread.get().is_none() {
                *way = local.peer.get().map(|peer| Way::new(&self.shared, local, peer));
            }
        }
        local.end.set_state(STATE_READY);
        Ok(())
    }

    fn qp_state(&self, qp: Qp) -> QpState {
        match Self::find(&mut self.local.borrow_mut().qps, qp).map(|l| l.shared.end.state()) {
            Some(STATE_INIT) => QpState::Init,
            Some(STATE_READY) => QpState::ReadyToSend,
            _ => QpState::Error,
        }
    }

    fn reset_qp(&self, qp: Qp) {
        let Local { qps, done, .. } = &mut *self.local.borrow_mut();
        let Some(local) = Self::find(qps, qp) else { return };
        let shared = &local.shared;
        if shared.end.state() == STATE_INIT {
            return;
        }
        // In error until it is empty: nobody delivers to it meanwhile.
        shared.end.set_state(STATE_ERROR);
        {
            let _working = shared.working.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
            shared.resets.fetch_add(1, Ordering::AcqRel);
            self.poll_nic_thread(done);
        }
        while !shared.recv.is_empty() {
            flush_receives(shared);
            while shared.recv.take().is_some() {}
            std::hint::spin_loop();
        }
        local.stalled.clear();
        local.offers = 0;
        local.retired = local.posted;
        done.forget(qp);
        shared.end.set_state(STATE_READY);
    }

    #[inline]
    fn post(&self, qp: Qp, chain: &[WorkRequest]) -> Result<(), PostError> {
        let local = &mut *self.local.borrow_mut();
        let mut rest = chain;
        if let Some(queue) = local.qps.get_mut(Self::index(qp))
            && queue.number == qp
        {
            while let [request, behind @ ..] = rest
                && self.post_usual(queue, &mut local.done, request)
            {
                rest = behind;
            }
            if rest.is_empty() && !chain.is_empty() {
                return Ok(());
            }
        }
        self.post_any(local, qp, rest)
    }

    #[inline(always)]
    fn post_one(&self, qp: Qp, request: &WorkRequest) -> Result<(), PostError> {
        let local = &mut *self.local.borrow_mut();
        if let Some(queue) = local.qps.get_mut(Self::index(qp))
            && queue.number == qp
            && self.post_usual(queue, &mut local.done, request)
        {
            return Ok(());
        }
        self.post_any(local, qp, &[*request])
    }

    fn post_recv(&self, qp: Qp, chain: &[RecvRequest]) -> Result<(), PostError> {
        let Local { qps, receiving, .. } = &mut *self.local.borrow_mut();
        let Some(local) = Self::find(qps, qp) else {
            return Err(PostError::UnknownQp { qp });
        };
        if !std::mem::replace(&mut local.receives, true) {
            receiving.push(local.shared.clone());
        }
        for request in chain {
            if !local.shared.recv.post(request) {
                return Err(PostError::QueueFull { qp, depth: local.shared.config.recv_depth });
            }
        }
        Ok(())
    }

    #[inline]
    fn poll(&self, max: usize, mut sink: impl FnMut(Completion)) -> usize {
        let local = &mut *self.local.borrow_mut();
        if local.threaded {
            self.poll_nic_thread(&mut local.done);
        }
        if local.waiting > 0 {
            self.offer_again(local);
        }
        let mut taken = 0;
        while taken < max
            && let Some(done) = local.done.waiting(taken)
        {
            taken += 1;
            let queue = &mut local.qps[Self::index(done.qp)];
            queue.retired = queue.retired.max(done.seq + 1);
            sink(Completion {
                id: done.id,
                qp: done.qp,
                opcode: WcOpcode::SendQueue,
                status: done.status,
                byte_len: 0,
                imm: None,
                from: None,
            });
        }
        local.done.forget_oldest(taken);
        for qp in &local.receiving {
            if qp.end.state() == STATE_ERROR {
                flush_receives(qp);
            }
            while taken < max
                && let Some((id, arrival)) = qp.recv.take()
            {
                taken += 1;
                sink(Completion {
                    id,
                    qp: qp.number,
                    opcode: arrival.opcode,
                    status: arrival.status,
                    byte_len: arrival.byte_len,
                    imm: arrival.imm,
                    from: arrival.from,
                });
            }
        }
        taken
    }

    fn ahead_of(&self, qp: Qp, at: Remote, len: u64) {
        let local = self.local.borrow();
        if let Some(LocalQp { way: Some(way), .. }) = local.qps.get(Self::index(qp)) {
            way.ahead_of(at, len);
        }
    }

    #[inline]
    fn now(&self) -> Nanos {
        self.shared.clock.now()
    }
}

/// Receives of a queue pair in error come back flushed.
fn flush_receives(qp: &SharedQp) {
    while let Some(claim) = qp.recv.claim() {
        claim.publish(super::recv_ring::Arrival {
            byte_len: 0,
            imm: None,
            from: None,
            opcode: WcOpcode::Recv,
            status: WcStatus::Flushed,
        });
    }
}
