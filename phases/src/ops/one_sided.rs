//! Operations by READ, WRITE and CAS: headers are read and rules decided at the coordinator.
//!
//! | phase    | per record | chains |
//! |----------|------------|--------|
//! | fetch    | READ of the record; a READ per index bucket before, where the location is not known | |
//! | lock     | CAS, READ behind it: of the header, or of the record if it was not read before | one per record or node |
//! | validate | READ of the header; CAS where a lease is extended | |
//! | log      | WRITE of the entry to each backup node | |
//! | install  | WRITE of all behind the lock word, WRITE of the lock word behind it | one per record or node |
//! | unlock   | WRITE of the lock word; CAS, or FETCH_ADD where that is enough, if others share the lock | |
//!
//! The WRITE of the lock word is a FETCH_ADD of what it differs by where a CAS that fails may store what it found, and so undo a WRITE that came
//! meanwhile ([`Caps::failed_cas_stores`](primitives::fabric::Caps)): InfiniBand has ATOMICs atomic among themselves alone, and rivals ask
//! for the word by CAS. Who holds a lock alone knows its word, which nobody else changes. Cards are not like that, and a WRITE costs them less.
//!
//! Where lock and version share the word that CAS reaches (OCC, SUNDIAL), a lock needs the header that the record was
//! read with, and a CAS that succeeds has validated the version too. The READ behind it is what DrTM+H §5.2 posts in the
//! same doorbell (there lock and version are two words). Here it decides nothing: it is posted so that a one-sided lock costs
//! what the paper's costs, and its result is not looked at.
//!
//! Where the lock is a word of its own (two-phase locking), the CAS expects a free one and the READ behind it brings the
//! record, which cannot change any more if the CAS succeeded (RCC §4.2, b1). A lock that is held shared and one that
//! is asked for again are guessed from the word that the last CAS saw.
//!
//! Operations serve the records marked pending and leave the others alone.

mod lookup;

use super::{Context, Fault, MAX_TRIES, PhaseOps, Sabotage, Stop, fault};
use crate::log::Slot;
use crate::plan::{Phase, Step};
use crate::rule::{Abort, CheckRule, Header, LockRule, Packing, Timestamp, Verdict, versions};
use crate::store::record::{self, Word};
use crate::txn::{Access, Intent, NOWHERE, Txn};
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

/// What a look at the locks of a group brought.
#[derive(Default)]
struct Round {
    /// Somebody holds one.
    waits: bool,
    /// One could be had, but somebody else had it first.
    raced: bool,
}

