//! What a request does, once somebody executes it: shared by the posting thread and the NIC thread.

use super::recv_ring::{Arrival, Claim};
use super::{End, Node, Peer, STATE_ERROR, STATE_READY, Shared, SharedQp};
use crate::mem::{Access, Region};
use crate::verbs::work::GRH_BYTES;
use crate::verbs::{AddressHandle, NodeId, Qp, Rkey, Sge, Transport, Verb, WcOpcode, WcStatus, WorkRequest};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// How executing a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// Completed with this status.
    Done(WcStatus),
    /// The receiver had no RECV posted; offer it again later.
    ReceiverNotReady,
}

/// How words are copied: at once, or with a pause between words so that others may see the middle.
pub(super) trait CopyWords: Fn(&Region, u64, &Region, u64, u64) {}

impl<F: Fn(&Region, u64, &Region, u64, u64)> CopyWords for F {}

/// What a READ or WRITE on a connection looks at, gathered when it was connected.
pub(super) struct Way {
    here: Arc<End>,
    there: Arc<End>,
    /// This end's name, which the other end must know as its peer's.
    name: u64,
    home: Arc<Node>,
    peer: Arc<Node>,
}

impl Way {
    pub(super) fn new(shared: &Shared, qp: &SharedQp, peer: &Peer) -> Way {
        let node = |id: NodeId| shared.nodes[id.index()].clone();
        Way {
            here: qp.end.clone(),
            there: peer.end.clone(),
            name: End::name(qp.node, qp.number),
            home: node(qp.node),
            peer: node(peer.node),
        }
    }

    /// Does a READ or WRITE, if nothing is wrong with it; says whether. What is wrong, [`Shared::execute`] tells.
    #[inline(always)]
    pub(super) fn move_words(&self, request: &WorkRequest) -> bool {
        let (reads, rkey, offset) = match request.verb {
            Verb::Read { rkey, offset } => (true, rkey, offset),
            Verb::Write { rkey, offset } => (false, rkey, offset),
            _ => return false,
        };
        let (sge, len) = (request.local, u64::from(request.local.len));
        if self.here.state.load(Ordering::Relaxed) != STATE_READY
            || !self.there.takes_from(self.name)
            || !self.peer.alive.load(Ordering::Relaxed)
        {
            return false;
        }
        let Some(here) = self.home.regions.local(sge) else { return false };
        let allowed = |access: &Access| if reads { access.remote_read } else { access.remote_write };
        let Some(there) = self.peer.regions.remote(rkey, offset, len, allowed) else { return false };
        if reads {
            Region::copy(there, offset, here, sge.offset, len);
        } else {
            Region::copy(here, sge.offset, there, offset, len);
        }
        true
    }
}

impl Shared {
    #[inline]
    fn local(&self, node: NodeId, sge: Sge) -> Result<&Region, WcStatus> {
        self.nodes[node.index()].regions.local(sge).ok_or(WcStatus::LocalProtection)
    }

    #[inline]
    fn remote(
        &self,
        node: NodeId,
        rkey: Rkey,
        offset: u64,
        len: u64,
        allowed: impl Fn(&Access) -> bool,
    ) -> Result<&Region, WcStatus> {
        self.nodes[node.index()].regions.remote(rkey, offset, len, allowed).ok_or(WcStatus::RemoteAccess)
    }

    /// Executes one request of `qp`. `payload` replaces the local memory of an inlined request.
    #[inline]
    pub(super) fn execute(
        &self,
        qp: &SharedQp,
        request: &WorkRequest,
        payload: Option<(&Region, u64)>,
        copy: impl CopyWords,
        lose: impl FnOnce() -> bool,
    ) -> Outcome {
        match self.try_execute(qp, request, payload, copy, lose) {
            Ok(outcome) => outcome,
            Err(status) => Outcome::Done(status),
        }
    }

    #[inline]
    fn try_execute(
        &self,
        qp: &SharedQp,
        request: &WorkRequest,
        payload: Option<(&Region, u64)>,
        copy: impl CopyWords,
        lose: impl FnOnce() -> bool,
    ) -> Result<Outcome, WcStatus> {
        let (local, at) = match payload {
            Some(copied) => copied,
            None => (self.local(qp.node, request.local)?, request.local.offset),
        };
        if let Verb::Send { to: Some(to), imm } = request.verb {
            if request.local.len > self.caps.ud_mtu {
                return Err(WcStatus::LocalLength);
            }
            if !lose() {
                self.datagram(qp, to, imm, local, at, request.local.len, copy);
            }
            return Ok(Outcome::Done(WcStatus::Success));
        }
        let Some(to) = qp.peer.get() else { return Err(WcStatus::RemoteOperation) };
        let (peer, peer_qp) = (to.node, to.qp);
        let answers = to.end.takes_from(End::name(qp.node, qp.number))
            && self.nodes[peer.index()].alive.load(Ordering::Relaxed);
        let done = if answers {
            self.perform(peer, peer_qp, request, local, at, copy)
        } else {
            Err(WcStatus::RetryExceeded)
        };
        if qp.config.transport == Transport::Uc {
            // An unreliable connection has neither acknowledgements nor retries: the requester never learns.
            return Ok(Outcome::Done(WcStatus::Success));
        }
        done
    }

