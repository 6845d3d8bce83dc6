//! A simulated core: its clock and its completion queue.
//!
//! A core's clock is `max(free_at, event_at)`: when it has done the work charged so far, but not before the
//! event it is handling. Work moves the clock and nothing else; a post carries the clock, and the core is
//! driven again no earlier than `free_at`.

use super::costs::CpuCosts;
use super::queue::NEVER;
use crate::fabric::CpuWork;
use crate::mem::ahead;
use crate::verbs::{Completion, Qp};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// A completion entry on its way to, or in, the core's queue. One cache line.
#[derive(Clone, Copy)]
#[repr(align(64))]
pub(super) struct Entry {
    /// When the core can see it.
    pub ready: u64,
    /// Send-queue slots up to this count are free once the entry is taken; `None` for receives.
    pub retires: Option<u32>,
    pub completion: Completion,
}

/// Completion entries by time. They begin again at the front whenever the last one was taken, or a few were and no more are
/// left than that: so a core finds them in the same few cache lines, unlike in a ring that goes round.
pub(super) struct Entries {
    /// Those before `first` were taken.
    list: Vec<Entry>,
    first: usize,
}

/// From so many taken entries on, the others move to the front, if they are no more: each moves at most once for each one
/// that is taken.
const TAKEN_MAX: usize = 4;

impl Entries {
    fn new() -> Entries {
        Entries { list: Vec::with_capacity(16), first: 0 }
    }

    #[inline]
    fn front(&self) -> Option<&Entry> {
        self.list.get(self.first)
    }

    /// Puts an entry where its time belongs. Entries nearly always come in order.
    #[inline]
    fn insert(&mut self, entry: Entry) {
        match self.list.last() {
            Some(last) if last.ready > entry.ready => {
                let at = self.list[self.first..].partition_point(|e| e.ready <= entry.ready);
                self.list.insert(self.first + at, entry);
            }
            _ => self.list.push(entry),
        }
    }

    #[inline]
    fn pop(&mut self) -> Option<Entry> {
        let entry = *self.front()?;
        self.first += 1;
        if self.first == self.list.len() {
            self.list.clear();
            self.first = 0;
        } else if self.first >= TAKEN_MAX && self.first * 2 >= self.list.len() {
            self.list.drain(..self.first);
            self.first = 0;
        }
        Some(entry)
    }

    fn retain(&mut self, keep: impl FnMut(&Entry) -> bool) {
        self.list.drain(..self.first);
        self.first = 0;
        self.list.retain(keep);
    }
}

/// One core and its device context.
#[repr(align(128))]
pub(super) struct Core {
    /// The node, as an index.
    pub node: usize,
    /// Its card, as an index over all nodes' cards.
    pub card: usize,
    /// Its device context, if it shares one with other cores.
    pub shared_context: Option<usize>,
    pub free_at: Cell<u64>,
    /// Work charged so far, looks at empty queues left out.
    pub busy: Cell<u64>,
    pub event_at: Cell<u64>,
    /// When the core is to be woken next; [`NEVER`] when idle.
    pub next_wake: Cell<u64>,
    /// The latest timer asked for that has not fired, so that asking again for the same time costs nothing.
    pub timer: Cell<u64>,
    /// Its node is dead.
    pub dead: Cell<bool>,
    /// Its loop has said so; it is still driven, because it may serve others.
    pub finished: Cell<bool>,
    /// A wake-up came while nobody drove the core.
    pub missed: Cell<bool>,
    entries: RefCell<Entries>,
    costs: Rc<CpuCosts>,
}

impl Core {
    pub fn new(node: usize, card: usize, shared_context: Option<usize>, costs: Rc<CpuCosts>) -> Core {
        Core {
            node,
            card,
            shared_context,
            free_at: Cell::new(0),
            busy: Cell::new(0),
            event_at: Cell::new(0),
            next_wake: Cell::new(NEVER),
            timer: Cell::new(NEVER),
            dead: Cell::new(false),
            finished: Cell::new(false),
            missed: Cell::new(false),
            entries: RefCell::new(Entries::new()),
            costs,
        }
    }

