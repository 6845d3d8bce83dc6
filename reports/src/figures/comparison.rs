//! Protocols by plans by workloads: what each commits, how long it takes, why it aborts, what it sends and what its cores do
//! for it; and for each protocol the best pure plan against the best mixed one that was run, which may be the tuner's choice alone.
//!
//! Drawn for experiments whose grid has protocols and plans, and beside them only workloads, fabrics and the like: an axis
//! of numbers is a curve's.

use polars::prelude::*;

use super::primitives::sentence;
use super::studies::latency;
use super::{Drawn, Section, held, provenance_of, slug, spelled};
use crate::chart::rows::{Cell, Column, Row, Rows};
use crate::chart::scale::Kind;
use crate::chart::{Body, Figure, Panel};
use crate::doubt::{Doubts, doubts};
use crate::frame::{Framed, distinct, floats, stack, tagged, words};
use crate::human;
use crate::ink::{self, Ink};
use crate::load::Results;

/// Columns of the table beside the figures.
const COLUMNS: [&str; 17] = [
    "point",
    "workload",
    "protocol",
    "plan",
    held::COROUTINES,
    "committed_per_s",
    "aborted_per_s",
    "latency_p50_ns",
    "latency_p99_ns",
    "verbs_per_committed",
    "round_trips_per_committed",
    "doorbells_per_committed",
    "cpu_ns_per_committed",
    "predicted_per_s",
    "isolation_verdict",
    "lock_mode",
    "local_share",
];

/// Plans of one style throughout, where results do not tell a plan's steps.
const PURE: [&str; 4] = ["one-sided", "two-sided", "rcc-one-sided", "rcc-two-sided"];

/// One protocol under one plan.
struct Point {
    /// Workload and fabric: what may stand in one panel.
    place: String,
    protocol: String,
    plan: String,
    /// Its steps, where they are told.
    steps: String,
    /// How many coroutines it ran with, where plans differ in that and no axis says so.
    coroutines: Option<String>,
    rate: f64,
    p50: Option<f64>,
    p99: Option<f64>,
    verbs: Option<f64>,
    cpu: Option<f64>,
    /// Accesses that were of the own node, as a share of all.
    local: Option<f64>,
    /// Attempts that aborted for each reason, as a share of all.
    aborts: Vec<(String, f64)>,
    doubts: Doubts,
}

impl Point {
    /// The plan in few words.
    fn name(&self) -> String {
        let words = [crate::plan::short(&self.plan)].into_iter().chain(self.coroutines.clone());
        self.doubts.beside(words.collect::<Vec<_>>().join(", "))
    }

    /// Whether all phases are carried by the same primitive, whatever the plan is called.
    fn pure(&self) -> bool {
        if let [(_, first), rest @ ..] = &crate::plan::steps(&self.steps)[..] {
            return *first != Ink::Hybrid && rest.iter().all(|(_, side)| side == first);
        }
        PURE.iter().any(|pure| self.plan == *pure || self.plan == format!("tuned ({pure})"))
    }

    /// Whether the tuner chose the plan.
    fn tuned(&self) -> bool {
        self.plan == "tuned" || self.plan.starts_with("tuned (")
    }
}

/// Two figures for each experiment that compares protocols.
pub fn draw(results: &[&Results]) -> Framed<Vec<Drawn>> {
    let mut drawn = Vec::new();
    for results in results {
        if !compares(results)? {
            continue;
        }
        let points = points(results)?;
        if points.is_empty() {
            continue;
        }
        let frame = stack(vec![tagged(results, results.points.clone().lazy(), &COLUMNS)])?;
        let held = held::told(&results.record, &results.points)?;
        let title = results.record.question.clone().unwrap_or_else(|| results.label.clone());
        let figure = |id: &str, title: String, caption: String, figure: Figure| Drawn {
            id: format!("{id}-{}", slug(&results.label)),
            section: Section::Comparison,
            title,
            caption: caption + &held,
            provenance: provenance_of([*results]),
            frame: frame.clone(),
            figure,
        };
        drawn.push(figure("comparison", title.clone(), best_of_each(&points), table(results, &points)));
        if points.iter().any(Point::pure) && points.iter().any(|p| !p.pure()) {
            let (said, drawing) = pure_against_mixed(results, &points);
            drawn.push(figure(
                "pure-against-mixed",
                format!("{title} Pure plans against mixed ones"),
                said,
                drawing,
            ));
        }
    }
    Ok(drawn)
}

