//! The answer: for programs as JSON (`level`, `verdict`, `anomaly{kind,cycle}`), for people as a paragraph.

use super::check::Level;
use primitives::measure::count;
use serde::Serialize;
use std::fmt;

/// What a check found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Verdict {
    /// The level checked.
    pub level: Level,
    /// Whether the history is of that level.
    #[serde(rename = "verdict")]
    pub result: Result,
    /// The most basic anomaly, if it is not.
    pub anomaly: Option<Anomaly>,
    /// One example of each other kind that was noticed on the way.
    pub others: Vec<Anomaly>,
    /// What was looked at.
    pub counts: Counts,
}

/// Pass or fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Result {
    /// The history is of the level.
    Pass,
    /// It is not.
    Fail,
}

/// What is wrong with a history, the most basic first. Names as in Adya's thesis where it has one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum Kind {
    /// A version that nobody wrote was read: an invented value.
    #[serde(rename = "unwritten-read")]
    UnwrittenRead,
    /// A version was read with another payload than the one that its writer, or the load, gave it: half of one state and half of
    /// another. It takes digests to show it, which a run's own history has and those of other checkers have not.
    #[serde(rename = "torn-read")]
    TornRead,
    /// Two committed transactions installed the same version of a record; one update is lost.
    #[serde(rename = "duplicate-version")]
    DuplicateVersion,
    /// Two reads of a list have its elements in different orders, or one has an element twice: no version order explains
    /// them. Elle's name; it takes a list to show it, see [`exchange`](super::exchange).
    #[serde(rename = "incompatible-order")]
    IncompatibleOrder,
    /// A transaction's versions of a record go back, or do not exceed the initial version.
    #[serde(rename = "non-monotonic-version")]
    NonMonotonicVersion,
    /// Aborted read.
    G1a,
    /// Intermediate read: of a version that its writer replaced itself.
    G1b,
    /// A transaction's read contradicts its own earlier, or later, write.
    #[serde(rename = "internal")]
    Internal,
    /// Write cycle: ww dependencies only.
    G0,
    /// Circular information flow: ww and wr dependencies.
    G1c,
    /// A transaction read one version of another's writes and an older version of something else that one wrote
    /// (Bailis et al. 2014). Where serializability is asked for it counts as the G-single it also is.
    #[serde(rename = "fractured-read")]
    FracturedRead,
    /// A cycle with exactly one anti-dependency (rw): lost update, read skew.
    #[serde(rename = "G-single")]
    GSingle,
    /// A cycle with several anti-dependencies, no two in a row: long fork. With the kinds above, all that snapshot
    /// isolation forbids.
    #[serde(rename = "G-nonadjacent")]
    GNonadjacent,
    /// A cycle with adjacent anti-dependencies: write skew. Adya's G2-item, for histories hold no predicate reads.
    G2,
    /// Serializable, but only in an order that contradicts real time: a stale read, or a write that came too late.
    #[serde(rename = "real-time")]
    RealTime,
}

/// One anomaly with its evidence.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Anomaly {
    /// What it is.
    pub kind: Kind,
    /// How often it was noticed; of cycles, in how many components (real time: transactions) one was.
    pub occurrences: u64,
    /// The common name of the pattern, or what the transaction did.
    pub detail: Option<String>,
    /// For anomalies of one version: which.
    pub version: Option<VersionOf>,
    /// The transactions and how they depend on each other; not closed if the anomaly is no cycle.
    pub cycle: Cycle,
}

/// One version of one record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct VersionOf {
    /// The table.
    pub table: u32,
    /// The key within the table.
    pub key: u64,
    /// The version.
    pub version: u64,
}

/// Transactions and the dependencies between them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Cycle {
    /// The transactions, in the order of the cycle.
    pub transactions: Vec<Participant>,
    /// The dependencies; in a cycle each begins where the one before ends.
    pub edges: Vec<Edge>,
}

/// A transaction in an anomaly.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Participant {
    /// Its id in the history.
    pub id: u64,
    /// The session that ran it.
    pub session: u32,
    /// When it began.
    pub invoke_ns: u64,
    /// When its session learned the outcome, if ever.
    pub return_ns: Option<u64>,
}

/// One dependency: `from` must precede `to` in any serial order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Edge {
    /// Id of the earlier transaction.
    pub from: u64,
    /// Id of the later one.
    pub to: u64,
    /// Why.
    pub dependency: Dependency,
    /// On which record, unless it is real time.
    pub on: Option<Conflict>,
}

/// Why one transaction must precede another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Dependency {
    /// The later one overwrote what the earlier one wrote.
    Ww,
    /// The later one read what the earlier one wrote.
    Wr,
    /// The later one overwrote what the earlier one read (anti-dependency).
    Rw,
    /// The earlier one returned before the later one was invoked.
    RealTime,
}

/// The record two transactions met on, and the version each of them touched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Conflict {
    /// The table.
    pub table: u32,
    /// The key within the table.
    pub key: u64,
    /// The version the earlier transaction wrote or read.
    pub from_version: u64,
    /// The version the later one wrote or read.
    pub to_version: u64,
}

