//! Fitting a profile's free numbers: to what papers print ([`Targets::of_claims`]), or to what a card was measured to do
//! ([`Targets::of_results`]). Every evaluation simulates the targets' experiments with the numbers of the moment.
//!
//! A number is free if the profile gives bounds for it. Which of them the targets show is found out, not assumed, by a
//! number's resolution ([`solve::Fit::resolution`]), inflation ([`solve::Fit::inflation`]) and standard error ([`solve::Fit::error`]),
//! all three of the side on which it shows less where the search ended: with a resolution from [`PINNED`] on,
//! an inflation below [`SHARED`], an error up to [`SURE`] and targets that are [`MET`] it shows by itself; with a resolution from [`SHOWN`] on only together with others, parts of one sum
//! for example, or only until it hides behind something slower, which bounds it; below it keeps its value and its source, and the others are fitted once more without it. One that no target
//! shows where the search ended is not called fitted: what it was moved to is a bound, and at most assumed.
//!
//! Hold-out claims cannot come here: [`claims::calibrate`](crate::claims::calibrate) is the only door, and its type
//! holds none.

pub mod engine;
pub mod nearest;
pub mod solve;
mod targets;

pub use targets::{Target, Targets};

use primitives::bench::UNCALIBRATED;
use primitives::profile::{Profile, Quantity, Source, Unit};

use crate::error::CliError;
use crate::interrupt::Interrupt;
use crate::names::suggest;
use crate::output::change;
use solve::{Fit, Free, Settings, rms};

/// Resolution from which a number counts as pinned, if it is not [`SHARED`].
pub const PINNED: f64 = 0.9;

/// Root mean square error up to which single numbers may count as pinned: what short simulations differ by. Where the model
/// misses its targets by more, the search has ended beside them, and no number is known as well as its resolution says: of `cx4-edr-x2`, fitted
/// to 2.3 %, a core's time for a request comes out 81 % off, of `aries` from another start, fitted to 1.7 %, its doorbell 29 %.
pub const MET: f64 = 0.01;

/// Inflation from which only what a number adds up to with others shows: nine tenths of what it does, others could do for it.
pub const SHARED: f64 = 10.0;

/// Standard error up to which a number may count as pinned. What is pinned is to be within 10 % of what the card has; a resolution of 0.9
/// is a standard error of 9.5 % (of the 30 % that a start is trusted to), which three in ten would miss. Twice this is 10 %, which one in
/// twenty may miss.
pub const SURE: f64 = 0.05;

/// Resolution, at any round, from which a number is fitted at all. The halves of a sum have 0.5 each, the thirds less.
pub const SHOWN: f64 = 0.3;

/// Root mean square error of a fit above which the profile stays in doubt: the 5 % within which a simulated number counts as the
/// published one it was fitted to.
pub const FITS: f64 = 0.05;

/// Begins what speaks against a profile whose fit left more than [`FITS`].
pub const MISFIT: &str = "fitted with a root mean square error of";

/// What speaks against a profile whose fit left this error, if it is too much. Of one that was ended nobody knows what it would have left,
/// nor of one that was let move some numbers only.
fn misfit(rms: f64, ended: bool, held: usize) -> Option<String> {
    // What is no number is no fit.
    let fits = rms <= FITS;
    let why = match (ended, held) {
        (true, _) => "the fit was ended early".to_owned(),
        (false, 0) => {
            "from where it started, the simulator's model came no nearer to what was measured".to_owned()
        }
        (false, held) => format!("{held} of its free numbers were not fitted"),
    };
    (!fits).then(|| format!("{MISFIT} {:.1} %, more than {:.0} %: {why}", 100.0 * rms, 100.0 * FITS))
}

/// Most evaluations that a fit of so many numbers takes: a round tries each of them and up to five steps.
pub fn most_evaluations(numbers: usize, rounds: usize) -> usize {
    let rounds = rounds + rounds.min(AGAIN);
    // Two starts, both sides of each number, and the profile as it is written.
    2 + rounds * (numbers + solve::STEPS) + 2 * numbers + 1
}

/// Relative change of a target per relative change of a number from which the number counts as moving it.
const MOVES: f64 = 0.05;

/// References name so many targets at most.
const NAMED: usize = 4;

