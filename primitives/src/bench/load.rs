//! The closed load behind every primitive benchmark.

use super::admit::{LoadError, check};
use super::bare::{self, Bare};
use super::calls::{Calls, Carrier, Layout, LoadPoller, Rings, SLOTS};
use super::client::Client;
use super::messages::{self, Messages};
use super::oracle::{self, Timestamps};
use super::sample::{Counted, Sample};
use super::{BenchVerb, OBJECTS, Point, Scope, payload};
use crate::exec::{Core, CoreLoop, Step};
use crate::fabric::{AnyNic, Nic, SetupError, Span};
use crate::measure::{Counters, Histogram, Meter};
use crate::mem::{Access, Region};
use crate::mesh::{FabricSpec, Program, RunFacts, Shape, Site, WorkerConfig, launch};
use crate::rpc::{HEADER_BYTES, Incoming, Reply, RpcConfig, RpcPoller, Service};
use crate::units::Nanos;
use crate::verbs::port::{PortConfig, Traffic};
use crate::verbs::{NodeId, QpConfig, Rkey, Transport};
use rand::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// On real fabrics, one group in this many is timed.
pub const SAMPLE_EVERY: u32 = 8;

/// Memory that each node offers to requests. Small enough to stay in a CPU's cache: what is measured is the
/// primitive, not the memory.
pub(super) const TARGET_BYTES: u64 = 1 << 20;

/// The same in a card's own memory, of which there is little.
pub const ON_CARD_BYTES: u64 = 64 << 10;

pub(super) const READ: u8 = 1;
pub(super) const WRITE: u8 = 2;

/// Measures one point.
///
/// # Errors
/// If the cluster cannot be set up or a request fails.
pub fn run(
    fabric: &FabricSpec,
    scope: &Scope,
    point: &Point,
    seed: u64,
    stop: &AtomicBool,
) -> Result<Sample, LoadError> {
    check(scope, point)?;
    let shape = Shape { nodes: scope.nodes, workers: point.threads };
    let load = ClosedLoad { point, scope, seed, stop };
    let (outputs, facts) = launch(fabric, shape, &worker_config(point), &load)?;
    judge(outputs, facts, scope, point)
}

/// Adds up what the workers of this process brought back.
pub(super) fn judge(
    outputs: Vec<Output>,
    facts: RunFacts,
    scope: &Scope,
    point: &Point,
) -> Result<Sample, LoadError> {
    let meter = outputs.first().map(|o| o.meter.clone()).ok_or(LoadError::Nodes(scope.nodes))?;
    let mut all = Counted::default();
    for output in outputs {
        if let Some(failure) = output.failure {
            return Err(LoadError::Request(failure));
        }
        all.add(&output.counted);
    }
    Ok(all.sample(point, scope, meter.steadiness(Nanos::MAX), facts))
}

pub(super) struct ClosedLoad<'l> {
    pub(super) point: &'l Point,
    pub(super) scope: &'l Scope,
    pub(super) seed: u64,
    pub(super) stop: &'l AtomicBool,
}

/// What a worker brings back.
pub(super) struct Output {
    meter: Arc<Meter>,
    counted: Counted,
    failure: Option<String>,
}

/// What a worker's coroutines count into.
#[derive(Default)]
pub(super) struct Tally {
    pub(super) ops: Cell<u64>,
    pub(super) ops_total: Cell<u64>,
    pub(super) latency: RefCell<Histogram>,
    /// What the device stamped in the window.
    pub(super) stamped: Cell<Option<Span>>,
    /// What went past the port.
    pub(super) beside: Cell<Traffic>,
    pub(super) failure: RefCell<Option<String>>,
}

/// What the workers share.
pub(super) struct Common {
    /// The memory that requests go to, of the nodes in this process.
    pub(super) targets: Vec<(NodeId, Region)>,
    /// By node: of those in this process at first, then of all.
    pub(super) rkeys: Vec<Rkey>,
    pub(super) meter: Arc<Meter>,
    /// A node was lost.
    pub(super) cut_short: AtomicBool,
}

pub(super) struct Local {
    tally: Rc<Tally>,
    counters: Result<Counters, String>,
}

