//! Operations by request and reply: the rule travels, the owner's handler decides.
//!
//! One message per record, all of a wave under one doorbell where the plan batches doorbells; replies carry the
//! record's location, which refills the cache. A lock of a record that was not read before brings the record along
//! (FaSST's lock-and-read), so it needs no fetch.
//!
//! Operations serve the records marked pending and leave the others alone.

use super::ranges::until;
use super::wire::{self, MESSAGE_HEADER, Name, Outcome};
use super::{Context, MAX_TRIES, PhaseOps, Stop, fault};
use crate::log::Slot;
use crate::plan::{Phase, Step};
use crate::rule::{Abort, Ask, CheckRule, Header, LockRule, Mode, Packing, Timestamp, Verdict};
use crate::store::record::Word;
use crate::txn::{Access, Change, Growth, NOWHERE, Txn};
use primitives::exec::yield_now;
use primitives::fabric::{AnyNic, CpuWork};
use primitives::rpc::{MAX_CALLS, Malformed, Pending, Reader, Replies, RpcError, Writer};
use primitives::verbs::NodeId;
use primitives::verbs::port::Cost;
use std::rc::Rc;

/// Phases by RPC.
pub struct TwoSided {
    context: Rc<Context>,
}

/// The records of one wave of calls, by their places.
pub(super) struct Wave {
    places: [u32; MAX_CALLS],
    len: usize,
}

impl Wave {
    /// The first pending records that `wanted` names, as many as the plan sends at once.
    pub(super) fn of(set: &[Access], limit: usize, wanted: impl Fn(&Access) -> bool) -> Wave {
        let mut wave = Wave { places: [0; MAX_CALLS], len: 0 };
        for (place, access) in set.iter().enumerate() {
            if wave.len == limit {
                break;
            }
            if access.pending && wanted(access) {
                wave.places[wave.len] = place as u32;
                wave.len += 1;
            }
        }
        wave
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    fn places(&self) -> impl Iterator<Item = usize> {
        self.places[..self.len].iter().map(|&p| p as usize)
    }
}

fn name(access: &Access) -> Name {
    let offset = if access.location == NOWHERE { 0 } else { access.location };
    Name { table: access.table, offset, key: access.key }
}

impl TwoSided {
    pub(super) fn new(context: Rc<Context>) -> TwoSided {
        TwoSided { context }
    }

    /// Calls that go out together.
    pub(super) fn limit(&self, step: Step) -> usize {
        if step.outstanding { MAX_CALLS.min(self.context.rpc().config().window as usize) } else { 1 }
    }

    /// Waits until every session of the wave has room for its requests.
    pub(super) async fn room(&self, set: &[Access], wave: &Wave, phase: Phase) -> Result<(), Stop> {
        let mut needs = [(NodeId(0), 0); MAX_CALLS];
        let mut len = 0;
        for place in wave.places() {
            let peer = set[place].primary;
            match needs[..len].iter_mut().find(|n| n.0 == peer) {
                Some(need) => need.1 += 1,
                None => {
                    needs[len] = (peer, 1);
                    len += 1;
                }
            }
        }
        self.context.rpc().room(&needs[..len]).await.map_err(fault(phase))
    }

    /// Sends a wave; there must be room.
    pub(super) fn start(
        &self,
        set: &[Access],
        wave: &Wave,
        step: Step,
        phase: Phase,
        handler: impl Fn(&Access) -> u8,
        write: impl Fn(&Access, &mut Writer<'_>),
    ) -> Result<Pending<'_, AnyNic>, Stop> {
        let mut batch = self.context.rpc().batch();
        batch.doorbell_batching(step.doorbell_batching);
        for access in wave.places().map(|p| &set[p]) {
            let put = |w: &mut Writer<'_>| {
                name(access).write(w);
                write(access, w);
            };
            if step.passive_ack {
                batch.one_way(access.primary, handler(access), put).map_err(fault(phase))?;
            } else {
                batch.call(access.primary, handler(access), put).map_err(fault(phase))?;
            }
        }
        Ok(batch.send())
    }

