//! What a request does, once somebody executes it: shared by the posting thread and the NIC thread.

use super::recv_ring::{Arrival, Claim};
use super::{End, Node, Peer, STATE_ERROR, STATE_READY, Shared, SharedQp};
use crate::fabric::regions::Registered;
use crate::mem::{Access, Region};
use crate::verbs::work::GRH_BYTES;
use crate::verbs::{
    AddressHandle, Lkey, NodeId, Qp, Remote, Rkey, Sge, Transport, Verb, WcOpcode, WcStatus, WorkRequest,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

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

/// What a READ, WRITE or ATOMIC on a reliable connection looks at, gathered when it was connected.
pub(super) struct Way {
    /// Both ends, and what they hold while the connection runs.
    here: (Arc<End>, u64),
    there: (Arc<End>, u64),
    peer: Arc<Node>,
    home: Arc<Node>,
    /// The regions named last. Mostly they are named again.
    local: Arc<Registered>,
    remote: Arc<Registered>,
}

impl Way {
    pub(super) fn new(shared: &Shared, qp: &SharedQp, peer: &Peer) -> Way {
        let node = |id: NodeId| shared.nodes[id.index()].clone();
        let running = |node: NodeId, qp: Qp| End::running(End::name(node, qp));
        Way {
            here: (qp.end.clone(), running(peer.node, peer.qp)),
            there: (peer.end.clone(), running(qp.node, qp.number)),
            home: node(qp.node),
            peer: node(peer.node),
            local: Registered::nothing(),
            remote: Registered::nothing(),
        }
    }

    /// Does a READ or WRITE, or an ATOMIC on words, if nothing is wrong with it; says whether. What is wrong,
    /// [`Shared::execute`] tells.
    #[inline(always)]
    pub(super) fn move_words(&mut self, request: &WorkRequest) -> bool {
        let runs = self.here.0.holds(self.here.1)
            && self.there.0.holds(self.there.1)
            && self.peer.alive.load(Ordering::Relaxed);
        let sge = request.local;
        let Some((rkey, offset)) = request.verb.remote() else { return false };
        if !self.local.has_lkey(sge.lkey) || !self.remote.has_rkey(rkey) {
            self.look_up(sge.lkey, rkey);
            return false;
        }
        let (local, remote) = (&self.local.region, &self.remote.region);
        let access = &self.remote.access;
        let word = || words(local, sge, remote, offset);
        runs && match request.verb {
            Verb::Read { .. } if access.remote_read => match word() {
                // Lock words and headers: by far the most frequent length.
                Some((here, there)) => {
                    here.store(there.load(Ordering::SeqCst), Ordering::Release);
                    true
                }
                None => copy_checked((remote, offset), (local, sge.offset), sge.len),
            },
            Verb::Write { .. } if access.remote_write => match word() {
                Some((here, there)) => {
                    there.store(here.load(Ordering::Acquire), Ordering::Release);
                    true
                }
                None => copy_checked((local, sge.offset), (remote, offset), sge.len),
            },
            Verb::CompareSwap { expect, swap, .. } if access.remote_atomic => {
                word().is_some_and(|(here, _)| {
                    here.store(remote.compare_swap(offset, expect, swap), Ordering::Release);
                    true
                })
            }
            Verb::FetchAdd { add, .. } if access.remote_atomic => word().is_some_and(|(here, _)| {
                here.store(remote.fetch_add(offset, add), Ordering::Release);
                true
            }),
            _ => false,
        }
    }

    /// Asks for what a request may name, if it is in the region named last.
    pub(super) fn ahead_of(&self, at: Remote, len: u64) {
        if self.remote.has_rkey(at.rkey) {
            self.remote.region.ahead(at.offset, len);
        }
    }

    /// For the next request: this one is looked up by whoever executes it.
    #[cold]
    fn look_up(&mut self, lkey: Lkey, rkey: Rkey) {
        if let Some(local) = self.home.regions.by_lkey(lkey) {
            self.local = local;
        }
        if let Some(remote) = self.peer.regions.by_rkey(rkey) {
            self.remote = remote;
        }
    }
}

/// The one whole word that a request moves, at both ends, if it is one and is there.
#[inline(always)]
fn words<'r>(
    local: &'r Region,
    sge: Sge,
    remote: &'r Region,
    offset: u64,
) -> Option<(&'r AtomicU64, &'r AtomicU64)> {
    if sge.len != 8 || !(sge.offset | offset).is_multiple_of(8) {
        return None;
    }
    Some((local.word(sge.offset)?, remote.word(offset)?))
}

/// Copies if both regions hold their range; says whether.
fn copy_checked((from, from_offset): (&Region, u64), (to, to_offset): (&Region, u64), len: u32) -> bool {
    let len = u64::from(len);
    let holds = from.holds(from_offset, len) && to.holds(to_offset, len);
    if holds {
        Region::copy(from, from_offset, to, to_offset, len);
    }
    holds
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
        let answers = to.end.holds(End::running(End::name(qp.node, qp.number)))
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
                        receiver.end.set_state(STATE_ERROR);
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
            || receiver.end.state() != STATE_READY
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
        // Its range, eight bytes, was checked when the local key was.
        let _ = local.write_bytes(at, &seen.to_le_bytes());
    }
    Ok(Outcome::Done(WcStatus::Success))
}
