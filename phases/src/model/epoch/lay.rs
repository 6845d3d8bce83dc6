//! One epoch after the other, transaction by transaction: what waits for what.
//!
//! A coroutine runs its part of its counterparts' transactions one by one, in the order that all nodes agree on; each waits for its
//! turn at its locks, and where it is run, for values that others have read. How long an epoch takes is the longest chain of
//! those waits. There is no formula for it: chains go over to other coroutines at locks and over to other nodes at letters. But to lay a
//! few thousand transactions, each as early as those before it let it, takes a millisecond (heaps of pieces, as the buckets
//! of ATOMICs are laid). Which records they touch is drawn once; what their pieces take is told each time.

use super::participants::{Places, places};
use crate::letter::{LOOKS_AT_ONCE, PAUSE_FIRST, PAUSE_MOST, locks_for};
use crate::model::input::{Band, Cluster, Spots, TxnClass, Workload};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

/// Transactions that are laid, at least and in whole epochs, and epochs at most.
const LAID: u64 = 5_000;
const MOST_EPOCHS: u64 = 100;

/// An access of a transaction: at which node, and which of that node's locks.
#[derive(Clone, Copy)]
struct Access {
    node: u16,
    writes: bool,
    lock: u32,
}

/// A transaction of an epoch.
struct Laid {
    /// Its counterparts.
    group: u32,
    source: u16,
    class: u16,
    /// Its accesses end here, and begin where those before it end.
    upto: usize,
}

/// Epochs' transactions in their order, drawn.
pub(in crate::model) struct Drawn {
    nodes: usize,
    backups: usize,
    groups: usize,
    coroutines: usize,
    locks: usize,
    /// By epoch.
    epochs: Vec<Vec<Laid>>,
    accesses: Vec<Vec<Access>>,
    /// Created records of each class, whose copies make nodes run it.
    creates: Vec<bool>,
}

/// What pieces of a transaction take, in nanoseconds.
#[derive(Clone, Debug, Default)]
pub(super) struct Times {
    /// A turn of the core: what it waits for one, and what a resume takes.
    pub(super) turn: f64,
    /// Beginning a part, by class.
    pub(super) begin: Vec<f64>,
    pub(super) read: f64,
    pub(super) told: f64,
    pub(super) heard: f64,
    pub(super) written: f64,
    pub(super) copied: f64,
    /// Posting one letter.
    pub(super) post: f64,
    /// How long a sender stands still who sends a letter in pieces, or to one node after the other, for each piece or node but the last:
    /// until the one before it is answered.
    pub(super) answer: f64,
    pub(super) pieces: f64,
    pub(super) one_by_one: bool,
    /// From when a letter is posted until it is there.
    pub(super) letter: f64,
    /// Running a transaction, by class.
    pub(super) run: Vec<f64>,
}

/// What comes of laying.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Heap {
    /// How long an epoch's transactions take, from the first of any to the last of any.
    pub(super) span: f64,
    /// Of that, what a coroutine is at work on its parts, or waits for a turn to be.
    pub(super) busy: f64,
    /// Looks that a coroutine makes while it waits for others, the epoch's end included.
    pub(super) looks: f64,
    /// From the beginning until a transaction has ended where it was asked for.
    pub(super) ended: f64,
    /// From when a coroutine has ended its last part until all have.
    pub(super) idle: f64,
    /// The work of the core that has most to do, as a multiple of the mean.
    pub(super) uneven: f64,
}

/// Until somebody who waits `needs` has looked again, and how many looks that takes, if every look costs `turn`.
fn look(needs: f64, turn: f64) -> (f64, f64) {
    let (mut at, mut looks, mut pause) = (0.0, 0.0, PAUSE_FIRST.0 as f64);
    while at < needs {
        looks += 1.0;
        if looks <= f64::from(LOOKS_AT_ONCE) {
            at += turn;
            continue;
        }
        at += pause + turn;
        if pause >= PAUSE_MOST.0 as f64 && at < needs {
            let more = ((needs - at) / (pause + turn)).ceil();
            (at, looks) = (at + more * (pause + turn), looks + more);
        }
        pause = (pause * 2.0).min(PAUSE_MOST.0 as f64);
    }
    (at, looks)
}

