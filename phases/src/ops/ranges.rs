//! What only a table's owner can say or do, for all primitives alike: ranges, absence, slots for records to be created, records to
//! be removed. The owner is this node's CPU or the other side of a call.
//!
//! A page of a range has its records where these may be read as they are (OCC, SUNDIAL). Where a record is read only by who has
//! locked it (NOWAIT, WAITDIE), a page names keys, and the protocol locks what was named. Where a version has to be chosen
//! (MVCC), a page names keys that may or may not be there at the transaction's time; each is looked for, and a limit counts
//! those that are.

use super::owner::Look;
use super::phases::Phases;
use super::wire::{self, Outcome};
use super::{Fault, PhaseOps, Stop, fault};
use crate::plan::{Phase, Via};
use crate::rule::{Abort, CheckRule, LockRule, Packing, Timestamp, Verdict};
use crate::store::{PAGE_ROWS, Refused, TableId};
use crate::txn::{Access, Finding, Growth, Intent, LeafSeen, Scan, Txn};
use primitives::exec::yield_now;
use primitives::fabric::CpuWork;
use primitives::rpc::{Malformed, Reader, RpcError, Writer};
use primitives::verbs::NodeId;
use primitives::verbs::port::VerbError;

/// Times a page is asked for again that has a record which is being written or created. Whoever creates it may still have to
/// hear from its backups: beyond a few looks it is better to begin anew.
const PAGE_TRIES: u32 = 8;

/// Leaves that one request asks about.
const LEAVES_PER_CALL: usize = 32;

/// A page of a scan as the coordinator has taken it.
struct Taken {
    /// The last key, if there is any.
    last: Option<u64>,
    /// Rows that the transaction sees.
    rows: usize,
    ended: bool,
}

impl Phases {
    /// Reads a range, or what keys there are in it: rows join the transaction's records, its leaves what is validated.
    pub(super) async fn scan_range(&self, txn: &mut Txn, scan: &Scan) -> Result<(), Stop> {
        let layout = &self.context.layout;
        let Scan { table, from, to, limit, .. } = *scan;
        if !layout.is_ordered(table) {
            return Err(Fault::Unordered { table }.into());
        }
        let reply_words = (self.context.rpc().config().max_message as usize / 8).saturating_sub(3);
        if wire::rows_per_page(layout.shape(table), reply_words) == 0 {
            return Err(Fault::WideRows { table }.into());
        }
        if from <= to && layout.block(table, from) != layout.block(table, to) {
            return Err(Fault::Scattered { table, from, to }.into());
        }
        let local = layout.primary(table, from) == self.context.me;
        match txn.finding() {
            Finding::Told if txn.pass_scan(scan) => return Ok(()),
            Finding::At(_) if local => {}
            Finding::Nothing => {}
            Finding::At(_) | Finding::Told => return Err(Fault::Undeclared { table, key: from }.into()),
        }
        txn.begin_scan();
        let packing = layout.config().packing;
        let mut rest = (from <= to && limit > 0).then_some(*scan);
        let mut tries = 0;
        while let Some(part) = rest {
            let before = txn.accesses().len();
            let taken = if local { self.page_here(txn, &part) } else { self.page_there(txn, &part).await };
            let Some(mut taken) = taken? else {
                txn.forget_from(before);
                tries += 1;
                if tries > PAGE_TRIES {
                    return Err(Abort::ReadLocked.into());
                }
                yield_now(self.context.port().sched()).await;
                continue;
            };
            if packing == Packing::Versions {
                let first = txn.scanned().len() - taken.rows;
                self.fetch(txn).await?;
                self.validate(txn, CheckRule::ReadAt).await?;
                txn.keep_rows_that_are_there(first);
                taken.rows = txn.scanned().len() - first;
            }
            rest = taken.last.filter(|_| !taken.ended).and_then(|last| part.behind(last, taken.rows));
        }
        txn.keep_scan(scan);
        Ok(())
    }

