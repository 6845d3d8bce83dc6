use super::*;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

const MS: u64 = 1_000_000;

/// Lets operations end at a rate that depends on time, until the meter has enough; the time it took.
fn drive(meter: &Meter, seed: u64, start: u64, gap_ns: impl Fn(u64) -> f64) -> u64 {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut now = start as f64;
    while !meter.over(Nanos(now as u64)) {
        // Exponential gaps: a Poisson stream, the noisiest that independent operations make.
        now += -(1.0 - rng.random::<f64>()).ln() * gap_ns(now as u64 - start);
        meter.count(0, 1, Nanos(now as u64));
    }
    now as u64 - start
}

fn one_percent(least: u64, most: u64) -> Precision {
    Precision { relative: 0.01, least: Nanos(least), most: Nanos(most) }
}

#[test]
fn a_poisson_stream_is_counted_as_long_as_its_variance_demands() {
    // ±1 % of a Poisson count takes (1.96/0.01)² = 38 000 events.
    let mut held = 0;
    for seed in 0..60 {
        let meter = Meter::precise(1, one_percent(2 * MS, 200 * MS));
        meter.ready(Nanos(7));
        let took = drive(&meter, seed, 7, |_| 1000.0);
        let found = meter.steadiness(Nanos(7 + took));
        let means = found.means.expect("it was long enough");
        let events = found.measured.0 / 1000;
        assert!((10_000..120_000).contains(&events), "seed {seed}: {events} events");
        assert_eq!(found.converged, Some(true), "seed {seed}: {found:?}");
        let rate = means.mean / (1u64 << meter.slot_bits) as f64;
        held += u32::from((rate * 1000.0 - 1.0).abs() <= means.relative);
    }
    assert!(held >= 50, "the interval held the true rate {held} times of 60");
}

#[test]
fn the_window_stays_open_until_enough_has_ended() {
    let ended = |enough: u64| {
        let meter = Meter::precise(1, one_percent(2 * MS, 200 * MS)).ending(enough);
        meter.ready(Nanos(0));
        let found = meter.steadiness(Nanos(drive(&meter, 4, 0, |_| 1000.0)));
        (
            found.means.expect("it was long enough").mean * (found.measured.0 >> meter.slot_bits) as f64,
            found.converged,
        )
    };
    assert!(ended(0).0 < 120_000.0);
    let (counted, converged) = ended(150_000);
    assert!(counted >= 149_000.0 && converged == Some(true), "{counted} {converged:?}");
    // Not beyond the limit, and then it has not converged.
    assert_eq!(ended(1_000_000).1, Some(false));
}

#[test]
fn batches_are_told_one_by_one() {
    let meter = Meter::fixed(1, Nanos(0), Nanos(20 * MS));
    meter.ready(Nanos(0));
    // One a microsecond, in the last quarter one in two.
    drive(&meter, 3, 0, |t| if t < 15 * MS { 1000.0 } else { 2000.0 });
    let found = meter.steadiness(Nanos(20 * MS));
    let (means, rates) = (found.means.expect("it was long enough"), found.batch_rates_per_s());
    assert_eq!((rates.len(), means.each().len()), (means.batches, means.batches));
    let quarter = rates.len() / 4;
    let mean = |of: &[f64]| of.iter().sum::<f64>() / of.len() as f64;
    let (first, last) = (mean(&rates[..2 * quarter]), mean(&rates[rates.len() - quarter + 1..]));
    assert!((first / 1e6 - 1.0).abs() < 0.1 && (last / 5e5 - 1.0).abs() < 0.1, "{rates:?}");
    assert!((mean(means.each()) / means.mean - 1.0).abs() < 1e-9);
    let row = crate::measure::Row::new().with_steadiness(&found);
    let told =
        row.get("batch_rates_per_s").expect("a cell").split(' ').map(|n| n.parse::<f64>().expect("a number"));
    assert!(told.zip(&rates).all(|(told, rate)| (told / rate - 1.0).abs() < 1e-4));
}

#[test]
fn a_slow_beginning_is_not_counted() {
    let meter = Meter::precise(1, one_percent(2 * MS, 400 * MS));
    meter.ready(Nanos(0));
    // Four times slower for the first 3 ms, longer than the first looks.
    let took = drive(&meter, 3, 0, |t| if t < 3 * MS { 4000.0 } else { 1000.0 });
    let found = meter.steadiness(Nanos(took));
    assert!(found.warm_up.0 >= 3 * MS, "{found:?}");
    let rate = found.means.expect("it ran").mean / (1u64 << meter.slot_bits) as f64;
    assert!((rate * 1000.0 - 1.0).abs() < 0.02, "{rate}");
}

#[test]
fn what_never_settles_ends_at_the_limit_and_says_so() {
    let meter = Meter::precise(1, one_percent(2 * MS, 20 * MS));
    meter.ready(Nanos(0));
    let took = drive(&meter, 1, 0, |t| 500.0 + t as f64 / 2e4);
    assert!((20 * MS..21 * MS).contains(&took));
    assert_eq!(meter.steadiness(Nanos(took)).converged, Some(false));
}

