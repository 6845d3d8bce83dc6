//! A steady state allocates nothing: a counting allocator watches a run in stretches, until three in a row are free of allocations.
//!
//! What is allocated before that is no transaction's: places for calls and for acknowledgements that a worker has more of under way
//! than ever before, of which there are so many in the end and no more; vectors of a session whose longest transaction so far this is.
//! How soon that is depends on how threads meet. Trees in order of keys get the room for all their nodes when they get a second one.

mod common;

use common::around::{Around, Twist};
use engine::cluster::{Length, RunResult, RunSpec, run_as};
use engine::protocol::{AnyProtocol, Calvin, Occ, Protocol};
use engine::workload::{AnyWorkload, Workload};
use phases::plan::Preset;
use primitives::fabric::loopback::Options;
use primitives::mesh::{FabricSpec, Shape};
use primitives::units::Nanos;
use std::alloc::{GlobalAlloc, Layout as Block, System};
use std::backtrace::Backtrace;
use std::cell::Cell;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

struct Counting;

/// Allocations while [`WATCHING`].
static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);
static WATCHING: AtomicBool = AtomicBool::new(false);
/// Where the first of a stretch were made, for a failure to tell.
static WHERE: Mutex<Vec<String>> = Mutex::new(Vec::new());
const TOLD: usize = 3;
/// A stretch with so many is not a clean one: of further allocations nobody asks where they were made.
const MANY: u64 = 20;

thread_local! {
    /// Telling where allocates, too.
    static TELLING: Cell<bool> = const { Cell::new(false) };
}

fn count() {
    if !WATCHING.load(Ordering::Relaxed) || TELLING.get() {
        return;
    }
    if ALLOCATIONS.load(Ordering::Relaxed) >= MANY {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        return;
    }
    TELLING.set(true);
    let place = Backtrace::force_capture().to_string();
    ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
    if let Ok(mut places) = WHERE.lock()
        && places.len() < TOLD
    {
        places.push(place);
    }
    TELLING.set(false);
}

#[allow(unsafe_code)]
// The only way to count allocations.
// SAFETY: every call is the system allocator's, with the caller's own arguments.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, block: Block) -> *mut u8 {
        count();
        // SAFETY: the caller's own promise.
        unsafe { System.alloc(block) }
    }
    unsafe fn dealloc(&self, at: *mut u8, block: Block) {
        // SAFETY: the caller's own promise.
        unsafe { System.dealloc(at, block) }
    }
    unsafe fn realloc(&self, at: *mut u8, block: Block, size: usize) -> *mut u8 {
        count();
        // SAFETY: the caller's own promise.
        unsafe { System.realloc(at, block, size) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// Transactions of a stretch.
const STRETCH: u64 = 2_000;
/// Stretches in a row that must be free of allocations.
const CLEAN: usize = 3;
/// Stretches after which a run that still allocates is given up.
const STRETCHES: u64 = 40;

/// Whether the last stretches were free of allocations.
fn ends_clean(counts: &[u64]) -> bool {
    counts.len() >= CLEAN && counts[counts.len() - CLEAN..].iter().all(|&count| count == 0)
}

/// Has the allocator watch from the first transaction on, in stretches, and ends the run when [`CLEAN`] of them were free of
/// allocations.
struct Watch<'s> {
    drawn: AtomicU64,
    /// Stretches after which the run is given up.
    most: u64,
    /// Allocations of the stretches so far.
    counts: Mutex<Vec<u64>>,
    stop: &'s AtomicBool,
}

impl<W: Workload> Twist<W> for Watch<'_> {
    fn draws(&self) {
        let drawn = self.drawn.fetch_add(1, Ordering::Relaxed);
        if !drawn.is_multiple_of(STRETCH) || self.stop.load(Ordering::Relaxed) {
            return;
        }
        // Nothing of what the watch itself does counts.
        WATCHING.store(false, Ordering::Relaxed);
        let count = ALLOCATIONS.swap(0, Ordering::Relaxed);
        let stretches = drawn / STRETCH;
        if stretches > 0 {
            let mut counts = self.counts.lock().expect("nobody panicked");
            counts.push(count);
            if ends_clean(&counts) || stretches == self.most {
                return self.stop.store(true, Ordering::Relaxed);
            }
            WHERE.lock().expect("nobody panicked").clear();
        }
        WATCHING.store(true, Ordering::Relaxed);
    }
}

/// Settings of a workload.
type Settings<'s> = &'s [(&'s str, &'s str)];

