//! [`SimNic`]: a core's device context, and the only way programs reach the model.

use super::core::Core;
use super::message::{Message, NONE};
use super::model::Model;
use super::qp::QueuePair;
use super::queue::NEVER;
use super::{Shared, queue::Kind};
use crate::fabric::{Caps, CpuWork, Nic, PostError, SetupError};
use crate::mem::{Access, MemoryKeys, Region, ahead};
use crate::units::Nanos;
use crate::verbs::{
    Completion, NodeId, Qp, QpAddress, QpConfig, QpState, RecvRequest, Transport, Verb, WorkRequest,
};
use std::cell::RefMut;
use std::rc::Rc;

/// One simulated core's device context. Clones are handles to the same context.
#[derive(Clone)]
pub struct SimNic {
    pub(super) shared: Rc<Shared>,
    pub(super) core: Rc<Core>,
    pub(super) index: u32,
}

impl SimNic {
    fn model(&self) -> RefMut<'_, Model> {
        self.shared.model.borrow_mut()
    }

    /// Whether the queue pair exists and belongs to this context.
    fn owns(&self, model: &Model, qp: Qp) -> bool {
        model.qps.get(qp.0 as usize).is_some_and(|pair| pair.core == self.index)
    }

    /// Why a request cannot be posted, if it cannot.
    #[inline(always)]
    fn refuse(&self, pair: &QueuePair, qp: Qp, request: &WorkRequest) -> Result<(), PostError> {
        if pair.state == QpState::Init {
            return Err(PostError::NotReady { qp, state: pair.state });
        }
        if !self.shared.caps.one_sided && !matches!(request.verb, Verb::Send { .. }) {
            return Err(PostError::Messages { qp, verb: request.verb.name() });
        }
        if !pair.transport.supports(&request.verb) {
            return Err(PostError::Unsupported { qp, verb: request.verb.name(), transport: pair.transport });
        }
        if let Verb::Send { to, .. } = request.verb
            && to.is_some() != (pair.transport == Transport::Ud)
        {
            return Err(PostError::Destination { qp });
        }
        if request.flags.inline {
            let max = self.shared.caps.max_inline;
            if request.local.len > max || request.verb.returns_data() {
                return Err(PostError::Inline { qp, len: request.local.len, max });
            }
        }
        if pair.occupied() >= pair.send_depth {
            return Err(PostError::QueueFull { qp, depth: pair.send_depth });
        }
        Ok(())
    }

    /// Copies an inline payload. A bad range becomes a local protection error when the request runs.
    #[inline]
    fn copy_inline(model: &mut Model, index: u32) {
        let message = &mut model.messages[index];
        match model.nodes[message.node as usize].local(message.lkey, message.local_offset, message.len) {
            Err(status) => message.status = status,
            Ok(region) => model.arena.fetch(region, message),
        }
    }

    /// When the card has the WQEs of a chain whose doorbell it sees at `rung`: at once if a single one rode with the
    /// doorbell; a chain or a long WQE takes a DMA read.
    #[inline]
    fn fetch_chain(&self, model: &mut Model, qp: Qp, chain: &[WorkRequest], rung: u64) -> u64 {
        let pair = &model.qps[qp.0 as usize];
        let c = &mut model.cards[pair.card as usize];
        let base = if pair.transport == Transport::Ud { c.costs.wqe_datagram } else { c.costs.wqe_connected };
        let bytes = |r: &WorkRequest| base + if r.flags.inline { u64::from(r.local.len) } else { 0 };
        match chain {
            [] => rung,
            [one] if bytes(one) <= c.costs.blueflame_max => rung,
            _ => {
                let lines = chain.iter().map(|r| bytes(r).next_multiple_of(64)).sum();
                let (asked, _) = c.pcie.ask(model.now, rung, lines, &c.costs);
                c.pcie.answer(model.now, asked, lines, &c.costs)
            }
        }
    }

    /// Rings the queue pair's register; in a device context shared between cores, takes its lock first.
    #[inline]
    fn ring(&self, model: &mut Model, qp: Qp) {
        let Some(context) = self.core.shared_context else { return };
        let pair = &model.qps[qp.0 as usize];
        let lock = model.cards[pair.card as usize].costs.doorbell_lock;
        let hold = self.core.cost(CpuWork::Doorbell);
        let registers = &mut model.contexts[context];
        self.core.wait_until(registers.ring(pair.register, self.index, self.core.local_now(), hold, lock));
    }
}

