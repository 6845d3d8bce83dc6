//! What a profile is fitted to: calibrate claims, or the points of a characterization.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use primitives::bench::{self, Point, Scope, Shows, identifying};
use primitives::measure::{Kind, ResultDir, Row, RunRecord, TOO_SHORT, TableName, short_commit};
use primitives::mesh::FabricSpec;
use primitives::profile::{Interface, Profile};
use primitives::units::Nanos;
use serde_json::Value;

use super::solve::Halt;
use crate::claims::answers::Profiles;
use crate::claims::{self, Answer, Calibrate, Form, Number};
use crate::error::CliError;
use crate::interrupt::Interrupt;
use crate::primitive::verb_of;
use crate::spec::{FabricChoice, ProfileChoice};
use crate::sweep::{side_by_side, usual_jobs};

/// One number that the simulator should give.
#[derive(Clone, Debug, PartialEq)]
pub struct Target {
    /// A claim's id, or a point in words.
    pub name: String,
    /// The number.
    pub want: f64,
    /// Its unit, for tables.
    pub unit: String,
    /// How well it is known: the half width of its confidence interval over it. Nothing is said of what papers print, or of latencies.
    pub within: Option<f64>,
}

/// All that a profile is fitted to, and how to ask the simulator for the same.
pub struct Targets {
    /// The numbers.
    pub list: Vec<Target>,
    /// In words, for references: which claims or which run.
    pub origin: String,
    /// What whoever fits to them should know: points that are missing, points that were left out.
    pub warnings: Vec<String>,
    /// Points that are simulated at a time; what comes out does not depend on it.
    pub jobs: usize,
    source: Source,
}

enum Source {
    /// Answered by the experiments they are bound to. No hold-out claim can be in the view.
    Claims(Calibrate),
    /// Answered by simulating the same points.
    Points { points: Vec<(Point, Shows, Scope)>, seed: u64 },
}

/// Load before counting, and counted time, of a point that is simulated for a fit: so many times its median latency, and
/// not less than this. A closed load forgets its start within a few rounds of its coroutines, and a rate is a count of
/// groups: a window of a few rounds would be told apart from its neighbour by where it happens to end.
const WARM_UP: (u64, u64) = (4, 20_000);
const WINDOW: (u64, u64) = (20, 60_000);

/// A rate is counted over so many groups of requests at the least: with fewer, where the window ends in a group moves the rate by
/// as much as a number that is a twentieth off.
const GROUPS: f64 = 1_500.0;

/// Rates that are known no better than within this share to either side are told: a fit takes all targets alike.
const VAGUE: f64 = 0.05;

impl Targets {
    /// Of the calibrate claims, those whose experiments run on the profile and whose values are numbers. One that compares it with
    /// other profiles is among them: those stay as they are shipped.
    ///
    /// # Errors
    /// If there are none.
    pub fn of_claims(profile: &Profile, view: Calibrate) -> Result<Targets, CliError> {
        let mut list = Vec::new();
        for calibrate in view.iter() {
            let claim = calibrate.claim();
            // A relation or a bound gives no number to aim at; it still judges. "Up to" names the largest of a sweep.
            let most = claim.value.hi.filter(|_| claim.value.form == Form::UpTo);
            let (Some(want), Some(binding)) = (claim.value.num.or(most), &claim.answered_by) else {
                continue;
            };
            // What restates its own number always comes out, and would make the rest look better.
            let Some(name) = binding.experiment.as_ref().filter(|_| !binding.restates) else { continue };
            // A place on an axis moves in steps, which no derivative sees.
            if matches!(binding.number, Some(Number::Plateau(_))) {
                continue;
            }
            let experiment = claims::library::experiment(name)?;
            let on_it = |fabric: &FabricChoice| matches!(fabric, FabricChoice::Sim(ProfileChoice::Shipped(name)) if *name == profile.name);
            if claims::library::is_primitive(&experiment)
                && claims::library::points_of(binding, name, &experiment)
                    .iter()
                    .filter_map(|&i| experiment.points.get(i as usize))
                    .any(|point| on_it(&point.spec.fabric))
            {
                list.push(Target { name: claim.id.clone(), want, unit: claim.unit.clone(), within: None });
            }
        }
        if list.is_empty() {
            let message = format!("no calibrate claim has an experiment on sim:{} yet", profile.name);
            return Err(CliError::usage(message).hint("fit to measurements with --from RESULTS_DIR"));
        }
        let ids: Vec<&str> = list.iter().map(|t| t.name.as_str()).collect();
        let origin = format!("claims {}", ids.join(", "));
        Ok(Targets {
            list,
            origin,
            warnings: Vec::new(),
            jobs: usual_jobs(true),
            source: Source::Claims(view),
        })
    }

