//! YCSB under every protocol, one- and two-sided, on loopback and the simulator: histories are what the protocol promises, and
//! updates are all there in the end.

mod common;

use common::{Case, OTHERS, PATIENT, be_patient, judge, sim};
use engine::cluster::{Length, RunError, RunSpec, run};
use engine::protocol::{AnyProtocol, Protocol};
use engine::workload::{AnyWorkload, Scale};
use phases::plan::{Plan, Via};
use primitives::fabric::loopback::Options;
use primitives::fabric::sim::FaultOptions;
use primitives::mesh::{FabricSpec, Shape};
use primitives::units::Nanos;
use std::sync::atomic::AtomicBool;

/// Few records, ten operations, fields that straddle words: contended.
const SMALL: &[(&str, &str)] =
    &[("records_per_thread", "40"), ("fields", "10"), ("field_bytes", "10"), ("write_share", "0.5")];

/// All protocols.
fn protocols() -> impl Iterator<Item = AnyProtocol> {
    ["occ"].iter().chain(OTHERS).map(|name| AnyProtocol::named(name).expect("a protocol"))
}

fn case(protocol: AnyProtocol, via: Via, fabric: FabricSpec, more: &[(&str, &str)]) -> Case {
    let plan = Plan { coroutines: 3, ..Plan::uniform(via).restricted_to(protocol.needs()) };
    let spec = RunSpec::new(fabric, Shape { nodes: 3, workers: 1 }, plan);
    let mut case = Case { protocol, ..Case::new("ycsb", &[SMALL, more].concat(), spec) };
    case.spec.length = Length::Transactions(30);
    case.spec.replicas = 2;
    case.spec.retry.attempts = PATIENT;
    case.spec.retry.longest = Nanos::from_millis(4);
    case
}

#[test]
fn every_protocol_runs_ycsb() {
    for protocol in protocols() {
        for via in [Via::OneSided, Via::TwoSided] {
            for (n, more) in [
                &[("zipf_theta", "0.6")][..],
                &[("hot_accesses_share", "0.5"), ("hot_records_share", "0.05"), ("together", "true")][..],
                &[("blind", "true"), ("think_us", "2")][..],
            ]
            .into_iter()
            .enumerate()
            {
                let fabric = if n == 0 {
                    FabricSpec::Loopback(Options { seed: 3, ..Options::default() })
                } else {
                    sim(3, FaultOptions::default())
                };
                let case = case(protocol, via, fabric, more);
                let result = judge(&case, if n == 0 { "loopback" } else { "sim" });
                assert_eq!(result.stats.committed, 3 * 3 * 30, "{} {via}", protocol.needs().protocol);
            }
        }
    }
}

/// Over sockets, which carry calls alone.
#[test]
fn every_protocol_runs_ycsb_over_tcp() {
    for protocol in protocols() {
        let fabric = FabricSpec::Tcp(primitives::fabric::tcp::Options::default());
        let mut case = case(protocol, Via::TwoSided, fabric, &[("zipf_theta", "0.6")]);
        be_patient(&mut case.spec);
        case.spec.length = Length::Transactions(10);
        let result = judge(&case, "tcp");
        assert_eq!(result.stats.committed, 3 * 3 * 10, "{}", protocol.needs().protocol);
    }
}

/// A think time is the core's work: a transaction takes at least so long, and a core commits no faster.
#[test]
fn thinking_keeps_the_core_busy() {
    let occ = AnyProtocol::named("occ").expect("a protocol");
    for via in [Via::OneSided, Via::TwoSided] {
        let calm = [("write_share", "0"), ("records_per_thread", "1000"), ("think_us", "50")];
        let mut case = case(occ, via, sim(1, FaultOptions::default()), &[]);
        case.settings.clear();
        case.settings.extend(calm.iter().map(|&(k, v)| (k.to_owned(), v.to_owned())));
        let result = judge(&case, "sim");
        let least = Nanos(50_000 * u64::from(case.spec.plan.coroutines) * 30);
        assert!(result.elapsed >= least, "{} is less than {least}", result.elapsed);
        assert!(result.stats.latency.p50().is_some_and(|p50| p50 >= Nanos(50_000)));
        let cpu = result.cpu_ns_per_committed().expect("time is virtual");
        assert!((50_000.0..70_000.0).contains(&cpu), "{cpu} ns of CPU for 50 us of thinking");
        // Every call has its answer, and no READ has one that a core sends.
        let messages = result.messages_per_machine_per_s().expect("time passed");
        let each = messages * result.elapsed.as_secs_f64() * 3.0 / result.stats.committed as f64;
        let wanted = result.verbs_per_committed() * if via == Via::OneSided { 1.0 } else { 2.0 };
        assert!((each / wanted - 1.0).abs() < 0.1, "{each} messages, {wanted} wanted");
    }
}

/// Records longer than the usual message travel in longer ones. Those that no datagram holds are refused before anything is set up, with
/// the reason, and carried one-sided all the same.
#[test]
fn messages_are_as_long_as_records_and_no_longer_than_datagrams() {
    for protocol in protocols().filter(|protocol| !protocol.needs().sequenced) {
        let mut case = case(protocol, Via::TwoSided, sim(1, FaultOptions::default()), &[]);
        case.spec.log_ring_bytes = 1 << 18;
        for (workload, key, value, bytes) in [
            ("ycsb", "field_bytes", "100", 1000),
            ("micro", "payload_bytes", "4000", 4000),
            ("ycsb", "field_bytes", "409", 4090),
            ("micro", "payload_bytes", "4096", 4096),
        ] {
            (case.workload, case.settings) = (workload, vec![("records_per_thread".into(), "40".into())]);
            case.settings.push((key.to_owned(), value.to_owned()));
            if workload == "ycsb" {
                case.settings.push(("fields".into(), "10".into()));
            }
            case.spec.plan =
                Plan { coroutines: 3, ..Plan::uniform(Via::TwoSided).restricted_to(protocol.needs()) };
            if bytes < 4050 {
                judge(&case, "sim");
                continue;
            }
            match run(&case.spec, &case.workload(), protocol, &AtomicBool::new(false)) {
                Err(RunError::Plan(refused)) => {
                    let text = refused.to_string();
                    assert!(text.contains("a record of 4") && text.contains("takes 4096 B"), "{text}");
                    case.spec.plan = refused.nearest.expect("one-sided verbs carry them");
                    judge(&case, "sim");
                }
                other => panic!("{}: {:?}", protocol.needs().protocol, other.map(|r| r.committed_per_s())),
            }
        }
    }
}

/// One node alone sends no messages, so no record is too long for it.
#[test]
fn a_single_node_takes_records_of_any_length() {
    let occ = AnyProtocol::named("occ").expect("a protocol");
    let mut case = case(occ, Via::TwoSided, sim(1, FaultOptions::default()), &[]);
    case.spec.shape = Shape { nodes: 1, workers: 1 };
    case.spec.replicas = 1;
    case.settings = vec![("field_bytes".into(), "500".into()), ("records_per_thread".into(), "40".into())];
    assert!(AnyWorkload::parse("ycsb", Scale { nodes: 1, workers: 1 }, [("field_bytes", "500")]).is_ok());
    judge(&case, "sim");
}
