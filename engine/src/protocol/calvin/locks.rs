//! The lock table of a node: locks are granted in the order of transactions, whoever comes first.
//!
//! Every access of an epoch draws a *ticket* before the epoch's first transaction runs: how many writers and how many readers of the
//! same lock come before it in the global order. A lock counts those it has served. A reader's turn is when all writers
//! before it have been served; a writer's, when all readers have, too. So there is nothing to decide at run time, no
//! queue and no conflict, readers share, and a lock word is changed by one atomic addition (the paper's lock words are tried until
//! they are free, which grants in the order of luck).
//!
//! Tickets count from the epoch's beginning. Workers of a node draw them in parallel: the order of transactions is by worker
//! first, so each worker counts its own transactions' accesses, tells the sums, and adds the sums of the workers before it.
//! Telling is also how workers wait for each other: one that has told its sums has all inputs of its counterparts,
//! and a worker's sums for an epoch are told only after its transactions of the epoch before have ended. So
//! when all have told, all inputs of all nodes are here and all locks are free.
//!
//! Locks are words of the table, not of records: `epoch:28 | writers:18 | readers:18`. A word of another epoch counts as none
//! served, so nothing is cleared between epochs. Epochs are told apart modulo 2²⁸ − 1; some words that are out of use
//! are cleared each epoch, so that none is ever that old. Several records may share a lock, which makes some wait for no reason and nobody wrong.
//!
//! **Groups** have locks of their own, for those who read any of a group's records and those who change one, which they have named
//! and locked: the latter are let in *among* each other, and so are the former, but not both at once (intention locks: Gray et
//! al., 1976). Those who read count as readers there, those among each other as writers who wait for readers alone. That
//! is safe for the same reason as above, that whoever has been served in a kind that is waited for came before the one who waits:
//! later ones of that kind wait for it in turn.

use crate::workload::RecordId;
use phases::txn::Intent;
use std::sync::atomic::{AtomicU64, Ordering};

const COUNT_BITS: u32 = 18;
const COUNT_MASK: u64 = (1 << COUNT_BITS) - 1;
const EPOCH_SHIFT: u32 = 2 * COUNT_BITS;
const EPOCH_LIMIT: u64 = (1 << (64 - EPOCH_SHIFT)) - 1;
/// Most transactions of an epoch: each is counted at most once at a lock.
pub(super) const MOST_TRANSACTIONS: u64 = COUNT_MASK;

/// An epoch as lock words have it, never 0.
fn mark(epoch: u64) -> u64 {
    (epoch % EPOCH_LIMIT + 1) << EPOCH_SHIFT
}

/// Clears a word that neither this epoch nor the one before, which other workers may be in, has use for.
fn forget(word: &AtomicU64, epoch: u64) {
    let seen = word.load(Ordering::Relaxed);
    let marked = seen & !((1 << EPOCH_SHIFT) - 1);
    if seen != 0 && marked != mark(epoch) && marked != mark(epoch - 1) {
        // Whoever changes it meanwhile marks it anew.
        let _ = word.compare_exchange(seen, 0, Ordering::AcqRel, Ordering::Relaxed);
    }
}

/// Writers and readers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Count(u64);

impl Count {
    const WRITER: u64 = 1 << COUNT_BITS;
    const READER: u64 = 1;

    fn of(word: u64, epoch: u64) -> Count {
        let counts = word & ((1 << EPOCH_SHIFT) - 1);
        Count(if word - counts == mark(epoch) { counts } else { 0 })
    }

    fn one(ask: Ask) -> u64 {
        match ask {
            Ask::Shared => Count::READER,
            Ask::Exclusive | Ask::Among => Count::WRITER,
            Ask::Alone => Count::WRITER | Count::READER,
        }
    }

    fn writers(self) -> u64 {
        self.0 >> COUNT_BITS
    }

    fn readers(self) -> u64 {
        self.0 & COUNT_MASK
    }
}

/// How a lock is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ask {
    /// A record's or a group's, by a reader, beside others.
    Shared,
    /// A record's, by a writer.
    Exclusive,
    /// A group's, by who changes a record of it, beside others who do.
    Among,
    /// A group's, by who does that and reads any other, too.
    Alone,
}

impl Ask {
    /// For a record.
    pub(super) fn of(intent: Intent) -> Ask {
        if intent == Intent::Write { Ask::Exclusive } else { Ask::Shared }
    }

    /// What a transaction asks that asks both of the same lock.
    pub(super) fn and(self, other: Ask) -> Ask {
        match (self, other) {
            (a, b) if a == b => a,
            (Ask::Shared | Ask::Exclusive, Ask::Shared | Ask::Exclusive) => Ask::Exclusive,
            _ => Ask::Alone,
        }
    }
}

