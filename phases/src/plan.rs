//! Which primitive serves which phase: a value that is parsed, checked and printed.
//!
//! A [`Plan`] names, for each of the six phases, the primitive and the optimizations of DrTM+H §3.2 (table 2),
//! and for all of them the location cache and the coroutines per thread. Only a [`CheckedPlan`] can run;
//! [`Plan::check`] holds a plan against what the fabric can do and what the protocol needs. How many replicas
//! there are is not part of a plan: that is a property of the data, not a choice of primitive.
//!
//! ```
//! use phases::plan::{Needs, Plan, Preset};
//! use primitives::fabric::{AtomicScope, Caps};
//! # let caps = Caps { fabric: "tcp".into(), one_sided: false, atomic_scope: AtomicScope::None,
//! #     failed_cas_stores: false, max_send_depth: 64, max_recv_depth: 64, max_inline: 0, max_rd_atomic: 0,
//! #     ud_mtu: 4096, card: false, virtual_time: false };
//! let plan = Plan::parse("{fetch: one-sided, lock: two-sided, validate: two-sided, log: two-sided, \
//!     install: two-sided, unlock: two-sided}", "inline")?;
//! let refused = plan.check(&caps, &Needs::OCC).unwrap_err();
//! assert!(refused.to_string().contains("fetch"));
//! assert!(refused.nearest.is_some_and(|near| near.check(&caps, &Needs::OCC).is_ok()));
//! # Ok::<(), phases::plan::PlanFileError>(())
//! ```

mod check;
mod describe;
mod epochs;
mod file;
mod locks;
mod presets;
mod space;

pub use check::{CheckedPlan, Needs, PlanError, Refusal};
pub use epochs::Epochs;
pub use file::{PlanFile, PlanFileError, Prediction, check_name};
pub use presets::{PlanChoice, Preset};
pub use space::Space;

use serde::{Deserialize, Serialize};
use std::fmt;

/// A phase of a transaction, in the order of DrTM+H figure 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Phase {
    /// Execution: records are found and read.
    Fetch,
    /// Records of the write set are locked and read again.
    Lock,
    /// Records that were only read are checked.
    Validate,
    /// Updates are written to the backups.
    Log,
    /// Commit: updates are written to the primary and locks released.
    Install,
    /// Locks are released after an abort.
    Unlock,
}

impl Phase {
    /// All phases, in order.
    pub const ALL: [Phase; 6] =
        [Phase::Fetch, Phase::Lock, Phase::Validate, Phase::Log, Phase::Install, Phase::Unlock];

    /// The name used in plan files and results.
    pub fn name(self) -> &'static str {
        match self {
            Phase::Fetch => "fetch",
            Phase::Lock => "lock",
            Phase::Validate => "validate",
            Phase::Log => "log",
            Phase::Install => "install",
            Phase::Unlock => "unlock",
        }
    }

    /// Whether the transaction may go on before the phase's requests are answered. Everything before the end of
    /// logging decides about the transaction; what follows does not (DrTM+H §3.2).
    pub fn may_be_passive(self) -> bool {
        matches!(self, Phase::Install | Phase::Unlock)
    }
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The primitive that carries a phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Via {
    /// READ, WRITE and CAS by the requester.
    OneSided,
    /// A request to the owner and its reply.
    TwoSided,
    /// Fetch only: one-sided where the location cache knows the record, two-sided where it does not
    /// (DrTM+H §5.1).
    Hybrid,
}

impl Via {
    /// The name used in plan files and results.
    pub fn name(self) -> &'static str {
        match self {
            Via::OneSided => "one-sided",
            Via::TwoSided => "two-sided",
            Via::Hybrid => "hybrid",
        }
    }

    /// Whether one-sided verbs may be posted.
    pub fn is_one_sided(self) -> bool {
        matches!(self, Via::OneSided | Via::Hybrid)
    }
}

impl fmt::Display for Via {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// How one phase is carried: the primitive and its optimizations (DrTM+H §3.2).
///
/// In a file it is the primitive alone (`one-sided`), which stands for the optimizations that table 2 gives that
/// phase and primitive, or a map `{via: one-sided, outstanding: true, doorbell_batching: true, passive_ack: false}`
/// whose absent keys mean the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct Step {
    /// The primitive.
    pub via: Via,
    /// Requests of one transaction are sent without waiting for each other.
    pub outstanding: bool,
    /// Requests that can share a doorbell do: one-sided those of one queue pair, two-sided all of a batch.
    pub doorbell_batching: bool,
    /// Nobody waits for the answer: unsignaled requests, replies left out.
    pub passive_ack: bool,
}

impl Step {
    /// The optimizations that DrTM+H table 2 applies to a phase of read-write transactions. Unlock after an abort
    /// is not in the table; it posts what commit posts, so it takes commit's row. Its rows of read-only transactions are not kept
    /// apart: R is E here, and V of those has no doorbell batching one-sided there, while a plan has one way to validate, that of
    /// read-write transactions. Where a read set is known before it is read, the searched plans and the studies fetch all of it at
    /// once (`outstanding`), which the table does not; studies also let fetches share doorbells ([`crate::study`]).
    pub fn table2(phase: Phase, via: Via) -> Step {
        let one_sided = via == Via::OneSided;
        Step {
            via,
            outstanding: phase != Phase::Fetch,
            doorbell_batching: !(one_sided && matches!(phase, Phase::Fetch | Phase::Log)),
            passive_ack: phase.may_be_passive(),
        }
    }

