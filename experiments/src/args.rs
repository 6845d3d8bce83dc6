//! The command line.
//!
//! Flags are parsed into checked values here, so a command starts with values that make sense one by one.
//! Whether they make sense together is for [`crate::spec::RunSpec`], which experiment files share.

mod flags;

pub use flags::{
    FabricArgs, OneProcessArgs, OutputArgs, PrecisionArgs, ShapeArgs, SpecArgs, WorkloadArgs, each_once,
};

use std::ffi::OsString;
use std::path::PathBuf;

use clap::error::ErrorKind;
use clap::{ArgAction, Args, Parser, Subcommand};
use clap_complete::Shell;
use engine::verify::Level;
use engine::verify::exchange::Format;
use phases::model::Objective;
use primitives::measure::Shard;

use crate::error::CliError;
use crate::listed::{self, item, listed};
use crate::names::STUDY_PHASES;
use crate::output::JsonTarget;
use crate::spec::values::{self, HostPort};
use crate::spec::{PlanChoice, ProfileChoice, RunSpec, Span, limits};

const AFTER_HELP: &str = "\
Exit codes:
    0  done
    1  it ran, and a check failed
    2  bad flags, spec or files
    3  the machine lacks something
  130  ended by Ctrl-C, SIGTERM or SIGHUP; measured points are kept

Data goes to stdout, talk to stderr; NO_COLOR is honoured.";

const STUDY: &str = "\
Latencies, round trips and doorbells are of the phase alone. Rates are of whole cycles, with what the phase needs before \
and after it, untimed: validation a fetch and an unlock, commit a fetch and a lock. Rates of two phases do not compare.";

const RUN_OUT: &str = "Keep results in this directory; one that holds another run is refused, the same run is resumed. Usually nothing is kept";
const QUICKSTART_OUT: &str = "Keep results and the page below this directory, usually doorbell-out; parts that are there are resumed. Where \
                              another run has a part's NAME it is refused or, if no directory was named, NAME-2, NAME-3 and so on is taken";
const REPRODUCE_OUT: &str = "Keep results below this directory, usually doorbell-out/reproduce: one for each experiment, by its name, \
                             so that what was measured is not measured again. One that holds another run is refused";
/// The tuner looks for the count.
const TUNE_COROUTINES: &str = "Plans with so many coroutines per thread alone; usually each plan with every count from 1 to 32 \
                               that the search knows";
/// A study follows no plan file, and tries fewer, too.
const STUDY_COROUTINES: &str = "Most coroutines per thread, of 1, 2, 4 and so on; usually 8";

/// A study has no `--precision`, and usual times of its own.
const STUDY_DURATION: &str =
    "Measured time per point, with unit (100ms, 2s); virtual on sim. Usually 200ms, on sim 200us";

const EXPERIMENT: &str = "\
A file, whole; only the question is needed, and other keys are as the flags of `run`:

    question: Which primitive should lock when few records are hot?
    fabric: sim:cx4-edr          # as --fabric
    workload: smallbank
    set:                         # as --set; `doorbell run --workload NAME --set help` lists them
      hot_accounts_share: 0.04
    protocol: occ
    nodes: 3
    duration: 2ms                # exactly so long (FORMAT.md); with `precision: 1%` at least
    seed: 1
    grid:                        # every combination is a point; any key above, as a list
      plan: [one-sided, two-sided, drtm-h]
      coroutines: [1, 8]
    figures:                     # `y` is a column of points.csv
      - {title: Throughput, x: coroutines, y: committed_per_s, by: plan}

`kind: primitive` measures requests alone; keys of its own take the place of workload, protocol,
plan and replicas:

    question: How many READs and calls does one machine serve?
    kind: primitive
    fabric: sim:cx4-edr
    nodes: 4
    threads: 8
    outstanding: 4               # also doorbell_batch, queue_pairs, addresses and more
    servers: 0                   # so many nodes are asked by all others; 0: all ask all
    duration: 200us
    grid:
      verb: [read, rpc]
      payload: [8, 512]

`kind: regret` measures how good the tuner is, over combinations that are drawn, or finds the best
of all plans of the points that a file gives. experiments/FORMAT.md has all keys.";

