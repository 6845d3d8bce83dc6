//! A run is a value of its seed, however it is cut into pieces.

use super::load::{Load, cluster};
use super::*;
use crate::fabric::sim::Stopped;

fn traffic(seed: u64, faults: FaultOptions, cuts: &[u64]) -> (u64, u64, Vec<u64>) {
    let config = SimConfig { faults, ..config(4, 3, seed) };
    let (world, mut cores) = cluster(&config, Load { outstanding: 4, payload: 64, ..Load::mixed() });
    for &cut in cuts {
        assert_eq!(world.run(&mut cores, Nanos(cut)), Stopped::Time);
    }
    (world.fingerprint(), world.events(), cores.iter().map(|c| c.completed()).collect())
}

fn rough() -> FaultOptions {
    FaultOptions {
        completion_jitter: Nanos(300),
        transit_jitter: Nanos(500),
        torn_read: 0.5,
        torn_write: 0.5,
        late_write: 0.5,
        ..FaultOptions::default()
    }
}

#[test]
fn the_same_seed_gives_the_same_run_and_another_another() {
    for faults in [FaultOptions::default(), rough()] {
        let one = traffic(7, faults.clone(), &[40_000]);
        assert!(one.1 > 4_000, "{} events", one.1);
        assert_eq!(one, traffic(7, faults.clone(), &[40_000]));
        assert_ne!(one.0, traffic(8, faults, &[40_000]).0);
    }
}

#[test]
fn a_run_cut_into_pieces_is_the_same_run() {
    let whole = traffic(3, rough(), &[40_000]);
    assert_eq!(whole, traffic(3, rough(), &[1, 1_700, 9_999, 10_000, 31_234, 40_000]));
}

#[test]
fn different_faults_are_different_runs() {
    assert_ne!(traffic(7, rough(), &[20_000]).0, traffic(7, FaultOptions::default(), &[20_000]).0);
}
