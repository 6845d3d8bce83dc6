//! Node 0's door: who comes has to prove the key here, and until then is told nothing but why not.

use super::channel::Channel;
use super::handshake::{self, Driver, DriverStep, HandshakeError};
use super::wait::{For, Sleeper, is_ready, until, wait};
use crate::secret::{Secret, nonce};
use crate::verbs::NodeId;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

/// Connections that may be unauthenticated at a time. When there are more, one has to go ([`Door::give_place`]).
const MAX_CALLERS: usize = 64;
/// Of these, callers that may have said hello before one of them has to go: a hello takes no key, and who has said it must not keep
/// out those who have not yet.
const MAX_GREETED: usize = MAX_CALLERS / 2;
/// Connections taken at a time: fewer than places are left to those who have said nothing yet, so that each is heard before it has to go.
const TAKEN_AT_A_TIME: usize = (MAX_CALLERS - MAX_GREETED) / 2;
/// How long a read or write of a connection waits while nothing else is to be done.
const LOOK: Duration = Duration::from_millis(1);

/// A connection once it is authenticated: reads and writes return soon.
pub(super) fn settle(stream: &TcpStream) -> std::io::Result<()> {
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

/// Who has proven the key.
pub(super) struct Proven {
    pub(super) node: NodeId,
    pub(super) from: SocketAddr,
    pub(super) channel: Channel<TcpStream>,
}

/// Who was sent away without having proven it, and why.
pub(super) struct Refused {
    pub(super) from: SocketAddr,
    pub(super) why: HandshakeError,
}

/// The listener of node 0, and who stands before it.
pub(super) struct Door {
    listener: TcpListener,
    key: Secret,
    version: u16,
    /// How long a caller may take to prove itself.
    patience: Duration,
    callers: Vec<Caller>,
    /// Why the system gave no connection when it was last asked for one, if it was not that nobody had come.
    shut: Option<String>,
}

impl Door {
    /// A door of a listener of its own to the same port.
    pub(super) fn new(
        listener: &TcpListener,
        key: &Secret,
        version: u16,
        patience: Duration,
    ) -> std::io::Result<Door> {
        listener.set_nonblocking(true)?;
        let listener = listener.try_clone()?;
        Ok(Door { listener, key: key.clone(), version, patience, callers: Vec::new(), shut: None })
    }

    /// Why nobody can come in, as the system says.
    pub(super) fn shut(&self) -> Option<&str> {
        self.shut.as_deref()
    }

    /// Waits for somebody to come or to say something, or for `sleeper`; whether that was woken.
    pub(super) fn wait(&self, sleeper: &Sleeper) -> bool {
        let streams = self.callers.iter().map(|caller| until(&caller.stream, For::Reading));
        let own = [until(sleeper, For::Reading), until(&self.listener, For::Reading)];
        let mut sockets: Vec<_> = own.into_iter().chain(streams).collect();
        // Whoever says nothing is sent away some time.
        let left = self.callers.iter().map(|caller| self.patience.saturating_sub(caller.since.elapsed()));
        wait(&mut sockets, left.min());
        is_ready(&sockets[0])
    }

    /// Lets new callers come and hears each that is there once. Who has proven the key, and who was sent away.
    pub(super) fn look(&mut self) -> Vec<Result<Proven, Refused>> {
        self.let_come();
        let (mut ended, mut index) = (Vec::new(), 0);
        while index < self.callers.len() {
            let caller = &mut self.callers[index];
            let outcome = match caller.step() {
                Ok(None) if caller.since.elapsed() <= self.patience => {
                    index += 1;
                    continue;
                }
                Ok(None) => Err(HandshakeError::Refused("it took too long to prove itself".into())),
                Ok(Some(joined)) => Ok(joined),
                Err(error) => Err(error),
            };
            ended.push(self.end(index, outcome));
        }
        ended
    }

    fn let_come(&mut self) {
        for _ in 0..TAKEN_AT_A_TIME {
            let (stream, from) = match self.listener.accept() {
                Ok(come) => come,
                Err(e) => {
                    let nobody = matches!(
                        e.kind(),
                        ErrorKind::WouldBlock | ErrorKind::Interrupted | ErrorKind::ConnectionAborted
                    );
                    self.shut = (!nobody).then(|| e.to_string());
                    break;
                }
            };
            if stream.set_nonblocking(true).is_err() {
                continue;
            }
            if self.callers.len() == MAX_CALLERS {
                self.give_place();
            }
            let driver = Driver::new(self.key.clone(), self.version);
            let since = Instant::now();
            self.callers.push(Caller { stream, from, driver, bytes: Vec::new(), since, said_hello: false });
        }
    }

    /// One caller has to go. Those first that have said nothing, and of them the one that waits longest: to call takes a stranger less than to
    /// say hello. Where many have said hello, one of these, drawn: whoever calls again and again comes in then, however many strangers do
    /// so too, and none of them can tell when its turn is.
    fn give_place(&mut self) {
        let greeted = self.callers.iter().filter(|caller| caller.said_hello).count();
        let goes = match greeted > MAX_GREETED {
            true => {
                let [drawn, ..] = nonce();
                let nth = usize::from(drawn) % greeted;
                self.callers
                    .iter()
                    .enumerate()
                    .filter(|(_, caller)| caller.said_hello)
                    .nth(nth)
                    .map(|(at, _)| at)
            }
            false => self.callers.iter().position(|caller| !caller.said_hello),
        };
        self.callers.remove(goes.unwrap_or(0));
    }

    /// A caller is one no more: it has come in, or is sent away.
    fn end(
        &mut self,
        index: usize,
        outcome: Result<(NodeId, handshake::Keys), HandshakeError>,
    ) -> Result<Proven, Refused> {
        let caller = self.callers.remove(index);
        let from = caller.from;
        let settled = outcome.and_then(|joined| {
            settle(&caller.stream).map_err(|e| HandshakeError::Refused(e.to_string()))?;
            Ok(joined)
        });
        match settled {
            Ok((node, keys)) => {
                Ok(Proven { node, from, channel: Channel::new(caller.stream, keys, caller.bytes) })
            }
            Err(why) => {
                // The peer may still tell its own side's view: the words name both versions or the key.
                let words = match &why {
                    HandshakeError::WrongKey => handshake::KEYS_DIFFER.into(),
                    other => other.to_string(),
                };
                caller.refuse(self.version, &words);
                Err(Refused { from, why })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mesh::handshake::{Member, MemberStep};
    use std::collections::VecDeque;
    use std::sync::atomic::{AtomicBool, Ordering};

    /// One call of a member; whether it got in.
    fn call(address: SocketAddr, key: &Secret) -> std::io::Result<bool> {
        let mut stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(Duration::from_secs(5)))?;
        let (mut member, hello) = Member::start(key.clone(), NodeId(1), 1);
        stream.write_all(&hello)?;
        let (mut bytes, mut chunk) = (Vec::new(), [0; 512]);
        loop {
            while let Some((plain, len)) = handshake::decode(&bytes).expect("its own words") {
                bytes.drain(..len);
                match member.receive(&plain).expect("the key is right") {
                    MemberStep::Send(next) => stream.write_all(&next)?,
                    MemberStep::Joined(_) => return Ok(true),
                }
            }
            match stream.read(&mut chunk)? {
                0 => return Ok(false),
                n => bytes.extend_from_slice(&chunk[..n]),
            }
        }
    }

    /// One of those who said hello has to go where they are more than half of all, else the one that has said nothing for longest.
    #[test]
    fn those_who_said_hello_take_no_more_than_half_of_the_places() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let key = Secret::from_bytes(b"0123456789abcdef");
        let mut door = Door::new(&listener, &key, 1, Duration::from_secs(60)).unwrap();
        let mut held = Vec::new();
        while held.len() < MAX_CALLERS {
            let mut stream = TcpStream::connect(address).unwrap();
            if held.len() <= MAX_GREETED {
                stream.write_all(&Member::start(key.clone(), NodeId(1), 1).1).unwrap();
            }
            held.push(stream);
        }
        let greeted = |door: &Door| door.callers.iter().filter(|caller| caller.said_hello).count();
        while door.callers.len() < MAX_CALLERS || greeted(&door) <= MAX_GREETED {
            assert!(door.look().is_empty());
        }
        assert_eq!((door.callers.len(), greeted(&door)), (MAX_CALLERS, MAX_GREETED + 1));
        door.give_place();
        assert_eq!((door.callers.len(), greeted(&door)), (MAX_CALLERS - 1, MAX_GREETED));
        let silent =
            |door: &Door| door.callers.iter().find(|caller| !caller.said_hello).map(|caller| caller.from);
        let longest = silent(&door);
        door.give_place();
        assert_eq!((door.callers.len(), greeted(&door)), (MAX_CALLERS - 2, MAX_GREETED));
        assert_ne!(silent(&door), longest);
    }

    /// A hello takes no key: strangers that say it and wait hold places, and lose them again.
    #[test]
    fn strangers_who_say_hello_keep_nobody_out() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (key, other) = (Secret::from_bytes(b"0123456789abcdef"), Secret::from_bytes(b"fedcba9876543210"));
        let mut door = Door::new(&listener, &key, 1, Duration::from_secs(60)).unwrap();
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let crowd = || {
                let mut held = VecDeque::new();
                while !over.load(Ordering::Relaxed) {
                    let (_, hello) = Member::start(other.clone(), NodeId(1), 1);
                    held.extend(TcpStream::connect(address).and_then(|mut stream| {
                        stream.write_all(&hello)?;
                        Ok(stream)
                    }));
                    if held.len() > 4 * MAX_CALLERS {
                        held.pop_front();
                    }
                }
            };
            scope.spawn(crowd);
            // Until they hold what they may.
            let began = Instant::now();
            let within = |limit| assert!(began.elapsed() < Duration::from_secs(limit), "nobody comes in");
            while door.callers.iter().filter(|caller| caller.said_hello).count() < MAX_GREETED {
                door.look();
                within(60);
            }
            let member = scope.spawn(|| while !call(address, &key).unwrap_or(false) {});
            let mut came = 0;
            while !member.is_finished() {
                came += door.look().iter().filter(|ended| ended.is_ok()).count();
                if began.elapsed() > Duration::from_secs(120) {
                    break;
                }
            }
            over.store(true, Ordering::Relaxed);
            // Who still calls is let in.
            while !member.is_finished() {
                door.look();
            }
            assert!(came > 0, "strangers kept it out for two minutes");
        });
    }
}
