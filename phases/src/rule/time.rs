//! Timestamps: a transaction's place in an order that all nodes agree on.
//!
//! `tick:39 | node:10 | worker:6`, 55 bits in all, so that a lock word has room for one. A worker's clock hands out each tick
//! once, so node and worker make timestamps unique (the paper appends machine and coroutine, RCC §4.4; fewer bits are
//! needed this way, and more than 256 coroutines stay distinct). A tick is 1024 ns: the 39 bits last 6.5 days.
//! **Wrap:** when they are used up, transactions that need a timestamp abort with
//! [`Abort::TimestampWrap`](super::Abort::TimestampWrap), which is not tried again: records would have to be loaded
//! anew. Comparing round the circle would be no way out, because a record may keep a timestamp for ever.

use primitives::verbs::NodeId;
use std::cell::Cell;

/// Bits of a timestamp.
pub const BITS: u32 = 55;
const ID_BITS: u32 = 16;
/// The last tick there is.
pub const LAST_TICK: u64 = (1 << (BITS - ID_BITS)) - 1;
/// Nodes whose timestamps differ.
pub const MOST_NODES: u16 = 1 << 10;
/// Workers of a node whose timestamps differ.
pub const MOST_WORKERS: u16 = 1 << 6;
/// Nanoseconds of a tick, as a power of two.
const TICK_SHIFT: u32 = 10;

/// A place in the order of transactions; 0 is before all of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Timestamp(pub u64);

impl Timestamp {
    /// The timestamp of a tick of a worker's clock; `None` beyond the last tick.
    pub fn new(tick: u64, node: NodeId, worker: u16) -> Option<Timestamp> {
        let id = u64::from(node.0 & 0x3ff) << 6 | u64::from(worker & 0x3f);
        (tick <= LAST_TICK).then_some(Timestamp(tick << ID_BITS | id))
    }

    /// Its tick.
    pub fn tick(self) -> u64 {
        self.0 >> ID_BITS
    }
}

/// How far a node's clock is from the true time. All of it is injected: on threads and on simulated cores alike the clock
/// below is that of the fabric.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Skew {
    /// Nanoseconds ahead (or, negative, behind).
    pub offset_ns: i64,
    /// At this time of the clock …
    pub jump_at_ns: u64,
    /// … it jumps by so many nanoseconds, back if negative; 0 is no jump.
    pub jump_ns: i64,
    /// Ticks that are gone before time begins.
    pub first_tick: u64,
}

/// A worker's clock: local time, made unique, monotonic, and moved forward by what others' timestamps tell.
#[derive(Debug)]
pub struct Clock {
    skew: Skew,
    node: NodeId,
    worker: u16,
    /// The last tick handed out or learnt.
    last: Cell<u64>,
    /// Ticks that were handed out though local time had not come so far: the clock was behind, or had gone back.
    ahead: Cell<u64>,
    /// The latest local time that was read, in ticks.
    latest: Cell<u64>,
    /// The most ticks that local time, when read, lay before the latest that had been read.
    back: Cell<u64>,
}

impl Clock {
    /// The clock of a worker.
    pub fn new(node: NodeId, worker: u16, skew: Skew) -> Clock {
        let zero = || Cell::new(0);
        Clock { skew, node, worker, last: zero(), ahead: zero(), latest: zero(), back: zero() }
    }

    /// Local time in ticks when the true time is `now_ns`; it does not begin before tick 0.
    fn local(&self, now_ns: u64) -> u64 {
        let jumped = self.skew.jump_ns != 0 && now_ns >= self.skew.jump_at_ns;
        let offset = self.skew.offset_ns.saturating_add(if jumped { self.skew.jump_ns } else { 0 });
        let ticks = i64::try_from(now_ns).unwrap_or(i64::MAX).saturating_add(offset) >> TICK_SHIFT;
        self.skew.first_tick.saturating_add_signed(ticks)
    }

