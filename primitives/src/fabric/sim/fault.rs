//! What may go wrong, and which outcomes of the memory model a run shows.

use super::queue::NEVER;
use crate::units::Nanos;
use crate::verbs::NodeId;
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

/// Faults and hazards of a run. All draws come from the world's seed.
#[derive(Clone, Debug, PartialEq)]
pub struct FaultOptions {
    /// Probability that a message on UD or UC is lost on the wire.
    pub datagram_loss: f64,
    /// Each completion entry comes up to this much later.
    pub completion_jitter: Nanos,
    /// Each message takes up to this much longer on the wire. Order within a queue pair is kept, so messages
    /// of different queue pairs overtake each other.
    pub transit_jitter: Nanos,
    /// Probability that a READ of more than a word sees its words at two different times.
    pub torn_read: f64,
    /// Probability that a WRITE or SEND of more than a word lands in two steps, in address order.
    pub torn_write: f64,
    /// Probability that the second step of such a WRITE lands so late that the requester may have its
    /// completion before (efficient/rdma_bench, `write-incomplete`, on ConnectX-5). None by default.
    pub late_write: f64,
    /// A CAS that finds another value puts that value back, and so undoes a WRITE of the word that lands in between
    /// ([`Caps::failed_cas_stores`](crate::fabric::Caps)). Without effect where the profile's atomics reach everything. Not so by default.
    pub failed_cas_stores: bool,
    /// Nodes whose NIC and cores are slower by a factor.
    pub slow: Vec<(NodeId, f64)>,
    /// Nodes that die: from that time on they neither send nor answer nor run.
    pub dead: Vec<(NodeId, Nanos)>,
    /// How long a requester tries to reach a node that does not answer.
    pub retry_timeout: Nanos,
}

impl Default for FaultOptions {
    /// No faults. Torn READs and WRITEs are no fault but what the hardware may do, and happen now and then.
    fn default() -> FaultOptions {
        FaultOptions {
            datagram_loss: 0.0,
            completion_jitter: Nanos(0),
            transit_jitter: Nanos(0),
            torn_read: 0.125,
            torn_write: 0.125,
            late_write: 0.0,
            failed_cas_stores: false,
            slow: Vec::new(),
            dead: Vec::new(),
            retry_timeout: Nanos::from_micros(500),
        }
    }
}

impl FaultOptions {
    /// Why the options make no sense, if they do not.
    pub(super) fn refuse(&self, nodes: usize) -> Option<String> {
        let probabilities = [
            ("datagram_loss", self.datagram_loss),
            ("torn_read", self.torn_read),
            ("torn_write", self.torn_write),
            ("late_write", self.late_write),
        ];
        for (name, p) in probabilities {
            if !(0.0..=1.0).contains(&p) {
                return Some(format!("{name} = {p} is not a probability"));
            }
        }
        for &(node, factor) in &self.slow {
            if !(factor > 0.0 && factor <= 1e6) {
                return Some(format!("{node} cannot be slower by a factor of {factor}"));
            }
        }
        let named = self.slow.iter().map(|s| s.0).chain(self.dead.iter().map(|d| d.0));
        for node in named {
            if node.index() >= nodes {
                return Some(format!("faults name {node}, the world has {nodes} nodes"));
            }
        }
        None
    }

    pub(super) fn factor(&self, node: usize) -> f64 {
        self.slow.iter().find(|s| s.0.index() == node).map_or(1.0, |s| s.1)
    }

    pub(super) fn dead_at(&self, node: usize) -> u64 {
        let at = self.dead.iter().filter(|d| d.0.index() == node).map(|d| d.1.0).min();
        at.map_or(NEVER, |ns| ns.saturating_mul(1000))
    }
}

/// The options as the model draws from them.
pub(super) struct Dice {
    rng: Xoshiro256PlusPlus,
    pub loss: u64,
    pub torn_read: u64,
    pub torn_write: u64,
    pub late_write: u64,
    pub transit_jitter: u64,
    pub completion_jitter: u64,
    pub retry_timeout: u64,
}

impl Dice {
    pub fn new(faults: &FaultOptions, seed: u64) -> Dice {
        // A probability as a threshold on 32 random bits; one is above them all.
        let threshold = |p: f64| (p * (1u64 << 32) as f64).round() as u64;
        let jitter = |n: Nanos| n.0.saturating_mul(1000).min(NEVER);
        Dice {
            rng: Xoshiro256PlusPlus::seed_from_u64(seed),
            loss: threshold(faults.datagram_loss),
            torn_read: threshold(faults.torn_read),
            torn_write: threshold(faults.torn_write),
            late_write: threshold(faults.late_write),
            transit_jitter: jitter(faults.transit_jitter),
            completion_jitter: jitter(faults.completion_jitter),
            retry_timeout: jitter(faults.retry_timeout),
        }
    }

    /// True with the probability that `threshold` stands for; draws nothing for none.
    #[inline]
    pub fn roll(&mut self, threshold: u64) -> bool {
        threshold > 0 && (self.rng.next_u64() >> 32) < threshold
    }

    /// A number below `bound`, or zero for none.
    #[inline]
    pub fn below(&mut self, bound: u64) -> u64 {
        if bound == 0 {
            return 0;
        }
        ((u128::from(self.rng.next_u64()) * u128::from(bound)) >> 64) as u64
    }
}
