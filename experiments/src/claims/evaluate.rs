//! From measured points to an answer: pure functions of a binding and a table.

use serde::Serialize;

use super::Split;
use super::binding::{At, Binding, Number, PairOver, Side, both};
use super::relation::{Relation, predicate};
use super::table::{Measured, Table, shown};
use super::verdict::tolerance;

/// How a number compares with a published one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Scale {
    /// By its ratio; it is no change of anything.
    #[default]
    Plain,
    /// The factor of a change: by its ratio, and 1 is no change.
    Factor,
    /// A gain in percent: compared as the factor 1 + x/100, since 1 % against 2 % is no error of 100 %.
    Gain,
    /// A loss in percent: compared as the factor 1 - x/100.
    Loss,
}

/// What the experiment of a claim gave.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Answer {
    /// One number, in the claim's unit.
    Number {
        /// The number.
        value: f64,
        /// How it compares.
        scale: Scale,
        /// How far it is known, as a share of it; of a change, of its factor. Two rates' intervals add up as independent ones
        /// do. 0 where nothing says how far.
        within: f64,
    },
    /// The smallest and the largest factor of a sweep.
    Span {
        /// The smallest.
        lo: f64,
        /// The largest.
        hi: f64,
        /// As of a number: the larger of both.
        within: f64,
    },
    /// What was asked for does not happen in the range that was measured.
    Never {
        /// What happens instead.
        detail: String,
    },
    /// A relation.
    Holds {
        /// Whether all of it holds.
        held: bool,
        /// The numbers behind it.
        detail: String,
    },
}

fn extremes(values: impl Iterator<Item = f64>) -> (f64, f64) {
    values.fold((f64::INFINITY, f64::NEG_INFINITY), |(lo, hi), v| (lo.min(v), hi.max(v)))
}

/// A number before units: with its scale, and whether it is a value of the column (and so carries its unit).
pub(super) struct Raw {
    pub(super) value: f64,
    pub(super) scale: Scale,
    of_column: bool,
    pub(super) within: f64,
    lo: Option<f64>,
}

impl Raw {
    /// What is no change of anything.
    pub(super) fn of(Measured { value, within }: Measured) -> Raw {
        Raw { value, scale: Scale::Plain, of_column: false, within, lo: None }
    }

    /// What orders it: the factor it stands for; of a loss its inverse, which is larger where more is lost.
    pub(super) fn size(&self) -> Measured {
        let factor = self.scale.factor(self.value);
        let value = if self.scale == Scale::Loss { 1.0 / factor } else { factor };
        Measured { value, within: self.within }
    }

    /// Another number of its kind, that is known.
    pub(super) fn like(&self, value: f64) -> Raw {
        Raw { value, within: 0.0, ..*self }
    }

    /// No change, of the kind of change that it is.
    pub(super) fn none(&self) -> Result<Raw, String> {
        match self.scale {
            Scale::Plain => Err("a ratio or a change is needed".to_owned()),
            Scale::Factor => Ok(self.like(1.0)),
            Scale::Gain | Scale::Loss => Ok(self.like(0.0)),
        }
    }
}

fn plain(value: f64) -> Raw {
    Raw::of(Measured { value, within: 0.0 })
}

pub(super) fn factor(measured: Measured) -> Raw {
    Raw { scale: Scale::Factor, ..Raw::of(measured) }
}

