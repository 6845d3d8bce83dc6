//! All phases as a plan carries them: local records by CPU, the rest by the primitive the plan names.

use super::local::{Served, Split};
use super::wire;
use super::{Clock, Context, MAX_TRIES, OneSided, PhaseOps, Sabotage, Skew, Stop, TwoSided, fault};
use crate::log::{RingReader, Rings};
use crate::plan::{CheckedPlan, Phase, Step, Via};
use crate::rule::{Abort, CheckRule, LockRule, OnConflict, Packing, Timestamp, Verdict};
use crate::store::record;
use crate::store::{CacheStats, Cluster, Layout, LocationCache, NodeStore, TableId};
use crate::txn::{Access, Intent, NOWHERE, Scan, Txn};
use primitives::exec::yield_now;
use primitives::fabric::{CpuWork, Nic};
use primitives::measure::Meter;
use primitives::mem::PoolExhausted;
use primitives::mesh::Site;
use primitives::verbs::port::Cost;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

/// All phases as a plan carries them, for one worker.
///
/// A worker's coroutines share one value: it keeps account of the worker's log rings, which have one writer.
pub struct Phases {
    pub(super) context: Rc<Context>,
    pub(super) local: NodeStore,
    pub(super) one: OneSided,
    pub(super) two: TwoSided,
    pub(super) rings: Rings,
    pub(super) own_log: RefCell<RingReader>,
    pub(super) log_waits: Cell<u64>,
    /// Tables, a bit each by number, whose records only transactions of their own node touch.
    home_tables: Cell<u64>,
}

impl Phases {
    /// The operations of the worker at `site` under `plan`. `cache` is this worker's view of the location cache;
    /// a plan without one ignores it.
    pub fn new(site: &Site, cluster: &Cluster, plan: CheckedPlan, cache: LocationCache) -> Phases {
        Phases::with_clock(site, cluster, plan, cache, Skew::default())
    }

    /// As [`Phases::new`], with a clock that is not right.
    pub fn with_clock(
        site: &Site,
        cluster: &Cluster,
        plan: CheckedPlan,
        cache: LocationCache,
        skew: Skew,
    ) -> Phases {
        let context = Rc::new(Context {
            plan,
            store: cluster.store(site.node).clone(),
            layout: cluster.layout().clone(),
            me: site.node,
            worker: site.worker,
            directory: cluster.directory(),
            net: site.net.clone(),
            cache: plan.get().location_cache.then_some(cache),
            clock: Clock::new(site.node, site.worker, skew),
            virtual_time: site.net.port.nic().caps().virtual_time,
            torn: Cell::new(0),
            sabotage: Cell::new(None),
        });
        Phases {
            one: OneSided::new(context.clone()),
            two: TwoSided::new(context.clone()),
            rings: Rings::new(
                cluster.layout(),
                u32::from(site.node.0) * u32::from(site.shape.workers) + u32::from(site.worker),
            ),
            own_log: RefCell::new(RingReader::new(context.store.clone(), site.worker)),
            local: context.store.clone(),
            context,
            log_waits: Cell::new(0),
            home_tables: Cell::new(0),
        }
    }

    /// Tells `meter` from now on which logs fill, and when their backups first apply them.
    pub fn meter_logs(&self, meter: Arc<Meter>) {
        self.rings.tell(meter);
    }

    /// Says of tables, a bit each by number, that only transactions of a record's own node ever touch it: where no NIC changes their lock
    /// words, the CPU may, even under a plan that locks others by CAS (DrTM+H §6.1: ATOMICs "if there is no atomic issue, e.g. network
    /// accesses do not conflict with local ones"). All nodes must say the same.
    pub fn keep_at_home(&self, tables: u64) {
        self.home_tables.set(tables);
    }

    pub(super) fn at_home(&self, table: TableId) -> bool {
        table.0 < 64 && self.home_tables.get() >> table.0 & 1 == 1
    }

    /// Whether the record's lock word is the NIC's to change. Leases and lock may share a word, so that who owns leases owns both.
    pub(super) fn locked_by_nic(&self, access: &Access) -> bool {
        let plan = &self.context.plan;
        plan.nic_owns_lock_words() && (plan.nic_owns_leases() || !self.at_home(access.table))
    }

    /// By how many ticks this worker's clock was found to have gone back, at most; timestamps do not follow it.
    pub fn clock_back(&self) -> u64 {
        self.context.clock.back()
    }

    /// The plan.
    pub fn plan(&self) -> &CheckedPlan {
        &self.context.plan
    }

    /// The shape of the store.
    pub fn layout(&self) -> &Layout {
        &self.context.layout
    }

