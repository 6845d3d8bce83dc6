//! One run of transactions: from a [`RunSpec`] to rows, JSON and a verdict.
//!
//! `run`, `experiment`, `tune --verify` and `quickstart` all measure through here.

use crate::error::CliError;
use crate::fabrics::Fabric;
use crate::memory::fits;
use crate::names::{suggest, workloads};
use crate::nearby::Wanted;
use crate::progress::under_way;
use crate::schedule::{Disturbance, Watch};
use crate::settings;
use crate::spec::{FabricChoice, PlanChoice, RunSpec};
use crate::yaml;
use engine::cluster::{self, RunError, RunResult};
use engine::protocol::{AnyProtocol, PROTOCOLS, Protocol};
use engine::stats::ReasonCounts;
use engine::verify::{self, Level, Share, Verdict, format};
use engine::workload::AnyWorkload;
use phases::plan::{Phase, Plan, PlanFile, PlanFileError, Prediction, Preset};
use phases::rule::Abort;
use primitives::measure::{PointResult, Row, Steadiness};
use primitives::mesh::Shape;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

/// A plan with its name and, if a tuner chose it, what it expects.
#[derive(Clone, Debug)]
pub struct NamedPlan {
    /// Name for tables.
    pub name: String,
    /// The plan.
    pub plan: Plan,
    /// The prediction that came with it.
    pub prediction: Option<Prediction>,
    /// What a reader should know of how the plan came to be as it is.
    pub notes: Vec<String>,
    /// The file that it was read from.
    pub file: Option<PathBuf>,
    /// The protocol that it was made for, if another is asked for.
    pub made_for: Option<String>,
}

impl NamedPlan {
    /// The plan under a name.
    pub fn new(name: impl Into<String>, plan: Plan, prediction: Option<Prediction>) -> NamedPlan {
        NamedPlan { name: name.into(), plan, prediction, notes: Vec::new(), file: None, made_for: None }
    }

    /// What to call it where somebody is to change it: many files keep the name of the preset they were copied from.
    fn called(&self) -> String {
        match &self.file {
            Some(file) => format!("plan `{}` of {}", self.name, file.display()),
            None => format!("plan `{}`", self.name),
        }
    }

    /// The plan with as many coroutines as `spec` asks for. A prediction for another count is no prediction of it.
    fn for_spec(mut self, spec: &RunSpec) -> NamedPlan {
        if let Some(asked) = spec.coroutines.filter(|asked| *asked != self.plan.coroutines) {
            self.notes.push(format!(
                "Plan {} says {} coroutines per thread; {asked} were asked for and run.",
                self.name, self.plan.coroutines
            ));
            self.plan.coroutines = asked;
            if self.prediction.take().is_some() {
                self.notes.push(
                    "The plan's prediction was for its own count of coroutines, and is left out.".into(),
                );
            }
        }
        let other = |p: &Prediction| {
            (p.workload.as_str(), p.protocol.as_str(), p.nodes, p.threads)
                != (spec.workload.as_str(), spec.protocol.as_str(), spec.nodes, spec.threads)
        };
        if let Some(made) = self.prediction.take_if(|p| other(p)) {
            self.notes.push(format!(
                "The plan's prediction was for {} under {} on {} nodes × {} threads, and is left out.",
                made.workload, made.protocol, made.nodes, made.threads
            ));
            self.made_for = Some(made.protocol).filter(|protocol| *protocol != spec.protocol);
            if let Some(protocol) = &self.made_for {
                self.notes.push(format!(
                    "The plan was made for {protocol} and runs under {}: `--protocol {protocol}` runs what it was made for.",
                    spec.protocol
                ));
            }
        }
        self
    }
}

/// What to keep and check of a run.
#[derive(Clone, Copy, Debug)]
pub struct Keep {
    /// Record the history, and check it for what the protocol promises.
    pub history: bool,
    /// Audit, judge and return what was measured when the run is stopped. Otherwise it is of use only as a whole, and ends at once.
    pub part: bool,
}

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

