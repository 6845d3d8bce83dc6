use super::*;
use crate::model::fixtures::{calm, caps, class, cluster, contended, profile};
use crate::model::input::Elsewhere;
use crate::model::knobs::KNOBS;
use crate::plan::{Plan, Preset, Space, Via};
use primitives::fabric::AtomicScope;
use primitives::profile::Primitive;

fn checked(plan: Plan) -> CheckedPlan {
    plan.check(&caps(true, AtomicScope::Nic), &Needs::OCC).unwrap()
}

fn plans(coroutines: u32) -> Vec<CheckedPlan> {
    let space = Space::all(&caps(true, AtomicScope::Nic), &Needs::OCC, true);
    space.plans().step_by(7).map(|plan| checked(Plan { coroutines, ..plan })).collect()
}

fn forecast(profile: &Profile, cluster: Cluster, workload: &Workload, plan: &CheckedPlan) -> Forecast {
    Model::new(profile, cluster, workload, &Needs::OCC).unwrap().forecast(plan)
}

#[test]
fn the_model_inlines_as_much_as_ports_do() {
    let workload = Workload { local_share: 0.0, cache_hit_share: 1.0, ..calm(2) };
    let lone = Cluster { nodes: 2, threads: 1, backups: 0, lanes: 1 };
    let plan = checked(Plan { coroutines: 1, ..Plan::uniform(Via::OneSided) });
    let latency = |max_inline: f64| {
        let mut profile = profile();
        profile.nic.max_inline.value = max_inline;
        forecast(&profile, lone, &workload, &plan).latency_mean_ns
    };
    // From 64 B on a header rides along, which its core copies for nothing: the record behind which it waits does not.
    let (none, header, record) = (latency(0.0), latency(64.0), latency(4096.0));
    assert!(record < none && none < header, "{none} {header} {record}");
}

#[test]
fn one_coroutine_takes_the_sum_of_the_unloaded_latencies_and_its_cores_work() {
    let profile = profile();
    let (nic, cpu) = (&profile.nic, &profile.cpu);
    let workload = Workload {
        classes: vec![class("update", 1.0, 0.0, 1.0)],
        local_share: 0.0,
        cache_hit_share: 1.0,
        ..calm(2)
    };
    let lone = Cluster { nodes: 2, threads: 1, backups: 0, lanes: 1 };
    let mut plan = Plan { coroutines: 1, ..Plan::uniform(Via::OneSided) };
    plan.install = plan.install.map(|s| Step { passive_ack: false, ..s });
    let got = forecast(&profile, lone, &workload, &checked(plan));

    let read = nic.unloaded_latency_ns(Primitive::Read, 88, false);
    let lock = nic.unloaded_latency_ns(Primitive::Atomic, 8, false);
    assert!(lock > nic.unloaded_latency_ns(Primitive::Read, 8, false));
    let install = nic.unloaded_latency_ns(Primitive::Write, 8, true);
    // CAS and READ share a doorbell, so do the two WRITEs: the NIC fetches the second, which passes the same unit as the first.
    // What the first WRITE writes is too long to ride along, and the second may not overtake it.
    let fetch = |bytes| nic.pcie_request_ns(bytes) + nic.pcie_read.value + nic.pcie_answer_ns(bytes);
    let units = nic.processing_units.value;
    let first = units * nic.requester_write.value.max(nic.responder_write.value);
    // The READ comes after the CAS has written.
    let written =
        (units * nic.requester_atomic.value.max(nic.responder_atomic.value)).max(nic.atomic_write_ns());
    let wire = read + lock + install + fetch(80) + 2.0 * fetch(64) + first + written;
    let requests = 5.0 * cpu.request.value + 3.0 * cpu.doorbell.value + cpu.inline_line.value;
    let waits = 3.0 * (cpu.completion.value + cpu.resume.value);
    let core = requests + waits + cpu.probe.value + 2.0 * 88.0 * cpu.copy_byte.value + 100.0;
    let expected = wire + core;
    // The other node's coroutine is in the way now and then: by at most a tenth of a per cent here.
    assert!(got.latency_mean_ns >= expected - 1e-6, "{} {expected}", got.latency_mean_ns);
    assert!(got.latency_mean_ns <= expected * 1.001, "{} {expected}", got.latency_mean_ns);
    assert_eq!(got.bottleneck, Bottleneck::Latency);
    assert_eq!(
        (got.total(|p| p.verbs), got.total(|p| p.doorbells), got.total(|p| p.round_trips)),
        (5.0, 3.0, 3.0)
    );
}

