//! The event queue: the one place that decides what happens next.
//!
//! An event's key is its time, then a seeded tie-break, then the order of scheduling; earliest first. Events at the
//! same picosecond are so shuffled by the seed, and two runs of one seed pop in the same order. The queue holds no
//! payload, only an index: what an event is about lives in slabs.
//!
//! Nearly all events lie within a few microseconds, so a ring of buckets holds them, one for each nanosecond
//! or so (a calendar queue after Brown, CACM 1988, with fixed width). A bucket says the greater part of the time, so what
//! is left of a key fits a word there. Only the buckets in hand are sorted. What lies beyond the ring, timers mostly,
//! waits in a heap whose earliest time is compared at each pop, and is never moved. The order is that of the keys
//! alone: the ring is there for speed (`benches/sim.rs`).

use crate::mem::ahead;
use dary_heap::QuaternaryHeap;
use std::cmp::Reverse;

/// What an event is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Kind {
    /// A core runs its loop once. Index: core.
    Wake = 0,
    /// A time asked for with `wake_at`. Index: core.
    Timer = 1,
    /// The NIC looks at a send queue. Index: queue pair.
    Issue = 2,
    /// A message reaches the responder. Index: message.
    Arrive = 3,
    /// A message touches the responder's memory. Index: message.
    Memory = 4,
    /// A response reaches the requester. Index: message.
    Response = 5,
    /// A message is offered again to a receiver that was not ready. Index: message.
    Retry = 6,
    /// A node dies. Index: node.
    Death = 7,
}

impl Kind {
    const ALL: [Kind; 8] = [
        Kind::Wake,
        Kind::Timer,
        Kind::Issue,
        Kind::Arrive,
        Kind::Memory,
        Kind::Response,
        Kind::Retry,
        Kind::Death,
    ];
}

/// One event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Event {
    /// Picoseconds.
    pub time: u64,
    pub kind: Kind,
    pub index: u32,
}

const INDEX_BITS: u32 = 28;
const INDEX_MASK: u32 = (1 << INDEX_BITS) - 1;
const SEQUENCE_BITS: u32 = 28;
const TIE_BITS: u32 = 12;
/// Bits of an order below the time.
const ORDER_SHIFT: u32 = SEQUENCE_BITS + TIE_BITS;

/// Times from here on (20 hours) never come.
pub(super) const NEVER: u64 = 1 << 56;

/// Picoseconds per bucket, as a shift: about a nanosecond, so that a bucket holds a few events under full
/// load.
const WIDTH: u32 = 10;
/// Buckets of the ring: 16.8 µs, longer than requests wait under full load.
const BUCKETS: usize = 1 << 14;
const WORDS: usize = BUCKETS / 64;
/// From so many events in hand on, further ones for the same bucket go to the heap: inserting stays cheap
/// even if a whole cluster acts at one instant.
const IN_HAND_MAX: usize = 64;
/// Events to take in hand at a time, and the most buckets to pass for them.
const HAND: usize = 24;
const SPAN: u64 = 64;
/// Buckets that are looked at before their turn, and events of each.
const LOOK: usize = 16;
const LOOK_DEEP: usize = 4;
const END: u32 = u32::MAX;

/// An event in a bucket or in hand, or a free place.
#[derive(Clone, Copy)]
struct Slot {
    /// Picoseconds since the bucket begins, in hand since [`EventQueue::base`]; then tie-break and sequence.
    order: u64,
    /// Kind and index.
    subject: u32,
    next: u32,
}

impl Slot {
    #[inline]
    fn subject(&self) -> (Kind, u32) {
        (Kind::ALL[(self.subject >> INDEX_BITS) as usize & 7], self.subject & INDEX_MASK)
    }
}

/// A whole key: time, tie-break, sequence, kind, index.
#[inline]
fn key(time: u64, order: u64, subject: u32) -> u128 {
    let low = order & ((1 << ORDER_SHIFT) - 1);
    (u128::from(time) << (ORDER_SHIFT + 32)) | (u128::from(low) << 32) | u128::from(subject)
}

/// Events in order of time.
pub(super) struct EventQueue {
    /// Events of buckets up to `cursor`, earliest first; those before `taken` are history.
    in_hand: Vec<Slot>,
    taken: usize,
    /// The last bucket in hand, counted from time zero.
    cursor: u64,
    /// Where the first bucket in hand begins, in picoseconds.
    base: u64,
    /// When the first event of `beyond` is due.
    beyond_from: u64,
    sequence: u64,
    salt: u64,
    factor: u64,
    free: u32,
    slots: Vec<Slot>,
    /// First slot of each bucket of the ring.
    heads: Box<[u32; BUCKETS]>,
    beyond: QuaternaryHeap<Reverse<u128>>,
    /// Which buckets hold anything, and which words of that map are not zero.
    filled: [u64; WORDS],
    summary: [u64; WORDS / 64],
}

