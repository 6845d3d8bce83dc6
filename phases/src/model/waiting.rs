//! What becomes of those who meet a lock: how many wait, for how long, and how many give up in the end.
//!
//! With a bound on its looks everybody waits, and so may two for each other: one with a lock that the other wants, and the other way round. Nothing
//! tells them; the first to have looked often enough gives up. So a circle costs an attempt, all its looks, and what others wait for meanwhile.

use super::chances::LEAST_SUCCESS;

/// What those do who meet a lock, of whose hold so much is left, in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(super) enum Waiting {
    /// Give up.
    Never,
    /// Every other one is older than the holder and waits, the others give up.
    Older { left: f64 },
    /// Wait, and give up after so long, as who waits in a circle always does.
    So { left: f64, patience: f64, circles: f64 },
}

impl Waiting {
    /// Of accesses that meet somebody with this chance: how many give up, how many wait, and for how long all of them do.
    ///
    /// Who has waited may find the next one there, again and again; later holds are met at their beginning and last twice what
    /// is left of the first.
    pub(super) fn at(self, met: f64) -> (f64, f64, f64) {
        match self {
            Waiting::Never => (met, 0.0, 0.0),
            Waiting::Older { left } => {
                let stays = (0.5 * met).min(1.0 - LEAST_SUCCESS);
                let waits = stays * (1.0 + stays) / (1.0 - stays);
                (0.5 * met / (1.0 - stays), waits, waits * left)
            }
            Waiting::So { left, patience, circles } => {
                let again = met.min(1.0 - LEAST_SUCCESS);
                let all = left * (1.0 + again) / (1.0 - again);
                let too_long = if all > 0.0 { (-patience / all).exp() } else { 0.0 };
                let waited = (1.0 - circles) * all * (1.0 - too_long) + circles * patience;
                (met * (1.0 - (1.0 - too_long) * (1.0 - circles)), met, met * waited)
            }
        }
    }
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
        for waiting in [
            Waiting::Never,
            Waiting::Older { left: 100.0 },
            Waiting::So { left: 100.0, patience: 900.0, circles: 0.5 },
        ] {
            assert_eq!(waiting.at(0.0), (0.0, 0.0, 0.0), "{waiting:?}");
        }
        assert_eq!(Waiting::Never.at(0.3), (0.3, 0.0, 0.0));
        // One in two is the younger one, at the first lock and at those that it meets in its place.
        let (gives_up, waits, ns) = Waiting::Older { left: 100.0 }.at(0.4);
        assert!((gives_up - 0.2 / 0.8).abs() < 1e-12 && (ns - 100.0 * waits).abs() < 1e-9);
    }

    #[test]
    fn with_a_bound_who_waits_too_long_gives_up_and_who_waits_in_a_circle() {
        let at = |patience, circles, met| Waiting::So { left: 100.0, patience, circles }.at(met);
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
