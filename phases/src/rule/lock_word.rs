//! The lock word of two-phase locking: shared and exclusive modes, and the age of holders.
//!
//! | bits   | field   | meaning |
//! |--------|---------|---------|
//! | 63     | exclusive | 1 while one transaction may write |
//! | 62     | wanted  | no more readers until those that are there have left |
//! | 55..62 | readers | transactions that hold it shared, up to 127 |
//! | 0..55  | oldest  | timestamp of the exclusive holder; of the oldest reader under wait-die, else 0 |
//!
//! The word alone is the lock, and free is 0: so a CAS needs no READ before it, and CAS and READ of the record go out together
//! (RCC §4.2, steps b1 and b2). The paper's lock words know one holder; shared mode adds the readers. `oldest` may
//! name a reader that has left while others stay: then somebody dies who could have waited, never the other way
//! round, so no circle of waiting can close.
//!
//! Under wait-die, who wants a record that others read marks it *wanted*, whether it waits or dies: otherwise readers that come
//! before the last ones go would keep it, and the age of one that has long left, for ever. The mark goes with the last reader, so
//! nobody has to remember it.

use super::time::{BITS, Timestamp};
use super::{Abort, Header, Mode, OnConflict, Verdict};

const EXCLUSIVE: u64 = 1 << 63;
const WANTED: u64 = 1 << 62;
const READER: u64 = 1 << BITS;
const OLDEST: u64 = READER - 1;
/// Most transactions that share a lock.
pub const MAX_READERS: u64 = 127;

/// A lock word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LockWord(pub(super) u64);

impl LockWord {
    fn exclusive(self) -> bool {
        self.0 & EXCLUSIVE != 0
    }

    fn readers(self) -> u64 {
        if self.exclusive() { 0 } else { self.0 >> BITS & MAX_READERS }
    }

    fn wanted(self) -> bool {
        self.0 & WANTED != 0
    }

    fn oldest(self) -> u64 {
        self.0 & OLDEST
    }

    /// May a transaction of age `time` have the lock in `mode`? `held` says that it is one of the readers.
    pub(super) fn ask(self, mode: Mode, held: bool, time: Timestamp, on_conflict: OnConflict) -> Verdict {
        let ages = on_conflict == OnConflict::WaitIfOlder;
        let time = time.0 & OLDEST;
        let free = self.readers() == 0 && !self.exclusive();
        match mode {
            Mode::Exclusive if free || held && self.readers() == 1 => {
                return Verdict::Grant(Header(EXCLUSIVE | time));
            }
            Mode::Shared if free => {
                return Verdict::Grant(Header(READER | if ages { time } else { 0 }));
            }
            Mode::Shared if !self.exclusive() && !self.wanted() && self.readers() < MAX_READERS => {
                let oldest = if ages { self.oldest().min(time) } else { 0 };
                return Verdict::Grant(Header((self.readers() + 1) << BITS | oldest));
            }
            _ => {}
        }
        match on_conflict {
            OnConflict::Fail => Verdict::Deny(Abort::LockConflict),
            OnConflict::Retry(_) => Verdict::Wait,
            // Older than all holders; as a reader, the oldest recorded may be the transaction itself.
            OnConflict::WaitIfOlder if time < self.oldest() || held && time == self.oldest() => Verdict::Wait,
            OnConflict::WaitIfOlder => Verdict::Deny(Abort::Died),
        }
    }

    /// The word with the mark that somebody wants it for writing, if it is read and has none.
    pub(super) fn want(self) -> Option<Header> {
        (self.readers() > 0 && !self.wanted()).then_some(Header(self.0 | WANTED))
    }

    /// What the word will be when all others have gone: a guess for the next CAS.
    pub(super) fn when_others_left(self, held: bool) -> Header {
        Header(if held { READER | self.0 & (WANTED | OLDEST) } else { 0 })
    }

    /// What one of the readers adds when it leaves, if then nothing is left of it whoever comes or goes meanwhile: no age, and no mark
    /// that goes with the last one.
    pub(super) fn leaves(self) -> Option<u64> {
        (self.readers() > 0 && self.0 & (WANTED | OLDEST) == 0).then_some(READER.wrapping_neg())
    }

