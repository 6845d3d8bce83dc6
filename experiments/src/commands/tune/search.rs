//! The search behind `tune`: every plan of a protocol by forecast, and the best protocol of several.

use super::budget::Budget;
use super::{SHORTLIST, TUNED};
use crate::commands::Context;
use crate::error::CliError;
use crate::fabrics::{self, Fabric};
use crate::progress::{Progress, Task};
use crate::spec::{RunSpec, Span};
use crate::transact::{self, NamedPlan};
use engine::cluster::{admit, needs};
use engine::protocol::AnyProtocol;
use engine::workload::{Lookups, Scale};
use phases::model::{
    Candidate, Choice, Cluster, GoOn, Model, Objective, Search, TuneError, Tuning, Turned, Workload, choices,
    told, tune_while, turned,
};
use phases::plan::{Needs, Phase, Plan, PlanFile, Prediction, Preset};
use primitives::fabric::{AtomicScope, Caps};
use primitives::measure::Verified;
use primitives::profile::Profile;
use primitives::units::Nanos;

/// A plan to show beside the others, and to run with `--verify`.
#[derive(Clone)]
pub struct Rival {
    /// `tuned`, a preset's name, or what it does.
    pub name: String,
    /// The protocol it is for.
    pub protocol: String,
    /// What it does: the nearest preset and the differences from it.
    pub description: String,
    /// The plan with its forecast.
    pub candidate: Candidate,
    /// The forecast as plan files carry it.
    pub prediction: Prediction,
}

impl Rival {
    /// The plan, ready for a run.
    pub fn plan(&self) -> NamedPlan {
        NamedPlan::new(self.name.clone(), self.candidate.plan, Some(self.prediction.clone()))
    }
}

/// A search that was made.
pub struct Tuned {
    /// What the search found; of several protocols, with the one that won, but counting the forecasts for all.
    pub tuning: Tuning,
    /// Why each phase of the winner is carried as it is.
    pub choices: Vec<Choice>,
    /// What its other choices save.
    pub turned: Vec<Turned>,
    /// How large its location caches are to be, where that was not asked for.
    pub budget: Option<Budget>,
    /// The winner, the candidates after it and the presets; each plan once. Of several protocols, the winner, then each
    /// protocol's best and its presets.
    pub rivals: Vec<Rival>,
    /// The winner as a file.
    pub file: PlanFile,
    /// The protocol that won.
    pub protocol: String,
    /// The best of each protocol that was asked for, best first, if there was a choice.
    pub protocols: Vec<(String, Candidate)>,
    /// All plans of those that did not win.
    pub others: Vec<Ranked>,
    /// What it was priced with.
    pub profile: Profile,
    /// What the winner is best at.
    pub objective: Objective,
}

impl Tuned {
    /// The winner, ready for a run; where it is a preset, its name says so.
    pub fn plan(&self) -> NamedPlan {
        let name = match self.rivals.first().and_then(|winner| winner.candidate.preset) {
            Some(preset) => format!("{TUNED} ({})", preset.name()),
            None => TUNED.to_owned(),
        };
        NamedPlan::new(name, self.file.plan, self.file.prediction.clone())
    }

    /// Of the plans that ran, rivals and `further` ones, the one that was the fastest: the winner, unless another was faster.
    pub fn fastest<'a>(&'a self, further: &'a [Rival], verified: &Verified) -> &'a Rival {
        let named = |name: &str| self.rivals.iter().chain(further).find(|rival| rival.name == *name);
        verified.faster().and_then(|(name, _)| named(name)).unwrap_or(&self.rivals[0])
    }

    /// All plans of each protocol, the winner's first.
    pub fn searches(&self) -> Vec<(&str, &Tuning)> {
        let others = self.others.iter().map(|ranked| (ranked.protocol.as_str(), &ranked.tuning));
        std::iter::once((self.protocol.as_str(), &self.tuning)).chain(others).collect()
    }
}

