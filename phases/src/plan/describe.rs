//! A plan in few words: the preset it is nearest to, and what it does otherwise.

use super::{Phase, Plan, Preset, Step};

/// Weight of another primitive against another optimization of the same primitive: who looks for the nearest preset
/// asks first which primitives it uses.
const PRIMITIVE: u32 = 8;

impl Plan {
    /// `drtm-h, log two-sided`: the nearest preset and the differences from it in `phases`. Coroutines are left out, as
    /// every plan is run with a count of its own.
    pub fn describe(&self, phases: &[Phase]) -> String {
        let apart = |preset: &&Preset| self.steps_apart(&preset.plan(), phases);
        // Of presets equally near the first is taken; the pure plans come first.
        let Some(nearest) = Preset::ALL.iter().min_by_key(apart) else { return self.to_string() };
        let mut parts = vec![nearest.name().to_owned()];
        parts.extend(self.differences(&nearest.plan(), phases));
        parts.join(", ")
    }

    /// Whether both do the same in `phases`, whatever their coroutines.
    pub fn same_steps(&self, other: &Plan, phases: &[Phase]) -> bool {
        self.steps_apart(other, phases) == 0
    }

    fn steps_apart(&self, other: &Plan, phases: &[Phase]) -> u32 {
        let cache = if self.location_cache == other.location_cache { 0 } else { PRIMITIVE };
        let of = |phase: &Phase| match (self.step(*phase), other.step(*phase)) {
            (a, b) if a == b => 0,
            (Some(a), Some(b)) if a.via == b.via => changes(a, b).len() as u32,
            _ => PRIMITIVE,
        };
        cache + phases.iter().map(of).sum::<u32>()
    }

    fn differences(&self, from: &Plan, phases: &[Phase]) -> Vec<String> {
        let mut parts = Vec::new();
        if self.location_cache != from.location_cache {
            parts.push(
                if self.location_cache { "with location cache" } else { "no location cache" }.to_owned(),
            );
        }
        for &phase in phases {
            match (self.step(phase), from.step(phase)) {
                (a, b) if a == b => {}
                (Some(a), Some(b)) if a.via == b.via => {
                    parts.push(format!("{phase} {}", changes(a, b).join(" and ")));
                }
                (Some(step), _) => {
                    // Another primitive, with what table 2 gives it unless said otherwise.
                    let unusual = changes(step, Step::table2(phase, step.via));
                    let unusual =
                        if unusual.is_empty() { String::new() } else { format!(" ({})", unusual.join(", ")) };
                    parts.push(format!("{phase} {}{unusual}", step.via));
                }
                (None, _) => parts.push(format!("no {phase}")),
            }
        }
        parts
    }
}

/// What `step` does otherwise than `from`, which has the same primitive.
fn changes(step: Step, from: Step) -> Vec<&'static str> {
    let mut changes = Vec::new();
    let mut change = |now: bool, then: bool, on: &'static str, off: &'static str| {
        if now != then {
            changes.push(if now { on } else { off });
        }
    };
    change(step.outstanding, from.outstanding, "all at once", "one by one");
    change(step.doorbell_batching, from.doorbell_batching, "batched", "unbatched");
    change(step.passive_ack, from.passive_ack, "passive", "awaited");
    changes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Via;

    #[test]
    fn presets_are_themselves() {
        for &preset in Preset::ALL {
            let same = Preset::ALL.iter().find(|p| p.plan().same_steps(&preset.plan(), &Phase::ALL));
            let expected = same.map_or("", |p| p.name());
            assert_eq!(Plan { coroutines: 3, ..preset.plan() }.describe(&Phase::ALL), expected);
        }
    }

    #[test]
    fn differences_are_told_phase_by_phase() {
        let base = Preset::DrtmH.plan();
        assert_eq!(base.with(Phase::Log, Via::TwoSided).describe(&Phase::ALL), "drtm-h, log two-sided");
        let others: Vec<Phase> = Phase::ALL.into_iter().filter(|p| *p != Phase::Log).collect();
        assert_eq!(base.with(Phase::Log, Via::TwoSided).describe(&others), "drtm-h");
        let mut plan = base;
        let lock = plan.lock.map(|s| Step { doorbell_batching: !s.doorbell_batching, ..s });
        plan.set(Phase::Lock, lock);
        assert_eq!(plan.describe(&Phase::ALL), "drtm-h, lock unbatched");
        plan.location_cache = !plan.location_cache;
        assert!(plan.describe(&Phase::ALL).contains("no location cache, "), "{}", plan.describe(&Phase::ALL));
    }

    #[test]
    fn plans_that_differ_are_told_apart() {
        let mut seen = std::collections::BTreeMap::new();
        let base = Preset::DrtmH.plan();
        for phase in Phase::ALL {
            for via in [Via::OneSided, Via::TwoSided] {
                for bits in 0..8u8 {
                    let mut plan = base;
                    let (outstanding, doorbell_batching, passive_ack) =
                        (bits & 1 > 0, bits & 2 > 0, bits & 4 > 0);
                    plan.set(phase, Some(Step { via, outstanding, doorbell_batching, passive_ack }));
                    if let Some(other) = seen.insert(plan.describe(&Phase::ALL), plan) {
                        assert!(other.same_steps(&plan, &Phase::ALL), "{other} and {plan}");
                    }
                }
            }
        }
    }
}
