//! Where a transaction's time goes by phase, and why attempts abort: stacked bars, one per run.

use polars::prelude::*;

use super::asked::{Asked, asked};
use super::primitives::sentence;
use super::transactions::{Setting, named};
use super::{Drawn, Section, provenance_of};
use crate::chart::rows::{Cell, Column, Row, Rows};
use crate::chart::scale::Kind;
use crate::chart::{Body, Figure, Panel};
use crate::doubt::{Doubts, doubts};
use crate::frame::{Framed, distinct, floats, stack, tagged, words};
use crate::human;
use crate::ink::{self, Ink};
use crate::load::Results;

/// Columns that make a [`Setting`].
const SETTING: [&str; 5] = ["workload", "protocol", "nodes", "threads", "replicas"];

/// One stacked bar: a plan. Bars of one setting share an axis.
struct Bar {
    setting: Setting,
    plan: String,
    variant: String,
    ink: Ink,
    rate: f64,
    doubts: Doubts,
    parts: Vec<(String, f64)>,
    /// Points behind it, whose mean it is.
    runs: usize,
}

impl Bar {
    /// What the parts add up to.
    fn total(&self) -> f64 {
        self.parts.iter().map(|part| part.1).sum()
    }

    fn label(&self) -> String {
        let repeats = if self.runs > 1 { format!("mean of {}", self.runs) } else { String::new() };
        self.doubts.beside(named(&self.plan, &[&self.variant, &repeats]))
    }

    /// One bar for all points of one plan in one setting: means, because those still add up.
    fn mean(same: &[Bar]) -> Bar {
        let n = same.len() as f64;
        let parts = || same.iter().flat_map(|bar| &bar.parts);
        let sum = |name: &String| parts().filter(|part| part.0 == *name).map(|part| part.1).sum::<f64>();
        let names = distinct(parts().map(|part| part.0.clone()));
        Bar {
            setting: same[0].setting.clone(),
            plan: same[0].plan.clone(),
            variant: same[0].variant.clone(),
            ink: same[0].ink,
            rate: same.iter().map(|bar| bar.rate).sum::<f64>() / n,
            doubts: same.iter().map(|bar| bar.doubts).fold(Doubts::default(), Doubts::or),
            parts: names.into_iter().map(|name| (name.clone(), sum(&name) / n)).collect(),
            runs: same.len(),
        }
    }
}

/// A sentence about each of the fastest bars, which `clause` makes of the bar and its largest part, beginning with where and which
/// plan.
fn sentences(bars: &[Bar], clause: impl Fn(f64, &(String, f64)) -> String) -> Vec<String> {
    let settings: Vec<&Setting> = bars.iter().map(|bar| &bar.setting).collect();
    let one = |bar: &Bar| {
        let largest = bar.parts.iter().max_by(|a, b| a.1.total_cmp(&b.1))?;
        let (total, place) = (bar.total(), bar.setting.place(&settings));
        (total > 0.0)
            .then(|| format!("on {place} {} {}", named(&bar.plan, &[&bar.variant]), clause(total, largest)))
    };
    bars.iter().filter_map(one).take(3).collect()
}

/// What the bars of [`phases`] are.
const PHASE_TIME: &str = " A bar is the mean time in each phase per committed transaction, estimated from the attempts that were timed: a phase counts as often as it runs, in attempts that abort and in transactions that are rolled back too, so a bar may exceed the mean latency of those that commit. What lies between phases, computing and waiting to try again, is not in it.";

