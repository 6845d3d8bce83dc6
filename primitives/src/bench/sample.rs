//! What a point gave, and the counts of workers and processes that it is the sum of.

use super::{OBJECTS, Point, Scope};
use crate::measure::{Histogram, Steadiness, TooShort};
use crate::mesh::RunFacts;
use crate::units::Nanos;
use crate::verbs::port::Traffic;

/// What one point gave.
#[derive(Clone, Debug)]
pub struct Sample {
    /// Operations counted in the window: requests, or multi-object operations on the ladder.
    pub ops: u64,
    /// Operations per second of the whole cluster by the clocks of its devices; nothing where one of them tells none.
    pub device_rate_per_s: Option<f64>,
    /// The window.
    pub window: Nanos,
    /// The warm-up before it, and how well the rate is known.
    pub steadiness: Steadiness,
    /// Why the rate is not to be trusted, if the window was too short.
    pub too_short: Option<TooShort>,
    /// Latency of a group of `outstanding` requests (or of a multi-object operation).
    pub latency: Histogram,
    /// Traffic of the whole run, warm-up included, and the operations it carried.
    pub traffic: Traffic,
    /// Operations of the whole run.
    pub ops_total: u64,
    /// Instructions per operation, or why they were not counted.
    pub instructions_per_op: Result<f64, String>,
    /// Simulator facts.
    pub facts: RunFacts,
    /// Connected queue pairs of the whole cluster.
    pub queue_pairs: u64,
}

impl Sample {
    /// Operations per second of the whole cluster.
    pub fn rate_per_s(&self) -> f64 {
        self.ops as f64 / self.window.as_secs_f64()
    }

    /// Payload that operations moved, in gigabytes (10⁹) per second of the whole cluster; headers and calls' frames do not count, nor what
    /// is fetched for all transactions of a machine, and of the share that ATOMICs have by the point a word each.
    pub fn goodput_gb_per_s(&self, point: &Point) -> f64 {
        let objects = if point.rung.is_some() { OBJECTS } else { 1 };
        let atomics = f64::from(point.atomics_percent) / 100.0;
        let bytes = match point.verb.oracle() {
            Some(oracle) => f64::from(if oracle.fetched { 0 } else { point.payload }) + 8.0,
            None => f64::from(point.payload) * (1.0 - atomics) + 8.0 * atomics,
        };
        self.rate_per_s() * bytes * f64::from(objects) / 1e9
    }

    /// Doorbells per operation, replies' doorbells included.
    pub fn doorbells_per_op(&self) -> f64 {
        self.traffic.doorbells as f64 / self.ops_total.max(1) as f64
    }
}

/// What was counted, by one worker or by several.
pub(super) struct Counted {
    pub(super) ops: u64,
    pub(super) ops_total: u64,
    /// By the device's clock.
    pub(super) device_rate_per_s: Option<f64>,
    pub(super) latency: Histogram,
    pub(super) traffic: Traffic,
    pub(super) queue_pairs: u64,
    /// Of all operations.
    pub(super) instructions: Result<f64, String>,
}

impl Default for Counted {
    fn default() -> Counted {
        Counted {
            ops: 0,
            ops_total: 0,
            device_rate_per_s: None,
            latency: Histogram::new(),
            traffic: Traffic::default(),
            queue_pairs: 0,
            instructions: Ok(0.0),
        }
    }
}

impl Counted {
    /// Adds what others counted. It may come from another process, which may say anything: sums stay in their range.
    pub(super) fn add(&mut self, other: &Counted) {
        // Who asks nothing adds nothing; of others each must be known.
        self.device_rate_per_s = match (self.ops, other.ops) {
            (_, 0) => self.device_rate_per_s,
            (0, _) => other.device_rate_per_s,
            _ => self.device_rate_per_s.zip(other.device_rate_per_s).map(|(a, b)| a + b),
        };
        self.ops = self.ops.saturating_add(other.ops);
        self.ops_total = self.ops_total.saturating_add(other.ops_total);
        self.latency.merge(&other.latency);
        self.traffic.add(&other.traffic);
        self.queue_pairs = self.queue_pairs.saturating_add(other.queue_pairs);
        self.instructions = match (&self.instructions, &other.instructions) {
            (Ok(sum), Ok(n)) => Ok(sum + n),
            (Err(why), _) | (_, Err(why)) => Err(why.clone()),
        };
    }

    /// The sample that these counts of a point are.
    pub(super) fn sample(
        self,
        point: &Point,
        scope: &Scope,
        steadiness: Steadiness,
        facts: RunFacts,
    ) -> Sample {
        let too_short = TooShort::of(self.ops, point.in_flight(scope));
        Sample {
            ops: self.ops,
            device_rate_per_s: self.device_rate_per_s,
            window: steadiness.measured,
            steadiness: steadiness.unless(too_short),
            too_short,
            latency: self.latency,
            traffic: self.traffic,
            ops_total: self.ops_total,
            instructions_per_op: self.instructions.map(|n| n / self.ops_total.max(1) as f64),
            facts,
            queue_pairs: self.queue_pairs,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_by_devices_add_up_if_all_who_ask_know_theirs() {
        let of = |ops, device_rate_per_s| Counted { ops, device_rate_per_s, ..Counted::default() };
        let sum = |all: &[(u64, Option<f64>)]| {
            let mut sum = Counted::default();
            all.iter().for_each(|&(ops, rate)| sum.add(&of(ops, rate)));
            sum.device_rate_per_s
        };
        assert_eq!(sum(&[]), None);
        assert_eq!(sum(&[(8, Some(2.0)), (0, None), (8, Some(3.0))]), Some(5.0), "a server asks nothing");
        assert_eq!(sum(&[(8, Some(2.0)), (8, None), (8, Some(3.0))]), None);
        assert_eq!(sum(&[(8, None), (8, Some(3.0))]), None);
    }
}