/// For each phase of a distributed transaction, which RDMA primitive should carry it?
///
/// Without a command: the same as `doorbell quickstart`, whose options may be given too.
#[derive(Debug, Parser)]
#[command(name = "doorbell", version = crate::BUILD)]
#[command(after_help = AFTER_HELP, max_term_width = 100, propagate_version = true)]
pub struct Cli {
    /// Say more on stderr; twice for details.
    #[arg(short, long, global = true, display_order = 900, action = ArgAction::Count, conflicts_with = "quiet")]
    pub verbose: u8,
    /// Say only errors on stderr.
    #[arg(short, long, global = true, display_order = 901)]
    pub quiet: bool,
    /// What to do.
    #[command(subcommand)]
    pub command: Option<Command>,
}

impl Cli {
    /// From the words of a command line, the program's name first. What is given without a command is `quickstart`'s, where that has it.
    ///
    /// # Errors
    /// What clap says of it; help and version are errors, too.
    pub fn read(words: impl IntoIterator<Item = OsString>) -> Result<Cli, clap::Error> {
        let mut words: Vec<OsString> = words.into_iter().collect();
        let unknown = match Cli::try_parse_from(&words) {
            Err(error) if error.kind() == ErrorKind::UnknownArgument => error,
            done => return done,
        };
        words.insert(words.len().min(1), "quickstart".into());
        match Cli::try_parse_from(&words) {
            Err(error) if error.kind() == ErrorKind::UnknownArgument => Err(unknown),
            done => done,
        }
    }
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Characterize, tune, run and report on this machine, no hardware needed, in about a minute.
    #[command(mut_arg("out", |arg| arg.help(QUICKSTART_OUT)))]
    Quickstart(QuickstartArgs),
    /// Fabrics that work here, RDMA devices found, NIC profiles shipped; what is missing, how to get it.
    Devices(DevicesArgs),
    /// Sweep the primitives of one fabric: results and a NIC profile file.
    Characterize(CharacterizeArgs),
    /// Fit a profile's free numbers to published claims or to a characterization.
    Calibrate(CalibrateArgs),
    /// Drive one transaction phase, alone, in each variant.
    #[command(after_help = STUDY)]
    #[command(mut_arg("coroutines", |arg| arg.help(STUDY_COROUTINES)))]
    #[command(mut_arg("duration", |arg| arg.help(STUDY_DURATION)))]
    Study(StudyArgs),
    /// From profile, workload and protocol to a plan file, with prediction and reasons.
    #[command(mut_arg("coroutines", |arg| arg.help(TUNE_COROUTINES)))]
    Tune(TuneArgs),
    /// One workload, protocol, plan and fabric: throughput, latency, aborts, cost per phase.
    #[command(mut_arg("out", |arg| arg.help(RUN_OUT)))]
    Run(RunArgs),
    /// One member of a cluster of processes (tcp or verbs), driven by node 0: `doorbell run`, `characterize` or `experiment` with --cluster.
    Node(NodeArgs),
    /// Measure the grid of an experiment file (YAML); run again to resume.
    #[command(after_help = EXPERIMENT)]
    Experiment(ExperimentArgs),
    /// Run the experiments behind the papers' claims and print the scoreboard; run again to resume.
    #[command(mut_arg("out", |arg| arg.help(REPRODUCE_OUT)))]
    Reproduce(ReproduceArgs),
    /// Turn result directories into one self-contained HTML page, with SVG, PNG and CSV.
    Report(ReportArgs),
    /// Check the isolation of a recorded history.
    Check(CheckArgs),
    /// Print a completion script for a shell.
    Completions(CompletionsArgs),
    /// Print the manual page, of one command if named.
    Man(ManArgs),
}

impl Command {
    /// Its name on the command line.
    pub fn name(&self) -> &'static str {
        match self {
            Command::Quickstart(_) => "quickstart",
            Command::Devices(_) => "devices",
            Command::Characterize(_) => "characterize",
            Command::Calibrate(_) => "calibrate",
            Command::Study(_) => "study",
            Command::Tune(_) => "tune",
            Command::Run(_) => "run",
            Command::Node(_) => "node",
            Command::Experiment(_) => "experiment",
            Command::Reproduce(_) => "reproduce",
            Command::Report(_) => "report",
            Command::Check(_) => "check",
            Command::Completions(_) => "completions",
            Command::Man(_) => "man",
        }
    }
}

