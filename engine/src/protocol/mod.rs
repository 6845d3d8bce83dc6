//! Protocols: a sequence of phase operations and the rules they are handed.
//!
//! A protocol knows no primitive, no fabric and, but for CALVIN's epochs, no time. Which primitive carries a phase is the plan's business,
//! below; what is done about an abort (unlock, back off, try again) is the session's, above.

pub(crate) mod calvin;
mod fasst;
mod locking;
mod mvcc;
mod occ;
pub mod planted;
mod sundial;

pub use calvin::Calvin;
pub use fasst::Fasst;
pub use locking::Locking;
pub use mvcc::Mvcc;
pub use occ::Occ;
pub use sundial::Sundial;

use crate::verify::Level;
use phases::ops::{PhaseOps, Stop};
use phases::plan::Needs;
use phases::txn::{Scan, Txn};
use std::future::Future;

/// How transactions are kept apart.
pub trait Protocol {
    /// What it asks of a plan, its name included.
    fn needs(&self) -> &'static Needs;

    /// What it promises about its histories.
    fn level(&self) -> Level {
        Level::StrictSerializable
    }

    /// How it orders transactions before they run, if it does: sessions then do not run them one by one.
    fn sequenced(&self) -> Option<Calvin> {
        None
    }

    /// Begins the transaction's `attempt`, from 1: gives it the timestamps it needs.
    ///
    /// # Errors
    /// An abort where it cannot begin.
    fn begin<O: PhaseOps>(&self, _ops: &O, _txn: &mut Txn, _attempt: u32) -> Result<(), Stop> {
        Ok(())
    }

    /// Brings the records that the transaction touched and has not read yet into its read set.
    fn read<O: PhaseOps>(&self, ops: &O, txn: &mut Txn) -> impl Future<Output = Result<(), Stop>>;

    /// Does what [`Protocol::read`] does, if nothing has to be waited for; says whether it has. If not, `read` does the rest.
    ///
    /// # Errors
    /// As `read`.
    fn read_now<O: PhaseOps>(&self, _ops: &O, _txn: &mut Txn) -> Result<bool, Stop> {
        Ok(false)
    }

    /// Reads a range of keys into the read set.
    fn scan<O: PhaseOps>(
        &self,
        ops: &O,
        txn: &mut Txn,
        scan: &Scan,
    ) -> impl Future<Output = Result<(), Stop>> {
        ops.scan(txn, scan)
    }

    /// Commits. On an abort the session calls [`Protocol::release`].
    fn commit<O: PhaseOps>(&self, ops: &O, txn: &mut Txn) -> impl Future<Output = Result<(), Stop>>;

    /// Lets go of whatever the transaction still holds.
    fn release<O: PhaseOps>(&self, ops: &O, txn: &mut Txn) -> impl Future<Output = Result<(), Stop>> {
        ops.unlock(txn)
    }
}

/// A protocol chosen by name: one match per transaction step, so sessions are compiled once for all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnyProtocol {
    /// Optimistic concurrency control.
    Occ(Occ),
    /// Optimistic concurrency control that locks at execution.
    Fasst(Fasst),
    /// Two-phase locking.
    Locking(Locking),
    /// Logical leases.
    Sundial(Sundial),
    /// Multi-version timestamp ordering.
    Mvcc(Mvcc),
    /// Transactions ordered before they run.
    Calvin(Calvin),
}

/// The protocols there are, by name.
pub const PROTOCOLS: &[&str] = &[
    "occ",
    "nowait",
    "waitdie",
    "nowait-exclusive",
    "waitdie-exclusive",
    "bounded-wait",
    "fasst",
    "mvcc",
    "sundial",
    "calvin",
];

impl AnyProtocol {
    /// The protocol of that name, with settings behind it where it has any: `calvin:batch=8,epoch_us=50`.
    ///
    /// # Errors
    /// What is wrong, in words.
    pub fn parse(text: &str) -> Result<AnyProtocol, String> {
        match text.split_once(':') {
            Some(("calvin", settings)) => Calvin::parse(settings).map(AnyProtocol::Calvin),
            Some((name, _)) if PROTOCOLS.contains(&name) => Err(format!("{name} has no settings")),
            _ => AnyProtocol::named(text).ok_or_else(|| format!("no protocol is called `{text}`")),
        }
    }

    /// The protocol of that name.
    pub fn named(name: &str) -> Option<AnyProtocol> {
        match name {
            "occ" => Some(AnyProtocol::Occ(Occ)),
            "fasst" => Some(AnyProtocol::Fasst(Fasst)),
            "nowait" => Some(AnyProtocol::Locking(Locking::NOWAIT)),
            "waitdie" => Some(AnyProtocol::Locking(Locking::WAITDIE)),
            "nowait-exclusive" => Some(AnyProtocol::Locking(Locking::NOWAIT.exclusive_reads())),
            "waitdie-exclusive" => Some(AnyProtocol::Locking(Locking::WAITDIE.exclusive_reads())),
            "bounded-wait" => Some(AnyProtocol::Locking(Locking::bounded_wait(16))),
            "mvcc" => Some(AnyProtocol::Mvcc(Mvcc)),
            "calvin" => Some(AnyProtocol::Calvin(Calvin::default())),
            "sundial" => Some(AnyProtocol::Sundial(Sundial::default())),
            _ => None,
        }
    }
}

macro_rules! each {
    ($self:ident, $p:ident => $call:expr) => {
        match $self {
            AnyProtocol::Occ($p) => $call,
            AnyProtocol::Fasst($p) => $call,
            AnyProtocol::Locking($p) => $call,
            AnyProtocol::Sundial($p) => $call,
            AnyProtocol::Mvcc($p) => $call,
            AnyProtocol::Calvin($p) => $call,
        }
    };
}

impl Protocol for AnyProtocol {
    fn needs(&self) -> &'static Needs {
        each!(self, p => p.needs())
    }

    fn level(&self) -> Level {
        each!(self, p => p.level())
    }

    fn sequenced(&self) -> Option<Calvin> {
        each!(self, p => p.sequenced())
    }

    fn begin<O: PhaseOps>(&self, ops: &O, txn: &mut Txn, attempt: u32) -> Result<(), Stop> {
        each!(self, p => p.begin(ops, txn, attempt))
    }

    async fn read<O: PhaseOps>(&self, ops: &O, txn: &mut Txn) -> Result<(), Stop> {
        each!(self, p => p.read(ops, txn).await)
    }

    #[inline]
    fn read_now<O: PhaseOps>(&self, ops: &O, txn: &mut Txn) -> Result<bool, Stop> {
        each!(self, p => p.read_now(ops, txn))
    }

    async fn scan<O: PhaseOps>(&self, ops: &O, txn: &mut Txn, scan: &Scan) -> Result<(), Stop> {
        each!(self, p => p.scan(ops, txn, scan).await)
    }

    async fn commit<O: PhaseOps>(&self, ops: &O, txn: &mut Txn) -> Result<(), Stop> {
        each!(self, p => p.commit(ops, txn).await)
    }

    async fn release<O: PhaseOps>(&self, ops: &O, txn: &mut Txn) -> Result<(), Stop> {
        each!(self, p => p.release(ops, txn).await)
    }
}
