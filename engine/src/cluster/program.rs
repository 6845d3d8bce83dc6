//! The program every worker runs: its coroutines, its handlers, and the end of a run.

mod client;

use super::audit::{self, Found};
use super::part::Part;
use super::result::{Fault, RunResult};
use super::{Length, RunError, RunSpec};
use crate::protocol::Protocol;
use crate::protocol::calvin::{self, Buffers, Schedule};
use crate::stats::WorkerStats;
use crate::verify::{History, Recorder};
use crate::workload::{Check, TableDef, Workload};
use client::Client;
use phases::ops::{Handlers, Phases};
use phases::plan::{CheckedPlan, PlanError};
use phases::store::{CacheStats, Cluster, Layout, LocationCache, Shape as RecordShape, StoreConfig, TableId};
use primitives::exec::{Core, CoreLoop};
use primitives::fabric::{AnyNic, Nic, SetupError};
use primitives::measure::{Meter, TooShort};
use primitives::mesh::{Program, RunFacts, Shape, Site, WorkerConfig};
use primitives::rpc::{RpcPoller, RpcStats};
use primitives::units::Nanos;
use primitives::verbs::port::Traffic;
use primitives::verbs::{NodeId, Rkey};
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// Workers of a cluster beyond which each keeps its latencies to two digits instead of three: 22 KiB instead of 220.
const FINE_HISTOGRAMS: usize = 64;

/// One run, as the mesh's launcher drives it.
pub(super) struct Run<'r, W, P> {
    spec: &'r RunSpec,
    workload: &'r W,
    protocol: P,
    stop: &'r AtomicBool,
    layout: Layout,
    /// Where the buffers of a sequenced protocol are.
    buffers: Option<Buffers>,
    tables: Vec<TableDef>,
    refused: Mutex<Option<RunError>>,
}

/// What the workers share.
pub(super) struct Common<T> {
    cluster: Cluster,
    plan: CheckedPlan,
    /// One cache for each node of this process, seen by all its workers.
    caches: Vec<(NodeId, Arc<[AtomicU64]>)>,
    before: T,
    /// What is counted when; it begins when the last worker is connected.
    meter: Arc<Meter>,
    /// Of a sequenced protocol.
    sequenced: Option<calvin::Shared>,
    /// A session has failed: the run ends.
    failed: Arc<AtomicBool>,
}

/// What one worker brings back.
pub(super) struct Output<T> {
    out: Collected<T>,
    stats: WorkerStats,
    cache: CacheStats,
    traffic: Traffic,
    rpc: RpcStats,
    /// From the first worker of each node, if stores are audited.
    found: Option<Found<T>>,
    before: T,
    meter: Arc<Meter>,
    /// The run has failed.
    failed: bool,
}

/// What the coroutines of a worker bring back.
#[derive(Default)]
struct Collected<T> {
    effects: T,
    recorders: Vec<Recorder>,
    faults: Vec<Fault>,
    /// When the last transaction ended.
    last_end: Nanos,
    running: u32,
}

/// What a worker keeps beside its core.
pub(super) struct Kept<T> {
    collected: Rc<RefCell<Collected<T>>>,
    stats: Rc<RefCell<WorkerStats>>,
    phases: Rc<Phases>,
}

/// Fills a node's location cache with the first keys of every table that other nodes hold, as many as fit. Stores are
/// filled in the order of keys, so it is known where a record lies, wherever its node is.
fn warm<W: Workload>(
    layout: &Layout,
    workload: &W,
    me: NodeId,
    words: &Arc<[AtomicU64]>,
    tables: &[TableDef],
) {
    let cache = LocationCache::over(words.clone());
    let nodes = (0..layout.config().nodes).map(NodeId).filter(|&node| node != me);
    let tables = 0..tables.len() as u16;
    let keys = |table, node| (TableId(table), workload.keys(table, layout, node).enumerate());
    let mut partitions: Vec<_> = nodes
        .flat_map(|node| tables.clone().map(move |table| (table, node)))
        .map(|(t, n)| keys(t, n))
        .collect();
    let mut left = words.len();
    // One key of each in turn.
    while left > 0 && !partitions.is_empty() {
        partitions.retain_mut(|(table, keys)| {
            let Some((nth, key)) = keys.next().filter(|_| left > 0) else { return false };
            // Who comes first stays: keys that are asked for often are the low ones.
            // Whoever lies in a reserve is found by the index.
            let Some(place) = layout.nth_record(*table, nth as u64) else { return false };
            cache.fill_free(*table, key, place);
            left -= 1;
            true
        });
    }
}