/// `doorbell quickstart`.
#[derive(Args, Clone, Debug, Default)]
pub struct QuickstartArgs {
    #[allow(missing_docs)]
    #[command(flatten)]
    pub output: OutputArgs,
    /// Seed of every random draw.
    #[arg(long, value_name = "N", allow_negative_numbers = true, default_value_t = 1, value_parser = values::seed)]
    pub seed: u64,
}

/// `doorbell devices`.
#[derive(Args, Clone, Debug)]
pub struct DevicesArgs {
    /// Exchange one round of all verbs, datagrams and unreliable connections included, with a host that listens; HOST, HOST:PORT or `[IPv6]:PORT`.
    #[arg(long, value_name = "PEER", requires = "code", conflicts_with = "listen", value_parser = values::peer)]
    pub check: Option<HostPort>,
    /// Wait for another host's `--check`; on all addresses and port 18514 unless told otherwise.
    #[arg(long, value_name = "ADDRESS:PORT", num_args = 0..=1, value_parser = values::address)]
    pub listen: Option<Option<HostPort>>,
    /// The code that `--listen` prints, or is to use; `-` reads it from stdin, since other users of this host see what a command was given.
    #[arg(long, value_name = "CODE")]
    pub code: Option<String>,
    /// The device to listen or check with, as `verbs:` takes it; the first active one unless named.
    #[arg(long, value_name = "DEVICE")]
    pub device: Option<String>,
    /// The numbers of one NIC profile instead, a shipped name or a file: what each is, its source, and the bounds of a fit.
    #[arg(long, value_name = "PROFILE", conflicts_with_all = ["check", "listen", "code", "device"])]
    #[arg(value_parser = listed(values::profile, listed::profiles))]
    pub profile: Option<ProfileChoice>,
    /// Write the list as JSON to a new file, or to stdout with `-`.
    #[arg(long, value_name = "FILE|-", value_parser = values::json_target)]
    pub json: Option<JsonTarget>,
}

/// `doorbell characterize`.
#[derive(Args, Clone, Debug)]
pub struct CharacterizeArgs {
    #[allow(missing_docs)]
    #[command(flatten)]
    pub fabric: FabricArgs,
    /// Only these benchmarks, joined by commas. All of them if none is named.
    #[arg(long, value_name = "NAME,…", value_delimiter = ',', value_parser = item(values::benchmark, listed::benchmarks))]
    pub bench: Vec<String>,
    /// Fewer values of each sweep, shorter points: for a first look.
    #[arg(long)]
    pub quick: bool,
    /// Nodes; usually 2, on sim 4.
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = values::nodes)]
    pub nodes: Option<u32>,
    /// Threads per node; usually 1, on sim 8.
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = values::threads)]
    pub threads: Option<u32>,
    /// Coroutines per thread; usually 8, on sim 16.
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = values::coroutines)]
    pub coroutines: Option<u32>,
    /// Measured time per point, with unit (100ms, 2s); virtual on sim. Usually 200ms; on sim 400us, longer for slow
    /// profiles; shorter with --quick. With a precision, the shortest; given alone, exactly so long. If not given, points in which too little ended take longer.
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, value_parser = values::span)]
    pub duration: Option<Span>,
    /// Measure each point until the 95 % confidence interval of its rate is within this share to either side, at most
    /// for 16 durations. Usually 1%, but for a --duration that is given, --quick and --cluster, which have fixed times.
    #[arg(long, value_name = "SHARE", allow_negative_numbers = true, value_parser = values::precision)]
    pub precision: Option<f64>,
    /// Seed of every random draw.
    #[arg(long, value_name = "N", allow_negative_numbers = true, default_value_t = 1, value_parser = values::seed)]
    pub seed: u64,
    /// Points measured at a time; cores on sim, 1 where time is real.
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = values::jobs)]
    pub jobs: Option<usize>,
    /// Measure over the processes of this cluster file, as its node 0; it says how many nodes there are.
    #[arg(long, value_name = "FILE")]
    pub cluster: Option<PathBuf>,
    /// With --cluster: how long to wait for the other nodes.
    #[arg(long, requires = "cluster", value_name = "TIME", default_value = "60s", allow_hyphen_values = true, value_parser = values::span)]
    pub join_within: Span,
    #[allow(missing_docs)]
    #[command(flatten)]
    pub output: OutputArgs,
}

