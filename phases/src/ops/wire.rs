//! The messages of two-sided operations, word by word.
//!
//! | handler  | request | reply |
//! |----------|---------|-------|
//! | FETCH    | name, key | outcome, header, payload… |
//! | LOCK     | name, key, stamp, read header and rule | outcome; header, payload… if the record was not read |
//! | VALIDATE | name, key, read header and rule | outcome |
//! | INSTALL  | name, key, new header, payload… | outcome |
//! | UNLOCK   | name, key, locked header | outcome |
//! | APPEND   | ring position, words… | outcome |
//! | TRUNCATE | ring position | outcome, head position |
//! | PING     | | outcome |
//!
//! A *name* is `table:16 | offset:48`, where the offset is that of the record if the requester knows it, else 0; the
//! owner trusts it only if the record's key agrees. An *outcome* is `status:16 | offset:48`: status 0 is success, the
//! offset refills the requester's location cache. A header and a rule share a word: `rule:24 | read:1 | version:39`.

use super::owner;
use crate::rule::{Abort, CheckRule, Header, LockRule, Stamp};
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
const READ: u64 = 1 << 39;
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

pub(super) fn write_lock(out: &mut Writer<'_>, rule: LockRule, read: Option<Header>) {
    let [stamp, conflict] = rule.encode();
    out.word(stamp);
    out.word(conflict << RULE_SHIFT | read.map_or(0, |h| READ | h.version()));
}

pub(super) fn read_lock(from: &mut Reader<'_>) -> Result<(LockRule, Option<Header>), Malformed> {
    let stamp = from.word()?;
    let word = from.word()?;
    let rule = LockRule::decode([Stamp(stamp).0, word >> RULE_SHIFT])?;
    Ok((rule, (word & READ != 0).then(|| Header::new(word))))
}

pub(super) fn write_check(out: &mut Writer<'_>, rule: CheckRule, read: Header) {
    out.word(rule.encode() << RULE_SHIFT | read.version());
}

pub(super) fn read_check(from: &mut Reader<'_>) -> Result<(CheckRule, Header), Malformed> {
    let word = from.word()?;
    Ok((CheckRule::decode(word >> RULE_SHIFT)?, Header::new(word)))
}
