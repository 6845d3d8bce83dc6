//! The simulated fabric: deterministic discrete events in integer picoseconds.
//!
//! A [`SimWorld`] holds nodes, their NICs and cores; [`SimWorld::context`] gives each core its device
//! context, and [`SimWorld::run`] drives the cores' [`CoreLoop`]s together with the NICs. A run is a value of
//! its seed: [`SimWorld::fingerprint`] is the same for the same program, profile, options and seed.
//!
//! # What is modelled
//!
//! The model is a queueing network per card. Each server is a counter (`server.rs`), each cost a
//! number of the [`Profile`]. A request takes these steps; those in bold are events, the others are computed in the
//! event before:
//!
//! 1. **the core's turn**: the core posts at its own clock, taking a doorbell register's lock if its device context is
//!    shared (`doorbell.rs`); the doorbell takes one PCIe write.
//! 2. **issue**: WQE fetch (a PCIe read) for chains and for WQEs that are too long to ride with the doorbell;
//!    payload fetch unless inline, and only now is the payload read; READ/ATOMIC depth of the queue pair;
//!    local checks; the card's ceiling of messages, if it has one (`ceiling.rs`); the queue pair's processing unit in the requester role, with whatever state it misses
//!    (`engine.rs`, `cache.rs`); the link out, headers and MTU packets counted.
//! 3. **arrival**, a switch and two cables later: the link in, which is also the queue of the switch's port; the
//!    processing unit in the responder role; remote checks; RECV; PCIe (`pcie.rs`) and, for ATOMICs, the atomic unit
//!    with its lock buckets.
//! 4. **memory**: the bytes are read or written. READs and WRITEs of more than a word may take two steps; an
//!    ATOMIC always reads at one event and writes at another, unless the profile calls its scope global.
//! 5. **response**: data, acknowledgement or refusal back at the requester; a WQE that was dropped meanwhile is fetched
//!    again (`card.rs`); data lands; completions in order.
//!
//! A message of several packets goes from stage to stage packet by packet, so that only the slowest takes its whole time
//! (`costs.rs`, `rest`); a packet goes on once it is there whole.
//!
//! A READ is four NIC events, a WRITE three and one more if signaled, a datagram two, an ATOMIC five, whatever stages a
//! profile uses: those it leaves out cost a comparison. A core sees a completion entry once its clock has reached the
//! entry's time, so that entries need no events of their own.
//!
//! Events allocate nothing. Slabs and queues double when more is in flight at once than ever before, and are never made
//! smaller (`tests/alloc.rs`).
//!
//! Which fact each stage follows is written in its file. Those that decide most:
//!
//! - Both roles share the engine, because a Connect-IB that only answers READs does 94.6 M/s (efficient/fasst,
//!   `dct-bench`) and one that asks as well 50.3 M/s (efficient/rdma_bench, `rc-swarm`).
//! - Misses overlap: Connect-IB loses 13 ns to a READ that misses at both ends, ConnectX-3 600, a DMA read being about
//!   400 on both.
//! - WRITEs hardly notice queue pairs and READs do (ConnectX-6), so a READ's context costs more and may need state of
//!   its own.
//! - ATOMICs on one address cost one DMA read and some on every mlx5 card; on ConnectX-3 each takes the engine's time for as
//!   long as it lasts (`responder_atomic`): as much of all units' work is lost, but at its queue pair's unit, and another unit
//!   goes on meanwhile.
//!
//! `tests/facts` simulates what the shipped profiles were calibrated to and prints published figure and own.
//!
//! # Where it departs
//!
//! - Of messages on a link or on PCIe, those of one packet pass between the packets of longer ones, which go one after the other: packets of
//!   several long messages do not take turns (`server.rs`).
//! - One switch without contention of its own; a port's queue is that of the receiving link. No congestion control.
//! - Acknowledgements that nobody waits for are charged in groups, at once and without an event.
//! - Doorbells and the WQEs that ride with them take time but no bytes of PCIe, and contexts, translations and dropped WQEs
//!   that are fetched again neither bytes nor tags; receive requests are always fetched ahead, and ATOMICs read without a tag.
//! - What a missed context costs is its fetch over the fetches that a card has in flight, of the engine's time and whatever the load: no fetch
//!   waits for another. There are two such numbers, one for READs and ATOMICs and one for WRITEs and SENDs, which stand for what each needs
//!   of the state; that WRITEs hardly notice many queue pairs is put in by the second.
//! - A request to the own node through the card crosses both ends of the link, the cables and the switch like any other.
//! - A machine's cards exclude each other's ATOMICs, as if all ATOMICs on a word went through one card.
//! - A CAS that finds another value writes nothing, unless [`FaultOptions::failed_cas_stores`] says so, but holds its address, and is charged
//!   for PCIe, like one that does: assumed, since no source at hand tells the two apart.
//! - A responder that refuses a request does not leave for the error state itself; it ignores the requester
//!   until [`Nic::reset_qp`](crate::fabric::Nic::reset_qp) there, which stands for reconnecting both ends.
//! - Requests of one queue pair touch memory in order, READs included; InfiniBand lets a WRITE pass an
//!   earlier READ.
//! - Where a core's clock runs ahead of the event it handles, its memory accesses happen at the event. Every
//!   history is so a legal interleaving; only timing blurs, by at most one turn.
//! - Messages through the kernel ([`Interface::Messages`]) are datagrams on such a card; what the kernel does is in
//!   the CPU's numbers, and they are neither lost nor cut.

