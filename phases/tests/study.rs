//! The studies run in every variant on both fabrics, and their counts are the declared ones.

use phases::plan::Phase;
use phases::study::{self, Counts, Spec, StudyError, Subject};
use primitives::fabric::loopback::Options;
use primitives::mesh::{FabricSpec, Shape, WorkerConfig};
use primitives::units::Nanos;
use std::sync::atomic::AtomicBool;

fn fabrics() -> [FabricSpec; 2] {
    let profile = primitives::profile::Profile::shipped("cx4-edr").expect("a shipped profile");
    let sim = FabricSpec::Sim { profile: Box::new(profile), seed: 1, faults: Box::default() };
    [FabricSpec::Loopback(Options::default()), sim]
}

/// A study that nobody stops.
fn run(fabric: &FabricSpec, shape: Shape, config: &WorkerConfig, spec: &Spec) -> Result<Counts, StudyError> {
    study::run(fabric, shape, config, spec, &AtomicBool::new(false))
}

/// Where time is real, a busy machine may not let an operation through in a short time: so long that it does.
fn until_some(fabric: &FabricSpec, shape: Shape, mut spec: Spec) -> Result<Counts, StudyError> {
    loop {
        let counts = run(fabric, shape, &WorkerConfig::default(), &spec)?;
        if counts.ops > 0 || spec.duration > Nanos::from_millis(2_000) {
            return Ok(counts);
        }
        spec.duration = Nanos(spec.duration.0 * 4);
    }
}

#[test]
fn every_variant_counts_operations_and_their_cost() {
    for fabric in fabrics() {
        for subject in Subject::ALL {
            for variant in subject.variants() {
                let mut spec = Spec::new(subject, variant);
                (spec.coroutines, spec.rows_per_node) = (2, 500);
                (spec.warm_up, spec.duration) = (Nanos::from_micros(200), Nanos::from_millis(2));
                let shape = Shape { nodes: 3, workers: 1 };
                let counts = until_some(&fabric, shape, spec).unwrap_or_else(|e| panic!("{e}"));
                let (ops, cost) = (counts.ops, counts.cost);
                let what = format!("{} {}: {ops} operations, {cost:?}", subject.name(), variant.name);
                assert!(ops > 0 && counts.latency.count() == ops, "{what}");
                let [verbs, round_trips, doorbells] = counts.per_op().unwrap();
                let passive =
                    variant.plan.step(Phase::Install).unwrap().passive_ack && subject == Subject::Commit;
                let waits = if subject == Subject::ReadOnly { 2.0 } else { 1.0 };
                if passive {
                    assert_eq!(round_trips, 0.0, "{what}");
                } else {
                    // Lookups in the index and log truncations add to the least.
                    assert!((waits..=waits + 3.0).contains(&round_trips), "{what}");
                }
                assert!(verbs >= 1.0 && doorbells <= verbs, "{what}");
            }
        }
    }
}

/// Thousands of coroutines a thread end together, and wait in lines for room in a window of calls meanwhile.
#[test]
fn a_study_of_thousands_of_coroutines_ends() {
    let (done, ended) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let subject = Subject::Execution;
        let mut spec = Spec::new(subject, subject.variants()[0]);
        (spec.coroutines, spec.records) = (4096, 1);
        (spec.warm_up, spec.duration) = (Nanos::from_millis(1), Nanos::from_millis(2));
        let shape = Shape { nodes: 3, workers: 1 };
        let counts = run(&fabrics()[1], shape, &WorkerConfig::default(), &spec);
        done.send(counts.map(|counts| (counts.ops > 0, counts.aborted))).expect("it is waited for");
    });
    let ran = ended.recv_timeout(std::time::Duration::from_secs(120)).expect("it ends");
    assert_eq!(ran.expect("it runs"), (true, 0), "operations, and how many aborted");
}

