//! Requests about more than a record: slots for new ones, removal, absence, ranges.

use super::Handlers;
use crate::ops::owner::{self, Look};
use crate::ops::wire::{self, Name};
use crate::rule::{Abort, Header, Packing};
use crate::store::Refused;
use primitives::fabric::{CpuWork, Nic};
use primitives::rpc::{Malformed, Reader, Reply};

impl Handlers {
    /// The name of a record of this node's partition.
    fn named(&self, request: &mut Reader<'_>) -> Result<Name, Malformed> {
        let name = Name::read(request)?;
        let layout = self.store.layout();
        if !layout.has(name.table) {
            return Err(Malformed::Field { field: "table", value: u64::from(name.table.0) });
        }
        if layout.primary(name.table, name.key) != self.store.node() {
            return Err(Malformed::Field { field: "key of another node", value: name.key });
        }
        self.port.nic().charge(CpuWork::Probe);
        Ok(name)
    }

    fn refuse(&self, refused: Refused, reply: &mut Reply<'_>) {
        wire::write_outcome(reply, owner::status(refused.verdict), 0);
        if self.store.layout().config().packing == Packing::Versions {
            reply.word(wire::seen_word(0, refused.seen));
        }
    }

    pub(super) fn reserve(
        &mut self,
        request: &mut Reader<'_>,
        reply: &mut Reply<'_>,
    ) -> Result<(), Malformed> {
        let name = self.named(request)?;
        let (rule, _) = wire::read_lock(request)?;
        if rule.packing != self.store.layout().config().packing {
            return Err(Malformed::Field { field: "packing", value: rule.packing as u64 });
        }
        let absent = wire::read_absence(request)?;
        self.port.nic().charge(CpuWork::Probe);
        match self.store.reserve(name.table, name.key, absent, rule) {
            Ok(slot) => {
                wire::write_outcome(reply, 0, slot.offset);
                reply.word(slot.header.0);
                reply.word(slot.version);
                wire::write_grown(reply, slot.grown);
            }
            Err(refused) => self.refuse(refused, reply),
        }
        Ok(())
    }

    /// Takes a slot back or removes a record.
    pub(super) fn take_back(
        &mut self,
        handler: u8,
        request: &mut Reader<'_>,
        reply: &mut Reply<'_>,
    ) -> Result<(), Malformed> {
        let name = self.named(request)?;
        let word = request.word()?;
        let done = if handler == wire::REMOVE {
            self.store.remove(name.table, name.key, name.offset, word)
        } else {
            self.store.undo(name.table, name.key, name.offset, Header(word))
        };
        if done {
            // Who waits for the record is to hear of it.
            self.parking.hurry(self.port.now());
        } else {
            self.count_malformed();
        }
        wire::write_outcome(reply, if done { 0 } else { owner::REFUSED }, 0);
        Ok(())
    }

    pub(super) fn absent(
        &mut self,
        request: &mut Reader<'_>,
        reply: &mut Reply<'_>,
    ) -> Result<(), Malformed> {
        let name = self.named(request)?;
        let (version, until) = (request.word()?, request.word()?);
        match self.store.confirm_absence(name.table, name.key, version, until) {
            Ok(()) => wire::write_outcome(reply, 0, 0),
            Err(refused) => self.refuse(refused, reply),
        }
        Ok(())
    }

    /// A page of a range. A record that is being written, created or removed ends it: the caller asks again.
    pub(super) fn scan(&mut self, request: &mut Reader<'_>, reply: &mut Reply<'_>) -> Result<(), Malformed> {
        let (scan, time) = wire::read_scan(request)?;
        let layout = self.store.layout().clone();
        self.port.nic().charge(CpuWork::Probe);
        let page = || {
            let most = wire::rows_per_page(layout.shape(scan.table), self.reply_words);
            self.store.page(&scan, most, time.0)
        };
        let Some(page) = layout.is_ordered(scan.table).then(page).flatten() else {
            wire::write_outcome(reply, owner::NOT_FOUND, 0);
            return Ok(());
        };
        wire::write_outcome(reply, 0, 0);
        wire::write_page(reply, &page);
        let shape = layout.shape(scan.table);
        for &(key, offset) in page.rows() {
            reply.word(key);
            if shape.packing.ranges_name_keys() {
                reply.word(offset);
                continue;
            }
            let look = self.store.look(scan.table, key, Some(offset), self.image.words(), shape);
            let Look::Whole(offset, slot) = look else {
                reply.word(0);
                break;
            };
            self.port.nic().charge(CpuWork::Copy(shape.words() as u32 * 8));
            reply.word(offset);
            self.put_image(shape, slot, None, reply);
        }
        Ok(())
    }

    pub(super) fn leaves(
        &mut self,
        request: &mut Reader<'_>,
        reply: &mut Reply<'_>,
    ) -> Result<(), Malformed> {
        let Name { table, offset, key: count } = Name::read(request)?;
        self.port.nic().charge(CpuWork::Probe);
        let until = request.word()?;
        if u64::from(request.remaining()) != count.saturating_mul(16) {
            return Err(Malformed::Field { field: "leaves", value: count });
        }
        // There are as many words as that.
        let mut word = || request.word().unwrap_or(0);
        let leaves = (0..count).map(|_| (word() as u32, word()));
        let stand = self.store.leaves_stand(table, offset as u16, until, leaves);
        wire::write_outcome(reply, if stand { 0 } else { Abort::ReadChanged.encode() }, 0);
        Ok(())
    }
}