    /// The identifying points of a characterization in a result directory.
    ///
    /// # Errors
    /// If the directory is none, or its points are not those that this build would measure.
    pub fn of_results(dir: &Path) -> Result<Targets, CliError> {
        let record = RunRecord::read(dir)?;
        if record.kind != Kind::Characterize {
            return Err(CliError::usage(format!("{} is no characterization", dir.display()))
                .hint("make one with `doorbell characterize --out DIR`"));
        }
        let commit = short_commit(&record.commit, 12);
        let origin = format!(
            "characterization of {} in {} (seed {}, commit {commit})",
            record.fabric,
            name_of(dir),
            record.seed
        );
        let (spec, seed) = (record.spec.clone(), record.seed);
        if has_calls_alone(&record.fabric) {
            return Err(CliError::usage(format!(
                "the characterization in {} has calls alone, since {} has no one-sided verbs: nothing can be fitted to it",
                dir.display(),
                record.fabric
            ))
            .hint("a profile's numbers show in READs, WRITEs and ATOMICs"));
        }
        let rows = ResultDir::read(dir, &record, TableName::Points)?;
        let (_, points) = measured(&spec)?;
        rows.iter().try_for_each(|row| sound(row, &points))?;
        let mut targets = Targets::of_rows(&rows, &spec, seed, origin)?;
        let (here, all) = (rows.len() as u64, record.points_here());
        if !record.complete || here < all {
            let (dir, again) = (dir.display(), &record.command);
            let text = format!(
                "the characterization in {dir} is not complete: it has {here} of {all} points; go on with: {again}"
            );
            targets.warnings.insert(0, text);
        }
        Ok(targets)
    }

