//! One worker thread's context: posting and polling.

use super::context::{BAD_KEY, Context, KeyTable, Local, MAX_REGIONS, place};
use super::device::Device;
use super::qp::{CompletionQueue, Handle, Peer, PostedRecv, QueuePair, SEQ_BITS};
use super::status::status;
use super::{ContextCard, KnownQp, Path, Shared, first_psn};
use crate::fabric::{Caps, Nic, PostError, SetupError};
use crate::mem::{Access, MemoryKeys, Region};
use crate::units::Nanos;
use crate::verbs::{
    AddressHandle, Completion, Lkey, NodeId, Qp, QpAddress, QpConfig, QpState, RecvRequest, Transport, Verb,
    WcOpcode, WcStatus, WorkRequest,
};
use ibverbs_sys as ffi;
use std::cell::RefCell;
use std::mem::MaybeUninit;
use std::sync::Arc;

/// Completions taken from the device at a time.
const POLL_BATCH: usize = 64;
/// Set in the hardware's id of a receive. Below it come the queue pair's index and the place in its queue.
const RECV: u64 = 1 << 63;
const INDEX_MASK: u64 = (1 << 22) - 1;

/// A libibverbs device context. Owned by one thread.
///
/// Fields drop in this order: queue pairs, then the address handles and the completion queue they use, then the
/// context with its registrations.
pub struct VerbsNic {
    state: RefCell<State>,
    context: Arc<Context>,
    shared: Arc<Shared>,
    node: NodeId,
}

struct State {
    qps: Vec<QueuePair>,
    numbers: Numbers,
    handles: Vec<Option<Handle>>,
    cq: CompletionQueue,
    /// Regions by the place of their name, as far as this context has used them.
    locals: Box<[Option<Local>]>,
    chain: Chain,
    recvs: (Vec<ffi::ibv_recv_wr>, Vec<ffi::ibv_sge>),
    polled: Box<[MaybeUninit<ffi::ibv_wc>]>,
    /// Who sends datagrams: number, node, GID; sorted by number.
    senders: Vec<Sender>,
    /// What nodes of other processes have told.
    foreign: Vec<Option<Foreign>>,
    lost: Lost,
    /// The completion queue failed: nothing more will be heard of what was posted.
    broken: bool,
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
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Sender {
    qpn: u32,
    node: NodeId,
    gid: [u8; 16],
}

/// Requests in libibverbs' form, linked once and filled again for each post.
#[derive(Default)]
struct Chain {
    requests: Vec<ffi::ibv_send_wr>,
    elements: Vec<ffi::ibv_sge>,
}

impl Chain {
    /// Makes room for `len` requests. Grows only until the longest chain was seen.
    #[inline]
    fn reserve(&mut self, len: usize) {
        if self.requests.len() < len {
            self.grow(len.next_power_of_two().max(64));
        }
    }

    #[cold]
    fn grow(&mut self, len: usize) {
        self.requests.resize_with(len, ffi::ibv_send_wr::default);
        self.elements.resize_with(len, || ffi::ibv_sge { addr: 0, length: 0, lkey: 0 });
        let first = self.requests.as_mut_ptr();
        let elements = self.elements.as_mut_ptr();
        for (at, request) in self.requests.iter_mut().enumerate() {
            // The last link points one past the end; a post cuts the chain before it gets there.
            request.next = first.wrapping_add(at + 1);
            request.sg_list = elements.wrapping_add(at);
            request.num_sge = 1;
        }
    }
}

/// Queue pair numbers to indices: open addressing over a table at most half full.
#[derive(Default)]
struct Numbers {
    slots: Vec<(u32, u32)>,
    len: usize,
}

const FREE: u32 = u32::MAX;

impl Numbers {
    #[inline]
    fn get(&self, number: u32) -> Option<usize> {
        let mask = self.slots.len().wrapping_sub(1);
        let mut at = number as usize;
        while let Some(&(known, index)) = self.slots.get(at & mask) {
            if known == number {
                return Some(index as usize);
            }
            if known == FREE {
                return None;
            }
            at = at.wrapping_add(1);
        }
        None
    }

