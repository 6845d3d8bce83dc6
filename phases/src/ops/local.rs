//! Records of this node, served by its CPU: where they part from remote ones, and how they are read and locked.

use super::Stop;
use super::owner::Look;
use super::phases::Phases;
use crate::plan::Phase;
use crate::rule::{Abort, LockRule, Packing, Timestamp, Verdict};
use crate::store::NodeStore;
use crate::store::record::{self, Word};
use crate::txn::{Access, Change, Intent, NOWHERE, Txn};
use primitives::fabric::CpuWork;

/// How serving a local record ended.
pub(super) enum Served {
    /// It is done.
    Done,
    /// Look again later.
    Wait,
    /// The rest of it must go through the NIC.
    ByNic,
    /// The transaction gives up.
    Denied(Abort),
}

/// How a phase's records divide.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Split {
    /// Left for the primitive.
    pub(super) remote: usize,
    /// Local ones to look at again.
    pub(super) waiting: usize,
}

impl Split {
    /// Whether nothing is left; then the phase has done all that was asked of it.
    pub(super) fn settles(self, txn: &mut Txn, phase: Phase) -> bool {
        let done = self.remote + self.waiting == 0;
        if done {
            txn.settle(phase);
        }
        done
    }
}

impl Phases {
    /// The one place where local records part from remote ones. Marks the records that a phase wants as pending and
    /// serves the local ones by CPU; what stays pending is the primitive's.
    pub(super) fn split(
        &self,
        set: &mut [Access],
        wanted: impl Fn(&Access) -> bool,
        mut serve: impl FnMut(&NodeStore, &mut Access) -> Served,
    ) -> Result<Split, Stop> {
        let mut split = Split::default();
        // In virtual time a look-up is charged for where it is made, below.
        if !self.context.virtual_time {
            self.look_ahead(set, &wanted);
        }
        for access in set {
            access.pending = wanted(access);
            if !access.pending {
                continue;
            }
            if access.primary != self.context.me {
                assert!(!self.at_home(access.table), "bug: {access:?} is of a table that is kept at home");
                split.remote += 1;
                continue;
            }
            if access.location == NOWHERE {
                // Its bucket, and the record itself.
                self.context.charge(CpuWork::Probe);
                self.context.charge(CpuWork::Probe);
                match self.local.locate(access.table, access.key) {
                    Some(offset) => (access.location, access.fresh) = (offset, true),
                    // Who may find nothing must know what stands for that.
                    None if access.may_be_absent() => self.locate_optional(access),
                    None => return Err(access.gone().into()),
                }
            }
            if access.location == NOWHERE {
                continue;
            }
            match serve(&self.local, access) {
                Served::Done => access.pending = false,
                Served::Wait => {
                    access.pending = false;
                    split.waiting += 1;
                }
                Served::ByNic => split.remote += 1,
                Served::Denied(abort) => return Err(abort.into()),
            }
        }
        Ok(split)
    }

    /// Asks for the memory of all wanted records that lie here and have not been looked for, if there are several, buckets first and then
    /// what these say, so that none is waited for while the others are not even asked for. Where its place is known, the transaction
    /// has most likely been there.
    pub(super) fn look_ahead(&self, set: &mut [Access], wanted: impl Fn(&Access) -> bool) {
        let unknown = |a: &Access| a.location == NOWHERE && a.primary == self.context.me && wanted(a);
        let mut places = (0..set.len()).filter(|&at| unknown(&set[at]));
        let (Some(first), Some(_)) = (places.next(), places.next()) else { return };
        let set = &mut set[first..];
        for access in set.iter_mut().filter(|a| unknown(a)) {
            access.walk = self.local.ahead_of_bucket(access.table, access.key);
        }
        for access in set.iter_mut().filter(|a| unknown(a)) {
            if let Some(offset) = self.local.locate_in(access.walk, access.key) {
                (access.location, access.fresh) = (offset, true);
                self.local.ahead_of_record(access.table, offset);
            }
        }
    }

    /// Ends what only this node's CPU can end: a record is removed, leaving `version` behind, or a slot taken back.
    pub(super) fn end_here(&self, store: &NodeStore, access: &mut Access, version: Option<u64>) {
        self.context.charge(CpuWork::Probe);
        let done = match (access.change, version) {
            (Change::Delete, Some(version)) => {
                store.remove(access.table, access.key, access.location, version)
            }
            _ => store.undo(access.table, access.key, access.location, access.header),
        };
        assert!(done, "bug: {access:?} ends without having been begun");
        access.let_go();
    }

