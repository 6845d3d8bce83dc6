//! Measured points of experiments, and how far each is known.

use std::borrow::Cow;
use std::collections::BTreeMap;

use super::binding::{At, Binding, EXPERIMENT, Handler, Mirror, PairOver, Parameter, Pick, both};

/// Measured points.
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

/// What the two sides of a pair measured.
pub(super) struct Mirrored {
    /// By the binding's column.
    pub(super) rates: [Measured; 2],
    /// By the other.
    pub(super) others: [Measured; 2],
}

impl Table {
    /// What a binding reads, of the tables of its experiments; with several of them each point says which one it is of. `None` if one of
    /// them is not there.
    pub fn of<'a>(binding: &Binding, table: impl Fn(&str) -> Option<&'a Table>) -> Option<Cow<'a, Table>> {
        if binding.beside.is_empty() {
            return table(binding.experiment.as_deref().unwrap_or_default()).map(Cow::Borrowed);
        }
        let mut all = Table::default();
        for name in binding.experiments() {
            let named = |(axes, columns): &(BTreeMap<String, String>, BTreeMap<String, f64>)| {
                let mut axes = axes.clone();
                axes.insert(EXPERIMENT.to_owned(), name.to_owned());
                (axes, columns.clone())
            };
            all.points.extend(table(name)?.points.iter().map(named));
        }
        Some(Cow::Owned(all))
    }

    /// Pairs of points that differ in what tells the sides apart alone.
    pub(super) fn pairs(&self, mirror: &Mirror, y: &str) -> Result<Vec<Mirrored>, String> {
        let [of, to] = [&mirror.of, &mirror.to].map(|side| both(side, &mirror.at));
        let sides = |axis: &String| mirror.of.contains_key(axis) || mirror.to.contains_key(axis);
        let rest = |axes: &BTreeMap<String, String>| -> BTreeMap<String, String> {
            axes.iter().filter(|(axis, _)| !sides(axis)).map(|(a, v)| (a.clone(), v.clone())).collect()
        };
        let of_point = |axes: &BTreeMap<String, String>, y: &str| -> Result<Measured, String> {
            let whole = axes.iter().map(|(axis, v)| (axis.clone(), Pick::One(v.clone().into()))).collect();
            self.one(&whole, y)
        };
        let mut pairs = Vec::new();
        for (axes, rate) in self.at(&of, y) {
            let partners: Vec<_> = self.at(&to, y).filter(|(other, _)| rest(other) == rest(axes)).collect();
            let [(partner, other)] = partners[..] else {
                return Err(format!(
                    "{} points stand against one at {axes:?}, one is needed",
                    partners.len()
                ));
            };
            let others = [of_point(axes, &mirror.y)?, of_point(partner, &mirror.y)?];
            pairs.push(Mirrored { rates: [rate, other], others });
        }
        let other_side = self.at(&to, y).count();
        if other_side != pairs.len() {
            return Err(format!("{} points stand against {other_side}", pairs.len()));
        }
        if pairs.is_empty() { Err(format!("no point with {y} at {}", shown(&of))) } else { Ok(pairs) }
    }

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

#[cfg(test)]
mod tests {
    use super::super::{Answer, evaluate};
    use super::*;
    use crate::claims::Split;
    use crate::yaml::from_str;

    /// One point: axes, rate and median latency.
    fn with(table: &mut Table, axes: &[(&str, &str)], rate: f64, latency: f64) {
        let axes = axes.iter().map(|(axis, value)| ((*axis).to_owned(), (*value).to_owned())).collect();
        let columns = [("rate_per_s", rate), ("latency_p50_ns", latency), ("rate_ci_relative", 0.02)];
        table.points.push((axes, columns.map(|(name, value)| (name.to_owned(), value)).into()));
    }

    fn answer(binding: &Binding, table: &Table) -> Result<Answer, String> {
        evaluate(binding, "rate_per_s", "x", Split::HoldOut, table)
    }

    fn binding(text: &str) -> Binding {
        from_str("binding", text).unwrap()
    }

    #[test]
    fn a_binding_reads_two_experiments() {
        let (mut card, mut sockets) = (Table::default(), Table::default());
        for (n, rate) in [("1", 10.0), ("4", 40.0)] {
            with(&mut card, &[("verb", "read"), ("n", n)], rate, 1.0);
            with(&mut sockets, &[("n", n)], rate / 4.0, 1.0);
        }
        let both = binding(
            "{experiment: card, beside: [sockets], number: {ratio: {of: {experiment: card}, to: {experiment: sockets}, at: {n: 4}}}}",
        );
        let tables = BTreeMap::from([("card", card), ("sockets", sockets)]);
        let table = Table::of(&both, |name| tables.get(name)).unwrap();
        assert!(
            matches!(answer(&both, &table), Ok(Answer::Number { value, .. }) if (value - 4.0).abs() < 1e-12)
        );
        assert!(
            Table::of(&both, |name| tables.get(name).filter(|_| name == "card")).is_none(),
            "both or none"
        );
        assert_eq!(both.picks_of("sockets").len(), 1);
        assert_eq!(both.experiment_of(&both.picks_of("sockets")[0]), None, "the name is no axis of a grid");
    }

    /// Rates and medians of two plans under two protocols.
    fn plans(rates: [[f64; 2]; 2], medians: [[f64; 2]; 2]) -> Table {
        let mut table = Table::default();
        for (p, protocol) in ["occ", "mvcc"].into_iter().enumerate() {
            for (s, plan) in ["one", "two"].into_iter().enumerate() {
                with(&mut table, &[("protocol", protocol), ("plan", plan)], rates[p][s], medians[p][s]);
            }
        }
        table
    }

    #[test]
    fn latencies_mirror_rates_or_do_not() {
        let mirror = binding(
            "{experiment: e, holds: [{mirrored: {y: latency_p50_ns, of: {plan: one}, to: {plan: two}}}]}",
        );
        for (rates, medians, held) in [
            ([[2.0, 1.0], [1.0, 2.0]], [[5.0, 9.0], [9.0, 5.0]], true),
            ([[2.0, 1.0], [1.0, 2.0]], [[5.0, 9.0], [5.0, 9.0]], false),
            ([[1.0, 2.0], [1.0, 2.0]], [[5.0, 9.0], [9.0, 5.0]], false),
            // Rates that do not show to differ say nothing, and alike medians contradict nothing.
            ([[1.01, 1.0], [1.0, 2.0]], [[9.0, 5.0], [9.0, 5.0]], true),
            ([[2.0, 1.0], [1.0, 2.0]], [[5.0, 5.0], [9.0, 5.0]], true),
            // Where nothing differs nothing is mirrored.
            ([[1.0, 1.0], [2.0, 2.0]], [[5.0, 9.0], [9.0, 5.0]], false),
        ] {
            let got = answer(&mirror, &plans(rates, medians)).unwrap();
            assert!(matches!(&got, Answer::Holds { held: h, .. } if *h == held), "{rates:?}: {got:?}");
        }
        let whole = || plans([[2.0, 1.0], [1.0, 2.0]], [[5.0, 9.0], [9.0, 5.0]]);
        let (mut alone, mut against) = (whole(), whole());
        alone.points.pop();
        assert!(answer(&mirror, &alone).unwrap_err().contains("one is needed"));
        against.points.remove(0);
        assert!(answer(&mirror, &against).unwrap_err().contains("1 points stand against 2"));
    }
}
