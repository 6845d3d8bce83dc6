//! One worker thread's context: set-up here, posting in `nic/post.rs`, polling in `nic/complete.rs`.

mod complete;
mod port;
mod post;
pub(super) mod quiet;
pub(super) mod ready;
mod remains;
#[cfg(test)]
mod tests;

use super::context::{Context, KeyTable, Local, MAX_REGIONS, place};
use super::device::Device;
use super::fit::refuse_unfit;
use super::qp::{CompletionQueue, Handle, Peer, QueuePair};
use super::stamps::{self, Stamps};
use super::{ContextCard, KnownQp, Path, Shared, drawn_qkey, first_psn};
use crate::fabric::{Caps, Nic, PostError, SetupError, Stamped};
use crate::mem::{Access, MemoryKeys, Region};
use crate::units::Nanos;
use crate::verbs::{
    Completion, Lkey, NodeId, Qp, QpAddress, QpConfig, QpState, RecvRequest, Transport, WorkRequest,
};
use ibverbs_sys as ffi;
use port::Notice;
use post::Chain;
use remains::Remains;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::mem::ManuallyDrop;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Completions taken from the device at a time.
const POLL_BATCH: usize = 64;
/// Set in the hardware's id of a receive. Below it come the queue pair's index and the place in its queue.
pub(super) const RECV: u64 = 1 << 63;
/// Set in the hardware's id of a request whose local key is nobody's: not every driver tells that from other failures.
pub(super) const NOBODYS: u64 = 1 << 62;
pub(super) const INDEX_MASK: u64 = (1 << 22) - 1;

/// A libibverbs device context. Owned by one thread.
///
/// What the device knows goes by way of `Remains`: first queue pairs, then the address handles and the completion queue they use,
/// then the context with its registrations.
pub struct VerbsNic {
    state: ManuallyDrop<RefCell<State>>,
    context: Arc<Context>,
    shared: Arc<Shared>,
    node: NodeId,
}

type Locals = Box<[Local; MAX_REGIONS]>;

struct State {
    /// By the numbers that [`Qp`] names them by here.
    #[expect(clippy::vec_box, reason = "a queue pair's request points into it")]
    qps: Vec<Box<QueuePair>>,
    handles: Vec<Option<Handle>>,
    /// Handles of paths that are used no more. Datagrams posted with them may still be under way, so they stay for as long
    /// as the queue pairs.
    retired: Vec<Handle>,
    cq: CompletionQueue,
    /// What `ibv_poll_cq(3)` calls.
    device_polls: PollCq,
    /// What a poll calls: the same, or [`not_now`].
    poll_cq: PollCq,
    stamps: Option<Rc<Stamps>>,
    /// Regions by the place of their name, as far as this context has used them.
    locals: Locals,
    /// Regions that were withdrawn, or whose place another one took, while something was in flight: [`State::hold`].
    withdrawn: Vec<Region>,
    chain: Chain,
    recvs: (Vec<ffi::ibv_recv_wr>, Vec<ffi::ibv_sge>),
    /// Who sends datagrams: number, node, GID; sorted by number.
    senders: Vec<Sender>,
    /// What [`Shared::created`] was when `senders` was last compared with the queue pairs there are.
    senders_of: u64,
    /// What nodes of other processes have told.
    foreign: Vec<Option<Foreign>>,
    lost: Lost,
    notice: Notice,
    /// Polls that found nothing; wraps.
    empty_polls: u32,
    /// The completion queue failed: nothing more will be heard of what was posted.
    broken: bool,
    /// Completions that were taken from the queue to make room in it, and not given to anybody yet.
    kept: VecDeque<ffi::ibv_wc>,
}

type PollCq = unsafe extern "C" fn(*mut ffi::ibv_cq, i32, *mut ffi::ibv_wc) -> i32;

