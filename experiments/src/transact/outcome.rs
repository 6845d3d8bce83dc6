//! A finished run: its rows, its JSON, and whether anything was wrong with it.

use super::NamedPlan;
use crate::error::CliError;
use crate::schedule::Disturbance;
use crate::spec::{FabricChoice, RunSpec};
use engine::cluster::RunResult;
use engine::protocol::{AnyProtocol, Protocol};
use engine::stats::ReasonCounts;
use engine::verify::{self, Level, Verdict};
use phases::plan::{Phase, Prediction};
use phases::rule::Abort;
use primitives::measure::{PointResult, Row, Steadiness};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// A finished run.
pub struct Run {
    /// The plan's name.
    pub plan: String,
    /// Its prediction.
    pub prediction: Option<Prediction>,
    /// What the engine brought back.
    pub result: RunResult,
    /// The checker's word on the recorded history.
    pub verdict: Option<Verdict>,
    /// What the scheduler did meanwhile.
    pub disturbance: Disturbance,
}

/// Transactions of an interrupted run that are checked: a second's work.
const CHECKED_WHEN_INTERRUPTED: usize = 200_000;

/// Whether the history of so many transactions is checked at once.
fn is_checked(transactions: usize, interrupted: bool) -> bool {
    !interrupted || transactions <= CHECKED_WHEN_INTERRUPTED
}

impl Run {
    /// A run, its history checked if it is the whole; of one that somebody interrupted, who waits for its end, if that takes no long time.
    pub fn judge(named: &NamedPlan, result: RunResult, whole: bool) -> Run {
        let history = result.history.as_ref();
        let history = history.filter(|h| whole && is_checked(h.txns().len(), result.interrupted));
        // A run's protocol is one of those with a name; what it promises is what is checked.
        let promised = AnyProtocol::named(result.protocol).map(|protocol| protocol.level());
        let verdict = history.map(|h| verify::check(h, promised.unwrap_or(Level::StrictSerializable)));
        let disturbance = Disturbance::default();
        Run { plan: named.name.clone(), prediction: named.prediction.clone(), result, verdict, disturbance }
    }

    /// Whether any transaction committed that checks and the verdict could be about. A history has those of the warm-up, too.
    pub fn says_something(&self) -> bool {
        let recorded = self.verdict.as_ref().map_or(0, |v| v.counts.committed + v.counts.in_doubt_committed);
        self.result.stats.committed > 0 || recorded > 0
    }

