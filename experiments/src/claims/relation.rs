//! Relations between measured numbers: whether they hold, and whether they show.

use super::Split;
use super::binding::{Along, Number, Predicate};
use super::evaluate::{Raw, Scale, factor, number};
use super::table::{Measured, Mirrored, Table};
use super::verdict::{CONSIDERABLE, MUCH, NO_CHANGE, RIPPLE, exceeds, excused, tolerance};

/// What became of a relation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Relation {
    Holds,
    /// By the numbers it does, but by no more than they are known.
    Unshown,
    Not,
}

impl Relation {
    fn by(holds: bool) -> Relation {
        if holds { Relation::Holds } else { Relation::Not }
    }

    /// Whether one is larger than the other.
    fn larger(a: &Raw, b: &Raw) -> Relation {
        let (a, b) = (a.size(), b.size());
        match exceeds(a.value, b.value, a.over(b).within) {
            true => Relation::Holds,
            false if a.value > b.value => Relation::Unshown,
            false => Relation::Not,
        }
    }

    /// Whether one is not smaller than the other by more than is [`open`] between them.
    fn not_smaller(a: &Raw, b: &Raw, least: f64) -> Relation {
        Relation::by(!exceeds(b.size().value, a.size().value, open(a, b, least)))
    }

    /// Of all pairs of neighbours: that of the worst.
    fn of_each<T>(all: &[T], pair: impl Fn(&T, &T) -> Relation) -> Relation {
        all.windows(2).map(|two| pair(&two[0], &two[1])).max().unwrap_or(Relation::Holds)
    }
}

/// By how much one may lie on the wrong side of the other, as the logarithm of their ratio: `least`, or what is known of them.
fn open(a: &Raw, b: &Raw, least: f64) -> f64 {
    excused(a.size().over(b.size()).within).max(least)
}

/// A number as people read it: what it is of says its unit, a change has its own.
fn told(raw: &Raw) -> String {
    let number = short(raw.value);
    match raw.scale {
        Scale::Plain => number,
        Scale::Factor => format!("{number}x"),
        Scale::Gain | Scale::Loss => format!("{number} %"),
    }
}

/// A number that is not to lie on the wrong side of another; where it does, by how much it may.
fn not_beyond(a: &Raw, sign: &str, b: &Raw, least: f64) -> String {
    let (first, second) = (a.size().value, b.size().value);
    let wrong = if sign == ">=" { first < second } else { first > second };
    let room = 100.0 * open(a, b, least).exp_m1();
    let room = if wrong && room > 0.0 { format!(" (up to {room:.1} % off is none)") } else { String::new() };
    let what = match a.scale {
        Scale::Gain => "gain ",
        Scale::Loss => "loss ",
        Scale::Plain | Scale::Factor => "",
    };
    format!("{what}{} {sign} {}{room}", told(a), told(b))
}

impl Mirrored {
    fn larger(a: Measured, b: Measured) -> bool {
        exceeds(a.value, b.value, a.over(b).within)
    }

    /// Whether the rates show to differ; those that do not say nothing.
    fn apart(&self) -> bool {
        let [a, b] = self.rates;
        Mirrored::larger(a, b) || Mirrored::larger(b, a)
    }

    /// Whether the side with the larger rate is not the larger one by the other column, too.
    fn agrees(&self) -> bool {
        let ([a, b], [x, y]) = (self.rates, self.others);
        !(Mirrored::larger(a, b) && Mirrored::larger(x, y)
            || Mirrored::larger(b, a) && Mirrored::larger(y, x))
    }
}

