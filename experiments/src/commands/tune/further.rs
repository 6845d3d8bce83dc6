//! Which plans run after the shortlist: what it got corrects the forecasts of all others, and those that are then expected to get most run,
//! a few at a time. One mechanism for `tune --verify` and for the sweeps that judge it (`crate::regret`).
//!
//! The shortlist has the best of each way to carry the phases for as long as there is room, so that a plan that the model holds to be
//! worse by two errors at once is not on it. Its runs tell of both errors, though each in another plan.

use phases::model::{Candidate, Tuning, next_to_run, not_run};

/// Further plans that run: as many as are on the shortlist, so that all of them together take less than twice the runs.
pub const FURTHER: usize = 12;

/// So many at a time, after which forecasts are corrected anew.
const AT_A_TIME: usize = 4;

/// A protocol's name, and all its plans by forecast.
pub type Search<'a> = (&'a str, &'a Tuning);

/// A plan under a protocol.
pub type Plan<'a> = (&'a str, &'a Candidate);

/// One that ran, with what it got per second.
pub type Ran<'a> = (Plan<'a>, f64);

/// How many further plans there will be, after those of `ran`.
pub fn room(found: &[Search<'_>], ran: &[Plan<'_>]) -> usize {
    let of = |&(protocol, tuning): &Search<'_>| {
        let own = ran.iter().filter(move |(of, _)| *of == protocol).map(|(_, candidate)| *candidate);
        not_run(tuning, own).len()
    };
    found.iter().map(of).sum::<usize>().min(FURTHER)
}

/// The further plans that run now, where `done` have run already; none if that is all. `ran` has all that ran so far, each for `seconds`.
pub fn further<'a>(
    found: &[Search<'a>],
    ran: &[Ran<'_>],
    seconds: f64,
    done: usize,
) -> Vec<(&'a str, &'a Candidate)> {
    let own = |protocol: &str| -> Vec<(&Candidate, f64)> {
        let own = ran.iter().filter(|((of, _), _)| *of == protocol);
        own.map(|((_, candidate), per_s)| (*candidate, *per_s)).collect()
    };
    let tunings: Vec<&Tuning> = found.iter().map(|(_, tuning)| *tuning).collect();
    let ran: Vec<_> = found.iter().map(|(protocol, _)| own(protocol)).collect();
    let next = next_to_run(&tunings, &ran, 1.0 / seconds, AT_A_TIME.min(FURTHER.saturating_sub(done)));
    next.into_iter().map(|(place, candidate)| (found[place].0, candidate)).collect()
}

#[cfg(test)]
mod tests {
    use super::super::search;
    use super::*;
    use crate::fabrics::Fabric;
    use crate::spec::RunSpec;
    use phases::model::Objective;
    use primitives::profile::Profile;
    use serde_json::json;

    #[test]
    fn further_plans_are_so_many_and_none_of_them_has_an_equal_that_ran() {
        let mut spec = RunSpec { coroutines: Some(4), nodes: 3, threads: 1, ..RunSpec::default() };
        spec.apply("fabric", &json!("sim:cx4-edr")).unwrap();
        let fabric = Fabric::open(&spec.fabric, spec.seed).unwrap();
        let profile = Profile::shipped("cx4-edr").unwrap();
        let of = |protocol: &str| {
            let spec = RunSpec { protocol: protocol.to_owned(), ..spec.clone() };
            search(&spec, &fabric, &profile, Objective::Throughput, &|| true).unwrap().tuning
        };
        let tunings = ["occ", "nowait"].map(|protocol| (protocol, of(protocol)));
        let found: Vec<Search<'_>> = tunings.iter().map(|(protocol, tuning)| (*protocol, tuning)).collect();
        let few_of_each = |few: usize| {
            let mut plans: Vec<Plan<'_>> = Vec::new();
            for &(protocol, tuning) in &found {
                plans.extend(tuning.shortlist(few).into_iter().map(|candidate| (protocol, candidate)));
            }
            plans
        };
        let got = |plan: &Plan<'_>| 0.9 * plan.1.forecast.committed_per_s;
        let mut ran: Vec<(Plan<'_>, f64)> =
            few_of_each(2).into_iter().map(|plan| (plan, got(&plan))).collect();
        let (before, known) = (ran.len(), few_of_each(2));
        assert_eq!((before, room(&found, &known)), (4, FURTHER));
        loop {
            let next = further(&found, &ran, 0.01, ran.len() - before);
            if next.is_empty() {
                break;
            }
            assert!(next.len() <= AT_A_TIME);
            for plan in next {
                let equal =
                    |((of, other), _): &(Plan<'_>, f64)| *of == plan.0 && other.forecast == plan.1.forecast;
                assert!(!ran.iter().any(equal), "{plan:?}");
                ran.push((plan, got(&plan)));
            }
        }
        assert_eq!(ran.len(), before + FURTHER);
        // Where there are few plans, all of them run, and no more.
        let all = few_of_each(usize::MAX);
        let (most, left) = all.split_at(all.len() - 3);
        let ran: Vec<(Plan<'_>, f64)> = most.iter().map(|plan| (*plan, got(plan))).collect();
        assert_eq!((room(&found, most), further(&found, &ran, 0.01, 0).len()), (3, 3));
        let next = further(&found, &ran, 0.01, 0);
        assert!(next.iter().all(|plan| left.iter().any(|one| one.1.forecast == plan.1.forecast)), "{next:?}");
    }
}
