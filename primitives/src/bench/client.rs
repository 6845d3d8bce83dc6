//! The coroutines of the closed load: each asks for a group of requests, waits for all of it, and asks again.

use super::calls::{CallError, Calls};
use super::load::{ClosedLoad, Common, READ, SAMPLE_EVERY, Tally, WRITE, is_rpc};
use super::messages::{MessageError, Messages};
use super::oracle::Timestamps;
use super::{BenchVerb, OBJECTS, Point, Rung};
use crate::exec::yield_now;
use crate::fabric::{CpuWork, Nic, Span};
use crate::mem::Buf;
use crate::mesh::Worker;
use crate::rpc::RpcError;
use crate::units::Nanos;
use crate::verbs::port::{Ask, Cas, FetchAdd, Read, VerbError, Write};
use crate::verbs::{NodeId, Remote};
use rand::RngExt;
use rand_xoshiro::Xoshiro256PlusPlus;
use std::rc::Rc;
use std::sync::atomic::Ordering;

/// Which group of a coroutine is the first that is timed, counted from one; every `every`th follows. Coroutines take turns: those that
/// started together and stay in step, as they do where a device works inside of the post, would else count all in the same moment,
/// and a window hold so much more or less.
fn first_timed(coroutine: u32, every: u32) -> u32 {
    every - coroutine % every
}

pub(super) struct Client<'a> {
    pub(super) load: &'a ClosedLoad<'a>,
    pub(super) common: &'a Common,
    pub(super) worker: usize,
    pub(super) net: Worker,
    pub(super) node: NodeId,
    pub(super) nodes: u16,
    pub(super) rng: Xoshiro256PlusPlus,
    pub(super) tally: Rc<Tally>,
    /// Different addresses on a node that is asked, and bytes from one to the next.
    pub(super) slots: u64,
    pub(super) slot_bytes: u64,
    /// What unawaited WRITEs carry: one buffer for all, since nobody says when one of them has let go of it.
    pub(super) passive: Option<Buf>,
    /// What calls through rings go through, or messages, and which of its groups is this coroutine's.
    pub(super) calls: Option<Rc<Calls>>,
    pub(super) messages: Option<Rc<Messages>>,
    /// What a client of a timestamp oracle keeps.
    pub(super) timestamps: Option<Timestamps>,
    pub(super) coroutine: u32,
}