/// What became of one free number.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Number {
    /// `nic.NAME` or `cpu.NAME`.
    pub name: String,
    /// Where it started.
    pub before: f64,
    /// Where it is now.
    pub after: f64,
    /// Its unit.
    pub unit: &'static str,
    /// Bounds.
    pub free: [f64; 2],
    /// How far the targets decide it, 0 to 1; `None` if the fit was ended before that was known.
    pub resolution: Option<f64>,
    /// By how much its variance is larger than if all others were known.
    pub inflation: f64,
    /// By how much it may be off: its standard error, relative. Nobody knows of what shows nowhere.
    pub error: f64,
    /// The number for which it is mostly mistaken, if what shows is only what it adds up to with others.
    pub shared_with: Option<String>,
    /// Whether it was fitted; carried over if not.
    pub fitted: bool,
    /// Whether a bound stopped it, beyond which it would have gone on.
    pub stopped: bool,
    /// Whether it shows by itself; if it was fitted without, only a bound or what it adds up to with others is known.
    pub pinned: bool,
    /// The targets that it moves most, the first one most.
    pub shows_in: Vec<String>,
}

/// What became of one target.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Residual {
    /// A claim's id, or a point in words.
    pub target: String,
    /// What it should be.
    pub want: f64,
    /// Its unit.
    pub unit: String,
    /// Relative error before.
    pub before: f64,
    /// Relative error with the profile as written.
    pub after: f64,
    /// How well it is known: the half width of its confidence interval over it, where that was measured.
    pub within: Option<f64>,
    /// The free numbers that move it, the first one most; `None` if the fit was ended before that was known.
    pub moved_by: Option<Vec<String>>,
}

impl Residual {
    /// That a target is missed by more than a fit may leave, and who could have helped.
    pub fn missed(&self) -> Option<String> {
        let moved_by = self.moved_by.as_ref().filter(|_| self.after.is_nan() || self.after.abs() > FITS)?;
        let who = match &moved_by[..] {
            [] => "none of the numbers fitted moves it where the fit ended".to_owned(),
            some => format!("what moves it ({}) is held by other targets or its bounds", some.join(", ")),
        };
        let known = self.vague().map_or(String::new(), |within| format!(", and is known only {within}"));
        Some(format!("{} stays {} off{known}: {who}", self.target, change(self.after)))
    }

    /// How well it is known, where that is less than the others are.
    pub fn vague(&self) -> Option<String> {
        let within = self.within.filter(|within| *within > Settings::default().noise)?;
        Some(format!("± {:.1} %", 100.0 * within))
    }
}

/// A finished calibration.
pub struct Calibrated {
    /// The profile with its new numbers.
    pub profile: Profile,
    /// The free numbers.
    pub numbers: Vec<Number>,
    /// The targets.
    pub residuals: Vec<Residual>,
    /// What it was fitted to, in words.
    pub origin: String,
    /// Simulations of the whole set of targets.
    pub evaluations: usize,
    /// Root mean square error where the search ended: before the numbers were rounded.
    pub left: f64,
    /// Free numbers of the profile that it was not let move.
    pub held: usize,
    /// Ctrl-C ended it.
    pub interrupted: bool,
}

/// Where a calibration is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// The numbers as they were.
    Start,
    /// A round with all numbers, from 1.
    Round(usize),
    /// Once more from there, without the numbers that no target shows; a round of it, 0 being its start.
    Shown(usize),
    /// Where the search ended, every fitted number was tried both ways.
    Sides,
}

impl std::fmt::Display for Stage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Stage::Start => f.write_str("start"),
            Stage::Round(round) => write!(f, "round {round}"),
            Stage::Shown(0) => f.write_str("without the numbers that no target shows"),
            Stage::Sides => f.write_str("every fitted number tried both ways"),
            Stage::Shown(round) => write!(f, "without them, round {round}"),
        }
    }
}

/// Most rounds without the numbers that no target shows: the others have little to make up for.
const AGAIN: usize = 2;

/// Who hears how a calibration goes.
pub struct Listeners<'a> {
    /// Of every evaluation.
    pub evaluated: &'a dyn Fn(),
    /// Of every round: which, the root mean square error, the evaluations so far.
    pub told: &'a dyn Fn(Stage, f64, usize),
}

