//! A point measured by processes: each runs the load on its own node, node 0 adds up what they bring back.

use super::admit::{LoadError, check};
use super::load::{ClosedLoad, judge, worker_config};
use super::sample::{Counted, Sample};
use super::{Point, Scope};
use crate::measure::{Histogram, HistogramData, Steadiness};
use crate::mesh::{FabricSpec, LaunchError, MeshError, Session, Shape, launch_member};
use crate::verbs::NodeId;
use crate::verbs::port::Traffic;
use std::sync::atomic::{AtomicBool, Ordering};

/// What one process measured, as it travels to node 0.
#[derive(serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Share {
    ops: u64,
    ops_total: u64,
    device_rate_per_s: Option<f64>,
    latency: HistogramData,
    traffic: Traffic,
    queue_pairs: u64,
    instructions_per_op: Result<f64, String>,
}

impl From<&Sample> for Share {
    fn from(sample: &Sample) -> Share {
        let &Sample { ops, ops_total, device_rate_per_s, ref latency, traffic, queue_pairs, .. } = sample;
        let instructions_per_op = sample.instructions_per_op.clone();
        let latency = latency.to_data();
        Share { ops, ops_total, device_rate_per_s, latency, traffic, queue_pairs, instructions_per_op }
    }
}

impl TryFrom<Share> for Counted {
    type Error = String;

    fn try_from(share: Share) -> Result<Counted, String> {
        let Share { ops, ops_total, device_rate_per_s, latency, traffic, queue_pairs, instructions_per_op } =
            share;
        let device_rate_per_s = device_rate_per_s.filter(|rate| *rate >= 0.0);
        let instructions = instructions_per_op.map(|each| each * ops_total as f64);
        let latency = Histogram::from_data(&latency)?;
        Ok(Counted { ops, ops_total, device_rate_per_s, latency, traffic, queue_pairs, instructions })
    }
}

/// Runs this process's node of a point that all members of `session` measure together; scope, point and seed are the same
/// for all. Node 0 gets the sum of the shares. What it says of steadiness has no interval: each process counts by itself.
///
/// # Errors
/// As [`super::run`]; a node that is lost or gives up is an error too.
pub fn run_member(
    fabric: &FabricSpec,
    session: &mut Session,
    scope: &Scope,
    point: &Point,
    seed: u64,
    stop: &AtomicBool,
) -> Result<Option<Sample>, LoadError> {
    let measured = measure(fabric, session, scope, point, seed, stop);
    let sample = measured.inspect_err(|error| session.fail(&error.to_string(), error.blame()))?;
    let share = Share::from(&sample);
    let mesh = |error: MeshError| LoadError::Launch(error.into());
    // Numbers always have a JSON form.
    let bytes = serde_json::to_vec(&share).unwrap_or_default();
    let enough = || stop.load(Ordering::Relaxed);
    let Some(gathered) = session.gather_unless("results", bytes, &enough).map_err(mesh)? else {
        return Ok(None);
    };
    let all = gathered.whole().map_err(mesh)?;
    let mut whole = Counted::default();
    for (node, bytes) in all.iter().enumerate() {
        let unfit = |what: String| MeshError::Unfit { node: NodeId(node as u16), what };
        let share: Share = serde_json::from_slice(bytes).map_err(|e| mesh(unfit(e.to_string())))?;
        whole.add(&Counted::try_from(share).map_err(|e| mesh(unfit(e)))?);
    }
    let steadiness = Steadiness { means: None, settled: None, ..sample.steadiness };
    Ok(Some(whole.sample(point, scope, steadiness, sample.facts)))
}

fn measure(
    fabric: &FabricSpec,
    session: &mut Session,
    scope: &Scope,
    point: &Point,
    seed: u64,
    stop: &AtomicBool,
) -> Result<Sample, LoadError> {
    check(scope, point)?;
    let shape = Shape { nodes: scope.nodes, workers: point.threads };
    let load = ClosedLoad { point, scope, seed, stop };
    let (outputs, facts) = launch_member(fabric, session, shape, &worker_config(point), &load)?;
    match &facts.cut_short {
        Some(error) => Err(LoadError::Launch(LaunchError::Mesh(error.clone()))),
        None => judge(outputs, facts, scope, point),
    }
}
