//! Experiment files.
//!
//! ```yaml
//! question: Which primitive should lock when few records are hot?
//! fabric: sim:cx4-edr
//! workload: smallbank
//! set: {hot_accounts_share: 0.04}
//! protocol: occ
//! nodes: 3
//! duration: 5ms
//! seed: 1
//! grid:
//!   plan: [one-sided, two-sided, drtm-h]
//!   coroutines: [1, 4, 16]
//! figures:
//!   - {title: Throughput, x: coroutines, y: committed_per_s, by: plan}
//! ```

use std::collections::BTreeMap;
use std::path::Path;

use primitives::measure::{Kind, point_columns};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::combinations;
use super::entries::{AxisValues, Entries};
use super::grid::{Axis, Point, expand};
use super::limits;
use super::places::{At, Places};
use super::primitive::PrimitiveSpec;
use super::run::{Refused, RunSpec, Span};
use crate::error::CliError;
use crate::names::{suggest, workloads};
use crate::nearby::Wanted;
use crate::settings::{self, Misfit};
use crate::yaml::{Document, Spanned};

/// Counted time of a primitive point where the file does not say: thousands of requests per core.
const PRIMITIVE_USUAL: Span = Span::from_ns(100_000);

/// What the points of an experiment are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SpecKind {
    /// Runs of a workload.
    #[default]
    Run,
    /// Requests alone: what NICs and cores give, without transactions.
    Primitive,
    /// Combinations drawn from the seed, or points that are given: each tuned and compared with every plan there is.
    Regret,
}

impl SpecKind {
    /// The kind of its result directories.
    pub fn results(self) -> Kind {
        match self {
            SpecKind::Run => Kind::Experiment,
            SpecKind::Primitive => Kind::Primitive,
            SpecKind::Regret => Kind::Regret,
        }
    }
}

/// A figure wanted: one column against one axis, a line for each value of another axis.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Figure {
    /// Its title; the question if not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// An axis of the grid, or a column.
    pub x: String,
    /// A column of `points.csv`.
    pub y: String,
    /// An axis of the grid.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// Which points, by axis; all of them if not given.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub at: BTreeMap<String, Value>,
}

/// A checked experiment. Serialized it is the `spec` of `run.json`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Experiment {
    /// The question it answers.
    pub question: String,
    /// What its points are.
    pub kind: SpecKind,
    /// What holds for all points.
    pub base: RunSpec,
    /// What changes from point to point.
    pub grid: Vec<Axis>,
    /// How many combinations are drawn, where points are combinations.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub combinations: Option<u64>,
    /// The protocols that the tuner chooses from in every combination; of none, the one that is drawn.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub protocols: Vec<String>,
    /// What to draw.
    pub figures: Vec<Figure>,
    /// The points, in order.
    #[serde(skip)]
    pub points: Vec<Point>,
    /// Where it all is written.
    #[serde(skip)]
    pub places: Places,
}