/// What became of a relation, and the numbers behind it.
pub(super) fn predicate(
    asked: &Predicate,
    y: &str,
    split: Split,
    table: &Table,
) -> Result<(Relation, String), String> {
    let one = |n: &Number| match number(n, y, split, table)? {
        raw if raw.value.is_nan() => Err(format!("{} is no number", raw.value)),
        raw => Ok(raw),
    };
    let several = |numbers: &[Number]| numbers.iter().map(one).collect::<Result<Vec<Raw>, String>>();
    let all = |raws: &[Raw], sign: &str| raws.iter().map(told).collect::<Vec<_>>().join(sign);
    let alike = |raws: &[Raw], within: f64| {
        let all = || raws.iter().map(|raw| Measured { value: raw.value, within: raw.within });
        let (Some(lo), Some(hi)) = (all().reduce(Measured::smaller), all().reduce(Measured::larger)) else {
            return Relation::Holds;
        };
        let open = excused(lo.within.hypot(hi.within)).max(within);
        Relation::by(hi.value - lo.value <= lo.value.abs() * open)
    };
    let curve = |along: &Along| -> Result<Vec<Raw>, String> {
        let points = table.along(&along.at, &along.over, y)?;
        Ok(points.into_iter().map(|(_, measured)| Raw::of(measured)).collect())
    };
    let climbs = |points: &[Raw]| {
        let step = |a: &Raw, b: &Raw| Relation::by(b.value >= a.value - RIPPLE * a.value.abs());
        let ends = Relation::larger(&points[points.len() - 1], &points[0]);
        Relation::of_each(points, step).max(ends)
    };
    // A change against none, or against one of some size.
    let change = |n: &Number| -> Result<(Raw, Raw), String> {
        let raw = one(n)?;
        let none = raw.none()?;
        Ok((raw, none))
    };
    let at_least = |n: &Number, least: f64| -> Result<(Relation, String), String> {
        let (raw, _) = change(n)?;
        let bound = factor(Measured { value: least, within: 0.0 });
        Ok((Relation::larger(&raw, &bound), all(&[factor(raw.size()), bound], " > ")))
    };
    let (relation, words) = match asked {
        Predicate::Descending(numbers) => {
            let raws = several(numbers)?;
            (Relation::of_each(&raws, Relation::larger), all(&raws, " > "))
        }
        Predicate::NotAscending(numbers) => {
            let raws = several(numbers)?;
            let words = raws.windows(2).map(|two| not_beyond(&two[0], ">=", &two[1], 0.0));
            let words = words.collect::<Vec<_>>().join(", ");
            (Relation::of_each(&raws, |a, b| Relation::not_smaller(a, b, 0.0)), words)
        }
        Predicate::Larger(n) => {
            let (raw, none) = change(n)?;
            (Relation::larger(&raw, &none), all(&[raw, none], " > "))
        }
        Predicate::Smaller(n) => {
            let (raw, none) = change(n)?;
            (Relation::larger(&none, &raw), all(&[raw, none], " < "))
        }
        Predicate::NotSmaller(n) => {
            let (raw, none) = change(n)?;
            (Relation::not_smaller(&raw, &none, 0.0), not_beyond(&raw, ">=", &none, 0.0))
        }
        Predicate::NoGain(n) => {
            let (raw, none) = change(n)?;
            let least = NO_CHANGE.ln_1p();
            (Relation::not_smaller(&none, &raw, least), not_beyond(&raw, "<=", &none, least))
        }
        Predicate::Gains(n) => at_least(n, 1.0 + NO_CHANGE)?,
        Predicate::Considerable(n) => at_least(n, 1.0 + CONSIDERABLE)?,
        Predicate::Much(n) => at_least(n, MUCH)?,
        Predicate::Near { number: n, to } => {
            let raw = one(n)?;
            let error = raw.size().value / raw.like(*to).size().value - 1.0;
            (
                Relation::by(error.abs() <= tolerance(split)),
                format!("{} ~ {}", told(&raw), told(&raw.like(*to))),
            )
        }
        Predicate::Alike { numbers, within } => {
            let raws = several(numbers)?;
            let within = within.map_or(tolerance(split), |percent| percent / 100.0);
            (alike(&raws, within), all(&raws, " ~ "))
        }
        Predicate::AtLeast { number: n, bound } => {
            let raw = one(n)?;
            let bound = raw.like(*bound);
            (Relation::not_smaller(&raw, &bound, 0.0), not_beyond(&raw, ">=", &bound, 0.0))
        }
        Predicate::AtMost { number: n, bound } => {
            let raw = one(n)?;
            let bound = raw.like(*bound);
            (Relation::not_smaller(&bound, &raw, 0.0), not_beyond(&raw, "<=", &bound, 0.0))
        }
        Predicate::Rising(along) => {
            let points = curve(along)?;
            (climbs(&points), format!("rising: {}", all(&points, ", ")))
        }
        Predicate::Falling(along) => {
            let mut points = curve(along)?;
            let words = format!("falling: {}", all(&points, ", "));
            points.reverse();
            (climbs(&points), words)
        }
        Predicate::Flat(along) => {
            let points = curve(along)?;
            (alike(&points, tolerance(split)), format!("flat: {}", all(&points, ", ")))
        }
        Predicate::Mirrored(mirror) => {
            let pairs = table.pairs(mirror, y)?;
            let apart = pairs.iter().filter(|pair| pair.apart()).count();
            let kept = pairs.iter().filter(|pair| pair.apart() && pair.agrees()).count();
            let words = format!(
                "of {apart} pairs that differ by {y} {} say the opposite by {}",
                apart - kept,
                mirror.y
            );
            // Where none differs there is nothing to say the same of.
            (Relation::by(apart > 0 && kept == apart), words)
        }
    };
    Ok((relation, words))
}

