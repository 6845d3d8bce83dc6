//! The swarm: plan, workload, cluster, card and faults all drawn from a seed; every history checked.
//!
//! A few fixed seeds by default, `DOORBELL_SEEDS=200` for more. A failure ends with the command that repeats it:
//! `DOORBELL_SEED=17 cargo test -p doorbell-engine --test swarm -- --exact drawn_runs_are_strictly_serializable`. On the simulator that is an exact replay; on threads
//! it is the same case, and the interleaving may take a few tries. Before it ends, a failing case is run again with fewer nodes,
//! workers, coroutines, transactions, replicas and without faults, and the smallest that still fails in the same way is told with the command for it
//! (`DOORBELL_CUT`). `-- --nocapture` tells how many attempts the runs of each protocol made, and the most that one transaction needed.

mod common;

use common::contended::{SEEDS_PER_BUG, contended};
use common::shrink::{Size, shrink};
use common::{Broken, Case, Failure, OTHERS, judge, judged, plans_of, plans_where, sim};
use engine::cluster::{Clocks, Length, RunResult, RunSpec, admit, needs};
use engine::protocol::planted::{Bug, Planted};
use engine::protocol::{AnyProtocol, Protocol};
use engine::workload::WORKLOADS;
use phases::plan::{Needs, Phase, Plan, Step, Via};
use primitives::fabric::AtomicScope;
use primitives::fabric::loopback::{Mode, Options};
use primitives::fabric::sim::FaultOptions;
use primitives::mesh::{FabricSpec, Shape};
use primitives::profile::Profile;
use primitives::units::Nanos;
use primitives::verbs::NodeId;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// Seeds of a run without `DOORBELL_SEEDS`.
const SEEDS: u64 = 24;

/// Every plan of OCC that runs on all fabrics here.
fn plans() -> Vec<Plan> {
    plans_of(&Needs::OCC)
}

fn draw_faults(rng: &mut Xoshiro256PlusPlus, nodes: u16) -> FaultOptions {
    let mut faults = FaultOptions::default();
    if rng.random::<f64>() < 0.7 {
        faults.datagram_loss = rng.random_range(0.0..0.05);
    }
    if rng.random::<f64>() < 0.7 {
        faults.transit_jitter = Nanos(rng.random_range(0..20_000));
        faults.completion_jitter = Nanos(rng.random_range(0..5_000));
    }
    faults.torn_read = rng.random_range(0.0..0.5);
    faults.torn_write = rng.random_range(0.0..0.5);
    // Nearly free CPUs up to tenfold costs: figures change, correctness may not.
    if rng.random::<f64>() < 0.5 {
        let node = NodeId(rng.random_range(0..nodes));
        faults.slow.push((node, *[0.01, 0.5, 3.0, 10.0].choose(rng).expect("a choice of four")));
    }
    faults
}

fn draw_settings(rng: &mut Xoshiro256PlusPlus) -> (&'static str, Vec<(&'static str, String)>) {
    match rng.random_range(0..3) {
        0 => {
            let settings = vec![
                ("accounts_per_thread", rng.random_range(50..200u32).to_string()),
                ("hot_accounts_share", "0.1".to_owned()),
                ("savings_withdrawal_share", format!("{:.1}", rng.random_range(0.0..1.0))),
                ("payload_bytes", (8 * rng.random_range(1..20u32)).to_string()),
            ];
            ("smallbank", settings)
        }
        1 => {
            let settings = vec![
                ("records_per_thread", rng.random_range(20..100u32).to_string()),
                ("reads", rng.random_range(0..5u32).to_string()),
                ("writes", rng.random_range(1..5u32).to_string()),
                ("payload_bytes", (8 * rng.random_range(1..40u32)).to_string()),
                ("zipf_theta", format!("{:.2}", rng.random_range(0.0..0.99))),
                ("blind", rng.random::<bool>().to_string()),
                ("together", rng.random::<bool>().to_string()),
            ];
            ("micro", settings)
        }
        _ => ("ycsb", draw_ycsb(rng)),
    }
}