/// The workload of a spec.
///
/// # Errors
/// Exit code 2 with what the workload says of its settings.
pub fn workload(spec: &RunSpec) -> Result<AnyWorkload, CliError> {
    let scale = engine::workload::Scale { nodes: spec.nodes as u16, workers: spec.threads as u16 };
    // `ycsb.think_us` is a setting of that workload alone, for experiments that run several.
    let of = |key: &'_ String| match key.split_once('.') {
        Some((workload, key)) if workloads().contains(&workload) => {
            (workload == spec.workload).then(|| key.to_owned())
        }
        _ => Some(key.clone()),
    };
    let texts: Vec<(String, String)> =
        spec.set.iter().filter_map(|(key, value)| Some((of(key)?, settings::text(value)))).collect();
    AnyWorkload::parse(&spec.workload, scale, texts.iter().map(|(k, v)| (k.as_str(), v.as_str())))
        .map_err(|e| settings::refused(&e))
}

/// The protocol of a spec.
///
/// # Errors
/// Exit code 2 for one that does not exist, and for settings that it does not have.
pub fn protocol(spec: &RunSpec) -> Result<AnyProtocol, CliError> {
    AnyProtocol::parse(&spec.protocol)
        .map_err(|why| CliError::usage(why).hint(suggest(&spec.protocol, PROTOCOLS)))
}

/// What to say of protocols, of these names, to which clocks that are wrong make no difference; nothing if there are none.
pub fn without_clocks<'n>(protocols: impl IntoIterator<Item = &'n str>) -> Option<String> {
    let ignores =
        |name: &&str| AnyProtocol::parse(name).is_ok_and(|protocol| !protocol.needs().asks_clocks());
    let names: BTreeSet<&str> = protocols.into_iter().filter(ignores).collect();
    let takes = if names.len() == 1 { "takes" } else { "take" };
    let names = Vec::from_iter(names).join(", ");
    (!names.is_empty()).then(|| {
        format!("How wrong clocks are makes no difference to {names}, which {takes} no timestamps from them.")
    })
}

/// Presets in the order in which one is taken where none was asked for: the hybrid that was made by hand, then those that ask
/// less of fabric and protocol.
const USUAL: [Preset; 3] = [Preset::DrtmH, Preset::OneSided, Preset::TwoSided];

/// The plan of a spec that names none: the first of [`USUAL`] that can run there. If none can it is the first, which will be
/// refused with the reason.
fn usual(spec: &RunSpec, fabric: &Fabric) -> Result<NamedPlan, CliError> {
    let (workload, protocol) = (workload(spec)?, protocol(spec)?);
    let caps = fabric.caps()?;
    let mut refusals = Vec::new();
    for preset in USUAL {
        let plan = preset.plan().restricted_to(protocol.needs());
        let needs = cluster::needs(&engine_spec(spec, fabric, plan), &workload, &protocol);
        let Err(refused) = plan.check(&caps, &needs) else {
            let mut named = NamedPlan::new(preset.name(), plan, None);
            if let Some(why) = refusals.first() {
                let (taken, first, under) = (preset.name(), USUAL[0].name(), &spec.protocol);
                named.notes.push(format!(
                    "No plan was asked for; {taken} was taken, since {first} cannot run under {under} on {}: {why}.",
                    spec.fabric
                ));
            }
            return Ok(named);
        };
        refusals.extend(refused.refusals);
    }
    let first = USUAL[0];
    Ok(NamedPlan::new(first.name(), first.plan().restricted_to(protocol.needs()), None))
}