#[test]
fn a_call_waits_twice_for_a_thread_to_notice_and_a_read_never() {
    // Handlers that take little, so that the other node's calls are hardly ever in the way; and replies that wait for none to share
    // a doorbell with, or lose nothing by it.
    let mut quick = profile();
    quick.cpu.probe.value = 0.0;
    quick.nic.pcie_read.value = 0.0;
    let mut slow = quick.clone();
    slow.cpu.handover.value = 700.0;
    let workload = Workload { classes: vec![class("update", 1.0, 0.0, 1.0)], local_share: 0.0, ..calm(2) };
    let lone = Cluster { nodes: 2, threads: 1, backups: 0, lanes: 1 };
    for via in [Via::OneSided, Via::TwoSided] {
        let plan = checked(Plan { coroutines: 1, ..Plan::uniform(via) });
        let (before, after) =
            (forecast(&quick, lone, &workload, &plan), forecast(&slow, lone, &workload, &plan));
        let waits = if via == Via::TwoSided { before.total(|p| p.round_trips) } else { 0.0 };
        let longer = after.latency_mean_ns - before.latency_mean_ns;
        // A cluster that waits more queues less.
        assert!(
            (longer - 1400.0 * waits).abs() <= 0.01 * 1400.0 * waits,
            "{via:?}: {longer} for {waits} waits"
        );
    }
}

#[test]
fn what_the_engine_computes_is_priced_once_for_each_attempt_and_record() {
    let plain = profile();
    let mut slow = plain.clone();
    (slow.cpu.attempt.value, slow.cpu.access.value) = (500.0, 200.0);
    let plan = checked(Plan { coroutines: 4, ..Plan::uniform(Via::OneSided) });
    // One node, so that cores alone limit; 2 records in 0.3 of the transactions, 3 in the others, and one attempt each.
    let each = |profile: &Profile| 1e9 / forecast(profile, cluster(1, 1), &calm(1), &plan).committed_per_s;
    let more = each(&slow) - each(&plain);
    let records = 0.3 * 2.0 + 0.7 * 3.0;
    assert!((more - (500.0 + 200.0 * records)).abs() < 1e-6, "{more}");
    // A search that scales other inputs prices it as the search itself does.
    let calm = calm(1);
    let given = Model::new(&slow, cluster(1, 1), &calm, &Needs::OCC).unwrap().workload().clone();
    assert_eq!(given, calm);
}

#[test]
fn a_single_node_is_limited_by_its_cores_alone() {
    let profile = profile();
    let plan = checked(Plan { coroutines: 4, ..Plan::uniform(Via::TwoSided) });
    let got = forecast(&profile, cluster(1, 3), &calm(1), &plan);
    assert_eq!(got.bottleneck, Bottleneck::Station(Station::Core));
    assert_eq!(&got.utilization[1..], [0.0; Station::ALL.len() - 1]);
    let per_core = got.committed_per_s / 3.0;
    let work = 1e9 / per_core;
    let three = forecast(&profile, cluster(1, 1), &calm(1), &plan);
    assert!((three.committed_per_s - per_core).abs() < 1e-6 * per_core);
    assert!(work > 100.0 && (got.utilization[0] - 1.0).abs() < 1e-9);
}

/// What many coroutines get is what a card's ceiling, or the one thread that receives for a machine, lets through: so many messages of a
/// transaction one after the other, every request one and with calls every reply another.
#[test]
fn a_ceiling_and_a_receiving_thread_limit_a_machines_messages() {
    for (via, number, ns, station, each) in [
        (Via::OneSided, ("nic", "message_gap"), 400.0, Station::Ceiling, 1.0),
        (Via::TwoSided, ("nic", "message_gap"), 900.0, Station::Ceiling, 2.0),
        (Via::TwoSided, ("cpu", "receiver"), 3000.0, Station::Receiver, 2.0),
    ] {
        let mut profile = profile();
        profile.number_mut(number.0, number.1).unwrap().value = ns;
        let mut plan = Plan { coroutines: 20, ..Plan::uniform(via) };
        for step in [&mut plan.install, &mut plan.unlock] {
            *step = step.map(|step| Step { passive_ack: false, ..step });
        }
        let plan = checked(plan);
        let f = forecast(&profile, cluster(4, 8), &calm(4), &plan);
        assert_eq!(f.bottleneck, Bottleneck::Station(station), "{via:?}");
        let messages = each * f.total(|p| p.verbs) * f.committed_per_s / 4.0;
        assert!((messages * ns / 1e9 - 1.0).abs() < 0.01, "{via:?}: {messages} messages/s, {ns} ns each");
    }
}

