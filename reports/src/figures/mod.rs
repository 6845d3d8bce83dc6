//! From results to figures. Each file answers one group of questions; each figure carries the frame it was drawn
//! from, a sentence computed from that frame, and where its numbers come from.

pub mod asked;
pub mod best;
pub mod breakdown;
mod by_coroutines;
pub mod comparison;
pub mod experiments;
pub mod held;
pub mod missing;
pub mod primitives;
pub mod published;
pub mod regret;
pub mod requests;
pub mod scoreboard;
pub mod studies;
pub mod sweeps;
pub mod transactions;
pub mod tuning;
pub mod wanted;

use polars::prelude::DataFrame;

use crate::chart::Figure;
use crate::doubt::Doubt;
use crate::frame::{Framed, distinct};
use crate::human;
use crate::load::Results;
use crate::load::record::Provenance;

/// Parts of the page, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Section {
    /// Whole transactions under a plan.
    Transactions,
    /// Protocols, plans and workloads beside each other.
    Comparison,
    /// Which plan the tuner chose and whether it was right.
    Tuning,
    /// Phases alone.
    Studies,
    /// Verbs and messages alone.
    Primitives,
    /// Grids with a question.
    Experiments,
    /// The papers' claims beside what was got.
    Scoreboard,
}

impl Section {
    /// All parts in page order.
    pub const ALL: [Section; 7] = [
        Section::Scoreboard,
        Section::Transactions,
        Section::Comparison,
        Section::Tuning,
        Section::Studies,
        Section::Primitives,
        Section::Experiments,
    ];

    /// Anchor in the page.
    pub fn id(self) -> &'static str {
        match self {
            Section::Transactions => "transactions",
            Section::Comparison => "comparison",
            Section::Tuning => "tuning",
            Section::Studies => "studies",
            Section::Primitives => "primitives",
            Section::Experiments => "experiments",
            Section::Scoreboard => "scoreboard",
        }
    }

    /// Heading.
    pub fn title(self) -> &'static str {
        match self {
            Section::Transactions => "Transactions",
            Section::Comparison => "Protocols side by side",
            Section::Tuning => "Choosing a plan",
            Section::Studies => "Phases alone",
            Section::Primitives => "Primitives",
            Section::Experiments => "Experiments",
            Section::Scoreboard => "Published and reproduced",
        }
    }

    /// What the part is about.
    pub fn intro(self) -> &'static str {
        match self {
            Section::Transactions => {
                "Whole transactions, one plan beside the other. A plan says for each phase whether one-sided verbs or messages carry it."
            }
            Section::Comparison => {
                "Each protocol under each plan, workload by workload. Lock modes: nowait, waitdie and bounded-wait, shared among readers; with -exclusive, one holder, RCC's mode; occ, mvcc and sundial, of what is written, one holder; calvin, granted in order, shared among readers. Unless `remote` is set, records are spread evenly, so that one in as many as there are nodes is local; of TPC-C's all are but the stocks and customers of other warehouses."
            }
            Section::Tuning => {
                "The cost model ranks every plan that can run; verification then runs the rivals."
            }
            Section::Studies => {
                "One phase at a time, in each variant. What it needs before and after runs too, untimed."
            }
            Section::Primitives => "What a verb and a message cost before any transaction uses them.",
            Section::Experiments => "Grids, each with a question of its own.",
            Section::Scoreboard => {
                "What papers state, beside what the simulator gives. Calibrate claims may have set parameters; hold-out claims never did."
            }
        }
    }
}

/// One figure, with all that must stand beside it.
pub struct Drawn {
    /// File name without extension, and anchor.
    pub id: String,
    /// Where it belongs.
    pub section: Section,
    /// What it shows.
    pub title: String,
    /// What to look for, computed from `frame`.
    pub caption: String,
    /// One line per distinct origin of its numbers.
    pub provenance: Vec<(Provenance, String)>,
    /// The data.
    pub frame: DataFrame,
    /// The drawing.
    pub figure: Figure,
}

/// All figures that `results` have data for, in page order.
pub fn draw(results: &[Results]) -> Framed<Vec<Drawn>> {
    let of = |kind: &str| -> Vec<&Results> { results.iter().filter(|r| r.record.kind == kind).collect() };
    let characterized = of("characterize");
    let mut drawn = transactions::draw(&of("run"))?;
    drawn.extend(tuning::draw(&of("tune"))?);
    drawn.extend(regret::draw(&of("regret"))?);
    drawn.extend(studies::draw(&of("study"))?);
    drawn.extend(primitives::draw(&characterized)?);
    drawn.extend(sweeps::draw(&characterized)?);
    drawn.extend(comparison::draw(&of("experiment"))?);
    drawn.extend(experiments::draw(&of("experiment"))?);
    drawn.extend(requests::draw(&of("primitive"))?);
    drawn.extend(scoreboard::draw(&of("scoreboard"), results)?);
    for i in 0..drawn.len() {
        // Two runs may share a directory name; files and anchors may not.
        let twins = drawn[..i]
            .iter()
            .filter(|d| d.id == drawn[i].id || d.id.starts_with(&format!("{}--", drawn[i].id)));
        let twins = twins.count();
        if twins > 0 {
            drawn[i].id = format!("{}--{}", drawn[i].id, twins + 1);
        }
    }
    Ok(drawn)
}

