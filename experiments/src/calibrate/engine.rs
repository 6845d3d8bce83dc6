//! What the engine computes for a transaction, found by running some on the fabric whose requests have just been measured.
//!
//! A profile that is fitted to requests knows nothing of read and write sets, of phases put together, of what a body does
//! with a record: where requests cost next to nothing, as in shared memory, that is most of a transaction. Two shapes of transaction
//! are run, of few records and of many, and what they take beyond what the cost model foretells of them is laid to
//! `cpu.attempt` and `cpu.access`: two equations, two numbers. Plans are one-sided throughout, so that nobody waits for the other
//! thread to get its turn, and accesses hardly ever meet. What is then foretold of other workloads is a prediction.

use crate::commands::tune;
use crate::error::CliError;
use crate::fabrics::Fabric;
use crate::spec::{PlanChoice, RunSpec, Span};
use crate::transact::{self, Keep, NamedPlan};
use phases::plan::{Plan, Preset};
use primitives::profile::{Profile, Quantity, Source, Unit};
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;

/// How the shapes' phases are carried.
const PRESET: Preset = Preset::OneSided;

/// Records that the two shapes read, and as many that they update.
const SHAPES: [u32; 2] = [1, 8];

/// Records of each shape.
const RECORDS: [f64; 2] = [2.0, 16.0];

/// Runs of each shape. The quickest counts: what other programs take of the CPU comes on top.
const TRIES: usize = 3;

/// Turns of the fit. Where the CPU alone limits, one is enough.
const TURNS: usize = 4;

/// How long each run is measured, where time is real.
pub const WINDOW: Span = Span::from_ns(100_000_000);

/// Sets `cpu.attempt` and `cpu.access` of a profile that was fitted to requests on `fabric`, so that the model foretells what the
/// two shapes are measured to commit between two nodes of one thread. On a busy machine they are marked as assumed, and it says so.
///
/// # Errors
/// If a run cannot be set up or commits nothing, or Ctrl-C ends it; `repeat` is the command that began it.
pub fn engine_time(
    profile: &mut Profile,
    fabric: &Fabric,
    window: Span,
    seed: u64,
    stop: &AtomicBool,
    repeat: &str,
) -> Result<bool, CliError> {
    let specs = SHAPES.map(|records| shape(fabric, records, window, seed));
    let (mut measured, mut busy) = ([0.0; SHAPES.len()], false);
    for (ns, spec) in measured.iter_mut().zip(&specs) {
        let quickest = measure(spec, fabric, stop, repeat)?;
        *ns = quickest.ns;
        busy |= quickest.busy;
    }
    let how = "transactions of 2 and of 16 records, half of them updated, less what the model foretells of their phases";
    let quantity = |value: f64| {
        let value = (value * 10.0).round() / 10.0;
        match busy {
            true => {
                Quantity::fixed(value, Unit::Ns, Source::Assumed, &format!("{how}; taken on a busy machine"))
            }
            false => Quantity::measured(value, Unit::Ns, how),
        }
    };
    let (mut attempt, mut access) = (0.0, 0.0);
    for _ in 0..TURNS {
        let mut beyond = measured;
        for ((beyond, spec), records) in beyond.iter_mut().zip(&specs).zip(RECORDS) {
            *beyond += attempt + records * access - foretell(spec, fabric, profile)?;
        }
        (attempt, access) = solved(beyond);
        (profile.cpu.attempt, profile.cpu.access) = (quantity(attempt), quantity(access));
    }
    Ok(busy)
}

/// Of what the shapes take beyond their phases, the part of each transaction and that of each of its records. Neither is
/// negative: if one would be, the other has it all.
fn solved([few, many]: [f64; 2]) -> (f64, f64) {
    let [fewer, more] = RECORDS;
    let access = (many - few) / (more - fewer);
    let attempt = few - fewer * access;
    let both = (few + many).max(0.0);
    match (attempt < 0.0, access < 0.0) {
        (true, _) => (0.0, both / (fewer + more)),
        (_, true) => (both / 2.0, 0.0),
        _ => (attempt, access),
    }
}

