//! The wire format: a three-word header, then payload words.
//!
//! ```text
//! word 0   version:8 | kind:8 | handler:8 | 0:8 | sender node:16 | sender worker:16
//! word 1   sequence number:32 | done-below:32      (the latter acknowledges the receiver's requests)
//! word 2   call:32 | payload bytes:32              (the call names the waiting caller, echoed in the reply)
//! ```
//! All integers are little-endian. Version 1.

use crate::mem::Buf;
use crate::verbs::NodeId;
use crate::verbs::port::Received;
use crate::verbs::work::GRH_BYTES;
use std::sync::atomic::Ordering;

pub(super) const HEADER_WORDS: usize = 3;
const VERSION: u64 = 1;
const GRH_WORDS: usize = GRH_BYTES as usize / 8;

/// What a message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A call that expects a reply.
    Request,
    /// The reply.
    Reply,
    /// A request that nobody waits for.
    OneWay,
    /// Nothing but an acknowledgement.
    Ack,
}

/// Bytes that are not what they should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// Fewer bytes than the header or the reader needs.
    #[error("message ends after {len} B, {wanted} B more were expected")]
    Short {
        /// Bytes there are.
        len: u32,
        /// Bytes missing.
        wanted: u32,
    },
    /// Another wire version.
    #[error("message version {0}, this program speaks version 1")]
    Version(u8),
    /// An unknown kind.
    #[error("message kind {0} is unknown")]
    Kind(u8),
    /// A value that no sender of this version writes.
    #[error("field {field} has the impossible value {value}")]
    Field {
        /// The field.
        field: &'static str,
        /// The value.
        value: u64,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) kind: Kind,
    pub(super) handler: u8,
    pub(super) from: NodeId,
    pub(super) seq: u32,
    pub(super) done_below: u32,
    pub(super) call: u32,
    pub(super) len: u32,
}

/// What a header that nobody has checked seems to say.
pub(super) struct Hint {
    pub(super) kind: Option<Kind>,
    pub(super) from: NodeId,
    pub(super) seq: u32,
    pub(super) call: u32,
}

/// Reads a header's words without believing them.
#[inline]
pub(super) fn hint(first: u64, second: u64, third: u64) -> Hint {
    Hint { kind: Kind::of(first), from: NodeId((first >> 32) as u16), seq: second as u32, call: third as u32 }
}

impl Kind {
    /// The kind that a header's first word names.
    #[inline]
    fn of(first: u64) -> Option<Kind> {
        match first >> 8 & 0xff {
            0 => Some(Kind::Request),
            1 => Some(Kind::Reply),
            2 => Some(Kind::OneWay),
            3 => Some(Kind::Ack),
            _ => None,
        }
    }
}

impl Header {
    pub(super) fn new(kind: Kind, handler: u8, seq: u32, call: u32, len: u32) -> Header {
        Header { kind, handler, from: NodeId(0), seq, done_below: 0, call, len }
    }

    pub(super) fn encode(&self, buf: &Buf, node: NodeId, worker: u16, done_below: u32) {
        let kind = match self.kind {
            Kind::Request => 0u64,
            Kind::Reply => 1,
            Kind::OneWay => 2,
            Kind::Ack => 3,
        };
        let word = VERSION
            | kind << 8
            | u64::from(self.handler) << 16
            | u64::from(node.0) << 32
            | u64::from(worker) << 48;
        buf.set_word(0, word);
        buf.set_word(1, u64::from(self.seq) | u64::from(done_below) << 32);
        buf.set_word(2, u64::from(self.call) | u64::from(self.len) << 32);
    }

