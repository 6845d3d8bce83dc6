//! Frames on streams: what is written, what is read, and the proof in front.
//!
//! ```text
//! hello   "DBELTCP1" | from node:16 | to node:16 | from context:32 | to context:32 | 0:32 | drawn:64 | tag:256
//! frame   payload bytes:32 | to queue pair:32 | from queue pair:32 | queue key:32 | has immediate:32 | immediate:32 | payload
//! ```
//! Little-endian. The tag covers the hello and the nonce on the receiver's card under the run's secret, so a hello seen
//! on the wire opens no second stream elsewhere, and its twin at the same receiver is refused.

use super::{MTU, Place};
use crate::secret::{Secret, TAG_BYTES};
use crate::verbs::{NodeId, Qp};
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;

const MAGIC: &[u8; 8] = b"DBELTCP1";
const HELLO_BODY: usize = 32;
/// Bytes of a hello.
pub(super) const HELLO_BYTES: usize = HELLO_BODY + TAG_BYTES;
/// Bytes in front of a payload.
pub(super) const FRAME_BYTES: usize = 24;
const PURPOSE: &str = "doorbell tcp stream 1";

/// Who opens a stream, to whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Hello {
    pub(super) from: (NodeId, u32),
    pub(super) to: (NodeId, u32),
    /// Tells this stream's hello from any other.
    pub(super) drawn: u64,
}

impl Hello {
    /// The bytes that open a stream to `place`.
    pub(super) fn seal(&self, secret: &Secret, place: &Place) -> [u8; HELLO_BYTES] {
        let mut bytes = [0; HELLO_BYTES];
        bytes[..8].copy_from_slice(MAGIC);
        bytes[8..10].copy_from_slice(&self.from.0.0.to_le_bytes());
        bytes[10..12].copy_from_slice(&self.to.0.0.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.from.1.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.to.1.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.drawn.to_le_bytes());
        let tag = secret.tag(PURPOSE, &[&bytes[..HELLO_BODY], &place.nonce]);
        bytes[HELLO_BODY..].copy_from_slice(&tag);
        bytes
    }

    /// What a hello says, if it was sealed with the secret for the receiver that has `nonce`.
    pub(super) fn open(bytes: &[u8; HELLO_BYTES], secret: &Secret, nonce: &[u8; 16]) -> Option<Hello> {
        let (body, tag) = bytes.split_at(HELLO_BODY);
        if !secret.verify(PURPOSE, &[body, nonce], tag) || body[..8] != MAGIC[..] {
            return None;
        }
        let short = |at: usize| NodeId(u16::from_le_bytes([body[at], body[at + 1]]));
        let drawn = u64::from(word(body, 24)) | u64::from(word(body, 28)) << 32;
        Some(Hello { from: (short(8), word(body, 12)), to: (short(10), word(body, 16)), drawn })
    }
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

/// The head of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Frame {
    pub(super) len: u32,
    pub(super) to: Qp,
    pub(super) from: Qp,
    pub(super) qkey: u32,
    pub(super) imm: Option<u32>,
}

impl Frame {
    fn write(&self, out: &mut [u8]) {
        let words = [
            self.len,
            self.to.0,
            self.from.0,
            self.qkey,
            u32::from(self.imm.is_some()),
            self.imm.unwrap_or(0),
        ];
        for (chunk, word) in out.chunks_exact_mut(4).zip(words) {
            chunk.copy_from_slice(&word.to_le_bytes());
        }
    }

    fn read(bytes: &[u8]) -> Frame {
        let word = |n: usize| word(bytes, 4 * n);
        let imm = (word(4) != 0).then(|| word(5));
        Frame { len: word(0), to: Qp(word(1)), from: Qp(word(2)), qkey: word(3), imm }
    }
}

/// The stream's other end is gone, or does not keep to the format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Broken;

/// Bytes on their way: a linear buffer, moved to the front when its end is reached.
struct Buffer {
    bytes: Box<[u8]>,
    start: usize,
    end: usize,
}

