//! The levels and the check: direct anomalies, then cycles of dependencies, then real time or fractured reads.

use super::alternate;
use super::cycle::{Search, Step};
use super::direct::{self, Direct, Findings};
use super::fractured::{self, Fracture};
use super::graph::{Graph, Label, Mask, pass};
use super::history::{History, Outcome, Txn};
use super::index::{Index, Item};
use super::verdict::*;
use serde::Serialize;
use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

/// What to check a history for, the weakest first. Each level demands what the ones before it do.
///
/// All but the last are about dependencies alone: neither real time nor the order within a session counts. The version
/// order is that of the version numbers ([`Op::version`](super::Op)), never inferred. Every level refuses a history
/// whose versions or reads make no sense by themselves (a version read that nobody wrote, or not as it was written, written twice, or older than
/// one the same transaction wrote before; a list read in two orders).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Level {
    /// Adya's PL-2 (thesis §3.2.2): no dirty writes (G0), no aborted (G1a), intermediate (G1b) or circular (G1c) reads.
    ReadCommitted,
    /// Read atomicity of RAMP (Bailis et al., SIGMOD 2014): read committed, and no fractured reads. Also what others
    /// call cut isolation: no transaction sees two versions of a record but its own. Where scans read the absence of records more than twenty
    /// million times ([`History::one_by_one`]), fractures that only these show are missed.
    ReadAtomicity,
    /// Snapshot isolation with the version order known (Cerone and Gotsman, JACM 2018): every cycle has two adjacent
    /// anti-dependencies. Snapshots may be old: no real time.
    SnapshotIsolation,
    /// Adya's PL-2.99 (§3.2.4): no cycle of ww, wr and *item* anti-dependencies (G2-item). It differs from
    /// serializable in predicate reads alone. In histories those are reads of every key of a range, so the verdict is that of
    /// serializable.
    RepeatableRead,
    /// Some serial order explains all reads (PL-3).
    Serializable,
    /// And it respects real time: who returned before another began comes first.
    StrictSerializable,
}

impl Level {
    /// All levels, the weakest first.
    pub const ALL: [Level; 6] = [
        Level::ReadCommitted,
        Level::ReadAtomicity,
        Level::SnapshotIsolation,
        Level::RepeatableRead,
        Level::Serializable,
        Level::StrictSerializable,
    ];

