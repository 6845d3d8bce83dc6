//! Measures the points of a grid into a result directory, several at a time.
//!
//! Each point is a closure's work on one thread, and shares nothing with the others, so its result does not
//! depend on how many run beside it; the directory keeps rows in point order. Together: the same files
//! for any number of jobs. Where time is real, points would disturb each other: give one job.
//!
//! A point that fails does not stop the others, and is told at once: a sweep may take hours. Those that fail alike are counted, and told
//! of together in the end. A directory that cannot be
//! written stops it, and so does a failure that would be every point's ([`CliError::for_all`]). After the first
//! Ctrl-C no point is begun and those that run are kept.

use std::any::Any;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, mpsc};

use primitives::measure::{PointResult, ResultDir, ResultError, TableName, count};

use crate::error::{CliError, Exit};
use crate::interrupt::Interrupt;
use crate::output::Talk;
use crate::progress::{Progress, Task};

/// How to sweep.
#[derive(Clone, Debug)]
pub struct Sweep {
    /// What the progress line is called.
    pub title: String,
    /// Points at a time, at least 1.
    pub jobs: usize,
    /// Where progress is shown.
    pub talk: Talk,
    /// Who may stop it.
    pub interrupt: Interrupt,
    /// The command that goes on where this one ended.
    pub repeat: String,
    /// The points to measure, where not all are asked for.
    pub only: Option<BTreeSet<u64>>,
    /// Another sweep measures other points of the same directory next, and warns of these among all: here they are noted alone.
    pub goes_on: bool,
}

/// Points at a time where nobody says otherwise: one per core in virtual time, one where time is real.
pub fn usual_jobs(virtual_time: bool) -> usize {
    if virtual_time { std::thread::available_parallelism().map_or(1, |n| n.get()) } else { 1 }
}

/// Answers `count` questions, `jobs` at a time, in their order and without a directory to keep them in; `None` once `stop` is set, after which
/// an answer may be one that was cut short.
pub fn side_by_side<T: Send>(
    count: usize,
    jobs: usize,
    stop: &AtomicBool,
    ask: impl Fn(usize) -> T + Sync,
) -> Option<Vec<T>> {
    let next = AtomicUsize::new(0);
    let answers: Mutex<BTreeMap<usize, T>> = Mutex::default();
    std::thread::scope(|scope| {
        for _ in 0..jobs.clamp(1, count.max(1)) {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    if at >= count {
                        break;
                    }
                    let answer = ask(at);
                    answers.lock().unwrap_or_else(|p| p.into_inner()).insert(at, answer);
                }
            });
        }
    });
    let answers = answers.into_inner().unwrap_or_else(|p| p.into_inner());
    (!stop.load(Ordering::Relaxed)).then(|| answers.into_values().collect())
}

/// A point that was not measured.
#[derive(Debug)]
struct Failure {
    point: u64,
    error: CliError,
}

impl Sweep {
    /// Measures the missing points of `dir` by `measure`, which gets a point's number, and finishes `dir`
    /// with what `summary` makes of it.
    ///
    /// # Errors
    /// [`Exit::Interrupted`] after Ctrl-C, with the command to resume; the first failed point's error, with
    /// its number, if any failed; a full or unwritable directory. What was measured is kept in each case.
    pub fn run<M>(
        &self,
        dir: &mut ResultDir,
        measure: M,
        summary: impl FnOnce(&ResultDir) -> serde_json::Value,
    ) -> Result<(), CliError>
    where
        M: Fn(u64) -> Result<PointResult, CliError> + Sync,
    {
        dir.lost().into_iter().for_each(|lost| self.talk.warn(lost));
        let missing = self.missing(dir);
        let expected = self.only.as_ref().map_or(dir.record().points_here(), |only| only.len() as u64);
        let kept = expected - missing.len() as u64;
        if kept > 0 {
            self.interrupt.measured();
        }
        if kept > 0 && !missing.is_empty() {
            self.talk.say(format!("resuming: {kept} of {expected} points are there"));
        }
        match dir.record().shard {
            Some(shard) if expected == 0 => {
                let all = count(dir.record().points_expected, "point");
                self.talk.warn(format!("{}: of its {all}, shard {shard} holds none", self.title));
            }
            _ if missing.is_empty() => {
                let there = match expected {
                    1 => "the point is there".to_owned(),
                    _ => format!("all {expected} points are there"),
                };
                self.talk.say(format!("{}: nothing to measure, {there}", self.title));
            }
            _ => {}
        }
        let task = Task { title: self.title.clone(), what: "point", done: kept, total: Some(expected) };
        let progress = Progress::begin(self.talk, task);
        let alike = RefCell::new(BTreeMap::<String, u64>::new());
        let measured = self.measure_all(
            &missing,
            measure,
            |point, result| {
                dir.keep(point, result).map_err(resumable)?;
                self.interrupt.measured();
                progress.inc();
                Ok(())
            },
            |point, error| {
                if error.exit() != Exit::Interrupted {
                    let others = match error.is_for_all() {
                        true => "and no other can be measured",
                        false => "the others go on",
                    };
                    let told = format!("point {point} failed, {others}: {}", error.message());
                    let mut alike = alike.borrow_mut();
                    let times = alike.entry(error.message().to_owned()).or_default();
                    *times += 1;
                    progress.suspend(|| match times {
                        1 => self.talk.warn(told),
                        _ => self.talk.detail(told),
                    });
                }
            },
        );
        drop(progress);
        for (why, times) in alike.into_inner().into_iter().filter(|(_, times)| *times > 1) {
            self.talk.warn(format!("{} failed: {why}", count(times, "point")));
        }

        let interrupted = self.interrupt.asked();
        let goes_on = self.goes_on && !interrupted && measured.as_ref().is_ok_and(Vec::is_empty);
        let talk = if goes_on { self.talk.silent() } else { self.talk };
        crate::schedule::note(dir, talk);
        crate::window::note(dir, talk);
        let closing = summary(dir);
        // Even when keeping failed: what there is belongs into the tables, if they can be written at all.
        let finished = dir.finish(interrupted, closing);
        let mut failures = measured?;
        finished.map_err(resumable)?;
        failures.sort_by_key(|failure| failure.point);
        if !dir.record().complete && interrupted {
            return Err(self.was_interrupted(dir, expected));
        }
        let count = failures.len();
        let ended = failures.iter().position(|failure| failure.error.is_for_all());
        if let Some(Failure { point, error }) = ended.map(|which| failures.swap_remove(which)) {
            return Err(error
                .context(format!("point {point} failed, and with it all that had not been measured"))
                .also(format!("those that had been are kept: go on with: {}", self.repeat)));
        }
        match failures.into_iter().next() {
            None => Ok(()),
            Some(Failure { point, error }) => {
                let others = if count > 1 { format!(" ({} more failed)", count - 1) } else { String::new() };
                Err(error.context(format!("point {point} failed{others}; the others are kept")))
            }
        }
    }

