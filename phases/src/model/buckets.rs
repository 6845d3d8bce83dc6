//! How many ATOMICs a card can have under way, and what they wait for each other.
//!
//! An ATOMIC holds one of the card's buckets of words from before it reads until it has written, and the queue pair that it came by
//! until then: what follows on that queue pair comes behind it. So each waits for the last one on its queue pair *and* the
//! last one on its bucket, whichever is later, and meanwhile keeps the other of the two from those behind it. What comes of that is
//! far less than either alone would allow: with 32 buckets and 6 queue pairs not 32 at a time but 6 to 10. There is no formula for it,
//! but to lay a few thousand in a row, each as early as those before it let it, takes microseconds (they are heaps of
//! pieces, whose height grows by a mean amount for each piece: Viennot 1986; Gaubert and Mairesse 1999).

use primitives::profile::NicProfile;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

/// ATOMICs that are laid, and those of them that are not counted, as the first find nobody before them.
const LAID: u32 = 6_000;
const FIRST: u32 = 1_000;

/// What one ATOMIC takes of the buckets and queue pairs of a card, as one server that stands for all of them.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Buckets {
    /// Nanoseconds: the card's ATOMICs come at this distance where there are always some that wait.
    pub(super) ns: f64,
    /// What it adds to the squares of service times: where there are few, they wait for half of it at their rate.
    pub(super) ns2: f64,
}

/// Where the words are that a card's ATOMICs change.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Words {
    /// Buckets that they fall on, each as likely as the others.
    pub(super) buckets: u64,
    /// The chance that two are the same word.
    pub(super) same: f64,
}

impl Buckets {
    /// Of a card whose ATOMICs come by `queue_pairs`, all alike.
    pub(super) fn new(nic: &NicProfile, queue_pairs: f64, words: Words) -> Buckets {
        Buckets::held(nic.atomic_hold.value, nic.atomic_write_ns(), queue_pairs, words)
    }

    /// The same for words that are held for so long, the last part of it from read to write.
    fn held(hold: f64, write: f64, queue_pairs: f64, words: Words) -> Buckets {
        if hold <= 0.0 {
            return Buckets::default();
        }
        let read = hold - write;
        // As many all alike as there might as well be.
        let queues = queue_pairs.round().max(1.0);
        let mut by_queue = vec![0.0_f64; queues.min(4096.0) as usize];
        let mut by_bucket = vec![0.0_f64; words.buckets.clamp(1, 65_536) as usize];
        let hot = words.same.clamp(0.0, 1.0).sqrt();
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
        let (mut top, mut began) = (0.0_f64, 0.0);
        for laid in 0..LAID {
            if laid == FIRST {
                began = top;
            }
            let queue = rng.random_range(0..by_queue.len());
            let any = rng.random_range(0..by_bucket.len());
            let bucket = if rng.random::<f64>() < hot { 0 } else { any };
            let written = by_queue[queue].max(by_bucket[bucket] + read) + write;
            (by_queue[queue], by_bucket[bucket]) = (written, written);
            top = top.max(written);
        }
        let ns = (top - began) / f64::from(LAID - FIRST);
        let alike = words.same + (1.0 - words.same) / words.buckets.max(1) as f64;
        Buckets { ns, ns2: hold * hold * alike + write * write / queues }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use primitives::profile::Profile;

    fn at_a_time(queue_pairs: f64, words: Words, written_at_once: bool) -> f64 {
        let write = if written_at_once { 0.001 } else { 1000.0 };
        1000.0 / Buckets::held(1000.0, write, queue_pairs, words).ns
    }

    #[test]
    fn what_is_known_of_extremes_comes_out() {
        let words = |buckets| Words { buckets, same: 0.0 };
        let near = |got: f64, is: f64, share: f64| assert!((got / is - 1.0).abs() < share, "{got} {is}");
        // One bucket, one word or one queue pair that is held as long: one at a time.
        near(at_a_time(100.0, words(1), true), 1.0, 1e-3);
        near(at_a_time(100.0, Words { buckets: 512, same: 1.0 }, true), 1.0, 1e-3);
        near(at_a_time(1.0, words(512), false), 1.0, 1e-3);
        // One queue pair that is held for no time goes on until it comes to a bucket that is held (the problem of birthdays: some
        // sqrt(pi/2 n) of them).
        near(at_a_time(1.0, words(512), true), (std::f64::consts::FRAC_PI_2 * 512.0).sqrt(), 0.1);
        // Few on many buckets by queue pairs that are held: as many as queue pairs, almost.
        near(at_a_time(2.0, words(60_000), false), 2.0, 0.05);
        // More of either help.
        let some = at_a_time(6.0, words(32), true);
        assert!(some < at_a_time(12.0, words(32), true) && some < at_a_time(6.0, words(64), true), "{some}");
        assert!((6.0..32.0).contains(&some), "{some}");
        let mut none = Profile::shipped("cx4-edr").unwrap().nic;
        none.atomic_hold.value = 0.0;
        assert_eq!(Buckets::new(&none, 4.0, words(512)), Buckets::default());
    }
}
