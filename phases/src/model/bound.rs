//! Whether a plan falls short of a rate, seen before rounds of its conflicts find what it commits.
//!
//! Say that it commits as much. Then others come at that rate, and hold records at least for as long as that takes without conflicts:
//! what accesses meet is no less than what follows from it. Who meets somebody waits or tries again, so that records are held for
//! longer, and more is met: round after round conflicts grow towards what they are at that rate. Where some of them already leave no
//! room for the rate, it was not so. That takes a few rounds and no acceleration, where to find out what comes instead takes thirty.
//!
//! It rests on conflicts that cost, each more than those before. Not all of them do: who fails early asks for less. So a plan is only said to
//! fall short that does by more than [`UNSURE`].

use super::costs::Costs;
use super::forecast::Model;
use super::met::Met;
use super::solve::{Near, Population, at_rate};

/// By which share a plan has to fall short, or nothing is said of it.
const UNSURE: f64 = 0.03;

/// Rounds at most.
const ROUNDS: usize = 12;

/// A round that covers less than this part of the way that is left to falling short is the last.
const HOPE: f64 = 0.2;

impl Model<'_> {
    /// Whether each of `customers` coroutines commits fewer than `rate` transactions a nanosecond by more than [`UNSURE`], where accesses meet. No: it is
    /// not known.
    pub(super) fn falls_short(
        &self,
        costs: &Costs,
        population: &Population,
        customers: f64,
        rate: f64,
    ) -> bool {
        let (mut met, mut last) = (Met::default(), 0.0);
        for _ in 0..ROUNDS {
            let runs = self.all_runs(costs, &met);
            let load = self.load(costs, &met, &runs);
            let at = at_rate(&load, population, rate);
            // Cycles that would take place at a time.
            let cycles = rate * at.time(&load);
            if cycles > 1.0 {
                let found = self.solve(costs, &met, &runs, population, &mut Near::default());
                return found.rate * (1.0 + UNSURE) < rate;
            }
            // The first round has none before it.
            if last > 0.0 && cycles - last < HOPE * (1.0 - cycles) {
                return false;
            }
            last = cycles;
            met = self.conflicts(costs, &met, &runs, &at, customers);
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixtures::{caps, cluster, contended, profile};
    use super::super::input::Workload;
    use super::*;
    use crate::plan::{Needs, Plan, Space};
    use primitives::fabric::AtomicScope;

    const PROTOCOLS: [Needs; 7] = [
        Needs::OCC,
        Needs::FASST,
        Needs::NOWAIT,
        Needs::WAITDIE,
        Needs::BOUNDED_WAIT,
        Needs::MVCC,
        Needs::SUNDIAL,
    ];

    /// Whoever is said to fall short of a rate does, under each protocol; and most plans that do by far are said to.
    #[test]
    fn who_is_said_to_fall_short_does_and_most_that_do_are_said_to() {
        let (profile, caps, cluster) = (profile(), caps(true, AtomicScope::Nic), cluster(4, 6));
        for needs in &PROTOCOLS {
            let (mut said, mut asked) = (0, 0);
            for hot in [300.0, 3e3] {
                for reads_ahead in [true, false] {
                    let workload = Workload { reads_ahead, backoff_ns: 1e3, ..contended(4, hot) };
                    let model = Model::new(&profile, cluster, &workload, needs).unwrap();
                    for (n, plan) in Space::all(&caps, needs, reads_ahead).plans().step_by(7).enumerate() {
                        let coroutines = [1, 4, 16, 32][n % 4];
                        let plan = Plan { coroutines, ..plan }.check(&caps, needs).unwrap();
                        let got = model.forecast(&plan).committed_per_s;
                        let (population, customers) = model.population(coroutines);
                        let costs = model.costs(&plan);
                        for share in [0.5, 0.9, 1.0, 2.0] {
                            let rate = share * got / (customers * 1e9);
                            let short = model.falls_short(&costs, &population, customers, rate);
                            assert!(!short || share > 1.0, "{} {hot} {}", needs.protocol, plan.get());
                            asked += usize::from(share == 2.0);
                            said += usize::from(short && share == 2.0);
                        }
                    }
                }
            }
            assert!(4 * said > 3 * asked, "{}: {said} of {asked}", needs.protocol);
        }
    }
}