/// `doorbell calibrate`.
#[derive(Args, Clone, Debug)]
pub struct CalibrateArgs {
    /// The profile to start from, a shipped name or a file; numbers with `free` bounds are fitted. With --from, the one that
    /// the characterization left if not given.
    #[arg(long, value_name = "PROFILE", value_parser = listed(values::profile, listed::profiles))]
    pub profile: Option<ProfileChoice>,
    /// Fit to this characterization; to the calibrate claims of the profile if not given.
    #[arg(long, value_name = "RESULTS_DIR")]
    pub from: Option<PathBuf>,
    /// Fit only these of the free numbers, nic.atomic_unit for example; all if not given.
    #[arg(long, value_name = "NUMBER,…", value_delimiter = ',', value_parser = item(values::number_name, listed::unnamed))]
    pub only: Vec<String>,
    /// Most rounds of the search; each simulates the targets about once per free number.
    #[arg(long, value_name = "N", allow_negative_numbers = true, default_value_t = 6, value_parser = values::rounds)]
    pub rounds: u32,
    /// Points that are simulated at a time; one per core if not given. What is fitted does not depend on it.
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = values::jobs)]
    pub jobs: Option<usize>,
    /// The profile file to write, which must be new; PROFILE.calibrated.profile.yaml if not given.
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Write numbers and residuals as JSON to a new file, or to stdout with `-` (then nothing else is printed there).
    #[arg(long, value_name = "FILE|-", value_parser = values::json_target)]
    pub json: Option<JsonTarget>,
}

/// `doorbell study`.
#[derive(Args, Clone, Debug)]
pub struct StudyArgs {
    #[allow(missing_docs)]
    #[command(flatten)]
    pub one_process: OneProcessArgs,
    /// The phase.
    #[arg(value_name = "PHASE", value_parser = clap::builder::PossibleValuesParser::new(STUDY_PHASES))]
    pub phase: String,
    #[allow(missing_docs)]
    #[command(flatten)]
    pub fabric: FabricArgs,
    #[allow(missing_docs)]
    #[command(flatten)]
    pub shape: ShapeArgs,
    /// Measured time per point, with unit (100ms, 2s); virtual on sim. Usually as long as it takes to know a rate within 2 %, warm-up included:
    /// 200ms to 800ms, on sim 200us to 80ms.
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, value_parser = values::span)]
    pub duration: Option<Span>,
    /// Seed of every random draw.
    #[arg(long, value_name = "N", allow_negative_numbers = true, default_value_t = 1, value_parser = values::seed)]
    pub seed: u64,
    /// Payload of a record in bytes, a multiple of 8; several, joined by commas, are compared.
    #[arg(long, value_name = "BYTES,…", value_delimiter = ',', allow_negative_numbers = true, default_value = "16", value_parser = item(values::payload, listed::unnamed))]
    pub payload: Vec<u32>,
    /// Skew of the keys, the exponent of Zipf's law: 0 is uniform, 0.99 YCSB's; several are compared.
    #[arg(long, value_name = "EXPONENT,…", value_delimiter = ',', allow_negative_numbers = true, default_value = "0", value_parser = item(values::skew, listed::unnamed))]
    pub skew: Vec<f64>,
    /// Records of an operation; several are compared.
    #[arg(long, value_name = "N,…", value_delimiter = ',', allow_negative_numbers = true, default_value = "4", value_parser = item(values::records, listed::unnamed))]
    pub records: Vec<u32>,
    /// CPU load: what a core computes for each operation, 2us for example, while requests to it wait; several are compared.
    #[arg(long, value_name = "TIME,…", value_delimiter = ',', allow_hyphen_values = true, default_value = "0us", value_parser = item(values::think, listed::unnamed))]
    pub think: Vec<Span>,
    /// Points measured at a time; cores on sim, 1 where time is real.
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = values::jobs)]
    pub jobs: Option<usize>,
    #[allow(missing_docs)]
    #[command(flatten)]
    pub output: OutputArgs,
}

