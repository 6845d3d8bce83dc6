//! Regret, measured: what the tuner's choice loses against the best plan that there is.
//!
//! Each point of such an experiment is a combination of profile, cluster, load and workload that [`draw`] makes from the
//! experiment's seed. The tuner chooses a plan for it; then every sound plan is run on the simulator: those whose declared
//! demand is the same, so that the model cannot tell them apart, count as one. Running all of them long enough would take
//! minutes, so it is a race (`race.rs`): all run briefly, those near the best again and longer, and the last few so long that one of
//! them can be called the best. Rounds last for as many commits, not for as long a time: what is known of a rate depends on them.
//!
//! The winner of a race owes something to luck, and its rate there is too high. So the rates that count are measured
//! once more, of the winner and the tuner's choice alone and with seeds that neither has seen. Regret compares these: it is
//! right on average for this winner, off by `regret_error` (a standard error) either way, and below zero where the tuner's choice is the
//! better one after all. Where the choice is the winner it is zero. What it leaves out is what a race may lose by
//! dropping the very best among plans that are nearly as good. Coroutines are part of the combination, as its load, and not
//! of the plan.
//!
//! The same is told of a second choice (`verified_regret`): the plans of the tuner's shortlist, a dozen of one protocol or two of each of several, are run for four thousand commits each, then a dozen more that what those got
//! suggests, the choice and the three that were fastest beside it twice more, with other seeds, and the fastest of these is taken. That is a simulation compared with longer ones, not the model's merit. It is what somebody does who takes
//! the fastest that `tune --verify` has run, which are these and the presets.
//!
//! Where a point has several protocols ([`Point::against`]), the tuner chooses among them as `tune --protocol` does, all plans of all of
//! them race, and the row's `protocol`, `best_protocol` and `verified_protocol` are those of the choice, the winner and the second choice.
//!
//! Points may be given, too, as a grid of a file: then the best pure plans are found beside the best of all ([`Point::pure`]): the best
//! whose phases are all one-sided and the best whose phases are all two-sided race among themselves by the same rounds, and are measured with the
//! winner's seeds. `mixing_gain` is what the best of all plans gets over the better of the two, and zero where it is one of them.
//!
//! A race may end without a winner: nothing commits, or it takes too long. Then the row says what was chosen and foretold, and its cells
//! for what the race would have found (`best`, `regret` and the like) are empty.

pub mod draw;
mod pure;
mod race;

pub use pure::best_of_all;

use race::{End, Field, Runner};

use phases::model::GoOn;
use primitives::measure::{PointResult, Row, at_share};

use crate::commands::{Context, tune};
use crate::directory::HOME;
use crate::error::CliError;
use crate::fabrics::Fabric;
use crate::output::{change, percent, table};
use crate::spec::{Point, RunSpec};