struct Draw<'a> {
    workload: &'a Workload,
    reads: &'a [f64],
    nodes: u64,
    locks: u64,
    even: bool,
    rng: Xoshiro256PlusPlus,
}

impl Draw<'_> {
    /// So many, on average.
    fn count(&mut self, mean: f64) -> u32 {
        mean.floor() as u32 + u32::from(self.rng.random::<f64>() < mean.fract())
    }

    fn band(&mut self, writes: bool) -> usize {
        let bands = &self.workload.bands;
        let share =
            |n: usize, band: &Band| if writes { band.writes.unwrap_or(band.share) } else { self.reads[n] };
        let mut dice: f64 = self.rng.random();
        for (n, band) in bands.iter().enumerate() {
            dice -= share(n, band);
            if dice < 0.0 {
                return n;
            }
        }
        bands.len().saturating_sub(1)
    }

    /// Of accesses that write or do not, those to bands whose parts are kept to: they are at home.
    fn home(&self, writes: bool) -> f64 {
        let share = |(n, band): (usize, &Band)| match writes {
            _ if band.parts <= 1.0 => 0.0,
            true => band.writes.unwrap_or(band.share),
            false => self.reads[n],
        };
        self.workload.bands.iter().enumerate().map(share).sum()
    }

    fn access(&mut self, source: u64, client: u64, places: Places, writes: bool) -> Access {
        let (mut name, mut node) = (self.rng.random::<u64>(), None);
        let mut own = places.own;
        if !self.workload.bands.is_empty() {
            let n = self.band(writes);
            let Band { records, parts, .. } = self.workload.bands[n];
            let all = records.round().max(1.0) as u64;
            let mut record = self.rng.random_range(0..all);
            if parts > 1.0 {
                let (parts, each) = (parts as u64, (all / parts as u64).max(1));
                record = (client % parts) * each + record % each;
            }
            name = (record ^ (n as u64) << 48).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            if self.even {
                node = Some(name % self.nodes);
            } else {
                let home = self.home(writes);
                own = if parts > 1.0 { 1.0 } else { ((own - home) / (1.0 - home).max(1e-9)).clamp(0.0, 1.0) };
            }
        }
        let node = node.unwrap_or_else(|| {
            if self.nodes < 2 || self.rng.random::<f64>() < own {
                source
            } else {
                (source + self.rng.random_range(1..self.nodes)) % self.nodes
            }
        });
        Access { node: node as u16, writes, lock: ((name >> 32) % self.locks) as u32 }
    }
}