mod cache;
mod card;
mod ceiling;
mod core;
mod costs;
mod doorbell;
mod engine;
mod fault;
mod message;
mod model;
mod nic;
mod node;
mod payload;
mod pcie;
mod qp;
mod queue;
mod requester;
mod responder;
mod server;
#[cfg(test)]
mod tests;

pub use fault::FaultOptions;
pub use nic::SimNic;

use self::core::Core;
use crate::exec::CoreLoop;
use crate::fabric::{AtomicScope, Caps};
use crate::profile::{Interface, Profile, ProfileError};
use crate::units::Nanos;
use crate::verbs::NodeId;
use card::Card;
use costs::CpuCosts;
use doorbell::Registers;
use fault::Dice;
use message::Slab;
use model::{Model, Next};
use node::Node;
use payload::Arena;
use queue::{EventQueue, Kind, NEVER};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// What a world is built from.
#[derive(Clone, Debug)]
pub struct SimConfig {
    /// NIC and CPU of every node.
    pub profile: Profile,
    /// Machines.
    pub nodes: usize,
    /// Cores per machine.
    pub cores_per_node: usize,
    /// Cores that share a device context and so its doorbell registers. One, as DrTM+H s3.1 advises, unless asked.
    pub cores_per_context: usize,
    /// Seed of every draw and tie-break.
    pub seed: u64,
    /// Faults and hazards.
    pub faults: FaultOptions,
}

impl SimConfig {
    /// A world without faults.
    pub fn new(profile: Profile, nodes: usize, cores_per_node: usize, seed: u64) -> SimConfig {
        SimConfig {
            profile,
            nodes,
            cores_per_node,
            cores_per_context: 1,
            seed,
            faults: FaultOptions::default(),
        }
    }
}

/// Why a world cannot be built.
#[derive(Debug, thiserror::Error)]
pub enum WorldError {
    /// Nodes or cores out of range.
    #[error("{what} must be between 1 and {limit}, got {asked}")]
    Size {
        /// What was out of range.
        what: &'static str,
        /// What was asked for.
        asked: usize,
        /// Most there may be.
        limit: usize,
    },
    /// The profile holds impossible numbers.
    #[error(transparent)]
    Profile(#[from] ProfileError),
    /// The fault options make no sense.
    #[error("fault options: {0}")]
    Faults(String),
}

/// Why a run came back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stopped {
    /// Virtual time reached the given end; the run can be resumed with a later one.
    Time,
    /// Every core has finished or its node is dead.
    Finished,
    /// Nothing is scheduled any more: every core waits for something that will not come.
    Idle,
    /// Whoever runs the world wants no more of it.
    Left,
}

