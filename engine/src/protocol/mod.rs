//! Protocols: a sequence of phase operations and the rules they are handed.
//!
//! A protocol knows no primitive, no fabric and no time. Which primitive carries a phase is the plan's business,
//! below; what is done about an abort (unlock, back off, try again) is the session's, above.

mod occ;
pub mod planted;

pub use occ::Occ;

use phases::ops::{PhaseOps, Stop};
use phases::plan::Needs;
use phases::txn::Txn;
use std::future::Future;

/// How transactions are kept apart.
pub trait Protocol {
    /// What it asks of a plan, its name included.
    fn needs(&self) -> &'static Needs;

    /// Brings the records that the transaction touched and has not read yet into its read set.
    fn read<O: PhaseOps>(&self, ops: &O, txn: &mut Txn) -> impl Future<Output = Result<(), Stop>>;

    /// Commits. On an abort the session calls [`Protocol::release`].
    fn commit<O: PhaseOps>(&self, ops: &O, txn: &mut Txn) -> impl Future<Output = Result<(), Stop>>;

    /// Lets go of whatever the transaction still holds.
    fn release<O: PhaseOps>(&self, ops: &O, txn: &mut Txn) -> impl Future<Output = Result<(), Stop>> {
        ops.unlock(txn)
    }
}

/// A protocol chosen by name: one match per transaction step, so sessions are compiled once for all.
#[derive(Clone, Copy, Debug)]
pub enum AnyProtocol {
    /// Optimistic concurrency control.
    Occ(Occ),
}

/// The protocols there are, by name.
pub const PROTOCOLS: &[&str] = &["occ"];

impl AnyProtocol {
    /// The protocol of that name.
    pub fn named(name: &str) -> Option<AnyProtocol> {
        match name {
            "occ" => Some(AnyProtocol::Occ(Occ)),
            _ => None,
        }
    }
}

impl Protocol for AnyProtocol {
    fn needs(&self) -> &'static Needs {
        match self {
            AnyProtocol::Occ(p) => p.needs(),
        }
    }

    async fn read<O: PhaseOps>(&self, ops: &O, txn: &mut Txn) -> Result<(), Stop> {
        match self {
            AnyProtocol::Occ(p) => p.read(ops, txn).await,
        }
    }

    async fn commit<O: PhaseOps>(&self, ops: &O, txn: &mut Txn) -> Result<(), Stop> {
        match self {
            AnyProtocol::Occ(p) => p.commit(ops, txn).await,
        }
    }

    async fn release<O: PhaseOps>(&self, ops: &O, txn: &mut Txn) -> Result<(), Stop> {
        match self {
            AnyProtocol::Occ(p) => p.release(ops, txn).await,
        }
    }
}
