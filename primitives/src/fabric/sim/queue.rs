//! The event queue: the one place that decides what happens next.
//!
//! An event is a packed 128-bit key, earliest first: time, then a seeded tie-break, then the order of
//! scheduling, then what it is about. Events at the same picosecond are so shuffled by the seed, and two runs
//! of one seed pop in the same order. The queue holds no payload, only an index: what an event is about lives
//! in slabs.
//!
//! Nearly all events lie within a few microseconds, so a ring of buckets holds them, one for each nanosecond
//! or so (a calendar queue after Brown, CACM 1988, with fixed width). Only the bucket in hand is sorted. What
//! lies beyond the ring, timers mostly, waits in a heap and is compared at each pop, never moved. The order
//! is that of the keys alone: the ring is there for speed (`benches/sim.rs`).

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
const KIND_BITS: u32 = 4;
const SEQUENCE_BITS: u32 = 28;
const TIE_BITS: u32 = 12;
const TIME_SHIFT: u32 = INDEX_BITS + KIND_BITS + SEQUENCE_BITS + TIE_BITS;

/// What an event is about.
#[inline]
fn subject(key: u128) -> (Kind, u32) {
    (Kind::ALL[((key >> INDEX_BITS) as usize) & 7], key as u32 & ((1 << INDEX_BITS) - 1))
}

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

#[derive(Clone, Copy)]
struct Slot {
    key: u128,
    next: u32,
}

/// Events in order of time.
pub(super) struct EventQueue {
    /// Events of buckets up to `cursor`, earliest first; those before `taken` are history.
    in_hand: Vec<u128>,
    taken: usize,
    /// The last bucket in hand, counted from time zero.
    cursor: u64,
    /// First slot of each bucket of the ring.
    heads: Vec<u32>,
    /// Which buckets hold anything, and which words of that map are not zero.
    filled: [u64; WORDS],
    summary: [u64; WORDS / 64],
    slots: Vec<Slot>,
    free: u32,
    beyond: QuaternaryHeap<Reverse<u128>>,
    sequence: u64,
    salt: u64,
}

impl EventQueue {
    pub fn new(seed: u64) -> EventQueue {
        EventQueue {
            in_hand: Vec::with_capacity(2 * IN_HAND_MAX),
            taken: 0,
            cursor: 0,
            heads: vec![END; BUCKETS],
            filled: [0; WORDS],
            summary: [0; WORDS / 64],
            slots: Vec::with_capacity(1024),
            free: END,
            beyond: QuaternaryHeap::with_capacity(256),
            sequence: 0,
            salt: seed.wrapping_mul(2) | 1,
        }
    }

    /// Schedules an event. What lies beyond [`NEVER`] is forgotten.
    #[inline]
    pub fn push(&mut self, time: u64, kind: Kind, index: u32) {
        if time >= NEVER {
            return;
        }
        debug_assert!(index < 1 << INDEX_BITS);
        self.sequence += 1;
        // A multiplicative hash of sequence and seed shuffles ties without a state of its own.
        let tie = (self.sequence ^ self.salt).wrapping_mul(self.salt).wrapping_mul(0x9e37_79b9_7f4a_7c15)
            >> (64 - TIE_BITS);
        let sequence = self.sequence & ((1 << SEQUENCE_BITS) - 1);
        let low = (sequence << (INDEX_BITS + KIND_BITS)) | ((kind as u64) << INDEX_BITS) | u64::from(index);
        let key =
            (u128::from(time) << TIME_SHIFT) | (u128::from(tie) << (TIME_SHIFT - TIE_BITS)) | u128::from(low);
        let bucket = time >> WIDTH;
        if bucket <= self.cursor {
            self.insert_in_hand(key);
        } else if bucket - self.cursor < BUCKETS as u64 {
            self.insert_in_ring(bucket, key);
        } else {
            self.beyond.push(Reverse(key));
        }
    }

    fn insert_in_hand(&mut self, key: u128) {
        let left = &self.in_hand[self.taken..];
        if left.len() >= IN_HAND_MAX {
            self.beyond.push(Reverse(key));
            return;
        }
        let at = self.taken + left.partition_point(|&k| k < key);
        self.in_hand.insert(at, key);
    }

