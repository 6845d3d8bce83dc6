//! What measuring a point will hold in memory, told before any of it is allocated.

use super::load::{target_bytes, worker_config};
use super::{OBJECTS, Point, Scope};
use crate::verbs::NodeId;

/// A coroutine of the load, with its generator.
const COROUTINE: u64 = 2_048;

/// Bytes that measuring `point` holds at its peak, roughly and rather more than less: the memory that requests go to, and
/// what each worker has for its queue pairs, messages, buffers and coroutines. `virtual_time`: a simulated fabric, which
/// makes room in its queues only when they fill.
pub fn memory_estimate(virtual_time: bool, scope: &Scope, point: &Point) -> u64 {
    let config = worker_config(point);
    // Servers ask nobody.
    let groups = [(0, config.servers, 0), (config.servers, scope.nodes, point.coroutines)];
    let workers = groups.into_iter().filter(|(from, to, _)| from < to).map(|(from, to, coroutines)| {
        let reach = config.reach(NodeId(from), scope.nodes);
        let each = worker_estimate(virtual_time, point, reach, coroutines);
        (u64::from(to - from) * u64::from(point.threads)).saturating_mul(each)
    });
    let targets = (0..scope.nodes).map(|node| target_bytes(scope, point, NodeId(node)));
    workers.chain(targets).fold(0, u64::saturating_add)
}

/// Bytes of one worker that reaches so many nodes with so many coroutines.
fn worker_estimate(virtual_time: bool, point: &Point, reach: u16, coroutines: u32) -> u64 {
    // A step of the optimization ladder asks for so many objects whatever else it is told.
    let objects = if point.rung.is_some() || point.verb.oracle().is_some() { OBJECTS } else { 1 };
    let requests = match coroutines {
        0 => 0,
        // Unawaited requests fill every queue; others cannot be more than are asked for.
        _ if point.unawaited() => u64::MAX,
        _ => u64::from(coroutines) * u64::from(point.outstanding.max(objects)),
    };
    worker_config(point).memory_estimate(virtual_time, reach, requests, point.payload)
        + u64::from(coroutines) * COROUTINE
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::BenchVerb;
    use crate::units::Nanos;

    fn estimate(nodes: u16, threads: u16, coroutines: u32) -> u64 {
        of(BenchVerb::Rpc, nodes, threads, coroutines)
    }

    fn of(verb: BenchVerb, nodes: u16, threads: u16, coroutines: u32) -> u64 {
        bytes(nodes, &Point { threads, coroutines, outstanding: 10, ..Point::new("test", verb) })
    }

    fn asking(servers: u16, verb: BenchVerb, nodes: u16) -> u64 {
        bytes(nodes, &Point { servers, ..Point::new("test", verb) })
    }

    fn bytes(nodes: u16, point: &Point) -> u64 {
        let window = Nanos::from_micros(100);
        let Point { threads, coroutines, .. } = *point;
        let scope = Scope {
            nodes,
            threads,
            coroutines,
            quick: false,
            warm_up: window,
            window,
            precision: None,
            most: None,
        };
        memory_estimate(true, &scope, point)
    }

    #[test]
    fn it_grows_with_all_that_is_asked_for_and_never_wraps() {
        let usual = estimate(16, 12, 8);
        assert!((64 << 20..8 << 30).contains(&usual), "{usual}");
        assert!(estimate(32, 12, 8) > 2 * usual, "messages are kept for every peer");
        assert!(estimate(16, 24, 8) > 3 * usual / 2 && estimate(16, 12, 4096) > usual);
        assert!(of(BenchVerb::Read, 32, 12, 8) < usual, "who never calls keeps next to none");
        assert!(asking(1, BenchVerb::Read, 4096) < 2 << 30, "of which all ask one");
        assert!(asking(0, BenchVerb::Read, 4096) > 16 << 30, "where all ask all");
        let one = Point { threads: 1, coroutines: 1, outstanding: 1, ..Point::new("test", BenchVerb::Read) };
        let long = Point { servers: 1, payload: 1 << 20, ..one };
        let each = bytes(4096, &long) / 4096;
        assert!((1 << 20..4 << 20).contains(&each), "of 1 MiB each asks for one: {each} B");
        for verb in
            [BenchVerb::Send, BenchVerb::RpcTwoWrites, BenchVerb::RpcWriteImm, BenchVerb::RpcWriteSend]
        {
            assert!(asking(1, verb, 4096) < 4 << 30, "{verb:?}: who asks has receives and rings for one");
            assert!(asking(0, verb, 4096) > 16 << 30, "{verb:?}");
        }
        assert!(estimate(u16::MAX, u16::MAX, u32::MAX) > 1 << 50);
    }
}
