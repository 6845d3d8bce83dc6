//! The closed load behind every primitive benchmark.

use super::admit::{LoadError, check};
use super::calls::{CallError, Calls, Carrier, Layout, LoadPoller, Rings, SLOTS};
use super::messages::{self, MessageError, Messages};
use super::sample::{Counted, Sample};
use super::{BenchVerb, OBJECTS, Point, Rung, Scope, payload};
use crate::exec::{Core, CoreLoop, yield_now};
use crate::fabric::{AnyNic, CpuWork, Nic, SetupError, Span};
use crate::measure::{Counters, Histogram, Meter};
use crate::mem::{Access, Buf, Region};
use crate::mesh::{FabricSpec, Program, RunFacts, Shape, Site, Worker, WorkerConfig, launch};
use crate::rpc::{HEADER_BYTES, Incoming, Reply, RpcConfig, RpcError, RpcPoller, Service};
use crate::units::Nanos;
use crate::verbs::port::{Ask, Cas, FetchAdd, PortConfig, Read, VerbError, Write};
use crate::verbs::{NodeId, QpConfig, Remote, Rkey, Transport};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// On real fabrics, one group in this many is timed.
pub const SAMPLE_EVERY: u32 = 8;

/// Memory that each node offers to requests. Small enough to stay in a CPU's cache: what is measured is the
/// primitive, not the memory.
const TARGET_BYTES: u64 = 1 << 20;

/// The same in a card's own memory, of which there is little.
pub const ON_CARD_BYTES: u64 = 64 << 10;

const READ: u8 = 1;
const WRITE: u8 = 2;

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
struct Tally {
    ops: Cell<u64>,
    ops_total: Cell<u64>,
    latency: RefCell<Histogram>,
    /// What the device stamped in the window.
    stamped: Cell<Option<Span>>,
    failure: RefCell<Option<String>>,
}

/// What the workers share.
pub(super) struct Common {
    /// The memory that requests go to, of the nodes in this process.
    targets: Vec<(NodeId, Region)>,
    /// By node: of those in this process at first, then of all.
    rkeys: Vec<Rkey>,
    meter: Arc<Meter>,
    /// A node was lost.
    cut_short: AtomicBool,
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
        port: PortConfig {
            doorbell_batching: point.doorbell_batch > 1,
            doorbell_batch_max: point.doorbell_batch,
            signal_period: point.signal_period,
            signal_all: point.signal_period == 1,
        },
        // Who never calls keeps the least room for it: on hundreds of nodes it would be most of the memory.
        rpc: RpcConfig { doorbell_batching: point.doorbell_batch > 1, window, ..rpc },
        qp: queue_pairs(point),
        lanes: point.queue_pairs,
        workers_per_context: if point.shared_context { point.threads } else { 1 },
        // Who asks only itself is left as it is: no node is a server to others then.
        servers: if point.own { 0 } else { point.servers },
        pool_bytes: u64::from(point.coroutines) * group_bytes(point) + (1 << 16) + sent,
        pool_bytes_each,
        // Messages go in both directions, whose completions nobody can tell apart; a CPU's swaps are nobody's.
        stamps: !point.verb.is_message() && point.verb != BenchVerb::CpuCas,
    }
}

/// Bytes of the buffer, as large as a pool makes it, that a coroutine has for a group of requests. Calls and messages have buffers
/// of their own, and a CPU's swaps none.
fn group_bytes(point: &Point) -> u64 {
    if point.verb.is_message() || point.verb == BenchVerb::CpuCas {
        return 0;
    }
    let requests = if point.rung.is_some() { OBJECTS } else { point.outstanding };
    (u64::from(requests) * u64::from(point.payload.next_multiple_of(8))).next_power_of_two().max(64)
}

/// The connections of a point.
fn queue_pairs(point: &Point) -> QpConfig {
    // Datagrams have a queue pair of the RPC endpoint's; a connection to nobody in particular there is not.
    let transport = if point.transport == Transport::Uc { Transport::Uc } else { Transport::Rc };
    let usual = QpConfig { transport, ..WorkerConfig::default().qp };
    if point.verb == BenchVerb::Send {
        // A stream may be ahead of its receiver for as long as that takes.
        QpConfig { recv_depth: messages::receives(point), rnr_retry: 7, ..usual }
    } else if point.unawaited() {
        // What nobody waits for counts when it is posted: queues must be full before the window opens.
        QpConfig { send_depth: 64, ..usual }
    } else {
        // A receive for each message that a peer may have under way, should calls take any.
        QpConfig { recv_depth: 2 * SLOTS, ..usual }
    }
}