    /// Runs the points on `jobs` threads and hands each result to `keep` on this one, as it ends, or to `failed`.
    fn measure_all<M, K, F>(
        &self,
        points: &[u64],
        measure: M,
        mut keep: K,
        failed: F,
    ) -> Result<Vec<Failure>, CliError>
    where
        M: Fn(u64) -> Result<PointResult, CliError> + Sync,
        K: FnMut(u64, &PointResult) -> Result<(), CliError>,
        F: Fn(u64, &CliError),
    {
        let next = AtomicUsize::new(0);
        let halt = AtomicBool::new(false);
        let mut failures = Vec::new();
        let mut kept = Ok(());
        std::thread::scope(|scope| {
            let (sender, results) = mpsc::channel();
            for _ in 0..self.jobs.clamp(1, points.len().max(1)) {
                let (sender, next, halt, measure) = (sender.clone(), &next, &halt, &measure);
                scope.spawn(move || {
                    while !halt.load(Ordering::Relaxed) && !self.interrupt.asked() {
                        let Some(&point) = points.get(next.fetch_add(1, Ordering::Relaxed)) else { break };
                        let result = catch_unwind(AssertUnwindSafe(|| measure(point)))
                            .unwrap_or_else(|panic| Err(panicked(panic.as_ref())));
                        // Here, and not where results are taken: this thread would begin another point before that.
                        halt.fetch_or(result.as_ref().is_err_and(CliError::is_for_all), Ordering::Relaxed);
                        if sender.send((point, result)).is_err() {
                            break;
                        }
                    }
                });
            }
            drop(sender);
            for (point, result) in results {
                match result {
                    Ok(_) if kept.is_err() => {} // the directory takes no more; the point is measured again
                    Ok(result) => {
                        kept = keep(point, &result);
                        halt.fetch_or(kept.is_err(), Ordering::Relaxed);
                    }
                    Err(error) => {
                        failed(point, &error);
                        failures.push(Failure { point, error });
                    }
                }
            }
        });
        kept.map(|()| failures)
    }

    /// The points of `dir` that are to be measured and are not there.
    fn missing(&self, dir: &ResultDir) -> Vec<u64> {
        let mut missing = dir.missing();
        missing.retain(|point| self.only.as_ref().is_none_or(|only| only.contains(point)));
        missing
    }

    /// Of the points that were asked for, as [`Sweep::run`] counts them when it goes on.
    fn was_interrupted(&self, dir: &ResultDir, expected: u64) -> CliError {
        let kept = expected - self.missing(dir).len() as u64;
        let (all, out) = (count(expected, "point"), dir.path().display());
        // Of a part of a directory's points others may be there, from before.
        let others = dir.rows(TableName::Points).map_or(0, |rows| rows.len() as u64).saturating_sub(kept);
        let others = if others > 0 { format!(", beside {others} from before") } else { String::new() };
        CliError::new(Exit::Interrupted, format!("interrupted: {kept} of {all} kept in {out}{others}"))
            .hint(format!("go on with: {}", self.repeat))
    }
}

/// A directory that takes no more: what it has taken is not measured again.
fn resumable(error: ResultError) -> CliError {
    let full = error.is_full();
    let shown = CliError::from(error);
    match full {
        true => shown.hint(
            "make room there, then run the same command again: finished points are kept and not measured again",
        ),
        false => shown,
    }
}

/// A panic in a point is a bug; it costs that point, not the sweep.
fn panicked(panic: &(dyn Any + Send)) -> CliError {
    let said = panic.downcast_ref::<&str>().map(|s| (*s).to_owned());
    let said = said.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
    CliError::check(format!("it panicked: {said}"))
        .hint("this is a bug in doorbell: please report it with the command line")
}