impl Drawn {
    pub(super) fn new(
        workload: &Workload,
        reads: &[f64],
        cluster: &Cluster,
        (batch, coroutines): (u64, u64),
    ) -> Drawn {
        let (nodes, threads) = (u64::from(cluster.nodes), u64::from(cluster.threads));
        let groups = threads * coroutines;
        let most = workload.classes.iter().map(|class| (class.reads + class.writes).ceil() as u64).max();
        let locks = locks_for(groups * batch * most.unwrap_or(1)).next_power_of_two();
        let even = workload.classes.iter().all(|class| class.elsewhere.is_none());
        let rng = Xoshiro256PlusPlus::seed_from_u64(1);
        let mut draw = Draw { workload, reads, nodes, locks: locks as u64, even, rng };
        let each = groups * nodes * batch;
        let epochs = LAID.div_ceil(each.max(1)).clamp(1, MOST_EPOCHS);
        let placed: Vec<[Places; 2]> =
            workload.classes.iter().map(|class| places(workload, cluster, class)).collect();
        let mut drawn = Drawn {
            nodes: nodes as usize,
            backups: cluster.backups as usize,
            groups: groups as usize,
            coroutines: coroutines as usize,
            locks,
            epochs: Vec::new(),
            accesses: Vec::new(),
            creates: workload.classes.iter().map(|class| class.inserts > 0.0).collect(),
        };
        for _ in 0..epochs {
            let (mut laid, mut accesses) = (Vec::new(), Vec::new());
            for (group, source) in (0..groups).flat_map(|g| (0..nodes).map(move |s| (g, s))) {
                for _ in 0..batch {
                    let mut dice: f64 = draw.rng.random();
                    let class = workload.classes.iter().position(|class| {
                        dice -= class.share;
                        dice < 0.0
                    });
                    let class = class.unwrap_or(workload.classes.len() - 1);
                    let TxnClass { reads, writes, .. } = workload.classes[class];
                    let Spots { reads: only_read, writes: where_written } = workload.classes[class].spots();
                    let first = accesses.len();
                    let [read, written] = placed[class];
                    let client = source * threads + group / coroutines.max(1);
                    for (mean, places, writes) in [(where_written, written, true), (only_read, read, false)] {
                        for _ in 0..draw.count(mean) {
                            accesses.push(draw.access(source, client, places, writes));
                        }
                    }
                    // The others lie where one of those does, which is as hot.
                    let spots = accesses.len() - first;
                    let all = draw.count(reads + writes);
                    let more_writes = draw.count((writes - where_written).max(0.0));
                    for n in 0..all.saturating_sub(spots as u32) {
                        let Access { node, lock, .. } = accesses[first + n as usize % spots.max(1)];
                        let lock = (lock ^ 1) % draw.locks as u32;
                        accesses.push(Access { node, lock, writes: n < more_writes });
                    }
                    let (group, source, class) = (group as u32, source as u16, class as u16);
                    laid.push(Laid { group, source, class, upto: accesses.len() });
                }
            }
            drawn.epochs.push(laid);
            drawn.accesses.push(accesses);
        }
        drawn
    }

    /// Lays all epochs with pieces that take so long.
    pub(super) fn lay(&self, times: &Times) -> Heap {
        let mut sum = Heap::default();
        let mut epoch = Epoch::new(self);
        for (laid, accesses) in self.epochs.iter().zip(&self.accesses) {
            epoch.lay(self, times, laid, accesses, &mut sum);
        }
        let n = self.epochs.len() as f64;
        Heap {
            span: sum.span / n,
            busy: sum.busy / n,
            looks: sum.looks / n,
            ended: sum.ended / n,
            idle: sum.idle / n,
            uneven: sum.uneven / n,
        }
    }
}

/// What a node has to do with a transaction.
#[derive(Clone, Copy, Default)]
struct Part {
    reads: f64,
    writes: f64,
    copies: f64,
    runs: bool,
    sent: f64,
    there: f64,
    busy: f64,
}

/// When things are free.
struct Epoch {
    ready: Vec<f64>,
    /// By lock: when those who write are done, and those who read.
    free: Vec<[f64; 2]>,
    work: Vec<f64>,
    parts: Vec<Part>,
}

impl Epoch {
    fn new(drawn: &Drawn) -> Epoch {
        Epoch {
            ready: vec![0.0; drawn.groups * drawn.nodes],
            free: vec![[0.0; 2]; drawn.nodes * drawn.locks],
            work: vec![0.0; drawn.groups / drawn.coroutines.max(1) * drawn.nodes],
            parts: vec![Part::default(); drawn.nodes],
        }
    }

