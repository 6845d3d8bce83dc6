use super::*;
use primitives::profile::Profile;

fn touch(remote: f64, nodes: f64) -> Touch {
    Touch { remote, nodes, payload: 16, cached: 1.0, backups: 2.0, ..Touch::default() }
}

fn counts(phase: Phase, step: Step, touch: Touch) -> (f64, f64, f64) {
    let d = demand(&Carriage::plain(phase, step), &touch, &Sizes::default());
    (d.verbs(), d.doorbells(), d.round_trips())
}

#[test]
fn lock_and_commit_take_one_doorbell_and_one_round_trip_per_node() {
    let one = |phase| Step { passive_ack: false, ..Step::table2(phase, Via::OneSided) };
    let two = |phase| Step { passive_ack: false, ..Step::table2(phase, Via::TwoSided) };
    for phase in [Phase::Lock, Phase::Install] {
        assert_eq!(counts(phase, one(phase), touch(1.0, 1.0)), (2.0, 1.0, 1.0));
        assert_eq!(counts(phase, one(phase), touch(3.0, 2.0)), (6.0, 2.0, 1.0));
        assert_eq!(counts(phase, two(phase), touch(3.0, 2.0)), (3.0, 1.0, 1.0));
    }
}

/// FaSST's owner is asked before the record was met: the reply brings it along. A CAS has to know what to expect, as under OCC.
#[test]
fn who_locks_at_first_touch_gets_the_record_with_the_lock() {
    let ask = |via, locks_at_touch| {
        let how = Carriage { locks_at_touch, ..Carriage::plain(Phase::Lock, Step::table2(Phase::Lock, via)) };
        demand(&how, &touch(3.0, 2.0), &Sizes::default())
    };
    let [later, first] = [false, true].map(|at_touch| ask(Via::TwoSided, at_touch));
    assert_eq!((later.verbs(), later.round_trips()), (first.verbs(), first.round_trips()));
    assert!(first.server.copied > later.server.copied && first.server.probes > later.server.probes);
    assert_eq!(ask(Via::OneSided, false).verbs(), ask(Via::OneSided, true).verbs());
}

#[test]
fn passive_commit_is_awaited_by_nobody_and_two_sided_it_saves_the_replies() {
    for via in [Via::OneSided, Via::TwoSided] {
        let step = Step::table2(Phase::Install, via);
        let d = demand(&Carriage::plain(Phase::Install, step), &touch(2.0, 2.0), &Sizes::default());
        assert_eq!((d.round_trips(), d.signaled, d.replies.len()), (0.0, 0.0, 0));
        let acked = Step { passive_ack: false, ..step };
        let d = demand(&Carriage::plain(Phase::Install, acked), &touch(2.0, 2.0), &Sizes::default());
        assert_eq!(d.round_trips(), 1.0);
        assert_eq!(
            d.replies.iter().map(|f| f.count).sum::<f64>(),
            if via == Via::TwoSided { 2.0 } else { 0.0 }
        );
    }
}

#[test]
fn without_outstanding_requests_records_are_waited_for_one_by_one() {
    for via in [Via::OneSided, Via::TwoSided] {
        let (_, doorbells, waits) = counts(Phase::Fetch, Step::bare(via), touch(4.0, 3.0));
        assert_eq!((doorbells, waits), (4.0, 4.0));
    }
}

#[test]
fn a_missed_location_costs_a_second_read_or_a_call() {
    let miss = Touch { cached: 0.0, ..touch(1.0, 1.0) };
    assert_eq!(counts(Phase::Fetch, Step::bare(Via::OneSided), touch(1.0, 1.0)), (1.0, 1.0, 1.0));
    assert_eq!(counts(Phase::Fetch, Step::bare(Via::OneSided), miss), (2.0, 2.0, 2.0));
    let hybrid = Step { outstanding: true, ..Step::bare(Via::Hybrid) };
    for touch in [miss, touch(1.0, 1.0), Touch { cached: 0.5, ..touch(2.0, 2.0) }] {
        let d = demand(&Carriage::plain(Phase::Fetch, hybrid), &touch, &Sizes::default());
        assert!((d.round_trips() - 1.0).abs() < 1e-12, "{d:?}");
        assert_eq!(d.verbs(), touch.remote);
        assert_eq!(d.verbs_of(Primitive::Send), touch.remote * (1.0 - touch.cached));
    }
}

