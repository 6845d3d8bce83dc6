//! The columns of the result files, fixed by the kind of run.

use super::Kind;
use Holds::{Amount, Count, Number, Words};

/// What the cells of a column hold. Whatever it is, a cell that could not be measured is empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holds {
    /// A count.
    Count,
    /// A rate, a time, a share or a mean of counts: never below zero.
    Amount,
    /// A number of either sign.
    Number,
    /// Words.
    Words,
}

impl Holds {
    /// Whether a cell may say this. A count written as 64.0 is a count; 0.5 or -1 is not. What is not finite is no number: such are
    /// written as empty cells.
    pub fn fits(self, cell: &str) -> bool {
        let number = cell.trim().parse::<f64>().ok().filter(|n| n.is_finite());
        match self {
            _ if cell.trim().is_empty() => true,
            Words => true,
            Number => number.is_some(),
            Amount => number.is_some_and(|n| n >= 0.0),
            Count => number.is_some_and(|n| n >= 0.0 && n.fract() == 0.0),
        }
    }

    /// What one is called.
    pub fn noun(self) -> &'static str {
        match self {
            Count => "count",
            Amount => "finite number from 0 on",
            Number => "finite number",
            Words => "word",
        }
    }
}

/// A table's columns.
pub type Columns = &'static [(&'static str, Holds)];

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

/// Columns of `phases.csv`. Latencies are of timed attempts that came to the phase. Per committed transaction are verbs, round trips,
/// doorbells, and the mean time spent in the phase. `bytes_per_verb` is the payload that one of those verbs carried on average, in
/// bytes: what a READ brought or a WRITE took, 8 of an ATOMIC, and of a call its request and, if it was waited for, its reply, each
/// behind the RPC header. Replies are in it though they are no verbs of the phase's, as what a READ brings is; what the NIC or the RPC
/// layer sends again is not, nor the replies of CALVIN's letters. It is empty where the phase posted nothing. (DrTM+H's table 3 calls it payload.)
pub const PHASES: Columns = &[
    ("point", Count),
    ("phase", Words),
    ("latency_p50_ns", Amount),
    ("latency_p99_ns", Amount),
    ("verbs", Amount),
    ("round_trips", Amount),
    ("doorbells", Amount),
    ("ns_per_committed", Amount),
    ("bytes_per_verb", Amount),
];

/// Columns of `aborts.csv`. The class is `conflict` for aborted attempts, `application` for transactions that the
/// application rolled back.
pub const ABORTS: Columns = &[("point", Count), ("class", Words), ("reason", Words), ("count", Count)];

const CHARACTERIZE: Columns = &[
    ("point", Count),
    ("bench", Words),
    ("verb", Words),
    ("payload_bytes", Count),
    ("threads", Count),
    ("coroutines", Count),
    ("outstanding", Count),
    ("doorbell_batch", Count),
    ("signal_period", Count),
    ("queue_pairs", Count),
    ("optimizations", Words),
    ("ops", Count),
    ("rate_per_s", Amount),
    ("device_rate_per_s", Amount),
    ("latency_min_ns", Amount),
    ("latency_p50_ns", Amount),
    ("latency_p90_ns", Amount),
    ("latency_p99_ns", Amount),
    ("latency_p999_ns", Amount),
    ("latency_mean_ns", Amount),
    ("latency_max_ns", Amount),
    ("goodput_gb_per_s", Amount),
    ("doorbells_per_op", Amount),
    ("instructions_per_op", Amount),
    ("preemptions_per_cpu_s", Amount),
    ("busy", Words),
    ("servers", Count),
    ("addresses", Count),
    ("warm_up_ns", Amount),
    ("measured_ns", Amount),
    ("batches", Count),
    ("batch_rates_per_s", Words),
    ("rate_ci_relative", Amount),
    ("converged", Words),
];