/// A number that a binding asks for.
pub(super) fn number(number: &Number, y: &str, split: Split, table: &Table) -> Result<Raw, String> {
    let (y, number) = (number.column(y), number.inner());
    let of_column = |measured| Raw { of_column: true, ..Raw::of(measured) };
    let several = |at: &At| {
        let values: Vec<Measured> = table.at(at, y).map(|(_, value)| value).collect();
        if values.is_empty() { Err(format!("no point with {y} at {}", shown(at))) } else { Ok(values) }
    };
    let largest = |values: Vec<Measured>| values.into_iter().reduce(Measured::larger).ok_or("no point");
    let smallest = |values: Vec<Measured>| values.into_iter().reduce(Measured::smaller).ok_or("no point");
    let two = |pair: &super::binding::Pair| -> Result<(Measured, Measured), String> {
        let side = |at: &At| -> Result<Measured, String> {
            let at = both(at, &pair.at);
            Ok(match pair.side {
                Side::Point => table.one(&at, y)?,
                Side::Peak => largest(several(&at)?)?,
                Side::Mean => mean(&several(&at)?),
            })
        };
        Ok((side(&pair.of)?, side(&pair.to)?))
    };
    let ratios = |pair: &PairOver| -> Result<Vec<Measured>, String> {
        Ok(table.ratios(pair, y)?.into_iter().map(|(_, ratio)| ratio).collect())
    };
    Ok(match number {
        Number::Value(at) => of_column(table.one(at, y)?),
        Number::Largest(at) => of_column(largest(several(at)?)?),
        Number::Smallest(at) => of_column(smallest(several(at)?)?),
        Number::Ratio(pair) => two(pair).map(|(of, to)| factor(of.over(to)))?,
        Number::Change(pair) => {
            let (from, to) = two(pair)?;
            let of = factor(to.over(from));
            Raw { scale: Scale::Gain, value: 100.0 * (of.value - 1.0), ..of }
        }
        Number::Loss(pair) => {
            let (from, to) = two(pair)?;
            loss(to.over(from))
        }
        Number::Fall(pair) => {
            let (from, to) = two(pair)?;
            let value = from.value - to.value;
            let open = (from.value * from.within).hypot(to.value * to.within);
            of_column(Measured { value, within: if open > 0.0 { open / value.abs() } else { 0.0 } })
        }
        Number::LargestRatio(pair) => factor(largest(ratios(pair)?)?),
        Number::SmallestRatio(pair) => factor(smallest(ratios(pair)?)?),
        Number::Ratios(pair) => {
            let (lo, hi) = (smallest(ratios(pair)?)?, largest(ratios(pair)?)?);
            Raw { lo: Some(lo.value), within: lo.within.max(hi.within), ..factor(hi) }
        }
        Number::LargestLoss(pair) => {
            let left =
                table.ratios(pair, y)?.into_iter().map(|(_, r)| Measured { value: 1.0 / r.value, ..r });
            loss(smallest(left.collect())?)
        }
        Number::Crossing(pair) => plain(crossing(&table.ratios(pair, y)?).ok_or_else(|| no_crossing(pair))?),
        Number::Plateau(along) => plain(plateau(&table.along(&along.at, &along.over, y)?, tolerance(split))),
        Number::In { .. } => return Err("a column within a column".to_owned()),
        Number::PeakAt(along) => {
            let points = table.along(&along.at, &along.over, y)?;
            let peak = points.into_iter().max_by(|a, b| a.1.value.total_cmp(&b.1.value));
            plain(peak.map_or(f64::NAN, |(x, _)| x))
        }
        Number::Parameter(asked) => {
            plain(*table.parameters.get(asked).ok_or("a parameter is read from its profile")?)
        }
        Number::Handler(asked) => {
            plain(*table.handlers.get(asked).ok_or("what a handler takes is read from its profile")?)
        }
    })
}

/// The mean of several, as independent ones.
fn mean(values: &[Measured]) -> Measured {
    let value = values.iter().map(|m| m.value).sum::<f64>() / values.len() as f64;
    let spread = values.iter().map(|m| m.value * m.within).fold(0.0, f64::hypot);
    Measured { value, within: spread / values.len() as f64 / value }
}

/// What is lost where so much is left.
fn loss(left: Measured) -> Raw {
    Raw { scale: Scale::Loss, value: 100.0 * (1.0 - left.value), ..factor(left) }
}

/// Where the ratio crosses one, between the two values of the axis around it; logarithmic in the axis, as such
/// axes are swept. `None` if it never does.
fn crossing(ratios: &[(f64, Measured)]) -> Option<f64> {
    let logs: Vec<(f64, f64)> = ratios.iter().map(|&(x, r)| (x.max(1e-9).ln(), r.value.ln())).collect();
    if let Some((x, _)) = logs.iter().find(|(_, r)| *r == 0.0) {
        return Some(x.exp());
    }
    let between = logs.windows(2).find(|pair| pair[0].1.signum() != pair[1].1.signum())?;
    let [(x0, r0), (x1, r1)] = [between[0], between[1]];
    Some((x0 + (x1 - x0) * r0 / (r0 - r1)).exp())
}

fn no_crossing(pair: &PairOver) -> String {
    format!("the sweeps over {} never cross in the range", pair.over)
}

/// What happens instead of a crossing that was asked for, if there is none.
fn never(asked: &Number, y: &str, table: &Table) -> Result<Option<Answer>, String> {
    let (y, Number::Crossing(pair)) = (asked.column(y), asked.inner()) else { return Ok(None) };
    let ratios = table.ratios(pair, y)?;
    if crossing(&ratios).is_some() {
        return Ok(None);
    }
    let (lo, hi) = extremes(ratios.iter().map(|(_, r)| r.value));
    let (from, to) = (ratios[0].0, ratios[ratios.len() - 1].0);
    let detail = format!("{} {from} to {to}: never crosses, the ratio is {lo:.3} to {hi:.3}", pair.over);
    Ok(Some(Answer::Never { detail }))
}

fn plateau(points: &[(f64, Measured)], within: f64) -> f64 {
    let (mut last, start) = points[0];
    for &(x, y) in points {
        if (y.value / start.value - 1.0).abs() > within {
            break;
        }
        last = x;
    }
    last
}

