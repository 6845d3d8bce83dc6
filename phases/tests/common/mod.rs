//! Runs a script of phase operations on a small cluster, on either fabric.

#![allow(dead_code)] // each test binary uses its part

use phases::ops::{HandlerStats, Handlers, PhaseOps, Phases, Stop};
use phases::plan::{CheckedPlan, Needs, Phase, Plan, Step, Via};
use phases::rule::{Abort, CheckRule, LockRule, OnConflict, Owner, Stamp};
use phases::store::{Cluster, Layout, LocationCache, NodeStore, StoreConfig, TableId, TableSpec};
use phases::txn::{Intent, Txn};
use primitives::exec::{Core, CoreLoop, sleep_until};
use primitives::fabric::loopback::{Mode, Options};
use primitives::fabric::sim::FaultOptions;
use primitives::fabric::{AnyNic, SetupError};
use primitives::mesh::{FabricSpec, Program, Shape, Site, WorkerConfig, launch};
use primitives::rpc::{RpcConfig, RpcPoller};
use primitives::units::Nanos;
use primitives::verbs::NodeId;
use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;

pub const T: TableId = TableId(0);
/// A table whose records are longer than a cache line, and whose WRITEs are not inlined.
pub const WIDE: TableId = TableId(1);
pub const WIDE_WORDS: usize = 20;
pub const KEYS: u64 = 60;
/// An ordered table: block `n` lies on node `n`, with keys 0, 10, … 90 and room for as many again.
pub const ORDERED: TableId = TableId(2);
pub const BLOCK: u64 = 1 << 20;
pub const ORDERED_ROWS: u64 = 20;
/// An empty table, in blocks as the ordered one, with room for so many records that its index may be full before it.
pub const CROWDED: TableId = TableId(3);
pub const CROWDED_ROWS: u64 = 120;

pub type Local<T> = Pin<Box<dyn Future<Output = T>>>;

#[derive(Clone)]
pub struct Setup {
    pub fabric: FabricSpec,
    pub nodes: u16,
    pub workers: u16,
    pub replicas: u16,
    pub plan: Plan,
    pub needs: Needs,
    pub cache_bytes: usize,
    pub ring_bytes: u64,
    pub reserve_bytes: u64,
    pub config: WorkerConfig,
    /// Coroutines on every worker rather than one on node 0.
    pub everywhere: u32,
}

pub fn loopback() -> FabricSpec {
    FabricSpec::Loopback(Options::default())
}

pub fn nic_thread(seed: u64) -> FabricSpec {
    FabricSpec::Loopback(Options { mode: Mode::NicThread { seed }, ..Options::default() })
}

pub fn sim(seed: u64) -> FabricSpec {
    let profile = primitives::profile::Profile::shipped("cx4-edr").expect("a shipped profile");
    FabricSpec::Sim { profile: Box::new(profile), seed, faults: Box::default() }
}

/// A simulated fabric that loses datagrams, delays, reorders and tears.
pub fn rough(seed: u64) -> FabricSpec {
    let FabricSpec::Sim { profile, .. } = sim(seed) else { unreachable!() };
    let faults = FaultOptions {
        datagram_loss: 0.02,
        completion_jitter: Nanos(2_000),
        transit_jitter: Nanos(5_000),
        torn_read: 0.5,
        torn_write: 0.5,
        ..FaultOptions::default()
    };
    FabricSpec::Sim { profile, seed, faults: Box::new(faults) }
}

pub fn setup(plan: Plan) -> Setup {
    Setup {
        fabric: loopback(),
        nodes: 3,
        workers: 1,
        replicas: 1,
        plan,
        needs: Needs::OCC,
        cache_bytes: 1 << 16,
        ring_bytes: 4096,
        reserve_bytes: 0,
        config: WorkerConfig::default(),
        everywhere: 0,
    }
}

impl Setup {
    pub fn checked(&self) -> CheckedPlan {
        let caps = self.fabric.caps().expect("a fabric");
        self.plan.check(&caps, &self.needs).unwrap_or_else(|e| panic!("{e}"))
    }
}

/// What a script works with.
pub struct Env {
    pub site: SiteFacts,
    pub phases: Rc<Phases>,
    pub cluster: Rc<[NodeStore]>,
    pub port: Rc<primitives::verbs::port::EnginePort>,
    pub rpc: Rc<primitives::rpc::Rpc<AnyNic>>,
    owner: Owner,
    count: Cell<u64>,
}

#[derive(Clone, Copy)]
pub struct SiteFacts {
    pub node: NodeId,
    pub worker: u16,
    pub coroutine: u32,
}

impl Env {
    pub fn begin(&self, txn: &mut Txn) -> LockRule {
        self.count.set(self.count.get() + 1);
        let stamp = Stamp::new(self.owner, self.count.get());
        txn.begin(stamp);
        LockRule::optimistic(stamp, OnConflict::Fail)
    }

