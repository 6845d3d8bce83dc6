//! The version order that appended lists carry.
//!
//! Whoever reads a list sees the order in which its elements were appended, so all reads of one list must be prefixes of
//! the longest (aborted appends aside, which one reader may see and the next not). If the elements of all lists grow,
//! they are versions as they are; else each gets its place in its list.

use super::super::format::Problem;
use super::super::history::OpKind;
use super::super::index::Fate;
use super::plain::Draft;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// A read of a list.
pub(super) struct ListRead {
    /// The operation in the draft.
    pub op: usize,
    /// The elements in the arena.
    pub list: Range<usize>,
    /// The byte of the file it begins at.
    pub at: usize,
    /// Whether what it saw counts: its transaction committed.
    pub counts: bool,
}

/// Gives all reads their versions. An error with the byte it is about.
pub(super) fn resolve(draft: &mut Draft, reads: &[ListRead], arena: &[u64]) -> Result<(), (usize, Problem)> {
    let mut appended: BTreeSet<(u64, u64)> = BTreeSet::new();
    let mut committed: Vec<(u64, u64)> = Vec::new();
    let mut aborted: BTreeSet<(u64, u64)> = BTreeSet::new();
    for txn in &draft.txns {
        for op in draft.ops[txn.ops.clone()].iter().filter(|op| op.kind == OpKind::Write) {
            let element = (op.record, op.version.unwrap_or(0));
            match txn.outcome {
                Fate::Aborted => drop(aborted.insert(element)),
                Fate::InDoubt => drop(appended.insert(element)),
                Fate::Committed => {
                    appended.insert(element);
                    committed.push(element);
                }
            }
        }
    }
    aborted.retain(|element| !appended.contains(element));
    let longest = longest(draft, reads, arena, &aborted)?;
    let grows = |list: &Vec<u64>| list.is_sorted_by(|a, b| a < b);
    let in_place = |&(record, element): &(u64, u64)| {
        let Some(list) = longest.get(&record) else { return true };
        list.last().is_none_or(|&last| element > last) || list.binary_search(&element).is_ok()
    };
    let as_they_are = longest.values().all(grows) && committed.iter().all(in_place);
    for read in reads {
        draft.ops[read.op].version = arena[read.list.clone()].last().copied();
    }
    if as_they_are {
        return Ok(());
    }
    let mut places: BTreeMap<(u64, u64), u64> = BTreeMap::new();
    let mut next: BTreeMap<u64, u64> = BTreeMap::new();
    for (&record, list) in &longest {
        places.extend(list.iter().zip(1..).map(|(&element, place)| ((record, element), place)));
        next.insert(record, list.len() as u64 + 1);
    }
    for op in &mut draft.ops {
        let Some(element) = op.version else { continue };
        let place = *places.entry((op.record, element)).or_insert_with(|| {
            // Nobody saw it in a list: behind all that somebody saw.
            let next = next.entry(op.record).or_insert(1);
            *next += 1;
            *next - 1
        });
        op.version = Some(place);
    }
    Ok(())
}

/// The longest list read of each record, aborted elements aside, of which all others are prefixes.
fn longest(
    draft: &Draft,
    reads: &[ListRead],
    arena: &[u64],
    aborted: &BTreeSet<(u64, u64)>,
) -> Result<BTreeMap<u64, Vec<u64>>, (usize, Problem)> {
    let mut longest: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
    let mut seen: BTreeSet<u64> = BTreeSet::new();
    for read in reads.iter().filter(|read| read.counts) {
        let record = draft.ops[read.op].record;
        let known = longest.entry(record).or_default();
        let elements = arena[read.list.clone()].iter().copied();
        let elements = elements.filter(|&element| !aborted.contains(&(record, element)));
        let differs = known.iter().zip(elements.clone()).find(|&(&known, element)| known != element);
        if let Some((known, found)) = differs {
            let what = format!(
                "reads of list {record} disagree: {found} here where another has {known}. No version order \
                 explains both, which is an anomaly by itself (Elle's incompatible-order)"
            );
            return Err((read.at, Problem::Invalid(what)));
        }
        let more: Vec<u64> = elements.skip(known.len()).collect();
        if more.is_empty() {
            continue;
        }
        known.extend(more);
        seen.clear();
        if let Some(twice) = known.iter().find(|&&element| !seen.insert(element)) {
            let what = format!("list {record} holds {twice} twice: appended elements must be unique");
            return Err((read.at, Problem::Invalid(what)));
        }
    }
    Ok(longest)
}