/// What is allocated in each stretch of a run.
fn stretches(
    protocol: AnyProtocol,
    preset: Preset,
    (name, settings): (&str, Settings<'_>),
    most: u64,
) -> Vec<u64> {
    let plan = preset.plan().restricted_to(protocol.needs());
    let shape = Shape { nodes: 3, workers: 1 };
    let mut spec = RunSpec::new(FabricSpec::Loopback(Options::default()), shape, plan);
    // It is stopped at the end of a stretch.
    spec.length = Length::Time { warm_up: Nanos(0), measured: Nanos::from_millis(3_600_000) };
    spec.replicas = 2;
    let workload = AnyWorkload::parse(name, spec.scale(), settings.iter().copied()).expect("settings");
    let (result, counts) = match workload {
        AnyWorkload::SmallBank(w) => watched(w, &spec, protocol, most),
        AnyWorkload::Micro(w) => watched(w, &spec, protocol, most),
        AnyWorkload::Ycsb(w) => watched(w, &spec, protocol, most),
        AnyWorkload::Tpcc(w) => watched(w, &spec, protocol, most),
        AnyWorkload::CustomerPosition(w) => watched(w, &spec, protocol, most),
    };
    assert!(result.passed(), "{:?}", result.failed_checks().collect::<Vec<_>>());
    eprintln!(
        "{preset}, {name}, {}: {counts:?} allocations in stretches of {STRETCH}",
        protocol.needs().protocol
    );
    counts
}

fn watched<W: Workload>(
    workload: W,
    spec: &RunSpec,
    protocol: AnyProtocol,
    most: u64,
) -> (RunResult, Vec<u64>) {
    let stop = AtomicBool::new(false);
    let watch = Watch { drawn: AtomicU64::new(0), most, counts: Mutex::default(), stop: &stop };
    let watched = Around::new(workload, watch);
    let result = run_as(spec, &watched, protocol, &stop).expect("loopback runs");
    WATCHING.store(false, Ordering::Relaxed);
    (result, watched.twist.counts.into_inner().expect("nobody panicked"))
}

const SMALLBANK: (&str, Settings<'_>) = ("smallbank", &[("accounts_per_thread", "500")]);
const MICRO: (&str, Settings<'_>) =
    ("micro", &[("records_per_thread", "500"), ("payload_bytes", "128"), ("zipf_theta", "0.9")]);

const YCSB: (&str, Settings<'_>) =
    ("ycsb", &[("records_per_thread", "500"), ("zipf_theta", "0.6"), ("write_share", "0.5")]);
const POSITION: (&str, Settings<'_>) = ("tpce-cp", &[("customers_per_load_unit", "20")]);

const TPCC: (&str, Settings<'_>) = (
    "tpcc",
    &[
        ("warehouses", "6"),
        ("customers_per_district", "12"),
        ("orders_per_district", "12"),
        ("items", "60"),
        ("order_room_per_district", "700"),
    ],
);

#[test]
fn a_steady_state_allocates_nothing() {
    let occ = AnyProtocol::Occ(Occ);
    let calvin = AnyProtocol::Calvin(Calvin::default());
    let presets = [Preset::OneSided, Preset::TwoSided, Preset::DrtmH].map(|preset| (occ, preset));
    for (protocol, preset) in
        presets.into_iter().chain([(calvin, Preset::OneSided), (calvin, Preset::TwoSided)])
    {
        for workload in [SMALLBANK, MICRO, TPCC] {
            allocates_nothing(protocol, preset, workload);
        }
    }
    for name in ["nowait", "waitdie", "bounded-wait", "mvcc", "sundial"] {
        let protocol = AnyProtocol::named(name).expect("a protocol");
        allocates_nothing(protocol, Preset::OneSided, YCSB);
        allocates_nothing(protocol, Preset::TwoSided, SMALLBANK);
    }
    allocates_nothing(AnyProtocol::named("fasst").expect("a protocol"), Preset::TwoSided, YCSB);
    allocates_nothing(occ, Preset::DrtmH, POSITION);
}

fn allocates_nothing(protocol: AnyProtocol, preset: Preset, workload: (&str, Settings<'_>)) {
    let counts = stretches(protocol, preset, workload, STRETCHES);
    let mut places = WHERE.lock().expect("nobody panicked");
    assert!(ends_clean(&counts), "{preset}, {}: {counts:?}\n{}", workload.0, places.join("\n"));
    places.clear();
}
