//! A cluster of processes: node 0 drives, the others are members. Everything that is not the data path goes through it.
//!
//! The connections form a star around node 0. A thread of its own (`keeper.rs`) keeps them: it sends heartbeats,
//! notices who falls silent, and answers clock readings at once. Another one at node 0 (`porter.rs`) tells nodes that come too late. What the nodes do together is a sequence of steps that
//! all take in the same order: an exchange, which is also a barrier, or a gathering at node 0.
//!
//! A node that dies, falls silent for [`Limits::lost_after`], breaks the protocol or gives up ends the session for
//! everybody, with an error that names it. A step that takes longer than [`Limits::step`] ends it too. A node one of whose
//! workers is stuck for [`Limits::stuck_after`] notices it itself (`watch.rs`) and gives up.
//!
//! A node whose user interrupts a run asks node 0 to stop it, which tells all nodes, itself included. What node 0 says of a
//! run reaches all in one order: so all of them know whether it was stopped or over first, and which node stopped it.

mod gather;
#[cfg(test)]
mod hostile;
pub(super) mod kind;

use super::blame::Blame;
use super::body::{list, told, unlist, untold};
use super::clock::{HostClock, Reading};
use super::keeper::{Command, Event, Keeper};
use super::launch::LaunchError;
use super::porter::Porter;
use crate::secret::Secret;
use crate::units::Nanos;
use crate::verbs::NodeId;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};

pub use super::rendezvous::{Note, Program, drive, drive_unless, join};
pub use gather::Gathered;

/// How often somebody who waits looks whether the wait was cancelled.
const ASK_EVERY: Duration = Duration::from_millis(100);

/// How long things may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// For all members to join node 0, and for node 0 to be there.
    pub join: Duration,
    /// For one connection to authenticate itself.
    pub handshake: Duration,
    /// Silence after which a node counts as lost; heartbeats come ten times as often.
    pub lost_after: Duration,
    /// For one step of set-up, or of bringing results together.
    pub step: Duration,
    /// For a worker's loop to come round while the program runs, and twice that for anything to happen on a worker that waits.
    pub stuck_after: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            join: Duration::from_secs(60),
            handshake: Duration::from_secs(5),
            lost_after: Duration::from_secs(5),
            step: Duration::from_secs(300),
            stuck_after: Duration::from_secs(30),
        }
    }
}

/// Why nodes did not come, or stay, together.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MeshError {
    /// The rendezvous cannot be used.
    #[error("{what} {address}: {problem}")]
    Rendezvous {
        /// What was tried.
        what: &'static str,
        /// Where.
        address: String,
        /// What the system said.
        problem: String,
    },
    /// Members are missing.
    #[error("not joined within {} s: {missing}", within.as_secs())]
    Missing {
        /// Who, and whom we turned away meanwhile.
        missing: String,
        /// The limit.
        within: Duration,
        /// Whose matter it is, as far as that is known of whom we turned away.
        blame: Blame,
    },
    /// A peer that cannot be let in, or does not let us in.
    #[error("cannot join {peer}: {source}")]
    Handshake {
        /// Who.
        peer: String,
        /// Why.
        source: super::handshake::HandshakeError,
    },
    /// Node 0 does not take this member.
    #[error("node 0 does not take this node: {why}")]
    Refused {
        /// Its words.
        why: String,
    },
    /// Something listens where node 0 should, and says nothing.
    #[error("something listens at {address}, where node 0 should, and has said nothing for {:.1} s", within.as_secs_f64())]
    Silent {
        /// The address.
        address: SocketAddr,
        /// The limit.
        within: Duration,
    },
    /// A member has another cluster file.
    #[error("{what}")]
    Differ {
        /// In what.
        what: String,
    },
    /// A member runs another program.
    #[error("{node} does not fit: {what}")]
    Unfit {
        /// The node.
        node: NodeId,
        /// In what.
        what: String,
    },
    /// Node 0 could not bring the nodes together, this one being there.
    #[error("node 0 has begun nothing: {why}")]
    NeverBegan {
        /// Its words.
        why: String,
        /// Whose matter it is.
        blame: Blame,
    },
    /// A node is gone.
    #[error("{node} was lost: {why}")]
    Lost {
        /// The node.
        node: NodeId,
        /// How it was noticed.
        why: String,
    },
    /// A node gave up.
    #[error("{node} gave up: {why}")]
    GaveUp {
        /// The node.
        node: NodeId,
        /// Its words.
        why: String,
        /// Whose matter it is, as that node says.
        blame: Blame,
    },
    /// Somebody at a node asked for the end of the run.
    #[error("{node} was interrupted, which ended the run on all nodes")]
    Interrupted {
        /// The node.
        node: NodeId,
    },
    /// Somebody at this node asked for the end while the cluster was set up.
    #[error("interrupted while the cluster was set up")]
    Cancelled,
    /// A step took too long.
    #[error("{step}: no word from {waiting} within {} s", within.as_secs())]
    Late {
        /// The step.
        step: String,
        /// Who is late.
        waiting: String,
        /// The limit.
        within: Duration,
    },
    /// The driver has ended the session.
    #[error("node 0 has ended the session")]
    Ended,
}

