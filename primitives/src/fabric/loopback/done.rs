//! Completions of a context, first in first out.

use crate::verbs::{Qp, WcStatus};

/// A send-queue completion, and how far it retires its queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Done {
    pub(super) qp: Qp,
    pub(super) id: u64,
    pub(super) status: WcStatus,
    pub(super) seq: u64,
}

/// Completions that wait for a poll. A poll mostly takes all of them, and then they begin again at the front: the next
/// one is written where the last one was read. Room grows to the most that ever waited, and is kept.
pub(super) struct DoneQueue {
    /// Those before `first` were taken.
    list: Vec<Done>,
    first: usize,
}

/// From so many taken ones on, the others move to the front, if they are no more.
const TAKEN_MAX: usize = 64;

impl DoneQueue {
    pub(super) fn new() -> DoneQueue {
        DoneQueue { list: Vec::with_capacity(1024), first: 0 }
    }

    #[inline(always)]
    pub(super) fn push(&mut self, done: Done) {
        self.list.push(done);
    }

    /// One that waits, behind `before` others.
    #[inline(always)]
    pub(super) fn waiting(&self, before: usize) -> Option<Done> {
        self.list.get(self.first + before).copied()
    }

    /// Takes out so many of those that wait longest.
    #[inline(always)]
    pub(super) fn forget_oldest(&mut self, count: usize) {
        self.first += count;
        if self.first >= self.list.len() {
            self.list.clear();
            self.first = 0;
        } else if self.first >= TAKEN_MAX && self.first * 2 >= self.list.len() {
            self.move_up();
        }
    }

    #[cold]
    fn move_up(&mut self) {
        self.list.drain(..self.first);
        self.first = 0;
    }

    pub(super) fn extend(&mut self, more: impl Iterator<Item = Done>) {
        self.list.extend(more);
    }

    /// Drops the completions of a queue pair.
    pub(super) fn forget(&mut self, qp: Qp) {
        self.move_up();
        self.list.retain(|done| done.qp != qp);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::VecDeque;

    #[test]
    fn it_is_a_queue_whatever_waits() {
        let (mut queue, mut model) = (DoneQueue::new(), VecDeque::new());
        let mut draw = 11u64;
        for seq in 0..50_000 {
            draw = draw.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            // Long stretches in which more come than go, and others.
            let comes = draw >> 33 & 7 < if seq / 3_000 % 2 == 0 { 5 } else { 3 };
            let done = Done { qp: Qp(seq as u32 % 3), id: draw, status: WcStatus::Success, seq };
            if comes {
                queue.push(done);
                model.push_back(done);
            } else {
                let some = (draw >> 40 & 3) as usize;
                let oldest: Vec<Done> = (0..some).map_while(|before| queue.waiting(before)).collect();
                let count = some.min(model.len());
                assert_eq!(oldest, model.drain(..count).collect::<Vec<_>>());
                queue.forget_oldest(count);
            }
            if seq % 9_000 == 8_999 {
                queue.forget(Qp(1));
                model.retain(|d| d.qp != Qp(1));
                queue.extend([done, done].into_iter());
                model.extend([done, done]);
            }
            assert!(queue.list.len() <= 2 * model.len() + TAKEN_MAX + 1, "what was taken does not pile up");
        }
        while let Some(done) = model.pop_front() {
            assert_eq!(queue.waiting(0), Some(done));
            queue.forget_oldest(1);
        }
        assert_eq!(queue.waiting(0), None);
    }
}