    /// A timestamp later than all that this clock gave or learnt; `None` when they are used up. A clock that goes back
    /// is not followed: timestamps go on one by one until local time has caught up.
    pub fn next(&self, now_ns: u64) -> Option<Timestamp> {
        let (local, after) = (self.local(now_ns), self.last.get().saturating_add(1));
        self.back.set(self.back.get().max(self.latest.get().saturating_sub(local)));
        self.latest.set(self.latest.get().max(local));
        self.ahead.set(self.ahead.get() + u64::from(local < after));
        let tick = local.max(after);
        let stamp = Timestamp::new(tick, self.node, self.worker);
        if stamp.is_some() {
            self.last.set(tick);
        }
        stamp
    }

    /// Another worker's timestamp was met: later ones follow it (RCC §4.4, against long gaps between clocks).
    #[inline]
    pub fn learn(&self, met: Timestamp) {
        // What was met may come from a peer: the last tick ends this clock, but nothing beyond it exists.
        if met.tick() > self.last.get() {
            self.last.set(met.tick().min(LAST_TICK));
        }
    }

    /// Timestamps handed out ahead of local time.
    pub fn ahead(&self) -> u64 {
        self.ahead.get()
    }

    /// By how many ticks local time was found to have gone back, at most.
    pub fn back(&self) -> u64 {
        self.back.get()
    }
}

/// Ticks within which a span of time ends.
pub fn ticks_of(span_ns: u64) -> u64 {
    span_ns.div_ceil(1 << TICK_SHIFT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamps_are_unique_and_follow_time() {
        let a = Clock::new(NodeId(1023), 63, Skew::default());
        let b = Clock::new(NodeId(0), 0, Skew { offset_ns: -5_000, ..Skew::default() });
        let mut all: Vec<Timestamp> =
            (0..100).flat_map(|i| [a.next(i * 300), b.next(i * 300)]).flatten().collect();
        let before = all.clone();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), before.len());
        assert!(all.iter().all(|t| t.0 < 1 << BITS));
        assert!(a.next(1 << 30).unwrap() > b.next(1 << 30).unwrap(), "ties go by node");
        assert_eq!((a.back(), b.back()), (0, 0), "a clock that is behind has not gone back");
    }

    #[test]
    fn a_clock_that_goes_back_is_not_followed() {
        let skew = Skew { jump_at_ns: 1 << 20, jump_ns: -(1 << 19), ..Skew::default() };
        let clock = Clock::new(NodeId(0), 0, skew);
        let mut last = Timestamp(0);
        for now in (0..1 << 22).step_by(5_000) {
            let next = clock.next(now).unwrap();
            assert!(next > last);
            last = next;
        }
        assert!(clock.ahead() > 0, "for a while it was ahead of local time");
        // All of the jump, but for the step of time in which it came.
        assert!((505..=512).contains(&clock.back()), "back by {} ticks", clock.back());
        assert_eq!(last.tick(), clock.local((1 << 22) - (1 << 22) % 5_000));
    }

    #[test]
    fn a_clock_that_is_behind_runs_from_the_start_if_ticks_are_gone_before() {
        let behind = |first_tick| {
            let skew = Skew { offset_ns: -50_000, first_tick, ..Skew::default() };
            let clock = Clock::new(NodeId(0), 0, skew);
            [0, 20_480].map(|now| clock.next(now).unwrap().tick())
        };
        assert_eq!(behind(0), [1, 2], "it stands still at the beginning of time");
        assert_eq!(behind(ticks_of(50_000)), [1, 20]);
    }

    #[test]
    fn what_was_met_is_followed_and_the_end_is_the_end() {
        let clock = Clock::new(NodeId(3), 2, Skew::default());
        clock.learn(Timestamp(900 << ID_BITS));
        assert_eq!(clock.next(0).unwrap().tick(), 901);
        let late = Clock::new(NodeId(3), 2, Skew { first_tick: LAST_TICK - 1, ..Skew::default() });
        assert_eq!(late.next(0).unwrap().tick(), LAST_TICK - 1);
        assert_eq!(late.next(0).unwrap().tick(), LAST_TICK);
        assert_eq!(late.next(0), None);
        clock.learn(Timestamp(u64::MAX));
        assert_eq!(clock.next(0), None);
    }
}