    /// Reads a local record.
    pub(super) fn read_local(&self, store: &NodeStore, access: &mut Access) -> Served {
        self.context.charge(CpuWork::Copy(access.image_words() as u32 * 8));
        let shape = access.shape();
        match shape.packing {
            Packing::Versions => return self.read_local_version(store, access),
            Packing::Counted | Packing::Leased => {
                let found = access.location();
                return match store.look(access.table, access.key, found, access.image().words(), shape) {
                    Look::Whole(offset, slot) => {
                        access.location = offset;
                        access.read_in(slot);
                        Served::Done
                    }
                    Look::Torn(_) => {
                        self.context.torn();
                        Served::Wait
                    }
                    Look::Coming(_) => Served::Denied(Abort::ReadLocked),
                    Look::Absent(floor) if access.may_be_absent() => {
                        access.take_absence(floor);
                        Served::Done
                    }
                    Look::Absent(_) => Served::Denied(access.gone()),
                };
            }
            Packing::Locked => {}
        }
        match store.read(access.location, access.image().words(), shape) {
            Some(slot) => {
                access.read_in(slot);
                Served::Done
            }
            None => {
                self.context.torn();
                Served::Wait
            }
        }
    }

    /// Reads the version of a local record that is right for the transaction's place in the order.
    pub(super) fn read_local_version(&self, store: &NodeStore, access: &mut Access) -> Served {
        match store.find(access.table, access.key, access.location) {
            Some(offset) => access.location = offset,
            None if access.may_be_absent() => {
                access.take_absence(0);
                return Served::Done;
            }
            None if access.fetched => return Served::Denied(Abort::ReadChanged),
            None => return Served::Denied(Abort::NotFound),
        }
        // Where the NIC moves read timestamps, it does so for local records too, when the read is confirmed.
        let confirm = access.intent == Intent::Read && !self.context.plan.nic_owns_leases();
        let slot = if access.intent == Intent::Read {
            let image = access.image().words();
            let read =
                store.read_at(access.location, access.key, image, access.shape(), access.time, confirm);
            // Notes what was seen; whether the version is right was decided on the lock as it was before.
            let _ = self.one.choose(access);
            read
        } else {
            record::copy_local(store.region(), access.location, access.image().words(), access.shape());
            // As in `NodeStore::read_at`.
            let ours = access.image().words()[record::KEY_WORD].get() == access.key;
            let slot = if ours { self.one.choose(access) } else { Err(Abort::ReadChanged) };
            slot.map(|slot| access.shape().whole(access.image().words(), slot).then_some(slot))
        };
        match slot {
            Ok(Some(slot)) => {
                access.read_in(slot);
                access.confirmed = confirm;
                Served::Done
            }
            Ok(None) => {
                self.context.torn();
                Served::Wait
            }
            // Whether it came later than the transaction's time is decided when its absence is confirmed.
            Err(Abort::NoVersion) if access.may_be_absent() => {
                access.take_absence(0);
                Served::Done
            }
            Err(abort) => Served::Denied(abort),
        }
    }

    /// Locks those local records that the CPU may lock, of what is to be written and is there.
    pub(super) fn lock_here(&self, txn: &mut Txn, rule: LockRule) -> Result<Split, Stop> {
        let (set, _) = txn.serve_rest(Phase::Lock);
        let serve = |store: &NodeStore, access: &mut Access| {
            let Some(mode) = access.wants(rule) else { return self.read_local(store, access) };
            if self.locked_by_nic(access) {
                return Served::ByNic;
            }
            self.context.charge(CpuWork::Probe);
            let (location, ask) = (access.location, access.ask(mode));
            let verdict = match rule.packing {
                Packing::Versions => store.lock_at(location, access.key, access.shape(), ask, rule),
                _ => store.lock(location, access.key, ask, rule),
            };
            match verdict {
                Verdict::Grant(locked) => {
                    access.lock_is(locked, mode);
                    if access.fetched { Served::Done } else { self.read_local(store, access) }
                }
                Verdict::Deny(abort) => {
                    if rule.packing == Packing::Versions {
                        let (seen, _) = store.seen_at(access.location, access.shape());
                        self.context.clock.learn(Timestamp(seen));
                    }
                    Served::Denied(abort)
                }
                Verdict::Wait => Served::Wait,
            }
        };
        let wanted = |a: &Access| a.wants(rule).is_some() || a.locked() && a.unread();
        self.split(set, wanted, serve)
    }
}
