//! From measured points to an answer: pure functions of a binding and a table.

use std::collections::BTreeMap;

use serde::Serialize;

use super::Split;
use super::binding::{Along, At, Binding, Handler, Number, PairOver, Parameter, Predicate, Side, both};
use super::verdict::{CONSIDERABLE, MUCH, NO_CHANGE, RIPPLE, exceeds, excused, tolerance};

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

impl Raw {
    /// What orders it: the factor it stands for; of a loss its inverse, which is larger where more is lost.
    fn size(&self) -> Measured {
        let factor = self.scale.factor(self.value);
        let value = if self.scale == Scale::Loss { 1.0 / factor } else { factor };
        Measured { value, within: self.within }
    }

    /// Another number of its kind, that is known.
    fn like(&self, value: f64) -> Raw {
        Raw { value, within: 0.0, ..*self }
    }

    /// No change, of the kind of change that it is.
    fn none(&self) -> Result<Raw, String> {
        match self.scale {
            Scale::Plain => Err("a ratio or a change is needed".to_owned()),
            Scale::Factor => Ok(self.like(1.0)),
            Scale::Gain | Scale::Loss => Ok(self.like(0.0)),
        }
    }
}

fn plain(value: f64) -> Raw {
    Raw { value, scale: Scale::Plain, of_column: false, within: 0.0, lo: None }
}

fn factor(measured: Measured) -> Raw {
    Raw { scale: Scale::Factor, within: measured.within, ..plain(measured.value) }
}

fn number(number: &Number, y: &str, split: Split, table: &Table) -> Result<Raw, String> {
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

/// What became of a relation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Relation {
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

    /// Whether one is not smaller than the other by more than `open`, or than is known of them.
    fn not_smaller(a: &Raw, b: &Raw, open: f64) -> Relation {
        let (a, b) = (a.size(), b.size());
        Relation::by(!exceeds(b.value, a.value, excused(a.over(b).within).max(open)))
    }

    /// Of all pairs of neighbours: that of the worst.
    fn of_each<T>(all: &[T], pair: impl Fn(&T, &T) -> Relation) -> Relation {
        all.windows(2).map(|two| pair(&two[0], &two[1])).max().unwrap_or(Relation::Holds)
    }
}

fn predicate(asked: &Predicate, y: &str, split: Split, table: &Table) -> Result<(Relation, String), String> {
    let one = |n: &Number| match number(n, y, split, table)? {
        raw if raw.value.is_nan() => Err(format!("{} is no number", raw.value)),
        raw => Ok(raw),
    };
    let several = |numbers: &[Number]| numbers.iter().map(one).collect::<Result<Vec<Raw>, String>>();
    let list = |values: &[f64], sign: &str| values.iter().map(|v| short(*v)).collect::<Vec<_>>().join(sign);
    let all = |raws: &[Raw], sign: &str| list(&raws.iter().map(|raw| raw.value).collect::<Vec<_>>(), sign);
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
        Ok(points.into_iter().map(|(_, m)| Raw { within: m.within, ..plain(m.value) }).collect())
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
    let at_least = |n: &Number, factor: f64| -> Result<(Relation, String), String> {
        let (raw, _) = change(n)?;
        let bound = Raw { scale: Scale::Factor, ..plain(factor) };
        Ok((Relation::larger(&raw, &bound), list(&[raw.size().value, factor], " > ")))
    };
    let (relation, words) = match asked {
        Predicate::Descending(numbers) => {
            let raws = several(numbers)?;
            (Relation::of_each(&raws, Relation::larger), all(&raws, " > "))
        }
        Predicate::NotAscending(numbers) => {
            let raws = several(numbers)?;
            (Relation::of_each(&raws, |a, b| Relation::not_smaller(a, b, 0.0)), all(&raws, " >= "))
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
            (Relation::not_smaller(&raw, &none, 0.0), all(&[raw, none], " >= "))
        }
        Predicate::NoGain(n) => {
            let (raw, none) = change(n)?;
            (Relation::not_smaller(&none, &raw, NO_CHANGE.ln_1p()), all(&[raw, none], " <= "))
        }
        Predicate::Gains(n) => at_least(n, 1.0 + NO_CHANGE)?,
        Predicate::Considerable(n) => at_least(n, 1.0 + CONSIDERABLE)?,
        Predicate::Much(n) => at_least(n, MUCH)?,
        Predicate::Near { number: n, to } => {
            let raw = one(n)?;
            let error = raw.size().value / raw.like(*to).size().value - 1.0;
            (Relation::by(error.abs() <= tolerance(split)), list(&[raw.value, *to], " ~ "))
        }
        Predicate::Alike { numbers, within } => {
            let raws = several(numbers)?;
            let within = within.map_or(tolerance(split), |percent| percent / 100.0);
            (alike(&raws, within), all(&raws, " ~ "))
        }
        Predicate::AtLeast { number: n, bound } => {
            let raw = one(n)?;
            let bound = raw.like(*bound);
            (Relation::not_smaller(&raw, &bound, 0.0), all(&[raw, bound], " >= "))
        }
        Predicate::AtMost { number: n, bound } => {
            let raw = one(n)?;
            let bound = raw.like(*bound);
            (Relation::not_smaller(&bound, &raw, 0.0), all(&[raw, bound], " <= "))
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
    };
    Ok((relation, words))
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
        evaluate(&binding, "rate", "Mreq/s", Split::HoldOut, &table()).unwrap()
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
        let why = evaluate(&binding, "rate", "B", Split::HoldOut, &table()).unwrap_err();
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

    #[test]
    fn a_pick_that_is_not_one_point_is_an_error() {
        let binding: Binding = from_str("binding", "experiment: e\nnumber: {value: {verb: read}}").unwrap();
        assert!(evaluate(&binding, "rate", "x", Split::HoldOut, &table()).unwrap_err().contains("4 points"));
        let binding: Binding = from_str("binding", "experiment: e\nnumber: {value: {verb: send}}").unwrap();
        assert!(evaluate(&binding, "rate", "x", Split::HoldOut, &table()).unwrap_err().contains("no point"));
    }

    #[test]
    fn units_follow_the_claim() {
        assert_eq!(per_unit("Mreq/s", "rate_per_s"), 1e-6);
        assert_eq!(per_unit("Ktxn/s", "committed_per_s"), 1e-3);
        assert_eq!(per_unit("us", "latency_p50_ns"), 1e-3);
        assert_eq!(per_unit("txn/s", "committed_per_s"), 1.0);
    }
}
