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
    /// One coroutine, one request at a time, a doorbell each.
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
            signal_period: if self.signals_each(verb) { 1 } else { 32 },
            rung: Some(self),
            ..Point::new(question, verb)
        }
    }

    /// Whether each request is signaled. The text (§3.2) says of passive ACK alone that it leaves WRITEs unsignaled; in the authors' program
    /// (SJTU-IPADS/drtmh, `src/app/micro_benches/micro_rdma.cc`) each request is signaled until a chain shares a doorbell, and of a chain the
    /// last one. Of the SENDs of calls it signals one in many at every step (`third_party/libRDMA/src/ud_msg.cc`).
    fn signals_each(self, verb: BenchVerb) -> bool {
        !verb.is_message() && self < Rung::Doorbell
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_each_signaled_until_a_chain_shares_a_doorbell_and_sends_of_calls_never() {
        let periods = |verb| Rung::ALL.map(|rung| rung.point("ladder", verb, 1, 8).signal_period);
        for verb in [BenchVerb::Read, BenchVerb::Write] {
            assert_eq!(periods(verb), [1, 1, 1, 32, 32], "{verb:?}");
        }
        assert_eq!((periods(BenchVerb::Rpc), periods(BenchVerb::RpcWrite)), ([32; 5], [32; 5]));
    }
}
