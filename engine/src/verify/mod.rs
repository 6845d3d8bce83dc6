//! Histories and their verdicts: what every run recorded, and how isolated its transactions were.
//!
//! A [`Recorder`] belongs to one session and costs a few stores per operation. At the end of a run the recorders
//! become one [`History`], which [`check()`] judges at a [`Level`], [`format`](mod@format) keeps on disk and [`exchange`]
//! shares with other checkers.
//!
//! The checker rests on one fact that black-box checkers (Cobra, dbcop) have to search for: the store numbers the
//! versions of each record, so the version order is *known*. Adya's direct serialization graph is then a function of
//! the history, serializability is acyclicity, and the whole check is a sort and one depth-first pass. Anomalies
//! carry the names of Adya's thesis ("Weak Consistency", 1999, §3 and §4) as Elle (Kingsbury and Alvaro, VLDB 2020) uses them.
//!
//! ```
//! use engine::verify::{check, History, Key, Level, Recorder};
//! use primitives::units::Nanos;
//!
//! let account = Key { table: 0, key: 7 };
//! let mut session = Recorder::new(0);
//! session.begin(Nanos(10));
//! session.read(account, 0);
//! session.write(account, 1);
//! session.commit(Nanos(20));
//! let history = History::merge([session], Some(0));
//! assert!(check(&history, Level::StrictSerializable).passed());
//! ```

mod alternate;
pub mod check;
mod cycle;
mod digest;
mod direct;
pub mod exchange;
pub mod format;
mod fractured;
mod graph;
pub mod history;
mod index;
mod ranges;
mod settle;
mod verdict;

pub use check::{Level, check};
pub use digest::Digest;
pub use history::{History, Key, Op, OpKind, Outcome, Reason, Recorder, Share, Txn};
pub use ranges::TooManyReads;
pub use verdict::{Anomaly, Conflict, Counts, Cycle, Dependency, Edge, Kind, Participant, Result, Verdict};

#[cfg(test)]
mod tests;
