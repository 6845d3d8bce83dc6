//! What do several requests in flight per coroutine give (DrTM+H §3.2, OR)?

use super::{BenchVerb, Point, Scope};

const OUTSTANDING: [u32; 5] = [1, 2, 4, 8, 16];

pub(super) fn points(scope: &Scope) -> Vec<Point> {
    let mut points = Vec::new();
    for verb in [BenchVerb::Read, BenchVerb::Write, BenchVerb::Rpc] {
        for value in scope.sweep(&OUTSTANDING) {
            points.push(Point {
                threads: scope.threads,
                coroutines: 4,
                outstanding: value,
                ..Point::new("outstanding", verb)
            });
        }
    }
    points
}
