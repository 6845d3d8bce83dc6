//! The payload that each phase's requests carry, held against what is known by hand of a transaction of one read and one write.

mod common;
use common::*;
use phases::ops::PhaseOps;
use phases::plan::{Phase, Plan, Via};
use phases::txn::{Intent, Txn};
use primitives::fabric::tcp;
use primitives::mesh::FabricSpec;

/// Requests and bytes of each phase, in the order of [`Phase::ALL`].
type Carried = [(u32, u32); 6];

fn carried(txn: &Txn) -> Carried {
    Phase::ALL.map(|phase| (txn.costs[phase].verbs, txn.costs[phase].bytes))
}

/// What a transaction that commits and one that gives up its lock have carried, by turns; the locations of their records are cached.
/// What is read has one word of payload and lies on node 2, what is written has twenty and lies on node 1, whose backup is node 2.
fn read_one_and_write_one(fabric: &FabricSpec, via: Via) -> [Carried; 2] {
    let setup = Setup { fabric: fabric.clone(), replicas: 2, ..patient(Plan::uniform(via)) };
    let ran = run(&setup, |env| {
        Box::pin(async move {
            let (ops, mut txn) = (&env.phases, Txn::new());
            let mut both = [Carried::default(); 2];
            // The first time round locations are learned.
            for commits in [true, true, false] {
                let rule = env.begin(&mut txn);
                env.touch(&mut txn, T, 2, Intent::Read);
                let at = env.touch(&mut txn, WIDE, 1, Intent::Write);
                ops.fetch(&mut txn).await.unwrap();
                if commits {
                    txn.set_word(at, 0, 7);
                    env.commit(&mut txn, rule).await.unwrap();
                } else {
                    ops.lock_and_read(&mut txn, rule).await.unwrap();
                    ops.unlock(&mut txn).await.unwrap();
                }
                both[usize::from(!commits)] = carried(&txn);
                ops.settle().await.unwrap();
            }
            both
        })
    });
    ran.outputs[0]
}

const WORD: u32 = 8;
const READ_WORDS: u32 = 1;
const WRITTEN_WORDS: u32 = WIDE_WORDS as u32;
/// Header, checksum and key stand in front of a record's payload.
const FRONT: u32 = 3;
/// Frame, stamp, of the one record what, key and version, payload, and the frame again.
const ENTRY: u32 = (5 + WRITTEN_WORDS + 1) * WORD;
/// Which record a call is about: table and offset, key.
const NAME: u32 = 2 * WORD;
/// How a call ended.
const OUTCOME: u32 = WORD;

#[test]
fn verbs_carry_what_they_read_and_write() {
    let (read, written) = ((FRONT + READ_WORDS) * WORD, (FRONT + WRITTEN_WORDS) * WORD);
    let fetch = (2, read + written);
    // CAS, and READ of its word behind it: the record is known.
    let lock = (2, WORD + WORD);
    let validate = (1, WORD);
    // All but the first word, then that.
    let install = (2, written - WORD + WORD);
    for fabric in [loopback(), sim(1)] {
        let [commits, gives_up] = read_one_and_write_one(&fabric, Via::OneSided);
        assert_eq!(commits, [fetch, lock, validate, (1, ENTRY), install, (0, 0)]);
        assert_eq!(gives_up, [fetch, lock, (0, 0), (0, 0), (0, 0), (1, WORD)]);
    }
}

#[test]
fn calls_carry_their_requests_and_the_replies_that_are_waited_for() {
    // Both records' outcome, first word, which has the version, and payload.
    let fetch = (2, 2 * NAME + 2 * (OUTCOME + WORD) + (READ_WORDS + WRITTEN_WORDS) * WORD);
    // Who asks, read version and rule.
    let lock = (1, NAME + 2 * WORD + OUTCOME);
    // Read version and rule.
    let validate = (1, NAME + WORD + OUTCOME);
    // Position in the ring.
    let log = (1, WORD + ENTRY + OUTCOME);
    // Version and payload; nobody waits for a reply.
    let install = (1, NAME + WORD + WRITTEN_WORDS * WORD);
    let unlock = (1, NAME + WORD);
    for fabric in [loopback(), sim(1), FabricSpec::Tcp(tcp::Options::default())] {
        let [commits, gives_up] = read_one_and_write_one(&fabric, Via::TwoSided);
        assert_eq!(commits, [fetch, lock, validate, log, install, (0, 0)]);
        assert_eq!(gives_up, [fetch, lock, (0, 0), (0, 0), (0, 0), unlock]);
    }
}