/// The plan of a spec that names one, or none; `None` where it is to be tuned.
///
/// # Errors
/// Exit code 2 if there is no such plan or its file is none.
pub fn plan(spec: &RunSpec, fabric: &Fabric) -> Result<Option<NamedPlan>, CliError> {
    // Presets are shapes; how many coroutines they run with is the user's choice from the start.
    let coroutines = spec.coroutines.unwrap_or(Plan::DEFAULT_COROUTINES);
    let named = match &spec.plan {
        PlanChoice::Tuned => return Ok(None),
        PlanChoice::Usual => {
            let named = usual(spec, fabric)?;
            NamedPlan { plan: Plan { coroutines, ..named.plan }, ..named }
        }
        PlanChoice::Preset(name) => {
            let preset =
                Preset::named(name).ok_or_else(|| CliError::usage(format!("no plan preset `{name}`")))?;
            // Presets are written down for OCC; other protocols leave out what they never run.
            let plan = preset.plan().restricted_to(protocol(spec)?.needs());
            NamedPlan::new(name.clone(), Plan { coroutines, ..plan }, None)
        }
        PlanChoice::File(path) => {
            let file = PlanFile::load(path).map_err(|error| match &error {
                PlanFileError::Parse { origin, mistake } => no_plan(path, yaml::placed(origin, mistake)),
                PlanFileError::Read { source, .. } => {
                    let message = format!("cannot read plan {}", path.display());
                    Wanted::Plan.told(path, CliError::usage(message).caused_by(source))
                }
            })?;
            // An edited copy of a preset still bears its name.
            let other = |preset: Preset| {
                let preset = protocol(spec).map(|protocol| preset.plan().restricted_to(protocol.needs()));
                preset.is_ok_and(|plan| Plan { coroutines, ..plan } != Plan { coroutines, ..file.plan })
            };
            let name = match Preset::named(&file.name).filter(|&preset| other(preset)) {
                Some(_) => format!("{} ({})", file.name, path.display()),
                None => file.name,
            };
            let named = NamedPlan::new(name, file.plan, file.prediction);
            NamedPlan { file: Some(path.clone()), ..named }
        }
        PlanChoice::Inline(inline) => {
            let plan = inline.plan(protocol(spec)?.needs(), coroutines);
            let plan = plan.map_err(|refused| CliError::usage(refused.why))?;
            NamedPlan::new(spec.plan.to_string(), plan, None)
        }
    };
    Ok(Some(named.for_spec(spec)))
}

/// The error about a file that is no plan file, with advice if it holds a plan as commands print it, or lacks what is around one.
fn no_plan(path: &Path, error: CliError) -> CliError {
    let printed = primitives::yaml::read(path).is_ok_and(|text| Plan::parse(&text, "plan").is_ok());
    let lacks =
        ["name", "plan"].iter().any(|key| error.message().ends_with(&format!(": missing field `{key}`")));
    match printed || lacks {
        true => error.hint(format!(
            "a plan file says `name: NAME` and `plan: {{…}}`, and what commands print goes behind `plan:`; {}",
            Wanted::Plan.made()
        )),
        false => error,
    }
}

/// A spec in the engine's terms, with the engine's usual settings for the rest.
pub fn engine_spec(spec: &RunSpec, fabric: &Fabric, plan: Plan) -> cluster::RunSpec {
    let shape = Shape { nodes: spec.nodes as u16, workers: spec.threads as u16 };
    let mut asked = cluster::RunSpec::new(fabric.spec.clone(), shape, plan);
    asked.replicas = spec.replicas as u16;
    asked.length = spec.length();
    asked.seed = spec.seed;
    asked.warm_cache = spec.warm_cache;
    if let Some(bytes) = spec.cache_bytes {
        asked.cache_bytes = bytes as usize;
    }
    asked.reserve_bytes = spec.reserve_bytes;
    asked.worker.lanes = spec.queue_pairs;
    asked.clocks.skew = spec.clock_skew.nanos();
    asked
}

/// What helps a run that needs too much memory.
pub fn lower(spec: &RunSpec) -> String {
    let scaled = settings::scaled(&spec.workload).map(|flags| format!(" (scaled: {flags})"));
    format!(
        "lower --nodes, --threads, --coroutines, or the size of the workload with --set{}",
        scaled.unwrap_or_default()
    )
}

/// Most worker threads of one process: beyond it a machine spends its time switching.
const THREADS_MOST: u64 = 4096;

/// Refuses, before anything is allocated, a plan that cannot run with this fabric, protocol and workload, and what does not
/// fit into this machine: an estimate of stores, caches, queue pairs and buffers against the memory that is free.
///
/// # Errors
/// Exit code 2 with the reason, or if workload or protocol cannot be; 3 with the estimate and what to lower.
pub fn check(spec: &RunSpec, fabric: &Fabric, named: &NamedPlan) -> Result<(), CliError> {
    let (workload, protocol) = (workload(spec)?, protocol(spec)?);
    let workers = u64::from(spec.nodes) * u64::from(spec.threads);
    if fabric.profile.is_none() && workers > THREADS_MOST {
        return Err(CliError::usage(format!("{workers} worker threads are too many for one process"))
            .hint(format!("real threads are limited to {THREADS_MOST}; a simulated fabric takes more")));
    }
    admit(spec, fabric, named)?;
    let asked = engine_spec(spec, fabric, named.plan);
    fits(cluster::memory_estimate(&asked, &workload, &protocol), &lower(spec))
}

