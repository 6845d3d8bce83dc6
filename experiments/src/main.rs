//! The `doorbell` binary: reads the command line, runs the command, ends with its exit code.

// As in the library.
#![deny(clippy::print_stdout, clippy::print_stderr)]

use std::process::ExitCode;

use experiments::args::Cli;
use experiments::commands::{self, Context};
use experiments::interrupt::Interrupt;
use experiments::output::{Talk, printed};

fn main() -> ExitCode {
    Interrupt::honour_nohup();
    let cli = match Cli::read(std::env::args_os()) {
        Ok(cli) => cli,
        Err(error) => {
            // Help and version go to stdout and exit with 0, mistakes to stderr and exit with 2. A full disk is a mistake too.
            return ExitCode::from(match printed(error.print()) {
                Err(lost) => {
                    Talk::new(0, false).error(&lost);
                    lost.exit().code()
                }
                Ok(()) if error.use_stderr() => 2,
                Ok(()) => 0,
            });
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
