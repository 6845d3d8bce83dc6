//! How large the location caches are to be: the chosen plan by forecast with each budget of a ladder, and the smallest that costs next to
//! nothing.
//!
//! The search itself takes caches as large as they usually are, or as was asked for; the plan that it chooses is then held against itself
//! with others. A budget changes what a forecast is made from in one way, the share of lookups that hit (`engine/src/workload/demand.rs`
//! says how that follows from it, and `experiments/REGRET.md` how near it was to runs).

use crate::output::{human_rate, percent, table};
use engine::workload::Lookups;
use phases::model::{InputError, Model, Objective, Search, Workload};
use phases::plan::CheckedPlan;
use primitives::units::Nanos;
use serde_json::{Value, json};

/// The smallest budget of the ladder, in bytes; each further one is twice the one before.
const LEAST: u32 = 4 << 10;

/// The largest power of two within the 300 MB that DrTM+H gave to each machine (its index cache for TPC-C).
const MOST: u32 = 256 << 20;

/// A cache in which so many lookups hit holds every location, but for those that want the same word.
const ALL: f64 = 0.995;

/// What is expected of a plan with one budget.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rung {
    /// Bytes of each node's cache.
    pub bytes: u32,
    /// Share of lookups that hit.
    pub hit_share: f64,
    /// Committed transactions per second, whole cluster.
    pub per_s: f64,
    /// Mean latency in nanoseconds.
    pub mean_ns: f64,
}

/// The ladder of budgets, and the one that is chosen.
#[derive(Clone, Debug, PartialEq)]
pub struct Budget {
    /// Budgets ascending, each twice the one before.
    pub rungs: Vec<Rung>,
    chosen: usize,
}

impl Budget {
    /// The budget for a plan, by the model of its search; nothing where nobody asks a cache.
    ///
    /// # Errors
    /// As [`Model::new`].
    pub fn of(
        plan: &CheckedPlan,
        model: &Model<'_>,
        lookups: &Lookups,
        objective: Objective,
    ) -> Result<Option<Budget>, InputError> {
        if !plan.get().location_cache || model.cluster().nodes < 2 {
            return Ok(None);
        }
        let mut rungs = Vec::new();
        let budgets = std::iter::successors(Some(LEAST), |bytes| Some(2 * bytes));
        for bytes in budgets.take_while(|&bytes| bytes <= MOST) {
            let hit_share = lookups.hit_share(bytes as usize);
            let workload = Workload { cache_hit_share: hit_share, ..model.workload().clone() };
            let model = Model::new(model.profile(), *model.cluster(), &workload, model.needs())?;
            let forecast = model.forecast(plan);
            let (per_s, mean_ns) = (forecast.committed_per_s, forecast.latency_mean_ns);
            rungs.push(Rung { bytes, hit_share, per_s, mean_ns });
            if hit_share >= ALL {
                break;
            }
        }
        Ok(Budget::among(rungs, objective, Search::default().tolerance))
    }

    /// The smallest whose rate falls short of the best by no more than `tolerance`, among those that keep the latency that is aimed at if
    /// any does. A plan's coroutines are given, so that what is slower is fewer, whichever is aimed at.
    fn among(rungs: Vec<Rung>, objective: Objective, tolerance: f64) -> Option<Budget> {
        let keeps = |rung: &&Rung| rung.mean_ns <= objective.limit_ns();
        let any = rungs.iter().any(|rung| keeps(&rung));
        let fits = |rung: &&Rung| !any || keeps(rung);
        let most = rungs.iter().filter(fits).map(|rung| rung.per_s).fold(0.0, f64::max);
        let enough = |rung: &Rung| fits(&rung) && rung.per_s >= most * (1.0 - tolerance);
        let chosen = rungs.iter().position(enough)?;
        Some(Budget { rungs, chosen })
    }

    /// The budget to take.
    pub fn chosen(&self) -> &Rung {
        &self.rungs[self.chosen]
    }

    /// In a sentence, with the flag that asks for it.
    pub fn told(&self) -> String {
        let Rung { bytes, hit_share, per_s, .. } = *self.chosen();
        format!(
            "location cache: {} on each node are enough (--cache-bytes {bytes}): {} of lookups hit, {}",
            size(bytes),
            percent(hit_share),
            human_rate(per_s)
        )
    }

    /// The ladder for people, without the budgets that are foretold the same as the one before: the first, the last and the chosen one
    /// are always there.
    pub fn shown(&self) -> String {
        let mut last = f64::NEG_INFINITY;
        let mut rows = Vec::new();
        for (place, rung) in self.rungs.iter().enumerate() {
            let same = (rung.per_s / last - 1.0).abs() <= Search::default().tolerance;
            if same && place != self.chosen && place + 1 != self.rungs.len() {
                continue;
            }
            last = rung.per_s;
            let near = format!("{} %", 100.0 * Search::default().tolerance);
            let chosen = format!("the smallest within {near} of the best");
            let mark = if place == self.chosen { chosen } else { String::new() };
            rows.push([
                size(rung.bytes),
                percent(rung.hit_share),
                human_rate(rung.per_s),
                Nanos(rung.mean_ns as u64).to_string(),
                mark,
            ]);
        }
        table(&["location cache", "hits", "predicted", "mean latency", ""], rows)
    }