    /// What one holder leaves behind.
    pub(super) fn release(self) -> Header {
        match self.readers() {
            0 | 1 => Header(0),
            _ => Header(self.0 - READER),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Free, exclusive and shared words with holders of ages 10 and 30, one with all places taken.
    fn words() -> Vec<u64> {
        let mut all = vec![0];
        for age in [10, 30] {
            all.push(EXCLUSIVE | age);
            all.extend([1, 2, 3, MAX_READERS].map(|n| n << BITS | age));
            all.extend([1, 2].map(|n| WANTED | n << BITS | age));
        }
        all
    }

    #[test]
    fn asking_by_enumeration() {
        for word in words() {
            let w = LockWord(word);
            for age in [5, 10, 20, 30, 40] {
                for mode in [Mode::Shared, Mode::Exclusive] {
                    for held in [false, true] {
                        if held && w.readers() == 0 {
                            continue;
                        }
                        for rule in [OnConflict::Fail, OnConflict::Retry(2), OnConflict::WaitIfOlder] {
                            let verdict = w.ask(mode, held, Timestamp(age), rule);
                            let others = w.readers() - u64::from(held);
                            let compatible = match mode {
                                Mode::Exclusive => !w.exclusive() && others == 0,
                                Mode::Shared => !w.exclusive() && !w.wanted() && w.readers() < MAX_READERS,
                            };
                            let what = format!("{word:#x} {mode:?} held={held} age={age} {rule:?}");
                            match verdict {
                                Verdict::Grant(h) => {
                                    assert!(compatible, "{what}");
                                    let h = LockWord(h.0);
                                    assert_eq!(h.exclusive(), mode == Mode::Exclusive, "{what}");
                                    if mode == Mode::Shared {
                                        assert_eq!(h.readers(), w.readers() + 1, "{what}");
                                        assert!(
                                            rule != OnConflict::WaitIfOlder || h.oldest() <= age,
                                            "{what}"
                                        );
                                    }
                                }
                                // Wait-die: who waits is at least as old as every holder; so no circle closes.
                                Verdict::Wait if rule == OnConflict::WaitIfOlder => {
                                    assert!(!compatible && age <= w.oldest(), "{what}");
                                    assert!(age < w.oldest() || held, "{what}");
                                }
                                Verdict::Wait => {
                                    assert!(!compatible && rule == OnConflict::Retry(2), "{what}")
                                }
                                Verdict::Deny(Abort::Died) => {
                                    assert!(
                                        !compatible && age >= w.oldest() && rule == OnConflict::WaitIfOlder
                                    );
                                }
                                Verdict::Deny(_) => {
                                    assert!(!compatible && rule == OnConflict::Fail, "{what}")
                                }
                            }
                        }
                    }
                }
            }
        }
    }

    /// Who leaves by adding leaves what who looks would leave, and does where no age is kept.
    #[test]
    fn leaving_needs_no_look_without_ages() {
        for word in words().into_iter().chain([1, 2, MAX_READERS].map(|n| n << BITS)) {
            let w = LockWord(word);
            if let Some(add) = w.leaves() {
                assert_eq!(Header(word.wrapping_add(add)), w.release(), "{word:#x}");
            }
            let ageless = !w.exclusive() && w.readers() > 0 && word & (WANTED | OLDEST) == 0;
            assert_eq!(w.leaves().is_some(), ageless, "{word:#x}");
        }
    }

    #[test]
    fn readers_come_and_go() {
        let mut word = LockWord(0);
        for age in [30, 10, 20] {
            let Verdict::Grant(next) = word.ask(Mode::Shared, false, Timestamp(age), OnConflict::WaitIfOlder)
            else {
                panic!("shared locks are shared")
            };
            word = LockWord(next.0);
        }
        assert_eq!((word.readers(), word.oldest()), (3, 10));
        word = LockWord(word.release().0);
        word = LockWord(word.release().0);
        assert_eq!((word.readers(), word.oldest()), (1, 10), "the oldest stays until all have gone");
        assert_eq!(word.when_others_left(true), Header(word.0));
        let wanted = LockWord(word.want().unwrap().0);
        assert_eq!((wanted.readers(), wanted.oldest(), wanted.want()), (1, 10, None));
        assert_eq!(wanted.when_others_left(true), Header(wanted.0));
        assert_eq!(wanted.release(), Header(0), "the mark goes with the last reader");
        assert_eq!((LockWord(0).want(), LockWord(EXCLUSIVE | 7).want()), (None, None));
        assert_eq!(word.release(), Header(0));
        assert_eq!(LockWord(EXCLUSIVE | 7).release(), Header(0));
    }
}
