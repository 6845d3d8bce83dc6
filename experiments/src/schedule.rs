//! Whether a point that took real time was decided by the scheduler: how often the kernel took the CPU away from this
//! process while the point was measured.
//!
//! Worker threads poll, so each wants a CPU of its own. Where another process or another worker wants the same one, the
//! kernel switches between them every few milliseconds, hundreds of times a second, and an answer may wait for its
//! thread's next turn instead of for the fabric. On an idle machine only the kernel's own threads interrupt, a few times
//! a second. A thread that yields to another that is ready counts too.
//!
//! Who is kept off the CPU altogether is not preempted often. But load is closed: some request is always on its way, and
//! whoever it waits for polls; a loop that has nothing to do spins, then yields, and parks only after some hundred
//! microseconds without work. So on an idle machine at least one thread is always at it, and the process has as much CPU
//! time as time goes by, or more. Where it has not half of that, nobody let it.

use nix::sys::resource::{Usage, UsageWho, getrusage};
use primitives::measure::{ResultDir, Row, TableName, count, were};
use primitives::units::Nanos;
use std::time::{Duration, Instant};

use crate::error::CliError;
use crate::interrupt::Interrupt;
use crate::output::Talk;

/// Preemptions per second of CPU time above which a point counts as taken on a busy machine: Linux gives contending
/// threads slices of 3 to 4 ms (some 300 switches a second), and an idle machine stays below a few tens.
pub const BUSY: f64 = 100.0;

/// What people are told of such a point.
pub const WARNING: &str =
    "busy machine: the scheduler took CPUs away from worker threads, and had a say in these numbers\n";

/// What the record's note of such points says.
pub const NOTED: &str = "taken on a busy machine";

/// CPU time below which a rate of preemptions says nothing, in seconds.
const LEAST_CPU_S: f64 = 0.01;

/// CPU time of the process, as a share of the time that went by, below which it was kept off the CPUs.
const STARVED: f64 = 0.5;

/// How often a point at which nothing ended is measured again; each time for four times as long.
const AGAIN: u32 = 3;

/// What helps a point in which nothing ended.
const LONGER: &str = "give a longer --duration, or none: `study` and `characterize` then measure such points for longer; either is another \
                      run, for another --out";

/// Measures a point, for `window` at first; `ended` says how many requests or operations ended in it. A point without any says
/// nothing and must not be kept as if it did: it is measured again, for longer, if `again`, as it must be on a machine that had
/// other things to do.
///
/// # Errors
/// As `measure`; if nothing ended; Ctrl-C.
pub fn until_something_ended<T>(
    window: Nanos,
    virtual_time: bool,
    again: bool,
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
        if virtual_time && (!again || window >= longest) {
            return Err(CliError::check(format!("nothing ended within {window}")).hint(LONGER));
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
    before: Option<(Usage, Instant)>,
    alone: bool,
}

impl Watch {
    /// Begins to count; virtual time is nobody's to take away, and there nothing is counted. `alone` says that all nodes are in
    /// this process: one that waits for others may well have nothing to do.
    #[allow(clippy::disallowed_methods)] // what the scheduler did is of real time
    pub fn begin(virtual_time: bool, alone: bool) -> Watch {
        let before = if virtual_time { None } else { usage() };
        Watch { before: before.map(|usage| (usage, Instant::now())), alone }
    }

    /// What happened since the beginning.
    pub fn end(&self) -> Disturbance {
        let (Some((before, began)), Some(now)) = (&self.before, usage()) else {
            return Disturbance::default();
        };
        let switches = now.involuntary_context_switches() - before.involuntary_context_switches();
        let mut found = Disturbance::of(cpu_s(&now) - cpu_s(before), began.elapsed(), switches);
        found.starved &= self.alone;
        found
    }
}

/// What the scheduler did to a point.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Disturbance {
    /// Preemptions per second of CPU time; `None` where time is virtual or nothing could be counted.
    pub preemptions_per_cpu_s: Option<f64>,
    /// No thread was let to a CPU for most of the time.
    pub starved: bool,
}

impl Disturbance {
    /// From CPU time, the time that went by, and preemptions.
    fn of(cpu_s: f64, took: Duration, preemptions: i64) -> Disturbance {
        Disturbance {
            preemptions_per_cpu_s: (cpu_s >= LEAST_CPU_S).then(|| (preemptions as f64 / cpu_s).round()),
            starved: took.as_secs_f64() >= LEAST_CPU_S && cpu_s < STARVED * took.as_secs_f64(),
        }
    }

    /// Whether the machine was busy with something else; `None` where that is not known.
    pub fn busy(&self) -> Option<bool> {
        match self.starved {
            true => Some(true),
            false => self.preemptions_per_cpu_s.map(|p| p > BUSY),
        }
    }

    /// The point's row with what was counted.
    #[must_use]
    pub fn told(&self, row: Row) -> Row {
        row.with("preemptions_per_cpu_s", self.preemptions_per_cpu_s)
            .with("busy", self.busy().map(|busy| if busy { "yes" } else { "no" }))
    }
}

