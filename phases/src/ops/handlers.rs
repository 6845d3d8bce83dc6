//! The owner's side of two-sided operations: handlers that apply the rules where the records are.
//!
//! A handler never waits: a record under write-back is answered "ask again", and so is a lock that is taken, unless the
//! rule lets the transaction wait: then it is parked ([`super::parked`]). Bytes come from peers: a request that is too short, names no table, or asks what the record's state rules out changes nothing and
//! gets a refusal (or an empty reply if it cannot be decoded), and is counted.

mod structure;

use super::owner::{self, Look};
use super::parked::{Parked, Parking};
use super::wire::{self, Name};
use crate::letter;
use crate::log::RingReader;
use crate::rule::{Abort, Ask, CheckRule, Header, LockRule, OnConflict, Packing, Timestamp, Verdict};
use crate::store::{Cluster, NodeStore, Shape, record};
use primitives::fabric::{CpuWork, Nic};
use primitives::mem::{Buf, PoolExhausted, Region};
use primitives::mesh::Site;
use primitives::rpc::{Incoming, Malformed, Reader, Reply, Rpc, Service};
use primitives::units::Nanos;
use primitives::verbs::port::EnginePort;
use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Words of a message in front of its payload.
const MESSAGE_HEADER_WORDS: usize = 3;

/// What handlers have counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HandlerStats {
    /// Requests that could not be decoded or made no sense.
    pub malformed: u64,
    /// Log entries applied to backup copies.
    pub applied: u64,
    /// Log entries that were damaged and stopped a truncation.
    pub damaged: u64,
    /// Lock requests that had to wait.
    pub parked: u64,
    /// Most of them that waited at a time.
    pub parked_most: u64,
}

/// The owner's handlers for one worker.
pub struct Handlers {
    store: NodeStore,
    port: Rc<EnginePort>,
    /// A record's image on its way into a reply.
    image: Buf,
    log: RingReader,
    parking: Parking,
    /// Words that a reply has room for.
    reply_words: usize,
    failed: Arc<AtomicBool>,
    stats: Rc<Cell<HandlerStats>>,
}

impl Handlers {
    /// The handlers of the worker at `site`.
    ///
    /// # Errors
    /// If the port's pool has no buffer for the longest record.
    pub fn new(site: &Site, cluster: &Cluster) -> Result<Handlers, PoolExhausted> {
        let layout = cluster.layout();
        let tables = 0..layout.config().tables.len() as u16;
        let longest = tables.map(|t| layout.record_bytes(crate::store::TableId(t))).max().unwrap_or(8);
        let store = cluster.store(site.node).clone();
        Ok(Handlers {
            image: site.net.port.buf(longest)?,
            port: site.net.port.clone(),
            log: RingReader::new(store.clone(), site.worker),
            reply_words: (site.net.rpc.config().max_message as usize / 8)
                .saturating_sub(MESSAGE_HEADER_WORDS),
            // Well before the caller takes its request for lost.
            parking: Parking::new(
                Nanos(site.net.rpc.config().retransmit_after.0 / 2),
                site.net.rpc.config().window,
            ),
            store,
            failed: Arc::default(),
            stats: Rc::default(),
        })
    }

    /// Tells those who ask for a sign of life when the run has failed here, and nothing more is to be waited for.
    #[must_use]
    pub fn telling(self, failed: Arc<AtomicBool>) -> Handlers {
        Handlers { failed, ..self }
    }

    /// What is counted, to be read also when the core that owns the handlers is gone.
    pub fn stats(&self) -> Rc<Cell<HandlerStats>> {
        self.stats.clone()
    }

    fn count_malformed(&self) {
        let stats = self.stats.get();
        self.stats.set(HandlerStats { malformed: stats.malformed + 1, ..stats });
    }

    /// Where a record is. Who knew only its key pays for its bucket and for the record, who knew the place for the record.
    #[inline]
    fn find(&self, name: Name) -> Option<u64> {
        if name.offset == 0 {
            self.port.nic().charge(CpuWork::Probe);
        }
        self.port.nic().charge(CpuWork::Probe);
        self.store.find(name.table, name.key, name.offset)
    }