    /// Whether its loop has work of its own to do.
    pub fn is_live(&self) -> bool {
        !self.dead.get() && !self.finished.get()
    }

    #[inline]
    pub fn local_now(&self) -> u64 {
        self.free_at.get().max(self.event_at.get())
    }

    #[inline]
    pub fn charge(&self, work: CpuWork) {
        let cost = self.costs.of(work);
        if work != CpuWork::Poll {
            self.busy.set(self.busy.get().saturating_add(cost));
        }
        self.free_at.set(self.local_now().saturating_add(cost).min(NEVER));
    }

    /// What `work` costs the core, in picoseconds.
    pub fn cost(&self, work: CpuWork) -> u64 {
        self.costs.of(work)
    }

    /// From a received message being there to its notice, in picoseconds.
    #[inline]
    pub fn handover(&self) -> u64 {
        self.costs.handover
    }

    /// The core does nothing else until `at`.
    #[inline]
    pub fn wait_until(&self, at: u64) {
        self.free_at.set(self.local_now().max(at).min(NEVER));
    }

    /// Puts an entry where its time belongs.
    #[inline]
    pub fn enter(&self, entry: Entry) {
        self.entries.borrow_mut().insert(entry);
    }

    /// Drops the entries of a queue pair.
    pub fn forget(&self, qp: Qp) {
        self.entries.borrow_mut().retain(|e| e.completion.qp != qp);
    }

    /// The next entry, whenever it can be seen.
    #[inline]
    pub fn peek(&self) -> Option<Completion> {
        Some(self.entries.borrow().front()?.completion)
    }

    /// Asks for the next entry.
    #[inline]
    pub fn ahead(&self) {
        self.entries.borrow().front().map(ahead);
    }

    /// Asks for the last entry, behind which the next one will be put.
    #[inline]
    pub fn ahead_of_last(&self) {
        self.entries.borrow().list.last().map(ahead);
    }

    /// Takes the next entry the core can see by now.
    #[inline]
    pub fn take(&self, now: u64) -> Option<Entry> {
        let mut entries = self.entries.borrow_mut();
        if entries.front()?.ready > now {
            return None;
        }
        entries.pop()
    }

    /// When the next entry can be seen.
    #[inline]
    pub fn next_entry(&self) -> Option<u64> {
        Some(self.entries.borrow().front()?.ready)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::Profile;
    use crate::units::Nanos;
    use crate::verbs::{WcOpcode, WcStatus};

    fn core() -> Core {
        let profile = Profile::shipped("cx4-edr").unwrap();
        Core::new(0, 0, None, Rc::new(CpuCosts::new(&profile.cpu, 1.0)))
    }

    #[test]
    fn work_moves_the_clock_from_the_event_on() {
        let core = core();
        core.event_at.set(1_000_000);
        assert_eq!(core.local_now(), 1_000_000);
        core.charge(CpuWork::Think(Nanos(10)));
        assert_eq!(core.local_now(), 1_010_000);
        core.event_at.set(1_005_000);
        assert_eq!(core.local_now(), 1_010_000, "still busy");
        core.event_at.set(2_000_000);
        core.charge(CpuWork::Think(Nanos(1)));
        assert_eq!(core.local_now(), 2_001_000, "idle time is not charged");
    }

    #[test]
    fn entries_are_seen_in_time_order_and_not_early() {
        let core = core();
        for ready in [30, 10, 20, 20] {
            core.enter(Entry {
                ready,
                retires: None,
                completion: Completion {
                    id: ready,
                    qp: Qp(0),
                    opcode: WcOpcode::Recv,
                    status: WcStatus::Success,
                    byte_len: 0,
                    imm: None,
                    from: None,
                },
            });
        }
        assert!(core.take(9).is_none());
        assert_eq!(core.take(25).unwrap().ready, 10);
        assert_eq!(core.take(25).unwrap().ready, 20);
        assert_eq!(core.take(25).unwrap().ready, 20);
        assert!(core.take(25).is_none());
        assert_eq!(core.next_entry(), Some(30));
    }
}
