//! The cost model against the simulator: for every protocol and both pure plans, the rate that is foretold beside the rate that
//! comes. The model sees the profile, the workload's own averages and the plan, never the run.

mod common;
mod epochs;
mod locks;
mod orders;

use common::{OTHERS, sim_of};
use engine::cluster::{Length, RunResult, RunSpec, needs, run};
use engine::protocol::{AnyProtocol, Protocol};
use engine::workload::AnyWorkload;
use phases::model::station::Station;
use phases::model::{Cluster, Forecast, Model};
use phases::plan::{Phase, Plan, Preset, Step, Via};
use primitives::mesh::Shape;
use primitives::profile::Profile;
use primitives::units::Nanos;
use std::sync::atomic::AtomicBool;

/// What is foretold, and the rate and the aborted share that come.
struct Compared {
    what: String,
    said: Forecast,
    per_s: f64,
    latency_ns: f64,
    aborted: f64,
}

impl Compared {
    /// By how much the rate that came is off the one foretold.
    fn error(&self) -> f64 {
        self.per_s / self.said.committed_per_s - 1.0
    }

    fn said_aborted(&self) -> f64 {
        self.said.aborted_per_s / (self.said.aborted_per_s + self.said.committed_per_s)
    }
}

/// What is foretold of a plan, the share of lookups that its location cache is taken to answer, and what comes.
struct Ran {
    said: Forecast,
    said_hits: f64,
    result: RunResult,
}

impl Ran {
    /// By how much the rate that came is off the one foretold.
    fn error(&self) -> f64 {
        self.result.committed_per_s() / self.said.committed_per_s - 1.0
    }

    /// Requests, waits and doorbells of a phase for each commit: foretold, and counted.
    fn counts(&self, phase: Phase) -> [(f64, f64); 3] {
        let said = self.said.phase(phase);
        let [verbs, round_trips, doorbells] = self.result.phase_per_committed(phase);
        [(said.verbs, verbs), (said.round_trips, round_trips), (said.doorbells, doorbells)]
    }
}

fn shipped() -> Profile {
    Profile::shipped("cx4-edr").expect("a shipped profile")
}

/// A cluster on which plans are foretold and run.
#[derive(Clone)]
struct On {
    profile: Profile,
    shape: Shape,
    replicas: u16,
    cache_bytes: usize,
    warm_up: Nanos,
    measured: Nanos,
}

/// Four nodes of two threads, without backups.
fn four(profile: &Profile) -> On {
    On {
        profile: profile.clone(),
        shape: Shape { nodes: 4, workers: 2 },
        replicas: 1,
        cache_bytes: 1 << 20,
        warm_up: Nanos::from_micros(100),
        measured: Nanos::from_micros(500),
    }
}

fn ran(on: &On, protocol: AnyProtocol, plan: Plan, workload: &str, settings: &[(&str, &str)]) -> Ran {
    let mut spec = RunSpec::new(sim_of(on.profile.clone(), 1), on.shape, plan);
    spec.length = Length::Time { warm_up: on.warm_up, measured: on.measured };
    (spec.cache_bytes, spec.replicas) = (on.cache_bytes, on.replicas);
    let load = AnyWorkload::parse(workload, spec.scale(), settings.iter().copied()).expect("valid settings");
    let asked = needs(&spec, &load, &protocol);
    let checked = plan.check(&spec.fabric.caps().expect("a fabric"), &asked).expect("a plan that runs");
    let cluster = Cluster {
        nodes: u32::from(on.shape.nodes),
        threads: u32::from(on.shape.workers),
        backups: u32::from(on.replicas) - 1,
        lanes: spec.worker.lanes,
    };
    let demand = load.demand(spec.scale(), spec.cache_bytes, &spec.retry);
    let said = Model::new(&on.profile, cluster, &demand, &asked).expect("valid inputs").forecast(&checked);
    let result = run(&spec, &load, protocol, &AtomicBool::new(false)).expect("it runs");
    assert!(result.passed());
    Ran { said, said_hits: demand.cache_hit_share, result }
}

