//! Conflicts, and what they cost: retries, waits, and phases that run in vain.
//!
//! Transactions arrive at a record at random, and the mean transaction of the mix stands for all in what it holds and for how
//! long. What an access meets depends on how the protocol keeps its state:
//!
//! - **Counted** (OCC): a record to be locked or checked is locked, or has changed since it was read. The attempt ends after all
//!   its work, computation included, or, where it loses a lock at home, before it asks for others.
//! - **Locked** (2PL): somebody holds the record in a mode that excludes the one asked for. Without waiting the attempt ends
//!   where it meets the first such record, before it computes. Wait-die waits if it is the older one, which is every other
//!   time, for what is left of the hold; with a bound, all wait, and give up if that lasts longer than the looks, or in a
//!   circle ([`super::waiting`]). What one has is held while it waits for others.
//! - **Counted**, locking first (FaSST): a write meets another writer's lock, at the first touch; a record to be checked is as under OCC.
//! - **Leased** (SUNDIAL): a write meets another writer's lock, at the first touch; a lease that has to be extended meets a
//!   writer that holds the record or has been there.
//! - **Versions** (MVCC): a read meets the lock of a writer, whose place in the order is taken to be earlier, since it has come
//!   that far already; a write meets a lock, or somebody with a later place who was quicker. Versions are taken to last.
//!
//! Readers that share a lock one-sided exclude nobody, and are in each other's way all the same: see [`super::races`].
//!
//! Not in it: ages that make a retry succeed more easily, clocks that differ.

use super::costs::{Costs, Priced};
use super::forecast::Model;
use super::input::TxnClass;
use super::races::Readers;
use super::solve::Solution;
use super::waiting::{Waiting, circles};
use crate::plan::{Needs, Phase, Via};
use crate::rule::{OnConflict, Packing};
use primitives::fabric::CpuWork;

/// What an access meets.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Met {
    /// Chance that an access which writes ends its attempt: of records that only coroutines of their own part come to, and of others.
    pub(super) home: f64,
    pub(super) write: f64,
    /// The same of an access which reads, where it is checked or locks.
    pub(super) read: f64,
    /// How often an access waits for a lock.
    pub(super) waits: f64,
    /// Mean wait of an access for its lock, in nanoseconds, beside the looks.
    pub(super) wait_ns: f64,
    /// The same with the looks, races of readers apart.
    pub(super) held_up_ns: f64,
    /// Looks at a lock beyond the first.
    pub(super) looks: f64,
    /// The same of a lock that is shared, to leave it.
    pub(super) leaves: f64,
    /// What races for such locks take of a transaction's time, for each commit, in nanoseconds.
    pub(super) raced_ns: f64,
    /// How the chances of accesses to end their attempt, which `write` and `read` are a mean of, are spread.
    pub(super) spread: Spread,
}

/// Powers of chances that are known exactly.
const POWERS: usize = 8;

/// Records are not alike, and whoever tries again goes to the same ones: a few transactions fail many times in a row, for which
/// a mean chance is no measure. So it is known, for one and more attempts, how likely an access is to do well in all of them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Spread {
    home: [f64; POWERS],
    write: [f64; POWERS],
    read: [f64; POWERS],
}

/// Chances that the first attempts all fail, for one and more.
pub(super) struct Chances {
    all: [f64; POWERS],
    known: usize,
}

impl std::ops::Deref for Chances {
    type Target = [f64];
    fn deref(&self) -> &[f64] {
        &self.all[..self.known]
    }
}

impl Default for Spread {
    /// Nothing ends an attempt.
    fn default() -> Spread {
        Spread { home: [1.0; POWERS], write: [1.0; POWERS], read: [1.0; POWERS] }
    }
}

impl Spread {
    fn towards(self, next: Spread, step: f64) -> Spread {
        let mix = |a: [f64; POWERS], b: [f64; POWERS]| std::array::from_fn(|i| a[i] + step * (b[i] - a[i]));
        Spread {
            home: mix(self.home, next.home),
            write: mix(self.write, next.write),
            read: mix(self.read, next.read),
        }
    }

