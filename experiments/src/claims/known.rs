//! How well the rates are known that claims are judged by.

use primitives::measure::Row;
use serde::Serialize;

use super::verdict::CALIBRATE;

/// What is known of an experiment's rates. Verdicts do not depend on it: a reader does.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Known {
    /// Points of the experiment.
    pub points: usize,
    /// Points whose 95 % interval reaches further than the tolerance of calibrate claims to either side, or that have none.
    pub loose: usize,
    /// Largest half width over the rate, where there are intervals.
    pub worst: Option<f64>,
}

impl Known {
    /// Of rows of a points table. A row in which nothing ended has no rate that could be known.
    pub fn of<'r>(rows: impl IntoIterator<Item = &'r Row>) -> Known {
        let mut known = Known::default();
        for row in rows {
            known.points += 1;
            let width = row.number("rate_ci_relative");
            known.loose += usize::from(width.is_none_or(|width| width > CALIBRATE));
            known.worst = known.worst.into_iter().chain(width).reduce(f64::max);
        }
        known
    }

    /// One sentence, if there is something to say.
    pub fn doubt(&self) -> Option<String> {
        let worst = self.worst.map(|worst| format!(", the worst to ± {:.1} %", 100.0 * worst));
        (self.loose > 0).then(|| {
            format!(
                "{} of {} rates are not known to {:.0} %{}",
                self.loose,
                self.points,
                100.0 * CALIBRATE,
                worst.unwrap_or_default()
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_without_an_interval_are_not_known() {
        let rows = [
            Row::new().with("rate_ci_relative", 0.01),
            Row::new().with("rate_ci_relative", 0.3),
            Row::new().with("converged", "too short"),
        ];
        let known = Known::of(&rows);
        assert_eq!(known, Known { points: 3, loose: 2, worst: Some(0.3) });
        assert_eq!(known.doubt().unwrap(), "2 of 3 rates are not known to 5 %, the worst to ± 30.0 %");
        assert_eq!(Known::of(&rows[..1]).doubt(), None);
    }
}
