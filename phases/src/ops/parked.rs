//! Lock requests that wait at the owner for their answer (RCC §4.3, steps a2 and a3).
//!
//! A handler must not wait, so a request whose rule says "wait" is parked: its answer is put off, and the worker looks at
//! it again between other work, oldest transaction first, so that a lock that becomes free goes to the oldest who wants
//! it. The same rule decides again each time: a waiter that meets an older holder meanwhile gives up.
//!
//! Locks are freed by other workers, by coordinators on this node and by the NIC too, so waking is looking: in short
//! intervals while somebody waits, and at once after this worker has freed a lock. Who has waited for long is told to ask again, so that no
//! caller mistakes a long wait for a lost request.
//!
//! An answer that is put off also holds a place in its session's window, and a window moves on only behind its oldest place. Were
//! it held for as long as the lock is, the requests that free locks would sooner or later not get through to the owner,
//! and everybody would wait for everybody until that patience ends. So a request that half a window of others has come after
//! is told to ask again, too.

use super::wire::Name;
use crate::rule::{Ask, LockRule};
use primitives::rpc::Later;
use primitives::units::Nanos;
use primitives::verbs::NodeId;

/// Time between two looks at the locks that somebody waits for: about a fabric's round trip.
const LOOK_EVERY: Nanos = Nanos(2_000);

/// One parked request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Parked {
    pub(super) later: Later,
    /// Whose request it is, and how many that node had sent when it came.
    pub(super) from: NodeId,
    pub(super) number: u64,
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
    /// How many later requests of the same node a request may be parked for.
    most_behind: u64,
    /// Requests that each node has sent.
    heard: Vec<u64>,
}

impl Parking {
    /// Nobody waits. `patience` is how long a request is parked at most, `window` how many requests of a session may be without an
    /// answer.
    pub(super) fn new(patience: Nanos, window: u32) -> Parking {
        let most_behind = u64::from(window / 2).max(1);
        Parking { waiting: Vec::with_capacity(64), patience, most_behind, ..Parking::default() }
    }

    /// A node has sent a request.
    #[inline]
    pub(super) fn hear(&mut self, from: NodeId) {
        if self.heard.len() <= from.index() {
            self.heard.resize(from.index() + 1, 0);
        }
        self.heard[from.index()] += 1;
    }

    /// Whether a parked request is in the way of those that its node has sent since.
    pub(super) fn in_the_way(&self, parked: &Parked) -> bool {
        self.heard.get(parked.from.index()).is_some_and(|heard| heard - parked.number >= self.most_behind)
    }

    /// Parks a request of a node.
    pub(super) fn park(
        &mut self,
        (from, later): (NodeId, Later),
        name: Name,
        rule: LockRule,
        ask: Ask,
        now: Nanos,
    ) {
        if self.waiting.is_empty() {
            self.next_look = now + LOOK_EVERY;
        }
        let until = now + self.patience;
        let place = self.waiting.partition_point(|w| w.rule.time <= rule.time);
        let number = self.heard.get(from.index()).copied().unwrap_or(0);
        self.waiting.insert(place, Parked { later, from, number, name, rule, ask, until });
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
    pub(super) fn look(&mut self, now: Nanos, mut served: impl FnMut(&Parked, bool) -> bool) {
        let mut waiting = std::mem::take(&mut self.waiting);
        waiting.retain(|parked| !served(parked, self.in_the_way(parked)));
        self.waiting = waiting;
        self.next_look = now + LOOK_EVERY;
    }

    /// Requests that wait.
    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }
}