fn shape(fabric: &Fabric, records: u32, window: Span, seed: u64) -> RunSpec {
    RunSpec {
        fabric: fabric.choice.clone(),
        workload: "micro".to_owned(),
        set: BTreeMap::from([
            ("reads".to_owned(), json!(records)),
            ("writes".to_owned(), json!(records)),
            ("records_per_thread".to_owned(), json!(100_000)),
        ]),
        plan: PlanChoice::Preset(PRESET.name().to_owned()),
        coroutines: Some(Plan::DEFAULT_COROUTINES),
        nodes: 2,
        threads: 1,
        replicas: 1,
        duration: window,
        seed,
        ..RunSpec::default()
    }
}

/// The quickest run of a shape.
struct Quickest {
    /// Nanoseconds of a thread for each transaction that commits.
    ns: f64,
    /// Whether other programs took the CPU even then.
    busy: bool,
}

fn measure(spec: &RunSpec, fabric: &Fabric, stop: &AtomicBool, repeat: &str) -> Result<Quickest, CliError> {
    let named = NamedPlan::new(PRESET.name(), PRESET.plan(), None);
    // Where time is virtual all tries are alike.
    let tries = if spec.fabric.virtual_time() { 1 } else { TRIES };
    let mut quickest = Quickest { ns: f64::INFINITY, busy: false };
    for _ in 0..tries {
        let run = transact::run(spec, fabric, &named, Keep { history: false, part: false }, stop)?;
        if run.result.interrupted {
            return Err(CliError::interrupted());
        }
        run.passed(repeat)?;
        let ns = each(spec, run.result.committed_per_s());
        if ns < quickest.ns {
            quickest = Quickest { ns, busy: run.disturbance.busy() == Some(true) };
        }
    }
    Ok(quickest)
}

/// What a thread takes for a transaction by the model, in nanoseconds.
fn foretell(spec: &RunSpec, fabric: &Fabric, profile: &Profile) -> Result<f64, CliError> {
    let ranking = tune::ranking(spec, fabric, profile, &|| true)?;
    let foretold = ranking.presets.iter().find(|candidate| candidate.preset == Some(PRESET));
    let foretold = foretold.ok_or_else(|| CliError::check("bug: the search has no one-sided preset"))?;
    Ok(each(spec, foretold.forecast.committed_per_s))
}

fn each(spec: &RunSpec, rate: f64) -> f64 {
    f64::from(spec.nodes * spec.threads) * 1e9 / rate
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::{FabricChoice, ProfileChoice};

    #[test]
    fn two_shapes_tell_attempt_and_records_apart() {
        let (attempt, access) = solved([300.0 + 2.0 * 50.0, 300.0 + 16.0 * 50.0]);
        assert!((attempt - 300.0).abs() < 1e-9 && (access - 50.0).abs() < 1e-9, "{attempt} {access}");
    }

    #[test]
    fn what_would_be_negative_is_left_to_the_other() {
        assert_eq!(solved([10.0, 800.0]), (0.0, 45.0));
        assert_eq!(solved([900.0, 500.0]), (700.0, 0.0));
        assert_eq!(solved([-9.0, -20.0]), (0.0, 0.0));
    }

    /// What the model is off by on requests goes into the two numbers too, so that twice as slow a core tells more than one.
    #[test]
    fn what_a_simulated_core_computes_is_found_again() {
        let plain = Profile::shipped("cx4-edr").unwrap();
        let dir = tempfile::tempdir().unwrap();
        let found = |attempt: f64, access: f64| {
            let mut slow = plain.clone();
            (slow.cpu.attempt.value, slow.cpu.access.value) = (attempt, access);
            let path = dir.path().join("slow.profile.yaml");
            std::fs::write(&path, slow.to_yaml().unwrap()).unwrap();
            let fabric = Fabric::open(&FabricChoice::Sim(ProfileChoice::File(path)), 1).unwrap();
            let mut found = plain.clone();
            engine_time(&mut found, &fabric, Span::from_ns(6_000_000), 1, &AtomicBool::new(false), "")
                .unwrap();
            (found.cpu.attempt.value, found.cpu.access.value)
        };
        let (once, twice) = (found(900.0, 400.0), found(1800.0, 800.0));
        let (attempt, access) = (twice.0 - once.0, twice.1 - once.1);
        let told = format!("{once:?}, {twice:?}");
        assert!((attempt / 900.0 - 1.0).abs() < 0.15 && (access / 400.0 - 1.0).abs() < 0.15, "{told}");
    }
}
