use super::*;
use crate::model::fixtures::{calm, caps, class, cluster, contended, profile};
use crate::model::flips::{contenders, gain};
use crate::model::knobs::KNOBS;
use crate::plan::Via;
use primitives::fabric::AtomicScope;

fn quick(coroutines: &[u32]) -> Search {
    Search { coroutines: coroutines.to_vec(), flips: false, ..Search::default() }
}

fn best(profile: &Profile, caps: &Caps, search: &Search) -> Plan {
    tune(profile, caps, &Needs::OCC, cluster(4, 4), &calm(4), search).unwrap().best().plan
}

fn via(plan: &Plan, phase: Phase) -> Via {
    plan.step(phase).unwrap().via
}

#[test]
fn slow_atomics_are_locked_around() {
    let mut profile = profile();
    // With MMIO and RPC at these prices the CAS is worth it, until it takes a microsecond of the atomic unit.
    let global = caps(true, AtomicScope::Global);
    assert_eq!(via(&best(&profile, &global, &quick(&[8])), Phase::Lock), Via::OneSided);
    profile.nic.atomic_unit.value = 1_000.0;
    let slow = best(&profile, &global, &quick(&[8]));
    assert_eq!(via(&slow, Phase::Lock), Via::TwoSided);
    assert_eq!(via(&slow, Phase::Log), Via::OneSided);
}

#[test]
fn dear_messages_make_everything_one_sided_and_dear_verbs_everything_two_sided() {
    let nic = caps(true, AtomicScope::Nic);
    let mut dear_rpc = profile();
    for q in [&mut dear_rpc.cpu.rpc_decode, &mut dear_rpc.cpu.rpc_dispatch, &mut dear_rpc.cpu.rpc_encode] {
        q.value = 2_000.0;
    }
    let plan = best(&dear_rpc, &nic, &quick(&[8]));
    assert!(plan.steps().all(|(_, step)| step.via == Via::OneSided), "{plan}");

    let mut dear_verbs = profile();
    let n = &mut dear_verbs.nic;
    for q in [&mut n.responder_read, &mut n.responder_write, &mut n.responder_atomic] {
        q.value = 5_000.0;
    }
    let plan = best(&dear_verbs, &nic, &quick(&[8]));
    assert!(plan.steps().all(|(_, step)| step.via == Via::TwoSided), "{plan}");
}

#[test]
fn without_one_sided_verbs_every_candidate_is_two_sided() {
    let tcp = caps(false, AtomicScope::None);
    let tuning = tune(&profile(), &tcp, &Needs::OCC, cluster(4, 2), &calm(4), &quick(&[4])).unwrap();
    assert!(tuning.ranked.iter().all(|c| c.plan.steps().all(|(_, s)| s.via == Via::TwoSided)));
    let presets: Vec<_> = tuning.presets.iter().filter_map(|c| c.preset).collect();
    assert!(presets.contains(&Preset::TwoSided) && !presets.contains(&Preset::DrtmH));
}

#[test]
fn without_a_cache_worth_having_one_sided_fetches_are_avoided() {
    let nic = caps(true, AtomicScope::Nic);
    let cold = Workload { cache_hit_share: 0.0, ..calm(4) };
    let mut cheap_rpc = profile();
    let cpu = &mut cheap_rpc.cpu;
    for q in [&mut cpu.rpc_decode, &mut cpu.rpc_dispatch, &mut cpu.rpc_encode, &mut cpu.probe] {
        q.value = 0.0;
    }
    let tuning = tune(&cheap_rpc, &nic, &Needs::OCC, cluster(4, 4), &cold, &quick(&[8])).unwrap();
    assert_eq!(via(&tuning.best().plan, Phase::Fetch), Via::TwoSided);
}

#[test]
fn the_winner_is_no_worse_than_any_candidate_or_preset_and_everything_is_tried() {
    let nic = caps(true, AtomicScope::Nic);
    for workload in [calm(4), contended(4, 1e4)] {
        let search = quick(&[1, 4, 16]);
        let tuning = tune(&profile(), &nic, &Needs::OCC, cluster(4, 4), &workload, &search).unwrap();
        let rate = |c: &Candidate| c.forecast.committed_per_s;
        let most = tuning.ranked.iter().chain(&tuning.presets).map(rate).fold(0.0, f64::max);
        assert!(rate(tuning.best()) >= most * (1.0 - search.tolerance));
        let space = Space::all(&nic, &Needs::OCC, true).plans().count();
        assert_eq!(tuning.ranked.len(), space);
        // Two presets may be the same plan.
        let different: std::collections::BTreeSet<Plan> = Preset::ALL.iter().map(|p| p.plan()).collect();
        assert_eq!(tuning.presets.len(), different.len());
        assert_eq!(tuning.evaluated, (space + different.len()) * 3);
    }
}

