//! What holds for all points of an experiment, and what differs between them though no axis of its grid says so: told below each of its
//! figures, since neither is in their axes and names.

use polars::prelude::*;

use super::spelled;
use crate::frame::{Framed, distinct, words};
use crate::human;
use crate::load::record::Record;
use crate::plan;

/// The column of coroutines per thread, which a plan may say itself.
pub const COROUTINES: &str = "coroutines";

/// Plans whose coroutines are told one by one.
const PLANS: usize = 6;

/// The values of a column that differs between rows, though no axis does; nothing of one that is alike, or not there.
pub fn unasked(rows: &DataFrame, column: &str) -> Option<Vec<String>> {
    let axis = format!("axis_{column}");
    if rows.get_column_names().iter().any(|name| name.as_str() == axis) {
        return None;
    }
    words(rows, column).ok().filter(|values| distinct(values.iter()).len() > 1)
}

/// A value of the column of coroutines in words.
pub fn coroutines(value: &str) -> String {
    value.parse().map_or_else(|_| value.to_owned(), |n| human::count(n, "coroutine"))
}

/// The sentences, each after a space.
pub fn told(record: &Record, rows: &DataFrame) -> Framed<String> {
    Ok(alike(record, rows) + &differs(rows)?)
}

/// What all points have in common, in one sentence.
fn alike(record: &Record, rows: &DataFrame) -> String {
    let one = |column: &str| {
        let values = words(rows, column).unwrap_or_default();
        let first = values.first().filter(|first| !first.is_empty() && values.iter().all(|v| v == *first));
        first.cloned()
    };
    let mut parts: Vec<String> = Vec::new();
    parts.extend(one("workload").map(|name| spelled(&name).to_owned()));
    parts.extend(one("protocol").map(|name| spelled(&name).to_owned()));
    parts.extend(one("plan").map(|name| format!("plan {}", plan::quoted(&plan::short(&name)))));
    for (column, noun) in
        [("nodes", "node"), ("threads", "thread"), (COROUTINES, "coroutine"), ("replicas", "replica")]
    {
        parts.extend(one(column).and_then(|n| n.parse().ok()).map(|n| human::count(n, noun)));
    }
    let an_axis = rows.get_column_names().iter().any(|name| name.as_str() == "axis_clock_skew");
    let skew = record.spec["base"]["clock_skew"].as_str().filter(|skew| *skew != "0s" && !an_axis);
    parts.extend(skew.map(|skew| format!("clocks wrong by up to {skew}")));
    parts.extend(settings(record, rows));
    if parts.is_empty() { String::new() } else { format!(" All points: {}.", parts.join(", ")) }
}

/// What was set of the workload, but what an axis sets. Nothing tells otherwise where records lie, and how much they are asked for.
fn settings(record: &Record, rows: &DataFrame) -> Option<String> {
    let set = record.spec["base"]["set"].as_object()?;
    let an_axis = |key: &str| {
        let axis = format!("axis_set.{key}");
        rows.get_column_names().iter().any(|name| name.as_str() == axis)
    };
    let said = |value: &serde_json::Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let set: Vec<String> = set
        .iter()
        .filter(|(key, _)| !an_axis(key))
        .map(|(key, value)| format!("{key}={}", said(value)))
        .collect();
    (!set.is_empty()).then(|| format!("with {}", set.join(" ")))
}

/// How many coroutines each plan ran with, where nobody asked for different ones: the tuner chooses its own.
fn differs(rows: &DataFrame) -> Framed<String> {
    let Some(values) = unasked(rows, COROUTINES) else { return Ok(String::new()) };
    let plans = words(rows, "plan")?;
    let of = |plan: &String| {
        let mut counts: Vec<u64> = plans
            .iter()
            .zip(&values)
            .filter(|(p, _)| *p == plan)
            .filter_map(|(_, n)| n.parse().ok())
            .collect();
        counts.sort_unstable();
        counts.dedup();
        let counts: Vec<String> = counts.iter().map(u64::to_string).collect();
        format!("{} {}", plan::quoted(&plan::short(plan)), counts.join(" or "))
    };
    let names = distinct(plans.iter().cloned());
    let told = match names.len() > PLANS {
        true => "the column `coroutines` of the CSV has them".to_owned(),
        false => names.iter().map(of).collect::<Vec<_>>().join(", "),
    };
    Ok(format!(" Plans ran with different numbers of coroutines a thread: {told}."))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn rows(coroutines: [u32; 3], axis: bool) -> DataFrame {
        let mut rows = df!(
            "workload" => ["ycsb", "ycsb", "ycsb"], "protocol" => ["occ", "occ", "mvcc"],
            "plan" => ["tuned", "tuned", "one-sided"], "nodes" => [3, 3, 3], "coroutines" => coroutines
        )
        .unwrap();
        if axis {
            rows.with_column(Column::new("axis_coroutines".into(), coroutines)).unwrap();
        }
        rows
    }

    fn record(skew: &str) -> Record {
        let spec = json!({ "base": { "clock_skew": skew } });
        serde_json::from_value(json!({ "kind": "experiment", "provenance": "simulated", "spec": spec }))
            .unwrap()
    }

    #[test]
    fn settings_are_told_but_those_of_an_axis() {
        let spec = json!({ "base": { "set": { "remote": true, "zipf_theta": 0.9, "name": "x" } } });
        let record =
            serde_json::from_value(json!({ "kind": "experiment", "provenance": "simulated", "spec": spec }))
                .unwrap();
        let mut rows = rows([8; 3], false);
        rows.with_column(Column::new("axis_set.zipf_theta".into(), [0.0, 0.5, 0.9])).unwrap();
        let said = told(&record, &rows).unwrap();
        assert!(said.ends_with(", with name=x remote=true."), "{said}");
    }

    #[test]
    fn what_all_points_share_and_what_differs_unasked_is_told() {
        let said = told(&record("50us"), &rows([32, 16, 8], false)).unwrap();
        assert_eq!(
            said,
            " All points: YCSB, 3 nodes, clocks wrong by up to 50us. Plans ran with different numbers of coroutines a thread: \
             tuned 16 or 32, one-sided 8."
        );
        let said = told(&record("0s"), &rows([8, 8, 8], false)).unwrap();
        assert_eq!(said, " All points: YCSB, 3 nodes, 8 coroutines.");
        assert_eq!(told(&record("0s"), &rows([32, 16, 8], true)).unwrap(), " All points: YCSB, 3 nodes.");
    }
}
