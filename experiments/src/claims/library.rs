//! The experiments that answer claims, as they stand in `experiments/`, by name.

use crate::error::CliError;
use crate::spec::{Experiment, SpecKind};
use crate::yaml::Document;
use phases::plan::Phase;
use phases::rule::Abort;
use primitives::measure::{PHASES, Printed, TableName, columns, deciding};
use primitives::profile::Profile;
use std::collections::BTreeMap;

use super::binding::{At, Binding, Parameter, Pick};
use super::file::Claim;

/// The files: name, text.
const FILES: &[(&str, &str)] = &[
    ("rates-per-machine", include_str!("../../rates-per-machine.yaml")),
    ("rpc-by-transport", include_str!("../../rpc-by-transport.yaml")),
    ("one-sided-against-two-sided", include_str!("../../one-sided-against-two-sided.yaml")),
    ("writes-against-calls", include_str!("../../writes-against-calls.yaml")),
    ("coroutines-hiding-latency", include_str!("../../coroutines-hiding-latency.yaml")),
    ("ten-objects-cx4", include_str!("../../ten-objects-cx4.yaml")),
    ("ten-objects-cx3", include_str!("../../ten-objects-cx3.yaml")),
    ("ten-objects-roce", include_str!("../../ten-objects-roce.yaml")),
    ("ten-objects-cx5", include_str!("../../ten-objects-cx5.yaml")),
    ("read-size-by-queue-pairs", include_str!("../../read-size-by-queue-pairs.yaml")),
    ("tpcc-by-queue-pairs", include_str!("../../tpcc-by-queue-pairs.yaml")),
    ("tpcc-by-item-skew", include_str!("../../tpcc-by-item-skew.yaml")),
    ("new-orders-on-other-nodes", include_str!("../../new-orders-on-other-nodes.yaml")),
    ("tpcc-on-64-warehouses", include_str!("../../tpcc-on-64-warehouses.yaml")),
    ("tpcc-by-delay", include_str!("../../tpcc-by-delay.yaml")),
    ("tpcc-by-policy", include_str!("../../tpcc-by-policy.yaml")),
    ("tpcc-by-threads", include_str!("../../tpcc-by-threads.yaml")),
    ("read-by-card", include_str!("../../read-by-card.yaml")),
    ("one-sided-latency-by-cluster", include_str!("../../one-sided-latency-by-cluster.yaml")),
    ("unloaded-latency", include_str!("../../unloaded-latency.yaml")),
    ("atomics-by-address", include_str!("../../atomics-by-address.yaml")),
    ("atomics-by-node", include_str!("../../atomics-by-node.yaml")),
    ("timestamp-oracles", include_str!("../../timestamp-oracles.yaml")),
    ("atomics-by-card", include_str!("../../atomics-by-card.yaml")),
    ("reads-beside-atomics", include_str!("../../reads-beside-atomics.yaml")),
    ("local-atomics", include_str!("../../local-atomics.yaml")),
    ("atomics-on-card-memory", include_str!("../../atomics-on-card-memory.yaml")),
    ("doorbell-registers", include_str!("../../doorbell-registers.yaml")),
    ("doorbell-batching", include_str!("../../doorbell-batching.yaml")),
    ("selective-signaling", include_str!("../../selective-signaling.yaml")),
    ("calls-over-sockets", include_str!("../../calls-over-sockets.yaml")),
    ("reads-at-once-over-qdr", include_str!("../../reads-at-once-over-qdr.yaml")),
    ("reads-at-once-over-ipoib", include_str!("../../reads-at-once-over-ipoib.yaml")),
    ("execution-by-primitive", include_str!("../../execution-by-primitive.yaml")),
    ("locking-by-primitive", include_str!("../../locking-by-primitive.yaml")),
    ("commit-by-primitive", include_str!("../../commit-by-primitive.yaml")),
    ("logging-by-primitive", include_str!("../../logging-by-primitive.yaml")),
    ("read-only-by-primitive", include_str!("../../read-only-by-primitive.yaml")),
    ("what-each-choice-adds", include_str!("../../what-each-choice-adds.yaml")),
    ("four-systems-cx4", include_str!("../../four-systems-cx4.yaml")),
    ("four-systems-cx3", include_str!("../../four-systems-cx3.yaml")),
    ("four-systems-roce", include_str!("../../four-systems-roce.yaml")),
    ("four-systems-cx5", include_str!("../../four-systems-cx5.yaml")),
    ("hybrid-fasst", include_str!("../../hybrid-fasst.yaml")),
    ("drtm-h-by-nodes", include_str!("../../drtm-h-by-nodes.yaml")),
    ("drtm-h-on-80-nodes", include_str!("../../drtm-h-on-80-nodes.yaml")),
    ("protocols-on-edr", include_str!("../../protocols-on-edr.yaml")),
    ("protocols-on-fdr", include_str!("../../protocols-on-fdr.yaml")),
    ("coroutines-by-protocol", include_str!("../../coroutines-by-protocol.yaml")),
    ("ycsb-contention", include_str!("../../ycsb-contention.yaml")),
    ("ycsb-computation", include_str!("../../ycsb-computation.yaml")),
    ("ycsb-threads", include_str!("../../ycsb-threads.yaml")),
    ("stages-of-smallbank", include_str!("../../stages-of-smallbank.yaml")),
    ("ycsb-over-tcp", include_str!("../../ycsb-over-tcp.yaml")),
    ("ycsb-emulated-nodes", include_str!("../../ycsb-emulated-nodes.yaml")),
    ("lock-batching", include_str!("../../lock-batching.yaml")),
    ("calvin-on-ycsb", include_str!("../../calvin-on-ycsb.yaml")),
];

