//! Who takes part in a transaction that is ordered before it runs: what to expect where its records fall by chance.

use crate::demand::Participants;
use crate::model::input::{Cluster, Spots, TxnClass, Workload};

/// How likely records of a class are on the node that was asked, and on any given other one.
#[derive(Clone, Copy)]
pub(super) struct Places {
    pub(super) own: f64,
    pub(super) each: f64,
}

impl Places {
    fn new(own: f64, nodes: f64) -> Places {
        let others = nodes - 1.0;
        if others < 1.0 { Places { own: 1.0, each: 0.0 } } else { Places { own, each: (1.0 - own) / others } }
    }

    /// On the node at this distance behind the asked one.
    fn at(&self, distance: u32) -> f64 {
        if distance == 0 { self.own } else { self.each }
    }
}

/// Where records of a class are that it only reads, and those that it writes.
pub(super) fn places(workload: &Workload, cluster: &Cluster, class: &TxnClass) -> [Places; 2] {
    let nodes = f64::from(cluster.nodes);
    let own = |all: f64, there: Option<f64>| match there {
        Some(there) if all > 0.0 => 1.0 - there / all,
        _ => workload.local_share,
    };
    let there = class.elsewhere;
    [
        Places::new(own(class.reads, there.map(|e| e.reads)), nodes),
        Places::new(own(class.writes, there.map(|e| e.writes)), nodes),
    ]
}

/// What to expect of a class.
pub(super) fn participants(workload: &Workload, cluster: &Cluster, class: &TxnClass) -> Participants {
    let [read, written] = places(workload, cluster, class);
    let (nodes, backups) = (cluster.nodes, cluster.backups);
    let Spots { reads, writes } = class.spots();
    let creates = if class.inserts > 0.0 { 1.0 } else { 0.0 };
    // That a write makes a node run the transaction: a copy is on it, and on those before it that it backs up. Created records are
    // the asked node's own.
    let copy_at =
        |node: u32| -> f64 { (0..=backups).map(|back| written.at((node + nodes - back) % nodes)).sum() };
    let backs_asked = |node: u32| node <= backups;
    let idle_by = |node: u32, writes: f64| {
        let none = (1.0 - copy_at(node)).max(0.0).powf(writes.max(0.0));
        if node == 0 || creates > 0.0 && backs_asked(node) { 0.0 } else { none }
    };
    let idle = |node: u32| idle_by(node, writes);
    let none_at = |node: u32| (1.0 - read.at(node)).powf(reads) * (1.0 - written.at(node)).powf(writes);
    let mut all = Participants {
        records: class.reads + class.writes,
        writes: class.writes + class.inserts,
        inserts: class.inserts,
        copies: f64::from(backups) * (class.writes + class.inserts),
        payload: workload.payload_bytes,
        others: f64::from(nodes) - 1.0,
        ..Participants::default()
    };
    // That the asked node is the only one which runs it, though it writes so many.
    let alone = |writes: f64| match backups {
        0 => written.own.powf(writes.max(0.0)),
        _ if writes + class.inserts > 0.0 => 0.0,
        _ => 1.0,
    };
    for from in 0..nodes {
        let has = 1.0 - none_at(from);
        let (read_here, written_here) = (reads * read.at(from), writes * written.at(from));
        // Neither runs it nor reads here.
        let none = idle(from) * (1.0 - read.at(from)).powf(reads);
        all.runs += 1.0 - idle(from);
        all.parts += 1.0 - none;
        for to in (0..nodes).filter(|&to| to != from) {
            let backed = (0..=backups).any(|back| (to + nodes - back) % nodes == from);
            // No copy of what is written there, and nothing here.
            let other = if backed { 0.0 } else { written.at(from) };
            let neither = match idle(to) {
                0.0 => 0.0,
                _ => (1.0 - copy_at(to) - other).max(0.0).powf(writes) * (1.0 - read.at(from)).powf(reads),
            };
            all.letters += (has - idle(to) + neither).max(0.0);
            let besides = if backed { 0.0 } else { idle_by(to, writes - 1.0) };
            all.heard += read_here * (1.0 - idle(to)) + written_here * (1.0 - besides);
        }
        if nodes < 2 {
            continue;
        }
        if from > 0 {
            all.senders += has;
            all.told += read_here + written_here;
            continue;
        }
        // The asked node has nobody to tell if nobody else runs it.
        all.senders += if writes > 0.0 { has - alone(writes) } else { has * (1.0 - alone(0.0)) };
        // What is written here itself has copies elsewhere, if anything has.
        let besides = if backups > 0 { 0.0 } else { alone(writes - 1.0) };
        all.told += read_here * (1.0 - alone(writes)) + written_here * (1.0 - besides);
    }
    // As many records in each place.
    if reads + writes > 0.0 {
        let each = all.records / (reads + writes);
        (all.told, all.heard) = (all.told * each, all.heard * each);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::fixtures::{calm, class};
    use rand::{RngExt, SeedableRng};

    /// What is expected is what comes of throwing records.
    #[test]
    fn participants_are_those_of_records_that_fall_by_chance() {
        let rng = &mut rand_xoshiro::Xoshiro256PlusPlus::seed_from_u64(5);
        for (nodes, backups, reads, writes) in [
            (4u32, 0u32, 2u32, 2u32),
            (5, 0, 5, 0),
            (3, 2, 1, 1),
            (6, 1, 2, 1),
            (8, 2, 4, 3),
            (2, 0, 0, 1),
            (1, 0, 2, 2),
        ] {
            let cluster = Cluster { nodes, threads: 1, backups, lanes: 1 };
            let said =
                participants(&calm(nodes), &cluster, &class("x", 1.0, f64::from(reads), f64::from(writes)));
            const TIMES: u32 = 40_000;
            let mut got = Participants::default();
            for _ in 0..TIMES {
                let mut has = vec![0u32; nodes as usize];
                let mut runs = vec![false; nodes as usize];
                runs[0] = true;
                for n in 0..reads + writes {
                    let at = rng.random_range(0..nodes);
                    has[at as usize] += 1;
                    (0..=backups)
                        .filter(|_| n >= reads)
                        .for_each(|b| runs[((at + b) % nodes) as usize] = true);
                }
                for at in 0..nodes as usize {
                    let part = has[at] > 0 || runs[at];
                    let to = (0..nodes as usize).filter(|&to| to != at && runs[to]).count() as f64;
                    got.parts += f64::from(u8::from(part));
                    got.runs += f64::from(u8::from(runs[at]));
                    if has[at] > 0 && to > 0.0 {
                        got.senders += 1.0;
                        got.letters += to;
                        got.told += f64::from(has[at]);
                        got.heard += to * f64::from(has[at]);
                    }
                }
            }
            for (what, said, got, near) in [
                ("parts", said.parts, got.parts, 0.01),
                ("runs", said.runs, got.runs, 0.01),
                ("senders", said.senders, got.senders, 0.015),
                ("letters", said.letters, got.letters, 0.015),
                ("told", said.told, got.told, 0.015),
                ("heard", said.heard, got.heard, 0.015),
            ] {
                let got = got / f64::from(TIMES);
                assert!(
                    (got - said).abs() <= near * got,
                    "{what} of {nodes} {backups} {reads} {writes}: {said} {got}"
                );
            }
        }
    }
}
