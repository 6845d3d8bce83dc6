//! The messages of two-sided operations, word by word.
//!
//! | handler  | request | reply |
//! |----------|---------|-------|
//! | FETCH    | name, key | outcome, record |
//! | LOCK     | name, key, who asks, read version and rule | outcome; record, unless its header was known |
//! | VALIDATE | name, key, read version and rule, the rule's word if it has one | outcome |
//! | INSTALL  | name, key, new version, payload… | outcome |
//! | UNLOCK   | name, key, lock word as held | outcome |
//! | APPEND   | ring position, words… | outcome |
//! | TRUNCATE | ring position | outcome, head position |
//! | PING     | | outcome |
//!
//! A *name* is `table:16 | offset:48`, where the offset is that of the record if the requester knows it, else 0; the
//! owner trusts it only if the record's key agrees. An *outcome* is `status:16 | offset:48`: status 0 is success, the
//! offset refills the requester's location cache. A version and a rule share a word: `rule:24 | read:1 | version:39`. A *record* is
//! its first word, its version if that is another word, and its payload.

use super::owner;
use crate::rule::{Abort, Ask, CheckRule, Header, LockRule, Packing};
use crate::store::TableId;
use primitives::rpc::{Malformed, Reader, Writer};

pub(super) const FETCH: u8 = 1;
pub(super) const LOCK: u8 = 2;
pub(super) const VALIDATE: u8 = 3;
pub(super) const INSTALL: u8 = 4;
pub(super) const UNLOCK: u8 = 5;
pub(crate) const APPEND: u8 = 6;
pub(crate) const TRUNCATE: u8 = 7;
pub(super) const PING: u8 = 8;

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

pub(super) fn write_check(out: &mut Writer<'_>, rule: CheckRule, read: u64) {
    let (number, word) = rule.encode();
    out.word(number << RULE_SHIFT | Header::new(read).version());
    if let Some(word) = word {
        out.word(word);
    }
}

pub(super) fn read_check(from: &mut Reader<'_>) -> Result<(CheckRule, u64), Malformed> {
    let word = from.word()?;
    let has_word = CheckRule::has_word(word >> RULE_SHIFT)?;
    let rule = CheckRule::decode(if has_word { Some(from.word()?) } else { None });
    Ok((rule, Header::new(word).version()))
}
