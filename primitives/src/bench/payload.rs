//! How do rate and latency change with the payload, one-sided against two-sided (DrTM+H fig. 5)?

use super::{BenchVerb, Point, Scope};
use crate::rpc::{HEADER_BYTES, RpcConfig};

const PAYLOADS: [u32; 9] = [8, 16, 64, 128, 256, 512, 1024, 2048, 4096];

/// Message header of an RPC and of the benchmark's own.
const RPC_OVERHEAD: u32 = 64;
/// The largest path MTU of InfiniBand and RoCE, which no datagram exceeds.
pub const DATAGRAM_MOST: u32 = 4096;
/// The largest payload of a call in bytes: it and its headers are one datagram.
pub const CALL_PAYLOAD_MOST: u32 = DATAGRAM_MOST - RPC_OVERHEAD;

pub(super) fn points(scope: &Scope, ud_mtu: u32) -> Vec<Point> {
    let mut points = Vec::new();
    for verb in [BenchVerb::Read, BenchVerb::Write, BenchVerb::Rpc] {
        for payload in scope.sweep(&PAYLOADS) {
            points.push(Point {
                payload: fitting(verb, payload, ud_mtu),
                threads: scope.threads,
                coroutines: scope.coroutines,
                ..Point::new("payload", verb)
            });
        }
    }
    points
}

/// The payload, or what of it fits: a datagram holds at most the path MTU, headers included.
pub(super) fn fitting(verb: BenchVerb, payload: u32, ud_mtu: u32) -> u32 {
    if verb == BenchVerb::Rpc { payload.min(ud_mtu.saturating_sub(RPC_OVERHEAD)) } else { payload }
}

/// RPC buffers for messages that carry `payload` bytes, or a word that asks for them, and no larger: a simulated cluster has a
/// hundred thousands of them.
pub(super) fn rpc_config(payload: u32, base: RpcConfig, ud_mtu: u32) -> RpcConfig {
    RpcConfig { max_message: (payload.max(8).next_multiple_of(8) + HEADER_BYTES).min(ud_mtu), ..base }
}