/// Turns of cores between two questions whether to go on: some milliseconds of real time.
const TURNS_ASKED: u32 = 1 << 14;

/// What contexts share.
struct Shared {
    model: RefCell<Model>,
    caps: Caps,
    profile: Profile,
}

/// A simulated cluster. One thread, no clock but its own.
pub struct SimWorld {
    shared: Rc<Shared>,
    cores: Vec<Rc<Core>>,
    cores_per_node: usize,
    started: Cell<bool>,
}

const NODES_MAX: usize = u16::MAX as usize;
const CORES_MAX: usize = 1 << 20;

impl SimWorld {
    /// Builds a world.
    ///
    /// # Errors
    /// When a size is zero or absurd, the profile impossible or the fault options senseless.
    pub fn new(config: &SimConfig) -> Result<SimWorld, WorldError> {
        let SimConfig { profile, nodes, cores_per_node, cores_per_context, seed, faults } = config;
        let (nodes, per_node, seed) = (*nodes, *cores_per_node, *seed);
        if nodes == 0 || nodes > NODES_MAX {
            return Err(WorldError::Size { what: "nodes", asked: nodes, limit: NODES_MAX });
        }
        let limit = CORES_MAX / nodes;
        if per_node == 0 || per_node > limit {
            return Err(WorldError::Size { what: "cores per node", asked: per_node, limit });
        }
        let sharing = *cores_per_context;
        if sharing == 0 || sharing > per_node {
            return Err(WorldError::Size { what: "cores per context", asked: sharing, limit: per_node });
        }
        profile.validate()?;
        if let Some(why) = faults.refuse(nodes) {
            return Err(WorldError::Faults(why));
        }
        let buckets = profile.nic.atomic_buckets.value.min(65_536.0) as usize;
        let mut cores = Vec::with_capacity(nodes * per_node);
        let mut all = Vec::with_capacity(nodes);
        let cards_per_node = profile.nic.cards.value as usize;
        let mut cards = Vec::with_capacity(nodes * cards_per_node);
        let mut contexts = Vec::new();
        let registers =
            || Registers::new(profile.nic.doorbell_private.value, profile.nic.doorbell_shared.value);
        let mut queue = EventQueue::new(seed);
        for node in 0..nodes {
            let factor = faults.factor(node);
            let dead_at = faults.dead_at(node);
            let costs = Rc::new(CpuCosts::new(&profile.cpu, factor));
            all.push(Node::new(buckets, dead_at, costs.receiver));
            cards.extend((0..cards_per_node).map(|_| Card::new(&profile.nic, factor)));
            for core in 0..per_node {
                // The cores of a socket stand side by side and use the socket's card.
                let card = node * cards_per_node + core * cards_per_node / per_node;
                if sharing > 1 && core % sharing == 0 {
                    contexts.push(registers());
                }
                let context = contexts.len().checked_sub(1);
                cores.push(Rc::new(Core::new(node, card, context, costs.clone())));
            }
            queue.push(dead_at, Kind::Death, node as u32);
        }
        let limit = |q: &crate::profile::Quantity| q.value.min(f64::from(u32::MAX)) as u32;
        let nic = &profile.nic;
        let caps = Caps {
            fabric: format!("sim:{}", profile.name),
            one_sided: nic.interface == Interface::Verbs,
            atomic_scope: if nic.interface == Interface::Verbs {
                nic.atomic_scope
            } else {
                AtomicScope::None
            },
            failed_cas_stores: faults.failed_cas_stores && nic.atomic_scope == AtomicScope::Nic,
            max_send_depth: limit(&nic.max_send_depth),
            max_recv_depth: limit(&nic.max_recv_depth),
            max_inline: limit(&nic.max_inline),
            max_rd_atomic: limit(&nic.max_rd_atomic),
            ud_mtu: limit(&nic.ud_mtu),
            card: nic.interface == Interface::Verbs,
            virtual_time: true,
        };
        let model = Model {
            now: 0,
            queue,
            messages: Slab::new(),
            arena: Arena::new(),
            qps: Vec::new(),
            nodes: all,
            cards,
            contexts,
            cores: cores.clone(),
            first_death: faults.dead.iter().map(|d| faults.dead_at(d.0.index())).min().unwrap_or(u64::MAX),
            dice: Dice::new(faults, seed),
            events: 0,
            fingerprint: 0,
            atomic_global: nic.atomic_scope == AtomicScope::Global,
            failed_cas_stores: caps.failed_cas_stores,
            ud_mtu: caps.ud_mtu,
        };
        let shared = Rc::new(Shared { model: RefCell::new(model), caps, profile: profile.clone() });
        Ok(SimWorld { shared, cores, cores_per_node: per_node, started: Cell::new(false) })
    }