/// What one of a column's units is in the unit of a claim.
pub(super) fn per_unit(unit: &str, column: &str) -> f64 {
    let nanoseconds = column.ends_with("_ns");
    match unit {
        "us" if nanoseconds => 1e-3,
        "ms" if nanoseconds => 1e-6,
        _ if unit.starts_with("Ktxn") => 1e-3,
        _ if unit.starts_with('M') && unit.contains('/') || unit == "Mpps" => 1e-6,
        _ => 1.0,
    }
}

/// Evaluates a binding on measured points; `unit` and `split` are the claim's.
///
/// # Errors
/// In words: a point is missing, or a pick is not the one point that is needed.
pub fn evaluate(
    binding: &Binding,
    y: &str,
    unit: &str,
    split: Split,
    table: &Table,
) -> Result<Answer, String> {
    if let Some(asked) = &binding.number {
        if let Some(answer) = never(asked, y, table)? {
            return Ok(answer);
        }
        let raw = number(asked, y, split, table)?;
        let y = asked.column(y);
        let factor = if raw.of_column { per_unit(unit, y) * binding.times.unwrap_or(1.0) } else { 1.0 };
        if !raw.value.is_finite() {
            return Err(format!("{} is no number", raw.value));
        }
        return Ok(match raw.lo {
            Some(lo) => Answer::Span { lo: lo * factor, hi: raw.value * factor, within: raw.within },
            None => Answer::Number { value: raw.value * factor, scale: raw.scale, within: raw.within },
        });
    }
    let (mut held, mut detail) = (true, Vec::new());
    for asked in binding.holds.iter().flatten() {
        let (relation, words) = predicate(asked, y, split, table)?;
        held &= relation == Relation::Holds;
        detail.push(match relation {
            Relation::Holds => words,
            Relation::Unshown => format!("does not show: {words}"),
            Relation::Not => format!("not so: {words}"),
        });
    }
    Ok(Answer::Holds { held, detail: detail.join("; ") })
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::yaml::from_str;
    use std::collections::BTreeMap;

    /// READs and calls of four sizes.
    fn read_and_call() -> Table {
        let rates = [(8, 130.0, 80.0), (64, 100.0, 80.0), (256, 60.0, 60.0), (1024, 20.0, 30.0)];
        let point = |verb: &str, payload: i32, rate: f64| {
            let axes = [("verb".to_owned(), verb.to_owned()), ("payload".to_owned(), payload.to_string())];
            (
                axes.into(),
                [("rate".to_owned(), rate * 1e6), ("time".to_owned(), f64::from(payload) / 8.0)].into(),
            )
        };
        let both = rates.iter().flat_map(|&(p, read, rpc)| [point("read", p, read), point("rpc", p, rpc)]);
        Table { points: both.collect(), ..Table::default() }
    }

    fn answer(text: &str) -> Answer {
        let binding: Binding = from_str("binding", &format!("experiment: e\n{text}")).unwrap();
        evaluate(&binding, "rate", "Mreq/s", Split::HoldOut, &read_and_call()).unwrap()
    }

    fn number_of(text: &str) -> f64 {
        match answer(&format!("number: {text}")) {
            Answer::Number { value, .. } => value,
            other => panic!("{other:?}"),
        }
    }

    pub(in super::super) fn holds(text: &str) -> bool {
        match answer(&format!("holds: [{text}]")) {
            Answer::Holds { held, .. } => held,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn numbers_are_what_they_say() {
        for (text, expected) in [
            ("{value: {verb: read, payload: 64}}", 100.0),
            ("{largest: {verb: read}}", 130.0),
            ("{smallest: {payload: {from: 64, to: 256}}}", 60.0),
            ("{ratio: {of: {verb: read}, to: {verb: rpc}, at: {payload: 8}}}", 1.625),
            ("{change: {from: {payload: 8}, to: {payload: 64}, at: {verb: read}}}", -100.0 * 30.0 / 130.0),
            ("{loss: {from: {payload: 64}, to: {payload: 1024}, at: {verb: read}}}", 80.0),
            ("{largest-ratio: {of: {verb: rpc}, to: {verb: read}, over: payload}}", 1.5),
            (
                "{largest-ratio: {of: {verb: read}, to: {verb: rpc}, over: payload, at: {payload: {from: 64}}}}",
                1.25,
            ),
            ("{largest-loss: {from: {verb: read}, to: {verb: rpc}, over: payload}}", 100.0 * 50.0 / 130.0),
            ("{ratio: {of: {verb: rpc}, to: {verb: read}, at: {payload: {from: 64}}, side: peak}}", 0.8),
            ("{change: {from: {verb: rpc}, to: {verb: read}, side: peak}}", 62.5),
            ("{ratio: {of: {verb: read}, to: {verb: rpc}, side: mean}}", 310.0 / 250.0),
            ("{fall: {from: {verb: rpc}, to: {verb: read}, at: {payload: 1024}}}", 10.0),
            ("{peak-at: {at: {verb: read}, over: payload}}", 8.0),
            (
                "{in: {y: time, number: {ratio: {of: {verb: read, payload: 64}, to: {verb: rpc, payload: 8}}}}}",
                8.0,
            ),
            ("{plateau: {at: {verb: rpc}, over: payload}}", 64.0),
            ("{plateau: {at: {verb: read}, over: payload}}", 8.0),
        ] {
            let got = number_of(text);
            assert!((got - expected).abs() < 1e-9, "{text}: {got}, not {expected}");
        }
        let crossing = number_of("{crossing: {of: {verb: read}, to: {verb: rpc}, over: payload}}");
        assert!((64.0..=256.0).contains(&crossing), "{crossing}");
        let span = answer("number: {ratios: {of: {verb: read}, to: {verb: rpc}, over: payload}}");
        assert!(matches!(span, Answer::Span { lo, hi, .. } if (lo - 2.0 / 3.0).abs() < 1e-9 && hi == 1.625));
    }

    #[test]
    fn sweeps_that_never_cross_do_not_cross() {
        let apart = "{crossing: {of: {verb: read}, to: {verb: rpc}, over: payload, at: {payload: {to: 64}}}}";
        let Answer::Never { detail } = answer(&format!("number: {apart}")) else {
            panic!("READ is ahead throughout")
        };
        assert_eq!(detail, "payload 8 to 64: never crosses, the ratio is 1.250 to 1.625");
        // They meet at the end of the range, which is a crossing.
        assert_eq!(number_of(&apart.replace("to: 64", "to: 256")).round(), 256.0);
        // Within a relation there is nothing to compare.
        let text = format!("experiment: e\nholds: [{{at-least: {{number: {apart}, bound: 1}}}}]");
        let binding: Binding = from_str("binding", &text).unwrap();
        let why = evaluate(&binding, "rate", "B", Split::HoldOut, &read_and_call()).unwrap_err();
        assert!(why.contains("never cross in the range"), "{why}");
    }

    #[test]
    fn a_change_is_known_as_far_as_its_rates_are() {
        let mut table = Table::default();
        for (verb, rate, width) in
            [("read", 100.0, Some(0.03)), ("rpc", 90.0, Some(0.04)), ("cas", 80.0, None)]
        {
            let axes = [("verb".to_owned(), verb.to_owned())].into();
            let mut columns: BTreeMap<String, f64> =
                [("rate_per_s".to_owned(), rate), ("latency_p50_ns".to_owned(), rate)].into();
            columns.extend(width.map(|width| ("rate_ci_relative".to_owned(), width)));
            table.points.push((axes, columns));
        }
        let within = |y: &str, number: &str| {
            let binding: Binding = from_str("binding", &format!("experiment: e\nnumber: {number}")).unwrap();
            match evaluate(&binding, y, "%", Split::HoldOut, &table).unwrap() {
                Answer::Number { within, .. } | Answer::Span { within, .. } => within,
                other => panic!("{other:?}"),
            }
        };
        let change = "{change: {from: {verb: read}, to: {verb: rpc}}}";
        assert!((within("rate_per_s", change) - 0.05).abs() < 1e-12);
        assert_eq!(within("latency_p50_ns", change), 0.0);
        assert!(
            within("rate_per_s", "{loss: {from: {verb: read}, to: {verb: cas}}}") >= 1.0,
            "one is not known"
        );
        let peak = "{ratio: {of: {verb: [read, rpc]}, to: {verb: rpc}, side: peak}}";
        assert!((within("rate_per_s", peak) - 0.05).abs() < 1e-12, "of the point that is the peak");
    }

    #[test]
    fn a_pick_that_is_not_one_point_is_an_error() {
        let binding: Binding = from_str("binding", "experiment: e\nnumber: {value: {verb: read}}").unwrap();
        assert!(
            evaluate(&binding, "rate", "x", Split::HoldOut, &read_and_call())
                .unwrap_err()
                .contains("4 points")
        );
        let binding: Binding = from_str("binding", "experiment: e\nnumber: {value: {verb: send}}").unwrap();
        assert!(
            evaluate(&binding, "rate", "x", Split::HoldOut, &read_and_call())
                .unwrap_err()
                .contains("no point")
        );
    }

    #[test]
    fn units_follow_the_claim() {
        assert_eq!(per_unit("Mreq/s", "rate_per_s"), 1e-6);
        assert_eq!(per_unit("Ktxn/s", "committed_per_s"), 1e-3);
        assert_eq!(per_unit("us", "latency_p50_ns"), 1e-3);
        assert_eq!(per_unit("txn/s", "committed_per_s"), 1.0);
    }
}
