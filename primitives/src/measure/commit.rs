//! Commits as people read them.

/// What a build adds to its commit if its sources were edited since.
const EDITED: &str = "-dirty";

/// The first so many digits of a commit. That it was edited is told in any case: it is another build.
pub fn short_commit(commit: &str, digits: usize) -> String {
    let (commit, edited) = match commit.strip_suffix(EDITED) {
        Some(commit) => (commit, EDITED),
        None => (commit, ""),
    };
    commit.chars().take(digits).chain(edited.chars()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_edited_commit_is_another_however_short() {
        assert_eq!(short_commit("0123456789ab", 7), "0123456");
        assert_eq!(short_commit("0123456789ab-dirty", 7), "0123456-dirty");
        assert_eq!(short_commit("0123456789ab-dirty", 12), "0123456789ab-dirty");
        assert_eq!(short_commit("unknown", 12), "unknown");
    }
}