    /// Takes a wave's replies. Denied records are no longer pending, waiting ones still are; the first denial wins.
    pub(super) fn take(
        &self,
        set: &mut [Access],
        wave: &Wave,
        replies: &Replies<'_, AnyNic>,
        phase: Phase,
        mut done: impl FnMut(&mut Access, &mut Reader<'_>) -> Result<(), Malformed>,
    ) -> Result<(), Stop> {
        let mut denied = None;
        for (index, place) in wave.places().enumerate() {
            let access = &mut set[place];
            let outcome = replies.read(index, |mut reply| -> Result<Outcome, Malformed> {
                let outcome = Outcome::read(&mut reply)?;
                if let Outcome::Done(offset) = outcome {
                    if offset != 0 {
                        (access.location, access.fresh) = (offset, true);
                        self.context.remember(access);
                    }
                    done(access, &mut reply)?;
                    access.pending = false;
                }
                Ok(outcome)
            });
            match outcome.map_err(|e| fault(phase)(RpcError::from(e)))? {
                Outcome::Done(_) | Outcome::Wait => {}
                Outcome::Absent(version) if access.may_be_absent() => access.take_absence(version),
                // Somebody has removed it since it was read.
                Outcome::Absent(_) => {
                    access.pending = false;
                    denied = denied.or(Some(match (access.fetched, phase) {
                        (false, _) => Abort::NotFound,
                        (true, Phase::Validate) => Abort::ReadChanged,
                        (true, _) => Abort::WriteChanged,
                    }));
                }
                Outcome::Denied(abort) => {
                    access.pending = false;
                    if access.shape().packing == Packing::Versions {
                        let seen = replies.read(index, |mut reply| {
                            reply.word()?;
                            wire::read_seen(reply.word()?)
                        });
                        // A record that is not there has no timestamps.
                        self.context.clock.learn(seen.map_or(Timestamp(0), |(_, seen)| seen));
                    }
                    // Its owner is to say whether it came later than the transaction's time.
                    if abort == Abort::NoVersion && access.may_be_absent() {
                        access.take_absence(0);
                        continue;
                    }
                    denied = denied.or(Some(abort));
                }
            }
        }
        denied.map_or(Ok(()), |abort| Err(abort.into()))
    }

    /// Calls the owners of all pending records, wave by wave. Records whose owner says "ask again" are asked
    /// `retries` more times, then `give_up` is the outcome.
    #[allow(clippy::too_many_arguments)]
    async fn call_all(
        &self,
        set: &mut [Access],
        phase: Phase,
        handler: impl Fn(&Access) -> u8,
        (retries, give_up): (u32, Abort),
        cost: &mut Cost,
        write: impl Fn(&Access, &mut Writer<'_>),
        mut done: impl FnMut(&mut Access, &mut Reader<'_>) -> Result<(), Malformed>,
    ) -> Result<(), Stop> {
        let step = self.context.plan.step_of_owner(phase);
        let limit = self.limit(step);
        let mut from = 0;
        let mut tries = 0;
        loop {
            let wave = Wave::of(&set[from..], limit, |_| true);
            if wave.is_empty() {
                if from == 0 {
                    return Ok(());
                }
                // Those that were told to ask again.
                from = 0;
                if set.iter().any(|a| a.pending) {
                    tries += 1;
                    if tries > retries {
                        return Err(give_up.into());
                    }
                    yield_now(self.context.port().sched()).await;
                }
                continue;
            }
            let part = &mut set[from..];
            self.room(part, &wave, phase).await?;
            let pending = self.start(part, &wave, step, phase, &handler, &write)?;
            *cost += pending.cost();
            if step.passive_ack {
                for place in wave.places() {
                    part[place].pending = false;
                    part[place].let_go();
                }
                drop(pending);
            } else {
                let replies = pending.await.map_err(fault(phase))?;
                cost.bytes += replies.bytes();
                self.take(part, &wave, &replies, phase, &mut done)?;
            }
            from += wave.places().last().map_or(0, |p| p + 1);
        }
    }

    /// The record in a reply, into the access's first image.
    pub(super) fn take_record(&self, access: &mut Access, reply: &mut Reader<'_>) -> Result<(), Malformed> {
        let shape = access.shape();
        let state = Header(reply.word()?);
        let version = if wire::names_version(shape.packing) { reply.word()? } else { state.0 };
        if shape.packing == Packing::Versions {
            let (victim, seen) = wire::read_seen(state.0)?;
            self.context.clock.learn(seen);
            (access.victim, access.confirmed) = (victim, true);
        }
        let (image, first) = (access.image(), shape.payload_word(0));
        for i in 0..shape.payload as usize {
            image.set_word(first + i, reply.word()?);
        }
        self.context.charge(CpuWork::Copy(shape.payload * 8));
        access.take(state, version, first);
        Ok(())
    }

    /// Has the owners of pending records set slots aside for them.
    pub(super) async fn reserve(&self, txn: &mut Txn, rule: LockRule) -> Result<(), Stop> {
        let (set, mut growths, cost) = txn.reserving();
        let ask = Ask { mode: Mode::Exclusive, held: false, read: None };
        let write = |access: &Access, w: &mut Writer<'_>| {
            wire::write_lock(w, rule, ask);
            wire::write_absence(w, access.absence());
        };
        let done = |access: &mut Access, reply: &mut Reader<'_>| {
            let (header, version) = (Header(reply.word()?), reply.word()?);
            let grown = wire::read_grown(reply)?;
            if let (Some(growths), Some(grown)) = (&mut growths, grown) {
                growths.push(Growth::of(access, &self.context.layout, grown));
            }
            access.take_slot(access.location, header, version);
            Ok(())
        };
        let tries = (rule.retries(), Abort::LockConflict);
        self.call_all(set, Phase::Lock, |_| wire::RESERVE, tries, cost, write, done).await
    }

    /// Asks the owners of pending records, which were not there, whether that is still so.
    pub(super) async fn check_absence(
        &self,
        set: &mut [Access],
        rule: CheckRule,
        cost: &mut Cost,
    ) -> Result<(), Stop> {
        let write = |access: &Access, w: &mut Writer<'_>| {
            w.word(access.version);
            w.word(until(rule, access.time));
        };
        let tries = (0, Abort::ReadChanged);
        let done = |access: &mut Access, _: &mut Reader<'_>| {
            access.confirmed = rule == CheckRule::ReadAt;
            Ok(())
        };
        self.call_all(set, Phase::Validate, |_| wire::ABSENT, tries, cost, write, done).await
    }

    /// Sends the log entries marked pending, in as many messages as each needs.
    pub(super) async fn append(&self, slots: &mut [Slot], step: Step, cost: &mut Cost) -> Result<(), Stop> {
        let rpc = self.context.rpc();
        // One word of each message is the ring position.
        let piece = (rpc.config().max_message - MESSAGE_HEADER - 8) / 8 * 8;
        let limit = self.limit(step);
        let mut next = 0;
        let mut at = 0;
        while next < slots.len() {
            // What goes out in this wave: (slot, first byte, bytes).
            let mut wave = [(0u16, 0u32, 0u32); MAX_CALLS];
            let mut needs = [(NodeId(0), 0u32); MAX_CALLS];
            let (mut len, mut peers) = (0, 0);
            while next < slots.len() && len < limit {
                let slot = &slots[next];
                // Behind the entry stands the frame that skips, if it is needed; it goes as a piece of its own.
                let end = slot.len + if slot.skip.is_some() { 8 } else { 0 };
                if !slot.pending || at >= end {
                    (next, at) = (next + 1, 0);
                    continue;
                }
                let bytes = if at < slot.len { piece.min(slot.len - at) } else { 8 };
                wave[len] = (next as u16, at, bytes);
                len += 1;
                at += bytes;
                match needs[..peers].iter_mut().find(|n| n.0 == slot.node) {
                    Some(need) => need.1 += 1,
                    None => {
                        needs[peers] = (slot.node, 1);
                        peers += 1;
                    }
                }
            }
            if len == 0 {
                break;
            }
            rpc.room(&needs[..peers]).await.map_err(fault(Phase::Log))?;
            let mut batch = rpc.batch();
            batch.doorbell_batching(step.doorbell_batching);
            for &(slot, first, bytes) in &wave[..len] {
                let slot = &slots[usize::from(slot)];
                let put = |w: &mut Writer<'_>| {
                    let skips = first == slot.len;
                    w.word(if skips { slot.skip.unwrap_or(0) } else { slot.position + u64::from(first) });
                    for i in 0..bytes / 8 {
                        w.word(slot.buf.word((first / 8 + i) as usize));
                    }
                };
                batch.call(slot.node, wire::APPEND, put).map_err(fault(Phase::Log))?;
            }
            let replies = batch.send().await.map_err(fault(Phase::Log))?;
            *cost += replies.cost();
            for index in 0..len {
                let outcome = replies.read(index, |mut reply| Outcome::read(&mut reply));
                outcome.map_err(|e| fault(Phase::Log)(RpcError::from(e)))?;
            }
        }
        slots.iter_mut().for_each(|s| s.pending = false);
        Ok(())
    }
}