/// Fits the free numbers of `profile` to `targets`, or `only` those of them that are named.
///
/// # Errors
/// If no number is free, `only` names another, or a target cannot be simulated. After Ctrl-C the best so far is returned, or that there is none.
pub fn calibrate(
    profile: &Profile,
    only: &[String],
    targets: &Targets,
    settings: &Settings,
    interrupt: &Interrupt,
    heard: &Listeners<'_>,
) -> Result<Calibrated, CliError> {
    let free: Vec<(String, Quantity)> = profile
        .quantities()
        .filter(|(_, _, quantity)| quantity.free.is_some())
        .map(|(section, name, quantity)| (format!("{section}.{name}"), quantity.clone()))
        .collect();
    if free.is_empty() {
        return Err(CliError::usage(format!("no number of profile {} is free", profile.name))
            .hint("give those to fit their bounds: free: [low, high]"));
    }
    if let Some(name) = only.iter().find(|name| !free.iter().any(|(known, _)| known == *name)) {
        let known: Vec<&str> = free.iter().map(|(name, _)| name.as_str()).collect();
        return Err(CliError::usage(format!(
            "no free number of profile {} is called `{name}`",
            profile.name
        ))
        .hint(suggest(name, &known)));
    }
    let known = free.len();
    let free: Vec<(String, Quantity)> =
        free.into_iter().filter(|(name, _)| only.is_empty() || only.contains(name)).collect();
    let with = |moving: &[usize], values: &[f64]| {
        let mut moved = profile.clone();
        for (&at, value) in moving.iter().zip(values) {
            set(&mut moved, &free[at].0, rounded(*value, &free[at].1));
        }
        moved
    };
    let bounds = |at: usize, start: f64| {
        let [low, high] = free[at].1.free.unwrap_or([start; 2]);
        Free { start, low, high }
    };
    let all: Vec<usize> = (0..free.len()).collect();
    let starts: Vec<Free> = free.iter().enumerate().map(|(at, (_, q))| bounds(at, q.value)).collect();
    let held = known - free.len();
    let errors = |profile: &Profile, rows: &[bool]| {
        let errors = targets.errors(profile, rows, interrupt);
        (heard.evaluated)();
        errors
    };
    let evaluate = |values: &[f64], rows: &[bool]| errors(&with(&all, values), rows);
    let mut fit = solve::fit(&starts, settings, evaluate, |round, rms, n| {
        (heard.told)(if round == 0 { Stage::Start } else { Stage::Round(round) }, rms, n);
    })?;
    if fit.before.is_empty() {
        return Err(CliError::interrupted().hint(
            "it was ended before the profile had been tried as it is: nothing is fitted, and no file is written",
        ));
    }
    // What does not show has moved a little all the same, and the others have made up for it.
    let shown: Vec<usize> = all.iter().copied().filter(|&at| fit.seen[at] >= SHOWN).collect();
    let stray = all.iter().any(|at| !shown.contains(at) && fit.values[*at] != free[*at].1.value);
    if stray && !shown.is_empty() && !fit.interrupted {
        let starts: Vec<Free> = shown.iter().map(|&at| bounds(at, fit.values[at])).collect();
        let evaluations = fit.evaluations;
        let settings = Settings { rounds: settings.rounds.min(AGAIN), ..*settings };
        let evaluate = |values: &[f64], rows: &[bool]| errors(&with(&shown, values), rows);
        let again = solve::fit(&starts, &settings, evaluate, |round, rms, n| {
            (heard.told)(Stage::Shown(round), rms, evaluations + n);
        })?;
        for (&at, value) in shown.iter().zip(&again.values) {
            fit.values[at] = *value;
        }
        (fit.after, fit.interrupted) = (again.after, again.interrupted);
        fit.evaluations += again.evaluations;
    }
    // What does not show is not moved.
    for at in all.iter().copied().filter(|at| !shown.contains(at)) {
        fit.values[at] = free[at].1.value;
    }
    if !fit.interrupted && !shown.is_empty() {
        // Also those that did not show on the way: where it ended they may do what another is believed to.
        solve::look(&mut fit, &all, &starts, settings, |values, rows| errors(&with(&all, values), rows))?;
        if !fit.interrupted {
            (heard.told)(Stage::Sides, rms(&fit.after), fit.evaluations);
        }
    }
    let numbers: Vec<Number> = all.iter().map(|&at| number(at, &free, &fit, targets)).collect();
    let mut done = profile.clone();
    for number in numbers.iter().filter(|n| n.fitted) {
        if let Some(quantity) = quantity(&mut done, &number.name) {
            number.write(quantity, &targets.origin, rms(&fit.after));
        }
    }
    done.validate().map_err(|e| CliError::check("the fitted profile is impossible").caused_by(&e))?;
    // What is written is rounded, and leaves out what was not pinned: its errors, not those of the search.
    let (after, interrupted) = match errors(&done, &[]) {
        Ok(errors) => (errors, fit.interrupted),
        Err(solve::Halt::Interrupted) => (fit.after.clone(), true),
        Err(solve::Halt::Failed(error)) => return Err(error),
    };
    // With all that was free fitted, as far as it shows, what the core does is told from what the device does.
    if only.is_empty() && !interrupted {
        done.clear_doubt(UNCALIBRATED);
    }
    done.clear_doubt(MISFIT);
    if let Some(doubt) = misfit(rms(&after), interrupted, held) {
        done.add_doubt(&doubt);
    }
    let residuals = targets.list.iter().enumerate().map(|(at, target)| Residual {
        target: target.name.clone(),
        want: target.want,
        unit: target.unit.clone(),
        before: fit.before.get(at).copied().unwrap_or(f64::NAN),
        after: after.get(at).copied().unwrap_or(f64::NAN),
        within: target.within,
        moved_by: (fit.influence.get(at))
            .map(|row| strongest(row).into_iter().map(|column| free[column].0.clone()).collect()),
    });
    Ok(Calibrated {
        profile: done,
        residuals: residuals.collect(),
        numbers,
        origin: targets.origin.clone(),
        evaluations: fit.evaluations + 1,
        left: rms(&fit.after),
        held,
        interrupted,
    })
}

