//! `doorbell experiment`: files in, one result directory per file out.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use engine::protocol::Protocol;
use phases::plan::Preset;
use primitives::measure::{
    PointResult, ProfileRef, ResultDir, Row, RunRecord, Shard, TableName, count, known_columns,
};
use primitives::mesh::Session;
use primitives::units::Nanos;
use serde_json::{Value, json};

use super::{Context, tune};
use crate::args::ExperimentArgs;
use crate::claims::library;
use crate::cluster::point::Asked;
use crate::cluster::{Cluster, Described, give_up, run_member, share_of_the_driver};
use crate::directory::{HOME, Place};
use crate::error::{CliError, Exit};
use crate::fabrics::{Fabric, profile, require, warnings};
use crate::output::{emit, human_rate, table};
use crate::primitive;
use crate::regret::{self, Summary};
use crate::spec::{Experiment, FabricChoice, PlanChoice, Point, RunSpec, Span, SpecKind};
use crate::transact::{self, Keep};

/// An experiment, checked, and where its results go.
#[derive(Debug)]
pub struct Planned {
    /// The file as given.
    pub file: PathBuf,
    /// Its content.
    pub experiment: Experiment,
    /// Where its results go.
    pub out: Place,
    /// What its fabrics say of themselves: port, GID, MTU, what is inlined.
    pub notes: Vec<String>,
    /// Which of its plans are one under some protocol, which runs no phase that they carry differently.
    pub alike: Vec<String>,
}

impl Planned {
    /// The record of its results.
    fn record(&self, args: &ExperimentArgs, context: &Context) -> Result<RunRecord, CliError> {
        let mut record = record(&self.experiment, args.shard, context)?;
        record.notes.extend(self.notes.iter().chain(&self.alike).cloned());
        if args.cluster.is_some() {
            // Those of one process are no part of it.
            record.spec["processes"] = json!(true);
            record.notes.push("Each node was a process of its own.".to_owned());
        }
        Ok(record)
    }
}

/// Reads every file before anything is measured: a mistake in the last one should not cost the first one's
/// hours.
///
/// # Errors
/// With file, line and column; exit code 3 if a fabric does not work here.
pub fn plan(args: &ExperimentArgs, cluster: Option<&Cluster>) -> Result<Vec<Planned>, CliError> {
    if let Some(json) = &args.output.json {
        json.check()?;
    }
    let mut planned: Vec<Planned> = Vec::new();
    for file in &args.files {
        let experiment = Experiment::read_for(file, cluster.map(|cluster| cluster.file.count().into()))?;
        let mut stem = file.file_stem().unwrap_or_default().to_owned();
        if let Some(shard) = args.shard {
            stem.push(format!("-{}-of-{}", shard.index, shard.of));
        }
        let out = match &args.output.out {
            Some(out) if args.files.len() == 1 => Place::Named(out.clone()),
            Some(out) => Place::Named(out.join(&stem)),
            None => Place::Usual(Path::new(HOME).join(&stem)),
        };
        if let Some(other) = planned.iter().find(|other| other.out == out) {
            let (a, b) = (other.file.display(), file.display());
            return Err(CliError::usage(format!(
                "{a} and {b} would share the directory {}",
                out.path().display()
            ))
            .hint("give each its own --out"));
        }
        planned.push(Planned { file: file.clone(), experiment, out, notes: Vec::new(), alike: Vec::new() });
    }
    for planned in &mut planned {
        // A device is opened once, however many points there are.
        let mut opened: BTreeMap<String, Fabric> = BTreeMap::new();
        let mut refused: Option<CliError> = None;
        let mut also = 0;
        for point in &planned.experiment.points {
            match (admit(point, &planned.experiment, cluster, &mut opened), &mut refused) {
                (Ok(()), _) => {}
                // What is wrong with this machine is not asked of it again.
                (Err(error), None) if error.exit() != Exit::Usage => return Err(error),
                (Err(error), first @ None) => *first = Some(error),
                (Err(_), Some(_)) => also += 1,
            }
        }
        if let Some(first) = refused {
            let points = count(planned.experiment.points.len() as u64, "point");
            return Err(match also {
                0 => first,
                also => first.also(format!("{also} more of {points} cannot run either")),
            });
        }
        planned.alike = alike(&planned.experiment.points)?;
        planned.notes.extend(opened.into_values().flat_map(|fabric| fabric.notes));
        jobs(&planned.experiment, args)
            .map_err(|e| e.context(format!("{} does not fit into this machine", planned.file.display())))?;
    }
    Ok(planned)
}