/// Bytes that a run of `spec` will need, roughly; where its plan is to be tuned, with the usual number of coroutines.
///
/// # Errors
/// If workload, protocol or plan cannot be.
pub fn memory(spec: &RunSpec, fabric: &Fabric) -> Result<u64, CliError> {
    let coroutines = spec.coroutines.unwrap_or(Plan::DEFAULT_COROUTINES);
    let tuned = || Plan { coroutines, ..Preset::TwoSided.plan() };
    memory_of(spec, fabric, plan(spec, fabric)?.map_or_else(tuned, |named| named.plan))
}

/// As [`memory`], with this plan.
///
/// # Errors
/// If workload or protocol cannot be.
pub fn memory_of(spec: &RunSpec, fabric: &Fabric, plan: Plan) -> Result<u64, CliError> {
    let (workload, protocol) = (workload(spec)?, protocol(spec)?);
    Ok(cluster::memory_estimate(&engine_spec(spec, fabric, plan), &workload, &protocol))
}

/// Refuses a plan that the protocol, the workload or the fabric cannot have.
///
/// # Errors
/// As [`check`], but for the size.
pub fn admit(spec: &RunSpec, fabric: &Fabric, named: &NamedPlan) -> Result<(), CliError> {
    let (workload, protocol) = (workload(spec)?, protocol(spec)?);
    can_run(named, fabric, &engine_spec(spec, fabric, named.plan), &workload, &protocol)
}

fn can_run(
    named: &NamedPlan,
    fabric: &Fabric,
    asked: &cluster::RunSpec,
    workload: &AnyWorkload,
    protocol: &AnyProtocol,
) -> Result<(), CliError> {
    let refuse = |error: RunError| refused(&error, named);
    cluster::admit(workload, protocol).map_err(refuse)?;
    match asked.plan.check(&fabric.caps()?, &cluster::needs(asked, workload, protocol)) {
        Ok(_) => Ok(()),
        Err(error) => Err(refuse(RunError::Plan(Box::new(error)))),
    }
}

/// [`check`] for one node of a run over processes: a node's share of what all need.
///
/// # Errors
/// As [`check`].
pub fn check_share(spec: &RunSpec, fabric: &Fabric, named: &NamedPlan) -> Result<(), CliError> {
    let asked = engine_spec(spec, fabric, named.plan);
    let (workload, protocol) = (workload(spec)?, protocol(spec)?);
    can_run(named, fabric, &asked, &workload, &protocol)?;
    fits(cluster::memory_estimate(&asked, &workload, &protocol) / u64::from(spec.nodes.max(1)), &lower(spec))
}

/// Runs a spec with a given plan.
///
/// # Errors
/// Exit code 2 if plan, workload or sizes cannot be; 1 if a session failed; 130 if it was stopped before there was anything to keep.
pub fn run(
    spec: &RunSpec,
    fabric: &Fabric,
    named: &NamedPlan,
    keep: Keep,
    stop: &AtomicBool,
) -> Result<Run, CliError> {
    check(spec, fabric, named)?;
    let (workload, protocol) = (workload(spec)?, protocol(spec)?);
    let mut asked = engine_spec(spec, fabric, named.plan);
    (asked.history, asked.partial) = (keep.history, keep.part);
    asked.watched = Some(under_way());
    // Who waits for an epoch has nothing to do meanwhile.
    let watch = Watch::begin(spec.fabric.virtual_time(), !protocol.needs().sequenced);
    let result = cluster::run(&asked, &workload, protocol, stop).map_err(|e| refused(&e, named))?;
    let disturbance = watch.end();
    Ok(Run { disturbance, ..Run::judge(named, result, true) })
}