/// How the workers of a point are built.
pub(super) fn worker_config(point: &Point) -> WorkerConfig {
    // Buffers for calls are most of what a worker sets up: only as large as calls there are.
    let message = if is_rpc(point.verb) { point.payload } else { 0 };
    let rpc = payload::rpc_config(message, RpcConfig::default(), payload::DATAGRAM_MOST);
    let datagrams = point.verb == BenchVerb::Send && point.transport == Transport::Ud;
    // Its receives take datagrams of any kind.
    let rpc = RpcConfig {
        max_message: if datagrams { point.payload.max(HEADER_BYTES + 8) } else { rpc.max_message },
        ..rpc
    };
    let window = match point.verb.carrier() {
        // Room for a datagram in answer to every slot.
        Some(Carrier::WriteSend) => SLOTS,
        None if is_rpc(point.verb) || datagrams => 64,
        _ => 1,
    };
    let (sent, pool_bytes_each) = match point.verb.carrier() {
        Some(carrier) => (0, Layout::new(point).pool_bytes(carrier, point.queue_pairs)),
        None if point.verb == BenchVerb::Send => messages::pool_bytes(point),
        None => (0, 0),
    };
    WorkerConfig {
        // A loop that posts past its port has rules of its own.
        port: if point.bare { PortConfig::default() } else { of_port(point) },
        // Who never calls keeps the least room for it: on hundreds of nodes it would be most of the memory.
        rpc: RpcConfig { doorbell_batching: point.doorbell_batch > 1, window, ..rpc },
        qp: queue_pairs(point),
        lanes: point.queue_pairs,
        workers_per_context: if point.shared_context { point.threads } else { 1 },
        // Who asks only itself is left as it is: no node is a server to others then.
        servers: if point.own { 0 } else { point.servers },
        pool_bytes: u64::from(point.coroutines) * group_bytes(point)
            + bare::pool_bytes(point)
            + oracle::fetched_bytes(point)
            + (1 << 16)
            + sent,
        pool_bytes_each,
        // Messages, and WRITEs with an echo, go in both directions, whose completions nobody can tell apart; a CPU's swaps are nobody's; of a
        // transaction there may be two.
        stamps: !point.verb.is_message()
            && !point.echo
            && point.verb != BenchVerb::CpuCas
            && point.verb.oracle().is_none(),
    }
}

fn of_port(point: &Point) -> PortConfig {
    PortConfig {
        doorbell_batching: point.doorbell_batch > 1,
        doorbell_batch_max: point.doorbell_batch,
        signal_period: point.signal_period,
        signal_all: point.signal_period == 1,
    }
}

/// Bytes of the buffer, as large as a pool makes it, that a coroutine has for a group of requests. Calls and messages have buffers
/// of their own, and a CPU's swaps none.
fn group_bytes(point: &Point) -> u64 {
    if point.verb.is_message() || point.verb == BenchVerb::CpuCas {
        return 0;
    }
    if let Some(oracle) = point.verb.oracle() {
        return oracle.client_bytes(point);
    }
    let requests = if point.rung.is_some() { OBJECTS } else { point.outstanding };
    (u64::from(requests) * u64::from(point.payload.next_multiple_of(8))).next_power_of_two().max(64)
}

/// The connections of a point.
fn queue_pairs(point: &Point) -> QpConfig {
    // Datagrams have a queue pair of the RPC endpoint's; a connection to nobody in particular there is not.
    let transport = if point.transport == Transport::Uc { Transport::Uc } else { Transport::Rc };
    let usual = QpConfig { transport, ..WorkerConfig::default().qp };
    // Whatever a bare loop has in flight has its place: no port has others wait. Of a port's queue half is told of at the least.
    let least = if point.bare { bare::depth(point) } else { 2 * point.signal_period };
    let usual = QpConfig { send_depth: usual.send_depth.max(least), ..usual };
    if point.verb == BenchVerb::Send {
        // A stream may be ahead of its receiver for as long as that takes.
        QpConfig { recv_depth: messages::receives(point), rnr_retry: 7, ..usual }
    } else if point.unawaited() {
        // What nobody waits for counts when it is posted: queues must be full before the window opens.
        QpConfig { send_depth: 64.max(least), ..usual }
    } else {
        // A receive for each message that a peer may have under way, should calls take any. Whose thread has lost its CPU posts them late,
        // and is waited for as long as that takes.
        QpConfig { recv_depth: 2 * SLOTS, rnr_retry: 7, ..usual }
    }
}

