//! What can go wrong with result files, with the path and a way out.

use std::io;
use std::path::{Path, PathBuf};

use super::Difference;
use crate::place::Mistake;

/// Why a result directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ResultError {
    /// The operating system refused.
    #[error("cannot {action} {path}", path = .path.display())]
    Io {
        /// What was tried: `create`, `write`, `read`, `lock`.
        action: &'static str,
        /// On which file or directory.
        path: PathBuf,
        /// What it said.
        #[source]
        source: io::Error,
    },
    /// The directory keeps another run's results.
    #[error("{} holds the results of another run{}", .path.display(), .differs.first().map(|d| format!(": {d}")).unwrap_or_default())]
    OtherRun {
        /// The directory.
        path: PathBuf,
        /// What differs, at least one.
        differs: Vec<Difference>,
    },
    /// The same, of a directory that another build wrote: that may be why.
    #[error("{why}; build {theirs} wrote it, and this is build {ours}")]
    OtherBuild {
        /// Why the directory cannot be used.
        why: Box<ResultError>,
        /// The commit of the build that began it.
        theirs: String,
        /// And of this one.
        ours: String,
    },
    /// Result files without a `run.json`, so nobody knows whose they are.
    #[error("{path} holds {file} but no run.json", path = .path.display())]
    NoRecord {
        /// The directory.
        path: PathBuf,
        /// The file found.
        file: &'static str,
    },
    /// Runs lie in the directory, each in one of its own: a report of it would no longer find them.
    #[error("{path} holds results of other runs, {inner} among them", path = .path.display(), inner = .inner.display())]
    Holds {
        /// The directory.
        path: PathBuf,
        /// One of theirs.
        inner: PathBuf,
    },
    /// Runs are to be kept below a directory that is one run's own.
    #[error("{path} holds the results of a run of its own", path = .path.display())]
    OneRun {
        /// The directory.
        path: PathBuf,
    },
    /// Another process is writing there now.
    #[error("another process is writing to {path}", path = .path.display())]
    Busy {
        /// The directory.
        path: PathBuf,
    },
    /// A file that does not hold what it should.
    #[error("{}", .mistake.told(.path.display()))]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong, with the line where there is one.
        mistake: Mistake,
    },
    /// A file that is there already and is not ours.
    #[error("{path} exists", path = .path.display())]
    Exists {
        /// The file.
        path: PathBuf,
    },
    /// A file that a run left in its directory, and that somebody has changed since, or may have: older builds did not note what they left.
    #[error("{path} {} been edited since it was left there", if *.known { "has" } else { "may have" }, path = .path.display())]
    Edited {
        /// The file.
        path: PathBuf,
        /// Whether it is known what was left.
        known: bool,
    },
    /// A row names a column its table does not have: a bug in the caller.
    #[error("{table} has no column `{column}`")]
    NoColumn {
        /// The table's file name.
        table: &'static str,
        /// The name.
        column: String,
    },
    /// A point measured twice or out of the grid: a bug in the caller.
    #[error("point {point} is not missing from this run of {expected} points")]
    NotMissing {
        /// The point.
        point: u64,
        /// Points of the run.
        expected: u64,
    },
}

/// Whether a file could not be written because a device or quota is full.
pub fn is_full(error: &io::Error) -> bool {
    use io::ErrorKind as E;
    matches!(error.kind(), E::StorageFull | E::QuotaExceeded | E::FileTooLarge)
}

impl ResultError {
    /// What the system said when `action` was tried on `path`.
    pub fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> ResultError {
        let path = path.to_owned();
        move |source| ResultError::Io { action, path, source }
    }

    /// With both builds, if what a directory holds is not what this one expects and another one wrote it.
    #[must_use]
    pub fn between(self, theirs: &str, ours: &str) -> ResultError {
        let may_be_why = matches!(self, ResultError::OtherRun { .. } | ResultError::Damaged { .. });
        if !may_be_why || theirs == ours {
            return self;
        }
        ResultError::OtherBuild { why: Box::new(self), theirs: theirs.to_owned(), ours: ours.to_owned() }
    }

    /// What to do about it.
    pub fn hint(&self) -> String {
        use io::ErrorKind as E;
        match self {
            ResultError::Io { source, .. } => match source.kind() {
                _ if is_full(source) => "make room there, or choose another place",
                E::PermissionDenied | E::ReadOnlyFilesystem => "choose a place you may write to",
                E::AlreadyExists => "a file is in the way; name a directory",
                E::NotADirectory => "a part of the path is a file; choose another place",
                E::IsADirectory => "a directory of that name is in the way: move it away, or choose another path",
                _ => "check the path, or choose another one",
            }
            .to_owned(),
            ResultError::OtherRun { .. } | ResultError::Holds { .. } | ResultError::OneRun { .. } => {
                "name another directory with --out, or remove this one if you no longer need it; nothing is ever overwritten"
                    .to_owned()
            }
            ResultError::OtherBuild { why, .. } => why.hint(),
            ResultError::Exists { .. } => {
                "choose another place, or remove it if you no longer need it; nothing is ever overwritten"
                    .to_owned()
            }
            ResultError::Edited { .. } => {
                "move it elsewhere, and use it from there; or give this run another directory: --out DIR".to_owned()
            }
            ResultError::NoRecord { .. } => {
                "choose another directory, or remove this one if its run.json is lost for good".to_owned()
            }
            ResultError::Busy { .. } => "wait for it to end, or choose another directory".to_owned(),
            ResultError::Damaged { path, .. } => {
                format!("restore {} from a copy, or measure again into another directory", path.display())
            }
            ResultError::NoColumn { .. } | ResultError::NotMissing { .. } => {
                "this is a bug in doorbell: please report it with the command line".to_owned()
            }
        }
    }

    /// Whether the cause is that a device or quota is full.
    pub fn is_full(&self) -> bool {
        matches!(self, ResultError::Io { source, .. } if is_full(source))
    }
}
