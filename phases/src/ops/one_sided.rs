//! Operations by READ, WRITE and CAS: headers are read and rules decided at the coordinator.
//!
//! | phase    | per record | chains |
//! |----------|------------|--------|
//! | fetch    | READ of the record; a READ per index bucket before, where the location is not known | |
//! | lock     | CAS, READ of the header behind it | one per record or node |
//! | validate | READ of the header | |
//! | log      | WRITE of the entry to each backup node | |
//! | install  | WRITE of checksum, key and payload, WRITE of the header behind it | one per record or node |
//! | unlock   | WRITE of the header | |
//!
//! Lock and version share the word that CAS reaches, so a lock needs the header that the record was read with, and a
//! CAS that succeeds has validated the version too. The READ behind it is what DrTM+H §5.2 posts in the same doorbell
//! (there lock and version are two words). Here it decides nothing: it is posted so that a one-sided lock costs what the
//! paper's costs, and its result is not looked at.
//!
//! Operations serve the records marked pending and leave the others alone.

use super::{Context, Fault, MAX_TRIES, PhaseOps, Stop, fault};
use crate::log::Slot;
use crate::plan::{Phase, Step};
use crate::rule::{Abort, CheckRule, Header, LockRule, Verdict};
use crate::store::layout::BUCKET_BYTES;
use crate::store::{Found, probe_bucket, record};
use crate::txn::{Access, NOWHERE, Txn};
use primitives::exec::yield_now;
use primitives::fabric::{AnyNic, CpuWork};
use primitives::verbs::port::{Batch, Cost, Posted};
use std::rc::Rc;

/// Bytes of a header.
const WORD: u32 = 8;

/// Phases by one-sided verbs.
pub struct OneSided {
    context: Rc<Context>,
}

/// A transaction's records in the groups whose requests go out together.
fn groups(set: &mut [Access], step: Step) -> std::slice::ChunksMut<'_, Access> {
    let size = if step.outstanding { set.len().max(1) } else { 1 };
    set.chunks_mut(size)
}

fn any_pending(set: &[Access]) -> bool {
    set.iter().any(|a| a.pending)
}

impl OneSided {
    pub(super) fn new(context: Rc<Context>) -> OneSided {
        OneSided { context }
    }