/// How much was checked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// Transactions recorded, whatever became of them.
    pub transactions: u64,
    /// Reported committed.
    pub committed: u64,
    /// Reported to have left nothing: attempts that the protocol aborted, and what the application rolled back. A history does not tell
    /// the two apart, but by their reasons.
    pub undone: u64,
    /// Never reported.
    pub in_doubt: u64,
    /// Of these, counted as committed because someone read their writes.
    pub in_doubt_committed: u64,
    /// Reads by transactions in effect. A stretch of absent keys of which a scan read the same is one, as it is one dependency below.
    pub reads: u64,
    /// Writes by transactions in effect.
    pub writes: u64,
    /// Distinct records touched.
    pub records: u64,
    /// Write dependencies.
    pub ww: u64,
    /// Read dependencies.
    pub wr: u64,
    /// Anti-dependencies.
    pub rw: u64,
    /// Versions read that two transactions in doubt may have written: left without a writer.
    pub ambiguous_versions: u64,
    /// Transactions whose return precedes their invocation; they take part in no real-time order as earlier ones
    /// until they were invoked.
    pub clock_reversals: u64,
}

impl Verdict {
    /// Whether the history is of the level checked.
    pub fn passed(&self) -> bool {
        self.result == Result::Pass
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kind::UnwrittenRead => "unwritten-read",
            Kind::TornRead => "torn-read",
            Kind::DuplicateVersion => "duplicate-version",
            Kind::IncompatibleOrder => "incompatible-order",
            Kind::NonMonotonicVersion => "non-monotonic-version",
            Kind::G1a => "G1a",
            Kind::G1b => "G1b",
            Kind::Internal => "internal",
            Kind::G0 => "G0",
            Kind::G1c => "G1c",
            Kind::FracturedRead => "fractured-read",
            Kind::GSingle => "G-single",
            Kind::GNonadjacent => "G-nonadjacent",
            Kind::G2 => "G2",
            Kind::RealTime => "real-time",
        })
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let c = &self.counts;
        let word = if self.passed() { "pass" } else { "FAIL" };
        writeln!(f, "{}: {word}", self.level)?;
        let transactions = count(c.transactions, "transaction");
        write!(
            f,
            "  {transactions}: {} committed, {} undone (aborted or rolled back)",
            c.committed, c.undone
        )?;
        write!(f, ", {} in doubt ({} took effect)", c.in_doubt, c.in_doubt_committed)?;
        let [reads, writes, records] =
            [(c.reads, "read"), (c.writes, "write"), (c.records, "record")].map(|(n, what)| count(n, what));
        writeln!(f, "; {reads} and {writes} of {records}")?;
        if c.ambiguous_versions > 0 {
            let versions = count(c.ambiguous_versions, "version");
            writeln!(f, "  {versions} had several possible writers, all in doubt")?;
        }
        if c.clock_reversals > 0 {
            let transactions = count(c.clock_reversals, "transaction");
            writeln!(f, "  {transactions} returned before being invoked: a clock went back")?;
        }
        self.anomaly.iter().chain(&self.others).try_for_each(|a| write!(f, "{a}"))
    }
}

impl fmt::Display for Anomaly {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "  {}", self.kind)?;
        if let Some(v) = self.version {
            write!(f, " on table {} key {} version {}", v.table, v.key, v.version)?;
        }
        if let Some(detail) = &self.detail {
            write!(f, ": {detail}")?;
        }
        if self.occurrences > 1 {
            write!(f, " (1 of {})", self.occurrences)?;
        }
        writeln!(f)?;
        for t in &self.cycle.transactions {
            write!(f, "    T{} (session {}) ran from {} ns ", t.id, t.session, t.invoke_ns)?;
            match t.return_ns {
                Some(end) => writeln!(f, "to {end} ns")?,
                None => writeln!(f, "and never returned")?,
            }
        }
        self.cycle.edges.iter().try_for_each(|edge| self.explain(edge, f))
    }
}

impl Anomaly {
    fn explain(&self, e: &Edge, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (from, to) = (e.from, e.to);
        let Some(on) = e.on else {
            let find = |id| self.cycle.transactions.iter().find(|t| t.id == id);
            let returned = find(from).and_then(|t| t.return_ns).unwrap_or_default();
            let invoked = find(to).map(|t| t.invoke_ns).unwrap_or_default();
            return writeln!(
                f,
                "    T{from} → T{to} real time: T{from} returned at {returned} ns, before T{to} began at {invoked} ns"
            );
        };
        let (v, w) = (on.from_version, on.to_version);
        write!(f, "    T{from} → T{to} ")?;
        match e.dependency {
            Dependency::Ww => {
                write!(f, "ww: T{from} wrote version {v} and T{to} replaced it with version {w}")?
            }
            Dependency::Wr => write!(f, "wr: T{from} wrote version {v} and T{to} read it")?,
            _ => write!(f, "rw: T{from} read version {v} and T{to} replaced it with version {w}")?,
        }
        writeln!(f, " (table {} key {})", on.table, on.key)
    }
}