/// In place of a function that a provider does not have.
///
/// # Safety
/// It touches nothing.
unsafe extern "C" fn no_poll_cq(_: *mut ffi::ibv_cq, _: i32, _: *mut ffi::ibv_wc) -> i32 {
    -95 // EOPNOTSUPP
}

/// In place of the device's function where a poll is not the device's: an error, so that one comparison tells both.
///
/// # Safety
/// It touches nothing.
unsafe extern "C" fn not_now(_: *mut ffi::ibv_cq, _: i32, _: *mut ffi::ibv_wc) -> i32 {
    -11 // EAGAIN
}

/// Nodes found gone: a reliable connection to them ran out of retransmissions.
struct Lost {
    /// By node, whether it was found gone before.
    known: Box<[bool]>,
    /// Those nobody has asked about yet. Room for all nodes is there from the start.
    untold: Vec<NodeId>,
}

impl Lost {
    fn new(nodes: usize) -> Lost {
        Lost { known: vec![false; nodes].into_boxed_slice(), untold: Vec::with_capacity(nodes) }
    }

    #[cold]
    fn add(&mut self, node: NodeId) {
        if let Some(known) = self.known.get_mut(node.index())
            && !std::mem::replace(known, true)
        {
            self.untold.push(node);
        }
    }
}

struct Foreign {
    path: Path,
    psn: u32,
    keys: Arc<KeyTable>,
    rd_atomic: Option<u32>,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Sender {
    qpn: u32,
    node: NodeId,
    gid: [u8; 16],
}

impl VerbsNic {
    pub(super) fn open(shared: Arc<Shared>, node: NodeId) -> Result<VerbsNic, SetupError> {
        if node.index() >= shared.nodes.len() {
            let nodes = shared.nodes.len();
            return Err(SetupError::Invalid(format!("{node} does not exist, there are {nodes}")));
        }
        let context = Arc::new(Context::new(Device::open(&shared.options.device)?)?);
        shared.join(node, &context)?;
        let entries = shared.options.cq_entries.clamp(16, shared.limits.max_cqe.max(16));
        let (cq, stamps) = stamps::queue(&context, entries, shared.stamps)?;
        // SAFETY: the context is open, and its queue made: whoever stands before the provider's function is there.
        let poll_cq = unsafe { (*context.raw()).ops.poll_cq }.unwrap_or(no_poll_cq);
        let state = State {
            qps: Vec::new(),
            handles: std::iter::repeat_with(|| None).take(shared.nodes.len()).collect(),
            retired: Vec::new(),
            cq,
            device_polls: poll_cq,
            poll_cq,
            stamps,
            locals: Box::new(std::array::from_fn(Local::nothing)),
            withdrawn: Vec::new(),
            chain: Chain::default(),
            recvs: Default::default(),
            senders: Vec::new(),
            senders_of: 0,
            foreign: std::iter::repeat_with(|| None).take(shared.nodes.len()).collect(),
            lost: Lost::new(shared.nodes.len()),
            notice: Notice::default(),
            empty_polls: 0,
            broken: false,
            kept: VecDeque::new(),
        };
        Ok(VerbsNic { state: ManuallyDrop::new(RefCell::new(state)), context, shared, node })
    }

    /// The state, without a count of who has it, which posts and polls would pay for. Debug builds look whether set-up has it.
    ///
    /// # Safety
    /// Until the reference was used last, nothing may run that comes back to this context: no code of a caller's.
    #[inline(always)]
    #[expect(clippy::mut_from_ref, reason = "callers answer for it, and one thread owns the context")]
    unsafe fn state(&self) -> &mut State {
        debug_assert!(self.state.try_borrow_mut().is_ok());
        // SAFETY: as above. Set-up borrows it by the cell, and calls nothing of a caller's meanwhile.
        unsafe { &mut *self.state.as_ptr() }
    }