/// Presets among the points' plans that are the same plan under their protocol: a sentence for each protocol and plan.
fn alike(points: &[Point]) -> Result<Vec<String>, CliError> {
    let mut names: BTreeMap<(&str, String), BTreeSet<&str>> = BTreeMap::new();
    for spec in points.iter().map(|point| &point.spec).filter(|spec| spec.primitive.is_none()) {
        if let PlanChoice::Preset(name) = &spec.plan
            && let Some(preset) = Preset::named(name)
        {
            let plan = preset.plan().restricted_to(transact::protocol(spec)?.needs());
            names.entry((&spec.protocol, plan.to_string())).or_default().insert(name);
        }
    }
    let several = names.into_iter().filter(|(_, names)| names.len() > 1);
    let told = several.map(|((protocol, _), names)| {
        let names: Vec<&str> = names.into_iter().collect();
        format!(
            "Under {protocol} the plans {} are one: it runs no phase that they carry differently.",
            names.join(" and ")
        )
    });
    Ok(told.collect())
}

/// Whether a point can be run; its fabric is opened unless it has been.
fn admit(
    point: &Point,
    experiment: &Experiment,
    cluster: Option<&Cluster>,
    opened: &mut BTreeMap<String, Fabric>,
) -> Result<(), CliError> {
    require(&point.spec.fabric)?;
    let blame = |keys: &[&str], error| experiment.places.blame(point, keys, error);
    // What is drawn is tuned, and what is tuned runs.
    if !point.against.is_empty() && cluster.is_none() {
        if point.pure {
            tune::tunable(&point.spec, &point.against).map_err(|e| blame(&["workload", "protocol"], e))?;
        }
        return Ok(());
    }
    let name = point.spec.fabric.to_string();
    let fabric = runs(point, cluster, opened.remove(&name)).map_err(|(keys, error)| blame(keys, error))?;
    opened.insert(name, fabric);
    Ok(())
}

/// Points at a time.
fn jobs(experiment: &Experiment, args: &ExperimentArgs) -> Result<usize, CliError> {
    match args.cluster {
        // One at a time over processes, whatever --jobs says: they would share the devices. What a node needs of memory its own share says.
        Some(_) => Ok(1),
        None => crate::memory::jobs_for(experiment, args.jobs),
    }
}

/// The fabric of a point, opened here unless it has been. The point is refused where it cannot run here, its workload's settings, its plan, its size, with the keys that
/// may be why.
fn runs(
    point: &Point,
    cluster: Option<&Cluster>,
    opened: Option<Fabric>,
) -> Result<Fabric, (&'static [&'static str], CliError)> {
    fn over(keys: &'static [&'static str]) -> impl Fn(CliError) -> (&'static [&'static str], CliError) {
        move |error| (keys, error)
    }
    let spec = &point.spec;
    if let Some(cluster) = cluster {
        if !point.against.is_empty() {
            let why = "combinations are compared on simulated fabrics, whose nodes are all in one process";
            return Err((&[], CliError::usage(why).hint("leave --cluster out")));
        }
        Cluster::carries(&spec.fabric).map_err(over(&["fabric"]))?;
        cluster.names(Some(spec.nodes), "nodes:").map_err(over(&["nodes"]))?;
        Cluster::measures_for(spec.precision).map_err(over(&["precision"]))?;
    }
    let fabric = match opened {
        Some(fabric) => fabric,
        None => Cluster::open_first(cluster, &spec.fabric, spec.seed).map_err(over(&["fabric"]))?,
    };
    if spec.primitive.is_some() {
        return primitive::admit(spec, &fabric).map(|()| fabric);
    }
    transact::workload(spec).map_err(over(&["workload"]))?;
    transact::protocol(spec).map_err(over(&["protocol"]))?;
    let plan = transact::plan(spec, &fabric).map_err(over(&["plan", "protocol", "workload", "fabric"]))?;
    // What is tuned runs.
    if let Some(named) = plan {
        transact::admit(spec, &fabric, &named).map_err(over(&["plan", "protocol", "workload", "fabric"]))?;
        let check = if cluster.is_some() { transact::check_share } else { transact::check };
        check(spec, &fabric, &named).map_err(over(&["threads", "nodes", "coroutines"]))?;
    }
    Ok(fabric)
}

