//! What can go wrong, as values. A [`LoadError`] spoils one result directory and becomes a note on the page;
//! a [`ReportError`] means there is no page.

use primitives::measure::ResultError;
use std::path::PathBuf;

/// Why one result directory could not be read.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The directory, or a file in it, cannot be opened or read.
    #[error("cannot read {}: {source}", path.display())]
    Unreadable {
        /// What was opened.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// There is neither a `run.json` here nor in any directory directly below.
    #[error("{} holds no results: no run.json here or one level below", path.display())]
    NoResults {
        /// The directory.
        path: PathBuf,
    },
    /// Points without a `run.json`: nothing says whether they were measured or simulated.
    #[error("{}: run.json is missing, so nothing says whether its points were measured or simulated", path.display())]
    NoRecord {
        /// The directory.
        path: PathBuf,
    },
    /// A file that does not hold what it should, with the place.
    #[error(transparent)]
    Damaged(#[from] ResultError),
    /// `run.json` was written by a later version than this one can read.
    #[error("{}: schema {found} is newer than {known}, the newest this version reads", path.display())]
    Schema {
        /// The file.
        path: PathBuf,
        /// Version in the file.
        found: u64,
        /// Newest version known here.
        known: u64,
    },
    /// polars refused a table that had passed our own checks.
    #[error("{}: {source}", path.display())]
    Frame {
        /// The file.
        path: PathBuf,
        /// What polars said.
        source: polars::error::PolarsError,
    },
}

impl LoadError {
    /// What to do about it, where more can be said than what is wrong.
    pub fn hint(&self) -> Option<String> {
        match self {
            LoadError::Damaged(error) => Some(error.hint()),
            LoadError::Unreadable { source, .. } if source.kind() == std::io::ErrorKind::NotADirectory => {
                Some("results are directories: name the one that a command wrote with --out".to_owned())
            }
            _ => None,
        }
    }
}

/// Why there is no page.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    /// No directory was given.
    #[error("no result directory was given")]
    NoInput,
    /// Every directory given failed to load.
    #[error("nothing to show: {}", list(.0))]
    NothingLoaded(Vec<LoadError>),
    /// Two shards of one experiment that were not measured alike.
    #[error("{} and {} are shards of one experiment, but have {what}", first.display(), second.display())]
    Mixed {
        /// One directory.
        first: PathBuf,
        /// The other.
        second: PathBuf,
        /// What differs.
        what: String,
    },
    /// Two shards of one experiment whose tables have different columns.
    #[error(
        "points.csv of {} lacks {lacks}, which that of {}, another shard of the experiment, has: it is damaged, or another build wrote it",
        second.display(),
        first.display()
    )]
    Columns {
        /// The directory that has them.
        first: PathBuf,
        /// The one that has not.
        second: PathBuf,
        /// The columns.
        lacks: String,
    },
    /// A file of the report cannot be written.
    #[error("cannot write {}: {source}", path.display())]
    Unwritable {
        /// The file or directory.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A query over the results failed.
    #[error("cannot tabulate the results: {0}")]
    Frame(#[from] polars::error::PolarsError),
    /// A figure could not be drawn.
    #[error("cannot draw figure {figure}: {reason}")]
    Draw {
        /// The figure's identifier.
        figure: String,
        /// What plotters said.
        reason: String,
    },
    /// The page template failed.
    #[error("cannot write the page: {0}")]
    Page(#[from] askama::Error),
}

fn list(errors: &[LoadError]) -> String {
    errors.iter().map(LoadError::to_string).collect::<Vec<_>>().join("; ")
}
