//! Outcomes the hardware allows must show on some seed; forbidden ones on none.

use super::*;
use crate::verbs::WcStatus;

const SEEDS: u64 = 60;

fn hazardous() -> FaultOptions {
    FaultOptions {
        torn_read: 0.7,
        torn_write: 0.7,
        transit_jitter: Nanos(400),
        completion_jitter: Nanos(100),
        ..FaultOptions::default()
    }
}

/// Steps time in small strides and looks on with `look` until the run is over.
fn watch(rig: &Rig, stride: u64, strides: u64, mut look: impl FnMut(&Rig)) {
    for _ in 0..strides {
        rig.world.advance(rig.world.now() + Nanos(stride));
        look(rig);
    }
}

/// A responder's CPU raises all words of a record one by one while READs of it are under way.
fn read_records(seed: u64, faults: FaultOptions) -> Vec<[u64; 8]> {
    let rig = Rig::with(seed, faults);
    let (qp, _) = rig.pair(QpConfig::rc());
    let reads = 40u64;
    for i in 0..reads {
        rig.post(qp, i, rig.read(0), rig.local(0, i * 64, 64), SIGNALED);
    }
    let mut value = 0;
    watch(&rig, 10, 1000, |rig| {
        value += 1;
        (0..8).for_each(|w| rig.regions[1].store(w * 8, value));
    });
    let done = rig.taken(0);
    assert_eq!(done.len() as u64, reads);
    assert!(done.iter().all(|c| c.status == WcStatus::Success));
    let word = |i, w| rig.regions[0].load(i * 64 + w * 8);
    (0..reads).map(|i| std::array::from_fn(|w| word(i, w as u64))).collect()
}

#[test]
fn a_read_beyond_a_word_may_be_torn_either_way() {
    let mut rising = 0;
    let mut falling = 0;
    for seed in 0..SEEDS {
        for words in read_records(seed, hazardous()) {
            // At most two times are mixed, whatever happens.
            let mut different = words.to_vec();
            different.dedup();
            assert!(different.len() <= 2, "seed {seed}: {words:?}");
            rising += usize::from(words[0] < words[7]);
            falling += usize::from(words[0] > words[7]);
        }
    }
    assert!(rising > 0 && falling > 0, "{rising} rising, {falling} falling");
}

#[test]
fn without_the_hazard_no_read_is_torn() {
    let whole = FaultOptions { torn_read: 0.0, ..hazardous() };
    for seed in 0..SEEDS {
        for words in read_records(seed, whole.clone()) {
            assert!(words.iter().all(|&w| w == words[0]), "seed {seed}: {words:?}");
        }
    }
}

#[test]
fn a_single_word_is_never_torn_and_reads_of_one_queue_pair_never_go_back() {
    for seed in 0..SEEDS {
        let rig = Rig::with(seed, hazardous());
        let (qp, _) = rig.pair(QpConfig::rc());
        (0..40).for_each(|i| rig.post(qp, i, rig.read(0), rig.local(0, i * 8, 8), SIGNALED));
        let mut value = 0u64;
        watch(&rig, 10, 1000, |rig| {
            value += 1;
            rig.regions[1].store(0, value << 32 | value);
        });
        let got: Vec<u64> = (0..40).map(|i| rig.regions[0].load(i * 8)).collect();
        assert!(got.iter().all(|v| v >> 32 == v & 0xffff_ffff), "seed {seed}: {got:x?}");
        assert!(got.is_sorted(), "seed {seed}: {got:x?}");
    }
}

/// WRITEs of one queue pair: a long record, then a flag. Returns whether the record was ever seen half done,
/// and whether a completion ever came before its record was whole.
fn write_record_then_flag(seed: u64, faults: FaultOptions) -> (bool, bool) {
    let rig = Rig::with(seed, faults);
    let (qp, _) = rig.pair(QpConfig::rc());
    let (mut half, mut early) = (false, false);
    for round in 1..=20u64 {
        (0..8).for_each(|w| rig.regions[0].store(w * 8, round));
        let chain = [
            WorkRequest { id: round, verb: rig.write(0), local: rig.local(0, 0, 64), flags: SIGNALED },
            WorkRequest { id: 0, verb: rig.write(64), local: rig.local(0, 0, 8), flags: QUIET },
        ];
        rig.nics[0].post(qp, &chain).unwrap();
        watch(&rig, 20, 400, |rig| {
            let words: Vec<u64> = (0..8).map(|w| rig.regions[1].load(w * 8)).collect();
            assert!(words.is_sorted_by(|a, b| a >= b), "seed {seed}: not in address order: {words:?}");
            let whole = words.iter().all(|&w| w == round);
            let flagged = rig.regions[1].load(64) == round;
            assert!(whole || !flagged, "seed {seed}: the flag overtook its record");
            half |= words[0] != words[7];
            early |= !whole && rig.taken(0).iter().any(|c| c.id == round);
        });
    }
    (half, early)
}

#[test]
fn a_write_lands_in_address_order_and_may_be_seen_half_done() {
    let outcomes: Vec<_> = (0..SEEDS / 4).map(|seed| write_record_then_flag(seed, hazardous())).collect();
    assert!(outcomes.iter().any(|o| o.0), "never seen half done");
    assert!(outcomes.iter().all(|o| !o.1), "completed before it was placed, though late writes are off");
}

#[test]
fn a_late_write_may_complete_before_it_is_whole() {
    let late = FaultOptions { late_write: 0.5, ..hazardous() };
    assert!((0..SEEDS / 4).any(|seed| write_record_then_flag(seed, late.clone()).1));
}

