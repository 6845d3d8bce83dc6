//! Latency and rate of each verb over payload, and the optimization ladders.

use polars::prelude::*;

use super::{Drawn, Section, names, provenance_of, slug, spelled};
use crate::chart::lines::{Axis, Lines, Series};
use crate::chart::scale::Kind;
use crate::chart::{Body, Figure, Format, Panel, bars};
use crate::doubt::{doubts, medians};
use crate::frame::{Framed, distinct, floats, stack, tagged, words};
use crate::human;
use crate::ink;
use crate::load::Results;

/// The steps of a ladder, from the bottom.
const LADDER: [&str; 5] = ["base", "+coroutines", "+outstanding", "+doorbell", "+passive-ack"];
const VERBS: [&str; 5] = ["read", "write", "cas", "fetch-add", "rpc"];

/// Draws what the characterizations hold.
pub fn draw(results: &[&Results]) -> Framed<Vec<Drawn>> {
    let mut drawn = Vec::new();
    drawn.extend(over_payload(results, &LATENCY)?);
    drawn.extend(over_payload(results, &RATE)?);
    for (results, name) in results.iter().zip(names(results)) {
        drawn.extend(ladder(results, &name)?);
    }
    Ok(drawn)
}

/// A figure of curves over payload.
struct Question {
    id: &'static str,
    title: &'static str,
    /// The first of these that has rows is drawn; an unloaded rate would not answer a question about rates.
    benches: &'static [&'static str],
    /// Columns drawn, each with the title of its panel.
    measures: &'static [(&'static str, &'static str)],
    format: Format,
    caption: fn(&str, &Pair) -> String,
}

const LATENCY: Question = Question {
    id: "latency-by-payload",
    title: "Latency by payload",
    benches: &["latency", "payload"],
    measures: &[("latency_p50_ns", "median latency"), ("latency_p99_ns", "99th percentile")],
    format: human::nanos,
    caption: |name, pair| {
        format!(
            "on {name}, a READ of {} takes {} at the median and an RPC {}, {} as long",
            human::bytes(pair.payload),
            human::nanos(pair.read),
            human::nanos(pair.rpc),
            human::times(pair.rpc / pair.read)
        )
    },
};

const RATE: Question = Question {
    id: "rate-by-payload",
    title: "Rate by payload",
    benches: &["payload"],
    measures: &[("rate_per_s", "operations per second")],
    format: human::short,
    caption: |name, pair| {
        format!(
            "on {name}, one-sided READ is {} RPC at {} ({} against {})",
            human::times(pair.read / pair.rpc),
            human::bytes(pair.payload),
            human::rate(pair.read),
            human::rate(pair.rpc)
        )
    },
};

/// READ and RPC at one payload.
pub struct Pair {
    /// The payload in bytes.
    pub payload: f64,
    /// READ's value.
    pub read: f64,
    /// RPC's value.
    pub rpc: f64,
}

/// READ and RPC of `column` at the payload nearest 64 B that both have; 64 B is the record the papers use.
pub fn pair(frame: &DataFrame, column: &str) -> Framed<Option<Pair>> {
    let rows: Vec<_> = words(frame, "verb")?
        .into_iter()
        .zip(floats(frame, "payload_bytes")?)
        .zip(floats(frame, column)?)
        .collect();
    let value = |verb: &str, payload: f64| {
        let hit = rows.iter().find(|((v, p), value)| v == verb && *p == Some(payload) && value.is_some());
        hit.and_then(|(_, value)| *value).filter(|v| *v > 0.0)
    };
    let mut payloads: Vec<f64> = rows.iter().filter_map(|((_, p), _)| *p).collect();
    payloads.sort_by(|a, b| (a - 64.0).abs().total_cmp(&(b - 64.0).abs()));
    let both = |payload| Some(Pair { payload, read: value("read", payload)?, rpc: value("rpc", payload)? });
    Ok(payloads.into_iter().find_map(both))
}