    fn insert(&mut self, number: u32, index: u32) {
        if self.slots.len() < (self.len + 1) * 2 {
            let old = std::mem::take(&mut self.slots);
            self.slots = vec![(FREE, 0); ((self.len + 1) * 4).next_power_of_two()];
            for (number, index) in old.into_iter().filter(|slot| slot.0 != FREE) {
                self.place(number, index);
            }
        }
        self.place(number, index);
        self.len += 1;
    }

    fn place(&mut self, number: u32, index: u32) {
        let mask = self.slots.len() - 1;
        let mut at = number as usize & mask;
        while self.slots[at].0 != FREE {
            at = (at + 1) & mask;
        }
        self.slots[at] = (number, index);
    }
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
        let cq = CompletionQueue::new(&context, entries)?;
        let state = State {
            qps: Vec::new(),
            numbers: Numbers::default(),
            handles: std::iter::repeat_with(|| None).take(shared.nodes.len()).collect(),
            cq,
            locals: std::iter::repeat_with(|| None).take(MAX_REGIONS).collect(),
            chain: Chain::default(),
            recvs: Default::default(),
            polled: std::iter::repeat_with(MaybeUninit::uninit).take(POLL_BATCH).collect(),
            senders: Vec::new(),
            foreign: std::iter::repeat_with(|| None).take(shared.nodes.len()).collect(),
            lost: Lost::new(shared.nodes.len()),
            broken: false,
        };
        Ok(VerbsNic { state: RefCell::new(state), context, shared, node })
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
    #[inline]
    fn find(&mut self, qp: Qp) -> Result<usize, PostError> {
        self.numbers.get(qp.0).ok_or(PostError::UnknownQp { qp })
    }

    /// Makes sure that the region of a local key is in the table, if the key is good.
    #[inline]
    fn localize(&mut self, nic: &VerbsNic, lkey: Lkey) {
        let slot = &mut self.locals[place(lkey.0)];
        if slot.as_ref().is_none_or(|local| local.name != lkey.0) {
            find_region(nic, lkey, slot);
        }
    }

    /// The address handle of a node, made when the first datagram goes there.
    #[cold]
    fn make_handle(&mut self, nic: &VerbsNic, qp: Qp, node: NodeId) -> Result<(), PostError> {
        let shared = &nic.shared;
        let here = shared.complete || node == nic.node;
        let path = match self.foreign.get(node.index()) {
            Some(Some(foreign)) => foreign.path,
            Some(None) if here => shared.port.path,
            _ => return Err(PostError::Destination { qp }),
        };
        let made = Handle::new(&nic.context, shared, &path);
        let handle = made.map_err(|errno| PostError::Device { qp, errno, taken: 0 })?;
        self.handles[node.index()] = Some(handle);
        Ok(())
    }

    /// What a request asks that its queue pair or the device cannot do.
    #[inline]
    fn refuse(qp: &QueuePair, request: &WorkRequest, max: u32) -> Option<PostError> {
        let (number, transport) = (qp.number, qp.config.transport);
        if !transport.supports(&request.verb) {
            let verb = request.verb.name();
            return Some(PostError::Unsupported { qp: number, verb, transport });
        }
        let len = request.local.len;
        if request.flags.inline && (request.verb.returns_data() || len > max) {
            return Some(PostError::Inline { qp: number, len, max });
        }
        if matches!(request.verb, Verb::Send { to: Some(_), .. }) != (transport == Transport::Ud) {
            return Some(PostError::Destination { qp: number });
        }
        None
    }