#[test]
fn logging_writes_once_to_each_backup_node_and_waits_once() {
    let step = Step::table2(Phase::Log, Via::OneSided);
    let d = demand(&Carriage::plain(Phase::Log, step), &touch(2.0, 4.0), &Sizes::default());
    assert_eq!((d.verbs_of(Primitive::Write), d.round_trips()), (4.0, 1.0));
    let none = Touch { backups: 0.0, ..touch(2.0, 0.0) };
    assert_eq!(demand(&Carriage::plain(Phase::Log, step), &none, &Sizes::default()), Demand::default());
}

/// However entries came, a backup applies them 32 at a time, and none of that is in what a call takes.
#[test]
fn what_backups_apply_is_done_in_long_turns() {
    let sizes = Sizes::default();
    let some = Touch { local: 1.0, backups: 2.0, ..touch(2.0, 2.0) };
    for via in [Via::OneSided, Via::TwoSided] {
        let d = demand(&Carriage::plain(Phase::Log, Step::table2(Phase::Log, via)), &some, &sizes);
        let [theirs, own] = d.at_length;
        // Two records of two backups each, one of the four copies on the own node.
        assert_eq!((theirs.turns, theirs.work.probes), (2.0 / 32.0, 3.0), "{via}");
        assert_eq!((own.turns, own.work.probes), (1.0 / 32.0, 1.0), "{via}");
        assert_eq!(theirs.work.copied, 3.0 * f64::from(sizes.logged_overhead + some.payload));
        assert_eq!((d.server.probes, d.requester.probes), (0.0, 1.0), "{via}");
    }
}

#[test]
fn local_lock_words_go_through_the_nic_only_where_it_owns_them() {
    let local = Touch { local: 2.0, payload: 16, ..Touch::default() };
    let step = Step::table2(Phase::Lock, Via::OneSided);
    let plain = demand(&Carriage::plain(Phase::Lock, step), &local, &Sizes::default());
    assert_eq!((plain.verbs(), plain.round_trips()), (0.0, 0.0));
    let owned = Carriage { nic_owns_lock_words: true, ..Carriage::plain(Phase::Lock, step) };
    let d = demand(&owned, &local, &Sizes::default());
    assert_eq!((d.verbs_of(Primitive::Atomic), d.round_trips(), d.doorbells()), (2.0, 1.0, 1.0));
    let both = Touch { remote: 1.0, nodes: 1.0, ..local };
    assert_eq!(demand(&owned, &both, &Sizes::default()).round_trips(), 1.0);
}

#[test]
fn records_kept_at_home_are_the_cpus_to_lock_unless_the_nic_owns_their_leases() {
    let local = Touch { local: 3.0, at_home: 2.0, payload: 16, ..Touch::default() };
    let lock = Carriage::plain(Phase::Lock, Step::table2(Phase::Lock, Via::OneSided));
    let install = Carriage::plain(Phase::Install, Step::table2(Phase::Install, Via::OneSided));
    for (leases, by_nic) in [(false, 1.0), (true, 3.0)] {
        let owned = |how| Carriage { nic_owns_lock_words: true, nic_owns_leases: leases, ..how };
        let d = demand(&owned(lock), &local, &Sizes::default());
        assert_eq!((d.verbs_of(Primitive::Atomic), d.round_trips()), (by_nic, 1.0));
        let d = demand(&owned(install), &local, &Sizes::default());
        assert_eq!(d.verbs_of(Primitive::Write), by_nic);
    }
    let all = Touch { at_home: 3.0, ..local };
    let owned = Carriage { nic_owns_lock_words: true, ..lock };
    assert_eq!(demand(&owned, &all, &Sizes::default()).verbs(), 0.0);
}

#[test]
fn misses_are_waited_for_as_often_as_there_are_any() {
    let touch = Touch { cached: 0.5, others: 3.0, ..touch(3.0, 57.0 / 27.0) };
    let step = Step { outstanding: true, doorbell_batching: true, ..Step::bare(Via::OneSided) };
    let d = demand(&Carriage::plain(Phase::Fetch, step), &touch, &Sizes::default());
    // One of three misses with seven chances in eight, and then the records are read.
    assert!((d.round_trips() - (7.0 / 8.0 + 1.0)).abs() < 1e-12, "{}", d.round_trips());
    assert_eq!(d.verbs(), 4.5);
    // A doorbell for each node, of which there are fewer with a record that is missed.
    assert!((d.doorbells() - 57.0 / 27.0 - 1.37).abs() < 0.01, "{}", d.doorbells());
    // Where records may all be local, there is less to wait for.
    let chances = Chances { any_remote: 0.5, any_local: 1.0, only_local: 0.5 };
    let seldom = Touch { remote: 1.0, nodes: 0.6, chances: Some(chances), ..touch };
    let d = demand(&Carriage::plain(Phase::Fetch, step), &seldom, &Sizes::default());
    assert!((d.round_trips() - (0.5 * 0.75 + 0.5)).abs() < 1e-12, "{}", d.round_trips());
}

