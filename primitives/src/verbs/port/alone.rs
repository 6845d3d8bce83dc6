//! One verb by itself: what [`Port::read`], [`Port::write`], [`Port::cas`], [`Port::fetch_add`] and [`Port::ask_in`] return.
//!
//! Such a request needs no batch and no group: its entry in its queue names the task that waits for it, and it has ended when its
//! queue has retired it. Its buffer stays in the future, or with its caller, and becomes the entry's as well if the future is dropped before.

use super::group::{Awaited, Owner};
use super::{Batch, Port, State, VerbError};
use crate::fabric::Nic;
use crate::mem::Buf;
use crate::verbs::{NodeId, Remote, Verb};
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

/// What is asked for, and what comes of it.
pub trait Ask: Copy + Unpin {
    /// What the future resolves to.
    type Output;

    /// The verb.
    fn verb(self, at: Remote) -> Verb;

    /// Bytes of the buffer that it needs, if it brings none.
    fn bytes(self) -> u32;

    /// The result, once the NIC is done with the buffer.
    fn output(buf: Buf) -> Self::Output;
}

/// A READ of so many bytes.
#[derive(Clone, Copy)]
pub struct Read(pub u32);

impl Ask for Read {
    type Output = Buf;

    #[inline]
    fn verb(self, Remote { rkey, offset, .. }: Remote) -> Verb {
        Verb::Read { rkey, offset }
    }
    #[inline]
    fn bytes(self) -> u32 {
        self.0
    }
    #[inline]
    fn output(buf: Buf) -> Buf {
        buf
    }
}

/// A WRITE of a whole buffer, which it brings.
#[derive(Clone, Copy)]
pub struct Write;

impl Ask for Write {
    type Output = Buf;

    #[inline]
    fn verb(self, Remote { rkey, offset, .. }: Remote) -> Verb {
        Verb::Write { rkey, offset }
    }
    #[inline]
    fn bytes(self) -> u32 {
        0
    }
    #[inline]
    fn output(buf: Buf) -> Buf {
        buf
    }
}

/// A compare-and-swap.
#[derive(Clone, Copy)]
pub struct Cas {
    /// The value that the word must have.
    pub expect: u64,
    /// The value that it gets then.
    pub swap: u64,
}

impl Ask for Cas {
    type Output = u64;

    #[inline]
    fn verb(self, Remote { rkey, offset, .. }: Remote) -> Verb {
        Verb::CompareSwap { rkey, offset, expect: self.expect, swap: self.swap }
    }
    #[inline]
    fn bytes(self) -> u32 {
        8
    }
    #[inline]
    fn output(buf: Buf) -> u64 {
        buf.word(0)
    }
}

/// A fetch-and-add.
#[derive(Clone, Copy)]
pub struct FetchAdd(pub u64);

impl Ask for FetchAdd {
    type Output = u64;

    #[inline]
    fn verb(self, Remote { rkey, offset, .. }: Remote) -> Verb {
        Verb::FetchAdd { rkey, offset, add: self.0 }
    }
    #[inline]
    fn bytes(self) -> u32 {
        8
    }
    #[inline]
    fn output(buf: Buf) -> u64 {
        buf.word(0)
    }
}

/// One request by itself: posted when first polled, done with what its verb returns.
#[must_use = "a verb is posted when it is awaited"]
pub struct Alone<'p, N: Nic, A: Ask> {
    port: &'p Port<N>,
    step: Step<A>,
    /// From when it is posted, or brought, until it is done.
    buf: Option<Buf>,
}

#[derive(Clone, Copy)]
enum Step<A> {
    Asked(Remote, A),
    Posted(Awaited),
    Done,
}

impl<'p, N: Nic, A: Ask> Alone<'p, N, A> {
    #[inline]
    pub(super) fn new(port: &'p Port<N>, at: Remote, ask: A, buf: Option<Buf>) -> Alone<'p, N, A> {
        Alone { port, step: Step::Asked(at, ask), buf }
    }
}

impl<N: Nic, A: Ask> Future for Alone<'_, N, A> {
    type Output = Result<A::Output, VerbError>;

    #[inline]
    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        if let Step::Asked(at, ask) = this.step {
            this.step = Step::Done;
            let buf = match &mut this.buf {
                Some(buf) => buf,
                none => none.insert(this.port.buf(ask.bytes())?),
            };
            // Whatever ends from here on wakes this task.
            this.step = Step::Posted(this.port.ask(at.node, ask.verb(at), buf)?);
            if !this.port.ends_in_post {
                return Poll::Pending;
            }
        }
        // One that has ended is not polled again; if it is, it never wakes.
        let Step::Posted(awaited) = this.step else { return Poll::Pending };
        let Some(ended) = this.port.ended(awaited) else { return Poll::Pending };
        this.step = Step::Done;
        let buf = this.buf.take().expect("a posted request has a buffer");
        Poll::Ready(ended.map(|()| A::output(buf)))
    }
}

