//! Phases alone: every variant of a phase on one line, at its best setting.

use polars::prelude::*;

use super::primitives::sentence;
use super::{Drawn, Section, names, provenance_of, slug};
use crate::chart::rows::{Cell, Column, Row, Rows};
use crate::chart::scale::Kind;
use crate::chart::{Body, Figure, Panel};
use crate::doubt::doubts;
use crate::frame::{Framed, distinct, floats, stack, tagged, words};
use crate::human;
use crate::ink::{self, Ink};
use crate::load::Results;

const COLUMNS: [&str; 10] = [
    "phase",
    "variant",
    "coroutines",
    "payload_bytes",
    "rate_per_s",
    "latency_p50_ns",
    "latency_p99_ns",
    "verbs_per_op",
    "round_trips_per_op",
    "doorbells_per_op",
];

/// What the figures of studies measure: rates would read as those of the phase, and be laid side by side across phases.
const MEASURED: &str = " Latencies and costs are of the phase alone; rates are of whole cycles, with what the phase needs before and after it, untimed (a commit its fetch and lock).";

/// How variants end whose coroutine does not wait for the acknowledgement; they have rivals of their own.
const PASSIVE: &str = "-passive";

/// What a study may vary beside coroutines; in a directory that an earlier build left, not all of them are there.
const SETTINGS: [&str; 4] = ["payload_bytes", "skew", "records", "think_us"];

/// The points at the usual setting, which the first point has: variants are laid side by side where all else is alike.
fn usual(points: &DataFrame) -> Framed<DataFrame> {
    let mut rows = points.clone().lazy();
    for setting in SETTINGS {
        if points.height() > 0 && points.get_column_names().iter().any(|name| name.as_str() == setting) {
            rows = rows.filter(col(setting).eq_missing(col(setting).first()));
        }
    }
    rows.collect()
}

/// Figures of what was varied beside coroutines, one for each study that did.
fn varied(results: &Results) -> Framed<Option<Drawn>> {
    let record = &results.record;
    let wanted = record.figures();
    if wanted.is_empty() || results.points.height() == 0 {
        return Ok(None);
    }
    let rows = &results.points;
    let axes: Vec<String> =
        rows.get_column_names().iter().filter(|c| c.starts_with("axis_")).map(|c| c.to_string()).collect();
    let (figure, clauses, drawn) = super::wanted::draw(rows, &axes, &wanted, record)?;
    if figure.panels.is_empty() {
        return Ok(None);
    }
    let mut columns: Vec<&str> = COLUMNS.to_vec();
    columns.extend(axes.iter().map(String::as_str));
    columns.extend(distinct(drawn.iter().map(String::as_str)).into_iter().filter(|c| !COLUMNS.contains(c)));
    Ok(Some(Drawn {
        id: format!("study-{}", slug(&results.label)),
        section: Section::Studies,
        title: format!("{}, by what was varied", record.title),
        caption: sentence(&clauses, "There is one point only.") + MEASURED,
        provenance: provenance_of([results]),
        frame: stack(vec![tagged(results, rows.clone().lazy(), &columns)])?,
        figure,
    }))
}

/// One figure over all studies, a panel each; and one for each study that varied more than coroutines.
pub fn draw(results: &[&Results]) -> Framed<Vec<Drawn>> {
    let all = results;
    let mut frames = Vec::new();
    let mut panels = Vec::new();
    let mut clauses = Vec::new();
    let mut sources = Vec::new();
    let alone = results.iter().map(|r| only_phase(r)).collect::<Framed<Vec<_>>>()?;
    for (i, (results, name)) in results.iter().zip(names(results)).enumerate() {
        // A study of one phase is told by the phase, unless another one of it ran on the same fabric.
        let fabric = &results.record.fabric;
        let twin =
            |(j, other): (usize, &&Results)| j != i && alone[j] == alone[i] && other.record.fabric == *fabric;
        let name = match &alone[i] {
            Some(_) if !all.iter().enumerate().any(twin) => fabric.clone(),
            _ => name,
        };
        let rows = usual(&results.points)?
            .lazy()
            .filter(col("rate_per_s").is_not_null())
            .sort(
                ["rate_per_s"],
                SortMultipleOptions::default().with_order_descending(true).with_maintain_order(true),
            )
            .collect()?;
        if rows.height() == 0 {
            continue;
        }
        let table = variants(&rows, &name, &mut clauses)?;
        let title = match &alone[i] {
            Some(phase) => format!("{phase} · {name}"),
            None => name,
        };
        panels.push(Panel { title, chip: Some(results.record.provenance), body: Body::Rows(table) });
        frames.push(tagged(results, rows.lazy(), &COLUMNS));
        sources.push(*results);
    }
    if panels.is_empty() {
        return Ok(Vec::new());
    }
    let mut drawn = vec![Drawn {
        id: "phase-variants".to_owned(),
        section: Section::Studies,
        title: "Variants of each phase, each at the setting where it is fastest".to_owned(),
        caption: sentence(&clauses, "No phase was driven in more than one variant.") + MEASURED,
        provenance: provenance_of(sources),
        frame: stack(frames)?,
        figure: Figure { columns: 1, panels },
    }];
    for study in results {
        drawn.extend(varied(study)?);
    }
    Ok(drawn)
}

