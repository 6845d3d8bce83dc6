//! What the nodes of one process bring back, as it is added up and as it travels to node 0.

use super::audit::Found;
use super::program::{add_cache, add_rpc};
use super::result::Fault;
use crate::stats::{StatsData, WorkerStats};
use crate::verify::{History, format};
use phases::store::CacheStats;
use primitives::measure::Steadiness;
use primitives::rpc::RpcStats;
use primitives::units::Nanos;
use primitives::verbs::port::Traffic;
use std::ops::AddAssign;

/// What the nodes of one process bring back.
#[derive(Debug)]
pub(super) struct Part<T> {
    /// Nodes it is of.
    pub(super) nodes: u16,
    pub(super) stats: WorkerStats,
    pub(super) traffic: Traffic,
    pub(super) rpc: RpcStats,
    pub(super) cache: CacheStats,
    pub(super) effects: T,
    pub(super) before: T,
    pub(super) found: Found<T>,
    pub(super) elapsed: Nanos,
    /// How well the throughput is known: of one process alone, sums of several have none.
    pub(super) steadiness: Option<Steadiness>,
    pub(super) faults: Vec<Fault>,
    pub(super) interrupted: bool,
    pub(super) history: Option<History>,
}

/// [`Part`] without its history, which follows it in a form of its own.
#[derive(serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Head<T> {
    nodes: u16,
    stats: StatsData,
    traffic: Traffic,
    rpc: RpcStats,
    cache: CacheStats,
    effects: T,
    before: T,
    found: Found<T>,
    elapsed_ns: u64,
    faults: Vec<Fault>,
    interrupted: bool,
    history: bool,
}

impl<T: Default + AddAssign> Part<T> {
    pub(super) fn new(digits: u8) -> Part<T> {
        Part {
            nodes: 0,
            stats: WorkerStats::new(digits),
            traffic: Traffic::default(),
            rpc: RpcStats::default(),
            cache: CacheStats::default(),
            effects: T::default(),
            before: T::default(),
            found: Found::default(),
            elapsed: Nanos(0),
            steadiness: None,
            faults: Vec::new(),
            interrupted: false,
            history: None,
        }
    }

    /// Adds another process's part; histories are joined elsewhere, all at once.
    pub(super) fn merge(&mut self, other: Part<T>) {
        self.steadiness = if self.nodes == 0 { other.steadiness } else { None };
        self.nodes += other.nodes;
        self.stats.merge(&other.stats);
        self.traffic.add(&other.traffic);
        add_rpc(&mut self.rpc, &other.rpc);
        add_cache(&mut self.cache, &other.cache);
        self.effects += other.effects;
        self.before += other.before;
        self.found.merge(other.found);
        // Nodes run at the same time.
        self.elapsed = self.elapsed.max(other.elapsed);
        self.faults.extend(other.faults);
        self.interrupted |= other.interrupted;
    }
}

impl<T: serde::Serialize + serde::de::DeserializeOwned + Clone> Part<T> {
    /// The part as bytes: length of the head, head, history.
    pub(super) fn encode(&self) -> Result<Vec<u8>, String> {
        let head = Head {
            nodes: self.nodes,
            stats: self.stats.to_data(),
            traffic: self.traffic,
            rpc: self.rpc,
            cache: self.cache,
            effects: self.effects.clone(),
            before: self.before.clone(),
            found: self.found.clone(),
            elapsed_ns: self.elapsed.0,
            faults: self.faults.clone(),
            interrupted: self.interrupted,
            history: self.history.is_some(),
        };
        let head = serde_json::to_vec(&head).map_err(|e| e.to_string())?;
        let mut bytes = (head.len() as u64).to_le_bytes().to_vec();
        bytes.extend_from_slice(&head);
        if let Some(history) = &self.history {
            format::write(history, &mut bytes).map_err(|e| e.to_string())?;
        }
        Ok(bytes)
    }

    /// A part from bytes that another node sent.
    pub(super) fn decode(bytes: &[u8]) -> Result<Part<T>, String> {
        let short = || format!("results of {} B end too early", bytes.len());
        let (len, rest) = bytes.split_first_chunk::<8>().ok_or_else(short)?;
        let len = usize::try_from(u64::from_le_bytes(*len)).map_err(|_| short())?;
        let (head, history) = rest.split_at_checked(len).ok_or_else(short)?;
        let head: Head<T> = serde_json::from_slice(head).map_err(|e| e.to_string())?;
        if head.nodes != 1 {
            return Err(format!("results of {} nodes, from a process that is one", head.nodes));
        }
        let history = match head.history {
            true => Some(format::read(history).map_err(|e| e.to_string())?),
            false => None,
        };
        Ok(Part {
            nodes: head.nodes,
            stats: WorkerStats::from_data(&head.stats)?,
            traffic: head.traffic,
            rpc: head.rpc,
            cache: head.cache,
            effects: head.effects,
            before: head.before,
            found: head.found,
            elapsed: Nanos(head.elapsed_ns),
            steadiness: None,
            faults: head.faults,
            interrupted: head.interrupted,
            history,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{RngExt, SeedableRng};
    use rand_xoshiro::Xoshiro256PlusPlus;

    /// What a peer sends is what it was, or refused in words; added up either way without harm.
    #[test]
    fn bent_results_are_refused_or_read_and_never_break() {
        let mut part: Part<u64> = Part::new(3);
        (part.nodes, part.effects, part.elapsed) = (1, 17, Nanos(1_000_000));
        part.stats.committed = 41;
        (0..100).for_each(|n| part.stats.latency.record(Nanos(1_000 + 37 * n)));
        part.faults.push(Fault {
            node: primitives::verbs::NodeId(1),
            worker: 2,
            coroutine: 3,
            why: "of a test".into(),
        });
        part.history = Some(History::default());
        let good = part.encode().expect("bytes");
        let back: Part<u64> = Part::decode(&good).expect("ours");
        assert_eq!((back.effects, back.stats.committed, back.faults.len()), (17, 41, 1));
        // The history's last byte is the end of a line.
        for cut in 0..good.len() - 1 {
            assert!(Part::<u64>::decode(&good[..cut]).is_err(), "cut at {cut}");
        }
        let (mut read, mut refused) = (0, 0);
        for seed in 0..4_000 {
            let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
            let mut bytes = good.clone();
            for _ in 0..rng.random_range(1..4) {
                let at = rng.random_range(0..bytes.len());
                // Digits and structure of the head are text: other digits make it say something else.
                bytes[at] = if rng.random() { rng.random_range(b'0'..=b'9') } else { rng.random() };
            }
            match Part::<u64>::decode(&bytes) {
                Ok(other) => {
                    let mut sum: Part<u64> = Part::new(3);
                    sum.merge(other);
                    read += 1;
                }
                Err(why) => {
                    assert!(!why.is_empty());
                    refused += 1;
                }
            }
        }
        assert!(read > 100 && refused > 1_000, "{read} {refused}");
    }
}