impl EventQueue {
    pub fn new(seed: u64) -> EventQueue {
        let salt = seed.wrapping_mul(2) | 1;
        EventQueue {
            in_hand: Vec::with_capacity(2 * IN_HAND_MAX),
            taken: 0,
            cursor: 0,
            base: 0,
            beyond_from: u64::MAX,
            sequence: 0,
            salt,
            factor: salt.wrapping_mul(0x9e37_79b9_7f4a_7c15),
            free: END,
            slots: Vec::with_capacity(1024),
            heads: Box::new([END; BUCKETS]),
            beyond: QuaternaryHeap::with_capacity(256),
            filled: [0; WORDS],
            summary: [0; WORDS / 64],
        }
    }

    /// What orders the event scheduled as number `sequence` among those of its time: tie-break, then sequence.
    #[inline(always)]
    fn order(&self, sequence: u64) -> u64 {
        // A multiplicative hash of sequence and seed shuffles ties without a state of its own.
        let tie = (sequence ^ self.salt).wrapping_mul(self.factor) >> (64 - TIE_BITS);
        (tie << SEQUENCE_BITS) | (sequence & ((1 << SEQUENCE_BITS) - 1))
    }

    /// Schedules an event. What lies beyond [`NEVER`] is forgotten.
    #[inline]
    pub fn push(&mut self, time: u64, kind: Kind, index: u32) {
        debug_assert!(index <= INDEX_MASK);
        let sequence = self.sequence + 1;
        let order = self.order(sequence);
        let subject = ((kind as u32) << INDEX_BITS) | index;
        let bucket = time >> WIDTH;
        // Of times up to the cursor the distance wraps around.
        if bucket.wrapping_sub(self.cursor + 1) >= BUCKETS as u64 - 1 {
            self.push_elsewhere(time, order, subject);
            return;
        }
        self.sequence = sequence;
        let b = bucket as usize % BUCKETS;
        let order = ((time % (1 << WIDTH)) << ORDER_SHIFT) | order;
        self.filled[b / 64] |= 1 << (b % 64);
        self.summary[b / 4096] |= 1 << (b / 64 % 64);
        if self.free == END {
            self.grow();
        }
        let index = self.free;
        let place = &mut self.slots[index as usize];
        self.free = place.next;
        *place = Slot { order, subject, next: self.heads[b] };
        self.heads[b] = index;
    }

    /// Makes a free place.
    #[cold]
    #[inline(never)]
    fn grow(&mut self) {
        self.free = self.slots.len() as u32;
        self.slots.push(Slot { order: 0, subject: 0, next: END });
    }

    /// Schedules what the ring has no bucket for.
    #[cold]
    #[inline(never)]
    fn push_elsewhere(&mut self, time: u64, order: u64, subject: u32) {
        if time >= NEVER {
            return;
        }
        self.sequence += 1;
        let left = self.in_hand.len() - self.taken;
        if time >> WIDTH > self.cursor || left >= IN_HAND_MAX || time < self.base {
            self.beyond.push(Reverse(key(time, order, subject)));
            self.beyond_from = self.beyond_from.min(time);
            return;
        }
        let slot = Slot { order: ((time - self.base) << ORDER_SHIFT) | order, subject, next: END };
        let at = self.taken + self.in_hand[self.taken..].partition_point(|s| s.order < slot.order);
        self.in_hand.insert(at, slot);
    }

    /// The next bucket after the cursor that holds anything.
    #[inline]
    fn next_filled(&self) -> Option<u64> {
        let start = (self.cursor + 1) as usize % BUCKETS;
        let ahead = self.filled[start / 64] >> (start % 64);
        if ahead != 0 {
            return Some(self.cursor + 1 + u64::from(ahead.trailing_zeros()));
        }
        // Whole words after the first, around the ring, back to the first.
        let first = start / 64;
        let mut word = first + 1;
        while word <= first + WORDS {
            let w = word % WORDS;
            let map = self.summary[w / 64] >> (w % 64);
            if map == 0 {
                word += 64 - w % 64;
                continue;
            }
            word += map.trailing_zeros() as usize;
            if word > first + WORDS {
                break;
            }
            let b = word % WORDS * 64 + self.filled[word % WORDS].trailing_zeros() as usize;
            let distance = (b + BUCKETS - start) % BUCKETS;
            return Some(self.cursor + 1 + distance as u64);
        }
        None
    }

