//! Which directory a command keeps its results in: the one that was named, which may not hold another run's, or one below `doorbell-out`
//! that is new or holds the same run.

use std::path::{Path, PathBuf};

use primitives::measure::{ResultDir, ResultError, RunRecord};

use crate::error::CliError;
use crate::output::Talk;

/// Where results go if nobody says so.
pub const HOME: &str = "doorbell-out";

/// Where results go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// Into this directory.
    Named(PathBuf),
    /// Where nobody named one: into this directory or, where that holds another run, the first of `NAME-2`, `NAME-3` and so on that
    /// does not.
    Usual(PathBuf),
}

impl Place {
    /// The directory that was named, or the usual one below `home`.
    pub fn new(named: Option<&PathBuf>, home: &Path, usual: &str) -> Place {
        named.map_or_else(|| Place::Usual(home.join(usual)), |out| Place::Named(out.clone()))
    }

    /// Creates the directory for a run, or opens it to resume the same run; says so where it is not the first that came to mind.
    ///
    /// # Errors
    /// As [`ResultDir::create`].
    pub fn open(&self, record: RunRecord, axes: &[String], talk: Talk) -> Result<ResultDir, CliError> {
        let path = match self {
            Place::Named(path) => return Ok(ResultDir::create(path, record, axes)?),
            Place::Usual(path) => path,
        };
        let mut tried = path.clone();
        let mut other: Option<ResultError> = None;
        let mut number = 1;
        loop {
            match ResultDir::create(&tried, record.clone(), axes) {
                Err(error) if is_anothers(&error, &record, &tried) => other = Some(error),
                opened => {
                    if let (Some(error), Ok(_)) = (other, &opened) {
                        let why = CliError::from(error);
                        talk.say(format!("{}; this one is kept in {}", why.message(), tried.display()));
                    }
                    return Ok(opened?);
                }
            }
            number += 1;
            let mut name = path.file_name().unwrap_or_default().to_owned();
            name.push(format!("-{number}"));
            tried = path.with_file_name(name);
        }
    }
}

/// Whether a directory cannot be used since it is another run's.
fn is_anothers(error: &ResultError, record: &RunRecord, path: &Path) -> bool {
    match error {
        ResultError::OtherRun { .. }
        | ResultError::OtherBuild { .. }
        | ResultError::Holds { .. }
        | ResultError::NoRecord { .. } => true,
        // Another process is at the same run, or at another one.
        ResultError::Busy { .. } => RunRecord::read(path).is_ok_and(|old| old.goes_on(record, path).is_err()),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use primitives::measure::Kind;
    use serde_json::json;

    fn record(nodes: u32) -> RunRecord {
        RunRecord::new(Kind::Study, "sim:cx4-edr", json!({ "nodes": nodes }), 1, 1)
    }

    #[test]
    fn another_run_gets_the_next_number_and_the_same_one_its_own() {
        let temp = tempfile::tempdir().unwrap();
        let place = Place::new(None, temp.path(), "study");
        let open = |nodes| place.open(record(nodes), &[], Talk::new(0, true));
        let into = |nodes| open(nodes).unwrap().path().file_name().unwrap().to_owned();
        assert_eq!([3, 4, 5, 4, 3].map(into), ["study", "study-2", "study-3", "study-2", "study"]);
        // Whose directory is being written to: another run's is no hindrance, and the same run's is.
        let _held = open(3).unwrap();
        assert_eq!(into(4), "study-2");
        assert!(open(3).unwrap_err().message().contains("another process is writing to"));
        // Files that nobody knows whose they are.
        std::fs::remove_file(temp.path().join("study-3/run.json")).unwrap();
        assert_eq!(into(5), "study-4");
    }

    #[test]
    fn a_directory_that_was_named_is_refused_where_it_holds_another_run() {
        let temp = tempfile::tempdir().unwrap();
        let place = Place::new(Some(&temp.path().join("mine")), Path::new("unused"), "study");
        place.open(record(3), &[], Talk::new(0, true)).unwrap();
        let refused = place.open(record(4), &[], Talk::new(0, true)).unwrap_err();
        assert!(
            refused.message().contains("mine holds the results of another run: --nodes was 3"),
            "{refused}"
        );
        assert_eq!(std::fs::read_dir(temp.path()).unwrap().count(), 1);
    }
}
