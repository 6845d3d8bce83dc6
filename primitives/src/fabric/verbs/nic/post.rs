//! Posting: requests and receives in libibverbs' form, a doorbell for a chain.

use super::super::context::{Local, Named, place};
use super::super::qp::{PostedRecv, QueuePair, SEQ_BITS};
use super::{NOBODYS, RECV, State, VerbsNic, find_region, make_handle};
use crate::fabric::PostError;
use crate::mem::Region;
use crate::verbs::{AddressHandle, Qp, QpState, RecvRequest, Sge, Verb, WorkRequest};
use ibverbs_sys as ffi;
use std::mem::MaybeUninit;

/// Requests in libibverbs' form, linked once and filled again for each post.
#[derive(Default)]
pub(super) struct Chain {
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

impl VerbsNic {
    /// Whether the device takes the payload of a request with it, as asked.
    #[inline]
    pub(super) fn inlines(&self, request: &WorkRequest) -> bool {
        !request.verb.returns_data() && request.local.len <= self.shared.caps.max_inline
    }
}

impl State {
    /// The usual case on a way of its own, which is half as long: one request on a reliable connection that has room, from
    /// a region that this context has used before. Everything else goes the way of chains.
    #[inline(always)]
    pub(super) fn post_one(
        &mut self,
        nic: &VerbsNic,
        qp: Qp,
        request: &WorkRequest,
    ) -> Result<(), PostError> {
        let State { qps, locals, .. } = self;
        let Some(pair) = qps.get_mut(qp.0 as usize) else {
            return Err(PostError::UnknownQp { qp });
        };
        let pair = &mut **pair;
        if pair.send.in_flight() >= pair.short || !pair.make_ready(request, nic, locals) {
            // Not `qp`, which would have to be kept until here.
            let qp = pair.named();
            return self.post_chain(nic, qp, &[*request]);
        }
        let seq = pair.send.push(request.id);
        pair.ready.number(seq);
        let mut bad = MaybeUninit::uninit();
        // SAFETY: the request and its element, to which it was linked there, lie in a box that is borrowed for the call, and the request's `next` has been
        // null since it was made; nobody reads `bad`, since there is one request; the rest is as in `ring`.
        let code = unsafe { (pair.post_send)(pair.raw, &mut pair.ready.request, bad.as_mut_ptr()) };
        if code != 0 {
            return Err(pair.not_taken(code));
        }
        if request.flags.signaled {
            pair.send.will_be_told(0);
        }
        Ok(())
    }

    #[inline(never)]
    pub(super) fn post_chain(
        &mut self,
        nic: &VerbsNic,
        qp: Qp,
        chain: &[WorkRequest],
    ) -> Result<(), PostError> {
        let index = self.find(qp)?;
        let State { qps, locals, chain: built, handles, foreign, broken, .. } = self;
        let pair = &mut *qps[index];
        if !pair.connected {
            let now = if *broken { QpState::Error } else { QpState::Init };
            return Err(PostError::NotReady { qp, state: now });
        }
        built.reserve(chain.len());
        let (room, transport) = (pair.send.room(), pair.config.transport);
        let (mut good, mut refused) = (0u32, None);
        // A later request of the chain may take the place of a region that an earlier one inlines from: such regions are
        // held here until the doorbell has rung.
        let mut displaced = Vec::new();
        let places = built.requests.iter_mut().zip(&mut built.elements);
        for (request, (wr, element)) in chain.iter().zip(places) {
            if let Some(why) = nic.shared.caps.refuse(qp, transport, request) {
                refused = Some(why);
                break;
            }
            if good == room {
                refused = Some(PostError::QueueFull { qp, depth: pair.config.send_depth });
                break;
            }
            if let Verb::Send { to: Some(AddressHandle { node, .. }), .. } = request.verb
                && !matches!(handles.get(node.index()), Some(Some(_)))
                && let Err(errno) = make_handle(nic, handles, foreign, node)
            {
                refused = Some(PostError::Device { qp, errno, taken: good });
                break;
            }
            let slot = &mut locals[place(request.local.lkey.0)];
            if slot.named.name != request.local.lkey.0 {
                displaced.push(find_region(nic, request.local.lkey, slot).region);
            }
            // Of a key that is nobody's the place holds [`BAD_KEY`] and no region.
            let nobodys = if slot.region.is_none() { NOBODYS } else { 0 };
            wr.wr_id = nobodys | (index as u64) << SEQ_BITS | pair.send.enter(good, request.id);
            let inline = if request.flags.inline { inline_flag(request.local, slot) } else { 0 };
            locate(wr, element, request, slot.named, inline);
            match request.verb {
                Verb::Send { to, imm } => {
                    send(wr, imm);
                    if let Some(to) = to {
                        let handle = handles[to.node.index()].as_ref();
                        wr.wr.ud = ffi::ibv_send_wr__bindgen_ty_2__bindgen_ty_3 {
                            ah: handle.map_or(std::ptr::null_mut(), |handle| handle.0),
                            remote_qpn: to.qp.0,
                            remote_qkey: to.qkey,
                        };
                    }
                }
                verb => {
                    if let Some((rkey, offset)) = verb.remote() {
                        reach(wr, &verb, pair.keys.resolve(rkey), offset);
                    }
                }
            }
            good += 1;
        }
        let rung = ring(pair, built, good as usize);
        let taken = &chain[..(room - pair.send.room()) as usize];
        if let Some(at) = taken.iter().rposition(|request| request.flags.signaled) {
            pair.send.will_be_told((taken.len() - 1 - at) as u32);
        }
        if !displaced.is_empty() {
            self.forget_near();
            displaced.into_iter().for_each(|region| self.hold(region));
        }
        rung?;
        match refused {
            None => Ok(()),
            Some(why) => Err(why),
        }
    }