/// The distinct origins of `results`, measured first; then how many points are not there, and, where points are doubtful, how many and why.
pub fn provenance_of<'a>(results: impl IntoIterator<Item = &'a Results>) -> Vec<(Provenance, String)> {
    let results: Vec<&Results> = results.into_iter().collect();
    let mut lines =
        distinct(results.iter().map(|r| (r.record.provenance, r.provenance_line(r.record.provenance))));
    lines.sort_by_key(|line| line.0);
    for results in &results {
        let (missing, all) =
            (missing::count(&results.record, &results.points), results.record.points_expected);
        if missing > 0 {
            lines.push((
                results.record.provenance,
                format!("{missing} of {} of {} not measured", human::count(all, "point"), results.label),
            ));
        }
    }
    for doubt in Doubt::ALL {
        for provenance in [Provenance::Measured, Provenance::Simulated] {
            let of = || results.iter().filter(|r| r.record.provenance == provenance).map(|r| &r.points);
            let doubtful: usize = of().map(|points| doubt.count(points)).sum();
            if doubtful > 0 {
                let points: usize = of().map(DataFrame::height).sum();
                let all = human::count(points as u64, &format!("{} point", provenance.name()));
                lines.push((provenance, format!("{} {}", doubt.sign(), doubt.told(doubtful, &all))));
            }
        }
    }
    lines
}

/// The origin of what the model foretold in `results`, where none of it ran.
pub fn foretold_by(results: &Results) -> Vec<(Provenance, String)> {
    vec![(Provenance::Forecast, results.provenance_line(Provenance::Forecast))]
}

/// What to call each run in a panel's title: its fabric, with its directory where two share one.
pub fn names(results: &[&Results]) -> Vec<String> {
    let fabric = |r: &Results| match r.record.fabric.is_empty() {
        true => r.label.clone(),
        false => r.record.fabric.clone(),
    };
    results
        .iter()
        .map(|r| match results.iter().filter(|o| fabric(o) == fabric(r)).count() {
            1 => fabric(r),
            _ => format!("{} ({})", fabric(r), r.label),
        })
        .collect()
}

/// A file name made of `text`: lower case, digits, hyphens.
pub fn slug(text: &str) -> String {
    let hyphens: String =
        text.to_lowercase().chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
    let parts: Vec<&str> = hyphens.split('-').filter(|p| !p.is_empty()).collect();
    let slug: String = parts.join("-").chars().take(60).collect();
    if slug.is_empty() { "unnamed".to_owned() } else { slug }
}

/// The horizontal axis as words of a title.
pub fn axis_title(axis: &str) -> String {
    axis.trim_start_matches("set.").replace('_', " ")
}

/// A place on an axis in few words: a value that tells what it is of stands alone.
pub fn place(axis: &str, value: &str) -> String {
    match axis {
        "verb" | "fabric" | "optimizations" | "plan" | "protocol" | "workload" | "variant" => {
            spelled(value.trim_start_matches("sim:")).to_owned()
        }
        "queue_pairs" => format!("{value} QP"),
        "addresses" => format!("{value} addr."),
        "payload" => format!("{value} B"),
        _ => format!("{} {value}", axis_title(axis)),
    }
}

/// Workloads, protocols and verbs as the literature spells them.
pub fn spelled(name: &str) -> &str {
    match name {
        "smallbank" => "SmallBank",
        "ycsb" => "YCSB",
        "tpcc" => "TPC-C",
        "tpcc-no" => "TPC-C new-order",
        "tpce-cp" => "TPC-E customer-position",
        "micro" => "Micro",
        "occ" => "OCC",
        "fasst" => "FaSST",
        "mvcc" => "MVCC",
        "nowait" => "NO-WAIT",
        "nowait-exclusive" => "NO-WAIT, exclusive reads",
        "waitdie" => "WAIT-DIE",
        "waitdie-exclusive" => "WAIT-DIE, exclusive reads",
        "bounded-wait" => "bounded wait",
        "sundial" => "Sundial",
        "calvin" => "Calvin",
        "read" => "READ",
        "write" => "WRITE",
        "cas" => "CAS",
        "fetch-add" => "FETCH_ADD",
        "send" => "SEND",
        "rpc" => "RPC",
        "rpc-write" => "RPC-WRITE",
        "rpc-two-writes" => "RPC, two WRITEs",
        "rpc-write-imm" => "RPC, WRITE_WITH_IMM",
        "rpc-write-send" => "RPC, WRITE and SEND",
        other => other,
    }
}