    #[inline]
    fn insert_in_ring(&mut self, bucket: u64, key: u128) {
        let b = bucket as usize % BUCKETS;
        let slot = Slot { key, next: self.heads[b] };
        if slot.next == END {
            self.filled[b / 64] |= 1 << (b % 64);
            self.summary[b / 4096] |= 1 << (b / 64 % 64);
        }
        self.heads[b] = if self.free == END {
            self.slots.push(slot);
            self.slots.len() as u32 - 1
        } else {
            let index = self.free;
            let place = &mut self.slots[index as usize];
            self.free = place.next;
            *place = slot;
            index
        };
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
    #[inline]
    pub fn refill(&mut self) {
        self.in_hand.clear();
        self.taken = 0;
        let Some(mut bucket) = self.next_filled() else { return };
        let end = bucket + SPAN;
        loop {
            self.cursor = bucket;
            self.take_bucket(bucket as usize % BUCKETS);
            if self.in_hand.len() >= HAND {
                return;
            }
            match self.next_filled() {
                Some(next) if next < end => bucket = next,
                _ => return,
            }
        }
    }

    /// Moves a bucket behind what is in hand.
    #[inline]
    fn take_bucket(&mut self, b: usize) {
        self.filled[b / 64] &= !(1 << (b % 64));
        if self.filled[b / 64] == 0 {
            self.summary[b / 4096] &= !(1 << (b / 64 % 64));
        }
        let first = self.in_hand.len();
        let mut at = self.heads[b];
        self.heads[b] = END;
        while at != END {
            let slot = &mut self.slots[at as usize];
            self.in_hand.push(slot.key);
            let next = slot.next;
            slot.next = self.free;
            self.free = at;
            at = next;
        }
        match &mut self.in_hand[first..] {
            [_] => {}
            [a, b] => {
                if a > b {
                    std::mem::swap(a, b);
                }
            }
            many => many.sort_unstable(),
        }
    }

    /// Reads what the next refill will look at, see [`super::model::Model::look_ahead`].
    #[inline]
    pub fn look(&self) -> u64 {
        let mut seen = 0;
        let start = (self.cursor + 1) as usize;
        let (word, skip) = (start % BUCKETS / 64, start % 64);
        let mut map = self.filled[word] >> skip;
        for _ in 0..LOOK {
            if map == 0 {
                break;
            }
            let b = (start + map.trailing_zeros() as usize) % BUCKETS;
            map &= map - 1;
            let mut at = self.heads[b];
            for _ in 0..LOOK_DEEP {
                let Some(slot) = self.slots.get(at as usize) else { break };
                seen ^= slot.key as u64;
                at = slot.next;
            }
        }
        seen
    }

    /// What is in hand.
    #[inline]
    pub fn in_hand(&self) -> impl Iterator<Item = (Kind, u32)> + Clone {
        self.in_hand[self.taken..].iter().map(|&key| subject(key))
    }

    /// Takes the next event if it is due by `until`.
    #[inline(always)]
    pub fn pop_by(&mut self, until: u64) -> Option<Event> {
        if self.hand_is_empty() {
            self.refill();
        }
        let near = self.in_hand.get(self.taken).copied().unwrap_or(u128::MAX);
        let far = self.beyond.peek().map_or(u128::MAX, |r| r.0);
        let key = near.min(far);
        if key == u128::MAX {
            return None;
        }
        let time = (key >> TIME_SHIFT) as u64;
        if time > until {
            return None;
        }
        if near < far {
            self.taken += 1;
        } else {
            self.beyond.pop();
            // With nothing in hand the ring is empty, and may follow.
            if self.hand_is_empty() {
                self.cursor = self.cursor.max(time >> WIDTH);
            }
        }
        let (kind, index) = subject(key);
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

    /// The ring against the plain order of keys: spans below a bucket and far beyond the ring, bursts, lulls.
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
                    queue.push(time, Kind::Arrive, index);
                    model.insert((time, index));
                    index += 1;
                } else {
                    // Looking with too early an end takes nothing and breaks nothing.
                    let &(first, _) = model.first().unwrap();
                    if first > now {
                        assert_eq!(queue.pop_by(first - 1), None);
                    }
                    let got = queue.pop_by(u64::MAX).unwrap();
                    assert_eq!(got.time, first);
                    assert!(model.remove(&(got.time, got.index)));
                    now = got.time;
                }
                assert_eq!(queue.is_empty(), model.is_empty());
            }
            let rest: Vec<u64> = std::iter::from_fn(|| queue.pop_by(u64::MAX)).map(|e| e.time).collect();
            assert_eq!(rest, model.iter().map(|m| m.0).collect::<Vec<_>>());
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