    /// As programs read it: all of the ladder.
    pub fn json(&self) -> Value {
        let ladder = self.rungs.iter().map(|rung| {
            json!({
                "cache_bytes": rung.bytes, "hit_share": rung.hit_share,
                "predicted_per_s": rung.per_s, "predicted_mean_ns": rung.mean_ns,
            })
        });
        let ladder: Vec<Value> = ladder.collect();
        json!({ "cache_bytes": self.chosen().bytes, "tolerance": Search::default().tolerance, "ladder": ladder })
    }
}

/// A power of two of at least 1 KiB: `64 KiB`, `16 MiB`.
fn size(bytes: u32) -> String {
    if bytes < 1 << 20 { format!("{} KiB", bytes >> 10) } else { format!("{} MiB", bytes >> 20) }
}

#[cfg(test)]
mod tests {
    use super::super::search;
    use super::*;
    use crate::fabrics::Fabric;
    use crate::spec::RunSpec;
    use primitives::profile::Profile;

    fn rungs(rates: &[(f64, f64)]) -> Vec<Rung> {
        let rung = |(n, &(per_s, mean_ns)): (u32, &(f64, f64))| {
            let bytes = LEAST << n;
            Rung { bytes, hit_share: f64::from(n) / 10.0, per_s, mean_ns }
        };
        (0..).zip(rates).map(rung).collect()
    }

    #[test]
    fn the_smallest_budget_that_costs_next_to_nothing_is_chosen() {
        let chosen = |rates: &[(f64, f64)], objective: Objective| {
            Budget::among(rungs(rates), objective, 0.01).map(|budget| budget.chosen().bytes / LEAST)
        };
        let rising = [(50.0, 20.0), (90.0, 12.0), (99.0, 10.2), (100.0, 10.0)];
        assert_eq!(chosen(&rising, Objective::Throughput), Some(4), "1 % short");
        assert_eq!(chosen(&rising[..2], Objective::Throughput), Some(2));
        assert_eq!(chosen(&rising, Objective::Latency), Some(4));
        assert_eq!(chosen(&rising, Objective::ThroughputWithin(10.1)), Some(8), "the mean that is kept");
        assert_eq!(chosen(&rising, Objective::ThroughputWithin(1.0)), Some(4), "no mean is kept");
        // More hits may be worse where calls are cheap, and none may matter.
        assert_eq!(chosen(&[(100.0, 10.0), (90.0, 11.0), (80.0, 12.0)], Objective::Throughput), Some(1));
        assert_eq!(chosen(&[], Objective::Throughput), None);
    }

    #[test]
    fn a_ladder_is_told_without_what_is_the_same() {
        let rates = [(50.0, 20.0), (50.1, 20.0), (90.0, 12.0), (99.5, 10.1), (100.0, 10.0), (100.0, 10.0)];
        let budget = Budget::among(rungs(&rates), Objective::Throughput, 0.01).unwrap();
        assert_eq!(budget.chosen().bytes, 32 << 10);
        let shown = budget.shown();
        let sizes: Vec<&str> = shown.lines().filter_map(|line| line.trim().split("  ").next()).collect();
        assert_eq!(&sizes[2..], ["4 KiB", "16 KiB", "32 KiB", "128 KiB"], "{shown}");
        assert!(
            budget
                .told()
                .starts_with("location cache: 32 KiB on each node are enough (--cache-bytes 32768): 30.0 %")
        );
        let json = budget.json();
        assert_eq!(json["ladder"].as_array().map(Vec::len), Some(rates.len()));
        assert_eq!((&json["cache_bytes"], &json["ladder"][3]["cache_bytes"]), (&json!(32768), &json!(32768)));
        assert_eq!([16 << 20, 512 << 10].map(size), ["16 MiB", "512 KiB"]);
    }

    /// A rung's forecast is that of a search which was asked for its budget, and the ladder ends where all is held.
    #[test]
    fn rungs_are_forecasts_of_searches_with_that_budget() {
        let mut spec = RunSpec { coroutines: Some(4), nodes: 3, threads: 1, ..RunSpec::default() };
        spec.apply("fabric", &json!("sim:cx4-edr")).unwrap();
        let fabric = Fabric::open(&spec.fabric, spec.seed).unwrap();
        let profile = Profile::shipped("cx4-edr").unwrap();
        let tuned =
            |spec: &RunSpec| search(spec, &fabric, &profile, Objective::Throughput, &|| true).unwrap();
        let usual = tuned(&spec);
        let budget = usual.budget.as_ref().unwrap();
        let (first, last) = (budget.rungs[0], budget.rungs[budget.rungs.len() - 1]);
        assert!(first.bytes == LEAST && first.hit_share < 0.1 && last.hit_share >= ALL, "{budget:?}");
        assert!(budget.rungs.is_sorted_by(|a, b| a.hit_share < b.hit_share && 2 * a.bytes == b.bytes));
        assert!(budget.rungs.len() > 6 && last.bytes < MOST, "{budget:?}");
        let chosen = budget.chosen();
        assert!(first.bytes < chosen.bytes && chosen.bytes <= last.bytes, "{budget:?}");
        assert!(chosen.per_s >= 0.99 * last.per_s && chosen.per_s > 1.05 * first.per_s, "{budget:?}");
        let asked = RunSpec { cache_bytes: Some(chosen.bytes), ..spec.clone() };
        let asked = tuned(&asked);
        let plan = usual.tuning.best().plan;
        let same = asked.tuning.ranked.iter().find(|candidate| candidate.plan == plan).unwrap();
        assert_eq!(same.forecast.committed_per_s, chosen.per_s);
        assert!(asked.budget.is_none(), "a budget that was asked for is not chosen");
    }
}
