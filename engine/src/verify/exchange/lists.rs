//! The version order that appended lists carry.
//!
//! Whoever reads a list sees the order in which its elements were appended, so all reads of one list must be prefixes of
//! the longest, and no list has an element twice; a list that is not so is a [`Disorder`]. If the elements of all lists
//! grow, they are versions as they are; else each gets its place in its list. Elements that nobody read come behind all
//! others, in the order their appenders ended in: a guess where these overlapped, and a cycle can come of it. A last
//! transaction that reads all lists leaves nothing to guess.
//!
//! A list that was read becomes a read of its last element, which tells all the others. What it does not tell is said
//! beside it. An element that nobody appended, or only one who aborted, is not in the order (one reader may see it and
//! the next not): where it is not the last it becomes a read of its own, ahead of all else that its reader did. And who
//! was in doubt and had an element read took effect: if it never was the last, the history says committed.

use super::super::direct::Direct;
use super::super::history::OpKind;
use super::super::index::Fate;
use super::super::verdict::{Conflict, Dependency, Kind};
use super::plain::{self, Draft, DraftOp};
use std::collections::BTreeMap;
use std::ops::Range;

/// A read of a list.
pub(super) struct ListRead {
    /// Its transaction in the draft.
    pub txn: usize,
    /// The operation in the draft.
    pub op: usize,
    /// The elements in the arena.
    pub list: Range<usize>,
}

/// A list that no order of its elements explains, or not one that explains another read of it, too.
pub(super) struct Disorder {
    here: Sight,
    /// What another read has in its place; nothing if this one has the element twice.
    there: Option<Sight>,
}

/// An element that somebody read.
#[derive(Clone, Copy)]
struct Sight {
    element: u64,
    reader: usize,
    writer: Appender,
}

/// Who appended an element: who committed, else who was in doubt, else who aborted.
#[derive(Clone, Copy)]
struct Appender {
    fate: Fate,
    txn: usize,
    op: usize,
    /// Whether no other transaction of that fate did.
    alone: bool,
}

impl Disorder {
    /// The anomaly, in a history of the draft's operations without its `folded` first transactions.
    pub fn told(&self, ops: &[DraftOp], folded: usize) -> Direct {
        let version = |sight: &Sight| ops[sight.writer.op].version.unwrap_or(0);
        let key = plain::record(ops[self.here.writer.op].record);
        let (mut txns, mut edges) = (Vec::new(), Vec::new());
        for sight in [Some(&self.here), self.there.as_ref()].into_iter().flatten() {
            let place = |txn: usize| txn.checked_sub(folded).map(|n| n as u32);
            let (writer, reader) = (place(sight.writer.txn), place(sight.reader));
            txns.extend(writer.into_iter().chain(reader));
            if let (Some(from), Some(to)) = (writer, reader)
                && from != to
            {
                let (from_version, to_version) = (version(sight), version(sight));
                let on = Conflict { table: key.table, key: key.key, from_version, to_version };
                edges.push((from, to, Dependency::Wr, on));
            }
        }
        txns.sort_unstable();
        txns.dedup();
        let element = self.here.element;
        let detail = match &self.there {
            Some(there) => {
                let other = there.element;
                format!("element {element} was read where another read of the list has element {other}")
            }
            None => format!("a read of the list has element {element} twice"),
        };
        let (table, key, version) = (key.table, key.key, version(&self.here));
        Direct { kind: Kind::IncompatibleOrder, table, key, version, txns, edges, detail }
    }
}

/// Gives all reads their versions. Returns whether one order for each list explains them all.
pub(super) fn resolve(draft: &mut Draft, reads: &[ListRead], arena: &[u64]) -> bool {
    let appenders = appenders(draft);
    let mut active: Vec<bool> = draft.txns.iter().map(|txn| txn.outcome == Fate::Committed).collect();
    // Whom the checker will take to have committed by itself.
    spread(&mut active, reads, |read, found| {
        let last = arena[read.list.clone()].last().map(|&element| (draft.ops[read.op].record, element));
        let writer = last.and_then(|element| appenders.get(&element));
        found.extend(writer.filter(|w| w.in_doubt()).map(|w| w.txn));
    });
    let mut orders = Orders::of(&appenders);
    let fresh = spread(&mut active, reads, |read, found| {
        orders.read(read, draft.ops[read.op].record, &arena[read.list.clone()], found);
    });
    let Orders { longest, mut places, aside, zero, sound, disorders, .. } = orders;
    let grows = |list: &Vec<Sight>| list.is_sorted_by(|a, b| a.element < b.element);
    // What nobody saw comes behind all that somebody saw, as its appenders ended.
    let unseen: Vec<(u64, u64, usize)> = appenders
        .iter()
        .filter(|(element, by)| active[by.txn] && !places.contains_key(element))
        .map(|(&(record, element), by)| (record, element, by.op))
        .collect();
    let behind = |&(record, element, _): &(u64, u64, usize)| {
        let last = longest.get(&record).and_then(|list| list.last());
        last.is_none_or(|last| element > last.element)
    };
    let as_they_are = !zero
        && longest.values().all(grows)
        && unseen.iter().all(behind)
        && unseen.is_sorted_by(|a, b| a.0 != b.0 || a.2 < b.2);

    for read in reads {
        draft.ops[read.op].version = arena[read.list.clone()].last().copied();
    }
    for seen in aside.chunk_by(|a, b| a.0 == b.0) {
        let (start, ops) = (draft.ops.len(), draft.txns[seen[0].0].ops.clone());
        draft.ops.extend(seen.iter().map(|&(_, op)| op));
        draft.ops.extend_from_within(ops);
        draft.txns[seen[0].0].ops = start..draft.ops.len();
    }
    // Nobody learned of its end, so nobody begins behind it.
    let end = draft.txns.iter().map(|txn| txn.invoke).max();
    for txn in fresh {
        draft.txns[txn].outcome = Fate::Committed;
        draft.txns[txn].ret = end;
    }
    draft.disorders = disorders;
    if as_they_are {
        return sound;
    }
    let mut next: BTreeMap<u64, u64> =
        longest.iter().map(|(&record, list)| (record, list.len() as u64 + 1)).collect();
    for op in &mut draft.ops {
        let Some(element) = op.version else { continue };
        let place = *places.entry((op.record, element)).or_insert_with(|| {
            let next = next.entry(op.record).or_insert(1);
            *next += 1;
            *next - 1
        });
        op.version = Some(place);
    }
    sound
}

