//! Coming together: node 0 takes the others in at its door (`door.rs`), and nobody else. Until all are there it listens to those who
//! have joined, too: one that leaves, dies or falls silent meanwhile is waited for again, and may be started again.

use super::blame::Blame;
use super::body::{list, told, unlist, untold};
use super::channel::Channel;
use super::config::{ClusterFile, differences};
use super::door::{Door, Proven, Refused, settle};
use super::handshake::{self, HandshakeError, Member, MemberStep};
use super::keeper::{Keeper, Line};
use super::porter::{self, FAREWELL, Joined, Porter, first_words};
use super::session::{Limits, MeshError, Session, kind};
use super::wait::{BREATH, For, is_ready, until, wait};
use crate::secret::Secret;
use crate::verbs::NodeId;
use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

/// How often a member tries to reach node 0, which may come later.
const TRY_EVERY: Duration = Duration::from_millis(200);

/// Nodes that are missing and are named where one has joined.
const NAMED: usize = 8;

/// Messages of a node that waits that are read at a time.
const BEATS_AT_A_TIME: usize = 64;

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

/// Node 0: takes all other nodes of the cluster in at `listener`. `note` is told who has joined, whom it turned away, and who has left
/// again.
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
    note: &mut dyn FnMut(Note),
) -> Result<Session, MeshError> {
    drive_unless(listener, cluster, key, program, limits, note, &|| false)
}

/// As [`drive`], given up when `cancelled` says so: it is asked between two looks.
///
/// # Errors
/// As [`drive`], or with [`MeshError::Cancelled`]; those that had joined are told.
pub fn drive_unless(
    listener: &TcpListener,
    cluster: &ClusterFile,
    key: &Secret,
    program: &Program,
    limits: Limits,
    note: &mut dyn FnMut(Note),
    cancelled: &dyn Fn() -> bool,
) -> Result<Session, MeshError> {
    let epoch = Instant::now();
    let address = listener.local_addr().map_or_else(|e| e.to_string(), |a| a.to_string());
    let agreed = agreed(cluster)?;
    let door = Door::new(listener, key, program.protocol, limits.handshake)
        .map_err(failed("cannot listen on", &address))?;
    let mut hall = Hall::new(cluster, program, limits, agreed, door);
    loop {
        if let Err(error) = hall.look(note) {
            return Err(hall.dismiss(error));
        }
        // Those who came first may have left while the last one was let in.
        hall.hear(note);
        if hall.lines.len() + 1 == usize::from(cluster.count()) {
            break;
        }
        if cancelled() {
            return Err(hall.dismiss(MeshError::Cancelled));
        }
        if epoch.elapsed() > limits.join {
            let missing = hall.missing();
            return Err(hall.dismiss(missing));
        }
        std::thread::sleep(BREATH);
    }
    let (joined, Hall { lines, door, .. }) = (hall.joined(), hall);
    let porter = Porter::start(door, cluster.count(), joined);
    let porter = porter.map_err(failed("cannot go on listening on", &address))?;
    let keeper =
        Keeper::start(lines, limits, epoch).map_err(failed("cannot keep connections of", address))?;
    Ok(Session::new(NodeId(0), cluster.count(), key.clone(), limits, keeper, Some(porter)))
}

/// What node 0 has to say while it waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Note {
    /// A node was taken in.
    Joined {
        /// The node.
        node: NodeId,
        /// Where it called from.
        from: SocketAddr,
        /// Who is still waited for.
        missing: Vec<NodeId>,
    },
    /// Somebody was turned away: from where, and why.
    TurnedAway(String),
    /// A node that had joined is not there any more, and is waited for again.
    Left {
        /// The node.
        node: NodeId,
        /// How it was noticed.
        why: String,
    },
}

impl std::fmt::Display for Note {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Note::Joined { node, from, missing } => {
                write!(f, "{node} has joined from {from}")?;
                let named: Vec<String> = missing.iter().take(NAMED).map(|node| node.0.to_string()).collect();
                match (missing.len(), named.join(", ")) {
                    (0, _) => write!(f, ": all are here"),
                    (1, id) => write!(f, "; node {id} is missing"),
                    (count, ids) if count > NAMED => write!(f, "; {count} are missing: nodes {ids}, …"),
                    (_, ids) => write!(f, "; nodes {ids} are missing"),
                }
            }
            Note::TurnedAway(whom) => write!(f, "turned away {whom}"),
            Note::Left { node, why } => write!(f, "{node} has left ({why}) and is waited for again"),
        }
    }
}

/// Whom node 0 sent away while it waited.
#[derive(Default)]
struct TurnedAway {
    count: u32,
    /// The last of them and, before all others, of those that a flag or file of theirs kept out.
    last: Option<(String, Blame)>,
}

