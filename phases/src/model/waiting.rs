//! What becomes of those who meet a lock: how many wait, for how long, and how many give up in the end.
//!
//! With a bound on its looks everybody waits, and so may two for each other: one with a lock that the other wants, and the other way round. Nothing
//! tells them; the first to have looked often enough gives up. So a circle costs an attempt, all its looks, and what others wait for meanwhile.

use super::ages::Ages;
use super::chances::{LEAST_SUCCESS, POWERS};

/// What those do who meet a lock, of whose hold so much is left, in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(super) enum Waiting {
    /// Give up.
    Never,
    /// Who is older than the holder waits, the others give up.
    Older(Ages),
    /// Wait, and give up after so long, as who waits in a circle always does.
    So { left: f64, patience: f64, circles: f64 },
}

/// What becomes of an access.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Outcome {
    /// The chance that it gives up, in a first attempt where ages decide.
    pub(super) gives_up: f64,
    /// How often it waits, where ages decide in units of what is left of the first hold; and for how long.
    pub(super) waits: f64,
    pub(super) waited_ns: f64,
    /// How likely it is to do well: in one and more attempts, or where ages decide in a later attempt of so old a transaction.
    pub(super) well: [f64; POWERS],
    /// The same in such an attempt. For how long depends on who else waits ([`super::ages`]).
    pub(super) waits_at: [f64; POWERS],
}

impl Waiting {
    /// Of accesses that meet somebody with this chance.
    ///
    /// Who has waited may find the next one there, again and again; later holds are met at their beginning and last twice what
    /// is left of the first.
    pub(super) fn at(self, met: f64) -> Outcome {
        let alike = |gives_up: f64, waits, waited_ns| Outcome {
            gives_up,
            waits,
            waited_ns,
            well: powers((1.0 - gives_up).max(LEAST_SUCCESS)),
            waits_at: [0.0; POWERS],
        };
        match self {
            Waiting::Never => alike(met, 0.0, 0.0),
            Waiting::Older(ages) => {
                let met_by = |older_share: f64| older(met, older_share, ages.others);
                let (gives_up, waits) = met_by(ages.first());
                let aged: [(f64, f64); POWERS] = std::array::from_fn(|n| met_by(ages.later(n)));
                let well = aged.map(|(gives_up, _)| (1.0 - gives_up).max(LEAST_SUCCESS));
                Outcome { gives_up, waits, waited_ns: 0.0, well, waits_at: aged.map(|(_, waits)| waits) }
            }
            Waiting::So { left, patience, circles } => {
                let again = met.min(1.0 - LEAST_SUCCESS);
                let all = left * (1.0 + again) / (1.0 - again);
                let too_long = if all > 0.0 { (-patience / all).exp() } else { 0.0 };
                let waited = (1.0 - circles) * all * (1.0 - too_long) + circles * patience;
                alike(met * (1.0 - (1.0 - too_long) * (1.0 - circles)), met, met * waited)
            }
        }
    }
}

/// How many give up, and for how many times what is left of the first hold one waits, where of those who are met such a share is
/// older and there are so many others.
fn older(met: f64, share: f64, others: f64) -> (f64, f64) {
    let stays = (met * (1.0 - share)).min(1.0 - LEAST_SUCCESS);
    let again = 1.0 / (1.0 - stays);
    (met * share * again, stays * ((1.0 + stays) * again).min(2.0 * others))
}

/// The first powers of a chance.
fn powers(chance: f64) -> [f64; POWERS] {
    let mut power = 1.0;
    std::array::from_fn(|_| {
        power *= chance;
        power
    })
}

/// The chance that who begins to wait closes a circle: the one it waits for waits itself, with the chance `blocked`, and for it, with the
/// chance `closes`, or for one that does.
pub(super) fn circles(blocked: f64, closes: f64) -> f64 {
    let (blocked, closes) = (blocked.clamp(0.0, 1.0), closes.clamp(0.0, 1.0));
    blocked * closes / (1.0 - blocked * (1.0 - closes)).max(LEAST_SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_waits_who_meets_nobody_and_without_waiting_all_give_up() {
        let ages = Ages { young: 0.4, before: 0.5, others: 90.0 };
        for waiting in
            [Waiting::Never, Waiting::Older(ages), Waiting::So { left: 100.0, patience: 900.0, circles: 0.5 }]
        {
            let nobody = Outcome {
                gives_up: 0.0,
                waits: 0.0,
                waited_ns: 0.0,
                well: [1.0; POWERS],
                waits_at: [0.0; POWERS],
            };
            assert_eq!(waiting.at(0.0), nobody, "{waiting:?}");
        }
        let fails = Waiting::Never.at(0.3);
        assert_eq!((fails.gives_up, fails.waits, fails.waited_ns), (0.3, 0.0, 0.0));
        assert!((fails.well[2] - 0.7 * 0.7 * 0.7).abs() < 1e-12);
        // Four in five are older than a first attempt, at the first lock and at those that it meets in its place.
        let first = Waiting::Older(ages).at(0.4);
        assert!((first.gives_up - 0.32 / 0.92).abs() < 1e-12, "{first:?}");
        // The oldest dies of next to nobody and waits, the youngest of those that have failed for the first attempts.
        let (oldest, youngest) = (first.well[0], first.well[POWERS - 1]);
        assert!(oldest > 0.97 && youngest < 0.8 && first.waits_at[0] > first.waits_at[POWERS - 1]);
    }

    #[test]
    fn with_a_bound_who_waits_too_long_gives_up_and_who_waits_in_a_circle() {
        let at = |patience, circles, met| {
            let outcome = Waiting::So { left: 100.0, patience, circles }.at(met);
            (outcome.gives_up, outcome.waits, outcome.waited_ns)
        };
        // Never too long: three in ten meet somebody, and wait for 100 ns and for each further hold 200.
        let (gives_up, waits, ns) = at(1e9, 0.0, 0.3);
        assert!(gives_up < 1e-12 && waits == 0.3);
        assert!((ns - 0.3 * (100.0 + 200.0 * 0.3 / 0.7)).abs() < 1e-6, "{ns}");
        // Not at all: as without waiting.
        assert!((at(1e-9, 0.0, 0.3).0 - 0.3).abs() < 1e-9);
        // All in circles: all looks, in vain.
        let (gives_up, _, ns) = at(1000.0, 1.0, 0.3);
        assert!((gives_up - 0.3).abs() < 1e-12 && (ns - 300.0).abs() < 1e-9);
        // Longer patience, fewer that give up, and longer waits.
        let (short, long) = (at(100.0, 0.1, 0.5), at(400.0, 0.1, 0.5));
        assert!(short.0 > long.0 && short.2 < long.2);
    }

    #[test]
    fn circles_close_over_any_number() {
        assert_eq!((circles(0.0, 0.5), circles(0.5, 0.0)), (0.0, 0.0));
        // Of one, of two, of three and so on: 0.5 · 0.2 · (1 + 0.5 · 0.8 + …).
        let sum: f64 = (0..60).map(|n| 0.1 * 0.4_f64.powi(n)).sum();
        assert!((circles(0.5, 0.2) - sum).abs() < 1e-12);
        // Where all wait, one closes it.
        assert!((circles(1.0, 0.2) - 1.0).abs() < 1e-9);
    }
}
