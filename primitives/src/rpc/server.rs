//! The serving side: exactly-once execution, kept replies, owed acknowledgements.

use super::{Header, Kind, Reader, Rpc, Served, Session, State, Writer};
use crate::fabric::{CpuWork, Nic};
use crate::mem::{Buf, Pinned, PoolExhausted};
use crate::units::Nanos;
use crate::verbs::NodeId;

/// A request as a handler sees it.
pub struct Incoming<'m> {
    /// The caller's node.
    pub from: NodeId,
    /// The handler asked for.
    pub handler: u8,
    /// The payload.
    pub payload: Reader<'m>,
    later: Later,
    deferred: bool,
}

/// A call whose answer was put off: the promise to give it through [`Rpc::give`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Later {
    from: NodeId,
    handler: u8,
    seq: u32,
    call: u32,
}

impl Incoming<'_> {
    /// Puts the answer off: what the handler has written is not sent, and the caller waits until [`Rpc::give`] is given
    /// what this returns. Its repetitions are acknowledged meanwhile, but it repeats itself
    /// only [`super::RpcConfig::max_retransmits`] times. A one-way request has no answer to put off.
    pub fn defer(&mut self) -> Later {
        self.deferred = true;
        self.later
    }
}

/// Where a handler writes its reply. One-way requests have one too; it is not sent.
pub type Reply<'m> = Writer<'m>;

/// What serves requests: plain functions that never wait.
pub trait Service {
    /// Serves one request. It is called once for each request, however often the request arrives. A request
    /// that cannot be understood gets an empty reply, which the caller's reader reports as short.
    fn handle(&mut self, request: &mut Incoming<'_>, reply: &mut Reply<'_>);

    /// When the service wants to look again at calls whose answers it has put off, if there are any.
    fn look_again_at(&self) -> Option<Nanos> {
        None
    }

    /// Looks at them, and answers those it can through [`Rpc::give`].
    fn look_again<N: Nic>(&mut self, _rpc: &Rpc<N>) {}
}

/// Serves nothing: for endpoints that only call.
impl Service for () {
    fn handle(&mut self, _: &mut Incoming<'_>, _: &mut Reply<'_>) {}
}

impl Session {
    /// Whether a sequence number is new, and if so remembers it. `None`: too old or impossibly far ahead.
    fn admit(&mut self, seq: u32) -> Option<bool> {
        let ahead = seq.wrapping_sub(self.done_below).wrapping_sub(1);
        if ahead >= self.served.len() as u32 {
            // Executed before the window, or from a peer that does not keep to the window.
            return if self.done_below.wrapping_sub(seq) < self.served.len() as u32 {
                Some(false)
            } else {
                None
            };
        }
        if self.done_after >> ahead & 1 == 1 {
            return Some(false);
        }
        self.done_after |= 1 << ahead;
        while self.done_after & 1 == 1 {
            self.done_after >>= 1;
            self.done_below = self.done_below.wrapping_add(1);
        }
        Some(true)
    }
}

impl<N: Nic> Rpc<N> {
    /// Serves one request.
    pub(super) fn serve(&self, service: &mut impl Service, message: crate::verbs::port::Received) {
        // Decoded before it was queued; the bytes have not changed since.
        let Ok(header) = Header::decode(&message) else { return };
        let one_way = header.kind == Kind::OneWay;
        // Without a buffer for the reply the request counts as lost: it is not executed, and will come again.
        let Ok(buf) = self.port.buf(self.config.max_message) else { return };
        {
            let state = &mut *self.state.borrow_mut();
            let session = &mut state.sessions[header.from.index()];
            match session.admit(header.seq) {
                Some(true) => {}
                Some(false) => return self.repeat(state, &header),
                None => {
                    state.stats.malformed += 1;
                    return;
                }
            }
            state.stats.served += 1;
        }
        self.port.nic().charge(CpuWork::RpcDispatch);
        let start = Rpc::<N>::header_bytes();
        let mut reply = Writer::new(&buf, start, self.config.max_message);
        let payload = Reader::new(&message.buf, header.len);
        let (from, handler) = (header.from, header.handler);
        let later = Later { from, handler, seq: header.seq, call: header.call };
        let mut incoming = Incoming { from, handler, payload, later, deferred: false };
        service.handle(&mut incoming, &mut reply);
        if incoming.deferred && !one_way {
            // It counts as executed; who repeats it is told so.
            let session = &mut self.state.borrow_mut().sessions[from.index()];
            self.keep(session, Served { seq: header.seq, len: 0, held: Pinned::NONE });
            return;
        }
        // A reply that does not fit is sent empty: the caller's reader says what is missing.
        let len = if reply.overflowed() { 0 } else { reply.len() };
        self.done(&header, one_way, &buf, len);
    }

