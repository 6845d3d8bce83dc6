//! What makes a plan impossible, and the nearest one that would run.
//!
//! Of a device it looks at what a plan can ask for: one-sided verbs, what its atomics exclude, how long a message may be. How long queues are
//! and how many READs are in flight no plan says: of READs and of inline bytes a cluster takes what the device has (`primitives/src/mesh`), and
//! a queue that is longer than it has is refused when it is made, with its limit (`primitives/src/fabric/checks.rs`).

use super::{Epochs, Phase, Plan, Space, Step, Via};
use crate::ops::wire;
use crate::rule::{OnConflict, Packing};
use primitives::fabric::{AtomicScope, Caps};
use std::fmt;

/// What a protocol asks of the phases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Needs {
    /// The protocol's name.
    pub protocol: &'static str,
    /// Phases it runs.
    pub phases: &'static [Phase],
    /// Header words its lock rule reads and changes together. CAS reaches one.
    pub lock_words: u32,
    /// Header words its check rule compares together. A READ is whole up to one.
    pub check_words: u32,
    /// How it packs its state into records.
    pub packing: Packing,
    /// Several transactions may hold a lock: then freeing it is reading and changing, too.
    pub shared_locks: bool,
    /// What it does about a lock that somebody holds.
    pub on_conflict: OnConflict,
    /// Payload in bytes of the longest record that its phases carry, which is the workload's; 0 where plans are checked without one.
    pub record_bytes: u32,
    /// Transactions are ordered before they run, and every node serves its own records: phases carry inputs and values to places
    /// that are known, not requests about records ([`crate::letter`]).
    pub sequenced: bool,
    /// How they are, then.
    pub epochs: Epochs,
    /// What is written is locked at first touch, before it is known whether there is such a record.
    pub locks_first: bool,
}

/// Two-phase locking finds, reads and locks a record in one step, and has nothing to validate.
const LOCKING: [Phase; 4] = [Phase::Lock, Phase::Log, Phase::Install, Phase::Unlock];

impl Needs {
    /// Optimistic concurrency control: every phase, one header word.
    pub const OCC: Needs = Needs {
        protocol: "occ",
        phases: &Phase::ALL,
        lock_words: 1,
        check_words: 1,
        packing: Packing::Counted,
        shared_locks: false,
        on_conflict: OnConflict::Fail,
        record_bytes: 0,
        sequenced: false,
        epochs: Epochs::USUAL,
        locks_first: false,
    };

    /// [`Needs::OCC`] that locks what it writes when it first touches it.
    pub const FASST: Needs = Needs { protocol: "fasst", locks_first: true, ..Needs::OCC };

    /// Two-phase locking without waiting.
    pub const NOWAIT: Needs = Needs {
        protocol: "nowait",
        phases: &LOCKING,
        packing: Packing::Locked,
        shared_locks: true,
        ..Needs::OCC
    };

    /// Two-phase locking, older transactions wait.
    pub const WAITDIE: Needs =
        Needs { protocol: "waitdie", on_conflict: OnConflict::WaitIfOlder, ..Needs::NOWAIT };

    /// Two-phase locking, everybody waits for sixteen looks at a lock.
    pub const BOUNDED_WAIT: Needs =
        Needs { protocol: "bounded-wait", on_conflict: OnConflict::Retry(16), ..Needs::NOWAIT };

    /// [`Needs::NOWAIT`] with one holder to a lock, whether it reads or writes.
    pub const NOWAIT_EXCLUSIVE: Needs =
        Needs { protocol: "nowait-exclusive", shared_locks: false, ..Needs::NOWAIT };

    /// [`Needs::WAITDIE`] with one holder to a lock.
    pub const WAITDIE_EXCLUSIVE: Needs =
        Needs { protocol: "waitdie-exclusive", shared_locks: false, ..Needs::WAITDIE };

    /// Leases: lock, lease and write timestamp in one header word.
    pub const SUNDIAL: Needs = Needs { protocol: "sundial", packing: Packing::Leased, ..Needs::OCC };

    /// Versions: a lock word, a read timestamp, and the versions' own.
    pub const MVCC: Needs = Needs { protocol: "mvcc", packing: Packing::Versions, ..Needs::OCC };