/// The phase of a study that drove no other.
fn only_phase(results: &Results) -> Framed<Option<String>> {
    let phases = distinct(words(&results.points, "phase")?);
    Ok(match phases.as_slice() {
        [phase] => Some(phase.clone()),
        _ => None,
    })
}

/// `rows` come fastest first, so the first row of a variant is its best.
fn variants(rows: &DataFrame, name: &str, clauses: &mut Vec<String>) -> Framed<Rows> {
    let phases = words(rows, "phase")?;
    let variant = words(rows, "variant")?;
    let coroutines = floats(rows, "coroutines")?;
    let [rate, p50, p99, verbs, trips, doorbells] = [
        floats(rows, "rate_per_s")?,
        floats(rows, "latency_p50_ns")?,
        floats(rows, "latency_p99_ns")?,
        floats(rows, "verbs_per_op")?,
        floats(rows, "round_trips_per_op")?,
        floats(rows, "doorbells_per_op")?,
    ];
    let doubts = doubts(rows);
    let mut out = Vec::new();
    let mut order = distinct(phases.clone());
    order.sort();
    let headed = order.len() > 1;
    for phase in order {
        let mut best: Vec<usize> = Vec::new();
        for i in (0..phases.len()).filter(|i| phases[*i] == phase) {
            if best.iter().all(|b| variant[*b] != variant[i]) {
                best.push(i);
            }
        }
        // Primitives are compared where acknowledgements are waited for, or where none is.
        for (passive, how) in [(false, ""), (true, " with passive acknowledgement")] {
            let alike: Vec<usize> =
                best.iter().copied().filter(|i| variant[*i].ends_with(PASSIVE) == passive).collect();
            if let [first, .., last] = alike[..] {
                let ratio = rate[first].unwrap_or(0.0) / rate[last].unwrap_or(0.0);
                let (fastest, slowest) = (&variant[first], &variant[last]);
                clauses.push(format!(
                    "{phase}{how} on {name} runs most cycles a second {fastest}, {} those of {slowest}",
                    human::times(ratio)
                ));
            }
        }
        if headed {
            out.push(Row { name: phase, ink: Ink::Muted, cells: Vec::new() });
        }
        for i in best {
            let ink = ink::for_name(&variant[i]);
            let count = |v: Option<f64>| v.map_or(Cell::Missing, |v| Cell::Text(human::number(v), Ink::Text));
            out.push(Row {
                name: doubts[i].beside(variant[i].clone()),
                ink,
                cells: vec![
                    rate[i].map_or(Cell::Missing, |r| Cell::Bar(r, human::rate(r), ink)),
                    latency(p50[i], p99[i], ink),
                    count(verbs[i]),
                    count(trips[i]),
                    count(doorbells[i]),
                    count(coroutines[i]),
                ],
            });
        }
    }
    let column = |title: &str, weight: f64, kind| Column { title: title.to_owned(), weight, kind };
    Ok(Rows {
        columns: vec![
            column("cycles per second", 3.0, Kind::Linear),
            column("latency: ● median ○ 99th percentile", 3.0, Kind::Log10),
            column("verbs", 0.6, Kind::Linear),
            column("round trips", 0.75, Kind::Linear),
            column("doorbells", 0.7, Kind::Linear),
            column("coroutines", 0.75, Kind::Linear),
        ],
        rows: out,
        key: Vec::new(),
    })
}

/// A median and its tail as one cell.
pub fn latency(p50: Option<f64>, p99: Option<f64>, ink: Ink) -> Cell {
    match (p50, p99) {
        (Some(a), Some(b)) => Cell::Range(a, b, format!("{} – {}", human::nanos(a), human::nanos(b)), ink),
        (Some(a), None) => Cell::Range(a, a, human::nanos(a), ink),
        _ => Cell::Missing,
    }
}
