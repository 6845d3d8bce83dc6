//! What a run brings back.

use crate::stats::{KindStats, WorkerStats};
use crate::verify::History;
use crate::workload::Check;
use phases::plan::{Phase, Plan};
use phases::store::CacheStats;
use primitives::measure::{Steadiness, TooShort};
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

/// What a run brings back.
#[derive(Debug)]
pub struct RunResult {
    /// The workload's name.
    pub workload: &'static str,
    /// The kinds of its transactions, in the order of [`WorkerStats::kinds`](crate::stats::WorkerStats::kinds).
    pub kinds: &'static [&'static str],
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
    /// The first time that a table of a node had no room for a record, with what there was, if stores were audited and there was such a time.
    pub full: Option<String>,
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

    /// What ended of each kind of transaction: the kind's name, counts and latency, committed transactions per second.
    pub fn kinds(&self) -> impl Iterator<Item = (&'static str, &KindStats, f64)> {
        let each = self.kinds.iter().zip(&self.stats.kinds);
        each.map(|(&name, kind)| (name, kind, self.per_s(kind.committed)))
    }

    /// Attempts that aborted, as a share of all that ended; `None` if none did.
    pub fn aborted_share(&self) -> Option<f64> {
        let aborted = self.stats.aborts.total();
        let all = aborted + self.stats.committed + self.stats.rolled_back.total();
        (all > 0).then(|| aborted as f64 / all as f64)
    }

    /// Transactions that the application rolled back, as a share of all that ended for good; `None` if none did.
    pub fn rolled_back_share(&self) -> Option<f64> {
        let rolled_back = self.stats.rolled_back.total();
        let all = rolled_back + self.stats.committed;
        (all > 0).then(|| rolled_back as f64 / all as f64)
    }

    /// Records of the own node, as a share of all that committed transactions touched; `None` if they touched none.
    pub fn local_share(&self) -> Option<f64> {
        let stats = &self.stats;
        (stats.accesses > 0).then(|| stats.accesses_own as f64 / stats.accesses as f64)
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