    /// Appends the record with `state` as its first word, or says "ask again" if it is being written; false then.
    fn reply_record(&self, name: Name, offset: u64, state: Option<Header>, reply: &mut Reply<'_>) -> bool {
        let shape = self.store.layout().shape(name.table);
        let Some(slot) = self.store.read(offset, self.image.words(), shape) else {
            wire::write_outcome(reply, owner::WAIT, offset);
            return false;
        };
        let state = match shape.packing {
            Packing::Versions => Some(Header(self.seen_word(name, offset))),
            _ => state,
        };
        self.put_record(name, offset, slot, state, reply);
        true
    }

    /// Appends the copy of a record that was just made.
    fn put_record(&self, name: Name, offset: u64, slot: usize, state: Option<Header>, reply: &mut Reply<'_>) {
        let shape = self.store.layout().shape(name.table);
        self.port.nic().charge(CpuWork::Copy(shape.words() as u32 * 8));
        wire::write_outcome(reply, 0, offset);
        self.put_image(shape, slot, state, reply);
    }

    fn put_image(&self, shape: Shape, slot: usize, state: Option<Header>, reply: &mut Reply<'_>) {
        reply.word(state.map_or(self.image.word(record::HEADER_WORD), |state| state.0));
        if wire::names_version(shape.packing) {
            reply.word(self.image.word(shape.version_word(slot)));
        }
        let first = shape.payload_word(slot);
        for i in 0..shape.payload as usize {
            reply.word(self.image.word(first + i));
        }
    }

    /// What clocks follow, and the slot written next, of a multi-version record.
    fn seen_word(&self, name: Name, offset: u64) -> u64 {
        let (seen, victim) = self.store.seen_at(offset, self.store.layout().shape(name.table));
        wire::seen_word(victim, seen)
    }

    /// Reads a version for a transaction's place in the order, and confirms it.
    fn read_at(&mut self, name: Name, time: Timestamp, read: Option<u64>, reply: &mut Reply<'_>) {
        let Some(offset) = self.find(name) else { return wire::write_outcome(reply, owner::NOT_FOUND, 0) };
        let shape = self.store.layout().shape(name.table);
        let denied = match self.store.read_at(offset, name.key, self.image.words(), shape, time, true) {
            Ok(None) => return wire::write_outcome(reply, owner::WAIT, offset),
            Ok(Some(slot)) => match read {
                None => {
                    let seen = Header(self.seen_word(name, offset));
                    return self.put_record(name, offset, slot, Some(seen), reply);
                }
                Some(read) if read == self.image.word(shape.version_word(slot)) => {
                    return wire::write_outcome(reply, 0, offset);
                }
                Some(_) => Abort::ReadChanged,
            },
            Err(abort) => abort,
        };
        wire::write_outcome(reply, denied.encode(), offset);
        reply.word(self.seen_word(name, offset));
    }

    fn fetch(&mut self, request: &mut Reader<'_>, reply: &mut Reply<'_>) -> Result<(), Malformed> {
        let name = Name::read(request)?;
        if self.store.layout().config().packing == Packing::Versions {
            let time = wire::read_time(request)?;
            self.read_at(name, time, None, reply);
            return Ok(());
        }
        let as_it_is = matches!(self.store.layout().config().packing, Packing::Counted | Packing::Leased);
        if as_it_is && self.store.layout().has(name.table) {
            let shape = self.store.layout().shape(name.table);
            match self.store.look(name.table, name.key, self.find(name), self.image.words(), shape) {
                Look::Whole(offset, slot) => self.put_record(name, offset, slot, None, reply),
                Look::Torn(offset) => wire::write_outcome(reply, owner::WAIT, offset),
                Look::Coming(_) => wire::write_outcome(reply, Abort::ReadLocked.encode(), 0),
                Look::Absent(floor) => wire::write_outcome(reply, owner::NOT_FOUND, floor),
            }
            return Ok(());
        }
        match self.find(name) {
            Some(offset) => {
                self.reply_record(name, offset, None, reply);
            }
            None => wire::write_outcome(reply, owner::NOT_FOUND, 0),
        }
        Ok(())
    }

    /// Answers a lock request, now or, if its rule lets it wait and it must, later.
    fn lock(&mut self, incoming: &mut Incoming<'_>, reply: &mut Reply<'_>) -> Result<(), Malformed> {
        let name = Name::read(&mut incoming.payload)?;
        let (rule, ask) = wire::read_lock(&mut incoming.payload)?;
        if rule.packing != self.store.layout().config().packing {
            return Err(Malformed::Field { field: "packing", value: rule.packing as u64 });
        }
        if !self.try_lock(name, rule, ask, reply) && rule.on_conflict == OnConflict::WaitIfOlder {
            let caller = (incoming.from, incoming.defer());
            self.parking.park(caller, name, rule, ask, self.port.now());
            // The poll that asks when to look was before this request: nothing else may come that wakes the core.
            if let Some(at) = self.parking.look_at() {
                self.port.nic().wake_at(at);
            }
            let stats = self.stats.get();
            let parked_most = stats.parked_most.max(self.parking.len() as u64);
            self.stats.set(HandlerStats { parked: stats.parked + 1, parked_most, ..stats });
        }
        Ok(())
    }