fn short(value: f64) -> String {
    let size = value.abs();
    if size >= 1e5 {
        let (divisor, suffix) = if size >= 1e9 {
            (1e9, "G")
        } else if size >= 1e6 {
            (1e6, "M")
        } else {
            (1e3, "k")
        };
        return format!("{:.4}{suffix}", value / divisor).replacen(".0000", "", 1);
    }
    let digits = if size >= 100.0 { 1 } else { 3 };
    format!("{value:.digits$}")
}

#[cfg(test)]
mod tests {
    use super::super::evaluate::tests::holds;
    use super::super::{Answer, Binding, evaluate};
    use super::*;
    use crate::yaml::from_str;
    use std::collections::BTreeMap;

    #[test]
    fn relations_hold_or_do_not() {
        for (text, expected) in [
            ("{descending: [{value: {verb: read, payload: 8}}, {value: {verb: rpc, payload: 8}}]}", true),
            (
                "{descending: [{value: {verb: read, payload: 256}}, {value: {verb: rpc, payload: 256}}]}",
                false,
            ),
            (
                "{alike: {within: 1, numbers: [{value: {verb: rpc, payload: 8}}, {value: {verb: rpc, payload: 64}}]}}",
                true,
            ),
            (
                "{alike: {within: 20, numbers: [{value: {verb: rpc, payload: 8}}, {value: {verb: rpc, payload: 256}}]}}",
                false,
            ),
            (
                "{at-least: {number: {ratio: {of: {verb: read}, to: {verb: rpc}, at: {payload: 8}}}, bound: 1.6}}",
                true,
            ),
            (
                "{at-most: {number: {ratio: {of: {verb: read}, to: {verb: rpc}, at: {payload: 8}}}, bound: 1.6}}",
                false,
            ),
            ("{falling: {at: {verb: read}, over: payload}}", true),
            ("{rising: {at: {verb: read}, over: payload}}", false),
            ("{flat: {at: {verb: rpc, payload: {to: 64}}, over: payload}}", true),
            ("{flat: {at: {verb: rpc}, over: payload}}", false),
        ] {
            assert_eq!(holds(text), expected, "{text}");
        }
    }

    /// Rates by verb, with how far each is known.
    fn rates(rates: &[(&str, f64, Option<f64>)]) -> Table {
        let mut table = Table::default();
        for (x, (verb, rate, width)) in rates.iter().enumerate() {
            let axes = [("verb".to_owned(), (*verb).to_owned()), ("x".to_owned(), x.to_string())].into();
            let mut columns: BTreeMap<String, f64> =
                [("rate_per_s".to_owned(), *rate), ("latency_p50_ns".to_owned(), *rate)].into();
            columns.extend(width.map(|width| ("rate_ci_relative".to_owned(), width)));
            table.points.push((axes, columns));
        }
        table
    }

