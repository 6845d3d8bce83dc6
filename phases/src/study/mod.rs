//! The OCC studies: one phase driven alone, in each variant (DrTM+H §5).
//!
//! Each [`Subject`] is one of the paper's questions: how to read in execution (figure 7), how to validate (figure 8),
//! how to commit (figure 9), how to log (figure 10), and how to run read-only transactions (figure 11). Each [`Variant`]
//! is a plan in which only the phase in question differs. [`run`] drives it from every coroutine of a cluster under a
//! closed load and brings back counts and latencies.
//!
//! What is timed is the phase alone; what it needs before and after (the fetch before a lock, the unlock after it, the
//! lock before a commit) runs untimed but takes its share of core and NIC, so the rate is that of the whole cycle. These
//! companions are two-sided in all variants of a subject, except that logging needs none: its transaction is fetched once
//! and logged again and again, and the backups take the repeated version once.
//!
//! Latencies are those of a closed load (coordinated omission applies): a coroutine that is held up asks less often.

mod driver;

pub use driver::{check, memory_estimate, plan, run};

use crate::plan::{Phase, Plan, Step, Via};
use primitives::measure::{Histogram, Precision, Steadiness, TooShort};
use primitives::mesh::Shape;
use primitives::units::Nanos;
use primitives::verbs::port::Cost;

/// Which phase is studied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Subject {
    /// Reading records whose keys are known.
    Execution,
    /// Locking and validating what is to be written.
    Validation,
    /// Writing new values to the backups' logs.
    Logging,
    /// Writing new values back and unlocking.
    Commit,
    /// Read-only transactions: read, then validate.
    ReadOnly,
}

impl Subject {
    /// All subjects, in the paper's order.
    pub const ALL: [Subject; 5] =
        [Subject::Execution, Subject::Validation, Subject::Logging, Subject::Commit, Subject::ReadOnly];

    /// The name on the command line and in results.
    pub fn name(self) -> &'static str {
        match self {
            Subject::Execution => "execution",
            Subject::Validation => "validation",
            Subject::Logging => "logging",
            Subject::Commit => "commit",
            Subject::ReadOnly => "read-only",
        }
    }

    /// The subject of that name.
    pub fn named(name: &str) -> Option<Subject> {
        Subject::ALL.into_iter().find(|subject| subject.name() == name)
    }

    /// The phases whose time and cost are counted.
    pub fn phases(self) -> &'static [Phase] {
        match self {
            Subject::Execution => &[Phase::Fetch],
            Subject::Validation => &[Phase::Lock],
            Subject::Logging => &[Phase::Log],
            Subject::Commit => &[Phase::Install],
            Subject::ReadOnly => &[Phase::Fetch, Phase::Validate],
        }
    }

    /// Ways to carry it, in the order of the paper's legends.
    pub fn variants(self) -> Vec<Variant> {
        let passive = |via, passive_ack| Step { passive_ack, ..Step::table2(Phase::Install, via) };
        let base = Plan::uniform(Via::TwoSided);
        let read = |name, via, location_cache, validate| {
            let mut plan =
                Plan { location_cache, ..base }.with(Phase::Fetch, via).with(Phase::Validate, validate);
            // Read sets are known here: their records are asked for together, as in the paper's read benchmarks.
            plan.fetch = plan.fetch.map(|step| Step { outstanding: true, doorbell_batching: true, ..step });
            Variant { name, plan }
        };
        match self {
            Subject::Execution => vec![
                read("two-sided", Via::TwoSided, false, Via::TwoSided),
                read("one-sided", Via::OneSided, false, Via::TwoSided),
                read("one-sided-cache", Via::OneSided, true, Via::TwoSided),
                read("hybrid", Via::Hybrid, true, Via::TwoSided),
            ],
            Subject::ReadOnly => vec![
                read("two-sided", Via::TwoSided, false, Via::TwoSided),
                read("one-sided", Via::OneSided, false, Via::OneSided),
                read("one-sided-cache", Via::OneSided, true, Via::OneSided),
                read("hybrid", Via::Hybrid, true, Via::OneSided),
            ],
            Subject::Validation => {
                // Where NIC atomics are atomic only among themselves, what was locked by CAS is freed by WRITE.
                let by = |name, via| Variant {
                    name,
                    plan: base.with(Phase::Lock, via).with(Phase::Install, via).with(Phase::Unlock, via),
                };
                // CAS and READ with a doorbell each, in place of one chain (DrTM+H §5.2, figure 8).
                let mut apart = by("one-sided-apart", Via::OneSided);
                apart.plan.lock = apart.plan.lock.map(|step| Step { doorbell_batching: false, ..step });
                vec![by("two-sided", Via::TwoSided), by("one-sided", Via::OneSided), apart]
            }
            Subject::Logging => [("two-sided", Via::TwoSided), ("one-sided", Via::OneSided)]
                .map(|(name, via)| Variant { name, plan: base.with(Phase::Log, via) })
                .into(),
            Subject::Commit => [
                ("two-sided", Via::TwoSided, false),
                ("two-sided-passive", Via::TwoSided, true),
                ("one-sided", Via::OneSided, false),
                ("one-sided-passive", Via::OneSided, true),
            ]
            .map(|(name, via, passive_ack)| {
                let mut plan = base;
                plan.set(Phase::Install, Some(passive(via, passive_ack)));
                Variant { name, plan }
            })
            .into(),
        }
    }
}

