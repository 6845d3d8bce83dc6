//! What do more queue pairs per peer cost, as a larger cluster would need them (DrTM+H §4.2)?

use super::{BenchVerb, Point, Scope};

const QUEUE_PAIRS: [u32; 5] = [1, 2, 5, 16, 32];

pub(super) fn points(scope: &Scope) -> Vec<Point> {
    let mut points = Vec::new();
    for verb in [BenchVerb::Read, BenchVerb::Write] {
        for value in scope.sweep(&QUEUE_PAIRS) {
            points.push(Point {
                threads: scope.threads,
                coroutines: scope.coroutines,
                queue_pairs: value,
                ..Point::new("queue-pairs", verb)
            });
        }
    }
    points
}
