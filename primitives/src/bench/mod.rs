//! Primitive benchmarks: what one NIC gives for each verb, one question a file.
//!
//! Method. All nodes are clients and servers at once (the symmetric model of DrTM+H §3.1). Each worker runs
//! coroutines in a closed loop: a coroutine asks for `outstanding` requests to drawn nodes and addresses, waits
//! for all of them, and asks again. Operations that end within the window after the warm-up count; the rate is
//! theirs over the window. Both are fixed, or found by the rule of [`crate::measure::steady`]. The load is closed, so latencies suffer from *coordinated omission*: while one request
//! is late, those that its coroutine would have sent are not sent and not counted as late. Read them as
//! the latency at that many requests in flight, not as what an open stream of arrivals would see.
//!
//! On real fabrics one group in [`load::SAMPLE_EVERY`] is timed, and those before it are counted with it, because a clock reading
//! costs a third of the fastest request; in virtual time all are. So a coroutine counts in steps, each in its own turn. A request that is
//! awaited by itself begins when its address has been drawn: the draw is the load's, and no part of what is measured.

mod admit;
mod bare;
mod calls;
mod client;
mod footprint;
mod load;
mod member;
mod messages;
mod oracle;
mod profile;
mod sample;

mod coroutines;
mod doorbell;
mod identify;
mod latency;
mod multi_object;
mod outstanding;
mod payload;
mod queue_pairs;
mod roles;
mod signaling;
mod threads;

pub use admit::LoadError;
pub use calls::Carrier;
pub use footprint::memory_estimate;
pub use identify::{Shows, identifying};
pub use load::{ON_CARD_BYTES, SAMPLE_EVERY, most_addresses, run};
pub use member::run_member;
pub use multi_object::{OBJECTS, Rung};
pub use oracle::Oracle;
pub use payload::{CALL_PAYLOAD_MOST, DATAGRAM_MOST};
pub use profile::{ProfileFitError, Rated, UNCALIBRATED, fit, state_limits, waits_for_device};
pub use sample::Sample;

use crate::measure::{Meter, Precision, TooShort};
use crate::units::Nanos;
use crate::verbs::Transport;

/// What a point asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum BenchVerb {
    /// RDMA READ.
    Read,
    /// RDMA WRITE.
    Write,
    /// Compare-and-swap on a drawn word.
    Cas,
    /// Fetch-and-add on a drawn word.
    FetchAdd,
    /// SEND into a receive: a message by itself.
    Send,
    /// A call over SEND/RECV whose reply carries the payload.
    Rpc,
    /// A call over SEND/RECV whose request carries the payload.
    RpcWrite,
    /// A call of two WRITEs into rings whose memory is polled, as in FaRM: the request carries the payload, the reply a word that
    /// depends on all of it.
    RpcTwoWrites,
    /// The same call by WRITE_WITH_IMM both ways: messages are found in the completion queue.
    RpcWriteImm,
    /// The same call, requests by WRITE and replies by SEND over UD, as in HERD.
    RpcWriteSend,
    /// Compare-and-swap on a drawn word of the asker's own node, by its CPU: nothing is asked of a NIC.
    CpuCas,
    /// A timestamp transaction of NAM-DB: a READ of the timestamp vector and a WRITE of the own slot.
    TimestampVector,
    /// The same, one thread of a machine READing the vector for all others.
    TimestampFetched,
    /// The same, a slot for each machine instead of each client.
    TimestampCompressed,
    /// The same, with both.
    TimestampBoth,
}

impl BenchVerb {
    /// The verbs a characterization covers.
    pub const ALL: [BenchVerb; 5] =
        [BenchVerb::Read, BenchVerb::Write, BenchVerb::Cas, BenchVerb::FetchAdd, BenchVerb::Rpc];

    /// The verb of a name in experiment files: as [`BenchVerb::name`], but `rpc-write` is told from `rpc`.
    pub fn named(name: &str) -> Option<BenchVerb> {
        let all = [
            ("read", BenchVerb::Read),
            ("write", BenchVerb::Write),
            ("cas", BenchVerb::Cas),
            ("fetch-add", BenchVerb::FetchAdd),
            ("send", BenchVerb::Send),
            ("rpc", BenchVerb::Rpc),
            ("rpc-write", BenchVerb::RpcWrite),
            ("rpc-two-writes", BenchVerb::RpcTwoWrites),
            ("rpc-write-imm", BenchVerb::RpcWriteImm),
            ("rpc-write-send", BenchVerb::RpcWriteSend),
            ("cpu-cas", BenchVerb::CpuCas),
            ("timestamp-vector", BenchVerb::TimestampVector),
            ("timestamp-fetched", BenchVerb::TimestampFetched),
            ("timestamp-compressed", BenchVerb::TimestampCompressed),
            ("timestamp-both", BenchVerb::TimestampBoth),
        ];
        all.into_iter().find(|(known, _)| *known == name).map(|(_, verb)| verb)
    }