    /// How the protocol's locks are held, in words.
    pub fn lock_mode(&self) -> Option<&'static str> {
        AnyProtocol::named(self.result.protocol).map(|protocol| protocol.needs().lock_mode())
    }

    /// The verdict, unless it passed because there was nothing to judge.
    pub fn judged(&self) -> Option<&Verdict> {
        self.verdict.as_ref().filter(|verdict| !verdict.passed() || self.says_something())
    }

    /// The row, phases and aborts of result files.
    pub fn point(&self, row: Row) -> PointResult {
        let r = &self.result;
        let latency = &r.stats.latency;
        let virtual_time = r.facts.events > 0;
        let row = self.disturbance.told(row);
        let row = row
            .with("workload", r.workload)
            .with("protocol", r.protocol)
            .with("plan", self.plan.as_str())
            .with("steps", r.plan.to_string())
            .with("nodes", r.shape.nodes)
            .with("threads", r.shape.workers)
            .with("coroutines", r.plan.coroutines)
            .with("replicas", r.replicas)
            .with("committed", r.stats.committed)
            .with("aborted", r.stats.aborts.total())
            .with("rolled_back", r.stats.rolled_back.total())
            .with("elapsed_ns", r.elapsed)
            .with("committed_per_s", r.committed_per_s())
            .with("aborted_per_s", r.aborted_per_s())
            .with("rolled_back_per_s", r.rolled_back_per_s())
            .with("aborted_share", r.aborted_share())
            .with("latency_mean_ns", latency.mean_ns())
            .with_latency(latency)
            .with("verbs_per_committed", r.verbs_per_committed())
            .with("round_trips_per_committed", r.round_trips_per_committed())
            .with("doorbells_per_committed", r.doorbells_per_committed())
            .with("cpu_ns_per_committed", r.cpu_ns_per_committed())
            .with("messages_per_machine_per_s", r.messages_per_machine_per_s())
            .with("lock_mode", self.lock_mode())
            .with("local_share", r.local_share())
            .with("predicted_per_s", self.prediction.as_ref().map(|p| p.committed_per_s))
            .with("predicted_mean_ns", self.prediction.as_ref().map(|p| p.latency_mean_ns))
            .with("isolation_level", self.judged().map(|v| v.level.to_string()))
            .with("isolation_verdict", self.judged().map(|v| if v.passed() { "pass" } else { "fail" }))
            .with("checks_failed", r.failed_checks().count())
            .with("events", virtual_time.then_some(r.facts.events))
            .with("virtual_ns", virtual_time.then_some(r.facts.virtual_time));
        let row = match &r.steadiness {
            Some(steadiness) => row.with_steadiness(steadiness),
            None => row,
        };
        let row = row.with_too_short(r.too_short).with_full(r.stats.aborts.of(Abort::TableFull.name()) > 0);
        let phases = Phase::ALL.into_iter().filter(|&phase| r.stats.phase(phase).latency.count() > 0);
        let phases = phases.map(|phase| {
            let stats = r.stats.phase(phase);
            let [verbs, round_trips, doorbells] = r.phase_per_committed(phase);
            Row::new()
                .with("phase", phase.name())
                .with("latency_p50_ns", stats.latency.p50())
                .with("latency_p99_ns", stats.latency.p99())
                .with("verbs", verbs)
                .with("round_trips", round_trips)
                .with("doorbells", doorbells)
                .with("ns_per_committed", r.stats.phase_ns_per_committed(phase))
                .with("bytes_per_verb", stats.costs.bytes_per_verb())
        });
        let of = |class: &'static str, counts: &ReasonCounts| -> Vec<Row> {
            let counted = counts.iter().filter(|(_, count)| *count > 0);
            counted
                .map(|(reason, n)| Row::new().with("class", class).with("reason", reason).with("count", n))
                .collect()
        };
        let mut aborts = of("conflict", &r.stats.aborts);
        aborts.extend(of("application", &r.stats.rolled_back));
        PointResult { row, phases: phases.collect(), aborts, histogram: Some(latency.clone()) }
    }

    /// The document of `run --json`.
    pub fn json(&self, spec: &RunSpec) -> Value {
        let r = &self.result;
        let latency = &r.stats.latency;
        let quantiles = |h: &primitives::measure::Histogram| json!({ "mean": h.mean_ns(), "p50": h.p50(), "p90": h.p90(), "p99": h.p99(), "p999": h.p999() });
        let phases: serde_json::Map<String, Value> = Phase::ALL
            .into_iter()
            .map(|phase| {
                let [verbs, round_trips, doorbells] = r.phase_per_committed(phase);
                let stats = r.stats.phase(phase);
                let phase_json = json!({
                    "latency_ns": quantiles(&stats.latency),
                    "timed": stats.latency.count(),
                    "verbs": verbs, "round_trips": round_trips, "doorbells": doorbells,
                    "ns_per_committed": r.stats.phase_ns_per_committed(phase),
                    "bytes_per_verb": stats.costs.bytes_per_verb(),
                });
                (phase.name().to_owned(), phase_json)
            })
            .collect();
        let kinds: serde_json::Map<String, Value> = r
            .kinds()
            .map(|(name, kind, committed_per_s)| {
                let kind = json!({
                    "committed": kind.committed,
                    "committed_per_s": committed_per_s,
                    "aborted": kind.aborted,
                    "rolled_back": kind.rolled_back,
                    "latency_ns": quantiles(&kind.latency),
                });
                (name.to_owned(), kind)
            })
            .collect();
        let checks: serde_json::Map<String, Value> = r
            .checks
            .iter()
            .map(|c| {
                let passed = (!c.passed || self.says_something()).then_some(c.passed);
                (c.name.to_owned(), json!({ "passed": passed, "detail": c.detail }))
            })
            .collect();
        let mut document = json!({
            "spec": spec,
            "plan": self.plan,
            "steps": r.plan.to_string(),
            "coroutines": r.plan.coroutines,
            "committed": r.stats.committed,
            "committed_per_s": r.committed_per_s(),
            "aborted_per_s": r.aborted_per_s(),
            "rolled_back_per_s": r.rolled_back_per_s(),
            "aborted_share": r.aborted_share(),
            "given_up": r.stats.given_up,
            "cut_off": r.stats.cut_off,
            "aborts": r.stats.aborts.iter().collect::<BTreeMap<_, _>>(),
            "rolled_back": r.stats.rolled_back.iter().collect::<BTreeMap<_, _>>(),
            "elapsed_ns": r.elapsed,
            "latency_ns": quantiles(latency),
            "phases": phases,
            "kinds": kinds,
            "verbs_per_committed": r.verbs_per_committed(),
            "round_trips_per_committed": r.round_trips_per_committed(),
            "doorbells_per_committed": r.doorbells_per_committed(),
            "lock_mode": self.lock_mode(),
            "local_share": r.local_share(),
            "location_cache": { "hits": r.cache.hits, "misses": r.cache.misses, "stale": r.cache.stale },
            "rpc": r.rpc,
            "cpu_ns_per_committed": r.cpu_ns_per_committed(),
            "messages_per_machine_per_s": r.messages_per_machine_per_s(),
            "predicted_per_s": self.prediction.as_ref().map(|p| p.committed_per_s),
            "predicted_mean_ns": self.prediction.as_ref().map(|p| p.latency_mean_ns),
            "priced_by": self.prediction.as_ref().map(|p| {
                json!({ "name": p.profile, "hash": p.profile_hash, "doubt": p.doubt })
            }),
            "isolation": self.judged(),
            "checks": checks,
            "preemptions_per_cpu_s": self.disturbance.preemptions_per_cpu_s,
            "busy": self.disturbance.busy(),
            "interrupted": r.interrupted,
            "too_short": r.too_short.map(|short| short.to_string()),
            "full": r.stats.aborts.of(Abort::TableFull.name()) > 0,
            "steadiness": r.steadiness.as_ref().map(known),
        });
        if let FabricChoice::Sim(_) = spec.fabric {
            document["virtual_ns"] = json!(r.facts.virtual_time);
            document["events"] = json!(r.facts.events);
            document["events_per_s"] = json!(r.facts.events_per_s());
            document["fingerprint"] = json!(format!("{:016x}", r.facts.fingerprint));
        }
        document
    }

    /// Whether the history is serializable, every invariant held and no session failed.
    ///
    /// # Errors
    /// Exit code 1 with what failed first, and the command that repeats it.
    pub fn passed(&self, repeat: &str) -> Result<(), CliError> {
        self.nothing_wrong(repeat)?;
        if self.result.stats.committed == 0 && !self.result.interrupted {
            return Err(CliError::check(
                "no transaction committed in the measured time: there is nothing to judge",
            )
            .hint("lengthen --duration, or lower the contention"));
        }
        Ok(())
    }

    /// As [`Run::passed`], of a run in which nothing need have committed.
    ///
    /// # Errors
    /// As there.
    pub fn nothing_wrong(&self, repeat: &str) -> Result<(), CliError> {
        let hint = format!("repeat with: {repeat}");
        if let Some(fault) = self.result.faults.first() {
            let (node, worker) = (fault.node, fault.worker);
            return Err(CliError::check(format!(
                "a session on {node}, worker {worker} failed: {}",
                fault.why
            ))
            .hint(hint));
        }
        if let Some(failed) = self.result.failed_checks().next() {
            return Err(
                CliError::check(format!("check `{}` failed: {}", failed.name, failed.detail)).hint(hint)
            );
        }
        match &self.verdict {
            Some(verdict) if !verdict.passed() => {
                Err(CliError::check(format!("the history is not {}:\n{verdict}", verdict.level)).hint(hint))
            }
            _ => Ok(()),
        }
    }
}

/// How well the rate is known.
fn known(s: &Steadiness) -> Value {
    json!({
        "warm_up_ns": s.warm_up, "batches": s.means.map(|m| m.batches), "batch_ns": s.batch,
        "batch_rates_per_s": s.batch_rates_per_s(),
        "rate_ci_relative": s.relative(), "lag1": s.means.map(|m| m.lag1), "converged": s.converged,
        "settled": s.settled,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_interrupts_a_run_does_not_wait_for_a_long_history_to_be_checked() {
        assert!(is_checked(1000, true) && is_checked(10_000_000, false));
        assert!(!is_checked(CHECKED_WHEN_INTERRUPTED + 1, true));
    }
}
