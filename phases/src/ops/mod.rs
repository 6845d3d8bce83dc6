//! Operations: what carries a rule to where a record lives.
//!
//! [`PhaseOps`] has one operation per phase. [`OneSided`] reads headers and records and decides here; [`TwoSided`]
//! sends the rule, and the owner's [`Handlers`] call the same `decide`. [`Phases`] splits a transaction's local
//! records off, serves them by CPU, and hands the rest to whichever of the two the plan names.

mod found;
mod handlers;
mod letters;
mod local;
mod logging;
mod one_sided;
mod owner;
mod parked;
mod phases;
mod ranges;
mod two_sided;
pub(crate) mod wire;

pub use found::{FOUND_HEAD, RECORD_HEAD, SCAN_HEAD};
pub use handlers::{HandlerStats, Handlers};
pub use letters::{Sending, values_of};
pub use one_sided::OneSided;
pub use phases::Phases;
pub use two_sided::TwoSided;

use crate::plan::{CheckedPlan, Phase};
use crate::rule::time::{Clock, Skew};
use crate::rule::{Abort, CheckRule, LockRule, OnConflict, Timestamp};
use crate::store::{Directory, Layout, LocationCache, NodeStore, TableId};
use crate::txn::{Access, NOWHERE, Scan, Txn};
use primitives::exec::sleep_until;
use primitives::fabric::{AnyNic, CpuWork, Nic};
use primitives::mesh::Worker;
use primitives::rpc::{Rpc, RpcError};
use primitives::units::Nanos;
use primitives::verbs::port::{EnginePort, VerbError};
use primitives::verbs::{NodeId, Remote};
use std::cell::Cell;
use std::sync::Arc;

/// Times a record that keeps changing is read again before the transaction gives up. A write-back takes two verbs, so
/// one repetition is the rule; a hundred mean that the writer is not running.
pub(crate) const MAX_TRIES: u32 = 100;

/// Tries of a lock that follow each other at once.
const TRIES_AT_ONCE: u32 = 4;
/// Races for a lock, lost one after the other, that are not paused for.
pub(crate) const RACES_AT_ONCE: u32 = 2;
/// The first pause between later ones is twice this …
const PAUSE_FIRST: Nanos = Nanos(500);
/// … and it doubles so often, to 32 µs.
pub(crate) const PAUSE_DOUBLINGS: u32 = 6;

/// The pause once a lock was asked for so many times more than at once.
fn pause_after(beyond: u32) -> Nanos {
    Nanos(PAUSE_FIRST.0 << beyond.min(PAUSE_DOUBLINGS))
}

/// The pause of one who has lost so many races in a row, more than [`RACES_AT_ONCE`].
pub(crate) fn race_pause(races: u32) -> Nanos {
    pause_after(races - RACES_AT_ONCE)
}

/// The fabric or a peer failed: not an outcome of the transaction, but the end of its chances.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// A verb failed.
    #[error("{phase}: {source}")]
    Verb {
        /// In which phase.
        phase: Phase,
        /// How.
        source: VerbError,
    },
    /// A call failed, or its reply made no sense.
    #[error("{phase}: {source}")]
    Rpc {
        /// In which phase.
        phase: Phase,
        /// How.
        source: RpcError,
    },
    /// A transaction writes more than a log ring can ever hold.
    #[error(
        "a log entry of {entry_bytes} B, but rings of {ring_bytes} B hold entries of at most half their size"
    )]
    LogEntry {
        /// Bytes of the entry.
        entry_bytes: u32,
        /// Bytes of the ring.
        ring_bytes: u64,
    },
    /// A transaction that was sequenced touched a record, or wrote one, that it had not declared ahead and that no lock which it
    /// holds covers: its workload has a bug.
    #[error(
        "table {table} key {key}: not in the read and write set that the transaction declared ahead, nor covered by a lock that it \
         holds",
        table = .table.0
    )]
    Undeclared {
        /// The table.
        table: TableId,
        /// The key.
        key: u64,
    },
    /// A transaction that was sequenced cannot go on, though nobody is in its way; the others that take part in it wait.
    #[error("a sequenced transaction cannot go on: {0}")]
    Sequenced(Abort),
    /// A transaction that was sequenced has found more than there is room for to tell others: its workload has a bug.
    #[error("a sequenced transaction has found {words} words on its way, its workload said at most {room}")]
    Overfull {
        /// Words found.
        words: usize,
        /// Words that there is room for.
        room: usize,
    },
    /// What a node was to send never came, though it lives.
    #[error("{phase}: {node} answers, but has sent nothing for epoch {epoch}")]
    Overdue {
        /// In which phase.
        phase: Phase,
        /// The node waited for.
        node: NodeId,
        /// The epoch it was for.
        epoch: u64,
    },
    /// A backup does not free its ring though everything in it is decided: it found a damaged entry. Or what stands in it is never decided, since its
    /// transaction has faulted.
    #[error("{backup} cannot apply its log beyond position {head}")]
    LogStuck {
        /// The backup.
        backup: NodeId,
        /// Where it stopped.
        head: u64,
    },
    /// A range of a table whose owners do not keep its keys in order.
    #[error("a range of table {table}, which is not ordered", table = .table.0)]
    Unordered {
        /// The table.
        table: TableId,
    },
    /// A range that does not lie in one partition.
    #[error("keys {from}..={to} of table {table} are not of one block, so not of one owner", table = .table.0)]
    Scattered {
        /// The table.
        table: TableId,
        /// The first key.
        from: u64,
        /// The last key.
        to: u64,
    },
    /// A range of records of which not one fits into a message.
    #[error("a range of table {table}, whose records are longer than a message", table = .table.0)]
    WideRows {
        /// The table.
        table: TableId,
    },
    /// The operations do not include ranges.
    #[error("ranges are read by all phases together, not by a primitive alone")]
    NoRanges,
}