impl Nic for SimNic {
    fn caps(&self) -> &Caps {
        &self.shared.caps
    }

    fn node(&self) -> NodeId {
        NodeId(self.core.node as u16)
    }

    fn register(&self, region: &Region, access: Access) -> Result<MemoryKeys, SetupError> {
        let mut model = self.model();
        let node = &mut model.nodes[self.core.node];
        let limit = self.shared.profile.nic.on_card_memory.value as u64;
        if access.on_card && node.on_card + region.len() > limit {
            let (asked, fabric) = (node.on_card + region.len(), self.shared.caps.fabric.clone());
            return Err(SetupError::Limit { what: "bytes of the card's own memory", asked, limit, fabric });
        }
        Ok(node.register(region, access))
    }

    fn deregister(&self, keys: MemoryKeys) {
        self.model().nodes[self.core.node].deregister(keys.rkey.0);
    }

    fn create_qp(&self, config: &QpConfig) -> Result<Qp, SetupError> {
        self.shared.caps.admit(config)?;
        let mut model = self.model();
        let number = model.qps.len() as u32;
        let register = self.core.shared_context.map_or(0, |c| model.contexts[c].assign(self.index));
        let (node, card) = (self.core.node as u32, self.core.card as u32);
        model.qps.push(QueuePair::new(node, card, self.index, register, *config));
        Ok(Qp(number))
    }

    fn address(&self, qp: Qp) -> QpAddress {
        let model = self.model();
        let qkey = model.qps.get(qp.0 as usize).map_or(0, |pair| pair.far.config.qkey);
        QpAddress { node: self.node(), qpn: qp.0, qkey }
    }

    fn connect(&self, qp: Qp, peer: Option<QpAddress>) -> Result<(), SetupError> {
        let mut model = self.model();
        if !self.owns(&model, qp) {
            return Err(SetupError::Invalid(format!("no queue pair {} in this context", qp.0)));
        }
        let transport = model.qps[qp.0 as usize].transport;
        if transport != Transport::Ud {
            let Some(peer) = peer else {
                return Err(SetupError::Invalid(format!("queue pair {} needs a peer to connect to", qp.0)));
            };
            match model.qps.get(peer.qpn as usize) {
                Some(other) if other.node as usize == peer.node.index() => {
                    if other.transport != transport {
                        return Err(SetupError::Invalid(format!(
                            "queue pair {} is {transport:?}, queue pair {} of {} is {:?}",
                            qp.0, peer.qpn, peer.node, other.transport
                        )));
                    }
                }
                _ => {
                    return Err(SetupError::Invalid(format!("no queue pair {} on {}", peer.qpn, peer.node)));
                }
            }
            model.qps[qp.0 as usize].peer = peer.qpn;
        }
        let pair = &mut model.qps[qp.0 as usize];
        if pair.state == QpState::Init {
            pair.state = QpState::ReadyToSend;
        }
        pair.connected = true;
        Ok(())
    }

    fn qp_state(&self, qp: Qp) -> QpState {
        self.model().qps.get(qp.0 as usize).map_or(QpState::Error, |pair| pair.state)
    }

    fn reset_qp(&self, qp: Qp) {
        let mut model = self.model();
        if self.owns(&model, qp) {
            model.reset(qp.0);
        }
    }

