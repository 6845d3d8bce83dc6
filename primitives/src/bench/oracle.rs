//! How many transactions can a timestamp oracle serve whose clock is a vector, of a word for each client (NAM-DB §4, §7.2)?
//!
//! An operation is what the paper calls a timestamp transaction. It reads the snapshot, which is the vector; takes the next number of its
//! own slot as commit timestamp, which asks nobody; and makes it visible by a WRITE of that slot, which it awaits. A coroutine is a client,
//! and the vector lies on the one node that is asked. The paper's two optimizations are two bits ([`Oracle`]):
//!
//! - *Fetched*: the first thread of each machine READs the vector without a pause and runs no transactions; the others take their
//!   snapshots from what it fetched last, which is as stale as a READ takes.
//! - *Compressed*: the clients of a machine share a slot, so that the vector is a word for each machine. They draw commit timestamps from a
//!   counter in the machine's memory by compare-and-swap, the second of the paper's two ways (§4.2). The WRITEs of two clients may overtake
//!   each other, and the slot then goes back until the next one; the paper does not say what keeps them in order, and nothing here does.
//!
//! With neither, each client reads what it wrote last; what is fetched, or shared, is never ahead of who wrote it. Both are checked in every
//! transaction. On the simulator a snapshot that was fetched costs a look at memory (`cpu.probe`), and so does each attempt at the
//! counter; whoever fetches copies the vector (`cpu.copy_byte`) to where the others find it.

use super::client::{Client, Failure};
use super::load::{Common, TARGET_BYTES};
use super::{Point, Scope};
use crate::fabric::{CpuWork, Nic, SetupError};
use crate::mem::{Buf, Region};
use crate::mesh::Site;
use crate::verbs::port::{Read, Write};
use crate::verbs::{NodeId, Remote};

/// Who keeps the vector.
const SERVER: NodeId = NodeId(0);
const WORD: u64 = 8;

/// Which optimizations a timestamp vector has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Oracle {
    /// One thread of a machine READs the vector for all others of it.
    pub fetched: bool,
    /// A slot for each machine instead of each client.
    pub compressed: bool,
}

impl Oracle {
    /// Threads of a machine that run transactions, of so many.
    fn asking(self, threads: u16) -> u16 {
        threads - u16::from(self.fetched && threads > 0)
    }

    /// Clients of a machine.
    pub(super) fn clients(self, threads: u16, coroutines: u32) -> u64 {
        u64::from(self.asking(threads)) * u64::from(coroutines)
    }

    /// Bytes of the vector where so many machines ask.
    pub fn vector_bytes(self, machines: u32, threads: u16, coroutines: u32) -> u64 {
        let slots = if self.compressed { 1 } else { self.clients(threads, coroutines) };
        u64::from(machines).saturating_mul(slots).saturating_mul(WORD)
    }

    /// Bytes of a client's buffers, as large as a pool makes them: of the word that it WRITEs, and of the vector where it READs that.
    pub(super) fn client_bytes(self, point: &Point) -> u64 {
        LEAST + if self.fetched { LEAST } else { vector_buffer(point) }
    }

    /// Coroutines of a worker: whoever fetches does it alone.
    pub(super) fn coroutines(self, worker: u16, coroutines: u32) -> u32 {
        if self.fetches(worker) { 1 } else { coroutines }
    }

    fn fetches(self, worker: u16) -> bool {
        self.fetched && worker == 0
    }

    fn slot(self, site: &Site, point: &Point, coroutine: u32) -> u64 {
        let machine = u64::from(site.node.0 - point.servers);
        if self.compressed {
            return machine;
        }
        let worker = u64::from(site.worker.saturating_sub(u16::from(self.fetched)));
        machine * self.clients(point.threads, point.coroutines)
            + worker * u64::from(point.coroutines)
            + u64::from(coroutine)
    }
}

/// What a pool's smallest buffer has.
const LEAST: u64 = 64;

fn vector_buffer(point: &Point) -> u64 {
    u64::from(point.payload).next_power_of_two().max(LEAST)
}

/// Bytes of the buffer that one worker of a machine needs beside its clients', where it fetches for all.
pub(super) fn fetched_bytes(point: &Point) -> u64 {
    if point.verb.oracle().is_some_and(|oracle| oracle.fetched) { vector_buffer(point) } else { 0 }
}

/// Bytes of memory that a machine of clients has for all of them: what was fetched last, and the counter.
pub(super) fn machine_bytes(point: &Point) -> u64 {
    u64::from(point.payload) + WORD
}

/// What a client, or who fetches, keeps.
#[derive(Clone)]
pub(super) struct Timestamps {
    oracle: Oracle,
    fetches: bool,
    /// Where its slot is in the vector.
    slot: u64,
    /// Its last commit timestamp.
    last: u64,
    /// What its slot said last.
    seen: u64,
    /// The memory of its machine.
    here: Region,
    /// Where the counter is in it.
    counter: u64,
    /// What its READs fill and its WRITEs send.
    vector: Buf,
    word: Buf,
}