/// Measures a combination, or a point that was given.
///
/// # Errors
/// If it cannot be tuned or a run fails; Ctrl-C.
pub fn measure(point: &Point, context: &Context) -> Result<PointResult, CliError> {
    let spec = &point.spec;
    let fabric = Fabric::open(&spec.fabric, spec.seed)?;
    let profile = tune::profile_for(spec, &fabric, None, std::path::Path::new(HOME), context)?;
    let ranked = |go_on: &GoOn<'_>| tune::rankings(spec, &point.against, &fabric, &profile, go_on);
    let found = tune::watched(context, ranked)?;
    let Some(field) = Field::of(&found, point.pure) else {
        return Err(CliError::usage("there is no protocol to choose from"));
    };
    let Runner { protocol, candidate: chosen } = field.chosen;
    let said = &chosen.forecast;
    let attempts = said.committed_per_s + said.aborted_per_s;
    let ratio = |a: f64, b: f64| if b > 0.0 { a / b } else { 0.0 };
    let row = point
        .row()
        .with("fabric", spec.fabric.to_string())
        .with("workload", spec.workload.as_str())
        .with("settings", settings(spec))
        .with("protocol", protocol)
        .with("nodes", spec.nodes)
        .with("threads", spec.threads)
        .with("coroutines", spec.coroutines)
        .with("replicas", spec.replicas)
        .with("cache_bytes", spec.cache_bytes)
        .with("seed", spec.seed)
        .with("protocols", found.len() as u64)
        .with("plans", field.plans.len() as u64)
        .with("tuned", chosen.plan.to_string())
        .with("bottleneck", said.bottleneck.to_string())
        .with("predicted_per_s", said.committed_per_s)
        .with("predicted_aborted_share", ratio(said.aborted_per_s, attempts));
    let name = match point.pure {
        true => format!("point {}, {}", point.index, point.label()),
        false => format!("combination {}", point.index),
    };
    let outcome = match race::run(name.clone(), spec, &field, context)? {
        End::Won(outcome) => outcome,
        End::Open { why, runs, events } => {
            context.talk.warn(format!("{name} has no winner: {why} ({runs} runs, {events} events)"));
            // What was not found stays empty, and is in no summary.
            return Ok(PointResult::of(row.with("runs", runs).with("events", events)));
        }
    };
    let (best, got, verified) = (&outcome.best, &outcome.chosen.rate, &outcome.verified);
    let row = row
        .with("runs", outcome.runs)
        .with("best", outcome.winner.candidate.plan.to_string())
        .with("best_protocol", outcome.winner.protocol)
        .with("got_per_s", got.per_s)
        .with("prediction_error", ratio(said.committed_per_s, got.per_s) - 1.0)
        .with("aborted_share", got.aborted)
        .with("best_predicted_per_s", outcome.winner.candidate.forecast.committed_per_s)
        .with("best_per_s", best.per_s)
        .with("regret", outcome.chosen.regret)
        .with("regret_error", outcome.chosen.regret_error)
        .with("verified", outcome.verified_plan.candidate.plan.to_string())
        .with("verified_protocol", outcome.verified_plan.protocol)
        .with("verified_per_s", verified.rate.per_s)
        .with("verified_regret", verified.regret)
        .with("verified_regret_error", verified.regret_error)
        .with("events", outcome.events);
    Ok(PointResult::of(pure::with(row, outcome.pure.as_ref())))
}

/// The workload's settings as the command line takes them, without those of other workloads of its grid.
fn settings(spec: &RunSpec) -> String {
    let words: Vec<String> = spec
        .set
        .iter()
        .filter(|(key, _)| key.split_once('.').is_none_or(|(of, _)| of == spec.workload))
        .map(|(key, value)| match value.as_str() {
            Some(text) => format!("{key}={text}"),
            None => format!("{key}={value}"),
        })
        .collect();
    words.join(" ")
}

/// Combinations that people look at first.
const WORST: usize = 10;

/// The combinations that lose most, as a table.
pub fn worst(rows: &[Row]) -> String {
    let mut sorted: Vec<(f64, &Row)> =
        rows.iter().filter_map(|row| Some((row.number("regret")?, row))).collect();
    sorted.sort_by(|a, b| b.0.total_cmp(&a.0));
    let cells = |(regret, row): &(f64, &Row)| {
        let text = |column: &str| row.get(column).unwrap_or_default().to_owned();
        let error = row.number("prediction_error").unwrap_or_default();
        let load = ["nodes", "threads", "coroutines", "replicas"].map(text).join("×");
        vec![
            text("point"),
            percent(*regret),
            change(error),
            text("fabric"),
            format!("{} {}", text("workload"), text("protocol")),
            load,
            text("tuned"),
            match row.get("best_protocol").filter(|best| Some(*best) != row.get("protocol")) {
                Some(other) => format!("{other}: {}", text("best")),
                None => text("best"),
            },
        ]
    };
    let head = [
        "point",
        "regret",
        "prediction",
        "fabric",
        "workload",
        "nodes×threads×coroutines×replicas",
        "tuned",
        "best",
    ];
    table(&head, sorted.iter().take(WORST).map(cells))
}

/// What the points of a directory come to: medians and worst of regret and of the error of predictions, as shares.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Summary {
    /// Combinations measured.
    pub combinations: usize,
    /// Combinations whose race had no winner: in nothing of what follows.
    pub open: usize,
    /// Regret: the median, the 95th percentile and the worst.
    pub regret: [f64; 3],
    /// The same of the fastest of the shortlist; none in results of before it was measured.
    pub verified: Option<[f64; 3]>,
    /// Of combinations with several protocols to choose from, those whose choice was of the best plan's protocol, and all; none if
    /// there are none.
    pub same_protocol: Option<(usize, usize)>,
    /// The same of how far predictions are off, whatever the direction.
    pub error: [f64; 3],
    /// The median of predictions' errors with their sign: above zero, the model promises too much.
    pub bias: f64,
}

