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
                    // Enough to keep the card busy; more would only queue, and take longer to become steady.
                    coroutines: (scope.coroutines / 2).max(2),
                    outstanding: 8,
                    // As short as requests are: at 64 B the link hides a fast engine.
                    payload: 8,
                    servers,
                    ..Point::new("roles", verb)
                });
            }
        }
    }
    let hot = |addresses, coroutines| Point {
        threads: scope.threads,
        coroutines,
        addresses,
        ..Point::new("addresses", BenchVerb::FetchAdd)
    };
    // One word serves a few million a second: two a thread are queue enough.
    points.extend([hot(1, 2), hot(0, scope.coroutines)]);
    points
}
