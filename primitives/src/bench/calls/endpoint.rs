//! One worker's end of the rings: it calls, finds what came, and answers.

use super::message::{answer, control, payload, whole};
use super::{Carrier, Layout, PATIENCE, REPLY_BYTES, SLOTS, answered};
use crate::fabric::{AnyNic, CpuWork, Nic, SetupError};
use crate::mem::{Buf, Region};
use crate::mesh::{Site, Worker};
use crate::units::Nanos;
use crate::verbs::port::{Batch, Received, VerbError};
use crate::verbs::work::GRH_BYTES;
use crate::verbs::{NodeId, Remote, Rkey, WcStatus};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::task::Poll;

/// In place of a group: the slot is free.
const FREE: u32 = u32::MAX;

/// In immediate data: the message is a reply. Above it is the sender's node.
const REPLY: u32 = 1;

/// Why calls failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(in crate::bench) enum CallError {
    #[error(transparent)]
    Verb(#[from] VerbError),
    #[error("{peer} answered call {seq} with {got:#x}, not {expected:#x}")]
    Answer { peer: NodeId, seq: u32, got: u64, expected: u64 },
    #[error("a receive failed: {0}")]
    Receive(WcStatus),
    #[error("none of {open} calls was answered for {waited} ns", waited = .waited.0)]
    Unanswered { open: u32, waited: Nanos },
    #[error("{peer} is gone")]
    Gone { peer: NodeId },
}

/// The memory of the rings, and its keys by node.
pub(in crate::bench) struct Rings<'a> {
    pub(in crate::bench) here: &'a Region,
    pub(in crate::bench) rkeys: &'a [Rkey],
    pub(in crate::bench) layout: Layout,
}

/// A slot that a request has taken.
#[derive(Clone, Copy)]
struct Asked {
    group: u32,
    expected: u64,
}

struct Peer {
    /// Where its memory is.
    rkey: Rkey,
    /// The last request sent to it.
    sent: u32,
    /// Requests up to this one were answered, where replies are looked for in order.
    answered: u32,
    /// Its requests up to this one were found.
    found: u32,
    /// By slot.
    asked: Box<[Asked]>,
    open: u32,
    /// Tasks that wait for a slot.
    waiting: VecDeque<u32>,
    /// What requests and replies are sent from, by slot: free when the slot is, since by then what it held has arrived.
    requests: Box<[Buf]>,
    replies: Box<[Buf]>,
}

/// The calls that a coroutine waits for together.
#[derive(Clone, Copy, Default)]
struct Group {
    open: u32,
    task: u32,
}

#[derive(Default)]
struct State {
    /// By node, this one too.
    peers: Vec<Peer>,
    groups: Vec<Group>,
    /// Requests found and not yet served, replies made and not yet sent: of whom, and which.
    inbox: VecDeque<(NodeId, u32)>,
    out: Vec<(NodeId, u32)>,
    failed: Option<CallError>,
    open: u32,
    answers: u64,
    /// For patience: how many answers there were, and since when there have been no more.
    stood: (u64, Nanos),
}

/// One worker's end.
pub(in crate::bench) struct Calls {
    net: Worker,
    carrier: Carrier,
    layout: Layout,
    node: NodeId,
    worker: u16,
    region: Region,
    patience: Nanos,
    state: RefCell<State>,
}

impl Calls {
    /// An end with a group for each of `coroutines`; receives are posted.
    pub(in crate::bench) fn new(
        carrier: Carrier,
        rings: &Rings<'_>,
        site: &Site,
        coroutines: u32,
    ) -> Result<Rc<Calls>, SetupError> {
        let (net, layout) = (&site.net, rings.layout);
        let pool = |e| SetupError::Invalid(format!("buffers of calls: {e}"));
        let bufs = |bytes: u32| -> Result<Box<[Buf]>, SetupError> {
            (0..SLOTS).map(|_| net.port.buf(bytes).map_err(pool)).collect()
        };
        let mut peers = Vec::new();
        for &rkey in &rings.rkeys[..net.reach()] {
            peers.push(Peer {
                rkey,
                sent: 0,
                answered: 0,
                found: 0,
                asked: vec![Asked { group: FREE, expected: 0 }; SLOTS as usize].into(),
                open: 0,
                waiting: VecDeque::with_capacity(coroutines as usize),
                requests: bufs(layout.request_bytes())?,
                replies: bufs(REPLY_BYTES)?,
            });
        }
        if carrier == Carrier::WriteImm {
            post_receives(net)?;
        }
        let unread = peers.len() * SLOTS as usize;
        let state = State {
            peers,
            groups: vec![Group::default(); coroutines as usize],
            inbox: VecDeque::with_capacity(unread),
            out: Vec::with_capacity(unread),
            ..State::default()
        };
        let (real, simulated) = PATIENCE;
        Ok(Rc::new(Calls {
            net: net.clone(),
            carrier,
            layout,
            node: site.node,
            worker: site.worker,
            region: rings.here.clone(),
            patience: if net.port.nic().caps().virtual_time { simulated } else { real },
            state: RefCell::new(State { stood: (0, site.start), ..state }),
        }))
    }