    /// The primitive without any optimization.
    pub fn bare(via: Via) -> Step {
        Step { via, outstanding: false, doorbell_batching: false, passive_ack: false }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.via.name())?;
        let marks = [("or", self.outstanding), ("db", self.doorbell_batching), ("pa", self.passive_ack)];
        for (mark, _) in marks.iter().filter(|m| m.1) {
            write!(f, "+{mark}")?;
        }
        Ok(())
    }
}

/// A primitive per phase, and how many coroutines hide its latency. Not checked yet: see [`Plan::check`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct Plan {
    /// Coroutines per thread.
    pub coroutines: u32,
    /// Locations of records are remembered where they were learnt, and looked up before any other lookup.
    pub location_cache: bool,
    /// Execution.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fetch: Option<Step>,
    /// Locking, with the read that validates what is locked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lock: Option<Step>,
    /// Validation of records only read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub validate: Option<Step>,
    /// Logging to backups.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub log: Option<Step>,
    /// Write-back and unlock.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub install: Option<Step>,
    /// Unlock after an abort.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unlock: Option<Step>,
}

impl Plan {
    /// Coroutines per thread where a plan does not say: enough to hide RDMA latency by FaSST and DrTM+H §3.2.
    pub const DEFAULT_COROUTINES: u32 = 8;

    /// Most coroutines per thread a plan may ask for; beyond it is a slip of the pen, not a plan.
    pub const MAX_COROUTINES: u32 = 4096;

    /// Every phase through `via` (hybrid: fetch alone, the rest two-sided) with the optimizations of table 2.
    pub fn uniform(via: Via) -> Plan {
        let rest = if via == Via::Hybrid { Via::TwoSided } else { via };
        let mut plan = Plan::empty();
        for phase in Phase::ALL {
            let via = if phase == Phase::Fetch { via } else { rest };
            plan.set(phase, Some(Step::table2(phase, via)));
        }
        plan
    }

    /// No phase set, cache on, default coroutines.
    pub fn empty() -> Plan {
        Plan {
            coroutines: Plan::DEFAULT_COROUTINES,
            location_cache: true,
            fetch: None,
            lock: None,
            validate: None,
            log: None,
            install: None,
            unlock: None,
        }
    }

    /// How `phase` is carried, where the plan says so.
    #[inline]
    pub fn step(&self, phase: Phase) -> Option<Step> {
        match phase {
            Phase::Fetch => self.fetch,
            Phase::Lock => self.lock,
            Phase::Validate => self.validate,
            Phase::Log => self.log,
            Phase::Install => self.install,
            Phase::Unlock => self.unlock,
        }
    }

    /// Sets or clears how `phase` is carried.
    pub fn set(&mut self, phase: Phase, step: Option<Step>) {
        *match phase {
            Phase::Fetch => &mut self.fetch,
            Phase::Lock => &mut self.lock,
            Phase::Validate => &mut self.validate,
            Phase::Log => &mut self.log,
            Phase::Install => &mut self.install,
            Phase::Unlock => &mut self.unlock,
        } = step;
    }

    /// This plan with `phase` carried by `via` and the optimizations of table 2.
    pub fn with(mut self, phase: Phase, via: Via) -> Plan {
        self.set(phase, Some(Step::table2(phase, via)));
        self
    }

    /// This plan without the phases that a protocol never runs, and without a location cache that it never asks: for plans that were written down for no protocol in
    /// particular.
    pub fn restricted_to(mut self, needs: &Needs) -> Plan {
        for phase in Phase::ALL.into_iter().filter(|&phase| !needs.runs(phase)) {
            self.set(phase, None);
        }
        for phase in Phase::ALL.into_iter().filter(|_| needs.sequenced) {
            // Written down for requests about records: letters have departures of their own.
            self.set(phase, self.step(phase).map(|step| needs.usual(phase, step.via)));
        }
        self.location_cache &= !needs.sequenced;
        self
    }

    /// Phases that are set, with how they are carried.
    pub fn steps(&self) -> impl Iterator<Item = (Phase, Step)> {
        Phase::ALL.into_iter().filter_map(|phase| self.step(phase).map(|step| (phase, step)))
    }

    /// Whether records' locations are known when `phase` begins: from the cache, from a fetch of either kind (an RPC's
    /// reply carries the location, DrTM+H §5.1), or from the reply to a two-sided lock.
    pub fn learns_locations_before(&self, phase: Phase) -> bool {
        let teaches = |earlier: Phase, step: Step| {
            // A lock without a fetch before it has to find the record.
            let finds = step.via == Via::TwoSided || self.fetch.is_none();
            earlier == Phase::Fetch || earlier == Phase::Lock && finds
        };
        self.location_cache || self.steps().any(|(earlier, step)| earlier < phase && teaches(earlier, step))
    }
}

impl fmt::Display for Plan {
    /// The short inline form: phases and primitives, what differs from the defaults only.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("{")?;
        let mut separator = "";
        for (phase, step) in self.steps() {
            write!(f, "{separator}{phase}: ")?;
            separator = ", ";
            let usual = Step::table2(phase, step.via);
            if step == usual {
                write!(f, "{}", step.via)?;
                continue;
            }
            write!(f, "{{via: {}", step.via)?;
            for (key, value, default) in [
                ("outstanding", step.outstanding, usual.outstanding),
                ("doorbell_batching", step.doorbell_batching, usual.doorbell_batching),
                ("passive_ack", step.passive_ack, usual.passive_ack),
            ] {
                if value != default {
                    write!(f, ", {key}: {value}")?;
                }
            }
            f.write_str("}")?;
        }
        if !self.location_cache {
            write!(f, "{separator}location_cache: false")?;
            separator = ", ";
        }
        if self.coroutines != Plan::DEFAULT_COROUTINES {
            write!(f, "{separator}coroutines: {}", self.coroutines)?;
        }
        f.write_str("}")
    }
}