impl TurnedAway {
    fn add(&mut self, text: String, blame: Blame) {
        self.count += 1;
        if blame == Blame::Input || self.last.as_ref().is_none_or(|(_, last)| *last != Blame::Input) {
            self.last = Some((text, blame));
        }
    }
}

enum Admission {
    TurnedAway(String, Blame),
    Unfit(MeshError),
}

/// Node 0 while it waits: who has joined, and who is at the door.
struct Hall<'a> {
    cluster: &'a ClusterFile,
    program: &'a Program,
    limits: Limits,
    /// What the cluster files of all must say.
    agreed: String,
    door: Door,
    lines: Vec<Line>,
    /// Why those who had joined left, and have not come again.
    left: BTreeMap<NodeId, String>,
    turned_away: TurnedAway,
}

impl<'a> Hall<'a> {
    fn new(
        cluster: &'a ClusterFile,
        program: &'a Program,
        limits: Limits,
        agreed: String,
        door: Door,
    ) -> Hall<'a> {
        let (lines, left, turned_away) = Default::default();
        Hall { cluster, program, limits, agreed, door, lines, left, turned_away }
    }

    /// Looks once who is at the door, and takes in who belongs here.
    fn look(&mut self, note: &mut dyn FnMut(Note)) -> Result<(), MeshError> {
        for ended in self.door.look() {
            let (from, why, blame) = match ended {
                Ok(proven) => {
                    let from = proven.from;
                    // It may take the place of a process that has ended.
                    self.hear(note);
                    match self.admit(proven) {
                        Ok(line) => {
                            let node = line.node;
                            self.left.remove(&node);
                            self.lines.push(line);
                            note(Note::Joined { node, from, missing: self.absent().collect() });
                            continue;
                        }
                        Err(Admission::TurnedAway(why, blame)) => (from, why, blame),
                        Err(Admission::Unfit(error)) => return Err(error),
                    }
                }
                Err(Refused { from, why }) => (from, why.to_string(), why.blame()),
            };
            let text = format!("{from}: {why}");
            note(Note::TurnedAway(text.clone()));
            self.turned_away.add(text, blame);
        }
        Ok(())
    }

    /// Listens to those who have joined, and takes leave of who is gone.
    fn hear(&mut self, note: &mut dyn FnMut(Note)) {
        let mut sockets: Vec<_> =
            self.lines.iter().map(|line| until(line.channel.stream(), For::Reading)).collect();
        wait(&mut sockets, Some(Duration::ZERO));
        let ready: Vec<bool> = sockets.iter().map(is_ready).collect();
        // From the last one, since one that is gone makes room for that.
        for (index, ready) in ready.into_iter().enumerate().rev() {
            let line = &mut self.lines[index];
            let heard = if ready { beats(line) } else { Ok(()) };
            let (silent, limit) = (line.heard.elapsed(), self.limits.lost_after);
            let silence = (silent > limit).then(|| format!("silent for {} s", limit.as_secs_f64()));
            if let Some(why) = heard.err().or(silence) {
                let node = self.lines.swap_remove(index).node;
                note(Note::Left { node, why: why.clone() });
                self.left.insert(node, why);
            }
        }
    }

    /// Who has joined, and from where.
    fn joined(&self) -> Joined {
        let from = |line: &Line| match line.channel.stream().peer_addr() {
            Ok(address) => (line.node, address.to_string()),
            // Its connection is over, and what counts is that it was taken in.
            Err(error) => (line.node, format!("a process that is gone ({error})")),
        };
        self.lines.iter().map(from).collect()
    }

    /// Who has not come, or has left again.
    fn absent(&self) -> impl Iterator<Item = NodeId> {
        let all = super::config::ids(self.cluster.count()).skip(1);
        all.filter(|id| self.lines.iter().all(|line| line.node != *id))
    }

    /// That they have not come.
    fn missing(&self) -> MeshError {
        let named: Vec<String> = self
            .absent()
            .map(|id| {
                let host = self.cluster.node(id.0).map_or("?", |n| n.address.as_str());
                match self.left.get(&id) {
                    Some(why) => format!("{id} ({host}, had joined and left: {why})"),
                    None => format!("{id} ({host})"),
                }
            })
            .collect();
        let mut text = named.join(", ");
        let mut blame = Blame::Machine;
        if let Some((last, of)) = &self.turned_away.last {
            let callers = match self.turned_away.count {
                1 => "a caller".to_owned(),
                count => format!("{count} callers, one of them"),
            };
            text.push_str(&format!("; turned away meanwhile: {callers} {last}"));
            blame = *of;
        }
        if let Some(why) = self.door.shut() {
            text.push_str(&format!("; node 0 can take no connections: {why}"));
        }
        MeshError::Missing { missing: text, within: self.limits.join, blame }
    }

    /// Sends home who had joined, saying why.
    fn dismiss(self, why: MeshError) -> MeshError {
        let mut lines = self.lines;
        for line in &mut lines {
            let _ = line.channel.send(kind::NEVER_BEGAN, told(NodeId(0), why.blame(), &why.to_string()));
            let _ = line.channel.stream().shutdown(Shutdown::Write);
        }
        // To close while heartbeats lie unread would reset the connection, and what was said might not arrive.
        let deadline = Instant::now() + FAREWELL;
        while !lines.is_empty() && Instant::now() < deadline {
            lines.retain_mut(|line| line.channel.receive().is_ok());
            std::thread::sleep(BREATH);
        }
        why
    }

    /// Takes somebody who has proven the key in, if it is a node that is missing and runs what we run.
    fn admit(&self, Proven { node, mut channel, .. }: Proven) -> Result<Line, Admission> {
        let lost = |why: String| Admission::TurnedAway(format!("{node}: {why}"), Blame::Machine);
        let tell = |channel: &mut Channel<TcpStream>, kind: u8, why: String| {
            let _ = channel.send(kind, told(NodeId(0), Blame::Input, &why));
            why
        };
        let hello = first_words(&mut channel, self.limits.handshake).map_err(lost)?;
        let twice = "two processes have the same --id";
        if let Some(why) = porter::refused(node, self.cluster.count(), &self.joined(), twice) {
            let why = tell(&mut channel, kind::GAVE_UP, why);
            return Err(Admission::TurnedAway(why, Blame::Input));
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
        Line::new(node, channel).map_err(|e| lost(e.to_string()))
    }
}