fn compare(
    profile: &Profile,
    protocol: AnyProtocol,
    via: Via,
    workload: &str,
    settings: &[(&str, &str)],
) -> Compared {
    let plan = Plan { coroutines: 6, ..Plan::uniform(via).restricted_to(protocol.needs()) };
    let Ran { said, result, .. } = ran(&four(profile), protocol, plan, workload, settings);
    let what = format!("{workload} {} {via}", protocol.needs().protocol);
    let (per_s, aborted) = (result.committed_per_s(), result.aborted_share().unwrap_or(0.0));
    let latency_ns = result.stats.latency.mean_ns().expect("something committed");
    Compared { what, said, per_s, latency_ns, aborted }
}

fn protocols() -> impl Iterator<Item = AnyProtocol> {
    let all = ["occ"].iter().chain(OTHERS).map(|name| AnyProtocol::named(name).expect("a protocol"));
    // Epochs last longer than what is measured for the others: they have tests of their own, below.
    all.filter(|protocol| !protocol.needs().sequenced)
}

/// Every protocol under both pure plans.
fn all(workload: &str, settings: &[(&str, &str)]) -> Vec<Compared> {
    all_on(&shipped(), workload, settings)
}

fn all_on(profile: &Profile, workload: &str, settings: &[(&str, &str)]) -> Vec<Compared> {
    let mut all = Vec::new();
    for protocol in protocols() {
        for via in [Via::OneSided, Via::TwoSided] {
            let one = compare(profile, protocol, via, workload, settings);
            println!(
                "{:<40} said {:>9.0}/s got {:>9.0}/s {:>+6.1} %, aborted: said {:>5.1} % got {:>5.1} %",
                one.what,
                one.said.committed_per_s,
                one.per_s,
                100.0 * one.error(),
                100.0 * one.said_aborted(),
                100.0 * one.aborted,
            );
            all.push(one);
        }
    }
    all
}

fn holds(all: &[Compared], median: f64, worst: f64) {
    let mut errors: Vec<f64> = all.iter().map(|c| c.error().abs()).collect();
    errors.sort_by(f64::total_cmp);
    let (got_median, got_worst) = (errors[errors.len() / 2], errors[errors.len() - 1]);
    assert!(got_median <= median && got_worst <= worst, "median {got_median}, worst {got_worst}");
}

// The bounds say where the model stands, the aim being a median of 10 %. Without conflicts it is there. Under contention it promises
// too much where retries go to the same hot records, most of it (27 %) for two-sided WAITDIE with exclusive reads.

#[test]
fn without_conflicts_rates_are_near_what_is_foretold() {
    holds(&all("ycsb", &[("records_per_thread", "20000"), ("think_us", "1")]), 0.05, 0.06);
    holds(&all("smallbank", &[("accounts_per_thread", "20000"), ("hot_accounts_share", "1")]), 0.05, 0.11);
}

/// A client waits for its worker's turn too: that is in the latency that is counted and in the one that is foretold (Little's law).
#[test]
fn without_conflicts_latencies_are_near_what_is_foretold() {
    let clients = 4.0 * 2.0 * 6.0;
    for one in all("ycsb", &[("records_per_thread", "20000")]) {
        let held = one.per_s * one.latency_ns / 1e9 / clients - 1.0;
        let off = one.latency_ns / one.said.latency_mean_ns - 1.0;
        assert!(held.abs() < 0.02, "{}: {held:+.3} of the clients are somewhere else", one.what);
        assert!(off.abs() < 0.1, "{}: {off:+.3} off what is foretold", one.what);
    }
}

#[test]
fn under_contention_rates_and_aborts_are_near_what_is_foretold() {
    let hot = [("records_per_thread", "4000"), ("hot_accesses_share", "0.3"), ("hot_records_share", "0.01")];
    let all = all("ycsb", &hot);
    holds(&all, 0.15, 0.3);
    for one in &all {
        let apart = (one.aborted - one.said_aborted()).abs();
        assert!(apart < 0.18, "{}: aborted {} and not {}", one.what, one.aborted, one.said_aborted());
    }
}

/// A backup applies 32 log entries in one turn, for which few coroutines that call it wait often: found by combination 136 of seed
/// 6 of the regret sweep, where calls had been foretold 23 % too high.
#[test]
fn calls_wait_for_backups_that_apply_their_logs() {
    let settings = [
        ("payload_bytes", "16"),
        ("reads", "0"),
        ("writes", "5"),
        ("records_per_thread", "2000"),
        ("together", "true"),
    ];
    let on = On {
        shape: Shape { nodes: 3, workers: 1 },
        replicas: 3,
        warm_up: Nanos::from_millis(1),
        measured: Nanos::from_millis(4),
        ..four(&shipped())
    };
    // One-sided it is 0.162; it was 0.160 before attempts that follow a pause were resumed.
    close_on(&on, "nowait", 2, "micro", &settings, [0.17, 0.08]);
}