#[test]
fn two_sided_variants_run_over_tcp_and_one_sided_ones_are_refused() {
    let fabric = FabricSpec::Tcp(primitives::fabric::tcp::Options::default());
    let (mut ran, mut refused) = (0, 0);
    for subject in Subject::ALL {
        for variant in subject.variants() {
            let mut spec = Spec::new(subject, variant);
            (spec.coroutines, spec.rows_per_node) = (2, 500);
            (spec.warm_up, spec.duration) = (Nanos::from_millis(5), Nanos::from_millis(50));
            let what = format!("{} {}", subject.name(), variant.name);
            match until_some(&fabric, Shape { nodes: 3, workers: 1 }, spec) {
                Ok(counts) => {
                    assert!(counts.ops > 0, "{what}");
                    ran += 1;
                }
                Err(error) => {
                    let text = error.to_string();
                    assert!(matches!(error, StudyError::Plan(_)) && text.contains("tcp"), "{what}: {text}");
                    refused += 1;
                }
            }
        }
    }
    assert!(ran >= 5 && refused >= 5, "{ran} ran, {refused} were refused");
}

#[test]
fn the_cache_saves_the_lookup() {
    let [_, sim] = fabrics();
    let counts = |name: &str| {
        let variant = *Subject::Execution.variants().iter().find(|v| v.name == name).unwrap();
        let mut spec = Spec::new(Subject::Execution, variant);
        (spec.rows_per_node, spec.coroutines) = (50, 4);
        run(&sim, Shape { nodes: 2, workers: 1 }, &WorkerConfig::default(), &spec).unwrap().per_op().unwrap()
    };
    let [with, without] = [counts("one-sided-cache"), counts("one-sided")];
    assert_eq!(with[..2], [4.0, 1.0]);
    assert!(without[0] >= 8.0 && without[1] >= 2.0, "{without:?}");
}

/// Tables of the usual size on a larger cluster: hardly a location is missing, so that the cached variant is the ideal one.
#[test]
fn hardly_a_location_is_unknown() {
    let [_, sim] = fabrics();
    for subject in [Subject::Execution, Subject::ReadOnly] {
        let variant = *subject.variants().iter().find(|v| v.name == "one-sided-cache").unwrap();
        let mut spec = Spec::new(subject, variant);
        (spec.coroutines, spec.warm_up, spec.duration) = (1, Nanos(0), Nanos::from_micros(100));
        let counts = run(&sim, Shape { nodes: 16, workers: 1 }, &WorkerConfig::default(), &spec).unwrap();
        let ([_, waits, _], phases) = (counts.per_op().unwrap(), subject.phases().len() as f64);
        assert!((phases..phases + 0.08).contains(&waits), "{subject:?}: {waits} round trips");
    }
}

#[test]
fn the_same_seed_gives_the_same_counts() {
    let [_, sim] = fabrics();
    let counts = || {
        let mut spec = Spec::new(Subject::Validation, Subject::Validation.variants()[1]);
        (spec.rows_per_node, spec.skew, spec.duration) = (20, 0.9, Nanos::from_millis(1));
        let c = run(&sim, Shape { nodes: 3, workers: 2 }, &WorkerConfig::default(), &spec).unwrap();
        (c.ops, c.aborted, c.cost, c.latency.to_data())
    };
    let first = counts();
    assert!(first.1 > 0, "skewed locks collide");
    assert_eq!(first, counts());
}

#[test]
fn nonsense_is_refused() {
    let [loopback, _] = fabrics();
    let good = Spec::new(Subject::Execution, Subject::Execution.variants()[0]);
    let shape = Shape { nodes: 2, workers: 1 };
    for spec in [
        Spec { payload_bytes: 0, ..good },
        Spec { payload_bytes: 12, ..good },
        Spec { skew: f64::NAN, ..good },
        Spec { records: 0, ..good },
        Spec { coroutines: 0, ..good },
        Spec { coroutines: 1_000_000_000, ..good },
        Spec { replicas: 3, ..good },
    ] {
        let refused = run(&loopback, shape, &WorkerConfig::default(), &spec);
        assert!(matches!(refused, Err(StudyError::Spec(_))), "{spec:?}");
    }
}