    /// The transaction's access to a row that a page has, and whether what the page says of it is to be taken: what was read
    /// before stays, and validation tells whether it still is so.
    fn row(&self, txn: &mut Txn, table: TableId, key: u64, offset: u64) -> Result<(usize, bool), Stop> {
        let at = self.touch(txn, table, key, Intent::Read);
        let at = at.map_err(|e| fault(Phase::Fetch)(VerbError::from(e)))?;
        let (set, _) = txn.serve(Phase::Fetch);
        let access = &mut set[at];
        let new = !access.fetched && !access.dirty();
        if access.shape().packing == Packing::Versions {
            // It may have come later than the transaction's time, and then be as absent as it was.
            access.optional |= new;
        } else if access.absent() && !access.exists() {
            return Err(Abort::ReadChanged.into());
        }
        if new && access.shape().packing.ranges_name_keys() {
            (access.location, access.fresh) = (offset, true);
        }
        Ok((at, new && !access.shape().packing.ranges_name_keys()))
    }

    /// A page of this node's own; `None` if a record in it is being written, created or removed.
    fn page_here(&self, txn: &mut Txn, scan: &Scan) -> Result<Option<Taken>, Stop> {
        self.context.charge(CpuWork::Probe);
        let Some(page) = self.local.page(scan, PAGE_ROWS, self.time_of_range(txn)) else {
            return Err(Fault::Unordered { table: scan.table }.into());
        };
        let rows_before = txn.scanned().len();
        for &(key, offset) in page.rows() {
            let (at, read) = self.row(txn, scan.table, key, offset)?;
            if read {
                let (set, _) = txn.serve(Phase::Fetch);
                let access = &mut set[at];
                self.context.charge(CpuWork::Copy(access.image_words() as u32 * 8));
                let Look::Whole(offset, slot) =
                    self.local.look(scan.table, key, Some(offset), access.image().words(), access.shape())
                else {
                    txn.forget_rows(rows_before);
                    return Ok(None);
                };
                access.location = offset;
                access.read_in(slot);
            }
            txn.add_row(at);
        }
        self.comes_after(txn, page.removed_at)?;
        let shard = self.context.layout.shard(scan.table, scan.from);
        for &(leaf, version) in page.leaves().iter().filter(|_| self.validates_leaves()) {
            txn.add_leaf(LeafSeen { node: self.context.me, table: scan.table, shard, leaf, version });
        }
        let rows = txn.scanned().len() - rows_before;
        Ok(Some(Taken { last: page.rows().last().map(|row| row.0), rows, ended: page.ended }))
    }

    /// The time at which a range is read, where that is known.
    fn time_of_range(&self, txn: &Txn) -> u64 {
        let told = self.context.layout.config().packing == Packing::Versions && !txn.unseen;
        if told { txn.time.0 } else { 0 }
    }

    /// Whether leaves have to be looked at again: an owner who was told of the time lets nobody in before it.
    fn validates_leaves(&self) -> bool {
        self.context.layout.config().packing != Packing::Versions
    }

    /// A key went at `time` from a range that is being read.
    fn comes_after(&self, txn: &mut Txn, time: u64) -> Result<(), Abort> {
        if self.context.layout.config().packing != Packing::Versions {
            txn.comes_after(time);
        } else if time > txn.time.0 {
            self.context.clock.learn(Timestamp(time));
            return Err(Abort::NoVersion);
        }
        Ok(())
    }

    /// A page of another node's.
    async fn page_there(&self, txn: &mut Txn, scan: &Scan) -> Result<Option<Taken>, Stop> {
        let node = self.context.layout.primary(scan.table, scan.from);
        let (rpc, time) = (self.context.rpc(), Timestamp(self.time_of_range(txn)));
        let replies = rpc
            .call(node, wire::SCAN, |w| wire::write_scan(w, scan, time))
            .await
            .map_err(fault(Phase::Fetch))?;
        txn.costs[Phase::Fetch] += replies.cost();
        replies.read(0, |mut reply| self.take_page(txn, scan, node, &mut reply))
    }

