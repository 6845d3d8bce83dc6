//! Operations: what carries a rule to where a record lives.
//!
//! [`PhaseOps`] has one operation per phase. [`OneSided`] reads headers and records and decides here; [`TwoSided`]
//! sends the rule, and the owner's [`Handlers`] call the same `decide`. [`Phases`] splits a transaction's local
//! records off, serves them by CPU, and hands the rest to whichever of the two the plan names.

use crate::plan::{CheckedPlan, Phase};
use crate::rule::{Abort, CheckRule, LockRule};
use crate::store::{CacheStats, Cluster, Layout, LocationCache};
use crate::txn::{Intent, Txn};
use primitives::mem::PoolExhausted;
use primitives::mesh::Site;
use primitives::rpc::{Incoming, Reply, RpcError, Service};
use primitives::verbs::NodeId;
use primitives::verbs::port::VerbError;
use std::sync::Arc;

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

/// The operations of a transaction, one per phase. Each serves the records of the transaction that it is about and
/// counts its cost in [`Txn::costs`].
#[allow(async_fn_in_trait)] // coroutines stay on their core: nobody needs these futures to be `Send`
pub trait PhaseOps {
    /// Reads every record that is not read yet.
    async fn fetch(&self, txn: &mut Txn) -> Result<(), Stop>;
    /// Locks every record to be written and reads it. When it fails, some of them may be locked: `unlock` frees them.
    async fn lock_and_read(&self, txn: &mut Txn, rule: LockRule) -> Result<(), Stop>;
    /// Checks every record that is only read.
    async fn validate(&self, txn: &mut Txn, rule: CheckRule) -> Result<(), Stop>;
    /// Writes the new values to the backups' logs and waits until all have them.
    async fn replicate(&self, txn: &mut Txn) -> Result<(), Stop>;
    /// Writes the new values to the primaries and frees their locks.
    async fn install_and_unlock(&self, txn: &mut Txn) -> Result<(), Stop>;
    /// Frees every lock that is held.
    async fn unlock(&self, txn: &mut Txn) -> Result<(), Stop>;
}

/// All phases as a plan carries them, for one worker.
pub struct Phases {
    plan: CheckedPlan,
    layout: Arc<Layout>,
    net: primitives::mesh::Worker,
    cache: Option<LocationCache>,
}

impl Phases {
    /// The operations of the worker at `site` under `plan`. `cache` is this worker's view of the location cache;
    /// a plan without one ignores it.
    pub fn new(site: &Site, cluster: &Cluster, plan: CheckedPlan, cache: LocationCache) -> Phases {
        let cache = plan.get().location_cache.then_some(cache);
        Phases { plan, layout: cluster.layout().clone(), net: site.net.clone(), cache }
    }

    /// The plan.
    pub fn plan(&self) -> &CheckedPlan {
        &self.plan
    }

    /// The shape of the store.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Adds a record to a transaction; see [`Txn::touch`].
    ///
    /// # Errors
    /// If the port's pool has no buffer left.
    #[inline]
    pub fn touch(
        &self,
        txn: &mut Txn,
        table: crate::store::TableId,
        key: u64,
        intent: Intent,
    ) -> Result<usize, PoolExhausted> {
        txn.touch(&self.net.port, &self.layout, table, key, intent)
    }

    /// What this worker's location cache has counted, if the plan has one.
    pub fn cache_stats(&self) -> CacheStats {
        self.cache.as_ref().map_or(CacheStats::default(), LocationCache::stats)
    }
}

#[allow(unused_variables)]
impl PhaseOps for Phases {
    async fn fetch(&self, txn: &mut Txn) -> Result<(), Stop> {
        todo!()
    }
    async fn lock_and_read(&self, txn: &mut Txn, rule: LockRule) -> Result<(), Stop> {
        todo!()
    }
    async fn validate(&self, txn: &mut Txn, rule: CheckRule) -> Result<(), Stop> {
        todo!()
    }
    async fn replicate(&self, txn: &mut Txn) -> Result<(), Stop> {
        todo!()
    }
    async fn install_and_unlock(&self, txn: &mut Txn) -> Result<(), Stop> {
        todo!()
    }
    async fn unlock(&self, txn: &mut Txn) -> Result<(), Stop> {
        todo!()
    }
}

/// The owner's side of two-sided operations, for one worker.
pub struct Handlers {
    store: crate::store::NodeStore,
}

impl Handlers {
    /// The handlers of a worker of `node`.
    pub fn new(cluster: &Cluster, node: NodeId, _worker: u16) -> Handlers {
        Handlers { store: cluster.store(node).clone() }
    }
}

impl Service for Handlers {
    fn handle(&mut self, _request: &mut Incoming<'_>, _reply: &mut Reply<'_>) {
        let _ = &self.store;
        todo!()
    }
}