/// The command.
///
/// # Errors
/// As [`plan`] and [`sweep`].
pub fn run(args: &ExperimentArgs, context: &Context) -> Result<(), CliError> {
    let cluster = args.cluster.as_ref().map(|path| Cluster::read(path, args.join_within)).transpose()?;
    let planned = plan(args, cluster.as_ref())?;
    let Some(cluster) = &cluster else {
        context.interrupt.listen()?;
        return sweep(args, context, &planned, measure_with(context));
    };
    // Whoever has everything already waits for nobody; and that a directory is another run's is told before anybody comes.
    let mut all_there = true;
    for planned in &planned {
        let old = RunRecord::read(planned.out.path());
        let same = match (&planned.out, &old) {
            (_, Err(_)) => false,
            (Place::Named(path), Ok(old)) => {
                old.goes_on(&planned.record(args, context)?, path)?;
                true
            }
            (Place::Usual(path), Ok(old)) => old.goes_on(&planned.record(args, context)?, path).is_ok(),
        };
        all_there &= same && old.is_ok_and(|old| old.complete);
    }
    let session = if all_there { None } else { Some(cluster.drive(context)?) };
    let session = Mutex::new(session);
    context.interrupt.listen()?;
    let ended = sweep(args, context, &planned, |point| {
        let mut session = session.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        // What was there is of another experiment, and this one has a directory beside it.
        let session = match &mut *session {
            Some(session) => session,
            none => none.insert(cluster.drive(context).map_err(CliError::for_all)?),
        };
        measure_over(point, cluster, session, context)
    });
    let mut session = session.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner());
    if let (Err(error), Some(session)) = (&ended, &mut session) {
        give_up(session, error);
    }
    ended
}

/// Measures a point over the processes of a cluster, as its node 0.
fn measure_over(
    point: &Point,
    cluster: &Cluster,
    session: &mut Session,
    context: &Context,
) -> Result<PointResult, CliError> {
    let (spec, stop) = (&point.spec, context.interrupt.flag());
    let result = if spec.primitive.is_some() {
        primitive::measure_by(spec, point.row(), false, stop, |scope, _| {
            let spec = RunSpec { duration: Span::from_ns(scope.window.0), ..spec.clone() };
            Asked::Written(Box::new(spec)).drive(cluster, session, stop)
        })?
    } else {
        let fabric = Cluster::open_first(Some(cluster), &spec.fabric, spec.seed)?;
        let plan = super::run::resolve(spec, &fabric, context)?;
        let keep = Keep { history: true, part: true };
        let described = Described { spec: spec.clone(), plan, keep, shares: false };
        let share = share_of_the_driver(None);
        // A session in which something failed has ended: there will be no other point.
        let whole = session
            .begin(&described.encode())
            .map_err(CliError::from)
            .and_then(|()| run_member(cluster, &described, session, &share, false, context))
            .map_err(CliError::for_all)?;
        let run = whole.1.ok_or_else(|| CliError::check("bug: node 0 has no whole result"))?;
        run.passed(&context.command)?;
        run.point(point.row())
    };
    if context.interrupt.asked() { Err(CliError::interrupted()) } else { Ok(result) }
}

/// Measures a point: requests alone, or a run of transactions whose history is checked.
pub fn measure_with(context: &Context) -> impl Fn(&Point) -> Result<PointResult, CliError> + Sync {
    |point| {
        if !point.against.is_empty() {
            return regret::measure(point, context);
        }
        let fabric = Fabric::open(&point.spec.fabric, point.spec.seed)?;
        if point.spec.primitive.is_some() {
            let stop = context.interrupt.flag();
            let result = primitive::measure(&point.spec, &fabric.spec, point.row(), stop)?;
            return if context.interrupt.asked() { Err(CliError::interrupted()) } else { Ok(result) };
        }
        let plan = super::run::resolve(&point.spec, &fabric, context)?;
        let run = transact::run(
            &point.spec,
            &fabric,
            &plan,
            Keep { history: true, part: false },
            context.interrupt.flag(),
        )?;
        if context.interrupt.asked() {
            return Err(CliError::interrupted());
        }
        run.passed(&context.command)?;
        Ok(run.point(point.row()))
    }
}

