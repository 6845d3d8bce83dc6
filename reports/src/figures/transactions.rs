//! Plans side by side: throughput and latency, prediction, verbs per transaction, phases, aborts.
//!
//! Runs are compared only within a [`Cohort`]: the same workload and protocol on the same fabric with as many
//! nodes, threads and replicas, asked for the same load ([`super::asked`]). Runs of one plan in a cohort that differ in their
//! seed alone count by their median; other ones of the same name are rows of their own.

use polars::prelude::*;
use std::collections::BTreeMap;

use super::asked::{Asked, asked};
use super::held::COROUTINES;
use super::primitives::sentence;
use super::studies::latency;
use super::{Drawn, Section, provenance_of, spelled, tuning};
use crate::chart::rows::{Cell, Column, Row, Rows};
use crate::chart::scale::Kind;
use crate::chart::{Body, Figure, Panel};
use crate::doubt::{self, Doubts};
use crate::frame::{Framed, distinct, floats, stack, tagged, words};
use crate::human;
use crate::ink::{self, Ink};
use crate::load::Results;
use crate::load::record::Provenance;

const KEYS: [&str; 9] =
    ["fabric", "provenance", "workload", "protocol", "nodes", "threads", "replicas", "setting", "share"];
const VALUES: [&str; 14] = [
    COROUTINES,
    "committed_per_s",
    "rate_ci_relative",
    "aborted_per_s",
    "rolled_back_per_s",
    "latency_mean_ns",
    "latency_p50_ns",
    "latency_p99_ns",
    "latency_p999_ns",
    "verbs_per_committed",
    "round_trips_per_committed",
    "doorbells_per_committed",
    "predicted_per_s",
    "predicted_mean_ns",
];

/// What runs must share to stand beside each other.
#[derive(Clone, Debug, PartialEq)]
pub struct Setting {
    /// Measured or simulated.
    pub provenance: Provenance,
    /// Fabric.
    pub fabric: String,
    /// Workload, as spelled in the literature, and whose share of it this is, if it is not the whole.
    pub workload: String,
    /// Protocol, likewise.
    pub protocol: String,
    /// Nodes, threads and replicas in words.
    pub shape: String,
    /// What else tells it from other settings of its workload on its fabric.
    pub asked: String,
}

impl Setting {
    /// From the cells of a table: workload, protocol, nodes, threads and replicas; and from what else was asked for.
    pub fn new(
        provenance: Provenance,
        fabric: &str,
        [workload, protocol, shape @ ..]: [&str; 5],
        asked: &str,
        share: &str,
    ) -> Setting {
        let of = if share.is_empty() { String::new() } else { format!("{share}'s share of ") };
        let count = |text: &str, noun: &str| text.parse::<u64>().ok().map(|n| human::count(n, noun));
        let shape = shape.into_iter().zip(["node", "thread", "replica"]);
        Setting {
            provenance,
            fabric: or(fabric, "fabric not recorded"),
            workload: format!("{of}{}", spelled(workload)),
            protocol: spelled(protocol).to_owned(),
            shape: shape.filter_map(|(text, noun)| count(text, noun)).collect::<Vec<_>>().join(", "),
            asked: asked.to_owned(),
        }
    }

    /// What a panel about it is called.
    pub fn title(&self) -> String {
        let parts = [&self.workload, &self.protocol, &self.fabric, &self.shape, &self.asked];
        parts.into_iter().filter(|p| !p.is_empty()).cloned().collect::<Vec<_>>().join(" · ")
    }

    /// What a sentence calls it among `all`: its fabric, and what tells it from others on the same.
    pub fn place(&self, all: &[&Setting]) -> String {
        let near = || all.iter().filter(|other| other.fabric == self.fabric);
        let parts: [fn(&Setting) -> &str; 4] = [|s| &s.workload, |s| &s.protocol, |s| &s.shape, |s| &s.asked];
        let told = parts.iter().filter(|part| near().any(|other| part(other) != part(self)));
        let told: Vec<&str> = told.map(|part| part(self)).filter(|text| !text.is_empty()).collect();
        match told.is_empty() {
            true => self.fabric.clone(),
            false => format!("{} ({})", self.fabric, told.join(", ")),
        }
    }
}

/// Runs that may stand beside each other.
pub struct Cohort {
    /// What they share.
    pub setting: Setting,
    /// Plans, fastest first; one in several variants is as many.
    pub plans: Vec<PlanRow>,
    /// One row per plan, in the same order.
    pub frame: DataFrame,
}