/// `doorbell tune`.
#[derive(Args, Clone, Debug)]
pub struct TuneArgs {
    #[allow(missing_docs)]
    #[command(flatten)]
    pub one_process: OneProcessArgs,
    #[allow(missing_docs)]
    #[command(flatten)]
    pub what: SpecArgs,
    /// Concurrency control protocol; several, joined by commas, or `all` choose the best of them. calvin takes settings, as in
    /// calvin:batch=8,epoch_us=50.
    #[arg(long, value_name = "NAME,…|all", default_value = "occ", value_delimiter = ',', value_parser = item(values::tuned_protocol, listed::modelled))]
    pub protocol: Vec<String>,
    /// Aim at the mean latency that is foretold: at the most throughput whose mean is this at most (20us), or at the least mean
    /// there is; usually the most throughput. Where no plan keeps the mean, the quickest is chosen, and that is said.
    #[arg(long, value_name = "TIME|least", allow_hyphen_values = true, value_parser = listed(values::latency, listed::least))]
    pub latency: Option<Objective>,
    /// Location cache of each node in bytes, a word a record; usually plans are searched with 16 MiB, and the budget that the chosen one
    /// needs is told.
    #[arg(long, value_name = "BYTES", value_parser = values::cache_bytes)]
    pub cache_bytes: Option<u32>,
    /// Run a dozen candidates and the presets too, print the regret, and leave the fastest as verified.plan.yaml; on sim a dozen more
    /// that what those got suggests, and the choice and the three fastest of all twice more, with other seeds; where time is real, all five times in turns, for a fifth of the duration
    /// each. Unless --coroutines says how many, the fastest then runs with nine counts from 1 to 32, and the file has the count that serves it
    /// best: the quickest of those within 1 % of the most, or not told apart from it. Not with --latency.
    #[arg(long)]
    pub verify: bool,
    /// Price plans with this profile, a shipped name or a file; usually the simulated one, or what characterizing the fabric
    /// leaves.
    #[arg(long, value_name = "NAME|FILE", value_parser = listed(values::profile, listed::profiles))]
    pub profile: Option<ProfileChoice>,
    /// Rivals run at a time with --verify; cores on sim, 1 where time is real.
    #[arg(long, requires = "verify", value_name = "N", allow_negative_numbers = true, value_parser = values::jobs)]
    pub jobs: Option<usize>,
    #[allow(missing_docs)]
    #[command(flatten)]
    pub output: OutputArgs,
}

/// `doorbell run`.
#[derive(Args, Clone, Debug)]
pub struct RunArgs {
    #[allow(missing_docs)]
    #[command(flatten)]
    pub what: SpecArgs,
    /// Concurrency control protocol; calvin takes settings, as in calvin:batch=8,epoch_us=50.
    #[arg(long, value_name = "NAME", default_value = "occ", value_parser = listed(values::protocol, listed::protocols))]
    pub protocol: String,
    /// A plan file, a preset's name, or `tuned`; if not given drtm-h or, where that cannot run, the first preset that can.
    #[arg(long, value_name = "FILE|PRESET|tuned", value_parser = listed(values::plan, listed::plans))]
    pub plan: Option<PlanChoice>,
    /// Start with empty location caches; usually they know what a long run would have taught them.
    #[arg(long)]
    pub cold_cache: bool,
    /// Location cache of each node in bytes, a word a record; usually 16 MiB, with `--plan tuned` what the tuner
    /// chooses for the plan.
    #[arg(long, value_name = "BYTES", value_parser = values::cache_bytes)]
    pub cache_bytes: Option<u32>,
    /// Reserve of each copy of a partition in bytes, which its tables share once they hold more records than they declare; usually an eighth of
    /// those tables that grow, 0 is none.
    #[arg(long, value_name = "BYTES", value_parser = values::reserve_bytes)]
    pub reserve_bytes: Option<u64>,
    /// Make each node's clock, from which waitdie and mvcc take timestamps, wrong by up to so much, 50us for example, ahead or behind as
    /// drawn from the seed; usually not at all. Measured times stay true.
    #[arg(long, value_name = "TIME", default_value = "0s", hide_default_value = true, allow_hyphen_values = true, value_parser = values::clock_skew)]
    pub clock_skew: Span,
    #[allow(missing_docs)]
    #[command(flatten)]
    pub precision: PrecisionArgs,
    /// Do not record and check the history: a few per cent faster.
    #[arg(long, conflicts_with = "history")]
    pub no_check: bool,
    /// Keep the recorded history in a new file, for `doorbell check`.
    #[arg(long, value_name = "FILE")]
    pub history: Option<PathBuf>,
    /// Run over the processes of this cluster file, as its node 0; it says how many nodes there are.
    #[arg(long, value_name = "FILE")]
    pub cluster: Option<PathBuf>,
    /// With --cluster: how long to wait for the other nodes.
    #[arg(long, requires = "cluster", value_name = "TIME", default_value = "60s", allow_hyphen_values = true, value_parser = values::span)]
    pub join_within: Span,
    #[allow(missing_docs)]
    #[command(flatten)]
    pub output: OutputArgs,
}

