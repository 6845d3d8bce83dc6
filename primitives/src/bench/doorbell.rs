//! What does one doorbell for many requests save (DrTM+H §3.2, DB)?

use super::{BenchVerb, Point, Scope};

const BATCHES: [u32; 5] = [1, 2, 4, 8, 16];

pub(super) fn points(scope: &Scope) -> Vec<Point> {
    let mut points = Vec::new();
    for verb in [BenchVerb::Read, BenchVerb::Write, BenchVerb::Rpc] {
        for value in scope.sweep(&BATCHES) {
            points.push(Point {
                coroutines: 4,
                outstanding: 16,
                doorbell_batch: value,
                ..Point::new("doorbell", verb)
            });
        }
    }
    points
}
