//! One point of a `kind: primitive` experiment, measured.

use std::sync::atomic::AtomicBool;

use primitives::bench;
use primitives::measure::{PointResult, Row};
use primitives::mesh::FabricSpec;

use crate::error::CliError;
use crate::spec::RunSpec;

/// Measures a point on a fabric; `row` has its axes.
///
/// # Errors
/// If the spec asks for no requests alone, the cluster cannot be set up, or a request fails.
pub fn measure(
    spec: &RunSpec,
    fabric: &FabricSpec,
    row: Row,
    stop: &AtomicBool,
) -> Result<PointResult, CliError> {
    let asked =
        spec.primitive.as_ref().ok_or_else(|| CliError::check("a run of transactions, not of requests"))?;
    let (scope, point) = asked.point(spec).map_err(CliError::usage)?;
    let sample = bench::run(fabric, &scope, &point, spec.seed, stop)
        .map_err(|e| CliError::check("the benchmark failed").caused_by(&e))?;
    let servers = point.asked(&scope);
    let latency = &sample.latency;
    // Nothing ended in the window: that is no measurement, and certainly not zero.
    let rate = (sample.ops > 0).then(|| sample.rate_per_s());
    let virtual_time = sample.facts.events > 0;
    let row = row
        .with("fabric", spec.fabric.to_string())
        .with("verb", asked.verb.as_str())
        .with("payload_bytes", point.payload)
        .with("nodes", scope.nodes)
        .with("servers", servers)
        .with("threads", point.threads)
        .with("coroutines", point.coroutines)
        .with("outstanding", point.outstanding)
        .with("doorbell_batch", point.doorbell_batch)
        .with("signal_period", point.signal_period)
        .with("queue_pairs", point.queue_pairs)
        .with("addresses", (point.addresses > 0).then_some(point.addresses))
        .with("memory", asked.memory.as_str())
        .with("context", asked.context.as_str())
        .with("ack", asked.ack.as_str())
        .with("atomics_percent", point.atomics_percent)
        .with("optimizations", point.rung.map_or("", |rung| rung.name()))
        .with("ops", sample.ops)
        .with("rate_per_s", rate)
        .with("rate_per_server_per_s", rate.map(|rate| rate / f64::from(servers)))
        .with("latency_min_ns", latency.min())
        .with("latency_p50_ns", latency.p50())
        .with("latency_p90_ns", latency.p90())
        .with("latency_p99_ns", latency.p99())
        .with("latency_p999_ns", latency.p999())
        .with("latency_mean_ns", latency.mean_ns())
        .with("latency_max_ns", latency.max())
        .with("goodput_gb_per_s", rate.map(|_| sample.goodput_gb_per_s(&point)))
        .with("doorbells_per_op", (sample.ops_total > 0).then(|| sample.doorbells_per_op()))
        .with("events", virtual_time.then_some(sample.facts.events))
        .with("virtual_ns", virtual_time.then_some(sample.facts.virtual_time))
        .with_steadiness(&sample.steadiness);
    Ok(PointResult { row, histogram: Some(sample.latency.clone()), ..PointResult::default() })
}
