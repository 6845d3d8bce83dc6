//! What the sessions of one worker counted: outcomes, latencies, and what each phase cost.
//!
//! One [`WorkerStats`] per worker thread, shared by its coroutines; nothing in it grows while it counts. Only
//! what *ends* inside the measured window is counted
//! ([`primitives::measure::Meter`]): what a run has committed between two moments is what throughput means, and long
//! transactions are not favoured.

use phases::plan::Phase;
use primitives::measure::{Histogram, HistogramData};
use primitives::units::Nanos;
use primitives::verbs::port::Cost;

/// Verbs, doorbells, round trips and bytes, added up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Costs {
    /// Requests posted.
    pub verbs: u64,
    /// Doorbells rung.
    pub doorbells: u64,
    /// Times a coroutine waited for the network.
    pub round_trips: u64,
    /// Payload bytes that the requests carried, as [`Cost::bytes`] counts them.
    pub bytes: u64,
}

impl Costs {
    /// Adds the cost of one call.
    #[inline]
    pub fn add(&mut self, cost: Cost) {
        self.verbs += u64::from(cost.verbs);
        self.doorbells += u64::from(cost.doorbells);
        self.round_trips += u64::from(cost.round_trips);
        self.bytes += u64::from(cost.bytes);
    }

    /// Payload bytes of a request, its reply included, on average; `None` if there was none.
    pub fn bytes_per_verb(&self) -> Option<f64> {
        (self.verbs > 0).then(|| self.bytes as f64 / self.verbs as f64)
    }

    /// Adds other sums.
    pub fn merge(&mut self, other: &Costs) {
        self.verbs += other.verbs;
        self.doorbells += other.doorbells;
        self.round_trips += other.round_trips;
        self.bytes += other.bytes;
    }
}

/// What one phase cost over all attempts that ended in the window, aborted ones included: an abort's work is
/// paid for by those that commit.
#[derive(Clone, Debug)]
pub struct PhaseStats {
    /// Time from call to return, of sampled attempts.
    pub latency: Histogram,
    /// Requests and waits, of all attempts.
    pub costs: Costs,
}

/// How transactions of one kind of a mix ended, in the window.
#[derive(Clone, Debug)]
pub struct KindStats {
    /// Committed.
    pub committed: u64,
    /// Attempts aborted.
    pub aborted: u64,
    /// Rolled back by the application.
    pub rolled_back: u64,
    /// From when the client asked to the commit, as [`WorkerStats::latency`].
    pub latency: Histogram,
}

impl KindStats {
    fn new(digits: u8) -> KindStats {
        KindStats { committed: 0, aborted: 0, rolled_back: 0, latency: Histogram::with_digits(digits) }
    }

    fn merge(&mut self, other: &KindStats) {
        self.committed += other.committed;
        self.aborted += other.aborted;
        self.rolled_back += other.rolled_back;
        self.latency.merge(&other.latency);
    }
}

/// What the sessions of one worker counted.
#[derive(Clone, Debug)]
pub struct WorkerStats {
    /// Transactions committed.
    pub committed: u64,
    /// Of these, read-only.
    pub committed_read_only: u64,
    /// Records that these touched, each once a transaction; rows of ranges, and records that were looked for and are not there, among them.
    pub accesses: u64,
    /// Of these, such as belong to the node of who asked.
    pub accesses_own: u64,
    /// Attempts aborted, by reason; a transaction may abort several times before it commits.
    pub aborts: ReasonCounts,
    /// Transactions that the application rolled back, by its reason: an outcome of the workload like a commit, decided on
    /// what was read, and no conflict. They are not tried again and not among the aborts.
    pub rolled_back: ReasonCounts,
    /// Transactions given up after the last retry.
    pub given_up: u64,
    /// Transactions that had not committed when the window closed, and were not tried again.
    pub cut_off: u64,
    /// Attempts whose phases were timed.
    pub timed: u64,
    /// The most attempts that one transaction took to its end, whether or not that was inside the window.
    pub attempts_most: u64,
    /// By how many ticks a clock was found to have gone back, at most, during the whole run: 0 where nothing is wrong with clocks,
    /// and under protocols that do not look at them.
    pub clock_back_most: u64,
    /// From when the client asked, which is when its last transaction ended, to the commit: the wait for the worker's turn, retries
    /// and backoff included.
    pub latency: Histogram,
    /// By [`Phase`].
    pub phases: [PhaseStats; 6],
    /// By kind of transaction, in the order of [`Workload::kinds`](crate::workload::Workload::kinds).
    pub kinds: Vec<KindStats>,
}

