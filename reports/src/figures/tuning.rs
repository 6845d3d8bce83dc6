//! Tuner candidates ranked, and how well the model foretold those that were run.
//!
//! *Regret* is the throughput lost by following the model: the best rate any verified plan reached, less the rate
//! of the plan chosen, over the former ([`Verified`]).

use polars::prelude::*;

use super::{Drawn, Section, by_coroutines, foretold_by, names, provenance_of, slug};
use crate::chart::rows::{Cell, Column, Row, Rows};
use crate::chart::scale::Kind;
use crate::chart::scatter::{Mark, Scatter};
use crate::chart::{Body, Figure, Format, Panel};
use crate::doubt::{Doubts, doubts};
use crate::frame::{Framed, floats, stack, tagged, words};
use crate::human;
use crate::ink::{self, Ink};
use crate::load::Results;
use crate::load::record::Provenance;
use crate::plan;
use primitives::measure::{Got, Verified};

/// Candidates drawn; all of them are in the CSV.
const SHOWN: usize = 16;
const COLUMNS: [&str; 12] = [
    "point",
    "protocol",
    "plan",
    "origin",
    "description",
    "steps",
    "predicted_per_s",
    "predicted_mean_ns",
    "bottleneck",
    "got_per_s",
    "got_ci_relative",
    "got_mean_ns",
];

/// One candidate.
pub struct Candidate {
    /// Its name: `tuned`, a preset's, or what it does.
    pub plan: String,
    /// Its protocol, where the search chose among several.
    pub protocol: Option<String>,
    /// What it does: the nearest preset and the differences from it.
    pub description: String,
    /// The primitive of each phase, as plans are written inline.
    pub steps: String,
    /// `candidate`, or the preset's name.
    pub origin: String,
    /// What the model says limits it.
    pub bottleneck: String,
    /// Predicted rate.
    pub predicted: f64,
    /// Predicted mean latency.
    pub predicted_mean: Option<f64>,
    /// Rate when run, of all its runs together.
    pub got: Option<Got>,
    /// Mean latency when run.
    pub got_mean: Option<f64>,
    /// What there is to doubt about its run.
    pub doubts: Doubts,
}

impl Candidate {
    /// The preset's name where there is one, else the plan in few words.
    pub fn name(&self) -> String {
        let steps = match (self.preset(), self.description.as_str()) {
            (Some(preset), _) => preset.to_owned(),
            (None, "") => plan::short(&self.plan),
            (None, description) => description.to_owned(),
        };
        match &self.protocol {
            Some(protocol) => format!("{protocol}: {steps}"),
            None => steps,
        }
    }

    fn preset(&self) -> Option<&str> {
        (!["", "candidate"].contains(&self.origin.as_str())).then_some(&self.origin)
    }

    fn got_per_s(&self) -> Option<f64> {
        self.got.map(|got| got.per_s)
    }

    fn ink(&self) -> Ink {
        ink::for_name(self.preset().unwrap_or(&self.steps))
    }
}

/// The tuner's name for its choice in result files. It need not have the best prediction: of plans that are as good as
/// equal the tuner takes the quicker.
pub const CHOICE: &str = "tuned";
/// The name of the plan file with the fastest of the plans that it ran.
pub const VERIFIED: &str = "verified";