    /// Writes the answer to a lock request; false if that is "ask again" because somebody holds the lock.
    fn try_lock(&self, name: Name, rule: LockRule, ask: Ask, reply: &mut Reply<'_>) -> bool {
        let Some(offset) = self.find(name) else {
            match self.store.layout().has(name.table).then(|| self.store.missing(name.table, name.key)) {
                // It has just come.
                Some(Err(offset)) => wire::write_outcome(reply, owner::WAIT, offset),
                Some(Ok(floor)) => wire::write_outcome(reply, owner::NOT_FOUND, floor),
                None => wire::write_outcome(reply, owner::NOT_FOUND, 0),
            }
            return true;
        };
        let versions = rule.packing == Packing::Versions;
        let verdict = if versions {
            self.store.lock_at(offset, name.key, self.store.layout().shape(name.table), ask, rule)
        } else {
            self.store.lock(offset, name.key, ask, rule)
        };
        match verdict {
            Verdict::Grant(locked) if wire::lock_brings_record(rule.packing, ask) => {
                // Nobody writes a record that is locked, unless its last writer's payload is still on its way to
                // memory behind its header; then the lock is given back with the refusal.
                if !self.reply_record(name, offset, Some(locked), reply) && !ask.held {
                    self.store.release(offset, rule.packing, locked);
                }
            }
            verdict => {
                wire::write_outcome(reply, owner::status(verdict), offset);
                if versions {
                    reply.word(self.seen_word(name, offset));
                }
            }
        }
        verdict != Verdict::Wait
    }

    fn validate(&mut self, request: &mut Reader<'_>, reply: &mut Reply<'_>) -> Result<(), Malformed> {
        let name = Name::read(request)?;
        let (rule, read, time) = wire::read_check(request)?;
        if !rule.fits(self.store.layout().config().packing) {
            return Err(Malformed::Field { field: "check rule", value: rule.encode().0 });
        }
        if rule == CheckRule::ReadAt {
            self.read_at(name, time, Some(read), reply);
            return Ok(());
        }
        let (status, offset) = match self.find(name) {
            Some(offset) => (owner::status(self.store.check(offset, read, rule)), offset),
            None => (owner::NOT_FOUND, 0),
        };
        wire::write_outcome(reply, status, offset);
        Ok(())
    }

    fn install(&mut self, request: &mut Reader<'_>, reply: &mut Reply<'_>) -> Result<(), Malformed> {
        let name = Name::read(request)?;
        let version = request.word()?;
        let Some(offset) = self.find(name) else {
            wire::write_outcome(reply, owner::NOT_FOUND, 0);
            return Ok(());
        };
        let shape = self.store.layout().shape(name.table);
        let want = shape.payload * 8;
        if request.remaining() != want {
            return Err(Malformed::Field { field: "payload bytes", value: u64::from(request.remaining()) });
        }
        let (region, at) = request.place(want)?;
        let payload = &region.words()[at as usize / 8..][..shape.payload as usize];
        let done = self.store.install(offset, shape, version, name.key, payload);
        self.port.nic().charge(CpuWork::Copy(shape.install_words() as u32 * 8));
        if done {
            self.parking.hurry(self.port.now());
        } else {
            self.count_malformed();
        }
        wire::write_outcome(reply, if done { 0 } else { owner::REFUSED }, offset);
        Ok(())
    }

