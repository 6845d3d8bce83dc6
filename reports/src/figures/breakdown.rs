//! Where a transaction's time goes by phase, and why attempts abort: stacked bars, one per run.

use polars::prelude::*;

use super::primitives::sentence;
use super::{Drawn, Section, provenance_of, spelled};
use crate::chart::rows::{Cell, Column, Row, Rows};
use crate::chart::scale::Kind;
use crate::chart::{Body, Figure, Panel};
use crate::frame::{Framed, distinct, floats, stack, tagged, words};
use crate::human;
use crate::ink::{self, Ink};
use crate::load::Results;
use crate::load::record::Provenance;

/// Bars under the same heading share an axis.
#[derive(Clone, PartialEq)]
struct Group {
    title: String,
    fabric: String,
    provenance: Provenance,
}

/// One stacked bar: a point of a run.
struct Bar {
    group: Group,
    plan: String,
    ink: Ink,
    rate: f64,
    parts: Vec<(String, f64)>,
}

/// Median latency of each phase, per plan.
pub fn phases(results: &[&Results]) -> Framed<Option<Drawn>> {
    let columns = ["point", "phase", "latency_p50_ns", "latency_p99_ns", "verbs", "round_trips", "doorbells"];
    stacked(
        results,
        |r| &r.phases,
        "phase",
        "latency_p50_ns",
        &columns,
        |drawing| {
            let largest = |bar: &Bar| {
                let total: f64 = bar.parts.iter().map(|p| p.1).sum();
                let (name, size) = bar.parts.iter().max_by(|a, b| a.1.total_cmp(&b.1))?;
                (total > 0.0).then(|| {
                    let share = human::percent(size / total);
                    format!("on {} {} spends {share} of its phase time in {name}", bar.group.fabric, bar.plan)
                })
            };
            let clauses: Vec<String> = drawing.iter().filter_map(largest).take(3).collect();
            Drawn {
                id: "phases".to_owned(),
                section: Section::Transactions,
                title: "Where a transaction's time goes".to_owned(),
                caption: sentence(&clauses, "No phase took any time.")
                    + " Medians of phases are laid end to end; their sum is near, but not equal to, the median of a transaction.",
                provenance: Vec::new(),
                frame: DataFrame::empty(),
                figure: figure(drawing, "median latency by phase", human::nanos),
            }
        },
    )
}

/// Aborted attempts by cause, as a share of all attempts, per plan.
pub fn aborts(results: &[&Results]) -> Framed<Option<Drawn>> {
    let columns = ["point", "class", "reason", "count", "share"];
    stacked(
        results,
        |r| &r.aborts,
        "reason",
        "share",
        &columns,
        |drawing| {
            let clause = |bar: &Bar| {
                let total: f64 = bar.parts.iter().map(|p| p.1).sum();
                let (reason, size) = bar.parts.iter().max_by(|a, b| a.1.total_cmp(&b.1))?;
                (total > 0.0).then(|| {
                    format!(
                        "on {} {} aborts {} of its attempts, {} of them by {reason}",
                        bar.group.fabric,
                        bar.plan,
                        human::percent(total),
                        human::percent(size / total)
                    )
                })
            };
            let clauses: Vec<String> = drawing.iter().filter_map(clause).take(3).collect();
            Drawn {
                id: "aborts".to_owned(),
                section: Section::Transactions,
                title: "Aborts by cause".to_owned(),
                caption: sentence(&clauses, "No attempt aborted."),
                provenance: Vec::new(),
                frame: DataFrame::empty(),
                figure: figure(drawing, "aborted attempts as a share of all attempts", human::percent),
            }
        },
    )
}

