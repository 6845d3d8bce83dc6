//! An epoch's inputs of one coroutine, as they travel: a letter's contents.
//!
//! ```text
//! word 0    no more will come:1 | inputs:63
//! for each  words, then the input as its workload writes it
//! ```

use crate::workload::Workload;
use crate::workload::ahead::InputWords;
use phases::letter::HEAD_WORDS;
use primitives::mem::{Buf, Region};

const LAST: u64 = 1 << 63;

/// A batch that is being put together.
#[derive(Debug, Default)]
pub(super) struct Batch {
    words: Vec<u64>,
}

impl Batch {
    /// Begins anew.
    pub(super) fn clear(&mut self) {
        self.words.clear();
        self.words.push(0);
    }

    /// Appends an input.
    pub(super) fn push<W: Workload>(&mut self, workload: &W, input: &W::Input) {
        let at = self.words.len();
        self.words.push(0);
        workload.write_input(input, &mut self.words);
        self.words[at] = (self.words.len() - at - 1) as u64;
        self.words[0] += 1;
    }

    /// This coroutine's last batch, or an empty one behind it.
    pub(super) fn last(&mut self) {
        self.words[0] |= LAST;
    }

    /// Words so far.
    pub(super) fn len(&self) -> usize {
        self.words.len()
    }

    /// Writes the batch behind the head of the letter in `buf`.
    pub(super) fn write(&self, buf: &Buf) {
        for (i, &word) in self.words.iter().enumerate() {
            buf.set_word(HEAD_WORDS + i, word);
        }
    }
}

/// A batch that has come.
#[derive(Debug, Default)]
pub(super) struct Arrived {
    words: Vec<u64>,
}

impl Arrived {
    /// Takes the contents of the letter at `at`, which has come with `words` words.
    pub(super) fn take(&mut self, region: &Region, at: u64, words: usize) {
        let word = |i: usize| region.load(at + (HEAD_WORDS + i) as u64 * 8);
        self.words.clear();
        self.words.extend((0..words).map(word));
    }

    /// Whether its sender has no more transactions.
    pub(super) fn is_last(&self) -> bool {
        self.words.first().is_some_and(|&first| first & LAST != 0)
    }

    /// The inputs, or `None` in place of the first that cannot be read, which is a peer's fault.
    pub(super) fn inputs<'b, W: Workload>(
        &'b self,
        workload: &'b W,
    ) -> impl Iterator<Item = Option<W::Input>> + 'b {
        let (first, mut rest) = self.words.split_first().unwrap_or((&0, &[]));
        (0..first & !LAST).map(move |_| {
            let (&len, tail) = rest.split_first()?;
            let (input, tail) = tail.split_at_checked(usize::try_from(len).ok()?)?;
            rest = tail;
            workload.read_input(InputWords::new(input))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::Scale;
    use crate::workload::smallbank::SmallBank;
    use rand::SeedableRng;
    use rand_xoshiro::Xoshiro256PlusPlus;

    fn arrived(words: Vec<u64>) -> Arrived {
        Arrived { words }
    }

    #[test]
    fn inputs_come_out_as_they_went_in() {
        let bank = SmallBank::parse(Scale { nodes: 2, workers: 1 }, []).unwrap();
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(3);
        let mut batch = Batch::default();
        for n in 0..5 {
            batch.clear();
            let inputs: Vec<_> = (0..n).map(|_| bank.draw(&mut rng)).collect();
            inputs.iter().for_each(|input| batch.push(&bank, input));
            let there = arrived(batch.words.clone());
            assert!(!there.is_last());
            assert_eq!(
                there.inputs(&bank).collect::<Vec<_>>(),
                inputs.iter().map(|&i| Some(i)).collect::<Vec<_>>()
            );
            batch.last();
            assert!(arrived(batch.words.clone()).is_last());
            assert_eq!(arrived(batch.words.clone()).inputs(&bank).count(), n);
        }
    }

    #[test]
    fn bytes_of_a_peer_are_not_trusted() {
        let bank = SmallBank::parse(Scale { nodes: 2, workers: 1 }, []).unwrap();
        for words in [vec![2, 1, 0], vec![1, u64::MAX], vec![1, 4, 0, 1, 2], vec![1]] {
            let batch = arrived(words.clone());
            assert!(batch.inputs(&bank).any(|input| input.is_none()), "{words:?}");
        }
        assert_eq!(arrived(vec![]).inputs(&bank).count(), 0);
    }
}