impl<N: Nic, A: Ask> Drop for Alone<'_, N, A> {
    #[inline]
    fn drop(&mut self) {
        if let Step::Posted(awaited) = self.step {
            self.port.leave(awaited, self.buf.as_ref());
        }
    }
}

/// One request in a buffer that stays its caller's: nothing is handed on and back for it.
#[must_use = "a verb is posted when it is awaited"]
pub struct InBuf<'p, N: Nic, A: Ask> {
    port: &'p Port<N>,
    step: Step<A>,
    buf: &'p Buf,
}

impl<'p, N: Nic, A: Ask> InBuf<'p, N, A> {
    #[inline]
    pub(super) fn new(port: &'p Port<N>, at: Remote, ask: A, buf: &'p Buf) -> InBuf<'p, N, A> {
        InBuf { port, step: Step::Asked(at, ask), buf }
    }
}

impl<N: Nic, A: Ask> Future for InBuf<'_, N, A> {
    type Output = Result<(), VerbError>;

    #[inline]
    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        if let Step::Asked(at, ask) = this.step {
            this.step = Step::Done;
            this.step = Step::Posted(this.port.ask(at.node, ask.verb(at), this.buf)?);
            if !this.port.ends_in_post {
                return Poll::Pending;
            }
        }
        let Step::Posted(awaited) = this.step else { return Poll::Pending };
        let Some(ended) = this.port.ended(awaited) else { return Poll::Pending };
        this.step = Step::Done;
        Poll::Ready(ended)
    }
}

impl<N: Nic, A: Ask> Drop for InBuf<'_, N, A> {
    #[inline]
    fn drop(&mut self) {
        if let Step::Posted(awaited) = self.step {
            self.port.leave(awaited, Some(self.buf));
        }
    }
}

impl<N: Nic> Port<N> {
    /// How what is awaited has ended. If it has not, the running task will be woken.
    // A part of whoever waits: a result with room for an error is passed through memory.
    #[inline(always)]
    fn ended(&self, awaited: Awaited) -> Option<Result<(), VerbError>> {
        let state = &mut *self.state.borrow_mut();
        self.has_ended(state, awaited).then(|| state.groups.close(awaited))
    }

    /// Posts a request that the running task waits for. The caller keeps its buffer until it has ended.
    // A part of whoever asks: there the verb is a constant, which decides half of what follows.
    #[inline(always)]
    fn ask(&self, peer: NodeId, verb: Verb, buf: &Buf) -> Result<Awaited, VerbError> {
        let mut state = self.build();
        let State { routes, lane, lines, rings, lined_up, traffic, .. } = &mut *state;
        let Some((queue, qp)) = routes.lane(peer, *lane) else {
            return Err(VerbError::NoRoute { peer });
        };
        self.nic.ahead(qp);
        if *lined_up == 0
            && let Some(line) = lines.get_mut(queue as usize)
            && line.room() > 0
        {
            traffic.count(&verb, buf.len());
            traffic.doorbells += 1;
            let mut request = self.request(verb, buf.sge(), buf.named());
            request.flags.signaled = true;
            let owner = Owner::task(self.sched.current());
            return self.post_one(line, rings, &mut request, owner).map_err(VerbError::Post);
        }
        drop(state);
        Ok(self.line_up(queue, verb, buf))
    }

    /// Posts a request behind others that wait for room, as a batch does.
    #[cold]
    #[inline(never)]
    fn line_up(&self, queue: u32, verb: Verb, buf: &Buf) -> Awaited {
        let mut batch = Batch::new(self, self.state.borrow_mut());
        batch.stage(queue, verb, buf.sge(), buf);
        Awaited::Group(batch.post().into_group())
    }

    /// Nobody waits any longer for what was asked. The NIC may still use the buffer.
    #[inline(never)]
    fn leave(&self, awaited: Awaited, buf: Option<&Buf>) {
        let State { lines, rings, groups, .. } = &mut *self.state.borrow_mut();
        match awaited {
            Awaited::Request { queue, seq } => {
                if lines[queue as usize].ended(rings, seq, Owner::NOBODY) {
                    let _ = groups.close(awaited);
                } else if let Some(buf) = buf {
                    // The entry names it, and now holds it.
                    buf.pin();
                }
            }
            Awaited::Group(group) => groups.leave(group),
        }
    }
}