    /// The chance that the first `k` attempts fail of a transaction with so many accesses of both kinds, for `k` from one to
    /// `most`: with `s` the chance that one succeeds, the mean of `(1 - s)^k`.
    fn all_fail(&self, [home, writes, reads]: [f64; 3], most: usize) -> Chances {
        let mut chances = Chances { all: [0.0; POWERS], known: most.min(POWERS) };
        let mut succeed = [0.0; POWERS];
        for k in 0..chances.known {
            succeed[k] =
                power(self.home[k], home) * power(self.write[k], writes) * power(self.read[k], reads);
            let (mut sum, mut choose) = (1.0, 1.0);
            for (j, mean) in succeed.iter().enumerate().take(k + 1) {
                choose *= -((k + 1 - j) as f64) / (j + 1) as f64;
                sum += choose * mean;
            }
            chances.all[k] = sum.clamp(0.0, 1.0);
        }
        chances
    }
}

impl Met {
    /// How far two are apart, relative where they are times.
    pub(super) fn distance(self, other: Met) -> f64 {
        let relative = |a: f64, b: f64| (a - b).abs() / a.abs().max(b.abs()).max(1.0);
        (self.write - other.write)
            .abs()
            .max((self.home - other.home).abs())
            .max((self.read - other.read).abs())
            .max(relative(self.wait_ns, other.wait_ns))
            .max((self.waits - other.waits).abs())
            .max(relative(self.held_up_ns, other.held_up_ns))
            .max(relative(self.looks, other.looks))
            .max(relative(self.leaves, other.leaves))
            .max(relative(self.raced_ns, other.raced_ns))
    }

    /// A step towards another.
    pub(super) fn towards(self, next: Met, step: f64) -> Met {
        let mix = |a: f64, b: f64| a + step * (b - a);
        Met {
            home: mix(self.home, next.home),
            write: mix(self.write, next.write),
            read: mix(self.read, next.read),
            wait_ns: mix(self.wait_ns, next.wait_ns),
            waits: mix(self.waits, next.waits),
            held_up_ns: mix(self.held_up_ns, next.held_up_ns),
            looks: mix(self.looks, next.looks),
            leaves: mix(self.leaves, next.leaves),
            raced_ns: mix(self.raced_ns, next.raced_ns),
            spread: self.spread.towards(next.spread, step),
        }
    }
}

/// How often one class runs each phase per commit.
#[derive(Clone, Copy, Debug)]
pub(super) struct Runs {
    pub(super) attempts: f64,
    /// Times it computes.
    pub(super) thinks: f64,
    /// Records it asks locks for.
    pub(super) asked: f64,
    /// Times it comes to all of its records; an attempt that ends early comes to some.
    pub(super) came_to: f64,
    pub(super) phases: [f64; Phase::ALL.len()],
    /// Of the times it unlocks, those in which it only looks again at locks that it shares.
    pub(super) left_again: f64,
    /// Accesses that may end an attempt: writes at home, other writes, reads. None where whoever fails becomes older, and does not
    /// fail for ever: a mean chance is nearer then than that of the record.
    at_risk: Option<[f64; 3]>,
}

/// Below this chance of success an attempt is taken to succeed this often all the same, so that retries stay finite.
pub(super) const LEAST_SUCCESS: f64 = 1e-6;

/// Looks at a lock that follow each other at once, before whoever waits pauses.
const LOOKS_AT_ONCE: f64 = 4.0;

/// `powf`, but for what is known without it: most workloads have nothing of a kind, and accesses that nobody is in the way of.
fn power(base: f64, exponent: f64) -> f64 {
    match exponent {
        0.0 => 1.0,
        1.0 => base,
        _ if base == 1.0 => 1.0,
        _ => base.powf(exponent),
    }
}

/// Of `n` accesses in a row, each of which ends the attempt alike, the share that an attempt which fails comes to, the failing
/// one included; `success` is the chance that none fails.
fn share_of_failed(n: f64, success: f64) -> f64 {
    if n <= 1.0 {
        return 1.0;
    }
    let each = 1.0 - success.powf(1.0 / n);
    // The mean of a geometric count, given that it ends within n.
    let mean = if each < 1e-9 { (n + 1.0) / 2.0 } else { 1.0 / each - n * success / (1.0 - success) };
    (mean / n).clamp(1.0 / n, 1.0)
}

/// Whether what is read is looked at again at commit, and not where it is met.
fn checks_at_commit(needs: &Needs) -> bool {
    matches!(needs.packing, Packing::Counted | Packing::Leased)
}

/// Of the records that a class writes, those that the own CPU locks before it asks for others, in bands whose parts keep to
/// themselves and in others.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LockedFirst {
    pub(super) apart: f64,
    pub(super) others: f64,
}