/// Eight threads of a node that log and install 350 B at a time fill their cards' bus: a request to memory goes before each payload and each
/// chain of requests that the card fetches. Without those 18 % too much was foretold on eight nodes of twelve threads.
#[test]
fn requests_to_memory_take_the_bus_that_payloads_arrive_by() {
    let settings = [
        ("reads", "0"),
        ("writes", "10"),
        ("payload_bytes", "320"),
        ("records_per_thread", "10000"),
        ("together", "true"),
    ];
    let on = On {
        shape: Shape { nodes: 3, workers: 12 },
        replicas: 3,
        cache_bytes: 1 << 24,
        measured: Nanos::from_micros(400),
        ..four(&shipped())
    };
    let occ = AnyProtocol::named("occ").expect("a protocol");
    let plan = Plan { coroutines: 4, ..Preset::DrtmH.plan() };
    let ran = ran(&on, occ, plan, "micro", &settings);
    let busy = ran.said.utilization[Station::Pcie as usize];
    println!("said {:.0}/s, {:+.3}, bus {busy:.2}", ran.said.committed_per_s, ran.error());
    assert!(busy > 0.95, "{busy}");
    assert!(ran.error().abs() < 0.1, "{:+.3} off what is foretold", ran.error());
}

/// Two nodes of two threads leave most of a card's sixteen units without a queue pair, and those that lead to the own node take
/// little off the others: found by combination 54 of seed 6, where locks by CAS had been foretold 38 % too high.
#[test]
fn few_queue_pairs_leave_units_idle() {
    let mut profile = Profile::shipped("cx6").expect("a shipped profile");
    // Slow enough to matter: a unit's requests take sixteen times as long.
    profile.nic.responder_read.value *= 1.5;
    profile.nic.requester_read.value *= 1.5;
    let settings = [
        ("payload_bytes", "216"),
        ("reads", "2"),
        ("writes", "2"),
        ("records_per_thread", "8000"),
        ("together", "false"),
    ];
    let on = On {
        shape: Shape { nodes: 2, workers: 2 },
        replicas: 2,
        measured: Nanos::from_millis(1),
        ..four(&profile)
    };
    close_on(&on, "occ", 12, "micro", &settings, [0.1, 0.1]);
}

/// Long records keep a ConnectX-3's engine longer than short ones: found by combination 339 of seed 6, a card like it, where 38 %
/// too much had been foretold.
#[test]
fn segments_of_long_records_take_the_engines_time() {
    let profile = Profile::shipped("cx3").expect("a shipped profile");
    let settings =
        [("fields", "64"), ("operations", "5"), ("records_per_thread", "8000"), ("together", "true")];
    let on = On {
        shape: Shape { nodes: 3, workers: 2 },
        replicas: 3,
        measured: Nanos::from_millis(2),
        ..four(&profile)
    };
    close_on(&on, "bounded-wait", 8, "ycsb", &settings, [0.1, 0.1]);
}

/// Who meets a hot record meets it again, and pauses longer each time: found by combination 31 of seed 8, where twice the rate that came
/// had been foretold, though aborts had been foretold well. Of the one-sided plan still too much is foretold; why is not known.
#[test]
fn few_transactions_fail_many_times_in_a_row() {
    let settings = [
        ("fields", "56"),
        ("operations", "5"),
        ("records_per_thread", "616"),
        ("together", "false"),
        ("write_share", "0.13"),
        ("zipf_theta", "0.85"),
    ];
    let on = On {
        shape: Shape { nodes: 4, workers: 1 },
        replicas: 2,
        warm_up: Nanos::from_millis(1),
        measured: Nanos::from_millis(16),
        ..four(&shipped())
    };
    close_on(&on, "nowait", 12, "ycsb", &settings, [0.4, 0.15]);
}