    /// Fills place `at` of the chain from a request that was found good.
    #[inline]
    fn fill(&mut self, index: usize, at: usize, request: &WorkRequest) {
        let State { qps, locals, chain, handles, .. } = self;
        let qp = &mut qps[index];
        let seq = qp.send.enter(at as u64, request.id);
        let wr = &mut chain.requests[at];
        let element = &mut chain.elements[at];
        wr.wr_id = (index as u64) << SEQ_BITS | seq;
        let sge = request.local;
        let local = locals[place(sge.lkey.0)].as_ref().filter(|local| local.name == sge.lkey.0);
        let mut flags = if request.flags.signaled { ffi::ibv_send_flags::IBV_SEND_SIGNALED.0 } else { 0 };
        *element = match local {
            Some(local) => {
                // libibverbs reads an inlined payload by itself, so it must lie inside its region. A range that does
                // not is left for the NIC to refuse.
                if request.flags.inline && local.region.holds(sge.offset, u64::from(sge.len)) {
                    flags |= ffi::ibv_send_flags::IBV_SEND_INLINE.0;
                }
                ffi::ibv_sge { addr: local.base.wrapping_add(sge.offset), length: sge.len, lkey: local.lkey }
            }
            None => ffi::ibv_sge { addr: 0, length: sge.len, lkey: BAD_KEY },
        };
        wr.send_flags = flags;
        let remote = |rkey, offset: u64| {
            // Connected queue pairs have a peer; without one the key is bad.
            let (key, base) = qp.peer.as_ref().map_or((BAD_KEY, 0), |peer| peer.keys.resolve(rkey));
            (key, base.wrapping_add(offset))
        };
        match request.verb {
            Verb::Read { rkey, offset } => {
                wr.opcode = ffi::ibv_wr_opcode::IBV_WR_RDMA_READ;
                let (rkey, remote_addr) = remote(rkey, offset);
                wr.wr.rdma = ffi::ibv_send_wr__bindgen_ty_2__bindgen_ty_1 { remote_addr, rkey };
            }
            Verb::Write { rkey, offset } => {
                wr.opcode = ffi::ibv_wr_opcode::IBV_WR_RDMA_WRITE;
                let (rkey, remote_addr) = remote(rkey, offset);
                wr.wr.rdma = ffi::ibv_send_wr__bindgen_ty_2__bindgen_ty_1 { remote_addr, rkey };
            }
            Verb::WriteImm { rkey, offset, imm } => {
                wr.opcode = ffi::ibv_wr_opcode::IBV_WR_RDMA_WRITE_WITH_IMM;
                wr.__bindgen_anon_1.imm_data = imm.to_be();
                let (rkey, remote_addr) = remote(rkey, offset);
                wr.wr.rdma = ffi::ibv_send_wr__bindgen_ty_2__bindgen_ty_1 { remote_addr, rkey };
            }
            Verb::Send { to, imm } => {
                wr.opcode = match imm {
                    None => ffi::ibv_wr_opcode::IBV_WR_SEND,
                    Some(imm) => {
                        wr.__bindgen_anon_1.imm_data = imm.to_be();
                        ffi::ibv_wr_opcode::IBV_WR_SEND_WITH_IMM
                    }
                };
                if let Some(to) = to {
                    let ah =
                        handles[to.node.index()].as_ref().map_or(std::ptr::null_mut(), |handle| handle.0);
                    wr.wr.ud = ffi::ibv_send_wr__bindgen_ty_2__bindgen_ty_3 {
                        ah,
                        remote_qpn: to.qp.0,
                        remote_qkey: to.qkey,
                    };
                }
            }
            Verb::CompareSwap { rkey, offset, expect, swap } => {
                wr.opcode = ffi::ibv_wr_opcode::IBV_WR_ATOMIC_CMP_AND_SWP;
                let (rkey, remote_addr) = remote(rkey, offset);
                wr.wr.atomic = ffi::ibv_send_wr__bindgen_ty_2__bindgen_ty_2 {
                    remote_addr,
                    compare_add: expect,
                    swap,
                    rkey,
                };
            }
            Verb::FetchAdd { rkey, offset, add } => {
                wr.opcode = ffi::ibv_wr_opcode::IBV_WR_ATOMIC_FETCH_AND_ADD;
                let (rkey, remote_addr) = remote(rkey, offset);
                wr.wr.atomic = ffi::ibv_send_wr__bindgen_ty_2__bindgen_ty_2 {
                    remote_addr,
                    compare_add: add,
                    swap: 0,
                    rkey,
                };
            }
        }
    }

