//! Coming together: node 0 listens, the others join, and nobody else gets in.

use super::body::{list, told, unlist, untold};
use super::channel::Channel;
use super::config::{ClusterFile, differences};
use super::handshake::{self, Driver, DriverStep, HandshakeError, Member, MemberStep};
use super::keeper::{Keeper, LOOK, Line};
use super::session::{Limits, MeshError, Session, kind};
use crate::secret::Secret;
use crate::verbs::NodeId;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

/// Connections that may be unauthenticated at a time. When there are more, those go first that have not said hello, which takes
/// a stranger less than waiting, and of them the one that waits longest.
const MAX_CALLERS: usize = 64;
/// Connections taken at a time: fewer than may wait, so that each is heard before it has to go.
const TAKEN_AT_A_TIME: usize = MAX_CALLERS / 2;
/// How often a member tries to reach node 0, which may come later.
const TRY_EVERY: Duration = Duration::from_millis(200);
const BREATH: Duration = Duration::from_millis(1);
/// How long members that are sent home may take to go.
const FAREWELL: Duration = Duration::from_secs(1);

/// Which program a node runs: different builds do not mix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// Version and commit, in words.
    pub build: String,
    /// The rendezvous version spoken; anything but [`handshake::VERSION`] is for tests of what happens then.
    pub protocol: u16,
}

impl Program {
    /// A build of this rendezvous version.
    pub fn new(build: impl Into<String>) -> Program {
        Program { build: build.into(), protocol: handshake::VERSION }
    }
}

fn failed(what: &'static str, address: impl std::fmt::Display) -> impl FnOnce(std::io::Error) -> MeshError {
    move |e| MeshError::Rendezvous { what, address: address.to_string(), problem: e.to_string() }
}

/// A connection once it is authenticated: reads and writes return soon.
fn settle(stream: &TcpStream) -> std::io::Result<()> {
    stream.set_nonblocking(false)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(LOOK))?;
    stream.set_write_timeout(Some(LOOK))
}

/// A connection that has not proven anything yet.
struct Caller {
    stream: TcpStream,
    from: SocketAddr,
    driver: Driver,
    bytes: Vec<u8>,
    since: Instant,
    said_hello: bool,
}

impl Caller {
    /// Reads what is there and answers. Who it is, once it is known.
    fn step(&mut self) -> Result<Option<(NodeId, handshake::Keys)>, HandshakeError> {
        let mut chunk = [0; handshake::HEAD_BYTES + handshake::MAX_BODY];
        match self.stream.read(&mut chunk) {
            Ok(0) => return Err(HandshakeError::Refused("it closed the connection".into())),
            Ok(n) => self.bytes.extend_from_slice(&chunk[..n]),
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => return Ok(None),
            Err(e) => return Err(HandshakeError::Refused(e.to_string())),
        }
        while let Some((plain, len)) = handshake::decode(&self.bytes)? {
            self.bytes.drain(..len);
            let (bytes, joined) = match self.driver.receive(&plain)? {
                DriverStep::Send(bytes) => {
                    self.said_hello = true;
                    (bytes, None)
                }
                DriverStep::Joined(node, keys, bytes) => (bytes, Some((node, keys))),
            };
            // A few dozen bytes into an empty socket buffer: whoever does not take them is no member.
            self.stream.write_all(&bytes).map_err(|e| HandshakeError::Refused(e.to_string()))?;
            if joined.is_some() {
                return Ok(joined);
            }
        }
        Ok(None)
    }

    fn refuse(mut self, version: u16, why: &str) {
        let _ = self.stream.write_all(&handshake::refusal(version, why));
    }
}

