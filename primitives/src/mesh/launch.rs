//! Running one program on every worker of a cluster, on any fabric.

use super::clock::ClockMap;
use super::session::{MeshError, Session};
use super::threads::on_threads;
use super::{Card, Worker, WorkerConfig};
use crate::exec::CoreLoop;
use crate::fabric::loopback::{self, Loopback};
use crate::fabric::sim::{FaultOptions, SimConfig, SimWorld, Stopped, WorldError};
use crate::fabric::tcp::{self, TcpFabric};
#[cfg(feature = "verbs")]
use crate::fabric::verbs::{Options as VerbsOptions, Verbs};
use crate::fabric::{AnyNic, Caps, Nic, SetupError};
use crate::profile::Profile;
use crate::units::Nanos;
use crate::verbs::NodeId;
use std::time::{Duration, Instant};

/// Which fabric, with what it needs to be made.
#[derive(Clone, Debug)]
pub enum FabricSpec {
    /// Logical nodes in this process, a thread per worker.
    Loopback(loopback::Options),
    /// Sockets, a thread per worker; the nodes in this process or one of them.
    Tcp(tcp::Options),
    /// Simulated nodes, all on the calling thread.
    Sim {
        /// NIC and CPU of every node.
        profile: Box<Profile>,
        /// Seed of every draw and tie-break.
        seed: u64,
        /// Faults and hazards.
        faults: Box<FaultOptions>,
    },
    /// A port of a real device, a thread per worker; the nodes in this process or one of them.
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
            FabricSpec::Tcp(_) => Ok(TcpFabric::caps()),
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

    /// Allocates and registers what nodes hold. `nodes` has a control context for each node of this process: all of
    /// the cluster's, or one.
    ///
    /// # Errors
    /// When the fabric refuses.
    fn setup(&self, shape: Shape, nodes: &[AnyNic]) -> Result<Self::Shared, SetupError>;

    /// What each node of this process tells all others before workers are built: keys of its regions, for example.
    /// One list for each context that [`Program::setup`] was given, in that order.
    fn offers(&self, _shared: &Self::Shared, nodes: usize) -> Vec<Vec<u8>> {
        vec![Vec::new(); nodes]
    }

    /// Takes what every node of the cluster told, in node order. Bytes of other processes are not to be trusted.
    ///
    /// # Errors
    /// When they do not fit this program.
    fn learn(&self, _shared: &mut Self::Shared, _offers: &[Vec<u8>]) -> Result<(), SetupError> {
        Ok(())
    }

    /// A node was lost, or somebody wants the end of the run: what runs here should come to its end.
    fn cut_short(&self, _shared: &Self::Shared) {}

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

    /// Whether somebody here wants the end. It is asked between workers while they are set up, and while other processes are
    /// waited for. Where all nodes are in this process, a program that runs ends by itself; over processes it is asked then
    /// too, and [`Program::cut_short`] called on all nodes.
    fn cancelled(&self) -> bool {
        false
    }

    /// Whether nothing that would come of the run is of use any more: a simulated world is then left where it stands, with
    /// [`LaunchError::Cancelled`], however long its cores would take to come to an end.
    fn abandoned(&self) -> bool {
        false
    }

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
    #[error("cannot set up what the workers of a node share: {0}")]
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
    /// The fabric cannot have one node in a process of its own.
    #[error("the nodes of a {fabric} fabric are all in one process")]
    OneProcess {
        /// The fabric.
        fabric: &'static str,
    },
    /// The nodes of the cluster did not come together, or one was lost before the run began.
    #[error(transparent)]
    Mesh(MeshError),
    /// The program was cancelled before its workers ran, or abandoned while they did.
    #[error("cancelled before there was anything to bring back")]
    Cancelled,
    /// The shape is empty.
    #[error("a cluster needs at least one node and one worker, not {nodes} × {workers}")]
    Shape {
        /// Nodes asked for.
        nodes: u16,
        /// Workers asked for.
        workers: u16,
    },
}

impl LaunchError {
    /// Whether this machine lacks something ([`SetupError::is_machines`]).
    pub fn is_machines(&self) -> bool {
        match self {
            LaunchError::Setup { source, .. } | LaunchError::Shared(source) => source.is_machines(),
            _ => false,
        }
    }
}