/// The candidates of one tuning: the choice, then best prediction first.
pub fn candidates(results: &Results) -> Framed<Vec<Candidate>> {
    let rows = ranked(results)?;
    let columns = (words(&rows, "plan")?, words(&rows, "origin")?, words(&rows, "bottleneck")?);
    let (descriptions, steps) = (words(&rows, "description")?, words(&rows, "steps")?);
    let numbers = [
        floats(&rows, "predicted_per_s")?,
        floats(&rows, "predicted_mean_ns")?,
        floats(&rows, "got_per_s")?,
        floats(&rows, "got_mean_ns")?,
        floats(&rows, "got_ci_relative")?,
    ];
    // A plan that was run in turns with others has a row for each turn.
    let turns = |i: usize| -> Vec<usize> {
        (0..rows.height()).filter(|&j| steps[j] == steps[i] && columns.0[j] == columns.0[i]).collect()
    };
    let got = |turns: &[usize]| -> Option<Got> {
        let run = |&i: &usize| Some(Got::once(numbers[2][i]?, numbers[4][i]));
        Got::mean(&turns.iter().filter_map(run).collect::<Vec<_>>())
    };
    let got_mean = |turns: &[usize]| -> Option<f64> {
        let runs: Vec<f64> = turns.iter().filter_map(|&i| numbers[3][i]).collect();
        (!runs.is_empty()).then(|| runs.iter().sum::<f64>() / runs.len() as f64)
    };
    let doubts = doubts(&rows);
    let protocols = words(&rows, "protocol")?;
    let several = protocols.iter().any(|protocol| *protocol != protocols[0]);
    let candidate = |i: usize| Candidate {
        plan: columns.0[i].clone(),
        protocol: several.then(|| protocols[i].clone()),
        description: descriptions[i].clone(),
        steps: if steps[i].is_empty() { columns.0[i].clone() } else { steps[i].clone() },
        origin: columns.1[i].clone(),
        bottleneck: columns.2[i].clone(),
        predicted: numbers[0][i].unwrap_or(0.0),
        predicted_mean: numbers[1][i],
        got: got(&turns(i)),
        got_mean: got_mean(&turns(i)),
        doubts: turns(i).iter().fold(Doubts::default(), |all, &turn| all.or(doubts[turn])),
    };
    let first = (0..rows.height()).filter(|&i| turns(i).first() == Some(&i));
    let mut all: Vec<Candidate> = first.map(candidate).collect();
    if let Some(at) = all.iter().position(|c| c.plan == CHOICE) {
        all[..=at].rotate_right(1);
    }
    Ok(all)
}

/// The plans that were ranked; what one of them got by coroutines ([`super::by_coroutines`]) is not among them.
fn ranked(results: &Results) -> Framed<DataFrame> {
    let order = SortMultipleOptions::default().with_order_descending(true).with_maintain_order(true);
    results
        .points
        .clone()
        .lazy()
        .filter(col("predicted_per_s").is_not_null().and(col("coroutines").is_null()))
        .sort(["predicted_per_s"], order)
        .collect()
}

/// The choice beside the others that were run; nothing if it was not.
pub fn verified(candidates: &[Candidate]) -> Option<Verified> {
    let (chosen, others) = candidates.split_first()?;
    Some(Verified::new(chosen.got?, others.iter().filter_map(|c| Some((c.name(), c.got?)))))
}

/// How the choice did: which plan was the fastest when run, and what following the model costs.
pub fn told(verified: &Verified, candidates: &[Candidate]) -> String {
    let ran = human::count(candidates.iter().filter(|c| c.got.is_some()).count() as u64, "plan");
    let best = verified.faster().map_or("the choice".to_owned(), |(name, _)| plan::quoted(name));
    let rate = human::rate(verified.best().per_s);
    // Who got the most in these runs need not be the one that is the fastest.
    let was = if verified.is_decided() { "was the fastest" } else { "got the most" };
    format!("of {ran} that were run {best} {was}, with {rate}. Regret: {}", verified.told(human::percent))
}

/// Whose forecasts they are, unless the numbers beside them are simulated by the same profile, and what speaks against that profile; to
/// be put behind a sentence about them.
pub fn doubt(results: &Results) -> String {
    let (record, priced) = (&results.record, &results.record.summary["priced_by"]);
    let Some(hash) = priced["hash"].as_str() else { return String::new() };
    let doubt = priced["doubt"].as_str().map_or(String::new(), |doubt| format!(", {doubt}"));
    let same = record.profile.as_ref().is_some_and(|ran| ran.hash == hash);
    if same && record.provenance == Provenance::Simulated && doubt.is_empty() {
        return String::new();
    }
    let hash: String = hash.chars().take(10).collect();
    format!(". Forecasts are by profile {} ({hash}){doubt}", priced["name"].as_str().unwrap_or("unnamed"))
}

