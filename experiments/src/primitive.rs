//! One point of a `kind: primitive` experiment, measured.

use std::sync::atomic::{AtomicBool, Ordering};

use primitives::bench::{
    self, BenchVerb, LoadError, ON_CARD_BYTES, Point, Rung, Sample, Scope, most_addresses,
};
use primitives::measure::{PointResult, Row};
use primitives::mesh::{Blame, FabricSpec, LaunchError};
use primitives::verbs::Transport;

use crate::error::CliError;
use crate::fabrics::Fabric;
use crate::schedule::Watch;
use crate::spec::RunSpec;

/// How many times as long as asked for a point of a real fabric is measured at the most, in which nothing ends.
const LONGER_MOST: u64 = 64;

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
    let here = |scope: &Scope, point: &Point| {
        bench::run(fabric, scope, point, spec.seed, stop).map_err(|e| failed(&e))
    };
    measure_by(spec, row, true, stop, here)
}

/// Measures a point by `sample`; `row` has its axes, `alone` says whether all its nodes are in this process.
///
/// # Errors
/// If the spec asks for no requests alone; as `sample`.
pub fn measure_by(
    spec: &RunSpec,
    row: Row,
    alone: bool,
    stop: &AtomicBool,
    mut sample: impl FnMut(&Scope, &Point) -> Result<Sample, CliError>,
) -> Result<PointResult, CliError> {
    let asked =
        spec.primitive.as_ref().ok_or_else(|| CliError::check("a run of transactions, not of requests"))?;
    let (scope, point) = asked.point(spec).map_err(CliError::usage)?;
    let real_time = !spec.fabric.virtual_time();
    let watch = Watch::begin(!real_time, alone);
    let (mut scope, longest) = (scope, scope.window.0.saturating_mul(LONGER_MOST));
    let sample = loop {
        let sample = sample(&scope, &point)?;
        // A busy machine may let nothing end, which says nothing of the point.
        if sample.ops > 0 || !real_time || scope.window.0 >= longest || stop.load(Ordering::Relaxed) {
            break sample;
        }
        scope.window.0 = scope.window.0.saturating_mul(4);
    };
    let disturbance = watch.end();
    let servers = point.asked(&scope);
    let virtual_time = sample.facts.events > 0;
    let row = disturbance
        .told(in_effect(sampled(row, &point, &sample), &point))
        .with("fabric", spec.fabric.to_string())
        .with("verb", asked.verb.as_str())
        .with("nodes", scope.nodes)
        .with("servers", servers)
        .with("context", asked.context.as_str())
        .with("peers", asked.peers.as_str())
        .with("transport", asked.transport.as_str())
        .with("reply", asked.reply.as_str())
        .with("loop", asked.asker.as_str())
        .with("queue_pairs_per_node", sample.queue_pairs as f64 / f64::from(scope.nodes))
        .with("rate_per_server_per_s", rate(&sample).map(|rate| rate / f64::from(servers)))
        .with("events", virtual_time.then_some(sample.facts.events))
        .with("virtual_ns", virtual_time.then_some(sample.facts.virtual_time));
    Ok(PointResult { row, histogram: Some(sample.latency.clone()), ..PointResult::default() })
}

/// What a point's row says of its verb: on the ladder of optimizations, on which side its operations are.
pub fn verb_of(point: &Point) -> &'static str {
    let two_sided = matches!(point.verb, BenchVerb::Rpc | BenchVerb::RpcWrite);
    match point.rung {
        Some(_) if two_sided => "two-sided",
        Some(_) => "one-sided",
        None => point.verb.name(),
    }
}

/// The row with those settings that some verbs do not know, as they were in effect: a grid may hold verbs to which another axis makes
/// no difference, whose value stands in the column of the axis.
fn in_effect(row: Row, point: &Point) -> Row {
    let message = point.verb.is_message();
    // Only what returns nothing need not be awaited, and then nothing else is posted. On the ladder the step decides.
    let unawaited = point.rung.map_or(point.passive, |rung| rung == Rung::PassiveAck);
    let passive = unawaited && point.verb == BenchVerb::Write;
    let mixed = matches!(point.verb, BenchVerb::Read | BenchVerb::Write) && !passive;
    row.with("memory", if point.on_card && !message { "card" } else { "host" })
        .with("ack", if passive { "passive" } else { "awaited" })
        .with("atomics_percent", if mixed { point.atomics_percent } else { 0 })
        .with("addresses", (point.addresses > 0 && !message).then_some(point.addresses))
}