impl From<MeshError> for LaunchError {
    fn from(error: MeshError) -> LaunchError {
        match error {
            MeshError::Cancelled => LaunchError::Cancelled,
            other => LaunchError::Mesh(other),
        }
    }
}

impl RunFacts {
    /// Simulated events in a second of real time; nothing where none were simulated.
    pub fn events_per_s(&self) -> Option<f64> {
        let seconds = self.took.as_secs_f64();
        (self.events > 0 && seconds > 0.0).then(|| self.events as f64 / seconds)
    }

    /// What two runs of one seed have in common: all but the real time that they took.
    #[must_use]
    pub fn of_seed(&self) -> RunFacts {
        RunFacts { took: Duration::ZERO, ..self.clone() }
    }
}

/// What a cluster run brings back beside the workers' outputs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunFacts {
    /// Simulated events, zero on real fabrics.
    pub events: u64,
    /// How long simulating them took, zero on real fabrics.
    pub took: Duration,
    /// Fingerprint over the simulated events, zero on real fabrics.
    pub fingerprint: u64,
    /// Virtual time at the end, zero on real fabrics.
    pub virtual_time: Nanos,
    /// Work of all simulated cores together, zero on real fabrics.
    pub busy: Nanos,
    /// How core time translates into the time of node 0, where nodes are processes of their own.
    pub clock: Option<ClockMap>,
    /// What ended the run before its time: a node that was lost or interrupted.
    pub cut_short: Option<MeshError>,
    /// Why what the nodes have did not come together at node 0 afterwards, if it did not; the run itself is as it is.
    pub apart: Option<MeshError>,
}

/// Runs `program` on every worker; outputs are in order of node, then worker. All nodes are in this process.
///
/// # Errors
/// If the shape is empty or the fabric refuses something; then no worker runs.
pub fn launch<P: Program>(
    fabric: &FabricSpec,
    shape: Shape,
    config: &WorkerConfig,
    program: &P,
) -> Result<(Vec<P::Output>, RunFacts), LaunchError> {
    check(shape)?;
    match fabric {
        FabricSpec::Sim { profile, seed, faults } => {
            let mut sim =
                SimConfig::new((**profile).clone(), shape.nodes.into(), shape.workers.into(), *seed);
            sim.faults = (**faults).clone();
            sim.cores_per_context = usize::from(config.workers_per_context.min(shape.workers));
            in_world(&SimWorld::new(&sim)?, shape, config, program)
        }
        FabricSpec::Loopback(options) => {
            let fabric = Loopback::new(shape.nodes, *options);
            on_threads(&|node| Ok(AnyNic::Loopback(fabric.context(node))), None, shape, config, program)
        }
        FabricSpec::Tcp(options) => {
            let fabric = TcpFabric::new(shape.nodes, options.clone());
            on_threads(&|node| fabric.context(node).map(AnyNic::Tcp), None, shape, config, program)
        }
        #[cfg(feature = "verbs")]
        FabricSpec::Verbs(options) => {
            let options = VerbsOptions { stamps: config.stamps, ..(**options).clone() };
            let fabric = Verbs::open(&options, shape.nodes).map_err(LaunchError::Shared)?;
            on_threads(&|node| fabric.context(node).map(AnyNic::Verbs), None, shape, config, program)
        }
    }
}

/// Runs `program` on the workers of one node, this process's, while the other members of `session` do the same on
/// theirs; outputs are in order of worker. All members call it with the same shape, configuration and program.
///
/// If a node is lost or interrupted once the run has begun, cores of this node are ended and their outputs returned all the
/// same; [`RunFacts::cut_short`] says who it was.
///
/// # Errors
/// If the fabric refuses something here or at another node, or a node is lost before the run begins; then no worker
/// runs.
pub fn launch_member<P: Program>(
    fabric: &FabricSpec,
    session: &mut Session,
    shape: Shape,
    config: &WorkerConfig,
    program: &P,
) -> Result<(Vec<P::Output>, RunFacts), LaunchError> {
    check(shape)?;
    let session = Some(session);
    match fabric {
        FabricSpec::Loopback(_) => Err(LaunchError::OneProcess { fabric: "loopback" }),
        FabricSpec::Sim { .. } => Err(LaunchError::OneProcess { fabric: "simulated" }),
        FabricSpec::Tcp(options) => {
            let fabric = TcpFabric::new(shape.nodes, options.clone());
            on_threads(&|node| fabric.context(node).map(AnyNic::Tcp), session, shape, config, program)
        }
        #[cfg(feature = "verbs")]
        FabricSpec::Verbs(options) => {
            let options = VerbsOptions { stamps: config.stamps, ..(**options).clone() };
            let fabric = match Verbs::member(&options, shape.nodes) {
                Ok(fabric) => fabric,
                Err(error) => match session {
                    Some(session) => return Err(session.give_up(LaunchError::Shared(error))),
                    None => return Err(LaunchError::Shared(error)),
                },
            };
            on_threads(&|node| fabric.context(node).map(AnyNic::Verbs), session, shape, config, program)
        }
    }
}

