//! Walks through the hash index by READs: to find records, and to see that there still is none.

use super::{OneSided, any_pending, groups, pool};
use crate::ops::{Stop, fault};
use crate::plan::{Phase, Step};
use crate::rule::Abort;
use crate::store::layout::BUCKET_BYTES;
use crate::store::{Found, floor_of, probe_bucket};
use crate::txn::{Access, NOWHERE};
use primitives::fabric::CpuWork;
use primitives::verbs::port::Cost;

impl OneSided {
    /// Looks in the cache for the locations of pending records that have none; whether some remain to be found by [`OneSided::walk`].
    pub(super) fn recall(&self, set: &mut [Access]) -> bool {
        let mut missing = false;
        for access in set.iter_mut().filter(|a| a.pending && a.location == NOWHERE) {
            access.walk = 0;
            self.context.recall(access);
            missing |= access.location == NOWHERE;
        }
        missing
    }

    /// Finds the locations of pending records that have none by walking the index.
    pub(super) async fn walk(
        &self,
        set: &mut [Access],
        step: Step,
        phase: Phase,
        cost: &mut Cost,
    ) -> Result<(), Stop> {
        let context = &*self.context;
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
            *cost += batch.post().await.map_err(fault(phase))?;
            for access in set.iter_mut().filter(missing) {
                context.charge(CpuWork::Probe);
                let Some(bucket) = &access.bucket else { continue };
                // The floor that stands for an absence is that of before the walk.
                let floor = (access.walk == context.layout.bucket(0, access.table, access.key))
                    .then(|| floor_of(bucket, &context.layout));
                match (probe_bucket(bucket, access.key), floor) {
                    (Found::At(offset), _) => {
                        (access.location, access.fresh) = (offset, true);
                        access.bucket = None;
                        context.remember(access);
                    }
                    // Its owner is changing the chain: look again.
                    (_, Some(None)) if access.may_be_absent() => {}
                    (Found::Next(next), floor) => {
                        // What was read keeps its version.
                        if !access.fetched {
                            access.version = floor.flatten().unwrap_or(access.version);
                        }
                        access.walk = next;
                    }
                    (Found::Nowhere, floor) if access.may_be_absent() => {
                        access.bucket = None;
                        access.take_absence(floor.flatten().unwrap_or(access.version));
                    }
                    (Found::Nowhere, _) => return Err(access.gone().into()),
                }
            }
        }
    }

    /// Walks once more through the chains in which the pending records were not found.
    pub(in crate::ops) async fn check_absence(
        &self,
        set: &mut [Access],
        step: Step,
        cost: &mut Cost,
    ) -> Result<(), Stop> {
        let context = &*self.context;
        let first = |access: &Access| context.layout.bucket(0, access.table, access.key);
        for group in groups(set, step) {
            group.iter_mut().filter(|a| a.pending).for_each(|a| a.walk = first(a));
            while any_pending(group) {
                let mut batch = self.batch(step);
                for access in group.iter_mut().filter(|a| a.pending) {
                    if access.bucket.is_none() {
                        access.bucket = Some(context.port().buf(BUCKET_BYTES as u32).map_err(pool)?);
                    }
                    if let Some(bucket) = &access.bucket {
                        batch.read(context.at(access.primary, access.walk), bucket, 0, BUCKET_BYTES as u32);
                    }
                }
                *cost += batch.post().await.map_err(fault(Phase::Validate))?;
                for access in group.iter_mut().filter(|a| a.pending) {
                    context.charge(CpuWork::Probe);
                    let Some(bucket) = &access.bucket else { continue };
                    let floor = floor_of(bucket, &context.layout);
                    if access.walk == first(access) && floor != Some(access.version) {
                        return Err(Abort::ReadChanged.into());
                    }
                    match probe_bucket(bucket, access.key) {
                        Found::At(_) => return Err(Abort::ReadChanged.into()),
                        Found::Next(next) => access.walk = next,
                        Found::Nowhere => (access.pending, access.bucket) = (false, None),
                    }
                }
            }
        }
        Ok(())
    }
}