fn draw_ycsb(rng: &mut Xoshiro256PlusPlus) -> Vec<(&'static str, String)> {
    let mut settings = vec![
        ("records_per_thread", rng.random_range(20..100u32).to_string()),
        ("fields", rng.random_range(1..6u32).to_string()),
        ("field_bytes", rng.random_range(8..60u32).to_string()),
        ("operations", rng.random_range(1..8u32).to_string()),
        ("write_share", format!("{:.2}", rng.random_range(0.0..1.0))),
        ("blind", rng.random::<bool>().to_string()),
        ("together", rng.random::<bool>().to_string()),
        ("think_us", format!("{:.1}", rng.random_range(0.0..3.0))),
    ];
    if rng.random() {
        settings.push(("zipf_theta", format!("{:.2}", rng.random_range(0.0..0.99))));
    } else {
        settings.push(("hot_records_share", "0.05".to_owned()));
        settings.push(("hot_accesses_share", format!("{:.1}", rng.random_range(0.0..1.0))));
    }
    settings
}

/// Everything about a run from a seed, and the fabric's name.
fn draw(seed: u64) -> (Case, &'static str) {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    let shape = Shape { nodes: rng.random_range(1..=4), workers: rng.random_range(1..=2) };
    let (workload, settings) = draw_settings(&mut rng);
    let settings: Vec<(&str, &str)> = settings.iter().map(|(k, v)| (*k, v.as_str())).collect();
    let plan = *plans().choose(&mut rng).expect("there are plans");
    let loss = if rng.random() { 0.02 } else { 0.0 };
    let options = Options { seed, datagram_loss: loss, ..Options::default() };
    // Mostly the simulator: it is deterministic, and its faults are the richest.
    let (name, fabric) = match rng.random_range(0..6) {
        0 => ("loopback", FabricSpec::Loopback(options)),
        1 => (
            "loopback-nic-thread",
            FabricSpec::Loopback(Options { mode: Mode::NicThread { seed }, ..options }),
        ),
        _ => ("sim", sim(seed, draw_faults(&mut rng, shape.nodes))),
    };
    let mut case = Case::new(workload, &settings, RunSpec::new(fabric, shape, plan));
    case.spec.seed = seed;
    case.spec.plan.coroutines = rng.random_range(1..=8);
    case.spec.replicas = rng.random_range(1..=shape.nodes.min(3));
    case.spec.length = Length::Transactions(rng.random_range(20..80));
    case.spec.worker.rpc.window = *[4, 16, 32].choose(&mut rng).expect("a choice of three");
    // Real threads may be kept from the CPU for long; that is slow, not a fault. Virtual ones are not.
    if name == "sim" {
        case.spec.worker.rpc.retransmit_after = Nanos::from_micros(150);
    } else {
        case.spec.worker.rpc.retransmit_after = Nanos::from_millis(2);
        case.spec.worker.rpc.max_retransmits = 10_000;
    }
    if name == "loopback-nic-thread" {
        // It pauses between words, so that others see the middle of a transfer: some thousand requests a second. With
        // more load than that, calls time out before they are answered and the run is spent on repetitions.
        case.spec.worker.rpc.retransmit_after = Nanos::from_millis(40);
        case.spec.plan.coroutines = case.spec.plan.coroutines.min(2);
        case.spec.length = Length::Transactions(20);
    }
    // The location cache starts empty or filled: an empty one takes every path of a miss.
    case.spec.warm_cache = rng.random();
    // Several queue pairs to a peer, short queues that fill up, and confirmations that come late or at once.
    case.spec.worker.lanes = rng.random_range(1..=3);
    case.spec.worker.qp.send_depth = *[16, 32, 128].choose(&mut rng).expect("a choice of three");
    case.spec.worker.port.signal_period = rng.random_range(1..=case.spec.worker.qp.send_depth / 2);
    (case, name)
}

/// As [`draw`], under the others in turn, so that few seeds leave none out, and with clocks that are wrong.
fn draw_other(seed: u64) -> (Case, &'static str) {
    let (mut case, name) = draw(seed);
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(!seed);
    let protocol = OTHERS[seed as usize % OTHERS.len()];
    case.protocol = AnyProtocol::named(protocol).expect("a protocol");
    let plan = *plans_of(case.protocol.needs()).choose(&mut rng).expect("there are plans");
    case.spec.plan = Plan { coroutines: case.spec.plan.coroutines, ..plan };
    case.spec.clocks = Clocks {
        skew: Nanos(rng.random_range(0..200_000)),
        jump_at: Nanos(rng.random_range(0..400_000)),
        jump_ns: rng.random_range(-300_000..300_000),
        first_tick: rng.random_range(0..1000),
    };
    (case, name)
}