/// Bytes that a node offers to requests: a word where nobody asks it.
pub(super) fn target_bytes(scope: &Scope, point: &Point, node: NodeId) -> u64 {
    match point.verb.carrier() {
        Some(_) => Layout::new(point).region_bytes(worker_config(point).reach(node, scope.nodes)),
        None if node.0 >= point.asked(scope) && point.verb.oracle().is_some() => oracle::machine_bytes(point),
        // A WRITE with an echo has the other end's in answer.
        None if node.0 >= point.asked(scope) && !point.own && !point.echo => 8,
        None => asked_bytes(point),
    }
}

pub(super) fn is_rpc(verb: BenchVerb) -> bool {
    matches!(verb, BenchVerb::Rpc | BenchVerb::RpcWrite)
}

/// Bytes from one address on a node that is asked to the next.
fn slot_bytes(point: &Point) -> u64 {
    u64::from(point.payload.max(8).next_multiple_of(8))
}

/// Bytes of a node's memory that are asked for, of the card's own or the host's.
pub(super) fn asked_bytes(point: &Point) -> u64 {
    if point.on_card { ON_CARD_BYTES } else { TARGET_BYTES }
}

/// Most different addresses of a point's payload on a node that is asked.
pub fn most_addresses(point: &Point) -> u64 {
    asked_bytes(point) / slot_bytes(point)
}

/// Different addresses on a node that is asked.
fn slots(point: &Point) -> u64 {
    match point.addresses {
        0 => most_addresses(point),
        few => u64::from(few),
    }
}

impl ClosedLoad<'_> {
    /// Coroutines of a worker that ask.
    fn coroutines(&self, site: &Site) -> u32 {
        match self.point.verb.oracle() {
            _ if site.node.0 < self.point.servers => 0,
            Some(oracle) => oracle.coroutines(site.worker, self.point.coroutines),
            None => self.point.coroutines,
        }
    }
}