impl WorkerStats {
    /// Empty statistics; latencies keep `digits` significant digits.
    pub fn new(digits: u8) -> WorkerStats {
        WorkerStats {
            committed: 0,
            committed_read_only: 0,
            accesses: 0,
            accesses_own: 0,
            aborts: ReasonCounts::default(),
            rolled_back: ReasonCounts::default(),
            given_up: 0,
            cut_off: 0,
            timed: 0,
            attempts_most: 0,
            clock_back_most: 0,
            latency: Histogram::with_digits(digits),
            phases: std::array::from_fn(|_| PhaseStats {
                latency: Histogram::with_digits(2),
                costs: Costs::default(),
            }),
            kinds: Vec::new(),
        }
    }

    /// With room for so many kinds of transactions, whose latencies keep `digits` significant digits.
    #[must_use]
    pub fn of_kinds(mut self, kinds: usize, digits: u8) -> WorkerStats {
        self.kinds = (0..kinds).map(|_| KindStats::new(digits)).collect();
        self
    }

    /// A transaction of a kind has committed, for which its client waited so long.
    pub fn waited(&mut self, kind: usize, latency: Nanos) {
        self.latency.record(latency);
        if let Some(kind) = self.kinds.get_mut(kind) {
            kind.latency.record(latency);
        }
    }

    /// The counts of one phase.
    pub fn phase(&self, phase: Phase) -> &PhaseStats {
        &self.phases[phase as usize]
    }

    /// Mean time in a phase for each committed transaction, in nanoseconds; `None` if no attempt was timed or nothing committed.
    ///
    /// Estimated from the timed attempts, those that never came to the phase included, so that what is rare weighs little; what
    /// aborted attempts took is paid for by those that commit.
    pub fn phase_ns_per_committed(&self, phase: Phase) -> Option<f64> {
        if self.timed == 0 || self.committed == 0 {
            return None;
        }
        let latency = &self.phase(phase).latency;
        let spent = latency.mean_ns().unwrap_or(0.0) * latency.count() as f64;
        let attempts = self.committed + self.aborts.total() + self.rolled_back.total();
        Some(spent / self.timed as f64 * attempts as f64 / self.committed as f64)
    }

    /// Adds another worker's counts.
    pub fn merge(&mut self, other: &WorkerStats) {
        self.committed += other.committed;
        self.committed_read_only += other.committed_read_only;
        self.accesses += other.accesses;
        self.accesses_own += other.accesses_own;
        self.aborts.merge(&other.aborts);
        self.rolled_back.merge(&other.rolled_back);
        self.given_up += other.given_up;
        self.cut_off += other.cut_off;
        self.timed += other.timed;
        self.attempts_most = self.attempts_most.max(other.attempts_most);
        self.clock_back_most = self.clock_back_most.max(other.clock_back_most);
        self.latency.merge(&other.latency);
        for (mine, theirs) in self.phases.iter_mut().zip(&other.phases) {
            mine.latency.merge(&theirs.latency);
            mine.costs.merge(&theirs.costs);
        }
        let known = self.kinds.len().min(other.kinds.len());
        for (mine, theirs) in self.kinds.iter_mut().zip(&other.kinds) {
            mine.merge(theirs);
        }
        self.kinds.extend_from_slice(&other.kinds[known..]);
    }

    /// Transactions that came to their end, whichever it was.
    pub fn ended(&self) -> u64 {
        self.committed + self.rolled_back.total() + self.given_up + self.cut_off
    }

    /// What all phases cost together.
    pub fn costs(&self) -> Costs {
        self.phases.iter().fold(Costs::default(), |mut sum, p| {
            sum.merge(&p.costs);
            sum
        })
    }
}

