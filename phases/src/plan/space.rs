//! Every plan that can run, for the tuner and for the nearest plan.

use super::{Needs, Phase, Plan, Step, Via};
use primitives::fabric::Caps;

/// The plans a fabric can run for a protocol: a primitive for every phase, cache on and off, and plan-wide
/// switches for the optimizations.
///
/// Optimizations are switched for the whole plan, not per phase, each between table 2's choice and a departure
/// from it; a file may still set each phase on its own. The order is fixed: two-sided before one-sided before
/// hybrid, fetch changing slowest.
#[derive(Clone, Debug)]
pub struct Space {
    caps: Caps,
    needs: Needs,
    variants: Vec<Variant>,
}

/// A departure from table 2 that holds for the whole plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Variant {
    outstanding: Outstanding,
    doorbell_batching: Option<bool>,
    passive_ack: bool,
}

/// Which phases send requests without waiting for each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outstanding {
    /// All but fetch, as table 2 has it.
    AfterFetch,
    /// Fetch too: read sets known in advance, or speculative execution (DrTM+H §6.1).
    Always,
}

impl Variant {
    const TABLE2: Variant =
        Variant { outstanding: Outstanding::AfterFetch, doorbell_batching: None, passive_ack: true };

    fn apply(self, needs: &Needs, phase: Phase, via: Via) -> Step {
        let usual = needs.usual(phase, via);
        Step {
            via,
            outstanding: usual.outstanding || self.outstanding == Outstanding::Always,
            doorbell_batching: self.doorbell_batching.unwrap_or(usual.doorbell_batching),
            passive_ack: usual.passive_ack && self.passive_ack,
        }
    }
}

impl Space {
    /// Primitives and cache only, with the optimizations of table 2.
    pub fn primitives(caps: &Caps, needs: &Needs) -> Space {
        Space { caps: caps.clone(), needs: *needs, variants: vec![Variant::TABLE2] }
    }

    /// Primitives, cache and optimizations. `reads_ahead` says whether the workload lets fetch send requests
    /// without waiting for each other; that is a property of the workload, not a choice.
    pub fn all(caps: &Caps, needs: &Needs, reads_ahead: bool) -> Space {
        let outstanding = if reads_ahead { Outstanding::Always } else { Outstanding::AfterFetch };
        let mut variants = Vec::new();
        for doorbell_batching in [None, Some(true), Some(false)] {
            for passive_ack in [true, false] {
                variants.push(Variant { outstanding, doorbell_batching, passive_ack });
            }
        }
        Space { caps: caps.clone(), needs: *needs, variants }
    }

    /// The plans, each able to run, none twice.
    pub fn plans(&self) -> impl Iterator<Item = Plan> + '_ {
        let phases: Vec<Phase> = Phase::ALL.into_iter().filter(|&p| self.needs.runs(p)).collect();
        let caches = [true, false];
        let total = phases.iter().map(|&phase| choices(phase).len()).product::<usize>();
        let mut seen = std::collections::BTreeSet::new();
        (0..total)
            .flat_map(move |code| {
                let mut vias = Vec::with_capacity(phases.len());
                let mut rest = code;
                for &phase in phases.iter().rev() {
                    let choices = choices(phase);
                    vias.push((phase, choices[rest % choices.len()]));
                    rest /= choices.len();
                }
                caches.into_iter().flat_map(move |cache| {
                    let vias = vias.clone();
                    self.variants.iter().map(move |variant| {
                        let mut plan = Plan { location_cache: cache, ..Plan::empty() };
                        for &(phase, via) in &vias {
                            plan.set(phase, Some(variant.apply(&self.needs, phase, via)));
                        }
                        plan
                    })
                })
            })
            .filter(move |plan| plan.refusals(&self.caps, &self.needs).is_empty() && seen.insert(*plan))
    }
}

fn choices(phase: Phase) -> &'static [Via] {
    match phase {
        Phase::Fetch => &[Via::TwoSided, Via::OneSided, Via::Hybrid],
        _ => &[Via::TwoSided, Via::OneSided],
    }
}
