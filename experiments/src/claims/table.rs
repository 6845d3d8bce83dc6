//! Measured points of one experiment, and how far each is known.

use std::collections::BTreeMap;

use super::binding::{At, Handler, PairOver, Parameter, both};

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
pub(super) struct Measured {
    pub(super) value: f64,
    /// As [`Answer::Number::within`].
    pub(super) within: f64,
}

impl Measured {
    fn of(columns: &BTreeMap<String, f64>, y: &str) -> Option<Measured> {
        // A rate without an interval is not known at all.
        let width = || columns.get("rate_ci_relative").copied().unwrap_or(1.0);
        let within = if RATES.contains(&y) { width() } else { 0.0 };
        Some(Measured { value: *columns.get(y)?, within })
    }

    pub(super) fn larger(self, other: Measured) -> Measured {
        if other.value > self.value { other } else { self }
    }

    pub(super) fn smaller(self, other: Measured) -> Measured {
        if other.value < self.value { other } else { self }
    }

    /// Divided by another.
    pub(super) fn over(self, other: Measured) -> Measured {
        Measured { value: self.value / other.value, within: self.within.hypot(other.within) }
    }
}

impl Table {
    pub(super) fn at<'a>(
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

    pub(super) fn one(&self, at: &At, y: &str) -> Result<Measured, String> {
        let found: Vec<Measured> = self.at(at, y).map(|(_, value)| value).collect();
        match found[..] {
            [one] => Ok(one),
            [] => Err(format!("no point with {y} at {}", shown(at))),
            _ => Err(format!("{} points at {}, one is needed", found.len(), shown(at))),
        }
    }

    /// A sweep: numbers of the axis, ascending, with their values.
    pub(super) fn along(&self, at: &At, over: &str, y: &str) -> Result<Vec<(f64, Measured)>, String> {
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
    pub(super) fn ratios(&self, pair: &PairOver, y: &str) -> Result<Vec<(f64, Measured)>, String> {
        let first = self.along(&both(&pair.of, &pair.at), &pair.over, y)?;
        let second = self.along(&both(&pair.to, &pair.at), &pair.over, y)?;
        let meets = |&(x, a): &(f64, Measured)| {
            second.iter().find(|(other, _)| *other == x).map(|&(_, b)| (x, a.over(b)))
        };
        let ratios: Vec<_> = first.iter().filter_map(meets).collect();
        if ratios.is_empty() { Err(format!("the sweeps over {} do not meet", pair.over)) } else { Ok(ratios) }
    }
}

pub(super) fn shown(at: &At) -> String {
    serde_json::to_string(at).unwrap_or_default()
}
