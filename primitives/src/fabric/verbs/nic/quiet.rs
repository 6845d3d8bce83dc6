//! Requests of which nothing is heard any more.
//!
//! A reliable connection whose peer does not answer fails by itself, and its requests complete in error: no time-out is needed
//! here. Not every driver keeps that promise where the link goes down. Soft-RoCE (kernel 6.1) stops its timer once a request
//! cannot be sent, so that requests before it, whose acknowledgements were lost with the link, wait for ever. So whoever hears
//! nothing for longer than the transport may take, with its port down, ends what it waits for.

use super::super::Options;
use super::{State, VerbsNic};
use crate::fabric::Nic;
use crate::units::Nanos;

/// Polls without an entry between two looks: no clock is read in the time that a request usually takes.
const LOOK_EVERY: u32 = 1024;

/// What was last heard, and when.
#[derive(Default)]
pub(super) struct Quiet {
    polls: u32,
    /// Requests that had completed by the last look, of all queue pairs together; wraps.
    completed: u32,
    since: Option<Nanos>,
}

/// How long a request may take to fail: the time-out of an acknowledgement may be stretched to four times what it says (InfiniBand
/// specification, C9-141), and is waited for once and at every retry.
fn patience(options: &Options) -> Nanos {
    Nanos((4096 << options.timeout.min(31)) * 4 * (u64::from(options.retry_count) + 1))
}

impl State {
    /// A poll found nothing.
    #[inline]
    pub(super) fn heard_nothing(&mut self, nic: &VerbsNic) {
        self.quiet.polls = self.quiet.polls.wrapping_add(1);
        if self.quiet.polls.is_multiple_of(LOOK_EVERY) {
            self.look_for_the_forgotten(nic);
        }
    }

    #[cold]
    fn look_for_the_forgotten(&mut self, nic: &VerbsNic) {
        let now = nic.now();
        let completed = self.qps.iter().fold(0, |sum: u32, qp| sum.wrapping_add(qp.send.completed()));
        let waits = self.qps.iter().any(|qp| qp.send.waits());
        let since = *self.quiet.since.get_or_insert(now);
        if !waits || completed != self.quiet.completed {
            (self.quiet.completed, self.quiet.since) = (completed, Some(now));
        } else if now.since(since) > patience(&nic.shared.options) && nic.port_is_down(false) {
            self.quiet.since = Some(now);
            self.qps.iter().filter(|qp| qp.send.waits()).for_each(|qp| qp.flush(&nic.shared));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patience_is_longer_than_the_transports() {
        let usual = Options::new("rxe0");
        assert_eq!((usual.timeout, usual.retry_count), (16, 6));
        assert_eq!(patience(&usual).0 / 1_000_000, 7516, "seven times four times 268 ms");
        let longest = Options { timeout: 31, retry_count: 7, ..usual };
        assert!(patience(&longest) > Nanos(3_600_000_000_000), "as asked for, and no overflow");
    }
}
