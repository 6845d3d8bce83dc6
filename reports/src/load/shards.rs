//! Shards of one experiment, measured by several processes, joined into one set of results.
//!
//! What was asked must be the same in all of them, and so must the commit that answered: half a grid measured by another
//! build is another experiment. A caller may insist; then the notes say what differed.

use polars::prelude::*;
use primitives::measure::{Shard, deciding};
use serde_json::Value;
use std::collections::BTreeSet;

use super::Results;
use super::record::Record;
use crate::error::ReportError;
use crate::human;

/// Points listed by number in a note, and shards.
const LISTED: usize = 12;

/// Joins the shards among `results`; all others are left as they are. The joined results stand where the first shard of
/// theirs stood.
///
/// # Errors
/// [`ReportError::Mixed`] if two shards of one question were not measured alike and `mixed` is not set, or if
/// their tables cannot be joined at all.
pub fn join(results: Vec<Results>, mixed: bool) -> Result<Vec<Results>, ReportError> {
    let mut joined: Vec<(Option<String>, Vec<Results>)> = Vec::new();
    for result in results {
        let record = &result.record;
        let group = record.shard.as_ref().map(|_| format!("{}\n{}", record.kind, record.title));
        match joined.iter_mut().find(|(known, _)| known.is_some() && *known == group) {
            Some((_, members)) => members.push(result),
            None => joined.push((group, vec![result])),
        }
    }
    let whole = |(group, members): (Option<String>, Vec<Results>)| match group {
        Some(_) => Ok(vec![one(members, mixed)?]),
        None => Ok(members),
    };
    Ok(joined
        .into_iter()
        .map(whole)
        .collect::<Result<Vec<_>, ReportError>>()?
        .into_iter()
        .flatten()
        .collect())
}

/// What decides the points of a record; all of its spec where this build does not know its kind.
fn asked(record: &Record) -> Value {
    match serde_json::from_value(record.kind.as_str().into()) {
        Ok(kind) => deciding(kind, &record.spec),
        Err(_) => record.spec.clone(),
    }
}

/// What tells two shards apart that should be parts of one experiment.
fn difference(a: &Results, b: &Results) -> Option<String> {
    let (x, y) = (&a.record, &b.record);
    let hash = |r: &Results| r.record.profile.as_ref().map(|p| p.hash.clone()).unwrap_or_default();
    let differ = |what: &str, x: &str, y: &str| (x != y).then(|| format!("{what} {x} and {y}"));
    differ("seeds", &x.seed.to_string(), &y.seed.to_string())
        .or_else(|| differ("commits", &x.commit, &y.commit))
        .or_else(|| differ("fabrics", &x.fabric, &y.fabric))
        .or_else(|| differ("profiles", &hash(a), &hash(b)))
        .or_else(|| (asked(x) != asked(y)).then(|| "different specs".to_owned()))
        .or_else(|| {
            differ("points in the grid:", &x.points_expected.to_string(), &y.points_expected.to_string())
        })
}

