//! The `doorbell` binary: reads the command line, runs the command, ends with its exit code.

// As in the library.
#![deny(clippy::print_stdout, clippy::print_stderr)]

use std::process::ExitCode;

use clap::Parser;
use experiments::args::Cli;
use experiments::commands::{self, Context};

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // Help and version go to stdout and exit with 0, mistakes to stderr and exit with 2. A closed
            // pipe is no mistake.
            let _ = error.print();
            return ExitCode::from(if error.use_stderr() { 2 } else { 0 });
        }
    };
    let context = Context::new(&cli);
    match commands::dispatch(&cli, &context) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            context.talk.error(&error);
            ExitCode::from(error.exit().code())
        }
    }
}