impl Timestamps {
    pub(super) fn new(
        oracle: Oracle,
        point: &Point,
        common: &Common,
        site: &Site,
        coroutine: u32,
    ) -> Result<Timestamps, SetupError> {
        let buf = |bytes: u32| {
            let failed = |e| SetupError::Invalid(format!("a client of {bytes} B of timestamps: {e}"));
            site.net.port.buf(bytes).map_err(failed)
        };
        let fetches = oracle.fetches(site.worker);
        let here = common.targets.iter().find(|(node, _)| *node == site.node).map(|(_, here)| here.clone());
        Ok(Timestamps {
            oracle,
            fetches,
            slot: WORD * oracle.slot(site, point, coroutine),
            last: 0,
            seen: 0,
            here: here.ok_or_else(|| SetupError::Invalid(format!("{:?} has no memory", site.node)))?,
            counter: u64::from(point.payload),
            vector: buf(if oracle.fetched && !fetches { WORD as u32 } else { point.payload })?,
            word: buf(WORD as u32)?,
        })
    }

    pub(super) fn fetches(&self) -> bool {
        self.fetches
    }

    /// The next commit timestamp, newer than all that anybody has written to the slot.
    fn next(&mut self, nic: &impl Nic) -> u64 {
        if !self.oracle.compressed {
            return self.last + 1;
        }
        let mut expect = self.here.load(self.counter);
        loop {
            nic.charge(CpuWork::Probe);
            match self.here.compare_swap(self.counter, expect, expect + 1) {
                old if old == expect => return expect + 1,
                old => expect = old,
            }
        }
    }

    /// Whether what a snapshot says of the own slot can be, where the next commit timestamp is `next`.
    fn check(&mut self, seen: u64, next: u64) -> Result<(), Failure> {
        let possible = match (self.oracle.fetched, self.oracle.compressed) {
            (false, false) => seen == self.last,
            (true, false) => seen >= self.seen && seen <= self.last,
            (_, true) => seen < next,
        };
        self.seen = seen;
        match possible {
            true => Ok(()),
            false => Err(Failure::Timestamp { seen, slot: self.slot / WORD, next }),
        }
    }
}

impl Client<'_> {
    fn vector(&self, offset: u64) -> Remote {
        Remote { node: SERVER, rkey: self.common.rkeys[SERVER.index()], offset }
    }

    /// One timestamp transaction.
    pub(super) async fn transact(&mut self) -> Result<(), Failure> {
        let port = self.net.port.clone();
        let (whole, payload) = (self.vector(0), self.load.point.payload);
        let Some(own) = &mut self.timestamps else { return Ok(()) };
        let seen = if own.oracle.fetched {
            port.nic().charge(CpuWork::Probe);
            own.here.load(own.slot)
        } else {
            port.ask_in(whole, Read(payload), &own.vector).await?;
            own.vector.word((own.slot / WORD) as usize)
        };
        let next = own.next(port.nic());
        own.check(seen, next)?;
        own.word.set_word(0, next);
        let (slot, word) = (own.slot, own.word.clone());
        own.last = next;
        port.ask_in(Remote { offset: slot, ..whole }, Write, &word).await?;
        Ok(())
    }

    /// READs the vector for the others of its machine until the run is over.
    pub(super) async fn fetch(&mut self) -> Result<(), Failure> {
        let port = self.net.port.clone();
        let (whole, payload) = (self.vector(0), self.load.point.payload);
        let Some(own) = self.timestamps.clone() else { return Ok(()) };
        while !(self.common.meter.over(port.now()) || self.cut_short() || self.stopped()) {
            port.ask_in(whole, Read(payload), &own.vector).await?;
            port.nic().charge(CpuWork::Copy(payload));
            for word in 0..u64::from(payload) / WORD {
                own.here.store(word * WORD, own.vector.word(word as usize));
            }
        }
        Ok(())
    }
}