    fn known(&self, peer: &QpAddress, transport: Transport) -> Result<Option<KnownQp>, SetupError> {
        let (node, qpn) = (peer.node, peer.qpn);
        if node.index() >= self.shared.nodes.len() {
            return Err(SetupError::Invalid(format!("there is no {node}")));
        }
        if !self.shared.complete && node != self.node {
            return Ok(None);
        }
        match self.shared.qp(qpn) {
            Some(known) if known.node != node => {
                Err(SetupError::Invalid(format!("{node} has no queue pair {qpn}")))
            }
            None => Err(SetupError::Invalid(format!("{node} has no queue pair {qpn}"))),
            Some(known) if known.transport != transport => {
                let theirs = known.transport;
                Err(SetupError::Invalid(format!("cannot connect {transport:?} to {theirs:?}")))
            }
            known => Ok(known),
        }
    }
}

impl State {
    /// The place of a queue pair.
    #[inline]
    fn find(&self, qp: Qp) -> Result<usize, PostError> {
        let at = qp.0 as usize;
        if at < self.qps.len() { Ok(at) } else { Err(PostError::UnknownQp { qp }) }
    }

    /// Makes sure that the region of a local key is in the table, if the key is good.
    #[inline]
    fn localize(&mut self, nic: &VerbsNic, lkey: Lkey) {
        let slot = &mut self.locals[place(lkey.0)];
        if slot.named.name != lkey.0 {
            let displaced = find_region(nic, lkey, slot);
            self.forget_near();
            self.hold(displaced.region);
        }
    }

    /// Keeps a region that requests name no more for as long as a completion may come that its memory was named for, whether it is withdrawn
    /// or another one took its place: of a small receive or READ the payload may lie in the completion's entry, and be copied to its place by
    /// the library when that is polled (libmlx5's scatter to CQE), whatever became of the registration meanwhile. What is kept goes when
    /// another is to be kept and nothing is in flight, else with the context.
    #[cold]
    fn hold(&mut self, region: Option<Region>) {
        let idle = |qp: &QueuePair| qp.send.in_flight() == 0 && qp.recv.in_flight() == 0;
        match self.qps.iter().all(|qp| idle(qp)) {
            true => self.withdrawn.clear(),
            false => {
                let held = |region: &Region| self.withdrawn.iter().any(|held| same(held, region));
                let new = region.filter(|region| !held(region));
                self.withdrawn.extend(new);
            }
        }
    }

    /// No queue pair knows a local region any more: what is at some region's place has changed.
    #[cold]
    fn forget_near(&mut self) {
        self.qps.iter_mut().for_each(|qp| qp.ready.forget_near());
    }
}

/// Whether two are of the same words.
fn same(a: &Region, b: &Region) -> bool {
    a.words().as_ptr() == b.words().as_ptr()
}

/// The address handle of a node, made when the first datagram goes there; the operating system's error number if it cannot be.
#[cold]
fn make_handle(
    nic: &VerbsNic,
    handles: &mut [Option<Handle>],
    foreign: &[Option<Foreign>],
    node: NodeId,
) -> Result<(), i32> {
    let shared = &nic.shared;
    let here = shared.complete || node == nic.node;
    let path = match foreign.get(node.index()) {
        Some(Some(foreign)) => foreign.path,
        Some(None) if here => shared.port.path,
        _ => return Err(NO_ROUTE),
    };
    handles[node.index()] = Some(Handle::new(&nic.context, shared, &path)?);
    Ok(())
}

/// EHOSTUNREACH: there is no such node, or it has not introduced itself.
const NO_ROUTE: i32 = 113;

/// Fills the place of a local key; returns what was there before.
#[cold]
fn find_region(nic: &VerbsNic, lkey: Lkey, slot: &mut Local) -> Local {
    let found = nic.shared.localize(nic.node, &nic.context, lkey);
    std::mem::replace(slot, found.unwrap_or_else(|| Local::nothing(place(lkey.0))))
}

impl Nic for VerbsNic {
    #[inline]
    fn caps(&self) -> &Caps {
        &self.shared.caps
    }

    #[inline]
    fn node(&self) -> NodeId {
        self.node
    }