/// Notes in a directory's record how many of its points were taken on a busy machine, in place of what was noted when there were
/// others, and warns of it.
pub fn note(dir: &mut ResultDir, talk: Talk) {
    dir.forget_notes(NOTED);
    let rows = dir.rows(TableName::Points).unwrap_or_default();
    let busy = busy_among(&rows);
    if busy > 0 {
        let text = format!(
            "{busy} of {} {} {NOTED}: the scheduler took CPUs away more than {BUSY} times in a \
             second of CPU time, or left none for most of the time.",
            count(rows.len() as u64, "point"),
            were(busy as u64)
        );
        talk.warn_of_busy(format!("{}: {text}", dir.record().title));
        dir.note(text);
    }
}

/// How that doubt begins.
pub const DOUBT: &str = "measured on a busy machine";

/// What speaks against a profile that is fitted to these points, and to runs of transactions that were `busy` or not.
pub fn doubt(rows: &[Row], engine: bool) -> Option<String> {
    let points = match busy_among(rows) {
        0 => None,
        busy => Some(format!("{busy} of the {} points that it was fitted to", rows.len())),
    };
    let engine = engine.then(|| "what the engine computes".to_owned());
    let measured: Vec<String> = points.into_iter().chain(engine).collect();
    (!measured.is_empty()).then(|| format!("{DOUBT}: {}", measured.join(", and ")))
}

/// How many of these points were taken on a busy machine.
pub fn busy_among(rows: &[Row]) -> usize {
    rows.iter().filter(|row| row.get("busy") == Some("yes")).count()
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

    fn spin() {
        let end = Instant::now() + Duration::from_millis(60);
        while Instant::now() < end {
            std::hint::spin_loop();
        }
    }

    #[test]
    fn threads_that_share_cpus_are_noticed() {
        let watch = Watch::begin(false, true);
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
    fn too_little_cpu_time_is_a_busy_machine_whatever_was_preempted() {
        let busy = |cpu_ms, took_ms, preemptions| {
            Disturbance::of(cpu_ms as f64 / 1e3, Duration::from_millis(took_ms), preemptions).busy()
        };
        assert_eq!(busy(4, 60, 3), Some(true), "kept off the CPU");
        assert_eq!(busy(25, 60, 0), Some(true));
        // An idle machine: one thread polls, or all do.
        assert_eq!((busy(58, 60, 1), busy(240, 60, 2)), (Some(false), Some(false)));
        assert_eq!(busy(58, 60, 30), Some(true));
        assert_eq!((busy(3, 4, 0), busy(0, 4, 0)), (None, None), "too short to tell");
    }

    /// What the next test runs in a process of its own, where nothing else has CPU time.
    #[test]
    #[allow(clippy::print_stdout)] // its parent reads it
    fn a_worker_in_a_process() {
        if std::env::var_os("A_WORKER").is_some() {
            let watch = Watch::begin(false, true);
            println!("begun");
            spin();
            println!("busy: {:?}", watch.end());
        }
    }

    #[test]
    fn a_thread_that_is_kept_off_the_cpu_is_noticed() {
        use rustix::process::{Pid, Signal, kill_process};
        use std::io::{BufRead, BufReader};
        let mut worker = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "schedule::tests::a_worker_in_a_process", "--nocapture", "--test-threads=1"])
            .env("A_WORKER", "yes")
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = BufReader::new(worker.stdout.take().unwrap()).lines().map_while(Result::ok);
        assert!(said.any(|line| line.ends_with("begun")));
        let pid = Pid::from_child(&worker);
        kill_process(pid, Signal::STOP).unwrap();
        std::thread::sleep(Duration::from_millis(500));
        kill_process(pid, Signal::CONT).unwrap();
        let told = said.find(|line| line.contains("busy: ")).unwrap();
        assert!(worker.wait().unwrap().success() && told.contains("starved: true"), "{told}");
    }

    #[test]
    fn what_was_noted_of_fewer_points_goes() {
        use primitives::measure::{Kind, PointResult, RunRecord};
        let temp = tempfile::tempdir().unwrap();
        let record = RunRecord::new(Kind::Characterize, "loopback", serde_json::json!({}), 1, 2);
        let mut dir = ResultDir::create(temp.path(), record, &[]).unwrap();
        for (point, says) in [(0, "1 of 1 point was"), (1, "2 of 2 points were")] {
            dir.keep(point, &PointResult::of(Row::new().with("busy", "yes"))).unwrap();
            note(&mut dir, Talk::new(0, true));
            let notes = &dir.record().notes;
            assert!(notes.len() == 1 && notes[0].starts_with(says), "{notes:?}");
        }
    }

    #[test]
    fn a_profile_fitted_on_a_busy_machine_says_so() {
        let rows = ["yes", "no", "yes"].map(|busy| Row::new().with("busy", busy));
        let said = |rows: &[Row], engine| doubt(rows, engine).unwrap_or_default();
        assert_eq!(doubt(&rows[1..2], false), None);
        assert_eq!(
            said(&rows, true),
            "measured on a busy machine: 2 of the 3 points that it was fitted to, and what the engine computes"
        );
        assert_eq!(said(&rows[1..2], true), "measured on a busy machine: what the engine computes");
    }

    #[test]
    fn virtual_time_is_not_disturbed() {
        let row = Watch::begin(true, true).end().told(Row::new());
        assert_eq!((row.get("busy"), row.get("preemptions_per_cpu_s")), (Some(""), Some("")));
    }
}
