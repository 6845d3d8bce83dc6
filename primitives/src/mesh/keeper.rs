//! The thread that keeps a session's connections: heartbeats, silence, clock readings (`keeper/readings.rs`), and nothing that could wait
//! for what the program does. It sleeps until one of them has something for it, so that a thousand cost no more than those that speak.

mod readings;

use super::channel::{Channel, ChannelError, Message};
use super::clock::HostClock;
use super::porter::FAREWELL;
use super::session::{Limits, kind};
use super::wait::{BREATH, For, Sleeper, Waker, is_ready, until, wait, waker};
use crate::verbs::NodeId;
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Messages that one look at a connection takes at most: the others want their turn.
const TURN: usize = 64;

/// What the keeper is told to do.
pub(super) enum Command {
    /// Sends a message to one node or to all connected.
    Send(Option<NodeId>, u8, Vec<u8>),
    /// Driver: reads all members' clocks and tells them.
    ReadClocks,
}

/// What the keeper has heard.
pub(super) enum Event {
    /// A message.
    Message(NodeId, Message),
    /// A connection is over.
    Lost(NodeId, String),
    /// Member: its clock, as node 0 has read it.
    Clock(HostClock),
}

/// One connection.
pub(super) struct Line {
    pub(super) node: NodeId,
    pub(super) channel: Channel<TcpStream>,
    pub(super) heard: Instant,
    /// When it last took what was to be sent, or nothing was.
    took: Instant,
    /// It was told or has told that it ends: its end is no loss.
    ending: bool,
    /// There may be messages that were read and not looked at.
    unread: bool,
}

impl Line {
    /// A connection that is to be kept.
    pub(super) fn new(node: NodeId, channel: Channel<TcpStream>) -> std::io::Result<Line> {
        channel.stream().set_nonblocking(true)?;
        let now = Instant::now();
        // What came behind the handshake was read with it.
        Ok(Line { node, channel, heard: now, took: now, ending: false, unread: true })
    }

    /// What is to be waited for here.
    fn wants(&self) -> For {
        if self.channel.is_sent() { For::Reading } else { For::Both }
    }
}

/// The handle of a keeper.
pub(super) struct Keeper {
    commands: Option<Sender<Command>>,
    waker: Waker,
    events: Receiver<Event>,
    thread: Option<JoinHandle<()>>,
    epoch: Instant,
}

impl Keeper {
    /// Starts keeping `lines`. Clocks count from `epoch`.
    pub(super) fn start(lines: Vec<Line>, limits: Limits, epoch: Instant) -> std::io::Result<Keeper> {
        let (commands, told) = channel();
        let (heard, events) = channel();
        let (waker, sleeper) = waker()?;
        let work = Work { lines, limits, epoch, told, sleeper, heard, beat: Instant::now() };
        let thread = std::thread::Builder::new().name("mesh".into()).spawn(move || work.run())?;
        Ok(Keeper { commands: Some(commands), waker, events, thread: Some(thread), epoch })
    }

    /// Nanoseconds since the epoch.
    pub(super) fn now(&self) -> u64 {
        self.epoch.elapsed().as_nanos() as u64
    }

    pub(super) fn command(&self, command: Command) {
        if let Some(commands) = &self.commands {
            // A keeper that has ended has said so by an event.
            let _ = commands.send(command);
            self.waker.wake();
        }
    }

    pub(super) fn event(&self, within: Duration) -> Result<Event, RecvTimeoutError> {
        self.events.recv_timeout(within)
    }

