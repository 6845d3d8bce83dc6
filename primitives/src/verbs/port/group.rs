//! Groups: what is posted together and awaited together.

use super::VerbError;
use crate::exec::Sched;
use std::task::Poll;

/// The group of requests that nobody waits for.
pub(super) const NO_GROUP: u32 = u32::MAX;

/// The task of a group that was left.
const NOBODY: u32 = u32::MAX;

#[derive(Clone, Copy)]
struct Group {
    pending: u32,
    /// Who waits; of a place that is free, the next free one.
    task: u32,
}

/// All groups of a port; places are used again, the last one freed first.
pub(super) struct Groups {
    slots: Vec<Group>,
    free: u32,
    /// What failed first in groups that failed. Hardly ever anything, so it is not kept with each group.
    failed: Vec<(u32, VerbError)>,
}

impl Default for Groups {
    fn default() -> Groups {
        Groups { slots: Vec::new(), free: NO_GROUP, failed: Vec::new() }
    }
}

impl Groups {
    /// A group of `pending` requests that `task` waits for.
    #[inline]
    pub(super) fn open(&mut self, pending: u32, task: u32) -> u32 {
        let index = self.free;
        match self.slots.get_mut(index as usize) {
            Some(slot) => {
                self.free = slot.task;
                *slot = Group { pending, task };
                index
            }
            None => self.grow(Group { pending, task }),
        }
    }

    #[cold]
    fn grow(&mut self, group: Group) -> u32 {
        self.slots.push(group);
        self.slots.len() as u32 - 1
    }

    /// Counts one request of a group down.
    #[inline]
    pub(super) fn finish(&mut self, group: u32, sched: &Sched) {
        // Requests that nobody waits for name a place that is never there.
        let Some(g) = self.slots.get_mut(group as usize) else { return };
        g.pending -= 1;
        if g.pending > 0 {
            return;
        }
        if g.task == NOBODY {
            let _ = self.give_back(group);
        } else {
            sched.wake(g.task);
        }
    }

    /// Who waits for the group, if it is there.
    #[inline]
    pub(super) fn waiter(&self, group: u32) -> Option<u32> {
        self.slots.get(group as usize).map(|g| g.task)
    }

    /// The group's result is its first failure.
    #[cold]
    pub(super) fn note(&mut self, group: u32, error: VerbError) {
        let known = self.failed.iter().any(|(failed, _)| *failed == group);
        if (group as usize) < self.slots.len() && !known {
            self.failed.push((group, error));
        }
    }

    /// Counts one request down that failed.
    #[cold]
    pub(super) fn fail(&mut self, group: u32, error: VerbError, sched: &Sched) {
        self.note(group, error);
        self.finish(group, sched);
    }

    /// If every request of the group has ended: gives its place back and says what failed first. Otherwise
    /// `task` is who will be woken.
    #[inline]
    pub(super) fn poll(&mut self, group: u32, task: u32) -> Poll<Result<(), VerbError>> {
        let g = &mut self.slots[group as usize];
        if g.pending > 0 {
            g.task = task;
            return Poll::Pending;
        }
        Poll::Ready(self.give_back(group))
    }

    /// Nobody waits for the group any longer.
    #[inline]
    pub(super) fn leave(&mut self, group: u32) {
        let g = &mut self.slots[group as usize];
        if g.pending == 0 {
            let _ = self.give_back(group);
        } else {
            g.task = NOBODY;
        }
    }

    #[inline]
    fn give_back(&mut self, group: u32) -> Result<(), VerbError> {
        self.slots[group as usize].task = self.free;
        self.free = group;
        if self.failed.is_empty() { Ok(()) } else { self.take_failure(group) }
    }

    #[cold]
    fn take_failure(&mut self, group: u32) -> Result<(), VerbError> {
        match self.failed.iter().position(|(failed, _)| *failed == group) {
            Some(at) => Err(self.failed.swap_remove(at).1),
            None => Ok(()),
        }
    }
}