/// Figures of each tuning: the ranking and, where rivals were run, prediction against outcome, and the fastest of them by coroutines.
pub fn draw(results: &[&Results]) -> Framed<Vec<Drawn>> {
    let mut drawn = Vec::new();
    for (results, name) in results.iter().zip(names(results)) {
        let candidates = candidates(results)?;
        if candidates.is_empty() {
            continue;
        }
        let frame = stack(vec![tagged(results, ranked(results)?.lazy(), &COLUMNS)])?;
        drawn.push(ranking(results, &name, &candidates, frame.clone()));
        drawn.extend(foretold(results, &name, &candidates, frame)?);
        drawn.extend(by_coroutines::draw(results, &name)?);
    }
    Ok(drawn)
}

fn ranking(results: &Results, name: &str, candidates: &[Candidate], frame: DataFrame) -> Drawn {
    let best_got = candidates.iter().filter_map(Candidate::got_per_s).fold(0.0, f64::max);
    let best_said = candidates.iter().map(|c| c.predicted).fold(0.0, f64::max);
    // The best predictions, and any plan further down that was run or has a name.
    let shown = candidates.iter().enumerate();
    let shown = shown.filter(|(i, c)| *i < SHOWN || ((c.got.is_some() || c.preset().is_some()) && *i < 400));
    let shown: Vec<(usize, &Candidate)> = shown.take(2 * SHOWN).collect();
    // Where plans are written out, a column of squares per phase says more than their names.
    let phases: Vec<&str> = plan::PHASES
        .into_iter()
        .filter(|phase| shown.iter().any(|(_, c)| plan::steps(&c.steps).iter().any(|s| s.0 == *phase)))
        .collect();
    let row = |(rank, c): &(usize, &Candidate)| {
        let ink = c.ink();
        let rate = match c.got_per_s() {
            Some(got) => {
                let text = format!("{} → {}", human::short(c.predicted), human::short(got));
                Cell::Against(c.predicted, got, text, ink)
            }
            None => Cell::Said(c.predicted, format!("{}, not run", human::short(c.predicted)), Ink::Other),
        };
        let behind = match c.got_per_s() {
            Some(got) => Cell::Text(human::signed_percent(got / best_got - 1.0), Ink::Text),
            None => {
                Cell::Text(format!("({})", human::signed_percent(c.predicted / best_said - 1.0)), Ink::Muted)
            }
        };
        let steps = plan::steps(&c.steps);
        let square = |phase: &&str| match steps.iter().find(|s| s.0 == *phase) {
            Some((_, ink)) => Cell::Square(*ink),
            None => Cell::Text("–".to_owned(), Ink::Muted),
        };
        // The squares tell the sides of a plan that has no other name.
        let name = match (c.preset(), phases.is_empty() || !c.description.is_empty()) {
            (None, false) => match plan::coroutines(&c.plan) {
                Some(n) => human::count(n, "coroutine"),
                None => "candidate".to_owned(),
            },
            _ => c.name(),
        };
        let name = if c.plan == CHOICE { format!("chosen: {name}") } else { name };
        let name = c.doubts.beside(name);
        let mut cells: Vec<Cell> = phases.iter().map(square).collect();
        cells.extend([
            rate,
            behind,
            c.predicted_mean.map_or(Cell::Missing, |p| Cell::Text(human::nanos(p), Ink::Text)),
            if c.bottleneck.is_empty() { Cell::Missing } else { Cell::Text(c.bottleneck.clone(), Ink::Text) },
        ]);
        Row { name: format!("{}. {name}", rank + 1), ink, cells }
    };
    let rows: Vec<Row> = shown.iter().map(row).collect();
    let column = |title: &str, weight: f64, kind| Column { title: title.to_owned(), weight, kind };
    let mut columns: Vec<Column> = phases
        .iter()
        // A square is small: the name above it is what needs room.
        .map(|phase| column(phase, 0.2 + 0.05 * phase.len() as f64, Kind::Linear))
        .collect();
    columns.extend([
        column("per s: ○ predicted ● got", 2.3, Kind::Log10),
        column("behind best", 1.05, Kind::Linear),
        column("○ mean latency", 1.45, Kind::Linear),
        column("○ limited by", 1.35, Kind::Linear),
    ]);
    let key = match phases.is_empty() {
        true => Vec::new(),
        false => [(Ink::OneSided, "one-sided"), (Ink::TwoSided, "two-sided"), (Ink::Hybrid, "hybrid")]
            .map(|(ink, name)| (ink, name.to_owned()))
            .into(),
    };
    // Where none ran, all that is drawn is forecasts.
    let (chip, provenance) = match best_got > 0.0 {
        true => (results.record.provenance, provenance_of([results])),
        false => (Provenance::Forecast, foretold_by(results)),
    };
    let outcome = match verified(candidates) {
        Some(verified) => told(&verified, candidates),
        None => format!(
            "{}, limited by {}; this search did not run the rivals (tune --verify does)",
            human::rate(candidates[0].predicted),
            if candidates[0].bottleneck.is_empty() { "nothing it names" } else { &candidates[0].bottleneck }
        ),
    };
    let caption = format!(
        "Of {}, the tuner chose {}: of those foretold within 1\u{a0}% of the most it takes the quickest, and of equally quick ones the \
         plainest; {outcome}{}.",
        considered(results, candidates),
        plan::quoted(&candidates[0].name()),
        doubt(results),
    );
    Drawn {
        id: format!("tuner-{}", slug(name)),
        section: Section::Tuning,
        title: format!("Candidate plans, {name}"),
        caption,
        provenance,
        frame,
        figure: Figure {
            columns: 1,
            panels: vec![Panel {
                title: format!(
                    "{} of {} candidates: the choice, then by predicted rate",
                    rows.len(),
                    candidates.len()
                ),
                chip: Some(chip),
                body: Body::Rows(Rows { columns, rows, key }),
            }],
        },
    }
}

