//! Driving a phase from every coroutine of a cluster.

use super::{Counts, Spec, StudyError, Subject};
use crate::ops::{Fault, Handlers, PhaseOps, Phases, Stop};
use crate::plan::{CheckedPlan, Needs};
use crate::rule::{CheckRule, LockRule, OnConflict, Owner, Packing, Stamp};
use crate::store::{Cluster, Layout, LocationCache, StoreConfig, StoreError, TableId, TableSpec};
use crate::txn::{Costs, Intent, Txn};
use primitives::exec::{Core, CoreLoop, sleep_until, think, yield_now};
use primitives::fabric::{AnyNic, Caps, Nic, SetupError};
use primitives::measure::{Meter, TooShort};
use primitives::mesh::{FabricSpec, Program, Shape, Site, WorkerConfig, launch};
use primitives::rpc::{Rpc, RpcPoller};
use primitives::units::Nanos;
use primitives::verbs::port::EnginePort;
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

const TABLE: TableId = TableId(0);

/// A coroutine with its transaction, without records, in bytes. Assumed, to be on the safe side: between 256 and 1024 coroutines on each of two
/// simulated nodes the process grew by 5.3 KB for each, requests and records included (peak resident size, x86-64, `study execution --records 1`).
const COROUTINE: u64 = 16 << 10;

/// Words of the location cache for each record. The newest of those that share a word is remembered, so that one location in 128 is not.
const CACHE_WORDS: u64 = 64;

/// Longest computation for an operation.
const LONGEST_THOUGHT: Nanos = Nanos::from_millis(10);

/// Runs one study on `shape` nodes and workers. `stop` ends it early when it becomes true; what is returned then is no measurement.
///
/// # Errors
/// If the specification makes no sense, the fabric cannot carry the variant or refuses something, or a phase failed.
pub fn run(
    fabric: &FabricSpec,
    shape: Shape,
    config: &WorkerConfig,
    spec: &Spec,
    stop: &AtomicBool,
) -> Result<Counts, StudyError> {
    check(spec, shape)?;
    let caps = fabric.caps()?;
    let plan = plan(spec, &caps)?;
    let config = workers(spec, config);
    let (outputs, _) = launch(fabric, shape, &config, &Study { spec, plan, stop })?;
    let (mut all, mut meter) = (Counts::default(), None);
    for output in outputs {
        let (counts, of_all) = output?;
        all.merge(&counts);
        meter = Some(of_all);
    }
    all.too_short = TooShort::of(all.ops, spec.in_flight(shape));
    let found = meter.map(|meter: Arc<Meter>| meter.steadiness(Nanos::MAX));
    all.elapsed = found.map_or(Nanos(0), |found| found.measured);
    all.steadiness = found.map(|found| found.unless(all.too_short));
    Ok(all)
}

/// Bytes that a study holds at its peak, roughly and rather more than less: each node's store with its logs, and what each worker
/// has for its queue pairs, messages, buffers and coroutines; and the location cache, which all share.
pub fn memory_estimate(shape: Shape, config: &WorkerConfig, caps: &Caps, spec: &Spec) -> u64 {
    let config = workers(spec, config);
    // A store that cannot be laid out is refused for that.
    let store = layout(spec, shape).map_or(0, |layout| layout.region_bytes());
    // Of each record its index and its own words are asked for, or the word at each backup, and both are kept in two images.
    let records = u64::from(spec.records) * u64::from(spec.coroutines);
    let requests = records * 2 * u64::from(spec.replicas);
    let coroutines =
        u64::from(spec.coroutines) * COROUTINE + records * 2 * (u64::from(spec.payload_bytes) + 64);
    let each =
        config.memory_estimate(caps.virtual_time, shape.nodes, requests, spec.payload_bytes) + coroutines;
    let workers = u64::from(shape.nodes) * u64::from(shape.workers);
    workers
        .saturating_mul(each)
        .saturating_add(u64::from(shape.nodes).saturating_mul(store))
        .saturating_add(8 * cache_words(spec, shape))
}

