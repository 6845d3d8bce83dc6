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
//! | PING     | | outcome, whose offset is 1 if the run has failed there |
//! | RESERVE  | name, key, who asks, rule, `known:1, 0, version:39` that stood for the absence | outcome, header, version; leaf, its version before and after, leaf split off and its version, if there is a tree |
//! | UNDO     | name, key, header as held | outcome |
//! | REMOVE   | name, key, new version | outcome |
//! | ABSENT   | name, key, version that stands for the absence, time until which it has to | outcome |
//! | SCAN     | table and limit as a name, first key, last key, order, time | outcome; `ended:1, rows:16, leaves:16`; time of the last removal; leaves with versions; of each row: key, offset (0: ask again), record unless the range only names keys |
//! | LEAVES   | table and shard as a name, how many; time until which they have to stand; leaves with versions | outcome |
//! | LETTER   | place, head and checksum of the letter, first word of the piece, words… | outcome |
//!
//! A *name* is `table:16 | offset:48`, where the offset is that of the record if the requester knows it, else 0; the
//! owner trusts it only if the record's key agrees. An *outcome* is `status:16 | offset:48`: status 0 is success, the
//! offset refills the requester's location cache; of a record that is not there it is the version that stands for its absence. A version and a rule share a word: `rule:24 | read:1 | version:39`. A *record* is
//! its first word, its version if that is another word, and its payload. Where versions are kept, its first word is replaced
//! by `slot:8 | 0:1 | seen:55`, the slot that is written next and the latest timestamp seen there, and a denial has that
//! word, too: clocks follow it.

use super::owner;
use crate::plan::Phase;
use crate::rule::{Abort, Ask, CheckRule, Header, LockRule, Packing, Timestamp, time};
use crate::store::{Grown, PAGE_LEAVES, PAGE_ROWS, Page, Shape, TableId, record};
use crate::txn::{Order, Scan};
use primitives::rpc::{Malformed, Reader, Writer};

pub(super) const FETCH: u8 = 1;
pub(super) const LOCK: u8 = 2;
pub(super) const VALIDATE: u8 = 3;
pub(super) const INSTALL: u8 = 4;
pub(super) const UNLOCK: u8 = 5;
pub(crate) const APPEND: u8 = 6;
pub(crate) const TRUNCATE: u8 = 7;
pub(super) const PING: u8 = 8;
pub(super) const RESERVE: u8 = 9;
pub(super) const UNDO: u8 = 10;
pub(super) const REMOVE: u8 = 11;
pub(super) const ABSENT: u8 = 12;
pub(super) const SCAN: u8 = 13;
pub(super) const LEAVES: u8 = 14;
pub(super) const LETTER: u8 = 15;

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
    /// There is no such record, which this version stands for.
    Absent(u64),
    /// Denied.
    Denied(Abort),
}