    /// Rings the doorbell for the first `len` requests of the chain.
    #[inline]
    fn ring(&mut self, index: usize, len: usize) -> Result<(), PostError> {
        if len == 0 {
            return Ok(());
        }
        let requests = self.chain.requests.as_mut_ptr();
        let last = len - 1;
        let link = std::mem::replace(&mut self.chain.requests[last].next, std::ptr::null_mut());
        let mut bad = std::ptr::null_mut();
        let qp = &mut self.qps[index];
        // SAFETY: the chain's requests and elements lie in vectors that nothing resizes during the call, linked up
        // to the null just stored; the queue pair is alive; its context's post_send is what ibv_post_send calls.
        // Registered memory stays alive for as long as its registration, inlined memory is held by `locals`.
        let code = unsafe {
            match (*(*qp.raw).context).ops.post_send {
                Some(post_send) => post_send(qp.raw, requests, &mut bad),
                None => 95,
            }
        };
        self.chain.requests[last].next = link;
        if code == 0 {
            qp.send.post(len as u64);
            return Ok(());
        }
        // libibverbs names the first request that was not taken.
        let taken = (bad as usize).saturating_sub(requests as usize) / size_of::<ffi::ibv_send_wr>();
        let taken = if bad.is_null() { 0 } else { taken.min(last) };
        qp.send.post(taken as u64);
        Err(PostError::Device { qp: qp.number, errno: code.abs(), taken: taken as u32 })
    }

    /// Who sent a datagram. Numbers of queue pairs are unique on a device; where two devices gave the same one, the
    /// GID in the routing header tells.
    fn sender(&mut self, nic: &VerbsNic, qpn: u32, recv: &PostedRecv) -> Option<(NodeId, Qp)> {
        let first = self.senders.partition_point(|s| s.qpn < qpn);
        let found = self.senders[first..].iter().take_while(|s| s.qpn == qpn);
        let node = match found.clone().count() {
            0 => {
                let known = nic.shared.qp(qpn).filter(|_| nic.shared.complete)?;
                self.senders.insert(first, Sender { qpn, node: known.node, gid: [0; 16] });
                known.node
            }
            1 => self.senders[first].node,
            _ => {
                let local = self.locals[place(recv.local.lkey.0)].as_ref()?;
                let mut header = [0; 40];
                local.region.read_bytes(recv.local.offset, &mut header).ok()?;
                found.clone().find(|s| s.gid == source_gid(&header))?.node
            }
        };
        Some((node, Qp(qpn)))
    }