    /// The verb's name in result files.
    pub fn name(self) -> &'static str {
        match self {
            BenchVerb::Read => "read",
            BenchVerb::Write => "write",
            BenchVerb::Cas => "cas",
            BenchVerb::FetchAdd => "fetch-add",
            BenchVerb::Send => "send",
            BenchVerb::Rpc | BenchVerb::RpcWrite => "rpc",
            BenchVerb::RpcTwoWrites => "rpc-two-writes",
            BenchVerb::RpcWriteImm => "rpc-write-imm",
            BenchVerb::RpcWriteSend => "rpc-write-send",
            BenchVerb::CpuCas => "cpu-cas",
            BenchVerb::TimestampVector => "timestamp-vector",
            BenchVerb::TimestampFetched => "timestamp-fetched",
            BenchVerb::TimestampCompressed => "timestamp-compressed",
            BenchVerb::TimestampBoth => "timestamp-both",
        }
    }

    /// Which timestamp vector a transaction is of.
    pub fn oracle(self) -> Option<Oracle> {
        let of = |fetched, compressed| Some(Oracle { fetched, compressed });
        match self {
            BenchVerb::TimestampVector => of(false, false),
            BenchVerb::TimestampFetched => of(true, false),
            BenchVerb::TimestampCompressed => of(false, true),
            BenchVerb::TimestampBoth => of(true, true),
            _ => None,
        }
    }

    /// What carries a call that needs more than SEND and RECV.
    pub fn carrier(self) -> Option<Carrier> {
        match self {
            BenchVerb::RpcTwoWrites => Some(Carrier::TwoWrites),
            BenchVerb::RpcWriteImm => Some(Carrier::WriteImm),
            BenchVerb::RpcWriteSend => Some(Carrier::WriteSend),
            _ => None,
        }
    }

    /// Whether it is a call, whatever carries it: somebody's CPU answers.
    pub fn is_call(self) -> bool {
        matches!(self, BenchVerb::Rpc | BenchVerb::RpcWrite) || self.carrier().is_some()
    }

    /// Whether it takes receives and names no memory of the other end.
    pub fn is_message(self) -> bool {
        self == BenchVerb::Send || self.is_call()
    }

    /// Whether queue pairs of a transport carry it. Calls bring their own.
    pub fn goes_over(self, transport: Transport) -> bool {
        match transport {
            Transport::Rc => true,
            Transport::Uc => matches!(self, BenchVerb::Send | BenchVerb::Write),
            Transport::Ud => self == BenchVerb::Send,
        }
    }

    /// Whether the payload size is the verb's own (8 B) rather than the point's.
    pub fn fixed_size(self) -> bool {
        matches!(self, BenchVerb::Cas | BenchVerb::FetchAdd | BenchVerb::CpuCas)
    }
}

/// One point of a characterization.
#[derive(Clone, Debug, PartialEq)]
pub struct Point {
    /// The question it belongs to, as in the `bench` column of result files.
    pub question: &'static str,
    /// What is asked for.
    pub verb: BenchVerb,
    /// Payload in bytes.
    pub payload: u32,
    /// Worker threads per node.
    pub threads: u16,
    /// Coroutines per thread.
    pub coroutines: u32,
    /// Requests a coroutine has in flight.
    pub outstanding: u32,
    /// Most requests per doorbell; 1 is one doorbell each.
    pub doorbell_batch: u32,
    /// One request in so many is signaled; 1 is all.
    pub signal_period: u32,
    /// Queue pairs per thread and peer.
    pub queue_pairs: u32,
    /// Whether each request draws one of them, as the papers' loads do. Groups of requests take them in turn otherwise, which leaves less to
    /// chance: what is characterized is fitted to.
    pub drawn: bool,
    /// Step of the optimization ladder, for the multi-object questions.
    pub rung: Option<Rung>,
    /// Nodes that are asked, and do not ask themselves; 0 is the symmetric model: all ask all.
    pub servers: u16,
    /// Different addresses on each node that is asked; 0 is as many as fit into its memory.
    pub addresses: u32,
    /// The addresses lie in the card's own memory instead of the host's.
    pub on_card: bool,
    /// The threads of a node post through one device context instead of one each (DrTM+H §3.1).
    pub shared_context: bool,
    /// Nobody waits for WRITEs: one in [`Point::signal_period`] is signaled and confirms those before it (DrTM+H §3.2,
    /// passive ACK). Of no meaning for verbs that return data, and for calls.
    pub passive: bool,
    /// Of a hundred READs or WRITEs, so many are ATOMICs instead.
    pub atomics_percent: u32,
    /// Each asks its own node, through its NIC, instead of the others.
    pub own: bool,
    /// What carries SENDs and WRITEs.
    pub transport: Transport,
    /// Each SEND is answered by one as long: an operation is half of such a round.
    pub echo: bool,
    /// A loop that posts and polls asks, instead of coroutines, with as many requests in flight.
    pub bare: bool,
}

/// How much longer the multi-object questions count: one of their operations takes as long as tens of requests.
pub const LADDER_WINDOWS: u64 = 8;

/// With a precision, a point may take so many windows before it is given up as unsteady, where nobody says otherwise.
const WINDOWS_MOST: u64 = 16;