    pub(super) fn decode(message: &Received) -> Result<Header, Malformed> {
        let header = GRH_BYTES + HEADER_WORDS as u32 * 8;
        if message.status != crate::verbs::WcStatus::Success || message.byte_len < header {
            let len = message.byte_len;
            return Err(Malformed::Short { len, wanted: header.saturating_sub(len) });
        }
        // A receive takes what its size class holds, which is more than the longest message of this endpoint.
        if message.byte_len > message.buf.len() {
            return Err(Malformed::Field { field: "length", value: u64::from(message.byte_len) });
        }
        let word = |i: usize| message.buf.word(GRH_WORDS + i);
        let (first, second, third) = (word(0), word(1), word(2));
        if first & 0xff != VERSION {
            return Err(Malformed::Version(first as u8));
        }
        let kind = Kind::of(first).ok_or(Malformed::Kind((first >> 8) as u8))?;
        let len = (third >> 32) as u32;
        let have = message.byte_len - header;
        if len > have {
            return Err(Malformed::Short { len: message.byte_len, wanted: len - have });
        }
        Ok(Header {
            kind,
            handler: (first >> 16) as u8,
            from: NodeId((first >> 32) as u16),
            seq: second as u32,
            done_below: (second >> 32) as u32,
            call: third as u32,
            len,
        })
    }
}

/// Writes a payload word by word into a message buffer.
pub struct Writer<'b> {
    buf: &'b Buf,
    start: u32,
    at: u32,
    end: u32,
}

impl<'b> Writer<'b> {
    pub(super) fn new(buf: &'b Buf, start: u32, end: u32) -> Writer<'b> {
        Writer { buf, start, at: start, end }
    }

    /// Appends a word. Past the end nothing is written and [`Writer::overflowed`] tells.
    #[inline]
    pub fn word(&mut self, value: u64) {
        if self.at + 8 <= self.end {
            self.buf.set_word(self.at as usize / 8, value);
        }
        self.at += 8;
    }

    /// Appends bytes, padded to whole words.
    pub fn bytes(&mut self, bytes: &[u8]) {
        let (whole, rest) = bytes.as_chunks::<8>();
        let end = self.at + (bytes.len() as u32).next_multiple_of(8);
        if end > self.end {
            // Word by word, up to where it ends.
            whole.iter().for_each(|word| self.word(u64::from_le_bytes(*word)));
        } else if !whole.is_empty() {
            let words = &self.buf.words()[self.at as usize / 8..][..whole.len()];
            for (to, word) in words.iter().zip(whole) {
                to.store(u64::from_le_bytes(*word), Ordering::Relaxed);
            }
            self.at += 8 * whole.len() as u32;
        }
        if !rest.is_empty() {
            let mut word = [0; 8];
            word[..rest.len()].copy_from_slice(rest);
            self.word(u64::from_le_bytes(word));
        }
    }

    /// Payload bytes so far.
    pub fn len(&self) -> u32 {
        self.at - self.start
    }

    /// Whether nothing was written.
    pub fn is_empty(&self) -> bool {
        self.at == self.start
    }

    /// Whether more was written than fits.
    pub fn overflowed(&self) -> bool {
        self.at > self.end
    }
}

/// Reads a payload word by word; what a peer wrote is never trusted to be long enough.
#[derive(Clone)]
pub struct Reader<'b> {
    buf: &'b Buf,
    at: u32,
    end: u32,
}

impl<'b> Reader<'b> {
    /// The payload of a received datagram, `len` bytes.
    pub(super) fn new(buf: &'b Buf, len: u32) -> Reader<'b> {
        let at = GRH_BYTES + HEADER_WORDS as u32 * 8;
        Reader { buf, at, end: at + len }
    }

    /// The next word.
    ///
    /// # Errors
    /// If the payload ends before.
    #[inline]
    pub fn word(&mut self) -> Result<u64, Malformed> {
        if self.at + 8 > self.end {
            let len = self.end;
            return Err(Malformed::Short { len, wanted: self.at + 8 - self.end });
        }
        let value = self.buf.word(self.at as usize / 8);
        self.at += 8;
        Ok(value)
    }

    /// Bytes not yet read.
    pub fn remaining(&self) -> u32 {
        self.end - self.at
    }

    /// The region and byte offset of the next `len` bytes, for copies between regions; skips them, padded to
    /// whole words.
    ///
    /// # Errors
    /// If the payload ends before.
    pub fn place(&mut self, len: u32) -> Result<(&'b crate::mem::Region, u64), Malformed> {
        if len > self.remaining() {
            return Err(Malformed::Short { len: self.end, wanted: len - self.remaining() });
        }
        let (region, offset) = self.buf.place();
        let at = offset + u64::from(self.at);
        self.at = (self.at + len.next_multiple_of(8)).min(self.end);
        Ok((region, at))
    }
}