/// The file as written. Values are checked afterwards, by the parsers that flags use.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    question: Option<Spanned<String>>,
    #[serde(default)]
    kind: SpecKind,
    fabric: Option<Spanned<Value>>,
    workload: Option<Spanned<Value>>,
    #[serde(default)]
    set: Entries<Spanned<Value>>,
    protocol: Option<Spanned<Value>>,
    plan: Option<Spanned<Value>>,
    nodes: Option<Spanned<Value>>,
    threads: Option<Spanned<Value>>,
    coroutines: Option<Spanned<Value>>,
    replicas: Option<Spanned<Value>>,
    warm_cache: Option<Spanned<Value>>,
    cache_bytes: Option<Spanned<Value>>,
    reserve_bytes: Option<Spanned<Value>>,
    clock_skew: Option<Spanned<Value>>,
    duration: Option<Spanned<Value>>,
    precision: Option<Spanned<Value>>,
    max_duration: Option<Spanned<Value>>,
    seed: Option<Spanned<Value>>,
    combinations: Option<Spanned<u64>>,
    protocols: Option<Spanned<Value>>,
    verb: Option<Spanned<Value>>,
    payload: Option<Spanned<Value>>,
    outstanding: Option<Spanned<Value>>,
    doorbell_batch: Option<Spanned<Value>>,
    signal_period: Option<Spanned<Value>>,
    queue_pairs: Option<Spanned<Value>>,
    servers: Option<Spanned<Value>>,
    addresses: Option<Spanned<Value>>,
    memory: Option<Spanned<Value>>,
    context: Option<Spanned<Value>>,
    ack: Option<Spanned<Value>>,
    atomics_percent: Option<Spanned<Value>>,
    peers: Option<Spanned<Value>>,
    transport: Option<Spanned<Value>>,
    reply: Option<Spanned<Value>>,
    #[serde(rename = "loop")]
    asker: Option<Spanned<Value>>,
    optimizations: Option<Spanned<Value>>,
    #[serde(default)]
    grid: Entries<AxisValues>,
    #[serde(default)]
    figures: Vec<WrittenFigure>,
}

/// A figure as written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenFigure {
    title: Option<String>,
    x: Spanned<String>,
    y: Spanned<String>,
    by: Option<Spanned<String>>,
    #[serde(default)]
    at: Entries<Spanned<Value>>,
}

impl Experiment {
    /// Reads and checks a file.
    ///
    /// # Errors
    /// With file, line and column.
    pub fn read(path: &Path) -> Result<Experiment, CliError> {
        Experiment::read_for(path, None)
    }

    /// [`Experiment::read`] of one that is measured over so many processes, each a node: where the file says nothing of nodes it has as many.
    ///
    /// # Errors
    /// With file, line and column.
    pub fn read_for(path: &Path, processes: Option<u32>) -> Result<Experiment, CliError> {
        let document = Document::read(path).map_err(|error| Wanted::Experiment.told(path, error))?;
        Experiment::parse_for(&document, processes)
    }

    /// Checks a document.
    ///
    /// # Errors
    /// With file, line and column.
    pub fn parse(document: &Document) -> Result<Experiment, CliError> {
        Experiment::parse_for(document, None)
    }

    fn parse_for(document: &Document, processes: Option<u32>) -> Result<Experiment, CliError> {
        let written: Written = document.parse().map_err(of_perftest)?;
        document.has_all_values()?;
        const QUESTION: &str = "an experiment needs a question";
        const SAY: &str =
            "say what it answers, as in `question: Which primitive should lock when few records are hot?`";
        let question = written.question.as_ref();
        let question = question.ok_or_else(|| document.error_at(1, 1, QUESTION).hint(SAY))?;
        if question.value.trim().is_empty() {
            return Err(document.error(question, QUESTION).hint(SAY));
        }
        let mut base = base(document, &written)?;
        if let Some(nodes) = processes {
            if written.nodes.is_none() {
                base.nodes = nodes;
            }
            if written.precision.is_none() {
                // What is usual; processes measure for a time, and know no longest one.
                (base.precision, base.max_duration) = (None, None);
            }
        }
        let grid = grid(document, &base, &written.grid)?;
        settings(document, &base, &written)?;
        let first = (written.kind == SpecKind::Regret).then(|| first_given(&written)).flatten();
        if let (Some(count), true) = (&written.combinations, written.kind != SpecKind::Regret) {
            return Err(document.error(count, "combinations: they are drawn for `kind: regret` alone"));
        }
        let protocols = match &written.protocols {
            Some(given) if written.kind != SpecKind::Regret => {
                return Err(document.error(given, "protocols: they are chosen from in `kind: regret` alone"));
            }
            Some(given) => combinations::protocols(document, given)?,
            None => Vec::new(),
        };
        let figures = figures(document, written.kind, &grid, &written.figures)?;
        let places = places(document, &written);
        contradicted(document, &base, &written)?;
        let mut points = match (written.kind, &first) {
            (SpecKind::Regret, None) => {
                combinations::drawn(document, written.combinations.as_ref(), base.seed, &protocols)?
            }
            _ => expand(&base, &grid).map_err(|why| match written.grid.0.first() {
                Some((axis, _)) => document.error(axis, format!("grid: {why}")),
                None => CliError::usage(format!("{}: {why}", document.name)),
            })?,
        };
        if !written.says_duration() && written.kind != SpecKind::Regret {
            // By each point's own fabric: what is usual where time is real is far too long where it is simulated.
            for point in &mut points {
                point.spec.duration = limits::usual_duration(&point.spec.fabric);
            }
        }
        if let Some((key, at)) = first {
            raced(document, &written, &key, at)?;
            combinations::given(&mut points, &protocols, &places)?;
        }
        for point in &points {
            point.spec.check().map_err(|unfit| places.blame(point, unfit.keys, unfit.in_file()))?;
        }
        let combinations = written.combinations.map(|count| count.value);
        let real = points.iter().filter(|point| !point.spec.fabric.virtual_time()).count();
        if real != 0 && real != points.len() {
            let message = format!("{}: real and virtual time in one experiment", document.name);
            return Err(
                CliError::usage(message).hint("make two experiments, and give both to `doorbell report`")
            );
        }
        Ok(Experiment {
            question: question.value.clone(),
            kind: written.kind,
            base,
            grid,
            combinations,
            protocols,
            figures,
            points,
            places,
        })
    }