impl Buffer {
    fn new(bytes: usize) -> Buffer {
        // A frame of the longest datagram must fit, with room to move.
        let bytes = bytes.max(4 * (FRAME_BYTES + MTU as usize));
        Buffer { bytes: vec![0; bytes].into_boxed_slice(), start: 0, end: 0 }
    }

    /// Room for `len` bytes at the end, if there is any.
    fn room(&mut self, len: usize) -> bool {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
        if self.bytes.len() - self.end < len && self.start > 0 {
            self.bytes.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        self.bytes.len() - self.end >= len
    }
}

/// A stream that this context writes.
pub(super) struct Outbound {
    pub(super) to: (NodeId, u32),
    stream: Option<TcpStream>,
    buffer: Buffer,
}

impl Outbound {
    pub(super) fn new(to: (NodeId, u32), stream: TcpStream, hello: &[u8], buffer_bytes: usize) -> Outbound {
        let mut buffer = Buffer::new(buffer_bytes);
        buffer.bytes[..hello.len()].copy_from_slice(hello);
        buffer.end = hello.len();
        Outbound { to, stream: Some(stream), buffer }
    }

    /// Whether the other end is gone.
    pub(super) fn dead(&self) -> bool {
        self.stream.is_none()
    }

    /// Gives the stream up.
    pub(super) fn kill(&mut self) {
        self.stream = None;
        (self.buffer.start, self.buffer.end) = (0, 0);
    }

    /// Whether bytes wait for the socket.
    pub(super) fn pending(&self) -> bool {
        self.buffer.start < self.buffer.end
    }

    /// Adds a frame whose payload `fill` writes; false if the buffer has no room for it now.
    #[inline]
    pub(super) fn add(&mut self, frame: &Frame, fill: impl FnOnce(&mut [u8])) -> bool {
        let total = FRAME_BYTES + frame.len as usize;
        if !self.buffer.room(total) {
            return false;
        }
        let (head, payload) = self.buffer.bytes[self.buffer.end..][..total].split_at_mut(FRAME_BYTES);
        frame.write(head);
        fill(payload);
        self.buffer.end += total;
        true
    }

    /// Writes what waits, as far as the socket takes it: one system call where it takes everything.
    pub(super) fn flush(&mut self) -> Result<(), Broken> {
        let Some(stream) = &mut self.stream else { return Ok(()) };
        while self.buffer.start < self.buffer.end {
            match stream.write(&self.buffer.bytes[self.buffer.start..self.buffer.end]) {
                Ok(0) => return Err(Broken),
                Ok(n) => self.buffer.start += n,
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(_) => return Err(Broken),
            }
        }
        Ok(())
    }
}

/// A stream that this context reads.
pub(super) struct Inbound {
    pub(super) from: (NodeId, u32),
    stream: TcpStream,
    buffer: Buffer,
}

impl Inbound {
    pub(super) fn new(from: (NodeId, u32), stream: TcpStream, buffer_bytes: usize) -> Inbound {
        Inbound { from, stream, buffer: Buffer::new(buffer_bytes) }
    }

    /// Reads once and hands over every whole frame. Whatever arrived before the end of the stream still counts.
    pub(super) fn read(&mut self, mut deliver: impl FnMut(&Frame, &[u8])) -> Result<(), Broken> {
        // Frames are taken out below, so less than one is left, and it fits.
        if !self.buffer.room(FRAME_BYTES + MTU as usize) {
            return Err(Broken);
        }
        match self.stream.read(&mut self.buffer.bytes[self.buffer.end..]) {
            Ok(0) => return Err(Broken),
            Ok(n) => self.buffer.end += n,
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => return Ok(()),
            Err(_) => return Err(Broken),
        }
        loop {
            let have = &self.buffer.bytes[self.buffer.start..self.buffer.end];
            if have.len() < FRAME_BYTES {
                return Ok(());
            }
            let frame = Frame::read(have);
            if frame.len > MTU {
                return Err(Broken);
            }
            let total = FRAME_BYTES + frame.len as usize;
            if have.len() < total {
                return Ok(());
            }
            deliver(&frame, &have[FRAME_BYTES..total]);
            self.buffer.start += total;
        }
    }
}

/// An accepted stream that has not yet shown its hello.
pub(super) struct Unproven {
    stream: TcpStream,
    bytes: [u8; HELLO_BYTES],
    have: usize,
    /// Looks left before it is given up.
    pub(super) patience: u32,
}

impl Unproven {
    pub(super) fn new(stream: TcpStream, patience: u32) -> Unproven {
        Unproven { stream, bytes: [0; HELLO_BYTES], have: 0, patience }
    }