/// How a run of all nodes stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Somebody is still at it.
    Running,
    /// All nodes have said that they are done.
    AllDone,
}

/// One node's part in a cluster of processes.
pub struct Session {
    node: NodeId,
    count: u16,
    key: Secret,
    limits: Limits,
    keeper: Keeper,
    /// Node 0's, until it says farewell: who comes then is one of the next session.
    porter: Option<Porter>,
    /// Steps taken; all nodes count the same.
    step: u32,
    /// What others have given for this step and the next.
    given: BTreeMap<(u32, NodeId), Vec<u8>>,
    done: BTreeSet<NodeId>,
    over: bool,
    /// Who stopped the run.
    stopped: Option<NodeId>,
    runs: u32,
    run_nonce: Vec<u8>,
    clock: HostClock,
    ended: Option<MeshError>,
    /// Ends the process.
    exit: Option<fn(&MeshError)>,
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Session({} of {})", self.node, self.count)
    }
}

impl Session {
    pub(super) fn new(
        node: NodeId,
        count: u16,
        key: Secret,
        limits: Limits,
        keeper: Keeper,
        porter: Option<Porter>,
    ) -> Session {
        Session {
            node,
            count,
            key,
            limits,
            keeper,
            porter,
            step: 0,
            given: BTreeMap::new(),
            done: BTreeSet::new(),
            over: false,
            stopped: None,
            runs: 0,
            run_nonce: Vec::new(),
            clock: HostClock::UNKNOWN,
            ended: None,
            exit: None,
        }
    }

    /// This node.
    pub fn node(&self) -> NodeId {
        self.node
    }

    /// Nodes of the cluster.
    pub fn nodes(&self) -> u16 {
        self.count
    }

    /// Whether this node drives.
    pub fn drives(&self) -> bool {
        self.node == NodeId(0)
    }

    /// A secret of the current run, for what its nodes prove to each other on the data path.
    pub fn run_secret(&self) -> Secret {
        self.key.derive("doorbell mesh run", &[&self.run_nonce])
    }

    /// Driver: begins a run that `spec` describes. Members get it from [`Session::next_run`].
    ///
    /// # Errors
    /// If the session has ended.
    pub fn begin(&mut self, spec: &[u8]) -> Result<(), MeshError> {
        self.check()?;
        self.run_nonce = crate::secret::nonce().to_vec();
        self.fresh_run();
        self.keeper.command(Command::ReadClocks);
        let mut body = self.run_nonce.clone();
        body.extend_from_slice(spec);
        self.keeper.command(Command::Send(None, kind::RUN, body));
        Ok(())
    }

    /// Member: waits for the driver to begin a run; `None` when it has ended the session.
    ///
    /// # Errors
    /// If the driver is lost.
    pub fn next_run(&mut self) -> Result<Option<Vec<u8>>, MeshError> {
        self.next_run_unless(&|| false)
    }