#[test]
fn the_rate_respects_every_bound_and_littles_law() {
    let profile = profile();
    for workload in [calm(4), contended(4, 1e5), contended(4, 50.0)] {
        for coroutines in [1, 5, 40] {
            for plan in plans(coroutines) {
                let f = forecast(&profile, cluster(4, 2), &workload, &plan);
                let customers = f64::from(4 * 2 * coroutines);
                assert!(f.utilization.iter().all(|u| (0.0..=1.0 + 1e-9).contains(u)), "{f:?}");
                let held = f.committed_per_s * f.latency_mean_ns / 1e9;
                assert!((held / customers - 1.0).abs() < 1e-9, "{held} {customers}");
                let alone = Plan { coroutines: 1, ..*plan.get() };
                let lone =
                    forecast(&profile, Cluster { threads: 1, ..cluster(4, 2) }, &calm(4), &checked(alone));
                // The latency of a nearly empty cluster is the shortest there is (0.5 %: it is not quite empty).
                assert!(
                    f.committed_per_s <= 1.005 * customers * 1e9 / lone.latency_mean_ns,
                    "{}",
                    plan.get()
                );
                let phases: f64 = f.phases.iter().map(|p| p.latency_ns).sum();
                assert!(phases <= f.latency_mean_ns * (1.0 + 1e-9));
                assert!(f.aborted_per_s >= 0.0 && f.latency_mean_ns > 0.0);
            }
        }
    }
}

#[test]
fn a_faster_part_never_makes_a_forecast_slower() {
    let profile = profile();
    // With conflicts it may, by a hair: time saved on an unlocked part of a transaction is spent queueing in a locked
    // one when the cores are busy.
    for (workload, slack) in [(calm(4), 1e-9), (contended(4, 1e4), 1e-3)] {
        for coroutines in [1, 8, 32] {
            for plan in plans(coroutines).iter().step_by(3) {
                let before = forecast(&profile, cluster(4, 6), &workload, plan).committed_per_s;
                for knob in KNOBS {
                    let (what, mut faster) = (knob.name, profile.clone());
                    let factor = if what == "the link rate" { 2.0 } else { 0.5 };
                    knob.scale(&mut faster, factor);
                    let after = forecast(&faster, cluster(4, 6), &workload, plan).committed_per_s;
                    assert!(after >= before * (1.0 - slack), "{what}: {before} {after}, {}", plan.get());
                }
            }
        }
    }
}

#[test]
fn more_coroutines_never_lower_the_rate_without_conflicts() {
    let profile = profile();
    for &preset in Preset::ALL {
        let mut last = 0.0;
        for coroutines in [1, 2, 3, 5, 8, 13, 21, 34, 55] {
            let plan = checked(Plan { coroutines, ..preset.plan() });
            let rate = forecast(&profile, cluster(8, 4), &calm(8), &plan).committed_per_s;
            assert!(rate >= last * (1.0 - 1e-9), "{preset}: {last} {rate}");
            last = rate;
        }
    }
}

#[test]
fn shares_whose_sum_is_rounded_leave_nothing_aborted() {
    let classes = [0.7, 0.1, 0.1, 0.1].map(|share| class("read", share, 1.0, 0.0));
    assert!(classes.iter().map(|c| c.share).sum::<f64>() < 1.0);
    let workload = Workload { classes: classes.to_vec(), ..calm(4) };
    let f = forecast(&profile(), cluster(4, 2), &workload, &checked(Preset::DrtmH.plan()));
    assert_eq!(f.aborted_per_s, 0.0);
}

#[test]
fn hotter_records_abort_more_and_commit_less() {
    let profile = profile();
    let plan = checked(Preset::DrtmH.plan());
    let at = |workload: &Workload| forecast(&profile, cluster(4, 4), workload, &plan);
    let calm = at(&calm(4));
    assert_eq!(calm.aborted_per_s, 0.0);
    let mut last = calm;
    for hot in [1e6, 1e4, 300.0, 10.0] {
        let hotter = at(&contended(4, hot));
        let aborts = |f: &Forecast| f.aborted_per_s / f.committed_per_s;
        assert!(aborts(&hotter) > aborts(&last), "{hot}");
        assert!(hotter.committed_per_s < last.committed_per_s * (1.0 + 1e-9), "{hot}");
        assert!(hotter.phase(Phase::Unlock).verbs > last.phase(Phase::Unlock).verbs);
        last = hotter;
    }
}