/// Ten ATOMICs of each transaction meet on the 32 buckets that headers of such records fall on, and on their queue pairs: found by
/// combination 303 of seed 9, where 85 % too much had been foretold.
#[test]
fn atomics_wait_for_buckets_and_for_those_before_them() {
    let mut profile = shipped();
    // A slow host: what an ATOMIC holds its word for, and how long of that it writes.
    (profile.nic.atomic_hold.value, profile.nic.pcie_read.value) = (664.0, 277.0);
    let settings = [
        ("payload_bytes", "64"),
        ("reads", "5"),
        ("writes", "0"),
        ("records_per_thread", "2025"),
        ("together", "true"),
    ];
    let on = On { shape: Shape { nodes: 3, workers: 2 }, measured: Nanos::from_millis(1), ..four(&profile) };
    for coroutines in [1, 2, 4, 8, 16] {
        close_on(&on, "waitdie", coroutines, "micro", &settings, [0.12, 0.1]);
    }
}

/// Both pure plans of so many coroutines get what is foretold, but for `most` of it: one-sided, two-sided.
fn close_on(
    on: &On,
    protocol: &str,
    coroutines: u32,
    workload: &str,
    settings: &[(&str, &str)],
    most: [f64; 2],
) {
    let protocol = AnyProtocol::named(protocol).expect("a protocol");
    for (via, most) in [Via::OneSided, Via::TwoSided].into_iter().zip(most) {
        let plan = Plan { coroutines, ..Plan::uniform(via).restricted_to(protocol.needs()) };
        let ran = ran(on, protocol, plan, workload, settings);
        let (said, got) = (ran.said.committed_per_s, ran.result.committed_per_s());
        println!("{via}: said {said:.0}/s got {got:.0}/s {:+.3}", ran.error());
        assert!(ran.error().abs() < most, "{via}: {:+.3} off what is foretold", ran.error());
    }
}

/// What the engine computes for attempts and records, as under a profile that says so, conflicts or not.
#[test]
fn what_the_engine_computes_is_foretold() {
    let mut slow = shipped();
    (slow.cpu.attempt.value, slow.cpu.access.value) = (400.0, 250.0);
    holds(&all_on(&slow, "ycsb", &[("records_per_thread", "20000")]), 0.05, 0.08);
    let hot = [("records_per_thread", "4000"), ("hot_accesses_share", "0.2"), ("hot_records_share", "0.01")];
    holds(&all_on(&slow, "ycsb", &hot), 0.08, 0.2);
}

/// A card's ceiling of messages, and one thread that receives for a machine, hold up few coroutines and limit many.
#[test]
fn a_ceiling_and_a_receiving_thread_are_foretold() {
    let mut ceiling = shipped();
    ceiling.nic.message_gap.value = 150.0;
    let receiver = Profile::shipped("tcp-10g-rcc").expect("a shipped profile");
    // What few coroutines get over such a thread is an eighth more than is foretold.
    for (profile, via, ms, off) in [
        (&ceiling, Via::OneSided, 1, 0.07),
        (&ceiling, Via::TwoSided, 1, 0.07),
        (&receiver, Via::TwoSided, 4, 0.15),
    ] {
        for coroutines in [1, 4, 16] {
            let plan = Plan { coroutines, ..Plan::uniform(via) };
            let on = On { warm_up: Nanos::from_millis(1), measured: Nanos::from_millis(ms), ..four(profile) };
            let protocol = AnyProtocol::named("occ").expect("a protocol");
            let ran = ran(&on, protocol, plan, "micro", &[("records_per_thread", "20000")]);
            println!("{} {via} {coroutines}: {:+.1} %", profile.name, 100.0 * ran.error());
            assert!(ran.error().abs() < off, "{} {via} {coroutines}: {:+.3}", profile.name, ran.error());
        }
    }
}

/// Every protocol's cores compute it, those of CALVIN too.
#[test]
fn what_the_engine_computes_is_charged_under_every_protocol() {
    let mut slow = shipped();
    slow.cpu.attempt.value = 10_000.0;
    for name in ["occ"].iter().chain(OTHERS) {
        let protocol = AnyProtocol::named(name).expect("a protocol");
        let plan = Plan { coroutines: 6, ..Plan::uniform(Via::TwoSided).restricted_to(protocol.needs()) };
        let cpu = |profile: &Profile| {
            let mut spec = RunSpec::new(sim_of(profile.clone(), 1), Shape { nodes: 2, workers: 1 }, plan);
            spec.length = Length::Time { warm_up: Nanos::from_micros(100), measured: Nanos::from_millis(1) };
            let load = AnyWorkload::parse("ycsb", spec.scale(), [("records_per_thread", "20000")]);
            let ran =
                run(&spec, &load.expect("settings"), protocol, &AtomicBool::new(false)).expect("it runs");
            ran.cpu_ns_per_committed().expect("something committed")
        };
        let more = cpu(&slow) - cpu(&shipped());
        assert!((9_000.0..25_000.0).contains(&more), "{name}: {more} ns more for each commit");
    }
}