/// Words of the location cache; one where the plan has none.
fn cache_words(spec: &Spec, shape: Shape) -> u64 {
    let records = spec.rows_per_node.saturating_mul(u64::from(shape.nodes));
    if spec.variant.plan.location_cache { records.saturating_mul(CACHE_WORDS) } else { 1 }
}

/// How workers are built: messages as long as a record needs, and buffers for all that is in flight.
fn workers(spec: &Spec, config: &WorkerConfig) -> WorkerConfig {
    let records = u64::from(spec.records) * u64::from(spec.coroutines);
    // Each record in flight has two images, and a log entry's share at each backup.
    let in_flight = records * (u64::from(spec.payload_bytes) + 64) * 2 * u64::from(spec.replicas);
    let rpc = config.rpc.taking(spec.variant.plan.longest_message(&needs(spec)));
    WorkerConfig { pool_bytes: config.pool_bytes + 4 * in_flight, rpc, ..*config }
}

/// Where records and logs lie.
fn layout(spec: &Spec, shape: Shape) -> Result<Layout, StoreError> {
    let table = TableSpec {
        name: "study".into(),
        payload_words: spec.payload_bytes / 8,
        rows_per_node: spec.rows_per_node,
        keys_per_block: 1,
        ordered: false,
    };
    Layout::new(StoreConfig {
        tables: vec![table],
        nodes: shape.nodes,
        workers: shape.workers,
        replicas: spec.replicas,
        log_ring_bytes: 256 << 10,
        reserve_bytes: 0,
        packing: Packing::Counted,
        first_version: 1,
    })
}

/// The variant's plan, if a fabric of these capabilities carries it with records of this size.
///
/// # Errors
/// [`StudyError::Plan`] with the reason.
pub fn plan(spec: &Spec, caps: &Caps) -> Result<CheckedPlan, StudyError> {
    Ok(spec.variant.plan.check(caps, &needs(spec))?)
}

fn needs(spec: &Spec) -> Needs {
    Needs::OCC.with_records(spec.payload_bytes)
}

/// Whether a study can be made on `shape` nodes and workers, without making it; what the fabric carries is not asked.
///
/// # Errors
/// [`StudyError::Spec`] with the number that makes no sense.
pub fn check(spec: &Spec, shape: Shape) -> Result<(), StudyError> {
    if spec.payload_bytes == 0 || !spec.payload_bytes.is_multiple_of(8) {
        return Err(StudyError::spec(format!(
            "payload of {} B: a multiple of 8 B is needed",
            spec.payload_bytes
        )));
    }
    if !(0.0..1e3).contains(&spec.skew) {
        return Err(StudyError::spec(format!("skew {}: from 0 (uniform) upwards", spec.skew)));
    }
    if spec.records == 0 || u64::from(spec.records) > spec.rows_per_node / 2 {
        return Err(StudyError::spec(format!(
            "{} records an operation of {} a node: from 1 to half of them",
            spec.records, spec.rows_per_node
        )));
    }
    if spec.think > LONGEST_THOUGHT {
        return Err(StudyError::spec(format!(
            "{} of computation for each operation is too long: up to {LONGEST_THOUGHT} can be studied",
            spec.think
        )));
    }
    if spec.coroutines == 0 || spec.coroutines > crate::plan::Plan::MAX_COROUTINES {
        return Err(StudyError::spec(format!(
            "{} coroutines: 1 to {} are possible",
            spec.coroutines,
            crate::plan::Plan::MAX_COROUTINES
        )));
    }
    if spec.subject == Subject::Logging && spec.replicas < 2 {
        return Err(StudyError::spec("logging needs replicas: at least 2"));
    }
    if spec.replicas > shape.nodes {
        let (copies, are) = (spec.replicas, if shape.nodes == 1 { "is" } else { "are" });
        return Err(StudyError::spec(format!(
            "{copies} copies of each record need {copies} nodes, there {are} {}",
            shape.nodes
        )));
    }
    Ok(())
}