/// Handlers of phases at 2.2 GHz, of SmallBank and TPC-C's new-order: DrTM+H table 3, which `cpu.probe` is calibrated to. What its
/// validation of TPC-C takes is for messages of several records; logging, which copies, is not among them.
#[test]
fn handlers_take_what_table_3_says() {
    let cpu = Profile::shipped("cx4-edr").unwrap().cpu;
    let cycles =
        [(Phase::Fetch, [678.0, 342.0]), (Phase::Validate, [185.0, 454.0]), (Phase::Install, [87.0, 108.0])];
    let mut factors = Vec::new();
    for (phase, published) in cycles {
        for (published, payload) in published.into_iter().zip([16, 40]) {
            let handler = handler(phase, payload);
            assert_eq!(handler.dispatches, 1.0);
            factors.push(handler.cost_ns(&cpu) / (published / 2.2));
        }
    }
    let mean = (factors.iter().map(|f: &f64| f.ln()).sum::<f64>() / factors.len() as f64).exp();
    assert!((mean - 1.0).abs() < 0.05, "{mean} of what is published: {factors:?}");
    assert!(factors.iter().all(|f| (0.4..2.5).contains(f)), "{factors:?}");
    // One record in one entry is copied once.
    let logged = handler(Phase::Log, 1006).copied;
    assert!((1006.0..1100.0).contains(&logged), "{logged} bytes copied");
}

/// How the waits of a fetch with all requests outstanding are chained: for completions, and for replies.
fn chained(d: &Demand) -> Vec<(bool, f64)> {
    let of = |wave: &Wave| match wave.until {
        Awaited::Completion { chained, .. } => (false, chained),
        Awaited::Reply { chained, .. } => (true, chained),
    };
    d.waves.iter().map(of).collect()
}

#[test]
fn a_hybrid_fetch_whose_records_are_all_known_waits_as_a_one_sided_one() {
    let chances = Chances { any_remote: 1.0, any_local: 0.0, only_local: 0.0 };
    let touch = Touch { others: 3.0, chances: Some(chances), ..touch(3.0, 57.0 / 27.0) };
    let by = |via, doorbell_batching| {
        let step = Step { outstanding: true, doorbell_batching, ..Step::bare(via) };
        demand(&Carriage::plain(Phase::Fetch, step), &touch, &Sizes::default())
    };
    for together in [false, true] {
        assert_eq!(by(Via::Hybrid, together).waves, by(Via::OneSided, together).waves);
    }
    // Three records are on three nodes with chance 2/9; else the last to come shares its doorbell.
    let got = chained(&by(Via::Hybrid, true));
    assert!(got.len() == 1 && !got[0].0 && (got[0].1 - 7.0 / 9.0).abs() < 1e-12, "{got:?}");
    assert_eq!(chained(&by(Via::Hybrid, false)), [(false, 0.0)]);
}

#[test]
fn what_nobody_waits_for_is_left_on_its_queue_pairs() {
    let step = |via| Step { passive_ack: true, ..Step::table2(Phase::Install, via) };
    let of = |step, touch| demand(&Carriage::plain(Phase::Install, step), &touch, &Sizes::default()).left;
    let short = Left { datagram: false, queues: 2.0, chained: 1.0, fetched: 0, after: 1.0 };
    assert_eq!(of(step(Via::OneSided), touch(2.0, 2.0)), [short]);
    let long = Touch { payload: 400, ..touch(2.0, 2.0) };
    let [left] = of(step(Via::OneSided), long)[..] else { panic!("one kind") };
    assert!(left.fetched > 400 && left.chained == 1.0, "{left:?}");
    let apart = Step { doorbell_batching: false, ..step(Via::OneSided) };
    assert_eq!(of(apart, long), [Left { chained: 0.0, ..left }]);
    let [calls] = of(step(Via::TwoSided), long)[..] else { panic!("one kind") };
    assert!(
        calls.datagram && calls.queues == 1.0 && calls.chained == 1.0 && calls.fetched > 400,
        "{calls:?}"
    );
    assert_eq!(of(Step { passive_ack: false, ..step(Via::OneSided) }, long), []);
}
