//! Histories made by hand, by a serial store, and by chance.

use super::*;
use primitives::units::Nanos;

mod clocks;
mod disk;
mod foreign;
mod hand;
mod levels;
mod matrix;
mod oracle;
mod planted;

/// A record of table 0.
fn k(key: u64) -> Key {
    Key { table: 0, key }
}

/// A read.
fn r(key: u64, version: u64) -> Op {
    Op::read(k(key), version)
}

/// A write.
fn w(key: u64, version: u64) -> Op {
    Op::write(k(key), version)
}

/// A transaction for [`history`].
#[derive(Clone, Debug)]
struct Row {
    interval: (u64, u64),
    end: End,
    ops: Vec<Op>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Commit,
    Abort,
    Doubt,
}

impl Row {
    /// Adds it to a history, as transaction `id` of a session.
    fn push(&self, history: &mut History, id: usize, session: u32, reason: Reason) {
        let outcome = match self.end {
            End::Commit => Outcome::Committed,
            End::Abort => Outcome::Aborted(reason),
            End::Doubt => Outcome::Unknown,
        };
        let interval = (Nanos(self.interval.0), Nanos(self.interval.1));
        history.push(id as u64, session, interval, outcome, self.ops.iter().copied());
    }
}

/// A committed transaction.
fn commit(invoke: u64, ret: u64, ops: impl Into<Vec<Op>>) -> Row {
    Row { interval: (invoke, ret), end: End::Commit, ops: ops.into() }
}

/// A history of `rows`, numbered from 0, each in a session of its own, all records at version 0 first.
fn history(rows: &[Row]) -> History {
    let mut history = History::new(Some(0));
    let reason = history.intern("planned").expect("the first reason");
    for (n, row) in rows.iter().enumerate() {
        row.push(&mut history, n, n as u32, reason);
    }
    history
}

/// The kind of anomaly found, if any.
fn kind(history: &History, level: Level) -> Option<Kind> {
    let verdict = check(history, level);
    assert_eq!(verdict.passed(), verdict.anomaly.is_none());
    if let Some(anomaly) = &verdict.anomaly {
        well_formed(anomaly);
    }
    verdict.anomaly.map(|a| a.kind)
}

/// Whether two anti-dependencies follow each other in a cycle.
fn adjacent(edges: &[Edge]) -> bool {
    let anti = |n: usize| edges[n % edges.len()].dependency == Dependency::Rw;
    (0..edges.len()).any(|n| anti(n) && anti(n + 1))
}

/// A cycle closes, visits nobody twice and has the dependencies its name promises.
fn well_formed(anomaly: &Anomaly) {
    let Cycle { transactions, edges } = &anomaly.cycle;
    assert!(!anomaly.to_string().is_empty());
    if anomaly.version.is_some() {
        return;
    }
    let count = |d| edges.iter().filter(|e| e.dependency == d).count();
    let (wr, rw, real_time) = (count(Dependency::Wr), count(Dependency::Rw), count(Dependency::RealTime));
    assert!(edges.len() >= 2 && edges.len() == transactions.len(), "{anomaly}");
    for (n, edge) in edges.iter().enumerate() {
        assert_eq!(edge.from, transactions[n].id, "{anomaly}");
        assert_eq!(edge.to, transactions[(n + 1) % edges.len()].id, "{anomaly}");
        assert_eq!(edge.on.is_none(), edge.dependency == Dependency::RealTime, "{anomaly}");
        if let Some(on) = edge.on {
            let same = edge.dependency == Dependency::Wr;
            assert!(if same { on.from_version == on.to_version } else { on.from_version < on.to_version });
        }
    }
    let mut ids: Vec<u64> = transactions.iter().map(|t| t.id).collect();
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), edges.len(), "{anomaly}");
    let fits = match anomaly.kind {
        Kind::G0 => (wr, rw, real_time) == (0, 0, 0),
        Kind::G1c => wr > 0 && (rw, real_time) == (0, 0),
        Kind::GSingle => (rw, real_time) == (1, 0),
        Kind::FracturedRead => (wr, rw, real_time) == (1, 1, 0),
        Kind::GNonadjacent => rw >= 2 && real_time == 0 && !adjacent(edges),
        Kind::G2 => rw >= 2 && real_time == 0 && adjacent(edges),
        Kind::RealTime => real_time == 1,
        _ => false,
    };
    assert!(fits, "{anomaly}");
}
