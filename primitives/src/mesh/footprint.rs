//! What a worker will hold in memory, told before any of it is allocated.

use super::WorkerConfig;
use crate::verbs::QpConfig;

/// A connected queue pair at rest: its state on both sides of the port, its address on the card, its places in lists.
const QUEUE_PAIR: u64 = 640;
/// A place in a send queue: what the port keeps of a request, and the request itself where it may have to wait.
const SEND_PLACE: u64 = 8;
const BACKLOG_PLACE: u64 = 80;
/// A place for a receive: the request, and its arrival in the endpoint's inbox.
const RECEIVE: u64 = 96;
/// One side of a session; for each place of its window a kept request, a kept reply, and two that wait.
const SESSION: u64 = 300;
const WINDOW_PLACE: u64 = 160;
/// A worker: its latency histogram (220 KiB, `measure/histogram.rs`), port, scheduler and places for datagrams.
const WORKER: u64 = 256 << 10;
/// A message under way in the simulator, with its events.
const MESSAGE: u64 = 256;

impl WorkerConfig {
    /// Bytes that a worker which reaches so many nodes holds for its queue pairs, messages and buffers, roughly and rather more than
    /// less. Of `requests`, each of so much payload, it has no more under way at a time; without any it only serves. `virtual_time`: a
    /// simulated fabric, which makes room in its queues only when they fill. What its coroutines hold themselves is not in it.
    pub fn memory_estimate(&self, virtual_time: bool, reach: u16, requests: u64, payload: u32) -> u64 {
        let pairs = u64::from(reach) * u64::from(self.lanes);
        let depth = u64::from(self.qp.send_depth);
        let in_flight = requests.min(pairs * depth);
        let places = if virtual_time { in_flight } else { pairs * depth };
        let queues = pairs * QUEUE_PAIR
            + places * (SEND_PLACE + if virtual_time { 0 } else { BACKLOG_PLACE })
            + pairs.min(in_flight) * depth.next_power_of_two() * SEND_PLACE;
        let window = u64::from(self.rpc.window);
        let reached = u64::from(reach);
        let receives = 2 * window * reached + u64::from(QpConfig::ud().send_depth);
        let sessions = reached * (SESSION + window * WINDOW_PLACE) + receives * RECEIVE;
        let payload = u64::from(payload).next_power_of_two().max(64);
        let flying = if virtual_time { in_flight * (MESSAGE + payload) } else { 0 };
        WORKER + self.arena_bytes(reach) + queues + sessions + flying
    }
}
