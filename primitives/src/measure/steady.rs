//! When a run is measured: from where its warm-up ends until its throughput is known well enough.
//!
//! A [`Meter`] counts what ends in each of many equal time slots. With a fixed length and a fixed warm-up it only says
//! afterwards how well the rate is known, and whether the load was steady ([`Steadiness::settled`]). With a wanted [`Precision`] it also
//! decides, by this rule:
//!
//! 1. *Warm-up.* After 1/4 of the shortest length, and again whenever a quarter more has passed, MSER-5 looks at all
//!    slots so far. Once it finds the transient in their first half, and what fills slowly has been emptied ([`Turnover`]), the counting
//!    window opens.
//! 2. *Length.* After the shortest length, and again whenever a quarter more has been counted, batch means of the
//!    window give a 95 % confidence interval ([`batch_means`]; longer batches while neighbours are correlated).
//!    Once its half width is within the wanted share of the mean, neighbours are independent, MSER-5 finds no
//!    transient beyond the window's first half and as many operations have ended as were asked for
//!    ([`Meter::ending`]), the window closes.
//! 3. *Limit.* The window closes at the longest length whatever was found; then the run has not converged, and says so.
//!
//! Looking several times makes the interval a little optimistic; the quarter between looks keeps it little.
//!
//! The window opens and closes two slots after a decision, never in the past: every worker has heard of it by
//! then, so all count the same span. In virtual time decisions are a value of the counts, thus of the seed. Nothing
//! here reads a clock.

mod batch;

pub use batch::{BatchMeans, SLOTS_LEAST, batch_means, mean_of, mser5};

use super::{TooShort, Turnover};
use crate::units::Nanos;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};

/// Slots in the shortest length.
const SLOTS: u64 = 256;

/// Batches that are all within this share of their mean are steady whatever their order says: a loop in virtual time goes round and round, and
/// where its rounds fall in slots depends on slots before. It is the width that a rate is known to where nobody asks for another.
const LEVEL: f64 = 0.01;

/// Most slots of a run.
const SLOTS_MOST: u64 = 8192;

/// How well a throughput is to be known, and what that may cost.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Precision {
    /// Half width of the 95 % confidence interval over the mean: 0.01 is ±1 %.
    pub relative: f64,
    /// Shortest counted time.
    pub least: Nanos,
    /// Longest run, warm-up included.
    pub most: Nanos,
}

/// The end of the warm-up, and what is known of the rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Steadiness {
    /// Time that was not counted.
    pub warm_up: Nanos,
    /// Time that was.
    pub measured: Nanos,
    /// Length of a batch.
    pub batch: Nanos,
    /// The batches; `None` if the counted time was too short to say, or nothing ended in it.
    pub means: Option<BatchMeans>,
    /// Whether the wanted precision was reached; `None` if the length was fixed.
    pub converged: Option<bool>,
    /// With a fixed length, whether the load was steady while it was counted; `None` if the length was not fixed, or too little was
    /// counted to say. It was not where MSER-5, which looks at the warm-up too, would have begun later and known a rate that the one which
    /// was got is not within, or where neighbouring batches depend on each other, as those of a drift do: the interval is then too narrow. Batches within 1 % of their mean are steady in any case. Of 1000 loads of independent
    /// operations 2 to 13 are called unsteady by chance. Nor was it where what fills slowly had yet to be emptied when counting began ([`Turnover`]).
    pub settled: Option<bool>,
}

impl Steadiness {
    /// Half width of the confidence interval over the mean, where it is known.
    pub fn relative(&self) -> Option<f64> {
        self.means.map(|m| m.relative)
    }

    /// What ended per second in each batch, in order; nothing where there are no batches.
    pub fn batch_rates_per_s(&self) -> Vec<f64> {
        let per_s = |m: &BatchMeans| 1e9 * m.slots as f64 / self.batch.0.max(1) as f64;
        self.means.iter().flat_map(|m| m.each().iter().map(|mean| mean * per_s(m))).collect()
    }

    /// What is left of it where the counted time was too short: the interval would say nothing.
    #[must_use]
    pub fn unless(self, too_short: Option<TooShort>) -> Steadiness {
        match too_short {
            Some(_) => {
                let converged = self.converged.map(|_| false);
                Steadiness { means: None, batch: Nanos(0), converged, settled: None, ..self }
            }
            None => self,
        }
    }
}

/// Counts what ends, slot by slot, and holds the window in which it counts. Shared by all workers of a run.
#[derive(Debug)]
pub struct Meter {
    /// When the last worker was ready, and slots begin.
    start: AtomicU64,
    /// The window, from `start`.
    from: AtomicU64,
    until: AtomicU64,
    /// log₂ of a slot's length in nanoseconds: counting must not divide.
    slot_bits: u32,
    /// Slots by worker, so that threads do not share lines.
    rows: Vec<Box<[AtomicU32]>>,
    turnover: Turnover,
    wanted: Option<Wanted>,
}