#[test]
fn conflicts_match_a_case_solved_by_hand() {
    // So few conflicts that they do not feed back: the chance is the others' rate, times the time that a record is
    // locked or waits to be locked, over the records there are.
    let profile = profile();
    let workload = Workload { classes: vec![class("update", 1.0, 0.0, 1.0)], ..contended(4, 1e5) };
    let workload = Workload { bands: vec![crate::model::Band::new(1e6, 1.0)], ..workload };
    let plan = checked(Plan { coroutines: 2, ..Plan::uniform(Via::TwoSided) });
    let f = forecast(&profile, cluster(4, 1), &workload, &plan);
    let awaited = checked(Plan {
        install: plan.get().install.map(|s| Step { passive_ack: false, ..s }),
        ..*plan.get()
    });
    let release =
        0.5 * forecast(&profile, cluster(4, 1), &workload, &awaited).phase(Phase::Install).latency_ns;
    let time = |phase| f.phase(phase).latency_ns;
    let exposed = 0.5 * time(Phase::Fetch) + 100.0 + time(Phase::Lock) + time(Phase::Log) + release;
    // Who fails comes back half a lock and half a fetch later, by when some of those who hold it have not left.
    let held = 0.5 * time(Phase::Lock) + time(Phase::Log) + release;
    let again = held - 0.5 * time(Phase::Lock) - 0.5 * time(Phase::Fetch);
    let others = f.committed_per_s / 1e9 * 7.0 / 8.0;
    let expected = others * (exposed + again) / 1e6;
    let got = f.aborted_per_s / f.committed_per_s;
    assert!((got / expected - 1.0).abs() < 0.02, "{got} {expected}");
}

#[test]
fn records_that_nobody_writes_or_no_other_coroutine_comes_to_are_not_fought_over() {
    use crate::model::Band;
    let profile = profile();
    let plan = checked(Plan { coroutines: 2, ..Plan::uniform(Via::TwoSided) });
    let at = |bands: Vec<Band>| {
        let workload = Workload { bands, ..calm(4) };
        let f = forecast(&profile, cluster(4, 2), &workload, &plan);
        f.aborted_per_s / f.committed_per_s
    };
    let rest = |writes: f64| Band { writes: Some(writes), ..Band::new(1e9, 0.9) };
    let hot = |writes: f64, parts: f64| Band { writes: Some(writes), parts, ..Band::new(80.0, 0.1) };
    let usual = at(vec![Band::new(80.0, 0.1), Band::new(1e9, 0.9)]);
    let same = at(vec![hot(0.1, 1.0), rest(0.9)]);
    // Rounds end where hardly anything changes.
    assert!((same / usual - 1.0).abs() < 1e-7, "{same} {usual}");
    assert!(usual > 1e-3 && at(vec![hot(0.0, 1.0), rest(1.0)]) < 1e-3 * usual);
    // As hot as before for each of eight threads, and of the 16 coroutines there is one other there.
    let parted = at(vec![hot(0.1, 8.0), rest(0.9)]);
    assert!((0.4..0.6).contains(&(parted / usual)), "{parted} {usual}");
    assert!(at(vec![hot(0.1, 16.0), rest(0.9)]) < 1e-3 * usual);
}

#[test]
fn waiting_for_nothing_is_never_slower_than_waiting() {
    let profile = profile();
    for via in [Via::OneSided, Via::TwoSided] {
        let plan = Plan { coroutines: 2, ..Plan::uniform(via) };
        let acked = Plan { install: plan.install.map(|s| Step { passive_ack: false, ..s }), ..plan };
        let at = |plan| forecast(&profile, cluster(4, 4), &calm(4), &checked(plan));
        assert!(at(plan).committed_per_s > at(acked).committed_per_s);
        assert!(at(plan).latency_mean_ns < at(acked).latency_mean_ns);
    }
}

#[test]
fn one_by_one_fetches_wait_longer_than_outstanding_ones() {
    let profile = profile();
    let plan = Plan { coroutines: 1, ..Plan::uniform(Via::OneSided) };
    let ahead = Plan { fetch: plan.fetch.map(|s| Step { outstanding: true, ..s }), ..plan };
    let at = |plan, workload: &Workload| {
        forecast(&profile, cluster(4, 1), workload, &checked(plan)).phase(Phase::Fetch).latency_ns
    };
    assert!(at(plan, &calm(4)) > 1.5 * at(ahead, &calm(4)));
    // A workload that comes to its records one by one has no use for the permission.
    let stepwise = Workload { reads_ahead: false, ..calm(4) };
    assert_eq!(at(ahead, &stepwise), at(plan, &stepwise));
}