/// All elements with their appenders.
fn appenders(draft: &Draft) -> BTreeMap<(u64, u64), Appender> {
    let mut appenders = BTreeMap::new();
    for fate in [Fate::Committed, Fate::InDoubt, Fate::Aborted] {
        for (txn, slot) in draft.txns.iter().enumerate().filter(|(_, slot)| slot.outcome == fate) {
            for op in slot.ops.clone().filter(|&op| draft.ops[op].kind == OpKind::Write) {
                let element = (draft.ops[op].record, draft.ops[op].version.unwrap_or(0));
                let known: &mut Appender =
                    appenders.entry(element).or_insert(Appender { fate, txn, op, alone: true });
                known.alone &= known.fate != fate || known.txn == txn;
            }
        }
    }
    appenders
}

impl Appender {
    /// Whether a reader shows that it took effect.
    fn in_doubt(&self) -> bool {
        self.fate == Fate::InDoubt && self.alone
    }
}

/// Shows `see` the reads of all who took effect, and of those whom it finds to have. Returns these.
fn spread(
    active: &mut [bool],
    reads: &[ListRead],
    mut see: impl FnMut(&ListRead, &mut Vec<usize>),
) -> Vec<usize> {
    let by_txn: BTreeMap<usize, &[ListRead]> =
        reads.chunk_by(|a, b| a.txn == b.txn).map(|reads| (reads[0].txn, reads)).collect();
    let mut queue: Vec<usize> = by_txn.keys().copied().filter(|&txn| active[txn]).collect();
    let (mut at, mut found, mut fresh) = (0, Vec::new(), Vec::new());
    while at < queue.len() {
        by_txn.get(&queue[at]).into_iter().copied().flatten().for_each(|read| see(read, &mut found));
        at += 1;
        for txn in found.drain(..) {
            if !std::mem::replace(&mut active[txn], true) {
                queue.push(txn);
                fresh.push(txn);
            }
        }
    }
    fresh
}

/// What the lists say together.
struct Orders<'a> {
    appenders: &'a BTreeMap<(u64, u64), Appender>,
    /// The longest list of each record, with who first read so far.
    longest: BTreeMap<u64, Vec<Sight>>,
    /// The place of each element in it, from 1.
    places: BTreeMap<(u64, u64), u64>,
    /// Reads of elements in no order, by transaction.
    aside: Vec<(usize, DraftOp)>,
    /// Whether one of these is a 0 that nobody appended, which must not be taken for the initial version.
    zero: bool,
    sound: bool,
    disorders: Vec<Disorder>,
}

impl<'a> Orders<'a> {
    fn of(appenders: &'a BTreeMap<(u64, u64), Appender>) -> Orders<'a> {
        let (longest, places) = (BTreeMap::new(), BTreeMap::new());
        let (aside, disorders) = (Vec::new(), Vec::new());
        Orders { appenders, longest, places, aside, zero: false, sound: true, disorders }
    }

    /// A list that counts. `found` gets those in doubt who appended to it.
    fn read(&mut self, read: &ListRead, record: u64, list: &[u64], found: &mut Vec<usize>) {
        let known = self.longest.entry(record).or_default();
        // How much of the order this list has, until it leaves it.
        let mut at = Some(0);
        for (n, &element) in list.iter().enumerate() {
            let next = at.and_then(|at| known.get(at)).copied();
            if let Some(at) = at.as_mut().filter(|_| next.is_some_and(|next| next.element == element)) {
                *at += 1;
                continue;
            }
            let writer = self.appenders.get(&(record, element)).copied();
            let Some(writer) = writer.filter(|w| w.fate != Fate::Aborted) else {
                self.zero |= element == 0 && writer.is_none();
                self.sound = false;
                if n + 1 < list.len() {
                    let op = DraftOp { kind: OpKind::Read, record, version: Some(element) };
                    self.aside.push((read.txn, op));
                }
                continue;
            };
            found.extend(writer.in_doubt().then_some(writer.txn));
            let Some(place) = at else { continue };
            let here = Sight { element, reader: read.txn, writer };
            let twice = self.places.get(&(record, element)).is_some_and(|&known| known <= place as u64);
            if !twice && next.is_none() {
                known.push(here);
                self.places.insert((record, element), known.len() as u64);
                at = Some(place + 1);
                continue;
            }
            self.disorders.push(Disorder { here, there: next.filter(|_| !twice) });
            self.sound = false;
            at = None;
        }
    }
}
