//! Lock requests that wait at the owner for their answer (RCC §4.3, steps a2 and a3).
//!
//! A handler must not wait, so a request whose rule says "wait" is parked: its answer is put off, and the worker looks at
//! it again between other work, oldest transaction first, so that a lock that becomes free goes to the oldest who wants
//! it. The same rule decides again each time: a waiter that meets an older holder meanwhile gives up.
//!
//! Locks are freed by other workers, by coordinators on this node and by the NIC too, so waking is looking: in short
//! intervals while somebody waits, and at once after this worker has freed a lock. Who has waited for long is told to ask again, so that no
//! caller mistakes a long wait for a lost request.

use super::wire::Name;
use crate::rule::{Ask, LockRule};
use primitives::rpc::Later;
use primitives::units::Nanos;

/// Time between two looks at the locks that somebody waits for: about a fabric's round trip.
const LOOK_EVERY: Nanos = Nanos(2_000);

/// One parked request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Parked {
    pub(super) later: Later,
    pub(super) name: Name,
    pub(super) rule: LockRule,
    pub(super) ask: Ask,
    /// When it is told to ask again.
    pub(super) until: Nanos,
}

/// A worker's parked requests, the oldest transaction first.
#[derive(Debug, Default)]
pub(super) struct Parking {
    waiting: Vec<Parked>,
    next_look: Nanos,
    patience: Nanos,
}

impl Parking {
    /// Nobody waits. `patience` is how long a request is parked at most.
    pub(super) fn new(patience: Nanos) -> Parking {
        Parking { waiting: Vec::with_capacity(64), next_look: Nanos(0), patience }
    }

    /// Parks a request.
    pub(super) fn park(&mut self, later: Later, name: Name, rule: LockRule, ask: Ask, now: Nanos) {
        if self.waiting.is_empty() {
            self.next_look = now + LOOK_EVERY;
        }
        let until = now + self.patience;
        let place = self.waiting.partition_point(|w| w.rule.time <= rule.time);
        self.waiting.insert(place, Parked { later, name, rule, ask, until });
    }

    /// A lock was freed here: look at once.
    #[inline]
    pub(super) fn hurry(&mut self, now: Nanos) {
        self.next_look = self.next_look.min(now);
    }

    /// When to look.
    #[inline]
    pub(super) fn look_at(&self) -> Option<Nanos> {
        if self.waiting.is_empty() { None } else { Some(self.next_look) }
    }

    /// Shows every parked request to `served`, oldest first; those it has served are gone.
    pub(super) fn look(&mut self, now: Nanos, served: impl FnMut(&Parked) -> bool) {
        let mut served = served;
        self.waiting.retain(|parked| !served(parked));
        self.next_look = now + LOOK_EVERY;
    }

    /// Requests that wait.
    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }
}
