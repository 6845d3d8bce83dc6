//! Names the sources this build is made from: the commit, by reading `.git` as plain files, which needs no `git`, and whether they were
//! edited since (`-dirty`), which only `git` can tell: without it nothing is claimed about that.
//!
//! It sits in the last crate of the workspace so that a new commit rebuilds this crate alone.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What goes into the binary, from the root of the workspace. An edit of any of it builds this crate again by itself, so that to
/// look for it here builds nothing more; tests and documents are no part of it.
const SOURCES: &[&str] = &[
    "Cargo.toml",
    "Cargo.lock",
    "primitives/src",
    "primitives/profiles",
    "phases/src",
    "phases/plans",
    "engine/src",
    "reports/src",
    "reports/templates",
    "reports/assets",
    "experiments/src",
    "experiments/claims",
    "experiments/build.rs",
    "primitives/Cargo.toml",
    "phases/Cargo.toml",
    "engine/Cargo.toml",
    "reports/Cargo.toml",
    "experiments/Cargo.toml",
    EMBEDDED,
];
/// Those experiments that answer claims are compiled in.
const EMBEDDED: &str = ":(glob)experiments/*.yaml";

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // As it is now, and not as it was where this program was built: several clones may share a target directory.
    let here = std::env::var("CARGO_MANIFEST_DIR").unwrap_or_default();
    let build = build(&Path::new(&here).join("..")).unwrap_or_else(|| "unknown".to_owned());
    println!("cargo::rustc-env=DOORBELL_COMMIT={build}");
}

/// The commit, marked if what is built is not what was committed.
pub fn build(root: &Path) -> Option<String> {
    let commit = commit(root)?;
    let files =
        fs::read_dir(root.join("experiments")).into_iter().flatten().flatten().map(|entry| entry.path());
    let embedded = files.filter(|path| path.extension().is_some_and(|extension| extension == "yaml"));
    let others = SOURCES.iter().filter(|source| **source != EMBEDDED).map(|source| root.join(source));
    embedded.chain(others).for_each(|path| println!("cargo::rerun-if-changed={}", path.display()));
    Some(if is_edited(root) { format!("{commit}-dirty") } else { commit })
}

fn is_edited(root: &Path) -> bool {
    // A new file is named in one that is not new before it is compiled. Others may use the repository meanwhile: nothing is locked.
    let mut git = Command::new("git");
    git.args(["--no-optional-locks", "status", "--porcelain", "--untracked-files=no", "--"]).args(SOURCES);
    git.current_dir(root).output().is_ok_and(|said| said.status.success() && !said.stdout.is_empty())
}

fn commit(root: &Path) -> Option<String> {
    let git = git_dir(&root.join(".git"))?;
    let head = watched(&git.join("HEAD"))?;
    // A branch whose file is not there, but packed with others, has one from its next commit on; this log grows with each.
    watched(&git.join("logs/HEAD"));
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