/// The rows of the first of `benches` that has any, one per verb and payload.
pub fn by_payload(results: &Results, benches: &[&str]) -> Framed<DataFrame> {
    for bench in benches {
        let rows = results
            .points
            .clone()
            .lazy()
            .filter(col("bench").eq(lit(*bench)).and(col("payload_bytes").is_not_null()))
            .group_by_stable([col("bench"), col("verb"), col("payload_bytes")])
            .agg(medians(&["rate_per_s", "latency_p50_ns", "latency_p99_ns", "latency_p999_ns"]))
            .sort(["payload_bytes"], SortMultipleOptions::default().with_maintain_order(true))
            .collect()?;
        if rows.height() > 0 {
            return Ok(rows);
        }
    }
    Ok(DataFrame::empty())
}

fn over_payload(results: &[&Results], question: &Question) -> Framed<Option<Drawn>> {
    let mut frames = Vec::new();
    let mut panels = Vec::new();
    let mut sentences = Vec::new();
    let mut sources = Vec::new();
    for (results, name) in results.iter().zip(names(results)) {
        let rows = by_payload(results, question.benches)?;
        if rows.height() == 0 || floats(&rows, question.measures[0].0)?.iter().all(Option::is_none) {
            continue;
        }
        for (column, title) in question.measures {
            panels.push(Panel {
                title: name.clone(),
                chip: Some(results.record.provenance),
                body: Body::Lines(Lines::of(
                    Axis { title: "payload".to_owned(), kind: Kind::Log2, format: human::bytes },
                    Axis { title: (*title).to_owned(), kind: Kind::Log10, format: question.format },
                    verb_series(&rows, "payload_bytes", column)?,
                    290.0,
                )),
            });
        }
        if let Some(pair) = pair(&rows, question.measures[0].0)? {
            sentences.push((question.caption)(&name, &pair));
        }
        let columns = [
            "bench",
            "verb",
            "payload_bytes",
            "rate_per_s",
            "latency_p50_ns",
            "latency_p99_ns",
            "latency_p999_ns",
        ];
        frames.push(tagged(results, rows.lazy(), &columns));
        sources.push(*results);
    }
    if panels.is_empty() {
        return Ok(None);
    }
    Ok(Some(Drawn {
        id: question.id.to_owned(),
        section: Section::Primitives,
        title: question.title.to_owned(),
        caption: sentence(&sentences, "READ and RPC were not both measured at one payload."),
        provenance: provenance_of(sources),
        frame: stack(frames)?,
        figure: Figure { columns: 2, panels },
    }))
}

/// Clauses as one sentence, or `otherwise` where there are none.
pub fn sentence(clauses: &[String], otherwise: &str) -> String {
    let text = clauses.join("; ");
    let mut chars = text.chars();
    match chars.next() {
        Some(first) => format!("{}{}.", first.to_uppercase(), chars.as_str()),
        None => otherwise.to_owned(),
    }
}

/// One curve per verb, known verbs first.
pub fn verb_series(rows: &DataFrame, x: &str, y: &str) -> Framed<Vec<Series>> {
    let verbs = words(rows, "verb")?;
    let points: Vec<_> = floats(rows, x)?.into_iter().zip(floats(rows, y)?).zip(doubts(rows)).collect();
    let mut order: Vec<String> =
        VERBS.iter().map(|v| (*v).to_owned()).filter(|v| verbs.contains(v)).collect();
    order.extend(verbs.iter().cloned());
    let order = distinct(order);
    let looks = ink::for_names(order.iter().map(String::as_str));
    let mut series = Vec::new();
    for (verb, look) in order.iter().zip(looks) {
        let of_verb = verbs.iter().zip(&points).filter(|(v, _)| *v == verb);
        let points: Vec<_> =
            of_verb.filter_map(|(_, ((x, y), doubts))| Some(((*x)?, (*y)?, doubts.signs()))).collect();
        if !points.is_empty() {
            series.push(Series::of(spelled(verb).to_owned(), look, points));
        }
    }
    Ok(series)
}

