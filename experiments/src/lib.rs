//! The `doorbell` commands: what a person asks, checked and carried out, and the experiment files.
//!
//! [`args`] is the command line, [`spec`] the experiment file; both end in the same
//! [`spec::RunSpec`], checked by the same parsers. [`sweep`] measures the points of a grid into a
//! [`primitives::measure::ResultDir`], on several threads, resumable, ended cleanly by Ctrl-C. [`output`]
//! keeps data on stdout and talk on stderr. [`error`] is the one error type, with a hint and an exit code.
//!
//! A command is a module in [`commands`] with `run(&Args, &Context) -> Result<(), CliError>`, and one line in
//! [`commands::dispatch`].

// `output` is the only home of what is printed: elsewhere a reader who goes away would be a panic.
#![deny(clippy::print_stdout, clippy::print_stderr)]

pub mod args;
pub mod calibrate;
pub mod claims;
pub mod cluster;
pub mod commands;
mod differs;
pub mod directory;
pub mod error;
pub mod fabrics;
pub mod interrupt;
pub mod listed;
pub mod memory;
pub mod names;
pub mod nearby;
pub mod output;
pub mod primitive;
pub mod progress;
pub mod regret;
pub mod schedule;
pub mod scope;
pub mod settings;
pub mod spec;
pub mod sweep;
pub mod transact;
pub mod window;
pub mod yaml;

/// Version of this binary.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Commit it was built from, with `-dirty` behind it if its sources were edited since, or `unknown`.
pub const COMMIT: &str = env!("DOORBELL_COMMIT");

/// What `--version` says: of a build with libibverbs that, too, since nothing else tells it from one without.
pub const BUILD: &str = match cfg!(feature = "verbs") {
    true => concat!(env!("CARGO_PKG_VERSION"), " (", env!("DOORBELL_COMMIT"), ", with verbs)"),
    false => concat!(env!("CARGO_PKG_VERSION"), " (", env!("DOORBELL_COMMIT"), ")"),
};
