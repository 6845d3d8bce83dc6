//! A message of a call: words, and behind them the one that says that all of them are there.
//!
//! ```text
//! words     the payload of a request, the answer of a reply
//! control   sequence number:32 | checksum over it and the words:32
//! ```
//!
//! Whoever polls memory may see a WRITE half done. A NIC that writes in order of addresses writes the control word last, but
//! none promises so, and the fabrics here promise whole words alone (`fabric/mod.rs`); some hardware shows otherwise
//! (efficient/rdma_bench, `write-incomplete`). So it is the checksum that decides, as it does for records, and a message
//! that is not whole is one that has not come yet. The sequence number tells it from what the slot held before.

/// Bytes of the control word.
pub(super) const CONTROL_BYTES: u32 = 8;

const ODD: u64 = 0x9e37_79b9_7f4a_7c15;

fn fold(state: u64, word: u64) -> u64 {
    let mixed = (state.rotate_left(23) ^ word).wrapping_mul(ODD);
    mixed ^ mixed >> 32
}

/// The control word of message `seq`.
pub(super) fn control(seq: u32, words: impl Iterator<Item = u64>) -> u64 {
    let check = words.fold(fold(ODD, u64::from(seq)), fold);
    u64::from(seq) << 32 | check & u64::from(u32::MAX)
}

/// Whether message `seq` of `words` words has come whole, where `word(i)` loads the word of a number.
pub(super) fn whole(seq: u32, words: usize, word: impl Fn(usize) -> u64) -> bool {
    let seen = word(words);
    (seen >> 32) as u32 == seq && seen == control(seq, (0..words).map(word))
}

/// Word `index` of the payload that `seed` stands for. No two calls have the same, so that an answer to another is noticed.
pub(super) fn payload(seed: u64, index: usize) -> u64 {
    fold(seed, index as u64)
}

/// What a server answers to a payload: all of it must have been read to know it.
pub(super) fn answer(words: impl Iterator<Item = u64>) -> u64 {
    words.fold(!ODD, |state, word| fold(state.wrapping_add(word), state))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(seq: u32, seed: u64, words: usize) -> Vec<u64> {
        let mut all: Vec<u64> = (0..words).map(|i| payload(seed, i)).collect();
        all.push(control(seq, all.iter().copied()));
        all
    }

    #[test]
    fn a_message_has_come_when_all_of_its_words_have() {
        const WORDS: usize = 8;
        let (old, new) = (message(7, 1, WORDS), message(39, 2, WORDS));
        for before in [&old, &vec![0; WORDS + 1]] {
            // Any of its words may come late, and so may any number of them from either end.
            let late = |late: &dyn Fn(usize) -> bool| -> Vec<u64> {
                (0..=WORDS).map(|i| if late(i) { before[i] } else { new[i] }).collect()
            };
            for at in 0..=WORDS {
                for seen in [late(&|i| i == at), late(&|i| i >= at), late(&|i| i <= at)] {
                    assert!(!whole(39, WORDS, |i| seen[i]), "word {at} is late");
                }
            }
        }
        assert!(whole(39, WORDS, |i| new[i]) && whole(7, WORDS, |i| old[i]));
        assert!(!whole(7, WORDS, |i| new[i]), "another message");
    }

    #[test]
    fn memory_that_nobody_wrote_holds_no_message() {
        assert!((0..100).all(|seq| !whole(seq, 1, |_| 0)));
    }

    #[test]
    fn an_answer_is_of_all_words_and_of_their_order() {
        let of = |words: &[u64]| answer(words.iter().copied());
        assert_ne!(of(&[1, 2, 3]), of(&[1, 3, 2]));
        assert_ne!(of(&[1, 2, 3]), of(&[1, 2, 4]));
        assert_ne!(of(&[1, 2, 3]), of(&[0, 2, 3]));
        assert_eq!(of(&[5]), of(&[5]));
    }
}