/// Measures what is missing of each experiment, by `measure`, and shows the points.
///
/// # Errors
/// What [`crate::sweep::Sweep::run`] says of the first experiment that did not end well; those before it are
/// complete, and every measured point is kept.
pub fn sweep<M>(
    args: &ExperimentArgs,
    context: &Context,
    planned: &[Planned],
    measure: M,
) -> Result<(), CliError>
where
    M: Fn(&Point) -> Result<PointResult, CliError> + Sync,
{
    let (mut people, mut data) = (String::new(), Vec::new());
    for each in planned {
        let Planned { file, experiment, out, .. } = each;
        let virtual_time = experiment.virtual_time();
        let jobs = jobs(experiment, args)?;
        if jobs > 1 && !virtual_time {
            context.talk.warn("points measured side by side in real time disturb each other; try --jobs 1");
        }
        let record = each.record(args, context)?;
        record.profile.iter().chain(&record.profiles).for_each(|profile| warn_of(profile, context));
        each.alike.iter().for_each(|told| context.talk.say(told));
        let mut dir = out.open(record, &experiment.axes(), context.talk)?;
        let out = &dir.path().to_owned();
        let points = &experiment.points;
        let point = |index: u64| {
            let point = usize::try_from(index).ok().and_then(|index| points.get(index));
            measure(point.ok_or_else(|| CliError::check("a point out of the grid"))?)
        };
        let title = file.file_stem().unwrap_or_default().to_string_lossy();
        let swept = context.sweep(title, jobs).run(&mut dir, point, |dir| summary(experiment, dir));
        let rows = dir.rows(TableName::Points)?;
        people.push_str(&format!("{}\n{}", experiment.question, shown(experiment, &rows)));
        people.push_str(&format!("results in {}\n", out.display()));
        let record = dir.record();
        let known = known_columns(experiment.kind.results(), TableName::Points);
        data.push(json!({
            "file": file, "out": out, "question": experiment.question, "complete": record.complete,
            "shard": record.shard, "points_expected": record.points_here(), "points_done": record.points_done,
            "points": rows.iter().map(|row| row.to_json(known)).collect::<Vec<_>>(),
        }));
        if let Err(error) = swept.and_then(|()| super::report::redraw(out, context)) {
            emit(args.output.json.as_ref(), &json!({ "experiments": data }), &people)?;
            return Err(error);
        }
    }
    emit(args.output.json.as_ref(), &json!({ "experiments": data }), &people)
}

/// Warns of what speaks against a profile that points are simulated by, if something does.
fn warn_of(profile: &ProfileRef, context: &Context) {
    warnings(profile).for_each(|warning| context.talk.warn(warning));
}

pub(crate) fn record(
    experiment: &Experiment,
    shard: Option<Shard>,
    context: &Context,
) -> Result<RunRecord, CliError> {
    let mut spec = serde_json::to_value(experiment).map_err(|e| CliError::check("no JSON").caused_by(&e))?;
    // Plans and profiles in files of their own decide results too: a changed file is another run.
    let mut files = BTreeMap::new();
    for point in &experiment.points {
        files.extend(point.spec.files()?);
    }
    if !files.is_empty() {
        spec["files"] = json!(files);
    }
    let points = experiment.points.len() as u64;
    let mut record =
        RunRecord::new(experiment.kind.results(), &experiment.fabrics(), spec, experiment.base.seed, points);
    record.shard = shard;
    record.title.clone_from(&experiment.question);
    record.question = Some(experiment.question.clone());
    record.command.clone_from(&context.command);
    record.commit = crate::COMMIT.to_owned();
    record.version = crate::VERSION.to_owned();
    let skewed = experiment.points.iter().filter(|point| point.spec.clock_skew.ns() > 0);
    record.notes.extend(transact::without_clocks(skewed.map(|point| point.spec.protocol.as_str())));
    record.published = library::published(experiment)?;
    let mut profiles = BTreeMap::new();
    for point in &experiment.points {
        if let FabricChoice::Sim(choice) = &point.spec.fabric
            && !profiles.contains_key(&point.spec.fabric.to_string())
        {
            profiles.insert(point.spec.fabric.to_string(), ProfileRef::from(&profile(choice)?));
        }
    }
    match profiles.len() {
        1 => record.profile = profiles.into_values().next(),
        _ => record.profiles = profiles.into_values().collect(),
    }
    Ok(record)
}

