//! The future of a READ.

use super::{Port, Posted, VerbError};
use crate::fabric::Nic;
use crate::mem::Buf;
use crate::verbs::Remote;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

/// One READ: posted when first polled, done with the buffer that holds what was read.
///
/// Written out because an `async fn` keeps its arguments beside what it makes of them: this is half as large, and simulated
/// clusters have tens of thousands of coroutines that wait in one.
#[must_use = "a READ is posted when it is awaited"]
pub struct Reading<'p, N: Nic> {
    port: &'p Port<N>,
    step: Step<'p, N>,
}

enum Step<'p, N: Nic> {
    Asked { from: Remote, len: u32 },
    Posted { posted: Posted<'p, N>, buf: Option<Buf> },
    Done,
}

impl<'p, N: Nic> Reading<'p, N> {
    #[inline]
    pub(super) fn new(port: &'p Port<N>, from: Remote, len: u32) -> Reading<'p, N> {
        Reading { port, step: Step::Asked { from, len } }
    }
}

impl<N: Nic> Future for Reading<'_, N> {
    type Output = Result<Buf, VerbError>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        if let Step::Asked { from, len } = this.step {
            this.step = Step::Done;
            let buf = this.port.buf(len)?;
            let mut batch = this.port.batch();
            batch.read(from, &buf, 0, len);
            this.step = Step::Posted { posted: batch.post(), buf: Some(buf) };
        }
        // One that has ended is not polled again; if it is, it never wakes.
        let Step::Posted { posted, buf } = &mut this.step else { return Poll::Pending };
        match std::task::ready!(Pin::new(posted).poll(cx)) {
            Ok(_) => buf.take().map_or(Poll::Pending, |buf| Poll::Ready(Ok(buf))),
            Err(failed) => Poll::Ready(Err(failed)),
        }
    }
}
