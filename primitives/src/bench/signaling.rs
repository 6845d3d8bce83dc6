//! What do unsignaled requests save?

use super::{BenchVerb, Point, Scope};

const PERIODS: [u32; 5] = [1, 4, 16, 32, 64];

pub(super) fn points(scope: &Scope) -> Vec<Point> {
    let mut points = Vec::new();
    for verb in [BenchVerb::Write] {
        for value in scope.sweep(&PERIODS) {
            points.push(Point {
                coroutines: 4,
                outstanding: 16,
                signal_period: value,
                ..Point::new("signal", verb)
            });
        }
    }
    points
}
