//! Ctrl-C: the first one asks running points to be the last, the second ends the process at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::error::{CliError, Exit};
use crate::output::to_stderr;

/// Whether somebody asked us to stop. Clones share the answer.
#[derive(Clone, Debug, Default)]
pub struct Interrupt {
    asked: Arc<AtomicBool>,
    listening: Arc<AtomicBool>,
}

impl Interrupt {
    /// One that nobody asked yet, not tied to any signal.
    pub fn new() -> Interrupt {
        Interrupt::default()
    }

    /// Ties it to Ctrl-C, once per process; later calls change nothing. For commands that have
    /// something to finish: elsewhere the default, which is to end at once, is right.
    ///
    /// # Errors
    /// If the handler cannot be set.
    pub fn listen(&self) -> Result<(), CliError> {
        if self.listening.swap(true, Ordering::SeqCst) {
            return Ok(());
        }
        let shared = self.clone();
        let handler = move || {
            if shared.ask() {
                to_stderr("\ndoorbell: stopping, and keeping what was measured; Ctrl-C again ends at once\n");
            } else {
                std::process::exit(Exit::Interrupted.code().into());
            }
        };
        ctrlc::set_handler(handler).map_err(|e| CliError::machine("cannot listen for Ctrl-C").caused_by(&e))
    }

    /// Asks to stop. Whether this was the first time.
    pub fn ask(&self) -> bool {
        !self.asked.swap(true, Ordering::SeqCst)
    }

    /// The answer as a flag that running points look at.
    pub fn flag(&self) -> &AtomicBool {
        &self.asked
    }

    /// Whether somebody asked.
    pub fn asked(&self) -> bool {
        self.asked.load(Ordering::SeqCst)
    }
}