impl Cohort {
    /// What a panel about it is called: its setting, and the coroutines that all of its plans ran with.
    fn title(&self) -> String {
        let coroutines = match distinct(self.plans.iter().map(|row| row.value(COROUTINES))).as_slice() {
            [Some(one)] => format!(" · {}", human::count(*one as u64, "coroutine")),
            _ => String::new(),
        };
        self.setting.title() + &coroutines
    }
}

/// What sentences call each of `cohorts`.
fn places(cohorts: &[Cohort]) -> impl Iterator<Item = (&Cohort, String)> {
    let all: Vec<&Setting> = cohorts.iter().map(|c| &c.setting).collect();
    cohorts.iter().map(move |cohort| (cohort, cohort.setting.place(&all)))
}

/// One plan's medians.
#[derive(Default)]
pub struct PlanRow {
    /// The plan.
    pub plan: String,
    /// What tells it from others of its name in its setting.
    pub variant: String,
    /// Runs behind it.
    pub runs: f64,
    /// What there is to doubt about one of them.
    pub doubts: Doubts,
    /// How many coroutines it ran with, where others of its setting ran with other numbers.
    coroutines: String,
    ink: Option<Ink>,
    values: BTreeMap<&'static str, f64>,
}

impl PlanRow {
    /// A value by column name.
    pub fn value(&self, column: &str) -> Option<f64> {
        self.values.get(column).copied()
    }

    /// Committed transactions per second.
    pub fn rate(&self) -> f64 {
        self.value("committed_per_s").unwrap_or(0.0)
    }

    /// Aborted attempts as a share of all attempts.
    pub fn abort_share(&self) -> Option<f64> {
        let aborted = self.value("aborted_per_s")?;
        let all = aborted + self.rate() + self.value("rolled_back_per_s").unwrap_or(0.0);
        (all > 0.0).then_some(aborted / all)
    }

    /// Transactions that the application rolled back, as a share of those that ended.
    pub fn rollback_share(&self) -> Option<f64> {
        let rolled_back = self.value("rolled_back_per_s")?;
        let ended = rolled_back + self.rate();
        (ended > 0.0).then_some(rolled_back / ended)
    }

    /// Half the width of the interval of its rate over that of another, as a share of the two's ratio; nothing if one of them is not
    /// known.
    pub fn width_over(&self, other: &PlanRow) -> Option<f64> {
        Some(self.value("rate_ci_relative")?.hypot(other.value("rate_ci_relative")?))
    }

    /// Whether the two rates may as well be the same, by what is known of them.
    pub fn is_like(&self, other: &PlanRow) -> bool {
        let ratio = self.rate() / other.rate();
        self.width_over(other).is_some_and(|width| (ratio - 1.0).abs() <= ratio * width)
    }

    /// Whether it is what the tuner chose: `tuned`, or that with the preset it is in brackets; or what its runs chose.
    pub fn is_choice(&self) -> bool {
        self.plan.split(' ').next() == Some(tuning::CHOICE) || self.plan == tuning::VERIFIED
    }

    /// The plan in few words, for sentences and labels.
    pub fn name(&self) -> String {
        named(&self.plan, &[&self.variant])
    }

    fn label(&self) -> String {
        let repeats = if self.runs > 1.0 { format!("median of {:.0}", self.runs) } else { String::new() };
        self.doubts.beside(named(&self.plan, &[&self.variant, &self.coroutines, &repeats]))
    }
}

/// A plan in few words, with what else there is to tell of it.
pub fn named(plan: &str, told: &[&str]) -> String {
    let told: Vec<&str> = told.iter().copied().filter(|told| !told.is_empty()).collect();
    match told.is_empty() {
        true => crate::plan::short(plan),
        false => format!("{} ({})", crate::plan::short(plan), told.join("; ")),
    }
}