#[derive(Debug)]
struct Wanted {
    precision: Precision,
    /// Operations that must have ended in the window.
    ended: u64,
    /// When to look next, from `start`.
    next: AtomicU64,
    /// A worker is looking; the others go on.
    looking: AtomicBool,
    /// The window is open: look at its interval, no longer for the end of the warm-up.
    open: AtomicBool,
    /// MSER-5 found the end of the warm-up.
    warm: AtomicBool,
    /// The first slot that was not part of the decision to close; 0 while there is none.
    decided: AtomicU64,
}

/// log₂ of the slot length for a counted time and a whole run.
fn slot_bits(least: Nanos, most: Nanos) -> u32 {
    let fine = (least.0 / SLOTS).max(1).ilog2();
    let coarse = (most.0 / SLOTS_MOST).max(1).next_power_of_two().ilog2();
    fine.max(coarse)
}

impl Meter {
    fn new(workers: usize, from: u64, until: u64, slot_bits: u32, wanted: Option<Wanted>) -> Meter {
        // Two slots beyond the end for what ends while the window closes.
        let slots = (until >> slot_bits) as usize + 2;
        let row = || (0..slots).map(|_| AtomicU32::new(0)).collect();
        Meter {
            start: AtomicU64::new(0),
            from: AtomicU64::new(from),
            until: AtomicU64::new(until),
            slot_bits,
            rows: (0..workers.max(1)).map(|_| row()).collect(),
            turnover: Turnover::default(),
            wanted,
        }
    }

    /// Counts a fixed span after a fixed warm-up. `workers` is the number of threads that count side by side; one where
    /// time is virtual.
    pub fn fixed(workers: usize, warm_up: Nanos, measured: Nanos) -> Meter {
        let until = warm_up.0.saturating_add(measured.0);
        Meter::new(workers, warm_up.0, until, slot_bits(measured, Nanos(until)), None)
    }

    /// Counts until the rate is known as well as wanted.
    pub fn precise(workers: usize, precision: Precision) -> Meter {
        let most = precision.most.max(precision.least);
        let bits = slot_bits(precision.least, most);
        let wanted = Wanted {
            precision,
            ended: 0,
            next: AtomicU64::new((precision.least.0 / 4).max(2 << bits)),
            looking: AtomicBool::new(false),
            open: AtomicBool::new(false),
            warm: AtomicBool::new(false),
            decided: AtomicU64::new(0),
        };
        Meter::new(workers, most.0, most.0, bits, Some(wanted))
    }

    /// With a precision, counts on until so many operations have ended: the first that end are the short ones, and their rate may
    /// look steady before a long one had its turn.
    #[must_use]
    pub fn ending(mut self, ended: u64) -> Meter {
        if let Some(wanted) = &mut self.wanted {
            wanted.ended = ended;
        }
        self
    }

    /// Everything counts, and no slots are kept.
    pub fn everything() -> Meter {
        let mut meter = Meter::new(1, 0, 0, 63, None);
        meter.until = AtomicU64::new(u64::MAX);
        meter.rows.clear();
        meter
    }

    /// A worker is ready at `now`; the run starts when the last one is. To be called before anything is counted.
    pub fn ready(&self, now: Nanos) {
        self.start.fetch_max(now.0, Relaxed);
    }

    /// Where to say what fills slowly.
    pub fn turnover(&self) -> &Turnover {
        &self.turnover
    }

    /// When the run started.
    pub fn start(&self) -> Nanos {
        Nanos(self.start.load(Relaxed))
    }

    /// How far the run has come: when something ended last, to a slot, and when it is over at the latest. Whoever asks looks through the
    /// slots, so that those who count pay nothing for it. Nothing where no slots are kept.
    pub fn reached(&self) -> Option<(Nanos, Nanos)> {
        let slots = self.rows.first()?.len();
        let counted = |slot: &usize| {
            self.rows.iter().filter_map(|row| row.get(*slot)).any(|count| count.load(Relaxed) > 0)
        };
        let last = (0..slots).rev().find(counted).map_or(0, |slot| (slot as u64 + 1) << self.slot_bits);
        let until = self.until.load(Relaxed);
        Some((Nanos(last.min(until)), Nanos(until)))
    }

    /// Whether something has ended in the window, to a slot. Who asks pays, as in [`Meter::reached`].
    pub fn has_counted(&self) -> bool {
        let from = (self.from.load(Relaxed) >> self.slot_bits) as usize;
        self.rows.iter().flat_map(|row| row.iter().skip(from)).any(|count| count.load(Relaxed) > 0)
    }

    /// Whether what ends at `now` counts.
    #[inline]
    pub fn holds(&self, now: Nanos) -> bool {
        let at = self.at(now);
        self.from.load(Relaxed) <= at && !self.over_at(at)
    }

    /// Whether the run is over at `now`: nothing new should begin.
    #[inline]
    pub fn over(&self, now: Nanos) -> bool {
        self.over_at(self.at(now))
    }

    #[inline]
    fn over_at(&self, at: u64) -> bool {
        at >= self.until.load(Relaxed)
    }

    #[inline]
    fn at(&self, now: Nanos) -> u64 {
        now.0.saturating_sub(self.start.load(Relaxed))
    }

