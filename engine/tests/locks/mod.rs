//! The same of locks that are shared, waited for and raced for: `forecasts.rs` runs these.

use super::{On, four, ran, shipped};
use engine::protocol::{AnyProtocol, Protocol};
use phases::plan::{Plan, Via};
use primitives::mesh::Shape;
use primitives::profile::Profile;
use primitives::units::Nanos;

/// Readers of a hot record are in each other's way only as far as its word can be changed: found by combination 29 of seed 10, where
/// eight coroutines committed a fifth of what four did, since each CAS that came too late was followed by another at once.
#[test]
fn many_readers_of_a_record_do_not_commit_less() {
    let settings = [
        ("payload_bytes", "96"),
        ("reads", "1"),
        ("writes", "0"),
        ("records_per_thread", "2940"),
        ("zipf_theta", "0.89"),
    ];
    let on =
        On { shape: Shape { nodes: 4, workers: 1 }, measured: Nanos::from_millis(1), ..four(&shipped()) };
    for protocol in ["nowait", "bounded-wait"] {
        let protocol = AnyProtocol::named(protocol).expect("a protocol");
        let [few, many] = [4, 8].map(|coroutines| {
            let plan = Plan { coroutines, ..Plan::uniform(Via::OneSided).restricted_to(protocol.needs()) };
            let ran = ran(&on, protocol, plan, "micro", &settings);
            println!("{coroutines}: {:.0}/s {:+.3}", ran.result.committed_per_s(), ran.error());
            ran.result.committed_per_s()
        });
        assert!(many > few, "{many} by twice the coroutines of {few}");
    }
}

/// Under wait-die a first attempt dies of nearly all that it meets, since who holds a record came first; and who races for a word that
/// others share holds what it has got: found by combinations 66 of seed 13 and 388 of seed 11, where half of the attempts that abort by
/// calls had been foretold to, and three fifths by CAS.
#[test]
fn who_came_first_is_older() {
    let micro = [
        ("payload_bytes", "168"),
        ("reads", "7"),
        ("writes", "3"),
        ("records_per_thread", "2434"),
        ("together", "true"),
        ("hot_records_share", "0.03"),
        ("hot_accesses_share", "0.14"),
    ];
    let ycsb = [
        ("fields", "43"),
        ("operations", "5"),
        ("records_per_thread", "817"),
        ("together", "true"),
        ("think_us", "1"),
        ("write_share", "0.5"),
        ("zipf_theta", "0.8"),
    ];
    let on = |card: &str, workers| On {
        shape: Shape { nodes: 3, workers },
        replicas: 2,
        measured: Nanos::from_millis(4),
        ..four(&Profile::shipped(card).expect("a shipped profile"))
    };
    let waitdie = AnyProtocol::named("waitdie").expect("a protocol");
    for (card, workers, coroutines, workload, settings) in
        [("cx4-edr", 2, 12, "micro", &micro), ("cx5", 1, 8, "ycsb", &ycsb)]
    {
        for via in [Via::OneSided, Via::TwoSided] {
            let plan = Plan { coroutines, ..Plan::uniform(via).restricted_to(waitdie.needs()) };
            let ran = ran(&on(card, workers), waitdie, plan, workload, settings);
            let said = ran.said.aborted_per_s / (ran.said.aborted_per_s + ran.said.committed_per_s);
            let got = ran.result.aborted_share().expect("attempts");
            println!("{workload} {via}: {:+.3}, aborted: said {said:.3} got {got:.3}", ran.error());
            assert!((said - got).abs() < 0.08 && ran.error().abs() < 0.15, "{workload} {via}");
        }
    }
}

/// Readers that share a lock by CAS make each other's fail, coming and, where locks have ages, going, though nobody excludes them:
/// found by combinations 7 and 265 of seed 11, where eight and twelve times too much had been foretold.
#[test]
fn readers_of_a_record_race_for_its_word() {
    let on =
        On { shape: Shape { nodes: 2, workers: 2 }, measured: Nanos::from_millis(4), ..four(&shipped()) };
    // Many who leave by CAS are foretold 2.4 times as quick as they are; before, up to eleven times.
    for (protocol, most) in [("waitdie", [0.15, 0.35, 0.6]), ("nowait", [0.3; 3]), ("bounded-wait", [0.3; 3])]
    {
        let protocol = AnyProtocol::named(protocol).expect("a protocol");
        for (coroutines, most) in [1, 4, 16].into_iter().zip(most) {
            for together in ["true", "false"] {
                let settings = [
                    ("payload_bytes", "240"),
                    ("reads", "5"),
                    ("writes", "0"),
                    ("records_per_thread", "666"),
                    ("zipf_theta", "0.93"),
                    ("together", together),
                ];
                let plan =
                    Plan { coroutines, ..Plan::uniform(Via::OneSided).restricted_to(protocol.needs()) };
                let ran = ran(&on, protocol, plan, "micro", &settings);
                let error = ran.error();
                println!(
                    "{}, {coroutines} coroutines, together: {together}: said {:.0} got {:.0} {error:+.3}",
                    protocol.needs().protocol,
                    ran.said.committed_per_s,
                    ran.result.committed_per_s(),
                );
                assert!(error.abs() < most, "{error:+.3} off what is foretold");
            }
        }
    }
}

/// New-orders read their warehouse, and ten items, that nobody ever writes: nobody waits for those, so that nobody closes a circle there
/// either. Found by combinations 3, 12 and 43 of seed 21, of which an attempt in three or more had been foretold to fail in circles, and
/// 0.65, 0.59 and 0.48 of what comes one-sided; by calls 0.85, 0.87 and 0.66. What is still too low is in `experiments/REGRET.md`.
#[test]
fn nobody_waits_for_what_nobody_writes() {
    let protocol = AnyProtocol::named("bounded-wait").expect("a protocol");
    for (number, card, nodes, coroutines, replicas, items, cache_bytes, least) in [
        (3, 58_807, 3, 2, 2, "320", 238_080, [0.7, 0.88]),
        (12, 912_878, 3, 4, 2, "943", 477_312, [0.64, 0.92]),
        (43, 270_439, 2, 4, 1, "706", 257_536, [0.54, 0.78]),
    ] {
        let settings = [
            ("items", items),
            ("customers_per_district", "30"),
            ("orders_per_district", "30"),
            ("order_room_per_district", "645"),
        ];
        let on = On {
            shape: Shape { nodes, workers: 2 },
            replicas,
            cache_bytes,
            warm_up: Nanos::from_millis(6),
            measured: Nanos::from_millis(30),
            ..four(&Profile::drawn(card).expect("a drawn profile"))
        };
        for (via, least) in [Via::OneSided, Via::TwoSided].into_iter().zip(least) {
            let plan = Plan { coroutines, ..Plan::uniform(via).restricted_to(protocol.needs()) };
            let ran = ran(&on, protocol, plan, "tpcc-no", &settings);
            let said = ran.said.aborted_per_s / (ran.said.aborted_per_s + ran.said.committed_per_s);
            let got = ran.result.aborted_share().expect("attempts");
            let told = 1.0 / (1.0 + ran.error());
            println!("{number} {via}: {told:.3} of what comes, aborted: said {said:.3} got {got:.3}");
            assert!((least..1.2).contains(&told), "{number} {via}: {told:.3} of what comes is foretold");
            assert!(
                (said - got).abs() < 0.15,
                "{number} {via}: aborted {said:.3} foretold, {got:.3} counted"
            );
        }
    }
}