/// Columns that people look at first, with their heads.
const FIRST: [(&str, &str); 10] = [
    ("committed_per_s", "committed"),
    ("rate_per_server_per_s", "rate a machine"),
    ("goodput_gb_per_s", "goodput of all"),
    ("rate_ci_relative", "±"),
    ("converged", "converged"),
    ("latency_min_ns", "latency min"),
    ("latency_p50_ns", "latency p50"),
    ("latency_p99_ns", "latency p99"),
    ("aborted_per_s", "attempts aborted"),
    ("isolation_verdict", "isolation"),
];

/// What closes the record: of combinations, what they come to.
fn summary(experiment: &Experiment, dir: &ResultDir) -> Value {
    let of_rows = || Summary::of(&dir.rows(TableName::Points).ok()?);
    match of_rows().filter(|_| experiment.kind == SpecKind::Regret) {
        None => Value::Null,
        Some(s) => {
            let three = |v: [f64; 3]| json!({ "median": v[0], "p95": v[1], "worst": v[2] });
            json!({
                "combinations": s.combinations, "without_winner": s.open, "regret": three(s.regret),
                "verified_regret": s.verified.map(three),
                "same_protocol": s.same_protocol.map(|(same, all)| json!({ "same": same, "of": all })),
                "prediction_error": three(s.error), "prediction_bias": s.bias,
            })
        }
    }
}

/// The axes and what people look at first, rounded for them (the files have all digits); of combinations, the distribution and
/// the worst.
fn shown(experiment: &Experiment, rows: &[Row]) -> String {
    if let Some(summary) = Summary::of(rows).filter(|_| experiment.kind == SpecKind::Regret) {
        let table = match experiment.points.iter().any(|point| point.pure) {
            true => regret::best_of_all(&experiment.axes(), rows),
            false => regret::worst(rows),
        };
        return format!("{table}\n{}", summary.shown());
    }
    if rows.is_empty() {
        return "no points\n".to_owned();
    }
    let axes = experiment.axes().into_iter().map(|axis| (axis.clone(), format!("axis_{axis}")));
    // Which plan a point ran, unless its axis says so.
    let told = |row: &Row| {
        let plan = row.get("plan").filter(|name| !name.is_empty());
        plan.is_none() || plan == row.get("axis_plan")
    };
    let plan = Some(("plan".to_owned(), "plan".to_owned())).filter(|_| !rows.iter().all(told));
    let steps = if plan.is_some() { steps(rows) } else { String::new() };
    // What a plan says itself, as the tuner's choice does, is compared with it.
    let first = rows.first().and_then(|row| row.get("coroutines"));
    let differ =
        rows.iter().any(|row| row.get("coroutines") != first && row.get("axis_coroutines").is_none());
    let coroutines = differ.then(|| ("coroutines".to_owned(), "coroutines".to_owned()));
    let columns: Vec<(String, String)> = axes
        .chain(plan)
        .chain(coroutines)
        .chain(FIRST.map(|(column, head)| (head.to_owned(), column.to_owned())))
        .filter(|(_, column)| rows.iter().any(|row| row.get(column).is_some_and(|cell| !cell.is_empty())))
        .collect();
    let head: Vec<&str> = columns.iter().map(|(name, _)| name.as_str()).collect();
    let cell = |row: &Row, column: &str| match row.get(column) {
        // Nothing speaks against a point that says nothing of it.
        Some("") | None if column == "converged" => String::new(),
        Some("") | None => "not available".to_owned(),
        Some(text) => rounded(column, text),
    };
    let cells = |row: &Row| columns.iter().map(|(_, column)| cell(row, column)).collect::<Vec<_>>();
    format!("{}{steps}", table(&head, rows.iter().map(cells)))
}

/// Plans whose steps are told below a table.
const PLANS: usize = 6;