/// Requests, waits and doorbells where the location cache knows a part of the records: as many as are foretold.
#[test]
fn a_small_cache_answers_and_costs_what_is_foretold() {
    let occ = AnyProtocol::named("occ").expect("a protocol");
    // 6000 records elsewhere, half of them in the hot set.
    let settings: &[(&str, &str)] = &[
        ("records_per_thread", "1000"),
        ("operations", "4"),
        ("write_share", "0"),
        ("hot_records_share", "0.05"),
        ("hot_accesses_share", "0.5"),
        ("together", "true"),
    ];
    for words in [500, 2_000, 60_000] {
        for via in [Via::OneSided, Via::Hybrid, Via::TwoSided] {
            let plan = Plan { coroutines: 6, ..Plan::uniform(via) };
            let fetch = plan.fetch.map(|step| Step { outstanding: true, doorbell_batching: true, ..step });
            let plan = Plan { fetch, ..plan };
            let on = On { cache_bytes: 8 * words, measured: Nanos::from_millis(4), ..four(&shipped()) };
            let ran = ran(&on, occ, plan, "ycsb", settings);
            let cache = &ran.result.cache;
            let hits = cache.hits as f64 / (cache.hits + cache.misses).max(1) as f64;
            let counts = ran.counts(Phase::Fetch);
            println!(
                "{words} words, {via}: hits {:.3} {hits:.3}, said and counted {counts:.3?}",
                ran.said_hits
            );
            assert!(via == Via::TwoSided || (hits - ran.said_hits).abs() < 0.04, "{hits} {}", ran.said_hits);
            for (said, got) in counts {
                assert!((got / said - 1.0).abs() < 0.08, "{words} words, {via}: {said} said, {got} counted");
            }
        }
    }
}

/// New-order's own records are locked and installed by the CPU, its stocks elsewhere by what the plan says.
#[test]
fn new_orders_requests_are_as_many_as_is_foretold() {
    let occ = AnyProtocol::named("occ").expect("a protocol");
    let settings: &[(&str, &str)] =
        &[("items", "1000"), ("customers_per_district", "30"), ("orders_per_district", "30")];
    for via in [Via::OneSided, Via::TwoSided] {
        let plan = Plan { coroutines: 1, ..Plan::uniform(via) };
        let on = On { measured: Nanos::from_micros(1_500), ..four(&shipped()) };
        let ran = ran(&on, occ, plan, "tpcc-no", settings);
        let [said, got] = attempts(&ran);
        println!("{via}: attempts {said:.3} {got:.3}, rate off by {:+.3}", ran.error());
        // All attempts ask for locks, and what commits is installed. (What is fetched depends on how long the cache has been in
        // use: at first it holds records that nobody looks for.)
        assert!((got / said - 1.0).abs() < 0.06, "{via}: {said} attempts said, {got} counted");
        for (phase, said, got) in [(Phase::Lock, said, got), (Phase::Install, 1.0, 1.0)] {
            let [(foretold, counted), ..] = ran.counts(phase);
            println!("    {phase}: {:.2} said, {:.2} counted", foretold / said, counted / got);
            let off = (counted / got) / (foretold / said) - 1.0;
            assert!(off.abs() < 0.06, "{phase} {via}: {foretold} said, {counted} counted");
        }
    }
}