    /// `n` operations ended at `now`; `worker` is the number of the thread that says so. Decides, when it is time to.
    #[inline]
    pub fn count(&self, worker: usize, n: u32, now: Nanos) {
        let at = self.at(now);
        let row = self.rows.get(worker).or(self.rows.first());
        if let Some(slot) = row.and_then(|row| row.get((at >> self.slot_bits) as usize)) {
            // A row has one writer.
            slot.store(slot.load(Relaxed).saturating_add(n), Relaxed);
        }
        if let Some(wanted) = &self.wanted
            && at >= wanted.next.load(Relaxed)
        {
            self.look(wanted, at);
        }
    }

    #[cold]
    fn look(&self, wanted: &Wanted, at: u64) {
        if wanted.looking.swap(true, std::sync::atomic::Ordering::Acquire) {
            return;
        }
        // The slot before the present one may still be filling: cores in virtual time are ahead of each other by a
        // resume, threads by a time slice.
        let now = at >> self.slot_bits;
        let (whole, soon) = (now.saturating_sub(1), (now + 2) << self.slot_bits);
        let Precision { relative, least, .. } = wanted.precision;
        let mut next = u64::MAX;
        if at < wanted.next.load(Relaxed) {
            next = wanted.next.load(Relaxed); // another worker has just looked
        } else if !wanted.open.load(Relaxed) {
            let turned = self.turnover.is_steady(Nanos(at + self.start.load(Relaxed)));
            wanted.warm.store(turned && mser5(&self.series(0, whole)).is_some(), Relaxed);
            let limit = self.until.load(Relaxed);
            // What has not settled in half of the time is counted unsettled: the rest must hold a window.
            if wanted.warm.load(Relaxed) || at >= limit / 2 {
                wanted.open.store(true, Relaxed);
                self.from.store(soon.min(limit), Relaxed);
                next = soon + least.0 + (1 << self.slot_bits);
            } else {
                next = at + at / 4;
            }
        } else if wanted.decided.load(Relaxed) == 0 {
            let series = self.series(self.from.load(Relaxed) >> self.slot_bits, whole);
            let means = batch_means(&series);
            let known = means.is_some_and(|m| m.independent && m.relative <= relative);
            let enough = series.iter().sum::<f64>() >= wanted.ended as f64;
            if known && enough && mser5(&series).is_some() && wanted.warm.load(Relaxed) {
                wanted.decided.store(whole, Relaxed);
                self.until.fetch_min(soon, Relaxed);
            } else {
                next = at + (at - self.from.load(Relaxed)) / 4;
            }
        }
        wanted.next.store(next, Relaxed);
        wanted.looking.store(false, std::sync::atomic::Ordering::Release);
    }

    /// Counts of slots `[first, last)` over all workers.
    fn series(&self, first: u64, last: u64) -> Vec<f64> {
        let sum = |slot: u64| -> f64 {
            self.rows.iter().filter_map(|r| r.get(slot as usize)).map(|c| f64::from(c.load(Relaxed))).sum()
        };
        (first..last).map(sum).collect()
    }

    /// What there is to say when the run has ended; `end` is when its last operation did, which matters if it was
    /// interrupted.
    pub fn steadiness(&self, end: Nanos) -> Steadiness {
        let from = self.from.load(Relaxed);
        let until = self.until.load(Relaxed).min(self.at(end)).max(from);
        let slot = 1u64 << self.slot_bits;
        // The interval is the one that decided: with other slots batches fall elsewhere.
        let decided = self.wanted.as_ref().map_or(0, |w| w.decided.load(Relaxed));
        let last = if decided > 0 { decided } else { until >> self.slot_bits };
        let means = batch_means(&self.series(from.div_ceil(slot), last));
        let settled = means.filter(|_| self.wanted.is_none()).map(|means| {
            let all = self.series(0, last);
            let counted = from.div_ceil(slot) as usize;
            // The mean that was got, against what would have been known from there on.
            let within = |steady: BatchMeans| (means.mean / steady.mean - 1.0).abs() <= steady.relative;
            let begun = |cut: usize| cut <= counted || batch_means(&all[cut..]).is_some_and(within);
            // One operation more or less is where a batch begins; or as many as end together, where they are so few that it shows.
            let together = all.iter().copied().fold(1.0, f64::max);
            let together = if means.mean < 1.0 { together } else { 1.0 };
            let off = (LEVEL * means.mean).max(together / means.slots as f64);
            let level = means.each().iter().all(|batch| (batch - means.mean).abs() <= off);
            let turned = self.turnover.is_steady(Nanos(from + self.start.load(Relaxed)));
            turned && (level || means.independent && mser5(&all).is_some_and(begun))
        });
        Steadiness {
            warm_up: Nanos(from),
            measured: Nanos(until - from),
            batch: Nanos(means.map_or(0, |m| m.slots as u64 * slot)),
            means,
            converged: self.wanted.as_ref().map(|_| decided > 0),
            settled,
        }
    }
}

#[cfg(test)]
mod tests;