/// As [`draw`], with orders that are placed, paid for, delivered and looked at, or customers' positions.
fn draw_orders(seed: u64) -> (Case, &'static str) {
    let (mut case, name) = draw(seed);
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed.rotate_left(32));
    let mut settings: Vec<(&str, String)> = Vec::new();
    case.workload = *["tpcc", "tpcc", "tpcc-no", "tpce-cp"].choose(&mut rng).expect("a choice of four");
    // Suppliers are on other nodes.
    let least = if case.workload == "tpcc-no" { 2 } else { 1 };
    case.spec.shape.nodes = case.spec.shape.nodes.max(least);
    if case.workload != "tpce-cp" {
        let customers = rng.random_range(10..30u32);
        settings.extend([
            ("warehouses", rng.random_range(u32::from(least)..6).to_string()),
            ("customers_per_district", customers.to_string()),
            ("orders_per_district", rng.random_range(1..=customers).to_string()),
            ("items", rng.random_range(20..200u32).to_string()),
            ("order_room_per_district", "200".to_owned()),
            ("remote_item_share", format!("{:.1}", rng.random_range(0.0..1.0))),
            ("rollback_share", "0.1".to_owned()),
            ("together", rng.random::<bool>().to_string()),
        ]);
        if case.workload == "tpcc" {
            settings.push(("delivery", rng.random_range(1..30u32).to_string()));
        }
    } else {
        settings.extend([
            ("load_units", "1".to_owned()),
            ("customers_per_load_unit", rng.random_range(40..100u32).to_string()),
            ("trades_per_account", rng.random_range(0..15u32).to_string()),
            ("market_feed", "1".to_owned()),
            ("local_customers", rng.random::<bool>().to_string()),
        ]);
    }
    case.settings = settings.into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
    case.spec.length = Length::Transactions(rng.random_range(5..25));
    case.spec.log_ring_bytes = 1 << 16;
    (case, name)
}

/// As [`draw_orders`], under another protocol that can run them, and with clocks that are wrong.
fn draw_orders_under_others(seed: u64) -> (Case, &'static str) {
    let (mut case, name) = draw_orders(seed);
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(!seed);
    let workload = case.workload();
    let able = |name: &&&str| AnyProtocol::named(name).is_some_and(|p| admit(&workload, &p).is_ok());
    let others: Vec<&str> = OTHERS.iter().filter(able).copied().collect();
    case.protocol =
        AnyProtocol::named(others.choose(&mut rng).expect("there are others")).expect("a protocol");
    let plan = *plans_of(case.protocol.needs()).choose(&mut rng).expect("there are plans");
    case.spec.plan = Plan { coroutines: case.spec.plan.coroutines, ..plan };
    case.spec.clocks = Clocks {
        skew: Nanos(rng.random_range(0..50_000)),
        jump_at: Nanos(rng.random_range(0..400_000)),
        jump_ns: rng.random_range(-300_000..300_000),
        first_tick: rng.random_range(0..1000),
    };
    (case, name)
}

/// Shipped cards that are drawn: those that came later would make other cases of all seeds there are.
const CARDS: usize = 19;

