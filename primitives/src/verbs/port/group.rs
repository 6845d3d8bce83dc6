//! Who waits for what: a task for one request, or for a group of requests that were posted together.

use super::VerbError;
use crate::exec::Sched;

/// In place of a task: nobody waits.
const NOBODY: u32 = u32::MAX;

/// In place of a task: whoever waits is looking for itself, and nobody is to be woken. As many tasks are never there.
pub(super) const LOOKING: u32 = !TASK - 1;

/// In place of a group: none. As many are never there.
pub(super) const NO_GROUP: u32 = !TASK;

/// Who is told that a request has ended, in one word: the task that waits for it alone, or its group.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Owner(u32);

/// Set in an owner that is a task.
const TASK: u32 = 1 << 31;

impl Owner {
    pub(super) const NOBODY: Owner = Owner(NO_GROUP);

    #[inline]
    pub(super) fn task(task: u32) -> Owner {
        Owner(task | TASK)
    }

    #[inline]
    pub(super) fn group(group: u32) -> Owner {
        Owner(group)
    }

    /// Whether a task waits for the request alone. Then its buffer is kept where it is waited for.
    #[inline]
    pub(super) fn is_task(self) -> bool {
        self.0 & TASK != 0
    }

    /// The task, or the group.
    #[inline]
    fn told(self) -> Result<u32, u32> {
        if self.is_task() { Ok(self.0 & !TASK) } else { Err(self.0) }
    }
}

/// What somebody waits for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Awaited {
    /// One request: its queue, and its place in the order of posting there.
    Request { queue: u32, seq: u64 },
    /// All requests of a group.
    Group(u32),
}

#[derive(Clone, Copy)]
struct Group {
    pending: u32,
    /// Who waits; of a place that is free, the next free one.
    task: u32,
}

/// All groups of a port, and what failed of all that is awaited. Places are used again, the last one freed first.
pub(super) struct Groups {
    slots: Vec<Group>,
    free: u32,
    /// What failed first in what is awaited. Hardly ever anything, so it is not kept with each group or request.
    failed: Vec<(Awaited, VerbError)>,
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

    /// A request of this owner's has ended.
    #[inline(always)]
    pub(super) fn finish(&mut self, owner: Owner, sched: &Sched) {
        match owner.told() {
            Ok(task) => sched.wake(task),
            Err(group) => self.count_down(group, sched),
        }
    }

    #[inline(always)]
    fn count_down(&mut self, group: u32, sched: &Sched) {
        // Of requests that nobody waits for there is none.
        let Some(g) = self.slots.get_mut(group as usize) else { return };
        g.pending -= 1;
        if g.pending > 0 {
            return;
        }
        if g.task == NOBODY {
            let _ = self.close(Awaited::Group(group));
        } else {
            sched.wake(g.task);
        }
    }

    /// The task that the owner is, or that waits for it.
    #[inline]
    pub(super) fn waiter(&self, owner: Owner) -> Option<u32> {
        match owner.told() {
            Ok(task) => Some(task),
            Err(group) => self.slots.get(group as usize).map(|g| g.task),
        }
    }

    /// The result of what is awaited is its first failure.
    #[cold]
    pub(super) fn note(&mut self, awaited: Awaited, error: VerbError) {
        if !self.failed.iter().any(|(failed, _)| *failed == awaited) {
            self.failed.push((awaited, error));
        }
    }

    /// A request of this owner's has failed; `request` is what it is awaited as, if it may be alone.
    #[cold]
    pub(super) fn fail(&mut self, owner: Owner, request: Option<Awaited>, error: VerbError, sched: &Sched) {
        let awaited = match owner.told() {
            Ok(_) => request,
            Err(NO_GROUP) => None,
            Err(group) => Some(Awaited::Group(group)),
        };
        if let Some(awaited) = awaited {
            self.note(awaited, error);
        }
        self.finish(owner, sched);
    }

    /// Whether every request of the group has ended. If not, `task` is who will be woken.
    #[inline]
    pub(super) fn ended(&mut self, group: u32, task: u32) -> bool {
        let g = &mut self.slots[group as usize];
        if g.pending > 0 {
            g.task = task;
        }
        g.pending == 0
    }

    /// Nobody waits for the group any longer.
    #[inline]
    pub(super) fn leave(&mut self, group: u32) {
        if self.ended(group, NOBODY) {
            let _ = self.close(Awaited::Group(group));
        }
    }

    /// What ended is awaited no longer: says what failed first, and gives a group's place back.
    #[inline]
    pub(super) fn close(&mut self, awaited: Awaited) -> Result<(), VerbError> {
        if let Awaited::Group(group) = awaited {
            self.slots[group as usize].task = self.free;
            self.free = group;
        }
        if self.failed.is_empty() { Ok(()) } else { self.take_failure(awaited) }
    }

    #[cold]
    fn take_failure(&mut self, awaited: Awaited) -> Result<(), VerbError> {
        match self.failed.iter().position(|(failed, _)| *failed == awaited) {
            Some(at) => Err(self.failed.swap_remove(at).1),
            None => Ok(()),
        }
    }
}