const STUDY: Columns = &[
    ("point", Count),
    ("phase", Words),
    ("variant", Words),
    ("coroutines", Count),
    ("payload_bytes", Count),
    ("skew", Amount),
    ("records", Count),
    ("think_us", Amount),
    ("ops", Count),
    ("rate_per_s", Amount),
    ("latency_p50_ns", Amount),
    ("latency_p90_ns", Amount),
    ("latency_p99_ns", Amount),
    ("latency_p999_ns", Amount),
    ("verbs_per_op", Amount),
    ("round_trips_per_op", Amount),
    ("doorbells_per_op", Amount),
    ("preemptions_per_cpu_s", Amount),
    ("busy", Words),
    ("measured_ns", Amount),
    ("converged", Words),
    ("warm_up_ns", Amount),
    ("batches", Count),
    ("batch_rates_per_s", Words),
    ("rate_ci_relative", Amount),
];

const RUN: Columns = &[
    ("point", Count),
    ("workload", Words),
    ("protocol", Words),
    ("plan", Words),
    ("nodes", Count),
    ("threads", Count),
    ("coroutines", Count),
    ("replicas", Count),
    ("committed", Count),
    ("aborted", Count),
    ("rolled_back", Count),
    ("elapsed_ns", Amount),
    ("committed_per_s", Amount),
    ("aborted_per_s", Amount),
    ("rolled_back_per_s", Amount),
    ("aborted_share", Amount),
    ("latency_mean_ns", Amount),
    ("latency_p50_ns", Amount),
    ("latency_p90_ns", Amount),
    ("latency_p99_ns", Amount),
    ("latency_p999_ns", Amount),
    ("verbs_per_committed", Amount),
    ("round_trips_per_committed", Amount),
    ("doorbells_per_committed", Amount),
    ("cpu_ns_per_committed", Amount),
    ("messages_per_machine_per_s", Amount),
    ("predicted_per_s", Amount),
    ("predicted_mean_ns", Amount),
    ("isolation_level", Words),
    ("isolation_verdict", Words),
    ("checks_failed", Count),
    ("events", Count),
    ("virtual_ns", Amount),
    ("preemptions_per_cpu_s", Amount),
    ("busy", Words),
    ("warm_up_ns", Amount),
    ("batches", Count),
    ("batch_rates_per_s", Words),
    ("rate_ci_relative", Amount),
    ("converged", Words),
    ("steps", Words),
    ("lock_mode", Words),
    ("local_share", Amount),
];

const TUNE: Columns = &[
    ("point", Count),
    ("protocol", Words),
    ("plan", Words),
    ("origin", Words),
    ("description", Words),
    ("steps", Words),
    ("predicted_per_s", Amount),
    ("predicted_mean_ns", Amount),
    ("bottleneck", Words),
    ("coroutines", Count),
    ("round", Count),
    ("got_per_s", Amount),
    ("got_ci_relative", Amount),
    ("got_mean_ns", Amount),
    ("converged", Words),
    ("preemptions_per_cpu_s", Amount),
    ("busy", Words),
];

const PRIMITIVE: Columns = &[
    ("point", Count),
    ("fabric", Words),
    ("verb", Words),
    ("payload_bytes", Count),
    ("nodes", Count),
    ("servers", Count),
    ("threads", Count),
    ("coroutines", Count),
    ("outstanding", Count),
    ("doorbell_batch", Count),
    ("signal_period", Count),
    ("queue_pairs", Count),
    ("addresses", Count),
    ("memory", Words),
    ("context", Words),
    ("ack", Words),
    ("atomics_percent", Count),
    ("peers", Words),
    ("transport", Words),
    ("reply", Words),
    ("loop", Words),
    ("queue_pairs_per_node", Amount),
    ("optimizations", Words),
    ("ops", Count),
    ("rate_per_s", Amount),
    ("device_rate_per_s", Amount),
    ("rate_per_server_per_s", Amount),
    ("latency_min_ns", Amount),
    ("latency_p50_ns", Amount),
    ("latency_p90_ns", Amount),
    ("latency_p99_ns", Amount),
    ("latency_p999_ns", Amount),
    ("latency_mean_ns", Amount),
    ("latency_max_ns", Amount),
    ("goodput_gb_per_s", Amount),
    ("doorbells_per_op", Amount),
    ("events", Count),
    ("virtual_ns", Amount),
    ("preemptions_per_cpu_s", Amount),
    ("busy", Words),
    ("warm_up_ns", Amount),
    ("batches", Count),
    ("batch_rates_per_s", Words),
    ("rate_ci_relative", Amount),
    ("converged", Words),
];