/// Why a phase did not succeed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Stop {
    /// An expected outcome, counted by cause.
    #[error(transparent)]
    Abort(#[from] Abort),
    /// Fabric or peer failing.
    #[error(transparent)]
    Fault(#[from] Fault),
}

/// What can fail below an operation.
pub(crate) trait Failure {
    /// The failure, as met in `phase`.
    fn in_phase(self, phase: Phase) -> Fault;
}

impl Failure for VerbError {
    fn in_phase(self, phase: Phase) -> Fault {
        Fault::Verb { phase, source: self }
    }
}

impl Failure for RpcError {
    fn in_phase(self, phase: Phase) -> Fault {
        Fault::Rpc { phase, source: self }
    }
}

/// Maps a failure met in `phase`.
pub(crate) fn fault<E: Failure>(phase: Phase) -> impl Fn(E) -> Stop {
    move |error| Stop::Fault(error.in_phase(phase))
}

/// The operations of a transaction, one per phase. Each serves the records of the transaction that it is about and
/// counts its cost in [`Txn::costs`].
///
/// After `lock_and_read` has succeeded or failed, some records may be locked ([`Txn::holds_locks`]) until
/// `install_and_unlock` or `unlock`; a session calls the latter after any failure before logging ends.
#[allow(async_fn_in_trait)] // coroutines stay on their core: nobody needs these futures to be `Send`
pub trait PhaseOps {
    /// A timestamp later than all that this worker gave or met.
    ///
    /// # Errors
    /// [`Abort::TimestampWrap`] when they are used up.
    fn timestamp(&self) -> Result<Timestamp, Abort>;
    /// Says which records a transaction is going to ask for, one after the other: operations may have the memory that they will look
    /// at brought near. Nothing else follows from it.
    fn expect(&self, _records: impl Iterator<Item = (TableId, u64)> + Clone) {}
    /// Reads every record that is not read yet. Of those that need not be there ([`Txn::allow_absence`]) it may find that.
    async fn fetch(&self, txn: &mut Txn) -> Result<(), Stop>;
    /// Does what [`PhaseOps::fetch`] does, if the records that are not read yet are all this node's own and none has to be waited for: a
    /// future less for who asks for one record after the other. Says whether it has; if not, the rest is `fetch`'s.
    ///
    /// # Errors
    /// As `fetch`.
    fn fetch_now(&self, _txn: &mut Txn) -> Result<bool, Stop> {
        Ok(false)
    }
    /// The same of [`PhaseOps::lock_and_read`].
    ///
    /// # Errors
    /// As `lock_and_read`.
    fn lock_and_read_now(&self, _txn: &mut Txn, _rule: LockRule) -> Result<bool, Stop> {
        Ok(false)
    }
    /// Reads the records of a range of keys, by their owner's CPU; [`Txn::scanned`] has them. They join the transaction's records,
    /// and `validate` checks also that no key of the range has come or gone. The transaction's own inserts are not among
    /// them, nor is what it is to delete.
    async fn scan(&self, _txn: &mut Txn, _scan: &Scan) -> Result<(), Stop> {
        Err(Fault::NoRanges.into())
    }
    /// Locks every record to be written and, if the rule says so, those only read. One that was read must still have its
    /// version; one that was not is read. Then owners set slots aside for the records to be created.
    async fn lock_and_read(&self, txn: &mut Txn, rule: LockRule) -> Result<(), Stop>;
    /// Checks every record that is only read, those that were not there, and the ranges; and extends leases that do not reach. With a read-only transaction, this and `fetch` are all there is.
    async fn validate(&self, txn: &mut Txn, rule: CheckRule) -> Result<(), Stop>;
    /// Writes the new values to the backups' logs and waits until all have them.
    async fn replicate(&self, txn: &mut Txn) -> Result<(), Stop>;
    /// Writes the new values to the primaries, has records removed by their owners, and frees all locks.
    async fn install_and_unlock(&self, txn: &mut Txn) -> Result<(), Stop>;
    /// Frees every lock that is held, and has slots taken back.
    async fn unlock(&self, txn: &mut Txn) -> Result<(), Stop>;
}

/// What operations can be told to do wrong, to see that it does not go unnoticed. Nothing but tests asks for it.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sabotage {
    /// A remembered location is believed, whatever key the record there has.
    StaleHits,
    /// A record is believed, whatever its checksum says.
    TornReads,
    /// One of four transactions writes nothing to the logs of its backups.
    LostLogs,
    /// Who writes a multi-version record that it locks by one-sided verbs does not mind that somebody later has read it.
    IgnoredReaders,
    /// Locks of other nodes' records are freed by one-sided verbs before the new values are written to them.
    UnlockFirst,
    /// Locks are freed by WRITE also where a CAS that fails may undo one.
    FreeByWrite,
}

