//! Whether workers get on. A worker that does not would keep all nodes waiting for ever: its process lives, and the keeper's
//! heartbeats say so.
//!
//! Each worker counts the turns of its loop, and those in which it had something to do. The thread that stands for the rest
//! of the cluster looks at the counts. A loop that has not come round for [`Limits::stuck_after`](super::Limits::stuck_after)
//! stands still: in an endless computation, or because the system gives its thread no time. One that comes round and finds
//! nothing for twice as long, its coroutines unfinished, waits in vain, for a completion that was lost or a device that is
//! stuck; twice, so that whoever stands still is named before those who wait for it. A worker that does work, and goes on doing so
//! without end, is not stuck in this sense.

use crate::exec::Step;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// [`Pulse::turns`] of a loop that has ended.
const OUT: u64 = u64::MAX;
/// The longest time that counts between two looks: if nobody looked, the whole process was held up, and its workers are not to blame.
const LOOK_MAX: Duration = Duration::from_millis(100);

/// How far one worker has come, in cache lines of its own. Only the worker writes.
#[derive(Default)]
#[repr(align(128))]
pub(super) struct Pulse {
    turns: AtomicU64,
    /// Turns with work, or with none left to be done.
    works: AtomicU64,
}

impl Pulse {
    pub(super) fn turned(&self, step: Step) {
        let count = |of: &AtomicU64| of.store(of.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        count(&self.turns);
        if step.worked > 0 || step.finished {
            count(&self.works);
        }
    }

    /// Says that the loop has ended when it is dropped, by a panic too.
    pub(super) fn until_out(&self) -> UntilOut<'_> {
        UntilOut(self)
    }

    fn is_out(&self) -> bool {
        self.turns.load(Ordering::Acquire) == OUT
    }
}

pub(super) struct UntilOut<'p>(&'p Pulse);

impl Drop for UntilOut<'_> {
    fn drop(&mut self) {
        self.0.turns.store(OUT, Ordering::Release);
    }
}

/// A count, and for how long it has been the same.
#[derive(Clone, Copy, Default)]
struct Seen {
    count: u64,
    since: Duration,
}

impl Seen {
    fn look(&mut self, count: u64, passed: Duration) -> Duration {
        let since = if self.count == count { self.since + passed } else { Duration::ZERO };
        *self = Seen { count, since };
        since
    }
}

/// Looks after the workers of this process.
pub(super) struct Watch<'p> {
    pulses: &'p [Pulse],
    limit: Duration,
    seen: Vec<[Seen; 2]>,
    looked: Instant,
}

impl<'p> Watch<'p> {
    pub(super) fn new(pulses: &'p [Pulse], limit: Duration) -> Watch<'p> {
        Watch { pulses, limit, seen: vec![Default::default(); pulses.len()], looked: Instant::now() }
    }

    /// Whether the loops of all workers have ended.
    pub(super) fn all_out(&self) -> bool {
        self.pulses.iter().all(Pulse::is_out)
    }

    /// What is wrong with a worker that does not get on.
    pub(super) fn look(&mut self) -> Option<String> {
        let passed = self.looked.elapsed();
        self.looked += passed;
        self.look_after(passed)
    }

    fn look_after(&mut self, passed: Duration) -> Option<String> {
        let (passed, limit) = (passed.min(LOOK_MAX), self.limit);
        let mut wrong = None;
        for (worker, (pulse, [turns, works])) in self.pulses.iter().zip(&mut self.seen).enumerate() {
            let still = turns.look(pulse.turns.load(Ordering::Relaxed), passed);
            let idle = works.look(pulse.works.load(Ordering::Relaxed), passed);
            if pulse.is_out() || wrong.is_some() {
                continue;
            }
            if still >= limit {
                let limit = limit.as_secs_f64();
                wrong = Some(format!(
                    "its worker {worker} stands still: its loop has not come round for {limit} s"
                ));
            } else if idle >= 2 * limit {
                let limit = 2.0 * limit.as_secs_f64();
                wrong =
                    Some(format!("its worker {worker} waits in vain: nothing has come for it for {limit} s"));
            }
        }
        wrong
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOOK: Duration = Duration::from_millis(100);
    const IDLE: Step = Step { worked: 0, pending: false, finished: false };

    /// The looks that it takes until a worker is named, whose loops do `turn` between looks; at most 100.
    fn named(turn: impl Fn(&[Pulse])) -> Option<(usize, String)> {
        let pulses: Vec<Pulse> = (0..3).map(|_| Pulse::default()).collect();
        let mut watch = Watch::new(&pulses, Duration::from_secs(1));
        (1..=100).find_map(|looks| {
            turn(&pulses);
            watch.look_after(LOOK).map(|what| (looks, what))
        })
    }

    #[test]
    fn who_stands_still_is_named_before_those_who_wait_for_it() {
        let (looks, what) =
            named(|pulses| [0, 2].map(|w: usize| pulses[w].turned(IDLE)).into_iter().collect())
                .expect("worker 1 stands still");
        assert!(what.starts_with("its worker 1 stands still") && what.ends_with("for 1 s"), "{what}");
        assert_eq!(looks, 10);
        let (looks, what) = named(|pulses| pulses.iter().for_each(|p| p.turned(IDLE))).expect("all wait");
        assert!(what.starts_with("its worker 0 waits in vain") && what.ends_with("for 2 s"), "{what}");
        assert!((20..=21).contains(&looks), "{looks}");
    }

    #[test]
    fn who_works_serves_others_or_has_ended_is_not_named() {
        let each = |pulses: &[Pulse]| {
            pulses[0].turned(Step { worked: 1, ..IDLE });
            pulses[1].turned(Step { finished: true, ..IDLE });
            drop(pulses[2].until_out());
        };
        assert_eq!(named(each), None);
    }

    #[test]
    fn time_in_which_nobody_looked_is_nobodys_fault() {
        let pulses = [Pulse::default()];
        let mut watch = Watch::new(&pulses, Duration::from_secs(1));
        assert_eq!(watch.look_after(Duration::from_secs(3600)), None);
        assert!(!watch.all_out());
        drop(pulses[0].until_out());
        assert!(watch.all_out());
    }
}