    fn take_page(
        &self,
        txn: &mut Txn,
        scan: &Scan,
        node: NodeId,
        reply: &mut Reader<'_>,
    ) -> Result<Option<Taken>, Stop> {
        let malformed = |e: Malformed| fault(Phase::Fetch)(RpcError::from(e));
        match Outcome::read(reply).map_err(malformed)? {
            Outcome::Done(_) => {}
            Outcome::Wait => return Ok(None),
            Outcome::Absent(_) => return Err(Fault::Unordered { table: scan.table }.into()),
            Outcome::Denied(abort) => return Err(abort.into()),
        }
        let (ended, rows, leaves, removed_at) = wire::read_page(reply).map_err(malformed)?;
        self.comes_after(txn, removed_at)?;
        let kept = txn.leaf_count();
        let shard = self.context.layout.shard(scan.table, scan.from);
        for _ in 0..leaves {
            let leaf = reply.word().map_err(malformed)? as u32;
            let version = reply.word().map_err(malformed)?;
            if self.validates_leaves() {
                txn.add_leaf(LeafSeen { node, table: scan.table, shard, leaf, version });
            }
        }
        let rows_before = txn.scanned().len();
        let mut last = None;
        for _ in 0..rows {
            let (key, offset) = (reply.word().map_err(malformed)?, reply.word().map_err(malformed)?);
            if key < scan.from || key > scan.to {
                return Err(malformed(Malformed::Field { field: "key of a row", value: key }));
            }
            if offset == 0 {
                txn.forget_rows(rows_before);
                txn.forget_leaves(kept);
                return Ok(None);
            }
            last = Some(key);
            let (at, read) = self.row(txn, scan.table, key, offset)?;
            let (set, _) = txn.serve(Phase::Fetch);
            let access = &mut set[at];
            if read {
                access.location = offset;
                self.context.remember(access);
                self.two.take_record(access, reply).map_err(malformed)?;
            } else {
                for _ in 0..wire::row_words(access.shape()) {
                    reply.word().map_err(malformed)?;
                }
            }
            txn.add_row(at);
        }
        Ok(Some(Taken { last, rows: txn.scanned().len() - rows_before, ended }))
    }

    /// Whether the leaves that scans have looked at are as they were, and stay so up to the rule's time.
    pub(super) async fn check_leaves(&self, txn: &mut Txn, rule: CheckRule) -> Result<(), Stop> {
        let until = until(rule, Timestamp(0));
        let (mut leaves, cost) = txn.leaves();
        while let Some(first) = leaves.first().copied() {
            let here = |l: &&LeafSeen| (l.node, l.table, l.shard) == (first.node, first.table, first.shard);
            let count = leaves.iter().take(LEAVES_PER_CALL).take_while(here).count();
            let (asked, rest) = leaves.split_at(count);
            leaves = rest;
            let pairs = asked.iter().map(|l| (l.leaf, l.version));
            let stand = if first.node == self.context.me {
                self.context.charge(CpuWork::Probe);
                self.local.leaves_stand(first.table, first.shard, until, pairs)
            } else {
                let write =
                    |w: &mut Writer<'_>| wire::write_leaves(w, first.table, first.shard, count, until, pairs);
                let rpc = self.context.rpc();
                let replies =
                    rpc.call(first.node, wire::LEAVES, write).await.map_err(fault(Phase::Validate))?;
                *cost += replies.cost();
                let outcome = replies.read(0, |mut reply| Outcome::read(&mut reply));
                matches!(outcome.map_err(|e| fault(Phase::Validate)(RpcError::from(e)))?, Outcome::Done(_))
            };
            if !stand {
                return Err(Abort::ReadChanged.into());
            }
        }
        Ok(())
    }

