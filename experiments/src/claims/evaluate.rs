//! From measured points to an answer: pure functions of a binding and a table.

use std::collections::BTreeMap;

use serde::Serialize;

use super::binding::{Along, At, Binding, Handler, Number, PairOver, Parameter, Predicate, Side, both};

/// Measured points of one experiment.
#[derive(Clone, Debug, Default)]
pub struct Table {
    /// Axis values by axis, and the columns by name.
    pub points: Vec<(BTreeMap<String, String>, BTreeMap<String, f64>)>,
    /// Numbers of profiles, where claims are about those.
    pub parameters: BTreeMap<Parameter, f64>,
    /// What handlers take, in cycles.
    pub handlers: BTreeMap<Handler, f64>,
}

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

/// Columns of rates: `rate_ci_relative` says how far they are known.
const RATES: [&str; 5] = [
    "rate_per_s",
    "rate_per_server_per_s",
    "goodput_gb_per_s",
    "committed_per_s",
    "messages_per_machine_per_s",
];

/// What was measured at a point.
#[derive(Clone, Copy, Debug)]
struct Measured {
    value: f64,
    /// As [`Answer::Number::within`].
    within: f64,
}

impl Measured {
    fn of(columns: &BTreeMap<String, f64>, y: &str) -> Option<Measured> {
        // A rate without an interval is not known at all.
        let width = || columns.get("rate_ci_relative").copied().unwrap_or(1.0);
        let within = if RATES.contains(&y) { width() } else { 0.0 };
        Some(Measured { value: *columns.get(y)?, within })
    }

    fn larger(self, other: Measured) -> Measured {
        if other.value > self.value { other } else { self }
    }

    fn smaller(self, other: Measured) -> Measured {
        if other.value < self.value { other } else { self }
    }

    /// Divided by another.
    fn over(self, other: Measured) -> Measured {
        Measured { value: self.value / other.value, within: self.within.hypot(other.within) }
    }
}

impl Table {
    fn at<'a>(
        &'a self,
        at: &'a At,
        y: &'a str,
    ) -> impl Iterator<Item = (&'a BTreeMap<String, String>, Measured)> {
        let picked = |axes: &BTreeMap<String, String>| {
            at.iter().all(|(axis, pick)| axes.get(axis).is_some_and(|value| pick.takes(value)))
        };
        self.points
            .iter()
            .filter(move |(axes, _)| picked(axes))
            .filter_map(move |(axes, columns)| Some((axes, Measured::of(columns, y)?)))
    }

    fn one(&self, at: &At, y: &str) -> Result<Measured, String> {
        let found: Vec<Measured> = self.at(at, y).map(|(_, value)| value).collect();
        match found[..] {
            [one] => Ok(one),
            [] => Err(format!("no point with {y} at {}", shown(at))),
            _ => Err(format!("{} points at {}, one is needed", found.len(), shown(at))),
        }
    }

    /// A sweep: numbers of the axis, ascending, with their values.
    fn along(&self, at: &At, over: &str, y: &str) -> Result<Vec<(f64, Measured)>, String> {
        let mut points = Vec::new();
        for (axes, value) in self.at(at, y) {
            let x = axes.get(over).and_then(|text| text.parse::<f64>().ok());
            points.push((x.ok_or_else(|| format!("{over} is no axis of numbers"))?, value));
        }
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        if points.windows(2).any(|pair| pair[0].0 == pair[1].0) {
            return Err(format!("several points for one value of {over} at {}", shown(at)));
        }
        if points.len() < 2 {
            return Err(format!("a sweep over {over} needs at least two points at {}", shown(at)));
        }
        Ok(points)
    }

    /// The ratios of two sweeps by value of the axis, where both have it.
    fn ratios(&self, pair: &PairOver, y: &str) -> Result<Vec<(f64, Measured)>, String> {
        let first = self.along(&both(&pair.of, &pair.at), &pair.over, y)?;
        let second = self.along(&both(&pair.to, &pair.at), &pair.over, y)?;
        let meets = |&(x, a): &(f64, Measured)| {
            second.iter().find(|(other, _)| *other == x).map(|&(_, b)| (x, a.over(b)))
        };
        let ratios: Vec<_> = first.iter().filter_map(meets).collect();
        if ratios.is_empty() { Err(format!("the sweeps over {} do not meet", pair.over)) } else { Ok(ratios) }
    }
}

fn shown(at: &At) -> String {
    serde_json::to_string(at).unwrap_or_default()
}

fn extremes(values: impl Iterator<Item = f64>) -> (f64, f64) {
    values.fold((f64::INFINITY, f64::NEG_INFINITY), |(lo, hi), v| (lo.min(v), hi.max(v)))
}

/// A number before units: with its scale, and whether it is a value of the column (and so carries its unit).
struct Raw {
    value: f64,
    scale: Scale,
    of_column: bool,
    within: f64,
    lo: Option<f64>,
}

fn plain(value: f64) -> Raw {
    Raw { value, scale: Scale::Plain, of_column: false, within: 0.0, lo: None }
}

fn factor(measured: Measured) -> Raw {
    Raw { scale: Scale::Factor, within: measured.within, ..plain(measured.value) }
}

fn number(number: &Number, y: &str, table: &Table) -> Result<Raw, String> {
    let (y, number) = (number.column(y), number.inner());
    let of_column =
        |measured: Measured| Raw { of_column: true, within: measured.within, ..plain(measured.value) };
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
            two(pair).map(|(from, to)| Raw { of_column: true, ..plain(from.value - to.value) })?
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
        Number::Plateau(along) => plain(plateau(&table.along(&along.at, &along.over, y)?, along.within)),
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
        if (y.value / start.value - 1.0).abs() * 100.0 > within {
            break;
        }
        last = x;
    }
    last
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