/// What operations of one worker share.
pub(crate) struct Context {
    pub(crate) plan: CheckedPlan,
    pub(crate) layout: Arc<Layout>,
    /// This node's own.
    store: NodeStore,
    pub(crate) me: NodeId,
    pub(crate) worker: u16,
    directory: Directory,
    net: Worker,
    cache: Option<LocationCache>,
    clock: Clock,
    /// Time passes by what is charged, not by what is done.
    virtual_time: bool,
    torn: Cell<u64>,
    sabotage: Cell<Option<Sabotage>>,
}

impl Context {
    #[inline]
    fn port(&self) -> &EnginePort {
        &self.net.port
    }

    #[inline]
    fn rpc(&self) -> &Rpc<AnyNic> {
        &self.net.rpc
    }

    #[inline]
    fn charge(&self, work: CpuWork) {
        self.net.port.nic().charge(work);
    }

    /// A place in a node's region.
    #[inline]
    fn at(&self, node: NodeId, offset: u64) -> Remote {
        self.directory.at(node, offset)
    }

    /// A position of this worker's log ring at a backup.
    fn ring_at(&self, backup: NodeId, position: u64) -> Remote {
        let offset = position % self.layout.config().log_ring_bytes;
        self.at(backup, self.layout.ring(self.me, self.worker) + offset)
    }

    /// Looks the record's location up in the cache.
    #[inline]
    fn recall(&self, access: &mut Access) {
        if let Some(cache) = &self.cache {
            self.charge(CpuWork::Probe);
            let known = cache.lookup(access.table, access.key);
            (access.location, access.fresh) = (known.unwrap_or(NOWHERE), false);
            // What no record's place can be need not be looked at.
            if known.is_some_and(|at| !self.store.may_be_record(access.primary, access.table, at)) {
                self.forget(access);
            }
        }
    }

    /// Refills the cache with the record's location.
    #[inline]
    fn remember(&self, access: &Access) {
        if let Some(cache) = &self.cache {
            cache.fill(access.table, access.key, access.location);
            self.store.learn(access.primary, access.table, access.location);
        }
    }

    /// The record is not where it was believed to be.
    fn forget(&self, access: &mut Access) {
        if let Some(cache) = &self.cache {
            cache.stale(access.table, access.key, access.location);
        }
        access.location = NOWHERE;
    }

    /// The next timestamp of this worker's clock.
    fn timestamp(&self) -> Result<Timestamp, Abort> {
        self.clock.next(self.port().now().0).ok_or(Abort::TimestampWrap)
    }

    /// Pauses before a lock that a transaction waits for is tried again. The first tries follow each other at once (RCC §4.3, b2);
    /// who waits longer than a few round trips waits for a whole transaction, and looks less and less often: the core may have
    /// to run the one that holds the lock, and the NIC's atomics are somebody else's too. So does, under any rule, who has lost races for
    /// a lock that many share: the more CAS there are for one word the longer each takes, and the more of them come too late.
    async fn pause(&self, rule: LockRule, tries: u32, races: u32) {
        let waited = if rule.on_conflict == OnConflict::WaitIfOlder { tries + races } else { 0 };
        let beyond = waited.saturating_sub(TRIES_AT_ONCE).max(races.saturating_sub(RACES_AT_ONCE));
        if beyond > 0 {
            sleep_until(self.port(), self.port().now() + pause_after(beyond)).await;
        }
    }

    /// Whether something is to be done wrong. Asked only where it would go wrong.
    #[cold]
    fn sabotaged(&self, what: Sabotage) -> bool {
        self.sabotage.get() == Some(what)
    }

    /// A torn READ was seen.
    fn torn(&self) {
        self.torn.set(self.torn.get() + 1);
    }
}
