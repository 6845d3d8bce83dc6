//! When an answer passes: the one place that says so.
//!
//! | published | passes |
//! |---|---|
//! | a number, also "about" one | within the tolerance of it |
//! | from `lo` to `hi` | a number inside, either end widened by the tolerance; a sweep's two ends each within the tolerance |
//! | up to `hi` | the largest of the sweep within the tolerance of `hi`; where `lo` is told, the smallest within that of `lo` |
//! | at least, at most | the bound is met, widened by the tolerance |
//! | ordering, shape | every relation of the binding holds |
//!
//! The tolerance is [`CALIBRATE`] for claims that may set parameters and [`HOLD_OUT`] for those that may not. Errors
//! are relative. Gains and losses in percent are compared as factors (a loss of 40 % leaves 0.6), since the relative
//! error of a small percentage says nothing.

use serde::Serialize;

use super::evaluate::{Answer, Scale};
use super::{Claim, Form, Split};

/// Largest error of a calibrate claim.
pub const CALIBRATE: f64 = 0.05;
/// Largest error of a hold-out ratio or headline.
pub const HOLD_OUT: f64 = 0.15;

/// What became of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// The answer is within the rules.
    Pass,
    /// It is not.
    Fail,
    /// No experiment answers it yet, or the one that does was not asked for.
    NotYet,
    /// From another system or paper: not expected of us.
    External,
}

impl Verdict {
    /// For tables.
    pub const fn name(self) -> &'static str {
        match self {
            Verdict::Pass => "pass",
            Verdict::Fail => "fail",
            Verdict::NotYet => "not yet",
            Verdict::External => "external",
        }
    }
}

/// A judged answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Judged {
    /// Whether it passes.
    pub passed: bool,
    /// Relative error, where there is a number to compare with; the worse one of two ends.
    pub error: Option<f64>,
}

/// The tolerance of a split.
pub const fn tolerance(split: Split) -> f64 {
    match split {
        Split::Calibrate => CALIBRATE,
        Split::HoldOut => HOLD_OUT,
    }
}

fn error(got: f64, published: f64, scale: Scale) -> f64 {
    let factor = |percent: f64| match scale {
        Scale::Plain => percent,
        Scale::Gain => 1.0 + percent / 100.0,
        Scale::Loss => 1.0 - percent / 100.0,
    };
    factor(got) / factor(published) - 1.0
}