impl Runs {
    /// Of the records that the class writes, the own CPU locks `own` first.
    pub(super) fn new(
        needs: &Needs,
        class: &TxnClass,
        own: LockedFirst,
        met: Met,
        reads_ahead: bool,
    ) -> Runs {
        let (reads, writes) = (class.reads, class.writes);
        let home = own.apart;
        let away = writes - home;
        let none = |chance: f64, records: f64| power((1.0 - chance).max(0.0), records).max(LEAST_SUCCESS);
        if !needs.locks_at_touch() {
            // The own CPU locks its own, before anything else is asked for.
            let first = none(met.home, home) * none(met.write, own.others);
            let asked_for = (away - own.others).max(0.0);
            let all = none(met.write, asked_for);
            let locks = first * all;
            let checks = if class.validates() { none(met.read, reads) } else { 1.0 };
            let attempts = 1.0 / (locks * checks);
            // All are asked for at once, so that those of an attempt that fails are locked as often as any, in vain: each with its own
            // chance, but for the times that all are. One that failed before it asked leaves nothing elsewhere, a failed check all.
            let in_vain = if asked_for > 0.0 { (1.0 - met.write - all).max(0.0) } else { 0.0 };
            let unlocks = attempts * (first * in_vain + locks * (1.0 - checks));
            let phases = [attempts, attempts * first, attempts * locks, 1.0, 1.0, unlocks];
            let checked = if class.validates() { reads } else { 0.0 };
            let at_risk = Some([home, away, checked]);
            let asked = attempts * writes;
            let (thinks, came_to) = (attempts, attempts);
            return Runs { attempts, thinks, asked, came_to, phases, left_again: 0.0, at_risk };
        }
        // Fails while it comes to its records, or when its leases are extended or its reads are checked.
        let (met_reads, at_touch) = match needs.packing {
            Packing::Leased => (class.renewals(), false),
            Packing::Counted => (if class.validates() { reads } else { 0.0 }, false),
            Packing::Locked | Packing::Versions => (reads, true),
        };
        let (locked, read) = (none(met.home, home) * none(met.write, away), none(met.read, met_reads));
        let (touches, checks) = if at_touch { (locked * read, 1.0) } else { (locked, read) };
        let finished = 1.0 / checks;
        let attempts = finished / touches;
        let at_risk = (needs.on_conflict != OnConflict::WaitIfOlder).then_some([home, away, met_reads]);
        let records = reads + writes;
        // Asked for together, all is asked for before anything is known.
        let share = if reads_ahead { 1.0 } else { share_of_failed(records, touches) };
        let came_to = finished + (attempts - finished) * share;
        let held = if records > 0.0 { (share - 1.0 / records).max(0.0) } else { 0.0 };
        let unlocks = (attempts - finished) * held + (finished - 1.0);
        let validates = if checks_at_commit(needs) { finished } else { came_to };
        let locks = if needs.packing == Packing::Locked { records } else { writes };
        // Whoever waits looks again and again.
        let again = if locks > 0.0 { came_to * met.looks } else { 0.0 };
        let left_again = if records > 0.0 { came_to * reads / records * met.leaves } else { 0.0 };
        Runs {
            attempts,
            thinks: finished,
            asked: came_to * locks,
            came_to,
            phases: [came_to, came_to + again, validates, 1.0, 1.0, unlocks + left_again],
            left_again,
            at_risk,
        }
    }

    /// The chance that its first attempts all fail, for one to `most`.
    pub(super) fn all_fail(&self, spread: &Spread, most: usize) -> Chances {
        match self.at_risk {
            Some(at_risk) => spread.all_fail(at_risk, most),
            None => Chances {
                all: std::array::from_fn(|k| (1.0 - 1.0 / self.attempts).powi(k as i32 + 1)),
                known: most.min(POWERS),
            },
        }
    }
}