#[test]
fn queue_pairs_beyond_the_cache_slow_one_sided_verbs_and_leave_rpc_alone() {
    let profile = profile();
    let at = |preset: Preset, lanes| {
        let plan = checked(Plan { coroutines: 16, ..preset.plan() });
        forecast(&profile, Cluster { lanes, ..cluster(16, 12) }, &calm(16), &plan).committed_per_s
    };
    assert!(at(Preset::DrtmR, 5) < 0.97 * at(Preset::DrtmR, 1));
    assert_eq!(at(Preset::FasstOcc, 5), at(Preset::FasstOcc, 1));
}

#[test]
fn the_forecast_travels_in_plan_files() {
    let profile = profile();
    let workload = calm(4);
    let model = Model::new(&profile, cluster(4, 2), &workload, &Needs::OCC).unwrap();
    let f = model.forecast(&checked(Preset::DrtmH.plan()));
    let stored = model.prediction(&f);
    assert_eq!((stored.committed_per_s, stored.profile_hash), (f.committed_per_s, profile.hash_text()));
}

#[test]
fn inputs_that_cannot_be_are_refused_by_name() {
    let profile = profile();
    let refusal = |cluster: Cluster, workload: Workload| {
        Model::new(&profile, cluster, &workload, &Needs::OCC).err().expect("accepted").to_string()
    };
    let ok = cluster(3, 2);
    for (text, says) in [
        (refusal(Cluster { nodes: 0, ..ok }, calm(3)), "nodes = 0"),
        (refusal(Cluster { threads: 0, ..ok }, calm(3)), "threads = 0"),
        (refusal(Cluster { lanes: 0, ..ok }, calm(3)), "lanes = 0"),
        (refusal(Cluster { backups: 3, ..ok }, calm(3)), "3 backups"),
        (refusal(ok, Workload { local_share: 1.5, ..calm(3) }), "local_share = 1.5"),
        (refusal(ok, Workload { cache_hit_share: f64::NAN, ..calm(3) }), "cache_hit_share = NaN"),
        (refusal(ok, Workload { backoff_ns: -1.0, ..calm(3) }), "backoff_ns = -1"),
        (refusal(ok, Workload { classes: vec![], ..calm(3) }), "sum of class shares = 0"),
        (refusal(ok, Workload { classes: vec![class("x", 1.0, -2.0, 0.0)], ..calm(3) }), "x.reads = -2"),
        (refusal(ok, contended(3, 0.0)), "band.records = 0"),
        (refusal(ok, Workload { bands: vec![crate::model::Band::new(1.0, 0.5)], ..calm(3) }), "0.5"),
    ] {
        assert!(text.contains(says), "{text:?} does not say {says:?}");
    }
}

/// Every protocol that is modelled.
const PROTOCOLS: [Needs; 6] =
    [Needs::OCC, Needs::NOWAIT, Needs::WAITDIE, Needs::BOUNDED_WAIT, Needs::MVCC, Needs::SUNDIAL];

/// Equal prices are forecast once: what was asked for before must not show.
#[test]
fn a_forecast_does_not_depend_on_those_before_it() {
    let (profile, workload, caps) = (profile(), contended(4, 2e3), caps(true, AtomicScope::Nic));
    for needs in &PROTOCOLS {
        let model = Model::new(&profile, cluster(4, 4), &workload, needs).unwrap();
        for plan in Space::all(&caps, needs, true).plans() {
            let plan = Plan { coroutines: 8, ..plan }.check(&caps, needs).unwrap();
            let fresh = Model::new(&profile, cluster(4, 4), &workload, needs).unwrap();
            assert_eq!(model.forecast(&plan), fresh.forecast(&plan), "{}", plan.get());
        }
    }
}