    /// Adds a record to a transaction; see [`Txn::touch`].
    ///
    /// # Errors
    /// If the port's pool has no buffer left.
    #[inline]
    pub fn touch(
        &self,
        txn: &mut Txn,
        table: TableId,
        key: u64,
        intent: Intent,
    ) -> Result<usize, PoolExhausted> {
        txn.touch(self.context.port(), &self.context.layout, table, key, intent)
    }

    /// From now on, does something wrong.
    #[doc(hidden)]
    pub fn sabotage(&self, what: Sabotage) {
        self.context.sabotage.set(Some(what));
    }

    /// This worker's view of the location cache, if the plan has one.
    pub fn cache(&self) -> Option<&LocationCache> {
        self.context.cache.as_ref()
    }

    /// What this worker's location cache has counted, if the plan has one.
    pub fn cache_stats(&self) -> CacheStats {
        self.context.cache.as_ref().map_or(CacheStats::default(), LocationCache::stats)
    }

    /// Torn READs seen and repeated: how tests know that there were any.
    pub fn torn_reads(&self) -> u64 {
        self.context.torn.get()
    }

    /// Times a transaction waited for a backup to free log space.
    pub fn log_waits(&self) -> u64 {
        self.log_waits.get()
    }

    /// Whether some of the pending records must be ended by other nodes' CPUs; then those alone are pending.
    fn leave_to_owners(&self, set: &mut [Access], install: bool) -> bool {
        let theirs = |a: &Access| a.pending && a.primary != self.context.me && a.ends_at_owner(install);
        let any = set.iter().any(theirs);
        if any {
            set.iter_mut().for_each(|a| a.pending = theirs(a));
        }
        any
    }

    /// Fetches by READ what the cache knows and by RPC what it does not, together.
    async fn fetch_hybrid(&self, set: &mut [Access], step: Step, cost: &mut Cost) -> Result<(), Stop> {
        for access in set.iter_mut().filter(|a| a.pending && a.location == NOWHERE) {
            self.context.recall(access);
        }
        for tries in 0.. {
            if !set.iter().any(|a| a.pending) {
                return Ok(());
            }
            if tries > 0 {
                if tries > MAX_TRIES {
                    return Err(Abort::Unstable.into());
                }
                yield_now(self.context.port().sched()).await;
            }
            let misses = super::two_sided::Wave::of(set, self.two.limit(step), |a| a.location == NOWHERE);
            let mut calls = None;
            if !misses.is_empty() {
                self.two.room(set, &misses, Phase::Fetch).await?;
                let started = self.two.start(
                    set,
                    &misses,
                    step,
                    Phase::Fetch,
                    |_| wire::FETCH,
                    super::two_sided::fetching,
                )?;
                *cost += started.cost();
                calls = Some(started);
            }
            if let Some(reads) = self.one.post_reads(set, step) {
                let mut spent = reads.cost();
                // Hits and misses are under way together and are waited for as one.
                spent.round_trips -= u32::from(calls.is_some());
                *cost += spent;
                reads.await.map_err(fault(Phase::Fetch))?;
                self.one.take_reads(set)?;
            }
            if let Some(calls) = calls {
                let replies = calls.await.map_err(fault(Phase::Fetch))?;
                cost.bytes += replies.bytes();
                self.two.take(set, &misses, &replies, Phase::Fetch, |a, r| self.two.take_record(a, r))?;
            }
        }
        Ok(())
    }

    /// Locks what is to be written and is there.
    async fn lock_records(&self, txn: &mut Txn, rule: LockRule) -> Result<(), Stop> {
        let step = self.context.plan.step(Phase::Lock);
        // A CAS needs the word it expects, which only a lock word of its own lets it guess; the owner does not.
        let blind = |a: &Access| !a.fetched && a.wants(rule).is_some();
        let guessed = rule.packing == Packing::Locked;
        if step.via == Via::OneSided && !guessed && txn.accesses().iter().any(blind) {
            self.fetch(txn).await?;
        }
        for tries in 0.. {
            let split = self.lock_here(txn, rule)?;
            if split.remote > 0 {
                match step.via {
                    Via::OneSided => self.one.lock_and_read(txn, rule).await?,
                    Via::TwoSided | Via::Hybrid => self.two.lock_and_read(txn, rule).await?,
                }
            }
            if split.waiting == 0 {
                break;
            }
            // Where nobody may wait for a lock, what is waited for is a payload behind its lock word.
            if tries >= if rule.on_conflict == OnConflict::Fail { MAX_TRIES } else { rule.retries() } {
                return Err(Abort::LockConflict.into());
            }
            // A local lock is looked at again when others have had their turn.
            yield_now(self.context.port().sched()).await;
            self.context.pause(rule, tries + 1, 0).await;
        }
        txn.settle(Phase::Lock);
        Ok(())
    }