/// [`WorkerStats`] as it travels between nodes.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StatsData {
    committed: u64,
    committed_read_only: u64,
    accesses: u64,
    accesses_own: u64,
    aborts: Vec<(String, u64)>,
    rolled_back: Vec<(String, u64)>,
    given_up: u64,
    cut_off: u64,
    timed: u64,
    attempts_most: u64,
    clock_back_most: u64,
    latency: HistogramData,
    phases: Vec<(HistogramData, Costs)>,
    kinds: Vec<(u64, u64, u64, HistogramData)>,
}

impl WorkerStats {
    /// The form that travels.
    pub fn to_data(&self) -> StatsData {
        let told = |counts: &ReasonCounts| counts.iter().map(|(reason, n)| (reason.to_owned(), n)).collect();
        StatsData {
            committed: self.committed,
            committed_read_only: self.committed_read_only,
            accesses: self.accesses,
            accesses_own: self.accesses_own,
            aborts: told(&self.aborts),
            rolled_back: told(&self.rolled_back),
            given_up: self.given_up,
            cut_off: self.cut_off,
            timed: self.timed,
            attempts_most: self.attempts_most,
            clock_back_most: self.clock_back_most,
            latency: self.latency.to_data(),
            phases: self.phases.iter().map(|p| (p.latency.to_data(), p.costs)).collect(),
            kinds: (self.kinds.iter())
                .map(|k| (k.committed, k.aborted, k.rolled_back, k.latency.to_data()))
                .collect(),
        }
    }

    /// Statistics from the form that travels.
    ///
    /// # Errors
    /// In words, for what no node of this version sends.
    pub fn from_data(data: &StatsData) -> Result<WorkerStats, String> {
        let mut stats = WorkerStats::new(2);
        if data.phases.len() != stats.phases.len() {
            return Err(format!("{} phases instead of {}", data.phases.len(), stats.phases.len()));
        }
        for (mine, (latency, costs)) in stats.phases.iter_mut().zip(&data.phases) {
            *mine = PhaseStats { latency: Histogram::from_data(latency)?, costs: *costs };
        }
        for (reason, n) in &data.aborts {
            stats.aborts.add(name_of(reason)?, *n);
        }
        for (reason, n) in &data.rolled_back {
            stats.rolled_back.add(name_of(reason)?, *n);
        }
        for (committed, aborted, rolled_back, latency) in &data.kinds {
            let latency = Histogram::from_data(latency)?;
            let (committed, aborted, rolled_back) = (*committed, *aborted, *rolled_back);
            stats.kinds.push(KindStats { committed, aborted, rolled_back, latency });
        }
        stats.committed = data.committed;
        stats.committed_read_only = data.committed_read_only;
        (stats.accesses, stats.accesses_own) = (data.accesses, data.accesses_own);
        (stats.given_up, stats.cut_off) = (data.given_up, data.cut_off);
        stats.timed = data.timed;
        stats.attempts_most = data.attempts_most;
        stats.clock_back_most = data.clock_back_most;
        stats.latency = Histogram::from_data(&data.latency)?;
        Ok(stats)
    }
}

/// The one copy of an abort reason's name that came from another node. Such names may fill half a table of counts, so that there is room
/// for this node's own beside them.
fn name_of(reason: &str) -> Result<&'static str, String> {
    const MOST: usize = REASONS / 2;
    static NAMES: std::sync::Mutex<Vec<&'static str>> = std::sync::Mutex::new(Vec::new());
    let mut names = NAMES.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    if let Some(known) = names.iter().find(|known| **known == reason) {
        return Ok(known);
    }
    if names.len() == MOST || reason.len() > 64 {
        return Err(format!("more than {MOST} abort reasons, or one of more than 64 B"));
    }
    let kept: &'static str = String::from(reason).leak();
    names.push(kept);
    Ok(kept)
}

/// Room for reasons: the causes that phases, protocols and workloads name, a dozen all told.
const REASONS: usize = 32;