/// Where a row or a column of influences is largest, the most first; those that count, and as many as references name.
fn strongest(influences: &[f64]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..influences.len()).filter(|&at| influences[at].abs() > MOVES).collect();
    order.sort_by(|&a, &b| influences[b].abs().total_cmp(&influences[a].abs()).then(a.cmp(&b)));
    order.truncate(NAMED);
    order
}

fn number(at: usize, free: &[(String, Quantity)], fit: &Fit, targets: &Targets) -> Number {
    let (name, quantity) = &free[at];
    let influence: Vec<f64> = fit.influence.iter().map(|row| row[at]).collect();
    let fitted = fit.seen[at] >= SHOWN;
    let shared = fitted && fit.inflation[at] >= SHARED;
    let after = if fitted { rounded(fit.values[at], quantity) } else { quantity.value };
    // Where a bound stopped it, it would have gone on.
    let stopped = quantity.free.is_some_and(|bounds| bounds.contains(&after));
    Number {
        name: name.clone(),
        before: quantity.value,
        after,
        unit: quantity.unit.name(),
        free: quantity.free.unwrap_or_default(),
        resolution: (!fit.influence.is_empty()).then_some(fit.resolution[at]),
        inflation: fit.inflation[at],
        error: fit.error[at],
        shared_with: fit.partner[at].filter(|_| shared).map(|other| free[other].0.clone()),
        fitted,
        stopped: fitted && stopped,
        // What was interrupted was not tried both ways.
        pinned: fitted
            && !fit.interrupted
            && fit.resolution[at] >= PINNED
            && !shared
            && !stopped
            && fit.error[at] <= SURE
            && rms(&fit.after) <= MET,
        shows_in: strongest(&influence).into_iter().map(|row| targets.list[row].name.clone()).collect(),
    }
}

impl Number {
    /// What a number that shows by itself is known to.
    pub fn within(&self) -> Option<String> {
        self.pinned.then(|| within(self.error))
    }

    /// Puts what became of the number into the profile's `quantity`, which is as it was before the fit, by a fit that left `rms`. Calibrated
    /// is what lets the model meet its targets: no number at a bound, where it would have gone on, and none of a fit that misses.
    fn write(&self, quantity: &mut Quantity, origin: &str, rms: f64) {
        let was = format!("was {} ({})", self.before, quantity.source.name());
        if !self.shows_in.is_empty() {
            // Also where the targets were measured: what was measured is rates and latencies, not this number.
            let met = rms <= FITS && !self.stopped;
            quantity.source = if met { Source::Calibrated } else { Source::Assumed };
            let shows_in = self.shows_in.join(" and ");
            let shared =
                self.shared_with.as_ref().map_or(String::new(), |other| format!(", shared with {other}"));
            let within = self.within().map_or(String::new(), |within| format!(", {within}"));
            let how = match (self.stopped, rms <= FITS) {
                (true, _) => ", stopped by its bound".to_owned(),
                (false, false) => format!(", with {:.1} % left", 100.0 * rms),
                (false, true) => String::new(),
            };
            let resolution = self.resolution.unwrap_or_default();
            quantity.reference = format!(
                "fitted to {shows_in} of {origin}{how}; resolution {resolution:.2}{within}{shared}; {was}"
            );
        } else if self.after != self.before {
            // Its old source does not speak for another value, and the targets say no more than that it hides.
            quantity.source = Source::Assumed;
            quantity.reference =
                format!("moved to where no target of {origin} shows it, which is a bound; {was}");
        }
        quantity.value = self.after;
    }
}