/// One way to carry the phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Variant {
    /// Its name in results.
    pub name: &'static str,
    /// The plan that runs.
    pub plan: Plan,
}

/// What is run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spec {
    /// The phase.
    pub subject: Subject,
    /// How it is carried.
    pub variant: Variant,
    /// Coroutines per worker.
    pub coroutines: u32,
    /// Bytes of payload per record, a multiple of 8.
    pub payload_bytes: u32,
    /// Exponent of the keys' popularity: 0 is uniform, 0.99 is YCSB's default.
    pub skew: f64,
    /// Records per operation.
    pub records: u32,
    /// Records each node holds.
    pub rows_per_node: u64,
    /// Copies of each record; logging needs at least 2.
    pub replicas: u16,
    /// What its core computes for each operation, beside what the operation takes: the load on CPUs, of which two-sided
    /// variants need more.
    pub think: Nanos,
    /// Time before counting begins.
    pub warm_up: Nanos,
    /// Time counted.
    pub duration: Nanos,
    /// Count in place of that, after whatever warm-up it takes, until the rate is known so well.
    pub precision: Option<Precision>,
    /// Seed of the keys.
    pub seed: u64,
}

impl Spec {
    /// Operations that a cluster has in flight at any time.
    pub fn in_flight(&self, shape: Shape) -> u64 {
        u64::from(shape.nodes) * u64::from(shape.workers) * u64::from(self.coroutines)
    }

    /// A study of moderate size: 4 records of 16 B an operation, 10 000 records a node.
    pub fn new(subject: Subject, variant: Variant) -> Spec {
        Spec {
            subject,
            variant,
            coroutines: Plan::DEFAULT_COROUTINES,
            payload_bytes: 16,
            skew: 0.0,
            records: 4,
            rows_per_node: 10_000,
            replicas: if subject == Subject::Logging { 3 } else { 1 },
            think: Nanos(0),
            warm_up: Nanos::from_millis(2),
            duration: Nanos::from_millis(20),
            precision: None,
            seed: 1,
        }
    }
}

/// What a study brings back.
#[derive(Clone, Debug, Default)]
pub struct Counts {
    /// Operations that ended within the counted time.
    pub ops: u64,
    /// Operations that ended in an abort, not among `ops`.
    pub aborted: u64,
    /// Counted time.
    pub elapsed: Nanos,
    /// What the operations cost, all together.
    pub cost: Totals,
    /// Their latencies.
    pub latency: Histogram,
    /// Why the rate is not to be trusted, if the counted time was too short.
    pub too_short: Option<TooShort>,
    /// The warm-up, and how well the rate is known.
    pub steadiness: Option<Steadiness>,
}

/// Sums of [`Cost`]s.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Requests posted.
    pub verbs: u64,
    /// Times somebody waited.
    pub round_trips: u64,
    /// Doorbells rung.
    pub doorbells: u64,
}

impl Totals {
    fn add(&mut self, cost: Cost) {
        self.verbs += u64::from(cost.verbs);
        self.round_trips += u64::from(cost.round_trips);
        self.doorbells += u64::from(cost.doorbells);
    }
}

impl Counts {
    /// Operations a second.
    pub fn rate_per_s(&self) -> f64 {
        if self.elapsed.0 == 0 { 0.0 } else { self.ops as f64 / self.elapsed.as_secs_f64() }
    }

    /// Requests, waits and doorbells of an operation; `None` if there was none.
    pub fn per_op(&self) -> Option<[f64; 3]> {
        let ops = self.ops as f64;
        (self.ops > 0).then(|| {
            [self.cost.verbs, self.cost.round_trips, self.cost.doorbells].map(|total| total as f64 / ops)
        })
    }

    fn merge(&mut self, other: &Counts) {
        self.ops += other.ops;
        self.aborted += other.aborted;
        self.cost.verbs += other.cost.verbs;
        self.cost.round_trips += other.cost.round_trips;
        self.cost.doorbells += other.cost.doorbells;
        self.latency.merge(&other.latency);
    }
}

/// Why a study did not run.
#[derive(Debug, thiserror::Error)]
pub enum StudyError {
    /// A number that makes no sense.
    #[error("{0}")]
    Spec(String),
    /// The fabric cannot carry the variant.
    #[error(transparent)]
    Plan(#[from] crate::plan::PlanError),
    /// The simulated fabric cannot be built.
    #[error(transparent)]
    World(#[from] primitives::fabric::sim::WorldError),
    /// The cluster did not run.
    #[error(transparent)]
    Launch(#[from] primitives::mesh::LaunchError),
    /// A phase failed.
    #[error(transparent)]
    Fault(#[from] crate::ops::Fault),
}

impl StudyError {
    fn spec(message: impl Into<String>) -> StudyError {
        StudyError::Spec(message.into())
    }
}
