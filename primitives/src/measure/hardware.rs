//! Hardware counters of the calling thread, where the machine lets us have them.
//!
//! Virtual machines, containers and `kernel.perf_event_paranoid` often refuse. Then the answer is "not
//! available" with the reason, never 0: a zero would read as a measurement.

use perf_event::events::Hardware;
use perf_event::{Builder, Counter, Group};

/// What the counters showed over an interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HardwareCounts {
    /// Instructions retired in user mode.
    pub instructions: u64,
    /// Core cycles in user mode.
    pub cycles: u64,
    /// Last-level cache misses; `None` if this processor does not count them.
    pub cache_misses: Option<u64>,
    /// Share of the interval during which the counters were really on the processor; below 1 the kernel
    /// shared them among several users, and the numbers above are scaled up by it.
    pub share_counted: f64,
}

/// Instructions, cycles and cache misses of the thread that opened them.
#[derive(Debug)]
pub struct Counters {
    group: Group,
    instructions: Counter,
    cycles: Counter,
    cache_misses: Option<Counter>,
}

impl Counters {
    /// Opens the counters for the calling thread, stopped.
    ///
    /// # Errors
    /// The reason why they are not available, fit to be shown after "not available: ".
    pub fn try_open() -> Result<Counters, String> {
        let mut group = Group::new().map_err(reason)?;
        let open = |group: &mut Group, what| Builder::new().group(group).kind(what).build();
        let instructions = open(&mut group, Hardware::INSTRUCTIONS).map_err(reason)?;
        let cycles = open(&mut group, Hardware::CPU_CYCLES).map_err(reason)?;
        let cache_misses = open(&mut group, Hardware::CACHE_MISSES).ok();
        Ok(Counters { group, instructions, cycles, cache_misses })
    }

    /// Sets the counters to zero and starts them.
    ///
    /// # Errors
    /// The reason why the kernel refused.
    pub fn start(&mut self) -> Result<(), String> {
        self.group.reset().and_then(|()| self.group.enable()).map_err(reason)
    }

    /// Stops the counters and reads them.
    ///
    /// # Errors
    /// The reason why there is no reading, such as counters that never got on the processor.
    pub fn stop(&mut self) -> Result<HardwareCounts, String> {
        self.group.disable().map_err(reason)?;
        let counts = self.group.read().map_err(reason)?;
        let (enabled, running) = (counts.time_enabled(), counts.time_running());
        if running == 0 {
            return Err("other users kept the counters busy for the whole interval".to_owned());
        }
        let share = running as f64 / enabled.max(running) as f64;
        let scaled = |counter: &Counter| counts.get(counter).map(|&n| (n as f64 / share).round() as u64);
        let missing = || "the kernel gave no reading".to_owned();
        Ok(HardwareCounts {
            instructions: scaled(&self.instructions).ok_or_else(missing)?,
            cycles: scaled(&self.cycles).ok_or_else(missing)?,
            cache_misses: self.cache_misses.as_ref().and_then(scaled),
            share_counted: share,
        })
    }
}

/// Says what an error of `perf_event_open(2)` means for the person at the keyboard.
fn reason(error: std::io::Error) -> String {
    use std::io::ErrorKind;
    match error.kind() {
        ErrorKind::NotFound => {
            "this machine shows no hardware counters (virtual machines seldom do)".to_owned()
        }
        ErrorKind::PermissionDenied => {
            let paranoid = std::fs::read_to_string("/proc/sys/kernel/perf_event_paranoid");
            match paranoid {
                Ok(level) => {
                    format!(
                        "not permitted: kernel.perf_event_paranoid is {}, 2 or less is needed",
                        level.trim()
                    )
                }
                Err(_) => "not permitted by the kernel or the container".to_owned(),
            }
        }
        _ if error.raw_os_error() == Some(rustix::io::Errno::NOSYS.raw_os_error()) => {
            "the kernel is built without perf events, or the container forbids them".to_owned()
        }
        _ => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn either_counts_or_says_why_not() {
        match Counters::try_open() {
            Ok(mut counters) => {
                counters.start().expect("opened counters start");
                let sum: u64 = (0..10_000u64).map(std::hint::black_box).sum();
                std::hint::black_box(sum);
                match counters.stop() {
                    Ok(counts) => assert!(counts.instructions >= 10_000, "{counts:?}"),
                    Err(why) => assert!(!why.is_empty()),
                }
            }
            Err(why) => {
                eprintln!("skipped: hardware counters not available: {why}");
                assert!(!why.is_empty());
            }
        }
    }

    #[test]
    fn refusals_are_explained() {
        let no = |errno: rustix::io::Errno| reason(std::io::Error::from_raw_os_error(errno.raw_os_error()));
        assert!(no(rustix::io::Errno::ACCESS).contains("not permitted"));
        assert!(no(rustix::io::Errno::NOENT).contains("virtual machines"));
        assert!(no(rustix::io::Errno::NOSYS).contains("without perf events"));
    }
}
