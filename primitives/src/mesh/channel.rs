//! Sealed messages on an authenticated connection.
//!
//! ```text
//! frame   bytes:32 | kind:8 | more:8 | body | tag:256
//! ```
//! A message is one or more frames, all but the last with `more` set, so no length field makes anybody allocate: a
//! message grows only by bytes that were authenticated, up to the limit of its kind. The tag is an HMAC over the frame's number and
//! all before it, under the key of its direction; so frames can be neither changed, added, left out, repeated,
//! reordered nor reflected.

use super::handshake::Keys;
use super::session::kind;
use crate::secret::TAG_BYTES;
use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::sync::Arc;

const HEAD: usize = 6;
/// Longest body of a frame.
pub(super) const FRAME_BODY: usize = 64 << 10;
const PURPOSE: &str = "doorbell mesh frame";
/// Frames that one look at a connection sends at most: the others want their turn.
const TURN: usize = 64;

/// Why a connection ended.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum ChannelError {
    #[error("the connection was closed")]
    Closed,
    #[error("the connection failed: {0}")]
    Io(String),
    #[error("a frame of {0} B, none is longer than {FRAME_BODY} B")]
    TooLong(u32),
    #[error("a message of kind {kind} and more than {most} B")]
    TooMuch { kind: u8, most: usize },
    #[error("a frame whose authentication code does not fit: somebody interferes with the connection")]
    Forged,
}

/// A message as it arrived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Message {
    pub(super) kind: u8,
    pub(super) body: Vec<u8>,
}

/// One end of an authenticated connection.
pub(super) struct Channel<S> {
    stream: S,
    keys: Keys,
    sent: u64,
    received: u64,
    /// Messages to be sent, and how far the first of them is sealed.
    outgoing: VecDeque<(u8, Arc<Vec<u8>>)>,
    sealed: usize,
    /// The frame that is being sent, from `written` on.
    frame: Vec<u8>,
    written: usize,
    /// Bytes read and not yet understood, from `start` on.
    bytes: Vec<u8>,
    start: usize,
    partial: Option<Message>,
    chunk: Box<[u8]>,
}

impl<S: Read + Write> Channel<S> {
    /// `rest` is what was read behind the handshake.
    pub(super) fn new(stream: S, keys: Keys, rest: Vec<u8>) -> Channel<S> {
        let chunk = vec![0; FRAME_BODY].into_boxed_slice();
        Channel {
            stream,
            keys,
            sent: 0,
            received: 0,
            outgoing: VecDeque::new(),
            sealed: 0,
            frame: Vec::with_capacity(HEAD + TAG_BYTES),
            written: 0,
            bytes: rest,
            start: 0,
            partial: None,
            chunk,
        }
    }

    pub(super) fn stream(&self) -> &S {
        &self.stream
    }

    /// Frames that have arrived whole and were authentic. A long message takes many, so who still sends it can be told from who
    /// is silent.
    pub(super) fn frames(&self) -> u64 {
        self.received
    }

    /// Sends a message, or as much of it as the stream takes now. [`Channel::push`] sends the rest.
    pub(super) fn send(&mut self, kind: u8, body: impl Into<Vec<u8>>) -> Result<(), ChannelError> {
        self.share(kind, Arc::new(body.into()))
    }

    /// As [`Channel::send`], of a body that others are sent too.
    pub(super) fn share(&mut self, kind: u8, body: Arc<Vec<u8>>) -> Result<(), ChannelError> {
        self.outgoing.push_back((kind, body));
        self.push().map(drop)
    }

    /// Whether nothing is left to be sent.
    pub(super) fn is_sent(&self) -> bool {
        self.outgoing.is_empty() && self.written == self.frame.len()
    }

    /// Sends what the stream takes, at most [`TURN`] frames. Returns whether it took anything; a stream with a time-out returns
    /// then.
    pub(super) fn push(&mut self) -> Result<bool, ChannelError> {
        let mut took = false;
        for _ in 0..TURN {
            if self.written == self.frame.len() && !self.seal() {
                break;
            }
            match self.stream.write(&self.frame[self.written..]) {
                Ok(0) => return Err(ChannelError::Closed),
                Ok(n) => (self.written, took) = (self.written + n, true),
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => break,
                Err(e) => return Err(ChannelError::Io(e.to_string())),
            }
        }
        Ok(took)
    }

    /// Makes the next frame, if there is one to be made: frame by frame, so that a long message is never there twice.
    fn seal(&mut self) -> bool {
        let Some((kind, body)) = self.outgoing.front() else { return false };
        let part = &body[self.sealed..body.len().min(self.sealed + FRAME_BODY)];
        let more = self.sealed + part.len() < body.len();
        self.frame.clear();
        self.frame.extend_from_slice(&(part.len() as u32).to_le_bytes());
        self.frame.extend_from_slice(&[*kind, u8::from(more)]);
        self.frame.extend_from_slice(part);
        let tag = self.keys.send.tag(PURPOSE, &[&self.sent.to_le_bytes(), &self.frame]);
        self.frame.extend_from_slice(&tag);
        (self.written, self.sent) = (0, self.sent + 1);
        self.sealed += part.len();
        if !more {
            self.outgoing.pop_front();
            self.sealed = 0;
        }
        true
    }

