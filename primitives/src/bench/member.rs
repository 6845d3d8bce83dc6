//! A point measured by processes: each runs the load on its own node, node 0 adds up what they bring back.

use super::load::{ClosedLoad, LoadError, Sample, check, judge, worker_config};
use super::{Point, Scope};
use crate::measure::{Histogram, HistogramData};
use crate::mesh::{FabricSpec, LaunchError, MeshError, Session, Shape, launch_member};
use crate::verbs::NodeId;
use crate::verbs::port::Traffic;
use std::sync::atomic::AtomicBool;

/// What one process measured, as it travels to node 0.
#[derive(serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Share {
    ops: u64,
    ops_total: u64,
    latency: HistogramData,
    traffic: Traffic,
    queue_pairs: u64,
    instructions_per_op: Result<f64, String>,
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
    let sample = measured.inspect_err(|error| session.fail(&error.to_string()))?;
    let share = Share {
        ops: sample.ops,
        ops_total: sample.ops_total,
        latency: sample.latency.to_data(),
        traffic: sample.traffic,
        queue_pairs: sample.queue_pairs,
        instructions_per_op: sample.instructions_per_op.clone(),
    };
    let mesh = |error: MeshError| LoadError::Launch(error.into());
    // Numbers always have a JSON form.
    let bytes = serde_json::to_vec(&share).unwrap_or_default();
    let Some(all) = session.gather("results", bytes).map_err(mesh)? else { return Ok(None) };
    let mut whole = Sample {
        ops: 0,
        ops_total: 0,
        latency: Histogram::new(),
        traffic: Traffic::default(),
        queue_pairs: 0,
        instructions_per_op: Ok(0.0),
        ..sample
    };
    whole.steadiness.means = None;
    for (node, bytes) in all.iter().enumerate() {
        let unfit = |what: String| MeshError::Unfit { node: NodeId(node as u16), what };
        let share: Share = serde_json::from_slice(bytes).map_err(|e| mesh(unfit(e.to_string())))?;
        let latency = Histogram::from_data(&share.latency).map_err(|e| mesh(unfit(e)))?;
        whole.instructions_per_op = match (whole.instructions_per_op, share.instructions_per_op) {
            // As many times as there were operations; divided below.
            (Ok(sum), Ok(each)) => Ok(sum + each * share.ops_total as f64),
            (Err(why), _) | (_, Err(why)) => Err(why),
        };
        whole.ops = whole.ops.saturating_add(share.ops);
        whole.ops_total = whole.ops_total.saturating_add(share.ops_total);
        whole.latency.merge(&latency);
        whole.traffic.add(&share.traffic);
        whole.queue_pairs = whole.queue_pairs.saturating_add(share.queue_pairs);
    }
    whole.instructions_per_op = whole.instructions_per_op.map(|sum| sum / whole.ops_total.max(1) as f64);
    Ok(Some(whole))
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
        None => judge(outputs, facts, scope),
    }
}