/// A NIC adds one 16 times while the responder's CPU adds a thousand at a time with plain stores.
fn add_against_cpu(seed: u64, scope: crate::fabric::AtomicScope) -> (u64, u64) {
    let mut config = config(2, 1, seed);
    config.profile.nic.atomic_scope = scope;
    let rig = Rig::over(config);
    let (qp, _) = rig.pair(QpConfig::rc());
    let add = |id| WorkRequest { id, verb: rig.faa(0, 1), local: rig.local(0, 8 * id, 8), flags: SIGNALED };
    rig.nics[0].post(qp, &(0..16).map(add).collect::<Vec<_>>()).unwrap();
    let mut cpu = 0;
    watch(&rig, 37 + seed, 300, |rig| {
        rig.regions[1].store(0, rig.regions[1].load(0) + 1000);
        cpu += 1000;
    });
    assert_eq!(rig.taken(0).len(), 16);
    (rig.regions[1].load(0), cpu + 16)
}

#[test]
fn atomics_of_a_nic_lose_cpu_stores_and_global_ones_do_not() {
    let mut lost = 0;
    for seed in 0..SEEDS {
        let (got, want) = add_against_cpu(seed, crate::fabric::AtomicScope::Nic);
        assert!(got <= want && got % 1000 == 16, "seed {seed}: only CPU stores are lost, {got} of {want}");
        lost += usize::from(got < want);
        let (got, want) = add_against_cpu(seed, crate::fabric::AtomicScope::Global);
        assert_eq!(got, want, "seed {seed}");
    }
    assert!(lost > 0, "the window never showed");
}

#[test]
fn atomics_of_one_nic_exclude_each_other() {
    for seed in 0..SEEDS {
        let rig = Rig::with(seed, hazardous());
        let pairs: Vec<Qp> = (0..4).map(|_| rig.pair(QpConfig::rc()).0).collect();
        for i in 0..64u64 {
            let qp = pairs[i as usize % 4];
            rig.post(qp, i, rig.faa(0, 1), rig.local(0, i * 8, 8), SIGNALED);
        }
        // A lock word: of sixteen CAS that expect zero, one wins.
        for i in 64..80u64 {
            rig.post(pairs[i as usize % 4], i, rig.cas(8, 0, i), rig.local(0, i * 8, 8), SIGNALED);
        }
        assert_eq!(rig.drain(0).len(), 80);
        assert_eq!(rig.regions[1].load(0), 64);
        let mut seen: Vec<u64> = (0..64).map(|i| rig.regions[0].load(i * 8)).collect();
        seen.sort_unstable();
        assert_eq!(seen, (0..64).collect::<Vec<_>>(), "seed {seed}: every old value once");
        let won: Vec<u64> = (64..80).filter(|i| rig.regions[0].load(i * 8) == 0).collect();
        assert_eq!(won.len(), 1, "seed {seed}");
        assert_eq!(rig.regions[1].load(8), won[0]);
    }
}

/// Emulated cards (Soft-RoCE's profile) hold a word for no time at all. What comes of their atomics must be whole all the same, also where
/// some wait for WRITEs of their own queue pair and so read later than they arrived.
#[test]
fn atomics_of_a_card_that_holds_words_for_no_time_exclude_each_other() {
    for seed in 0..SEEDS {
        let mut config = config(2, 1, seed);
        (config.profile.nic.atomic_hold.value, config.profile.nic.atomic_unit.value) = (0.0, 0.0);
        let rig = Rig::over(config);
        let pairs: Vec<Qp> = (0..4).map(|_| rig.pair(QpConfig::rc()).0).collect();
        for (i, &qp) in (0..64).zip(pairs.iter().cycle()) {
            rig.post(qp, 64 + i, rig.write(512), rig.local(0, 1024, 512), SIGNALED);
            rig.post(qp, i, rig.faa(0, 1), rig.local(0, i * 8, 8), SIGNALED);
        }
        assert_eq!(rig.drain(0).len(), 128);
        assert_eq!(rig.regions[1].load(0), 64, "seed {seed}: one was lost");
        let mut seen: Vec<u64> = (0..64).map(|i| rig.regions[0].load(i * 8)).collect();
        seen.sort_unstable();
        assert_eq!(seen, (0..64).collect::<Vec<_>>(), "seed {seed}: every old value once");
    }
}

#[test]
fn queue_pairs_overtake_each_other_but_not_themselves() {
    let mut overtaken = 0;
    for seed in 0..SEEDS {
        let rig = Rig::with(seed, hazardous());
        let (a, b) = (rig.pair(QpConfig::rc()).0, rig.pair(QpConfig::rc()).0);
        for (i, qp) in [a, b].into_iter().enumerate() {
            for n in 1..=8 {
                rig.regions[0].store(n * 8, n);
                let to = rig.write(i as u64 * 8);
                rig.post(qp, n, to, rig.local(0, n * 8, 8), INLINE);
            }
        }
        let mut last = [0; 2];
        watch(&rig, 5, 800, |rig| {
            let now = [0, 8].map(|o| rig.regions[1].load(o));
            assert!(now[0] >= last[0] && now[1] >= last[1], "seed {seed}: order within a queue pair");
            last = now;
            overtaken += usize::from(now[1] > now[0]);
        });
        assert_eq!(last, [8, 8]);
        let completions = rig.taken(0);
        for qp in [a, b] {
            assert!(completions.iter().filter(|c| c.qp == qp).map(|c| c.id).is_sorted());
        }
    }
    assert!(overtaken > 0, "what was posted second never came first");
}