    /// Whether the records that were not there still are not, and were not meanwhile; where versions are times, whether that is so
    /// up to the transaction's, which only the owner can promise.
    pub(super) async fn check_absence(&self, txn: &mut Txn, rule: CheckRule) -> Result<(), Stop> {
        let step = self.context.plan.step_of_owner(Phase::Validate);
        let (set, cost) = txn.serve(Phase::Validate);
        let mut remote = false;
        for access in set.iter_mut() {
            access.pending = access.absent() && access.intent == Intent::Read && !access.confirmed;
            if !access.pending {
                continue;
            }
            if access.primary != self.context.me {
                remote = true;
                continue;
            }
            access.pending = false;
            self.context.charge(CpuWork::Probe);
            let until = until(rule, access.time);
            if let Err(refused) = self.local.confirm_absence(access.table, access.key, access.version, until)
            {
                return Err(self.refused(refused).unwrap_or(Abort::ReadChanged).into());
            }
            access.confirmed = rule == CheckRule::ReadAt;
        }
        match step.via {
            _ if !remote => Ok(()),
            Via::OneSided if rule == CheckRule::SameVersion => self.one.check_absence(set, step, cost).await,
            _ => self.two.check_absence(set, rule, cost).await,
        }
    }

    /// Has the owners set slots aside for the records to be created.
    pub(super) async fn reserve(&self, txn: &mut Txn, rule: LockRule) -> Result<(), Stop> {
        for tries in 0.. {
            let (remote, waiting) = self.reserve_here(txn, rule)?;
            let reserved = if remote { self.two.reserve(txn, rule).await } else { Ok(()) };
            txn.settle_growth();
            reserved?;
            if !waiting {
                break;
            }
            // Somebody is about to create it, whom the transaction may wait for.
            if tries >= rule.retries() {
                return Err(Abort::LockConflict.into());
            }
            yield_now(self.context.port().sched()).await;
            self.context.pause(rule, tries + 1, 0).await;
        }
        Ok(())
    }

    /// Sets aside this node's slots, and marks the records of others as pending: whether there are any, and whether some of its own have
    /// to be waited for.
    fn reserve_here(&self, txn: &mut Txn, rule: LockRule) -> Result<(bool, bool), Abort> {
        let (set, mut growths, _) = txn.reserving();
        let (mut remote, mut waiting) = (false, false);
        for access in set.iter_mut() {
            access.pending = access.wants_slot();
            if access.pending && access.primary == self.context.me {
                access.walk = self.local.ahead_of_bucket(access.table, access.key);
            }
        }
        for access in set.iter_mut().filter(|access| access.pending) {
            if access.primary != self.context.me {
                remote = true;
                continue;
            }
            access.pending = false;
            self.context.charge(CpuWork::Probe);
            self.context.charge(CpuWork::Probe);
            match self.local.reserve_in(access.walk, access.table, access.key, access.absence(), rule) {
                Ok(slot) => {
                    access.take_slot(slot.offset, slot.header, slot.version);
                    if let (Some(growths), Some(grown)) = (&mut growths, slot.grown) {
                        growths.push(Growth::of(access, &self.context.layout, grown));
                    }
                }
                Err(refused) => match self.refused(refused) {
                    Some(abort) => return Err(abort),
                    None => waiting = true,
                },
            }
        }
        Ok((remote, waiting))
    }

    /// What this node's store has refused ends in this abort, or can be waited for; the clock follows what was seen.
    fn refused(&self, refused: Refused) -> Option<Abort> {
        if self.context.layout.config().packing == Packing::Versions {
            self.context.clock.learn(Timestamp(refused.seen));
        }
        match refused.verdict {
            Verdict::Deny(abort) => Some(abort),
            Verdict::Wait | Verdict::Grant(_) => None,
        }
    }

    /// A record that may not be there and has no location: finds that it is not, or where it is.
    pub(super) fn locate_optional(&self, access: &mut Access) {
        match self.local.missing(access.table, access.key) {
            Ok(floor) => access.take_absence(floor),
            Err(offset) => (access.location, access.fresh) = (offset, true),
        }
    }
}

/// The time up to which a rule wants to be told that nothing comes, of a transaction whose place in the order is `time`.
pub(super) fn until(rule: CheckRule, time: Timestamp) -> u64 {
    match rule {
        CheckRule::SameVersion => 0,
        CheckRule::LeaseCovers(until) => until,
        CheckRule::ReadAt => time.0,
    }
}
