//! Long serial executions with overlapping intervals pass; with one violation planted, they fail.

use super::*;
use proptest::prelude::*;
use proptest::sample::Index;

const KEYS: u64 = 12;

/// What a transaction does to one key: read, overwrite, or read and overwrite.
#[derive(Clone, Copy, Debug)]
struct Touch {
    key: u64,
    reads: bool,
    writes: bool,
}

fn touches() -> impl Strategy<Value = Vec<Touch>> {
    let touch = (0..KEYS, 0..4u8).prop_map(|(key, what)| Touch { key, reads: what != 0, writes: what < 2 });
    prop::collection::btree_map(0..KEYS, touch, 1..5)
        .prop_map(|by_key| by_key.into_iter().map(|(key, t)| Touch { key, ..t }).collect())
}

/// Transactions that take effect at 1000, 2000, …; each interval is drawn around its moment.
fn serial() -> impl Strategy<Value = (Vec<Row>, Vec<u64>)> {
    prop::collection::vec((touches(), 0..3000u64, 0..3000u64, 0..20u8), 2..60).prop_map(|drafts| {
        let mut latest = vec![0; KEYS as usize];
        let mut rows = Vec::new();
        for (n, (touches, before, after, fate)) in drafts.into_iter().enumerate() {
            let moment = 1000 * (n as u64 + 4);
            let end = if fate == 0 { End::Abort } else { End::Commit };
            let mut ops = Vec::new();
            for touch in touches {
                let version = &mut latest[touch.key as usize];
                if touch.reads {
                    ops.push(r(touch.key, *version));
                }
                if touch.writes {
                    ops.push(w(touch.key, *version + 1));
                    *version += u64::from(end == End::Commit);
                }
            }
            rows.push(Row { interval: (moment - before, moment + after), end, ops });
        }
        (rows, latest)
    })
}

/// A violation that [`plant`] knows.
#[derive(Clone, Copy, Debug)]
enum Fault {
    LostUpdate,
    SameVersion,
    WriteSkew,
    LongFork,
    DirtyRead,
    Invented,
    StaleRead,
}

/// Adds a violation at the end, on keys that already have a past.
fn plant(rows: &mut Vec<Row>, latest: &[u64], fault: Fault, key: Index) {
    let x = key.index(latest.len());
    let y = (x + 1) % latest.len();
    let (vx, vy, x, y) = (latest[x], latest[y], x as u64, y as u64);
    let start = 1000 * (rows.len() as u64 + 10);
    let mut add = |ops: &[Op]| rows.push(commit(start, start + 10, ops));
    match fault {
        Fault::LostUpdate => {
            add(&[r(x, vx), w(x, vx + 1)]);
            add(&[r(x, vx), w(x, vx + 2)]);
        }
        Fault::SameVersion => {
            add(&[r(x, vx), w(x, vx + 1)]);
            add(&[r(x, vx), w(x, vx + 1)]);
        }
        Fault::WriteSkew => {
            add(&[r(x, vx), r(y, vy), w(x, vx + 1)]);
            add(&[r(x, vx), r(y, vy), w(y, vy + 1)]);
        }
        Fault::LongFork => {
            add(&[w(x, vx + 1)]);
            add(&[w(y, vy + 1)]);
            add(&[r(x, vx + 1), r(y, vy)]);
            add(&[r(x, vx), r(y, vy + 1)]);
        }
        Fault::DirtyRead => {
            rows.push(Row { interval: (start, start + 10), end: End::Abort, ops: vec![w(x, vx + 1)] });
            rows.push(commit(start, start + 10, [r(x, vx + 1)]));
        }
        // Not the next version: an aborted transaction may have claimed that one.
        Fault::Invented => add(&[r(x, vx + 2)]),
        Fault::StaleRead => {
            add(&[w(x, vx + 1)]);
            rows.push(commit(start + 20, start + 30, [r(x, vx)]));
        }
    }
}

fn fault() -> impl Strategy<Value = Fault> {
    prop::sample::select(vec![
        Fault::LostUpdate,
        Fault::SameVersion,
        Fault::WriteSkew,
        Fault::LongFork,
        Fault::DirtyRead,
        Fault::Invented,
        Fault::StaleRead,
    ])
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn serial_executions_pass_in_any_recording_order((rows, _) in serial(), seed in any::<u64>()) {
        let verdict = check(&history(&rows), Level::StrictSerializable);
        prop_assert!(verdict.passed(), "{}", verdict);
        // The verdict does not depend on where a transaction stands in the file.
        let mut shuffled = rows;
        shuffled.sort_by_key(|row| (row.interval.0 ^ seed).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let verdict = check(&history(&shuffled), Level::StrictSerializable);
        prop_assert!(verdict.passed(), "{}", verdict);
    }

    #[test]
    fn serial_executions_pass_without_real_time_whatever_the_clock_says(
        (mut rows, _) in serial(),
        times in prop::collection::vec((0..1000u64, 0..1000u64), 60),
    ) {
        for (row, (invoke, length)) in rows.iter_mut().zip(times) {
            row.interval = (invoke, invoke + length);
        }
        let verdict = check(&history(&rows), Level::Serializable);
        prop_assert!(verdict.passed(), "{}", verdict);
    }

    #[test]
    fn a_planted_violation_is_found((mut rows, latest) in serial(), fault in fault(), key in any::<Index>()) {
        plant(&mut rows, &latest, fault, key);
        let history = history(&rows);
        let expected = match fault {
            Fault::LostUpdate => Kind::GSingle,
            Fault::SameVersion => Kind::DuplicateVersion,
            Fault::WriteSkew => Kind::G2,
            Fault::LongFork => Kind::GNonadjacent,
            Fault::DirtyRead => Kind::G1a,
            Fault::Invented => Kind::UnwrittenRead,
            Fault::StaleRead => Kind::RealTime,
        };
        prop_assert_eq!(kind(&history, Level::StrictSerializable), Some(expected));
        let serializable = kind(&history, Level::Serializable);
        prop_assert_eq!(serializable, Some(expected).filter(|&k| k != Kind::RealTime));
    }
}
