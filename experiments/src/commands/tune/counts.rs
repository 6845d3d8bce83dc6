//! How many coroutines: the plan that got the most, run with each count that the search tries.
//!
//! The model's rates go on rising with coroutines where a card is full already, by a few per cent too little or too much; it takes of
//! counts whose rates it holds for equal the quickest, so that such an error decides between counts that differ by half in latency. Runs
//! are asked the same way: of those within the search's tolerance of the most, the quickest.

use super::Rival;
use crate::output::{human_rate, table};
use phases::model::Search;
use primitives::measure::{Got, ResultDir, Row, TableName};
use primitives::units::Nanos;
use serde_json::{Value, json};

/// A plan with one count of coroutines.
pub struct Count {
    /// The plan, with what the model expects of it.
    pub rival: Rival,
    /// What it got, of all its runs together.
    pub got: Got,
    /// Its mean latency in nanoseconds, of all its runs together.
    pub mean_ns: f64,
}

/// A plan with each count of coroutines.
pub struct Counted {
    /// Counts ascending, without those that committed nothing.
    pub ran: Vec<Count>,
    best: usize,
}

impl Counted {
    /// What the rows of `dir` say of `plans`, which differ in their counts alone; nothing if none ran.
    pub fn of(dir: &ResultDir, plans: Vec<Rival>) -> Option<Counted> {
        let rows = dir.rows(TableName::Points).ok()?;
        let number = |row: &Row, column: &str| row.get(column)?.parse::<f64>().ok();
        let of = |rival: Rival| {
            let count = f64::from(rival.candidate.plan.coroutines);
            let mine = rows.iter().filter(|row| number(row, "coroutines") == Some(count));
            let run = |row: &Row| {
                let got = Got::once(number(row, "got_per_s")?, number(row, "got_ci_relative"));
                Some((got, number(row, "got_mean_ns")?))
            };
            let (got, means): (Vec<Got>, Vec<f64>) = mine.filter_map(run).unzip();
            let mean_ns = means.iter().sum::<f64>() / means.len() as f64;
            Some(Count { rival, got: Got::mean(&got)?, mean_ns })
        };
        Counted::among(plans.into_iter().filter_map(of).collect())
    }

    fn among(ran: Vec<Count>) -> Option<Counted> {
        let most = ran.iter().map(|count| count.got.per_s).fold(0.0, f64::max);
        let enough = most * (1.0 - Search::default().tolerance);
        let as_good = ran.iter().enumerate().filter(|(_, count)| count.got.per_s >= enough);
        let best = as_good.min_by(|a, b| a.1.mean_ns.total_cmp(&b.1.mean_ns))?.0;
        Some(Counted { ran, best })
    }

    /// The quickest of those whose rates are as good as the most.
    pub fn best(&self) -> &Count {
        &self.ran[self.best]
    }

    /// Which count serves the plan best, and beside what.
    pub fn told(&self) -> String {
        let best = self.best();
        let most = self.ran.iter().max_by(|a, b| a.got.per_s.total_cmp(&b.got.per_s)).unwrap_or(best);
        let said = |count: &Count| {
            let (coroutines, rate) = (count.rival.candidate.plan.coroutines, human_rate(count.got.per_s));
            format!("{coroutines} to a thread {rate} at a mean latency of {}", Nanos(count.mean_ns as u64))
        };
        let (best_count, most_count) =
            (best.rival.candidate.plan.coroutines, most.rival.candidate.plan.coroutines);
        match best_count == most_count {
            true => {
                format!("Of {} counts of coroutines this got the most, with {}", self.ran.len(), said(best))
            }
            false => format!(
                "Of {} counts of coroutines this is the quickest of those within 1 % of the most, with {}; the most had {}",
                self.ran.len(),
                said(best),
                said(most)
            ),
        }
    }

    /// A line for each count, what was foretold beside what came.
    pub fn shown(&self) -> String {
        let rows = self.ran.iter().enumerate().map(|(place, count)| {
            let forecast = &count.rival.candidate.forecast;
            [
                count.rival.candidate.plan.coroutines.to_string(),
                human_rate(forecast.committed_per_s),
                Nanos(forecast.latency_mean_ns as u64).to_string(),
                human_rate(count.got.per_s),
                Nanos(count.mean_ns as u64).to_string(),
                if place == self.best { "the quickest of those within 1 % of the most" } else { "" }
                    .to_owned(),
            ]
        });
        table(&["coroutines", "predicted", "mean latency", "got", "mean latency", ""], rows)
    }

    /// As programs read it.
    pub fn json(&self) -> Value {
        let counts = self.ran.iter().map(|count| {
            let forecast = &count.rival.candidate.forecast;
            json!({
                "coroutines": count.rival.candidate.plan.coroutines,
                "predicted_per_s": forecast.committed_per_s, "predicted_mean_ns": forecast.latency_mean_ns,
                "got_per_s": count.got.per_s, "got_ci_relative": count.got.ci_relative,
                "got_mean_ns": count.mean_ns,
            })
        });
        counts.collect()
    }
}