    /// Reads what is local.
    #[inline]
    fn fetch_here(&self, txn: &mut Txn) -> Result<Split, Stop> {
        let (set, _) = txn.serve_rest(Phase::Fetch);
        self.split(set, Access::unread, |store, a| self.read_local(store, a))
    }

    /// Whether all that a phase has still to look at are this node's own records. Never so in virtual time, where it would spare nothing,
    /// and a second look would be charged for.
    #[inline]
    fn all_here(&self, txn: &mut Txn, phase: Phase) -> bool {
        !self.context.virtual_time && txn.serve_rest(phase).0.iter().all(|a| a.primary == self.context.me)
    }

    /// Checks the records that were read and are there.
    async fn check_records(&self, txn: &mut Txn, rule: CheckRule) -> Result<(), Stop> {
        let by_nic = self.context.plan.nic_owns_leases();
        let (set, _) = txn.serve(Phase::Validate);
        let serve = |store: &NodeStore, access: &mut Access| {
            if by_nic && rule != CheckRule::SameVersion {
                return Served::ByNic;
            }
            if rule == CheckRule::ReadAt {
                let version = access.version;
                return match self.read_local_version(store, access) {
                    Served::Done if access.version != version => Served::Denied(Abort::ReadChanged),
                    Served::Wait => Served::Denied(Abort::Unstable),
                    other => other,
                };
            }
            self.context.charge(CpuWork::Probe);
            match store.check(access.location, access.version, rule) {
                Verdict::Grant(_) => Served::Done,
                Verdict::Deny(abort) => Served::Denied(abort),
                Verdict::Wait => Served::Denied(Abort::ReadLocked),
            }
        };
        let unchecked = |a: &Access| {
            a.intent == Intent::Read && !a.locked() && !rule.stands(a.header) && !a.confirmed && !a.absent()
        };
        let split = self.split(set, unchecked, serve)?;
        if split.remote == 0 {
            return Ok(());
        }
        match self.context.plan.step(Phase::Validate).via {
            Via::OneSided => self.one.validate(txn, rule).await,
            Via::TwoSided | Via::Hybrid => self.two.validate(txn, rule).await,
        }
    }
}

impl PhaseOps for Phases {
    fn timestamp(&self) -> Result<Timestamp, Abort> {
        self.context.timestamp()
    }

    fn expect(&self, records: impl Iterator<Item = (TableId, u64)> + Clone) {
        // In virtual time nothing is gained by it.
        if self.context.virtual_time {
            return;
        }
        let owner = |(table, key)| self.layout().primary(table, key);
        for (table, key) in records.clone() {
            if owner((table, key)) == self.context.me {
                let _ = self.local.ahead_of_bucket(table, key);
            } else if let Some(cache) = self.cache() {
                cache.ahead(table, key);
            }
        }
        for (table, key) in records {
            let owner = owner((table, key));
            if owner == self.context.me {
                if let Some(offset) = self.local.locate(table, key) {
                    self.local.ahead_of_record(table, offset);
                }
            } else if let Some(offset) = self.cache().and_then(|cache| cache.peek(table, key)) {
                let at = self.context.at(owner, offset);
                self.context.port().ahead_of(at, self.layout().stride(table));
            }
        }
    }

    async fn fetch(&self, txn: &mut Txn) -> Result<(), Stop> {
        let step = self.context.plan.step(Phase::Fetch);
        for tries in 0.. {
            let split = self.fetch_here(txn)?;
            let (set, cost) = txn.serve_rest(Phase::Fetch);
            if split.remote > 0 {
                match step.via {
                    Via::OneSided => self.one.fetch(txn).await?,
                    Via::TwoSided => self.two.fetch(txn).await?,
                    Via::Hybrid => {
                        for group in super::one_sided::groups(set, step) {
                            self.fetch_hybrid(group, step, cost).await?;
                        }
                    }
                }
            }
            if split.waiting == 0 {
                break;
            }
            if tries >= MAX_TRIES {
                return Err(Abort::Unstable.into());
            }
            yield_now(self.context.port().sched()).await;
        }
        txn.settle(Phase::Fetch);
        Ok(())
    }

    fn fetch_now(&self, txn: &mut Txn) -> Result<bool, Stop> {
        if !self.all_here(txn, Phase::Fetch) {
            return Ok(false);
        }
        let split = self.fetch_here(txn)?;
        Ok(split.settles(txn, Phase::Fetch))
    }