impl<'r, W: Workload, P: Protocol + Copy + Sync> Run<'r, W, P> {
    pub(super) fn new(
        spec: &'r RunSpec,
        workload: &'r W,
        protocol: P,
        stop: &'r AtomicBool,
        store: StoreConfig,
        tables: Vec<TableDef>,
    ) -> Result<Run<'r, W, P>, RunError> {
        let mut layout = Layout::new(store)?;
        let buffers = match protocol.sequenced() {
            None => None,
            Some(calvin) => {
                let input_words = workload.input_words().ok_or_else(|| RunError::Undeclared {
                    workload: workload.name(),
                    protocol: protocol.needs().protocol,
                })?;
                let coroutines = spec.plan.coroutines;
                let buffers = Buffers::new(&calvin, spec.shape, coroutines, input_words, workload.told())
                    .map_err(RunError::Spec)?;
                Some(buffers.at(layout.reserve_letters(buffers.bytes())?))
            }
        };
        Ok(Run { spec, workload, protocol, stop, layout, buffers, tables, refused: Mutex::new(None) })
    }

    /// The worker's configuration with room in its pool for what coroutines and queues hold at once.
    pub(super) fn worker_config(&self) -> WorkerConfig {
        let mut config = self.spec.worker(&self.tables, self.protocol.needs());
        let packing = self.protocol.needs().packing;
        // The record as read and the image to install; the pool rounds up to powers of two.
        let image = |payload_bytes: u32| {
            let shape = RecordShape { packing, payload: payload_bytes.div_ceil(8) };
            ((shape.words() + shape.install_words()) as u64 * 8 + 64).next_power_of_two()
        };
        // A log entry holds all records that a transaction writes; probes and validations take small buffers beside.
        let (mut records, mut entry) = (0, 0);
        for touches in self.workload.touches() {
            let image = self.tables.get(usize::from(touches.table)).map_or(0, |t| image(t.payload_bytes));
            records += touches.records as u64 * (image + 256);
            entry += touches.written as u64 * image;
        }
        let mut transaction = records + entry.next_power_of_two();
        if let Some(buffers) = &self.buffers {
            // One transaction at a time; values of all of an epoch's are under way at once.
            transaction += buffers.letters_under_way(self.spec.shape.nodes);
        }
        let image = image(self.tables.iter().map(|t| t.payload_bytes).max().unwrap_or(0));
        let coroutines = u64::from(self.spec.plan.coroutines);
        // Passive requests pin their buffers until a later request on the queue is confirmed.
        let queued =
            u64::from(self.spec.shape.nodes) * u64::from(config.lanes) * u64::from(config.qp.send_depth);
        config.pool_bytes = config.pool_bytes.max(2 * coroutines * transaction + queued * (image + 64));
        config
    }

    fn setup_store(&self, nodes: &[AnyNic]) -> Result<Common<W::Tally>, RunError> {
        let caps = nodes.first().map(|nic| nic.caps().clone());
        let caps = caps.ok_or_else(|| RunError::Spec("a cluster has at least one node".into()))?;
        let plan = self.spec.plan.check(&caps, &self.spec.needs(&self.tables, self.protocol.needs()));
        let plan = plan.map_err(|e: PlanError| RunError::Plan(Box::new(e)))?;
        let cluster = Cluster::new(self.layout.clone(), nodes)
            .map_err(|e| RunError::Launch(primitives::mesh::LaunchError::Shared(e)))?;
        let before = audit::populate(&cluster, self.workload, &self.tables, self.stop)?;
        let words = (self.spec.cache_bytes / 8).max(1);
        let caches: Vec<Arc<[AtomicU64]>> =
            nodes.iter().map(|_| (0..words).map(|_| AtomicU64::new(0)).collect()).collect();
        let caches: Vec<(NodeId, Arc<[AtomicU64]>)> = nodes.iter().map(Nic::node).zip(caches).collect();
        if self.spec.warm_cache && self.spec.plan.location_cache {
            for (node, words) in &caches {
                if self.cancelled() {
                    return Err(RunError::Cancelled);
                }
                warm(cluster.layout(), self.workload, *node, words, &self.tables);
            }
        }
        if self.cancelled() {
            return Err(RunError::Cancelled);
        }
        let virtual_time = nodes.first().is_some_and(|nic| nic.caps().virtual_time);
        let shape = self.spec.shape;
        // Simulated workers share a thread, and a row.
        let rows = if virtual_time { 1 } else { usize::from(shape.nodes) * usize::from(shape.workers) };
        let meter = Arc::new(match self.spec.length {
            Length::Transactions(_) => Meter::everything(),
            Length::Time { warm_up, measured } => Meter::fixed(rows, warm_up, measured),
            Length::Steady(precision) => {
                Meter::precise(rows, precision).ending(TooShort::least(self.in_flight(shape.nodes)))
            }
        });
        if let Some(watched) = &self.spec.watched {
            // The first run of a spec is the one that is watched.
            let _ = watched.set(meter.clone());
        }
        let sequenced = self.buffers.map(|buffers| {
            let (coroutines, records) = (self.spec.plan.coroutines, self.workload.records_per_transaction());
            calvin::Shared::new(buffers, shape, coroutines, records, nodes.iter().map(Nic::node))
        });
        Ok(Common { cluster, plan, caches, before, meter, sequenced, failed: Arc::default() })
    }

    /// The error behind a refused set-up.
    pub(super) fn refusal(self, text: String) -> RunError {
        let kept = self.refused.into_inner().unwrap_or_else(|p| p.into_inner());
        kept.unwrap_or(RunError::Spec(text))
    }

    /// What the outputs of this process's workers come to.
    pub(super) fn part(&self, outputs: Vec<Output<W::Tally>>, facts: &RunFacts) -> Part<W::Tally> {
        let mut part = Part::new(digits(self.spec.shape));
        let mut recorders = Vec::new();
        let (mut meter, mut last_end, mut failed) = (None, Nanos(0), false);
        for output in outputs {
            part.stats.merge(&output.stats);
            part.traffic.add(&output.traffic);
            add_rpc(&mut part.rpc, &output.rpc);
            add_cache(&mut part.cache, &output.cache);
            part.effects += output.out.effects;
            recorders.extend(output.out.recorders);
            part.faults.extend(output.out.faults);
            last_end = last_end.max(output.out.last_end);
            part.before = output.before;
            failed |= output.failed;
            meter = Some(output.meter);
            if let Some(found) = output.found {
                part.found.merge(found);
            }
        }
        part.interrupted = self.stop.load(Ordering::Relaxed);
        let start = meter.as_ref().map_or(Nanos(0), |m: &Arc<Meter>| m.start());
        // Whoever saw a session fail stopped there, whatever time was left.
        let early = part.interrupted || facts.cut_short.is_some() || failed || !part.faults.is_empty();
        let steadiness = meter.map(|m| m.steadiness(if early { last_end } else { Nanos::MAX }));
        (part.elapsed, part.steadiness) = match self.spec.length {
            Length::Transactions(_) => (last_end.since(start), None),
            Length::Time { .. } | Length::Steady(_) => {
                let counted = steadiness.filter(|s| s.measured.0 > 0);
                (counted.map_or(Nanos(0), |s| s.measured), counted)
            }
        };
        if self.spec.history {
            let mut history = History::merge(recorders, Some(self.spec.first_version));
            let loaded = |wanted: &[_]| audit::loaded(&self.layout, self.workload, &self.tables, wanted);
            history.learn_initial(loaded);
            if let Some(clock) = facts.clock {
                // Wide enough to hold the true times: what seems to follow in real time does.
                history.retime(|from, to| (clock.earliest(from), clock.latest(to)));
            }
            part.history = Some(history);
        }
        part
    }

    /// The result of the nodes whose parts these are. Invariants hold for all nodes together only.
    pub(super) fn result(&self, parts: Vec<Part<W::Tally>>, facts: RunFacts) -> RunResult {
        let all_nodes =
            facts.cut_short.is_none() && parts.iter().map(|p| p.nodes).sum::<u16>() == self.spec.shape.nodes;
        let mut sum = Part::new(digits(self.spec.shape));
        let mut histories = Vec::new();
        for mut part in parts {
            histories.extend(part.history.take());
            sum.merge(part);
        }
        let checks = if self.spec.audit && all_nodes {
            self.checks(&sum.before, &sum.effects, &sum.found)
        } else {
            Vec::new()
        };
        let too_short = self.too_short(&sum);
        RunResult {
            workload: self.workload.name(),
            kinds: self.workload.kinds(),
            protocol: self.protocol.needs().protocol,
            plan: self.spec.plan,
            shape: self.spec.shape,
            replicas: self.spec.replicas,
            elapsed: sum.elapsed,
            steadiness: sum.steadiness.map(|found| found.unless(too_short)),
            too_short,
            stats: sum.stats,
            traffic: sum.traffic,
            rpc: sum.rpc,
            cache: sum.cache,
            checks,
            history: match histories.len() {
                0 => None,
                1 => histories.pop(),
                _ => Some(History::join(histories)),
            }
            .map(History::settled),
            full: sum.found.full,
            faults: sum.faults,
            interrupted: sum.interrupted,
            facts,
        }
    }

    /// Whether the counted time of these nodes was too short to tell a rate.
    fn too_short(&self, sum: &Part<W::Tally>) -> Option<TooShort> {
        if matches!(self.spec.length, Length::Transactions(_)) || sum.elapsed.0 == 0 {
            return None;
        }
        TooShort::of(sum.stats.ended(), self.in_flight(sum.nodes))
    }

    /// Transactions that so many nodes have in flight at any time.
    fn in_flight(&self, nodes: u16) -> u64 {
        // Calvin's coroutines have several clients each.
        let clients = self.protocol.sequenced().map_or(1, |calvin| u64::from(calvin.batch));
        let workers = u64::from(nodes) * u64::from(self.spec.shape.workers);
        workers * u64::from(self.spec.plan.coroutines) * clients
    }

    fn checks(&self, before: &W::Tally, effects: &W::Tally, after: &Found<W::Tally>) -> Vec<Check> {
        let mut checks = self.workload.check(before, effects, &after.tally);
        checks.push(Check {
            name: "records-intact",
            passed: after.damaged == 0,
            detail: match &after.first_damaged {
                None => "every record is there, whole and unlocked".to_owned(),
                Some(first) => format!("{} damaged records; {first}", after.damaged),
            },
        });
        if self.spec.replicas > 1 {
            let after = after.compare(&self.tables);
            checks.push(Check {
                name: "backups-equal",
                passed: after.differing == 0,
                detail: match &after.first_differing {
                    None => format!("{} backup copies equal their primaries", after.records),
                    Some(first) => format!("backups differ in {} parts; {first}", after.differing),
                },
            });
        }
        checks
    }
}