/// What the plans of these points did, a line each; nothing where they are many, then the file says it.
fn steps(rows: &[Row]) -> String {
    let mut under: BTreeMap<(&str, String), BTreeSet<&str>> = BTreeMap::new();
    for row in rows {
        if let (Some(plan), Some(steps), Some(protocol)) =
            (row.get("plan"), row.get("steps"), row.get("protocol"))
        {
            // With how many coroutines is for the file and its axes to say.
            let steps = match steps.split_once(", coroutines: ") {
                Some((before, after)) => {
                    before.to_owned() + after.trim_start_matches(|c: char| c.is_ascii_digit())
                }
                None => steps.to_owned(),
            };
            under.entry((plan, steps)).or_default().insert(protocol);
        }
    }
    if under.len() > PLANS {
        return String::new();
    }
    let line = |((name, steps), protocols): ((&str, String), BTreeSet<&str>)| {
        let protocols = Vec::from_iter(protocols).join(", ");
        format!("plan {name} under {protocols}: {steps}\n")
    };
    under.into_iter().map(line).collect()
}

/// A cell for people, by what its column's name says it is. Values of axes stay as they were written.
fn rounded(column: &str, text: &str) -> String {
    match text.parse::<f64>() {
        Ok(_) if column.starts_with("axis_") => text.to_owned(),
        Ok(rate) if column.ends_with("_gb_per_s") => format!("{rate:.3} GB/s"),
        Ok(rate) if column.ends_with("_per_s") => human_rate(rate),
        Ok(ns) if column.ends_with("_ns") => Nanos(ns as u64).to_string(),
        Ok(share) if column.ends_with("_relative") => format!("{:.2} %", 100.0 * share),
        _ => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::{rounded, shown, steps};
    use crate::spec::Experiment;
    use crate::yaml::Document;
    use phases::plan::{Plan, Preset};
    use primitives::measure::Row;

    #[test]
    fn coroutines_that_differ_though_nobody_asked_are_a_column() {
        let table = |axes: &str, coroutines: [u32; 2]| {
            let text = format!("question: why\nfabric: sim:cx4-edr\ngrid: {axes}\n");
            let experiment = Experiment::parse(&Document { name: "a.yaml".to_owned(), text }).unwrap();
            let row = |(point, n): (&crate::spec::Point, u32)| {
                point.row().with("plan", "p").with("coroutines", n).with("committed_per_s", 1e6)
            };
            shown(&experiment, &experiment.points.iter().zip(coroutines).map(row).collect::<Vec<_>>())
        };
        let plans = "{plan: [tuned, one-sided]}";
        let differ = table(plans, [32, 8]);
        assert!(differ.contains("coroutines") && differ.contains("32"), "{differ}");
        assert!(!table(plans, [8, 8]).contains("coroutines"));
        assert_eq!(
            table("{coroutines: [8, 32]}", [8, 32]).matches("coroutines").count(),
            1,
            "the axis says it"
        );
    }

    #[test]
    fn steps_are_told_whole_but_for_the_coroutines() {
        let usual = Preset::OneSided.plan();
        let mut odd = usual;
        odd.unlock = odd.unlock.map(|step| phases::plan::Step { passive_ack: !step.passive_ack, ..step });
        for plan in [usual, odd, Plan { location_cache: !odd.location_cache, ..odd }] {
            let other = Plan { coroutines: plan.coroutines + 1, ..plan };
            let row = |plan: Plan| {
                Row::new().with("plan", "p").with("protocol", "occ").with("steps", plan.to_string())
            };
            let bare = Plan { coroutines: Plan::DEFAULT_COROUTINES, ..plan };
            assert_eq!(steps(&[row(plan), row(other)]), format!("plan p under occ: {bare}\n"));
        }
    }

    #[test]
    fn people_see_three_digits_and_units() {
        for (column, text, shown) in [
            ("committed_per_s", "1234567.8901234", "1.23 M/s"),
            ("goodput_gb_per_s", "0.00123456", "0.001 GB/s"),
            ("latency_p50_ns", "12345", "12.3 µs"),
            ("rate_ci_relative", "0.00712345678", "0.71 %"),
            ("axis_set.hot_accounts_share", "0.0123456789", "0.0123456789"),
            ("axis_seed", "12345678", "12345678"),
            ("isolation_verdict", "pass", "pass"),
            ("converged", "true", "true"),
        ] {
            assert_eq!(rounded(column, text), shown, "{column}");
        }
    }
}