impl PhaseOps for TwoSided {
    fn timestamp(&self) -> Result<Timestamp, Abort> {
        self.context.timestamp()
    }

    async fn fetch(&self, txn: &mut Txn) -> Result<(), Stop> {
        let (set, cost) = txn.serve_rest(Phase::Fetch);
        let tries = (MAX_TRIES, Abort::Unstable);
        let handler = |_: &Access| wire::FETCH;
        self.call_all(set, Phase::Fetch, handler, tries, cost, fetching, |a, r| self.take_record(a, r)).await
    }

    async fn lock_and_read(&self, txn: &mut Txn, rule: LockRule) -> Result<(), Stop> {
        let (set, cost) = txn.serve_rest(Phase::Lock);
        let tries = (rule.retries(), Abort::LockConflict);
        let write = |access: &Access, w: &mut Writer<'_>| {
            if let Some(mode) = access.wants(rule) {
                wire::write_lock(w, rule, access.ask(mode));
            }
        };
        let done = |access: &mut Access, reply: &mut Reader<'_>| {
            let Some(mode) = access.wants(rule) else { return Ok(()) };
            let ask = access.ask(mode);
            if wire::lock_brings_record(rule.packing, ask) {
                // Its first word is the lock word that the owner has put there.
                let first = Header(reply.clone().word()?);
                let versions = rule.packing == Packing::Versions;
                access.lock_is(if versions { Header(rule.time.0) } else { first }, mode);
                self.take_record(access, reply)?;
            } else if let Verdict::Grant(locked) = rule.decide(Ask { held: false, ..ask }, alone(access)) {
                access.lock_is(locked, mode);
            }
            Ok(())
        };
        self.call_all(set, Phase::Lock, |_| wire::LOCK, tries, cost, write, done).await
    }

    async fn validate(&self, txn: &mut Txn, rule: CheckRule) -> Result<(), Stop> {
        let (set, cost) = txn.serve(Phase::Validate);
        let write =
            |access: &Access, w: &mut Writer<'_>| wire::write_check(w, rule, access.version, access.time);
        let tries = (MAX_TRIES, Abort::ReadLocked);
        let done = |access: &mut Access, _: &mut Reader<'_>| {
            access.confirmed = true;
            Ok(())
        };
        self.call_all(set, Phase::Validate, |_| wire::VALIDATE, tries, cost, write, done).await
    }

    async fn replicate(&self, txn: &mut Txn) -> Result<(), Stop> {
        let step = self.context.plan.step(Phase::Log);
        let (slots, cost) = txn.log();
        self.append(slots, step, cost).await
    }

    async fn install_and_unlock(&self, txn: &mut Txn) -> Result<(), Stop> {
        let install_at = txn.install_at;
        let (set, cost) = txn.serve(Phase::Install);
        // What was locked and not changed is only freed.
        let handler = |access: &Access| match access.change {
            Change::Delete => wire::REMOVE,
            _ if access.dirty() => wire::INSTALL,
            Change::Insert => wire::UNDO,
            Change::Update => wire::UNLOCK,
        };
        let write = |access: &Access, w: &mut Writer<'_>| {
            if access.change == Change::Delete {
                return w.word(access.next_version(install_at));
            }
            if !access.dirty() {
                return w.word(access.header.0);
            }
            w.word(access.next_version(install_at));
            access.values().iter().for_each(|word| w.word(word.get()));
        };
        let tries = (0, Abort::Unstable);
        self.call_all(set, Phase::Install, handler, tries, cost, write, freed).await
    }

    async fn unlock(&self, txn: &mut Txn) -> Result<(), Stop> {
        let (set, cost) = txn.serve(Phase::Unlock);
        let handler = |access: &Access| if access.reserved() { wire::UNDO } else { wire::UNLOCK };
        let write = |access: &Access, w: &mut Writer<'_>| w.word(access.header.0);
        let tries = (0, Abort::Unstable);
        self.call_all(set, Phase::Unlock, handler, tries, cost, write, freed).await
    }
}

/// What a fetch says of a record beside its name.
pub(super) fn fetching(access: &Access, w: &mut Writer<'_>) {
    if access.shape().packing == Packing::Versions {
        w.word(access.time.0);
    }
}

/// The lock word that the owner has granted from, as far as what it has put there depends on it: an upgrade to exclusive
/// leaves nothing of the readers.
fn alone(access: &Access) -> Header {
    if access.shape().packing == Packing::Locked { Header(0) } else { access.header }
}

/// The owner has freed the lock.
fn freed(access: &mut Access, _: &mut Reader<'_>) -> Result<(), Malformed> {
    access.let_go();
    Ok(())
}
