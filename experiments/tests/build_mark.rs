//! What a build calls itself: another name where its sources are not those of the commit.

#[allow(dead_code)] // its `main`
#[path = "../build.rs"]
mod build_script;

use std::path::Path;
use std::process::Command;

fn git(root: &Path, args: &[&str]) -> bool {
    let who = ["-c", "user.name=a", "-c", "user.email=a@b"];
    Command::new("git")
        .args(who)
        .args(args)
        .current_dir(root)
        .output()
        .is_ok_and(|said| said.status.success())
}

#[test]
fn an_edited_tree_is_another_build_than_its_commit() {
    let folder = tempfile::tempdir().expect("a folder");
    let root = folder.path();
    let write = |name: &str, text: &str| {
        let path = root.join(name);
        std::fs::create_dir_all(path.parent().expect("below the root")).expect("ours");
        std::fs::write(path, text).expect("ours");
    };
    let named = || build_script::build(root);
    assert_eq!(named(), None, "no repository, no commit");
    if !git(root, &["init", "-q"]) {
        println!("SKIPPED: there is no git here");
        return;
    }
    write("engine/src/lib.rs", "// as committed");
    write("README.md", "as committed");
    write("experiments/one.yaml", "question: as committed");
    assert!(git(root, &["add", "."]) && git(root, &["commit", "-qm", "one"]), "it commits");
    let clean = named().expect("a commit");
    assert!(clean.len() == 12 && clean.bytes().all(|digit| digit.is_ascii_hexdigit()), "{clean}");
    write("README.md", "edited");
    write("engine/src/notes.txt", "of nobody's");
    assert_eq!(named().as_ref(), Some(&clean), "nothing of it is built");
    write("engine/src/lib.rs", "// edited");
    assert_eq!(named(), Some(format!("{clean}-dirty")));
    assert!(git(root, &["commit", "-qam", "two"]), "it commits");
    let next = named().expect("a commit");
    assert!(next.len() == 12 && next != clean, "{next}");
    write("experiments/one.yaml", "question: edited");
    assert_eq!(named(), Some(format!("{next}-dirty")));
}