    pub fn touch(&self, txn: &mut Txn, table: TableId, key: u64, intent: Intent) -> usize {
        self.phases.touch(txn, table, key, intent).expect("buffers")
    }

    /// Optimistic commit of what the transaction has read and written.
    pub async fn commit(&self, txn: &mut Txn, rule: LockRule) -> Result<(), Stop> {
        let ops = &self.phases;
        let decided = async {
            ops.lock_and_read(txn, rule).await?;
            ops.validate(txn, CheckRule::SameVersion).await?;
            ops.replicate(txn).await
        };
        match decided.await {
            Ok(()) => ops.install_and_unlock(txn).await,
            Err(stop) => {
                ops.unlock(txn).await?;
                Err(stop)
            }
        }
    }

    /// A whole transaction that adds to the first word of each key, repeated until it commits.
    pub async fn add(&self, txn: &mut Txn, table: TableId, keys: &[u64], amount: u64) -> u64 {
        let mut aborts = 0;
        loop {
            let rule = self.begin(txn);
            let places: Vec<usize> = keys.iter().map(|&k| self.touch(txn, table, k, Intent::Write)).collect();
            let outcome = async {
                self.phases.fetch(txn).await?;
                for &at in &places {
                    for word in 0..txn.accesses()[at].payload_words() {
                        txn.set_word(at, word, txn.word(at, word) + amount);
                    }
                }
                self.commit(txn, rule).await
            };
            match outcome.await {
                Ok(()) => return aborts,
                Err(Stop::Abort(_)) => {
                    aborts += 1;
                    // Sleeping lets the thread that holds the lock run, where threads outnumber CPUs.
                    let pause = Nanos((1 + aborts % 7) * (1_000 + 300 * u64::from(self.site.coroutine)));
                    sleep_until(&self.port, self.port.now() + pause).await;
                }
                Err(Stop::Fault(fault)) => panic!("{fault}"),
            }
        }
    }
}

/// What a run brings back.
pub struct Ran<O> {
    pub outputs: Vec<O>,
    pub stores: Vec<NodeStore>,
    pub stats: Vec<HandlerStats>,
    /// Buffers in use at the end, by worker, before anything was dropped.
    pub in_use: Vec<usize>,
}

struct Run<'s, S> {
    setup: &'s Setup,
    script: S,
}

/// What a worker keeps.
pub struct Kept<O> {
    results: Vec<Rc<RefCell<Option<O>>>>,
    stats: Rc<Cell<HandlerStats>>,
}

type Output<O> = (Vec<O>, Option<Vec<NodeStore>>, HandlerStats, usize);

impl<O: Send + 'static, S: Fn(Rc<Env>) -> Local<O> + Sync> Program for Run<'_, S> {
    type Shared = Cluster;
    type Local = Kept<O>;
    type Output = Output<O>;

    fn setup(&self, _: Shape, nodes: &[AnyNic]) -> Result<Cluster, SetupError> {
        let table = |name: &str, payload_words| TableSpec {
            name: name.into(),
            payload_words,
            rows_per_node: KEYS,
            keys_per_block: 1,
            ordered: false,
        };
        let ordered = TableSpec {
            name: "ordered".into(),
            payload_words: 2,
            rows_per_node: ORDERED_ROWS,
            keys_per_block: BLOCK,
            ordered: true,
        };
        let crowded = TableSpec {
            name: "crowded".into(),
            rows_per_node: CROWDED_ROWS,
            ordered: false,
            ..ordered.clone()
        };
        let layout = Layout::new(StoreConfig {
            tables: vec![table("t", 1), table("wide", WIDE_WORDS as u32), ordered, crowded],
            nodes: self.setup.nodes,
            workers: self.setup.workers,
            replicas: self.setup.replicas,
            log_ring_bytes: self.setup.ring_bytes,
            reserve_bytes: self.setup.reserve_bytes,
            packing: self.setup.needs.packing,
            first_version: 1,
        })
        .map_err(|e| SetupError::Invalid(e.to_string()))?;
        let cluster = Cluster::new(layout, nodes)?;
        for key in 0..KEYS {
            cluster.load(T, key, &[1000]).map_err(|e| SetupError::Invalid(e.to_string()))?;
            cluster.load(WIDE, key, &[key; WIDE_WORDS]).map_err(|e| SetupError::Invalid(e.to_string()))?;
        }
        for key in (0..u64::from(self.setup.nodes)).flat_map(|n| (0..10).map(move |i| n * BLOCK + i * 10)) {
            cluster.load(ORDERED, key, &[key, 0]).map_err(|e| SetupError::Invalid(e.to_string()))?;
        }
        Ok(cluster)
    }