    pub(super) fn net(&self) -> &Worker {
        &self.net
    }

    fn charge(&self, work: CpuWork) {
        self.net.port.nic().charge(work);
    }

    /// Calls each of `peers` once, with payloads drawn by `seed`, and waits for all of them. `group` is the coroutine's own.
    pub(in crate::bench) async fn call(
        &self,
        group: u32,
        peers: &[NodeId],
        mut seed: impl FnMut() -> u64,
    ) -> Result<(), CallError> {
        let task = self.net.sched.current();
        self.state.borrow_mut().groups[group as usize] = Group { open: peers.len() as u32, task };
        let mut left = peers;
        while let Some(&next) = left.first() {
            let (before, mut batch) = (left.len(), self.net.port.batch());
            while let Some((&peer, rest)) = left.split_first()
                && self.ask(&mut batch, peer, group, &mut seed)
            {
                left = rest;
            }
            // Of requests that were refused nothing is told later, so that others would wait for them in vain.
            batch.post_passive().inspect_err(|error| self.fail((*error).into()))?;
            if left.len() == before {
                self.room(next).await?;
            }
        }
        answered(|| {
            let state = self.state.borrow();
            (state.failed, state.groups[group as usize].open)
        })
        .await
    }

    /// Adds a request to `batch`, if the next slot is free.
    fn ask(
        &self,
        batch: &mut Batch<'_, AnyNic>,
        peer: NodeId,
        group: u32,
        seed: &mut impl FnMut() -> u64,
    ) -> bool {
        let state = &mut *self.state.borrow_mut();
        let to = &mut state.peers[peer.index()];
        let seq = to.sent.wrapping_add(1);
        let slot = (seq % SLOTS) as usize;
        if to.asked[slot].group != FREE {
            return false;
        }
        let (buf, words, seed) = (&to.requests[slot], self.layout.words, seed());
        (0..words).for_each(|i| buf.set_word(i, payload(seed, i)));
        buf.set_word(words, control(seq, (0..words).map(|i| buf.word(i))));
        self.charge(CpuWork::RpcEncode);
        let at = self.layout.request(self.worker, self.node, seq);
        let at = Remote { node: peer, rkey: to.rkey, offset: at };
        let len = self.layout.request_bytes();
        match self.carrier {
            Carrier::WriteImm => batch.write_imm(at, buf, len, u32::from(self.node.0) << 1),
            Carrier::TwoWrites | Carrier::WriteSend => batch.write(at, buf, 0, len),
        }
        to.asked[slot] = Asked { group, expected: answer((0..words).map(|i| buf.word(i))) };
        to.sent = seq;
        to.open += 1;
        state.open += 1;
        true
    }

    /// Waits until the next slot to a peer is free.
    async fn room(&self, peer: NodeId) -> Result<(), CallError> {
        std::future::poll_fn(|_| {
            let state = &mut *self.state.borrow_mut();
            if let Some(failed) = state.failed {
                return Poll::Ready(Err(failed));
            }
            let to = &mut state.peers[peer.index()];
            if to.asked[(to.sent.wrapping_add(1) % SLOTS) as usize].group == FREE {
                return Poll::Ready(Ok(()));
            }
            to.waiting.push_back(self.net.sched.current());
            Poll::Pending
        })
        .await
    }