    fn register(&self, region: &Region, access: Access) -> Result<MemoryKeys, SetupError> {
        self.shared.register(self.node, &self.context, region, access)
    }

    fn deregister(&self, keys: MemoryKeys) {
        let state = &mut *self.state.borrow_mut();
        state.forget_near();
        let slot = &mut state.locals[place(keys.lkey.0)];
        if slot.named.name == keys.lkey.0 {
            let withdrawn = std::mem::replace(slot, Local::nothing(place(keys.lkey.0)));
            state.hold(withdrawn.region);
        }
        self.shared.deregister(self.node, keys);
    }

    fn create_qp(&self, config: &QpConfig) -> Result<Qp, SetupError> {
        self.shared.caps.admit(config)?;
        let mut config = *config;
        if config.transport == Transport::Ud && config.qkey == 0 {
            // Anybody on the network may send datagrams here who knows number and key.
            config.qkey = drawn_qkey();
        }
        let state = &mut *self.state.borrow_mut();
        let qp = QueuePair::create(&self.context, state.qps.len(), &mut state.cq, &config, &self.shared)?;
        let known = KnownQp {
            node: self.node,
            transport: config.transport,
            psn: first_psn(self.context.psn, qp.number),
            keys: self.context.keys.clone(),
        };
        self.shared.qps.write().unwrap_or_else(|p| p.into_inner()).insert(qp.number, known);
        self.shared.created.fetch_add(1, Ordering::Release);
        let mut qp = Box::new(qp);
        qp.ready.link(qp.place);
        state.qps.push(qp);
        Ok(Qp(state.qps.len() as u32 - 1))
    }

    fn address(&self, qp: Qp) -> QpAddress {
        let state = self.state.borrow();
        // Of none it is that of queue pair 0, which is the subnet's own.
        let (qpn, qkey) = state.qps.get(qp.0 as usize).map_or((0, 0), |qp| (qp.number, qp.config.qkey));
        QpAddress { node: self.node, qpn, qkey }
    }

    fn connect(&self, qp: Qp, peer: Option<QpAddress>) -> Result<(), SetupError> {
        let state = &mut *self.state.borrow_mut();
        if state.broken {
            return Err(SetupError::Invalid(
                "the completion queue of this context failed; open another".into(),
            ));
        }
        let index = state.find(qp).map_err(|e| SetupError::Invalid(e.to_string()))?;
        let transport = state.qps[index].config.transport;
        if transport == Transport::Ud {
            return state.qps[index].connect(&self.shared, None);
        }
        let Some(address) = peer else {
            return Err(SetupError::Invalid(format!(
                "a {transport:?} queue pair needs a peer to connect to"
            )));
        };
        let (node, qpn) = (address.node, address.qpn);
        let (path, psn, keys, rd_atomic) = match self.known(&address, transport)? {
            Some(known) => (self.shared.port.path, known.psn, known.keys, None),
            None => match &state.foreign[node.index()] {
                Some(foreign) => {
                    let psn = first_psn(foreign.psn, qpn);
                    (foreign.path, psn, foreign.keys.clone(), foreign.rd_atomic)
                }
                None => {
                    return Err(SetupError::Invalid(format!("{node} has not introduced itself")));
                }
            },
        };
        state.qps[index].connect(&self.shared, Some((Peer { node, qpn, path, psn, rd_atomic }, keys)))
    }

    fn card(&self) -> Vec<u8> {
        let state = self.state.borrow();
        let datagrams = state.qps.iter().filter(|qp| qp.config.transport == Transport::Ud);
        let card = ContextCard {
            path: self.shared.port.path,
            psn: self.context.psn,
            datagrams: datagrams.map(|qp| qp.number).collect(),
            keys: self.context.keys.list(),
            rd_atomic: Some(self.shared.caps.max_rd_atomic),
            pkey: self.shared.port.pkey,
            link_layer: Some(self.shared.port.link_layer().to_owned()),
            gid_kind: self.shared.port.gid_kind.map(str::to_owned),
        };
        // Numbers and lists of them always have a JSON form.
        serde_json::to_vec(&card).unwrap_or_default()
    }

