//! Requests of which nothing is heard any more.
//!
//! A reliable connection whose peer does not answer fails by itself, and its requests complete in error: no time-out is needed
//! here. Not every driver keeps that promise where a link goes down, for however short a time. Soft-RoCE (kernel 6.1) stops its timer once a request
//! cannot be sent, so that requests before it, whose acknowledgements were lost with the link, wait for ever. So who waits for
//! longer than the transport may take ends the connection, and the first request that comes back of it says what the transport should have: that
//! the peer does not answer.

use super::super::Options;
use super::super::qp::QueuePair;
use super::{State, VerbsNic};
use crate::fabric::Nic;
use crate::units::Nanos;
use crate::verbs::Transport;

/// Polls without an entry between two looks: no clock is read in the time that a request usually takes.
const LOOK_EVERY: u32 = 1024;

/// As `rnr_retry`: a receiver that is not ready may be waited for without end.
const FOR_EVER: u8 = 7;

/// Looks that it takes at least to lose patience, however long lies between them: if nobody looked, this core or the whole machine was
/// held up, and so may have been the driver that would have sent again.
const LOOKS_AT_LEAST: u64 = 8;

/// What was last heard of a queue pair: how many requests had completed, and for how long nothing has come since while something was
/// awaited.
#[derive(Default)]
pub(in super::super) struct Heard {
    completed: u32,
    looked: Nanos,
    /// `None` while nothing is awaited: that silence is nobody's.
    silent: Option<Nanos>,
}

impl Heard {
    /// Whether the oldest request has waited for longer than `patience`. `waits` says whether there is one, `completed` how many
    /// have completed.
    fn look(&mut self, waits: bool, completed: u32, now: Nanos, patience: Nanos) -> bool {
        let passed = now.since(self.looked).min(Nanos(patience.0 / LOOKS_AT_LEAST));
        self.looked = now;
        self.silent = match (waits, self.silent) {
            (false, _) => None,
            (true, Some(silent)) if completed == self.completed => Some(silent + passed),
            (true, _) => Some(Nanos(0)),
        };
        self.completed = completed;
        self.silent.is_some_and(|silent| silent > patience)
    }
}

/// The least patience, however short the time-out. That one bounds the time to an *acknowledgement*; only one request in many is told, and
/// the train before it may be long: a hundred of 1 MiB take 84 ms at 10 Gb/s, and 0.8 s at 1 Gb/s.
const PATIENCE_AT_LEAST: Nanos = Nanos(5_000_000_000);

/// How long a request may take to fail: the time-out of an acknowledgement may be stretched to four times what it says (InfiniBand
/// specification, C9-141), and is waited for once and at every retry. A receiver that is not ready adds less than 5 ms.
fn patience(options: &Options) -> Nanos {
    let transports = Nanos((4096 << options.timeout.min(31)) * 4 * (u64::from(options.retry_count) + 1));
    transports.max(PATIENCE_AT_LEAST)
}

impl QueuePair {
    /// Whether its oldest request has waited for longer than `patience`.
    fn is_forgotten(&mut self, now: Nanos, patience: Nanos) -> bool {
        self.heard.look(self.send.waits(), self.send.completed(), now, patience)
    }
}

impl State {
    /// A poll found nothing.
    #[inline]
    pub(super) fn heard_nothing(&mut self, nic: &VerbsNic) {
        self.empty_polls = self.empty_polls.wrapping_add(1);
        if self.empty_polls.is_multiple_of(LOOK_EVERY) {
            self.look_for_the_forgotten(nic, nic.now());
        }
    }

