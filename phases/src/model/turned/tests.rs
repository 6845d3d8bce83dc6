use super::*;
use crate::model::Workload;
use crate::model::fixtures::{calm, caps, cluster, profile};
use crate::plan::{Needs, Via};
use primitives::fabric::AtomicScope;

fn of(plan: Plan, workload: &Workload, search: &Search) -> Vec<Turned> {
    let (profile, caps) = (profile(), caps(true, AtomicScope::Global));
    let model = Model::new(&profile, cluster(4, 2), workload, &Needs::OCC).unwrap();
    let forecast = model.forecast(&plan.check(&caps, &Needs::OCC).unwrap());
    turned(&model, &caps, &Candidate { plan, preset: None, forecast }, search)
}

fn find(all: &[Turned], feature: Feature, on: bool) -> Option<&Turned> {
    all.iter().find(|one| one.feature == feature && one.on == on)
}

/// What a sentence says is the difference of two forecasts, and its words are the numbers'.
#[test]
fn passive_acks_are_told_by_what_they_save() {
    let (workload, search) = (calm(4), Search::default());
    let two_sided = Plan::uniform(Via::TwoSided);
    let all = of(two_sided, &workload, &search);
    let passive = find(&all, Feature::PassiveAck, true).unwrap();
    // Nothing aborts, so that nothing is unlocked.
    assert_eq!(passive.phases, [Phase::Install]);
    let other = &passive.otherwise[0];
    assert_eq!(other.plan.install.map(|step| step.passive_ack), Some(false));
    assert_eq!(Plan { install: two_sided.install, ..other.plan }, two_sided);
    let (profile, caps) = (profile(), caps(true, AtomicScope::Global));
    let model = Model::new(&profile, cluster(4, 2), &workload, &Needs::OCC).unwrap();
    let at = |plan: Plan| model.forecast(&plan.check(&caps, &Needs::OCC).unwrap());
    let (ours, theirs) = (at(two_sided), at(other.plan));
    let falls = 1.0 - theirs.committed_per_s / ours.committed_per_s;
    assert!(passive.matters && falls > 0.02, "{falls}");
    assert_eq!(other.rate_falls, falls);
    let round_trips = theirs.total(|p| p.round_trips) - ours.total(|p| p.round_trips);
    assert!(round_trips > 0.5 && (other.saved.round_trips - round_trips).abs() < 1e-12);
    let text = passive.to_string();
    assert!(text.starts_with("passive ACK (install): saves "), "{text}");
    assert!(text.contains(&format!("{round_trips:.1} round trips")), "{text}");
    let says = format!("a transaction; without it the rate would fall by {:.1} %", 100.0 * falls);
    assert!(text.contains(&says), "{text}");
    // Turned round, it is said from the other side.
    let all = of(other.plan, &workload, &search);
    let none = find(&all, Feature::PassiveAck, false).unwrap();
    assert!(find(&all, Feature::PassiveAck, true).is_none() && none.otherwise[0].plan == two_sided);
    assert!((none.otherwise[0].rate_falls + falls / (1.0 - falls)).abs() < 1e-12);
    let text = none.to_string();
    assert!(text.starts_with("no passive ACK (install): costs "), "{text}");
    assert!(text.contains("with it the rate would rise by "), "{text}");
}

#[test]
fn the_cache_and_coroutines_are_held_against_none_and_one() {
    let search = Search::default();
    let plan = Plan { coroutines: 8, ..Plan::uniform(Via::OneSided) };
    let all = of(plan, &calm(4), &search);
    let cache = find(&all, Feature::LocationCache, true).unwrap();
    assert!(cache.matters && cache.phases.is_empty() && !cache.otherwise[0].plan.location_cache);
    assert!(cache.to_string().starts_with("location cache: saves "), "{cache}");
    let coroutines = find(&all, Feature::Coroutines, true).unwrap();
    let counts: Vec<u32> = coroutines.otherwise.iter().map(|other| other.plan.coroutines).collect();
    assert_eq!(counts, [1, 6, 12]);
    assert!(coroutines.otherwise[0].rate_falls > 0.5, "{coroutines}");
    let text = coroutines.to_string();
    assert!(text.starts_with("8 coroutines a thread: with 1 the rate would fall by "), "{text}");
    assert!(text.contains("; with 6 ") && text.contains("; with 12 "), "{text}");
    for (own, searched, others) in
        [(1, &[1, 2, 4][..], &[2][..]), (2, &[1, 2, 4], &[1, 4]), (8, &[8], &[1]), (1, &[1], &[])]
    {
        assert_eq!(other_counts(own, searched), others);
    }
}

/// What makes no difference is told in one line, and what the workload does not offer or the plan cannot do not at all.
#[test]
fn what_makes_no_difference_is_told_together() {
    let search = Search::default();
    let all = of(Plan::uniform(Via::OneSided), &calm(4), &search);
    let lines = told(&all);
    let (same, matter): (Vec<&Turned>, Vec<&Turned>) = all.iter().partition(|one| !one.matters);
    assert!(!same.is_empty() && !matter.is_empty(), "{lines:?}");
    assert_eq!(lines.len(), matter.len() + 1);
    for one in &matter {
        let other = &one.otherwise[0];
        assert!(other.rate_falls.abs().max(other.latency_rises.abs()) > search.tolerance, "{one}");
        assert!(lines.contains(&one.to_string()), "{one}");
    }
    let last = lines.last().unwrap();
    assert!(last.starts_with("no difference that the model sees: "), "{last}");
    for one in &same {
        assert!(one.otherwise[0].rate_falls.abs() <= search.tolerance && last.contains(&one.what()), "{one}");
    }
    // A read set that is not known ahead is no choice.
    let ahead = |reads_ahead: bool| {
        let all = of(Plan::uniform(Via::OneSided), &Workload { reads_ahead, ..calm(4) }, &search);
        find(&all, Feature::OutstandingRequests, false).is_some_and(|one| one.phases == [Phase::Fetch])
    };
    assert!(ahead(true) && !ahead(false));
    // A hybrid fetch chooses by the cache.
    let hybrid = of(Plan::uniform(Via::Hybrid), &calm(4), &search);
    assert!(find(&hybrid, Feature::LocationCache, true).is_none());
    assert!(told(&[]).is_empty());
}
