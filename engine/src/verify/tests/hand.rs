//! One small history per anomaly, with the verdict a textbook gives.

use super::*;
use Level::{Serializable, StrictSerializable};

/// All overlap, so that real time says nothing.
fn together(ops: &[&[Op]]) -> Vec<Row> {
    ops.iter().map(|ops| commit(0, 100, *ops)).collect()
}

/// Fails at both levels with `expected` and that many transactions in the witness; `detail` is its common name.
#[track_caller]
fn fails(rows: &[Row], expected: Kind, transactions: usize, detail: Option<&str>) {
    for level in [Serializable, StrictSerializable] {
        let history = history(rows);
        assert_eq!(kind(&history, level), Some(expected), "{}", check(&history, level));
        let anomaly = check(&history, level).anomaly.expect("just seen");
        assert_eq!(anomaly.cycle.transactions.len(), transactions, "{anomaly}");
        if let Some(detail) = detail {
            assert_eq!(anomaly.detail.as_deref(), Some(detail), "{anomaly}");
        }
    }
}

#[track_caller]
fn passes(rows: &[Row]) {
    for level in [Serializable, StrictSerializable] {
        let verdict = check(&history(rows), level);
        assert!(verdict.passed(), "{verdict}");
    }
}

#[test]
fn nothing_and_a_serial_run_pass() {
    passes(&[]);
    passes(&[commit(0, 1, [])]);
    passes(&[
        commit(0, 1, [r(1, 0), w(1, 1)]),
        commit(2, 3, [r(1, 1), w(1, 2)]),
        commit(4, 5, [r(1, 2), r(2, 0)]),
    ]);
}

#[test]
fn dirty_write_is_g0() {
    fails(&together(&[&[w(1, 1), w(2, 2)], &[w(1, 2), w(2, 1)]]), Kind::G0, 2, None);
}

#[test]
fn aborted_read_is_g1a() {
    let mut rows = together(&[&[w(1, 1)], &[r(1, 1)]]);
    rows[0].end = End::Abort;
    fails(&rows, Kind::G1a, 2, None);
    // Nobody minds what the aborted one saw, nor a version number used again by one that committed.
    let mut rows = together(&[&[r(1, 9), w(1, 1)], &[w(1, 1)], &[r(1, 1)]]);
    rows[0].end = End::Abort;
    passes(&rows);
}

#[test]
fn intermediate_read_is_g1b() {
    fails(&together(&[&[w(1, 1), w(1, 2)], &[r(1, 1)]]), Kind::G1b, 2, None);
    passes(&together(&[&[w(1, 1), r(1, 1), w(1, 2), r(1, 2)], &[r(1, 2)]]));
}

#[test]
fn circular_information_flow_is_g1c() {
    fails(&together(&[&[w(1, 1), r(2, 1)], &[w(2, 1), r(1, 1)]]), Kind::G1c, 2, None);
}

#[test]
fn lost_update_with_versions_apart_and_alike() {
    fails(&together(&[&[r(1, 0), w(1, 1)], &[r(1, 0), w(1, 2)]]), Kind::GSingle, 2, Some("lost update"));
    fails(&together(&[&[r(1, 0), w(1, 1)], &[r(1, 0), w(1, 1)]]), Kind::DuplicateVersion, 2, None);
}

#[test]
fn read_skew_and_non_repeatable_read_are_g_single() {
    fails(&together(&[&[r(1, 0), r(2, 1)], &[w(1, 1), w(2, 1)]]), Kind::GSingle, 2, Some("read skew"));
    fails(&together(&[&[r(1, 0), r(1, 1)], &[w(1, 1)]]), Kind::GSingle, 2, Some("non-repeatable read"));
}

#[test]
fn write_skew_is_g2() {
    let rows = together(&[&[r(1, 0), r(2, 0), w(1, 1)], &[r(1, 0), r(2, 0), w(2, 1)]]);
    fails(&rows, Kind::G2, 2, Some("write skew"));
}

#[test]
fn long_fork_is_g_nonadjacent() {
    let rows = together(&[&[w(1, 1)], &[w(2, 1)], &[r(1, 1), r(2, 0)], &[r(1, 0), r(2, 1)]]);
    fails(&rows, Kind::GNonadjacent, 4, Some("long fork"));
}

#[test]
fn stale_read_fails_only_in_real_time() {
    let rows = [commit(0, 10, [w(1, 1)]), commit(20, 30, [r(1, 0)])];
    assert_eq!(kind(&history(&rows), Serializable), None);
    assert_eq!(kind(&history(&rows), StrictSerializable), Some(Kind::RealTime));
    let anomaly = check(&history(&rows), StrictSerializable).anomaly.expect("just seen");
    assert_eq!(anomaly.detail.as_deref(), Some("stale read"));
    // At the same nanosecond they may have overlapped.
    passes(&[commit(0, 10, [w(1, 1)]), commit(10, 30, [r(1, 0)])]);
}

