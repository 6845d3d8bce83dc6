//! Which points of a characterization tell the numbers of a card.
//!
//! A profile is fitted to a card by simulating these points and moving the numbers until they answer as the card did
//! (`doorbell calibrate --from`). Each is here because something shows in it alone:
//!
//! | question | what shows |
//! |---|---|
//! | `latency` | fixed delays: passes through the NIC, acknowledgement, memory; by payload the link |
//! | `doorbell`, `signal` | the core's cost of doorbell, request and completion |
//! | `payload` | link and PCIe, at the largest payload |
//! | `outstanding` | both roles at once, at the most requests in flight; with many threads, the cache of work requests |
//! | `roles` | the engine's time as requester and as responder |
//! | `addresses` | the atomic unit on one word and on many |
//! | `queue-pairs` | what a context miss costs, at the most queue pairs |

use super::{BenchVerb, Point};

/// What of a point is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shows {
    /// Operations per second.
    Rate,
    /// Median latency.
    Latency,
}

impl Shows {
    /// The column of result files.
    pub fn column(self) -> &'static str {
        match self {
            Shows::Rate => "rate_per_s",
            Shows::Latency => "latency_p50_ns",
        }
    }
}

/// The points to compare, by their place in `points`.
pub fn identifying(points: &[Point]) -> Vec<(usize, Shows)> {
    let same = |a: &Point, b: &Point| a.question == b.question && a.verb == b.verb;
    let chosen = |at: usize, point: &Point| {
        let first = !points[..at].iter().any(|p| same(p, point));
        let last = !points[at + 1..].iter().any(|p| same(p, point));
        match point.question {
            "latency" if point.verb == BenchVerb::Rpc => first.then_some(Shows::Latency),
            "latency" => (first || last).then_some(Shows::Latency),
            "doorbell" | "signal" => (first || last).then_some(Shows::Rate),
            // Where calls of a packet each limit is the copying, not the link.
            "payload" => (last && point.verb == BenchVerb::Read).then_some(Shows::Rate),
            "outstanding" if point.verb != BenchVerb::Rpc => last.then_some(Shows::Rate),
            "queue-pairs" => last.then_some(Shows::Rate),
            "roles" | "addresses" => Some(Shows::Rate),
            _ => None,
        }
    };
    points.iter().enumerate().filter_map(|(at, point)| Some((at, chosen(at, point)?))).collect()
}