    fn lay(&mut self, drawn: &Drawn, times: &Times, laid: &[Laid], accesses: &[Access], sum: &mut Heap) {
        self.ready.fill(0.0);
        self.work.fill(0.0);
        for access in accesses {
            self.free[usize::from(access.node) * drawn.locks + access.lock as usize] = [0.0; 2];
        }
        let (mut from, mut looks, mut busy, mut ended) = (0, 0.0, 0.0, 0.0);
        for txn in laid {
            let touched = &accesses[from..txn.upto];
            from = txn.upto;
            let (done, looked) = self.transaction(drawn, times, txn, touched);
            ended += done;
            looks += looked;
        }
        let coroutines = self.ready.len() as f64;
        let span = self.ready.iter().copied().fold(0.0, f64::max);
        let mut idle = 0.0;
        for ready in &self.ready {
            idle += (span - ready) / coroutines;
            looks += look(span - ready, times.turn).1;
        }
        busy += self.work.iter().sum::<f64>();
        let most = self.work.iter().copied().fold(0.0, f64::max);
        sum.span += span;
        sum.busy += busy / coroutines;
        sum.looks += looks / coroutines;
        sum.ended += ended / laid.len().max(1) as f64;
        sum.idle += idle;
        sum.uneven += if busy > 0.0 { most * self.work.len() as f64 / busy } else { 1.0 };
    }