/// Reads what somebody who waits has sent: signs of life, and at most a farewell.
///
/// # Errors
/// In words, if it has left, or is not to be kept.
fn beats(line: &mut Line) -> Result<(), String> {
    // Whoever sends without end does not keep node 0 from the others.
    for _ in 0..BEATS_AT_A_TIME {
        let Some(message) = line.channel.receive().map_err(|e| e.to_string())? else { break };
        line.heard = Instant::now();
        match message.kind {
            kind::BEAT => {}
            kind::BYE => return Err("it said farewell".into()),
            kind::GAVE_UP => return Err(format!("it gave up: {}", untold(&message.body, line.node).2)),
            other => return Err(format!("a message of kind {other}, which has no place before a run")),
        }
    }
    Ok(())
}

/// What the cluster files of all nodes must say.
fn agreed(cluster: &ClusterFile) -> Result<String, MeshError> {
    cluster.check().map_err(|e| MeshError::Refused { why: e.to_string() })?;
    Ok(cluster.agreed())
}

/// Any other node: joins node 0 at `address`, which may not be there yet.
///
/// # Errors
/// If node 0 is not there within [`Limits::join`], hangs up on this node or says nothing for as long, does not prove itself, or does not
/// take this node.
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
    let left = || limits.join.saturating_sub(epoch.elapsed()).max(TRY_EVERY);
    // What listens there may be another program, or node 0 on a host that has died: then another call may lead farther. Or node 0 is
    // slow: then each call is given twice the time of the one before.
    let (mut patience, mut silent) = (limits.handshake, None);
    let (stream, keys, rest) = loop {
        let began = Instant::now();
        let error = match call(address, key, node, program, patience.min(left()), &limits) {
            Ok(joined) => break joined,
            Err(Failure::Final(error)) => return Err(error),
            Err(Failure::Passing(MeshError::Silent { .. })) => {
                patience *= 2;
                MeshError::Silent { address, within: silent.get_or_insert(began).elapsed() }
            }
            // Node 0 may come later, and strangers that crowd its door may have pushed this node out before it was heard.
            Err(Failure::Passing(error)) => {
                silent = None;
                error
            }
        };
        if epoch.elapsed() > limits.join {
            return Err(error);
        }
        std::thread::sleep(TRY_EVERY);
    };
    let mut channel = Channel::new(stream, keys, rest);
    let gone = |e: super::channel::ChannelError| MeshError::Lost { node: NodeId(0), why: e.to_string() };
    let about = [agreed.into_bytes(), program.build.as_bytes().to_vec()];
    channel.send(kind::PROGRAM, list(0, &about)).map_err(gone)?;
    // Node 0 takes callers one after the other, each within the limit, and may be slow.
    let within = left().max(limits.handshake * 2);
    let deadline = Instant::now() + within;
    loop {
        match channel.receive().map_err(gone)? {
            Some(message) if message.kind == kind::ACCEPTED => break,
            Some(message) => {
                let (_, _, words) = untold(&message.body, NodeId(0));
                return Err(match message.kind {
                    kind::UNFIT => MeshError::Unfit { node, what: words },
                    kind::DIFFER => MeshError::Differ { what: words },
                    _ => MeshError::Refused { why: words },
                });
            }
            None if Instant::now() < deadline => {}
            None => {
                let problem = format!("it has not let this node in for {} s", within.as_secs());
                return Err(failed("no answer from node 0 at", address)(std::io::Error::other(problem)));
            }
        }
    }
    // Until all others have joined, node 0 listens and says nothing; its keeper starts then.
    let io = || failed("cannot speak with node 0 at", address);
    let mut line = Line::new(NodeId(0), channel).map_err(io())?;
    line.heard = Instant::now() + limits.join;
    let keeper = Keeper::start(vec![line], limits, epoch).map_err(io())?;
    Ok(Session::new(node, cluster.count(), key.clone(), limits, keeper, None))
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
            return Err(Failure::Passing(MeshError::Silent { address, within: patience }));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits {
        join: Duration::from_secs(60),
        handshake: Duration::from_secs(5),
        lost_after: Duration::from_secs(60),
        step: Duration::from_secs(5),
        stuck_after: Duration::from_secs(5),
    };

    /// What node 0 of three notes while `seen` looks at its hall, to which one has come: its line, and its end of it.
    fn with_one(
        limits: Limits,
        seen: impl FnOnce(&mut Hall<'_>, Channel<TcpStream>, &mut dyn FnMut(Note)),
    ) -> Vec<Note> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let theirs = TcpStream::connect(address).unwrap();
        let ours = listener.accept().unwrap().0;
        let key = Secret::from_bytes(b"0123456789abcdef");
        let channel = |stream: TcpStream| {
            settle(&stream).unwrap();
            Channel::new(stream, handshake::Keys { send: key.clone(), receive: key.clone() }, Vec::new())
        };
        let text = format!(
            "key: none\nnodes:\n  - {{id: 0, address: '{address}'}}\n  - {{id: 1, address: a}}\n  - {{id: 2, address: b}}\n"
        );
        let (cluster, program) = (ClusterFile::parse(&text).unwrap(), Program::new("a"));
        let door = Door::new(&listener, &key, program.protocol, limits.handshake).unwrap();
        let mut hall = Hall::new(&cluster, &program, limits, String::new(), door);
        hall.lines.push(Line::new(NodeId(1), channel(ours)).unwrap());
        let mut notes = Vec::new();
        seen(&mut hall, channel(theirs), &mut |note| notes.push(note));
        notes
    }

    /// Looks until somebody is gone, for which a busy machine has a minute.
    fn until_gone(hall: &mut Hall<'_>, note: &mut dyn FnMut(Note)) {
        let started = Instant::now();
        while !hall.lines.is_empty() {
            assert!(started.elapsed() < Duration::from_secs(60), "nobody has left");
            hall.hear(note);
        }
    }

    #[test]
    fn signs_of_life_are_read_while_others_are_waited_for() {
        let notes = with_one(LIMITS, |hall, mut theirs, note| {
            // Far more than the sockets between them hold.
            let beats = std::thread::spawn(move || {
                for _ in 0..400_000 {
                    theirs.send(kind::BEAT, []).unwrap();
                }
                while !theirs.is_sent() {
                    theirs.push().unwrap();
                }
                theirs
            });
            let started = Instant::now();
            while !beats.is_finished() {
                assert!(started.elapsed() < Duration::from_secs(120), "they pile up");
                hall.hear(note);
            }
            drop(beats.join().unwrap());
            assert_eq!(hall.lines.len(), 1);
        });
        assert_eq!(notes, []);
    }

    #[test]
    fn whoever_is_gone_closed_silent_or_out_of_turn_makes_room() {
        let cases = [
            ("the connection was closed", true, None),
            ("it said farewell", false, Some((kind::BYE, Vec::new()))),
            (
                "it gave up: interrupted",
                false,
                Some((kind::GAVE_UP, told(NodeId(1), Blame::Run, "interrupted"))),
            ),
            ("a message of kind 5, which has no place before a run", false, Some((kind::DONE, vec![0; 4]))),
            ("silent for 0.05 s", false, None),
        ];
        for (says, hangs_up, words) in cases {
            let limits = match says.starts_with("silent") {
                true => Limits { lost_after: Duration::from_millis(50), ..LIMITS },
                false => LIMITS,
            };
            let notes = with_one(limits, |hall, mut theirs, note| {
                if let Some((kind, body)) = words {
                    theirs.send(kind, body).unwrap();
                }
                let _kept = (!hangs_up).then_some(theirs);
                until_gone(hall, note);
                let missing = hall.missing().to_string();
                let named = format!("within 60 s: node 1 (a, had joined and left: {says}), node 2 (b)");
                assert!(missing.ends_with(&named), "{missing}");
            });
            assert_eq!(notes, [Note::Left { node: NodeId(1), why: says.to_owned() }]);
        }
    }
}