    /// The next message, reading at most once; `None` if it is not whole yet. A stream with a time-out returns then.
    pub(super) fn receive(&mut self) -> Result<Option<Message>, ChannelError> {
        if let Some(message) = self.take()? {
            return Ok(Some(message));
        }
        match self.stream.read(&mut self.chunk) {
            Ok(0) => return Err(ChannelError::Closed),
            Ok(n) => self.bytes.extend_from_slice(&self.chunk[..n]),
            Err(e)
                if matches!(
                    e.kind(),
                    ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted
                ) => {}
            Err(e) => return Err(ChannelError::Io(e.to_string())),
        }
        self.take()
    }

    /// The next message among the bytes read.
    fn take(&mut self) -> Result<Option<Message>, ChannelError> {
        loop {
            let have = &self.bytes[self.start..];
            if have.len() < HEAD {
                break;
            }
            let len = u32::from_le_bytes([have[0], have[1], have[2], have[3]]);
            if len as usize > FRAME_BODY {
                return Err(ChannelError::TooLong(len));
            }
            let end = HEAD + len as usize;
            if have.len() < end + TAG_BYTES {
                break;
            }
            let (frame, tag) = have[..end + TAG_BYTES].split_at(end);
            if !self.keys.receive.verify(PURPOSE, &[&self.received.to_le_bytes(), frame], tag) {
                return Err(ChannelError::Forged);
            }
            self.received += 1;
            let (kind, more, body) = (frame[4], frame[5] != 0, &frame[HEAD..]);
            let partial = self.partial.get_or_insert_with(|| Message { kind, body: Vec::new() });
            let most = kind::most(partial.kind);
            if partial.body.len() + body.len() > most {
                return Err(ChannelError::TooMuch { kind: partial.kind, most });
            }
            partial.body.extend_from_slice(body);
            self.start += end + TAG_BYTES;
            if !more {
                return Ok(self.partial.take());
            }
        }
        self.bytes.drain(..self.start);
        self.start = 0;
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::secret::Secret;
    use rand::{RngExt, SeedableRng};
    use rand_xoshiro::Xoshiro256PlusPlus;
    use std::io::Cursor;

    struct Half {
        input: Cursor<Vec<u8>>,
        output: Vec<u8>,
    }

    impl Read for Half {
        fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
            self.input.read(out)
        }
    }

    impl Write for Half {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.output.extend_from_slice(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    fn keys() -> (Keys, Keys) {
        let (a, b) = (Secret::from_bytes(b"a"), Secret::from_bytes(b"b"));
        (Keys { send: a.clone(), receive: b.clone() }, Keys { send: b, receive: a })
    }

    fn channel(keys: Keys, input: Vec<u8>) -> Channel<Half> {
        Channel::new(Half { input: Cursor::new(input), output: Vec::new() }, keys, Vec::new())
    }

    fn sealed(messages: &[(u8, Vec<u8>)]) -> Vec<u8> {
        let mut sender = channel(keys().0, Vec::new());
        for (kind, body) in messages {
            sender.send(*kind, &body[..]).unwrap();
        }
        while sender.push().unwrap() {}
        sender.stream.output
    }

    /// What arrives, until the end or an error.
    fn heard(bytes: Vec<u8>) -> (Vec<Message>, ChannelError) {
        let mut receiver = channel(keys().1, bytes);
        let mut all = Vec::new();
        loop {
            match receiver.receive() {
                Ok(message) => all.extend(message),
                Err(error) => return (all, error),
            }
        }
    }

    #[test]
    fn messages_of_any_length_arrive_whole_and_in_order() {
        let sizes = [0, 1, FRAME_BODY, FRAME_BODY + 1, 5 * FRAME_BODY + 7];
        let sent: Vec<(u8, Vec<u8>)> =
            sizes.iter().enumerate().map(|(n, &size)| (n as u8, vec![n as u8; size])).collect();
        let (got, end) = heard(sealed(&sent));
        assert_eq!(got, sent.into_iter().map(|(kind, body)| Message { kind, body }).collect::<Vec<_>>());
        assert_eq!(end, ChannelError::Closed);
    }

    #[test]
    fn no_changed_frame_is_ever_believed() {
        let sent: Vec<(u8, Vec<u8>)> = (0..4).map(|n| (n, vec![n; 20])).collect();
        let good = sealed(&sent);
        let frame = good.len() / 4;
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(11);
        for round in 0..4000 {
            let mut bytes = good.clone();
            match round % 5 {
                0 => {
                    let at = rng.random_range(0..bytes.len());
                    bytes[at] ^= 1 << rng.random_range(0..8);
                }
                1 => bytes.truncate(rng.random_range(0..bytes.len())),
                // A frame repeated, left out, or exchanged with the next.
                2 => drop(bytes.splice(frame..frame, good[..frame].to_vec())),
                3 => drop(bytes.drain(..frame)),
                _ => bytes[..2 * frame].rotate_left(frame),
            }
            let (got, error) = heard(bytes);
            assert!(got.len() < 4 || error == ChannelError::Closed, "round {round}: {got:?} {error:?}");
            for (n, message) in got.iter().enumerate() {
                assert_eq!((message.kind, &message.body), (n as u8, &sent[n].1), "round {round}");
            }
        }
        let most = kind::most(kind::BEAT);
        let long = |len| heard(sealed(&[(kind::BEAT, vec![0; len])]));
        assert_eq!(long(most).0.len(), 1);
        assert_eq!(long(most + 1), (vec![], ChannelError::TooMuch { kind: kind::BEAT, most }));
        let mut reflected = channel(keys().0, good);
        assert_eq!(reflected.receive(), Err(ChannelError::Forged));
        assert_eq!(heard(vec![0xff; 100]).1, ChannelError::TooLong(u32::MAX));
    }
}