    /// Names of the axes, in order.
    pub fn axes(&self) -> Vec<String> {
        self.grid.iter().map(|axis| axis.name.clone()).collect()
    }

    /// Whether time is virtual at every point.
    pub fn virtual_time(&self) -> bool {
        self.points.iter().all(|point| point.spec.fabric.virtual_time())
    }

    /// The fabrics of all points, each once, joined by commas.
    pub fn fabrics(&self) -> String {
        if self.kind == SpecKind::Regret && !self.points.iter().any(|point| point.pure) {
            // Nearly as many as there are points.
            return "sim:shipped,sim:drawn".to_owned();
        }
        let mut names: Vec<String> = Vec::new();
        for point in &self.points {
            let name = point.spec.fabric.to_string();
            if !names.contains(&name) {
                names.push(name);
            }
        }
        names.join(",")
    }
}

impl Written {
    /// Whether the file says how long points are measured, for all or on the grid.
    fn says_duration(&self) -> bool {
        self.duration.is_some() || self.grid.0.iter().any(|(axis, _)| axis.value == "duration")
    }

    /// What holds for all points, by the names it is written with.
    fn of_base(&self) -> [(&'static str, &Option<Spanned<Value>>); 33] {
        [
            ("fabric", &self.fabric),
            ("workload", &self.workload),
            ("protocol", &self.protocol),
            ("plan", &self.plan),
            ("nodes", &self.nodes),
            ("threads", &self.threads),
            ("coroutines", &self.coroutines),
            ("replicas", &self.replicas),
            ("warm_cache", &self.warm_cache),
            ("cache_bytes", &self.cache_bytes),
            ("reserve_bytes", &self.reserve_bytes),
            ("clock_skew", &self.clock_skew),
            ("duration", &self.duration),
            ("precision", &self.precision),
            ("max_duration", &self.max_duration),
            ("seed", &self.seed),
            ("verb", &self.verb),
            ("payload", &self.payload),
            ("outstanding", &self.outstanding),
            ("doorbell_batch", &self.doorbell_batch),
            ("signal_period", &self.signal_period),
            ("queue_pairs", &self.queue_pairs),
            ("servers", &self.servers),
            ("addresses", &self.addresses),
            ("memory", &self.memory),
            ("context", &self.context),
            ("ack", &self.ack),
            ("atomics_percent", &self.atomics_percent),
            ("peers", &self.peers),
            ("transport", &self.transport),
            ("reply", &self.reply),
            ("loop", &self.asker),
            ("optimizations", &self.optimizations),
        ]
    }
}

/// The error of a key that there is not, with what is said instead of what perftest's users look for.
fn of_perftest(error: CliError) -> CliError {
    let known = [
        (&["n", "iters", "iterations", "requests"][..], "requests are counted for a time: `duration: 2s`"),
        (
            &["t", "tx_depth", "depth", "qd"],
            "so many requests are in flight as `coroutines` times `outstanding`, of each thread",
        ),
        (&["s", "size", "bytes", "msg_size"], "`payload: 64`"),
        (&["q", "qp", "qps"], "`queue_pairs: 4`"),
        (&["Q", "cq_mod"], "`signal_period: 100`: one request in so many is signaled"),
        (&["l", "post_list"], "`doorbell_batch: 16`: so many requests to a doorbell"),
        (&["c", "connection"], "`transport: rc`, `uc` or `ud`"),
        (
            &[
                "d",
                "dev",
                "device",
                "i",
                "ib_port",
                "x",
                "gid",
                "gid_index",
                "m",
                "mtu",
                "I",
                "inline",
                "inline_size",
                "tclass",
                "sl",
            ],
            "it stands in the fabric: `fabric: verbs:DEVICE:PORT,gid=N,mtu=B,inline=B,tc=N,sl=N`",
        ),
    ];
    let asked = error.message().split_once("unknown field `").and_then(|(_, rest)| rest.split('`').next());
    let found = known.iter().find(|(names, _)| asked.is_some_and(|asked| names.contains(&asked)));
    match found {
        Some((_, say)) => error.hint(*say),
        None => error,
    }
}

fn at<T>(value: &Spanned<T>) -> At {
    (value.referenced.line(), value.referenced.column())
}

fn places(document: &Document, written: &Written) -> Places {
    let base = written.of_base().into_iter();
    let axes = written.grid.0.iter();
    Places {
        document: document.clone(),
        base: base.filter_map(|(key, value)| Some((key.to_owned(), at(value.as_ref()?)))).collect(),
        axes: axes
            .map(|(name, values)| (name.value.clone(), values.all().iter().map(at).collect()))
            .collect(),
    }
}

fn base(document: &Document, written: &Written) -> Result<RunSpec, CliError> {
    let mut base = RunSpec::default();
    if written.kind == SpecKind::Primitive {
        base.primitive = Some(PrimitiveSpec::default());
        base.duration = PRIMITIVE_USUAL;
    }
    for (key, value) in written.of_base() {
        if let Some(value) = value {
            base.apply(key, &value.value).map_err(|refused| document.refuse(value, &[key], key, &refused))?;
        }
    }
    if !written.says_duration() {
        let asked = base.precision;
        base.usual_length();
        base.precision = asked.or(base.precision);
    }
    for (key, value) in &written.set.0 {
        base.apply(&format!("set.{}", key.value), &value.value)
            .map_err(|why| document.error(key, format!("set.{}: {why}", key.value)))?;
    }
    Ok(base)
}

/// The workloads that points run: the one that holds for all, or those of the axis.
fn workloads_of(base: &RunSpec, written: &Written) -> Vec<String> {
    if base.primitive.is_some() {
        return Vec::new();
    }
    let axis = written.grid.0.iter().find(|(name, _)| name.value == "workload");
    match axis {
        Some((_, values)) => {
            values.all().iter().filter_map(|value| value.value.as_str().map(str::to_owned)).collect()
        }
        None => vec![base.workload.clone()],
    }
}

/// Refuses settings that a workload of the experiment does not have, and values out of their range, at their places.
fn settings(document: &Document, base: &RunSpec, written: &Written) -> Result<(), CliError> {
    let of = workloads_of(base, written);
    let given = written.set.0.iter().map(|(key, value)| (key.value.as_str(), key, value));
    let axes = written.grid.0.iter().filter_map(|(name, values)| {
        let key = name.value.strip_prefix("set.")?;
        Some(values.all().iter().map(move |value| (key, name, value)))
    });
    for (key, at, value) in given.chain(axes.flatten()) {
        for workload in &of {
            // `ycsb.think_us` is for that workload alone.
            let own = key.split_once('.').filter(|(workload, _)| workloads().contains(workload));
            let (workload, key) = own.unwrap_or((workload, key));
            match settings::check(workload, key, &value.value) {
                Err(Misfit::Key(why)) => return Err(document.error(at, format!("{}: {why}", at.value))),
                Err(Misfit::Value(why)) => return Err(document.error(value, why)),
                Ok(()) => {}
            }
        }
    }
    Ok(())
}

/// The first key that gives points, if any does, and where it or its value is: all but the seed, by which combinations are drawn.
fn first_given(written: &Written) -> Option<(String, At)> {
    let of_base = written.of_base().into_iter().filter(|(key, _)| *key != "seed");
    let mut of_base = of_base.filter_map(|(key, value)| Some((key.to_owned(), at(value.as_ref()?))));
    let named =
        || written.set.0.first().map(|entry| &entry.0).or(written.grid.0.first().map(|entry| &entry.0));
    of_base.next().or_else(|| named().map(|key| (key.value.clone(), at(key))))
}

/// Refuses what points that are given, of which `first` tells at `at`, cannot have beside a race of all plans.
fn raced(document: &Document, written: &Written, first: &str, (line, column): At) -> Result<(), CliError> {
    if let Some(count) = &written.combinations {
        let why = format!(
            "combinations: they are drawn, and here points are given (`{first}` at {line}:{column}): one of the two"
        );
        return Err(document
            .error(count, why)
            .hint("leave `combinations` out, or all keys of a run but `seed`"));
    }
    let of_base = written.of_base().into_iter().filter_map(|(key, value)| Some((key, at(value.as_ref()?))));
    let of_grid = written.grid.0.iter().map(|(axis, _)| (axis.value.as_str(), at(axis)));
    for (key, (line, column)) in of_base.chain(of_grid) {
        let both = (key == "protocol" && written.protocols.is_some())
            .then_some("`protocols` says already which ones the tuner chooses from");
        if let Some(why) = combinations::decided(key).or(both) {
            return Err(document.error_at(line, column, format!("{key}: {why}")));
        }
    }
    Ok(())
}

fn grid(document: &Document, base: &RunSpec, written: &Entries<AxisValues>) -> Result<Vec<Axis>, CliError> {
    let mut axes = Vec::new();
    for (name, values) in &written.0 {
        if let AxisValues::One(value) = values {
            let why = format!("grid.{}: an axis has a list of values, in brackets", name.value);
            let value = super::run::written(value);
            let hint = format!(
                "write `{}: [{value}]`; what holds for all points stands outside of `grid`",
                name.value
            );
            return Err(document.error(name, why).hint(hint));
        }
        let values = values.all();
        if values.is_empty() {
            return Err(document.error(name, format!("grid.{}: at least one value is needed", name.value)));
        }
        let mut seen: Vec<(RunSpec, Value)> = Vec::new();
        let mut plans: Vec<String> = Vec::new();
        for (number, value) in values.iter().enumerate() {
            let refused = |why: Refused| {
                let (number, who) = (number.to_string(), format!("grid.{}", name.value));
                document.refuse(value, &["grid", &name.value, &number], &who, &why)
            };
            // Axis by axis; what fits only together with other axes is checked for each point.
            let mut one = base.clone();
            if let Err(why) = one.apply(&name.value, &value.value) {
                let unknown = why.why.contains("cannot be set");
                return Err(if unknown {
                    document.error(name, format!("grid: {why}"))
                } else {
                    refused(why)
                });
            }
            if let Some((_, first)) = seen.iter().find(|(other, _)| other.asks_the_same(&one)) {
                let why = match *first == value.value {
                    true => format!("{first} is there twice"),
                    false => {
                        format!("{first} and {} are the same, which would be measured twice", value.value)
                    }
                };
                return Err(refused(why.into()));
            }
            if name.value == "plan" {
                let shown = one.plan.to_string();
                if plans.contains(&shown) {
                    return Err(refused(format!("two plans are called `{shown}`").into()));
                }
                plans.push(shown);
            }
            seen.push((one, value.value.clone()));
        }
        let values = seen.into_iter().map(|(_, value)| value).collect();
        axes.push(Axis { name: name.value.clone(), values });
    }
    Ok(axes)
}

/// Refuses a value that is to hold for all points, and holds at none since an axis of that name has others.
fn contradicted(document: &Document, base: &RunSpec, written: &Written) -> Result<(), CliError> {
    let holds = |key: &str, value: &Spanned<Value>| {
        let mut one = base.clone();
        one.apply(key, &value.value).is_ok() && one.asks_the_same(base)
    };
    let base =
        written.of_base().into_iter().filter_map(|(key, value)| Some((key.to_owned(), value.as_ref()?)));
    let set = written.set.0.iter().map(|(key, value)| (format!("set.{}", key.value), value));
    for (key, value) in base.chain(set) {
        let axis = written.grid.0.iter().find(|(axis, _)| axis.value == key);
        let Some((axis, _)) = axis.filter(|(_, values)| !values.all().iter().any(|v| holds(&key, v))) else {
            continue;
        };
        let at = &axis.referenced;
        let why =
            format!("{key}: no point has this value, the grid gives others at {}:{}", at.line(), at.column());
        return Err(document.error(value, why).hint("keep one of the two"));
    }
    Ok(())
}

fn figures(
    document: &Document,
    kind: SpecKind,
    axes: &[Axis],
    written: &[WrittenFigure],
) -> Result<Vec<Figure>, CliError> {
    let axis_names: Vec<&str> = axes.iter().map(|axis| axis.name.as_str()).collect();
    let columns = &point_columns(kind.results())[..];
    for WrittenFigure { x, y, by, at, .. } in written {
        let refused = |what: &str, name: &Spanned<String>, known: &[&str]| {
            let advice = if known.is_empty() {
                "the grid has no axes".to_owned()
            } else {
                suggest(&name.value, known)
            };
            Err(document.error(name, format!("figure: {what} `{}` is not there; {advice}", name.value)))
        };
        if !columns.contains(&y.value.as_str()) {
            return refused("column", y, columns);
        }
        if !axis_names.contains(&x.value.as_str()) && !columns.contains(&x.value.as_str()) {
            let mut known = axis_names.clone();
            known.extend(columns.iter().filter(|column| !axis_names.contains(column)));
            return refused("axis or column", x, &known);
        }
        if let Some(by) = by.as_ref().filter(|by| !axis_names.contains(&by.value.as_str())) {
            return refused("axis", by, &axis_names);
        }
        for (name, value) in &at.0 {
            let Some(axis) = axes.iter().find(|axis| axis.name == name.value) else {
                return refused("axis", name, &axis_names);
            };
            // A plan written out goes by its name.
            let is = |v: &Value| *v == value.value || v.get("name") == Some(&value.value);
            if !axis.values.iter().any(is) {
                let why = format!("figure: no value of {} is {}", name.value, value.value);
                return Err(document.error(value, why));
            }
        }
    }
    let drawn = |figure: &WrittenFigure| Figure {
        title: figure.title.clone(),
        x: figure.x.value.clone(),
        y: figure.y.value.clone(),
        by: figure.by.as_ref().map(|by| by.value.clone()),
        at: figure.at.0.iter().map(|(name, value)| (name.value.clone(), value.value.clone())).collect(),
    };
    Ok(written.iter().map(drawn).collect())
}

#[cfg(test)]
#[path = "experiment_tests.rs"]
mod tests;
