//! Driving cores from threads: poll loops that give way when there is nothing to do.
//!
//! A published framework that spins on every thread falls to tens of transactions a second when threads
//! outnumber CPUs, because a thread that holds what others wait for gets its turn only after everybody else
//! has spun through a time slice. So an idle loop spins briefly, then yields its time slice, then sleeps in
//! growing steps; any work resets it.

use super::{CoreLoop, Step};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Turns with nothing to do before the first that is given away; a core polls several times in each where a poll looks at memory.
const SPINS: u32 = 20;
const YIELDS: u32 = 512;
const SLEEP_MAX: Duration = Duration::from_micros(200);
/// A turn given away that lasts longer shows that others need the core. Then sleeping is better than yielding: who sleeps is owed
/// a turn when it wakes, who yields has forfeited it.
pub(crate) const CROWDED: Duration = Duration::from_millis(1);

/// How long a loop has been idle, and what it should do about it.
#[derive(Debug, Default)]
pub struct Idle {
    rounds: u32,
    sleep: Duration,
}

impl Idle {
    /// There was work: spin again when next idle.
    #[inline]
    pub fn reset(&mut self) {
        self.rounds = 0;
        self.sleep = Duration::ZERO;
    }

    /// There was nothing to do: spin, yield or sleep.
    #[allow(clippy::disallowed_methods)] // threads, and the turns they give away, are of real time
    pub fn wait(&mut self) {
        self.rounds = self.rounds.saturating_add(1);
        if self.rounds <= SPINS {
            std::hint::spin_loop();
        } else if self.rounds <= SPINS + YIELDS {
            let before = Instant::now();
            std::thread::yield_now();
            if before.elapsed() > CROWDED {
                self.rounds = SPINS + YIELDS;
            }
        } else {
            self.sleep = (self.sleep * 2).clamp(Duration::from_micros(10), SLEEP_MAX);
            std::thread::park_timeout(self.sleep);
        }
    }
}

/// How many cores of a run still have coroutines. A core whose own have ended goes on serving requests until
/// all have.
#[derive(Debug)]
pub struct Live {
    cores: AtomicUsize,
    broken: AtomicBool,
}

impl Live {
    /// A run of `cores` cores.
    pub fn new(cores: usize) -> Live {
        Live { cores: AtomicUsize::new(cores), broken: AtomicBool::new(false) }
    }

    /// Cores that still have coroutines.
    pub fn count(&self) -> usize {
        self.cores.load(Ordering::Acquire)
    }

    /// Ends the run at once: cores stop with their coroutines unfinished.
    pub fn break_off(&self) {
        self.broken.store(true, Ordering::Release);
    }

    /// Whether the run was broken off, by [`Live::break_off`] or by a panic.
    pub fn broken(&self) -> bool {
        self.broken.load(Ordering::Acquire)
    }

    /// Counts one core out, for a core that could not be built: the others must not wait for it.
    pub fn leave(&self) {
        self.cores.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Ends the whole run if its thread panics: the others would wait for it for ever.
struct BreakOnPanic<'l>(&'l Live);

impl Drop for BreakOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.broken.store(true, Ordering::Release);
        }
    }
}

/// Turns `core` until every core counted in `live` has finished its coroutines. `between` is told what each few turns did.
pub fn drive(core: &mut impl CoreLoop, live: &Live, mut between: impl FnMut(Step)) {
    let _guard = BreakOnPanic(live);
    let mut idle = Idle::default();
    let mut counted = false;
    loop {
        let step = core.steps();
        between(step);
        if step.finished && !counted {
            counted = true;
            live.leave();
        }
        if counted && live.count() == 0 || live.broken() {
            return;
        }
        if step.worked == 0 && !step.pending {
            idle.wait();
        } else {
            idle.reset();
        }
    }
}