/// Judges an answer by the table above; `None` if answer and claim are of different kinds, a number for a relation
/// for example.
pub fn judge(claim: &Claim, answer: &Answer) -> Option<Judged> {
    let allowed = tolerance(claim.split);
    let published = &claim.value;
    let near = |errors: &[f64]| {
        let worst = errors.iter().copied().max_by(|a, b| a.abs().total_cmp(&b.abs()))?;
        Some(Judged { passed: worst.abs() <= allowed, error: Some(worst) })
    };
    match (answer, published.form, published.num, published.lo, published.hi) {
        (Answer::Holds { held, .. }, ..) => Some(Judged { passed: *held, error: None }),
        (Answer::Number { value, scale }, _, Some(num), _, _) => near(&[error(*value, num, *scale)]),
        (Answer::Number { value, scale }, Form::UpTo, _, _, Some(hi)) => near(&[error(*value, hi, *scale)]),
        (Answer::Number { value, scale }, _, _, lo, hi) if lo.is_some() || hi.is_some() => {
            // By the numbers themselves: a larger loss is a smaller factor.
            let under = lo.filter(|lo| value < lo).map(|lo| error(*value, lo, *scale));
            let over = hi.filter(|hi| value > hi).map(|hi| error(*value, hi, *scale));
            let outside = under.or(over).unwrap_or(0.0);
            // Inside the bounds, the distance to the nearer one is no error, but a reader wants to see how far.
            let shown = if outside != 0.0 || lo.is_some() == hi.is_some() {
                outside
            } else {
                error(*value, lo.or(hi)?, *scale)
            };
            Some(Judged { passed: outside.abs() <= allowed, error: Some(shown) })
        }
        (Answer::Span { lo, hi }, _, _, told_lo, Some(told_hi)) => {
            let mut errors = vec![error(*hi, told_hi, Scale::Plain)];
            errors.extend(told_lo.map(|told| error(*lo, told, Scale::Plain)));
            near(&errors)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::claims::{Kind, Published, Setup};

    fn claim(split: Split, form: Form, num: Option<f64>, lo: Option<f64>, hi: Option<f64>) -> Claim {
        Claim {
            id: "T".into(),
            paper: "t".into(),
            place: "s1".into(),
            testbed: String::new(),
            setup: Setup::default(),
            workload: String::new(),
            metric: String::new(),
            unit: "x".into(),
            value: Published { form, num, lo, hi, expr: None, cells: Default::default() },
            kind: Kind::Ratio,
            split,
            external: false,
            params: Default::default(),
            note: String::new(),
            caveat: None,
            contradicts: Vec::new(),
            answered_by: None,
        }
    }

    fn number(value: f64, scale: Scale) -> Answer {
        Answer::Number { value, scale }
    }

    #[test]
    fn tolerances_differ_by_split() {
        let answer = number(110.0, Scale::Plain);
        let of = |split| judge(&claim(split, Form::Point, Some(100.0), None, None), &answer).unwrap();
        assert!(!of(Split::Calibrate).passed && of(Split::HoldOut).passed);
        assert!((of(Split::HoldOut).error.unwrap() - 0.1).abs() < 1e-12);
    }

    #[test]
    fn percentages_are_compared_as_factors() {
        let loss = claim(Split::HoldOut, Form::Point, Some(40.0), None, None);
        assert!(judge(&loss, &number(35.0, Scale::Loss)).unwrap().passed, "0.65 of 0.6");
        assert!(!judge(&loss, &number(20.0, Scale::Loss)).unwrap().passed, "0.8 of 0.6");
        let none = claim(Split::HoldOut, Form::Approx, Some(0.0), None, None);
        assert!(judge(&none, &number(-3.0, Scale::Gain)).unwrap().passed);
        assert!(!judge(&none, &number(-30.0, Scale::Gain)).unwrap().passed);
    }

    #[test]
    fn bounds_are_one_sided_and_up_to_is_not() {
        let at_least = claim(Split::HoldOut, Form::AtLeast, None, Some(10.0), None);
        assert!(judge(&at_least, &number(30.0, Scale::Plain)).unwrap().passed);
        assert!(judge(&at_least, &number(9.0, Scale::Plain)).unwrap().passed);
        assert!(!judge(&at_least, &number(8.0, Scale::Plain)).unwrap().passed);
        let loses = claim(Split::HoldOut, Form::AtLeast, None, Some(20.0), None);
        assert!(judge(&loses, &number(60.0, Scale::Loss)).unwrap().passed, "more than 20 % is lost");
        assert!(judge(&loses, &number(10.0, Scale::Loss)).unwrap().passed, "0.9 of 0.8 is near");
        assert!(!judge(&loses, &number(0.0, Scale::Loss)).unwrap().passed, "nothing is lost");
        let up_to = claim(Split::HoldOut, Form::UpTo, None, None, Some(10.0));
        assert!(!judge(&up_to, &number(5.0, Scale::Plain)).unwrap().passed);
        assert!(judge(&up_to, &number(11.0, Scale::Plain)).unwrap().passed);
        let range = claim(Split::HoldOut, Form::Range, None, Some(1.0), Some(2.0));
        assert_eq!(judge(&range, &number(1.5, Scale::Plain)).unwrap().error, Some(0.0));
        assert!(judge(&range, &Answer::Span { lo: 1.1, hi: 2.1 }).unwrap().passed);
        assert!(!judge(&range, &Answer::Span { lo: 1.1, hi: 2.5 }).unwrap().passed);
    }

    #[test]
    fn relations_pass_when_they_hold() {
        let ordering = claim(Split::HoldOut, Form::Ordering, None, None, None);
        let holds = |held| Answer::Holds { held, detail: String::new() };
        assert!(judge(&ordering, &holds(true)).unwrap().passed);
        assert!(!judge(&ordering, &holds(false)).unwrap().passed);
        assert_eq!(judge(&ordering, &number(1.0, Scale::Plain)), None);
    }
}