/// A place in the order at one lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ticket {
    lock: u32,
    ask: Ask,
    before: Count,
}

impl Ticket {
    /// How the lock is asked for.
    pub(super) fn ask(self) -> Ask {
        self.ask
    }
}

/// Locks of groups, which are few.
const GROUPS: usize = 1 << 8;

/// A node's locks: those of records, then those of groups.
pub(super) struct LockTable {
    records: u32,
    /// What each lock has served.
    served: Box<[AtomicU64]>,
    /// What each worker's transactions ask of each lock, in even and odd epochs.
    asked: Box<[AtomicU64]>,
    /// The epoch up to which each worker has told what it asks.
    told: Box<[AtomicU64]>,
}

fn words(count: usize) -> Box<[AtomicU64]> {
    (0..count).map(|_| AtomicU64::new(0)).collect()
}

impl LockTable {
    /// A table for `workers` workers with `locks` locks, rounded up to a power of two.
    pub(super) fn new(workers: usize, locks: usize) -> LockTable {
        let records = locks.next_power_of_two();
        let all = records + GROUPS;
        LockTable {
            records: records as u32,
            served: words(all),
            asked: words(2 * workers * all),
            told: words(workers),
        }
    }

    fn spread(record: RecordId) -> u32 {
        // Neighbouring keys of a node differ by the number of nodes: the upper half of the product spreads them.
        ((record.key ^ u64::from(record.table) << 48).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as u32
    }

    /// The lock of a record.
    pub(super) fn lock_of(&self, record: RecordId) -> u32 {
        LockTable::spread(record) & (self.records - 1)
    }

    /// The lock of a group.
    pub(super) fn lock_of_group(&self, group: RecordId) -> u32 {
        self.records + (LockTable::spread(group) & (GROUPS as u32 - 1))
    }

    fn asked(&self, worker: usize, epoch: u64, lock: u32) -> &AtomicU64 {
        let half = (epoch & 1) as usize * self.told.len();
        &self.asked[(half + worker) * self.served.len() + lock as usize]
    }

    /// Draws a ticket for the next access of one of `worker`'s transactions: its place among them.
    pub(super) fn draw(&self, worker: usize, epoch: u64, lock: u32, ask: Ask) -> Ticket {
        let word = self.asked(worker, epoch, lock);
        // The worker alone writes here.
        let before = Count::of(word.load(Ordering::Relaxed), epoch);
        word.store(mark(epoch) | (before.0 + Count::one(ask)), Ordering::Relaxed);
        Ticket { lock, ask, before }
    }

    /// All of `worker`'s tickets of an epoch are drawn.
    pub(super) fn tell(&self, worker: usize, epoch: u64) {
        self.told[worker].store(epoch, Ordering::Release);
        let lock = (epoch % self.served.len() as u64) as usize;
        for parity in 0..2 {
            forget(self.asked(worker, parity, lock as u32), epoch);
        }
        if worker == 0 {
            forget(&self.served[lock], epoch);
        }
    }

    /// `worker` has no more transactions: nobody need wait for it again.
    pub(super) fn leave(&self, worker: usize) {
        self.told[worker].store(u64::MAX, Ordering::Release);
    }

    /// Whether all workers have told their sums for an epoch.
    pub(super) fn all_told(&self, epoch: u64) -> bool {
        self.told.iter().all(|told| told.load(Ordering::Acquire) >= epoch)
    }

    /// Puts a ticket of `worker` behind the transactions of all workers before it; all must have told.
    pub(super) fn place(&self, worker: usize, epoch: u64, ticket: &mut Ticket) {
        for other in 0..worker {
            let asked = self.asked(other, epoch, ticket.lock).load(Ordering::Relaxed);
            ticket.before.0 += Count::of(asked, epoch).0;
        }
    }

    /// Whether it is the ticket's turn.
    pub(super) fn granted(&self, epoch: u64, ticket: Ticket) -> bool {
        let served = Count::of(self.served[ticket.lock as usize].load(Ordering::Acquire), epoch);
        let writers = served.writers() >= ticket.before.writers();
        let readers = served.readers() >= ticket.before.readers();
        match ticket.ask {
            Ask::Shared => writers,
            Ask::Among => readers,
            Ask::Exclusive | Ask::Alone => writers && readers,
        }
    }

    /// The ticket's holder is done with the lock.
    pub(super) fn release(&self, epoch: u64, ticket: Ticket) {
        let word = &self.served[ticket.lock as usize];
        let mut seen = word.load(Ordering::Relaxed);
        loop {
            let next = mark(epoch) | (Count::of(seen, epoch).0 + Count::one(ticket.ask));
            match word.compare_exchange_weak(seen, next, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return,
                Err(other) => seen = other,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Accesses of transactions in order: worker, lock, and how.
    fn accesses(asks: [Ask; 3]) -> impl Strategy<Value = Vec<(usize, u32, Ask)>> {
        let ask = (0..3usize).prop_map(move |n| asks[n]);
        proptest::collection::vec((0..3usize, 0..3u32, ask), 1..40).prop_map(|mut all| {
            all.sort_by_key(|a| a.0);
            all
        })
    }

    fn tickets(table: &LockTable, epoch: u64, all: &[(usize, u32, Ask)]) -> Vec<Ticket> {
        let mut tickets: Vec<Ticket> = Vec::new();
        for &(worker, lock, ask) in all {
            tickets.push(table.draw(worker, epoch, lock, ask));
        }
        (0..3).for_each(|worker| table.tell(worker, epoch));
        assert!(table.all_told(epoch));
        for (ticket, access) in tickets.iter_mut().zip(all) {
            table.place(access.0, epoch, ticket);
        }
        tickets
    }

    /// Two of a kind go together, unless that kind is alone.
    fn conflict(a: Ask, b: Ask) -> bool {
        a != b || matches!(a, Ask::Exclusive | Ask::Alone)
    }

    const RECORDS: [Ask; 3] = [Ask::Shared, Ask::Exclusive, Ask::Exclusive];
    const GROUP: [Ask; 3] = [Ask::Shared, Ask::Among, Ask::Alone];

    proptest! {
        /// Against a queue of requests: granted is who has no one in conflict before it, whatever the order of releases, over
        /// epochs that follow each other, at the wrap of their marks too; of records' locks and of groups'.
        #[test]
        fn grants_are_those_of_a_queue(
            epochs in proptest::collection::vec((accesses(RECORDS), accesses(GROUP), any::<u64>()), 1..5),
            start in prop_oneof![Just(1), Just(EPOCH_LIMIT - 2), Just(2 * EPOCH_LIMIT - 1)],
        ) {
            let table = LockTable::new(3, 4);
            for (n, (mut all, groups, mut draw)) in epochs.into_iter().enumerate() {
                let epoch = start + n as u64;
                all.extend(groups.into_iter().map(|(worker, lock, ask)| (worker, table.records + lock, ask)));
                all.sort_by_key(|a| a.0);
                let tickets = tickets(&table, epoch, &all);
                let mut waiting: Vec<usize> = (0..all.len()).collect();
                while !waiting.is_empty() {
                    for &i in &waiting {
                        let conflicts =
                            |&&j: &&usize| j < i && all[j].1 == all[i].1 && conflict(all[i].2, all[j].2);
                        let free = waiting.iter().find(conflicts).is_none();
                        prop_assert_eq!(table.granted(epoch, tickets[i]), free, "access {} of {:?}", i, all);
                    }
                    let granted: Vec<usize> =
                        waiting.iter().copied().filter(|&i| table.granted(epoch, tickets[i])).collect();
                    prop_assert!(!granted.is_empty(), "somebody's turn it is");
                    draw = draw.rotate_left(7).wrapping_mul(0x9e37_79b9_7f4a_7c15);
                    let next = granted[(draw % granted.len() as u64) as usize];
                    table.release(epoch, tickets[next]);
                    waiting.retain(|&i| i != next);
                }
            }
        }
    }

    #[test]
    fn what_is_asked_twice_of_a_lock_is_asked_as_strongly_as_both() {
        use Ask::{Alone, Among, Exclusive, Shared};
        for ask in [Alone, Among, Exclusive, Shared] {
            assert_eq!(ask.and(ask), ask);
        }
        assert_eq!((Shared.and(Exclusive), Exclusive.and(Shared)), (Exclusive, Exclusive));
        assert_eq!((Shared.and(Among), Among.and(Shared), Alone.and(Shared)), (Alone, Alone, Alone));
    }

    #[test]
    fn a_worker_that_left_is_not_waited_for() {
        let table = LockTable::new(2, 1);
        table.tell(0, 7);
        assert!(!table.all_told(7));
        table.leave(1);
        assert!(table.all_told(7) && !table.all_told(8));
    }

    #[test]
    fn no_word_outlives_the_numbers_of_epochs() {
        let table = LockTable::new(1, 4);
        let ticket = table.draw(0, 5, 2, Ask::Exclusive);
        table.release(5, ticket);
        assert_ne!(table.served[2].load(Ordering::Relaxed), 0);
        (6..6 + table.served.len() as u64).for_each(|epoch| table.tell(0, epoch));
        let words = table.served.iter().chain(&table.asked);
        assert!(words.map(|word| word.load(Ordering::Relaxed)).all(|word| word == 0));
    }
}
