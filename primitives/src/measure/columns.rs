//! The columns of the result files, fixed by the kind of run.

use super::Kind;

/// The tables of a result directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TableName {
    /// `points.csv`: one row per point. Its row is written last, and says that the point is whole.
    Points,
    /// `phases.csv`: one row per point and phase.
    Phases,
    /// `aborts.csv`: one row per point and abort reason.
    Aborts,
}

impl TableName {
    /// The file's name in the directory.
    pub const fn file(self) -> &'static str {
        match self {
            TableName::Points => "points.csv",
            TableName::Phases => "phases.csv",
            TableName::Aborts => "aborts.csv",
        }
    }

    /// Every table that a kind of run may write; `points` last.
    pub const fn of(kind: Kind) -> &'static [TableName] {
        match kind {
            Kind::Run | Kind::Experiment => &[TableName::Phases, TableName::Aborts, TableName::Points],
            Kind::Study => &[TableName::Phases, TableName::Points],
            Kind::Characterize | Kind::Tune | Kind::Primitive | Kind::Regret | Kind::Scoreboard => {
                &[TableName::Points]
            }
        }
    }
}

/// Columns of `phases.csv`; verbs, round trips and doorbells are per committed transaction.
pub const PHASE_COLUMNS: &[&str] =
    &["point", "phase", "latency_p50_ns", "latency_p99_ns", "verbs", "round_trips", "doorbells"];

/// Columns of `aborts.csv`. The class is `conflict` for aborted attempts, `application` for transactions that the
/// application rolled back.
pub const ABORT_COLUMNS: &[&str] = &["point", "class", "reason", "count"];

const CHARACTERIZE: &[&str] = &[
    "point",
    "bench",
    "verb",
    "payload_bytes",
    "threads",
    "coroutines",
    "outstanding",
    "doorbell_batch",
    "signal_period",
    "queue_pairs",
    "optimizations",
    "ops",
    "rate_per_s",
    "latency_min_ns",
    "latency_p50_ns",
    "latency_p90_ns",
    "latency_p99_ns",
    "latency_p999_ns",
    "latency_mean_ns",
    "latency_max_ns",
    "goodput_gb_per_s",
    "doorbells_per_op",
    "instructions_per_op",
    "preemptions_per_cpu_s",
    "busy",
    "servers",
    "addresses",
    "warm_up_ns",
    "measured_ns",
    "batches",
    "rate_ci_relative",
    "converged",
];

const STUDY: &[&str] = &[
    "point",
    "phase",
    "variant",
    "coroutines",
    "payload_bytes",
    "skew",
    "records",
    "think_us",
    "ops",
    "rate_per_s",
    "latency_p50_ns",
    "latency_p90_ns",
    "latency_p99_ns",
    "latency_p999_ns",
    "verbs_per_op",
    "round_trips_per_op",
    "doorbells_per_op",
    "preemptions_per_cpu_s",
    "busy",
];

const RUN: &[&str] = &[
    "point",
    "workload",
    "protocol",
    "plan",
    "nodes",
    "threads",
    "coroutines",
    "replicas",
    "committed",
    "aborted",
    "rolled_back",
    "elapsed_ns",
    "committed_per_s",
    "aborted_per_s",
    "rolled_back_per_s",
    "aborted_share",
    "latency_mean_ns",
    "latency_p50_ns",
    "latency_p90_ns",
    "latency_p99_ns",
    "latency_p999_ns",
    "verbs_per_committed",
    "round_trips_per_committed",
    "doorbells_per_committed",
    "cpu_ns_per_committed",
    "messages_per_machine_per_s",
    "predicted_per_s",
    "predicted_mean_ns",
    "isolation_level",
    "isolation_verdict",
    "checks_failed",
    "events",
    "virtual_ns",
    "preemptions_per_cpu_s",
    "busy",
    "warm_up_ns",
    "batches",
    "rate_ci_relative",
    "converged",
];