    /// Ends the connections that `now` have waited for too long.
    #[cold]
    fn look_for_the_forgotten(&mut self, nic: &VerbsNic, now: Nanos) {
        let patience = patience(&nic.shared.options);
        let mut gone = false;
        for qp in &mut self.qps {
            let reliable = qp.connected && qp.config.transport == Transport::Rc;
            if !reliable || !qp.is_forgotten(now, patience) {
                continue;
            }
            qp.heard.silent = None;
            if qp.config.rnr_retry < FOR_EVER || nic.port_is_down(false) {
                qp.forgotten = true;
                gone |= !qp.flush(&nic.shared);
            }
        }
        // A device that was pulled or reset flushes nothing: no completion would ever come.
        if gone {
            self.give_up(nic);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::members;
    use super::*;
    use crate::mem::{Access, Region};
    use crate::verbs::{Flags, QpConfig, Sge, Verb, WcStatus, WorkRequest};

    #[test]
    fn a_connection_that_forgot_says_that_nobody_answers() {
        let test = "a_connection_that_forgot_says_that_nobody_answers";
        let Some((nics, qps)) = members(test, [QpConfig { rnr_retry: 6, ..QpConfig::rc() }; 2]) else {
            return;
        };
        // The other end is in error, and answers nobody.
        nics[1].state.borrow().qps[0].flush(&nics[1].shared);
        let memory = Region::new(64);
        let lkey = nics[0].register(&memory, Access::LOCAL).expect("registers").lkey;
        let write = |id| WorkRequest {
            id,
            verb: Verb::Write { rkey: crate::verbs::Rkey(1), offset: 0 },
            local: Sge { lkey, offset: 0, len: 8 },
            flags: Flags { signaled: true, inline: false },
        };
        nics[0].post(qps[0], &[1, 2, 3].map(write)).expect("room");
        let mut told = Vec::new();
        {
            let state = &mut *nics[0].state.borrow_mut();
            // As if so long had passed: the driver itself gives up after 1.9 s, and has not by now.
            let step = patience(&nics[0].shared.options).0 / LOOKS_AT_LEAST;
            for look in 0..=LOOKS_AT_LEAST + 1 {
                state.look_for_the_forgotten(&nics[0], Nanos(look * step));
            }
        }
        let started = nics[0].now();
        while told.len() < 3 {
            nics[0].poll(4, |c| told.push((c.id, c.status)));
            assert!(nics[0].now().since(started) < Nanos::from_millis(60_000), "{told:?}");
        }
        assert_eq!(told, [(1, WcStatus::RetryExceeded), (2, WcStatus::Flushed), (3, WcStatus::Flushed)]);
        assert_eq!(nics[0].lost(), None, "that was not the driver, which would have had the node named");
    }

    #[test]
    fn patience_is_longer_than_the_transports() {
        let usual = Options::new("rxe0");
        assert_eq!((usual.timeout, usual.retry_count), (16, 6));
        assert_eq!(patience(&usual).0 / 1_000_000, 7516, "seven times four times 268 ms");
        let shortest = Options { timeout: 1, retry_count: 1, ..usual.clone() };
        assert_eq!(patience(&shortest), PATIENCE_AT_LEAST);
        let longest = Options { timeout: 31, retry_count: 7, ..usual };
        assert!(patience(&longest) > Nanos(3_600_000_000_000), "as asked for, and no overflow");
    }

    const PATIENCE: Nanos = Nanos(8_000);

    /// How long it takes until a request is given up of which nothing is heard, looked for every `step` from `from` on; at most
    /// a hundred looks.
    fn given_up(heard: &mut Heard, from: u64, step: u64) -> Option<u64> {
        (1..=100).map(|look| look * step).find(|passed| heard.look(true, 5, Nanos(from + passed), PATIENCE))
    }

    #[test]
    fn a_request_of_which_nothing_is_heard_is_given_up_once_patience_is_over() {
        let mut heard = Heard::default();
        assert!(!heard.look(true, 5, Nanos(1_000), PATIENCE));
        assert_eq!(given_up(&mut heard, 1_000, 100), Some(8_100));
        // Whatever completes is a sign of life.
        assert!(!heard.look(true, 6, Nanos(9_200), PATIENCE));
        heard.look(true, 5, Nanos(9_200), PATIENCE);
        assert_eq!(given_up(&mut heard, 9_200, 100), Some(8_100));
    }

    #[test]
    fn a_pause_before_a_request_was_posted_is_not_its_peers_silence() {
        let mut heard = Heard::default();
        assert!(!heard.look(false, 5, Nanos(1_000), PATIENCE));
        // The core did something else for long; then a request was posted, and is looked for at once.
        assert!(!heard.look(true, 5, Nanos(1_000_000), PATIENCE));
        assert_eq!(given_up(&mut heard, 1_000_000, 100), Some(8_100));
    }

    #[test]
    fn a_pause_between_two_looks_counts_little_and_many_of_them_count() {
        let mut heard = Heard::default();
        assert!(!heard.look(true, 5, Nanos(0), PATIENCE));
        assert!(!heard.look(true, 5, Nanos(1_000_000), PATIENCE));
        // An eighth of the patience has gone by, and no more.
        assert_eq!(given_up(&mut heard, 1_000_000, 100), Some(7_100));
        // Who looks rarely waits for longer, and not for ever.
        let mut heard = Heard::default();
        assert!(!heard.look(true, 5, Nanos(0), PATIENCE));
        assert_eq!(given_up(&mut heard, 0, 1_000_000), Some(9_000_000));
    }
}
