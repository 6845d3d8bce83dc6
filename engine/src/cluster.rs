//! A cluster that runs transactions: stores filled, coroutines started, results and invariants collected.
//!
//! This is the only place in the engine where a fabric is named, and it only hands the name on: the text below is the
//! same for threads on shared memory and for simulated machines.
//!
//! **What a run measures.** Either so many transactions per coroutine, everything counted; or a time span after a
//! warm-up, during which caches fill and queues reach their usual length; both fixed, or found by the rule of
//! [`primitives::measure::steady`]. An attempt counts if it *ends* inside the
//! span. Load is closed: each coroutine begins its next transaction when the last one has ended, so a stall also holds
//! back the transactions that would have come (coordinated omission); latencies are those of the transactions that
//! did run, from when their client asked for them (its last one had ended) to the commit, the wait for the worker's turn included.
//!
//! **What is checked.** When all coroutines have ended and everything in flight has arrived, the primaries are
//! counted against what committed transactions say they did, and backups are compared with their primaries.

mod audit;
mod footprint;
mod part;
mod program;
mod result;

pub use footprint::{Footprint, footprint, usual_reserve};
pub use result::{Fault, RunResult};

use crate::protocol::calvin::Buffers;
use crate::protocol::{AnyProtocol, Protocol};
use crate::session::RetryPolicy;
use crate::with_workload;
use crate::workload::params::ParamError;
use crate::workload::{AnyWorkload, Scale, TableDef, Workload};
use phases::plan::{Epochs, Needs, Plan, PlanError};
use phases::rule::Packing;
use phases::rule::time::{MOST_NODES, MOST_WORKERS, Skew, ticks_of};
use phases::store::{Shape as RecordShape, StoreConfig, StoreError, TableSpec};
use primitives::fabric::SetupError;
use primitives::measure::{Meter, Precision};
use primitives::mesh::{
    Blame, FabricSpec, LaunchError, MeshError, RunFacts, Session, Shape, WorkerConfig, launch, launch_member,
};
use primitives::units::Nanos;
use primitives::verbs::NodeId;
use program::Run;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

/// How long a run lasts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Length {
    /// A span of core time after a warm-up.
    Time {
        /// Not counted.
        warm_up: Nanos,
        /// Counted.
        measured: Nanos,
    },
    /// As long as it takes to know the throughput that well; see [`primitives::measure::steady`].
    Steady(Precision),
    /// So many transactions of each coroutine, all counted.
    Transactions(u64),
}

impl Length {
    /// `measured` after the usual warm-up: a quarter of it, but at most a second.
    pub fn measured(measured: Nanos) -> Length {
        Length::Time { warm_up: Nanos((measured.0 / 4).min(1_000_000_000)), measured }
    }
}

/// How wrong the nodes' clocks are, from which protocols take timestamps. Measuring goes by the true time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Clocks {
    /// Each node's clock is ahead or behind by up to this, drawn from the run's seed. So many more ticks are gone before time begins: a
    /// clock that is behind would stand still until the true time has come so far.
    pub skew: Nanos,
    /// After this time since the fabric's beginning …
    pub jump_at: Nanos,
    /// … every second node's clock jumps by so many nanoseconds, back if negative; 0 is no jump.
    pub jump_ns: i64,
    /// Ticks that are gone before time begins, to see timestamps end.
    pub first_tick: u64,
}

impl Clocks {
    fn of(&self, node: primitives::verbs::NodeId, seed: u64) -> Skew {
        let draw = program::seed_of(seed ^ 0x636c_6f63_6b73, u32::from(node.0));
        let span = i64::try_from(self.skew.0).unwrap_or(i64::MAX / 4).min(i64::MAX / 4);
        let offset_ns = (draw % (2 * span as u64 + 1)) as i64 - span;
        let jump_ns = if node.0 % 2 == 1 { self.jump_ns } else { 0 };
        let first_tick = self.first_tick.saturating_add(ticks_of(self.skew.0));
        Skew { offset_ns, jump_at_ns: self.jump_at.0, jump_ns, first_tick }
    }
}

/// One of so many attempts has its phases timed, unless asked for otherwise: where time is real, reading clocks costs.
pub const SAMPLE_EVERY: u32 = 16;