    fn of(table: &Table, y: &str, split: Split, relation: &str) -> (bool, String) {
        let text = format!("experiment: e\nholds: [{relation}]");
        let binding: Binding = from_str("binding", &text).unwrap();
        match evaluate(&binding, y, "relation", split, table).unwrap() {
            Answer::Holds { held, detail } => (held, detail),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn an_order_must_show_as_a_change_must() {
        let order = "{descending: [{value: {verb: a}}, {value: {verb: b}}]}";
        let held = |y: &str, all: &[(&str, f64, Option<f64>)], relation: &str| {
            of(&rates(all), y, Split::HoldOut, relation)
        };
        let known = |a: f64, width: f64| [("a", a, Some(width)), ("b", 100.0, Some(0.02))];
        assert_eq!(held("rate_per_s", &known(104.0, 0.02), order), (true, "104.0 > 100.0".into()));
        let open = (false, "does not show: 102.0 > 100.0".into());
        assert_eq!(held("rate_per_s", &known(102.0, 0.02), order), open);
        let not = (false, "not so: 98.000 > 100.0".into());
        assert_eq!(held("rate_per_s", &known(98.0, 0.02), order), not);
        assert!(held("latency_p50_ns", &known(102.0, 0.02), order).0, "nothing says how far it is known");
        let unknown = [("a", 200.0, None), ("b", 100.0, Some(0.02))];
        assert!(!held("rate_per_s", &unknown, order).0, "a rate without an interval orders nothing");
        // A factor against one, a gain and a loss against none: the same.
        for relation in [
            "{larger: {ratio: {of: {verb: a}, to: {verb: b}}}}",
            "{larger: {change: {from: {verb: b}, to: {verb: a}}}}",
            "{larger: {loss: {from: {verb: a}, to: {verb: b}}}}",
            "{smaller: {ratio: {of: {verb: b}, to: {verb: a}}}}",
            "{descending: [{loss: {from: {verb: a}, to: {verb: b}}}, {loss: {from: {verb: b}, to: {verb: b}}}]}",
        ] {
            let (held_by_much, _) = held("rate_per_s", &known(106.0, 0.02), relation);
            let (held_within, detail) = held("rate_per_s", &known(102.0, 0.02), relation);
            assert!(
                held_by_much && !held_within && detail.starts_with("does not show: "),
                "{relation}: {detail}"
            );
            assert!(held("rate_per_s", &known(94.0, 0.02), relation).1.starts_with("not so: "));
        }
        // From end to end of a sweep too.
        let rising = "{rising: {over: x}}";
        let sweep = |end| [("a", 100.0, Some(0.02)), ("b", end, Some(0.02))];
        assert!(held("rate_per_s", &sweep(104.0), rising).0);
        assert!(held("rate_per_s", &sweep(102.0), rising).1.starts_with("does not show: "));
        assert!(held("rate_per_s", &sweep(96.0), "{falling: {over: x}}").0);
    }

    #[test]
    fn what_does_not_show_is_no_miss_where_equality_is_published() {
        let held = |a: f64, width: Option<f64>, relation: &str| {
            of(&rates(&[("a", a, width), ("b", 100.0, Some(0.02))]), "rate_per_s", Split::HoldOut, relation).0
        };
        for relation in [
            "{not-ascending: [{value: {verb: a}}, {value: {verb: b}}]}",
            "{not-smaller: {ratio: {of: {verb: a}, to: {verb: b}}}}",
            "{no-gain: {ratio: {of: {verb: b}, to: {verb: a}}}}",
            "{no-gain: {loss: {from: {verb: b}, to: {verb: a}}}}",
            "{at-least: {number: {ratio: {of: {verb: a}, to: {verb: b}}}, bound: 1}}",
            "{at-most: {number: {loss: {from: {verb: b}, to: {verb: a}}}, bound: 0}}",
        ] {
            assert!(held(98.0, Some(0.02), relation) && held(200.0, Some(0.02), relation), "{relation}");
            assert!(!held(94.0, Some(0.02), relation), "{relation}");
            assert!(!held(94.0, None, relation), "{relation}: what is not known excuses nothing");
        }
        let alike = "{alike: {numbers: [{value: {verb: a}}, {value: {verb: b}}]}}";
        assert!(held(90.0, Some(0.02), alike) && !held(80.0, Some(0.02), alike));
        let calibrate = |width| {
            of(&rates(&[("a", 92.0, width), ("b", 100.0, width)]), "rate_per_s", Split::Calibrate, alike).0
        };
        assert!(!calibrate(Some(0.02)) && calibrate(Some(0.08)), "8.7 % apart");
        assert!(!calibrate(Some(0.2)) && !calibrate(None), "what is not known excuses nothing");
    }

    /// What is told of a relation that is met although its number lies on the wrong side says by how much it may; a change says what it is.
    #[test]
    fn what_is_met_by_its_margin_is_told_with_the_margin() {
        let told = |a: f64, relation: &str| {
            of(
                &rates(&[("a", a, Some(0.0)), ("b", 100.0, Some(0.0))]),
                "rate_per_s",
                Split::HoldOut,
                relation,
            )
        };
        let no_loss = "{no-gain: {loss: {from: {verb: b}, to: {verb: a}}}}";
        assert_eq!(told(99.0, no_loss), (true, "loss 1.000 % <= 0.000 % (up to 3.0 % off is none)".into()));
        assert_eq!(told(101.0, no_loss), (true, "loss -1.000 % <= 0.000 %".into()));
        let off = "not so: loss 5.000 % <= 0.000 % (up to 3.0 % off is none)";
        assert_eq!(told(95.0, no_loss), (false, off.into()));
        let no_gain = "{no-gain: {ratio: {of: {verb: a}, to: {verb: b}}}}";
        assert_eq!(told(102.0, no_gain), (true, "1.020x <= 1.000x (up to 3.0 % off is none)".into()));
        let much = "{much: {ratio: {of: {verb: a}, to: {verb: b}}}}";
        assert_eq!(told(300.0, much), (true, "3.000x > 2.000x".into()));
        let least = "{at-least: {number: {change: {from: {verb: b}, to: {verb: a}}}, bound: 50}}";
        assert_eq!(told(140.0, least), (false, "not so: gain 40.000 % >= 50.000 %".into()));
    }

    #[test]
    fn words_have_one_meaning_each() {
        let table = |a: f64| rates(&[("a", a, Some(0.0)), ("b", 100.0, Some(0.0))]);
        let held = |a: f64, word: &str| {
            let relation = format!("{{{word}: {{ratio: {{of: {{verb: a}}, to: {{verb: b}}}}}}}}");
            of(&table(a), "rate_per_s", Split::HoldOut, &relation).0
        };
        assert!(held(102.0, "no-gain") && !held(102.0, "gains"));
        assert!(!held(104.0, "no-gain") && held(104.0, "gains"));
        assert!(!held(114.0, "considerable") && held(116.0, "considerable"));
        assert!(!held(190.0, "much") && held(210.0, "much"));
        // Alike is a ratio of one: to the tolerance of the split.
        let flat = |a: f64, split| of(&table(a), "latency_p50_ns", split, "{flat: {over: x}}").0;
        assert!(flat(110.0, Split::HoldOut) && !flat(120.0, Split::HoldOut));
        assert!(!flat(110.0, Split::Calibrate) && flat(104.0, Split::Calibrate));
        let near = |a: f64| {
            let relation = "{near: {number: {ratio: {of: {verb: a}, to: {verb: b}}}, to: 4}}";
            of(&table(a), "rate_per_s", Split::HoldOut, relation).0
        };
        assert!(near(400.0) && near(350.0) && !near(330.0));
        // Of a number that is no change it cannot be asked.
        let text = "experiment: e\nholds: [{larger: {value: {verb: a}}}]";
        let binding: Binding = from_str("binding", text).unwrap();
        let why = evaluate(&binding, "rate_per_s", "x", Split::HoldOut, &table(1.0)).unwrap_err();
        assert!(why.contains("a ratio or a change"), "{why}");
    }
}