fn one(members: Vec<Results>, mixed: bool) -> Result<Results, ReportError> {
    let mut members = members.into_iter();
    let Some(mut whole) = members.next() else { return Err(ReportError::NoInput) };
    let mut names = vec![format!("{} ({})", shard(&whole), whole.label)];
    let mut seen: BTreeSet<u64> = points(&whole.points)?.into_iter().flatten().collect();
    let mut twice: BTreeSet<u64> = BTreeSet::new();
    for member in members {
        let refused = |what: String| ReportError::Mixed {
            first: whole.path.clone(),
            second: member.path.clone(),
            what,
        };
        if let Some(what) = difference(&whole, &member) {
            if !mixed {
                return Err(refused(what));
            }
            whole.notes.push(format!("{} and {} were joined despite {what}", whole.label, member.label));
        }
        if whole.points.get_column_names() != member.points.get_column_names() {
            return Err(unlike(&whole, &member));
        }
        names.push(format!("{} ({})", shard(&member), member.label));
        let here: Vec<u64> = points(&member.points)?.into_iter().flatten().collect();
        twice.extend(here.iter().filter(|p| seen.contains(p)));
        whole.points = below(&whole.points, &member.points, &seen)?;
        whole.phases = below(&whole.phases, &member.phases, &seen)?;
        whole.aborts = below(&whole.aborts, &member.aborts, &seen)?;
        seen.extend(here);
        whole.commands.extend(member.commands);
        whole.notes.extend(member.notes.into_iter().map(|note| format!("{}: {note}", member.label)));
        for note in member.record.notes {
            if !whole.record.notes.contains(&note) {
                whole.record.notes.push(note);
            }
        }
    }
    let order = |frame: &DataFrame| {
        frame
            .clone()
            .lazy()
            .sort(["point"], SortMultipleOptions::default().with_maintain_order(true))
            .collect()
    };
    (whole.points, whole.phases, whole.aborts) =
        (order(&whole.points)?, order(&whole.phases)?, order(&whole.aborts)?);
    let missing: Vec<u64> = (0..whole.record.points_expected).filter(|p| !seen.contains(p)).collect();
    whole.joined = Some(format!("joined from shards {}", names.join(", ")));
    if !missing.is_empty() {
        whole.notes.push(absent(&missing, whole.record.shard));
    }
    if !twice.is_empty() {
        whole.notes.push(format!("in several shards, the first kept: {}", listed(twice.iter())));
    }
    let ending = whole.record.shard.map(|shard| format!("-{}-of-{}", shard.index, shard.of));
    if let Some((stem, _)) = ending.and_then(|ending| whole.label.rsplit_once(&ending)) {
        whole.label = stem.to_owned();
    }
    whole.record.points_done = seen.len() as u64;
    whole.record.complete = missing.is_empty();
    whole.record.interrupted &= !whole.record.complete;
    whole.record.shard = None;
    Ok(whole)
}

/// Which columns one of them has and the other lacks.
fn unlike(a: &Results, b: &Results) -> ReportError {
    let lacks = |a: &Results, b: &Results| {
        let there = b.points.get_column_names();
        let names = a.points.get_column_names();
        listed(names.into_iter().filter(|name| !there.contains(name)).collect::<Vec<_>>().iter())
    };
    // Of two that have columns of their own each, the one with more.
    let (more, fewer) = if a.points.width() >= b.points.width() { (a, b) } else { (b, a) };
    let (first, second) = (more.path.clone(), fewer.path.clone());
    match lacks(more, fewer) {
        none if none.is_empty() => ReportError::Mixed {
            first,
            second,
            what: "columns in another order, which cannot be joined".to_owned(),
        },
        lacks => ReportError::Columns { first, second, lacks },
    }
}

/// Its share, as `2/8`.
fn shard(results: &Results) -> String {
    results.record.shard.map(|shard| shard.to_string()).unwrap_or_default()
}

/// Which points are missing, and the shards they belong to.
fn absent(missing: &[u64], shard: Option<Shard>) -> String {
    let of = shard.map_or(1, |shard| shard.of);
    let shards: BTreeSet<u64> = missing.iter().map(|p| p % of + 1).collect();
    let shards: Vec<String> = shards.iter().map(|i| format!("{i}/{of}")).collect();
    format!(
        "{} missing: {}; measure --shard {}",
        human::count(missing.len() as u64, "point"),
        listed(missing.iter()),
        listed(shards.iter())
    )
}

/// The first of them, and how many more there are.
fn listed(items: impl ExactSizeIterator<Item = impl std::fmt::Display>) -> String {
    let all = items.len();
    let first: Vec<String> = items.take(LISTED).map(|item| item.to_string()).collect();
    let more = if all > LISTED { format!(" and {} more", all - LISTED) } else { String::new() };
    format!("{}{more}", first.join(", "))
}

/// The number of each row's point.
fn points(frame: &DataFrame) -> PolarsResult<Vec<Option<u64>>> {
    let column = frame.column("point")?.cast(&DataType::UInt64)?;
    Ok(column.u64()?.iter().collect())
}

/// The rows of `more` whose points are not `known`, below those of `frame`.
fn below(frame: &DataFrame, more: &DataFrame, known: &BTreeSet<u64>) -> PolarsResult<DataFrame> {
    let fresh: BooleanChunked =
        points(more)?.into_iter().map(|p| Some(p.is_none_or(|p| !known.contains(&p)))).collect();
    frame.vstack(&more.filter(&fresh)?)
}
