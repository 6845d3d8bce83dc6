//! Result directories to frames.

pub mod record;
pub mod shards;
pub mod table;

use polars::prelude::DataFrame;
use std::path::{Path, PathBuf};

use crate::error::LoadError;
use crate::frame::{floats, words};
use record::Record;
use table::{Cell, Columns};

/// One result directory in memory.
pub struct Results {
    /// The directory's own name.
    pub label: String,
    /// Where it was read from.
    pub path: PathBuf,
    /// `run.json`.
    pub record: Record,
    /// `points.csv`, with the columns its kind has.
    pub points: DataFrame,
    /// `phases.csv`; empty where the kind has none.
    pub phases: DataFrame,
    /// `aborts.csv`; empty where the kind has none.
    pub aborts: DataFrame,
    /// What could not be read as it should.
    pub notes: Vec<String>,
}

impl Results {
    /// Points that were measured while the scheduler took CPUs away from worker threads; none where time is virtual.
    pub fn busy_points(&self) -> usize {
        let busy = crate::frame::words(&self.points, "busy").unwrap_or_default();
        busy.iter().filter(|word| *word == "yes").count()
    }
}

use Cell::{Count, Number, Words};

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
    ("rate_per_s", Number),
    ("latency_min_ns", Number),
    ("latency_p50_ns", Number),
    ("latency_p90_ns", Number),
    ("latency_p99_ns", Number),
    ("latency_p999_ns", Number),
    ("latency_mean_ns", Number),
    ("latency_max_ns", Number),
    ("goodput_gb_per_s", Number),
    ("doorbells_per_op", Number),
    ("instructions_per_op", Number),
    ("preemptions_per_cpu_s", Number),
    ("busy", Words),
    ("servers", Count),
    ("addresses", Count),
    ("warm_up_ns", Number),
    ("measured_ns", Number),
    ("batches", Count),
    ("rate_ci_relative", Number),
    ("converged", Words),
];

const STUDY: Columns = &[
    ("point", Count),
    ("phase", Words),
    ("variant", Words),
    ("coroutines", Count),
    ("payload_bytes", Count),
    ("skew", Number),
    ("records", Count),
    ("think_us", Number),
    ("ops", Count),
    ("rate_per_s", Number),
    ("latency_p50_ns", Number),
    ("latency_p90_ns", Number),
    ("latency_p99_ns", Number),
    ("latency_p999_ns", Number),
    ("verbs_per_op", Number),
    ("round_trips_per_op", Number),
    ("doorbells_per_op", Number),
    ("preemptions_per_cpu_s", Number),
    ("busy", Words),
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
    ("elapsed_ns", Number),
    ("committed_per_s", Number),
    ("aborted_per_s", Number),
    ("rolled_back_per_s", Number),
    ("aborted_share", Number),
    ("latency_mean_ns", Number),
    ("latency_p50_ns", Number),
    ("latency_p90_ns", Number),
    ("latency_p99_ns", Number),
    ("latency_p999_ns", Number),
    ("verbs_per_committed", Number),
    ("round_trips_per_committed", Number),
    ("doorbells_per_committed", Number),
    ("cpu_ns_per_committed", Number),
    ("messages_per_machine_per_s", Number),
    ("predicted_per_s", Number),
    ("predicted_mean_ns", Number),
    ("isolation_level", Words),
    ("isolation_verdict", Words),
    ("checks_failed", Words),
    ("events", Count),
    ("virtual_ns", Number),
    ("preemptions_per_cpu_s", Number),
    ("busy", Words),
    ("warm_up_ns", Number),
    ("batches", Count),
    ("rate_ci_relative", Number),
    ("converged", Words),
];

const TUNE: Columns = &[
    ("point", Count),
    ("protocol", Words),
    ("plan", Words),
    ("origin", Words),
    ("description", Words),
    ("steps", Words),
    ("predicted_per_s", Number),
    ("predicted_mean_ns", Number),
    ("bottleneck", Words),
    ("got_per_s", Number),
    ("got_mean_ns", Number),
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
    ("queue_pairs_per_node", Number),
    ("optimizations", Words),
    ("ops", Count),
    ("rate_per_s", Number),
    ("rate_per_server_per_s", Number),
    ("latency_min_ns", Number),
    ("latency_p50_ns", Number),
    ("latency_p90_ns", Number),
    ("latency_p99_ns", Number),
    ("latency_p999_ns", Number),
    ("latency_mean_ns", Number),
    ("latency_max_ns", Number),
    ("goodput_gb_per_s", Number),
    ("doorbells_per_op", Number),
    ("events", Count),
    ("virtual_ns", Number),
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
    ("plans", Count),
    ("runs", Count),
    ("tuned", Words),
    ("best", Words),
    ("bottleneck", Words),
    ("predicted_per_s", Number),
    ("got_per_s", Number),
    ("prediction_error", Number),
    ("predicted_aborted_share", Number),
    ("aborted_share", Number),
    ("best_predicted_per_s", Number),
    ("best_per_s", Number),
    ("regret", Number),
    ("regret_error", Number),
    ("verified", Words),
    ("verified_per_s", Number),
    ("verified_regret", Number),
    ("verified_regret_error", Number),
    ("events", Count),
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
    ("caveat", Words),
    ("contradicts", Words),
];