impl Point {
    /// Nodes of a cluster that are asked.
    pub fn asked(&self, scope: &Scope) -> u16 {
        if self.servers == 0 { scope.nodes } else { self.servers }
    }

    /// The time that is counted at this point; with a precision, the least.
    pub fn window(&self, scope: &Scope) -> Nanos {
        let windows = if self.rung.is_some() { LADDER_WINDOWS } else { 1 };
        Nanos(scope.window.0 * windows)
    }

    /// Operations that its coroutines wait for at any time. Of WRITEs that nobody waits for, those of one group each: queues
    /// are full of others before counting begins.
    pub fn in_flight(&self, scope: &Scope) -> u64 {
        let machines = u64::from(scope.nodes.saturating_sub(self.servers));
        if let Some(oracle) = self.verb.oracle() {
            return machines * oracle.clients(self.threads, self.coroutines);
        }
        let asking = machines * u64::from(self.threads);
        // On the ladder a coroutine waits for one operation, of many requests.
        let each = if self.rung.is_some() { 1 } else { self.outstanding };
        asking * u64::from(self.coroutines) * u64::from(each)
    }

    /// Whether requests count when they are posted, because nobody waits for them.
    fn unawaited(&self) -> bool {
        self.passive || self.rung == Some(Rung::PassiveAck)
    }

    /// What counts the point, `workers` side by side.
    fn meter(&self, scope: &Scope, workers: usize) -> Meter {
        let least = self.window(scope);
        match scope.precision {
            // Until the send queues are full, more is posted than carried out.
            None if self.unawaited() => Meter::fixed(workers, least.max(scope.warm_up), least),
            None => Meter::fixed(workers, scope.warm_up, least),
            Some(relative) => {
                let most = scope.most.unwrap_or(Nanos(least.0.saturating_mul(WINDOWS_MOST))).max(least);
                let ended = TooShort::least(self.in_flight(scope));
                Meter::precise(workers, Precision { relative, least, most }).ending(ended)
            }
        }
    }
}

impl Point {
    /// A point with usual values: one thread, eight coroutines, 64 B.
    pub fn new(question: &'static str, verb: BenchVerb) -> Point {
        Point {
            question,
            verb,
            payload: if verb.fixed_size() { 8 } else { 64 },
            threads: 1,
            coroutines: 8,
            outstanding: 1,
            doorbell_batch: 32,
            signal_period: 32,
            queue_pairs: 1,
            drawn: false,
            rung: None,
            servers: 0,
            addresses: 0,
            on_card: false,
            shared_context: false,
            passive: false,
            atomics_percent: 0,
            own: false,
            transport: Transport::Rc,
            echo: false,
            bare: false,
        }
    }
}

/// How much of a characterization to run.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scope {
    /// Nodes of the cluster.
    pub nodes: u16,
    /// Threads per node, for the questions that do not vary them.
    pub threads: u16,
    /// Coroutines per thread, for the questions that do not vary them.
    pub coroutines: u32,
    /// Every second value of each sweep, and fewer verbs: for a first look.
    pub quick: bool,
    /// Load before counting starts, where the window is fixed.
    pub warm_up: Nanos,
    /// Counting window; with a precision, the shortest.
    pub window: Nanos,
    /// Half width of the rate's confidence interval, over the rate, at which a point is long enough; `None` for the fixed
    /// window.
    pub precision: Option<f64>,
    /// With a precision, the longest that a point is measured, warm-up included; `None` for sixteen times its shortest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub most: Option<Nanos>,
}

impl Scope {
    /// Of a sweep's values, those to run.
    fn sweep<T: Copy>(&self, values: &[T]) -> Vec<T> {
        let last = values.len().saturating_sub(1);
        let step = if self.quick { 2 } else { 1 };
        // The ends of a sweep are what a reader looks for: keep the last one whatever the step.
        values.iter().enumerate().filter(|(i, _)| i % step == 0 || *i == last).map(|(_, v)| *v).collect()
    }
}

/// The points of a whole characterization, in order.
pub fn points(scope: &Scope, ud_mtu: u32) -> Vec<Point> {
    let mut points = Vec::new();
    points.extend(latency::points(scope, ud_mtu));
    points.extend(payload::points(scope, ud_mtu));
    points.extend(coroutines::points(scope));
    points.extend(outstanding::points(scope));
    points.extend(doorbell::points(scope));
    points.extend(signaling::points(scope));
    points.extend(queue_pairs::points(scope));
    points.extend(threads::points(scope));
    points.extend(roles::points(scope));
    points.extend(multi_object::points(scope));
    points
}

/// Measures a point for a test: a quarter of the window before it, and none of it longer than asked.
#[cfg(test)]
fn run_for(
    fabric: &crate::mesh::FabricSpec,
    nodes: u16,
    window: Nanos,
    point: &Point,
) -> Result<Sample, LoadError> {
    let (threads, coroutines, warm_up) = (point.threads, point.coroutines, Nanos(window.0 / 4));
    let scope =
        Scope { nodes, threads, coroutines, quick: false, warm_up, window, precision: None, most: None };
    run(fabric, &scope, point, 3, &std::sync::atomic::AtomicBool::new(false))
}