    /// Does what a connected requester asks of a peer that answers.
    #[inline]
    fn perform(
        &self,
        peer: NodeId,
        peer_qp: Qp,
        request: &WorkRequest,
        local: &Region,
        at: u64,
        copy: impl CopyWords,
    ) -> Result<Outcome, WcStatus> {
        let len = u64::from(request.local.len);
        match request.verb {
            Verb::Read { rkey, offset } => {
                let from = self.remote(peer, rkey, offset, len, |access| access.remote_read)?;
                copy(from, offset, local, at, len);
                Ok(Outcome::Done(WcStatus::Success))
            }
            Verb::Write { rkey, offset } => {
                let to = self.remote(peer, rkey, offset, len, |access| access.remote_write)?;
                copy(local, at, to, offset, len);
                Ok(Outcome::Done(WcStatus::Success))
            }
            Verb::WriteImm { rkey, offset, imm } => {
                let to = self.remote(peer, rkey, offset, len, |access| access.remote_write)?;
                self.deliver(peer, peer_qp, |claim, _| {
                    copy(local, at, to, offset, len);
                    claim.publish(Arrival {
                        byte_len: request.local.len,
                        imm: Some(imm),
                        from: None,
                        opcode: WcOpcode::RecvRdmaWithImm,
                        status: WcStatus::Success,
                    });
                    WcStatus::Success
                })
            }
            Verb::Send { imm, .. } => self.deliver(peer, peer_qp, |claim, receiver| {
                let fits = request.local.len <= claim.local.len;
                let target = self.local(peer, claim.local);
                let (status, sender) = match target {
                    Ok(to) if fits => {
                        copy(local, at, to, claim.local.offset, len);
                        (WcStatus::Success, WcStatus::Success)
                    }
                    _ => {
                        receiver.end.state.store(STATE_ERROR, Ordering::Release);
                        (WcStatus::LocalLength, WcStatus::RemoteInvalidRequest)
                    }
                };
                claim.publish(Arrival {
                    byte_len: request.local.len,
                    imm,
                    from: None,
                    opcode: WcOpcode::Recv,
                    status,
                });
                sender
            }),
            Verb::CompareSwap { rkey, offset, expect, swap } => {
                let word = self.atomic_word(peer, rkey, offset)?;
                let seen = word.compare_swap(offset, expect, swap);
                store_result(local, at, seen)
            }
            Verb::FetchAdd { rkey, offset, add } => {
                let word = self.atomic_word(peer, rkey, offset)?;
                let seen = word.fetch_add(offset, add);
                store_result(local, at, seen)
            }
        }
    }

    fn atomic_word(&self, peer: NodeId, rkey: Rkey, offset: u64) -> Result<&Region, WcStatus> {
        if !offset.is_multiple_of(8) {
            return Err(WcStatus::RemoteInvalidRequest);
        }
        self.remote(peer, rkey, offset, 8, |access| access.remote_atomic)
    }

    /// Hands a message to a connected receiver, if it has a RECV posted.
    fn deliver(
        &self,
        peer: NodeId,
        peer_qp: Qp,
        fill: impl FnOnce(Claim<'_>, &SharedQp) -> WcStatus,
    ) -> Result<Outcome, WcStatus> {
        let receiver = self.nodes[peer.index()].qp(peer_qp).ok_or(WcStatus::RetryExceeded)?;
        match receiver.recv.claim() {
            None => Ok(Outcome::ReceiverNotReady),
            Some(claim) => Ok(Outcome::Done(fill(claim, receiver))),
        }
    }

    /// Delivers a datagram, or drops it without a word.
    #[allow(clippy::too_many_arguments)]
    fn datagram(
        &self,
        qp: &SharedQp,
        to: AddressHandle,
        imm: Option<u32>,
        local: &Region,
        at: u64,
        len: u32,
        copy: impl CopyWords,
    ) {
        let Some(node) = self.nodes.get(to.node.index()) else { return };
        let Some(receiver) = node.qp(to.qp) else { return };
        if !node.alive.load(Ordering::Relaxed)
            || receiver.config.transport != Transport::Ud
            || receiver.config.qkey != to.qkey
            || receiver.end.state.load(Ordering::Acquire) != STATE_READY
        {
            return;
        }
        let Some(claim) = receiver.recv.claim() else { return };
        let total = len + GRH_BYTES;
        let status = match self.local(to.node, claim.local) {
            Ok(target) if total <= claim.local.len => {
                copy(local, at, target, claim.local.offset + u64::from(GRH_BYTES), u64::from(len));
                WcStatus::Success
            }
            _ => WcStatus::LocalLength,
        };
        claim.publish(Arrival {
            byte_len: total,
            imm,
            from: Some((qp.node, qp.number)),
            opcode: WcOpcode::Recv,
            status,
        });
    }
}

fn store_result(local: &Region, at: u64, seen: u64) -> Result<Outcome, WcStatus> {
    if at.is_multiple_of(8) {
        local.store(at, seen);
    } else {
        // The range was checked when the local key was.
        let _ = local.write_bytes(at, &seen.to_le_bytes());
    }
    Ok(Outcome::Done(WcStatus::Success))
}