const REGRET: Columns = &[
    ("point", Count),
    ("fabric", Words),
    ("workload", Words),
    ("settings", Words),
    ("protocol", Words),
    ("nodes", Count),
    ("threads", Count),
    ("coroutines", Count),
    ("replicas", Count),
    ("cache_bytes", Count),
    ("seed", Count),
    ("protocols", Count),
    ("plans", Count),
    ("runs", Count),
    ("tuned", Words),
    ("best", Words),
    ("best_protocol", Words),
    ("bottleneck", Words),
    ("predicted_per_s", Amount),
    ("got_per_s", Amount),
    ("prediction_error", Number),
    ("predicted_aborted_share", Amount),
    ("aborted_share", Amount),
    ("best_predicted_per_s", Amount),
    ("best_per_s", Amount),
    ("regret", Number),
    ("regret_error", Amount),
    ("verified", Words),
    ("verified_protocol", Words),
    ("verified_per_s", Amount),
    ("verified_regret", Number),
    ("verified_regret_error", Amount),
    ("events", Count),
    ("best_one_sided", Words),
    ("best_one_sided_per_s", Amount),
    ("best_two_sided", Words),
    ("best_two_sided_per_s", Amount),
    ("mixing_gain", Number),
    ("mixing_gain_error", Amount),
];

const SCOREBOARD: Columns = &[
    ("point", Count),
    ("claim", Words),
    ("paper", Words),
    ("where", Words),
    ("family", Words),
    ("split", Words),
    ("kind", Words),
    ("metric", Words),
    ("unit", Words),
    ("published", Words),
    ("published_lo", Number),
    ("published_hi", Number),
    ("got", Words),
    ("got_lo", Number),
    ("got_hi", Number),
    ("error", Number),
    ("verdict", Words),
    ("experiment", Words),
    ("detail", Words),
    ("reason", Words),
    ("caveat", Words),
    ("contradicts", Words),
];

/// Columns of a table for a kind of run; of `points.csv`, experiments and primitive grids add one `axis_<name>` per grid axis.
pub const fn known_columns(kind: Kind, table: TableName) -> Columns {
    match (table, kind) {
        (TableName::Phases, _) => PHASES,
        (TableName::Aborts, _) => ABORTS,
        (TableName::Points, Kind::Characterize) => CHARACTERIZE,
        (TableName::Points, Kind::Study) => STUDY,
        (TableName::Points, Kind::Run | Kind::Experiment) => RUN,
        (TableName::Points, Kind::Tune) => TUNE,
        (TableName::Points, Kind::Primitive) => PRIMITIVE,
        (TableName::Points, Kind::Regret) => REGRET,
        (TableName::Points, Kind::Scoreboard) => SCOREBOARD,
    }
}

/// Names of the columns of `points.csv` for a kind of run, without axes.
pub fn point_columns(kind: Kind) -> Vec<&'static str> {
    known_columns(kind, TableName::Points).iter().map(|(name, _)| *name).collect()
}

/// Names of the columns of a table for a kind of run, with the grid axes of an experiment.
pub fn columns(kind: Kind, table: TableName, axes: &[String]) -> Vec<String> {
    let mut all: Vec<String> =
        known_columns(kind, table).iter().map(|(name, _)| (*name).to_owned()).collect();
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