/// Names of the experiments, in the order in which they are told.
pub fn names() -> impl Iterator<Item = &'static str> {
    FILES.iter().map(|(name, _)| *name)
}

/// An experiment by name.
///
/// # Errors
/// If there is none, or its file is broken (with line and column).
pub fn experiment(name: &str) -> Result<Experiment, CliError> {
    let Some((_, text)) = FILES.iter().find(|(known, _)| *known == name) else {
        return Err(CliError::usage(format!("no experiment `{name}` answers claims")));
    };
    Experiment::parse(&Document { name: format!("{name}.yaml"), text: (*text).to_owned() })
}

/// The column a binding reads.
pub fn y(binding: &Binding, experiment: &Experiment) -> Option<String> {
    binding.y.clone().or_else(|| experiment.figures.first().map(|figure| figure.y.clone()))
}

/// Checks a binding against its experiment: axes, values and column exist.
pub(super) fn check(binding: &Binding) -> Result<(), String> {
    if binding.experiment.is_none() {
        // Profiles may be added by file; the names of their numbers are known.
        let known = Profile::shipped("cx4-edr").map_err(|e| e.to_string())?;
        let is_there =
            |name: &str| known.quantities().any(|(section, number, _)| format!("{section}.{number}") == name);
        let wrong =
            binding.parameters().into_iter().flat_map(Parameter::numbers).find(|name| !is_there(name));
        binding.handlers().into_iter().try_for_each(|asked| asked.phase().map(drop))?;
        return wrong.map_or(Ok(()), |name| Err(format!("no profile has a number {name}")));
    }
    let read = |name: &str| experiment(name).map_err(|e| e.message().to_owned());
    let name = binding.experiment.as_deref().unwrap_or_default();
    let y =
        y(binding, &read(name)?).ok_or_else(|| format!("{name} has no figure: say which column is `y`"))?;
    for name in binding.experiments() {
        check_experiment(binding, name, &read(name)?, &y)?;
    }
    for drawn in &binding.drawn_on {
        let other = read(&drawn.experiment)?;
        check_pick(&drawn.at, &drawn.experiment, &other)?;
        if !other.figures.iter().any(|figure| figure.y == y) {
            return Err(format!("no figure of experiment {} shows {y}", drawn.experiment));
        }
        if other.points.iter().filter(|point| picks(&drawn.at, &point.at)).count() != 1 {
            return Err(format!(
                "more than one point of experiment {} is at {:?}",
                drawn.experiment, drawn.at
            ));
        }
    }
    Ok(())
}

/// Checks what a binding reads of one of its experiments.
fn check_experiment(binding: &Binding, name: &str, experiment: &Experiment, y: &str) -> Result<(), String> {
    let known = columns(experiment.kind.results(), TableName::Points, &[]);
    // What a phase cost is `PHASE.COLUMN`.
    let of_phase = |(phase, column): (&str, &str)| {
        experiment.kind == SpecKind::Run
            && Phase::ALL.iter().any(|known| known.name() == phase)
            && PHASES[2..].iter().any(|known| known.0 == column)
    };
    // Of what aborted attempts, `aborts.REASON` has the share.
    let of_aborts = |(table, reason): (&str, &str)| {
        experiment.kind == SpecKind::Run
            && table == "aborts"
            && Abort::ALL.iter().any(|known| known.name() == reason)
    };
    for y in std::iter::once(y).chain(binding.columns()) {
        let there = |of: &dyn Fn((&str, &str)) -> bool| y.split_once('.').is_some_and(of);
        if !known.iter().any(|column| column == y) && !there(&of_phase) && !there(&of_aborts) {
            return Err(format!("experiment {name} has no column {y}"));
        }
    }
    for over in binding.overs() {
        if !experiment.grid.iter().any(|axis| axis.name == over) {
            return Err(format!("experiment {name} has no axis {over}"));
        }
    }
    let picks = binding.picks_of(name);
    if picks.is_empty() {
        return Err(format!("it reads no point of experiment {name}"));
    }
    picks.iter().try_for_each(|at| check_pick(at, name, experiment))
}