    pub(super) fn post_recv(
        &mut self,
        nic: &VerbsNic,
        qp: Qp,
        chain: &[RecvRequest],
    ) -> Result<(), PostError> {
        let index = self.find(qp)?;
        if self.broken {
            return Err(PostError::NotReady { qp, state: QpState::Error });
        }
        let fits = chain.len().min(self.qps[index].recv.room() as usize);
        self.recvs.0.clear();
        self.recvs.1.clear();
        for request in &chain[..fits] {
            let sge = request.local;
            self.localize(nic, sge.lkey);
            let recv = &mut self.qps[index].recv;
            let posted = PostedRecv { id: request.id, local: sge };
            let seq = recv.enter(self.recvs.0.len() as u32, posted);
            let local = self.locals[place(sge.lkey.0)].named;
            let element =
                ffi::ibv_sge { addr: local.base.wrapping_add(sge.offset), length: sge.len, lkey: local.lkey };
            let mut wr = ffi::ibv_recv_wr { num_sge: 1, ..ffi::ibv_recv_wr::default() };
            wr.wr_id = RECV | (index as u64) << SEQ_BITS | seq;
            self.recvs.0.push(wr);
            self.recvs.1.push(element);
        }
        // Linked when all are in place and the vectors do not move any more.
        let head = self.recvs.0.as_mut_ptr();
        let elements = self.recvs.1.as_mut_ptr();
        for (at, wr) in self.recvs.0.iter_mut().enumerate() {
            wr.sg_list = elements.wrapping_add(at);
            wr.next = if at + 1 < fits { head.wrapping_add(at + 1) } else { std::ptr::null_mut() };
        }
        if fits > 0 {
            let local = &mut self.qps[index];
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
            local.recv.post(taken as u32);
            if code != 0 {
                return Err(PostError::Device { qp, errno: code.abs(), taken: taken as u32 });
            }
            if local.failed {
                local.flush(&nic.shared);
            }
        }
        if fits < chain.len() {
            return Err(PostError::QueueFull { qp, depth: self.qps[index].config.recv_depth });
        }
        Ok(())
    }
}

/// libibverbs reads an inlined payload by itself, so it must lie inside its region. A range that does not is left for the NIC to
/// refuse.
#[inline]
pub(super) fn inline_flag(sge: Sge, local: &Local) -> u32 {
    let holds = |region: &Region| region.holds(sge.offset, u64::from(sge.len));
    if local.region.as_ref().is_some_and(holds) { ffi::ibv_send_flags::IBV_SEND_INLINE.0 } else { 0 }
}

#[inline(always)]
pub(super) fn signaled_flag(request: &WorkRequest) -> u32 {
    u32::from(request.flags.signaled) * ffi::ibv_send_flags::IBV_SEND_SIGNALED.0
}

/// The local side of a request. `local` is what the place of its local key holds: the region, or [`Named::nothing`].
#[inline(always)]
fn locate(
    wr: &mut ffi::ibv_send_wr,
    element: &mut ffi::ibv_sge,
    request: &WorkRequest,
    local: Named,
    inline: u32,
) {
    wr.send_flags = signaled_flag(request) | inline;
    let sge = request.local;
    *element = ffi::ibv_sge { addr: local.base.wrapping_add(sge.offset), length: sge.len, lkey: local.lkey };
}

/// The remote side of a request that has one: the key, and the address of the region there.
#[inline(always)]
pub(super) fn reach(wr: &mut ffi::ibv_send_wr, verb: &Verb, (rkey, base): (u32, u64), offset: u64) {
    let remote_addr = base.wrapping_add(offset);
    wr.opcode = OPCODES[kind(verb) as usize];
    wr.wr.rdma = ffi::ibv_send_wr__bindgen_ty_2__bindgen_ty_1 { remote_addr, rkey };
    if kind(verb) <= SEND {
        return;
    }
    let atomic = |compare_add, swap| ffi::ibv_send_wr__bindgen_ty_2__bindgen_ty_2 {
        remote_addr,
        compare_add,
        swap,
        rkey,
    };
    match *verb {
        Verb::WriteImm { imm, .. } => wr.__bindgen_anon_1.imm_data = imm.to_be(),
        Verb::CompareSwap { expect, swap, .. } => wr.wr.atomic = atomic(expect, swap),
        Verb::FetchAdd { add, .. } => wr.wr.atomic = atomic(add, 0),
        Verb::Read { .. } | Verb::Write { .. } | Verb::Send { .. } => {}
    }
}

/// Codes of operations, by [`kind`].
pub(super) const OPCODES: [ffi::ibv_wr_opcode::Type; 6] = [
    ffi::ibv_wr_opcode::IBV_WR_RDMA_READ,
    ffi::ibv_wr_opcode::IBV_WR_RDMA_WRITE,
    ffi::ibv_wr_opcode::IBV_WR_SEND,
    ffi::ibv_wr_opcode::IBV_WR_RDMA_WRITE_WITH_IMM,
    ffi::ibv_wr_opcode::IBV_WR_ATOMIC_FETCH_AND_ADD,
    ffi::ibv_wr_opcode::IBV_WR_ATOMIC_CMP_AND_SWP,
];

/// READ, WRITE and SEND come first: they say nothing but where, if that. The three behind them are few enough to be compared with one by
/// one, CAS first; of four a compiler makes a table of jumps, five instructions for the two that CAS has.
pub(super) const SEND: u32 = 2;
pub(super) const WRITE_IMM: u32 = 3;
pub(super) const FETCH_ADD: u32 = 4;

/// A verb's place among them as they are declared. What is looked up by it would else be a jump, verb by verb.
#[inline(always)]
pub(super) fn kind(verb: &Verb) -> u32 {
    // SAFETY: `Verb` is `repr(u32)`, so it begins with that number (Rust reference, type layout, primitive representations of enums with
    // fields), and there are six of them.
    unsafe {
        let kind = std::ptr::from_ref(verb).cast::<u32>().read();
        std::hint::assert_unchecked((kind as usize) < OPCODES.len());
        kind
    }
}

/// A SEND, but for where a datagram goes.
#[inline]
pub(super) fn send(wr: &mut ffi::ibv_send_wr, imm: Option<u32>) {
    match imm {
        None => wr.opcode = ffi::ibv_wr_opcode::IBV_WR_SEND,
        Some(imm) => {
            wr.opcode = ffi::ibv_wr_opcode::IBV_WR_SEND_WITH_IMM;
            wr.__bindgen_anon_1.imm_data = imm.to_be();
        }
    }
}

/// Rings the doorbell for the first `len` requests of the chain.
#[inline]
fn ring(pair: &mut QueuePair, built: &mut Chain, len: usize) -> Result<(), PostError> {
    if len == 0 {
        return Ok(());
    }
    let requests = built.requests.as_mut_ptr();
    let last = len - 1;
    let link = std::mem::replace(&mut built.requests[last].next, std::ptr::null_mut());
    let mut bad = std::ptr::null_mut();
    // SAFETY: the chain's requests and elements lie in vectors that nothing resizes during the call, linked up
    // to the null just stored; the queue pair is alive, and `post_send` is what ibv_post_send calls.
    // Registered memory stays alive for as long as its registration, inlined memory is held by `locals`, or by
    // the poster where a chain has replaced a place of theirs.
    let code = unsafe { (pair.post_send)(pair.raw, requests, &mut bad) };
    built.requests[last].next = link;
    pair.send.post(len as u32);
    if code == 0 {
        return Ok(());
    }
    // It names the first request that was not taken.
    let taken = (bad as usize).saturating_sub(requests as usize) / size_of::<ffi::ibv_send_wr>();
    let taken = if bad.is_null() { 0 } else { taken.min(last) };
    pair.send.take_back((len - taken) as u32);
    Err(pair.refused(code, taken as u32))
}

impl QueuePair {
    /// What the context names it by.
    fn named(&self) -> Qp {
        Qp((self.place >> SEQ_BITS) as u32)
    }

    /// Takes back a request that was posted by itself.
    #[cold]
    fn not_taken(&mut self, code: i32) -> PostError {
        self.send.take_back(1);
        self.refused(code, 0)
    }

    #[cold]
    fn refused(&self, code: i32, taken: u32) -> PostError {
        PostError::Device { qp: self.named(), errno: code.abs(), taken }
    }
}
