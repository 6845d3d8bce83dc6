//! The owner's side of two-sided operations: handlers that apply the rules where the records are.
//!
//! A handler never waits: a lock that is taken or a record under write-back is answered "ask again". Bytes come from
//! peers: a request that is too short, names no table, or asks what the record's state rules out changes nothing and
//! gets a refusal (or an empty reply if it cannot be decoded), and is counted.

use super::owner;
use super::wire::{self, Name};
use crate::log::RingReader;
use crate::rule::{Header, Verdict};
use crate::store::{Cluster, NodeStore, record};
use primitives::fabric::{CpuWork, Nic};
use primitives::mem::{Buf, PoolExhausted};
use primitives::mesh::Site;
use primitives::rpc::{Incoming, Malformed, Reader, Reply, Service};
use primitives::verbs::port::EnginePort;
use std::cell::Cell;
use std::rc::Rc;

/// What handlers have counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HandlerStats {
    /// Requests that could not be decoded or made no sense.
    pub malformed: u64,
    /// Log entries applied to backup copies.
    pub applied: u64,
    /// Log entries that were damaged and stopped a truncation.
    pub damaged: u64,
}

/// The owner's handlers for one worker.
pub struct Handlers {
    store: NodeStore,
    port: Rc<EnginePort>,
    /// A record's image on its way into a reply.
    image: Buf,
    log: RingReader,
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
            store,
            stats: Rc::default(),
        })
    }

    /// What is counted, to be read also when the core that owns the handlers is gone.
    pub fn stats(&self) -> Rc<Cell<HandlerStats>> {
        self.stats.clone()
    }

    fn count_malformed(&self) {
        let stats = self.stats.get();
        self.stats.set(HandlerStats { malformed: stats.malformed + 1, ..stats });
    }

    #[inline]
    fn find(&self, name: Name) -> Option<u64> {
        self.port.nic().charge(CpuWork::Probe);
        self.store.find(name.table, name.key, name.offset)
    }

    /// Appends header and payload of the record, or says "ask again" if it is being written.
    fn reply_record(&mut self, name: Name, offset: u64, reply: &mut Reply<'_>) {
        let words = self.store.layout().payload_words(name.table) as usize;
        if !self.store.read(offset, &self.image, words) {
            return wire::write_outcome(reply, owner::WAIT, offset);
        }
        self.port.nic().charge(CpuWork::Copy(words as u32 * 8 + 24));
        wire::write_outcome(reply, 0, offset);
        reply.word(self.image.word(record::HEADER_WORD));
        for i in 0..words {
            reply.word(self.image.word(record::PAYLOAD_WORD + i));
        }
    }

    fn fetch(&mut self, request: &mut Reader<'_>, reply: &mut Reply<'_>) -> Result<(), Malformed> {
        let name = Name::read(request)?;
        match self.find(name) {
            Some(offset) => self.reply_record(name, offset, reply),
            None => wire::write_outcome(reply, owner::NOT_FOUND, 0),
        }
        Ok(())
    }

    fn lock(&mut self, request: &mut Reader<'_>, reply: &mut Reply<'_>) -> Result<(), Malformed> {
        let name = Name::read(request)?;
        let (rule, read) = wire::read_lock(request)?;
        let Some(offset) = self.find(name) else {
            wire::write_outcome(reply, owner::NOT_FOUND, 0);
            return Ok(());
        };
        match self.store.lock(offset, read, rule) {
            Verdict::Grant(locked) if read.is_none() => {
                self.reply_record(name, offset, reply);
                // Nobody writes a record that is locked, unless its last writer's payload is still on its way to
                // memory behind its header; then the lock is given back with the refusal.
                if reply.len() <= 8 {
                    self.store.release(offset, locked);
                }
            }
            verdict => wire::write_outcome(reply, owner::status(verdict), offset),
        }
        Ok(())
    }

    fn validate(&mut self, request: &mut Reader<'_>, reply: &mut Reply<'_>) -> Result<(), Malformed> {
        let name = Name::read(request)?;
        let (rule, read) = wire::read_check(request)?;
        let (status, offset) = match self.find(name) {
            Some(offset) => (owner::status(self.store.check(offset, read, rule)), offset),
            None => (owner::NOT_FOUND, 0),
        };
        wire::write_outcome(reply, status, offset);
        Ok(())
    }

    fn install(&mut self, request: &mut Reader<'_>, reply: &mut Reply<'_>) -> Result<(), Malformed> {
        let name = Name::read(request)?;
        let header = Header::new(request.word()?);
        let Some(offset) = self.find(name) else {
            wire::write_outcome(reply, owner::NOT_FOUND, 0);
            return Ok(());
        };
        let want = self.store.layout().payload_words(name.table) * 8;
        if request.remaining() != want {
            return Err(Malformed::Field { field: "payload bytes", value: u64::from(request.remaining()) });
        }
        let (region, at) = request.place(want)?;
        let payload = (0..u64::from(want / 8)).map(|i| region.load(at + i * 8));
        let done = self.store.install(offset, header, name.key, payload);
        self.port.nic().charge(CpuWork::Copy(want + 24));
        if !done {
            self.count_malformed();
        }
        wire::write_outcome(reply, if done { 0 } else { owner::REFUSED }, offset);
        Ok(())
    }

    fn unlock(&mut self, request: &mut Reader<'_>, reply: &mut Reply<'_>) -> Result<(), Malformed> {
        let name = Name::read(request)?;
        let locked = Header(request.word()?);
        let Some(offset) = self.find(name) else {
            wire::write_outcome(reply, owner::NOT_FOUND, 0);
            return Ok(());
        };
        let done = self.store.release(offset, locked);
        if !done {
            self.count_malformed();
        }
        wire::write_outcome(reply, if done { 0 } else { owner::REFUSED }, offset);
        Ok(())
    }
}

impl Service for Handlers {
    fn handle(&mut self, incoming: &mut Incoming<'_>, reply: &mut Reply<'_>) {
        let request = &mut incoming.payload;
        let served = match incoming.handler {
            wire::FETCH => self.fetch(request, reply),
            wire::LOCK => self.lock(request, reply),
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
            wire::PING => {
                wire::write_outcome(reply, 0, 0);
                Ok(())
            }
            other => Err(Malformed::Field { field: "handler", value: u64::from(other) }),
        };
        if served.is_err() {
            self.count_malformed();
        }
    }
}