/// Joins each run's side table with its points, draws it, and fills in the frame and the provenance.
fn stacked(
    results: &[&Results],
    side: impl Fn(&Results) -> &DataFrame,
    part: &str,
    value: &str,
    columns: &[&str],
    draw: impl FnOnce(&[Bar]) -> Drawn,
) -> Framed<Option<Drawn>> {
    let (mut frames, mut bars, mut sources) = (Vec::new(), Vec::new(), Vec::new());
    let of_point =
        ["point", "workload", "protocol", "plan", "committed", "aborted", "rolled_back", "committed_per_s"]
            .map(col);
    for results in results {
        let rolled_back = col("rolled_back").fill_null(lit(0));
        let attempts = (col("committed") + col("aborted") + rolled_back).cast(DataType::Float64);
        let mut joined = side(results).clone().lazy().join(
            results.points.clone().lazy().select(of_point.clone()),
            [col("point")],
            [col("point")],
            JoinArgs::new(JoinType::Inner),
        );
        if value == "share" {
            // What the application rolls back is no conflict; it stands beside the plans.
            let conflict = col("class").is_null().or(col("class").neq(lit("application")));
            joined = joined
                .filter(conflict)
                .with_column((col("count").cast(DataType::Float64) / attempts).alias("share"));
        }
        let joined = joined.collect()?;
        if joined.height() == 0 {
            continue;
        }
        bars.extend(bars_of(results, &joined, part, value)?);
        let wanted: Vec<&str> = ["workload", "protocol", "plan"].iter().chain(columns).copied().collect();
        frames.push(tagged(results, joined.lazy(), &wanted));
        sources.push(*results);
    }
    if bars.is_empty() {
        return Ok(None);
    }
    // Fastest first, as in the figure that sets the plans side by side.
    bars.sort_by(|a, b| b.rate.total_cmp(&a.rate));
    Ok(Some(Drawn { provenance: provenance_of(sources), frame: stack(frames)?, ..draw(&bars) }))
}

fn bars_of(results: &Results, joined: &DataFrame, part: &str, value: &str) -> Framed<Vec<Bar>> {
    let points = words(joined, "point")?;
    let [workload, protocol, plan, parts] = [
        words(joined, "workload")?,
        words(joined, "protocol")?,
        words(joined, "plan")?,
        words(joined, part)?,
    ];
    let values = floats(joined, value)?;
    let rates = floats(joined, "committed_per_s")?;
    let bar = |point: String| {
        let rows: Vec<usize> = (0..points.len()).filter(|i| points[*i] == point).collect();
        let first = *rows.first()?;
        Some(Bar {
            group: Group {
                title: format!(
                    "{} · {} · {}",
                    spelled(&workload[first]),
                    spelled(&protocol[first]),
                    results.record.fabric
                ),
                fabric: results.record.fabric.clone(),
                provenance: results.record.provenance,
            },
            ink: results.record.ink().unwrap_or_else(|| ink::for_name(&plan[first])),
            plan: crate::plan::short(&plan[first]),
            rate: rates[first].unwrap_or(0.0),
            parts: rows
                .into_iter()
                .filter_map(|i| Some((parts[i].clone(), values[i].filter(|v| v.is_finite() && *v >= 0.0)?)))
                .collect(),
        })
    };
    Ok(distinct(points.clone()).into_iter().filter_map(bar).collect())
}

fn figure(bars: &[Bar], title: &str, read: fn(f64) -> String) -> Figure {
    // One colour per part across all panels.
    let parts = distinct(bars.iter().flat_map(|b| b.parts.iter().map(|p| p.0.clone())));
    let ink_of = |part: &String| {
        let index = parts.iter().position(|p| p == part).unwrap_or(0);
        Ink::Stack(index.min(6) as u8)
    };
    let panel = |group: Group| {
        let of_group: Vec<&Bar> = bars.iter().filter(|b| b.group == group).collect();
        // In the same order above every panel.
        let has = |part: &&String| of_group.iter().any(|b| b.parts.iter().any(|p| p.0 == **part));
        let here: Vec<&String> = parts.iter().filter(has).collect();
        let row = |bar: &&Bar| {
            let total: f64 = bar.parts.iter().map(|p| p.1).sum();
            let cells = bar.parts.iter().map(|(part, size)| (*size, ink_of(part), read(*size))).collect();
            Row { name: bar.plan.clone(), ink: bar.ink, cells: vec![Cell::Stack(cells, read(total))] }
        };
        Panel {
            title: group.title.clone(),
            chip: Some(group.provenance),
            body: Body::Rows(Rows {
                columns: vec![Column { title: title.to_owned(), weight: 1.0, kind: Kind::Linear }],
                rows: of_group.iter().map(row).collect(),
                key: here.into_iter().map(|p| (ink_of(p), p.clone())).collect(),
            }),
        }
    };
    let groups = distinct(bars.iter().map(|b| b.group.clone()));
    Figure { columns: 1, panels: groups.into_iter().map(panel).collect() }
}
