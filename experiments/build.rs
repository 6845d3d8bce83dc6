//! Finds the commit this build is made from, by reading `.git` as plain files: the build needs no `git`.
//!
//! It sits in the last crate of the workspace so that a new commit rebuilds this crate alone. Whether files
//! were changed after the commit cannot be told without `git`, so nothing is claimed about it.

use std::fs;
use std::path::{Path, PathBuf};

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // As it is now, and not as it was where this program was built: several clones may share a target directory.
    let here = std::env::var("CARGO_MANIFEST_DIR").unwrap_or_default();
    let commit = commit(&Path::new(&here).join("..")).unwrap_or_else(|| "unknown".to_owned());
    println!("cargo::rustc-env=DOORBELL_COMMIT={commit}");
}

fn commit(root: &Path) -> Option<String> {
    let git = git_dir(&root.join(".git"))?;
    let head = watched(&git.join("HEAD"))?;
    let Some(name) = head.strip_prefix("ref: ") else { return hash(&head) };
    // In a linked worktree HEAD is its own and branches are the main repository's.
    let common = match fs::read_to_string(git.join("commondir")) {
        Ok(path) => git.join(path.trim()),
        Err(_) => git,
    };
    if let Some(found) = watched(&common.join(name)).and_then(|text| hash(&text)) {
        return Some(found);
    }
    let packed = watched(&common.join("packed-refs"))?;
    packed.lines().find_map(|line| line.strip_suffix(name).and_then(|rest| hash(rest.trim())))
}

/// `.git` is the directory itself, or in a linked worktree a file that names it.
fn git_dir(dot_git: &Path) -> Option<PathBuf> {
    if dot_git.is_dir() {
        return Some(dot_git.to_owned());
    }
    let text = fs::read_to_string(dot_git).ok()?;
    let path = PathBuf::from(text.strip_prefix("gitdir: ")?.trim());
    Some(if path.is_absolute() { path } else { dot_git.parent()?.join(path) })
}

/// A file's text, trimmed; the build runs again when the file changes.
fn watched(path: &Path) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    println!("cargo::rerun-if-changed={}", path.display());
    Some(text.trim().to_owned())
}

fn hash(text: &str) -> Option<String> {
    let is_hash = text.len() >= 40 && text.bytes().all(|b| b.is_ascii_hexdigit());
    is_hash.then(|| text[..12].to_owned())
}