#[test]
fn real_time_reaches_through_transactions_that_overlap_both_ends() {
    // T0 ended before T3 began, yet T3 →rw T1 →wr T2 →rw T0.
    let rows = [
        commit(0, 10, [w(1, 1)]),
        commit(0, 100, [w(2, 1), w(3, 1)]),
        commit(0, 100, [r(3, 1), r(1, 0)]),
        commit(20, 30, [r(2, 0)]),
    ];
    assert_eq!(kind(&history(&rows), Serializable), None);
    let anomaly = check(&history(&rows), StrictSerializable).anomaly.expect("a violation");
    assert_eq!((anomaly.kind, anomaly.cycle.edges.len()), (Kind::RealTime, 4), "{anomaly}");
}

#[test]
fn versions_from_nowhere_and_versions_that_go_back() {
    fails(&together(&[&[r(1, 5)]]), Kind::UnwrittenRead, 1, None);
    fails(&together(&[&[w(1, 0)]]), Kind::NonMonotonicVersion, 1, None);
    fails(&together(&[&[w(1, 3), w(1, 2)]]), Kind::NonMonotonicVersion, 1, None);
}

#[test]
fn a_transaction_must_see_its_own_writes_and_not_before() {
    fails(&together(&[&[w(1, 1), r(1, 0)]]), Kind::Internal, 1, None);
    fails(&together(&[&[r(1, 1), w(1, 1)]]), Kind::Internal, 1, None);
}

#[test]
fn doubt_counts_as_committed_only_when_seen() {
    let doubt = |ops: &[Op]| Row { interval: (0, 0), end: End::Doubt, ops: ops.to_vec() };
    // Unseen: it may have claimed a version that another got.
    passes(&[doubt(&[w(1, 1)]), commit(0, 9, [w(1, 1)]), commit(20, 30, [r(1, 1)])]);
    // Seen, long after its last sign of life.
    passes(&[doubt(&[w(1, 1)]), commit(5, 9, [r(1, 0)]), commit(20, 30, [r(1, 1)])]);
    // Seen in half.
    fails(
        &[doubt(&[w(1, 1), w(2, 1)]), commit(5, 9, [r(1, 1), r(2, 0)])],
        Kind::GSingle,
        2,
        Some("read skew"),
    );
    // Seen through another in doubt.
    let rows = [doubt(&[w(1, 1), w(3, 1)]), doubt(&[r(1, 1), w(2, 1)]), commit(5, 9, [r(2, 1), r(3, 0)])];
    fails(&rows, Kind::GSingle, 3, None);
    assert_eq!(check(&history(&rows), Serializable).counts.in_doubt_committed, 2);
    // Two candidates: nobody is blamed, and it is said.
    let rows = [doubt(&[w(1, 1)]), doubt(&[w(1, 1)]), commit(5, 9, [r(1, 1)])];
    passes(&rows);
    assert_eq!(check(&history(&rows), Serializable).counts.ambiguous_versions, 1);
}

#[test]
fn an_explicit_first_transaction_replaces_the_initial_version() {
    let mut loaded = History::new(None);
    loaded.push(0, 0, (Nanos(0), Nanos(1)), Outcome::Committed, [w(1, 7), w(2, 7)]);
    loaded.push(1, 1, (Nanos(2), Nanos(3)), Outcome::Committed, [r(1, 7), w(1, 8)]);
    assert_eq!(kind(&loaded, StrictSerializable), None);
    loaded.push(2, 2, (Nanos(4), Nanos(5)), Outcome::Committed, [r(2, 0)]);
    assert_eq!(kind(&loaded, Serializable), Some(Kind::UnwrittenRead));
}

#[test]
fn tables_keep_their_keys_apart() {
    let other = Key { table: 1, key: 1 };
    passes(&[commit(0, 1, [w(1, 1), Op::write(other, 1)]), commit(2, 3, [r(1, 1), Op::write(other, 2)])]);
}

#[test]
fn a_clock_that_goes_back_orders_nothing_it_should_not() {
    let rows = [commit(50, 10, [w(1, 1)]), commit(20, 30, [r(1, 0)])];
    passes(&rows);
    assert_eq!(check(&history(&rows), StrictSerializable).counts.clock_reversals, 1);
}

#[test]
fn the_shortest_witness_wins() {
    // A ring of five anti-dependencies, and elsewhere a pair.
    let mut rows: Vec<Row> = (0..5).map(|n| commit(0, 9, [r(n, 0), w((n + 1) % 5, 1)])).collect();
    fails(&rows, Kind::G2, 5, None);
    rows.extend(together(&[&[r(10, 0), w(11, 1)], &[r(11, 0), w(10, 1)]]));
    fails(&rows, Kind::G2, 2, Some("write skew"));
}

#[test]
fn a_million_transactions_in_one_ring_need_no_stack() {
    let count = 1_000_000;
    let mut ring = History::new(Some(0));
    for n in 0..count {
        ring.push(n, 0, (Nanos(0), Nanos(9)), Outcome::Committed, [r(n, 1), w((n + 1) % count, 1)]);
    }
    let verdict = check(&ring, StrictSerializable);
    let anomaly = verdict.anomaly.expect("a ring");
    assert_eq!((anomaly.kind, anomaly.cycle.edges.len()), (Kind::G1c, count as usize));
}