impl Outcome {
    pub(super) fn read(from: &mut Reader<'_>) -> Result<Outcome, Malformed> {
        let word = from.word()?;
        match word >> OFFSET_BITS {
            owner::WAIT => Ok(Outcome::Wait),
            owner::NOT_FOUND => Ok(Outcome::Absent(Header::new(word).version())),
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

/// Bytes of a message in front of its payload.
pub(crate) const MESSAGE_HEADER: u32 = 24;

/// Bytes of a reply with a record: outcome, first word, version if that is another word, payload.
pub(crate) const fn record_reply(packing: Packing, payload: u32) -> u32 {
    let words = if matches!(packing, Packing::Locked | Packing::Versions) { 3 } else { 2 };
    words * 8 + payload
}

/// Bytes of an INSTALL request: name, key, version, payload.
pub(crate) const fn install_request(payload: u32) -> u32 {
    3 * 8 + payload
}

/// Bytes of the longest message that a phase needs to carry a record of so much payload; 0 where it carries none, or in
/// pieces.
pub(crate) const fn longest_message(phase: Phase, packing: Packing, payload: u32) -> u32 {
    match phase {
        Phase::Fetch | Phase::Lock => MESSAGE_HEADER + record_reply(packing, payload),
        Phase::Install => MESSAGE_HEADER + install_request(payload),
        Phase::Validate | Phase::Log | Phase::Unlock => 0,
    }
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

/// The version that stood for an absence, if it is known.
pub(super) fn write_absence(out: &mut Writer<'_>, absent: Option<u64>) {
    out.word(absent.map_or(0, |version| 1 << 63 | Header::new(version).version()));
}

/// The same from a request.
pub(super) fn read_absence(from: &mut Reader<'_>) -> Result<Option<u64>, Malformed> {
    let word = Header(from.word()?);
    Ok(word.locked().then_some(word.version()))
}

/// What a reservation did to the tree; zeros if there is none.
pub(super) fn write_grown(out: &mut Writer<'_>, grown: Option<Grown>) {
    let Grown { leaf, before, after, split } = grown.unwrap_or_default();
    out.word(u64::from(grown.is_some()) << 33 | u64::from(split.is_some()) << 32 | u64::from(leaf));
    out.word(before);
    out.word(after);
    let (leaf, version) = split.unwrap_or_default();
    out.word(u64::from(leaf));
    out.word(version);
}

/// The same from a reply.
pub(super) fn read_grown(from: &mut Reader<'_>) -> Result<Option<Grown>, Malformed> {
    let word = from.word()?;
    let (before, after) = (from.word()?, from.word()?);
    let (new, version) = (from.word()? as u32, from.word()?);
    let split = (word >> 32 & 1 == 1).then_some((new, version));
    Ok((word >> 33 & 1 == 1).then_some(Grown { leaf: word as u32, before, after, split }))
}

/// A scan's request, of a transaction at `time`.
pub(super) fn write_scan(out: &mut Writer<'_>, scan: &Scan, time: Timestamp) {
    Name { table: scan.table, offset: scan.limit as u64, key: scan.from }.write(out);
    out.word(scan.to);
    out.word(scan.order as u64);
    out.word(time.0);
}

/// The same at the owner; limits beyond 2⁴⁸ make no sense and are cut off.
pub(super) fn read_scan(from: &mut Reader<'_>) -> Result<(Scan, Timestamp), Malformed> {
    let Name { table, offset, key } = Name::read(from)?;
    let to = from.word()?;
    let order = match from.word()? {
        0 => Order::Ascending,
        1 => Order::Descending,
        value => return Err(Malformed::Field { field: "scan order", value }),
    };
    Ok((Scan { table, from: key, to, limit: offset as usize, order }, read_time(from)?))
}

/// Rows of a scan that a reply of so many words has room for.
pub(super) fn rows_per_page(shape: Shape, reply_words: usize) -> usize {
    reply_words.saturating_sub(3 + 2 * PAGE_LEAVES) / (2 + row_words(shape))
}

const ENDED: u64 = 1 << 32;

/// What a page has.
pub(super) fn write_page(out: &mut Writer<'_>, page: &Page) {
    let ended = if page.ended { ENDED } else { 0 };
    out.word(ended | (page.rows().len() as u64) << 16 | page.leaves().len() as u64);
    out.word(page.removed_at);
    for &(leaf, version) in page.leaves() {
        out.word(u64::from(leaf));
        out.word(version);
    }
}

/// Whether the range has ended, how many rows the page has, how many leaves, and when a key last went from them.
pub(super) fn read_page(from: &mut Reader<'_>) -> Result<(bool, usize, usize, u64), Malformed> {
    let word = from.word()?;
    let (rows, leaves) = ((word >> 16 & 0xffff) as usize, (word & 0xffff) as usize);
    if rows > PAGE_ROWS || leaves > PAGE_LEAVES || word >> 33 != 0 {
        return Err(Malformed::Field { field: "page", value: word });
    }
    Ok((word & ENDED != 0, rows, leaves, from.word()?))
}

/// Which leaves to look at.
pub(super) fn write_leaves(
    out: &mut Writer<'_>,
    table: TableId,
    shard: u16,
    count: usize,
    until: u64,
    leaves: impl Iterator<Item = (u32, u64)>,
) {
    Name { table, offset: u64::from(shard), key: count as u64 }.write(out);
    out.word(until);
    for (leaf, version) in leaves {
        out.word(u64::from(leaf));
        out.word(version);
    }
}

/// Words that a row's record takes in a page: none where the range only names keys.
pub(super) fn row_words(shape: Shape) -> usize {
    if shape.packing.ranges_name_keys() {
        return 0;
    }
    1 + usize::from(names_version(shape.packing)) + shape.payload as usize
}