struct Study<'s> {
    spec: &'s Spec,
    plan: CheckedPlan,
    stop: &'s AtomicBool,
}

/// What a worker's coroutines bring together.
#[derive(Default)]
struct Kept {
    counts: Counts,
    failed: Option<Fault>,
    /// Coroutines that have not ended.
    running: u32,
}

/// What a study's workers share.
struct Shared {
    cluster: Cluster,
    /// Words of the location cache. Nothing moves in a study, so that one does for all.
    cache: Arc<[AtomicU64]>,
    meter: Arc<Meter>,
}

impl Program for Study<'_> {
    type Shared = Shared;
    type Local = Rc<RefCell<Kept>>;
    type Output = Result<(Counts, Arc<Meter>), Fault>;

    fn setup(&self, shape: Shape, nodes: &[AnyNic]) -> Result<Shared, SetupError> {
        let invalid = |e: StoreError| SetupError::Invalid(e.to_string());
        let Spec { payload_bytes, rows_per_node, .. } = *self.spec;
        let layout = layout(self.spec, shape).map_err(invalid)?;
        let cluster = Cluster::new(layout, nodes)?;
        let mut payload = vec![0; payload_bytes as usize / 8];
        for key in 0..rows_per_node * u64::from(shape.nodes) {
            payload[0] = key;
            cluster.load(TABLE, key, &payload).map_err(invalid)?;
        }
        let cache: Arc<[AtomicU64]> = (0..cache_words(self.spec, shape)).map(|_| AtomicU64::new(0)).collect();
        // The paper's cached variant is the ideal case: locations are known from the start (DrTM+H §5.1).
        if self.plan.get().location_cache {
            let view = LocationCache::over(cache.clone());
            for key in 0..rows_per_node * u64::from(shape.nodes) {
                let owner = cluster.layout().primary(TABLE, key);
                if let Some(offset) = cluster.store(owner).locate(TABLE, key) {
                    view.fill(TABLE, key, offset);
                }
            }
        }
        let virtual_time = nodes.first().is_some_and(|nic| nic.caps().virtual_time);
        // Simulated workers share a thread, and a row.
        let rows = if virtual_time { 1 } else { usize::from(shape.nodes) * usize::from(shape.workers) };
        let meter = match self.spec.precision {
            None => Meter::fixed(rows, self.spec.warm_up, self.spec.duration),
            Some(precision) => {
                Meter::precise(rows, precision).ending(TooShort::least(self.spec.in_flight(shape)))
            }
        };
        Ok(Shared { cluster, cache, meter: Arc::new(meter) })
    }

    fn build<'a>(
        &'a self,
        Shared { cluster, cache, meter }: &'a Shared,
        site: &Site,
    ) -> Result<(impl CoreLoop + 'a, Self::Local), SetupError> {
        let cache = LocationCache::over(cache.clone());
        meter.ready(site.start);
        let phases = Rc::new(Phases::new(site, cluster, self.plan, cache));
        phases.meter_logs(meter.clone());
        let handlers = Handlers::new(site, cluster).map_err(|e| SetupError::Invalid(e.to_string()))?;
        let rpc: Rc<Rpc<AnyNic>> = site.net.rpc.clone();
        let mut core = Core::new(site.net.sched.clone(), RpcPoller::new(rpc, handlers));
        let kept = Rc::new(RefCell::new(Kept { running: self.spec.coroutines, ..Kept::default() }));
        for coroutine in 0..self.spec.coroutines {
            let worker = u64::from(site.node.0) << 48 | u64::from(site.worker) << 32 | u64::from(coroutine);
            let driver = Driver {
                spec: self.spec,
                stop: self.stop,
                meter: meter.clone(),
                worker: usize::from(site.node.0) * usize::from(site.shape.workers) + usize::from(site.worker),
                phases: phases.clone(),
                port: site.net.port.clone(),
                shape: site.shape,
                me: site.node.0,
                owner: Owner::new(site.node, site.worker, coroutine),
                draws: Draws::new(self.spec.seed, worker),
                started: 0,
            };
            let kept = kept.clone();
            let phases = phases.clone();
            core.spawn(async move {
                let ended = driver.drive(&kept).await;
                if let Err(Stop::Fault(fault)) = ended {
                    kept.borrow_mut().failed = Some(fault);
                }
                let last = {
                    let kept = &mut *kept.borrow_mut();
                    kept.running -= 1;
                    kept.running == 0 && kept.failed.is_none()
                };
                // Who settles asks peers until nothing of the worker's is under way. Thousands that do would wait for each other's questions.
                if last && let Err(Stop::Fault(fault)) = phases.settle().await {
                    kept.borrow_mut().failed = Some(fault);
                }
            });
        }
        Ok((core, kept))
    }

    fn cancelled(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    fn abandoned(&self) -> bool {
        self.cancelled()
    }

    fn finish(&self, shared: &Shared, _: Site, kept: Self::Local) -> Self::Output {
        let Kept { counts, failed, .. } = kept.take();
        failed.map_or(Ok((counts, shared.meter.clone())), Err)
    }
}