    /// As [`Session::next_run`], given up when `cancelled` says so: it is asked ten times a second.
    ///
    /// # Errors
    /// If the driver is lost, or with [`MeshError::Cancelled`].
    pub fn next_run_unless(&mut self, cancelled: &dyn Fn() -> bool) -> Result<Option<Vec<u8>>, MeshError> {
        self.check()?;
        loop {
            if cancelled() {
                return Err(self.cancel());
            }
            // The driver may take its time between runs; its heartbeats say that it is there.
            match self.keeper.event(ASK_EVERY) {
                Ok(Event::Message(_, message)) if message.kind == kind::RUN => {
                    if message.body.len() < 32 {
                        let what = "a run without its nonce".to_owned();
                        return Err(self.end(MeshError::Unfit { node: NodeId(0), what }));
                    }
                    let spec = message.body[32..].to_vec();
                    self.run_nonce = message.body[..32].to_vec();
                    self.fresh_run();
                    return Ok(Some(spec));
                }
                Ok(event) => match self.take(event) {
                    Err(MeshError::Ended) => return Ok(None),
                    other => other?,
                },
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Err(self.end(MeshError::Ended)),
            }
        }
    }

    fn fresh_run(&mut self) {
        self.runs += 1;
        self.step = 0;
        self.given.clear();
        self.done.clear();
        (self.over, self.stopped) = (false, None);
    }

    /// All nodes give something, and all get everything, in node order. Nobody returns before all have come.
    ///
    /// # Errors
    /// If a node is lost, gives up or is late; then the session has ended.
    pub fn exchange(&mut self, step: &str, mine: Vec<u8>) -> Result<Vec<Vec<u8>>, MeshError> {
        self.exchange_unless(step, mine, &|| false)
    }

    /// As [`Session::exchange`], given up when `cancelled` says so: it is asked ten times a second.
    ///
    /// # Errors
    /// As [`Session::exchange`], or with [`MeshError::Cancelled`]; the other nodes are told.
    pub fn exchange_unless(
        &mut self,
        step: &str,
        mine: Vec<u8>,
        cancelled: &dyn Fn() -> bool,
    ) -> Result<Vec<Vec<u8>>, MeshError> {
        self.check()?;
        // Before anything is given: what others have got they go on with.
        if cancelled() {
            return Err(self.cancel());
        }
        if self.drives() {
            let all = self.collect(step, mine, cancelled)?;
            self.keeper.command(Command::Send(None, kind::ALL, list(self.step, &all)));
            return Ok(all);
        }
        self.give(kind::GIVE, mine)?;
        let all = self.await_from(step, NodeId(0), cancelled)?;
        match unlist(&all, usize::from(self.count)) {
            Some(all) => Ok(all),
            None => {
                let what = format!("a list for `{step}` that does not have {} entries", self.count);
                Err(self.end(MeshError::Unfit { node: NodeId(0), what }))
            }
        }
    }

    fn give(&mut self, kind: u8, mine: Vec<u8>) -> Result<(), MeshError> {
        self.check()?;
        self.step += 1;
        let mut body = self.step.to_le_bytes().to_vec();
        body.extend_from_slice(&mine);
        self.keeper.command(Command::Send(None, kind, body));
        Ok(())
    }

    fn collect(
        &mut self,
        step: &str,
        mine: Vec<u8>,
        cancelled: &dyn Fn() -> bool,
    ) -> Result<Vec<Vec<u8>>, MeshError> {
        self.check()?;
        self.step += 1;
        let mut all = vec![mine];
        for node in super::config::ids(self.count).skip(1) {
            all.push(self.await_from(step, node, cancelled)?);
        }
        Ok(all)
    }