#[test]
fn json_and_text_carry_the_cycle() {
    let rows = together(&[&[r(1, 0), r(2, 0), w(1, 1)], &[r(1, 0), r(2, 0), w(2, 1)]]);
    let verdict = check(&history(&rows), Serializable);
    let json = serde_json::to_value(&verdict).expect("plain data");
    assert_eq!((&json["level"], &json["verdict"]), (&"serializable".into(), &"fail".into()));
    assert_eq!(json["anomaly"]["kind"], "G2");
    assert_eq!(json["anomaly"]["cycle"]["transactions"][1]["id"], 1);
    let edge = &json["anomaly"]["cycle"]["edges"][0];
    assert_eq!(edge["dependency"], "rw");
    let on = serde_json::json!({"table": 0, "key": 2, "from_version": 0, "to_version": 1});
    assert_eq!(edge["on"], on);
    let text = verdict.to_string();
    assert!(
        text.contains("T0 → T1 rw: T0 read version 0 and T1 replaced it with version 1 (table 0 key 2)"),
        "{text}"
    );
    let pass = serde_json::to_value(check(&history(&[]), StrictSerializable)).expect("plain data");
    assert_eq!((&pass["level"], &pass["verdict"]), (&"strict-serializable".into(), &"pass".into()));
    assert!(pass["anomaly"].is_null());
    assert_eq!("strict-serializable".parse(), Ok(StrictSerializable));
    assert!("strict".parse::<Level>().is_err());
}

/// A digest for a payload of one word.
fn d(word: u64) -> Digest {
    Digest::of(&[word])
}

/// The first fails everywhere with a torn read, which so many transactions are the witness of, and says so; with other digests it passes.
#[track_caller]
fn is_torn(history: &History, transactions: usize, says: &str) {
    for level in Level::ALL {
        assert_eq!(kind(history, level), Some(Kind::TornRead), "{level}");
    }
    let anomaly = check(history, Serializable).anomaly.expect("just seen");
    assert_eq!(anomaly.cycle.transactions.len(), transactions, "{anomaly}");
    assert!(anomaly.to_string().contains(says), "{anomaly}");
}

#[test]
fn a_version_with_another_payload_than_its_writers_is_a_torn_read() {
    let run = |seen: Digest| {
        history(&together(&[
            &[r(1, 0).with(d(10)), w(1, 1).with(d(11))],
            &[r(1, 1).with(seen)],
            // What nobody looked at says nothing.
            &[r(1, 1), r(2, 0)],
        ]))
    };
    assert_eq!(kind(&run(d(11)), StrictSerializable), None);
    assert_eq!(kind(&run(Digest::NONE), StrictSerializable), None);
    is_torn(&run(d(12)), 2, "torn-read on table 0 key 1 version 1: read a payload of digest");
    is_torn(&run(d(10)), 2, "T0 → T1 wr: T0 wrote version 1 and T1 read it (table 0 key 1)");
    let mut rows = together(&[&[w(1, 1)], &[r(1, 1).with(d(12))]]);
    passes(&rows);
    // Who aborted may have read anything.
    rows = together(&[&[w(1, 1).with(d(11))], &[r(1, 1).with(d(12))]]);
    rows[1].end = End::Abort;
    passes(&rows);
    // Of two writers of a version either may have been read: that there are two is the anomaly.
    let two = together(&[&[w(1, 1).with(d(11))], &[w(1, 1).with(d(12))], &[r(1, 1).with(d(12))]]);
    fails(&two, Kind::DuplicateVersion, 2, None);
    // Who wrote in doubt and was read took effect, and is held to what it wrote.
    let mut rows = together(&[&[w(1, 1).with(d(11))], &[r(1, 1).with(d(12))]]);
    rows[0].end = End::Doubt;
    fails(&rows, Kind::TornRead, 2, None);
}

#[test]
fn what_records_began_with_can_be_torn_too() {
    let rows = together(&[&[r(1, 0).with(d(10))], &[r(2, 0).with(d(20)), w(2, 1).with(d(21))]]);
    let loaded = |key: u64, digest| {
        let mut history = history(&rows);
        history.learn_initial(|asked| {
            assert_eq!(asked, [k(1), k(2)], "those that were read");
            [1, 2].map(|n| (k(n), if n == key { digest } else { d(10 * n) })).into()
        });
        history
    };
    assert_eq!(kind(&loaded(1, d(10)), StrictSerializable), None);
    is_torn(&loaded(1, d(11)), 1, "where the load left one of");
    is_torn(&loaded(2, d(21)), 1, "torn-read on table 0 key 2 version 0");
    // Nobody says what it was: at least it was one thing.
    passes(&rows);
    fails(&together(&[&[r(1, 0).with(d(10))], &[r(1, 0).with(d(11))]]), Kind::TornRead, 1, None);
}