/// Whether an experiment compares protocols under plans, and nothing along an axis of numbers.
pub fn compares(results: &Results) -> Framed<bool> {
    let mut several = 0;
    for name in results.points.get_column_names() {
        let Some(axis) = name.strip_prefix("axis_") else { continue };
        let values = distinct(words(&results.points, name)?);
        if ["protocol", "plan"].contains(&axis) {
            several += usize::from(values.len() > 1);
        } else if values.len() > 1 && !["workload", "fabric"].contains(&axis) {
            return Ok(false);
        }
    }
    Ok(several == 2)
}

fn points(results: &Results) -> Framed<Vec<Point>> {
    let rows = results.points.clone().lazy().filter(col("committed_per_s").is_not_null()).collect()?;
    let has = |column: &str| rows.get_column_names().iter().any(|name| name.as_str() == column);
    let fabric = match has("axis_fabric") {
        true => words(&rows, "axis_fabric")?,
        false => vec![results.record.fabric.clone(); rows.height()],
    };
    let [workload, protocol, plan, numbers] =
        [words(&rows, "workload")?, words(&rows, "protocol")?, words(&rows, "plan")?, words(&rows, "point")?];
    let steps = if has("steps") { words(&rows, "steps")? } else { vec![String::new(); rows.height()] };
    let of = |column: &str| floats(&rows, column);
    let [rate, p50, p99, verbs, cpu, local] = [
        of("committed_per_s")?,
        of("latency_p50_ns")?,
        of("latency_p99_ns")?,
        of("verbs_per_committed")?,
        of("cpu_ns_per_committed")?,
        if has("local_share") { of("local_share")? } else { vec![None; rows.height()] },
    ];
    let [committed, aborted, rolled_back] = [of("committed")?, of("aborted")?, of("rolled_back")?];
    let (causes, doubts) = (causes(results)?, doubts(&rows));
    let coroutines = held::unasked(&rows, held::COROUTINES);
    let point = |i: usize| {
        let sum = |column: &[Option<f64>]| column[i].unwrap_or(0.0);
        let attempts = sum(&committed) + sum(&aborted) + sum(&rolled_back);
        let share = |count: f64| if attempts > 0.0 { count / attempts } else { 0.0 };
        Point {
            place: format!("{} · {}", spelled(&workload[i]), fabric[i]),
            protocol: protocol[i].clone(),
            plan: plan[i].clone(),
            steps: steps[i].clone(),
            coroutines: coroutines.as_ref().map(|of| held::coroutines(&of[i])),
            rate: rate[i].unwrap_or(0.0),
            p50: p50[i],
            p99: p99[i],
            verbs: verbs[i],
            cpu: cpu[i],
            local: local[i],
            aborts: causes
                .iter()
                .filter(|(point, ..)| *point == numbers[i])
                .map(|(_, reason, count)| (reason.clone(), share(*count)))
                .collect(),
            doubts: doubts[i],
        }
    };
    Ok((0..rows.height()).map(point).collect())
}

/// Point, reason and count of every kind of abort that is a conflict.
fn causes(results: &Results) -> Framed<Vec<(String, String, f64)>> {
    if results.aborts.height() == 0 {
        return Ok(Vec::new());
    }
    let conflict = col("class").is_null().or(col("class").neq(lit("application")));
    let rows = results.aborts.clone().lazy().filter(conflict).collect()?;
    let (points, reasons, counts) =
        (words(&rows, "point")?, words(&rows, "reason")?, floats(&rows, "count")?);
    Ok(points
        .into_iter()
        .zip(reasons)
        .zip(counts)
        .map(|((point, reason), count)| (point, reason, count.unwrap_or(0.0)))
        .collect())
}

fn places(points: &[Point]) -> Vec<String> {
    distinct(points.iter().map(|p| p.place.clone()))
}

fn best<'p>(points: impl Iterator<Item = &'p Point>) -> Option<&'p Point> {
    // Of equal ones the first: a tuned plan may be a pure one under another name.
    points.reduce(|best, next| if next.rate > best.rate { next } else { best })
}