/// Node 0: takes all other nodes of the cluster in at `listener`. `note` is told whom it turned away.
///
/// # Errors
/// If members are missing after [`Limits::join`], or one of them runs another build or has another cluster file. Those that had
/// joined are told.
pub fn drive(
    listener: &TcpListener,
    cluster: &ClusterFile,
    key: &Secret,
    program: &Program,
    limits: Limits,
    note: &mut dyn FnMut(String),
) -> Result<Session, MeshError> {
    let epoch = Instant::now();
    let address = listener.local_addr().map_or_else(|e| e.to_string(), |a| a.to_string());
    listener.set_nonblocking(true).map_err(failed("cannot listen on", &address))?;
    let agreed = agreed(cluster)?;
    let (callers, lines, turned_away) = (Vec::new(), Vec::new(), Vec::new());
    let mut door = Door { cluster, key, program, limits, agreed, callers, lines, turned_away };
    while door.lines.len() + 1 < usize::from(cluster.count()) {
        if epoch.elapsed() > limits.join {
            let missing = door.missing();
            return Err(door.dismiss(missing));
        }
        if let Err(error) = door.look(listener, note) {
            return Err(door.dismiss(error));
        }
        std::thread::sleep(BREATH);
    }
    let Door { callers, mut lines, .. } = door;
    // Nobody listens from here on: whoever is at the door is told.
    for caller in callers {
        caller.refuse(program.protocol, "all nodes of the cluster have joined already");
    }
    lines.iter_mut().for_each(|line| line.heard = Instant::now());
    let keeper =
        Keeper::start(lines, limits, epoch).map_err(failed("cannot keep connections of", address))?;
    Ok(Session::new(NodeId(0), cluster.count(), key.clone(), limits, keeper))
}

enum Admission {
    TurnedAway(String),
    Unfit(MeshError),
}

/// Node 0 while it waits: who has joined, and who is at the door.
struct Door<'a> {
    cluster: &'a ClusterFile,
    key: &'a Secret,
    program: &'a Program,
    limits: Limits,
    /// What the cluster files of all must say.
    agreed: String,
    callers: Vec<Caller>,
    lines: Vec<Line>,
    turned_away: Vec<String>,
}

