//! When an answer passes: the one place that says so.
//!
//! | published | passes |
//! |---|---|
//! | a number, also "about" one | within the tolerance of it |
//! | from `lo` to `hi` | a number inside, either end widened by the tolerance; a sweep's two ends each within the tolerance |
//! | up to `hi` | the largest of the sweep within the tolerance of `hi`; where `lo` is told, the smallest within that of `lo` |
//! | at least, at most | the bound is met, widened by the tolerance |
//! | ordering, shape | every relation of the binding holds, by the rules below |
//! | anything | not where what was published happens, a crossing for example, and here never does |
//!
//! The tolerance is [`CALIBRATE`] for claims that may set parameters and [`HOLD_OUT`] for those that may not. Errors
//! are relative. Gains and losses in percent are compared as factors (a loss of 40 % leaves 0.6), since the relative
//! error of a small percentage says nothing.
//!
//! That alone would let a loss of 5 % pass where nothing is lost. So a change (in percent, or as a factor) that a paper states
//! must also *show*: in its sign, by more than half of what was published (the logarithms of factors are compared: nearer to the
//! published change than to none), and by more than the rates behind it are known. Bounds that allow no change ask for none.
//!
//! Relations follow the same rules; what a paper says in words has one meaning for all claims:
//!
//! | published | holds |
//! |---|---|
//! | larger, smaller, best, an order | each gap is more than is known of the rates at its two sides (`exceeds`) |
//! | not smaller, at least, at most | the opposite does not show |
//! | alike, comparable, constant, flat, a plateau, about a factor | a ratio of one, or of that factor, within the tolerance of the split; a ratio of one also within what is known of it |
//! | no gain, no loss; a gain, where others have none | by [`NO_CHANGE`] at most; by more |
//! | considerable, significant, to block others | by more than [`CONSIDERABLE`] |
//! | much | by [`MUCH`] at least |
//! | slowly | by less than [`MUCH`] |
//! | rising, falling | from end to end as an order, and no step against it by more than [`RIPPLE`] |

use serde::Serialize;

use super::evaluate::{Answer, Scale};
use super::{Claim, Form, Split};

/// Largest error of a calibrate claim.
pub const CALIBRATE: f64 = 0.05;
/// Largest error of a hold-out ratio or headline.
pub const HOLD_OUT: f64 = 0.15;
/// Up to this share nothing is gained or lost: what two rates leave open that are known within 2 % each, as those of requests are.
pub const NO_CHANGE: f64 = 0.03;
/// A change that the larger of both tolerances could hide is not considerable.
pub const CONSIDERABLE: f64 = HOLD_OUT;
/// The factor of "much": less than twice as much is more, not much.
pub const MUCH: f64 = 2.0;
/// A step against a trend, as a share, that does not break it: half of that within which rates are known at best.
pub const RIPPLE: f64 = 0.01;

/// What became of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// The answer is within the rules.
    Pass,
    /// It is not.
    Fail,
    /// No experiment answers it yet.
    NotYet,
    /// The experiment that would answer it was not measured: it cannot run here, or was ended before.
    Unmeasured,
    /// It holds, as it must: the claim set what answers it. It judges nothing and is counted apart.
    Restated,
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
            Verdict::Unmeasured => "not measured",
            Verdict::Restated => "restated",
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
    /// It would pass if a change that the paper states did show.
    pub unshown: bool,
}

impl Judged {
    fn by(passed: bool) -> Judged {
        Judged { passed, error: None, unshown: false }
    }
}

/// The tolerance of a split.
pub const fn tolerance(split: Split) -> f64 {
    match split {
        Split::Calibrate => CALIBRATE,
        Split::HoldOut => HOLD_OUT,
    }
}

/// Whether one number is larger than another by more than the rates behind them are known: as for changes, the logarithm of their
/// ratio is compared. What is not above zero has no logarithm, and no rate behind it that an interval is told of.
pub(super) fn exceeds(larger: f64, smaller: f64, within: f64) -> bool {
    if larger > 0.0 && smaller > 0.0 { (larger / smaller).ln() > within } else { larger > smaller }
}

/// What an interval excuses: a rate that is known no better than the tolerance says nothing, so that nothing is excused.
pub(super) fn excused(within: f64) -> f64 {
    if within <= HOLD_OUT { within } else { 0.0 }
}