/// The same on a card drawn from the seed where it is simulated: a shipped one of those that can carry the plan, or one that nobody has.
/// The draws are a stream of their own, so that all else a seed means does not depend on which cards there are.
fn on_a_card(seed: u64, (mut case, name): (Case, &'static str)) -> (Case, &'static str) {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed ^ 0x6361_7264);
    let FabricSpec::Sim { faults, .. } = &case.spec.fabric else { return (case, name) };
    let faults = (**faults).clone();
    let on = |profile| FabricSpec::Sim { profile: Box::new(profile), seed, faults: Box::new(faults.clone()) };
    case.spec.fabric = if rng.random() {
        on(Profile::drawn(rng.random_range(0..1_000_000)).expect("a drawn profile"))
    } else {
        let needs = needs(&case.spec, &case.workload(), &case.protocol);
        let shipped =
            Profile::NAMES[..CARDS].iter().map(|name| on(Profile::shipped(name).expect("a shipped profile")));
        let able = |fabric: &FabricSpec| case.spec.plan.check(&fabric.caps().expect("caps"), &needs).is_ok();
        let able: Vec<FabricSpec> = shipped.filter(able).collect();
        able.choose(&mut rng).expect("one that can carry it").clone()
    };
    // CALVIN takes a node for stuck after four times as long as a call may stay unanswered by the configured wait, whatever calls have
    // learned since. With the wait of other cards here that is half a second, and an epoch of 200 transactions takes longer than that over a
    // software device (seed 244 of `orders_and_positions_keep_other_promises`): whoever runs there has to ask for a longer one.
    let FabricSpec::Sim { profile, .. } = &case.spec.fabric else { return (case, name) };
    if case.protocol.sequenced().is_some() && profile.name.contains("softroce") {
        case.spec.worker.rpc.retransmit_after = Nanos::from_millis(2);
    }
    (case, name)
}

/// The same with what else may differ, each of it drawn by a stream of its own as well, and kept only where the case can still run:
/// - a plan of those that need ATOMICs to be atomic for CPUs, too, where they are, as on loopback and on some simulated cards;
/// - optimizations of each phase apart, where [`plans_of`] has them alike in all: one record after the other, a doorbell each, all awaited;
/// - records of other nodes alone, location caches of one word and of thousands, CALVIN's batches and epochs;
/// - WRITEs that end before they are whole, CAS that fail and write back what they found.
fn varied(seed: u64, (mut case, name): (Case, &'static str)) -> (Case, &'static str) {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed ^ 0x7661_7279);
    let runs = |case: &Case| {
        let caps = case.spec.fabric.caps().expect("caps");
        let checked = |w| case.spec.plan.check(&caps, &needs(&case.spec, &w, &case.protocol)).is_ok();
        case.parsed().is_ok_and(checked)
    };
    let mut change =
        |share: f64, rng: &mut Xoshiro256PlusPlus, how: &dyn Fn(&mut Case, &mut Xoshiro256PlusPlus)| {
            let mut changed = case.clone();
            if rng.random::<f64>() < share {
                how(&mut changed, rng);
                if runs(&changed) {
                    case = changed;
                }
            }
        };
    change(0.4, &mut rng, &|case, rng| {
        if let FabricSpec::Sim { profile, .. } = &mut case.spec.fabric {
            profile.nic.atomic_scope = AtomicScope::Global;
        }
        let plans = plans_where(AtomicScope::Global, case.protocol.needs());
        let plan = *plans.choose(rng).expect("there are plans");
        case.spec.plan = Plan { coroutines: case.spec.plan.coroutines, ..plan };
    });
    for phase in Phase::ALL {
        change(0.4, &mut rng, &|case, rng| {
            let step = case.spec.plan.step(phase).map(|step| Step {
                outstanding: rng.random(),
                doorbell_batching: rng.random(),
                passive_ack: step.passive_ack && rng.random(),
                ..step
            });
            case.spec.plan.set(phase, step);
        });
    }
    change(0.3, &mut rng, &|case, _| case.settings.push(("remote".to_owned(), "true".to_owned())));
    change(0.5, &mut rng, &|case, rng| {
        case.spec.cache_bytes = *[8, 512, 1 << 17].choose(rng).expect("a choice of three");
    });
    change(0.8, &mut rng, &|case, rng| {
        if case.protocol.sequenced().is_some() {
            let (batch, epoch) = (rng.random_range(1..=8), rng.random_range(0..30));
            case.protocol = AnyProtocol::parse(&format!("calvin:batch={batch},epoch_us={epoch}"))
                .expect("settings of CALVIN");
        }
    });
    change(0.3, &mut rng, &|case, rng| {
        if let FabricSpec::Sim { faults, .. } = &mut case.spec.fabric {
            faults.late_write = rng.random_range(0.0..0.3);
        }
    });
    change(0.3, &mut rng, &|case, _| {
        if let FabricSpec::Sim { faults, .. } = &mut case.spec.fabric {
            faults.failed_cas_stores = true;
        }
    });
    (case, name)
}