    /// Why the protocol's transactions may not insert, delete, scan and look for what is not there, if they may not.
    pub fn keeps_tables(&self) -> Option<&'static str> {
        self.locks_first.then_some("locks a record before it has looked whether there is one")
    }

    /// Whether they may.
    pub fn changes_tables(&self) -> bool {
        self.keeps_tables().is_none()
    }

    /// The same protocol, with records of at most so much payload.
    pub const fn with_records(self, record_bytes: u32) -> Needs {
        Needs { record_bytes, ..self }
    }

    /// Bytes of the longest message that carries a record where every phase is carried by messages.
    pub fn longest_message(&self) -> u32 {
        self.phases.iter().map(|&phase| self.longest_message_of(phase)).max().unwrap_or(0)
    }

    /// Bytes of the longest message that has to be sent whole where `phase` is carried by messages; 0 where it carries no record, or in
    /// pieces: log entries and letters are of any length. A lock is taken to bring its record along even under a protocol that
    /// has mostly read it before: it does so for what is written without being read.
    fn longest_message_of(&self, phase: Phase) -> u32 {
        if self.sequenced { 0 } else { wire::longest_message(phase, self.packing, self.record_bytes) }
    }

    /// Inputs ahead of transactions: `lock` carries each epoch's inputs to all nodes, which is how locks are asked for, and `fetch`
    /// the values that other participants need.
    pub const CALVIN: Needs =
        Needs { protocol: "calvin", phases: &[Phase::Fetch, Phase::Lock], sequenced: true, ..Needs::OCC };

    /// How `phase` is usually carried by `via`: with the optimizations of table 2, where letters, of which a whole batch goes out at
    /// once, are like requests for locks.
    pub fn usual(&self, phase: Phase, via: Via) -> Step {
        Step::table2(if self.sequenced { Phase::Lock } else { phase }, via)
    }

    /// Whether the protocol runs `phase`.
    pub fn runs(&self, phase: Phase) -> bool {
        self.phases.contains(&phase)
    }

    /// Whether what is written is locked when the transaction comes to it, rather than at commit.
    pub fn locks_at_touch(&self) -> bool {
        self.locks_first || self.packing != Packing::Counted
    }

    /// Whether its transactions take timestamps from their node's clock, by their age or by their place in the order: to others it makes no
    /// difference how wrong clocks are.
    pub fn asks_clocks(&self) -> bool {
        self.on_conflict == OnConflict::WaitIfOlder || self.packing == Packing::Versions
    }

    /// Whether it serves records in `phase` when the transaction comes to them, rather than all together later on.
    pub fn at_first_touch(&self, phase: Phase) -> bool {
        match phase {
            Phase::Fetch => true,
            Phase::Lock => self.locks_at_touch(),
            Phase::Validate => self.packing == Packing::Versions,
            Phase::Log | Phase::Install | Phase::Unlock => false,
        }
    }
}

