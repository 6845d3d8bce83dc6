//! A steady state allocates nothing: a counting allocator watches a run's second half.

use engine::cluster::{Length, RunSpec, run};
use engine::protocol::{AnyProtocol, Calvin, Occ, Protocol};
use engine::workload::AnyWorkload;
use phases::plan::{Plan, Preset};
use primitives::fabric::loopback::Options;
use primitives::mesh::{FabricSpec, Shape};
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

// The only way to count allocations; both calls go straight on to the system's allocator.
#[allow(unsafe_code)]
unsafe impl GlobalAlloc for Counting {
    // SAFETY: the caller's promises are passed on unchanged.
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        unsafe { System.alloc(layout) }
    }
    // SAFETY: as above; the block came from `System` too.
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        unsafe { System.dealloc(block, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// Allocations of a whole run of so many transactions per coroutine, set-up included.
fn allocations(
    protocol: AnyProtocol,
    plan: Plan,
    replicas: u16,
    workload: &str,
    settings: &[(&str, &str)],
    transactions: u64,
) -> u64 {
    let shape = Shape { nodes: 3, workers: 1 };
    let mut spec = RunSpec::new(FabricSpec::Loopback(Options::default()), shape, plan);
    spec.length = Length::Transactions(transactions);
    spec.replicas = replicas;
    let workload = AnyWorkload::parse(workload, spec.scale(), settings.iter().copied()).expect("settings");
    let before = ALLOCATIONS.load(Ordering::Relaxed);
    let result = run(&spec, &workload, protocol, &AtomicBool::new(false)).expect("loopback runs");
    assert!(result.passed(), "{:?}", result.failed_checks().collect::<Vec<_>>());
    ALLOCATIONS.load(Ordering::Relaxed) - before
}

/// A longer run allocates no more than a shorter one, but for the few times that a queue or a vector reaches a new
/// greatest length, which depends on how threads meet: far less than one allocation in a hundred transactions.
#[test]
fn more_transactions_do_not_mean_more_allocations() {
    let smallbank = [("accounts_per_thread", "500")];
    let micro = [("records_per_thread", "500"), ("payload_bytes", "128"), ("zipf_theta", "0.9")];
    let occ = AnyProtocol::Occ(Occ);
    let calvin = AnyProtocol::Calvin(Calvin::default());
    let presets = [Preset::OneSided, Preset::TwoSided, Preset::DrtmH].map(|preset| (occ, preset));
    for (protocol, preset) in
        presets.into_iter().chain([(calvin, Preset::OneSided), (calvin, Preset::TwoSided)])
    {
        for (workload, settings) in [("smallbank", &smallbank[..]), ("micro", &micro[..])] {
            let plan = preset.plan().restricted_to(protocol.needs());
            let (short, long) = (100, 900);
            let few = allocations(protocol, plan, 2, workload, settings, short);
            let many = allocations(protocol, plan, 2, workload, settings, long);
            let transactions = 3 * u64::from(plan.coroutines) * (long - short);
            let more = many.saturating_sub(few);
            eprintln!(
                "{preset}, {workload}, {protocol:?}: {more} more allocations for {transactions} more transactions"
            );
            assert!(
                more * 100 < transactions,
                "{preset}, {workload}, {protocol:?}: {more} more allocations for {transactions} more transactions"
            );
        }
    }
}
