//! What transactions hold, for how long, and how long they take from a read to the lock or the check: of each class, and of the mean one, which
//! stands for all others that a transaction meets ([`super::conflicts`]).

use super::ages::{Aging, Attempts};
use super::costs::{Costs, Priced};
use super::forecast::Model;
use super::input::{KINDS, TxnClass};
use super::met::Met;
use super::runs::{Runs, at_once_denied, checks_at_commit};
use super::solve::Solution;
use super::way::middle;
use crate::plan::Phase;
use crate::rule::Packing;
use primitives::fabric::CpuWork;

/// What the mean transaction holds, and when it looks.
#[derive(Default)]
pub(super) struct Mean {
    /// Records written, per transaction, of each kind of band; those read and not written.
    pub(super) commits: [f64; KINDS],
    pub(super) looks: [f64; KINDS],
    /// Time for which records that are written are locked, per transaction, and those that are only read.
    pub(super) written_ns: [f64; KINDS],
    pub(super) read_ns: [f64; KINDS],
    /// The same, each time as often as the transaction has such records.
    pub(super) written_together: [f64; KINDS],
    pub(super) read_together: [f64; KINDS],
    /// From a read to the lock, or to the check: weighted sums, and their weights; and those of each class.
    pub(super) until_lock: f64,
    pub(super) writers: f64,
    pub(super) until_check: f64,
    pub(super) readers: f64,
    pub(super) until: Vec<Until>,
    /// How long a record is held that is waited for, the square of that, and for how much of it its holder waits itself: weighted sums.
    pub(super) hold: f64,
    pub(super) hold_squared: f64,
    pub(super) blocked: f64,
    /// Time for which a transaction holds a record, attempts that fail included.
    pub(super) held: f64,
    /// Time from a transaction's begin to its last access.
    pub(super) span: f64,
    /// One look at a lock, and what the phase takes for one of its records.
    pub(super) look: f64,
    pub(super) one: f64,
    /// Locks asked for of records that are only read, and of others.
    pub(super) shared: f64,
    pub(super) entered: f64,
    pub(super) alone: f64,
    /// Records asked for at once.
    pub(super) at_once: f64,
    /// Records asked for to be written, of each kind of band, retries included.
    pub(super) wants: [f64; KINDS],
    /// Where ages decide.
    pub(super) aging: Aging,
    /// Under OCC, of those that an access meets, how many are still there when it comes back: weighted sums.
    pub(super) still_there: [f64; KINDS],
    pub(super) failing: [f64; KINDS],
}

/// How long a class takes from a read to the lock, and to the check.
#[derive(Clone, Copy, Default)]
pub(super) struct Until {
    pub(super) lock: f64,
    pub(super) check: f64,
}

impl Mean {
    /// Adds that records of each kind that are written are held for so many nanoseconds each, times a factor.
    fn hold_written(&mut self, factor: f64, records: [f64; KINDS], ns: [f64; KINDS]) {
        hold(&mut self.written_ns, &mut self.written_together, factor, records, ns);
    }

    /// The same of those that are only read.
    fn hold_read(&mut self, factor: f64, records: [f64; KINDS], ns: [f64; KINDS]) {
        hold(&mut self.read_ns, &mut self.read_together, factor, records, ns);
    }
}

fn hold(
    alone: &mut [f64; KINDS],
    together: &mut [f64; KINDS],
    factor: f64,
    records: [f64; KINDS],
    ns: [f64; KINDS],
) {
    for kind in 0..KINDS {
        let held = factor * records[kind] * ns[kind];
        alone[kind] += held;
        together[kind] += held * records[kind];
    }
}

/// `a` and `factor` times `b`, kind by kind.
pub(super) fn plus(a: [f64; KINDS], factor: f64, b: [f64; KINDS]) -> [f64; KINDS] {
    std::array::from_fn(|kind| a[kind] + factor * b[kind])
}