/// One thing that is wrong with a plan.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The fabric has no READ, WRITE and CAS.
    #[error("{phase}: {via} asked for, but {fabric} has no one-sided verbs")]
    NoOneSidedVerbs {
        /// The phase.
        phase: Phase,
        /// What was asked for.
        via: Via,
        /// The fabric.
        fabric: String,
    },
    /// The fabric has no CAS.
    #[error("lock: one-sided asked for, but {fabric} has no atomics")]
    NoAtomics {
        /// The fabric.
        fabric: String,
    },
    /// The NIC's CAS and the owner's CPU would change the same lock words.
    #[error(
        "{phase}: two-sided asked for, but lock is one-sided: the owner's CPU and NIC atomics would both change \
         lock words, and atomics of {fabric} are atomic only among themselves"
    )]
    LockWordsShared {
        /// The phase in which the CPU changes lock words.
        phase: Phase,
        /// The fabric.
        fabric: String,
    },
    /// Shared locks are taken by one and given back by the other of CPU and NIC.
    #[error(
        "{phase}: {via} asked for, but lock is {lock}: {protocol} counts a lock's readers, which the owner's CPU and NIC \
         atomics would both change, and atomics of {fabric} are atomic only among themselves"
    )]
    ReadersShared {
        /// The phase that frees locks.
        phase: Phase,
        /// What was asked for.
        via: Via,
        /// How locks are taken.
        lock: Via,
        /// The protocol.
        protocol: &'static str,
        /// The fabric.
        fabric: String,
    },
    /// Lease and lock are in one word, changed by CPU and NIC.
    #[error(
        "validate: {via} asked for, but lock is {lock}: {protocol} keeps lock and lease in one word, which the owner's CPU \
         and NIC atomics would both change, and atomics of {fabric} are atomic only among themselves"
    )]
    LeasesShared {
        /// What was asked for.
        via: Via,
        /// How locks are taken.
        lock: Via,
        /// The protocol.
        protocol: &'static str,
        /// The fabric.
        fabric: String,
    },
    /// Read timestamps are moved by calls and by the NIC.
    #[error(
        "validate: one-sided asked for, but fetch is {fetch}: the owner's CPU moves read timestamps when it is called, NIC \
         atomics would move them too, and atomics of {fabric} are atomic only among themselves"
    )]
    ReadTimestampsShared {
        /// How records are fetched.
        fetch: Via,
        /// The fabric.
        fabric: String,
    },
    /// Nobody knows where the record is.
    #[error(
        "{phase}: one-sided asked for, but nobody knows where the records are: no earlier phase learns it, and the \
         location cache is off"
    )]
    NoLocation {
        /// The phase.
        phase: Phase,
    },
    /// The rule looks at more than CAS or an untorn READ reaches.
    #[error(
        "{phase}: one-sided asked for, but {protocol}'s rule needs {words} header words together: only the owner \
         can decide"
    )]
    NeedsOwner {
        /// The phase.
        phase: Phase,
        /// The protocol.
        protocol: &'static str,
        /// Header words.
        words: u32,
    },
    /// The protocol never runs the phase.
    #[error("{phase}: {via} asked for, but {protocol} never runs this phase")]
    NeverRun {
        /// The phase.
        phase: Phase,
        /// What was asked for.
        via: Via,
        /// The protocol.
        protocol: &'static str,
    },
    /// The protocol runs a phase that the plan leaves open.
    #[error("{phase}: not set, but {protocol} runs this phase")]
    Missing {
        /// The phase.
        phase: Phase,
        /// The protocol.
        protocol: &'static str,
    },
    /// Hybrid where there is no cache miss to switch on.
    #[error("{phase}: hybrid asked for, but only fetch can choose by what the location cache holds")]
    HybridPhase {
        /// The phase.
        phase: Phase,
    },
    /// Hybrid without the cache it switches on.
    #[error("fetch: hybrid asked for, but the location cache it chooses by is off")]
    HybridWithoutCache,
    /// Hybrid where values are sent unasked.
    #[error(
        "fetch: hybrid asked for, but under {protocol} values are sent unasked: nobody looks records up, so there is no cache to choose by"
    )]
    HybridForward {
        /// The protocol.
        protocol: &'static str,
    },
    /// A location cache that nobody asks.
    #[error(
        "location_cache: true, but under {protocol} every node serves its own records: no location of another node's is ever asked for"
    )]
    CacheNeverAsked {
        /// The protocol.
        protocol: &'static str,
    },
    /// Passive acknowledgement of an answer the transaction needs.
    #[error("{phase}: passive_ack asked for, but the transaction cannot go on without this phase's answers")]
    AnswerNeeded {
        /// The phase.
        phase: Phase,
    },
    /// A record does not fit into a message.
    #[error(
        "{phase}: {via} asked for, but a record of {payload} B makes a message of {message} B, and a datagram takes {most} B here"
    )]
    RecordTooLong {
        /// The phase.
        phase: Phase,
        /// What was asked for.
        via: Via,
        /// Bytes of payload.
        payload: u32,
        /// Bytes of the message.
        message: u32,
        /// Most bytes of a datagram, which a message is.
        most: u32,
    },
    /// No coroutine, or absurdly many.
    #[error("coroutines: {asked} asked for, a thread can run 1 to {}", Plan::MAX_COROUTINES)]
    Coroutines {
        /// What was asked for.
        asked: u32,
    },
}