fn digits(shape: Shape) -> u8 {
    if usize::from(shape.nodes) * usize::from(shape.workers) <= FINE_HISTOGRAMS { 3 } else { 2 }
}

pub(super) fn add_cache(sum: &mut CacheStats, other: &CacheStats) {
    sum.hits += other.hits;
    sum.misses += other.misses;
    sum.stale += other.stale;
}

pub(super) fn add_rpc(sum: &mut RpcStats, other: &RpcStats) {
    sum.served += other.served;
    sum.calls += other.calls;
    sum.retransmits += other.retransmits;
    sum.duplicates += other.duplicates;
    sum.acks += other.acks;
    sum.malformed += other.malformed;
}

/// A seed of its own for each session, from the run's seed (splitmix64's finalizer: nearby inputs part).
pub(super) fn seed_of(seed: u64, session: u32) -> u64 {
    let mut z = seed.wrapping_add(u64::from(session).wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}

impl<'r, W: Workload, P: Protocol + Copy + Sync> Program for Run<'r, W, P> {
    type Shared = Common<W::Tally>;
    type Local = Kept<W::Tally>;
    type Output = Output<W::Tally>;

    fn setup(&self, _: Shape, nodes: &[AnyNic]) -> Result<Self::Shared, SetupError> {
        self.setup_store(nodes).map_err(|e| {
            let text = e.to_string();
            *self.refused.lock().unwrap_or_else(|p| p.into_inner()) = Some(e);
            SetupError::Invalid(text)
        })
    }

    fn offers(&self, common: &Self::Shared, _: usize) -> Vec<Vec<u8>> {
        common.cluster.keys().iter().map(|keys| keys.rkey.0.to_le_bytes().to_vec()).collect()
    }

    fn learn(&self, common: &mut Self::Shared, offers: &[Vec<u8>]) -> Result<(), SetupError> {
        let keys: Option<Vec<Rkey>> = offers
            .iter()
            .map(|offer| Some(Rkey(u32::from_le_bytes(offer.as_slice().try_into().ok()?))))
            .collect();
        let keys = keys.ok_or_else(|| SetupError::Invalid("a node told no memory key".to_owned()))?;
        common.cluster.learn(&keys)
    }

    fn cut_short(&self, common: &Self::Shared) {
        common.failed.store(true, Ordering::Relaxed);
    }

    fn build<'a>(
        &'a self,
        common: &'a Self::Shared,
        site: &Site,
    ) -> Result<(impl CoreLoop + 'a, Self::Local), SetupError> {
        common.meter.ready(site.start);
        let words = common.caches.iter().find(|(node, _)| *node == site.node).map(|(_, words)| words.clone());
        let words =
            words.ok_or_else(|| SetupError::Invalid(format!("{} is not in this process", site.node)))?;
        let cache = LocationCache::over(words);
        let skew = self.spec.clocks.of(site.node, self.spec.seed);
        let phases = Rc::new(Phases::with_clock(site, &common.cluster, common.plan, cache, skew));
        phases.keep_at_home(self.workload.home_tables());
        phases.meter_logs(common.meter.clone());
        if let Some(what) = self.spec.sabotage {
            phases.sabotage(what);
        }
        let stats = Rc::new(RefCell::new(
            WorkerStats::new(digits(site.shape)).of_kinds(self.workload.kinds().len(), 2),
        ));
        let coroutines = self.spec.plan.coroutines;
        let collected = Rc::new(RefCell::new(Collected { running: coroutines, ..Collected::default() }));
        let handlers = Handlers::new(site, &common.cluster).map_err(|e| {
            SetupError::Invalid(format!("handlers of {}, worker {}: {e}", site.node, site.worker))
        })?;
        let handlers = handlers.telling(common.failed.clone());
        let mut core = Core::new(site.net.sched.clone(), RpcPoller::new(site.net.rpc.clone(), handlers));
        let sequenced = common.sequenced.is_some();
        let schedule =
            sequenced.then(|| Rc::new(RefCell::new(Schedule::new(self.spec.shape.nodes, coroutines))));
        for coroutine in 0..coroutines {
            let client = Client {
                run: self,
                common,
                net: site.net.clone(),
                node: site.node,
                worker: site.worker,
                coroutine,
                phases: phases.clone(),
                stats: stats.clone(),
                collected: collected.clone(),
                schedule: schedule.clone(),
            };
            core.spawn(client.work());
        }
        Ok((core, Kept { collected, stats, phases }))
    }

    fn cancelled(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    fn abandoned(&self) -> bool {
        !self.spec.partial && self.cancelled()
    }

    fn finish(&self, common: &Self::Shared, site: Site, kept: Self::Local) -> Self::Output {
        let Kept { collected, stats, phases } = kept;
        let audits = self.spec.audit && !self.abandoned() && site.worker == 0;
        let stats =
            WorkerStats { clock_back_most: phases.clock_back(), ..stats.replace(WorkerStats::new(1)) };
        Output {
            out: collected.take(),
            stats,
            cache: phases.cache_stats(),
            traffic: site.net.port.traffic(),
            rpc: site.net.rpc.stats(),
            found: audits.then(|| audit::count(&common.cluster, self.workload, &self.tables, site.node)),
            before: common.before.clone(),
            meter: common.meter.clone(),
            failed: common.failed.load(Ordering::Relaxed),
        }
    }
}