    /// The name on the command line and in verdicts.
    pub const fn name(self) -> &'static str {
        match self {
            Level::ReadCommitted => "read-committed",
            Level::ReadAtomicity => "read-atomicity",
            Level::SnapshotIsolation => "snapshot-isolation",
            Level::RepeatableRead => "repeatable-read",
            Level::Serializable => "serializable",
            Level::StrictSerializable => "strict-serializable",
        }
    }

    /// Whether a history with an anomaly of this kind is not of the level.
    pub const fn forbids(self, kind: Kind) -> bool {
        match kind {
            Kind::UnwrittenRead | Kind::TornRead | Kind::DuplicateVersion => true,
            Kind::IncompatibleOrder | Kind::NonMonotonicVersion => true,
            Kind::G1a | Kind::G1b | Kind::Internal | Kind::G0 | Kind::G1c => true,
            Kind::FracturedRead => !matches!(self, Level::ReadCommitted),
            Kind::GSingle | Kind::GNonadjacent => {
                !matches!(self, Level::ReadCommitted | Level::ReadAtomicity)
            }
            Kind::G2 => {
                matches!(self, Level::RepeatableRead | Level::Serializable | Level::StrictSerializable)
            }
            Kind::RealTime => matches!(self, Level::StrictSerializable),
        }
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Not the name of a level.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no isolation level is called {0:?}; there are {all}", all = Level::ALL.map(Level::name).join(", "))]
pub struct UnknownLevel(pub String);

impl FromStr for Level {
    type Err = UnknownLevel;

    fn from_str(name: &str) -> std::result::Result<Level, UnknownLevel> {
        Level::ALL.into_iter().find(|level| level.name() == name).ok_or_else(|| UnknownLevel(name.to_owned()))
    }
}

/// Reads of absent keys that read atomicity, which is about pairs, has written down one by one: a gigabyte of them.
const ONE_BY_ONE: usize = 20_000_000;

/// Judges a history.
///
/// Time is that of sorting the operations plus one pass over the dependencies; memory about 60 bytes an operation
/// beside the history, and where there are scans about 70 a record and for each stretch of absent keys 8 times the logarithm of the records. A transaction in doubt counts as committed iff one in effect read what only it can have
/// written. Transactions are taken to overlap when one returns at the nanosecond the other begins.
///
/// # Panics
/// On more than 2³⁰ operations or 2³¹ transactions (24 GiB of history), or 2³² dependencies.
pub fn check(history: &History, level: Level) -> Verdict {
    if level == Level::ReadAtomicity
        && let Ok(Cow::Owned(whole)) = history.one_by_one(ONE_BY_ONE)
    {
        return check(&whole, level);
    }
    let index = Index::build(history);
    let found = direct::find(history, &index);
    let mut counts = count(history, &index, &found);
    let txns = history.txns();
    if !found.first.is_empty() {
        let mut anomalies = found.first.iter().map(|d| direct_anomaly(d, &found, txns));
        let anomaly = anomalies.next();
        let others = anomalies.collect();
        return Verdict { level, result: Result::Fail, anomaly, others, counts };
    }
    let graph = Graph::build(&index);
    [counts.ww, counts.wr, counts.rw] = graph.counts;
    let real_time = (level == Level::StrictSerializable).then_some(txns);
    // What read committed and read atomicity forbid has no anti-dependencies.
    let mask = if level.forbids(Kind::GSingle) { Mask::ALL } else { Mask::WW_WR };
    let seen = pass(&graph, None, mask, real_time);
    // Above read atomicity a fractured read is a cycle, and found as one.
    let fracture = || {
        let found = (level == Level::ReadAtomicity).then(|| fractured::find(&index)).flatten();
        found.map(|(fracture, occurrences)| fractured_read(&fracture, occurrences, &index, txns))
    };
    let anomaly = if !seen.components.is_empty() {
        dependency_cycle(&graph, &seen.components, level)
            .map(|(kind, occurrences, steps)| cycle_anomaly(kind, occurrences, &steps, &index, txns))
    } else if !seen.late.is_empty() {
        let steps = Search::new(&graph).real_time_cycle(&seen.late, txns);
        let steps = steps.expect("who is late has a successor that returned before");
        Some(cycle_anomaly(Kind::RealTime, seen.late.len() as u64, &steps, &index, txns))
    } else {
        None
    }
    .or_else(fracture);
    let result = if anomaly.is_none() { Result::Pass } else { Result::Fail };
    Verdict { level, result, anomaly, others: Vec::new(), counts }
}

/// The most basic kind of cycle in the components that the level forbids, and a shortest one of that kind.
fn dependency_cycle(graph: &Graph, components: &[Vec<u32>], level: Level) -> Option<(Kind, u64, Vec<Step>)> {
    let mut search = Search::new(graph);
    let nodes: Vec<u32> = components.iter().flatten().copied().collect();
    for (kind, mask) in [(Kind::G0, Mask::WW), (Kind::G1c, Mask::WW_WR)] {
        let found = pass(graph, Some(&nodes), mask, None).components;
        if let Some(steps) = search.cycle(&found, mask, mask) {
            return Some((kind, found.len() as u64, steps));
        }
    }
    // With ww and wr acyclic, a closed walk with one rw is a cycle: nothing in it can repeat.
    let occurrences = components.len() as u64;
    if let Some(steps) = search.cycle(components, Mask::RW, Mask::WW_WR) {
        return Some((Kind::GSingle, occurrences, steps));
    }
    // Not every transaction is on a G-single, so that search may have run out of budget; this one cannot.
    if let Some((occurrences, steps)) = alternate::cycle(graph, components) {
        let anti = steps.iter().filter(|s| s.label.map(Label::kind) == Some(Dependency::Rw)).count();
        return Some((if anti == 1 { Kind::GSingle } else { Kind::GNonadjacent }, occurrences, steps));
    }
    if !level.forbids(Kind::G2) {
        return None;
    }
    let steps =
        search.cycle(components, Mask::ALL, Mask::ALL).expect("a component has a cycle through each node");
    Some((Kind::G2, occurrences, steps))
}

/// Writer and reader, with what was read and what was missed.
fn fractured_read(fracture: &Fracture, occurrences: u64, index: &Index, txns: &[Txn]) -> Anomaly {
    let (writer, reader) = (&txns[fracture.writer as usize], &txns[fracture.reader as usize]);
    let [seen, missed, newer] = [fracture.seen, fracture.missed, fracture.newer].map(|i| index.items[i]);
    let on = |from: Item, to: Item| {
        Some(Conflict { table: to.table, key: to.key, from_version: from.version, to_version: to.version })
    };
    let edges = vec![
        Edge { from: writer.id, to: reader.id, dependency: Dependency::Wr, on: on(seen, seen) },
        Edge { from: reader.id, to: writer.id, dependency: Dependency::Rw, on: on(missed, newer) },
    ];
    let detail =
        if seen.same_record(missed) { "non-repeatable read" } else { "half of a transaction's writes" };
    Anomaly {
        kind: Kind::FracturedRead,
        occurrences,
        detail: Some(detail.into()),
        version: None,
        cycle: Cycle { transactions: vec![participant(writer), participant(reader)], edges },
    }
}

fn count(history: &History, index: &Index, found: &Findings) -> Counts {
    let mut counts = Counts {
        transactions: history.txns().len() as u64,
        in_doubt_committed: index.in_doubt_committed,
        records: found.records,
        ambiguous_versions: found.ambiguous,
        ..Counts::default()
    };
    for txn in history.txns() {
        match txn.outcome {
            Outcome::Committed => counts.committed += 1,
            Outcome::Aborted(_) => counts.undone += 1,
            Outcome::Unknown => counts.in_doubt += 1,
        }
        counts.clock_reversals += u64::from(txn.ret < txn.invoke);
    }
    for item in index.items.iter().filter(|i| index.active(i.txn())) {
        *(if item.is_read() { &mut counts.reads } else { &mut counts.writes }) += 1;
    }
    counts.reads += index.ranges.counts().iter().sum::<u64>();
    counts
}

fn participant(txn: &Txn) -> Participant {
    let return_ns = (txn.outcome != Outcome::Unknown).then_some(txn.ret.0);
    Participant { id: txn.id, session: txn.session, invoke_ns: txn.invoke.0, return_ns }
}

fn direct_anomaly(direct: &Direct, found: &Findings, txns: &[Txn]) -> Anomaly {
    let txn = |position: u32| &txns[position as usize];
    let edge = |&(from, to, dependency, on): &(u32, u32, Dependency, Conflict)| Edge {
        from: txn(from).id,
        to: txn(to).id,
        dependency,
        on: Some(on),
    };
    Anomaly {
        kind: direct.kind,
        occurrences: found.counts.iter().find(|(kind, _)| *kind == direct.kind).map_or(0, |&(_, n)| n),
        detail: Some(direct.detail.clone()),
        version: Some(VersionOf { table: direct.table, key: direct.key, version: direct.version }),
        cycle: Cycle {
            transactions: direct.txns.iter().map(|&t| participant(txn(t))).collect(),
            edges: direct.edges.iter().map(edge).collect(),
        },
    }
}

fn cycle_anomaly(kind: Kind, occurrences: u64, steps: &[Step], index: &Index, txns: &[Txn]) -> Anomaly {
    let edges: Vec<Edge> = steps
        .iter()
        .map(|step| Edge {
            from: txns[step.from as usize].id,
            to: txns[step.to as usize].id,
            dependency: step.label.map_or(Dependency::RealTime, Label::kind),
            on: step.label.map(|label| conflict(step.from, label, index)),
        })
        .collect();
    let transactions = steps.iter().map(|step| participant(&txns[step.from as usize])).collect();
    let detail = pattern(kind, &edges).map(str::to_owned);
    Anomaly { kind, occurrences, detail, version: None, cycle: Cycle { transactions, edges } }
}

/// The record and versions behind an edge: the source's item is the nearest fitting one below the target's.
fn conflict(from: u32, label: Label, index: &Index) -> Conflict {
    let to = index.items[label.item()];
    if label.kind() == Dependency::Wr && !to.is_read() {
        // Read by a scan with others, so it has no item: that is the writer's.
        let Item { table, key, version, .. } = to;
        return Conflict { table, key, from_version: version, to_version: version };
    }
    let wants_read = label.kind() == Dependency::Rw;
    let source =
        index.items[..label.item()].iter().rev().take_while(|item| item.same_record(to)).find(|item| {
            item.txn() == from && item.is_read() == wants_read && (!wants_read || item.version < to.version)
        });
    let unread = index.initial_version.filter(|_| wants_read);
    Conflict {
        table: to.table,
        key: to.key,
        // What a scan read with others was the initial version where another replaced it.
        from_version: source.map(|item| item.version).or(unread).unwrap_or(to.version),
        to_version: to.version,
    }
}

/// What people call a cycle of this shape.
fn pattern(kind: Kind, edges: &[Edge]) -> Option<&'static str> {
    let anti: Vec<bool> = edges.iter().map(|e| e.dependency == Dependency::Rw).collect();
    let record = |e: &Edge| e.on.map(|on| (on.table, on.key));
    let same = edges.windows(2).all(|pair| record(&pair[0]) == record(&pair[1]));
    match (kind, edges) {
        (Kind::GSingle, [_, _]) if same && edges.iter().any(|e| e.dependency == Dependency::Ww) => {
            Some("lost update")
        }
        (Kind::GSingle, [_, _]) if same => Some("non-repeatable read"),
        (Kind::GSingle, _) if edges.iter().all(|e| e.dependency != Dependency::Ww) => Some("read skew"),
        (Kind::G2, [_, _]) => Some("write skew"),
        (Kind::GNonadjacent, [_, _, _, _])
            if anti == [true, false, true, false] || anti == [false, true, false, true] =>
        {
            Some("long fork")
        }
        (Kind::RealTime, [rw, _]) if rw.dependency == Dependency::Rw => Some("stale read"),
        _ => None,
    }
}
