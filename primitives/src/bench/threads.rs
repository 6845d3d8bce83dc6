//! How does the rate grow with threads per node?

use super::{BenchVerb, Point, Scope};

/// Thread counts up to that of the scope, doubling; on a real fabric more threads than CPUs only take turns.
pub(super) fn points(scope: &Scope) -> Vec<Point> {
    let mut counts: Vec<u16> =
        std::iter::successors(Some(1u16), |n| n.checked_mul(2)).take_while(|&n| n < scope.threads).collect();
    counts.push(scope.threads);
    let mut points = Vec::new();
    for verb in [BenchVerb::Read, BenchVerb::Write, BenchVerb::Rpc] {
        for &threads in &counts {
            points.push(Point { threads, coroutines: scope.coroutines, ..Point::new("threads", verb) });
        }
    }
    points
}
