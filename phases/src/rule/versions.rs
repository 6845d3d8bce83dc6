//! What a multi-version record says to a reader and to a writer (RCC §4.4): pure functions of its lock word, read timestamp and
//! write timestamps.
//!
//! A reader at `time` gets the latest version not after it, unless somebody earlier is about to write: that write
//! would have to be read. A writer at `time` must come after every version, and after every reader of the latest one.
//! Order makes that safe without a lock for readers: a reader moves rts first and looks for lock and versions after
//! that, a writer locks first and looks for rts and versions after that. Of a reader and an earlier writer that meet, at least
//! one sees the other.

use super::{Abort, Timestamp};

/// The slot that a reader at `time` reads.
///
/// # Errors
/// [`Abort::ReadLocked`] if an earlier transaction holds the lock, [`Abort::NoVersion`] if all versions are later.
#[inline]
pub fn readable(lock: u64, wts: impl Iterator<Item = u64>, time: Timestamp) -> Result<usize, Abort> {
    if lock != 0 && lock < time.0 {
        return Err(Abort::ReadLocked);
    }
    // 0 is a slot that was never written.
    let visible = wts.enumerate().filter(|&(_, wts)| wts != 0 && wts <= time.0);
    visible.max_by_key(|&(_, wts)| wts).map(|(slot, _)| slot).ok_or(Abort::NoVersion)
}

/// Whether a writer at `time` may add a version.
///
/// # Errors
/// [`Abort::TooLate`] if a later transaction has read or written.
#[inline]
pub fn writable(rts: u64, newest_wts: u64, time: Timestamp) -> Result<(), Abort> {
    if newest_wts < time.0 && rts <= time.0 { Ok(()) } else { Err(Abort::TooLate) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reading_and_writing_by_enumeration() {
        let wts = [30, 0, 10, 20];
        for time in 1..40 {
            for lock in [0, 5, 15, 35] {
                let expected = match time {
                    _ if lock != 0 && lock < time => Err(Abort::ReadLocked),
                    0..10 => Err(Abort::NoVersion),
                    10..20 => Ok(2),
                    20..30 => Ok(3),
                    _ => Ok(0),
                };
                assert_eq!(
                    readable(lock, wts.into_iter(), Timestamp(time)),
                    expected,
                    "lock {lock}, time {time}"
                );
            }
            for rts in [0, 25, 35] {
                let may = time > 30 && time >= rts;
                assert_eq!(writable(rts, 30, Timestamp(time)).is_ok(), may, "rts {rts}, time {time}");
            }
        }
    }
}
