//! How good the tuner's choices are: regret, and how far predictions are off, over many combinations of profile, cluster
//! and workload.
//!
//! Both are drawn as distributions: the share of combinations in which it was at most so much.

use polars::prelude::*;
use primitives::measure::at_share;

use super::{Drawn, Section, best, names, provenance_of, slug};
use crate::chart::lines::{Axis, Lines, Series};
use crate::chart::scale::Kind;
use crate::chart::{Body, Figure, Panel};
use crate::frame::{Framed, distinct, floats, stack, tagged, words};
use crate::human;
use crate::ink::{self, Ink, Look};
use crate::load::Results;

const COLUMNS: [&str; 14] = [
    "point",
    "fabric",
    "workload",
    "protocol",
    "coroutines",
    "plans",
    "tuned",
    "best",
    "got_per_s",
    "best_per_s",
    "prediction_error",
    "regret",
    "verified",
    "verified_regret",
];

/// One figure per sweep; of points that were given one more, of their best plans.
pub fn draw(results: &[&Results]) -> Framed<Vec<Drawn>> {
    let mut drawn = Vec::new();
    for (results, name) in results.iter().zip(names(results)) {
        drawn.extend(one(results, &name)?);
        drawn.extend(best::draw(results)?);
    }
    Ok(drawn)
}

/// Points of a distribution: how much, and the share of values that are no larger.
pub fn distribution(mut values: Vec<f64>) -> Vec<(f64, f64)> {
    values.sort_by(f64::total_cmp);
    let all = values.len() as f64;
    values.into_iter().enumerate().map(|(below, value)| (value, (below + 1) as f64 / all)).collect()
}

fn at(distribution: &[(f64, f64)], share: f64) -> f64 {
    let values: Vec<f64> = distribution.iter().map(|point| point.0).collect();
    at_share(&values, share).unwrap_or(0.0)
}

/// A curve of points that nothing stands over.
fn curve(name: &str, look: Look, points: Vec<(f64, f64)>) -> Series {
    Series::of(name.to_owned(), look, points.into_iter().map(|(x, y)| (x, y, String::new())).collect())
}

fn one(results: &Results, name: &str) -> Framed<Option<Drawn>> {
    let rows = results.points.clone().lazy().filter(col("regret").is_not_null()).collect()?;
    if rows.height() == 0 {
        return Ok(None);
    }
    let noun = if best::given(results)?.height() > 0 { "point" } else { "combination" };
    let column = |name: &str| floats(&rows, name);
    let (regret, error) = (column("regret")?, column("prediction_error")?);
    let (verified, known) = (column("verified_regret")?, column("regret_error")?);
    let workloads = words(&rows, "workload")?;
    let of = |values: &[Option<f64>], keep: &dyn Fn(usize) -> bool| {
        let kept = values.iter().enumerate().filter(|(row, _)| keep(*row));
        distribution(kept.filter_map(|(_, value)| *value).collect())
    };
    // Predictions err in either direction; a regret below zero is none, measured with an error of its own.
    let error: Vec<Option<f64>> = error.into_iter().map(|off| off.map(f64::abs)).collect();
    let kinds = distinct(workloads.iter().cloned());
    let looks = ink::for_names(kinds.iter().map(String::as_str));
    let panel = |title: &str, x_title: &str, values: &[Option<f64>]| {
        let mut series = vec![curve("all", Ink::Text.into(), of(values, &|_| true))];
        for (kind, look) in kinds.iter().zip(&looks) {
            series.push(curve(kind, *look, of(values, &|row| workloads[row] == *kind)));
        }
        let axis = |title: &str| Axis { title: title.to_owned(), kind: Kind::Linear, format: human::percent };
        Panel {
            title: title.to_owned(),
            chip: Some(results.record.provenance),
            body: Body::Lines(Lines::of(axis(x_title), axis(&format!("share of {noun}s")), series, 300.0)),
        }
    };
    let (lost, off) = (of(&regret, &|_| true), of(&error, &|_| true));
    let checked = of(&verified, &|_| true);
    let mut regrets = panel("Regret", "throughput lost against the best plan", &regret);
    let checks = match (checked.is_empty(), &mut regrets.body) {
        (false, Body::Lines(lines)) => {
            let (median, worst) = (at(&checked, 0.5), at(&checked, 1.0));
            let name = "all, the fastest that tune --verify runs";
            lines.series.push(curve(name, Ink::Muted.into(), checked));
            let [median, worst] = [median, worst].map(human::percent);
            format!(
                " The fastest of the plans that tune --verify runs, the best of them several times, loses {median} in half of them and {worst} in the worst."
            )
        }
        _ => String::new(),
    };
    let open = match results.points.height() - rows.height() {
        0 => String::new(),
        open => format!(" {} more ended without a winner.", human::count(open as u64, "race")),
    };
    let worst = regret.iter().zip(&known).max_by(|a, b| a.0.unwrap_or(0.0).total_cmp(&b.0.unwrap_or(0.0)));
    let known = match worst.and_then(|(_, error)| *error) {
        Some(error) => format!(" (standard error {})", human::percent(error)),
        None => String::new(),
    };
    let caption = format!(
        "Over {}, each compared with every plan the model tells apart: the tuner's choice loses {} of the best plan's rate in half of them, {} in 19 of 20 at most, and {} in the worst{known}; its prediction is off by {} in half of them.{checks}{open}",
        human::count(lost.len() as u64, noun),
        human::percent(at(&lost, 0.5)),
        human::percent(at(&lost, 0.95)),
        human::percent(at(&lost, 1.0)),
        human::percent(at(&off, 0.5)),
    );
    Ok(Some(Drawn {
        id: format!("regret-{}", slug(&results.label)),
        section: Section::Tuning,
        title: format!("What following the model costs, {name}"),
        caption,
        provenance: provenance_of([results]),
        frame: stack(vec![tagged(results, rows.lazy(), &COLUMNS)])?,
        figure: Figure {
            columns: 2,
            panels: vec![regrets, panel("Predictions", "error of the predicted throughput", &error)],
        },
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_distribution_says_how_many_are_no_larger() {
        let all = distribution(vec![0.3, 0.0, 0.1, 0.2]);
        assert_eq!(all, [(0.0, 0.25), (0.1, 0.5), (0.2, 0.75), (0.3, 1.0)]);
        assert_eq!((at(&all, 0.5), at(&all, 0.95), at(&all, 1.0)), (0.1, 0.3, 0.3));
        assert_eq!(at(&[], 0.5), 0.0);
    }
}