/// Among what the tuner chose: all that it made a forecast of, of which the candidates kept are a few; an old file may not say.
pub fn considered(results: &Results, candidates: &[Candidate]) -> String {
    match results.record.summary["evaluated"].as_u64() {
        Some(made) => {
            format!("{}, each of a plan with a count of coroutines", human::count(made, "forecast"))
        }
        None => human::count(candidates.len() as u64, "candidate"),
    }
}

fn foretold(
    results: &Results,
    name: &str,
    candidates: &[Candidate],
    frame: DataFrame,
) -> Framed<Option<Drawn>> {
    let marks = |said: fn(&Candidate) -> Option<f64>, got: fn(&Candidate) -> Option<f64>| -> Vec<Mark> {
        let mark = |(rank, c): (usize, &Candidate)| {
            // The ranking above spells the plans out; here their rank is enough.
            let name = match (c.preset(), c.plan == CHOICE) {
                (_, true) => "chosen".to_owned(),
                (Some(preset), _) => preset.to_owned(),
                (None, _) => format!("no. {}", rank + 1),
            };
            let (x, y) = (said(c)?, got(c)?);
            (x > 0.0 && y > 0.0).then(|| Mark { ink: c.ink(), name: c.doubts.beside(name), x, y })
        };
        candidates.iter().enumerate().filter_map(mark).collect()
    };
    let latencies = marks(|c| c.predicted_mean, |c| c.got_mean);
    let marks = marks(|c| Some(c.predicted), Candidate::got_per_s);
    if marks.len() < 3 {
        return Ok(None);
    }
    let mut off = format!("rates of {}, {}", human::count(marks.len() as u64, "plan"), errors(&marks));
    if !latencies.is_empty() {
        off += &format!("; their mean latencies, {}", errors(&latencies));
    }
    let caption = format!(
        "Got against predicted: {off}. On the thick line the model is right; between the thin ones it errs by less than a tenth{}.",
        doubt(results)
    );
    let panel = |title: &str, format, marks| Panel {
        title: title.to_owned(),
        chip: Some(results.record.provenance),
        body: Body::Scatter(Scatter {
            x_title: "predicted".to_owned(),
            y_title: "got".to_owned(),
            format,
            marks,
        }),
    };
    let mut panels = vec![panel("Transactions per second", human::short as Format, marks)];
    if !latencies.is_empty() {
        panels.push(panel("Mean latency", human::nanos, latencies));
    }
    let frame = frame.lazy().filter(col("got_per_s").is_not_null()).collect()?;
    Ok(Some(Drawn {
        id: format!("tuner-verified-{}", slug(name)),
        section: Section::Tuning,
        title: format!("Predicted against got, {name}"),
        caption,
        provenance: provenance_of([results]),
        frame,
        figure: Figure { columns: 2, panels },
    }))
}