/// Columns of `phases.csv`.
pub const PHASES: Columns = &[
    ("point", Count),
    ("phase", Words),
    ("latency_p50_ns", Number),
    ("latency_p99_ns", Number),
    ("verbs", Number),
    ("round_trips", Number),
    ("doorbells", Number),
];

/// Columns of `aborts.csv`.
pub const ABORTS: Columns = &[("point", Count), ("class", Words), ("reason", Words), ("count", Count)];

/// Columns of `points.csv` by kind, as `primitives::measure` writes them (a test compares); none for an unknown kind.
pub fn point_columns(kind: &str) -> Columns {
    match kind {
        "characterize" => CHARACTERIZE,
        "study" => STUDY,
        "run" | "experiment" => RUN,
        "tune" => TUNE,
        "primitive" => PRIMITIVE,
        "regret" => REGRET,
        "scoreboard" => SCOREBOARD,
        _ => &[],
    }
}

/// The directories that hold results among `given`: a directory itself, or those directly below it, sorted.
pub fn find(given: &Path) -> Result<Vec<PathBuf>, LoadError> {
    let fail = |source| LoadError::Unreadable { path: given.to_owned(), source };
    let mut below = Vec::new();
    for entry in std::fs::read_dir(given).map_err(fail)? {
        let path = entry.map_err(fail)?.path();
        if path.join("run.json").is_file() {
            below.push(path);
        }
    }
    if given.join("run.json").exists() {
        return Ok(vec![given.to_owned()]);
    }
    if given.join("points.csv").exists() {
        return Err(LoadError::NoRecord { path: given.to_owned() });
    }
    if below.is_empty() {
        return Err(LoadError::NoResults { path: given.to_owned() });
    }
    below.sort();
    Ok(below)
}

/// How well the rates are known, in one line; nothing if no point says.
fn precision(points: &DataFrame) -> Option<String> {
    let widths: Vec<f64> = floats(points, "rate_ci_relative").ok()?.into_iter().flatten().collect();
    let widest = widths.iter().copied().fold(f64::NAN, f64::max);
    if widths.is_empty() {
        return None;
    }
    let rates = if points.height() == 1 { "the rate is" } else { "rates are" };
    let within = format!("{rates} known within ± {:.2} % (95 % confidence, batch means)", 100.0 * widest);
    let wide = words(points, "converged").ok()?.iter().filter(|w| *w == "no").count();
    Some(match wide {
        0 => within,
        _ => format!("{within}; {wide} of {} did not become as precise as asked for", points.height()),
    })
}

/// Reads one result directory.
pub fn read(dir: &Path) -> Result<Results, LoadError> {
    let record = Record::read(&dir.join("run.json"))?;
    let mut notes = Vec::new();
    let columns = point_columns(&record.kind);
    if columns.is_empty() {
        notes.push(format!("its kind is {:?}, which this version cannot draw", record.kind));
    }
    let points = table::read(&dir.join("points.csv"), "points.csv", columns)?;
    notes.extend(points.notes);
    // Only `run` promises its side tables; elsewhere they are read if there.
    let mut side = |name: &str, columns: Columns| -> Result<DataFrame, LoadError> {
        let path = dir.join(name);
        let promised = record.kind == "run";
        match table::read(&path, name, columns) {
            Ok(table) => {
                notes.extend(if promised || path.exists() { table.notes } else { Vec::new() });
                Ok(table.frame)
            }
            // The points are still good: say what is wrong and go on without the side table.
            Err(error @ LoadError::Csv { .. }) => {
                notes.push(format!("left out: {error}"));
                Ok(table::empty(columns))
            }
            Err(error) => Err(error),
        }
    };
    let phases = side("phases.csv", PHASES)?;
    let aborts = side("aborts.csv", ABORTS)?;
    if points.frame.height() == 0 {
        notes.push("there are no points to draw".to_owned());
    } else if record.points_done != 0 && record.points_done != points.frame.height() as u64 {
        notes.push(format!(
            "run.json counts {} finished points, points.csv has {}",
            record.points_done,
            points.frame.height()
        ));
    }
    notes.extend(precision(&points.frame));
    let label =
        dir.file_name().map_or_else(|| dir.display().to_string(), |n| n.to_string_lossy().into_owned());
    Ok(Results { label, path: dir.to_owned(), record, points: points.frame, phases, aborts, notes })
}
