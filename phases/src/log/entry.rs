//! A log entry's bytes.
//!
//! ```text
//! frame     length in bytes:31 | skip:1 | position / 8, low 32 bits
//! stamp     of the transaction
//! records   table:16 | payload words:16 | change:32,  key,  new version,  payload…
//! frame     the same again
//! ```
//!
//! The frame at both ends shows that an entry arrived whole, if the bytes of a WRITE come in the order of their addresses. FaRM (§4) and DrTM+H
//! (§5.4) take them to; that a card promises it was not looked up, and records and letters, which other coroutines look at any time, have checksums
//! instead. Carrying the entry's position the frame also tells an
//! entry from what an earlier lap left at the same place. A lone frame with the skip bit says that the entry did not
//! fit into the rest of the ring and begins at its start; its length covers the rest.
//!
//! *Change* is 0 for new values, 1 for a record that is created with them, 2 for one that is removed, which has none. A copy may
//! learn of new values before it learns that the record was created, so that makes no difference to it; it does to a
//! reader of the log.

use crate::rule::Stamp;
use crate::store::{TableId, record};
use crate::txn::{Access, Change};
use primitives::mem::Buf;

/// Bytes of an entry beside its records: two frames and the stamp.
pub const FRAME_BYTES: u32 = 24;
/// Bytes of a record in an entry beside its payload.
pub const RECORD_BYTES: u32 = 24;

const SKIP: u64 = 1 << 31;

/// Bytes of an entry with records of these many payload words.
pub fn bytes(payload_words: impl Iterator<Item = usize>) -> u32 {
    FRAME_BYTES + payload_words.map(|words| RECORD_BYTES + words as u32 * 8).sum::<u32>()
}

/// A frame word.
fn frame_word(len: u32, skip: bool, position: u64) -> u64 {
    u64::from(len) | if skip { SKIP } else { 0 } | (position / 8) << 32
}

/// What stands at a position of a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Frame {
    /// An entry of this many bytes.
    Entry(u32),
    /// Nothing up to the ring's end, this many bytes away.
    Skip(u32),
}

/// Reads a frame that should stand at `position`.
pub(crate) fn parse(word: u64, position: u64) -> Option<Frame> {
    let len = word as u32 & !(SKIP as u32);
    if word >> 32 != (position / 8) & 0xffff_ffff || !len.is_multiple_of(8) || len == 0 {
        return None;
    }
    Some(if word & SKIP != 0 { Frame::Skip(len) } else { Frame::Entry(len) })
}

/// Fills an entry's stamp and records.
pub(crate) struct Builder<'b> {
    buf: &'b Buf,
    at: usize,
}

impl<'b> Builder<'b> {
    pub(crate) fn new(buf: &'b Buf, stamp: Stamp) -> Builder<'b> {
        buf.set_word(1, stamp.0);
        Builder { buf, at: 2 }
    }

    pub(crate) fn record(&mut self, access: &Access, version: u64) {
        let words = access.logged_words();
        let what = u64::from(access.table.0) << 48 | (words as u64) << 32 | access.change as u64;
        self.buf.set_word(self.at, what);
        self.buf.set_word(self.at + 1, access.key);
        self.buf.set_word(self.at + 2, version);
        if words > 0 {
            let to = &self.buf.words()[self.at + 3..][..words];
            record::copy_words(access.values(), to);
        }
        self.at += 3 + words;
    }
}

/// Writes both frames of an entry and, behind it, the frame that skips to the ring's start if that is needed.
pub(crate) fn frame(buf: &Buf, len: u32, position: u64, skip: Option<u64>) {
    let word = frame_word(len, false, position);
    buf.set_word(0, word);
    buf.set_word(len as usize / 8 - 1, word);
    if let Some(from) = skip {
        buf.set_word(len as usize / 8, frame_word((position - from) as u32, true, from));
    }
}

/// The head of a record in an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RecordHead {
    pub(crate) table: TableId,
    pub(crate) payload_words: u32,
    /// It was removed.
    pub(crate) removed: bool,
    pub(crate) key: u64,
    pub(crate) version: u64,
}

impl RecordHead {
    /// From the record's first three words; `None` if they say what no transaction does.
    pub(crate) fn new(words: [u64; 3]) -> Option<RecordHead> {
        let removed = words[0] as u32 == Change::Delete as u32;
        (removed || matches!(words[0] as u32, 0 | 1)).then_some(RecordHead {
            table: TableId((words[0] >> 48) as u16),
            payload_words: (words[0] >> 32) as u32 & 0xffff,
            removed,
            key: words[1],
            version: words[2],
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_know_their_place() {
        for position in [0, 8, 1024, 1 << 34, (1 << 35) + 8] {
            for skip in [false, true] {
                let word = frame_word(48, skip, position);
                let want = if skip { Frame::Skip(48) } else { Frame::Entry(48) };
                assert_eq!(parse(word, position), Some(want));
                assert_eq!(parse(word, position + 8), None);
                assert_eq!(parse(word, position + 1024), None, "an earlier lap");
            }
        }
        assert_eq!(parse(0, 0), None, "zeroed memory");
        assert_eq!(parse(frame_word(12, false, 0), 0), None, "not whole words");
    }
}