impl RunArgs {
    /// What the flags ask for, in the form that experiment files use.
    pub fn spec(&self) -> RunSpec {
        let plan = self.plan.clone().unwrap_or(PlanChoice::Usual);
        let spec = self.what.spec(&self.protocol, plan);
        let precision = match self.what.time.duration {
            None => self.precision.precision.or(Some(limits::USUAL_PRECISION)),
            Some(_) => self.precision.precision,
        };
        RunSpec {
            warm_cache: !self.cold_cache,
            cache_bytes: self.cache_bytes,
            reserve_bytes: self.reserve_bytes,
            clock_skew: self.clock_skew,
            precision,
            max_duration: self.precision.max_duration,
            ..spec
        }
    }
}

impl TuneArgs {
    /// The protocols to choose from, with those that `all` stands for; [`each_once`] says whether one is named beside it.
    pub fn protocols(&self) -> Vec<String> {
        let mut all: Vec<String> = Vec::new();
        for name in &self.protocol {
            match all.last_mut() {
                _ if name == values::ALL => {
                    all.extend(phases::model::MODELLED.iter().map(|&name| name.to_owned()))
                }
                Some(before) if values::is_setting(name) => *before = format!("{before},{name}"),
                _ => all.push(name.clone()),
            }
        }
        all
    }

    /// What the choice is to be best at.
    ///
    /// # Errors
    /// Exit code 2 where it would have to be judged by what it is not chosen for.
    pub fn objective(&self) -> Result<Objective, CliError> {
        match self.latency {
            Some(_) if self.verify => Err(CliError::usage(
                "--verify judges a choice by its throughput, and --latency chooses by a mean latency: what was lost of that \
                 is not known to a few per cent, as a rate is",
            )
            .hint("leave --verify out, and hold `doorbell run --plan DIR/tuned.plan.yaml` against the other plans in DIR")),
            latency => Ok(latency.unwrap_or(Objective::Throughput)),
        }
    }

    /// What the flags ask for, as a run without a plan. Rivals are told apart by a few per cent, in equal times.
    pub fn spec(&self) -> RunSpec {
        let spec = self.what.spec(&self.protocols().join(","), PlanChoice::Tuned);
        RunSpec { cache_bytes: self.cache_bytes, ..spec }
    }
}

/// `doorbell node`.
#[derive(Args, Clone, Debug)]
pub struct NodeArgs {
    /// The cluster file, the same on every host.
    #[arg(long, value_name = "FILE")]
    pub cluster: PathBuf,
    /// Which of its nodes this is; node 0 is `doorbell run --cluster`.
    #[arg(long, value_name = "N")]
    pub id: u16,
    /// Keep this node's share of the results here; usually in a new directory under doorbell-out.
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// How long to wait for node 0.
    #[arg(long, value_name = "TIME", default_value = "60s", allow_hyphen_values = true, value_parser = values::span)]
    pub join_within: Span,
}

/// `doorbell experiment`.
#[derive(Args, Clone, Debug)]
pub struct ExperimentArgs {
    /// Experiment files.
    #[arg(value_name = "FILE", required = true)]
    pub files: Vec<PathBuf>,
    /// Measure only this share of each grid, into a directory of its own: 1/4 is the first of four. `doorbell report`
    /// joins them.
    #[arg(long, value_name = "I/N", value_parser = values::shard)]
    pub shard: Option<Shard>,
    /// Points measured at a time; cores on sim, 1 where time is real. Results do not depend on it.
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = values::jobs)]
    pub jobs: Option<usize>,
    /// Measure each point over the processes of this cluster file, as its node 0; it says how many nodes there are.
    #[arg(long, value_name = "FILE")]
    pub cluster: Option<PathBuf>,
    /// With --cluster: how long to wait for the other nodes.
    #[arg(long, requires = "cluster", value_name = "TIME", default_value = "60s", allow_hyphen_values = true, value_parser = values::span)]
    pub join_within: Span,
    #[allow(missing_docs)]
    #[command(flatten)]
    pub output: OutputArgs,
}