/// The cohorts among `results`: what was measured on a network first, then what was simulated, then loopback.
pub fn cohorts(results: &[&Results]) -> Framed<Vec<Cohort>> {
    let mut columns = vec!["workload", "protocol", "plan", "nodes", "threads", "replicas"];
    columns.extend(VALUES);
    columns.extend(["busy", "converged"]);
    let asked = asked(results)?;
    let frames: Vec<LazyFrame> = results
        .iter()
        .zip(&asked)
        .map(|(r, asked)| {
            let told = [("setting", &asked.setting), ("variant", &asked.variant), ("share", &asked.share)];
            let told = told.map(|(name, text)| lit(text.clone()).alias(name));
            tagged(r, r.points.clone().lazy(), &columns).with_columns(told)
        })
        .collect();
    let all = stack(frames)?;
    if all.height() == 0 {
        return Ok(Vec::new());
    }
    let mut keys: Vec<Expr> = KEYS.iter().map(|k| col(*k)).collect();
    keys.extend([col("plan"), col("variant")]);
    let mut medians = doubt::medians(&VALUES);
    medians.push(len().cast(DataType::UInt64).alias("runs"));
    let order = SortMultipleOptions::default()
        .with_order_descending(true)
        .with_maintain_order(true)
        .with_nulls_last(true);
    let plans = all.lazy().group_by_stable(keys).agg(medians).sort(["committed_per_s"], order).collect()?;
    let keys = KEYS.iter().map(|k| words(&plans, k)).collect::<Framed<Vec<_>>>()?;
    let key = |row: usize| keys.iter().map(|k| k[row].clone()).collect::<Vec<String>>();
    let mut cohorts = Vec::new();
    for wanted in distinct((0..plans.height()).map(key)) {
        let mask: BooleanChunked = (0..plans.height()).map(|row| key(row) == wanted).collect();
        cohorts.push(cohort(&wanted, plans.filter(&mask)?, results, &asked)?);
    }
    cohorts.sort_by_key(|c| match (c.setting.provenance, c.setting.fabric.as_str()) {
        (Provenance::Measured, "loopback") => 2,
        (Provenance::Measured, _) => 0,
        (Provenance::Simulated | Provenance::Forecast, _) => 1,
    });
    Ok(cohorts)
}

fn cohort(key: &[String], frame: DataFrame, results: &[&Results], asked: &[Asked]) -> Framed<Cohort> {
    let (plans, variants) = (words(&frame, "plan")?, words(&frame, "variant")?);
    let runs = floats(&frame, "runs")?;
    let ran = |(run, asked): &(&&Results, &Asked), plan: &String, variant: &String| {
        run.record.fabric == key[0]
            && asked.share == key[8]
            && asked.variant == *variant
            && words(&run.points, "plan").is_ok_and(|plans| plans.contains(plan))
    };
    let runs_of = || results.iter().zip(asked);
    let mut rows: Vec<PlanRow> = plans
        .into_iter()
        .zip(variants)
        .zip(runs)
        .zip(doubt::doubts(&frame))
        .map(|(((plan, variant), runs), doubts)| PlanRow {
            doubts,
            ink: runs_of().filter(|run| ran(run, &plan, &variant)).find_map(|(run, _)| run.record.ink()),
            plan: or(&plan, "unnamed plan"),
            variant,
            runs: runs.unwrap_or(1.0),
            ..PlanRow::default()
        })
        .collect();
    for column in VALUES {
        for (row, value) in rows.iter_mut().zip(floats(&frame, column)?) {
            row.values.extend(value.map(|v| (column, v)));
        }
    }
    // A variant may tell them already.
    let differ = distinct(rows.iter().map(|row| row.value(COROUTINES))).len() > 1;
    for row in rows.iter_mut().filter(|row| differ && !row.variant.contains(COROUTINES)) {
        let count = row.value(COROUTINES).map(|n| human::count(n as u64, "coroutine"));
        row.coroutines = count.unwrap_or_default();
    }
    let provenance = if key[1] == "simulated" { Provenance::Simulated } else { Provenance::Measured };
    let cells: [&str; 5] = std::array::from_fn(|i| key[2 + i].as_str());
    Ok(Cohort { setting: Setting::new(provenance, &key[0], cells, &key[7], &key[8]), plans: rows, frame })
}

fn or(text: &str, other: &str) -> String {
    if text.is_empty() { other.to_owned() } else { text.to_owned() }
}

/// All figures about whole transactions.
pub fn draw(results: &[&Results]) -> Framed<Vec<Drawn>> {
    let cohorts = cohorts(results)?;
    if cohorts.is_empty() {
        return Ok(Vec::new());
    }
    let mut drawn = vec![side_by_side(results, &cohorts)?];
    drawn.extend(super::breakdown::phases(results)?);
    drawn.extend(per_transaction(results, &cohorts)?);
    drawn.extend(predicted(results, &cohorts)?);
    drawn.extend(super::breakdown::aborts(results)?);
    Ok(drawn)
}