/// An attempt leaves the places of its records in the location cache, and the next one finds most of them there: it asks for less
/// than the first.
#[test]
fn attempts_after_the_first_find_their_records_in_the_cache() {
    let occ = AnyProtocol::named("occ").expect("a protocol");
    let fetch = Step { outstanding: true, ..Step::table2(Phase::Fetch, Via::OneSided) };
    let plan = Plan { coroutines: 8, fetch: Some(fetch), ..Plan::uniform(Via::OneSided) };
    let common = [("reads", "0"), ("writes", "6"), ("together", "true")];
    let few: &[(&str, &str)] = &[("records_per_thread", "300")];
    let hot: &[(&str, &str)] =
        &[("records_per_thread", "1000"), ("hot_records_share", "0.02"), ("hot_accesses_share", "0.3")];
    for (settings, cache_bytes) in [(few, 2_400), (hot, 8_000)] {
        let shape = Shape { nodes: 4, workers: 1 };
        let on = On { shape, cache_bytes, measured: Nanos::from_millis(4), ..four(&shipped()) };
        let ran = ran(&on, occ, plan, "micro", &[&common, settings].concat());
        let [attempts, got] = attempts(&ran);
        let [(verbs, counted), ..] = ran.counts(Phase::Fetch);
        let (said, got) = (verbs / attempts, counted / got);
        println!("{said:.2} requests said, {got:.2} counted, rate off by {:+.3}", ran.error());
        assert!((got / said - 1.0).abs() < 0.08, "{said} requests for each attempt said, {got} counted");
        assert!(ran.error().abs() < 0.06, "{:+.3} off what is foretold", ran.error());
    }
}

/// New-order's district is locked by the own CPU, before any of its stocks at other nodes: found by combination 6 of seed 10, where a
/// third less than came had been foretold. It still is by a quarter, see `experiments/REGRET.md`.
#[test]
fn who_loses_a_lock_at_home_asks_nobody_else() {
    let occ = AnyProtocol::named("occ").expect("a protocol");
    let fetch = Step { outstanding: true, ..Step::table2(Phase::Fetch, Via::OneSided) };
    let plan = Plan { coroutines: 8, fetch: Some(fetch), ..Plan::uniform(Via::OneSided) };
    let settings = [
        ("items", "912"),
        ("customers_per_district", "30"),
        ("orders_per_district", "30"),
        ("order_room_per_district", "270"),
    ];
    let profile = Profile::shipped("cx6").expect("a shipped profile");
    let shape = Shape { nodes: 3, workers: 1 };
    let on = On { shape, measured: Nanos::from_millis(6), ..four(&profile) };
    let ran = ran(&on, occ, plan, "tpcc-no", &settings);
    let [attempts, got] = attempts(&ran);
    let [(verbs, counted), ..] = ran.counts(Phase::Lock);
    let (said, got) = (verbs / attempts, counted / got);
    println!("{said:.2} requests said, {got:.2} counted, rate off by {:+.3}", ran.error());
    // Twenty, if every attempt asked for ten stocks.
    assert!(got < 18.0 && (got / said - 1.0).abs() < 0.08, "{said} requests said, {got} counted");
}

/// Heavy contention, as combination 191 of seed 12 draws it: three in four attempts and more abort. Locks by calls had been foretold at 0.6 of
/// their rate: requests were not served before coroutines, as a core does, the own CPU was not the first to lock its own records, and who
/// failed had locked all others in vain; slots for new records were set aside by those who failed, too.
#[test]
fn calls_that_lock_under_heavy_contention_are_not_undersold() {
    let occ = AnyProtocol::named("occ").expect("a protocol");
    let profile = Profile::drawn(755_082).expect("a drawn profile");
    let settings = [
        ("items", "355"),
        ("customers_per_district", "30"),
        ("orders_per_district", "30"),
        ("order_room_per_district", "113"),
    ];
    for via in [Via::OneSided, Via::TwoSided] {
        let awaited = |phase| Some(Step { passive_ack: false, ..Step::table2(phase, Via::OneSided) });
        let plan = Plan {
            coroutines: 16,
            fetch: Some(Step { outstanding: true, ..Step::table2(Phase::Fetch, Via::Hybrid) }),
            lock: Some(Step::table2(Phase::Lock, via)),
            install: awaited(Phase::Install),
            unlock: awaited(Phase::Unlock),
            ..Plan::uniform(Via::OneSided)
        };
        let on = On { warm_up: Nanos::from_millis(1), measured: Nanos::from_millis(10), ..four(&profile) };
        let ran = ran(&on, occ, plan, "tpcc-no", &settings);
        let [said, got] = attempts(&ran);
        let [(unlocks, counted), ..] = ran.counts(Phase::Unlock);
        let in_vain = (unlocks / (said - 1.0), counted / (got - 1.0));
        println!(
            "{via}: attempts {said:.2} {got:.2}, unlocks of one that fails {in_vain:.2?}, rate off by {:+.3}",
            ran.error()
        );
        assert!(ran.error().abs() < 0.25, "{via}: {:+.3} off what is foretold", ran.error());
        assert!((in_vain.1 / in_vain.0 - 1.0).abs() < 0.2, "{via}: unlocks said and counted {in_vain:?}");
    }
}

