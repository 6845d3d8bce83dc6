//! One run of transactions, from a [`RunSpec`] to a [`Run`].
//!
//! `run`, `experiment`, `tune --verify` and `quickstart` all measure through here.

use crate::error::CliError;
use crate::fabrics::Fabric;
use crate::memory::fits;
use crate::names::{suggest, workloads};
use crate::nearby::Wanted;
use crate::progress::under_way;
use crate::schedule::Watch;
use crate::settings;
use crate::spec::{PlanChoice, RunSpec};
use crate::yaml;
use engine::cluster::{self, RunError};
use engine::protocol::{AnyProtocol, PROTOCOLS, Protocol};
use engine::verify::{self, Share, format};
use engine::workload::AnyWorkload;
use phases::plan::{Plan, PlanFile, PlanFileError, Prediction, Preset};
use primitives::mesh::Shape;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

mod outcome;

pub use outcome::Run;

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

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

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
}