fn predicate(asked: &Predicate, y: &str, table: &Table) -> Result<(bool, String), String> {
    let values = |numbers: &[Number]| -> Result<Vec<f64>, String> {
        numbers.iter().map(|n| number(n, y, table).map(|raw| raw.value)).collect()
    };
    let list = |values: &[f64], sign: &str| values.iter().map(|v| short(*v)).collect::<Vec<_>>().join(sign);
    let curve = |along: &Along| -> Result<Vec<(f64, f64)>, String> {
        let points = table.along(&along.at, &along.over, y)?;
        Ok(points.into_iter().map(|(x, measured)| (x, measured.value)).collect())
    };
    let turns = |points: &[(f64, f64)], along: &Along, sign: f64| {
        let step =
            |pair: &[(f64, f64)]| sign * (pair[1].1 - pair[0].1) >= -along.within / 100.0 * pair[0].1.abs();
        let ends = sign * (points[points.len() - 1].1 - points[0].1) > 0.0;
        points.windows(2).all(step) && ends
    };
    let ys = |points: &[(f64, f64)]| points.iter().map(|(_, y)| *y).collect::<Vec<f64>>();
    Ok(match asked {
        Predicate::Descending(numbers) => {
            let values = values(numbers)?;
            (values.windows(2).all(|pair| pair[0] > pair[1]), list(&values, " > "))
        }
        Predicate::Alike { numbers, within } => {
            let values = values(numbers)?;
            let (lo, hi) = extremes(values.iter().copied());
            (hi - lo <= lo.abs() * within / 100.0, list(&values, " ~ "))
        }
        Predicate::AtLeast { number: n, bound } => {
            let value = number(n, y, table)?.value;
            (value >= *bound, format!("{} >= {}", short(value), short(*bound)))
        }
        Predicate::AtMost { number: n, bound } => {
            let value = number(n, y, table)?.value;
            (value <= *bound, format!("{} <= {}", short(value), short(*bound)))
        }
        Predicate::Rising(along) => {
            let points = curve(along)?;
            (turns(&points, along, 1.0), format!("rising: {}", list(&ys(&points), ", ")))
        }
        Predicate::Falling(along) => {
            let points = curve(along)?;
            (turns(&points, along, -1.0), format!("falling: {}", list(&ys(&points), ", ")))
        }
        Predicate::Flat(along) => {
            let points = curve(along)?;
            let (lo, hi) = extremes(points.iter().map(|(_, y)| *y));
            (hi - lo <= lo.abs() * along.within / 100.0, format!("flat: {}", list(&ys(&points), ", ")))
        }
    })
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

/// Evaluates a binding on measured points; `unit` is the claim's.
///
/// # Errors
/// In words: a point is missing, or a pick is not the one point that is needed.
pub fn evaluate(binding: &Binding, y: &str, unit: &str, table: &Table) -> Result<Answer, String> {
    if let Some(asked) = &binding.number {
        if let Some(answer) = never(asked, y, table)? {
            return Ok(answer);
        }
        let raw = number(asked, y, table)?;
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
        let (holds, words) = predicate(asked, y, table)?;
        held &= holds;
        detail.push(if holds { words } else { format!("not so: {words}") });
    }
    Ok(Answer::Holds { held, detail: detail.join("; ") })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::yaml::from_str;

    fn table() -> Table {
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
        evaluate(&binding, "rate", "Mreq/s", &table()).unwrap()
    }

    fn number_of(text: &str) -> f64 {
        match answer(&format!("number: {text}")) {
            Answer::Number { value, .. } => value,
            other => panic!("{other:?}"),
        }
    }

    fn holds(text: &str) -> bool {
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
            ("{plateau: {at: {verb: rpc}, over: payload, within: 10}}", 64.0),
            ("{plateau: {at: {verb: read}, over: payload, within: 25}}", 64.0),
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
        let why = evaluate(&binding, "rate", "B", &table()).unwrap_err();
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
            match evaluate(&binding, y, "%", &table).unwrap() {
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
            ("{flat: {at: {verb: rpc, payload: {to: 64}}, over: payload, within: 1}}", true),
            ("{flat: {at: {verb: rpc}, over: payload, within: 20}}", false),
        ] {
            assert_eq!(holds(text), expected, "{text}");
        }
    }

    #[test]
    fn a_pick_that_is_not_one_point_is_an_error() {
        let binding: Binding = from_str("binding", "experiment: e\nnumber: {value: {verb: read}}").unwrap();
        assert!(evaluate(&binding, "rate", "x", &table()).unwrap_err().contains("4 points"));
        let binding: Binding = from_str("binding", "experiment: e\nnumber: {value: {verb: send}}").unwrap();
        assert!(evaluate(&binding, "rate", "x", &table()).unwrap_err().contains("no point"));
    }

    #[test]
    fn units_follow_the_claim() {
        assert_eq!(per_unit("Mreq/s", "rate_per_s"), 1e-6);
        assert_eq!(per_unit("Ktxn/s", "committed_per_s"), 1e-3);
        assert_eq!(per_unit("us", "latency_p50_ns"), 1e-3);
        assert_eq!(per_unit("txn/s", "committed_per_s"), 1.0);
    }
}
