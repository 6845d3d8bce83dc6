//! What a run brings back.

use crate::stats::WorkerStats;
use crate::verify::History;
use crate::workload::Check;
use phases::plan::{Phase, Plan};
use phases::store::CacheStats;
use primitives::measure::Steadiness;
use primitives::mesh::{RunFacts, Shape};
use primitives::rpc::RpcStats;
use primitives::units::Nanos;
use primitives::verbs::NodeId;
use primitives::verbs::port::Traffic;

/// A failure of the fabric or a peer that ended a session.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fault {
    /// The session's node.
    pub node: NodeId,
    /// Its worker.
    pub worker: u16,
    /// Its coroutine.
    pub coroutine: u32,
    /// What failed, in words.
    pub why: String,
}

/// How many transactions must have ended for each that was in flight, for a rate to be one. Load is closed, so by Little's law
/// this many mean times in flight have gone by then, and one more in the usual warm-up: what takes long had its turn.
const TURNS: u64 = 4;

/// A counted time that was too short: few of the transactions in flight ended in it, and those that did were the short ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooShort {
    /// Transactions that ended in the counted time.
    pub ended: u64,
    /// Transactions in flight at any time.
    pub in_flight: u64,
}

impl TooShort {
    /// How many transactions must end for a time not to be too short.
    pub(super) fn least(in_flight: u64) -> u64 {
        TURNS.saturating_mul(in_flight)
    }

    /// Whether the time in which so many ended was too short.
    pub(super) fn of(ended: u64, in_flight: u64) -> Option<TooShort> {
        (ended < TooShort::least(in_flight)).then_some(TooShort { ended, in_flight })
    }
}

impl std::fmt::Display for TooShort {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let TooShort { ended, in_flight } = self;
        write!(
            f,
            "the measured time is too short: {ended} transactions ended in it, of {in_flight} in flight at a time, and the short \
             ones first, so rate and latencies may be far off"
        )
    }
}

/// What a run brings back.
#[derive(Debug)]
pub struct RunResult {
    /// The workload's name.
    pub workload: &'static str,
    /// The protocol's name.
    pub protocol: &'static str,
    /// The plan that ran.
    pub plan: Plan,
    /// The cluster.
    pub shape: Shape,
    /// Copies of each record.
    pub replicas: u16,
    /// Core time that was measured.
    pub elapsed: Nanos,
    /// How much warm-up was left out, and how well the throughput is known; `None` if transactions were counted instead
    /// of time, or if the run was stopped in its warm-up. Of a time that was too short there is no interval.
    pub steadiness: Option<Steadiness>,
    /// Why the rate is not to be trusted, if the counted time was too short.
    pub too_short: Option<TooShort>,
    /// What the sessions of all workers counted in that time.
    pub stats: WorkerStats,
    /// What all ports posted and took during the whole run, warm-up and end included.
    pub traffic: Traffic,
    /// What all RPC endpoints counted during the whole run.
    pub rpc: RpcStats,
    /// What all views of the location caches counted during the whole run.
    pub cache: CacheStats,
    /// Invariants of the workload and of replication.
    pub checks: Vec<Check>,
    /// The recorded history, if it was to be kept.
    pub history: Option<History>,
    /// Sessions that a fault ended.
    pub faults: Vec<Fault>,
    /// The run was stopped from outside.
    pub interrupted: bool,
    /// Events, fingerprint and virtual time, where time is virtual.
    pub facts: RunFacts,
}

impl RunResult {
    /// Committed transactions per second.
    pub fn committed_per_s(&self) -> f64 {
        self.per_s(self.stats.committed)
    }

    /// Aborted attempts per second; rollbacks by the application are not among them.
    pub fn aborted_per_s(&self) -> f64 {
        self.per_s(self.stats.aborts.total())
    }

    /// Transactions per second that the application rolled back.
    pub fn rolled_back_per_s(&self) -> f64 {
        self.per_s(self.stats.rolled_back.total())
    }

    /// Attempts that aborted, as a share of all that ended; `None` if none did.
    pub fn aborted_share(&self) -> Option<f64> {
        let aborted = self.stats.aborts.total();
        let all = aborted + self.stats.committed + self.stats.rolled_back.total();
        (all > 0).then(|| aborted as f64 / all as f64)
    }

    fn per_s(&self, count: u64) -> f64 {
        if self.elapsed.0 == 0 { 0.0 } else { count as f64 / self.elapsed.as_secs_f64() }
    }

    fn per_committed(&self, count: u64) -> f64 {
        if self.stats.committed == 0 { 0.0 } else { count as f64 / self.stats.committed as f64 }
    }

    /// Requests posted per committed transaction, the work of aborted attempts included.
    pub fn verbs_per_committed(&self) -> f64 {
        self.per_committed(self.stats.costs().verbs)
    }

    /// Waits for the network per committed transaction.
    pub fn round_trips_per_committed(&self) -> f64 {
        self.per_committed(self.stats.costs().round_trips)
    }

    /// Doorbells per committed transaction.
    pub fn doorbells_per_committed(&self) -> f64 {
        self.per_committed(self.stats.costs().doorbells)
    }

    /// The share of all that was posted in the whole run which belongs to what was counted: ports and cores count from the
    /// first connection to the last straggler. Answers are taken to go with their requests.
    fn counted_share(&self) -> Option<f64> {
        let answers = self.traffic.sends.saturating_sub(self.rpc.calls);
        let requests = self.traffic.verbs().saturating_sub(answers);
        (requests > 0).then(|| (self.stats.costs().verbs as f64 / requests as f64).min(1.0))
    }

    /// Work of all cores for each committed transaction, where time is virtual and anything is posted. Cores that find nothing
    /// to do are idle, however they look for it.
    pub fn cpu_ns_per_committed(&self) -> Option<f64> {
        let share = self.counted_share().filter(|_| self.facts.busy.0 > 0 && self.stats.committed > 0)?;
        Some(share * self.facts.busy.0 as f64 / self.stats.committed as f64)
    }

    /// Messages that each machine's NIC is given to send, requests and answers, per second.
    pub fn messages_per_machine_per_s(&self) -> Option<f64> {
        let (span, nodes) = (self.elapsed.as_secs_f64(), f64::from(self.shape.nodes));
        let share = self.counted_share().filter(|_| span > 0.0)?;
        Some(share * self.traffic.verbs() as f64 / span / nodes)
    }

    /// A phase's requests, waits and doorbells per committed transaction, in that order.
    pub fn phase_per_committed(&self, phase: Phase) -> [f64; 3] {
        let costs = self.stats.phase(phase).costs;
        [costs.verbs, costs.round_trips, costs.doorbells].map(|n| self.per_committed(n))
    }

    /// Whether every invariant held and no session failed.
    pub fn passed(&self) -> bool {
        self.faults.is_empty() && self.checks.iter().all(|c| c.passed)
    }

    /// The invariants that did not hold.
    pub fn failed_checks(&self) -> impl Iterator<Item = &Check> {
        self.checks.iter().filter(|c| !c.passed)
    }
}

#[cfg(test)]
mod tests {
    use super::TooShort;

    #[test]
    fn a_time_in_which_few_of_those_in_flight_ended_is_too_short() {
        assert_eq!(TooShort::of(87, 3072), Some(TooShort { ended: 87, in_flight: 3072 }));
        assert_eq!((TooShort::of(4 * 3072, 3072), TooShort::of(4 * 3072 - 1, 3072).is_some()), (None, true));
    }
}