    fn lock_and_read_now(&self, txn: &mut Txn, rule: LockRule) -> Result<bool, Stop> {
        // Where the lock is part of what was read, `lock_and_read` may have to read first.
        if rule.packing != Packing::Locked || txn.wants_slots() || !self.all_here(txn, Phase::Lock) {
            return Ok(false);
        }
        let split = self.lock_here(txn, rule)?;
        Ok(split.settles(txn, Phase::Lock))
    }

    async fn scan(&self, txn: &mut Txn, scan: &Scan) -> Result<(), Stop> {
        self.scan_range(txn, scan).await
    }

    async fn lock_and_read(&self, txn: &mut Txn, rule: LockRule) -> Result<(), Stop> {
        self.lock_records(txn, rule).await?;
        // Locks first: a record that is there already is then news only to who has read nothing stale.
        if txn.wants_slots() { self.reserve(txn, rule).await } else { Ok(()) }
    }

    async fn validate(&self, txn: &mut Txn, rule: CheckRule) -> Result<(), Stop> {
        if txn.has_scanned() {
            self.check_leaves(txn, rule).await?;
        }
        if txn.accesses().iter().any(Access::absent) {
            self.check_absence(txn, rule).await?;
        }
        self.check_records(txn, rule).await
    }

    async fn replicate(&self, txn: &mut Txn) -> Result<(), Stop> {
        let lost = || txn.stamp.0.is_multiple_of(4) && self.context.sabotaged(Sabotage::LostLogs);
        if self.context.layout.config().replicas < 2 || lost() { Ok(()) } else { self.append(txn).await }
    }

    async fn install_and_unlock(&self, txn: &mut Txn) -> Result<(), Stop> {
        let step = self.context.plan.step(Phase::Install);
        let install_at = txn.install_at;
        txn.unsettle(0);
        let (set, _) = txn.serve(Phase::Install);
        let serve = |store: &NodeStore, access: &mut Access| {
            let (shape, version) = (access.shape(), access.next_version(install_at));
            if access.ends_at_owner(true) {
                self.end_here(store, access, Some(version));
                return Served::Done;
            }
            if self.locked_by_nic(access) {
                if access.dirty() {
                    self.context.charge(CpuWork::Copy(shape.install_words() as u32 * 8));
                    record::write_body(
                        store.region(),
                        access.location,
                        shape,
                        version,
                        access.key,
                        access.values(),
                    );
                }
                return Served::ByNic;
            }
            let freed = if access.dirty() {
                self.context.charge(CpuWork::Copy(shape.install_words() as u32 * 8));
                store.install(access.location, shape, version, access.key, access.values())
            } else {
                store.release(access.location, shape.packing, access.header)
            };
            assert!(freed, "bug: {:?} installs into a record that it has not locked", access);
            access.let_go();
            Served::Done
        };
        let split = self.split(set, Access::locked, serve)?;
        if split.remote == 0 {
            return Ok(());
        }
        if step.via == Via::OneSided && self.leave_to_owners(set, true) {
            self.two.install_and_unlock(txn).await?;
            txn.serve(Phase::Install).0.iter_mut().for_each(|a| a.pending = a.locked());
        }
        match step.via {
            Via::OneSided => self.one.install_and_unlock(txn).await,
            Via::TwoSided | Via::Hybrid => self.two.install_and_unlock(txn).await,
        }
    }

    async fn unlock(&self, txn: &mut Txn) -> Result<(), Stop> {
        let step = self.context.plan.step(Phase::Unlock);
        txn.unsettle(0);
        let (set, _) = txn.serve(Phase::Unlock);
        let serve = |store: &NodeStore, access: &mut Access| {
            if access.ends_at_owner(false) {
                self.end_here(store, access, None);
                return Served::Done;
            }
            if self.locked_by_nic(access) {
                return Served::ByNic;
            }
            let freed = store.release(access.location, access.shape().packing, access.header);
            assert!(freed, "bug: {:?} frees a lock that it does not hold", access);
            access.let_go();
            Served::Done
        };
        let split = self.split(set, Access::locked, serve)?;
        if split.remote == 0 {
            return Ok(());
        }
        let mut freed = Ok(());
        if step.via == Via::OneSided && self.leave_to_owners(set, false) {
            freed = self.two.unlock(txn).await;
            txn.serve(Phase::Unlock).0.iter_mut().for_each(|a| a.pending = a.locked());
        }
        let rest = match step.via {
            Via::OneSided => self.one.unlock(txn).await,
            Via::TwoSided | Via::Hybrid => self.two.unlock(txn).await,
        };
        freed = freed.and(rest);
        // A lock that could not be freed is recovery's now, not the next transaction's.
        let (set, _) = txn.serve(Phase::Unlock);
        set.iter_mut().filter(|a| a.locked()).for_each(Access::let_go);
        freed
    }
}