/// What the mean transaction holds, and when it looks.
#[derive(Default)]
struct Mean {
    /// Records written, per transaction.
    commits: f64,
    /// Records read and not written, per transaction.
    looks: f64,
    /// Time for which records that are written are locked, per transaction.
    written_ns: f64,
    /// Time for which records that are only read are locked.
    read_ns: f64,
    /// From a read to the lock, or to the check: weighted sums, and their weights.
    until_lock: f64,
    writers: f64,
    until_check: f64,
    readers: f64,
    /// How long a record is held that is waited for, the square of that, and for how much of it its holder waits itself: weighted sums.
    hold: f64,
    hold_squared: f64,
    blocked: f64,
    /// Time for which a transaction holds a record, attempts that fail included.
    held: f64,
    /// Time from a transaction's begin to its last access.
    span: f64,
    /// One look at a lock, what the phase takes for one of its records, and for those that are asked for at once.
    look: f64,
    one: f64,
    round: f64,
    /// Locks asked for of records that are only read, and of others.
    shared: f64,
    alone: f64,
    /// Records asked for at once.
    at_once: f64,
}

/// For how long others hold or change records, per transaction of theirs, in nanoseconds.
#[derive(Clone, Copy)]
struct Exposed {
    /// Those that they write.
    by_writes: f64,
    /// Those that they only read.
    by_reads: f64,
}

/// Who else is there: all coroutines, and the transactions of one of them per nanosecond.
#[derive(Clone, Copy)]
struct Others {
    rate: f64,
    customers: f64,
}

/// How accesses of a kind end.
struct Ends {
    /// How often one waits, and for how long.
    waits: f64,
    waited_ns: f64,
    /// The chance that it gives up.
    gives_up: f64,
    /// The chance that it does well as often as this, from once on.
    well: [f64; POWERS],
}

/// What an access is for, and of those that write whether it is to a band whose parts keep to themselves.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Access {
    Home,
    Write,
    Read,
}