    fn post(&self, qp: Qp, chain: &[WorkRequest]) -> Result<(), PostError> {
        let mut guard = self.model();
        let model = &mut *guard;
        if !self.owns(model, qp) {
            return Err(PostError::UnknownQp { qp });
        }
        self.ring(model, qp);
        let core_now = self.core.local_now();
        let (node, card) = (self.core.node as u32, self.core.card);
        let rung = core_now + model.cards[card].costs.pcie_write;
        let fetched = self.fetch_chain(model, qp, chain, rung);
        for request in chain {
            let pair = &mut model.qps[qp.0 as usize];
            self.refuse(pair, qp, request)?;
            pair.posted = pair.posted.wrapping_add(1);
            let live = pair.state != QpState::Error;
            let index = model.messages.insert(Message::new(request, node, qp.0, pair.transport, pair.posted));
            let mut ready = fetched;
            if !request.flags.inline && !request.verb.returns_data() {
                let c = &mut model.cards[card];
                let (asked, spread) = c.pcie.ask(model.now, fetched, u64::from(request.local.len), &c.costs);
                ready = asked;
                // Of no other use before it has arrived.
                model.messages[index].second = spread;
            }
            if let Verb::Send { to: Some(to), .. } = request.verb {
                let there = model.qps.get(to.qp.0 as usize);
                if there.is_none_or(|other| other.node as usize != to.node.index()) {
                    model.messages[index].to = NONE;
                }
            }
            if request.flags.inline && live {
                SimNic::copy_inline(model, index);
            }
            model.submit(qp.0, index, ready, core_now);
        }
        Ok(())
    }

    #[inline]
    fn post_recv(&self, qp: Qp, chain: &[RecvRequest]) -> Result<(), PostError> {
        let mut model = self.model();
        if !self.owns(&model, qp) {
            return Err(PostError::UnknownQp { qp });
        }
        let now = self.core.local_now();
        let pair = &mut model.qps[qp.0 as usize];
        for recv in chain {
            if pair.far.recvs.len() >= pair.far.config.recv_depth as usize {
                return Err(PostError::QueueFull { qp, depth: pair.far.config.recv_depth });
            }
            let depth = pair.far.config.recv_depth;
            pair.far.recvs.push(recv, depth);
        }
        if pair.state == QpState::Error {
            model.flush_recvs(qp.0, now);
        }
        Ok(())
    }

    #[inline]
    fn poll(&self, max: usize, mut sink: impl FnMut(Completion)) -> usize {
        let now = self.core.local_now();
        let mut taken = 0;
        while taken < max {
            // The queue is not borrowed while the sink runs: it may post.
            let Some(entry) = self.core.take(now) else { break };
            if let Some(position) = entry.retires {
                self.model().qps[entry.completion.qp.0 as usize].retired = position;
            }
            taken += 1;
            sink(entry.completion);
        }
        taken
    }

    #[inline]
    fn expected(&self) -> Option<Completion> {
        self.core.peek()
    }

    #[inline]
    fn ahead(&self, qp: Qp) {
        self.shared.model.borrow().qps.get(qp.0 as usize).map(ahead);
    }

    #[inline]
    fn now(&self) -> Nanos {
        Nanos(self.core.local_now() / 1000)
    }

    /// A core's clock runs ahead of the event it handles by the work charged since; memory effects happen at the event.
    #[inline]
    fn event_time(&self) -> Nanos {
        Nanos(self.core.event_at.get() / 1000)
    }

    #[inline]
    fn charge(&self, work: CpuWork) {
        self.core.charge(work);
    }

    fn wake_at(&self, at: Nanos) {
        let at = at.0.saturating_mul(1000).min(NEVER);
        if at == NEVER || at == self.core.timer.get() {
            return;
        }
        self.core.timer.set(at);
        let mut model = self.model();
        let at = at.max(model.now);
        model.queue.push(at, Kind::Timer, self.index);
    }
}

impl std::fmt::Debug for SimNic {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SimNic({}, core {})", self.node(), self.index)
    }
}
