//! The event queue: the one place that decides what happens next.
//!
//! An event is a packed 128-bit key, earliest first: time, then a seeded tie-break, then the order of
//! scheduling, then what it is about. Events at the same picosecond are so shuffled by the seed, and two runs
//! of one seed pop in the same order. The queue holds no payload, only an index: what an event is about lives
//! in slabs.

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

/// Times from here on (20 hours) never come.
pub(super) const NEVER: u64 = 1 << 56;

/// Events in order of time.
pub(super) struct EventQueue {
    heap: QuaternaryHeap<Reverse<u128>>,
    sequence: u64,
    salt: u64,
}

impl EventQueue {
    pub fn new(seed: u64) -> EventQueue {
        EventQueue { heap: QuaternaryHeap::with_capacity(1024), sequence: 0, salt: seed | 1 }
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
        self.heap.push(Reverse(key));
    }

    /// Takes the next event if it is due by `until`.
    #[inline]
    pub fn pop_by(&mut self, until: u64) -> Option<Event> {
        let Reverse(key) = *self.heap.peek()?;
        let time = (key >> TIME_SHIFT) as u64;
        if time > until {
            return None;
        }
        self.heap.pop();
        let kind = Kind::ALL[((key >> INDEX_BITS) as usize) & 7];
        Some(Event { time, kind, index: key as u32 & ((1 << INDEX_BITS) - 1) })
    }

    /// Whether nothing is scheduled.
    pub fn is_empty(&self) -> bool {
        self.heap.is_empty()
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
