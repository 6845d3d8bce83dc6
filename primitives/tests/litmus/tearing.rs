//! READs and WRITEs of more than a word are not atomic; an aligned word is never torn, on any fabric.

use crate::common::*;
use primitives::fabric::Nic;
use primitives::verbs::{QpConfig, WcStatus};

const WORDS: u64 = 16;
const BYTES: u32 = WORDS as u32 * 8;

/// A word all of whose bytes are the same, so that half of one shows.
fn pattern(round: u64) -> u64 {
    (round & 0xff) * 0x0101_0101_0101_0101
}

/// Checks that words are whole, and says whether they differ.
fn torn(words: impl Iterator<Item = u64>, round: u64) -> bool {
    let (old, new) = (pattern(round - 1), pattern(round));
    let mut seen = [false; 2];
    for word in words {
        assert!(word == old || word == new, "round {round}: a torn word, {word:#018x}");
        seen[usize::from(word == new)] = true;
    }
    seen == [true; 2]
}

fn fill(net: &Net, node: u16, offset: u64, value: u64) {
    for word in 0..WORDS {
        net.memory(node).store(offset + word * 8, value);
    }
}

fn write_torn(fabric: Fabric) -> bool {
    let net = Net::new(fabric, 2);
    let (qp, _) = net.pair(0, 1, QpConfig::rc());
    let mut seen = false;
    for round in 1..=40 {
        fill(&net, 0, 0, pattern(round));
        net.post(0, qp, round, net.write(1, 0), net.local(0, 0, BYTES), SIGNALED);
        let mut done = 0;
        while done == 0 {
            seen |= torn((0..WORDS).map(|w| net.memory(1).load(w * 8)), round);
            done = net.nic(0).poll(1, |c| assert_eq!(c.status, WcStatus::Success));
            net.tick();
        }
    }
    seen
}

#[test]
fn a_long_write_may_be_seen_half_done_but_no_word_torn() {
    must_show("a WRITE seen half done", 20, write_torn);
    assert!(!write_torn(Fabric::Posting), "this thread is the one that copies");
}

fn read_torn(fabric: Fabric) -> bool {
    let net = Net::new(fabric, 2);
    let (qp, _) = net.pair(0, 1, QpConfig::rc());
    let mut seen = false;
    for round in 1..=40 {
        net.post(0, qp, round, net.read(1, 0), net.local(0, 0, BYTES), SIGNALED);
        // The owner writes all words at one time, another one each round, so that what is mixed was mixed by the
        // READ: after so many nanoseconds in virtual time, after so many turns of this thread elsewhere.
        let mut wait = if net.is_simulated() { 700 + round * 25 } else { round % 8 };
        let mut done = 0;
        while done == 0 || wait > 0 {
            done += net.nic(0).poll(1, |c| assert_eq!(c.status, WcStatus::Success));
            net.tick();
            wait = wait.saturating_sub(1);
            if wait == 0 {
                fill(&net, 1, 0, pattern(round));
            }
        }
        fill(&net, 1, 0, pattern(round));
        seen |= torn((0..WORDS).map(|w| net.memory(0).load(w * 8)), round);
    }
    seen
}

#[test]
fn a_long_read_may_be_half_old_but_no_word_torn() {
    must_show("a READ half old, half new", 20, read_torn);
    assert!(!read_torn(Fabric::Posting), "the READ is over before the owner writes");
}

#[test]
fn a_read_of_one_word_is_whole_whatever_the_owner_does() {
    on_every_fabric(|fabric| {
        let net = Net::new(fabric, 2);
        let (qp, _) = net.pair(0, 1, QpConfig::rc());
        for round in 1..=100 {
            net.post(0, qp, round, net.read(1, 8), net.local(0, 8, 8), SIGNALED);
            let mut done = 0;
            while done == 0 {
                net.memory(1).store(8, pattern(round));
                done = net.nic(0).poll(1, |_| {});
                net.tick();
            }
            let word = net.memory(0).load(8);
            assert!(word == pattern(round) || word == pattern(round - 1), "{word:#018x}");
        }
    });
}