impl Summary {
    /// Of the rows of `points.csv`; none if there are none.
    pub fn of(rows: &[Row]) -> Option<Summary> {
        let column = |name: &str| -> Vec<f64> { rows.iter().filter_map(|row| row.number(name)).collect() };
        let (regret, error) = (column("regret"), column("prediction_error"));
        if regret.is_empty() || regret.len() != error.len() {
            return None;
        }
        let three = |mut values: Vec<f64>| {
            values.sort_by(f64::total_cmp);
            [0.5, 0.95, 1.0].map(|share| at_share(&values, share).unwrap_or_default())
        };
        let verified = column("verified_regret");
        let several =
            |row: &&Row| row.get("protocols").and_then(|n| n.parse().ok()).is_some_and(|n: u32| n > 1);
        let won = |row: &&Row| row.get("regret").is_some_and(|cell| !cell.is_empty());
        let chosen: Vec<&Row> = rows.iter().filter(several).filter(won).collect();
        let same = chosen.iter().filter(|row| row.get("protocol") == row.get("best_protocol")).count();
        Some(Summary {
            combinations: regret.len(),
            open: rows.len() - regret.len(),
            verified: (verified.len() == regret.len()).then(|| three(verified)),
            same_protocol: (!chosen.is_empty()).then_some((same, chosen.len())),
            regret: three(regret),
            bias: three(error.clone())[0],
            error: three(error.iter().map(|e| e.abs()).collect()),
        })
    }

    /// In two lines.
    pub fn shown(&self) -> String {
        let three = |v: [f64; 3]| {
            let [median, high, worst] = v;
            let (high, worst) = (percent(high), percent(worst));
            format!("median {:.2} %, 95th percentile {high}, worst {worst}", 100.0 * median)
        };
        format!(
            "regret over {} combinations{}: {}\n{}{}error of predictions: {} (bias {:+.1} %)\n",
            self.combinations,
            if self.open > 0 { format!(" ({} more without a winner)", self.open) } else { String::new() },
            three(self.regret),
            self.verified.map_or(String::new(), |v| format!(
                "regret of the fastest that tune --verify runs: {}\n",
                three(v)
            )),
            self.same_protocol.map_or(String::new(), |(same, all)| format!(
                "the choice is of the best plan's protocol in {same} of {all}\n"
            )),
            three(self.error),
            100.0 * self.bias
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_has_medians_and_worst() {
        let row = |regret: f64, error: f64| Row::new().with("regret", regret).with("prediction_error", error);
        assert_eq!(Summary::of(&[]), None);
        let rows = [row(0.0, -0.3), row(0.02, 0.1), row(0.2, 0.05)];
        let summary = Summary::of(&rows).unwrap();
        assert_eq!((summary.combinations, summary.regret, summary.bias), (3, [0.02, 0.2, 0.2], 0.05));
        assert_eq!(summary.error, [0.1, 0.3, 0.3]);
        assert!(summary.shown().contains("regret over 3 combinations: median 2.00 %"), "{}", summary.shown());
        assert_eq!(summary.verified, None);
        let even = [rows[0].clone(), rows[1].clone()];
        assert_eq!(Summary::of(&even).unwrap().regret, [0.0, 0.02, 0.02], "of two the lower, as on the page");
        let both = rows.clone().map(|row| row.with("verified_regret", 0.01));
        let shown = Summary::of(&both).unwrap().shown();
        assert!(shown.contains("that tune --verify runs: median 1.00 %"), "{shown}");
        assert_eq!(summary.same_protocol, None);
        let under = |best: &str| {
            rows[0].clone().with("protocols", 2u32).with("protocol", "occ").with("best_protocol", best)
        };
        let summary = Summary::of(&[under("occ"), under("mvcc"), rows[1].clone(), under("occ")]).unwrap();
        assert_eq!(summary.same_protocol, Some((2, 3)));
        assert!(summary.shown().contains("protocol in 2 of 3\n"), "{}", summary.shown());
        let open = [rows.as_slice(), &[Row::new().with("runs", 7u64)]].concat();
        let shown = Summary::of(&open).unwrap().shown();
        assert!(shown.contains("3 combinations (1 more without a winner): median 2.00 %"), "{shown}");
    }
}