/// What a point asks for that a timestamp vector does not have.
pub(super) fn beside(scope: &Scope, point: &Point, oracle: Oracle) -> Option<&'static str> {
    let machines = u32::from(scope.nodes.saturating_sub(point.servers));
    let due = oracle.vector_bytes(machines, point.threads, point.coroutines);
    let unfit = [
        (point.servers != 1, "second node that keeps it: one server does"),
        (oracle.fetched && point.threads < 2, "thread that fetches, of only one"),
        (point.outstanding > 1, "second transaction of a client at a time"),
        (point.rung.is_some(), "step of the optimization ladder"),
        (point.passive, "passive acknowledgement"),
        (point.atomics_percent > 0, "share of ATOMICs"),
        (point.on_card, "memory of the card's own"),
        (point.addresses > 1, "number of addresses: it is one"),
        (due != u64::from(point.payload), "other payload than a word for each slot"),
        (due > TARGET_BYTES, "room for so many clients"),
    ];
    unfit.into_iter().find(|(asked, _)| *asked).map(|(_, what)| what)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::{BenchVerb, LoadError, run_for as run};
    use crate::fabric::loopback;
    use crate::mesh::FabricSpec;
    use crate::units::Nanos;

    const VERBS: [BenchVerb; 4] = [
        BenchVerb::TimestampVector,
        BenchVerb::TimestampFetched,
        BenchVerb::TimestampCompressed,
        BenchVerb::TimestampBoth,
    ];

    fn point(verb: BenchVerb, nodes: u16, threads: u16, coroutines: u32) -> Point {
        let oracle = verb.oracle().unwrap();
        let payload = oracle.vector_bytes(u32::from(nodes) - 1, threads, coroutines) as u32;
        Point { servers: 1, threads, coroutines, payload, ..Point::new("test", verb) }
    }

    fn sim() -> FabricSpec {
        let profile = Box::new(crate::profile::Profile::shipped("connectib-fdr").unwrap());
        FabricSpec::Sim { profile, seed: 5, faults: Box::default() }
    }

    /// A client's transaction is a READ and a WRITE; where one thread fetches, of all others a WRITE alone.
    #[test]
    fn a_transaction_is_a_read_of_the_vector_and_a_write_of_its_slot() {
        for verb in VERBS {
            let point = point(verb, 3, 2, 4);
            let fetched = verb.oracle().unwrap().fetched;
            let sample = run(&sim(), 3, Nanos::from_micros(100), &point).unwrap();
            let t = &sample.traffic;
            assert!(sample.ops > 100, "{verb:?}: {}", sample.ops);
            assert_eq!(t.writes, sample.ops_total, "{verb:?}: {t:?}");
            assert_eq!(t.reads == t.writes, !fetched, "{verb:?}: {t:?}");
            assert_eq!(t.bytes, t.reads * u64::from(point.payload) + 8 * t.writes, "{verb:?}: {t:?}");
            assert!(t.reads > 10, "{verb:?}: who fetches goes on: {t:?}");
            assert_eq!(t.sends + t.atomics, 0, "{verb:?}: {t:?}");
        }
    }

    /// Each transaction compares its snapshot with what it wrote before.
    #[test]
    fn threads_read_what_they_wrote() {
        for verb in VERBS {
            let point = point(verb, 3, 2, 4);
            let longer = (0..8).map(|n| Nanos::from_millis(5 << n));
            let loopback = FabricSpec::Loopback(loopback::Options::default());
            let ops = longer.map(|window| run(&loopback, 3, window, &point).unwrap().ops);
            assert!(ops.into_iter().any(|ops| ops > 100), "{verb:?}");
        }
    }

    #[test]
    fn slots_are_one_for_each_client_or_machine_and_no_two_share_one() {
        let bytes = |verb: BenchVerb| verb.oracle().unwrap().vector_bytes(7, 20, 3);
        assert_eq!(VERBS.map(bytes), [8 * 7 * 20 * 3, 8 * 7 * 19 * 3, 8 * 7, 8 * 7]);
    }

    #[test]
    fn a_snapshot_that_cannot_be_is_noticed() {
        let buf = |words: usize| {
            let region = Region::new(64 * words);
            let pool = crate::mem::BufPool::new(region, crate::verbs::Lkey(0));
            pool.take(8).unwrap()
        };
        let of = |fetched, compressed| Timestamps {
            oracle: Oracle { fetched, compressed },
            fetches: false,
            slot: 0,
            last: 5,
            seen: 3,
            here: Region::new(16),
            counter: 8,
            vector: buf(2),
            word: buf(2),
        };
        let possible =
            |fetched, compressed| [2, 3, 4, 5, 6].map(|seen| of(fetched, compressed).check(seen, 6).is_ok());
        assert_eq!(possible(false, false), [false, false, false, true, false], "what it wrote itself");
        assert_eq!(possible(true, false), [false, true, true, true, false], "stale, but never going back");
        assert_eq!(possible(true, true), [true, true, true, true, false]);
        assert_eq!(possible(false, true), [true, true, true, true, false]);
    }

    #[test]
    fn what_a_vector_does_not_have_is_refused() {
        let usual = point(BenchVerb::TimestampVector, 3, 2, 4);
        let told = |point: Point| match run(&sim(), 3, Nanos::from_micros(20), &point) {
            Err(LoadError::Oracle(what)) => what,
            other => panic!("{point:?}: {other:?}"),
        };
        for (point, part) in [
            (Point { servers: 2, ..usual.clone() }, "one server"),
            (Point { payload: 64 + 8, ..usual.clone() }, "payload"),
            (Point { outstanding: 2, ..usual.clone() }, "second transaction"),
            (Point { passive: true, ..usual.clone() }, "passive"),
            (Point { addresses: 2, ..usual.clone() }, "it is one"),
            (Point { on_card: true, ..usual.clone() }, "card"),
            (Point { atomics_percent: 3, ..usual.clone() }, "ATOMICs"),
            (point(BenchVerb::TimestampFetched, 3, 1, 4), "of only one"),
        ] {
            assert!(told(point).contains(part), "{part}");
        }
    }
}
