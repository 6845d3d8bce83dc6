//! Sizes that are taken, and why not more.

/// A size with its bounds.
#[derive(Clone, Copy, Debug)]
pub struct Limit {
    /// What is counted, singular.
    pub what: &'static str,
    /// Used where nothing is said.
    pub usual: u32,
    /// Most that are taken.
    pub most: u32,
}

impl Limit {
    /// Checks a count.
    ///
    /// # Errors
    /// In words, if it is zero or over the limit.
    pub fn check(self, n: u64) -> Result<u32, String> {
        match u32::try_from(n) {
            Ok(0) => Err(format!("at least 1 {} is needed", self.what)),
            Ok(n) if n <= self.most => Ok(n),
            _ => Err(format!("{n} is too many: the limit is {} {}", self.most, self.plural())),
        }
    }

    /// Several of what is counted: `bytes of payload`.
    pub fn plural(self) -> String {
        let end = [" of ", " in ", " per "].iter().filter_map(|word| self.what.find(word)).min();
        let (noun, rest) = self.what.split_at(end.unwrap_or(self.what.len()));
        format!("{noun}s{rest}")
    }
}

/// Nodes: ten times the largest cluster that the papers we follow emulate.
pub const NODES: Limit = Limit { what: "node", usual: 3, most: 4_096 };

/// Worker threads per node: the largest servers of today.
pub const THREADS: Limit = Limit { what: "thread", usual: 1, most: 512 };

/// Coroutines per thread: gains end below a hundred; this leaves room to show that.
pub const COROUTINES: Limit = Limit { what: "coroutine", usual: 8, most: 4_096 };

/// Copies of a record.
pub const REPLICAS: Limit = Limit { what: "replica", usual: 3, most: 16 };

/// Bytes of location cache on each node: a word a record, so the usual ones cover two million. DrTM+H gave 300 MB to each machine.
pub const CACHE_BYTES: Limit = Limit { what: "byte", usual: 16 << 20, most: 1 << 30 };

/// Bytes of each copy's reserve, zero included: what a large machine has.
pub const RESERVE_BYTES: u64 = 1 << 40;

/// Connected queue pairs from a thread to a node, in runs of transactions: those of a cluster a hundred times as large.
pub const QUEUE_PAIRS: Limit = Limit { what: "queue pair", usual: 1, most: 256 };

/// Coroutines in all: at about a kibibyte each this is 16 GiB.
pub const COROUTINES_IN_ALL: u64 = 1 << 24;

/// Points of one grid.
pub const POINTS: u64 = 1_000_000;

/// Longest measured time per point, in nanoseconds: a day.
pub const DURATION_NS: u64 = 86_400_000_000_000;

/// How wrong clocks may be made, in nanoseconds: an hour. Timestamps last 6.5 days, and clocks that are ahead use them up.
pub const CLOCK_SKEW_NS: u64 = 3_600_000_000_000;

/// Measured time of a point where time is real, unless asked for otherwise.
pub const USUAL_REAL: super::Span = super::Span::from_ns(1_000_000_000);

/// Measured time of a point where time is virtual: thousands of transactions per core, seconds to simulate.
pub const USUAL_VIRTUAL: super::Span = super::Span::from_ns(2_000_000);

/// Precision of throughput, as a share of it, where no duration is asked for.
pub const USUAL_PRECISION: f64 = 0.01;

/// Longest run for a precision, warm-up included, in usual durations: where time is real somebody waits.
pub const LONGEST: (u64, u64) = (5, 16);

/// Measured time of a point on a fabric, unless asked for otherwise.
pub fn usual_duration(fabric: &super::FabricChoice) -> super::Span {
    if fabric.virtual_time() { USUAL_VIRTUAL } else { USUAL_REAL }
}
