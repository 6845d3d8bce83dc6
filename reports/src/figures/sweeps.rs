//! One knob at a time: coroutines, outstanding requests, doorbell batch, signal period, queue pairs, threads.

use polars::prelude::*;

use super::primitives::{sentence, verb_series};
use super::{Drawn, Section, names, provenance_of, slug};
use crate::chart::lines::{Axis, Lines, Series};
use crate::chart::scale::Kind;
use crate::chart::{Body, Figure, Panel};
use crate::doubt::medians;
use crate::frame::{Framed, stack, tagged};
use crate::human;
use crate::load::Results;

/// Bench, the column it sweeps, and what that is called.
const KNOBS: [(&str, &str, &str); 6] = [
    ("coroutines", "coroutines", "coroutines per thread"),
    ("outstanding", "outstanding", "outstanding requests"),
    ("doorbell", "doorbell_batch", "requests per doorbell"),
    ("signal", "signal_period", "requests per signaled one"),
    ("queue-pairs", "queue_pairs", "queue pairs"),
    ("threads", "threads", "threads"),
];

/// One figure per characterization: a panel per knob that was swept.
pub fn draw(results: &[&Results]) -> Framed<Vec<Drawn>> {
    let mut drawn = Vec::new();
    for (results, name) in results.iter().zip(names(results)) {
        drawn.extend(sweep(results, &name)?);
    }
    Ok(drawn)
}

fn sweep(results: &Results, name: &str) -> Framed<Option<Drawn>> {
    let mut frames = Vec::new();
    let mut panels = Vec::new();
    let mut effects: Vec<Effect> = Vec::new();
    for (bench, column, title) in KNOBS {
        let rows = results
            .points
            .clone()
            .lazy()
            .filter(col("bench").eq(lit(bench)).and(col(column).is_not_null()))
            .group_by_stable([col("bench"), col("verb"), col(column).alias("value")])
            .agg(medians(&["rate_per_s", "latency_p50_ns", "doorbells_per_op"]))
            .sort(["value"], SortMultipleOptions::default().with_maintain_order(true))
            .collect()?;
        let series = if rows.height() == 0 { Vec::new() } else { verb_series(&rows, "value", "rate_per_s")? };
        // One value of a knob shows nothing of what turning it does.
        if series.iter().all(|s| s.points.len() < 2) {
            continue;
        }
        effects.extend(series.iter().filter_map(|s| Effect::of(s, title)));
        panels.push(Panel {
            title: title.to_owned(),
            chip: Some(results.record.provenance),
            body: Body::Lines(Lines::of(
                Axis { title: title.to_owned(), kind: Kind::Log2, format: human::whole },
                Axis { title: "operations per second".to_owned(), kind: Kind::Linear, format: human::short },
                series,
                215.0,
            )),
        });
        let columns = ["bench", "verb", "value", "rate_per_s", "latency_p50_ns", "doorbells_per_op"];
        frames.push(tagged(results, rows.lazy(), &columns));
    }
    if panels.is_empty() {
        return Ok(None);
    }
    Ok(Some(Drawn {
        id: format!("knobs-{}", slug(name)),
        section: Section::Primitives,
        title: format!("One knob at a time, {name}"),
        caption: caption(effects),
        provenance: provenance_of([results]),
        frame: stack(frames)?,
        figure: Figure { columns: 3.min(panels.len()), panels },
    }))
}

/// What one knob did to one verb: its rate at the last value over its rate at the first.
struct Effect {
    verb: String,
    knob: &'static str,
    from: f64,
    to: f64,
    ratio: f64,
}

impl Effect {
    fn of(series: &Series, knob: &'static str) -> Option<Effect> {
        let (first, last) = (series.points.first()?, series.points.last()?);
        let ratio = last.1 / first.1;
        (series.points.len() > 1 && ratio.is_finite() && ratio > 0.0).then(|| Effect {
            verb: series.name.clone(),
            knob,
            from: first.0,
            to: last.0,
            ratio,
        })
    }
}

fn caption(mut effects: Vec<Effect>) -> String {
    effects.sort_by(|a, b| b.ratio.total_cmp(&a.ratio));
    let mut clauses = Vec::new();
    let range = |e: &Effect| format!("{} from {} to {}", e.knob, human::whole(e.from), human::whole(e.to));
    if let Some(best) = effects.first().filter(|e| e.ratio > 1.05) {
        clauses.push(format!("{} gains most: {} with {}", best.verb, human::times(best.ratio), range(best)));
    }
    if let Some(worst) = effects.last().filter(|e| e.ratio < 0.95) {
        clauses.push(format!(
            "{} loses most: {} with {}",
            worst.verb,
            human::signed_percent(worst.ratio - 1.0),
            range(worst)
        ));
    }
    sentence(&clauses, "No knob moves any rate by more than a twentieth.")
}