#[test]
fn a_fixed_length_is_kept_and_its_interval_told() {
    let meter = Meter::fixed(2, Nanos(MS / 2), Nanos(2 * MS));
    meter.ready(Nanos(100));
    meter.ready(Nanos(50));
    let took = drive(&meter, 1, 100, |_| 500.0);
    assert!(!meter.holds(Nanos(100 + MS / 2 - 1)) && meter.holds(Nanos(100 + MS / 2)));
    assert!(meter.holds(Nanos(99 + 5 * MS / 2)) && meter.over(Nanos(100 + 5 * MS / 2)));
    let found = meter.steadiness(Nanos(100 + took));
    assert_eq!((found.warm_up, found.measured, found.converged), (Nanos(MS / 2), Nanos(2 * MS), None));
    let relative = found.relative().expect("4000 events");
    assert!((0.01..0.08).contains(&relative), "{relative}");
}

#[test]
fn workers_count_side_by_side() {
    let meter = Meter::fixed(4, Nanos(0), Nanos(MS));
    std::thread::scope(|scope| {
        for worker in 0..4 {
            let meter = &meter;
            scope.spawn(move || (0..1000u64).for_each(|i| meter.count(worker, 1, Nanos(i * 1000))));
        }
    });
    let total: f64 = meter.series(0, MS >> meter.slot_bits).iter().sum();
    assert!(total >= 3990.0, "{total} of 4000, less the last slot");
}

#[test]
fn what_ends_in_the_warm_up_has_not_counted() {
    let meter = Meter::fixed(2, Nanos(MS), Nanos(MS));
    assert!(!meter.has_counted());
    meter.count(1, 5, Nanos(MS / 2));
    assert!(!meter.has_counted());
    meter.count(1, 1, Nanos(MS + MS / 2));
    assert!(meter.has_counted());
    // Asked for a precision, nothing counts before it is known when the warm-up has ended.
    let precise = Meter::precise(1, one_percent(MS, 4 * MS));
    precise.count(0, 5, Nanos(MS / 8));
    assert!(!precise.has_counted());
}

#[test]
fn nothing_at_all_and_everything() {
    let silent = Meter::precise(1, one_percent(MS, 4 * MS)).steadiness(Nanos(4 * MS));
    assert_eq!((silent.means, silent.converged), (None, Some(false)));
    let all = Meter::everything();
    all.count(0, 1, Nanos(9));
    assert!(all.holds(Nanos(0)) && !all.over(Nanos(u64::MAX - 1)));
    // An absurd length must not ask for absurd memory.
    let long = Meter::fixed(1, Nanos(0), Nanos(u64::MAX / 2));
    assert!(long.rows[0].len() as u64 <= SLOTS_MOST + 2);
}

/// With a fixed length nobody moves the end of the warm-up, but it is told where it came too early.
#[test]
fn a_fixed_window_says_whether_the_load_was_steady() {
    let unsettled = |gap_ns: fn(u64) -> f64| {
        (0..100)
            .filter(|seed| {
                let meter = Meter::fixed(1, Nanos(MS), Nanos(4 * MS));
                meter.ready(Nanos(0));
                let found = meter.steadiness(Nanos(drive(&meter, *seed, 0, gap_ns)));
                assert_eq!(found.converged, None);
                found.settled == Some(false)
            })
            .count()
    };
    let steady = unsettled(|_| 100.0);
    assert!(steady <= 3, "{steady} of 100 steady loads are called otherwise");
    let slow = unsettled(|now| if now < 2 * MS { 130.0 } else { 100.0 });
    assert!(slow >= 97, "{slow} of 100 that are slow for longer than the warm-up");
    let drifts = unsettled(|now| 100.0 + now as f64 / 100_000.0);
    assert!(drifts >= 97, "{drifts} of 100 that drift");
    let within = unsettled(|now| if now < MS / 2 { 130.0 } else { 100.0 });
    assert!(within <= 3, "{within} of 100 whose transient lies in the warm-up");
}

/// A loop that goes round and round is steady: where its rounds fall in slots depends on the slots before, but its rate does not move.
#[test]
fn a_loop_without_chance_is_steady() {
    for gap in [97, 445, 1_733, 9_001] {
        let meter = Meter::fixed(1, Nanos(MS / 10), Nanos(MS));
        meter.ready(Nanos(0));
        let mut now = 0;
        while !meter.over(Nanos(now)) {
            now += gap;
            meter.count(0, 1, Nanos(now));
        }
        assert_ne!(meter.steadiness(Nanos(now)).settled, Some(false), "every {gap} ns");
    }
}

#[test]
fn a_length_that_was_not_fixed_has_converged_or_not() {
    let meter = Meter::precise(1, one_percent(2 * MS, 200 * MS));
    meter.ready(Nanos(0));
    let found = meter.steadiness(Nanos(drive(&meter, 1, 0, |_| 1000.0)));
    assert_eq!((found.converged, found.settled), (Some(true), None));
}