    /// The hello's bytes once all are there.
    pub(super) fn read(&mut self) -> Result<Option<&[u8; HELLO_BYTES]>, Broken> {
        match self.stream.read(&mut self.bytes[self.have..]) {
            Ok(0) => return Err(Broken),
            Ok(n) => self.have += n,
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            Err(_) => return Err(Broken),
        }
        Ok((self.have == HELLO_BYTES).then_some(&self.bytes))
    }

    pub(super) fn into_stream(self) -> TcpStream {
        self.stream
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods)] // sockets take real time
mod tests {
    use super::*;
    use std::net::{Ipv4Addr, SocketAddr, TcpListener};

    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let a = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let b = listener.accept().unwrap().0;
        b.set_nonblocking(true).unwrap();
        a.set_nonblocking(true).unwrap();
        (a, b)
    }

    #[test]
    fn a_hello_opens_with_the_right_secret_for_the_right_receiver_only() {
        let secret = Secret::from_bytes(b"one");
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 1));
        let place = Place { context: 3, address, nonce: [7; 16] };
        let hello = Hello { from: (NodeId(1), 2), to: (NodeId(0), 3), drawn: u64::MAX - 5 };
        let sealed = hello.seal(&secret, &place);
        assert_eq!(Hello::open(&sealed, &secret, &[7; 16]), Some(hello));
        assert_eq!(Hello::open(&sealed, &secret, &[8; 16]), None);
        assert_eq!(Hello::open(&sealed, &Secret::from_bytes(b"two"), &[7; 16]), None);
        for at in 0..HELLO_BYTES {
            let mut bent = sealed;
            bent[at] ^= 1;
            assert_eq!(Hello::open(&bent, &secret, &[7; 16]), None, "byte {at}");
        }
    }

    #[test]
    fn frames_survive_a_slow_reader_and_a_full_buffer() {
        let (a, b) = pair();
        let mut out = Outbound::new((NodeId(1), 0), a, &[], 0);
        let mut inbound = Inbound::new((NodeId(0), 0), b, 0);
        let (mut sent, mut seen) = (0u32, 0u32);
        while seen < 20_000 {
            while sent < 20_000 {
                let frame = Frame { len: sent % 600, to: Qp(sent), from: Qp(9), qkey: 1, imm: None };
                if !out.add(&frame, |payload| payload.fill(sent as u8)) {
                    break;
                }
                sent += 1;
            }
            out.flush().unwrap();
            inbound
                .read(|frame, payload| {
                    assert_eq!((frame.to, frame.len), (Qp(seen), seen % 600));
                    assert!(payload.iter().all(|&byte| byte == seen as u8));
                    seen += 1;
                })
                .unwrap();
        }
        out.kill();
        let mut ended = Ok(());
        for _ in 0..1000 {
            ended = inbound.read(|_, _| panic!("no frame was sent"));
            if ended.is_err() {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        assert_eq!(ended, Err(Broken));
    }

    #[test]
    fn a_frame_longer_than_any_datagram_ends_the_stream() {
        let (mut a, b) = pair();
        a.write_all(&[0xff; 64]).unwrap();
        let mut inbound = Inbound::new((NodeId(0), 0), b, 0);
        let ended = (0..1000).find_map(|_| {
            std::thread::sleep(std::time::Duration::from_millis(1));
            inbound.read(|_, _| panic!("garbage was delivered")).err()
        });
        assert_eq!(ended, Some(Broken));
    }
}
