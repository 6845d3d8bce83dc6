//! Where CALVIN's buffers lie in every node's memory (RCC figure 12), so that all nodes can name all of them.
//!
//! Every coroutine has a request buffer (CRB) for each node, its own included, and one forward buffer (CFB) with a place for each
//! transaction of an epoch. Both exist twice, for even and odd epochs: a counterpart may be sending the next
//! epoch's inputs while this one is at work on the last transactions of its own. It cannot be two ahead, for it
//! needs this one's inputs to go on.
//!
//! A transaction's place in the CFB has a section for each node with records of it, in the order of nodes; how long they
//! are follows from the declared set. Behind these is room for what one node has found on the transaction's way.

use super::Calvin;
use crate::workload::ahead::Told;
use phases::letter::{HEAD_WORDS, MAX_WORDS};
use phases::ops::values_of;
use phases::txn::Txn;
use primitives::mesh::Shape;
use primitives::verbs::NodeId;

/// Words of a batch in front of its transactions, and of each transaction in front of its input.
const BATCH_HEAD: usize = 1;
const INPUT_HEAD: usize = 1;

/// The shape of a node's buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Buffers {
    start: u64,
    nodes: u64,
    workers: u64,
    coroutines: u64,
    /// Transactions of a batch.
    pub(super) batch: u64,
    /// Most words of a batch's letter, its head not counted.
    pub(super) batch_words: usize,
    /// Words of a transaction's place in a CFB: for declared records …
    declared_words: usize,
    /// … and for the contents of a letter of what was found.
    pub(super) found_words: usize,
}

impl Buffers {
    /// Buffers for a cluster of `shape` with so many coroutines a worker; inputs are of at most `input_words` words, and nodes tell
    /// each other at most `told` of a transaction. They begin at offset 0 until [`Buffers::at`] is told.
    ///
    /// # Errors
    /// If a batch would be too long for a letter, or so many transactions of an epoch could not be told apart.
    pub(crate) fn new(
        calvin: &Calvin,
        shape: Shape,
        coroutines: u32,
        input_words: usize,
        told: Told,
    ) -> Result<Buffers, String> {
        let batch = u64::from(calvin.batch);
        let batch_words = BATCH_HEAD + usize::from(calvin.batch) * (INPUT_HEAD + input_words);
        let Told { declared, found } = told;
        if batch == 0 || batch_words > MAX_WORDS || declared.max(found) > MAX_WORDS {
            return Err(format!(
                "a batch of {batch} inputs of {input_words} words, and {declared} and {found} words of a transaction's records: \
                 at least one input, and at most {MAX_WORDS} words in all are possible"
            ));
        }
        let (nodes, workers, coroutines) =
            (u64::from(shape.nodes), u64::from(shape.workers), u64::from(coroutines));
        let all = nodes * workers * coroutines * batch;
        let most = super::locks::MOST_TRANSACTIONS;
        if all > most {
            return Err(format!(
                "{all} transactions an epoch ({batch} of each of {nodes} × {workers} × {coroutines} coroutines): calvin's locks \
                 count {most}"
            ));
        }
        Ok(Buffers {
            start: 0,
            nodes,
            workers,
            coroutines,
            batch,
            batch_words,
            declared_words: declared,
            found_words: found,
        })
    }

    /// The same buffers, beginning at `start` of each region.
    pub(crate) fn at(self, start: u64) -> Buffers {
        Buffers { start, ..self }
    }

    fn crb_bytes(&self) -> u64 {
        ((HEAD_WORDS + self.batch_words) as u64 * 8).next_multiple_of(64)
    }

    /// Bytes of a transaction's place in a CFB.
    fn place_bytes(&self) -> u64 {
        let found = if self.found_words == 0 { 0 } else { HEAD_WORDS + self.found_words };
        (self.declared_words + found) as u64 * 8
    }

    fn cfb_bytes(&self) -> u64 {
        (self.nodes * self.batch * self.place_bytes()).next_multiple_of(64)
    }

    fn coroutine_bytes(&self) -> u64 {
        2 * (self.nodes * self.crb_bytes() + self.cfb_bytes())
    }

    /// Bytes of each node's buffers.
    pub(crate) fn bytes(&self) -> u64 {
        self.workers * self.coroutines * self.coroutine_bytes()
    }

    /// Bytes of the letters of a coroutine that are under way at once: its batch, and values of each of an epoch's transactions.
    pub(crate) fn letters_under_way(&self, nodes: u16) -> u64 {
        let letter = |words: u64| ((words + HEAD_WORDS as u64) * 8).next_power_of_two();
        let found = if self.found_words == 0 { 0 } else { letter(self.found_words as u64) };
        let values = letter(self.declared_words as u64) + found;
        letter(self.batch_words as u64) + u64::from(nodes) * self.batch * values
    }

