//! Ctrl-C, and what schedulers, time-outs and lost terminals send instead (SIGTERM, SIGHUP): the first one asks running points to be
//! the last, the second ends the process at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use nix::sys::signal::{SigSet, Signal};

use crate::error::{CliError, Exit};
use crate::output::to_stderr;
use crate::progress;

/// A signal so soon after the first is the same wish: `timeout` sends its own to the process and then to its group, and of a terminal
/// that is lost both the shell and the kernel tell.
const ECHO: Duration = Duration::from_millis(500);

/// Whether somebody asked us to stop. Clones share the answer.
#[derive(Clone, Debug, Default)]
pub struct Interrupt {
    asked: Arc<AtomicBool>,
    listening: Arc<AtomicBool>,
    measured: Arc<AtomicBool>,
    in_part: Arc<AtomicBool>,
}

impl Interrupt {
    /// One that nobody asked yet, not tied to any signal.
    pub fn new() -> Interrupt {
        Interrupt::default()
    }

    /// Ties it to Ctrl-C, SIGTERM and SIGHUP, once per process; later calls change nothing. For commands that have
    /// something to finish: elsewhere the default, which is to end at once, is right.
    ///
    /// # Errors
    /// If the handler cannot be set.
    pub fn listen(&self) -> Result<(), CliError> {
        if self.listening.swap(true, Ordering::SeqCst) {
            return Ok(());
        }
        let shared = self.clone();
        let mut first = None;
        let handler = move || {
            #[allow(clippy::disallowed_methods)] // of people and signals, not of anything measured
            let first = *first.get_or_insert_with(Instant::now);
            if shared.ask() {
                to_stderr(&shared.told());
            } else if first.elapsed() > ECHO {
                std::process::exit(Exit::Interrupted.code().into());
            }
        };
        ctrlc::set_handler(handler).map_err(|e| CliError::machine("cannot listen for Ctrl-C").caused_by(&e))
    }

    /// Keeps a lost terminal from this process where whoever started it had it ignore that, as `nohup` does: [`Interrupt::listen`]
    /// would take it for a wish. To be called before there are other threads, which inherit it.
    pub fn honour_nohup() {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        if ignores(&status, Signal::SIGHUP) {
            let mut hang_up = SigSet::empty();
            hang_up.add(Signal::SIGHUP);
            // What cannot be kept away ends the run early, with its results.
            let _ = hang_up.thread_block();
        }
    }

    /// Asks to stop. Whether this was the first time.
    pub fn ask(&self) -> bool {
        !self.asked.swap(true, Ordering::SeqCst)
    }

    /// From now on there is something to keep.
    pub fn measured(&self) {
        self.measured.store(true, Ordering::SeqCst);
    }

    /// From now on a run is under way that is of use in part: what it has counted will be kept.
    pub fn keeps_parts(&self) {
        self.in_part.store(true, Ordering::SeqCst);
    }

    /// What who asks is told.
    fn told(&self) -> String {
        let in_part = || self.in_part.load(Ordering::SeqCst) && progress::anything_counted();
        let kept = match self.measured.load(Ordering::SeqCst) || in_part() {
            true => ", and keeping what was measured",
            false => "; nothing has been measured yet",
        };
        format!("\ndoorbell: stopping{kept}; Ctrl-C again ends at once\n")
    }

    /// The answer as a flag that running points look at.
    pub fn flag(&self) -> &AtomicBool {
        &self.asked
    }

    /// Whether somebody asked.
    pub fn asked(&self) -> bool {
        self.asked.load(Ordering::SeqCst)
    }
}

/// Whether a process ignores a signal, in the words of `/proc/self/status`.
fn ignores(status: &str, signal: Signal) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    mask & (1 << (signal as u64 - 1)) != 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use primitives::measure::Meter;
    use primitives::units::Nanos;

    #[test]
    fn who_interrupts_is_told_whether_there_is_something_to_keep() {
        let interrupt = Interrupt::new();
        assert!(interrupt.told().contains("stopping; nothing has been measured yet; Ctrl-C again"));
        // A run that is of use in part has counted nothing in its warm-up.
        let partly = Interrupt::new();
        partly.keeps_parts();
        let place = progress::under_way();
        let meter = place.get_or_init(|| Meter::fixed(1, Nanos(1_000), Nanos(1_000)).into());
        assert!(partly.told().contains("nothing has been measured yet"));
        meter.count(0, 1, Nanos(1_500));
        assert!(partly.told().contains("keeping what was measured"));
        assert!(
            interrupt.told().contains("nothing has been measured yet"),
            "points of a sweep are kept whole"
        );
        interrupt.clone().measured();
        assert!(interrupt.told().contains("stopping, and keeping what was measured; Ctrl-C again"));
    }

    #[test]
    fn ignored_signals_are_read_as_the_kernel_writes_them() {
        let status = "Name:\tdoorbell\nSigBlk:\t0000000000000000\nSigIgn:\t0000000000001001\n";
        assert!(ignores(status, Signal::SIGHUP) && ignores(status, Signal::SIGPIPE));
        assert!(!ignores(status, Signal::SIGTERM) && !ignores("nonsense", Signal::SIGHUP));
    }
}