    /// The device context of a core. Asking again gives another handle to the same context.
    ///
    /// # Panics
    /// If the world has no such node or core.
    pub fn context(&self, node: NodeId, core: usize) -> SimNic {
        assert!(core < self.cores_per_node, "{node} has {} cores, not {core}", self.cores_per_node);
        let index = node.index() * self.cores_per_node + core;
        assert!(index < self.cores.len(), "the world has no {node}");
        SimNic { shared: self.shared.clone(), core: self.cores[index].clone(), index: index as u32 }
    }

    /// Drives the cores until virtual time reaches `until`, all of them have finished, or nothing is left to
    /// happen. A core that has finished is still woken while others have not: it may serve them. `cores[i]`
    /// is the loop of core `i % cores_per_node` of node `i / cores_per_node`; cores beyond the slice stand
    /// still.
    ///
    /// The first run wakes every core. Later runs go on where the last one stopped; to wake cores whose loops
    /// were given new work from outside, use [`SimWorld::wake_all`].
    pub fn run<C: CoreLoop>(&self, cores: &mut [C], until: Nanos) -> Stopped {
        self.run_while(cores, until, || true)
    }

    /// [`SimWorld::run`], which asks now and then, in real time, whether to `go_on`; what happens meanwhile does not depend on it.
    pub fn run_while<C: CoreLoop>(&self, cores: &mut [C], until: Nanos, go_on: impl Fn() -> bool) -> Stopped {
        if !cores.is_empty() && !self.started.replace(true) {
            self.wake_all();
        }
        self.wake_missed(cores.len());
        let until = until.0.saturating_mul(1000).min(NEVER - 1);
        let mut live = self.live(cores.len());
        let some = !cores.is_empty();
        let mut turns = 0u32;
        let stopped = loop {
            if some && live == 0 {
                break Stopped::Finished;
            }
            turns = turns.wrapping_add(1);
            if turns.is_multiple_of(TURNS_ASKED) && !go_on() {
                break Stopped::Left;
            }
            let Some(index) = self.next_turn(until, cores, &mut live) else {
                break match self.shared.model.borrow().queue.is_empty() {
                    _ if some && live == 0 => Stopped::Finished,
                    true => Stopped::Idle,
                    false => Stopped::Time,
                };
            };
            let core = &self.cores[index as usize];
            let step = cores[index as usize].step(1);
            if step.finished != core.finished.replace(step.finished) {
                live = self.live(cores.len());
            }
            let next = if step.pending { Some(core.local_now()) } else { core.next_entry() };
            if let Some(at) = next {
                self.shared.model.borrow_mut().wake(index, at);
            }
        };
        let reached = if stopped == Stopped::Time { until } else { 0 };
        self.set_now(reached);
        stopped
    }