fn check(shape: Shape) -> Result<(), LaunchError> {
    match shape {
        Shape { nodes: 0, .. } | Shape { workers: 0, .. } => {
            Err(LaunchError::Shape { nodes: shape.nodes, workers: shape.workers })
        }
        _ => Ok(()),
    }
}

/// A simulated worker up to its connection: node, worker, network.
type Opened = (NodeId, u16, Worker);

fn in_world<P: Program>(
    world: &SimWorld,
    shape: Shape,
    config: &WorkerConfig,
    program: &P,
) -> Result<(Vec<P::Output>, RunFacts), LaunchError> {
    let nic = |node, worker: u16| AnyNic::Sim(world.context(node, worker.into()));
    let nodes = || (0..shape.nodes).map(NodeId);
    let control: Vec<AnyNic> = nodes().map(|node| nic(node, 0)).collect();
    let mut shared = program.setup(shape, &control).map_err(LaunchError::Shared)?;
    let offers = program.offers(&shared, control.len());
    program.learn(&mut shared, &offers).map_err(LaunchError::Shared)?;
    let go_on = || if program.cancelled() { Err(LaunchError::Cancelled) } else { Ok(()) };
    let mut opened: Vec<Opened> = Vec::new();
    // By worker, in order of node: each card is shown to as many workers as there are nodes.
    let mut cards: Vec<Vec<Card>> = vec![Vec::new(); shape.workers.into()];
    for (node, worker) in nodes().flat_map(|node| (0..shape.workers).map(move |worker| (node, worker))) {
        go_on()?;
        let (net, card) = Worker::open(nic(node, worker), config, shape.nodes, worker)
            .map_err(|source| LaunchError::Setup { node, worker, source })?;
        opened.push((node, worker, net));
        cards[usize::from(worker)].push(card);
    }
    for &(node, worker, ref net) in &opened {
        go_on()?;
        net.connect(&cards[usize::from(worker)]).map_err(|source| LaunchError::Setup {
            node,
            worker,
            source,
        })?;
    }
    drop(cards);
    let mut cores = Vec::new();
    let mut rest = Vec::new();
    for (node, worker, net) in opened {
        go_on()?;
        let site = Site { node, worker, shape, net, start: world.now() };
        let (core, local) =
            program.build(&shared, &site).map_err(|source| LaunchError::Setup { node, worker, source })?;
        cores.push(core);
        rest.push((site, local));
    }
    #[allow(clippy::disallowed_methods)] // for people: nothing is computed from it
    let began = Instant::now();
    match world.run_while(&mut cores, Nanos::MAX, || !program.abandoned()) {
        Stopped::Idle => return Err(LaunchError::Stuck { at: world.now() }),
        Stopped::Left => {
            // Cores before what they hold on to, as at a usual end.
            drop(cores);
            return Err(LaunchError::Cancelled);
        }
        Stopped::Finished | Stopped::Time => {}
    }
    let took = began.elapsed();
    drop(cores);
    let facts = RunFacts {
        events: world.events(),
        took,
        fingerprint: world.fingerprint(),
        virtual_time: world.now(),
        busy: world.busy(),
        ..RunFacts::default()
    };
    let outputs = rest.into_iter().map(|(site, local)| program.finish(&shared, site, local)).collect();
    Ok((outputs, facts))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_of_a_seed_are_all_but_the_time_that_they_took() {
        let facts =
            |millis| RunFacts { events: 7, took: Duration::from_millis(millis), ..RunFacts::default() };
        assert_ne!(facts(1), facts(2));
        assert_eq!(facts(1).of_seed(), facts(2).of_seed());
        assert_ne!(facts(1).of_seed(), RunFacts::default(), "what was simulated counts");
    }
}