fn env(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name}={text} is not a number")))
}

/// Nobody needs as many attempts as would make it give up, where time is virtual: on threads whoever holds a lock may be kept from the
/// CPU for hundreds of attempts of others.
fn judged_with_progress(case: &Case, name: &str) -> Result<RunResult, Failure> {
    let result = judged(case, name)?;
    let needs = case.protocol.needs();
    let (most, limit) = (result.stats.attempts_most, u64::from(case.spec.retry.attempts) / 2);
    let promised = name == "sim";
    if promised && most > limit {
        let aborts: Vec<_> = result.stats.aborts.iter().collect();
        let text = format!("{} on {name}: a transaction took {most} attempts: {aborts:?}", needs.protocol);
        return Err(Failure { broken: Broken::Starved, text });
    }
    Ok(result)
}

/// The same of a run that may end in a panic of the program's own.
fn caught(case: &Case, name: &str) -> Result<RunResult, Failure> {
    std::panic::catch_unwind(|| judged_with_progress(case, name)).unwrap_or_else(|panic| {
        let said = panic.downcast_ref::<String>().cloned();
        let said = said.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        Err(Failure { broken: Broken::Panicked, text: said.unwrap_or_else(|| "a panic".to_owned()) })
    })
}

/// What the attempts of several runs came to.
#[derive(Default)]
struct Attempts {
    runs: u64,
    all: u64,
    committed: u64,
    given_up: u64,
    /// The most of one transaction.
    most: u64,
}

impl Attempts {
    fn add(&mut self, result: &RunResult) {
        let stats = &result.stats;
        self.runs += 1;
        self.all += stats.committed + stats.rolled_back.total() + stats.aborts.total();
        self.committed += stats.committed;
        self.given_up += stats.given_up;
        self.most = self.most.max(stats.attempts_most);
    }
}

impl fmt::Display for Attempts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Attempts { runs, all, committed, given_up, most } = self;
        write!(f, "{all} attempts in {runs} runs, {committed} transactions committed, {given_up} given up")?;
        write!(f, ", at most {most} attempts of one transaction")
    }
}

