//! The scheduler of a worker: from the epoch's inputs to what each of its coroutines is to run, and when.
//!
//! The coroutines of a worker share one. Whichever of them finds that the last input has come draws the tickets for all, in the
//! order that all nodes agree on without a word: by worker, coroutine, node of the sequencer, place in its batch. Of
//! a transaction that this node has no part in, only the place is kept.

use super::batch::Arrived;
use super::buffers::Buffers;
use super::locks::{Ask, LockTable, Ticket};
use super::{Calvin, participants};
use crate::workload::Workload;
use crate::workload::ahead::ReadWriteSet;
use phases::letter;
use phases::ops::{Fault, Stop};
use phases::plan::Phase;
use phases::store::Layout;
use primitives::fabric::{CpuWork, Nic};
use primitives::mem::Region;
use primitives::rpc::{Malformed, RpcError};
use primitives::verbs::NodeId;
use primitives::verbs::port::EnginePort;
use std::ops::Range;

/// A transaction that this node takes part in.
#[derive(Clone, Debug)]
pub(super) struct Planned<I> {
    /// The node whose sequencer took its input.
    pub(super) source: NodeId,
    /// Its place in that node's batch.
    pub(super) index: u16,
    /// Its input.
    pub(super) input: I,
    /// Its place in the order of all transactions, from 1.
    pub(super) place: u64,
    /// This node has to run it: it changes something of which this node has a copy, finds here what it touches, or was asked for here.
    pub(super) active: bool,
    /// Its tickets at this node's locks.
    pub(super) tickets: Range<usize>,
}

/// What a schedule is made from, the same for all workers of a node.
#[derive(Clone, Copy)]
pub(super) struct Site<'a, W> {
    pub(super) calvin: Calvin,
    pub(super) workload: &'a W,
    pub(super) layout: &'a Layout,
    pub(super) buffers: &'a Buffers,
    pub(super) locks: &'a LockTable,
    pub(super) node: NodeId,
    pub(super) worker: u16,
}

/// The scheduler of a worker.
pub(crate) struct Schedule<I> {
    nodes: u16,
    coroutines: u32,
    /// Letters of the epoch that is being collected, seen to have come.
    arrived: u32,
    /// The last epochs whose tickets are drawn, and whose tickets are in their places.
    drawn: u64,
    placed: u64,
    /// By coroutine.
    planned: Vec<Vec<Planned<I>>>,
    tickets: Vec<Ticket>,
    ended: bool,
    /// Coroutines that have left.
    left: u32,
    batch: Arrived,
    set: ReadWriteSet,
    asked: Vec<(u32, Ask)>,
}

impl<I: Copy> Schedule<I> {
    pub(crate) fn new(nodes: u16, coroutines: u32) -> Schedule<I> {
        Schedule {
            nodes,
            coroutines,
            arrived: 0,
            drawn: 0,
            placed: 0,
            planned: (0..coroutines).map(|_| Vec::new()).collect(),
            tickets: Vec::new(),
            ended: false,
            left: 0,
            batch: Arrived::default(),
            set: ReadWriteSet::new(),
            asked: Vec::new(),
        }
    }

    /// Goes on with an epoch's schedule as far as what has come allows; true when it is ready.
    pub(super) fn advance<W: Workload<Input = I>>(
        &mut self,
        epoch: u64,
        site: Site<'_, W>,
        region: &Region,
        port: &EnginePort,
    ) -> Result<bool, Stop> {
        if self.placed >= epoch {
            return Ok(true);
        }
        let (worker, locks) = (usize::from(site.worker), site.locks);
        if self.drawn < epoch {
            let all = self.coroutines * u32::from(self.nodes);
            while self.arrived < all {
                let (coroutine, source) = self.sender(self.arrived);
                let at = site.buffers.requests(site.worker, coroutine, source, epoch);
                let Some(words) = letter::arrived(region, at, epoch, site.buffers.batch_words) else {
                    return Ok(false);
                };
                port.nic().charge(CpuWork::Copy(words as u32 * 8));
                self.arrived += 1;
            }
            self.draw(epoch, site, region, port)?;
            locks.tell(worker, epoch);
            (self.drawn, self.arrived) = (epoch, 0);
        }
        if !locks.all_told(epoch) {
            return Ok(false);
        }
        for ticket in &mut self.tickets {
            locks.place(worker, epoch, ticket);
        }
        self.placed = epoch;
        Ok(true)
    }