/// All that a run is a value of, beside workload and protocol.
#[derive(Clone, Debug)]
pub struct RunSpec {
    /// The fabric.
    pub fabric: FabricSpec,
    /// Nodes and workers.
    pub shape: Shape,
    /// The plan; its coroutines are those of each worker.
    pub plan: Plan,
    /// Copies of each record, the primary included: 1 means no replication.
    pub replicas: u16,
    /// How long.
    pub length: Length,
    /// Seed of all draws.
    pub seed: u64,
    /// How workers post and call.
    pub worker: WorkerConfig,
    /// When aborted transactions are tried again.
    pub retry: RetryPolicy,
    /// One of so many attempts has its phases timed; zero times none.
    pub sample_every: u32,
    /// Bytes of location cache per node, shared by its workers.
    pub cache_bytes: usize,
    /// Start with a location cache that knows the first keys of every table, as many as it holds: the state that a
    /// long run reaches. A simulated millisecond ends long before, with mostly misses.
    pub warm_cache: bool,
    /// Bytes of each log ring.
    pub log_ring_bytes: u64,
    /// Bytes of the reserve that the tables of each copy share once they hold more records than they declare; [`usual_reserve`] if not given, 0
    /// is none.
    pub reserve_bytes: Option<u64>,
    /// Version that every record starts with: 1, unless one wants to see versions wrap.
    pub first_version: u64,
    /// How wrong clocks are.
    pub clocks: Clocks,
    /// Keep the history.
    pub history: bool,
    /// Count the stores before and after, and check the workload's invariants.
    pub audit: bool,
    /// What has been counted when the run is stopped is of use. Otherwise it then ends at once, with [`RunError::Cancelled`]: a large
    /// cluster takes longer to audit than to stop.
    pub partial: bool,
    /// Where the run leaves its meter when it begins, for who wants to see how far it has come.
    pub watched: Option<Arc<OnceLock<Arc<Meter>>>>,
    /// What phase operations do wrong on purpose, to see that the checks are not vacuous.
    #[doc(hidden)]
    pub sabotage: Option<phases::ops::Sabotage>,
}

impl RunSpec {
    /// `plan` on `fabric`, with the usual settings for the rest: one copy of each record, a second measured, stores
    /// audited, no history.
    pub fn new(fabric: FabricSpec, shape: Shape, plan: Plan) -> RunSpec {
        RunSpec {
            fabric,
            shape,
            plan,
            replicas: 1,
            length: Length::measured(Nanos::from_millis(1000)),
            seed: 1,
            worker: WorkerConfig::default(),
            retry: RetryPolicy::default(),
            sample_every: SAMPLE_EVERY,
            // DrTM+H's index cache: 300 MB for TPC-C on each machine. A word a record covers far more here.
            cache_bytes: 16 << 20,
            warm_cache: true,
            log_ring_bytes: 1 << 20,
            reserve_bytes: None,
            first_version: 1,
            clocks: Clocks::default(),
            history: false,
            audit: true,
            partial: true,
            watched: None,
            sabotage: None,
        }
    }

    /// The size a workload is to be made for.
    pub fn scale(&self) -> Scale {
        Scale { nodes: self.shape.nodes, workers: self.shape.workers }
    }

    /// What a protocol asks of a plan for records of these tables: where there are no other nodes, nothing travels.
    fn needs(&self, tables: &[TableDef], protocol: &Needs) -> Needs {
        let longest = tables.iter().map(|t| t.payload_bytes.next_multiple_of(8)).max().unwrap_or(0);
        if self.shape.nodes < 2 {
            return *protocol;
        }
        protocol.with_records(longest)
    }

    /// The worker's configuration, with messages as long as the plan needs them for these tables.
    fn worker(&self, tables: &[TableDef], protocol: &Needs) -> WorkerConfig {
        let message = self.plan.longest_message(&self.needs(tables, protocol));
        WorkerConfig { rpc: self.worker.rpc.taking(message), ..self.worker }
    }

    fn reserve(&self, tables: &[TableDef], packing: Packing) -> u64 {
        self.reserve_bytes.unwrap_or_else(|| usual_reserve(tables, self.shape.nodes, packing))
    }

