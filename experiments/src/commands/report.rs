//! `doorbell report`: result directories to one page.

use super::Context;
use crate::args::ReportArgs;
use crate::error::CliError;
use crate::output::emit;
use primitives::measure::is_full;
use serde_json::json;
use std::path::{Path, PathBuf};

/// The command.
///
/// # Errors
/// Exit code 2 if a directory holds no results or the page cannot be written, 3 if there is no room for it.
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
    let told = json!({
        "page": report.page, "figures": report.figures, "answers": report.answers, "notes": report.notes,
    });
    emit(args.json.as_ref(), &told, &format!("{answers}{}\n", report.page.display()))?;
    if report.figures.is_empty() {
        return Err(CliError::check("there is nothing to draw: no point has been measured")
            .hint("run the command in run.json again: it goes on with what is missing"));
    }
    Ok(())
}

/// What every page of ours has in its head; pages are made again, other files are left alone.
const MARK: &str = "<meta name=\"generator\" content=\"doorbell\">";

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
                    None => error,
                }
            }
            reports::ReportError::Mixed { .. } => error.hint("join them all the same with --mixed"),
            reports::ReportError::Unwritable { ref source, .. } if is_full(source) => {
                CliError::machine("no report could be made")
                    .caused_by(&e)
                    .hint("make room there, or name another --out")
            }
            _ => error,
        }
    })?;
    for note in &report.notes {
        context.talk.warn(note);
    }
    Ok(report)
}