impl Model<'_> {
    /// What accesses meet at the rate and latencies of `solution`; `runs` are those of the classes, given `met`.
    pub(super) fn conflicts(
        &self,
        costs: &Costs,
        met: Met,
        runs: &[Runs],
        solution: &Solution,
        customers: f64,
    ) -> Met {
        let mut sum = Mean::default();
        for (index, runs) in runs.iter().enumerate() {
            self.add_class(&mut sum, costs, met, runs, solution, index);
        }
        let mean = |sum: f64, weight: f64| if weight > 0.0 { sum / weight } else { 0.0 };
        let (until_lock, until_check) =
            (mean(sum.until_lock, sum.writers), mean(sum.until_check, sum.readers));
        let others = Others { rate: solution.rate, customers };
        let write = |exposed: Exposed| {
            let of = |access| self.over_bands(others, access, exposed, Waiting::Never);
            (of(Access::Home), of(Access::Write))
        };
        let read = |exposed: Exposed| self.over_bands(others, Access::Read, exposed, Waiting::Never);
        let by_writers = |ns: f64| Exposed { by_writes: ns, by_reads: 0.0 };
        let mut next = Met::default();
        let ((home, writes), reads) = match self.needs().packing {
            Packing::Counted if !self.needs().locks_first => (
                write(by_writers(sum.written_ns + sum.commits * until_lock)),
                read(by_writers(sum.written_ns + sum.commits * until_check)),
            ),
            Packing::Counted | Packing::Leased => (
                write(by_writers(sum.written_ns)),
                read(by_writers(sum.written_ns + sum.commits * until_check)),
            ),
            Packing::Versions => {
                // Of those that began after it, who has come to the record before it does: both at any moment of their
                // span.
                let quicker = |accesses: f64| accesses * sum.span / 6.0;
                let by_writes = sum.written_ns + quicker(sum.commits);
                (write(Exposed { by_writes, by_reads: quicker(sum.looks) }), read(by_writers(sum.written_ns)))
            }
            Packing::Locked => {
                let (by_writes, by_reads) = (sum.written_ns, sum.read_ns);
                // Held by one alone even where it is only read, or with others.
                let not_shared = if self.needs().shared_locks { 0.0 } else { by_reads };
                // What is left of a hold that somebody meets: the longer it is the likelier it is met.
                let left = 0.5 * mean(sum.hold_squared, sum.hold);
                let holders = ((customers - 1.0) * solution.rate * sum.held).max(1.0);
                let closes = match self.workload().reads_ahead {
                    // All its locks are new: it closes a circle if it is quicker at the next that is freed.
                    true => 0.5 * self.wanted(others, Exposed { by_writes, by_reads }, sum.at_once),
                    false => 1.0 / holders,
                };
                let circles = circles(mean(sum.blocked, sum.hold), closes);
                let waiting = self.waiting(left, sum.look, circles);
                let write = |exposed: Exposed| {
                    let of = |access| self.over_bands(others, access, exposed, waiting);
                    (of(Access::Home), of(Access::Write))
                };
                let writes = write(Exposed { by_writes, by_reads });
                let reads = self.over_bands(
                    others,
                    Access::Read,
                    Exposed { by_writes, by_reads: not_shared },
                    waiting,
                );
                let writers = mean(sum.writers, sum.writers + sum.readers);
                let of_all =
                    |home: f64, write: f64, read: f64| (home + write) * writers + read * (1.0 - writers);
                let waits = of_all(writes.0.waits, writes.1.waits, reads.waits);
                let waited = of_all(writes.0.waited_ns, writes.1.waited_ns, reads.waited_ns);
                let at_once = match self.needs().on_conflict {
                    // The owner looks, and answers once.
                    OnConflict::WaitIfOlder if costs.locked_by != Some(Via::OneSided) => 0.0,
                    OnConflict::WaitIfOlder => LOOKS_AT_ONCE,
                    OnConflict::Retry(times) => f64::from(times),
                    OnConflict::Fail => 0.0,
                };
                next.looks = if sum.look > 0.0 { (waited / sum.look).min(waits * at_once) } else { 0.0 };
                // Who asks for all at once waits for the last: so many waits at a time are as long as the longest. Its rounds are one phase.
                let each = sum.at_once * waits;
                let together = if each > 0.0 && sum.at_once > 1.0 { each.ln_1p() / each } else { 1.0 };
                next.waits = waits;
                next.held_up_ns = waited * together;
                next.wait_ns = (next.held_up_ns - next.looks * sum.one).max(0.0);
                if self.readers_race(costs) {
                    let readers = Readers {
                        shared: sum.shared,
                        alone: sum.alone,
                        shared_ns: sum.read_ns,
                        hold_ns: mean(sum.hold, sum.writers + sum.readers),
                        look_ns: sum.round,
                    };
                    let unraced_ns = (1.0 / solution.rate - met.raced_ns).max(sum.round);
                    let races = self.races(readers, unraced_ns, customers, self.leaves_by_cas(costs));
                    next.raced_ns = readers.lost_ns(races);
                    let readers = 1.0 - writers;
                    next.looks += readers * races.enter;
                    next.leaves = races.leave;
                    // Each goes on by itself where all were asked for at once.
                    let alone = readers * (races.enter + next.leaves) * (sum.round - sum.one);
                    next.wait_ns += alone + readers * races.pause_ns;
                }
                (writes, reads)
            }
        };
        (next.home, next.write, next.read) = (home.gives_up, writes.gives_up, reads.gives_up);
        next.spread = Spread { home: home.well, write: writes.well, read: reads.well };
        next
    }

    /// Whether readers ask by CAS for locks that they share.
    pub(super) fn readers_race(&self, costs: &Costs) -> bool {
        let shared = self.needs().packing == Packing::Locked && self.needs().shared_locks;
        shared && self.workload().reads() > 0.0 && costs.locked_by == Some(Via::OneSided)
    }

    /// Whether they leave by CAS, too: where ages are part of the word. Else it is a FETCH_ADD, which nobody disturbs.
    fn leaves_by_cas(&self, costs: &Costs) -> bool {
        self.needs().on_conflict == OnConflict::WaitIfOlder && costs.left_by == Some(Via::OneSided)
    }

    /// What becomes of such accesses where others hold or change records for `exposed` per transaction.
    ///
    /// The chance to give up is such that attempts come out right: a retry goes to the same records
    /// again, so who has met somebody on a hot record will again, and what counts is the mean of the attempts needed, not
    /// of the chances.
    fn over_bands(&self, others: Others, access: Access, exposed: Exposed, waiting: Waiting) -> Ends {
        let mut sum = Ends { waits: 0.0, waited_ns: 0.0, gives_up: 0.0, well: [0.0; POWERS] };
        let (mut attempts, mut all) = (0.0, 0.0);
        for (band, &reads) in self.workload().bands.iter().zip(&self.reads) {
            let writes = band.writes.unwrap_or(band.share);
            let share = match access {
                Access::Read => reads,
                _ if (access == Access::Home) == self.keeps_apart(band) => writes,
                _ => continue,
            };
            // Who may come to the same records.
            let not_others = if access == Access::Write { self.not_others } else { 1.0 };
            let rate = others.rate * (others.customers / band.parts - not_others).max(0.0);
            let there = writes * exposed.by_writes + reads * exposed.by_reads;
            let met = 1.0 - (-rate * there * band.parts / band.records).exp();
            let (gives_up, waits, waited_ns) = waiting.at(met);
            sum.waits += share * waits;
            sum.waited_ns += share * waited_ns;
            let does_well = (1.0 - gives_up).max(LEAST_SUCCESS);
            attempts += share / does_well;
            all += share;
            let mut power = share;
            for well in &mut sum.well {
                power *= does_well;
                *well += power;
            }
        }
        if all <= 0.0 {
            return Ends { well: [1.0; POWERS], ..sum };
        }
        let well = sum.well.map(|sum| (sum / all).min(1.0));
        Ends { gives_up: (1.0 - all / attempts).max(0.0), well, ..sum }
    }

    /// The chance that a transaction of `records` wants the record that somebody waits for.
    fn wanted(&self, others: Others, exposed: Exposed, records: f64) -> f64 {
        let (mut sum, mut waits) = (0.0, 0.0);
        for (band, &reads) in self.workload().bands.iter().zip(&self.reads) {
            let writes = band.writes.unwrap_or(band.share);
            let rate = others.rate * (others.customers / band.parts - 1.0).max(0.0);
            let there = writes * exposed.by_writes + reads * exposed.by_reads;
            let met = band.share * (1.0 - (-rate * there * band.parts / band.records).exp());
            sum += met * (records * band.share * band.parts / band.records).min(1.0);
            waits += met;
        }
        if waits > 0.0 { sum / waits } else { 0.0 }
    }

    /// What it comes to to meet a lock, if so much is left of its hold, a look takes so long and so many wait in a circle.
    fn waiting(&self, left: f64, look: f64, circles: f64) -> Waiting {
        match self.needs().on_conflict {
            OnConflict::Fail => Waiting::Never,
            OnConflict::WaitIfOlder => Waiting::Older { left },
            OnConflict::Retry(times) => Waiting::So { left, patience: f64::from(times) * look, circles },
        }
    }

    fn add_class(
        &self,
        sum: &mut Mean,
        costs: &Costs,
        met: Met,
        runs: &Runs,
        solution: &Solution,
        index: usize,
    ) {
        let class = &self.workload().classes[index];
        let ahead = self.workload().reads_ahead;
        // Each time that it is run.
        let time = |phase: Phase| {
            let times = runs.phases[phase as usize];
            let parts = costs.parts(phase, index, times).into_iter().flatten();
            let all: f64 = parts.map(|(part, times)| times * solution.time(&part.load)).sum();
            if times > 0.0 {
                all / times
            } else {
                costs.of(phase, index).map_or(0.0, |c| solution.time(&c.load))
            }
        };
        // From the start of a releasing phase until the lock is free at the owner: half of what it takes with its answer.
        let half = |awaited: &Option<Priced>| {
            awaited.as_ref().map_or(0.0, |c| 0.5 * solution.time(&c.class(index).load))
        };
        let [installed, unlocked] = costs.awaited.each_ref().map(half);
        let (lock, check) = (time(Phase::Lock), time(Phase::Validate));
        // With what the engine computes for each record on the way.
        let fetch = time(Phase::Fetch) + class.records() * self.profile().cpu.cost_ns(CpuWork::Access);
        let (share, reads, writes) = (class.share, class.reads, class.writes);
        let unlocks = runs.phases[Phase::Unlock as usize] - runs.left_again;
        sum.commits += share * writes;
        sum.looks += share * reads;
        sum.writers += share * writes;
        if !self.needs().locks_at_touch() {
            let held = 0.5 * lock + check + time(Phase::Log) + installed;
            // Only those who got all their locks hold them for a check as well.
            let checked = runs.phases[Phase::Validate as usize] - 1.0;
            let in_vain = unlocks * (0.5 * lock + unlocked) + checked * check;
            sum.written_ns += share * writes * (held + in_vain);
            sum.until_lock += share * writes * (0.5 * fetch + class.think_ns + 0.5 * lock);
            if class.validates() {
                sum.readers += share * reads;
                sum.until_check += share * reads * (0.5 * fetch + class.think_ns + lock + 0.5 * check);
            }
            return;
        }
        let at_commit = checks_at_commit(self.needs());
        // All that happens while the transaction comes to its records, and how much of it passes after a lock.
        let records = (reads + writes).max(1.0);
        let waiting = if self.needs().packing == Packing::Locked { records * met.wait_ns } else { 0.0 };
        let held_up = records * met.held_up_ns;
        let looked = if at_commit { 0.0 } else { check };
        let coming = fetch + lock * (1.0 + met.looks) + waiting + looked;
        // What one has while it waits for the others.
        let blocked = held_up * if ahead { 1.0 - 1.0 / records } else { 0.5 };
        let after = if ahead { 0.5 * lock + blocked + looked } else { 0.5 * coming };
        let extended = if at_commit { check } else { 0.0 };
        let one = lock / records;
        // Readers in a race go on with all that they have asked for at once.
        let round = if ahead { lock } else { one };
        let look = costs.look.as_ref().map_or(one, |c| solution.time(&c.class(index).load));
        let commit = extended + time(Phase::Log) + installed;
        let held = after + class.think_ns + commit;
        let in_vain = 0.5 * after + unlocked;
        let each = held + unlocks * in_vain;
        // Of holders some wait, for times that are spread as those of a process without memory. By age the oldest waits for all others and
        // nobody for long behind it: there it made forecasts worse, by more than was too much.
        let by_age = self.needs().on_conflict == OnConflict::WaitIfOlder;
        let waits =
            if by_age { 0.0 } else { -(-records * met.waits * if ahead { 1.0 } else { 0.5 }).exp_m1() };
        let spread = if waits > 0.0 { blocked * blocked * (2.0 / waits - 1.0) } else { 0.0 };
        sum.hold += share * records * held;
        sum.hold_squared += share * records * (held * held + spread);
        sum.blocked += share * records * blocked;
        sum.held += share * each;
        sum.span += share * coming;
        sum.look += share * look;
        sum.one += share * one;
        sum.round += share * round;
        sum.at_once += share * if ahead { records } else { 1.0 };
        sum.shared += share * reads * runs.came_to;
        sum.alone += share * writes * runs.came_to;
        sum.written_ns += share * writes * each;
        sum.read_ns += share * reads * (each + runs.came_to * met.leaves * round);
        sum.readers += share * reads;
        if at_commit {
            let since_read = if ahead { 0.5 * fetch + lock } else { 0.5 * coming };
            sum.until_check += share * reads * (since_read + class.think_ns + 0.5 * check);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixtures::calm;
    use super::super::input::{Cluster, Elsewhere, Workload};
    use super::*;

    #[test]
    fn a_failed_attempt_comes_to_the_mean_of_a_geometric_count() {
        for (n, each) in [(10u32, 0.3), (10, 0.01), (4, 0.9), (2, 0.5)] {
            let q = 1.0 - each;
            let fails = |k: u32| f64::powi(q, k as i32 - 1) * each;
            let all: f64 = (1..=n).map(fails).sum();
            let mean: f64 = (1..=n).map(|k| f64::from(k) * fails(k)).sum::<f64>() / all;
            let got = share_of_failed(f64::from(n), f64::powi(q, n as i32)) * f64::from(n);
            assert!((got - mean).abs() < 1e-9, "{n} {each}: {got}, not {mean}");
        }
        assert_eq!(share_of_failed(1.0, 0.2), 1.0);
        assert!((share_of_failed(9.0, 1.0) - 5.0 / 9.0).abs() < 1e-6);
    }

    /// Half of all records are never met, the others nine times in ten: a transaction that fails will fail again.
    #[test]
    fn rows_of_failures_are_those_of_the_hottest_records() {
        let spread = Spread {
            write: std::array::from_fn(|i| 0.5 + 0.5 * f64::powi(0.1, i as i32 + 1)),
            ..Spread::default()
        };
        let after_one = spread.all_fail([0.0, 1.0, 7.0], POWERS);
        assert_eq!(after_one.len(), POWERS);
        for (k, &chance) in after_one.iter().enumerate() {
            assert!((chance - 0.5 * f64::powi(0.9, k as i32 + 1)).abs() < 1e-12, "{k}: {chance}");
        }
        // Two of them: a quarter fail with 0.99, half with 0.9.
        for (k, &chance) in spread.all_fail([0.0, 2.0, 0.0], POWERS).iter().enumerate() {
            let k = k as i32 + 1;
            let fails = 0.25 * f64::powi(0.99, k) + 0.5 * f64::powi(0.9, k);
            assert!((chance - fails).abs() < 1e-12, "{k}: {chance}");
        }
        // Of a few attempts only those chances are known; they are the same.
        assert_eq!(spread.all_fail([0.0, 1.0, 7.0], 3)[..], after_one[..3]);
        assert_eq!(Spread::default().all_fail([1.0, 2.0, 3.0], POWERS)[..], [0.0; POWERS]);
    }

    #[test]
    fn phases_run_as_often_as_attempts_come_to_them() {
        let class = TxnClass::new("x", 1.0, 3.0, 1.0);
        let met = Met { write: 0.5, read: 0.0, ..Met::default() };
        // One write of four accesses fails every other time.
        let runs = Runs::new(&Needs::NOWAIT, &class, LockedFirst::default(), met, false);
        assert_eq!((runs.attempts, runs.thinks), (2.0, 1.0));
        let came_to = runs.phases[Phase::Lock as usize];
        assert!(came_to > 1.25 && came_to < 1.75, "{came_to}");
        assert!((runs.phases[Phase::Unlock as usize] - (came_to - 1.0 - 0.25)).abs() < 1e-12);
        // Under OCC all of it is done first, and done again.
        let runs = Runs::new(&Needs::OCC, &class, LockedFirst::default(), met, false);
        assert_eq!((runs.attempts, runs.thinks, runs.phases[Phase::Fetch as usize]), (2.0, 2.0, 2.0));
        // Of four writes the own CPU locks two first: a quarter of attempts come to the others, of which each is locked every other time,
        // and all together in one of four.
        let writes = TxnClass::new("x", 1.0, 0.0, 4.0);
        let own = LockedFirst { apart: 1.0, others: 1.0 };
        let runs = Runs::new(&Needs::OCC, &writes, own, Met { home: 0.5, ..met }, false);
        let times = |phase: Phase| runs.phases[phase as usize];
        assert_eq!((runs.attempts, times(Phase::Lock), times(Phase::Validate)), (16.0, 4.0, 1.0));
        assert_eq!(times(Phase::Unlock), 4.0 * (0.5 - 0.25));
        // A lease that cannot be extended costs the whole attempt, a lock only what came before it.
        let late = Met { write: 0.0, read: 0.5, ..Met::default() };
        let runs = Runs::new(&Needs::SUNDIAL, &class, LockedFirst::default(), late, false);
        assert!((runs.attempts - 8.0).abs() < 1e-9 && (runs.thinks - 8.0).abs() < 1e-9);
        let early = Runs::new(&Needs::SUNDIAL, &class, LockedFirst::default(), met, false);
        assert_eq!((early.attempts, early.thinks), (2.0, 1.0));
        // FaSST locks like SUNDIAL and checks like OCC.
        let both =
            Runs::new(&Needs::FASST, &class, LockedFirst::default(), Met { write: 0.5, ..late }, false);
        assert_eq!((both.attempts, both.thinks), (16.0, 8.0));
        assert_eq!(both.phases[Phase::Validate as usize], 8.0);
    }

    #[test]
    fn a_writer_has_as_many_others_as_come_to_its_records() {
        let cluster = |nodes| Cluster { nodes, threads: 1, backups: 0, lanes: 1 };
        let workload = |elsewhere: Option<f64>| {
            let there = elsewhere.map(|writes| Elsewhere { reads: 0.0, writes });
            let class = TxnClass { elsewhere: there, ..TxnClass::new("x", 1.0, 0.0, 8.0) };
            Workload { classes: vec![class], local_share: 0.25, ..calm(4) }
        };
        let not_others = |nodes, elsewhere| workload(elsewhere).not_others(&cluster(nodes));
        // All nodes alike: all but itself. Of a node's records only those of others': one in four is of the own one.
        assert!((not_others(4, None) - 1.0).abs() < 1e-12);
        assert!((not_others(4, Some(8.0)) - 4.0 / 3.0).abs() < 1e-12);
        // Of two nodes the other's coroutines never come there; where all stay at home, nobody but its own ever does.
        assert!((not_others(2, Some(8.0)) - 2.0).abs() < 1e-12);
        assert!((not_others(4, Some(0.0)) - 4.0).abs() < 1e-12);
        assert_eq!(not_others(1, None), 1.0);
    }
}