fn ladder(results: &Results, name: &str) -> Framed<Option<Drawn>> {
    let mut frames = Vec::new();
    let mut panels = Vec::new();
    let mut clauses = Vec::new();
    for (bench, title, what) in [
        ("ladder-read", "Reading several objects", "reads"),
        ("ladder-write", "Writing several objects", "writes"),
    ] {
        let rows = results
            .points
            .clone()
            .lazy()
            .filter(col("bench").eq(lit(bench)))
            .group_by_stable([col("bench"), col("verb"), col("optimizations")])
            .agg(medians(&["rate_per_s", "latency_p50_ns", "doorbells_per_op"]))
            .collect()?;
        if rows.height() == 0 {
            continue;
        }
        let series = ladder_series(&rows)?;
        clauses.extend(climbs(&series.0, &series.1, what));
        panels.push(Panel {
            title: format!("{title}, {name}"),
            chip: Some(results.record.provenance),
            body: Body::Bars(bars::Bars {
                y_title: "operations per second".to_owned(),
                format: human::short,
                categories: series.1,
                series: series.0,
            }),
        });
        let columns = ["bench", "verb", "optimizations", "rate_per_s", "latency_p50_ns", "doorbells_per_op"];
        frames.push(tagged(results, rows.lazy(), &columns));
    }
    if panels.is_empty() {
        return Ok(None);
    }
    Ok(Some(Drawn {
        id: format!("ladder-{}", slug(name)),
        section: Section::Primitives,
        title: format!("Optimizations added one by one, {name}"),
        caption: sentence(&clauses, "No primitive has both a base and an optimized rate."),
        provenance: provenance_of([results]),
        frame: stack(frames)?,
        figure: Figure { columns: 2, panels },
    }))
}

fn ladder_series(rows: &DataFrame) -> Framed<(Vec<bars::Series>, Vec<String>)> {
    let verbs = words(rows, "verb")?;
    let steps = words(rows, "optimizations")?;
    let rates = floats(rows, "rate_per_s")?;
    let known = LADDER.iter().map(|s| (*s).to_owned()).filter(|s| steps.contains(s));
    let categories = distinct(known.chain(steps.iter().cloned()).collect::<Vec<_>>());
    let mut order = distinct(verbs.clone());
    order.sort();
    let doubts = doubts(rows);
    let row =
        |verb: &String, step: &String| (0..rates.len()).find(|i| verbs[*i] == *verb && steps[*i] == *step);
    let looks = ink::for_names(order.iter().map(String::as_str));
    let series = order.iter().zip(looks).map(|(verb, look)| {
        let at = || categories.iter().map(|step| row(verb, step));
        let signs = at().map(|row| row.map_or(String::new(), |i| doubts[i].signs())).collect();
        bars::Series::of(verb.clone(), look, at().map(|row| row.and_then(|i| rates[i])).collect(), signs)
    });
    Ok((series.collect(), categories))
}

/// A last rate below this share of the peak is told beside it.
const FALLEN: f64 = 0.9;

/// How far each primitive climbs, where it ends if well below its peak, and which step lifts any of them most.
fn climbs(series: &[bars::Series], steps: &[String], what: &str) -> Option<String> {
    let mut clauses = Vec::new();
    let mut lift: Option<(usize, f64)> = None;
    for one in series {
        let base = one.values.first().copied().flatten().filter(|b| *b > 0.0)?;
        let known = || one.values.iter().zip(steps).filter_map(|(rate, step)| Some(((*rate)?, step)));
        let (top, at) = known().max_by(|a, b| a.0.total_cmp(&b.0))?;
        let (end, last) = known().next_back()?;
        let climbed = format!("{} {} to", human::times(top / base), one.name);
        let top_rate = human::rate(top);
        clauses.push(match end < FALLEN * top {
            true => format!(
                "{climbed} a peak of {top_rate} with {}, ending at {} with {}",
                plain(at),
                human::rate(end),
                plain(last)
            ),
            false => format!("{climbed} {top_rate}"),
        });
        for (i, pair) in one.values.windows(2).enumerate() {
            if let [Some(before), Some(after)] = pair {
                let ratio = after / before;
                if ratio.is_finite() && lift.is_none_or(|l| ratio > l.1) {
                    lift = Some((i + 1, ratio));
                }
            }
        }
    }
    let (step, ratio) = lift?;
    let step = plain(steps.get(step)?);
    Some(format!(
        "{what} climb {}, the largest step being {step} ({})",
        clauses.join(" and "),
        human::times(ratio)
    ))
}

/// A step's name in a sentence.
fn plain(step: &str) -> &str {
    step.trim_start_matches('+')
}
