//! How long does one request take when nothing else is in flight, by payload?

use super::{BenchVerb, Point, Scope, payload};

const PAYLOADS: [u32; 5] = [8, 32, 64, 512, 4096];

pub(super) fn points(scope: &Scope, ud_mtu: u32) -> Vec<Point> {
    let mut points = Vec::new();
    for verb in BenchVerb::ALL {
        let payloads = if verb.fixed_size() { vec![8] } else { scope.sweep(&PAYLOADS) };
        points.extend(payloads.into_iter().map(|payload| Point {
            payload: payload::fitting(verb, payload, ud_mtu),
            coroutines: 1,
            doorbell_batch: 1,
            signal_period: 1,
            ..Point::new("latency", verb)
        }));
    }
    points
}