    /// Whether all that was in hand has been taken.
    #[inline]
    pub fn hand_is_empty(&self) -> bool {
        self.taken == self.in_hand.len()
    }

    /// Takes the next filled buckets in hand, until there are [`HAND`] events or [`SPAN`] buckets were passed.
    pub fn refill(&mut self) {
        self.in_hand.clear();
        self.taken = 0;
        let Some(first) = self.next_filled() else { return };
        let mut hand = std::mem::take(&mut self.in_hand);
        self.base = first << WIDTH;
        let mut next = Some(first);
        while let Some(bucket) = next {
            self.cursor = bucket;
            let since = (bucket - first) << (WIDTH + ORDER_SHIFT);
            self.take_bucket(bucket as usize % BUCKETS, since, &mut hand);
            if hand.len() >= HAND {
                break;
            }
            next = self.next_filled().filter(|next| *next < first + SPAN);
        }
        self.in_hand = hand;
    }

    /// Moves a bucket behind what is in hand; `since` is what it adds to the orders.
    #[inline(always)]
    fn take_bucket(&mut self, b: usize, since: u64, hand: &mut Vec<Slot>) {
        self.filled[b / 64] &= !(1 << (b % 64));
        if self.filled[b / 64] == 0 {
            self.summary[b / 4096] &= !(1 << (b / 64 % 64));
        }
        let first = hand.len();
        let head = std::mem::replace(&mut self.heads[b], END);
        let mut at = head;
        // The bucket's list goes to the free ones as it is.
        while let Some(slot) = self.slots.get_mut(at as usize) {
            hand.push(Slot { order: slot.order + since, ..*slot });
            at = slot.next;
            if at == END {
                slot.next = self.free;
                self.free = head;
            }
        }
        match &mut hand[first..] {
            [_] => {}
            [a, b] => {
                if a.order > b.order {
                    std::mem::swap(a, b);
                }
            }
            many => many.sort_unstable_by_key(|slot| slot.order),
        }
    }

    /// Asks for what the next refill will look at, see [`super::model::Model::look_ahead`].
    #[inline]
    pub fn look_ahead(&self) {
        let start = (self.cursor + 1) as usize % BUCKETS;
        let (word, skip) = (start / 64, start % 64);
        let mut map = self.filled[word] >> skip | (self.filled[(word + 1) % WORDS] << 1) << (63 - skip);
        for _ in 0..LOOK {
            if map == 0 {
                break;
            }
            let mut at = self.heads[(start + map.trailing_zeros() as usize) % BUCKETS];
            map &= map - 1;
            for _ in 1..LOOK_DEEP {
                let Some(slot) = self.slots.get(at as usize) else { break };
                at = slot.next;
            }
            self.slots.get(at as usize).map(ahead);
        }
    }

    /// What is in hand.
    #[inline]
    pub fn in_hand(&self) -> impl Iterator<Item = (Kind, u32)> + Clone {
        self.in_hand[self.taken..].iter().map(Slot::subject)
    }

    /// Takes the next event if it is due by `until`.
    #[inline(always)]
    pub fn pop_by(&mut self, until: u64) -> Option<Event> {
        if self.hand_is_empty() {
            self.refill();
        }
        let Some(slot) = self.in_hand.get(self.taken) else { return self.pop_beyond(until) };
        let time = self.base + (slot.order >> ORDER_SHIFT);
        if time >= self.beyond_from {
            return self.pop_either(until);
        }
        if time > until {
            return None;
        }
        let (kind, index) = slot.subject();
        self.taken += 1;
        Some(Event { time, kind, index })
    }

    /// Takes the earlier one of hand and heap.
    #[cold]
    fn pop_either(&mut self, until: u64) -> Option<Event> {
        let slot = self.in_hand[self.taken];
        let time = self.base + (slot.order >> ORDER_SHIFT);
        if self.beyond.peek().is_some_and(|first| first.0 < key(time, slot.order, slot.subject)) {
            return self.pop_beyond(until);
        }
        if time > until {
            return None;
        }
        self.taken += 1;
        let (kind, index) = slot.subject();
        Some(Event { time, kind, index })
    }