fn check_pick(at: &At, name: &str, experiment: &Experiment) -> Result<(), String> {
    for (axis, pick) in at {
        if !experiment.grid.iter().any(|a| a.name == *axis) {
            return Err(format!("experiment {name} has no axis {axis}"));
        }
        let of_axis =
            |value: &str| experiment.points.iter().any(|p| p.at.iter().any(|(a, v)| a == axis && v == value));
        if let Pick::One(serde_json::Value::Object(_)) = pick {
            return Err(format!("{axis}: a value, a list of values, or {{from, to}} is needed"));
        }
        let values = experiment.points.iter().flat_map(|p| p.at.iter().filter(|(a, _)| a == axis));
        if !values.map(|(_, v)| v).any(|v| pick.takes(v) && of_axis(v)) {
            return Err(format!("no point of experiment {name} has {axis} {pick:?}"));
        }
    }
    let any = experiment.points.iter().any(|point| picks(at, &point.at));
    if any { Ok(()) } else { Err(format!("no point of experiment {name} is at {at:?}")) }
}

/// Whether a point, by its axes, is picked.
pub(super) fn picks(at: &At, axes: &[(String, String)]) -> bool {
    at.iter().all(|(axis, pick)| axes.iter().any(|(a, value)| a == axis && pick.takes(value)))
}

/// Numbers of the points of one of its experiments, which has this name, that a binding reads.
pub fn points_of(binding: &Binding, name: &str, experiment: &Experiment) -> Vec<u64> {
    let picked = binding.picks_of(name);
    let taken = |point: &&crate::spec::Point| picked.iter().any(|at| picks(at, &point.at));
    experiment.points.iter().filter(taken).map(|point| point.index).collect()
}

/// The experiment that this one is, whatever its file, question and figures.
fn name_of(asked: &Experiment) -> Option<&'static str> {
    let spec = |experiment: &Experiment| {
        serde_json::to_value(experiment).ok().map(|spec| deciding(experiment.kind.results(), &spec))
    };
    let wanted = spec(asked)?;
    names().find(|name| experiment(name).is_ok_and(|known| spec(&known).as_ref() == Some(&wanted)))
}

/// What papers print for single points of an experiment, in the units of its columns or as multiples of another point; nothing for one
/// that answers no claim.
///
/// # Errors
/// As [`super::load`].
pub fn published(experiment: &Experiment) -> Result<Vec<Printed>, CliError> {
    let Some(name) = name_of(experiment) else { return Ok(Vec::new()) };
    let mut printed = Vec::new();
    for claim in super::load()?.iter() {
        let Some(binding) = &claim.answered_by else { continue };
        // What a claim compares across experiments has no place in the figure of one.
        let by = binding.experiment.as_deref().filter(|_| binding.beside.is_empty()).unwrap_or_default();
        let own = binding.printed_at().filter(|_| by == name);
        let others = binding.drawn_on.iter().filter(|drawn| drawn.experiment == name).map(|drawn| &drawn.at);
        for at in own.into_iter().chain(others) {
            // The column is the one that answers, whichever experiment's points these are.
            let y = match by == name {
                true => y(binding, experiment),
                false => y(binding, &self::experiment(by)?),
            };
            printed.extend(y.and_then(|y| print(claim, binding, at, y)));
        }
        if by == name {
            printed.extend(y(binding, experiment).and_then(|y| print_of(claim, binding, &y)));
        }
    }
    Ok(printed)
}

/// What a paper prints for points, in the unit of a column.
fn print(claim: &Claim, binding: &Binding, at: &At, y: String) -> Option<Printed> {
    let value = claim.value.num.or(claim.value.hi).or(claim.value.lo)?;
    let value = value / super::evaluate::per_unit(&claim.unit, &y) / binding.times.unwrap_or(1.0);
    Some(Printed { claim: claim.id.clone(), at: axes(at)?, y, value, of: None })
}

/// What a paper prints as a multiple of another point.
fn print_of(claim: &Claim, binding: &Binding, y: &str) -> Option<Printed> {
    let (at, of, value) = binding.printed_of(claim.value.num?)?;
    let y = binding.number.as_ref()?.column(y).to_owned();
    Some(Printed { claim: claim.id.clone(), at: axes(&at)?, y, value, of: Some(axes(&of)?) })
}

fn axes(at: &At) -> Option<BTreeMap<String, serde_json::Value>> {
    at.iter().map(|(axis, pick)| Some((axis.clone(), serde_json::to_value(pick).ok()?))).collect()
}

/// Whether an experiment is of requests alone.
pub fn is_primitive(experiment: &Experiment) -> bool {
    experiment.kind == SpecKind::Primitive
}
