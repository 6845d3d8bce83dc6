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
    /// Where nobody named one: into this directory, or that of `NAME-2`, `NAME-3` and so on which holds the same run; into the next one
    /// where all hold other runs.
    Usual(PathBuf),
}

impl Place {
    /// The directory that was named, or the usual one below `home`.
    pub fn new(named: Option<&PathBuf>, home: &Path, usual: &str) -> Place {
        named.map_or_else(|| Place::Usual(home.join(usual)), |out| Place::Named(out.clone()))
    }

    /// The place of one of several runs that are kept together: below the directory that was named, or below the usual one.
    #[must_use]
    pub fn part(&self, name: &str) -> Place {
        match self {
            Place::Named(path) => Place::Named(path.join(name)),
            Place::Usual(path) => Place::Usual(path.join(name)),
        }
    }

    /// The directory that comes to mind first.
    pub fn path(&self) -> &Path {
        match self {
            Place::Named(path) | Place::Usual(path) => path,
        }
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
        let there = numbers(path);
        let mut other: Option<ResultError> = None;
        for tried in there.iter().map(|&number| numbered(path, number)) {
            match ResultDir::create(&tried, record.clone(), axes) {
                Err(error) if is_anothers(&error, &record, &tried) => other = Some(error),
                opened => return said(opened?, other, talk),
            }
        }
        let next = numbered(path, there.last().map_or(1, |last| last + 1));
        said(ResultDir::create(&next, record, axes)?, other, talk)
    }
}

/// A directory that was opened, and where it is if another run's came to mind before it.
fn said(opened: ResultDir, other: Option<ResultError>, talk: Talk) -> Result<ResultDir, CliError> {
    if let Some(error) = other {
        let why = CliError::from(error);
        talk.say(format!("{}; this one is kept in {}", why.message(), opened.path().display()));
    }
    Ok(opened)
}

/// `NAME`, or `NAME-2` and so on.
fn numbered(path: &Path, number: u32) -> PathBuf {
    if number == 1 {
        return path.to_owned();
    }
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!("-{number}"));
    path.with_file_name(name)
}

/// Which of `NAME`, `NAME-2` and so on there are, in order; some may have been removed.
fn numbers(path: &Path) -> Vec<u32> {
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let number = |entry: std::io::Result<std::fs::DirEntry>| {
        let there = entry.ok()?.file_name().to_string_lossy().into_owned();
        match there.strip_prefix(&name)? {
            "" => Some(1),
            rest => rest.strip_prefix('-')?.parse().ok().filter(|&number: &u32| number > 1),
        }
    };
    let home = path.parent().unwrap_or(Path::new("."));
    let mut all: Vec<u32> = std::fs::read_dir(home).into_iter().flatten().filter_map(number).collect();
    all.sort_unstable();
    all
}

/// Of such directories the last that has the file which `left` names in it.
pub fn newest_with(path: &Path, left: impl Fn(&Path) -> PathBuf) -> Option<PathBuf> {
    numbers(path).into_iter().rev().map(|number| numbered(path, number)).find(|dir| left(dir).exists())
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
        // The first one is removed: the others are where they were, and what is new comes behind them.
        std::fs::remove_dir_all(temp.path().join("study")).unwrap();
        assert_eq!([4, 6, 5].map(into), ["study-2", "study-5", "study-4"]);
        let left = newest_with(&temp.path().join("study"), |dir| dir.join("run.json"));
        assert_eq!(left.unwrap().file_name().unwrap(), "study-5");
        assert_eq!(newest_with(&temp.path().join("study"), |dir| dir.join("profile.yaml")), None);
    }

    #[test]
    fn parts_are_named_as_the_whole_is() {
        let temp = tempfile::tempdir().unwrap();
        let whole = temp.path().join("whole");
        let open = |whole: &Place, nodes| whole.part("run").open(record(nodes), &[], Talk::new(0, true));
        let usual = Place::Usual(whole.clone());
        assert_eq!(
            [3, 4].map(|nodes| open(&usual, nodes).unwrap().path().to_owned()),
            [whole.join("run"), whole.join("run-2")]
        );
        let named = Place::Named(whole.clone());
        assert_eq!(open(&named, 3).unwrap().path(), whole.join("run"));
        assert!(open(&named, 4).is_err());
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