/// Who fails under OCC comes back to the same records, and whoever held one of them may not have left yet: combination 43 of seed 12, of whose
/// attempts 22 % were foretold to abort where 27 % do.
#[test]
fn who_fails_finds_its_rival_still_there() {
    let occ = AnyProtocol::named("occ").expect("a protocol");
    let profile = Profile::shipped("cx4-edr-x2").expect("a shipped profile");
    let settings = [
        ("records_per_thread", "2070"),
        ("fields", "3"),
        ("operations", "10"),
        ("write_share", "0.88"),
        ("think_us", "4"),
        ("together", "true"),
        ("hot_records_share", "0.03"),
        ("hot_accesses_share", "0.18"),
    ];
    let fetch = Step { outstanding: true, ..Step::table2(Phase::Fetch, Via::TwoSided) };
    let plan =
        Plan { coroutines: 4, location_cache: false, fetch: Some(fetch), ..Plan::uniform(Via::TwoSided) };
    let on = On {
        shape: Shape { nodes: 3, workers: 1 },
        replicas: 2,
        measured: Nanos::from_millis(20),
        ..four(&profile)
    };
    let ran = ran(&on, occ, plan, "ycsb", &settings);
    let said = ran.said.aborted_per_s / (ran.said.aborted_per_s + ran.said.committed_per_s);
    let got = ran.result.aborted_share().expect("some ended");
    println!("aborted: said {said:.3}, got {got:.3}; rate off by {:+.3}", ran.error());
    assert!((said - got).abs() < 0.03, "{said} said, {got} counted");
    assert!(ran.error().abs() < 0.1, "{:+.3} off what is foretold", ran.error());
}

/// Two nodes whose new-orders all take their stocks from the other one (combination 181 of seed 11): nobody meets anybody. With one
/// coroutine each more than a fifth of attempts had been foretold to abort.
#[test]
fn who_comes_to_another_node_alone_meets_nobody() {
    let occ = AnyProtocol::named("occ").expect("a protocol");
    let settings = [("items", "283"), ("customers_per_district", "30"), ("orders_per_district", "30")];
    for via in [Via::OneSided, Via::TwoSided] {
        let fetch = Step { outstanding: true, ..Step::table2(Phase::Fetch, Via::OneSided) };
        // Awaited: else it would meet what it has installed itself just before.
        let install = Step { passive_ack: false, ..Step::table2(Phase::Install, via) };
        let plan = Plan { coroutines: 1, fetch: Some(fetch), install: Some(install), ..Plan::uniform(via) };
        let on =
            On { shape: Shape { nodes: 2, workers: 1 }, measured: Nanos::from_millis(3), ..four(&shipped()) };
        let ran = ran(&on, occ, plan, "tpcc-no", &settings);
        println!("{via}: attempts {:.3?}, rate off by {:+.3}", attempts(&ran), ran.error());
        assert_eq!(attempts(&ran), [1.0, 1.0], "{via}");
        assert!(ran.error().abs() < 0.1, "{via}: {:+.3} off what is foretold", ran.error());
    }
}

/// Where nobody writes, leases reach as far as anybody reads: under SUNDIAL nothing is renewed. Found by 25 and 218 of seed 11, of which
/// half and two thirds of the rate had been foretold.
#[test]
fn leases_that_nobody_writes_under_are_not_renewed() {
    let sundial = AnyProtocol::named("sundial").expect("a protocol");
    let settings = [("reads", "7"), ("writes", "0"), ("records_per_thread", "700"), ("together", "true")];
    for via in [Via::OneSided, Via::TwoSided] {
        let plan = Plan { coroutines: 4, ..Plan::uniform(via) }.restricted_to(sundial.needs());
        let ran = ran(&four(&shipped()), sundial, plan, "micro", &settings);
        println!("{via}: {:?}, rate off by {:+.3}", ran.counts(Phase::Validate), ran.error());
        assert_eq!(ran.counts(Phase::Validate), [(0.0, 0.0); 3], "{via}");
        assert!(ran.error().abs() < 0.12, "{via}: {:+.3} off what is foretold", ran.error());
    }
}

