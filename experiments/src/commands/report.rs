//! `doorbell report`: result directories to one page.

use super::Context;
use crate::args::ReportArgs;
use crate::error::CliError;
use crate::nearby::Wanted;
use crate::output::{command_line, emit};
use crate::schedule;
use primitives::measure::is_full;
use reports::older::MARK;
use serde_json::json;
use std::path::{Path, PathBuf};

/// The command.
///
/// # Errors
/// Exit code 2 if a directory holds no results, even where the others make a page, or the page cannot be written; 3 if there is
/// no room for it; 1 if nothing can be drawn, or `--complete` was asked for and points are missing.
pub fn run(args: &ReportArgs, context: &Context) -> Result<(), CliError> {
    let out = match (&args.out, args.dirs.as_slice()) {
        (Some(out), _) => out.clone(),
        (None, [first, ..]) => first.clone(),
        (None, []) => PathBuf::from("."),
    };
    if let Some(json) = &args.json {
        json.check()?;
    }
    let report = render(&args.dirs, &out, args.mixed, context)?;
    let answers: String = report.answers.iter().map(|answer| format!("{answer}\n")).collect();
    let left_out: Vec<String> = report.problems.iter().map(ToString::to_string).collect();
    let told = json!({
        "page": report.page, "figures": report.figures, "answers": report.answers, "notes": report.notes, "joined": report.joined,
        "complete": report.unfinished.is_empty() && left_out.is_empty(), "unfinished": report.unfinished, "left_out": left_out,
    });
    // Nobody named a directory for what is of all of them.
    let first = match (&args.out, args.dirs.len()) {
        (None, 2..) => " (in the first of these directories; --out names another)",
        _ => "",
    };
    emit(args.json.as_ref(), &told, &format!("{answers}\npage: {}{first}\n", report.page.display()))?;
    if report.figures.is_empty() {
        return Err(CliError::check("there is nothing to draw: no point has been measured")
            .hint("run the command in run.json again: it goes on with what is missing"));
    }
    whole(&report)?;
    if args.complete { complete(&report) } else { Ok(()) }
}

/// Whether no run lacks points.
fn complete(report: &reports::Report) -> Result<(), CliError> {
    if report.unfinished.is_empty() {
        return Ok(());
    }
    let lacking =
        report.unfinished.iter().map(|run| format!("{} ({} of {} points)", run.run, run.points, run.of));
    let lacking: Vec<String> = lacking.collect();
    Err(CliError::check(format!("not all points are there: {}", lacking.join(", ")))
        .hint("the warnings say which shards or commands measure them"))
}

/// Whether a page is made of all that was given. What could be read was drawn; what could not is told after it.
///
/// # Errors
/// Exit code 2 with what was left out, and why.
pub fn whole(report: &reports::Report) -> Result<(), CliError> {
    let Some(first) = report.problems.first() else { return Ok(()) };
    let hint = first.hint().unwrap_or_else(|| "name directories that hold results".to_owned());
    let error = CliError::usage("the page was made without some of what was given").hint(hint);
    Err(report.problems.iter().fold(error, |error, problem| error.caused_by(problem)))
}

/// How the page begins each run that it shows.
const RUN: &str = "<article class=\"run\">";

/// Draws the page that lies in a result directory anew, if there is one and it shows that directory alone: it would go on showing
/// an older question, older figures, fewer points.
///
/// # Errors
/// As [`run`].
pub fn redraw(dir: &Path, context: &Context) -> Result<(), CliError> {
    let page = dir.join("report.html");
    let Ok(text) = std::fs::read_to_string(&page) else { return Ok(()) };
    let words = ["doorbell", "report", &dir.display().to_string()].map(str::to_owned);
    match (text.contains(MARK), text.matches(RUN).count()) {
        (false, _) => Ok(()),
        (true, 1) => {
            let context = Context { command: command_line(words), ..context.clone() };
            render(&[dir.to_owned()], dir, false, &context)?;
            context.talk.say(format!("{} is drawn anew", page.display()));
            Ok(())
        }
        _ => {
            let page = page.display();
            context.talk.say(format!("{page} shows other directories too: `doorbell report` draws it anew"));
            Ok(())
        }
    }
}

/// Writes the page of `dirs` into `out` and says what it noticed.
///
/// # Errors
/// As [`run`].
pub fn render(
    dirs: &[PathBuf],
    out: &Path,
    mixed: bool,
    context: &Context,
) -> Result<reports::Report, CliError> {
    let options = reports::Options {
        command: context.command.clone(),
        commit: crate::COMMIT.to_owned(),
        mixed,
        ..reports::Options::default()
    };
    let page = out.join("report.html");
    if std::fs::read_to_string(&page).is_ok_and(|text| !text.contains(MARK)) {
        return Err(CliError::usage(format!(
            "{} is there already and was not made by doorbell",
            page.display()
        ))
        .hint("name another --out"));
    }
    let report = reports::render(dirs, &page, &options).map_err(|e| {
        let error = CliError::usage("no report could be made").caused_by(&e);
        match e {
            reports::ReportError::NothingLoaded(ref problems) => {
                match problems.iter().find_map(reports::LoadError::hint) {
                    Some(hint) => error.hint(hint),
                    None => match dirs.iter().find(|dir| !dir.exists()) {
                        Some(absent) => Wanted::Results.told(absent, error),
                        None => error,
                    },
                }
            }
            reports::ReportError::Columns { ref second, .. } => {
                error.hint(format!("measure the share of {} again, or leave it out", second.display()))
            }
            reports::ReportError::Mixed { .. } if mixed => error,
            reports::ReportError::Mixed { .. } => error.hint("join them all the same with --mixed"),
            reports::ReportError::Unwritable { ref source, .. } if is_full(source) => {
                CliError::machine("no report could be made")
                    .caused_by(&e)
                    .hint("make room there, or name another --out")
            }
            _ => error,
        }
    })?;
    report.joined.iter().for_each(|joined| context.talk.say(joined));
    for note in &report.notes {
        match note.contains(schedule::NOTED) {
            true => context.talk.warn_of_busy(note),
            false => context.talk.warn(note),
        }
    }
    Ok(report)
}