#[test]
fn a_latency_limit_is_kept_and_least_latency_means_one_coroutine() {
    let nic = caps(true, AtomicScope::Nic);
    let at = |objective| {
        let search = Search { objective, ..quick(&[1, 2, 4, 8, 16, 32]) };
        tune(&profile(), &nic, &Needs::OCC, cluster(4, 4), &calm(4), &search).unwrap().best().clone()
    };
    let free = at(Objective::Throughput);
    let least = at(Objective::Latency);
    assert_eq!(least.plan.coroutines, 1);
    let limit = 0.5 * (free.forecast.latency_mean_ns + least.forecast.latency_mean_ns);
    let within = at(Objective::ThroughputWithin(limit));
    assert!(within.forecast.latency_mean_ns <= limit);
    assert!(within.forecast.committed_per_s > least.forecast.committed_per_s);
    assert!(within.forecast.committed_per_s < free.forecast.committed_per_s);
    // A limit nobody can keep: the quickest there is.
    assert_eq!(at(Objective::ThroughputWithin(1.0)).plan, least.plan);
}

#[test]
fn without_backups_ways_to_log_are_one() {
    let nic = caps(true, AtomicScope::Nic);
    let alone = Cluster { backups: 0, ..cluster(4, 2) };
    let tuning = tune(&profile(), &nic, &Needs::OCC, alone, &calm(4), &quick(&[4])).unwrap();
    assert!(tuning.ranked.iter().all(|c| c.plan.log == tuning.best().plan.log));
    assert_eq!(tuning.best().forecast.phase(Phase::Log).verbs, 0.0);
}

#[test]
fn reasons_name_phases_and_amounts_and_flips_what_would_change_the_choice() {
    let nic = caps(true, AtomicScope::Nic);
    // The price of CAS at which locking one-sided has just stopped to pay.
    let search = Search { coroutines: vec![16], ..Search::default() };
    let workload = Workload { classes: vec![class("update", 1.0, 0.0, 2.0)], ..calm(4) };
    let mut profile = profile();
    let mut lock = |unit: f64| {
        profile.nic.atomic_unit.value = unit;
        let tuning = tune(&profile, &nic, &Needs::OCC, cluster(4, 2), &workload, &search).unwrap();
        (via(&tuning.best().plan, Phase::Lock), tuning)
    };
    let mut unit = 41.0;
    while lock(unit).0 == Via::OneSided {
        unit *= 1.2;
        assert!(unit < 1e6, "locking never became two-sided");
    }
    let (_, tuning) = lock(unit);
    let flip = tuning.flips.iter().find(|f| f.input.name.contains("atomic unit") && f.factor == 0.5);
    let flip = flip.unwrap_or_else(|| panic!("no flip among {:?}", tuning.flips));
    assert_eq!(via(&flip.plan, Phase::Lock), Via::OneSided);
    assert!(flip.text.contains("lock one-sided") && flip.gain > search.tolerance, "{}", flip.text);
    // With the price as it is and as it would have to be.
    assert_eq!((flip.input.now, flip.input.unit.as_str()), (unit, "ns"));
    assert!((flip.then - flip.from * unit).abs() < 1e-9 && flip.then < unit, "{flip:?}");
    let told = flip.text.split("(nic.atomic_unit, now ").nth(1).unwrap();
    let numbers: Vec<f64> = told.split(' ').filter_map(|word| word.parse().ok()).take(2).collect();
    let near = |a: f64, b: f64| (a / b - 1.0).abs() < 0.01;
    assert!(near(numbers[0], unit) && near(numbers[1], flip.then), "{}", flip.text);
    assert!(told.contains(" ns) fell under ") && told.contains(" ns (×"), "{}", flip.text);

    let against =
        |name: &str| tuning.reasons.iter().find(|r| r.starts_with(&format!("against {name}: "))).unwrap();
    let text = against("fasst-occ");
    assert!(text.contains("log one-sided") && text.contains("messages to serve"), "{text}");
    assert!(text.contains("% committed transactions"), "{text}");
    assert!(tuning.reasons[0].starts_with("against the next in rank"));
}