    fn await_from(
        &mut self,
        step: &str,
        node: NodeId,
        cancelled: &dyn Fn() -> bool,
    ) -> Result<Vec<u8>, MeshError> {
        let deadline = Instant::now() + self.limits.step;
        loop {
            if let Some(given) = self.given.remove(&(self.step, node)) {
                return Ok(given);
            }
            if cancelled() {
                return Err(self.cancel());
            }
            // Whatever comes meanwhile: others may talk without end.
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                let (step, within) = (step.to_owned(), self.limits.step);
                return Err(self.end(MeshError::Late { step, waiting: node.to_string(), within }));
            }
            match self.keeper.event(left.min(ASK_EVERY)) {
                Ok(event) => self.take(event)?,
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Err(self.end(MeshError::Ended)),
            }
        }
    }

    /// Says that this node's cores are done.
    pub fn done(&mut self) {
        self.done.insert(self.node);
        if !self.drives() {
            self.keeper.command(Command::Send(None, kind::DONE, self.runs.to_le_bytes().to_vec()));
        }
    }

    /// How the run stands. Never waits.
    ///
    /// # Errors
    /// If a node is lost or has given up.
    pub fn look(&mut self) -> Result<Standing, MeshError> {
        self.check()?;
        while let Ok(event) = self.keeper.event(Duration::ZERO) {
            self.take(event)?;
        }
        if self.drives() && !self.over && self.done.len() == usize::from(self.count) {
            self.over = true;
            // Before they hear that it is over: then every node reads its cores' clocks once more.
            self.keeper.command(Command::ReadClocks);
            self.keeper.command(Command::Send(None, kind::OVER, self.runs.to_le_bytes().to_vec()));
        }
        Ok(if self.over { Standing::AllDone } else { Standing::Running })
    }

    /// Asks for the end of the run at all nodes. It has come to that when [`Session::stopped`] says so.
    pub(super) fn interrupt(&mut self) {
        if self.drives() {
            return self.stop(self.node);
        }
        self.keeper.command(Command::Send(None, kind::STOP, self.runs.to_le_bytes().to_vec()));
    }

    /// Driver: ends the run at all nodes, unless it is over.
    fn stop(&mut self, asked_by: NodeId) {
        if self.stopped.is_none() && !self.over {
            self.stopped = Some(asked_by);
            let body = [&self.runs.to_le_bytes()[..], &asked_by.0.to_le_bytes()].concat();
            self.keeper.command(Command::Send(None, kind::STOP, body));
        }
    }

    /// Why the run is to end before its time, if a node was interrupted.
    pub(super) fn stopped(&self) -> Option<MeshError> {
        self.stopped.map(|node| MeshError::Interrupted { node })
    }

    /// Nothing comes after this run, which ended early at all nodes: nobody is told.
    pub(super) fn end_with(&mut self, why: MeshError) {
        self.ended.get_or_insert(why);
    }

    /// Tells everybody that this node cannot go on, and returns why; unless the session itself is the reason.
    pub(super) fn give_up(&mut self, error: LaunchError) -> LaunchError {
        if let LaunchError::Mesh(_) = &error {
            return error;
        }
        self.fail(&error.to_string(), error.blame());
        error
    }

    /// What ends this process if a worker's thread stands still, when the others have been told: a thread cannot be ended by another.
    /// Without it, or if it returns, the launch waits for the thread.
    pub fn exit_by(&mut self, exit: fn(&MeshError)) {
        self.exit = Some(exit);
    }

    /// Ends the session, and the process if there is a way.
    pub(super) fn leave(&mut self) {
        self.keeper.close();
        if let (Some(exit), Some(why)) = (self.exit, &self.ended) {
            exit(why);
        }
    }

    /// How long things may take.
    pub(super) fn limits(&self) -> Limits {
        self.limits
    }

    /// Ends the session because somebody here asked for it.
    fn cancel(&mut self) -> MeshError {
        self.fail("interrupted", Blame::Run);
        MeshError::Cancelled
    }

    /// Tells everybody that this node cannot go on, and whose matter it is: all that are told end alike.
    pub fn fail(&mut self, why: &str, blame: Blame) {
        if self.ended.is_some() {
            return;
        }
        self.keeper.command(Command::Send(None, kind::GAVE_UP, told(self.node, blame, why)));
        self.ended = Some(MeshError::GaveUp { node: self.node, why: why.to_owned(), blame });
    }

    /// Reads the clock that a core goes by, beside node 0's.
    pub fn read_beside(&self, core: impl Fn() -> Nanos) -> Reading {
        self.clock.read(self.drives(), || self.keeper.now(), core)
    }

    fn check(&self) -> Result<(), MeshError> {
        self.ended.clone().map_or(Ok(()), Err)
    }

    fn end(&mut self, error: MeshError) -> MeshError {
        if self.ended.is_none() && self.drives() {
            // The others learn it from us.
            let (kind, body) = match &error {
                MeshError::Lost { node, why } => (kind::LOST, told(*node, error.blame(), why)),
                MeshError::GaveUp { node, why, blame } => (kind::GAVE_UP, told(*node, *blame, why)),
                other => (kind::GAVE_UP, told(self.node, other.blame(), &other.to_string())),
            };
            self.keeper.command(Command::Send(None, kind, body));
        }
        self.ended.get_or_insert(error).clone()
    }

    /// Keeps what a node gave for this step or, since others may be ahead by one, the next: more would fill this node's memory.
    fn keep(&mut self, step: u32, from: NodeId, given: &[u8]) -> Result<(), MeshError> {
        if !(self.step..=self.step + 1).contains(&step) {
            let what = format!("something given for step {step} while this node is at step {}", self.step);
            return Err(self.end(MeshError::Unfit { node: from, what }));
        }
        self.given.insert((step, from), given.to_vec());
        Ok(())
    }

    /// What an event means, wherever it comes.
    fn take(&mut self, event: Event) -> Result<(), MeshError> {
        let (from, message) = match event {
            Event::Lost(node, why) => return Err(self.end(MeshError::Lost { node, why })),
            Event::Clock(clock) => {
                self.clock.renew(clock);
                return Ok(());
            }
            Event::Message(from, message) => (from, message),
        };
        let body = message.body;
        let number = body.first_chunk::<4>().map(|bytes| u32::from_le_bytes(*bytes));
        match (message.kind, number) {
            (kind::GIVE | kind::SHARE, Some(step)) if self.drives() => self.keep(step, from, &body[4..])?,
            (kind::ALL, Some(step)) if !self.drives() => self.keep(step, from, &body[4..])?,
            (kind::DONE, Some(run)) if self.drives() => {
                if run == self.runs {
                    self.done.insert(from);
                }
            }
            (kind::OVER, Some(run)) if !self.drives() => self.over |= run == self.runs,
            // Members speak for themselves alone.
            (kind::STOP, Some(run)) if self.drives() => {
                if run == self.runs {
                    self.stop(from);
                }
            }
            (kind::STOP, Some(run)) if body.len() == 6 => {
                if run == self.runs {
                    self.stopped = Some(NodeId(u16::from_le_bytes([body[4], body[5]])));
                }
            }
            (kind::GAVE_UP | kind::LOST, _) => {
                let (mut node, blame, why) = untold(&body, from);
                // Members speak for themselves alone.
                if self.drives() {
                    node = from;
                }
                let lost = message.kind == kind::LOST && !self.drives();
                let error =
                    if lost { MeshError::Lost { node, why } } else { MeshError::GaveUp { node, why, blame } };
                return Err(self.end(error));
            }
            (kind::NEVER_BEGAN, _) if !self.drives() => {
                let (_, blame, why) = untold(&body, from);
                return Err(self.end(MeshError::NeverBegan { why, blame }));
            }
            (kind::BYE, _) if !self.drives() => return Err(self.end(MeshError::Ended)),
            (other, _) => {
                let what = format!("a message of kind {other} and {} B that has no place here", body.len());
                return Err(self.end(MeshError::Unfit { node: from, what }));
            }
        }
        Ok(())
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // A member would take a farewell for the end of a run that went well.
            self.fail("it panicked", Blame::Run);
        }
        self.porter = None;
        self.keeper.command(Command::Send(None, kind::BYE, Vec::new()));
        self.keeper.close();
    }
}