impl Refusal {
    /// The phase it is about; coroutines and the location cache are about none.
    pub fn phase(&self) -> Option<Phase> {
        match self {
            Refusal::NoOneSidedVerbs { phase, .. }
            | Refusal::LockWordsShared { phase, .. }
            | Refusal::ReadersShared { phase, .. }
            | Refusal::NoLocation { phase }
            | Refusal::NeedsOwner { phase, .. }
            | Refusal::NeverRun { phase, .. }
            | Refusal::Missing { phase, .. }
            | Refusal::HybridPhase { phase }
            | Refusal::RecordTooLong { phase, .. }
            | Refusal::AnswerNeeded { phase } => Some(*phase),
            Refusal::NoAtomics { .. } => Some(Phase::Lock),
            Refusal::LeasesShared { .. } | Refusal::ReadTimestampsShared { .. } => Some(Phase::Validate),
            Refusal::HybridWithoutCache | Refusal::HybridForward { .. } => Some(Phase::Fetch),
            Refusal::Coroutines { .. } | Refusal::CacheNeverAsked { .. } => None,
        }
    }
}

/// Everything that is wrong with a plan, and the nearest plan that would run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanError {
    /// What is wrong, in phase order; at least one entry.
    pub refusals: Vec<Refusal>,
    /// The plan that would run with the fewest phases carried differently; none where no plan would.
    pub nearest: Option<Plan>,
}

impl fmt::Display for PlanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("this plan cannot run: ")?;
        for (i, refusal) in self.refusals.iter().enumerate() {
            write!(f, "{}{refusal}", if i == 0 { "" } else { "; " })?;
        }
        match self.nearest {
            Some(nearest) => write!(f, ". The nearest plan that would run: {nearest}"),
            None => f.write_str(". No plan would run"),
        }
    }
}

impl std::error::Error for PlanError {}

/// A plan that can run on the fabric and under the protocol it was checked against.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CheckedPlan {
    plan: Plan,
    nic_owns_lock_words: bool,
    nic_owns_leases: bool,
    adds_to_free: bool,
}

impl CheckedPlan {
    /// The plan.
    #[inline]
    pub fn get(&self) -> &Plan {
        &self.plan
    }

    /// How `phase` is carried.
    ///
    /// # Panics
    /// When the protocol that the plan was checked for does not run `phase`: a bug in what it declares.
    #[inline]
    pub fn step(&self, phase: Phase) -> Step {
        match self.plan.step(phase) {
            Some(step) => step,
            None => panic!("bug: {phase} is run, but the protocol did not declare it"),
        }
    }

    /// How requests of `phase` are sent that only the owner can serve, also where the protocol does not run the phase otherwise.
    #[inline]
    pub fn step_of_owner(&self, phase: Phase) -> Step {
        self.plan.step(phase).unwrap_or_else(|| Step::table2(phase, Via::TwoSided))
    }

    /// Whether lock words are changed by NIC atomics that the CPU's are not atomic with, so that even a record
    /// of the own node must be locked and unlocked through the NIC (DrTM+H §5.2).
    #[inline]
    pub fn nic_owns_lock_words(&self) -> bool {
        self.nic_owns_lock_words
    }

    /// Whether a lock word that this transaction alone holds is freed by FETCH_ADD and not by WRITE: rivals ask for it by CAS, and one that
    /// fails may undo a WRITE ([`Caps::failed_cas_stores`]).
    #[inline]
    pub fn adds_to_free(&self) -> bool {
        self.adds_to_free
    }

    /// Whether leases of local records, too, are extended through the NIC.
    #[inline]
    pub fn nic_owns_leases(&self) -> bool {
        self.nic_owns_leases
    }
}