/// By how much what came is off what was foretold.
fn errors(marks: &[Mark]) -> String {
    let mut errors: Vec<f64> = marks.iter().map(|m| (m.y / m.x - 1.0).abs()).collect();
    errors.sort_by(f64::total_cmp);
    let worst = marks.iter().max_by(|a, b| (a.y / a.x).ln().abs().total_cmp(&(b.y / b.x).ln().abs()));
    format!(
        "median error {}, the worst {} for {}",
        human::percent(errors[errors.len() / 2]),
        worst.map_or(String::new(), |m| human::signed_percent(m.y / m.x - 1.0)),
        worst.map_or("none", |m| m.name.as_str()),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_that_ran_in_turns_is_one_candidate() {
        use primitives::measure::{Kind, PointResult, ResultDir, Row, RunRecord};
        let temp = tempfile::tempdir().expect("a directory");
        let record = RunRecord::new(Kind::Tune, "loopback", serde_json::json!({}), 1, 4);
        let mut dir = ResultDir::create(temp.path(), record, &[]).expect("creates");
        let turns = [("tuned", 1, 90.0), ("farm", 1, 80.0), ("tuned", 2, 110.0), ("farm", 2, 80.0)];
        for (point, (plan, round, got)) in turns.into_iter().enumerate() {
            let row = Row::new().with("plan", plan).with("steps", plan).with("predicted_per_s", 100.0);
            let row = row.with("round", round as u64).with("got_per_s", got).with("got_mean_ns", got);
            let row = row.with("got_ci_relative", 0.01);
            let row = row.with("protocol", if plan == "farm" { "nowait" } else { "occ" });
            dir.keep(point as u64, &PointResult::of(row)).expect("keeps");
        }
        dir.finish(false, serde_json::Value::Null).expect("finishes");
        let all = candidates(&crate::load::read(temp.path()).expect("reads")).expect("frames");
        assert_eq!(all.iter().map(|c| c.plan.as_str()).collect::<Vec<_>>(), ["tuned", "farm"]);
        assert_eq!(all[1].name(), "nowait: farm", "of several protocols the name says which");
        let got = all[0].got.expect("it ran");
        assert_eq!((got.per_s, got.runs, all[0].got_mean), (100.0, 2, Some(100.0)));
        assert!(verified(&all).is_some_and(|v| v.told(human::percent).contains("2 runs each, in turns")));
    }

    #[test]
    fn a_regret_says_how_well_it_is_known_and_the_best_how_far_behind_the_next_is() {
        let candidate = |plan: &str, got, got_ci| Candidate {
            plan: plan.to_owned(),
            protocol: None,
            description: String::new(),
            steps: String::new(),
            origin: String::new(),
            bottleneck: String::new(),
            predicted: 1.0,
            predicted_mean: None,
            got: Some(Got::once(got, got_ci)),
            got_mean: None,
            doubts: Doubts::default(),
        };
        let told = |chosen, ci| {
            let all = [candidate("tuned", chosen, ci), candidate("farm", 100.0, Some(0.004))];
            told(&verified(&all).expect("both ran"), &all).replace('\u{a0}', " ")
        };
        let lost = told(98.0, Some(0.003));
        assert!(lost.starts_with(
            "of 2 plans that were run farm was the fastest, with 100 /s. Regret: 2 % ± 0.5 % ("
        ));
        let unknown = told(98.0, None);
        assert!(unknown.ends_with("Regret: 2 %; too little was counted to say how well that is known"));
        let open = told(101.0, Some(0.03));
        for open in [unknown, open] {
            assert!(open.contains("got the most") && !open.contains("fastest"), "{open}");
        }
        let best = told(125.0, Some(0.003));
        assert!(best.contains(
            "the choice was the fastest, with 125 /s. Regret: 0 %: the next, farm, got 20 % ± 0.4 % less"
        ));
    }
}