    /// What one of the two halves of a coroutine's buffers begins at.
    fn half(&self, worker: u16, coroutine: u32, epoch: u64) -> u64 {
        let index = u64::from(worker) * self.coroutines + u64::from(coroutine);
        self.start + index * self.coroutine_bytes() + (epoch & 1) * (self.coroutine_bytes() / 2)
    }

    /// The request buffer of a coroutine for the inputs of its counterpart at `source`.
    pub(super) fn requests(&self, worker: u16, coroutine: u32, source: NodeId, epoch: u64) -> u64 {
        self.half(worker, coroutine, epoch) + u64::from(source.0) * self.crb_bytes()
    }

    /// The place in a coroutine's forward buffer for the `index`-th transaction of its counterpart at `source`.
    pub(super) fn values(&self, worker: u16, coroutine: u32, source: NodeId, index: u16, epoch: u64) -> u64 {
        let place = u64::from(source.0) * self.batch + u64::from(index);
        self.half(worker, coroutine, epoch) + self.nodes * self.crb_bytes() + place * self.place_bytes()
    }

    /// A transaction's place in the order of all transactions, those of other epochs too, from 1.
    pub(super) fn place_in_order(
        &self,
        worker: u16,
        coroutine: u32,
        source: NodeId,
        index: u16,
        epoch: u64,
    ) -> u64 {
        let coroutine = u64::from(worker) * self.coroutines + u64::from(coroutine);
        let place = (coroutine * self.nodes + u64::from(source.0)) * self.batch + u64::from(index);
        epoch * self.workers * self.coroutines * self.nodes * self.batch + place
    }

    /// Bytes from the beginning of a transaction's place to the letter of what was found.
    pub(super) fn found_section(&self) -> u64 {
        self.declared_words as u64 * 8
    }
}

/// Bytes from the beginning of a transaction's place to the section of `node`.
pub(super) fn section(txn: &Txn, node: NodeId) -> u64 {
    let words = |a: &phases::txn::Access| 1 + a.payload_words();
    let before = txn.accesses().iter().filter(|a| a.primary < node);
    // A head for each access is more than is needed and saves counting nodes.
    before.map(|a| (HEAD_WORDS + words(a)) as u64 * 8).sum()
}

/// Most words of the section of `node`, its head not counted.
pub(super) fn section_words(txn: &Txn, node: NodeId) -> usize {
    values_of(txn, node)
}

#[cfg(test)]
mod tests {
    use super::*;
    use primitives::units::Nanos;

    fn calvin(batch: u16) -> Calvin {
        Calvin { batch, epoch: Nanos(0), ..Calvin::default() }
    }

    #[test]
    fn no_two_buffers_overlap_and_all_stay_inside() {
        let shape = Shape { nodes: 3, workers: 2 };
        let told = Told { declared: 21, found: 9 };
        let buffers = Buffers::new(&calvin(2), shape, 2, 5, told).unwrap().at(4096);
        let mut spans = Vec::new();
        for (worker, coroutine, epoch) in
            (0..2).flat_map(|w| (0..2).flat_map(move |c| (6..8).map(move |e| (w, c, e))))
        {
            for source in (0..3).map(NodeId) {
                let at = buffers.requests(worker, coroutine, source, epoch);
                spans.push((at, at + (HEAD_WORDS + buffers.batch_words) as u64 * 8));
                for index in 0..2 {
                    let at = buffers.values(worker, coroutine, source, index, epoch);
                    spans.push((at, at + 21 * 8));
                    let found = at + buffers.found_section();
                    spans.push((found, found + (HEAD_WORDS as u64 + 9) * 8));
                }
            }
        }
        spans.sort_unstable();
        assert!(spans.windows(2).all(|pair| pair[0].1 <= pair[1].0), "{spans:?}");
        assert!(spans[0].0 >= 4096 && spans.last().unwrap().1 <= 4096 + buffers.bytes());
        assert_eq!(
            buffers.requests(1, 1, NodeId(2), 4),
            buffers.requests(1, 1, NodeId(2), 6),
            "epochs take turns"
        );
    }

    #[test]
    fn what_cannot_be_told_apart_or_sent_is_refused() {
        let refusal = |batch, nodes, coroutines| {
            Buffers::new(
                &calvin(batch),
                Shape { nodes, workers: 10 },
                coroutines,
                5,
                Told { declared: 21, found: 0 },
            )
            .unwrap_err()
        };
        assert!(refusal(0, 2, 1).contains("at least one"));
        let many = refusal(100, 100, 100);
        assert!(many.contains("10000000 transactions an epoch"), "{many}");
    }
}
