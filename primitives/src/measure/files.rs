//! Writing whole files: all or nothing, and never over somebody else's.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use super::ResultError;

/// Replaces `path` by a file with these bytes, by way of a temporary file beside it and a rename: whoever
/// reads it sees the old bytes or the new ones, also after a crash.
///
/// # Errors
/// [`ResultError::Io`] with the path; the old file is then untouched.
pub fn write_atomic(path: &Path, bytes: &[u8]) -> Result<(), ResultError> {
    let temporary = beside(path);
    let written = write_and_sync(&temporary, bytes).and_then(|()| fs::rename(&temporary, path));
    written.map_err(|source| {
        let _ = fs::remove_file(&temporary); // may not exist; the error that matters is the first one
        ResultError::Io { action: "write", path: path.to_owned(), source }
    })
}

/// Creates `path` with these bytes. A device, a pipe or an empty file may be there before, a file with
/// something in it may not.
///
/// # Errors
/// [`ResultError::Exists`] if it would overwrite something, else [`ResultError::Io`].
pub fn write_new(path: &Path, bytes: &[u8]) -> Result<(), ResultError> {
    match fs::metadata(path) {
        Ok(meta) if meta.is_file() && meta.len() > 0 => Err(ResultError::Exists { path: path.to_owned() }),
        Ok(meta) if meta.is_file() => write_atomic(path, bytes),
        Ok(_) => OpenOptions::new()
            .write(true)
            .open(path)
            .and_then(|mut device| device.write_all(bytes))
            .map_err(ResultError::io("write", path)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => write_atomic(path, bytes),
        Err(error) => Err(ResultError::io("write", path)(error)),
    }
}

fn write_and_sync(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = File::create(path)?;
    file.write_all(bytes)?;
    file.sync_data()
}

/// Removes what a killed process left half written. Only for a folder that nobody else writes to now.
pub(super) fn remove_temporaries(folder: &Path) {
    let ours = |name: &str| {
        let pid = name.strip_suffix(".tmp").and_then(|rest| rest.rsplit_once('.')).map(|(_, pid)| pid);
        pid.is_some_and(|pid| pid.parse::<u32>().is_ok())
    };
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.file_name().to_str().is_some_and(ours) {
            let _ = fs::remove_file(entry.path()); // it does no harm, only looks untidy
        }
    }
}

/// A name beside `path` that no other process takes.
fn beside(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.tmp", std::process::id()));
    path.with_file_name(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replaces_whole_files_and_leaves_nothing_beside_them() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("run.json");
        write_atomic(&path, b"one").unwrap();
        write_atomic(&path, b"two").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"two");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn only_what_a_killed_process_left_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        let all = ["run.json.71.tmp", "7.json.4000000000.tmp", "run.json", "mine.tmp", "a.b.tmp"];
        all.iter().for_each(|name| fs::write(dir.path().join(name), "x").unwrap());
        remove_temporaries(dir.path());
        let mut left: Vec<_> = fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, ["a.b.tmp", "mine.tmp", "run.json"]);
    }

    #[test]
    fn never_overwrites_but_takes_empty_files_and_devices() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("out.json");
        write_new(&path, b"").unwrap();
        write_new(&path, b"first").unwrap();
        let error = write_new(&path, b"second").unwrap_err();
        assert!(matches!(error, ResultError::Exists { .. }), "{error}");
        assert_eq!(fs::read(&path).unwrap(), b"first");
        write_new(Path::new("/dev/null"), b"gone").unwrap();
    }

    #[test]
    fn a_full_device_and_a_bad_path_are_told_apart() {
        let full = write_new(Path::new("/dev/full"), b"x").unwrap_err();
        assert!(full.is_full() && full.hint().contains("make room"), "{full}");
        let bad = write_new(Path::new("/dev/null/x.json"), b"x").unwrap_err();
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("1.json")).unwrap();
        let taken = write_atomic(&dir.path().join("1.json"), b"x").unwrap_err();
        assert!(taken.to_string().ends_with("/1.json"), "{taken}");
        assert!(taken.hint().starts_with("a directory of that name is in the way"), "{}", taken.hint());
        assert!(!bad.is_full() && bad.hint().contains("part of the path is a file"), "{bad}: {}", bad.hint());
    }
}