#[test]
fn passive_commit_is_explained_by_the_round_trip_it_saves() {
    let profile = profile();
    let workload = calm(4);
    let model = Model::new(&profile, cluster(4, 2), &workload, &Needs::OCC).unwrap();
    let nic = caps(true, AtomicScope::Nic);
    let passive = Plan::uniform(Via::TwoSided);
    let acked = Plan { install: passive.install.map(|s| Step { passive_ack: false, ..s }), ..passive };
    let at = |plan: Plan| model.forecast(&plan.check(&nic, &Needs::OCC).unwrap());
    let lines = explain((&passive, &at(passive)), (&acked, &at(acked)));
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert!(lines[0].starts_with("install two-sided with passive ACK saves 0.7 round trips"), "{}", lines[0]);
    assert!(lines[0].ends_with("a transaction against two-sided"), "{}", lines[0]);
}

#[test]
fn the_same_inputs_give_the_same_tuning_and_bad_ones_are_refused() {
    let nic = caps(true, AtomicScope::Nic);
    let once = || tune(&profile(), &nic, &Needs::OCC, cluster(4, 2), &contended(4, 1e4), &quick(&[2, 8]));
    assert_eq!(once().unwrap(), once().unwrap());
    for coroutines in [vec![], vec![0], vec![8, 1_000_000_000]] {
        let search = quick(&coroutines);
        let refused = tune(&profile(), &nic, &Needs::OCC, cluster(4, 2), &calm(4), &search).unwrap_err();
        assert_eq!(refused, TuneError::Coroutines { tried: coroutines });
    }
}

#[test]
fn plans_that_cannot_carry_the_records_are_not_searched() {
    let needs = Needs::OCC.with_records(1000);
    let short = |caps| Caps { ud_mtu: 1000, ..caps };
    let global = short(caps(true, AtomicScope::Global));
    let tuned = tune(&profile(), &global, &needs, cluster(4, 4), &calm(4), &quick(&[8])).unwrap();
    let carries = |plan: &Plan| [Phase::Fetch, Phase::Install].iter().all(|&p| via(plan, p) == Via::OneSided);
    assert!(tuned.ranked.iter().chain(&tuned.presets).all(|c| carries(&c.plan)));
    let tcp = short(caps(false, AtomicScope::None));
    let none = tune(&profile(), &tcp, &needs, cluster(4, 4), &calm(4), &quick(&[8])).unwrap_err();
    assert!(none.to_string().contains("a record of 1000 B"), "{none}");
}

/// The search for what would change a choice leaves plans out; what it finds is what the search of all plans finds.
#[test]
fn contenders_have_the_best_plan_among_them() {
    let nic = caps(true, AtomicScope::Nic);
    let mut better = 0;
    for (needs, workload) in [
        (Needs::OCC, calm(4)),
        (Needs::OCC, contended(4, 300.0)),
        (Needs::SUNDIAL, contended(4, 3e3)),
        (Needs::WAITDIE, contended(4, 1e3)),
    ] {
        for objective in [Objective::Throughput, Objective::Latency, Objective::ThroughputWithin(20e3)] {
            let search = Search { objective, ..quick(&[8]) };
            let profile = profile();
            let model = Model::new(&profile, cluster(4, 4), &workload, &needs).unwrap();
            let plans = plans(&nic, &needs, cluster(4, 4), &workload);
            let mut all: Vec<Candidate> = plans
                .iter()
                .filter_map(|&plan| best_count(&model, &nic, plan, None, None, &search))
                .collect();
            rank(&mut all, &needs, &search);
            for kept in all.iter().step_by(40) {
                let fresh = Model::new(&profile, cluster(4, 4), &workload, &needs).unwrap();
                let found = contenders(&fresh, &nic, &plans, kept, &search, &|| true).unwrap();
                if gain(&all[0].forecast, &kept.forecast, &search) > search.tolerance {
                    assert_eq!(found.first(), Some(&all[0]));
                    better += 1;
                } else if let Some(first) = found.first() {
                    assert_eq!(first, &all[0]);
                }
            }
        }
    }
    assert!(better > 20, "{better}");
}