    fn store(&self, tables: &[TableDef], packing: Packing) -> StoreConfig {
        StoreConfig {
            tables: tables
                .iter()
                .map(|t| TableSpec {
                    name: t.name.to_owned(),
                    payload_words: t.payload_bytes.div_ceil(8),
                    rows_per_node: t.rows_per_node(self.shape.nodes),
                    keys_per_block: t.keys_per_block,
                    ordered: t.ordered,
                })
                .collect(),
            nodes: self.shape.nodes,
            workers: self.shape.workers,
            replicas: self.replicas,
            log_ring_bytes: self.log_ring_bytes,
            reserve_bytes: self.reserve(tables, packing),
            packing,
            first_version: self.first_version,
        }
    }
}

/// Why there is no result.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The workload's settings.
    #[error(transparent)]
    Workload(#[from] ParamError),
    /// The plan cannot run on this fabric.
    #[error(transparent)]
    Plan(Box<PlanError>),
    /// The store cannot be laid out or filled.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The fabric refused something.
    #[error(transparent)]
    Launch(#[from] LaunchError),
    /// The nodes of the cluster did not stay together.
    #[error(transparent)]
    Mesh(#[from] MeshError),
    /// A protocol that orders transactions before they run, and a workload that does not know what they will touch.
    #[error(
        "{protocol} orders transactions before they run, so their read and write sets must be declared ahead: {workload} does not \
         declare them, its transactions find out what they touch as they go"
    )]
    Undeclared {
        /// The workload.
        workload: &'static str,
        /// The protocol.
        protocol: &'static str,
    },
    /// `stop` was true before any transaction ran, or while they ran and a part of them is of no use.
    #[error("stopped before there was anything to keep")]
    Cancelled,
    /// Nonsense in the specification.
    #[error("{0}")]
    Spec(String),
}

impl RunError {
    /// Whose matter it is.
    pub fn blame(&self) -> Blame {
        match self {
            RunError::Launch(launch) => launch.blame(),
            RunError::Mesh(error) => error.blame(),
            RunError::Cancelled => Blame::Run,
            RunError::Workload(_)
            | RunError::Plan(_)
            | RunError::Store(_)
            | RunError::Undeclared { .. }
            | RunError::Spec(_) => Blame::Input,
        }
    }
}

/// What `protocol` asks of a plan that is to carry `workload`'s records in the cluster of `spec`.
pub fn needs(spec: &RunSpec, workload: &AnyWorkload, protocol: &AnyProtocol) -> Needs {
    let needs = spec.needs(&tables(workload), protocol.needs());
    let Some(calvin) = protocol.sequenced() else { return needs };
    let input_words = with_workload!(workload, w => w.input_words()).unwrap_or(0) as u32;
    needs.with_epochs(Epochs { batch: calvin.batch, least_ns: calvin.epoch.0, input_words })
}

fn tables(workload: &AnyWorkload) -> Vec<TableDef> {
    with_workload!(workload, w => w.tables())
}

/// Bytes a run will need, roughly: stores with their copies, reserves and logs, location caches, and what each worker holds for its
/// queue pairs, messages and coroutines.
pub fn memory_estimate(spec: &RunSpec, workload: &AnyWorkload, protocol: &AnyProtocol) -> u64 {
    let tables = tables(workload);
    let letters = protocol.sequenced().map_or(0, |calvin| {
        let (words, told) = with_workload!(workload, w => (w.input_words().unwrap_or(0), w.told()));
        Buffers::new(&calvin, spec.shape, spec.plan.coroutines, words, told).map_or(0, |b| b.bytes())
    });
    let (nodes, workers) = (u64::from(spec.shape.nodes), u64::from(spec.shape.workers));
    let packing = protocol.needs().packing;
    // The record; an index slot of 16 B in buckets that are half full.
    let shape = |t: &TableDef| RecordShape { packing, payload: t.payload_bytes.div_ceil(8) };
    let record = |t: &TableDef| shape(t).stride() + 32;
    // A leaf of a tree has 16 keys and 300 B, and is two thirds full.
    let record = |t: &TableDef| record(t) + if t.ordered { 28 } else { 0 };
    let rows = |t: &TableDef| t.rows_per_node(spec.shape.nodes).saturating_mul(nodes);
    let records: u64 = tables.iter().map(|t| rows(t).saturating_mul(record(t))).fold(0, u64::saturating_add);
    let reserves = nodes.saturating_mul(spec.reserve(&tables, packing));
    let stores = records.saturating_add(reserves).saturating_mul(u64::from(spec.replicas));
    let logs = if spec.replicas > 1 { nodes * nodes * workers * spec.log_ring_bytes } else { 0 };
    let peers = nodes * u64::from(spec.worker.lanes);
    // A queue pair's rings in port and fabric, and the buffers its passive requests pin.
    let queues = peers * u64::from(spec.worker.qp.send_depth) * 384;
    let coroutines = u64::from(spec.plan.coroutines) * 16_384;
    let worker = spec.worker(&tables, protocol.needs());
    let each = worker.arena_bytes(spec.shape.nodes) + queues + coroutines;
    let workers = nodes.saturating_mul(workers).saturating_mul(each).saturating_add(nodes * letters);
    stores.saturating_add(logs).saturating_add(workers).saturating_add(nodes * spec.cache_bytes as u64)
}