    /// Gives an answer that was put off; it goes out with the next replies.
    ///
    /// # Errors
    /// If no buffer is left for it; then it can be given again.
    pub fn give(&self, later: Later, write: impl FnOnce(&mut Reply<'_>)) -> Result<(), PoolExhausted> {
        let buf = self.port.buf(self.config.max_message)?;
        let mut reply = Writer::new(&buf, Rpc::<N>::header_bytes(), self.config.max_message);
        write(&mut reply);
        let len = if reply.overflowed() { 0 } else { reply.len() };
        let mut header = Header::new(Kind::Request, later.handler, later.seq, later.call, 0);
        header.from = later.from;
        self.done(&header, false, &buf, len);
        Ok(())
    }

    fn done(&self, header: &Header, one_way: bool, buf: &Buf, len: u32) {
        let state = &mut *self.state.borrow_mut();
        let session = &mut state.sessions[header.from.index()];
        let total = Rpc::<N>::header_bytes() + len;
        if one_way {
            self.keep(session, Served { seq: header.seq, len: 0, held: Pinned::NONE });
            session.owed += 1;
            if session.owed >= session.served.len() as u32 / 2 {
                self.line_up_ack(state, header.from);
            }
            return;
        }
        let Some(to) = session.to else { return };
        self.seal(session, buf, Header::new(Kind::Reply, header.handler, header.seq, header.call, len));
        self.keep(session, Served { seq: header.seq, len: total, held: buf.pin() });
        self.line_up(&mut state.out, (to, buf.clone(), total));
    }

    /// Keeps what became of a request in place of one that is a window older.
    #[inline]
    fn keep(&self, session: &mut Session, served: Served) {
        let index = served.seq as usize & (session.served.len() - 1);
        if let Some(old) = session.served[index].replace(served) {
            self.let_go(old.held);
        }
    }

    /// Answers a duplicate without executing it.
    fn repeat(&self, state: &mut State, header: &Header) {
        state.stats.duplicates += 1;
        let session = &mut state.sessions[header.from.index()];
        let index = header.seq as usize & (session.served.len() - 1);
        match &session.served[index] {
            Some(Served { seq, len, held }) if *seq == header.seq && *held != Pinned::NONE => {
                if let Some(to) = session.to {
                    self.line_up(&mut state.out, (to, self.port.pool().share(*held), *len));
                }
            }
            _ => self.line_up_ack(state, header.from),
        }
    }

    fn line_up_ack(&self, state: &mut State, peer: NodeId) {
        let session = &mut state.sessions[peer.index()];
        let (Some(to), Ok(buf)) = (session.to, self.port.buf(64)) else { return };
        self.seal(session, &buf, Header::new(Kind::Ack, 0, 0, 0, 0));
        state.stats.acks += 1;
        self.line_up(&mut state.out, (to, buf, Rpc::<N>::header_bytes()));
    }

    /// Sends the replies lined up since the last turn, under one doorbell.
    #[inline]
    pub(super) fn flush_replies(&self) {
        self.send_out(&mut self.state.borrow_mut(), true);
        self.idle.set(self.inbox.borrow().is_empty());
    }
}
