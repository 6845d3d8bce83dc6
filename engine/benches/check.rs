//! How long does it take to judge a million transactions of ten operations, and how much memory?
//!
//! The history is what an optimistic engine leaves: 64 sessions take turns on YCSB-like transactions (ten records out of
//! a million, half of them updated, a tenth of the accesses on a hot set of a thousand), each with its moment of
//! effect inside its interval, one in twenty aborted, with a digest of each payload. So it passes, which is the costly case: everything is looked at.
//! In the rejected one everything goes wrong from the middle on: reads see versions three updates old. Peak memory is
//! printed at the end.
//!
//! Another history is of queues, as TPC-C's districts are: half of the transactions append to one, half scan one from its first key to the last
//! there could be, and take what is first. Nearly all of its keys are gone or yet to come when they are scanned, so that a read of each would
//! be some nine thousand reads a scan.

use criterion::{BatchSize, Criterion, Throughput};
use engine::verify::exchange::{self, Format};
use engine::verify::{Digest, History, Key, Level, Recorder, check, format};
use primitives::units::Nanos;
use std::hint::black_box;

const TXNS: u64 = 1_000_000;
const OPS: u64 = 10;
const RECORDS: u64 = 1 << 20;
const SESSIONS: u64 = 64;

/// xorshift64*: the same history every time.
struct Draw(u64);

impl Draw {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32) % bound
    }
}

/// What stands for the payload of a version.
fn digest(key: u64, version: u64) -> Digest {
    Digest::of(&[key, version])
}

/// A run of `txns` transactions; with `stale`, reads see old versions from the middle on.
fn record(txns: u64, stale: bool) -> Vec<Recorder> {
    let mut draw = Draw(0x5eed);
    let mut versions = vec![0u64; RECORDS as usize];
    let mut sessions: Vec<Recorder> = (0..SESSIONS as u32).map(Recorder::new).collect();
    for n in 0..txns {
        let session = &mut sessions[(n % SESSIONS) as usize];
        let effect = 1000 * (n + 100);
        // A session's intervals do not overlap: its effects are 64000 ns apart.
        session.begin(Nanos(effect - draw.below(30_000)));
        let aborts = draw.below(20) == 0;
        let mut keys = [u64::MAX; OPS as usize];
        for slot in 0..keys.len() {
            let hot = draw.below(10) == 0;
            let mut key = draw.below(if hot { 1000 } else { RECORDS });
            while keys[..slot].contains(&key) {
                key = (key + 1) % RECORDS;
            }
            keys[slot] = key;
            let version = &mut versions[key as usize];
            let old = stale && n > txns / 2 && *version > 3;
            if slot % 2 == 0 {
                let seen = *version - if old { 3 } else { 0 };
                session.read_of(Key { table: 0, key }, seen, digest(key, seen));
            } else {
                session.write_of(Key { table: 0, key }, *version + 1, digest(key, *version + 1));
                *version += u64::from(!aborts);
            }
        }
        let end = Nanos(effect + draw.below(30_000));
        if aborts { session.abort("validate", end) } else { session.commit(end) }
    }
    sessions
}

/// A run of `txns` transactions that append to queues and scan them.
fn queues(txns: u64) -> Vec<Recorder> {
    const QUEUES: usize = 20;
    let mut draw = Draw(0x5eed);
    let (mut heads, mut tails) = ([0u64; QUEUES], [0u64; QUEUES]);
    let mut sessions: Vec<Recorder> = (0..SESSIONS as u32).map(Recorder::new).collect();
    for n in 0..txns {
        let session = &mut sessions[(n % SESSIONS) as usize];
        let effect = 1000 * (n + 100);
        session.begin(Nanos(effect - draw.below(30_000)));
        let queue = draw.below(QUEUES as u64) as usize;
        let key = |place: u64| Key { table: 0, key: (queue as u64) << 32 | place };
        if draw.below(2) == 0 {
            session.write(key(tails[queue]), 1);
            tails[queue] += 1;
        } else {
            let head = heads[queue];
            // A scan that stops at its first record has read no further; where there is none it has read all.
            let found = head < tails[queue] && draw.below(4) > 0;
            if found {
                session.read(key(head), 1);
                session.read_range(0, key(0).key, key(head).key);
                session.delete(key(head), 2);
                heads[queue] += 1;
            } else {
                (head..tails[queue]).take(20).for_each(|place| session.read(key(place), 1));
                let last = if tails[queue] > head + 20 { head + 19 } else { u64::from(u32::MAX) };
                session.read_range(0, key(0).key, key(last).key);
            }
        }
        session.commit(Nanos(effect + draw.below(30_000)));
    }
    sessions
}

