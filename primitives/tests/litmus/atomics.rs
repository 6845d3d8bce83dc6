//! ATOMICs among themselves, and against the CPU.

use crate::common::*;
use primitives::fabric::{AtomicScope, Nic};
use primitives::verbs::{QpConfig, WcStatus};

const WORD: u64 = 512;

#[test]
fn fetch_adds_of_several_queue_pairs_lose_none() {
    on_every_fabric(|fabric| {
        const EACH: u64 = 40;
        let net = Net::new(fabric, 3);
        // Two contexts of node 0, node 2, and the owner through its own NIC.
        let from = [(net.nic(0), 0), (net.other_nic(0), 0), (net.nic(2), 2), (net.nic(1), 1)];
        let qps = from.map(|(nic, _)| connect(nic, net.other_nic(1), QpConfig::rc()).0);
        for i in 0..EACH {
            for (&(nic, node), &qp) in from.iter().zip(&qps) {
                let local =
                    net.local(node, 8192 + u64::from(std::ptr::eq(nic, net.other_nic(0))) * 1024 + i * 8, 8);
                nic.post(qp, &[request(i, net.fetch_add(1, WORD, 1), local, SIGNALED)]).expect("room");
            }
            net.tick();
        }
        let mut seen: Vec<u64> = Vec::new();
        for &(nic, node) in &from {
            let done = net.wait_on(nic, EACH as usize);
            assert!(done.iter().all(|c| c.status == WcStatus::Success));
            let start = 8192 + u64::from(std::ptr::eq(nic, net.other_nic(0))) * 1024;
            seen.extend((0..EACH).map(|i| net.memory(node).load(start + i * 8)));
        }
        net.settle();
        assert_eq!(net.memory(1).load(WORD), 4 * EACH);
        seen.sort_unstable();
        assert_eq!(seen, (0..4 * EACH).collect::<Vec<_>>(), "every value is seen once");
    });
}

#[test]
fn one_cas_wins_a_word() {
    on_every_fabric(|fabric| {
        let net = Net::new(fabric, 3);
        let from = [(net.nic(0), 0u16), (net.other_nic(0), 0), (net.nic(2), 2), (net.other_nic(2), 2)];
        let qps = from.map(|(nic, _)| connect(nic, net.nic(1), QpConfig::rc()).0);
        for round in 0..20 {
            let word = WORD + round * 8;
            for (i, (&(nic, node), &qp)) in from.iter().zip(&qps).enumerate() {
                let i = i as u64;
                let chain = [request(i, net.cas(1, word, 0, i + 1), net.local(node, i * 8, 8), SIGNALED)];
                nic.post(qp, &chain).expect("room");
            }
            let saw: Vec<u64> = (0..4)
                .map(|i: usize| {
                    net.wait_on(from[i].0, 1);
                    net.memory(from[i].1).load(i as u64 * 8)
                })
                .collect();
            net.settle();
            let winner = net.memory(1).load(word);
            assert!((1..=4).contains(&winner), "{winner}");
            for (i, &saw) in saw.iter().enumerate() {
                let expected = if i as u64 + 1 == winner { 0 } else { winner };
                assert_eq!(saw, expected, "round {round}, contender {i}, winner {winner}");
            }
        }
    });
}

/// NIC FETCH_ADDs of 1 against CPU FETCH_ADDs of 2^32, one a tick; whether any of either is lost.
fn loses_cpu_atomics(fabric: Fabric) -> bool {
    let net = Net::new(fabric, 2);
    let (qp, _) = net.pair(0, 1, QpConfig::rc());
    let mut by_cpu = 0u64;
    const BY_NIC: u64 = 20;
    for i in 0..BY_NIC {
        net.post(0, qp, i, net.fetch_add(1, WORD, 1), net.local(0, 0, 8), SIGNALED);
        let mut done = 0;
        while done == 0 {
            net.memory(1).fetch_add(WORD, 1 << 32);
            by_cpu += 1;
            done = net.nic(0).poll(1, |c| assert_eq!(c.status, WcStatus::Success));
            net.tick();
        }
    }
    net.settle();
    let sum = net.memory(1).load(WORD);
    assert_eq!(sum & 0xffff_ffff, BY_NIC, "the CPU's additions are atomic against the NIC's write");
    assert!(sum >> 32 <= by_cpu);
    sum >> 32 != by_cpu
}

