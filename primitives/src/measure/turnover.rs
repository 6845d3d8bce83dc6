//! What fills slowly, and is emptied for the first time long after a run has begun.
//!
//! A log is such a thing: until its backup first applies it, a run pays for writing it alone, and looks as steady as it is cheap. A warm-up
//! that looks at the rate cannot know that something has yet to begin; whoever fills says so here.

use crate::units::Nanos;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

/// Of those that fill, how many have been emptied once, and since when that is most of them. Shared by all workers of a run; exact where
/// time is virtual.
#[derive(Debug)]
pub struct Turnover {
    filling: AtomicU32,
    turned: AtomicU32,
    /// When most had been emptied; `u64::MAX` while they have not.
    since: AtomicU64,
}

impl Default for Turnover {
    fn default() -> Turnover {
        Turnover { filling: AtomicU32::new(0), turned: AtomicU32::new(0), since: AtomicU64::new(0) }
    }
}

impl Turnover {
    /// One more begins to fill.
    pub fn begun(&self) {
        self.filling.fetch_add(1, Relaxed);
        self.judge(Nanos::MAX);
    }

    /// One is emptied for the first time, at `now`.
    pub fn turned(&self, now: Nanos) {
        self.turned.fetch_add(1, Relaxed);
        self.judge(now);
    }

    /// Most are three of four: the last are those that hardly fill, and hardly matter.
    fn judge(&self, now: Nanos) {
        if 4 * self.turned.load(Relaxed) < 3 * self.filling.load(Relaxed) {
            self.since.store(u64::MAX, Relaxed);
        } else {
            self.since.fetch_min(now.0, Relaxed);
        }
    }

    /// Whether most of those that fill had been emptied at `now`; true where nothing fills.
    pub fn is_steady(&self, now: Nanos) -> bool {
        self.since.load(Relaxed) <= now.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_steady_once_most_have_been_emptied() {
        let turnover = Turnover::default();
        assert!(turnover.is_steady(Nanos(0)), "nothing fills");
        (0..8).for_each(|_| turnover.begun());
        (1..=5).for_each(|at| turnover.turned(Nanos(at)));
        assert!(!turnover.is_steady(Nanos(100)));
        turnover.turned(Nanos(6));
        assert!(!turnover.is_steady(Nanos(5)) && turnover.is_steady(Nanos(6)));
        // Later ones change nothing, until many more begin.
        turnover.turned(Nanos(7));
        turnover.begun();
        assert!(turnover.is_steady(Nanos(6)));
        turnover.begun();
        assert!(!turnover.is_steady(Nanos(100)));
    }
}
