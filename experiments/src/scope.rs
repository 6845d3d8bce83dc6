//! How much of a fabric is characterized where nobody says.

use std::sync::atomic::AtomicBool;

use primitives::bench::{self, BenchVerb, Point, Scope};
use primitives::units::Nanos;

use crate::error::CliError;
use crate::fabrics::Fabric;

/// The usual scope on a fabric. Real fabrics get two nodes of one thread, which two CPUs can run side by side.
pub fn usual_scope(virtual_time: bool, quick: bool) -> Scope {
    if virtual_time {
        Scope {
            nodes: 4,
            threads: 8,
            coroutines: 16,
            quick,
            warm_up: Nanos::from_micros(60),
            precision: None,
            most: None,
            window: Nanos::from_micros(if quick { 150 } else { 400 }),
        }
    } else {
        Scope {
            nodes: 2,
            threads: 1,
            coroutines: 8,
            quick,
            warm_up: Nanos::from_millis(5),
            precision: None,
            most: None,
            window: Nanos::from_millis(if quick { 60 } else { 200 }),
        }
    }
}

/// The slowest request alone for which the usual times on simulated fabrics are right: calls of the cards that papers measured take
/// 2 to 4 µs.
const FAST: Nanos = Nanos::from_micros(4);

/// Longest time in which one request alone must end, whatever a profile says.
const PATIENCE: Nanos = Nanos(100_000_000_000);

/// The usual scope on a simulated fabric. A closed load is known when it has gone round many times: on a card whose requests take
/// longer than others' alone, everything takes longer in the same proportion.
///
/// # Errors
/// If the profile cannot be simulated.
pub fn for_profile(fabric: &Fabric, quick: bool) -> Result<Scope, CliError> {
    let usual = usual_scope(true, quick);
    let slowest = slowest_alone(fabric)?.max(FAST);
    let times = |usual: Nanos| {
        let scaled = u128::from(usual.0) * u128::from(slowest.0) / u128::from(FAST.0);
        Nanos(u64::try_from(scaled).unwrap_or(u64::MAX))
    };
    Ok(Scope { warm_up: times(usual.warm_up), window: times(usual.window), ..usual })
}

/// What the slowest verb takes when nothing else is in flight, by simulating each.
fn slowest_alone(fabric: &Fabric) -> Result<Nanos, CliError> {
    let caps = fabric.caps()?;
    let scope = Scope { nodes: 2, threads: 1, coroutines: 1, ..usual_scope(true, true) };
    let smallest = |verb: BenchVerb| Point {
        payload: 8,
        coroutines: 1,
        doorbell_batch: 1,
        signal_period: 1,
        ..Point::new("latency", verb)
    };
    let mut slowest = Nanos(0);
    for verb in BenchVerb::ALL.into_iter().filter(|verb| caps.one_sided || *verb == BenchVerb::Rpc) {
        slowest = slowest.max(alone(fabric, scope, &smallest(verb))?);
    }
    Ok(slowest)
}

/// What this request takes alone.
fn alone(fabric: &Fabric, mut scope: Scope, point: &Point) -> Result<Nanos, CliError> {
    while scope.window < PATIENCE {
        let sample = bench::run(&fabric.spec, &scope, point, 1, &AtomicBool::new(false))
            .map_err(|e| CliError::check("the profile cannot be simulated").caused_by(&e))?;
        if let Some(median) = sample.latency.p50() {
            return Ok(median);
        }
        scope.window = Nanos(scope.window.0 * 4);
    }
    Err(CliError::usage(format!("one {} alone does not end within {PATIENCE}", point.verb.name()))
        .hint("look at the latencies of the profile: they are in ns"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::values;

    fn usual(profile: &str) -> Scope {
        for_profile(&Fabric::open(&values::fabric(profile).unwrap(), 1).unwrap(), false).unwrap()
    }

    #[test]
    fn slow_cards_get_longer_and_fast_ones_what_they_had() {
        for fast in ["sim:cx3", "sim:cx4-edr", "sim:cx5", "sim:qdr"] {
            assert_eq!(usual(fast), usual_scope(true, false), "{fast}");
        }
        // Its calls take a hundred times as long.
        let slow = usual("sim:softroce-vm");
        assert!(slow.window > Nanos::from_millis(20) && slow.warm_up > Nanos::from_millis(3), "{slow:?}");
        assert!(slow.window < Nanos::from_millis(200), "{slow:?}");
        assert_eq!(Scope { window: slow.window, warm_up: slow.warm_up, ..usual_scope(true, false) }, slow);
    }
}