/// Bytes that a node offers to requests: a word where nobody asks it.
pub(super) fn target_bytes(scope: &Scope, point: &Point, node: NodeId) -> u64 {
    match point.verb.carrier() {
        Some(_) => Layout::new(point).region_bytes(worker_config(point).reach(node, scope.nodes)),
        None if node.0 >= point.asked(scope) && !point.own => 8,
        None if point.on_card => ON_CARD_BYTES,
        None => TARGET_BYTES,
    }
}

fn is_rpc(verb: BenchVerb) -> bool {
    matches!(verb, BenchVerb::Rpc | BenchVerb::RpcWrite)
}

/// Bytes from one address on a node that is asked to the next.
fn slot_bytes(point: &Point) -> u64 {
    u64::from(point.payload.max(8).next_multiple_of(8))
}

/// Different addresses on a node that is asked.
fn slots(point: &Point) -> u64 {
    let fit = if point.on_card { ON_CARD_BYTES } else { TARGET_BYTES } / slot_bytes(point);
    match point.addresses {
        0 => fit,
        few => u64::from(few).min(fit),
    }
}

/// Whether coroutines wait for one request at a time, always of the same verb. An ATOMIC among READs would take a buffer of another size.
fn is_alone(point: &Point) -> bool {
    let awaited = match point.verb {
        BenchVerb::Read | BenchVerb::Cas | BenchVerb::FetchAdd => true,
        BenchVerb::Write => !point.passive,
        _ => false,
    };
    awaited && point.outstanding == 1 && point.rung.is_none() && point.atomics_percent == 0
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
            BenchVerb::Send => Some(Messages::new(self.point, site)?),
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
        let mut core = Core::new(site.net.sched.clone(), poller);
        let tally = Rc::new(Tally::default());
        common.meter.ready(site.start);
        let worker = usize::from(site.node.0) * usize::from(site.shape.workers) + usize::from(site.worker);
        let coroutines = if site.node.0 < self.point.servers { 0 } else { self.point.coroutines };
        for coroutine in 0..coroutines {
            let stream =
                (u64::from(site.node.0) << 40) | (u64::from(site.worker) << 20) | u64::from(coroutine);
            let client = Client {
                load: self,
                common,
                worker,
                net: site.net.clone(),
                node: site.node,
                nodes: site.shape.nodes,
                rng: Xoshiro256PlusPlus::seed_from_u64(
                    self.seed ^ stream.wrapping_mul(0x9e37_79b9_7f4a_7c15),
                ),
                tally: tally.clone(),
                slots: slots(self.point),
                slot_bytes: slot_bytes(self.point),
                passive: None,
                calls: calls.clone(),
                messages: messages.clone(),
                coroutine,
            };
            core.spawn(client.run());
        }
        // Virtual time costs no instructions that would mean anything.
        let counters = if site.net.port.nic().caps().virtual_time {
            Err("the fabric is simulated".to_owned())
        } else {
            Counters::try_open().and_then(|mut c| c.start().map(|()| c))
        };
        Ok((core, Local { tally, counters }))
    }

    fn cancelled(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    fn finish(&self, common: &Common, site: Site, local: Local) -> Output {
        let tally = &local.tally;
        let instructions = local.counters.and_then(|mut c| c.stop()).map(|counts| counts.instructions as f64);
        let requests = if self.point.rung.is_some() { OBJECTS } else { 1 };
        let by_device = tally.stamped.get().and_then(|span| span.rate_per_s());
        let counted = Counted {
            ops: tally.ops.get(),
            device_rate_per_s: by_device.map(|rate| rate / f64::from(requests)),
            ops_total: tally.ops_total.get(),
            latency: tally.latency.take(),
            traffic: site.net.port.traffic(),
            queue_pairs: site.net.queue_pairs() as u64,
            instructions,
        };
        Output { meter: common.meter.clone(), counted, failure: tally.failure.take() }
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

/// Which group of a coroutine is the first that is timed, counted from one; every `every`th follows. Coroutines take turns: those that
/// started together and stay in step, as they do where a device works inside of the post, would else count all in the same moment,
/// and a window hold so much more or less.
fn first_timed(coroutine: u32, every: u32) -> u32 {
    every - coroutine % every
}

struct Client<'a> {
    load: &'a ClosedLoad<'a>,
    common: &'a Common,
    worker: usize,
    net: Worker,
    node: NodeId,
    nodes: u16,
    rng: Xoshiro256PlusPlus,
    tally: Rc<Tally>,
    /// Different addresses on a node that is asked, and bytes from one to the next.
    slots: u64,
    slot_bytes: u64,
    /// What unawaited WRITEs carry: one buffer for all, since nobody says when one of them has let go of it.
    passive: Option<Buf>,
    /// What calls through rings go through, or messages, and which of its groups is this coroutine's.
    calls: Option<Rc<Calls>>,
    messages: Option<Rc<Messages>>,
    coroutine: u32,
}

#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error(transparent)]
    Verb(#[from] VerbError),
    #[error(transparent)]
    Rpc(#[from] RpcError),
    #[error(transparent)]
    Rings(#[from] CallError),
    #[error(transparent)]
    Message(#[from] MessageError),
    #[error("a reply of {got} B to a call for {asked}")]
    Reply { got: u32, asked: u32 },
}

impl Client<'_> {
    async fn run(mut self) {
        let point = self.load.point;
        // Each its own part of the coroutine, none within another: resuming goes through all that are around the one that waits.
        let ended = match is_alone(point).then_some(point.verb) {
            None => self.ask_groups().await,
            Some(BenchVerb::Read) => self.ask_alone(Read(point.payload)).await,
            Some(BenchVerb::Write) => self.ask_alone(Write).await,
            Some(BenchVerb::Cas) => self.ask_alone(Cas { expect: 0, swap: 0 }).await,
            Some(_) => self.ask_alone(FetchAdd(1)).await,
        };
        if let Err(failure) = ended {
            self.tally.failure.borrow_mut().get_or_insert(failure.to_string());
        }
    }

    async fn ask_groups(&mut self) -> Result<(), Failure> {
        let every = self.every();
        let (mut groups, mut began) = (first_timed(self.coroutine, every), self.net.port.now());
        loop {
            let mut start = began;
            // One place that waits for a group, since each has its own part of the coroutine.
            for left in (0..groups).rev() {
                if left == 0 && every > 1 {
                    start = self.net.port.now();
                }
                self.group().await?;
            }
            match self.goes_on(groups, start) {
                Some(end) => (groups, began) = (every, end),
                None => return Ok(()),
            }
        }
    }

    /// The same where a group is one request, always of the same verb: it is a verb by itself, in the same buffer each time.
    async fn ask_alone<A: Ask>(&mut self, ask: A) -> Result<(), Failure> {
        let port = self.net.port.clone();
        let point = self.load.point;
        let bytes = if point.verb.fixed_size() { 8 } else { point.payload };
        let buf = port.buf(bytes).map_err(VerbError::from)?;
        let every = self.every();
        let (mut groups, mut start) = (first_timed(self.coroutine, every), port.now());
        loop {
            for left in (0..groups).rev() {
                // Before the look at the clock: the draw is no part of the request.
                let at = self.target();
                if left == 0 && every > 1 {
                    start = port.now();
                }
                port.ask_in(at, ask, &buf).await?;
            }
            match self.goes_on(groups, start) {
                Some(end) => (groups, start) = (every, end),
                None => return Ok(()),
            }
        }
    }

    /// One group in so many is timed.
    fn every(&self) -> u32 {
        if self.net.port.nic().caps().virtual_time { 1 } else { SAMPLE_EVERY }
    }

    /// Counts groups that have ended, the last of which began at `start`. Says when they have, if there are to be more.
    #[inline(never)]
    fn goes_on(&self, groups: u32, start: Nanos) -> Option<Nanos> {
        let end = self.net.port.now();
        let point = self.load.point;
        let meter = &*self.common.meter;
        // Of a round of messages each way is an operation.
        let ways = if point.echo { 2 } else { 1 };
        let per_group = if point.rung.is_some() { 1 } else { ways * u64::from(point.outstanding) };
        let ops = u64::from(groups) * per_group;
        self.tally.ops_total.set(self.tally.ops_total.get() + ops);
        // What ends in the window counts, wherever it began: else long operations would be undercounted.
        meter.count(self.worker, ops as u32, end);
        if meter.holds(end) {
            self.tally.ops.set(self.tally.ops.get() + ops);
            self.tally.latency.borrow_mut().record(Nanos(end.since(start).0 / ways));
            if let Some(stamped) = self.net.port.nic().stamped() {
                let span = self.tally.stamped.get().unwrap_or(Span::from(stamped, end));
                self.tally.stamped.set(Some(span.to(stamped, end)));
            }
        }
        let cut_short = self.common.cut_short.load(Ordering::Relaxed);
        let over = meter.over(end) || cut_short || self.load.stop.load(Ordering::Relaxed);
        (!over).then_some(end)
    }

    /// One group of requests, or one multi-object operation.
    async fn group(&mut self) -> Result<(), Failure> {
        let point = self.load.point;
        let rpc = is_rpc(point.verb);
        match point.rung {
            _ if self.calls.is_some() => self.call_through_rings().await,
            _ if self.messages.is_some() => self.send().await,
            // READs and calls for data must be awaited: this rung adds nothing to them.
            Some(Rung::PassiveAck) if point.verb == BenchVerb::RpcWrite => self.call(OBJECTS, true).await,
            Some(Rung::PassiveAck) if point.verb == BenchVerb::Write => self.post_passively(OBJECTS).await,
            Some(rung) if rung < Rung::Outstanding => {
                for _ in 0..OBJECTS {
                    if rpc { self.call(1, false).await? } else { self.post(1).await? }
                }
                Ok(())
            }
            _ if rpc => self.call(point.outstanding, false).await,
            _ if point.verb == BenchVerb::CpuCas => {
                self.swap_here(point.outstanding).await;
                Ok(())
            }
            None if point.passive && point.verb == BenchVerb::Write => {
                self.post_passively(point.outstanding).await
            }
            _ => self.post(point.outstanding).await,
        }
    }

    /// Some node but this one; one of the servers, where there are; this one, where all ask their own.
    #[inline]
    fn peer(&mut self) -> NodeId {
        if self.load.point.own {
            return self.node;
        }
        let servers = self.load.point.servers;
        if servers > 0 {
            return NodeId(self.rng.random_range(0..servers));
        }
        let other = self.rng.random_range(0..self.nodes - 1);
        NodeId(if other >= self.node.0 { other + 1 } else { other })
    }

    #[inline]
    fn target(&mut self) -> Remote {
        let node = self.peer();
        let offset = self.rng.random_range(0..self.slots) * self.slot_bytes;
        Remote { node, rkey: self.common.rkeys[node.index()], offset }
    }

    async fn post(&mut self, requests: u32) -> Result<(), Failure> {
        let port = self.net.port.clone();
        let (verb, len) = (self.load.point.verb, self.load.point.payload);
        let atomics = self.load.point.atomics_percent;
        let slot = len.next_multiple_of(8);
        let buf = port.buf(slot * requests).map_err(VerbError::from)?;
        let mut batch = port.batch();
        for i in 0..requests {
            let at = self.target();
            let verb =
                if atomics > 0 && self.rng.random_range(0..100) < atomics { BenchVerb::Cas } else { verb };
            match verb {
                BenchVerb::Read => batch.read(at, &buf, i * slot, len),
                BenchVerb::Write => batch.write(at, &buf, i * slot, len),
                BenchVerb::Cas => batch.cas(at, 0, 0, &buf, i),
                BenchVerb::FetchAdd => batch.fetch_add(at, 1, &buf, i),
                _ => unreachable!("neither calls nor what a CPU does are posted as verbs"),
            }
        }
        batch.post().await?;
        Ok(())
    }

    /// Words of this node, swapped by its CPU.
    async fn swap_here(&mut self, words: u32) {
        let own = self.common.targets.iter().find(|(node, _)| *node == self.node);
        for _ in 0..words {
            let offset = self.target().offset;
            self.net.port.nic().charge(CpuWork::Probe);
            if let Some((_, memory)) = own {
                memory.compare_swap(offset, 0, 0);
            }
        }
        yield_now(&self.net.sched).await;
    }

    async fn post_passively(&mut self, requests: u32) -> Result<(), Failure> {
        let port = self.net.port.clone();
        port.room().await;
        let len = self.load.point.payload;
        let slot = len.next_multiple_of(8);
        let buf = match &self.passive {
            Some(buf) => buf.clone(),
            None => self.passive.insert(port.buf(slot * requests).map_err(VerbError::from)?).clone(),
        };
        let mut batch = port.batch();
        for i in 0..requests {
            let at = self.target();
            batch.write(at, &buf, i * slot, len);
        }
        batch.post_passive()?;
        // Nobody waits for the network here, so the core must be given up on purpose.
        yield_now(&self.net.sched).await;
        Ok(())
    }

    async fn call_through_rings(&mut self) -> Result<(), Failure> {
        let Some(calls) = self.calls.clone() else { return Ok(()) };
        let mut peers = [NodeId(0); 16];
        let peers = &mut peers[..self.load.point.outstanding as usize];
        peers.fill_with(|| self.peer());
        calls.call(self.coroutine, peers, || self.rng.random()).await?;
        Ok(())
    }

    async fn send(&mut self) -> Result<(), Failure> {
        let Some(messages) = self.messages.clone() else { return Ok(()) };
        let mut peers = [NodeId(0); 16];
        let peers = &mut peers[..self.load.point.outstanding as usize];
        peers.fill_with(|| self.peer());
        messages.send(self.coroutine, peers).await?;
        Ok(())
    }

    async fn call(&mut self, calls: u32, one_way: bool) -> Result<(), Failure> {
        let rpc = self.net.rpc.clone();
        let mut peers = [(NodeId(0), 1u32); 16];
        for slot in &mut peers[..calls as usize] {
            *slot = (self.peer(), 1);
        }
        let peers = &peers[..calls as usize];
        // The windows must have room for the calls to the same node together.
        let mut needs = [(NodeId(0), 0u32); 16];
        let mut distinct = 0;
        for &(peer, _) in peers {
            match needs[..distinct].iter_mut().find(|(node, _)| *node == peer) {
                Some((_, n)) => *n += 1,
                None => {
                    needs[distinct] = (peer, 1);
                    distinct += 1;
                }
            }
        }
        rpc.room(&needs[..distinct]).await?;
        let payload = self.load.point.payload;
        let writes = self.load.point.verb == BenchVerb::RpcWrite;
        let mut batch = rpc.batch();
        for &(peer, _) in peers {
            let handler = if writes { WRITE } else { READ };
            let fill = |w: &mut crate::rpc::Writer<'_>| {
                if writes {
                    (0..payload.div_ceil(8)).for_each(|_| w.word(0x5a5a));
                } else {
                    w.word(u64::from(payload));
                }
            };
            if one_way {
                batch.one_way(peer, handler, fill)?;
            } else {
                batch.call(peer, handler, fill)?;
            }
        }
        if one_way {
            batch.send_one_way();
            yield_now(&self.net.sched).await;
        } else {
            let replies = batch.send().await?;
            // One of them is enough: all were asked for the same.
            let (got, asked) = (replies.read(0, |reply| reply.remaining()), if writes { 0 } else { payload });
            // Messages are whole words.
            if got != asked.next_multiple_of(8) {
                return Err(Failure::Reply { got, asked });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn coroutines_in_step_are_counted_one_in_each_round() {
        let counted_in = |round: u32| {
            (0..2 * SAMPLE_EVERY)
                .filter(|&c| (round - first_timed(c, SAMPLE_EVERY)).is_multiple_of(SAMPLE_EVERY))
                .count()
        };
        assert!((SAMPLE_EVERY..2 * SAMPLE_EVERY).all(|round| counted_in(round) == 2));
        assert_eq!(first_timed(5, 1), 1, "where all groups are timed, the first is");
    }
}