/// Twice a standard error.
fn within(error: f64) -> String {
    format!("± {:.0} %", (200.0 * error).ceil())
}

/// Four significant digits are more than a fit knows; counts are whole. A number at a bound stays within it.
fn rounded(value: f64, of: &Quantity) -> f64 {
    let rounded = match of.unit {
        Unit::Count | Unit::Bytes => value.round(),
        // Where bounds begin at zero a search comes near it, and no profile holds so little.
        unit if value < unit.least() => 0.0,
        _ => format!("{value:.3e}").parse().unwrap_or(value),
    };
    match of.free {
        Some([low, high]) if low <= high => rounded.clamp(low, high),
        _ => rounded,
    }
}

fn quantity<'p>(profile: &'p mut Profile, name: &str) -> Option<&'p mut Quantity> {
    match name.split_once('.')? {
        ("nic", name) => profile.nic.number_mut(name),
        (_, name) => profile.cpu.number_mut(name),
    }
}

fn set(profile: &mut Profile, name: &str, value: f64) {
    if let Some(quantity) = quantity(profile, name) {
        quantity.value = value;
    }
}

impl Calibrated {
    /// Root mean square of the errors, before and after.
    pub fn rms(&self) -> (f64, f64) {
        let all = |of: fn(&Residual) -> f64| rms(&self.residuals.iter().map(of).collect::<Vec<_>>());
        (all(|r| r.before), all(|r| r.after))
    }

    /// Why a number that was fitted does not count as pinned.
    pub fn unpinned(&self, number: &Number) -> String {
        match &number.shared_with {
            _ if number.stopped => "stopped by its bound".to_owned(),
            Some(other) => format!("shared with {other}"),
            _ if self.interrupted => "not tried both ways".to_owned(),
            _ if number.resolution.is_none_or(|resolution| resolution < PINNED) => "bounded".to_owned(),
            _ if number.error > SURE => format!("known only {}", within(number.error)),
            _ => format!(
                "not pinned: the fit leaves {:.2} %, more than {:.0} %",
                100.0 * self.left,
                100.0 * MET
            ),
        }
    }

