//! `doorbell calibrate`: a profile's free numbers, fitted to calibrate claims or to a characterization.

use primitives::measure::{Kind, RunRecord, write_new};
use primitives::profile::Interface;
use serde_json::json;
use std::path::{Path, PathBuf};

use super::Context;
use crate::args::{CalibrateArgs, each_once};
use crate::calibrate::solve::Settings;
use crate::calibrate::{Calibrated, Listeners, Residual, Stage, Targets, calibrate, most_evaluations};
use crate::error::CliError;
use crate::fabrics::profile;
use crate::names;
use crate::nearby::Wanted;
use crate::output::{change, check_new, emit, table};
use crate::progress::{Progress, Task};
use crate::spec::ProfileChoice;

/// The command.
///
/// # Errors
/// Exit code 2 if profile or targets cannot be used, 1 if a target cannot be simulated, 130 after Ctrl-C, when
/// the best so far has been written, if there is any.
pub fn run(args: &CalibrateArgs, context: &Context) -> Result<(), CliError> {
    if let Some(json) = &args.json {
        json.check()?;
    }
    let choice = match (&args.profile, &args.from) {
        (Some(choice), _) => choice.clone(),
        (None, Some(dir)) => ProfileChoice::File(left_by(dir)?),
        (None, None) => {
            let message = "say what to fit: --profile NAME, a shipped profile or a file, or --from DIR, a characterization";
            return Err(CliError::usage(message).hint(EXAMPLES));
        }
    };
    each_once("--only", &args.only)?;
    let start = profile(&choice)?;
    // A profile may be called what no file can be.
    let usual = || PathBuf::from(format!("{}.calibrated.profile.yaml", names::for_file(&start.name)));
    let out = args.out.clone().unwrap_or_else(usual);
    check_new(&out)?;
    if args.from.is_some() && start.nic.interface == Interface::Messages {
        let message =
            format!("profile {} has no one-sided verbs, which a characterization is fitted by", start.name);
        return Err(CliError::usage(message).hint("--profile takes a card: cx4-edr, or a file like it"));
    }
    let mut targets = match &args.from {
        Some(dir) => Targets::of_results(dir)?,
        None => Targets::of_claims(&start, crate::claims::calibrate()?)?,
    };
    targets.jobs = args.jobs.unwrap_or(targets.jobs);
    targets.warnings.iter().for_each(|text| context.talk.warn(text));
    context.interrupt.listen()?;
    let settings = Settings { rounds: args.rounds as usize, ..Settings::default() };
    context.talk.say(format!("fitting profile {} to {}", start.name, targets.origin));
    // How many evaluations it takes is known when it is done.
    let numbers = match args.only.len() {
        0 => start.free().count(),
        some => some,
    };
    let title = format!("fitting, by at most {}", most_evaluations(numbers, settings.rounds));
    let task = Task { title, what: "evaluation", done: 0, total: None };
    let progress = Progress::begin(context.talk, task);
    let told = |stage: Stage, rms: f64, evaluations: usize| {
        let error = 100.0 * rms;
        let text = format!("{stage}: root mean square error {error:.2} % after {evaluations} evaluations");
        progress.suspend(|| context.talk.say(text));
    };
    let evaluated = || {
        context.interrupt.measured();
        progress.inc();
    };
    let heard = Listeners { evaluated: &evaluated, told: &told };
    let done = calibrate(&start, &args.only, &targets, &settings, &context.interrupt, &heard)?;
    drop(progress);
    write_new(&out, done.file()?.as_bytes())?;
    let (before, after) = done.rms();
    let document = json!({
        "profile": done.profile.name, "origin": done.origin, "out": out, "evaluations": done.evaluations,
        "interrupted": done.interrupted, "rms_before": before, "rms_after": after,
        "doubt": done.profile.doubt, "numbers": done.numbers, "residuals": done.residuals,
    });
    emit(args.json.as_ref(), &document, &format!("{}\nprofile: {}\n", shown(&done), out.display()))?;
    match done.interrupted {
        true => Err(CliError::interrupted().hint("the best numbers so far are in the profile file")),
        false => Ok(()),
    }
}

const EXAMPLES: &str = "`doorbell calibrate --profile cx4-edr` fits to published claims, `doorbell characterize --out DIR` and then \
                        `doorbell calibrate --from DIR` to what was measured";

/// The profile that a characterization left in its directory.
fn left_by(dir: &Path) -> Result<PathBuf, CliError> {
    let hint = "say which profile to start from: --profile NAME beside --from";
    let entries = std::fs::read_dir(dir).map_err(|e| {
        let error = CliError::usage(format!("cannot read {} (--from)", dir.display())).caused_by(&e);
        Wanted::Results.told(dir, error)
    })?;
    let mut found: Vec<PathBuf> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.to_string_lossy().ends_with(".profile.yaml"))
        .collect();
    match (found.pop(), found.is_empty()) {
        (Some(one), true) => Ok(one),
        (Some(_), false) => {
            Err(CliError::usage(format!("{} holds several profiles", dir.display())).hint(hint))
        }
        (None, _) => Err(match RunRecord::read(dir) {
            Ok(record) if record.kind == Kind::Characterize && !record.complete => CliError::usage(format!(
                "{} is unfinished, with {} of {} points, and holds no profile yet",
                dir.display(),
                record.points_done,
                record.points_here()
            ))
            .hint(format!("go on with: {}", record.command))
            .also(hint),
            _ => CliError::usage(format!("{} holds no profile", dir.display())).hint(hint),
        }),
    }
}

fn shown(done: &Calibrated) -> String {
    let significant = |value: f64| format!("{}", format!("{value:.3e}").parse::<f64>().unwrap_or(value));
    let residuals = done.residuals.iter().map(|r| {
        let got = |error: f64| format!("{} {}", significant(r.want * (1.0 + error)), r.unit);
        let vague = r.vague().map_or(String::new(), |within| format!(" {within}"));
        let want = format!("{} {}{vague}", significant(r.want), r.unit);
        [r.target.clone(), want, got(r.after), change(r.before), change(r.after)]
    });
    let mut text = table(&["target", "wanted", "got", "error before", "after"], residuals);
    text.push('\n');
    let numbers = done.numbers.iter().map(|n| {
        let after = match (n.fitted, n.within()) {
            (false, _) => "carried over".to_owned(),
            (true, Some(within)) => format!("{} {within}", significant(n.after)),
            (true, None) => format!("{}, {}", significant(n.after), done.unpinned(n)),
        };
        let range = format!("{} to {} {}", n.free[0], n.free[1], n.unit);
        let resolution = n.resolution.map_or(String::new(), |resolution| format!("{resolution:.2}"));
        [n.name.clone(), significant(n.before), after, range, resolution]
    });
    text.push_str(&table(&["number", "before", "after", "range", "resolution"], numbers));
    let (before, after) = done.rms();
    text.push_str(&format!(
        "\nroot mean square error: {:.1} % before, {:.1} % after {} evaluations\n",
        100.0 * before,
        100.0 * after,
        done.evaluations
    ));
    let pinned = done.numbers.iter().filter(|n| n.pinned).count();
    let held = match done.held {
        0 => String::new(),
        held => format!(", {held} more are held (--only)"),
    };
    text.push_str(&format!("pinned, each by itself: {pinned} of {} numbers{held}\n", done.numbers.len()));
    for missed in done.residuals.iter().filter_map(Residual::missed) {
        text.push_str(&format!("{missed}\n"));
    }
    if let Some(doubt) = &done.profile.doubt {
        text.push_str(&format!("the profile stays in doubt: it is {doubt}\n"));
    }
    text
}