fn peak_memory() -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let peak = status.lines().find(|line| line.starts_with("VmHWM:"));
    peak.map_or("not available".into(), |line| line["VmHWM:".len()..].trim().to_owned())
}

fn main() {
    let mut criterion = Criterion::default().sample_size(10).configure_from_args();
    let history = History::merge(record(TXNS, false), Some(0));
    let alone = peak_memory();
    let mut group = criterion.benchmark_group("check 10^6 transactions x 10 operations");
    group.throughput(Throughput::Elements(TXNS * OPS));
    for level in Level::ALL {
        group.bench_function(level.to_string(), |b| {
            b.iter(|| assert!(check(black_box(&history), level).passed()));
        });
    }
    let checked = peak_memory();
    let rejected = History::merge(record(TXNS, true), Some(0));
    for level in
        [Level::ReadCommitted, Level::ReadAtomicity, Level::SnapshotIsolation, Level::StrictSerializable]
    {
        group.bench_function(format!("rejected, {level}"), |b| {
            b.iter(|| black_box(check(black_box(&rejected), level).passed()));
        });
    }
    drop(rejected);
    let mut json = Vec::new();
    format::write(&history, &mut json).expect("memory takes all");
    // Into memory, not `io::sink`: a sink skips the formatting, which is the work.
    let mut again = Vec::with_capacity(json.len());
    group.bench_function("write json", |b| {
        b.iter(|| {
            again.clear();
            format::write(black_box(&history), &mut again).expect("memory takes all");
            assert_eq!(again.len(), json.len());
        });
    });
    drop(again);
    group.bench_function("read json", |b| {
        b.iter(|| format::read(black_box(&json)).expect("just written").op_count());
    });
    eprintln!("history.json: {} bytes", json.len());
    drop(json);
    // Lists of hot records would be quadratic: what `elle-append` refuses.
    for format in [Format::ElleRegister, Format::Dbcop, Format::Plume] {
        let mut text = Vec::new();
        exchange::write(&history, format, &mut text).expect("it fits");
        group.bench_function(format!("read {format}"), |b| {
            b.iter(|| exchange::read(black_box(&text), None).expect("just written").history.op_count());
        });
        eprintln!("{format}: {} bytes", text.len());
    }
    group.finish();

    drop(history);
    let mut group = criterion.benchmark_group("check 10^6 transactions on queues");
    group.throughput(Throughput::Elements(TXNS));
    let recorded = History::merge(queues(TXNS), Some(0));
    group.bench_function("settle", |b| {
        b.iter_batched(|| recorded.clone(), |history| history.settled().op_count(), BatchSize::PerIteration);
    });
    let settled = recorded.settled();
    for level in [Level::SnapshotIsolation, Level::Serializable, Level::StrictSerializable] {
        group.bench_function(level.to_string(), |b| {
            b.iter(|| assert!(check(black_box(&settled), level).passed()));
        });
    }
    let reads = settled.one_by_one(0).map_or_else(|many| many.reads, |_| 0);
    eprintln!("queues: {} operations, and {reads} reads of absent keys by scans", settled.op_count());
    drop(settled);
    group.finish();

    let mut group = criterion.benchmark_group("record 1000 transactions x 10 operations");
    group.throughput(Throughput::Elements(1000 * OPS));
    group.bench_function("preallocated", |b| {
        // The capacity is reserved outside the time; first touches of its pages may fall inside.
        b.iter_batched_ref(
            || Recorder::with_capacity(0, 1000, 10_000),
            |recorder| {
                for n in 0..1000 {
                    recorder.begin(Nanos(n));
                    for key in 0..OPS {
                        recorder.read(Key { table: 0, key }, n);
                    }
                    recorder.commit(Nanos(n));
                }
            },
            BatchSize::LargeInput,
        );
    });
    group.finish();
    eprintln!("peak memory: {alone} with the history recorded and merged, {checked} after checking it");
    criterion.final_summary();
}