struct Driver<'s> {
    spec: &'s Spec,
    stop: &'s AtomicBool,
    meter: Arc<Meter>,
    /// The number of its thread.
    worker: usize,
    phases: Rc<Phases>,
    port: Rc<EnginePort>,
    shape: Shape,
    me: u16,
    owner: Owner,
    draws: Draws,
    started: u64,
}

impl Driver<'_> {
    async fn drive(mut self, kept: &RefCell<Kept>) -> Result<(), Stop> {
        let mut txn = Txn::new();
        if self.spec.subject == Subject::Logging {
            self.begin(&mut txn)?;
            self.phases.fetch(&mut txn).await?;
            self.write(&mut txn);
        }
        loop {
            let outcome = self.once(&mut txn).await;
            let now = self.port.now();
            match outcome {
                Ok((began, cost)) => {
                    self.meter.count(self.worker, 1, now);
                    // What ends in the counted time counts, as the interval has it, whenever it began.
                    if self.meter.holds(now) {
                        let kept = &mut kept.borrow_mut().counts;
                        kept.ops += 1;
                        kept.latency.record(now.since(began));
                        for &phase in self.spec.subject.phases() {
                            kept.cost.add(cost[phase]);
                        }
                    }
                    self.after(&mut txn).await?;
                }
                Err(Stop::Abort(_)) => {
                    self.phases.unlock(&mut txn).await?;
                    kept.borrow_mut().counts.aborted += u64::from(self.meter.holds(now));
                    let pause = Nanos(1_000 + self.draws.below(4_000));
                    sleep_until(&self.port, now + pause).await;
                }
                Err(fault) => return Err(fault),
            }
            if self.meter.over(now) || self.stop.load(Ordering::Relaxed) {
                break;
            }
            think(&self.port, self.spec.think);
            if self.shape.nodes == 1 {
                // With everything local nothing is ever waited for.
                yield_now(self.port.sched()).await;
            }
        }
        Ok(())
    }

    /// One operation; when its timed part began, and what the transaction had cost when it ended. Its end is now.
    async fn once(&mut self, txn: &mut Txn) -> Result<(Nanos, Costs), Stop> {
        let ops = self.phases.clone();
        let rule = match self.spec.subject {
            Subject::Logging => {
                txn.costs = Costs::default();
                LockRule::optimistic(txn.stamp, OnConflict::Fail)
            }
            _ => self.begin(txn)?,
        };
        if matches!(self.spec.subject, Subject::Validation | Subject::Commit) {
            ops.fetch(txn).await?;
        }
        if self.spec.subject == Subject::Commit {
            self.write(txn);
            ops.lock_and_read(txn, rule).await?;
        }
        let began = self.port.now();
        match self.spec.subject {
            Subject::Execution => ops.fetch(txn).await?,
            Subject::Validation => ops.lock_and_read(txn, rule).await?,
            Subject::Logging => ops.replicate(txn).await?,
            Subject::Commit => ops.install_and_unlock(txn).await?,
            Subject::ReadOnly => {
                ops.fetch(txn).await?;
                ops.validate(txn, CheckRule::SameVersion).await?;
            }
        }
        Ok((began, txn.costs))
    }

    /// What an operation leaves to be tidied up.
    async fn after(&self, txn: &mut Txn) -> Result<(), Stop> {
        if txn.holds_locks() { self.phases.unlock(txn).await } else { Ok(()) }
    }

    /// Begins a transaction over records of other nodes.
    fn begin(&mut self, txn: &mut Txn) -> Result<LockRule, Stop> {
        self.started += 1;
        let stamp = Stamp::new(self.owner, self.started);
        txn.begin(stamp);
        let intent = match self.spec.subject {
            Subject::Execution | Subject::ReadOnly => Intent::Read,
            _ => Intent::Write,
        };
        while txn.accesses().len() < self.spec.records as usize {
            let rank = self.draws.rank(self.spec.rows_per_node, self.spec.skew);
            let nodes = u64::from(self.shape.nodes);
            let other = if nodes == 1 { 0 } else { 1 + self.draws.below(nodes - 1) };
            let key = rank * nodes + (u64::from(self.me) + other) % nodes;
            self.phases
                .touch(txn, TABLE, key, intent)
                .map_err(|e| Fault::Verb { phase: crate::plan::Phase::Fetch, source: e.into() })?;
        }
        Ok(LockRule::optimistic(stamp, OnConflict::Fail))
    }

    fn write(&self, txn: &mut Txn) {
        for at in 0..txn.accesses().len() {
            let value = txn.word(at, 0);
            txn.set_word(at, 0, value.wrapping_add(1));
        }
    }
}