/// A CPU CAS that succeeds while a NIC CAS of the same word is under way; whether both win.
fn two_locks(fabric: Fabric) -> bool {
    let net = Net::new(fabric, 2);
    let (qp, _) = net.pair(0, 1, QpConfig::rc());
    let mut both = false;
    for round in 0..40u64 {
        let word = WORD + round * 8;
        net.post(0, qp, round, net.cas(1, word, 0, 1), net.local(0, 0, 8), SIGNALED);
        let (mut done, mut cpu_won) = (0, false);
        // The CPU tries once, later each round, so that some try falls between the NIC's read and its write.
        let mut wait = round * if net.is_simulated() { 40 } else { 1 };
        while done == 0 || wait > 0 {
            done += net.nic(0).poll(1, |c| assert_eq!(c.status, WcStatus::Success));
            if wait > 0 {
                wait -= 1;
                if wait == 0 {
                    cpu_won = net.memory(1).compare_swap(word, 0, 2) == 0;
                }
            }
            net.tick();
        }
        net.settle();
        both |= cpu_won && net.memory(0).load(0) == 0;
    }
    both
}

#[test]
fn the_cpu_and_the_nic_exclude_each_other_only_where_the_scope_is_global() {
    for (what, loses) in
        [("a CPU atomic lost", loses_cpu_atomics as fn(Fabric) -> bool), ("two holders of a lock", two_locks)]
    {
        on_every_fabric(|fabric| match Net::new(fabric, 1).nic(0).caps().atomic_scope {
            AtomicScope::Global => assert!(!loses(fabric), "{what} on {fabric:?}"),
            AtomicScope::Nic | AtomicScope::None => {}
        });
        if real_device().is_some() {
            must_show(what, 1, |fabric| {
                Net::new(fabric, 1).nic(0).caps().atomic_scope == AtomicScope::Nic && loses(fabric)
            });
            continue;
        }
        for index in 0..Fabric::overlapping(1).len() {
            let of = |seed| Fabric::overlapping(seed)[index];
            if Net::new(of(1), 1).nic(0).caps().atomic_scope == AtomicScope::Nic {
                assert!(
                    (1..=20).any(|seed| named(of(seed), || loses(of(seed)))),
                    "{what}: never on {:?}",
                    of(1)
                );
            }
        }
    }
}

/// A word that one queue pair WRITEs while CASes of another find something else than they expect; whether a WRITE is gone afterwards.
fn a_write_is_undone(net: &Net) -> bool {
    const NEVER: u64 = u64::MAX;
    let (qp, _) = net.pair(0, 1, QpConfig::rc());
    let (rival, _) = connect(net.other_nic(0), net.nic(1), QpConfig::rc());
    (1..=40u64).any(|round| {
        for i in 0..4 {
            let local = net.local(0, 1024 + i * 8, 8);
            let cas = request(i, net.cas(1, WORD, NEVER, 0), local, SIGNALED);
            net.other_nic(0).post(rival, &[cas]).expect("room");
        }
        // Later each round, so that some WRITE comes between a CAS's two looks at the word.
        (0..round * if net.is_simulated() { 40 } else { 1 }).for_each(|_| net.tick());
        net.memory(0).store(0, round);
        net.post(0, qp, round, net.write(1, WORD), net.local(0, 0, 8), SIGNALED);
        net.done(0);
        let tried = net.wait_on(net.other_nic(0), 4);
        assert!(tried.iter().all(|c| c.status == WcStatus::Success));
        net.settle();
        net.memory(1).load(WORD) != round
    })
}

#[test]
fn a_failed_cas_undoes_a_write_only_where_the_fabric_says_that_it_may() {
    on_every_fabric(|fabric| {
        let net = Net::new(fabric, 2);
        if !net.nic(0).caps().failed_cas_stores {
            assert!(!a_write_is_undone(&net), "undone on {fabric:?}");
        }
    });
    let undone = |seed| {
        let faults = Faults { failed_cas_stores: true, ..Faults::default() };
        let net = Net::with(Fabric::Sim(seed), 2, faults);
        assert!(net.nic(0).caps().failed_cas_stores);
        a_write_is_undone(&net)
    };
    assert!((1..=10).any(undone), "never undone in 10 seeds");
}