/// Runs a workload under a protocol. `stop` ends the run early when it becomes true; what was measured is kept.
///
/// # Errors
/// If plan, store or fabric refuse; then nothing has run.
pub fn run(
    spec: &RunSpec,
    workload: &AnyWorkload,
    protocol: AnyProtocol,
    stop: &AtomicBool,
) -> Result<RunResult, RunError> {
    with_workload!(workload, w => run_as(spec, w, protocol, stop))
}

/// [`run`] for a workload and a protocol of one's own.
///
/// # Errors
/// As [`run`].
pub fn run_as<W: Workload, P: Protocol + Copy + Sync>(
    spec: &RunSpec,
    workload: &W,
    protocol: P,
    stop: &AtomicBool,
) -> Result<RunResult, RunError> {
    check(spec, protocol.needs(), workload)?;
    let tables = workload.tables();
    let program =
        Run::new(spec, workload, protocol, stop, spec.store(&tables, protocol.needs().packing), tables)?;
    let config = program.worker_config();
    match launch(&spec.fabric, spec.shape, &config, &program) {
        Ok(_) if !spec.partial && stop.load(Ordering::Relaxed) => Err(RunError::Cancelled),
        Ok((outputs, facts)) => {
            let mut part = program.part(outputs, &facts);
            part.nodes = spec.shape.nodes;
            Ok(program.result(vec![part], facts))
        }
        Err(LaunchError::Shared(SetupError::Invalid(text))) => Err(program.refusal(text)),
        Err(LaunchError::Cancelled) => Err(RunError::Cancelled),
        Err(other) => Err(other.into()),
    }
}

/// Runs this process's node of a run that all members of `session` take part in; `spec` is the same for all, except for
/// what their fabrics must know of their hosts.
///
/// `own` is given this node's share, which has no invariants: those are of the whole. Then shares travel to node 0, which
/// gets the whole. If a node is lost, or `stop` set at one, there is no whole, and the share's `facts.cut_short` says who.
/// If that happens while shares travel, `facts.apart` says so, and node 0's `own` is given its own once more, and those that have come.
///
/// # Errors
/// If plan, store or fabric refuse here or at another node, or results do not come together.
pub fn run_member(
    spec: &RunSpec,
    workload: &AnyWorkload,
    protocol: AnyProtocol,
    stop: &AtomicBool,
    session: &mut Session,
    own: &mut dyn FnMut(NodeId, RunResult),
) -> Result<Option<RunResult>, RunError> {
    with_workload!(workload, w => run_member_as(spec, w, protocol, stop, session, own))
}