/// What lets the tuner leave out plans that could not win even then.
#[test]
fn without_conflicts_every_plan_commits_as_much_or_more() {
    let (profile, caps) = (profile(), caps(true, AtomicScope::Nic));
    for needs in &PROTOCOLS {
        for coroutines in [1, 8, 32] {
            for hot in [1e5, 1e3, 30.0] {
                let (hot, none) = (contended(4, hot), calm(4));
                let met = Model::new(&profile, cluster(4, 6), &hot, needs).unwrap();
                let unmet = Model::new(&profile, cluster(4, 6), &none, needs).unwrap();
                for plan in Space::all(&caps, needs, true).plans().step_by(5) {
                    let plan = Plan { coroutines, ..plan }.check(&caps, needs).unwrap();
                    let (with, without) = (met.forecast(&plan), unmet.forecast(&plan));
                    let most = without.committed_per_s;
                    assert!(with.committed_per_s <= most * (1.0 + 1e-9), "{}", plan.get());
                    assert_eq!(met.forecast_above(&plan, 0.9 * with.committed_per_s), Some(with));
                    let other = Plan { coroutines: coroutines + 1, ..*plan.get() };
                    let other = other.check(&caps, needs).unwrap();
                    assert_eq!(met.forecast_above(&other, 3.0 * most), None, "{}", plan.get());
                }
            }
        }
    }
}

/// On a ring of four, each node backed by the two behind it.
#[test]
fn own_records_are_backed_by_the_same_few_nodes() {
    let ring = Cluster { backups: 2, ..cluster(4, 1) };
    let backs = |node: usize, primary: usize| (1..=2).contains(&((node + 4 - primary) % 4));
    // Own records alone, with one of another node, and such a one alone: nodes other than the own one that back any, counted.
    for (local, remote) in [(7.0, 0.0), (7.0, 1.0), (0.0, 1.0), (0.0, 2.0)] {
        let elsewhere: Vec<Vec<usize>> = match remote as u32 {
            0 => vec![vec![]],
            1 => (1..4).map(|a| vec![a]).collect(),
            _ => (1..4).flat_map(|a| (1..4).map(move |b| vec![a, b])).collect(),
        };
        let (mut nodes, mut own) = (0, 0);
        for primaries in &elsewhere {
            let any = |node: usize| {
                local > 0.0 && backs(node, 0) || primaries.iter().any(|&primary| backs(node, primary))
            };
            nodes += (1..4).filter(|&node| any(node)).count();
            own += primaries.iter().filter(|&&primary| backs(0, primary)).count();
        }
        let class = TxnClass {
            elsewhere: Some(Elsewhere { reads: 0.0, writes: remote }),
            ..class("x", 1.0, 0.0, local + remote)
        };
        let workload = Workload { classes: vec![class], ..calm(4) };
        let touch = workload.touch(
            &ring,
            &workload.classes[0],
            &checked(Plan::uniform(Via::OneSided)),
            &Needs::OCC,
            Phase::Log,
        );
        let all = elsewhere.len() as f64;
        assert!((touch.nodes - nodes as f64 / all).abs() < 1e-12, "{local} {remote}: {touch:?}");
        assert!((touch.local - own as f64 / all).abs() < 1e-12, "{local} {remote}: {touch:?}");
    }
}

/// A backup applies 32 entries in a turn, of which few are of a class that writes a hundred records.
#[test]
fn backups_apply_what_the_mix_has_logged() {
    let [few, many] = [(0.9, 1.0), (0.1, 100.0)].map(|(share, writes)| class("x", share, 0.0, writes));
    let classes = [few, many];
    let plan = checked(Plan::uniform(Via::OneSided));
    let workload = Workload { classes: classes.to_vec(), ..calm(4) };
    let profile = profile();
    let model = Model::new(&profile, cluster(4, 1), &workload, &Needs::OCC).unwrap();
    let mut logged: Vec<Demand> = classes
        .iter()
        .map(|class| {
            let touch = workload.touch(&model.cluster, class, &plan, &Needs::OCC, Phase::Log);
            demand(&model.carriage(&plan, Phase::Log, plan.step(Phase::Log)), &touch, &model.sizes)
        })
        .collect();
    let probes = |logged: &[Demand]| -> Vec<f64> {
        logged.iter().map(|logged| logged.at_length[0].work.probes / logged.at_length[0].turns).collect()
    };
    let all = |logged: &[Demand]| -> f64 {
        logged.iter().zip(&classes).map(|(logged, class)| class.share * logged.at_length[0].work.probes).sum()
    };
    let (before, sum) = (probes(&logged), all(&logged));
    assert!(before[1] >= 50.0 * before[0], "{before:?}");
    long_turns_of_all(&mut logged, &classes);
    let after = probes(&logged);
    assert!((after[0] - after[1]).abs() < 1e-9 * after[0], "{after:?}");
    assert!((all(&logged) - sum).abs() < 1e-9 * sum, "nothing is lost");
}