#[derive(Debug, thiserror::Error)]
pub(super) enum Failure {
    #[error(transparent)]
    Verb(#[from] VerbError),
    #[error(transparent)]
    Rpc(#[from] RpcError),
    #[error(transparent)]
    Rings(#[from] CallError),
    #[error(transparent)]
    Message(#[from] MessageError),
    #[error("a reply of {got} B to a call for {asked}")]
    Reply { got: u32, asked: u32 },
    #[error("the timestamp vector says {seen} of slot {slot}, whose next commit timestamp is {next}")]
    Timestamp { seen: u64, slot: u64, next: u64 },
}

impl Client<'_> {
    pub(super) async fn run(mut self) {
        let point = self.load.point;
        // Each its own part of the coroutine, none within another: resuming goes through all that are around the one that waits.
        let ended = match is_alone(point).then_some(point.verb) {
            None if self.timestamps.as_ref().is_some_and(Timestamps::fetches) => self.fetch().await,
            None => self.ask_groups().await,
            Some(BenchVerb::Read) => self.ask_alone(Read(point.payload)).await,
            Some(BenchVerb::Write) => self.ask_alone(Write).await,
            Some(BenchVerb::Cas) => self.ask_alone(Cas { expect: 0, swap: 0 }).await,
            Some(_) => self.ask_alone(FetchAdd(1)).await,
        };
        if let Err(failure) = ended {
            self.fail(failure);
        }
    }

    /// Notes why the load ended, unless something failed before.
    pub(super) fn fail(&self, failure: impl Into<Failure>) {
        self.tally.failure.borrow_mut().get_or_insert(failure.into().to_string());
    }

    /// Whether the run was told to end.
    pub(super) fn stopped(&self) -> bool {
        self.load.stop.load(Ordering::Relaxed)
    }

    /// Whether a node was lost.
    pub(super) fn cut_short(&self) -> bool {
        self.common.cut_short.load(Ordering::Relaxed)
    }

    async fn ask_groups(&mut self) -> Result<(), Failure> {
        let every = self.every();
        let (mut groups, mut began) = (first_timed(self.coroutine, every), self.net.port.now());
        loop {
            let mut start = began;
            // One place that waits for a group, since each has its own part of the coroutine.
            for left in (0..groups).rev() {
                if left == 0 && every > 1 {
                    start = self.net.port.now();
                }
                self.group().await?;
            }
            match self.goes_on(groups, start) {
                Some(end) => (groups, began) = (every, end),
                None => return Ok(()),
            }
        }
    }

    /// The same where a group is one request, always of the same verb: it is a verb by itself, in the same buffer each time.
    async fn ask_alone<A: Ask>(&mut self, ask: A) -> Result<(), Failure> {
        let port = self.net.port.clone();
        let point = self.load.point;
        let bytes = if point.verb.fixed_size() { 8 } else { point.payload };
        let buf = port.buf(bytes).map_err(VerbError::from)?;
        let every = self.every();
        let (mut groups, mut start) = (first_timed(self.coroutine, every), port.now());
        loop {
            for left in (0..groups).rev() {
                // Before the look at the clock: the draw is no part of the request.
                let at = self.target();
                if let Some(lane) = self.lane() {
                    port.on_lane(lane);
                }
                if left == 0 && every > 1 {
                    start = port.now();
                }
                port.ask_in(at, ask, &buf).await?;
            }
            match self.goes_on(groups, start) {
                Some(end) => (groups, start) = (every, end),
                None => return Ok(()),
            }
        }
    }

    /// One group in so many is timed.
    fn every(&self) -> u32 {
        if self.net.port.nic().caps().virtual_time { 1 } else { SAMPLE_EVERY }
    }

    /// Counts groups that have ended, the last of which began at `start`. Says when they have, if there are to be more.
    #[inline(never)]
    fn goes_on(&self, groups: u32, start: Nanos) -> Option<Nanos> {
        let point = self.load.point;
        let per_group = if point.rung.is_some() { 1 } else { point.outstanding };
        self.ended(u64::from(groups) * u64::from(per_group), start)
    }

    /// Counts requests that have ended, the last of which began at `start`. Says when they have, if there are to be more.
    #[inline]
    pub(super) fn ended(&self, requests: u64, start: Nanos) -> Option<Nanos> {
        let end = self.net.port.now();
        let meter = &*self.common.meter;
        // Of a round of messages each way is an operation.
        let ways = if self.load.point.echo { 2 } else { 1 };
        let ops = ways * requests;
        self.tally.ops_total.set(self.tally.ops_total.get() + ops);
        // What ends in the window counts, wherever it began: else long operations would be undercounted.
        meter.count(self.worker, ops as u32, end);
        if meter.holds(end) {
            self.tally.ops.set(self.tally.ops.get() + ops);
            self.tally.latency.borrow_mut().record(Nanos(end.since(start).0 / ways));
            if let Some(stamped) = self.net.port.nic().stamped() {
                let span = self.tally.stamped.get().unwrap_or(Span::from(stamped, end));
                self.tally.stamped.set(Some(span.to(stamped, end)));
            }
        }
        let over = meter.over(end) || self.cut_short() || self.stopped();
        (!over).then_some(end)
    }

    /// One group of requests, or one multi-object operation.
    async fn group(&mut self) -> Result<(), Failure> {
        let point = self.load.point;
        let rpc = is_rpc(point.verb);
        match point.rung {
            _ if self.calls.is_some() => self.call_through_rings().await,
            _ if self.messages.is_some() => self.send().await,
            _ if self.timestamps.is_some() => self.transact().await,
            // READs and calls for data must be awaited: this rung adds nothing to them.
            Some(Rung::PassiveAck) if point.verb == BenchVerb::RpcWrite => self.call(OBJECTS, true).await,
            Some(Rung::PassiveAck) if point.verb == BenchVerb::Write => self.post_passively(OBJECTS).await,
            Some(rung) if rung < Rung::Outstanding => {
                for _ in 0..OBJECTS {
                    if rpc { self.call(1, false).await? } else { self.post(1).await? }
                }
                Ok(())
            }
            _ if rpc => self.call(point.outstanding, false).await,
            _ if point.verb == BenchVerb::CpuCas => {
                self.swap_here(point.outstanding).await;
                Ok(())
            }
            None if point.passive && point.verb == BenchVerb::Write => {
                self.post_passively(point.outstanding).await
            }
            _ => self.post(point.outstanding).await,
        }
    }

    /// Some node but this one; one of the servers, where there are; this one, where all ask their own.
    #[inline]
    fn peer(&mut self) -> NodeId {
        if self.load.point.own {
            return self.node;
        }
        let servers = self.load.point.servers;
        if servers > 0 {
            return NodeId(self.rng.random_range(0..servers));
        }
        let other = self.rng.random_range(0..self.nodes - 1);
        NodeId(if other >= self.node.0 { other + 1 } else { other })
    }

    /// Where the next request goes.
    #[inline]
    pub(super) fn target(&mut self) -> Remote {
        let node = self.peer();
        let offset = self.rng.random_range(0..self.slots) * self.slot_bytes;
        Remote { node, rkey: self.common.rkeys[node.index()], offset }
    }

    /// Which of several queue pairs to a peer the next request takes, if it is drawn for each (DrTM+H section 4.2, NAM-DB section 7.5).
    #[inline]
    fn lane(&mut self) -> Option<u32> {
        let Point { drawn, queue_pairs, .. } = *self.load.point;
        (drawn && queue_pairs > 1).then(|| self.rng.random())
    }

    async fn post(&mut self, requests: u32) -> Result<(), Failure> {
        let port = self.net.port.clone();
        let (verb, len) = (self.load.point.verb, self.load.point.payload);
        let atomics = self.load.point.atomics_percent;
        let slot = len.next_multiple_of(8);
        let buf = port.buf(slot * requests).map_err(VerbError::from)?;
        let mut batch = port.batch();
        for i in 0..requests {
            let at = self.target();
            if let Some(lane) = self.lane() {
                batch.on_lane(lane);
            }
            let verb =
                if atomics > 0 && self.rng.random_range(0..100) < atomics { BenchVerb::Cas } else { verb };
            match verb {
                BenchVerb::Read => batch.read(at, &buf, i * slot, len),
                BenchVerb::Write => batch.write(at, &buf, i * slot, len),
                BenchVerb::Cas => batch.cas(at, 0, 0, &buf, i),
                BenchVerb::FetchAdd => batch.fetch_add(at, 1, &buf, i),
                _ => unreachable!("neither calls nor what a CPU does are posted as verbs"),
            }
        }
        batch.post().await?;
        Ok(())
    }

    /// Words of this node, swapped by its CPU.
    async fn swap_here(&mut self, words: u32) {
        let own = self.common.targets.iter().find(|(node, _)| *node == self.node);
        for _ in 0..words {
            let offset = self.target().offset;
            self.net.port.nic().charge(CpuWork::Probe);
            if let Some((_, memory)) = own {
                memory.compare_swap(offset, 0, 0);
            }
        }
        yield_now(&self.net.sched).await;
    }

    async fn post_passively(&mut self, requests: u32) -> Result<(), Failure> {
        let port = self.net.port.clone();
        port.room().await;
        let len = self.load.point.payload;
        let slot = len.next_multiple_of(8);
        let buf = match &self.passive {
            Some(buf) => buf.clone(),
            None => self.passive.insert(port.buf(slot * requests).map_err(VerbError::from)?).clone(),
        };
        let mut batch = port.batch();
        for i in 0..requests {
            let at = self.target();
            if let Some(lane) = self.lane() {
                batch.on_lane(lane);
            }
            batch.write(at, &buf, i * slot, len);
        }
        batch.post_passive()?;
        // Nobody waits for the network here, so the core must be given up on purpose.
        yield_now(&self.net.sched).await;
        Ok(())
    }

    async fn call_through_rings(&mut self) -> Result<(), Failure> {
        let Some(calls) = self.calls.clone() else { return Ok(()) };
        let mut peers = [NodeId(0); 16];
        let peers = &mut peers[..self.load.point.outstanding as usize];
        peers.fill_with(|| self.peer());
        calls.call(self.coroutine, peers, || self.rng.random()).await?;
        Ok(())
    }

    async fn send(&mut self) -> Result<(), Failure> {
        let Some(messages) = self.messages.clone() else { return Ok(()) };
        let mut peers = [NodeId(0); 16];
        let peers = &mut peers[..self.load.point.outstanding as usize];
        peers.fill_with(|| self.peer());
        messages.send(self.coroutine, peers).await?;
        Ok(())
    }

    async fn call(&mut self, calls: u32, one_way: bool) -> Result<(), Failure> {
        let rpc = self.net.rpc.clone();
        let mut peers = [(NodeId(0), 1u32); 16];
        for slot in &mut peers[..calls as usize] {
            *slot = (self.peer(), 1);
        }
        let peers = &peers[..calls as usize];
        // The windows must have room for the calls to the same node together.
        let mut needs = [(NodeId(0), 0u32); 16];
        let mut distinct = 0;
        for &(peer, _) in peers {
            match needs[..distinct].iter_mut().find(|(node, _)| *node == peer) {
                Some((_, n)) => *n += 1,
                None => {
                    needs[distinct] = (peer, 1);
                    distinct += 1;
                }
            }
        }
        rpc.room(&needs[..distinct]).await?;
        let payload = self.load.point.payload;
        let writes = self.load.point.verb == BenchVerb::RpcWrite;
        let mut batch = rpc.batch();
        for &(peer, _) in peers {
            let handler = if writes { WRITE } else { READ };
            let fill = |w: &mut crate::rpc::Writer<'_>| {
                if writes {
                    (0..payload.div_ceil(8)).for_each(|_| w.word(0x5a5a));
                } else {
                    w.word(u64::from(payload));
                }
            };
            if one_way {
                batch.one_way(peer, handler, fill)?;
            } else {
                batch.call(peer, handler, fill)?;
            }
        }
        if one_way {
            batch.send_one_way();
            yield_now(&self.net.sched).await;
        } else {
            let replies = batch.send().await?;
            // One of them is enough: all were asked for the same.
            let (got, asked) = (replies.read(0, |reply| reply.remaining()), if writes { 0 } else { payload });
            // Messages are whole words.
            if got != asked.next_multiple_of(8) {
                return Err(Failure::Reply { got, asked });
            }
        }
        Ok(())
    }
}

/// Whether coroutines wait for one request at a time, always of the same verb. An ATOMIC among READs would take a buffer of another size.
fn is_alone(point: &Point) -> bool {
    let awaited = match point.verb {
        BenchVerb::Read | BenchVerb::Cas | BenchVerb::FetchAdd => true,
        BenchVerb::Write => !point.passive,
        _ => false,
    };
    awaited && point.outstanding == 1 && point.rung.is_none() && point.atomics_percent == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn coroutines_in_step_are_counted_one_in_each_round() {
        let counted_in = |round: u32| {
            (0..2 * SAMPLE_EVERY)
                .filter(|&c| (round - first_timed(c, SAMPLE_EVERY)).is_multiple_of(SAMPLE_EVERY))
                .count()
        };
        assert!((SAMPLE_EVERY..2 * SAMPLE_EVERY).all(|round| counted_in(round) == 2));
        assert_eq!(first_timed(5, 1), 1, "where all groups are timed, the first is");
    }
}
