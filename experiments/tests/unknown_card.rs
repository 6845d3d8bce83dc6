//! A card that nobody has described, from its characterization to a profile that foretells it.
//!
//! Simulated cards stand for real ones: what is known of each is the rows that `characterize` would write and what the fabric
//! says of itself, and its own profile is not among the shipped ones that the fit may begin from.

use experiments::calibrate::solve::Settings;
use experiments::calibrate::{Calibrated, Listeners, Targets, calibrate, nearest};
use experiments::commands::characterize::row;
use experiments::interrupt::Interrupt;
use primitives::bench::{self, Point, Scope, UNCALIBRATED};
use primitives::fabric::Caps;
use primitives::measure::{Machine, Row};
use primitives::mesh::FabricSpec;
use primitives::profile::{Profile, Source};
use primitives::units::Nanos;
use serde_json::json;
use std::sync::atomic::AtomicBool;

/// As `characterize --quick` measures a device where nobody says how much, but for the times, which are virtual here.
const SCOPE: Scope = Scope {
    nodes: 2,
    threads: 1,
    coroutines: 8,
    quick: true,
    warm_up: Nanos(60_000),
    window: Nanos(300_000),
    precision: None,
    most: None,
};

/// What one card does, point by point.
fn measured(card: &Profile, scope: &Scope, seed: u64) -> (Vec<(Point, f64)>, Vec<Row>, Caps) {
    let fabric = FabricSpec::Sim { profile: Box::new(card.clone()), seed: 11, faults: Box::default() };
    let caps = fabric.caps().expect("a possible card");
    let points = bench::points(scope, caps.ud_mtu);
    let one = |(at, point): (usize, &Point)| {
        let sample = bench::run(&fabric, scope, point, seed, &AtomicBool::new(false)).expect("it runs");
        ((point.clone(), sample.rate_per_s()), row(point, &sample).with("point", at))
    };
    let (rates, rows) = points.iter().enumerate().map(one).unzip();
    (rates, rows, caps)
}

struct Fitted {
    start: Profile,
    done: Calibrated,
    rates: Vec<(Point, f64)>,
}

/// Takes `card` for a device, and fits a profile to it that begins at one of `known`.
fn fitted(card: &Profile, scope: &Scope, known: &[Profile]) -> Fitted {
    let (rates, rows, caps) = measured(card, scope, 5);
    let caps = Caps { fabric: "verbs:card0".into(), virtual_time: false, ..caps };
    assert!(caps.card);
    let spec = json!({"nodes": scope.nodes, "threads": scope.threads, "coroutines": scope.coroutines, "quick": scope.quick});
    let targets = || Targets::of_rows(&rows, &spec, 23, "a card".into()).expect("rows of ours");
    let start = nearest::begin(known, &targets(), &caps, &Machine::here(), &Interrupt::new())
        .expect("it is simulated");
    // As it goes through the file that `characterize` leaves.
    let start = Profile::parse(&start.to_yaml().expect("YAML"), "left").expect("its own format");
    let told = |stage, rms: f64, n: usize| eprintln!("{stage}: rms {:.2} % after {n}", rms * 100.0);
    let heard = Listeners { evaluated: &|| (), told: &told };
    let done = calibrate(&start, &[], &targets(), &Settings::default(), &Interrupt::new(), &heard)
        .expect("it can be fitted");
    Fitted { start, done, rates }
}

/// By how much the rates that a profile foretells at every point are off those measured: sorted factors of one or more.
fn off(profile: &Profile, rates: &[(Point, f64)]) -> Vec<f64> {
    let (foretold, ..) = measured(profile, &SCOPE, 77);
    let mut off: Vec<f64> = foretold.iter().zip(rates).map(|((_, a), (_, b))| (a / b).max(b / a)).collect();
    off.sort_by(f64::total_cmp);
    off
}

/// What so large a share of sorted numbers is below.
fn below(sorted: &[f64], share: f64) -> f64 {
    sorted[((sorted.len() - 1) as f64 * share) as usize]
}

/// The shipped cards without those of this one's engine.
fn known_but(name: &str) -> Vec<Profile> {
    let engine = |name: &str| {
        match name {
            "cx4-edr" | "cx4-roce" | "aries" => "cx4",
            "cx3" | "cx3pro-fdr" | "qdr" => "cx3",
            _ => "",
        }
        .to_owned()
    };
    let own =
        |card: &Profile| card.name == name || !engine(name).is_empty() && engine(&card.name) == engine(name);
    nearest::cards().expect("shipped").into_iter().filter(|card| !own(card)).collect()
}

/// What the fit did not move is assumed, and says of which card it is; limits are the device's own.
fn assert_sources(start: &Profile, done: &Calibrated) {
    let fitted = |name: &str| done.numbers.iter().any(|n| n.name == name && n.fitted);
    for (section, name, number) in done.profile.quantities() {
        match number.source {
            Source::Measured => assert_eq!(number.reference, "capability of the fabric", "{name}"),
            Source::Calibrated => assert!(fitted(&format!("{section}.{name}")), "{name}"),
            Source::Assumed if !fitted(&format!("{section}.{name}")) => {
                assert!(
                    number.reference.starts_with("as ")
                        && number.reference.contains("the nearest shipped card")
                );
                let began =
                    start.quantities().find(|(s, n, _)| (*s, *n) == (section, name)).expect("the same names");
                assert_eq!(began.2.value, number.value, "{name}");
            }
            Source::Assumed => {}
            other => panic!("{name} is {other:?}, and nobody published this card"),
        }
    }
}

#[test]
fn a_card_is_foretold_by_what_it_was_measured_to_do() {
    let truth = Profile::shipped("cx4-edr").expect("it is shipped");
    let Fitted { start, done, rates } = fitted(&truth, &SCOPE, &known_but("cx4-edr"));
    let doubt = start.doubt.as_deref().expect("nothing is fitted yet");
    assert!(doubt.starts_with(UNCALIBRATED) && doubt.contains("the one that comes nearest"), "{doubt}");
    assert_sources(&start, &done);
    let (before, after) = (off(&start, &rates), off(&done.profile, &rates));
    let told = |off: &[f64]| format!("{:.3} {:.3} {:.3}", below(off, 0.5), below(off, 0.9), below(off, 1.0));
    eprintln!("rates off by {} before, {} after; rms {:?}", told(&before), told(&after), done.rms());
    assert!(done.rms().1 < 0.03, "{:?}", done.rms());
    assert_eq!(done.profile.doubt, None, "it was fitted, and fits");
    // Not only what it was fitted to: every point of the characterization.
    assert!(
        below(&after, 0.5) < 1.03 && below(&after, 0.9) < 1.10 && below(&after, 1.0) < 1.4,
        "{}",
        told(&after)
    );
    assert!(below(&before, 0.5) > below(&after, 0.5), "{}", told(&before));
}
