//! The request that a queue pair posted last by itself, in libibverbs' form. The next one is compared with it, and what differs is set
//! anew: mostly addresses, operands and the id, as in a loop that fills a request in once.

use super::super::context::{BAD_KEY, Named, place};
use super::super::qp::QueuePair;
use super::post::{FETCH_ADD, OPCODES, SEND, WRITE_IMM, inline_flag, kind};
use super::{Locals, NOWHERE, VerbsNic};
use crate::verbs::{Rkey, Verb, WorkRequest};
use ibverbs_sys as ffi;

/// A request and its element. It is in its queue pair's box, where it stays: the one points to the other.
pub(in super::super) struct Ready {
    pub(super) request: ffi::ibv_send_wr,
    element: ffi::ibv_sge,
    /// Its local region.
    near: Named,
    /// What it is, as [`kind`] has it, unless it is a SEND.
    kind: u32,
    /// It is an ATOMIC.
    atomic: bool,
    /// Its remote region, and what its peer's table said of changes when it was looked up there.
    far: Named,
    changes: u32,
}

impl Ready {
    pub(in super::super) fn new() -> Ready {
        Ready {
            request: ffi::ibv_send_wr {
                num_sge: 1,
                opcode: OPCODES[SEND as usize],
                ..ffi::ibv_send_wr::default()
            },
            element: ffi::ibv_sge { addr: 0, length: 0, lkey: BAD_KEY },
            kind: NOTHING,
            atomic: false,
            near: NOWHERE,
            far: NOWHERE,
            changes: 0,
        }
    }

    /// Nothing of a local region is known any more.
    pub(in super::super) fn forget_near(&mut self) {
        self.near = NOWHERE;
    }

    /// Nothing of the peer's regions is known any more.
    pub(in super::super) fn forget_far(&mut self) {
        self.far = NOWHERE;
    }
}

impl QueuePair {
    /// Makes the request that is ready the one that is asked for, but for its id and whether it is signaled. Not where that takes more than
    /// looking for names: a region that this context has not used before, a remote one that nobody knows, a payload that cannot be
    /// inlined, immediate data, a SEND to an address.
    // Fields are read where they are used: what is read before has to be kept. Nothing is handed on by reference: the request of whoever
    // knows its verb is never written to memory.
    #[inline(always)]
    pub(super) fn make_ready(&mut self, request: &WorkRequest, nic: &VerbsNic, locals: &Locals) -> bool {
        let name = request.local.lkey.0;
        if name != self.ready.near.name && !self.take_near(locals, name) {
            return false;
        }
        let kind = kind(&request.verb);
        if kind == self.ready.kind || kind != SEND && self.take_kind(kind) {
            // SAFETY: a SEND is never ready as such ([`QueuePair::take_kind`]), so it is equal to nothing that is.
            let remote = || unsafe { request.verb.remote().unwrap_unchecked() };
            let (name, _) = remote();
            let known = name.0 == self.ready.far.name && self.keys.changes() == self.ready.changes;
            if !known && !self.take_far(name) {
                return false;
            }
            let (_, offset) = remote();
            // Where it is in the form of ATOMICs, too.
            self.ready.request.wr.rdma.remote_addr = self.ready.far.base.wrapping_add(offset);
            // READ and WRITE have no operands, and one comparison tells.
            if kind > SEND {
                match request.verb {
                    Verb::FetchAdd { add, .. } if kind == FETCH_ADD => self.take_add(add),
                    Verb::CompareSwap { expect, swap, .. } => {
                        self.ready.request.wr.atomic.compare_add = expect;
                        self.ready.request.wr.atomic.swap = swap;
                    }
                    // SAFETY: as above, and a WRITE with immediate data is neither.
                    _ => unsafe { std::hint::unreachable_unchecked() },
                }
            }
        } else if matches!(request.verb, Verb::Send { to: None, imm: None }) {
            self.take_send();
        } else {
            return false;
        }
        self.ready.request.send_flags = if request.flags.inline {
            if !may_inline(request, nic, locals) {
                return false;
            }
            ffi::ibv_send_flags::IBV_SEND_INLINE.0
        } else {
            0
        };
        self.ready.element.addr = self.ready.near.base.wrapping_add(request.local.offset);
        self.ready.element.length = request.local.len;
        true
    }

    // By a call, or a compiler finds that a CAS and this have half of their operands in common.
    #[inline(never)]
    fn take_add(&mut self, add: u64) {
        self.ready.request.wr.atomic.compare_add = add;
    }

    #[inline(never)]
    fn take_near(&mut self, locals: &Locals, name: u32) -> bool {
        let found = locals[place(name)].named;
        if found.name != name {
            return false;
        }
        self.ready.near = found;
        self.ready.element.lkey = found.lkey;
        self.ready.request.sg_list = &mut self.ready.element;
        true
    }

    #[inline(never)]
    fn take_far(&mut self, name: Rkey) -> bool {
        self.ready.far.name = NOWHERE.name;
        self.ready.changes = self.keys.changes();
        let Some((rkey, base)) = self.keys.find(name) else {
            return false;
        };
        self.ready.far = Named { name: name.0, lkey: rkey, base };
        self.set_rkey();
        true
    }

    /// Makes ready what names remote memory, immediate data aside; nothing else is ever ready as what it is.
    #[inline(never)]
    fn take_kind(&mut self, kind: u32) -> bool {
        if kind == WRITE_IMM {
            return false;
        }
        self.ready.request.opcode = OPCODES[kind as usize];
        (self.ready.kind, self.ready.atomic) = (kind, kind > WRITE_IMM);
        self.set_rkey();
        true
    }

    /// The remote key has another place in ATOMICs.
    fn set_rkey(&mut self) {
        let rkey = self.ready.far.lkey;
        match self.ready.atomic {
            true => self.ready.request.wr.atomic.rkey = rkey,
            false => self.ready.request.wr.rdma.rkey = rkey,
        }
    }

    #[inline(never)]
    fn take_send(&mut self) {
        self.ready.kind = NOTHING;
        self.ready.request.opcode = OPCODES[SEND as usize];
    }
}

/// The [`kind`] that no request is.
const NOTHING: u32 = u32::MAX;

/// Whether the device takes the payload with it, and libibverbs finds it where it reads it.
#[inline(always)]
fn may_inline(request: &WorkRequest, nic: &VerbsNic, locals: &Locals) -> bool {
    nic.inlines(request) && inline_flag(request.local, &locals[place(request.local.lkey.0)]) != 0
}
