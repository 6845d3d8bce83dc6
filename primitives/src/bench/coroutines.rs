//! How many coroutines does it take to hide the network's latency (DrTM+H §3.2, CO)?

use super::{BenchVerb, Point, Scope};

const COROUTINES: [u32; 7] = [1, 2, 4, 8, 16, 32, 64];

pub(super) fn points(scope: &Scope) -> Vec<Point> {
    let mut points = Vec::new();
    for verb in BenchVerb::ALL {
        for value in scope.sweep(&COROUTINES) {
            points.push(Point {
                threads: scope.threads,
                coroutines: value,
                ..Point::new("coroutines", verb)
            });
        }
    }
    points
}