    /// Sends what is still to be sent and ends the connections.
    pub(super) fn close(&mut self) {
        self.commands = None;
        self.waker.wake();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

struct Work {
    lines: Vec<Line>,
    limits: Limits,
    epoch: Instant,
    told: Receiver<Command>,
    /// Woken when something was told.
    sleeper: Sleeper,
    heard: Sender<Event>,
    beat: Instant,
}

impl Work {
    fn run(mut self) {
        loop {
            self.sleeper.forget();
            loop {
                match self.told.try_recv() {
                    Ok(Command::Send(to, kind, body)) => self.send(to, kind, body),
                    Ok(Command::ReadClocks) => self.read_clocks(),
                    Err(TryRecvError::Empty) => break,
                    Err(TryRecvError::Disconnected) => return self.finish(),
                }
            }
            self.beat_if_due();
            self.pass();
        }
    }

    /// Waits until there is something to do, and does it: at most until the next beat is due.
    fn pass(&mut self) {
        let ready = self.ready();
        // From the last one, since a line that is lost makes room for that.
        for (index, ready) in ready.into_iter().enumerate().rev() {
            match ready {
                true => self.look(index),
                false => {
                    self.lines[index].took = Instant::now();
                    self.lose_if_silent(index);
                }
            }
        }
    }

    /// Which lines are to be looked at: those that are ready, and those that are not through with what they have sent or got.
    fn ready(&self) -> Vec<bool> {
        let unread = self.lines.iter().any(|line| line.unread);
        let next_beat = self.beat_every().saturating_sub(self.beat.elapsed());
        let lines = self.lines.iter().map(|line| until(line.channel.stream(), line.wants()));
        let mut sockets: Vec<_> = [until(&self.sleeper, For::Reading)].into_iter().chain(lines).collect();
        wait(&mut sockets, Some(if unread { Duration::ZERO } else { next_beat }));
        let looked = |(socket, line): (&_, &Line)| is_ready(socket) || line.unread || !line.channel.is_sent();
        sockets[1..].iter().zip(&self.lines).map(looked).collect()
    }

    fn beat_every(&self) -> Duration {
        self.limits.lost_after / 10
    }

    fn beat_if_due(&mut self) {
        if self.beat.elapsed() >= self.beat_every() {
            self.beat = Instant::now();
            self.send(None, kind::BEAT, Vec::new());
        }
    }

    fn lose(&mut self, index: usize, why: String) {
        let line = self.lines.swap_remove(index);
        if !line.ending {
            let _ = self.heard.send(Event::Lost(line.node, why));
        }
    }

    fn send(&mut self, to: Option<NodeId>, kind: u8, body: Vec<u8>) {
        let body = Arc::new(body);
        for index in (0..self.lines.len()).rev() {
            let line = &mut self.lines[index];
            if to.is_some_and(|to| to != line.node) {
                continue;
            }
            line.ending |= kind == kind::BYE;
            if let Err(error) = line.channel.share(kind, body.clone()) {
                self.lose(index, error.to_string());
            }
        }
    }

    /// Sends what is left: to each for as long as it takes something. To close while something of a peer lies unread would reset the connection, and what was
    /// said last might not arrive: so each is given a little time to close its end.
    fn finish(mut self) {
        let mut told = Vec::new();
        loop {
            for index in (0..self.lines.len()).rev() {
                if self.push(index) && self.lines[index].channel.is_sent() {
                    let line = self.lines.swap_remove(index);
                    let _ = line.channel.stream().shutdown(Shutdown::Write);
                    told.push(line);
                }
            }
            if self.lines.is_empty() {
                break;
            }
            let lines = self.lines.iter().map(|line| until(line.channel.stream(), For::Writing));
            wait(&mut lines.collect::<Vec<_>>(), Some(self.beat_every()));
        }
        let deadline = Instant::now() + FAREWELL;
        while !told.is_empty() && Instant::now() < deadline {
            told.retain_mut(|line| line.channel.receive().is_ok());
            std::thread::sleep(BREATH);
        }
    }

    /// Sends what a connection takes. Whether it is still kept: one that has taken nothing for too long is lost.
    fn push(&mut self, index: usize) -> bool {
        let line = &mut self.lines[index];
        let why = match line.channel.push() {
            Ok(took) => {
                if took || line.channel.is_sent() {
                    line.took = Instant::now();
                }
                let limit = self.limits.lost_after;
                (line.took.elapsed() > limit).then(|| format!("took nothing for {} s", limit.as_secs_f64()))
            }
            Err(error) => Some(error.to_string()),
        };
        let kept = why.is_none();
        if let Some(why) = why {
            self.lose(index, why);
        }
        kept
    }

    fn look(&mut self, index: usize) {
        if !self.push(index) {
            return;
        }
        self.lines[index].unread = true;
        for _ in 0..TURN {
            let line = &mut self.lines[index];
            let frames = line.channel.frames();
            let received = line.channel.receive();
            // Parts of a message count: its sender has no heartbeats to spare until it is through.
            if line.channel.frames() != frames {
                line.heard = Instant::now();
            }
            match received {
                Ok(None) => {
                    line.unread = false;
                    break;
                }
                Ok(Some(message)) => {
                    if let Err(error) = self.heard_from(index, message) {
                        return self.lose(index, error.to_string());
                    }
                }
                Err(error) => return self.lose(index, error.to_string()),
            }
        }
        self.lose_if_silent(index);
    }

    fn lose_if_silent(&mut self, index: usize) {
        let silent = self.lines[index].heard.elapsed();
        if silent > self.limits.lost_after {
            let (limit, silent) = (self.limits.lost_after.as_secs_f64(), silent.as_secs_f64());
            self.lose(index, format!("silent for {limit} s (for {silent:.1} s when it was noticed)"));
        }
    }

    fn heard_from(&mut self, index: usize, message: Message) -> Result<(), ChannelError> {
        let line = &mut self.lines[index];
        let node = line.node;
        match message.kind {
            kind::BEAT => {}
            kind::PING => {
                // What was asked comes back, so that an answer that is late is not taken for that to a later question.
                let now = self.epoch.elapsed().as_nanos() as u64;
                let answer = [&message.body, &now.to_le_bytes()[..]].concat();
                line.channel.send(kind::PONG, answer)?;
            }
            // The answer to a reading that was given up.
            kind::PONG => {}
            kind::CLOCK if node == NodeId(0) && message.body.len() == 16 => {
                let word = |at: usize| {
                    let mut bytes = [0; 8];
                    bytes.copy_from_slice(&message.body[at..at + 8]);
                    bytes
                };
                let clock = HostClock {
                    offset_ns: i64::from_le_bytes(word(0)),
                    error_ns: u64::from_le_bytes(word(8)),
                    at: self.epoch.elapsed().as_nanos() as u64,
                };
                let _ = self.heard.send(Event::Clock(clock));
            }
            other => {
                line.ending |= other == kind::BYE;
                // A member that ends early, in the driver's eyes, is one that is lost.
                if other == kind::BYE && node != NodeId(0) {
                    let _ = self.heard.send(Event::Lost(node, "it has left".to_owned()));
                } else {
                    let _ = self.heard.send(Event::Message(node, message));
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::door::settle;
    use super::super::handshake::Keys;
    use super::*;
    use crate::secret::Secret;
    use std::net::TcpListener;

    pub(super) const MS: Duration = Duration::from_millis(1);

    pub(super) fn connected() -> (Channel<TcpStream>, Channel<TcpStream>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let theirs = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let ours = listener.accept().unwrap().0;
        let key = Secret::from_bytes(b"a");
        let channel = |stream: TcpStream| {
            settle(&stream).unwrap();
            Channel::new(stream, Keys { send: key.clone(), receive: key.clone() }, Vec::new())
        };
        (channel(ours), channel(theirs))
    }

    pub(super) fn work(lines: Vec<Line>) -> (Work, Receiver<Event>) {
        let (_, told) = channel();
        let (heard, events) = channel();
        let (_, sleeper) = waker().unwrap();
        let now = Instant::now();
        (Work { lines, limits: Limits::default(), epoch: now, told, sleeper, heard, beat: now }, events)
    }

    #[test]
    fn silence_is_told_by_its_limit() {
        let (ours, _theirs) = connected();
        let mut line = Line::new(NodeId(1), ours).unwrap();
        line.heard =
            Instant::now().checked_sub(Duration::from_secs(7)).expect("the machine is up for longer");
        let (mut work, events) = work(vec![line]);
        work.look(0);
        let Ok(Event::Lost(NodeId(1), why)) = events.try_recv() else { panic!("not lost") };
        assert!(why.starts_with("silent for 5 s (for "), "{why}");
    }

    #[test]
    fn who_takes_nothing_keeps_nobody_waiting_and_is_lost() {
        let (stuck, unread) = connected();
        let (ours, mut theirs) = connected();
        let (mut work, events) =
            work(vec![Line::new(NodeId(1), stuck).unwrap(), Line::new(NodeId(2), ours).unwrap()]);
        work.limits.lost_after = Duration::from_secs(1);
        // More than the buffers of a connection hold.
        work.send(None, kind::ALL, vec![7; 64 << 20]);
        let healthy = std::thread::spawn(move || {
            let (mut longest, mut heard, mut frames) = (Duration::ZERO, Instant::now(), 0);
            loop {
                match theirs.receive() {
                    Ok(Some(message)) if message.kind == kind::BYE => return longest,
                    Ok(_) if theirs.frames() > frames => {
                        longest = longest.max(heard.elapsed());
                        (heard, frames) = (Instant::now(), theirs.frames());
                    }
                    Ok(_) => {}
                    Err(error) => panic!("{error}"),
                }
            }
        });
        let began = Instant::now();
        while began.elapsed() < Duration::from_secs(20) && work.lines.len() == 2 {
            work.beat_if_due();
            (0..work.lines.len()).rev().for_each(|index| {
                // The members have nothing to say in this test.
                work.lines[index].heard = Instant::now();
                work.look(index);
            });
        }
        let Ok(Event::Lost(NodeId(1), why)) = events.try_recv() else { panic!("not lost") };
        assert_eq!(why, "took nothing for 1 s");
        work.send(None, kind::BYE, Vec::new());
        work.finish();
        let longest = healthy.join().unwrap();
        // It would have been a second with writes that wait; the machine may be slow.
        assert!(longest < Duration::from_millis(900), "nothing came for {longest:?}");
        drop(unread);
    }

    #[test]
    fn who_is_in_the_middle_of_a_long_message_is_not_silent() {
        let (ours, mut theirs) = connected();
        let (mut work, events) = work(vec![Line::new(NodeId(1), ours).unwrap()]);
        // Longer than what one look takes from a connection.
        let sender = std::thread::spawn(move || {
            theirs.send(kind::GIVE, vec![7; 64 << 20])?;
            while !theirs.is_sent() {
                theirs.push()?;
            }
            Ok::<_, ChannelError>(())
        });
        let mut looks = 0;
        let whole = loop {
            let (frames, heard) = (work.lines[0].channel.frames(), work.lines[0].heard);
            work.look(0);
            match events.try_recv() {
                Ok(Event::Message(_, message)) => break message,
                Ok(_) => panic!("nothing else was said"),
                Err(_) => {}
            }
            let line = &work.lines[0];
            assert_eq!(line.heard > heard, line.channel.frames() > frames);
            looks += u32::from(line.heard > heard);
        };
        assert!(whole.body.len() == 64 << 20 && looks > 2, "{looks} looks saw parts of it");
        sender.join().unwrap().unwrap();
    }

    /// A keeper's work for so many members, and their ends.
    fn crowd(members: u16) -> (Vec<Line>, Vec<Channel<TcpStream>>) {
        let member = |node| {
            let (ours, theirs) = connected();
            (Line::new(NodeId(node), ours).unwrap(), theirs)
        };
        (1..=members).map(member).unzip()
    }

    /// The next message, for which a busy machine has a minute.
    fn next(channel: &mut Channel<TcpStream>) -> Message {
        let asked = Instant::now();
        loop {
            match channel.receive().unwrap() {
                Some(message) => return message,
                None => assert!(asked.elapsed() < Duration::from_secs(60), "nothing came"),
            }
        }
    }

    /// Counted in looks, since a busy machine may take its time: each look at somebody silent would be a call of the kernel, or a wait.
    #[test]
    fn who_speaks_is_looked_at_and_none_of_the_many_who_are_silent() {
        let (lines, mut members) = crowd(300);
        let (mut work, events) = work(lines);
        work.limits.lost_after = Duration::from_secs(1000);
        let mut talker = members.pop().expect("three hundred");
        // What may have come behind the handshakes has been looked for once.
        work.pass();
        assert_eq!(work.ready(), [false; 300]);
        for question in 0..50u64 {
            talker.send(kind::PING, question.to_le_bytes()).unwrap();
            let looked = loop {
                let ready = work.ready();
                if ready.contains(&true) {
                    break ready;
                }
            };
            assert!(looked[299] && !looked[..299].contains(&true), "{looked:?}");
            work.pass();
            let answer = next(&mut talker);
            assert_eq!((answer.kind, &answer.body[..8]), (kind::PONG, &question.to_le_bytes()[..]));
        }
        // More than is taken in one turn, after which nothing comes that would wake anybody.
        (0..1000u32).for_each(|n| talker.send(kind::DONE, n.to_le_bytes()).unwrap());
        while !talker.is_sent() {
            talker.push().unwrap();
        }
        let (mut heard, mut idle) = (0u32, 0);
        while heard < 1000 {
            work.pass();
            let before = heard;
            while let Ok(event) = events.try_recv() {
                let Event::Message(NodeId(300), message) = event else { panic!("nothing else was said") };
                assert_eq!(message.body, heard.to_le_bytes());
                heard += 1;
            }
            assert!(heard - before <= TURN as u32, "the others want their turn");
            idle += u32::from(heard == before);
            // Who forgot that there is more waits for the next beat, in vain.
            assert!(idle <= 16, "{idle} turns brought nothing");
        }
    }

    #[test]
    fn a_farewell_is_not_lost_to_what_lies_unread() {
        let (ours, mut theirs) = connected();
        let (mut work, _events) = work(vec![Line::new(NodeId(1), ours).unwrap()]);
        theirs.send(kind::BEAT, Vec::new()).unwrap();
        while !theirs.is_sent() {
            theirs.push().unwrap();
        }
        work.send(None, kind::BYE, Vec::new());
        let (began, ending) = (Instant::now(), std::thread::spawn(move || work.finish()));
        assert_eq!(next(&mut theirs).kind, kind::BYE);
        std::thread::sleep(50 * MS);
        // A connection that is closed with something unread is reset, which may come before the farewell on a path that loses frames.
        let closed = ending.is_finished();
        assert!(!closed || began.elapsed() >= FAREWELL, "it was closed before the other end was");
        drop(theirs);
        ending.join().unwrap();
    }

    #[test]
    fn what_is_told_to_all_goes_out_now_and_not_when_it_is_next_looked_for() {
        let (lines, mut members) = crowd(300);
        // No beat is due for hours: only being woken ends the wait.
        let limits = Limits { lost_after: Duration::from_secs(24 * 3600), ..Limits::default() };
        let mut keeper = Keeper::start(lines, limits, Instant::now()).unwrap();
        keeper.command(Command::Send(None, kind::OVER, vec![0; 4]));
        for member in &mut members {
            assert_eq!(next(member).kind, kind::OVER);
        }
        keeper.close();
    }
}
