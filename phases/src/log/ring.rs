//! The writer's account of one ring: what is free, what waits for acknowledgement, what may be truncated.
//!
//! Positions count bytes since the ring's birth and never wrap; a place in the ring is a position modulo its size.
//! Coroutines of a worker share its rings, so entries are acknowledged out of order; only those behind which nothing
//! is open may be applied, because an entry still open may yet fail to reach another backup.

use std::collections::VecDeque;

/// One ring, as its writer sees it.
pub(crate) struct Ring {
    bytes: u64,
    /// Next position to write.
    tail: u64,
    /// Applied and free up to here, as the backup last said.
    head: u64,
    /// Ends of entries that are not known to be decided, in order; true: acknowledged.
    open: VecDeque<(u64, bool)>,
    /// Ticket of the first of them.
    first: u64,
    /// Everything up to here is decided.
    decided: u64,
    /// Entries decided since the backup was last told.
    untold: u32,
    /// An entry's transaction has faulted: it will never be decided, nor what comes behind it.
    lost: bool,
    /// The backup has been told once.
    turned: bool,
}

/// Where an entry goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) position: u64,
    /// Position of the frame that skips the ring's rest, if the entry did not fit there.
    pub(crate) skip: Option<u64>,
    pub(crate) ticket: u64,
}

impl Ring {
    /// A new ring; its backup is first told `early` entries before it is later on.
    pub(crate) fn new(bytes: u64, early: u32) -> Ring {
        let open = VecDeque::with_capacity(64);
        Ring {
            bytes,
            tail: 0,
            head: 0,
            open,
            first: 0,
            decided: 0,
            untold: early,
            lost: false,
            turned: false,
        }
    }

    /// Whether an entry of `len` bytes could ever fit, wherever the tail is.
    pub(crate) fn could_hold(&self, len: u32) -> bool {
        // An entry may be preceded by a skip of nearly its own length.
        u64::from(len) * 2 <= self.bytes
    }

    /// Where an entry of `len` bytes would begin.
    fn start(&self, len: u32) -> u64 {
        let rest = self.bytes - self.tail % self.bytes;
        if u64::from(len) <= rest { self.tail } else { self.tail + rest }
    }

    pub(crate) fn has_room(&self, len: u32) -> bool {
        self.start(len) + u64::from(len) - self.head <= self.bytes
    }

    /// Takes room, which must be there.
    ///
    /// # Panics
    /// If there is none: writing there would destroy an entry.
    pub(crate) fn reserve(&mut self, len: u32) -> Place {
        assert!(self.has_room(len), "bug: {len} B reserved in a full log ring");
        let position = self.start(len);
        let skip = (position != self.tail).then_some(self.tail);
        self.tail = position + u64::from(len);
        self.open.push_back((self.tail, false));
        Place { position, skip, ticket: self.first + self.open.len() as u64 - 1 }
    }

    /// The entry's transaction is committed: all its backups have it.
    pub(crate) fn decide(&mut self, ticket: u64) {
        if let Some(entry) = self.open.get_mut((ticket - self.first) as usize) {
            entry.1 = true;
        }
        while let Some(&(end, true)) = self.open.front() {
            self.open.pop_front();
            self.first += 1;
            self.decided = end;
            self.untold += 1;
        }
    }

    /// A transaction that has an entry here has faulted.
    pub(crate) fn lose(&mut self) {
        self.lost = true;
    }

    /// Where the ring stays as it is for good, if it does: nothing can be freed, and what is in the way is never decided.
    pub(crate) fn stuck(&self) -> Option<u64> {
        (self.lost && self.decided <= self.head).then_some(self.head)
    }

    /// How far the backup may apply, if enough entries have come together to tell it.
    pub(crate) fn worth_telling(&self, entries: u32) -> Option<u64> {
        (self.untold >= entries).then_some(self.decided)
    }

    /// The backup has been told of everything decided; whether that is the first time.
    pub(crate) fn told(&mut self) -> bool {
        self.untold = 0;
        !std::mem::replace(&mut self.turned, true)
    }

    /// How far the backup may apply, if that would free anything.
    pub(crate) fn decided(&self) -> Option<u64> {
        (self.decided > self.head).then_some(self.decided)
    }

    /// The backup says that it has applied everything up to `head`.
    pub(crate) fn freed(&mut self, head: u64) {
        // A backup that says more than it was told is not believed.
        if head <= self.decided {
            self.head = self.head.max(head);
        }
    }

    /// Whether nothing was ever written to it.
    pub(crate) fn unused(&self) -> bool {
        self.tail == 0
    }

    #[cfg(test)]
    fn empty(&self) -> bool {
        self.head == self.tail
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_ring_with_a_lost_entry_is_stuck_once_nothing_can_be_freed() {
        let mut ring = Ring::new(256, 0);
        let places = [0, 1, 2].map(|_| ring.reserve(64));
        ring.lose();
        assert_eq!(ring.stuck(), Some(0));
        // What came before it can still be applied.
        ring.decide(places[0].ticket);
        assert_eq!((ring.decided(), ring.stuck()), (Some(64), None));
        ring.freed(64);
        ring.decide(places[2].ticket);
        assert_eq!((ring.decided(), ring.stuck()), (None, Some(64)));
    }

    #[test]
    fn only_what_nothing_open_precedes_is_decided() {
        let mut ring = Ring::new(1024, 0);
        let tickets: Vec<u64> = (0..3).map(|_| ring.reserve(64).ticket).collect();
        ring.decide(tickets[2]);
        assert_eq!(ring.decided(), None);
        ring.decide(tickets[0]);
        assert_eq!((ring.decided(), ring.worth_telling(2)), (Some(64), None));
        ring.decide(tickets[1]);
        assert_eq!((ring.decided(), ring.worth_telling(2)), (Some(192), Some(192)));
        ring.freed(1000);
        assert!(!ring.empty(), "a lie");
        ring.freed(192);
        assert!(ring.empty());
    }

    proptest! {
        #[test]
        fn never_overwrites_what_is_not_freed(ops in proptest::collection::vec((1u32..40, any::<bool>()), 1..300)) {
            let mut ring = Ring::new(512, 0);
            let mut live: Vec<(u64, u64, u64)> = Vec::new(); // start, end, ticket
            for (words, free) in ops {
                let len = words * 8;
                if !ring.could_hold(len) {
                    continue;
                }
                if ring.has_room(len) {
                    let place = ring.reserve(len);
                    let end = place.position + u64::from(len);
                    prop_assert!(place.position % 512 + u64::from(len) <= 512, "an entry is contiguous");
                    for &(start, stop, _) in &live {
                        let clash = (place.position..end).any(|p| (start..stop).any(|q| p % 512 == q % 512));
                        prop_assert!(!clash);
                    }
                    if let Some(skip) = place.skip {
                        prop_assert_eq!(place.position % 512, 0);
                        prop_assert!(skip < place.position);
                    }
                    live.push((place.position, end, place.ticket));
                } else {
                    prop_assert!(!live.is_empty(), "an empty ring has room for what it could hold");
                }
                if free || !ring.has_room(len) {
                    for (_, _, ticket) in live.drain(..) {
                        ring.decide(ticket);
                    }
                    ring.freed(ring.decided().unwrap_or(0));
                    prop_assert!(ring.empty());
                }
            }
        }
    }
}