const TUNE: &[&str] = &[
    "point",
    "protocol",
    "plan",
    "origin",
    "description",
    "steps",
    "predicted_per_s",
    "predicted_mean_ns",
    "bottleneck",
    "got_per_s",
    "got_mean_ns",
];

const PRIMITIVE: &[&str] = &[
    "point",
    "fabric",
    "verb",
    "payload_bytes",
    "nodes",
    "servers",
    "threads",
    "coroutines",
    "outstanding",
    "doorbell_batch",
    "signal_period",
    "queue_pairs",
    "addresses",
    "memory",
    "context",
    "ack",
    "atomics_percent",
    "peers",
    "queue_pairs_per_node",
    "optimizations",
    "ops",
    "rate_per_s",
    "rate_per_server_per_s",
    "latency_min_ns",
    "latency_p50_ns",
    "latency_p90_ns",
    "latency_p99_ns",
    "latency_p999_ns",
    "latency_mean_ns",
    "latency_max_ns",
    "goodput_gb_per_s",
    "doorbells_per_op",
    "events",
    "virtual_ns",
    "warm_up_ns",
    "batches",
    "rate_ci_relative",
    "converged",
];

const REGRET: &[&str] = &[
    "point",
    "fabric",
    "workload",
    "settings",
    "protocol",
    "nodes",
    "threads",
    "coroutines",
    "replicas",
    "cache_bytes",
    "seed",
    "plans",
    "runs",
    "tuned",
    "best",
    "bottleneck",
    "predicted_per_s",
    "got_per_s",
    "prediction_error",
    "predicted_aborted_share",
    "aborted_share",
    "best_predicted_per_s",
    "best_per_s",
    "regret",
    "regret_error",
    "verified",
    "verified_per_s",
    "verified_regret",
    "verified_regret_error",
    "events",
];

const SCOREBOARD: &[&str] = &[
    "point",
    "claim",
    "paper",
    "where",
    "family",
    "split",
    "kind",
    "metric",
    "unit",
    "published",
    "published_lo",
    "published_hi",
    "got",
    "got_lo",
    "got_hi",
    "error",
    "verdict",
    "experiment",
    "detail",
    "caveat",
    "contradicts",
];

/// Columns of `points.csv` for a kind of run; experiments and primitive grids add one `axis_<name>` per grid axis.
pub const fn point_columns(kind: Kind) -> &'static [&'static str] {
    match kind {
        Kind::Characterize => CHARACTERIZE,
        Kind::Study => STUDY,
        Kind::Run | Kind::Experiment => RUN,
        Kind::Tune => TUNE,
        Kind::Primitive => PRIMITIVE,
        Kind::Regret => REGRET,
        Kind::Scoreboard => SCOREBOARD,
    }
}

/// Columns of a table for a kind of run, with the grid axes of an experiment.
pub fn columns(kind: Kind, table: TableName, axes: &[String]) -> Vec<String> {
    let fixed = match table {
        TableName::Points => point_columns(kind),
        TableName::Phases => PHASE_COLUMNS,
        TableName::Aborts => ABORT_COLUMNS,
    };
    let mut all: Vec<String> = fixed.iter().map(|&c| c.to_owned()).collect();
    if table == TableName::Points {
        all.extend(axes.iter().map(|axis| format!("axis_{axis}")));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_table_starts_with_the_point_and_repeats_no_column() {
        let kinds = [
            Kind::Characterize,
            Kind::Study,
            Kind::Tune,
            Kind::Run,
            Kind::Experiment,
            Kind::Primitive,
            Kind::Regret,
            Kind::Scoreboard,
        ];
        for kind in kinds {
            for &table in TableName::of(kind) {
                let mut names = columns(kind, table, &["nodes".into(), "plan".into()]);
                assert_eq!(names[0], "point");
                let all = names.len();
                names.sort();
                names.dedup();
                assert_eq!(names.len(), all, "{kind:?} {table:?}");
            }
            assert_eq!(TableName::of(kind).last(), Some(&TableName::Points));
        }
    }
}
