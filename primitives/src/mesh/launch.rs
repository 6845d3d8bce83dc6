//! Running one program on every worker of a cluster, on any fabric.

use super::{Card, Worker, WorkerConfig};
use crate::exec::CoreLoop;
use crate::exec::threads::{Live, drive};
use crate::fabric::loopback::{self, Loopback};
use crate::fabric::sim::{FaultOptions, SimConfig, SimWorld, Stopped, WorldError};
#[cfg(feature = "verbs")]
use crate::fabric::verbs::{Options as VerbsOptions, Verbs};
use crate::fabric::{AnyNic, Caps, Nic, SetupError};
use crate::profile::Profile;
use crate::units::Nanos;
use crate::verbs::NodeId;
use std::sync::{Barrier, Mutex};

/// Which fabric, with what it needs to be made.
#[derive(Clone, Debug)]
pub enum FabricSpec {
    /// Logical nodes in this process, a thread per worker.
    Loopback(loopback::Options),
    /// Simulated nodes, all on the calling thread.
    Sim {
        /// NIC and CPU of every node.
        profile: Box<Profile>,
        /// Seed of every draw and tie-break.
        seed: u64,
        /// Faults and hazards.
        faults: Box<FaultOptions>,
    },
    /// Logical nodes in this process on one port of a real device, a thread per worker.
    #[cfg(feature = "verbs")]
    Verbs(Box<VerbsOptions>),
}

impl FabricSpec {
    /// What the fabric can do.
    ///
    /// # Errors
    /// If the profile of a simulated fabric is impossible, or a device cannot be used.
    pub fn caps(&self) -> Result<Caps, LaunchError> {
        match self {
            FabricSpec::Loopback(options) => Ok(Loopback::new(1, *options).context(NodeId(0)).caps().clone()),
            FabricSpec::Sim { profile, seed, .. } => {
                let world = SimWorld::new(&SimConfig::new((**profile).clone(), 1, 1, *seed))?;
                Ok(world.context(NodeId(0), 0).caps().clone())
            }
            #[cfg(feature = "verbs")]
            FabricSpec::Verbs(options) => {
                Ok(Verbs::open(options, 1).map_err(LaunchError::Shared)?.caps().clone())
            }
        }
    }
}

/// How large a cluster is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Nodes.
    pub nodes: u16,
    /// Worker threads (cores) per node.
    pub workers: u16,
}

/// Where a program runs.
pub struct Site {
    /// The node.
    pub node: NodeId,
    /// The worker's number on its node.
    pub worker: u16,
    /// The cluster.
    pub shape: Shape,
    /// Port, RPC endpoint, scheduler.
    pub net: Worker,
    /// Core time at which all workers are connected and start.
    pub start: Nanos,
}

/// What every worker of a cluster runs.
pub trait Program: Sync {
    /// What the workers share: memory of nodes, keys of regions.
    type Shared: Sync;
    /// What one worker keeps beside its core, for [`Program::finish`].
    type Local;
    /// What one worker brings back.
    type Output: Send;

    /// Allocates and registers what nodes hold. `nodes` has a control context for each node.
    ///
    /// # Errors
    /// When the fabric refuses.
    fn setup(&self, shape: Shape, nodes: &[AnyNic]) -> Result<Self::Shared, SetupError>;

    /// Builds a worker's core, coroutines included, and what the worker keeps. The core's type has no name (its
    /// coroutines are `async` blocks), so nothing on the data path is boxed behind `dyn`.
    ///
    /// # Errors
    /// When buffers or queue pairs run out.
    fn build<'a>(
        &'a self,
        shared: &'a Self::Shared,
        site: &Site,
    ) -> Result<(impl CoreLoop + 'a, Self::Local), SetupError>;

    /// Makes the results of a worker, after the coroutines of all workers have ended and its core is gone.
    fn finish(&self, shared: &Self::Shared, site: Site, local: Self::Local) -> Self::Output;
}

