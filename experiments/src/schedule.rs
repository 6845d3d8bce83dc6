//! Whether a point that took real time was decided by the scheduler: how often the kernel took the CPU away from this
//! process while the point was measured.
//!
//! Worker threads poll, so each wants a CPU of its own. Where another process or another worker wants the same one, the
//! kernel switches between them every few milliseconds, hundreds of times a second, and an answer may wait for its
//! thread's next turn instead of for the fabric. On an idle machine only the kernel's own threads interrupt, a few times
//! a second. A thread that yields to another that is ready counts too.

use nix::sys::resource::{Usage, UsageWho, getrusage};
use primitives::measure::{ResultDir, Row, TableName};
use primitives::units::Nanos;

use crate::error::CliError;
use crate::interrupt::Interrupt;

/// Preemptions per second of CPU time above which a point counts as taken on a busy machine: Linux gives contending
/// threads slices of 3 to 4 ms (some 300 switches a second), and an idle machine stays below a few tens.
pub const BUSY: f64 = 100.0;

/// What people are told of such a point.
pub const WARNING: &str =
    "busy machine: the scheduler took CPUs away from worker threads, and had a say in these numbers\n";

/// CPU time below which a rate of preemptions says nothing, in seconds.
const LEAST_CPU_S: f64 = 0.01;

/// How often a point at which nothing ended is measured again, where time is real; each time for four times as long.
const AGAIN: u32 = 3;

/// Measures a point, for `window` at first; `ended` says how many requests or operations ended in it. A point without any says
/// nothing and must not be kept as if it did: on a machine that had other things to do it is measured again, for longer.
///
/// # Errors
/// As `measure`; if nothing ended; Ctrl-C.
pub fn until_something_ended<T>(
    window: Nanos,
    virtual_time: bool,
    interrupt: &Interrupt,
    measure: impl Fn(Nanos) -> Result<T, CliError>,
    ended: impl Fn(&T) -> u64,
) -> Result<T, CliError> {
    let longest = Nanos(window.0.saturating_mul(4u64.pow(AGAIN)));
    let mut window = window;
    loop {
        let found = measure(window)?;
        if interrupt.asked() {
            return Err(CliError::interrupted());
        }
        if ended(&found) > 0 {
            return Ok(found);
        }
        if virtual_time {
            return Err(
                CliError::check(format!("nothing ended within {window}")).hint("give a longer --duration")
            );
        }
        if window >= longest {
            return Err(CliError::check(format!(
                "nothing ended within {window}: the machine has other things to do"
            ))
            .hint("run the same command again on an idle machine: it goes on with what is missing"));
        }
        window = Nanos(window.0.saturating_mul(4));
    }
}

/// Counts from its making on. Process-wide: points measured side by side share their count.
pub struct Watch {
    before: Option<Usage>,
}

impl Watch {
    /// Begins to count; virtual time is nobody's to take away, and there nothing is counted.
    pub fn begin(virtual_time: bool) -> Watch {
        Watch { before: if virtual_time { None } else { usage() } }
    }

    /// What happened since the beginning.
    pub fn end(&self) -> Disturbance {
        let counted = || {
            let (before, now) = (self.before?, usage()?);
            let cpu_s = cpu_s(&now) - cpu_s(&before);
            let switches = now.involuntary_context_switches() - before.involuntary_context_switches();
            (cpu_s >= LEAST_CPU_S).then(|| (switches as f64 / cpu_s).round())
        };
        Disturbance { preemptions_per_cpu_s: counted() }
    }
}

/// What the scheduler did to a point.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Disturbance {
    /// Preemptions per second of CPU time; `None` where time is virtual or nothing could be counted.
    pub preemptions_per_cpu_s: Option<f64>,
}

impl Disturbance {
    /// Whether the machine was busy with something else; `None` where that is not known.
    pub fn busy(&self) -> Option<bool> {
        self.preemptions_per_cpu_s.map(|p| p > BUSY)
    }

    /// The point's row with what was counted.
    #[must_use]
    pub fn told(&self, row: Row) -> Row {
        row.with("preemptions_per_cpu_s", self.preemptions_per_cpu_s)
            .with("busy", self.busy().map(|busy| if busy { "yes" } else { "no" }))
    }
}

/// Notes in a directory's record how many of its points were taken on a busy machine.
pub fn note(dir: &mut ResultDir) {
    let rows = dir.rows(TableName::Points).unwrap_or_default();
    let busy = rows.iter().filter(|row| row.get("busy") == Some("yes")).count();
    if busy > 0 {
        let text = format!(
            "{busy} of {} points were taken on a busy machine: the scheduler took CPUs away more than {BUSY} times in a \
             second of CPU time.",
            rows.len()
        );
        dir.note(text);
    }
}

fn usage() -> Option<Usage> {
    getrusage(UsageWho::RUSAGE_SELF).ok()
}

fn cpu_s(usage: &Usage) -> f64 {
    let seconds = |time: nix::sys::time::TimeVal| time.tv_sec() as f64 + time.tv_usec() as f64 / 1e6;
    seconds(usage.user_time()) + seconds(usage.system_time())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    fn spin() {
        let end = Instant::now() + Duration::from_millis(60);
        while Instant::now() < end {
            std::hint::spin_loop();
        }
    }

    #[test]
    fn threads_that_share_cpus_are_noticed() {
        let watch = Watch::begin(false);
        let threads = 4 * std::thread::available_parallelism().map_or(1, |n| n.get());
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| (0..5).for_each(|_| spin()));
            }
        });
        let disturbance = watch.end();
        assert_eq!(disturbance.busy(), Some(true), "{disturbance:?}");
        assert_eq!(disturbance.told(Row::new()).get("busy"), Some("yes"));
    }

    #[test]
    fn virtual_time_is_not_disturbed() {
        let row = Watch::begin(true).end().told(Row::new());
        assert_eq!((row.get("busy"), row.get("preemptions_per_cpu_s")), (Some(""), Some("")));
    }
}