/// Under bounded waiting nothing keeps two from waiting for each other, until one has looked often enough; and what one has is held while it waits
/// for others. Found by combinations 4 and 7 of seed 12 and 359, 369 and 381 of seed 13, of which up to eight times what came had been foretold, and next to no
/// aborts where up to four in five were.
#[test]
fn who_waits_in_a_circle_gives_up() {
    let protocol = AnyProtocol::named("bounded-wait").expect("a protocol");
    let micro = |together, writes, skew: [(&'static str, &'static str); 2]| {
        let records = [("records_per_thread", "600"), ("reads", "6"), ("payload_bytes", "80")];
        [&records[..], &[("together", together), ("writes", writes)], &skew].concat()
    };
    let hot = [("hot_accesses_share", "0.5"), ("hot_records_share", "0.02")];
    let zipf = [("zipf_theta", "0.64"), ("hot_records_share", "0.0")];
    for (via, coroutines, settings, most) in [
        (Via::TwoSided, 4, micro("false", "5", hot), 0.2),
        (Via::OneSided, 4, micro("false", "5", hot), 0.2),
        (Via::OneSided, 4, micro("true", "5", zipf), 0.5),
    ] {
        let on = On { measured: Nanos::from_millis(4), ..four(&shipped()) };
        let plan = Plan { coroutines, ..Plan::uniform(via).restricted_to(protocol.needs()) };
        let ran = ran(&on, protocol, plan, "micro", &settings);
        let [said, got] = attempts(&ran);
        let error = ran.error();
        println!("{via}, {settings:?}: {error:+.3}, attempts: said {said:.2} got {got:.2}");
        assert!(got > 1.2 && (said / got).ln().abs() < most, "{said} attempts foretold, {got} counted");
        assert!((1.0 + error).ln().abs() < most, "{error:+.3} off what is foretold");
    }
}

/// Attempts for each commit: foretold, and counted.
fn attempts(ran: &Ran) -> [f64; 2] {
    let said = 1.0 + ran.said.aborted_per_s / ran.said.committed_per_s;
    [said, 1.0 / (1.0 - ran.result.aborted_share().unwrap_or(0.0))]
}

/// All of TPC-C, ten terminals to a warehouse: its classes meet at the warehouse, most of them before they have anything, and deliveries
/// at a warehouse's oldest order, so that what counts is in which order they come to their records.
#[test]
fn all_of_tpcc_is_foretold_where_terminals_meet_at_their_warehouses() {
    const SIZES: [(&str, &str); 4] = [
        ("items", "1000"),
        ("customers_per_district", "30"),
        ("orders_per_district", "10"),
        ("order_room_per_district", "512"),
    ];
    let profile = shipped();
    let on = On {
        shape: Shape { nodes: 4, workers: 4 },
        replicas: 3,
        cache_bytes: 16 << 20,
        warm_up: Nanos::from_micros(2_000),
        measured: Nanos::from_micros(5_000),
        ..four(&profile)
    };
    // By which factor forecasts were off at most when this was written, and a tenth: of one client to a thread, of four, and of ten.
    for (protocol, via, within) in [
        ("nowait", Via::OneSided, [1.2, 1.2, 1.3]),
        ("nowait", Via::TwoSided, [1.15, 1.25, 1.25]),
        ("waitdie", Via::TwoSided, [1.15, 1.25, 1.3]),
        ("bounded-wait", Via::TwoSided, [1.15, 1.2, 1.2]),
        ("mvcc", Via::OneSided, [1.3, 1.2, 1.4]),
        ("sundial", Via::OneSided, [1.2, 1.3, 1.35]),
        ("occ", Via::TwoSided, [1.15, 1.2, 1.2]),
    ] {
        let protocol = AnyProtocol::named(protocol).expect("a protocol");
        for (coroutines, within) in [1, 4, 10].into_iter().zip(within) {
            let plan = Plan { coroutines, ..Plan::uniform(via).restricted_to(protocol.needs()) };
            let ran = ran(&on, protocol, plan, "tpcc", &SIZES);
            let off = 1.0 + ran.error();
            println!(
                "{} {via}, {coroutines} coroutines: {off:.2} times what is foretold",
                protocol.needs().protocol
            );
            assert!(
                (1.0 / within..within).contains(&off),
                "{} {via} {coroutines}: {off}",
                protocol.needs().protocol
            );
        }
    }
}
