//! Groups: what is posted together and awaited together.

use super::VerbError;
use crate::exec::Sched;

/// The group of requests that nobody waits for.
pub(super) const NO_GROUP: u32 = u32::MAX;

struct Group {
    pending: u32,
    task: u32,
    detached: bool,
    error: Option<VerbError>,
}

/// All groups of a port; places are used again.
#[derive(Default)]
pub(super) struct Groups {
    slots: Vec<Group>,
    free: Vec<u32>,
}

impl Groups {
    /// A group of `pending` requests that `task` waits for.
    #[inline]
    pub(super) fn open(&mut self, pending: u32, task: u32, error: Option<VerbError>) -> u32 {
        let group = Group { pending, task, detached: false, error };
        match self.free.pop() {
            Some(index) => {
                self.slots[index as usize] = group;
                index
            }
            None => {
                self.slots.push(group);
                // Room for every place to come back: giving one back never allocates.
                self.free.reserve(self.slots.len());
                self.slots.len() as u32 - 1
            }
        }
    }

    /// Counts one request of a group down.
    #[inline]
    pub(super) fn finish(&mut self, group: u32, sched: &Sched) {
        if group == NO_GROUP {
            return;
        }
        let g = &mut self.slots[group as usize];
        g.pending -= 1;
        if g.pending > 0 {
            return;
        }
        if g.detached {
            self.free.push(group);
        } else {
            sched.wake(g.task);
        }
    }

    /// Counts one request down that failed; the group's result is its first failure.
    #[cold]
    pub(super) fn fail(&mut self, group: u32, error: VerbError, sched: &Sched) {
        if let Some(g) = self.slots.get_mut(group as usize) {
            g.error.get_or_insert(error);
        }
        self.finish(group, sched);
    }

    /// If every request of the group has ended: gives its place back and says what failed first. Otherwise
    /// `task` is who will be woken.
    #[inline]
    pub(super) fn ended(&mut self, group: u32, task: u32) -> Option<Option<VerbError>> {
        let g = &mut self.slots[group as usize];
        if g.pending > 0 {
            g.task = task;
            return None;
        }
        self.free.push(group);
        Some(g.error)
    }

    /// Nobody waits for the group any longer.
    #[inline]
    pub(super) fn leave(&mut self, group: u32) {
        let g = &mut self.slots[group as usize];
        if g.pending == 0 {
            self.free.push(group);
        } else {
            g.detached = true;
        }
    }
}
