//! From measured points to an answer: pure functions of a binding and a table.

use std::collections::BTreeMap;

use serde::Serialize;

use super::binding::{Along, At, Binding, Number, PairOver, Parameter, Predicate, Side, both};

/// Measured points of one experiment.
#[derive(Clone, Debug, Default)]
pub struct Table {
    /// Axis values by axis, and the columns by name.
    pub points: Vec<(BTreeMap<String, String>, BTreeMap<String, f64>)>,
    /// Numbers of profiles, where claims are about those.
    pub parameters: BTreeMap<Parameter, f64>,
}

/// How a number compares with a published one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Scale {
    /// By its ratio.
    #[default]
    Plain,
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
    },
    /// The smallest and the largest of a sweep.
    Span {
        /// The smallest.
        lo: f64,
        /// The largest.
        hi: f64,
    },
    /// A relation.
    Holds {
        /// Whether all of it holds.
        held: bool,
        /// The numbers behind it.
        detail: String,
    },
}

impl Table {
    fn at<'a>(&'a self, at: &'a At, y: &'a str) -> impl Iterator<Item = (&'a BTreeMap<String, String>, f64)> {
        let picked = |axes: &BTreeMap<String, String>| {
            at.iter().all(|(axis, pick)| axes.get(axis).is_some_and(|value| pick.takes(value)))
        };
        self.points
            .iter()
            .filter(move |(axes, _)| picked(axes))
            .filter_map(move |(axes, columns)| Some((axes, *columns.get(y)?)))
    }

    fn one(&self, at: &At, y: &str) -> Result<f64, String> {
        let found: Vec<f64> = self.at(at, y).map(|(_, value)| value).collect();
        match found[..] {
            [one] => Ok(one),
            [] => Err(format!("no point with {y} at {}", shown(at))),
            _ => Err(format!("{} points at {}, one is needed", found.len(), shown(at))),
        }
    }

    /// A sweep: numbers of the axis, ascending, with their values.
    fn along(&self, at: &At, over: &str, y: &str) -> Result<Vec<(f64, f64)>, String> {
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

    /// Pairs of a sweep: value of the axis, first, second.
    fn pairs(&self, pair: &PairOver, y: &str) -> Result<Vec<(f64, f64, f64)>, String> {
        let first = self.along(&both(&pair.of, &pair.at), &pair.over, y)?;
        let second = self.along(&both(&pair.to, &pair.at), &pair.over, y)?;
        let pairs: Vec<_> = first
            .iter()
            .filter_map(|&(x, a)| second.iter().find(|(other, _)| *other == x).map(|&(_, b)| (x, a, b)))
            .collect();
        if pairs.is_empty() { Err(format!("the sweeps over {} do not meet", pair.over)) } else { Ok(pairs) }
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
    lo: Option<f64>,
}

fn plain(value: f64) -> Raw {
    Raw { value, scale: Scale::Plain, of_column: false, lo: None }
}

fn number(number: &Number, y: &str, table: &Table) -> Result<Raw, String> {
    let (y, number) = (number.column(y), number.inner());
    let of_column = |value| Raw { of_column: true, ..plain(value) };
    let several = |at: &At| {
        let values: Vec<f64> = table.at(at, y).map(|(_, value)| value).collect();
        if values.is_empty() { Err(format!("no point with {y} at {}", shown(at))) } else { Ok(values) }
    };
    let two = |pair: &super::binding::Pair| -> Result<(f64, f64), String> {
        let side = |at: &At| -> Result<f64, String> {
            let at = both(at, &pair.at);
            Ok(match pair.side {
                Side::Point => table.one(&at, y)?,
                Side::Peak => extremes(several(&at)?.into_iter()).1,
                Side::Mean => several(&at).map(|all| all.iter().sum::<f64>() / all.len() as f64)?,
            })
        };
        Ok((side(&pair.of)?, side(&pair.to)?))
    };
    Ok(match number {
        Number::Value(at) => of_column(table.one(at, y)?),
        Number::Largest(at) => of_column(extremes(several(at)?.into_iter()).1),
        Number::Smallest(at) => of_column(extremes(several(at)?.into_iter()).0),
        Number::Ratio(pair) => two(pair).map(|(of, to)| plain(of / to))?,
        Number::Change(pair) => {
            let (from, to) = two(pair)?;
            Raw { scale: Scale::Gain, ..plain(100.0 * (to / from - 1.0)) }
        }
        Number::Loss(pair) => {
            let (from, to) = two(pair)?;
            Raw { scale: Scale::Loss, ..plain(100.0 * (1.0 - to / from)) }
        }
        Number::Fall(pair) => two(pair).map(|(from, to)| of_column(from - to))?,
        Number::LargestRatio(pair) => {
            plain(extremes(table.pairs(pair, y)?.into_iter().map(|(_, a, b)| a / b)).1)
        }
        Number::SmallestRatio(pair) => {
            plain(extremes(table.pairs(pair, y)?.into_iter().map(|(_, a, b)| a / b)).0)
        }
        Number::Ratios(pair) => {
            let (lo, hi) = extremes(table.pairs(pair, y)?.into_iter().map(|(_, a, b)| a / b));
            Raw { lo: Some(lo), ..plain(hi) }
        }
        Number::LargestLoss(pair) => {
            let losses = table.pairs(pair, y)?.into_iter().map(|(_, from, to)| 100.0 * (1.0 - to / from));
            Raw { scale: Scale::Loss, ..plain(extremes(losses).1) }
        }
        Number::Crossing(pair) => plain(crossing(&table.pairs(pair, y)?)?),
        Number::Plateau(along) => plain(plateau(&table.along(&along.at, &along.over, y)?, along.within)),
        Number::In { .. } => return Err("a column within a column".to_owned()),
        Number::PeakAt(along) => {
            let points = table.along(&along.at, &along.over, y)?;
            plain(points.into_iter().max_by(|a, b| a.1.total_cmp(&b.1)).map_or(f64::NAN, |(x, _)| x))
        }
        Number::Parameter(asked) => {
            plain(*table.parameters.get(asked).ok_or("a parameter is read from its profile")?)
        }
    })
}

/// Where the ratio crosses one, between the two values of the axis around it; logarithmic in the axis, as such
/// axes are swept. If it never does: the end nearest to one.
fn crossing(pairs: &[(f64, f64, f64)]) -> Result<f64, String> {
    let logs: Vec<(f64, f64)> = pairs.iter().map(|&(x, a, b)| (x.max(1e-9).ln(), (a / b).ln())).collect();
    for pair in logs.windows(2) {
        let [(x0, r0), (x1, r1)] = [pair[0], pair[1]];
        if r0 == 0.0 {
            return Ok(x0.exp());
        }
        if r0.signum() != r1.signum() {
            return Ok((x0 + (x1 - x0) * r0 / (r0 - r1)).exp());
        }
    }
    let nearest = logs.iter().min_by(|a, b| a.1.abs().total_cmp(&b.1.abs()));
    nearest.map(|(x, _)| x.exp()).ok_or_else(|| "an empty sweep crosses nothing".to_owned())
}

fn plateau(points: &[(f64, f64)], within: f64) -> f64 {
    let (mut last, start) = points[0];
    for &(x, y) in points {
        if (y / start - 1.0).abs() * 100.0 > within {
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
    let curve = |along: &Along| table.along(&along.at, &along.over, y);
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
        let raw = number(asked, y, table)?;
        let y = asked.column(y);
        let factor = if raw.of_column { per_unit(unit, y) * binding.times.unwrap_or(1.0) } else { 1.0 };
        if !raw.value.is_finite() {
            return Err(format!("{} is no number", raw.value));
        }
        return Ok(match raw.lo {
            Some(lo) => Answer::Span { lo: lo * factor, hi: raw.value * factor },
            None => Answer::Number { value: raw.value * factor, scale: raw.scale },
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
        assert!(matches!(span, Answer::Span { lo, hi } if (lo - 2.0 / 3.0).abs() < 1e-9 && hi == 1.625));
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