/// Why a cluster did not run.
#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    /// Set-up failed.
    #[error("cannot set up {node}, worker {worker}: {source}")]
    Setup {
        /// The node.
        node: NodeId,
        /// The worker.
        worker: u16,
        /// What was refused.
        source: SetupError,
    },
    /// Shared set-up failed.
    #[error("cannot set up the cluster: {0}")]
    Shared(#[source] SetupError),
    /// The simulated world cannot be built.
    #[error("cannot build the simulated cluster: {0}")]
    World(#[from] WorldError),
    /// Every core waits for something that will not come.
    #[error("the simulated cluster came to a stand at {at}: every core waits and nothing is in flight")]
    Stuck {
        /// Virtual time.
        at: Nanos,
    },
    /// The shape is empty.
    #[error("a cluster needs at least one node and one worker, not {nodes} × {workers}")]
    Shape {
        /// Nodes asked for.
        nodes: u16,
        /// Workers asked for.
        workers: u16,
    },
}

/// What a cluster run brings back beside the workers' outputs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RunFacts {
    /// Simulated events, zero on real fabrics.
    pub events: u64,
    /// Fingerprint over the simulated events, zero on real fabrics.
    pub fingerprint: u64,
    /// Virtual time at the end, zero on real fabrics.
    pub virtual_time: Nanos,
}

/// Runs `program` on every worker; outputs are in order of node, then worker.
///
/// # Errors
/// If the shape is empty or the fabric refuses something; then no worker runs.
pub fn launch<P: Program>(
    fabric: &FabricSpec,
    shape: Shape,
    config: &WorkerConfig,
    program: &P,
) -> Result<(Vec<P::Output>, RunFacts), LaunchError> {
    if shape.nodes == 0 || shape.workers == 0 {
        return Err(LaunchError::Shape { nodes: shape.nodes, workers: shape.workers });
    }
    match fabric {
        FabricSpec::Loopback(options) => {
            let fabric = Loopback::new(shape.nodes, *options);
            let outputs =
                on_threads(|node| Ok(AnyNic::Loopback(fabric.context(node))), shape, config, program)?;
            Ok((outputs, RunFacts::default()))
        }
        #[cfg(feature = "verbs")]
        FabricSpec::Verbs(options) => {
            let fabric = Verbs::open(options, shape.nodes).map_err(LaunchError::Shared)?;
            let outputs = on_threads(|node| fabric.context(node).map(AnyNic::Verbs), shape, config, program)?;
            Ok((outputs, RunFacts::default()))
        }
        FabricSpec::Sim { profile, seed, faults } => {
            let mut sim =
                SimConfig::new((**profile).clone(), shape.nodes.into(), shape.workers.into(), *seed);
            sim.faults = (**faults).clone();
            in_world(&SimWorld::new(&sim)?, shape, config, program)
        }
    }
}

/// The cards of all workers, laid open before anybody connects.
struct Table {
    cards: Mutex<Vec<Option<Card>>>,
    refused: Mutex<Option<LaunchError>>,
    barrier: Barrier,
    live: Live,
}

impl Table {
    fn refuse(&self, error: LaunchError) {
        self.refused.lock().unwrap_or_else(|p| p.into_inner()).get_or_insert(error);
    }

    /// Waits for all workers; true if none of them was refused anything so far.
    fn meet(&self) -> bool {
        self.barrier.wait();
        let fine = self.refused.lock().unwrap_or_else(|p| p.into_inner()).is_none();
        self.barrier.wait();
        fine
    }
}

fn on_threads<P: Program>(
    context: impl Fn(NodeId) -> Result<AnyNic, SetupError> + Sync,
    shape: Shape,
    config: &WorkerConfig,
    program: &P,
) -> Result<Vec<P::Output>, LaunchError> {
    let control = (0..shape.nodes).map(|n| context(NodeId(n))).collect::<Result<Vec<AnyNic>, _>>();
    let control = control.map_err(LaunchError::Shared)?;
    let shared = program.setup(shape, &control).map_err(LaunchError::Shared)?;
    let total = usize::from(shape.nodes) * usize::from(shape.workers);
    let table = Table {
        cards: Mutex::new(vec![None; total]),
        refused: Mutex::new(None),
        barrier: Barrier::new(total),
        live: Live::new(total),
    };
    let outputs = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..shape.nodes)
            .flat_map(|node| (0..shape.workers).map(move |worker| (NodeId(node), worker)))
            .map(|(node, worker)| {
                let (table, shared, context) = (&table, &shared, &context);
                // A context belongs to the thread that opens it.
                scope
                    .spawn(move || one_worker(context, table, shape, config, program, shared, (node, worker)))
            })
            .collect();
        threads.into_iter().map(|t| t.join()).collect::<Vec<_>>()
    });
    if let Some(error) = table.refused.into_inner().unwrap_or_else(|p| p.into_inner()) {
        return Err(error);
    }
    let outputs = outputs.into_iter().map(|joined| match joined {
        Ok(output) => output,
        // A worker's panic is a bug; let it be seen as such.
        Err(panic) => std::panic::resume_unwind(panic),
    });
    Ok(outputs.flatten().collect())
}