impl Door<'_> {
    /// Lets new callers come and hears each that is there once.
    fn look(&mut self, listener: &TcpListener, note: &mut dyn FnMut(String)) -> Result<(), MeshError> {
        for _ in 0..TAKEN_AT_A_TIME {
            let Ok((stream, from)) = listener.accept() else { break };
            if stream.set_nonblocking(true).is_err() {
                continue;
            }
            if self.callers.len() == MAX_CALLERS {
                let silent = self.callers.iter().position(|caller| !caller.said_hello);
                self.callers.remove(silent.unwrap_or(0));
            }
            let driver = Driver::new(self.key.clone(), self.program.protocol);
            let since = Instant::now();
            self.callers.push(Caller { stream, from, driver, bytes: Vec::new(), since, said_hello: false });
        }
        let mut index = 0;
        while index < self.callers.len() {
            let outcome = match self.callers[index].step() {
                Ok(None) if self.callers[index].since.elapsed() <= self.limits.handshake => {
                    index += 1;
                    continue;
                }
                Ok(None) => Err(HandshakeError::Refused("it took too long to prove itself".into())),
                other => other,
            };
            let caller = self.callers.remove(index);
            let from = caller.from;
            let (node, keys) = match outcome {
                Ok(Some(joined)) => joined,
                Ok(None) => continue,
                Err(error) => {
                    self.turn_away(from, &error.to_string(), note);
                    // The peer may still tell its own side's view: the words name both versions or the key.
                    let words = match &error {
                        HandshakeError::WrongKey => handshake::KEYS_DIFFER.into(),
                        other => other.to_string(),
                    };
                    caller.refuse(self.program.protocol, &words);
                    continue;
                }
            };
            match self.admit(caller, node, keys) {
                Ok(line) => self.lines.push(line),
                Err(Admission::TurnedAway(why)) => self.turn_away(from, &why, note),
                Err(Admission::Unfit(error)) => return Err(error),
            }
        }
        Ok(())
    }

    fn turn_away(&mut self, from: SocketAddr, why: &str, note: &mut dyn FnMut(String)) {
        let text = format!("{from}: {why}");
        note(text.clone());
        self.turned_away.push(text);
    }

    /// Who has not come.
    fn missing(&self) -> MeshError {
        let missing = super::config::ids(self.cluster.count()).skip(1);
        let missing = missing.filter(|id| self.lines.iter().all(|line| line.node != *id));
        let named: Vec<String> = missing
            .map(|id| {
                let host = self.cluster.node(id.0).map_or("?", |n| n.address.as_str());
                format!("{id} ({host})")
            })
            .collect();
        let mut text = named.join(", ");
        if let Some(last) = self.turned_away.last() {
            let count = self.turned_away.len();
            text.push_str(&format!("; turned away meanwhile: {count} callers, the last {last}"));
        }
        MeshError::Missing { missing: text, within: self.limits.join }
    }

    /// Sends home who had joined, saying why.
    fn dismiss(self, why: MeshError) -> MeshError {
        let mut lines = self.lines;
        for line in &mut lines {
            let _ = line.channel.send(kind::NEVER_BEGAN, told(NodeId(0), &why.to_string()));
            let _ = line.channel.stream().shutdown(Shutdown::Write);
        }
        // To close while heartbeats lie unread would reset the connection, and what was said might not arrive.
        let deadline = Instant::now() + FAREWELL;
        while !lines.is_empty() && Instant::now() < deadline {
            lines.retain_mut(|line| line.channel.receive().is_ok());
        }
        why
    }

    /// Takes a caller that has proven itself in, if it is a node that is missing and runs what we run.
    fn admit(&self, caller: Caller, node: NodeId, keys: handshake::Keys) -> Result<Line, Admission> {
        let lost = |why: String| Admission::TurnedAway(format!("{node}: {why}"));
        settle(&caller.stream).map_err(|e| lost(e.to_string()))?;
        let mut channel = Channel::new(caller.stream, keys, caller.bytes);
        let tell = |channel: &mut Channel<TcpStream>, kind: u8, why: String| {
            let _ = channel.send(kind, told(NodeId(0), &why));
            why
        };
        let deadline = Instant::now() + self.limits.handshake;
        let hello = loop {
            match channel.receive() {
                Ok(Some(message)) => break message,
                Ok(None) if Instant::now() < deadline => {}
                Ok(None) => return Err(lost("it said nothing after it had joined".into())),
                Err(error) => return Err(lost(error.to_string())),
            }
        };
        let count = self.cluster.count();
        if node == NodeId(0) || node.0 >= count {
            let why = format!("the driver's cluster file has members 1 to {}, not {node}", count - 1);
            return Err(Admission::TurnedAway(tell(&mut channel, kind::GAVE_UP, why)));
        }
        if let Some(line) = self.lines.iter().find(|line| line.node == node) {
            let first = line.channel.stream().peer_addr().map_or_else(|e| e.to_string(), |a| a.to_string());
            let why = format!("{node} has joined already, from {first}: two processes have the same --id");
            return Err(Admission::TurnedAway(tell(&mut channel, kind::GAVE_UP, why)));
        }
        let unfit = |channel: &mut Channel<TcpStream>, what: String| {
            Admission::Unfit(MeshError::Unfit { node, what: tell(channel, kind::UNFIT, what) })
        };
        let said = hello.body.get(4..).filter(|_| hello.kind == kind::PROGRAM);
        let Some([theirs, build]) = said.and_then(|said| <[Vec<u8>; 2]>::try_from(unlist(said, 2)?).ok())
        else {
            return Err(unfit(&mut channel, "its first message is not about its program".into()));
        };
        if build != self.program.build.as_bytes() {
            let (build, mine) = (String::from_utf8_lossy(&build), &self.program.build);
            let why = format!("{node} runs doorbell {build}, node 0 runs {mine}: install one build");
            return Err(unfit(&mut channel, why));
        }
        if theirs != self.agreed.as_bytes() {
            let theirs = String::from_utf8_lossy(&theirs);
            let what = differences((NodeId(0), &self.agreed), (node, &theirs));
            let what = format!("the cluster files of {node} and node 0 differ: {what}");
            return Err(Admission::Unfit(MeshError::Differ { what: tell(&mut channel, kind::DIFFER, what) }));
        }
        channel.send(kind::ACCEPTED, []).map_err(|e| lost(e.to_string()))?;
        Ok(Line::new(node, channel))
    }
}

/// What the cluster files of all nodes must say.
fn agreed(cluster: &ClusterFile) -> Result<String, MeshError> {
    cluster.check().map_err(|e| MeshError::Refused { why: e.to_string() })?;
    Ok(cluster.agreed())
}