/// A coroutine's own stream of draws (splitmix64).
struct Draws {
    state: u64,
}

impl Draws {
    fn new(seed: u64, stream: u64) -> Draws {
        let mut draws = Draws { state: seed ^ stream.wrapping_mul(0xd134_2543_de82_ef95) };
        draws.next();
        draws
    }

    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.state ^ self.state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    fn below(&mut self, n: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(n)) >> 64) as u64
    }

    /// A popularity rank of `n`: rank `r` is drawn in proportion to the integral of x^-skew over [r+1, r+2), the
    /// continuous form of Zipf's law, which needs no table.
    fn rank(&mut self, n: u64, skew: f64) -> u64 {
        if skew == 0.0 {
            return self.below(n);
        }
        let u = (self.next() >> 11) as f64 / (1u64 << 53) as f64;
        let (n1, flat) = ((n + 1) as f64, 1.0 - skew);
        let x =
            if flat.abs() < 1e-9 { n1.powf(u) } else { (u * (n1.powf(flat) - 1.0) + 1.0).powf(1.0 / flat) };
        (x as u64).clamp(1, n) - 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_stay_inside_and_lean_to_the_front() {
        for skew in [0.0, 0.5, 0.99, 1.0, 1.5] {
            let mut draws = Draws::new(7, 0);
            let mut first = 0;
            for _ in 0..10_000 {
                let rank = draws.rank(1000, skew);
                assert!(rank < 1000);
                first += u32::from(rank < 10);
            }
            let expected = match skew {
                0.0 => 60..150,
                s if s < 0.9 => 600..1200,
                s if s <= 1.0 => 2800..4200,
                _ => 6000..8500,
            };
            assert!(expected.contains(&first), "skew {skew}: {first} of 10000 in the first hundredth");
        }
    }
}
