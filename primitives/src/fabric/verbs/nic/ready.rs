//! The request that a queue pair posted last by itself, in libibverbs' form. The next one is compared with it, and what differs is set
//! anew: mostly addresses, operands and the id, as in a loop that fills a request in once.

use super::super::context::{BAD_KEY, place};
use super::super::qp::{QueuePair, SEQ_BITS};
use super::post::{FETCH_ADD, OPCODES, SEND, WRITE_IMM, inline_flag, kind, reach, send, signaled_flag};
use super::{Locals, VerbsNic};
use crate::verbs::{Rkey, Verb, WorkRequest};
use ibverbs_sys as ffi;

/// A request and its element. It is in its queue pair's box, where it stays: the one points to the other.
pub(in super::super) struct Ready {
    pub(super) request: ffi::ibv_send_wr,
    element: ffi::ibv_sge,
    /// The name of its local region, [`NO_NAME`] if that is forgotten, and where the region begins.
    near: u64,
    near_base: u64,
    /// What it is, as [`kind`] has it, unless it is a SEND.
    kind: u32,
    /// It is an ATOMIC.
    atomic: bool,
    /// The same of its remote region, with its hardware's key, and what its peer's table said of changes when it was looked up there.
    far: u64,
    far_base: u64,
    rkey: u32,
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
            near: NO_NAME,
            near_base: 0,
            far: NO_NAME,
            far_base: 0,
            rkey: BAD_KEY,
            changes: 0,
        }
    }

    /// Lets the request point to its element, once it is where it stays, and gives its id the place of its queue pair.
    pub(super) fn link(&mut self, place: u64) {
        self.request.sg_list = &raw mut self.element;
        self.request.wr_id = place;
    }

    /// Gives the request the number of its place in the queue. The half of the id above it stays: that is a store less wide, and nothing
    /// is read for it.
    #[inline(always)]
    pub(super) fn number(&mut self, seq: u64) {
        self.request.wr_id = self.request.wr_id >> SEQ_BITS << SEQ_BITS | seq;
    }

    /// Nothing of a local region is known any more.
    pub(in super::super) fn forget_near(&mut self) {
        self.near = NO_NAME;
    }

    /// Nothing of the peer's regions is known any more.
    pub(in super::super) fn forget_far(&mut self) {
        self.far = NO_NAME;
    }
}

impl QueuePair {
    /// Makes the request that is ready the one that is asked for, but for its id. Not where that takes more than
    /// looking for names: a region that this context has not used before, a remote one that nobody knows, a payload that cannot be
    /// inlined, a SEND to an address.
    // Fields are read where they are used, and the box is looked into there: what is read before has to be kept. Nothing is handed on by reference: the request of whoever
    // knows its verb is never written to memory.
    #[inline(always)]
    pub(super) fn make_ready(&mut self, request: &WorkRequest, nic: &VerbsNic, locals: &Locals) -> bool {
        let name = request.local.lkey.0;
        if u64::from(name) != self.ready.near && !self.take_near(locals, name) {
            return false;
        }
        let kind = kind(&request.verb);
        if kind == self.ready.kind || kind != SEND && self.take_kind(kind) {
            // SAFETY: a SEND is never ready as such ([`QueuePair::take_kind`]), so it is equal to nothing that is.
            let remote = || unsafe { request.verb.remote().unwrap_unchecked() };
            let (name, _) = remote();
            let known = u64::from(name.0) == self.ready.far && self.keys.changes() == self.ready.changes;
            if !known && !self.take_far(name) {
                return false;
            }
            let (_, offset) = remote();
            // Where it is in the form of ATOMICs, too.
            self.ready.request.wr.rdma.remote_addr = self.ready.far_base.wrapping_add(offset);
            // READ and WRITE have no operands, and one comparison tells.
            if kind > SEND {
                if kind == FETCH_ADD {
                    if let Verb::FetchAdd { add, .. } = request.verb {
                        self.take_add(add);
                    }
                } else if let Verb::CompareSwap { expect, swap, .. } = request.verb {
                    self.ready.request.wr.atomic.compare_add = expect;
                    self.ready.request.wr.atomic.swap = swap;
                } else {
                    // SAFETY: as above, nor is a WRITE with immediate data.
                    unsafe { std::hint::unreachable_unchecked() }
                }
            }
        } else {
            match request.verb {
                Verb::Send { to: None, imm } => self.take_send(imm),
                Verb::WriteImm { rkey, offset, imm } => {
                    if !self.take_write_imm(rkey, offset, imm) {
                        return false;
                    }
                }
                _ => return false,
            }
        }
        let mut flags = signaled_flag(request);
        if request.flags.inline {
            if !may_inline(request, nic, locals) {
                return false;
            }
            flags |= ffi::ibv_send_flags::IBV_SEND_INLINE.0;
        }
        self.ready.request.send_flags = flags;
        self.ready.element.addr = self.ready.near_base.wrapping_add(request.local.offset);
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
        (self.ready.near, self.ready.near_base) = (name.into(), found.base);
        self.ready.element.lkey = found.lkey;
        true
    }

    #[inline(never)]
    fn take_far(&mut self, name: Rkey) -> bool {
        self.ready.far = NO_NAME;
        self.ready.changes = self.keys.changes();
        let Some((rkey, base)) = self.keys.find(name) else {
            return false;
        };
        (self.ready.far, self.ready.far_base, self.ready.rkey) = (name.0.into(), base, rkey);
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
        let rkey = self.ready.rkey;
        match self.ready.atomic {
            true => self.ready.request.wr.atomic.rkey = rkey,
            false => self.ready.request.wr.rdma.rkey = rkey,
        }
    }

    // What has immediate data is never ready as what it is: one comparison less for all others.
    #[inline(never)]
    fn take_send(&mut self, imm: Option<u32>) {
        self.ready.kind = NOTHING;
        send(&mut self.ready.request, imm);
    }

    #[inline(never)]
    fn take_write_imm(&mut self, name: Rkey, offset: u64, imm: u32) -> bool {
        let known = u64::from(name.0) == self.ready.far && self.keys.changes() == self.ready.changes;
        if !known && !self.take_far(name) {
            return false;
        }
        self.ready.kind = NOTHING;
        let remote = (self.ready.rkey, self.ready.far_base);
        let verb = Verb::WriteImm { rkey: name, offset, imm };
        reach(&mut self.ready.request, &verb, remote, offset);
        true
    }
}

/// A name that nobody can ask for.
const NO_NAME: u64 = u64::MAX;

/// The [`kind`] that no request is.
const NOTHING: u32 = u32::MAX;

/// Whether the device takes the payload with it, and libibverbs finds it where it reads it.
#[inline(always)]
fn may_inline(request: &WorkRequest, nic: &VerbsNic, locals: &Locals) -> bool {
    nic.inlines(request) && inline_flag(request.local, &locals[place(request.local.lkey.0)]) != 0
}