    /// Puts a letter, or a piece of one, into place: contents first, head last.
    fn letter(&mut self, request: &mut Reader<'_>, reply: &mut Reply<'_>) -> Result<(), Malformed> {
        let (at, head, sum, first) = (request.word()?, request.word()?, request.word()?, request.word()?);
        let bytes = request.remaining();
        self.port.nic().charge(CpuWork::Copy(bytes));
        let contents = first.checked_mul(8).and_then(|skip| skip.checked_add(letter::HEAD_WORDS as u64 * 8));
        let room = contents.and_then(|skip| skip.checked_add(u64::from(bytes)));
        let (Some(skip), Some(room)) = (contents, room) else {
            return Err(Malformed::Field { field: "piece of a letter", value: first });
        };
        if !self.store.is_letter(at, room) || !bytes.is_multiple_of(8) {
            return Err(Malformed::Field { field: "place of a letter", value: at });
        }
        let (from, start) = request.place(bytes)?;
        Region::copy(from, start, self.store.region(), at + skip, u64::from(bytes));
        self.store.region().store(at + 8, sum);
        self.store.region().store(at, head);
        wire::write_outcome(reply, 0, 0);
        Ok(())
    }

    fn unlock(&mut self, request: &mut Reader<'_>, reply: &mut Reply<'_>) -> Result<(), Malformed> {
        let name = Name::read(request)?;
        let held = Header(request.word()?);
        let Some(offset) = self.find(name) else {
            wire::write_outcome(reply, owner::NOT_FOUND, 0);
            return Ok(());
        };
        let packing = self.store.layout().config().packing;
        let done = self.store.release(offset, packing, held);
        if done {
            self.parking.hurry(self.port.now());
        } else {
            self.count_malformed();
        }
        wire::write_outcome(reply, if done { 0 } else { owner::REFUSED }, offset);
        Ok(())
    }
}

impl Service for Handlers {
    fn handle(&mut self, incoming: &mut Incoming<'_>, reply: &mut Reply<'_>) {
        self.parking.hear(incoming.from);
        if incoming.handler == wire::LOCK {
            if self.lock(incoming, reply).is_err() {
                self.count_malformed();
            }
            return;
        }
        let request = &mut incoming.payload;
        let served = match incoming.handler {
            wire::FETCH => self.fetch(request, reply),
            wire::VALIDATE => self.validate(request, reply),
            wire::INSTALL => self.install(request, reply),
            wire::UNLOCK => self.unlock(request, reply),
            wire::APPEND => {
                let charged = request.remaining();
                self.port.nic().charge(CpuWork::Copy(charged));
                self.log.append(incoming.from, request).map(|()| wire::write_outcome(reply, 0, 0))
            }
            wire::TRUNCATE => request.word().and_then(|upto| {
                let head = self.log.truncate(incoming.from, upto, self.port.nic())?;
                let (applied, damaged) = self.log.counts();
                self.stats.set(HandlerStats { applied, damaged, ..self.stats.get() });
                wire::write_outcome(reply, 0, 0);
                reply.word(head);
                Ok(())
            }),
            wire::RESERVE => self.reserve(request, reply),
            wire::UNDO | wire::REMOVE => self.take_back(incoming.handler, request, reply),
            wire::ABSENT => self.absent(request, reply),
            wire::SCAN => self.scan(request, reply),
            wire::LEAVES => self.leaves(request, reply),
            wire::LETTER => self.letter(request, reply),
            wire::PING => {
                wire::write_outcome(reply, 0, u64::from(self.failed.load(Ordering::Relaxed)));
                Ok(())
            }
            other => Err(Malformed::Field { field: "handler", value: u64::from(other) }),
        };
        if served.is_err() {
            self.count_malformed();
        }
    }

    #[inline]
    fn look_again_at(&self) -> Option<Nanos> {
        self.parking.look_at()
    }

    fn look_again<N: Nic>(&mut self, rpc: &Rpc<N>) {
        let now = self.port.now();
        // Out of the way while handlers read the store.
        let mut parking = std::mem::take(&mut self.parking);
        parking.look(now, |parked, in_the_way| self.serve_parked(parked, in_the_way, now, rpc));
        self.parking = parking;
    }
}

impl Handlers {
    /// Answers a parked request if its lock can be had, can no longer be waited for, or was waited for long enough.
    /// A request that is in the way of others is told to ask again.
    fn serve_parked<N: Nic>(&self, parked: &Parked, in_the_way: bool, now: Nanos, rpc: &Rpc<N>) -> bool {
        let Parked { later, name, rule, ask, until, .. } = *parked;
        // A record that is gone meanwhile is not waited for.
        let waits = self
            .find(name)
            .is_some_and(|offset| matches!(rule.decide(ask, self.store.header(offset)), Verdict::Wait));
        if waits && now < until && !in_the_way {
            return false;
        }
        // With no buffer for the answer it stays parked.
        rpc.give(later, |reply| {
            self.try_lock(name, rule, ask, reply);
        })
        .is_ok()
    }
}