/// Who commits most, place by place.
fn best_of_each(points: &[Point]) -> String {
    let clauses: Vec<String> = places(points)
        .iter()
        .filter_map(|place| {
            let most = best(points.iter().filter(|p| p.place == *place))?;
            Some(format!(
                "on {place} {} under {} commits most, {}",
                spelled(&most.protocol),
                crate::plan::short(&most.plan),
                human::rate(most.rate)
            ))
        })
        .collect();
    sentence(&clauses, "There is one point only.")
}

fn table(results: &Results, points: &[Point]) -> Figure {
    // One colour per cause across all panels.
    let causes = distinct(points.iter().flat_map(|p| p.aborts.iter().map(|a| a.0.clone())));
    let ink_of =
        |cause: &String| Ink::Stack(causes.iter().position(|c| c == cause).unwrap_or(0).min(6) as u8);
    let column = |title: &str, weight, kind| Column { title: title.to_owned(), weight, kind };
    let columns = || {
        vec![
            column("committed transactions per second", 2.2, Kind::Linear),
            column("latency: ● median ○ 99th percentile", 2.2, Kind::Log10),
            column("aborted attempts by cause", 1.6, Kind::Linear),
            column("verbs", 1.0, Kind::Linear),
            column("CPU time", 1.0, Kind::Linear),
        ]
    };
    let row = |p: &Point| {
        let ink = ink::for_name(&p.plan);
        let total: f64 = p.aborts.iter().map(|a| a.1).sum();
        let parts = p.aborts.iter().map(|(cause, share)| (*share, ink_of(cause), String::new())).collect();
        Row {
            name: p.name(),
            ink,
            cells: vec![
                Cell::Bar(p.rate, human::rate(p.rate), ink),
                latency(p.p50, p.p99, ink),
                Cell::Stack(parts, human::percent(total)),
                p.verbs.map_or(Cell::Missing, |v| Cell::Bar(v, human::number(v), Ink::Other)),
                p.cpu.map_or(Cell::Missing, |ns| Cell::Bar(ns, human::nanos(ns), Ink::Other)),
            ],
        }
    };
    let panel = |place: &String| {
        let here: Vec<&Point> = points.iter().filter(|p| p.place == *place).collect();
        let mut rows = Vec::new();
        for protocol in distinct(here.iter().map(|p| p.protocol.clone())) {
            rows.push(Row { name: spelled(&protocol).to_owned(), ink: Ink::Text, cells: Vec::new() });
            rows.extend(here.iter().filter(|p| p.protocol == protocol).map(|p| row(p)));
        }
        let met = |cause: &&String| here.iter().any(|p| p.aborts.iter().any(|a| a.0 == **cause && a.1 > 0.0));
        Panel {
            title: format!(
                "{place}: per committed transaction, where it is not a rate{}",
                locality(here.iter().copied())
            ),
            chip: Some(results.record.provenance),
            body: Body::Rows(Rows {
                columns: columns(),
                rows,
                key: causes.iter().filter(met).map(|cause| (ink_of(cause), cause.clone())).collect(),
            }),
        }
    };
    Figure { columns: 1, panels: places(points).iter().map(panel).collect() }
}

/// How much of what points accessed was their own node's: `, 24.9 % to 25.1 % of accesses on the own node`; nothing where no result tells.
fn locality<'p>(points: impl Iterator<Item = &'p Point>) -> String {
    let shares: Vec<f64> = points.filter_map(|p| p.local).collect();
    let least = shares.iter().copied().reduce(f64::min).map(human::percent);
    let most = shares.iter().copied().reduce(f64::max).map(human::percent);
    match (least, most) {
        (Some(least), Some(most)) if least == most => format!(", {most} of accesses on the own node"),
        (Some(least), Some(most)) => format!(", {least} to {most} of accesses on the own node"),
        _ => String::new(),
    }
}