impl Model<'_> {
    /// Records of each kind of band that a class writes, and that it only reads.
    fn asked_of(&self, class: &TxnClass) -> [[f64; KINDS]; 2] {
        let known = |kind: usize| class.kinds.get(kind).copied().unwrap_or_default();
        if class.kinds.is_empty() {
            let by_share =
                |all: f64, which: usize| std::array::from_fn(|kind| all * self.of_kind[kind][which]);
            return [by_share(class.writes, 0), by_share(class.reads, 1)];
        }
        [std::array::from_fn(|kind| known(kind).writes), std::array::from_fn(|kind| known(kind).reads)]
    }

    /// Adds a class: for how long it holds what, and how long it takes from reads to locks and checks; `runs` is what it does, given `met`.
    pub(super) fn add_class(
        &self,
        sum: &mut Mean,
        costs: &Costs,
        met: &Met,
        runs: &Runs,
        solution: &Solution,
        index: usize,
    ) {
        let class = &self.workload().classes[index];
        let ahead = self.at_once(costs, class);
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
        // Of each kind of band.
        let [written, read] = self.asked_of(class);
        let mut until = Until::default();
        sum.commits = plus(sum.commits, share, written);
        sum.looks = plus(sum.looks, share, read);
        sum.writers += share * writes;
        if !self.needs().locks_at_touch() {
            let held = 0.5 * lock + check + time(Phase::Log) + installed;
            // Only those who got all their locks hold them for a check as well.
            let checked = runs.phases[Phase::Validate as usize] - 1.0;
            let in_vain = unlocks * (0.5 * lock + unlocked) + checked * check;
            sum.hold_written(share * (held + in_vain), written, [1.0; KINDS]);
            until.lock = 0.5 * fetch + class.think_ns + 0.5 * lock;
            sum.until_lock += share * writes * until.lock;
            // Of those whom an access to be locked meets, some hold the record for as long as it takes to commit, and whoever reads it
            // before they have left fails by what they change; others fail themselves, or had committed between read and lock.
            let back = 0.5 * lock + self.workload().backoff_ns + 0.5 * fetch;
            sum.failing = plus(sum.failing, share * (held + in_vain + until.lock), written);
            sum.still_there = plus(sum.still_there, share * (held - back).max(0.0), written);
            if class.validates() {
                until.check = 0.5 * fetch + class.think_ns + lock + 0.5 * check;
                sum.readers += share * reads;
                sum.until_check += share * reads * until.check;
            }
            sum.until.push(until);
            return;
        }
        let at_commit = checks_at_commit(self.needs());
        // All that happens while the transaction comes to its records, and how much of it passes after a lock.
        let records = (reads + writes).max(1.0);
        // It meets others more often than the mean access, or less.
        let meets = met.meets(met.of(index));
        let (looks, wait_ns) = met.looks_and_wait(met.of(index));
        let waiting = if self.needs().packing == Packing::Locked { records * wait_ns } else { 0.0 };
        let held_up = records * met.held_up_ns * meets;
        let looked = if at_commit { 0.0 } else { check };
        let coming = fetch + lock * (1.0 + looks) + waiting + looked;
        // What one has while it waits for the others.
        let waits_with = if ahead { 1.0 - 1.0 / records } else { 0.5 };
        let blocked = held_up * waits_with;
        // What has been got at once is held while others are raced for.
        let raced = records * met.entering_ns;
        let after = if ahead { 0.5 * lock + blocked + raced * waits_with + looked } else { 0.5 * coming };
        let extended = if at_commit { check } else { 0.0 };
        let one = lock / records;
        let look = costs.look.as_ref().map_or(one, |c| solution.time(&c.class(index).load));
        let commit = extended + time(Phase::Log) + installed;
        let mut held = after + class.think_ns + commit;
        let failed = if at_once_denied(self.needs(), ahead) { 0.5 * lock + looked } else { after };
        let in_vain = 0.5 * failed + unlocked;
        let mut each = held + unlocks * in_vain;
        // Of holders some wait, for times that are spread as those of a process without memory.
        let waits = -(-records * met.waits * meets * if ahead { 1.0 } else { 0.5 }).exp_m1();
        let mut spread = if waits > 0.0 { blocked * blocked * (2.0 / waits - 1.0) } else { 0.0 };
        if let Some(by_age) = &runs.by_age {
            // Without waits: who waits how long comes to that.
            let way = fetch + lock + raced + looked;
            let after = if ahead { 0.5 * lock + raced * waits_with + looked } else { 0.5 * way };
            held = after + class.think_ns + commit;
            let back = if ahead { lock } else { 0.5 * coming };
            let attempts = Attempts {
                by_age,
                came_to: runs.came_to,
                unlocks,
                share,
                records,
                of_kind: plus(written, 1.0, read),
                hold: held,
                waits_with,
                in_vain,
                way,
                beyond: class.think_ns + commit,
                back: back + time(Phase::Unlock),
            };
            (each, spread) = (sum.aging.add(&attempts, met.done_ns), 0.0);
            sum.wants = plus(sum.wants, share * runs.came_to, written);
        }
        if self.needs().packing == Packing::Counted {
            // It comes to the same record again when those before it have been got again.
            let way = if ahead { lock } else { 0.5 * coming };
            let back = way + time(Phase::Unlock) + self.workload().backoff_ns;
            sum.failing = plus(sum.failing, share * each, written);
            sum.still_there = plus(sum.still_there, share * (held - back).max(0.0), written);
        }
        sum.hold += share * records * held;
        sum.hold_squared += share * records * (held * held + spread);
        sum.blocked += share * records * blocked;
        sum.held += share * each;
        sum.span += share * coming;
        sum.look += share * look;
        sum.one += share * one;
        sum.at_once += share * if ahead { records } else { 1.0 };
        sum.shared += share * reads * runs.came_to;
        sum.entered += share * reads * runs.waits;
        sum.alone += share * writes * runs.came_to;
        // Of a class whose way is known each kind has its own.
        let known = !class.legs.is_empty() && !ahead && runs.by_age.is_none();
        let each_of: [f64; KINDS] = match known {
            true => {
                let middle = middle(&class.legs);
                let failed = runs.failed.unwrap_or_default();
                std::array::from_fn(|kind| {
                    let after = (1.0 - middle[kind]) * coming;
                    let on_the_way = failed.had_for[kind] * coming + failed.had[kind] * unlocked;
                    after
                        + class.think_ns
                        + commit
                        + runs.on_the_way * on_the_way
                        + runs.late * (after + class.think_ns + extended + unlocked)
                })
            }
            false => [each; KINDS],
        };
        sum.hold_written(share, written, each_of);
        sum.hold_read(share, read, each_of.map(|each| each + runs.came_to * met.leaves * look));
        sum.readers += share * reads;
        if at_commit {
            let since_read = if ahead { 0.5 * fetch + lock } else { 0.5 * coming };
            until.check = since_read + class.think_ns + 0.5 * check;
            sum.until_check += share * reads * until.check;
        }
        sum.until.push(until);
    }
}