/// Refuses what a fabric cannot be asked for, with the keys that say so.
///
/// # Errors
/// If its card takes messages only and the verb is one-sided, or has too little memory of its own, or the spec has names that are none.
pub fn admit(spec: &RunSpec, fabric: &Fabric) -> Result<(), (&'static [&'static str], CliError)> {
    let over = |keys: &'static [&'static str]| move |error: CliError| (keys, error);
    let Some(asked) = &spec.primitive else { return Ok(()) };
    let (_, point) = asked.point(spec).map_err(CliError::usage).map_err(over(&["verb"]))?;
    let caps = fabric.caps().map_err(over(&["fabric"]))?;
    if point.bare && caps.virtual_time {
        let why =
            format!("loop: bare is of real time, and {} prices what coroutines and ports do", spec.fabric);
        return Err((&["loop", "fabric"], CliError::usage(why).hint("loop: coroutines asks there")));
    }
    if point.bare && !caps.one_sided {
        let why = format!("loop: bare needs reliable connections, which {} does not have", spec.fabric);
        return Err((&["loop", "fabric"], CliError::usage(why).hint("loop: coroutines asks there")));
    }
    let datagrams = point.verb == BenchVerb::Send && point.transport == Transport::Ud;
    if datagrams && point.payload > caps.ud_mtu {
        let why =
            format!("a datagram carries at most {} B on {}, not {}", caps.ud_mtu, spec.fabric, point.payload);
        return Err((&["payload", "transport", "fabric"], CliError::usage(why)));
    }
    if point.verb == BenchVerb::Send && !datagrams && !caps.one_sided {
        let why = format!("{} makes no connections of one queue pair and another", spec.fabric);
        return Err((&["transport", "fabric"], CliError::usage(why).hint("it has datagrams: transport: ud")));
    }
    let on_the_card =
        !matches!(point.verb, BenchVerb::Send | BenchVerb::Rpc | BenchVerb::RpcWrite | BenchVerb::CpuCas);
    if on_the_card && !caps.one_sided {
        let how = if point.verb.carrier().is_some() { "is made of one-sided verbs" } else { "is one-sided" };
        let why = format!("{} takes messages only, and {} {how}", spec.fabric, asked.verb);
        return Err((
            &["verb", "fabric"],
            CliError::usage(why).hint("its verbs are rpc, rpc-write, and send with transport: ud"),
        ));
    }
    let has = match &fabric.spec {
        FabricSpec::Sim { profile, .. } => profile.nic.on_card_memory.value as u64,
        // No other fabric has a card whose memory could be asked for.
        _ => 0,
    };
    let most = most_addresses(&point);
    if u64::from(point.addresses) > most {
        let why = format!(
            "{} addresses of {} B are not there: of {} memory {most} are asked for",
            point.addresses,
            point.payload,
            if point.on_card { "the card's" } else { "a node's" }
        );
        return Err((
            &["addresses", "memory", "payload"],
            CliError::usage(why).hint("addresses: 0 takes as many as there are"),
        ));
    }
    if point.on_card && has < ON_CARD_BYTES {
        let why = format!("{} has {has} B of memory on its card, {ON_CARD_BYTES} are needed", spec.fabric);
        return Err((&["memory", "fabric"], CliError::usage(why)));
    }
    Ok(())
}

/// Why there is no sample, for people.
pub fn failed(error: &LoadError) -> CliError {
    match error {
        // By whoever interrupts it: nobody else does.
        LoadError::Launch(LaunchError::Cancelled) => CliError::interrupted(),
        _ => {
            let (blame, what) = match error.blame() {
                Blame::Run => (Blame::Run, "the benchmark failed"),
                other => (other, "the benchmark cannot be set up"),
            };
            CliError::new(blame.into(), what).caused_by(error)
        }
    }
}