/// Refuses what cannot be tuned whatever a profile says, before one is made: a workload that none of the protocols can run. Protocols that cannot run it beside some that can are left out, and told with the reason.
///
/// # Errors
/// Exit code 2 with what is missing.
pub fn tunable(spec: &RunSpec, protocols: &[String]) -> Result<Vec<String>, CliError> {
    let workload = transact::workload(spec)?;
    let mut refused = Vec::new();
    for name in protocols {
        let protocol = transact::protocol(&RunSpec { protocol: name.clone(), ..spec.clone() })?;
        match admit(&workload, &protocol) {
            Ok(()) => {}
            Err(why) => refused.push(why),
        }
    }
    match refused.first() {
        Some(why) if refused.len() == protocols.len() => Err(self::refused(why)),
        _ => Ok(refused.iter().map(ToString::to_string).collect()),
    }
}

/// What plans may use: what the fabric carries, and the profile is of too. One of another card may have no one-sided verbs or no
/// ATOMICs, and so no price for them.
fn caps(fabric: &Fabric, profile: &Profile) -> Result<Caps, CliError> {
    let (own, priced) = (fabric.caps()?, fabrics::caps_of(profile)?);
    let one_sided = own.one_sided && priced.one_sided;
    let atomic_scope =
        if priced.atomic_scope == AtomicScope::None { AtomicScope::None } else { own.atomic_scope };
    Ok(Caps { one_sided, atomic_scope, ..own })
}

/// What the cost model is told of a spec.
struct Asked {
    cluster: Cluster,
    demand: Workload,
    needs: Needs,
    lookups: Lookups,
}

impl Asked {
    fn of(spec: &RunSpec, fabric: &Fabric) -> Result<Asked, CliError> {
        tunable(spec, std::slice::from_ref(&spec.protocol))?;
        let (workload, protocol) = (transact::workload(spec)?, transact::protocol(spec)?);
        let scale = Scale { nodes: spec.nodes as u16, workers: spec.threads as u16 };
        let engine = transact::engine_spec(spec, fabric, Preset::DrtmH.plan());
        let cluster = Cluster {
            nodes: spec.nodes,
            threads: spec.threads,
            backups: spec.replicas.saturating_sub(1),
            lanes: engine.worker.lanes,
        };
        let (demand, lookups) = workload.demand_and_lookups(scale, &engine.retry);
        Ok(Asked {
            cluster,
            demand: Workload { cache_hit_share: lookups.hit_share(engine.cache_bytes), ..demand },
            needs: needs(&engine, &workload, &protocol),
            lookups,
        })
    }

    fn tune(
        &self,
        spec: &RunSpec,
        fabric: &Fabric,
        profile: &Profile,
        objective: Objective,
        flips: bool,
        go_on: &GoOn<'_>,
    ) -> Result<Tuning, CliError> {
        let search = Search { flips, ..searched(spec, objective) };
        let caps = caps(fabric, profile)?;
        tune_while(profile, &caps, &self.needs, self.cluster, &self.demand, &search, go_on).map_err(|e| {
            match e {
                TuneError::Stopped => CliError::interrupted(),
                other => refused(&other),
            }
        })
    }
}

/// What is searched for a spec.
fn searched(spec: &RunSpec, objective: Objective) -> Search {
    let usual = Search::default();
    let coroutines = spec.coroutines.map_or(usual.coroutines.clone(), |n| vec![n]);
    Search { objective, coroutines, ..usual }
}

fn refused(why: &dyn std::error::Error) -> CliError {
    CliError::usage("nothing can be tuned").caused_by(why)
}

/// All plans for a spec by forecast, for most throughput, and nothing else.
///
/// # Errors
/// As [`search`].
pub fn ranking(
    spec: &RunSpec,
    fabric: &Fabric,
    profile: &Profile,
    go_on: &GoOn<'_>,
) -> Result<Tuning, CliError> {
    Asked::of(spec, fabric)?.tune(spec, fabric, profile, Objective::Throughput, false, go_on)
}

/// A protocol, and all its plans by forecast.
pub struct Ranked {
    /// The protocol's name.
    pub protocol: String,
    /// Its plans.
    pub tuning: Tuning,
}

/// [`ranking`] under each protocol that can run the spec's workload; the protocol that [`search_all`] would choose comes first.
///
/// # Errors
/// As [`search_all`].
pub fn rankings(
    spec: &RunSpec,
    protocols: &[String],
    fabric: &Fabric,
    profile: &Profile,
    go_on: &GoOn<'_>,
) -> Result<Vec<Ranked>, CliError> {
    let of = |protocol: &String| -> Result<Ranked, CliError> {
        let spec = RunSpec { protocol: protocol.clone(), ..spec.clone() };
        Ok(Ranked { protocol: protocol.clone(), tuning: ranking(&spec, fabric, profile, go_on)? })
    };
    let mut found = able(spec, protocols)?.into_iter().map(of).collect::<Result<Vec<Ranked>, CliError>>()?;
    best_first(&mut found, Objective::Throughput, |ranked| &ranked.tuning);
    Ok(found)
}

