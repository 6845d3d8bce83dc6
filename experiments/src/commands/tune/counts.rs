//! How many coroutines: the plan that got the most, run with each count that the search tries.
//!
//! The model's rates go on rising with coroutines where a card is full already, by a few per cent too little or too much; it takes of
//! counts whose rates it holds for equal the quickest, so that such an error decides between counts that differ by half in latency. Runs
//! are asked the same way: of those that are as good as the most, the quickest.

use super::Rival;
use crate::output::{human_rate, percent, table};
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
    /// The one that got the most, and the quickest of those as good as that.
    most: usize,
    best: usize,
}

impl Counted {
    /// What the rows of `dir` say of `plans`, which differ in their counts alone; nothing if none ran.
    pub fn of(dir: &ResultDir, plans: Vec<Rival>) -> Option<Counted> {
        let rows = dir.rows(TableName::Points).ok()?;
        let of = |rival: Rival| {
            let count = f64::from(rival.candidate.plan.coroutines);
            let mine = rows.iter().filter(|row| row.number("coroutines") == Some(count));
            let run = |row: &Row| {
                let got = Got::once(row.number("got_per_s")?, row.number("got_ci_relative"));
                Some((got, row.number("got_mean_ns")?))
            };
            let (got, means): (Vec<Got>, Vec<f64>) = mine.filter_map(run).unzip();
            let mean_ns = means.iter().sum::<f64>() / means.len() as f64;
            Some(Count { rival, got: Got::mean(&got)?, mean_ns })
        };
        Counted::among(plans.into_iter().filter_map(of).collect())
    }

    /// As good as the most is what falls short of it by no more than the search's tolerance, or than what is known of both: else a
    /// short run would choose by luck, and many coroutines by what they have under way when it ends.
    fn among(ran: Vec<Count>) -> Option<Counted> {
        let by_rate = |a: &usize, b: &usize| ran[*a].got.per_s.total_cmp(&ran[*b].got.per_s);
        let most = (0..ran.len()).max_by(by_rate)?;
        let as_good = |place: &usize| {
            let short = ran[*place].got.short_of(ran[most].got);
            // Of which nothing is known but its rate is as good as what the other one's interval reaches.
            let known = ran[*place].got.ci_relative.or(ran[most].got.ci_relative);
            let doubted = short.ci.is_none() && known.is_some_and(|ci| short.share <= ci);
            short.share <= Search::default().tolerance || short.in_doubt() || doubted
        };
        let by_time = |a: &usize, b: &usize| ran[*a].mean_ns.total_cmp(&ran[*b].mean_ns);
        let best = (0..ran.len()).filter(as_good).min_by(by_time)?;
        Some(Counted { ran, most, best })
    }

    /// The quickest of those whose rates are as good as the most.
    pub fn best(&self) -> &Count {
        &self.ran[self.best]
    }

    /// Which count serves the plan best, and beside what.
    pub fn told(&self) -> String {
        let said = |place: usize| {
            let count = &self.ran[place];
            let (coroutines, rate) = (count.rival.candidate.plan.coroutines, human_rate(count.got.per_s));
            let ci = count.got.ci_relative.map_or_else(String::new, |ci| format!(" ± {}", percent(ci)));
            format!(
                "{coroutines} to a thread {rate}{ci} at a mean latency of {}",
                Nanos(count.mean_ns as u64)
            )
        };
        let (counts, best) = (self.ran.len(), said(self.best));
        match self.best == self.most {
            true => format!("Of {counts} counts of coroutines this got the most, with {best}"),
            false => format!(
                "Of {counts} counts of coroutines this is the quickest of those as good as the most ({}), with {best}; the most had {}",
                as_good(),
                said(self.most)
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
                count.got.ci_relative.map_or_else(|| "?".to_owned(), |ci| format!("± {}", percent(ci))),
                Nanos(count.mean_ns as u64).to_string(),
                if place == self.best { "the quickest of those as good as the most" } else { "" }.to_owned(),
            ]
        });
        let table =
            table(&["coroutines", "predicted", "mean latency", "got", "95 %", "mean latency", ""], rows);
        format!("{table}(as good: {})\n", as_good())
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

/// What is as good as the most.
fn as_good() -> String {
    format!("within {:.0} % of it, or not told apart from it", 100.0 * Search::default().tolerance)
}

#[cfg(test)]
mod tests {
    use super::super::{search, search::by_coroutines};
    use super::*;
    use crate::fabrics::Fabric;
    use crate::spec::RunSpec;
    use phases::model::Objective;
    use primitives::profile::Profile;
    use serde_json::json;

    #[test]
    fn of_counts_that_are_not_told_apart_the_quickest_is_taken() {
        let mut spec = RunSpec { coroutines: Some(4), nodes: 3, threads: 1, ..RunSpec::default() };
        spec.apply("fabric", &json!("sim:cx4-edr")).unwrap();
        let fabric = Fabric::open(&spec.fabric, spec.seed).unwrap();
        let profile = Profile::shipped("cx4-edr").unwrap();
        let tuned = search(&spec, &fabric, &profile, Objective::Throughput, &|| true).unwrap();
        let plans = || by_coroutines(&tuned.rivals[0], &[2, 4, 8], &spec, &fabric, &profile).unwrap();
        let best_of = |rates: [f64; 3], cis: [Option<f64>; 3]| {
            let count = |((rival, per_s), ci): ((Rival, f64), Option<f64>)| {
                let mean_ns = 1000.0 * f64::from(rival.candidate.plan.coroutines);
                Count { rival, got: Got::once(per_s, ci), mean_ns }
            };
            let counted =
                Counted::among(plans().into_iter().zip(rates).zip(cis).map(count).collect()).unwrap();
            assert!(
                counted.shown().contains("the quickest of those as good as the most"),
                "{}",
                counted.shown()
            );
            (counted.best().rival.candidate.plan.coroutines, counted.told().contains("this got the most"))
        };
        let best = |rates, ci| best_of(rates, [ci; 3]);
        let known = Some(0.001);
        assert_eq!(best([90.0, 99.5, 100.0], known), (4, false), "within 1 %");
        assert_eq!(best([90.0, 98.0, 100.0], known), (8, true), "told apart");
        assert_eq!(best([90.0, 98.0, 100.0], Some(0.02)), (4, false), "not told apart");
        assert_eq!(best([90.0, 98.0, 100.0], Some(0.2)), (2, false), "by chance");
        assert_eq!(best([90.0, 98.0, 100.0], None), (8, true), "how well they are known is not known");
        // What is known of one of the two has to do.
        assert_eq!(
            best_of([96.0, 80.0, 100.0], [Some(0.065), None, None]),
            (2, false),
            "within what is known"
        );
        assert_eq!(best_of([92.0, 80.0, 100.0], [Some(0.065), None, None]), (8, true), "beyond it");
        assert!(Counted::among(Vec::new()).is_none());
    }
}