    /// Whose `n`th letter it is, in the order of transactions.
    fn sender(&self, n: u32) -> (u32, NodeId) {
        let nodes = u32::from(self.nodes);
        (n / nodes, NodeId((n % nodes) as u16))
    }

    /// The node that the schedule waits for, or this one where it waits for another of its workers.
    pub(super) fn waits_for(&self, epoch: u64, me: NodeId) -> NodeId {
        if self.drawn < epoch { self.sender(self.arrived).1 } else { me }
    }

    /// Draws tickets for all transactions of this worker's coroutines and their counterparts.
    fn draw<W: Workload<Input = I>>(
        &mut self,
        epoch: u64,
        site: Site<'_, W>,
        region: &Region,
        port: &EnginePort,
    ) -> Result<(), Stop> {
        self.planned.iter_mut().for_each(Vec::clear);
        self.tickets.clear();
        self.ended = true;
        for n in 0..self.coroutines * u32::from(self.nodes) {
            let (coroutine, source) = self.sender(n);
            let at = site.buffers.requests(site.worker, coroutine, source, epoch);
            let words = letter::arrived(region, at, epoch, site.buffers.batch_words);
            self.batch.take(region, at, words.unwrap_or(0));
            self.ended &= self.batch.is_last();
            for (index, input) in self.batch.inputs(site.workload).enumerate() {
                let Some(input) = input.filter(|_| (index as u64) < site.buffers.batch) else {
                    let source = Malformed::Field { field: "input of node", value: u64::from(source.0) };
                    return Err(Fault::Rpc { phase: Phase::Lock, source: RpcError::Malformed(source) }.into());
                };
                self.set.clear();
                site.workload.declare(&input, &mut self.set);
                let active = participants::runs(&self.set, site.layout, source, site.node);
                let here = (site.node, site.locks);
                participants::locks(
                    site.calvin,
                    site.workload,
                    &self.set,
                    site.layout,
                    here,
                    &mut self.asked,
                );
                if !active && self.asked.is_empty() {
                    continue;
                }
                let first = self.tickets.len();
                for &(lock, ask) in &self.asked {
                    port.nic().charge(CpuWork::Probe);
                    self.tickets.push(site.locks.draw(usize::from(site.worker), epoch, lock, ask));
                }
                let tickets = first..self.tickets.len();
                let index = index as u16;
                let place = site.buffers.place_in_order(site.worker, coroutine, source, index, epoch);
                let planned = Planned { source, index, input, place, active, tickets };
                self.planned[coroutine as usize].push(planned);
            }
        }
        Ok(())
    }

    /// The `n`th transaction for a coroutine, in the order in which they are to run; its tickets are put into `tickets`.
    pub(super) fn nth(&self, coroutine: u32, n: usize, tickets: &mut Vec<Ticket>) -> Option<Planned<I>> {
        let planned = self.planned[coroutine as usize].get(n)?.clone();
        tickets.clear();
        tickets.extend_from_slice(&self.tickets[planned.tickets.clone()]);
        Some(planned)
    }

    /// Whether no sequencer of this worker and its counterparts has more transactions than those of the epoch scheduled.
    pub(super) fn ended(&self) -> bool {
        self.ended
    }

    /// A coroutine leaves, its last transaction done; true if it was the worker's last.
    pub(super) fn leave(&mut self) -> bool {
        self.left += 1;
        self.left == self.coroutines
    }
}