impl Scale {
    /// A number as the factor that it stands for.
    pub(super) fn factor(self, number: f64) -> f64 {
        match self {
            Scale::Plain | Scale::Factor => number,
            Scale::Gain => 1.0 + number / 100.0,
            Scale::Loss => 1.0 - number / 100.0,
        }
    }
}

fn error(got: f64, published: f64, scale: Scale) -> f64 {
    scale.factor(got) / scale.factor(published) - 1.0
}

/// The published change that is nearest to none; `None` where no change would do, or nothing changes.
fn change(claim: &Claim, scale: Scale) -> Option<f64> {
    let none = match scale {
        Scale::Plain => return None,
        Scale::Factor => 1.0,
        Scale::Gain | Scale::Loss => 0.0,
    };
    let value = &claim.value;
    let told = value.num.or(value.hi.filter(|_| value.form == Form::UpTo));
    let (lo, hi) = told.map_or((value.lo, value.hi), |told| (Some(told), Some(told)));
    lo.filter(|lo| *lo > none).or(hi.filter(|hi| *hi < none))
}

/// Whether a change shows that a paper states, by the rule above.
fn shows(got: f64, published: f64, scale: Scale, within: f64) -> bool {
    let (got, published) = (scale.factor(got).ln(), scale.factor(published).ln());
    got * published.signum() > (published.abs() / 2.0).max(within)
}