/// How often what happened, by reason, in a fixed table: counting never allocates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReasonCounts {
    counts: [(&'static str, u64); REASONS],
    len: usize,
}

impl ReasonCounts {
    /// Counts one.
    #[inline]
    pub fn count(&mut self, reason: &'static str) {
        self.add(reason, 1);
    }

    fn add(&mut self, reason: &'static str, n: u64) {
        for (known, count) in &mut self.counts[..self.len] {
            if std::ptr::eq(*known, reason) || *known == reason {
                *count = count.saturating_add(n);
                return;
            }
        }
        assert!(self.len < REASONS, "more than {REASONS} reasons, the next is `{reason}`");
        self.counts[self.len] = (reason, n);
        self.len += 1;
    }

    /// Adds another table.
    pub fn merge(&mut self, other: &ReasonCounts) {
        for &(reason, n) in &other.counts[..other.len] {
            self.add(reason, n);
        }
    }

    /// Reasons and counts, in alphabetical order.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let mut sorted = self.counts[..self.len].to_vec();
        sorted.sort_unstable();
        sorted.into_iter()
    }

    /// How often `reason` was counted.
    pub fn of(&self, reason: &str) -> u64 {
        self.counts[..self.len].iter().filter(|(known, _)| *known == reason).map(|(_, n)| n).sum()
    }

    /// All together.
    pub fn total(&self) -> u64 {
        self.counts[..self.len].iter().map(|(_, n)| n).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_counted_apart_and_travel() {
        let mut one = WorkerStats::new(2).of_kinds(2, 2);
        one.kinds[1].committed = 3;
        one.waited(1, Nanos(500));
        one.waited(7, Nanos(9)); // of no kind that is known
        let mut sum = WorkerStats::new(2);
        sum.merge(&one);
        sum.merge(&WorkerStats::from_data(&one.to_data()).unwrap());
        assert_eq!((sum.kinds.len(), sum.kinds[1].committed, sum.kinds[0].committed), (2, 6, 0));
        assert_eq!((sum.kinds[1].latency.count(), sum.latency.count()), (2, 4));
    }
    use primitives::units::Nanos;

    /// One timed unlock that took longer than anything else is a small part of what a committed transaction takes.
    #[test]
    fn a_rare_phase_weighs_as_often_as_it_runs() {
        let mut stats = WorkerStats::new(2);
        assert_eq!(stats.phase_ns_per_committed(Phase::Fetch), None);
        (stats.committed, stats.timed) = (1_600, 100);
        stats.aborts.add("locked", 400);
        for _ in 0..100 {
            stats.phases[Phase::Fetch as usize].latency.record(Nanos(400));
        }
        stats.phases[Phase::Unlock as usize].latency.record(Nanos(1_600));
        let stats = WorkerStats::from_data(&stats.to_data()).expect("as it travels");
        // 2 000 attempts for 1 600 commits.
        let known = |phase| stats.phase_ns_per_committed(phase).expect("timed");
        assert!((known(Phase::Fetch) - 500.0).abs() < 10.0, "{}", known(Phase::Fetch));
        assert!((known(Phase::Unlock) - 20.0).abs() < 0.4, "{}", known(Phase::Unlock));
        assert_eq!(known(Phase::Log), 0.0);
    }

    #[test]
    fn reasons_are_counted_by_their_words() {
        let mut a = ReasonCounts::default();
        let leaked: &'static str = String::from("locked").leak();
        a.count("locked");
        a.count(leaked);
        a.count("changed");
        let mut b = ReasonCounts::default();
        b.count("changed");
        b.merge(&a);
        assert_eq!(b.iter().collect::<Vec<_>>(), [("changed", 2), ("locked", 2)]);
        assert_eq!((b.total(), b.of("locked"), b.of("nothing")), (4, 2, 0));
    }

    #[test]
    fn merging_adds_phase_by_phase() {
        let mut a = WorkerStats::new(2);
        a.phases[Phase::Lock as usize].costs.add(Cost { verbs: 4, doorbells: 2, round_trips: 1, bytes: 50 });
        let mut b = a.clone();
        b.phases[Phase::Log as usize].costs.add(Cost { verbs: 1, doorbells: 1, round_trips: 1, bytes: 208 });
        a.merge(&b);
        let a = WorkerStats::from_data(&a.to_data()).expect("as it travels");
        assert_eq!(a.phase(Phase::Lock).costs.verbs, 8);
        assert_eq!(a.costs(), Costs { verbs: 9, doorbells: 5, round_trips: 3, bytes: 308 });
        let per_verb = |phase| a.phase(phase).costs.bytes_per_verb();
        assert_eq!([Phase::Lock, Phase::Log, Phase::Install].map(per_verb), [Some(12.5), Some(208.0), None]);
    }
}