/// A transaction's records in the groups whose requests go out together, from the first one that is pending on: who asks for one
/// record after the other has had all but the last.
pub(super) fn groups(set: &mut [Access], step: Step) -> std::slice::ChunksMut<'_, Access> {
    let first = set.iter().position(|a| a.pending).unwrap_or(set.len());
    let set = &mut set[first..];
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
            if self.recall(set) {
                self.walk(set, step, Phase::Fetch, cost).await?;
            }
            if let Some(posted) = self.post_reads(set, step) {
                *cost += posted.await.map_err(fault(Phase::Fetch))?;
                self.take_reads(set)?;
            }
        }
        Ok(())
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
    pub(super) fn take_reads(&self, set: &mut [Access]) -> Result<(), Abort> {
        set.iter_mut().filter(|a| a.pending && a.location != NOWHERE).try_for_each(|a| self.take_read(a))
    }

    /// Takes the record in the first image, unless it is torn or another key's.
    fn take_read(&self, access: &mut Access) -> Result<(), Abort> {
        self.context.charge(CpuWork::Copy(access.image_words() as u32 * 8));
        if access.image().word(record::KEY_WORD) != access.key && !self.context.sabotaged(Sabotage::StaleHits)
        {
            self.context.forget(access);
            return Ok(());
        }
        let shape = access.shape();
        let gone = shape.packing == Packing::Versions && shape.is_absent(access.image().words());
        if gone && !access.fresh {
            // Removed: it may be elsewhere now.
            self.context.forget(access);
            return Ok(());
        }
        let chosen = if shape.packing == Packing::Versions { self.choose(access) } else { Ok(0) };
        let slot = match chosen {
            // Whether it came later than the transaction's time is decided when its absence is confirmed.
            Err(Abort::NoVersion) if access.may_be_absent() => {
                access.take_absence(0);
                return Ok(());
            }
            Ok(_) if gone => return Err(Abort::ReadLocked),
            slot => slot?,
        };
        if access.shape().whole(access.image().words(), slot) || self.context.sabotaged(Sabotage::TornReads) {
            access.read_in(slot);
        } else if shape.packing != Packing::Versions && shape.is_absent(access.image().words()) {
            // Remembered from before it was removed; or just found, and then somebody is about to create it, or has just
            // removed it.
            if access.fresh {
                return Err(Abort::ReadLocked);
            }
            self.context.forget(access);
        } else {
            self.context.torn();
        }
        Ok(())
    }

    /// The version in the first image that is right for the transaction's place in the order: the latest for a writer, who
    /// must come behind all others, the latest before it for a reader.
    pub(super) fn choose(&self, access: &mut Access) -> Result<usize, Abort> {
        let (shape, time) = (access.shape(), access.time);
        let words = access.image().words();
        let wts: [u64; record::SLOTS] = std::array::from_fn(|slot| words[shape.version_word(slot)].get());
        let (newest, victim) = (shape.newest(words), shape.oldest(words));
        let rts = words[record::RTS_WORD].get();
        self.context.clock.learn(Timestamp(rts.max(wts[newest])));
        let slot = if access.intent == Intent::Write {
            if access.fetched && wts[newest] != access.version {
                return Err(Abort::WriteChanged);
            }
            let may = versions::writable(rts, wts[newest], time).or_else(|late| {
                let deaf = self.context.sabotaged(Sabotage::IgnoredReaders);
                if deaf { versions::writable(0, wts[newest], time) } else { Err(late) }
            });
            may.map(|()| newest)
        } else {
            versions::readable(words[record::HEADER_WORD].get(), wts.into_iter(), time)
        };
        (access.rts, access.victim) = (rts, victim as u8);
        slot
    }

    /// The second look of multi-version readers: the read timestamp is moved beyond the transaction, then the lock is read,
    /// then the versions, all on one queue pair and in this order.
    async fn confirm_group(&self, set: &mut [Access], step: Step, cost: &mut Cost) -> Result<(), Stop> {
        for tries in 0.. {
            if !any_pending(set) {
                break;
            }
            if tries > MAX_TRIES {
                return Err(Abort::Unstable.into());
            }
            let mut batch = self.batch(step);
            for access in set.iter().filter(|a| a.pending) {
                let at = self.context.at(access.primary, access.location);
                let (image, words) = (access.image(), access.image_words() as u32);
                if access.rts < access.time.0 {
                    batch.cas(at.at(record::RTS_WORD as u64 * 8), access.rts, access.time.0, image, words);
                }
                batch.read(at, image, (words + 1) * 8, WORD);
                batch.read(at.at(u64::from(WORD)), image, WORD, (words - 1) * 8);
            }
            *cost += batch.post().await.map_err(fault(Phase::Validate))?;
            for access in set.iter_mut().filter(|a| a.pending) {
                let (shape, version) = (access.shape(), access.version);
                let image = access.image().clone();
                if access.rts < access.time.0 {
                    let seen = image.word(access.image_words());
                    let moved = seen == access.rts;
                    access.rts = if moved { access.time.0 } else { seen };
                    if !moved && seen < access.time.0 {
                        continue;
                    }
                }
                let lock = image.word(access.image_words() + 1);
                let wts = (0..shape.slots()).map(|slot| image.word(shape.version_word(slot)));
                let slot = versions::readable(lock, wts, access.time)?;
                if image.word(shape.version_word(slot)) != version {
                    return Err(Abort::ReadChanged.into());
                }
                // Where the version lies has not changed, or it would be another one.
                let whole = shape.whole(image.words(), slot);
                (access.confirmed, access.pending) = (whole, !whole);
            }
        }
        Ok(())
    }

    /// Locks a group's pending records, and reads those that were not read.
    async fn lock_group(
        &self,
        set: &mut [Access],
        step: Step,
        rule: LockRule,
        cost: &mut Cost,
    ) -> Result<(), Stop> {
        // Looks at locks that others hold, and rounds in which a lock could be had but somebody was quicker.
        let (mut tries, mut races) = (0, 0);
        while any_pending(set) {
            if tries + races > 0 {
                self.context.pause(rule, tries, races).await;
            }
            if self.recall(set) {
                self.walk(set, step, Phase::Lock, cost).await?;
                // Some may turn out not to be there.
                if !any_pending(set) {
                    break;
                }
            }
            let mut batch = self.batch(step);
            for access in set.iter().filter(|a| a.pending) {
                let at = self.context.at(access.primary, access.location);
                if let Some(mode) = access.wants(rule) {
                    // What is expected can be locked, or else marked as wanted.
                    let ask = access.ask(mode);
                    let swap = match rule.decide(ask, access.header) {
                        Verdict::Grant(locked) => Some(locked),
                        _ => rule.mark(ask, access.header),
                    };
                    let swap = swap.unwrap_or(access.header);
                    batch.cas(at, access.header.0, swap.0, access.image(), access.image_words() as u32);
                }
                if !access.fetched || access.shape().packing == Packing::Versions {
                    batch.read(at, access.image(), 0, access.image_words() as u32 * 8);
                } else if access.primary != self.context.me && !access.locked() {
                    batch.read(at, access.image(), 0, WORD);
                }
            }
            *cost += batch.post().await.map_err(fault(Phase::Lock))?;
            let (mut denied, mut marks, mut round) = (None, None, Round::default());
            for access in set.iter_mut().filter(|a| a.pending) {
                if let Err(abort) = self.take_lock(access, rule, tries, &mut round) {
                    access.pending = false;
                    denied = denied.or(Some(abort));
                    if let Some((seen, marked)) = access.wants(rule).and_then(|mode| {
                        let seen = Header(access.image().word(access.image_words()));
                        Some((seen, rule.mark(access.ask(mode), seen)?))
                    }) {
                        // Nobody waits for it: it is for the next attempt.
                        let at = self.context.at(access.primary, access.location);
                        let batch = marks.get_or_insert_with(|| self.batch(step));
                        batch.cas(at, seen.0, marked.0, access.image(), access.image_words() as u32);
                    }
                }
            }
            if let Some(marks) = marks {
                self.send(marks, Phase::Lock, true, cost).await?;
            }
            self.return_strays(set, step, cost).await?;
            if let Some(abort) = denied {
                return Err(abort.into());
            }
            tries += u32::from(round.waits);
            races += u32::from(round.raced);
        }
        Ok(())
    }

    /// Looks at what CAS and READ brought. The record stays pending if it is to be asked for again.
    fn take_lock(
        &self,
        access: &mut Access,
        rule: LockRule,
        tries: u32,
        round: &mut Round,
    ) -> Result<(), Abort> {
        if let Some(mode) = access.wants(rule) {
            let ask = access.ask(mode);
            let seen = Header(access.image().word(access.image_words()));
            if seen != access.header {
                if self.moved(access) {
                    self.context.forget(access);
                    access.header = Header(0);
                    return Ok(());
                }
                if rule.packing == Packing::Versions && seen != rule.packing.vacant(0) {
                    self.context.clock.learn(Timestamp(seen.0));
                }
                match rule.decide(ask, seen) {
                    Verdict::Deny(abort) => return Err(abort),
                    Verdict::Wait if tries >= rule.retries() => return Err(Abort::LockConflict),
                    Verdict::Wait => {
                        round.waits = true;
                        let marks = rule.mark(ask, seen).is_some();
                        access.header = if marks { seen } else { rule.guess(ask, seen) };
                    }
                    // It can be had, from another state than was expected.
                    Verdict::Grant(_) => (access.header, round.raced) = (seen, true),
                }
                return Ok(());
            }
            match rule.decide(ask, seen) {
                Verdict::Grant(locked) => access.lock_is(locked, mode),
                // It is marked now.
                _ => {
                    round.waits = true;
                    access.header = rule.guess(ask, rule.mark(ask, seen).unwrap_or(seen));
                    return Ok(());
                }
            }
        }
        if access.fetched && rule.packing != Packing::Versions {
            access.pending = false;
            return Ok(());
        }
        access.walk = access.location;
        self.take_read(access)
    }

    /// Whether the image of a record whose lock was not had shows that it is not where it was believed to be: another's is there, or
    /// none, and not because somebody is about to create it there.
    fn moved(&self, access: &Access) -> bool {
        let (image, shape) = (access.image(), access.shape());
        let read = !access.fetched && shape.packing == Packing::Locked;
        read && (image.word(record::KEY_WORD) != access.key
            || !access.fresh && shape.is_absent(image.words()))
    }

    /// A cache entry that was wrong has made us lock another key's record: it is freed at once, and ours looked for. Torn
    /// records keep their lock and are read again.
    async fn return_strays(&self, set: &mut [Access], step: Step, cost: &mut Cost) -> Result<(), Stop> {
        // The location was forgotten, and noted as the last one that was looked at; the lock is still there.
        let stray = |a: &Access| a.pending && a.locked() && a.location == NOWHERE;
        for access in set.iter_mut().filter(|a| stray(a)) {
            access.location = access.walk;
            self.free_one(access, step, cost).await?;
            access.location = NOWHERE;
            access.let_go();
        }
        Ok(())
    }

    /// Frees one lock and waits for it.
    async fn free_one(&self, access: &mut Access, step: Step, cost: &mut Cost) -> Result<(), Stop> {
        let pending = std::mem::replace(&mut access.pending, true);
        self.free_group(
            std::slice::from_mut(access),
            Phase::Lock,
            Step { passive_ack: false, ..step },
            0,
            cost,
        )
        .await?;
        access.pending = pending;
        Ok(())
    }

    /// Frees the pending records' locks, with what was written put into place before. Who shares a lock leaves by FETCH_ADD, which
    /// others do not disturb; where ages are part of the word by CAS, which needs an answer, for others may have come or gone.
    async fn free_group(
        &self,
        set: &mut [Access],
        phase: Phase,
        step: Step,
        install_at: u64,
        cost: &mut Cost,
    ) -> Result<(), Stop> {
        while any_pending(set) {
            if step.passive_ack {
                self.context.port().room().await;
            }
            let mut batch = self.batch(step);
            let mut shared = false;
            for access in set.iter_mut().filter(|a| a.pending) {
                if access.shape().packing.shared(access.header) {
                    let at = self.context.at(access.primary, access.location);
                    let (image, words) = (access.image(), access.image_words() as u32);
                    if let Some(leaves) = access.shape().packing.leaves(access.header) {
                        batch.fetch_add(at, leaves, image, words);
                        access.pending = false;
                        access.let_go();
                        continue;
                    }
                    let free = access.shape().packing.free(access.header);
                    batch.cas(at, access.header.0, free.0, image, words);
                    shared = true;
                    continue;
                }
                self.stage_free(&mut batch, access, phase == Phase::Install, install_at);
                access.pending = false;
                access.let_go();
            }
            self.send(batch, phase, step.passive_ack && !shared, cost).await?;
            for access in set.iter_mut().filter(|a| a.pending) {
                let seen = Header(access.image().word(access.image_words()));
                if seen == access.header || seen.0 == 0 {
                    access.pending = false;
                    access.let_go();
                } else {
                    access.header = seen;
                }
            }
        }
        Ok(())
    }

    /// Frees the locks of what is about to be written, as they were before: for [`Sabotage::UnlockFirst`].
    #[cold]
    async fn free_before(&self, set: &[Access], step: Step, cost: &mut Cost) -> Result<(), Stop> {
        let mut batch = self.batch(step);
        for access in set.iter().filter(|a| a.pending && a.primary != self.context.me) {
            self.stage_free(&mut batch, access, false, 0);
        }
        self.send(batch, Phase::Install, false, cost).await
    }

    fn stage_free(&self, batch: &mut Batch<'_, AnyNic>, access: &Access, install: bool, install_at: u64) {
        let (image, words, shape) = (access.image(), access.image_words(), access.shape());
        let at = self.context.at(access.primary, access.location);
        if !install || !access.dirty() {
            image.set_word(words, shape.packing.free(access.header).0);
            return self.stage_word(batch, access, words);
        }
        let (version, first) = (access.next_version(install_at), access.install_word());
        if access.primary == self.context.me {
            // The payload is in place already; the NIC owns the lock word alone.
            image.set_word(first, shape.packing.installed(version).0);
        } else {
            record::seal(image, first, shape, version, access.key);
            let body = shape.install_words() - 1;
            self.context.charge(CpuWork::Copy((body as u32 + 1) * 8));
            let to = at.at(shape.body_word(usize::from(access.victim)) as u64 * 8);
            batch.write(to, image, (first as u32 + 1) * 8, body as u32 * 8);
        }
        self.stage_word(batch, access, first);
    }

    /// Puts word `from` of the image in place of the lock word, which this transaction alone may change. It knows what stands there, so
    /// where a CAS that fails may undo a WRITE it adds the difference. The word before then comes to where a CAS's does, behind the record
    /// as it was read: in the image to install that is at most the place of this very word.
    fn stage_word(&self, batch: &mut Batch<'_, AnyNic>, access: &Access, from: usize) {
        let at = self.context.at(access.primary, access.location);
        let image = access.image();
        if self.context.plan.adds_to_free() && !self.context.sabotaged(Sabotage::FreeByWrite) {
            let difference = image.word(from).wrapping_sub(access.header.0);
            return batch.fetch_add(at, difference, image, access.image_words() as u32);
        }
        batch.write(at, image, from as u32 * 8, WORD);
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
    fn timestamp(&self) -> Result<Timestamp, Abort> {
        self.context.timestamp()
    }

    async fn fetch(&self, txn: &mut Txn) -> Result<(), Stop> {
        let step = self.context.plan.step(Phase::Fetch);
        let (set, cost) = txn.serve_rest(Phase::Fetch);
        for group in groups(set, step) {
            self.fetch_group(group, step, cost).await?;
        }
        Ok(())
    }

    async fn lock_and_read(&self, txn: &mut Txn, rule: LockRule) -> Result<(), Stop> {
        let step = self.context.plan.step(Phase::Lock);
        let (set, cost) = txn.serve_rest(Phase::Lock);
        for group in groups(set, step) {
            self.lock_group(group, step, rule, cost).await?;
        }
        Ok(())
    }

    async fn validate(&self, txn: &mut Txn, rule: CheckRule) -> Result<(), Stop> {
        let step = self.context.plan.step(Phase::Validate);
        let (set, cost) = txn.serve(Phase::Validate);
        for group in groups(set, step) {
            if rule == CheckRule::ReadAt {
                self.confirm_group(group, step, cost).await?;
                continue;
            }
            let mut batch = self.batch(step);
            for access in group.iter().filter(|a| a.pending) {
                let at = self.context.at(access.primary, access.location);
                batch.read(at, access.image(), access.image_words() as u32 * 8, WORD);
            }
            if batch.is_empty() {
                continue;
            }
            *cost += batch.post().await.map_err(fault(Phase::Validate))?;
            // Leases that do not reach are extended; whoever was faster is looked at again.
            while any_pending(group) {
                let mut batch = self.batch(step);
                for access in group.iter_mut().filter(|a| a.pending) {
                    let now = Header(access.image().word(access.image_words()));
                    match rule.decide(access.version, now) {
                        Verdict::Deny(abort) => return Err(abort.into()),
                        Verdict::Grant(next) if next != now => {
                            let at = self.context.at(access.primary, access.location);
                            access.header = now;
                            batch.cas(at, now.0, next.0, access.image(), access.image_words() as u32);
                        }
                        Verdict::Grant(_) | Verdict::Wait => access.pending = false,
                    }
                }
                if batch.is_empty() {
                    break;
                }
                *cost += batch.post().await.map_err(fault(Phase::Validate))?;
                for access in group.iter_mut().filter(|a| a.pending) {
                    access.pending = Header(access.image().word(access.image_words())) != access.header;
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
        let step = self.context.plan.step(Phase::Install);
        let install_at = txn.install_at;
        let (set, cost) = txn.serve(Phase::Install);
        if self.context.sabotaged(Sabotage::UnlockFirst) {
            self.free_before(set, step, cost).await?;
        }
        for group in groups(set, step) {
            self.free_group(group, Phase::Install, step, install_at, cost).await?;
        }
        Ok(())
    }

    async fn unlock(&self, txn: &mut Txn) -> Result<(), Stop> {
        let step = self.context.plan.step(Phase::Unlock);
        let (set, cost) = txn.serve(Phase::Unlock);
        for group in groups(set, step) {
            self.free_group(group, Phase::Unlock, step, 0, cost).await?;
        }
        Ok(())
    }
}
