//! Groups of flags that several commands share.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::path::PathBuf;

use clap::Args;

use crate::error::CliError;
use crate::listed::{self, listed};
use crate::output::JsonTarget;
use crate::spec::values::{self, Setting};
use crate::spec::{FabricChoice, PlanChoice, RunSpec, Span, limits};

/// Where results go.
#[derive(Args, Clone, Debug, Default)]
pub struct OutputArgs {
    /// Write the result as JSON to a new file, or to stdout with `-` (then nothing else is printed there).
    #[arg(long, value_name = "FILE|-", value_parser = values::json_target)]
    pub json: Option<JsonTarget>,
    /// Keep results in this directory; one that holds another run is refused, the same run is resumed. Usually NAME below
    /// doorbell-out or, where that holds another run, NAME-2, NAME-3 and so on.
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
}

/// Where a command's nodes are all in one process: `--cluster` is understood, and refused with what works instead.
#[derive(Args, Clone, Debug, Default)]
pub struct OneProcessArgs {
    /// Not here.
    #[arg(long, value_name = "FILE", hide = true)]
    pub cluster: Option<PathBuf>,
}

impl OneProcessArgs {
    /// Refuses a cluster of processes.
    ///
    /// # Errors
    /// Exit code 2, with the way round.
    pub fn check(&self, command: &str, instead: &str) -> Result<(), CliError> {
        match &self.cluster {
            None => Ok(()),
            Some(_) => Err(CliError::usage(format!(
                "`doorbell {command}` runs its nodes in one process; --cluster goes with `run`, `characterize` and `experiment`"
            ))
            .hint(instead)),
        }
    }
}

/// Refuses a value that a flag for several names twice: whoever did meant another one.
///
/// # Errors
/// Exit code 2 with the value.
pub fn each_once<T: PartialEq + Display>(flag: &str, values: &[T]) -> Result<(), CliError> {
    match (1..values.len()).find(|&at| values[..at].contains(&values[at])) {
        Some(at) => Err(CliError::usage(format!("{flag} names {} twice", values[at])).hint("name each once")),
        None => Ok(()),
    }
}

/// The fabric.
#[derive(Args, Clone, Debug)]
pub struct FabricArgs {
    /// loopback, sim:PROFILE (shipped name or file), verbs:DEVICE or tcp.
    #[arg(long, value_name = "FABRIC", default_value = "loopback", value_parser = listed(values::fabric, listed::fabrics))]
    pub fabric: FabricChoice,
}

/// How large.
#[derive(Args, Clone, Debug)]
pub struct ShapeArgs {
    /// Nodes of the cluster; usually 3.
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = values::nodes)]
    pub nodes: Option<u32>,
    /// Worker threads per node.
    #[arg(long, value_name = "N", allow_negative_numbers = true, default_value_t = limits::THREADS.usual, value_parser = values::threads)]
    pub threads: u32,
    /// Coroutines per thread; usually what a plan file says, else 8.
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = values::coroutines)]
    pub coroutines: Option<u32>,
}

impl ShapeArgs {
    /// Nodes of the cluster: as asked for, or as usual.
    pub fn nodes(&self) -> u32 {
        self.nodes.unwrap_or(limits::NODES.usual)
    }
}

/// What to execute.
#[derive(Args, Clone, Debug)]
pub struct WorkloadArgs {
    /// Workload.
    #[arg(long, value_name = "NAME", default_value = "smallbank", value_parser = listed(values::workload, listed::workloads))]
    pub workload: String,
    /// A setting of the workload; may be repeated. `--set help` lists them, with default and range.
    #[arg(long, value_name = "KEY=VALUE|help", value_parser = values::setting)]
    pub set: Vec<Setting>,
    /// Copies of each record, the primary included; 1 switches replication off.
    #[arg(long, value_name = "N", allow_negative_numbers = true, default_value_t = limits::REPLICAS.usual, value_parser = values::replicas)]
    pub replicas: u32,
}

impl WorkloadArgs {
    /// Whether the settings are to be listed, instead of anything being done.
    pub fn asks_for_help(&self) -> bool {
        self.set.contains(&Setting::Help)
    }

    /// Refuses a key that is set twice.
    ///
    /// # Errors
    /// Exit code 2 with the key.
    pub fn check(&self) -> Result<(), CliError> {
        let mut seen = std::collections::BTreeSet::new();
        for setting in &self.set {
            if let Setting::Value(key, _) = setting
                && !seen.insert(key)
            {
                return Err(CliError::usage(format!("--set {key} is there twice")));
            }
        }
        Ok(())
    }

    /// The settings given.
    fn settings(&self) -> BTreeMap<String, serde_json::Value> {
        let given = self.set.iter().filter_map(|setting| match setting {
            Setting::Value(key, value) => Some((key.clone(), value.clone())),
            Setting::Help => None,
        });
        given.collect()
    }
}

/// How long, and from which draw.
#[derive(Args, Clone, Debug)]
pub struct TimeArgs {
    /// Measured time, with unit (100ms, 2s); virtual on sim. Usually 1s, on sim 2ms; the shortest, where a precision is asked
    /// for.
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, value_parser = values::span)]
    pub duration: Option<Span>,
    /// Seed of every random draw.
    #[arg(long, value_name = "N", allow_negative_numbers = true, default_value_t = 1, value_parser = values::seed)]
    pub seed: u64,
}

/// What to run and where: the part of a [`RunSpec`] that `run` and `tune` share.
#[derive(Args, Clone, Debug)]
pub struct SpecArgs {
    #[allow(missing_docs)]
    #[command(flatten)]
    pub fabric: FabricArgs,
    #[allow(missing_docs)]
    #[command(flatten)]
    pub shape: ShapeArgs,
    #[allow(missing_docs)]
    #[command(flatten)]
    pub workload: WorkloadArgs,
    #[allow(missing_docs)]
    #[command(flatten)]
    pub time: TimeArgs,
}

impl SpecArgs {
    /// What the flags ask for, in the form that experiment files use.
    pub fn spec(&self, protocol: &str, plan: PlanChoice) -> RunSpec {
        RunSpec {
            fabric: self.fabric.fabric.clone(),
            workload: self.workload.workload.clone(),
            set: self.workload.settings(),
            protocol: protocol.to_owned(),
            plan,
            nodes: self.shape.nodes(),
            threads: self.shape.threads,
            coroutines: self.shape.coroutines,
            replicas: self.workload.replicas,
            duration: self.time.duration_on(&self.fabric.fabric),
            seed: self.time.seed,
            ..RunSpec::default()
        }
    }
}

impl TimeArgs {
    /// The measured time: as asked for, or what is usual on the fabric.
    pub fn duration_on(&self, fabric: &FabricChoice) -> Span {
        self.duration.unwrap_or_else(|| limits::usual_duration(fabric))
    }
}

/// How well the throughput is to be known.
#[derive(Args, Clone, Debug, Default)]
pub struct PrecisionArgs {
    /// Measure until the 95 % confidence interval of the rate is within this share to either side; usually 1%, unless a
    /// --duration is given.
    #[arg(long, value_name = "SHARE", allow_negative_numbers = true, value_parser = values::precision)]
    pub precision: Option<f64>,
    /// Longest run for a precision, warm-up included; usually 5 durations, on sim 16.
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, value_parser = values::span)]
    pub max_duration: Option<Span>,
}