    fn build<'a>(
        &'a self,
        cluster: &'a Cluster,
        site: &Site,
    ) -> Result<(impl CoreLoop + 'a, Kept<O>), SetupError> {
        let invalid = |e: &dyn std::fmt::Display| SetupError::Invalid(e.to_string());
        let handlers = Handlers::new(site, cluster).map_err(|e| invalid(&e))?;
        let stats = handlers.stats();
        let poller = RpcPoller::new(site.net.rpc.clone(), handlers);
        let mut core: Core<Local<()>, _> = Core::new(site.net.sched.clone(), poller);
        let mut results = Vec::new();
        let coroutines = match (self.setup.everywhere, site.node.0, site.worker) {
            (0, 0, 0) => 1,
            (n, ..) => n,
        };
        let cache = LocationCache::new(self.setup.cache_bytes);
        let phases = Rc::new(Phases::new(site, cluster, self.setup.checked(), cache));
        for coroutine in 0..coroutines {
            let env = Rc::new(Env {
                site: SiteFacts { node: site.node, worker: site.worker, coroutine },
                phases: phases.clone(),
                cluster: cluster.stores().into(),
                port: site.net.port.clone(),
                rpc: site.net.rpc.clone(),
                owner: Owner::new(site.node, site.worker, coroutine),
                count: Cell::new(0),
            });
            let result = Rc::new(RefCell::new(None));
            results.push(result.clone());
            let script = (self.script)(env);
            core.spawn(Box::pin(async move {
                let output = script.await;
                *result.borrow_mut() = Some(output);
            }));
        }
        Ok((core, Kept { results, stats }))
    }

    fn finish(&self, cluster: &Cluster, site: Site, kept: Kept<O>) -> Output<O> {
        let outputs = kept.results.iter().filter_map(|r| r.borrow_mut().take()).collect();
        let stores = (site.node.0 == 0 && site.worker == 0).then(|| cluster.stores().to_vec());
        (outputs, stores, kept.stats.get(), site.net.port.pool().in_use())
    }
}

/// Runs the script on node 0 (or everywhere) while the others serve.
pub fn run<O: Send + 'static>(setup: &Setup, script: impl Fn(Rc<Env>) -> Local<O> + Sync) -> Ran<O> {
    let shape = Shape { nodes: setup.nodes, workers: setup.workers };
    let program = Run { setup, script };
    let (outputs, _) =
        launch(&setup.fabric, shape, &setup.config, &program).unwrap_or_else(|e| panic!("{e}"));
    let mut ran = Ran { outputs: Vec::new(), stores: Vec::new(), stats: Vec::new(), in_use: Vec::new() };
    for (outputs, stores, stats, in_use) in outputs {
        ran.outputs.extend(outputs);
        ran.stores.extend(stores.unwrap_or_default());
        ran.stats.push(stats);
        ran.in_use.push(in_use);
    }
    ran
}

/// Plans that differ in every primitive and in each optimization.
pub fn plans() -> Vec<Plan> {
    let mut all = Vec::new();
    for via in [Via::OneSided, Via::TwoSided, Via::Hybrid] {
        all.push(Plan::uniform(via));
        for (outstanding, doorbell_batching, passive) in
            [(false, false, false), (true, true, false), (true, false, true), (false, true, true)]
        {
            let mut plan = Plan::uniform(via);
            for phase in Phase::ALL {
                if let Some(step) = plan.step(phase) {
                    let passive_ack = passive && phase.may_be_passive();
                    plan.set(phase, Some(Step { outstanding, doorbell_batching, passive_ack, ..step }));
                }
            }
            all.push(plan);
        }
    }
    all
}

/// Every record of every copy of the store: `(table, key, version, payload)` by node.
pub fn contents(store: &NodeStore) -> Vec<(u16, u64, u64, Vec<u64>)> {
    let mut all = Vec::new();
    for table in [T, WIDE] {
        for key in 0..KEYS {
            if let Some(stored) = store.get(table, key) {
                assert!(!stored.locked, "table {} key {key} is still locked", table.0);
                all.push((table.0, key, stored.version, stored.payload));
            }
        }
    }
    all
}

pub fn abort_of(result: Result<(), Stop>) -> Option<Abort> {
    match result {
        Ok(()) => None,
        Err(Stop::Abort(abort)) => Some(abort),
        Err(Stop::Fault(fault)) => panic!("{fault}"),
    }
}

/// Nothing is lost here, and what a busy machine made the client send again would be counted as posted.
pub fn patient(plan: Plan) -> Setup {
    let rpc = RpcConfig { retransmit_after: Nanos::from_millis(10_000), ..RpcConfig::default() };
    Setup { config: WorkerConfig { rpc, ..WorkerConfig::default() }, ..setup(plan) }
}