fn side_by_side(results: &[&Results], cohorts: &[Cohort]) -> Framed<Drawn> {
    let mut columns = vec![
        ("committed transactions per second", 3.0, Kind::Linear),
        ("latency: ● median ○ 99th percentile", 2.6, Kind::Log10),
        ("aborted attempts", 1.1, Kind::Linear),
    ];
    // Most workloads never roll back; a column of zeros would only ask what it is about.
    let rolls_back =
        cohorts.iter().flat_map(|c| &c.plans).any(|p| p.rollback_share().is_some_and(|s| s > 0.0));
    if rolls_back {
        columns.push(("rolled back", 1.0, Kind::Linear));
    }
    let cells = |row: &PlanRow, ink: Ink| {
        let mut cells = vec![
            row.value("committed_per_s").map_or(Cell::Missing, |r| Cell::Bar(r, human::rate(r), ink)),
            latency(row.value("latency_p50_ns"), row.value("latency_p99_ns"), ink),
            row.abort_share().map_or(Cell::Missing, |s| Cell::Bar(s, human::percent(s), Ink::Other)),
        ];
        if rolls_back {
            let share = row.rollback_share();
            cells.push(share.map_or(Cell::Missing, |s| Cell::Bar(s, human::percent(s), Ink::Other)));
        }
        cells
    };
    let clauses: Vec<String> = places(cohorts)
        .filter_map(|(c, place)| {
            let (first, last) = (c.plans.first()?, c.plans.last()?);
            (c.plans.len() > 1 && last.rate() > 0.0).then(|| {
                let (first_name, last_name) = (first.name(), last.name());
                match first.is_like(last) {
                    true => format!("on {place} {first_name} and {last_name} are not told apart"),
                    false => format!(
                        "on {place} {first_name} commits {} as many transactions as {last_name}",
                        human::times(first.rate() / last.rate())
                    ),
                }
            })
        })
        .collect();
    Ok(Drawn {
        id: "plans".to_owned(),
        section: Section::Transactions,
        title: "Plans side by side".to_owned(),
        caption: sentence(&clauses, "Only one plan was run on each fabric, so there is nothing to compare."),
        provenance: provenance_of(results.iter().copied()),
        frame: frames(cohorts)?,
        figure: table(cohorts, &columns, cells),
    })
}

fn per_transaction(results: &[&Results], cohorts: &[Cohort]) -> Framed<Option<Drawn>> {
    const MEASURES: [(&str, &str); 3] = [
        ("verbs_per_committed", "verbs"),
        ("round_trips_per_committed", "round trips"),
        ("doorbells_per_committed", "doorbells"),
    ];
    let any = cohorts.iter().flat_map(|c| &c.plans).any(|p| MEASURES.iter().any(|m| p.value(m.0).is_some()));
    if !any {
        return Ok(None);
    }
    let cells = |row: &PlanRow, ink: Ink| {
        MEASURES
            .iter()
            .map(|m| row.value(m.0).map_or(Cell::Missing, |v| Cell::Bar(v, human::number(v), ink)))
            .collect()
    };
    let clauses: Vec<String> = places(cohorts)
        .filter_map(|(c, place)| {
            let by = |p: &&PlanRow| p.value("round_trips_per_committed").unwrap_or(f64::NAN);
            let known = || c.plans.iter().filter(|p| by(p).is_finite());
            let least = known().min_by(|a, b| by(a).total_cmp(&by(b)))?;
            let most = known().max_by(|a, b| by(a).total_cmp(&by(b)))?;
            if c.plans.len() == 1 {
                let trips = human::number(by(&most));
                return Some(format!(
                    "on {place} a committed transaction takes {trips} round trips under {}",
                    most.name()
                ));
            }
            Some(format!(
                "on {place} a committed transaction takes from {} round trips ({}) to {} ({})",
                human::number(by(&least)),
                least.name(),
                human::number(by(&most)),
                most.name()
            ))
        })
        .collect();
    Ok(Some(Drawn {
        id: "per-transaction".to_owned(),
        section: Section::Transactions,
        title: "Verbs, round trips and doorbells per committed transaction".to_owned(),
        caption: sentence(&clauses, "Round trips were not counted."),
        provenance: provenance_of(results.iter().copied()),
        frame: frames(cohorts)?,
        figure: table(cohorts, &MEASURES.map(|m| (m.1, 1.0, Kind::Linear)), cells),
    }))
}