/// Judges an answer by the table above; `None` if answer and claim are of different kinds, a number for a relation
/// for example.
pub fn judge(claim: &Claim, answer: &Answer) -> Option<Judged> {
    let allowed = tolerance(claim.split);
    let published = &claim.value;
    let near = |errors: &[f64], shows: bool| {
        let worst = errors.iter().copied().max_by(|a, b| a.abs().total_cmp(&b.abs()))?;
        let near = worst.abs() <= allowed;
        Some(Judged { passed: near && shows, error: Some(worst), unshown: near && !shows })
    };
    let (value, scale, within) = match answer {
        Answer::Holds { held, .. } => return Some(Judged::by(*held)),
        Answer::Never { .. } => return Some(Judged::by(false)),
        Answer::Span { lo, hi, within } => {
            let ends = [(*hi, Some(published.hi?)), (*lo, published.lo)];
            let ends = ends.into_iter().filter_map(|(got, told)| Some((got, told?)));
            let factor = Scale::Factor;
            let errors: Vec<f64> = ends.clone().map(|(got, told)| error(got, told, factor)).collect();
            return near(&errors, ends.clone().all(|(got, told)| shows(got, told, factor, *within)));
        }
        Answer::Number { value, scale, within } => (*value, *scale, *within),
    };
    let shown = change(claim, scale).is_none_or(|told| shows(value, told, scale, within));
    match (published.form, published.num, published.lo, published.hi) {
        (_, Some(num), _, _) => near(&[error(value, num, scale)], shown),
        (Form::UpTo, _, _, Some(hi)) => near(&[error(value, hi, scale)], shown),
        (_, _, lo, hi) if lo.is_some() || hi.is_some() => {
            // By the numbers themselves: a larger loss is a smaller factor.
            let under = lo.filter(|lo| value < *lo).map(|lo| error(value, lo, scale));
            let over = hi.filter(|hi| value > *hi).map(|hi| error(value, hi, scale));
            let outside = under.or(over).unwrap_or(0.0);
            // Inside the bounds, the distance to the nearer one is no error, but a reader wants to see how far.
            let told = if outside != 0.0 || lo.is_some() == hi.is_some() {
                outside
            } else {
                error(value, lo.or(hi)?, scale)
            };
            let near = outside.abs() <= allowed;
            Some(Judged { passed: near && shown, error: Some(told), unshown: near && !shown })
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
            reason: None,
            answered_by: None,
            not_yet: None,
        }
    }

    fn number(value: f64, scale: Scale) -> Answer {
        Answer::Number { value, scale, within: 0.0 }
    }

    fn passes(claim: &Claim, value: f64, scale: Scale) -> bool {
        judge(claim, &number(value, scale)).unwrap().passed
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
        assert!(judge(&loses, &number(12.0, Scale::Loss)).unwrap().passed, "0.88 of 0.8 is near");
        assert!(
            !judge(&loses, &number(10.0, Scale::Loss)).unwrap().passed,
            "0.9 is nearer to nothing than to 0.8"
        );
        assert!(!judge(&loses, &number(0.0, Scale::Loss)).unwrap().passed, "nothing is lost");
        let up_to = claim(Split::HoldOut, Form::UpTo, None, None, Some(10.0));
        assert!(!judge(&up_to, &number(5.0, Scale::Plain)).unwrap().passed);
        assert!(judge(&up_to, &number(11.0, Scale::Plain)).unwrap().passed);
        let range = claim(Split::HoldOut, Form::Range, None, Some(1.0), Some(2.0));
        assert_eq!(judge(&range, &number(1.5, Scale::Plain)).unwrap().error, Some(0.0));
        assert!(judge(&range, &Answer::Span { lo: 1.1, hi: 2.1, within: 0.0 }).unwrap().passed);
        assert!(!judge(&range, &Answer::Span { lo: 1.1, hi: 2.5, within: 0.0 }).unwrap().passed);
    }

    #[test]
    fn a_change_must_show() {
        let gain = |percent| claim(Split::HoldOut, Form::Point, Some(percent), None, None);
        // DrTM+H's loss of 5 % on 80 nodes, where nothing, or the opposite, came out: within 15 % of it all the same.
        let nothing = judge(&gain(-5.0), &number(0.26, Scale::Gain)).unwrap();
        assert!(!nothing.passed && nothing.unshown);
        assert!(!passes(&gain(-5.0), 1.0, Scale::Gain) && !passes(&gain(-5.0), 0.0, Scale::Gain));
        assert!(!passes(&gain(-5.0), -2.5, Scale::Gain), "nearer to none than to 5 %");
        assert!(passes(&gain(-5.0), -2.6, Scale::Gain) && passes(&gain(-5.0), -15.0, Scale::Gain));
        assert!(!passes(&gain(10.0), -1.0, Scale::Gain) && passes(&gain(10.0), 6.0, Scale::Gain));
        let lost = |percent| claim(Split::HoldOut, Form::UpTo, None, None, Some(percent));
        assert!(!passes(&lost(9.0), 1.0, Scale::Loss) && !passes(&lost(9.0), -1.0, Scale::Loss));
        assert!(passes(&lost(9.0), 7.0, Scale::Loss));
        // Factors are changes too, up and down; plain numbers are not.
        assert!(!passes(&gain(1.1), 1.0, Scale::Factor) && passes(&gain(1.1), 1.1, Scale::Factor));
        assert!(!passes(&gain(0.9), 1.0, Scale::Factor) && passes(&gain(0.9), 0.92, Scale::Factor));
        assert!(passes(&gain(1.1), 1.0, Scale::Plain));
        // A change that the intervals of its rates leave open does not show.
        let known = |within| Answer::Number { value: -5.0, scale: Scale::Gain, within };
        assert!(judge(&gain(-5.0), &known(0.04)).unwrap().passed);
        assert!(!judge(&gain(-5.0), &known(0.06)).unwrap().passed);
        let ratios = claim(Split::HoldOut, Form::UpTo, None, Some(1.1), Some(1.3));
        let span = |lo| judge(&ratios, &Answer::Span { lo, hi: 1.3, within: 0.02 }).unwrap().passed;
        assert!(span(1.08) && !span(1.01), "each end of a sweep that is told");
    }

    #[test]
    fn bounds_that_allow_no_change_ask_for_none() {
        let bound = |form, lo, hi| claim(Split::HoldOut, form, None, lo, hi);
        assert!(passes(&bound(Form::AtMost, None, Some(5.0)), 0.0, Scale::Loss), "at most 5 % are lost");
        assert!(passes(&bound(Form::Range, Some(-3.0), Some(3.0)), 0.0, Scale::Gain));
        assert!(!passes(&bound(Form::Range, Some(6.0), Some(34.0)), 1.0, Scale::Gain));
        assert!(
            !passes(&bound(Form::AtMost, None, Some(0.9)), 0.99, Scale::Factor),
            "at most nine tenths are left"
        );
    }

    #[test]
    fn what_never_happens_is_a_miss_where_it_is_published() {
        let somewhere = claim(Split::Calibrate, Form::AtLeast, None, Some(64.0), None);
        let judged = judge(&somewhere, &Answer::Never { detail: String::new() }).unwrap();
        assert_eq!(judged, Judged::by(false));
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
