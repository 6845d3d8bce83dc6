//! `doorbell completions` and `doorbell man`.

use clap::CommandFactory;

use crate::args::{Cli, CompletionsArgs, ManArgs};
use crate::error::CliError;
use crate::names::suggest;
use crate::output::print;

/// Prints a completion script.
pub fn completions(args: &CompletionsArgs) -> Result<(), CliError> {
    // Into memory first: the generator panics when it cannot write.
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "doorbell", &mut script);
    print(&String::from_utf8_lossy(&script))
}

/// Prints a manual page in roff: `doorbell man | man -l -`.
pub fn man(args: &ManArgs) -> Result<(), CliError> {
    let mut root = Cli::command();
    root.build();
    let page = match &args.command {
        None => root,
        Some(name) => {
            let known: Vec<String> = root.get_subcommands().map(|c| c.get_name().to_owned()).collect();
            let Some(found) = root.find_subcommand(name) else {
                let known: Vec<&str> = known.iter().map(String::as_str).collect();
                return Err(CliError::usage(format!("no command `{name}`")).hint(suggest(name, &known)));
            };
            found.clone()
        }
    };
    let mut roff = Vec::new();
    clap_mangen::Man::new(page).render(&mut roff)?;
    print(&String::from_utf8_lossy(&roff))
}