    /// Handles events up to the next turn of one of `cores`.
    #[inline]
    fn next_turn<C: CoreLoop>(&self, until: u64, cores: &[C], live: &mut usize) -> Option<u32> {
        let mut model = self.shared.model.borrow_mut();
        loop {
            match model.advance(until, cores.len()) {
                Next::Turn(index) => return Some(index),
                Next::Nothing => return None,
                Next::Refilled => {
                    let (mut look, mut more) = (0, true);
                    while more {
                        more = false;
                        for (kind, index) in model.queue.in_hand() {
                            if kind == Kind::Wake
                                && let Some(core) = cores.get(index as usize)
                            {
                                more |= core.look_ahead(look);
                            }
                        }
                        look += 1;
                    }
                }
                Next::Death => {
                    *live = self.live(cores.len());
                    if *live == 0 && !cores.is_empty() {
                        return None;
                    }
                }
            }
        }
    }

    /// Lets virtual time pass up to `until` with all cores standing still.
    pub fn advance(&self, until: Nanos) {
        self.run::<Still>(&mut [], until);
        self.set_now(until.0.saturating_mul(1000).min(NEVER - 1));
    }

    /// Moves time to `to`, if that is later, and all cores with it: what programs do between runs happens
    /// now.
    fn set_now(&self, to: u64) {
        let mut model = self.shared.model.borrow_mut();
        model.now = model.now.max(to);
        for core in &self.cores {
            core.event_at.set(core.event_at.get().max(model.now));
        }
    }

    /// Wakes the cores whose wake-ups came while they stood still.
    fn wake_missed(&self, driven: usize) {
        let mut model = self.shared.model.borrow_mut();
        for (index, core) in self.cores.iter().enumerate().take(driven) {
            if core.missed.replace(false) {
                let now = model.now;
                model.wake(index as u32, now);
            }
        }
    }

    /// Cores among the first `driven` that have work of their own.
    fn live(&self, driven: usize) -> usize {
        self.cores.iter().take(driven).filter(|c| c.is_live()).count()
    }

    /// Wakes every core that is not on a dead node; those that had finished are asked again.
    pub fn wake_all(&self) {
        let mut model = self.shared.model.borrow_mut();
        for (index, core) in self.cores.iter().enumerate() {
            core.finished.set(false);
            let now = model.now;
            model.wake(index as u32, now);
        }
    }

    /// Virtual time: that of the last event, or the end of the last run.
    pub fn now(&self) -> Nanos {
        Nanos(self.shared.model.borrow().now / 1000)
    }

    /// Work charged to all cores so far, looks at empty queues left out.
    pub fn busy(&self) -> Nanos {
        let cores = &self.shared.model.borrow().cores;
        Nanos(cores.iter().fold(0u64, |sum, core| sum.saturating_add(core.busy.get())) / 1000)
    }

    /// Events handled so far.
    pub fn events(&self) -> u64 {
        self.shared.model.borrow().events
    }

    /// A running hash over time, kind, node and queue pair of every event.
    pub fn fingerprint(&self) -> u64 {
        self.shared.model.borrow().fingerprint
    }

    /// Requests the NICs hold: waiting in send queues, in flight, or not yet acknowledged.
    pub fn in_flight(&self) -> usize {
        self.shared.model.borrow().messages.live()
    }

    /// Nodes.
    pub fn nodes(&self) -> usize {
        self.cores.len() / self.cores_per_node
    }

    /// Cores per node.
    pub fn cores_per_node(&self) -> usize {
        self.cores_per_node
    }

    /// The profile the world was built from.
    pub fn profile(&self) -> &Profile {
        &self.shared.profile
    }
}

/// The loop of a core that stands still.
enum Still {}

impl CoreLoop for Still {
    fn step(&mut self, _budget: usize) -> crate::exec::Step {
        match *self {}
    }
}
