//! `doorbell check`: the isolation of a recorded history.

use engine::verify::check;
use engine::verify::format::{ReadError, read_file};

use super::Context;
use crate::args::CheckArgs;
use crate::error::CliError;
use crate::output::emit;

/// Runs the command.
///
/// # Errors
/// Exit code 1 if the history is not of the level asked for, 2 if it is no history.
pub fn run(args: &CheckArgs, context: &Context) -> Result<(), CliError> {
    if let Some(json) = &args.json {
        json.check()?;
    }
    let path = &args.history;
    if std::fs::metadata(path).is_ok_and(|meta| !meta.is_file()) {
        return Err(CliError::usage(format!("{} is not a file", path.display())).hint(RECORD));
    }
    let history = read_file(path).map_err(|error| {
        let shown = CliError::usage(error.to_string());
        match &error {
            ReadError::Io { .. } => shown,
            ReadError::Format { .. } => shown.hint(RECORD),
        }
    })?;
    context.talk.detail(format!("{} transactions, {} operations", history.txns().len(), history.op_count()));
    let verdict = check(&history, args.level);
    emit(args.json.as_ref(), &verdict, &format!("{verdict}\n"))?;
    if verdict.passed() {
        Ok(())
    } else {
        Err(CliError::check(format!("{} is not {}", path.display(), args.level)))
    }
}

const RECORD: &str = "`doorbell run --history FILE` records one";