#[test]
fn payload_skew_and_load_change_what_they_should() {
    let [_, sim] = fabrics();
    let rate = |subject: Subject, name: &str, change: &dyn Fn(Spec) -> Spec| {
        let variant = subject.variants().into_iter().find(|v| v.name == name).unwrap();
        let mut spec = Spec::new(subject, variant);
        (spec.coroutines, spec.rows_per_node) = (8, 500);
        (spec.warm_up, spec.duration) = (Nanos::from_micros(50), Nanos::from_micros(300));
        let counts = run(&sim, Shape { nodes: 3, workers: 1 }, &WorkerConfig::default(), &change(spec));
        let counts = counts.unwrap_or_else(|e| panic!("{name}: {e}"));
        (counts.rate_per_s(), counts.aborted)
    };
    // A core that computes does neither: READs, of which it does more when it does not compute, lose the larger share.
    let think = |spec| Spec { think: Nanos(2_000), ..spec };
    let kept = |name| rate(Subject::Execution, name, &think).0 / rate(Subject::Execution, name, &|s| s).0;
    let (calls, reads) = (kept("two-sided"), kept("one-sided-cache"));
    assert!(reads < calls && calls < 0.95, "computing costs: {calls} {reads}");
    // Longer than the usual message: it grows with the record.
    for name in ["two-sided", "one-sided-cache"] {
        let long = rate(Subject::Execution, name, &|s| Spec { payload_bytes: 2048, ..s }).0;
        assert!(long > 0.0 && long < rate(Subject::Execution, name, &|s| s).0, "{name}: {long}");
    }
    // Everybody wants the same locks.
    let skewed = |skew| rate(Subject::Validation, "one-sided", &move |s| Spec { skew, ..s });
    assert!(skewed(1.2).1 > 10 * skewed(0.0).1.max(1), "{:?} {:?}", skewed(1.2), skewed(0.0));
}

#[test]
fn what_no_message_holds_is_refused() {
    let [_, sim] = fabrics();
    for variant in Subject::Execution.variants() {
        // What stands around the phase is done by calls in each variant.
        let spec = Spec { payload_bytes: 4096, ..Spec::new(Subject::Execution, variant) };
        let ran = run(&sim, Shape { nodes: 3, workers: 1 }, &WorkerConfig::default(), &spec);
        assert!(matches!(&ran, Err(StudyError::Plan(e)) if e.to_string().contains("4096")), "{ran:?}");
    }
}

#[test]
fn a_time_in_which_few_operations_ended_is_told_from_one_that_will_do() {
    let [_, sim] = fabrics();
    let shape = Shape { nodes: 3, workers: 1 };
    let mut spec = Spec::new(Subject::Execution, Subject::Execution.variants()[1]);
    (spec.rows_per_node, spec.coroutines, spec.warm_up) = (50, 4, Nanos::from_micros(5));
    let in_flight = spec.in_flight(shape);
    assert_eq!(in_flight, 12);
    let counts = |duration| run(&sim, shape, &WorkerConfig::default(), &Spec { duration, ..spec }).unwrap();
    let short = counts(Nanos::from_micros(10));
    let told = short.too_short.expect("hardly two turns");
    assert!(told.ended == short.ops && told.in_flight == in_flight, "{told:?}");
    let long = counts(Nanos::from_micros(10 * told.longer()));
    assert!(long.ops >= 4 * in_flight && long.too_short.is_none(), "{long:?}");
}

#[test]
fn who_is_told_to_stop_ends_long_before_its_time() {
    let [_, sim] = fabrics();
    let mut spec = Spec::new(Subject::Execution, Subject::Execution.variants()[1]);
    (spec.rows_per_node, spec.duration) = (50, Nanos::from_millis(3_600_000));
    let stop = AtomicBool::new(false);
    let shape = Shape { nodes: 2, workers: 1 };
    let ended = std::thread::scope(|scope| {
        let study = scope.spawn(|| study::run(&sim, shape, &WorkerConfig::default(), &spec, &stop));
        std::thread::sleep(std::time::Duration::from_millis(300));
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        study.join().expect("no panic")
    });
    // An hour of virtual time takes days: that it comes back is the point.
    assert!(ended.is_ok() || matches!(ended, Err(StudyError::Launch(_))), "{ended:?}");
}
