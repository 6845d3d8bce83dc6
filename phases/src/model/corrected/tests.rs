use super::*;
use crate::model::fixtures::{caps, cluster, contended, profile};
use crate::model::tune::{Search, tune};
use crate::plan::{Needs, Step};
use primitives::fabric::AtomicScope;

fn tuning() -> Tuning {
    let search = Search { coroutines: vec![8], flips: false, ..Search::default() };
    let (nic, workload) = (caps(true, AtomicScope::Nic), contended(4, 1e4));
    tune(&profile(), &nic, &Needs::OCC, cluster(4, 4), &workload, &search).unwrap()
}

/// Runs of a hundredth of a second.
const ONCE: f64 = 100.0;

type Trait = fn(&Plan) -> bool;

fn one_sided(step: Option<Step>) -> bool {
    step.is_some_and(|step| step.via.is_one_sided())
}

/// Runs that come out as foretold but for plans which do one of two things as the choice does it: these get a share of that, and those that
/// do both a share of a share. The best then departs from the choice in both, and is foretold less than many that do not.
#[test]
fn a_forecast_that_is_wrong_about_two_primitives_is_repaired_by_a_few_runs() {
    let tuning = tuning();
    let traits: [Trait; 5] = [
        |plan| one_sided(plan.lock),
        |plan| one_sided(plan.validate),
        |plan| one_sided(plan.log),
        |plan| one_sided(plan.install),
        |plan| plan.location_cache,
    ];
    let most = |ran: &[(&Candidate, f64)]| ran.iter().map(|(_, rate)| *rate).fold(0.0, f64::max);
    let (mut missed, mut missed_by_more) = (0, 0);
    for (a, b) in (0..traits.len()).flat_map(|a| (0..a).map(move |b| (a, b))) {
        let share = |wrong: Trait, candidate: &Candidate| match wrong(&candidate.plan)
            == wrong(&tuning.best().plan)
        {
            true => 0.7,
            false => 1.0,
        };
        let run = |candidate| {
            let off = share(traits[a], candidate) * share(traits[b], candidate);
            (candidate, candidate.forecast.committed_per_s * off)
        };
        let best = most(&tuning.distinct().into_iter().map(run).collect::<Vec<_>>());
        let mut ran: Vec<_> = tuning.shortlist(12).into_iter().map(run).collect();
        missed += u32::from(most(&ran) < 0.9 * best);
        missed_by_more +=
            u32::from(most(&tuning.shortlist(24).into_iter().map(run).collect::<Vec<_>>()) < 0.9 * best);
        for _ in 0..3 {
            let next = next_to_run(&[&tuning], std::slice::from_ref(&ran), ONCE, 4);
            ran.extend(next.into_iter().map(|(_, candidate)| run(candidate)));
        }
        assert_eq!(ran.len(), 24);
        assert!(most(&ran) > 0.99 * best, "{a} and {b}: {} of {best}", most(&ran));
    }
    assert!(
        missed >= 8 && missed_by_more >= 5,
        "{missed} by the shortlist, {missed_by_more} by a longer one"
    );
}

#[test]
fn what_runs_next_is_of_the_search_and_has_no_equal_that_ran() {
    let tuning = tuning();
    let distinct = tuning.distinct();
    let mut ran = vec![(distinct[0], 1e5)];
    while ran.len() < distinct.len() {
        let next = next_to_run(&[&tuning], std::slice::from_ref(&ran), ONCE, 7);
        assert_eq!(next.len(), 7.min(distinct.len() - ran.len()));
        for (place, candidate) in next {
            assert!(place == 0 && distinct.iter().any(|one| std::ptr::eq(*one, candidate)));
            assert!(ran.iter().all(|(other, _)| other.forecast != candidate.forecast), "{candidate:?}");
            ran.push((candidate, 0.9 * candidate.forecast.committed_per_s));
        }
    }
    assert!(next_to_run(&[&tuning], &[ran], ONCE, 7).is_empty(), "there is no other");
}

#[test]
fn without_anything_that_came_forecasts_decide_and_where_all_came_true_nothing_is_corrected() {
    let tuning = tuning();
    let distinct = tuning.distinct();
    assert_eq!(Correction::of(&[(distinct[0], 0.0)], ONCE), None);
    let ran = vec![(distinct[0], 0.0)];
    let foretold = |found: &[(usize, &Candidate)]| {
        found.iter().map(|(_, c)| c.forecast.committed_per_s).collect::<Vec<_>>()
    };
    let after = next_to_run(&[&tuning], &[ran], ONCE, 5);
    assert!(foretold(&after).is_sorted_by(|a, b| a >= b) && after.len() == 5, "{after:?}");
    // Of two searches the one of which something came goes first.
    let both =
        next_to_run(&[&tuning, &tuning], &[vec![(distinct[0], 0.0)], vec![(distinct[0], 1.0)]], ONCE, 5);
    assert!(both.iter().all(|(place, _)| *place == 1), "{both:?}");
    let right: Vec<_> =
        tuning.shortlist(12).into_iter().map(|c| (c, 0.8 * c.forecast.committed_per_s)).collect();
    let correction = Correction::of(&right, ONCE).unwrap();
    for candidate in distinct {
        let factor = correction.rate(candidate) / candidate.forecast.committed_per_s;
        assert!((factor - 0.8).abs() < 1e-3, "{factor}: all are off alike");
    }
}

/// A primitive under which nothing commits: it has no rate that could be held against its forecast, and no other plan with it runs for that.
#[test]
fn a_primitive_under_which_nothing_commits_runs_no_further() {
    let tuning = tuning();
    let with_it =
        |candidate: &Candidate| one_sided(candidate.plan.lock) == one_sided(tuning.best().plan.lock);
    let run = |candidate| {
        let share = if with_it(candidate) { 0.0 } else { 1.0 };
        (candidate, share * candidate.forecast.committed_per_s)
    };
    let ran: Vec<_> = tuning.shortlist(12).into_iter().map(run).collect();
    assert!(ran.iter().any(|(candidate, _)| !with_it(candidate)), "one that commits");
    let next = |once| next_to_run(&[&tuning], std::slice::from_ref(&ran), once, 12);
    assert!(next(ONCE).iter().all(|(_, candidate)| !with_it(candidate)));
    // In so short a run none was to be expected, and nothing is learnt.
    let short = Correction::of(&ran, 1e12).unwrap();
    let got: Vec<_> = ran.iter().copied().filter(|(_, per_s)| *per_s > 0.0).collect();
    assert_eq!(Some(short), Correction::of(&got, ONCE));
}