impl Plan {
    /// Holds the plan against what the fabric can do and the protocol needs.
    ///
    /// Lock words: a NIC that is atomic only with itself reads and writes memory in two steps, so a CPU that
    /// changes the word in between is lost. Hence no two-sided install or unlock beside a one-sided lock. The
    /// other way round is allowed: WRITE is one coherent store, which a CPU's compare-and-swap cannot
    /// lose (DrTM+H figure 9 measures one-sided commit after two-sided locking).
    ///
    /// # Errors
    /// Everything that is wrong, with the nearest plan that would run.
    pub fn check(self, caps: &Caps, needs: &Needs) -> Result<CheckedPlan, PlanError> {
        let refusals = self.refusals(caps, needs);
        if !refusals.is_empty() {
            return Err(PlanError { refusals, nearest: self.nearest(caps, needs) });
        }
        let cas = !needs.sequenced && self.lock.is_some_and(|step| step.via == Via::OneSided);
        let apart = caps.atomic_scope != AtomicScope::Global;
        let renews = matches!(needs.packing, Packing::Leased | Packing::Versions)
            && self.validate.is_some_and(|step| step.via == Via::OneSided);
        Ok(CheckedPlan {
            plan: self,
            nic_owns_lock_words: cas && apart,
            nic_owns_leases: renews && apart,
            adds_to_free: cas && apart && caps.failed_cas_stores,
        })
    }

    /// Everything that is wrong with the plan, in phase order; empty if it can run.
    pub fn refusals(&self, caps: &Caps, needs: &Needs) -> Vec<Refusal> {
        let mut found = Vec::new();
        for phase in Phase::ALL {
            match self.step(phase) {
                None if needs.runs(phase) => {
                    found.push(Refusal::Missing { phase, protocol: needs.protocol });
                }
                None => {}
                Some(step) if !needs.runs(phase) => {
                    found.push(Refusal::NeverRun { phase, via: step.via, protocol: needs.protocol });
                }
                Some(step) if needs.sequenced => refuse_letters(phase, step, caps, needs, &mut found),
                Some(step) => self.refuse_step(phase, step, caps, needs, &mut found),
            }
        }
        if needs.sequenced && self.location_cache {
            found.push(Refusal::CacheNeverAsked { protocol: needs.protocol });
        }
        if !(1..=Plan::MAX_COROUTINES).contains(&self.coroutines) {
            found.push(Refusal::Coroutines { asked: self.coroutines });
        }
        found
    }

    fn refuse_step(&self, phase: Phase, step: Step, caps: &Caps, needs: &Needs, found: &mut Vec<Refusal>) {
        let fabric = || caps.fabric.clone();
        if step.via == Via::Hybrid && phase != Phase::Fetch {
            found.push(Refusal::HybridPhase { phase });
        }
        if step.via == Via::Hybrid && phase == Phase::Fetch && !self.location_cache {
            found.push(Refusal::HybridWithoutCache);
        }
        if step.passive_ack && !phase.may_be_passive() {
            found.push(Refusal::AnswerNeeded { phase });
        }
        if step.via != Via::OneSided {
            let (message, most) = (needs.longest_message_of(phase), caps.ud_mtu);
            if message > most {
                let (via, payload) = (step.via, needs.record_bytes);
                found.push(Refusal::RecordTooLong { phase, via, payload, message, most });
            }
        }
        if step.via.is_one_sided() && !caps.one_sided {
            found.push(Refusal::NoOneSidedVerbs { phase, via: step.via, fabric: fabric() });
        } else if step.via == Via::OneSided {
            let words = match phase {
                Phase::Lock | Phase::Install | Phase::Unlock => needs.lock_words,
                Phase::Validate => needs.check_words,
                Phase::Fetch | Phase::Log => 1,
            };
            if words > 1 {
                found.push(Refusal::NeedsOwner { phase, protocol: needs.protocol, words });
            }
            if phase == Phase::Lock && caps.atomic_scope == AtomicScope::None {
                found.push(Refusal::NoAtomics { fabric: fabric() });
            }
            // Whoever meets a record first looks for it.
            let first = if needs.runs(Phase::Fetch) { Phase::Fetch } else { Phase::Lock };
            let by_location = !matches!(phase, Phase::Log) && phase != first;
            if by_location && !self.learns_locations_before(phase) {
                found.push(Refusal::NoLocation { phase });
            }
        }
        let cpu_changes = step.via == Via::TwoSided && matches!(phase, Phase::Install | Phase::Unlock);
        let nic_locks = self.lock.is_some_and(|lock| lock.via == Via::OneSided);
        if cpu_changes && nic_locks && caps.one_sided && caps.atomic_scope == AtomicScope::Nic {
            found.push(Refusal::LockWordsShared { phase, fabric: fabric() });
            return;
        }
        let apart = caps.one_sided && caps.atomic_scope == AtomicScope::Nic;
        if needs.packing == Packing::Versions
            && phase == Phase::Validate
            && step.via == Via::OneSided
            && apart
            && let Some(fetch) = self.fetch.map(|fetch| fetch.via).filter(|&via| via != Via::OneSided)
        {
            found.push(Refusal::ReadTimestampsShared { fetch, fabric: fabric() });
        }
        let Some(lock) = self.lock.map(|lock| lock.via) else { return };
        if !apart || step.via == lock {
            return;
        }
        let protocol = needs.protocol;
        if needs.shared_locks && matches!(phase, Phase::Install | Phase::Unlock) {
            found.push(Refusal::ReadersShared { phase, via: step.via, lock, protocol, fabric: fabric() });
        }
        if needs.packing == Packing::Leased && phase == Phase::Validate {
            found.push(Refusal::LeasesShared { via: step.via, lock, protocol, fabric: fabric() });
        }
    }