    fn introduce(&self, peer: NodeId, card: &[u8]) -> Result<(), SetupError> {
        if self.shared.complete {
            return Ok(());
        }
        let state = &mut *self.state.borrow_mut();
        let card: ContextCard = serde_json::from_slice(card).map_err(|e| {
            SetupError::Invalid(format!("the card of {peer} is not one of a verbs fabric: {e}"))
        })?;
        let Some(slot) = state.foreign.get_mut(peer.index()) else {
            return Err(SetupError::Invalid(format!("there is no {peer}")));
        };
        refuse_unfit(&self.shared.port, peer, &card)?;
        let keys = KeyTable::new();
        for key in card.keys {
            keys.set(key);
        }
        if peer != self.node {
            let (path, psn, rd_atomic) = (card.path, card.psn, card.rd_atomic);
            let before = slot.replace(Foreign { path, psn, keys: Arc::new(keys), rd_atomic });
            if before.is_none_or(|before| before.path != card.path) {
                state.retired.extend(state.handles[peer.index()].take());
            }
        }
        for qpn in card.datagrams {
            let sender = Sender { qpn, node: peer, gid: card.path.gid };
            if let Err(at) = state.senders.binary_search(&sender) {
                state.senders.insert(at, sender);
            }
        }
        Ok(())
    }

    fn qp_state(&self, qp: Qp) -> QpState {
        let state = &mut *self.state.borrow_mut();
        match state.find(qp) {
            Ok(index) if !state.broken => state.qps[index].state(),
            _ => QpState::Error,
        }
    }

    fn port_down(&self) -> Option<u8> {
        self.port_is_down(false).then_some(self.shared.port.number)
    }

    #[inline]
    fn lost(&self) -> Option<NodeId> {
        self.state.borrow_mut().lost.untold.pop()
    }

    fn stamped(&self) -> Option<Stamped> {
        self.state.borrow().stamps.as_ref().map(|stamps| stamps.so_far())
    }

    fn reset_qp(&self, qp: Qp) {
        let state = &mut *self.state.borrow_mut();
        if let Ok(index) = state.find(qp)
            && !state.broken
        {
            state.qps[index].reset(&self.shared);
            state.clear_queue_of(self, index);
        }
    }

    #[inline(always)]
    fn post(&self, qp: Qp, chain: &[WorkRequest]) -> Result<(), PostError> {
        match chain {
            [request] => self.post_one(qp, request),
            _ => self.state.borrow_mut().post_chain(self, qp, chain),
        }
    }

    // Small enough to be part of whoever posts, where a call would cost a third more.
    #[inline(always)]
    fn post_one(&self, qp: Qp, request: &WorkRequest) -> Result<(), PostError> {
        // SAFETY: nothing of the caller's runs before it returns.
        unsafe { self.state() }.post_one(self, qp, request)
    }

    fn post_recv(&self, qp: Qp, chain: &[RecvRequest]) -> Result<(), PostError> {
        self.state.borrow_mut().post_recv(self, qp, chain)
    }

    #[inline]
    fn poll(&self, max: usize, sink: impl FnMut(Completion)) -> usize {
        self.poll_into(max, sink)
    }

    #[inline]
    fn now(&self) -> Nanos {
        self.shared.clock.now()
    }
}

impl Drop for VerbsNic {
    fn drop(&mut self) {
        // SAFETY: taken once, here, and the value that it is taken from is used no more.
        let state = unsafe { ManuallyDrop::take(&mut self.state) }.into_inner();
        {
            let mut all = self.shared.qps.write().unwrap_or_else(|p| p.into_inner());
            for qp in &state.qps {
                all.remove(&qp.number);
            }
        }
        Remains { _state: state, context: self.context.clone() }.destroy(self);
    }
}