/// [`run_member`] for a workload and a protocol of one's own.
///
/// # Errors
/// As [`run_member`].
pub fn run_member_as<W: Workload, P: Protocol + Copy + Sync>(
    spec: &RunSpec,
    workload: &W,
    protocol: P,
    stop: &AtomicBool,
    session: &mut Session,
    own: &mut dyn FnMut(NodeId, RunResult),
) -> Result<Option<RunResult>, RunError> {
    let tables = workload.tables();
    let made = check(spec, protocol.needs(), workload).and_then(|()| {
        let store = spec.store(&tables, protocol.needs().packing);
        Run::new(spec, workload, protocol, stop, store, tables)
    });
    let program = made.inspect_err(|error| session.fail(&error.to_string(), error.blame()))?;
    let config = program.worker_config();
    let (outputs, facts) = match launch_member(&spec.fabric, session, spec.shape, &config, &program) {
        Ok(done) => done,
        Err(LaunchError::Shared(SetupError::Invalid(text))) => return Err(program.refusal(text)),
        Err(LaunchError::Mesh(error)) => return Err(error.into()),
        Err(LaunchError::Cancelled) => {
            session.fail("stopped while the cluster was set up", Blame::Run);
            return Err(RunError::Cancelled);
        }
        Err(other) => {
            session.fail(&other.to_string(), other.blame());
            return Err(other.into());
        }
    };
    let mut part = program.part(outputs, &facts);
    part.nodes = 1;
    let bytes = part.encode();
    own(session.node(), program.result(vec![part], facts.clone()));
    if facts.cut_short.is_some() {
        return Ok(None);
    }
    let bytes = bytes.map_err(|why| {
        session.fail(&why, Blame::Input);
        RunError::Spec(why)
    })?;
    let enough = || stop.load(Ordering::Relaxed);
    let Some(gathered) = session.gather_unless("results", bytes, &enough)? else { return Ok(None) };
    let facts = RunFacts { apart: gathered.cut_short, ..facts };
    let mut parts = Vec::with_capacity(gathered.parts.len());
    for (node, bytes) in (0..).map(NodeId).zip(gathered.parts) {
        let Some(bytes) = bytes else { continue };
        match part::Part::decode(&bytes) {
            Ok(part) => parts.push((node, part)),
            // The others' are kept all the same.
            Err(_) if facts.apart.is_some() => {}
            Err(what) => {
                let unfit = MeshError::Unfit { node, what };
                session.fail(&unfit.to_string(), unfit.blame());
                return Err(unfit.into());
            }
        }
    }
    if facts.apart.is_some() {
        parts.into_iter().for_each(|(node, part)| own(node, program.result(vec![part], facts.clone())));
        return Ok(None);
    }
    Ok(Some(program.result(parts.into_iter().map(|(_, part)| part).collect(), facts)))
}

/// Refuses a workload that `protocol` cannot run, whatever the plan and the cluster.
///
/// # Errors
/// [`RunError::Spec`] or [`RunError::Undeclared`].
pub fn admit(workload: &AnyWorkload, protocol: &AnyProtocol) -> Result<(), RunError> {
    with_workload!(workload, w => admits(w, protocol.needs()))
}

fn admits(workload: &impl Workload, needs: &Needs) -> Result<(), RunError> {
    if let Some(why) = needs.keeps_tables().filter(|_| workload.changes_tables()) {
        return Err(RunError::Spec(format!(
            "{} inserts, deletes or scans, and {} {why}: run it under another protocol",
            workload.name(),
            needs.protocol
        )));
    }
    if needs.sequenced && workload.input_words().is_none() {
        return Err(RunError::Undeclared { workload: workload.name(), protocol: needs.protocol });
    }
    Ok(())
}

fn check(spec: &RunSpec, needs: &Needs, workload: &impl Workload) -> Result<(), RunError> {
    admits(workload, needs)?;
    let Shape { nodes, workers } = spec.shape;
    let timed = matches!(needs.packing, Packing::Locked | Packing::Versions);
    if timed && (nodes > MOST_NODES || workers > MOST_WORKERS) {
        return Err(RunError::Spec(format!(
            "{nodes} nodes of {workers} workers: timestamps of {} tell {MOST_NODES} nodes of {MOST_WORKERS} workers apart",
            needs.protocol
        )));
    }
    match spec.length {
        Length::Time { measured: Nanos(0), .. } => {
            Err(RunError::Spec("a run of no time measures nothing".into()))
        }
        Length::Steady(p) if p.least.0 == 0 || p.relative.is_nan() || p.relative <= 0.0 => {
            Err(RunError::Spec("a precision must be above zero, and so must the shortest time".into()))
        }
        Length::Transactions(0) => Err(RunError::Spec("a run of no transactions measures nothing".into())),
        _ if spec.retry.attempts == 0 => {
            Err(RunError::Spec("a transaction needs at least one attempt".into()))
        }
        _ => Ok(()),
    }
}