/// Operations per second. Nothing ended in the window: that is no measurement, and certainly not zero.
fn rate(sample: &Sample) -> Option<f64> {
    (sample.ops > 0).then(|| sample.rate_per_s())
}

/// The cells that every measured load of requests has: what was asked for, and what came back.
pub fn sampled(row: Row, point: &Point, sample: &Sample) -> Row {
    row.with("payload_bytes", point.payload)
        .with("threads", point.threads)
        .with("coroutines", point.coroutines)
        .with("outstanding", point.outstanding)
        .with("doorbell_batch", point.doorbell_batch)
        .with("signal_period", point.signal_period)
        .with("queue_pairs", point.queue_pairs)
        .with("addresses", (point.addresses > 0).then_some(point.addresses))
        .with("optimizations", point.rung.map_or("", |rung| rung.name()))
        .with("ops", sample.ops)
        .with("rate_per_s", rate(sample))
        .with("device_rate_per_s", sample.device_rate_per_s)
        .with("latency_min_ns", sample.latency.min())
        .with_latency(&sample.latency)
        .with("latency_mean_ns", sample.latency.mean_ns())
        .with("latency_max_ns", sample.latency.max())
        .with("goodput_gb_per_s", (sample.ops > 0).then(|| sample.goodput_gb_per_s(point)))
        .with("doorbells_per_op", (sample.ops_total > 0).then(|| sample.doorbells_per_op()))
        .with_steadiness(&sample.steadiness)
        .with_too_short(sample.too_short)
}

#[cfg(test)]
mod tests {
    use super::*;
    use primitives::fabric::SetupError;

    #[test]
    fn a_row_says_what_was_in_effect() {
        let told = |verb, rung| {
            let all = Point {
                addresses: 8,
                on_card: true,
                passive: true,
                atomics_percent: 5,
                rung,
                ..Point::new("test", verb)
            };
            let cells = |point: &Point| {
                let row = in_effect(Row::new(), point);
                ["memory", "ack", "atomics_percent", "addresses"]
                    .map(|column| row.get(column).unwrap_or_default().to_owned())
            };
            (cells(&all), cells(&Point { passive: false, ..all.clone() }))
        };
        assert_eq!(told(BenchVerb::Write, None).0, ["card", "passive", "0", "8"]);
        assert_eq!(told(BenchVerb::Write, None).1, ["card", "awaited", "5", "8"]);
        assert_eq!(told(BenchVerb::Read, None).0, ["card", "awaited", "5", "8"]);
        assert_eq!(told(BenchVerb::Cas, None).0, ["card", "awaited", "0", "8"]);
        assert_eq!(told(BenchVerb::Rpc, None).0, ["host", "awaited", "0", ""]);
        assert_eq!(told(BenchVerb::Write, Some(Rung::PassiveAck)).1[1..3], ["passive", "0"]);
        assert_eq!(told(BenchVerb::Write, Some(Rung::Doorbell)).0[1..3], ["awaited", "5"]);
    }

    /// Memory that may not be locked is what comes to most people first.
    #[test]
    fn what_the_machine_lacks_is_told_from_what_failed_and_from_an_interrupt() {
        let (call, device) = ("ibv_reg_mr", "rxe0".to_owned());
        let (reason, hint) = ("Cannot allocate memory".to_owned(), ": `ulimit -l unlimited`".to_owned());
        let lacks = LaunchError::Shared(SetupError::Device { call, device, reason, hint });
        let shown = failed(&LoadError::Launch(lacks));
        let text = shown.render(false);
        assert_eq!(shown.exit().code(), 3, "{text}");
        assert!(text.contains("ulimit -l unlimited") && !text.contains("cluster"), "{text}");
        let invalid = LaunchError::Shared(SetupError::Invalid("no such queue pair".into()));
        assert_eq!(failed(&LoadError::Launch(invalid)).exit().code(), 2);
        assert_eq!(failed(&LoadError::Nodes(1)).exit().code(), 2);
        assert_eq!(failed(&LoadError::Request("no".into())).exit().code(), 1);
        assert_eq!(failed(&LoadError::Launch(LaunchError::Cancelled)).exit().code(), 130);
    }
}