    #[inline]
    fn complete(&mut self, nic: &VerbsNic, wc: &ffi::ibv_wc) -> Option<Completion> {
        let id = wc.wr_id();
        let qp = self.qps.get_mut((id >> SEQ_BITS & INDEX_MASK) as usize)?;
        let status = match wc.error() {
            None => WcStatus::Success,
            Some((code, _)) => status(code, id & RECV != 0),
        };
        let number = qp.number;
        if !matches!(status, WcStatus::Success | WcStatus::Flushed)
            && !std::mem::replace(&mut qp.failed, true)
        {
            qp.flush(&nic.shared);
            if status == WcStatus::RetryExceeded
                && let Some(peer) = &qp.peer
            {
                self.lost.add(peer.node);
            }
        }
        if id & RECV == 0 {
            let id = qp.send.retire(id)?;
            return Some(Completion {
                id,
                qp: number,
                opcode: WcOpcode::SendQueue,
                status,
                byte_len: 0,
                imm: None,
                from: None,
            });
        }
        let transport = qp.config.transport;
        let recv = qp.recv.retire(id)?;
        let ok = status == WcStatus::Success;
        let with_imm = ok && wc.opcode() == ffi::ibv_wc_opcode::IBV_WC_RECV_RDMA_WITH_IMM;
        let from = if ok && transport == Transport::Ud { self.sender(nic, wc.src_qp, &recv) } else { None };
        Some(Completion {
            id: recv.id,
            qp: number,
            opcode: if with_imm { WcOpcode::RecvRdmaWithImm } else { WcOpcode::Recv },
            status,
            byte_len: if ok { wc.len() as u32 } else { 0 },
            imm: wc.imm_data().map(u32::from_be),
            from,
        })
    }
}

impl State {
    /// Ends what was posted before the completion queue failed, at most `max` requests and receives at a time. Whether a
    /// request ran nobody can tell any more; that the device does no more of it, resetting the queue pairs makes sure.
    #[cold]
    fn give_up(&mut self, nic: &VerbsNic, max: usize, sink: &mut impl FnMut(Completion)) -> usize {
        if !std::mem::replace(&mut self.broken, true) {
            self.qps.iter_mut().for_each(|qp| qp.withdraw(&nic.shared));
        }
        let mut taken = 0;
        for qp in &mut self.qps {
            while taken < max {
                let (id, opcode) = if let Some(id) = qp.send.oldest() {
                    (id, WcOpcode::SendQueue)
                } else if let Some(recv) = qp.recv.oldest() {
                    (recv.id, WcOpcode::Recv)
                } else {
                    break;
                };
                let (qp, status) = (qp.number, WcStatus::Fatal);
                sink(Completion { id, qp, opcode, status, byte_len: 0, imm: None, from: None });
                taken += 1;
            }
        }
        taken
    }
}

/// The source in a global routing header. On RoCE v2 over IPv4 the header's last 20 bytes are the IPv4 header
/// (RoCE v2 annex, A17.4.5.2).
fn source_gid(header: &[u8; 40]) -> [u8; 16] {
    let mut gid = [0; 16];
    if header[20] == 0x45 && header[0] >> 4 != 6 {
        gid[10..12].fill(0xff);
        gid[12..].copy_from_slice(&header[32..36]);
    } else {
        gid.copy_from_slice(&header[8..24]);
    }
    gid
}

#[cold]
fn find_region(nic: &VerbsNic, lkey: Lkey, slot: &mut Option<Local>) {
    *slot = nic.shared.localize(nic.node, &nic.context, lkey);
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
        let slot = &mut self.state.borrow_mut().locals[place(keys.lkey.0)];
        if slot.as_ref().is_some_and(|local| local.name == keys.lkey.0) {
            *slot = None;
        }
        self.shared.deregister(self.node, keys);
    }

    fn create_qp(&self, config: &QpConfig) -> Result<Qp, SetupError> {
        let caps = &self.shared.caps;
        for (what, asked, limit) in [
            ("send queue depth", config.send_depth, caps.max_send_depth),
            ("receive queue depth", config.recv_depth, caps.max_recv_depth),
            ("READs in flight per queue pair", config.max_rd_atomic, caps.max_rd_atomic),
        ] {
            if asked == 0 || asked > limit {
                let (asked, limit) = (u64::from(asked), u64::from(limit));
                return Err(SetupError::Limit { what, asked, limit, fabric: caps.fabric.clone() });
            }
        }
        let state = &mut *self.state.borrow_mut();
        let qp = QueuePair::create(&self.context, &mut state.cq, config, &self.shared)?;
        let number = qp.number;
        let known = KnownQp {
            node: self.node,
            transport: config.transport,
            psn: first_psn(self.context.psn, number.0),
            keys: self.context.keys.clone(),
        };
        self.shared.qps.write().unwrap_or_else(|p| p.into_inner()).insert(number.0, known);
        state.numbers.insert(number.0, state.qps.len() as u32);
        state.qps.push(qp);
        Ok(number)
    }