    /// One look at every ring. Returns how many messages it found.
    pub(super) fn sweep(&self) -> usize {
        if !self.carrier.polls_memory() {
            return 0;
        }
        let state = &mut *self.state.borrow_mut();
        let (mut looks, mut found) = (0, 0);
        for peer in (0..state.peers.len() as u16).map(NodeId).filter(|peer| *peer != self.node) {
            looks += 1;
            found += self.take_requests(state, peer);
            // Where nothing is owed there is nothing to look for.
            if self.carrier == Carrier::TwoWrites && state.peers[peer.index()].open > 0 {
                looks += 1;
                found += self.take_replies(state, peer);
            }
        }
        self.charge(CpuWork::Poll);
        self.charge(CpuWork::Copy(8 * looks));
        (0..found).for_each(|_| self.charge(CpuWork::Completion));
        found
    }

    /// Takes what completions brought. Returns how many.
    pub(super) fn arrivals(&self) -> usize {
        let mut taken = 0;
        while let Some(message) = self.net.port.next_received() {
            taken += 1;
            if message.status != WcStatus::Success {
                self.fail(CallError::Receive(message.status));
                continue;
            }
            let state = &mut *self.state.borrow_mut();
            match (self.carrier, message.imm, message.from) {
                // The completion says where to look; what came over another lane may not be its turn yet, or be there already.
                (Carrier::WriteImm, Some(imm), _) if ((imm >> 1) as usize) < state.peers.len() => {
                    let peer = NodeId((imm >> 1) as u16);
                    if imm & REPLY == 0 {
                        self.take_requests(state, peer);
                    } else {
                        self.take_replies(state, peer);
                    }
                }
                (Carrier::WriteSend, _, Some((peer, _))) if peer.index() < state.peers.len() => {
                    self.take_datagram(state, peer, &message);
                }
                // Of nobody who calls here.
                _ => {}
            }
            let Received { buf, qp, .. } = message;
            if let Err(refused) = self.net.port.post_recv(qp, buf) {
                state.fail(&self.net, VerbError::from(refused).into());
            }
        }
        taken
    }

    fn take_requests(&self, state: &mut State, peer: NodeId) -> usize {
        let from = &mut state.peers[peer.index()];
        let mut found = 0;
        loop {
            let seq = from.found.wrapping_add(1);
            let at = self.layout.request(self.worker, peer, seq);
            if !whole(seq, self.layout.words, |i| self.region.load(at + i as u64 * 8)) {
                return found;
            }
            self.charge(CpuWork::RpcDecode);
            from.found = seq;
            found += 1;
            state.inbox.push_back((peer, seq));
        }
    }

    fn take_replies(&self, state: &mut State, peer: NodeId) -> usize {
        let mut found = 0;
        loop {
            let seq = state.peers[peer.index()].answered.wrapping_add(1);
            let at = self.layout.reply(self.worker, peer, seq);
            if !whole(seq, 1, |i| self.region.load(at + i as u64 * 8)) {
                return found;
            }
            self.charge(CpuWork::RpcDecode);
            state.peers[peer.index()].answered = seq;
            found += 1;
            self.end(state, peer, seq, self.region.load(at));
        }
    }

    /// A reply by SEND, in whatever order.
    fn take_datagram(&self, state: &mut State, peer: NodeId, message: &Received) {
        let word = |i: usize| message.buf.word(GRH_BYTES as usize / 8 + i);
        let seq = (word(1) >> 32) as u32;
        self.charge(CpuWork::RpcDecode);
        if message.byte_len == GRH_BYTES + REPLY_BYTES && whole(seq, 1, word) {
            self.end(state, peer, seq, word(0));
        }
    }

    /// A call has its answer: its slot is free, and its coroutine may go on.
    fn end(&self, state: &mut State, peer: NodeId, seq: u32, got: u64) {
        let to = &mut state.peers[peer.index()];
        let slot = &mut to.asked[(seq % SLOTS) as usize];
        let Asked { group, expected } = std::mem::replace(slot, Asked { group: FREE, expected: 0 });
        if group == FREE {
            return;
        }
        to.open -= 1;
        if let Some(task) = to.waiting.pop_front() {
            self.net.sched.wake(task);
        }
        state.open -= 1;
        state.answers += 1;
        let group = &mut state.groups[group as usize];
        group.open -= 1;
        if group.open == 0 {
            self.net.sched.wake(group.task);
        }
        if got != expected {
            state.fail(&self.net, CallError::Answer { peer, seq, got, expected });
        }
    }