    /// Takes the first event of the heap.
    #[cold]
    fn pop_beyond(&mut self, until: u64) -> Option<Event> {
        let time = self.beyond_from;
        if time > until {
            return None;
        }
        let Reverse(key) = self.beyond.pop()?;
        self.beyond_from =
            self.beyond.peek().map_or(u64::MAX, |first| (first.0 >> (ORDER_SHIFT + 32)) as u64);
        // With nothing in hand the ring is empty, and may follow.
        if self.hand_is_empty() && time >> WIDTH > self.cursor {
            self.cursor = time >> WIDTH;
            self.base = self.cursor << WIDTH;
        }
        let (kind, index) = Slot { order: 0, subject: key as u32, next: END }.subject();
        Some(Event { time, kind, index })
    }

    /// Whether nothing is scheduled.
    pub fn is_empty(&self) -> bool {
        self.hand_is_empty() && self.beyond.is_empty() && self.next_filled().is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(seed: u64, times: &[u64]) -> Vec<(u64, u32)> {
        let mut queue = EventQueue::new(seed);
        for (i, &t) in times.iter().enumerate() {
            queue.push(t, Kind::Arrive, i as u32);
        }
        std::iter::from_fn(|| queue.pop_by(u64::MAX)).map(|e| (e.time, e.index)).collect()
    }

    #[test]
    fn time_comes_first_and_every_event_comes_once() {
        let times: Vec<u64> = (0..1000u64).map(|i| i * 7919 % 500).collect();
        let got = order(3, &times);
        assert!(got.is_sorted_by_key(|&(t, _)| t));
        let mut seen: Vec<u32> = got.iter().map(|&(_, i)| i).collect();
        seen.sort_unstable();
        assert_eq!(seen, (0..1000).collect::<Vec<_>>());
        assert!(got.iter().all(|&(t, i)| times[i as usize] == t));
    }

    #[test]
    fn ties_are_shuffled_by_the_seed_and_repeat_with_it() {
        let times = [5; 64];
        assert_eq!(order(1, &times), order(1, &times));
        assert_ne!(order(1, &times), order(2, &times));
        assert_ne!(order(1, &times), (0..64).map(|i| (5, i)).collect::<Vec<_>>());
    }

    /// The event of a whole key.
    fn event(key: u128) -> Event {
        let (kind, index) = Slot { order: 0, subject: key as u32, next: END }.subject();
        Event { time: (key >> (ORDER_SHIFT + 32)) as u64, kind, index }
    }

    /// The ring against the plain order of whole keys, ties included: spans below a bucket and far beyond the ring, bursts, lulls.
    #[test]
    fn the_ring_pops_what_a_heap_would() {
        let mut draw = 7u64;
        let mut random = move |bound: u64| {
            draw = draw.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (draw >> 33) % bound
        };
        let spans = [1u64, 900, 5_000, 3_000_000, 16_700_000, 17_000_000, 40_000_000, 900_000_000];
        for round in 0..40u64 {
            let mut queue = EventQueue::new(round);
            let mut model = std::collections::BTreeSet::new();
            let (mut now, mut index) = (0, 0u32);
            for _ in 0..4_000 {
                // Long stretches of growing, then of shrinking.
                let grow = index / 500 % 2 == 0;
                if model.is_empty() || random(10) < if grow { 7 } else { 3 } {
                    let span = spans[(round + random(3)) as usize % spans.len()];
                    let time = now + random(span);
                    let kind = Kind::ALL[index as usize % Kind::ALL.len()];
                    queue.push(time, kind, index);
                    let subject = ((kind as u32) << INDEX_BITS) | index;
                    model.insert(key(time, queue.order(u64::from(index) + 1), subject));
                    index += 1;
                } else {
                    let first = event(model.pop_first().unwrap());
                    // Looking with too early an end takes nothing and breaks nothing.
                    if first.time > now {
                        assert_eq!(queue.pop_by(first.time - 1), None);
                    }
                    assert_eq!(queue.pop_by(u64::MAX), Some(first));
                    now = first.time;
                }
                assert_eq!(queue.is_empty(), model.is_empty());
            }
            let rest: Vec<Event> = std::iter::from_fn(|| queue.pop_by(u64::MAX)).collect();
            assert_eq!(rest, model.into_iter().map(event).collect::<Vec<_>>());
        }
    }

    #[test]
    fn nothing_is_taken_before_its_time() {
        let mut queue = EventQueue::new(0);
        queue.push(10, Kind::Wake, 1);
        queue.push(NEVER, Kind::Wake, 2);
        assert_eq!(queue.pop_by(9), None);
        assert_eq!(queue.pop_by(10), Some(Event { time: 10, kind: Kind::Wake, index: 1 }));
        assert!(queue.is_empty());
    }
}