    fn address(&self, qp: Qp) -> QpAddress {
        let state = &mut *self.state.borrow_mut();
        let qkey = state.find(qp).map_or(0, |index| state.qps[index].config.qkey);
        QpAddress { node: self.node, qpn: qp.0, qkey }
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
        let (path, psn, keys) = match self.known(&address, transport)? {
            Some(known) => (self.shared.port.path, known.psn, known.keys),
            None => match &state.foreign[node.index()] {
                Some(foreign) => (foreign.path, first_psn(foreign.psn, qpn), foreign.keys.clone()),
                None => {
                    return Err(SetupError::Invalid(format!("{node} has not introduced itself")));
                }
            },
        };
        state.qps[index].connect(&self.shared, Some(Peer { node, qpn, path, psn, keys }))
    }

    fn card(&self) -> Vec<u8> {
        let state = self.state.borrow();
        let datagrams = state.qps.iter().filter(|qp| qp.config.transport == Transport::Ud);
        let card = ContextCard {
            path: self.shared.port.path,
            psn: self.context.psn,
            datagrams: datagrams.map(|qp| qp.number.0).collect(),
            keys: self.context.keys.list(),
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
        let keys = KeyTable::new();
        for key in card.keys {
            keys.set(key);
        }
        if peer != self.node {
            *slot = Some(Foreign { path: card.path, psn: card.psn, keys: Arc::new(keys) });
            state.handles[peer.index()] = None;
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

    #[inline]
    fn lost(&self) -> Option<NodeId> {
        self.state.borrow_mut().lost.untold.pop()
    }

    fn reset_qp(&self, qp: Qp) {
        let state = &mut *self.state.borrow_mut();
        if let Ok(index) = state.find(qp)
            && !state.broken
        {
            state.qps[index].reset(&self.shared);
        }
    }

    #[inline]
    fn post(&self, qp: Qp, chain: &[WorkRequest]) -> Result<(), PostError> {
        let state = &mut *self.state.borrow_mut();
        let index = state.find(qp)?;
        if !state.qps[index].connected {
            let now = if state.broken { QpState::Error } else { QpState::Init };
            return Err(PostError::NotReady { qp, state: now });
        }
        state.chain.reserve(chain.len());
        let room = state.qps[index].send.room();
        let mut good = 0;
        let mut refused = Ok(());
        for request in chain {
            if let Some(why) = State::refuse(&state.qps[index], request, self.shared.caps.max_inline) {
                refused = Err(why);
                break;
            }
            if good as u64 == room {
                refused = Err(PostError::QueueFull { qp, depth: state.qps[index].config.send_depth });
                break;
            }
            if let Verb::Send { to: Some(AddressHandle { node, .. }), .. } = request.verb
                && !matches!(state.handles.get(node.index()), Some(Some(_)))
                && let Err(why) = state.make_handle(self, qp, node)
            {
                refused = Err(why);
                break;
            }
            state.localize(self, request.local.lkey);
            state.fill(index, good, request);
            good += 1;
        }
        state.ring(index, good)?;
        refused
    }

    fn post_recv(&self, qp: Qp, chain: &[RecvRequest]) -> Result<(), PostError> {
        let state = &mut *self.state.borrow_mut();
        let index = state.find(qp)?;
        if state.broken {
            return Err(PostError::NotReady { qp, state: QpState::Error });
        }
        let fits = chain.len().min(state.qps[index].recv.room() as usize);
        state.recvs.0.clear();
        state.recvs.1.clear();
        for request in &chain[..fits] {
            let sge = request.local;
            state.localize(self, sge.lkey);
            let recv = &mut state.qps[index].recv;
            let posted = PostedRecv { id: request.id, local: sge };
            let seq = recv.enter(state.recvs.0.len() as u64, posted);
            let element = match &state.locals[place(sge.lkey.0)] {
                Some(local) if local.name == sge.lkey.0 => ffi::ibv_sge {
                    addr: local.base.wrapping_add(sge.offset),
                    length: sge.len,
                    lkey: local.lkey,
                },
                _ => ffi::ibv_sge { addr: 0, length: sge.len, lkey: BAD_KEY },
            };
            let mut wr = ffi::ibv_recv_wr { num_sge: 1, ..ffi::ibv_recv_wr::default() };
            wr.wr_id = RECV | (index as u64) << SEQ_BITS | seq;
            state.recvs.0.push(wr);
            state.recvs.1.push(element);
        }
        // Linked when all are in place and the vectors do not move any more.
        let head = state.recvs.0.as_mut_ptr();
        let elements = state.recvs.1.as_mut_ptr();
        for (at, wr) in state.recvs.0.iter_mut().enumerate() {
            wr.sg_list = elements.wrapping_add(at);
            wr.next = if at + 1 < fits { head.wrapping_add(at + 1) } else { std::ptr::null_mut() };
        }
        if fits > 0 {
            let local = &mut state.qps[index];
            let mut bad = std::ptr::null_mut();
            // SAFETY: the list lies in vectors that nothing resizes during the call and ends in null; the queue pair
            // is alive; its context's post_recv is what ibv_post_recv calls. Buffers lie in registered regions.
            let code = unsafe {
                match (*(*local.raw).context).ops.post_recv {
                    Some(post_recv) => post_recv(local.raw, head, &mut bad),
                    None => 95,
                }
            };
            let step = size_of::<ffi::ibv_recv_wr>();
            let taken = if code == 0 {
                fits
            } else if bad.is_null() {
                0
            } else {
                ((bad as usize).saturating_sub(head as usize) / step).min(fits - 1)
            };
            local.recv.post(taken as u64);
            if code != 0 {
                return Err(PostError::Device { qp, errno: code.abs(), taken: taken as u32 });
            }
            if local.failed {
                local.flush(&self.shared);
            }
        }
        if fits < chain.len() {
            return Err(PostError::QueueFull { qp, depth: state.qps[index].config.recv_depth });
        }
        Ok(())
    }

    #[inline]
    fn poll(&self, max: usize, mut sink: impl FnMut(Completion)) -> usize {
        let state = &mut *self.state.borrow_mut();
        if state.broken {
            return state.give_up(self, max, &mut sink);
        }
        let mut taken = 0;
        while taken < max {
            let want = (max - taken).min(POLL_BATCH);
            let entries = state.polled.as_mut_ptr().cast::<ffi::ibv_wc>();
            // SAFETY: the queue is alive, and there is room for `want` entries; poll_cq is what ibv_poll_cq calls.
            let got = unsafe {
                match (*(*state.cq.raw).context).ops.poll_cq {
                    Some(poll_cq) => poll_cq(state.cq.raw, want as i32, entries),
                    None => -1,
                }
            };
            let Ok(got) = usize::try_from(got) else {
                return taken + state.give_up(self, max - taken, &mut sink);
            };
            let got = got.min(want);
            for at in 0..got {
                // SAFETY: the device's library has filled the first `got` entries; ibv_wc is `Copy`.
                let wc = unsafe { state.polled[at].assume_init_read() };
                if let Some(completion) = state.complete(self, &wc) {
                    taken += 1;
                    sink(completion);
                }
            }
            if got < want {
                break;
            }
        }
        taken
    }

    #[inline]
    fn now(&self) -> Nanos {
        Nanos(self.shared.clock.now().duration_since(self.shared.started).as_nanos() as u64)
    }
}

impl Drop for VerbsNic {
    fn drop(&mut self) {
        let mut all = self.shared.qps.write().unwrap_or_else(|p| p.into_inner());
        for qp in &self.state.get_mut().qps {
            all.remove(&qp.number.0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verbs::{Flags, Sge};

    #[test]
    fn a_completion_queue_that_fails_ends_what_was_posted_and_refuses_more() {
        let Ok(device) = std::env::var("DOORBELL_VERBS_DEVICE") else {
            println!("SKIPPED: DOORBELL_VERBS_DEVICE is not set");
            return;
        };
        unsafe extern "C" fn fails(_: *mut ffi::ibv_cq, _: i32, _: *mut ffi::ibv_wc) -> i32 {
            -5
        }
        let fabric =
            super::super::Verbs::open(&super::super::Options::parse(&device).unwrap(), 2).expect("opens");
        let [a, b] = [0, 1].map(|node| fabric.context(NodeId(node)).expect("a context"));
        let memory = Region::new(4096);
        let keys = a.register(&memory, Access::ALL).expect("registers");
        let qps = [&a, &b].map(|nic| nic.create_qp(&QpConfig::rc()).expect("creates"));
        a.connect(qps[0], Some(b.address(qps[1]))).expect("connects");
        let local = Sge { lkey: keys.lkey, offset: 0, len: 8 };
        let receives = [1, 2].map(|id| RecvRequest { id, local });
        a.post_recv(qps[0], &receives).expect("room");
        // The other side is not connected: nothing of this completes by itself within the test.
        let send = |id, signaled| WorkRequest {
            id,
            verb: Verb::Send { to: None, imm: None },
            local,
            flags: Flags { signaled, inline: false },
        };
        a.post(qps[0], &[send(7, false), send(8, true)]).expect("room");
        // SAFETY: nobody else uses this context now, and the function has the signature of the one it replaces.
        unsafe { (*a.context.raw()).ops.poll_cq = Some(fails) };
        let mut all = Vec::new();
        assert_eq!(a.poll(3, |c| all.push((c.id, c.status))), 3);
        assert_eq!(a.poll(16, |c| all.push((c.id, c.status))), 1);
        assert_eq!(a.poll(16, |_| {}), 0);
        assert_eq!(all, [7, 8, 1, 2].map(|id| (id, WcStatus::Fatal)));
        let refused = PostError::NotReady { qp: qps[0], state: QpState::Error };
        assert_eq!(a.post(qps[0], &[send(9, true)]), Err(refused));
        assert_eq!(a.post_recv(qps[0], &receives), Err(refused));
        assert_eq!(a.qp_state(qps[0]), QpState::Error);
        assert!(a.connect(qps[0], Some(b.address(qps[1]))).is_err());
        assert_eq!(b.poll(16, |_| {}), 0, "another context is not concerned");
    }

    #[test]
    fn numbers_find_every_queue_pair_and_no_other() {
        let mut numbers = Numbers::default();
        assert_eq!(numbers.get(17), None);
        // Consecutive ones as drivers give them, and ones that collide.
        let all: Vec<u32> = (17..60).chain((1..20).map(|n| n << 12)).collect();
        for (index, &number) in all.iter().enumerate() {
            numbers.insert(number, index as u32);
        }
        for (index, &number) in all.iter().enumerate() {
            assert_eq!(numbers.get(number), Some(index));
        }
        assert_eq!((numbers.get(16), numbers.get(1 << 23)), (None, None));
    }

    #[test]
    fn the_source_is_found_in_both_kinds_of_routing_header() {
        let mut four = [0xaa; 40];
        four[20] = 0x45;
        four[32..36].copy_from_slice(&[10, 0, 0, 7]);
        assert_eq!(source_gid(&four), [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 7]);
        let mut six = [0; 40];
        six[0] = 0x60;
        six[8..24].copy_from_slice(&[7; 16]);
        assert_eq!(source_gid(&six), [7; 16]);
    }
}