    /// When it has ended where it was asked for, and how many looks it took.
    fn transaction(&mut self, drawn: &Drawn, times: &Times, txn: &Laid, touched: &[Access]) -> (f64, f64) {
        let (nodes, source, class) = (drawn.nodes, usize::from(txn.source), usize::from(txn.class));
        let (mut looks, mut ended) = (0.0, 0.0);
        self.parts.fill(Part::default());
        self.parts[source].runs = true;
        for access in touched {
            let at = usize::from(access.node);
            self.parts[at].reads += 1.0;
            if access.writes {
                self.parts[at].writes += 1.0;
                self.parts[at].runs = true;
                for back in 1..=drawn.backups {
                    let at = (at + back) % nodes;
                    self.parts[at].runs = true;
                    self.parts[at].copies += 1.0;
                }
            }
        }
        if drawn.creates[class] {
            (1..=drawn.backups).for_each(|back| self.parts[(source + back) % nodes].runs = true);
        }
        let runs = self.parts.iter().filter(|part| part.runs).count();
        let (group, all) = (txn.group as usize * nodes, touched.len() as f64);
        for at in 0..nodes {
            let part = self.parts[at];
            if part.reads == 0.0 && !part.runs {
                continue;
            }
            let begun = self.ready[group + at] + times.begin[class];
            let mut granted = begun;
            for access in touched.iter().filter(|access| usize::from(access.node) == at) {
                let [writers, readers] = self.free[at * drawn.locks + access.lock as usize];
                granted = granted.max(writers);
                if access.writes {
                    granted = granted.max(readers);
                }
            }
            if granted > begun {
                let (waited, looked) = look(granted - begun, times.turn);
                granted = begun + waited;
                looks += looked;
            }
            let letters = (runs - usize::from(part.runs)) as f64;
            let mut work = part.reads * times.read;
            if part.reads > 0.0 && letters > 0.0 {
                work += part.reads * times.told + letters * times.post;
            }
            let mut stands = 0.0;
            if part.reads > 0.0 && letters > 0.0 {
                let rounds = times.pieces * if times.one_by_one { letters } else { 1.0 };
                stands = (rounds - 1.0).max(0.0) * times.answer;
            }
            let part = &mut self.parts[at];
            part.sent = granted + work + stands;
            part.there = if part.reads > 0.0 { part.sent + times.letter } else { 0.0 };
            part.busy = times.begin[class] + work;
        }
        let last = |but: usize, parts: &[Part]| {
            let others = parts.iter().enumerate().filter(|(at, _)| *at != but);
            others.map(|(_, part)| part.there).fold(0.0, f64::max)
        };
        for at in 0..nodes {
            let part = self.parts[at];
            if part.reads == 0.0 && !part.runs {
                continue;
            }
            let (mut done, mut work) = (part.sent, part.busy);
            if part.runs {
                let there = last(at, &self.parts);
                if there > done {
                    let (waited, looked) = look(there - done, times.turn);
                    done += waited;
                    looks += looked;
                }
                let run = (all - part.reads) * times.heard
                    + times.run[class]
                    + part.writes * times.written
                    + part.copies * times.copied;
                done += run;
                work += run;
            }
            for access in touched.iter().filter(|access| usize::from(access.node) == at) {
                let free = &mut self.free[at * drawn.locks + access.lock as usize];
                let free = &mut free[usize::from(!access.writes)];
                *free = free.max(done);
            }
            self.ready[group + at] = done + times.turn;
            self.work[txn.group as usize / drawn.coroutines * nodes + at] += work + times.turn;
            if at == source {
                ended = done;
            }
        }
        (ended, looks)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::fixtures::{calm, class};

    fn times() -> Times {
        Times {
            turn: 20.0,
            begin: vec![5.0],
            read: 100.0,
            told: 10.0,
            heard: 10.0,
            written: 30.0,
            copied: 80.0,
            post: 50.0,
            answer: 3_000.0,
            pieces: 1.0,
            one_by_one: false,
            letter: 1_000.0,
            run: vec![200.0],
        }
    }

    fn drawn(bands: Vec<Band>, (nodes, threads, coroutines): (u32, u32, u64), writes: f64) -> Drawn {
        let workload = Workload { classes: vec![class("x", 1.0, 0.0, writes)], bands, ..calm(nodes) };
        let cluster = Cluster { nodes, threads, backups: 0, lanes: 1 };
        let reads: Vec<f64> = workload.bands.iter().map(|band| workload.reads_of(band)).collect();
        Drawn::new(&workload, &reads, &cluster, (4, coroutines))
    }

    #[test]
    fn whoever_is_alone_waits_for_nobody() {
        let heap = drawn(vec![Band::new(1e6, 1.0)], (1, 1, 1), 2.0).lay(&times());
        let each = 5.0 + 2.0 * 100.0 + 200.0 + 2.0 * 30.0 + 20.0;
        assert!((heap.span - 4.0 * each).abs() < 1e-6 && (heap.busy - heap.span).abs() < 1e-6, "{heap:?}");
        assert_eq!((heap.looks, heap.idle), (0.0, 0.0));
        assert!((heap.ended - (2.5 * each - 20.0)).abs() < 1e-6, "{heap:?}");
    }

    /// One record that all write: nobody begins before the one before it has ended, on whichever node he was asked.
    #[test]
    fn writers_of_one_record_go_one_after_the_other() {
        let heap = drawn(vec![Band::new(1.0, 1.0)], (1, 1, 6), 1.0).lay(&times());
        let held = 100.0 + 200.0 + 30.0;
        assert!(heap.span >= 24.0 * held, "{heap:?}");
        assert!(heap.looks > 10.0 && heap.idle > 0.0, "{heap:?}");
        let apart = drawn(vec![Band::new(1e9, 1.0)], (1, 1, 6), 1.0).lay(&times());
        assert!(apart.span < 0.5 * heap.span, "{apart:?} {heap:?}");
    }

    #[test]
    fn values_of_other_nodes_are_waited_for() {
        let of =
            |letter| drawn(vec![Band::new(1e6, 1.0)], (4, 1, 1), 2.0).lay(&Times { letter, ..times() }).span;
        assert!(of(5_000.0) > of(1_000.0) + 8.0 * 4_000.0, "{} {}", of(5_000.0), of(1_000.0));
        let pieces =
            |pieces| drawn(vec![Band::new(1e6, 1.0)], (4, 1, 1), 2.0).lay(&Times { pieces, ..times() }).span;
        assert!(pieces(3.0) > pieces(1.0) + 8.0 * 3_000.0, "{} {}", pieces(3.0), pieces(1.0));
    }

    #[test]
    fn who_waits_longer_looks_less_often() {
        assert_eq!(look(0.0, 10.0), (0.0, 0.0));
        assert_eq!(look(25.0, 10.0), (30.0, 3.0));
        assert_eq!(look(31.0, 10.0), (30.0 + 135.0, 4.0));
        let (at, looks) = look(100_000.0, 10.0);
        assert!((100_000.0..101_010.0).contains(&at) && (95.0..110.0).contains(&looks), "{at} {looks}");
    }
}