fn pure_against_mixed(results: &Results, points: &[Point]) -> (String, Figure) {
    let mut clauses = Vec::new();
    let mut panels = Vec::new();
    for place in places(points) {
        let here = || points.iter().filter(|p| p.place == place);
        // What the tuner chose is the best that was run, and need not be the best there is.
        let others = here().any(|p| !p.pure() && !p.tuned());
        let chosen = !others && here().any(Point::tuned);
        let mixed_plans = if chosen { "mixed, chosen by the tuner" } else { "best mixed of those run" };
        let mut rows: Vec<(f64, Row)> = Vec::new();
        for protocol in distinct(here().map(|p| p.protocol.clone())) {
            let of = || here().filter(|p| p.protocol == protocol);
            let Some(pure) = best(of().filter(|p| p.pure())) else { continue };
            let name = |p: &Point| Cell::Text(p.name(), ink::for_name(&p.plan));
            let (gain, cells) = match best(of().filter(|p| !p.pure())) {
                Some(mixed) => {
                    let gain = mixed.rate / pure.rate - 1.0;
                    let text = format!("{} → {}", human::short(pure.rate), human::short(mixed.rate));
                    let cells = vec![
                        Cell::Against(pure.rate, mixed.rate, text, Ink::Hybrid),
                        Cell::Text(human::signed_percent(gain), Ink::Text),
                        name(pure),
                        name(mixed),
                    ];
                    (gain, cells)
                }
                None => {
                    let said = Cell::Said(pure.rate, human::short(pure.rate), Ink::Other);
                    let why =
                        if of().any(Point::tuned) { "the tuner chose a pure one" } else { "none was run" };
                    let none = Cell::Text(why.to_owned(), Ink::Muted);
                    (0.0, vec![said, Cell::Missing, name(pure), none])
                }
            };
            rows.push((gain, Row { name: spelled(&protocol).to_owned(), ink: Ink::Text, cells }));
        }
        if let Some((gain, row)) = rows.iter().max_by(|a, b| a.0.total_cmp(&b.0)).filter(|row| row.0 > 0.0) {
            clauses.push(format!(
                "on {place} {} gives {} most, {} over the best pure plan",
                if chosen { "the tuner's mixed plan" } else { "the best mixed plan of those run" },
                row.name,
                human::signed_percent(*gain)
            ));
        }
        let column = |title: &str, weight, kind| Column { title: title.to_owned(), weight, kind };
        panels.push(Panel {
            title: place,
            chip: Some(results.record.provenance),
            body: Body::Rows(Rows {
                columns: vec![
                    column(
                        &format!("transactions per second: ○ best pure ● {mixed_plans}"),
                        3.0,
                        Kind::Linear,
                    ),
                    column("gain", 0.7, Kind::Linear),
                    column("best pure", 1.2, Kind::Linear),
                    column(mixed_plans, 1.6, Kind::Linear),
                ],
                rows: rows.into_iter().map(|(_, row)| row).collect(),
                key: Vec::new(),
            }),
        });
    }
    (
        sentence(&clauses, "No mixed plan commits more than the best pure one of its protocol."),
        Figure { columns: 1, panels },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(plan: &str, steps: &str) -> Point {
        Point {
            place: String::new(),
            protocol: "occ".to_owned(),
            plan: plan.to_owned(),
            steps: steps.to_owned(),
            coroutines: None,
            rate: 1.0,
            p50: None,
            p99: None,
            verbs: None,
            cpu: None,
            local: None,
            aborts: Vec::new(),
            doubts: Doubts::default(),
        }
    }

    #[test]
    fn locality_is_told_where_it_is_known() {
        let told = |shares: &[Option<f64>]| {
            let points: Vec<Point> =
                shares.iter().map(|&local| Point { local, ..point("one-sided", "") }).collect();
            locality(points.iter())
        };
        assert_eq!(told(&[None]), "");
        assert_eq!(told(&[Some(0.0), Some(0.0)]), ", 0\u{a0}% of accesses on the own node");
        assert_eq!(
            told(&[Some(0.5), None, Some(0.25)]),
            ", 25\u{a0}% to 50\u{a0}% of accesses on the own node"
        );
    }

    #[test]
    fn a_plan_is_pure_by_its_steps_and_not_by_its_name() {
        let one = "{fetch: {via: one-sided, outstanding: true}, lock: one-sided, log: one-sided}";
        for plan in ["drtm-r", "tuned", "one-sided"] {
            assert!(point(plan, one).pure(), "{plan}");
        }
        for steps in ["{fetch: one-sided, lock: two-sided}", "{fetch: hybrid, lock: hybrid}"] {
            assert!(!point("one-sided", steps).pure(), "{steps}");
        }
        assert!(point("tuned (one-sided)", "").pure() && !point("tuned", "").pure());
    }
}
