//! A grid: every combination of its axes' values, in the order stated.

use primitives::measure::Row;
use serde::Serialize;
use serde_json::Value;

use super::limits;
use super::run::RunSpec;

/// One axis and its values, in the order written.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Axis {
    /// A key of [`RunSpec::apply`].
    pub name: String,
    /// At least one, none twice.
    pub values: Vec<Value>,
}

/// One point of a grid.
#[derive(Clone, Debug, PartialEq)]
pub struct Point {
    /// Its number, from 0.
    pub index: u64,
    /// Its value on each axis, in the order of the axes, as written to the result file.
    pub at: Vec<(String, String)>,
    /// What to run.
    pub spec: RunSpec,
    /// Tune it, and compare the choice with every plan there is under these protocols; of none it is run.
    pub against: Vec<String>,
    /// Of what is compared: find the best pure plans too, as of all points that a file gives. Combinations that are drawn have none.
    pub pure: bool,
}

impl Point {
    /// `plan=drtm-h nodes=3`, or `the only point`.
    pub fn label(&self) -> String {
        if self.at.is_empty() {
            return "the only point".to_owned();
        }
        self.at.iter().map(|(axis, value)| format!("{axis}={value}")).collect::<Vec<_>>().join(" ")
    }

    /// Its row: its axes, ready for the columns that running it fills in.
    pub fn row(&self) -> Row {
        self.at.iter().fold(Row::new(), |row, (axis, value)| row.with(format!("axis_{axis}"), value.as_str()))
    }
}

/// Which of an axis's values a point has, `lengths` being how many each axis has.
pub fn turn(index: u64, lengths: &[usize], axis: usize) -> usize {
    let stride: u64 = lengths[axis + 1..].iter().map(|&length| length as u64).product();
    ((index / stride) % lengths[axis] as u64) as usize
}

/// All points, the last axis changing fastest, as in nested loops read from top to bottom; not checked yet.
///
/// # Errors
/// In words: too many points, or a value that does not fit (the axis and the value are named).
pub fn expand(base: &RunSpec, axes: &[Axis]) -> Result<Vec<Point>, String> {
    let count = axes.iter().try_fold(1u64, |n, axis| n.checked_mul(axis.values.len() as u64));
    let count = match count {
        Some(n) if n <= limits::POINTS => n,
        _ => return Err(format!("the grid has more than {} points", limits::POINTS)),
    };
    let lengths: Vec<usize> = axes.iter().map(|axis| axis.values.len()).collect();
    (0..count)
        .map(|index| {
            let mut spec = base.clone();
            let mut at = Vec::with_capacity(axes.len());
            for (number, axis) in axes.iter().enumerate() {
                let value = &axis.values[turn(index, &lengths, number)];
                spec.apply(&axis.name, value).map_err(|why| format!("{} {value}: {why}", axis.name))?;
                at.push((axis.name.clone(), shown(&spec, &axis.name, value)));
            }
            Ok(Point { index, at, spec, against: Vec::new(), pure: false })
        })
        .collect()
}

fn shown(spec: &RunSpec, axis: &str, value: &Value) -> String {
    match (axis, value) {
        ("plan", _) => spec.plan.to_string(),
        (_, Value::String(text)) => text.clone(),
        _ => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn axis(name: &str, values: Value) -> Axis {
        Axis { name: name.into(), values: values.as_array().unwrap().clone() }
    }

    #[test]
    fn the_last_axis_changes_fastest() {
        let axes = [axis("plan", json!(["one-sided", "two-sided"])), axis("coroutines", json!([4, 1, 2]))];
        let points = expand(&RunSpec::default(), &axes).unwrap();
        let labels: Vec<String> = points.iter().map(Point::label).collect();
        assert_eq!(labels[0], "plan=one-sided coroutines=4");
        assert_eq!(labels[1], "plan=one-sided coroutines=1");
        assert_eq!(labels[5], "plan=two-sided coroutines=2");
        assert_eq!(points.len(), 6);
        assert!(points.iter().enumerate().all(|(i, p)| p.index == i as u64));
        assert_eq!(
            (points[5].spec.coroutines, points[5].spec.plan.to_string()),
            (Some(2), "two-sided".into())
        );
    }

    #[test]
    fn no_axes_are_one_point_and_absurd_grids_are_refused() {
        assert_eq!(expand(&RunSpec::default(), &[]).unwrap().len(), 1);
        let long: Vec<Value> = (1..=1001).map(|n| json!(n)).collect();
        let axes = [axis("seed", json!(long)), axis("coroutines", json!(long))];
        assert!(expand(&RunSpec::default(), &axes).unwrap_err().contains("more than 1000000 points"));
    }
}
