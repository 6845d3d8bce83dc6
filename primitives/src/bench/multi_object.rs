//! What does each optimization add, when a transaction reads or writes ten objects (DrTM+H §4.2, fig. 6)?
//!
//! An operation reads or writes [`OBJECTS`] objects of 64 B at drawn nodes. The rungs are cumulative: one
//! coroutine asking for one object after the other (base), several coroutines, all objects of an operation in
//! flight together, one doorbell for all requests of one queue pair, and, for writes, completions that nobody waits
//! for. Rates count operations, not objects.

use super::{BenchVerb, Point, Scope};

/// Objects per operation.
pub const OBJECTS: u32 = 10;

/// A step of the ladder; each includes those before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rung {
    /// One coroutine, one request at a time, each signaled, a doorbell each.
    Base,
    /// Several coroutines.
    Coroutines,
    /// All requests of an operation in flight together.
    Outstanding,
    /// One doorbell per queue pair and operation.
    Doorbell,
    /// Nobody waits: unsignaled WRITEs, one-way requests. READs and calls for data are awaited all the same.
    PassiveAck,
}

impl Rung {
    /// The rung's name in result files.
    pub fn name(self) -> &'static str {
        match self {
            Rung::Base => "base",
            Rung::Coroutines => "+coroutines",
            Rung::Outstanding => "+outstanding",
            Rung::Doorbell => "+doorbell",
            Rung::PassiveAck => "+passive-ack",
        }
    }
}

impl Rung {
    /// Every rung, from the lowest.
    pub const ALL: [Rung; 5] =
        [Rung::Base, Rung::Coroutines, Rung::Outstanding, Rung::Doorbell, Rung::PassiveAck];

    /// The point of this rung: what it and those below switch on.
    pub fn point(self, question: &'static str, verb: BenchVerb, threads: u16, coroutines: u32) -> Point {
        Point {
            payload: 64,
            threads,
            coroutines: if self >= Rung::Coroutines { coroutines } else { 1 },
            outstanding: if self >= Rung::Outstanding { OBJECTS } else { 1 },
            doorbell_batch: if self >= Rung::Doorbell { 32 } else { 1 },
            // Until a chain shares a doorbell, each request is signaled, as in the authors' micro-benchmarks.
            signal_period: if self >= Rung::Doorbell { 32 } else { 1 },
            rung: Some(self),
            ..Point::new(question, verb)
        }
    }
}

const READ_RUNGS: [Rung; 4] = [Rung::Base, Rung::Coroutines, Rung::Outstanding, Rung::Doorbell];
const WRITE_RUNGS: [Rung; 5] =
    [Rung::Base, Rung::Coroutines, Rung::Outstanding, Rung::Doorbell, Rung::PassiveAck];

pub(super) fn points(scope: &Scope) -> Vec<Point> {
    let rung_point = |question, verb, rung: Rung| rung.point(question, verb, scope.threads, scope.coroutines);
    let mut points = Vec::new();
    for verb in [BenchVerb::Read, BenchVerb::Rpc] {
        points.extend(READ_RUNGS.map(|rung| rung_point("ladder-read", verb, rung)));
    }
    for verb in [BenchVerb::Write, BenchVerb::RpcWrite] {
        points.extend(WRITE_RUNGS.map(|rung| rung_point("ladder-write", verb, rung)));
    }
    points
}