/// Counts of coroutines that stay behind are not worked out; what is kept of each plan is what working out all of them gives.
#[test]
fn leaving_counts_out_changes_no_candidate() {
    let nic = caps(true, AtomicScope::Nic);
    let profile = profile();
    for needs in [Needs::OCC, Needs::NOWAIT, Needs::WAITDIE, Needs::MVCC] {
        for (workload, objective) in [
            (calm(4), Objective::Throughput),
            (contended(4, 100.0), Objective::Throughput),
            (contended(4, 1e4), Objective::Throughput),
            (contended(4, 1e4), Objective::ThroughputWithin(20e3)),
        ] {
            let search = Search { objective, ..quick(&[1, 4, 8, 16, 32]) };
            let plans = plans(&nic, &needs, cluster(4, 4), &workload);
            let asked: Vec<_> = plans.iter().step_by(9).map(|&plan| (plan, None)).collect();
            let model = Model::new(&profile, cluster(4, 4), &workload, &needs).unwrap();
            let found = best_counts(&model, &nic, &asked, &search, &|| true).unwrap();
            assert_eq!(found.len(), asked.len());
            for ((plan, _), found) in asked.iter().zip(&found) {
                let with = |&coroutines: &u32| {
                    let plan = Plan { coroutines, ..*plan };
                    let forecast = model.forecast(&plan.check(&nic, &needs).unwrap());
                    Candidate { plan, preset: None, forecast }
                };
                let mut all: Vec<Candidate> = search.coroutines.iter().map(with).collect();
                rank(&mut all, &needs, &search);
                assert_eq!(found, &all[0], "{plan}");
            }
        }
    }
}

#[test]
fn a_shortlist_has_the_best_and_the_best_of_each_further_kind() {
    let nic = caps(true, AtomicScope::Nic);
    let tuning = tune(&profile(), &nic, &Needs::OCC, cluster(4, 4), &calm(4), &quick(&[8])).unwrap();
    let list = tuning.shortlist(12);
    assert_eq!((list.len(), list[0]), (12, tuning.best()));
    assert_eq!(list[..6], tuning.distinct()[..6]);
    for (n, plan) in list.iter().enumerate().skip(6) {
        assert!(list[..n].iter().all(|known| !same_but_unlock(&known.plan, &plan.plan)), "{}", plan.plan);
    }
    let locks = |via: Via| list.iter().any(|c| c.plan.step(Phase::Lock).is_some_and(|step| step.via == via));
    assert!(locks(Via::OneSided) && locks(Via::TwoSided));
    // There may be fewer plans than are asked for.
    let tcp = caps(false, AtomicScope::None);
    let few = tune(&profile(), &tcp, &Needs::OCC, cluster(4, 2), &calm(4), &quick(&[4])).unwrap();
    assert_eq!(few.shortlist(1), [few.best()]);
    assert!(few.shortlist(10_000).len() <= few.distinct().len());
}

/// Whoever stops a search waits for no more than the plans that cores are at, wherever it has come.
#[test]
fn a_search_goes_on_only_while_it_may() {
    let (profile, nic, workload) = (profile(), caps(true, AtomicScope::Nic), calm(4));
    let search = Search { flips: true, ..quick(&[8]) };
    let asked = |may: usize| {
        let times = AtomicUsize::new(0);
        let go_on = || times.fetch_add(1, Ordering::Relaxed) < may;
        let found = tune_while(&profile, &nic, &Needs::OCC, cluster(4, 4), &workload, &search, &go_on);
        (found, times.into_inner())
    };
    let (all, most) = asked(usize::MAX);
    assert_eq!(all, tune(&profile, &nic, &Needs::OCC, cluster(4, 4), &workload, &search));
    // The presets and plans of the search, then those of flips.
    for may in [0, 1, most / 20, most / 2, most - 1] {
        let (found, times) = asked(may);
        assert_eq!(found, Err(TuneError::Stopped), "of {most} plans {may} were allowed");
        // Each piece and each flip asks once more, and goes.
        assert!(times <= may + PIECES + 2 * KNOBS.len() + 3, "{times} times asked for {may}");
    }
}