/// What `tune --verify` runs beside presets, of protocols with the chosen one first: the shortlist of one, and of several the first few
/// of each.
pub fn shortlist(found: &[Ranked]) -> Vec<(&Ranked, &Candidate)> {
    let most = if found.len() > 1 { OF_EACH } else { SHORTLIST };
    let mut list = Vec::new();
    for ranked in found {
        let few = ranked.tuning.shortlist(SHORTLIST).into_iter().take(most);
        list.extend(few.map(|candidate| (ranked, candidate)));
    }
    list
}

/// Of several protocols, those that can run the workload; if none can, the first, which will say why.
fn able<'a>(spec: &RunSpec, protocols: &'a [String]) -> Result<Vec<&'a String>, CliError> {
    let workload = transact::workload(spec)?;
    let able = |name: &&String| AnyProtocol::parse(name).is_ok_and(|p| admit(&workload, &p).is_ok());
    let mut asked: Vec<&String> = protocols.iter().filter(able).collect();
    if asked.is_empty() {
        asked.extend(protocols.first());
    }
    Ok(asked)
}

/// A search that is shown while it lasts, and that Ctrl-C ends.
///
/// # Errors
/// As the search, and exit code 130.
pub fn watched<T>(
    context: &Context,
    search: impl FnOnce(&GoOn<'_>) -> Result<T, CliError>,
) -> Result<T, CliError> {
    let task = Task { title: "forecasting".to_owned(), what: "plan", done: 0, total: None };
    let progress = Progress::begin(context.talk, task);
    search(&|| {
        progress.inc();
        !context.interrupt.asked()
    })
}

/// Searches all plans for a spec, by the cost model; with one count of coroutines, if the spec has one. `go_on` is asked before each
/// plan ([`watched`]).
///
/// # Errors
/// Exit code 2 if the workload or the cluster cannot be, 130 if the search is stopped.
pub fn search(
    spec: &RunSpec,
    fabric: &Fabric,
    profile: &Profile,
    objective: Objective,
    go_on: &GoOn<'_>,
) -> Result<Tuned, CliError> {
    let asked = Asked::of(spec, fabric)?;
    let tuning = asked.tune(spec, fabric, profile, objective, true, go_on)?;
    let Asked { cluster, demand, needs, lookups } = asked;
    let model = Model::new(profile, cluster, &demand, &needs).map_err(|e| refused(&e))?;
    let caps = caps(fabric, profile)?;
    let foretell = |plan: &Plan| Some(model.forecast(&plan.check(&caps, &needs).ok()?));
    let choices = choices(&tuning, Search::default().tolerance, foretell);
    let turned = turned(&model, &caps, tuning.best(), &searched(spec, objective));
    let checked = tuning.best().plan.check(&caps, &needs).map_err(|e| refused(&e))?;
    let budget = match spec.cache_bytes {
        None => Budget::of(&checked, &model, &lookups, objective).map_err(|e| refused(&e))?,
        Some(_) => None,
    };
    let name = spec.protocol.clone();
    // With the settings that it was asked for with.
    let prediction = |c: &Candidate| Prediction { protocol: name.clone(), ..model.prediction(&c.forecast) };
    let rivals = rivals(&tuning, &name, cluster.backups > 0, prediction);
    let file = PlanFile {
        name: TUNED.to_owned(),
        chosen_by: format!("doorbell tune {} ({})", crate::VERSION, crate::COMMIT),
        why: aim(&tuning, objective)
            .map(|aim| format!("Aim: {aim}"))
            .into_iter()
            .chain(choices.iter().map(Choice::to_string))
            .chain(told(&turned))
            .chain(budget.as_ref().map(Budget::told))
            .collect::<Vec<_>>()
            .join(". "),
        plan: tuning.best().plan,
        prediction: Some(prediction(tuning.best())),
    };
    let (profile, protocols, others) = (profile.clone(), Vec::new(), Vec::new());
    Ok(Tuned {
        tuning,
        choices,
        turned,
        budget,
        rivals,
        file,
        protocol: name,
        protocols,
        others,
        profile,
        objective,
    })
}

/// The counts of coroutines to run a plan with, ascending; none if one was asked for.
pub fn counts(spec: &RunSpec) -> Vec<u32> {
    if spec.coroutines.is_some() { Vec::new() } else { Search::default().coroutines }
}

/// A plan of a search with each of these counts of coroutines, and what the model expects of it.
///
/// # Errors
/// As [`search`].
pub fn by_coroutines(
    rival: &Rival,
    counts: &[u32],
    spec: &RunSpec,
    fabric: &Fabric,
    profile: &Profile,
) -> Result<Vec<Rival>, CliError> {
    let spec = RunSpec { protocol: rival.protocol.clone(), ..spec.clone() };
    let Asked { cluster, demand, needs, .. } = Asked::of(&spec, fabric)?;
    let model = Model::new(profile, cluster, &demand, &needs).map_err(|e| refused(&e))?;
    let caps = caps(fabric, profile)?;
    let with = |&coroutines: &u32| {
        let plan = Plan { coroutines, ..rival.candidate.plan };
        let forecast = model.forecast(&plan.check(&caps, &needs).map_err(|e| refused(&e))?);
        let prediction = Prediction { protocol: spec.protocol.clone(), ..model.prediction(&forecast) };
        let candidate = Candidate { plan, preset: rival.candidate.preset, forecast };
        let (name, description) = (rival.name.clone(), rival.description.clone());
        Ok(Rival { name, protocol: spec.protocol.clone(), description, candidate, prediction })
    };
    counts.iter().map(with).collect()
}

/// A plan of a search that is not among its rivals, as one of them.
///
/// # Errors
/// As [`search`].
pub fn further_rival(
    tuned: &Tuned,
    protocol: &str,
    candidate: &Candidate,
    spec: &RunSpec,
    fabric: &Fabric,
) -> Result<Rival, CliError> {
    let spec = RunSpec { protocol: protocol.to_owned(), ..spec.clone() };
    let Asked { cluster, demand, needs, .. } = Asked::of(&spec, fabric)?;
    let model = Model::new(&tuned.profile, cluster, &demand, &needs).map_err(|e| refused(&e))?;
    let prediction = Prediction { protocol: protocol.to_owned(), ..model.prediction(&candidate.forecast) };
    let description = candidate.plan.describe(&phases_that_matter(&candidate.plan, cluster.backups > 0));
    let name = match tuned.others.is_empty() {
        true => description.clone(),
        false => format!("{protocol}: {description}"),
    };
    Ok(Rival { name, protocol: protocol.to_owned(), description, candidate: candidate.clone(), prediction })
}

/// What the choice is best at, in words; nothing where that is throughput alone, as usual.
pub fn aim(tuning: &Tuning, objective: Objective) -> Option<String> {
    let foretold_ns = tuning.best().forecast.latency_mean_ns;
    match objective {
        Objective::Throughput => None,
        Objective::Latency => Some("the least mean latency, as foretold".to_owned()),
        Objective::ThroughputWithin(ns) => {
            let limit = Span::from_ns(ns as u64);
            Some(match foretold_ns <= ns {
                true => format!("the most throughput at a mean latency of {limit} at most, as foretold"),
                false => format!(
                    "a mean latency of {limit} at most, which no plan is foretold to keep: this is the quickest, at {}",
                    Nanos(foretold_ns as u64)
                ),
            })
        }
    }
}

/// Candidates of each protocol that a choice between protocols keeps, beside its presets.
const OF_EACH: usize = 2;

/// As [`search`], for the best of several protocols: rates that differ by less than the search's tolerance count as equal,
/// and the quicker is better. Beyond the latency that is aimed at the quicker is better whatever its rate.
///
/// # Errors
/// As [`search`], for the first protocol that cannot be tuned.
pub fn search_all(
    spec: &RunSpec,
    protocols: &[String],
    fabric: &Fabric,
    profile: &Profile,
    objective: Objective,
    go_on: &GoOn<'_>,
) -> Result<Tuned, CliError> {
    let of = |protocol: &String| {
        search(&RunSpec { protocol: protocol.clone(), ..spec.clone() }, fabric, profile, objective, go_on)
    };
    let mut found = able(spec, protocols)?.into_iter().map(of).collect::<Result<Vec<Tuned>, CliError>>()?;
    if found.len() == 1 {
        return Ok(found.remove(0));
    }
    best_first(&mut found, objective, |tuned| &tuned.tuning);
    let protocols = found.iter().map(|t| (t.protocol.clone(), t.tuning.best().clone())).collect();
    let mut rivals = Vec::new();
    for (place, tuned) in found.iter_mut().enumerate() {
        let kept = std::mem::take(&mut tuned.rivals);
        let kept = kept.into_iter().enumerate().filter(|(n, r)| *n < OF_EACH || r.candidate.preset.is_some());
        rivals.extend(kept.map(|(n, rival)| match (place, n) {
            (0, 0) => rival,
            _ => Rival { name: format!("{}: {}", rival.protocol, rival.name), ..rival },
        }));
    }
    let evaluated = found.iter().map(|tuned| tuned.tuning.evaluated).sum();
    let mut winner = found.remove(0);
    winner.tuning.evaluated = evaluated;
    winner.file.why = format!("best of {} protocols. {}", found.len() + 1, winner.file.why);
    let of = |tuned: Tuned| Ranked { protocol: tuned.protocol, tuning: tuned.tuning };
    let others = found.into_iter().map(of).collect();
    Ok(Tuned { rivals, protocols, others, ..winner })
}

/// Protocols, each with its best plan, in order of those plans.
fn best_first<T>(found: &mut [T], objective: Objective, tuning: impl Fn(&T) -> &Tuning) {
    let rate = |t: &T| tuning(t).best().forecast.committed_per_s;
    let latency = |t: &T| tuning(t).best().forecast.latency_mean_ns;
    let within = |t: &T| latency(t) <= objective.limit_ns();
    let best = found.iter().filter(|t| within(t)).map(rate).fold(0.0, f64::max);
    let as_good = |t: &T| within(t) && rate(t) >= best * (1.0 - Search::default().tolerance);
    // As good as the best, then as quick as was asked for, then the others.
    let class = |t: &T| if as_good(t) { 0 } else { 2 - i32::from(within(t)) };
    found.sort_by(|a, b| {
        let by_rate = rate(b).total_cmp(&rate(a));
        let by_latency = latency(a).total_cmp(&latency(b));
        let inside = if class(a) == 1 { by_rate.then(by_latency) } else { by_latency.then(by_rate) };
        class(a).cmp(&class(b)).then(inside)
    });
}

/// The phases by which plans of a search differ.
fn phases_that_matter(plan: &Plan, logs: bool) -> Vec<Phase> {
    plan.steps().map(|(phase, _)| phase).filter(|phase| logs || *phase != Phase::Log).collect()
}

/// The winner, the others of the shortlist and the presets, each plan once: a candidate that is a preset goes by its name.
/// Without backups nothing is logged, and plans that differ in logging alone are equal.
fn rivals(
    tuning: &Tuning,
    protocol: &str,
    logs: bool,
    prediction: impl Fn(&Candidate) -> Prediction,
) -> Vec<Rival> {
    let matter = phases_that_matter(&tuning.best().plan, logs);
    let equal = |a: &Candidate, b: &Candidate| {
        a.plan.coroutines == b.plan.coroutines && a.plan.same_steps(&b.plan, &matter)
    };
    let mut rivals: Vec<Rival> = Vec::new();
    for candidate in tuning.shortlist(SHORTLIST).into_iter().chain(&tuning.presets) {
        if rivals.iter().any(|rival| equal(&rival.candidate, candidate)) {
            continue;
        }
        let preset = candidate.preset.or_else(|| {
            tuning.presets.iter().find(|preset| equal(preset, candidate)).and_then(|equal| equal.preset)
        });
        let description = candidate.plan.describe(&matter);
        let name = match (rivals.is_empty(), preset) {
            (true, _) => TUNED.to_owned(),
            (false, Some(preset)) => preset.name().to_owned(),
            (false, None) => description.clone(),
        };
        let prediction = prediction(candidate);
        rivals.push(Rival {
            name,
            protocol: protocol.to_owned(),
            description,
            candidate: Candidate { preset, ..candidate.clone() },
            prediction,
        });
    }
    rivals
}
