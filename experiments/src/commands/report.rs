//! `doorbell report`: result directories to one page.

use super::Context;
use crate::args::ReportArgs;
use crate::error::CliError;
use crate::output::print;
use std::path::{Path, PathBuf};

/// The command.
///
/// # Errors
/// Exit code 2 if a directory holds no results or the page cannot be written.
pub fn run(args: &ReportArgs, context: &Context) -> Result<(), CliError> {
    let out = match (&args.out, args.dirs.as_slice()) {
        (Some(out), _) => out.clone(),
        (None, [first, ..]) => first.clone(),
        (None, []) => PathBuf::from("."),
    };
    let page = render(&args.dirs, &out, context)?;
    print(&format!("{}\n", page.display()))
}

/// Writes the page of `dirs` into `out` and says what it noticed.
///
/// # Errors
/// As [`run`].
pub fn render(dirs: &[PathBuf], out: &Path, context: &Context) -> Result<PathBuf, CliError> {
    let options = reports::Options::default();
    let report = reports::render(dirs, out, &options)
        .map_err(|e| CliError::usage("no report could be made").caused_by(&e))?;
    for note in &report.notes {
        context.talk.warn(note);
    }
    Ok(report.page)
}