    fn batch(&self, step: Step) -> Batch<'_, AnyNic> {
        let mut batch = self.context.port().batch();
        batch.doorbell_batching(step.doorbell_batching);
        batch
    }

    /// Posts a batch, passively if the plan says so, and counts its cost.
    async fn send(
        &self,
        batch: Batch<'_, AnyNic>,
        phase: Phase,
        passive: bool,
        cost: &mut Cost,
    ) -> Result<(), Stop> {
        *cost += if passive {
            batch.post_passive().map_err(fault(phase))?
        } else {
            batch.post().await.map_err(fault(phase))?
        };
        Ok(())
    }

    /// Fetches a group's pending records.
    pub(super) async fn fetch_group(
        &self,
        set: &mut [Access],
        step: Step,
        cost: &mut Cost,
    ) -> Result<(), Stop> {
        for tries in 0.. {
            if !any_pending(set) {
                return Ok(());
            }
            if tries > 0 {
                if tries > MAX_TRIES {
                    return Err(Abort::Unstable.into());
                }
                yield_now(self.context.port().sched()).await;
            }
            self.look_up(set, step, cost).await?;
            if let Some(posted) = self.post_reads(set, step) {
                *cost += posted.await.map_err(fault(Phase::Fetch))?;
                self.take_reads(set);
            }
        }
        Ok(())
    }

    /// Finds the locations of pending records that have none: in the cache, else by walking the index.
    async fn look_up(&self, set: &mut [Access], step: Step, cost: &mut Cost) -> Result<(), Stop> {
        let context = &*self.context;
        for access in set.iter_mut().filter(|a| a.pending && a.location == NOWHERE) {
            access.walk = 0;
            context.recall(access);
        }
        loop {
            let missing = |a: &&mut Access| a.pending && a.location == NOWHERE;
            if set.iter_mut().find(missing).is_none() {
                return Ok(());
            }
            let mut batch = self.batch(step);
            for access in set.iter_mut().filter(missing) {
                if access.walk == 0 {
                    access.walk = context.layout.bucket(0, access.table, access.key);
                }
                if access.bucket.is_none() {
                    access.bucket = Some(context.port().buf(BUCKET_BYTES as u32).map_err(pool)?);
                }
                if let Some(bucket) = &access.bucket {
                    batch.read(context.at(access.primary, access.walk), bucket, 0, BUCKET_BYTES as u32);
                }
            }
            *cost += batch.post().await.map_err(fault(Phase::Fetch))?;
            for access in set.iter_mut().filter(missing) {
                context.charge(CpuWork::Probe);
                let Some(bucket) = &access.bucket else { continue };
                match probe_bucket(bucket, access.key) {
                    Found::At(offset) => {
                        access.location = offset;
                        access.bucket = None;
                        context.remember(access);
                    }
                    Found::Next(next) => access.walk = next,
                    Found::Nowhere => return Err(Abort::NotFound.into()),
                }
            }
        }
    }

    /// Posts the READs of pending records whose location is known; none if there are no such records.
    pub(super) fn post_reads(&self, set: &[Access], step: Step) -> Option<Posted<'_, AnyNic>> {
        let located = |a: &&Access| a.pending && a.location != NOWHERE;
        set.iter().find(located)?;
        let mut batch = self.batch(step);
        for access in set.iter().filter(located) {
            let from = self.context.at(access.primary, access.location);
            batch.read(from, access.image(), 0, access.image_words() as u32 * 8);
        }
        Some(batch.post())
    }

    /// Looks at what the READs brought: torn records and records of other keys stay pending.
    pub(super) fn take_reads(&self, set: &mut [Access]) {
        for access in set.iter_mut().filter(|a| a.pending && a.location != NOWHERE) {
            self.context.charge(CpuWork::Copy(access.image_words() as u32 * 8));
            if access.image().word(record::KEY_WORD) != access.key {
                self.context.forget(access);
            } else if record::whole(access.image(), 0, access.payload_words()) {
                access.read_in();
            } else {
                self.context.torn();
            }
        }
    }

    async fn lock_group(
        &self,
        set: &mut [Access],
        step: Step,
        rule: LockRule,
        cost: &mut Cost,
    ) -> Result<(), Stop> {
        let mut tries = 0;
        while any_pending(set) {
            let mut batch = self.batch(step);
            for access in set.iter().filter(|a| a.pending) {
                let at = self.context.at(access.primary, access.location);
                let swap = access.header.lock(rule.stamp.owner());
                batch.cas(at, access.header.0, swap.0, access.image(), access.image_words() as u32);
                if access.primary != self.context.me {
                    batch.read(at, access.image(), 0, WORD);
                }
            }
            *cost += batch.post().await.map_err(fault(Phase::Lock))?;
            let mut denied = None;
            for access in set.iter_mut().filter(|a| a.pending) {
                let seen = Header(access.image().word(access.image_words()));
                if seen == access.header {
                    access.locked = true;
                    access.pending = false;
                    continue;
                }
                match rule.decide(Some(access.header), seen) {
                    Verdict::Deny(abort) => {
                        access.pending = false;
                        denied = denied.or(Some(abort));
                    }
                    Verdict::Wait if tries >= rule.retries() => denied = denied.or(Some(Abort::LockConflict)),
                    // Free again by the time the rule looked, or not yet.
                    Verdict::Wait | Verdict::Grant(_) => {}
                }
            }
            if let Some(abort) = denied {
                return Err(abort.into());
            }
            tries += 1;
        }
        Ok(())
    }

    fn stage_install(&self, batch: &mut Batch<'_, AnyNic>, access: &Access) {
        let (image, words) = (access.image(), access.image_words());
        let at = self.context.at(access.primary, access.location);
        if !access.dirty() {
            return self.stage_unlock(batch, access);
        }
        if access.primary == self.context.me {
            // The payload is in place already; the NIC owns the header word alone.
            image.set_word(words, access.header.next().0);
        } else {
            record::seal(image, words, access.payload_words(), access.header.next(), access.key);
            self.context.charge(CpuWork::Copy(words as u32 * 8));
            let body = words as u32 * 8 + WORD;
            batch.write(at.at(u64::from(WORD)), image, body, (words as u32 - 1) * 8);
        }
        batch.write(at, image, words as u32 * 8, WORD);
    }

    /// Stages the WRITE of the header as it was before the lock.
    fn stage_unlock(&self, batch: &mut Batch<'_, AnyNic>, access: &Access) {
        let (image, words) = (access.image(), access.image_words());
        image.set_word(words, access.header.0);
        let at = self.context.at(access.primary, access.location);
        batch.write(at, image, words as u32 * 8, WORD);
    }

    /// Sends what `stage` makes of the records pending in a phase that releases locks, install or unlock.
    async fn release(
        &self,
        txn: &mut Txn,
        phase: Phase,
        stage: fn(&OneSided, &mut Batch<'_, AnyNic>, &Access),
    ) -> Result<(), Stop> {
        let step = self.context.plan.step(phase);
        let (set, cost) = txn.serve(phase);
        for group in groups(set, step) {
            if !any_pending(group) {
                continue;
            }
            if step.passive_ack {
                self.context.port().room().await;
            }
            let mut batch = self.batch(step);
            for access in group.iter_mut().filter(|a| a.pending) {
                stage(self, &mut batch, access);
                (access.pending, access.locked) = (false, false);
            }
            self.send(batch, phase, step.passive_ack, cost).await?;
        }
        Ok(())
    }

    /// WRITEs the log entries marked pending.
    pub(super) async fn append(&self, slots: &mut [Slot], step: Step, cost: &mut Cost) -> Result<(), Stop> {
        let size = if step.outstanding { slots.len().max(1) } else { 1 };
        for group in slots.chunks_mut(size) {
            if !group.iter().any(|s| s.pending) {
                continue;
            }
            let mut batch = self.batch(step);
            for slot in group.iter_mut().filter(|s| s.pending) {
                slot.pending = false;
                if let Some(skip) = slot.skip {
                    batch.write(self.context.ring_at(slot.node, skip), &slot.buf, slot.len, WORD);
                }
                batch.write(self.context.ring_at(slot.node, slot.position), &slot.buf, 0, slot.len);
            }
            self.send(batch, Phase::Log, false, cost).await?;
        }
        Ok(())
    }
}