fn one_worker<P: Program>(
    context: impl Fn(NodeId) -> Result<AnyNic, SetupError>,
    table: &Table,
    shape: Shape,
    config: &WorkerConfig,
    program: &P,
    shared: &P::Shared,
    (node, worker): (NodeId, u16),
) -> Option<P::Output> {
    let setup = |source| LaunchError::Setup { node, worker, source };
    let index = |node: u16| usize::from(node) * usize::from(shape.workers) + usize::from(worker);
    let opened = match context(node).and_then(|nic| Worker::open(nic, config, shape.nodes, worker)) {
        Ok((net, card)) => {
            table.cards.lock().unwrap_or_else(|p| p.into_inner())[index(node.0)] = Some(card);
            Some(net)
        }
        Err(source) => {
            table.refuse(setup(source));
            None
        }
    };
    if !table.meet() {
        return None;
    }
    let net = opened?;
    let cards: Vec<Card> = {
        let all = table.cards.lock().unwrap_or_else(|p| p.into_inner());
        (0..shape.nodes).filter_map(|n| all[index(n)].clone()).collect()
    };
    if let Err(source) = net.connect(&cards) {
        table.refuse(setup(source));
    }
    let start = net.port.now();
    let site = Site { node, worker, shape, net, start };
    let built = match program.build(shared, &site) {
        Ok(built) => Some(built),
        Err(source) => {
            table.refuse(setup(source));
            None
        }
    };
    if !table.meet() {
        return None;
    }
    let (mut core, local) = built?;
    drive(&mut core, &table.live);
    drop(core);
    Some(program.finish(shared, site, local))
}

/// A simulated worker up to its connection: node, worker, network, card.
type Opened = (NodeId, u16, Worker, Card);

fn in_world<P: Program>(
    world: &SimWorld,
    shape: Shape,
    config: &WorkerConfig,
    program: &P,
) -> Result<(Vec<P::Output>, RunFacts), LaunchError> {
    let nic = |node, worker: u16| AnyNic::Sim(world.context(node, worker.into()));
    let nodes = || (0..shape.nodes).map(NodeId);
    let control: Vec<AnyNic> = nodes().map(|node| nic(node, 0)).collect();
    let shared = program.setup(shape, &control).map_err(LaunchError::Shared)?;
    let mut opened: Vec<Opened> = Vec::new();
    for (node, worker) in nodes().flat_map(|node| (0..shape.workers).map(move |worker| (node, worker))) {
        let (net, card) = Worker::open(nic(node, worker), config, shape.nodes, worker)
            .map_err(|source| LaunchError::Setup { node, worker, source })?;
        opened.push((node, worker, net, card));
    }
    for (node, worker, net, _) in &opened {
        let cards: Vec<Card> =
            opened.iter().filter(|(_, w, ..)| w == worker).map(|(.., card)| card.clone()).collect();
        net.connect(&cards).map_err(|source| LaunchError::Setup { node: *node, worker: *worker, source })?;
    }
    let mut cores = Vec::new();
    let mut rest = Vec::new();
    for (node, worker, net, _) in opened {
        let site = Site { node, worker, shape, net, start: world.now() };
        let (core, local) =
            program.build(&shared, &site).map_err(|source| LaunchError::Setup { node, worker, source })?;
        cores.push(core);
        rest.push((site, local));
    }
    if world.run(&mut cores, Nanos::MAX) == Stopped::Idle {
        return Err(LaunchError::Stuck { at: world.now() });
    }
    drop(cores);
    let facts =
        RunFacts { events: world.events(), fingerprint: world.fingerprint(), virtual_time: world.now() };
    let outputs = rest.into_iter().map(|(site, local)| program.finish(&shared, site, local)).collect();
    Ok((outputs, facts))
}