    /// The profile file: the residuals as comments, then the numbers.
    ///
    /// # Errors
    /// If a number cannot be written as YAML.
    pub fn file(&self) -> Result<String, CliError> {
        let yaml = self.profile.to_yaml();
        let yaml = yaml.map_err(|e| CliError::check("the profile cannot be written").caused_by(&e))?;
        let (before, after) = self.rms();
        let mut text = format!(
            "# Fitted by `doorbell calibrate` to {}:\n# {} evaluations, root mean square error {:.1} % before, {:.1} % after{}.\n#\n# target: wanted, error before, error after\n",
            self.origin,
            self.evaluations,
            100.0 * before,
            100.0 * after,
            if self.interrupted { ", ended early" } else { "" },
        );
        for r in &self.residuals {
            let (before, after) = (change(r.before), change(r.after));
            text.push_str(&format!("# {}: {} {}, {before}, {after}\n", r.target, r.want, r.unit));
        }
        let carried: Vec<&str> = self.numbers.iter().filter(|n| !n.fitted).map(|n| n.name.as_str()).collect();
        if !carried.is_empty() {
            text.push_str(&format!(
                "#\n# Free, but not pinned by these targets, and carried over: {}\n",
                carried.join(", ")
            ));
        }
        let hidden = self.numbers.iter().filter(|n| n.fitted && n.shows_in.is_empty());
        let hidden: Vec<&str> = hidden.map(|n| n.name.as_str()).collect();
        if !hidden.is_empty() {
            text.push_str(&format!(
                "#\n# Free, and bounded, but shown by no target: {}\n",
                hidden.join(", ")
            ));
        }
        Ok(text + &yaml)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_at_its_bound_is_rounded_to_within_it() {
        let quantity =
            |unit, free| Quantity { free, ..Quantity::fixed(1.0, unit, Source::Assumed, "a test") };
        assert_eq!(rounded(2049.2, &quantity(Unit::Ns, Some([2049.2, 204_918.0]))), 2049.2);
        assert_eq!(rounded(204_918.0, &quantity(Unit::Ns, Some([2049.2, 204_918.0]))), 204_900.0);
        assert_eq!(rounded(204_951.0, &quantity(Unit::Ns, Some([2049.2, 204_951.0]))), 204_951.0);
        assert_eq!(rounded(1234.56, &quantity(Unit::Ns, None)), 1235.0);
        assert_eq!(rounded(6.47e-7, &quantity(Unit::Ns, Some([0.0, 4.0]))), 0.0);
        assert_eq!(rounded(6.47e-7, &quantity(Unit::Ns, Some([1.0, 4.0]))), 1.0);
        assert_eq!(rounded(7.6, &quantity(Unit::Count, Some([1.0, 16.0]))), 8.0);
    }

    #[test]
    fn a_fit_that_is_far_off_stays_in_doubt() {
        assert_eq!(misfit(0.0, false, 0), None);
        assert_eq!(misfit(0.05, true, 3), None);
        assert!(
            misfit(0.06, false, 3)
                .is_some_and(|doubt| doubt.ends_with("3 of its free numbers were not fitted"))
        );
        assert!(misfit(0.06, true, 0).is_some_and(|doubt| doubt.ends_with("ended early")));
        for (rms, told) in [(0.051, "5.1 %, more than 5 %"), (2.7, "270.0 %"), (f64::NAN, "NaN")] {
            assert!(
                misfit(rms, false, 0).is_some_and(|doubt| doubt.starts_with(MISFIT) && doubt.contains(told)),
                "{rms}"
            );
        }
    }

    #[test]
    fn only_what_a_target_shows_becomes_calibrated() {
        let by_a_fit = |(stopped, rms), source, before: f64, after: f64, shows_in: &[&str]| {
            let mut quantity = Quantity::fixed(before, Unit::Ns, source, "a paper");
            let number = Number {
                name: "nic.requester_write".to_owned(),
                before,
                after,
                unit: "ns",
                free: [1.0, 100.0],
                resolution: Some(0.43),
                inflation: 12.0,
                error: 0.3,
                shared_with: Some("nic.responder_write".to_owned()),
                fitted: true,
                stopped,
                pinned: false,
                shows_in: shows_in.iter().map(|&s| s.to_owned()).collect(),
            };
            number.write(&mut quantity, "a card", rms);
            (quantity.value, quantity.source, quantity.reference)
        };
        let written = |source, before, after, shows_in: &[&str]| {
            by_a_fit((false, 0.01), source, before, after, shows_in)
        };
        let (value, source, reference) = written(Source::Published, 7.0, 5.0, &["latency read 8 B"]);
        assert_eq!((value, source), (5.0, Source::Calibrated));
        assert!(reference.contains("latency read 8 B of a card") && reference.contains("was 7 (published)"));
        assert!(reference.contains("resolution 0.43, shared with nic.responder_write;"), "{reference}");
        // The model does not meet what it was fitted to, or would if it could go on.
        for (how, told) in [((false, 0.051), "with 5.1 % left"), ((true, 0.01), "stopped by its bound")] {
            let (value, source, reference) =
                by_a_fit(how, Source::Published, 7.0, 5.0, &["latency read 8 B"]);
            assert_eq!((value, source), (5.0, Source::Assumed));
            assert!(reference.contains(told), "{reference}");
        }
        // Nothing shows it, and it is as it was: so is what is known of it.
        for source in [Source::Assumed, Source::Published] {
            assert_eq!(written(source, 7.0, 7.0, &[]), (7.0, source, "a paper".to_owned()));
        }
        // Nothing shows it where it came to: no paper says so, and no fit either.
        for source in [Source::Assumed, Source::Published, Source::Calibrated] {
            let (value, after, reference) = written(source, 7.0, 5.0, &[]);
            assert_eq!((value, after), (5.0, Source::Assumed));
            assert!(reference.contains("no target of a card shows it"), "{reference}");
        }
    }
}