fn pool(error: primitives::mem::PoolExhausted) -> Stop {
    Stop::Fault(Fault::Verb { phase: Phase::Fetch, source: error.into() })
}

impl PhaseOps for OneSided {
    async fn fetch(&self, txn: &mut Txn) -> Result<(), Stop> {
        let step = self.context.plan.step(Phase::Fetch);
        let (set, cost) = txn.serve(Phase::Fetch);
        for group in groups(set, step) {
            self.fetch_group(group, step, cost).await?;
        }
        Ok(())
    }

    async fn lock_and_read(&self, txn: &mut Txn, rule: LockRule) -> Result<(), Stop> {
        let step = self.context.plan.step(Phase::Lock);
        let (set, cost) = txn.serve(Phase::Lock);
        for group in groups(set, step) {
            self.lock_group(group, step, rule, cost).await?;
        }
        Ok(())
    }

    async fn validate(&self, txn: &mut Txn, rule: CheckRule) -> Result<(), Stop> {
        let step = self.context.plan.step(Phase::Validate);
        let (set, cost) = txn.serve(Phase::Validate);
        for group in groups(set, step) {
            if !any_pending(group) {
                continue;
            }
            let mut batch = self.batch(step);
            for access in group.iter().filter(|a| a.pending) {
                let at = self.context.at(access.primary, access.location);
                batch.read(at, access.image(), access.image_words() as u32 * 8, WORD);
            }
            *cost += batch.post().await.map_err(fault(Phase::Validate))?;
            for access in group.iter_mut().filter(|a| a.pending) {
                access.pending = false;
                let now = Header(access.image().word(access.image_words()));
                if let Verdict::Deny(abort) = rule.decide(access.header, now) {
                    return Err(abort.into());
                }
            }
        }
        Ok(())
    }

    async fn replicate(&self, txn: &mut Txn) -> Result<(), Stop> {
        let step = self.context.plan.step(Phase::Log);
        let (slots, cost) = txn.log();
        self.append(slots, step, cost).await
    }

    async fn install_and_unlock(&self, txn: &mut Txn) -> Result<(), Stop> {
        self.release(txn, Phase::Install, OneSided::stage_install).await
    }

    async fn unlock(&self, txn: &mut Txn) -> Result<(), Stop> {
        self.release(txn, Phase::Unlock, OneSided::stage_unlock).await
    }
}