/// Why there is no result, for people.
pub fn refused(error: &RunError, plan: &NamedPlan) -> CliError {
    match error {
        RunError::Plan(refused) => {
            let nearest = match refused.nearest {
                Some(nearest) => {
                    format!("the nearest plan that can: {nearest}; `doorbell tune` finds the best")
                }
                None => "no plan can".to_owned(),
            };
            let hint = match &plan.made_for {
                Some(protocol) => format!("it was made for {protocol}: add `--protocol {protocol}`"),
                None => nearest,
            };
            let shown = CliError::usage(format!("{} cannot run here", plan.called())).hint(hint);
            refused.refusals.iter().fold(shown, |shown, refusal| shown.caused_by(refusal))
        }
        RunError::Mesh(lost) => CliError::from(lost.clone()),
        RunError::Cancelled => CliError::interrupted(),
        RunError::Undeclared { .. } => CliError::usage("the workload cannot run under this protocol")
            .caused_by(error)
            .hint("take another protocol, or a workload whose inputs name the records"),
        _ => CliError::new(error.blame().into(), "the run cannot be set up").caused_by(error),
    }
}

/// Writes a history to a new file, as the whole or as what it is a share of. Until it is all there the file has another name: the process may
/// be ended meanwhile, and a history without its end is none.
///
/// # Errors
/// Exit code 3 with what the system said.
pub fn write_history(path: &Path, history: &verify::History, share: Option<Share>) -> Result<(), CliError> {
    let mut partial = path.to_owned().into_os_string();
    partial.push(PARTIAL);
    // Devices stay where they are, and so do links, /dev/stdout among them.
    let device = path.symlink_metadata().is_ok_and(|what| !what.is_file());
    let to = if device { path } else { Path::new(&partial) };
    let write = || -> std::io::Result<()> {
        let mut file = std::io::BufWriter::new(std::fs::File::create(to)?);
        match share {
            None => format::write(history, &mut file)?,
            Some(share) => format::write_share(history, share, &mut file)?,
        }
        std::io::Write::flush(&mut file)?;
        if device { Ok(()) } else { std::fs::rename(to, path) }
    };
    write().map_err(|e| {
        if !device {
            let _ = std::fs::remove_file(to);
        }
        CliError::machine(format!("the history cannot be written to {}", path.display()))
            .caused_by(&e)
            .hint("make room, or name another file, and run the same command again; what was measured is shown above")
    })
}

/// How the name ends of a history that is being written.
const PARTIAL: &str = ".part";

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
        let seconds = r.elapsed.0 as f64 / 1e9;
        let kinds: serde_json::Map<String, Value> = (r.kinds.iter().zip(&r.stats.kinds))
            .map(|(name, kind)| {
                let kind = json!({
                    "committed": kind.committed,
                    "committed_per_s": if seconds > 0.0 { kind.committed as f64 / seconds } else { 0.0 },
                    "aborted": kind.aborted,
                    "rolled_back": kind.rolled_back,
                    "latency_ns": quantiles(&kind.latency),
                });
                ((*name).to_owned(), kind)
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

    /// Sixteen machines of 24 threads, as the papers have them.
    #[test]
    fn large_clusters_of_scaled_sizes_need_less_than_24_gib() {
        for (workload, params) in engine::workload::WORKLOADS {
            let usual = RunSpec {
                workload: (*workload).to_owned(),
                fabric: "sim:cx4-edr".parse().unwrap(),
                nodes: 16,
                threads: 24,
                ..RunSpec::default()
            };
            let mut smaller = usual.clone();
            for (name, size) in params.iter().filter_map(|param| Some((param.name, param.scaled?))) {
                smaller.set.insert(name.to_owned(), json!(size));
            }
            let fabric = Fabric::open(&usual.fabric, usual.seed).unwrap();
            let gib = |spec| memory(spec, &fabric).unwrap() as f64 / (1u64 << 30) as f64;
            assert!(gib(&smaller) < 24.0, "{workload}: {}", gib(&smaller));
            if workload.starts_with("tpcc") {
                assert!(gib(&usual) > 24.0 && lower(&usual).contains("--set items=3000"), "{}", gib(&usual));
            }
        }
    }

    #[test]
    fn who_interrupts_a_run_does_not_wait_for_a_long_history_to_be_checked() {
        assert!(is_checked(1000, true) && is_checked(10_000_000, false));
        assert!(!is_checked(CHECKED_WHEN_INTERRUPTED + 1, true));
    }
}