    /// Bytes of the longest message that carries a record under this plan, header included; 0 if none does. RPC endpoints have to take
    /// it.
    pub fn longest_message(&self, needs: &Needs) -> u32 {
        let by_message = self.steps().filter(|(_, step)| step.via != Via::OneSided);
        by_message.map(|(phase, _)| needs.longest_message_of(phase)).max().unwrap_or(0)
    }

    /// The plan that can run and carries the fewest phases differently from this one. Optimizations are kept
    /// where they still mean something. Between equally near plans the order of [`Space`] decides. None where no plan can run: long
    /// records over messages alone.
    pub fn nearest(&self, caps: &Caps, needs: &Needs) -> Option<Plan> {
        let coroutines = self.coroutines.clamp(1, Plan::MAX_COROUTINES);
        Space::primitives(caps, needs)
            .plans()
            .map(|candidate| {
                let mut near = candidate;
                near.coroutines = coroutines;
                for (phase, step) in candidate.steps() {
                    near.set(phase, Some(self.keep(phase, step.via)));
                }
                near
            })
            .min_by_key(|near| self.distance(near))
    }

    /// `via` for `phase` with the optimizations of table 2, but for those in which this plan departs from table 2.
    fn keep(&self, phase: Phase, via: Via) -> Step {
        let usual = Step::table2(phase, via);
        let Some(own) = self.step(phase) else { return usual };
        let was = Step::table2(phase, own.via);
        let keep = |own: bool, was: bool, usual: bool| if own == was { usual } else { own };
        Step {
            via,
            outstanding: keep(own.outstanding, was.outstanding, usual.outstanding),
            doorbell_batching: keep(own.doorbell_batching, was.doorbell_batching, usual.doorbell_batching),
            passive_ack: phase.may_be_passive() && keep(own.passive_ack, was.passive_ack, usual.passive_ack),
        }
    }

    /// Phases carried differently, then whether the cache differs.
    fn distance(&self, other: &Plan) -> (usize, bool) {
        let moved = Phase::ALL
            .into_iter()
            .filter(|&phase| match (self.step(phase), other.step(phase)) {
                (Some(own), Some(its)) => own.via != its.via,
                _ => false,
            })
            .count();
        (moved, self.location_cache != other.location_cache)
    }
}

/// What is wrong with how a sequenced protocol's letters are sent. WRITEs to known places need neither atomics nor locations,
/// but whoever sends must know that they have come.
fn refuse_letters(phase: Phase, step: Step, caps: &Caps, needs: &Needs, found: &mut Vec<Refusal>) {
    match (step.via, phase) {
        (Via::Hybrid, Phase::Fetch) => found.push(Refusal::HybridForward { protocol: needs.protocol }),
        (Via::Hybrid, _) => found.push(Refusal::HybridPhase { phase }),
        _ => {}
    }
    if step.passive_ack {
        found.push(Refusal::AnswerNeeded { phase });
    }
    if step.via.is_one_sided() && !caps.one_sided {
        found.push(Refusal::NoOneSidedVerbs { phase, via: step.via, fabric: caps.fabric.clone() });
    }
}

#[cfg(test)]
mod tests;
