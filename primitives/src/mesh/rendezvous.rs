//! Coming together: node 0 listens, the others join, and nobody else gets in.

use super::channel::Channel;
use super::config::ClusterFile;
use super::handshake::{self, Driver, DriverStep, HandshakeError, Member, MemberStep};
use super::keeper::{Keeper, LOOK, Line};
use super::session::{Limits, MeshError, Session, cluster_mark, kind};
use crate::secret::Secret;
use crate::verbs::NodeId;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

/// Connections that may be unauthenticated at a time; the one that waits longest goes first when there are more.
const MAX_CALLERS: usize = 64;
/// How often a member tries to reach node 0, which may come later.
const TRY_EVERY: Duration = Duration::from_millis(200);
const BREATH: Duration = Duration::from_millis(1);

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

/// A connection once it is authenticated: reads return soon, writes give up on a peer that takes nothing.
fn settle(stream: &TcpStream, limits: &Limits) -> std::io::Result<()> {
    stream.set_nonblocking(false)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(LOOK))?;
    stream.set_write_timeout(Some(limits.lost_after))
}

/// A connection that has not proven anything yet.
struct Caller {
    stream: TcpStream,
    from: SocketAddr,
    driver: Driver,
    bytes: Vec<u8>,
    since: Instant,
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
                DriverStep::Send(bytes) => (bytes, None),
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
/// If members are missing after [`Limits::join`], or one of them runs another build or has another cluster file.
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
    let mark = cluster_mark(cluster).map_err(|e| MeshError::Refused { why: e.to_string() })?;
    let (mut callers, mut lines): (Vec<Caller>, Vec<Line>) = (Vec::new(), Vec::new());
    let mut turned_away: Vec<String> = Vec::new();
    while lines.len() + 1 < usize::from(cluster.count()) {
        if epoch.elapsed() > limits.join {
            let missing = super::config::ids(cluster.count()).skip(1);
            let missing = missing.filter(|id| lines.iter().all(|line| line.node != *id));
            let named: Vec<String> = missing
                .map(|id| {
                    let host = cluster.node(id.0).map_or("?", |n| n.address.as_str());
                    format!("{id} ({host})")
                })
                .collect();
            let mut text = named.join(", ");
            if let Some(last) = turned_away.last() {
                text.push_str(&format!(
                    "; turned away meanwhile: {} callers, the last {last}",
                    turned_away.len()
                ));
            }
            return Err(MeshError::Missing { missing: text, within: limits.join });
        }
        while let Ok((stream, from)) = listener.accept() {
            if stream.set_nonblocking(true).is_err() {
                continue;
            }
            if callers.len() == MAX_CALLERS {
                callers.remove(0);
            }
            let driver = Driver::new(key.clone(), program.protocol);
            callers.push(Caller { stream, from, driver, bytes: Vec::new(), since: Instant::now() });
        }
        let mut index = 0;
        while index < callers.len() {
            let outcome = match callers[index].step() {
                Ok(None) if callers[index].since.elapsed() <= limits.handshake => {
                    index += 1;
                    continue;
                }
                Ok(None) => Err(HandshakeError::Refused("it took too long to prove itself".into())),
                other => other,
            };
            let caller = callers.remove(index);
            let from = caller.from;
            let mut turn_away = |why: String| {
                let text = format!("{from}: {why}");
                note(text.clone());
                turned_away.push(text);
            };
            let (node, keys) = match outcome {
                Ok(Some(joined)) => joined,
                Ok(None) => continue,
                Err(error) => {
                    turn_away(error.to_string());
                    // The peer may still tell its own side's view: the words name both versions or the key.
                    let words = match &error {
                        HandshakeError::WrongKey => {
                            "the keys differ: compare the key files of both hosts".into()
                        }
                        other => other.to_string(),
                    };
                    caller.refuse(program.protocol, &words);
                    continue;
                }
            };
            match admit(caller, node, keys, cluster, &lines, &mark, program, &limits) {
                Ok(line) => lines.push(line),
                Err(Admission::TurnedAway(why)) => turn_away(why),
                Err(Admission::Unfit(error)) => return Err(error),
            }
        }
        std::thread::sleep(BREATH);
    }
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

/// Takes a caller that has proven itself in, if it is a node that is missing and runs what we run.
#[allow(clippy::too_many_arguments)]
fn admit(
    caller: Caller,
    node: NodeId,
    keys: handshake::Keys,
    cluster: &ClusterFile,
    lines: &[Line],
    mark: &[u8; 32],
    program: &Program,
    limits: &Limits,
) -> Result<Line, Admission> {
    let lost = |why: String| Admission::TurnedAway(format!("{node}: {why}"));
    settle(&caller.stream, limits).map_err(|e| lost(e.to_string()))?;
    let mut channel = Channel::new(caller.stream, keys, caller.bytes);
    let tell = |channel: &mut Channel<TcpStream>, kind: u8, why: String| {
        let mut body = 0u16.to_le_bytes().to_vec();
        body.extend_from_slice(why.as_bytes());
        let _ = channel.send(kind, &body);
        why
    };
    let deadline = Instant::now() + limits.handshake;
    let hello = loop {
        match channel.receive() {
            Ok(Some(message)) => break message,
            Ok(None) if Instant::now() < deadline => {}
            Ok(None) => return Err(lost("it said nothing after it had joined".into())),
            Err(error) => return Err(lost(error.to_string())),
        }
    };
    if node == NodeId(0) || node.0 >= cluster.count() {
        let why = format!("the driver's cluster file has members 1 to {}, not {node}", cluster.count() - 1);
        return Err(Admission::TurnedAway(tell(&mut channel, kind::GAVE_UP, why)));
    }
    if let Some(line) = lines.iter().find(|line| line.node == node) {
        let first = line.channel.stream().peer_addr().map_or_else(|e| e.to_string(), |a| a.to_string());
        let why = format!("{node} has joined already, from {first}: two processes have the same --id");
        return Err(Admission::TurnedAway(tell(&mut channel, kind::GAVE_UP, why)));
    }
    let unfit = |channel: &mut Channel<TcpStream>, what: String| {
        Admission::Unfit(MeshError::Unfit { node, what: tell(channel, kind::UNFIT, what) })
    };
    let Some((theirs, build)) = hello.body.split_at_checked(32).filter(|_| hello.kind == kind::PROGRAM)
    else {
        return Err(unfit(&mut channel, "its first message is not about its program".into()));
    };
    if build != program.build.as_bytes() {
        let build = String::from_utf8_lossy(build);
        let why = format!("{node} runs doorbell {build}, node 0 runs {}: install one build", program.build);
        return Err(unfit(&mut channel, why));
    }
    if theirs != mark {
        let why = format!("the cluster files of {node} and node 0 differ in nodes, addresses or ports");
        return Err(unfit(&mut channel, why));
    }
    channel.send(kind::ACCEPTED, &[]).map_err(|e| lost(e.to_string()))?;
    Ok(Line::new(node, channel))
}

/// Any other node: joins node 0 at `address`, which may not be there yet.
///
/// # Errors
/// If node 0 is not there within [`Limits::join`], does not prove itself, or does not take this node.
pub fn join(
    address: SocketAddr,
    cluster: &ClusterFile,
    node: NodeId,
    key: &Secret,
    program: &Program,
    limits: Limits,
) -> Result<Session, MeshError> {
    let epoch = Instant::now();
    let mark = cluster_mark(cluster).map_err(|e| MeshError::Refused { why: e.to_string() })?;
    let stream = loop {
        match TcpStream::connect_timeout(&address, limits.handshake) {
            Ok(stream) => break stream,
            Err(e) if epoch.elapsed() > limits.join => {
                let problem = format!(
                    "{e}, for {} s; is `doorbell run --cluster` running there, and does a firewall let its port through?",
                    limits.join.as_secs()
                );
                let address = address.to_string();
                return Err(MeshError::Rendezvous { what: "cannot reach node 0 at", address, problem });
            }
            Err(_) => std::thread::sleep(TRY_EVERY),
        }
    };
    let io = || failed("cannot speak with node 0 at", address);
    settle(&stream, &limits).map_err(io())?;
    let mut stream = stream;
    let (keys, rest) = prove(&mut stream, key, node, program, &limits, address)?;
    let mut channel = Channel::new(stream, keys, rest);
    let gone = |e: super::channel::ChannelError| MeshError::Lost { node: NodeId(0), why: e.to_string() };
    let mut body = mark.to_vec();
    body.extend_from_slice(program.build.as_bytes());
    channel.send(kind::PROGRAM, &body).map_err(gone)?;
    // Node 0 takes callers one after the other, each within the limit.
    let deadline = Instant::now() + limits.handshake * 2;
    loop {
        match channel.receive().map_err(gone)? {
            Some(message) if message.kind == kind::ACCEPTED => break,
            Some(message) => {
                let words = String::from_utf8_lossy(message.body.get(2..).unwrap_or_default()).into_owned();
                return Err(match message.kind {
                    kind::UNFIT => MeshError::Unfit { node, what: words },
                    _ => MeshError::Refused { why: words },
                });
            }
            None if Instant::now() < deadline => {}
            None => {
                let (step, waiting) = ("joining".to_owned(), NodeId(0).to_string());
                return Err(MeshError::Late { step, waiting, within: limits.handshake * 2 });
            }
        }
    }
    // Until all others have joined, nobody speaks; node 0's keeper starts then.
    let mut line = Line::new(NodeId(0), channel);
    line.heard = Instant::now() + limits.join;
    let keeper = Keeper::start(vec![line], limits, epoch).map_err(io())?;
    Ok(Session::new(node, cluster.count(), key.clone(), limits, keeper))
}

/// The member's side of the handshake.
fn prove(
    stream: &mut TcpStream,
    key: &Secret,
    node: NodeId,
    program: &Program,
    limits: &Limits,
    address: SocketAddr,
) -> Result<(handshake::Keys, Vec<u8>), MeshError> {
    let refused =
        |source: HandshakeError| MeshError::Handshake { peer: format!("node 0 at {address}"), source };
    let io = || failed("cannot speak with node 0 at", address);
    let (mut member, hello) = Member::start(key.clone(), node, program.protocol);
    stream.write_all(&hello).map_err(io())?;
    let deadline = Instant::now() + limits.handshake;
    let mut bytes = Vec::new();
    let mut chunk = [0; handshake::HEAD_BYTES + handshake::MAX_BODY];
    loop {
        while let Some((plain, len)) = handshake::decode(&bytes).map_err(refused)? {
            bytes.drain(..len);
            match member.receive(&plain).map_err(refused)? {
                MemberStep::Send(next) => stream.write_all(&next).map_err(io())?,
                MemberStep::Joined(keys) => return Ok((keys, bytes)),
            }
        }
        match stream.read(&mut chunk) {
            Ok(0) => {
                return Err(refused(HandshakeError::Refused(
                    "it closed the connection without a word".into(),
                )));
            }
            Ok(n) => bytes.extend_from_slice(&chunk[..n]),
            Err(e)
                if matches!(
                    e.kind(),
                    ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted
                ) => {}
            Err(e) => return Err(io()(e)),
        }
        if Instant::now() > deadline {
            let (step, waiting) = ("authentication".to_owned(), format!("node 0 at {address}"));
            return Err(MeshError::Late { step, waiting, within: limits.handshake });
        }
    }
}
