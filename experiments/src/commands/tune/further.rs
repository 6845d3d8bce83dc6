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

/// How many further plans there will be, after those of `ran`.
pub fn room(found: &[Search<'_>], ran: &[Plan<'_>]) -> usize {
    let of = |&(protocol, tuning): &Search<'_>| {
        let own = ran.iter().filter(move |(of, _)| *of == protocol).map(|(_, candidate)| *candidate);
        not_run(tuning, own).len()
    };
    found.iter().map(of).sum::<usize>().min(FURTHER)
}

/// The further plans that run now, where `done` have run already; none if that is all. `ran` has all that ran so far, each with what it got
/// per second.
pub fn further<'a>(
    found: &[Search<'a>],
    ran: &[(Plan<'_>, f64)],
    done: usize,
) -> Vec<(&'a str, &'a Candidate)> {
    let own = |protocol: &str| -> Vec<(&Candidate, f64)> {
        let own = ran.iter().filter(|((of, _), _)| *of == protocol);
        own.map(|((_, candidate), per_s)| (*candidate, *per_s)).collect()
    };
    let tunings: Vec<&Tuning> = found.iter().map(|(_, tuning)| *tuning).collect();
    let ran: Vec<_> = found.iter().map(|(protocol, _)| own(protocol)).collect();
    let next = next_to_run(&tunings, &ran, AT_A_TIME.min(FURTHER.saturating_sub(done)));
    next.into_iter().map(|(place, candidate)| (found[place].0, candidate)).collect()
}