/// Judges the runs of all seeds; a failure prints the command that repeats it.
fn all_seeds(test: &str, draw: impl Fn(u64) -> (Case, &'static str)) {
    let seeds = match env("DOORBELL_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..env("DOORBELL_SEEDS").unwrap_or(SEEDS),
    };
    let mut sums: BTreeMap<(&str, &str), Attempts> = BTreeMap::new();
    for seed in seeds {
        let (mut case, name) = varied(seed, on_a_card(seed, draw(seed)));
        if let Ok(cut) = std::env::var("DOORBELL_CUT") {
            let size: Size = cut.parse().unwrap_or_else(|why| panic!("DOORBELL_CUT={cut}: {why}"));
            case = size.cut(&case);
        }
        match caught(&case, name) {
            Ok(result) => {
                let time = if name == "sim" { "virtual time" } else { "real time" };
                for protocol in [case.protocol.needs().protocol, "all"] {
                    sums.entry((time, protocol)).or_default().add(&result);
                }
            }
            Err(failure) => {
                eprintln!("failed: {case:?}");
                let cargo = format!("cargo test -p doorbell-engine --test swarm -- --exact {test}");
                eprintln!("repeat: DOORBELL_SEED={seed} {cargo}");
                let size = shrink(&case, |cut| caught(cut, name).is_err_and(|f| f.broken == failure.broken));
                if size != Size::of(&case) {
                    eprintln!("smaller: DOORBELL_SEED={seed} DOORBELL_CUT={size} {cargo}");
                }
                panic!("{}", failure.text);
            }
        }
    }
    for ((time, protocol), sum) in sums {
        eprintln!("{test}, {time}, {protocol}: {sum}");
    }
}

#[test]
fn drawn_runs_are_strictly_serializable() {
    all_seeds("drawn_runs_are_strictly_serializable", draw);
}

#[test]
fn orders_and_positions_are_strictly_serializable() {
    all_seeds("orders_and_positions_are_strictly_serializable", draw_orders);
}

#[test]
fn orders_and_positions_keep_other_promises() {
    all_seeds("orders_and_positions_keep_other_promises", draw_orders_under_others);
}

/// Sixty-four coroutines that want four of the same few records each, on a card where a commit takes longer than the usual pause; and a
/// market feed that wants twenty records at once which customers lock, on one whose ATOMICs are slow. Some gave up after a thousand
/// attempts each, until pauses went on to grow. And calls whose usual round trip is longer than the wait after which they are sent again:
/// one node was slow and drowned in repetitions, until callers learned how long it takes.
#[test]
fn what_once_starved_ends() {
    let others = [17, 203].map(|seed| (seed, draw_orders_under_others(seed)));
    let waits = [(159, draw(159)), (159, draw_other(159)), (344, draw_orders(344))];
    let waits = waits.into_iter().chain(others).map(|wait| (false, wait));
    let calls = [(365, draw(365)), (256, draw_orders(256))].map(|call| (true, call));
    for (by_calls, (seed, (case, name))) in waits.chain(calls) {
        let (case, name) = varied(seed, on_a_card(seed, (case, name)));
        assert_eq!(name, "sim", "{case:?}");
        let result = judged_with_progress(&case, name).unwrap_or_else(|failure| panic!("{}", failure.text));
        let still = match by_calls {
            true => result.rpc.retransmits > 100,
            false => result.stats.attempts_most > 20,
        };
        assert!(still, "{} of seed {seed} is no longer such a case: {:?}", case.workload, result.rpc);
    }
}

/// A failing case is cut down to what still fails, and its size is told in a way that can be read back.
#[test]
fn a_failing_case_is_made_smaller() {
    let bug = Planted(Bug::NoValidation);
    let fails = |case: &Case| !case.run_planted(bug.0).0.passed();
    let failing = (0..SEEDS_PER_BUG).map(|seed| contended(seed, bug.0)).find(&fails);
    let case = failing.expect("one of the seeds shows the bug");
    let size = shrink(&case, fails);
    assert_ne!(size, Size::of(&case), "nothing could be taken away");
    assert!(fails(&size.cut(&case)));
    assert_eq!(size.to_string().parse(), Ok(size));
    assert!("nodes".parse::<Size>().is_err() && "nodes=x".parse::<Size>().is_err());
}

#[test]
fn other_protocols_keep_their_promises() {
    all_seeds("other_protocols_keep_their_promises", draw_other);
}

#[test]
fn a_simulated_run_is_a_value_of_its_seed() {
    let simulated = (0..).map(|seed| on_a_card(seed, draw(seed))).filter(|(_, name)| *name == "sim").take(4);
    for (case, name) in simulated {
        let (a, b) = (judge(&case, name), judge(&case, name));
        assert_eq!(a.facts.of_seed(), b.facts.of_seed(), "{case:?}");
        assert_eq!(a.stats.aborts, b.stats.aborts);
        assert_eq!(a.stats.latency.to_data(), b.stats.latency.to_data());
        assert_eq!((a.traffic, a.rpc, a.cache), (b.traffic, b.rpc, b.cache));
        let mut other = case.clone();
        other.spec.seed += 1;
        assert_ne!(judge(&other, name).facts.fingerprint, a.facts.fingerprint, "seeds make a difference");
    }
}

/// What is drawn within the seeds of a run, so that nothing is left out for good.
#[test]
fn every_workload_is_drawn() {
    let drawn: BTreeSet<&str> =
        (0..SEEDS).flat_map(|seed| [draw(seed), draw_orders(seed)]).map(|(case, _)| case.workload).collect();
    let all: BTreeSet<&str> = WORKLOADS.iter().map(|(name, _)| *name).collect();
    assert_eq!(drawn, all);
    let pairs: BTreeSet<(&str, &str)> = (0..SEEDS)
        .map(|seed| draw_other(seed).0)
        .map(|case| (case.workload, case.protocol.needs().protocol))
        .collect();
    let protocols: BTreeSet<&str> = pairs.iter().map(|pair| pair.1).collect();
    assert_eq!(protocols.len(), OTHERS.len(), "{protocols:?}");
    for workload in ["smallbank", "micro", "ycsb"] {
        assert!(pairs.iter().filter(|(drawn, _)| *drawn == workload).count() >= 3, "{workload}: {pairs:?}");
    }
}

/// Simulated runs are on many cards, shipped and not.
#[test]
fn cards_are_drawn() {
    let mut cards = BTreeSet::new();
    for draw in [draw, draw_other, draw_orders, draw_orders_under_others] {
        for (case, name) in (0..SEEDS).map(|seed| on_a_card(seed, draw(seed))) {
            let FabricSpec::Sim { profile, .. } = &case.spec.fabric else { continue };
            assert_eq!(name, "sim");
            cards.insert(profile.name.clone());
        }
        let again = |seed| format!("{:?}", on_a_card(seed, draw(seed)));
        assert_eq!(again(3), again(3), "a card is a value of the seed");
    }
    let shipped = cards.iter().filter(|card| Profile::NAMES.contains(&card.as_str())).count();
    assert!(shipped >= 6 && cards.len() - shipped >= 6, "{cards:?}");
    // Cards without one-sided verbs carry calls, and nothing else.
    let two_sided = |seed| {
        let (mut case, name) = draw(seed);
        case.spec.plan = Plan::uniform(Via::TwoSided).restricted_to(&Needs::OCC);
        on_a_card(seed, (case, name)).0
    };
    let bare = |case: Case| !case.spec.fabric.caps().expect("caps").one_sided;
    assert!((0..4 * SEEDS).map(two_sided).any(bare));
}

/// What [`varied`] may change is changed by some of a run's seeds, and a failing command means the same case each time.
#[test]
fn variations_are_drawn() {
    let (mut global, mut one_by_one, mut remote, mut late, mut stored, mut epochs) = (0, 0, 0, 0, 0, 0);
    for draw in [draw, draw_other, draw_orders, draw_orders_under_others] {
        for seed in 0..SEEDS {
            let (before, name) = on_a_card(seed, draw(seed));
            let (case, _) = varied(seed, (before.clone(), name));
            assert_eq!(format!("{case:?}"), format!("{:?}", varied(seed, (before.clone(), name)).0));
            let needs = case.protocol.needs();
            global += u32::from(!plans_of(needs).iter().any(|plan| {
                Phase::ALL.iter().all(|&phase| {
                    plan.step(phase).map(|s| s.via) == case.spec.plan.step(phase).map(|s| s.via)
                })
            }));
            let steps = Phase::ALL.iter().filter_map(|&phase| case.spec.plan.step(phase));
            one_by_one += u32::from(steps.clone().any(|step| !step.outstanding));
            remote += u32::from(case.settings.iter().any(|(key, _)| key == "remote"));
            epochs += u32::from(case.protocol != before.protocol);
            let FabricSpec::Sim { faults, .. } = &case.spec.fabric else { continue };
            late += u32::from(faults.late_write > 0.0);
            stored += u32::from(faults.failed_cas_stores);
        }
    }
    let counts = [global, one_by_one, remote, late, stored, epochs];
    assert!(counts.into_iter().all(|count| count > 0), "{counts:?}");
}

/// A case cut to no faults has no wrong clocks and loses no datagrams either, whichever fabric it is on.
#[test]
fn a_cut_takes_all_faults_away() {
    let mut wrong = 0;
    for seed in 0..SEEDS {
        let (case, _) = draw_other(seed);
        let size: Size = format!("{},faults=0", Size::of(&case)).parse().expect("a size");
        let cut = size.cut(&case);
        wrong += u32::from(case.spec.clocks.skew.0 > 0 && case.spec.clocks.jump_ns != 0);
        assert_eq!((cut.spec.clocks.skew, cut.spec.clocks.jump_ns), (Nanos(0), 0), "seed {seed}");
        match cut.spec.fabric {
            FabricSpec::Sim { faults, .. } => assert_eq!(*faults, FaultOptions::default(), "seed {seed}"),
            FabricSpec::Loopback(options) => assert_eq!(options.datagram_loss, 0.0, "seed {seed}"),
            other => panic!("nothing else is drawn: {other:?}"),
        }
    }
    assert!(wrong > 10, "{wrong} clocks were wrong: the test shows nothing");
}
