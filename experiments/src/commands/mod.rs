//! The commands, one module each, and the place where they are told apart.

mod calibrate;
pub mod characterize;
mod check;
mod devices;
pub mod experiment;
mod node;
mod quickstart;
mod report;
mod reproduce;
mod run;
mod shell;
mod study;
pub mod tune;

use crate::args::{Cli, Command, QuickstartArgs};
use crate::error::CliError;
use crate::interrupt::Interrupt;
use crate::output::{Talk, command_line};
use crate::sweep::Sweep;

/// What every command is given.
#[derive(Clone, Debug)]
pub struct Context {
    /// What is said on stderr.
    pub talk: Talk,
    /// Ctrl-C. Commands that sweep call [`Interrupt::listen`] first.
    pub interrupt: Interrupt,
    /// This command line, for `run.json` and for hints.
    pub command: String,
}

impl Context {
    /// From the parsed command line.
    pub fn new(cli: &Cli) -> Context {
        let args = std::env::args_os().map(|arg| arg.to_string_lossy().into_owned());
        Context {
            talk: Talk::new(cli.verbose, cli.quiet),
            interrupt: Interrupt::new(),
            command: command_line(args),
        }
    }

    /// A sweep that this process's Ctrl-C ends.
    pub fn sweep(&self, title: impl Into<String>, jobs: usize) -> Sweep {
        Sweep {
            title: title.into(),
            jobs,
            talk: self.talk,
            interrupt: self.interrupt.clone(),
            repeat: self.command.clone(),
            only: None,
            goes_on: false,
        }
    }
}

/// Runs the command.
///
/// # Errors
/// What the command could not do, with the exit code.
pub fn dispatch(cli: &Cli, context: &Context) -> Result<(), CliError> {
    let quickstart = Command::Quickstart(QuickstartArgs { seed: 1, ..QuickstartArgs::default() });
    match cli.command.as_ref().unwrap_or(&quickstart) {
        Command::Calibrate(args) => calibrate::run(args, context),
        Command::Characterize(args) => characterize::run(args, context),
        Command::Devices(args) => devices::run(args, context),
        Command::Check(args) => check::run(args, context),
        Command::Completions(args) => shell::completions(args),
        Command::Man(args) => shell::man(args),
        Command::Report(args) => report::run(args, context),
        Command::Reproduce(args) => reproduce::run(args, context),
        Command::Quickstart(args) => quickstart::run(args, context),
        Command::Run(args) => run::run(args, context),
        Command::Node(args) => node::run(args, context),
        Command::Study(args) => study::run(args, context),
        Command::Tune(args) => tune::run(args, context),
        Command::Experiment(args) => experiment::run(args, context),
    }
}