fn predicted(results: &[&Results], cohorts: &[Cohort]) -> Framed<Option<Drawn>> {
    let pair = |row: &PlanRow, said: &str, got: &str| {
        Some((row.value(said)?, row.value(got)?)).filter(|p| p.0 > 0.0 && p.1 > 0.0)
    };
    let cell = |pair: Option<(f64, f64)>, read: fn(f64) -> String, ink| match pair {
        Some((said, got)) => {
            let text =
                format!("{} → {} ({})", read(said), read(got), human::signed_percent(got / said - 1.0));
            Cell::Against(said, got, text, ink)
        }
        None => Cell::Missing,
    };
    let cells = |row: &PlanRow, ink: Ink| {
        vec![
            cell(pair(row, "predicted_per_s", "committed_per_s"), human::short, ink),
            cell(pair(row, "predicted_mean_ns", "latency_mean_ns"), human::nanos, ink),
        ]
    };
    let mut clauses = Vec::new();
    for (cohort, place) in places(cohorts) {
        let furthest = |said: &str, got: &str| {
            let errors = cohort.plans.iter().filter_map(|p| {
                let (said, got) = pair(p, said, got)?;
                Some((p.name(), got / said - 1.0))
            });
            let (plan, error) = errors.max_by(|a, b| a.1.abs().total_cmp(&b.1.abs()))?;
            Some(format!("that of {plan}, {} of it", human::signed_percent(error)))
        };
        if let Some(rate) = furthest("predicted_per_s", "committed_per_s") {
            let latency = furthest("predicted_mean_ns", "latency_mean_ns");
            let latency = latency.map_or(String::new(), |found| format!(", the mean latency {found}"));
            clauses.push(format!("on {place} the rate furthest from its prediction is {rate}{latency}"));
        }
    }
    if clauses.is_empty() {
        return Ok(None);
    }
    let columns = [
        ("transactions per second: ○ predicted ● got", 1.0, Kind::Log10),
        ("mean latency: ○ predicted ● got", 1.0, Kind::Log10),
    ];
    Ok(Some(Drawn {
        id: "predicted".to_owned(),
        section: Section::Transactions,
        title: "Predicted against got".to_owned(),
        caption: doubted(results, sentence(&clauses, "")),
        provenance: provenance_of(results.iter().copied()),
        frame: frames(cohorts)?,
        figure: table(cohorts, &columns, cells),
    }))
}

/// A sentence about forecasts, with what speaks against the profiles that they are by.
fn doubted(results: &[&Results], sentence: String) -> String {
    let doubts = distinct(results.iter().map(|run| match tuning::doubt(run) {
        told if told.is_empty() => told,
        told => format!("{told} ({})", run.record.fabric),
    }));
    format!("{}{}", sentence.trim_end_matches('.'), doubts.concat()) + "."
}

fn frames(cohorts: &[Cohort]) -> Framed<DataFrame> {
    let all = stack(cohorts.iter().map(|c| c.frame.clone().lazy()).collect())?;
    // Where nothing differs there is nothing to tell.
    let mut idle = Vec::new();
    for column in ["setting", "variant", "share"] {
        if words(&all, column)?.iter().all(String::is_empty) {
            idle.push(column);
        }
    }
    Ok(all.drop_many(idle))
}

fn table(
    cohorts: &[Cohort],
    columns: &[(&str, f64, Kind)],
    cells: impl Fn(&PlanRow, Ink) -> Vec<Cell>,
) -> Figure {
    let column = |(title, weight, kind): &(&str, f64, Kind)| Column {
        title: (*title).to_owned(),
        weight: *weight,
        kind: *kind,
    };
    let panel = |cohort: &Cohort| Panel {
        title: cohort.title(),
        chip: Some(cohort.setting.provenance),
        body: Body::Rows(Rows {
            columns: columns.iter().map(column).collect(),
            rows: cohort
                .plans
                .iter()
                .map(|row| {
                    let ink = row.ink.unwrap_or_else(|| ink::for_name(&row.plan));
                    Row { name: row.label(), ink, cells: cells(row, ink) }
                })
                .collect(),
            key: Vec::new(),
        }),
    };
    Figure { columns: 1, panels: cohorts.iter().map(panel).collect() }
}
