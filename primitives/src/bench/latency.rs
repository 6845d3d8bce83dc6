//! How long does one small request take when nothing else is in flight?

use super::{BenchVerb, Point, Scope};

pub(super) fn points(_: &Scope) -> Vec<Point> {
    let alone = |verb| Point {
        payload: 8,
        coroutines: 1,
        doorbell_batch: 1,
        signal_period: 1,
        ..Point::new("latency", verb)
    };
    BenchVerb::ALL.into_iter().map(alone).collect()
}