/// `doorbell reproduce`.
#[derive(Args, Clone, Debug)]
pub struct ReproduceArgs {
    /// Claims (DRH-P02), papers (drtmh-osdi18), figures (drtmh-osdi18/fig5) or experiments; all if none is named.
    #[arg(value_name = "ID|PAPER|FIGURE")]
    pub what: Vec<String>,
    /// Only list the claims and what answers them.
    #[arg(long)]
    pub list: bool,
    /// Show claims without an answer too.
    #[arg(long)]
    pub all: bool,
    /// Points measured at a time; usually one per core. Results do not depend on it.
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = values::jobs)]
    pub jobs: Option<usize>,
    #[allow(missing_docs)]
    #[command(flatten)]
    pub output: OutputArgs,
}

/// `doorbell report`.
#[derive(Args, Clone, Debug)]
pub struct ReportArgs {
    /// Result directories. Shards of one experiment are joined.
    #[arg(value_name = "DIR", required = true)]
    pub dirs: Vec<PathBuf>,
    /// Join shards even if commit, seed, profile or spec differ; the page says which.
    #[arg(long)]
    pub mixed: bool,
    /// End with exit code 1 if a run lacks points, a shard of a grid for example; the page is made all the same.
    #[arg(long)]
    pub complete: bool,
    /// Where to put report.html and its figures; the first result directory if not given.
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Write page, figures, answers and notes as JSON to a new file, or to stdout with `-` (then nothing else is printed there).
    #[arg(long, value_name = "FILE|-", value_parser = values::json_target)]
    pub json: Option<JsonTarget>,
}

/// `doorbell check`.
#[derive(Args, Clone, Debug)]
pub struct CheckArgs {
    /// A history recorded with `doorbell run --history`, or one for Elle, dbcop or Plume.
    #[arg(value_name = "HISTORY")]
    pub history: PathBuf,
    /// read-committed, read-atomicity, snapshot-isolation, repeatable-read, serializable or strict-serializable. By
    /// default the last, or serializable if the history has no times. A scan reads every key of its range, so repeatable-read
    /// objects to phantoms, too, as serializable does.
    #[arg(long, value_name = "LEVEL")]
    pub level: Option<Level>,
    /// doorbell, elle-append, elle-register, dbcop or plume; by default what the file looks like.
    #[arg(long, value_name = "FORMAT")]
    pub format: Option<Format>,
    /// Write the history to a new file in another format, ahead of the check. May be repeated.
    #[arg(long, num_args = 2, value_names = ["FORMAT", "FILE"])]
    pub export: Vec<String>,
    /// Write the verdict as JSON to a new file, or to stdout with `-`.
    #[arg(long, value_name = "FILE|-", value_parser = values::json_target)]
    pub json: Option<JsonTarget>,
}

/// `doorbell completions`.
#[derive(Args, Clone, Debug)]
pub struct CompletionsArgs {
    /// The shell.
    #[arg(value_name = "SHELL")]
    pub shell: Shell,
}

/// `doorbell man`.
#[derive(Args, Clone, Debug)]
pub struct ManArgs {
    /// The command; the page of `doorbell` itself if not given.
    #[arg(value_name = "COMMAND")]
    pub command: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Result<Cli, clap::Error> {
        Cli::read(line.split(' ').map(OsString::from))
    }

    #[test]
    fn without_a_command_the_flags_are_those_of_quickstart() {
        for line in [
            "doorbell --out x --seed 7",
            "doorbell -q --seed 7 --out x",
            "doorbell quickstart --out x --seed 7",
        ] {
            let cli = read(line).unwrap();
            let Some(Command::Quickstart(args)) = &cli.command else { panic!("{line}: {cli:?}") };
            assert_eq!((args.seed, args.output.out.as_deref()), (7, Some(std::path::Path::new("x"))));
            assert_eq!(cli.quiet, line.contains("-q"));
        }
        assert!(read("doorbell -v").unwrap().command.is_none());
        assert!(matches!(read("doorbell -v devices").unwrap().command, Some(Command::Devices(_))));
        // What quickstart has not either is told as before, and so are the mistakes of commands.
        let told = |line: &str| read(line).unwrap_err().to_string();
        assert!(told("doorbell --fabric tcp").contains("Usage: doorbell [OPTIONS] [COMMAND]"));
        assert!(told("doorbell run --nonsense").contains("Usage: doorbell run"));
        assert!(told("doorbell --out x run").contains("'--out'"));
        assert!(told("doorbell --seed many").contains("'--seed <N>'"));
    }
}