/// Mean time in each phase per committed transaction, per plan.
pub fn phases(results: &[&Results]) -> Framed<Option<Drawn>> {
    let columns = [
        "point",
        "phase",
        "latency_p50_ns",
        "latency_p99_ns",
        "verbs",
        "round_trips",
        "doorbells",
        "ns_per_committed",
        "bytes_per_verb",
    ];
    stacked(
        results,
        |r| &r.phases,
        "phase",
        "ns_per_committed",
        &columns,
        |drawing| {
            let clauses = sentences(drawing, |total, (name, size)| {
                format!("spends {} of its phase time in {name}", human::percent(size / total))
            });
            Drawn {
                id: "phases".to_owned(),
                section: Section::Transactions,
                title: "Where a transaction's time goes".to_owned(),
                caption: sentence(&clauses, "No phase took any time.") + PHASE_TIME,
                provenance: Vec::new(),
                frame: DataFrame::empty(),
                figure: figure(drawing, "mean time in phases per committed transaction", human::nanos),
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
            let clauses = sentences(drawing, |total, (reason, size)| {
                let (all, most) = (human::percent(total), human::percent(size / total));
                format!("aborts {all} of its attempts, {most} of them by {reason}")
            });
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
    // What the bars are made of, and what there is to doubt about them.
    let rest = ["committed", "aborted", "rolled_back", "committed_per_s", "busy", "converged"];
    let of_point: Vec<Expr> =
        ["point", "plan"].iter().chain(&SETTING).chain(&rest).map(|c| col(*c)).collect();
    for (results, asked) in results.iter().zip(asked(results)?) {
        let mut side = side(results).clone().lazy();
        let mut how = JoinType::Inner;
        if value == "share" {
            // What the application rolls back is no conflict; it stands beside the plans. A point without conflicts has no row.
            side = side.filter(col("class").is_null().or(col("class").neq(lit("application"))));
            how = JoinType::Left;
        }
        let of_points = results.points.clone().lazy().select(of_point.clone());
        let mut joined = of_points.join(side, [col("point")], [col("point")], JoinArgs::new(how));
        if value == "share" {
            let rolled_back = col("rolled_back").fill_null(lit(0));
            let attempts = (col("committed") + col("aborted") + rolled_back).cast(DataType::Float64);
            joined = joined.with_column((col("count").cast(DataType::Float64) / attempts).alias("share"));
        }
        let joined = joined.collect()?;
        let of_run = bars_of(results, &asked, &joined, part, value)?;
        let says = of_run.iter().any(|bar| !bar.parts.is_empty());
        bars.extend(of_run);
        if !says {
            continue;
        }
        let wanted: Vec<&str> = ["workload", "protocol", "plan"].iter().chain(columns).copied().collect();
        frames.push(tagged(results, joined.lazy().filter(col(part).is_not_null()), &wanted));
        sources.push(*results);
    }
    let mut plans: Vec<Vec<Bar>> = Vec::new();
    for bar in bars {
        let key = |bar: &Bar| (bar.setting.clone(), bar.plan.clone(), bar.variant.clone());
        let same = |of: &&mut Vec<Bar>| key(&of[0]) == key(&bar);
        match plans.iter_mut().find(same) {
            Some(of_plan) => of_plan.push(bar),
            None => plans.push(vec![bar]),
        }
    }
    let mut bars: Vec<Bar> = plans.iter().map(|of_plan| Bar::mean(of_plan)).collect();
    bars.retain(|bar| !bar.parts.is_empty());
    if bars.is_empty() {
        return Ok(None);
    }
    // Fastest first, as in the figure that sets the plans side by side.
    bars.sort_by(|a, b| b.rate.total_cmp(&a.rate));
    Ok(Some(Drawn { provenance: provenance_of(sources), frame: stack(frames)?, ..draw(&bars) }))
}

fn bars_of(
    results: &Results,
    asked: &Asked,
    joined: &DataFrame,
    part: &str,
    value: &str,
) -> Framed<Vec<Bar>> {
    let [points, plan, parts] = ["point", "plan", part].map(|column| words(joined, column));
    let (points, plan, parts) = (points?, plan?, parts?);
    let settings = SETTING.iter().map(|column| words(joined, column)).collect::<Framed<Vec<_>>>()?;
    let values = floats(joined, value)?;
    let doubts = doubts(joined);
    let (rates, aborted) = (floats(joined, "committed_per_s")?, floats(joined, "aborted")?);
    let bar = |point: String| {
        let rows: Vec<usize> = (0..points.len()).filter(|i| points[*i] == point).collect();
        let first = *rows.first()?;
        let part =
            |i: usize| Some((parts[i].clone(), values[i].filter(|v: &f64| v.is_finite() && *v >= 0.0)?));
        let parts: Vec<(String, f64)> = rows.into_iter().filter_map(part).collect();
        // Nothing happened, or an older file does not say.
        let none = value == "share" && aborted[first] == Some(0.0);
        if parts.is_empty() && !none {
            return None;
        }
        Some(Bar {
            setting: Setting::new(
                results.record.provenance,
                &results.record.fabric,
                std::array::from_fn(|column| settings[column][first].as_str()),
                &asked.setting,
                &asked.share,
            ),
            runs: 1,
            ink: results.record.ink().unwrap_or_else(|| ink::for_name(&plan[first])),
            plan: plan[first].clone(),
            variant: asked.variant.clone(),
            rate: rates[first].unwrap_or(0.0),
            doubts: doubts[first],
            parts,
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
    let panel = |setting: Setting| {
        let of_group: Vec<&Bar> = bars.iter().filter(|b| b.setting == setting).collect();
        // In the same order above every panel.
        let has = |part: &&String| of_group.iter().any(|b| b.parts.iter().any(|p| p.0 == **part));
        let here: Vec<&String> = parts.iter().filter(has).collect();
        let row = |bar: &&Bar| {
            let cells = bar.parts.iter().map(|(part, size)| (*size, ink_of(part), read(*size))).collect();
            Row { name: bar.label(), ink: bar.ink, cells: vec![Cell::Stack(cells, read(bar.total()))] }
        };
        Panel {
            title: setting.title(),
            chip: Some(setting.provenance),
            body: Body::Rows(Rows {
                columns: vec![Column { title: title.to_owned(), weight: 1.0, kind: Kind::Linear }],
                rows: of_group.iter().map(row).collect(),
                key: here.into_iter().map(|p| (ink_of(p), p.clone())).collect(),
            }),
        }
    };
    let settings = distinct(bars.iter().map(|b| b.setting.clone()));
    Figure { columns: 1, panels: settings.into_iter().map(panel).collect() }
}
