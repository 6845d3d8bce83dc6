//! What does a NIC do as the one that asks, and what as the one that is asked? And how fast is one word?
//!
//! Where all ask all, only the sum of both roles shows. One node asked by all others shows the responder; one that asks
//! all others shows the requester, with requests enough under each doorbell that its CPU is not what limits it.

use super::{BenchVerb, Point, Scope};

pub(super) fn points(scope: &Scope) -> Vec<Point> {
    let mut points = Vec::new();
    // Two nodes have one pair of roles, and cannot tell which of them is the slower.
    if scope.nodes >= 3 {
        for verb in [BenchVerb::Read, BenchVerb::Write, BenchVerb::Rpc] {
            for servers in [1, scope.nodes - 1] {
                points.push(Point {
                    threads: scope.threads,
                    coroutines: scope.coroutines,
                    outstanding: 8,
                    servers,
                    ..Point::new("roles", verb)
                });
            }
        }
    }
    let hot = |addresses| Point {
        threads: scope.threads,
        coroutines: scope.coroutines,
        addresses,
        ..Point::new("addresses", BenchVerb::FetchAdd)
    };
    points.extend([hot(1), hot(0)]);
    points
}