    /// Serves the request that was found first.
    pub(super) fn serve_one(&self) -> bool {
        let state = &mut *self.state.borrow_mut();
        let Some((peer, seq)) = state.inbox.pop_front() else { return false };
        self.charge(CpuWork::RpcDispatch);
        let words = self.layout.words;
        let at = self.layout.request(self.worker, peer, seq);
        let answer = answer((0..words as u64).map(|i| self.region.load(at + i * 8)));
        self.charge(CpuWork::Copy(words as u32 * 8));
        let buf = &state.peers[peer.index()].replies[(seq % SLOTS) as usize];
        buf.set_word(0, answer);
        buf.set_word(1, control(seq, [answer].into_iter()));
        self.charge(CpuWork::RpcEncode);
        state.out.push((peer, seq));
        true
    }

    pub(super) fn backlog(&self) -> bool {
        !self.state.borrow().inbox.is_empty()
    }

    /// Sends the replies of what was served since the last time.
    pub(super) fn flush(&self) {
        let state = &mut *self.state.borrow_mut();
        if state.out.is_empty() {
            return;
        }
        let queue = self.net.rpc.datagrams();
        let mut batch = self.net.port.batch();
        let State { peers, out, .. } = state;
        for (peer, seq) in out.drain(..) {
            let to = &peers[peer.index()];
            let buf = &to.replies[(seq % SLOTS) as usize];
            let at = self.layout.reply(self.worker, self.node, seq);
            let at = Remote { node: peer, rkey: to.rkey, offset: at };
            match self.carrier {
                Carrier::TwoWrites => batch.write(at, buf, 0, REPLY_BYTES),
                Carrier::WriteImm => {
                    batch.write_imm(at, buf, REPLY_BYTES, u32::from(self.node.0) << 1 | REPLY);
                }
                Carrier::WriteSend => {
                    if let Some(way) = self.net.rpc.way_to(peer) {
                        batch.send(queue, way, buf, REPLY_BYTES);
                    }
                }
            }
        }
        if let Err(error) = batch.post_passive() {
            state.fail(&self.net, error.into());
        }
    }

    /// Has the core driven again as soon as it is free, where somebody else decides: it polls memory without a pause. One that
    /// costs nothing would never let time pass.
    pub(super) fn look_again(&self) {
        let nic = self.net.port.nic();
        if self.carrier.polls_memory() {
            nic.wake_at(Nanos(nic.now().0.max(nic.event_time().0 + 1)));
        }
    }

    /// Gives calls up that nobody answers.
    pub(super) fn tick(&self, now: Nanos) {
        while let Some(peer) = self.net.port.nic().lost() {
            self.fail(CallError::Gone { peer });
        }
        let state = &mut *self.state.borrow_mut();
        if state.open == 0 || state.stood.0 != state.answers {
            state.stood = (state.answers, now);
        }
        let waited = now.since(state.stood.1);
        if waited > self.patience {
            state.fail(&self.net, CallError::Unanswered { open: state.open, waited });
        }
    }

    fn fail(&self, error: CallError) {
        self.state.borrow_mut().fail(&self.net, error);
    }
}

impl State {
    /// Nothing will come of the calls any more: whoever waits is told.
    #[cold]
    fn fail(&mut self, net: &Worker, error: CallError) {
        self.failed.get_or_insert(error);
        self.groups.iter().filter(|group| group.open > 0).for_each(|group| net.sched.wake(group.task));
        for peer in &mut self.peers {
            peer.waiting.drain(..).for_each(|task| net.sched.wake(task));
        }
    }
}

/// Receives for as many messages as peers may have under way: requests, and replies to as many of ours.
fn post_receives(net: &Worker) -> Result<(), SetupError> {
    let failed = |e: VerbError| SetupError::Invalid(format!("receives of calls: {e}"));
    for &qp in (0..net.reach() as u16).flat_map(|node| net.pairs_to(NodeId(node))) {
        for _ in 0..2 * SLOTS {
            let buf = net.port.buf(8).map_err(|e| failed(e.into()))?;
            net.port.post_recv(qp, buf).map_err(|e| failed(e.into()))?;
        }
    }
    Ok(())
}

#[cfg(test)]
impl Calls {
    /// Has the rings begin behind request `seq`, in both directions.
    pub(super) fn begin_at(&self, seq: u32) {
        for peer in &mut self.state.borrow_mut().peers {
            (peer.sent, peer.answered, peer.found) = (seq, seq, seq);
        }
    }
}