impl Program for ClosedLoad<'_> {
    type Shared = Common;
    type Local = Local;
    type Output = Output;

    fn setup(&self, shape: Shape, nodes: &[AnyNic]) -> Result<Common, SetupError> {
        let access = Access { on_card: self.point.on_card, ..Access::ALL };
        let target = |node: NodeId| (node, Region::new(target_bytes(self.scope, self.point, node) as usize));
        let targets: Vec<(NodeId, Region)> = nodes.iter().map(|nic| target(nic.node())).collect();
        let register = |(nic, (_, region)): (&AnyNic, &(NodeId, Region))| {
            nic.register(region, access).map(|keys| keys.rkey)
        };
        let rkeys = nodes.iter().zip(&targets).map(register).collect::<Result<_, _>>()?;
        let virtual_time = nodes.first().is_some_and(|nic| nic.caps().virtual_time);
        // Simulated workers share a thread, and a row.
        let rows = if virtual_time { 1 } else { usize::from(shape.nodes) * usize::from(shape.workers) };
        let meter = Arc::new(self.point.meter(self.scope, rows));
        Ok(Common { targets, rkeys, meter, cut_short: AtomicBool::new(false) })
    }

    fn offers(&self, common: &Common, _: usize) -> Vec<Vec<u8>> {
        common.rkeys.iter().map(|rkey| rkey.0.to_le_bytes().to_vec()).collect()
    }

    fn learn(&self, common: &mut Common, offers: &[Vec<u8>]) -> Result<(), SetupError> {
        let key = |(node, offer): (usize, &Vec<u8>)| match <[u8; 4]>::try_from(&offer[..]) {
            Ok(bytes) => Ok(Rkey(u32::from_le_bytes(bytes))),
            Err(_) => {
                Err(SetupError::Invalid(format!("node {node} offered {} B as a key of 4", offer.len())))
            }
        };
        common.rkeys = offers.iter().enumerate().map(key).collect::<Result<_, _>>()?;
        Ok(())
    }

    fn cut_short(&self, common: &Common) {
        common.cut_short.store(true, Ordering::Relaxed);
    }

    fn build<'a>(
        &'a self,
        common: &'a Common,
        site: &Site,
    ) -> Result<(impl CoreLoop + 'a, Local), SetupError> {
        let calls =
            match (self.point.verb.carrier(), common.targets.iter().find(|(node, _)| *node == site.node)) {
                (Some(carrier), Some((_, here))) => {
                    let layout = Layout::new(self.point);
                    let rings = Rings { here, rkeys: &common.rkeys, layout };
                    Some(Calls::new(carrier, &rings, site, self.point.coroutines)?)
                }
                _ => None,
            };
        let messages = match self.point.verb {
            BenchVerb::Send if !self.point.bare => Some(Messages::new(self.point, site)?),
            _ => None,
        };
        let poller = match (&calls, &messages) {
            (Some(calls), _) => LoadPoller::Rings(calls.clone()),
            (None, Some(messages)) => LoadPoller::Messages(messages.clone()),
            (None, None) => {
                let service = Echo { scratch: vec![0x5a; self.point.payload as usize] };
                LoadPoller::Datagrams(RpcPoller::new(site.net.rpc.clone(), service))
            }
        };
        let tally = Rc::new(Tally::default());
        common.meter.ready(site.start);
        let worker = usize::from(site.node.0) * usize::from(site.shape.workers) + usize::from(site.worker);
        let client = |coroutine: u32| {
            let stream =
                (u64::from(site.node.0) << 40) | (u64::from(site.worker) << 20) | u64::from(coroutine);
            let seed = self.seed ^ stream.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            Client {
                load: self,
                common,
                worker,
                net: site.net.clone(),
                node: site.node,
                nodes: site.shape.nodes,
                rng: Xoshiro256PlusPlus::seed_from_u64(seed),
                tally: tally.clone(),
                slots: slots(self.point),
                slot_bytes: slot_bytes(self.point),
                passive: None,
                calls: calls.clone(),
                messages: messages.clone(),
                timestamps: None,
                coroutine,
            }
        };
        let coroutines = self.coroutines(site);
        let oracle = self.point.verb.oracle().filter(|_| coroutines > 0);
        let timestamps = |coroutine: u32| {
            oracle.map(|o| Timestamps::new(o, self.point, common, site, coroutine)).transpose()
        };
        let load = if self.point.bare {
            Load::Bare(Box::new(Bare::new(client(0))?))
        } else {
            let mut core = Core::new(site.net.sched.clone(), poller);
            for coroutine in 0..coroutines {
                let timestamps = timestamps(coroutine)?;
                core.spawn(Client { timestamps, ..client(coroutine) }.run());
            }
            Load::Coroutines(core)
        };
        // Virtual time costs no instructions that would mean anything.
        let counters = if site.net.port.nic().caps().virtual_time {
            Err("the fabric is simulated".to_owned())
        } else {
            Counters::try_open().and_then(|mut c| c.start().map(|()| c))
        };
        Ok((load, Local { tally, counters }))
    }

    fn cancelled(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    fn finish(&self, common: &Common, site: Site, local: Local) -> Output {
        let tally = &local.tally;
        let instructions = local.counters.and_then(|mut c| c.stop()).map(|counts| counts.instructions as f64);
        let requests = if self.point.rung.is_some() { OBJECTS } else { 1 };
        let by_device = tally.stamped.get().and_then(|span| span.rate_per_s());
        let mut traffic = site.net.port.traffic();
        traffic.add(&tally.beside.get());
        let counted = Counted {
            ops: tally.ops.get(),
            device_rate_per_s: by_device.map(|rate| rate / f64::from(requests)),
            ops_total: tally.ops_total.get(),
            latency: tally.latency.take(),
            traffic,
            queue_pairs: site.net.queue_pairs() as u64,
            instructions,
        };
        Output { meter: common.meter.clone(), counted, failure: tally.failure.take() }
    }
}

/// A worker's loop.
enum Load<'a, C> {
    Coroutines(C),
    Bare(Box<Bare<'a>>),
}

impl<C: CoreLoop> CoreLoop for Load<'_, C> {
    fn step(&mut self, budget: usize) -> Step {
        match self {
            Load::Coroutines(core) => core.step(budget),
            Load::Bare(bare) => bare.step(budget),
        }
    }

    #[inline]
    fn steps(&mut self) -> Step {
        match self {
            Load::Coroutines(core) => core.steps(),
            Load::Bare(bare) => bare.steps(),
        }
    }

    #[inline]
    fn look_ahead(&self, look: usize) -> bool {
        match self {
            Load::Coroutines(core) => core.look_ahead(look),
            Load::Bare(bare) => bare.look_ahead(look),
        }
    }
}

/// Answers reads with the payload and takes writes.
struct Echo {
    scratch: Vec<u8>,
}

impl Service for Echo {
    fn handle(&mut self, request: &mut Incoming<'_>, reply: &mut Reply<'_>) {
        if request.handler == READ {
            let len = request.payload.word().unwrap_or(0) as usize;
            reply.bytes(&self.scratch[..len.min(self.scratch.len())]);
        }
    }
}