    /// The same, of rows at hand.
    ///
    /// # Errors
    /// As [`Targets::of_results`], or if a row says what no load can have done.
    pub fn of_rows(rows: &[Row], spec: &Value, seed: u64, origin: String) -> Result<Targets, CliError> {
        let (scope, mut points) = measured(spec)?;
        let (mut list, mut chosen, mut left_out, mut vague) =
            (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let by_number: BTreeMap<usize, &Row> =
            rows.iter().filter_map(|row| Some((row.get("point")?.parse().ok()?, row))).collect();
        for (number, shows) in identifying(&points.clone()) {
            let Some(row) = by_number.get(&number) else { continue };
            let point = &mut points[number];
            let same = |column: &str, value: String| row.get(column) == Some(value.as_str());
            if !same("bench", point.question.to_owned())
                || !same("verb", point.verb.name().to_owned())
                || !same("coroutines", point.coroutines.to_string())
                || !same("doorbell_batch", point.doorbell_batch.to_string())
            {
                return Err(of_another_version());
            }
            point.payload = row.number("payload_bytes").map_or(point.payload, |n| n as u32);
            // Nothing was measured there: nothing to aim at.
            let Some(want) = row.number(shows.column()).filter(|n| *n > 0.0) else {
                let which = row.get("point").unwrap_or_default();
                left_out.push(format!("point {which} ({})", named(point, shows)));
                continue;
            };
            let seen = Seen {
                rate_per_s: row.number("rate_per_s"),
                least_ns: row.number("latency_min_ns"),
                median_ns: row.number("latency_p50_ns"),
            };
            if let Some(why) = seen.impossible(point.in_flight(&scope)) {
                let which = row.get("point").unwrap_or_default();
                return Err(CliError::usage(format!(
                    "point {which} ({}) is no measurement: {why}",
                    named(point, shows)
                ))
                .hint(
                    "its row in points.csv was damaged or made up: characterize again into a new directory",
                ));
            }
            let within = row.number("rate_ci_relative").filter(|_| shows == Shows::Rate);
            vague.extend(within.filter(|within| *within > VAGUE));
            let unit = if shows == Shows::Rate { "1/s" } else { "ns" };
            list.push(Target { name: named(point, shows), want, unit: unit.to_owned(), within });
            let round = row.number("latency_p50_ns").unwrap_or(0.0) as u64;
            let scaled = |(times, least): (u64, u64)| Nanos((times * round).max(least));
            let groups =
                if shows == Shows::Rate { GROUPS * f64::from(point.outstanding) / want } else { 0.0 };
            let window = Nanos(scaled(WINDOW).0.max((groups * 1e9) as u64));
            let scope = match unsteady(row) {
                // A rate that drifts is one of the time in which it was counted.
                Some((warm_up, measured)) if shows == Shows::Rate => {
                    Scope { warm_up: warm_up.max(scaled(WARM_UP)), window: window.max(measured), ..scope }
                }
                _ => Scope { warm_up: scaled(WARM_UP), window, ..scope },
            };
            chosen.push((point.clone(), shows, scope));
        }
        if list.is_empty() {
            return Err(of_another_version());
        }
        let mut warnings = match &left_out[..] {
            [] => Vec::new(),
            some => vec![format!(
                "left out, since nothing was measured there for long enough: {}",
                some.join(", ")
            )],
        };
        if let Some(worst) = vague.iter().copied().reduce(f64::max) {
            warnings.push(format!(
                "of {} targets {} are rates that are known no better than ± {:.0} %, the worst ± {:.0} %, and the fit takes all alike: \
                 characterize without --quick and --duration, on an idle machine",
                list.len(),
                vague.len(),
                100.0 * VAGUE,
                100.0 * worst
            ));
        }
        let source = Source::Points { points: chosen, seed };
        Ok(Targets { list, origin, warnings, jobs: usual_jobs(true), source })
    }

    /// Relative errors of what the simulator gives with a profile; only where `wanted` says so, unless that is empty.
    /// The others are not simulated, and given as 0.
    ///
    /// # Errors
    /// [`Halt::Interrupted`] after Ctrl-C, [`Halt::Failed`] if a point cannot be simulated.
    pub fn errors(
        &self,
        profile: &Profile,
        wanted: &[bool],
        interrupt: &Interrupt,
    ) -> Result<Vec<f64>, Halt<CliError>> {
        let rows: Vec<usize> =
            (0..self.list.len()).filter(|&at| wanted.get(at).copied().unwrap_or(true)).collect();
        let got = match &self.source {
            Source::Claims(view) => {
                let profiles = Profiles::shipped().with(profile.clone());
                let ids: Vec<&str> = rows.iter().map(|&at| self.list[at].name.as_str()).collect();
                let answers =
                    view.answers(&ids, &profiles, self.jobs, interrupt.flag()).map_err(Halt::Failed)?;
                let number = |(id, answer): (&&str, Option<Answer>)| match answer {
                    Some(Answer::Number { value, .. }) => Ok(value),
                    _ => Err(Halt::Failed(CliError::check(format!("{id} was answered without a number")))),
                };
                let answers = answers.ok_or(Halt::Interrupted)?;
                ids.iter().zip(answers).map(number).collect::<Result<Vec<f64>, _>>()?
            }
            Source::Points { points, seed } => {
                let fabric = FabricSpec::Sim {
                    profile: Box::new(profile.clone()),
                    seed: *seed,
                    faults: Box::default(),
                };
                let stop = interrupt.flag();
                let answers = side_by_side(rows.len(), self.jobs, stop, |at| {
                    let (point, shows, scope) = &points[rows[at]];
                    let sample = bench::run(&fabric, scope, point, *seed, stop)
                        .map_err(|e| CliError::check("a point cannot be simulated").caused_by(&e))?;
                    let latency = sample.latency.p50().map_or(0.0, |n| n.0 as f64);
                    Ok(if *shows == Shows::Rate { sample.rate_per_s() } else { latency })
                });
                let answers = answers.ok_or(Halt::Interrupted)?;
                answers.into_iter().collect::<Result<Vec<f64>, _>>().map_err(Halt::Failed)?
            }
        };
        let mut errors = vec![0.0; self.list.len()];
        for (&at, got) in rows.iter().zip(&got) {
            errors[at] = got / self.list[at].want - 1.0;
        }
        Ok(errors)
    }
}

fn of_another_version() -> CliError {
    CliError::usage("its points are not those that this version measures")
        .hint("characterize again with this version")
}

/// Whether a fabric has no one-sided verbs.
fn has_calls_alone(fabric: &str) -> bool {
    match fabric.parse() {
        Ok(FabricChoice::Tcp) => true,
        Ok(FabricChoice::Sim(choice)) => {
            crate::fabrics::profile(&choice).is_ok_and(|profile| profile.nic.interface != Interface::Verbs)
        }
        _ => false,
    }
}

/// The points of a characterization, by its spec, and under what they are measured.
fn measured(spec: &Value) -> Result<(Scope, Vec<Point>), CliError> {
    let count = |name: &str| spec.get(name).and_then(Value::as_u64).ok_or_else(of_another_version);
    let scope = Scope {
        nodes: count("nodes")? as u16,
        threads: count("threads")? as u16,
        coroutines: count("coroutines")? as u32,
        quick: spec.get("quick").and_then(Value::as_bool).unwrap_or(false),
        warm_up: Nanos(WARM_UP.1),
        window: Nanos(WINDOW.1),
        precision: None,
        most: None,
    };
    // Only the payloads of calls depend on it, and rows say which they were.
    let mut points = bench::points(&scope, u32::MAX);
    let only: Vec<&str> = match spec.get("only").and_then(Value::as_array) {
        Some(names) => names.iter().filter_map(Value::as_str).collect(),
        None => Vec::new(),
    };
    points.retain(|point| only.is_empty() || only.contains(&point.question));
    Ok((scope, points))
}

/// No point is simulated for longer because its rate drifted: what has not settled by then is not of the card.
const LONGEST: Nanos = Nanos(20_000_000);

/// Warm-up and counted time of a row whose rate did not come to be known, for as long as it was measured. One of a fixed length that was not
/// steady is short, as the simulation is.
fn unsteady(row: &Row) -> Option<(Nanos, Nanos)> {
    let converged = row.get("converged")?;
    let of = |column: &str| row.number(column).map(|ns| Nanos(ns as u64).min(LONGEST));
    (converged == "no").then_some((of("warm_up_ns")?, of("measured_ns")?))
}

/// Refuses a row that no characterization leaves, whether or not it is fitted to: other counts than its point's, or nothing done, by
/// a point that is not marked as too short.
fn sound(row: &Row, points: &[Point]) -> Result<(), CliError> {
    let cell = |column: &str| row.get(column).unwrap_or_default();
    let which = cell("point");
    let refuse = |why: String| {
        CliError::usage(format!("point {which} is no measurement: {why}"))
            .hint("its row in points.csv was damaged or made up: characterize again into a new directory")
    };
    let Some(point) = which.parse().ok().and_then(|at: usize| points.get(at)) else {
        return Err(of_another_version());
    };
    // Without one-sided verbs points have other numbers.
    if cell("verb") != verb_of(point) || cell("bench") != point.question {
        return Err(of_another_version());
    }
    for (column, own) in [
        ("threads", u32::from(point.threads)),
        ("outstanding", point.outstanding),
        ("queue_pairs", point.queue_pairs),
    ] {
        if cell(column) != own.to_string() {
            return Err(refuse(format!("{column} is `{}`, and that point has {own}", cell(column))));
        }
    }
    let positive = |column: &str| cell(column).parse::<f64>().is_ok_and(|n| n > 0.0);
    // Nothing ended in too short a window: that is said when it is left out.
    let nothing = cell("converged") == TOO_SHORT && cell("ops") == "0" && cell("rate_per_s").is_empty();
    let counted: &[&str] = if nothing { &["payload_bytes"] } else { &["payload_bytes", "ops", "rate_per_s"] };
    match counted.iter().find(|column| !positive(column)) {
        Some(column) => Err(refuse(format!("{column} is `{}`", cell(column)))),
        None => Ok(()),
    }
}

/// Longest time that a request may have taken, and that may lie between two: nobody measured for longer.
const LONGEST_NS: f64 = 100e9;

/// So many times the requests that can have been in flight are too many: a window begins and ends among requests, clocks have steps,
/// and where one group in many is timed, the fastest may not be among them.
const CROWDED: f64 = 4.0;

/// What a row says of its point.
struct Seen {
    rate_per_s: Option<f64>,
    least_ns: Option<f64>,
    median_ns: Option<f64>,
}

impl Seen {
    /// Why a load with so many requests in flight cannot have done this, if it cannot. Requests in flight are rate times latency
    /// (Little's law), and each takes at least what the fastest did.
    fn impossible(&self, in_flight: u64) -> Option<String> {
        let most = in_flight as f64;
        // Also what is no number.
        let too_long = |ns: f64| ns.is_nan() || ns > LONGEST_NS;
        if let Some(ns) = self.median_ns.filter(|ns| too_long(*ns)) {
            return Some(format!("a request is said to have taken {:e} s", ns / 1e9));
        }
        let rate = self.rate_per_s?;
        if too_long(1e9 / rate * most) {
            return Some(format!(
                "{rate:e} requests per second, with {in_flight} in flight, are fewer than anybody waited for"
            ));
        }
        // No request takes less than a nanosecond, whether or not any was timed.
        let least = self.least_ns.or(self.median_ns).unwrap_or(1.0).max(1.0);
        let crowd = rate * least / 1e9;
        (crowd > CROWDED * most).then(|| {
            format!(
                "{rate:e} requests per second that take at least {least} ns each would be {crowd:.0} in flight, and the load had {in_flight}"
            )
        })
    }
}

fn name_of(dir: &Path) -> String {
    PathBuf::from(dir)
        .file_name()
        .map_or_else(|| dir.display().to_string(), |n| n.to_string_lossy().into_owned())
}

/// A point in words.
fn named(point: &Point, shows: Shows) -> String {
    let mut text = format!("{} {} {} B", point.question, point.verb.name(), point.payload);
    for (what, value, usual) in [
        ("doorbell for", point.doorbell_batch, 32),
        ("signal every", point.signal_period, 32),
        ("queue pairs", point.queue_pairs, 1),
        ("servers", u32::from(point.servers), 0),
        ("addresses", point.addresses, 0),
    ] {
        if value != usual && shows == Shows::Rate {
            text.push_str(&format!(", {what} {value}"));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(rate_per_s: f64, least_ns: f64, median_ns: f64) -> Seen {
        Seen { rate_per_s: Some(rate_per_s), least_ns: Some(least_ns), median_ns: Some(median_ns) }
    }

    /// A claim is a target of each profile that it compares, and of no other.
    #[test]
    fn a_ratio_between_two_profiles_is_a_target_of_both() {
        let of = |name: &str| -> Vec<String> {
            let profile = Profile::shipped(name).unwrap();
            let found = Targets::of_claims(&profile, claims::calibrate().unwrap());
            found.map_or(Vec::new(), |targets| targets.list.into_iter().map(|target| target.name).collect())
        };
        assert_eq!((of("ipoib-qdr"), of("tcp-1g")), (vec!["RAMP-01".to_owned()], vec!["RAMP-01".to_owned()]));
        let edr = of("cx4-edr");
        assert!(edr.iter().all(|id| id.starts_with("DRH-P")) && edr.len() > 4, "{edr:?}");
        assert!(of("ipoib-fdr").is_empty() && of("tcp-10g").is_empty());
    }

    #[test]
    fn what_a_load_can_have_done_passes() {
        // 16 in flight, 2 µs each: 8 M/s; a few more or less.
        for (rate, least, median) in [(8e6, 2000.0, 2000.0), (8.5e6, 1900.0, 2000.0), (5e6, 1500.0, 3200.0)] {
            assert_eq!(seen(rate, least, median).impossible(16), None, "{rate}");
        }
        // Soft-RoCE with one request alone, and a point whose latencies were not kept.
        assert_eq!(seen(3000.0, 140_000.0, 290_000.0).impossible(2), None);
        let untimed = Seen { rate_per_s: Some(5e7), least_ns: None, median_ns: None };
        assert_eq!(untimed.impossible(64), None);
    }

    #[test]
    fn what_no_load_can_have_done_is_refused() {
        let told = |seen: Seen| seen.impossible(16).expect("it is impossible");
        assert!(told(seen(1e18, 2000.0, 2000.0)).contains("1e18 requests per second"));
        assert!(told(seen(1e8, 2000.0, 2000.0)).contains("would be 200 in flight, and the load had 16"));
        assert!(told(Seen { rate_per_s: Some(1e18), least_ns: None, median_ns: None }).contains("in flight"));
        assert!(told(seen(1e6, 2000.0, 1e18)).contains("1e9 s"));
        assert!(told(seen(1e-12, 2000.0, 2000.0)).contains("fewer than anybody"));
        assert!(told(seen(f64::INFINITY, 2000.0, 2000.0)).contains("in flight"));
        assert!(told(seen(f64::NAN, f64::NAN, f64::NAN)).contains("NaN"));
    }
}
