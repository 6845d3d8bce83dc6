//! The plan that got the most of a tuner's candidates, by coroutines: what was foretold beside what came.

use polars::prelude::*;

use super::{Drawn, Section, provenance_of, slug};
use crate::chart::lines::{Axis, Lines, Series};
use crate::chart::scale::Kind;
use crate::chart::{Body, Figure, Format, Panel};
use crate::frame::{Framed, floats, stack, tagged, words};
use crate::human;
use crate::ink::{self, Dash, Ink, Look};
use crate::load::Results;
use crate::plan;

/// A column that was foretold, the one that came, what both are called, and how its ticks read.
type Both = (&'static str, &'static str, &'static str, Format);

const SHOWN: [Both; 2] = [
    ("predicted_per_s", "got_per_s", "transactions per second", human::short),
    ("predicted_mean_ns", "got_mean_ns", "mean latency", human::nanos),
];

/// A figure of a search whose best plan ran with several counts of coroutines.
pub fn draw(results: &Results, name: &str) -> Framed<Option<Drawn>> {
    let runs = results
        .points
        .clone()
        .lazy()
        .filter(col("coroutines").is_not_null().and(col("got_per_s").is_not_null()));
    // A count that was run in turns with the others has a row for each turn.
    let columns = ["predicted_per_s", "predicted_mean_ns", "got_per_s", "got_mean_ns"];
    let rows = runs
        .group_by_stable([col("plan"), col("description"), col("coroutines")])
        .agg(columns.map(|column| col(column).mean()))
        .sort(["coroutines"], SortMultipleOptions::default().with_maintain_order(true))
        .collect()?;
    if rows.height() < 2 {
        return Ok(None);
    }
    let counts = floats(&rows, "coroutines")?;
    let panel = |(foretold, got, title, format): Both| -> Framed<Panel> {
        let series = |column: &str, name: &str, look: Look| -> Framed<Series> {
            let values = floats(&rows, column)?;
            let points = counts.iter().zip(values).filter_map(|(x, y)| Some(((*x)?, y?, String::new())));
            Ok(Series::of(name.to_owned(), look, points.collect()))
        };
        let ink = ink::for_name(&words(&rows, "description")?[0]);
        let drawn = vec![
            series(got, "got", Look { ink, dash: Dash::Solid })?,
            series(foretold, "predicted", Look { ink: Ink::Other, dash: Dash::Dashed })?,
        ];
        let x = Axis { title: "coroutines per thread".to_owned(), kind: Kind::Log2, format: human::whole };
        let y = Axis { title: title.to_owned(), kind: Kind::Linear, format };
        let chip = Some(results.record.provenance);
        Ok(Panel { title: title.to_owned(), chip, body: Body::Lines(Lines::of(x, y, drawn, 215.0)) })
    };
    let panels = SHOWN.into_iter().map(panel).collect::<Framed<Vec<_>>>()?;
    let described = words(&rows, "description")?[0].clone();
    let all: Vec<&str> = ["plan", "description", "coroutines"].into_iter().chain(columns).collect();
    Ok(Some(Drawn {
        id: format!("tuner-coroutines-{}", slug(name)),
        section: Section::Tuning,
        title: format!("The plan that got the most, by coroutines, {name}"),
        caption: format!(
            "{}, with each count of coroutines that the search tries; of those within 1\u{a0}% of the most, or not told apart from it, \
             verified.plan.yaml has the quickest.",
            plan::quoted(&described)
        ),
        provenance: provenance_of([results]),
        frame: stack(vec![tagged(results, rows.lazy(), &all)])?,
        figure: Figure { columns: 2, panels },
    }))
}
