//! `doorbell check`: the isolation of a recorded history, and the history in other checkers' formats.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use engine::verify::exchange::{ExportError, Format, read_file, write};
use engine::verify::format::ReadError;
use engine::verify::{History, Level, Share, check};

use indicatif::HumanBytes;

use super::Context;
use crate::args::CheckArgs;
use crate::error::CliError;
use crate::nearby::Wanted;
use crate::output::emit;
use crate::progress::{Progress, Task};

/// Runs the command.
///
/// # Errors
/// Exit code 1 if the history is not of the level asked for, 2 if it is no history, has no times where real time is
/// asked for, or does not fit a format it is to be written in, 3 if a file cannot be written.
pub fn run(args: &CheckArgs, context: &Context) -> Result<(), CliError> {
    if let Some(json) = &args.json {
        json.check()?;
    }
    let exports = exports(&args.export)?;
    let path = &args.history;
    if std::fs::metadata(path).is_ok_and(|meta| !meta.is_file()) {
        return Err(CliError::usage(format!("{} is not a file", path.display())).hint(RECORD));
    }
    let read = read_file(path, args.format).map_err(|error| {
        let shown = CliError::usage(error.to_string());
        match &error {
            ReadError::Io { .. } => Wanted::History.told(path, shown),
            ReadError::Format { .. } => shown.hint(RECORD),
        }
    })?;
    let history = &read.history;
    if let Some(Share { node, nodes }) = history.share() {
        return Err(CliError::usage(format!(
            "{} is the share of node {node}, one of {nodes}: what it read was written by others too, which it does not have",
            path.display()
        ))
        .hint("check the whole: node 0 does so by itself, and `doorbell run --cluster … --history FILE` keeps it there; a run that was \
               cut short has none"));
    }
    let (txns, ops) = (history.txns().len(), history.op_count());
    context.talk.detail(format!("{} history: {txns} transactions, {ops} operations", read.format));
    for (format, target) in &exports {
        let bytes = export(history, *format, target, context)?;
        let size = HumanBytes(bytes);
        context.talk.say(format!("wrote {} ({format}, {size})", target.display()));
        if *format == Format::ElleAppend && bytes > LARGE {
            context
                .talk
                .say("each read of a list tells the whole of it; elle-register tells the same in less");
        }
    }
    let level = match args.level {
        Some(Level::StrictSerializable) if !read.timed => {
            return Err(CliError::usage(format!(
                "{} has no times, so real time cannot be checked",
                path.display()
            ))
            .hint("`--level serializable` checks all the rest"));
        }
        Some(level) => level,
        None if read.timed => Level::StrictSerializable,
        None => {
            context.talk.warn(format!("{} has no times: checked without real time", path.display()));
            if read.format == Format::Plume {
                let cut = "its format cannot show where a file ends: one that is cut between two lines is checked as far as it goes";
                context.talk.warn(cut);
            }
            Level::Serializable
        }
    };
    if txns == 0 {
        return Err(CliError::check(format!(
            "{} has no transactions: there is nothing to judge",
            path.display()
        ))
        .hint(RECORD));
    }
    let verdict = check(history, level);
    emit(args.json.as_ref(), &verdict, &format!("{verdict}\n"))?;
    if verdict.passed() {
        return Ok(());
    }
    let error = CliError::check(format!("{} is not {level}", path.display()));
    // A history does not say what its protocol promises.
    let less = args.level.is_none() && level == Level::StrictSerializable;
    Err(match less && check(history, Level::Serializable).passed() {
        true => {
            error.hint("it is serializable, and sundial and mvcc promise no more: `--level serializable`")
        }
        false => error,
    })
}

/// The pairs behind `--export`, all to files that are not there yet.
fn exports(given: &[String]) -> Result<Vec<(Format, PathBuf)>, CliError> {
    let mut exports: Vec<(Format, PathBuf)> = Vec::new();
    for pair in given.chunks_exact(2) {
        let format = pair[0].parse::<Format>().map_err(|e| CliError::usage(format!("--export: {e}")))?;
        let target = PathBuf::from(&pair[1]);
        if target.exists() || exports.iter().any(|(_, other)| *other == target) {
            return Err(CliError::usage(format!("--export: {} is there already", target.display())));
        }
        exports.push((format, target));
    }
    Ok(exports)
}

/// Writes a history to a new file, and returns its bytes. What was begun in vain is removed.
fn export(history: &History, format: Format, target: &Path, context: &Context) -> Result<u64, CliError> {
    let refused = |error: std::io::Error| {
        CliError::machine(format!("the history cannot be written to {}", target.display())).caused_by(&error)
    };
    let file = File::create_new(target).map_err(refused)?;
    let title = format!("writing {} ({format})", target.display());
    let task = Task { title, what: "MiB", done: 0, total: None };
    let mut shown = Shown { to: file, bytes: 0, progress: Progress::begin(context.talk, task) };
    let mut out = BufWriter::with_capacity(1 << 20, &mut shown);
    // Dropped unflushed it would lose the error of its last write.
    let written = write(history, format, &mut out).and_then(|()| Ok(out.flush()?));
    drop(out);
    written.map_err(|error| {
        // The file is this command's own; that it cannot be removed either is no news.
        let _ = std::fs::remove_file(target);
        match error {
            ExportError::Io(error) => refused(error),
            unfit @ ExportError::Unfit { .. } => CliError::usage(unfit.to_string()),
        }
    })?;
    Ok(shown.bytes)
}

/// A file that may be long in the writing: how many MiB it has is shown.
struct Shown {
    to: File,
    bytes: u64,
    progress: Progress,
}

impl Write for Shown {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let before = self.bytes >> 20;
        let written = self.to.write(bytes)?;
        self.bytes += written as u64;
        (before..self.bytes >> 20).for_each(|_| self.progress.inc());
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

/// A file of more bytes than this is one that somebody may not have expected.
const LARGE: u64 = 64 << 20;

const RECORD: &str = "`doorbell run --history FILE` records one";