/// Any other node: joins node 0 at `address`, which may not be there yet.
///
/// # Errors
/// If node 0 is not there within [`Limits::join`], or hangs up on this node for as long, does not prove itself, or does not take this
/// node.
pub fn join(
    address: SocketAddr,
    cluster: &ClusterFile,
    node: NodeId,
    key: &Secret,
    program: &Program,
    limits: Limits,
) -> Result<Session, MeshError> {
    let epoch = Instant::now();
    let agreed = agreed(cluster)?;
    // What listens there may be silent, or drop what comes: neither takes longer than was said.
    let patience = || limits.handshake.min(limits.join.saturating_sub(epoch.elapsed()).max(TRY_EVERY));
    let (stream, keys, rest) = loop {
        match call(address, key, node, program, patience(), &limits) {
            Ok(joined) => break joined,
            Err(Failure::Final(error)) => return Err(error),
            // Node 0 may come later, and strangers that crowd its door may have pushed this node out before it was heard.
            Err(Failure::Passing(_)) if epoch.elapsed() <= limits.join => std::thread::sleep(TRY_EVERY),
            Err(Failure::Passing(error)) => return Err(error),
        }
    };
    let mut channel = Channel::new(stream, keys, rest);
    let gone = |e: super::channel::ChannelError| MeshError::Lost { node: NodeId(0), why: e.to_string() };
    let about = [agreed.into_bytes(), program.build.as_bytes().to_vec()];
    channel.send(kind::PROGRAM, list(0, &about)).map_err(gone)?;
    // Node 0 takes callers one after the other, each within the limit.
    let deadline = Instant::now() + limits.handshake * 2;
    loop {
        match channel.receive().map_err(gone)? {
            Some(message) if message.kind == kind::ACCEPTED => break,
            Some(message) => {
                let (_, words) = untold(&message.body, NodeId(0));
                return Err(match message.kind {
                    kind::UNFIT => MeshError::Unfit { node, what: words },
                    kind::DIFFER => MeshError::Differ { what: words },
                    _ => MeshError::Refused { why: words },
                });
            }
            None if Instant::now() < deadline => {}
            None => {
                let problem = format!("it has not let this node in for {} s", limits.handshake.as_secs() * 2);
                return Err(failed("no answer from node 0 at", address)(std::io::Error::other(problem)));
            }
        }
    }
    // Until all others have joined, nobody speaks; node 0's keeper starts then.
    let mut line = Line::new(NodeId(0), channel);
    line.heard = Instant::now() + limits.join;
    let io = failed("cannot speak with node 0 at", address);
    let keeper = Keeper::start(vec![line], limits, epoch).map_err(io)?;
    Ok(Session::new(node, cluster.count(), key.clone(), limits, keeper))
}

/// Whether the other side has hung up.
fn hung_up(read: &std::io::Result<usize>) -> bool {
    match read {
        Ok(bytes) => *bytes == 0,
        Err(e) => e.kind() == ErrorKind::ConnectionReset,
    }
}

/// Why a call at node 0 led to nothing.
enum Failure {
    /// Another call may lead to something.
    Passing(MeshError),
    Final(MeshError),
}

/// The member's side of the handshake, on a connection of its own.
fn call(
    address: SocketAddr,
    key: &Secret,
    node: NodeId,
    program: &Program,
    patience: Duration,
    limits: &Limits,
) -> Result<(TcpStream, handshake::Keys, Vec<u8>), Failure> {
    let mut stream = TcpStream::connect_timeout(&address, patience).map_err(|e| {
        let problem = format!("{e}, for {} s", limits.join.as_secs());
        let address = address.to_string();
        Failure::Passing(MeshError::Rendezvous { what: "cannot reach node 0 at", address, problem })
    })?;
    let handshake = |source| MeshError::Handshake { peer: format!("node 0 at {address}"), source };
    let refused = |source: HandshakeError| Failure::Final(handshake(source));
    let io = |e: std::io::Error| Failure::Passing(failed("cannot speak with node 0 at", address)(e));
    settle(&stream).map_err(io)?;
    let (mut member, hello) = Member::start(key.clone(), node, program.protocol);
    stream.write_all(&hello).map_err(io)?;
    let deadline = Instant::now() + patience;
    let mut bytes = Vec::new();
    let mut chunk = [0; handshake::HEAD_BYTES + handshake::MAX_BODY];
    loop {
        while let Some((plain, len)) = handshake::decode(&bytes).map_err(refused)? {
            bytes.drain(..len);
            match member.receive(&plain).map_err(refused)? {
                MemberStep::Send(next) => stream.write_all(&next).map_err(io)?,
                MemberStep::Joined(keys) => return Ok((stream, keys, bytes)),
            }
        }
        match stream.read(&mut chunk) {
            // Whoever hangs up with our words unread resets the connection.
            ended @ (Ok(0) | Err(_)) if hung_up(&ended) => {
                let ended = std::io::Error::other("it closed the connection");
                return Err(Failure::Passing(failed("no answer from node 0 at", address)(ended)));
            }
            Ok(n) => bytes.extend_from_slice(&chunk[..n]),
            Err(e)
                if matches!(
                    e.kind(),
                    ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted
                ) => {}
            Err(e) => return Err(io(e)),
        }
        if Instant::now() > deadline {
            return Err(Failure::Final(MeshError::Silent { address, within: patience }));
        }
    }
}
