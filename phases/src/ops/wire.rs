//! The messages of two-sided operations, word by word.
//!
//! | handler  | request | reply |
//! |----------|---------|-------|
//! | FETCH    | name, key, time if versions are kept | outcome, record |
//! | LOCK     | name, key, who asks, read version and rule | outcome; record, unless its header was known |
//! | VALIDATE | name, key, read version and rule, the rule's word if it has one; where versions are kept rule, time, version | outcome |
//! | INSTALL  | name, key, new version, payload… | outcome |
//! | UNLOCK   | name, key, lock word as held | outcome |
//! | APPEND   | ring position, words… | outcome |
//! | TRUNCATE | ring position | outcome, head position |
//! | PING     | | outcome |
//! | LETTER   | place, head and checksum of the letter, first word of the piece, words… | outcome |
//!
//! A *name* is `table:16 | offset:48`, where the offset is that of the record if the requester knows it, else 0; the
//! owner trusts it only if the record's key agrees. An *outcome* is `status:16 | offset:48`: status 0 is success, the
//! offset refills the requester's location cache. A version and a rule share a word: `rule:24 | read:1 | version:39`. A *record* is
//! its first word, its version if that is another word, and its payload. Where versions are kept, its first word is replaced
//! by `slot:8 | 0:1 | seen:55`, the slot that is written next and the latest timestamp seen there, and a denial has that
//! word, too: clocks follow it.

use super::owner;
use crate::rule::{Abort, Ask, CheckRule, Header, LockRule, Packing, Timestamp, time};
use crate::store::{TableId, record};
use primitives::rpc::{Malformed, Reader, Writer};

pub(super) const FETCH: u8 = 1;
pub(super) const LOCK: u8 = 2;
pub(super) const VALIDATE: u8 = 3;
pub(super) const INSTALL: u8 = 4;
pub(super) const UNLOCK: u8 = 5;
pub(crate) const APPEND: u8 = 6;
pub(crate) const TRUNCATE: u8 = 7;
pub(super) const PING: u8 = 8;
pub(super) const LETTER: u8 = 9;

const OFFSET_BITS: u32 = 48;
const OFFSET_MASK: u64 = (1 << OFFSET_BITS) - 1;
const RULE_SHIFT: u32 = 40;

/// Which record a request is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Name {
    pub(super) table: TableId,
    /// Where the requester believes it to be; 0 if it does not know.
    pub(super) offset: u64,
    pub(super) key: u64,
}

impl Name {
    pub(super) fn write(self, out: &mut Writer<'_>) {
        out.word(u64::from(self.table.0) << OFFSET_BITS | self.offset & OFFSET_MASK);
        out.word(self.key);
    }

    pub(super) fn read(from: &mut Reader<'_>) -> Result<Name, Malformed> {
        let word = from.word()?;
        let table = TableId((word >> OFFSET_BITS) as u16);
        Ok(Name { table, offset: word & OFFSET_MASK, key: from.word()? })
    }
}

/// How a request ended, as a word of its reply.
pub(super) fn write_outcome(out: &mut Writer<'_>, status: u64, offset: u64) {
    out.word(status << OFFSET_BITS | offset & OFFSET_MASK);
}

/// How a request ended, as the requester sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// Done; the record lies at this offset.
    Done(u64),
    /// Ask again.
    Wait,
    /// Denied.
    Denied(Abort),
}

impl Outcome {
    pub(super) fn read(from: &mut Reader<'_>) -> Result<Outcome, Malformed> {
        let word = from.word()?;
        match word >> OFFSET_BITS {
            owner::WAIT => Ok(Outcome::Wait),
            status => match Abort::decode(status)? {
                None => Ok(Outcome::Done(word & OFFSET_MASK)),
                Some(abort) => Ok(Outcome::Denied(abort)),
            },
        }
    }
}

/// Whether a record's version is another word than its first one.
pub(super) fn names_version(packing: Packing) -> bool {
    matches!(packing, Packing::Locked | Packing::Versions)
}

/// Whether a granted lock's reply has the record. It is known already where its version was checked (OCC) or it was locked
/// before (an upgrade); elsewhere readers may have changed its first word meanwhile.
pub(super) fn lock_brings_record(packing: Packing, ask: Ask) -> bool {
    match packing {
        Packing::Counted => ask.read.is_none(),
        Packing::Locked => !ask.held,
        Packing::Leased | Packing::Versions => true,
    }
}

pub(super) fn write_lock(out: &mut Writer<'_>, rule: LockRule, ask: Ask) {
    let [who, word] = rule.encode(ask);
    out.word(who);
    out.word(word);
}

pub(super) fn read_lock(from: &mut Reader<'_>) -> Result<(LockRule, Ask), Malformed> {
    LockRule::decode([from.word()?, from.word()?])
}

pub(super) fn write_check(out: &mut Writer<'_>, rule: CheckRule, read: u64, time: Timestamp) {
    let (number, word) = rule.encode();
    if rule == CheckRule::ReadAt {
        out.word(number << RULE_SHIFT);
        out.word(time.0);
        return out.word(read);
    }
    out.word(number << RULE_SHIFT | Header::new(read).version());
    if let Some(word) = word {
        out.word(word);
    }
}

/// The rule, the version read, and the reader's place in the order.
pub(super) fn read_check(from: &mut Reader<'_>) -> Result<(CheckRule, u64, Timestamp), Malformed> {
    let word = from.word()?;
    let rule = CheckRule::decode(word >> RULE_SHIFT, || from.word())?;
    match rule {
        CheckRule::ReadAt => {
            let time = read_time(from)?;
            Ok((rule, from.word()?, time))
        }
        _ => Ok((rule, Header::new(word).version(), Timestamp(0))),
    }
}

/// A timestamp of a peer.
pub(super) fn read_time(from: &mut Reader<'_>) -> Result<Timestamp, Malformed> {
    match from.word()? {
        value if value >> time::BITS != 0 => Err(Malformed::Field { field: "timestamp", value }),
        value => Ok(Timestamp(value)),
    }
}

/// The word that stands for the first one of a multi-version record: the slot written next, and the latest timestamp seen.
pub(super) fn seen_word(victim: usize, seen: u64) -> u64 {
    (victim as u64) << 56 | seen & ((1 << time::BITS) - 1)
}

/// Both from that word; a slot that cannot be is a peer's mistake.
pub(super) fn read_seen(word: u64) -> Result<(u8, Timestamp), Malformed> {
    let victim = (word >> 56) as u8;
    if usize::from(victim) >= record::SLOTS {
        return Err(Malformed::Field { field: "version slot", value: word });
    }
    Ok((victim, Timestamp(word & ((1 << time::BITS) - 1))))
}
